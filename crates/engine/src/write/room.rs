//! Room in the log: what is admitted can always be sealed (invariant 7).
//!
//! The last batch of a segment names the next segment, so it can be sealed only when the stream has one. The user stream
//! reserves its next segment as soon as it may; what it may admit is bounded by what surely fits:
//! ```text
//! rest of the open segment + next segment (if reserved) + segments above the stream's floor - one chunk - unsealed
//! ```
//! One chunk is left out because without a further segment the last chunk of the last one must not be begun. Sealing early for
//! a flush wastes rows, but then nothing is unsealed, and the room is reckoned anew from where the stream stands.
//!
//! Room is counted in sixteenths of a block, so that table entries of records count too.

use crate::Engine;
use crate::limits::STREAM_USER;
use windrow_units::{SegmentId, Shape};

/// A block with payload: the block and its share of the table.
pub(crate) const DATA_UNITS: u64 = 17;
/// An entry without payload.
pub(crate) const RECORD_UNITS: u64 = 1;
/// What an unaligned change may take: a range and two blocks at each end, with a margin for volume operations.
pub(crate) const EDGE_UNITS: u64 = 8 * DATA_UNITS;

/// Units in `rows` rows of one chunk: without header and footer.
fn chunk_units(shape: &Shape, rows: u32) -> u64 {
    (u64::from(rows) * u64::from(shape.data)).saturating_sub(2) * 16
}

fn segment_units(shape: &Shape) -> u64 {
    chunk_units(shape, shape.chunk_rows) * u64::from(shape.rows / shape.chunk_rows)
}

impl Engine {
    /// Reserves the user stream's next segment if it has none and may take one.
    pub(crate) fn ensure_next_segment(&mut self) {
        if self.stream(STREAM_USER).position.next_segment == SegmentId::NONE
            && self.segments.free_count() > self.floor(STREAM_USER)
            && let Some(next) = self.segments.reserve()
        {
            self.stream_mut(STREAM_USER).position.next_segment = next;
        }
    }

    /// Units that may be admitted now.
    pub(crate) fn room_units(&self) -> u64 {
        let position = self.stream(STREAM_USER).position;
        if !self.zones.contains(position.segment) {
            return 0;
        }
        let shape = self.zones.shape(position.segment);
        let chunk_end = shape.chunk_end(position.row).min(shape.rows);
        let mut units = chunk_units(shape, chunk_end - position.row);
        units += chunk_units(shape, shape.chunk_rows) * u64::from((shape.rows - chunk_end) / shape.chunk_rows);
        if position.next_segment != SegmentId::NONE {
            let next = self.zones.shape(position.next_segment);
            let further = self.segments.free_count().saturating_sub(self.floor(STREAM_USER));
            units += segment_units(next) + u64::from(further) * self.least_segment_units();
        }
        units.saturating_sub(chunk_units(shape, shape.chunk_rows)).saturating_sub(self.admission.unsealed_units)
    }

    fn least_segment_units(&self) -> u64 {
        self.zones.zones().iter().map(|z| segment_units(&z.shape)).min().unwrap_or(0)
    }
}
