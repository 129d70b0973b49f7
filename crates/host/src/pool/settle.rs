//! What is waited for before a device is exchanged: that it answers, and that everything that was
//! sent to it has ended.

use super::Pool;
use crate::daemon::control_failure;
use crate::failure::{Failure, id};
use std::time::{Duration, Instant};
use windrow_engine::api::{Control, ControlError, MemberChange};
use windrow_types::MemberId;

/// How long commands to a device that is taken out may take to end. The kernel gives up on a dead
/// one after half a minute or so.
const SETTLING: Duration = Duration::from_secs(120);
/// The same where nothing has to follow: the device is closed later then.
pub(super) const CLOSING: Duration = Duration::from_secs(2);
/// The same where it can be waited for again: others wait for their turn meanwhile.
pub(super) const WITH_LOCK: Duration = Duration::from_secs(10);
/// Pauses between two looks, the first and the longest.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(250);
/// How long a device may take to answer a read before others go on without it.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

impl Pool {
    /// That a device that nothing else is sent to answers a read in time: one that does not is not
    /// to be waited for while others have to wait. (The read is left to itself.)
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

    /// Waits until a member that is out of use owes no answers; one that is in use is not waited
    /// for. Others may change members meanwhile.
    pub(super) fn wait_for_answers(&self, member: MemberId, what: &str) -> Result<(), Failure> {
        self.wait_until(Instant::now() + SETTLING, member, what)
    }

    /// The same with the lock of all changes, and so not for long.
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

    /// The same, for so long. A spare that is being emptied is not emptied any further.
    pub(super) fn settle_within(
        &self,
        member: MemberId,
        patience: Duration,
        what: &str,
    ) -> Result<(), Failure> {
        if !self.0.emptying.call_off(member, patience) {
            return Err(unsettled(what));
        }
        // The engine is asked only when it can answer soon: who goes away in vain is not to leave
        // something there each time.
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
