//! Work for space that may bring nothing: checkpoints that are forced because nothing else can free
//! a segment any more, and victims that hardly gain anything.
//!
//! Each checkpoint takes segments of its own and frees those of the one before; a victim that is
//! full takes as much as it gives. Where nothing but that goes on, it could go on for ever. So who
//! does it counts ([`Rest`]), and rests when some was in vain:
//!
//! 1 *Checkpoints for users*: while dead segments wait for reads to end, as beside a member that
//!   answers nothing for a while. When such a read ends, what waited comes free; when none is left,
//!   checkpoints are forced again. Also where segments are set aside for what can not be read.
//! 2 *Victims* where segments are set aside: these hold space that the plan of the pool reckons
//!   with, and all the others may be full. What users do with it: `write/exhausted.rs`.
//! 3 *Checkpoints for a removal*: it is refused, or waits for users.

use crate::Engine;
use windrow_types::{ADDRESS_UNIT, Lsn, SegmentId};

/// Checkpoints that are forced in vain for users. A segment takes two of them to come free; pages
/// of a map that was set aside may take some more.
const FORCED_WITHOUT_PROGRESS: u64 = 16;
/// What victims take and give is reckoned in such parts of a segment.
pub(super) const GAIN_PARTS: u64 = 32;
/// Segments that victims should have given, and victims that should have given one: about so many
/// do where all of the garbage is the least spare space (3 %).
const GAINED_WITHOUT_PROGRESS: u64 = 4;
const VICTIMS_WITHOUT_PROGRESS: u64 = 32;

/// Whether work for space still brings something: what is seen changes, or there are more free
/// segments than there were since it did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest<S> {
    seen: S,
    most_free: u32,
    spent: u64,
}

impl<S: PartialEq> Rest<S> {
    /// True if as much as `bound` has brought nothing.
    pub(crate) fn rests(&mut self, seen: S, free: u32, bound: u64) -> bool {
        if self.seen != seen || self.most_free < free {
            *self = Self {
                seen,
                most_free: free,
                spent: 0,
            };
        }
        self.spent >= bound
    }

    /// So much more is done.
    pub(crate) fn spend(&mut self, much: u64) {
        self.spent += much;
    }
}

/// What users do: the last order (while data is refused the last one before that), the space that
/// their data takes, in segments, those that died while they were set aside, and those of older
/// layouts.
pub(super) type Users = (Lsn, u64, u64, u32);
/// And what cleaning does, and the dead segments that wait for reads.
pub(super) type Seen = (Users, u64, usize);

impl Engine {
    /// Forces a checkpoint, unless the last ones brought nothing.
    pub(super) fn force_checkpoint(&mut self, for_users: bool) {
        let forced = if for_users {
            self.may_force_for_users()
        } else {
            self.may_force_for_removal()
        };
        if forced {
            self.observe.counters.checkpoints_forced += 1;
            self.durability.checkpoint.request();
        }
    }

    fn may_force_for_users(&mut self) -> bool {
        let reads = self.space.segments.dead_in_reads();
        let is_damaged = self.space.segments.quarantined_for_damage_count() > 0;
        // (Beside damage victims may give less than a checkpoint takes: what counts is what is
        // free.)
        let cleaned = if is_damaged {
            0
        } else {
            self.observe.counters.segments_cleaned
        };
        let seen = (self.seen_of_users(), cleaned, reads);
        let may_rest = reads > 0 || is_damaged;
        let rests = self.space.cleaner.rest.rests(
            seen,
            self.space.segments.free_count(),
            FORCED_WITHOUT_PROGRESS,
        ) && may_rest;
        if !rests {
            self.space.cleaner.rest.spend(1);
        }
        !rests
    }

    fn seen_of_users(&self) -> Users {
        let last = self
            .admission
            .last_data()
            .unwrap_or(self.durability.lsns.committed());
        (
            last,
            self.data_segments(),
            self.space.segments.died_quarantined(),
            self.space.segments.older_count(),
        )
    }

    /// Segments that the data of users takes.
    fn data_segments(&self) -> u64 {
        self.map.volumes.charge() / self.space.segments.whole_units()
    }

    /// Users who trim pay for what victims have taken in vain.
    pub(super) fn reduce_backlog(&mut self) {
        let now = self.data_segments();
        let paid =
            std::mem::replace(&mut self.space.cleaner.data_segments, now).saturating_sub(now);
        self.space.cleaner.backlog = self.space.cleaner.backlog.saturating_sub(paid * GAIN_PARTS);
    }

    /// So many units in parts of a segment.
    pub(super) fn in_parts(&self, units: u32) -> u64 {
        u64::from(units) * GAIN_PARTS / self.space.segments.whole_units()
    }

    /// True if victims have given nothing for a while, as what can not be read holds what there was
    /// to gain. (Of those that are worth it by themselves more are taken all the same.)
    pub(super) fn gains_without_progress(&mut self) -> bool {
        let seen = self.seen_of_users();
        // (A checkpoint that is under way has taken as much as it may, and gives it back.)
        let without_progress = (GAINED_WITHOUT_PROGRESS
            + u64::from(self.durability.checkpoint.reserve_segments()))
            * VICTIMS_WITHOUT_PROGRESS;
        self.space
            .cleaner
            .gains
            .rests(seen, self.space.segments.free_count(), without_progress)
            && self.space.segments.quarantined_for_damage_count() > 0
    }

    /// What emptying a segment gives, in parts of one.
    pub(super) fn gain_parts(&self, segment: SegmentId) -> u64 {
        self.space.segments.garbage(segment) / ADDRESS_UNIT as u64 * GAIN_PARTS
            / self.space.segments.whole_units()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full pool beside a member that answered no reads forced one checkpoint after the other,
    /// each of which freed what the one before had taken.
    #[test]
    fn what_is_forced_in_vain_ends_until_something_changes() {
        let mut rest = Rest::default();
        let forced = |rest: &mut Rest<u32>, seen, free| {
            let more = !rest.rests(seen, free, 3);
            if more {
                rest.spend(1);
            }
            more
        };
        // One more and one less free again and again is no gain.
        assert_eq!(
            [2, 1, 2, 1, 2].map(|free| forced(&mut rest, 7, free)),
            [true, true, true, false, false]
        );
        assert!(forced(&mut rest, 7, 3), "more is free than there was");
        assert!(forced(&mut rest, 8, 0), "something else changed");
        assert_eq!(
            [0, 0, 0].map(|free| forced(&mut rest, 8, free)),
            [true, true, false]
        );
    }
}
