//! Members that keep a read waiting: when its answer is looked for elsewhere, and when the
//! administrator hears of it.
//!
//! 1 The time that each read of users takes on each member is kept in a histogram that forgets. The
//!   **bound** is [`SLOW_FACTOR`] times the 99th percentile of the usual member (the lower median
//!   of all, so that a slow one does not raise it), and at least the property
//!   `read_latency_bound_ms`. If all members are slow, so is the bound: an array that is overloaded
//!   is not given more to do.
//! 2 A fetch that has waited for longer is **late**: the same rows are read of just as many further
//!   columns as are needed, and whoever has verified bytes first answers (`fetch/gather.rs`). Reads
//!   that are late stay with their members until they come back, and are dropped then. It is looked
//!   at again after the same time, until it is answered: those that were asked may keep it waiting,
//!   too.
//! 3 Each read earns a part of the **budget**, each read around a member takes a whole from it: no
//!   more than one in [`AROUND_SHARE`] is read twice for long. What finds the budget empty waits
//!   for it, for its member, or for its turn: one in [`AROUND_EVERY_NS`] goes without.
//! 4 In spans of [`SLOW_SPAN_NS`] the late reads of each member are counted. If they are many in
//!   several spans one after the other, the member is *slow*: that is told, and from then on others
//!   are asked at the same time as it. It is never thrown out: that is for people to decide.
//! 5 A late read that others have answered is *owed* by its member. One that owes
//!   [`OUTSTANDING_LATE_READS_MAX`] is **passed over**: what can be had without it is not asked of
//!   it at all, counts as late there, and takes nothing from the budget, as if the member were
//!   gone. The others are up to that: they have answered all of these first. As soon as it gives
//!   something back it is asked again, so no probe is needed, and what piles up at a mute member is
//!   what it owes and what clients had outstanding.
//!
//! Time is that of ticks. Everything here is a matter of speed; what is read is verified as always.

use crate::limits::{
    AROUND_BURST, AROUND_EVERY_NS, AROUND_SHARE, OUTSTANDING_LATE_READS_MAX, SLOW_FACTOR,
    SLOW_LEAST, SLOW_SHARE, SLOW_SPAN_NS, SLOW_SPANS, TICK_NS,
};
use crate::{Engine, Notice, Outbox};
use std::collections::VecDeque;
use windrow_types::MemberId;

/// Classes of a histogram: below one tick, and each twice as long as the one before.
const CLASSES: usize = 24;
/// A histogram with so many reads forgets half of them.
const READS_KEPT: u32 = 1024;
/// So many watches of fetches that are answered are kept, and as many as there are fetches, before
/// they are looked for.
const WATCHES_KEPT: usize = 64;

/// A fetch of users under way. There is one watch of each, in one of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watch {
    pub(crate) fetch: u32,
    /// Of this fetch: numbers of fetches are used again.
    pub(crate) serial: u64,
    /// The member of its own column.
    pub(crate) member: MemberId,
    /// When it began, or was seen late the last time.
    pub(crate) since_ns: u64,
    /// That is counted already, or its own column is not read.
    pub(crate) was_late: bool,
}

/// One member.
#[derive(Debug, Default)]
struct Tempo {
    classes: [u32; CLASSES],
    reads: u32,
    /// Of this span.
    span_reads: u32,
    span_late: u32,
    /// Spans one after the other that speak against what it is taken for.
    against: u32,
    slow: bool,
    /// Reads on their way to it that others have answered.
    outstanding: u32,
}

impl Tempo {
    fn note(&mut self, took_ns: u64) {
        let class = (u64::BITS - (took_ns / TICK_NS).leading_zeros()) as usize;
        self.classes[class.min(CLASSES - 1)] += 1;
        self.reads += 1;
        if self.reads >= READS_KEPT {
            self.classes.iter_mut().for_each(|reads| *reads /= 2);
            self.reads = self.classes.iter().sum();
        }
    }

    /// Upper end of the class with the 99th percentile; 0 of nothing.
    fn p99_ns(&self) -> u64 {
        let mut beyond = self.reads / 100;
        let longest = self.classes.iter().enumerate().rev().find(|(_, reads)| {
            let within = **reads > beyond;
            beyond = beyond.saturating_sub(**reads);
            within
        });
        longest.map_or(0, |(class, _)| TICK_NS << class)
    }

    /// Ends a span; true if the member is slow from now on, or not any more.
    fn end_span(&mut self) -> bool {
        let (reads, late) = (
            std::mem::take(&mut self.span_reads),
            std::mem::take(&mut self.span_late),
        );
        let is_bad = late >= SLOW_LEAST && late.saturating_mul(SLOW_SHARE) >= reads;
        // Without reads nothing is known.
        let speaks = if self.slow {
            reads > 0 && !is_bad
        } else {
            is_bad
        };
        self.against = if speaks { self.against + 1 } else { 0 };
        let changes = self.against >= SLOW_SPANS;
        if changes {
            self.slow = !self.slow;
            self.against = 0;
        }
        changes
    }
}

/// All members.
#[derive(Debug)]
pub(crate) struct HedgedReads {
    members: Vec<Tempo>,
    /// Fetches under way, the oldest first; some have been answered meanwhile.
    watched: VecDeque<Watch>,
    /// Late ones that wait for the budget.
    aside: VecDeque<Watch>,
    budget: u32,
    /// Since when reads have waited for the budget, or when the last one went without.
    turn_ns: u64,
    serial: u64,
    span_ends_ns: u64,
}

impl Default for HedgedReads {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            watched: VecDeque::new(),
            aside: VecDeque::new(),
            budget: AROUND_BURST * AROUND_SHARE,
            turn_ns: 0,
            serial: 0,
            span_ends_ns: 0,
        }
    }
}

impl HedgedReads {
    fn member(&mut self, member: MemberId) -> &mut Tempo {
        if self.members.len() <= member.index() {
            self.members.resize_with(member.index() + 1, Tempo::default);
        }
        &mut self.members[member.index()]
    }

    /// A number for a fetch that is never used again.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A read of users goes to its member.
    pub(crate) fn begin(&mut self, watch: Watch) {
        self.budget = (self.budget + 1).min(AROUND_BURST * AROUND_SHARE);
        self.member(watch.member).span_reads += 1;
        self.watched.push_back(watch);
    }

    /// It is looked at in time, once more or without a read of its own column.
    pub(crate) fn watch_again(&mut self, watch: Watch) {
        self.watched.push_back(watch);
    }

    /// It has come back.
    pub(crate) fn end(&mut self, member: MemberId, since_ns: u64, now_ns: u64) {
        self.member(member).note(now_ns.saturating_sub(since_ns));
    }

    /// A read of users is not sent to it, as it owes too much.
    pub(crate) fn pass_over(&mut self, member: MemberId) {
        let member = self.member(member);
        member.span_reads += 1;
        member.span_late += 1;
    }

    /// Others have answered a read that is on its way to it.
    pub(crate) fn owe(&mut self, member: MemberId) {
        self.member(member).outstanding += 1;
    }

    /// Such a read has come back.
    pub(crate) fn pay(&mut self, member: MemberId) {
        self.member(member).outstanding -= 1;
    }

    /// True if it is to be passed over.
    pub(crate) fn has_many_outstanding(&self, member: MemberId) -> bool {
        self.members
            .get(member.index())
            .is_some_and(|member| member.outstanding >= OUTSTANDING_LATE_READS_MAX)
    }

    /// True if any member is to be passed over.
    fn is_any_passed_over(&self) -> bool {
        self.members
            .iter()
            .any(|member| member.outstanding >= OUTSTANDING_LATE_READS_MAX)
    }

    /// True if any member owes a read.
    pub(crate) fn has_outstanding_reads(&self) -> bool {
        self.members.iter().any(|member| member.outstanding > 0)
    }

    /// Another device is in the member's place. Reads that were kept back meanwhile, and that
    /// others have answered, come back from the new one.
    pub(crate) fn forget(&mut self, member: MemberId) {
        let tempo = self.member(member);
        *tempo = Tempo {
            outstanding: tempo.outstanding,
            ..Tempo::default()
        };
    }

    /// True if the member is slow.
    pub(crate) fn is_slow(&self, member: MemberId) -> bool {
        self.members
            .get(member.index())
            .is_some_and(|member| member.slow)
    }

    /// Takes what a read around a member costs.
    pub(crate) fn take_budget(&mut self) -> bool {
        let rest = self.budget.checked_sub(AROUND_SHARE);
        self.budget = rest.unwrap_or(self.budget);
        rest.is_some()
    }

    /// A late read waits for the budget, or is about to.
    fn quarantine(&mut self, watch: Watch, now_ns: u64) {
        if self.aside.is_empty() {
            self.turn_ns = now_ns;
        }
        self.aside.push_back(Watch {
            was_late: true,
            ..watch
        });
    }

    /// True if the oldest one that waits for the budget may go around its member.
    fn may_go_around(&mut self, now_ns: u64) -> bool {
        if self.take_budget() {
            return true;
        }
        let has_turn = now_ns >= self.turn_ns + AROUND_EVERY_NS;
        if has_turn {
            self.turn_ns = now_ns;
        }
        has_turn
    }

    /// After what time a read is late.
    fn bound_ns(&self, floor_ms: u32) -> u64 {
        let mut usual: Vec<u64> = self
            .members
            .iter()
            .filter(|member| member.reads > 0)
            .map(Tempo::p99_ns)
            .collect();
        usual.sort_unstable();
        let median = usual
            .get(usual.len().saturating_sub(1) / 2)
            .copied()
            .unwrap_or(0);
        (u64::from(floor_ms) * 1_000_000).max(median.saturating_mul(SLOW_FACTOR))
    }
}

impl Engine {
    /// Bound of reads now; `None`: late reads are nobody's business.
    fn late_after_ns(&self) -> Option<u64> {
        let floor_ms = self.pool.superblock.properties.read_latency_bound_ms;
        (floor_ms > 0).then(|| self.reads.slow.bound_ns(floor_ms))
    }

    /// Looks for late reads, and goes around their members.
    pub(crate) fn slow_step(&mut self, out: &mut Outbox) {
        while self
            .reads
            .slow
            .watched
            .front()
            .is_some_and(|watch| !self.is_watched(watch))
        {
            self.reads.slow.watched.pop_front();
        }
        if self.reads.slow.watched.len() > 2 * self.reads.fetches.len() + WATCHES_KEPT {
            // Behind one that waits for long those that are answered would pile up.
            let mut watched = std::mem::take(&mut self.reads.slow.watched);
            watched.retain(|watch| self.is_watched(watch));
            self.reads.slow.watched = watched;
        }
        self.end_slow_span(out);
        let Some(bound) = self.late_after_ns() else {
            return;
        };
        while let Some(watch) = self
            .reads
            .slow
            .watched
            .front()
            .copied()
            .filter(|watch| watch.since_ns + bound <= self.pool.now_ns)
        {
            self.reads.slow.watched.pop_front();
            if self.is_watched(&watch) {
                if !watch.was_late && self.waits_for_own(watch.fetch) {
                    self.reads.slow.member(watch.member).span_late += 1;
                    self.drives.members.note_late_read(watch.member);
                }
                self.reads.slow.quarantine(watch, self.pool.now_ns);
            }
        }
        self.go_around(out);
    }

    /// Goes around the members of late reads, as far as the budget goes. Members that owe much take
    /// nothing from it.
    fn go_around(&mut self, out: &mut Outbox) {
        let mut is_used_up = false;
        for _ in 0..self.reads.slow.aside.len() {
            let Some(watch) = self.reads.slow.aside.pop_front() else {
                return;
            };
            if !self.is_watched(&watch) {
                continue;
            }
            if self.can_ask_more(watch.fetch) {
                if !self.reads.slow.has_many_outstanding(watch.member) {
                    is_used_up = is_used_up || !self.reads.slow.may_go_around(self.pool.now_ns);
                    if is_used_up && !self.reads.slow.is_any_passed_over() {
                        return self.reads.slow.aside.push_front(watch);
                    }
                    if is_used_up {
                        self.reads.slow.aside.push_back(watch);
                        continue;
                    }
                }
                self.ask_more(watch.fetch, out);
            }
            // What it waits for now may keep it waiting, too; and if nobody could help, there may
            // be somebody then.
            self.reads.slow.watch_again(Watch {
                since_ns: self.pool.now_ns,
                ..watch
            });
        }
    }

    /// At the end of a span members become slow, or cease to be.
    fn end_slow_span(&mut self, out: &mut Outbox) {
        if self.pool.now_ns < self.reads.slow.span_ends_ns {
            return;
        }
        self.reads.slow.span_ends_ns = self.pool.now_ns + SLOW_SPAN_NS;
        for (member, tempo) in (0u8..).map(MemberId).zip(&mut self.reads.slow.members) {
            let (reads, late) = (tempo.span_reads, tempo.span_late);
            if tempo.end_span() {
                out.notices.push(if tempo.slow {
                    Notice::MemberSlow {
                        member,
                        reads,
                        slow_reads: late,
                    }
                } else {
                    Notice::MemberNotSlow { member }
                });
            }
        }
    }

    /// When the oldest read on its way is late, or one that waits for the budget has its turn.
    pub(crate) fn slow_wake_ns(&self) -> Option<u64> {
        let turn = (!self.reads.slow.aside.is_empty())
            .then_some(self.reads.slow.turn_ns + AROUND_EVERY_NS);
        let late = self
            .reads
            .slow
            .watched
            .front()
            .and_then(|oldest| Some(oldest.since_ns + self.late_after_ns()?));
        [turn, late]
            .into_iter()
            .flatten()
            .filter(|at| *at > self.pool.now_ns)
            .min()
    }
}

#[cfg(test)]
mod tests;
