use super::*;
use windrow_engine::Limits;

#[test]
fn the_pace_of_cleaning_is_shown_while_it_holds() {
    let mut figures = BoundsReport {
        limits: Limits::default(),
        map_bytes: 0,
        map_bytes_full: 0,
        map_data_bytes_max: None,
        dedup_bytes: 0,
        dedup_bytes_max: 0,
        map_pages: 0,
        map_pages_max: 0,
        refused_map_pages: 0,
        refused_space: 0,
        pending_bytes: 0,
        at_risk_bytes: 0,
        users_per_1024_gained: Some(1536),
        held_commands: 0,
    };
    let line = |figures: &BoundsReport| {
        bounds(figures)
            .lines()
            .find(|line| line.contains("cleaning gains"))
            .map(str::to_owned)
            .expect("a line")
    };
    assert!(line(&figures).contains(" 1536 "), "{}", line(&figures));
    figures.users_per_1024_gained = None;
    assert!(line(&figures).contains("no limit"), "{}", line(&figures));
}

#[test]
fn the_line_of_the_policy_says_what_it_does() {
    let plain = PlacementReport {
        placement: "separate".into(),
        victim_policy: "greedy".into(),
        user_streams: 1,
        moved_streams: 1,
        ..Default::default()
    };
    assert_eq!(
        placement(&plain),
        "placement separate, victims by greedy: 1 stream of users' writes and 1 stream of moved blocks\n"
    );
    let learned = PlacementReport {
        user_streams: 3,
        moved_streams: 4,
        memory_bytes: 5 << 20,
        further_blocks: 700,
        overflowed_blocks: 3,
        ..plain
    };
    let expected = "3 streams of users' writes and 4 streams of moved blocks, 5 MiB of memory; 700 blocks went to further streams, 3 could not go to theirs\n";
    assert!(
        placement(&learned).ends_with(expected),
        "{}",
        placement(&learned)
    );
}
