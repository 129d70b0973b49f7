//! Members of a running pool: taken out, brought back, replaced, spares. One such change at a time.
//!
//! 1. The new device is probed, locked, probed again, erased and labelled before anything changes.
//!    One that was in this pool before is zeroed first (`offline/former.rs`).
//! 2. The engine takes the member out and reports when nothing is in flight to its old device.
//! 3. The queue gets the new device, the old one is closed.
//! 4. The engine gets the new device's identity and rebuilds it. If it refuses, the slot is empty
//!    again.
//!
//! Commands outstanding at an old device that hangs are waited for first, without the lock of all
//! changes: other changes proceed meanwhile (`settle.rs`).

use super::Pool;
use super::settle::{ANSWER, CLOSING, LOOK_AGAIN, WITH_LOCK};
use crate::daemon::control_failure;
use crate::failure::{Failure, id};
use crate::offline::{self, FoundMember, Newcomer, OpenRequest};
use crate::sessions::lock;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use windrow_device::Member;
use windrow_device::probe::signature::Mark;
use windrow_engine::{Control, ControlError, MemberChange, MemberStatus, PoolStatus};
use windrow_format::superblock::{RESERVED_BYTES, Superblock};
use windrow_geometry::MAX_MEMBERS;
use windrow_types::{BLOCK_BYTES, MemberId, Uuid};

/// A device, opened and locked for its future slot.
pub(super) struct Opened {
    device: Arc<dyn Member>,
    uuid: Uuid,
    size_bytes: u64,
}

/// Requirements of a slot for its device.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    /// Least size, bytes.
    pub(super) bytes: u64,
    /// Largest logical sector, bytes.
    pub(super) sector_max: u32,
    /// The device will not be flushed.
    pub(super) power_safe: bool,
}

impl Needs {
    /// Checks that a device of this size, with such sectors, meets the requirements.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn must_be_met(
        &self,
        path: &Path,
        size: u64,
        sector: u32,
        what: &str,
    ) -> Result<(), Failure> {
        // (Label and superblocks are on every device.)
        let least = self.bytes.max(RESERVED_BYTES);
        if size < least {
            let why = format!(
                "{} has {size} bytes, the member's place needs {least}",
                path.display()
            );
            return Err(Failure::new(id::MEMBER_OPEN, what, why).remedy("choose a larger device"));
        }
        sector_must_fit(sector, self.sector_max, what)
    }
}

impl Pool {
    /// Takes a member out of service. The pool continues without it at once. Its device is closed
    /// when its commands have ended; the wait for that is short ([`Pool::close_left`]).
    ///
    /// # Errors
    /// There is no such member, or the redundancy does not cover its loss.
    pub fn take_out(&self, member: MemberId) -> Result<(), Failure> {
        let what = format!("cannot take member {member} out of service");
        // Without the lock of all changes: its holder may be waiting for this very member's hanging
        // device.
        self.change(member, MemberChange::TakeOut, &what)?;
        _ = self.settle_within(member, CLOSING, &what);
        let end = Instant::now() + CLOSING;
        loop {
            if let Ok(_one) = self.0.exchanging.try_lock() {
                self.close_those_left();
                return Ok(());
            }
            if Instant::now() >= end {
                self.0.hot_spares.poke();
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Closes the devices of members that were taken out of service and whose last commands have
    /// ended meanwhile.
    pub fn close_left(&self) {
        let _one = lock(&self.0.exchanging);
        self.close_those_left();
    }

    /// As [`Pool::close_left`], with the lock of all changes. It waits for no hanging device: that
    /// is closed another time.
    fn close_those_left(&self) {
        let members = self
            .status()
            .map(|status| status.members)
            .unwrap_or_default();
        let left = members
            .iter()
            .filter(|member| member.state == "offline" && member.unanswered == 0)
            .map(|member| member.member);
        for member in left.filter(|member| self.0.driver.device(*member).is_some()) {
            let what = format!(
                "the device of member {member}, which was taken out of service, stays open"
            );
            if let Err(failure) = self
                .settle_within(member, CLOSING, &what)
                .and_then(|()| self.put(member, None, &what))
            {
                self.warn_once(&failure.to_string());
            }
        }
    }

    /// Brings back a member that is out of service: it gets what it missed. `path`: its device, if
    /// it has moved.
    ///
    /// # Errors
    /// The device is missing or another one, was used without the pool, or the member is in use.
    pub fn bring_back(&self, member: MemberId, path: Option<&Path>) -> Result<(), Failure> {
        let what = format!("cannot bring member {member} back");
        let known = || self.0.names.place(member).path;
        let path = path.map_or_else(|| PathBuf::from(known()), Path::to_owned);
        if path.as_os_str().is_empty() {
            return Err(
                Failure::new(id::MEMBER_OPEN, what, "the path of its device is not known")
                    .remedy("name its path"),
            );
        }
        let not_it = |why: &str| {
            Failure::new(
                id::MEMBER_STATE,
                what.clone(),
                format!("{}: {why}", path.display()),
            )
            .remedy("see `windrow pool replace`")
        };
        // A disk may be named; its partition is the member.
        let path = offline::member_path(&path);
        let look = || offline::examine(&path)?.ok_or_else(|| not_it("it is no member of any pool"));
        // A device that does not answer must not delay a spare for another member. The decisive
        // look is the one under the lock.
        let first = look()?;
        let spare = self.0.driver.device(member).filter(|_| {
            self.member_status(member, &what)
                .is_ok_and(|(_, status)| status.state == "spare")
        });
        let answers = |device: &Arc<dyn Member>| {
            self.0.looks.answers(device, ANSWER).unwrap_or(true)
                && offline::borne_by(&**device, &path).is_ok()
        };
        let gone = spare
            .filter(|device| !answers(device))
            .map(|device| Arc::downgrade(&device));
        let that_left = |found: FoundMember, status: &MemberStatus| {
            let superblock = found
                .superblock
                .ok_or_else(|| not_it("it has no valid superblock"))?;
            if status.uuid == superblock.member_uuid {
                Ok(superblock)
            } else {
                Err(not_it("it is another device than the member that left"))
            }
        };
        let (_, status) = self.member_status(member, &what)?;
        if status.state != "spare" {
            that_left(first, &status)?;
        }
        self.wait_for_answers(member, &what)?;
        let _one = lock(&self.0.exchanging);
        let found = look()?;
        let (pool, status) = self.member_status(member, &what)?;
        if status.state == "spare" {
            return self.bring_back_spare(&pool, &status, gone.as_ref(), &path, &what);
        }
        let superblock = that_left(found, &status)?;
        self.settle(member, &what)?;
        self.put(member, None, &what)?;
        let device =
            offline::open_member(&path, member, &self.opened_as(status.power_safe), &what)?;
        let size = device.info().size_bytes;
        if size < status.needed_bytes {
            // If it grows again it has zeroes where data was.
            let reason = format!(
                "it has {size} bytes, and its place needs {}",
                status.needed_bytes
            );
            if let Err(failure) = self.change(member, MemberChange::CutShort { reason }, &what) {
                self.warn_once(&failure.to_string());
            }
            return Err(not_it(&format!(
                "it has {size} bytes, the pool needs {}",
                status.needed_bytes
            )));
        }
        check_sector(&*device, status.sector_bytes_max, &what)?;
        // Another command may have held it until now.
        let superblock = borne_under_lock(&*device, &path, &superblock)
            .ok_or_else(|| not_it("it was changed a moment ago; run it again"))?;
        self.put(member, Some(device), &what)?;
        self.tell(
            member,
            MemberChange::BringBack {
                superblock: Box::new(superblock),
            },
            &what,
        )
    }

    /// Brings back a spare whose device was missing at the start or has stopped answering. The pool
    /// has its slot; the device has only its label.
    fn bring_back_spare(
        &self,
        pool: &PoolStatus,
        spare: &MemberStatus,
        gone: Option<&Weak<dyn Member>>,
        path: &Path,
        what: &str,
    ) -> Result<(), Failure> {
        let slot = spare.member;
        // Another command may have put one there meanwhile.
        if self
            .0
            .driver
            .device(slot)
            .is_some_and(|device| !gone.is_some_and(|gone| gone.ptr_eq(&Arc::downgrade(&device))))
        {
            return Err(Failure::new(
                id::MEMBER_STATE,
                what,
                "it is a spare, and its device is there",
            )
            .remedy("see `windrow pool status`"));
        }
        self.settle(slot, what)?;
        self.put(slot, None, what)?;
        let device = offline::open_member(path, slot, &self.0.open, what)?;
        let size = device.info().size_bytes;
        let unused = offline::is_unused_spare(&*device, pool.pool, spare.uuid)
            .map_err(|error| Failure::new(id::MEMBER_IO, what, error.of(slot)))?;
        if !unused || size < spare.size_bytes {
            let why = format!(
                "{} is not the spare that left, or was used apart from the pool since",
                path.display()
            );
            return Err(Failure::new(id::MEMBER_STATE, what, why).remedy(
                "remove the spare, and add the device again with --overwrite if it is meant",
            ));
        }
        self.put(slot, Some(device), what)
    }

    /// Replaces a member's device. A member in service stays so until the new device is a copy of
    /// it (`replacement.rs`). Otherwise the new device is rebuilt; a member that is being rebuilt
    /// is taken out first.
    ///
    /// # Errors
    /// The new device is in use, holds something, is too small, or is not power-safe although it
    /// must be; or the redundancy does not cover the loss of the member.
    pub fn replace(
        &self,
        member: MemberId,
        newcomer: &Newcomer,
        power_safe: bool,
    ) -> Result<(), Failure> {
        let what = format!("cannot replace member {member}");
        let (pool, first) = self.replaceable(member, power_safe, &what)?;
        let needs = |status: &MemberStatus| Needs {
            bytes: status.needed_bytes,
            sector_max: status.sector_bytes_max,
            power_safe: status.power_safe,
        };
        self.empty_former(&pool, member, newcomer, needs(&first), &what)?;
        loop {
            self.wait_for_answers(member, &what)?;
            let _one = lock(&self.0.exchanging);
            let (pool, status) = self.replaceable(member, power_safe, &what)?;
            if status.uuid != first.uuid {
                return Err(Failure::new(
                    id::MEMBER_STATE,
                    what,
                    "another device has taken its place meanwhile",
                )
                .remedy("see `windrow pool status`"));
            }
            // (A copy cannot rely on a hanging device, which would delay everything else.)
            if status.state == "online" && !status.journal && status.hangs_ms == 0 {
                match self.begin_replacement(member, newcomer, needs(&status), &what) {
                    // The member was taken out meanwhile, or has failed.
                    Err(_) if self.member_status(member, &what)?.1.state != "online" => continue,
                    begun => return begun,
                }
            }
            let opened = self.open_newcomer(&pool, member, newcomer, needs(&status), &what)?;
            // The refusal is the failure to report. The label is erased: with the label of a pool
            // that it is not in, the device would be refused the next time.
            let give_back = |_: &Failure| _ = offline::erase(&*opened.device);
            if ["online", "rebuilding"].contains(&status.state) {
                self.change(member, MemberChange::TakeOut, &what)
                    .inspect_err(give_back)?;
                if let Err(hangs) = self.wait_with_lock(member, &what) {
                    give_back(&hangs);
                    continue;
                }
            }
            self.settle(member, &what).inspect_err(give_back)?;
            self.put(member, Some(opened.device.clone()), &what)
                .inspect_err(give_back)?;
            let Opened {
                uuid, size_bytes, ..
            } = opened;
            self.0.names.set_uuid(member, uuid);
            return self.tell(
                member,
                MemberChange::Exchange {
                    uuid,
                    size_bytes,
                    power_safe,
                    spare: None,
                },
                &what,
            );
        }
    }

    /// A member whose device may be replaced.
    pub(super) fn replaceable(
        &self,
        member: MemberId,
        power_safe: bool,
        what: &str,
    ) -> Result<(PoolStatus, MemberStatus), Failure> {
        let (pool, status) = self.member_status(member, what)?;
        if ["spare", "removed"].contains(&status.state) {
            return Err(
                Failure::new(id::MEMBER_STATE, what, format!("it is {}", status.state))
                    .remedy("see `windrow pool status`"),
            );
        }
        if status.leaving {
            let why = "it is being removed from the pool: nothing is to be put in its place";
            return Err(
                Failure::new(id::MEMBER_STATE, what, why).remedy("see `windrow pool status`")
            );
        }
        if status.power_safe && !power_safe {
            let why = "it is a journal device that is declared power-safe: what is written to it is not flushed";
            return Err(Failure::new(id::MEMBER_STATE, what, why)
                .remedy("if the new device is power-safe too, say so with --power-safe"));
        }
        Ok((pool, status))
    }

    /// Adds a spare of any size; returns its slot.
    ///
    /// # Errors
    /// The device is in use or holds something, or the pool has no slot left.
    pub fn add_spare(&self, newcomer: &Newcomer) -> Result<MemberId, Failure> {
        let what = spare_refused(newcomer);
        let needs = spare_needs(&self.status_now(&what)?);
        self.empty_for_a_slot(newcomer, needs, &what)?;
        let _one = lock(&self.0.exchanging);
        self.wait_in_a_slot(newcomer, needs, &what)
    }

    /// Adds a spare that can replace at least one member; returns its slot.
    ///
    /// # Errors
    /// As [`Pool::add_spare`], or it is too small for every member.
    pub fn add_fitting_spare(&self, newcomer: &Newcomer) -> Result<MemberId, Failure> {
        let what = spare_refused(newcomer);
        // Before anything is written to it. A device that cannot be measured is refused with a
        // reason when it is probed.
        let size = windrow_device::probe::size_bytes(&newcomer.path)
            .ok()
            .map(|size| size / BLOCK_BYTES * BLOCK_BYTES);
        let status = self.status_now(&what)?;
        size.map_or(Ok(()), |size| {
            must_fit_a_place(&status, &newcomer.path, size, &what)
        })?;
        self.add_spare(newcomer)
    }

    /// Adds a journal device; returns its slot. It is used once the log has everything that was
    /// written before.
    ///
    /// # Errors
    /// The device is in use or holds something, or does not fit the present journal, or the pool
    /// has no slot left.
    pub fn add_journal_device(
        &self,
        newcomer: &Newcomer,
        power_safe: bool,
    ) -> Result<MemberId, Failure> {
        let what = format!("cannot add {} as a journal device", newcomer.path.display());
        let needs = journal_needs(power_safe);
        self.empty_for_a_slot(newcomer, needs, &what)?;
        let _one = lock(&self.0.exchanging);
        let member = self.wait_in_a_slot(newcomer, needs, &what)?;
        let sector = self
            .0
            .driver
            .device(member)
            .map_or(BLOCK_BYTES, |device| device.info().logical_sector.into());
        let granule = if sector <= 512 {
            512
        } else {
            BLOCK_BYTES as u32
        };
        let served = self.change(
            member,
            MemberChange::Serve {
                granule,
                power_safe,
            },
            &what,
        );
        served.map(|()| member).inspect_err(|_| {
            // The refusal is the failure to report; a spare that could not be released shows in the
            // status.
            drop(self.give_up(member, &what));
        })
    }

    /// Makes a device a spare.
    pub(super) fn wait_in_a_slot(
        &self,
        newcomer: &Newcomer,
        needs: Needs,
        what: &str,
    ) -> Result<MemberId, Failure> {
        let pool = self.status_now(what)?;
        let member = slot_for_another(&pool, what)?;
        // The previous device in this slot may have left just now.
        self.dismiss(member, what)?;
        let opened = self.open_newcomer(&pool, member, newcomer, needs, what)?;
        self.put(member, Some(opened.device), what)?;
        self.tell(
            member,
            MemberChange::AddSpare {
                uuid: opened.uuid,
                size_bytes: opened.size_bytes,
            },
            what,
        )?;
        Ok(member)
    }

    /// Uses spares for data from now on; existing data moves over in the background.
    ///
    /// # Errors
    /// One of them is no spare or cannot be used, a member is missing, or the pool would not have
    /// more space.
    pub fn grow(&self, members: Vec<MemberId>) -> Result<(), Failure> {
        let _one = lock(&self.0.exchanging);
        let what = "the pool cannot grow".to_owned();
        for spare in &members {
            self.must_be_empty(*spare, &what)?;
        }
        self.control(Control::Grow { members })
            .map(|_| ())
            .map_err(|error| control_failure(what, &error))
    }

    /// Removes a spare or a journal device, and erases its label. A journal device leaves when the
    /// log has all of its durable records. A member with data leaves from now on: its data moves to
    /// the others in the background, and then its label is erased ([`Pool::dismiss_removed`]).
    ///
    /// # Errors
    /// There is no such member; too few would be left, or the pool's content would not fit; a
    /// member is missing, or data still moves.
    pub fn remove(&self, member: MemberId) -> Result<(), Failure> {
        let what = format!("cannot remove member {member}");
        // Read without the lock of all changes: if the device does not answer, only this command
        // stalls.
        let journal = self.0.driver.device(member).filter(|_| {
            self.member_status(member, &what)
                .is_ok_and(|(_, status)| status.journal)
        });
        let borne = journal.and_then(|device| {
            offline::borne_by(&*device, Path::new(&path_of(&*device)))
                .ok()
                .flatten()?
                .superblock
        });
        let (_, status) = self.member_status(member, &what)?;
        // A copy in progress may hang with commands in flight: then it is abandoned, and its label
        // erased when it answers.
        if ["spare", "removed"].contains(&status.state) && !status.is_shadow {
            self.must_answer(member, &what)?;
        }
        let _one = lock(&self.0.exchanging);
        let (_, status) = self.member_status(member, &what)?;
        if status.is_shadow {
            return self.call_off(member, &what);
        }
        if !status.journal && !["spare", "removed"].contains(&status.state) {
            return self
                .control(Control::Remove { member })
                .map(|_| ())
                .map_err(|error| control_failure(what, &error));
        }
        let serves = status.journal && ["online", "rebuilding"].contains(&status.state);
        if serves {
            self.change(member, MemberChange::TakeOut, &what)?;
        }
        let settled = if status.journal {
            self.settle(member, &what)
        } else {
            Ok(())
        };
        settled
            .and_then(|()| self.change(member, MemberChange::GiveUp, &what))
            .inspect_err(|_| {
                // The refusal is the failure to report; the device serves as before, if it can.
                let back = borne
                    .filter(|_| serves)
                    .map(|superblock| MemberChange::BringBack {
                        superblock: Box::new(superblock),
                    });
                if let Some(Err(failure)) = back.map(|back| self.change(member, back, &what)) {
                    tracing::warn!(
                        "pool '{}': {} stays out of service: {failure}",
                        self.name(),
                        self.member_text(member)
                    );
                }
            })?;
        self.erase_removed(member)
    }

    /// Frees the slot of a spare.
    pub(super) fn give_up(&self, member: MemberId, what: &str) -> Result<(), Failure> {
        self.change(member, MemberChange::GiveUp, what)?;
        self.erase_removed(member)
    }

    /// Erases the label of a device that is no longer the pool's.
    pub(super) fn erase_removed(&self, member: MemberId) -> Result<(), Failure> {
        self.dismiss(
            member,
            &format!("member {member} is removed, but the label on its device cannot be erased"),
        )
        .map(drop)
    }

    /// Closes the devices of members that have left for good and erases their labels, so that no
    /// search finds them.
    pub fn dismiss_removed(&self) {
        // (A hanging device is erased and closed another time.)
        let is_removed =
            |member: &&MemberStatus| member.state == "removed" && member.unanswered == 0;
        let removed = |pool: &PoolStatus| {
            pool.members
                .iter()
                .filter(is_removed)
                .map(|member| member.member)
                .collect::<Vec<_>>()
        };
        let answer = |member: &MemberId| {
            self.must_answer(*member, "cannot erase the label of a member that has left")
                .is_ok()
        };
        let removed: Vec<MemberId> = self
            .status()
            .iter()
            .flat_map(removed)
            .filter(answer)
            .collect();
        let _one = lock(&self.0.exchanging);
        let members = self
            .status()
            .map(|status| status.members)
            .unwrap_or_default();
        for member in members
            .iter()
            .filter(is_removed)
            .map(|member| member.member)
            .filter(|member| removed.contains(member))
        {
            let what =
                format!("cannot erase the label of member {member}, which has left the pool");
            match self.dismiss(member, &what) {
                Ok(false) => {}
                Ok(true) => tracing::info!(
                    "pool '{}': member {member} has left; its label is erased",
                    self.name()
                ),
                Err(failure) => self.warn_once(&failure.to_string()),
            }
        }
    }

    /// Erases and closes the device in an unused slot, if there is one.
    fn dismiss(&self, member: MemberId, what: &str) -> Result<bool, Failure> {
        // The next start must not search for it at this path.
        let forget = || self.0.names.forget_path(member);
        let Some(device) = self.0.driver.device(member) else {
            forget();
            return Ok(false);
        };
        self.settle(member, what)?;
        // A spare whose device took over a member's slot may still have its old slot: clearing that
        // one must not erase the member's label.
        let serves = |other: &MemberId| {
            *other != member
                && self
                    .0
                    .driver
                    .device(*other)
                    .is_some_and(|serving| Arc::ptr_eq(&serving, &device))
        };
        let serves_elsewhere = (0..MAX_MEMBERS as u8)
            .map(MemberId)
            .any(|other| serves(&other));
        let erased = if serves_elsewhere {
            Ok(())
        } else {
            offline::erase(&*device)
                .map_err(|error| Failure::new(id::MEMBER_IO, what, error.of(member)))
        };
        let path = path_of(&*device);
        self.put(member, None, what)?;
        forget();
        if erased.is_ok() && !serves_elsewhere {
            // A disk cannot be opened while its partition is open.
            drop(device);
            offline::partition::give_back(Path::new(&path));
        }
        erased.map(|()| !serves_elsewhere)
    }

    /// Lets a spare take the slot of a member that is out of use.
    ///
    /// # Errors
    /// The spare is too small or its device is missing; commands to the old device do not end.
    pub fn take_over(&self, member: MemberId, spare: MemberId) -> Result<(), Failure> {
        let what = format!("spare {spare} cannot take the place of member {member}");
        if self.is_emptied(spare) {
            return Err(Failure::new(id::MEMBER_STATE, what, "it is being emptied")
                .remedy("wait: it is tried again when it is empty"));
        }
        self.must_answer(spare, &what)?;
        let _one = lock(&self.0.exchanging);
        self.must_be_vacant(member, spare, &what)?;
        let (pool, status) = self.member_status(spare, &what)?;
        let device = self.0.driver.device(spare).ok_or_else(|| {
            Failure::new(id::MEMBER_OPEN, what.clone(), "its device is not there")
        })?;
        let place = self.member_status(member, &what)?.1;
        check_sector(&*device, place.sector_bytes_max, &what)?;
        if let Some(size) = self.too_small(spare, &place) {
            let why = format!(
                "it has {size} bytes now, and the place needs {}",
                place.needed_bytes
            );
            return Err(Failure::new(id::MEMBER_OPEN, what, why)
                .remedy("remove the spare, and add a larger one"));
        }
        self.settle_within(member, WITH_LOCK, &what)?;
        // A scrub may be writing the label of the spare. (A device that does not answer must not
        // come in.)
        self.settle_within(spare, WITH_LOCK, &what)?;
        let unused = offline::is_unused_spare(&*device, pool.pool, status.uuid)
            .map_err(|error| Failure::new(id::MEMBER_IO, what.clone(), error.of(spare)))?;
        if !unused {
            // If the pool was imported by force elsewhere, the spare may have served there. But
            // another host that reaches the drive may have put its own data on it since, which must
            // stay.
            offline::must_be_of(&*device, pool.pool).map_err(|why| {
                Failure::new(id::MEMBER_IN_USE, what.clone(), why)
                    .remedy("remove the spare, and see what uses it; if nothing does, a scrub rewrites its label")
            })?;
            self.empty(&pool, &*device, &what)?;
        }
        // This may have taken long, and a command that takes a member out does not wait for it.
        self.must_be_vacant(member, spare, &what)?;
        offline::label(&*device, pool.pool, &pool.name, member, status.uuid)
            .map_err(|error| Failure::new(id::MEMBER_IO, what.clone(), error.of(spare)))?;
        self.put(member, Some(device), &what)?;
        self.0.names.set_uuid(member, status.uuid);
        self.tell(
            member,
            MemberChange::Exchange {
                uuid: status.uuid,
                size_bytes: status.size_bytes,
                power_safe: false,
                spare: Some(spare),
            },
            &what,
        )?;
        self.dismiss(spare, &what).map(drop)
    }

    /// Checks that the slot is still vacant: the administrator may have been faster.
    fn must_be_vacant(&self, member: MemberId, spare: MemberId, what: &str) -> Result<(), Failure> {
        if vacancies(&self.status_now(what)?, true)
            .iter()
            .any(|(vacant, spares)| *vacant == member && spares.contains(&spare))
        {
            return Ok(());
        }
        Err(Failure::new(
            id::MEMBER_STATE,
            what,
            "the member is not missed any more, or the spare is gone",
        )
        .remedy("see `windrow pool status`"))
    }

    /// Zeroes a device that was in this pool before. That takes as long as a full write, and
    /// neither a spare nor another command may wait for it. So it is done before the lock of all
    /// changes is taken, and the device is blank when it is probed again.
    pub(super) fn empty_former(
        &self,
        pool: &PoolStatus,
        member: MemberId,
        newcomer: &Newcomer,
        needs: Needs,
        what: &str,
    ) -> Result<(), Failure> {
        // A device that cannot be read is left to the second probe.
        if offline::zeroed_first(&newcomer.path, pool.pool).is_none() {
            return Ok(());
        }
        let probed = newcomer.examine(what)?;
        let device = self.open_fitting((member, needs), newcomer, probed, what)?;
        self.empty(pool, &*device, what)
    }

    /// As [`Pool::empty_former`], for a device that gets a slot of its own.
    fn empty_for_a_slot(
        &self,
        newcomer: &Newcomer,
        needs: Needs,
        what: &str,
    ) -> Result<(), Failure> {
        let pool = self.status_now(what)?;
        self.empty_former(&pool, slot_for_another(&pool, what)?, newcomer, needs, what)
    }

    pub(super) fn empty(
        &self,
        pool: &PoolStatus,
        device: &dyn Member,
        what: &str,
    ) -> Result<(), Failure> {
        let emptied = offline::empty(device, pool.pool, &pool.name, what, &mut |done, all| {
            *lock(&self.0.zeroing) = Some((done, all));
            !self.0.driver.is_stopped()
        });
        *lock(&self.0.zeroing) = None;
        emptied
    }

    /// Opens a newcomer. Nothing is written before all checks pass.
    fn open_newcomer(
        &self,
        pool: &PoolStatus,
        member: MemberId,
        newcomer: &Newcomer,
        needs: Needs,
        what: &str,
    ) -> Result<Opened, Failure> {
        let probed = newcomer.examine(what)?;
        self.open_probed(pool, (member, needs), newcomer, probed, what)
    }

    /// As [`Pool::open_newcomer`], for a probed device.
    pub(super) fn open_probed(
        &self,
        pool: &PoolStatus,
        (member, needs): (MemberId, Needs),
        newcomer: &Newcomer,
        probed: Mark,
        what: &str,
    ) -> Result<Opened, Failure> {
        let device = self.open_fitting((member, needs), newcomer, probed, what)?;
        let failed = |error: windrow_device::DeviceError| {
            Failure::new(id::MEMBER_IO, what, error.of(member))
        };
        if offline::was_in(&*device, pool.pool).map_err(failed)? {
            self.empty(pool, &*device, what)?;
        }
        let uuid = offline::random_uuid()?;
        offline::erase(&*device)
            .and_then(|()| offline::label(&*device, pool.pool, &pool.name, member, uuid))
            .map_err(failed)?;
        let size_bytes = device.info().size_bytes / BLOCK_BYTES * BLOCK_BYTES;
        Ok(Opened {
            device,
            uuid,
            size_bytes,
        })
    }

    /// Options for opening a device.
    fn opened_as(&self, power_safe: bool) -> OpenRequest {
        OpenRequest {
            power_safe,
            ..self.0.open.clone()
        }
    }

    /// Opens and locks a new device, if it fits (a least size and a largest sector) and is
    /// unchanged since the probe.
    fn open_fitting(
        &self,
        (member, needs): (MemberId, Needs),
        newcomer: &Newcomer,
        probed: Mark,
        what: &str,
    ) -> Result<Arc<dyn Member>, Failure> {
        let device = offline::open_member(
            &newcomer.path,
            member,
            &self.opened_as(needs.power_safe),
            what,
        )?;
        needs.must_be_met(
            &newcomer.path,
            device.info().size_bytes,
            device.info().logical_sector,
            what,
        )?;
        offline::must_be_as_probed(&*device, member, probed, what)?;
        self.must_not_serve(&*device, newcomer, what)?;
        Ok(device)
    }

    /// Refuses a second path to a drive of the pool, or a copy of one, whatever may be overwritten
    /// on it.
    fn must_not_serve(
        &self,
        device: &dyn Member,
        newcomer: &Newcomer,
        what: &str,
    ) -> Result<(), Failure> {
        let Ok(Some(borne)) = offline::borne_by(device, &newcomer.path) else {
            return Ok(());
        };
        self.must_not_be_served(&borne, &newcomer.path, what)
    }

    /// As [`Pool::must_not_serve`], for a member found on a device.
    pub(super) fn must_not_be_served(
        &self,
        borne: &FoundMember,
        path: &Path,
        what: &str,
    ) -> Result<(), Failure> {
        let pool = self.status_now(what)?;
        let is_it = |member: &&MemberStatus| {
            member.uuid == borne.label.member_uuid && self.0.driver.device(member.member).is_some()
        };
        let serving = pool
            .members
            .iter()
            .filter(|member| ["online", "rebuilding", "spare"].contains(&member.state))
            .find(is_it);
        match serving.filter(|_| borne.label.pool == pool.pool) {
            None => Ok(()),
            Some(member) => {
                let why = format!(
                    "{} is member {} by another path, or a copy of it",
                    path.display(),
                    member.member
                );
                let remedy = "choose another device; one that is surely a copy has to be zeroed first (blkdiscard --zeroout)";
                Err(Failure::new(id::MEMBER_IN_USE, what, why).remedy(remedy))
            }
        }
    }

    /// Replaces the device of a member that is out of use; `None` also waits until its commands
    /// have ended.
    fn put(
        &self,
        member: MemberId,
        device: Option<Arc<dyn Member>>,
        what: &str,
    ) -> Result<(), Failure> {
        if device.is_none() && self.0.driver.device(member).is_some() {
            self.settle(member, what)?;
        }
        let path = device.as_ref().map(|device| path_of(&**device));
        self.0
            .driver
            .exchange(member, device)
            .map_err(|error| Failure::new(id::MEMBER_OPEN, what, error))?;
        if self.0.driver.is_stopped() && path.is_some() {
            // The pool has ended meanwhile, and closes its devices.
            self.0
                .driver
                .exchange(member, None)
                .map_err(|error| Failure::new(id::MEMBER_OPEN, what, error))?;
            return Err(control_failure(what.to_owned(), &ControlError::Stopped));
        }
        if let Some(path) = path {
            self.0.names.set_path(member, path);
        }
        Ok(())
    }

    /// Reports a slot's new device to the engine; if the engine refuses, the slot is emptied.
    fn tell(&self, member: MemberId, change: MemberChange, what: &str) -> Result<(), Failure> {
        self.change(member, change, what).inspect_err(|_| {
            // The engine's refusal is the failure to report; the engine sends nothing to the
            // member.
            drop(self.0.driver.exchange(member, None));
        })
    }

    pub(super) fn change(
        &self,
        member: MemberId,
        change: MemberChange,
        what: &str,
    ) -> Result<(), Failure> {
        self.control(Control::Member { member, change })
            .map(|_| ())
            .map_err(|error| control_failure(what.to_owned(), &error))
    }

    pub(super) fn status_now(&self, what: &str) -> Result<PoolStatus, Failure> {
        self.status()
            .ok_or_else(|| control_failure(what.to_owned(), &ControlError::Stopped))
    }

    pub(super) fn member_status(
        &self,
        member: MemberId,
        what: &str,
    ) -> Result<(PoolStatus, MemberStatus), Failure> {
        let status = self.status_now(what)?;
        let found = status.members.get(member.index()).cloned();
        found.map(|found| (status, found)).ok_or_else(|| {
            Failure::new(id::USAGE, what, "there is no such member")
                .remedy("see `windrow pool status`")
        })
    }
}

/// The superblock of a locked device, if it is still the member that had `before`.
pub(super) fn borne_under_lock(
    device: &dyn Member,
    path: &Path,
    before: &Superblock,
) -> Option<Superblock> {
    let now = offline::borne_by(device, path).ok()??.superblock?;
    ((now.pool, now.member_uuid) == (before.pool, before.member_uuid)).then_some(now)
}

fn spare_refused(newcomer: &Newcomer) -> String {
    format!("cannot add {} as a spare", newcomer.path.display())
}

/// Path at which a device was opened; empty if it has none.
pub(super) fn path_of(device: &dyn Member) -> String {
    device
        .info()
        .path
        .as_ref()
        .map(|path| path.display().to_string())
        .unwrap_or_default()
}

/// Requirements of a spare; the member that it will replace is not known.
pub(super) fn spare_needs(pool: &PoolStatus) -> Needs {
    let sector_max = pool
        .members
        .iter()
        .map(|member| member.sector_bytes_max)
        .min()
        .unwrap_or(BLOCK_BYTES as u32);
    Needs {
        bytes: 0,
        sector_max,
        power_safe: false,
    }
}

/// Requirements of a journal device.
pub(super) fn journal_needs(power_safe: bool) -> Needs {
    Needs {
        bytes: 0,
        sector_max: BLOCK_BYTES as u32,
        power_safe,
    }
}

/// Checks that a spare of this size can replace at least one member.
pub(super) fn must_fit_a_place(
    pool: &PoolStatus,
    path: &Path,
    size: u64,
    what: &str,
) -> Result<(), Failure> {
    let places = pool.members.iter().filter(|member| {
        !["spare", "removed"].contains(&member.state) && !member.power_safe && !member.leaving
    });
    let least = places.map(|member| member.needed_bytes).min().unwrap_or(0);
    if size >= least {
        return Ok(());
    }
    let why = format!(
        "{} has {size} bytes, and the smallest member needs {least}: it could replace none",
        path.display()
    );
    Err(Failure::new(id::MEMBER_OPEN, what, why)
        .remedy("choose a larger device, or give --force to add it all the same"))
}

/// A slot for another member: an unused one, else the one after the last.
pub(super) fn slot_for_another(pool: &PoolStatus, what: &str) -> Result<MemberId, Failure> {
    // (A slot whose last commands have not ended is not free yet.)
    let slot = pool
        .members
        .iter()
        .position(|member| member.state == "removed" && member.unanswered == 0)
        .unwrap_or(pool.members.len());
    let none = || {
        Failure::new(
            id::POOL_VALUE,
            what,
            format!("a pool has {MAX_MEMBERS} slots for members and spares"),
        )
        .remedy("remove a spare or a member first")
    };
    (slot < MAX_MEMBERS)
        .then_some(MemberId(slot as u8))
        .ok_or_else(none)
}

/// Refuses larger sectors than the unit of journal records: the device would fail every record.
pub(super) fn check_sector(
    device: &dyn Member,
    sector_max: u32,
    what: &str,
) -> Result<(), Failure> {
    sector_must_fit(device.info().logical_sector, sector_max, what)
}

fn sector_must_fit(sector: u32, sector_max: u32, what: &str) -> Result<(), Failure> {
    if sector <= sector_max {
        return Ok(());
    }
    let why = format!(
        "its logical sectors have {sector} bytes, and the pool's journal is written in units of {sector_max}"
    );
    Err(Failure::new(id::MEMBER_OPEN, what, why).remedy(
        "choose a device with logical sectors of 512 bytes, or format it with such sectors",
    ))
}

/// Members that a spare may replace, and the spares that may, in the order of the tries. A member
/// that failed in service counts at once; a missing one when `patient` is true, after the wait for
/// it; one that was taken out never. A power-safe journal device does not count: no spare is
/// declared power-safe, and writes there are not flushed.
pub(crate) fn vacancies(status: &PoolStatus, patient: bool) -> Vec<(MemberId, Vec<MemberId>)> {
    let mut spares: Vec<&MemberStatus> = status
        .members
        .iter()
        .filter(|member| member.state == "spare")
        .collect();
    // The smallest that is large enough.
    spares.sort_by_key(|spare| spare.size_bytes);
    let may_be_taken = |member: &MemberStatus| !member.leaving && !member.power_safe;
    let vacant = |member: &&MemberStatus| {
        may_be_taken(member)
            && (member.state == "faulted" || (patient && member.state == "missing"))
    };
    // A copy of one member replaces no other one.
    let may_take = |spare: &&&MemberStatus, member: &MemberStatus| {
        spare.replaces.is_none_or(|of| of == member.member) && !spare.is_shadow
    };
    let fits = |spare: &&&MemberStatus, member: &MemberStatus| {
        spare.size_bytes >= member.needed_bytes && may_take(spare, member)
    };
    let fitting = |member: &MemberStatus| {
        spares
            .iter()
            .filter(|spare| fits(spare, member))
            .map(|spare| spare.member)
            .collect()
    };
    let vacancies = status
        .members
        .iter()
        .filter(vacant)
        .map(|member| (member.member, fitting(member)));
    vacancies
        .filter(|(_, spares): &(MemberId, Vec<MemberId>)| !spares.is_empty())
        .collect()
}

/// Options for new devices: as the others, but with a short wait for locks.
pub(super) fn opening(request: &OpenRequest) -> OpenRequest {
    OpenRequest {
        lock_patience: Duration::from_secs(1),
        ..request.clone()
    }
}
