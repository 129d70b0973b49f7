//! Plan: from chances of death and the price of space to streams.
//!
//! For each cell and age the best plan is the cleaning age `T` of a segment that minimises `J` (see
//! [`crate::learn`]). It is found from the greatest age downwards, because the cost after a move is
//! then known. A plan that ends within the age bucket in which it began (half an octave is long
//! compared with the lifetimes of cold segments) is followed by itself. Its cost is that of
//! repeating it until the block dies: `(p G + S) / (1 - S)`. Without that, the guess for ages never
//! seen would leak down through all buckets.

use super::lives::{AGES, Lives, age_bucket, edge};
use super::trail::{CELLS, ROWS, UNKNOWN};

/// Number of plans: cleaning ages of a segment, in half octaves.
pub const PLANS: usize = 64;

/// Share of the counts kept from plan to plan.
const KEEP: f32 = 0.97;
/// Share of all costs that a further stream must save.
const WORTH_A_STREAM: f64 = 0.0005;
/// Share of all costs that more than one stream must save. With identical blocks, chance alone
/// makes some cells look longer-lived, and the best cut seems to save some tenths of a percent. Its
/// cost is that blocks written together, which often die together, are separated. If lifetimes
/// differ, the first cut saves some percent. (A higher limit slows learning when a load begins to
/// differ.)
const WORTH_SEPARATING: f64 = 0.005;
/// Half octaves by which plans may exceed the time of writing all live blocks.
const LONGEST: usize = 12;

/// Streams, and the assignment of cells to them.
pub struct Planner {
    streams_max: usize,
    /// Plan of each stream, ascending.
    plans: Vec<u8>,
    stream_of: Vec<u8>,
    best: Vec<u8>,
    /// Cost of all blocks whose best plan is `row`, in a stream with plan `column`.
    costs: Vec<f64>,
    ends: Vec<(End, [End; PLANS])>,
}

/// A law of lifetimes: what is left at the edges of ages.
struct Law {
    /// Cumulative chances up to the edge.
    total: [f32; AGES + 1],
    /// Share that reaches the edge.
    left: [f32; AGES + 1],
}

impl Law {
    fn new(chance: &[f32; AGES]) -> Self {
        let (mut total, mut left) = ([0.0f32; AGES + 1], [1.0f32; AGES + 1]);
        for age in 0..AGES {
            total[age + 1] = total[age] + chance[age] * (edge(age + 1) - edge(age));
            left[age + 1] = (-total[age + 1]).exp();
        }
        Self { total, left }
    }

    /// Share that reaches a time.
    fn at(&self, end: End) -> f32 {
        self.left[end.bucket] + (self.left[end.bucket + 1] - self.left[end.bucket]) * end.within
    }

    /// Chances summed up to a time.
    fn sum(&self, end: End) -> f32 {
        self.total[end.bucket] + (self.total[end.bucket + 1] - self.total[end.bucket]) * end.within
    }
}

/// A time: its bucket of ages, and how far into it.
#[derive(Clone, Copy, Default)]
struct End {
    bucket: usize,
    within: f32,
}

impl End {
    fn of(time: f32) -> Self {
        let bucket = age_bucket(time as u32);
        let (begin, end) = (edge(bucket), edge(bucket + 1));
        Self {
            bucket,
            within: ((time - begin) / (end - begin)).clamp(0.0, 1.0),
        }
    }
}

/// Start and ends of the plans that begin at an age.
fn ends() -> Vec<(End, [End; PLANS])> {
    let from = |age: usize| if age == 0 { 0.0 } else { edge(age) * 1.2 };
    (0..AGES)
        .map(|age| {
            (
                End::of(from(age)),
                std::array::from_fn(|plan| End::of(from(age) + edge(plan))),
            )
        })
        .collect()
}

impl Planner {
    pub(super) fn new(streams_max: usize) -> Self {
        Self {
            streams_max: streams_max.max(1),
            plans: vec![0],
            stream_of: vec![0; CELLS * AGES],
            best: vec![0; CELLS * AGES],
            costs: vec![0.0; PLANS * PLANS],
            ends: ends(),
        }
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.plans.len()
    }

    /// Plan of a stream; of the last one if there are fewer now.
    pub fn plan_of(&self, stream: u8) -> u8 {
        self.plans[usize::from(stream).min(self.plans.len() - 1)]
    }

    /// The stream of a cell at an age.
    #[inline]
    pub fn stream(&self, cell: usize, age: usize) -> u8 {
        self.stream_of[cell * AGES + age]
    }

    pub(super) fn plan(&mut self, lives: &mut Lives, price: f64, open_cost: f64, live: u64) {
        lives.settle();
        self.costs.fill(0.0);
        let all = age_bucket(u32::try_from(live).unwrap_or(u32::MAX));
        let longest = (all + LONGEST).min(PLANS - 4);
        let mut planned = Vec::new();
        for mean in 0..ROWS {
            let cells = mean * ROWS..(mean + 1) * ROWS;
            if !cells.clone().any(|cell| lives.is_used(cell)) {
                continue;
            }
            let row = lives.row(mean);
            // Cells not in use yet are planned like similar ones.
            let idle = cells.clone().find(|cell| !lives.is_used(*cell));
            if let Some(idle) = idle {
                self.weigh(lives, idle, &row, price as f32, longest);
            }
            for cell in cells {
                match idle {
                    Some(idle) if !lives.is_used(cell) => self
                        .best
                        .copy_within(idle * AGES..(idle + 1) * AGES, cell * AGES),
                    _ => self.weigh(lives, cell, &lives.cell(cell, &row), price as f32, longest),
                }
                planned.push(cell);
            }
        }
        let unknown = lives.cell(UNKNOWN, &[0.0; AGES]);
        self.weigh(lives, UNKNOWN, &unknown, price as f32, longest);
        planned.push(UNKNOWN);
        let stream_of_plan = self.cut(price * open_cost * f64::from(lives.time));
        for cell in planned {
            for at in cell * AGES..(cell + 1) * AGES {
                self.stream_of[at] = stream_of_plan[usize::from(self.best[at])];
            }
        }
        lives.fade(KEEP);
    }

    /// Best plan of a cell for each age; adds the cost of the cell's blocks under each plan.
    fn weigh(
        &mut self,
        lives: &Lives,
        cell: usize,
        chance: &[f32; AGES],
        price: f32,
        longest: usize,
    ) {
        let law = Law::new(chance);
        let top = longest + 2;
        let mut worth = [0.0f32; AGES + 1];
        worth[top + 1] = memoryless(price / chance[top]);
        // For each plan: garbage held, share left, bucket of the end.
        let mut found = [(0.0f32, 0.0f32, 0usize); PLANS];
        for age in (0..=top).rev() {
            let (begin, plans) = &self.ends[age];
            let before = if age == 0 { 1.0 } else { law.at(*begin) };
            let per_alive = before.recip();
            let flow = f64::from(lives.flow(cell, age));
            let (mut garbage, mut time, mut alive) = (0.0f32, 0.0f32, 1.0f32);
            let mut least = (f32::INFINITY, 0);
            for (plan, found) in found.iter_mut().enumerate().take(longest + 1) {
                let end = edge(plan);
                let bucket = plans[plan].bucket;
                let left = match before > 1e-20 {
                    true => law.at(plans[plan]) * per_alive,
                    // Hardly any block lives so long; those that do are no less certain to die.
                    false => (law.sum(*begin) - law.sum(plans[plan])).exp(),
                };
                let left = left.min(alive);
                garbage += (end - time) * (1.0 - 0.5 * (left + alive));
                (time, alive) = (end, left);
                *found = (garbage, left, bucket.min(top + 1));
                let cost = match bucket <= age {
                    true => (price * garbage + left) / (1.0 - left).max(1e-9),
                    false => price * garbage + left * (1.0 + worth[bucket.min(top + 1)]),
                };
                if cost < least.0 {
                    least = (cost, plan);
                } else if flow == 0.0 && price * garbage >= least.0 {
                    // Longer plans hold no less garbage, and their cost does not matter.
                    break;
                }
            }
            worth[age] = least.0;
            self.best[cell * AGES + age] = least.1 as u8;
            if flow > 0.0 {
                let row = &mut self.costs[least.1 * PLANS..][..PLANS];
                for (plan, sum) in row.iter_mut().enumerate() {
                    let (garbage, left, bucket) = found[plan.min(longest)];
                    *sum +=
                        flow * f64::from(price * garbage + left * (1.0 + worth[bucket.max(age)]));
                }
            }
        }
        for age in top + 1..AGES {
            self.best[cell * AGES + age] = self.best[cell * AGES + top];
        }
    }

    /// Cuts the best plans into streams, so that the sum of costs and of the cost of open segments
    /// is least. Returns the stream of each plan.
    fn cut(&mut self, open_cost: f64) -> [u8; PLANS] {
        let group = self.groups();
        let most = self.streams_max;
        let mut best = vec![[f64::INFINITY; PLANS + 1]; most + 1];
        let mut cut = vec![[0usize; PLANS + 1]; most + 1];
        best[0][0] = 0.0;
        for streams in 1..=most {
            for to in 1..=PLANS {
                for from in 0..to {
                    let cost = best[streams - 1][from] + group[from * (PLANS + 1) + to].0;
                    if cost < best[streams][to] {
                        (best[streams][to], cut[streams][to]) = (cost, from);
                    }
                }
            }
        }
        let step = open_cost + best[1][PLANS] * WORTH_A_STREAM;
        let total = |streams: usize| best[streams][PLANS] + step * streams as f64;
        let mut streams = (1..=most)
            .min_by(|a, b| total(*a).total_cmp(&total(*b)))
            .expect("at least one");
        if open_cost <= 0.0 {
            // The unwritten part of open segments is free here, and so are deaths in them: more
            // streams are always better, whatever they separate.
            streams = most;
        } else if total(streams) > total(1) - best[1][PLANS] * WORTH_SEPARATING {
            streams = 1;
        }
        let mut stream_of_plan = [0; PLANS];
        let mut to = PLANS;
        self.plans = vec![0; streams];
        while streams > 0 {
            let from = cut[streams][to];
            self.plans[streams - 1] = group[from * (PLANS + 1) + to].1;
            stream_of_plan[from..to].fill(streams as u8 - 1);
            (to, streams) = (from, streams - 1);
        }
        stream_of_plan
    }

    /// `[from][to]`: cost of the cheapest common plan of best plans `from .. to`, and that plan.
    fn groups(&self) -> Vec<(f64, u8)> {
        let mut group = vec![(0.0f64, 0u8); PLANS * (PLANS + 1)];
        for from in 0..PLANS {
            let mut sums = [0.0f64; PLANS];
            for to in from + 1..=PLANS {
                let row = &self.costs[(to - 1) * PLANS..][..PLANS];
                let mut least = (f64::INFINITY, 0);
                for (plan, sum) in sums.iter_mut().enumerate() {
                    *sum += row[plan];
                    if *sum < least.0 {
                        least = (*sum, plan);
                    }
                }
                group[from * (PLANS + 1) + to] = (least.0, least.1 as u8);
            }
        }
        group
    }
}

/// Cost of a memoryless lifetime whose chance of death is 1 per time, at the price `y`.
fn memoryless(y: f32) -> f32 {
    let y = y.max(1e-9);
    let (mut low, mut high) = (1e-4f32, 40.0f32);
    for _ in 0..30 {
        let middle = 0.5 * (low + high);
        if y * (middle.exp_m1() - middle) < 1.0 {
            low = middle
        } else {
            high = middle
        }
    }
    let left = (-low).exp();
    y * (low / (1.0 - left) - 1.0) + left / (1.0 - left)
}

#[cfg(test)]
mod tests;
