//! Event-driven random reads in process: the thread that delivers completions submits the next
//! reads at once, so that no load thread has to be woken. (The load of the module `session` uses
//! waiting threads, like programs with blocking calls.)
//!
//! A submission may itself complete reads, on the same thread: one call submits at a time, and
//! checks again before it returns.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use windrow_frontend::{ExportSource, Session, Sink};
use windrow_host::Pool;
use windrow_host::failure::{Failure, id};
use windrow_io::{Completion, Op, Request, RequestId};
use windrow_load::random::Random;
use windrow_load::session::LoadResult;
use windrow_types::VolumeId;

/// Parameters of the reads.
#[derive(Clone, Copy, Debug)]
pub struct ChainedReads {
    /// Length and alignment of the reads.
    pub block_bytes: u32,
    /// Used bytes of the volume.
    pub span_bytes: u64,
    /// Number of reads in flight.
    pub depth: usize,
    /// Duration.
    pub time: Duration,
    /// Seed.
    pub seed: u64,
}

/// Runs the load against an export.
///
/// # Errors
/// There is no such export.
pub fn run(pool: &Pool, export: &str, spec: &ChainedReads) -> Result<LoadResult, Failure> {
    let chain = Arc::new(Chain {
        spec: *spec,
        begin: Instant::now(),
        state: Mutex::new(State::new(spec)),
        ended: Condvar::new(),
    });
    let session = pool.open(export, chain.clone()).map_err(|error| {
        Failure::new(
            id::BENCH_LOAD,
            format!("cannot open export '{export}'"),
            error,
        )
    })?;
    let volume = session.info().volume;
    let mut state = chain.state();
    state.volume = volume;
    state.session = Some(session.into());
    state.free.extend(0..spec.depth as u64);
    let mut state = chain.go_on(state);
    while state.free.len() < spec.depth {
        state = chain
            .ended
            .wait(state)
            .unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    state.result.elapsed = chain.begin.elapsed();
    // Session and sink hold references to each other until here.
    let session = state.session.take();
    let result = std::mem::take(&mut state.result);
    drop(state);
    drop(session);
    Ok(result)
}

struct State {
    session: Option<Arc<dyn Session>>,
    volume: VolumeId,
    random: Random,
    /// Slots without a read in flight.
    free: Vec<u64>,
    /// Start time of each slot's read, in nanoseconds from the beginning.
    starts: Vec<u64>,
    /// True while a call submits; it checks again before it returns.
    submitting: bool,
    requests: Vec<Request>,
    ready: Vec<Completion>,
    result: LoadResult,
}

impl State {
    fn new(spec: &ChainedReads) -> Self {
        Self {
            session: None,
            volume: VolumeId(0),
            random: Random::new(spec.seed),
            free: Vec::with_capacity(spec.depth),
            starts: vec![0; spec.depth],
            submitting: false,
            requests: Vec::with_capacity(spec.depth),
            ready: Vec::with_capacity(spec.depth),
            result: LoadResult::default(),
        }
    }
}

/// The load, as sink of its own session.
struct Chain {
    spec: ChainedReads,
    begin: Instant,
    state: Mutex<State>,
    ended: Condvar,
}

impl Chain {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn arrive(&self, state: &mut State, completions: &mut Vec<Completion>) {
        let now = self.now_ns();
        for completion in completions.drain(..) {
            let slot = completion.id.0;
            state.result.requests += 1;
            state.result.bytes += u64::from(self.spec.block_bytes);
            state
                .result
                .latency
                .record(now.saturating_sub(state.starts[slot as usize]));
            if let Err(error) = completion.result {
                state.result.errors += 1;
                state.result.error = state.result.error.or(Some(error));
            }
            state.free.push(slot);
        }
    }

    /// Submits a read for each free slot, unless another call is submitting or the load is over.
    fn go_on<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let blocks = (self.spec.span_bytes / u64::from(self.spec.block_bytes)).max(1);
        let Some(session) = state
            .session
            .clone()
            .filter(|_| !std::mem::replace(&mut state.submitting, true))
        else {
            return state;
        };
        loop {
            let now = self.now_ns();
            let over = state.result.errors > 0
                || (u128::from(now) >= self.spec.time.as_nanos() && state.result.requests > 0);
            if over || state.free.is_empty() {
                break;
            }
            let mut requests = std::mem::take(&mut state.requests);
            while let Some(slot) = state.free.pop() {
                let offset = state.random.below(blocks) * u64::from(self.spec.block_bytes);
                state.starts[slot as usize] = now;
                requests.push(Request {
                    id: RequestId(slot),
                    volume: state.volume,
                    op: Op::Read {
                        offset,
                        length: self.spec.block_bytes,
                    },
                });
            }
            let mut ready = std::mem::take(&mut state.ready);
            drop(state);
            session.submit(&mut requests, &mut ready);
            state = self.state();
            self.arrive(&mut state, &mut ready);
            (state.requests, state.ready) = (requests, ready);
        }
        state.submitting = false;
        state
    }
}

impl Sink for Chain {
    fn complete(&self, completions: &mut Vec<Completion>) {
        let mut state = self.state();
        self.arrive(&mut state, completions);
        let state = self.go_on(state);
        if state.free.len() == self.spec.depth {
            self.ended.notify_one();
        }
    }
}
