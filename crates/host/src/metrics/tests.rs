use super::*;
use crate::report::tests::sample;
use windrow_engine::RebuildStatus;
use windrow_types::MemberId;

#[test]
fn names_are_escaped_and_every_kind_of_metric_is_there() {
    let page = render(&sample());
    assert!(page.contains("windrow_pool_state{pool=\"ta\\\"nk\",state=\"degraded\"} 1\n"));
    assert!(page.contains("windrow_written_bytes_total{pool=\"ta\\\"nk\",cause=\"parity\"} 30\n"));
    assert!(page.contains("windrow_export_clients{pool=\"ta\\\"nk\",export=\"da\\\"ta\"} 1\n"));
    assert!(page.contains(
        "windrow_request_latency_nanoseconds_count{pool=\"ta\\\"nk\",operation=\"write\"} 0\n"
    ));
    assert!(page.contains("windrow_stage_latency_nanoseconds{pool=\"ta\\\"nk\",stage=\"write_admission\",quantile=\"0.9\"} 8\n"));
    assert!(page.contains(
        "windrow_stage_latency_nanoseconds_sum{pool=\"ta\\\"nk\",stage=\"write_admission\"} 21\n"
    ));
}

#[test]
fn every_metric_has_a_type_and_every_sample_a_number() {
    let page = render(&sample());
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').unwrap();
        let family = name.trim_end_matches("_sum").trim_end_matches("_count");
        assert!(page.contains(&format!("# TYPE {family} ")), "{line}");
        rest.rsplit_once("} ").unwrap().1.parse::<f64>().unwrap();
    }
}

/// The value of a metric that has one sample at most.
fn value<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let line = page
        .lines()
        .find(|line| line.starts_with(&format!("windrow_{name}{{")))?;
    Some(line.rsplit_once("} ").unwrap().1)
}

#[test]
fn a_rebuild_shows_what_is_done_and_what_is_left() {
    let mut report = sample();
    report.rebuild = (&RebuildStatus {
        waits_ms: 0,
        members: vec![MemberId(1), MemberId(4)],
        segments_done: 2,
        segments_total: 5,
        read_bytes: 160,
        written_bytes: 40,
        left_bytes: 91,
        bytes_per_second: 9,
        damaged_batches: 3,
    })
        .into();
    let page = render(&report);
    for (name, expected) in [
        ("rebuild_members", "2"),
        ("rebuild_segments_done", "2"),
        ("rebuild_segments", "5"),
        ("rebuild_read_bytes_total", "160"),
        ("rebuild_written_bytes_total", "40"),
        ("rebuild_total_bytes", "131"),
        ("rebuild_left_bytes", "91"),
        ("rebuild_rate_bytes", "9"),
        ("rebuild_left_seconds", "10"),
        ("rebuild_damaged_batches_total", "3"),
    ] {
        assert_eq!(value(&page, name), Some(expected), "{name}");
    }
    // There is no progress: the end is unknown.
    report.rebuild.left_seconds = None;
    let page = render(&report);
    assert_eq!(
        (
            value(&page, "rebuild_left_seconds"),
            value(&page, "rebuild_left_bytes")
        ),
        (None, Some("91"))
    );
}

#[test]
fn a_pool_that_refuses_data_and_lines_that_were_dropped_are_shown() {
    let mut report = sample();
    assert_eq!(
        (
            value(&render(&report), "pool_refuses_data"),
            value(&render(&report), "dropped_log_lines_total")
        ),
        (Some("0"), Some("5"))
    );
    assert_eq!(
        PoolReport {
            state: "online".to_owned(),
            data: crate::data::DataReport::default(),
            ..report.clone()
        }
        .exit_code(),
        0
    );
    report.refuses_data = true;
    assert_eq!(value(&render(&report), "pool_refuses_data"), Some("1"));
    assert_eq!(
        PoolReport {
            state: "online".to_owned(),
            data: crate::data::DataReport::default(),
            ..report
        }
        .exit_code(),
        3
    );
}

#[test]
fn connections_and_their_memory_come_with_their_bounds() {
    let mut report = sample();
    let page = render(&report);
    for (name, expected) in [
        ("connections", "2"),
        ("connections_limit", "256"),
        ("connections_refused_total", "3"),
        ("request_memory_bytes", "4096"),
        ("request_memory_limit_bytes", "268435456"),
    ] {
        assert_eq!(value(&page, name), Some(expected), "{name}");
    }
    report.nbd = None;
    assert_eq!(
        value(&render(&report), "connections"),
        None,
        "no address is served"
    );
}

#[test]
fn a_scrub_has_one_state_and_its_sums() {
    let page = render(&sample());
    let states: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("windrow_scrub_state{") && line.ends_with(" 1"))
        .collect();
    assert_eq!(
        states,
        ["windrow_scrub_state{pool=\"ta\\\"nk\",state=\"running\"} 1"]
    );
    for (name, expected) in [
        ("scrub_started_seconds", "1700000000"),
        ("scrub_left_bytes", "700"),
        ("scrub_segments_done", "4"),
        ("scrub_active_seconds_total", "1.500"),
        ("scrub_batches_total", "11"),
        ("scrub_read_bytes_total", "300"),
        ("scrub_wrong_blocks_total", "12"),
        ("scrub_moved_blocks_total", "13"),
        ("scrub_unmoved_blocks_total", "15"),
        ("scrub_lost_blocks_total", "1"),
        ("scrub_damaged_batches_total", "14"),
    ] {
        assert_eq!(value(&page, name), Some(expected), "{name}");
    }
}
