//! Room in the log: whatever is admitted can be sealed (invariant 7).
//!
//! The last batch of a segment names its successor, so it can be sealed only when the stream has
//! one. The user stream reserves segments ahead, and admission is limited to what surely fits:
//! ```text
//! rest of the open segment + segments reserved ahead - one chunk of the last one
//!     - admitted and not sealed
//! ```
//! The last chunk stays empty: without a successor it must not be begun. A flush that seals early
//! pads rows; nothing is unsealed then, so the room is recomputed from the stream's position.
//! Blocks under compression are not placed yet: as long as they would lack room after the padding,
//! nothing is sealed early. Where only full rows are sealed (`rows.rs`), room is kept for the
//! header and footer of the rest.
//!
//! Room is counted in sixteenths of a block, so that table entries of records count too.

use crate::base::limits::{LAST_SEGMENTS, STREAM_USER};
use crate::path::Paths;
use crate::store::Store;
use crate::store::plan::{DATA_UNITS, RECORD_UNITS, chunk_units, segment_units, segments_ahead};
use crate::store::stream::Item;
use windrow_format::batch::BatchPlan;

/// Units of compressed payload (16 bytes) per unit of room.
const COMPRESSED_UNITS: u64 = 16;

/// Room that an item of an open batch takes.
pub(super) fn item_units(item: &Item) -> u64 {
    match item {
        Item::Data { .. } | Item::IndexPage { .. } => DATA_UNITS,
        // With its reference as much as admission counted.
        Item::Content { .. } => DATA_UNITS - RECORD_UNITS,
        Item::Reference { .. }
        | Item::Fill { .. }
        | Item::Record
        | Item::Move { .. }
        | Item::Page { .. } => RECORD_UNITS,
    }
}

impl Paths {
    /// Reserves segments ahead for the user stream, as far as its floor permits.
    pub(crate) fn ensure_next_segment(&mut self, store: &mut Store) {
        let wanted = self.segments_wanted(store) as usize;
        while self.log.stream(STREAM_USER).reserved.len() < wanted
            && store.segments.free_count() > self.floor(STREAM_USER, store)
        {
            if !self.take_ahead(store) {
                return;
            }
        }
    }

    /// Reserves a free segment ahead for the user stream, regardless of its floor. False if there
    /// is none.
    pub(super) fn take_ahead(&mut self, store: &mut Store) -> bool {
        let Some(next) = store.segments.reserve() else {
            return false;
        };
        let stream = self.log.stream_mut(STREAM_USER);
        stream.reserved.push_back(next);
        stream.position.next_segment = stream.reserved[0];
        true
    }

    /// Reserves segments for the entries that a start readmits from the journal. Their journal copy
    /// is durable, and they may exceed the room that is normally reserved. Batches that were not
    /// durable are gone, and so are the segments reserved for them.
    pub(crate) fn reserve_for_readmitted(&mut self, store: &mut Store) {
        self.ensure_next_segment(store);
        // The delete of a volume may have taken a segment far below the floor: `exhausted.rs`.
        while self.admission.unsealed_units > self.log_units(store)
            && store.segments.free_count() > LAST_SEGMENTS
            && self.take_ahead(store)
        {}
    }

    /// Units that may be admitted now.
    pub(crate) fn room_units(&self, store: &Store) -> u64 {
        self.log_units(store)
            .saturating_sub(self.admission.unsealed_units)
    }

    /// Units that surely fit in the segments that the user stream holds. Units admitted and not
    /// sealed never exceed them.
    pub(crate) fn log_units(&self, store: &Store) -> u64 {
        self.log_units_behind(0, store)
    }

    /// True if all that is admitted and not placed fits after this batch, the open one, although it
    /// is not full. Its padding is lost to the room.
    pub(super) fn leaves_room(&self, plan: &BatchPlan, store: &Store) -> bool {
        self.admission.placing.is_empty()
            || self.admission.unsealed_units - self.admission.opened_units
                <= self.log_units_behind(plan.rows, store)
    }

    fn log_units_behind(&self, rows: u32, store: &Store) -> u64 {
        let position = self.log.stream(STREAM_USER).position;
        if !store.pool.zones.contains(position.segment) {
            return 0;
        }
        let shape = store.pool.zones.shape(position.segment);
        let row = position.row + rows;
        let chunk_end = shape.chunk_end(row).min(shape.rows);
        let mut units = chunk_units(shape, chunk_end - row);
        units += chunk_units(shape, shape.chunk_rows)
            * u64::from((shape.rows - chunk_end) / shape.chunk_rows);
        units += self
            .log
            .stream(STREAM_USER)
            .reserved
            .iter()
            .map(|s| segment_units(store.pool.zones.shape(*s)))
            .sum::<u64>();
        // Not the open segment's chunk: segments of zones with more members have larger ones.
        let last = store.pool.zones.shape(
            self.log
                .stream(STREAM_USER)
                .reserved
                .back()
                .copied()
                .unwrap_or(position.segment),
        );
        units.saturating_sub(chunk_units(last, last.chunk_rows))
    }

    /// True if the open batch takes far less room than was counted: it has many entries without
    /// payload, or its payload compressed well.
    pub(super) fn counts_too_much(&self, _store: &Store) -> bool {
        let table = &self.log.stream(STREAM_USER).open.table;
        let compressed: u64 = table
            .compressed()
            .iter()
            .map(|units| u64::from(*units))
            .sum();
        let payloads = u64::from(table.payload_blocks()) * 16 + compressed / COMPRESSED_UNITS;
        self.admission.opened_units
            > 2 * (payloads + table.encoded_len().div_ceil(256) as u64) + 4 * DATA_UNITS
    }

    /// Segments that the user stream reserves ahead.
    pub(crate) fn segments_wanted(&self, store: &Store) -> u32 {
        segments_ahead(&store.pool.zones)
    }

    /// Units in a segment of the zone with the fewest.
    pub(super) fn least_segment_units(&self, store: &Store) -> u64 {
        store
            .pool
            .zones
            .zones()
            .iter()
            .map(|z| segment_units(&z.shape))
            .min()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
