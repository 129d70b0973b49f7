//! XXH3 of 64 bits: the checksum of everything here except user blocks.

use twox_hash::XxHash3_64;

pub(crate) fn xxh3_64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

pub(crate) fn xxh3_64_with_seed(bytes: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3;

    /// Members may have been written by the other implementation.
    #[test]
    fn two_implementations_agree_at_every_length() {
        let bytes: Vec<u8> = (0..20_000u32)
            .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8)
            .collect();
        for length in (0..1100).chain([4095, 4096, 16_384, 20_000]) {
            let seed = (length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert_eq!(
                xxh3_64(&bytes[..length]),
                xxh3::xxh3_64(&bytes[..length]),
                "{length}"
            );
            assert_eq!(
                xxh3_64_with_seed(&bytes[..length], seed),
                xxh3::xxh3_64_with_seed(&bytes[..length], seed),
                "{length}"
            );
        }
    }
}
