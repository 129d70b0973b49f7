//! How long commands of a member take.

use super::World;
use windrow_random::Rng;
use windrow_units::MemberId;

/// The pace of one member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Duration of its commands in hundredths of what is usual.
    percent: u64,
    /// Times as long as that.
    factor: u64,
    /// As long as virtual time is below this.
    slow_until_ns: u64,
    /// What the next command takes in addition.
    next_hangs_ns: u64,
    /// Reads do not end before.
    mute_until_ns: u64,
}

impl Pace {
    pub(super) fn new(percent: u64) -> Self {
        Self { percent, factor: 1, slow_until_ns: 0, next_hangs_ns: 0, mute_until_ns: 0 }
    }

    /// Draws the duration of a command that usually takes so many microseconds.
    pub(super) fn duration_ns(&mut self, now_ns: u64, is_read: bool, micros: u64, rng: &mut Rng) -> u64 {
        let stall = if rng.chance(10) { 20 } else { 1 };
        let factor = if now_ns < self.slow_until_ns { self.factor } else { 1 };
        micros * 10 * self.percent * rng.between(50, 200) / 100 * stall * factor
            + std::mem::take(&mut self.next_hangs_ns)
            + if is_read { self.mute_until_ns.saturating_sub(now_ns) } else { 0 }
    }
}

impl World {
    /// A member becomes `factor` times as slow for a while, and its next command hangs.
    pub fn slow_down(&mut self, member: MemberId, factor: u64, for_ns: u64, hangs_ns: u64) {
        let pace = &mut self.paces[member.index()];
        (pace.factor, pace.slow_until_ns, pace.next_hangs_ns) = (factor, self.now_ns.saturating_add(for_ns), hangs_ns);
    }

    /// A member answers no reads for a while.
    pub fn fall_silent(&mut self, member: MemberId, for_ns: u64) {
        self.paces[member.index()].mute_until_ns = self.now_ns.saturating_add(for_ns);
    }
}
