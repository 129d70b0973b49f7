use super::*;
use windrow_engine::api::Limits;

#[test]
fn the_pace_of_cleaning_is_shown_while_it_holds() {
    let mut figures = BoundsReport {
        limits: Limits::default(),
        map_bytes: 0,
        map_bytes_full: 0,
        map_pages: 0,
        map_pages_max: 0,
        refused_map_pages: 0,
        refused_space: 0,
        pending_bytes: 0,
        at_risk_bytes: 0,
        users_per_1024_gained: Some(1536),
        held_commands: 0,
    };
    let line = |figures: &BoundsReport| bounds(figures).lines().find(|line| line.contains("cleaning gains")).map(str::to_owned).expect("a line");
    assert!(line(&figures).contains(" 1536 "), "{}", line(&figures));
    figures.users_per_1024_gained = None;
    assert!(line(&figures).contains("no limit"), "{}", line(&figures));
}
