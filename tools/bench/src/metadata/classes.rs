//! Classification of blocks written by a file system, and the codecs' results for each kind.
//!
//! 1. *Journal*: it lies in the file system's journal, whatever it holds.
//! 2. *Data*: its bytes are a block of a file, as written by the load (the last block padded with
//!    zeroes): their fingerprints are recorded before they are written.
//! 3. *Metadata*: all else.
//!
//! So no structure of a file system has to be parsed except the location of its journal, and
//! content deleted later is still recognized. A file that contains the image of another file system
//! would be classified wrongly; the trees of files have none.

use std::collections::HashSet;
use std::ops::Range;
use windrow_estimate::{Plan, Tally};
use windrow_reduction::{Codec, Fingerprint};
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE};

/// Kinds of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// File data.
    Data,
    /// File system metadata, in place.
    Metadata,
    /// In the journal.
    Journal,
}

/// All kinds, in table order.
pub const CLASSES: [Class; 3] = [Class::Data, Class::Metadata, Class::Journal];

impl Class {
    /// Name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::Journal => "journal",
        }
    }
}

/// Bytes of a kind: blocks that are neither all 0x00 nor all 0xFF, and their stored sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes {
    /// Uncompressed.
    pub written: u64,
    /// With LZ4, by the rules of the engine.
    pub lz4: u64,
    /// With zstd.
    pub zstd: u64,
}

impl Bytes {
    /// Sum of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            written: self.written + other.written,
            lz4: self.lz4 + other.lz4,
            zstd: self.zstd + other.zstd,
        }
    }

    /// Saving of a codec as a share of 1; 0 for no bytes.
    pub fn saved(&self, stored: u64) -> f64 {
        if self.written == 0 {
            0.0
        } else {
            1.0 - stored as f64 / self.written as f64
        }
    }
}

/// Classifies and counts blocks.
pub struct Classes {
    known: HashSet<u128>,
    journal: Vec<Range<u64>>,
    tallies: [Tally; 3],
}

impl Classes {
    /// An empty classifier.
    pub fn new() -> Self {
        let plan = Plan {
            codecs: vec![Codec::Lz4, Codec::Zstd],
            dedup: false,
            entries_max: 0,
        };
        Self {
            known: HashSet::new(),
            journal: Vec::new(),
            tallies: [(); 3].map(|()| Tally::new(plan.clone())),
        }
    }

    /// Sets the block ranges of the journal.
    pub fn set_journal(&mut self, blocks: Vec<Range<u64>>) {
        self.journal = blocks;
    }

    /// Records the blocks of a file, or of a part of one that begins at a block.
    pub fn note_file(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(BLOCK_SIZE) {
            let print = if part.len() == BLOCK_SIZE {
                Fingerprint::Fast.of(part)
            } else {
                Fingerprint::Fast.of(&filled_up(part))
            };
            self.known.insert(print);
        }
    }

    /// Counts a block that is written, or is present.
    pub fn count(&mut self, number: u64, block: &[u8; BLOCK_SIZE]) {
        let class = self.class(number, block);
        self.tallies[class as usize].add(block);
    }

    fn class(&self, number: u64, block: &[u8; BLOCK_SIZE]) -> Class {
        match self.journal.iter().any(|range| range.contains(&number)) {
            true => Class::Journal,
            false if self.known.contains(&Fingerprint::Fast.of(block)) => Class::Data,
            false => Class::Metadata,
        }
    }

    /// Counts of a kind.
    pub fn bytes(&self, class: Class) -> Bytes {
        let tally = &self.tallies[class as usize];
        Bytes {
            written: tally.data_blocks * BLOCK_BYTES,
            lz4: tally.stored(0).bytes,
            zstd: tally.stored(1).bytes,
        }
    }

    /// Bytes of blocks of only 0x00 or only 0xFF: they are map states without stored payload.
    pub fn fill_bytes(&self) -> u64 {
        self.tallies
            .iter()
            .map(|tally| (tally.zero_blocks + tally.ones_blocks) * BLOCK_BYTES)
            .sum()
    }
}

fn filled_up(part: &[u8]) -> [u8; BLOCK_SIZE] {
    let mut block = [0; BLOCK_SIZE];
    block[..part.len()].copy_from_slice(part);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_classified_by_position_and_data_by_bytes() {
        let mut classes = Classes::new();
        classes.set_journal(std::iter::once(10..12).collect());
        classes.note_file(&[&[7; BLOCK_SIZE][..], b"the end"].concat());
        let mut end = [0; BLOCK_SIZE];
        end[..7].copy_from_slice(b"the end");
        for (number, block) in [
            (3, [7; BLOCK_SIZE]),
            (4, end),
            (10, end),
            (11, [1; BLOCK_SIZE]),
            (12, [1; BLOCK_SIZE]),
            (13, [0; BLOCK_SIZE]),
        ] {
            classes.count(number, &block);
        }
        assert_eq!(
            CLASSES.map(|class| classes.bytes(class).written / BLOCK_BYTES),
            [2, 1, 2]
        );
        assert_eq!(
            classes.fill_bytes(),
            BLOCK_BYTES,
            "all-zero blocks are not stored"
        );
        let metadata = classes.bytes(Class::Metadata);
        assert!(
            metadata.lz4 < 128
                && metadata.saved(metadata.lz4) > 0.9
                && Bytes::default().saved(0) == 0.0
        );
    }
}
