use super::*;

fn stats(live_units: u32, capacity_units: u32, sealed_at: u64) -> SegmentStats {
    SegmentStats { live_units, capacity_units, sealed_at }
}

#[test]
fn score_is_the_published_formula() {
    // u = 0.25, age 100: 0.75 * 100 / 1.25 = 60.
    assert!((cost_benefit(&stats(128, 512, 900), 1000) - 60.0).abs() < 1e-9);
    assert_eq!(cost_benefit(&stats(512, 512, 0), 1000), 0.0);
    assert_eq!(cost_benefit(&stats(0, 512, 1000), 1000), f64::INFINITY);
    // A clock that runs behind the seal is an age of zero, not a huge one.
    assert_eq!(cost_benefit(&stats(1, 512, 1001), 1000), 0.0);
}

#[test]
fn old_and_fuller_can_beat_young_and_emptier() {
    let (old, young) = (stats(400, 512, 0), stats(200, 512, 990));
    assert!(cost_benefit(&old, 1000) > cost_benefit(&young, 1000));
    assert_eq!(young.compare_utilisation(&old), Ordering::Less);
}

#[test]
fn utilisation_compares_over_capacities() {
    assert_eq!(stats(1, 3, 0).compare_utilisation(&stats(2, 6, 0)), Ordering::Equal);
    assert_eq!(stats(1, 3, 0).compare_utilisation(&stats(3, 8, 0)), Ordering::Less);
    assert_eq!(stats(u32::MAX - 1, u32::MAX, 0).compare_utilisation(&stats(u32::MAX, u32::MAX, 0)), Ordering::Less);
}
