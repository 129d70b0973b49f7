//! Members that were used by force, apart from the rest of the pool.

use crate::machine;

use machine::{Machine, pass, state, verify, write};
use windrow_engine::*;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, Uuid};

const BLOCKS: u64 = 40;

/// Runs turns until `count` of them have passed; member 1 fails as soon as a superblock is written
/// to it.
fn fail_at_superblock(machine: &mut Machine, count: usize) {
    machine.held = Some(Vec::new());
    for _ in 0..count {
        machine.turn();
        for command in machine.held.replace(Vec::new()).unwrap_or_default() {
            if command.member == MemberId(1)
                && matches!(&command.op, MemberOp::Write { offset, .. } if *offset < 1 << 20)
            {
                machine.memory.failing[1] = true;
            }
            machine.carry_out(command);
        }
    }
    machine.held = None;
    machine.settle();
}

/// Half of a mirror misses the generation before the one that records its loss. It is used by force
/// on another host. There its first generation gets the very number at which the other half has
/// recorded it as absent. It must not be taken back as if it had done nothing meanwhile: it lacks
/// data, and the next start would take the other host's writes from it.
#[test]
fn half_a_mirror_that_lagged_and_was_used_apart_is_not_taken_back() {
    let mut here = Machine::with(Redundancy::Copies(2), 2, 24, 30);
    let volume = here.volume(8 << 20);
    write(&mut here, volume, 0..BLOCKS, 1);
    for _ in 0..2 {
        assert_eq!(
            here.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
    }
    write(&mut here, volume, 0..20, 2);
    here.events.push(Event::Control(ControlRequest {
        id: ControlId(1),
        command: Control::Checkpoint,
    }));
    fail_at_superblock(&mut here, 200);
    assert_eq!(state(&here, 1), "faulted");
    let (own, absent_since) = (
        here.memory.superblock_of(1).generation.0,
        here.memory.superblock().members[1].absent_since.0,
    );
    assert_eq!(own + 2, absent_since, "it lags");
    // There: a short use by force, then power loss.
    let mut fork = here.memory.clone();
    (fork.present[0], fork.failing[1]) = (false, false);
    let mut there = Machine::open_with(
        fork,
        &OpenOptions {
            force: true,
            host: Uuid([7; 16]),
            ..Machine::options()
        },
    );
    (0..12).for_each(|lba| write(&mut there, volume, lba..lba + 1, 77));
    // Here: the next start needs no force, as the loss is recorded.
    here.memory.present[1] = false;
    let mut here = Machine::open_with(here.memory, &Machine::options());
    (0..5).for_each(|lba| write(&mut here, volume, lba..lba + 1, 3));
    here.memory.data[1] = there.memory.data[1].clone();
    (here.memory.present[1], here.memory.failing[1]) = (true, false);
    let superblock = Box::new(here.memory.superblock_of(1));
    let answer = here.command(Control::Member {
        member: MemberId(1),
        change: MemberChange::BringBack { superblock },
    });
    assert!(
        answer.is_some_and(|answer| answer.is_err()),
        "it is not taken back"
    );
    pass(&mut here, 50);
    let mut here = Machine::open_with(here.memory, &Machine::options());
    assert_ne!(state(&here, 1), "online");
    verify(&mut here, volume, 0..5, 3);
    verify(&mut here, volume, 5..20, 2);
    verify(&mut here, volume, 20..BLOCKS, 1);
}
