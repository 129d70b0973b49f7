use super::*;

#[test]
fn a_strong_one_is_the_beginning_of_blake3() {
    // The published test vector for the input 0, 1, 2: e1be4d7a8ab5560aa4199eea339849ba 8e293d55...
    let published = [
        0xe1u8, 0xbe, 0x4d, 0x7a, 0x8a, 0xb5, 0x56, 0x0a, 0xa4, 0x19, 0x9e, 0xea, 0x33, 0x98, 0x49,
        0xba,
    ];
    assert_eq!(
        Fingerprint::Strong.of(&[0, 1, 2]),
        u128::from_le_bytes(published) | 1
    );
}

#[test]
fn kinds_never_meet_and_one_bit_of_a_block_changes_each() {
    let mut block = vec![7u8; 4096];
    let before = [Fingerprint::Fast.of(&block), Fingerprint::Strong.of(&block)];
    assert_eq!((before[0] & 1, before[1] & 1), (0, 1));
    block[4095] ^= 1;
    assert!(
        before[0] != Fingerprint::Fast.of(&block) && before[1] != Fingerprint::Strong.of(&block)
    );
}

#[test]
fn many_at_once_are_what_each_is_by_itself() {
    let bytes = |number: u64, length: u64| {
        (0..length)
            .map(|at| {
                ((at + 1)
                    .wrapping_mul(number + 1)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    >> 56) as u8
            })
            .collect()
    };
    let kinds = [
        Fingerprint::Strong,
        Fingerprint::Strong,
        Fingerprint::Fast,
        Fingerprint::Strong,
        Fingerprint::Weak,
    ];
    for count in [0u64, 1, 2, 15, 16, 17, 33, 100] {
        let blocks: Vec<Vec<u8>> = (0..count)
            .map(|number| bytes(number, if number % 29 == 28 { 512 } else { 4096 }))
            .collect();
        for mixed in [false, true] {
            let kind = |at: usize| {
                if mixed {
                    kinds[at % kinds.len()]
                } else {
                    Fingerprint::Strong
                }
            };
            let together = Fingerprint::of_all(
                blocks
                    .iter()
                    .enumerate()
                    .map(|(at, block)| (kind(at), &block[..])),
            );
            let singly: Vec<u128> = blocks
                .iter()
                .enumerate()
                .map(|(at, block)| kind(at).of(block))
                .collect();
            assert_eq!(together, singly);
        }
    }
}

#[test]
fn a_fast_one_is_xxh3() {
    let block: Vec<u8> = (0..4096u32).map(|at| ((at * at) >> 3) as u8).collect();
    for length in [0, 1, 16, 240, 241, 1024, 4096] {
        assert_eq!(
            Fingerprint::Fast.of(&block[..length]),
            xxhash_rust::xxh3::xxh3_128(&block[..length]) & !1
        );
    }
}
