//! The service thread: the engine's clock, and the driver that takes over when a client's thread
//! hands its turn over.
//!
//! The engine names a time to be woken at; the earliest one counts. A heartbeat comes at least
//! every `HEARTBEAT`, so that a wish replaced by an earlier one is never lost for long.

use crate::driver::{Caller, Driver};
use crate::sessions::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use windrow_engine::Event;

const HEARTBEAT: Duration = Duration::from_millis(250);
/// Shortest time between two ticks, whatever the engine wishes.
const PAUSE: Duration = Duration::from_micros(100);

#[derive(Default)]
struct State {
    poked: bool,
    closed: bool,
}

/// Wake-up time of the service thread.
pub(crate) struct Alarm {
    armed_ns: AtomicU64,
    state: Mutex<State>,
    wake: Condvar,
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            armed_ns: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            wake: Condvar::new(),
        }
    }
}

impl Alarm {
    /// Wakes the engine by this time. Called with the engine's lock held, so there is one caller at
    /// a time. Cheap unless the time is earlier than the armed one.
    pub(crate) fn wake_by(&self, at_ns: u64) {
        if self.armed_ns.fetch_min(at_ns, Ordering::AcqRel) > at_ns {
            // With the mutex the thread is either ahead of its look at `armed_ns` or already
            // waiting.
            drop(lock(&self.state));
            self.wake.notify_one();
        }
    }

    /// Makes the service thread drive now.
    pub(crate) fn poke(&self) {
        lock(&self.state).poked = true;
        self.wake.notify_one();
    }

    /// True once after a poke.
    #[cfg(test)]
    pub(crate) fn take_poke(&self) -> bool {
        std::mem::take(&mut lock(&self.state).poked)
    }

    /// Ends the service thread.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.wake.notify_one();
    }

    /// Waits for the next reason to wake. False: the thread ends.
    fn wait(&self, driver: &Driver) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return false;
            }
            let now = driver.clock.now_ns();
            let armed = self.armed_ns.load(Ordering::Acquire);
            if std::mem::take(&mut state.poked) || armed <= now {
                return true;
            }
            let patience = HEARTBEAT.min(Duration::from_nanos(armed - now)).max(PAUSE);
            let (next, timeout) = self
                .wake
                .wait_timeout(state, patience)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            state = next;
            if timeout.timed_out() && patience == HEARTBEAT {
                return !state.closed;
            }
        }
    }
}

/// Starts the service thread.
pub(crate) fn start(driver: Arc<Driver>) -> std::io::Result<JoinHandle<()>> {
    let body = move || {
        while driver.alarm.wait(&driver) {
            driver.alarm.armed_ns.store(u64::MAX, Ordering::Release);
            driver.post(Event::Tick(driver.clock.now_ns()));
            driver.drive(Caller::Service, None);
            driver.look_at_notices();
            std::thread::sleep(PAUSE);
        }
    };
    std::thread::Builder::new()
        .name("windrow-service".to_owned())
        .spawn(body)
}
