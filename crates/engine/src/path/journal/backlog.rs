//! The backlog: entries admitted since `durable_lsn`, in LSN order and without a gap, while flushes
//! arrive.

use crate::path::write::admit::RECORD_COST;
use std::collections::VecDeque;
use windrow_format::batch::Entry;
use windrow_io::Payload;
use windrow_types::Lsn;

/// Approximate memory of an entry, its payload included.
fn cost(payload: Option<&Payload>) -> u64 {
    RECORD_COST + payload.map_or(0, |payload| payload.len() as u64)
}

/// An admitted entry that is not durable yet.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) entry: Entry,
    pub(super) payload: Option<Payload>,
    /// Last LSN that the entry covers.
    pub(super) last: Lsn,
}

/// Entries that flushes may have to make durable, in LSN order and without a gap.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// True while flushes arrive: new entries are kept.
    pub(super) listening: bool,
    /// Time of the last flush.
    pub(super) flushed_ns: u64,
    pub(super) entries: VecDeque<Logged>,
    pub(super) bytes: u64,
    /// First LSN that is not in it.
    pub(super) end: Lsn,
}

impl Backlog {
    /// Adds the next admitted entry. A gap makes the earlier entries useless: they are dropped.
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

    /// Drops durable entries.
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
