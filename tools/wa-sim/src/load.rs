//! Closed-loop tasks: each submits one request, waits for its answer, and continues.
//!
//! Requests in flight never overlap: a draw that would is repeated. So a read has exactly one right
//! answer, and the target can check it.

use crate::mix::Mix;
use crate::nand::Counters;
use windrow_random::Rng;

/// Request of a task, in blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Read.
    Read {
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u64,
    },
    /// Write; durable when answered, if requested.
    Write {
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u64,
        /// True if it must be durable when answered.
        durable: bool,
    },
    /// Everything answered before it becomes durable.
    Flush,
}

/// Target of the tasks' requests.
pub trait Target {
    /// Number of used blocks: `0..span`.
    fn span(&self) -> u64;
    /// Virtual time.
    fn now_ns(&self) -> u64;
    /// Submits a task's request.
    fn ask(&mut self, task: usize, want: Want);
    /// Advances time until something is answered; appends tasks and times.
    ///
    /// # Errors
    /// A wrong answer, or no more answers.
    fn answers(&mut self, answers: &mut Vec<(usize, u64)>) -> Result<(), String>;
    /// Bytes to all devices so far, and bytes programmed by them.
    fn counters(&self) -> Counters;
    /// Bytes to devices by cause so far.
    fn causes(&self) -> Vec<(&'static str, u64)>;
}

/// Durability of writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Each write before it is answered.
    Each,
    /// Each task flushes after this number of its writes.
    FlushAfter(u64),
}

/// A load.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The mix of each task.
    pub tasks: Vec<Mix>,
    /// Durability of writes.
    pub durability: Durability,
    /// Number of uncounted requests at the start.
    pub warm: u64,
    /// Number of counted requests.
    pub requests: u64,
    /// Seed.
    pub seed: u64,
}

/// Results of a load.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Virtual time of the counted requests.
    pub elapsed_ns: u64,
    /// Latencies of reads, ascending.
    pub reads: Vec<u32>,
    /// Latencies of writes, including the wait for their flush if there was one.
    pub writes: Vec<u32>,
    /// Latencies of flushes.
    pub flushes: Vec<u32>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Device counters during that time.
    pub devices: Counters,
    /// Bytes to devices by cause.
    pub causes: Vec<(&'static str, u64)>,
}

impl Outcome {
    /// Reads and writes per second.
    pub fn per_second(&self) -> f64 {
        (self.reads.len() + self.writes.len()) as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Bytes written per second.
    pub fn write_bytes_per_second(&self) -> f64 {
        self.write_bytes as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Bytes read and written per second.
    pub fn bytes_per_second(&self) -> f64 {
        (self.read_bytes + self.write_bytes) as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Latency that `per_million` of a million values do not exceed; `None` with fewer than ten above
/// it.
pub fn percentile(sorted: &[u32], per_million: u64) -> Option<u32> {
    let count = sorted.len() as u64;
    let rank = (count * per_million).div_ceil(1_000_000).max(1);
    (count >= rank + 10).then(|| sorted[rank as usize - 1])
}

struct Task {
    mix: Mix,
    want: Want,
    since_ns: u64,
    unflushed: u64,
    /// Start time of the write whose flush is in progress.
    write_since_ns: u64,
}

/// Runs a load.
///
/// # Errors
/// As [`Target::answers`].
pub fn run(
    target: &mut dyn Target,
    spec: &LoadSpec,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome, String> {
    let mut rng = Rng::stream(spec.seed, "load");
    let idle = |mix: &Mix| Task {
        mix: *mix,
        want: Want::Flush,
        since_ns: 0,
        unflushed: 0,
        write_since_ns: 0,
    };
    let mut tasks: Vec<Task> = spec.tasks.iter().map(idle).collect();
    for at in 0..tasks.len() {
        next(target, &mut tasks, at, spec, &mut rng);
    }
    let (mut outcome, mut answered, mut answers) = (Outcome::default(), 0u64, Vec::new());
    let (mut begin_ns, mut before, mut causes) =
        (target.now_ns(), target.counters(), target.causes());
    let all = spec.warm + spec.requests;
    while answered < all {
        target.answers(&mut answers)?;
        for (at, now) in answers.drain(..) {
            let task = &mut tasks[at];
            let waited = now - task.since_ns;
            if answered >= spec.warm {
                count(&mut outcome, task, now, waited, spec.durability);
            }
            let flush = match (task.want, spec.durability) {
                (Want::Write { .. }, Durability::FlushAfter(after)) => {
                    task.unflushed += 1;
                    task.unflushed >= after
                }
                _ => false,
            };
            if flush {
                (
                    task.write_since_ns,
                    task.since_ns,
                    task.unflushed,
                    task.want,
                ) = (task.since_ns, now, 0, Want::Flush);
                target.ask(at, Want::Flush);
                continue;
            }
            answered += 1;
            if answered == spec.warm {
                (begin_ns, before, causes) = (now, target.counters(), target.causes());
            }
            next(target, &mut tasks, at, spec, &mut rng);
        }
        progress(answered.min(all), all);
    }
    outcome.elapsed_ns = target.now_ns() - begin_ns;
    outcome.devices = since(&target.counters(), &before);
    outcome.causes = target
        .causes()
        .into_iter()
        .zip(causes)
        .map(|((name, after), (_, before))| (name, after - before))
        .collect();
    drain(target, &tasks)?;
    outcome.reads.sort_unstable();
    outcome.writes.sort_unstable();
    outcome.flushes.sort_unstable();
    Ok(outcome)
}

/// Counts an answer. A write that is followed by its flush counts when the flush is answered.
fn count(outcome: &mut Outcome, task: &Task, now: u64, waited: u64, durability: Durability) {
    let short = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
    match task.want {
        Want::Read { count, .. } => {
            outcome.reads.push(short(waited));
            outcome.read_bytes += count * windrow_types::BLOCK_BYTES;
        }
        Want::Write { count, .. } => {
            outcome.write_bytes += count * windrow_types::BLOCK_BYTES;
            if !matches!(durability, Durability::FlushAfter(after) if task.unflushed + 1 >= after) {
                outcome.writes.push(short(waited));
            }
        }
        Want::Flush => {
            outcome.flushes.push(short(waited));
            outcome.writes.push(short(now - task.write_since_ns));
        }
    }
}

/// Submits the next request of a task.
fn next(target: &mut dyn Target, tasks: &mut [Task], at: usize, spec: &LoadSpec, rng: &mut Rng) {
    let (is_read, count) = tasks[at].mix.draw(rng);
    let block = loop {
        let block = rng.below(target.span() - count + 1);
        let overlaps = |task: &Task| match task.want {
            Want::Read {
                block: first,
                count: blocks,
            }
            | Want::Write {
                block: first,
                count: blocks,
                ..
            } => first < block + count && block < first + blocks,
            Want::Flush => false,
        };
        if !tasks
            .iter()
            .enumerate()
            .any(|(other, task)| other != at && overlaps(task))
        {
            break block;
        }
    };
    let durable = spec.durability == Durability::Each;
    let want = if is_read {
        Want::Read { block, count }
    } else {
        Want::Write {
            block,
            count,
            durable,
        }
    };
    (tasks[at].want, tasks[at].since_ns) = (want, target.now_ns());
    target.ask(at, want);
}

/// Waits for the remaining requests.
fn drain(target: &mut dyn Target, tasks: &[Task]) -> Result<(), String> {
    let (mut left, mut answers) = (tasks.len(), Vec::new());
    while left > 0 {
        target.answers(&mut answers)?;
        left -= answers.drain(..).count();
    }
    Ok(())
}

fn since(after: &Counters, before: &Counters) -> Counters {
    Counters {
        written_bytes: after.written_bytes - before.written_bytes,
        programmed_bytes: after.programmed_bytes - before.programmed_bytes,
        read_bytes: after.read_bytes - before.read_bytes,
        flushes: after.flushes - before.flushes,
        erases: after.erases - before.erases,
        suspensions: after.suspensions - before.suspensions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_has_ten_samples_above_it_or_is_none() {
        let sorted: Vec<u32> = (1..=1000).collect();
        assert_eq!(percentile(&sorted, 500_000), Some(500));
        assert_eq!(
            percentile(&sorted, 990_000),
            Some(990),
            "991 to 1000 are above it"
        );
        assert_eq!(percentile(&sorted, 991_000), None);
        assert_eq!(percentile(&[], 500_000), None);
    }
}
