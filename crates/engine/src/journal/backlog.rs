//! The backlog: what was admitted since the last promise, in order and without a gap, while flushes
//! come.

use crate::write::admit::RECORD_COST;
use std::collections::VecDeque;
use windrow_format::batch::Entry;
use windrow_io::Payload;
use windrow_types::Lsn;

/// About what an entry takes in memory, its payload included.
fn cost(payload: Option<&Payload>) -> u64 {
    RECORD_COST + payload.map_or(0, |payload| payload.len() as u64)
}

/// Something admitted that is not durable yet.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) entry: Entry,
    pub(super) payload: Option<Payload>,
    /// The last order that the entry covers.
    pub(super) last: Lsn,
}

/// What flushes may have to make durable, in order and without a gap.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Flushes come: new entries are kept.
    pub(super) listening: bool,
    /// When the last flush came.
    pub(super) flushed_ns: u64,
    pub(super) entries: VecDeque<Logged>,
    pub(super) bytes: u64,
    /// The first order that is not in it.
    pub(super) end: Lsn,
}

impl Backlog {
    /// Adds what was admitted next. What comes with a gap makes the rest worthless.
    pub(super) fn push(&mut self, entry: Entry, payload: Option<Payload>) {
        let Some((first, count)) = entry.lsns() else {
            return;
        };
        if first != self.end && !self.entries.is_empty() {
            self.entries.clear();
            self.bytes = 0;
        }
        self.end = Lsn(first.0 + count);
        self.bytes += cost(payload.as_ref());
        self.entries.push_back(Logged {
            entry,
            payload,
            last: Lsn(first.0 + count - 1),
        });
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.listening = false;
    }

    /// Forgets what is durable.
    pub(super) fn release(&mut self, through: Lsn) {
        while let Some(front) = self.entries.front()
            && front.last <= through
        {
            self.bytes -= cost(front.payload.as_ref());
            self.entries.pop_front();
        }
    }

    /// True if everything in `first ..= last` is in it.
    pub(super) fn covers(&self, first: Lsn, last: Lsn) -> bool {
        let begins = self
            .entries
            .front()
            .and_then(|front| front.entry.lsns())
            .map(|(begin, _)| begin);
        self.listening && last < self.end && begins.is_some_and(|begin| begin <= first)
    }
}
