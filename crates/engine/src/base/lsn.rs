//! LSNs: given, committed and durable.
//!
//! Every LSN up to `committed` is in a batch whose member writes are complete. Every LSN up to
//! `durable` is covered by successful flushes as well. Batches may report their LSNs in any
//! sequence; the prefix advances when it has no gap.

use std::collections::BTreeMap;
use windrow_types::Lsn;

/// LSN clock of the pool.
#[derive(Debug)]
pub struct LsnClock {
    next: u64,
    committed: u64,
    ahead: BTreeMap<u64, u64>,
    durable: u64,
    /// Last LSN in effect at the start, and first one given since: those between were never used.
    unused: (u64, u64),
}

impl LsnClock {
    /// A clock that gives `next` first; everything below is durable.
    pub fn new(next: Lsn) -> Self {
        let before = next.0 - 1;
        Self {
            next: next.0,
            committed: before,
            ahead: BTreeMap::new(),
            durable: before,
            unused: (before, next.0),
        }
    }

    /// A clock after a start. Everything up to `covered` is durable, LSNs from there to `accepted`
    /// will be committed again, and those between `accepted` and `next` were never used.
    pub fn resume(covered: Lsn, accepted: Lsn, next: Lsn) -> Self {
        let unused = (accepted.0, next.0);
        if covered >= accepted {
            return Self {
                unused,
                ..Self::new(next)
            };
        }
        let mut lsns = Self {
            next: next.0,
            committed: covered.0,
            ahead: BTreeMap::new(),
            durable: covered.0,
            unused,
        };
        if next > accepted.next() {
            lsns.commit(accepted.next(), Lsn(next.0 - 1));
        }
        lsns
    }

    /// Gives `count` LSNs; returns the first.
    pub fn take(&mut self, count: u64) -> Lsn {
        let first = self.next;
        self.next += count;
        Lsn(first)
    }

    /// Last LSN given.
    pub fn last(&self) -> Lsn {
        Lsn(self.next - 1)
    }

    /// Reports `first ..= last` as committed.
    pub fn commit(&mut self, first: Lsn, last: Lsn) {
        if first.0 > self.committed + 1 {
            self.ahead.insert(first.0, last.0);
            return;
        }
        self.committed = self.committed.max(last.0);
        while let Some(entry) = self.ahead.first_entry() {
            if *entry.key() > self.committed + 1 {
                break;
            }
            self.committed = self.committed.max(entry.remove());
        }
    }

    /// Reports everything up to `through` as committed.
    pub fn commit_through(&mut self, through: Lsn) {
        self.committed = self.committed.max(through.0);
    }

    /// Last LSN up to `lsn` that was ever used, for external reporting.
    pub fn used(&self, lsn: Lsn) -> Lsn {
        let (accepted, first) = self.unused;
        if lsn.0 < first {
            lsn.min(Lsn(accepted))
        } else {
            lsn
        }
    }

    /// Every LSN up to this one is committed.
    pub fn committed(&self) -> Lsn {
        Lsn(self.committed)
    }

    /// Every LSN up to this one is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable)
    }

    /// Notes the success of a flush that began when `through` was committed.
    pub fn set_durable(&mut self, through: Lsn) {
        self.durable = self.durable.max(through.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsns_that_were_never_used_count_when_all_before_them_do() {
        let mut lsns = LsnClock::resume(Lsn(10), Lsn(14), Lsn(20));
        assert_eq!(
            (lsns.committed(), lsns.durable(), lsns.last()),
            (Lsn(10), Lsn(10), Lsn(19))
        );
        lsns.commit(Lsn(11), Lsn(14));
        assert_eq!(lsns.committed(), Lsn(19));
        let nothing = LsnClock::resume(Lsn(14), Lsn(14), Lsn(20));
        assert_eq!((nothing.committed(), nothing.durable()), (Lsn(19), Lsn(19)));
    }

    #[test]
    fn the_prefix_waits_for_the_gap() {
        let mut lsns = LsnClock::new(Lsn(10));
        assert_eq!(lsns.take(6), Lsn(10));
        lsns.commit(Lsn(13), Lsn(15));
        assert_eq!(lsns.committed(), Lsn(9));
        lsns.commit(Lsn(10), Lsn(11));
        assert_eq!(lsns.committed(), Lsn(11));
        lsns.commit(Lsn(12), Lsn(12));
        assert_eq!(lsns.committed(), Lsn(15));
    }
}
