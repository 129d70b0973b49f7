//! The core of Windrow as a state machine: `apply(events) -> effects`.
//!
//! Reading order for a write: `write/admit.rs` (limits, space, LSNs, acknowledgement),
//! `write/reduce.rs` (compression), `dedup.rs` (shared content), `write/place.rs` (the open batch),
//! `write/seal.rs` (plan, header, job, member writes), `write/commit.rs` (map and live counters),
//! `flush.rs` (durability), `journal.rs` (small flushes).
//!
//! For a read: `read.rs` (pending blocks, map, runs), `fetch.rs` (member reads, verification,
//! reconstruction), `fetch/split.rs` (row by row), `hedge.rs` (hedged reads).
//!
//! Member commands: `member/send.rs`, `member/scheduler.rs` (command ordering).
//!
//! Space: `segment.rs` (states, reuse rule), `clean.rs` (victims, moves), `clean/damage.rs`
//! (victims with wrong tables), `checkpoint.rs` (images of the tables), `weight.rs` and
//! `reduction.rs` (charge of data, use of the savings of reduction).
//!
//! Health: `verification.rs` and `verify.rs` (expected content of each block of a batch),
//! `scrub.rs` (batch by batch), `rebuild.rs` (members that return), `background.rs` (pace of both).
//!
//! Growth: `segment/layers.rs` (usable segments while two layouts exist), `reshape.rs`. Statistics:
//! `status.rs`, `survey.rs` (references to shared content). Start: `format.rs` (a new pool),
//! `recover/` (an existing one).
//!
//! [`Engine`] owns all mutable state. It has no locks, no clock, no randomness and no threads.

pub mod api;
mod background;
mod checkpoint;
mod clean;
mod components;
mod control;
mod damage;
mod dedup;
mod ends;
mod fault_injection;
mod fetch;
mod flush;
mod format;
mod hedge;
mod jobs;
mod journal;
pub mod limits;
mod lsn;
mod map;
mod member;
mod pending;
mod piece;
mod policy;
mod pool;
mod ranges;
mod read;
mod rebuild;
mod reconstruct;
mod recover;
mod reduction;
mod reserve;
mod reshape;
mod scrub;
mod segment;
mod slab;
mod stages;
mod status;
mod stream;
mod survey;
mod verification;
mod verify;
mod volume;
mod warm;
mod weight;
mod write;

pub use api::*;
pub use dedup::{DedupStatus, DedupSums};
pub use fault_injection::InjectedBug;
pub use format::FormatError;
pub use jobs::Job;
pub use recover::{
    Loss, Losses, LostBlocks, LostLsns, OpenError, RebuildPhase, RebuildProgress, RebuildReport,
    RebuildWork, RebuiltVolume, UnreadCheckpoint,
};
pub use reduction::ReductionUse;
pub use reshape::{ReshapeStatus, ReshapeWait};
pub use stages::StageTimes;
pub use windrow_format::superblock::Reduction;
pub use windrow_policy::kind::PlacementKind;
pub use windrow_policy::select::Rule as VictimRule;
pub use write::ReductionSums;

use std::collections::VecDeque;
use windrow_io::{Completion, Reply, RequestError, RequestId};
use windrow_types::{BatchSeq, Lsn, MAX_STREAMS};
use write::Arrived;

/// Reason that the pool stopped. A stopped pool does not restart by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// More members lost than the redundancy covers.
    TooManyLost,
    /// Shut down.
    Shutdown,
    /// A broken invariant: the engine stops rather than continue on wrong state.
    Internal(&'static str),
}

/// A pool in service.
#[derive(Debug)]
pub struct Engine {
    pool: pool::Pool,
    memory: pool::Memory,

    drives: components::Drives,
    map: components::Map,
    log: components::Log,
    space: components::Space,
    durability: components::Durability,
    reads: components::Reads,
    admission: write::Admission,
    shared: dedup::Shared,
    reshape: reshape::Reshape,
    integrity: components::Integrity,
    admin: components::Admin,
    observe: components::Observe,
}

impl Engine {
    /// Applies all events and adds their effects to `out`.
    pub fn apply(&mut self, events: &mut Vec<Event>, out: &mut Outbox) {
        // A trailing tick is the time of the whole group.
        if let Some(Event::Tick(now)) = events.last() {
            self.pool.now_ns = self.pool.now_ns.max(*now);
        }
        self.look_at_load();
        self.warm_events(events);
        for event in events.drain(..) {
            match event {
                Event::Request(request) => self.request(request, out),
                Event::Member(done) => self.member_done(done, out),
                Event::Job(job) => self.job_done(job, out),
                Event::Control(request) => self.control_request(request, out),
                Event::Tick(now) => self.pool.now_ns = self.pool.now_ns.max(now),
            }
        }
        loop {
            self.end_cancelled(out);
            self.advance(out);
            // `advance` may have taken a member out of use.
            if !self.end_cancelled(out) {
                break;
            }
        }
        self.scheduler(out);
    }

    /// Advances everything that the group of events may have unblocked, in the order of the data
    /// path.
    fn advance(&mut self, out: &mut Outbox) {
        if self.pool.stopped.is_some() {
            return self.refuse_waiting(out);
        }
        loop {
            self.admit_waiting(out);
            // Blocks that waited for a page may now need compression or a comparison.
            self.send_page_reads(out);
            self.admission.send_group(&self.memory, true, out);
            self.send_comparisons(out);
            // A block that differs from its candidate may need compression after all.
            self.admission.send_group(&self.memory, true, out);
            self.place(out);
            self.walk_ranges();
            self.durability.trim_backlog(&self.pool);
            self.slow_step(out);
            self.rebuild_step(out);
            self.scrub_step(out);
            self.reshape_step(out);
            self.open_streams();
            self.clean_step(out);
            // After `clean_step`: a batch that became due there would otherwise wait for the next
            // event.
            self.seal_aged(out);
            self.checkpoint_step(out);
            self.flush_round_check(out);
            // Requests that waited for a segment must not wait for another event.
            let freed = self.free_segments(out);
            if !self.look_at_pace()
                && !freed
                && !self.scrub_goes_on()
                && !self.repairs_go_on()
                && !self.relieve_exhausted(out)
            {
                break;
            }
        }
        self.flush_aged(out);
        self.survey_step(out);
        self.integrity.damage_step();
        self.control_step(out);
        self.drives.hang_step(&self.pool, out);
        self.report_filling(out);
        out.wake_at_ns = self.next_wake();
    }

    fn job_done(&mut self, job: Job, out: &mut Outbox) {
        match job.0 {
            jobs::Work::Seal(work) => self.sealed(*work, out),
            jobs::Work::Checksum(work) => self.fetch_verified(work.fetch, work.good, out),
            jobs::Work::Rebuild(work) => self.fetch_rebuilt(*work, out),
            jobs::Work::Verify(work) => self.verified(*work, out),
            jobs::Work::Journal(work) => self.record_encoded(*work, out),
            jobs::Work::Decompress(work) => self.part_decompressed(*work, out),
            jobs::Work::Reduce(work) => self.admission.reduced(*work),
            jobs::Work::Fingerprint(work) => self.printed(*work),
            jobs::Work::Compare(work) => self.compared(*work),
            jobs::Work::Repack(work) => self.repacked(*work),
        }
    }

    /// Stops the pool for good: waiting and later requests fail.
    pub(crate) fn stop(&mut self, reason: StopReason, out: &mut Outbox) {
        if self.pool.stopped.is_some() {
            return;
        }
        if reason != StopReason::Shutdown {
            out.notices.push(Notice::Stopped {
                reason: self.stop_text(&reason),
            });
        }
        self.pool.stopped = Some(reason);
        self.drives.cancel_all_held();
        self.refuse_waiting(out);
    }

    /// Reason to stop, as text.
    pub(crate) fn stop_text(&self, reason: &StopReason) -> String {
        match reason {
            StopReason::TooManyLost => {
                let has_data = |at: &usize| {
                    self.pool
                        .zones
                        .zones()
                        .iter()
                        .any(|zone| zone.members >> at & 1 == 1)
                };
                let is_lost = |at: &usize| {
                    !self.drives.members.list[*at].online
                        || self.drives.members.list[*at].rebuilding
                };
                let lost: Vec<String> = (0..self.drives.members.list.len())
                    .filter(|at| has_data(at) && is_lost(at))
                    .map(|at| at.to_string())
                    .collect();
                format!(
                    "more members are lost than the redundancy covers (member {})",
                    lost.join(", ")
                )
            }
            StopReason::Internal(what) => format!("internal fault: {what}"),
            StopReason::Shutdown => "it was shut down".to_owned(),
        }
    }

    /// True after a fault or a completed shutdown.
    pub fn is_stopped(&self) -> bool {
        self.pool.stopped.is_some()
    }

    fn fail(&self, id: RequestId, error: RequestError, out: &mut Outbox) {
        out.completions.push(Completion {
            id,
            result: Err(error),
            lsns: None,
        });
    }

    fn answer(&self, id: RequestId, lsns: Option<(Lsn, Lsn)>, out: &mut Outbox) {
        out.completions.push(Completion {
            id,
            result: Ok(Reply::Done),
            lsns,
        });
    }

    /// Fails everything that waits; called once the pool has stopped.
    fn refuse_waiting(&mut self, out: &mut Outbox) {
        let waiting: VecDeque<_> = std::mem::take(&mut self.admission.waiting);
        for Arrived { request, .. } in waiting {
            self.fail(request.id, RequestError::Stopped, out);
        }
        for Arrived { request, .. } in self.admission.take_locked() {
            self.fail(request.id, RequestError::Stopped, out);
        }
        for id in self.admission.take_begun() {
            self.fail(id, RequestError::Stopped, out);
        }
        for waiter in self.durability.flush.take_waiters() {
            waiter.fail(out);
        }
        self.control_refuse(out);
    }

    /// Durable batch sequence numbers per stream, for a batch header.
    pub(crate) fn flushed_seqs(&self) -> [BatchSeq; MAX_STREAMS] {
        let mut seqs = [BatchSeq(0); MAX_STREAMS];
        for stream in &self.log.streams {
            seqs[stream.id] = stream.durable;
        }
        seqs
    }

    /// The stream with index `id`.
    pub(crate) fn stream_mut(&mut self, id: usize) -> &mut stream::Stream {
        &mut self.log.streams[stream_slot(id)]
    }

    pub(crate) fn stream(&self, id: usize) -> &stream::Stream {
        &self.log.streams[stream_slot(id)]
    }

    /// Latest time at which the driver must send a tick.
    fn next_wake(&self) -> Option<u64> {
        if self.map.ranges.has_walks() || !self.integrity.survey.is_idle() {
            return Some(self.pool.now_ns);
        }
        let open = self
            .log
            .streams
            .iter()
            .filter(|s| !s.open.is_empty() && s.id != limits::STREAM_CHECKPOINT);
        let due = open.map(|s| self.open_batch_due_ns(s.id));
        // An overdue batch could not be sealed: it waits for a completion, not for time.
        due.filter(|due| *due > self.pool.now_ns)
            .chain(self.integrity.scrub.wake_at_ns(self.pool.now_ns))
            .chain(self.integrity.rebuild.wake_at_ns(self.pool.now_ns))
            .chain(
                self.space
                    .cleaner
                    .cleaning_goes_on()
                    .then_some(self.pool.now_ns),
            )
            .chain(self.reshape.wake_at_ns(self.pool.now_ns))
            .chain(self.reads.slow_wake_ns(&self.pool))
            .chain(self.drives.members.hang_wake_ns())
            .chain(self.durability.journal.wake_at_ns())
            .chain(self.durability.aged_flush_ns(&self.pool))
            .min()
    }
}

/// Index into `Engine::streams` of a stream id.
pub(crate) fn stream_slot(id: usize) -> usize {
    const SLOTS: [usize; MAX_STREAMS] = [0, 3, 1, 2, 4, 5, 6, 7];
    SLOTS[id]
}
