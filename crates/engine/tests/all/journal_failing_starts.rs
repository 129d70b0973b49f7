//! The lone journal device fails in the middle of a start: durable data is on it alone, and no
//! superblock records that yet.

use crate::machine;

use machine::hooked::{Access, Hooked};
use machine::{Machine, Memory, pass};
use windrow_engine::*;
use windrow_format::superblock::{SLOT_BYTES, slot_offset};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, VolumeId};

const MIB: u64 = 1 << 20;
/// After four data members.
const DEVICE: MemberId = MemberId(4);

/// Failure of the device.
#[derive(Clone, Copy, PartialEq)]
enum Fails {
    /// Reads and writes, but no flush.
    Flushes,
    /// Reads only.
    Writes,
    /// Fails when records are read from it.
    GoneAtRecords,
    /// Fails when it is flushed.
    GoneAtFlush,
}

/// Members with a failing device.
fn failing(memory: &mut Memory, fails: Fails) -> impl MemberIo {
    let hook = move |memory: &mut Memory, member: MemberId, access: Access| {
        if member != DEVICE {
            return Ok(());
        }
        let goes = match access {
            Access::Read { offset, .. } => offset >= MIB && fails == Fails::GoneAtRecords,
            Access::Write { .. } => false,
            Access::Flush => fails == Fails::GoneAtFlush,
        };
        memory.present[member.index()] &= !goes;
        let (kind, code) = match access {
            _ if !memory.present[member.index()] => (MemberErrorKind::Gone, 19),
            Access::Write { .. } if fails == Fails::Writes => (MemberErrorKind::Media, 5),
            Access::Flush => (MemberErrorKind::Media, 5),
            _ => return Ok(()),
        };
        Err(MemberError {
            member,
            kind,
            offset: 0,
            code,
        })
    };
    Hooked {
        memory,
        sector_bytes: 512,
        hook,
    }
}

fn sync(machine: &mut Machine, volume: VolumeId, lba: u64) {
    machine.write(volume, lba, lba as u8 + 1);
    machine.completions.clear();
    machine.flush(volume);
    assert!(
        machine.completions.iter().all(|c| c.result.is_ok()) && !machine.completions.is_empty(),
        "{}",
        machine.engine.describe()
    );
}

/// Power has failed with ten blocks, and the creation of their volume, in the journal alone.
fn pool() -> (Memory, VolumeId) {
    let mut machine = Machine::with_journal_device_only(Redundancy::Single, 4, 24);
    let volume = machine.volume(8 * MIB);
    (0..10).for_each(|lba| sync(&mut machine, volume, lba));
    assert!(machine.engine.durable_lsns().0 < machine.engine.durable_lsns().1);
    (machine.memory, volume)
}

/// The same with blocks 100 to 110, and without the newest generation on the device, which all
/// others have.
fn lagging() -> (Memory, VolumeId) {
    let (memory, volume) = pool();
    let mut machine = Machine::open(memory);
    pass(&mut machine, 200);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    (100..110).for_each(|lba| sync(&mut machine, volume, lba));
    let mut memory = machine.memory;
    let at = slot_offset(memory.superblock().generation) as usize;
    memory.data[DEVICE.index()][at..at + SLOT_BYTES].fill(0);
    (memory, volume)
}

fn check(memory: Memory, volume: VolumeId, blocks: std::ops::Range<u64>) {
    let mut machine = Machine::open(memory);
    blocks.for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 + 1, "block {lba}"));
    assert_eq!(machine.engine.self_check(), Ok(()));
}

/// The start was repeated without the device, found nothing missing as the durable LSN was not
/// recorded, and silently voided the records for ever.
#[test]
fn durable_records_are_read_from_a_device_that_fails_the_start() {
    let (mut memory, volume) = pool();
    let (engine, report) = Engine::open(
        &mut failing(&mut memory, Fails::Flushes),
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .expect("it starts");
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("out of service were read")),
        "{:?}",
        report.notes
    );
    // It is unknown if the device keeps unflushed data: durable is only what the log has.
    assert_eq!(engine.durable_lsns().1, engine.durable_lsns().0);
    check(memory, volume, 0..10);
    let (mut memory, volume) = lagging();
    Engine::open(
        &mut failing(&mut memory, Fails::Writes),
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .expect("it starts");
    check(memory.clone(), volume, 0..10);
    check(memory, volume, 100..110);
}

#[test]
fn a_pool_whose_journal_goes_during_the_start_is_refused() {
    for fails in [Fails::GoneAtRecords, Fails::GoneAtFlush] {
        let (mut memory, volume) = pool();
        let result = Engine::open(
            &mut failing(&mut memory, fails),
            BufPool::new(64 << 20),
            &Machine::options(),
        );
        assert!(
            matches!(result, Err(OpenError::JournalMissing { .. })),
            "{:?}",
            result.map(|(_, report)| report)
        );
        memory.present[DEVICE.index()] = true;
        check(memory, volume, 0..10);
    }
}

#[test]
fn a_salvage_reads_it_too() {
    for (fails, (mut memory, volume), blocks) in [
        (Fails::Flushes, pool(), 0..10),
        (Fails::Writes, lagging(), 100..110),
    ] {
        let work = RebuildWork {
            write: true,
            ..Default::default()
        };
        Engine::rebuild_map(
            &mut failing(&mut memory, fails),
            BufPool::new(64 << 20),
            &Machine::options(),
            work,
            &mut |_| {},
        )
        .expect("it is rebuilt");
        check(memory, volume, blocks);
    }
}

/// A device is taken out while a record is in its cache. Unless the start that reads the record
/// flushes the device, it calls the record durable too early. A flush is answered, power fails, and
/// the next start lacks durable data.
#[test]
fn a_device_that_is_read_is_flushed() {
    let (memory, volume) = pool();
    let mut machine = Machine::open(memory);
    pass(&mut machine, 200);
    (0..10).for_each(|lba| sync(&mut machine, volume, lba));
    machine.held = Some(Vec::new());
    machine.write(volume, 10, 11);
    machine.completions.clear();
    machine.flush(volume);
    let to_device =
        |c: &MemberCommand| c.member == DEVICE && matches!(c.op, MemberOp::Write { .. });
    let (records, others): (Vec<_>, Vec<_>) = machine
        .held
        .take()
        .unwrap_or_default()
        .into_iter()
        .partition(to_device);
    assert_eq!(
        (records.len(), others.len()),
        (1, 0),
        "the flush has not come"
    );
    machine.held = Some(others);
    records
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(7),
        command: Control::Member {
            member: DEVICE,
            change: MemberChange::TakeOut,
        },
    }));
    machine.settle();
    // Superblock writes succeed, nothing else does.
    for _ in 0..6 {
        let through = |command: &MemberCommand| match &command.op {
            MemberOp::Write { offset, .. } => *offset < MIB,
            _ => command.member != DEVICE,
        };
        let (done, held): (Vec<_>, Vec<_>) = machine
            .held
            .take()
            .unwrap_or_default()
            .into_iter()
            .partition(through);
        machine.held = Some(held);
        done.into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.settle();
    }
    assert!(
        machine.completions.is_empty(),
        "the flush of block 10 was not answered"
    );
    // The process is killed: caches of devices stay.
    let flushes = machine.memory.flushed[DEVICE.index()];
    let mut machine = Machine::open(machine.memory);
    assert_eq!(machine.byte(volume, 10), 11);
    assert!(
        machine.memory.flushed[DEVICE.index()] > flushes,
        "it is durable before it is reported so"
    );
}
