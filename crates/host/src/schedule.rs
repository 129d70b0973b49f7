//! Time of the next automatic scrub.
//!
//! A pure function of the property `scrub_interval_days`, the pool's creation time, the last scrub,
//! and the time. [`crate::daemon::Daemon::keep_schedule`] calls it periodically.
//!
//! 1. The interval counts from the end of the last scrub that completed or was stopped, or else
//!    from the creation of the pool. (An administrator who stops a scrub does not want one then.)
//! 2. A scrub that runs or is paused is the next one.
//! 3. A time in the future comes from a wrong clock, and is ignored; so is 0.
//! 4. If all times are in the future, the clock was wrong when they were recorded, or is wrong now.
//!    A machine without a battery clock has a wrong time until it gets it from the network. So a
//!    scrub is due when the clock has run for a day. If no time is known, no scrub starts.

use std::time::SystemTime;
use windrow_engine::{PoolStatus, ScrubState};

const DAY_S: u64 = 86_400;

/// Seconds since 1970 by the clock of this host.
pub fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

/// The observed run of a clock: first and last look since it was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    since_unix_s: u64,
    now_unix_s: u64,
}

impl Clock {
    /// Starts with the first look.
    pub fn new(now_unix_s: u64) -> Self {
        Self {
            since_unix_s: now_unix_s,
            now_unix_s,
        }
    }

    /// Looks at the clock. If it was set meanwhile, the run starts again.
    pub fn look(&mut self, now_unix_s: u64) {
        // (Small corrections of the clock are allowed.)
        let goes_on = (self.now_unix_s.saturating_sub(3600)..self.now_unix_s.saturating_add(DAY_S))
            .contains(&now_unix_s);
        *self = if goes_on {
            Self {
                now_unix_s,
                ..*self
            }
        } else {
            Self::new(now_unix_s)
        };
    }
}

/// Time of the next automatic scrub, seconds since 1970. If it has passed, the scrub is due.
pub fn next_scrub(status: &PoolStatus, clock: &Clock) -> Option<u64> {
    let scrub = &status.scrub;
    let interval = u64::from(status.properties.scrub_interval_days) * DAY_S;
    if interval == 0 || matches!(scrub.state, ScrubState::Running | ScrubState::Paused) {
        return None;
    }
    // The end was not recorded: the start and duration are known.
    let ended = if scrub.ended_unix_s > 0 {
        scrub.ended_unix_s
    } else {
        scrub.started_unix_s
            + if scrub.started_unix_s > 0 {
                scrub.active_ms / 1000
            } else {
                0
            }
    };
    let known = [status.created_unix_s, scrub.completed_unix_s, ended];
    // A day of grace: corrections of a clock are hours.
    let last = known
        .into_iter()
        .filter(|at| *at > 0 && *at <= clock.now_unix_s.saturating_add(DAY_S))
        .max();
    // (The end of that scrub counts from then on.)
    let due = || {
        known
            .into_iter()
            .any(|at| at > 0)
            .then_some(clock.since_unix_s.saturating_add(DAY_S))
    };
    last.map(|last| last + interval).or_else(due)
}

#[cfg(test)]
mod tests;
