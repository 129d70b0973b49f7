//! Labels: a scrub rewrites damaged ones. They are not read while a pool is open, and a device
//! without a label is unknown to the next start.

use crate::machine;

use machine::{Machine, pass, state};
use windrow_engine::*;
use windrow_format::superblock::{FORMAT_VERSION, LABEL_BYTES, LABEL_OFFSET, Label};
use windrow_geometry::Redundancy;
use windrow_io::{MemberCommand, MemberOp};
use windrow_types::{MemberId, Uuid};

const AT: usize = LABEL_OFFSET as usize;

fn label(machine: &Machine, member: usize) -> Option<Label> {
    Label::decode(&machine.memory.data[member][AT..AT + LABEL_BYTES]).ok()
}

fn scrub(machine: &mut Machine) -> ScrubStatus {
    assert_eq!(
        machine.command(Control::Scrub(ScrubCommand::Start {
            unix_s: 5,
            bytes_per_second: 0
        })),
        Some(Ok(ControlReply::Done))
    );
    pass(machine, 200);
    let scrub = machine.engine.status().scrub;
    assert_eq!(scrub.state, ScrubState::Completed);
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
    scrub
}

fn told(machine: &Machine) -> Vec<MemberId> {
    let written = machine.out.notices.iter().filter_map(|notice| {
        if let Notice::LabelWritten { member } = notice {
            Some(*member)
        } else {
            None
        }
    });
    let mut told: Vec<MemberId> = written.collect();
    told.sort();
    told
}

#[test]
fn a_damaged_label_is_rewritten_and_reported_and_a_valid_one_never() {
    let mut machine = Machine::with_journal_devices(Redundancy::Double, 6, 24, 1, false);
    let labels: Vec<Label> = (0..7)
        .map(|member| label(&machine, member).expect("a label"))
        .collect();
    let written = machine.memory.written.clone();
    assert_eq!(
        (scrub(&mut machine).wrong_blocks, told(&machine)),
        (0, vec![])
    );
    // The end of a pass is recorded, on all of them alike.
    let slots: Vec<u64> = machine
        .memory
        .written
        .iter()
        .zip(&written)
        .map(|(after, before)| after - before)
        .collect();
    machine.out.notices.clear();
    // One bit, all of it, an unreadable sector, another device's, another pool's; and that of the
    // journal device.
    machine.memory.data[0][AT + 100] ^= 1;
    machine.memory.data[1][AT..AT + LABEL_BYTES].fill(0);
    machine.memory.bad.push((2, AT + 512));
    machine.memory.data[3][AT..AT + LABEL_BYTES].copy_from_slice(&labels[4].encode());
    machine.memory.data[4][AT..AT + LABEL_BYTES].copy_from_slice(
        &Label {
            pool: Uuid([7; 16]),
            ..labels[4].clone()
        }
        .encode(),
    );
    machine.memory.data[6][AT..AT + LABEL_BYTES].fill(0xff);
    let written = machine.memory.written.clone();
    let found = scrub(&mut machine);
    let mended = [0, 1, 2, 3, 4, 6].map(MemberId);
    assert_eq!(
        (found.wrong_blocks, found.moved_blocks, told(&machine)),
        (6, 0, mended.to_vec())
    );
    for (member, is_of) in labels.iter().enumerate() {
        assert_eq!(label(&machine, member).as_ref(), Some(is_of));
        let more = (machine.memory.written[member] - written[member]).saturating_sub(slots[member]);
        assert_eq!(
            more,
            if mended.contains(&MemberId(member as u8)) {
                LABEL_BYTES as u64
            } else {
                0
            },
            "member {member}"
        );
    }
    machine.out.notices.clear();
    assert_eq!(
        (scrub(&mut machine).wrong_blocks, told(&machine)),
        (0, vec![])
    );
    // The counters of members agree with their writes.
    machine.engine.self_check().expect("consistent");
}

/// Its slot is a hint, and its name that of the creation.
#[test]
fn a_label_with_another_slot_or_name_is_right() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let other = Label {
        member: MemberId(9),
        pool_name: "former".into(),
        ..label(&machine, 1).expect("a label")
    };
    machine.memory.data[1][AT..AT + LABEL_BYTES].copy_from_slice(&other.encode());
    assert_eq!(
        (scrub(&mut machine).wrong_blocks, label(&machine, 1)),
        (0, Some(other))
    );
}

/// A member that fails the write is out of service, and the scrub completes.
#[test]
fn a_member_that_takes_no_label_has_failed() {
    let mut machine = Machine::with(Redundancy::Double, 5, 24, 100);
    machine.memory.data[3][AT] ^= 1;
    machine.memory.failing[3] = true;
    let found = scrub(&mut machine);
    assert_eq!((found.wrong_blocks, told(&machine)), (0, vec![]));
    assert!(machine.out.notices.iter().any(|notice| matches!(
        notice,
        Notice::MemberFailed {
            member: MemberId(3),
            ..
        }
    )));
    assert_eq!(label(&machine, 3), None);
}

/// A member that is taken out while its label is read is not written any more: it may belong to
/// another pool.
#[test]
fn a_member_that_is_taken_out_meanwhile_gets_no_label() {
    let mut machine = Machine::with(Redundancy::Double, 5, 24, 100);
    machine.memory.data[3][AT] ^= 1;
    let command = Control::Scrub(ScrubCommand::Start {
        unix_s: 5,
        bytes_per_second: 0,
    });
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(8),
        command,
    }));
    let is_label = |command: &MemberCommand| {
        command.member == MemberId(3)
            && matches!(
                command.op,
                MemberOp::Read {
                    offset: LABEL_OFFSET,
                    ..
                }
            )
    };
    let mut was_read = false;
    while machine.engine.status().scrub.state != ScrubState::Completed {
        machine.now_ns += 1_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.engine.apply(&mut machine.events, &mut machine.out);
        let commands = std::mem::take(&mut machine.out.commands);
        if commands.iter().any(is_label) {
            was_read = true;
            let command = Control::Member {
                member: MemberId(3),
                change: MemberChange::TakeOut,
            };
            machine.events.push(Event::Control(ControlRequest {
                id: ControlId(9),
                command,
            }));
        }
        commands
            .into_iter()
            .for_each(|command| machine.carry_out(command));
        for mut job in std::mem::take(&mut machine.out.jobs) {
            job.run();
            machine.events.push(Event::Job(job));
        }
    }
    assert_eq!(
        (
            was_read,
            state(&machine, 3),
            told(&machine),
            label(&machine, 3)
        ),
        (true, "offline", vec![], None)
    );
    pass(&mut machine, 200);
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
}

/// A pool with a spare of identifier 77 in the returned slot; its label is not written yet.
fn with_spare() -> (Machine, usize) {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let slot = machine.memory.add(24 << 20);
    let change = MemberChange::AddSpare {
        uuid: Uuid([77; 16]),
        size_bytes: 24 << 20,
    };
    assert_eq!(
        machine.command(Control::Member {
            member: MemberId(slot as u8),
            change
        }),
        Some(Ok(ControlReply::Done))
    );
    (machine, slot)
}

/// A spare holds only its label, and is not accessed before it is needed. One whose label was lost
/// was silently no spare after the next start.
#[test]
fn the_label_of_a_spare_is_rewritten_and_a_spare_that_rejects_it_is_reported() {
    let (mut machine, slot) = with_spare();
    // The host would have written it.
    assert_eq!(
        (scrub(&mut machine).wrong_blocks, told(&machine)),
        (1, vec![MemberId(slot as u8)])
    );
    assert_eq!(
        label(&machine, slot).map(|label| label.member_uuid),
        Some(Uuid([77; 16]))
    );
    machine.out.notices.clear();
    assert_eq!(
        (scrub(&mut machine).wrong_blocks, told(&machine)),
        (0, vec![])
    );
    machine.memory.data[slot][AT] ^= 1;
    machine.memory.failing[slot] = true;
    assert_eq!(
        (scrub(&mut machine).wrong_blocks, told(&machine)),
        (0, vec![])
    );
    assert!(machine.out.notices.contains(&Notice::SpareFailed {
        member: MemberId(slot as u8)
    }));
    assert!(
        (0..4).all(|member| state(&machine, member) == "online")
            && state(&machine, slot) == "spare"
    );
}

/// A drive that two hosts reach is a spare here, and was added to another pool there. A scrub must
/// not write its label over that pool's.
#[test]
fn the_label_of_another_pool_on_a_spare_is_left_alone() {
    let (mut machine, slot) = with_spare();
    let theirs = Label {
        version: FORMAT_VERSION,
        pool: Uuid([55; 16]),
        pool_name: "theirs".into(),
        member_uuid: Uuid([66; 16]),
        member: MemberId(2),
    };
    machine.memory.data[slot][AT..AT + LABEL_BYTES].copy_from_slice(&theirs.encode());
    assert_eq!(
        (scrub(&mut machine).wrong_blocks, told(&machine)),
        (0, vec![])
    );
    assert_eq!(
        label(&machine, slot).map(|label| label.pool_name),
        Some("theirs".to_owned())
    );
    assert!(machine.out.notices.contains(&Notice::SpareFailed {
        member: MemberId(slot as u8)
    }));
    assert!(machine.engine.is_quiet(), "{}", machine.engine.describe());
}

/// A spare that is removed while its label is written: its device is released when that has ended.
/// (The host erases the label then, and the write would bring it back.)
#[test]
fn a_spare_that_goes_is_settled_when_its_label_is_written() {
    let (mut machine, slot) = with_spare();
    let spare = MemberId(slot as u8);
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(8),
        command: Control::Scrub(ScrubCommand::Start {
            unix_s: 5,
            bytes_per_second: 0,
        }),
    }));
    let mut held = None;
    while held.is_none() {
        machine.now_ns += 1_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.engine.apply(&mut machine.events, &mut machine.out);
        for command in std::mem::take(&mut machine.out.commands) {
            match command.op {
                MemberOp::Write {
                    offset: LABEL_OFFSET,
                    ..
                } if command.member == spare => held = Some(command),
                _ => machine.carry_out(command),
            }
        }
        for mut job in std::mem::take(&mut machine.out.jobs) {
            job.run();
            machine.events.push(Event::Job(job));
        }
    }
    machine.out.control.clear();
    assert_eq!(
        machine.command(Control::Member {
            member: spare,
            change: MemberChange::GiveUp
        }),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        machine.command(Control::Member {
            member: spare,
            change: MemberChange::Settle
        }),
        None,
        "its label is being written"
    );
    machine.carry_out(held.expect("the write"));
    machine.settle();
    assert_eq!(
        machine.control.pop().map(|answer| answer.result),
        Some(Ok(ControlReply::Done))
    );
    pass(&mut machine, 200);
    assert!(
        told(&machine).is_empty() && machine.engine.is_quiet(),
        "{}",
        machine.engine.describe()
    );
}
