use super::*;

/// A rebuild as shown in the documents.
fn documented() -> String {
    let text = include_str!("../../../../../docs/guide/maintain.md");
    let line = text
        .lines()
        .map(str::trim_start)
        .find(|line| line.starts_with("rebuild    member"))
        .expect("an example");
    format!("{line}\n")
}

#[test]
fn the_line_of_a_rebuild_has_progress_rate_and_remaining_time() {
    const GIB: f64 = (1u64 << 30) as f64;
    let mut report = RebuildReport {
        members: vec![2],
        segments_done: 120,
        segments_total: 300,
        written_bytes: (3.08 * GIB) as u64,
        total_bytes: (7.5 * GIB) as u64,
        bytes_per_second: 210_000_000,
        ..RebuildReport::default()
    };
    report.left_seconds =
        (report.total_bytes - report.written_bytes).checked_div(report.bytes_per_second);
    assert_eq!(
        rebuild(&report),
        "rebuild    member 2: 41 % done, 3.08 GiB of 7.50 GiB, 210 MB/s, 0:00:22 left, 120 of 300 segments\n"
    );
    assert_eq!(rebuild(&report), documented());
    // Two members without progress; the end must not be reported before it has come.
    let stuck = RebuildReport {
        members: vec![2, 11],
        written_bytes: report.total_bytes,
        bytes_per_second: 0,
        left_seconds: None,
        ..report.clone()
    };
    assert_eq!(
        rebuild(&stuck),
        "rebuild    member 2, 11: 99 % done, 7.50 GiB of 7.50 GiB, 0 MB/s, time left unknown, 120 of 300 segments\n"
    );
    assert_eq!(
        rebuild(&RebuildReport {
            left_seconds: Some(90_061),
            ..report.clone()
        })
        .split(", ")
        .nth(3),
        Some("25:01:01 left")
    );
    assert_eq!(
        rebuild(&RebuildReport {
            members: Vec::new(),
            ..report
        }),
        "",
        "there is none"
    );
}
