//! Random numbers of the simulator and the laboratory: xoshiro256++ seeded by splitmix64. They are
//! our own so that a seed means the same run for ever, whatever a library makes of it in its next
//! version.
//!
//! One seed feeds several named streams (workload, devices, faults ...), so that cutting the
//! workload short leaves what the other streams draw unchanged up to that point: this is what makes
//! shrinking work.

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
        let start = label
            .bytes()
            .fold(mix(seed), |acc, byte| mix(acc ^ u64::from(byte)));
        Self {
            state: std::array::from_fn(|i| mix(start.wrapping_add(i as u64))),
        }
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

    /// A number in `low..=high`.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `per_mille` times in a thousand.
    #[inline]
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of the values.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// A random order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// 16 random bytes, for identifiers.
    pub fn bytes16(&mut self) -> [u8; 16] {
        let (low, high) = (self.bits(), self.bits());
        std::array::from_fn(|i| {
            if i < 8 {
                low.to_le_bytes()[i]
            } else {
                high.to_le_bytes()[i - 8]
            }
        })
    }
}
