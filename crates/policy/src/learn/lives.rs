//! Lifetimes of blocks: chances of death by knowledge of a block and by its age.

use super::tally::Tally;
use super::trail::{CELLS, ROWS, UNKNOWN};

/// Age buckets: half octaves.
pub const AGES: usize = 64;

/// The bucket of an age.
#[inline]
pub fn age_bucket(age: u32) -> usize {
    let bits = (age.max(1) as f32).to_bits();
    ((bits >> 22) - (127 << 1)) as usize & (AGES - 1)
}

/// Minimum age of a bucket.
#[inline]
pub fn edge(bucket: usize) -> f32 {
    f32::from_bits((bucket as u32 + (127 << 1)) << 22)
}

/// Fading counts.
pub struct Lives {
    blocks: f32,
    deaths: Tally,
    seen: Tally,
    moved: Tally,
    born: Tally,
    /// Time that the counts represent.
    pub(super) time: f32,
    /// Births since the last summation: at most 2^30, then there is a plan.
    passed: u32,
}

/// Weight of a guess in deaths.
const DOUBT: f32 = 1.5;

impl Lives {
    pub(super) fn new(blocks: u32) -> Self {
        let table = || Tally::new(CELLS * AGES);
        Self {
            blocks: blocks as f32,
            deaths: table(),
            seen: table(),
            moved: table(),
            born: Tally::new(CELLS),
            time: 0.0,
            passed: 0,
        }
    }

    #[inline]
    pub(super) fn born(&mut self, cell: usize) {
        self.born.count(cell);
        self.passed += 1;
    }

    #[inline]
    pub(super) fn died(&mut self, cell: usize, age: u32) {
        self.deaths.count(cell * AGES + age_bucket(age));
    }

    #[inline]
    pub(super) fn moved(&mut self, cell: usize, age: u32) {
        self.moved.count(cell * AGES + age_bucket(age));
    }

    #[inline]
    pub(super) fn seen(&mut self, cell: usize, age: u32) {
        self.seen.count(cell * AGES + age_bucket(age));
    }

    pub(super) fn flow(&self, cell: usize, age: usize) -> f32 {
        self.moved.get(cell * AGES + age) + if age == 0 { self.born.get(cell) } else { 0.0 }
    }

    pub(super) fn is_used(&self, cell: usize) -> bool {
        self.born.get(cell) > 0.5
            || (cell * AGES..(cell + 1) * AGES)
                .any(|at| self.seen.get(at) > 0.2 || self.moved.get(at) > 0.2)
    }

    /// Incorporates the counts since the last call.
    pub(super) fn settle(&mut self) {
        self.time += std::mem::take(&mut self.passed) as f32;
    }

    /// Lets all counts fade.
    pub(super) fn fade(&mut self, keep: f32) {
        for counts in [
            &mut self.deaths,
            &mut self.seen,
            &mut self.moved,
            &mut self.born,
        ] {
            counts.fade_all(keep);
        }
        self.time *= keep;
    }

    /// Deaths and exposure (live blocks times time) of a cell by age.
    fn raw(&self, cell: usize) -> [(f32, f32); AGES] {
        let at = |age: usize| cell * AGES + age;
        let mut out = [(0.0, 0.0); AGES];
        let mut later = 0.0;
        for age in (0..AGES).rev() {
            let width = edge(age + 1) - edge(age);
            // Blocks that died at this age or later were certainly exposed; samples also include
            // those that did not die.
            let deaths = self.deaths.get(at(age));
            let certain = (later + 0.5 * deaths) * width;
            out[age] = (deaths, certain.max(self.seen.get(at(age)) * self.blocks));
            later += deaths;
        }
        out
    }

    /// Chances of death per time, by age, of all cells with the same mean lifetime; the guess for
    /// each of them.
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
