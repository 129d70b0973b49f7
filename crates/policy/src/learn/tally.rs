//! Fading counts of any size in pairs of `f32`.
//!
//! An `f32` that has reached 2^24 does not change when 1 is added, and the counts of a large pool
//! go far beyond that. So what is added goes to `near`, and when that has become so large that
//! additions begin to lose digits, all of it is put over to `far`, to which only such large
//! portions are ever added. As long as nothing was put over, and in a pool below some GiB nothing
//! ever is, the sums are those of `f32` alone, to the last digit.

/// What `near` may reach in units of what is added: where `f32` still has 1 to the last digit.
const ONES: f32 = (1u32 << 23) as f32;
/// The same for additions of unlike size: those from a 64th of the largest on still count.
const PORTIONS: f32 = (1u32 << 18) as f32;

/// See the module. 8 bytes for each count; `far` is not written to, and takes no memory, before it
/// is needed.
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

    /// One more.
    #[inline]
    pub(super) fn count(&mut self, at: usize) {
        let near = &mut self.near[at];
        *near += 1.0;
        if *near >= ONES {
            self.carry(at);
        }
    }

    /// So much more; `most` is the most that is added at once.
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

    /// The sum.
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
