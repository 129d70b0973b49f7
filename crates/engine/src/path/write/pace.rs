//! Pace: while cleaning works, user writes are admitted in proportion to the space that cleaning
//! gains (docs/internals/decisions/0005-pacing.md).
//!
//! Without it clients take all the room at once, and then wait for whole victims and a flush.
//! **Space** is the room of the user stream plus the segments above its floor: free ones, and those
//! that only a flush keeps from being free. Between no space and the mark at which cleaning begins
//! (`high`), each block that cleaning gains is worth
//! ```text
//! space * (high - rest) / ((high - space) * rest)
//! ```
//! user blocks: unlimited at `high`, one at `rest`, none without space. So under a lasting load
//! space converges to `rest`, whatever the victims are like. The gain of a victim is spread evenly
//! over its moves; the remainder is credited when it ends. When cleaning begins to work, space
//! above `rest` is credit, up to a segment. Nothing is gained before the first victim has been
//! read, and a client that writes little need not wait for that.
//!
//! **No deadlock.** The throttle is on only while a read of a victim or a batch of moves is in
//! flight. That ends without any client, and then the throttle is evaluated again. If nothing is in
//! flight, only the room limits admission (`room.rs`). Cleaning does not depend on the throttle or
//! on the room: it works for both.

use crate::base::limits::{
    PACE_GAIN_MAX, PACE_GARBAGE_SHARE, PACE_LEAST_PART, PACE_MOVES_MAX, PACE_REST_SEGMENTS,
    STREAM_USER,
};
use crate::path::Paths;
use crate::store::Store;
use crate::store::plan::DATA_UNITS;
use windrow_types::BLOCK_BYTES;

/// Units of credit per unit of room, so that the small gain of a full victim is not lost.
const FINE: u64 = 1024;

/// Gain of a victim, spread over its moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gain {
    moves: u64,
    fine_units: u64,
}

impl Gain {
    /// Gain of a victim with these numbers of live and dead blocks. A full victim counts a little
    /// too, so that clients with room never stall.
    pub(crate) fn new(live_blocks: u64, dead_blocks: u64) -> Self {
        Self {
            moves: live_blocks,
            fine_units: dead_blocks.max(live_blocks / PACE_MOVES_MAX) * DATA_UNITS * FINE,
        }
    }

    /// Share of one move.
    fn of_move(&mut self) -> u64 {
        let share = self.fine_units / self.moves.max(1);
        self.moves = self.moves.saturating_sub(1);
        self.fine_units -= share;
        share
    }
}

/// State of the throttle.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    on: bool,
    /// True if a request waits for credit only.
    held: bool,
    /// Units of credit; one request may take it below 0.
    credit: i64,
    /// User units per 1024 units gained.
    factor: u64,
    /// Maximum of `credit`.
    most: i64,
}

impl Pace {
    /// State in one line, for diagnosis.
    pub(crate) fn describe(&self) -> String {
        format!(
            "pace on {} factor {}/{FINE} credit {}/{FINE} units held {}",
            self.on, self.factor, self.credit, self.held
        )
    }

    /// User blocks per 1024 blocks gained; `None` if writes are not throttled.
    pub(crate) fn per_1024(&self) -> Option<u64> {
        self.on.then_some(self.factor)
    }

    /// Units that the throttle permits now.
    pub(super) fn units(&mut self) -> u64 {
        if !self.on {
            return u64::MAX;
        }
        self.held |= self.credit <= 0;
        (self.credit.max(0) as u64).div_ceil(FINE)
    }

    /// Charges admitted units.
    pub(super) fn spend(&mut self, units: u64) {
        if self.on {
            self.credit -= (units * FINE) as i64;
        }
    }

    /// Returns units of room: what was admitted takes less.
    pub(crate) fn give_back(&mut self, units: u64) {
        if self.on {
            self.credit = self
                .credit
                .saturating_add((units * FINE) as i64)
                .min(self.most);
        }
    }

    /// Credits the move of a block of a victim, also if the block need not be moved any more.
    pub(crate) fn earn_by_move(&mut self, gain: &mut Gain) {
        self.earn(gain.of_move());
    }

    /// Credits the remainder of the gain of an empty victim.
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

impl Paths {
    /// Evaluates the throttle; true if a request that waited for credit can be admitted now.
    pub(crate) fn look_at_pace(&mut self, store: &mut Store) -> bool {
        let working = self.space.cleaner.victim_count() > 0
            && (self.space.cleaner.has_reads() || self.moves_are_flying(store));
        let segment = self.least_segment_units(store);
        let high = (u64::from(self.segments_wanted(store))
            + 1
            + u64::from(crate::store::plan::cleaning_ahead(store.pool.plan.segments)))
            * segment;
        let rest = self.rest_units(segment, store).min(high / 2).max(1);
        // Space returns in whole segments: smoothing below half a segment costs more than it is
        // worth.
        let worth = rest >= segment / PACE_LEAST_PART;
        let space = self.space_units(segment, store);
        let pace = &mut self.admission.pace;
        let was_on = pace.on;
        pace.on = worth
            && working
            && space < high
            && !store.pool.closing.is_under_way()
            && store.pool.stopped.is_none();
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

    /// Space at which each block gained admits one user block. It is unused garbage, and cleaning
    /// costs more the less garbage the segments hold. So it is a small part of all garbage.
    fn rest_units(&self, segment: u64, store: &Store) -> u64 {
        let segments = u64::from(
            store
                .pool
                .plan
                .segments
                .saturating_sub(store.pool.plan.reserve_segments),
        );
        let spare =
            segments * segment / 1000 * u64::from(store.pool.superblock.properties.spare_per_mille);
        let unused = (store
            .pool
            .plan
            .usable_bytes
            .saturating_sub(self.bytes_beside(&store.pool.plan, store))
            / BLOCK_BYTES)
            * DATA_UNITS;
        ((spare + unused) / PACE_GARBAGE_SHARE).min(PACE_REST_SEGMENTS * segment)
    }

    /// Room of the user stream, and the room that pending flushes add to it.
    fn space_units(&self, segment: u64, store: &Store) -> u64 {
        let coming = store.segments.free_count() + store.segments.dead_count()
            - store.segments.dead_in_replay_count();
        self.room_units(store)
            + u64::from(coming.saturating_sub(self.floor(STREAM_USER, store))) * segment
    }
}
