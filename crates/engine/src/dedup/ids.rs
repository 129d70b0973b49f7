//! Ids of shared content: who refers to them, and which are free.
//!
//! 1 A count is of map entries, of entries in batches that are not committed, and of holds (a block
//!   that is being compared). 2 An id whose count falls to zero is free, and remembers *applied*:
//!   the highest order of which the maps showed anything then. 3 It is given only to a block with
//!   an order above that (docs/internals/reduction.md, References).

use std::collections::VecDeque;
use windrow_format::map_entry::MapEntry;
use windrow_types::{Lba, Lsn};

/// No slot of the index.
const NO_SLOT: u32 = u32::MAX;

/// What is known of an id.
#[derive(Clone, Copy, Debug)]
struct Record {
    references: u32,
    incarnation: u32,
    slot: u32,
}

/// Records for which there is room at first; later the table grows by an eighth of itself, so that
/// what a pool needs can be said beforehand.
const FIRST: usize = 4096;

const UNUSED: Record = Record {
    references: 0,
    incarnation: 0,
    slot: NO_SLOT,
};

/// All ids, from 0.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    records: Vec<Record>,
    /// Free ids with what was applied when they became free, ascending.
    waiting: VecDeque<(Lsn, u32)>,
    /// Free ids for orders above `free_after`.
    free: VecDeque<u32>,
    free_after: Lsn,
    in_use: u64,
}

impl Ids {
    /// Ids that have ever been given since the start: all are below.
    pub(crate) fn end(&self) -> u64 {
        self.records.len() as u64
    }

    /// Ids that somebody refers to.
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Most bytes of memory of the table for so many ids in use. (Free ones are in lists, with up
    /// to 40 bytes for each; the map of the blocks that had them took more.)
    pub(crate) fn bytes_for(ids: u64) -> u64 {
        (ids + ids / 8 + FIRST as u64) * size_of::<Record>() as u64
    }

    fn make_room(&mut self, records: usize) {
        if records > self.records.capacity() {
            let more = (self.records.len() / 8).max(FIRST);
            self.records
                .reserve_exact((records - self.records.len()).max(more));
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let lists = self.free.capacity() * size_of::<u32>()
            + self.waiting.capacity() * size_of::<(Lsn, u32)>();
        (self.records.capacity() * size_of::<Record>() + lists) as u64
    }

    /// Gives an id to a block with this order, with one reference.
    pub(crate) fn take(&mut self, lsn: Lsn) -> u32 {
        while let Some((applied, id)) = self
            .waiting
            .front()
            .copied()
            .filter(|(applied, _)| *applied < lsn)
        {
            self.waiting.pop_front();
            self.free.push_back(id);
            self.free_after = self.free_after.max(applied);
        }
        let known = if lsn > self.free_after {
            self.free.pop_front()
        } else {
            None
        };
        let id = known.unwrap_or_else(|| {
            self.make_room(self.records.len() + 1);
            self.records.push(UNUSED);
            (self.records.len() - 1) as u32
        });
        self.records[id as usize] = Record {
            references: 1,
            incarnation: lsn.0 as u32,
            slot: NO_SLOT,
        };
        self.in_use += 1;
        id
    }

    /// The life of the content of an id in use.
    pub(crate) fn incarnation(&self, id: u32) -> u32 {
        self.records[id as usize].incarnation
    }

    /// True if somebody refers to the id, in this life.
    pub(crate) fn has_incarnation(&self, id: u32, incarnation: u32) -> bool {
        self.records
            .get(id as usize)
            .is_some_and(|record| record.references > 0 && record.incarnation == incarnation)
    }

    /// Where the index has an id, if it does.
    pub(crate) fn slot(&self, id: u32) -> Option<u32> {
        Some(self.records[id as usize].slot).filter(|slot| *slot != NO_SLOT)
    }

    /// What the map of a block shows that has this content.
    pub(crate) fn entry(&self, id: u32) -> MapEntry {
        MapEntry::shared(Lba(u64::from(id)), self.incarnation(id))
    }

    /// References to it.
    pub(crate) fn references(&self, id: Lba) -> u32 {
        self.records
            .get(id.0 as usize)
            .map_or(0, |record| record.references)
    }

    /// One more reference to an id in use. False if there can be no more.
    pub(crate) fn refer(&mut self, id: u32) -> bool {
        let record = &mut self.records[id as usize];
        debug_assert!(record.references > 0);
        let more = record.references < u32::MAX;
        record.references += u32::from(more);
        more
    }

    /// One reference less. True if it was the last one: then [`Ids::free`] follows.
    #[must_use]
    pub(crate) fn release(&mut self, id: u32) -> bool {
        let record = &mut self.records[id as usize];
        record.references -= 1;
        record.references == 0
    }

    /// Nobody refers to it any more. `applied`: see above.
    pub(crate) fn free(&mut self, id: u32, applied: Lsn) {
        self.in_use -= 1;
        self.waiting.push_back((applied, id));
    }

    /// Where the index has it.
    pub(crate) fn set_slot(&mut self, id: u32, slot: u32) {
        self.records[id as usize].slot = slot;
    }

    /// Where the index has it, which is forgotten.
    pub(crate) fn take_slot(&mut self, id: u32) -> Option<u32> {
        let slot = std::mem::replace(&mut self.records[id as usize].slot, NO_SLOT);
        (slot != NO_SLOT).then_some(slot)
    }

    /// All ids below `end` were given at some time (at a start).
    pub(crate) fn were_given(&mut self, end: u64) {
        let end = end as usize;
        if end > self.records.len() {
            self.make_room(end);
            self.records.resize(end, UNUSED);
        }
    }

    /// A map has a reference to it (at a start).
    pub(crate) fn found(&mut self, id: Lba) {
        self.were_given(id.0 + 1);
        let record = &mut self.records[id.0 as usize];
        self.in_use += u64::from(record.references == 0);
        record.references = record.references.saturating_add(1);
    }

    /// All references are found: notes the lives, and that all others are free (at a start).
    pub(crate) fn settle(&mut self, applied: Lsn, incarnation: impl Fn(Lba) -> u32) {
        for (at, record) in self.records.iter_mut().enumerate() {
            record.incarnation = incarnation(Lba(at as u64));
            if record.references == 0 {
                self.waiting.push_back((applied, at as u32));
            }
        }
    }
}

#[cfg(test)]
mod tests;
