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
mod commands;
mod components;
mod control;
mod damage;
mod dedup;
mod dispatch;
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
use windrow_io::RequestError;
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
                Event::Request(request) => {
                    self.request(request, out);
                    self.after_rounds(out);
                }
                Event::Member(done) => self.member_done(done, out),
                Event::Job(job) => self.job_done(job, out),
                Event::Control(request) => {
                    self.control_request(request, out);
                    self.after_rounds(out);
                }
                Event::Tick(now) => self.pool.now_ns = self.pool.now_ns.max(now),
            }
            if self.pool.stopped.is_some() {
                self.refuse_waiting(out);
            }
        }
        loop {
            self.end_cancelled(out);
            self.advance(out);
            if self.pool.stopped.is_some() {
                self.refuse_waiting(out);
            }
            // `advance` may have taken a member out of use.
            if !self.end_cancelled(out) {
                break;
            }
        }
        self.forget_reopened();
        self.send_scheduled(out);
    }

    /// Advances everything that the group of events may have unblocked, in the order of the data
    /// path.
    fn advance(&mut self, out: &mut Outbox) {
        if self.pool.stopped.is_some() {
            return self.refuse_waiting(out);
        }
        loop {
            self.admit_waiting(out);
            self.after_rounds(out);
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
            self.check_flush_round(out);
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
        self.after_rounds(out);
        self.survey_step(out);
        let no_survey = self.integrity.survey.is_idle(&self.map.damage.contents);
        self.map.damage.step(no_survey);
        self.control_step(out);
        self.after_rounds(out);
        self.drives.hang_step(&self.pool, out);
        self.report_filling(out);
        out.wake_at_ns = self.next_wake();
    }

    /// Stops the pool for good: waiting and later requests fail.
    pub(crate) fn stop(&mut self, reason: StopReason, out: &mut Outbox) {
        self.halt(reason, out);
        self.refuse_waiting(out);
    }

    /// True after a fault or a completed shutdown.
    pub fn is_stopped(&self) -> bool {
        self.pool.stopped.is_some()
    }

    /// Fails everything that waits; called once the pool has stopped.
    fn refuse_waiting(&mut self, out: &mut Outbox) {
        let waiting: VecDeque<_> = std::mem::take(&mut self.admission.waiting);
        for Arrived { request, .. } in waiting {
            out.fail(request.id, RequestError::Stopped);
        }
        for Arrived { request, .. } in self.admission.take_locked() {
            out.fail(request.id, RequestError::Stopped);
        }
        for id in self.admission.take_begun() {
            out.fail(id, RequestError::Stopped);
        }
        for waiter in self.durability.flush.take_waiters() {
            waiter.fail(out);
        }
        self.control_refuse(out);
    }

    /// Latest time at which the driver must send a tick.
    fn next_wake(&self) -> Option<u64> {
        if self.map.ranges.has_walks() || !self.integrity.survey.is_idle(&self.map.damage.contents)
        {
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
