//! Scrub: wrong data on a member is found, and the live data in its rows is rewritten.

use crate::machine;

use machine::Machine;
use windrow_engine::*;
use windrow_geometry::Redundancy;
use windrow_io::{MemberCommand, MemberOp, Op, Payload};
use windrow_types::{SegmentId, VolumeId};

const CODES: [(Redundancy, usize); 5] = [
    (Redundancy::Copies(2), 2),
    (Redundancy::Copies(3), 3),
    (Redundancy::Single, 4),
    (Redundancy::Double, 5),
    (Redundancy::Double, 8),
];
const BLOCKS: u64 = 150;

fn begin(machine: &mut Machine, bytes_per_second: u64) {
    assert_eq!(
        machine.command(Control::Scrub(ScrubCommand::Start {
            unix_s: 5,
            bytes_per_second
        })),
        Some(Ok(ControlReply::Done))
    );
}

/// Lets some time pass.
fn pass(machine: &mut Machine, times: usize) {
    for _ in 0..times {
        machine.now_ns += 30_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.settle();
    }
}

/// A whole scrub, until the blocks that it moved are at their new addresses.
fn scrub(machine: &mut Machine) -> ScrubStatus {
    begin(machine, 0);
    pass(machine, 200);
    let scrub = machine.engine.status().scrub;
    assert_eq!(
        (scrub.state, scrub.segments_done),
        (ScrubState::Completed, scrub.segments_total)
    );
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
    scrub
}

fn fill(redundancy: Redundancy, members: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    for lba in 0..BLOCKS {
        machine.write(volume, lba, lba as u8 | 1);
    }
    machine.flush(volume);
    (machine, volume)
}

fn verify(machine: &mut Machine, volume: VolumeId, what: &str) {
    (0..BLOCKS).for_each(|lba| {
        assert_eq!(
            machine.byte(volume, lba),
            lba as u8 | 1,
            "{what}: block {lba}"
        )
    });
}

#[test]
fn a_healthy_pool_has_nothing_wrong_and_nothing_moves() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        let found = scrub(&mut machine);
        assert!(found.batches > 0 && found.read_bytes > 0);
        assert_eq!(
            (
                found.wrong_blocks,
                found.moved_blocks,
                found.lost_blocks,
                found.damaged_batches
            ),
            (0, 0, 0, 0)
        );
        verify(&mut machine, volume, "after the scrub");
    }
}

/// Proof of a repair: afterwards the maximum number of other members that the redundancy covers may
/// be wrong.
#[test]
fn after_a_scrub_the_redundancy_is_restored() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        let tolerance = redundancy.tolerance();
        (0..tolerance).for_each(|member| machine.garble(member));
        let found = scrub(&mut machine);
        assert!(
            found.wrong_blocks >= BLOCKS / (members as u64),
            "{redundancy:?}: {found:?}"
        );
        assert_eq!(
            (found.moved_blocks, found.lost_blocks, found.damaged_batches),
            (BLOCKS, 0, 0),
            "{redundancy:?}"
        );
        let again = scrub(&mut machine);
        assert_eq!(
            (again.wrong_blocks, again.moved_blocks),
            (0, 0),
            "{redundancy:?}: what was found wrong is out of use"
        );
        machine.flush(volume);
        (members - tolerance..members).for_each(|member| machine.garble(member));
        verify(&mut machine, volume, redundancy.name());
        let mut machine = machine.crash();
        verify(&mut machine, volume, "after a crash");
    }
}

/// A pass ended when its repairs had been handed to the log. A scrub that followed at once found
/// the old addresses again, and after a power loss only those were left.
#[test]
fn a_pass_ends_when_all_moved_blocks_are_durable_at_their_new_address() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
        let tolerance = redundancy.tolerance();
        (0..tolerance).for_each(|member| machine.garble(member));
        begin(&mut machine, 0);
        // Step by step, so that nothing after its end helps.
        while machine.engine.status().scrub.state == ScrubState::Running {
            machine.now_ns += 1_000_000;
            machine.events.push(Event::Tick(machine.now_ns));
            machine.engine.apply(&mut machine.events, &mut machine.out);
            std::mem::take(&mut machine.out.commands)
                .into_iter()
                .for_each(|command| machine.carry_out(command));
            for mut job in std::mem::take(&mut machine.out.jobs) {
                job.run();
                machine.events.push(Event::Job(job));
            }
        }
        let found = machine.engine.status().scrub;
        assert_eq!(
            (
                found.moved_blocks,
                found.unmoved_blocks,
                found.lost_blocks,
                found.damaged_batches
            ),
            (BLOCKS, 0, 0, 0),
            "{redundancy:?}"
        );
        let mut after_a_cut = Machine::open(machine.memory.clone());
        (members - tolerance..members).for_each(|member| after_a_cut.garble(member));
        verify(&mut after_a_cut, volume, redundancy.name());
        let again = scrub(&mut machine);
        assert_eq!(
            (again.wrong_blocks, again.moved_blocks),
            (0, 0),
            "{redundancy:?}"
        );
    }
}

/// A member that has lost all its writes since some time has older batches, valid in themselves.
/// With two members each column is a whole batch.
#[test]
fn lost_writes_are_found_although_the_old_batches_verify() {
    for (redundancy, members) in CODES {
        for liar in [0, members - 1] {
            let (mut machine, volume) = fill(redundancy, members);
            let old = machine.memory.data[liar].clone();
            // Until the segments of the first round are reused.
            for round in 0..40u64 {
                (0..BLOCKS).for_each(|lba| machine.write(volume, lba, (lba + round) as u8));
                machine.flush(volume);
            }
            (0..BLOCKS).for_each(|lba| machine.write(volume, lba, lba as u8 | 1));
            machine.flush(volume);
            let data_starts = machine.engine.status().plan.zones[0].start as usize;
            machine.memory.data[liar][data_starts..].copy_from_slice(&old[data_starts..]);
            let found = scrub(&mut machine);
            assert!(
                found.wrong_blocks > 0 && found.lost_blocks == 0 && found.damaged_batches == 0,
                "{redundancy:?}: {found:?}"
            );
            verify(&mut machine, volume, redundancy.name());
            assert_eq!(scrub(&mut machine).wrong_blocks, 0);
        }
    }
}

#[test]
fn what_cannot_be_repaired_is_listed_or_counted_and_nothing_is_made_up() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        // Every fifth row of three columns: more than any of these covers.
        let start = machine.engine.status().plan.zones[0].start as usize;
        for at in (2..60).step_by(5).map(|row| start + row * 4096) {
            (0..members.min(3)).for_each(|member| {
                machine.memory.data[member][at..at + 4096].fill(member as u8 + 3)
            });
        }
        let found = scrub(&mut machine);
        assert_eq!(found.lost.len() as u64, found.lost_blocks);
        let mut unreadable = 0;
        for lba in 0..BLOCKS {
            machine.completions.clear();
            machine.request(
                volume,
                windrow_io::Op::Read {
                    offset: lba * 4096,
                    length: 4096,
                },
            );
            machine.settle();
            let failed = machine.completions.pop().expect("answered").result.is_err();
            let listed = found.lost.contains(&VolumeBlock { volume, lba });
            assert!(
                failed == listed || found.damaged_batches > 0,
                "{redundancy:?}: block {lba} failed: {failed}, listed: {listed}"
            );
            unreadable += u64::from(failed);
        }
        assert!(unreadable > 0, "{redundancy:?}");
    }
}

/// Two dead blocks of a row are wrong, more than its redundancy covers. If only these count as
/// wrong, live blocks in the row stay there without any redundancy, and the pass ends with three
/// zeroes.
#[test]
fn live_blocks_next_to_lost_dead_blocks_are_moved() {
    for (redundancy, members, lost) in [
        (Redundancy::Single, 4, 2),
        (Redundancy::Double, 5, 3),
        (Redundancy::Single, 4, 1),
    ] {
        let mut machine = Machine::with_rows_only(redundancy, members, 24, 8, 128);
        let volume = machine.volume(1 << 30);
        let spots = |machine: &Machine| {
            // The blocks of the row that holds this byte everywhere.
            let holds = |member: usize, at: usize| {
                machine.memory.data[member][at..at + 4096]
                    .iter()
                    .all(|byte| *byte == 7)
            };
            let start = machine.engine.status().plan.zones[0].start as usize;
            let row = (0..128)
                .find(|row| (0..members).any(|member| holds(member, start + row * 4096)))
                .expect("it was written");
            (0..members)
                .map(|member| (member, start + row * 4096))
                .collect::<Vec<_>>()
        };
        // One batch, and nothing else is live any more in the row of block 0 (with 4 and 8).
        (0..9).for_each(|lba| {
            machine.request(
                volume,
                Op::Write {
                    offset: lba * 4096,
                    data: Payload::copy_of(&[if lba == 0 { 7 } else { 40 + lba as u8 }; 4096]),
                    fua: false,
                },
            )
        });
        machine.flush(volume);
        (0..9)
            .filter(|lba| *lba != 0)
            .for_each(|lba| machine.write(volume, lba, 9));
        machine.flush(volume);
        let row = spots(&machine);
        let incarnations =
            |machine: &Machine, (member, at): (usize, usize)| machine.memory.data[member][at] == 7;
        let others: Vec<_> = row
            .into_iter()
            .filter(|spot| !incarnations(&machine, *spot))
            .collect();
        others.iter().take(lost).for_each(|(member, at)| {
            machine.memory.data[*member][*at..*at + 4096].fill(0xe0 + *member as u8)
        });
        let found = scrub(&mut machine);
        assert!(
            found.wrong_blocks > 0 && found.moved_blocks > 0,
            "{redundancy:?} {lost}: {found:?}"
        );
        assert_eq!(
            (found.lost_blocks, found.damaged_batches),
            (0, 0),
            "{redundancy:?} {lost}"
        );
        let again = scrub(&mut machine);
        assert_eq!(
            (again.wrong_blocks, again.moved_blocks, again.lost_blocks),
            (0, 0, 0),
            "{redundancy:?} {lost}"
        );
        for away in 0..members {
            let mut without = Machine::open(machine.memory.clone());
            without.garble(away);
            assert_eq!(
                without.byte(volume, 0),
                7,
                "{redundancy:?} {lost} without {away}"
            );
        }
    }
}

#[test]
fn it_stops_when_paused_continues_when_resumed_and_survives_a_restart() {
    let (mut machine, volume) = fill(Redundancy::Double, 5);
    for round in 0..10u64 {
        (BLOCKS..BLOCKS * 20).for_each(|lba| machine.write(volume, lba, (lba + round) as u8));
    }
    machine.flush(volume);
    let refused = |machine: &mut Machine, command| {
        matches!(
            machine.command(Control::Scrub(command)),
            Some(Err(ControlError::Invalid(_)))
        )
    };
    for command in [
        ScrubCommand::Pause,
        ScrubCommand::Resume,
        ScrubCommand::Stop,
    ] {
        assert!(
            refused(&mut machine, command),
            "{command:?} without a scrub"
        );
    }
    let rate = 4 << 20;
    begin(&mut machine, rate);
    let began = machine.now_ns;
    assert!(
        refused(
            &mut machine,
            ScrubCommand::Start {
                unix_s: 6,
                bytes_per_second: 0
            }
        ),
        "there is one"
    );
    pass(&mut machine, 30);
    let status = machine.engine.status().scrub;
    let allowed = rate * (machine.now_ns - began) / 1_000_000_000 + (8 << 20);
    assert!(
        status.state == ScrubState::Running
            && status.read_bytes > 0
            && status.read_bytes <= allowed,
        "{status:?}"
    );
    assert_eq!(
        machine.command(Control::Scrub(ScrubCommand::Pause)),
        Some(Ok(ControlReply::Done))
    );
    let paused = machine.engine.status().scrub;
    pass(&mut machine, 30);
    let later = machine.engine.status().scrub;
    assert_eq!(
        (later.batches, later.active_ms),
        (paused.batches, paused.active_ms),
        "nothing is read while it is paused"
    );
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut machine = machine.crash();
    let restored = machine.engine.status().scrub;
    assert_eq!(
        (restored.state, restored.started_unix_s, restored.batches),
        (ScrubState::Paused, 5, paused.batches)
    );
    assert_eq!(
        machine.command(Control::Scrub(ScrubCommand::Resume)),
        Some(Ok(ControlReply::Done))
    );
    pass(&mut machine, 5);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    // A running scrub resumes without a command.
    let mut machine = machine.crash();
    machine.out.notices.clear();
    pass(&mut machine, 1000);
    let ended = machine.engine.status().scrub;
    assert_eq!(
        (ended.state, ended.wrong_blocks),
        (ScrubState::Completed, 0)
    );
    assert!(machine.out.notices.contains(&Notice::ScrubEnded {
        wrong_blocks: 0,
        lost_blocks: 0,
        damaged_batches: 0,
        unmoved_blocks: 0
    }));
}

/// A member's column counted as missing completely when one of its sectors was unreadable.
#[test]
fn bad_sectors_of_several_members_in_different_rows_do_not_add_up() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        let start = machine.engine.status().plan.zones[0].start as usize;
        for row in 0..40 {
            machine.memory.bad.push((row % members, start + row * 4096));
        }
        let found = scrub(&mut machine);
        assert!(
            found.wrong_blocks > 0 && found.moved_blocks > 0,
            "{redundancy:?}: {found:?}"
        );
        assert_eq!(
            (found.lost_blocks, found.damaged_batches),
            (0, 0),
            "{redundancy:?}"
        );
        assert_eq!(scrub(&mut machine).wrong_blocks, 0, "{redundancy:?}");
        verify(&mut machine, volume, redundancy.name());
    }
}

/// The repairs of a scrub filled the free space; the segments that they had emptied waited for a
/// checkpoint that was never requested.
#[test]
fn much_damage_in_an_idle_pool_is_repaired_to_the_end() {
    let mut machine = Machine::with(Redundancy::Single, 4, 32, 100);
    let blocks = machine.engine.status().plan.usable_bytes / 4096 * 9 / 10;
    let volume = machine.volume(blocks * 4096);
    for lba in 0..blocks {
        machine.write(volume, lba, lba as u8 | 1);
    }
    machine.flush(volume);
    machine.garble(2);
    begin(&mut machine, 0);
    for _ in 0..3000 {
        pass(&mut machine, 1);
        if machine.engine.status().scrub.state != ScrubState::Running {
            break;
        }
    }
    let found = machine.engine.status().scrub;
    assert_eq!(
        (found.state, found.lost_blocks, found.moved_blocks),
        (ScrubState::Completed, 0, blocks),
        "{}",
        machine.engine.describe()
    );
    (0..blocks)
        .step_by(7)
        .for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 | 1, "block {lba}"));
}

/// An unreadable batch counted as damage although all its blocks had been rewritten elsewhere: each
/// scrub ended with an alarm.
#[test]
fn unreadable_batches_count_only_with_live_data() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = machine.volume(1 << 30);
    // Each flush ends a batch, and all of them are in one segment.
    for lba in 0..8 {
        machine.write(volume, lba, lba as u8 | 1);
        machine.flush(volume);
    }
    machine.write(volume, 3, 77);
    machine.flush(volume);
    let headers = machine.memory.headers();
    let mut of_users = headers
        .iter()
        .filter(|(_, _, header)| header.stream.0 == 0)
        .skip(1);
    let (dead, live) = (
        of_users.nth(3).expect("a batch"),
        of_users.next().expect("a batch"),
    );
    machine
        .memory
        .overwrite(dead.0, dead.1..dead.1 + dead.2.rows, 0xee);
    let found = scrub(&mut machine);
    assert_eq!(
        (found.damaged_batches, found.lost_blocks),
        (0, 0),
        "block 3 is elsewhere by now"
    );
    machine
        .memory
        .overwrite(live.0, live.1..live.1 + live.2.rows, 0xee);
    let found = scrub(&mut machine);
    assert_eq!(
        (found.damaged_batches, found.lost),
        (1, vec![VolumeBlock { volume, lba: 4 }]),
        "block 4 is not"
    );
}

/// Batches that had lost their tables were counted but not listed, and their readable data stayed
/// in places that no table described.
#[test]
fn live_data_in_batches_without_tables_is_moved_or_reported() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        let headers = machine.memory.headers();
        let batches: Vec<_> = headers
            .iter()
            .filter(|(_, _, header)| header.stream.0 == 0 && header.rows > 2)
            .collect();
        // The rest of the header's row goes with it; the rest of these batches is intact.
        batches
            .iter()
            .for_each(|(segment, row, _)| machine.memory.overwrite(*segment, *row..*row + 1, 0xee));
        assert!(
            batches.len() > 1,
            "{redundancy:?}: {} batches",
            batches.len()
        );
        let found = scrub(&mut machine);
        assert_eq!(
            found.damaged_batches,
            batches.len() as u64,
            "{redundancy:?}: {found:?}"
        );
        for lba in 0..BLOCKS {
            machine.completions.clear();
            machine.request(
                volume,
                windrow_io::Op::Read {
                    offset: lba * 4096,
                    length: 4096,
                },
            );
            machine.settle();
            let failed = machine.completions.pop().expect("answered").result.is_err();
            assert_eq!(
                failed,
                found.lost.contains(&VolumeBlock { volume, lba }),
                "{redundancy:?}: block {lba}"
            );
        }
        assert!(
            found.moved_blocks > 0 && found.moved_blocks + found.lost_blocks <= BLOCKS,
            "{redundancy:?}: {found:?}"
        );
        let lost = found.lost.clone();
        for block in &lost {
            machine.write(volume, block.lba, block.lba as u8 | 1);
        }
        machine.flush(volume);
        let again = scrub(&mut machine);
        assert_eq!(
            (again.damaged_batches, again.lost_blocks, again.wrong_blocks),
            (0, 0, 0),
            "{redundancy:?}: {again:?}"
        );
        verify(&mut machine, volume, redundancy.name());
    }
}

/// Checkpoint pages in an unreadable batch were counted at each scrub, and not rewritten although
/// they are in memory.
#[test]
fn pages_in_batches_without_tables_are_written_elsewhere() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
        let mut headers = machine.memory.headers();
        headers.retain(|(_, _, header)| header.stream.0 == 3);
        for (segment, row, header) in &headers {
            machine
                .memory
                .overwrite(*segment, *row..*row + header.rows, 0xee);
        }
        let found = scrub(&mut machine);
        assert!(
            found.damaged_batches > 0 && found.lost_blocks == 0,
            "{redundancy:?}: {found:?}"
        );
        let mut machine = machine.crash();
        verify(&mut machine, volume, redundancy.name());
        let again = scrub(&mut machine);
        assert_eq!(
            (again.damaged_batches, again.wrong_blocks),
            (0, 0),
            "{redundancy:?}: {again:?}"
        );
    }
}

#[test]
fn the_end_time_is_remembered_if_the_time_is_known() {
    let (mut machine, volume) = fill(Redundancy::Single, 4);
    machine.command(Control::WallClock { unix_s: 1000 });
    begin(&mut machine, 64 << 10);
    pass(&mut machine, 100);
    machine.command(Control::Scrub(ScrubCommand::Pause));
    let paused = machine.engine.status().scrub;
    assert_eq!(
        (paused.state, paused.ended_unix_s, paused.completed_unix_s),
        (ScrubState::Paused, 0, 0)
    );
    machine.command(Control::Shutdown { export: false });
    let mut machine = machine.crash();
    machine.command(Control::WallClock { unix_s: 5000 });
    machine.command(Control::Scrub(ScrubCommand::Resume));
    pass(&mut machine, 4000);
    let ended = machine.engine.status().scrub;
    assert_eq!(
        (ended.state, ended.completed_unix_s),
        (ScrubState::Completed, ended.ended_unix_s)
    );
    assert!((5001..5120).contains(&ended.ended_unix_s), "{ended:?}");
    // The next one is stopped: the last completed one stays known.
    begin(&mut machine, 64 << 10);
    machine.command(Control::WallClock { unix_s: 9000 });
    machine.command(Control::Scrub(ScrubCommand::Stop));
    machine.command(Control::Shutdown { export: false });
    let mut machine = machine.crash();
    let stopped = machine.engine.status().scrub;
    assert_eq!(
        (
            stopped.state,
            stopped.ended_unix_s,
            stopped.completed_unix_s
        ),
        (ScrubState::Stopped, 9000, ended.ended_unix_s)
    );
    verify(&mut machine, volume, "after two restarts");
}

/// Data read twice because of a bad sector came on top of the rate.
#[test]
fn rows_that_are_read_again_count_for_the_rate() {
    let (mut machine, _) = fill(Redundancy::Double, 5);
    let clean = scrub(&mut machine).read_bytes;
    let start = machine.engine.status().plan.zones[0].start as usize;
    (2..40)
        .step_by(3)
        .for_each(|row| machine.memory.bad.push((1, start + row * 4096)));
    assert!(scrub(&mut machine).read_bytes > clean);
}

/// A batch: segment, first row, rows.
type Spot = (SegmentId, u32, u32);

/// Many small segments of many small batches, and the addresses of these: those of the first
/// segment of user data, and those of the next one.
fn small_segments() -> (Machine, VolumeId, Vec<Vec<Spot>>) {
    let mut machine = Machine::with_rows_only(Redundancy::Single, 4, 12, 8, 32);
    let volume = machine.volume(1 << 30);
    for lba in 0..BLOCKS {
        machine.write(volume, lba, lba as u8 | 1);
        machine.flush(volume);
    }
    // Foreground I/O is no longer active.
    pass(&mut machine, 400);
    let headers = machine.memory.headers();
    let of_users = headers
        .iter()
        .filter(|(_, _, header)| header.stream.0 == 0)
        .map(|(segment, row, header)| (*segment, *row, header.rows));
    let batches: Vec<_> = of_users.collect();
    (
        machine,
        volume,
        batches
            .chunk_by(|one, other| one.0 == other.0)
            .map(<[_]>::to_vec)
            .collect(),
    )
}

/// A scrub had paused in the middle of a segment, or with a batch whose tables were gone. It
/// compared its findings with another incarnation of the segment: an alarm for damage that did not
/// exist.
#[test]
fn a_segment_rewritten_meanwhile_is_not_in_doubt() {
    for doubted in [false, true] {
        let (mut machine, volume, segments) = small_segments();
        let (first, count) = (segments[0][0].0, segments[0].len() as u64);
        if doubted {
            machine
                .memory
                .overwrite(first, segments[0][2].1..segments[0][2].1 + 1, 0xee);
        }
        begin(&mut machine, 1 << 20);
        while machine.engine.status().scrub.batches < count / 2 + 2 {
            pass(&mut machine, 1);
        }
        assert_eq!(
            machine.command(Control::Scrub(ScrubCommand::Pause)),
            Some(Ok(ControlReply::Done))
        );
        assert_eq!(
            machine.engine.status().scrub.segments_done,
            first.0,
            "in the middle of it"
        );
        let seq = machine
            .memory
            .headers()
            .iter()
            .filter(|(segment, ..)| *segment == first)
            .map(|(_, _, header)| header.seq)
            .max();
        let full = |machine: &Machine| {
            let headers = machine.memory.headers();
            let of_first = headers
                .iter()
                .filter(|(segment, _, header)| *segment == first && Some(header.seq) > seq);
            of_first
                .map(|(_, row, header)| row + header.rows)
                .max()
                .unwrap_or(0)
                >= 30
        };
        for round in 0.. {
            (0..BLOCKS * 4).for_each(|lba| machine.write(volume, lba, lba as u8 | 1));
            machine.flush(volume);
            assert!(round < 400);
            let incarnations =
                machine.engine.status().scrub.segments_done == first.0 && full(&machine);
            if incarnations {
                break;
            }
        }
        assert_eq!(
            machine.command(Control::Scrub(ScrubCommand::Resume)),
            Some(Ok(ControlReply::Done))
        );
        while machine.engine.status().scrub.state == ScrubState::Running {
            pass(&mut machine, 1);
        }
        let found = machine.engine.status().scrub;
        assert_eq!(
            (
                found.state,
                found.damaged_batches,
                found.moved_blocks,
                found.wrong_blocks
            ),
            (ScrubState::Completed, 0, 0, 0),
            "{doubted}: {found:?}"
        );
        verify(&mut machine, volume, "after it");
    }
}

/// A segment with a doubtful batch became doubtful completely, too, if the last doubtful batch was
/// of another segment when its last batch had been read. So lost blocks counted twice.
#[test]
fn a_doubtful_batch_counts_once() {
    let (mut machine, _, segments) = small_segments();
    let (one, other) = (&segments[0], &segments[1]);
    for (segment, row, _) in [one[2], other[0]] {
        machine.memory.overwrite(segment, row..row + 1, 0xee);
    }
    // The last batch of the first segment takes longer than those of the other one.
    let (segment, row, rows) = one[one.len() - 1];
    let slow = machine.memory.blocks(segment, row..row + rows);
    machine.held = Some(Vec::new());
    begin(&mut machine, 0);
    let reads = machine.held.take().unwrap_or_default().into_iter();
    let is_slow = |read: &MemberCommand| matches!(&read.op, MemberOp::Read { offset, .. } if slow.contains(&(read.member.index(), *offset as usize)));
    let (late, soon): (Vec<_>, Vec<_>) = reads.partition(is_slow);
    assert!(!late.is_empty());
    for reads in [soon, late] {
        reads.into_iter().for_each(|read| machine.carry_out(read));
        machine.settle();
    }
    pass(&mut machine, 100);
    let found = machine.engine.status().scrub;
    assert_eq!(found.state, ScrubState::Completed);
    assert_eq!(found.damaged_batches, 2, "{found:?}");
}

/// Unreadable data was searched for by up to some hundred reads at once, regardless of the rate and
/// of foreground I/O.
#[test]
fn blocks_in_doubt_are_read_at_the_pace_of_the_scrub() {
    let mut machine = Machine::with_rows_only(Redundancy::Single, 4, 24, 32, 128);
    let volume = machine.volume(1 << 30);
    for lba in 0..BLOCKS {
        machine.write(volume, lba, lba as u8 | 1);
    }
    machine.flush(volume);
    let headers = machine.memory.headers();
    let batches: Vec<_> = headers
        .iter()
        .filter(|(_, _, header)| header.stream.0 == 0 && header.rows > 2)
        .collect();
    batches
        .iter()
        .for_each(|(segment, row, _)| machine.memory.overwrite(*segment, *row..*row + 1, 0xee));
    begin(&mut machine, 1 << 20);
    let (mut last, mut most, mut verified) = (machine.engine.status().scrub, 0, 0);
    for _ in 0..4000 {
        pass(&mut machine, 1);
        let now = machine.engine.status().scrub;
        if now.batches == last.batches {
            most = most.max(now.read_bytes - last.read_bytes);
            verified += now.read_bytes - last.read_bytes;
        }
        last = now;
    }
    assert_eq!(
        (last.state, last.damaged_batches),
        (ScrubState::Completed, batches.len() as u64),
        "{last:?}"
    );
    assert!(verified > BLOCKS * 4096 / 2, "they were read");
    assert!(most <= 64 << 10, "{most} bytes in 30 ms");
}

/// In an idle pool without a rate something was always in progress, and the position stayed where
/// the scrub began: a restart lost all of the work.
#[test]
fn the_position_advances_while_batches_are_in_progress() {
    let (mut machine, _, segments) = small_segments();
    assert!(segments.len() > 4);
    let last = segments[segments.len() - 2][0].0;
    let start = ControlRequest {
        id: ControlId(1),
        command: Control::Scrub(ScrubCommand::Start {
            unix_s: 5,
            bytes_per_second: 0,
        }),
    };
    let mut waiting = std::collections::VecDeque::from([Event::Control(start)]);
    // One event at a time.
    while machine.engine.status().scrub.segments_done < last.0 + 1 {
        machine.now_ns += 1_000_000;
        machine
            .events
            .push(waiting.pop_front().unwrap_or(Event::Tick(machine.now_ns)));
        machine.turn();
        waiting.extend(std::mem::take(&mut machine.events));
    }
    machine.events.extend(waiting);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let restored = machine.crash().engine.status().scrub;
    assert_eq!(restored.state, ScrubState::Running);
    assert!(
        restored.segments_done > segments[0][0].0.0 + 1,
        "{restored:?}"
    );
}
