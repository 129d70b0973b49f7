use super::*;
use windrow_host::scrub::LostBlock;

/// 300 MB of 1000 read in 3 seconds.
fn scrub(state: ScrubState) -> ScrubReport {
    ScrubReport {
        state,
        started_unix_s: 1_700_000_000,
        active_ms: 3000,
        read_bytes: 300_000_000,
        left_bytes: 700_000_000,
        ..ScrubReport::default()
    }
}

#[test]
fn each_state_in_a_line() {
    assert_eq!(
        line(&ScrubReport::default(), true, None),
        "there has been none"
    );
    assert_eq!(
        line(&scrub(ScrubState::Running), true, None),
        "running, 30 % done, 100 MB/s, 0:00:07 left, 0 wrong blocks"
    );
    assert_eq!(
        line(&scrub(ScrubState::Running), true, Some(0)),
        "running, 30 % done, 0 MB/s, time left unknown, 0 wrong blocks"
    );
    let bound = ScrubReport {
        bytes_per_second: 50 << 20,
        ..scrub(ScrubState::Running)
    };
    assert_eq!(
        line(&bound, true, Some(50_000_000)),
        "running, 30 % done, 50 MB/s (at most 50 MiB/s), 0:00:14 left, 0 wrong blocks"
    );
    assert_eq!(
        line(&bound, false, None),
        "interrupted at 30 %, resumes when the pool is served, 0 wrong blocks"
    );
    assert_eq!(
        line(&scrub(ScrubState::Paused), true, None),
        "paused at 30 %, begun 2023-11-14 22:13 UTC, 0 wrong blocks"
    );
    let completed = ScrubReport {
        active_ms: 761_999,
        wrong_blocks: 3,
        moved_blocks: 12,
        ..scrub(ScrubState::Completed)
    };
    assert_eq!(
        line(&completed, true, None),
        "completed, begun 2023-11-14 22:13 UTC, in 0:12:41, 3 wrong blocks, 12 moved, 0 lost"
    );
    let full = ScrubReport {
        unmoved_blocks: 4,
        ..completed.clone()
    };
    assert!(
        line(&full, true, None)
            .ends_with("3 wrong blocks, 12 moved, 0 lost, 4 not moved because there is no room")
    );
    let ended = ScrubReport {
        ended_unix_s: 1_700_000_900,
        next_unix_s: Some(1_700_864_900),
        ..completed
    };
    assert_eq!(
        line(&ended, true, None),
        "completed 2023-11-14 22:28 UTC, in 0:12:41, 3 wrong blocks, 12 moved, 0 lost, next 2023-11-24 22:28 UTC"
    );
    let stopped = ScrubReport {
        segments_done: 1,
        segments_total: 2,
        damaged_batches: 2,
        ..scrub(ScrubState::Stopped)
    };
    assert_eq!(
        line(&stopped, true, None),
        "stopped at 50 %, begun 2023-11-14 22:13 UTC, 0 wrong blocks, 0 moved, 0 lost, 2 damaged batches"
    );
}

#[test]
fn lost_blocks_are_listed_up_to_a_bound() {
    assert_eq!(lost(&ScrubReport::default()), "");
    let block = |block| LostBlock {
        volume: "data".to_owned(),
        block,
    };
    let few = ScrubReport {
        lost_blocks: 3,
        lost: vec![block(2)],
        ..ScrubReport::default()
    };
    assert_eq!(
        lost(&few),
        "lost       volume 'data', block 2 (4096 bytes at 8192)\nlost       2 more blocks; `windrow pool status` shows their ranges\n"
    );
    let many = ScrubReport {
        lost_blocks: 100,
        lost: (0..100).map(block).collect(),
        ..ScrubReport::default()
    };
    assert_eq!(lost(&many).lines().count(), LOST_SHOWN + 1);
    assert!(lost(&many).ends_with("80 more blocks; -o json lists more of them\n"));
}

#[test]
fn the_rate_is_that_of_the_last_answers() {
    let begin = Instant::now();
    let at = |milliseconds, bytes| (begin + Duration::from_millis(milliseconds), bytes);
    assert_eq!(rate(&VecDeque::new()), None);
    assert_eq!(
        rate(&VecDeque::from([at(0, 5)])),
        None,
        "one answer has no rate"
    );
    assert_eq!(
        rate(&VecDeque::from([at(0, 1000), at(250, 3000), at(500, 6000)])),
        Some(10_000)
    );
}
