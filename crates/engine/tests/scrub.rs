//! Scrub: what is wrong on a member is found, and what lives in its rows is logged anew.

mod machine;

use machine::Machine;
use windrow_engine::*;
use windrow_units::{Redundancy, VolumeId};

const CODES: [(Redundancy, usize); 5] =
    [(Redundancy::Copies(2), 2), (Redundancy::Copies(3), 3), (Redundancy::Single, 4), (Redundancy::Double, 5), (Redundancy::Double, 8)];
const BLOCKS: u64 = 150;

fn begin(machine: &mut Machine, bytes_per_second: u64) {
    assert_eq!(machine.command(Control::Scrub(ScrubCommand::Start { unix_s: 5, bytes_per_second })), Some(Ok(ControlReply::Done)));
}

/// Lets some time pass.
fn pass(machine: &mut Machine, times: usize) {
    for _ in 0..times {
        machine.now_ns += 30_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.settle();
    }
}

/// A whole scrub, until what it moved is in its new place.
fn scrub(machine: &mut Machine) -> ScrubStatus {
    begin(machine, 0);
    pass(machine, 200);
    let scrub = machine.engine.status().scrub;
    assert_eq!((scrub.state, scrub.segments_done), (ScrubState::Completed, scrub.segments_total));
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
    (0..BLOCKS).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 | 1, "{what}: block {lba}"));
}

#[test]
fn a_healthy_pool_has_nothing_wrong_and_nothing_moves() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        let found = scrub(&mut machine);
        assert!(found.batches > 0 && found.read_bytes > 0);
        assert_eq!((found.wrong_blocks, found.moved_blocks, found.lost_blocks, found.damaged_batches), (0, 0, 0, 0));
        verify(&mut machine, volume, "after the scrub");
    }
}

/// The proof of a repair: afterwards other members may be wrong, as many as the redundancy covers.
#[test]
fn after_a_scrub_the_redundancy_is_whole_again() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        let tolerance = redundancy.tolerance();
        (0..tolerance).for_each(|member| machine.garble(member));
        let found = scrub(&mut machine);
        assert!(found.wrong_blocks >= BLOCKS / (members as u64), "{redundancy:?}: {found:?}");
        assert_eq!((found.moved_blocks, found.lost_blocks, found.damaged_batches), (BLOCKS, 0, 0), "{redundancy:?}");
        let again = scrub(&mut machine);
        assert_eq!((again.wrong_blocks, again.moved_blocks), (0, 0), "{redundancy:?}: what was found wrong is out of use");
        machine.flush(volume);
        (members - tolerance..members).for_each(|member| machine.garble(member));
        verify(&mut machine, volume, redundancy.name());
        let mut machine = machine.crash();
        verify(&mut machine, volume, "after a crash");
    }
}

/// A pass ended when its repairs had been handed to the log: a scrub that followed at once found the old places again, and after a power cut they were
/// all there was.
#[test]
fn a_pass_ends_when_all_that_it_moved_is_durable_in_its_new_place() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        assert_eq!(machine.command(Control::Checkpoint), Some(Ok(ControlReply::Done)));
        let tolerance = redundancy.tolerance();
        (0..tolerance).for_each(|member| machine.garble(member));
        begin(&mut machine, 0);
        // Step by step, so that nothing that comes after its end helps.
        while machine.engine.status().scrub.state == ScrubState::Running {
            machine.now_ns += 1_000_000;
            machine.events.push(Event::Tick(machine.now_ns));
            machine.engine.apply(&mut machine.events, &mut machine.out);
            std::mem::take(&mut machine.out.commands).into_iter().for_each(|command| machine.carry_out(command));
            for mut job in std::mem::take(&mut machine.out.jobs) {
                job.run();
                machine.events.push(Event::Job(job));
            }
        }
        let found = machine.engine.status().scrub;
        assert_eq!((found.moved_blocks, found.unmoved_blocks, found.lost_blocks, found.damaged_batches), (BLOCKS, 0, 0, 0), "{redundancy:?}");
        let mut after_a_cut = Machine::open(machine.memory.clone());
        (members - tolerance..members).for_each(|member| after_a_cut.garble(member));
        verify(&mut after_a_cut, volume, redundancy.name());
        let again = scrub(&mut machine);
        assert_eq!((again.wrong_blocks, again.moved_blocks), (0, 0), "{redundancy:?}");
    }
}

/// A member that lost all its writes since some time has older batches, valid in themselves. With two members each column is a whole batch.
#[test]
fn lost_writes_are_found_although_the_old_batches_verify() {
    for (redundancy, members) in CODES {
        for liar in [0, members - 1] {
            let (mut machine, volume) = fill(redundancy, members);
            let old = machine.memory.data[liar].clone();
            // Until the segments of the first round are used again.
            for round in 0..40u64 {
                (0..BLOCKS).for_each(|lba| machine.write(volume, lba, (lba + round) as u8));
                machine.flush(volume);
            }
            (0..BLOCKS).for_each(|lba| machine.write(volume, lba, lba as u8 | 1));
            machine.flush(volume);
            let data_starts = machine.engine.status().plan.zones[0].start as usize;
            machine.memory.data[liar][data_starts..].copy_from_slice(&old[data_starts..]);
            let found = scrub(&mut machine);
            assert!(found.wrong_blocks > 0 && found.lost_blocks == 0 && found.damaged_batches == 0, "{redundancy:?}: {found:?}");
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
            (0..members.min(3)).for_each(|member| machine.memory.data[member][at..at + 4096].fill(member as u8 + 3));
        }
        let found = scrub(&mut machine);
        assert_eq!(found.lost.len() as u64, found.lost_blocks);
        let mut unreadable = 0;
        for lba in 0..BLOCKS {
            machine.completions.clear();
            machine.request(volume, windrow_io::Op::Read { offset: lba * 4096, length: 4096 });
            machine.settle();
            let failed = machine.completions.pop().expect("answered").result.is_err();
            let listed = found.lost.contains(&VolumeBlock { volume, lba });
            assert!(failed == listed || found.damaged_batches > 0, "{redundancy:?}: block {lba} failed: {failed}, listed: {listed}");
            unreadable += u64::from(failed);
        }
        assert!(unreadable > 0, "{redundancy:?}");
    }
}

#[test]
fn it_stands_still_when_paused_goes_on_when_resumed_and_survives_a_restart() {
    let (mut machine, volume) = fill(Redundancy::Double, 5);
    for round in 0..10u64 {
        (BLOCKS..BLOCKS * 20).for_each(|lba| machine.write(volume, lba, (lba + round) as u8));
    }
    machine.flush(volume);
    let refused = |machine: &mut Machine, command| matches!(machine.command(Control::Scrub(command)), Some(Err(ControlError::Invalid(_))));
    for command in [ScrubCommand::Pause, ScrubCommand::Resume, ScrubCommand::Stop] {
        assert!(refused(&mut machine, command), "{command:?} without a scrub");
    }
    let rate = 4 << 20;
    begin(&mut machine, rate);
    let began = machine.now_ns;
    assert!(refused(&mut machine, ScrubCommand::Start { unix_s: 6, bytes_per_second: 0 }), "there is one");
    pass(&mut machine, 30);
    let status = machine.engine.status().scrub;
    let allowed = rate * (machine.now_ns - began) / 1_000_000_000 + (8 << 20);
    assert!(status.state == ScrubState::Running && status.read_bytes > 0 && status.read_bytes <= allowed, "{status:?}");
    assert_eq!(machine.command(Control::Scrub(ScrubCommand::Pause)), Some(Ok(ControlReply::Done)));
    let paused = machine.engine.status().scrub;
    pass(&mut machine, 30);
    let later = machine.engine.status().scrub;
    assert_eq!((later.batches, later.active_ms), (paused.batches, paused.active_ms), "nothing is read while it is paused");
    assert_eq!(machine.command(Control::Shutdown { export: false }), Some(Ok(ControlReply::Done)));
    let mut machine = machine.crash();
    let restored = machine.engine.status().scrub;
    assert_eq!((restored.state, restored.started_unix_s, restored.batches), (ScrubState::Paused, 5, paused.batches));
    assert_eq!(machine.command(Control::Scrub(ScrubCommand::Resume)), Some(Ok(ControlReply::Done)));
    pass(&mut machine, 5);
    assert_eq!(machine.command(Control::Shutdown { export: false }), Some(Ok(ControlReply::Done)));
    // One that was running goes on by itself.
    let mut machine = machine.crash();
    machine.out.notices.clear();
    pass(&mut machine, 1000);
    let ended = machine.engine.status().scrub;
    assert_eq!((ended.state, ended.wrong_blocks), (ScrubState::Completed, 0));
    assert!(machine.out.notices.contains(&Notice::ScrubEnded { wrong_blocks: 0, lost_blocks: 0, damaged_batches: 0 }));
}

/// A member's column counted as missing as a whole when one of its sectors could not be read.
#[test]
fn bad_sectors_of_several_members_in_different_rows_do_not_add_up() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        let start = machine.engine.status().plan.zones[0].start as usize;
        for row in 0..40 {
            machine.memory.bad.push((row % members, start + row * 4096));
        }
        let found = scrub(&mut machine);
        assert!(found.wrong_blocks > 0 && found.moved_blocks > 0, "{redundancy:?}: {found:?}");
        assert_eq!((found.lost_blocks, found.damaged_batches), (0, 0), "{redundancy:?}");
        assert_eq!(scrub(&mut machine).wrong_blocks, 0, "{redundancy:?}");
        verify(&mut machine, volume, redundancy.name());
    }
}

/// The repairs of a scrub filled what was free; what they had emptied waited for a checkpoint that nobody asked for.
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
    assert_eq!((found.state, found.lost_blocks, found.moved_blocks), (ScrubState::Completed, 0, blocks), "{}", machine.engine.describe());
    (0..blocks).step_by(7).for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 | 1, "block {lba}"));
}

/// A batch nobody can read counted as damage although all its blocks had been written anew elsewhere: each scrub ended with an alarm.
#[test]
fn batches_that_can_not_be_had_count_only_if_anything_in_them_lives() {
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
    let mut of_users = headers.iter().filter(|(_, _, header)| header.stream.0 == 0).skip(1);
    let (dead, live) = (of_users.nth(3).expect("a batch"), of_users.next().expect("a batch"));
    machine.memory.overwrite(dead.0, dead.1..dead.1 + dead.2.rows, 0xee);
    let found = scrub(&mut machine);
    assert_eq!((found.damaged_batches, found.lost_blocks), (0, 0), "block 3 is elsewhere by now");
    machine.memory.overwrite(live.0, live.1..live.1 + live.2.rows, 0xee);
    let found = scrub(&mut machine);
    assert_eq!((found.damaged_batches, found.lost), (1, vec![VolumeBlock { volume, lba: 4 }]), "block 4 is not");
}

/// Batches that had lost their tables were counted and not named, and what could still be read in them stayed where no table told of it.
#[test]
fn what_lives_in_batches_without_tables_is_moved_or_named() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        let headers = machine.memory.headers();
        let batches: Vec<_> = headers.iter().filter(|(_, _, header)| header.stream.0 == 0 && header.rows > 2).collect();
        // All that lies beside the header goes with it; the rest of these batches is as it was.
        batches.iter().for_each(|(segment, row, _)| machine.memory.overwrite(*segment, *row..*row + 1, 0xee));
        assert!(batches.len() > 1, "{redundancy:?}: {} batches", batches.len());
        let found = scrub(&mut machine);
        assert_eq!(found.damaged_batches, batches.len() as u64, "{redundancy:?}: {found:?}");
        for lba in 0..BLOCKS {
            machine.completions.clear();
            machine.request(volume, windrow_io::Op::Read { offset: lba * 4096, length: 4096 });
            machine.settle();
            let failed = machine.completions.pop().expect("answered").result.is_err();
            assert_eq!(failed, found.lost.contains(&VolumeBlock { volume, lba }), "{redundancy:?}: block {lba}");
        }
        assert!(found.moved_blocks > 0 && found.moved_blocks + found.lost_blocks <= BLOCKS, "{redundancy:?}: {found:?}");
        let lost = found.lost.clone();
        for block in &lost {
            machine.write(volume, block.lba, block.lba as u8 | 1);
        }
        machine.flush(volume);
        let again = scrub(&mut machine);
        assert_eq!((again.damaged_batches, again.lost_blocks, again.wrong_blocks), (0, 0, 0), "{redundancy:?}: {again:?}");
        verify(&mut machine, volume, redundancy.name());
    }
}

/// Pages of the checkpoint in a batch that nobody could read were counted, at each scrub, and not written anew although they are in memory.
#[test]
fn pages_in_batches_without_tables_are_written_elsewhere() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = fill(redundancy, members);
        assert_eq!(machine.command(Control::Checkpoint), Some(Ok(ControlReply::Done)));
        let mut headers = machine.memory.headers();
        headers.retain(|(_, _, header)| header.stream.0 == 3);
        for (segment, row, header) in &headers {
            machine.memory.overwrite(*segment, *row..*row + header.rows, 0xee);
        }
        let found = scrub(&mut machine);
        assert!(found.damaged_batches > 0 && found.lost_blocks == 0, "{redundancy:?}: {found:?}");
        let mut machine = machine.crash();
        verify(&mut machine, volume, redundancy.name());
        let again = scrub(&mut machine);
        assert_eq!((again.damaged_batches, again.wrong_blocks), (0, 0), "{redundancy:?}: {again:?}");
    }
}

#[test]
fn the_end_is_remembered_if_somebody_told_the_time() {
    let (mut machine, volume) = fill(Redundancy::Single, 4);
    machine.command(Control::WallClock { unix_s: 1000 });
    begin(&mut machine, 64 << 10);
    pass(&mut machine, 100);
    machine.command(Control::Scrub(ScrubCommand::Pause));
    let paused = machine.engine.status().scrub;
    assert_eq!((paused.state, paused.ended_unix_s, paused.completed_unix_s), (ScrubState::Paused, 0, 0));
    machine.command(Control::Shutdown { export: false });
    let mut machine = machine.crash();
    machine.command(Control::WallClock { unix_s: 5000 });
    machine.command(Control::Scrub(ScrubCommand::Resume));
    pass(&mut machine, 4000);
    let ended = machine.engine.status().scrub;
    assert_eq!((ended.state, ended.completed_unix_s), (ScrubState::Completed, ended.ended_unix_s));
    assert!((5001..5120).contains(&ended.ended_unix_s), "{ended:?}");
    // The next one is stopped: the last that reached its end stays known.
    begin(&mut machine, 64 << 10);
    machine.command(Control::WallClock { unix_s: 9000 });
    machine.command(Control::Scrub(ScrubCommand::Stop));
    machine.command(Control::Shutdown { export: false });
    let mut machine = machine.crash();
    let stopped = machine.engine.status().scrub;
    assert_eq!((stopped.state, stopped.ended_unix_s, stopped.completed_unix_s), (ScrubState::Stopped, 9000, ended.ended_unix_s));
    verify(&mut machine, volume, "after two restarts");
}

/// What was read twice because a sector was bad came on top of the rate.
#[test]
fn rows_that_are_read_again_count_for_the_rate() {
    let (mut machine, _) = fill(Redundancy::Double, 5);
    let clean = scrub(&mut machine).read_bytes;
    let start = machine.engine.status().plan.zones[0].start as usize;
    (2..40).step_by(3).for_each(|row| machine.memory.bad.push((1, start + row * 4096)));
    assert!(scrub(&mut machine).read_bytes > clean);
}
