//! Runs: a pool, a policy, operations; figures over time and in the steady state.

use super::log::{Counts, GROUP, Log, Shape, Space, When};
use super::operation::Operation;
use super::oracle::{Oracle, deaths};
use serde::Serialize;
pub use windrow_policy::kind::{PlacementKind, Policy};
use windrow_policy::learn::{Learned, LearnedOptions};
use windrow_policy::place::{
    Chain, Clusters, Fading, Generations, Hotness, Invalidation, Mixed, Placement, Separate,
};
use windrow_policy::select::Rule;

/// Measurements of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// Shape of the pool.
    pub shape: Shape,
    /// Seed for random choices of policies.
    pub seed: u64,
    /// Number of user writes in a window.
    pub window: u64,
    /// Number of user writes before the steady state.
    pub steady_after: u64,
    /// Number of free segments up to which pauses clean; 0: only on demand.
    pub idle_free: u32,
}

/// Results.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Write amplification of each window.
    pub windows: Vec<f64>,
    /// Write amplification from `steady_after` on.
    pub steady: f64,
    /// Write amplification of the whole run.
    pub whole: f64,
    /// Counts of the whole run.
    pub counts: Counts,
    /// Counts from `steady_after` on.
    pub steady_counts: Counts,
    /// Share of victims by emptiness, in twentieths, in the steady state.
    pub victims: Vec<f64>,
    /// Mean emptiness of sealed segments by age at the end, in twentieths of their number, youngest
    /// first.
    pub emptiness: Vec<f64>,
    /// Same for segments written since the steady state began, which excludes static data.
    pub dynamic_emptiness: Vec<f64>,
    /// Streams in use at the end.
    pub streams: usize,
    /// Bytes of all tables for each block, including the placement's.
    pub bytes_per_block: f64,
    /// Share of the addressable blocks that are empty at the end: trimmed, or never written.
    pub empty_end: f64,
    /// Maximum lag of members behind the requests, in blocks; 0 for operations without times
    /// ([`Operation::Arrival`]).
    pub behind_blocks: u64,
}

/// Memory of a run with this number of user blocks written, including the fill: tables for each
/// block, and the future for the oracle.
pub fn memory_bytes(policy: &Policy, shape: &Shape, written: u64) -> u64 {
    let (blocks, segments) = (u64::from(shape.blocks), u64::from(shape.segments()));
    let slots = segments.saturating_mul(u64::from(shape.segment_blocks));
    // The writes in order, while their deaths are computed; the first vector grows by doubling.
    let future = if policy.placement == PlacementKind::Oracle {
        written.saturating_mul(12)
    } else {
        0
    };
    let tables = blocks * (4 + u64::from(policy.placement.bytes_per_block()))
        + segments * 80
        + u64::from(shape.segment_blocks) * 12;
    slots
        .saturating_mul(4)
        .saturating_add(tables)
        .saturating_add(future)
}

/// Runs a policy. `operations` is iterated once, twice for the oracle. `tell` is called
/// periodically with the number of user writes done, and may stop the run by returning false.
///
/// # Errors
/// If the pool cannot be cleaned, or the run was stopped.
pub fn run<I>(
    policy: Policy,
    plan: &Plan,
    operations: impl Fn() -> I,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Outcome, String>
where
    I: Iterator<Item = Operation>,
{
    run_with_checkpoints(policy, plan, When::Never, operations, tell)
}

/// As [`run`], with checkpoints (see [`Log::set_checkpoints`]).
///
/// # Errors
/// As [`run`].
pub fn run_with_checkpoints<I>(
    policy: Policy,
    plan: &Plan,
    checkpoints: When,
    operations: impl Fn() -> I,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Outcome, String>
where
    I: Iterator<Item = Operation>,
{
    let (blocks, segments, streams) = (plan.shape.blocks, plan.shape.segments(), policy.streams);
    let mut outcome = match policy.placement {
        PlacementKind::Mixed => drive((policy.rule, checkpoints), plan, Mixed, operations(), tell),
        PlacementKind::Separate => drive(
            (policy.rule, checkpoints),
            plan,
            Separate,
            operations(),
            tell,
        ),
        PlacementKind::Clusters => drive(
            (policy.rule, checkpoints),
            plan,
            Clusters::new(blocks, streams),
            operations(),
            tell,
        ),
        PlacementKind::Hotness => drive(
            (policy.rule, checkpoints),
            plan,
            Hotness::new(blocks, segments, streams),
            operations(),
            tell,
        ),
        PlacementKind::Fading => drive(
            (policy.rule, checkpoints),
            plan,
            Fading::new(blocks, streams),
            operations(),
            tell,
        ),
        PlacementKind::Invalidation => drive(
            (policy.rule, checkpoints),
            plan,
            Invalidation::new(blocks),
            operations(),
            tell,
        ),
        PlacementKind::Generations => drive(
            (policy.rule, checkpoints),
            plan,
            Generations::new(streams),
            operations(),
            tell,
        ),
        PlacementKind::Chain => drive(
            (policy.rule, checkpoints),
            plan,
            Chain::new(blocks, plan.shape.segment_blocks, streams),
            operations(),
            tell,
        ),
        PlacementKind::Learned => {
            let open_cost = if plan.shape.space == Space::Strict {
                0.5
            } else {
                0.0
            };
            let options = LearnedOptions {
                streams,
                segment_blocks: plan.shape.segment_blocks,
                open_cost,
            };
            drive(
                (policy.rule, checkpoints),
                plan,
                Learned::new(blocks, options),
                operations(),
                tell,
            )
        }
        PlacementKind::Oracle => {
            let mut writes = Vec::new();
            for operation in operations() {
                if let Operation::Write { block, count } = operation {
                    writes.extend(block..block + count);
                }
            }
            let oracle = Oracle::new(
                blocks,
                deaths(blocks, &writes),
                plan.shape.segment_blocks,
                streams,
            );
            drive((policy.rule, checkpoints), plan, oracle, operations(), tell)
        }
    }?;
    // SFS also keeps two sums of 8 bytes for each segment.
    let of_segments = if policy.placement == PlacementKind::Hotness {
        16.0 * f64::from(segments) / f64::from(blocks.max(1))
    } else {
        0.0
    };
    outcome.bytes_per_block += f64::from(policy.placement.bytes_per_block()) + of_segments;
    Ok(outcome)
}

/// Number of user writes between two calls of `tell`.
const TELL: u64 = 1 << 20;

/// Writes that wait until the group is full.
struct Group {
    blocks: Vec<u32>,
    /// Number of blocks written or waiting.
    written: u64,
}

impl Group {
    #[inline]
    fn add<P: Placement>(&mut self, log: &mut Log<P>, block: u32, count: u32) {
        self.written += u64::from(count);
        for block in block..block + count {
            self.blocks.push(block);
            if self.blocks.len() == GROUP {
                self.flush(log);
            }
        }
    }

    fn flush<'a, P: Placement>(&mut self, log: &'a mut Log<P>) -> &'a mut Log<P> {
        log.write_all(&self.blocks);
        self.blocks.clear();
        log
    }
}

/// Time of a trace, in blocks that members process. It begins with the first arrival: operations
/// before it (a fill) take none.
#[derive(Default)]
struct Clock {
    now: u64,
    /// Time at which members have completed all work, including cleaning.
    done: u64,
    /// Number of log blocks counted so far.
    placed: u64,
    runs: bool,
    behind: u64,
}

impl Clock {
    /// Advances by the blocks placed since the last call.
    fn take<P: Placement>(&mut self, log: &Log<P>) {
        let placed = log.counts().written + log.counts().moved;
        if self.runs {
            self.done = self.done.max(self.now) + (placed - self.placed);
            self.behind = self.behind.max(self.done - self.now);
        }
        (self.placed, self.runs) = (placed, true);
    }

    /// Passes an operation other than a write.
    fn pass<P: Placement>(&mut self, log: &mut Log<P>, operation: Operation, idle_free: u32) {
        match operation {
            Operation::Arrival { after, reads } => self.arrive(log, after, reads, idle_free),
            Operation::Pause { blocks } => log.idle(blocks, idle_free),
            other => log.apply(other),
        }
    }

    /// Maximum lag of members.
    fn finish<P: Placement>(&mut self, log: &Log<P>) -> u64 {
        if self.runs {
            self.take(log);
        }
        self.behind
    }

    /// A request arrives: the rest of the time before it is a pause.
    fn arrive<P: Placement>(&mut self, log: &mut Log<P>, after: u32, reads: u32, idle_free: u32) {
        self.take(log);
        self.done = self.done.max(self.now) + u64::from(reads);
        self.now += u64::from(after);
        let pause = self.now.saturating_sub(self.done);
        if pause > 0 {
            log.idle(u32::try_from(pause).unwrap_or(u32::MAX), idle_free);
            let placed = log.counts().written + log.counts().moved;
            self.done += placed - self.placed;
            self.placed = placed;
        }
        self.behind = self.behind.max(self.done.saturating_sub(self.now));
    }
}

/// Runs a placement with a victim rule and checkpoints.
///
/// # Errors
/// As [`run`].
pub(super) fn drive<P: Placement>(
    (rule, checkpoints): (Rule, When),
    plan: &Plan,
    placement: P,
    operations: impl Iterator<Item = Operation>,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Outcome, String> {
    let mut log = Log::new(plan.shape, rule, placement, plan.seed)?;
    log.set_checkpoints(checkpoints);
    let mut outcome = Outcome::default();
    let (mut window, mut steady, mut waited) = (Counts::default(), None, 0);
    let (mut next_window, mut next_tell) = (plan.window.max(1), TELL);
    let (mut writes, mut clock) = (
        Group {
            blocks: Vec::with_capacity(GROUP),
            written: 0,
        },
        Clock::default(),
    );
    // Writes are done in groups; measurements are taken after the same operation as without groups.
    let mut next_look = next_window.min(next_tell).min(plan.steady_after);
    for operation in operations {
        let (mut block, mut left) = match operation {
            Operation::Write { block, count } => (block, count),
            Operation::Flush | Operation::Durable => continue,
            other => {
                clock.pass(writes.flush(&mut log), other, plan.idle_free);
                continue;
            }
        };
        // In pieces that end at measurements: a fill is one operation, and has many windows.
        while left > 0 {
            let piece = u64::from(left).min(next_look.saturating_sub(writes.written).max(1)) as u32;
            writes.add(&mut log, block, piece);
            (block, left) = (block + piece, left - piece);
            if writes.written < next_look {
                continue;
            }
            let written = writes.flush(&mut log).counts().written;
            if written >= next_window {
                outcome.windows.push(log.counts().since(window).waf());
                window = log.counts();
                next_window = next_window.saturating_add(plan.window.max(1));
            }
            if steady.is_none() && written >= plan.steady_after {
                log.forget_victims();
                waited = log.forget_longest_wait();
                steady = Some(log.counts());
            }
            if written >= next_tell {
                next_tell += TELL;
                if !tell(written) {
                    return Err("stopped".into());
                }
            }
            next_look = next_window.min(next_tell).min(if steady.is_none() {
                plan.steady_after
            } else {
                u64::MAX
            });
        }
    }
    writes.flush(&mut log);
    outcome.behind_blocks = clock.finish(&log);
    outcome.steady_counts = log.counts().since(steady.unwrap_or_default());
    outcome.counts = Counts {
        longest_wait: waited.max(log.counts().longest_wait),
        ..log.counts()
    };
    outcome.whole = outcome.counts.waf();
    outcome.steady = outcome.steady_counts.waf();
    outcome.streams = log.placement().streams();
    outcome.bytes_per_block = log.bytes_per_block();
    outcome.empty_end = 1.0 - log.live_blocks() as f64 / f64::from(plan.shape.blocks.max(1));
    histograms(
        &log,
        plan.shape.segment_blocks,
        plan.steady_after,
        &mut outcome,
    );
    Ok(outcome)
}

/// Number of parts of the histograms.
pub const PARTS: usize = 20;

fn histograms<P: Placement>(log: &Log<P>, capacity: u32, steady_after: u64, outcome: &mut Outcome) {
    let empty = |live: u32| 1.0 - f64::from(live) / f64::from(capacity);
    let victims: u64 = log.victims_by_live().iter().sum();
    outcome.victims = vec![0.0; PARTS];
    for (live, number) in log.victims_by_live().iter().enumerate() {
        let part = ((empty(live as u32) * PARTS as f64) as usize).min(PARTS - 1);
        outcome.victims[part] += *number as f64 / victims.max(1) as f64;
    }
    let mut ages = log.ages();
    ages.reverse();
    let by_age = |ages: &[(u32, u32)]| -> Vec<f64> {
        let part = |at: usize| at * ages.len() / PARTS;
        let mean = |of: &[(u32, u32)]| {
            of.iter().map(|(_, live)| empty(*live)).sum::<f64>() / of.len().max(1) as f64
        };
        (0..PARTS)
            .map(|at| mean(&ages[part(at)..part(at + 1)]))
            .collect()
    };
    outcome.emptiness = by_age(&ages);
    ages.retain(|(age, _)| u64::from(*age) < log.counts().written.saturating_sub(steady_after));
    outcome.dynamic_emptiness = by_age(&ages);
}

#[cfg(test)]
mod tests;
