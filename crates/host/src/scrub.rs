//! What is shown of a scrub, and the judgement of it.

use crate::schedule::{Clock, next_scrub, unix_now};
use serde::{Deserialize, Serialize};
use windrow_engine::api::{PoolStatus, ScrubState};
use windrow_types::{BLOCK_BYTES, VolumeId};

/// A block that can neither be read nor be rebuilt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostBlock {
    /// Volume; `#id` if it is gone by now. Content that several blocks share is `shared content`:
    /// the blocks that refer to it follow.
    pub volume: String,
    /// Block of 4 KiB; its byte offset is 4096 times this.
    pub block: u64,
}

/// The scrub that is under way, or the last one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// State.
    pub state: ScrubState,
    /// When it began, seconds since 1970.
    pub started_unix_s: u64,
    /// When it ended, seconds since 1970; 0: it has not, or that is not known.
    #[serde(default)]
    pub ended_unix_s: u64,
    /// When a scrub last reached its end; 0: none has, or that is not known.
    #[serde(default)]
    pub completed_unix_s: u64,
    /// When the next one begins by itself, while the pool is served, seconds since 1970; none: one
    /// is under way, or none will.
    #[serde(default)]
    pub next_unix_s: Option<u64>,
    /// Milliseconds for which it was running.
    pub active_ms: u64,
    /// Most bytes read from members each second; 0: no bound.
    pub bytes_per_second: u64,
    /// Segments looked at.
    pub segments_done: u32,
    /// Segments of the pool.
    pub segments_total: u32,
    /// Batches examined.
    pub batches: u64,
    /// Bytes read from members.
    pub read_bytes: u64,
    /// Bytes still to be read from members: an estimate, because segments are filled and emptied
    /// meanwhile. 0 if it has ended.
    pub left_bytes: u64,
    /// Thousandths that are done, as the daemon has shown them: never less than before.
    #[serde(default)]
    pub shown_per_mille: u64,
    /// Blocks of members that were not what they must be, or could not be read.
    pub wrong_blocks: u64,
    /// Live blocks that were logged anew because something in their rows was wrong.
    pub moved_blocks: u64,
    /// Live blocks that should have been and were not, because the pool has no room for it. They
    /// can be read, but lack redundancy.
    pub unmoved_blocks: u64,
    /// Live blocks that can neither be read nor be rebuilt.
    pub lost_blocks: u64,
    /// Batches whose tables can neither be read nor be rebuilt.
    pub damaged_batches: u64,
    /// The first of the lost blocks that were found since the daemon started; `lost_blocks` counts
    /// all.
    pub lost: Vec<LostBlock>,
}

impl ScrubReport {
    /// From the engine's status.
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

    /// True if it has found anything.
    pub fn has_found(&self) -> bool {
        self.wrong_blocks > 0 || self.damaged_batches > 0 || self.has_losses()
    }

    /// True if it has found what cannot be repaired. (Blocks of damaged batches are read one by
    /// one, and moved or counted as lost.)
    pub fn has_losses(&self) -> bool {
        self.lost_blocks > 0
    }

    /// Thousandths that are done; an estimate, below 1000 until it has ended.
    pub fn done_per_mille(&self) -> u64 {
        match self.state {
            ScrubState::Completed => 1000,
            ScrubState::None => 0,
            ScrubState::Stopped if self.shown_per_mille > 0 => self.shown_per_mille,
            // Nothing tells how much a scrub that was ended in an earlier run would have read.
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

    /// Exit code of `pool scrub --wait`, as `check` has them: 0 all was right, 1 something was
    /// wrong and has been repaired, 4 something is lost, or not repaired for want of room, 8 the
    /// end was not reached.
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

/// How far a scrub was when it was last looked at: its end moves away while the pool is filled, but
/// what is shown does not go back.
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

/// What is still to be read: the segments that hold data less what was read, and no more than the
/// segments that are left.
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
    // Neither a spare, nor a slot without a member, nor a device that holds nothing but a journal
    // is read.
    let holders = status
        .members
        .iter()
        .filter(|member| !member.journal && !["spare", "removed"].contains(&member.state));
    let (members, online) = holders.fold((0u128, 0u128), |(all, online), member| {
        (all + 1, online + u128::from(member.state == "online"))
    });
    let there = u128::from(all) * online;
    // Of one segment, on the members that are there.
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
