use crate::report::{FindingKind::*, Severity::*};
use crate::test_pool::*;
use crate::{CheckOptions, check};
use windrow_format::batch::{Entry, VolumeChange};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::MemberState;
use windrow_geometry::*;
use windrow_types::*;

const REDUNDANCIES: [(Redundancy, u8); 6] = [
    (Redundancy::None, 1),
    (Redundancy::None, 4),
    (Redundancy::Copies(2), 4),
    (Redundancy::Copies(3), 3),
    (Redundancy::Single, 5),
    (Redundancy::Double, 6),
];

/// A pool with two volumes, a checkpoint, and batches of all kinds before and after it.
fn used_pool(redundancy: Redundancy, members: u8) -> TestPool {
    let mut pool = TestPool::new(redundancy, members);
    pool.create(1, "first", 10_000);
    pool.create(2, "second", 500);
    pool.write(1, &[5, 6, 7, 4000]);
    pool.write(2, &[0, 499]);
    pool.clean(1, &[6]);
    pool.flush();
    pool.checkpoint();
    pool.write(1, &[7, 8, 9]);
    pool.trim(1, 3000, 2000);
    pool.fill(2, 3);
    pool.clean(1, &[5, 7]);
    pool.write(1, &[9, 300]);
    pool
}

#[test]
fn a_sound_pool_is_clean_with_every_redundancy() {
    for (redundancy, members) in REDUNDANCIES {
        let mut pool = used_pool(redundancy, members);
        let report = pool.expect_clean();
        assert_eq!(report.checkpoint, 2);
        assert!(report.payload_blocks_verified >= 8);
        assert_eq!(report.live_blocks, report.payload_blocks_verified);
        assert!(report.read_bytes > 0 && report.batches_verified > 4);
        // Structure alone reads less and finds the same.
        let quick = check(&mut pool.io, &CheckOptions::default(), &mut |_| {});
        assert!(
            quick.findings.is_clean()
                && quick.live_blocks == report.live_blocks
                && quick.payload_blocks_verified == 0
        );
        assert!(quick.read_bytes < report.read_bytes);
    }
}

#[test]
fn many_batches_over_many_segments_are_clean() {
    let mut pool = TestPool::new(Redundancy::Single, 4);
    pool.create(1, "v", 100_000);
    for round in 0..40u64 {
        let lbas: Vec<u64> = (0..3 + round % 5)
            .map(|i| (round * 977 + i * 131) % 5000)
            .collect();
        let unique: std::collections::BTreeSet<u64> = lbas.into_iter().collect();
        pool.write(1, &unique.into_iter().collect::<Vec<_>>());
        if round % 15 == 7 {
            pool.checkpoint();
        }
    }
    let report = pool.expect_clean();
    assert!(report.live_segments > 3, "{report:?}");
}

#[test]
fn any_tolerated_member_may_be_missing() {
    for (redundancy, members) in [
        (Redundancy::Single, 5),
        (Redundancy::Double, 6),
        (Redundancy::Copies(2), 4),
    ] {
        for missing in 0..usize::from(members) {
            let mut pool = used_pool(redundancy, members);
            pool.io.members[missing] = None;
            if redundancy == Redundancy::Double {
                pool.io.members[(missing + 1) % usize::from(members)] = None;
            }
            let report = pool.check();
            let absent = if redundancy == Redundancy::Double {
                2
            } else {
                1
            };
            assert_eq!(report.findings.counts.get(&MemberAbsent), Some(&absent));
            let others = report
                .findings
                .list
                .iter()
                .filter(|f| f.kind != MemberAbsent && f.kind != CheckpointWrong);
            assert_eq!(others.collect::<Vec<_>>(), Vec::<&crate::Finding>::new());
            assert_eq!((report.recovery_lsn.0, report.exit_code()), (pool.lsn, 4));
            assert!(report.findings.worst <= Some(Repairable));
        }
    }
}

#[test]
fn a_wrong_payload_block_is_named_and_rebuilt_if_it_can_be() {
    for (redundancy, members, severity) in [
        (Redundancy::Double, 6, Repairable),
        (Redundancy::Copies(2), 2, Repairable),
        (Redundancy::None, 3, Error),
    ] {
        let mut pool = TestPool::new(redundancy, members);
        pool.create(1, "v", 100);
        pool.write(1, &[11, 12, 13]);
        pool.checkpoint();
        pool.damage(1, 2);
        let (member, _) = pool.address(1, 2);
        let report = pool.check();
        let wrong: Vec<_> = report
            .findings
            .list
            .iter()
            .filter(|f| f.kind == BlockWrong)
            .collect();
        assert_eq!(wrong.len(), 1, "{:#?}", report.findings.list);
        assert_eq!(
            (
                wrong[0].severity,
                wrong[0].member,
                wrong[0].volume,
                wrong[0].lba
            ),
            (severity, Some(member), Some(VolumeId(1)), Some(Lba(12)))
        );
        assert_eq!(report.exit_code(), 4);
        let quick = check(&mut pool.io, &CheckOptions::default(), &mut |_| {});
        assert!(
            quick.findings.is_clean(),
            "without reading payload nothing is seen"
        );
    }
}

#[test]
fn an_unreadable_sector_is_like_a_wrong_one() {
    let mut pool = used_pool(Redundancy::Single, 5);
    let (member, offset) = pool.address(3, 2);
    pool.io.unreadable.insert((member, offset + 512));
    let report = pool.check();
    assert_eq!(kinds(&report), [(BlockWrong, Repairable)]);
}

/// Padding that cannot be read must not exclude its row: wrong redundancy in it is still reported.
#[test]
fn wrong_or_unreadable_padding_is_reported_and_hides_nothing() {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    pool.create(1, "v", 100);
    // One row: header, 5, padding, footer.
    pool.write(1, &[5]);
    pool.checkpoint();
    let (member, offset) = pool.address(1, 2);
    pool.io.unreadable.insert((member, offset + 512));
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.findings.list[0].member),
        (vec![(BlockWrong, Repairable)], Some(member)),
        "{:#?}",
        report.findings.list
    );
    pool.io.unreadable.clear();
    pool.damage(1, 2);
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.findings.list[0].member),
        (vec![(BlockWrong, Repairable)], Some(member)),
        "{:#?}",
        report.findings.list
    );
    // Nor does it hide wrong redundancy.
    pool.lose_columns(1, 5..6);
    let report = pool.check();
    assert_eq!(
        kinds(&report),
        [(BlockWrong, Repairable)],
        "the row is reported: {:#?}",
        report.findings.list
    );
    pool.damage(1, 2);
    let report = pool.check();
    assert_eq!(
        kinds(&report),
        [(ParityWrong, Repairable)],
        "{:#?}",
        report.findings.list
    );
}

#[test]
fn wrong_redundancy_is_seen_only_when_asked_for() {
    for (redundancy, members, column) in [
        (Redundancy::Single, 5, 4),
        (Redundancy::Double, 6, 5),
        (Redundancy::Copies(2), 4, 3),
    ] {
        let mut pool = TestPool::new(redundancy, members);
        pool.create(1, "v", 100);
        pool.write(1, &[1, 2, 3]);
        pool.checkpoint();
        pool.lose_columns(1, column..column + 1);
        let report = pool.check();
        assert_eq!(
            kinds(&report),
            [(ParityWrong, Repairable)],
            "{:#?}",
            report.findings.list
        );
        let payload_only = check(
            &mut pool.io,
            &CheckOptions {
                verify_payload: true,
                ..CheckOptions::default()
            },
            &mut |_| {},
        );
        assert!(payload_only.findings.is_clean());
    }
}

#[test]
fn a_wrong_block_that_is_not_in_use_is_not_taken_for_wrong_redundancy() {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    pool.create(1, "v", 100);
    // One row: header, 5, 6, footer.
    pool.write(1, &[5, 6]);
    pool.clean(1, &[5]);
    pool.checkpoint();
    pool.damage(1, 1);
    let report = pool.check();
    assert_eq!(
        kinds(&report),
        [(BlockWrong, Repairable)],
        "{:#?}",
        report.findings.list
    );
    assert_eq!(
        (
            report.findings.list[0].volume,
            report.findings.list[0].member
        ),
        (None, Some(pool.address(1, 1).0))
    );
}

/// A scrub moves the live blocks out of damaged rows and leaves the rows as they are.
#[test]
fn damage_on_which_nothing_live_depends_is_a_note() {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    pool.create(1, "v", 100);
    pool.write(1, &[5, 6]);
    // Another batch of the segment has live data.
    pool.write(1, &[7]);
    pool.clean(1, &[5, 6]);
    pool.checkpoint();
    for block in [0, 1, 3] {
        pool.damage(1, block);
        let report = pool.check();
        assert_eq!(
            kinds(&report),
            [(BlockWrong, Note)],
            "block {block}: {:#?}",
            report.findings.list
        );
        assert_eq!(report.exit_code(), 0);
        pool.damage(1, block);
    }
    pool.lose_columns(1, 5..6);
    let report = pool.check();
    assert!(
        kinds(&report)
            .iter()
            .all(|(kind, severity)| (*kind, *severity) == (ParityWrong, Note)),
        "{:#?}",
        report.findings.list
    );
    assert_eq!(report.exit_code(), 0);
}

/// Remainder of a scrub whose members are absent later: a note, not an error.
#[test]
fn a_batch_without_a_tail_in_which_nothing_lives_is_a_note() {
    let mut pool = TestPool::new(Redundancy::None, 3);
    pool.create(1, "v", 100);
    pool.write(1, &[5, 6]);
    pool.write(1, &[7]);
    let (_, _, rows) = pool.batches[1];
    pool.checkpoint();
    pool.damage(1, 3 * rows - 1);
    let report = pool.check();
    assert!(
        kinds(&report).contains(&(BatchDamaged, Error)),
        "{:#?}",
        report.findings.list
    );
    pool.damage(1, 3 * rows - 1);
    pool.clean(1, &[5, 6]);
    pool.checkpoint();
    pool.damage(1, 3 * rows - 1);
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.exit_code()),
        (vec![(BatchDamaged, Note)], 0),
        "{:#?}",
        report.findings.list
    );
}

#[test]
fn a_damaged_header_or_tail_is_rebuilt() {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    pool.create(1, "v", 10_000);
    pool.write(1, &(0..20).collect::<Vec<_>>());
    pool.checkpoint();
    for block in [0, 4 * pool.batches[1].2 - 1] {
        pool.damage(1, block);
        let report = pool.check();
        assert_eq!(
            kinds(&report),
            [(BlockWrong, Repairable)],
            "{:#?}",
            report.findings.list
        );
        pool.damage(1, block);
    }
    pool.expect_clean();
}

#[test]
fn a_table_of_several_blocks_is_rebuilt_when_two_of_its_columns_are_wrong() {
    let mut pool = TestPool::new(Redundancy::Double, 4);
    pool.create(1, "v", 1 << 30);
    let fills: Vec<_> = (0..2600u64)
        .map(|i| {
            let birth = pool.next_lsn();
            (
                Entry::Fill {
                    volume: VolumeId(1),
                    lba: Lba(i * 104_729 % (1 << 28)),
                    birth,
                    state: windrow_format::batch::FillState::Ones,
                },
                None,
            )
        })
        .collect();
    pool.batch(0, &fills);
    let (_, _, rows) = pool.batches[1];
    assert!(rows >= 2);
    pool.damage(1, 0);
    pool.damage(1, 1);
    let report = pool.check();
    assert_eq!(report.recovery_lsn.0, pool.lsn);
    assert_eq!(kinds(&report), [(BatchIncomplete, Note)]);
}

#[test]
fn a_torn_tail_does_not_count_and_is_no_error() {
    let mut pool = used_pool(Redundancy::Double, 6);
    let lsn = pool.lsn;
    let last = pool.batches.len();
    pool.write(1, &[20, 21]);
    pool.lose_columns(last, 3..6);
    let report = pool.check();
    assert_eq!(
        kinds(&report),
        [(BatchTorn, Note)],
        "{:#?}",
        report.findings.list
    );
    assert_eq!((report.recovery_lsn.0, report.exit_code()), (lsn, 0));
}

#[test]
fn a_batch_that_lost_no_more_than_its_redundancy_counts() {
    let mut pool = used_pool(Redundancy::Double, 6);
    let last = pool.batches.len();
    pool.write(1, &[20, 21]);
    for columns in [0..2, 2..4, 4..6, 3..5] {
        pool.lose_columns(last, columns);
        let report = pool.check();
        assert_eq!(report.recovery_lsn.0, pool.lsn);
        assert_eq!(
            kinds(&report),
            [(BatchIncomplete, Note)],
            "{:#?}",
            report.findings.list
        );
        // Rewritten, as an import does.
        let (_, row, rows) = pool.batches[last];
        pool.positions[USER].row = row;
        pool.positions[USER].seq.0 -= 1;
        pool.lsn -= 2;
        pool.batches.truncate(last);
        pool.write(1, &[20, 21]);
        assert_eq!(pool.batches[last].2, rows);
    }
    pool.expect_clean();
}

/// The member with the head is absent, the tail did not reach its member, and the last sector of Q
/// is missing. The head follows from Q, and with it the tail from P. A check that ignored the head
/// computed a recovery point one LSN below that of a start.
#[test]
fn a_head_that_was_rebuilt_helps_to_find_the_tail() {
    let mut pool = used_pool(Redundancy::Double, 6);
    let last = pool.batches.len();
    pool.create(2, "more", 500);
    let (segment, row, rows) = pool.batches[last];
    assert_eq!(rows, 1, "head, two blocks of padding, tail");
    let address = |column| pool.zones.locate(segment).address(row, Column(column));
    let [(head, _), (tail, tail_at), (q, q_at)] = [0, 3, 5].map(address);
    pool.io.members[tail.index()].as_mut().unwrap()[tail_at as usize..][..4096].fill(0);
    pool.io.members[q.index()].as_mut().unwrap()[q_at as usize..][3584..4096].fill(0);
    pool.io.members[head.index()] = None;
    assert_eq!(pool.check().recovery_lsn.0, pool.lsn);
}

/// Two members missed the padding write, and their stale bytes are equal: parity agrees with them,
/// and a start reconstructs the payload of the third one.
#[test]
fn a_payload_that_can_be_rebuilt_counts_whatever_padding_there_is() {
    let mut pool = used_pool(Redundancy::Single, 8);
    let last = pool.batches.len();
    pool.write(1, &[20, 21]);
    let (segment, row, rows) = pool.batches[last];
    assert_eq!(rows, 1, "head, two payload blocks, three of padding, tail");
    pool.lose_columns(last, 1..2);
    for column in [3, 4] {
        let (member, offset) = pool.zones.locate(segment).address(row, Column(column));
        pool.io.members[member.index()].as_mut().unwrap()[offset as usize..][..4096].fill(0xff);
    }
    let report = pool.check();
    assert_eq!(report.recovery_lsn.0, pool.lsn);
    assert_eq!(
        kinds(&report),
        [(BatchIncomplete, Note)],
        "{:#?}",
        report.findings.list
    );
}

/// A write to one member was lost, and a valid batch of the previous incarnation is there.
#[test]
fn a_header_of_a_former_life_is_not_taken_for_the_present_one() {
    // With several data columns the tail is on another member: the head is valid in itself, but not
    // the head of that tail.
    for (redundancy, members) in [
        (Redundancy::Copies(2), 2),
        (Redundancy::Single, 4),
        (Redundancy::Double, 6),
    ] {
        let mut former = TestPool::new(redundancy, members);
        former.create(1, "old", 500);
        let (segment, row, rows) = former.batches[0];
        let (member, offset) = former.zones.locate(segment).address(row, Column(0));
        let stale = former.io.members[member.index()].as_ref().unwrap()[offset as usize..]
            [..rows as usize * 4096]
            .to_vec();
        for with_checkpoint in [false, true] {
            let mut pool = TestPool::new(redundancy, members);
            pool.positions[USER].seq = BatchSeq(50);
            pool.checkpoint();
            pool.create(1, "v", 500);
            pool.write(1, &[7, 8]);
            assert_eq!(
                pool.batches.iter().find(|b| b.0 == segment),
                Some(&(segment, row, rows))
            );
            if with_checkpoint {
                pool.checkpoint();
            }
            pool.put(member, offset, &stale);
            let report = pool.check();
            // After the checkpoint nothing depends on a batch of records.
            let expected = if with_checkpoint {
                (BlockWrong, Note)
            } else {
                (BatchIncomplete, Note)
            };
            assert_eq!(
                kinds(&report),
                [expected],
                "{redundancy:?}: {:#?}",
                report.findings.list
            );
            assert_eq!(report.recovery_lsn.0, pool.lsn);
        }
    }
}

/// The same for the first batch of a segment without live data (a scrub moved it away), while the
/// members with the right batch are absent. The stale batch must not be taken for the first one,
/// nor the intact batch after it for damaged. (Seeds 9961554 and, with two stale batches in a row,
/// 9967004.)
#[test]
fn a_first_batch_of_a_former_life_hides_nothing_behind_it() {
    for (redundancy, members, count) in [
        (Redundancy::None, 3, 1),
        (Redundancy::None, 3, 2),
        (Redundancy::Copies(2), 3, 1),
        (Redundancy::Copies(2), 3, 2),
    ] {
        let write = |pool: &mut TestPool| {
            pool.create(1, "v", 500);
            pool.write(1, &[5, 6]);
        };
        let mut former = TestPool::new(redundancy, members);
        write(&mut former);
        let mut pool = TestPool::new(redundancy, members);
        pool.positions[USER].seq = BatchSeq(50);
        pool.checkpoint();
        write(&mut pool);
        pool.write(1, &[7, 8]);
        pool.clean(1, &[5, 6]);
        pool.checkpoint();
        for (segment, row, rows) in former.batches.iter().copied().take(count) {
            assert!(pool.batches.contains(&(segment, row, rows)));
            for column in 0..pool.zones.shape(segment).width {
                let (member, offset) = pool.zones.locate(segment).address(row, Column(column));
                let stale = former.io.members[member.index()].as_ref().unwrap()[offset as usize..]
                    [..rows as usize * 4096]
                    .to_vec();
                if column == 0 || redundancy == Redundancy::None {
                    pool.put(member, offset, &stale);
                } else {
                    pool.io.members[member.index()] = None;
                }
            }
        }
        let report = pool.check();
        assert!(
            report
                .findings
                .list
                .iter()
                .all(|finding| finding.severity < Error),
            "{redundancy:?} {count}: {:#?}",
            report.findings.list
        );
        let damaged: Vec<_> = report
            .findings
            .list
            .iter()
            .filter(|f| f.kind == BatchDamaged)
            .map(|f| f.severity)
            .collect();
        assert_eq!(damaged, vec![Note; count]);
    }
}

/// Power failed while a batch was written. A fence voids it, and the next epoch wrote its batch of
/// that number over it. One member missed that write and still holds the void batch.
#[test]
fn a_void_batch_of_the_same_number_is_not_taken_for_the_one_that_counts() {
    for (redundancy, members, lost) in [
        (Redundancy::Copies(2), 2, 1),
        (Redundancy::Copies(3), 9, 2),
        (Redundancy::Single, 4, 1),
        (Redundancy::Double, 6, 2),
    ] {
        for with_checkpoint in [false, true] {
            for blocks in [2, 7] {
                let mut pool = TestPool::new(redundancy, members);
                pool.create(1, "v", 500);
                pool.flush();
                pool.checkpoint();
                let (accepted, positions, model) = (
                    pool.lsn,
                    pool.positions,
                    (pool.map.clone(), pool.births.clone()),
                );
                pool.write(1, &[50, 51]);
                let (segment, row, rows) = pool.batches[pool.batches.len() - 1];
                let addresses: Vec<_> = (0..lost)
                    .map(|c| pool.zones.locate(segment).address(row, Column(c)))
                    .collect();
                let read = |pool: &TestPool, (member, offset): (MemberId, u64)| {
                    pool.io.members[member.index()].as_ref().unwrap()[offset as usize..]
                        [..rows as usize * 4096]
                        .to_vec()
                };
                let void: Vec<_> = addresses
                    .iter()
                    .map(|address| read(&pool, *address))
                    .collect();
                (pool.map, pool.births) = model;
                pool.fence(accepted, positions);
                pool.write(1, &(60..60 + blocks).collect::<Vec<_>>());
                assert_eq!(
                    pool.batches.last().map(|b| (b.0, b.1)),
                    Some((segment, row))
                );
                if with_checkpoint {
                    pool.checkpoint();
                }
                for ((member, offset), void) in addresses.iter().zip(&void) {
                    pool.put(*member, *offset, void);
                }
                let report = pool.check();
                let worst = report.findings.worst;
                // Above the last flush an incomplete batch is a note: the next start completes it.
                assert_eq!(
                    worst,
                    Some(if with_checkpoint { Repairable } else { Note }),
                    "{redundancy:?} {blocks}: {:#?}",
                    report.findings.list
                );
                assert_eq!(report.recovery_lsn.0, pool.lsn);
            }
        }
    }
}

/// The same, but the valid batch has no live data and is unreadable (in the story, other members
/// are absent). The void batch, which had more rows, must not be taken for it, nor the batches
/// after it for a table error. Forgotten fences make no difference (simulator, seed 10142256).
#[test]
fn a_void_header_says_nothing_of_the_batches_behind_it() {
    for keeps_fence in [true, false] {
        let mut pool = TestPool::new(Redundancy::None, 3);
        pool.create(1, "v", 500);
        pool.flush();
        pool.checkpoint();
        let (accepted, positions, model) = (
            pool.lsn,
            pool.positions,
            (pool.map.clone(), pool.births.clone()),
        );
        pool.write(1, &(50..58).collect::<Vec<_>>());
        let (segment, row, void_rows) = pool.batches[pool.batches.len() - 1];
        let (member, offset) = pool.zones.locate(segment).address(row, Column(0));
        let void =
            pool.io.members[member.index()].as_ref().unwrap()[offset as usize..][..4096].to_vec();
        (pool.map, pool.births) = model;
        pool.fence(accepted, positions);
        pool.write(1, &[60]);
        let counts = pool.batches[pool.batches.len() - 1];
        assert!((counts.0, counts.1) == (segment, row) && counts.2 < void_rows);
        pool.write(1, &[70, 71]);
        pool.clean(1, &[60]);
        pool.checkpoint();
        if !keeps_fence {
            pool.superblock.fences.clear();
            pool.save();
        }
        pool.put(member, offset, &void);
        let report = pool.check();
        assert!(
            report
                .findings
                .list
                .iter()
                .all(|finding| finding.severity < Error),
            "fence kept: {keeps_fence}: {:#?}",
            report.findings.list
        );
        assert!(
            report
                .findings
                .list
                .iter()
                .any(|finding| finding.kind == BatchDamaged),
            "{:#?}",
            report.findings.list
        );
    }
}

/// The same, where the void batch is the first of its segment and of a previous incarnation. Its
/// number is only computed. It must not be accepted because live blocks lie in its rows, which now
/// belong to the following batches (simulator, seed 10429145).
#[test]
fn a_first_header_of_a_former_life_says_nothing_of_the_batches_behind_it() {
    let mut former = TestPool::new(Redundancy::None, 3);
    former.create(1, "v", 500);
    former.positions[USER].row = 0;
    former.write(1, &(50..58).collect::<Vec<_>>());
    let (segment, row, rows) = former.batches[former.batches.len() - 1];
    let (member, offset) = former.zones.locate(segment).address(row, Column(0));
    let void =
        former.io.members[member.index()].as_ref().unwrap()[offset as usize..][..4096].to_vec();

    let mut pool = TestPool::new(Redundancy::None, 3);
    pool.positions[USER].seq = BatchSeq(50);
    pool.checkpoint();
    pool.create(1, "v", 500);
    assert!(
        pool.batches
            .last()
            .is_some_and(|first| (first.0, first.1) == (segment, row) && first.2 < rows),
        "nothing lives in it"
    );
    pool.write(1, &[5, 6, 7, 8]);
    pool.checkpoint();
    pool.put(member, offset, &void);
    let report = pool.check();
    assert!(
        report
            .findings
            .list
            .iter()
            .all(|finding| finding.severity < Error),
        "{:#?}",
        report.findings.list
    );
    assert!(
        report
            .findings
            .list
            .iter()
            .any(|finding| finding.kind == BatchDamaged),
        "{:#?}",
        report.findings.list
    );
}

#[test]
fn a_missing_batch_that_was_durable_is_damage() {
    let mut pool = used_pool(Redundancy::Single, 5);
    let last = pool.batches.len();
    pool.write(1, &[20, 21]);
    pool.flush();
    // A batch of another stream proves that the last one was durable.
    pool.clean(2, &[0]);
    pool.lose_columns(last, 0..5);
    let report = pool.check();
    let kinds = kinds(&report);
    assert!(
        kinds.contains(&(BatchDamaged, Error)) && kinds.contains(&(LsnsLost, Error)),
        "{:#?}",
        report.findings.list
    );
    assert_eq!(report.exit_code(), 4);
}

#[test]
fn a_gap_in_the_orders_ends_p_and_covered_orders_close_it() {
    let mut pool = used_pool(Redundancy::Single, 4);
    let before = pool.lsn;
    pool.lsn += 3;
    pool.write(1, &[40]);
    assert_eq!(pool.check().recovery_lsn.0, before);
    let covered = Entry::Covered {
        first: Lsn(before + 1),
        count: 3,
    };
    pool.batch(USER, &[(covered, None)]);
    pool.expect_clean();
}

#[test]
fn a_fence_voids_what_an_older_epoch_wrote_beyond_it() {
    let mut pool = used_pool(Redundancy::Double, 5);
    let (accepted, positions) = (pool.lsn, pool.positions);
    let model = (pool.map.clone(), pool.births.clone());
    pool.write(1, &[5, 70]);
    pool.clean(2, &[0]);
    (pool.map, pool.births) = model;
    pool.fence(accepted, positions);
    let report = pool.check();
    assert!(report.findings.is_clean(), "{:#?}", report.findings.list);
    assert_eq!(
        report
            .streams
            .iter()
            .filter(|s| s.end == "void by a fence")
            .count(),
        2,
        "{:?}",
        report.streams
    );
    assert_eq!(
        report.recovery_lsn.0, accepted,
        "the skipped orders are not missing, and not in effect"
    );
    // The new epoch overwrites the void batches and continues.
    pool.write(1, &[71, 72, 73]);
    pool.clean(1, &[8]);
    pool.expect_clean();
    pool.checkpoint();
    pool.write(1, &[74]);
    pool.expect_clean();
}

#[test]
fn void_orders_inside_an_accepted_batch_do_not_apply() {
    let mut pool = TestPool::new(Redundancy::Single, 3);
    pool.create(1, "v", 100);
    let accepted = pool.lsn + 1;
    pool.write(1, &[1, 2]);
    let positions = pool.positions;
    pool.map.remove(&(1, 2));
    pool.fence(accepted, positions);
    pool.write(1, &[3]);
    pool.expect_clean();
}

#[test]
fn a_move_never_beats_a_newer_write_and_survives_the_loss_of_one() {
    let mut pool = used_pool(Redundancy::Single, 4);
    let old = pool.map[&(1, 8)];
    pool.write(1, &[8]);
    let new = pool.map[&(1, 8)];
    // Cleaning read the block before it was rewritten, and its batch was sealed later.
    pool.map.insert((1, 8), old);
    pool.births.insert((1, 8), pool.lsn - 5);
    pool.clean(1, &[8]);
    let moved = pool.map.insert((1, 8), new).unwrap();
    pool.expect_clean();
    // The newer write does not arrive: the move still holds the previous content.
    let write = pool.batches.len() - 2;
    pool.lose_columns(write, 0..4);
    pool.lsn -= 1;
    pool.map.insert((1, 8), moved);
    pool.expect_clean();
}

#[test]
fn volume_operations_take_effect_in_their_order() {
    let mut pool = used_pool(Redundancy::Copies(2), 2);
    let operate = |pool: &mut TestPool, id: u32, change: VolumeChange| {
        let lsn = pool.next_lsn();
        pool.batch(
            USER,
            &[(
                Entry::Volume {
                    volume: VolumeId(id),
                    lsn,
                    change,
                },
                None,
            )],
        );
    };
    operate(
        &mut pool,
        1,
        VolumeChange::Resize {
            size_bytes: 8 * 4096,
        },
    );
    pool.map.retain(|(v, lba), _| *v != 1 || *lba < 8);
    operate(
        &mut pool,
        1,
        VolumeChange::Resize {
            size_bytes: 1000 * 4096,
        },
    );
    pool.write(1, &[999]);
    operate(&mut pool, 2, VolumeChange::Delete);
    pool.map.retain(|(v, _), _| *v != 2);
    operate(&mut pool, 1, VolumeChange::SetReadOnly(true));
    let report = pool.expect_clean();
    assert!(
        report.volumes[0].read_only
            && report.volumes[0].size_bytes == 4_096_000
            && report.volumes[1].deleting
    );
}

#[test]
fn two_volumes_of_one_name_are_reported() {
    let mut pool = used_pool(Redundancy::None, 1);
    pool.create(3, "first", 10);
    assert_eq!(kinds(&pool.check()), [(VolumeWrong, Error)]);
}

#[test]
fn what_a_broken_writer_could_do_to_the_map_is_found() {
    type Change = fn(&mut TestPool);
    let cases: [(&str, Change, crate::FindingKind); 6] = [
        (
            "two blocks at one place",
            |p| _ = p.map.insert((1, 50), p.map[&(1, 5)]),
            PlaceShared,
        ),
        (
            "the place of another block",
            |p| _ = p.map.remove(&(1, 5)).map(|e| p.map.insert((1, 50), e)),
            MapMismatch,
        ),
        (
            "another checksum",
            |p| p.map.get_mut(&(1, 5)).unwrap().word1 ^= 1,
            MapMismatch,
        ),
        (
            "an unknown state",
            |p| p.map.get_mut(&(1, 5)).unwrap().word0 |= 0x1f << 55,
            MapEntryWrong,
        ),
        (
            "a place between blocks",
            |p| p.map.get_mut(&(1, 5)).unwrap().word0 |= 1,
            MapEntryWrong,
        ),
        (
            "a hole with a place",
            |p| {
                _ = p.map.insert(
                    (1, 51),
                    MapEntry {
                        word0: 256,
                        word1: 0,
                    },
                )
            },
            MapEntryWrong,
        ),
    ];
    for (what, change, kind) in cases {
        let mut pool = TestPool::new(Redundancy::Single, 4);
        pool.create(1, "v", 1000);
        pool.write(1, &[5, 6]);
        change(&mut pool);
        pool.checkpoint();
        let report = pool.check();
        assert!(
            kinds(&report).contains(&(kind, Error)),
            "{what}: {:#?}",
            report.findings.list
        );
    }
}

#[test]
fn recorded_batch_starts_are_compared_with_the_members() {
    for change in [0b10u64, 1] {
        let mut pool = TestPool::new(Redundancy::Single, 4);
        pool.create(1, "v", 1000);
        pool.write(1, &[5, 6]);
        let segment = pool.positions[USER].segment.index();
        let honest = pool.segments[segment].clone();
        // Rows 0 and 1 hold the creation and the write.
        pool.segments[segment].starts[0] ^= if change == 1 { 1 << 1 } else { 1 << 0 };
        pool.checkpoint();
        pool.segments[segment] = honest;
        let report = pool.check();
        assert_eq!(
            kinds(&report),
            [(StartsMismatch, Error)],
            "{:#?}",
            report.findings.list
        );
    }
}

#[test]
fn the_older_checkpoint_takes_over_when_the_newest_is_lost() {
    let mut pool = used_pool(Redundancy::Single, 5);
    pool.checkpoint();
    pool.write(1, &[600]);
    // The batch with the last list page.
    let lost = pool.batches.len() - 2;
    pool.lose_columns(lost, 0..5);
    let report = pool.check();
    assert_eq!(report.checkpoint, 2);
    assert_eq!(report.recovery_lsn.0, pool.lsn);
    assert!(kinds(&report).contains(&(CheckpointWrong, Error)));
    assert_eq!(
        report.volumes[0].mapped_blocks,
        pool.map
            .iter()
            .filter(|((v, _), e)| *v == 1 && e.has_payload())
            .count() as u64
    );
}

/// The pool starts without the counters of its checkpoint; the check must not take an older one.
#[test]
fn a_checkpoint_without_its_counters_can_be_used() {
    let mut pool = TestPool::new(Redundancy::None, 3);
    pool.create(1, "v", 10_000);
    pool.write(1, &[1, 2, 3]);
    pool.checkpoint();
    // After the head: volumes, segments, one map page, counters.
    let tables = pool.batches.len() - 4;
    pool.damage(tables, 4);
    let report = pool.check();
    assert_eq!(report.checkpoint, 2);
    assert!(
        kinds(&report).contains(&(CheckpointWrong, Repairable)),
        "{:#?}",
        report.findings.list
    );
    pool.damage(tables, 4);
    pool.damage(tables, 3);
    assert_eq!(pool.check().checkpoint, 1, "a map page is another matter");
}

#[test]
fn without_a_readable_checkpoint_there_is_no_check() {
    let mut pool = used_pool(Redundancy::None, 2);
    pool.checkpoint();
    for root in pool.superblock.checkpoints.iter_mut().flatten() {
        root.list.checksum ^= 1;
    }
    pool.save();
    let report = pool.check();
    assert_eq!((report.exit_code(), report.failure.is_some()), (8, true));
}

#[test]
fn members_recorded_as_absent_are_not_read() {
    let mut pool = used_pool(Redundancy::Double, 6);
    pool.superblock.members[2].state = MemberState::Absent;
    pool.superblock.members[2].absent_since = pool.superblock.generation.next();
    pool.save();
    // It is back, with wrong content.
    if let Some(bytes) = &mut pool.io.members[2] {
        bytes[1 << 20..].fill(0x77);
    }
    let report = pool.check();
    assert!(
        report
            .findings
            .list
            .iter()
            .all(|f| f.severity <= Repairable && matches!(f.kind, MemberAbsent | CheckpointWrong)),
        "{:#?}",
        report.findings.list
    );
    assert_eq!(report.recovery_lsn.0, pool.lsn);
}

#[test]
fn the_report_is_serialisable() {
    let mut pool = used_pool(Redundancy::Double, 6);
    pool.damage(3, 2);
    let json = serde_json::to_value(pool.check()).unwrap();
    assert_eq!(json["findings"]["list"][0]["kind"], "block_wrong");
    assert_eq!(json["findings"]["counts"]["block_wrong"], 1);
    assert_eq!(json["findings"]["list"][0]["severity"], "repairable");
}

/// Bit rot anywhere, in any amount: the check still ends with a report.
#[test]
fn no_damage_makes_the_check_fail_to_answer() {
    let mut state = 7u64;
    let mut random = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let template = used_pool(Redundancy::Double, 5);
    for round in 0..60 {
        let mut pool = TestPool::new(Redundancy::Double, 5);
        pool.io.members = template.io.members.clone();
        for _ in 0..1 << (round % 12) {
            let member = random(5);
            let Some(bytes) = &mut pool.io.members[member] else {
                continue;
            };
            // Half of the damage hits written areas.
            let at = if random(2) == 0 {
                random(bytes.len())
            } else {
                (1 << 20) + random(200 << 10)
            };
            bytes[at] ^= 1 << random(8);
        }
        let report = pool.check();
        assert!(report.failure.is_some() || report.exit_code() <= 4);
    }
}

#[test]
fn segments_of_two_layouts_may_not_both_be_used_in_the_same_extents() {
    // A pool after a grow: the old layout of four members, and one of five over the same extents
    // with higher segment numbers.
    let mut pool = used_pool(Redundancy::Single, 4);
    let old = pool.superblock.zones[0].clone();
    let shape = Redundancy::Single
        .shape(4, old.shape.rows, old.shape.chunk_rows)
        .unwrap();
    let new = Zone {
        first_segment: 100,
        shape,
        layout: 1,
        ..old
    };
    pool.superblock.zones.push(new);
    pool.zones = ZoneMap::new(pool.superblock.zones.clone());
    pool.save();
    assert!(pool.check().findings.is_clean());
    // A faulty writer uses a segment of the new layout while the old one is in use there, and
    // enters it in the map.
    let stolen = pool.map[&(1, 8)];
    let first = pool.codec.segment(stolen.address());
    let address = pool
        .codec
        .pack_block(SegmentId(100 + first.0), pool.codec.block(stolen.address()));
    pool.map
        .insert((1, 8), MapEntry::plain(address, stolen.checksum()));
    pool.checkpoint();
    assert!(kinds(&pool.check()).contains(&(ExtentShared, Error)));
}

/// Shared content is stored once, and each reference must find it in its incarnation.
#[test]
fn references_are_held_against_the_content_that_they_name() {
    let mut pool = TestPool::new(Redundancy::Single, 5);
    pool.create(1, "first", 100);
    let refer = |lba: u64, birth: Lsn, id: u64, incarnation: u32| Entry::Reference {
        volume: VolumeId(1),
        lba: Lba(lba),
        birth,
        id: Lba(id),
        incarnation,
    };
    let first = pool.next_lsn();
    let incarnation = first.0 as u32;
    let mut entries = vec![
        (
            Entry::Data {
                volume: VolumeId::SHARED,
                lba: Lba(0),
                birth: first,
            },
            Some(content(1)),
        ),
        (refer(5, first, 0, incarnation), None),
    ];
    for lba in [6, 7] {
        let birth = pool.next_lsn();
        entries.push((refer(lba, birth, 0, incarnation), None));
    }
    // This content has no references any more: it is free, and nothing is wrong.
    let lonely = pool.next_lsn();
    entries.push((
        Entry::Data {
            volume: VolumeId::SHARED,
            lba: Lba(1),
            birth: lonely,
        },
        Some(content(2)),
    ));
    pool.batch(0, &entries);
    pool.trim(1, 7, 1);
    pool.flush();
    let report = pool.check();
    assert_eq!(
        kinds(&report)
            .iter()
            .filter(|(_, severity)| *severity > Note)
            .count(),
        0,
        "{:#?}",
        report.findings.list
    );
    assert_eq!(
        (
            report.contents,
            report.references,
            report.live_blocks,
            report.volumes[0].mapped_blocks
        ),
        (1, 2, 1, 2)
    );
    // Content that was never written, and content of another incarnation.
    let (missing, former) = (pool.next_lsn(), pool.next_lsn());
    pool.batch(
        0,
        &[
            (refer(8, missing, 9, missing.0 as u32), None),
            (refer(9, former, 0, incarnation + 1), None),
        ],
    );
    pool.flush();
    let report = pool.check();
    let found: Vec<_> = report
        .findings
        .list
        .iter()
        .filter(|finding| finding.severity == Error)
        .map(|finding| (finding.kind, finding.lba))
        .collect();
    assert_eq!(
        found,
        [(MapEntryWrong, Some(Lba(8))), (MapEntryWrong, Some(Lba(9)))]
    );
}

/// The offline check must reject what no start accepts.
#[test]
fn what_no_start_accepts_is_not_sound() {
    let mut pool = used_pool(Redundancy::Single, 5);
    pool.superblock.checkpoints = [None, None];
    pool.save();
    let report = pool.check();
    assert_eq!(
        (report.failure.as_deref(), report.exit_code()),
        (Some("the superblock names no checkpoint"), 8)
    );

    let mut pool = used_pool(Redundancy::Single, 5);
    pool.superblock.state = windrow_format::superblock::PoolState::Destroyed;
    pool.save();
    let report = pool.check();
    assert_eq!(
        (report.failure.as_deref(), report.exit_code()),
        (Some("the pool was destroyed"), 8)
    );
    assert_eq!(kinds(&report), [(PoolDestroyed, Note)]);

    // Map pages of a volume that the table does not have: the checkpoint is not used.
    let mut pool = used_pool(Redundancy::Single, 5);
    pool.volumes.remove(&2);
    pool.checkpoint();
    let report = pool.check();
    let unusable = report
        .findings
        .list
        .iter()
        .find(|f| f.kind == CheckpointWrong && f.severity == Error)
        .expect("it is said");
    assert!(
        unusable.message.contains("map pages of volume 2"),
        "{unusable:?}"
    );
    assert_eq!(report.checkpoint, 2, "the one before");
}

/// A member that is too small for its extents is not used by a start, which is then degraded. A
/// member smaller than its record, but with nothing in the missing part, is used.
#[test]
fn a_member_that_is_too_small_counts_as_absent() {
    let mut pool = used_pool(Redundancy::Single, 5);
    pool.superblock
        .members
        .iter_mut()
        .for_each(|record| record.size_bytes += 4096);
    pool.save();
    pool.expect_clean();
    pool.io.members[2].as_mut().unwrap().pop();
    let report = pool.check();
    let absent: Vec<_> = report
        .findings
        .list
        .iter()
        .filter(|f| f.kind == MemberAbsent)
        .collect();
    assert!(
        absent.len() == 1
            && absent[0].member == Some(MemberId(2))
            && absent[0].message.contains("the pool needs"),
        "{absent:?}"
    );
    assert_eq!(report.exit_code(), 4);
}

/// Newer software continued with the pool: the content of other slots must not be judged as
/// current.
#[test]
fn a_pool_that_newer_software_has_used_is_not_judged() {
    let mut pool = used_pool(Redundancy::Single, 5);
    let mut newer = pool.superblock_of(1);
    newer.features.incompatible |= 1 << 40;
    newer.generation = newer.generation.next();
    pool.put(
        MemberId(1),
        windrow_format::superblock::slot_offset(newer.generation),
        &newer.encode(),
    );
    let report = pool.check();
    assert!(
        report
            .failure
            .as_ref()
            .is_some_and(|why| why.contains("newer software")),
        "{:?}",
        report.failure
    );
    assert_eq!(report.exit_code(), 8);
    assert!(kinds(&report).contains(&(NewerSoftware, Error)));
}

/// One header of a segment is unreadable (a salvage enters such rows as a batch of their own). The
/// batches after it must still be verified, not reported as damaged.
#[test]
fn a_batch_without_a_header_hides_no_later_batches() {
    let mut pool = TestPool::new(Redundancy::None, 3);
    pool.create(1, "v", 100);
    pool.write(1, &[5, 6]);
    pool.write(1, &[7, 8]);
    pool.write(1, &[9, 10]);
    pool.clean(1, &[7]);
    pool.checkpoint();
    pool.damage(2, 0);
    let report = pool.check();
    assert_eq!(
        kinds(&report),
        [(BatchDamaged, Error), (MapMismatch, Error)],
        "{:#?}",
        report.findings.list
    );
    assert_eq!(
        report
            .findings
            .list
            .iter()
            .filter_map(|f| f.lba)
            .collect::<Vec<_>>(),
        [Lba(8)],
        "batches after it are whole"
    );
    pool.damage(2, 0);
    pool.clean(1, &[8]);
    pool.checkpoint();
    pool.damage(2, 0);
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.exit_code()),
        (vec![(BatchDamaged, Note)], 0),
        "{:#?}",
        report.findings.list
    );
    pool.damage(3, 1);
    let report = pool.check();
    assert_eq!(
        kinds(&report),
        [(BatchDamaged, Note), (BlockWrong, Error)],
        "{:#?}",
        report.findings.list
    );
}

/// A map refers to compressed payload at and past the end of a batch of which only the header is
/// readable. The check must not look up a column that does not exist.
#[test]
fn a_reference_beyond_its_batch_is_a_mismatch() {
    let mut pool = TestPool::new(Redundancy::None, 3);
    pool.create(1, "v", 100);
    let addresses = pool.write(1, &[5, 6]);
    let (_, row, rows) = pool.batches[1];
    let tail = u64::from(row + rows) * 3 - 1;
    let address = pool.codec.pack(
        pool.codec.segment(addresses[0]),
        tail * u64::from(FULL_BLOCK_UNITS) + 200,
    );
    pool.map.insert((1, 6), MapEntry::stored(address, 100, 7));
    pool.checkpoint();
    pool.damage(1, 3 * rows - 1);
    let report = pool.check();
    let mismatches: Vec<_> = report
        .findings
        .list
        .iter()
        .filter(|f| f.kind == MapMismatch)
        .collect();
    assert!(
        mismatches.len() == 1
            && mismatches[0].lba == Some(Lba(6))
            && mismatches[0].message.contains("past its batch"),
        "{:#?}",
        report.findings.list
    );
}

/// Every read of lost blocks is an error, so the check must not call the pool sound.
#[test]
fn blocks_that_a_rebuild_gave_up_are_errors_until_they_are_written_or_trimmed() {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    (1..3).for_each(|id| pool.create(id, &format!("v{id}"), 1000));
    pool.write(1, &[5, 6, 7, 8, 20]);
    pool.flush();
    let lost = [(1, 6), (1, 7), (1, 8), (1, 300), (2, 8)];
    pool.map.extend(lost.map(|block| (block, MapEntry::LOST)));
    // Not user data.
    pool.map
        .extend([VolumeId::SHARED, VolumeId::INDEX].map(|volume| ((volume.0, 3), MapEntry::LOST)));
    pool.checkpoint();
    for options in [CheckOptions::default(), CheckOptions::everything()] {
        let report = check(&mut pool.io, &options, &mut |_| {});
        let found: Vec<_> = report
            .findings
            .list
            .iter()
            .filter(|f| f.severity > Note)
            .map(|f| (f.kind, f.severity, f.volume, f.lba))
            .collect();
        let run = |volume, lba| (BlockLost, Error, Some(VolumeId(volume)), Some(Lba(lba)));
        assert_eq!(
            found,
            [run(1, 6), run(1, 300), run(2, 8)],
            "{:#?}",
            report.findings.list
        );
        assert_eq!(
            (
                report.lost_blocks,
                report.exit_code(),
                report.findings.counts[&BlockLost]
            ),
            (5, 4, 3)
        );
        let texts: Vec<&str> = report
            .findings
            .list
            .iter()
            .filter(|f| f.kind == BlockLost)
            .map(|f| &f.message[..f.message.find(" of").unwrap()])
            .collect();
        assert_eq!(texts, ["3 blocks, 6 to 8,", "block 300", "block 8"]);
        assert_eq!(
            (
                report.volumes[0].mapped_blocks,
                report.volumes[1].mapped_blocks
            ),
            (2, 0)
        );
    }
    pool.write(1, &[6, 8]);
    pool.trim(1, 7, 1);
    pool.fill(2, 8);
    pool.flush();
    let report = pool.check();
    assert_eq!(
        (
            report.lost_blocks,
            report.findings.counts.get(&BlockLost),
            report.exit_code()
        ),
        (1, Some(&1), 4)
    );
    pool.trim(1, 300, 1);
    pool.flush();
    assert_eq!(pool.expect_clean().lost_blocks, 0);
    [VolumeId::SHARED, VolumeId::INDEX]
        .iter()
        .for_each(|volume| _ = pool.map.remove(&(volume.0, 3)));
    pool.checkpoint();
    assert_eq!(pool.expect_clean().lost_blocks, 0);
}

/// The same for blocks that refer to lost shared content.
#[test]
fn references_to_content_that_a_rebuild_gave_up_are_errors() {
    let mut pool = TestPool::new(Redundancy::Single, 5);
    pool.create(1, "v", 100);
    pool.write(1, &[4]);
    pool.map
        .extend([5, 6, 8].map(|lba| ((1, lba), MapEntry::shared(Lba(2), 7))));
    pool.map.insert((1, 7), MapEntry::LOST);
    pool.map.insert((VolumeId::SHARED.0, 2), MapEntry::LOST);
    pool.checkpoint();
    let report = pool.check();
    let found: Vec<_> = report
        .findings
        .list
        .iter()
        .filter(|f| f.severity == Error)
        .map(|f| (f.kind, f.lba.unwrap().0))
        .collect();
    assert_eq!(
        found,
        [(BlockLost, 5), (BlockLost, 7), (BlockLost, 8)],
        "{:#?}",
        report.findings.list
    );
    assert_eq!(
        (
            report.lost_blocks,
            report.exit_code(),
            report.volumes[0].mapped_blocks
        ),
        (4, 4, 4)
    );
    assert!(
        report
            .findings
            .list
            .iter()
            .filter(|f| f.message.contains("shared content"))
            .count()
            == 2
    );
    pool.write(1, &[5, 6]);
    pool.trim(1, 7, 2);
    pool.flush();
    assert_eq!(pool.expect_clean().lost_blocks, 0);
}
