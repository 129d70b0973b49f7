//! Packing of single blocks: LZ4 in the raw block format, or one zstd frame without its magic
//! number (whoever stores it knows both lengths).
//!
//! In the log packed blocks take whole units of 16 bytes: behind the codec's bytes come 1 to 16
//! bytes that fill the last unit, zeroes and then one that says how many they are and what made the
//! payload. So the number of units tells the length, and the payload itself tells the codec.
//! ```text
//! last byte   1..=16 LZ4   17..=32 zstd   33..=48 LZ4, and zstd has been tried and was not worth it   (number of filling bytes: the rest modulo 16, 0 is 16)
//! ```

use crate::same::is_lz4_of;
use crate::zstd::{LEVEL, LEVEL_COLD, Zstd};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use std::sync::{Arc, Mutex, PoisonError};

/// A packed block is smaller than the block by one part in so many at least; else it is kept as it
/// is.
const LEAST_SAVING: usize = 8;
/// LZ4 that is packed anew becomes smaller by so many bytes at least, a 32nd of a block. Unpacking
/// zstd takes two to three times as long as unpacking LZ4, so less is not worth it.
pub const REPACK_LEAST: usize = 128;
/// Bytes of a unit in which packed blocks are stored.
pub const UNIT: usize = 16;
/// Bytes of a zstd frame's magic number, which is not stored.
const MAGIC: usize = 4;

/// What packs a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// LZ4.
    Lz4,
    /// zstd, at the level of blocks that were just written.
    Zstd,
}

/// What made a packed payload, and whether it can become smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// LZ4.
    Lz4,
    /// zstd.
    Zstd,
    /// LZ4, and zstd was not worth it.
    Lz4Final,
}

impl Made {
    /// Added to the number of filling bytes in the last byte.
    fn mark(self) -> u8 {
        match self {
            Self::Lz4 => 0,
            Self::Zstd => 16,
            Self::Lz4Final => 32,
        }
    }

    /// Its name in what people read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Lz4Final => "lz4, zstd tried",
        }
    }

    /// What made a payload, and the codec's bytes of it; `None` if no payload ends so.
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

/// Packs and unpacks blocks, with room that is used again.
#[derive(Debug, Default)]
pub struct Compressor {
    room: Vec<u8>,
    block: Vec<u8>,
    zstd: Zstd,
}

/// What became of a payload that was to be packed anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repacked {
    /// It stays as it is, and it was not even tried.
    Kept,
    /// It was tried in vain. If it was LZ4, so many bytes were appended: the same payload, which
    /// now says so. Nothing (0) else.
    InVain(usize),
    /// So many bytes of zstd were appended.
    Smaller(usize),
}

impl Compressor {
    /// The block in LZ4, if that is smaller by an eighth at least.
    pub fn pack(&mut self, block: &[u8]) -> Option<&[u8]> {
        self.room.resize(get_maximum_output_size(block.len()), 0);
        let length = compress_into(block, &mut self.room).ok()?;
        (length <= most(block)).then(|| &self.room[..length])
    }

    /// Appends the block to `out` as it is stored in the log, in whole units; the bytes it takes,
    /// or `None` if it is not worth it (then nothing is appended). With its filling, too, it is
    /// smaller by an eighth at least.
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

    /// Packs anew, by zstd at the level of cold blocks, what is stored of a block of `block_bytes`
    /// bytes; the result is appended to `out`. Not tried are: whole blocks that look random, what
    /// zstd made, what says that it was tried, and what is too small to save anything.
    pub fn repack_stored(
        &mut self,
        stored: &[u8],
        block_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Repacked {
        if stored.len() == block_bytes {
            if looks_random(stored) {
                return Repacked::Kept;
            }
            let frame = self.zstd.pack(LEVEL_COLD, stored);
            let appended =
                frame.and_then(|frame| append(Made::Zstd, &frame[MAGIC..], most(stored), out));
            return appended.map_or(Repacked::InVain(0), Repacked::Smaller);
        }
        let Some((Made::Lz4, compressed)) =
            Made::of(stored).filter(|_| stored.len() > REPACK_LEAST)
        else {
            return Repacked::Kept;
        };
        self.block.resize(block_bytes, 0);
        // (What does not unpack is not ours to change: whoever reads it is told.)
        if !decompress(compressed, &mut self.block) {
            return Repacked::Kept;
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
            return Repacked::Smaller(length);
        }
        out.extend_from_slice(stored);
        if let Some(last) = out.last_mut() {
            *last += Made::Lz4Final.mark();
        }
        Repacked::InVain(stored.len())
    }

    fn decompress_zstd(&mut self, compressed: &[u8], out: &mut [u8]) -> bool {
        self.zstd.decompress(compressed, out)
    }
}

/// Most bytes that a packed block takes.
fn most(block: &[u8]) -> usize {
    block.len() - block.len() / LEAST_SAVING
}

/// Appends what a codec made, with its filling, if both take no more than `most` bytes.
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

/// Packers that nobody uses at the moment: no more than were ever at work at the same time, so one
/// for each thread at most. Cloned, it is the same.
#[derive(Clone, Debug, Default)]
pub struct Codecs {
    idle: Arc<Mutex<Vec<Compressor>>>,
}

impl Codecs {
    /// Lends a packer. What comes out does not depend on which one it is.
    pub fn with<R>(&self, work: impl FnOnce(&mut Compressor) -> R) -> R {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut compressor = idle().pop().unwrap_or_default();
        let result = work(&mut compressor);
        idle().push(compressor);
        result
    }

    /// Unpacks what [`Compressor::compress_stored`] or [`Compressor::repack_stored`] made into
    /// `out`, which has the length of the block. False if it is no such thing; then `out` holds
    /// anything. Nothing is written beyond `out`, whatever the bytes are.
    pub fn decompress_stored(&self, stored: &[u8], out: &mut [u8]) -> bool {
        match Made::of(stored) {
            None => false,
            Some((Made::Zstd, compressed)) => {
                self.with(|compressor| compressor.decompress_zstd(compressed, out))
            }
            Some((Made::Lz4 | Made::Lz4Final, compressed)) => decompress(compressed, out),
        }
    }

    /// True if `stored`, whole or packed, is this block; `None` if it does not unpack. `room` has
    /// the length of the block, and holds anything then.
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

/// Unpacks LZ4 into `out`, which has the length of the block. False if the bytes are not a packed
/// block of that length; then `out` holds anything.
pub fn decompress(compressed: &[u8], out: &mut [u8]) -> bool {
    decompress_into(compressed, out).is_ok_and(|length| length == out.len())
}

/// One byte in so many is looked at by [`looks_random`]. Odd, so that numbers of 2, 4 or 8 bytes
/// are met at each of their bytes.
const SAMPLE_STEP: usize = 17;
/// More of one byte among the 241 of a block than random bytes ever have (one in 100 000 blocks has
/// 9), and fewer than LZ4 needs to save an eighth by runs.
const SAMPLE_REPEATS: u8 = 9;

/// True if no byte is frequent in the block. Nearly always LZ4 makes nothing of it then; but
/// repetitions of long random parts are not noticed. A tenth of the time that LZ4 takes to find
/// out.
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
