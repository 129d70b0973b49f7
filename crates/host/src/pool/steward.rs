//! The thread that lets spares take the places of members that are gone, and lets go of the devices of those that have left for good,
//! or were taken out of service and hung.
//!
//! It comes when a notice tells of a member, and every [`INTERVAL`] otherwise. A member that failed in service is replaced at once; one that
//! was missing at the start may only have been forgotten, and is waited for.

use super::exchange::vacancies;
use super::{Inner, Pool};
use crate::sessions::lock;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    poked: bool,
    closed: bool,
}

/// What the thread waits for.
#[derive(Default)]
pub(super) struct Steward {
    state: Mutex<State>,
    changed: Condvar,
}

impl Steward {
    /// Something has become of a member.
    pub(super) fn poke(&self) {
        lock(&self.state).poked = true;
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// False: the end.
    fn wait(&self) -> bool {
        let (mut state, _) =
            self.changed.wait_timeout_while(lock(&self.state), INTERVAL, |state| !state.poked && !state.closed).unwrap_or_else(|e| e.into_inner());
        state.poked = false;
        !state.closed
    }
}

/// Starts the thread. `until`: how long a member that was missing at the start is waited for.
pub(super) fn start(steward: Arc<Steward>, pool: Weak<Inner>, until: Instant) -> std::io::Result<JoinHandle<()>> {
    let body = move || {
        steward.poke();
        while steward.wait() {
            let Some(inner) = pool.upgrade() else { return };
            let pool = Pool(inner);
            pool.dismiss_removed();
            pool.close_left();
            fill_vacancies(&pool, Instant::now() >= until);
        }
    };
    std::thread::Builder::new().name("windrow-steward".to_owned()).spawn(body)
}

fn fill_vacancies(pool: &Pool, patient: bool) {
    let Some(status) = pool.status() else { return };
    for (member, spares) in vacancies(&status, patient) {
        for spare in spares {
            match pool.take_over(member, spare) {
                Ok(()) => {
                    tracing::warn!("spare {spare} has taken the place of member {member}");
                    // What is vacant and what is spare is another now.
                    return pool.0.steward.poke();
                }
                Err(failure) => tracing::warn!(%failure, "no take-over"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
