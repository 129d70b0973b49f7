//! Weight of payload: the space that it takes when it is moved, in units of 16 bytes.
//!
//! A whole block weighs its stored size: the payload of a segment excludes a move's entry for each
//! block. A compressed payload of `u` units weighs `u + 2`, because many of them share a block. The
//! 32 bytes cover the entry of its move and its checksum (at most 27 bytes), and its part of the
//! checksums of blocks. User entries are shorter, so a segment can hold more weight than its
//! capacity. Moving all of it would take more than a segment, and until that changes it is no
//! victim.
//!
//! The **charge** of a pool is the weight of everything that it has to keep, now or later. Each
//! block counts with the weight of its entry in the map, and shared content with its weight, once.
//! A block in flight counts with 256 units if its newest version has payload, else with none.
//! `self_check` compares it with the maps.
//!
//! Cleaning decides by weights alone (docs/internals/reserve.md, claim 2). The stored size, which
//! is smaller, is counted separately.

use windrow_format::map_entry::MapEntry;
use windrow_types::FULL_BLOCK_UNITS;

/// Weight of a compressed payload in addition to its units.
pub(crate) const COMPRESSED_EXTRA_UNITS: u32 = 2;

/// 1 if a payload of this number of units is compressed, else 0.
#[inline]
pub(crate) fn compressed(units: u16) -> u32 {
    u32::from(units != FULL_BLOCK_UNITS)
}

/// True if a map entry has compressed payload.
#[inline]
pub(crate) fn is_compressed(entry: &MapEntry) -> bool {
    entry.has_payload() && entry.length_units() != FULL_BLOCK_UNITS
}

/// Weight of payload of `units` units with `compressed` compressed pieces.
#[inline]
pub(crate) fn weight_of(units: u64, compressed: u64) -> u64 {
    units + compressed * u64::from(COMPRESSED_EXTRA_UNITS)
}

/// Weight of a map entry's own payload: none for a block without payload, or for a reference to
/// shared content.
#[inline]
pub(crate) fn weight(entry: &MapEntry) -> u64 {
    if entry.has_payload() {
        weight_of(
            u64::from(entry.length_units()),
            u64::from(is_compressed(entry)),
        )
    } else {
        0
    }
}
