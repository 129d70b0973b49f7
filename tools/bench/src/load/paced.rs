//! Open-loop requests at a fixed rate, independent of earlier requests. Their latency counts from
//! the time at which they were due, so a stalled pool does not reduce the load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use windrow_frontend::{ExportSource, Sink};
use windrow_host::failure::{Failure, id};
use windrow_host::{Histogram, Pool};
use windrow_io::{Completion, Op, Payload, Request, RequestError, RequestId};
use windrow_load::random::{Random, noise};

/// Parameters of the load.
#[derive(Clone, Copy, Debug)]
pub struct PacedSpec {
    /// Length and alignment of the requests.
    pub block_bytes: u32,
    /// Used bytes of the volume.
    pub span_bytes: u64,
    /// Requests per second.
    pub per_second: u64,
    /// True: every second request is a read; false: writes only.
    pub reads: bool,
    /// Duration.
    pub time: Duration,
    /// Seed.
    pub seed: u64,
}

/// Results.
#[derive(Clone, Debug, Default)]
pub struct PacedResult {
    /// Latencies of reads.
    pub reads: Histogram,
    /// Latencies of writes.
    pub writes: Histogram,
    /// Time in which requests were due.
    pub elapsed: Duration,
    /// Number of failed requests, and the reason of the first failure.
    pub errors: u64,
    /// Reason of the first failure.
    pub error: Option<RequestError>,
}

/// Answers with their arrival times.
struct Arrivals {
    begin: Instant,
    done: Mutex<Vec<(Completion, Duration)>>,
    changed: Condvar,
}

impl Arrivals {
    fn add(&self, completions: &mut Vec<Completion>) {
        let now = self.begin.elapsed();
        self.done
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .extend(completions.drain(..).map(|completion| (completion, now)));
        self.changed.notify_one();
    }
}

impl Sink for Arrivals {
    fn complete(&self, completions: &mut Vec<Completion>) {
        self.add(completions);
    }
}

/// Runs until the time has passed or `stop` is set, and waits for the answers.
///
/// # Errors
/// There is no such export.
pub fn run(
    pool: &Pool,
    export: &str,
    spec: &PacedSpec,
    stop: &AtomicBool,
) -> Result<PacedResult, Failure> {
    let data: Payload = noise(spec.seed, 8 << 20);
    let arrivals = Arc::new(Arrivals {
        begin: Instant::now(),
        done: Mutex::default(),
        changed: Condvar::new(),
    });
    let session = pool.open(export, arrivals.clone()).map_err(|error| {
        Failure::new(
            id::BENCH_LOAD,
            format!("cannot open export '{export}'"),
            error,
        )
    })?;
    let volume = session.info().volume;
    let (block, blocks) = (
        u64::from(spec.block_bytes),
        (spec.span_bytes / u64::from(spec.block_bytes)).max(1),
    );
    let mut random = Random::new(spec.seed);
    let due = |number: u64| Duration::from_nanos(number * 1_000_000_000 / spec.per_second.max(1));
    let (mut requests, mut ready, mut result) = (Vec::new(), Vec::new(), PacedResult::default());
    let (mut sent, mut answered, mut over) = (0, 0, false);
    while !over || answered < sent {
        let now = arrivals.begin.elapsed();
        over = over || now >= spec.time || stop.load(Ordering::Relaxed) || result.errors > 0;
        while !over && due(sent) <= now {
            let offset = random.below(blocks) * block;
            let op = if spec.reads && sent % 2 == 0 {
                Op::Read {
                    offset,
                    length: spec.block_bytes,
                }
            } else {
                let at = random.below((data.len() as u64 - block) / 512) as usize * 512;
                Op::Write {
                    offset,
                    data: data.slice(at, spec.block_bytes as usize),
                    fua: false,
                }
            };
            requests.push(Request {
                id: RequestId(sent),
                volume,
                op,
            });
            sent += 1;
        }
        if !over {
            result.elapsed = now;
        }
        if !requests.is_empty() {
            session.submit(&mut requests, &mut ready);
            arrivals.add(&mut ready);
        }
        let mut done = arrivals
            .done
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if done.is_empty() {
            let patience = if over {
                Duration::from_millis(100)
            } else {
                due(sent).saturating_sub(arrivals.begin.elapsed())
            };
            done = arrivals
                .changed
                .wait_timeout(done, patience)
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .0;
        }
        for (completion, at) in done.drain(..) {
            let number = completion.id.0;
            let histogram = if spec.reads && number % 2 == 0 {
                &mut result.reads
            } else {
                &mut result.writes
            };
            histogram.record(at.saturating_sub(due(number)).as_nanos() as u64);
            if let Err(error) = completion.result {
                result.errors += 1;
                result.error = result.error.or(Some(error));
            }
            answered += 1;
        }
    }
    Ok(result)
}
