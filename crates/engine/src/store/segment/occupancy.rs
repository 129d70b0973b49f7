//! Sums over the segments, for `status`.

use super::{SegmentState, Segments};
use crate::base::limits::STREAM_CHECKPOINT;
use windrow_geometry::ZoneMap;
use windrow_types::ADDRESS_UNIT;

/// Content of the segments; see [`Segments::occupancy`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    /// Bytes on all members of all segments that are not free, redundancy included.
    pub physical_bytes: u64,
    /// Closed segments of user and cleaned data: not open, free, dead, or of checkpoints.
    pub closed: u32,
    /// Live bytes in them, as they are stored.
    pub live_bytes: u64,
    /// Bytes of their data columns less what their moves would take: the gain of cleaning without
    /// any trim.
    pub garbage_bytes: u64,
}

impl Segments {
    /// Sums over all segments in use.
    pub fn occupancy(&self, zones: &ZoneMap) -> Occupancy {
        let mut sum = Occupancy::default();
        // Segments of a dropped layout have no zone any more, but keep their entries in the table.
        for (id, s) in zones
            .segments()
            .map(|id| (id, &self.table[id.index()]))
            .filter(|(_, s)| s.state.is_in_use())
        {
            let shape = zones.shape(id);
            sum.physical_bytes += shape.extent_bytes() * u64::from(shape.width);
            let is_closed = matches!(
                s.state,
                SegmentState::Sealed | SegmentState::Cleaning | SegmentState::Quarantined
            );
            if is_closed && usize::from(s.stream) != STREAM_CHECKPOINT {
                sum.closed += 1;
                sum.live_bytes += u64::from(s.live_units) * ADDRESS_UNIT as u64;
                sum.garbage_bytes +=
                    u64::from(self.capacities[id.index()].saturating_sub(s.weight()))
                        * ADDRESS_UNIT as u64;
            }
        }
        sum
    }

    /// Live units of user and cleaned data as they are stored, and the number of compressed
    /// payloads among them.
    pub fn live_units(&self) -> (u64, u64) {
        let of_data = self
            .table
            .iter()
            .filter(|s| usize::from(s.stream) != STREAM_CHECKPOINT);
        of_data.fold((0, 0), |(units, pieces), s| {
            (
                units + u64::from(s.live_units),
                pieces + u64::from(s.live_compressed),
            )
        })
    }
}
