//! A load in process: writers that keep a number of requests in flight through sessions of a
//! running pool.

use super::random::{Random, noise};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};
use windrow_frontend::{ExportSource, Session, Sink};
use windrow_host::failure::{Failure, id};
use windrow_host::{Histogram, Pool};
use windrow_io::{Completion, Op, Payload, Reply, Request, RequestError, RequestId};
use windrow_types::{BLOCK_SIZE, VolumeId};

/// Description of a load.
#[derive(Clone, Copy, Debug)]
pub struct LoadSpec {
    /// Length and alignment of requests.
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
    /// Time limit.
    pub time_max: Duration,
    /// Limit of bytes of all writers; the load ends at the first limit.
    pub bytes_max: u64,
    /// Seed.
    pub seed: u64,
    /// Share of random bytes in the written data, in per cent: the rest of each 512 bytes repeats
    /// one byte.
    pub random_percent: u32,
    /// Share of writes with unique content, in per cent; the others are pieces of the same few MiB.
    pub distinct_percent: u32,
}

/// Result of a load.
#[derive(Clone, Debug, Default)]
pub struct LoadResult {
    /// Requests done.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Time.
    pub elapsed: Duration,
    /// Latencies measured by the writers, at the granularity of a group.
    pub latency: Histogram,
    /// Requests that failed.
    pub errors: u64,
    /// Error of the first failed request.
    pub error: Option<RequestError>,
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

    /// Adds a part that ran after this one.
    pub fn append(&mut self, part: &Self) {
        self.elapsed += part.elapsed;
        self.add_beside(part);
    }

    /// Adds a part that ran at the same time.
    fn add_beside(&mut self, part: &Self) {
        self.requests += part.requests;
        self.bytes += part.bytes;
        self.errors += part.errors;
        self.error = self.error.or(part.error);
        self.latency.merge(&part.latency);
    }
}

/// Queue of completions.
#[derive(Default)]
pub struct Arrivals {
    done: Mutex<Vec<Completion>>,
    changed: Condvar,
}

impl Sink for Arrivals {
    fn complete(&self, completions: &mut Vec<Completion>) {
        self.done
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .append(completions);
        self.changed.notify_one();
    }
}

/// Most requests in a group, like a front-end that drains its socket.
const GROUP_MAX: usize = 32;
/// Bytes of noise from which written data is taken.
pub const NOISE_BYTES: usize = 32 << 20;

struct Shared<'a> {
    spec: &'a LoadSpec,
    issued_bytes: AtomicU64,
    done_bytes: AtomicU64,
    stop: AtomicBool,
    begin: Instant,
    noise: Payload,
}

/// Data to write. Made once for all loads, before their clocks start; the seed selects the part for
/// a request.
pub fn shared_noise() -> Payload {
    static NOISE: OnceLock<Payload> = OnceLock::new();
    NOISE.get_or_init(|| noise(1, NOISE_BYTES)).clone()
}

/// Data with this percentage of random bytes; the rest compresses away.
pub fn diluted(random_percent: u32) -> Payload {
    if random_percent >= 100 {
        return shared_noise();
    }
    let mut bytes = shared_noise().to_vec();
    for sector in bytes.chunks_mut(512) {
        sector[512 * random_percent as usize / 100..].fill(0x57);
    }
    Payload::copy_of(&bytes)
}

/// Interval of the calls of `watch`.
const WATCH_PAUSE: Duration = Duration::from_millis(50);

/// Runs a load against an export.
///
/// # Errors
/// There is no such export.
pub fn run(pool: &Pool, export: &str, spec: &LoadSpec) -> Result<LoadResult, Failure> {
    run_watched(pool, export, spec, &mut |_| ())
}

/// Runs a load; `watch` is called periodically with the bytes done.
///
/// # Errors
/// There is no such export.
pub fn run_watched(
    pool: &Pool,
    export: &str,
    spec: &LoadSpec,
    watch: &mut dyn FnMut(u64),
) -> Result<LoadResult, Failure> {
    let noise = diluted(spec.random_percent);
    let (issued_bytes, done_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let shared = Shared {
        spec,
        issued_bytes,
        done_bytes,
        stop: AtomicBool::new(false),
        begin: Instant::now(),
        noise,
    };
    let (ended, ends) = channel();
    let results = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..spec.writers as u64)
            .map(|number| {
                let (shared, ended) = (&shared, ended.clone());
                scope.spawn(move || {
                    let result = writer(pool, export, shared, number);
                    // Only the watching thread listens, and it may have gone.
                    _ = ended.send(());
                    result
                })
            })
            .collect();
        // Only the writers' senders are left: if one panics silently, the channel closes when the
        // others have ended.
        drop(ended);
        watch_until_ended(&shared, spec.writers, &ends, watch);
        handles
            .into_iter()
            .map(|handle| {
                handle.join().unwrap_or_else(|_| {
                    Err(Failure::new(id::BENCH, "a writer failed", "it panicked"))
                })
            })
            .collect::<Vec<_>>()
    });
    let mut sum = LoadResult::default();
    for result in results {
        let part = result?;
        sum.elapsed = sum.elapsed.max(part.elapsed);
        sum.add_beside(&part);
    }
    Ok(sum)
}

fn watch_until_ended(
    shared: &Shared<'_>,
    writers: usize,
    ends: &Receiver<()>,
    watch: &mut dyn FnMut(u64),
) {
    let mut running = writers;
    while running > 0 {
        match ends.recv_timeout(WATCH_PAUSE) {
            Ok(()) => running -= 1,
            Err(RecvTimeoutError::Timeout) => watch(shared.done_bytes.load(Ordering::Relaxed)),
            // A writer panicked: the others are waited for when they are joined.
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Sequential single requests to an export.
pub struct Requester {
    session: Box<dyn Session>,
    arrivals: Arc<Arrivals>,
    volume: VolumeId,
}

/// Bytes of a write of [`Requester::fill`].
const FILL_BYTES: u64 = 256 << 10;

impl Requester {
    /// Opens the export.
    ///
    /// # Errors
    /// There is no such export.
    pub fn open(pool: &Pool, export: &str) -> Result<Self, Failure> {
        let arrivals = Arc::new(Arrivals::default());
        let session = pool.open(export, arrivals.clone()).map_err(|error| {
            Failure::new(
                id::BENCH_LOAD,
                format!("cannot open export '{export}'"),
                error,
            )
        })?;
        let volume = session.info().volume;
        Ok(Self {
            session,
            arrivals,
            volume,
        })
    }

    /// Makes everything durable; returns the duration.
    ///
    /// # Errors
    /// The pool could not.
    pub fn flush(&self) -> Result<Duration, Failure> {
        let begin = Instant::now();
        self.ask(Op::Flush).map(|_| begin.elapsed())
    }

    /// Makes a range a hole.
    ///
    /// # Errors
    /// The pool could not.
    pub fn trim(&self, from: u64, to: u64) -> Result<(), Failure> {
        self.ask(Op::Trim {
            offset: from,
            length: to - from,
            fua: false,
        })
        .map(drop)
    }

    /// Writes a range in order.
    ///
    /// # Errors
    /// The pool could not.
    pub fn fill(&self, from: u64, to: u64) -> Result<(), Failure> {
        let (data, mut random) = (noise(to, FILL_BYTES as usize * 2), Random::new(from));
        for offset in (from..to).step_by(FILL_BYTES as usize) {
            let length = FILL_BYTES.min(to - offset);
            let at = random.below(FILL_BYTES / 512) as usize * 512;
            self.ask(Op::Write {
                offset,
                data: data.slice(at, length as usize),
                fua: false,
            })?;
        }
        Ok(())
    }

    fn ask(&self, op: Op) -> Result<Reply, Failure> {
        let mut ready = Vec::new();
        self.session.submit(
            &mut vec![Request {
                id: RequestId(0),
                volume: self.volume,
                op,
            }],
            &mut ready,
        );
        collect(&self.arrivals, &mut ready, true);
        let result = ready
            .pop()
            .map_or(Err(RequestError::Stopped), |completion| completion.result);
        result.map_err(|error| Failure::new(id::BENCH_LOAD, "a request failed", error))
    }
}

fn writer(
    pool: &Pool,
    export: &str,
    shared: &Shared<'_>,
    number: u64,
) -> Result<LoadResult, Failure> {
    let spec = shared.spec;
    let arrivals = Arc::new(Arrivals::default());
    let session = pool.open(export, arrivals.clone()).map_err(|error| {
        Failure::new(
            id::BENCH_LOAD,
            format!("cannot open export '{export}'"),
            error,
        )
    })?;
    let volume = session.info().volume;
    let blocks = (spec.span_bytes / u64::from(spec.block_bytes)).max(1);
    let mut random = Random::new(spec.seed ^ (number + 1).wrapping_mul(0x1234_5678_9abc_def1));
    let mut next_linear = blocks * number / spec.writers as u64;
    let mut result = LoadResult::default();
    let (mut requests, mut ready, mut starts) = (Vec::new(), Vec::new(), vec![0u64; spec.depth]);
    let mut free: Vec<u64> = (0..spec.depth as u64).collect();
    loop {
        let now = shared.begin.elapsed();
        // On a busy machine the time may have passed before a writer has started: each does at
        // least one request.
        if now >= spec.time_max && result.requests > 0 {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let stopping = shared.stop.load(Ordering::Relaxed);
        while !stopping && requests.len() < GROUP_MAX {
            let Some(slot) = free.pop() else { break };
            if shared
                .issued_bytes
                .fetch_add(u64::from(spec.block_bytes), Ordering::Relaxed)
                >= spec.bytes_max
            {
                shared.stop.store(true, Ordering::Relaxed);
                free.push(slot);
                break;
            }
            let block = if spec.linear {
                next_linear
            } else {
                random.below(blocks)
            };
            next_linear = (next_linear + 1) % blocks;
            let offset = block * u64::from(spec.block_bytes);
            let op = if spec.read_percent > 0 && random.below(100) < u64::from(spec.read_percent) {
                Op::Read {
                    offset,
                    length: spec.block_bytes,
                }
            } else {
                let at = random.below((NOISE_BYTES as u64 - u64::from(spec.block_bytes)) / 512)
                    as usize
                    * 512;
                let mut data = shared.noise.slice(at, spec.block_bytes as usize);
                if spec.distinct_percent > 0 && random.below(100) < u64::from(spec.distinct_percent)
                {
                    let mut bytes = data.to_vec();
                    for block in bytes.chunks_mut(BLOCK_SIZE) {
                        block[..8].copy_from_slice(&random.below(u64::MAX).to_le_bytes());
                    }
                    data = Payload::copy_of(&bytes);
                }
                Op::Write {
                    offset,
                    data,
                    fua: false,
                }
            };
            starts[slot as usize] = now.as_nanos() as u64;
            requests.push(Request {
                id: RequestId(slot),
                volume,
                op,
            });
        }
        if !requests.is_empty() {
            session.submit(&mut requests, &mut ready);
        }
        collect(
            &arrivals,
            &mut ready,
            free.is_empty() || (stopping && free.len() < spec.depth),
        );
        let now = shared.begin.elapsed().as_nanos() as u64;
        shared.done_bytes.fetch_add(
            ready.len() as u64 * u64::from(spec.block_bytes),
            Ordering::Relaxed,
        );
        for completion in ready.drain(..) {
            let slot = completion.id.0;
            result.requests += 1;
            result.bytes += u64::from(spec.block_bytes);
            if let Err(error) = completion.result {
                result.errors += 1;
                result.error = result.error.or(Some(error));
            }
            result
                .latency
                .record(now.saturating_sub(starts[slot as usize]));
            free.push(slot);
        }
        if result.errors > 0 {
            shared.stop.store(true, Ordering::Relaxed);
        }
        if stopping && free.len() == spec.depth {
            result.elapsed = shared.begin.elapsed();
            return Ok(result);
        }
    }
}

/// Takes completions that have arrived; with `wait` at least one, unless `ready` has one already.
pub fn collect(arrivals: &Arrivals, ready: &mut Vec<Completion>, wait: bool) {
    let mut done = arrivals
        .done
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    while wait && ready.is_empty() && done.is_empty() {
        done = arrivals
            .changed
            .wait(done)
            .unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    ready.append(&mut done);
}
