//! Members that leave and return: how far they are trusted, what is rebuilt, and that they are
//! complete afterwards.

use crate::machine;

use machine::{Machine, pass, state, verify, write};
use windrow_engine::*;
use windrow_geometry::Redundancy;
use windrow_io::{MemberCommand, MemberDone, MemberError, MemberErrorKind, MemberOp, Op, Reply};
use windrow_types::{MemberId, SegmentId, VolumeId};

const CODES: [(Redundancy, usize); 4] = [
    (Redundancy::Copies(2), 2),
    (Redundancy::Single, 4),
    (Redundancy::Double, 5),
    (Redundancy::Copies(3), 3),
];
const BLOCKS: u64 = 400;

fn shut_down(mut machine: Machine) -> Machine {
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    machine
}

/// Starts with these members absent, by force if they are half of all.
fn without(mut machine: Machine, away: &[usize]) -> Machine {
    (0..machine.memory.present.len())
        .for_each(|member| machine.memory.present[member] = !away.contains(&member));
    let force = away.len() * 2 >= machine.memory.present.len();
    Machine::open_with(
        machine.memory,
        &OpenOptions {
            force,
            ..Machine::options()
        },
    )
}

/// Starts with all members, and waits for the rebuild.
fn with_all(machine: Machine) -> Machine {
    let mut machine = without(machine, &[]);
    pass(&mut machine, 50);
    machine
}

/// A pool with data of one round, over enough segments and checkpoints for "before" and "after" to
/// be distinct.
fn filled(redundancy: Redundancy, members: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..BLOCKS, 1);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    (shut_down(machine), volume)
}

#[test]
fn a_member_that_was_away_gets_what_it_missed_and_then_carries_the_pool() {
    for (redundancy, members) in CODES {
        let (machine, volume) = filled(redundancy, members);
        let mut machine = without(machine, &[0]);
        assert_eq!(
            (state(&machine, 0), machine.engine.status().state),
            ("missing", "degraded")
        );
        write(&mut machine, volume, 0..40, 2);
        let mut machine = with_all(shut_down(machine));
        let status = machine.engine.status();
        assert_eq!(
            (state(&machine, 0), status.state),
            ("online", "online"),
            "{redundancy:?}"
        );
        assert!(machine.out.notices.contains(&Notice::MemberRebuilt {
            member: MemberId(0)
        }));
        let written: u64 = status
            .member_stats
            .iter()
            .map(|member| member.written.rebuild)
            .sum();
        assert!(
            written > 0
                && written == status.rebuild.written_bytes
                && status.member_stats[0].written.rebuild == written
        );
        assert!(
            written < BLOCKS * 4096 / 2,
            "{redundancy:?}: only what changed is written, not {written} bytes"
        );
        write(&mut machine, volume, 100..120, 3);
        let others: Vec<usize> = (1..=redundancy.tolerance()).collect();
        let mut machine = without(shut_down(machine), &others);
        verify(&mut machine, volume, 0..40, 2);
        verify(&mut machine, volume, 40..100, 1);
        verify(&mut machine, volume, 100..120, 3);
        verify(&mut machine, volume, 120..BLOCKS, 1);
    }
}

/// An older image of the member, as from a backup: none of its content may be used.
#[test]
fn an_older_image_of_a_member_is_rebuilt_from_nothing() {
    for (redundancy, members) in CODES {
        let mut machine = Machine::with(redundancy, members, 24, 100);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..BLOCKS, 1);
        let machine = shut_down(machine);
        let old = machine.memory.data[0].clone();
        let mut machine = machine.crash();
        for round in 2..12 {
            write(&mut machine, volume, 0..BLOCKS, round);
        }
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
        let mut machine = without(shut_down(machine), &[0]);
        write(&mut machine, volume, 0..10, 11);
        let mut machine = shut_down(machine);
        machine.memory.data[0] = old;
        let machine = with_all(machine);
        assert_eq!(state(&machine, 0), "online");
        assert!(
            machine.engine.status().rebuild.written_bytes >= BLOCKS * 4096 / members as u64,
            "{redundancy:?}"
        );
        let others: Vec<usize> = (1..=redundancy.tolerance()).collect();
        let mut machine = without(shut_down(machine), &others);
        verify(&mut machine, volume, 0..BLOCKS, 11);
    }
}

/// Both halves of a mirror were used without the other, one of them by force: the one whose history
/// is not the pool's stays out.
#[test]
fn a_member_with_a_history_of_its_own_is_not_taken_back() {
    let (machine, volume) = filled(Redundancy::Copies(2), 2);
    let fork = machine.memory.clone();
    let mut here = without(machine, &[1]);
    for round in 2..5 {
        write(&mut here, volume, 0..50, round);
        here = shut_down(here).crash();
    }
    let mut there = {
        without(
            Machine {
                memory: fork,
                ..Machine::new(3, 24, 100)
            },
            &[0],
        )
    };
    for round in 7..9 {
        write(&mut there, volume, 0..50, round);
        there = shut_down(there).crash();
    }
    let mut here = shut_down(here);
    here.memory.data[1] = shut_down(there).memory.data[1].clone();
    let mut here = with_all(here);
    assert_eq!((state(&here, 0), state(&here, 1)), ("online", "missing"));
    verify(&mut here, volume, 0..50, 4);
}

#[test]
fn a_rebuild_that_is_cut_off_resumes_at_the_next_start() {
    for (redundancy, members) in CODES {
        let (machine, volume) = filled(redundancy, members);
        let mut machine = without(machine, &[0]);
        for round in 2..8 {
            write(&mut machine, volume, 0..BLOCKS, round);
        }
        let mut machine = without(shut_down(machine), &[]);
        assert_eq!(state(&machine, 0), "rebuilding");
        // Nothing is executed, and the power fails.
        machine.held = Some(Vec::new());
        pass(&mut machine, 3);
        let mut machine = without(machine, &[]);
        assert_eq!(state(&machine, 0), "rebuilding", "{redundancy:?}");
        write(&mut machine, volume, 0..20, 8);
        pass(&mut machine, 50);
        assert_eq!(state(&machine, 0), "online");
        let others: Vec<usize> = (1..=redundancy.tolerance()).collect();
        let mut machine = without(shut_down(machine), &others);
        verify(&mut machine, volume, 0..20, 8);
        verify(&mut machine, volume, 20..BLOCKS, 7);
    }
}

/// A member that fails during its rebuild is out again, and the pool continues as before.
#[test]
fn a_member_that_fails_in_its_rebuild_is_out_again() {
    let (machine, volume) = filled(Redundancy::Single, 4);
    let mut machine = without(machine, &[2]);
    write(&mut machine, volume, 0..BLOCKS, 2);
    let mut machine = shut_down(machine);
    machine.memory.present[2] = true;
    let mut machine = machine.crash();
    assert_eq!(state(&machine, 2), "rebuilding");
    machine.memory.failing[2] = true;
    pass(&mut machine, 20);
    assert_eq!(
        (state(&machine, 2), machine.engine.status().state),
        ("faulted", "degraded")
    );
    verify(&mut machine, volume, 0..BLOCKS, 2);
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
    let mut machine = shut_down(machine);
    machine.memory.failing[2] = false;
    let machine = with_all(machine);
    assert_eq!(state(&machine, 2), "online");
    let mut machine = without(shut_down(machine), &[0]);
    verify(&mut machine, volume, 0..BLOCKS, 2);
}

/// A file was cut short: the pool called it online, and its redundancy was silently gone.
#[test]
fn a_member_that_became_smaller_is_not_used() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        let whole = machine.memory.data[1].clone();
        machine.memory.data[1].truncate(2 << 20);
        let options = OpenOptions {
            force: members == 2,
            ..Machine::options()
        };
        let (_, report) = Engine::open(
            &mut machine.memory.clone(),
            windrow_io::BufPool::new(1 << 20),
            &options,
        )
        .expect("it starts");
        assert!(
            report
                .notes
                .iter()
                .any(|note| note.contains("member 1") && note.contains("2097152 bytes")),
            "{:?}",
            report.notes
        );
        let mut machine = Machine::open_with(machine.memory, &options);
        assert_eq!(
            (state(&machine, 1), machine.engine.status().state),
            ("missing", "degraded")
        );
        verify(&mut machine, volume, 0..BLOCKS, 1);
        write(&mut machine, volume, 0..20, 2);
        let mut machine = shut_down(machine);
        assert_eq!(
            machine.memory.data[1].len(),
            2 << 20,
            "nothing is written to it"
        );
        machine.memory.data[1] = whole;
        let mut machine = with_all(machine);
        assert_eq!(state(&machine, 1), "online", "{redundancy:?}");
        verify(&mut machine, volume, 0..20, 2);
    }
}

/// An unreadable block made the rebuild compute redundancy from zeroes, and write it over a member
/// that had the right one.
#[test]
fn nothing_that_is_not_verified_is_written_over_a_member_that_comes_back() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..BLOCKS, 1);
    // It leaves before any checkpoint and returns unchanged: all its data is right, which the pool
    // cannot know.
    let mut machine = without(shut_down(machine), &[2]);
    write(&mut machine, volume, 0..1, 1);
    let mut machine = without(shut_down(machine), &[]);
    let before = machine.memory.data[2].clone();
    // Now another member has bad sectors.
    let start = machine.engine.status().plan.zones[0].start as usize;
    (0..200).for_each(|row| machine.memory.bad.push((0, start + row * 4096)));
    pass(&mut machine, 30);
    assert_eq!(
        state(&machine, 2),
        "rebuilding",
        "it does not count while something is missing"
    );
    assert!(machine.engine.status().rebuild.damaged_batches > 0);
    // After that the streams leave their segments.
    let rows = 4 * 4096..45 * 4096;
    assert!(
        machine.memory.data[2][start..][rows.clone()] == before[start..][rows],
        "what could not be verified is as it was"
    );
    // The sectors are readable again: the next attempt completes it.
    machine.memory.bad.clear();
    pass(&mut machine, 3000);
    assert_eq!(state(&machine, 2), "online");
    let mut machine = without(shut_down(machine), &[0]);
    verify(&mut machine, volume, 0..BLOCKS, 1);
}

/// Member 2 returns while these rows are unreadable on member 0; it is complete after a while. Then
/// member 1 fails.
fn rebuilt_beside(machine: Machine, segment: SegmentId, rows: std::ops::Range<u32>) -> Machine {
    let bad: Vec<_> = machine
        .memory
        .blocks(segment, rows)
        .into_iter()
        .filter(|(member, _)| *member == 0)
        .collect();
    let mut machine = shut_down(machine);
    machine.memory.bad = bad;
    let mut machine = without(machine, &[]);
    pass(&mut machine, 50);
    assert!(machine.engine.status().rebuild.damaged_batches > 0);
    // Dead data delays it by a few attempts at most.
    for _ in 0..400 {
        machine.now_ns += 1_000_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.settle();
    }
    let status = machine.engine.status();
    assert_eq!(
        (state(&machine, 2), status.state),
        ("online", "online"),
        "{:?} {}",
        status.rebuild,
        machine.engine.describe()
    );
    without(shut_down(machine), &[1])
}

/// A bad sector under dead payload, in a segment that cleaning never chose: the member stayed in
/// rebuild, and counted as lost, for ever.
#[test]
fn a_rebuild_ends_although_dead_payload_is_unreadable() {
    let mut machine = Machine::with_rows_only(Redundancy::Single, 4, 24, 8, 32);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..BLOCKS, 1);
    let mut machine = without(shut_down(machine), &[2]);
    // Of each ten blocks one batch.
    (0..BLOCKS / 10).for_each(|ten| write(&mut machine, volume, ten * 10..ten * 10 + 10, 2));
    let headers = machine.memory.headers();
    let mut of_users: Vec<_> = headers
        .iter()
        .filter(|(_, _, header)| header.stream.0 == 0)
        .collect();
    of_users.sort_by_key(|(_, _, header)| header.seq);
    let (segment, row, header) = of_users[of_users.len() - 20];
    // All of them die, in the middle of live ones; and one more that is far away.
    write(&mut machine, volume, 110..170, 3);
    let mut machine = rebuilt_beside(machine, *segment, *row..*row + header.rows);
    verify(&mut machine, volume, 0..110, 2);
    verify(&mut machine, volume, 110..170, 3);
    verify(&mut machine, volume, 170..BLOCKS, 2);
}

/// The same in the open user segment: it is no victim before it is full, and without writes it
/// never is. So the stream leaves it (simulator, seed 9971860).
#[test]
fn a_rebuild_ends_although_dead_payload_in_an_open_segment_is_unreadable() {
    let mut machine = Machine::with_rows_only(Redundancy::Single, 4, 24, 8, 128);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..20, 1);
    let mut machine = without(shut_down(machine), &[2]);
    (0..2).for_each(|ten| write(&mut machine, volume, ten * 10..ten * 10 + 10, 2));
    // The content of the first ten dies.
    write(&mut machine, volume, 0..10, 3);
    let headers = machine.memory.headers();
    let mut of_users: Vec<_> = headers
        .iter()
        .filter(|(_, _, header)| header.stream.0 == 0)
        .collect();
    of_users.sort_by_key(|(_, _, header)| header.seq);
    let [.., (segment, row, header), _, last] = of_users[..] else {
        panic!("{} batches", of_users.len())
    };
    assert!(
        last.0 == *segment && last.1 + last.2.rows < 128,
        "it is written still"
    );
    let mut machine = rebuilt_beside(machine, *segment, *row..*row + header.rows);
    verify(&mut machine, volume, 0..10, 3);
    verify(&mut machine, volume, 10..20, 2);
}

/// A read failed transiently on its member, and another member failed before it had answered. All
/// members but that one had the block, and the reader got an error, as each was asked only once
/// (simulator, seed 9801443).
#[test]
fn a_transient_read_failure_is_retried_before_the_read_fails() {
    let (machine, volume) = filled(Redundancy::Single, 4);
    let mut machine = Machine::open(machine.memory);
    let reads = |machine: &mut Machine| -> Vec<MemberCommand> {
        machine.settle();
        machine.held.replace(Vec::new()).unwrap_or_default()
    };
    let fail = |machine: &mut Machine,
                MemberCommand { member, tag, op }: MemberCommand,
                kind: MemberErrorKind| {
        let MemberOp::Read { offset, buf } = op else {
            panic!("a read")
        };
        machine.events.push(Event::Member(MemberDone {
            member,
            tag,
            buf: Some(buf),
            result: Err(MemberError {
                member,
                kind,
                offset,
                code: 5,
            }),
        }));
    };
    machine.held = Some(Vec::new());
    machine.completions.clear();
    machine.request(
        volume,
        Op::Read {
            offset: 7 * 4096,
            length: 4096,
        },
    );
    let mut own = reads(&mut machine);
    assert_eq!(own.len(), 1, "of its own member");
    fail(&mut machine, own.remove(0), MemberErrorKind::Media);
    let mut others = reads(&mut machine);
    assert_eq!(others.len(), 3, "{others:?}");
    fail(&mut machine, others.remove(0), MemberErrorKind::Gone);
    others
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    machine.release();
    let Some(Ok(Reply::Data(parts))) = machine
        .completions
        .pop()
        .map(|completion| completion.result)
    else {
        panic!("an error: {}", machine.engine.describe())
    };
    assert_eq!(parts[0].len(), 4096);
    assert_eq!(machine.engine.self_check(), Ok(()));
    verify(&mut machine, volume, 0..BLOCKS, 1);
}

/// A device that had been used apart was put back with only its ends erased. Batches of that time
/// were where the log would continue, and the next start used them. So the device is zeroed first
/// (`host/src/offline/former.rs`).
#[test]
fn a_member_that_was_used_apart_is_put_back_zeroed() {
    let (machine, volume) = filled(Redundancy::Copies(2), 2);
    let mut here = without(machine, &[]);
    write(&mut here, volume, 400..2200, 9);
    write(&mut here, volume, 0..20, 2);
    assert_eq!(
        here.command(Control::Member {
            member: MemberId(1),
            change: MemberChange::TakeOut
        }),
        Some(Ok(ControlReply::Done))
    );
    let mut fork = here.memory.clone();
    fork.present[0] = false;
    let mut there = Machine::open_with(
        fork,
        &OpenOptions {
            force: true,
            host: windrow_types::Uuid([7; 16]),
            ..Machine::options()
        },
    );
    (0..12).for_each(|lba| write(&mut there, volume, lba..lba + 1, 77));
    here.memory.present[1] = false;
    let mut here = Machine::open_with(here.memory, &Machine::options());
    (0..2).for_each(|lba| write(&mut here, volume, lba..lba + 1, 3));
    here.memory.present[1] = true;
    here.memory.data[1] = there.memory.data[1].clone();
    let superblock = Box::new(here.memory.superblock_of(1));
    let refused = here.command(Control::Member {
        member: MemberId(1),
        change: MemberChange::BringBack { superblock },
    });
    assert!(refused.is_some_and(|answer| answer.is_err()));
    here.memory.data[1].fill(0);
    assert_eq!(
        here.command(Control::Member {
            member: MemberId(1),
            change: MemberChange::Settle
        }),
        Some(Ok(ControlReply::Done))
    );
    let change = MemberChange::Exchange {
        uuid: windrow_types::Uuid([0x55; 16]),
        size_bytes: 24 << 20,
        power_safe: false,
        spare: None,
    };
    assert_eq!(
        here.command(Control::Member {
            member: MemberId(1),
            change
        }),
        Some(Ok(ControlReply::Done))
    );
    pass(&mut here, 50);
    let mut here = Machine::open_with(here.memory, &Machine::options());
    assert_eq!(
        (state(&here, 1), here.engine.status().state),
        ("online", "online")
    );
    verify(&mut here, volume, 0..2, 3);
    verify(&mut here, volume, 2..20, 2);
    verify(&mut here, volume, 20..BLOCKS, 1);
}
