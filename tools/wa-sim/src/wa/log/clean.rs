//! Cleaning: its trigger, the choice of a victim, and the moves.

use super::segments::State;
use super::{Log, NONE, Space};
use windrow_policy::place::{Due, Placement};
use windrow_policy::select::{Candidate, Rule};

impl<P: Placement> Log<P> {
    fn begin_checkpoint(&mut self) {
        self.checkpoints
            .step(self.counts.written, self.counts.written + self.counts.moved);
        while let Some(number) = self.checkpoints.pop_old() {
            self.offer(number);
        }
    }

    /// Cleans until the stream can take a block and a free segment is left for cleaning.
    #[inline]
    pub(super) fn make_room(&mut self, stream: u8) {
        while self.open[usize::from(stream)].segment == NONE && self.free.len() < 2 {
            if self.orphan().is_some() || !self.clean_one() {
                return;
            }
        }
    }

    /// The peers' rule: at most one victim for each write; see [`Log::pick`] for its choice.
    #[inline]
    pub(super) fn hold_share(&mut self) {
        if self.segments.garbage as f64 > self.shape.spare * self.segments.used as f64 {
            self.clean_one();
        }
    }

    /// A pause in which `blocks` blocks can be moved: cleans until `free` segments are free, or as
    /// many as all garbage would make.
    pub fn idle(&mut self, mut blocks: u32, free: u32) {
        let most = u64::from(self.free_segments())
            + self.segments.garbage / u64::from(self.shape.segment_blocks);
        let free = free.min(most as u32);
        while self.free_segments() < free {
            let before = self.counts.moved;
            // The last victim of a pause is finished even if that takes slightly longer; a full one
            // gains nothing.
            if blocks == 0 || !self.clean_one() {
                return;
            }
            let moved = self.counts.moved - before;
            self.counts.moved_idle += moved;
            blocks = blocks.saturating_sub(moved.max(1) as u32);
        }
    }

    /// Resets the counts of [`Log::victims_by_live`].
    pub fn forget_victims(&mut self) {
        self.victim_live.fill(0);
    }

    /// Cleans one victim; false if there is none.
    pub fn clean_one(&mut self) -> bool {
        debug_assert!(!self.cleaning);
        if self
            .checkpoints
            .is_due(self.counts.written, self.counts.written + self.counts.moved)
        {
            self.begin_checkpoint();
        }
        let mut victim = self.pick();
        while victim.is_none() && self.checkpoints.keep_any() {
            // Nothing else is left to clean: an engine requests a checkpoint then.
            self.begin_checkpoint();
            victim = self.pick();
        }
        let Some(victim) = victim else { return false };
        let (all, most) = (&self.segments.all, self.shape.segment_blocks);
        self.checkpoints
            .opportunity_cost(most - all[victim as usize].live, most, |young| {
                most - all[young as usize].live
            });
        self.clean(victim);
        true
    }

    fn pick(&mut self) -> Option<u32> {
        let due = self.placement.due();
        due.and_then(|due| self.pick_of(Some(due)))
            .or_else(|| self.pick_of(None))
    }

    /// Victim of a group of segments, or of all.
    fn pick_of(&mut self, due: Option<Due>) -> Option<u32> {
        let greedy = self.rule == Rule::Greedy;
        if greedy && due.is_none() {
            return self.index.pop_best(0).map(|(segment, _)| segment);
        }
        let rule = if due.is_some_and(|due| due.first_sealed) {
            Rule::Fifo
        } else {
            self.rule
        };
        let (segments, placement, gain) = (&self.segments, &self.placement, rule == Rule::Gain);
        let checkpoints = &self.checkpoints;
        let live_most = match self.shape.space {
            // The peers' rule: a victim itself has at least that share of garbage. One always
            // exists if the total exceeds it. (That would break first in, first out, so it is not
            // applied there.)
            Space::Share if rule != Rule::Fifo => {
                (f64::from(segments.segment_blocks) * (1.0 - self.shape.spare) + 1e-9)
                    .min(f64::from(segments.segment_blocks - 1)) as u32
            }
            Space::Strict | Space::Share => segments.segment_blocks - 1,
        };
        let mut look = |number: u32| {
            let segment = &segments.all[number as usize];
            if segment.state != State::Sealed
                || segment.live > live_most
                || checkpoints.is_young(number)
            {
                return None;
            }
            if due.is_some_and(|due| placement.group_of(segment.tag) != due.group) {
                return None;
            }
            let place = segments.place(number);
            let rate = if gain { placement.rate(place) } else { 0.0 };
            Some(Candidate {
                place,
                live: segment.live,
                capacity: segments.segment_blocks,
                rate,
            })
        };
        let (segment, price) =
            self.shortlists[Due::list(due)].pick(rule, segments.all.len() as u32, &mut look)?;
        if greedy {
            self.index.remove(segment);
        }
        self.placement.chosen(price);
        Some(segment)
    }

    /// Collects the live blocks of a victim in a list. All its slots are read before anything
    /// moves: cache misses overlap, and there are no mispredictions.
    fn gather(&self, victim: u32, live: u32, mut list: Vec<u32>) -> Vec<u32> {
        let begin = victim * self.shape.segment_blocks;
        let slots = &self.slots[begin as usize..][..self.shape.segment_blocks as usize];
        let mut found = 0;
        for (slot, block) in (begin..).zip(slots) {
            let is_live = self.map[*block as usize] == slot;
            list[found] = *block;
            found += usize::from(is_live);
            if found == live as usize {
                break;
            }
        }
        assert_eq!(found, live as usize, "segment {victim}");
        list
    }

    fn clean(&mut self, victim: u32) {
        self.cleaning = true;
        let from = self.segments.place(victim);
        let segment = &mut self.segments.all[victim as usize];
        let live = segment.live;
        segment.state = State::Open;
        self.victim_live[live as usize] += 1;
        self.counts.victims += 1;
        self.placement
            .victim(from, live, segment.opened_at, self.segments.now);
        if P::SURVEYS_VICTIMS {
            self.placement.survey(self.segments.now, &self.segments);
        }
        let moving = std::mem::take(&mut self.moving);
        let moving = self.gather(victim, live, moving);
        std::hint::black_box(self.placement.touch(&moving[..live as usize], false));
        for block in &moving[..live as usize] {
            let stream = self.placement.moved(*block, self.segments.now, from);
            self.append(*block, stream);
        }
        self.moving = moving;
        self.counts.moved += u64::from(live);
        let segment = &mut self.segments.all[victim as usize];
        segment.live = 0;
        segment.state = State::Free;
        let garbage = u64::from(self.shape.segment_blocks - live);
        self.segments.used -= garbage;
        self.segments.garbage -= garbage;
        self.free.push(victim);
        self.cleaning = false;
    }
}
