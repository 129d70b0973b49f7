//! The engine: three floors, and what they do after each group of events.

mod control;
mod dispatch;
pub(crate) mod format;
mod status;

use crate::path;
use crate::path::write::Arrived;
use crate::store::events::{Event, Outbox};
use crate::store::pool::StopReason;
use crate::upkeep;
use std::collections::VecDeque;
use windrow_io::RequestError;

/// Commands that change the pool.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    pub(crate) control: control::ControlState,
}

/// A pool in service.
#[derive(Debug)]
pub struct Engine {
    pub(crate) core: path::Core,
    pub(crate) upkeep: upkeep::Upkeep,
    pub(crate) admin: Admin,
}

impl Engine {
    /// Applies all events and adds their effects to `out`.
    pub fn apply(&mut self, events: &mut Vec<Event>, out: &mut Outbox) {
        // A trailing tick is the time of the whole group.
        if let Some(Event::Tick(now)) = events.last() {
            self.core.store.pool.now_ns = self.core.store.pool.now_ns.max(*now);
        }
        self.look_at_load();
        self.core.store.warm_events(events);
        for event in events.drain(..) {
            match event {
                Event::Request(request) => {
                    self.core.paths.request(request, &mut self.core.store, out)
                }
                Event::Member(done) => self.member_done(done, out),
                Event::Job(job) => self.job_done(job, out),
                Event::Control(request) => self.control_request(request, out),
                Event::Tick(now) => {
                    self.core.store.pool.now_ns = self.core.store.pool.now_ns.max(now)
                }
            }
            self.upkeep.after_rounds(&mut self.core, out);
            if self.core.store.pool.stopped.is_some() {
                self.refuse_waiting(out);
            }
        }
        loop {
            self.end_cancelled(out);
            self.advance(out);
            if self.core.store.pool.stopped.is_some() {
                self.refuse_waiting(out);
            }
            // `advance` may have taken a member out of use.
            if !self.end_cancelled(out) {
                break;
            }
        }
        self.upkeep.forget_reopened(&mut self.core);
        self.send_scheduled(out);
    }

    /// Advances everything that the group of events may have unblocked, in the order of the data
    /// path.
    fn advance(&mut self, out: &mut Outbox) {
        if self.core.store.pool.stopped.is_some() {
            return self.refuse_waiting(out);
        }
        let Self { core, upkeep, .. } = self;
        loop {
            if core.store.pool.stopped.is_some() {
                return self.refuse_waiting(out);
            }
            core.paths.admit_waiting(&mut core.store, out);
            upkeep.after_rounds(core, out);
            // Blocks that waited for a page may now need compression or a comparison.
            core.paths.send_page_reads(&mut core.store, out);
            core.paths
                .admission
                .send_group(&core.store.memory, true, out);
            core.paths.send_comparisons(&mut core.store, out);
            // A block that differs from its candidate may need compression after all.
            core.paths
                .admission
                .send_group(&core.store.memory, true, out);
            core.paths.place(&mut core.store, out);
            core.paths.walk_ranges(&mut core.store);
            core.paths.durability.trim_backlog(&core.store.pool);
            core.store.slow_step(out);
            upkeep.rebuild_step(core, out);
            upkeep.scrub_step(core, out);
            upkeep.reshape_step(core, out);
            core.paths.open_streams(&mut core.store);
            upkeep.clean_step(core, out);
            // After `clean_step`: a batch that became due there would otherwise wait for the next
            // event.
            core.paths.seal_aged(&mut core.store, out);
            upkeep.checkpoint_step(core, out);
            upkeep.check_flush_round(core, out);
            // Requests that waited for a segment must not wait for another event.
            let freed = upkeep.free_segments(core, out);
            if !core.paths.look_at_pace(&mut core.store)
                && !freed
                && !upkeep.scrub_goes_on(core)
                && !upkeep.repairs_go_on(core)
                && !upkeep.relieve_exhausted(core, out)
            {
                break;
            }
        }
        core.paths.flush_aged(&mut core.store, out);
        upkeep.after_rounds(core, out);
        upkeep.survey_step(core, out);
        let no_survey = upkeep.integrity.survey.is_idle(&core.paths.damage.contents);
        core.paths.damage.step(no_survey);
        self.control_step(out);
        let Self { core, upkeep, .. } = self;
        upkeep.after_rounds(core, out);
        core.store.drives.hang_step(&core.store.pool, out);
        self.report_filling(out);
        out.wake_at_ns = self.next_wake();
    }

    /// Stops the pool for good: waiting and later requests fail.
    pub(crate) fn stop(&mut self, reason: StopReason, out: &mut Outbox) {
        self.core.store.halt(reason, out);
        self.refuse_waiting(out);
    }

    /// True after a fault or a completed shutdown.
    pub fn is_stopped(&self) -> bool {
        self.core.store.pool.stopped.is_some()
    }

    /// Fails everything that waits: the pool has stopped. (Once more is harmless.)
    fn refuse_waiting(&mut self, out: &mut Outbox) {
        let waiting: VecDeque<_> = std::mem::take(&mut self.core.paths.admission.waiting);
        for Arrived { request, .. } in waiting {
            out.fail(request.id, RequestError::Stopped);
        }
        for Arrived { request, .. } in self.core.paths.admission.take_locked() {
            out.fail(request.id, RequestError::Stopped);
        }
        for id in self.core.paths.admission.take_begun() {
            out.fail(id, RequestError::Stopped);
        }
        for waiter in self.core.paths.durability.flush.take_waiters() {
            waiter.fail(out);
        }
        self.control_refuse(out);
    }

    /// Latest time at which the driver must send a tick.
    fn next_wake(&self) -> Option<u64> {
        if self.core.paths.ranges.has_walks()
            || !self
                .upkeep
                .integrity
                .survey
                .is_idle(&self.core.paths.damage.contents)
        {
            return Some(self.core.store.pool.now_ns);
        }
        let open = self
            .core
            .paths
            .log
            .streams
            .iter()
            .filter(|s| !s.open.is_empty() && s.id != crate::base::limits::STREAM_CHECKPOINT);
        let due = open.map(|s| self.core.paths.open_batch_due_ns(s.id, &self.core.store));
        // An overdue batch could not be sealed: it waits for a completion, not for time.
        due.filter(|due| *due > self.core.store.pool.now_ns)
            .chain(
                self.upkeep
                    .integrity
                    .scrub
                    .wake_at_ns(self.core.store.pool.now_ns),
            )
            .chain(
                self.upkeep
                    .integrity
                    .rebuild
                    .wake_at_ns(self.core.store.pool.now_ns),
            )
            .chain(
                self.core
                    .paths
                    .space
                    .cleaner
                    .cleaning_goes_on()
                    .then_some(self.core.store.pool.now_ns),
            )
            .chain(self.upkeep.reshape.wake_at_ns(self.core.store.pool.now_ns))
            .chain(self.core.store.reads.slow_wake_ns(&self.core.store.pool))
            .chain(self.core.store.drives.members.hang_wake_ns())
            .chain(self.core.paths.durability.journal.wake_at_ns())
            .chain(
                self.core
                    .paths
                    .durability
                    .aged_flush_ns(&self.core.store.pool),
            )
            .min()
    }
}
