//! Repairs: moves with reconstructed bytes, requested by reads and by scrubs.
//!
//! Repairs gain no space, so they never take what the moves of a victim or the next two checkpoints
//! need: only the second checkpoint gives back what the one before the first took. If that is all
//! there is, flushes and checkpoints free dead segments. If that frees nothing, nothing will before
//! clients trim or delete, and the repairs are abandoned. Nothing is lost by that: the blocks stay
//! where they are and are readable. But a scrub that waited for room would never end.
//!
//! **The birth of a repair.** A read does not know when the block was written, nor does a scrub
//! where the tables are lost. Recovery needs no birth: the move installs over its old address. But
//! a salvage of the map has nothing else to go by when that address has been rewritten. A repair
//! must beat every earlier version of its block, and lose to every later write or trim. That
//! includes one whose LSN is reused after a crash.
//!
//! The last *durable* LSN has this property once the map's version of the block is durable. Every
//! operation up to it is in the map, and none of them is newer than the block. Every later
//! operation has a higher LSN, after any crash, because the recovery point is not below it. So a
//! repair waits until its block is durable, and checks the map again before it takes its birth.
//! (Shared content is identified by the low half of its birth, its incarnation: that is kept.)

use crate::base::limits::{CHECKPOINT_RESERVE, RELIEF_RESERVE, REPAIR_CHECKPOINTS, STREAM_CLEANED};
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::jobs::Move;
use crate::upkeep::Upkeep;
use windrow_types::{Lsn, VolumeId};

impl Upkeep {
    /// True if repairs may take a segment now.
    pub(crate) fn has_room_for_repairs(&self, core: &Core) -> bool {
        core.store.segments.free_count()
            > 2 * core.paths.durability.checkpoint.reserve_segments()
                + CHECKPOINT_RESERVE
                + RELIEF_RESERVE
    }

    /// Repairs wait for room although no other request does: requests what keeps dead segments from
    /// being freed, or abandons the repairs.
    pub(super) fn hurry_for_repairs(&mut self, core: &mut Core, out: &mut Outbox) {
        if self.has_room_for_repairs(core) {
            core.paths.space.cleaner.repairs.without_progress = 0;
            return self.make_repairs_durable(core, out);
        }
        if core.paths.space.cleaner.repairs.is_empty() {
            return;
        }
        if core
            .store
            .segments
            .wait_for_flush(&self.reuse_horizon(core))
        {
            core.paths.durability.flush.request();
            return;
        }
        let is_moving = !core.paths.space.cleaner.victims.is_empty()
            || core.paths.space.cleaner.moves_in_flight > 0
            || core.store.segments.dead_count() > core.store.segments.dead_in_replay_count();
        if is_moving || !core.paths.durability.checkpoint.is_idle() {
            return;
        }
        if core.paths.space.cleaner.repairs.without_progress < REPAIR_CHECKPOINTS
            && core.store.segments.checkpoint_frees()
        {
            core.paths.space.cleaner.repairs.without_progress += 1;
            core.paths.durability.checkpoint.request();
        } else {
            core.paths.space.cleaner.repairs.give_up();
        }
    }

    /// True if the block of the first repair, if any, is durable.
    pub(super) fn next_repair_is_durable(&self, core: &Core) -> bool {
        core.paths
            .space
            .cleaner
            .repairs
            .waiting
            .front()
            .is_none_or(|waiting| waiting.written_by <= core.paths.durability.lsns.durable())
    }

    /// Requests durability of the block that the first repair moves.
    fn make_repairs_durable(&mut self, core: &mut Core, out: &mut Outbox) {
        core.paths.space.cleaner.repairs.unsafe_yet = !self.next_repair_is_durable(core);
        let Some(written_by) = core
            .paths
            .space
            .cleaner
            .repairs
            .waiting
            .front()
            .map(|waiting| waiting.written_by)
        else {
            return;
        };
        if !core.paths.space.cleaner.repairs.unsafe_yet {
            return;
        }
        if written_by <= core.paths.durability.lsns.committed() {
            core.paths.durability.flush.request();
        } else {
            core.paths.seal_users(written_by, &mut core.store, out);
        }
    }

    /// True if the block of the first repair has become durable in a later part of the same engine
    /// step: no other event may follow that would continue it.
    pub(crate) fn repairs_go_on(&mut self, core: &mut Core) -> bool {
        self.next_repair_is_durable(core)
            && std::mem::take(&mut core.paths.space.cleaner.repairs.unsafe_yet)
    }

    /// Birth of a block that is about to be moved, of which the map shows this version; see the
    /// module.
    pub(super) fn birth_of(&self, moved: &Move, core: &Core) -> Lsn {
        if moved.birth > Lsn(0) {
            return moved.birth;
        }
        let durable = core
            .paths
            .durability
            .lsns
            .used(core.paths.durability.lsns.durable());
        if moved.key.volume() != VolumeId::SHARED {
            return durable;
        }
        let incarnation = core.store.volumes.get(VolumeId::SHARED).map_or(0, |v| {
            v.map
                .get(&core.store.volumes.arena, moved.key.lba())
                .incarnation()
        });
        Lsn(durable
            .0
            .saturating_sub(u64::from((durable.0 as u32).wrapping_sub(incarnation))))
    }
}

impl Upkeep {
    /// True if no repair waits and all have committed. (Other moves do not count.)
    pub(crate) fn repairs_committed(&self, core: &Core) -> bool {
        core.paths.space.cleaner.repairs.is_empty()
            && core.paths.log.stream(STREAM_CLEANED).committed
                >= core.paths.space.cleaner.repairs.last
    }

    /// Seals the partly filled batch with the last repairs, if nothing else will soon.
    pub(crate) fn hurry_repairs(&mut self, core: &mut Core, out: &mut Outbox) {
        if core.paths.space.cleaner.repairs.is_empty()
            && core.paths.log.stream(STREAM_CLEANED).in_flight.is_empty()
        {
            core.paths.seal(STREAM_CLEANED, &mut core.store, out);
        }
    }
}
