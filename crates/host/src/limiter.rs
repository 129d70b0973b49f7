//! A limit on messages: a burst of each kind passes in a window of time. The others are counted,
//! and the count is logged when the window ends.
//!
//! A client that repeats a read, or a drive whose latency changes all the time, can cause messages
//! without end. A log that fills the system's disk does more harm than the reported state.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Length of a window.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Most kinds with a window of their own; all others share one.
const KINDS_MAX: usize = 64;

#[derive(Debug)]
struct Window {
    since: Instant,
    passed: u32,
    held: u64,
}

/// Suppressed messages of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// The kind.
    pub(crate) kind: &'static str,
    /// Their number.
    pub(crate) count: u64,
}

/// The windows of all kinds.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    windows: BTreeMap<&'static str, Window>,
}

impl Limiter {
    /// True if a message of this kind passes: it is among the first `burst` of its window.
    pub(crate) fn passes(&mut self, kind: &'static str, burst: u32, now: Instant) -> bool {
        let kind = if self.windows.len() >= KINDS_MAX && !self.windows.contains_key(kind) {
            "other"
        } else {
            kind
        };
        let window = self.windows.entry(kind).or_insert(Window {
            since: now,
            passed: 0,
            held: 0,
        });
        if window.held == 0 && now.saturating_duration_since(window.since) >= WINDOW {
            (window.since, window.passed) = (now, 0);
        }
        let passes = window.passed < burst;
        if passes {
            window.passed += 1
        } else {
            window.held += 1
        }
        passes
    }

    /// Counts of suppressed messages in windows that have ended; with `all`, in all windows.
    pub(crate) fn take_held(&mut self, now: Instant, all: bool) -> Vec<Held> {
        let mut held = Vec::new();
        for (kind, window) in &mut self.windows {
            if window.held > 0 && (all || now.saturating_duration_since(window.since) >= WINDOW) {
                held.push(Held {
                    kind,
                    count: std::mem::take(&mut window.held),
                });
                (window.since, window.passed) = (now, 0);
            }
        }
        held
    }

    /// True if messages are suppressed.
    pub(crate) fn holds(&self) -> bool {
        self.windows.values().any(|window| window.held > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_passes_once_in_a_window_and_is_counted() {
        let (mut limiter, begin) = (Limiter::default(), Instant::now());
        let after = |seconds: u64| begin + Duration::from_secs(seconds);
        let passed = (0..1000)
            .filter(|_| limiter.passes("repaired", 10, begin))
            .count();
        assert_eq!((passed, limiter.holds()), (10, true));
        assert!(
            limiter.passes("member_failed", 10, begin),
            "another kind has a window of its own"
        );
        assert_eq!(limiter.take_held(after(59), false), []);
        assert_eq!(
            limiter.take_held(after(60), false),
            [Held {
                kind: "repaired",
                count: 990
            }]
        );
        assert!(limiter.passes("repaired", 10, after(60)) && !limiter.holds());
        (0..20).for_each(|_| _ = limiter.passes("repaired", 10, after(61)));
        assert_eq!(
            limiter.take_held(after(61), true),
            [Held {
                kind: "repaired",
                count: 11
            }]
        );
        // Rare messages are never suppressed.
        assert!((2..200).all(|n| limiter.passes("filling", 1, after(n * 60))));
    }
}
