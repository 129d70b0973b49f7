//! Machine images: the first one, and its changes.

use clap::ValueEnum;
use windrow_load::random::Random;
use windrow_types::BLOCK_SIZE;

/// A block of an image: of the file, or generated from its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    OfFile(usize),
    Made(u64),
}

/// Content of generated blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Content {
    /// Random bytes: incompressible blocks.
    Random,
    /// 32 random bytes, repeated: some hundred stored blocks fit into one, so that an index can be
    /// tried at its full size.
    Repeated,
}

/// Current state of an image.
pub struct Image {
    blocks: Vec<Block>,
    file: Vec<u8>,
    content: Content,
    random: Random,
}

/// Number of bytes that are repeated.
const REPEATED: usize = 32;
/// Size of the pieces that move, in blocks: 1 MiB.
const PIECE: usize = 256;

impl Image {
    /// An image of a file, or a generated one: files of 1 to 2048 blocks, most of them small, one
    /// in twenty a copy of another one.
    pub fn new(file: Option<Vec<u8>>, generated_blocks: usize, content: Content) -> Self {
        let mut random = Random::new(1);
        match file {
            Some(file) => Self {
                blocks: (0..file.len() / BLOCK_SIZE).map(Block::OfFile).collect(),
                file,
                content,
                random,
            },
            None => Self {
                blocks: generated(generated_blocks, &mut random),
                file: Vec::new(),
                content,
                random,
            },
        }
    }

    /// Number of its blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Copies a block; false if it is not stored because it is all 0x00 or all 0xFF.
    pub fn copy(&self, at: usize, target: &mut [u8]) -> bool {
        match self.blocks[at] {
            Block::OfFile(from) => {
                target.copy_from_slice(&self.file[from * BLOCK_SIZE..][..BLOCK_SIZE])
            }
            Block::Made(number) => {
                let (first, rest) = target.split_at_mut(match self.content {
                    Content::Random => BLOCK_SIZE,
                    Content::Repeated => REPEATED,
                });
                Random::new(number).fill(first);
                first[..8].copy_from_slice(&(number + 1).to_le_bytes());
                rest.chunks_exact_mut(REPEATED)
                    .for_each(|part| part.copy_from_slice(first));
            }
        }
        !([0, 0xff].contains(&target[0]) && target.iter().all(|byte| *byte == target[0]))
    }

    /// Makes 2 % of the blocks new, in runs of 1 to 8, and moves 2 % of the pieces.
    pub fn change(&mut self) {
        let random = &mut self.random;
        let (mut changed, wanted) = (0, self.blocks.len() / 50);
        while changed < wanted {
            let (at, run) = (
                random.below(self.blocks.len() as u64) as usize,
                1 + random.below(8) as usize,
            );
            let end = (at + run).min(self.blocks.len());
            self.blocks[at..end].fill_with(|| Block::Made(random.word() >> 1));
            changed += end - at;
        }
        let pieces = self.blocks.len() / PIECE;
        for _ in 0..pieces / 100 {
            let [a, b] = [(); 2].map(|()| random.below(pieces as u64) as usize * PIECE);
            (0..PIECE).for_each(|i| self.blocks.swap(a + i, b + i));
        }
    }
}

fn generated(blocks: usize, random: &mut Random) -> Vec<Block> {
    let mut image: Vec<Block> = Vec::with_capacity(blocks);
    let mut files: Vec<(usize, usize)> = Vec::new();
    while image.len() < blocks {
        let length = 1usize << random.below(12).min(random.below(12));
        if !files.is_empty() && random.below(20) == 0 {
            let (first, length) = files[random.below(files.len() as u64) as usize];
            image.extend_from_within(first..first + length);
            continue;
        }
        files.push((image.len(), length));
        image.extend((0..length).map(|_| Block::Made(random.word() >> 1)));
    }
    image.truncate(blocks);
    image
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_copy_is_mostly_the_same() {
        let mut image = Image::new(None, 10_000, Content::Random);
        let before = image.blocks.clone();
        image.change();
        let same = before
            .iter()
            .zip(&image.blocks)
            .filter(|(before, now)| before == now)
            .count();
        assert!(
            image.len() == 10_000 && (8_500..=9_800).contains(&same),
            "{same}"
        );
        let (mut one, mut other) = ([0; BLOCK_SIZE], [0; BLOCK_SIZE]);
        assert!(image.copy(0, &mut one) && image.copy(0, &mut other) && one == other);
        let zeroes = Image::new(Some(vec![0; 3 * BLOCK_SIZE]), 0, Content::Random);
        assert!(zeroes.len() == 3 && !zeroes.copy(2, &mut one));
    }

    #[test]
    fn repeated_bytes_of_different_blocks_differ() {
        let image = Image::new(None, 1000, Content::Repeated);
        let mut block = [0; BLOCK_SIZE];
        let numbers: HashSet<_> = image
            .blocks
            .iter()
            .map(|block| format!("{block:?}"))
            .collect();
        let contents: HashSet<Vec<u8>> = (0..image.len())
            .map(|at| {
                assert!(
                    image.copy(at, &mut block)
                        && block
                            .chunks(REPEATED)
                            .all(|part| part == &block[..REPEATED])
                );
                block[..REPEATED].to_vec()
            })
            .collect();
        assert_eq!(contents.len(), numbers.len());
    }
}
