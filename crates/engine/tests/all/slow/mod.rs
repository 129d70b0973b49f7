//! Slow members: reads are answered from redundancy, and late answers do no harm.

use crate::machine;
mod mute;

use machine::{Machine, PROPERTIES};
use windrow_engine::*;
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_io::{MemberOp, Op, Reply, Request, RequestId};
use windrow_types::{MemberId, VolumeId};

const CODES: [(Redundancy, usize); 4] = [
    (Redundancy::Copies(2), 2),
    (Redundancy::Copies(3), 3),
    (Redundancy::Single, 4),
    (Redundancy::Double, 6),
];
const BLOCKS: u64 = 400;

fn tick(machine: &mut Machine, ms: u64) {
    machine.now_ns += ms * 1_000_000;
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
}

fn filled(redundancy: Redundancy, members: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    (0..BLOCKS).for_each(|lba| machine.write(volume, lba, lba as u8 | 1));
    machine.flush(volume);
    tick(&mut machine, 50);
    machine.completions.clear();
    machine.out.notices.clear();
    (machine, volume)
}

/// Reads single blocks; their numbers are the request ids.
fn ask(machine: &mut Machine, volume: VolumeId, lbas: std::ops::Range<u64>) {
    machine.events.extend(lbas.map(|lba| {
        Event::Request(Request {
            id: RequestId(lba),
            volume,
            op: Op::Read {
                offset: lba * 4096,
                length: 4096,
            },
        })
    }));
    machine.settle();
}

/// Takes the answers, which must be right; returns their number.
fn answers(machine: &mut Machine) -> usize {
    let answers = std::mem::take(&mut machine.completions);
    for answer in &answers {
        match &answer.result {
            Ok(Reply::Data(parts)) => {
                assert_eq!(parts[0][1], answer.id.0 as u8 | 1, "block {}", answer.id.0)
            }
            other => panic!("block {}: {other:?}", answer.id.0),
        }
    }
    answers.len()
}

/// The stalled member answers its outstanding reads.
fn answer_late(machine: &mut Machine) {
    for command in std::mem::take(&mut machine.late) {
        machine.carry_out(command);
    }
    machine.settle();
}

#[test]
fn a_late_read_is_hedged_and_its_late_answer_is_dropped() {
    for (redundancy, members) in CODES {
        for wrong in [false, true] {
            let (mut machine, volume) = filled(redundancy, members);
            machine.stalled = vec![0];
            ask(&mut machine, volume, 0..60);
            let waiting = 60 - answers(&mut machine);
            assert!(waiting > 5, "{redundancy:?}: {waiting} wait for the member");
            tick(&mut machine, 40);
            assert_eq!(answers(&mut machine), 0, "it is not late yet");
            tick(&mut machine, 15);
            assert_eq!(answers(&mut machine), waiting, "{redundancy:?}");
            let status = machine.engine.status();
            assert_eq!(
                (
                    status.member_stats[0].slow_reads,
                    status.member_stats[1].slow_reads
                ),
                (waiting as u64, 0)
            );
            assert!(
                !machine.engine.is_quiet(),
                "the buffers of late reads are still with the member"
            );
            if wrong {
                machine.garble(0);
            }
            answer_late(&mut machine);
            assert!(
                machine.engine.is_quiet() && answers(&mut machine) == 0,
                "{}",
                machine.engine.describe()
            );
            assert!(
                machine.out.notices.is_empty(),
                "a late block is no wrong block: {:?}",
                machine.out.notices
            );
            assert_eq!(machine.engine.status().state, "online");
        }
    }
}

/// A member returned late while others were asked: reused fetch numbers would have got its bytes.
#[test]
fn late_answers_never_reach_other_reads() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    machine.stalled = vec![1];
    for round in 0..8 {
        ask(&mut machine, volume, round * 40..round * 40 + 40);
        tick(&mut machine, 60);
        answers(&mut machine);
        // Half of the late reads return amid new reads.
        let late = machine.late.split_off(machine.late.len() / 2);
        for command in std::mem::replace(&mut machine.late, late) {
            machine.carry_out(command);
        }
    }
    machine.stalled = Vec::new();
    answer_late(&mut machine);
    answers(&mut machine);
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
}

#[test]
fn the_first_verified_answer_counts() {
    let (mut machine, volume) = filled(Redundancy::Double, 6);
    machine.stalled = vec![0];
    ask(&mut machine, volume, 0..40);
    let waiting = 40 - answers(&mut machine);
    machine.held = Some(Vec::new());
    tick(&mut machine, 60);
    let others = machine.held.take().expect("held");
    assert_eq!(
        others.len(),
        waiting * 4,
        "just as many other columns as are needed"
    );
    assert!(others.iter().all(
        |command| matches!(command.op, MemberOp::Read { .. }) && command.member != MemberId(0)
    ));
    answer_late(&mut machine);
    assert_eq!(
        answers(&mut machine),
        waiting,
        "the late member was quicker"
    );
    assert!(!machine.engine.is_quiet());
    others
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    assert!(machine.engine.is_quiet() && answers(&mut machine) == 0);
}

/// The columns of the hedged read are wrong, or it fails in the end: everything that is available
/// is tried then.
#[test]
fn nothing_is_lost_where_a_late_member_and_a_wrong_one_meet() {
    for fails in [false, true] {
        let (mut machine, volume) = filled(Redundancy::Double, 6);
        machine.garble(1);
        machine.stalled = vec![0];
        ask(&mut machine, volume, 0..40);
        tick(&mut machine, 60);
        if fails {
            let start = machine.engine.status().plan.zones[0].start as usize;
            (0..2000).for_each(|row| machine.memory.bad.push((0, start + row * 4096)));
        }
        machine.stalled = Vec::new();
        answer_late(&mut machine);
        assert_eq!(answers(&mut machine), 40);
        tick(&mut machine, 100);
        assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
    }
}

#[test]
fn reads_wait_for_the_member_where_no_other_has_the_block_or_hedging_is_off() {
    for (redundancy, members, bound) in [(Redundancy::None, 2, 50), (Redundancy::Single, 4, 0)] {
        let (mut machine, volume) = filled(redundancy, members);
        machine.command(Control::SetProperties(Properties {
            read_latency_bound_ms: bound,
            ..PROPERTIES
        }));
        machine.stalled = vec![0];
        ask(&mut machine, volume, 0..20);
        let waiting = 20 - answers(&mut machine);
        (0..20).for_each(|_| tick(&mut machine, 1000));
        assert_eq!(answers(&mut machine), 0);
        let late = if bound == 0 { 0 } else { waiting as u64 };
        assert_eq!(
            machine.engine.status().member_stats[0].slow_reads,
            late,
            "each is late once, however long it takes"
        );
        answer_late(&mut machine);
        assert_eq!(answers(&mut machine), waiting);
        assert!(machine.engine.is_quiet());
    }
}

/// Too many hedged reads cost the other members more than they save, unless these answer and the
/// slow one does not.
#[test]
fn only_a_share_of_reads_is_hedged_before_others_have_answered() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    machine.stalled = vec![2];
    ask(&mut machine, volume, 0..BLOCKS);
    let waiting = BLOCKS as usize - answers(&mut machine);
    machine.held = Some(Vec::new());
    tick(&mut machine, 60);
    let mut around = machine.held.take().expect("held");
    assert!(
        around.len() == 64 * 3 && waiting > 64,
        "{} of {waiting}",
        around.len()
    );
    assert_eq!(
        machine.engine.status().member_stats[2].slow_reads,
        waiting as u64,
        "all of them are late"
    );
    // While it has few outstanding reads it does not count as unresponsive.
    let last = around.split_off(63 * 3);
    around
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    assert_eq!(answers(&mut machine), 63);
    last.into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    tick(&mut machine, 1);
    assert_eq!(
        answers(&mut machine),
        waiting - 63,
        "the others are up to it"
    );
    machine.stalled = Vec::new();
    answer_late(&mut machine);
    assert!(machine.engine.is_quiet() && answers(&mut machine) == 0);
}

/// The budget may be used up when a slow member becomes unresponsive, and then no read would ever
/// earn any.
#[test]
fn reads_that_wait_for_budget_proceed_without_other_reads() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    machine.stalled = vec![0];
    ask(&mut machine, volume, 0..60);
    let answered: Vec<u64> = machine
        .completions
        .iter()
        .map(|answer| answer.id.0)
        .collect();
    let of_slow: Vec<u64> = (0..60)
        .filter(|lba| !answered.contains(lba))
        .take(20)
        .collect();
    answer_late(&mut machine);
    answers(&mut machine);
    let mut around = 0;
    while around % of_slow.len() == 0 {
        answer_late(&mut machine);
        of_slow
            .iter()
            .for_each(|lba| ask(&mut machine, volume, *lba..lba + 1));
        tick(&mut machine, 51);
        around += answers(&mut machine);
    }
    assert!(around > 64);
    // From now on it does not answer.
    let waiting = of_slow.len() - around % of_slow.len();
    tick(&mut machine, 9);
    assert_eq!(answers(&mut machine), 0);
    for _ in 0..waiting {
        machine.events.push(Event::Tick(machine.now_ns));
        machine.turn();
        machine.now_ns = machine.out.wake_at_ns.expect("the engine asks for a tick");
        tick(&mut machine, 0);
        assert_eq!(answers(&mut machine), 1, "each in its turn");
    }
    answer_late(&mut machine);
    assert!(
        machine.engine.is_quiet() && answers(&mut machine) == 0,
        "all were answered"
    );
}

/// Clients that wait for answers before they ask again would all end up at the unresponsive member.
#[test]
fn clients_with_few_reads_in_flight_make_progress_with_an_unresponsive_member() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        machine.stalled = vec![0];
        let (mut next, mut total) = (0, 0);
        for _ in 0..40 {
            let room = 200 - (next - total);
            (0..room).for_each(|at| {
                ask(
                    &mut machine,
                    volume,
                    (next + at) % BLOCKS..(next + at) % BLOCKS + 1,
                )
            });
            next += room;
            tick(&mut machine, 55);
            total += answers(&mut machine) as u64;
        }
        assert!(total > 7000, "{redundancy:?}: {total} reads in 40 rounds");
        answer_late(&mut machine);
        assert!(machine.engine.is_quiet());
    }
}

#[test]
fn a_slow_member_is_reported_stays_in_service_and_is_not_waited_for() {
    let (mut machine, volume) = filled(Redundancy::Double, 6);
    machine.stalled = vec![3];
    let mut lba = 0;
    let mut span = |machine: &mut Machine| {
        for _ in 0..60 {
            ask(machine, volume, lba..lba + 10);
            lba = (lba + 10) % BLOCKS;
            tick(machine, 100);
            answer_late(machine);
        }
        answers(machine);
    };
    span(&mut machine);
    assert!(
        machine.out.notices.is_empty(),
        "not yet: {:?}",
        machine.out.notices
    );
    (0..5).for_each(|_| span(&mut machine));
    let slow = |notice: &Notice| matches!(notice, Notice::MemberSlow { member: MemberId(3), reads, slow_reads } if reads >= slow_reads);
    assert_eq!(
        machine
            .out
            .notices
            .iter()
            .filter(|notice| slow(notice))
            .count(),
        1,
        "{:?}",
        machine.out.notices
    );
    let status = machine.engine.status();
    assert_eq!(
        (
            status.members[3].slow,
            status.members[3].state,
            status.members[2].slow
        ),
        (true, "online", false)
    );
    ask(&mut machine, volume, 0..40);
    assert_eq!(answers(&mut machine), 40, "without waiting");
    answer_late(&mut machine);
    machine.stalled = Vec::new();
    (0..5).for_each(|_| span(&mut machine));
    assert!(machine.out.notices.contains(&Notice::MemberNotSlow {
        member: MemberId(3)
    }));
    assert!(!machine.engine.status().members[3].slow && machine.engine.is_quiet());
}
