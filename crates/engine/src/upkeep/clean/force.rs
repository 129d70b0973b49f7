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
//!    on, and all other segments may be full. For the effect on clients see
//!    `path/write/exhausted.rs`.
//! 3. *Checkpoints for a removal*: the removal is refused, or waits for clients to free space.

use crate::path::Core;
use crate::path::cleaning::*;
use crate::upkeep::Upkeep;

/// Checkpoints forced without progress for the user stream. A segment takes two of them to become
/// free; pages of a quarantined map segment may take some more.
const FORCED_WITHOUT_PROGRESS: u64 = 16;
/// Segments of gain expected, and victims that should have given one: about that many do where all
/// garbage is the minimum spare space (3 %).
const GAINED_WITHOUT_PROGRESS: u64 = 4;
const VICTIMS_WITHOUT_PROGRESS: u64 = 32;

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
