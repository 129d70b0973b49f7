//! Value of a segment as a victim.
//!
//! Cleaning a segment of utilisation `u` (live / capacity) moves `u` and gains `1 - u`. Greedy
//! takes the smallest `u`: the best for uniform random writes, and worst-case optimal without
//! predictions. With hot and cold data it is not: a hot segment gains more by waiting, a cold one
//! will hardly improve. The cost-benefit rule of the log-structured file system (Rosenblum and
//! Ousterhout, "The design and implementation of a log-structured file system", SOSP 1991, section
//! 3.5) therefore weighs the gain with its expected duration, estimated by age:
//! ```text
//! benefit / cost = (1 - u) * age / (1 + u)        1 to read the segment, u to rewrite live data
//! ```

use core::cmp::Ordering;

/// Numbers of a sealed segment for victim selection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentStats {
    /// Live payload, in units of the caller's choice (blocks, or 16-byte units).
    pub live_units: u32,
    /// Payload capacity, in the same units; at least 1.
    pub capacity_units: u32,
    /// Time of its seal, by a clock of the caller: an LSN, or bytes written to the log.
    pub sealed_at: u64,
}

impl SegmentStats {
    /// Live share, 0 to 1.
    #[inline]
    pub fn utilisation(&self) -> f64 {
        f64::from(self.live_units) / f64::from(self.capacity_units)
    }

    /// Compares utilisations exactly, also of segments with different capacities.
    #[inline]
    pub fn compare_utilisation(&self, other: &Self) -> Ordering {
        let product = |live: u32, capacity: u32| u64::from(live) * u64::from(capacity);
        product(self.live_units, other.capacity_units)
            .cmp(&product(other.live_units, self.capacity_units))
    }
}

/// The cost-benefit score at time `now` (of the clock of `sealed_at`); the larger, the better a
/// victim. An empty segment scores infinite: freeing it costs nothing. Only additions, products and
/// one division: equal on all machines.
#[inline]
pub fn cost_benefit(stats: &SegmentStats, now: u64) -> f64 {
    if stats.live_units == 0 {
        return f64::INFINITY;
    }
    let age = now.saturating_sub(stats.sealed_at) as f64;
    let (live, capacity) = (f64::from(stats.live_units), f64::from(stats.capacity_units));
    (capacity - live) * age / (capacity + live)
}

/// Opportunity cost of cleaning a victim although a segment that waits for a checkpoint would gain
/// `better_by` more. It is that gain, scaled by the garbage share of the waiting segment (`garbage`
/// of `capacity`, both in any one unit): the rest is live, and more of it dies while it waits.
/// `better_by` times `garbage` must fit: bytes and 16-byte units of the largest segment, 63 columns
/// of 127 MiB, do.
#[inline]
pub const fn opportunity_cost(better_by: u64, garbage: u32, capacity: u32) -> u64 {
    if capacity == 0 {
        0
    } else {
        better_by * garbage as u64 / capacity as u64
    }
}

#[cfg(test)]
mod tests;
