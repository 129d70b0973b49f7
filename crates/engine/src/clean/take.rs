//! Selection time of victims: while too little is free or about to become free. The segment table
//! selects the victim (`segment/choose.rs`).

use super::Victim;
use super::damage::Pass;
use crate::Engine;
use crate::limits::{CHECKPOINT_RESERVE, MAX_VICTIMS, STREAM_CHECKPOINT, STREAM_USER};
use crate::slab::Slab;
use crate::write::pace::Gain;
use windrow_types::{BLOCK_BYTES, SegmentId};

impl Engine {
    /// True if enough is free or about to become free.
    pub(crate) fn is_clean_enough(&self) -> bool {
        let coming = self.space.segments.free_count() + self.space.segments.dead_count()
            - self.space.segments.dead_in_replay_count();
        let missing = (self.segments_wanted() as usize)
            .saturating_sub(self.log.stream(STREAM_USER).reserved.len())
            as u32;
        // Each victim gives one; what it needs beyond that it takes.
        let gives = (2 * self.space.cleaner.victim_count())
            .saturating_sub(self.space.cleaner.segments_needed());
        coming + gives
            > self.floor(STREAM_USER)
                + 1
                + missing
                + crate::format::cleaning_ahead(self.pool.plan.segments)
                + self.reshape.segments_for_removal()
    }

    /// Picks victims while too little is free or about to become free.
    pub(super) fn take_victims(&mut self) {
        if self.is_clean_enough() && self.has_room_for_repairs() {
            // Segments that block a new layout are checked again each time some of their data dies.
            // Elsewhere this may be much work for little.
            let touched = self.reshape.is_active() && self.space.segments.release_touched();
            if self.space.segments.release_tried() || touched {
                self.reshape.look_again();
                self.space.cleaner.again = true;
            }
        }
        loop {
            if self.is_clean_enough() || self.space.cleaner.segments_needed() >= self.outputs() {
                return;
            }
            let clock = self.observe.counters.log_bytes / BLOCK_BYTES;
            // Without need nothing is cleaned that gains little: it would only wear the members.
            let need = self.wants_room()
                || self.durability.checkpoint.wants_segment()
                || self.removal_wants_room();
            let is_without_progress = self.victims_gain_nothing()
                && self.space.segments.gain_little(clock)
                && !self.durability.checkpoint.wants_segment();
            let victim = if is_without_progress {
                None
            } else {
                self.space
                    .segments
                    .take_victim(clock, need, self.space.policy.placement())
            };
            if let Some((segment, price)) = victim {
                self.space.note_victim(segment, price);
                self.durability
                    .add_opportunity_cost(&self.space, self.space.segments.garbage(segment));
                self.begin_victim(segment);
            } else if let Some(segment) = if need {
                self.space.segments.take_touched()
            } else {
                None
            } {
                // The data that died in it may be exactly what was unreadable.
                self.begin_victim(segment);
            } else {
                return;
            }
        }
    }

    /// Segments that the moves of victims may need at the same time. Each victim may need one
    /// before any becomes free; below a checkpoint's reserve one is begun at a time.
    pub(super) fn outputs(&mut self) -> u32 {
        self.space.repay_deficit(&self.map);
        let free = self.space.segments.free_count();
        let beyond =
            free.saturating_sub(self.durability.checkpoint.reserve_segments() + CHECKPOINT_RESERVE);
        if self.is_futile() {
            // The next one may give something back, but not at the expense of a checkpoint, unless
            // the checkpoint itself waits for a segment.
            return beyond
                .max(u32::from(
                    self.durability.checkpoint.wants_segment() && free > 0,
                ))
                .min(1);
        }
        beyond.clamp(1, MAX_VICTIMS as u32)
    }

    /// Begins to empty a segment that was taken out of the candidates.
    pub(crate) fn begin_victim(&mut self, segment: SegmentId) {
        self.observe.counters.victims += 1;
        let (live, dead) = self.space.segments.live_and_dead_blocks(segment);
        let gain = Gain::new(live, dead);
        let victim = Victim {
            segment,
            next_row: 0,
            ends: Vec::new(),
            runs: Slab::default(),
            ready: 0,
            repacking: 0,
            last: Default::default(),
            pass: if self.is_to_be_tried(segment) {
                Pass::Trial
            } else {
                Pass::Ends
            },
            missed: false,
            lost_users: false,
            lost_index: false,
            gain,
            gives: self.space.gain_parts(segment),
            weight: self.space.segments.get(segment).weight(),
            needs: self.segments_for(segment),
        };
        self.space.ledger.begin_victim(victim.needs);
        // A victim of a wide zone may need several segments of a narrow one.
        let has_unequal_segments = self
            .pool
            .zones
            .current()
            .any(|zone| zone.shape != *self.pool.zones.shape(segment));
        if has_unequal_segments
            || self.space.segments.get(segment).damaged
            || self.space.segments.quarantined_for_damage_count() > 0
        {
            self.space.ledger.move_others();
        }
        self.space.cleaner.victims.insert(victim);
    }

    /// True if the victim is read completely before anything of it is moved: there is damage, and
    /// space is short (`clean/damage.rs`).
    fn is_to_be_tried(&self, segment: SegmentId) -> bool {
        let has_moves = usize::from(self.space.segments.get(segment).stream) != STREAM_CHECKPOINT;
        let is_damaged = self.space.segments.get(segment).damaged
            || self.space.segments.quarantined_for_damage_count() > 0;
        has_moves && is_damaged && !self.has_room_for_repairs()
    }
}
