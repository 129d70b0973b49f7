//! Selection time of victims: while too little is free or about to become free. The segment table
//! selects the victim (`store/segment/choose.rs`).

use crate::base::limits::{CHECKPOINT_RESERVE, MAX_VICTIMS, STREAM_CHECKPOINT, STREAM_USER};
use crate::base::slab::Slab;
use crate::path::Core;
use crate::path::cleaning::*;
use crate::path::write::pace::Gain;
use crate::upkeep::Upkeep;
use windrow_types::{BLOCK_BYTES, SegmentId};

/// What to clean next.
enum Choice {
    /// Nothing now: enough is free or about to become free, or the moves of the victims in progress
    /// may take all the segments that they may have.
    Enough,
    /// A candidate, at the price of its space.
    Victim { segment: SegmentId, price: f64 },
    /// A quarantined segment: the data that died in it may be exactly what was unreadable.
    Touched(SegmentId),
    /// No segment would gain enough.
    Nothing,
}

impl Upkeep {
    /// True if enough is free or about to become free.
    pub(crate) fn is_clean_enough(&self, core: &Core) -> bool {
        let coming = core.store.segments.free_count() + core.store.segments.dead_count()
            - core.store.segments.dead_in_replay_count();
        let missing = (core.paths.segments_wanted(&core.store) as usize)
            .saturating_sub(core.paths.log.stream(STREAM_USER).reserved.len())
            as u32;
        // Each victim gives one; what it needs beyond that it takes.
        let gives = (2 * core.paths.space.cleaner.victim_count())
            .saturating_sub(core.paths.space.cleaner.segments_needed());
        coming + gives
            > core.paths.floor(STREAM_USER, &core.store)
                + 1
                + missing
                + crate::store::plan::cleaning_ahead(core.store.pool.plan.segments)
                + self.reshape.segments_for_removal()
    }

    /// Picks victims while too little is free or about to become free.
    pub(super) fn take_victims(&mut self, core: &mut Core) {
        if self.is_clean_enough(core) && self.has_room_for_repairs(core) {
            // Segments that block a new layout are checked again each time some of their data dies.
            // Elsewhere this may be much work for little.
            let touched = self.reshape.is_active() && core.store.segments.release_touched();
            if core.store.segments.release_tried() || touched {
                self.reshape.look_again();
                core.paths.space.cleaner.again = true;
            }
        }
        loop {
            let segment = match self.choose(core) {
                Choice::Victim { segment, price } => {
                    core.paths
                        .space
                        .note_victim(&core.store.segments, segment, price);
                    let gained = core.store.segments.garbage(segment);
                    core.paths
                        .durability
                        .add_opportunity_cost(&core.store.segments, gained);
                    segment
                }
                Choice::Touched(segment) => segment,
                Choice::Enough | Choice::Nothing => return,
            };
            self.begin_victim(segment, core);
        }
    }

    /// Chooses what to clean next, and takes it out of the candidates.
    fn choose(&mut self, core: &mut Core) -> Choice {
        if self.is_clean_enough(core)
            || core.paths.space.cleaner.segments_needed() >= self.outputs(core)
        {
            return Choice::Enough;
        }
        let clock = core.store.observe.counters.log_bytes / BLOCK_BYTES;
        // Without need nothing is cleaned that gains little: it would only wear the members.
        let need = self.wants_room(core)
            || core.paths.durability.checkpoint.wants_segment()
            || self.removal_wants_room(core);
        let is_without_progress = self.victims_gain_nothing(core)
            && core.store.segments.gain_little(clock)
            && !core.paths.durability.checkpoint.wants_segment();
        if !is_without_progress {
            let placement = core.paths.space.policy.placement();
            if let Some((segment, price)) = core.store.segments.take_victim(clock, need, placement)
            {
                return Choice::Victim { segment, price };
            }
        }
        let touched = need.then(|| core.store.segments.take_touched()).flatten();
        touched.map_or(Choice::Nothing, Choice::Touched)
    }

    /// Segments that the moves of victims may need at the same time. Each victim may need one
    /// before any becomes free; below a checkpoint's reserve one is begun at a time.
    pub(super) fn outputs(&mut self, core: &mut Core) -> u32 {
        core.paths
            .space
            .repay_deficit(&core.store.volumes, &core.store.segments);
        let free = core.store.segments.free_count();
        let beyond = free.saturating_sub(
            core.paths.durability.checkpoint.reserve_segments() + CHECKPOINT_RESERVE,
        );
        if self.is_futile(core) {
            // The next one may give something back, but not at the expense of a checkpoint, unless
            // the checkpoint itself waits for a segment.
            return beyond
                .max(u32::from(
                    core.paths.durability.checkpoint.wants_segment() && free > 0,
                ))
                .min(1);
        }
        beyond.clamp(1, MAX_VICTIMS as u32)
    }

    /// Begins to empty a segment that was taken out of the candidates.
    pub(crate) fn begin_victim(&mut self, segment: SegmentId, core: &mut Core) {
        core.store.observe.counters.victims += 1;
        let (live, dead) = core.store.segments.live_and_dead_blocks(segment);
        let gain = Gain::new(live, dead);
        let victim = Victim {
            segment,
            next_row: 0,
            ends: Vec::new(),
            runs: Slab::default(),
            ready: 0,
            repacking: 0,
            last: Default::default(),
            pass: if self.is_to_be_tried(segment, core) {
                Pass::Trial
            } else {
                Pass::Ends
            },
            missed: false,
            lost_users: false,
            lost_index: false,
            gain,
            gives: core.paths.space.gain_parts(&core.store.segments, segment),
            weight: core.store.segments.get(segment).weight(),
            needs: self.segments_for(segment, core),
        };
        core.paths.space.ledger.begin_victim(victim.needs);
        // A victim of a wide zone may need several segments of a narrow one.
        let has_unequal_segments = core
            .store
            .pool
            .zones
            .current()
            .any(|zone| zone.shape != *core.store.pool.zones.shape(segment));
        if has_unequal_segments
            || core.store.segments.get(segment).damaged
            || core.store.segments.quarantined_for_damage_count() > 0
        {
            core.paths.space.ledger.move_others();
        }
        core.paths.space.cleaner.victims.insert(victim);
    }

    /// True if the victim is read completely before anything of it is moved: there is damage, and
    /// space is short (`upkeep/clean/damage.rs`).
    fn is_to_be_tried(&self, segment: SegmentId, core: &Core) -> bool {
        let has_moves = usize::from(core.store.segments.get(segment).stream) != STREAM_CHECKPOINT;
        let is_damaged = core.store.segments.get(segment).damaged
            || core.store.segments.quarantined_for_damage_count() > 0;
        has_moves && is_damaged && !self.has_room_for_repairs(core)
    }
}
