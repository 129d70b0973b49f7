//! What a member still has of a former life of its segments, because a write to it was lost, is never taken for what lives there.

mod machine;

use machine::{Machine, Memory};
use windrow_engine::*;
use windrow_units::{Redundancy, VolumeId};

/// The same blocks at the same places, with other bytes: two lives of one pool that went apart in a power cut.
fn life(memory: &Memory, volume: VolumeId, blocks: u64, round: u64) -> Machine {
    let mut machine = Machine::open(memory.clone());
    (0..blocks).for_each(|lba| machine.write(volume, lba, (lba * 3 + round) as u8));
    machine.flush(volume);
    assert_eq!(machine.command(Control::Checkpoint), Some(Ok(ControlReply::Done)));
    machine
}

/// Cleaning took the table of the former life for that of the batch: its blocks have their places and the right checksums for their own bytes,
/// and were moved as what lives there.
#[test]
fn cleaning_moves_what_the_map_means_and_not_what_was_there_before() {
    for (redundancy, members) in [(Redundancy::Copies(2), 2), (Redundancy::Copies(3), 3)] {
        let mut machine = Machine::with(redundancy, members, 12, 100);
        let volume = machine.volume(1 << 30);
        assert_eq!(machine.command(Control::Shutdown { export: false }), Some(Ok(ControlReply::Done)));
        let start = machine.engine.status().plan.zones[0].start as usize;
        let blocks = machine.engine.status().plan.usable_bytes / 4096 * 8 / 10;
        let former = life(&machine.memory, volume, blocks, 1);
        let mut machine = life(&machine.memory, volume, blocks, 2);
        machine.memory.data[0][start..].copy_from_slice(&former.memory.data[0][start..]);
        // Every other block is written again and again: what is between them is moved.
        for round in 3..7 {
            (0..blocks).step_by(2).for_each(|lba| machine.write(volume, lba, (lba * 3 + round) as u8));
            machine.flush(volume);
        }
        assert!(machine.engine.status().segments_cleaned > 4, "{redundancy:?}: {} cleaned", machine.engine.status().segments_cleaned);
        for lba in 0..blocks {
            let round = if lba % 2 == 0 { 6 } else { 2 };
            assert_eq!(machine.byte(volume, lba), (lba * 3 + round) as u8, "{redundancy:?}: block {lba}");
        }
    }
}
