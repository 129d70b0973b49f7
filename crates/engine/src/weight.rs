//! What payload takes when it is moved: its *weight*, in units of 16 bytes.
//!
//! A whole block weighs what it is stored in: the payload of a segment leaves out a move's entry
//! for each block. A packed payload of `u` units weighs `u + 2`, because many of them share a
//! block: the 32 bytes are what the entry of its move and its checksum take at most (27 bytes), and
//! its part of the checksums of blocks. What users wrote has shorter entries, so a segment can hold
//! more weight than its capacity: moving all of it would take more than a segment, and it is no
//! victim as long as that is so.
//!
//! The **charge** of a pool is the weight of what it has to keep, or will have to: of each block
//! the weight of its entry in the map; of one that is on its way 256 units if its newest version
//! has payload, else nothing; of shared content its weight, once. `self_check` holds it against the
//! maps.
//!
//! Cleaning decides by weights alone (docs/internals/reserve.md, claim 2). What is stored, which is
//! less, is counted beside it.

use windrow_format::map_entry::MapEntry;
use windrow_types::FULL_BLOCK_UNITS;

/// What the weight of a packed payload is above its units.
pub(crate) const COMPRESSED_EXTRA_UNITS: u32 = 2;

/// 1 if a payload of so many units is packed, else 0.
#[inline]
pub(crate) fn compressed(units: u16) -> u32 {
    u32::from(units != FULL_BLOCK_UNITS)
}

/// True if a map entry has packed payload.
#[inline]
pub(crate) fn is_compressed(entry: &MapEntry) -> bool {
    entry.has_payload() && entry.length_units() != FULL_BLOCK_UNITS
}

/// Weight of payload of so many units, of which so many pieces are packed.
#[inline]
pub(crate) fn weight_of(units: u64, compressed: u64) -> u64 {
    units + compressed * u64::from(COMPRESSED_EXTRA_UNITS)
}

/// Weight of what a map entry has of its own: nothing of a block without payload, or of a reference
/// to shared content.
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
