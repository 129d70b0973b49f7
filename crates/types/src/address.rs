//! Address: (segment, offset in 16-byte units), 46 bits.
//!
//! The split between segment bits and offset bits is a constant of the pool ([`AddressCodec`]),
//! fixed at its creation and stored in its superblock. Addresses never change their meaning when
//! members join or leave. 46 bits of 16 bytes address 1 PiB of data space.

use crate::{ADDRESS_UNIT, BLOCK_BYTES, SegmentId};
use serde::{Deserialize, Serialize};

/// Units of a whole uncompressed block.
pub const FULL_BLOCK_UNITS: u16 = (BLOCK_BYTES / ADDRESS_UNIT as u64) as u16;

/// Address of a payload: packed (segment, offset). Only an [`AddressCodec`] of the same pool can
/// decode it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Address(pub u64);

impl Address {
    /// Bits of an address.
    pub const BITS: u32 = 46;
}

/// Packs and unpacks the addresses of one pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressCodec {
    offset_bits: u32,
}

impl AddressCodec {
    /// Factor of segment numbers that a pool reserves over those at its creation: successive
    /// layouts use new ids.
    const SEGMENTS_HEADROOM: u64 = 4;

    /// A codec with `offset_bits` bits for the offset: at least 8 (one block) and fewer than
    /// [`Address::BITS`].
    pub fn new(offset_bits: u8) -> Self {
        debug_assert!((8..Address::BITS).contains(&u32::from(offset_bits)));
        Self {
            offset_bits: u32::from(offset_bits),
        }
    }

    /// The codec with the fewest offset bits for segments of at most `data_blocks` data blocks
    /// each.
    pub fn for_segment_blocks(data_blocks: u64) -> Self {
        let units = data_blocks.max(1) * u64::from(FULL_BLOCK_UNITS);
        Self {
            offset_bits: 64 - (units - 1).leading_zeros(),
        }
    }

    /// The codec of a new pool of `segments` segments with at most `data_blocks` data blocks. It is
    /// wide enough for segments of `data_blocks_most` blocks if that leaves segment numbers in
    /// reserve, else as wide as the reserve allows.
    pub fn with_headroom(data_blocks: u64, data_blocks_most: u64, segments: u64) -> Self {
        let least = Self::for_segment_blocks(data_blocks).offset_bits;
        let most = Self::for_segment_blocks(data_blocks_most).offset_bits;
        let segment_bits = 64 - (segments.max(1) * Self::SEGMENTS_HEADROOM - 1).leading_zeros();
        Self {
            offset_bits: most
                .min(Address::BITS.saturating_sub(segment_bits))
                .max(least),
        }
    }

    /// Number of offset bits.
    pub fn offset_bits(&self) -> u8 {
        self.offset_bits as u8
    }

    /// True if a segment of `data_blocks` data blocks can be addressed.
    pub fn fits(&self, data_blocks: u64) -> bool {
        Self::for_segment_blocks(data_blocks).offset_bits <= self.offset_bits
    }

    /// Number of segments that addresses of this pool can name.
    pub fn max_segments(&self) -> u64 {
        1 << (Address::BITS - self.offset_bits)
    }

    /// Data blocks of the largest segment that can be addressed.
    pub fn max_segment_blocks(&self) -> u64 {
        (1 << self.offset_bits) / u64::from(FULL_BLOCK_UNITS)
    }

    /// Packs a segment and an offset in 16-byte units.
    #[inline]
    pub fn pack(&self, segment: SegmentId, offset_units: u64) -> Address {
        debug_assert!(offset_units >> self.offset_bits == 0);
        Address((u64::from(segment.0) << self.offset_bits) | offset_units)
    }

    /// Packs a segment and a data-block number.
    #[inline]
    pub fn pack_block(&self, segment: SegmentId, block: u64) -> Address {
        self.pack(segment, block * u64::from(FULL_BLOCK_UNITS))
    }

    /// Segment of an address.
    #[inline]
    pub fn segment(&self, address: Address) -> SegmentId {
        SegmentId((address.0 >> self.offset_bits) as u32)
    }

    /// Offset of an address in its segment's data space, in 16-byte units.
    #[inline]
    pub fn offset_units(&self, address: Address) -> u64 {
        address.0 & ((1 << self.offset_bits) - 1)
    }

    /// Data block of the segment in which the payload begins.
    #[inline]
    pub fn block(&self, address: Address) -> u64 {
        self.offset_units(address) / u64::from(FULL_BLOCK_UNITS)
    }
}
