//! In-process load on scratch members: on fresh space, repeated until the time is over, or on a
//! filled volume.

use super::rounds::Step;
use super::scratch::Scratch;
use std::time::Duration;
use windrow_console::progress::Progress;
use windrow_console::values::Size;
use windrow_host::failure::{Failure, id};
use windrow_host::{Pool, daemon};
use windrow_load::machine::cpu_seconds;
use windrow_load::session::{LoadResult, LoadSpec, Requester, run_watched};

/// Volume of every scratch pool.
pub const EXPORT: &str = "data";
/// Spare factor of a pool where it does not matter.
pub const SPARE_PER_MILLE: u16 = 100;
/// Request size of a fill, bytes.
const FILL_BYTES: u64 = 256 << 10;

/// A kind of load.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Request size.
    pub block_bytes: u32,
    /// Number of writers, one thread each.
    pub writers: usize,
    /// Requests in flight of each writer.
    pub depth: usize,
    /// Share of reads in per cent.
    pub read_percent: u32,
    /// Sequential addresses.
    pub linear: bool,
}

impl Case {
    /// The load over `span_bytes`, limited by time.
    pub fn spec(&self, span_bytes: u64, time_max: Duration, seed: u64) -> LoadSpec {
        let Self {
            block_bytes,
            writers,
            depth,
            read_percent,
            linear,
        } = *self;
        LoadSpec {
            block_bytes,
            span_bytes,
            writers,
            depth,
            read_percent,
            linear,
            time_max,
            bytes_max: u64::MAX,
            seed,
            random_percent: 100,
            distinct_percent: 0,
        }
    }
}

/// Measurements of a load.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Rates and latencies.
    pub load: LoadResult,
    /// Processor time of the process.
    pub cpu_seconds: f64,
    /// Bytes written to members.
    pub member_bytes: u64,
    /// Bytes written by the load.
    pub user_bytes: u64,
}

impl Sample {
    /// Adds the measurements of another load.
    pub fn append(&mut self, part: &Self) {
        self.load.append(&part.load);
        self.cpu_seconds += part.cpu_seconds;
        self.member_bytes += part.member_bytes;
        self.user_bytes += part.user_bytes;
    }

    /// Processor time per request in nanoseconds, load included.
    pub fn cpu_ns(&self) -> f64 {
        self.cpu_seconds * 1e9 / self.load.requests.max(1) as f64
    }

    /// Member bytes per byte written; 0 if nothing was written.
    pub fn amplification(&self) -> f64 {
        if self.user_bytes == 0 {
            0.0
        } else {
            self.member_bytes as f64 / self.user_bytes as f64
        }
    }
}

/// Runs a load, and makes its writes durable within its time.
pub fn measure(pool: &Pool, spec: &LoadSpec, progress: &mut Progress) -> Result<Sample, Failure> {
    let before = daemon::report(pool)?.counters;
    let cpu = cpu_seconds();
    let by_bytes = spec.bytes_max != u64::MAX;
    let mut load = run_watched(pool, EXPORT, spec, &mut |done| match by_bytes {
        true => progress.bytes(done, spec.bytes_max),
        false => progress.time(spec.time_max, &Size(done).to_string()),
    })?;
    if load.errors > 0 {
        return Err(failed(pool, &load));
    }
    if spec.read_percent < 100 {
        load.elapsed += Requester::open(pool, EXPORT)?.flush()?;
    }
    let after = daemon::report(pool)?.counters;
    Ok(Sample {
        load,
        cpu_seconds: cpu_seconds() - cpu,
        member_bytes: after.written.total() - before.written.total(),
        user_bytes: after.user_write_bytes - before.user_write_bytes,
    })
}

/// Error for failed requests of a load.
pub fn failed(pool: &Pool, load: &LoadResult) -> Failure {
    let why = pool
        .stop_reason()
        .or(load.error.map(|error| error.to_string()));
    Failure::new(
        id::BENCH_LOAD,
        format!("{} requests failed", load.errors),
        why.unwrap_or_default(),
    )
}

/// Writes to new pools, each until its fresh space is nearly used up, for `time` in total.
/// `before_pass` runs before each of them with the duration of the preceding pass.
pub fn fresh(
    scratch: &Scratch,
    case: &Case,
    time: Duration,
    step: &Step<'_>,
    before_pass: &mut dyn FnMut(Duration) -> Result<(), Failure>,
) -> Result<Sample, Failure> {
    /// Assumed duration of the pass that precedes the first one.
    const FIRST: Duration = Duration::from_secs(3);
    let mut sum = Sample::default();
    let (mut slice, mut seed) = (time.min(FIRST), step.round as u64 * 1000 + 1);
    while sum.load.elapsed < time {
        before_pass(slice)?;
        let pool = scratch.pool(SPARE_PER_MILLE, 100)?;
        let capacity = daemon::report(&pool)?.capacity;
        let mut spec = case.spec(capacity.usable_bytes, time, seed);
        spec.bytes_max = capacity.data_bytes / 10 * 8;
        let part = measure(&pool, &spec, &mut step.progress())?;
        if part.load.requests == 0 {
            return Err(Failure::new(
                id::BENCH_INPUT,
                "nothing was written",
                "the members are too small for one request of this size",
            ));
        }
        slice = part.load.elapsed;
        sum.append(&part);
        seed += 1;
    }
    Ok(sum)
}

/// Writes the volume sequentially from its beginning; returns the bytes written, a multiple of 256
/// KiB.
pub fn fill(pool: &Pool, span_bytes: u64, what: &str) -> Result<u64, Failure> {
    let span = span_bytes / FILL_BYTES * FILL_BYTES;
    if span == 0 {
        return Err(Failure::new(
            id::BENCH_INPUT,
            "cannot fill the volume",
            "it is smaller than 256 KiB",
        ));
    }
    let case = Case {
        block_bytes: FILL_BYTES as u32,
        writers: 1,
        depth: 16,
        read_percent: 0,
        linear: true,
    };
    let mut spec = case.spec(span, Duration::from_secs(24 * 3600), 99);
    spec.bytes_max = span;
    measure(pool, &spec, &mut Progress::new(format!("{what}: filling"))).map(|_| span)
}
