//! Fingerprints of blocks: two blocks with different fingerprints are different; those with the same one may be the same.

/// What kind of fingerprint: they never meet, as the last bit tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Print {
    /// XXH3-128, fast: whoever finds two blocks with the same one compares them.
    Fast,
    /// The first 128 bits of BLAKE3: nobody finds two blocks with the same one.
    Strong,
    /// Of two bits of the block, for tests: collisions are the rule.
    Weak,
}

impl Print {
    /// The fingerprint of a block.
    pub fn of(self, block: &[u8]) -> u128 {
        match self {
            Self::Fast => twox_hash::XxHash3_128::oneshot(block) & !1,
            // (Of each block by itself. Its functions for many inputs at once, which it does not promise, read up to 48 bytes behind some of them: where a
            // block lies at the end of mapped memory the program dies.)
            Self::Strong => {
                let hash = blake3::hash(block);
                u128::from_le_bytes(std::array::from_fn(|i| hash.as_bytes()[i])) | 1
            }
            Self::Weak => u128::from(block.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) & 6) << 100,
        }
    }
}

#[cfg(test)]
mod tests;
