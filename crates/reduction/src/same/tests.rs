use super::*;
use crate::{Codec, Codecs, Compressor, decompress};
use proptest::prelude::*;

const BLOCK: usize = 4096;

/// Runs, repetitions near and far, and noise, in an order that depends on the seed.
fn block(seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 16) as usize
    };
    let mut block: Vec<u8> = Vec::with_capacity(BLOCK + 600);
    while block.len() < BLOCK {
        let length = 1 + next() % 600;
        match next() % 3 {
            0 => block.extend(std::iter::repeat_n(next() as u8, length)),
            1 if !block.is_empty() => {
                let from = next() % block.len();
                (from..from + length).for_each(|at| block.push(block[at]));
            }
            _ => block.extend((0..length / 4).map(|_| next() as u8)),
        }
    }
    block.truncate(BLOCK);
    block
}

proptest! {
    #[test]
    fn only_the_compressed_block_compares_equal(seed in any::<u64>(), at in 0..BLOCK, bit in 0u32..8) {
        let mut block = block(seed);
        let mut compressor = Compressor::default();
        let compressed = match compressor.pack(&block) {
            Some(compressed) => compressed.to_vec(),
            None => return Ok(()),
        };
        prop_assert!(is_lz4_of(&compressed, &block));
        prop_assert!(!is_lz4_of(&compressed, &block[..BLOCK - 1]) && !is_lz4_of(&compressed[..compressed.len() - 1], &block) && !is_lz4_of(&[], &block));
        block[at] ^= 1 << bit;
        prop_assert!(!is_lz4_of(&compressed, &block));
    }

    /// The result agrees with decompression, for corrupted input, too.
    #[test]
    fn it_agrees_with_unpacking(seed in any::<u64>(), flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4)) {
        let block = block(seed);
        let mut compressor = Compressor::default();
        let mut compressed = match compressor.pack(&block) {
            Some(compressed) => compressed.to_vec(),
            None => return Ok(()),
        };
        let length = compressed.len();
        flips.iter().for_each(|(at, byte)| compressed[at % length] = *byte);
        let mut out = vec![0; BLOCK];
        let unpacks = decompress(&compressed, &mut out);
        prop_assert_eq!(is_lz4_of(&compressed, &block), unpacks && out == block);
        // The decompressed form is found to be the same, too.
        prop_assert!(!unpacks || is_lz4_of(&compressed, &out));
    }

    #[test]
    fn what_is_stored_is_the_same_or_not_or_does_not_unpack(seed in any::<u64>(), zstd in any::<bool>(), at in 0..BLOCK) {
        let mut block = block(seed);
        let (codecs, mut stored, mut room) = (Codecs::default(), Vec::new(), vec![0; BLOCK]);
        if Compressor::default().compress_stored(if zstd { Codec::Zstd } else { Codec::Lz4 }, &block, &mut stored).is_none() {
            stored.extend_from_slice(&block);
        }
        prop_assert_eq!(codecs.is_of(&stored, &block, &mut room), Some(true));
        block[at] ^= 1;
        prop_assert_eq!(codecs.is_of(&stored, &block, &mut room), Some(false));
        if stored.len() < BLOCK {
            let end = stored.len() - 1;
            stored[end] = 255;
            prop_assert_eq!(codecs.is_of(&stored, &block, &mut room), None);
        }
    }
}
