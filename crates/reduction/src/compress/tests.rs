use super::*;
use proptest::prelude::*;

const BLOCK: usize = 4096;

/// A regular block with `random` random bytes at its start.
fn block(seed: u64, random: usize, period: usize) -> Vec<u8> {
    let mut x = seed | 1;
    let mut block: Vec<u8> = (0..BLOCK).map(|at| (at % period) as u8).collect();
    block[..random].fill_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    });
    block
}

proptest! {
    #[test]
    fn decompression_inverts_compression(seed in any::<u64>(), random in 0usize..=BLOCK, period in 1usize..600) {
        let mut x = seed | 1;
        let mut block: Vec<u8> = (0..BLOCK).map(|at| (at % period) as u8).collect();
        block[..random].fill_with(|| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        });
        let mut compressor = Compressor::default();
        if let Some(compressed) = compressor.pack(&block) {
            prop_assert!(compressed.len() <= BLOCK - BLOCK / LEAST_SAVING);
            let mut out = vec![0xaa; BLOCK];
            prop_assert!(decompress(compressed, &mut out));
            prop_assert_eq!(out, block);
        } else {
            prop_assert!(random > BLOCK / 4, "a block that is mostly regular is packed");
        }
    }

    #[test]
    fn what_was_stored_is_unpacked(seed in any::<u64>(), random in 0usize..=BLOCK, period in 1usize..600, zstd in any::<bool>()) {
        let block = block(seed, random, period);
        let mut stored = vec![1, 2, 3];
        let codec = if zstd { Codec::Zstd } else { Codec::Lz4 };
        let length = Compressor::default().compress_stored(codec, &block, &mut stored);
        prop_assert_eq!(stored.len(), 3 + length.unwrap_or(0));
        if let Some(length) = length {
            prop_assert!(length.is_multiple_of(UNIT) && length <= BLOCK - BLOCK / LEAST_SAVING);
            prop_assert_eq!(Made::of(&stored[3..]).map(|(made, _)| made), Some(if zstd { Made::Zstd } else { Made::Lz4 }));
            let (codecs, mut out) = (Codecs::default(), vec![0xaa; BLOCK]);
            prop_assert!(codecs.decompress_stored(&stored[3..], &mut out));
            prop_assert_eq!(out, block);
            prop_assert!(!codecs.decompress_stored(&stored[3..], &mut [0; BLOCK - 512]) && !codecs.decompress_stored(&stored[3..], &mut [0; BLOCK + 512]));
            // The last byte alone gives codec and filling.
            for rubbish in [0, 49, 255] {
                stored[2 + length] = rubbish;
                prop_assert!(!codecs.decompress_stored(&stored[3..], &mut vec![0; BLOCK]));
            }
        }
    }

    /// A recompressed block decompresses to the same block, is no larger, and is tried only once.
    #[test]
    fn a_recompressed_block_is_the_same(seed in any::<u64>(), random in 0usize..=BLOCK, period in 1usize..600) {
        let block = block(seed, random, period);
        let (mut compressor, codecs, mut stored) = (Compressor::default(), Codecs::default(), Vec::new());
        if compressor.compress_stored(Codec::Lz4, &block, &mut stored).is_none() {
            stored.extend_from_slice(&block);
        }
        let mut again = vec![9];
        let done = compressor.repack_stored(&stored, BLOCK, &mut again);
        let (Recompressed::Smaller(length) | Recompressed::NoGain(length)) = done else {
            prop_assert_eq!(again.len(), 1);
            return Ok(());
        };
        prop_assert_eq!(again.len(), 1 + length);
        if let Recompressed::Smaller(_) = done {
            prop_assert!(length + REPACK_LEAST <= stored.len() && length.is_multiple_of(UNIT));
        }
        if length > 0 {
            let mut out = vec![0xaa; BLOCK];
            prop_assert!(length <= stored.len() && codecs.decompress_stored(&again[1..], &mut out));
            prop_assert_eq!(out, block);
            prop_assert_eq!(compressor.repack_stored(&again[1..], BLOCK, &mut Vec::new()), Recompressed::Kept, "once only");
        }
    }

    /// Arbitrary bytes are refused, or decompress to exactly one block; nothing is written past it
    /// (which safe code could not, and the C library must not).
    #[test]
    fn rubbish_behind_a_mark_is_refused_or_fills_the_block(seed in any::<u64>(), random in 0usize..BLOCK, flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6), mark in 1u8..=48) {
        let block = block(seed, random, 7);
        let mut stored = Vec::new();
        Compressor::default().compress_stored(Codec::Zstd, &block, &mut stored);
        let length = stored.len();
        flips.iter().filter(|_| length > 0).for_each(|(at, byte)| stored[at % length] = *byte);
        if let Some(last) = stored.last_mut() { *last = mark }
        let mut out = vec![0xaa; BLOCK + 4096];
        let _ = Codecs::default().decompress_stored(&stored, &mut out[..BLOCK]);
        prop_assert!(out[BLOCK..].iter().all(|byte| *byte == 0xaa));
    }

    #[test]
    fn rubbish_is_refused_or_fills_the_block(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let mut out = vec![0; BLOCK];
        let _ = decompress(&bytes, &mut out);
    }
}

#[test]
fn random_bytes_are_not_compressed() {
    let mut x = 88_172_645_463_325_252u64;
    let block: Vec<u8> = std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    })
    .take(BLOCK / 8)
    .flatten()
    .collect();
    assert!(Compressor::default().pack(&block).is_none());
}

#[test]
fn a_block_of_another_length_is_none() {
    let mut compressor = Compressor::default();
    let compressed = compressor.pack(&[7; BLOCK]).expect("regular").to_vec();
    assert!(
        !decompress(&compressed, &mut [0; 512])
            && !decompress(&compressed, &mut [0; 2 * BLOCK])
            && !decompress(&compressed[..compressed.len() - 1], &mut [0; BLOCK])
    );
}

#[test]
fn random_blocks_look_so_and_others_do_not() {
    let mut x = 88_172_645_463_325_252u64;
    let mut random = |bytes: usize| -> Vec<u8> {
        let next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    };
    let seen = (0..2000).filter(|_| looks_random(&random(BLOCK))).count();
    assert!(seen >= 1998, "{seen} of 2000 random blocks");
    for random_bytes in [0, 1000, 3000, 3584] {
        let mut block = random(random_bytes);
        block.resize(BLOCK, 0x20);
        assert!(
            !looks_random(&block),
            "{random_bytes} random bytes, and spaces"
        );
    }
    let text: Vec<u8> = b"Nothing is acknowledged that depends on it before it is in force. "
        .iter()
        .copied()
        .cycle()
        .take(BLOCK)
        .collect();
    assert!(!looks_random(&text));
    let numbers: Vec<u8> = (0..512u64)
        .flat_map(|n| (n * 7919 % 65_536).to_le_bytes())
        .collect();
    assert!(!looks_random(&numbers));
}

/// A block of a few distinct values in random order: entropy coding saves little, and LZ4 finds no
/// repetitions.
fn entropy(distinct: u64) -> Vec<u8> {
    let mut x = 88_172_645_463_325_252u64;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8 % distinct as u8
    };
    std::iter::repeat_with(next).take(BLOCK).collect()
}

/// LZ4 finds no repetitions in them; zstd codes the frequencies of bytes.
#[test]
fn zstd_compresses_blocks_without_repetitions() {
    let (block, mut compressor, mut out) = (entropy(16), Compressor::default(), Vec::new());
    assert_eq!(
        compressor.compress_stored(Codec::Lz4, &block, &mut out),
        None
    );
    let length = compressor
        .compress_stored(Codec::Zstd, &block, &mut out)
        .expect("four bits for each byte");
    assert!((2048..2048 + 160).contains(&length), "{length} bytes");
}

/// Zstd saves too little of an LZ4 payload: it stays, is marked as tried, and is not tried again.
#[test]
fn lz4_that_zstd_does_not_improve_is_marked() {
    // Random bytes, then one repeated byte: both codecs store the random ones uncompressed.
    let mut block = entropy(255);
    block[2000..].fill(5);
    let (mut compressor, mut stored, mut again) = (Compressor::default(), Vec::new(), Vec::new());
    let length = compressor
        .compress_stored(Codec::Lz4, &block, &mut stored)
        .expect("half of it");
    assert_eq!(
        compressor.repack_stored(&stored, BLOCK, &mut again),
        Recompressed::NoGain(length)
    );
    assert_eq!(again[..length - 1], stored[..length - 1]);
    assert_eq!(Made::of(&again).map(|(made, _)| made), Some(Made::Lz4Final));
    let mut out = vec![0; BLOCK];
    assert!(Codecs::default().decompress_stored(&again, &mut out) && out == block);
    assert_eq!(
        compressor.repack_stored(&again, BLOCK, &mut Vec::new()),
        Recompressed::Kept
    );
}

/// An uncompressed block that looks random is not tried, nor a payload too small to save anything.
#[test]
fn hopeless_payloads_are_not_tried() {
    let mut compressor = Compressor::default();
    let random: Vec<u8> = entropy(256 - 1);
    assert!(looks_random(&random));
    assert_eq!(
        compressor.repack_stored(&random, BLOCK, &mut Vec::new()),
        Recompressed::Kept
    );
    let mut small = Vec::new();
    let length = compressor
        .compress_stored(Codec::Lz4, &[7; BLOCK], &mut small)
        .expect("regular");
    assert!(length <= REPACK_LEAST);
    assert_eq!(
        compressor.repack_stored(&small, BLOCK, &mut Vec::new()),
        Recompressed::Kept
    );
}

/// Stored data stays readable: payloads as earlier versions stored them.
#[test]
fn payloads_of_earlier_versions_are_decompressed() {
    let block: Vec<u8> = (0..BLOCK).map(|at| (at / 9 * 31 % 251) as u8).collect();
    for (name, made) in [
        ("lz4", Made::Lz4),
        ("zstd", Made::Zstd),
        ("lz4-final", Made::Lz4Final),
    ] {
        let path = format!(
            "{}/tests/fixtures/payload-{name}-v1.bin",
            env!("CARGO_MANIFEST_DIR")
        );
        if !std::path::Path::new(&path).exists()
            && std::env::var_os("WINDROW_WRITE_FIXTURES").is_some()
        {
            let (mut compressor, mut stored) = (Compressor::default(), Vec::new());
            compressor
                .compress_stored(
                    if made == Made::Zstd {
                        Codec::Zstd
                    } else {
                        Codec::Lz4
                    },
                    &block,
                    &mut stored,
                )
                .expect("regular");
            if made == Made::Lz4Final {
                *stored.last_mut().expect("not empty") += 32;
            }
            std::fs::write(&path, stored).expect("a folder of fixtures");
        }
        let stored = std::fs::read(&path).expect("a fixture");
        assert_eq!(Made::of(&stored).map(|(made, _)| made), Some(made));
        let mut out = vec![0; BLOCK];
        assert!(
            Codecs::default().decompress_stored(&stored, &mut out) && out == block,
            "{name}"
        );
    }
}
