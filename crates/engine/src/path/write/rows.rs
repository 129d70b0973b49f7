//! Full rows: the part of the open batch that fills rows to the last block is sealed, and the rest
//! stays open (docs/internals/journal.md, Cost).
//!
//! A batch may end after any entry at which LSNs ascend. The rest must still fit where the next
//! batch begins. So nothing is split where less of the chunk is left than the rest takes.

use super::room::item_units;
use crate::base::limits::STREAM_USER;
use crate::path::Paths;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::plan::DATA_UNITS;
use crate::store::stream::OpenBatch;
use windrow_format::batch::{Entry, TableWriter, plan_compressed};
use windrow_geometry::Shape;
use windrow_types::{FULL_BLOCK_UNITS, Lsn};

/// The part of the open user batch that can go to the log without padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FullRows {
    /// Its entries.
    pub(crate) entries: usize,
    /// Last LSN in it or in an earlier batch.
    pub(crate) last: Lsn,
}

/// Bound on the growth of an entry that becomes the first one of its table.
const ENTRY_WITHOUT_CONTEXT: usize = 64;

/// Number of entries in the longest part of a table that fills rows, from `row` of a segment on, to
/// the last block. The part leaves room for the rest. 0: none.
fn full_entries(entries: &[(Entry, u16)], whole: &TableWriter, shape: &Shape, row: u32) -> usize {
    let mut table = TableWriter::new();
    // For each part the length of its table and its payloads, uncompressed and compressed.
    let mut parts = Vec::with_capacity(entries.len());
    for (entry, units) in entries {
        table.push_stored(
            entry,
            if entry.has_payload() {
                *units
            } else {
                FULL_BLOCK_UNITS
            },
        );
        parts.push((
            table.encoded_len(),
            table.payload_blocks(),
            table.compressed().len(),
        ));
    }
    // From the end: the first one that fits is the longest, and few have to be checked.
    let is_full = |(length, blocks, compressed): (usize, u32, usize)| {
        let Some(plan) = plan_compressed(
            shape,
            row,
            length,
            blocks,
            &whole.compressed()[..compressed],
        ) else {
            return false;
        };
        // The next segment may have rows of another width.
        let behind = row + plan.rows;
        if plan.padding_blocks > 0 || behind == shape.rows {
            return false;
        }
        let rest = whole.encoded_len() - length + ENTRY_WITHOUT_CONTEXT;
        plan_compressed(
            shape,
            behind,
            rest,
            whole.payload_blocks() - blocks,
            &whole.compressed()[compressed..],
        )
        .is_some()
    };
    (0..parts.len().saturating_sub(1))
        .rev()
        .find(|at| is_full(parts[*at]))
        .map_or(0, |at| at + 1)
}

impl Paths {
    /// The part of the open user batch that fills rows; without entries if no row is full. `None`:
    /// there is no open batch, or it holds nothing that a flush up to `horizon` needs.
    pub(crate) fn full_rows(&self, horizon: Lsn, store: &Store) -> Option<FullRows> {
        if !self.is_one_user_stream(store) {
            // LSNs of the open batch interleave with those of other streams.
            return None;
        }
        let user = self.log.stream(STREAM_USER);
        let (first, _) = user.open.lsns.filter(|(first, _)| *first <= horizon)?;
        let none = FullRows {
            entries: 0,
            last: Lsn(first.0 - 1),
        };
        if user.position.segment == windrow_types::SegmentId::NONE {
            return Some(none);
        }
        let shape = store.pool.zones.shape(user.position.segment);
        let table = &user.open.table;
        if u64::from(table.payload_blocks()) + table.compressed().len() as u64 + 2
            < u64::from(shape.data)
        {
            return Some(none);
        }
        let entries = user.open.table.decode();
        let count = full_entries(&entries, &user.open.table, shape, user.position.row);
        let lsns = |(entry, _): &(Entry, u16)| {
            entry.lsns().map_or((Lsn(0), Lsn(0)), |(first, count)| {
                (first, Lsn(first.0 + count - 1))
            })
        };
        let last = entries[..count].iter().map(|entry| lsns(entry).1).max();
        let behind = entries[count..].iter().map(|entry| lsns(entry).0).min();
        match (last, behind) {
            (Some(last), Some(behind)) if last < behind => Some(FullRows {
                entries: count,
                last,
            }),
            _ => Some(none),
        }
    }

    /// Seals the full rows of the open user batch; the rest stays open. False if that is not
    /// possible now, with nothing changed.
    pub(crate) fn seal_full_rows(
        &mut self,
        rows: &FullRows,
        store: &mut Store,
        out: &mut Outbox,
    ) -> bool {
        if self.room_units(store) < 2 * DATA_UNITS {
            return false;
        }
        let units = self.admission.opened_units;
        let whole = std::mem::take(&mut self.log.stream_mut(STREAM_USER).open);
        let (front, rest) = split(&whole, rows.entries);
        let units_of_rest: u64 = rest.items.iter().map(item_units).sum();
        self.log.stream_mut(STREAM_USER).open = front;
        self.admission.opened_units = units - units_of_rest;
        let sealed = self.seal(STREAM_USER, store, out);
        self.log.stream_mut(STREAM_USER).open = if sealed { rest } else { whole };
        self.admission.opened_units = if sealed { units_of_rest } else { units };
        sealed
    }
}

/// The first entries of an open batch, and the others.
fn split(whole: &OpenBatch, entries: usize) -> (OpenBatch, OpenBatch) {
    let ages = || OpenBatch {
        since_ns: whole.since_ns,
        at_risk_since_ns: whole.at_risk_since_ns,
        ..OpenBatch::default()
    };
    let (mut front, mut rest) = (ages(), ages());
    let mut payloads = whole.payloads.iter();
    for (at, ((entry, units), item)) in whole.table.decode().iter().zip(&whole.items).enumerate() {
        let part = if at < entries { &mut front } else { &mut rest };
        part.table.push_stored(
            entry,
            if entry.has_payload() {
                *units
            } else {
                FULL_BLOCK_UNITS
            },
        );
        part.items.push(*item);
        if entry.has_payload() {
            part.payloads.extend(payloads.next().cloned());
        }
        if let Some((first, count)) = entry.lsns() {
            part.cover(first);
            part.cover(Lsn(first.0 + count - 1));
        }
    }
    (front, rest)
}
