//! An unresponsive member answers neither writes nor flushes. All requests wait for it until it is
//! taken out of service, and none afterwards (docs/internals/members.md, "Members that answer
//! nothing"). Commands sent to it before may take effect at any time.

use crate::machine;

use machine::{Machine, pass, state, verify, why, write};
use windrow_engine::*;
use windrow_format::superblock::{Properties, SLOT_OFFSET, SLOT_STRIDE};
use windrow_geometry::Redundancy;
use windrow_io::{MemberCommand, MemberOp, Op};
use windrow_types::{BLOCK_BYTES, MemberId, Uuid, VolumeId};

const CODES: [(Redundancy, usize); 4] = [
    (Redundancy::Copies(2), 2),
    (Redundancy::Single, 4),
    (Redundancy::Double, 5),
    (Redundancy::Copies(3), 3),
];
const BLOCKS: u64 = 200;

type Answer = Option<Result<ControlReply, ControlError>>;
const DONE: Answer = Some(Ok(ControlReply::Done));

fn filled(redundancy: Redundancy, members: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..BLOCKS, 1);
    assert_eq!(machine.command(Control::Checkpoint), DONE);
    (machine, volume)
}

fn change(machine: &mut Machine, member: usize, change: MemberChange) -> Answer {
    machine.command(Control::Member {
        member: MemberId(member as u8),
        change,
    })
}

fn bring_back(machine: &mut Machine, member: usize) {
    let superblock = Box::new(machine.memory.superblock_of(member));
    assert_eq!(
        change(machine, member, MemberChange::BringBack { superblock }),
        DONE
    );
}

/// Executes the commands of an unresponsive member after all, the last first.
fn answers_again(machine: &mut Machine) {
    machine.mute.clear();
    while let Some(command) = machine.late.pop() {
        machine.carry_out(command);
    }
    machine.settle();
}

/// Number of requests answered successfully since the last call.
fn answered(machine: &mut Machine) -> usize {
    machine.settle();
    let completions = std::mem::take(&mut machine.completions);
    completions
        .iter()
        .for_each(|c| assert!(c.result.is_ok(), "{:?}", c.result));
    completions.len()
}

/// A start with these members absent, after a power loss or not.
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

/// An unresponsive member kept the pool from answering flushes although it had been taken out: its
/// write was awaited.
#[test]
fn an_unresponsive_member_delays_no_request_once_it_is_taken_out() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        machine.mute = vec![1];
        machine.completions.clear();
        write(&mut machine, volume, 0..40, 2);
        let waiting = 41 - answered(&mut machine);
        assert!(
            waiting > 0 && !machine.late.is_empty(),
            "{redundancy:?}: the flush waits"
        );
        assert_eq!(
            change(&mut machine, 1, MemberChange::TakeOut),
            DONE,
            "{redundancy:?}"
        );
        assert_eq!(answered(&mut machine), waiting, "{redundancy:?}");
        assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
        write(&mut machine, volume, 40..80, 3);
        assert_eq!(
            (answered(&mut machine), state(&machine, 1)),
            (41, "offline")
        );

        assert_eq!(
            change(&mut machine, 1, MemberChange::Settle),
            None,
            "its commands have not ended"
        );
        let superblock = Box::new(machine.memory.superblock_of(1));
        let text = why(change(
            &mut machine,
            1,
            MemberChange::BringBack { superblock },
        ));
        assert!(text.contains("have not ended"), "{text}");
        answers_again(&mut machine);
        assert_eq!(machine.control.pop().map(|c| c.result), DONE, "settled");
        bring_back(&mut machine, 1);
        pass(&mut machine, 80);
        assert_eq!(state(&machine, 1), "online");
        assert_eq!(machine.command(Control::Shutdown { export: false }), DONE);

        let others: Vec<usize> = [0, 2, 3]
            .into_iter()
            .filter(|m| *m < members)
            .take(redundancy.tolerance())
            .collect();
        let mut machine = without(machine, &others);
        verify(&mut machine, volume, 0..40, 2);
        verify(&mut machine, volume, 40..80, 3);
        verify(&mut machine, volume, 80..BLOCKS, 1);
    }
}

/// Only the administrator takes it out, and must be able to see which member the pool waits for.
#[test]
fn an_unresponsive_member_is_reported_and_shown() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    let told = |machine: &mut Machine, seconds: u64| {
        let mut told = Vec::new();
        for _ in 0..seconds * 10 {
            let wake_ns = machine.out.wake_at_ns.unwrap_or(u64::MAX);
            machine.now_ns += 100_000_000;
            if wake_ns <= machine.now_ns {
                machine.events.push(Event::Tick(machine.now_ns));
                machine.settle();
            }
            told.extend(
                std::mem::take(&mut machine.out.notices)
                    .into_iter()
                    .filter(|n| {
                        matches!(n, Notice::MemberHangs { .. } | Notice::MemberAnswers { .. })
                    }),
            );
        }
        told
    };
    assert_eq!(told(&mut machine, 100), [], "nothing is in flight");
    machine.mute = vec![2];
    write(&mut machine, volume, 0..10, 2);
    assert_eq!(told(&mut machine, 9), []);
    let hangs = |machine: &Machine| {
        machine
            .engine
            .status()
            .members
            .iter()
            .map(|member| member.hangs_ms / 1000)
            .collect::<Vec<_>>()
    };
    assert_eq!(hangs(&machine), [0; 4]);
    assert!(matches!(
        told(&mut machine, 8)[..],
        [Notice::MemberHangs {
            member: MemberId(2),
            commands: 1..
        }]
    ));
    assert!(
        matches!(hangs(&machine)[..], [0, 0, 10..=17, 0]),
        "{:?}",
        hangs(&machine)
    );
    assert_eq!(told(&mut machine, 100), [], "once");
    assert!(
        matches!(hangs(&machine)[..], [0, 0, 110..=117, 0]),
        "{:?}",
        hangs(&machine)
    );
    answers_again(&mut machine);
    assert!(machine.engine.is_quiet());
    assert_eq!(
        told(&mut machine, 6),
        [Notice::MemberAnswers {
            member: MemberId(2)
        }]
    );
    assert_eq!(
        (told(&mut machine, 100), hangs(&machine)),
        (vec![], vec![0; 4])
    );

    // A stopped process has processed no answer.
    machine.mute = vec![0];
    write(&mut machine, volume, 5..10, 2);
    machine.now_ns += 60_000_000_000;
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
    answers_again(&mut machine);
    assert_eq!(told(&mut machine, 20), []);

    machine.mute = vec![1];
    write(&mut machine, volume, 10..20, 2);
    assert_eq!(told(&mut machine, 20).len(), 1);
    assert_eq!(change(&mut machine, 1, MemberChange::TakeOut), DONE);
    assert_eq!(
        (told(&mut machine, 20), hangs(&machine)),
        (vec![], vec![0; 4]),
        "no request waits for it any more"
    );
    answers_again(&mut machine);
    assert_eq!(told(&mut machine, 20), [], "and it is known to be out");
}

/// Writes acknowledged without the member wait until its loss is recorded: it may be there again
/// after a crash while others are not.
#[test]
fn writes_without_an_unresponsive_member_wait_for_the_record() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        machine.mute = vec![1];
        write(&mut machine, volume, 0..40, 2);
        machine.completions.clear();
        let leave = Control::Member {
            member: MemberId(1),
            change: MemberChange::TakeOut,
        };
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(2),
            command: leave,
        }));
        machine.held = Some(Vec::new());
        machine.settle();
        let of_superblock = |c: &MemberCommand| matches!(&c.op, MemberOp::Write { offset, .. } if *offset < 1 << 20);
        let held = machine.held.take().unwrap_or_default();
        assert!(held.iter().any(of_superblock));
        machine.held = Some(Vec::new());
        // Everything except the record ends.
        let (record, others): (Vec<_>, Vec<_>) = held.into_iter().partition(of_superblock);
        others
            .into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.settle();
        assert_eq!(
            (answered(&mut machine), machine.control.len()),
            (0, 0),
            "{redundancy:?}"
        );
        let flushes = machine.held.take().unwrap_or_default();
        record
            .into_iter()
            .chain(flushes)
            .for_each(|command| machine.carry_out(command));
        machine.settle();
        assert!(answered(&mut machine) > 0);
        assert_eq!(machine.control.pop().map(|c| c.result), DONE);
        // All other members are absent, and it has no record: a start without them shows nothing of
        // the time before.
        let generation = machine.memory.superblock_of(0).generation;
        assert!(machine.memory.superblock_of(1).generation < generation);
    }
}

/// A superblock generation that the member received and never answers completes without it; it
/// takes effect there hours later.
#[test]
fn a_superblock_generation_does_not_wait_for_an_unresponsive_member() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        machine.mute = vec![0];
        let properties = |bound| {
            Control::SetProperties(Properties {
                read_latency_bound_ms: bound,
                ..machine::PROPERTIES
            })
        };
        assert_eq!(machine.command(properties(70)), None, "it waits");
        assert!(machine.late.iter().all(|c| matches!(&c.op, MemberOp::Write { offset, .. } if (SLOT_OFFSET..SLOT_OFFSET + 4 * SLOT_STRIDE).contains(offset))));
        let leave = Control::Member {
            member: MemberId(0),
            change: MemberChange::TakeOut,
        };
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(2),
            command: leave,
        }));
        machine.settle();
        assert_eq!(
            machine.control.len(),
            2,
            "{redundancy:?}: the change and the member"
        );
        machine.control.clear();
        (71..80).for_each(|bound| assert_eq!(machine.command(properties(bound)), DONE));
        write(&mut machine, volume, 0..40, 2);
        // It takes effect now, and the power fails.
        let late = std::mem::take(&mut machine.late);
        late.into_iter()
            .for_each(|command| machine.carry_out(command));
        let mut machine = machine.crash();
        assert_eq!(machine.engine.status().properties.read_latency_bound_ms, 79);
        assert_eq!(state(&machine, 0), "offline", "people decided that");
        verify(&mut machine, volume, 0..40, 2);
        bring_back(&mut machine, 0);
        pass(&mut machine, 80);
        assert_eq!(state(&machine, 0), "online");
    }
}

/// Discards and writes sent to it earlier take effect in a segment that has been reused since.
#[test]
fn late_commands_of_an_unresponsive_member_are_overwritten_by_the_rebuild() {
    let discards = Properties {
        discard: true,
        ..machine::PROPERTIES
    };
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        assert_eq!(machine.command(Control::SetProperties(discards)), DONE);
        let is_discard = |c: &MemberCommand| matches!(c.op, MemberOp::Discard { .. });
        machine.mute = vec![1];
        for round in 2..40 {
            if machine.late.iter().any(is_discard) {
                break;
            }
            // As long as it answers everything else.
            let (discards, others): (Vec<_>, Vec<_>) = std::mem::take(&mut machine.late)
                .into_iter()
                .partition(is_discard);
            machine.late = discards;
            others
                .into_iter()
                .for_each(|command| machine.carry_out(command));
            write(&mut machine, volume, 0..BLOCKS, round);
            machine.events.push(Event::Control(ControlRequest {
                id: ControlId(3),
                command: Control::Checkpoint,
            }));
            machine.settle();
        }
        assert!(
            machine.late.iter().any(is_discard),
            "{redundancy:?}: something was given up"
        );
        assert_eq!(change(&mut machine, 1, MemberChange::TakeOut), DONE);
        for round in 40..80 {
            write(&mut machine, volume, 0..BLOCKS, round);
            assert_eq!(machine.command(Control::Checkpoint), DONE, "{redundancy:?}");
        }
        answers_again(&mut machine);
        bring_back(&mut machine, 1);
        pass(&mut machine, 80);
        assert_eq!(state(&machine, 1), "online");
        assert_eq!(machine.command(Control::Shutdown { export: false }), DONE);
        let others: Vec<usize> = [0, 2, 3]
            .into_iter()
            .filter(|m| *m < members)
            .take(redundancy.tolerance())
            .collect();
        verify(&mut without(machine, &others), volume, 0..BLOCKS, 79);
    }
}

/// A shutdown waits for an unresponsive member. `pool offline` must not be refused because of the
/// shutdown.
#[test]
fn a_shutdown_that_waits_ends_when_the_member_is_taken_out() {
    for export in [false, true] {
        let (mut machine, volume) = filled(Redundancy::Single, 4);
        write(&mut machine, volume, 0..40, 2);
        machine.mute = vec![2];
        assert_eq!(
            machine.command(Control::Shutdown { export }),
            None,
            "it waits"
        );
        leave(&mut machine, 2);
        if export {
            // Another host may write once the pool is exported: no command of this one may take
            // effect then.
            assert!(!machine.engine.is_stopped() && !machine.late.is_empty());
            answers_again(&mut machine);
        }
        assert!(machine.engine.is_stopped(), "{}", machine.engine.describe());
        let answers: Vec<_> = machine
            .control
            .drain(..)
            .map(|c| (c.id, c.result))
            .collect();
        assert!(
            answers.contains(&(ControlId(1), Ok(ControlReply::Done))),
            "{answers:?}"
        );
        let mut machine = without(machine, &[2]);
        verify(&mut machine, volume, 0..40, 2);
    }
}

/// Its reads are answered by others at once, and say nothing about its speed.
#[test]
fn reads_of_an_unresponsive_member_end_when_it_is_taken_out() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        let unbounded = Properties {
            read_latency_bound_ms: 0,
            ..machine::PROPERTIES
        };
        assert_eq!(machine.command(Control::SetProperties(unbounded)), DONE);
        machine.mute = vec![0];
        machine.completions.clear();
        for lba in 0..BLOCKS {
            machine.request(
                volume,
                Op::Read {
                    offset: lba * BLOCK_BYTES,
                    length: BLOCK_BYTES as u32,
                },
            );
        }
        let waiting = BLOCKS as usize - answered(&mut machine);
        assert!(
            waiting > 0,
            "{redundancy:?}: there is no bound, so no read is hedged"
        );
        machine.now_ns += 100_000_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        assert_eq!(change(&mut machine, 0, MemberChange::TakeOut), DONE);
        assert_eq!(answered(&mut machine), waiting);
        assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
        answers_again(&mut machine);
        bring_back(&mut machine, 0);
        pass(&mut machine, 80);
        assert_eq!(state(&machine, 0), "online");
    }
}

/// Where the redundancy does not cover its loss it stays in service, and its late answers count.
#[test]
fn nothing_is_disowned_where_the_redundancy_does_not_cover_it() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    assert_eq!(change(&mut machine, 3, MemberChange::TakeOut), DONE);
    machine.mute = vec![1];
    machine.completions.clear();
    write(&mut machine, volume, 0..40, 2);
    let waiting = 41 - answered(&mut machine);
    let text = why(change(&mut machine, 1, MemberChange::TakeOut));
    assert!(text.contains("redundancy"), "{text}");
    assert_eq!((answered(&mut machine), state(&machine, 1)), (0, "online"));
    answers_again(&mut machine);
    assert_eq!(answered(&mut machine), waiting);
    verify(&mut machine, volume, 0..40, 2);
}

/// A member that has failed before may still have outstanding commands.
#[test]
fn outstanding_commands_of_a_failed_member_are_disowned_when_it_is_taken_out() {
    let (mut machine, volume) = filled(Redundancy::Double, 5);
    machine.mute = vec![1];
    machine.completions.clear();
    write(&mut machine, volume, 0..300, 2);
    let waiting = 301 - answered(&mut machine);
    assert!(machine.late.len() > 1);
    let failing = machine.late.pop().expect("a command");
    machine.memory.failing[1] = true;
    machine.carry_out(failing);
    machine.settle();
    assert_eq!(
        (state(&machine, 1), answered(&mut machine) < waiting),
        ("faulted", true)
    );
    assert_eq!(change(&mut machine, 1, MemberChange::TakeOut), DONE);
    pass(&mut machine, 2);
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
    verify(&mut machine, volume, 0..300, 2);
}

/// A journal device does not answer a record: synchronous writes continue without it.
#[test]
fn an_unresponsive_journal_device_delays_no_flush() {
    for devices in [1, 2] {
        let mut machine = Machine::with_journal_devices(Redundancy::Single, 4, 24, devices, false);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..BLOCKS, 1);
        machine.mute = vec![4];
        machine.completions.clear();
        write(&mut machine, volume, 0..8, 2);
        assert!(
            answered(&mut machine) < 9 && !machine.late.is_empty(),
            "the flush waits for the record"
        );
        assert_eq!(change(&mut machine, 4, MemberChange::TakeOut), DONE);
        pass(&mut machine, 4);
        answered(&mut machine);
        write(&mut machine, volume, 8..16, 3);
        assert_eq!(answered(&mut machine), 9, "{}", machine.engine.describe());
        let mut machine = without(machine, &[4]);
        verify(&mut machine, volume, 0..8, 2);
        verify(&mut machine, volume, 8..16, 3);
    }
}

fn post(machine: &mut Machine, id: u64, command: Control) {
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(id),
        command,
    }));
}

fn leave(machine: &mut Machine, member: u8) {
    post(
        machine,
        10 + u64::from(member),
        Control::Member {
            member: MemberId(member),
            change: MemberChange::TakeOut,
        },
    );
    machine.settle();
}

fn grow(members: &[u8]) -> Control {
    Control::Grow {
        members: members.iter().copied().map(MemberId).collect(),
    }
}

/// A pool of three with some spares.
fn with_spares(spares: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(Redundancy::Single, 3, 24, 100);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..BLOCKS, 1);
    (0..spares).for_each(|_| machine.add_spare(24));
    (machine, volume)
}

/// A growth onto the first spares, of which these stop answering while they are being recorded.
fn growing_over_mute_ones(machine: &mut Machine, members: &[u8]) {
    post(machine, 2, grow(members));
    for _ in 0..200 {
        if machine.engine.status().members[3].state == "online" {
            break;
        }
        machine.turn();
    }
    assert_eq!(state(machine, 3), "online");
    machine.mute = members.iter().map(|member| usize::from(*member)).collect();
    machine.settle();
    assert!(
        members
            .iter()
            .all(|member| machine.late.iter().any(|c| c.member.0 == *member)),
        "their superblocks"
    );
}

/// A whole shelf of new members stops answering while it is recorded. As spares, which they are
/// again, they could not be taken out, and the generation waited for the last of them.
#[test]
fn a_growth_onto_unresponsive_members_is_reverted_and_waits_for_none_of_them() {
    let (mut machine, volume) = with_spares(3);
    growing_over_mute_ones(&mut machine, &[3, 4, 5]);
    machine.completions.clear();
    write(&mut machine, volume, 0..40, 2);
    leave(&mut machine, 3);
    leave(&mut machine, 4);
    assert_eq!(
        [3, 4, 5].map(|member| state(&machine, member)),
        ["spare"; 3]
    );
    assert_eq!(answered(&mut machine), 41, "{}", machine.engine.describe());
    let answer = machine
        .control
        .iter()
        .find(|c| c.id == ControlId(2))
        .map(|c| c.result.clone());
    assert!(
        matches!(answer, Some(Err(ControlError::Member { .. }))),
        "the growth: {answer:?}"
    );
    assert_eq!(machine.command(Control::Shutdown { export: false }), DONE);
    verify(&mut without(machine, &[0]), volume, 0..40, 2);
}

/// The generation that introduces a spare waits for it, and `pool offline` was refused: it is no
/// member.
#[test]
fn a_spare_that_is_unresponsive_while_it_is_introduced_is_released() {
    let (mut machine, volume) = with_spares(1);
    machine.mute = vec![3];
    assert_eq!(machine.command(grow(&[3])), None, "it waits");
    leave(&mut machine, 3);
    let answers: Vec<_> = machine
        .control
        .drain(..)
        .map(|c| (c.id.0, c.result.is_ok()))
        .collect();
    assert!(
        answers.contains(&(13, true)) && answers.contains(&(1, false)),
        "{answers:?}"
    );
    machine.completions.clear();
    write(&mut machine, volume, 0..40, 2);
    assert_eq!((answered(&mut machine), state(&machine, 3)), (41, "spare"));
    answers_again(&mut machine);
    let text = why(change(&mut machine, 3, MemberChange::TakeOut));
    assert!(
        text.contains("not a member"),
        "with nothing in flight: {text}"
    );
    assert_eq!(machine.command(grow(&[3])), DONE);
    verify(&mut machine, volume, 0..40, 2);
}

fn with_a_spare_that_hangs_with_its_label() -> Machine {
    let (mut machine, _) = with_spares(1);
    machine.mute = vec![3];
    machine.command(Control::Scrub(ScrubCommand::Start {
        unix_s: 5,
        bytes_per_second: 0,
    }));
    pass(&mut machine, 40);
    assert!(
        machine.late.iter().any(|c| c.member.0 == 3),
        "its label is read"
    );
    machine
}

/// A shutdown waited for the label of a spare that does not answer.
#[test]
fn a_spare_with_an_unanswered_label_command_does_not_block_a_shutdown() {
    let mut machine = with_a_spare_that_hangs_with_its_label();
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        None,
        "it waits"
    );
    leave(&mut machine, 3);
    assert!(machine.engine.is_stopped(), "{}", machine.engine.describe());
}

/// The last generation of an exported pool is not answered by a member. When that was taken out,
/// the export was answered while the next generation was in flight to all others.
#[test]
fn a_pool_is_exported_when_none_of_its_last_generations_is_in_flight() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    post(&mut machine, 1, Control::Shutdown { export: true });
    machine.held = Some(Vec::new());
    let is_superblock = |c: &MemberCommand| matches!(&c.op, MemberOp::Write { offset, .. } if (SLOT_OFFSET..SLOT_OFFSET + 4 * SLOT_STRIDE).contains(offset));
    let generation = machine.memory.superblock_of(0).generation;
    // The one of the checkpoint, then the last one, except for member 2.
    let mut hanging = Vec::new();
    for _ in 0..200 {
        machine.settle();
        let held = machine.held.replace(Vec::new()).unwrap_or_default();
        for command in held {
            let is_last = machine.memory.superblock_of(3).generation.0 > generation.0;
            match is_last && command.member.0 == 2 && is_superblock(&command) {
                true => hanging.push(command),
                false => machine.carry_out(command),
            }
        }
    }
    assert!(
        hanging.len() == 1 && machine.control.is_empty(),
        "{} hang",
        hanging.len()
    );
    leave(&mut machine, 2);
    for _ in 0..20 {
        machine.settle();
        assert!(
            machine.control.iter().all(|c| c.id != ControlId(1)) && !machine.engine.is_stopped(),
            "something is in flight"
        );
        let held = machine.held.replace(Vec::new()).unwrap_or_default();
        if held.is_empty() {
            break;
        }
        held.into_iter()
            .for_each(|command| machine.carry_out(command));
    }
    let answers = |machine: &mut Machine| {
        machine
            .control
            .drain(..)
            .map(|c| (c.id.0, c.result.is_ok()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (answers(&mut machine), machine.engine.is_stopped()),
        (vec![(12, true)], false),
        "an unanswered command may still take effect"
    );
    hanging
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    assert_eq!(
        (answers(&mut machine), machine.engine.is_stopped()),
        (vec![(1, true)], true)
    );
    verify(&mut without(machine, &[2]), volume, 0..BLOCKS, 1);
}

/// A growth is reverted in a mirror of two, and one of these does not answer. Without it a pool of
/// the other layout could start, so the pool would have to stop: following the advice to take it
/// out stopped the pool.
#[test]
fn a_member_without_which_the_pool_would_have_to_stop_is_not_taken_out() {
    let mut machine = Machine::with(Redundancy::Copies(2), 2, 24, 100);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..BLOCKS, 1);
    (0..3).for_each(|_| machine.add_spare(24));
    post(&mut machine, 2, grow(&[2, 3, 4]));
    for _ in 0..200 {
        if state(&machine, 2) == "online" {
            break;
        }
        machine.turn();
    }
    machine.mute = vec![1, 2, 3, 4];
    machine.settle();
    leave(&mut machine, 2);
    leave(&mut machine, 3);
    assert_eq!(state(&machine, 2), "spare");
    machine.control.clear();
    let text = why(change(&mut machine, 1, MemberChange::TakeOut));
    assert!(
        text.contains("could not continue") && !machine.engine.is_stopped(),
        "{text}"
    );
    answers_again(&mut machine);
    assert_eq!(change(&mut machine, 1, MemberChange::TakeOut), DONE);
    verify(&mut machine, volume, 0..BLOCKS, 1);
}

/// A member that leaves the pool for good stops answering at some moment of that. It is taken out,
/// and leaves all the same.
#[test]
fn a_removal_does_not_wait_for_an_unresponsive_member_once_it_is_taken_out() {
    for turns in (0..400).step_by(7) {
        let mut machine = Machine::with(Redundancy::Single, 5, 24, 100);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..BLOCKS, 1);
        post(
            &mut machine,
            2,
            Control::Remove {
                member: MemberId(4),
            },
        );
        for _ in 0..turns {
            if machine.events.is_empty() {
                machine.now_ns += 5_000_000;
                machine.events.push(Event::Tick(machine.now_ns));
            }
            machine.turn();
        }
        machine.mute = vec![4];
        pass(&mut machine, 40);
        if state(&machine, 4) != "removed" {
            leave(&mut machine, 4);
            pass(&mut machine, 80);
        }
        machine.completions.clear();
        write(&mut machine, volume, 0..40, 2);
        assert_eq!(
            answered(&mut machine),
            41,
            "after {turns} turns: {}",
            machine.engine.describe()
        );
        answers_again(&mut machine);
        pass(&mut machine, 80);
        assert_eq!(state(&machine, 4), "removed", "after {turns} turns");
        assert_eq!(machine.command(Control::Shutdown { export: true }), DONE);
        let mut machine = without(machine, &[0, 4]);
        verify(&mut machine, volume, 0..40, 2);
    }
}

/// A spare was removed while a scrub read its label: the scrub and the shutdown waited for that
/// read.
#[test]
fn a_removed_unresponsive_spare_blocks_no_request() {
    let mut machine = with_a_spare_that_hangs_with_its_label();
    assert_eq!(change(&mut machine, 3, MemberChange::GiveUp), DONE);
    pass(&mut machine, 40);
    assert!(!machine.out.notices.iter().any(|notice| matches!(
        notice,
        Notice::SpareFailed { .. } | Notice::LabelWritten { .. }
    )));
    let text = why(change(
        &mut machine,
        3,
        MemberChange::AddSpare {
            uuid: Uuid([77; 16]),
            size_bytes: 24 << 20,
        },
    ));
    assert!(text.contains("have not ended"), "{text}");
    assert_eq!(machine.command(Control::Shutdown { export: false }), DONE);
}

/// A new member is taken out while it is being recorded together with another one. The growth is
/// reverted, and its device is a spare again, with a superblock in flight to it. As a member of the
/// next growth it would get that over a newer one.
#[test]
fn a_spare_is_not_used_while_earlier_commands_are_in_flight() {
    let (mut machine, volume) = with_spares(3);
    growing_over_mute_ones(&mut machine, &[3, 4]);
    leave(&mut machine, 3);
    leave(&mut machine, 4);
    assert_eq!(
        (state(&machine, 3), state(&machine, 4)),
        ("spare", "spare"),
        "{}",
        machine.engine.describe()
    );
    machine.control.clear();
    let text = why(machine.command(grow(&[3, 5])));
    assert!(text.contains("have not ended"), "{text}");
    assert_eq!(change(&mut machine, 1, MemberChange::TakeOut), DONE);
    let text = why(change(
        &mut machine,
        1,
        MemberChange::Exchange {
            uuid: Uuid::default(),
            size_bytes: 0,
            power_safe: false,
            spare: Some(MemberId(3)),
        },
    ));
    assert!(text.contains("have not ended"), "{text}");
    assert_eq!(state(&machine, 1), "offline", "nothing has changed");
    answers_again(&mut machine);
    bring_back(&mut machine, 1);
    pass(&mut machine, 80);
    assert_eq!(machine.command(grow(&[3, 5])), DONE);
    verify(&mut machine, volume, 0..BLOCKS, 1);
}
