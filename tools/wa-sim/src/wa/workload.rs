//! Synthetic workloads, endless, from a seed.
//!
//! All writes are single blocks of `0 .. blocks`. A pool is filled in sequence first (that is
//! [`fill`]); then [`Workload::stream`] overwrites. Ranks of skewed loads are scattered over the
//! addresses, so that a filled segment holds both hot and cold blocks.

use super::operation::Operation;
use crate::rng::Rng;

/// Distribution of the overwritten blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// Every block is equally likely.
    Uniform,
    /// The block of rank `r` is written in proportion to `r ^ -theta`.
    Zipf {
        /// Exponent, above 0.
        theta: f64,
    },
    /// A share of the blocks takes a share of the writes; uniform within both.
    HotCold {
        /// Share of the writes, 0 to 1.
        writes: f64,
        /// Share of the blocks, 0 to 1.
        blocks: f64,
    },
    /// Several sequential streams, each cycling through its part; 64 blocks at a time.
    Sequential {
        /// Number of streams.
        streams: u32,
    },
    /// Half of the blocks in sequential runs of 64, the other half at random, half of the writes
    /// each.
    Mixed,
    /// A hot tenth takes 90 % of the writes and moves by its own size after the writes of every two
    /// passes.
    Moving,
    /// Uniform, then Zipf 0.99, then hot and cold 80/20, four passes of writes each, repeated.
    Phases,
    /// A circular journal of 2 % takes half of the writes; Zipf 0.9 over 60 % of the blocks takes
    /// the rest; the remaining blocks are never written.
    Journal,
}

/// A pattern with static data and trims.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// Distribution of the writes.
    pub pattern: Pattern,
    /// Share of blocks that are filled and never written again, 0 to 1.
    pub static_share: f64,
    /// Share of operations that trim a block instead, 0 to 1; every dynamic block is equally
    /// likely. With uniform writes, on average that share of the dynamic blocks is empty. Otherwise
    /// cold blocks stay empty for longer: see [`Workload::empty_share`].
    pub trim_share: f64,
}

impl From<Pattern> for Workload {
    fn from(pattern: Pattern) -> Self {
        Self {
            pattern,
            static_share: 0.0,
            trim_share: 0.0,
        }
    }
}

impl Pattern {
    /// Looks up a pattern by name: `uniform`, `zipf:0.99`, `hot:80/20`, `sequential:4`, `mixed`,
    /// `moving`, `phases`, `journal`.
    pub fn from_name(name: &str) -> Option<Self> {
        let (word, rest) = name
            .split_once(':')
            .map_or((name, None), |(word, rest)| (word, Some(rest)));
        let share = |text: &str| {
            text.parse::<f64>()
                .ok()
                .map(|percent| percent / 100.0)
                .filter(|share| *share > 0.0 && *share < 1.0)
        };
        Some(match (word, rest) {
            ("uniform", None) => Self::Uniform,
            ("zipf", rest) => Self::Zipf {
                theta: rest
                    .map_or(Some(0.99), |text| text.parse().ok())
                    .filter(|theta| *theta > 0.0 && *theta < 8.0)?,
            },
            ("hot", rest) => {
                let (writes, blocks) = rest.unwrap_or("80/20").split_once('/')?;
                Self::HotCold {
                    writes: share(writes)?,
                    blocks: share(blocks)?,
                }
            }
            ("sequential", rest) => Self::Sequential {
                streams: rest
                    .map_or(Some(1), |text| text.parse().ok())
                    .filter(|n| (1..=1024).contains(n))?,
            },
            ("mixed", None) => Self::Mixed,
            ("moving", None) => Self::Moving,
            ("phases", None) => Self::Phases,
            ("journal", None) => Self::Journal,
            _ => return None,
        })
    }

    /// Name that [`Pattern::from_name`] parses.
    pub fn name(self) -> String {
        match self {
            Self::Uniform => "uniform".into(),
            Self::Zipf { theta } => format!("zipf:{theta}"),
            Self::HotCold { writes, blocks } => format!(
                "hot:{}/{}",
                (writes * 100.0).round(),
                (blocks * 100.0).round()
            ),
            Self::Sequential { streams } => format!("sequential:{streams}"),
            Self::Mixed => "mixed".into(),
            Self::Moving => "moving".into(),
            Self::Phases => "phases".into(),
            Self::Journal => "journal".into(),
        }
    }
}

/// All blocks once, in sequence.
pub fn fill(blocks: u32) -> impl Iterator<Item = Operation> {
    (0..blocks).map(Operation::write)
}

impl Workload {
    /// Share of the dynamic blocks that trims leave empty in the steady state, 0 to 1; `None` for
    /// patterns whose blocks are not written at one or two rates.
    pub fn empty_share(&self) -> Option<f64> {
        // A block trimmed at one rate and written at another is empty for that part of the time;
        // rates are those of a mean block.
        let (trims, writes) = (self.trim_share, 1.0 - self.trim_share);
        let empty = |rate: f64| {
            if trims > 0.0 {
                trims / (trims + writes * rate)
            } else {
                0.0
            }
        };
        match self.pattern {
            Pattern::Uniform => Some(empty(1.0)),
            Pattern::HotCold { writes, blocks } => Some(
                blocks * empty(writes / blocks)
                    + (1.0 - blocks) * empty((1.0 - writes) / (1.0 - blocks)),
            ),
            _ => None,
        }
    }

    /// The same with the trims that leave this share of the dynamic blocks empty, 0 to 1; `None` if
    /// [`Workload::empty_share`] is.
    pub fn emptied(self, share: f64) -> Option<Self> {
        self.empty_share()?;
        let with = |trim_share: f64| Self { trim_share, ..self };
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if with(middle).empty_share()? < share {
                low = middle
            } else {
                high = middle
            }
        }
        Some(with(low))
    }

    /// The endless stream of operations after the fill.
    pub fn stream(self, blocks: u32, seed: u64) -> Stream {
        let dynamic = (f64::from(blocks) * (1.0 - self.static_share))
            .round()
            .clamp(1.0, f64::from(blocks)) as u32;
        let theta = match self.pattern {
            Pattern::Zipf { theta } => theta,
            Pattern::Journal => 0.9,
            _ => 0.99,
        };
        let ranks = if self.pattern == Pattern::Journal {
            (dynamic / 10 * 6).max(1)
        } else {
            dynamic
        };
        Stream {
            workload: self,
            dynamic,
            scatter: Scatter::new(dynamic),
            zipf: Zipf::new(ranks, theta),
            random: Rng::stream(seed, "workload"),
            written: 0,
            run: (0, 0),
            heads: vec![0; 1024],
        }
    }
}

/// Endless operations.
pub struct Stream {
    workload: Workload,
    dynamic: u32,
    scatter: Scatter,
    zipf: Zipf,
    random: Rng,
    written: u64,
    /// Next block of a run and the rest of its length.
    run: (u32, u32),
    heads: Vec<u32>,
}

impl Stream {
    fn chance(&mut self, share: f64) -> bool {
        unit(&mut self.random) < share
    }

    fn hot_cold(&mut self, writes: f64, blocks: f64) -> u32 {
        let hot = (f64::from(self.dynamic) * blocks)
            .round()
            .clamp(1.0, f64::from(self.dynamic)) as u32;
        match self.chance(writes) || hot == self.dynamic {
            true => self.random.below(u64::from(hot)) as u32,
            false => hot + self.random.below(u64::from(self.dynamic - hot)) as u32,
        }
    }

    /// Draws the next written block.
    #[inline]
    pub fn block(&mut self) -> u32 {
        let (dynamic, at) = (self.dynamic, self.written);
        self.written += 1;
        match self.workload.pattern {
            Pattern::Uniform => self.random.below(u64::from(dynamic)) as u32,
            Pattern::Zipf { .. } => {
                let rank = self.zipf.draw(&mut self.random);
                self.scattered(rank)
            }
            Pattern::HotCold { writes, blocks } => {
                let rank = self.hot_cold(writes, blocks);
                self.scattered(rank)
            }
            Pattern::Sequential { streams } => self.sequential(streams.min(dynamic)),
            Pattern::Mixed => self.mixed(dynamic / 2),
            Pattern::Moving => {
                let tenth = (dynamic / 10).max(1);
                let base = at / (2 * u64::from(dynamic)) * u64::from(tenth);
                let rank = match self.chance(0.9) {
                    true => {
                        ((base + self.random.below(u64::from(tenth))) % u64::from(dynamic)) as u32
                    }
                    false => self.random.below(u64::from(dynamic)) as u32,
                };
                self.scattered(rank)
            }
            Pattern::Phases => {
                let rank = match at / (4 * u64::from(dynamic)) % 3 {
                    0 => self.random.below(u64::from(dynamic)) as u32,
                    1 => self.zipf.draw(&mut self.random),
                    _ => self.hot_cold(0.8, 0.2),
                };
                self.scattered(rank)
            }
            Pattern::Journal => {
                let journal = (dynamic / 50).max(1);
                match at % 2 {
                    0 => (at / 2 % u64::from(journal)) as u32,
                    _ => (journal + self.zipf.draw(&mut self.random)).min(dynamic - 1),
                }
            }
        }
    }

    /// Maps a rank to the written blocks; static ones are excluded.
    #[inline]
    fn scattered(&self, rank: u32) -> u32 {
        self.scatter.of(rank)
    }

    fn sequential(&mut self, streams: u32) -> u32 {
        let part = self.dynamic / streams;
        if self.run.1 == 0 {
            self.run = (self.random.below(u64::from(streams)) as u32, 64);
        }
        let stream = self.run.0;
        self.run.1 -= 1;
        let head = &mut self.heads[stream as usize];
        let block = stream * part + *head;
        *head = (*head + 1) % part;
        block
    }

    fn mixed(&mut self, half: u32) -> u32 {
        if half == 0 {
            return 0;
        }
        // One run of 64 for each 64 random blocks.
        if self.run.1 == 0 && self.chance(1.0 / 65.0) {
            self.run.1 = 64;
        }
        match self.run.1 {
            0 => half + self.random.below(u64::from(self.dynamic - half)) as u32,
            _ => {
                let block = self.run.0;
                self.run = ((block + 1) % half, self.run.1 - 1);
                block
            }
        }
    }
}

impl Iterator for Stream {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        if self.workload.trim_share > 0.0 && self.chance(self.workload.trim_share) {
            let block = self.random.below(u64::from(self.dynamic)) as u32;
            return Some(Operation::Trim { block, count: 1 });
        }
        Some(Operation::write(self.block()))
    }
}

/// Draws a number in `0 .. 1`.
#[inline]
fn unit(random: &mut Rng) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// A fixed permutation of `0 .. blocks` that separates neighbours.
#[derive(Clone, Copy, Debug)]
struct Scatter {
    blocks: u32,
    factor: u32,
}

impl Scatter {
    fn new(blocks: u32) -> Self {
        let common = |mut a: u32, mut b: u32| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let golden = (f64::from(blocks) * 0.618_033_988_749_895) as u32 | 1;
        let factor = (golden..)
            .step_by(2)
            .find(|factor| common(*factor, blocks) == 1)
            .unwrap_or(1);
        Self { blocks, factor }
    }

    #[inline]
    fn of(self, rank: u32) -> u32 {
        (u64::from(rank) * u64::from(self.factor) % u64::from(self.blocks)) as u32
    }
}

/// Zipf ranks by rejection from an invertible envelope (Hörmann and Derflinger 1996): no table, for
/// any number of ranks.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    ranks: f64,
    theta: f64,
    low: f64,
    high: f64,
    sure: f64,
}

impl Zipf {
    fn new(ranks: u32, theta: f64) -> Self {
        let mut zipf = Self {
            ranks: f64::from(ranks),
            theta,
            low: 0.0,
            high: 0.0,
            sure: 0.0,
        };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(zipf.ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.area(2.5) - 2f64.powf(-theta));
        zipf
    }

    /// The integral of `x ^ -theta`, up to a constant.
    fn area(&self, x: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < 1e-9 {
            x.ln()
        } else {
            (power * x.ln()).exp_m1() / power
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < 1e-9 {
            area.exp()
        } else {
            ((power * area).max(-1.0).ln_1p() / power).exp()
        }
    }

    /// Draws a rank, from 0.
    fn draw(&self, random: &mut Rng) -> u32 {
        loop {
            let area = self.low + unit(random) * (self.high - self.low);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.sure || area >= self.area(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u32 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
