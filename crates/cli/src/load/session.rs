//! A load in process: writers that keep a number of requests in flight through sessions of a running pool.

use super::random::{Random, noise};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use windrow_export::{ExportSource, Sink};
use windrow_host::failure::{Failure, id};
use windrow_host::{Histogram, Pool};
use windrow_io::{Completion, Op, Payload, Request, RequestId};

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct LoadSpec {
    /// Requests are this long and aligned to it.
    pub block_bytes: u32,
    /// Bytes of the volume that are used.
    pub span_bytes: u64,
    /// Writers, each with a thread and a session.
    pub writers: usize,
    /// Requests in flight of each writer.
    pub depth: usize,
    /// Share of reads in per cent.
    pub read_percent: u32,
    /// Addresses in order instead of at random.
    pub linear: bool,
    /// Ends after this time...
    pub time_max: Duration,
    /// ... or after this many bytes of all writers, whichever comes first.
    pub bytes_max: u64,
    /// Seed.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct LoadResult {
    /// Requests done.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Time.
    pub elapsed: Duration,
    /// Latencies as the writers saw them, at the granularity of a group.
    pub latency: Histogram,
    /// Requests that failed.
    pub errors: u64,
}

impl LoadResult {
    /// Requests per second.
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

#[derive(Default)]
struct Arrivals {
    done: Mutex<Vec<Completion>>,
    changed: Condvar,
}

impl Sink for Arrivals {
    fn complete(&self, completions: &mut Vec<Completion>) {
        self.done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).append(completions);
        self.changed.notify_one();
    }
}

/// Requests are handed over in groups of at most this many, as a front-end does that drains its socket.
const GROUP_MAX: usize = 32;
/// Data to write comes from this much noise.
const NOISE_BYTES: usize = 32 << 20;

struct Shared<'a> {
    spec: &'a LoadSpec,
    issued_bytes: AtomicU64,
    stop: AtomicBool,
    begin: Instant,
    noise: Payload,
}

/// Runs a load against an export.
///
/// # Errors
/// There is no such export.
pub fn run(pool: &Pool, export: &str, spec: &LoadSpec) -> Result<LoadResult, Failure> {
    let shared = Shared { spec, issued_bytes: AtomicU64::new(0), stop: AtomicBool::new(false), begin: Instant::now(), noise: noise(spec.seed, NOISE_BYTES) };
    let mut sum = LoadResult::default();
    let begin = Instant::now();
    let results = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..spec.writers as u64)
            .map(|number| {
                scope.spawn({
                    let shared = &shared;
                    move || writer(pool, export, shared, number)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| Err(Failure::new(id::BENCH, "a writer failed", "it panicked")))).collect::<Vec<_>>()
    });
    sum.elapsed = begin.elapsed();
    for result in results {
        let part = result?;
        sum.requests += part.requests;
        sum.bytes += part.bytes;
        sum.errors += part.errors;
        sum.latency.merge(&part.latency);
    }
    Ok(sum)
}

fn writer(pool: &Pool, export: &str, shared: &Shared<'_>, number: u64) -> Result<LoadResult, Failure> {
    let spec = shared.spec;
    let arrivals = Arc::new(Arrivals::default());
    let session = pool.open(export, arrivals.clone()).map_err(|error| Failure::new(id::BENCH, format!("cannot open export '{export}'"), error))?;
    let volume = session.info().volume;
    let blocks = (spec.span_bytes / u64::from(spec.block_bytes)).max(1);
    let mut random = Random::new(spec.seed ^ (number + 1).wrapping_mul(0x1234_5678_9abc_def1));
    let mut next_linear = blocks * number / spec.writers as u64;
    let mut result = LoadResult::default();
    let (mut requests, mut ready, mut starts) = (Vec::new(), Vec::new(), vec![0u64; spec.depth]);
    let mut free: Vec<u64> = (0..spec.depth as u64).collect();
    loop {
        let now = shared.begin.elapsed();
        if now >= spec.time_max {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let stopping = shared.stop.load(Ordering::Relaxed);
        while !stopping && requests.len() < GROUP_MAX {
            let Some(slot) = free.pop() else { break };
            if shared.issued_bytes.fetch_add(u64::from(spec.block_bytes), Ordering::Relaxed) >= spec.bytes_max {
                shared.stop.store(true, Ordering::Relaxed);
                free.push(slot);
                break;
            }
            let block = if spec.linear { next_linear } else { random.below(blocks) };
            next_linear = (next_linear + 1) % blocks;
            let offset = block * u64::from(spec.block_bytes);
            let op = if spec.read_percent > 0 && random.below(100) < u64::from(spec.read_percent) {
                Op::Read { offset, length: spec.block_bytes }
            } else {
                let at = random.below((NOISE_BYTES as u64 - u64::from(spec.block_bytes)) / 512) as usize * 512;
                Op::Write { offset, data: shared.noise.slice(at, spec.block_bytes as usize), fua: false }
            };
            starts[slot as usize] = now.as_nanos() as u64;
            requests.push(Request { id: RequestId(slot), volume, op });
        }
        if !requests.is_empty() {
            session.submit(&mut requests, &mut ready);
        }
        collect(&arrivals, &mut ready, free.is_empty() || (stopping && free.len() < spec.depth));
        let now = shared.begin.elapsed().as_nanos() as u64;
        for completion in ready.drain(..) {
            let slot = completion.id.0;
            result.requests += 1;
            result.bytes += u64::from(spec.block_bytes);
            result.errors += u64::from(completion.result.is_err());
            result.latency.record(now.saturating_sub(starts[slot as usize]));
            free.push(slot);
        }
        if result.errors > 0 {
            shared.stop.store(true, Ordering::Relaxed);
        }
        if stopping && free.len() == spec.depth {
            return Ok(result);
        }
    }
}

/// Takes what has arrived; with `wait` at least one, unless there is one in `ready` already.
fn collect(arrivals: &Arrivals, ready: &mut Vec<Completion>, wait: bool) {
    let mut done = arrivals.done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    while wait && ready.is_empty() && done.is_empty() {
        done = arrivals.changed.wait(done).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    ready.append(&mut done);
}
