//! Changes of members while the pool is running: take out, bring back, exchange, spares.
//!
//! ```text
//! TakeOut -> (recorded absent) -> Settle -> the driver exchanges the device
//!      -> BringBack or Exchange -> upkeep/rebuild.rs
//! ```
//! From the change on the member receives every write. Stale on it is what it missed since the
//! checkpoint at which it left (docs/internals/members.md), and batches sealed without it that are
//! not committed yet. So a rebuild begins only after the barrier of `Exchanges`.

use crate::api::{ControlId, ControlReply, MemberChange};
use crate::base::fault_injection::InjectedBug;
use crate::base::limits::STREAMS;
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::member::slot_state::{self, Change};
use crate::store::member::{
    Changed, Member, NOT_POWER_SAFE, add, is_power_safe, needed_bytes, refused,
};
use crate::upkeep::Upkeep;
use crate::upkeep::rebuild::missed_segments;
use windrow_format::superblock::{MemberRecord, MemberState, Superblock};
use windrow_geometry::MAX_MEMBERS;
use windrow_types::{MemberId, Uuid};

impl Upkeep {
    /// Executes a change; an answer that has to wait is noted in the control state.
    pub(crate) fn member_change(
        &mut self,
        id: ControlId,
        member: MemberId,
        change: MemberChange,
        core: &mut Core,
        out: &mut Outbox,
    ) -> Changed {
        if let MemberChange::AddSpare { uuid, size_bytes } = change {
            self.add_spare(member, uuid, size_bytes, core)?;
            return self.record_change(id, core, out);
        }
        if core.store.drives.exchanges.is_being_exchanged(member)
            && !matches!(change, MemberChange::Switched | MemberChange::Thaw)
        {
            return Err(refused(member, "its device is being exchanged; try again"));
        }
        let Some(record) = core.store.pool.superblock.members.get(member.index()) else {
            return Err(refused(member, "there is no such member"));
        };
        match change {
            MemberChange::TakeOut => self.take_out(member, core, out)?,
            MemberChange::CutShort { reason } if record.is_in_use() => {
                self.must_do_without(member, core)?;
                self.latch_member(member, Change::CutShort, reason, core, out);
                // Its loss is recorded like that of any member that fails.
                return self.record_change(id, core, out);
            }
            // Already known.
            MemberChange::CutShort { .. } if record.missed_from == 0 => {
                out.answer_command(id, Ok(ControlReply::Done));
                return Ok(());
            }
            MemberChange::CutShort { .. } => core
                .store
                .pool
                .change_member(member, Change::CutShort)
                .map_err(|why| refused(member, why))?,
            MemberChange::Settle if record.is_in_use() => {
                return Err(refused(member, "it is in use; take it out first"));
            }
            MemberChange::Settle => {
                core.store.drives.exchanges.settling.push((id, member));
                return Ok(());
            }
            MemberChange::BringBack { superblock } => self.bring_back(member, &superblock, core)?,
            MemberChange::Exchange {
                uuid,
                size_bytes,
                power_safe,
                spare,
            } => {
                if !power_safe && is_power_safe(&core.store.pool.superblock.journals, member) {
                    return Err(refused(member, NOT_POWER_SAFE));
                }
                self.exchange(member, uuid, size_bytes, spare, core)?;
            }
            MemberChange::Prepare { spare } => self.prepare(member, spare, core)?,
            MemberChange::Switch => return core.store.drives.exchanges.begin_switch(id, member),
            MemberChange::Switched => self.end_switch(member, core, out)?,
            MemberChange::Thaw => {
                core.store
                    .drives
                    .give_up_switch(&core.store.pool, member, out)?
            }
            MemberChange::Serve {
                granule,
                power_safe,
            } => {
                core.store.drives.exchanges.check_no_shadow(member)?;
                core.store.drives.members.check_owned(member)?;
                core.paths.durability.add_journal_device(
                    &mut core.store.pool,
                    member,
                    granule,
                    power_safe,
                )?;
                self.take_part(member, core);
            }
            MemberChange::GiveUp
                if core.store.pool.is_journal_device(member) && !record.is_in_use() =>
            {
                self.check_settled(member, core)?;
                core.paths.dismiss_journal_device(member, &mut core.store)?;
            }
            MemberChange::GiveUp => {
                core.store
                    .drives
                    .drop_shadow_with(&mut core.store.pool, member, out);
                core.store
                    .pool
                    .change_member(member, Change::GiveUp)
                    .map_err(|why| refused(member, why))?;
                core.store.pool.superblock.members[member.index()].uuid = Uuid::default();
                core.store.drives.disown(&core.store.observe, member);
            }
            MemberChange::AddSpare { .. } => {}
        }
        self.record_change(id, core, out)
    }

    /// Records the change in a new generation; the answer waits for it.
    fn record_change(&mut self, id: ControlId, core: &mut Core, out: &mut Outbox) -> Changed {
        let ticket = core.store.drives.superblock_writer.request();
        core.paths.commands.when_recorded(id, ticket);
        core.paths.superblock_step(&mut core.store, out);
        Ok(())
    }

    fn take_out(&mut self, member: MemberId, core: &mut Core, out: &mut Outbox) -> Changed {
        let (record, slot) = (
            &core.store.pool.superblock.members[member.index()],
            &core.store.drives.members.list[member.index()],
        );
        if record.state == MemberState::Spare && slot.in_flight > 0 {
            // It takes part in superblock writes while the pool is about to grow onto it, and a
            // scrub reads its label: such a command may be stuck. The slot stays a spare.
            self.latch_member(
                member,
                Change::Fault,
                "it was taken out while the pool was about to grow over it".into(),
                core,
                out,
            );
            core.store.drives.disown(&core.store.observe, member);
            return Ok(());
        }
        if !slot.online || !record.is_in_use() {
            core.store
                .pool
                .change_member(member, Change::TakeOut)
                .map_err(|why| refused(member, why))?;
            core.store.drives.disown(&core.store.observe, member);
            return Ok(());
        }
        self.must_do_without(member, core)?;
        self.latch_member(member, Change::TakeOut, String::new(), core, out);
        core.store.drives.disown(&core.store.observe, member);
        Ok(())
    }

    /// Checks that the pool can continue if a member in use is lost now.
    fn must_do_without(&mut self, member: MemberId, core: &mut Core) -> Changed {
        if !core.store.drives.members.list[member.index()].online {
            return Err(refused(member, "it is out of use already"));
        }
        core.store.drives.members.list[member.index()].online = false;
        let (holds, must_stop) = (
            super::redundancy_holds(&core.store.pool.zones, &core.store.drives.members.list),
            self.must_stop_without(core),
        );
        core.store.drives.members.list[member.index()].online = true;
        if !holds {
            return Err(refused(
                member,
                "the redundancy does not cover its loss in addition to the members lost already",
            ));
        }
        if must_stop {
            return Err(refused(
                member,
                "a growth is being recorded or reverted, and the pool could not continue without it; try again",
            ));
        }
        Ok(())
    }

    fn bring_back(
        &mut self,
        member: MemberId,
        superblock: &Superblock,
        core: &mut Core,
    ) -> Changed {
        let record = &core.store.pool.superblock.members[member.index()];
        if superblock.pool != core.store.pool.superblock.pool
            || superblock.member_uuid != record.uuid
        {
            return Err(refused(
                member,
                "the device is not the one that the pool has in this slot",
            ));
        }
        let found = slot_state::found(record, superblock.generation, false);
        self.check_settled(member, core)?;
        core.store
            .pool
            .change_member(member, Change::BringBack(found))
            .map_err(|why| refused(member, why))?;
        self.take_part(member, core);
        Ok(())
    }

    fn exchange(
        &mut self,
        member: MemberId,
        uuid: Uuid,
        size_bytes: u64,
        spare: Option<MemberId>,
        core: &mut Core,
    ) -> Changed {
        let (uuid, size_bytes) = match spare {
            None => (uuid, size_bytes),
            Some(spare) => match core
                .store
                .pool
                .superblock
                .members
                .get(spare.index())
                .filter(|record| record.state == MemberState::Spare)
            {
                Some(record) => (record.uuid, record.size_bytes),
                None => return Err(refused(spare, "it is no spare")),
            },
        };
        if core.store.pool.zones.leaving() >> member.0 & 1 == 1 {
            return Err(refused(
                member,
                "it is being removed from the pool: nothing is to be put in its place",
            ));
        }
        let needed = needed_bytes(
            &core.store.pool.zones,
            &core.store.pool.superblock.journals,
            member,
        );
        if size_bytes < needed {
            return Err(refused(
                member,
                format!("the device has {size_bytes} bytes, the member's place needs {needed}"),
            ));
        }
        self.check_settled(member, core)?;
        if core.paths.journal_needs(member, &core.store) {
            return Err(refused(
                member,
                "the log does not have all that is durable on this journal device; try again",
            ));
        }
        spare.map_or(Ok(()), |spare| {
            core.store
                .drives
                .members
                .check_owned(spare)
                .and_then(|()| core.store.drives.exchanges.check_no_shadow(spare))
        })?;
        core.store
            .pool
            .change_member(member, Change::Exchange)
            .map_err(|why| refused(member, why))?;
        if let Some(spare) = spare {
            core.store
                .pool
                .change_member(spare, Change::GiveUp)
                .map_err(|why| refused(spare, why))?;
            core.store.pool.superblock.members[spare.index()].uuid = Uuid::default();
        }
        let record = &mut core.store.pool.superblock.members[member.index()];
        (record.uuid, record.size_bytes) = (uuid, size_bytes);
        // A spare that was to replace the device before it is not to replace this one.
        core.store
            .pool
            // A spare assigned to the previous device is not assigned to this one.
            .superblock
            .members
            .iter_mut()
            .for_each(|record| record.replaces = record.replaces.filter(|of| *of != member));
        self.forget_device(member, core);
        self.take_part(member, core);
        Ok(())
    }

    /// Another device is in the member's slot: counters of the old one are reset.
    pub(super) fn forget_device(&mut self, member: MemberId, core: &mut Core) {
        let stats = std::mem::take(&mut core.store.drives.members.list[member.index()].stats);
        add(&mut core.store.drives.members.former, &stats.written);
        core.store.reads.slow.forget(member);
    }

    /// Checks that nothing was in flight to the old device when the driver exchanged it.
    fn check_settled(&self, member: MemberId, core: &Core) -> Changed {
        if !self.is_out(member, core) {
            return Err(refused(member, "commands to its old device have not ended"));
        }
        Ok(())
    }

    /// True if the member is out of use, that is recorded, and none of its commands is in flight.
    pub(crate) fn is_out(&self, member: MemberId, core: &Core) -> bool {
        let m = &core.store.drives.members.list[member.index()];
        let is_at_rest = m.in_flight == 0
            || (core.store.observe.bug == InjectedBug::EarlySettle && m.in_flight == m.disowned);
        !m.online
            && is_at_rest
            && core
                .store
                .drives
                .superblock_writer
                .has_recorded(m.lost_ticket)
    }

    /// Makes the member take part in every write, and be rebuilt.
    fn take_part(&mut self, member: MemberId, core: &mut Core) {
        let slot = &mut core.store.drives.members.list[member.index()];
        (slot.online, slot.rebuilding, slot.dirty) = (true, true, false);
        slot.came += 1;
        slot.left = None;
        core.store.pool.superblock.members[member.index()].listed_from =
            core.paths.durability.checkpoint.current() + 1;
        let missed_from = core.store.pool.superblock.members[member.index()].missed_from;
        for segment in core.store.pool.zones.clone().segments() {
            let missed = missed_segments(core.store.segments.get(segment), missed_from)
                && core.store.pool.members_of(segment) >> member.0 & 1 == 1;
            let s = core.store.segments.get_mut(segment);
            let stale = if missed {
                s.stale | 1 << member.0
            } else {
                s.stale & !(1 << member.0)
            };
            // Also if it was stale here already: the table may have been written without it while
            // the member was away.
            if stale != std::mem::replace(&mut s.stale, stale) || missed {
                core.store.segments.mark_dirty(segment);
            }
        }
        self.raise_barrier(core);
        self.integrity
            .rebuild_joined(&mut core.paths.durability, &core.store.drives, member);
    }

    /// Defers rebuilds until all batches sealed by now are committed.
    pub(super) fn raise_barrier(&mut self, core: &mut Core) {
        core.store.drives.exchanges.barrier =
            STREAMS.map(|stream| core.paths.log.stream(stream).position.seq);
    }

    /// True if every batch sealed before the last member joined is committed: then it is in
    /// `committed_rows`.
    pub(crate) fn behind_barrier(&self, core: &Core) -> bool {
        STREAMS
            .into_iter()
            .zip(core.store.drives.exchanges.barrier)
            .all(|(stream, barrier)| {
                core.paths
                    .log
                    .stream(stream)
                    .in_flight
                    .front()
                    .is_none_or(|batch| batch.seq >= barrier)
            })
    }

    fn add_spare(
        &mut self,
        member: MemberId,
        uuid: Uuid,
        size_bytes: u64,
        core: &mut Core,
    ) -> Changed {
        if core
            .store
            .pool
            .superblock
            .members
            .iter()
            .any(|record| record.uuid == uuid)
        {
            return Err(refused(
                member,
                "the pool has a member with this identifier",
            ));
        }
        let slots = core.store.pool.superblock.members.len();
        if member.index() > slots || member.index() >= MAX_MEMBERS {
            return Err(refused(
                member,
                format!("the pool has {slots} slots, and no more than {MAX_MEMBERS} can be"),
            ));
        }
        if core.store.drives.members.list.get(member.index()).is_some() {
            // The last one may have left just now.
            self.check_settled(member, core)?;
        }
        if member.index() == slots {
            core.store.pool.superblock.members.push(MemberRecord::new(
                Uuid::default(),
                MemberState::Removed,
                0,
            ));
            core.store.drives.members.list.push(Member::default());
        }
        core.store
            .pool
            .change_member(member, Change::Add)
            .map_err(|why| refused(member, why))?;
        let record = &mut core.store.pool.superblock.members[member.index()];
        (record.uuid, record.size_bytes) = (uuid, size_bytes);
        self.forget_device(member, core);
        Ok(())
    }

    /// Waiting requests whose members are settled now.
    pub(crate) fn take_settled(&mut self, core: &mut Core) -> Vec<ControlId> {
        // Another device may take its slot, so no data may be on it alone.
        let settling = std::mem::take(&mut core.store.drives.exchanges.settling);
        let (ready, waiting) = settling.into_iter().partition(|(_, member)| {
            self.is_out(*member, core) && !core.paths.journal_needs(*member, &core.store)
        });
        core.store.drives.exchanges.settling = waiting;
        ready
            .into_iter()
            .map(|(id, _): (ControlId, MemberId)| id)
            .collect()
    }
}
