//! Order in which a rebuild handles segments: those with the least redundancy first, of these the
//! oldest.

use crate::machine;

use machine::{Machine, Memory, state, verify, write};
use std::collections::{BTreeMap, BTreeSet};
use windrow_engine::*;
use windrow_geometry::{Column, Redundancy, ZoneMap};
use windrow_io::{MemberCommand, MemberOp};
use windrow_types::{MemberId, SegmentId, VolumeId};

/// Number of blocks in a phase: they fill several segments.
const BLOCKS: u64 = 300;

/// Starts with these members absent, after a shutdown.
fn without(mut machine: Machine, away: &[usize]) -> Machine {
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    (0..machine.memory.present.len())
        .for_each(|member| machine.memory.present[member] = !away.contains(&member));
    Machine::open(machine.memory)
}

/// Segments of user data, and the number of batches in each.
fn batches(memory: &Memory) -> BTreeMap<SegmentId, usize> {
    let mut found = BTreeMap::new();
    memory
        .headers()
        .iter()
        .filter(|(_, _, header)| header.stream.0 == 0)
        .for_each(|(segment, ..)| *found.entry(*segment).or_default() += 1);
    found
}

/// Last segment of user data.
fn open_segment(memory: &Memory) -> SegmentId {
    let of_users = memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 0);
    of_users
        .max_by_key(|(_, _, header)| header.seq)
        .expect("a batch")
        .0
}

/// Writes other blocks than the phases before, between two checkpoints. Assigns this phase to each
/// segment that got some of them.
fn phase(
    machine: &mut Machine,
    volume: VolumeId,
    number: u64,
    phases: &mut BTreeMap<SegmentId, u64>,
) {
    let before = batches(&machine.memory);
    write(
        machine,
        volume,
        number * BLOCKS..(number + 1) * BLOCKS,
        number,
    );
    for (segment, count) in batches(&machine.memory) {
        if before.get(&segment) != Some(&count) {
            phases.insert(segment, number);
        }
    }
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
}

/// Segment of a write to a member, if it is a data segment.
fn written(zones: &ZoneMap, command: &MemberCommand) -> Option<(MemberId, SegmentId)> {
    let MemberOp::Write { offset: at, .. } = &command.op else {
        return None;
    };
    let on = |segment: &SegmentId| {
        let location = zones.locate(*segment);
        let rows = 0..location.shape().rows;
        let holds =
            |row: u32, column: u8| location.address(row, Column(column)) == (command.member, *at);
        rows.into_iter()
            .any(|row| (0..location.shape().width).any(|column| holds(row, column)))
    };
    zones
        .segments()
        .find(on)
        .map(|segment| (command.member, segment))
}

/// Executes one command after the other; returns segments in the order in which they are first
/// written to one of these members.
fn rebuild_in_steps(machine: &mut Machine, members: [usize; 2]) -> Vec<SegmentId> {
    let zones = ZoneMap::new(machine.memory.superblock().zones);
    let mut lsn = Vec::new();
    machine.held = Some(Vec::new());
    for _ in 0..200_000 {
        machine.settle();
        if members
            .iter()
            .all(|member| state(machine, *member) == "online")
        {
            machine.release();
            return lsn;
        }
        let held = machine.held.as_mut().expect("held");
        if held.is_empty() {
            machine.now_ns += 30_000_000;
            machine.events.push(Event::Tick(machine.now_ns));
            continue;
        }
        let command = held.remove(0);
        if let Some((member, segment)) = written(&zones, &command) {
            assert!(
                members.contains(&member.index()),
                "nothing is written to the others"
            );
            if !lsn.contains(&segment) {
                lsn.push(segment);
            }
        }
        machine.carry_out(command);
    }
    panic!(
        "the rebuild does not end: {:?}",
        machine.engine.status().rebuild
    );
}

#[test]
fn segments_with_the_least_redundancy_come_first_and_of_those_the_oldest() {
    let mut machine = Machine::with_rows_only(Redundancy::Double, 5, 32, 8, 16);
    let volume = machine.volume(1 << 30);
    let mut phases = BTreeMap::new();
    phase(&mut machine, volume, 0, &mut phases);
    // The open segment is not closed when a member leaves: the member misses that, too.
    let mut open = vec![open_segment(&machine.memory)];
    // One member misses three phases, another one only the last two and more.
    let mut machine = without(machine, &[1]);
    (1..4).for_each(|number| phase(&mut machine, volume, number, &mut phases));
    open.push(open_segment(&machine.memory));
    let mut machine = without(machine, &[1, 3]);
    (4..6).for_each(|number| phase(&mut machine, volume, number, &mut phases));
    let mut machine = without(machine, &[]);
    assert_eq!(
        (state(&machine, 1), state(&machine, 3)),
        ("rebuilding", "rebuilding")
    );
    let lsn = rebuild_in_steps(&mut machine, [1, 3]);
    let of_users: Vec<u64> = lsn
        .iter()
        .filter(|segment| !open.contains(segment))
        .filter_map(|segment| phases.get(segment).copied())
        .collect();
    // Segments that both miss have no redundancy left, although they are the newest.
    let mut expected = of_users.clone();
    expected.sort_by_key(|number| (*number < 4, *number));
    assert_eq!(
        of_users, expected,
        "phases of the segments in the order of the rebuild"
    );
    let of_phase = |number: u64| of_users.iter().filter(|other| **other == number).count();
    assert!((1..6).all(|number| of_phase(number) >= 2), "{of_users:?}");
    assert_eq!(of_phase(0), 0, "no member missed it");
    let stale: BTreeSet<SegmentId> = phases
        .iter()
        .filter(|(_, number)| **number > 0)
        .map(|(segment, _)| *segment)
        .collect();
    assert!(stale.iter().all(|segment| lsn.contains(segment)));
    // With two others absent everything comes from the two that were rebuilt and one more.
    let mut machine = without(machine, &[0, 2]);
    (0..6).for_each(|number| {
        verify(
            &mut machine,
            volume,
            number * BLOCKS..(number + 1) * BLOCKS,
            number,
        )
    });
}
