//! LZ4 of single blocks, in the raw block format (no frame, no length in front: whoever stores it knows both lengths).
//!
//! In the log packed blocks take whole units of 16 bytes: behind the LZ4 bytes come 1 to 16 bytes that fill the last unit, zeroes and then their
//! number. So the number of units tells the length.

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

/// One byte in so many is looked at by [`looks_random`]. Odd, so that numbers of 2, 4 or 8 bytes are met at each of their bytes.
const SAMPLE_STEP: usize = 17;
/// More of one byte among the 241 of a block than random bytes ever have (one in 100 000 blocks has 9), and fewer than LZ4 needs to save an eighth by runs.
const SAMPLE_REPEATS: u8 = 9;

/// True if no byte is frequent in the block. Nearly always LZ4 makes nothing of it then; but repetitions of long random parts are not noticed. A tenth of the time
/// that LZ4 takes to find out.
pub fn looks_random(block: &[u8]) -> bool {
    let mut counts = [0u8; 256];
    block.iter().step_by(SAMPLE_STEP).all(|byte| {
        let count = &mut counts[usize::from(*byte)];
        *count = count.saturating_add(1);
        *count <= SAMPLE_REPEATS
    })
}

/// Bytes of a unit in which packed blocks are stored.
pub const UNIT: usize = 16;

impl Packer {
    /// Appends the block to `out` as it is stored in the log, in whole units; the bytes it takes, or `None` if it is not worth it (then nothing is
    /// appended). With its filling, too, it is smaller by an eighth at least.
    pub fn pack_stored(&mut self, block: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let most = block.len() - block.len() / LEAST_SAVING;
        let packed = self.pack(block)?;
        let stored = (packed.len() + 1).next_multiple_of(UNIT);
        if stored > most {
            return None;
        }
        let end = out.len() + stored;
        out.extend_from_slice(packed);
        out.resize(end - 1, 0);
        out.push((stored - packed.len()) as u8);
        Some(stored)
    }
}

/// Unpacks what [`Packer::pack_stored`] made. False if it is no such thing; then `out` holds anything.
pub fn unpack_stored(stored: &[u8], out: &mut [u8]) -> bool {
    let Some(filling) = stored.last().map(|filling| usize::from(*filling)) else { return false };
    let is_filled = stored.len().is_multiple_of(UNIT) && (1..=UNIT).contains(&filling);
    is_filled && stored.len() > filling && unpack(&stored[..stored.len() - filling], out)
}

/// Unpacks into `out`, which has the length of the block. False if the bytes are not a packed block of that length; then `out` holds anything.
pub fn unpack(packed: &[u8], out: &mut [u8]) -> bool {
    decompress_into(packed, out).is_ok_and(|length| length == out.len())
}

#[cfg(test)]
mod tests;
