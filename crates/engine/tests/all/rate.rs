//! Pace of rebuild and scrub: full speed without foreground I/O, and out of its way when clients
//! are active.

use crate::machine;

use machine::{Machine, PROPERTIES};
use std::collections::BTreeSet;
use windrow_engine::*;
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_io::{MemberOp, Op};
use windrow_types::VolumeId;

const BLOCKS: u64 = 4000;

fn tick(machine: &mut Machine, ms: u64) {
    machine.now_ns += ms * 1_000_000;
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
}

fn fill(machine: &mut Machine, volume: VolumeId) {
    (0..BLOCKS).for_each(|lba| machine.write(volume, lba, lba as u8 | 1));
    machine.flush(volume);
}

/// A pool whose member 1 has returned empty, before its first tick.
fn returned(rate: u64, rate_min: u64) -> (Machine, VolumeId) {
    returned_to(
        Machine::with(Redundancy::Double, 5, 32, 100),
        rate,
        rate_min,
    )
}

fn returned_to(mut machine: Machine, rate: u64, rate_min: u64) -> (Machine, VolumeId) {
    let volume = machine.volume(1 << 30);
    machine.command(Control::SetProperties(Properties {
        rebuild_rate: rate,
        rebuild_rate_min: rate_min,
        ..PROPERTIES
    }));
    machine.command(Control::Shutdown { export: false });
    machine.memory.present[1] = false;
    let mut machine = machine.crash();
    fill(&mut machine, volume);
    machine.command(Control::Shutdown { export: false });
    machine.memory.present[1] = true;
    (machine.crash(), volume)
}

/// Reads a user block each millisecond until the rebuild has ended; returns the duration in
/// milliseconds.
fn rebuild_beside_users(machine: &mut Machine, volume: VolumeId) -> u64 {
    for ms in 1..600_000 {
        machine.byte(volume, ms % BLOCKS);
        tick(machine, 1);
        if machine.engine.status().members[1].state == "online" {
            return ms;
        }
    }
    panic!("it starved: {}", machine.engine.describe());
}

/// Reads in flight to one member.
fn verified(machine: &Machine, member: usize) -> usize {
    let held = machine.held.iter().flatten();
    held.filter(|c| c.member.index() == member && matches!(c.op, MemberOp::Read { .. }))
        .count()
}

#[test]
fn an_idle_pool_has_many_batches_in_progress_and_a_busy_one_has_one() {
    let (mut machine, volume) = returned(0, 64 << 10);
    machine.held = Some(Vec::new());
    tick(&mut machine, 1);
    assert!(
        verified(&machine, 0) >= 4,
        "{} of them",
        verified(&machine, 0)
    );
    let (mut machine, _) = (returned(0, 64 << 10).0, volume);
    machine.request(volume, windrow_io::Op::Flush);
    machine.held = Some(Vec::new());
    tick(&mut machine, 1);
    assert_eq!(verified(&machine, 0), 1);
    // The guaranteed rate is so small that nothing more is due soon.
    tick(&mut machine, 20);
    assert_eq!(verified(&machine, 0), 1);
    machine.release();
    assert_eq!(
        machine.engine.status().rebuild.segments_done,
        0,
        "and then there is a pause"
    );
    // A second after their last request clients are not active any more.
    (0..30).for_each(|_| tick(&mut machine, 50));
    assert_eq!(machine.engine.status().members[1].state, "online");
}

#[test]
fn foreground_io_slows_a_rebuild_down_and_never_stops_it() {
    let took = |rate, rate_min| {
        let (mut machine, volume) = returned(rate, rate_min);
        let ms = rebuild_beside_users(&mut machine, volume);
        (ms, machine.engine.status().rebuild.written_bytes)
    };
    let (gives_way, bytes) = took(0, 64 << 10);
    let (guaranteed, _) = took(0, 1 << 30);
    let (bounded, _) = took(1 << 20, 1 << 20);
    assert!(
        guaranteed < gives_way && gives_way < bounded,
        "{guaranteed} {gives_way} {bounded}"
    );
    let at_the_bound = bytes * 1000 / (1 << 20);
    assert!(
        (at_the_bound * 9 / 10..at_the_bound * 3 / 2 + 1000).contains(&bounded),
        "{bounded} ms, {at_the_bound} at the bound"
    );
}

#[test]
fn progress_adds_up_from_begin_to_end() {
    let (mut machine, volume) = returned(0, 64 << 10);
    machine.byte(volume, 1);
    let (mut least_left, mut total, mut shown) = (u64::MAX, 0, 0);
    while machine.engine.status().members[1].state == "rebuilding" {
        let status = machine.engine.status().rebuild;
        assert!(
            status.left_bytes <= least_left,
            "{status:?} after {least_left}"
        );
        least_left = status.left_bytes;
        assert!(
            total == 0 || status.written_bytes + status.left_bytes <= total + (1 << 20),
            "{status:?} of {total}"
        );
        total = status.written_bytes + status.left_bytes;
        shown += u32::from(
            status.written_bytes > 0 && status.left_bytes > 0 && status.bytes_per_second > 0,
        );
        machine.byte(volume, 1);
        tick(&mut machine, 5);
    }
    let ended = machine.engine.status().rebuild;
    assert!(
        shown > 10
            && ended.left_bytes == 0
            && ended.bytes_per_second == 0
            && ended.written_bytes == total,
        "{ended:?} of {total}, {shown}"
    );
}

#[test]
fn a_scrub_gives_way_to_users_and_waits_for_a_rebuild() {
    let (mut machine, volume) = returned(0, 64 << 10);
    machine.byte(volume, 1);
    let start = Control::Scrub(ScrubCommand::Start {
        unix_s: 5,
        bytes_per_second: 0,
    });
    assert_eq!(machine.command(start), Some(Ok(ControlReply::Done)));
    let mut beside_users = 0;
    while machine.engine.status().members[1].state == "rebuilding" {
        assert_eq!(
            machine.engine.status().scrub.batches,
            0,
            "redundancy that is missing comes first"
        );
        machine.byte(volume, 1);
        tick(&mut machine, 5);
    }
    while machine.engine.status().scrub.state == ScrubState::Running {
        machine.byte(volume, 1);
        tick(&mut machine, 1);
        beside_users += 1;
    }
    let scrub = machine.engine.status().scrub;
    assert!(
        beside_users >= scrub.batches * 4 && scrub.batches > 10,
        "{beside_users} ms for {} batches",
        scrub.batches
    );
}

#[test]
fn rates_that_make_no_sense_are_refused() {
    let mut machine = Machine::with(Redundancy::Single, 3, 24, 100);
    for (rebuild_rate, rebuild_rate_min) in [
        (0, 0),
        (0, 1000),
        (1 << 20, 2 << 20),
        (u64::MAX, 1 << 20),
        (0, u64::MAX),
    ] {
        let answer = machine.command(Control::SetProperties(Properties {
            rebuild_rate,
            rebuild_rate_min,
            ..PROPERTIES
        }));
        assert!(
            matches!(answer, Some(Err(ControlError::Invalid(_)))),
            "{rebuild_rate} {rebuild_rate_min}: {answer:?}"
        );
    }
}

#[test]
fn a_rebuild_reads_no_more_than_it_needs() {
    let (mut machine, _) = returned(0, 64 << 10);
    (0..30).for_each(|_| tick(&mut machine, 50));
    let rebuild = machine.engine.status().rebuild;
    assert_eq!(
        (machine.engine.status().members[1].state, rebuild.read_bytes),
        ("online", rebuild.written_bytes * 3)
    );
}

/// Columns that it does not read at first identify the wrong one.
#[test]
fn a_rebuild_that_meets_wrong_bytes_reads_everything_and_finds_the_right_ones() {
    let (mut machine, volume) = returned(0, 64 << 10);
    machine.garble(3);
    (0..30).for_each(|_| tick(&mut machine, 50));
    let rebuild = machine.engine.status().rebuild;
    assert_eq!(
        (
            machine.engine.status().members[1].state,
            rebuild.damaged_batches
        ),
        ("online", 0)
    );
    assert!(
        rebuild.read_bytes > rebuild.written_bytes * 4,
        "{rebuild:?}"
    );
    machine.command(Control::Shutdown { export: false });
    // The lying member and another one fail: the rebuilt data has to be right.
    (machine.memory.present[3], machine.memory.present[0]) = (false, false);
    let mut machine = machine.crash();
    (0..BLOCKS).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 | 1, "block {lba}"));
}

/// Redundancy columns are computed from verified data only, and two members are rebuilt at once.
#[test]
fn two_members_are_rebuilt_together() {
    for liar in [None, Some(2)] {
        let (mut machine, volume) = returned(0, 64 << 10);
        machine.held = Some(Vec::new());
        machine.memory.present[4] = false;
        let mut machine = machine.crash();
        (0..50).for_each(|lba| machine.write(volume, lba, 99));
        machine.command(Control::Shutdown { export: false });
        machine.memory.present[4] = true;
        let mut machine = machine.crash();
        if let Some(liar) = liar {
            // Beyond the redundancy where both are stale: no unverified data is written.
            machine.garble(liar);
        }
        (0..40).for_each(|_| tick(&mut machine, 50));
        let status = machine.engine.status();
        if liar.is_some() {
            assert!(status.rebuild.damaged_batches > 0 && status.state == "degraded");
            continue;
        }
        assert_eq!(status.state, "online");
        machine.command(Control::Shutdown { export: false });
        (machine.memory.present[0], machine.memory.present[2]) = (false, false);
        let mut machine = machine.crash();
        (0..BLOCKS).for_each(|lba| {
            assert_eq!(
                machine.byte(volume, lba),
                if lba < 50 { 99 } else { lba as u8 | 1 },
                "block {lba}"
            )
        });
    }
}

/// A member that flushes serves no read: clients noticed a rebuild by its flush for each sixteen
/// segments.
#[test]
fn a_rebuild_flushes_seldom_with_foreground_io_and_every_flush_counts_for_it() {
    let (mut machine, volume) = returned_to(
        Machine::with_rows_only(Redundancy::Double, 5, 32, 8, 8),
        0,
        1 << 30,
    );
    let before = machine.memory.flushed[0];
    let written = |machine: &Machine| machine.engine.status().rebuild.written_bytes;
    let mut ms = 0;
    while written(&machine) < 60 * 8 * 4096 {
        machine.byte(volume, ms % BLOCKS);
        tick(&mut machine, 1);
        ms += 1;
        assert!(ms < 5_000, "it starved: {}", machine.engine.describe());
    }
    assert!(
        machine.memory.flushed[0] - before <= 1,
        "{} flushes for 60 segments",
        machine.memory.flushed[0] - before
    );
    assert!(
        machine.engine.status().rebuild.segments_done < 16,
        "nothing is whole before a flush"
    );
    // A user flush serves the rebuild, too.
    let done = written(&machine) / (8 * 4096);
    machine.write(volume, 0, 1);
    machine.flush(volume);
    tick(&mut machine, 1);
    assert!(
        u64::from(machine.engine.status().rebuild.segments_done) >= done - 2,
        "{} of {done}",
        machine.engine.status().rebuild.segments_done
    );
    rebuild_beside_users(&mut machine, volume);
    machine.command(Control::Shutdown { export: false });
    (machine.memory.present[0], machine.memory.present[2]) = (false, false);
    let mut machine = machine.crash();
    (0..BLOCKS).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 | 1, "block {lba}"));
}

/// Bytes of the largest read and the largest write of a rebuild, with a client that reads a block
/// each millisecond, or none.
fn largest_commands(beside_users: bool) -> (usize, usize) {
    let (mut machine, volume) = returned_to(
        Machine::with_rows_only(Redundancy::Double, 5, 32, 64, 128),
        0,
        64 << 10,
    );
    let (mut read, mut written) = (0, 0);
    while machine.engine.status().members[1].state == "rebuilding" {
        if beside_users {
            // A hole: no member is asked for it.
            machine.request(
                volume,
                Op::Read {
                    offset: BLOCKS * 4096,
                    length: 4096,
                },
            );
        }
        machine.held = Some(Vec::new());
        tick(&mut machine, 1);
        while let Some(held) = machine
            .held
            .replace(Vec::new())
            .filter(|held| !held.is_empty())
        {
            let mut busy = BTreeSet::new();
            for command in held {
                match &command.op {
                    MemberOp::Read { buf, .. } => {
                        assert!(
                            busy.insert(command.member) || !beside_users,
                            "two pieces of a batch at a member"
                        );
                        read = read.max(buf.len());
                    }
                    MemberOp::Write { buf, .. } => written = written.max(buf.len()),
                    _ => {}
                }
                machine.carry_out(command);
            }
            machine.settle();
        }
    }
    machine.held = None;
    machine.command(Control::Shutdown { export: false });
    (machine.memory.present[0], machine.memory.present[2]) = (false, false);
    let mut machine = machine.crash();
    (0..BLOCKS).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 | 1, "block {lba}"));
    (read, written)
}

/// A whole column in flight delayed user reads longer than anything else (docs/lab/benchmarks.md).
#[test]
fn with_foreground_io_columns_go_in_pieces() {
    assert_eq!(largest_commands(false), (256 << 10, 256 << 10));
    assert_eq!(largest_commands(true), (64 << 10, 64 << 10));
}

/// The rows of an unreadable piece are read one by one, and the pieces after it as usual.
#[test]
fn bad_sectors_in_pieces_are_read_around() {
    let (mut machine, volume) = returned_to(
        Machine::with_rows_only(Redundancy::Double, 5, 32, 64, 128),
        0,
        1 << 20,
    );
    let start = machine.engine.status().plan.zones[0].start as usize;
    machine.memory.bad = (0..24)
        .map(|at| (at % 2 * 2, start + (5 + at * 37) * 4096))
        .collect();
    rebuild_beside_users(&mut machine, volume);
    assert_eq!(machine.engine.status().rebuild.damaged_batches, 0);
    machine.command(Control::Shutdown { export: false });
    (machine.memory.present[0], machine.memory.present[2]) = (false, false);
    let mut machine = machine.crash();
    (0..BLOCKS).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 | 1, "block {lba}"));
}
