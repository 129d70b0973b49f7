//! LZ4 of single blocks, in the raw block format (no frame, no length in front: whoever stores it knows both lengths).

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

/// A packed block is smaller than the block by one part in so many at least; else it is kept as it is.
const LEAST_SAVING: usize = 8;

/// Packs blocks, with room that is used again.
#[derive(Debug, Default)]
pub struct Packer {
    room: Vec<u8>,
}

impl Packer {
    /// The block in LZ4, if that is smaller by an eighth at least.
    pub fn pack(&mut self, block: &[u8]) -> Option<&[u8]> {
        self.room.resize(get_maximum_output_size(block.len()), 0);
        let length = compress_into(block, &mut self.room).ok()?;
        (length <= block.len() - block.len() / LEAST_SAVING).then(|| &self.room[..length])
    }
}

/// Unpacks into `out`, which has the length of the block. False if the bytes are not a packed block of that length; then `out` holds anything.
pub fn unpack(packed: &[u8], out: &mut [u8]) -> bool {
    decompress_into(packed, out).is_ok_and(|length| length == out.len())
}

#[cfg(test)]
mod tests;
