//! Stories of a journal on dedicated devices: data members get full rows only, and every loss
//! caused by the devices is reported.

use crate::machine;

use machine::{Machine, Memory, pass, state};
use windrow_engine::*;
use windrow_format::superblock::{MemberState, Properties, Superblock};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, VolumeId};

const MIB: u64 = 1 << 20;
/// RAID-5 over four members; the devices are members 4 and 5.
const DEVICES: [usize; 2] = [4, 5];

fn pool(power_safe: bool) -> (Machine, VolumeId) {
    let mut machine = Machine::with_journal_devices(Redundancy::Single, 4, 24, 2, power_safe);
    let volume = machine.volume(8 * MIB);
    machine.write(volume, 1500, 1);
    machine.flush(volume);
    // Block 1500 goes to the log.
    pass(&mut machine, 60);
    (machine, volume)
}

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

fn fill(machine: &mut Machine, volume: VolumeId, count: u64) {
    (0..count).for_each(|lba| sync(machine, volume, lba, lba as u8 + 1));
}

fn check(machine: &mut Machine, volume: VolumeId, count: u64) {
    (0..count).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 + 1, "block {lba}"));
}

fn without(
    machine: Machine,
    away: &[usize],
    options: &OpenOptions,
) -> Result<(Engine, OpenReport), OpenError> {
    let mut memory = machine.memory;
    away.iter()
        .for_each(|member| memory.present[*member] = false);
    Engine::open(&mut memory, BufPool::new(64 << 20), options)
}

#[test]
fn data_members_get_nothing_for_a_flush() {
    for power_safe in [false, true] {
        let (mut machine, volume) = pool(power_safe);
        let before = machine.engine.status().member_stats;
        fill(&mut machine, volume, 10);
        let after = machine.engine.status().member_stats;
        for member in 0..4 {
            assert_eq!(
                (after[member].written, after[member].flushes),
                (before[member].written, before[member].flushes),
                "member {member}"
            );
        }
        for member in DEVICES {
            assert_eq!(
                after[member].written.total() - before[member].written.total(),
                10 * (512 + 4096)
            );
            assert_eq!(
                after[member].flushes - before[member].flushes,
                if power_safe { 0 } else { 10 }
            );
        }
        assert!(machine.engine.status().journal.external);
        let mut machine = machine.crash();
        check(&mut machine, volume, 10);
    }
}

/// Many flushes share a round; without this test only benchmarks show that.
#[test]
fn flushes_that_arrive_during_a_round_share_the_next_one() {
    let (mut machine, volume) = pool(false);
    let before = machine.engine.status();
    machine.completions.clear();
    machine.held = Some(Vec::new());
    for lba in 0..16 {
        machine.write(volume, lba, lba as u8 + 1);
        machine.flush(volume);
    }
    machine.release();
    assert!(machine.wait_for(32) && machine.completions.iter().all(|c| c.result.is_ok()));
    let after = machine.engine.status();
    assert_eq!(
        after.journal.rounds - before.journal.rounds,
        2,
        "the first of them, and all others"
    );
    let flushes =
        |member: usize| after.member_stats[member].flushes - before.member_stats[member].flushes;
    assert_eq!([0, 1, 2, 3, 4, 5].map(flushes), [0, 0, 0, 0, 2, 2]);
    check(&mut machine.crash(), volume, 16);
}

#[test]
fn one_device_of_two_is_enough() {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 10);
    machine.memory.failing[4] = true;
    fill(&mut machine, volume, 30);
    assert_eq!(
        (state(&machine, 4), state(&machine, 5)),
        ("faulted", "online")
    );
    assert!(machine.engine.status().journal.external);
    let mut machine = machine.crash();
    check(&mut machine, volume, 30);
}

#[test]
fn when_all_devices_are_gone_the_log_and_the_internal_journal_take_over() {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 20);
    DEVICES
        .iter()
        .for_each(|device| machine.memory.failing[*device] = true);
    sync(&mut machine, volume, 20, 21);
    assert!(
        DEVICES
            .iter()
            .all(|device| state(&machine, *device) == "faulted")
    );
    fill(&mut machine, volume, 40);
    let journal = machine.engine.status().journal;
    assert!(!journal.external && journal.rounds > 20, "{journal:?}");
    // Their loss is recorded: a start does without them.
    DEVICES
        .iter()
        .for_each(|device| machine.memory.present[*device] = false);
    let mut machine = machine.crash();
    check(&mut machine, volume, 40);
}

#[test]
fn durable_data_on_lost_devices_is_missed_even_if_their_loss_is_recorded() {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 20);
    DEVICES
        .iter()
        .for_each(|device| machine.memory.failing[*device] = true);
    machine.write(volume, 20, 21);
    machine.flush(volume);
    // The log was sealed for the durable data of the devices, and power fails before a byte of it
    // arrives: only the record of the loss is left.
    for segment in 0..4u32 {
        machine
            .memory
            .overwrite(windrow_types::SegmentId(segment), 0..1, 0);
    }
    DEVICES
        .iter()
        .for_each(|device| machine.memory.present[*device] = false);
    let error = Engine::open(
        &mut machine.memory,
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .map(|_| ())
    .expect_err("refused");
    assert!(matches!(error, OpenError::Lost(_)), "{error}");
}

/// "Missing: bring them back" was reported for devices that were plugged in, which did not show
/// what to look for.
#[test]
fn old_copies_of_the_devices_are_distinguished_from_absent_devices() {
    let (mut machine, volume) = pool(false);
    let old = DEVICES.map(|device| machine.memory.data[device].clone());
    (0..3)
        .for_each(|_| machine = std::mem::replace(&mut machine, Machine::new(3, 24, 100)).crash());
    fill(&mut machine, volume, 5);
    for (device, data) in DEVICES.into_iter().zip(old) {
        machine.memory.data[device] = data;
    }
    let error = Engine::open(
        &mut machine.memory,
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .map(|_| ())
    .expect_err("refused")
    .to_string();
    assert!(error.contains("it has generation"), "{error}");
}

#[test]
fn a_start_without_the_devices_is_refused_unless_they_were_empty_or_are_discarded() {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 20);
    let memory = machine.memory.clone();
    let error = without(machine, &DEVICES, &Machine::options())
        .map(|_| ())
        .expect_err("refused");
    assert!(
        matches!(&error, OpenError::JournalMissing { which } if which.contains('4') && which.contains('5')),
        "{error}"
    );
    // Discarded: the pool is in its state before the flushes that only the devices had, and reports
    // that.
    let options = OpenOptions {
        discard_journal: true,
        ..Machine::options()
    };
    let mut given_up = memory.clone();
    DEVICES
        .iter()
        .for_each(|device| given_up.present[*device] = false);
    let (_, report) =
        Engine::open(&mut given_up.clone(), BufPool::new(64 << 20), &options).expect("opens");
    assert!(report.notes[0].contains("discarded"), "{:?}", report.notes);
    let mut machine = Machine::open_with(given_up, &options);
    assert_eq!(
        (machine.byte(volume, 3), machine.byte(volume, 1500)),
        (0, 1)
    );
    sync(&mut machine, volume, 3, 33);
    // The devices are there again: their content belongs to a discarded history.
    DEVICES
        .iter()
        .for_each(|device| machine.memory.present[*device] = true);
    let mut machine = machine.crash();
    assert_eq!((machine.byte(volume, 3), machine.byte(volume, 4)), (33, 0));
    pass(&mut machine, 60);
    assert!(
        DEVICES
            .iter()
            .all(|device| state(&machine, *device) == "online"),
        "{}",
        machine.engine.describe()
    );
    fill(&mut machine, volume, 10);
    assert!(machine.engine.status().journal.external);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let (engine, _) = without(machine, &DEVICES, &Machine::options())
        .expect("after a clean shutdown nothing is on them");
    assert!(!engine.status().journal.external);
}

#[test]
fn a_device_that_returns_is_used_when_it_is_complete() {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 5);
    let superblocks: Vec<_> = DEVICES
        .iter()
        .map(|device| machine.memory.superblock_of(*device))
        .collect();
    for device in DEVICES {
        for change in [MemberChange::TakeOut, MemberChange::Settle] {
            machine.command(Control::Member {
                member: MemberId(device as u8),
                change,
            });
        }
    }
    fill(&mut machine, volume, 10);
    assert!(!machine.engine.status().journal.external);
    for (device, superblock) in DEVICES.into_iter().zip(superblocks) {
        machine.command(Control::Member {
            member: MemberId(device as u8),
            change: MemberChange::BringBack {
                superblock: Box::new(superblock),
            },
        });
    }
    fill(&mut machine, volume, 15);
    pass(&mut machine, 60);
    fill(&mut machine, volume, 20);
    assert!(
        machine.engine.status().journal.external,
        "{}",
        machine.engine.describe()
    );
    let mut machine = machine.crash();
    check(&mut machine, volume, 20);
}

#[test]
fn a_journal_device_has_no_vote() {
    // Two of four data members and both devices: not more than half of those that hold data.
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 5);
    let error = without(machine, &[0, 1], &Machine::options())
        .map(|_| ())
        .expect_err("refused");
    assert!(
        matches!(
            error,
            OpenError::NoQuorum {
                present: 2,
                total: 4
            }
        ),
        "{error}"
    );
    let mut machine = Machine::with_journal_devices(Redundancy::Double, 5, 24, 2, false);
    let volume = machine.volume(MIB);
    sync(&mut machine, volume, 1, 11);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let (engine, _) = without(machine, &[0, 1, 5, 6], &Machine::options()).expect("three of five");
    assert_eq!(engine.status().state, "degraded");
}

/// There is no other journal. Data that was durable on the only device was left to the age of the
/// open batch, and `status` showed nothing at risk.
#[test]
fn when_the_only_journal_is_gone_the_log_takes_over_at_once() {
    let mut machine = Machine::with_journal_device_only(Redundancy::Single, 4, 24);
    let volume = machine.volume(8 * MIB);
    fill(&mut machine, volume, 10);
    machine.memory.failing[4] = true;
    sync(&mut machine, volume, 10, 11);
    assert_eq!(state(&machine, 4), "faulted");
    fill(&mut machine, volume, 20);
    machine.memory.present[4] = false;
    let mut machine = machine.crash();
    check(&mut machine, volume, 20);
}

/// One unreadable sector after the records made the whole chunk unreadable, as it was read in one
/// piece. The pool silently started in its state before them.
#[test]
fn a_bad_sector_loses_only_its_block() {
    let mut machine = Machine::with_journal_device_only(Redundancy::Single, 4, 24);
    let volume = machine.volume(8 * MIB);
    fill(&mut machine, volume, 10);
    let area = machine
        .memory
        .superblock()
        .journals
        .external
        .expect("a journal");
    machine.memory.bad.push((
        4,
        (area.start + u64::from(area.chunk_bytes) - 4096) as usize,
    ));
    let mut machine = machine.crash();
    check(&mut machine, volume, 10);
    // In the middle of them: the records after it are lost, and that is reported.
    let mut machine = {
        pass(&mut machine, 60);
        fill(&mut machine, volume, 30);
        machine
    };
    let records: Vec<u64> = (0..u64::from(area.chunks))
        .map(|chunk| area.start + chunk * u64::from(area.chunk_bytes))
        .collect();
    let begins = |at: &u64| {
        machine.memory.data[4][*at as usize..].starts_with(&windrow_format::journal::RECORD_MAGIC)
    };
    let begun: Vec<u64> = records.into_iter().filter(begins).collect();
    machine
        .memory
        .bad
        .extend(begun.iter().map(|chunk| (4, *chunk as usize + 2 * 4096)));
    let error = Engine::open(
        &mut machine.memory,
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .map(|_| ())
    .expect_err("refused");
    assert!(matches!(error, OpenError::Lost(_)), "{error}");
}

/// A pool whose journal devices have failed in service: that is recorded, and power fails before
/// the log has any of their durable data. The devices are writable again.
fn failed_and_cut() -> (Machine, VolumeId) {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 20);
    DEVICES
        .iter()
        .for_each(|device| machine.memory.failing[*device] = true);
    machine.write(volume, 20, 21);
    machine.flush(volume);
    for segment in 0..4u32 {
        machine
            .memory
            .overwrite(windrow_types::SegmentId(segment), 0..1, 0);
    }
    DEVICES
        .iter()
        .for_each(|device| machine.memory.failing[*device] = false);
    (machine, volume)
}

fn start(memory: &Memory) -> Result<OpenReport, OpenError> {
    Engine::open(
        &mut memory.clone(),
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .map(|(_, report)| report)
}

/// The pool was refused although the records were there: a device with a recorded loss was not
/// read.
#[test]
fn a_device_that_failed_in_service_is_read_when_the_log_lacks_its_durable_data() {
    let (machine, volume) = failed_and_cut();
    let report = start(&machine.memory).expect("opens");
    assert!(
        report.notes.iter().any(|note| note.contains("were read")),
        "{:?}",
        report.notes
    );
    // Each device alone is enough, even a read-only one.
    for alone in DEVICES {
        let mut memory = machine.memory.clone();
        DEVICES
            .iter()
            .for_each(|device| memory.present[*device] = *device == alone);
        start(&memory).expect("opens with one of them");
        memory.failing[alone] = true;
        start(&memory).expect("opens with one that fails writes");
    }
    // A crash before the log has it: data up to the fence is on devices that are being rebuilt.
    let fenced = Machine::open(machine.memory).memory;
    let mut machine = Machine::open(fenced);
    check(&mut machine, volume, 20);
    pass(&mut machine, 60);
    fill(&mut machine, volume, 20);
    assert!(
        DEVICES
            .iter()
            .all(|device| state(&machine, *device) == "online")
            && machine.engine.status().journal.external,
        "{}",
        machine.engine.describe()
    );
    let mut machine = machine.crash();
    check(&mut machine, volume, 20);
}

/// A salvage without changes.
fn look(memory: &Memory) -> RebuildReport {
    Engine::rebuild_map(
        &mut memory.clone(),
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork::default(),
        &mut |_| {},
    )
    .expect("a look")
}

/// Data that only the journal had is lost with it. No batch is missing then, so a salvage has to
/// report that loss from other evidence.
#[test]
fn a_salvage_reports_durable_data_that_is_nowhere() {
    let (machine, _) = failed_and_cut();
    let mut memory = machine.memory;
    let whole = look(&memory);
    assert_eq!(
        (whole.losses.len(), whole.lost_lsns),
        (0, None),
        "the devices have everything"
    );
    DEVICES
        .iter()
        .for_each(|device| memory.data[*device].fill(0xee));
    let report = look(&memory);
    let lost = report.lost_lsns.expect("durable, and nowhere");
    assert!(
        report.losses.is_empty() && lost.last == whole.recovery_lsn,
        "{report:?}"
    );
    assert!(
        lost.count >= 20 && lost.count == lost.last.0 - lost.first.0 + 1,
        "{lost:?}"
    );
}

/// A record in the middle of the journal is damaged on all devices. Those after it do not count any
/// more, but show what was durable.
#[test]
fn a_salvage_reports_lost_durable_records_after_a_damaged_one() {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 20);
    let mut memory = machine.memory;
    let accepted = look(&memory).recovery_lsn;
    for device in DEVICES {
        let block = memory.data[device]
            .windows(4095)
            .position(|bytes| bytes.iter().all(|byte| *byte == 11))
            .expect("block 10");
        memory.data[device][block + 100..block + 200].fill(0xee);
    }
    assert!(
        matches!(
            start(&memory),
            Err(OpenError::Damage(_) | OpenError::Lost(_))
        ),
        "a start is refused"
    );
    let lost = look(&memory).lost_lsns.expect("durable, and damaged");
    // No later record confirms the durability of the last one.
    assert!(
        lost.last <= accepted && lost.last.0 + 1 >= accepted.0 && (9..=10).contains(&lost.count),
        "{lost:?} of {accepted}"
    );
}

/// The superblock of a device must be of this pool's own past: by content, not by the number of its
/// generation.
#[test]
fn a_device_of_another_history_is_not_read_and_an_old_one_does_not_suffice() {
    let (machine, volume) = failed_and_cut();
    let mut memory = machine.memory.clone();
    memory.present[5] = false;
    // Another host has written a generation with the same number.
    let mut apart = memory.superblock_of(4);
    apart.host = windrow_types::Uuid([7; 16]);
    let image = apart.encode();
    let at = windrow_format::superblock::slot_offset(apart.generation) as usize;
    memory.data[4][at..at + image.len()].copy_from_slice(&image);
    let error = start(&memory).expect_err("refused");
    assert!(matches!(error, OpenError::Lost(_)), "{error}");
    // Where copies disagree, the newest that verifies counts: with the other device as it left
    // nothing is lost.
    memory.present[5] = true;
    start(&memory).expect("opens");
    // The journal of one device is gone, that of the other one is complete.
    let mut memory = machine.memory.clone();
    let area = memory.superblock().journals.external.expect("a journal");
    memory.data[4][area.start as usize..area.end() as usize].fill(0);
    let mut machine = Machine::open(memory.clone());
    check(&mut machine, volume, 20);
    memory.present[5] = false;
    let error = start(&memory).expect_err("refused");
    assert!(matches!(error, OpenError::Lost(_)), "{error}");
}

/// A lone device that reads but fails every write counts as present, once.
#[test]
fn a_start_reads_a_device_that_is_not_writable() {
    let mut machine = Machine::with_journal_device_only(Redundancy::Single, 4, 24);
    let volume = machine.volume(8 * MIB);
    fill(&mut machine, volume, 10);
    machine.memory.failing[4] = true;
    let mut machine = machine.crash();
    check(&mut machine, volume, 10);
    assert_eq!(state(&machine, 4), "missing");
    pass(&mut machine, 60);
    machine.memory.present[4] = false;
    let mut machine = machine.crash();
    check(&mut machine, volume, 10);
}

/// A device must not be released for exchange while it alone has durable data.
#[test]
fn a_device_is_released_when_the_log_has_its_durable_data() {
    let mut machine = Machine::with_journal_device_only(Redundancy::Single, 4, 24);
    let volume = machine.volume(8 * MIB);
    fill(&mut machine, volume, 10);
    machine.held = Some(Vec::new());
    for change in [MemberChange::TakeOut, MemberChange::Settle] {
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(7),
            command: Control::Member {
                member: MemberId(4),
                change,
            },
        }));
        machine.settle();
        // Superblock writes succeed, log writes do not.
        for _ in 0..6 {
            let (through, held): (Vec<_>, Vec<_>) = machine
                .held
                .take()
                .unwrap_or_default()
                .into_iter()
                .partition(|command| match &command.op {
                    MemberOp::Write { offset, .. } => *offset < MIB,
                    _ => true,
                });
            machine.held = Some(held);
            through
                .into_iter()
                .for_each(|command| machine.carry_out(command));
            machine.settle();
        }
    }
    assert_eq!(
        machine.control.len(),
        1,
        "taken out, and not settled: {:?}",
        machine.control
    );
    machine.release();
    pass(&mut machine, 4);
    assert_eq!(
        machine.control.len(),
        2,
        "settled: {}",
        machine.engine.describe()
    );
    machine.memory.present[4] = false;
    let mut machine = machine.crash();
    check(&mut machine, volume, 10);
}

/// `pool replace` on a closed pool must not go by the record of the loss alone: the discarded
/// device may hold data that the log lacks.
#[test]
fn a_device_that_may_be_needed_is_not_replaced_while_the_pool_is_not_open() {
    let (machine, volume) = failed_and_cut();
    let replace = |memory: &mut Memory, options: &OpenOptions| {
        memory.data[4] = vec![0; memory.data[4].len()];
        Engine::replace_member(
            memory,
            &BufPool::new(1 << 20),
            options,
            MemberId(4),
            windrow_types::Uuid([0xee; 16]),
        )
    };
    let mut memory = machine.memory.clone();
    let error = replace(&mut memory, &Machine::options()).expect_err("refused");
    assert!(matches!(error, OpenError::JournalMissing { .. }), "{error}");
    replace(
        &mut machine.memory.clone(),
        &OpenOptions {
            discard_journal: true,
            ..Machine::options()
        },
    )
    .expect("given up");
    // After a shutdown of the pool nothing is on it.
    let mut machine = Machine::open(machine.memory);
    check(&mut machine, volume, 20);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    replace(&mut machine.memory, &Machine::options()).expect("replaced");
    let mut machine = Machine::open(machine.memory);
    check(&mut machine, volume, 20);
}

/// A device returned while a generation was being written that did not include it. It had nothing
/// to rebuild, so the next generation, its first, called it complete. Power failed during that
/// write, and the device did not get it. Its own superblock was three generations old, so it did
/// not count. The pool waited for a journal device that was there (simulator, seed 31499).
#[test]
fn the_first_generation_that_a_device_gets_does_not_call_it_whole() {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume, 5);
    // Nothing is left to do before it is complete.
    pass(&mut machine, 60);
    let device = DEVICES[1];
    let superblock = machine.memory.superblock_of(device);
    for change in [MemberChange::TakeOut, MemberChange::Settle] {
        machine.command(Control::Member {
            member: MemberId(device as u8),
            change,
        });
    }
    machine.held = Some(Vec::new());
    machine.command(Control::SetProperties(Properties {
        seal_age_ms: 30,
        ..machine::PROPERTIES
    }));
    machine.command(Control::Member {
        member: MemberId(device as u8),
        change: MemberChange::BringBack {
            superblock: Box::new(superblock),
        },
    });
    let mut states = Vec::new();
    for _ in 0..40 {
        for command in machine.held.replace(Vec::new()).unwrap_or_default() {
            if let MemberOp::Write { buf, .. } = &command.op
                && command.member.index() == device
                && let Ok(written) = Superblock::decode(buf)
            {
                states.push(written.members[device].state);
            }
            machine.carry_out(command);
        }
        machine.settle();
        machine.now_ns += 50_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.settle();
    }
    assert_eq!(states.first(), Some(&MemberState::Rebuilding), "{states:?}");
    assert_eq!(
        states.last(),
        Some(&MemberState::Online),
        "{}",
        machine.engine.describe()
    );
}
