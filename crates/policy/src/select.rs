//! Victim selection for policies whose order changes with time, so that an index updated at every
//! write would not help.
//!
//! 1. A [`Rule`] gives every sealed segment a price; the lowest is the best victim. Prices change
//!    with time and with every block that dies.
//! 2. [`Shortlist`] scans all segments once for every `sqrt(segments / 2)` victims (for every
//!    victim, if there are few segments), keeps the best twice that many, and takes victims from
//!    these by their current prices. Look-ups per victim grow with the root of the number of
//!    segments (1 000 of 140 000).
//! 3. Random choices come from a seeded generator, so equal calls give equal victims.

use crate::place::Place;

/// Inputs of a price.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Segment, stream tag, age since it was sealed.
    pub place: Place,
    /// Live blocks.
    pub live: u32,
    /// Blocks it holds.
    pub capacity: u32,
    /// Deaths per time and live block, if the rule needs it.
    pub rate: f32,
}

/// Rule that selects victims.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rule {
    /// Least live share, by an exact index. The best if nothing is known of lifetimes.
    Greedy,
    /// `(1 - u) age / (1 + u)` of the log-structured file system (Rosenblum and Ousterhout 1991).
    CostBenefit,
    /// `(1 - u) sqrt(age) / u`, as the simulators of SepBIT use it.
    AgeRoot,
    /// The one sealed first.
    Fifo,
    /// Least live of this number drawn at random.
    Choices(u16),
    /// Least live of this number sealed first.
    Window(u32),
    /// Expected gain: see [`gain_price`].
    Gain,
}

impl Rule {
    /// Name, with its number if it has one.
    pub fn name(self) -> String {
        match self {
            Self::Greedy => "greedy".into(),
            Self::CostBenefit => "cost-benefit".into(),
            Self::AgeRoot => "age-root".into(),
            Self::Fifo => "fifo".into(),
            Self::Choices(d) => format!("choices:{d}"),
            Self::Window(w) => format!("window:{w}"),
            Self::Gain => "gain".into(),
        }
    }

    /// Looks up a rule by name.
    pub fn from_name(name: &str) -> Option<Self> {
        let (word, number) = name
            .split_once(':')
            .map_or((name, None), |(word, number)| (word, Some(number)));
        let at_least_one = |text: Option<&str>, default: u32| {
            text.map_or(Some(default), |text| text.parse().ok().filter(|n| *n > 0))
        };
        Some(match word {
            "choices" => Self::Choices(u16::try_from(at_least_one(number, 10)?).ok()?),
            // (A pool's properties hold only 16 bits.)
            "window" => {
                Self::Window(at_least_one(number, 64).filter(|w| *w <= u32::from(u16::MAX))?)
            }
            _ if number.is_some() => return None,
            "greedy" => Self::Greedy,
            "cost-benefit" => Self::CostBenefit,
            "age-root" => Self::AgeRoot,
            "fifo" => Self::Fifo,
            "gain" => Self::Gain,
            _ => return None,
        })
    }

    /// Its number in a pool's properties, and its parameter, if any.
    pub fn code(self) -> (u8, u16) {
        match self {
            Self::Greedy => (0, 0),
            Self::CostBenefit => (1, 0),
            Self::AgeRoot => (2, 0),
            Self::Fifo => (3, 0),
            Self::Choices(d) => (4, d),
            Self::Window(w) => (5, u16::try_from(w).unwrap_or(u16::MAX)),
            Self::Gain => (6, 0),
        }
    }

    /// Looks up a rule by number; `number` 0 is its default parameter.
    pub fn from_code(code: u8, number: u16) -> Option<Self> {
        let or = |default| if number == 0 { default } else { number };
        Some(match code {
            0 => Self::Greedy,
            1 => Self::CostBenefit,
            2 => Self::AgeRoot,
            3 => Self::Fifo,
            4 => Self::Choices(or(10)),
            5 => Self::Window(u32::from(or(64))),
            6 => Self::Gain,
            _ => return None,
        })
    }

    /// Price of a segment as a victim; the lowest goes first. [`Rule::Choices`] and
    /// [`Rule::Window`] price by live blocks.
    #[inline]
    pub fn price(self, candidate: &Candidate) -> f64 {
        let (live, capacity) = (f64::from(candidate.live), f64::from(candidate.capacity));
        let age = f64::from(candidate.place.age.max(1));
        match self {
            Self::Greedy | Self::Choices(_) | Self::Window(_) => live / capacity,
            Self::CostBenefit => -(capacity - live) * age / (capacity + live),
            Self::AgeRoot => -(capacity - live) / live.max(0.001) * age.sqrt(),
            Self::Fifo => -age,
            Self::Gain => gain_price(
                candidate.live,
                candidate.capacity,
                f64::from(candidate.rate),
            ),
        }
    }

    /// [`Rule::price`] if it is below a limit. Mostly it is not, which a bound shows without the
    /// full computation.
    #[inline]
    fn price_below(self, candidate: &Candidate, limit: f64) -> Option<f64> {
        if self == Self::Gain && candidate.live > 0 && candidate.live < candidate.capacity {
            // r - ln(1 + r) is below r and below r^2 / 2. (The margin allows for rounding.)
            let ratio = f64::from(candidate.capacity - candidate.live) / f64::from(candidate.live);
            let gain_most = ratio * (0.5 * ratio).min(1.0) * (1.0 + 1e-9);
            if f64::from(candidate.rate) >= limit * gain_most {
                return None;
            }
        }
        Some(self.price(candidate)).filter(|price| *price < limit)
    }
}

/// The price of space (moves per block of garbage and unit of time) at which it begins to pay to
/// clean a segment.
///
/// Waiting for `dt` costs `p G dt` for the garbage `G` it holds. It saves the moves of the `L h dt`
/// blocks that die meanwhile (`h` deaths per time and live block). It also postpones the cost of
/// its live blocks in their next segment, `L c dt`, where `c` is the least cost rate of a live
/// block of that rate: `c = min over T of [p (garbage per live block) + moves per time]` of a
/// segment cleaned at age `T`. For memoryless lifetimes the minimum is at
/// `p = h / (exp(hT) - 1 - hT)`, and the balance `p G = L (h + c)` becomes
/// ```text
/// p = h / (r - ln(1 + r)),   r = G / L
/// ```
/// whatever the age. Static blocks (`h` = 0) are worth collecting at any price; blocks about to die
/// are worth waiting for.
#[inline]
pub fn gain_price(live: u32, capacity: u32, rate: f64) -> f64 {
    if live == 0 {
        return 0.0;
    }
    if live >= capacity {
        return f64::INFINITY;
    }
    let ratio = f64::from(capacity - live) / f64::from(live);
    // The series keeps the difference of near equals exact.
    let gain = if ratio < 1e-3 {
        ratio * ratio * (0.5 - ratio / 3.0)
    } else {
        ratio - ratio.ln_1p()
    };
    rate / gain
}

/// Below this number of segments all are scanned for each victim.
const FEW: u32 = 1024;

/// Best of some segments: its index, number and price. The first of equals.
fn best_of(
    rule: Rule,
    segments: impl Iterator<Item = u32>,
    look: &mut dyn FnMut(u32) -> Option<Candidate>,
) -> Option<(usize, u32, f64)> {
    let mut found = None;
    let mut limit = f64::INFINITY;
    for (at, segment) in segments.enumerate() {
        if let Some(price) = look(segment).and_then(|candidate| rule.price_below(&candidate, limit))
        {
            (found, limit) = (Some((at, segment, price)), price);
        }
    }
    found
}

/// Keeps the best candidates of the last scan, which bounds the average look-ups per victim.
#[derive(Debug, Default)]
pub struct Shortlist {
    best: Vec<(f64, u32)>,
    left: usize,
    random: u64,
}

impl Shortlist {
    /// An empty list; only [`Rule::Choices`] uses the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            best: Vec::new(),
            left: 0,
            random: seed | 1,
        }
    }

    /// Best victim of segments `0 .. segments` by `rule`, with its price. `look` returns a sealed
    /// segment that is not wholly live, or `None`.
    pub fn pick(
        &mut self,
        rule: Rule,
        segments: u32,
        look: &mut dyn FnMut(u32) -> Option<Candidate>,
    ) -> Option<(u32, f64)> {
        match rule {
            Rule::Choices(choices) => return self.draw(rule, segments, choices, look),
            Rule::Window(window) => self.oldest(segments, window as usize, look),
            _ if segments < FEW => {
                return best_of(rule, 0..segments, look)
                    .map(|(_, segment, price)| (segment, price));
            }
            _ => {}
        }
        if self.left > 0 {
            self.left -= 1;
            if let Some(found) = self.best_of_list(rule, look) {
                return Some(found);
            }
        }
        self.refill(rule, segments, look);
        self.best_of_list(rule, look)
    }

    fn best_of_list(
        &mut self,
        rule: Rule,
        look: &mut dyn FnMut(u32) -> Option<Candidate>,
    ) -> Option<(u32, f64)> {
        let (at, segment, price) =
            best_of(rule, self.best.iter().map(|(_, segment)| *segment), look)?;
        self.best.remove(at);
        Some((segment, price))
    }

    fn refill(
        &mut self,
        rule: Rule,
        segments: u32,
        look: &mut dyn FnMut(u32) -> Option<Candidate>,
    ) {
        self.best.clear();
        let victims = (segments / 2).isqrt() as usize;
        self.left = victims;
        let keep = 2 * victims + 16;
        let mut limit = f64::INFINITY;
        for segment in 0..segments {
            let Some(price) =
                look(segment).and_then(|candidate| rule.price_below(&candidate, limit))
            else {
                continue;
            };
            self.best.push((price, segment));
            if self.best.len() >= 4 * keep {
                limit = self.cut(keep);
            }
        }
        self.cut(keep);
    }

    fn oldest(
        &mut self,
        segments: u32,
        window: usize,
        look: &mut dyn FnMut(u32) -> Option<Candidate>,
    ) {
        self.best.clear();
        for segment in 0..segments {
            let Some(candidate) = look(segment) else {
                continue;
            };
            self.best.push((-f64::from(candidate.place.age), segment));
        }
        self.cut(window);
        self.left = 1;
    }

    /// Keeps the best `keep` candidates; returns the minimum price of the others.
    fn cut(&mut self, keep: usize) -> f64 {
        if self.best.len() <= keep {
            return f64::INFINITY;
        }
        let (_, limit, _) = self
            .best
            .select_nth_unstable_by(keep, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let limit = limit.0;
        self.best.truncate(keep);
        limit
    }

    fn draw(
        &mut self,
        rule: Rule,
        segments: u32,
        choices: u16,
        look: &mut dyn FnMut(u32) -> Option<Candidate>,
    ) -> Option<(u32, f64)> {
        let mut best: Option<(u32, f64)> = None;
        let mut seen = 0;
        // Free and open segments are drawn too; if most are, the search ends with a scan of all.
        for _ in 0..u32::from(choices) * 64 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let segment = ((u128::from(self.random) * u128::from(segments)) >> 64) as u32;
            let Some(candidate) = look(segment) else {
                continue;
            };
            let price = rule.price(&candidate);
            if best.is_none_or(|(_, least)| price < least) {
                best = Some((segment, price));
            }
            seen += 1;
            if seen == choices {
                return best;
            }
        }
        best.or_else(|| {
            (0..segments).find_map(|segment| {
                look(segment).map(|candidate| (segment, rule.price(&candidate)))
            })
        })
    }
}

#[cfg(test)]
mod tests;
