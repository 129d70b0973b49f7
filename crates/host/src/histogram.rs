//! Latencies of requests, by kind.

use serde::{Deserialize, Serialize};
pub use windrow_types::{Histogram, LatencySummary};

/// Kinds of requests whose latency is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Trim and write-zeroes.
    Trim,
}

impl Operation {
    /// All of them, in the order of [`Latencies::of`].
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Trim];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Trim => "trim",
        }
    }
}

/// One histogram for each kind of request.
#[derive(Clone, Debug, Default)]
pub struct Latencies([Histogram; 4]);

impl Latencies {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, operation: Operation, latency_ns: u64) {
        self.0[operation as usize].record(latency_ns);
    }

    /// Adds the counts of others.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.merge(theirs);
        }
    }

    /// The histogram of one kind.
    pub fn of(&self, operation: Operation) -> &Histogram {
        &self.0[operation as usize]
    }

    /// The reported figures.
    pub fn summary(&self) -> LatencyReport {
        let [read, write, flush, trim] =
            Operation::ALL.map(|operation| self.of(operation).summary());
        LatencyReport {
            read,
            write,
            flush,
            trim,
        }
    }
}

/// Percentiles of all kinds of requests since the start, measured at the pool's interface (without
/// protocol and network).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Reads.
    pub read: LatencySummary,
    /// Writes.
    pub write: LatencySummary,
    /// Flushes.
    pub flush: LatencySummary,
    /// Trims and write-zeroes.
    pub trim: LatencySummary,
}

#[cfg(test)]
mod tests;
