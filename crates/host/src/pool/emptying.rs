//! A spare that is emptied in its slot by a thread of its own (`replacement.rs`). What takes the
//! device away calls that off first, and waits for its end: nothing may be written to a device that
//! is not the pool's any more.

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
    /// Work on a slot begins; there is one at a time. False: there is one already.
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

    /// Nothing more is written to the device.
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

    /// Ends the work on a slot, if there is one; false: its last command has not ended in time.
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

    /// A spare was removed while it was emptied: its label, erased with the removal, was written
    /// once more behind that, and nobody could add the device again.
    #[test]
    fn who_calls_off_waits_until_the_last_write_has_ended() {
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
