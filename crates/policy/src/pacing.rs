//! How much cleaning each user write has to bring along.
//!
//! **The rule.** Let `free` be the free space, `high` the mark above which nothing is cleaned and `low` the mark at which user writes
//! wait; what is below `low` belongs to cleaning itself, to checkpoints and to open segments. To gain one block, cleaning a victim
//! of utilisation `u` moves `u / (1 - u)` blocks. With `x = (high - free) / (high - low)`, the depth into the band,
//! ```text
//! moves per user block = u / (1 - u) * x / (1 - x)
//! ```
//! **Why it holds.** Each admitted user block takes 1 and brings back `x / (1 - x)`: free space falls while `x < 1/2` and rises while
//! `x > 1/2`, so under steady load it rests at the middle of the band whatever `u` is. The lower half absorbs what the average
//! hides: space comes back a whole segment at a time, and only after its last block is moved and durable. If that is not enough
//! the share grows without bound towards `low`, so user writes get slower and slower, and at `low` they stop: user writes
//! can never take free space below it. With `low` at least the room that one cleaning pass needs, cleaning can always go on.
//!
//! **What users see.** Of the blocks written, `1 / (1 + moves)` are theirs. The share bends smoothly over the whole band instead of
//! jumping between full speed and standstill, and an idle pool fills its band up because cleaning may also run without writes.

use crate::victim::SegmentStats;

/// Where cleaning begins and where user writes wait. In blocks, or any unit that free space is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// At or below this much free space user writes wait.
    pub low: u64,
    /// At or above this much free space nothing is cleaned. Above `low`; if it is not, it counts as `low + 1`.
    pub high: u64,
}

/// What admission and cleaning should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Enough space is free: no cleaning.
    Idle,
    /// Every 1024 user blocks admitted bring this many moves along.
    Moves {
        /// Moves for 1024 user blocks; 0 if the victim is empty and only has to be freed.
        per_1024_writes: u32,
    },
    /// User writes wait; cleaning goes on as fast as it can.
    WritesWait,
}

/// Most moves for one user block that are asked for. Beyond it writes are so slow that they may as well reach the low mark.
pub const MOVES_PER_WRITE_MAX: u32 = 256;

/// The pace for this much free space and this next victim; `None` if no segment would gain anything.
///
/// Without a victim user writes go on until the low mark: cleaning could not help them.
pub fn cleaning_share(free: u64, marks: Watermarks, victim: Option<&SegmentStats>) -> Pace {
    let high = marks.high.max(marks.low.saturating_add(1));
    if free <= marks.low {
        return Pace::WritesWait;
    }
    let victim = match victim {
        Some(victim) if free < high && !victim.is_full() => victim,
        _ => return Pace::Idle,
    };
    // x / (1 - x) = (high - free) / (free - low). In 128 bits no product of a u64, a u32 and 1024 overflows.
    let (below_high, above_low) = (u128::from(high - free), u128::from(free - marks.low));
    let (live, garbage) = (u128::from(victim.live_units), u128::from(victim.capacity_units - victim.live_units));
    let moves = (1024 * live * below_high).div_ceil(garbage * above_low);
    Pace::Moves { per_1024_writes: moves.min(1024 * u128::from(MOVES_PER_WRITE_MAX)) as u32 }
}

/// Moves that admitted user blocks have asked for and that are still to be done, with the fractions carried along.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MoveDebt {
    moves_1024ths: u64,
}

impl MoveDebt {
    /// Adds what some admitted user blocks bring along.
    pub fn charge(&mut self, user_blocks: u32, pace: Pace) {
        if let Pace::Moves { per_1024_writes } = pace {
            self.moves_1024ths = self.moves_1024ths.saturating_add(u64::from(user_blocks) * u64::from(per_1024_writes));
        }
    }

    /// Whole moves that are due.
    pub fn due(&self) -> u64 {
        self.moves_1024ths / 1024
    }

    /// Takes off moves that were done; more than due leaves no credit, because what was done in advance shows in free space.
    pub fn pay(&mut self, moves: u64) {
        self.moves_1024ths = self.moves_1024ths.saturating_sub(moves.saturating_mul(1024));
    }

    /// Forgets everything: free space is above the high mark again, or nothing is left to clean.
    pub fn clear(&mut self) {
        self.moves_1024ths = 0;
    }
}

#[cfg(test)]
mod tests;
