use super::*;
use proptest::prelude::*;

const BLOCK: usize = 4096;

proptest! {
    #[test]
    fn what_was_packed_is_unpacked(seed in any::<u64>(), random in 0usize..=BLOCK, period in 1usize..600) {
        let mut x = seed | 1;
        let mut block: Vec<u8> = (0..BLOCK).map(|at| (at % period) as u8).collect();
        block[..random].fill_with(|| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        });
        let mut packer = Packer::default();
        if let Some(packed) = packer.pack(&block) {
            prop_assert!(packed.len() <= BLOCK - BLOCK / LEAST_SAVING);
            let mut out = vec![0xaa; BLOCK];
            prop_assert!(unpack(packed, &mut out));
            prop_assert_eq!(out, block);
        } else {
            prop_assert!(random > BLOCK / 4, "a block that is mostly regular is packed");
        }
    }

    #[test]
    fn what_was_stored_is_unpacked(seed in any::<u64>(), random in 0usize..=BLOCK, period in 1usize..600) {
        let mut x = seed | 1;
        let mut block: Vec<u8> = (0..BLOCK).map(|at| (at % period) as u8).collect();
        block[..random].fill_with(|| { x ^= x << 13; x ^= x >> 7; x ^= x << 17; x as u8 });
        let mut stored = vec![1, 2, 3];
        let length = Packer::default().pack_stored(&block, &mut stored);
        prop_assert_eq!(stored.len(), 3 + length.unwrap_or(0));
        if let Some(length) = length {
            prop_assert!(length.is_multiple_of(UNIT) && length <= BLOCK - BLOCK / LEAST_SAVING);
            let mut out = vec![0xaa; BLOCK];
            prop_assert!(unpack_stored(&stored[3..], &mut out));
            prop_assert_eq!(out, block);
            // The filling is told by its last byte alone.
            stored[2 + length] = 0;
            prop_assert!(!unpack_stored(&stored[3..], &mut vec![0; BLOCK]));
        }
    }

    #[test]
    fn rubbish_is_refused_or_fills_the_block(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let mut out = vec![0; BLOCK];
        let _ = unpack(&bytes, &mut out);
    }
}

#[test]
fn random_bytes_are_not_packed() {
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
    assert!(Packer::default().pack(&block).is_none());
}

#[test]
fn a_block_of_another_length_is_none() {
    let mut packer = Packer::default();
    let packed = packer.pack(&[7; BLOCK]).expect("regular").to_vec();
    assert!(!unpack(&packed, &mut [0; 512]) && !unpack(&packed, &mut [0; 2 * BLOCK]) && !unpack(&packed[..packed.len() - 1], &mut [0; BLOCK]));
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
        assert!(!looks_random(&block), "{random_bytes} random bytes, and spaces");
    }
    let text: Vec<u8> = b"Nothing is acknowledged that depends on it before it is in force. ".iter().copied().cycle().take(BLOCK).collect();
    assert!(!looks_random(&text));
    let numbers: Vec<u8> = (0..512u64).flat_map(|n| (n * 7919 % 65_536).to_le_bytes()).collect();
    assert!(!looks_random(&numbers));
}
