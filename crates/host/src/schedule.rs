//! When the next scrub begins by itself.
//!
//! A pure function of what is known: the property `scrub_interval_days`, when the pool was created, the last scrub, and the time. Somebody else asks
//! it from time to time ([`crate::daemon::Daemon::keep_schedule`]).
//!
//! 1 The interval counts from the end of the last scrub that reached it, from the end of one that was stopped (whoever did that did not want one now), or
//!   else from the creation of the pool. 2 A scrub that runs or is paused is the next one. 3 A time in the future is that of a clock that was wrong, and
//!   counts for nothing; so does 0. If nothing counts, nothing begins.

use std::time::SystemTime;
use windrow_engine::api::{PoolStatus, ScrubState};

const DAY_S: u64 = 86_400;

/// Seconds since 1970 by the clock of this host.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// When the next scrub begins by itself, seconds since 1970. It may have passed: then it is due.
pub fn next_scrub(status: &PoolStatus, now_unix_s: u64) -> Option<u64> {
    let scrub = &status.scrub;
    let interval = u64::from(status.properties.scrub_interval_days) * DAY_S;
    if interval == 0 || matches!(scrub.state, ScrubState::Running | ScrubState::Paused) {
        return None;
    }
    // Nobody told the engine the time at its end: begin and duration are known.
    let ended =
        if scrub.ended_unix_s > 0 { scrub.ended_unix_s } else { scrub.started_unix_s + if scrub.started_unix_s > 0 { scrub.active_ms / 1000 } else { 0 } };
    let known = [status.created_unix_s, scrub.completed_unix_s, ended];
    // A day of grace: clocks are put right by hours.
    let last = known.into_iter().filter(|at| *at > 0 && *at <= now_unix_s.saturating_add(DAY_S)).max();
    // A clock that was ahead when the pool was made, and nothing since: due now. (The end of that scrub counts from then on.)
    let due = || known.into_iter().any(|at| at > 0).then_some(now_unix_s);
    last.map(|last| last + interval).or_else(due)
}

#[cfg(test)]
mod tests;
