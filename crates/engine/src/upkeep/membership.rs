//! Members that join, leave, fail or are exchanged while the pool is in service.

mod exchange;
mod shadow;

use crate::api::Notice;
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::member::redundancy_holds;
use crate::store::member::slot_state::Change;
use crate::store::pool::StopReason;
use crate::upkeep::Upkeep;
use crate::upkeep::reshape::AfterLoss;
use windrow_types::MemberId;

impl Upkeep {
    /// Takes a member out of service after a fault or by request. Stops the pool if more members
    /// are lost than the redundancy covers.
    pub(crate) fn latch_member(
        &mut self,
        member: MemberId,
        change: Change,
        error: String,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        if !core.store.drives.members.list[member.index()].online {
            return;
        }
        core.store.drives.members.list[member.index()].online = false;
        core.store.drives.members.list[member.index()].rebuilding = false;
        let has_failed = matches!(change, Change::Fault | Change::CutShort);
        let why = if has_failed {
            error.clone()
        } else {
            "taken out of service by the administrator".to_owned()
        };
        core.store.drives.members.list[member.index()].left =
            Some((why, core.store.observe.wall.unix_s(core.store.pool.now_ns)));
        core.store.drives.scheduler.cancel_held(member);
        core.store
            .drives
            .drop_shadow_with(&mut core.store.pool, member, out);
        out.notices.push(if has_failed {
            Notice::MemberFailed { member, error }
        } else {
            Notice::MemberOffline { member }
        });
        match self.after_loss(member, core, out) {
            AfterLoss::Record => {}
            AfterLoss::Done => return,
            AfterLoss::Stop => return core.store.halt(StopReason::TooManyLost, out),
        }
        let changed = core.store.pool.change_member(member, change);
        debug_assert_eq!(changed, Ok(()));
        if !redundancy_holds(&core.store.pool.zones, &core.store.drives.members.list) {
            return core.store.halt(StopReason::TooManyLost, out);
        }
        core.paths.choose_journal(&mut core.store);
        core.store.drives.members.unrecorded_loss = true;
        let ticket = core.store.drives.superblock_writer.request();
        core.store.drives.members.list[member.index()].lost_ticket = ticket;
        core.paths.superblock_step(&mut core.store, out);
    }
}
