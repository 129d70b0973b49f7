//! What a block is that a file system writes, and what the codecs make of each kind.
//!
//! 1 *Journal*: it lies where the file system has its journal, whatever it holds. 2 *Data*: its
//!   bytes are a block of a file, as the load wrote it (its last block filled up with zeroes): the
//! fingerprints of these are noted before they are written. 3 *Metadata*: all else. So no structure
//! of a file system has to be understood but the place of its journal, and content that is deleted
//! later is still known for what it was. A file that holds the image of another file system would
//! be told wrong; trees of files do not hold such.

use std::collections::HashSet;
use std::ops::Range;
use windrow_estimate::{Plan, Tally};
use windrow_reduction::{Codec, Fingerprint};
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE};

/// Kinds of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Of files.
    Data,
    /// Of the file system, in its place.
    Metadata,
    /// In the journal.
    Journal,
}

/// All of them, in the order of tables.
pub const CLASSES: [Class; 3] = [Class::Data, Class::Metadata, Class::Journal];

impl Class {
    /// As tables and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::Journal => "journal",
        }
    }
}

/// Bytes of a kind: blocks that are neither all 0x00 nor all 0xFF, and what is stored of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes {
    /// As they were written.
    pub written: u64,
    /// With LZ4, by the rules of the engine.
    pub lz4: u64,
    /// With zstd.
    pub zstd: u64,
}

impl Bytes {
    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            written: self.written + other.written,
            lz4: self.lz4 + other.lz4,
            zstd: self.zstd + other.zstd,
        }
    }

    /// What a codec saves, of 1; nothing of nothing.
    pub fn saved(&self, stored: u64) -> f64 {
        if self.written == 0 {
            0.0
        } else {
            1.0 - stored as f64 / self.written as f64
        }
    }
}

/// Tells blocks apart and counts them.
pub struct Classes {
    known: HashSet<u128>,
    journal: Vec<Range<u64>>,
    tallies: [Tally; 3],
}

impl Classes {
    /// Nothing is known yet.
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

    /// Where the journal is: ranges of blocks.
    pub fn set_journal(&mut self, blocks: Vec<Range<u64>>) {
        self.journal = blocks;
    }

    /// Notes the blocks of a file, or of a piece of one that begins at a block.
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

    /// Counts a block that is written, or is there.
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

    /// What was counted of a kind.
    pub fn bytes(&self, class: Class) -> Bytes {
        let tally = &self.tallies[class as usize];
        Bytes {
            written: tally.data_blocks * BLOCK_BYTES,
            lz4: tally.stored(0).bytes,
            zstd: tally.stored(1).bytes,
        }
    }

    /// Bytes of blocks of only 0x00 or only 0xFF: they are states of the map, and nothing is stored
    /// of them.
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
    fn the_journal_goes_by_its_place_and_data_by_its_bytes() {
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
            "what is all zero is stored nowhere"
        );
        let metadata = classes.bytes(Class::Metadata);
        assert!(
            metadata.lz4 < 128
                && metadata.saved(metadata.lz4) > 0.9
                && Bytes::default().saved(0) == 0.0
        );
    }
}
