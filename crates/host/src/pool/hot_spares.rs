//! The hot-spare manager: a thread that lets spares replace failed or missing members. It also
//! closes the devices of members that have left for good, or that hung when they were taken out of
//! service.
//!
//! It wakes when a notice reports a change of a member, and every [`INTERVAL`] otherwise. A member
//! that failed in service is replaced at once. A member that was missing at the start may be absent
//! only temporarily, and is waited for.

use super::exchange::vacancies;
use super::{Inner, Pool};
use crate::sessions::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(10);
/// Most failures that are remembered.
const LOGGED_MAX: usize = 64;

#[derive(Default)]
struct State {
    poked: bool,
    closed: bool,
    /// Failures that have been logged: each look finds them again.
    logged: BTreeSet<String>,
}

/// Wake-up state of the thread.
#[derive(Default)]
pub(super) struct HotSpares {
    state: Mutex<State>,
    changed: Condvar,
}

impl HotSpares {
    /// Wakes the thread: a member has changed.
    pub(super) fn poke(&self) {
        lock(&self.state).poked = true;
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// True the first time that a failure is seen.
    fn is_new(&self, text: &str) -> bool {
        let logged = &mut lock(&self.state).logged;
        if logged.len() >= LOGGED_MAX {
            logged.clear();
        }
        logged.insert(text.to_owned())
    }

    /// Waits for the next look. False: the thread ends.
    fn wait(&self) -> bool {
        let (mut state, _) = self
            .changed
            .wait_timeout_while(lock(&self.state), INTERVAL, |state| {
                !state.poked && !state.closed
            })
            .unwrap_or_else(|e| e.into_inner());
        state.poked = false;
        !state.closed
    }
}

impl Pool {
    /// Logs a failure once, although it recurs as long as its cause lasts.
    pub(crate) fn warn_once(&self, text: &str) {
        if self.0.hot_spares.is_new(text) {
            tracing::warn!("pool '{}': {text}", self.name());
        }
    }
}

/// Starts the thread. `until`: end of the wait for members that were missing at the start.
pub(super) fn start(
    hot_spares: Arc<HotSpares>,
    pool: Weak<Inner>,
    until: Instant,
) -> std::io::Result<JoinHandle<()>> {
    let body = move || {
        hot_spares.poke();
        while hot_spares.wait() {
            let Some(inner) = pool.upgrade() else { return };
            let pool = Pool(inner);
            pool.dismiss_removed();
            pool.close_left();
            pool.check_sizes();
            pool.go_on_replacing();
            fill_vacancies(&pool, Instant::now() >= until);
        }
    };
    std::thread::Builder::new()
        .name("windrow-steward".to_owned())
        .spawn(body)
}

fn fill_vacancies(pool: &Pool, patient: bool) {
    let Some(status) = pool.status() else { return };
    for (member, spares) in vacancies(&status, patient) {
        for spare in spares {
            match pool.take_over(member, spare) {
                Ok(()) => {
                    tracing::warn!(
                        "pool '{}': spare {spare} has taken the place of {}",
                        pool.name(),
                        pool.member_text(member)
                    );
                    // The vacancies and spares have changed.
                    return pool.0.hot_spares.poke();
                }
                Err(failure) => pool.warn_once(&failure.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
