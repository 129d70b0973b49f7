//! Fingerprints of blocks: two blocks with different fingerprints are different; those with the
//! same one may be the same.

mod strong;

/// Kind of fingerprint. Different kinds never compare equal: the last bits distinguish them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fingerprint {
    /// XXH3-128, fast: blocks with equal fingerprints must be compared.
    Fast,
    /// First 128 bits of BLAKE3: collisions are infeasible.
    Strong,
    /// Two bits of the block, for tests: collisions are frequent.
    Weak,
}

impl Fingerprint {
    /// The fingerprint of a block.
    pub fn of(self, block: &[u8]) -> u128 {
        match self {
            Self::Fast => twox_hash::XxHash3_128::oneshot(block) & !1,
            Self::Strong => Self::from_blake3(blake3::hash(block).as_bytes()),
            Self::Weak => {
                u128::from(block.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) & 6) << 100
            }
        }
    }

    /// Fingerprints of many blocks, in order. For strong ones this takes less than half of the
    /// time.
    pub fn of_all<'a>(blocks: impl ExactSizeIterator<Item = (Self, &'a [u8])>) -> Vec<u128> {
        let mut fingerprints = Vec::with_capacity(blocks.len());
        let mut group = strong::Group::default();
        for (at, (kind, block)) in blocks.enumerate() {
            match block.try_into() {
                Ok(block) if kind == Self::Strong => {
                    fingerprints.push(0);
                    group.add(at, block, &mut fingerprints);
                }
                _ => fingerprints.push(kind.of(block)),
            }
        }
        group.end(&mut fingerprints);
        fingerprints
    }

    fn from_blake3(hash: &[u8; 32]) -> u128 {
        u128::from_le_bytes(std::array::from_fn(|i| hash[i])) | 1
    }
}

#[cfg(test)]
mod tests;
