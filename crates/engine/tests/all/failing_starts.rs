//! Starts with a member that is readable but not writable, as an SSD at the end of its life: it is
//! not used, but its superblock counts.

use crate::machine;

use machine::{Machine, verify, write};
use windrow_engine::*;
use windrow_geometry::Redundancy;
use windrow_io::BufPool;

/// A mirror of two: the second member has been absent for long, and is back when the first one
/// fails its first write. The loss of the second is recorded on the first one only. The first one
/// must not be ignored in the search for the newest superblock while it counts for the quorum.
/// Otherwise the pool would continue from the state before the second member left.
#[test]
fn a_returned_member_does_not_prevail_because_the_other_one_is_not_writable() {
    for vanishes in [false, true] {
        let mut machine = Machine::with(Redundancy::Copies(2), 2, 24, 100);
        let volume = machine.volume(8 << 20);
        write(&mut machine, volume, 0..100, 1);
        // The first superblock that records the second member as absent is written without it.
        machine.memory.present[1] = false;
        let options = OpenOptions {
            force: true,
            ..Machine::options()
        };
        let mut machine = Machine::open_with(machine.memory, &options);
        write(&mut machine, volume, 0..100, 2);
        (0..3).for_each(|_| {
            assert_eq!(
                machine.command(Control::Checkpoint),
                Some(Ok(ControlReply::Done))
            )
        });
        let mut memory = machine.memory;
        memory.present[1] = true;
        (memory.failing[0], memory.vanishing[0]) = (true, vanishes);
        let opened = Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options())
            .map(|(engine, _)| engine.status().members[0].state);
        assert!(
            matches!(opened, Err(OpenError::TooManyMissing { .. })),
            "{:?}",
            opened.map_err(|error| error.to_string())
        );
        // Nothing is lost: the first one is readable again.
        (memory.failing[0], memory.present[0]) = (false, true);
        let mut machine = Machine::open(memory);
        verify(&mut machine, volume, 0..100, 2);
    }
}

/// If the other member is up to date, the pool starts with it. This holds even if a crash let the
/// newest superblock reach only the failing one.
#[test]
fn the_other_one_continues_if_it_has_missed_nothing() {
    for (vanishes, lags) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut machine = Machine::with(Redundancy::Copies(2), 2, 24, 100);
        let volume = machine.volume(8 << 20);
        write(&mut machine, volume, 0..100, 1);
        let before = machine.memory.data[1].clone();
        if lags {
            let mut memory = machine.memory.clone();
            drop(
                Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options())
                    .expect("opened"),
            );
            machine.memory.data[0] = memory.data[0].clone();
            assert!(
                machine.memory.data[1] == before
                    && machine.memory.superblock_of(0).generation
                        > machine.memory.superblock_of(1).generation
            );
        }
        let mut memory = machine.memory;
        (memory.failing[0], memory.vanishing[0]) = (true, vanishes);
        let mut machine = Machine::open(memory);
        assert_eq!(machine::state(&machine, 0), "missing");
        verify(&mut machine, volume, 0..100, 1);
    }
}
