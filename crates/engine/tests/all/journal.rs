//! Stories of the journal: small flushes are durable on p + 1 members, survive what the pool
//! survives, and cost only their records.

use crate::machine;

use machine::hooked::{Access, Hooked};
use machine::{Machine, pass, state};
use windrow_engine::*;
use windrow_format::checkpoint::SyncMode;
use windrow_format::journal::RECORD_MAGIC;
use windrow_format::superblock::{SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, VolumeId};

const MIB: u64 = 1 << 20;

/// RAID-6 over six members of 24 MiB, and a volume; flushes have arrived, so the next ones may go
/// to the journal.
fn pool(bytes_each: u64) -> (Machine, VolumeId) {
    let mut machine = Machine::journalled(Redundancy::Double, 6, 24, bytes_each);
    let volume = machine.volume(16 * MIB);
    machine.write(volume, 4000, 1);
    machine.flush(volume);
    (machine, volume)
}

/// Writes a block and flushes.
fn sync(machine: &mut Machine, volume: VolumeId, lba: u64, byte: u8) {
    machine.write(volume, lba, byte);
    machine.completions.clear();
    machine.flush(volume);
    assert!(
        machine.completions.iter().all(|c| c.result.is_ok()) && !machine.completions.is_empty(),
        "the flush was answered: {}",
        machine.engine.describe()
    );
}

fn flushes(machine: &Machine) -> Vec<u64> {
    machine
        .engine
        .status()
        .member_stats
        .iter()
        .map(|m| m.flushes)
        .collect()
}

/// Bytes of the area of the journal on a member.
fn area(machine: &Machine, member: usize) -> std::ops::Range<usize> {
    let journal = machine
        .memory
        .superblock()
        .journals
        .internal
        .expect("a journal");
    assert!(journal.members >> member & 1 == 1);
    journal.start as usize..journal.end() as usize
}

/// Offsets at which a record seems to begin.
fn records(machine: &Machine, member: usize) -> Vec<usize> {
    let range = area(machine, member);
    range
        .step_by(512)
        .filter(|at| machine.memory.data[member][*at..].starts_with(&RECORD_MAGIC))
        .collect()
}

#[test]
fn a_flush_of_one_block_writes_and_flushes_three_members_and_survives_a_crash() {
    let (mut machine, volume) = pool(MIB);
    let before = (machine.engine.status(), flushes(&machine));
    sync(&mut machine, volume, 7, 70);
    let after = machine.engine.status();
    assert_eq!(
        after.written.total() - before.0.written.total(),
        3 * (512 + 4096),
        "one record in three copies, and nothing else"
    );
    assert_eq!(
        after.written.journal - before.0.written.journal,
        3 * (512 + 4096)
    );
    let flushed: u64 = flushes(&machine)
        .iter()
        .zip(&before.1)
        .map(|(now, then)| now - then)
        .sum();
    assert_eq!(flushed, 3, "at most p + 1 members are flushed");
    assert_eq!(
        (
            after.journal.rounds,
            after.journal.records,
            after.at_risk_bytes
        ),
        (before.0.journal.rounds + 1, before.0.journal.records + 1, 0)
    );
    // The batch is still open: only the journal has the block.
    let mut machine = machine.crash();
    assert_eq!(
        (machine.byte(volume, 7), machine.byte(volume, 4000)),
        (70, 1)
    );
    pass(&mut machine, 3);
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
    assert_eq!(
        machine.engine.status().journal.chunks_used,
        0,
        "the log has taken over"
    );
    let mut machine = machine.crash();
    assert_eq!(machine.byte(volume, 7), 70);
}

#[test]
fn trims_zeroes_and_volumes_are_as_durable_as_blocks() {
    let (mut machine, volume) = pool(MIB);
    (10..20).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    machine.request(
        volume,
        Op::Trim {
            offset: 12 * 4096,
            length: 2 * 4096,
            fua: false,
        },
    );
    machine.request(
        volume,
        Op::WriteZeroes {
            offset: 15 * 4096,
            length: 4096,
            no_hole: true,
            fua: false,
        },
    );
    machine.settle();
    machine.write(volume, 13, 6);
    machine.request(
        volume,
        Op::Write {
            offset: 18 * 4096,
            data: Payload::copy_of(&[0xff; 4096]),
            fua: true,
        },
    );
    machine.settle();
    let other = match machine.command(Control::VolumeCreate {
        name: "other".into(),
        size_bytes: MIB,
    }) {
        Some(Ok(ControlReply::Volume(other))) => other,
        answer => panic!("{answer:?}"),
    };
    sync(&mut machine, other, 3, 30);
    assert!(
        machine.engine.status().journal.rounds >= 2,
        "{:?}",
        machine.engine.status().journal
    );
    let mut machine = machine.crash();
    let expected = [5, 5, 0, 6, 5, 0, 5, 5, 0xff, 5];
    (10..20)
        .zip(expected)
        .for_each(|(lba, byte)| assert_eq!(machine.byte(volume, lba), byte, "block {lba}"));
    assert_eq!((machine.byte(other, 3), machine.byte(other, 4)), (30, 0));
    machine.command(Control::VolumeDelete { volume: other });
    let machine = machine.crash();
    assert!(machine.engine.volume("other").is_none());
}

#[test]
fn crash_after_crash_readmits_until_the_log_has_it() {
    let (mut machine, volume) = pool(MIB);
    (0..20).for_each(|lba| sync(&mut machine, volume, lba, lba as u8 + 1));
    sync(&mut machine, volume, 3, 99);
    for held in [0, 1, 2, 5] {
        let mut again = machine.crash();
        // Of the commands of the engine after this start only a few arrive.
        again.held = Some(Vec::new());
        again.events.push(Event::Tick(2));
        again.settle();
        let commands = again.held.take().unwrap_or_default();
        commands
            .into_iter()
            .filter(|c| matches!(c.op, MemberOp::Write { .. }))
            .take(held)
            .for_each(|c| again.carry_out(c));
        again.events.clear();
        machine = again;
    }
    let mut machine = machine.crash();
    (0..20).for_each(|lba| {
        assert_eq!(
            machine.byte(volume, lba),
            if lba == 3 { 99 } else { lba as u8 + 1 },
            "block {lba}"
        )
    });
}

#[test]
fn the_ring_goes_round_and_round() {
    let (mut machine, volume) = pool(64 << 10);
    let chunks = machine.engine.status().journal.chunks;
    for round in 0..60u64 {
        for i in 0..20 {
            sync(
                &mut machine,
                volume,
                (round * 7 + i * 13) % 1000,
                (round + i) as u8,
            );
        }
        if round % 13 == 5 {
            machine = machine.crash();
            sync(&mut machine, volume, 2000, round as u8);
        }
        for i in 0..20 {
            let lba = (round * 7 + i * 13) % 1000;
            assert_eq!(
                machine.byte(volume, lba),
                (round + i) as u8,
                "round {round}, block {lba}"
            );
        }
    }
    let journal = machine.engine.status().journal;
    assert!(journal.record_bytes > 0 && chunks < 16, "{journal:?}");
}

#[test]
fn a_torn_record_ends_the_journal_and_nothing_before_it() {
    let (mut machine, volume) = pool(MIB);
    sync(&mut machine, volume, 1, 11);
    machine.write(volume, 2, 22);
    machine.held = Some(Vec::new());
    machine.flush(volume);
    // Each of the three copies of the second record loses a different part.
    for (i, command) in machine
        .held
        .take()
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        if let MemberOp::Write { offset, buf } = command.op {
            let part = [512, 1024, 4096][i % 3];
            machine
                .memory
                .write(command.member, offset, &buf[..part])
                .expect("written");
        }
    }
    machine.events.clear();
    let mut machine = machine.crash();
    assert_eq!((machine.byte(volume, 1), machine.byte(volume, 2)), (11, 0));
    sync(&mut machine, volume, 2, 33);
    let mut machine = machine.crash();
    assert_eq!((machine.byte(volume, 1), machine.byte(volume, 2)), (11, 33));
}

#[test]
fn one_copy_that_arrived_is_made_three_before_it_counts() {
    let (mut machine, volume) = pool(MIB);
    machine.write(volume, 2, 22);
    machine.held = Some(Vec::new());
    machine.flush(volume);
    let first = machine
        .held
        .take()
        .unwrap_or_default()
        .into_iter()
        .find(|c| matches!(c.op, MemberOp::Write { .. }))
        .expect("a write");
    let bearer = first.member;
    machine.carry_out(first);
    machine.events.clear();
    // The start accepts the record. Then the only member that had it is gone for good, and so is
    // another.
    let mut machine = machine.crash();
    assert_eq!(machine.byte(volume, 2), 22);
    machine.memory.present[bearer.index()] = false;
    machine.memory.present[(bearer.index() + 3) % 6] = false;
    let mut options = Machine::options();
    options.force = true;
    let mut machine = Machine::open_with(machine.memory, &options);
    assert_eq!(machine.byte(volume, 2), 22);
}

#[test]
fn durable_blocks_survive_two_lost_members() {
    for lost in [(0, 1), (1, 2), (0, 2), (3, 5)] {
        let (mut machine, volume) = pool(MIB);
        (0..40).for_each(|lba| sync(&mut machine, volume, lba, lba as u8 + 1));
        let records: Vec<usize> = (0..6).map(|m| records(&machine, m).len()).collect();
        assert!(records.iter().sum::<usize>() >= 120, "{records:?}");
        machine.memory.present[lost.0] = false;
        machine.memory.present[lost.1] = false;
        let mut machine = machine.crash();
        (0..40).for_each(|lba| {
            assert_eq!(
                machine.byte(volume, lba),
                lba as u8 + 1,
                "block {lba}, without {lost:?}"
            )
        });
        sync(&mut machine, volume, 5, 55);
        let mut machine = machine.crash();
        assert_eq!(machine.byte(volume, 5), 55);
    }
}

#[test]
fn a_member_that_fails_in_a_round_is_recorded_before_the_answer() {
    let (mut machine, volume) = pool(MIB);
    let mut failed = 0;
    for lba in 0..30u64 {
        if lba == 10 {
            (failed, machine.memory.failing[0]) = (1, true);
        }
        sync(&mut machine, volume, lba, lba as u8 + 1);
    }
    assert_eq!((failed, state(&machine, 0)), (1, "faulted"));
    let mut machine = machine.crash();
    (0..30).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 + 1, "block {lba}"));
}

#[test]
fn a_pool_whose_durable_records_are_all_lost_is_refused() {
    let (mut machine, volume) = pool(MIB);
    (0..4).for_each(|lba| sync(&mut machine, volume, lba, lba as u8 + 1));
    // The first of these records is damaged in all its copies; later ones state that it was
    // durable.
    for member in 0..6 {
        // The first with a payload.
        if let Some(at) = records(&machine, member)
            .windows(2)
            .find(|two| two[1] - two[0] > 4096)
            .map(|two| two[0])
        {
            machine.memory.data[member][at + 600] ^= 1;
        }
    }
    let error = Engine::open(
        &mut machine.memory,
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .err();
    let text = error.expect("refused").to_string();
    assert!(text.contains("durable data is lost"), "{text}");
}

#[test]
fn a_replaced_member_is_complete_only_when_no_needed_record_is_older() {
    let (mut machine, volume) = pool(MIB);
    (0..10).for_each(|lba| sync(&mut machine, volume, lba, lba as u8 + 1));
    let superblock = Box::new(machine.memory.superblock_of(1));
    for change in [MemberChange::TakeOut, MemberChange::Settle] {
        machine.command(Control::Member {
            member: MemberId(1),
            change,
        });
    }
    sync(&mut machine, volume, 20, 21);
    machine.command(Control::Member {
        member: MemberId(1),
        change: MemberChange::BringBack { superblock },
    });
    sync(&mut machine, volume, 21, 22);
    pass(&mut machine, 60);
    assert_eq!(
        state(&machine, 1),
        "online",
        "{}",
        machine.engine.describe()
    );
    machine.memory.present[0] = false;
    machine.memory.present[2] = false;
    let mut machine = machine.crash();
    (0..10)
        .chain(20..22)
        .for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 + 1, "block {lba}"));
}

#[test]
fn a_large_write_goes_to_the_log() {
    let (mut machine, volume) = pool(MIB);
    let before = machine.engine.status().journal;
    machine.request(
        volume,
        Op::Write {
            offset: 0,
            data: Payload::copy_of(&vec![7; 400 * 4096]),
            fua: false,
        },
    );
    machine.settle();
    machine.flush(volume);
    let after = machine.engine.status().journal;
    assert_eq!(
        (after.records, after.log_cheaper),
        (before.records, before.log_cheaper + 1)
    );
}

#[test]
fn without_flushes_nothing_is_kept_and_nothing_journalled() {
    let mut machine = Machine::journalled(Redundancy::Double, 6, 24, MIB);
    let volume = machine.volume(16 * MIB);
    pass(&mut machine, 50);
    let before = machine.engine.status().journal;
    (0..3000).for_each(|i| machine.write(volume, i % 1500, i as u8));
    pass(&mut machine, 3);
    let after = machine.engine.status();
    assert_eq!(
        (after.journal.records, after.journal.chunks_used),
        (before.records, 0)
    );
}

#[test]
fn an_open_batch_is_sealed_in_the_end_although_it_is_durable_in_the_journal() {
    let (mut machine, volume) = pool(MIB);
    sync(&mut machine, volume, 7, 70);
    pass(&mut machine, 3);
    assert!(
        !machine.engine.is_quiet(),
        "nothing is at risk: it waits for company"
    );
    pass(&mut machine, 30);
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
}

/// Data durable in the journal counted as at risk while anything else was. After synchronous writes
/// one more write showed MiB at risk, where a power loss costs one block.
#[test]
fn at_risk_is_what_neither_log_nor_journal_has() {
    let (mut machine, volume) = pool(MIB);
    (0..100).for_each(|lba| sync(&mut machine, volume, lba, 7));
    let status = machine.engine.status();
    assert_eq!(
        (status.at_risk_bytes, status.journal.records > 10),
        (0, true)
    );
    machine.write(volume, 100, 8);
    assert_eq!(machine.engine.status().at_risk_bytes, 4096);
    // A block of zeroes takes no space, but is lost like any other.
    machine.request(
        volume,
        Op::Write {
            offset: 200 * 4096,
            data: Payload::copy_of(&[0; 2 * 4096]),
            fua: false,
        },
    );
    machine.settle();
    assert_eq!(machine.engine.status().at_risk_bytes, 3 * 4096);
    machine.flush(volume);
    assert_eq!(machine.engine.status().at_risk_bytes, 0);
}

fn set_sync(machine: &mut Machine, volume: VolumeId, sync: SyncMode) {
    assert_eq!(
        machine.command(Control::VolumeSync { volume, sync }),
        Some(Ok(ControlReply::Done))
    );
}

#[test]
fn a_volume_shows_its_sync_mode_and_the_pool_remembers_it() {
    let (mut machine, volume) = pool(MIB);
    set_sync(&mut machine, volume, SyncMode::Always);
    machine.write(volume, 7, 70);
    machine.request(
        volume,
        Op::Trim {
            offset: 4000 * 4096,
            length: 4096,
            fua: false,
        },
    );
    machine.settle();
    assert_eq!(
        machine.engine.status().at_risk_bytes,
        0,
        "durable before the answer, without a flush"
    );
    let mut machine = machine.crash();
    assert_eq!(
        (machine.byte(volume, 7), machine.byte(volume, 4000)),
        (70, 0)
    );
    assert_eq!(machine.engine.status().volumes[0].sync, SyncMode::Always);
    set_sync(&mut machine, volume, SyncMode::Disabled);
    pass(&mut machine, 3);
    let before = flushes(&machine);
    machine.request(
        volume,
        Op::Write {
            offset: 8 * 4096,
            data: Payload::copy_of(&[8; 4096]),
            fua: true,
        },
    );
    sync(&mut machine, volume, 9, 90);
    assert_eq!(flushes(&machine), before, "nothing is flushed");
    let mut machine = machine.crash();
    assert_eq!(
        (machine.byte(volume, 7), machine.byte(volume, 9)),
        (70, 0),
        "in order: the last one is lost"
    );
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        machine.crash().engine.status().volumes[0].sync,
        SyncMode::Disabled
    );
}

#[test]
fn a_pool_without_a_journal_has_ordinary_flushes() {
    let mut machine = Machine::new(4, 24, 100);
    let volume = machine.volume(MIB);
    let refused = machine.command(Control::VolumeSync {
        volume,
        sync: SyncMode::Always,
    });
    assert!(
        matches!(refused, Some(Err(ControlError::Invalid(_)))),
        "{refused:?}"
    );
}

/// A flush found its data durable while a loss was being recorded. It must be answered afterwards;
/// otherwise a shutdown waits for it for ever.
#[test]
fn a_flush_that_arrives_while_a_loss_is_recorded_is_answered() {
    let (mut machine, volume) = pool(MIB);
    sync(&mut machine, volume, 1, 11);
    machine.held = Some(Vec::new());
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(7),
        command: Control::Member {
            member: MemberId(5),
            change: MemberChange::TakeOut,
        },
    }));
    machine.settle();
    machine.completions.clear();
    machine.flush(volume);
    assert!(
        machine.completions.is_empty(),
        "the loss is not recorded yet"
    );
    machine.release();
    assert_eq!(
        machine.completions.len(),
        1,
        "{}",
        machine.engine.describe()
    );
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
}

/// The newest superblocks are lost on all members, and nothing of their epoch is in the log: only
/// the journal holds it. A start must not silently continue from the previous superblocks, without
/// flushed data, and reuse the number of the lost epoch.
#[test]
fn records_of_an_epoch_that_no_superblock_knows_are_not_ignored() {
    let (mut machine, volume) = pool(MIB);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut machine = Machine::open(machine.memory);
    (0..20).for_each(|lba| sync(&mut machine, volume, lba, lba as u8 + 1));
    let epoch = machine.memory.superblock().epoch;
    let mut memory = machine.memory;
    assert!(
        memory
            .headers()
            .iter()
            .all(|(_, _, header)| header.epoch < epoch),
        "all of it is in the journal alone"
    );
    for data in &mut memory.data {
        for slot in 0..SLOT_COUNT {
            let at = (SLOT_OFFSET + slot * SLOT_STRIDE) as usize;
            if Superblock::decode(&data[at..at + SLOT_BYTES])
                .is_ok_and(|superblock| superblock.epoch == epoch)
            {
                data[at..at + SLOT_BYTES].fill(0);
            }
        }
    }
    let error = Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options())
        .map(|_| ())
        .err();
    assert!(
        matches!(&error, Some(OpenError::Damage(text)) if text.contains("epoch")),
        "{error:?}"
    );
}

/// The members, copied to devices with sectors of 4 KiB.
fn coarse(memory: &mut machine::Memory) -> impl MemberIo {
    let whole_sectors = |_: &mut machine::Memory, _, access| {
        if let Access::Read { offset, length } | Access::Write { offset, length } = access {
            assert!(
                offset.is_multiple_of(4096) && length.is_multiple_of(4096),
                "{length} bytes at {offset}"
            );
        }
        Ok(())
    };
    Hooked {
        memory,
        sector_bytes: 4096,
        hook: whole_sectors,
    }
}

/// Its journal is written in units of 512 bytes. The first record was rejected by all members that
/// it went to, and the pool stopped at each start. Now the journal is only read, and flushes go to
/// the log.
#[test]
fn a_pool_that_was_copied_to_larger_sectors_continues_without_its_journal() {
    let (mut machine, volume) = pool(MIB);
    (0..20).for_each(|lba| sync(&mut machine, volume, lba, lba as u8 + 1));
    let mut memory = machine.memory;
    let (engine, report) = Engine::open(
        &mut coarse(&mut memory),
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .expect("open");
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("units of 512 bytes")),
        "{:?}",
        report.notes
    );
    // The value of a superblock does not depend on its writer: another start by the harness only
    // creates its own state.
    let mut machine = Machine {
        engine,
        ..Machine::open(memory.clone())
    };
    machine.memory = memory;
    machine.held = Some(Vec::new());
    machine.write(volume, 30, 99);
    machine.completions.clear();
    machine.flush(volume);
    while let Some(held) = machine
        .held
        .replace(Vec::new())
        .filter(|held| !held.is_empty())
    {
        for command in held {
            if let MemberOp::Read { offset, buf } | MemberOp::Write { offset, buf } = &command.op {
                assert!(
                    offset.is_multiple_of(4096) && buf.len().is_multiple_of(4096),
                    "{} bytes at {offset}",
                    buf.len()
                );
            }
            machine.carry_out(command);
        }
        machine.settle();
    }
    assert!(
        machine.completions.len() == 1 && machine.completions[0].result.is_ok(),
        "{}",
        machine.engine.describe()
    );
    machine.held = None;
    let mut machine = machine.crash();
    (0..20).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 + 1));
    assert_eq!(machine.byte(volume, 30), 99);
}

/// The last record had reached one of its copies at the power loss. The other copies were completed
/// by a write that was no multiple of the sector size. Devices with larger sectors reject that, so
/// the start took healthy members out of service. They get whole sectors now. Bytes after the
/// records in the last sector stay, or become zeroes if they are unreadable.
#[test]
fn copies_are_completed_on_larger_sectors() {
    let (mut machine, volume) = pool(MIB);
    (0..19).for_each(|lba| sync(&mut machine, volume, lba, lba as u8 + 1));
    let before = machine.memory.clone();
    sync(&mut machine, volume, 19, 20);
    let mut memory = machine.memory;
    let copies: Vec<usize> = (0..6)
        .filter(|member| memory.data[*member] != before.data[*member])
        .collect();
    let is_other = |member: usize, at: &usize| memory.data[member][*at] != before.data[member][*at];
    let ends: Vec<usize> = copies
        .iter()
        .filter_map(|m| (0..memory.data[*m].len()).rev().find(|at| is_other(*m, at)))
        .map(|at| (at + 1).next_multiple_of(512))
        .collect();
    assert!(
        copies.len() == 3 && ends.iter().all(|end| !end.is_multiple_of(4096)),
        "{ends:?}"
    );
    for (member, end) in copies.iter().zip(&ends).skip(1) {
        memory.data[*member].copy_from_slice(&before.data[*member]);
        memory.data[*member][*end..*end + 512].fill(*member as u8 + 1);
    }
    // That sector of the last copy is unreadable.
    memory.bad.push((copies[2], ends[2] / 4096 * 4096));
    let (engine, report) = Engine::open(
        &mut coarse(&mut memory),
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .expect("open");
    let states: Vec<_> = engine.status().members.iter().map(|m| m.state).collect();
    assert_eq!((report.completed_records, states), (2, vec!["online"; 6]));
    for (member, end) in copies.iter().zip(&ends).skip(1) {
        let behind = if *member == copies[2] {
            0
        } else {
            *member as u8 + 1
        };
        let (own, first) = (
            &memory.data[*member][end - 4608..*end],
            &memory.data[copies[0]][ends[0] - 4608..ends[0]],
        );
        assert!(
            own == first
                && memory.data[*member][*end..*end + 512]
                    .iter()
                    .all(|byte| *byte == behind),
            "member {member}"
        );
    }
    let mut machine = Machine::open(memory);
    (0..20).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 + 1));
}
