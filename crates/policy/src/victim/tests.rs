use super::*;

fn stats(live_units: u32, capacity_units: u32, sealed_at: u64) -> SegmentStats {
    SegmentStats {
        live_units,
        capacity_units,
        sealed_at,
    }
}

#[test]
fn score_is_the_published_formula() {
    // u = 0.25, age 100: 0.75 * 100 / 1.25 = 60.
    assert!((cost_benefit(&stats(128, 512, 900), 1000) - 60.0).abs() < 1e-9);
    assert_eq!(cost_benefit(&stats(512, 512, 0), 1000), 0.0);
    assert_eq!(cost_benefit(&stats(0, 512, 1000), 1000), f64::INFINITY);
    // A clock that lags the seal gives an age of zero, not a huge one.
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
    assert_eq!(
        stats(1, 3, 0).compare_utilisation(&stats(2, 6, 0)),
        Ordering::Equal
    );
    assert_eq!(
        stats(1, 3, 0).compare_utilisation(&stats(3, 8, 0)),
        Ordering::Less
    );
    assert_eq!(
        stats(u32::MAX - 1, u32::MAX, 0).compare_utilisation(&stats(u32::MAX, u32::MAX, 0)),
        Ordering::Less
    );
}

/// A young segment of a ring buffer is wholly dead and counts in full; one with hot data is half
/// live, and counts half of its gain.
#[test]
fn what_is_partly_alive_counts_for_less_where_it_waits() {
    assert_eq!(opportunity_cost(300, 512, 512), 300);
    assert_eq!(opportunity_cost(300, 256, 512), 150);
    assert_eq!(
        (
            opportunity_cost(0, 512, 512),
            opportunity_cost(300, 0, 512),
            opportunity_cost(300, 0, 0)
        ),
        (0, 0, 0)
    );
    // The largest possible segment: 63 columns of 32 512 rows, in bytes and in units of 16.
    let units = 63 * 32_512 * 256;
    assert_eq!(
        opportunity_cost(u64::from(units) * 16, units, units),
        u64::from(units) * 16
    );
}
