//! Replacement of a member that is in service (docs/internals/replace.md): a spare becomes its
//! *shadow*, a second copy of all its data, and takes its slot when complete. Until then the member
//! is read and written as before.
//!
//! ```text
//! Prepare -> copying -> complete -> Switch: quiescing -> draining -> drained
//!      -> the driver exchanges the devices -> Switched
//!                                          '-- Thaw: back to complete
//! ```
//!
//! Invariants:
//!
//! 1. From `Prepare` on each log or journal write to the member goes to the shadow as well, and is
//!    done when both are. Each round of flushes and each superblock generation includes the shadow.
//! 2. Data sealed earlier is stale on the shadow (the bit of its slot in
//!    [`crate::store::segment::Segment::stale`]) until a rebuild has written it there.
//! 3. While the devices are exchanged nothing is in flight to either of them: new commands are kept
//!    back in order (`store/member/send.rs`). Afterwards the new device receives writes that only
//!    the old one has.
//! 4. No write that depends on the new device alone is acknowledged before a generation names it: a
//!    start before that uses the old device.

use crate::api::{ControlReply, Notice};
use crate::base::fault_injection::InjectedBug;
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::member::slot_state::Change;
use crate::store::member::{Changed, Shadow, Switch, needed_bytes, refused};
use crate::upkeep::Upkeep;
use crate::upkeep::rebuild::missed_segments;
use windrow_format::superblock::MemberState;
use windrow_types::MemberId;

impl Upkeep {
    /// Makes a spare the shadow of a member in service.
    pub(super) fn prepare(
        &mut self,
        member: MemberId,
        spare: MemberId,
        core: &mut Core,
    ) -> Changed {
        let needed = needed_bytes(
            &core.store.pool.zones,
            &core.store.pool.superblock.journals,
            member,
        );
        let Some(record) = core
            .store
            .pool
            .superblock
            .members
            .get(spare.index())
            .filter(|record| record.state == MemberState::Spare)
        else {
            return Err(refused(spare, "it is no spare"));
        };
        if record.size_bytes < needed {
            return Err(refused(
                member,
                format!(
                    "the device has {} bytes, the member's place needs {needed}",
                    record.size_bytes
                ),
            ));
        }
        let m = &core.store.drives.members.list[member.index()];
        if !m.online || m.rebuilding || core.store.pool.is_journal_device(member) {
            return Err(refused(
                member,
                "it is not in service, or not complete, or holds only a journal",
            ));
        }
        let mut others = (0..core.store.pool.superblock.members.len() as u8)
            .map(MemberId)
            .filter(|other| *other != spare);
        if core.store.drives.exchanges.has_shadow()
            || others.any(|other| core.store.pool.replaced_by(other).is_some())
        {
            return Err(refused(
                member,
                "another replacement has not ended; try again when it has, or remove its spare",
            ));
        }
        if self.reshape.layout_changes(&core.store.pool) {
            return Err(refused(
                member,
                "the pool is growing, or a member leaves it; try again when that has ended",
            ));
        }
        if core.store.drives.members.list[spare.index()].in_flight > 0 {
            return Err(refused(
                spare,
                "commands to its device have not ended; try again",
            ));
        }
        core.store.pool.superblock.members[spare.index()].replaces = Some(member);
        let is_whole = core.store.observe.bug == InjectedBug::EarlySwitch;
        core.store.drives.exchanges.shadow = Some(Shadow {
            spare,
            of: member,
            is_whole,
            switch: Switch::Idle,
        });
        let slot = &mut core.store.drives.members.list[spare.index()];
        (slot.online, slot.rebuilding, slot.dirty) = (true, !is_whole, false);
        slot.came += 1;
        for segment in core.store.pool.zones.clone().segments() {
            let missed = missed_segments(core.store.segments.get(segment), 0)
                && core.store.pool.members_of(segment) >> member.0 & 1 == 1;
            let s = core.store.segments.get_mut(segment);
            s.stale = if missed {
                s.stale | 1 << spare.0
            } else {
                s.stale & !(1 << spare.0)
            };
        }
        self.raise_barrier(core);
        self.integrity
            .rebuild_joined(&mut core.paths.durability, &core.store.drives, spare);
        Ok(())
    }

    /// Advances a requested exchange.
    pub(crate) fn switch_step(&mut self, core: &mut Core, out: &mut Outbox) {
        let is_writing = core.store.drives.superblock_writer.is_active();
        let Some(shadow) = &mut core.store.drives.exchanges.shadow else {
            return;
        };
        if let Switch::Quiescing(id) = shadow.switch
            && !is_writing
        {
            shadow.switch = Switch::Draining(id);
        }
        let (of, spare) = (shadow.of, shadow.spare);
        if let Switch::Draining(id) = shadow.switch
            && !core
                .store
                .drives
                .members
                .in_flight
                .iter()
                .any(|command| command.went_ns != u64::MAX && [of, spare].contains(&command.member))
        {
            shadow.switch = Switch::Drained;
            out.answer_command(id, Ok(ControlReply::Done));
        }
    }

    /// Completes the exchange: the spare's device is in the member's slot, and the spare's slot is
    /// empty.
    pub(super) fn end_switch(
        &mut self,
        member: MemberId,
        core: &mut Core,
        out: &mut Outbox,
    ) -> Changed {
        let Some(shadow) = core
            .store
            .drives
            .exchanges
            .shadow
            .take_if(|shadow| shadow.of == member && shadow.switch == Switch::Drained)
        else {
            return Err(refused(member, "its device is not being exchanged"));
        };
        let spare = shadow.spare;
        let record = &core.store.pool.superblock.members[spare.index()];
        let (uuid, size_bytes) = (record.uuid, record.size_bytes);
        core.store
            .pool
            .change_member(spare, Change::GiveUp)
            .map_err(|why| refused(spare, why))?;
        let given_up = &mut core.store.pool.superblock.members[spare.index()];
        (given_up.uuid, given_up.replaces) = (windrow_types::Uuid::default(), None);
        let record = &mut core.store.pool.superblock.members[member.index()];
        (record.uuid, record.size_bytes) = (uuid, size_bytes);
        self.forget_device(member, core);
        let slot = &mut core.store.drives.members.list[spare.index()];
        slot.online = false;
        slot.dirty = false;
        let stats = std::mem::take(&mut slot.stats);
        let slot = &mut core.store.drives.members.list[member.index()];
        // A kept-back flush of the spare is not sent any more: the next round flushes the device.
        (slot.stats, slot.dirty) = (stats, true);
        slot.came += 1;
        // Data acknowledged from now on may be on the new device alone. A round of flushes in
        // flight proves nothing about it.
        core.store.drives.members.unrecorded_loss = true;
        core.store.drives.move_held(&core.store.pool, spare, member);
        core.store.drives.thaw(&core.store.pool, None);
        out.notices.push(Notice::Replaced { member });
        Ok(())
    }
}
