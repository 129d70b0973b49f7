//! Removal: a member that holds data leaves the pool (docs/internals/reshape.md).
//!
//! 1. *Room*: from the request on usable space is limited to that of the remaining members.
//!    Cleaning frees the segments that the floors of the layout over the others take. Flushes go to
//!    the log until it has all durable records of the journal inside the members.
//! 2. *Record*: one superblock generation has the new layout, the journal over the others, and the
//!    flag. No member is new, so every holder of this generation or the previous one is a member of
//!    the other.
//! 3. The data of the old layout moves as after a growth. A victim may need more than one segment
//!    of the new layout. They are counted when it is begun ([`Upkeep::segments_for`]), and it is
//!    begun only if they are free above the user floor.
//! 4. When the old layout is empty, and no kept checkpoint can name its segments, one generation
//!    removes its zones, the flag and the member. It is written to the others alone.
//!
//! That a member leaves is stored nowhere else: it has a position in an older layout and none in
//! the active one ([`ZoneMap::leaving`]).

use super::coming::{Coming, Stage};
use crate::api::{ControlError, ControlId, Notice, PoolPlan};
use crate::base::limits::STREAM_USER;
use crate::path::Core;
use crate::path::cleaning::Rest;
use crate::store::events::Outbox;
use crate::store::member::Ticket;
use crate::store::member::slot_state::Change;
use crate::store::plan::{ids_end, payload_blocks};
use crate::store::segment::largest_group;
use crate::upkeep::Upkeep;
use crate::upkeep::reshape::Reshape;
use windrow_format::superblock::Features;
use windrow_geometry::ZoneMap;
use windrow_types::{FULL_BLOCK_UNITS, Lsn, MemberId, SegmentId, Uuid};

/// Number of checkpoints forced without progress before a removal is refused.
const FORCED_WITHOUT_PROGRESS: u64 = 4;

impl Reshape {
    /// Segments that cleaning keeps free beyond the usual: what the next victim of the old layout
    /// needs, where that is more than there is in any case (zones of very different width).
    pub(crate) fn segments_for_removal(&self) -> u32 {
        if self.is_losing_member() {
            self.short_of.saturating_sub(2)
        } else {
            0
        }
    }

    /// True while a member leaves.
    pub(crate) fn is_losing_member(&self) -> bool {
        self.leaving != 0
    }
}

impl Upkeep {
    /// Begins the removal of a member.
    pub(crate) fn remove_member(
        &mut self,
        id: ControlId,
        member: MemberId,
        core: &mut Core,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        if core.store.drives.exchanges.has_shadow() {
            return Err(ControlError::Invalid(
                "a member is being replaced; remove another one when that has ended".into(),
            ));
        }
        let others = self.members_that_stay(member, core)?;
        let zones = self.with_layout_over(&others, core)?;
        let (largest, members) = (largest_group(&zones), others.len() + 1);
        if largest > members {
            return Err(ControlError::Invalid(format!(
                "the layout over the others lies across the present one: {largest} segments would have to be empty before room of any of them could be used \
                 (members of different size, mirrored); grow the pool by a member of the larger size first, or remove another one"
            )));
        }
        let plan = core.store.pool.plan_without(
            &zones,
            core.store.pool.superblock.properties.spare_per_mille,
        )?;
        self.check_fits(&plan, &zones, core)?;
        if core.store.pool.moves_journal(member)
            && core.store.pool.journal_without(member).is_none()
        {
            return Err(ControlError::Invalid("the journal inside the members would be too small without it; create the pool again with a larger one".into()));
        }
        let policy = core
            .paths
            .policy_for(
                &core.store.pool.superblock.properties.clone(),
                &plan,
                &core.store,
            )
            .map_err(ControlError::Invalid)?;
        let moves = core.store.pool.moves_journal(member);
        core.paths.durability.journal.set_moving(moves);
        self.reshape.coming = Some(Coming {
            id,
            members: Vec::new(),
            leaves: Some(member),
            zones,
            stage: Stage::Room,
            ticket: Ticket::default(),
        });
        self.reshape.fits_from = core.paths.durability.lsns.last();
        self.reshape.rest = Rest::default();
        self.update_plan(core);
        core.paths
            .space
            .take_policy(&mut core.store.segments, policy);
        self.report_promises(core, out);
        Ok(())
    }

    /// The remaining members, with their sizes.
    fn members_that_stay(
        &self,
        member: MemberId,
        core: &Core,
    ) -> Result<Vec<(MemberId, u64)>, ControlError> {
        let refused = |member, why: &str| {
            Err(ControlError::Member {
                member,
                why: why.into(),
            })
        };
        let present = core
            .store
            .pool
            .zones
            .current()
            .fold(0u64, |mask, zone| mask | zone.members);
        if core
            .store
            .pool
            .superblock
            .members
            .get(member.index())
            .is_none()
        {
            return refused(member, "there is no such member");
        }
        if core.store.pool.zones.leaving() >> member.0 & 1 == 1 {
            return refused(member, "it is being removed");
        }
        if present >> member.0 & 1 == 0 {
            return refused(member, "it holds no data");
        }
        let has_layouts =
            core.store.pool.zones.has_superseded() || core.store.segments.has_layers();
        if self.reshape.coming.is_some() || has_layouts {
            return refused(
                member,
                "data still moves to a newer layout, after a growth or a removal: wait until `pool status` shows no growth or removal",
            );
        }
        let stay = (0..core.store.pool.superblock.members.len() as u8)
            .map(MemberId)
            .filter(|m| (present & !(1 << member.0)) >> m.0 & 1 == 1);
        let (least, left) = (
            core.store.pool.superblock.redundancy.min_members(),
            stay.clone().count(),
        );
        if left < least {
            let name = core.store.pool.superblock.redundancy.name();
            return refused(
                member,
                &format!(
                    "{left} members would be left, redundancy {name} needs {least}; add a spare and grow the pool first"
                ),
            );
        }
        if let Some(away) = core.store.drives.members.first_away(present) {
            return refused(
                away,
                "it is absent or not whole; a member is removed only when all are whole; replace it, or wait for its rebuild (a dying drive is replaced, not removed)",
            );
        }
        Ok(stay
            .map(|m| (m, core.store.pool.superblock.members[m.index()].size_bytes))
            .collect())
    }

    fn check_fits(
        &self,
        plan: &PoolPlan,
        zones: &ZoneMap,
        core: &Core,
    ) -> Result<(), ControlError> {
        let no_space = |text: String| Err(ControlError::NoSpace(text));
        let (used, usable) = (
            core.paths.bytes_beside(plan, &core.store),
            plan.usable_bytes,
        );
        if used > usable {
            return no_space(format!(
                "{used} bytes are in use, {usable} would be usable afterwards: trim or delete {} bytes first",
                used - usable
            ));
        }
        let (pages, most) = (core.store.volumes.arena.used_pages(), plan.map_pages_max);
        if pages > most {
            return no_space(format!(
                "the map has {pages} pages, {most} would be allowed afterwards: written blocks are too scattered; trim or delete something first"
            ));
        }
        // Ids are not renumbered, and a start takes one beyond the end for damage.
        let (ids, end) = (core.store.volumes.ids.end(), ids_end(zones.current()));
        if ids > end {
            return no_space(format!(
                "shared content has numbers up to {ids}, {end} would be allowed afterwards: delete or overwrite blocks that share it, then stop and start the pool"
            ));
        }
        Ok(())
    }

    /// Writes the generation with the new layout as soon as there is room.
    pub(super) fn record_removal(&mut self, coming: Coming, core: &mut Core, out: &mut Outbox) {
        let Some(member) = coming.leaves else { return };
        let members = core
            .store
            .pool
            .zones
            .current()
            .fold(0u64, |mask, zone| mask | zone.members);
        if let Some(away) = core.store.drives.members.first_away(members) {
            let why =
                "it failed or was taken out while another member was about to be removed".into();
            return self.refuse_removal(
                coming.id,
                ControlError::Member { member: away, why },
                core,
                out,
            );
        }
        let has_room =
            core.store.segments.free_count() >= core.paths.floor(STREAM_USER, &core.store);
        let is_durable = core.paths.durability.lsns.durable() >= self.reshape.fits_from;
        if !is_durable && !core.store.pool.closing.is_under_way() {
            // The room may come from a trim that a crash would undo.
            core.paths.seal_users(Lsn(u64::MAX), &mut core.store, out);
            core.paths.durability.flush.request();
        }
        if core.store.pool.closing.is_under_way()
            || !core.paths.durability.journal_has_left()
            || !has_room
            || !is_durable
        {
            if !has_room && self.removal_rests(core) {
                return self.refuse_removal(
                    coming.id,
                    ControlError::NoSpace("cleaning cannot free the room for the move; trim or delete something first".into()), core,
                    out,
                );
            }
            self.reshape.coming = Some(coming);
            return;
        }
        let fits = core
            .store
            .pool
            .plan_without(
                &coming.zones,
                core.store.pool.superblock.properties.spare_per_mille,
            )
            .and_then(|plan| self.check_fits(&plan, &coming.zones, core));
        if let Err(error) = fits {
            return self.refuse_removal(coming.id, error, core, out);
        }
        core.store.pool.superblock.zones = coming.zones.zones().to_vec();
        core.store.pool.superblock.features.incompatible |= Features::LEAVING;
        if core.paths.durability.journal.is_moving() {
            core.store.pool.superblock.journals.internal = core.store.pool.journal_without(member);
        }
        let ticket = core.store.drives.superblock_writer.request();
        self.reshape.coming = Some(Coming {
            stage: Stage::Record,
            ticket,
            ..coming
        });
        core.paths.superblock_step(&mut core.store, out);
    }

    /// Refuses the removal. Nothing is recorded: the pool stays unchanged.
    fn refuse_removal(
        &mut self,
        id: ControlId,
        error: ControlError,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        core.paths.durability.journal.set_moving(false);
        self.update_plan(core);
        out.answer_command(id, Err(error));
    }

    /// True if forced checkpoints have been without progress for some time.
    fn removal_rests(&mut self, core: &mut Core) -> bool {
        let seen = (
            core.store.segments.older_count(),
            core.store.observe.counters.committed_user_bytes,
        );
        self.reshape.rest.rests(
            seen,
            core.store.segments.free_count(),
            FORCED_WITHOUT_PROGRESS,
        )
    }

    /// True if a checkpoint may be forced to make room for a removal. False if the last ones had no
    /// effect: then it waits until something else changes.
    pub(crate) fn may_force_for_removal(&mut self, core: &mut Core) -> bool {
        let rests = self.removal_rests(core);
        if !rests {
            self.reshape.rest.spend(1);
        }
        !rests
    }

    /// Activates the layout over the others after its superblock is durable.
    pub(super) fn take_removal(
        &mut self,
        zones: ZoneMap,
        member: MemberId,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        core.store.pool.zones = zones;
        core.store.segments.lay_over(&core.store.pool.zones);
        self.begin_reshape(core);
        self.update_plan(core);
        if let Some(area) = core.store.pool.superblock.journals.internal {
            core.paths.durability.journal.take_moved(area);
        }
        out.notices.push(Notice::Leaving {
            member,
            segments: core.store.segments.older_count(),
        });
        core.paths.ensure_next_segment(&mut core.store);
    }

    /// True if a member leaves, or is about to, and cleaning must make room for it at any cost.
    pub(crate) fn removal_wants_room(&self, core: &Core) -> bool {
        match &self.reshape.coming {
            Some(coming) => {
                coming.stage == Stage::Room
                    && core.store.segments.free_count() < core.paths.floor(STREAM_USER, &core.store)
            }
            None => {
                self.reshape.active
                    && self.reshape.is_losing_member()
                    && self.integrity.rebuild.is_idle()
                    && !self.is_clean_enough(core)
            }
        }
    }

    /// Number of segments that the moves of a victim may need: its live weight in the smallest
    /// segments of the active layout.
    pub(crate) fn segments_for(&self, victim: SegmentId, core: &Core) -> u32 {
        if !self.reshape.is_losing_member() {
            return 1;
        }
        let least = core
            .store
            .pool
            .zones
            .current()
            .map(|z| payload_blocks(&z.shape))
            .min()
            .unwrap_or(1)
            .max(1);
        let live = u64::from(core.store.segments.get(victim).weight())
            .div_ceil(u64::from(FULL_BLOCK_UNITS));
        live.div_ceil(least).max(1) as u32
    }

    /// Retires free segments whose extents the active layout does not cover, one by one, while
    /// enough others are free.
    pub(super) fn give_up_uncovered(&mut self, core: &mut Core) {
        while self.reshape.is_losing_member()
            && self.is_clean_enough(core)
            && core.store.segments.free_count() > core.paths.floor(STREAM_USER, &core.store) + 1
            && core.store.segments.give_up_idle()
        {}
    }

    /// Releases the leaving members, which hold nothing any more. False if they are still needed.
    pub(super) fn let_go(&mut self, core: &mut Core) -> bool {
        let leaving = std::mem::take(&mut self.reshape.leaving);
        let members: Vec<MemberId> = (0..core.store.drives.members.list.len() as u8)
            .map(MemberId)
            .filter(|m| leaving >> m.0 & 1 == 1)
            .collect();
        if members
            .iter()
            .any(|m| core.store.drives.members.list[m.index()].rebuilding)
            || core.store.drives.members.unrecorded_loss
        {
            self.reshape.leaving = leaving;
            return false;
        }
        for member in members {
            core.store.drives.members.leave_service(member);
            // It may be unresponsive with the last flush pending.
            core.store.drives.disown(&core.store.observe, member);
            let changed = core.store.pool.change_member(member, Change::Emptied);
            debug_assert_eq!(changed, Ok(()));
            let uuid = std::mem::take(&mut core.store.pool.superblock.members[member.index()].uuid);
            let ticket = core.store.drives.superblock_writer.next_ticket();
            core.store.drives.members.set_lost_ticket(member, ticket);
            self.reshape.gone.push((member, uuid));
        }
        if leaving != 0 {
            core.store.pool.superblock.features.incompatible &= !Features::LEAVING;
        }
        true
    }

    /// Reports members that have left, once that is recorded and no command to them is in flight.
    pub(super) fn tell_gone(&mut self, core: &mut Core, out: &mut Outbox) {
        let gone = std::mem::take(&mut self.reshape.gone);
        let (told, left): (Vec<(MemberId, Uuid)>, Vec<_>) = gone
            .into_iter()
            .partition(|(member, _)| self.is_out(*member, core));
        self.reshape.gone = left;
        out.notices.extend(
            told.into_iter()
                .map(|(member, uuid)| Notice::Removed { member, uuid }),
        );
    }
}
