//! A member in service is replaced: it is used until the new device is a complete copy of it
//! (docs/internals/replace.md).

use crate::machine;

use machine::{Machine, Memory, pass, state, verify, why, write};
use windrow_engine::*;
use windrow_geometry::Redundancy;
use windrow_io::Op;
use windrow_types::{MemberId, Uuid, VolumeId};

const CODES: [(Redundancy, usize); 4] = [
    (Redundancy::Copies(2), 2),
    (Redundancy::Single, 4),
    (Redundancy::Double, 5),
    (Redundancy::Copies(3), 3),
];
const BLOCKS: u64 = 400;
const NEW: Uuid = Uuid([0xab; 16]);
const SIZE: u64 = 24 << 20;
/// The member that is replaced.
const MEMBER: usize = 1;

type Answer = Option<Result<ControlReply, ControlError>>;
const DONE: Answer = Some(Ok(ControlReply::Done));

fn filled(redundancy: Redundancy, members: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..BLOCKS, 1);
    (machine, volume)
}

fn change(machine: &mut Machine, member: usize, change: MemberChange) -> Answer {
    machine.command(Control::Member {
        member: MemberId(member as u8),
        change,
    })
}

fn prepare(machine: &mut Machine, spare: usize) -> Answer {
    change(
        machine,
        MEMBER,
        MemberChange::Prepare {
            spare: MemberId(spare as u8),
        },
    )
}

/// Makes a new device, in a slot of its own, a copy of the member.
fn begin(machine: &mut Machine) -> usize {
    let spare = machine.memory.add(SIZE as usize);
    machine.memory.data[spare].fill(0x77);
    assert_eq!(
        change(
            machine,
            spare,
            MemberChange::AddSpare {
                uuid: NEW,
                size_bytes: SIZE
            }
        ),
        DONE
    );
    assert_eq!(prepare(machine, spare), DONE);
    spare
}

fn is_ready(machine: &Machine, spare: usize) -> bool {
    machine.engine.status().members[spare].replacement_ready
}

/// Waits until it is copied.
fn copy(machine: &mut Machine, spare: usize) {
    for _ in 0..100 {
        if is_ready(machine, spare) {
            return;
        }
        pass(machine, 1);
    }
    panic!("it does not become a copy: {}", machine.engine.describe());
}

/// Swaps the two devices, as the host does it. The old one is in the spare's slot then, and nothing
/// is sent to it.
fn exchange(machine: &mut Machine, spare: usize) {
    assert_eq!(change(machine, MEMBER, MemberChange::Switch), DONE);
    machine.memory.data.swap(MEMBER, spare);
    assert_eq!(change(machine, MEMBER, MemberChange::Switched), DONE);
}

fn begun_and_copied(redundancy: Redundancy, members: usize) -> (Machine, VolumeId, usize) {
    let (mut machine, volume) = filled(redundancy, members);
    let spare = begin(&mut machine);
    copy(&mut machine, spare);
    (machine, volume, spare)
}

/// A start after a power loss: each device is found by its identifier, in whatever slot it was.
fn restarted(mut memory: Memory, spare: usize) -> Machine {
    let ruling = memory.superblock().members[MEMBER].uuid;
    if memory.superblock_of(MEMBER).member_uuid != ruling {
        memory.data.swap(MEMBER, spare);
    }
    assert_eq!(
        memory.superblock_of(MEMBER).member_uuid,
        ruling,
        "the member's device is there"
    );
    memory.present[spare] = ruling != NEW;
    Machine::open(memory)
}

/// A start with the maximum number of other members absent that the redundancy covers: their data
/// comes from the rest, the member's device included.
fn without_others(mut machine: Machine, redundancy: Redundancy) -> Machine {
    assert_eq!(machine.command(Control::Shutdown { export: false }), DONE);
    let others = (0..machine.memory.data.len())
        .filter(|other| *other != MEMBER)
        .take(redundancy.tolerance());
    others
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|other| machine.memory.present[other] = false);
    let options = OpenOptions {
        force: true,
        ..Machine::options()
    };
    Machine::open_with(machine.memory, &options)
}

fn has_said(machine: &Machine, said: impl Fn(&Notice) -> bool) -> bool {
    machine.out.notices.iter().any(said)
}

#[test]
fn a_member_is_used_until_the_new_device_has_its_place() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = filled(redundancy, members);
        let spare = begin(&mut machine);
        let status = machine.engine.status();
        assert_eq!(
            (
                state(&machine, MEMBER),
                state(&machine, spare),
                status.state
            ),
            ("online", "spare", "online"),
            "{redundancy:?}"
        );
        assert_eq!(
            (
                status.members[spare].replaces,
                status.members[spare].is_shadow
            ),
            (Some(MemberId(MEMBER as u8)), true)
        );
        assert!(!is_ready(&machine, spare), "nothing is copied yet");
        let before = machine.memory.written[MEMBER];
        write(&mut machine, volume, 0..40, 2);
        assert!(
            machine.memory.written[MEMBER] > before,
            "the member gets what is new"
        );
        copy(&mut machine, spare);
        write(&mut machine, volume, 40..60, 3);
        assert!(has_said(&machine, |notice| matches!(
            notice,
            Notice::ReplacementReady { .. }
        )));
        exchange(&mut machine, spare);
        let status = machine.engine.status();
        assert_eq!(
            (
                state(&machine, MEMBER),
                state(&machine, spare),
                status.state
            ),
            ("online", "removed", "online"),
            "{redundancy:?}"
        );
        assert_eq!(
            (status.members[MEMBER].uuid, status.members[spare].replaces),
            (NEW, None)
        );
        assert!(has_said(&machine, |notice| matches!(
            notice,
            Notice::Replaced { .. }
        )));
        assert!(!has_said(&machine, |notice| matches!(
            notice,
            Notice::MemberRebuilding { .. } | Notice::MemberFailed { .. }
        )));
        let old = machine.memory.data[spare].clone();
        write(&mut machine, volume, 60..80, 4);
        assert!(
            machine.memory.data[spare] == old,
            "the old device gets nothing any more"
        );
        machine.memory.present[spare] = false;
        let mut machine = without_others(machine, redundancy);
        for (lbas, round) in [(0..40, 2), (40..60, 3), (60..80, 4), (80..BLOCKS, 1)] {
            verify(&mut machine, volume, lbas, round);
        }
    }
}

/// The purpose of all of it: a RAID-5 keeps its redundancy while a member is replaced.
#[test]
fn another_member_is_lost_in_the_middle_and_everything_is_readable() {
    for lost in [0, 2, 3] {
        let (mut machine, volume) = filled(Redundancy::Single, 4);
        let spare = begin(&mut machine);
        assert!(!is_ready(&machine, spare));
        machine.memory.failing[lost] = true;
        write(&mut machine, volume, 0..20, 2);
        assert_eq!(
            (state(&machine, lost), state(&machine, MEMBER)),
            ("faulted", "online")
        );
        verify(&mut machine, volume, 0..20, 2);
        verify(&mut machine, volume, 20..BLOCKS, 1);
        copy(&mut machine, spare);
        exchange(&mut machine, spare);
        verify(&mut machine, volume, 20..BLOCKS, 1);
        machine.memory.present[lost] = false;
        let mut machine = restarted(machine.memory, spare);
        verify(&mut machine, volume, 0..20, 2);
        verify(&mut machine, volume, 20..BLOCKS, 1);
    }
}

#[test]
fn a_new_device_that_fails_costs_nothing() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    let spare = begin(&mut machine);
    machine.memory.failing[spare] = true;
    machine.completions.clear();
    write(&mut machine, volume, 0..20, 2);
    assert!(
        machine
            .completions
            .iter()
            .all(|completion| completion.result.is_ok())
    );
    let status = machine.engine.status();
    assert_eq!(
        (
            status.state,
            state(&machine, MEMBER),
            state(&machine, spare)
        ),
        ("online", "online", "spare")
    );
    assert_eq!(
        (
            status.members[spare].replaces,
            status.members[spare].is_shadow
        ),
        (None, false)
    );
    assert!(has_said(&machine, |notice| matches!(
        notice,
        Notice::ReplacementEnded { .. }
    )));
    let mut machine = restarted(machine.memory, spare);
    assert_eq!(
        machine.engine.status().members[spare].replaces,
        None,
        "it does not begin again by itself"
    );
    verify(&mut machine, volume, 0..20, 2);
    verify(&mut machine, volume, 20..BLOCKS, 1);
}

#[test]
fn the_spare_takes_the_place_of_a_member_that_fails_in_the_middle() {
    for copied in [false, true] {
        let (mut machine, volume) = filled(Redundancy::Single, 4);
        let spare = begin(&mut machine);
        if copied {
            copy(&mut machine, spare);
        }
        machine.memory.failing[MEMBER] = true;
        write(&mut machine, volume, 0..20, 2);
        assert_eq!(
            (state(&machine, MEMBER), state(&machine, spare)),
            ("faulted", "spare")
        );
        assert!(
            why(change(&mut machine, MEMBER, MemberChange::Switch)).contains("nothing is ready")
        );
        assert_eq!(change(&mut machine, MEMBER, MemberChange::Settle), DONE);
        machine.memory.failing[MEMBER] = false;
        machine.memory.data[spare].fill(0);
        machine.memory.data.swap(MEMBER, spare);
        let spare = MemberId(spare as u8);
        let taken = MemberChange::Exchange {
            uuid: Uuid::default(),
            size_bytes: 0,
            power_safe: false,
            spare: Some(spare),
        };
        assert_eq!(change(&mut machine, MEMBER, taken), DONE);
        pass(&mut machine, 60);
        assert_eq!(
            (
                state(&machine, MEMBER),
                state(&machine, spare.index()),
                machine.engine.status().members[MEMBER].uuid
            ),
            ("online", "removed", NEW)
        );
        machine.memory.present[spare.index()] = false;
        let mut machine = without_others(machine, Redundancy::Single);
        verify(&mut machine, volume, 0..20, 2);
        verify(&mut machine, volume, 20..BLOCKS, 1);
    }
}

#[test]
fn a_replacement_is_cancelled() {
    for copied in [false, true] {
        let (mut machine, volume) = filled(Redundancy::Single, 4);
        let spare = begin(&mut machine);
        if copied {
            copy(&mut machine, spare);
        }
        assert_eq!(change(&mut machine, spare, MemberChange::GiveUp), DONE);
        assert_eq!(
            (state(&machine, MEMBER), state(&machine, spare)),
            ("online", "removed")
        );
        let device = machine.memory.data[spare].clone();
        write(&mut machine, volume, 0..20, 2);
        pass(&mut machine, 40);
        assert!(
            machine.memory.data[spare] == device,
            "nothing is written to it any more"
        );
        // Another one can begin, in the same slot.
        assert_eq!(
            change(
                &mut machine,
                spare,
                MemberChange::AddSpare {
                    uuid: NEW,
                    size_bytes: SIZE
                }
            ),
            DONE
        );
        assert_eq!(prepare(&mut machine, spare), DONE);
        copy(&mut machine, spare);
        exchange(&mut machine, spare);
        machine.memory.present[spare] = false;
        let mut machine = without_others(machine, Redundancy::Single);
        verify(&mut machine, volume, 0..20, 2);
        verify(&mut machine, volume, 20..BLOCKS, 1);
    }
}

/// Writes wait for a copy that does not answer. After it is cancelled they do not, and its content
/// belongs to no member.
#[test]
fn an_unresponsive_copy_is_cancelled() {
    let (mut machine, volume) = filled(Redundancy::Single, 4);
    let spare = begin(&mut machine);
    machine.mute = vec![spare];
    machine.completions.clear();
    machine.request(
        volume,
        Op::Write {
            offset: 0,
            data: windrow_io::Payload::copy_of(&[7; 4096]),
            fua: true,
        },
    );
    assert!(!machine.wait_for(1), "it waits for both copies");
    assert_eq!(change(&mut machine, spare, MemberChange::GiveUp), DONE);
    assert!(machine.wait_for(1) && machine.completions[0].result.is_ok());
    assert_eq!(
        (state(&machine, MEMBER), state(&machine, spare)),
        ("online", "removed")
    );
    assert!(machine.engine.status().members[spare].unanswered > 0);
    let refused = change(
        &mut machine,
        spare,
        MemberChange::AddSpare {
            uuid: NEW,
            size_bytes: SIZE,
        },
    );
    assert!(why(refused).contains("have not ended"));
    machine.mute.clear();
    std::mem::take(&mut machine.late)
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    assert_eq!(
        change(
            &mut machine,
            spare,
            MemberChange::AddSpare {
                uuid: NEW,
                size_bytes: SIZE
            }
        ),
        DONE
    );
    verify(&mut machine, volume, 1..BLOCKS, 1);
}

/// While the devices are exchanged, nothing that depends on them is answered; when the exchange is
/// aborted everything continues.
#[test]
fn an_aborted_switch_loses_nothing() {
    let (mut machine, volume, spare) = begun_and_copied(Redundancy::Single, 4);
    assert_eq!(change(&mut machine, MEMBER, MemberChange::Switch), DONE);
    let written = machine.memory.written[MEMBER];
    machine.completions.clear();
    machine.request(
        volume,
        Op::Write {
            offset: 0,
            data: windrow_io::Payload::copy_of(&[7; 4096]),
            fua: true,
        },
    );
    assert!(!machine.wait_for(1), "it waits until the device is there");
    assert_eq!(machine.memory.written[MEMBER], written);
    for (member, refused) in [
        (MEMBER, MemberChange::TakeOut),
        (spare, MemberChange::GiveUp),
    ] {
        assert!(why(change(&mut machine, member, refused)).contains("try again"));
    }
    assert_eq!(change(&mut machine, MEMBER, MemberChange::Thaw), DONE);
    assert!(machine.wait_for(1) && machine.completions[0].result.is_ok());
    assert!(is_ready(&machine, spare));
    exchange(&mut machine, spare);
    let mut machine = without_others(machine, Redundancy::Single);
    assert_eq!(machine.byte(volume, 0), 7);
    verify(&mut machine, volume, 1..BLOCKS, 1);
}

/// A column waits for its turn at the new device, so only the old one has received it. It goes to
/// the new one when that takes the slot.
#[test]
fn writes_only_on_the_old_device_go_to_the_new_one() {
    let (machine, volume) = filled(Redundancy::Single, 4);
    // Few commands are in flight at a member, the others wait.
    let limits = Limits {
        foreground_window_bytes: 0,
        ..Machine::options().limits
    };
    let mut machine = Machine::open_with(
        machine.memory,
        &OpenOptions {
            limits,
            ..Machine::options()
        },
    );
    let spare = begin(&mut machine);
    copy(&mut machine, spare);
    machine.mute = vec![spare];
    let prompt = |machine: &mut Machine, lba: u64| {
        machine.write(volume, lba, (lba * 3 + 2) as u8);
        machine.request(volume, Op::Flush);
        machine.now_ns += 1000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.settle();
    };
    (0..60).for_each(|lba| prompt(&mut machine, lba));
    let (on_old, got) = (machine.memory.written[MEMBER], machine.late.len());
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(7),
        command: Control::Member {
            member: MemberId(MEMBER as u8),
            change: MemberChange::Switch,
        },
    }));
    machine.settle();
    assert!(
        machine.control.is_empty(),
        "commands to the new device have not ended"
    );
    machine.mute.clear();
    let on_new = machine.memory.written[spare];
    std::mem::take(&mut machine.late)
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    assert_eq!(
        machine.control.pop().map(|control| control.result),
        Some(Ok(ControlReply::Done)),
        "{got} commands have ended"
    );
    machine.memory.data.swap(MEMBER, spare);
    assert_eq!(
        (
            machine.memory.written[MEMBER],
            machine.memory.written[spare] > on_new
        ),
        (on_old, true)
    );
    assert_eq!(change(&mut machine, MEMBER, MemberChange::Switched), DONE);
    assert!(
        machine.memory.written[MEMBER] > on_old + 4096,
        "the new device got what waited"
    );
    machine.flush(volume);
    machine.memory.present[spare] = false;
    let mut machine = without_others(machine, Redundancy::Single);
    verify(&mut machine, volume, 0..60, 2);
    verify(&mut machine, volume, 60..BLOCKS, 1);
}

/// Power loss after each step. The old device is the member until a generation names the new one;
/// then the copy begins again, on an empty device.
#[test]
fn a_restart_begins_again_or_finds_the_new_device() {
    for steps in 0..7 {
        let (mut machine, volume) = filled(Redundancy::Single, 4);
        let spare = machine.memory.add(SIZE as usize);
        assert_eq!(
            change(
                &mut machine,
                spare,
                MemberChange::AddSpare {
                    uuid: NEW,
                    size_bytes: SIZE
                }
            ),
            DONE
        );
        for step in 0..steps {
            match step {
                0 => assert_eq!(prepare(&mut machine, spare), DONE),
                1 => write(&mut machine, volume, 0..20, 2),
                2 => copy(&mut machine, spare),
                3 => assert_eq!(change(&mut machine, MEMBER, MemberChange::Switch), DONE),
                4 => machine.memory.data.swap(MEMBER, spare),
                _ => assert_eq!(change(&mut machine, MEMBER, MemberChange::Switched), DONE),
            }
        }
        let mut machine = restarted(machine.memory, spare);
        let is_new = machine.engine.status().members[MEMBER].uuid == NEW;
        assert_eq!(
            (is_new, state(&machine, MEMBER)),
            (steps == 6, "online"),
            "{steps} steps"
        );
        if !is_new {
            let slot = &machine.engine.status().members[spare];
            assert_eq!(
                (slot.replaces.is_some(), slot.is_shadow),
                (steps > 0, false),
                "{steps} steps"
            );
            machine.memory.data[spare].fill(0);
            assert_eq!(prepare(&mut machine, spare), DONE);
            copy(&mut machine, spare);
            exchange(&mut machine, spare);
        }
        machine.memory.present[spare] = false;
        let mut machine = without_others(machine, Redundancy::Single);
        verify(&mut machine, volume, 0..20, if steps > 1 { 2 } else { 1 });
        verify(&mut machine, volume, 20..BLOCKS, 1);
    }
}

/// Power loss after each single command around the switch, while data is written and flushed: data
/// of an answered flush is kept, with all members and with one absent.
#[test]
fn power_loss_anywhere_around_the_switch() {
    for carried_out in (0..60).step_by(4) {
        let (mut machine, volume, spare) = begun_and_copied(Redundancy::Single, 4);
        machine.held = Some(Vec::new());
        let member = MemberId(MEMBER as u8);
        let ask = |machine: &mut Machine, id: u64, change| {
            machine.events.push(Event::Control(ControlRequest {
                id: ControlId(id),
                command: Control::Member { member, change },
            }))
        };
        let mut flushed = 0;
        machine.write(volume, 0, 92);
        machine.flush(volume);
        ask(&mut machine, 7, MemberChange::Switch);
        machine.completions.clear();
        let mut left = carried_out;
        loop {
            machine.settle();
            if machine
                .control
                .pop()
                .is_some_and(|control| control.id == ControlId(7) && control.result.is_ok())
            {
                machine.memory.data.swap(MEMBER, spare);
                ask(&mut machine, 8, MemberChange::Switched);
                (1..20).for_each(|lba| machine.write(volume, lba, 92));
                machine.flush(volume);
                continue;
            }
            flushed = flushed.max(
                machine
                    .completions
                    .iter()
                    .filter(|completion| completion.result.is_ok())
                    .count(),
            );
            let held = machine.held.as_mut().expect("held");
            if left == 0 || held.is_empty() {
                break;
            }
            left -= 1;
            // (The last one first, now and then.)
            let at = if carried_out % 8 == 0 {
                0
            } else {
                held.len() - 1
            };
            let command = held.remove(at);
            machine.carry_out(command);
        }
        // One answer each for the first flush, the writes, and the flush after them.
        let second = flushed >= 21;
        for away in [None, Some(2)] {
            let mut copy = restarted(machine.memory.clone(), spare);
            if let Some(away) = away {
                assert_eq!(copy.command(Control::Shutdown { export: false }), DONE);
                copy.memory.present[away] = false;
                copy = Machine::open(copy.memory);
            }
            if second {
                (1..20).for_each(|lba| {
                    assert_eq!(
                        copy.byte(volume, lba),
                        92,
                        "{carried_out} commands, {away:?} away, block {lba}"
                    )
                });
            }
            verify(&mut copy, volume, 20..BLOCKS, 1);
        }
    }
}

/// Durable records of the journal are on the new device as well, which serves them from the switch
/// on.
#[test]
fn records_of_the_journal_go_to_both() {
    for member in [0, MEMBER, 2, 3] {
        let mut machine = Machine::journalled(Redundancy::Single, 4, 24, 1 << 20);
        let volume = machine.volume(8 << 20);
        let sync = |machine: &mut Machine, lbas: std::ops::Range<u64>| {
            lbas.for_each(|lba| write(machine, volume, lba..lba + 1, 1))
        };
        sync(&mut machine, 0..10);
        let spare = machine.memory.add(SIZE as usize);
        let of = |machine: &mut Machine, asked| change(machine, member, asked);
        assert_eq!(
            change(
                &mut machine,
                spare,
                MemberChange::AddSpare {
                    uuid: NEW,
                    size_bytes: SIZE
                }
            ),
            DONE
        );
        assert_eq!(
            of(
                &mut machine,
                MemberChange::Prepare {
                    spare: MemberId(spare as u8)
                }
            ),
            DONE
        );
        sync(&mut machine, 10..20);
        copy(&mut machine, spare);
        sync(&mut machine, 20..30);
        assert_eq!(of(&mut machine, MemberChange::Switch), DONE);
        machine.memory.data.swap(member, spare);
        assert_eq!(of(&mut machine, MemberChange::Switched), DONE);
        machine.memory.present[spare] = false;
        let counted = |machine: &Machine| {
            machine
                .engine
                .status()
                .member_stats
                .iter()
                .map(|stats| stats.written.journal)
                .sum::<u64>()
        };
        let before = counted(&machine);
        sync(&mut machine, 30..40);
        assert!(
            counted(&machine) > before,
            "flushes are served by the journal"
        );
        for away in (0..4).filter(|away| *away != member) {
            let mut memory = machine.memory.clone();
            memory.present[away] = false;
            verify(&mut Machine::open(memory), volume, 0..40, 1);
        }
    }
}

#[test]
fn what_does_not_go_with_a_replacement_is_refused() {
    let (mut machine, _) = filled(Redundancy::Single, 4);
    let spare = begin(&mut machine);
    let other = machine.memory.add(SIZE as usize);
    assert_eq!(
        change(
            &mut machine,
            other,
            MemberChange::AddSpare {
                uuid: Uuid([0xcd; 16]),
                size_bytes: SIZE
            }
        ),
        DONE
    );
    let refused = change(
        &mut machine,
        2,
        MemberChange::Prepare {
            spare: MemberId(other as u8),
        },
    );
    assert!(why(refused).contains("another replacement has not ended"));
    for refused in [
        Control::Grow {
            members: vec![MemberId(other as u8)],
        },
        Control::Remove {
            member: MemberId(3),
        },
    ] {
        assert!(
            matches!(machine.command(refused), Some(Err(ControlError::Invalid(why))) if why.contains("being replaced"))
        );
    }
    assert!(
        why(change(
            &mut machine,
            spare,
            MemberChange::Serve {
                granule: 512,
                power_safe: false
            }
        ))
        .contains("about to take the place")
    );
    // The same after a restart, until it has begun again.
    let mut machine = restarted(machine.memory, spare);
    let refused = change(
        &mut machine,
        2,
        MemberChange::Prepare {
            spare: MemberId(other as u8),
        },
    );
    assert!(why(refused).contains("another replacement has not ended"));
    // Another device has taken the member's slot: that one is not to be replaced.
    assert_eq!(change(&mut machine, MEMBER, MemberChange::TakeOut), DONE);
    assert_eq!(change(&mut machine, MEMBER, MemberChange::Settle), DONE);
    let taken = MemberChange::Exchange {
        uuid: Uuid([0xee; 16]),
        size_bytes: SIZE,
        power_safe: false,
        spare: None,
    };
    assert_eq!(change(&mut machine, MEMBER, taken), DONE);
    assert_eq!(machine.engine.status().members[spare].replaces, None);
    // Too small, no spare, not in service.
    let small = machine.memory.add(4 << 20);
    assert_eq!(
        change(
            &mut machine,
            small,
            MemberChange::AddSpare {
                uuid: Uuid([0xef; 16]),
                size_bytes: 4 << 20
            }
        ),
        DONE
    );
    let ask = |machine: &mut Machine, member, spare: usize| {
        why(change(
            machine,
            member,
            MemberChange::Prepare {
                spare: MemberId(spare as u8),
            },
        ))
    };
    assert!(ask(&mut machine, 2, small).contains("needs"));
    assert!(ask(&mut machine, 2, 3).contains("no spare"));
    pass(&mut machine, 40);
    assert_eq!(change(&mut machine, 3, MemberChange::TakeOut), DONE);
    assert!(
        why(change(
            &mut machine,
            3,
            MemberChange::Prepare {
                spare: MemberId(other as u8)
            }
        ))
        .contains("not in service")
    );
}
