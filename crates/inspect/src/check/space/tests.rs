use crate::report::{FindingKind::*, Severity::*};
use crate::test_pool::*;
use windrow_geometry::*;
use windrow_types::*;

/// Two checkpoints, and between them a batch without live data. Returns its number among the
/// batches.
fn pool_with_a_dead_batch(change: impl FnOnce(&mut TestPool, usize)) -> (TestPool, usize) {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    pool.create(1, "v", 1000);
    pool.write(1, &[1]);
    pool.checkpoint();
    let dead = pool.batches.len();
    pool.write(1, &[5, 6]);
    // Live data is in another segment: the one without live data has not been checked.
    while pool.positions[USER].row < ROWS {
        pool.batch(USER, &[]);
    }
    pool.write(1, &[1, 5, 6]);
    change(&mut pool, dead);
    pool.checkpoint();
    (pool, dead)
}

#[test]
fn what_only_the_older_checkpoint_needs_is_compared_with_the_table() {
    let (mut pool, dead) = pool_with_a_dead_batch(|_, _| ());
    let report = pool.expect_clean();
    assert!(report.space.older_batches >= 2, "{:?}", report.space);
    let segment = pool.batches[dead].0;
    let wrong: [fn(&mut SegmentModel); 4] = [
        |s| s.last_seq.0 += 1,
        |s| s.filled_rows -= 1,
        |s| s.stream = StreamId(CLEANED as u8),
        |s| (s.filled_rows, s.starts[0]) = (0, 0),
    ];
    for (number, wrong) in wrong.into_iter().enumerate() {
        let (mut pool, _) =
            pool_with_a_dead_batch(|pool, _| wrong(&mut pool.segments[segment.index()]));
        let report = pool.check();
        assert_eq!(
            kinds(&report),
            [(StartsMismatch, Error)],
            "{number}: {:#?}",
            report.findings.list
        );
        assert_eq!(
            (report.findings.list[0].segment, report.exit_code()),
            (Some(segment), 4)
        );
    }
}

#[test]
fn damage_of_what_only_the_older_checkpoint_needs_is_a_note() {
    let (mut pool, dead) = pool_with_a_dead_batch(|_, _| ());
    pool.lose_columns(dead, 0..2);
    assert!(
        pool.expect_clean().findings.list.is_empty(),
        "the header is rebuilt"
    );
    pool.lose_columns(dead, 0..6);
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.exit_code()),
        (vec![(BatchDamaged, Note)], 0),
        "{:#?}",
        report.findings.list
    );
    // Rows preceding the older checkpoint may be overwritten.
    pool.checkpoint();
    pool.checkpoint();
    assert!(pool.expect_clean().findings.list.is_empty());
}

#[test]
fn sums_are_those_of_the_segments() {
    let (mut pool, dead) = pool_with_a_dead_batch(|_, _| ());
    let report = pool.expect_clean();
    let space = &report.space;
    let shape = *pool.zones.shape(SegmentId(0));
    assert_eq!(
        (space.segments, space.segment_bytes),
        (
            u64::from(SEGMENTS),
            u64::from(SEGMENTS) * shape.data_blocks() * BLOCK_BYTES
        )
    );
    assert_eq!(
        space.live_bytes,
        report.live_blocks * BLOCK_BYTES,
        "nothing is compressed"
    );
    assert_eq!(space.live_bytes + space.garbage_bytes, space.filled_bytes);
    assert_eq!(
        report.live_segments + space.kept_segments + space.idle_segments,
        space.segments
    );
    // The segment without live data, and the one in which the cleaning stream continues.
    assert_eq!(space.kept_segments, 2, "{space:?}");
    // When both checkpoints follow the dead segment, it is no longer kept.
    pool.checkpoint();
    pool.checkpoint();
    let later = pool.expect_clean();
    assert_eq!(
        later.space.kept_segments, 1,
        "segment {}: {:?}",
        pool.batches[dead].0, later.space
    );
}
