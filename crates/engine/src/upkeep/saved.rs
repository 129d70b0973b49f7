//! Counters that checkpoints keep, and promises of space.

use crate::api::{DedupSums, Notice, ReductionSums};
use crate::path::Core;
use crate::store::events::Outbox;
use crate::upkeep::Upkeep;
use windrow_format::checkpoint::VolumeState;

/// Index of the first sum of compression among the counters of a checkpoint. User bytes and scrubs
/// come first.
pub(crate) const SAVED_SUMS: usize = 64;
/// Index of the first word about known losses.
pub(crate) const SAVED_DAMAGE: usize = 32;
/// Index of the first sum of deduplication.
pub(crate) const SAVED_DEDUP_SUMS: usize = 96;

const _: () = assert!(SAVED_DAMAGE + crate::path::damage::SAVED_WORDS <= SAVED_SUMS);

impl Upkeep {
    /// Totals over the life of the pool as saved with checkpoints: user bytes written, bytes
    /// written to members. After a crash they lack the bytes since the last checkpoint.
    pub(crate) fn lifetime_counters(&self, core: &Core) -> [u64; 2] {
        let members = core.store.drives.members.former.total()
            + core
                .store
                .drives
                .members
                .list
                .iter()
                .map(|m| m.stats.written.total())
                .sum::<u64>();
        [
            core.store.observe.counters.lifetime_user_bytes
                + core.store.observe.counters.user_write_bytes,
            core.store.observe.counters.lifetime_member_bytes + members,
        ]
    }

    /// Reduction counters over the life of the pool, as far as checkpoints have them.
    pub(crate) fn lifetime_sums(&self, core: &Core) -> (ReductionSums, DedupSums) {
        (
            core.paths
                .admission
                .reducing
                .sums
                .and(&core.store.observe.counters.lifetime_reduction),
            core.paths
                .shared
                .dedup_sums()
                .and(&core.store.observe.counters.lifetime_dedup),
        )
    }

    /// Counters that a checkpoint stores; their order is part of the format.
    pub(crate) fn saved_counters(&self, core: &Core) -> Vec<u64> {
        let mut saved: Vec<u64> = self
            .lifetime_counters(core)
            .into_iter()
            .chain(self.integrity.scrub.saved(core.store.pool.now_ns))
            .collect();
        saved.resize(SAVED_DAMAGE, 0);
        saved.extend(core.paths.damage.saved());
        saved.resize(SAVED_SUMS, 0);
        let (reduction, dedup) = self.lifetime_sums(core);
        saved.extend(reduction.to_words());
        saved.resize(SAVED_DEDUP_SUMS, 0);
        saved.extend(dedup.to_words());
        saved
    }
}

impl Upkeep {
    /// Reports overcommitment when the sum of volume sizes begins to exceed the usable space. To be
    /// called after a volume is created, deleted or resized, or the usable space has changed.
    pub(crate) fn report_promises(&mut self, core: &mut Core, out: &mut Outbox) {
        let active = core
            .store
            .volumes
            .iter()
            .filter(|v| v.record.state == VolumeState::Active);
        let (provisioned_bytes, usable_bytes) = (
            active.map(|v| v.record.size_bytes).sum::<u64>(),
            core.store.pool.plan.usable_bytes,
        );
        let is_over = provisioned_bytes > usable_bytes;
        if is_over && !core.store.observe.counters.overcommitted_reported {
            out.notices.push(Notice::Overcommitted {
                provisioned_bytes,
                usable_bytes,
            });
        }
        core.store.observe.counters.overcommitted_reported = is_over;
    }
}
