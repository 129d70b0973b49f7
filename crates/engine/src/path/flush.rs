//! Flush: makes everything acknowledged before it durable.
//!
//! 1. A flush notes the newest LSN given (its horizon). It has the open user batch sealed if that
//!    holds LSNs up to the horizon, as soon as no worker compresses blocks of the oldest waiter.
//! 2. When everything up to the horizon of the oldest waiter is committed, a *round* begins. It
//!    notes the committed LSN, and flushes every member that has completed writes which no flush
//!    covers. Flushes that arrive meanwhile share the next round. In a pool with a journal most
//!    waiters are served from there (`journal.rs`); steps 2 and 3 then serve only the rest.
//! 3. When all its member flushes have ended, the noted LSN is durable, and the waiters up to it
//!    are answered. A failed member flush takes the member out of service; the answer waits until
//!    that loss is recorded on the other members.
//!
//! Data that no flush has covered for the pool's `flush_age_ms` is flushed as if a client had asked
//! for it: an idle pool has nothing at risk.
//!
//! Rounds also begin without waiters: when dead segments or a checkpoint wait for durability, and
//! when the log has grown by [`UNFLUSHED_LOG_BYTES`] since the last one.

mod rebuilt;

use crate::api::{ControlCompletion, ControlId, ControlReply};
use crate::base::limits::{STREAMS, UNFLUSHED_LOG_BYTES};
use crate::base::stages::Stage;
use crate::path::{Durability, Paths};
use crate::store::events::Outbox;
use crate::store::member::Purpose;
use crate::store::pool::Pool;
use crate::store::{Store, stream};
use rebuilt::Rebuilt;
use std::collections::VecDeque;
use windrow_format::checkpoint::SyncMode;
use windrow_io::{Completion, MemberOp, Reply, RequestError, RequestId};
use windrow_types::{BatchSeq, Lsn, MemberId, SegmentId, VolumeId};

/// Actor that waits for durability.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A flush or FUA request.
    Request {
        id: RequestId,
        lsns: Option<(Lsn, Lsn)>,
    },
    /// A control request.
    Control { id: ControlId, reply: ControlReply },
    /// The age limit of data at risk.
    Age,
}

/// A waiter and its horizon.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) horizon: Lsn,
    waiter: Waiter,
    /// Arrival time, until a round begins for it.
    since_ns: Option<u64>,
}

impl Waiting {
    fn answer(self, out: &mut Outbox) {
        match self.waiter {
            Waiter::Request { id, lsns } => out.completions.push(Completion {
                id,
                result: Ok(Reply::Done),
                lsns,
            }),
            Waiter::Control { id, reply } => out.control.push(ControlCompletion {
                id,
                result: Ok(reply),
            }),
            Waiter::Age => {}
        }
    }

    pub(crate) fn fail(self, out: &mut Outbox) {
        match self.waiter {
            Waiter::Request { id, .. } => out.completions.push(Completion {
                id,
                result: Err(RequestError::Stopped),
                lsns: None,
            }),
            Waiter::Control { id, .. } => out.control.push(ControlCompletion {
                id,
                result: Err(crate::api::ControlError::Stopped),
            }),
            Waiter::Age => {}
        }
    }
}

/// A round in progress.
#[derive(Debug)]
struct Round {
    through: Lsn,
    seqs: [BatchSeq; STREAMS.len()],
    /// Last batch of moved blocks that the round covers.
    moves: BatchSeq,
    left: u32,
    /// Time at which its member flushes began, if there are any.
    since_ns: Option<u64>,
}

/// State of flushing.
#[derive(Debug, Default)]
pub(crate) struct FlushState {
    /// Oldest first; horizons ascend.
    waiters: VecDeque<Waiting>,
    round: Option<Round>,
    /// Number of rounds begun, and the newest that ended well.
    begun: u64,
    ended: u64,
    /// True if something other than a waiter needs a round.
    wanted: bool,
    /// Log bytes when the last round began.
    log_bytes_at_round: u64,
    /// An LSN, and the time since which the LSNs up to it are at risk unless durable.
    aging: Option<(Lsn, u64)>,
    /// True if a round has ended and what waits for rounds has not been continued.
    has_ended: bool,
    /// Segments that rebuilds have written.
    pub(crate) rebuilt: Rebuilt,
}

impl FlushState {
    /// One line for a diagnosis.
    pub(crate) fn describe(&self) -> String {
        format!(
            "flush waiters {} (first {:?}), round {:?}, wanted {}",
            self.waiters.len(),
            self.waiters.front().map(|w| w.horizon),
            self.round,
            self.wanted
        )
    }

    /// True if a round has ended and what waits for it has not been continued.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// True once after each round that has ended.
    pub(crate) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.has_ended)
    }

    fn round_begins(&mut self, now_ns: u64) {
        self.rebuilt.round_begins(self.begun, self.ended, now_ns);
    }

    /// Forgets the rebuilt segments: no member is being rebuilt.
    pub(crate) fn forget_rebuilt(&mut self) {
        self.rebuilt = Rebuilt::default();
    }

    /// Takes the rebuilt segments that are durable.
    pub(crate) fn take_rebuilt(&mut self) -> Vec<(SegmentId, u64)> {
        self.rebuilt.take(self.ended)
    }

    /// Asks for a round of flushes without a waiter.
    pub(crate) fn request(&mut self) {
        self.wanted = true;
    }

    /// The waiters, to be refused.
    pub(crate) fn take_waiters(&mut self) -> VecDeque<Waiting> {
        std::mem::take(&mut self.waiters)
    }

    /// True while members are being flushed.
    pub(crate) fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.round.is_none()
    }
}

impl Durability {
    /// Time at which data at risk is flushed, unless a flush comes first.
    pub(crate) fn aged_flush_ns(&self, pool: &Pool) -> Option<u64> {
        let age_ms = u64::from(pool.superblock.properties.flush_age_ms);
        self.flush
            .aging
            .filter(|_| age_ms > 0)
            .map(|(_, since_ns)| since_ns + age_ms * 1_000_000)
    }
}

impl Paths {
    /// Begins a generation of the superblock if one is requested and none is being written.
    pub(crate) fn superblock_step(&mut self, store: &mut Store, out: &mut Outbox) {
        store.superblock_step(self.durability.durable_lsn(), out);
    }

    /// Handles a flush request.
    pub(crate) fn flush_request(
        &mut self,
        id: RequestId,
        volume: VolumeId,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if store.pool.read_only || store.volumes.sync_of(volume) == SyncMode::Disabled {
            return out.answer(id, None);
        }
        let horizon = self.durability.lsns.last();
        self.flush_through(horizon, Waiter::Request { id, lsns: None }, store, out);
    }

    /// Answers `waiter` when everything up to `horizon` is durable.
    pub(crate) fn flush_through(
        &mut self,
        horizon: Lsn,
        waiter: Waiter,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if matches!(waiter, Waiter::Request { .. }) {
            store.drives.note_prompt(&store.pool);
        }
        let waiting = Waiting {
            horizon,
            waiter,
            since_ns: Some(store.pool.now_ns),
        };
        self.listen(store);
        if horizon <= self.durability.durable_lsn() && !store.drives.members.unrecorded_loss {
            return self.answer_waiting(waiting, store, out);
        }
        // Horizons ascend, except that a FUA write waits for its own LSN only.
        let at = self
            .durability
            .flush
            .waiters
            .iter()
            .rposition(|w| w.horizon <= horizon)
            .map_or(0, |i| i + 1);
        self.durability.flush.waiters.insert(at, waiting);
        self.place(store, out);
        self.flush_round_check(store, out);
    }

    /// Flushes data that has been at risk for the age limit of the pool.
    pub(crate) fn flush_aged(&mut self, store: &mut Store, out: &mut Outbox) {
        let (newest, durable_lsn) = (self.durability.lsns.last(), self.durability.durable_lsn());
        if newest <= durable_lsn || store.pool.read_only {
            self.durability.flush.aging = None;
            return;
        }
        let (through, since_ns) = self
            .durability
            .flush
            .aging
            .filter(|(through, _)| *through > durable_lsn)
            .unwrap_or((newest, store.pool.now_ns));
        self.durability.flush.aging = Some((through, since_ns));
        if self
            .durability
            .aged_flush_ns(&store.pool)
            .is_some_and(|due| store.pool.now_ns >= due)
        {
            self.durability.flush.aging = Some((newest, store.pool.now_ns));
            // One at a time: an unresponsive member answers none of them.
            if !self
                .durability
                .flush
                .waiters
                .iter()
                .any(|waiting| matches!(waiting.waiter, Waiter::Age))
            {
                self.flush_through(newest, Waiter::Age, store, out);
            }
        }
    }

    /// Seals the open user batch if a waiter needs it, and begins a round if one is due.
    pub(crate) fn flush_round_check(&mut self, store: &mut Store, out: &mut Outbox) {
        if store.pool.stopped.is_some() {
            return;
        }
        self.end_journal_round(store, out);
        if !store.drives.members.unrecorded_loss {
            // Waiters that arrived while a loss was being recorded may already be durable.
            self.answer_waiters(store, out);
        }
        let newest = self.durability.flush.waiters.back().map(|w| w.horizon);
        if let Some(horizon) = newest {
            self.serve_waiters(horizon, store, out);
        }
        let log_needs = self.log_needs(store);
        if let Some(needed) = log_needs
            .or(newest.filter(|horizon| self.durability.journal.is_served_by_log(*horizon)))
            && !self
                .durability
                .flush
                .waiters
                .front()
                .is_some_and(|waiting| self.admission.is_reducing(waiting.horizon))
        {
            self.seal_users(needed, store, out);
        }
        if self.durability.flush.round.is_some() || store.drives.members.unrecorded_loss {
            return;
        }
        let committed = self.durability.lsns.committed();
        let waited = |w: &Waiting| {
            w.horizon <= committed && self.durability.journal.is_served_by_log(w.horizon)
        };
        let due = self.durability.flush.waiters.front().is_some_and(waited)
            || log_needs.is_some_and(|needed| needed <= committed);
        let much = store.observe.counters.log_bytes - self.durability.flush.log_bytes_at_round
            >= UNFLUSHED_LOG_BYTES;
        if !due && !self.durability.flush.wanted && !much {
            return;
        }
        self.begin_round(store, out);
    }

    fn begin_round(&mut self, store: &mut Store, out: &mut Outbox) {
        self.durability.flush.wanted = false;
        self.durability.flush.begun += 1;
        self.durability.flush.round_begins(store.pool.now_ns);
        self.durability.flush.log_bytes_at_round = store.observe.counters.log_bytes;
        let dirty: Vec<MemberId> = store
            .drives
            .members
            .online_members()
            .into_iter()
            .filter(|m| store.drives.members.list[m.index()].dirty)
            .collect();
        self.note_round_for(self.durability.lsns.committed(), store);
        self.durability.flush.round = Some(Round {
            through: self.durability.lsns.committed(),
            seqs: STREAMS.map(|s| self.log.streams[stream::slot(s)].committed),
            moves: self.moves_committed_through(store),
            left: dirty.len() as u32,
            since_ns: (!dirty.is_empty()).then_some(store.pool.now_ns),
        });
        for member in &dirty {
            store.drives.members.set_dirty(*member, false);
            store.send(*member, MemberOp::Flush, Purpose::Flush, out);
        }
        if dirty.is_empty() {
            self.end_round(store, out);
        }
    }

    /// Handles the end of a member flush of the round.
    pub(crate) fn flush_done(&mut self, store: &mut Store, out: &mut Outbox) {
        let Some(round) = self.durability.flush.round.as_mut() else {
            return;
        };
        round.left -= 1;
        if round.left == 0 {
            self.end_round(store, out);
        }
    }

    /// Ends the round, unless a loss must be recorded first (the superblock writer calls
    /// `flush_round_check` again then).
    fn end_round(&mut self, store: &mut Store, out: &mut Outbox) {
        if store.drives.members.unrecorded_loss || store.pool.stopped.is_some() {
            // The round proves nothing about the failed member. With the loss recorded the others
            // carry the data; a new round is cheap and unambiguous.
            self.durability.flush.round = None;
            self.durability.flush.wanted = true;
            return;
        }
        let Some(round) = self.durability.flush.round.take() else {
            return;
        };
        if let Some(since_ns) = round.since_ns {
            store
                .observe
                .stages
                .record(Stage::LogFlush, since_ns, store.pool.now_ns);
        }
        self.durability.flush.ended = self.durability.flush.begun;
        self.durability.lsns.set_durable(round.through);
        for (stream, seq) in STREAMS.into_iter().zip(round.seqs) {
            let s = self.log.stream_mut(stream);
            s.durable = s.durable.max(seq);
        }
        self.space.cleaner.numbers.note_durable(round.moves);
        self.answer_waiters(store, out);
        self.durability.flush.has_ended = true;
    }

    /// Answers waiters whose horizon is durable.
    pub(crate) fn answer_waiters(&mut self, store: &mut Store, out: &mut Outbox) {
        let durable_lsn = self.durability.durable_lsn();
        while self
            .durability
            .flush
            .waiters
            .front()
            .is_some_and(|w| w.horizon <= durable_lsn)
        {
            if let Some(waiting) = self.durability.flush.waiters.pop_front() {
                self.answer_waiting(waiting, store, out);
            }
        }
    }

    /// Notes that a round has begun for the waiters up to this LSN.
    pub(crate) fn note_round_for(&mut self, through: Lsn, store: &mut Store) {
        for waiting in self
            .durability
            .flush
            .waiters
            .iter_mut()
            .take_while(|waiting| waiting.horizon <= through)
        {
            if let Some(since_ns) = waiting.since_ns.take()
                && matches!(waiting.waiter, Waiter::Request { .. })
            {
                store
                    .observe
                    .stages
                    .record(Stage::FlushWait, since_ns, store.pool.now_ns);
            }
        }
    }

    /// Answers a waiter. Volume operations wait here too, but are not user flushes.
    fn answer_waiting(&mut self, waiting: Waiting, store: &mut Store, out: &mut Outbox) {
        if matches!(waiting.waiter, Waiter::Request { .. }) {
            store.observe.counters.flushes += 1;
            // Already durable before a round began for it.
            if let Some(since_ns) = waiting.since_ns {
                store
                    .observe
                    .stages
                    .record(Stage::FlushWait, since_ns, store.pool.now_ns);
            }
        }
        waiting.answer(out);
    }
}
