//! Hedged reads: when a late read is answered from redundancy, and when a slow member is reported.
//!
//! 1. A decaying histogram per member holds the latency of user reads. The **bound** is
//!    [`SLOW_FACTOR`] times the 99th percentile of the typical member, and at least the property
//!    `read_latency_bound_ms`. The typical member is the lower median of all, so that a slow one
//!    does not raise the bound. If all members are slow, so is the bound: an overloaded array gets
//!    no extra work.
//! 2. A fetch that has waited for longer is **late**: the same rows are read of exactly as many
//!    further columns as are needed, and the first verified bytes are the answer
//!    (`store/fetch/gather.rs`). Late reads stay with their members until they return, and are
//!    dropped then. The fetch is checked again after the same time until it is answered, because
//!    the other members may be late, too.
//! 3. Each read earns a part of the **budget**, and each hedged read takes a whole unit. So in the
//!    long run no more than one read in [`AROUND_SHARE`] is done twice. A late read that finds the
//!    budget empty waits for budget, for its member, or for its turn: one in [`AROUND_EVERY_NS`]
//!    proceeds without budget.
//! 4. In spans of [`SLOW_SPAN_NS`] the late reads of each member are counted. If they are many in
//!    several consecutive spans, the member is *slow*. That is reported, and from then on its reads
//!    are hedged at once. It stays in service: only the administrator takes it out.
//! 5. A late read that others have answered is *outstanding* at its member. A member with
//!    [`OUTSTANDING_LATE_READS_MAX`] of them is **skipped**: it is not asked for data that is
//!    readable without it. Such a read counts as late there and takes nothing from the budget, as
//!    if the member were gone. The others have the capacity: they have answered all these reads
//!    already. As soon as the member returns one it is asked again, so no probe is needed. An
//!    unresponsive member therefore accumulates only its outstanding late reads and the requests
//!    that clients had in flight.
//!
//! Time is that of ticks. All this affects latency only; data is always verified.

use crate::api::Notice;
use crate::base::limits::{
    AROUND_BURST, AROUND_EVERY_NS, AROUND_SHARE, OUTSTANDING_LATE_READS_MAX, SLOW_FACTOR,
    SLOW_LEAST, SLOW_SHARE, SLOW_SPAN_NS, SLOW_SPANS, TICK_NS,
};
use crate::store::events::Outbox;
use crate::store::pool::Pool;
use crate::store::{Reads, Store};
use std::collections::VecDeque;
use windrow_types::MemberId;

/// Classes of a histogram: below one tick, and each twice as wide as the previous one.
const CLASSES: usize = 24;
/// Number of reads at which a histogram drops half of them.
const READS_KEPT: u32 = 1024;
/// Watches of answered fetches are dropped when the queue holds this number of them plus the number
/// of fetches.
const WATCHES_KEPT: usize = 64;

/// Watch of a user fetch in progress. Each fetch has one watch, in one of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watch {
    pub(crate) fetch: u32,
    /// Serial number of the fetch: fetch numbers are reused.
    pub(crate) serial: u64,
    /// Member of its own column.
    pub(crate) member: MemberId,
    /// Time at which it began, or was last found late.
    pub(crate) since_ns: u64,
    /// True if it is counted as late already, or its own column is not read.
    pub(crate) was_late: bool,
}

/// Read latency of one member.
#[derive(Debug, Default)]
struct Tempo {
    classes: [u32; CLASSES],
    reads: u32,
    /// Reads in the current span.
    span_reads: u32,
    span_late: u32,
    /// Consecutive spans that contradict the current state.
    against: u32,
    slow: bool,
    /// Late reads outstanding at it, which others have answered.
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

    /// Upper end of the class with the 99th percentile; 0 without reads.
    fn p99_ns(&self) -> u64 {
        let mut beyond = self.reads / 100;
        let longest = self.classes.iter().enumerate().rev().find(|(_, reads)| {
            let within = **reads > beyond;
            beyond = beyond.saturating_sub(**reads);
            within
        });
        longest.map_or(0, |(class, _)| TICK_NS << class)
    }

    /// Ends a span; true if the member has become slow, or is no longer slow.
    fn end_span(&mut self) -> bool {
        let (reads, late) = (
            std::mem::take(&mut self.span_reads),
            std::mem::take(&mut self.span_late),
        );
        let is_bad = late >= SLOW_LEAST && late.saturating_mul(SLOW_SHARE) >= reads;
        // A span without reads proves nothing.
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

/// State of hedged reads for all members.
#[derive(Debug)]
pub(crate) struct HedgedReads {
    members: Vec<Tempo>,
    /// Fetches in progress, the oldest first; some may be answered already.
    watched: VecDeque<Watch>,
    /// Late fetches that wait for budget.
    waiting_for_budget: VecDeque<Watch>,
    budget: u32,
    /// Time since which reads have waited for budget, or at which the last one proceeded without.
    turn_ns: u64,
    serial: u64,
    span_ends_ns: u64,
}

impl Default for HedgedReads {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            watched: VecDeque::new(),
            waiting_for_budget: VecDeque::new(),
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

    /// Serial number for a fetch; never reused.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Notes a user read sent to its member.
    pub(crate) fn begin(&mut self, watch: Watch) {
        self.budget = (self.budget + 1).min(AROUND_BURST * AROUND_SHARE);
        self.member(watch.member).span_reads += 1;
        self.watched.push_back(watch);
    }

    /// Queues a fetch for another check, after it was found late or without a read of its own
    /// column.
    pub(crate) fn watch_again(&mut self, watch: Watch) {
        self.watched.push_back(watch);
    }

    /// Notes the return of a read.
    pub(crate) fn end(&mut self, member: MemberId, since_ns: u64, now_ns: u64) {
        self.member(member).note(now_ns.saturating_sub(since_ns));
    }

    /// Notes a user read that skipped the member.
    pub(crate) fn pass_over(&mut self, member: MemberId) {
        let member = self.member(member);
        member.span_reads += 1;
        member.span_late += 1;
    }

    /// Notes a read in flight at the member that others have answered.
    pub(crate) fn owe(&mut self, member: MemberId) {
        self.member(member).outstanding += 1;
    }

    /// Notes the return of such a read.
    pub(crate) fn pay(&mut self, member: MemberId) {
        self.member(member).outstanding -= 1;
    }

    /// True if the member is to be skipped.
    pub(crate) fn has_many_outstanding(&self, member: MemberId) -> bool {
        self.members
            .get(member.index())
            .is_some_and(|member| member.outstanding >= OUTSTANDING_LATE_READS_MAX)
    }

    /// True if any member is to be skipped.
    fn is_any_passed_over(&self) -> bool {
        self.members
            .iter()
            .any(|member| member.outstanding >= OUTSTANDING_LATE_READS_MAX)
    }

    /// True if late reads are outstanding at any member.
    pub(crate) fn has_outstanding_reads(&self) -> bool {
        self.members.iter().any(|member| member.outstanding > 0)
    }

    /// Resets the state of a member whose device was exchanged. Outstanding reads that were kept
    /// back meanwhile will return from the new device.
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

    /// Takes one hedged read from the budget; false if it is empty.
    pub(crate) fn take_budget(&mut self) -> bool {
        let rest = self.budget.checked_sub(AROUND_SHARE);
        self.budget = rest.unwrap_or(self.budget);
        rest.is_some()
    }

    /// Queues a late read that waits for budget, or is about to.
    fn queue_late(&mut self, watch: Watch, now_ns: u64) {
        if self.waiting_for_budget.is_empty() {
            self.turn_ns = now_ns;
        }
        self.waiting_for_budget.push_back(Watch {
            was_late: true,
            ..watch
        });
    }

    /// True if the oldest read that waits for budget may proceed.
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

    /// Latency from which a read is late.
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

impl Reads {
    /// Current latency bound; `None`: reads are not hedged.
    pub(crate) fn late_after_ns(&self, pool: &Pool) -> Option<u64> {
        let floor_ms = pool.superblock.properties.read_latency_bound_ms;
        (floor_ms > 0).then(|| self.slow.bound_ns(floor_ms))
    }

    /// Ends a span: members become slow, or are no longer slow.
    pub(crate) fn end_slow_span(&mut self, pool: &Pool, out: &mut Outbox) {
        if pool.now_ns < self.slow.span_ends_ns {
            return;
        }
        self.slow.span_ends_ns = pool.now_ns + SLOW_SPAN_NS;
        for (member, tempo) in (0u8..).map(MemberId).zip(&mut self.slow.members) {
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

    /// Time at which the oldest read in flight becomes late, or a read that waits for budget has
    /// its turn.
    pub(crate) fn slow_wake_ns(&self, pool: &Pool) -> Option<u64> {
        let turn = (!self.slow.waiting_for_budget.is_empty())
            .then_some(self.slow.turn_ns + AROUND_EVERY_NS);
        let late = self
            .slow
            .watched
            .front()
            .and_then(|oldest| Some(oldest.since_ns + self.late_after_ns(pool)?));
        [turn, late]
            .into_iter()
            .flatten()
            .filter(|at| *at > pool.now_ns)
            .min()
    }
}

impl Store {
    /// Finds late reads and hedges them.
    pub(crate) fn slow_step(&mut self, out: &mut Outbox) {
        while self
            .reads
            .slow
            .watched
            .front()
            .is_some_and(|watch| !self.reads.is_watched(watch))
        {
            self.reads.slow.watched.pop_front();
        }
        if self.reads.slow.watched.len() > 2 * self.reads.fetches.len() + WATCHES_KEPT {
            // Answered watches would pile up after one that waits for long.
            let mut watched = std::mem::take(&mut self.reads.slow.watched);
            watched.retain(|watch| self.reads.is_watched(watch));
            self.reads.slow.watched = watched;
        }
        self.reads.end_slow_span(&self.pool, out);
        let Some(bound) = self.reads.late_after_ns(&self.pool) else {
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
            if self.reads.is_watched(&watch) {
                if !watch.was_late && self.reads.waits_for_own(watch.fetch) {
                    self.reads.slow.member(watch.member).span_late += 1;
                    self.drives.members.note_late_read(watch.member);
                }
                self.reads.slow.queue_late(watch, self.pool.now_ns);
            }
        }
        self.go_around(out);
    }

    /// Hedges late reads as far as the budget permits. Reads of skipped members take nothing from
    /// it.
    fn go_around(&mut self, out: &mut Outbox) {
        let mut is_used_up = false;
        for _ in 0..self.reads.slow.waiting_for_budget.len() {
            let Some(watch) = self.reads.slow.waiting_for_budget.pop_front() else {
                return;
            };
            if !self.reads.is_watched(&watch) {
                continue;
            }
            if self.can_ask_more(watch.fetch) {
                if !self.reads.slow.has_many_outstanding(watch.member) {
                    is_used_up = is_used_up || !self.reads.slow.may_go_around(self.pool.now_ns);
                    if is_used_up && !self.reads.slow.is_any_passed_over() {
                        return self.reads.slow.waiting_for_budget.push_front(watch);
                    }
                    if is_used_up {
                        self.reads.slow.waiting_for_budget.push_back(watch);
                        continue;
                    }
                }
                self.ask_more(watch.fetch, out);
            }
            // The members asked now may be late, too; and if none could help now, one may be able
            // to then.
            self.reads.slow.watch_again(Watch {
                since_ns: self.pool.now_ns,
                ..watch
            });
        }
    }
}

#[cfg(test)]
mod tests;
