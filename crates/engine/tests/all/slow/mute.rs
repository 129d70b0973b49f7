//! Members that answer no reads any more.

use super::machine::PROPERTIES;
use super::*;
use windrow_io::MemberOp;

/// Gives a member enough outstanding late reads that it is skipped.
fn owing(machine: &mut Machine, volume: VolumeId, member: usize) {
    machine.stalled = vec![member];
    for round in 0..40 {
        ask(machine, volume, round % 10 * 40..round % 10 * 40 + 40);
        tick(machine, 60);
    }
    assert_eq!(answers(machine), 1600);
    assert!(machine.late.len() >= 64);
}

/// Reads all blocks with a few requests at once; returns the number answered in this number of
/// rounds of 110 ms.
fn clients(machine: &mut Machine, volume: VolumeId, at_once: u64, rounds: usize) -> usize {
    let (mut next, mut total) = (0, 0);
    for _ in 0..rounds {
        let room = at_once - (next - total as u64);
        (0..room).for_each(|at| {
            ask(
                machine,
                volume,
                (next + at) % BLOCKS..(next + at) % BLOCKS + 1,
            )
        });
        next += room;
        (0..2).for_each(|_| tick(machine, 55));
        total += answers(machine);
    }
    total
}

fn ends_quietly(machine: &mut Machine) {
    machine.stalled.clear();
    while !machine.late.is_empty() {
        answer_late(machine);
    }
    answers(machine);
    (0..20).for_each(|_| tick(machine, 100));
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
}

/// Additional fault while a member is unresponsive.
type Trouble = fn(&mut Machine);

/// Reads waited for an unresponsive member although the redundancy covers two faults. The second
/// fault is another member on the same cable (the hedged read asked that one, and was not hedged
/// itself), or a lost member. Or it is wrong bytes on a member (all others were asked, and all of
/// them were awaited).
#[test]
fn an_unresponsive_member_and_one_more_fault_do_not_stall_clients() {
    let also_mute: Trouble = |machine| machine.stalled.push(1);
    let lost: Trouble = |machine| {
        drop(machine.command(Control::Member {
            member: MemberId(2),
            change: MemberChange::TakeOut,
        }))
    };
    let wrong: Trouble = |machine| machine.garble(2);
    for (redundancy, members) in [(Redundancy::Double, 6), (Redundancy::Copies(3), 3)] {
        for (name, trouble) in [("mute", also_mute), ("lost", lost), ("wrong", wrong)] {
            let (mut machine, volume) = filled(redundancy, members);
            machine.stalled = vec![0];
            trouble(&mut machine);
            let total = clients(&mut machine, volume, 8, 100);
            assert!(
                total > 400,
                "{redundancy:?}, another one {name}: {total} reads in 100 rounds"
            );
            ends_quietly(&mut machine);
        }
    }
}

/// A member is skipped; then another one becomes unresponsive, and the first answers again, but was
/// not asked.
#[test]
fn a_skipped_member_is_asked_where_others_are_late() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    owing(&mut machine, volume, 0);
    let owed = std::mem::take(&mut machine.late);
    machine.stalled = vec![1];
    ask(&mut machine, volume, 0..40);
    let answered = answers(&mut machine);
    assert!(
        answered < 30,
        "blocks of both wait for the second one: {answered} are answered"
    );
    owed.into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    (0..20).for_each(|_| tick(&mut machine, 60));
    assert_eq!(answers(&mut machine), 40 - answered);
    ends_quietly(&mut machine);
}

/// Reads that waited for budget when the latency bound was removed were forgotten.
#[test]
fn late_reads_are_not_forgotten_while_there_is_no_bound() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    machine.stalled = vec![0];
    ask(&mut machine, volume, 0..BLOCKS);
    let waiting = BLOCKS as usize - answers(&mut machine);
    machine.held = Some(Vec::new());
    tick(&mut machine, 60);
    let around = machine.held.take().expect("held");
    assert!(waiting > 64 && around.len() == 64 * 3);
    for bound in [0, 50] {
        machine.command(Control::SetProperties(Properties {
            read_latency_bound_ms: bound,
            ..PROPERTIES
        }));
        tick(&mut machine, 60);
    }
    around
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    (0..4).for_each(|_| tick(&mut machine, 60));
    assert_eq!(answers(&mut machine), waiting);
    ends_quietly(&mut machine);
}

/// A pool whose unresponsive member was taken out of service did not stop: its outstanding reads
/// were awaited.
#[test]
fn a_pool_stops_although_late_reads_are_outstanding() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    owing(&mut machine, volume, 0);
    machine.command(Control::Member {
        member: MemberId(0),
        change: MemberChange::TakeOut,
    });
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
}

/// Reads of an unresponsive member never return. Their number must not grow without bound, and it
/// must be noticed when the member answers again.
#[test]
fn an_unresponsive_member_has_bounded_late_reads_and_is_asked_again_when_it_answers() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        machine.stalled = vec![0];
        let (mut asked, mut answered) = (0, 0);
        let mut rounds = |machine: &mut Machine| {
            for round in 0..400 {
                let first = round * 40 % BLOCKS;
                ask(machine, volume, first..first + 40);
                tick(machine, 60);
                asked += 40;
                answered += answers(machine);
                assert!(
                    asked - answered <= 200,
                    "{redundancy:?}: of {asked} reads only {answered} are answered"
                );
                assert!(
                    machine.late.len() <= 64 + 200,
                    "{redundancy:?}: it was asked for {}",
                    machine.late.len()
                );
            }
        };
        rounds(&mut machine);
        assert!(machine.late.len() >= 64);
        let status = machine.engine.status();
        assert!(
            status.members[0].slow && status.members[0].state == "online",
            "{redundancy:?}"
        );
        assert!(
            status.member_stats[0].slow_reads > 2000,
            "what was not asked of it counts: {}",
            status.member_stats[0].slow_reads
        );
        let before = status.member_stats[0].read_bytes;
        ask(&mut machine, volume, 0..40);
        assert_eq!(answers(&mut machine), 40, "without waiting");
        assert_eq!(
            machine.engine.status().member_stats[0].read_bytes,
            before,
            "nothing more was asked of it"
        );
        machine.stalled = Vec::new();
        answer_late(&mut machine);
        assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
        rounds(&mut machine);
        assert!(
            machine.out.notices.contains(&Notice::MemberNotSlow {
                member: MemberId(0)
            }),
            "{redundancy:?}: {:?}",
            machine.out.notices
        );
        assert!(machine.engine.status().member_stats[0].read_bytes > before + 2000 * 4096);
        assert_eq!((asked, machine.engine.status().state), (answered, "online"));
    }
}

/// The only correct bytes may be on a skipped member.
#[test]
fn a_skipped_member_is_asked_after_all_where_others_are_wrong() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    machine.stalled = vec![0];
    for round in 0..40 {
        ask(&mut machine, volume, round % 10 * 40..round % 10 * 40 + 40);
        tick(&mut machine, 60);
    }
    answers(&mut machine);
    let owed = std::mem::take(&mut machine.late);
    assert!(owed.len() >= 64);
    machine.stalled = Vec::new();
    machine.garble(1);
    ask(&mut machine, volume, 0..40);
    assert_eq!(answers(&mut machine), 40);
    assert!(
        !machine.out.notices.iter().any(|notice| matches!(
            notice,
            Notice::Repaired {
                member: MemberId(0),
                ..
            }
        )),
        "{:?}",
        machine.out.notices
    );
    machine.late = owed;
    answer_late(&mut machine);
    (0..20).for_each(|_| tick(&mut machine, 100));
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
}

/// Exactly enough others are read; if one of them fails, further ones may be available.
#[test]
fn a_failed_hedged_read_continues_with_columns_not_asked_before() {
    let (mut machine, volume) = filled(Redundancy::Double, 6);
    machine.stalled = vec![0];
    for round in 0..40 {
        ask(&mut machine, volume, round % 10 * 40..round % 10 * 40 + 40);
        tick(&mut machine, 60);
    }
    assert_eq!(answers(&mut machine), 1600);
    let owed = machine.late.len();
    // A read for which member 0 would be asked: four others are read instead. The sector of the
    // first of them is permanently bad.
    let mut held = |lba: u64| {
        machine.held = Some(Vec::new());
        ask(&mut machine, volume, lba..lba + 1);
        let commands = machine.held.take().expect("held");
        let is_around = commands.len() == 4;
        if is_around {
            let MemberOp::Read { offset, .. } = commands[0].op else {
                panic!("{:?}", commands[0])
            };
            machine
                .memory
                .bad
                .push((commands[0].member.index(), offset as usize));
        }
        commands
            .into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.settle();
        is_around
    };
    let lba = (0..40).find(|lba| held(*lba)).expect("a block of member 0");
    assert_eq!(
        (answers(&mut machine), machine.late.len()),
        (lba as usize + 1, owed),
        "the fifth was read, and not the unresponsive one"
    );
    answer_late(&mut machine);
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
}

/// One member is slow, and the other one needed for its hedged reads is unresponsive. The reads
/// outstanding at that one are bounded, too, and when it is back it is asked.
#[test]
fn hedged_reads_do_not_pile_up_at_an_unresponsive_member() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    machine.stalled = vec![0];
    ask(&mut machine, volume, 0..60);
    let answered: Vec<u64> = machine
        .completions
        .iter()
        .map(|answer| answer.id.0)
        .collect();
    let lba = (0..60)
        .find(|lba| !answered.contains(lba))
        .expect("a block on member 0");
    machine.stalled = Vec::new();
    answer_late(&mut machine);
    answers(&mut machine);
    let mut mute = Vec::new();
    for round in 0..1000 {
        machine.held = Some(Vec::new());
        ask(&mut machine, volume, lba..lba + 1);
        tick(&mut machine, 60);
        let (of_mute, others): (Vec<_>, Vec<_>) = machine
            .held
            .take()
            .expect("held")
            .into_iter()
            .partition(|command| command.member == MemberId(1));
        mute.extend(of_mute);
        others
            .into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.settle();
        assert_eq!(answers(&mut machine), 1, "round {round}");
        assert!(mute.len() <= 64, "round {round}");
    }
    assert_eq!(mute.len(), 64);
    // Now the slow one is unresponsive, and the other one answers.
    machine.stalled = vec![0];
    ask(&mut machine, volume, lba..lba + 1);
    tick(&mut machine, 60);
    assert_eq!(answers(&mut machine), 0, "no member to ask");
    mute.into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    tick(&mut machine, 60);
    assert_eq!(answers(&mut machine), 1);
    machine.stalled = Vec::new();
    answer_late(&mut machine);
    assert!(
        machine.engine.is_quiet() && answers(&mut machine) == 0,
        "{}",
        machine.engine.describe()
    );
}
