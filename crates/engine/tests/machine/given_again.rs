//! A pool with refused batches that no fence identifies as refused any more.

use super::{Machine, Memory};
use windrow_engine::Event;
use windrow_format::superblock::{Superblock, slot_offset};
use windrow_geometry::Redundancy;
use windrow_types::{SegmentId, VolumeId};

/// A pool in which a start refused batches of `rows` writes each, as this row of the first one had
/// not arrived. The next batches, of blocks of 2s, got their numbers and addresses, and were
/// flushed; before them block 0 was 1. Then 33 more starts follow, each with a batch, and each cut
/// off before its checkpoint is in force: no fence records the refusal any more.
pub struct GivenAgain {
    pub memory: Memory,
    pub volume: VolumeId,
    /// Members with the refused batches, the first one torn.
    refused: Memory,
    pub segment: SegmentId,
    pub row: u32,
    /// Rows of the refused batches.
    pub rows: u32,
}

impl GivenAgain {
    pub fn new(mut machine: Machine, batches: u64, writes: u64, torn_row: u32, again: u64) -> Self {
        let volume = machine.volume(1 << 30);
        machine.write(volume, 0, 1);
        machine.flush(volume);
        for batch in 0..batches {
            (1..=writes).for_each(|lba| machine.write(volume, batch * writes + lba, 9));
            machine.now_ns += 1_000_000_000;
            machine.events.push(Event::Tick(machine.now_ns));
            machine.settle();
        }
        let of_users = |memory: &Memory| {
            let mut headers: Vec<_> = memory
                .headers()
                .into_iter()
                .filter(|(.., header)| header.stream.0 == 0)
                .collect();
            headers.sort_by_key(|(.., header)| (header.epoch, header.seq));
            headers
        };
        let found = of_users(&machine.memory);
        let (segment, row, first) = found[found.len() - batches as usize].clone();
        let rows = found.last().map_or(0, |(_, row, last)| row + last.rows) - row;
        let mut memory = machine.memory;
        memory.overwrite(segment, row + torn_row..row + torn_row + 1, 0);
        let refused = memory.clone();
        let again: Vec<_> = (0..batches)
            .map(|batch| batch * again + 1..=(batch + 1) * again)
            .collect();
        let mut memory = Self::session(memory, volume, &again);
        let found = of_users(&memory);
        let (.., second) = &found[found.len() - batches as usize];
        assert_eq!(
            (second.segment, second.row, second.seq),
            (segment, row, first.seq),
            "its number and its address"
        );
        assert!(second.epoch > first.epoch);
        for lba in 100..133 {
            memory = Self::session(memory, volume, &[lba..=lba]);
        }
        let superblock = memory.superblock();
        assert!(
            superblock
                .fences
                .iter()
                .all(|fence| fence.epoch > second.epoch)
                && superblock.checkpoints[0].is_some_and(|root| root.epoch < first.epoch)
        );
        Self {
            memory,
            volume,
            refused,
            segment,
            row,
            rows,
        }
    }

    /// A start and flushed batches; then power fails before the root of the checkpoint is written
    /// that the start begins with.
    fn session(
        memory: Memory,
        volume: VolumeId,
        batches: &[std::ops::RangeInclusive<u64>],
    ) -> Memory {
        let mut machine = Machine::open(memory);
        let started = machine.memory.superblock().generation;
        for lbas in batches {
            lbas.clone().for_each(|lba| machine.write(volume, lba, 2));
            machine.flush(volume);
        }
        let mut memory = machine.memory;
        while let superblock @ Superblock { generation, .. } = memory.superblock()
            && generation > started
        {
            let at = slot_offset(superblock.generation) as usize;
            memory
                .data
                .iter_mut()
                .for_each(|member| member[at..at + 4096].fill(0));
        }
        memory
    }

    /// The member of this column still has rows of the refused batch: it missed later writes there.
    pub fn missed(&mut self, column: usize, rows: std::ops::Range<u32>) {
        for row in rows {
            let (member, at) = self
                .memory
                .blocks(self.segment, self.row + row..self.row + row + 1)[column];
            let was = self.refused.data[member][at..at + 4096].to_vec();
            self.memory.data[member][at..at + 4096].copy_from_slice(&was);
        }
    }
}

/// A mirror in which such a batch is many rows long.
pub fn mirror() -> Machine {
    Machine::with_rows_only(Redundancy::Copies(2), 2, 64, 64, 512)
}
