//! Compact contents of a member's blocks. A block is stored in one of three forms:
//! - one word of eight bytes that repeats to its end: user blocks, and sums of them (P and Q);
//! - a head, then such a word: headers and records;
//! - one word that the others are derived from ([`spread`]): incompressible user blocks.
//!
//! So large members fit into memory without loss.

use rustc_hash::FxHashMap;
use windrow_types::BLOCK_SIZE;

const WORDS: usize = BLOCK_SIZE / 8;

/// Difference of successive words of a block that is [`spread`]: odd, so that no word repeats, and
/// without a pattern in its bytes.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills a block with incompressible content derived from one word.
pub fn spread(word: u64, block: &mut [u8]) {
    let mut word = word;
    for bytes in block.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STEP);
    }
}

/// True for a block that [`spread`] made.
fn is_spread(block: &[u8]) -> bool {
    let mut word = word_at(block, 0);
    block.chunks_exact(8).all(|bytes| {
        let same = bytes == word.to_le_bytes();
        word = word.wrapping_add(STEP);
        same
    })
}

/// Stored form of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// The word, repeated.
    Word,
    /// A head, then the word, repeated.
    Head,
    /// The word, [`spread`].
    Spread,
}

/// The blocks of one member.
#[derive(Clone, Debug)]
pub struct Content {
    words: Vec<u64>,
    kept: Vec<Kept>,
    heads: FxHashMap<usize, Box<[u64]>>,
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
    u64::from_le_bytes(word)
}

impl Content {
    /// A content of `blocks` zero blocks.
    pub fn new(blocks: u64) -> Self {
        Self {
            words: vec![0; blocks as usize],
            kept: vec![Kept::Word; blocks as usize],
            heads: FxHashMap::default(),
        }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.words.len() as u64
    }

    /// Bytes of memory used by heads.
    pub fn head_bytes(&self) -> usize {
        self.heads.values().map(|head| head.len() * 8).sum()
    }

    /// Writes whole blocks, or a part of one.
    ///
    /// # Panics
    /// If the range exceeds the content.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (first, into) = (offset as usize / BLOCK_SIZE, offset as usize % BLOCK_SIZE);
        if into != 0 || !bytes.len().is_multiple_of(BLOCK_SIZE) {
            let blocks = (into + bytes.len()).div_ceil(BLOCK_SIZE);
            let mut whole = vec![0; blocks * BLOCK_SIZE];
            self.read((first * BLOCK_SIZE) as u64, &mut whole);
            whole[into..into + bytes.len()].copy_from_slice(bytes);
            return self.write((first * BLOCK_SIZE) as u64, &whole);
        }
        bytes
            .chunks_exact(BLOCK_SIZE)
            .enumerate()
            .for_each(|(i, block)| self.put(first + i, block));
    }

    fn put(&mut self, at: usize, block: &[u8]) {
        if is_spread(block) {
            return self.keep(at, word_at(block, 0), Kept::Spread);
        }
        let word = word_at(block, WORDS - 1);
        let head = block
            .chunks_exact(8)
            .rposition(|bytes| bytes != word.to_le_bytes())
            .map_or(0, |last| last + 1);
        self.keep(at, word, if head > 0 { Kept::Head } else { Kept::Word });
        if head > 0 {
            self.heads
                .insert(at, (0..head).map(|i| word_at(block, i)).collect());
        }
    }

    fn keep(&mut self, at: usize, word: u64, kept: Kept) {
        if self.kept[at] == Kept::Head && kept != Kept::Head {
            self.heads.remove(&at);
        }
        self.words[at] = word;
        self.kept[at] = kept;
    }

    /// Reads any range.
    ///
    /// # Panics
    /// If the range exceeds the content.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let (mut at, mut into, mut rest) = (
            offset as usize / BLOCK_SIZE,
            offset as usize % BLOCK_SIZE,
            bytes,
        );
        while !rest.is_empty() {
            let (part, behind) = rest.split_at_mut(rest.len().min(BLOCK_SIZE - into));
            if into == 0 && part.len() == BLOCK_SIZE {
                self.get(at, part);
            } else {
                let mut block = [0; BLOCK_SIZE];
                self.get(at, &mut block);
                part.copy_from_slice(&block[into..into + part.len()]);
            }
            (at, into, rest) = (at + 1, 0, behind);
        }
    }

    fn get(&self, at: usize, block: &mut [u8]) {
        if self.kept[at] == Kept::Spread {
            return spread(self.words[at], block);
        }
        let word = self.words[at].to_le_bytes();
        block
            .chunks_exact_mut(8)
            .for_each(|bytes| bytes.copy_from_slice(&word));
        if self.kept[at] == Kept::Head
            && let Some(head) = self.heads.get(&at)
        {
            block
                .chunks_exact_mut(8)
                .zip(head)
                .for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_random::Rng;

    #[test]
    fn whatever_is_written_is_read_again() {
        const BLOCKS: usize = 16;
        let (mut content, mut truth, mut rng) = (
            Content::new(BLOCKS as u64),
            vec![0u8; BLOCKS * BLOCK_SIZE],
            Rng::stream(3, "content"),
        );
        for round in 0..500 {
            let blocks = 1 + rng.below(3) as usize;
            let at = rng.below((BLOCKS - blocks) as u64) as usize;
            let mut bytes = rng.bits().to_le_bytes().repeat(blocks * BLOCK_SIZE / 8);
            // Blocks of one word, blocks with a head, blocks that differ only in their last byte,
            // and spread blocks.
            match round % 4 {
                0 => {}
                3 => bytes
                    .chunks_exact_mut(BLOCK_SIZE)
                    .for_each(|block| spread(rng.bits(), block)),
                1 => (0..rng.below(BLOCK_SIZE as u64) as usize)
                    .for_each(|i| bytes[i] = rng.bits() as u8),
                _ => bytes[blocks * BLOCK_SIZE - 1] ^= 1,
            }
            let (from, length) = if round % 5 == 0 {
                (at * BLOCK_SIZE + 512, 512)
            } else {
                (at * BLOCK_SIZE, blocks * BLOCK_SIZE)
            };
            truth[from..from + length].copy_from_slice(&bytes[..length]);
            content.write(from as u64, &bytes[..length]);
            let mut read = vec![1; BLOCKS * BLOCK_SIZE];
            content.read(0, &mut read);
            assert!(read == truth, "round {round}");
            let mut part = [0; 1024];
            content.read(from as u64, &mut part[..512]);
            assert!(part[..512] == truth[from..from + 512]);
        }
    }

    #[test]
    fn blocks_of_one_word_take_no_head() {
        let mut content = Content::new(4);
        content.write(0, &[7; 4 * BLOCK_SIZE]);
        assert_eq!(content.head_bytes(), 0);
        content.write(0, &[&[1u8; 16][..], &[0; BLOCK_SIZE - 16]].concat());
        assert_eq!(content.head_bytes(), 16);
        let mut block = [0; BLOCK_SIZE];
        spread(12345, &mut block);
        content.write(0, &block);
        assert_eq!(content.head_bytes(), 0);
        content.write(0, &[7; BLOCK_SIZE]);
        assert_eq!(content.head_bytes(), 0);
    }
}
