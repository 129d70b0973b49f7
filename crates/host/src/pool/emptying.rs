//! A spare that is zeroed in its slot by its own thread (`replacement.rs`). A command that removes
//! the device calls the zeroing off first, and waits for its end: nothing may be written to a
//! device that has left the pool.

use crate::sessions::lock;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use windrow_types::MemberId;

#[derive(Debug, Default)]
pub(super) struct Emptying {
    work: Mutex<Work>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    slot: Option<MemberId>,
    is_called_off: bool,
}

impl Emptying {
    /// Registers the work on a slot. False: there is work on it already.
    pub fn begin(&self, slot: MemberId) -> bool {
        let mut work = lock(&self.work);
        if work.slot.is_some() {
            return false;
        }
        *work = Work {
            slot: Some(slot),
            is_called_off: false,
        };
        true
    }

    /// Ends the registration: nothing more is written to the device.
    pub fn end(&self) {
        *lock(&self.work) = Work::default();
        self.ended.notify_all();
    }

    pub fn is_at(&self, slot: MemberId) -> bool {
        lock(&self.work).slot == Some(slot)
    }

    pub fn is_called_off(&self) -> bool {
        lock(&self.work).is_called_off
    }

    /// Ends the work on a slot, if there is any; false: its last command has not ended in time.
    pub fn call_off(&self, slot: MemberId, patience: Duration) -> bool {
        let mut work = lock(&self.work);
        if work.slot == Some(slot) {
            work.is_called_off = true;
        }
        let (_work, waited) = self
            .ended
            .wait_timeout_while(work, patience, |work| work.slot == Some(slot))
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        !waited.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A spare removed while it is being zeroed must not get its label written after the removal
    /// erased it: the device could not be added again.
    #[test]
    fn calling_off_waits_until_the_last_write_has_ended() {
        let (emptying, slot) = (Emptying::default(), MemberId(4));
        assert!(
            emptying.begin(slot)
                && !emptying.begin(MemberId(5))
                && emptying.is_at(slot)
                && !emptying.is_called_off()
        );
        assert!(
            emptying.call_off(MemberId(5), Duration::from_secs(60)) && !emptying.is_called_off(),
            "of another slot"
        );
        assert!(
            !emptying.call_off(slot, Duration::ZERO) && emptying.is_called_off(),
            "a write that hangs"
        );
        let written = Mutex::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *lock(&written) = true;
                emptying.end();
            });
            assert!(emptying.call_off(slot, Duration::from_secs(60)) && *lock(&written));
        });
        assert!(!emptying.is_at(slot) && !emptying.is_called_off());
    }
}
