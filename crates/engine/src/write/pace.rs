//! Pace: while cleaning works, users are admitted in step with what it brings back
//! (docs/internals/decisions/0005-pacing.md).
//!
//! Without it users take all the room there is at once and then wait for whole victims, a flush and
//! more. **Space** is the room of the user stream and the segments above its floor, free ones and
//! those that only a flush keeps from being free. Between no space and the mark at which cleaning
//! begins (`high`), each block that cleaning gains is worth
//! ```text
//! space * (high - rest) / ((high - space) * rest)
//! ```
//! user blocks: no bound at `high`, one at `rest`, none without space. So under a lasting load
//! space comes to rest at `rest`, whatever the victims are like. What a victim gains is spread
//! evenly over its moves, and the rest of it is given when it ends. When cleaning begins to work,
//! what lies above `rest` is credit, up to a segment: nothing is gained before the first victim has
//! been read, and who writes little need not wait for that.
//!
//! **It never holds up for good.** The brake is on only while a read of a victim or a batch of
//! moves is under way: it ends by itself, without any user, and the brake is looked at again after
//! it. If nothing is under way, there is only the room (`room.rs`). Cleaning does not ask whether
//! users are braked or out of room: it goes on for both.

use super::room::DATA_UNITS;
use crate::Engine;
use crate::limits::{
    PACE_GAIN_MAX, PACE_GARBAGE_SHARE, PACE_LEAST_PART, PACE_MOVES_MAX, PACE_REST_SEGMENTS,
    STREAM_USER,
};
use windrow_types::BLOCK_BYTES;

/// Parts of a unit of room in which credit is counted, so that the small gain of a full victim is
/// not lost.
const FINE: u64 = 1024;

/// What a victim gains, spread over its moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gain {
    moves: u64,
    fine_units: u64,
}

impl Gain {
    /// Of a victim with so many live blocks and so many dead ones. A full one counts a little too:
    /// users who have room never stand still.
    pub(crate) fn new(live_blocks: u64, dead_blocks: u64) -> Self {
        Self {
            moves: live_blocks,
            fine_units: dead_blocks.max(live_blocks / PACE_MOVES_MAX) * DATA_UNITS * FINE,
        }
    }

    /// The share of one move.
    fn of_move(&mut self) -> u64 {
        let share = self.fine_units / self.moves.max(1);
        self.moves = self.moves.saturating_sub(1);
        self.fine_units -= share;
        share
    }
}

/// State of the brake.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    on: bool,
    /// Something waits for credit only.
    held: bool,
    /// May fall below 0 by one request.
    credit: i64,
    /// User units for 1024 units gained.
    factor: u64,
    /// Most credit that is kept.
    most: i64,
}

impl Pace {
    /// One line for a diagnosis.
    pub(crate) fn describe(&self) -> String {
        format!(
            "pace on {} factor {}/{FINE} credit {}/{FINE} units held {}",
            self.on, self.factor, self.credit, self.held
        )
    }

    /// User blocks for 1024 blocks gained; `None` if users are not braked.
    pub(crate) fn per_1024(&self) -> Option<u64> {
        self.on.then_some(self.factor)
    }

    /// Units that may be admitted now as far as the pace goes.
    pub(super) fn units(&mut self) -> u64 {
        if !self.on {
            return u64::MAX;
        }
        self.held |= self.credit <= 0;
        (self.credit.max(0) as u64).div_ceil(FINE)
    }

    /// Units were admitted.
    pub(super) fn spend(&mut self, units: u64) {
        if self.on {
            self.credit -= (units * FINE) as i64;
        }
    }

    /// What was admitted takes less: so many units of room are given back.
    pub(crate) fn give_back(&mut self, units: u64) {
        if self.on {
            self.credit = self
                .credit
                .saturating_add((units * FINE) as i64)
                .min(self.most);
        }
    }

    /// A block of a victim has been moved, or need not be any more.
    pub(crate) fn earn_by_move(&mut self, gain: &mut Gain) {
        self.earn(gain.of_move());
    }

    /// A victim is empty.
    pub(crate) fn earn_rest(&mut self, gain: &Gain) {
        self.earn(gain.fine_units);
    }

    fn earn(&mut self, fine_units: u64) {
        let earned = u128::from(fine_units) * u128::from(self.factor) / u128::from(FINE);
        self.credit = self
            .credit
            .saturating_add(i64::try_from(earned).unwrap_or(i64::MAX))
            .min(self.most);
    }
}

impl Engine {
    /// Looks at the brake; true if something waited for it that need not wait any more.
    pub(crate) fn look_at_pace(&mut self) -> bool {
        let working = self.space.cleaner.victim_count() > 0
            && (self.space.cleaner.has_reads() || self.moves_are_flying());
        let segment = self.least_segment_units();
        let high = (u64::from(self.segments_wanted())
            + 1
            + u64::from(crate::format::cleaning_ahead(self.pool.plan.segments)))
            * segment;
        let rest = self.rest_units(segment).min(high / 2).max(1);
        // Whole segments come back: what is smoothed below half of one costs more than it is worth.
        let worth = rest >= segment / PACE_LEAST_PART;
        let space = self.space_units(segment);
        let pace = &mut self.admission.pace;
        let was_on = pace.on;
        pace.on = worth
            && working
            && space < high
            && !self.admin.control.shutting_down()
            && self.pool.stopped.is_none();
        if pace.on {
            let factor = u128::from(FINE) * u128::from(space) * u128::from(high - rest)
                / (u128::from(high - space) * u128::from(rest));
            pace.factor = (factor as u64).clamp(FINE / PACE_GAIN_MAX, PACE_GAIN_MAX * FINE);
            pace.most = (segment * FINE) as i64;
            if !was_on {
                pace.credit = ((space.saturating_sub(rest) * FINE) as i64).min(pace.most);
            }
        } else {
            pace.credit = 0;
        }
        let go_on = pace.held && (!pace.on || pace.credit > 0);
        pace.held &= !go_on;
        go_on
    }

    /// Space at which users get just what cleaning gains. It is garbage that is not used, and
    /// cleaning costs as much more as there is less garbage in the segments: so a small part of all
    /// garbage.
    fn rest_units(&self, segment: u64) -> u64 {
        let segments = u64::from(
            self.pool
                .plan
                .segments
                .saturating_sub(self.pool.plan.reserve_segments),
        );
        let spare =
            segments * segment / 1000 * u64::from(self.pool.superblock.properties.spare_per_mille);
        let unused = (self
            .pool
            .plan
            .usable_bytes
            .saturating_sub(self.bytes_beside(&self.pool.plan))
            / BLOCK_BYTES)
            * DATA_UNITS;
        ((spare + unused) / PACE_GARBAGE_SHARE).min(PACE_REST_SEGMENTS * segment)
    }

    /// Room of users, and what they could take beyond it when flushes are done.
    fn space_units(&self, segment: u64) -> u64 {
        let coming = self.space.segments.free_count() + self.space.segments.dead_count()
            - self.space.segments.dead_in_replay_count();
        self.room_units() + u64::from(coming.saturating_sub(self.floor(STREAM_USER))) * segment
    }
}
