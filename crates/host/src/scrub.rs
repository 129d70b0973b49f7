//! Report on a scrub, and its result.

use crate::schedule::{Clock, next_scrub, unix_now};
use serde::{Deserialize, Serialize};
use windrow_engine::{PoolStatus, ScrubState};
use windrow_types::{BLOCK_BYTES, VolumeId};

/// A block that can neither be read nor reconstructed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostBlock {
    /// Volume; `#id` if it has been deleted. `shared content` for content that several blocks
    /// share: the blocks that refer to it follow.
    pub volume: String,
    /// Block of 4 KiB; its byte offset is 4096 times this.
    pub block: u64,
}

/// The scrub in progress, or the last one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// State.
    pub state: ScrubState,
    /// Time of its start, seconds since 1970.
    pub started_unix_s: u64,
    /// Time of its end, seconds since 1970; 0: it has not ended, or unknown.
    #[serde(default)]
    pub ended_unix_s: u64,
    /// Time when a scrub last completed; 0: none has, or unknown.
    #[serde(default)]
    pub completed_unix_s: u64,
    /// Time of the next automatic start, while the pool is served, seconds since 1970; `None`: one
    /// is in progress, or none is scheduled.
    #[serde(default)]
    pub next_unix_s: Option<u64>,
    /// Milliseconds for which it was running.
    pub active_ms: u64,
    /// Most bytes read from members each second; 0: no limit.
    pub bytes_per_second: u64,
    /// Segments verified.
    pub segments_done: u32,
    /// Segments of the pool.
    pub segments_total: u32,
    /// Batches verified.
    pub batches: u64,
    /// Bytes read from members.
    pub read_bytes: u64,
    /// Bytes still to be read from members: an estimate, because segments are filled and emptied
    /// meanwhile. 0 if it has ended.
    pub left_bytes: u64,
    /// Thousandths done, as last shown by the daemon: never decreasing.
    #[serde(default)]
    pub shown_per_mille: u64,
    /// Blocks of members that were wrong or unreadable.
    pub wrong_blocks: u64,
    /// Live blocks that were rewritten to the log because something in their rows was wrong.
    pub moved_blocks: u64,
    /// Live blocks that could not be rewritten because the pool has no space. They can be read, but
    /// lack redundancy.
    pub unmoved_blocks: u64,
    /// Live blocks that can neither be read nor reconstructed.
    pub lost_blocks: u64,
    /// Batches whose tables can neither be read nor reconstructed.
    pub damaged_batches: u64,
    /// The first of the lost blocks found since the daemon started; `lost_blocks` counts all.
    pub lost: Vec<LostBlock>,
}

impl ScrubReport {
    /// Builds it from the engine's status.
    pub fn new(status: &PoolStatus) -> Self {
        let scrub = &status.scrub;
        let shared = |id: VolumeId| (id == VolumeId::SHARED).then(|| "shared content".to_owned());
        let name = |id: VolumeId| {
            status
                .volumes
                .iter()
                .find(|volume| volume.id == id)
                .map_or_else(|| format!("#{}", id.0), |volume| volume.name.clone())
        };
        let mut report = Self {
            state: scrub.state,
            started_unix_s: scrub.started_unix_s,
            ended_unix_s: scrub.ended_unix_s,
            completed_unix_s: scrub.completed_unix_s,
            next_unix_s: next_scrub(status, &Clock::new(unix_now())),
            active_ms: scrub.active_ms,
            bytes_per_second: scrub.bytes_per_second,
            segments_done: scrub.segments_done,
            segments_total: scrub.segments_total,
            batches: scrub.batches,
            read_bytes: scrub.read_bytes,
            left_bytes: 0,
            shown_per_mille: 0,
            wrong_blocks: scrub.wrong_blocks,
            moved_blocks: scrub.moved_blocks,
            unmoved_blocks: scrub.unmoved_blocks,
            lost_blocks: scrub.lost_blocks,
            damaged_batches: scrub.damaged_batches,
            lost: scrub
                .lost
                .iter()
                .map(|lost| LostBlock {
                    volume: shared(lost.volume).unwrap_or_else(|| name(lost.volume)),
                    block: lost.lba,
                })
                .collect(),
        };
        if report.is_under_way() {
            report.left_bytes = left_bytes(status);
        }
        report
    }

    /// True if it runs or is paused.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, ScrubState::Running | ScrubState::Paused)
    }

    /// True if it has found errors.
    pub fn has_found(&self) -> bool {
        self.wrong_blocks > 0 || self.damaged_batches > 0 || self.has_losses()
    }

    /// True if it has found errors that cannot be repaired. (Blocks of damaged batches are read one
    /// by one, and moved or counted as lost.)
    pub fn has_losses(&self) -> bool {
        self.lost_blocks > 0
    }

    /// Thousandths done; an estimate, below 1000 until it has ended.
    pub fn done_per_mille(&self) -> u64 {
        match self.state {
            ScrubState::Completed => 1000,
            ScrubState::None => 0,
            ScrubState::Stopped if self.shown_per_mille > 0 => self.shown_per_mille,
            // The total bytes of a scrub that was stopped in an earlier run are unknown.
            ScrubState::Stopped => (u64::from(self.segments_done) * 1000)
                .checked_div(u64::from(self.segments_total))
                .unwrap_or(0),
            ScrubState::Running | ScrubState::Paused => {
                let all = u128::from(self.read_bytes) + u128::from(self.left_bytes);
                let share = (u128::from(self.read_bytes) * 1000)
                    .checked_div(all)
                    .unwrap_or(0);
                (share as u64).max(self.shown_per_mille).min(999)
            }
        }
    }

    /// Bytes read each second while it was running.
    pub fn rate(&self) -> u64 {
        let rate = (u128::from(self.read_bytes) * 1000)
            .checked_div(u128::from(self.active_ms))
            .unwrap_or(0);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Exit code of `pool scrub --wait`, with the values of `check`:
    /// - 0: no errors;
    /// - 1: errors were found and repaired;
    /// - 4: something is lost, or not repaired because there is no space;
    /// - 8: the scrub did not complete.
    pub fn exit_code(&self) -> u8 {
        match (
            self.state,
            self.has_losses() || self.unmoved_blocks > 0,
            self.has_found(),
        ) {
            (ScrubState::Completed, true, _) => 4,
            (ScrubState::Completed, false, true) => 1,
            (ScrubState::Completed, false, false) => 0,
            _ => 8,
        }
    }
}

/// Progress of a scrub at the last look. Its total grows while the pool is filled, but the shown
/// progress must not decrease.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    started_unix_s: u64,
    per_mille: u64,
}

impl Progress {
    pub(crate) fn keep(&mut self, scrub: &mut ScrubReport) {
        if scrub.started_unix_s != self.started_unix_s
            || matches!(scrub.state, ScrubState::Completed | ScrubState::None)
        {
            *self = Self {
                started_unix_s: scrub.started_unix_s,
                per_mille: 0,
            };
        }
        scrub.shown_per_mille = self.per_mille;
        if scrub.is_under_way() {
            self.per_mille = scrub.done_per_mille();
            scrub.shown_per_mille = self.per_mille;
        }
    }
}

/// Bytes left to read: those of segments with data less those read, and at most those of the
/// segments left.
fn left_bytes(status: &PoolStatus) -> u64 {
    let zones = &status.plan.zones;
    let all: u64 = zones
        .iter()
        .map(|zone| {
            u64::from(zone.segments)
                * u64::from(zone.shape.width)
                * u64::from(zone.shape.rows)
                * BLOCK_BYTES
        })
        .sum();
    // Spares, slots without a member and pure journal devices are not read.
    let holders = status
        .members
        .iter()
        .filter(|member| !member.journal && !["spare", "removed"].contains(&member.state));
    let (members, online) = holders.fold((0u128, 0u128), |(all, online), member| {
        (all + 1, online + u128::from(member.state == "online"))
    });
    let there = u128::from(all) * online;
    // Bytes of one segment on the members that are present.
    let each = there
        .checked_div(u128::from(status.plan.segments) * members)
        .unwrap_or(0) as u64;
    let of_data = (u64::from(status.data_segments) * each).saturating_sub(status.scrub.read_bytes);
    let segments_left = u64::from(
        status
            .scrub
            .segments_total
            .saturating_sub(status.scrub.segments_done),
    );
    of_data.min(segments_left * each)
}

#[cfg(test)]
mod tests;
