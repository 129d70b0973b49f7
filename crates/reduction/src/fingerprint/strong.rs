//! BLAKE3 of several blocks at once.
//!
//! BLAKE3 hashes chunks of 1 KiB independently of one another, as many at a time as a vector has
//! lanes, then pairs of their hashes. A block of 4 KiB has four chunks: by itself it leaves half of
//! the lanes of AVX2 empty, and three quarters of those of AVX-512. So chunk `n` of all blocks of a
//! group is hashed at once:
//! ```text
//! chunk 0   chunk 1   chunk 2   chunk 3     of 16 blocks each: chunk number as counter
//!      \     /             \     /
//!       pair 0            pair 1            parents
//!             \            /
//!                  root                     a parent, marked as root: its hash is that of the block
//! ```
//! This uses functions of the library that are not part of its stable interface: its version is
//! pinned, and a test compares the result with `blake3::hash`.
//!
//! **They read past their inputs**, up to 48 bytes with AVX2 and AVX-512. The bytes are ignored,
//! but a block may be followed by an unmapped page (seeds 9640550 to 9640760 crashed). The first
//! three chunks of a block are followed by the next one; the last ones are copied to a buffer with
//! spare room. A test of `device` has blocks before an inaccessible page.

use super::Fingerprint;
use blake3::IncrementCounter;
use blake3::platform::Platform;

const BLOCK: usize = 4096;
const CHUNK: usize = 1024;
const HASH: usize = 32;
/// Number of blocks of a group: the lanes of AVX-512.
const LANES: usize = 16;
/// Fewer blocks are faster one by one, each with its four chunks in parallel.
const WORTH: usize = 4;
/// Spare bytes after the last copied chunk: more than is ever read there.
const ROOM_BEHIND: usize = 128;
/// Last chunk of a block.
const LAST: usize = BLOCK / CHUNK - 1;

/// Initial value and flags of the specification (section 2).
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];
const CHUNK_START: u8 = 1;
const CHUNK_END: u8 = 2;
const PARENT: u8 = 4;
const ROOT: u8 = 8;

/// Collected blocks, and the indices of their fingerprints.
#[derive(Default)]
pub(super) struct Group<'a> {
    blocks: Vec<(usize, &'a [u8; BLOCK])>,
}

impl<'a> Group<'a> {
    /// Adds a block; its fingerprint goes to index `at`.
    pub(super) fn add(&mut self, at: usize, block: &'a [u8; BLOCK], fingerprints: &mut [u128]) {
        self.blocks.push((at, block));
        if self.blocks.len() == LANES {
            self.end(fingerprints);
        }
    }

    /// Computes the fingerprints of the remaining blocks.
    pub(super) fn end(&mut self, fingerprints: &mut [u128]) {
        if self.blocks.len() < WORTH {
            for (at, block) in self.blocks.drain(..) {
                fingerprints[at] = Fingerprint::Strong.of(block);
            }
            return;
        }
        let mut roots = [[0; HASH]; LANES];
        roots_of(
            Platform::detect(),
            &self.blocks,
            &mut roots[..self.blocks.len()],
        );
        for ((at, _), root) in self.blocks.drain(..).zip(&roots) {
            fingerprints[at] = Fingerprint::from_blake3(root);
        }
    }
}

fn roots_of(platform: Platform, blocks: &[(usize, &[u8; BLOCK])], roots: &mut [[u8; HASH]]) {
    // For each block: the hashes of its chunks in sequence, so that two pairs lie as they are
    // hashed. (One more than there are blocks: spare room after the last one.)
    let mut chunks = [[0u8; 4 * HASH]; LANES + 1];
    let mut pairs = [[0u8; 2 * HASH]; LANES + 2];
    let mut hashes = [0u8; LANES * HASH];
    let mut ends = [0u8; LANES * CHUNK + ROOM_BEHIND];
    for ((_, block), end) in blocks.iter().zip(ends.chunks_exact_mut(CHUNK)) {
        end.copy_from_slice(&block[LAST * CHUNK..]);
    }
    // Vector widths are powers of two: a remainder would take several rounds, so the last block
    // fills the unused lanes.
    let lanes_used = blocks.len().next_power_of_two();
    for number in 0..=LAST {
        let inputs: [&[u8; CHUNK]; LANES] = match number {
            LAST => std::array::from_fn(|lane| part(&ends[..], lane.min(blocks.len() - 1))),
            _ => lanes(blocks, |(_, block)| part(&block[..], number)),
        };
        let inputs = &inputs[..lanes_used];
        platform.hash_many(
            inputs,
            &INITIAL,
            number as u64,
            IncrementCounter::No,
            0,
            CHUNK_START,
            CHUNK_END,
            &mut hashes,
        );
        chunks
            .iter_mut()
            .zip(hashes.chunks_exact(HASH))
            .for_each(|(chunks, hash)| chunks[number * HASH..][..HASH].copy_from_slice(hash));
    }
    let of = &chunks[..blocks.len()];
    for number in 0..2 {
        let inputs = lanes(of, |chunks| part(&chunks[..], number));
        let inputs: &[&[u8; 2 * HASH]] = &inputs[..lanes_used];
        platform.hash_many(
            inputs,
            &INITIAL,
            0,
            IncrementCounter::No,
            PARENT,
            0,
            0,
            &mut hashes,
        );
        pairs
            .iter_mut()
            .zip(hashes.chunks_exact(HASH))
            .for_each(|(pairs, hash)| pairs[number * HASH..][..HASH].copy_from_slice(hash));
    }
    let inputs = lanes(&pairs[..blocks.len()], |pair| pair);
    platform.hash_many(
        &inputs[..lanes_used],
        &INITIAL,
        0,
        IncrementCounter::No,
        PARENT | ROOT,
        0,
        0,
        &mut hashes,
    );
    roots
        .iter_mut()
        .zip(hashes.chunks_exact(HASH))
        .for_each(|(root, hash)| root.copy_from_slice(hash));
}

/// Input of each lane; the last one is repeated in unused lanes.
fn lanes<'a, T, const N: usize>(
    of: &'a [T],
    input: impl Fn(&'a T) -> &'a [u8; N],
) -> [&'a [u8; N]; LANES] {
    std::array::from_fn(|lane| input(&of[lane.min(of.len() - 1)]))
}

/// Part `number` of the bytes, which are divided into parts of `N`.
fn part<const N: usize>(bytes: &[u8], number: usize) -> &[u8; N] {
    match bytes[number * N..].first_chunk() {
        Some(part) => part,
        None => unreachable!("a block has four chunks, and these two pairs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processors with narrower vectors than this one's give the same.
    #[test]
    fn every_width_of_vectors_gives_the_same() {
        let blocks: Vec<[u8; BLOCK]> = (0..LANES)
            .map(|number| std::array::from_fn(|at| ((at * (2 * number + 1)) >> 2) as u8))
            .collect();
        let expected: Vec<[u8; HASH]> = blocks
            .iter()
            .map(|block| *blake3::hash(block).as_bytes())
            .collect();
        let mut platforms = vec![Platform::portable(), Platform::detect()];
        #[cfg(target_arch = "x86_64")]
        platforms.extend(
            [Platform::sse2(), Platform::sse41(), Platform::avx2()]
                .into_iter()
                .flatten(),
        );
        for platform in platforms {
            for count in 1..=LANES {
                let named: Vec<(usize, &[u8; BLOCK])> =
                    blocks[..count].iter().enumerate().collect();
                let mut roots = vec![[0; HASH]; count];
                roots_of(platform, &named, &mut roots);
                assert_eq!(roots, expected[..count], "{platform:?}, {count} blocks");
            }
        }
    }
}
