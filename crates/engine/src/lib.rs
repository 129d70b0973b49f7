//! The core of Windrow as a state machine: `apply(events) -> effects`.
//!
//! Read in this order to follow a write: `write/admit.rs` (bounds, space, order, acknowledgement),
//! `write/reduce.rs` (compression), `dedup.rs` (shared content), `write/address.rs` (the open
//! batch), `write/seal.rs` (plan, header, job, member writes), `write/commit.rs` (map and live
//! counters), `flush.rs` (durability), `journal.rs` (small flushes). A read: `read.rs` (pending
//! blocks, map, runs), `fetch.rs` (member reads, verification, rebuilding), `fetch/split.rs` (row
//! by row), `slow.rs` (around slow members). Member commands: `member/send.rs`,
//! `member/scheduler.rs` (which of them wait for others). Space: `segment.rs` (states, reuse rule),
//! `clean.rs` (victims, moves), `clean/damage.rs` (victims with wrong tables), `checkpoint.rs`
//! (images of the tables), `weight.rs` and `reduction.rs` (what data is reckoned with, and what
//! reduction saves is used for). Health: `verification.rs` and `verify.rs` (what each block of a
//! batch must be), `scrub.rs` (one batch after the other), `rebuild.rs` (members that come back),
//! `background.rs` (the pace of both). Growth: `segment/layers.rs` (which segments may be used
//! while two layouts are there), `reshape.rs`. Accounts: `status.rs`, `survey.rs` (who refers to
//! which shared content). Start: `format.rs` (a new pool), `recover/` (an existing one). Everything
//! that changes is owned by [`Engine`]; no locks, no clock, no randomness, no threads.

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
pub use fault_injection::InjectedFault;
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

/// Why the pool stopped. It never starts again by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// More members lost than the redundancy covers.
    TooManyLost,
    /// Shut down.
    Shutdown,
    /// A broken rule inside the engine: stop rather than go on.
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
    /// Takes all events and adds the effects to `out`.
    pub fn apply(&mut self, events: &mut Vec<Event>, out: &mut Outbox) {
        // Told last, it is the time of the whole group.
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
            // A member may have been taken out of use on the way.
            if !self.end_cancelled(out) {
                break;
            }
        }
        self.scheduler(out);
    }

    /// Everything that may go on after a group of events, in the order of the data's way.
    fn advance(&mut self, out: &mut Outbox) {
        if self.pool.stopped.is_some() {
            return self.refuse_waiting(out);
        }
        loop {
            self.admit_waiting(out);
            // What has waited for a page may have to be packed, or compared.
            self.send_page_reads(out);
            self.send_group(true, out);
            self.send_comparisons(out);
            // What is not what it was compared with may have to be packed after all.
            self.send_group(true, out);
            self.place(out);
            self.walk_ranges();
            self.trim_backlog();
            self.slow_step(out);
            self.rebuild_step(out);
            self.scrub_step(out);
            self.reshape_step(out);
            self.open_streams();
            self.clean_step(out);
            // (Behind what cleaning has just added: a batch that is due would wait for the next
            // event.)
            self.seal_aged(out);
            self.checkpoint_step(out);
            self.flush_round_check(out);
            // Whoever waited for a segment must not wait for another event.
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
        self.damage_step();
        self.control_step(out);
        self.hang_step(out);
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
            jobs::Work::Unpack(work) => self.part_decompressed(*work, out),
            jobs::Work::Reduce(work) => self.admission.reduced(*work),
            jobs::Work::Fingerprint(work) => self.printed(*work),
            jobs::Work::Compare(work) => self.compared(*work),
            jobs::Work::Repack(work) => self.repacked(*work),
        }
    }

    /// Stops the pool for good: every waiting and later request fails.
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
        self.cancel_all_held();
        self.refuse_waiting(out);
    }

    /// A reason to stop in words.
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

    /// Fails everything that waits: the pool has stopped.
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

    /// What a batch header says of durability.
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

    /// When the driver must send a tick at the latest.
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
        // What is overdue could not be sealed and waits for a completion, not for time.
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
            .chain(self.slow_wake_ns())
            .chain(self.drives.members.hang_wake_ns())
            .chain(self.durability.journal.wake_at_ns())
            .chain(self.aged_flush_ns())
            .min()
    }
}

/// Index into `Engine::streams` of a stream id.
pub(crate) fn stream_slot(id: usize) -> usize {
    const SLOTS: [usize; MAX_STREAMS] = [0, 3, 1, 2, 4, 5, 6, 7];
    SLOTS[id]
}
