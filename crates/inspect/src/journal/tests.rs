use crate::report::{FindingKind::*, Severity::*};
use crate::test_pool::*;
use windrow_format::batch::{Entry, FillState, RangeState, VolumeChange};
use windrow_geometry::*;
use windrow_types::*;

const POOLS: [(Redundancy, u8); 4] = [
    (Redundancy::None, 2),
    (Redundancy::Copies(2), 4),
    (Redundancy::Single, 4),
    (Redundancy::Double, 6),
];

/// A pool whose log ends with three blocks; everything in it is durable.
fn pool(redundancy: Redundancy, members: u8) -> TestPool {
    let mut pool = TestPool::journalled(redundancy, members);
    pool.create(1, "v", 1000);
    pool.write(1, &[3, 4, 5]);
    pool.flush();
    pool
}

/// One more batch at the end of the log records what was durable.
fn say_in_the_log(pool: &mut TestPool) {
    pool.batch(CLEANED, &[]);
}

#[test]
fn blocks_of_the_journal_exist_without_an_address() {
    for (redundancy, members) in POOLS {
        let mut pool = pool(redundancy, members);
        pool.sync(1, &[4, 70]);
        pool.turn();
        pool.sync(1, &[71]);
        pool.sync(1, &[4]);
        say_in_the_log(&mut pool);
        let report = pool.expect_clean();
        let journal = &report.journals[0];
        assert_eq!(
            (
                journal.chunks_in_use,
                journal.records,
                journal.records_needed,
                report.journal_blocks
            ),
            (2, 3, 3, 3),
            "{redundancy:?}"
        );
        assert_eq!(
            (journal.copies_compared, journal.copies_wrong),
            (3 * u64::from(journal.copies), 0)
        );
        assert_eq!(
            (
                report.log_lsn.0,
                report.recovery_lsn.0,
                report.flushed_through.0
            ),
            (4, 8, 8)
        );
        assert_eq!(
            report.live_blocks,
            2 + 3,
            "blocks 3 and 5 in the log, 4, 70 and 71 in the journal"
        );
    }
}

/// Every byte of the record verifies, but a start could not readmit the block.
#[test]
fn a_packed_block_of_the_journal_must_unpack() {
    let compressed = windrow_reduction::Compressor::default()
        .pack(&[7; 4096])
        .expect("it packs well")
        .to_vec();
    for (stored, is_right) in [(compressed, true), (vec![0xff; 600], false)] {
        let mut pool = pool(Redundancy::Single, 4);
        let birth = pool.next_lsn();
        let entry = Entry::Data {
            volume: VolumeId(1),
            lba: Lba(70),
            birth,
        };
        pool.journalled.insert((1, 70));
        pool.journal(&[(entry, Some(stored))]);
        pool.flushed_through = pool.lsn;
        let report = pool.check();
        let found: Vec<_> = report
            .findings
            .list
            .iter()
            .map(|f| (f.kind, f.severity, f.volume, f.lba))
            .collect();
        let expected = (BlockWrong, Error, Some(VolumeId(1)), Some(Lba(70)));
        assert_eq!(
            found,
            if is_right { vec![] } else { vec![expected] },
            "{:#?}",
            report.findings.list
        );
    }
}

#[test]
fn what_the_log_has_is_not_needed_of_the_journal() {
    let mut pool = pool(Redundancy::Single, 4);
    pool.sync(1, &[4]);
    let birth = pool.lsn;
    let entry = Entry::Data {
        volume: VolumeId(1),
        lba: Lba(4),
        birth: Lsn(birth),
    };
    let addresses = pool.batch(USER, &[(entry, Some(content(birth)))]);
    pool.map.insert(
        (1, 4),
        windrow_format::map_entry::MapEntry::plain(
            addresses[0],
            windrow_format::batch::payload_checksum(&content(birth)),
        ),
    );
    pool.journalled.clear();
    // The record is no longer needed: it may be damaged, and its chunk may be reused.
    for copy in 0..2 {
        pool.damage_copy(0, copy, 600);
    }
    let report = pool.expect_clean();
    assert_eq!(
        (
            report.journals[0].chunks_in_use,
            report.journals[0].records_needed,
            report.journal_blocks
        ),
        (0, 0, 0)
    );
}

#[test]
fn trims_zeroes_and_volumes_take_effect_in_their_order() {
    let mut pool = pool(Redundancy::Single, 4);
    pool.sync(1, &[10, 11, 12]);
    let volume = VolumeId(1);
    let mut lsn = || pool.next_lsn();
    let entries = [
        (
            Entry::Range {
                volume,
                lba: Lba(4),
                count: 7,
                lsn: lsn(),
                state: RangeState::Hole,
            },
            None,
        ),
        (
            Entry::Fill {
                volume,
                lba: Lba(12),
                birth: lsn(),
                state: FillState::Ones,
            },
            None,
        ),
        (
            Entry::Volume {
                volume: VolumeId(2),
                lsn: lsn(),
                change: VolumeChange::Create {
                    name: "w".into(),
                    size_bytes: 40960,
                },
            },
            None,
        ),
        (
            Entry::Covered {
                first: lsn(),
                count: 1,
            },
            None,
        ),
    ];
    pool.journal(&entries);
    pool.flushed_through = pool.lsn;
    pool.turn();
    pool.sync(2, &[3, 9]);
    let lsn = pool.next_lsn();
    pool.journal(&[(
        Entry::Volume {
            volume: VolumeId(2),
            lsn,
            change: VolumeChange::Resize {
                size_bytes: 9 * 4096,
            },
        },
        None,
    )]);
    pool.flushed_through = pool.lsn;
    let report = pool.check();
    let volumes: Vec<_> = report
        .volumes
        .iter()
        .map(|v| {
            (
                v.name.as_str(),
                v.size_bytes / 4096,
                v.mapped_blocks,
                v.journal_blocks,
            )
        })
        .collect();
    // Of the first: 3 in the log and 11 in the journal. Of the second block 3; 9 was cut off.
    assert_eq!(volumes, [("v", 1000, 2, 1), ("w", 9, 1, 1)]);
    assert_eq!(
        (report.recovery_lsn.0, report.findings.worst),
        (pool.lsn, None)
    );
}

#[test]
fn a_moved_block_does_not_come_back_where_the_journal_has_a_newer_version() {
    let mut pool = pool(Redundancy::Single, 4);
    let from = pool.map[&(1, 4)].address();
    pool.sync(1, &[4]);
    let old = Entry::Move {
        volume: VolumeId(1),
        lba: Lba(4),
        birth: Lsn(3),
        from,
    };
    pool.batch(CLEANED, &[(old, Some(content(3)))]);
    assert_eq!(pool.expect_clean().live_blocks, 3);
}

#[test]
fn each_wrong_copy_is_named_while_one_verifies() {
    let mut pool = pool(Redundancy::Double, 6);
    let (chunk, at, _) = pool.sync(1, &[8]);
    pool.sync(1, &[9]);
    say_in_the_log(&mut pool);
    let differs = pool.damage_copy(chunk, 0, at + 700);
    let (unreadable, offset) = pool.journal_area().locate(chunk, 2);
    pool.io.unreadable.insert((unreadable, offset + 600));
    let report = pool.check();
    let found: Vec<_> = report
        .findings
        .list
        .iter()
        .map(|f| {
            (
                f.kind,
                f.severity,
                f.member,
                f.chunk,
                f.message.contains("read"),
            )
        })
        .collect();
    let expected = [(differs, false), (unreadable, true)].map(|(member, read)| {
        (
            JournalCopyWrong,
            Repairable,
            Some(member),
            Some(chunk),
            read,
        )
    });
    assert_eq!(found, expected);
    let copies_wrong = report.journals[0].copies_wrong;
    assert_eq!(
        (
            report.recovery_lsn.0,
            report.journal_blocks,
            copies_wrong,
            report.exit_code()
        ),
        (pool.lsn, 2, 2, 4)
    );
    // Stale members are not read.
    pool.superblock.members[differs.index()].state =
        windrow_format::superblock::MemberState::Absent;
    pool.save();
    let kinds: Vec<_> = pool
        .check()
        .findings
        .list
        .iter()
        .map(|f| (f.kind, f.member))
        .collect();
    assert_eq!(
        kinds,
        [
            (MemberAbsent, Some(differs)),
            (JournalCopyWrong, Some(unreadable))
        ]
    );
}

#[test]
fn a_copy_that_no_flush_covers_need_not_have_arrived() {
    let mut pool = pool(Redundancy::Single, 4);
    let (chunk, at, _) = pool.sync(1, &[8]);
    pool.damage_copy(chunk, 1, at + 20);
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.recovery_lsn.0),
        (vec![(JournalCopyWrong, Note)], pool.lsn)
    );
}

#[test]
fn a_torn_record_ends_the_journal() {
    let mut pool = pool(Redundancy::Single, 4);
    pool.sync(1, &[8]);
    let (chunk, at, _) = pool.sync(1, &[9]);
    for copy in 0..2 {
        pool.damage_copy(chunk, copy, at + 512 + usize::from(copy));
    }
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.recovery_lsn.0, report.journal_blocks),
        (vec![(JournalTorn, Note)], pool.lsn - 1, 1)
    );
    // Not even its header arrived: the record is unknown.
    for copy in 0..2 {
        pool.damage_copy(chunk, copy, at + 20);
    }
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.recovery_lsn.0),
        (vec![], pool.lsn - 1)
    );
}

#[test]
fn a_lost_record_that_was_durable_is_damage() {
    // Source of the durable mark: a later record of the chunk, one of another chunk, a batch.
    for said_by in 0..3 {
        let mut pool = pool(Redundancy::Single, 4);
        let (chunk, at, _) = pool.sync(1, &[8]);
        match said_by {
            0 => _ = pool.sync(1, &[9]),
            1 => {
                pool.turn();
                pool.sync(1, &[9]);
            }
            _ => say_in_the_log(&mut pool),
        }
        for copy in 0..2 {
            pool.damage_copy(chunk, copy, at + 513);
        }
        let report = pool.check();
        assert_eq!(
            (
                report.recovery_lsn.0,
                report.flushed_through.0,
                report.exit_code()
            ),
            (4, 5, 4),
            "case {said_by}"
        );
        let damage: Vec<_> = report
            .findings
            .list
            .iter()
            .filter(|f| f.severity == Error)
            .map(|f| f.kind)
            .collect();
        assert_eq!(
            damage,
            [BatchDamaged, LsnsLost, JournalDamaged],
            "case {said_by}: {:#?}",
            report.findings.list
        );
    }
}

#[test]
fn previous_incarnations_of_a_chunk_do_not_count() {
    // Two records; the log gets their content. The chunk is reused with one record, and the second
    // of the previous incarnation follows it.
    let mut pool = pool(Redundancy::Single, 4);
    pool.record.2 = 100;
    pool.sync(1, &[8]);
    pool.sync(1, &[9]);
    let births = [pool.lsn - 1, pool.lsn];
    let entries = births.map(|birth| {
        (
            Entry::Data {
                volume: VolumeId(1),
                lba: Lba(birth),
                birth: Lsn(birth),
            },
            Some(content(birth)),
        )
    });
    pool.batch(USER, &entries);
    pool.record = (0, 0, 200);
    pool.sync(1, &[30]);
    let report = pool.check();
    assert_eq!(
        (report.recovery_lsn.0, report.journals[0].records),
        (pool.lsn, 1),
        "record 101 does not follow 200"
    );
}

#[test]
fn a_copy_of_a_former_life_gives_way_to_the_newest() {
    let mut pool = pool(Redundancy::Double, 6);
    let (chunk, at, length) = pool.sync(1, &[8]);
    let (member, offset) = pool.journal_area().locate(chunk, 0);
    let old = pool.io.members[member.index()].as_ref().unwrap()[offset as usize + at..][..length]
        .to_vec();
    // The log has it, then the chunk is taken again; member 0 loses the write.
    pool.journalled.clear();
    let entry = Entry::Data {
        volume: VolumeId(1),
        lba: Lba(8),
        birth: Lsn(pool.lsn),
    };
    pool.batch(USER, &[(entry, Some(content(pool.lsn)))]);
    pool.record = (0, 0, 50);
    pool.sync(1, &[9]);
    pool.put(member, offset, &old);
    let report = pool.check();
    assert_eq!(
        (kinds(&report), report.recovery_lsn.0),
        (vec![(JournalCopyWrong, Note)], pool.lsn)
    );
    assert_eq!(report.journal_blocks, 1);
}

#[test]
fn fences_and_roots_end_what_records_of_older_epochs_cover() {
    let mut pool = pool(Redundancy::Single, 4);
    pool.sync(1, &[8, 9]);
    let accepted = pool.lsn - 1;
    // A start found only the first of the two (for example, the members with the record were
    // absent).
    pool.flushed_through = accepted;
    let positions = pool.positions;
    pool.fence(accepted, positions);
    let report = pool.check();
    assert_eq!(
        (report.recovery_lsn.0, report.journal_blocks),
        (accepted, 1),
        "what the fence skipped was never used: {:#?}",
        report.findings.list
    );
    // A checkpoint of the new epoch: readmitted blocks are in the log, and records of the old epoch
    // do not count.
    pool.checkpoint();
    let report = pool.check();
    assert_eq!((report.journals[0].records, report.journal_blocks), (0, 0));
}

/// With several streams a batch may follow a gap: only records count there. A fence records where
/// the log ended, and the batch never counts again.
#[test]
fn batches_behind_a_gap_do_not_count_beside_records() {
    let mut pool = pool(Redundancy::Single, 4);
    pool.sync(1, &[8, 9]);
    let (first, last) = (pool.lsn - 1, pool.lsn);
    let data = |lba: u64, lsn: u64| {
        (
            Entry::Data {
                volume: VolumeId(1),
                lba: Lba(lba),
                birth: Lsn(lsn),
            },
            Some(content(lsn)),
        )
    };
    pool.batch(0, &[data(9, last)]);
    let behind_gap = pool.check();
    assert_eq!(
        (
            behind_gap.log_lsn.0,
            behind_gap.recovery_lsn.0,
            behind_gap.journal_blocks
        ),
        (first - 1, last, 2),
        "{:#?}",
        behind_gap.findings.list
    );
    let positions = pool.positions;
    pool.fence(last, positions);
    if let Some(fence) = pool.superblock.fences.last_mut() {
        fence.covered_lsn = Lsn(first - 1);
    }
    pool.save();
    let fenced = pool.check();
    assert_eq!(
        (
            fenced.log_lsn.0,
            fenced.recovery_lsn.0,
            fenced.journal_blocks
        ),
        (first - 1, last, 2),
        "{:#?}",
        fenced.findings.list
    );
    // The start puts the first of the two into the log; the other one is still only in the journal,
    // whatever the void batch has.
    pool.batch(0, &[data(8, first)]);
    let report = pool.check();
    assert_eq!(
        (
            report.log_lsn.0,
            report.recovery_lsn.0,
            report.journal_blocks
        ),
        (first, last, 1),
        "{:#?}",
        report.findings.list
    );
}

#[test]
fn an_area_that_does_not_fit_is_reported() {
    let mut pool = pool(Redundancy::Single, 4);
    assert_eq!(kinds(&pool.check()), []);
    pool.superblock.members[2].size_bytes = RESERVED + 4096;
    pool.save();
    let report = pool.check();
    let found: Vec<_> = report
        .findings
        .list
        .iter()
        .map(|f| (f.kind, f.severity, f.member))
        .collect();
    assert_eq!(found, [(JournalMisplaced, Error, Some(MemberId(2)))]);
}

const RESERVED: u64 = windrow_format::superblock::RESERVED_BYTES;

/// Two journal devices in addition to four members; the devices hold nothing else.
fn pool_with_devices() -> TestPool {
    let mut pool = TestPool::with_journal_devices(Redundancy::Single, 4, 2);
    pool.create(1, "v", 1000);
    pool.flush();
    pool.sync(1, &[3, 4]);
    pool
}

#[test]
fn journal_devices_are_journals_and_have_no_vote() {
    let mut pool = pool_with_devices();
    let report = pool.expect_clean();
    assert_eq!(
        (
            report.journals.len(),
            report.journals[0].external,
            report.journal_blocks
        ),
        (1, true, 2)
    );
    // One of two devices is lost, and two of four members: the remaining device does not make a
    // majority.
    let device = pool.io.members[5].take();
    let report = pool.check();
    let missing: Vec<_> = report
        .findings
        .list
        .iter()
        .map(|f| (f.kind, f.severity, f.member))
        .collect();
    assert_eq!(missing, [(MemberAbsent, Repairable, Some(MemberId(5)))]);
    assert_eq!(
        (report.recovery_lsn.0, report.journal_blocks),
        (pool.lsn, 2)
    );
    pool.io.members[5] = device;
    pool.io.members[0] = None;
    pool.io.members[1] = None;
    assert!(
        pool.check()
            .findings
            .list
            .iter()
            .any(|f| f.kind == QuorumMissing)
    );
}

#[test]
fn missing_journal_devices_are_damage_unless_that_is_on_record_or_the_pool_was_closed() {
    let mut pool = pool_with_devices();
    pool.io.members[4] = None;
    pool.io.members[5] = None;
    let missing = |pool: &mut TestPool| {
        pool.check()
            .findings
            .list
            .iter()
            .any(|f| f.kind == JournalMissing && f.severity == Error)
    };
    assert!(missing(&mut pool));
    let open = pool.superblock.clone();
    pool.superblock.state = windrow_format::superblock::PoolState::Exported;
    pool.save();
    assert!(!missing(&mut pool));
    pool.superblock = open;
    pool.superblock.generation.0 += 1;
    for device in [4, 5] {
        pool.superblock.members[device].state = windrow_format::superblock::MemberState::Absent;
    }
    pool.saved_hash = pool.superblock.content_hash();
    pool.save();
    assert!(!missing(&mut pool));
}

#[test]
fn the_superblock_says_what_was_durable_when_it_was_written() {
    let mut pool = pool(Redundancy::Single, 4);
    let (chunk, at, _) = pool.sync(1, &[8]);
    for copy in 0..2 {
        pool.damage_copy(chunk, copy, at + 20);
    }
    assert_eq!(
        (pool.check().flushed_through.0, kinds(&pool.check())),
        (0, vec![]),
        "nothing says that it was"
    );
    pool.superblock.journals.durable_lsn = Lsn(pool.lsn);
    pool.save();
    let report = pool.check();
    assert_eq!(
        (report.flushed_through.0, kinds(&report)),
        (5, vec![(BatchDamaged, Error), (LsnsLost, Error)])
    );
}
