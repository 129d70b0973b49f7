//! Ids of shared content: reference counts and free ids.
//!
//! 1. A count includes map entries, entries in uncommitted batches, and holds (a block that is
//!    being compared).
//! 2. An id whose count falls to zero is free, and keeps *applied*: the highest LSN of which the
//!    maps showed anything then.
//! 3. It is reused only for a block with an LSN above that (docs/internals/reduction.md,
//!    References).

use std::collections::VecDeque;
use windrow_format::map_entry::MapEntry;
use windrow_types::{Lba, Lsn};

/// No slot of the index.
const NO_SLOT: u32 = u32::MAX;

/// State of an id.
#[derive(Clone, Copy, Debug)]
struct Record {
    references: u32,
    incarnation: u32,
    slot: u32,
}

/// Initial number of records. Later the table grows by an eighth of itself, so that its memory is
/// predictable.
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
    /// Free ids with the LSN applied when they became free, ascending.
    waiting: VecDeque<(Lsn, u32)>,
    /// Free ids for LSNs above `free_after`.
    free: VecDeque<u32>,
    free_after: Lsn,
    in_use: u64,
}

impl Ids {
    /// End of all ids ever allocated since the start.
    pub(crate) fn end(&self) -> u64 {
        self.records.len() as u64
    }

    /// Number of ids with references.
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Upper bound of the table's memory with this number of ids in use. (Free ids are in lists,
    /// with up to 40 bytes for each; the map of their previous blocks took more.)
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

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let lists = self.free.capacity() * size_of::<u32>()
            + self.waiting.capacity() * size_of::<(Lsn, u32)>();
        (self.records.capacity() * size_of::<Record>() + lists) as u64
    }

    /// Allocates an id for a block with this LSN, with one reference.
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

    /// Incarnation of the content of an id in use.
    pub(crate) fn incarnation(&self, id: u32) -> u32 {
        self.records[id as usize].incarnation
    }

    /// True if the id has references in this incarnation.
    pub(crate) fn has_incarnation(&self, id: u32, incarnation: u32) -> bool {
        self.records
            .get(id as usize)
            .is_some_and(|record| record.references > 0 && record.incarnation == incarnation)
    }

    /// Index slot of an id, if it has one.
    pub(crate) fn slot(&self, id: u32) -> Option<u32> {
        Some(self.records[id as usize].slot).filter(|slot| *slot != NO_SLOT)
    }

    /// Map entry of a block with this content.
    pub(crate) fn entry(&self, id: u32) -> MapEntry {
        MapEntry::shared(Lba(u64::from(id)), self.incarnation(id))
    }

    /// Number of references.
    pub(crate) fn references(&self, id: Lba) -> u32 {
        self.records
            .get(id.0 as usize)
            .map_or(0, |record| record.references)
    }

    /// Adds a reference to an id in use. False if the count is at its limit.
    pub(crate) fn refer(&mut self, id: u32) -> bool {
        let record = &mut self.records[id as usize];
        debug_assert!(record.references > 0);
        let more = record.references < u32::MAX;
        record.references += u32::from(more);
        more
    }

    /// Drops a reference. True if it was the last one: then [`Ids::free`] follows.
    #[must_use]
    pub(crate) fn release(&mut self, id: u32) -> bool {
        let record = &mut self.records[id as usize];
        record.references -= 1;
        record.references == 0
    }

    /// Frees an id without references. `applied`: see the module.
    pub(crate) fn free(&mut self, id: u32, applied: Lsn) {
        self.in_use -= 1;
        self.waiting.push_back((applied, id));
    }

    /// Sets the index slot.
    pub(crate) fn set_slot(&mut self, id: u32, slot: u32) {
        self.records[id as usize].slot = slot;
    }

    /// Takes the index slot away and returns it.
    pub(crate) fn take_slot(&mut self, id: u32) -> Option<u32> {
        let slot = std::mem::replace(&mut self.records[id as usize].slot, NO_SLOT);
        (slot != NO_SLOT).then_some(slot)
    }

    /// Marks all ids below `end` as allocated at some time (at a start).
    pub(crate) fn were_given(&mut self, end: u64) {
        let end = end as usize;
        if end > self.records.len() {
            self.make_room(end);
            self.records.resize(end, UNUSED);
        }
    }

    /// Counts a reference found in a map (at a start).
    pub(crate) fn found(&mut self, id: Lba) {
        self.were_given(id.0 + 1);
        let record = &mut self.records[id.0 as usize];
        self.in_use += u64::from(record.references == 0);
        record.references = record.references.saturating_add(1);
    }

    /// Ends the count: sets the incarnations and frees ids without references (at a start).
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
