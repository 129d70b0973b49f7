//! Counters since the start of the engine.

use crate::api::{DedupSums, ReductionSums};

/// Counters since start, and the lifetime totals they began with.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) user_write_bytes: u64,
    pub(crate) user_read_bytes: u64,
    pub(crate) fill_blocks: u64,
    pub(crate) flushes: u64,
    pub(crate) checkpoints: u64,
    /// Checkpoints that the cleaner requested because no other segment could be cleaned.
    pub(crate) checkpoints_forced: u64,
    pub(crate) segments_cleaned: u64,
    pub(crate) victims: u64,
    pub(crate) repaired_reads: u64,
    /// Bytes of data space that batches took: the clock of segment ages.
    pub(crate) log_bytes: u64,
    /// Bytes of checkpoint batches among them.
    pub(crate) checkpoint_log_bytes: u64,
    /// Bytes of committed user blocks and records.
    pub(crate) committed_user_bytes: u64,
    /// Lifetime totals with which the engine started.
    pub(crate) lifetime_user_bytes: u64,
    pub(crate) lifetime_member_bytes: u64,
    pub(crate) lifetime_reduction: ReductionSums,
    pub(crate) lifetime_dedup: DedupSums,
    /// Highest warning in force.
    pub(crate) filling_reported: u8,
    pub(crate) overcommitted_reported: bool,
    /// Writes refused because no map page was left, and because there was no space.
    pub(crate) refused_map_pages: u64,
    pub(crate) refused_space: u64,
    pub(crate) map_full_reported: bool,
}
