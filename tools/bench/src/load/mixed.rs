//! Tasks of the journal study on a running pool: each has a thread and a session, draws a request
//! of its mix, waits for the answer, and continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windrow_frontend::{ExportSource, Session};
use windrow_host::Pool;
use windrow_host::failure::{Failure, id};
use windrow_io::{Completion, Op, Payload, Request, RequestError, RequestId};
use windrow_load::session::{Arrivals, NOISE_BYTES, collect, shared_noise};
use windrow_types::{BLOCK_BYTES, VolumeId};
use windrow_wa_sim::load::{Durability, Outcome};
use windrow_wa_sim::mix::Mix;
use windrow_wa_sim::rng::Rng;

/// Parameters of the load.
#[derive(Clone, Debug)]
pub struct MixedSpec {
    /// The mix of each task.
    pub tasks: Vec<Mix>,
    /// Durability of writes.
    pub durability: Durability,
    /// Used bytes of the volume.
    pub span_bytes: u64,
    /// Duration.
    pub time: Duration,
    /// Seed.
    pub seed: u64,
}

/// Runs the load. Latencies are sorted; the caller fills in the device counters.
///
/// # Errors
/// There is no such export, or a request failed.
pub fn run(pool: &Pool, export: &str, spec: &MixedSpec) -> Result<Outcome, Failure> {
    let (noise, begin, failed) = (shared_noise(), Instant::now(), AtomicBool::new(false));
    let results = std::thread::scope(|scope| {
        let task = |number: usize| {
            let (noise, failed) = (&noise, &failed);
            scope.spawn(move || {
                let result = Task::open(pool, export, spec, noise, number)
                    .and_then(|task| task.run(begin, failed));
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            })
        };
        let threads: Vec<_> = (0..spec.tasks.len()).map(task).collect();
        let panicked = |_| Err(Failure::new(id::BENCH, "a task failed", "it panicked"));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect::<Vec<_>>()
    });
    let mut sum = Outcome {
        elapsed_ns: begin.elapsed().as_nanos() as u64,
        ..Outcome::default()
    };
    for result in results {
        let part = result?;
        sum.reads.extend(part.reads);
        sum.writes.extend(part.writes);
        sum.flushes.extend(part.flushes);
        sum.read_bytes += part.read_bytes;
        sum.write_bytes += part.write_bytes;
    }
    [&mut sum.reads, &mut sum.writes, &mut sum.flushes]
        .into_iter()
        .for_each(|latencies| latencies.sort_unstable());
    Ok(sum)
}

struct Task<'a> {
    spec: &'a MixedSpec,
    mix: Mix,
    noise: &'a Payload,
    session: Box<dyn Session>,
    arrivals: Arc<Arrivals>,
    volume: VolumeId,
    rng: Rng,
    ready: Vec<Completion>,
}

impl<'a> Task<'a> {
    fn open(
        pool: &Pool,
        export: &str,
        spec: &'a MixedSpec,
        noise: &'a Payload,
        number: usize,
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
        let rng = Rng::stream(spec.seed + number as u64, "task");
        Ok(Self {
            spec,
            mix: spec.tasks[number],
            noise,
            session,
            arrivals,
            volume,
            rng,
            ready: Vec::new(),
        })
    }

    fn run(mut self, begin: Instant, failed: &AtomicBool) -> Result<Outcome, Failure> {
        let (mut outcome, mut unflushed) = (Outcome::default(), 0);
        let failure = |error: RequestError| Failure::new(id::BENCH_LOAD, "a request failed", error);
        let short = |since: Instant| u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX);
        while begin.elapsed() < self.spec.time && !failed.load(Ordering::Relaxed) {
            let (is_read, blocks) = self.mix.draw(&mut self.rng);
            let bytes = blocks * BLOCK_BYTES;
            let offset = self
                .rng
                .below(self.spec.span_bytes / BLOCK_BYTES - blocks + 1)
                * BLOCK_BYTES;
            let since = Instant::now();
            if is_read {
                self.ask(Op::Read {
                    offset,
                    length: bytes as u32,
                })
                .map_err(failure)?;
                outcome.reads.push(short(since));
                outcome.read_bytes += bytes;
                continue;
            }
            let at = self.rng.below((NOISE_BYTES as u64 - bytes) / 512) as usize * 512;
            let data = self.noise.slice(at, bytes as usize);
            self.ask(Op::Write {
                offset,
                data,
                fua: self.spec.durability == Durability::Each,
            })
            .map_err(failure)?;
            unflushed += 1;
            if let Durability::FlushAfter(after) = self.spec.durability
                && unflushed >= after
            {
                let since = Instant::now();
                self.ask(Op::Flush).map_err(failure)?;
                outcome.flushes.push(short(since));
                unflushed = 0;
            }
            outcome.writes.push(short(since));
            outcome.write_bytes += bytes;
        }
        Ok(outcome)
    }

    fn ask(&mut self, op: Op) -> Result<(), RequestError> {
        self.session.submit(
            &mut vec![Request {
                id: RequestId(0),
                volume: self.volume,
                op,
            }],
            &mut self.ready,
        );
        collect(&self.arrivals, &mut self.ready, true);
        self.ready
            .drain(..)
            .try_for_each(|completion| completion.result.map(|_| ()))
    }
}
