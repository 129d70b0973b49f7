//! Orders: which are given, which committed, which durable.
//!
//! Every order up to `committed` is in a batch whose member writes are complete; every order up to
//! `durable` is covered by successful flushes as well. Batches may report their orders in any
//! sequence; the prefix advances when it is closed.

use std::collections::BTreeMap;
use windrow_types::Order;

/// The pool's order clock.
#[derive(Debug)]
pub struct Orders {
    next: u64,
    committed: u64,
    ahead: BTreeMap<u64, u64>,
    durable: u64,
    /// The last order that was in effect at the start, and the first one that was given since:
    /// those between were never used.
    unused: (u64, u64),
}

impl Orders {
    /// A clock that will give `next` first; everything below is durable.
    pub fn new(next: Order) -> Self {
        let before = next.0 - 1;
        Self {
            next: next.0,
            committed: before,
            ahead: BTreeMap::new(),
            durable: before,
            unused: (before, next.0),
        }
    }

    /// A clock after a start: everything up to `covered` is durable, what follows up to `accepted`
    /// will be committed again, and what lies between `accepted` and `next` was never used.
    pub fn resume(covered: Order, accepted: Order, next: Order) -> Self {
        let unused = (accepted.0, next.0);
        if covered >= accepted {
            return Self {
                unused,
                ..Self::new(next)
            };
        }
        let mut orders = Self {
            next: next.0,
            committed: covered.0,
            ahead: BTreeMap::new(),
            durable: covered.0,
            unused,
        };
        if next > accepted.next() {
            orders.commit(accepted.next(), Order(next.0 - 1));
        }
        orders
    }

    /// Gives `count` orders; returns the first.
    pub fn take(&mut self, count: u64) -> Order {
        let first = self.next;
        self.next += count;
        Order(first)
    }

    /// The last order given.
    pub fn last(&self) -> Order {
        Order(self.next - 1)
    }

    /// Reports `first ..= last` as committed.
    pub fn commit(&mut self, first: Order, last: Order) {
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
    pub fn commit_through(&mut self, through: Order) {
        self.committed = self.committed.max(through.0);
    }

    /// The last order up to `order` that was ever used: for those who look from outside.
    pub fn used(&self, order: Order) -> Order {
        let (accepted, first) = self.unused;
        if order.0 < first {
            order.min(Order(accepted))
        } else {
            order
        }
    }

    /// Every order up to this one is committed.
    pub fn committed(&self) -> Order {
        Order(self.committed)
    }

    /// Every order up to this one is durable.
    pub fn durable(&self) -> Order {
        Order(self.durable)
    }

    /// A flush that began when `through` was committed has succeeded.
    pub fn set_durable(&mut self, through: Order) {
        self.durable = self.durable.max(through.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_that_were_never_used_count_when_all_before_them_do() {
        let mut orders = Orders::resume(Order(10), Order(14), Order(20));
        assert_eq!(
            (orders.committed(), orders.durable(), orders.last()),
            (Order(10), Order(10), Order(19))
        );
        orders.commit(Order(11), Order(14));
        assert_eq!(orders.committed(), Order(19));
        let nothing = Orders::resume(Order(14), Order(14), Order(20));
        assert_eq!(
            (nothing.committed(), nothing.durable()),
            (Order(19), Order(19))
        );
    }

    #[test]
    fn the_prefix_waits_for_the_gap() {
        let mut orders = Orders::new(Order(10));
        assert_eq!(orders.take(6), Order(10));
        orders.commit(Order(13), Order(15));
        assert_eq!(orders.committed(), Order(9));
        orders.commit(Order(10), Order(11));
        assert_eq!(orders.committed(), Order(11));
        orders.commit(Order(12), Order(12));
        assert_eq!(orders.committed(), Order(15));
    }
}
