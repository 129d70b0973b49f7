//! CRC-32C (Castagnoli), the checksum of every payload block.

/// The CRC-32C of some bytes.
#[inline]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Copies a block and returns the checksum of the copied bytes.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_and_checksum(dst: &mut [u8], src: &[u8]) -> u32 {
    // In this order the checksum loads the source into the cache for the copy; data from memory
    // costs the same in either order. Interleaving by smaller pieces is slower in both cases, see
    // the `reduce_bench` example.
    let sum = checksum(src);
    dst.copy_from_slice(src);
    sum
}

#[cfg(test)]
mod tests;
