//! Lifetimes of block versions: hazards by age, for versions written as hot ones and for the
//! others.
//!
//! A lifetime counts from its age at the start of the epoch (or from 0) to the age at which it
//! ended, or that it has at the end of the epoch. Deaths divided by lifetimes that reach an age are
//! the chance to die at it (the product-limit estimate of Kaplan and Meier, with late entry).
//! Lifetimes longer than an epoch are therefore counted correctly.

/// Ages are cut at eighths of powers of two.
pub const AGES: usize = 8 + 29 * 8;
/// Share of counts kept from epoch to epoch.
pub(super) const KEEP: f64 = 0.75;

/// Part of an age.
#[inline]
pub fn part(age: u32) -> usize {
    if age < 8 {
        return age as usize;
    }
    let octave = age.ilog2();
    ((octave - 2) * 8 + ((age >> (octave - 3)) & 7)) as usize
}

/// Minimum age of a part.
pub fn edge(part: usize) -> f64 {
    if part < 8 {
        return part as f64;
    }
    let (octave, eighth) = (part / 8 + 2, part % 8);
    (1u64 << octave) as f64 * (1.0 + eighth as f64 / 8.0)
}

#[derive(Debug)]
struct Counts {
    /// Lifetimes that start counting, that stop counting, and that end in death within a part.
    enter: Vec<f64>,
    leave: Vec<f64>,
    deaths: Vec<f64>,
    /// Number of births.
    born: f64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            enter: vec![0.0; AGES],
            leave: vec![0.0; AGES],
            deaths: vec![0.0; AGES],
            born: 0.0,
        }
    }
}

/// Lifetimes of this epoch, and fading ones of earlier epochs.
#[derive(Debug, Default)]
pub struct Lives {
    others: Counts,
    hot: Counts,
}

impl Lives {
    fn of(&mut self, hot: bool) -> &mut Counts {
        if hot { &mut self.hot } else { &mut self.others }
    }

    /// Records a written version.
    #[inline]
    pub fn born(&mut self, hot: bool) {
        self.of(hot).born += 1.0;
    }

    #[inline]
    fn count(
        &mut self,
        hot: bool,
        written: u32,
        now: u32,
        epoch_began: u32,
        number: f64,
    ) -> &mut Counts {
        let age = now.wrapping_sub(written);
        // (Differences, because time wraps.)
        let before = age.saturating_sub(now.wrapping_sub(epoch_began));
        let counts = self.of(hot);
        counts.enter[part(before)] += number;
        counts.leave[part(age)] += number;
        counts
    }

    /// Records the death of a version.
    #[inline]
    pub fn died(&mut self, hot: bool, written: u32, now: u32, epoch_began: u32) {
        self.count(hot, written, now, epoch_began, 1.0).deaths[part(now.wrapping_sub(written))] +=
            1.0;
    }

    /// Records, at the end of the epoch, a live version that represents `number` versions.
    pub fn living(&mut self, hot: bool, written: u32, now: u32, epoch_began: u32, number: f64) {
        self.count(hot, written, now, epoch_began, number);
    }

    /// Starts an epoch.
    pub fn fade(&mut self) {
        for counts in [&mut self.others, &mut self.hot] {
            counts.born *= KEEP;
            [&mut counts.enter, &mut counts.leave, &mut counts.deaths]
                .into_iter()
                .flatten()
                .for_each(|count| *count *= KEEP);
        }
    }

    /// Fading number of lifetimes counted so far.
    #[cfg(test)]
    pub(super) fn ended(&self) -> f64 {
        self.others.leave.iter().chain(&self.hot.leave).sum()
    }

    /// Share of writes that are hot.
    pub fn hot_share(&self) -> f64 {
        self.hot.born / (self.hot.born + self.others.born).max(1.0)
    }

    /// Share of versions that live at least to the minimum age of each part.
    pub fn survival(&self, hot: bool) -> Vec<f64> {
        let counts = if hot { &self.hot } else { &self.others };
        let (mut alive, mut reach) = (1.0, 0.0);
        let mut survival = Vec::with_capacity(AGES + 1);
        for at in 0..AGES {
            survival.push(alive);
            let (enter, leave, deaths) = (counts.enter[at], counts.leave[at], counts.deaths[at]);
            // Entries and exits within the part count half, except births.
            let exposed =
                reach + if at == 0 { enter } else { enter / 2.0 } - (leave - deaths) / 2.0;
            if deaths > 0.0 {
                alive *= (1.0 - deaths / exposed.max(deaths)).max(0.0);
            }
            reach = (reach + enter - leave).max(0.0);
        }
        survival.push(alive);
        survival
    }
}

#[cfg(test)]
mod tests;
