//! Duration of a member's commands, and the work that may wait for them.

use super::{Commanded, Pending, World};
use crate::violation::{Violation, ensure};
use windrow_io::MemberOp;
use windrow_random::Rng;
use windrow_types::MemberId;

/// While only commands of a member out of service are in flight, no wait may be longer. (The engine
/// has timers of a minute.)
const PATIENCE_NS: u64 = 90_000_000_000;

/// A command that is answered later than that counts as hung, as documented for administrators
/// (docs/guide/problems.md).
const HANGS_NS: u64 = 10_000_000_000;

/// The pace of one member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Duration of its commands in per cent of the usual one.
    percent: u64,
    /// Further factor of the duration.
    factor: u64,
    /// Virtual time until which the factor applies.
    slow_until_ns: u64,
    /// Additional duration of the next command.
    next_hangs_ns: u64,
    /// Time before which no read ends.
    mute_until_ns: u64,
    /// Time before which no command ends.
    hangs_until_ns: u64,
    /// True if a command took so long that the engine may report a hang.
    has_hung: bool,
}

/// A member that was taken out of service while it hung.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftBehind {
    member: MemberId,
    /// Time since which something waits while only its commands are in flight.
    since_ns: Option<u64>,
}

impl Pace {
    pub(super) fn new(percent: u64) -> Self {
        Self {
            percent,
            factor: 1,
            slow_until_ns: 0,
            next_hangs_ns: 0,
            mute_until_ns: 0,
            hangs_until_ns: 0,
            has_hung: false,
        }
    }

    pub(super) fn hangs(&self, now_ns: u64) -> bool {
        now_ns < self.hangs_until_ns
    }

    /// Draws the duration of a command that usually takes `micros` microseconds.
    pub(super) fn duration_ns(
        &mut self,
        now_ns: u64,
        is_read: bool,
        micros: u64,
        rng: &mut Rng,
    ) -> u64 {
        let stall = if rng.chance(10) { 20 } else { 1 };
        let factor = if now_ns < self.slow_until_ns {
            self.factor
        } else {
            1
        };
        let until_ns = self
            .hangs_until_ns
            .max(if is_read { self.mute_until_ns } else { 0 });
        let usual_ns = micros * 10 * self.percent * rng.between(50, 200) / 100 * stall * factor;
        let takes_ns =
            usual_ns + std::mem::take(&mut self.next_hangs_ns) + until_ns.saturating_sub(now_ns);
        self.has_hung |= takes_ns >= HANGS_NS;
        takes_ns
    }
}

impl World {
    /// Makes a member `factor` times as slow for a while, and hangs its next command.
    pub fn slow_down(&mut self, member: MemberId, factor: u64, for_ns: u64, hangs_ns: u64) {
        let pace = &mut self.paces[member.index()];
        (pace.factor, pace.slow_until_ns, pace.next_hangs_ns) =
            (factor, self.now_ns.saturating_add(for_ns), hangs_ns);
    }

    /// Makes a member answer no reads for a while.
    pub fn fall_silent(&mut self, member: MemberId, for_ns: u64) {
        self.paces[member.index()].mute_until_ns = self.now_ns.saturating_add(for_ns);
    }

    /// True if a command of the member has taken so long that a hang may be reported.
    pub(super) fn has_hung(&self, member: MemberId) -> bool {
        self.paces[member.index()].has_hung
    }

    /// Makes a member answer nothing for a while.
    pub fn hang(&mut self, member: MemberId, for_ns: u64) {
        self.paces[member.index()].hangs_until_ns = self.now_ns.saturating_add(for_ns);
    }

    /// From now on nothing may wait for this member, which is being taken out of service; `None`
    /// ends that.
    pub fn leave_behind(&mut self, member: Option<MemberId>) {
        self.left_behind = member.map(|member| LeftBehind {
            member,
            since_ns: None,
        });
    }

    /// Lets a member answer new commands again.
    pub fn end_hang(&mut self, member: MemberId) {
        self.left_behind = None;
        self.paces[member.index()].hangs_until_ns = 0;
    }

    /// The power has gone: hung members respond again.
    pub(super) fn end_hangs(&mut self) {
        self.left_behind = None;
        self.paces
            .iter_mut()
            .for_each(|pace| pace.hangs_until_ns = 0);
    }

    /// Checks an exported pool: another host may write it, so nothing may be in flight that changes
    /// a member.
    pub fn check_exported(&self) -> Result<(), Violation> {
        let changes = |pending: &&Pending| matches!(pending, Pending::Command(started) if !matches!(started.command.op, MemberOp::Read { .. }));
        let left = self.pending.values().filter(changes).count();
        ensure!(
            left == 0,
            Protocol,
            "the pool is exported, and {left} commands are on their way that change members"
        );
        Ok(())
    }

    /// Checks, before the time advances to the next end of a command or the next wake, that no wait
    /// is too long.
    pub(super) fn check_patience(&mut self, next_ns: u64) -> Result<(), Violation> {
        let Some(LeftBehind { member, since_ns }) = self.left_behind else {
            return Ok(());
        };
        let is_of_it = |pending: &Pending| matches!(pending, Pending::Command(started) if started.command.member == member);
        // (A request to settle the member waits for that; so does an export of the pool.)
        let waits = self.model.in_flight() > 0
            || self
                .changes
                .values()
                .any(|change| !matches!(change, Commanded::Settle));
        let only_it = waits
            && !self.exporting
            && self.events.is_empty()
            && !self.pending.is_empty()
            && self.pending.values().all(is_of_it);
        let since_ns = only_it.then(|| since_ns.unwrap_or(self.now_ns));
        self.left_behind = Some(LeftBehind { member, since_ns });
        let waited_ns = since_ns.map_or(0, |since_ns| next_ns.saturating_sub(since_ns));
        ensure!(
            waited_ns < PATIENCE_NS,
            Stuck,
            "for {waited_ns} ns nothing but member {member} is waited for, which is out of service; {}",
            self.summary()
        );
        Ok(())
    }
}
