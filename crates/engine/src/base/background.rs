//! Pace of rebuild and scrub: full speed of the members without foreground I/O, and out of its way
//! otherwise.
//!
//! 1. Foreground I/O is *active* for [`USERS_ABOUT_NS`] after each client request.
//! 2. If it is not active, batches are begun as long as [`AHEAD_BYTES`] permit, so that no member
//!    waits for the next command.
//! 3. If it is active: one batch at a time, column by column in pieces (`VERIFY_PIECE_ROWS`), then
//!    a pause of [`GIVE_WAY`] times its duration. So a member has at most one such piece in its
//!    queue, and none for most of the time. This holds whatever its speed and the load.
//! 4. **No starvation.** However long a batch took, the next one may begin when a guaranteed rate
//!    permits (`floor_ns`), even in parallel.
//! 5. **Bounded**: an upper rate always applies (`bound_ns`).
//!
//! Time is that of the last tick, which a driver sends at least every millisecond during activity:
//! shorter times count as one.

use crate::base::limits::{
    AHEAD_BATCHES, AHEAD_BYTES, CATCH_UP_NS, GIVE_WAY, METER_NS, TICK_NS, USERS_ABOUT_NS,
};

/// Time of the last client request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Users {
    last_ns: Option<u64>,
}

impl Users {
    /// Notes a client request.
    pub(crate) fn note(&mut self, now_ns: u64) {
        self.last_ns = Some(now_ns);
    }

    /// True while foreground I/O is active.
    pub(crate) fn are_about(&self, now_ns: u64) -> bool {
        self.about_until(now_ns) > 0
    }

    /// Time until which foreground I/O counts as active; 0: it is not.
    fn about_until(&self, now_ns: u64) -> u64 {
        self.last_ns
            .map(|last| last + USERS_ABOUT_NS)
            .filter(|until| *until > now_ns)
            .unwrap_or(0)
    }
}

/// Time of day, as far as the driver has reported it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock {
    told: Option<(u64, u64)>,
}

impl WallClock {
    /// Sets the current time to `unix_s` (seconds since 1970).
    pub(crate) fn set(&mut self, unix_s: u64, now_ns: u64) {
        self.told = Some((unix_s, now_ns));
    }

    /// Seconds since 1970; 0: unknown.
    pub(crate) fn unix_s(&self, now_ns: u64) -> u64 {
        self.told.map_or(0, |(unix_s, at_ns)| {
            unix_s.saturating_add(now_ns.saturating_sub(at_ns) / 1_000_000_000)
        })
    }
}

/// The pace of one kind of background work.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// Pieces in progress and their bytes.
    pieces: usize,
    bytes: u64,
    /// Start time of the first of them.
    begun_ns: u64,
    /// End of the pause after the last piece.
    pause_until_ns: u64,
    /// Time at which the next piece is due by the guaranteed rate.
    due_ns: u64,
    /// Time from which the upper rate permits the next piece.
    bound_until_ns: u64,
    /// Time at which a refused batch may be asked for again; 0: none was refused.
    wake_ns: u64,
}

impl Throttle {
    /// True if one more batch may be begun. If only time prevents it, [`Throttle::wake_at_ns`]
    /// returns until when.
    pub(crate) fn may_begin(&mut self, now_ns: u64, users: &Users) -> bool {
        self.wake_ns = 0;
        if self.pieces >= AHEAD_BATCHES || (self.pieces >= 2 && self.bytes >= AHEAD_BYTES) {
            return false;
        }
        let mut at = 0;
        let until = users.about_until(now_ns);
        if until > 0 {
            at = if self.pieces == 0 {
                self.pause_until_ns.min(self.due_ns)
            } else {
                self.due_ns
            }
            .min(until);
        }
        let at = at.max(self.bound_until_ns);
        if at > now_ns {
            self.wake_ns = at;
        }
        at <= now_ns
    }

    /// Notes the start of a batch. `bound_ns`: its duration at the upper rate, 0 if there is none;
    /// `floor_ns`: at the guaranteed one.
    pub(crate) fn begin(&mut self, now_ns: u64, bytes: u64, bound_ns: u64, floor_ns: u64) {
        if self.pieces == 0 {
            self.begun_ns = now_ns;
        }
        self.add(bytes);
        let since = now_ns.saturating_sub(CATCH_UP_NS);
        self.bound_until_ns = if bound_ns == 0 {
            0
        } else {
            self.bound_until_ns.max(since).saturating_add(bound_ns)
        };
        self.due_ns = self.due_ns.max(since).saturating_add(floor_ns);
    }

    /// Charges further bytes that were read for a batch, beyond those given at its start.
    pub(crate) fn charge(&mut self, bound_ns: u64, floor_ns: u64) {
        self.bound_until_ns = if bound_ns == 0 {
            self.bound_until_ns
        } else {
            self.bound_until_ns.saturating_add(bound_ns)
        };
        self.due_ns = self.due_ns.saturating_add(floor_ns);
    }

    /// Adds bytes to a batch in progress.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.pieces += 1;
        self.bytes += bytes;
    }

    /// Ends a piece.
    pub(crate) fn end(&mut self, now_ns: u64, bytes: u64) {
        self.pieces -= 1;
        self.bytes -= bytes;
        if self.pieces == 0 {
            let took = now_ns.saturating_sub(self.begun_ns).max(TICK_NS);
            self.pause_until_ns = now_ns.saturating_add(took.saturating_mul(GIVE_WAY));
        }
    }

    /// True if nothing is in progress.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.pieces == 0
    }

    /// Time to ask again, if nothing happens before.
    pub(crate) fn wake_at_ns(&self, now_ns: u64) -> Option<u64> {
        (self.wake_ns > now_ns).then_some(self.wake_ns)
    }
}

/// Nanoseconds that `bytes` take at a rate; 0 if it is 0.
pub(crate) fn time_at(bytes: u64, bytes_per_second: u64) -> u64 {
    let time = (u128::from(bytes) * 1_000_000_000)
        .checked_div(u128::from(bytes_per_second))
        .unwrap_or(0);
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// Rate over the last seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    since_ns: u64,
    bytes: u64,
    rate: Option<u64>,
}

impl Meter {
    /// Notes the total number of bytes done. To be called repeatedly.
    pub(crate) fn note(&mut self, now_ns: u64, bytes: u64) {
        if self.since_ns == 0 || bytes < self.bytes {
            *self = Self {
                since_ns: now_ns,
                bytes,
                rate: None,
            };
        }
        if now_ns >= self.since_ns + METER_NS {
            let rate = self.since(now_ns, bytes);
            // Half of the shown rate is older than one interval.
            let rate = self.rate.map_or(rate, |before| before / 2 + rate / 2);
            *self = Self {
                since_ns: now_ns,
                bytes,
                rate: Some(rate),
            };
        }
    }

    /// Bytes per second.
    pub(crate) fn rate(&self, now_ns: u64, bytes: u64) -> u64 {
        self.rate.unwrap_or_else(|| self.since(now_ns, bytes))
    }

    fn since(&self, now_ns: u64, bytes: u64) -> u64 {
        let rate = (u128::from(bytes.saturating_sub(self.bytes)) * 1_000_000_000)
            .checked_div(u128::from(now_ns.saturating_sub(self.since_ns)));
        u64::try_from(rate.unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
