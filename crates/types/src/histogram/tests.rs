use super::*;

#[test]
fn every_value_is_just_below_the_edge_of_its_bucket() {
    let mut last = 0;
    for value in (0..4096)
        .chain((0..40).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]))
        .chain([CAP_NS])
    {
        let edge = upper_edge(index(value.min(CAP_NS)));
        assert!(
            edge >= value && edge - value <= value / 32,
            "{value} -> {edge}"
        );
        last = last.max(index(value));
    }
    assert_eq!(last, BUCKETS - 1);
    for bucket in 1..BUCKETS {
        assert_eq!(
            index(upper_edge(bucket - 1) + 1),
            bucket,
            "buckets follow each other without a gap"
        );
    }
}

#[test]
fn percentiles_of_a_known_set() {
    let mut histogram = Histogram::default();
    assert_eq!(histogram.summary(), LatencySummary::default());
    for value in 1..=100_000 {
        histogram.record(value);
    }
    let summary = histogram.summary();
    assert_eq!(
        (summary.count, summary.mean_ns, summary.max_ns),
        (100_000, 50_000, 100_000)
    );
    for (found, exact) in [
        (summary.p50_ns, 50_000),
        (summary.p90_ns, 90_000),
        (summary.p99_ns, 99_000),
        (summary.p99_9_ns, 99_900),
        (summary.p99_99_ns, 99_990),
    ] {
        assert!(
            found >= exact && found <= exact + exact / 32,
            "{found} for {exact}"
        );
    }
}
