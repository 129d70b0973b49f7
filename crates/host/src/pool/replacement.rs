//! Replacement of a member in service (docs/internals/replace.md).
//!
//! The new device is a spare first, which the engine makes a copy of the member. The hot-spare
//! manager exchanges the two when the copy is complete. The member is in use until then.

use super::exchange::{Needs, path_of};
use super::settle::{CLOSING, WITH_LOCK};
use super::{Inner, Pool};
use crate::daemon::control_failure;
use crate::failure::{Failure, id};
use crate::offline::{self, Newcomer};
use crate::sessions::lock;
use std::sync::{Arc, Weak};
use std::time::Duration;
use windrow_device::{DeviceError, Member};
use windrow_engine::{Control, MemberChange, MemberStatus, PoolStatus};
use windrow_types::MemberId;

/// Longest wait for commands to the two devices; new ones wait meanwhile. After a timeout
/// the exchange is tried again later.
const DRAINING: Duration = Duration::from_secs(5);

/// Refuses while a member is being replaced.
pub(super) fn must_replace_none(pool: &PoolStatus, what: &str) -> Result<(), Failure> {
    let Some((spare, of)) = pool
        .members
        .iter()
        .find_map(|slot| Some((slot.member, slot.replaces?)))
    else {
        return Ok(());
    };
    let why = format!(
        "spare {spare} is about to replace member {of}, and one member is replaced at a time"
    );
    Err(Failure::new(id::MEMBER_STATE, what, why).remedy(format!(
        "wait until it has (see `windrow pool status`), or remove spare {spare}"
    )))
}

impl Pool {
    /// Makes a device a spare, and from then on a copy of a member in service. Called with the lock
    /// of all changes.
    pub(super) fn begin_replacement(
        &self,
        member: MemberId,
        newcomer: &Newcomer,
        needs: Needs,
        what: &str,
    ) -> Result<(), Failure> {
        // The engine refuses it too, but by then the new device would have lost its content.
        must_replace_none(&self.status_now(what)?, what)?;
        let spare = self.wait_in_a_slot(newcomer, needs, what)?;
        self.change(member, MemberChange::Prepare { spare }, what)
            .inspect_err(|_| {
                // The refusal is the failure to report; a spare that could not be released shows in
                // the status.
                drop(self.give_up(spare, what));
            })
    }

    /// Continues all replacements: a complete copy takes its member's slot, a copy interrupted by a
    /// restart starts again.
    pub(super) fn go_on_replacing(&self) {
        let members = self
            .status()
            .map(|status| status.members)
            .unwrap_or_default();
        for (spare, member) in members
            .iter()
            .filter_map(|slot| slot.replaces.map(|member| (slot, member)))
        {
            let is_online = members
                .get(member.index())
                .is_some_and(|member| member.state == "online");
            let result = if spare.replacement_ready {
                self.exchange_devices(member, spare.member)
            } else if !spare.is_shadow && is_online {
                self.begin_again(member, spare)
            } else {
                Ok(())
            };
            if let Err(failure) = result {
                self.warn_once(&failure.to_string());
            }
        }
    }

    /// Restarts a copy: blocks copied before the restart may be stale, so the device is zeroed
    /// first.
    fn begin_again(&self, member: MemberId, spare: &MemberStatus) -> Result<(), Failure> {
        let (slot, what) = (
            spare.member,
            format!("the replacement of member {member} cannot begin again"),
        );
        let Some(device) = self
            .0
            .driver
            .device(slot)
            .filter(|_| !self.is_emptied(slot))
        else {
            return Ok(());
        };
        self.must_answer(slot, &what)?;
        let _one = lock(&self.0.exchanging);
        let (pool, now) = self.member_status(slot, &what)?;
        if now.uuid != spare.uuid || now.replaces != Some(member) || now.is_shadow {
            return Ok(());
        }
        self.settle_within(slot, WITH_LOCK, &what)?;
        if offline::is_unused_spare(&*device, pool.pool, now.uuid)
            .map_err(|error| Failure::new(id::MEMBER_IO, what.clone(), error.of(slot)))?
        {
            self.change(member, MemberChange::Prepare { spare: slot }, &what)?;
            tracing::info!(
                "pool '{}': the replacement of {} begins again",
                self.name(),
                self.member_text(member)
            );
            return Ok(());
        }
        offline::must_be_of(&*device, pool.pool).map_err(|why| {
            Failure::new(id::MEMBER_IN_USE, what.clone(), why)
                .remedy("remove the spare, and see what uses it; then replace the member again")
        })?;
        // This takes as long as a full write: neither the hot-spare manager nor another command may
        // wait for it.
        if !self.0.emptying.begin(slot) {
            return Ok(());
        }
        let weak = Arc::downgrade(&self.0);
        let body = move || empty_spare(&weak, slot, &device, &what);
        let started = std::thread::Builder::new()
            .name("windrow-empty".to_owned())
            .spawn(body);
        started.map(drop).map_err(|error| {
            self.0.emptying.end();
            Failure::new(id::NOT_AVAILABLE, "cannot empty a spare", error)
        })
    }

    /// True while a spare is being zeroed: its device must not be used otherwise.
    pub(super) fn is_emptied(&self, spare: MemberId) -> bool {
        self.0.emptying.is_at(spare)
    }

    /// Cancels a replacement and frees the spare's slot. A device that hangs with commands in
    /// flight is erased and closed when it answers.
    pub(super) fn call_off(&self, spare: MemberId, what: &str) -> Result<(), Failure> {
        self.change(spare, MemberChange::GiveUp, what)?;
        if self.settle_within(spare, CLOSING, what).is_err() {
            Ok(())
        } else {
            self.erase_removed(spare)
        }
    }

    /// Requires that a spare be zeroed if it was a copy of a member, or was in a reshape that was
    /// taken back: it holds stale blocks.
    pub(super) fn must_be_empty(&self, spare: MemberId, what: &str) -> Result<(), Failure> {
        let (pool, status) = self.member_status(spare, what)?;
        let Some(device) = self
            .0
            .driver
            .device(spare)
            .filter(|_| status.state == "spare" && !status.is_shadow)
        else {
            return Ok(());
        };
        if self.is_emptied(spare) {
            return Err(Failure::new(
                id::MEMBER_STATE,
                what,
                format!("spare {spare} is being emptied"),
            )
            .remedy("try again when it is empty"));
        }
        let failed = |error: DeviceError| Failure::new(id::MEMBER_IO, what, error.of(spare));
        if offline::is_unused_spare(&*device, pool.pool, status.uuid).map_err(failed)?
            || offline::must_be_of(&*device, pool.pool).is_err()
        {
            return Ok(());
        }
        self.settle_within(spare, WITH_LOCK, what)?;
        self.empty(&pool, &*device, what)?;
        offline::label(&*device, pool.pool, &pool.name, spare, status.uuid).map_err(failed)
    }

    /// Puts the device of a spare that is a complete copy of a member into the member's slot.
    fn exchange_devices(&self, member: MemberId, spare: MemberId) -> Result<(), Failure> {
        let what = format!("spare {spare} cannot take the place of member {member}");
        let _one = lock(&self.0.exchanging);
        let (pool, status) = self.member_status(spare, &what)?;
        let Some(device) = self
            .0
            .driver
            .device(spare)
            .filter(|_| status.replacement_ready)
        else {
            return Ok(());
        };
        if let Some(why) = pool
            .members
            .get(member.index())
            .and_then(|place| self.cannot_replace(spare, place))
        {
            self.call_off(spare, &what)?;
            return Err(Failure::new(id::MEMBER_OPEN, what, why).remedy(
                "the member stays in use, and the spare is removed; replace it with another device",
            ));
        }
        match self.0.driver.control_within(
            Control::Member {
                member,
                change: MemberChange::Switch,
            },
            Some(DRAINING),
        ) {
            Some(answer) => drop(answer.map_err(|error| control_failure(what.clone(), &error))?),
            None => {
                self.change(member, MemberChange::Thaw, &what)?;
                let why = format!(
                    "commands to the two devices have not ended for {} s",
                    DRAINING.as_secs()
                );
                return Err(Failure::new(id::MEMBER_STATE, what, why)
                    .remedy("see which of them hangs (`windrow pool status`); it is tried again"));
            }
        }
        let exchanged = self.0.driver.exchange(member, Some(device.clone()));
        let is_there = self
            .0
            .driver
            .device(member)
            .is_some_and(|there| Arc::ptr_eq(&there, &device));
        if let Err(error) = exchanged {
            if !is_there {
                self.change(member, MemberChange::Thaw, &what)?;
                return Err(Failure::new(id::MEMBER_OPEN, what, error));
            }
            // A connection's own queue did not take it, and is closed.
            tracing::warn!(%error, "a queue of reads is closed");
        }
        if let Err(error) = self.0.driver.exchange(spare, None) {
            // The slot is looked at again: no commands are sent to it any more.
            tracing::warn!(%error, "slot {spare} is not empty yet");
        }
        let former = self.0.names.place(member).path;
        self.0.names.set_path(member, path_of(&*device));
        self.0.names.set_uuid(member, status.uuid);
        self.0.names.forget_path(spare);
        self.change(member, MemberChange::Switched, &what)
            .inspect_err(|_| {
                if self.0.driver.is_stopped() {
                    // The pool has ended, and its devices were closed meanwhile.
                    drop(self.0.driver.exchange(member, None));
                }
            })?;
        if let Some(status) = self.status() {
            self.0.names.refresh(&status);
        }
        tracing::info!(
            "pool '{}': {former}, which was member {member}, is not used any more",
            self.name()
        );
        // (The slot in a label is a hint: devices are found by their identifiers. So the pool does
        // not wait for the write.)
        if let Err(error) = offline::label(&*device, pool.pool, &pool.name, member, status.uuid) {
            tracing::warn!(
                "pool '{}': the label of {} names its slot as a spare still: {}",
                self.name(),
                self.member_text(member),
                error.of(member)
            );
        }
        Ok(())
    }
}

/// Zeroes a spare, and wakes the hot-spare manager. It ends early with the pool, or when the spare
/// is removed.
fn empty_spare(pool: &Weak<Inner>, slot: MemberId, device: &Arc<dyn Member>, what: &str) {
    let is_left = |pool: &Weak<Inner>| {
        let inner = pool
            .upgrade()
            .filter(|inner| !inner.emptying.is_called_off());
        inner.is_some_and(|inner| {
            !inner.driver.is_stopped()
                && inner
                    .driver
                    .device(slot)
                    .is_some_and(|there| Arc::ptr_eq(&there, device))
        })
    };
    let of_pool = pool
        .upgrade()
        .map(Pool)
        .and_then(|pool| pool.member_status(slot, what).ok());
    let emptied = of_pool.map(|(status, spare)| {
        let note = |of: Option<(u64, u64)>| {
            if let Some(inner) = pool.upgrade() {
                *lock(&inner.zeroing) = of;
            }
        };
        let emptied = offline::empty(
            &**device,
            status.pool,
            &status.name,
            what,
            &mut |done, all| {
                note(Some((done, all)));
                is_left(pool)
            },
        );
        note(None);
        emptied.and_then(|()| {
            if !is_left(pool) {
                return Ok(());
            }
            offline::label(&**device, status.pool, &status.name, slot, spare.uuid)
                .map_err(|error| Failure::new(id::MEMBER_IO, what, error.of(slot)))
        })
    });
    let Some(pool) = pool.upgrade().map(Pool) else {
        return;
    };
    let is_left = is_left(&Arc::downgrade(&pool.0));
    pool.0.emptying.end();
    match emptied {
        Some(Err(failure)) if is_left => pool.warn_once(&failure.to_string()),
        _ => pool.0.hot_spares.poke(),
    }
}
