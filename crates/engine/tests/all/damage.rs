//! Lost blocks: reported once, shown until they are written, trimmed or read well, and remembered
//! across a start. Also: data at risk is flushed.

use crate::machine;

use machine::{Machine, PROPERTIES, pass};
use windrow_engine::*;
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::VolumeId;

const BLOCKS: u64 = 40;

/// A pool without redundancy, and a volume with data of which blocks 8 to 15 are lost.
fn damaged() -> (Machine, VolumeId) {
    let mut machine = Machine::with(Redundancy::None, 2, 64, 100);
    let volume = machine.volume(1 << 20);
    (0..BLOCKS).for_each(|lba| machine.write(volume, lba, lba as u8 + 1));
    machine.flush(volume);
    (8..16).for_each(|lba| spoil(&mut machine, lba, 0));
    machine.completions.clear();
    (machine, volume)
}

/// Sets the last byte of the one copy of a block to its own value plus `before`.
fn spoil(machine: &mut Machine, lba: u64, before: u8) {
    let byte = lba as u8 + 1;
    let mut block = [byte; 4096];
    (block[0], block[4095]) = (!byte, byte.wrapping_add(before));
    let find = |data: &Vec<u8>| {
        (0..data.len() / 4096)
            .map(|at| at * 4096)
            .filter(|at| data[*at..*at + 4096] == block)
            .collect::<Vec<_>>()
    };
    let found: Vec<(usize, usize)> = (0..2)
        .flat_map(|member| {
            find(&machine.memory.data[member])
                .into_iter()
                .map(move |at| (member, at))
        })
        .collect();
    assert_eq!(found.len(), 1, "block {lba}");
    machine.memory.data[found[0].0][found[0].1 + 4095] = if before == 0 {
        byte.wrapping_add(1)
    } else {
        byte
    };
}

fn read_all(machine: &mut Machine, volume: VolumeId) {
    for lba in 0..BLOCKS {
        machine.is_lost(volume, lba);
    }
    machine.completions.clear();
}

fn named(machine: &mut Machine) -> Vec<u64> {
    let notices = std::mem::take(&mut machine.out.notices);
    notices
        .iter()
        .flat_map(|notice| {
            if let Notice::Unrecoverable { lba, blocks, .. } = notice {
                *lba..lba + blocks
            } else {
                0..0
            }
        })
        .collect()
}

fn lost(machine: &Machine) -> (u64, Vec<(u64, u64)>, u64) {
    let damage = machine.engine.status().damage;
    (
        damage.lost_blocks,
        damage
            .lost
            .iter()
            .map(|range| (range.lba, range.blocks))
            .collect(),
        damage.recalled_blocks,
    )
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
    machine.engine.status().scrub
}

/// Regression: each repetition of a read logged a line for each lost block: 15 MB in five seconds.
#[test]
fn a_client_that_repeats_a_read_causes_no_second_notice() {
    let (mut machine, volume) = damaged();
    read_all(&mut machine, volume);
    assert_eq!(named(&mut machine), (8..16).collect::<Vec<_>>());
    for _ in 0..3 {
        read_all(&mut machine, volume);
        assert!(named(&mut machine).is_empty());
    }
    assert_eq!(lost(&machine), (8, vec![(8, 8)], 0));
    let wrong: u64 = machine
        .engine
        .status()
        .member_stats
        .iter()
        .map(|member| member.wrong_blocks)
        .sum();
    assert!(wrong >= 8, "{wrong} wrong blocks of members");
}

#[test]
fn a_block_is_lost_until_it_is_written_or_trimmed_or_read_well() {
    let (mut machine, volume) = damaged();
    read_all(&mut machine, volume);
    machine.write(volume, 9, 200);
    machine.flush(volume);
    assert_eq!(lost(&machine).1, [(8, 1), (10, 6)]);
    machine.request(
        volume,
        Op::Trim {
            offset: 12 * 4096,
            length: 4 * 4096,
            fua: true,
        },
    );
    assert!(machine.wait_for(1));
    machine.completions.clear();
    assert_eq!(lost(&machine).1, [(8, 1), (10, 2)]);
    // Its bytes are readable again.
    [8, 10, 11]
        .into_iter()
        .for_each(|lba| spoil(&mut machine, lba, 1));
    read_all(&mut machine, volume);
    assert_eq!(lost(&machine), (0, vec![], 0));
    assert_eq!(machine.engine.status().damage, DamageStatus::default());
}

/// Regression: after a start the pool reported no damage.
#[test]
fn a_start_recalls_what_was_lost_until_a_scrub_has_completed() {
    let (mut machine, volume) = damaged();
    read_all(&mut machine, volume);
    pass(&mut machine, 20);
    assert!(
        lost(&Machine::open(machine.memory.clone())).2 >= 1,
        "the first one is worth a checkpoint"
    );
    machine.command(Control::Checkpoint);
    machine = machine.crash();
    assert_eq!(lost(&machine), (0, vec![], 8));
    assert_eq!(
        machine.engine.status().damage.recalled[0],
        VolumeRange {
            volume,
            lba: 8,
            blocks: 8
        }
    );
    machine.write(volume, 8, 200);
    machine.flush(volume);
    assert_eq!(lost(&machine).2, 7);
    machine.out.notices.clear();
    let found = scrub(&mut machine);
    assert_eq!((found.state, found.lost_blocks), (ScrubState::Completed, 7));
    assert!(found.wrong_blocks >= 7, "what is lost was wrong: {found:?}");
    assert_eq!(named(&mut machine), (9..16).collect::<Vec<_>>());
    assert_eq!(lost(&machine), (7, vec![(9, 7)], 0));
    machine.request(
        volume,
        Op::Trim {
            offset: 0,
            length: BLOCKS * 4096,
            fua: true,
        },
    );
    assert!(machine.wait_for(1));
    machine.completions.clear();
    assert_eq!(lost(&machine), (0, vec![], 0));
}

/// Regression: unflushed writes were at risk for as long as the pool was idle.
#[test]
fn what_is_at_risk_is_flushed_after_a_while() {
    for (flush_age_ms, seconds, at_risk) in [
        (5000, 4, true),
        (5000, 6, false),
        (0, 60, true),
        (200, 1, false),
    ] {
        let mut machine = Machine::new(3, 64, 100);
        machine.command(Control::SetProperties(Properties {
            flush_age_ms,
            ..PROPERTIES
        }));
        let volume = machine.volume(1 << 20);
        machine.write(volume, 0, 1);
        assert!(machine.engine.status().at_risk_bytes > 0);
        pass(&mut machine, seconds * 1000 / 30);
        assert_eq!(
            machine.engine.status().at_risk_bytes > 0,
            at_risk,
            "age {flush_age_ms} ms, after {seconds} s: {}",
            machine.engine.describe()
        );
    }
}
