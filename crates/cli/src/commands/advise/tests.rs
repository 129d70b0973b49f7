use super::*;

fn tried(policy: &'static str, spare_ppm: u64, waf: f64) -> Tried {
    let wear = waf / (1.0 - spare_ppm as f64 / 1e6);
    Tried { policy, victim_policy: "greedy".to_owned(), spare_ppm, segment_bytes: 1 << 20, waf, wear, bytes_per_block: 0.0 }
}

#[test]
fn the_least_wear_for_each_usable_byte_wins_and_of_equals_the_simpler_one() {
    let grid = [tried("separate", 100_000, 2.0), tried("separate", 200_000, 1.5), tried("learned", 100_000, 1.7), tried("learned", 200_000, 1.495)];
    let best = best_of(&grid, |one| one.wear).unwrap();
    assert_eq!((best.policy, best.spare_ppm), ("separate", 200_000));
    let best = best_of(&grid[2..], |one| one.wear).unwrap();
    assert_eq!((best.policy, best.spare_ppm), ("learned", 200_000));
}

#[test]
fn every_policy_that_is_advised_can_be_set() {
    for policy in policies() {
        let text = format!("{}+{}", policy.placement.name(), policy.rule.name());
        let change = crate::commands::properties::parse(&[("policy".to_owned(), text)]).unwrap();
        assert!(policy.placement.code().is_some() && change.placement.is_some() && change.victim_policy.is_some());
    }
}

#[test]
fn segments_are_as_large_as_a_pool_makes_them() {
    assert_eq!((usual_segment(1000), usual_segment(1 << 20), usual_segment(u32::MAX)), (64 << 10, 2 << 20, 64 << 20));
}
