//! Removal: a member that holds data leaves the pool, and its data moves to the others while the
//! pool is in service.

use crate::machine;

use machine::{Machine, Memory, PROPERTIES, pass, verify, why, write};
use windrow_engine::*;
use windrow_format::superblock::{Features, Properties};
use windrow_geometry::{Redundancy, ZoneMap};
use windrow_io::*;
use windrow_types::{MemberId, SegmentId, Uuid, VolumeId};

const DONE: Option<Result<ControlReply, ControlError>> = Some(Ok(ControlReply::Done));

fn remove(machine: &mut Machine, member: u8) -> Option<Result<ControlReply, ControlError>> {
    machine.command(Control::Remove {
        member: MemberId(member),
    })
}

fn is_full(machine: &Machine) -> bool {
    let status = machine.engine.status();
    status.used_bytes + 4096 > status.plan.usable_bytes
}

/// Lets time pass with a few writes until no data is left in the old layout and the member is gone.
fn move_away(machine: &mut Machine, volume: VolumeId) {
    for round in 0..3000 {
        let status = machine.engine.status();
        assert!(
            status.used_bytes <= status.plan.usable_bytes,
            "{} of {}",
            status.used_bytes,
            status.plan.usable_bytes
        );
        assert_eq!(machine.engine.self_check(), Ok(()));
        if !status.reshape.active {
            return pass(machine, 3);
        }
        let lba = u64::from(round % 50u32);
        machine.write(
            volume,
            if is_full(machine) { lba } else { 5000 + lba },
            if is_full(machine) {
                (lba * 3 + 1) as u8
            } else {
                round as u8
            },
        );
        machine.flush(volume);
        pass(machine, 3);
    }
    panic!(
        "the removal does not end: {:?}\n{}",
        machine.engine.status().reshape,
        machine.engine.describe()
    );
}

fn is_gone(machine: &Machine, member: u8) -> bool {
    let superblock = machine.memory.superblock();
    let named = superblock
        .zones
        .iter()
        .any(|zone| zone.members >> member & 1 == 1)
        || superblock.features.incompatible & Features::LEAVING != 0;
    let told = machine
        .out
        .notices
        .iter()
        .any(|notice| matches!(notice, Notice::Removed { member: of, .. } if of.0 == member));
    !named && told && machine.engine.status().members[usize::from(member)].state == "removed"
}

#[test]
fn a_member_leaves_and_what_it_held_moves_to_the_others() {
    for (redundancy, members, leaves) in [
        (Redundancy::Single, 4, 1),
        (Redundancy::Single, 6, 5),
        (Redundancy::Double, 5, 0),
        (Redundancy::Copies(2), 3, 2),
        (Redundancy::Copies(2), 4, 0),
        (Redundancy::Copies(2), 5, 3),
        (Redundancy::Copies(3), 4, 1),
        (Redundancy::None, 2, 0),
        (Redundancy::None, 3, 1),
    ] {
        let mut machine = Machine::with(redundancy, members, 12, 100);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..900, 1);
        let before = machine.engine.status();
        assert_eq!(
            remove(&mut machine, leaves),
            DONE,
            "{redundancy:?} {members}"
        );
        let status = machine.engine.status();
        assert!(
            status.reshape.active
                && status.members[usize::from(leaves)].leaving
                && status.members[usize::from(leaves)].state == "online"
        );
        assert!(
            status.plan.usable_bytes < before.plan.usable_bytes,
            "{} of {}",
            status.plan.usable_bytes,
            before.plan.usable_bytes
        );
        verify(&mut machine, volume, 0..900, 1);
        move_away(&mut machine, volume);
        assert!(
            is_gone(&machine, leaves),
            "{redundancy:?} {members}: {:?}",
            machine.out.notices
        );
        let status = machine.engine.status();
        assert!(
            status.state == "online"
                && status.reshape.segments_done == status.reshape.segments_total,
            "{:?}",
            status.reshape
        );
        // Nothing of the old device is needed, and it does not belong to the pool.
        machine.garble(usize::from(leaves));
        let mut machine = machine.crash();
        verify(&mut machine, volume, 0..900, 1);
        assert!(
            machine.engine.status().state == "online"
                && machine.engine.status().reshape == ReshapeStatus::default()
        );
    }
}

/// Byte of a block: never all zeroes or all ones, which would take no room.
fn content(lba: u64) -> u8 {
    (lba % 250 + 1) as u8
}

/// A pool without a block to spare.
fn full(mut machine: Machine) -> (Machine, VolumeId, u64) {
    let volume = machine.volume(1 << 30);
    let blocks = machine.engine.status().plan.usable_bytes / 4096;
    for lba in 0..blocks {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&[content(lba); 4096]),
                fua: false,
            },
        );
        if lba % 32 == 31 {
            assert!(machine.wait_for(1), "{}", machine.engine.describe());
            machine.completions.clear();
        }
    }
    machine.flush(volume);
    machine.wait_for(usize::MAX);
    machine.completions.clear();
    assert!(is_full(&machine));
    (machine, volume, blocks)
}

/// Number of blocks that are too many for a removal, by its refusal.
fn too_many(machine: &mut Machine, member: u8) -> u64 {
    let answer = remove(machine, member);
    let Some(Err(ControlError::NoSpace(text))) = answer else {
        panic!("a full pool gives no member up: {answer:?}")
    };
    let bytes = text
        .split("delete ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|bytes| bytes.parse::<u64>().ok());
    bytes
        .unwrap_or_else(|| panic!("no figure in: {text}"))
        .div_ceil(4096)
}

/// The hard case: full victims take more segments of the new layout than they give, and no space is
/// left.
#[test]
fn a_pool_that_is_full_to_the_last_block_that_the_check_admits_loses_a_member() {
    for (redundancy, members, leaves) in [
        (Redundancy::Single, 4, 1),
        (Redundancy::Single, 5, 4),
        (Redundancy::Double, 5, 0),
        (Redundancy::Copies(2), 3, 2),
        (Redundancy::Copies(2), 4, 0),
        (Redundancy::Copies(2), 5, 3),
        (Redundancy::None, 2, 0),
    ] {
        for (scattered, busy) in [(false, true), (true, true), (false, false), (true, false)] {
            let (mut machine, volume, blocks) = full(Machine::with(redundancy, members, 12, 30));
            let excess = too_many(&mut machine, leaves);
            // Trimmed blocks are adjacent, so that segments are full or empty; or they are spread
            // everywhere.
            let gone = |lba: u64| {
                if scattered {
                    (lba + 1) * excess / blocks != lba * excess / blocks
                } else {
                    lba >= blocks - excess
                }
            };
            for lba in (0..blocks).filter(|lba| gone(*lba)) {
                machine.request(
                    volume,
                    Op::Trim {
                        offset: lba * 4096,
                        length: 4096,
                        fua: false,
                    },
                );
            }
            machine.wait_for(usize::MAX);
            machine.flush(volume);
            machine.completions.clear();
            assert_eq!(
                remove(&mut machine, leaves),
                DONE,
                "{redundancy:?} {members} {scattered}"
            );
            assert!(is_full(&machine), "{redundancy:?} {members} {scattered}");
            let refused = Op::Write {
                offset: (blocks + 7) * 4096,
                data: Payload::copy_of(&[1; 4096]),
                fua: false,
            };
            machine.request(volume, refused);
            machine.settle();
            assert_eq!(
                machine.completions.pop().and_then(|c| c.result.err()),
                Some(RequestError::NoSpace)
            );
            let kept: Vec<u64> = (0..blocks).filter(|lba| !gone(*lba)).collect();
            // Clients overwrite meanwhile, or are idle.
            for round in 0..20_000u64 {
                if !machine.engine.status().reshape.active {
                    break;
                }
                let lba = kept[(round * 7919 % kept.len() as u64) as usize];
                if busy {
                    machine.write(volume, lba, content(lba));
                }
                if round % 16 == 0 {
                    if busy {
                        machine.flush(volume);
                    }
                    pass(&mut machine, 2);
                    assert_eq!(machine.engine.self_check(), Ok(()));
                }
            }
            let status = machine.engine.status();
            assert!(
                !status.reshape.active,
                "{redundancy:?} {members} {scattered}: {:?}\n{}",
                status.reshape,
                machine.engine.describe()
            );
            pass(&mut machine, 3);
            assert!(is_gone(&machine, leaves));
            machine.garble(usize::from(leaves));
            let mut machine = machine.crash();
            kept.iter().for_each(|lba| {
                assert_eq!(machine.byte(volume, *lba), content(*lba), "block {lba}")
            });
        }
    }
}

#[test]
fn an_impossible_removal_is_refused_with_figures() {
    let mut machine = Machine::new(3, 12, 100);
    assert!(why(remove(&mut machine, 1)).contains("2 members would be left, redundancy 5 needs 3"));
    assert!(why(remove(&mut machine, 9)).contains("no such member"));
    let mut machine = Machine::with(Redundancy::Single, 5, 12, 100);
    let volume = machine.volume(1 << 30);
    let spare = machine.memory.add(12 << 20) as u8;
    let change = MemberChange::AddSpare {
        uuid: Uuid([77; 16]),
        size_bytes: 12 << 20,
    };
    assert_eq!(
        machine.command(Control::Member {
            member: MemberId(spare),
            change
        }),
        DONE
    );
    assert!(why(remove(&mut machine, spare)).contains("holds no data"));
    assert_eq!(
        machine.command(Control::Member {
            member: MemberId(2),
            change: MemberChange::TakeOut
        }),
        DONE
    );
    assert!(why(remove(&mut machine, 1)).contains("absent or not whole"));
    let own = machine.memory.superblock_of(2);
    assert_eq!(
        machine.command(Control::Member {
            member: MemberId(2),
            change: MemberChange::BringBack {
                superblock: Box::new(own)
            }
        }),
        DONE
    );
    pass(&mut machine, 20);
    write(&mut machine, volume, 0..900, 1);
    assert_eq!(remove(&mut machine, 1), DONE);
    // One after the other, and no growth meanwhile.
    assert!(why(remove(&mut machine, 1)).contains("being removed"));
    assert!(why(remove(&mut machine, 2)).contains("data still moves"));
    let grow = machine.command(Control::Grow {
        members: vec![MemberId(spare)],
    });
    assert!(
        matches!(&grow, Some(Err(ControlError::Invalid(text))) if text.contains("being removed")),
        "{grow:?}"
    );
    // Its slot takes no other device.
    assert_eq!(
        machine.command(Control::Member {
            member: MemberId(1),
            change: MemberChange::TakeOut
        }),
        DONE
    );
    let exchange = MemberChange::Exchange {
        uuid: Uuid::default(),
        size_bytes: 0,
        power_safe: false,
        spare: Some(MemberId(spare)),
    };
    assert!(
        why(machine.command(Control::Member {
            member: MemberId(1),
            change: exchange
        }))
        .contains("nothing is to be put in its place")
    );
    move_away(&mut machine, volume);
    assert!(is_gone(&machine, 1) && machine.engine.status().state == "online");
    verify(&mut machine, volume, 0..900, 1);
    // Then the next one, and the slot of the first is free for a spare.
    let change = MemberChange::AddSpare {
        uuid: Uuid([78; 16]),
        size_bytes: 12 << 20,
    };
    assert_eq!(
        machine.command(Control::Member {
            member: MemberId(1),
            change
        }),
        DONE
    );
    assert_eq!(remove(&mut machine, 0), DONE);
    move_away(&mut machine, volume);
    assert_eq!(
        machine.command(Control::Grow {
            members: vec![MemberId(1), MemberId(spare)]
        }),
        DONE
    );
    move_away(&mut machine, volume);
    verify(&mut machine, volume, 0..900, 1);
}

/// Members of two sizes: in addition to a wide zone there is a narrow one over the large members. A
/// victim of the wide one may need five segments of the narrow one. When a large member leaves, its
/// two equals are too few for a zone, and their data has to go elsewhere.
#[test]
fn members_of_different_sizes_leave_full_pools() {
    for leaves in [0u8, 10] {
        let mut machine = Machine::with(Redundancy::Single, 8, 12, 30);
        for slot in 8..11u8 {
            assert_eq!(machine.memory.add(32 << 20), usize::from(slot));
            let change = MemberChange::AddSpare {
                uuid: Uuid([slot + 100; 16]),
                size_bytes: 32 << 20,
            };
            assert_eq!(
                machine.command(Control::Member {
                    member: MemberId(slot),
                    change
                }),
                DONE
            );
        }
        assert_eq!(
            machine.command(Control::Grow {
                members: (8..11).map(MemberId).collect()
            }),
            DONE
        );
        for _ in 0..400 {
            machine.command(Control::Checkpoint);
            pass(&mut machine, 2);
        }
        let zones = machine.memory.superblock().zones;
        assert_eq!(
            zones.iter().map(|zone| zone.shape.data).collect::<Vec<_>>(),
            [10, 2]
        );
        let (mut machine, volume, blocks) = full(machine);
        let excess = too_many(&mut machine, leaves);
        machine.request(
            volume,
            Op::Trim {
                offset: (blocks - excess) * 4096,
                length: excess * 4096,
                fua: true,
            },
        );
        machine.wait_for(usize::MAX);
        machine.completions.clear();
        assert_eq!(remove(&mut machine, leaves), DONE);
        for round in 0..20_000u64 {
            if !machine.engine.status().reshape.active {
                break;
            }
            let lba = round * 7919 % (blocks - excess);
            machine.write(volume, lba, content(lba));
            if round % 16 == 0 {
                machine.flush(volume);
                pass(&mut machine, 2);
                assert_eq!(machine.engine.self_check(), Ok(()));
            }
        }
        let status = machine.engine.status();
        assert!(
            !status.reshape.active,
            "{leaves}: {:?}\n{}",
            status.reshape,
            machine.engine.describe()
        );
        pass(&mut machine, 3);
        assert!(is_gone(&machine, leaves));
        machine.garble(usize::from(leaves));
        let mut machine = machine.crash();
        (0..blocks - excess)
            .for_each(|lba| assert_eq!(machine.byte(volume, lba), content(lba), "block {lba}"));
    }
}

/// State of a member's memory after unfinished commands, for [`cut_everywhere`].
fn after_cut(memory: &Memory, unflushed: &[(usize, usize, Vec<u8>)], seed: u64) -> Memory {
    let mut memory = memory.clone();
    let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (member, at, before) in unflushed.iter().rev() {
        bits = bits
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if seed.is_multiple_of(4) || (seed % 4 > 1 && bits >> 60 < 8) {
            memory.data[*member][*at..*at + before.len()].copy_from_slice(before);
        }
    }
    memory
}

/// Executes pending work. `cut` receives the state that a power loss would leave, every `every`
/// commands and at each that writes or flushes a superblock.
fn cut_everywhere(
    machine: &mut Machine,
    unflushed: &mut Vec<(usize, usize, Vec<u8>)>,
    count: &mut u64,
    every: u64,
    cut: &mut dyn FnMut(Memory, u64),
) {
    loop {
        machine.held = Some(Vec::new());
        machine.settle();
        let commands = machine.held.take().unwrap_or_default();
        if commands.is_empty() {
            return;
        }
        for command in commands {
            let member = command.member.index();
            let mut is_slot = false;
            if let MemberOp::Write { offset, buf } = &command.op {
                let range = *offset as usize..*offset as usize + buf.len();
                is_slot = range.end <= 1 << 20;
                unflushed.push((
                    member,
                    range.start,
                    machine.memory.data[member][range].to_vec(),
                ));
            }
            if let MemberOp::Flush = &command.op {
                unflushed.retain(|w| w.0 != member);
            }
            machine.carry_out(command);
            *count += 1;
            if is_slot || count.is_multiple_of(every) {
                cut(after_cut(&machine.memory, unflushed, *count), *count);
            }
        }
    }
}

#[test]
fn a_removal_survives_power_loss_at_any_time() {
    let mut all = [0u32; 3];
    for (redundancy, members, leaves, journal, every) in [
        (Redundancy::Single, 4, 1usize, false, 307),
        (Redundancy::Single, 4, 3, true, 331),
        (Redundancy::Copies(2), 3, 0, true, 211),
        (Redundancy::Copies(2), 4, 2, false, 307),
        (Redundancy::None, 2, 1, false, 197),
    ] {
        let mut machine = if journal {
            Machine::journalled(redundancy, members, 12, 1 << 20)
        } else {
            Machine::with(redundancy, members, 12, 100)
        };
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..500, 1);
        let (mut unflushed, mut count, mut seen, mut flushed, mut rest) =
            (Vec::new(), 0u64, [0u32; 3], 0u64, 0);
        let mut check = |memory: Memory, cuts: u64, flushed: u64| {
            // Sometimes another member, or the leaving one, is gone afterwards: power loss and a
            // lost member at once.
            let mut memory = memory;
            let lost = (cuts.is_multiple_of(5) && redundancy != Redundancy::None)
                .then_some((cuts / 5) as usize % members);
            if let Some(lost) = lost {
                memory.present[lost] = false;
            }
            let mut machine = Machine::open(memory);
            let status = machine.engine.status();
            let gone = status.members[leaves].state == "removed";
            seen[if gone {
                2
            } else {
                usize::from(status.reshape.active)
            }] += 1;
            let every = if cuts.is_multiple_of(8) { 1 } else { 7 };
            (0..500).step_by(every).for_each(|lba| {
                assert_eq!(
                    machine.byte(volume, lba),
                    (lba * 3 + 1) as u8,
                    "block {lba} after cut {cuts}"
                )
            });
            assert!(u64::from(machine.byte(volume, 6000)) >= flushed);
            if cuts.is_multiple_of(16) && lost.is_none() {
                if !gone && !status.reshape.active {
                    assert_eq!(remove(&mut machine, leaves as u8), DONE);
                }
                move_away(&mut machine, volume);
                assert_eq!(machine.engine.status().members[leaves].state, "removed");
                verify(&mut machine, volume, 0..500, 1);
                let mut machine = machine.crash();
                verify(&mut machine, volume, 0..500, 1);
            }
        };
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: Control::Remove {
                member: MemberId(leaves as u8),
            },
        }));
        for round in 1..=250u64 {
            for lba in [5000 + round % 50, 6000] {
                machine.request(
                    volume,
                    Op::Write {
                        offset: lba * 4096,
                        data: Payload::copy_of(&[round as u8; 4096]),
                        fua: false,
                    },
                );
            }
            machine.request(volume, Op::Flush);
            cut_everywhere(
                &mut machine,
                &mut unflushed,
                &mut count,
                every,
                &mut |memory, cuts| check(memory, cuts, flushed),
            );
            flushed = round;
            for _ in 0..3 {
                machine.now_ns += 30_000_000;
                machine.events.push(Event::Tick(machine.now_ns));
                cut_everywhere(
                    &mut machine,
                    &mut unflushed,
                    &mut count,
                    every,
                    &mut |memory, cuts| check(memory, cuts, flushed),
                );
            }
            rest += u32::from(machine.engine.status().members[leaves].state == "removed");
            if rest > 3 {
                break;
            }
        }
        assert!(
            is_gone(&machine, leaves as u8),
            "{redundancy:?} {members}: {}",
            machine.engine.describe()
        );
        all.iter_mut()
            .zip(seen)
            .for_each(|(all, seen)| *all += seen);
    }
    // Before the layout was active, with two layouts, after the member was gone.
    assert!(all[0] > 5 && all[1] > 30 && all[2] > 5, "{all:?}");
}

/// The leaving member fails in the middle, or is taken out, or another one fails: the removal
/// continues and completes.
#[test]
fn members_may_be_lost_while_one_leaves() {
    for (redundancy, members) in [
        (Redundancy::Single, 4),
        (Redundancy::Double, 6),
        (Redundancy::Copies(2), 4),
        (Redundancy::Copies(2), 3),
    ] {
        for lost in [0usize, 2] {
            for crash in [false, true] {
                let mut machine = Machine::with(redundancy, members, 12, 100);
                let volume = machine.volume(1 << 30);
                write(&mut machine, volume, 0..900, 1);
                assert_eq!(remove(&mut machine, 2), DONE);
                write(&mut machine, volume, 900..920, 1);
                machine.memory.failing[lost] = true;
                write(&mut machine, volume, 920..940, 1);
                assert_eq!(machine.engine.status().members[lost].state, "faulted");
                if crash {
                    let mut memory = machine.crash().memory;
                    memory.present[lost] = false;
                    machine = Machine::open(memory);
                }
                move_away(&mut machine, volume);
                assert!(
                    is_gone(&machine, 2),
                    "{redundancy:?} {members} without {lost}"
                );
                verify(&mut machine, volume, 0..940, 1);
                assert_eq!(
                    machine.engine.status().state,
                    if lost == 2 { "online" } else { "degraded" }
                );
                // It returns: the other one is rebuilt; the one that left does not belong to the
                // pool.
                machine.memory.failing[lost] = false;
                let mut memory = machine.crash().memory;
                memory.present[lost] = true;
                let mut machine = Machine::open(memory);
                pass(&mut machine, 40);
                assert_eq!(machine.engine.status().state, "online");
                verify(&mut machine, volume, 0..940, 1);
            }
        }
    }
}

/// The journal inside the members is on all of them. It is dropped and recreated over the remaining
/// ones, and flushes stay durable all the time. Data durable in the journal alone is in the log
/// before the journal moves.
#[test]
fn durable_data_of_the_old_journal_is_not_lost_when_it_moves() {
    let mut machine = Machine::journalled(Redundancy::Single, 4, 12, 1 << 20);
    let volume = machine.volume(1 << 30);
    write(&mut machine, volume, 0..40, 1);
    (40..60).for_each(|n| write(&mut machine, volume, n..n + 1, 1));
    let (mut unflushed, mut count, mut moved) = (Vec::new(), 0, 0);
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(1),
        command: Control::Remove {
            member: MemberId(1),
        },
    }));
    cut_everywhere(
        &mut machine,
        &mut unflushed,
        &mut count,
        1,
        &mut |memory, cuts| {
            moved += u32::from(
                memory
                    .superblock()
                    .journals
                    .internal
                    .is_some_and(|area| area.members == 0b1101),
            );
            if cuts < 120 {
                verify(&mut Machine::open(memory), volume, 30..60, 1);
            }
        },
    );
    assert!(moved > 0);
}

#[test]
fn the_journal_inside_the_members_moves_along() {
    for (redundancy, members) in [
        (Redundancy::Single, 4),
        (Redundancy::Copies(2), 3),
        (Redundancy::Double, 5),
    ] {
        let mut machine = Machine::journalled(redundancy, members, 12, 1 << 20);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..400, 1);
        // Small writes and flushes go to the journal.
        (0..20).for_each(|n| write(&mut machine, volume, 400 + n..401 + n, 1));
        assert!(machine.engine.status().journal.rounds > 0);
        assert_eq!(remove(&mut machine, 1), DONE);
        let area = machine
            .memory
            .superblock()
            .journals
            .internal
            .expect("a journal");
        assert_eq!(area.members, ((1 << members) - 1) & !2);
        let rounds = machine.engine.status().journal.rounds;
        (20..60).for_each(|n| write(&mut machine, volume, 400 + n..401 + n, 1));
        assert!(
            machine.engine.status().journal.rounds > rounds,
            "flushes go to the new one"
        );
        let mut machine = machine.crash();
        verify(&mut machine, volume, 0..460, 1);
        move_away(&mut machine, volume);
        (60..90).for_each(|n| write(&mut machine, volume, 400 + n..401 + n, 1));
        machine.garble(1);
        let mut machine = machine.crash();
        verify(&mut machine, volume, 0..490, 1);
    }
}

/// Trims made the room that a removal takes, and were not flushed. The narrow layout was activated,
/// a crash undid the trims, and the pool held more data than it has room for. It wrote checkpoints
/// for ever, and clients stalled.
#[test]
fn trims_are_durable_before_the_layout_that_needs_their_room() {
    for (redundancy, members, leaves) in [(Redundancy::Single, 4, 1), (Redundancy::Copies(2), 3, 2)]
    {
        let (mut machine, volume, blocks) = full(Machine::with(redundancy, members, 12, 30));
        let excess = too_many(&mut machine, leaves);
        machine.request(
            volume,
            Op::Trim {
                offset: (blocks - excess) * 4096,
                length: excess * 4096,
                fua: false,
            },
        );
        machine.settle();
        remove(&mut machine, leaves);
        let mut machine = machine.crash();
        let status = machine.engine.status();
        assert!(
            status.used_bytes <= status.plan.usable_bytes,
            "{redundancy:?}: {} of {}",
            status.used_bytes,
            status.plan.usable_bytes
        );
        (0..50).for_each(|lba| machine.write(volume, lba, content(lba)));
        machine.flush(volume);
        (0..blocks - excess)
            .for_each(|lba| assert_eq!(machine.byte(volume, lba), content(lba), "block {lba}"));
    }
}

/// With a smaller member the zones of mirrors may be such that one row more or less decides: then
/// nothing of the new layout is activated before everything is moved.
#[test]
fn layouts_with_entangled_zones_are_refused() {
    let machine_of = |rows: usize| {
        let mut machine = Machine::with(Redundancy::Copies(2), 2, 12, 100);
        let small = (1 << 20) + rows * 32768;
        let slots = [12 << 20, small].map(|bytes| (machine.memory.add(bytes) as u8, bytes as u64));
        for (slot, size_bytes) in slots {
            let change = MemberChange::AddSpare {
                uuid: Uuid([slot + 100; 16]),
                size_bytes,
            };
            assert_eq!(
                machine.command(Control::Member {
                    member: MemberId(slot),
                    change
                }),
                DONE
            );
        }
        assert_eq!(
            machine.command(Control::Grow {
                members: slots.map(|(slot, _)| MemberId(slot)).to_vec()
            }),
            DONE
        );
        for _ in 0..200 {
            machine.command(Control::Checkpoint);
            pass(&mut machine, 2);
        }
        assert!(!machine.engine.status().reshape.active);
        machine
    };
    let answers: Vec<_> = (80..84)
        .map(|rows| remove(&mut machine_of(rows), 3))
        .collect();
    let refused = answers.iter().filter(|answer| matches!(answer, Some(Err(ControlError::Invalid(why))) if why.contains("lies across"))).count();
    assert!(refused > 0 && answers.contains(&DONE), "{answers:?}");
}

/// Unreadable blocks keep so much space that nothing can move any more: the pool is idle then,
/// instead of forcing one checkpoint after the other.
#[test]
fn a_blocked_removal_becomes_idle() {
    let (mut machine, volume, blocks) = full(Machine::with(Redundancy::None, 3, 12, 30));
    let excess = too_many(&mut machine, 1);
    machine.request(
        volume,
        Op::Trim {
            offset: (blocks - excess) * 4096,
            length: excess * 4096,
            fua: true,
        },
    );
    machine.wait_for(usize::MAX);
    machine.completions.clear();
    let mut seen = std::collections::BTreeSet::new();
    let chosen: Vec<_> = machine
        .memory
        .headers()
        .into_iter()
        .filter(|(segment, _, header)| header.rows >= 6 && seen.insert(*segment))
        .skip(20)
        .take(60)
        .collect();
    for (segment, row, _) in chosen {
        let bad = machine.memory.blocks(segment, row + 3..row + 4)[0];
        machine.memory.bad.push(bad);
    }
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(1),
        command: Control::Remove {
            member: MemberId(1),
        },
    }));
    let mut checkpoints = Vec::new();
    for _ in 0..200 {
        machine.now_ns += 30_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        let mut turns = 2000;
        while turns > 0 && !machine.events.is_empty() {
            machine.turn();
            turns -= 1;
        }
        checkpoints.push(machine.engine.status().checkpoints);
    }
    let status = machine.engine.status();
    assert!(
        status.reshape.active && status.reshape.segments_damaged > 30,
        "{:?}",
        status.reshape
    );
    assert!(checkpoints[199] < 40, "{checkpoints:?}");
}

/// Further streams had been opened, and no checkpoint named them yet, when a member was to leave.
/// Their segments were left with empty batches, and every start took these for damage (simulator,
/// seed 9837798).
#[test]
fn streams_that_no_checkpoint_names_yet_do_not_leave_their_segments_by_batches() {
    let properties = Properties {
        spare_per_mille: 250,
        placement: 1,
        victim_policy: 2,
        ..PROPERTIES
    };
    let mut opened_streams = 0;
    for turns_between in (0..16).step_by(4) {
        let mut machine = Machine::with_rows_only(Redundancy::Single, 5, 12, 8, 8);
        let volume = machine.volume(1 << 22);
        // Very little data, so the segments of all streams are left at once.
        write(&mut machine, volume, 80..83, 1);
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: Control::SetProperties(properties),
        }));
        (0..turns_between).for_each(|_| machine.turn());
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: Control::Remove {
                member: MemberId(1),
            },
        }));
        // Checkpoints take for ever: their writes are held.
        let mut kept = Vec::new();
        for turn in 0..90 {
            machine.held = Some(Vec::new());
            machine.turn();
            let superblock = machine.memory.superblock();
            let zones = ZoneMap::new(superblock.zones.clone());
            let of_checkpoints: Vec<SegmentId> = superblock
                .checkpoints
                .iter()
                .flatten()
                .map(|root| root.replay[3].segment)
                .collect();
            let is_of_checkpoint = |command: &MemberCommand| {
                let MemberOp::Write { offset, .. } = &command.op else {
                    return false;
                };
                of_checkpoints.iter().any(|segment| {
                    let shape = zones.shape(*segment);
                    (0..usize::from(shape.width))
                        .map(|part| zones.locate(*segment).extent(part))
                        .any(|(member, begin)| {
                            member == command.member
                                && (begin..begin + shape.extent_bytes()).contains(offset)
                        })
                })
            };
            let (held, others): (Vec<_>, Vec<_>) = machine
                .held
                .take()
                .unwrap_or_default()
                .into_iter()
                .partition(is_of_checkpoint);
            kept.extend(held);
            others
                .into_iter()
                .for_each(|command| machine.carry_out(command));
            if turn % 3 == 2 {
                // Headers record the flushed batches of each stream.
                machine.request(
                    volume,
                    Op::Write {
                        offset: turn % 60 * 4096,
                        data: Payload::copy_of(&[7; 4096]),
                        fua: true,
                    },
                );
            }
            let options = OpenOptions {
                read_only: true,
                ..Machine::options()
            };
            let opened = Engine::open(
                &mut machine.memory.clone(),
                BufPool::new(64 << 20),
                &options,
            );
            let refused = opened.map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(
                refused,
                Ok(()),
                "{turns_between} turns between, {turn} after"
            );
        }
        opened_streams += machine.engine.status().user_streams - 1;
        kept.into_iter()
            .for_each(|command| machine.carry_out(command));
        machine.settle();
        move_away(&mut machine, volume);
        assert!(is_gone(&machine, 1));
        let mut machine = machine.crash();
        verify(&mut machine, volume, 80..83, 1);
    }
    assert!(opened_streams > 0);
}
