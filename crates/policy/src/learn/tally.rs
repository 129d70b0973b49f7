//! Fading counts of any size in pairs of `f32`.
//!
//! An `f32` of 2^24 does not change when 1 is added, and the counts of a large pool exceed that.
//! Additions go to `near`. When it has become so large that additions begin to lose digits, all of
//! it is moved to `far`, which receives only such large portions. Before the first move (in a pool
//! below some GiB there is none) the sums equal those of a single `f32`, to the last digit.

/// Limit of `near` in units of the additions: `f32` is exact to the last digit up to there.
const ONES: f32 = (1u32 << 23) as f32;
/// Same for additions of different sizes: those from a 64th of the largest on still count.
const PORTIONS: f32 = (1u32 << 18) as f32;

/// Fading counts; see the module. 8 bytes for each count; `far` is not written to, and takes no
/// memory, before it is needed.
pub(super) struct Tally {
    near: Vec<f32>,
    far: Vec<f32>,
}

impl Tally {
    pub(super) fn new(counts: usize) -> Self {
        Self {
            near: vec![0.0; counts],
            far: vec![0.0; counts],
        }
    }

    /// Adds one.
    #[inline]
    pub(super) fn count(&mut self, at: usize) {
        let near = &mut self.near[at];
        *near += 1.0;
        if *near >= ONES {
            self.carry(at);
        }
    }

    /// Adds `portion`; `most` is the maximum that is added at once.
    #[inline]
    pub(super) fn add(&mut self, at: usize, portion: f32, most: f32) {
        let near = &mut self.near[at];
        *near += portion;
        if *near >= PORTIONS * most {
            self.carry(at);
        }
    }

    #[cold]
    fn carry(&mut self, at: usize) {
        self.far[at] += std::mem::take(&mut self.near[at]);
    }

    /// Sum of both parts.
    #[inline]
    pub(super) fn get(&self, at: usize) -> f32 {
        self.near[at] + self.far[at]
    }

    /// Keeps a share of one count.
    pub(super) fn fade(&mut self, at: usize, keep: f32) {
        self.near[at] *= keep;
        if self.far[at] > 0.0 {
            self.far[at] *= keep;
        }
    }

    /// Keeps a share of all counts.
    pub(super) fn fade_all(&mut self, keep: f32) {
        (0..self.near.len()).for_each(|at| self.fade(at, keep));
    }
}

#[cfg(test)]
mod tests;
