//! How long versions of blocks live: hazards by age, of those that were written as hot ones and of
//! the others.
//!
//! A life counts from the age that it had when the epoch began (or from 0) to the age at which it
//! ended, or that it has when the epoch ends. Deaths over lives that reach an age are the chance to
//! die at it (the product-limit estimate of Kaplan and Meier, with late entry), so lives that are
//! longer than an epoch are counted rightly.

/// Ages are cut at eighths of powers of two.
pub const AGES: usize = 8 + 29 * 8;
/// What is kept of counts from epoch to epoch.
pub(super) const KEEP: f64 = 0.75;

/// The part that an age is in.
#[inline]
pub fn part(age: u32) -> usize {
    if age < 8 {
        return age as usize;
    }
    let octave = age.ilog2();
    ((octave - 2) * 8 + ((age >> (octave - 3)) & 7)) as usize
}

/// The least age of a part.
pub fn edge(part: usize) -> f64 {
    if part < 8 {
        return part as f64;
    }
    let (octave, eighth) = (part / 8 + 2, part % 8);
    (1u64 << octave) as f64 * (1.0 + eighth as f64 / 8.0)
}

#[derive(Debug)]
struct Counts {
    /// Lives that begin to count, and that end to count, within a part; those of the latter that
    /// died.
    enter: Vec<f64>,
    leave: Vec<f64>,
    deaths: Vec<f64>,
    /// Lives that were born.
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

/// Lives of this epoch, and fading ones of those before.
#[derive(Debug, Default)]
pub struct Lives {
    others: Counts,
    hot: Counts,
}

impl Lives {
    fn of(&mut self, hot: bool) -> &mut Counts {
        if hot { &mut self.hot } else { &mut self.others }
    }

    /// A version was written.
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

    /// A version died.
    #[inline]
    pub fn died(&mut self, hot: bool, written: u32, now: u32, epoch_began: u32) {
        self.count(hot, written, now, epoch_began, 1.0).deaths[part(now.wrapping_sub(written))] +=
            1.0;
    }

    /// The epoch ends, and a version lives, which stands for so many.
    pub fn living(&mut self, hot: bool, written: u32, now: u32, epoch_began: u32, number: f64) {
        self.count(hot, written, now, epoch_began, number);
    }

    /// An epoch begins.
    pub fn fade(&mut self) {
        for counts in [&mut self.others, &mut self.hot] {
            counts.born *= KEEP;
            [&mut counts.enter, &mut counts.leave, &mut counts.deaths]
                .into_iter()
                .flatten()
                .for_each(|count| *count *= KEEP);
        }
    }

    /// Lives that counted so far, fading.
    #[cfg(test)]
    pub(super) fn ended(&self) -> f64 {
        self.others.leave.iter().chain(&self.hot.leave).sum()
    }

    /// Share of the writes that are hot.
    pub fn hot_share(&self) -> f64 {
        self.hot.born / (self.hot.born + self.others.born).max(1.0)
    }

    /// Share of the versions that live to the least age of each part at least.
    pub fn survival(&self, hot: bool) -> Vec<f64> {
        let counts = if hot { &self.hot } else { &self.others };
        let (mut alive, mut reach) = (1.0, 0.0);
        let mut survival = Vec::with_capacity(AGES + 1);
        for at in 0..AGES {
            survival.push(alive);
            let (enter, leave, deaths) = (counts.enter[at], counts.leave[at], counts.deaths[at]);
            // Who enters or leaves within the part counts half, but for those that are born.
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
