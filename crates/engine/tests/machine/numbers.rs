//! Numbers that are the same in every run: Marsaglia's xorshift generator.

/// State of the generator; never 0.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Default for Numbers {
    fn default() -> Self {
        Self(88_172_645_463_325_252)
    }
}

impl Numbers {
    /// A generator with distinct numbers for each seed, also for close seeds.
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// Fills with incompressible bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.draw() as u8);
    }

    /// Incompressible bytes of this length, eight for each number.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length / 8)
            .flat_map(|_| self.draw().to_le_bytes())
            .collect()
    }
}
