//! Pseudo-random numbers with a seed, and bytes made of them.

use windrow_io::{Buf, Payload};

/// A small generator (the step of SplitMix64): every seed gives a full period, equal seeds give
/// equal numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (which is not 0), sufficiently uniform for loads.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Fills bytes that do not compress.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

/// `bytes` of data that does not compress.
pub fn noise(seed: u64, bytes: usize) -> Payload {
    let mut buf = Buf::unpooled(bytes);
    Random::new(seed).fill(&mut buf);
    buf.freeze()
}
