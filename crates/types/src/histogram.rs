//! Latency histograms with logarithmic buckets.
//!
//! A value of `v` nanoseconds falls into one of 32 buckets of its power of two. A percentile is
//! thus never more than 1/32 above the true value, from one nanosecond to 18 minutes, in a table of
//! fixed size. Recording is one addition.

use serde::{Deserialize, Serialize};

/// Buckets of each power of two.
const PER_OCTAVE: u64 = 32;
const SUB_BITS: u32 = PER_OCTAVE.trailing_zeros();
/// Cap: larger values are counted as this one; 2^40 ns are 18 minutes.
const CAP_NS: u64 = (1 << 40) - 1;
const BUCKETS: usize = index(CAP_NS) + 1;

/// Bucket of a value that is not beyond the cap.
const fn index(value: u64) -> usize {
    if value < PER_OCTAVE {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BITS;
    (shift as u64 * PER_OCTAVE + (value >> shift)) as usize
}

/// Largest value of a bucket.
fn upper_edge(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 * PER_OCTAVE {
        return index;
    }
    let shift = index / PER_OCTAVE - 1;
    let step = index - shift * PER_OCTAVE;
    ((step + 1) << shift) - 1
}

/// Counts of latencies.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.counts[index(latency_ns.min(CAP_NS))] += 1;
        self.total += 1;
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The value that `per_hundred_thousand` of 100 000 values do not exceed (50 000: the median);
    /// 0 if there is no value.
    pub fn quantile_ns(&self, per_hundred_thousand: u64) -> u64 {
        let rank = (u128::from(self.total) * u128::from(per_hundred_thousand))
            .div_ceil(100_000)
            .max(1) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_edge(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Summary for display.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.total,
            mean_ns: self.sum_ns.checked_div(self.total).unwrap_or(0),
            p50_ns: self.quantile_ns(50_000),
            p90_ns: self.quantile_ns(90_000),
            p99_ns: self.quantile_ns(99_000),
            p99_9_ns: self.quantile_ns(99_900),
            p99_99_ns: self.quantile_ns(99_990),
            max_ns: self.max_ns,
        }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.summary().fmt(f)
    }
}

/// Percentiles of one kind of request, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Requests counted.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 %.
    pub p90_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p99_9_ns: u64,
    /// 99.99 %.
    pub p99_99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests;
