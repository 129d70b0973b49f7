use super::*;

fn tried(policy: &'static str, spare_ppm: u64, waf: f64) -> Tried {
    let wear = waf / (1.0 - spare_ppm as f64 / 1e6);
    Tried {
        policy,
        victim_policy: "greedy".to_owned(),
        spare_ppm,
        segment_bytes: 1 << 20,
        waf,
        checkpoints: 0.05,
        wear,
        bytes_per_block: 0.0,
    }
}

#[test]
fn the_least_wear_for_each_usable_byte_wins_and_of_equals_the_simpler_one() {
    let grid = [
        tried("separate", 100_000, 2.0),
        tried("separate", 200_000, 1.5),
        tried("learned", 100_000, 1.7),
        tried("learned", 200_000, 1.495),
    ];
    let best = best_of(&grid, |one| one.wear).unwrap();
    assert_eq!((best.policy, best.spare_ppm), ("separate", 200_000));
    let best = best_of(&grid[2..], |one| one.wear).unwrap();
    assert_eq!((best.policy, best.spare_ppm), ("learned", 200_000));
}

#[test]
fn every_policy_that_is_advised_can_be_set() {
    for policy in policies() {
        let text = format!("{}+{}", policy.placement.name(), policy.rule.name());
        let change = windrow_console::properties::parse(&[("policy".to_owned(), text)]).unwrap();
        assert!(
            policy.placement.code().is_some()
                && change.placement.is_some()
                && change.victim_policy.is_some()
        );
    }
}

#[test]
fn segments_are_as_large_as_a_pool_makes_them() {
    assert_eq!(
        (
            usual_segment(1000),
            usual_segment(1 << 20),
            usual_segment(u32::MAX)
        ),
        (64 << 10, 2 << 20, 64 << 20)
    );
}

/// A pool's current policy is simulated with as many streams as the same policy among the tried
/// ones.
#[test]
fn a_policy_that_is_set_has_the_streams_of_the_one_that_is_advised() {
    for policy in policies() {
        assert_eq!(
            policy_of(policy.placement.name(), &policy.rule.name()),
            Ok(policy)
        );
    }
}

#[test]
fn a_trace_is_gone_through_often_enough() {
    assert_eq!(
        (
            enough(1000, None, 1000),
            enough(1000, None, 0),
            enough(1, None, 1000)
        ),
        (6, 1000, 1)
    );
    assert_eq!(
        (enough(1000, Some(100), 100), enough(1000, Some(900), 100)),
        (20, 54)
    );
}

fn advice(
    grid: Vec<Tried>,
    segments: Vec<Tried>,
    best: Tried,
    without_trims: Option<f64>,
) -> Advice {
    Advice {
        source: String::new(),
        trace: Noticed::default(),
        blocks: 0,
        filled: false,
        written_blocks: 0,
        trims: 0,
        load_seconds: 0.0,
        repeat: 1,
        default_waf: grid[0].waf,
        grid,
        segments,
        best,
        now: None,
        applied: false,
        without_trims,
        drives: Vec::new(),
        members: Vec::new(),
        reasons: Vec::new(),
        commands: Vec::new(),
    }
}

/// The gains of a policy, of trims and of a segment size are reported separately, and an untried
/// size is not mentioned.
#[test]
fn reasons_are_what_each_choice_brings() {
    let grid = vec![
        tried("separate", 100_000, 2.0),
        tried("learned", 100_000, 1.5),
    ];
    let large = Tried {
        segment_bytes: 4 << 20,
        ..tried("learned", 100_000, 1.2)
    };
    let told = |segments: Vec<Tried>, best: &Tried, without| {
        reasons(
            &advice(grid.clone(), segments, best.clone(), without),
            1 << 20,
        )
        .join("\n")
    };
    let of_large = told(vec![grid[1].clone(), large.clone()], &large, Some(1.5));
    assert!(
        of_large.contains("with this one 1.500 (25 % less)")
            && of_large.contains("they bring 1.200 instead of 1.500"),
        "{of_large}"
    );
    assert!(
        of_large.contains("Trims: they change next to nothing"),
        "{of_large}"
    );
    assert!(
        told(vec![grid[1].clone(), large], &grid[1], None).contains("other sizes bring nothing")
    );
    let alone = told(vec![grid[1].clone()], &grid[1], None);
    assert!(
        alone.contains("no other size was tried") && !alone.contains("bring nothing"),
        "{alone}"
    );
}

#[test]
fn what_a_member_says_of_itself_is_one_sentence() {
    let sentence = |text: &str| {
        let health = windrow_plan::health::parse(text).expect("a report");
        let findings = windrow_plan::health::findings(&health, None);
        SmartReport { health, findings }.sentence()
    };
    let report = r#"{"model_name":"A drive","user_capacity":{"bytes":1000000000000},
        "nvme_smart_health_information_log":{"percentage_used":5,"data_units_written":200000000,"power_on_hours":8760}}"#;
    assert_eq!(
        sentence(report),
        "A drive says of itself: 5 % of its rated life is used, at the load so far 19.0 years are left."
    );
    assert_eq!(
        sentence(r#"{"Physical media units written":{"hi":0,"lo":1000}}"#),
        "The drive says of itself: nothing of its wear."
    );
}
