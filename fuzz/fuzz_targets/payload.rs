//! Compressed payload: arbitrary bytes are refused or become exactly one block, and a second
//! context gives the same result. Nothing is written past the block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_reduction::Codecs;
use windrow_types::BLOCK_SIZE;

fuzz_target!(|data: &[u8]| {
    let (codecs, mut first, mut second) = (
        Codecs::default(),
        vec![0xaa; BLOCK_SIZE + 64],
        vec![0x55; BLOCK_SIZE + 64],
    );
    let good = codecs.decompress_stored(data, &mut first[..BLOCK_SIZE]);
    assert_eq!(
        good,
        Codecs::default().decompress_stored(data, &mut second[..BLOCK_SIZE])
    );
    assert!(
        first[BLOCK_SIZE..].iter().all(|byte| *byte == 0xaa)
            && second[BLOCK_SIZE..].iter().all(|byte| *byte == 0x55)
    );
    assert!(!good || first[..BLOCK_SIZE] == second[..BLOCK_SIZE]);
});
