//! When the next scrub begins by itself.
//!
//! A pure function of what is known: the property `scrub_interval_days`, when the pool was created,
//! the last scrub, and the time. Somebody else asks it from time to time
//! ([`crate::daemon::Daemon::keep_schedule`]).
//!
//! 1 The interval counts from the end of the last scrub that reached it, from the end of one that
//!   was stopped (whoever did that did not want one now), or else from the creation of the pool. 2
//!   A scrub that runs or is paused is the next one. 3 A time in the future is that of a clock that
//!   was wrong, and counts for nothing; so does 0. 4 If all times are in the future, the clock was
//!   wrong when they were noted, or it is wrong now, as that of a machine which keeps no time while
//!   it is off, until it has asked others for it: a scrub is due when the clock has gone on for a
//!   day. If nothing is known, nothing begins.

use std::time::SystemTime;
use windrow_engine::api::{PoolStatus, ScrubState};

const DAY_S: u64 = 86_400;

/// Seconds since 1970 by the clock of this host.
pub fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

/// A clock that goes on, as far as that is seen: when it was first looked at, and last, since it
/// was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    since_unix_s: u64,
    now_unix_s: u64,
}

impl Clock {
    /// It is looked at for the first time.
    pub fn new(now_unix_s: u64) -> Self {
        Self {
            since_unix_s: now_unix_s,
            now_unix_s,
        }
    }

    /// It is looked at again. If it was set meanwhile, it counts from now.
    pub fn look(&mut self, now_unix_s: u64) {
        // (It may be put right by a little.)
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

/// When the next scrub begins by itself, seconds since 1970. It may have passed: then it is due.
pub fn next_scrub(status: &PoolStatus, clock: &Clock) -> Option<u64> {
    let scrub = &status.scrub;
    let interval = u64::from(status.properties.scrub_interval_days) * DAY_S;
    if interval == 0 || matches!(scrub.state, ScrubState::Running | ScrubState::Paused) {
        return None;
    }
    // Nobody told the engine the time at its end: begin and duration are known.
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
    // A day of grace: clocks are put right by hours.
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
