//! Waits before a device is exchanged: until it answers, and until all of its commands have ended.

use super::Pool;
use crate::daemon::control_failure;
use crate::failure::{Failure, id};
use std::time::{Duration, Instant};
use windrow_engine::{Control, ControlError, MemberChange};
use windrow_types::MemberId;

/// Longest wait for commands to a device that is taken out. The kernel gives up on a dead
/// one after about half a minute.
const SETTLING: Duration = Duration::from_secs(120);
/// The same if no step follows: the device is closed later then.
pub(super) const CLOSING: Duration = Duration::from_secs(2);
/// The same if the wait can be repeated: other changes wait for the lock meanwhile.
pub(super) const WITH_LOCK: Duration = Duration::from_secs(10);
/// Pause between two looks.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(250);
/// Longest wait for the answer to a read before others proceed without it.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

impl Pool {
    /// Checks that an idle device answers a read in time: others must not wait for one that does
    /// not. (The read is abandoned.)
    pub(super) fn must_answer(&self, member: MemberId, what: &str) -> Result<(), Failure> {
        let Some(device) = self.0.driver.device(member) else {
            return Ok(());
        };
        match self.0.looks.answers(&device, ANSWER) {
            Ok(true) => Ok(()),
            Err(error) => Err(Failure::new(id::MEMBER_OPEN, what, error)),
            Ok(false) => {
                let why = format!(
                    "its device has not answered a read for {} s",
                    ANSWER.as_secs()
                );
                Err(Failure::new(id::MEMBER_IO, what, why).remedy(
                    "unplug the device, or wait until the kernel has given it up, and try again",
                ))
            }
        }
    }

    /// Waits until a member that is out of use has no commands outstanding; a member in use is not
    /// waited for. Others may change members meanwhile.
    pub(super) fn wait_for_answers(&self, member: MemberId, what: &str) -> Result<(), Failure> {
        self.wait_until(Instant::now() + SETTLING, member, what)
    }

    /// As [`Pool::wait_for_answers`], with the lock of all changes, and so only shortly.
    pub(super) fn wait_with_lock(&self, member: MemberId, what: &str) -> Result<(), Failure> {
        self.wait_until(Instant::now() + WITH_LOCK, member, what)
    }

    fn wait_until(&self, end: Instant, member: MemberId, what: &str) -> Result<(), Failure> {
        let mut pause = LOOK_AGAIN;
        loop {
            let (_, status) = self.member_status(member, what)?;
            if status.unanswered == 0 || ["online", "rebuilding"].contains(&status.state) {
                return Ok(());
            }
            if self.0.driver.is_stopped() {
                return Err(control_failure(what.to_owned(), &ControlError::Stopped));
            }
            if Instant::now() >= end {
                return Err(unsettled(what));
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(LOOK_AGAIN_MAX);
        }
    }

    /// Waits until nothing is in flight to the device of a member that is out of use.
    pub(super) fn settle(&self, member: MemberId, what: &str) -> Result<(), Failure> {
        self.settle_within(member, SETTLING, what)
    }

    /// As [`Pool::settle`], with a timeout. Zeroing of a spare is called off.
    pub(super) fn settle_within(
        &self,
        member: MemberId,
        patience: Duration,
        what: &str,
    ) -> Result<(), Failure> {
        if !self.0.emptying.call_off(member, patience) {
            return Err(unsettled(what));
        }
        // The engine is asked only when it can answer soon: each command abandoned after a timeout
        // would leave an entry there.
        let end = Instant::now() + patience;
        self.wait_until(end, member, what)?;
        let patience = end.saturating_duration_since(Instant::now()).max(CLOSING);
        match self.0.driver.control_within(
            Control::Member {
                member,
                change: MemberChange::Settle,
            },
            Some(patience),
        ) {
            Some(result) => result
                .map(|_| ())
                .map_err(|error| control_failure(what.to_owned(), &error)),
            None => Err(unsettled(what)),
        }
    }
}

fn unsettled(what: &str) -> Failure {
    let failure = Failure::new(
        id::MEMBER_STATE,
        what,
        "commands to its old device have not ended",
    );
    failure.remedy("unplug the device, or wait until the kernel has given it up, and try again")
}
