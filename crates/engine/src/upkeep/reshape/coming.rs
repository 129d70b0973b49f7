//! Pending layout of a growth, or of a removal (`removal.rs`).

use crate::api::{ControlError, ControlId, ControlReply, Notice};
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::member::{Member, Ticket, no_quorum_without, redundancy_holds, slot_state};
use crate::store::plan::{FormatError, Layout, lay_out, plan_zones};
use crate::store::pool::Pool;
use crate::upkeep::Upkeep;
use crate::upkeep::reshape::Reshape;
use windrow_format::superblock::MAX_ZONES;
use windrow_geometry::{MAX_MEMBERS, Zone, ZoneMap};
use windrow_types::{BLOCK_BYTES, MemberId};

/// A pending layout on its way into the superblock. New members have no superblock yet. They get
/// the present one, in which they are spares, before any member gets the one in which they are
/// members. Otherwise a crash in between could leave more members without a superblock than the
/// redundancy covers. The first one is marked as growing. A start by it needs enough of the old
/// members that no start by the second one is possible without them.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) id: ControlId,
    /// The new members.
    pub(super) members: Vec<MemberId>,
    /// The member that leaves.
    pub(super) leaves: Option<MemberId>,
    pub(super) zones: ZoneMap,
    pub(super) stage: Stage,
    /// The stage is over when this ticket is done.
    pub(super) ticket: Ticket,
}

impl Coming {
    /// True if it is being recorded, and more members are missing than it covers. (A layout without
    /// a member survives whatever the one with it does.)
    fn is_lost_by(&self, list: &[Member]) -> bool {
        self.stage == Stage::Record && self.leaves.is_none() && !redundancy_holds(&self.zones, list)
    }
}

/// Reaction to the loss of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterLoss {
    /// Its loss is recorded.
    Record,
    /// It is a spare again.
    Done,
    /// A start would refuse the pool with this recorded, or might not be the only one.
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// A member is to leave: the segments that the new layout takes must become free, and the log
    /// must get the journal's durable records.
    Room,
    /// The new members get the present superblock, marked as growing.
    Introduce,
    /// The generation with the new layout is written, without the mark.
    Record,
    /// Too many members failed during that, this one last: a generation without the new layout is
    /// written, marked as growing.
    TakeBack(MemberId),
}

impl Reshape {
    /// True while a layout is pending, or a member leaves.
    pub(crate) fn layout_changes(&self, pool: &Pool) -> bool {
        self.coming.is_some() || pool.zones.leaving() != 0
    }
}

impl Upkeep {
    /// Lays the pool out over further members.
    pub(crate) fn grow(
        &mut self,
        id: ControlId,
        members: Vec<MemberId>,
        core: &mut Core,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        let in_use = self.members_to_grow(&members, core)?;
        let zones = self.grown_zones(&in_use, core)?;
        if let Some(member) = members
            .iter()
            .find(|m| !zones.current().any(|zone| zone.members >> m.0 & 1 == 1))
        {
            // It would be a member with a vote and without data, and could not be removed.
            return Err(ControlError::Member {
                member: *member,
                why: "it is too small: no segment fits on it and the other members".into(),
            });
        }
        for member in &members {
            core.store.drives.members.enter_service(*member);
        }
        core.store.pool.superblock.set_growing(true);
        let ticket = core.store.drives.superblock_writer.request();
        self.reshape.coming = Some(Coming {
            id,
            members,
            leaves: None,
            zones,
            stage: Stage::Introduce,
            ticket,
        });
        self.update_plan(core);
        core.paths.superblock_step(&mut core.store, out);
        Ok(())
    }

    /// All members that the pool is to use, with their sizes.
    fn members_to_grow(
        &self,
        added: &[MemberId],
        core: &Core,
    ) -> Result<Vec<(MemberId, u64)>, ControlError> {
        let refused = |member, why: &str| {
            Err(ControlError::Member {
                member,
                why: why.into(),
            })
        };
        if self.reshape.coming.is_some() {
            return Err(ControlError::Invalid(
                "the pool is growing or about to lose a member; try again".into(),
            ));
        }
        if core.store.drives.exchanges.has_shadow() {
            return Err(ControlError::Invalid(
                "a member is being replaced; grow the pool when that has ended".into(),
            ));
        }
        if core.store.pool.zones.leaving() != 0 {
            return Err(ControlError::Invalid(
                "a member is being removed; grow the pool when it has left".into(),
            ));
        }
        let old = core
            .store
            .pool
            .zones
            .current()
            .fold(0u64, |mask, zone| mask | zone.members);
        let new = added.iter().fold(0u64, |mask, member| {
            mask | 1u64.checked_shl(u32::from(member.0)).unwrap_or(0)
        });
        if added.is_empty() || new.count_ones() as usize != added.len() {
            return Err(ControlError::Invalid(
                "name at least one spare, and each only once".into(),
            ));
        }
        for member in added {
            let Some(record) = core.store.pool.superblock.members.get(member.index()) else {
                return refused(*member, "there is no such member");
            };
            if let slot_state::Answer::Refused(why) =
                slot_state::next(slot_state::slot_state(record), slot_state::Change::Join)
            {
                return refused(*member, why);
            }
            core.store.drives.members.check_owned(*member)?;
        }
        let mut members = Vec::with_capacity(MAX_MEMBERS);
        for member in (0..core.store.pool.superblock.members.len() as u8)
            .map(MemberId)
            .filter(|m| (old | new) >> m.0 & 1 == 1)
        {
            let m = &core.store.drives.members.list[member.index()];
            if old >> member.0 & 1 == 1 && (!m.online || m.rebuilding) {
                return refused(
                    member,
                    "it is absent or not whole; a pool grows only when all members are whole; replace it, or wait for its rebuild",
                );
            }
            members.push((
                member,
                core.store.pool.superblock.members[member.index()].size_bytes,
            ));
        }
        Ok(members)
    }

    /// The present zones, and a layout of the next number over these members.
    pub(super) fn with_layout_over(
        &self,
        members: &[(MemberId, u64)],
        core: &Core,
    ) -> Result<ZoneMap, ControlError> {
        let refuse = |error: FormatError| ControlError::Invalid(error.to_string());
        let old = core.store.pool.zones.zones();
        let start = old.iter().map(|z| z.start).min().unwrap_or_default();
        let shape = old[0].shape;
        let mut layout = Layout {
            redundancy: core.store.pool.superblock.redundancy,
            segment_rows: shape.rows,
            chunk_rows: shape.chunk_rows,
            start,
            first_segment: 0,
            number: core.store.pool.zones.layout() + 1,
            members,
        };
        let wanted: u32 = lay_out(&layout)
            .map_err(refuse)?
            .iter()
            .map(|z| z.segments)
            .sum();
        layout.first_segment = free_numbers(old, wanted);
        let new = lay_out(&layout).map_err(refuse)?;
        let end = new.last().map_or(0, Zone::end_segment);
        let fits = new
            .iter()
            .all(|z| core.store.pool.codec.fits(z.shape.data_blocks()));
        if u64::from(end) > core.store.pool.codec.max_segments()
            || end < layout.first_segment + wanted
            || !fits
        {
            return Err(ControlError::NoSpace(format!(
                "the pool's addresses can name {} segments of up to {} blocks: too few for this layout",
                core.store.pool.codec.max_segments(),
                core.store.pool.codec.max_segment_blocks()
            )));
        }
        if old.len() + new.len() > MAX_ZONES {
            return Err(ControlError::NoSpace("the pool has too many zones of different layouts; wait until the data has moved to the newest one".into()));
        }
        let mut zones: Vec<Zone> = old.iter().chain(&new).cloned().collect();
        zones.sort_by_key(|z| z.first_segment);
        Ok(ZoneMap::new(zones))
    }

    /// As [`Upkeep::with_layout_over`], for more members than now.
    fn grown_zones(
        &self,
        members: &[(MemberId, u64)],
        core: &Core,
    ) -> Result<ZoneMap, ControlError> {
        let refuse = |error: FormatError| ControlError::Invalid(error.to_string());
        let zones = self.with_layout_over(members, core)?;
        let target = plan_zones(
            &zones,
            core.store.pool.superblock.properties.spare_per_mille,
            core.store.pool.kept(),
        )
        .map_err(refuse)?;
        if target.usable_bytes <= core.store.pool.plan.usable_bytes {
            return Err(ControlError::Invalid(
                "the pool would not have more usable space: the new members are too small".into(),
            ));
        }
        let plan = self
            .plan_over(
                &zones,
                core.store.pool.superblock.properties.spare_per_mille,
                core,
            )
            .map_err(refuse)?;
        if core.paths.bytes_beside(&plan, &core.store) > plan.usable_bytes {
            return Err(ControlError::NoSpace("the pool is too full to hold the tables of two layouts; trim or delete something first".into()));
        }
        Ok(zones)
    }

    /// Continues with a pending layout.
    pub(super) fn coming_step(&mut self, core: &mut Core, out: &mut Outbox) {
        let writer = &core.store.drives.superblock_writer;
        let is_recorded = |coming: &mut Coming| writer.has_recorded(coming.ticket);
        let Some(coming) = self.reshape.coming.take_if(is_recorded) else {
            return self.end_growing(core, out);
        };
        match coming.stage {
            Stage::Room => self.record_removal(coming, core, out),
            Stage::Introduce => self.record_layout(coming, core, out),
            Stage::Record => {
                out.answer_command(coming.id, Ok(ControlReply::Done));
                match coming.leaves {
                    Some(member) => self.take_removal(coming.zones, member, core, out),
                    None => self.take_layout(coming.zones, core, out),
                }
            }
            Stage::TakeBack(member) => self.refuse_layout(coming.id, member, core, out),
        }
    }

    /// Removes the growing mark when no growth is pending and the generation with the mark is
    /// durable. It stays while a pool with the layout that was taken back could start without the
    /// members in use.
    fn end_growing(&mut self, core: &mut Core, out: &mut Outbox) {
        // A salvage that has no checkpoint yet writes no superblock.
        let has_root = core.store.pool.superblock.checkpoints[0].is_some();
        let idle = self.reshape.coming.is_none()
            && core.store.pool.superblock.is_growing()
            && has_root
            && !core.store.pool.read_only
            && core.store.pool.stopped.is_none();
        if idle && (!self.reshape.dropped || self.no_quorum_without_us(core)) {
            self.reshape.dropped = false;
            core.store.pool.superblock.set_growing(false);
            core.store.drives.superblock_writer.request();
            core.paths.superblock_step(&mut core.store, out);
        }
    }

    /// True if a pool with these zones, whatever others it has, cannot start without the members in
    /// use.
    fn no_quorum_without_us(&self, core: &Core) -> bool {
        let in_use = |m: &usize| {
            core.store.drives.members.list[*m].online
                && core.store.pool.superblock.members[*m].is_in_use()
        };
        let in_use = (0..core.store.drives.members.list.len())
            .filter(in_use)
            .fold(0u64, |mask, m| mask | 1 << m);
        no_quorum_without(core.store.pool.zones.zones(), in_use)
    }

    /// Refuses the pending layout because of this member.
    fn refuse_layout(
        &mut self,
        id: ControlId,
        member: MemberId,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        self.update_plan(core);
        let why = "it failed or was put to another use before the pool grew".into();
        out.answer_command(id, Err(ControlError::Member { member, why }));
    }

    /// Handles the loss of a member. If more are lost than the redundancy covers while a layout is
    /// being recorded, the layout is taken back. Nothing was written under it, and the pool must
    /// not depend on members that may be lost for good.
    pub(crate) fn after_loss(
        &mut self,
        member: MemberId,
        core: &mut Core,
        out: &mut Outbox,
    ) -> AfterLoss {
        if self.must_stop_without(core) {
            return AfterLoss::Stop;
        }
        let list = &core.store.drives.members.list;
        let Some(mut coming) = self
            .reshape
            .coming
            .take_if(|coming| coming.is_lost_by(list))
        else {
            return AfterLoss::Record;
        };
        for new in &coming.members {
            (
                core.store.drives.members.list[new.index()].online,
                core.store.drives.members.list[new.index()].rebuilding,
            ) = (false, false);
            // They may be unresponsive, and no other code takes a spare out of service.
            core.store.drives.disown(&core.store.observe, *new);
            let changed = core
                .store
                .pool
                .change_member(*new, slot_state::Change::Leave);
            debug_assert_eq!(changed, Ok(()));
        }
        let is_new = coming.members.contains(&member);
        self.reshape.dropped = true;
        core.store.pool.superblock.zones = core.store.pool.zones.zones().to_vec();
        // Until this is durable on all remaining members, a missing one may have the generation
        // with the new layout.
        core.store.pool.superblock.set_growing(true);
        let ticket = core.store.drives.superblock_writer.request();
        (coming.stage, coming.ticket) = (Stage::TakeBack(member), ticket);
        self.reshape.coming = Some(coming);
        self.update_plan(core);
        core.paths.superblock_step(&mut core.store, out);
        if is_new {
            AfterLoss::Done
        } else {
            AfterLoss::Record
        }
    }

    /// True if the members that are not online are needed while a layout is activated or taken
    /// back. A generation on them must not be able to start without the others.
    pub(crate) fn must_stop_without(&self, core: &Core) -> bool {
        let list = &core.store.drives.members.list;
        self.reshape
            .coming
            .as_ref()
            .is_some_and(|coming| match coming.stage {
                Stage::TakeBack(_) => !self.no_quorum_without_us(core),
                _ => {
                    coming.is_lost_by(list)
                        && !(redundancy_holds(&core.store.pool.zones, list)
                            && self.no_quorum_without_us(core))
                }
            })
    }

    /// Records the layout after the new members were introduced: now they become members.
    fn record_layout(&mut self, coming: Coming, core: &mut Core, out: &mut Outbox) {
        // Members that failed meanwhile are left out, and with a member lost the pool does not
        // grow.
        let mut members = (0..core.store.drives.members.list.len() as u8)
            .map(MemberId)
            .filter(|m| {
                coming
                    .zones
                    .current()
                    .any(|zone| zone.members >> m.0 & 1 == 1)
            });
        let is_spare = |m: &MemberId| {
            slot_state::slot_state(&core.store.pool.superblock.members[m.index()])
                == slot_state::SlotState::Spare
        };
        let lost = members.find(|m| {
            !core.store.drives.members.is_online(*m) || (coming.members.contains(m) && !is_spare(m))
        });
        if let Some(member) = lost {
            for member in coming
                .members
                .iter()
                .filter(|m| !core.store.pool.superblock.members[m.index()].is_in_use())
            {
                core.store.drives.members.leave_service(*member);
            }
            return self.refuse_layout(coming.id, member, core, out);
        }
        for member in &coming.members {
            let changed = core
                .store
                .pool
                .change_member(*member, slot_state::Change::Join);
            debug_assert_eq!(changed, Ok(()));
        }
        core.store.pool.superblock.zones = coming.zones.zones().to_vec();
        core.store.pool.superblock.set_growing(false);
        let ticket = core.store.drives.superblock_writer.request();
        self.reshape.coming = Some(Coming {
            stage: Stage::Record,
            ticket,
            ..coming
        });
        core.paths.superblock_step(&mut core.store, out);
    }

    /// Activates the layout after its superblock is durable.
    fn take_layout(&mut self, zones: ZoneMap, core: &mut Core, out: &mut Outbox) {
        core.store.pool.zones = zones;
        core.store.segments.lay_over(&core.store.pool.zones);
        self.begin_reshape(core);
        let chunk = core
            .store
            .pool
            .zones
            .zones()
            .iter()
            .map(|z| u64::from(z.shape.chunk_rows) * u64::from(z.shape.data) * BLOCK_BYTES)
            .max()
            .unwrap_or(0);
        core.store.pool.limits.pending_bytes = core.store.pool.limits.pending_bytes.max(4 * chunk);
        self.update_plan(core);
        let members = core
            .store
            .pool
            .zones
            .current()
            .fold(0, |mask, zone| mask | zone.members)
            .count_ones();
        out.notices.push(Notice::Grown {
            members,
            segments: core.store.segments.older_count(),
        });
        // Redundancy covers the members that failed meanwhile.
        debug_assert!(redundancy_holds(
            &core.store.pool.zones,
            &core.store.drives.members.list
        ));
        core.paths.ensure_next_segment(&mut core.store);
    }
}

/// First of `wanted` consecutive numbers that no segment of these zones has.
fn free_numbers(zones: &[Zone], wanted: u32) -> u32 {
    let mut end = 0;
    for zone in zones {
        if zone.first_segment - end >= wanted {
            break;
        }
        end = zone.end_segment();
    }
    end
}
