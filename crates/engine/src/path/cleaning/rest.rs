//! Work that ends without progress, when to try it again, and the sums for that.

use crate::path::Space;
use crate::store::segment::Segments;
use crate::store::volume::Volumes;
use windrow_types::{ADDRESS_UNIT, Lsn, SegmentId};

/// Parts of a segment in which the gain and cost of victims are counted.
pub(crate) const GAIN_PARTS: u64 = 32;

/// Detects reclaim work that frees nothing. Progress is a change of `seen`, or more free segments
/// than at any time since the last progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest<S> {
    pub(crate) seen: S,
    pub(crate) most_free: u32,
    pub(crate) spent: u64,
}

impl<S: PartialEq> Rest<S> {
    /// True if at least `bound` of work made no progress.
    pub(crate) fn rests(&mut self, seen: S, free: u32, bound: u64) -> bool {
        if self.seen != seen || self.most_free < free {
            *self = Self {
                seen,
                most_free: free,
                spent: 0,
            };
        }
        self.spent >= bound
    }

    /// Counts more work.
    pub(crate) fn spend(&mut self, much: u64) {
        self.spent += much;
    }
}

/// Progress of clients: the last LSN (while data is refused, the last one before that) and the
/// space of their data in segments. Also the number of segments that died while quarantined, and
/// that of segments of older layouts.
pub(crate) type Users = (Lsn, u64, u64, u32);

/// Progress of clients and cleaning, and the number of dead segments that wait for reads.
pub(crate) type Seen = (Users, u64, usize);

impl Space {
    /// Segments that user data takes.
    pub(crate) fn data_segments(&self, volumes: &Volumes, segments: &Segments) -> u64 {
        volumes.charge() / segments.whole_units()
    }

    /// Reduces the backlog by the space that trims have freed.
    pub(crate) fn repay_deficit(&mut self, volumes: &Volumes, segments: &Segments) {
        let now = self.data_segments(volumes, segments);
        let paid = std::mem::replace(&mut self.cleaner.data_segments, now).saturating_sub(now);
        self.cleaner.deficit = self.cleaner.deficit.saturating_sub(paid * GAIN_PARTS);
    }

    /// Units in parts of a segment.
    pub(crate) fn in_parts(&self, segments: &Segments, units: u32) -> u64 {
        u64::from(units) * GAIN_PARTS / segments.whole_units()
    }

    /// Gain of emptying a segment, in parts of one.
    pub(crate) fn gain_parts(&self, segments: &Segments, segment: SegmentId) -> u64 {
        segments.garbage(segment) / ADDRESS_UNIT as u64 * GAIN_PARTS / segments.whole_units()
    }
}
