//! From chances of death and the price of space to streams.

use super::lives::{AGES, Lives, age_bucket, edge};
use super::trail::{CELLS, UNKNOWN};

/// Plans: the age at which a segment is to be cleaned, in half octaves.
pub const PLANS: usize = 64;

/// Share of the counts that is kept from plan to plan.
const KEEP: f32 = 0.93;

/// The streams and which cell goes where.
pub struct Planner {
    streams_max: usize,
    /// Plan of each stream, rising.
    plans: Vec<u8>,
    stream_of: Vec<u8>,
    best: Vec<u8>,
    /// Cost of all that has the best plan `row`, if it is put into a stream with plan `column`.
    costs: Vec<f64>,
    garbage: Vec<f64>,
    /// TUNE
    pub planned: f64,
}

impl Planner {
    pub(super) fn new(streams_max: usize) -> Self {
        Self {
            streams_max: streams_max.max(1),
            plans: vec![0],
            stream_of: vec![0; CELLS * AGES],
            best: vec![0; CELLS * AGES],
            costs: vec![0.0; PLANS * PLANS],
            garbage: vec![0.0; PLANS * PLANS],
            planned: 0.0,
        }
    }

    /// TUNE
    pub fn dump(&self) {
        for from in 0..PLANS { let row = &self.costs[from * PLANS..][..PLANS]; let s: f64 = row.iter().copied().fold(f64::INFINITY, f64::min); if s.is_finite() && s > 0.0 { eprint!(" {from}:{s:.0}") } }
        eprintln!();
    }
    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.plans.len()
    }

    /// The plan of a stream.
    pub fn plan_of(&self, stream: u8) -> u8 {
        self.plans.get(usize::from(stream)).copied().unwrap_or(*self.plans.last().expect("one"))
    }

    /// The stream of a cell at an age.
    #[inline]
    pub fn stream(&self, cell: usize, age: usize) -> u8 {
        self.stream_of[cell * AGES + age]
    }

    pub(super) fn plan(&mut self, lives: &mut Lives, price: f64, open_cost: f64, live: u64) {
        lives.settle();
        self.costs.fill(0.0);
        self.garbage.fill(0.0);
        let longest = (age_bucket(u32::try_from(live.saturating_mul(64)).unwrap_or(u32::MAX)) + 1).min(PLANS - 1);
        let mut used = Vec::new();
        for mean in 0..32 {
            let cells = mean * 16..mean * 16 + 16;
            if !cells.clone().any(|cell| lives.is_used(cell)) {
                continue;
            }
            let row = lives.row(mean);
            for cell in cells {
                if !lives.is_used(cell) {
                    continue;
                }
                let chance = lives.cell(cell, &row);
                lives.chance[cell * AGES..][..AGES].copy_from_slice(&chance);
                self.weigh(lives, cell, &chance, price as f32, longest);
                used.push(cell);
            }
        }
        let unknown = lives.cell(UNKNOWN, &[0.0; AGES]);
        lives.chance[UNKNOWN * AGES..][..AGES].copy_from_slice(&unknown);
        self.weigh(lives, UNKNOWN, &unknown, price as f32, longest);
        used.push(UNKNOWN);
        let stream_of_plan = self.cut(price * open_cost * f64::from(lives.time));
        self.planned /= f64::from(lives.time);
        for cell in used {
            for age in 0..AGES {
                self.stream_of[cell * AGES + age] = stream_of_plan[usize::from(self.best[cell * AGES + age])];
            }
        }
        lives.fade(crate::learn::t(5, KEEP));
    }

    /// The best plan of a cell for each age, and what it would cost under each plan.
    fn weigh(&mut self, lives: &Lives, cell: usize, chance: &[f32; AGES], price: f32, longest: usize) {
        let mut total = [0.0f32; AGES + 1];
        for age in 0..AGES {
            total[age + 1] = total[age] + chance[age] * (edge(age + 1) - edge(age));
        }
        let until = |time: f32| {
            let bucket = age_bucket(time as u32);
            (bucket, total[bucket] + chance[bucket] * (time - edge(bucket)))
        };
        let mut worth = [0.0f32; AGES + 1];
        let top = (longest + 2).min(AGES - 1);
        worth[top + 1] = memoryless(price / chance[top]);
        for age in (0..=top).rev() {
            let from = if age == 0 { 0.0 } else { edge(age) * 1.2 };
            let dead_before = if age == 0 { 0.0 } else { until(from).1 };
            let flow = f64::from(lives.flow(cell, age));
            let mut ends = [(0.0f32, 0.0f32, 0usize); PLANS];
            let (mut garbage, mut time, mut alive) = (0.0f32, 0.0f32, 1.0f32);
            let mut least = (f32::INFINITY, 0);
            for (plan, found) in ends.iter_mut().enumerate().take(longest + 1) {
                let end = edge(plan);
                let (bucket, dead) = until((from + end).max(1.0));
                let left = (dead_before - dead).exp().min(alive);
                garbage += (end - time) * (1.0 - 0.5 * (left + alive));
                (time, alive) = (end, left);
                *found = (garbage, left, bucket.min(top + 1));
                // Still in the same bucket of ages: what comes after is what comes now.
                let cost = match bucket <= age {
                    true => (price * garbage + left) / (1.0 - left).max(1e-9),
                    false => price * garbage + left * (1.0 + worth[bucket.min(top + 1)]),
                };
                if cost < least.0 {
                    least = (cost, plan);
                }
            }
            worth[age] = least.0;
            self.best[cell * AGES + age] = least.1 as u8;
            let mut costs = [0.0f32; PLANS];
            let mut holds = [0.0f32; PLANS];
            for plan in 0..=longest {
                let (garbage, left, bucket) = ends[plan];
                costs[plan] = price * garbage + left * (1.0 + worth[bucket.max(age)]);
                holds[plan] = garbage;
            }
            if flow > 0.0 {
                let row = &mut self.costs[least.1 * PLANS..][..PLANS];
                for (plan, sum) in row.iter_mut().enumerate() {
                    *sum += flow * f64::from(costs[plan.min(longest)]);
                }
                let row = &mut self.garbage[least.1 * PLANS..][..PLANS];
                for (plan, sum) in row.iter_mut().enumerate() {
                    *sum += flow * f64::from(holds[plan.min(longest)]);
                }
            }
        }
        for age in top + 1..AGES {
            self.best[cell * AGES + age] = self.best[cell * AGES + top];
        }
    }

    /// Cuts the best plans into streams, so that the sum of costs and of what open segments cost is least. Returns the stream of each plan.
    fn cut(&mut self, open_cost: f64) -> [u8; PLANS] {
        // `group[from][to]`: cheapest common plan of best plans `from .. to`.
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
        let step = best[1][PLANS] * f64::from(crate::learn::t(6, 0.0005));
        let total = |streams: usize| best[streams][PLANS] + (open_cost + step) * streams as f64;
        let mut streams = (1..=most).min_by(|a, b| total(*a).total_cmp(&total(*b))).expect("one");
        self.planned = 0.0;
        let mut stream_of_plan = [0; PLANS];
        let mut to = PLANS;
        self.plans = vec![0; streams];
        while streams > 0 {
            let from = cut[streams][to];
            self.plans[streams - 1] = group[from * (PLANS + 1) + to].1;
            stream_of_plan[from..to].fill(streams as u8 - 1);
            for plan in from..to { self.planned += self.garbage[plan * PLANS + usize::from(self.plans[streams - 1])]; }
            (to, streams) = (from, streams - 1);
        }
        stream_of_plan
    }
}

/// Cost of a life without memory whose end is at chance 1 per time, at the price `y`.
fn memoryless(y: f32) -> f32 {
    let y = y.max(1e-9);
    let (mut low, mut high) = (1e-4f32, 40.0f32);
    for _ in 0..30 {
        let middle = 0.5 * (low + high);
        if y * (middle.exp_m1() - middle) < 1.0 { low = middle } else { high = middle }
    }
    let left = (-low).exp();
    y * (low / (1.0 - left) - 1.0) + left / (1.0 - left)
}
