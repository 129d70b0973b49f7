//! Replacement of a member that is in service (docs/internals/replace.md): the new device is a spare first, which the engine makes a copy of the member; the steward
//! exchanges the two when it is complete. The member is in use until then.

use super::Pool;
use super::exchange::{Needs, path_of};
use crate::daemon::control_failure;
use crate::failure::{Failure, id};
use crate::offline::{self, Newcomer};
use crate::sessions::lock;
use std::sync::Arc;
use std::time::Duration;
use windrow_engine::api::{Control, MemberChange, MemberStatus};
use windrow_units::MemberId;

/// How long commands to the two devices may take to end; meanwhile what is for them waits. It is tried again later.
const DRAINING: Duration = Duration::from_secs(5);

impl Pool {
    /// A device becomes a spare, and from then on a copy of a member in service. To be called with the lock of all changes.
    pub(super) fn begin_replacement(&self, member: MemberId, newcomer: &Newcomer, needs: Needs, what: &str) -> Result<(), Failure> {
        let spare = self.wait_in_a_slot(newcomer, needs, what)?;
        self.change(member, MemberChange::Prepare { spare }, what).inspect_err(|_| {
            // The refusal is the failure to tell; a spare that could not be given back shows in the status.
            drop(self.give_up(spare, what));
        })
    }

    /// Goes on with all replacements: one that is complete takes its member's place, one that a restart has interrupted begins again.
    pub(super) fn go_on_replacing(&self) {
        let members = self.status().map(|status| status.members).unwrap_or_default();
        for (spare, member) in members.iter().filter_map(|slot| slot.replaces.map(|member| (slot, member))) {
            let result = if spare.replacement_ready {
                self.exchange_devices(member, spare.member)
            } else if !spare.is_shadow && members.get(member.index()).is_some_and(|member| member.state == "online") {
                self.begin_again(member, spare)
            } else {
                Ok(())
            };
            if let Err(failure) = result {
                tracing::warn!(%failure, "a replacement waits; it is tried again");
            }
        }
    }

    /// What a former start has copied may be of another time: the device is zeroed, and all begins again.
    fn begin_again(&self, member: MemberId, spare: &MemberStatus) -> Result<(), Failure> {
        let (slot, what) = (spare.member, format!("the replacement of member {member} cannot begin again"));
        let Some(device) = self.0.driver.device(slot) else { return Ok(()) };
        self.must_answer(slot, &what)?;
        let _one = lock(&self.0.exchanging);
        let (pool, now) = self.member_status(slot, &what)?;
        if now.uuid != spare.uuid || now.replaces != Some(member) || now.is_shadow {
            return Ok(());
        }
        self.settle(slot, &what)?;
        let failed = |error: windrow_device::DeviceError| Failure::new(id::MEMBER_IO, what.clone(), error.of(slot));
        if !offline::is_unused_spare(&*device, pool.pool, now.uuid).map_err(failed)? {
            offline::must_be_of(&*device, pool.pool).map_err(|why| {
                Failure::new(id::MEMBER_IN_USE, what.clone(), why).remedy("remove the spare, and see who uses it; then replace the member again")
            })?;
            self.empty(&pool, &*device, &what)?;
            offline::label(&*device, pool.pool, &pool.name, slot, now.uuid).map_err(failed)?;
        }
        self.change(member, MemberChange::Prepare { spare: slot }, &what)
    }

    /// The device of a spare that is a complete copy of a member takes its place.
    fn exchange_devices(&self, member: MemberId, spare: MemberId) -> Result<(), Failure> {
        let what = format!("spare {spare} cannot take the place of member {member}");
        let _one = lock(&self.0.exchanging);
        let (pool, status) = self.member_status(spare, &what)?;
        let Some(device) = self.0.driver.device(spare).filter(|_| status.replacement_ready) else { return Ok(()) };
        let thaw = || self.change(member, MemberChange::Thaw, &what);
        match self.0.driver.control_within(Control::Member { member, change: MemberChange::Switch }, Some(DRAINING)) {
            Some(answer) => drop(answer.map_err(|error| control_failure(what.clone(), &error))?),
            None => {
                thaw()?;
                let why = format!("commands to the two devices have not ended for {} s", DRAINING.as_secs());
                return Err(Failure::new(id::MEMBER_STATE, what, why));
            }
        }
        // (The slot that a label names is a hint: if the power goes now, the device is found by its identifier.)
        if let Err(error) = offline::label(&*device, pool.pool, &pool.name, member, status.uuid) {
            thaw()?;
            return Err(Failure::new(id::MEMBER_IO, what, error.of(spare)));
        }
        let exchanged = self.0.driver.exchange(member, Some(device.clone()));
        let is_there = self.0.driver.device(member).is_some_and(|there| Arc::ptr_eq(&there, &device));
        if let Err(error) = exchanged {
            if !is_there {
                thaw()?;
                return Err(Failure::new(id::MEMBER_OPEN, what, error));
            }
            // A connection's own queue did not take it, and is closed.
            tracing::warn!(%error, "a queue of reads is closed");
        }
        if let Err(error) = self.0.driver.exchange(spare, None) {
            // The slot is looked at again: nothing is sent to it any more.
            tracing::warn!(%error, "slot {spare} is not empty yet");
        }
        self.0.names.set_path(member, path_of(&*device));
        self.0.names.forget_path(spare);
        self.change(member, MemberChange::Switched, &what)?;
        tracing::info!("member {member} is replaced: its new device holds all that the old one held, which is not used any more");
        Ok(())
    }
}
