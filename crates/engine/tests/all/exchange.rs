//! Changes of members while the pool is running: take out, bring back, exchange, spares.

use crate::machine;

use machine::{Machine, pass, state, verify, why, write};
use windrow_engine::*;
use windrow_format::superblock::{
    LABEL_OFFSET, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock,
};
use windrow_geometry::Redundancy;
use windrow_io::{BufPool, MemberError, MemberIo};
use windrow_types::{MemberId, Uuid, VolumeId};

const CODES: [(Redundancy, usize); 4] = [
    (Redundancy::Copies(2), 2),
    (Redundancy::Single, 4),
    (Redundancy::Double, 5),
    (Redundancy::Copies(3), 3),
];
const BLOCKS: u64 = 400;
const NEW: Uuid = Uuid([0xab; 16]);

fn filled(redundancy: Redundancy, members: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..BLOCKS, 1);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    (machine, volume)
}

type Answer = Option<Result<ControlReply, ControlError>>;
const DONE: Answer = Some(Ok(ControlReply::Done));

fn change(machine: &mut Machine, member: usize, change: MemberChange) -> Answer {
    machine.command(Control::Member {
        member: MemberId(member as u8),
        change,
    })
}

/// The newest superblock on a member.
fn superblock_on(machine: &Machine, member: usize) -> Box<Superblock> {
    let slot = |slot: u64| {
        &machine.memory.data[member][(SLOT_OFFSET + slot * SLOT_STRIDE) as usize..][..SLOT_BYTES]
    };
    Box::new(
        (0..SLOT_COUNT)
            .filter_map(|s| Superblock::decode(slot(s)).ok())
            .max_by_key(|s| s.generation)
            .expect("a superblock"),
    )
}

fn take_out(machine: &mut Machine, member: usize) {
    assert_eq!(change(machine, member, MemberChange::TakeOut), DONE);
    assert_eq!(change(machine, member, MemberChange::Settle), DONE);
}

fn bring_back(machine: &mut Machine, member: usize) {
    let superblock = superblock_on(machine, member);
    assert_eq!(
        change(machine, member, MemberChange::BringBack { superblock }),
        DONE
    );
}

fn exchange(machine: &mut Machine, member: usize) {
    machine.memory.data[member].fill(0x77);
    assert_eq!(
        change(
            machine,
            member,
            MemberChange::Exchange {
                uuid: NEW,
                size_bytes: 24 << 20,
                power_safe: false,
                spare: None
            }
        ),
        DONE
    );
}

/// A start with these members absent.
fn without(mut machine: Machine, away: &[usize]) -> Machine {
    assert_eq!(machine.command(Control::Shutdown { export: false }), DONE);
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

/// A start with the maximum number of other members absent that the redundancy covers: all their
/// data must come from the rest.
fn without_others(machine: Machine, member: usize, redundancy: Redundancy) -> Machine {
    let members = machine.memory.data.len();
    let others: Vec<usize> = (0..members)
        .filter(|other| *other != member)
        .take(redundancy.tolerance())
        .collect();
    without(machine, &others)
}

#[test]
fn a_member_that_was_taken_out_comes_back_and_gets_what_changed() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        take_out(&mut machine, 1);
        assert_eq!(
            (state(&machine, 1), machine.engine.status().state),
            ("offline", "degraded")
        );
        assert!(machine.out.notices.contains(&Notice::MemberOffline {
            member: MemberId(1)
        }));
        let before = machine.memory.data[1].clone();
        write(&mut machine, volume, 0..40, 2);
        assert!(machine.memory.data[1] == before, "nothing is written to it");
        bring_back(&mut machine, 1);
        write(&mut machine, volume, 40..60, 3);
        pass(&mut machine, 50);
        let status = machine.engine.status();
        assert_eq!(
            (state(&machine, 1), status.state),
            ("online", "online"),
            "{redundancy:?}"
        );
        assert!(
            (1..BLOCKS * 4096 / 2).contains(&status.rebuild.written_bytes),
            "{redundancy:?}: {} bytes",
            status.rebuild.written_bytes
        );
        let mut machine = without_others(machine, 1, redundancy);
        verify(&mut machine, volume, 0..40, 2);
        verify(&mut machine, volume, 40..60, 3);
        verify(&mut machine, volume, 60..BLOCKS, 1);
    }
}

#[test]
fn what_the_redundancy_does_not_cover_is_not_taken_out() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        let covered = redundancy.tolerance();
        (0..covered).for_each(|member| take_out(&mut machine, member));
        let text = why(change(&mut machine, covered, MemberChange::TakeOut));
        assert!(text.contains("does not cover"), "{text}");
        assert_eq!(state(&machine, covered), "online");
        write(&mut machine, volume, 0..20, 2);
        verify(&mut machine, volume, 0..20, 2);
    }
}

#[test]
fn what_was_taken_out_stays_out_until_it_is_brought_back() {
    let (mut machine, volume) = filled(Redundancy::Double, 5);
    take_out(&mut machine, 3);
    let mut machine = without(machine, &[]);
    assert_eq!(state(&machine, 3), "offline");
    write(&mut machine, volume, 0..30, 2);
    bring_back(&mut machine, 3);
    pass(&mut machine, 50);
    assert_eq!(state(&machine, 3), "online");
    let mut machine = without(machine, &[0, 1]);
    verify(&mut machine, volume, 0..30, 2);
    verify(&mut machine, volume, 30..BLOCKS, 1);
}

#[test]
fn a_new_device_takes_the_slot_of_a_member() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        let text = why(change(
            &mut machine,
            1,
            MemberChange::Exchange {
                uuid: NEW,
                size_bytes: 24 << 20,
                power_safe: false,
                spare: None,
            },
        ));
        assert!(text.contains("not ended"), "{text}");
        take_out(&mut machine, 1);
        let text = why(change(
            &mut machine,
            1,
            MemberChange::Exchange {
                uuid: NEW,
                size_bytes: 4 << 20,
                power_safe: false,
                spare: None,
            },
        ));
        assert!(text.contains("needs"), "{text}");
        exchange(&mut machine, 1);
        write(&mut machine, volume, 0..20, 2);
        pass(&mut machine, 50);
        assert_eq!(
            (state(&machine, 1), machine.engine.status().members[1].uuid),
            ("online", NEW)
        );
        let mut machine = without_others(machine, 1, redundancy);
        verify(&mut machine, volume, 0..20, 2);
        verify(&mut machine, volume, 20..BLOCKS, 1);
    }
}

/// Power loss at any moment of an exchange: the pool starts with or without the new device, and
/// takes no data from it that it does not have yet.
#[test]
fn an_exchange_survives_power_loss_at_any_moment() {
    for carried_out in 0..30 {
        let (mut machine, volume) = filled(Redundancy::Double, 5);
        take_out(&mut machine, 3);
        machine.memory.data[3].fill(0x77);
        machine.held = Some(Vec::new());
        change(
            &mut machine,
            3,
            MemberChange::Exchange {
                uuid: NEW,
                size_bytes: 24 << 20,
                power_safe: false,
                spare: None,
            },
        );
        machine.request(volume, windrow_io::Op::Flush);
        for _ in 0..carried_out {
            machine.settle();
            let held = machine.held.as_mut().expect("held");
            if held.is_empty() {
                break;
            }
            let command = held.remove(0);
            machine.carry_out(command);
        }
        for away in [vec![], vec![0, 1]] {
            let copy = Machine::open(machine.memory.clone());
            let mut copy = if away.is_empty() {
                copy
            } else {
                let mut copy = copy;
                pass(&mut copy, 50);
                if state(&copy, 3) != "online" {
                    continue;
                }
                without(copy, &away)
            };
            verify(&mut copy, volume, 0..BLOCKS, 1);
        }
    }
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_failed() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    let device = machine.memory.add(24 << 20);
    machine.memory.data[device].fill(0x55);
    assert_eq!(
        change(
            &mut machine,
            4,
            MemberChange::AddSpare {
                uuid: NEW,
                size_bytes: 24 << 20
            }
        ),
        DONE
    );
    let status = machine.engine.status();
    assert_eq!((state(&machine, 4), status.state), ("spare", "online"));
    // A spare holds no data, so its absence is no loss.
    machine.memory.present[4] = false;
    let mut machine = without(machine, &[4]);
    assert_eq!(
        (state(&machine, 4), machine.engine.status().state),
        ("spare", "online")
    );

    machine.memory.failing[2] = true;
    write(&mut machine, volume, 0..10, 2);
    assert_eq!(state(&machine, 2), "faulted");
    assert_eq!(change(&mut machine, 2, MemberChange::Settle), DONE);
    machine.memory.data.swap(2, 4);
    machine.memory.failing[2] = false;
    assert_eq!(
        change(
            &mut machine,
            2,
            MemberChange::Exchange {
                uuid: Uuid::default(),
                size_bytes: 0,
                power_safe: false,
                spare: Some(MemberId(4))
            }
        ),
        DONE
    );
    pass(&mut machine, 50);
    assert_eq!(
        (
            state(&machine, 2),
            state(&machine, 4),
            machine.engine.status().members[2].uuid
        ),
        ("online", "removed", NEW)
    );
    // The slot is free for another spare.
    assert_eq!(
        change(
            &mut machine,
            4,
            MemberChange::AddSpare {
                uuid: Uuid([0xcd; 16]),
                size_bytes: 1 << 20
            }
        ),
        DONE
    );
    assert_eq!(change(&mut machine, 4, MemberChange::GiveUp), DONE);
    let text = why(change(&mut machine, 0, MemberChange::GiveUp));
    assert!(text.contains("replace it instead"), "{text}");
    let mut machine = without(machine, &[0, 4]);
    verify(&mut machine, volume, 0..10, 2);
    verify(&mut machine, volume, 10..BLOCKS, 1);
}

/// Regression: a device put in the slot of a spare while the pool was closed became a member in use
/// without a place in any zone. It was rebuilt at once, counted as complete, and no growth gave it
/// a place (simulator, seed 52392).
#[test]
fn no_device_takes_the_place_of_a_spare() {
    let (mut machine, _) = filled(Redundancy::Single, 4);
    machine.memory.add(24 << 20);
    assert_eq!(
        change(
            &mut machine,
            4,
            MemberChange::AddSpare {
                uuid: NEW,
                size_bytes: 24 << 20
            }
        ),
        DONE
    );
    let mut memory = machine.crash().memory;
    let before = memory.data.clone();
    let refused = Engine::replace_member(
        &mut memory,
        &BufPool::new(1 << 20),
        &Machine::options(),
        MemberId(4),
        Uuid([0xcd; 16]),
    );
    assert!(
        refused
            .as_ref()
            .is_err_and(|error| error.to_string().contains("is a spare")),
        "{refused:?}"
    );
    assert!(memory.data == before, "nothing was written");
}

/// A member joins while another is being rebuilt: segments rebuilt for the first alone do not count
/// as rebuilt for both.
#[test]
fn a_second_member_joins_while_the_first_is_rebuilt() {
    for steps in 0..12 {
        let (mut machine, volume) = filled(Redundancy::Double, 5);
        take_out(&mut machine, 1);
        take_out(&mut machine, 3);
        write(&mut machine, volume, 0..BLOCKS, 2);
        machine.memory.data[1].fill(0x77);
        machine.memory.data[3].fill(0x78);
        machine.held = Some(Vec::new());
        let exchange = |uuid| MemberChange::Exchange {
            uuid,
            size_bytes: 24 << 20,
            power_safe: false,
            spare: None,
        };
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: Control::Member {
                member: MemberId(1),
                change: exchange(NEW),
            },
        }));
        // Some rounds of commands of the first rebuild.
        for _ in 0..steps {
            machine.settle();
            for command in machine.held.replace(Vec::new()).unwrap_or_default() {
                machine.carry_out(command);
            }
        }
        let second = Control::Member {
            member: MemberId(3),
            change: exchange(Uuid([0xcd; 16])),
        };
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(2),
            command: second,
        }));
        machine.release();
        pass(&mut machine, 80);
        assert_eq!(
            (state(&machine, 1), state(&machine, 3)),
            ("online", "online"),
            "{steps}"
        );
        let mut machine = without(machine, &[0, 2]);
        verify(&mut machine, volume, 0..BLOCKS, 2);
    }
}

/// A member leaves and returns during its rebuild: segments that may have changed are rebuilt
/// again.
#[test]
fn a_member_leaves_its_rebuild_and_comes_back() {
    for steps in 0..12 {
        let (mut machine, volume) = filled(Redundancy::Single, 4);
        take_out(&mut machine, 2);
        write(&mut machine, volume, 0..BLOCKS, 2);
        exchange(&mut machine, 2);
        machine.held = Some(Vec::new());
        for _ in 0..steps {
            pass(&mut machine, 1);
            for command in machine.held.replace(Vec::new()).unwrap_or_default() {
                machine.carry_out(command);
            }
        }
        let leave = Control::Member {
            member: MemberId(2),
            change: MemberChange::TakeOut,
        };
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(2),
            command: leave,
        }));
        machine.release();
        write(&mut machine, volume, 0..100, 3);
        if state(&machine, 2) == "offline" {
            assert_eq!(change(&mut machine, 2, MemberChange::Settle), DONE);
            bring_back(&mut machine, 2);
        }
        pass(&mut machine, 80);
        assert_eq!(state(&machine, 2), "online", "{steps}");
        let mut machine = without(machine, &[0]);
        verify(&mut machine, volume, 0..100, 3);
        verify(&mut machine, volume, 100..BLOCKS, 2);
    }
}

/// While one member is rebuilt, the other leaves and a third device takes its slot: data written to
/// the second device does not count.
#[test]
fn a_device_that_is_rebuilt_is_exchanged_again() {
    for steps in 0..24 {
        let (mut machine, volume) = filled(Redundancy::Double, 5);
        take_out(&mut machine, 1);
        take_out(&mut machine, 3);
        machine.memory.data[1].fill(0x77);
        machine.memory.data[3].fill(0x78);
        let new = |byte| MemberChange::Exchange {
            uuid: Uuid([byte; 16]),
            size_bytes: 24 << 20,
            power_safe: false,
            spare: None,
        };
        let post = |machine: &mut Machine, member, change| {
            machine.events.push(Event::Control(ControlRequest {
                id: ControlId(2),
                command: Control::Member {
                    member: MemberId(member),
                    change,
                },
            }));
            machine.settle();
        };
        machine.held = Some(Vec::new());
        post(&mut machine, 1, new(0xa1));
        post(&mut machine, 3, new(0xa3));
        let round = |machine: &mut Machine, member: Option<u8>| {
            let (now, later) = machine
                .held
                .take()
                .unwrap_or_default()
                .into_iter()
                .partition(|c| member.is_none_or(|m| c.member.0 == m));
            machine.held = Some(later);
            let now: Vec<windrow_io::MemberCommand> = now;
            now.into_iter()
                .for_each(|command| machine.carry_out(command));
            machine.settle();
        };
        (0..steps).for_each(|_| round(&mut machine, None));
        post(&mut machine, 3, MemberChange::TakeOut);
        // Only its own commands end, and the record of its loss.
        (0..2).for_each(|_| round(&mut machine, Some(3)));
        let superblocks = |c: &windrow_io::MemberCommand| match &c.op {
            windrow_io::MemberOp::Write { offset, .. } => *offset < 1 << 20,
            windrow_io::MemberOp::Flush => true,
            _ => false,
        };
        for _ in 0..4 {
            let (now, later): (Vec<_>, Vec<_>) = machine
                .held
                .take()
                .unwrap_or_default()
                .into_iter()
                .partition(superblocks);
            machine.held = Some(later);
            now.into_iter()
                .for_each(|command| machine.carry_out(command));
            machine.settle();
        }
        machine.control.clear();
        post(&mut machine, 3, MemberChange::Settle);
        assert!(
            machine.control.pop().is_some_and(|c| c.result.is_ok()),
            "{steps}"
        );
        machine.memory.data[3].fill(0x79);
        post(&mut machine, 3, new(0xb3));
        machine.release();
        pass(&mut machine, 80);
        assert_eq!(
            (state(&machine, 1), state(&machine, 3)),
            ("online", "online"),
            "{steps}"
        );
        let mut machine = without(machine, &[0, 2]);
        verify(&mut machine, volume, 0..BLOCKS, 1);
    }
}

/// Regression: a segment that was free at a start is rebuilt on no member. It stayed stale on each
/// member that was exchanged, and a checkpoint has room for four (simulator, seed 981390).
#[test]
fn a_free_segment_is_not_stale_on_completed_members() {
    let (mut machine, volume) = filled(Redundancy::Single, 6);
    (2..4).for_each(|round| write(&mut machine, volume, 0..BLOCKS, round));
    (0..2).for_each(|_| assert_eq!(machine.command(Control::Checkpoint), DONE));
    let mut machine = machine.crash();
    for member in 0..6 {
        take_out(&mut machine, member);
        machine.memory.data[member].fill(0x77);
        let uuid = Uuid([200 + member as u8; 16]);
        assert_eq!(
            change(
                &mut machine,
                member,
                MemberChange::Exchange {
                    uuid,
                    size_bytes: 24 << 20,
                    power_safe: false,
                    spare: None
                }
            ),
            DONE
        );
        pass(&mut machine, 40);
        assert_eq!(state(&machine, member), "online");
    }
    (0..2).for_each(|_| assert_eq!(machine.command(Control::Checkpoint), DONE));
    let mut machine = machine.crash();
    verify(&mut machine, volume, 0..BLOCKS, 3);
}

/// A member leaves during its rebuild, a checkpoint is written while it is absent, and another
/// device comes. The segment table on the members must list again what is stale on it. Otherwise,
/// as nothing has changed in memory, the new device counts as complete after a crash, with no data
/// on it.
#[test]
fn what_is_stale_is_listed_again_when_a_member_comes_back_a_second_time() {
    for brings_back in [false, true] {
        // Small segments: the table has several pages, and a checkpoint writes the changed ones.
        let mut machine = Machine::with_rows_only(Redundancy::Single, 4, 48, 8, 16);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..6000, 1);
        assert_eq!(machine.command(Control::Checkpoint), DONE);
        let new = |byte| MemberChange::Exchange {
            uuid: Uuid([byte; 16]),
            size_bytes: 48 << 20,
            power_safe: false,
            spare: None,
        };
        take_out(&mut machine, 1);
        machine.memory.data[1].fill(0x77);
        // The rebuild makes no progress: another member does not answer its reads.
        machine.stalled = vec![0];
        assert_eq!(change(&mut machine, 1, new(0xa1)), DONE);
        take_out(&mut machine, 1);
        assert_eq!(machine.command(Control::Checkpoint), DONE);
        if brings_back {
            bring_back(&mut machine, 1);
        } else {
            machine.memory.data[1].fill(0x78);
            assert_eq!(change(&mut machine, 1, new(0xb1)), DONE);
        }
        assert_eq!(machine.command(Control::Checkpoint), DONE);
        assert_eq!(state(&machine, 1), "rebuilding");
        let mut machine = machine.crash();
        pass(&mut machine, 80);
        assert_eq!(state(&machine, 1), "online");
        let mut machine = without(machine, &[0]);
        verify(&mut machine, volume, 0..6000, 1);
    }
}

/// A batch sealed without the member and committed after its return must reach it, too.
#[test]
fn batches_in_flight_when_a_member_returns_reach_it() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    take_out(&mut machine, 0);
    machine.held = Some(Vec::new());
    for lba in 0..60 {
        machine.write(volume, lba, (lba * 3 + 2) as u8);
    }
    machine.request(volume, windrow_io::Op::Flush);
    machine.settle();
    let kept = machine.held.take().unwrap_or_default();
    assert!(
        kept.iter()
            .any(|command| matches!(command.op, windrow_io::MemberOp::Write { .. })),
        "batches are in flight"
    );
    bring_back(&mut machine, 0);
    pass(&mut machine, 50);
    // Everything else has ended: only now they arrive.
    kept.into_iter()
        .for_each(|command| machine.carry_out(command));
    pass(&mut machine, 50);
    assert_eq!(state(&machine, 0), "online");
    let mut machine = without(machine, &[1]);
    verify(&mut machine, volume, 0..60, 2);
    verify(&mut machine, volume, 60..BLOCKS, 1);
}

/// The old device of a member that was replaced, and a stranger, are refused.
#[test]
fn another_device_is_not_brought_back() {
    let (mut machine, _) = filled(Redundancy::Single, 4);
    take_out(&mut machine, 2);
    let stranger = superblock_on(&machine, 1);
    let text = why(change(
        &mut machine,
        2,
        MemberChange::BringBack {
            superblock: stranger,
        },
    ));
    assert!(text.contains("not the one"), "{text}");
    let old = superblock_on(&machine, 2);
    exchange(&mut machine, 2);
    pass(&mut machine, 50);
    take_out(&mut machine, 2);
    let text = why(change(
        &mut machine,
        2,
        MemberChange::BringBack { superblock: old },
    ));
    assert!(text.contains("not the one"), "{text}");
}

/// The old device returns after its replacement, and the new one is gone: a start must not refuse
/// the whole pool for it.
#[test]
fn a_device_that_was_replaced_is_not_used_and_does_not_block_a_start() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        take_out(&mut machine, 1);
        let old = machine.memory.data[1].clone();
        exchange(&mut machine, 1);
        write(&mut machine, volume, 0..20, 2);
        pass(&mut machine, 50);
        assert_eq!(
            (
                state(&machine, 1),
                machine.command(Control::Shutdown { export: false })
            ),
            ("online", DONE)
        );
        let new = std::mem::replace(&mut machine.memory.data[1], old.clone());
        // One of two members is not enough to continue without force.
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
            report.notes.iter().any(|note| note.contains("member 1")),
            "{:?}",
            report.notes
        );
        let mut machine = Machine::open_with(machine.memory, &options);
        assert_eq!(
            (state(&machine, 1), machine.engine.status().state),
            ("missing", "degraded")
        );
        write(&mut machine, volume, 30..40, 3);
        assert_eq!(machine.command(Control::Shutdown { export: false }), DONE);
        assert!(
            machine.memory.data[1] == old,
            "{redundancy:?}: not a byte is written to it"
        );
        // The right one is found again.
        machine.memory.data[1] = new;
        let mut machine = Machine::open(machine.memory);
        pass(&mut machine, 50);
        assert_eq!(state(&machine, 1), "online");
        verify(&mut machine, volume, 0..20, 2);
        verify(&mut machine, volume, 30..40, 3);
        verify(&mut machine, volume, 40..BLOCKS, 1);
    }
}

/// Regression: a member counted as complete before that was recorded. After a power loss it was
/// rebuilt again, and data of the member taken out instead was missing.
#[test]
fn a_member_counts_as_complete_when_that_is_recorded() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    take_out(&mut machine, 1);
    exchange(&mut machine, 1);
    machine.held = Some(Vec::new());
    for _ in 0..200 {
        pass(&mut machine, 1);
        let to_superblock = |c: &windrow_io::MemberCommand| matches!(&c.op, windrow_io::MemberOp::Write { offset, .. } if *offset < 1 << 20);
        let (kept, now): (Vec<_>, Vec<_>) = machine
            .held
            .take()
            .unwrap_or_default()
            .into_iter()
            .partition(to_superblock);
        machine.held = Some(kept);
        now.into_iter()
            .for_each(|command| machine.carry_out(command));
    }
    assert!(
        machine.held.as_ref().is_some_and(|held| !held.is_empty()),
        "it waits to be recorded"
    );
    assert!(!machine.out.notices.contains(&Notice::MemberRebuilt {
        member: MemberId(1)
    }));
    let text = why(change(&mut machine, 2, MemberChange::TakeOut));
    assert!(
        text.contains("does not cover") && state(&machine, 1) == "rebuilding",
        "{text}"
    );
    machine.release();
    pass(&mut machine, 2);
    assert_eq!(state(&machine, 1), "online");
    let mut machine = without(machine, &[0]);
    verify(&mut machine, volume, 0..BLOCKS, 1);
}

/// Member and offset.
type Address = (MemberId, u64);

/// A memory that tracks the writes which no flush covers.
struct Cached {
    memory: machine::Memory,
    unflushed: Vec<Address>,
    /// For every write its target, and the writes that a power loss after it may lose.
    writes: Vec<(Address, Vec<Address>)>,
}

impl MemberIo for Cached {
    fn member_count(&self) -> usize {
        self.memory.member_count()
    }
    fn is_present(&self, member: MemberId) -> bool {
        self.memory.is_present(member)
    }
    fn size(&self, member: MemberId) -> u64 {
        self.memory.size(member)
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        self.memory.read(member, offset, buf)
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        self.writes.push(((member, offset), self.unflushed.clone()));
        self.unflushed.push((member, offset));
        self.memory.write(member, offset, buf)
    }
    fn flush(&mut self, member: MemberId) -> Result<(), MemberError> {
        self.unflushed.retain(|(m, _)| *m != member);
        self.memory.flush(member)
    }
}

/// Power loss during an exchange: a member with a superblock and without a label would belong to
/// the pool, and no host would find it.
#[test]
fn a_new_device_has_its_label_before_any_superblock_names_it() {
    for (redundancy, members) in CODES {
        let (mut machine, _) = filled(redundancy, members);
        assert_eq!(
            machine.command(Control::Shutdown { export: false }),
            Some(Ok(ControlReply::Done))
        );
        let mut memory = machine.memory;
        memory.data[1].fill(0);
        // Half of two members is no quorum by itself.
        let options = OpenOptions {
            force: true,
            ..Machine::options()
        };
        let mut io = Cached {
            memory,
            unflushed: Vec::new(),
            writes: Vec::new(),
        };
        Engine::replace_member(&mut io, &BufPool::new(1 << 20), &options, MemberId(1), NEW)
            .expect("replaced");
        let label = (MemberId(1), LABEL_OFFSET);
        assert!(io.writes.iter().any(|(at, _)| *at == label) && io.writes.len() > members);
        for (at, unflushed) in io.writes {
            assert!(
                !unflushed.contains(&label),
                "{redundancy:?}: {at:?} is written before the label is durable"
            );
        }
    }
}

/// A member holds an old image when another one is replaced with the pool closed. If it were
/// recorded as absent since generation 0, every superblock on it would be newer. It would count as
/// used without the pool, and stay out for ever.
#[test]
fn an_older_image_of_a_member_is_rebuilt_after_another_one_was_replaced_in_a_closed_pool() {
    let (mut machine, volume) = filled(Redundancy::Double, 5);
    let old = machine.memory.data[1].clone();
    write(&mut machine, volume, 0..100, 2);
    (0..3).for_each(|_| assert_eq!(machine.command(Control::Checkpoint), DONE));
    machine.memory.data[1] = old;
    machine.memory.data[3].fill(0);
    Engine::replace_member(
        &mut machine.memory,
        &BufPool::new(1 << 20),
        &Machine::options(),
        MemberId(3),
        NEW,
    )
    .expect("replaced");
    let mut machine = machine.crash();
    pass(&mut machine, 80);
    assert_eq!(
        (state(&machine, 1), state(&machine, 3)),
        ("online", "online")
    );
    let mut machine = without(machine, &[0, 2]);
    verify(&mut machine, volume, 0..100, 2);
    verify(&mut machine, volume, 100..BLOCKS, 1);
}

/// The same for a member that was in rebuild during a salvage.
#[test]
fn a_member_in_rebuild_returns_after_a_salvage() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    take_out(&mut machine, 1);
    machine.stalled = vec![0];
    exchange(&mut machine, 1);
    assert_eq!(machine.command(Control::Checkpoint), DONE);
    assert_eq!(state(&machine, 1), "rebuilding");
    Engine::rebuild_map(
        &mut machine.memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork {
            write: true,
            ..Default::default()
        },
        &mut |_| {},
    )
    .expect("rebuilt");
    let mut machine = machine.crash();
    pass(&mut machine, 80);
    assert_eq!(state(&machine, 1), "online");
    let mut machine = without(machine, &[0]);
    verify(&mut machine, volume, 0..BLOCKS, 1);
}

/// A read found a bad block and waited for another member, which did not answer. When it ended, the
/// device with the bad block had been exchanged and the new one rebuilt: the new one was reported
/// as damaged, and its data was rewritten (simulator, seed 10564191). Then the same with a failure
/// of the other member, so that all are asked again.
#[test]
fn damage_on_the_old_device_is_not_attributed_to_the_new_one() {
    for fails in [false, true] {
        let (mut machine, volume) = filled(Redundancy::Single, 4);
        let start = machine.engine.status().plan.zones[0].start as usize;
        let bad = |member| {
            (start..24 << 20)
                .step_by(4096)
                .map(move |at| (member, at))
                .collect()
        };
        machine.memory.bad = bad(0);
        machine.stalled = vec![1];
        machine.completions.clear();
        for lba in 0..6 {
            machine.request(
                volume,
                windrow_io::Op::Read {
                    offset: lba * 4096,
                    length: 4096,
                },
            );
        }
        machine.settle();
        let waits = 6 - machine.completions.len();
        assert!(
            waits >= 2,
            "for member 1: what lies on it, and what lies on member 0"
        );
        machine.stalled.clear();
        take_out(&mut machine, 0);
        machine.memory.bad.clear();
        exchange(&mut machine, 0);
        pass(&mut machine, 80);
        assert_eq!(
            (state(&machine, 0), machine.completions.len()),
            ("online", 6 - waits),
            "rebuilt, and the reads still wait"
        );
        let late = std::mem::take(&mut machine.late);
        if fails {
            // The repeated read of member 0 comes last.
            machine.memory.bad = bad(1);
            machine.stalled = vec![0];
        }
        late.into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.memory.bad.clear();
        machine.settle();
        machine.stalled.clear();
        std::mem::take(&mut machine.late)
            .into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.settle();
        assert!(
            machine.completions.len() == 6 && machine.completions.iter().all(|c| c.result.is_ok()),
            "{fails}"
        );
        let repaired = |notice: &&Notice| {
            matches!(
                notice,
                Notice::Repaired {
                    member: MemberId(0),
                    ..
                }
            )
        };
        assert_eq!(machine.out.notices.iter().find(repaired), None, "{fails}");
    }
}
