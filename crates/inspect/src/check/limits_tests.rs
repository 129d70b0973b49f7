//! Limits: large amounts of metadata, little memory, and members that do not answer.

use super::*;
use crate::report::{FindingKind::*, Severity::*};
use crate::test_pool::*;
use windrow_format::batch::RangeState;
use windrow_format::superblock::{LABEL_OFFSET, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE};
use windrow_geometry::Redundancy;
use windrow_types::{BLOCK_BYTES, MemberId};

/// `verify_parity` alone must report bit rot in live payload, not correct it in memory and then
/// find the redundancy consistent.
#[test]
fn a_check_of_redundancy_alone_reports_rot_in_live_payload() {
    let parity_only = CheckOptions {
        verify_parity: true,
        ..CheckOptions::default()
    };
    let mut pool = TestPool::new(Redundancy::Single, 5);
    pool.create(1, "v", 100);
    // One row: header, 5, 6, footer.
    pool.write(1, &[5, 6]);
    pool.checkpoint();
    assert!(
        check(&mut pool.io, &parity_only, &mut |_| {})
            .findings
            .is_clean()
    );
    pool.damage(1, 1);
    let report = check(&mut pool.io, &parity_only, &mut |_| {});
    assert_eq!(
        kinds(&report),
        [(BlockWrong, Repairable)],
        "{:#?}",
        report.findings.list
    );
    let owned = |finding: &Finding| finding.lba == Some(Lba(5)) && finding.member.is_some();
    assert!(
        owned(&report.findings.list[0]),
        "{:#?}",
        report.findings.list
    );
    pool.damage(1, 2);
    let report = check(&mut pool.io, &parity_only, &mut |_| {});
    assert_eq!(
        report
            .findings
            .list
            .iter()
            .filter(|f| (f.kind, f.severity) == (BlockWrong, Error))
            .count(),
        2,
        "{:#?}",
        report.findings.list
    );
}

#[test]
fn maps_that_need_more_memory_than_they_may_are_refused() {
    let mut pool = TestPool::new(Redundancy::None, 8);
    pool.create(1, "v", 100_000);
    (0..66).for_each(|page| pool.fill(1, page * 256));
    pool.checkpoint();
    let pages = 66;
    for (map_bytes, fits) in [
        (pages * BLOCK_BYTES / 2 - 32 * BLOCK_BYTES, true),
        (pages * BLOCK_BYTES / 2 - 32 * BLOCK_BYTES - 1, false),
    ] {
        let report = check(
            &mut pool.io,
            &CheckOptions {
                map_bytes,
                ..CheckOptions::everything()
            },
            &mut |_| {},
        );
        assert_eq!(report.failure.is_none(), fits, "{:?}", report.failure);
        assert_eq!(
            report
                .findings
                .list
                .iter()
                .any(|finding| finding.kind == MapMemory),
            !fits
        );
    }
}

/// References are held for a part of the segments at a time; together they must equal the full set.
#[test]
fn references_in_parts_are_all_of_them() {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    pool.create(1, "v", 10_000);
    (0..60).for_each(|round| _ = pool.write(1, &[round, 100 + round, 200 + round, 300]));
    pool.checkpoint();
    let superblock = pool.superblock.clone();
    let mut reader = PoolReader::new(&mut pool.io, &superblock, u64::MAX);
    let image = image::load(
        &mut reader,
        &superblock.checkpoints[0].expect("a checkpoint"),
        Some(u64::MAX),
    )
    .expect("it loads");
    let mut report = CheckReport::default();
    let counts = count_references(&reader, &image.tables, &image.pages, &mut report);
    assert!(counts.len() > 3);
    let mut collect = |at_once: u64| {
        let parts = parts_of(&counts, at_once);
        let collected: Vec<Vec<Reference>> = parts
            .iter()
            .map(|part| {
                collect_references(
                    &reader,
                    &image.tables,
                    &image.pages,
                    part,
                    &mut report.findings,
                )
            })
            .collect();
        assert!(
            collected
                .iter()
                .zip(&parts)
                .all(|(references, part)| references.len() as u64 == part.1)
        );
        (
            parts.len(),
            collected
                .concat()
                .iter()
                .map(|r| (r.address, r.checksum))
                .collect::<Vec<_>>(),
        )
    };
    let (parts, at_once) = collect(u64::MAX);
    assert_eq!((parts, collect(1)), (1, (counts.len(), at_once.clone())));
    assert!(collect(counts.values().max().copied().unwrap_or(0)).1 == at_once);
}

/// Each block of a long head may be as read or reconstructed. The combination "all reconstructed"
/// must not come after the limit of combinations.
#[test]
fn a_long_head_that_missed_its_write_is_rebuilt() {
    for (redundancy, members, columns) in [
        (Redundancy::Single, 5, 0..1),
        (Redundancy::Double, 6, 0..1),
        (Redundancy::Double, 6, 0..2),
    ] {
        let mut pool = TestPool::new(redundancy, members);
        pool.create(1, "v", 1 << 36);
        let lsn = pool.lsn + 1;
        let trim = |i: u64| {
            let (lba, count) = (
                i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29,
                1 + (i.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 31),
            );
            (
                Entry::Range {
                    volume: VolumeId(1),
                    lba: Lba(lba),
                    count,
                    lsn: Lsn(lsn + i),
                    state: RangeState::Hole,
                },
                None,
            )
        };
        let entries: Vec<_> = (0..5900).map(trim).collect();
        pool.lsn += 5900;
        let batch = pool.batches.len();
        pool.batch(USER, &entries);
        let (member, at) = pool.address(batch, 0);
        let header = &pool.io.members[member.index()].as_ref().expect("a member")[at as usize..]
            [..BLOCK_SIZE];
        let frame = windrow_format::batch::decode_header(
            header,
            &pool.superblock.pool,
            pool.batches[batch].0,
            pool.batches[batch].1,
        )
        .expect("a header");
        assert!(frame.head_blocks >= 15, "{}", frame.head_blocks);
        pool.flush();
        pool.batch(CLEANED, &[]);
        pool.lose_columns(batch, columns.clone());
        let report = pool.check();
        assert!(
            report
                .findings
                .list
                .iter()
                .all(|finding| finding.severity < Error),
            "{columns:?}: {:#?}",
            report.findings.list
        );
        assert_eq!(report.recovery_lsn.0, pool.lsn, "{columns:?}");
    }
}

/// A drive that fails all reads must not cost a try per block: each may take it seconds.
#[test]
fn a_member_that_answers_no_reads_counts_as_absent() {
    let mut pool = TestPool::new(Redundancy::Single, 5);
    pool.create(1, "v", 10_000);
    (0..200).for_each(|round| {
        _ = pool.write(
            1,
            &[
                round,
                1000 + round,
                2000 + round,
                3000 + round,
                4000 + round,
                5000 + round,
            ],
        )
    });
    pool.checkpoint();
    let start = pool.zones.zones()[0].start;
    let end = pool.io.size(MemberId(2));
    // One bad region, however large, does not retire the member.
    pool.io.unreadable = (start..end / 8 * 7)
        .step_by(BLOCK_SIZE)
        .map(|at| (MemberId(2), at))
        .collect();
    assert!(
        pool.check()
            .findings
            .list
            .iter()
            .all(|finding| finding.kind != MemberAbsent)
    );
    // A member that fails after its superblocks were read.
    let is_read_first = |at: u64| {
        at == LABEL_OFFSET
            || (0..SLOT_COUNT).any(|slot| {
                (0..SLOT_BYTES as u64).contains(&at.wrapping_sub(SLOT_OFFSET + slot * SLOT_STRIDE))
            })
    };
    pool.io.unreadable = (0..end)
        .step_by(BLOCK_SIZE)
        .filter(|at| !is_read_first(*at))
        .map(|at| (MemberId(2), at))
        .collect();
    let report = pool.check();
    let given_up = report
        .findings
        .list
        .iter()
        .filter(|finding| finding.kind == MemberAbsent)
        .map(|finding| (finding.member, finding.severity));
    assert_eq!(
        given_up.collect::<Vec<_>>(),
        [(Some(MemberId(2)), Repairable)],
        "{:#?}",
        report.findings.list
    );
    assert!(
        report
            .findings
            .list
            .iter()
            .all(|finding| finding.severity < Error),
        "{:#?}",
        report.findings.list
    );
    assert_eq!(
        report.findings.list[0].kind, MemberAbsent,
        "it is reported first"
    );
}

/// A superblock whose size exceeds that of every member leads to no reads, whatever tables it asks
/// for.
#[test]
fn members_that_are_all_too_small_are_not_read() {
    let mut pool = TestPool::new(Redundancy::Single, 5);
    pool.checkpoint();
    pool.io
        .members
        .iter_mut()
        .flatten()
        .for_each(|member| member.truncate(2 << 20));
    assert_eq!(
        pool.check().failure.as_deref(),
        Some("no member can be used")
    );
}
