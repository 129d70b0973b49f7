//! Stories of flushes that are served both ways: full rows go to the log, the rest to the journal,
//! and nothing is padded.

use crate::machine;

use machine::Machine;
use windrow_io::*;
use windrow_types::VolumeId;

const MIB: u64 = 1 << 20;
/// RAID-5 over four members; the device is member 4.
const DATA: usize = 4;
/// More than the records for a journal device may hold, and not a number that fills rows.
const MANY: u64 = 120;

fn pool(power_safe: bool) -> (Machine, VolumeId) {
    let mut machine = Machine::with_journal_devices(
        windrow_geometry::Redundancy::Single,
        DATA,
        24,
        1,
        power_safe,
    );
    let volume = machine.volume(8 * MIB);
    machine.write(volume, 1500, 1);
    machine.flush(volume);
    (machine, volume)
}

fn fill(machine: &mut Machine, volume: VolumeId) {
    (0..MANY).for_each(|lba| machine.write(volume, lba, lba as u8 + 1));
    machine.completions.clear();
}

fn is_there(machine: &mut Machine, volume: VolumeId, lba: u64) -> bool {
    machine.byte(volume, lba) == lba as u8 + 1
}

#[test]
fn a_large_flush_pads_nothing() {
    for power_safe in [false, true] {
        let (mut machine, volume) = pool(power_safe);
        fill(&mut machine, volume);
        let before = machine.engine.status();
        machine.flush(volume);
        let after = machine.engine.status();
        assert_eq!(
            (machine.completions.len(), after.at_risk_bytes),
            (1, 0),
            "{}",
            machine.engine.describe()
        );
        assert_eq!(
            (
                after.journal.both - before.journal.both,
                after.journal.records - before.journal.records
            ),
            (1, 1)
        );
        assert_eq!(
            after.written.padding, before.written.padding,
            "full rows and nothing else"
        );
        let journalled = (after.written.journal - before.written.journal) / 4096;
        assert!(
            (1..12).contains(&journalled),
            "{journalled} blocks, less than two rows and what the chunk left"
        );
        let mut machine = machine.crash();
        assert!((0..MANY).all(|lba| is_there(&mut machine, volume, lba)));
        assert!(is_there_also(&mut machine, volume));
    }
}

/// Number of the blocks that are there; none after them is.
fn prefix(machine: &mut Machine, volume: VolumeId) -> u64 {
    let through = (0..MANY)
        .find(|lba| !is_there(machine, volume, *lba))
        .unwrap_or(MANY);
    assert!((through..MANY).all(|lba| !is_there(machine, volume, lba)));
    through
}

fn is_there_also(machine: &mut Machine, volume: VolumeId) -> bool {
    machine.byte(volume, 1500) == 1
}

#[test]
fn records_are_not_durable_before_the_rows_preceding_them() {
    let (mut machine, volume) = pool(true);
    fill(&mut machine, volume);
    machine.held = Some(Vec::new());
    machine.flush(volume);
    let (records, rows): (Vec<MemberCommand>, Vec<MemberCommand>) = machine
        .held
        .take()
        .unwrap_or_default()
        .into_iter()
        .partition(|c| c.member.index() == DATA);
    assert_eq!((records.len(), rows.len()), (1, 4));
    machine.held = Some(rows);
    records
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    assert!(
        machine.completions.is_empty(),
        "the records are there, the rows before them are not"
    );
    // Power fails: the predecessors of the records are missing, so they do not count. (The first
    // blocks filled a chunk and are in the log.)
    let mut crashed = Machine::open(machine.memory.clone());
    let through = prefix(&mut crashed, volume);
    assert!(
        through < MANY - 12 && is_there_also(&mut crashed, volume),
        "{through}"
    );
    // They must not come back when the LSNs are reused.
    crashed.write(volume, 1600, 9);
    crashed.flush(volume);
    let mut crashed = crashed.crash();
    assert_eq!(prefix(&mut crashed, volume), through);
    assert_eq!(crashed.byte(volume, 1600), 9);
    // Without a power loss.
    machine.release();
    assert!(machine.wait_for(1), "{}", machine.engine.describe());
    let mut machine = machine.crash();
    assert!((0..MANY).all(|lba| is_there(&mut machine, volume, lba)));
}

#[test]
fn the_rest_stays_open_and_is_read_trimmed_and_sealed_like_any_batch() {
    let (mut machine, volume) = pool(false);
    fill(&mut machine, volume);
    machine.flush(volume);
    assert!(
        (0..MANY).all(|lba| is_there(&mut machine, volume, lba)),
        "read from the open batch"
    );
    machine.request(
        volume,
        Op::Trim {
            offset: (MANY - 1) * 4096,
            length: 4096,
            fua: false,
        },
    );
    machine.settle();
    machine.write(volume, MANY - 2, 77);
    machine.flush(volume);
    let mut machine = machine.crash();
    assert!((0..MANY - 2).all(|lba| is_there(&mut machine, volume, lba)));
    assert_eq!(
        (
            machine.byte(volume, MANY - 2),
            machine.read(volume, (MANY - 1) * 4096, 4096)
        ),
        (77, vec![0; 4096])
    );
    machine::pass(&mut machine, 60);
    assert_eq!(machine.engine.status().journal.chunks_used, 0);
    let mut machine = machine.crash();
    assert!((0..MANY - 2).all(|lba| is_there(&mut machine, volume, lba)));
}
