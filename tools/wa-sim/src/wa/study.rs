//! The graph and the tables of the 2017 source, from simulation.
//!
//! The source's write block is 1 MiB with one block of metadata: 255 data blocks and a header,
//! which counts as written with every segment and as part of the space. Free space is a
//! share of all space.

use super::log::{Shape, Space};
use super::operation::Operation;
use super::run::{Outcome, PlacementKind, Plan, Policy, run};
use super::workload::{Pattern, Workload, fill};
use serde::Serialize;

/// A pool of the source's kind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StudyPool {
    /// Number of addressable segments of 255 blocks.
    pub segments: u32,
    /// Seed.
    pub seed: u64,
}

/// Number of data blocks in a segment of the source.
pub const DATA: u32 = 255;
/// Its header, in blocks.
pub const HEADER: u32 = 1;
/// Number of windows in a pass.
pub const WINDOWS: u32 = 50;
/// Blocks written for each block of data, including the header of each segment.
const WITH_HEADER: f64 = (DATA + HEADER) as f64 / DATA as f64;

impl StudyPool {
    /// Its shape with this share of free space.
    pub fn shape(self, spare: f64) -> Shape {
        let blocks = self.segments * DATA;
        Shape {
            blocks,
            live_blocks: blocks,
            segment_blocks: DATA,
            header_blocks: HEADER,
            spare,
            space: Space::Strict,
        }
    }

    /// Runs a filled pool with overwrites of `passes` times its blocks; windows of a fiftieth of a
    /// pass, steady state in the second half.
    pub fn run(
        self,
        policy: Policy,
        spare: f64,
        workload: Workload,
        passes: f64,
        tell: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Outcome, String> {
        let shape = self.shape(spare);
        let blocks = u64::from(shape.blocks);
        let overwrites = (blocks as f64 * passes) as u64;
        let plan = Plan {
            shape,
            seed: self.seed,
            window: (blocks / u64::from(WINDOWS)).max(1),
            steady_after: blocks + overwrites / 2,
            idle_free: 0,
        };
        let operations = || {
            let load = workload.stream(shape.blocks, self.seed);
            fill(shape.blocks).chain(writes_only(load, overwrites))
        };
        let mut outcome = run(policy, &plan, operations, tell)?;
        outcome
            .windows
            .iter_mut()
            .chain([&mut outcome.steady, &mut outcome.whole])
            .for_each(|waf| *waf *= WITH_HEADER);
        Ok(outcome)
    }
}

/// Passes `count` writes, and the trims between them.
fn writes_only(
    load: impl Iterator<Item = Operation>,
    writes: u64,
) -> impl Iterator<Item = Operation> {
    let mut left = writes;
    load.take_while(move |operation| {
        let going = left > 0;
        left -= u64::from(going && matches!(operation, Operation::Write { .. }));
        going
    })
}

/// A curve of graph 1.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curve {
    /// Free share of all space.
    pub spare: f64,
    /// Same, in millionths.
    pub spare_ppm: u64,
    /// Write amplification in windows of a fiftieth of a pass, from the end of the fill on.
    pub windows: Vec<f64>,
    /// Write amplification in the steady state.
    pub steady: f64,
    /// First hump: windows after the fill, and its height; `None` if none exceeds the steady state.
    pub first_hump: Option<(usize, f64)>,
    /// Second hump.
    pub second_hump: Option<(usize, f64)>,
}

/// Graph 1: write amplification over time for a free share, under uniform overwrites of a full
/// pool, greedy, one stream.
///
/// # Errors
/// If the pool is too small for the share, or the run was stopped.
pub fn curve(
    pool: StudyPool,
    spare: f64,
    passes: f64,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Curve, String> {
    let outcome = pool.run(
        Policy::of(PlacementKind::Mixed),
        spare,
        Pattern::Uniform.into(),
        passes,
        tell,
    )?;
    let windows: Vec<f64> =
        outcome.windows[(WINDOWS as usize).min(outcome.windows.len())..].to_vec();
    let humps = humps(&windows, outcome.steady);
    Ok(Curve {
        spare,
        spare_ppm: ppm(spare),
        steady: outcome.steady,
        first_hump: humps.first().copied(),
        second_hump: humps.get(1).copied(),
        windows,
    })
}

fn ppm(share: f64) -> u64 {
    (share * 1e6).round() as u64
}

/// Peaks above the steady state with a trough between them; a peak counts if the curve then falls
/// by a hundredth of it.
fn humps(windows: &[f64], steady: f64) -> Vec<(usize, f64)> {
    let mut found = Vec::new();
    let (mut peak, mut trough) = ((0, 0.0f64), f64::INFINITY);
    for (at, waf) in windows.iter().copied().enumerate() {
        match peak.1 > 0.0 {
            // On the way up, or at the top.
            true if waf > peak.1 => peak = (at, waf),
            true if waf < peak.1 * 0.99 => {
                if peak.1 > steady * 1.01 {
                    found.push(peak);
                }
                (peak, trough) = ((0, 0.0), waf);
            }
            true => {}
            // On the way down, until it rises by as much again.
            false if waf > trough * 1.01 || trough.is_infinite() => peak = (at, waf),
            false => trough = trough.min(waf),
        }
    }
    found
}

/// Tables 1 and 2: emptiness by age under uniform overwrites.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Emptiness {
    /// Free share of all space.
    pub spare: f64,
    /// Same, in millionths.
    pub spare_ppm: u64,
    /// Share of the live blocks that are never overwritten.
    pub static_share: f64,
    /// Mean emptiness of written segments, without static ones, by age in twentieths, youngest
    /// first.
    pub by_age: Vec<f64>,
    /// Mean emptiness of all of them.
    pub average: f64,
    /// Emptiness of the oldest of them.
    pub oldest: f64,
    /// Emptiness of victims: the gain of cleaning each.
    pub victims: f64,
    /// The source's average and oldest: free share over dynamic share, and twice that.
    pub source: (f64, f64),
    /// Same, with the free space counted as part of the dynamic space, which it is.
    pub linear: (f64, f64),
    /// Steady write amplification.
    pub steady: f64,
}

/// Tables 1 (`static_share` = 0) and 2. Cleaning is greedy. (The source harvests the oldest block,
/// which under uniform overwrites is about the emptiest.)
///
/// # Errors
/// As [`curve`].
pub fn emptiness(
    pool: StudyPool,
    spare: f64,
    static_share: f64,
    passes: f64,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Emptiness, String> {
    let load = Workload {
        static_share,
        ..Pattern::Uniform.into()
    };
    let policy = Policy::of(PlacementKind::Mixed);
    let outcome = pool.run(policy, spare, load, passes, tell)?;
    // Static segments are the oldest and full: their twentieths are left out.
    let by_age = match static_share > 0.0 {
        true => outcome.dynamic_emptiness.clone(),
        false => outcome.emptiness.clone(),
    };
    let average = by_age.iter().sum::<f64>() / by_age.len().max(1) as f64;
    let dynamic = 1.0 - static_share;
    let (source, linear) = (
        (spare / dynamic).min(1.0),
        spare / (spare + (1.0 - spare) * dynamic),
    );
    let steady = outcome.steady / WITH_HEADER;
    let oldest = by_age.last().copied().unwrap_or(0.0);
    Ok(Emptiness {
        spare,
        spare_ppm: ppm(spare),
        static_share,
        by_age,
        average,
        oldest,
        victims: 1.0 / steady,
        source: (source, (2.0 * source).min(1.0)),
        linear: (linear, (2.0 * linear).min(1.0)),
        steady: outcome.steady,
    })
}

/// A line of table 3.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Step {
    /// The addition.
    pub what: String,
    /// The source's factor on the excess over one, `None` for the base.
    pub source_factor: Option<f64>,
    /// The source's write amplification with it.
    pub source: f64,
    /// Simulated with one stream and greedy cleaning.
    pub one_stream: f64,
    /// Simulated with placement by learned lifetimes.
    pub learned: f64,
    /// Resulting factor.
    pub factor: Option<f64>,
    /// Share of all space that trims left empty, in addition to the free space, at the end of the
    /// run with learned lifetimes.
    pub empty: f64,
}

/// Table 3: from uniform overwrites with 10 % free to static space, to data that is soon
/// overwritten, to trims. The journal's share of writes (80 %) and the trims (5 % of all space
/// empty) are the source's. Their targets are assumed: a hot fiftieth of the dynamic blocks, trims
/// of any of them. In one stream, short-lived data takes the free space from the rest, and write
/// amplification rises; in a separate stream it behaves as in the source.
///
/// # Errors
/// As [`curve`].
pub fn decomposition(
    pool: StudyPool,
    passes: f64,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Step>, String> {
    let hot = Pattern::HotCold {
        writes: 0.8,
        blocks: 0.02,
    };
    let (still, free, trimmed) = (0.62, 0.10, 0.05);
    let soon = Workload {
        static_share: still,
        ..hot.into()
    };
    let trims = soon
        .emptied(trimmed / ((1.0 - free) * (1.0 - still)))
        .expect("hot and cold blocks have two rates");
    let steps: [(&str, Workload, Option<f64>, f64); 4] = [
        (
            "baseline: uniform overwrites, 1 MiB write blocks, 10 % free",
            Pattern::Uniform.into(),
            None,
            5.65,
        ),
        (
            "62 % static",
            Workload {
                static_share: still,
                ..Pattern::Uniform.into()
            },
            Some(0.43),
            3.00,
        ),
        (
            "80 % of writes soon overwritten (journal, metadata)",
            soon,
            Some(0.20),
            1.40,
        ),
        ("trims: 5 % of all space more", trims, Some(0.50), 1.20),
    ];
    let mut lines: Vec<Step> = Vec::new();
    for (what, load, source_factor, source) in steps {
        let mut outcome =
            |kind: PlacementKind| pool.run(Policy::of(kind), free, load, passes, tell);
        let (one_stream, ours) = (
            outcome(PlacementKind::Mixed)?.steady,
            outcome(PlacementKind::Learned)?,
        );
        let (learned, empty) = (ours.steady, ours.empty_end * (1.0 - free));
        let factor = lines
            .last()
            .map(|before| (learned - 1.0) / (before.learned - 1.0));
        lines.push(Step {
            what: what.into(),
            source_factor,
            source,
            one_stream,
            learned,
            factor,
            empty,
        });
    }
    Ok(lines)
}

/// Bursty load: cleaning on demand, or in the pauses.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Burst {
    /// Number of free segments that pauses clean up to; 0: on demand.
    pub idle_free: u32,
    /// Write amplification in the steady state, headers included.
    pub steady: f64,
    /// Blocks moved while users waited, for each block that they wrote, in the steady state.
    pub in_the_way: f64,
    /// Maximum number of blocks moved before one write, in the steady state.
    pub longest_wait: u32,
}

impl Burst {
    /// Figures of a run with that goal of free segments; `with_headers`: blocks written for each
    /// block of data.
    pub fn of(idle_free: u32, outcome: &Outcome, with_headers: f64) -> Self {
        let counts = &outcome.steady_counts;
        let in_the_way = (counts.moved - counts.moved_idle) as f64 / counts.written.max(1) as f64;
        Self {
            idle_free,
            steady: outcome.steady * with_headers,
            in_the_way,
            longest_wait: counts.longest_wait,
        }
    }

    /// Description of the cleaning mode.
    pub fn name(&self) -> String {
        if self.idle_free == 0 {
            "on demand".to_owned()
        } else {
            format!("in pauses up to {} free segments", self.idle_free)
        }
    }
}

/// Number of overwrites of the whole space in [`bursts`].
pub const BURST_PASSES: u64 = 8;

/// Runs bursts of `burst` writes with pauses in which as many blocks could be moved, `rounds`
/// times; with each goal of free segments.
///
/// # Errors
/// As [`curve`].
pub fn bursts(
    pool: StudyPool,
    policy: Policy,
    spare: f64,
    burst: u32,
    pattern: Pattern,
    goals: &[u32],
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Burst>, String> {
    let shape = pool.shape(spare);
    let overwrites = u64::from(shape.blocks) * BURST_PASSES;
    let mut lines = Vec::new();
    for goal in goals {
        let plan = Plan {
            shape,
            seed: pool.seed,
            window: u64::MAX,
            steady_after: u64::from(shape.blocks) + overwrites / 2,
            idle_free: *goal,
        };
        let operations = || {
            let mut load = writes_only(
                Workload::from(pattern).stream(shape.blocks, pool.seed),
                overwrites,
            );
            let mut left = burst;
            let bursty = std::iter::from_fn(move || {
                if left == 0 {
                    left = burst;
                    return Some(Operation::Pause {
                        blocks: burst.saturating_mul(8),
                    });
                }
                left -= 1;
                load.next()
            });
            fill(shape.blocks).chain(bursty)
        };
        let outcome = run(policy, &plan, operations, tell)?;
        lines.push(Burst::of(*goal, &outcome, WITH_HEADER));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests;
