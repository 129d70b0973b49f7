//! The lab's own random numbers: xoshiro256++ seeded by splitmix64. One seed feeds several named streams.

/// A deterministic stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of splitmix64: a good mixer of 64 bits.
#[inline]
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream `label` of `seed`.
    pub fn stream(seed: u64, label: &str) -> Self {
        let start = label.bytes().fold(mix(seed), |acc, byte| mix(acc ^ u64::from(byte)));
        Self { state: std::array::from_fn(|i| mix(start.wrapping_add(i as u64))) }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
}
