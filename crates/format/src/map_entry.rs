//! Map entry: 16 bytes for each block of a volume.
//!
//! ```text
//! word 0   bits  0..46  address; of a shared block its id, the block of the shared volume
//!          bits 46..55  stored length in 16-byte units (256 = a whole block)
//!          bits 55..59  state
//!          bits 59..64  reserved, zero
//! word 1   bits  0..32  CRC-32C of the stored bytes
//!          bits 32..64  incarnation of shared content (shared blocks, and blocks of the shared volume), else zero
//! ```
//! An all-zero entry is a hole, so a fresh page of the map is a page of zeroes.

use windrow_types::{Address, FULL_BLOCK_UNITS, Lba};

/// State of a block. Values are on-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockState {
    /// Never written, or trimmed.
    Hole = 0,
    /// All bytes 0x00; no payload.
    Zero = 1,
    /// All bytes 0xFF; no payload.
    Ones = 2,
    /// Payload stored uncompressed.
    Plain = 3,
    /// Payload stored compressed, as LZ4 or zstd; the payload itself identifies the algorithm.
    Lz4 = 4,
    /// Payload stored as Zstandard (reserved).
    Zstd = 5,
    /// Reached through the shared volume.
    Shared = 6,
    /// Part of a compression unit of several blocks (reserved).
    Unit = 7,
    /// Lost: reads fail (set only by an explicit repair).
    Lost = 8,
}

/// A map entry as it is on disk and in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MapEntry {
    /// Address, length, state.
    pub word0: u64,
    /// Checksum.
    pub word1: u64,
}

const LENGTH_SHIFT: u32 = Address::BITS;
const STATE_SHIFT: u32 = LENGTH_SHIFT + 9;

impl MapEntry {
    /// A hole.
    pub const HOLE: Self = Self { word0: 0, word1: 0 };
    /// A block of zeroes.
    pub const ZERO: Self = Self {
        word0: (BlockState::Zero as u64) << STATE_SHIFT,
        word1: 0,
    };
    /// A block of ones.
    pub const ONES: Self = Self {
        word0: (BlockState::Ones as u64) << STATE_SHIFT,
        word1: 0,
    };

    /// A lost block.
    pub const LOST: Self = Self {
        word0: (BlockState::Lost as u64) << STATE_SHIFT,
        word1: 0,
    };

    /// An uncompressed block.
    #[inline]
    pub fn plain(address: Address, checksum: u32) -> Self {
        let word0 = address.0
            | u64::from(FULL_BLOCK_UNITS) << LENGTH_SHIFT
            | (BlockState::Plain as u64) << STATE_SHIFT;
        Self {
            word0,
            word1: u64::from(checksum),
        }
    }

    /// A block stored in `units` units: uncompressed if these are a whole block, else compressed.
    #[inline]
    pub fn stored(address: Address, units: u16, checksum: u32) -> Self {
        debug_assert!((1..=FULL_BLOCK_UNITS).contains(&units));
        let state = if units == FULL_BLOCK_UNITS {
            BlockState::Plain
        } else {
            BlockState::Lz4
        };
        Self {
            word0: address.0 | u64::from(units) << LENGTH_SHIFT | (state as u64) << STATE_SHIFT,
            word1: u64::from(checksum),
        }
    }

    /// A block with the content of `id`, a block of the shared volume, in its `incarnation`.
    #[inline]
    pub fn shared(id: Lba, incarnation: u32) -> Self {
        debug_assert!(id.0 >> Address::BITS == 0);
        Self {
            word0: id.0 | (BlockState::Shared as u64) << STATE_SHIFT,
            word1: u64::from(incarnation) << 32,
        }
    }

    /// This entry of the shared volume with the incarnation of its content.
    #[inline]
    #[must_use]
    pub fn with_incarnation(self, incarnation: u32) -> Self {
        Self {
            word1: u64::from(incarnation) << 32 | self.word1 & u64::from(u32::MAX),
            ..self
        }
    }

    /// Incarnation of shared content: of a shared block, or of a block of the shared volume.
    #[inline]
    pub fn incarnation(&self) -> u32 {
        (self.word1 >> 32) as u32
    }

    /// The id of a shared block.
    #[inline]
    pub fn shared_id(&self) -> Option<Lba> {
        (self.word0 >> STATE_SHIFT == BlockState::Shared as u64).then(|| Lba(self.address().0))
    }

    /// True if the block holds data of its own or shared data: it counts as used space.
    #[inline]
    pub fn is_data(&self) -> bool {
        matches!(self.word0 >> STATE_SHIFT, 3..=6)
    }

    /// The state, or `None` for a value that this version does not know.
    #[inline]
    pub fn state(&self) -> Option<BlockState> {
        Some(match self.word0 >> STATE_SHIFT {
            0 => BlockState::Hole,
            1 => BlockState::Zero,
            2 => BlockState::Ones,
            3 => BlockState::Plain,
            4 => BlockState::Lz4,
            5 => BlockState::Zstd,
            6 => BlockState::Shared,
            7 => BlockState::Unit,
            8 => BlockState::Lost,
            _ => return None,
        })
    }

    /// True if the entry refers to a stored payload.
    #[inline]
    pub fn has_payload(&self) -> bool {
        matches!(self.word0 >> STATE_SHIFT, 3..=5)
    }

    /// Address of the payload.
    #[inline]
    pub fn address(&self) -> Address {
        Address(self.word0 & ((1 << Address::BITS) - 1))
    }

    /// Stored length in 16-byte units.
    #[inline]
    pub fn length_units(&self) -> u16 {
        (self.word0 >> LENGTH_SHIFT & 0x1ff) as u16
    }

    /// CRC-32C of the stored bytes.
    #[inline]
    pub fn checksum(&self) -> u32 {
        self.word1 as u32
    }

    /// On-disk form.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.word0.to_le_bytes());
        out[8..].copy_from_slice(&self.word1.to_le_bytes());
        out
    }

    /// From the on-disk form.
    pub fn from_bytes(bytes: &[u8; 16]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            word0: word(0),
            word1: word(8),
        }
    }
}

#[cfg(test)]
mod tests;
