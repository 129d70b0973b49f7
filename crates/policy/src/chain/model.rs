//! Write amplification of a chain of groups, and the chain with the least.
//!
//! Time is the number of user block writes. Let `R(t)` be the blocks, per user write, that have
//! been in the chain for `t` and live: the writes that are not hot, by their survival, and what
//! group 0 passed on. A group cleaned first in, first out holds a block from one age to the next,
//! so with ages `0 = A0 < A1 < ... < Ak` at which blocks leave the groups
//! ```text
//! size of group i   = R(A[i-1]) (A[i] - A[i-1])        blocks, dead ones among them
//! moved on          = R(A[i])                          for each user write
//! live in it        = integral of R from A[i-1] to A[i]
//! ```
//! The tail has the remaining space and the remaining live blocks: `u` of it is live. If blocks die
//! there without regard to their age, a share `v` of its victims is live, with `u = (v - 1) / ln v`
//! ([`fifo_waf`] is `1 / (1 - v)`). Each block that enters it is thus moved `v / (1 - v)` times
//! more. It keeps at least half of the space: little is known of great ages, and if groups held
//! nearly all live blocks, the least error would leave the tail without garbage.

use super::GROUPS;
use super::lives::{AGES, Lives, edge, part};
use crate::analytic::fifo_waf;

/// The pool at the last survey, in blocks of sealed segments.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pool {
    /// Capacity.
    pub space: f64,
    /// Live blocks.
    pub live: f64,
}

/// Active groups.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// Ages at which blocks leave groups 1, 2, ...: one for each group but the hot one and the
    /// tail.
    pub ages: Vec<usize>,
    /// Age (its part) at which blocks leave group 0; 0: no such group.
    pub hot: usize,
    /// Size of each group but the tail, in blocks.
    pub blocks: [f64; GROUPS],
    /// Live share of the victims of each group.
    pub live_share: [f64; GROUPS],
    /// Write amplification.
    pub waf: f64,
    /// [`Layout::hot_age`] while there is no group for hot blocks.
    pub filter_age: u32,
}

impl Default for Layout {
    /// Initial state without knowledge: user writes and moved blocks.
    fn default() -> Self {
        Self {
            ages: Vec::new(),
            hot: 0,
            blocks: [0.0; GROUPS],
            live_share: [0.0; GROUPS],
            waf: f64::INFINITY,
            filter_age: 0,
        }
    }
}

impl Layout {
    /// Number of the last group.
    pub fn tail(&self) -> usize {
        self.ages.len() + 1
    }

    /// True if there is a group for hot blocks.
    pub fn has_hot(&self) -> bool {
        self.hot > 0
    }

    /// Age up to which a version died young, for the hot filter.
    pub fn hot_age(&self) -> u32 {
        if self.has_hot() {
            edge(self.hot) as u32
        } else {
            self.filter_age
        }
    }
}

/// Blocks that have been in the chain for the age of each part, and the integral over age up to
/// there.
struct Curve {
    alive: Vec<f64>,
    sum: Vec<f64>,
    /// Space of group 0, its live part, and the blocks it passes on.
    hot_blocks: f64,
    hot_live: f64,
    hot_passed: f64,
}

/// Inputs for the successive choices.
struct Model<'a> {
    pool: &'a Pool,
    segment: f64,
    hot_share: f64,
    hot: Vec<f64>,
    others: Vec<f64>,
}

/// Value of a curve over parts at an age.
fn at_age(curve: &[f64], age: f64) -> f64 {
    let at = part(age.min(f64::from(u32::MAX)) as u32).min(AGES - 1);
    let (low, high) = (edge(at), edge(at + 1));
    let share = ((age - low) / (high - low)).clamp(0.0, 1.0);
    curve[at] + (curve[at + 1] - curve[at]) * share
}

impl Model<'_> {
    fn curve(&self, hot: usize) -> Curve {
        let (mut alive, mut sum, mut total) =
            (Vec::with_capacity(AGES), Vec::with_capacity(AGES), 0.0);
        let (share, hot_age) = (self.hot_share, edge(hot));
        for at in 0..AGES {
            let now =
                (1.0 - share) * self.others[at] + share * at_age(&self.hot, hot_age + edge(at));
            if let Some(before) = alive.last() {
                total += (before + now) / 2.0 * (edge(at) - edge(at - 1));
            }
            alive.push(now);
            sum.push(total);
        }
        let hot_live: f64 = (0..hot)
            .map(|at| share * (self.hot[at] + self.hot[at + 1]) / 2.0 * (edge(at + 1) - edge(at)))
            .sum();
        let hot_passed = if hot == 0 { 0.0 } else { share * self.hot[hot] };
        Curve {
            alive,
            sum,
            hot_blocks: share * hot_age,
            hot_live,
            hot_passed,
        }
    }

    /// Layout of these ages, or `None` if it does not fit.
    fn layout(&self, curve: &Curve, hot: usize, ages: &[usize]) -> Option<Layout> {
        let mut layout = Layout {
            hot,
            ages: ages.to_vec(),
            ..Layout::default()
        };
        layout.blocks[0] = curve.hot_blocks;
        layout.live_share[0] = self.hot[hot];
        let (mut moved, mut from, mut taken) = (curve.hot_passed, 0, curve.hot_blocks);
        for (group, age) in (1..).zip(ages) {
            let size = curve.alive[from] * (edge(*age) - edge(from));
            layout.blocks[group] = size;
            layout.live_share[group] = curve.alive[*age] / curve.alive[from].max(1e-12);
            moved += curve.alive[*age];
            taken += size;
            from = *age;
        }
        layout.waf =
            1.0 + moved + self.tail(curve, from, taken, ages.len() + 1 + usize::from(hot > 0))?;
        Some(layout)
    }

    /// Moves of the tail for each user write.
    fn tail(&self, curve: &Curve, from: usize, taken: f64, groups: usize) -> Option<f64> {
        // Half of the open segment of each group is not written yet.
        let space = self.pool.space - taken - self.segment / 2.0 * groups as f64;
        let live = self.pool.live - curve.hot_live - curve.sum[from];
        if taken > self.pool.space / 2.0 || space < 2.0 * self.segment || live >= space {
            return None;
        }
        Some(curve.alive[from] * (fifo_waf(live / space) - 1.0))
    }

    fn waf(&self, curve: &Curve, hot: usize, ages: &[usize]) -> f64 {
        let (mut moved, mut from, mut taken) = (curve.hot_passed, 0, curve.hot_blocks);
        for age in ages {
            taken += curve.alive[from] * (edge(*age) - edge(from));
            moved += curve.alive[*age];
            from = *age;
        }
        self.tail(curve, from, taken, ages.len() + 1 + usize::from(hot > 0))
            .map_or(f64::INFINITY, |tail| 1.0 + moved + tail)
    }
}

/// Share of the write amplification that a further group must save.
const WORTH: f64 = 0.002;

/// Chain with the least write amplification, with at most `groups_most` groups other than the hot
/// one and the tail.
pub fn choose(
    lives: &Lives,
    pool: &Pool,
    segment: f64,
    groups_most: usize,
    now: &Layout,
) -> Layout {
    let model = Model {
        pool,
        segment,
        hot_share: lives.hot_share(),
        hot: lives.survival(true),
        others: lives.survival(false),
    };
    let least = part(segment.max(8.0) as u32);
    let most = part((pool.live * 4.0).min(f64::from(u32::MAX)) as u32).min(AGES - 1);
    let mut hot = now.hot;
    let (mut best, mut ages) = (f64::INFINITY, Vec::new());
    for _ in 0..3 {
        let curve = model.curve(hot);
        (ages, best) = best_ages(
            &model,
            &curve,
            hot,
            groups_most.saturating_sub(1),
            least..most,
        );
        let candidates = std::iter::once(0).chain(least..most);
        let better = candidates
            .map(|hot| (model.waf(&model.curve(hot), hot, &ages), hot))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        match better {
            Some((waf, found)) if waf < best - 1e-6 && found != hot => hot = found,
            _ => break,
        }
    }
    let found = if best.is_finite() {
        model.layout(&model.curve(hot), hot, &ages)
    } else {
        None
    };
    // Half of the time in which users write all the spare space.
    Layout {
        filter_age: ((pool.space - pool.live) / 2.0) as u32,
        ..found.unwrap_or_default()
    }
}

/// Best ages for a hot group: inserted one after the other where each saves most, then each moved
/// to its best position.
fn best_ages(
    model: &Model<'_>,
    curve: &Curve,
    hot: usize,
    most: usize,
    parts: std::ops::Range<usize>,
) -> (Vec<usize>, f64) {
    let (mut ages, mut best) = (Vec::new(), model.waf(curve, hot, &[]));
    while ages.len() < most {
        let mut tried: Vec<usize> = Vec::new();
        let mut found = f64::INFINITY;
        for age in parts.clone().filter(|age| !ages.contains(age)) {
            let mut with = ages.clone();
            with.push(age);
            with.sort_unstable();
            let waf = model.waf(curve, hot, &with);
            if waf < found {
                (tried, found) = (with, waf);
            }
        }
        for at in (0..tried.len()).cycle().take(3 * tried.len()) {
            let from = if at == 0 {
                parts.start
            } else {
                tried[at - 1] + 1
            };
            let to = tried.get(at + 1).copied().unwrap_or(parts.end);
            for age in from..to {
                let before = std::mem::replace(&mut tried[at], age);
                let waf = model.waf(curve, hot, &tried);
                if waf < found {
                    found = waf
                } else {
                    tried[at] = before
                }
            }
        }
        if found >= best - WORTH * best.min(1e9) {
            break;
        }
        (ages, best) = (tried, found);
    }
    (ages, best)
}

#[cfg(test)]
mod tests;
