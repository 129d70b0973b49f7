//! State of the replacement of a member that is in service. Protocol, invariants and steps:
//! `upkeep/membership/shadow.rs`.

use super::exchange::{Changed, refused};
use crate::api::{ControlId, Notice};
use crate::store::Drives;
use crate::store::events::Outbox;
use crate::store::member::Exchanges;
use crate::store::pool::Pool;
use windrow_types::MemberId;

/// A member and the spare that is its copy, or is becoming one.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// Slot of the spare.
    pub(crate) spare: MemberId,
    /// Member to replace.
    pub(crate) of: MemberId,
    /// True if it holds everything that the member holds.
    pub(crate) is_whole: bool,
    pub(crate) switch: Switch,
}

/// Stage of the exchange of the two devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Switch {
    /// Not requested.
    Idle,
    /// No superblock generation begins; the one being written ends.
    Quiescing(ControlId),
    /// No command is sent to either device; those in flight return.
    Draining(ControlId),
    /// Nothing is in flight: the driver exchanges the devices.
    Drained,
}

impl Exchanges {
    /// Shadow of a member, if it has one.
    pub(crate) fn shadow_of(&self, member: MemberId) -> Option<MemberId> {
        self.shadow
            .as_ref()
            .filter(|shadow| shadow.of == member)
            .map(|shadow| shadow.spare)
    }

    /// Member of which a spare is the shadow.
    pub(crate) fn shadowed_by(&self, spare: MemberId) -> Option<MemberId> {
        self.shadow
            .as_ref()
            .filter(|shadow| shadow.spare == spare)
            .map(|shadow| shadow.of)
    }

    /// True if a member is being replaced: other changes of members and layouts wait for that.
    pub(crate) fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// The shadow's bit in the mask of stale members.
    pub(crate) fn shadow_bit(&self) -> u64 {
        self.shadow.as_ref().map_or(0, |shadow| 1 << shadow.spare.0)
    }

    /// True if the shadow is complete and only the exchange is left.
    pub(crate) fn is_shadow_ready(&self, spare: MemberId) -> bool {
        self.shadow.as_ref().is_some_and(|shadow| {
            shadow.spare == spare && shadow.is_whole && shadow.switch == Switch::Idle
        })
    }

    /// Stale bits of a column's member and its shadow.
    pub(crate) fn stale_bits_of(&self, member: MemberId) -> u64 {
        1 << member.0 | self.shadow_of(member).map_or(0, |spare| 1 << spare.0)
    }

    /// The exchange of the devices is to begin; it is answered when nothing is in flight to either.
    pub(crate) fn begin_switch(&mut self, id: ControlId, member: MemberId) -> Changed {
        match &mut self.shadow {
            Some(shadow)
                if shadow.of == member && shadow.is_whole && shadow.switch == Switch::Idle =>
            {
                shadow.switch = Switch::Quiescing(id)
            }
            _ => return Err(refused(member, "nothing is ready to take its place")),
        }
        Ok(())
    }

    /// True while no generation of the superblock begins.
    pub(crate) fn holds_superblocks(&self) -> bool {
        self.shadow
            .as_ref()
            .is_some_and(|shadow| shadow.switch != Switch::Idle)
    }

    /// True if commands to this slot are kept back.
    pub(crate) fn is_frozen(&self, member: MemberId) -> bool {
        let is_frozen =
            |shadow: &&Shadow| matches!(shadow.switch, Switch::Draining(_) | Switch::Drained);
        self.shadow
            .as_ref()
            .filter(is_frozen)
            .is_some_and(|shadow| shadow.of == member || shadow.spare == member)
    }

    /// The pool has stopped: who waits for the exchange is refused.
    pub(crate) fn give_up_waiting_switch(&mut self) -> Option<ControlId> {
        match self.shadow.take()?.switch {
            Switch::Quiescing(id) | Switch::Draining(id) => Some(id),
            Switch::Idle | Switch::Drained => None,
        }
    }

    /// True if the device in a slot is being exchanged just now: nothing else may be done with it.
    pub(crate) fn is_being_exchanged(&self, member: MemberId) -> bool {
        let is_drained = self
            .shadow
            .as_ref()
            .is_some_and(|shadow| shadow.switch == Switch::Drained);
        is_drained && self.is_frozen(member)
    }
}

impl Drives {
    /// Completes the shadow when a rebuild has nothing left to write to it and all of it is
    /// flushed. False if there is no shadow, or that is not so.
    pub(crate) fn shadow_is_rebuilt(
        &mut self,
        rebuilt: &[MemberId],
        out: &mut Outbox,
    ) -> Option<MemberId> {
        let shadow = self
            .exchanges
            .shadow
            .as_mut()
            .filter(|shadow| !shadow.is_whole && rebuilt.contains(&shadow.spare))?;
        shadow.is_whole = true;
        let (member, spare) = (shadow.of, shadow.spare);
        self.members.list[spare.index()].rebuilding = false;
        out.notices.push(Notice::ReplacementReady { member, spare });
        Some(spare)
    }

    /// Aborts the exchange: the devices are where they were.
    pub(crate) fn give_up_switch(
        &mut self,
        pool: &Pool,
        member: MemberId,
        out: &mut Outbox,
    ) -> Changed {
        let Some(shadow) = self
            .exchanges
            .shadow
            .as_mut()
            .filter(|shadow| shadow.of == member)
        else {
            return Err(refused(member, "it is not being replaced"));
        };
        if let Switch::Quiescing(id) | Switch::Draining(id) =
            std::mem::replace(&mut shadow.switch, Switch::Idle)
        {
            out.answer_command(id, Err(refused(member, "the exchange was aborted")));
        }
        self.thaw(pool, None);
        Ok(())
    }

    /// Ends a replacement whose member or shadow leaves service. The spare stays a spare.
    pub(crate) fn drop_shadow_with(&mut self, pool: &mut Pool, member: MemberId, out: &mut Outbox) {
        let Some(shadow) = self
            .exchanges
            .shadow
            .take_if(|shadow| shadow.of == member || shadow.spare == member)
        else {
            return;
        };
        let Shadow {
            spare, of, switch, ..
        } = shadow;
        if let Switch::Quiescing(id) | Switch::Draining(id) = switch {
            out.answer_command(
                id,
                Err(refused(
                    of,
                    "the member, or the device that was to take its place, has left service",
                )),
            );
        }
        let slot = &mut self.members.list[spare.index()];
        (slot.online, slot.rebuilding, slot.dirty) = (false, false, false);
        pool.superblock.members[spare.index()].replaces = None;
        self.scheduler.cancel_held(spare);
        self.thaw(pool, Some(spare));
        out.notices
            .push(Notice::ReplacementEnded { member: of, spare });
    }
}
