//! Growth: a pool takes further members, and the data of the old layout moves to the new one while
//! the pool is in service.

use crate::machine;

use machine::{Machine, Memory, pass, verify, write};
use std::collections::BTreeSet;
use windrow_engine::*;
use windrow_format::superblock::{
    Properties, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock,
};
use windrow_geometry::{Redundancy, ZoneMap};
use windrow_io::*;
use windrow_types::{MemberId, SegmentId, VolumeId};

/// A pool with spares of these sizes in MiB.
fn with_spares(redundancy: Redundancy, members: usize, mib: usize, spares: &[usize]) -> Machine {
    let mut machine = Machine::with(redundancy, members, mib, 100);
    spares.iter().for_each(|mib| machine.add_spare(*mib));
    machine
}

fn shut_down(mut machine: Machine) -> Machine {
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    machine
}

fn grow(
    machine: &mut Machine,
    members: std::ops::Range<u8>,
) -> Option<Result<ControlReply, ControlError>> {
    machine.command(Control::Grow {
        members: members.map(MemberId).collect(),
    })
}

/// Lets time pass with a few writes until no data is left in the old layout.
fn reshape(machine: &mut Machine, volume: VolumeId) -> u32 {
    for round in 0..400 {
        if !machine.engine.status().reshape.active {
            return round;
        }
        machine.write(volume, 5000 + u64::from(round % 50), round as u8);
        machine.flush(volume);
        pass(machine, 3);
    }
    panic!(
        "restriping does not end: {:?}\n{}",
        machine.engine.status().reshape,
        machine.engine.describe()
    );
}

#[test]
fn a_pool_grows_and_moves_to_the_new_layout() {
    for (redundancy, members, spares) in [
        (Redundancy::Single, 3, vec![12, 12]),
        (Redundancy::Single, 4, vec![24]),
        (Redundancy::Double, 4, vec![12, 12, 12]),
        (Redundancy::Copies(2), 2, vec![12]),
        (Redundancy::Copies(2), 3, vec![12]),
        (Redundancy::Copies(2), 4, vec![12]),
        (Redundancy::None, 1, vec![12, 20]),
    ] {
        let mut machine = with_spares(redundancy, members, 12, &spares);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..900, 1);
        let before = machine.engine.status();
        let last = (members + spares.len()) as u8;
        assert_eq!(
            grow(&mut machine, members as u8..last),
            Some(Ok(ControlReply::Done)),
            "{redundancy:?} {members}"
        );
        let status = machine.engine.status();
        assert!(
            status.reshape.active && status.plan.usable_bytes >= before.plan.usable_bytes,
            "{:?}",
            status.reshape
        );
        verify(&mut machine, volume, 0..900, 1);
        let rounds = reshape(&mut machine, volume);
        let status = machine.engine.status();
        assert!(
            status.plan.usable_bytes > before.plan.usable_bytes
                && status.plan.zones.len() == machine.memory.superblock().zones.len()
        );
        assert!(
            rounds > 0 && status.reshape.segments_done == status.reshape.segments_total,
            "{:?}",
            status.reshape
        );
        // Regression: the table still has the entries of the dropped layout, and the content of the
        // pool was reported as nothing.
        assert!(
            status.physical_bytes > before.physical_bytes / 2,
            "{} bytes, before {}",
            status.physical_bytes,
            before.physical_bytes
        );
        verify(&mut machine, volume, 0..900, 1);
        let mut machine = shut_down(machine).crash();
        verify(&mut machine, volume, 0..900, 1);
        assert!(!machine.engine.status().reshape.active);
    }
}

/// A pool with power losses while it works: writes since the last flush of a member may be there or
/// not.
struct Fragile {
    machine: Machine,
    /// Writes that no flush of their member covers: member, offset, previous bytes.
    unflushed: Vec<(usize, usize, Vec<u8>)>,
    commands: u64,
    cuts: u64,
}

impl Fragile {
    fn new(machine: Machine) -> Self {
        Self {
            machine,
            unflushed: Vec::new(),
            commands: 0,
            cuts: 0,
        }
    }

    /// Executes pending work; every so often `cut` receives the state that a power loss would
    /// leave.
    fn run(&mut self, every: u64, cut: &mut dyn FnMut(Memory, u64)) {
        loop {
            self.machine.held = Some(Vec::new());
            self.machine.settle();
            let commands = self.machine.held.take().unwrap_or_default();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                let member = command.member.index();
                if let MemberOp::Write { offset, buf } = &command.op {
                    let range = *offset as usize..*offset as usize + buf.len();
                    self.unflushed.push((
                        member,
                        range.start,
                        self.machine.memory.data[member][range].to_vec(),
                    ));
                }
                if let MemberOp::Flush = &command.op {
                    self.unflushed.retain(|w| w.0 != member);
                }
                self.machine.carry_out(command);
                self.commands += 1;
                // The first ones activate the layout.
                if self.commands < 48 || self.commands.is_multiple_of(every) {
                    self.cuts += 1;
                    cut(self.after_cut(self.cuts), self.cuts);
                }
            }
        }
    }

    /// State if some of the unflushed writes never arrived; sometimes none or all of them.
    fn after_cut(&self, seed: u64) -> Memory {
        let mut memory = self.machine.memory.clone();
        let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (member, at, before) in self.unflushed.iter().rev() {
            bits = bits
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let lost = match seed % 4 {
                0 => true,
                1 => false,
                _ => bits >> 60 < 8,
            };
            if lost {
                memory.data[*member][*at..*at + before.len()].copy_from_slice(before);
            }
        }
        memory
    }
}

#[test]
fn a_growth_survives_power_loss_at_any_time() {
    for (redundancy, members, spares, every) in [
        (Redundancy::Single, 3, vec![12, 12], 29),
        (Redundancy::Copies(2), 3, vec![12], 37),
        (Redundancy::Copies(2), 2, vec![16, 12], 31),
        (Redundancy::Double, 4, vec![12], 53),
    ] {
        let mut machine = with_spares(redundancy, members, 12, &spares);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..500, 1);
        let last = (members + spares.len()) as u8;
        let mut fragile = Fragile::new(machine);
        let (mut seen, mut flushed) = ([0u32; 3], 0u64);
        let mut check = |memory: Memory, cuts: u64, flushed: u64| {
            let mut machine = Machine::open(memory);
            let status = machine.engine.status();
            // Before the layout was active, with two layouts, after the old one was gone.
            let grown = status.plan.zones[0].layout > 0;
            seen[usize::from(grown) + usize::from(grown && !status.reshape.active)] += 1;
            let every = if cuts.is_multiple_of(8) { 1 } else { 7 };
            (0..500).step_by(every).for_each(|lba| {
                assert_eq!(
                    machine.byte(volume, lba),
                    (lba * 3 + 1) as u8,
                    "block {lba} after cut {cuts}"
                )
            });
            let churned = u64::from(machine.byte(volume, 6000));
            assert!(churned >= flushed, "{churned}, {flushed} was flushed");
            if cuts.is_multiple_of(8) {
                if grown {
                    reshape(&mut machine, volume);
                } else {
                    assert_eq!(
                        grow(&mut machine, members as u8..last),
                        Some(Ok(ControlReply::Done))
                    );
                }
                verify(&mut machine, volume, 0..500, 1);
                let mut machine = machine.crash();
                verify(&mut machine, volume, 0..500, 1);
            }
        };
        let grow = Control::Grow {
            members: (members as u8..last).map(MemberId).collect(),
        };
        fragile.machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: grow,
        }));
        for round in 1..=250u64 {
            let lba = 5000 + round % 50;
            for (lba, byte) in [(lba, round as u8), (6000, round as u8)] {
                fragile.machine.request(
                    volume,
                    Op::Write {
                        offset: lba * 4096,
                        data: Payload::copy_of(&[byte; 4096]),
                        fua: false,
                    },
                );
            }
            fragile.machine.request(volume, Op::Flush);
            fragile.run(every, &mut |memory, cuts| check(memory, cuts, flushed));
            flushed = round;
            for _ in 0..3 {
                fragile.machine.now_ns += 30_000_000;
                fragile
                    .machine
                    .events
                    .push(Event::Tick(fragile.machine.now_ns));
                fragile.run(every, &mut |memory, cuts| check(memory, cuts, flushed));
            }
            if !fragile.machine.engine.status().reshape.active && round > 5 {
                break;
            }
        }
        assert!(
            !fragile.machine.engine.status().reshape.active,
            "{:?}",
            fragile.machine.engine.status().reshape
        );
        assert!(
            seen[0] > 5 && seen[1] > 30,
            "{redundancy:?} {members}: {seen:?} of {} commands",
            fragile.commands
        );
    }
}

#[test]
fn a_pool_grows_twice_and_the_numbers_of_the_first_layout_are_used_again() {
    let mut machine = with_spares(Redundancy::Single, 4, 12, &[12]);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..700, 1);
    assert_eq!(grow(&mut machine, 4..5), Some(Ok(ControlReply::Done)));
    reshape(&mut machine, volume);
    let first = machine.memory.superblock().zones[0].clone();
    assert!(first.first_segment > 0 && first.layout == 1);
    write(&mut machine, volume, 200..900, 2);
    // The second time two at once, one of them larger: the rest of it is a zone that is too narrow
    // to use.
    [12, 20].iter().for_each(|mib| machine.add_spare(*mib));
    assert_eq!(grow(&mut machine, 5..7), Some(Ok(ControlReply::Done)));
    let zones = machine.memory.superblock().zones;
    assert_eq!(
        zones
            .iter()
            .map(|z| (z.first_segment, z.layout))
            .collect::<Vec<_>>(),
        [(0, 2), (first.first_segment, 1)]
    );
    let mut machine = machine.crash();
    verify(&mut machine, volume, 0..200, 1);
    verify(&mut machine, volume, 200..900, 2);
    reshape(&mut machine, volume);
    let mut machine = machine.crash();
    verify(&mut machine, volume, 0..200, 1);
    verify(&mut machine, volume, 200..900, 2);
    assert_eq!(machine.memory.superblock().zones.len(), 1);
}

#[test]
fn a_pool_grows_again_before_it_has_moved() {
    for (redundancy, members) in [(Redundancy::Single, 3), (Redundancy::Copies(2), 3)] {
        let mut machine = with_spares(redundancy, members, 12, &[12, 12, 16]);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..800, 1);
        let mut usable = machine.engine.status().plan.usable_bytes;
        for member in members as u8..members as u8 + 3 {
            assert_eq!(
                grow(&mut machine, member..member + 1),
                Some(Ok(ControlReply::Done))
            );
            write(
                &mut machine,
                volume,
                u64::from(member) * 50..u64::from(member) * 50 + 50,
                2,
            );
            let now = machine.engine.status().plan.usable_bytes;
            assert!(now >= usable, "{now} bytes after {usable}");
            usable = now;
            machine = machine.crash();
        }
        let layouts: std::collections::BTreeSet<u32> = machine
            .memory
            .superblock()
            .zones
            .iter()
            .map(|z| z.layout)
            .collect();
        assert!(layouts.len() > 2, "{layouts:?}");
        reshape(&mut machine, volume);
        let mut machine = machine.crash();
        let first = members as u64 * 50;
        verify(&mut machine, volume, 0..first, 1);
        verify(&mut machine, volume, first..first + 150, 2);
        verify(&mut machine, volume, first + 150..800, 1);
        assert_eq!(
            machine
                .memory
                .superblock()
                .zones
                .iter()
                .map(|z| z.layout)
                .max(),
            Some(3)
        );
    }
}

#[test]
fn a_member_may_fail_while_data_moves_and_is_rebuilt_in_both_layouts() {
    for (redundancy, members) in [
        (Redundancy::Single, 3),
        (Redundancy::Copies(2), 3),
        (Redundancy::Double, 5),
    ] {
        for away in [0, members] {
            let mut machine = with_spares(redundancy, members, 12, &[12, 12]);
            let volume = machine.volume(1 << 30);
            write(&mut machine, volume, 0..600, 1);
            assert_eq!(
                grow(&mut machine, members as u8..members as u8 + 2),
                Some(Ok(ControlReply::Done))
            );
            machine.memory.failing[away] = true;
            write(&mut machine, volume, 0..100, 2);
            assert_eq!(machine.engine.status().members[away].state, "faulted");
            verify(&mut machine, volume, 100..600, 1);
            assert!(machine.engine.status().reshape.active);
            // It returns at the next start, and is rebuilt before the remaining data moves.
            machine.memory.failing[away] = false;
            let mut machine = machine.crash();
            pass(&mut machine, 60);
            assert_eq!(machine.engine.status().members[away].state, "online");
            reshape(&mut machine, volume);
            // Now another one fails, and all data is there.
            let other = (away + 1) % members;
            machine.memory.present[other] = false;
            let mut machine = Machine::open_with(
                machine.memory,
                &OpenOptions {
                    force: true,
                    ..Machine::options()
                },
            );
            verify(&mut machine, volume, 0..100, 2);
            verify(&mut machine, volume, 100..600, 1);
        }
    }
}

#[test]
fn a_full_pool_grows_without_a_write_refused_and_is_clean_afterwards() {
    let mut machine = with_spares(Redundancy::Single, 4, 12, &[12, 12]);
    let volume = machine.volume(1 << 30);
    let status = machine.engine.status();
    let blocks = status.plan.usable_bytes / 4096;
    write(&mut machine, volume, 0..blocks, 1);
    machine.completions.clear();
    assert_eq!(grow(&mut machine, 4..6), Some(Ok(ControlReply::Done)));
    let moved_before = machine.engine.status().written.moved;
    let mut lba = 0;
    while machine.engine.status().reshape.active {
        // Overwrites of existing data continue all the time.
        (0..20).for_each(|_| {
            machine.write(
                volume,
                {
                    lba = (lba * 7 + 1) % blocks;
                    lba
                },
                9,
            )
        });
        machine.flush(volume);
        pass(&mut machine, 3);
        assert!(
            machine.completions.drain(..).all(|c| c.result.is_ok()),
            "a write was refused"
        );
    }
    let status = machine.engine.status();
    let moved = status.written.moved - moved_before;
    assert!(
        moved <= blocks * 4096 * 3 / 2,
        "{moved} bytes moved for {blocks} blocks"
    );
    // The new space can be filled.
    let more = status.plan.usable_bytes / 4096 - blocks;
    assert!(more > blocks / 2, "{more} of {blocks}");
    write(&mut machine, volume, blocks..blocks + more, 3);
    assert!(
        machine.completions.drain(..).all(|c| c.result.is_ok()),
        "the new space is not there"
    );
    verify(&mut machine, volume, blocks..blocks + more, 3);
    assert_eq!(
        machine.command(Control::Scrub(ScrubCommand::Start {
            unix_s: 1,
            bytes_per_second: 0
        })),
        Some(Ok(ControlReply::Done))
    );
    pass(&mut machine, 50);
    let scrub = machine.engine.status().scrub;
    assert_eq!(
        (scrub.state, scrub.wrong_blocks, scrub.lost_blocks),
        (ScrubState::Completed, 0, 0)
    );
}

#[test]
fn an_impossible_growth_is_refused_with_a_reason() {
    let mut machine = with_spares(Redundancy::Single, 4, 12, &[12, 2, 1]);
    let why = |answer: Option<Result<ControlReply, ControlError>>| match answer {
        Some(Err(error)) => error.to_string(),
        other => panic!("answered {other:?}"),
    };
    assert!(why(grow(&mut machine, 4..4)).contains("at least one spare"));
    assert!(why(grow(&mut machine, 7..8)).contains("no such member"));
    assert!(why(grow(&mut machine, 0..1)).contains("is no spare"));
    // A small one reduces the others' extents to its own size.
    assert!(why(grow(&mut machine, 5..6)).contains("not have more usable space"));
    // With a larger one it would be a member for ever, with a vote and no data.
    let with_tiny = Control::Grow {
        members: vec![MemberId(4), MemberId(6)],
    };
    assert!(why(machine.command(with_tiny)).contains("member 6: it is too small"));
    machine.memory.failing[1] = true;
    let volume = machine.volume(1 << 20);
    machine.write(volume, 1, 1);
    machine.flush(volume);
    assert!(why(grow(&mut machine, 4..5)).contains("member 1: it is absent"));
    // A spare that fails when it is needed stays a spare.
    let mut machine = with_spares(Redundancy::Single, 4, 12, &[12]);
    machine.memory.failing[4] = true;
    assert!(why(grow(&mut machine, 4..5)).contains("member 4: it failed"));
    let status = machine.engine.status();
    assert_eq!(
        (status.members[4].state, status.state, status.reshape.active),
        ("spare", "online", false)
    );
    machine.memory.failing[4] = false;
    assert_eq!(grow(&mut machine, 4..5), Some(Ok(ControlReply::Done)));
}

#[test]
fn the_map_is_salvaged_from_the_batches_of_both_layouts() {
    for rounds in [1, 2, 4, 6] {
        let mut machine = with_spares(Redundancy::Single, 3, 12, &[12, 12]);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..600, 1);
        assert_eq!(grow(&mut machine, 3..5), Some(Ok(ControlReply::Done)));
        for round in 0..rounds {
            write(&mut machine, volume, round * 40..round * 40 + 40, 2);
            pass(&mut machine, 2);
        }
        let rewritten = rounds * 40;
        assert!(machine.engine.status().reshape.active);
        let mut memory = shut_down(machine).memory;
        let report = Engine::rebuild_map(
            &mut memory,
            BufPool::new(64 << 20),
            &Machine::options(),
            RebuildWork {
                write: true,
                ..Default::default()
            },
            &mut |_| {},
        )
        .expect("a rebuild");
        assert!(report.losses.is_empty(), "{:?}", report.losses);
        let mut machine = Machine::open(memory);
        verify(&mut machine, volume, 0..rewritten, 2);
        verify(&mut machine, volume, rewritten..600, 1);
        reshape(&mut machine, volume);
        verify(&mut machine, volume, 0..rewritten, 2);
        verify(&mut machine, volume, rewritten..600, 1);
    }
}

fn rebuild_map(memory: &mut Memory, write: bool) -> RebuildReport {
    Engine::rebuild_map(
        memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork {
            write,
            ..Default::default()
        },
        &mut |_| {},
    )
    .expect("a rebuild")
}

/// A pool in the middle of a growth.
struct HalfGrown {
    memory: Memory,
    volume: VolumeId,
    blocks: u64,
    /// Second batches of segments of the new layout in extents that the old one had used, except
    /// for checkpoints.
    newer: Vec<(SegmentId, u32)>,
    /// All batches of the old segments that can be found.
    remains: Vec<(SegmentId, u32)>,
}

/// Lets a pool grow until segments of the new layout have been begun, but not filled, where the old
/// one left data; shuts it down.
fn half_grown(redundancy: Redundancy, members: usize, spares: &[usize]) -> HalfGrown {
    let mut machine = with_spares(redundancy, members, 12, spares);
    let volume = machine.volume(1 << 30);
    let blocks = machine.engine.status().plan.usable_bytes / 4096 * 82 / 100;
    write(&mut machine, volume, 0..blocks, 1);
    let last = (members + spares.len()) as u8;
    assert_eq!(
        grow(&mut machine, members as u8..last),
        Some(Ok(ControlReply::Done))
    );
    for _ in 0..2000 {
        assert!(
            machine.engine.status().reshape.active,
            "{redundancy:?} {members}: it has grown"
        );
        write(&mut machine, volume, 0..10, 2);
        machine.flush(volume);
        pass(&mut machine, 1);
        let (newer, remains) = shared_extents(&machine.memory);
        if newer.is_empty() || remains.is_empty() {
            continue;
        }
        let memory = shut_down(machine).memory;
        let (newer, remains) = shared_extents(&memory);
        if !newer.is_empty() && !remains.is_empty() {
            return HalfGrown {
                memory,
                volume,
                blocks,
                newer,
                remains,
            };
        }
        machine = Machine::open(memory);
    }
    panic!("{redundancy:?} {members}: no extent that two layouts have left something in");
}

/// Batches by segment and first row.
type Batches = Vec<(SegmentId, u32)>;

fn shared_extents(memory: &Memory) -> (Batches, Batches) {
    let zones = ZoneMap::new(memory.superblock().zones);
    let headers = memory.headers();
    let written: BTreeSet<SegmentId> = headers.iter().map(|(segment, ..)| *segment).collect();
    let is_shared = |id: SegmentId| {
        zones
            .overlapping(id)
            .iter()
            .any(|other| written.contains(other))
    };
    let (mut newer, mut remains) = (Vec::new(), Vec::new());
    for (at, (segment, row, header)) in headers
        .iter()
        .enumerate()
        .filter(|(_, (segment, ..))| is_shared(*segment))
    {
        if zones.zone(*segment).layout != zones.layout() {
            remains.push((*segment, *row));
        } else if let Some((_, _, first)) = at.checked_sub(1).map(|before| &headers[before])
            && (
                first.segment,
                first.row,
                first.rows,
                first.stream,
                first.seq.next(),
            ) == (*segment, 0, *row, header.stream, header.seq)
            && header.stream.0 != 3
        {
            newer.push((*segment, *row));
        }
    }
    (newer, remains)
}

/// A salvage in the middle of a growth took segments of both layouts that share extents for one
/// another's remains. It silently skipped what it could not read in either.
#[test]
fn a_lost_batch_of_the_new_layout_is_listed_and_remains_of_the_old_one_are_not() {
    for (redundancy, members, spares) in [
        (Redundancy::Single, 3, vec![12, 12]),
        (Redundancy::Copies(2), 3, vec![12]),
    ] {
        let HalfGrown {
            memory,
            volume,
            blocks,
            newer,
            remains,
        } = half_grown(redundancy, members, &spares);
        for (segment, row) in newer {
            let mut memory = memory.clone();
            memory.overwrite(segment, row..row + 1, 0xee);
            let losses = rebuild_map(&mut memory, false).losses;
            let listed: Vec<(SegmentId, u32)> =
                losses.iter().map(|loss| (loss.segment, loss.row)).collect();
            assert_eq!(listed, [(segment, row)], "{redundancy:?} {members}");
        }
        // All remains of the old layout there may be lost.
        let mut memory = memory;
        remains
            .iter()
            .for_each(|(segment, row)| memory.overwrite(*segment, *row..*row + 1, 0xee));
        assert_eq!(
            rebuild_map(&mut memory, true).losses,
            [],
            "{redundancy:?} {members}"
        );
        let mut machine = Machine::open(memory);
        verify(&mut machine, volume, 0..10, 2);
        verify(&mut machine, volume, 10..blocks, 1);
    }
}

/// Blocks whose moved copies in the new layout were lost came back from the segments that they had
/// been moved out of. So segments of both layouts were in use over the same extents.
#[test]
fn no_two_segments_in_use_share_an_extent_after_a_salvage() {
    for (redundancy, members, spares) in [
        (Redundancy::Single, 3, vec![12, 12]),
        (Redundancy::Copies(2), 3, vec![12]),
    ] {
        let HalfGrown {
            mut memory,
            volume,
            blocks,
            newer,
            ..
        } = half_grown(redundancy, members, &spares);
        let kept: BTreeSet<SegmentId> = newer.iter().map(|(segment, _)| *segment).collect();
        let moved = memory
            .headers()
            .into_iter()
            .filter(|(segment, _, h)| h.stream.0 == 2 && !kept.contains(segment));
        moved.for_each(|(segment, row, _)| memory.overwrite(segment, row..row + 1, 0xee));
        rebuild_map(&mut memory, true);
        let mut machine = Machine::open(memory);
        machine
            .engine
            .self_check()
            .unwrap_or_else(|text| panic!("{redundancy:?} {members}: {text}"));
        write(&mut machine, volume, 0..blocks, 3);
        machine
            .engine
            .self_check()
            .unwrap_or_else(|text| panic!("{redundancy:?} {members}: {text}"));
        verify(&mut machine, volume, 0..blocks, 3);
    }
}

/// With mirrors of an odd number of members a new segment waits for several old ones. In a full
/// pool that has been overwritten for long, hardly any new segment has all of them: a salvage found
/// too few to write its checkpoint to.
#[test]
fn the_map_of_a_full_pool_of_mirrors_that_has_just_begun_to_grow_is_salvaged() {
    for (mib, percent) in [(5, 97), (6, 97), (7, 92), (8, 97)] {
        let mut machine = Machine::with(Redundancy::Copies(2), 3, mib, 100);
        machine.add_spare(mib);
        let volume = machine.volume(1 << 30);
        let blocks = machine.engine.status().plan.usable_bytes / 4096 * percent / 100;
        write(&mut machine, volume, 0..blocks, 1);
        // Two thirds once more, in an order that leaves no segment complete.
        (0..blocks)
            .filter(|at| at % 3 > 0)
            .for_each(|at| machine.write(volume, at * 1009 % blocks, 0));
        machine.flush(volume);
        write(&mut machine, volume, 0..blocks / 8, 1);
        assert_eq!(grow(&mut machine, 3..4), Some(Ok(ControlReply::Done)));
        let expected: Vec<u8> = (0..blocks).map(|lba| machine.byte(volume, lba)).collect();
        let mut memory = shut_down(machine).memory;
        assert_eq!(
            rebuild_map(&mut memory, true).losses,
            [],
            "{mib} MiB, {percent} % full"
        );
        let mut machine = Machine::open(memory);
        machine
            .engine
            .self_check()
            .unwrap_or_else(|text| panic!("{text}"));
        assert!(
            (0..blocks).all(|lba| machine.byte(volume, lba) == expected[lba as usize]),
            "{mib} MiB, {percent} % full"
        );
        write(&mut machine, volume, 0..blocks / 4, 2);
        verify(&mut machine, volume, 0..blocks / 4, 2);
        machine
            .engine
            .self_check()
            .unwrap_or_else(|text| panic!("{text}"));
    }
}

#[test]
fn an_idle_pool_moves_to_the_last_segment() {
    for (redundancy, members) in [(Redundancy::Single, 4), (Redundancy::Copies(2), 3)] {
        let mut machine = with_spares(redundancy, members, 12, &[12]);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..300, 1);
        assert_eq!(
            grow(&mut machine, members as u8..members as u8 + 1),
            Some(Ok(ControlReply::Done))
        );
        let lsn = machine.engine.status().lsn;
        pass(&mut machine, 60);
        let status = machine.engine.status();
        assert!(
            !status.reshape.active && status.lsn == lsn,
            "{:?}\n{}",
            status.reshape,
            machine.engine.describe()
        );
        verify(&mut machine, volume, 0..300, 1);
        let mut machine = machine.crash();
        verify(&mut machine, volume, 0..300, 1);
        assert_eq!(
            machine
                .memory
                .superblock()
                .zones
                .iter()
                .map(|z| z.layout)
                .max(),
            Some(1)
        );
    }
}

/// A grow takes pages for its larger segment table. Data written between the request and the
/// activation of the layout could exceed what fits afterwards. So the smaller plan counts from the
/// request on.
#[test]
fn what_is_written_while_a_growth_is_recorded_fits_the_plan_of_that_moment() {
    let pool = || with_spares(Redundancy::Single, 3, 10, &[10; 6]);
    let grow = || Control::Grow {
        members: (3..9).map(MemberId).collect(),
    };
    // Maximum fill level at which the growth is accepted.
    let full = pool().engine.status().plan.usable_bytes / 4096;
    let mut machine = pool();
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..full, 1);
    let refusal = machine.command(grow());
    assert!(
        matches!(refusal, Some(Err(ControlError::NoSpace(_)))),
        "a full pool has no room for the tables: {refusal:?}"
    );
    let mut machine = pool();
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..full / 2, 1);
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(77),
        command: grow(),
    }));
    machine.held = Some(Vec::new());
    machine.settle();
    // Its superblocks are in flight for long, and writes are not.
    machine.completions.clear();
    for lba in full / 2..full {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&[1; 4096]),
                fua: false,
            },
        );
        machine.settle();
        let held = machine.held.take().unwrap_or_default();
        let (slots, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|c| {
            matches!(&c.op, MemberOp::Write { offset, .. } if *offset < 1 << 20)
                || matches!(c.op, MemberOp::Flush)
        });
        others
            .into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.held = Some(slots);
    }
    let refused = machine
        .completions
        .iter()
        .filter(|c| c.result.is_err())
        .count();
    machine.release();
    let status = machine.engine.status();
    assert!(status.reshape.active && refused > 0, "{refused} refused");
    assert!(
        status.used_bytes <= status.plan.usable_bytes,
        "{} bytes used of {}",
        status.used_bytes,
        status.plan.usable_bytes
    );
}

/// Segments of a wider layout add payload, and payload adds map pages whose room in the reserve is
/// counted in segments of the narrowest layout. A second growth before the first had moved took
/// back reserved space. A large write in chunked admission was refused in the middle (simulator,
/// seed 37291).
#[test]
fn an_activated_layout_takes_no_reserved_space() {
    let mut lowered = Vec::new();
    for rounds in 0..16 {
        let mut machine = Machine::with_rows(Redundancy::None, 2, 6, 4, 20);
        (0..4).for_each(|_| machine.add_spare(6));
        let volume = machine.volume(1 << 30);
        let full = machine.engine.status().plan.usable_bytes / 4096;
        write(&mut machine, volume, 0..full * 8 / 10, 1);
        assert_eq!(grow(&mut machine, 2..4), Some(Ok(ControlReply::Done)));
        for round in 0..rounds {
            machine.write(volume, round, round as u8);
            machine.flush(volume);
            pass(&mut machine, 1);
        }
        let members = (4..6).map(MemberId).collect();
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(77),
            command: Control::Grow { members },
        }));
        machine.held = Some(Vec::new());
        machine.settle();
        let durable_lsn = machine.engine.status().plan.usable_bytes;
        machine.release();
        let status = machine.engine.status();
        assert_eq!(
            machine
                .memory
                .superblock()
                .zones
                .iter()
                .map(|z| z.layout)
                .max(),
            Some(2)
        );
        if status.plan.usable_bytes < durable_lsn {
            lowered.push((rounds, durable_lsn, status.plan.usable_bytes));
        }
    }
    assert!(
        lowered.is_empty(),
        "(rounds of the first growth, bytes reserved, bytes available) {lowered:?}"
    );
}

/// A volume is deleted, its segments of the old layout become free, and segments of the new one are
/// written in their extents. A start from an earlier checkpoint found the volume's blocks in its
/// map, until it had deleted them again. Then the old segments became free once more, and the
/// content of the new ones was discarded (simulator, seed 53868).
#[test]
fn a_volume_that_is_deleted_again_after_a_crash_takes_nothing_from_the_new_layout() {
    let mut machine = with_spares(Redundancy::Single, 3, 12, &[12, 12]);
    let discard = Properties {
        discard: true,
        ..machine::PROPERTIES
    };
    assert_eq!(
        machine.command(Control::SetProperties(discard)),
        Some(Ok(ControlReply::Done))
    );
    let kept = machine.volume(1 << 30);
    let create = Control::VolumeCreate {
        name: "deleted".into(),
        size_bytes: 4 << 20,
    };
    let Some(Ok(ControlReply::Volume(deleted))) = machine.command(create) else {
        panic!("no volume")
    };
    write(&mut machine, deleted, 0..1000, 1);
    write(&mut machine, kept, 0..100, 1);
    (0..2).for_each(|_| {
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        )
    });
    assert_eq!(grow(&mut machine, 3..5), Some(Ok(ControlReply::Done)));
    assert_eq!(
        machine.command(Control::VolumeDelete { volume: deleted }),
        Some(Ok(ControlReply::Done))
    );
    let checkpoint = machine.engine.status().checkpoints;
    write(&mut machine, kept, 100..600, 2);
    assert_eq!(
        machine.engine.status().checkpoints,
        checkpoint,
        "the start begins before the delete"
    );
    let freed = machine.engine.status().reshape.segments_done;
    let mut machine = machine.crash();
    assert_eq!(
        machine.engine.status().reshape.segments_done,
        freed,
        "no segment that came free is in use again"
    );
    pass(&mut machine, 20);
    verify(&mut machine, kept, 0..100, 1);
    verify(&mut machine, kept, 100..600, 2);
}

/// A reshape gives way to foreground I/O like a rebuild, and has the rate limits of a rebuild.
#[test]
fn a_reshape_gives_way_to_foreground_io_and_keeps_its_rates() {
    let took = |rebuild_rate, rebuild_rate_min| {
        let mut machine = with_spares(Redundancy::Single, 4, 12, &[12]);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..800, 1);
        let properties = Properties {
            rebuild_rate,
            rebuild_rate_min,
            ..machine::PROPERTIES
        };
        assert_eq!(
            machine.command(Control::SetProperties(properties)),
            Some(Ok(ControlReply::Done))
        );
        assert_eq!(grow(&mut machine, 4..5), Some(Ok(ControlReply::Done)));
        for ms in 1..600_000u64 {
            machine.byte(volume, ms % 800);
            machine.now_ns += 1_000_000;
            machine.events.push(Event::Tick(machine.now_ns));
            machine.settle();
            let reshape = machine.engine.status().reshape;
            if !reshape.active {
                return (ms, reshape.moved_bytes);
            }
        }
        panic!("it starves: {:?}", machine.engine.status().reshape);
    };
    let (guaranteed, _) = took(0, 1 << 30);
    let (gives_way, _) = took(0, 64 << 10);
    let (bounded, moved) = took(1 << 20, 1 << 20);
    // Three columns of data; at most 20 ms are caught up.
    let at_the_bound = moved / 3 * 1000 / (1 << 20);
    assert!(
        guaranteed * 4 < gives_way,
        "{guaranteed} ms with a high rate that is guaranteed, {gives_way} with a low one"
    );
    assert!(
        guaranteed < at_the_bound && at_the_bound < bounded + 20 + at_the_bound / 10,
        "{guaranteed} and {bounded} ms, {at_the_bound} at the bound"
    );
}

/// Sends a grow request and executes the resulting commands; before each command `watch` may
/// inspect it and the members.
fn grow_watched(
    machine: &mut Machine,
    members: std::ops::Range<u8>,
    watch: &mut dyn FnMut(&mut Memory, &MemberCommand),
) {
    let command = Control::Grow {
        members: members.map(MemberId).collect(),
    };
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(77),
        command,
    }));
    loop {
        machine.held = Some(Vec::new());
        machine.settle();
        let commands = machine.held.take().unwrap_or_default();
        if commands.is_empty() {
            return;
        }
        for command in commands {
            watch(&mut machine.memory, &command);
            machine.carry_out(command);
        }
    }
}

fn is_growth(command: &MemberCommand) -> bool {
    let MemberOp::Write { buf, .. } = &command.op else {
        return false;
    };
    Superblock::decode(&buf[..]).is_ok_and(|s| s.zones.iter().any(|zone| zone.layout > 0))
}

/// New members fail while the generation that makes them members is written, more than the
/// redundancy covers. Nothing was written in the new layout yet, so the growth is reverted and the
/// pool continues without a pause. The new members, when they return, are spares, whatever
/// superblock they hold. Otherwise the pool would stop, and start only with them.
#[test]
fn a_growth_whose_new_members_fail_is_reverted() {
    for (redundancy, members, spares, lost) in [
        (Redundancy::Single, 4, vec![12, 12], vec![4, 5]),
        (Redundancy::None, 2, vec![12], vec![2]),
        (Redundancy::Copies(2), 2, vec![12, 12], vec![2, 3]),
        // One old member in addition to one of the new ones.
        (Redundancy::Single, 4, vec![12, 12], vec![1, 5]),
    ] {
        let mut machine = with_spares(redundancy, members, 12, &spares);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..300, 1);
        let usable = machine.engine.status().plan.usable_bytes;
        let last = (members + spares.len()) as u8;
        grow_watched(&mut machine, members as u8..last, &mut |memory, command| {
            if is_growth(command) {
                lost.iter().for_each(|m| memory.failing[*m] = true);
            }
        });
        let answer = machine
            .control
            .iter()
            .find(|c| c.id == ControlId(77))
            .map(|c| c.result.clone());
        assert!(
            matches!(answer, Some(Err(ControlError::Member { .. }))),
            "{redundancy:?}: {answer:?}"
        );
        let status = machine.engine.status();
        assert!(
            !machine.engine.is_stopped()
                && !status.reshape.active
                && status.plan.usable_bytes == usable,
            "{redundancy:?}"
        );
        assert!((members..usize::from(last)).all(|m| status.members[m].state == "spare"));
        write(&mut machine, volume, 0..20, 2);
        // The new devices are gone, then back: with the growth recorded or not, it is not active.
        let mut memory = machine.crash().memory;
        (members..usize::from(last)).for_each(|m| memory.present[m] = false);
        let machine = Machine::open(memory);
        assert!(!machine.memory.superblock().is_growing());
        let mut memory = machine.memory;
        memory.failing.fill(false);
        memory.present.fill(true);
        let mut machine = Machine::open(memory);
        verify(&mut machine, volume, 0..20, 2);
        verify(&mut machine, volume, 20..300, 1);
        pass(&mut machine, 60);
        assert_eq!(machine.engine.status().plan.zones[0].layout, 0);
        assert_eq!(
            grow(&mut machine, members as u8..last),
            Some(Ok(ControlReply::Done))
        );
        reshape(&mut machine, volume);
        verify(&mut machine, volume, 0..20, 2);
    }
}

/// Power fails at any moment of a growth, and the new devices never return. As long as no old
/// member holds the generation with the new layout, the pool starts without them in its previous
/// state. From then on they are members like any others. A device that returns later does not bring
/// the layout back.
#[test]
fn a_pool_does_not_depend_on_new_members_before_they_are_members() {
    for (redundancy, members, spares) in [
        (Redundancy::Single, 4, 2),
        (Redundancy::Copies(2), 2, 2),
        (Redundancy::None, 1, 1),
    ] {
        let mut machine = with_spares(redundancy, members, 12, &vec![12; spares]);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..200, 1);
        let mut cuts: Vec<Memory> = Vec::new();
        grow_watched(
            &mut machine,
            members as u8..(members + spares) as u8,
            &mut |memory, _| {
                if cuts.len() < 24 {
                    cuts.push(memory.clone());
                }
            },
        );
        let (mut without, mut with) = (0, 0);
        for cut in cuts {
            let mut alone = cut.clone();
            (members..members + spares).for_each(|m| alone.present[m] = false);
            let recorded = (0..members).any(|m| {
                superblock_of(&cut, m).is_some_and(|s| s.zones.iter().any(|z| z.layout > 0))
            });
            let opened = Engine::open(&mut alone, BufPool::new(64 << 20), &Machine::options());
            assert_eq!(opened.is_err(), recorded, "{redundancy:?}");
            if recorded {
                with += 1;
                let mut machine = Machine::open(cut);
                verify(&mut machine, volume, 0..200, 1);
                continue;
            }
            without += 1;
            // Whatever the new ones hold: they are spares of a pool that continued.
            let mut machine = Machine::open(alone);
            write(&mut machine, volume, 0..50, 2);
            let mut memory = machine.memory;
            memory.present.fill(true);
            let mut machine = Machine::open(memory);
            verify(&mut machine, volume, 0..50, 2);
            verify(&mut machine, volume, 50..200, 1);
            assert_eq!(machine.engine.status().plan.zones[0].layout, 0);
        }
        assert!(
            without > 3 && with > 3,
            "{redundancy:?}: {without} without, {with} with them"
        );
    }
}

/// Newest superblock on a member.
fn superblock_of(memory: &Memory, member: usize) -> Option<Superblock> {
    let slots = (0..SLOT_COUNT).map(|slot| (SLOT_OFFSET + slot * SLOT_STRIDE) as usize);
    slots
        .filter_map(|at| Superblock::decode(&memory.data[member][at..at + SLOT_BYTES]).ok())
        .max_by_key(|s| s.generation)
}
