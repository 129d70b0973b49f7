//! Overlapped cache misses.
//!
//! A random write touches map entries that are in no cache, one after the other. If a group of
//! blocks is known before the first of them is used, all their entries are read first, in two
//! passes. Computing the address of an entry takes so much code that a processor sees only a few
//! blocks ahead. The second pass consists of loads only, of which it has dozens in flight.

use crate::store::Store;
use crate::store::map::PageSlot;
use std::hint::black_box;
use windrow_format::batch::{DecodedBatch, Entry};
use windrow_format::map_entry::MapEntry;
use windrow_io::{Op, Request};
use windrow_types::{BLOCK_BYTES, Lba, VolumeId};

use crate::store::events::Event;
use crate::store::stream::{Batch, Item};

/// Least number of events for which it pays.
const LEAST: usize = 8;

/// Positions of the entries to read; a field, so that the memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Warmth {
    addresses: Vec<(PageSlot, u8)>,
    entries: Vec<MapEntry>,
}

impl Store {
    /// Reads the entries that a group of writes will need.
    pub(crate) fn warm_events(&mut self, events: &[Event]) {
        if events.len() < LEAST {
            return;
        }
        self.warm_blocks(events.iter().filter_map(|event| match event {
            Event::Request(Request {
                volume,
                op: Op::Write { offset, .. },
                ..
            }) => Some((*volume, Lba(offset / BLOCK_BYTES))),
            _ => None,
        }));
        for event in events {
            if let Event::Request(Request {
                op: Op::Write { data, .. },
                ..
            }) = event
            {
                black_box(data.first());
            }
        }
    }

    /// Reads the entries that the comparison of a batch to be cleaned with the map will need.
    pub(crate) fn warm_decoded(&mut self, batch: &DecodedBatch) {
        self.warm_blocks(
            batch
                .entries
                .iter()
                .filter_map(|decoded| match decoded.entry {
                    Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => {
                        Some((volume, lba))
                    }
                    _ => None,
                }),
        );
    }

    /// Reads the entries and the segments that the commit of a batch will change.
    #[inline]
    pub(crate) fn warm_commit(&mut self, batch: &Batch) {
        self.warm_blocks(batch.items.iter().filter_map(|item| match item {
            Item::Data { key, .. } | Item::Move { key, .. } => Some((key.volume(), key.lba())),
            _ => None,
        }));
        for entry in self
            .observe
            .warmth
            .entries
            .iter()
            .filter(|entry| entry.has_payload())
        {
            self.segments.warm(self.pool.codec.segment(entry.address()));
        }
    }

    /// Reads the entries of blocks.
    pub(crate) fn warm_blocks(&mut self, blocks: impl Iterator<Item = (VolumeId, Lba)>) {
        let Warmth { addresses, entries } = &mut self.observe.warmth;
        addresses.clear();
        entries.clear();
        let mut last = None;
        for (volume, lba) in blocks {
            let map = match last {
                Some((known, map)) if known == volume => map,
                _ => {
                    let Some(found) = self.volumes.get(volume) else {
                        continue;
                    };
                    last = Some((volume, &found.map));
                    &found.map
                }
            };
            addresses.extend(map.locate(lba));
        }
        entries.extend(
            addresses
                .iter()
                .map(|(slot, at)| self.volumes.arena.page(*slot)[usize::from(*at)]),
        );
        black_box(entries.last());
    }
}
