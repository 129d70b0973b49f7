//! Work for space that may free nothing: checkpoints forced because nothing else can free a
//! segment, and victims that hardly gain anything.
//!
//! Each checkpoint takes segments of its own and frees those of the previous one. A full victim
//! takes as much as it gives. Without a limit such work could repeat for ever. So it is counted
//! ([`Rest`]) and pauses when a number of rounds made no progress:
//!
//! 1. *Checkpoints for the user stream*, while dead segments wait for reads to end, as with an
//!    unresponsive member. When such a read ends, its segment becomes free; when none is left,
//!    checkpoints are forced again. The same limit holds where segments are quarantined for
//!    unreadable data.
//! 2. *Victims*, where segments are quarantined: these hold space that the plan of the pool counts
//!    on, and all other segments may be full. For the effect on clients see `write/exhausted.rs`.
//! 3. *Checkpoints for a removal*: the removal is refused, or waits for clients to free space.

use crate::components::{Core, Space, Upkeep};
use crate::segment::Segments;
use crate::volume::Volumes;
use windrow_types::{ADDRESS_UNIT, Lsn, SegmentId};

/// Checkpoints forced without progress for the user stream. A segment takes two of them to become
/// free; pages of a quarantined map segment may take some more.
const FORCED_WITHOUT_PROGRESS: u64 = 16;
/// Parts of a segment in which the gain and cost of victims are counted.
pub(super) const GAIN_PARTS: u64 = 32;
/// Segments of gain expected, and victims that should have given one: about that many do where all
/// garbage is the minimum spare space (3 %).
const GAINED_WITHOUT_PROGRESS: u64 = 4;
const VICTIMS_WITHOUT_PROGRESS: u64 = 32;

/// Detects reclaim work that frees nothing. Progress is a change of `seen`, or more free segments
/// than at any time since the last progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest<S> {
    seen: S,
    most_free: u32,
    spent: u64,
}

impl<S: PartialEq> Rest<S> {
    /// True if at least `bound` of work made no progress.
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

    /// Counts more work.
    pub(crate) fn spend(&mut self, much: u64) {
        self.spent += much;
    }
}

/// Progress of clients: the last LSN (while data is refused, the last one before that) and the
/// space of their data in segments. Also the number of segments that died while quarantined, and
/// that of segments of older layouts.
pub(super) type Users = (Lsn, u64, u64, u32);
/// Progress of clients and cleaning, and the number of dead segments that wait for reads.
pub(super) type Seen = (Users, u64, usize);

impl Space {
    /// Segments that user data takes.
    pub(crate) fn data_segments(&self, volumes: &Volumes, segments: &Segments) -> u64 {
        volumes.charge() / segments.whole_units()
    }

    /// Reduces the backlog by the space that trims have freed.
    pub(crate) fn repay_deficit(&mut self, volumes: &Volumes, segments: &Segments) {
        let now = self.data_segments(volumes, segments);
        let paid = std::mem::replace(&mut self.cleaner.data_segments, now).saturating_sub(now);
        self.cleaner.deficit = self.cleaner.deficit.saturating_sub(paid * GAIN_PARTS);
    }

    /// Units in parts of a segment.
    pub(crate) fn in_parts(&self, segments: &Segments, units: u32) -> u64 {
        u64::from(units) * GAIN_PARTS / segments.whole_units()
    }

    /// Gain of emptying a segment, in parts of one.
    pub(crate) fn gain_parts(&self, segments: &Segments, segment: SegmentId) -> u64 {
        segments.garbage(segment) / ADDRESS_UNIT as u64 * GAIN_PARTS / segments.whole_units()
    }
}

impl Upkeep {
    /// Forces a checkpoint, unless the last ones made no progress.
    pub(super) fn force_checkpoint(&mut self, for_users: bool, core: &mut Core) {
        let forced = if for_users {
            self.may_force_for_users(core)
        } else {
            self.may_force_for_removal(core)
        };
        if forced {
            core.store.observe.counters.checkpoints_forced += 1;
            core.paths.durability.checkpoint.request();
        }
    }

    fn may_force_for_users(&mut self, core: &mut Core) -> bool {
        let reads = core.store.segments.dead_in_reads();
        let is_damaged = core.store.segments.quarantined_for_damage_count() > 0;
        // With damage, victims may give less than a checkpoint takes: only free segments count as
        // progress.
        let cleaned = if is_damaged {
            0
        } else {
            core.store.observe.counters.segments_cleaned
        };
        let seen = (self.seen_of_users(core), cleaned, reads);
        let may_rest = reads > 0 || is_damaged;
        let rests = core.paths.space.cleaner.rest.rests(
            seen,
            core.store.segments.free_count(),
            FORCED_WITHOUT_PROGRESS,
        ) && may_rest;
        if !rests {
            core.paths.space.cleaner.rest.spend(1);
        }
        !rests
    }

    fn seen_of_users(&self, core: &Core) -> Users {
        let last = core
            .paths
            .admission
            .last_data()
            .unwrap_or(core.paths.durability.lsns.committed());
        (
            last,
            core.paths
                .space
                .data_segments(&core.store.volumes, &core.store.segments),
            core.store.segments.died_quarantined(),
            core.store.segments.older_count(),
        )
    }

    /// True if victims have gained nothing for a while, because unreadable data holds the garbage.
    /// (Victims that are worth it by themselves are taken all the same.)
    pub(super) fn victims_gain_nothing(&mut self, core: &mut Core) -> bool {
        let seen = self.seen_of_users(core);
        // A checkpoint in progress has taken up to its maximum, and gives it back.
        let without_progress = (GAINED_WITHOUT_PROGRESS
            + u64::from(core.paths.durability.checkpoint.reserve_segments()))
            * VICTIMS_WITHOUT_PROGRESS;
        core.paths.space.cleaner.gains.rests(
            seen,
            core.store.segments.free_count(),
            without_progress,
        ) && core.store.segments.quarantined_for_damage_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full pool with a member that answered no reads forced one checkpoint after the other, each
    /// of which freed the segments of the previous one.
    #[test]
    fn forcing_without_progress_ends_until_something_changes() {
        let mut rest = Rest::default();
        let forced = |rest: &mut Rest<u32>, seen, free| {
            let more = !rest.rests(seen, free, 3);
            if more {
                rest.spend(1);
            }
            more
        };
        // One more and one less free again and again is no progress.
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
