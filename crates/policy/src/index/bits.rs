//! Set of bucket numbers with fast search for the next member: three levels of 64-bit words. Each
//! bit of an upper level marks a nonzero word below it.

/// The set. Holds numbers below 64^3.
pub(super) struct BucketBits {
    words: [Vec<u64>; 3],
}

impl BucketBits {
    /// An empty set for numbers below `bound`.
    pub(super) fn new(bound: u32) -> Self {
        assert!(bound <= 64 * 64 * 64, "{bound} buckets");
        let bound = bound as usize;
        Self {
            words: [
                vec![0; bound.div_ceil(64)],
                vec![0; bound.div_ceil(64 * 64)],
                vec![0; 1],
            ],
        }
    }

    pub(super) fn clear(&mut self) {
        self.words.iter_mut().for_each(|level| level.fill(0));
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.words[0][number as usize / 64] >> (number % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, number: u32) {
        let mut at = number as usize;
        for level in &mut self.words {
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        let mut at = number as usize;
        for level in &mut self.words {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The smallest member that is at least `number`.
    pub(super) fn next_from(&self, number: u32) -> Option<u32> {
        let mut from = number as usize;
        // Up until a word has a bit at or after `from`, then down along the first bits.
        for (level, words) in self.words.iter().enumerate() {
            let rest = words.get(from / 64)? & (!0 << (from % 64));
            if rest != 0 {
                let mut at = from / 64 * 64 + rest.trailing_zeros() as usize;
                for below in self.words[..level].iter().rev() {
                    at = at * 64 + below[at].trailing_zeros() as usize;
                }
                return Some(at as u32);
            }
            from = from / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests;
