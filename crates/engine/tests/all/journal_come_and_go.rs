//! Stories of journal devices that are added to and removed from a running pool: durable data
//! survives a power loss at any time.

use crate::machine;

use machine::{Machine, pass, state, why};
use windrow_engine::*;
use windrow_format::checkpoint::SyncMode;
use windrow_format::superblock::Features;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, Uuid, VolumeId};

const MIB: u64 = 1 << 20;
const DONE: Option<Result<ControlReply, ControlError>> = Some(Ok(ControlReply::Done));
const SERVE: MemberChange = MemberChange::Serve {
    granule: 512,
    power_safe: false,
};

/// Pools without a journal, with one on their members, and with one on a device in addition.
fn pools() -> Vec<(Machine, VolumeId)> {
    let pools = [
        Machine::with(Redundancy::Single, 4, 24, 100),
        Machine::journalled(Redundancy::Single, 4, 24, MIB),
        Machine::with_journal_devices(Redundancy::Single, 4, 24, 1, false),
    ];
    pools
        .into_iter()
        .map(|mut machine| (machine.volume(8 * MIB), machine))
        .map(|(volume, machine)| (machine, volume))
        .collect()
}

fn change(
    machine: &mut Machine,
    member: usize,
    change: MemberChange,
) -> Option<Result<ControlReply, ControlError>> {
    machine.command(Control::Member {
        member: MemberId(member as u8),
        change,
    })
}

/// A spare of this size in bytes, in a slot of its own.
fn spare(machine: &mut Machine, bytes: u64) -> usize {
    let slot = machine.memory.add(bytes as usize);
    assert_eq!(
        change(
            machine,
            slot,
            MemberChange::AddSpare {
                uuid: Uuid([slot as u8 + 100; 16]),
                size_bytes: bytes
            }
        ),
        DONE
    );
    slot
}

fn sync(machine: &mut Machine, volume: VolumeId, lba: u64, byte: u8) {
    machine.write(volume, lba, byte);
    machine.completions.clear();
    machine.flush(volume);
    assert!(
        machine.completions.iter().all(|c| c.result.is_ok()) && !machine.completions.is_empty(),
        "the flush was answered: {}",
        machine.engine.describe()
    );
}

fn fill(machine: &mut Machine, volume: VolumeId, blocks: std::ops::Range<u64>) {
    blocks.for_each(|lba| sync(machine, volume, lba, lba as u8 + 1));
}

fn check(machine: &mut Machine, volume: VolumeId, blocks: std::ops::Range<u64>) {
    blocks.for_each(|lba| assert_eq!(machine.byte(volume, lba), lba as u8 + 1, "block {lba}"));
}

/// Record bytes written by a journal device until now.
fn recorded(machine: &Machine, member: usize) -> u64 {
    machine.engine.status().member_stats[member].written.journal
}

#[test]
fn a_device_that_is_added_takes_the_small_flushes() {
    for (mut machine, volume) in pools() {
        fill(&mut machine, volume, 0..10);
        let device = spare(&mut machine, 4 * MIB);
        assert_eq!(change(&mut machine, device, SERVE), DONE);
        fill(&mut machine, volume, 10..20);
        pass(&mut machine, 60);
        assert_eq!(
            state(&machine, device),
            "online",
            "{}",
            machine.engine.describe()
        );
        let before = machine.engine.status().member_stats;
        fill(&mut machine, volume, 20..40);
        let after = machine.engine.status().member_stats;
        assert!(
            machine.engine.status().journal.external
                && after[device].written.journal > before[device].written.journal
        );
        assert!(
            (0..4).all(|member| after[member].flushes == before[member].flushes),
            "data members were flushed"
        );
        assert_ne!(
            machine.memory.superblock().features.incompatible & Features::JOURNAL,
            0
        );
        // Its durable data is on it alone, or on it and the device that was there before.
        let mut machine = machine.crash();
        check(&mut machine, volume, 0..40);
    }
}

#[test]
fn a_second_device_has_the_durable_records_of_the_first_one_from_then_on() {
    let (mut machine, volume) = pools().remove(2);
    fill(&mut machine, volume, 0..10);
    let device = spare(&mut machine, 8 * MIB);
    assert_eq!(change(&mut machine, device, SERVE), DONE);
    // Data that was durable before has no copy on it: the log gets that at once.
    for lba in 10..15 {
        let mut memory = machine.memory.clone();
        memory.present[4] = false;
        check(&mut Machine::open(memory), volume, 0..lba);
        sync(&mut machine, volume, lba, lba as u8 + 1);
    }
    pass(&mut machine, 60);
    assert_eq!(
        (state(&machine, 4), state(&machine, device)),
        ("online", "online")
    );
    fill(&mut machine, volume, 15..30);
    machine.memory.present[4] = false;
    let mut machine = machine.crash();
    check(&mut machine, volume, 0..30);
}

#[test]
fn a_device_that_is_removed_leaves_nothing_behind_that_is_needed() {
    for (number, (mut machine, volume)) in pools().into_iter().enumerate() {
        let device = spare(&mut machine, 4 * MIB);
        assert_eq!(change(&mut machine, device, SERVE), DONE);
        fill(&mut machine, volume, 0..5);
        pass(&mut machine, 60);
        fill(&mut machine, volume, 5..30);
        let text = why(change(&mut machine, device, MemberChange::GiveUp));
        assert!(text.contains("replace it instead"), "{text}");
        assert_eq!(change(&mut machine, device, MemberChange::TakeOut), DONE);
        assert_eq!(change(&mut machine, device, MemberChange::Settle), DONE);
        assert_eq!(change(&mut machine, device, MemberChange::GiveUp), DONE);
        let superblock = machine.memory.superblock();
        assert_eq!(
            (
                state(&machine, device),
                superblock.journals.devices() >> device & 1
            ),
            ("removed", 0)
        );
        assert_eq!(
            superblock.features.incompatible & Features::JOURNAL != 0,
            number > 0,
            "the flag is there while there is a journal"
        );
        machine.memory.present[device] = false;
        fill(&mut machine, volume, 30..40);
        assert_eq!(machine.engine.status().journal.external, number == 2);
        let mut machine = machine.crash();
        check(&mut machine, volume, 0..40);
        // The slot is free again, for the same device too.
        machine.memory.present[device] = true;
        assert_eq!(
            change(
                &mut machine,
                device,
                MemberChange::AddSpare {
                    uuid: Uuid([0xcd; 16]),
                    size_bytes: 4 * MIB
                }
            ),
            DONE
        );
        assert_eq!(change(&mut machine, device, SERVE), DONE);
        pass(&mut machine, 60);
        fill(&mut machine, volume, 40..50);
        assert!(state(&machine, device) == "online" && recorded(&machine, device) > 0);
        let mut machine = machine.crash();
        check(&mut machine, volume, 0..50);
    }
}

/// Flushes arrive without a pause, so a round is always in progress: the device joins between two
/// of them.
#[test]
fn a_device_joins_while_flushes_never_end() {
    let (mut machine, volume) = pools().remove(1);
    fill(&mut machine, volume, 0..4);
    let device = spare(&mut machine, 4 * MIB);
    machine.held = Some(Vec::new());
    let command = |machine: &mut Machine, id, change| {
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(id),
            command: Control::Member {
                member: MemberId(device as u8),
                change,
            },
        }));
    };
    let mut lba = 10;
    let mut ask = |machine: &mut Machine| {
        lba += 1;
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&[lba as u8 + 1; 4096]),
                fua: false,
            },
        );
        machine.request(volume, Op::Flush);
        machine.settle();
    };
    ask(&mut machine);
    ask(&mut machine);
    command(&mut machine, 900, SERVE);
    for _ in 0..40 {
        ask(&mut machine);
        let held = machine.held.replace(Vec::new()).unwrap_or_default();
        held.into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.settle();
    }
    assert!(
        machine
            .control
            .iter()
            .any(|c| c.id == ControlId(900) && c.result.is_ok()),
        "{}",
        machine.engine.describe()
    );
    machine.release();
    let mut machine = machine.crash();
    check(&mut machine, volume, 11..lba);
}

#[test]
fn what_does_not_fit_the_journal_is_refused_in_words() {
    let (mut machine, _) = pools().remove(2);
    let small = spare(&mut machine, 2 * MIB);
    let text = why(change(&mut machine, small, SERVE));
    assert!(text.contains("a copy of the journal needs"), "{text}");
    let large = spare(&mut machine, 8 * MIB);
    let text = why(change(
        &mut machine,
        large,
        MemberChange::Serve {
            granule: 4096,
            power_safe: false,
        },
    ));
    assert!(text.contains("units of 4096 bytes"), "{text}");
    let text = why(change(&mut machine, 0, SERVE));
    assert!(text.contains("no spare"), "{text}");
    assert_eq!(
        (state(&machine, small), state(&machine, large)),
        ("spare", "spare")
    );

    let mut machine = Machine::with_journal_devices(Redundancy::Single, 4, 24, 1, true);
    let device = spare(&mut machine, 8 * MIB);
    let text = why(change(&mut machine, device, SERVE));
    assert!(text.contains("power-safe"), "{text}");
}

/// Power loss after any member command from the request on, while a device joins and while it
/// leaves.
#[test]
fn power_loss_at_any_time_while_a_device_joins_and_leaves() {
    for leaves in [false, true] {
        for left in 0..40 {
            for (mut machine, volume) in pools() {
                fill(&mut machine, volume, 0..6);
                let device = spare(&mut machine, 4 * MIB);
                if leaves {
                    assert_eq!(change(&mut machine, device, SERVE), DONE);
                    pass(&mut machine, 40);
                    fill(&mut machine, volume, 6..10);
                    assert_eq!(change(&mut machine, device, MemberChange::TakeOut), DONE);
                    assert_eq!(change(&mut machine, device, MemberChange::Settle), DONE);
                }
                machine.memory.writes_left = Some(left);
                let before = if leaves { 10 } else { 6 };
                let mut synced = before;
                _ = change(
                    &mut machine,
                    device,
                    if leaves { MemberChange::GiveUp } else { SERVE },
                );
                for lba in before..20 {
                    machine.completions.clear();
                    machine.write(volume, lba, lba as u8 + 1);
                    machine.flush(volume);
                    if machine.completions.is_empty()
                        || machine.completions.iter().any(|c| c.result.is_err())
                    {
                        break;
                    }
                    synced = lba + 1;
                }
                machine.memory.writes_left = None;
                let mut machine = machine.crash();
                check(&mut machine, volume, 0..synced);
            }
        }
    }
}

/// Without the last journal the sync mode of a volume that ignores flushes could not be reset.
#[test]
fn the_last_journal_stays_as_long_as_a_volume_needs_it_to_be_set_back() {
    let (mut machine, volume) = pools()
        .into_iter()
        .next()
        .expect("the pool without a journal");
    let device = spare(&mut machine, 4 * MIB);
    assert_eq!(change(&mut machine, device, SERVE), DONE);
    pass(&mut machine, 60);
    let set = |sync| Control::VolumeSync { volume, sync };
    assert_eq!(machine.command(set(SyncMode::Disabled)), DONE);
    machine.flush(volume);
    pass(&mut machine, 60);
    change(&mut machine, device, MemberChange::TakeOut);
    pass(&mut machine, 60);
    let refused = why(change(&mut machine, device, MemberChange::GiveUp));
    assert!(refused.contains("sync=standard"), "{refused}");
    assert_eq!(machine.command(set(SyncMode::Standard)), DONE);
    pass(&mut machine, 60);
    assert_eq!(change(&mut machine, device, MemberChange::GiveUp), DONE);
}

/// A flush waits as long as a change of devices does. It must continue when the change is refused.
#[test]
fn a_flush_that_waited_for_a_change_continues_when_that_is_refused() {
    let (mut machine, volume) = pools().into_iter().nth(2).expect("the pool with a device");
    let small = spare(&mut machine, MIB);
    machine.write(volume, 0, 1);
    machine.completions.clear();
    machine.held = Some(Vec::new());
    machine.flush(volume);
    assert_eq!(
        change(&mut machine, small, SERVE),
        None,
        "a round is in progress"
    );
    machine.write(volume, 1, 2);
    machine.flush(volume);
    for _ in 0..8 {
        let held = machine.held.replace(Vec::new()).unwrap_or_default();
        held.into_iter()
            .for_each(|command| machine.carry_out(command));
        while !machine.events.is_empty() {
            machine.turn();
        }
    }
    assert!(why(machine.control.pop().map(|answer| answer.result)).contains("needs"));
    assert_eq!(
        machine.completions.len(),
        3,
        "{}",
        machine.engine.describe()
    );
}

/// Writes to power-safe devices are not flushed. A spare or a device inserted by the administrator
/// must not silently replace one: the next power loss would take the data in its cache.
#[test]
fn only_what_is_power_safe_takes_the_place_of_a_power_safe_device() {
    let mut machine = Machine::with_journal_devices(Redundancy::Single, 4, 24, 2, true);
    let volume = machine.volume(8 * MIB);
    fill(&mut machine, volume, 0..5);
    let spare = spare(&mut machine, 4 * MIB);
    let told: Vec<bool> = machine
        .engine
        .status()
        .members
        .iter()
        .map(|member| member.power_safe)
        .collect();
    assert_eq!(told, [false, false, false, false, true, true, false]);
    let exchange = |power_safe, spare| MemberChange::Exchange {
        uuid: Uuid([0xe0; 16]),
        size_bytes: 4 * MIB,
        power_safe,
        spare,
    };
    assert_eq!(change(&mut machine, 5, MemberChange::TakeOut), DONE);
    assert_eq!(change(&mut machine, 5, MemberChange::Settle), DONE);
    for device in [
        exchange(false, None),
        exchange(false, Some(MemberId(spare as u8))),
    ] {
        let text = why(change(&mut machine, 5, device));
        assert!(text.contains("declared power-safe"), "{text}");
        assert_eq!(
            (state(&machine, 5), state(&machine, spare)),
            ("offline", "spare")
        );
    }
    assert_eq!(change(&mut machine, 5, exchange(true, None)), DONE);
    fill(&mut machine, volume, 5..10);
    pass(&mut machine, 60);
    assert_eq!(state(&machine, 5), "online");
    check(&mut machine.crash(), volume, 0..10);
}

/// Growth of a pool with journal devices: its data members are not consecutive then.
#[test]
fn a_pool_with_a_journal_device_grows_and_keeps_durable_data() {
    let mut cuts = 0;
    for (mut machine, volume) in pools() {
        if !machine.engine.status().journal.external {
            let device = spare(&mut machine, 4 * MIB);
            assert_eq!(change(&mut machine, device, SERVE), DONE);
            pass(&mut machine, 60);
        }
        fill(&mut machine, volume, 0..40);
        let usable = machine.engine.status().plan.usable_bytes;
        let joins = spare(&mut machine, 24 * MIB);
        assert_eq!(
            machine.command(Control::Grow {
                members: vec![MemberId(joins as u8)]
            }),
            DONE
        );
        for round in 0..400 {
            let lba = 40 + round;
            sync(&mut machine, volume, lba, lba as u8 + 1);
            if !machine.engine.status().reshape.active {
                break;
            }
            pass(&mut machine, 3);
            // Data that has just become durable, in either layout, is on the device alone.
            sync(&mut machine, volume, lba, lba as u8 + 1);
            if round % 5 == 0 {
                check(
                    &mut Machine::open(machine.memory.clone()),
                    volume,
                    0..lba + 1,
                );
                cuts += 1;
            }
        }
        let status = machine.engine.status();
        assert!(
            !status.reshape.active && status.plan.usable_bytes > usable,
            "{:?}",
            status.reshape
        );
        assert!(status.journal.external && state(&machine, joins) == "online");
        let before = machine.engine.status().member_stats;
        (0..10).for_each(|lba| sync(&mut machine, volume, lba, lba as u8 + 1));
        let after = machine.engine.status().member_stats;
        assert!(
            (0..4)
                .chain([joins])
                .all(|member| after[member].flushes == before[member].flushes),
            "small flushes are the device's as before"
        );
        check(&mut machine.crash(), volume, 0..40);
    }
    assert!(cuts > 3, "{cuts} cuts while data moved");
}
