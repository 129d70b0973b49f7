//! A place: (segment, offset in 16-byte units), 46 bits.
//!
//! The split between segment bits and offset bits is a constant of the pool ([`PlaceCodec`]), chosen so that
//! the largest segment's data space fits. 46 bits of 16 bytes address 1 PiB of data space.

use crate::{BLOCK_BYTES, PLACE_UNIT, SegmentId};
use serde::{Deserialize, Serialize};

/// Units of a whole uncompressed block.
pub const FULL_BLOCK_UNITS: u16 = (BLOCK_BYTES / PLACE_UNIT as u64) as u16;

/// Where a payload lies: packed (segment, offset). Only a [`PlaceCodec`] of the same pool can read it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place(pub u64);

impl Place {
    /// Bits of a place.
    pub const BITS: u32 = 46;
}

/// Packs and unpacks places of one pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceCodec {
    offset_bits: u32,
}

impl PlaceCodec {
    /// A codec for segments of at most `data_blocks` data blocks each.
    pub fn for_segment_blocks(data_blocks: u64) -> Self {
        let units = data_blocks.max(1) * u64::from(FULL_BLOCK_UNITS);
        Self { offset_bits: 64 - (units - 1).leading_zeros() }
    }

    /// The number of segments that places of this pool can name.
    pub fn max_segments(&self) -> u64 {
        1 << (Place::BITS - self.offset_bits)
    }

    /// Packs a segment and an offset in 16-byte units.
    #[inline]
    pub fn pack(&self, segment: SegmentId, offset_units: u64) -> Place {
        debug_assert!(offset_units >> self.offset_bits == 0);
        Place((u64::from(segment.0) << self.offset_bits) | offset_units)
    }

    /// Packs a segment and a data-block number.
    #[inline]
    pub fn pack_block(&self, segment: SegmentId, block: u64) -> Place {
        self.pack(segment, block * u64::from(FULL_BLOCK_UNITS))
    }

    /// The segment of a place.
    #[inline]
    pub fn segment(&self, place: Place) -> SegmentId {
        SegmentId((place.0 >> self.offset_bits) as u32)
    }

    /// The offset of a place in its segment's data space, in 16-byte units.
    #[inline]
    pub fn offset_units(&self, place: Place) -> u64 {
        place.0 & ((1 << self.offset_bits) - 1)
    }

    /// The data block of the segment in which a place begins.
    #[inline]
    pub fn block(&self, place: Place) -> u64 {
        self.offset_units(place) / u64::from(FULL_BLOCK_UNITS)
    }
}
