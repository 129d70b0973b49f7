//! Space of thin volumes: the sums of `status`, and their ratios.
//!
//! ```text
//! provisioned   sizes of the volumes                          what may be written
//!   logical     blocks that hold data                         less what was never written, trimmed, all zeroes or all ones
//!     unique    of blocks with the same content one           less what deduplication saves
//!       stored  payload, compressed where it is               less what compression saves
//! physical      segments in use on all members: stored, garbage, redundancy, headers, checkpoints
//! ```
//!
//! All are exact sums over committed data. Blocks that a file system has freed but not trimmed are
//! logical to a block device. So the effect of a trim is known for whole volumes only
//! ([`windrow_engine::VolumeSharing`]).

use serde::{Deserialize, Serialize};
use windrow_engine::PoolStatus;

/// Space by its levels, in bytes; ratios in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpaceReport {
    /// Sizes of all volumes.
    pub provisioned_bytes: u64,
    /// Blocks that hold data.
    pub logical_bytes: u64,
    /// Blocks with data, shared ones counted once.
    pub unique_bytes: u64,
    /// Stored bytes of these: payload alone.
    pub stored_bytes: u64,
    /// Segments that are not free, on all members, redundancy included.
    pub physical_bytes: u64,
    /// Data space without live blocks in closed segments: cleaning gains it without any trim.
    pub garbage_bytes: u64,
    /// The highest warning level that the fill level has passed, in per cent; 0: none.
    pub warned_percent: u8,
    /// `logical_bytes` less `stored_bytes`.
    pub saved_bytes: u64,
    /// `provisioned_bytes` for each usable byte: above one million the pool is overcommitted.
    pub provisioned_ppm: u64,
    /// `logical_bytes` / `unique_bytes`; one million if there is nothing.
    pub dedup_ppm: u64,
    /// `unique_bytes` / `stored_bytes`; one million if there is nothing.
    pub compression_ppm: u64,
    /// `logical_bytes` / `stored_bytes`: both together.
    pub reduction_ppm: u64,
}

impl SpaceReport {
    /// Computes it from the engine's status.
    pub fn new(status: &PoolStatus) -> Self {
        let logical_bytes: u64 = status
            .volumes
            .iter()
            .map(|volume| volume.mapped_bytes)
            .sum();
        let unique_bytes = logical_bytes - status.dedup.referred_bytes + status.dedup.unique_bytes;
        let stored_bytes = status.stored_bytes;
        // (Volumes that are being deleted do not count as provisioned.)
        let provisioned_bytes = status
            .volumes
            .iter()
            .filter(|volume| !volume.deleting)
            .map(|volume| volume.size_bytes)
            .sum();
        Self {
            provisioned_bytes,
            logical_bytes,
            unique_bytes,
            stored_bytes,
            physical_bytes: status.physical_bytes,
            garbage_bytes: status.garbage_bytes,
            warned_percent: status.warned_percent,
            saved_bytes: logical_bytes.saturating_sub(stored_bytes),
            provisioned_ppm: ratio(provisioned_bytes, status.plan.usable_bytes).unwrap_or(0),
            dedup_ppm: ratio(logical_bytes, unique_bytes).unwrap_or(1_000_000),
            compression_ppm: ratio(unique_bytes, stored_bytes).unwrap_or(1_000_000),
            reduction_ppm: ratio(logical_bytes, stored_bytes).unwrap_or(1_000_000),
        }
    }
}

/// Millionths; `None` if the base is 0.
pub(crate) fn ratio(bytes: u64, base: u64) -> Option<u64> {
    (u128::from(bytes) * 1_000_000)
        .checked_div(u128::from(base))
        .map(|ppm| u64::try_from(ppm).unwrap_or(u64::MAX))
}
