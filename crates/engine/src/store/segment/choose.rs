//! Choice of the next victim: the rule of the pool's policy over the candidates
//! (docs/internals/cleaning.md).
//!
//! The index alone answers greedy and cost-benefit. The other rules look at candidates one by one
//! ([`Shortlist`]). If their choice would hardly gain anything and space is needed, the index
//! decides.

use super::{Segment, SegmentState, Segments};
use crate::base::limits::YOUNG_SAMPLES;
use windrow_policy::any::AnyPlacement;
use windrow_policy::place::{Due, LISTS, Place as Spot, Placement};
use windrow_policy::select::{Candidate, Rule, Shortlist};
use windrow_policy::{SegmentStats, VictimPolicy, opportunity_cost};
use windrow_types::{ADDRESS_UNIT, SegmentId};

/// Seed for the rule that draws at random: the engine has no other source of randomness.
const SHORTLIST_SEED: u64 = 0x77_696e_6472_6f77;
/// A victim hardly gains anything if its garbage is less than this fraction (1/n).
const HARDLY_GAINS: u64 = 32;

/// Sort order of the index for a rule. Rules that look at segments one by one use it where they
/// gain too little.
pub(super) fn index_policy(rule: Rule) -> VictimPolicy {
    if rule == Rule::CostBenefit {
        VictimPolicy::CostBenefit
    } else {
        VictimPolicy::Greedy
    }
}

/// See [`Due::list`].
pub(super) fn shortlists() -> [Shortlist; LISTS] {
    std::array::from_fn(|_| Shortlist::new(SHORTLIST_SEED))
}

fn gains_little(stats: &SegmentStats) -> bool {
    u64::from(stats.live_units) * 8 > u64::from(stats.capacity_units) * 7
}

fn spot(segment: &Segment, id: u32, now: u32) -> Spot {
    let closed = matches!(segment.state, SegmentState::Sealed | SegmentState::Cleaning);
    Spot {
        segment: id,
        tag: segment.tag,
        age: if closed {
            now.wrapping_sub(segment.sealed_user).max(1)
        } else {
            0
        },
    }
}

impl Segments {
    /// Blocks of users that were placed, the clock of policies.
    pub fn user_clock(&self) -> u32 {
        self.user_clock
    }

    /// One more block of users is placed.
    #[inline]
    pub fn advance_user_clock(&mut self) {
        self.user_clock = self.user_clock.wrapping_add(1);
    }

    /// Bytes gained by moving its live payload.
    pub fn garbage(&self, id: SegmentId) -> u64 {
        u64::from(self.garbage_units(id)) * ADDRESS_UNIT as u64
    }

    fn garbage_units(&self, id: SegmentId) -> u32 {
        self.capacities[id.index()].saturating_sub(self.table[id.index()].weight())
    }

    /// Opportunity cost in bytes of a victim with `gained` bytes of garbage, against the best
    /// segment that waits for a checkpoint ([`opportunity_cost`]). Estimated from evenly spaced
    /// segments.
    pub fn opportunity_cost(&self, gained: u64) -> u64 {
        let step = self.young.len() / YOUNG_SAMPLES + 1;
        let young = self
            .young
            .iter()
            .step_by(step)
            .filter(|id| self.table[id.index()].state == SegmentState::Sealed);
        let counts = |id: &SegmentId| {
            opportunity_cost(
                self.garbage(*id).saturating_sub(gained),
                self.garbage_units(*id),
                self.capacities[id.index()],
            )
        };
        young
            .chain(self.dead_in_replay.first())
            .map(counts)
            .max()
            .unwrap_or(0)
    }

    /// Changes the victim rule.
    pub fn set_rule(&mut self, rule: Rule) {
        if self.rule != rule {
            self.rule = rule;
            self.shortlists = shortlists();
            self.victims.set_policy(index_policy(rule));
        }
    }

    /// Forgets the marks of all segments after a change of the placement policy.
    pub fn forget_marks(&mut self) {
        self.table.iter_mut().for_each(|segment| segment.tag = 0);
    }

    /// True if no candidate is worth its wear: by the index none has more than an eighth of
    /// garbage.
    pub fn gain_little(&self, clock: u64) -> bool {
        self.victims
            .peek_best(clock)
            .is_none_or(|(_, best)| gains_little(&best))
    }

    /// Takes the best victim out of the candidates and returns it with its price by the rule;
    /// without `need` only if it is at most 7/8 live. The placement policy gives the rate at which
    /// the live blocks of a segment die, for the rule that uses it. It also gives the group of
    /// segments that is due, if any. If that group has no candidate, the rule picks among all.
    ///
    /// With `need`, space is required. If the rule's choice would hardly gain any, the segment that
    /// gains most is taken instead. So no rule can keep a full pool busy without end.
    pub fn take_victim(
        &mut self,
        clock: u64,
        need: bool,
        placement: &AnyPlacement,
    ) -> Option<(SegmentId, f64)> {
        let (greedy, best) = self.victims.peek_best(clock)?;
        let (mut id, mut stats, mut price) = (greedy, best, best.utilisation());
        if !need && index_policy(self.rule) == VictimPolicy::Greedy && gains_little(&best) {
            // Every other segment has less garbage.
            return None;
        }
        // A due segment that is not worth its wear does not block others.
        let due = placement
            .due()
            .and_then(|due| self.pick(Some(due), placement));
        let due = due.filter(|(id, _)| {
            need || self
                .victims
                .get(*id)
                .is_some_and(|stats| !gains_little(&stats))
        });
        let by_index = matches!(self.rule, Rule::Greedy | Rule::CostBenefit);
        if let Some((picked, its_price)) = due.or_else(|| {
            if by_index {
                None
            } else {
                self.pick(None, placement)
            }
        }) && let Some(its_stats) = self.victims.get(picked)
        {
            let hardly = |s: &SegmentStats| {
                u64::from(s.capacity_units - s.live_units.min(s.capacity_units)) * HARDLY_GAINS
                    < u64::from(s.capacity_units)
            };
            if !need || !hardly(&its_stats) {
                (id, stats, price) = (picked, its_stats, its_price);
            }
        }
        if !need && gains_little(&stats) {
            return None;
        }
        self.victims.remove(id);
        let id = SegmentId(id);
        self.table[id.index()].state = SegmentState::Cleaning;
        Some((id, price))
    }

    /// Choice of the rule among the candidates that are due, or among all.
    fn pick(&mut self, due: Option<Due>, placement: &AnyPlacement) -> Option<(u32, f64)> {
        let rule = if due.is_some_and(|due| due.first_sealed) {
            Rule::Fifo
        } else {
            self.rule
        };
        let (table, victims, now) = (&self.table, &self.victims, self.user_clock);
        let mut look = |id: u32| {
            let stats = victims
                .get(id)
                .filter(|stats| stats.live_units < stats.capacity_units)?;
            let place = spot(&table[id as usize], id, now);
            if due.is_some_and(|due| placement.group_of(place.tag) != due.group) {
                return None;
            }
            let rate = if rule == Rule::Gain {
                placement.rate(place)
            } else {
                0.0
            };
            Some(Candidate {
                place,
                live: stats.live_units,
                capacity: stats.capacity_units,
                rate,
            })
        };
        self.shortlists[Due::list(due)].pick(rule, table.len() as u32, &mut look)
    }

    /// Properties of a segment that policies may use.
    pub fn spot(&self, id: SegmentId) -> Spot {
        spot(&self.table[id.index()], id.0, self.user_clock)
    }
}

/// Victim rule in the properties.
pub(crate) fn victim_rule(properties: &windrow_format::superblock::Properties) -> Rule {
    Rule::from_code(properties.victim_policy, properties.victim_number).unwrap_or(Rule::Greedy)
}

#[cfg(test)]
mod tests;
