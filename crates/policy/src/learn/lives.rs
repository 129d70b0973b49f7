//! How long blocks live: chances of death by what is known of a block and by its age.

use super::trail::{CELLS, ROWS, UNKNOWN};

/// Age buckets: half octaves.
pub const AGES: usize = 64;

/// The bucket of an age.
#[inline]
pub fn age_bucket(age: u32) -> usize {
    let bits = (age.max(1) as f32).to_bits();
    ((bits >> 22) - (127 << 1)) as usize & (AGES - 1)
}

/// The least age of a bucket.
#[inline]
pub fn edge(bucket: usize) -> f32 {
    f32::from_bits((bucket as u32 + (127 << 1)) << 22)
}

/// Counts, all fading.
pub struct Lives {
    blocks: f32,
    deaths: Vec<f32>,
    seen: Vec<f32>,
    moved: Vec<f32>,
    born: Vec<f32>,
    /// Time that the counts stand for.
    pub(super) time: f32,
    passed: f32,
}

/// Deaths that a guess weighs as much as.
const DOUBT: f32 = 2.0;

impl Lives {
    pub(super) fn new(blocks: u32) -> Self {
        let table = || vec![0.0; CELLS * AGES];
        Self { blocks: blocks as f32, deaths: table(), seen: table(), moved: table(), born: vec![0.0; CELLS], time: 0.0, passed: 0.0 }
    }

    #[inline]
    pub(super) fn born(&mut self, cell: usize) {
        self.born[cell] += 1.0;
        self.passed += 1.0;
    }

    #[inline]
    pub(super) fn died(&mut self, cell: usize, age: u32) {
        self.deaths[cell * AGES + age_bucket(age)] += 1.0;
    }

    #[inline]
    pub(super) fn moved(&mut self, cell: usize, age: u32) {
        self.moved[cell * AGES + age_bucket(age)] += 1.0;
    }

    #[inline]
    pub(super) fn seen(&mut self, cell: usize, age: u32) {
        self.seen[cell * AGES + age_bucket(age)] += 1.0;
    }

    pub(super) fn flow(&self, cell: usize, age: usize) -> f32 {
        self.moved[cell * AGES + age] + if age == 0 { self.born[cell] } else { 0.0 }
    }

    pub(super) fn is_used(&self, cell: usize) -> bool {
        self.born[cell] > 0.5 || self.seen[cell * AGES..][..AGES].iter().chain(&self.moved[cell * AGES..][..AGES]).any(|count| *count > 0.2)
    }

    /// Takes in what was counted since the last call.
    pub(super) fn settle(&mut self) {
        self.time += self.passed;
        self.passed = 0.0;
    }

    /// Lets all counts fade.
    pub(super) fn fade(&mut self, keep: f32) {
        for count in self.deaths.iter_mut().chain(&mut self.seen).chain(&mut self.moved).chain(&mut self.born) {
            *count *= keep;
        }
        self.time *= keep;
    }

    /// Deaths and exposure (live blocks times time) of a cell by age.
    fn raw(&self, cell: usize) -> [(f32, f32); AGES] {
        let deaths = &self.deaths[cell * AGES..][..AGES];
        let seen = &self.seen[cell * AGES..][..AGES];
        let mut out = [(0.0, 0.0); AGES];
        let mut later = 0.0;
        for age in (0..AGES).rev() {
            let width = edge(age + 1) - edge(age);
            // Those that died at this age or later were exposed for certain; samples know those that did not die as well.
            let certain = (later + 0.5 * deaths[age]) * width;
            out[age] = (deaths[age], certain.max(seen[age] * self.blocks));
            later += deaths[age];
        }
        out
    }

    /// Chances of death per time, by age, of all cells with the same mean life; the guess for each of them.
    pub(super) fn row(&self, mean: usize) -> [f32; AGES] {
        let mut sum = [(0.0, 0.0); AGES];
        for last in 0..ROWS {
            for (all, one) in sum.iter_mut().zip(self.raw(mean * ROWS + last)) {
                *all = (all.0 + one.0, all.1 + one.1);
            }
        }
        let scale = edge(2 * mean + 1);
        blend(&sum, |age| 1.0 / (scale + edge(age)))
    }

    /// Chances of death of a cell; `row` is the guess.
    pub(super) fn cell(&self, cell: usize, row: &[f32; AGES]) -> [f32; AGES] {
        match cell {
            UNKNOWN => blend(&self.raw(cell), |age| 0.3 / (self.blocks + edge(age))),
            _ => blend(&self.raw(cell), |age| row[age]),
        }
    }
}

fn blend(counts: &[(f32, f32); AGES], guess: impl Fn(usize) -> f32) -> [f32; AGES] {
    std::array::from_fn(|age| (counts[age].0 + DOUBT) / (counts[age].1 + DOUBT / guess(age)))
}

#[cfg(test)]
mod tests;
