//! Synchronous writers: each has a thread and a session, writes a few blocks, makes them durable,
//! and then continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windrow_frontend::{ExportSource, Session};
use windrow_host::failure::{Failure, id};
use windrow_host::{Histogram, Pool};
use windrow_io::{Completion, Op, Payload, Request, RequestError, RequestId};
use windrow_load::random::Random;
use windrow_load::session::{Arrivals, NOISE_BYTES, collect, diluted};
use windrow_types::{BLOCK_BYTES, VolumeId};

/// Writes of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// This number of random blocks, submitted together, then a flush.
    Flush(u32),
    /// One random block with FUA.
    Fua,
    /// Like a database with a write-ahead log: one appended block, the header rewritten, then a
    /// flush.
    Log,
}

impl Commit {
    /// Number of blocks of each commit.
    pub fn blocks(self) -> u64 {
        match self {
            Self::Flush(blocks) => u64::from(blocks),
            Self::Fua => 1,
            Self::Log => 2,
        }
    }
}

/// Parameters of the load.
#[derive(Clone, Copy, Debug)]
pub struct SyncSpec {
    /// Number of writers.
    pub writers: usize,
    /// Commit that each writer repeats.
    pub commit: Commit,
    /// Used bytes of the volume.
    pub span_bytes: u64,
    /// Random part of the written data, in per cent.
    pub random_percent: u32,
    /// Duration.
    pub time: Duration,
    /// Seed.
    pub seed: u64,
}

/// Results.
#[derive(Clone, Debug, Default)]
pub struct SyncResult {
    /// Number of commits: each is one flush, or one FUA write.
    pub commits: u64,
    /// Number of blocks written.
    pub blocks: u64,
    /// Elapsed time.
    pub elapsed: Duration,
    /// From the first write of a commit to the end of its flush.
    pub latency: Histogram,
    /// Reason that a request failed.
    pub error: Option<RequestError>,
}

impl SyncResult {
    /// Blocks written per second.
    pub fn writes_per_second(&self) -> f64 {
        self.blocks as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Commits per second.
    pub fn commits_per_second(&self) -> f64 {
        self.commits as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Bytes that a writer of [`Commit::Log`] appends before it starts again after its header.
const LOG_BYTES: u64 = 4 << 20;

/// Runs it until the time has passed or `stop` is set; each writer commits at least once.
///
/// # Errors
/// There is no such export, or a request failed.
pub fn run(
    pool: &Pool,
    export: &str,
    spec: &SyncSpec,
    stop: &AtomicBool,
) -> Result<SyncResult, Failure> {
    let noise = diluted(spec.random_percent);
    let begin = Instant::now();
    let results = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..spec.writers as u64)
            .map(|number| {
                let noise = &noise;
                scope.spawn(move || {
                    Writer::open(pool, export, spec, noise, number)
                        .map(|writer| writer.run(begin, stop))
                })
            })
            .collect();
        let panicked = |_| Err(Failure::new(id::BENCH, "a writer failed", "it panicked"));
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap_or_else(panicked))
            .collect::<Vec<_>>()
    });
    let mut sum = SyncResult::default();
    for result in results {
        let part = result?;
        sum.commits += part.commits;
        sum.blocks += part.blocks;
        sum.elapsed = sum.elapsed.max(part.elapsed);
        sum.latency.merge(&part.latency);
        sum.error = sum.error.or(part.error);
    }
    match sum.error {
        None => Ok(sum),
        Some(error) => Err(Failure::new(
            id::BENCH_LOAD,
            "a synchronous write failed",
            pool.stop_reason().unwrap_or(error.to_string()),
        )),
    }
}

struct Writer<'a> {
    spec: &'a SyncSpec,
    noise: &'a Payload,
    session: Box<dyn Session>,
    arrivals: Arc<Arrivals>,
    volume: VolumeId,
    random: Random,
    /// First block and number of blocks of its part of the span.
    part: (u64, u64),
    /// Number of blocks appended.
    appended: u64,
    requests: Vec<Request>,
    ready: Vec<Completion>,
}

impl<'a> Writer<'a> {
    fn open(
        pool: &Pool,
        export: &str,
        spec: &'a SyncSpec,
        noise: &'a Payload,
        number: u64,
    ) -> Result<Self, Failure> {
        let arrivals = Arc::new(Arrivals::default());
        let session = pool.open(export, arrivals.clone()).map_err(|error| {
            Failure::new(
                id::BENCH_LOAD,
                format!("cannot open export '{export}'"),
                error,
            )
        })?;
        let volume = session.info().volume;
        let random = Random::new(spec.seed ^ (number + 1).wrapping_mul(0x1234_5678_9abc_def1));
        let blocks = (spec.span_bytes / BLOCK_BYTES / spec.writers as u64).max(2);
        let part = (number * blocks, blocks.min(LOG_BYTES / BLOCK_BYTES));
        Ok(Self {
            spec,
            noise,
            session,
            arrivals,
            volume,
            random,
            part,
            appended: 0,
            requests: Vec::new(),
            ready: Vec::new(),
        })
    }

    fn run(mut self, begin: Instant, stop: &AtomicBool) -> SyncResult {
        let mut result = SyncResult::default();
        loop {
            let start = begin.elapsed();
            let outcome = self.commit();
            result.elapsed = begin.elapsed();
            if let Err(error) = outcome {
                result.error = Some(error);
                return result;
            }
            result.commits += 1;
            result.blocks += self.spec.commit.blocks();
            result
                .latency
                .record((result.elapsed - start).as_nanos() as u64);
            if result.elapsed >= self.spec.time || stop.load(Ordering::Relaxed) {
                return result;
            }
        }
    }

    fn commit(&mut self) -> Result<(), RequestError> {
        match self.spec.commit {
            Commit::Fua => {
                self.write_at_random(true);
                return self.wait_for_all();
            }
            Commit::Flush(blocks) => (0..blocks).for_each(|_| self.write_at_random(false)),
            Commit::Log => {
                let (first, blocks) = self.part;
                let frame = first + 1 + self.appended % (blocks - 1);
                self.appended += 1;
                self.write(frame, false);
                self.write(first, false);
            }
        }
        self.wait_for_all()?;
        self.requests.push(Request {
            id: RequestId(0),
            volume: self.volume,
            op: Op::Flush,
        });
        self.wait_for_all()
    }

    fn write_at_random(&mut self, fua: bool) {
        let block = self
            .random
            .below((self.spec.span_bytes / BLOCK_BYTES).max(1));
        self.write(block, fua);
    }

    fn write(&mut self, block: u64, fua: bool) {
        let at = self.random.below((NOISE_BYTES as u64 - BLOCK_BYTES) / 512) as usize * 512;
        let op = Op::Write {
            offset: block * BLOCK_BYTES,
            data: self.noise.slice(at, BLOCK_BYTES as usize),
            fua,
        };
        self.requests.push(Request {
            id: RequestId(self.requests.len() as u64),
            volume: self.volume,
            op,
        });
    }

    /// Submits the prepared requests, and waits for all answers.
    fn wait_for_all(&mut self) -> Result<(), RequestError> {
        let mut left = self.requests.len();
        self.session.submit(&mut self.requests, &mut self.ready);
        while left > 0 {
            collect(&self.arrivals, &mut self.ready, true);
            left -= self.ready.len();
            for completion in self.ready.drain(..) {
                completion.result?;
            }
        }
        Ok(())
    }
}
