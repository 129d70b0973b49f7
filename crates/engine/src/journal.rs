//! The journal: synchronous writes are durable before their rows are full (docs/journal.md).
//!
//! 1 While flushes come, whatever is admitted is kept in the **backlog**, in order, until it is durable.
//! 2 A flush is served by the log or by the journal, whichever costs members less (`choice.rs`).
//! 3 A **round** (`round.rs`) writes what the waiters need as records to the copies of a chunk, flushes these members, and then everything up to
//!   its last order is *promised*. One round at a time; what comes meanwhile shares the next one.
//! 4 The **ring**: chunks are filled one after the other. A chunk is taken again when the last order in it is durable in the log.
//!
//! Invariants: the backlog has no gap in its orders; `promised` never falls, and every order up to it is durable in the log or in a record whose
//! chunk is not free; nothing that is decided by places in the log (reuse of segments, checkpoint roots) looks at `promised`.

mod choice;
mod round;

pub(crate) use round::JournalWork;

use crate::limits::{JOURNAL_BACKLOG_BYTES, JOURNAL_LISTEN_NS, STREAM_USER};
use crate::write::Placing;
use crate::{Engine, JournalStatus, Outbox};
use round::Round;
use std::collections::VecDeque;
use windrow_io::Payload;
use windrow_layout::batch::Entry;
use windrow_units::{BLOCK_BYTES, JournalArea, Order, Seq};

/// Something admitted that is not durable yet.
#[derive(Debug)]
struct Logged {
    entry: Entry,
    payload: Option<Payload>,
    /// The last order that the entry covers.
    last: Order,
}

/// What flushes may have to make durable, in order and without a gap.
#[derive(Debug, Default)]
struct Backlog {
    /// Flushes come: new entries are kept.
    listening: bool,
    /// When the last flush came.
    flushed_ns: u64,
    entries: VecDeque<Logged>,
    bytes: u64,
    /// The first order that is not in it.
    end: Order,
}

impl Backlog {
    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.listening = false;
    }

    /// Forgets what is durable.
    fn release(&mut self, through: Order) {
        while let Some(front) = self.entries.front()
            && front.last <= through
        {
            self.bytes -= front.payload.as_ref().map_or(0, |p| p.len() as u64);
            self.entries.pop_front();
        }
    }

    /// True if everything in `first ..= last` is in it.
    fn covers(&self, first: Order, last: Order) -> bool {
        let begins = self.entries.front().and_then(|front| front.entry.orders()).map(|(begin, _)| begin);
        self.listening && last < self.end && begins.is_some_and(|begin| begin <= first)
    }
}

/// The chunks.
#[derive(Debug)]
struct Ring {
    area: JournalArea,
    /// The last order in each chunk; 0 if nothing in it is needed.
    last: Vec<Order>,
    /// The chunk that is being filled, and how far it is.
    chunk: u32,
    offset: u32,
    /// The number of the next record.
    seq: Seq,
}

impl Ring {
    fn is_free(&self, chunk: u32, durable: Order) -> bool {
        self.last[chunk as usize] <= durable
    }

    fn next_chunk(&self) -> u32 {
        (self.chunk + 1) % self.area.chunks
    }

    /// Chunks in use, the one that is being filled among them.
    fn used(&self, durable: Order) -> u32 {
        (0..self.area.chunks).filter(|chunk| !self.is_free(*chunk, durable)).count() as u32
    }

    /// Bytes left in the chunk at hand.
    fn left(&self) -> usize {
        (self.area.chunk_bytes - self.offset) as usize
    }

    /// Goes on in the next chunk; false if that is not free.
    fn turn(&mut self, durable: Order) -> bool {
        let next = self.next_chunk();
        if !self.is_free(next, durable) {
            return false;
        }
        (self.chunk, self.offset) = (next, 0);
        true
    }
}

/// Where a pool's journal goes on after a start.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    /// What is needed of each chunk; empty: nothing of any.
    pub(crate) last: Vec<Order>,
    /// The chunk that was filled last.
    pub(crate) chunk: u32,
    /// The highest number of a record.
    pub(crate) seq: Seq,
    /// P: everything up to it is promised, and to be durable in the log before a checkpoint begins.
    pub(crate) accepted: Order,
}

/// State of the journal; of a pool without one, all flushes go to the log.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    ring: Option<Ring>,
    backlog: Backlog,
    round: Option<Round>,
    /// Every order up to this one is durable, in the log or in records.
    promised: Order,
    /// Flushes up to this order are served by the log.
    by_log: Order,
    /// No checkpoint begins before the log is durable up to here.
    settle: Order,
    /// No member is whole before the log is durable up to here.
    whole_from: Order,
    /// Counters since start.
    sums: JournalStatus,
}

impl Journal {
    /// The journal of a pool that has just been opened.
    pub(crate) fn new(area: Option<JournalArea>, resume: &Resume) -> Self {
        let ring = area.map(|area| {
            let mut last = resume.last.clone();
            last.resize(area.chunks as usize, Order(0));
            // Never on behind a record that may have been torn.
            Ring { area, last, chunk: resume.chunk, offset: area.chunk_bytes, seq: resume.seq.next() }
        });
        let settle = if ring.is_some() { resume.accepted } else { Order(0) };
        let by_log = if ring.is_some() { settle } else { Order(u64::MAX) };
        Self { ring, promised: resume.accepted, by_log, settle, whole_from: settle, ..Self::default() }
    }

    /// True if nothing of it is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.round.is_none()
    }

    /// Where it lies.
    pub(crate) fn area(&self) -> Option<&JournalArea> {
        self.ring.as_ref().map(|ring| &ring.area)
    }

    /// When what is kept of admitted writes is let go of.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        (!self.backlog.entries.is_empty()).then_some(self.backlog.flushed_ns + JOURNAL_LISTEN_NS + 1)
    }

    /// One line for a diagnosis.
    pub(crate) fn describe(&self) -> String {
        let ring = self.ring.as_ref().map(|r| (r.chunk, r.offset, r.area.chunks));
        let backlog = (self.backlog.listening, self.backlog.entries.len(), self.backlog.end);
        format!("journal {ring:?} promised {} by log {} settle {} backlog {backlog:?} round {:?}", self.promised, self.by_log, self.settle, self.round)
    }
}

impl Engine {
    /// Where the journal lies, if the pool has one.
    pub fn journal_area(&self) -> Option<&JournalArea> {
        self.journal.area()
    }

    /// For `status`.
    pub(crate) fn journal_status(&self) -> JournalStatus {
        let Some(ring) = &self.journal.ring else { return JournalStatus::default() };
        let (area, chunks_used) = (&ring.area, ring.used(self.orders.durable()));
        JournalStatus { bytes: area.capacity_bytes(), copies: area.copies, chunks: area.chunks, chunks_used, ..self.journal.sums }
    }

    /// Every order up to this one is durable, in the log or in the journal: what flushes are answered by.
    pub(crate) fn promised(&self) -> Order {
        self.orders.durable().max(self.journal.promised)
    }

    /// Something was admitted: it is kept for the journal, if flushes come.
    pub(crate) fn note_admitted(&mut self, placing: &Placing) {
        if !self.journal.backlog.listening {
            return;
        }
        let (entry, payload) = (placing.entry(), placing.payload().cloned());
        let Some((first, count)) = entry.orders() else { return };
        let backlog = &mut self.journal.backlog;
        if backlog.bytes > JOURNAL_BACKLOG_BYTES || (first != backlog.end && !backlog.entries.is_empty()) {
            return backlog.clear();
        }
        let last = Order(first.0 + count - 1);
        backlog.bytes += payload.as_ref().map_or(0, |p| p.len() as u64);
        backlog.end = last.next();
        backlog.entries.push_back(Logged { entry, payload, last });
    }

    /// Forgets what is durable, and everything if no flushes come any more.
    pub(crate) fn trim_backlog(&mut self) {
        let promised = self.promised();
        let backlog = &mut self.journal.backlog;
        if backlog.listening && self.now_ns > backlog.flushed_ns + JOURNAL_LISTEN_NS {
            backlog.clear();
        }
        backlog.release(promised);
    }

    /// A flush has come: what is admitted from now on is kept.
    pub(crate) fn listen(&mut self) {
        if self.journal.ring.is_none() {
            return;
        }
        let next = self.orders.last().next();
        let backlog = &mut self.journal.backlog;
        backlog.flushed_ns = self.now_ns;
        if !backlog.listening {
            backlog.clear();
            backlog.listening = true;
            backlog.end = next;
        }
    }

    /// Sees to it that the waiters up to `horizon` are served: seals what the log needs for them, or begins a round of the journal.
    pub(crate) fn serve_waiters(&mut self, horizon: Order, out: &mut Outbox) {
        if self.journal.round.is_some() || self.members.unrecorded_loss {
            return;
        }
        if horizon > self.promised() && self.orders.durable() >= self.journal.by_log && !self.begin_journal_round(horizon, out) {
            self.journal.by_log = horizon;
        }
    }

    /// What the log is to make durable: for the waiters that it serves, for what was readmitted, for chunks to be won back, for members that are to be
    /// whole. `None`: nothing.
    pub(crate) fn log_needs(&mut self) -> Option<Order> {
        let durable = self.orders.durable();
        let ring = self.journal.ring.as_ref()?;
        let used = ring.used(durable);
        let (half, most) = (2 * used > ring.area.chunks, 4 * used > 3 * ring.area.chunks);
        if self.orders.committed() > durable {
            self.flush.wanted |= half;
        } else if most && self.stream(STREAM_USER).in_flight.is_empty() {
            // The oldest chunk waits for what is in the open batch.
            let open = self.stream(STREAM_USER).open.orders.map_or(Order(0), |(_, last)| last);
            self.journal.by_log = self.journal.by_log.max(open);
        }
        (self.journal.by_log > durable).then_some(self.journal.by_log)
    }

    /// True if a flush up to this order is a matter of the log.
    pub(crate) fn is_served_by_log(&self, horizon: Order) -> bool {
        horizon <= self.journal.by_log
    }

    /// False as long as what was readmitted at the start is not durable in the log.
    pub(crate) fn is_settled_after_start(&self) -> bool {
        self.orders.durable() >= self.journal.settle
    }

    /// A member has come back, or another one is in its place: the records that were written before have no copy on it.
    pub(crate) fn journal_lost_copies(&mut self) {
        if self.journal.ring.is_some() {
            self.journal.whole_from = self.orders.last();
        }
        // What is written from now on must not be reached through records that the newcomer does not have.
        if let Some(ring) = &mut self.journal.ring {
            ring.offset = ring.area.chunk_bytes;
        }
    }

    /// True if no record that is needed was written before the last member came back. If not, it asks for that.
    pub(crate) fn journal_is_whole(&mut self) -> bool {
        let whole = self.orders.durable() >= self.journal.whole_from;
        if !whole {
            self.journal.by_log = self.journal.by_log.max(self.journal.whole_from);
        }
        whole
    }

    /// Nanoseconds for which the open batch of the user stream may stay open: what is promised is not at risk, but keeps memory, chunks and
    /// dead segments waiting.
    pub(crate) fn open_batch_age_ns(&self, stream: usize) -> u64 {
        let age = u64::from(self.superblock.properties.seal_age_ms) * 1_000_000;
        let promised = stream == STREAM_USER && self.stream(stream).open.orders.is_some_and(|(_, last)| last <= self.journal.promised);
        if promised { age * PROMISED_AGE } else { age }
    }
}

/// How many times longer an open batch whose orders are all promised may stay open.
const PROMISED_AGE: u64 = 20;
const _: () = assert!(JOURNAL_BACKLOG_BYTES >= 4 * BLOCK_BYTES);

#[cfg(test)]
mod tests;
