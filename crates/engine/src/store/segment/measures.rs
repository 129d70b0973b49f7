//! Sizes of what segments hold, for cleaning and admission.

use crate::store::segment::Segments;
use windrow_types::{ADDRESS_UNIT, BLOCK_BYTES, FULL_BLOCK_UNITS, SegmentId};

impl Segments {
    pub(crate) fn whole_units(&self) -> u64 {
        (self.payload_bytes_max() / ADDRESS_UNIT as u64).max(1)
    }

    /// A discard has ended, well or not: it is only advice.
    pub(crate) fn discard_done(&mut self, segment: SegmentId) {
        if self.unpin(segment) == 0 {
            self.discarded(segment);
        }
    }

    pub(crate) fn live_bytes(&self, segment: SegmentId) -> u64 {
        u64::from(self.get(segment).live_units) / u64::from(FULL_BLOCK_UNITS) * BLOCK_BYTES
    }

    pub(crate) fn what_takes_the_space(&self) -> &'static str {
        match self.quarantined_for_damage_count() {
            0 => "its reserve is used up",
            _ => "segments with unreadable blocks take up all of its space",
        }
    }
}
