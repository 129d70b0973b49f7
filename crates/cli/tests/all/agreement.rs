//! The engine and the offline check read the same members with separate code. They must agree on
//! damage.

#[path = "../../../engine/tests/machine/mod.rs"]
mod machine;

use machine::given_again::{GivenAgain, mirror};
use machine::{Machine, Memory, given_up};
use windrow_engine::{Control, ControlReply, Engine, Event, OpenError, OpenOptions};
use windrow_format::journal::decode_record;
use windrow_geometry::Redundancy;
use windrow_inspect::{CheckOptions, CheckReport, FindingKind, Severity, check};
use windrow_io::{BufPool, Op};
use windrow_types::{BLOCK_BYTES, SegmentId};

#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Damage,
    Sound { recovery_lsn: u64 },
}

fn engine_says(memory: &mut Memory) -> Verdict {
    let options = OpenOptions {
        read_only: true,
        ..Machine::options()
    };
    match Engine::open(memory, BufPool::new(64 << 20), &options) {
        Ok((_, report)) => Verdict::Sound {
            recovery_lsn: report.recovery_lsn.0,
        },
        Err(OpenError::Lost(_)) => Verdict::Damage,
        Err(error) => panic!("{error}"),
    }
}

fn check_says(report: &CheckReport) -> Verdict {
    let damage = |kind| matches!(kind, FindingKind::BatchDamaged | FindingKind::LsnsLost);
    if report
        .findings
        .list
        .iter()
        .any(|f| f.severity == Severity::Error && damage(f.kind))
    {
        Verdict::Damage
    } else {
        Verdict::Sound {
            recovery_lsn: report.recovery_lsn.0,
        }
    }
}

/// The verdict of both.
fn verdict(memory: &mut Memory) -> Verdict {
    let report = check(memory, &CheckOptions::default(), &mut |_| {});
    let (engine, check) = (engine_says(memory), check_says(&report));
    assert_eq!(
        engine, check,
        "the engine, then the check: {:#?}",
        report.findings.list
    );
    engine
}

/// Flushed writes, each in its own batch, over several starts; then one that was not flushed.
fn pool(redundancy: Redundancy, members: usize) -> Memory {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    for round in 0..2u8 {
        for lba in 0..8 {
            machine.write(volume, lba, lba as u8 ^ round);
            machine.flush(volume);
        }
        machine.write(volume, 100, round);
        machine = machine.crash();
    }
    for lba in 0..20 {
        machine.write(volume, lba, lba as u8);
        machine.flush(volume);
    }
    machine.write(volume, 30, 3);
    // Sealed by its age, written, and not flushed.
    machine.now_ns += 1_000_000_000;
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
    machine.memory
}

/// Batches of the user stream since the checkpoint: segment and rows, by batch sequence number.
fn batches(memory: &Memory) -> Vec<(SegmentId, std::ops::Range<u32>)> {
    let root = memory.superblock().checkpoints[0].expect("a checkpoint");
    let mut headers = memory.headers();
    headers.retain(|(_, _, header)| {
        header.stream.0 == 0 && header.epoch >= root.epoch && header.seq >= root.replay[0].seq
    });
    headers.sort_by_key(|(_, _, header)| header.seq);
    headers
        .into_iter()
        .map(|(segment, row, header)| (segment, row..row + header.rows))
        .collect()
}

/// Verdict of both when these rows are overwritten on every member.
fn verdict_without(memory: &mut Memory, segment: SegmentId, rows: std::ops::Range<u32>) -> Verdict {
    let lost = memory.blocks(segment, rows.clone());
    let was: Vec<Vec<u8>> = lost
        .iter()
        .map(|(member, at)| memory.data[*member][*at..*at + BLOCK_BYTES as usize].to_vec())
        .collect();
    memory.overwrite(segment, rows, 0);
    let verdict = verdict(memory);
    lost.iter().zip(&was).for_each(|((member, at), was)| {
        memory.data[*member][*at..*at + BLOCK_BYTES as usize].copy_from_slice(was)
    });
    verdict
}

/// Batches are lost one after another, completely or only their last row, on more members than the
/// redundancy covers.
#[test]
fn whatever_batch_is_lost_both_say_the_same() {
    for (redundancy, members) in [
        (Redundancy::Single, 3),
        (Redundancy::Double, 4),
        (Redundancy::Copies(2), 2),
    ] {
        let mut memory = pool(redundancy, members);
        let whole = verdict(&mut memory);
        let (mut damages, mut torn) = (0, 0);
        for (segment, rows) in batches(&memory) {
            for rows in [rows.clone(), rows.end - 1..rows.end] {
                let verdict = verdict_without(&mut memory, segment, rows);
                damages += u32::from(verdict == Verdict::Damage);
                torn += u32::from(verdict != Verdict::Damage && verdict != whole);
            }
        }
        assert!(
            damages > 10 && torn > 0,
            "{}: {damages} times damage, {torn} times a torn tail",
            redundancy.name()
        );
    }
}

/// Only later headers, in the chunks after the loss, distinguish a lost durable batch from a torn
/// tail.
#[test]
fn both_call_a_lost_durable_batch_damage() {
    let mut memory = pool(Redundancy::Single, 3);
    let (segment, rows) = batches(&memory)[0].clone();
    assert_eq!(verdict_without(&mut memory, segment, rows), Verdict::Damage);
}

/// Each batch fills a segment, so only its header points to the next batch, and only that one
/// proves that it was flushed. Its tail is lost on more members than the redundancy covers; its
/// header is readable. A start must not take it for a torn tail.
#[test]
fn a_torn_batch_points_to_the_proof_that_it_was_flushed() {
    let mut machine = Machine::with_rows_only(Redundancy::Single, 3, 64, 64, 64);
    let volume = machine.volume(1 << 30);
    for lba in 0..1000 {
        machine.write(volume, lba, lba as u8);
        if lba % 500 == 499 {
            machine.flush(volume);
        }
    }
    let mut memory = machine.memory;
    let batches = batches(&memory);
    let at = (1..batches.len())
        .find(|at| batches[*at].1 == (0..64))
        .expect("a batch that fills a segment");
    let (segment, rows) = batches[at].clone();
    assert!(batches[at + 1..].iter().all(|later| later.0 != segment));
    assert_eq!(
        verdict_without(&mut memory, segment, rows.end - 1..rows.end),
        Verdict::Damage
    );
}

/// Nothing proves that the last batch was durable: a power cut may leave this state.
#[test]
fn both_call_the_last_batch_a_torn_tail() {
    let mut memory = pool(Redundancy::Single, 3);
    let (segment, rows) = batches(&memory).pop().expect("a batch");
    let Verdict::Sound {
        recovery_lsn: before,
    } = verdict(&mut memory)
    else {
        panic!("a sound pool")
    };
    assert_eq!(
        verdict_without(&mut memory, segment, rows),
        Verdict::Sound {
            recovery_lsn: before - 1
        }
    );
}

/// Batches that a start refused, and that no fence mentions any more, remain where a member missed
/// the writes of batches with the same numbers. The check must neither call such pools damaged nor
/// list the refused batches. If the new one is corrupt as well, that is a loss.
#[test]
fn batches_refused_long_ago_count_for_neither() {
    let mut parity = GivenAgain::new(Machine::new(3, 64, 100), 1, 19, 1, 1);
    let mut pools = vec![(parity.memory.clone(), parity.memory.clone())];
    parity.missed(0, 0..1);
    pools[0].1 = parity.memory;
    for (batches, again, copy) in [(1, 19, 0), (1, 19, 1), (2, 19, 0), (2, 12, 0)] {
        let mut pool = GivenAgain::new(mirror(), batches, 19, 4, again);
        let (whole, rows) = (pool.memory.clone(), pool.rows);
        pool.missed(copy, 0..rows);
        pools.push((whole, pool.memory.clone()));
        if again == 19 && batches == 1 {
            let (member, at) = pool
                .memory
                .blocks(pool.segment, pool.row + rows - 1..pool.row + rows)[1 - copy];
            pool.memory.data[member][at..at + BLOCK_BYTES as usize].fill(0);
            assert_eq!(verdict(&mut pool.memory), Verdict::Damage);
        }
    }
    for (mut whole, mut missed) in pools {
        let expected = verdict(&mut whole);
        assert!(matches!(expected, Verdict::Sound { .. }));
        assert_eq!(verdict(&mut missed), expected);
        let report = check(&mut missed, &CheckOptions::default(), &mut |_| {});
        assert!(
            report
                .findings
                .list
                .iter()
                .all(|f| f.severity != Severity::Error),
            "{:#?}",
            report.findings.list
        );
    }
}

/// A pool with flushes in its journal, some of them of the previous start; the last one was never
/// answered.
fn journalled(redundancy: Redundancy, members: usize, seed: u64) -> Memory {
    let mut machine = Machine::journalled(redundancy, members, 24, 128 << 10);
    let volume = machine.volume(16 << 20);
    machine.flush(volume);
    for lba in 0..8 + seed % 5 {
        machine.write(volume, lba, lba as u8);
        machine.flush(volume);
    }
    if seed.is_multiple_of(2) {
        machine = machine.crash();
    }
    for lba in 0..12 {
        if lba % 5 == 3 {
            machine.request(
                volume,
                Op::Trim {
                    offset: lba * BLOCK_BYTES,
                    length: 3 * BLOCK_BYTES,
                    fua: false,
                },
            );
            machine.settle();
        }
        machine.write(volume, 3 * lba, lba as u8);
        machine.flush(volume);
    }
    assert!(
        machine.engine.status().journal.rounds > 5,
        "{:?}",
        machine.engine.status().journal
    );
    machine.memory
}

/// The records of the journal, by chunk, first byte in it, and length.
fn records(memory: &Memory) -> Vec<(u32, usize, usize)> {
    let (superblock, mut found) = (memory.superblock(), Vec::new());
    let area = superblock.journals.internal.expect("a journal");
    for chunk in 0..area.chunks {
        let (member, start) = area.locate(chunk, 0);
        let bytes = &memory.data[member.index()][start as usize..][..area.chunk_bytes as usize];
        let mut at = 0;
        while let Ok(record) = decode_record(
            &bytes[at..],
            &superblock.pool,
            chunk,
            at as u32,
            area.granule,
        ) {
            found.push((chunk, at, record.length as usize));
            at += record.length as usize;
        }
    }
    found
}

/// Copies of records are changed at random positions, one after another, until some record has none
/// left. Both agree at each step.
#[test]
fn whatever_becomes_of_the_journal_both_say_the_same() {
    let (mut damages, mut torn) = (0, 0);
    for (redundancy, members) in [
        (Redundancy::None, 2),
        (Redundancy::Single, 3),
        (Redundancy::Double, 6),
        (Redundancy::Copies(2), 2),
    ] {
        for seed in 0..6u64 {
            let mut memory = journalled(redundancy, members, seed);
            let (area, records) = (
                memory.superblock().journals.internal.expect("a journal"),
                records(&memory),
            );
            assert!(records.len() > 8, "{records:?}");
            let whole = verdict(&mut memory);
            let mut number = seed + 1;
            let mut below = |bound: usize| {
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (number >> 33) as usize % bound
            };
            for _ in 0..40 {
                // Mostly the newest ones: the oldest are not needed.
                let (chunk, at, length) =
                    records[records.len() - 1 - below(records.len()).min(below(records.len()))];
                let every = below(2) == 0;
                let byte = at
                    + if below(3) == 0 {
                        below(128)
                    } else {
                        below(length)
                    };
                for copy in (0..area.copies)
                    .filter(|copy| every || usize::from(*copy) == byte % usize::from(area.copies))
                {
                    let (member, start) = area.locate(chunk, copy);
                    memory.data[member.index()][start as usize + byte] ^= 0x40;
                }
                let verdict = verdict(&mut memory);
                damages += u32::from(verdict == Verdict::Damage);
                torn += u32::from(verdict != Verdict::Damage && verdict != whole);
            }
        }
    }
    assert!(
        damages > 50 && torn > 10,
        "{damages} times damage, {torn} times a torn end"
    );
}

/// Blocks that a salvage abandoned are I/O errors: the check must list them, not call the pool
/// sound.
#[test]
fn the_check_lists_abandoned_blocks_until_they_are_written_or_trimmed() {
    let (mut memory, volume, rebuilt) = given_up::pool();
    let all = CheckOptions::everything();
    let report = check(&mut memory, &all, &mut |_| {});
    let found = report
        .findings
        .list
        .iter()
        .filter(|f| f.severity > Severity::Note);
    let found: Vec<_> = found
        .map(|f| (f.kind, f.volume, f.lba.map(|lba| lba.0)))
        .collect();
    assert_eq!(
        found,
        [0, 10].map(|lba| (FindingKind::BlockLost, Some(volume), Some(lba))),
        "{:#?}",
        report.findings.list
    );
    assert_eq!(
        (report.lost_blocks, report.exit_code()),
        (rebuilt.lost_blocks_total, 4)
    );
    let mut machine = Machine::open(memory);
    given_up::GIVEN_UP
        .iter()
        .for_each(|lba| assert!(machine.is_lost(volume, *lba)));
    given_up::make_good(&mut machine, volume);
    machine.flush(volume);
    for _ in 0..2 {
        let report = check(&mut machine.memory, &all, &mut |_| {});
        assert_eq!(
            (report.lost_blocks, report.exit_code()),
            (0, 0),
            "{:#?}",
            report.findings.list
        );
        // Also with all of it in a checkpoint.
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
    }
}
