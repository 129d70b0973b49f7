//! A nearly full pool in which blocks that nobody can read hold the space of many segments: it refuses data, and lets users make room.

mod machine;

use machine::{Machine, PROPERTIES, numbers::Numbers};
use windrow_engine::*;
use windrow_io::*;
use windrow_layout::superblock::Properties;
use windrow_units::{Redundancy, VolumeId};

/// Blocks between two that are damaged: each of these lies in a segment of its own.
const APART: u64 = 150;
const DAMAGED: u64 = 40;

fn noise(seed: u64) -> Payload {
    Payload::copy_of(&Numbers(seed * 2 + 1).bytes(4096))
}

/// What one request answers; `None` if nothing moves any more.
fn answer(machine: &mut Machine, volume: VolumeId, op: Op) -> Option<Result<Reply, RequestError>> {
    machine.completions.clear();
    machine.request(volume, op);
    machine.wait_for(1).then(|| machine.completions.pop().expect("an answer").result)
}

fn put(machine: &mut Machine, volume: VolumeId, lba: u64, seed: u64) -> Option<Result<Reply, RequestError>> {
    answer(machine, volume, Op::Write { offset: lba * 4096, data: noise(seed), fua: false })
}

/// A pool without redundancy that is full, and of which many segments hold a block that can not be read.
fn damaged() -> (Machine, VolumeId, u64) {
    let mut machine = Machine::with_rows_only(Redundancy::None, 2, 64, 64, 64);
    machine.command(Control::SetProperties(Properties { spare_per_mille: 30, ..PROPERTIES }));
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let volume = machine.volume(usable * 4096);
    for lba in 0..usable {
        assert!(matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))), "block {lba}: {}", machine.engine.describe());
    }
    machine.flush(volume);
    for lba in (0..DAMAGED).map(|number| number * APART) {
        let wanted = noise(lba);
        for member in 0..2 {
            let data = &machine.memory.data[member];
            let at = (0..data.len()).step_by(4096).filter(|at| data[*at..*at + 4096] == wanted[..]);
            machine.memory.bad.extend(at.map(|at| (member, at)));
        }
    }
    assert!(machine.memory.bad.len() as u64 >= DAMAGED);
    (machine, volume, usable)
}

/// Overwrites until something else than an acknowledgement comes.
fn overwrite(machine: &mut Machine, volume: VolumeId, usable: u64) -> Option<Result<Reply, RequestError>> {
    let mut numbers = Numbers::default();
    for _ in 0..6 * usable {
        let lba = numbers.below(usable);
        if lba.is_multiple_of(APART) && lba < DAMAGED * APART {
            continue;
        }
        let result = put(machine, volume, lba, 1_000_000);
        if !matches!(result, Some(Ok(_))) {
            return result;
        }
    }
    panic!("it had room all the time: {}", machine.engine.describe());
}

/// Writes waited for ever, trims and the end of the pool behind them.
#[test]
fn an_exhausted_pool_refuses_data_and_lets_users_make_room() {
    let (mut machine, volume, usable) = damaged();
    assert_eq!(overwrite(&mut machine, volume, usable).map(|result| result.err()), Some(Some(RequestError::NoSpace)), "{}", machine.engine.describe());
    let told = |machine: &Machine| machine.out.notices.iter().filter(|notice| matches!(notice, Notice::Exhausted { .. })).count();
    assert_eq!(told(&machine), 1);
    // An unaligned one, and one that is admitted in parts.
    let unaligned = Op::Write { offset: 512, data: noise(5).slice(0, 1024), fua: false };
    assert!(matches!(answer(&mut machine, volume, unaligned), Some(Err(RequestError::NoSpace))));
    let large = Op::Write { offset: 0, data: Payload::copy_of(&vec![7; 8 << 20]), fua: true };
    assert!(matches!(answer(&mut machine, volume, large), Some(Err(RequestError::NoSpace))));
    // Trims bring it back: of the blocks that can not be read, and of others.
    let mut trims = 0;
    for lba in (0..usable).step_by(APART as usize) {
        assert!(matches!(answer(&mut machine, volume, Op::Trim { offset: lba * 4096, length: 4096, fua: true }), Some(Ok(_))), "{}", machine.engine.describe());
        trims += 1;
        if matches!(put(&mut machine, volume, 1, 5), Some(Ok(_))) {
            break;
        }
    }
    assert!(trims < 2 * DAMAGED, "after {trims} trims there is no room");
    for lba in 0..usable {
        let trimmed = lba.is_multiple_of(APART);
        assert!(trimmed || matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))), "block {lba}: {}", machine.engine.describe());
    }
    assert_eq!(machine.command(Control::Shutdown { export: false }), Some(Ok(ControlReply::Done)), "{}", machine.engine.describe());
}

/// The same, and the pool is ended instead: after that it starts, and has what was written.
#[test]
fn an_exhausted_pool_can_be_ended_and_started() {
    for crashes in [false, true] {
        let (mut machine, volume, usable) = damaged();
        overwrite(&mut machine, volume, usable);
        machine.flush(volume);
        (0..3).for_each(|lba| machine.request(volume, Op::Write { offset: lba * 4096, data: noise(lba), fua: false }));
        if !crashes {
            machine.events.push(Event::Control(ControlRequest { id: ControlId(1), command: Control::Shutdown { export: false } }));
            machine.settle();
            machine::pass(&mut machine, 20);
            assert_eq!(machine.control.pop().map(|answer| answer.result), Some(Ok(ControlReply::Done)), "{}", machine.engine.describe());
        }
        let mut machine = machine.crash();
        machine::pass(&mut machine, 20);
        assert_eq!(machine.read(volume, 4096, 4096).len(), 4096);
        // Also a volume can go.
        machine.events.push(Event::Control(ControlRequest { id: ControlId(1), command: Control::VolumeDelete { volume } }));
        machine.settle();
        machine::pass(&mut machine, 100);
        assert_eq!(machine.control.pop().map(|answer| answer.result), Some(Ok(ControlReply::Done)), "{}", machine.engine.describe());
        let volume = machine.volume(usable * 4096);
        for lba in 0..usable {
            assert!(matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))), "block {lba}: {}", machine.engine.describe());
        }
    }
}

/// What could not be read held its segments until the next start, also when it could be read again.
#[test]
fn what_can_be_read_again_is_moved() {
    let (mut machine, volume, usable) = damaged();
    overwrite(&mut machine, volume, usable);
    machine.memory.bad.clear();
    let start = ScrubCommand::Start { unix_s: 1_800_000_000, bytes_per_second: 0 };
    assert_eq!(machine.command(Control::Scrub(start)), Some(Ok(ControlReply::Done)));
    machine::pass(&mut machine, 400);
    assert!(machine.out.notices.iter().any(|notice| matches!(notice, Notice::ScrubEnded { lost_blocks: 0, .. })), "{}", machine.engine.describe());
    for lba in (0..usable).filter(|lba| !lba.is_multiple_of(APART)) {
        assert!(matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))), "block {lba}: {}", machine.engine.describe());
    }
    // (Beyond the damaged ones these have been overwritten.)
    let kept = (0..usable).filter(|lba| !lba.is_multiple_of(APART) || *lba < DAMAGED * APART);
    kept.for_each(|lba| assert!(machine.read(volume, lba * 4096, 4096) == noise(lba)[..], "block {lba}"));
}
