//! Checkpoints that are forced because nothing else can free a segment any more.
//!
//! Each checkpoint takes segments of its own and frees those of the one before: where nothing but that goes on, forcing brings nothing, and it could go on for
//! ever. So whoever forces counts ([`Rest`]), and rests when some were in vain:
//!
//! 1 *For users*: while dead segments wait for reads to end, as beside a member that answers nothing for a while. When such a read ends, what waited comes free;
//!   when none is left, checkpoints are forced again.
//! 2 *For a removal*: it is refused, or waits for users.

use crate::Engine;
use windrow_units::Order;

/// Checkpoints that are forced in vain for users. A segment takes two of them to come free; pages of a map that was set aside may take some more.
const FORCED_IN_VAIN: u32 = 16;

/// Whether forcing checkpoints still brings something: what is seen changes, or there are more free segments than there were since it did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest<S> {
    seen: S,
    most_free: u32,
    forced: u32,
}

impl<S: PartialEq> Rest<S> {
    /// True if as many as `bound` checkpoints have brought nothing.
    pub(crate) fn rests(&mut self, seen: S, free: u32, bound: u32) -> bool {
        if self.seen != seen || self.most_free < free {
            *self = Self { seen, most_free: free, forced: 0 };
        }
        self.forced >= bound
    }

    /// One more is forced.
    pub(crate) fn count(&mut self) {
        self.forced += 1;
    }
}

/// What users or cleaning do, and the dead segments that wait for reads.
pub(super) type Seen = (Order, u64, usize);

impl Engine {
    /// Forces a checkpoint, unless the last ones brought nothing.
    pub(super) fn force_checkpoint(&mut self, for_users: bool) {
        let forced = if for_users { self.may_force_for_users() } else { self.may_force_for_removal() };
        if forced {
            self.counters.checkpoints_forced += 1;
            self.checkpoint.request();
        }
    }

    fn may_force_for_users(&mut self) -> bool {
        let reads = self.segments.dead_in_reads();
        let seen = (self.orders.committed(), self.counters.segments_cleaned, reads);
        let rests = self.cleaner.rest.rests(seen, self.segments.free_count(), FORCED_IN_VAIN) && reads > 0;
        if !rests {
            self.cleaner.rest.count();
        }
        !rests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full pool beside a member that answered no reads forced one checkpoint after the other, each of which freed what the one before had taken.
    #[test]
    fn what_is_forced_in_vain_ends_until_something_changes() {
        let mut rest = Rest::default();
        let forced = |rest: &mut Rest<u32>, seen, free| {
            let more = !rest.rests(seen, free, 3);
            if more {
                rest.count();
            }
            more
        };
        // One more and one less free again and again is no gain.
        assert_eq!([2, 1, 2, 1, 2].map(|free| forced(&mut rest, 7, free)), [true, true, true, false, false]);
        assert!(forced(&mut rest, 7, 3), "more is free than there was");
        assert!(forced(&mut rest, 8, 0), "something else changed");
        assert_eq!([0, 0, 0].map(|free| forced(&mut rest, 8, free)), [true, true, false]);
    }
}
