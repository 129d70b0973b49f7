//! Compression of single blocks: LZ4 in the raw block format, or one zstd frame without its magic
//! number (the code that stores it knows both lengths).
//!
//! In the log compressed blocks take whole units of 16 bytes. After the codec's bytes come 1 to 16
//! bytes that fill the last unit: zeroes, then one that encodes their number and the codec. So the
//! number of units gives the length, and the payload itself identifies the codec.
//! ```text
//! last byte   1..=16 LZ4   17..=32 zstd   33..=48 LZ4, and zstd was tried without gain   (number of filling bytes: the rest modulo 16, 0 is 16)
//! ```

use crate::same::is_lz4_of;
use crate::zstd::{LEVEL, LEVEL_COLD, Zstd};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use std::sync::{Arc, Mutex, PoisonError};

/// Minimum saving, as a fraction of the block (one in this number); with less the block is stored
/// uncompressed.
const LEAST_SAVING: usize = 8;
/// Minimum saving in bytes of recompressed LZ4, a 32nd of a block. Decompressing zstd takes two to
/// three times as long as LZ4, so less is not worth it.
pub const REPACK_LEAST: usize = 128;
/// Bytes of a unit in which compressed blocks are stored.
pub const UNIT: usize = 16;
/// Bytes of a zstd frame's magic number, which is not stored.
const MAGIC: usize = 4;

/// Compression algorithm of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// LZ4.
    Lz4,
    /// zstd, at the level of blocks that were just written.
    Zstd,
}

/// Codec of a compressed payload, and whether it can become smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// LZ4.
    Lz4,
    /// zstd.
    Zstd,
    /// LZ4; zstd was tried without gain.
    Lz4Final,
}

impl Made {
    /// Offset of the number of filling bytes in the last byte.
    fn mark(self) -> u8 {
        match self {
            Self::Lz4 => 0,
            Self::Zstd => 16,
            Self::Lz4Final => 32,
        }
    }

    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Lz4Final => "lz4, zstd tried",
        }
    }

    /// Codec of a payload, and the codec's bytes of it; `None` if no payload ends like this.
    pub fn of(stored: &[u8]) -> Option<(Self, &[u8])> {
        let last = *stored.last()?;
        let (made, filling) = match last {
            1..=16 => (Self::Lz4, last),
            17..=32 => (Self::Zstd, last - 16),
            33..=48 => (Self::Lz4Final, last - 32),
            _ => return None,
        };
        let length = stored
            .len()
            .checked_sub(usize::from(filling))
            .filter(|length| *length > 0 && stored.len().is_multiple_of(UNIT))?;
        Some((made, &stored[..length]))
    }
}

/// Compresses and decompresses blocks, with reused buffers.
#[derive(Debug, Default)]
pub struct Compressor {
    room: Vec<u8>,
    block: Vec<u8>,
    zstd: Zstd,
}

/// Result of recompressing a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recompressed {
    /// Kept as it is, and not tried.
    Kept,
    /// Tried without gain. If it was LZ4, this number of bytes was appended: the same payload with
    /// a mark of the attempt. Otherwise nothing (0).
    NoGain(usize),
    /// This number of bytes of zstd was appended.
    Smaller(usize),
}

impl Compressor {
    /// Compresses the block with LZ4; `None` if that saves less than an eighth.
    pub fn pack(&mut self, block: &[u8]) -> Option<&[u8]> {
        self.room.resize(get_maximum_output_size(block.len()), 0);
        let length = compress_into(block, &mut self.room).ok()?;
        (length <= most(block)).then(|| &self.room[..length])
    }

    /// Appends the block to `out` in its stored form, in whole units. Returns its length, or `None`
    /// (and appends nothing) if the form, including its filling, saves less than an eighth.
    pub fn compress_stored(
        &mut self,
        codec: Codec,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        match codec {
            Codec::Lz4 => {
                let compressed = self.pack(block)?;
                append(Made::Lz4, compressed, most(block), out)
            }
            Codec::Zstd => self
                .zstd
                .pack(LEVEL, block)
                .and_then(|frame| append(Made::Zstd, &frame[MAGIC..], most(block), out)),
        }
    }

    /// Recompresses the stored form of a block of `block_bytes` bytes with zstd at the level of
    /// cold blocks; appends the result to `out`. Not tried are: uncompressed blocks that look
    /// random, zstd payloads, payloads marked as tried, and payloads too small to save anything.
    pub fn repack_stored(
        &mut self,
        stored: &[u8],
        block_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Recompressed {
        if stored.len() == block_bytes {
            if looks_random(stored) {
                return Recompressed::Kept;
            }
            let frame = self.zstd.pack(LEVEL_COLD, stored);
            let appended =
                frame.and_then(|frame| append(Made::Zstd, &frame[MAGIC..], most(stored), out));
            return appended.map_or(Recompressed::NoGain(0), Recompressed::Smaller);
        }
        let Some((Made::Lz4, compressed)) =
            Made::of(stored).filter(|_| stored.len() > REPACK_LEAST)
        else {
            return Recompressed::Kept;
        };
        self.block.resize(block_bytes, 0);
        // (A payload that does not decompress is not changed: its readers report it.)
        if !decompress(compressed, &mut self.block) {
            return Recompressed::Kept;
        }
        let frame = self.zstd.pack(LEVEL_COLD, &self.block);
        if let Some(length) = frame.and_then(|frame| {
            append(
                Made::Zstd,
                &frame[MAGIC..],
                stored.len() - REPACK_LEAST,
                out,
            )
        }) {
            return Recompressed::Smaller(length);
        }
        out.extend_from_slice(stored);
        if let Some(last) = out.last_mut() {
            *last += Made::Lz4Final.mark();
        }
        Recompressed::NoGain(stored.len())
    }

    fn decompress_zstd(&mut self, compressed: &[u8], out: &mut [u8]) -> bool {
        self.zstd.decompress(compressed, out)
    }
}

/// Maximum length of a compressed block.
fn most(block: &[u8]) -> usize {
    block.len() - block.len() / LEAST_SAVING
}

/// Appends a codec's output with its filling, if both take no more than `most` bytes.
fn append(made: Made, compressed: &[u8], most: usize, out: &mut Vec<u8>) -> Option<usize> {
    let stored = (compressed.len() + 1).next_multiple_of(UNIT);
    if stored > most {
        return None;
    }
    let end = out.len() + stored;
    out.extend_from_slice(compressed);
    out.resize(end - 1, 0);
    out.push((stored - compressed.len()) as u8 + made.mark());
    Some(stored)
}

/// Pool of idle compressors: at most the peak number in use at the same time, so at most one per
/// thread. Clones share the pool.
#[derive(Clone, Debug, Default)]
pub struct Codecs {
    idle: Arc<Mutex<Vec<Compressor>>>,
}

impl Codecs {
    /// Lends a compressor. Results do not depend on which one it is.
    pub fn with<R>(&self, work: impl FnOnce(&mut Compressor) -> R) -> R {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut compressor = idle().pop().unwrap_or_default();
        let result = work(&mut compressor);
        idle().push(compressor);
        result
    }

    /// Decompresses the output of [`Compressor::compress_stored`] or [`Compressor::repack_stored`]
    /// into `out`, which has the length of the block. False if it is not such output; the content
    /// of `out` is undefined then. Nothing is written past `out`, whatever the bytes are.
    pub fn decompress_stored(&self, stored: &[u8], out: &mut [u8]) -> bool {
        match Made::of(stored) {
            None => false,
            Some((Made::Zstd, compressed)) => {
                self.with(|compressor| compressor.decompress_zstd(compressed, out))
            }
            Some((Made::Lz4 | Made::Lz4Final, compressed)) => decompress(compressed, out),
        }
    }

    /// True if `stored`, uncompressed or compressed, is this block; `None` if it does not
    /// decompress. `room` has the length of the block; its content is undefined afterwards.
    pub fn is_of(&self, stored: &[u8], block: &[u8], room: &mut [u8]) -> Option<bool> {
        if stored.len() == block.len() {
            return Some(stored == block);
        }
        let is_same = matches!(Made::of(stored), Some((Made::Lz4 | Made::Lz4Final, compressed)) if is_lz4_of(compressed, block));
        if is_same {
            Some(true)
        } else {
            self.decompress_stored(stored, room).then(|| room == block)
        }
    }
}

/// Decompresses LZ4 into `out`, which has the length of the block. False if the bytes are not a
/// compressed block of that length; the content of `out` is undefined then.
pub fn decompress(compressed: &[u8], out: &mut [u8]) -> bool {
    decompress_into(compressed, out).is_ok_and(|length| length == out.len())
}

/// Distance of the bytes sampled by [`looks_random`]. Odd, so that values of 2, 4 or 8 bytes are
/// sampled at each of their bytes.
const SAMPLE_STEP: usize = 17;
/// Repeats of one byte among the 241 samples of a block: more than random bytes ever have (one in
/// 100 000 blocks has 9), and fewer than LZ4 needs to save an eighth by runs.
const SAMPLE_REPEATS: u8 = 9;

/// True if no byte is frequent in the block. LZ4 then nearly always saves nothing; but repetitions
/// of long random parts are not detected. Takes a tenth of the time of an LZ4 attempt.
pub fn looks_random(block: &[u8]) -> bool {
    let mut counts = [0u8; 256];
    block.iter().step_by(SAMPLE_STEP).all(|byte| {
        let count = &mut counts[usize::from(*byte)];
        *count = count.saturating_add(1);
        *count <= SAMPLE_REPEATS
    })
}

#[cfg(test)]
mod tests;
