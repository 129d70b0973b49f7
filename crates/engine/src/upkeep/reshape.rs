//! Growth: the pool takes a new layout over more members, and the data of the old layout moves to
//! it (docs/internals/reshape.md).
//!
//! 1. A new list of zones over all members is computed, by the function that lays out a new pool,
//!    with segment numbers of its own.
//! 2. One superblock generation, marked as growing, introduces the new members as spares. The next
//!    one activates members and zones. If more members fail meanwhile than the redundancy covers, a
//!    third one takes the layout back.
//! 3. From then on streams take segments of the new layout. Those of the old one are read, rebuilt
//!    and cleaned as before, and retired when they become free (`store/segment/layers.rs`).
//! 4. Cleaning empties them, the emptiest first, when it has nothing more urgent to do, at the rate
//!    of a rebuild (`base/background.rs`). With foreground I/O it takes one segment at a time, with
//!    pauses.
//! 5. When no segment of the old layout is in use, and no kept checkpoint can name one, its zones
//!    leave the superblock.
//!
//! Space: the reserve is computed from the segments that are usable at the moment
//! ([`Upkeep::plan_now`]). So usable space, the limit of map pages and the checkpoint's reserve
//! grow together, step by step.

mod coming;
mod removal;

pub(crate) use coming::AfterLoss;

use crate::api::{ControlId, Notice, PoolPlan, ReshapeStatus, ReshapeWait};
use crate::base::background::{Meter, Throttle, time_at};
use crate::base::limits::{
    RESHAPE_VICTIMS, STREAM_CHECKPOINT, STREAM_CLEANED, STREAM_USER, STREAMS,
};
use crate::path::Core;
use crate::path::cleaning::Rest;
use crate::store::events::Outbox;
use crate::store::plan::{FormatError, Holding, plan_holdings, plan_zones};
use crate::store::segment::SegmentState;
use crate::upkeep::Upkeep;
use coming::{Coming, Stage};
use std::collections::VecDeque;
use windrow_format::superblock::Features;
use windrow_geometry::ZoneMap;
use windrow_types::{BLOCK_BYTES, Lsn, MemberId, SegmentId, Uuid};

/// State that a search for victims depends on.
type Seen = (u32, u64, u64, u32);

/// A segment that is emptied only for the reshape.
#[derive(Debug)]
struct Victim {
    segment: SegmentId,
    /// Bytes read from each member for it.
    of_each: u64,
    live_bytes: u64,
}

/// State of the reshape.
#[derive(Debug, Default)]
pub(crate) struct Reshape {
    coming: Option<Coming>,
    /// Set if disconnected devices may have a generation with a layout that was taken back.
    dropped: bool,
    /// Set if there are older layouts.
    active: bool,
    /// Segments to empty, the next one last.
    queue: Vec<SegmentId>,
    /// State at the last search without a victim.
    looked: Option<Seen>,
    /// Segments being emptied only for the reshape.
    victims: Vec<Victim>,
    throttle: Throttle,
    /// Number of segments of older layouts in use when usable space was last computed, and at the
    /// begin.
    planned_for: u32,
    left_at_begin: u32,
    began_ns: u64,
    ended_ns: u64,
    /// Checkpoint that was current when the last of them became free.
    emptied_at: Option<u64>,
    moved_bytes: u64,
    meter: Meter,
    total: u32,
    /// Limit of map bytes if the pool is large enough.
    map_bytes_wanted: u64,
    /// Bit mask of members that leave when nothing is in use in older layouts.
    leaving: u64,
    /// Number of segments that the next victim needs, if too few were free.
    short_of: u32,
    /// A removal is recorded when everything up to this LSN is durable: the check that the data
    /// fits included it.
    fits_from: Lsn,
    /// Futility check of checkpoints forced for a removal, by the segments left in older layouts
    /// and by user writes.
    rest: Rest<(u32, u64)>,
    /// Members that have left, with their identifiers, not yet reported.
    gone: Vec<(MemberId, Uuid)>,
}

impl Reshape {
    /// True if nothing of it is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.coming.is_none() && self.gone.is_empty()
    }

    /// Time at which a pause ends.
    pub(crate) fn wake_at_ns(&self, now_ns: u64) -> Option<u64> {
        self.throttle.wake_at_ns(now_ns).filter(|_| self.active)
    }

    /// Handles the end of a victim: it was emptied, or its remaining blocks cannot be moved.
    pub(crate) fn victim_ended(&mut self, segment: SegmentId, left_bytes: u64, now_ns: u64) {
        if let Some(at) = self
            .victims
            .iter()
            .position(|victim| victim.segment == segment)
        {
            let victim = self.victims.swap_remove(at);
            self.throttle.end(now_ns, victim.of_each);
            self.moved_bytes += victim.live_bytes.saturating_sub(left_bytes);
        }
    }

    /// Drops the pending layout of a stopped pool; returns its request.
    pub(crate) fn give_up_coming(&mut self) -> Option<ControlId> {
        self.coming.take().map(|coming| coming.id)
    }

    /// True if there are older layouts.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Makes the next search run: there may be a victim again.
    pub(crate) fn look_again(&mut self) {
        self.looked = None;
    }
}

impl Reshape {
    /// True if a layout is about to come into force.
    pub(crate) fn reshape_is_coming(&self) -> bool {
        self.coming.is_some()
    }
}

impl Upkeep {
    /// Initializes after a start; `map_bytes_wanted` is the limit of map bytes if the pool is large
    /// enough.
    pub(crate) fn settle_reshape(&mut self, map_bytes_wanted: u64, core: &mut Core) {
        self.reshape.map_bytes_wanted = map_bytes_wanted;
        self.reshape.dropped = core.store.pool.superblock.is_growing();
        let flags = &mut core.store.pool.superblock.features.incompatible;
        *flags = if core.store.pool.zones.leaving() != 0 {
            *flags | Features::LEAVING
        } else {
            *flags & !Features::LEAVING
        };
        if core.store.pool.zones.has_superseded() {
            self.begin_reshape(core);
            self.update_plan(core);
        }
    }

    fn begin_reshape(&mut self, core: &mut Core) {
        let layout = core.store.pool.zones.layout();
        let older = core.store.segments.older_count();
        self.reshape.active = true;
        self.reshape.leaving = core.store.pool.zones.leaving();
        self.reshape.total = core
            .store
            .pool
            .zones
            .zones()
            .iter()
            .filter(|z| z.layout != layout)
            .map(|z| z.segments)
            .sum();
        (self.reshape.left_at_begin, self.reshape.planned_for) = (older, older);
        (self.reshape.began_ns, self.reshape.ended_ns) =
            (core.store.pool.now_ns, core.store.pool.now_ns);
        (self.reshape.emptied_at, self.reshape.looked) = (None, None);
        self.reshape.queue.clear();
    }

    /// Status for `status`.
    pub(crate) fn reshape_status(&self, core: &Core) -> ReshapeStatus {
        let (state, left) = (&self.reshape, core.store.segments.older_count());
        let damaged = |id: &SegmentId| {
            core.store.segments.get(*id).state == SegmentState::Quarantined
                && !core.store.segments.waits_for_checkpoint(*id)
        };
        let until = if state.active {
            core.store.pool.now_ns
        } else {
            state.ended_ns
        };
        ReshapeStatus {
            active: state.active,
            segments_done: state.total - left.min(state.total),
            segments_total: state.total,
            segments_damaged: core.store.segments.older().filter(damaged).count() as u32,
            segments_since: state.left_at_begin.saturating_sub(left),
            active_ms: until.saturating_sub(state.began_ns) / 1_000_000,
            moved_bytes: state.moved_bytes,
            left_bytes: core
                .store
                .segments
                .older()
                .map(|id| core.store.segments.live_bytes(id))
                .sum(),
            bytes_per_second: if state.active {
                state.meter.rate(core.store.pool.now_ns, state.moved_bytes)
            } else {
                0
            },
            waits_for: if state.active {
                self.reshape_waits_for(core)
            } else {
                ReshapeWait::Nothing
            },
        }
    }

    fn reshape_waits_for(&self, core: &Core) -> ReshapeWait {
        let (state, mut older) = (&self.reshape, core.store.segments.older());
        let is_dead = |id: SegmentId| {
            matches!(core.store.segments.get(id).state, SegmentState::Dead)
                || core.store.segments.waits_for_checkpoint(id)
        };
        let is_damaged =
            |id: SegmentId| core.store.segments.get(id).state == SegmentState::Quarantined;
        if !self.integrity.rebuild.is_idle() {
            ReshapeWait::Rebuild
        } else if !state.victims.is_empty()
            || state.throttle.wake_at_ns(core.store.pool.now_ns).is_some()
        {
            ReshapeWait::Nothing
        } else if core
            .store
            .segments
            .older()
            .all(|id| is_dead(id) || is_damaged(id))
        {
            if older.any(is_dead) || core.store.segments.older_count() == 0 {
                ReshapeWait::Checkpoint
            } else {
                ReshapeWait::Damage
            }
        } else if state.short_of > 0
            || !self.has_room_to_reshape(core)
            || !self.is_clean_enough(core)
        {
            ReshapeWait::Room
        } else {
            ReshapeWait::Nothing
        }
    }

    /// Recomputes the capacity by [`Upkeep::plan_now`].
    fn update_plan(&mut self, core: &mut Core) {
        if let Ok(plan) = self.plan_now(core.store.pool.superblock.properties.spare_per_mille, core)
        {
            self.take_plan(plan, core);
        }
    }

    /// Capacity under `zones` with the segments that are usable now. Wider segments bring payload,
    /// and payload map pages, which cost small segments of the reserve. If a larger map costs more
    /// than it brings, the present limit of map pages applies.
    fn plan_over(
        &self,
        zones: &ZoneMap,
        spare_per_mille: u16,
        core: &Core,
    ) -> Result<PoolPlan, FormatError> {
        let holdings = core.store.segments.holdings(&core.store.pool.zones);
        let plan = |pages| {
            plan_holdings(
                &holdings,
                zones,
                spare_per_mille,
                core.store.pool.kept(),
                pages,
            )
        };
        match (plan(u64::MAX), plan(core.store.pool.plan.map_pages_max)) {
            (Ok(large), Ok(small)) if small.usable_bytes > large.usable_bytes => Ok(small),
            (Err(_), Ok(small)) => Ok(small),
            (large, _) => large,
        }
    }

    /// Present capacity: that of the usable segments, and never less than the oldest layout had
    /// alone. While a layout is pending, it is limited to the capacity at its activation.
    pub(crate) fn plan_now(
        &self,
        spare_per_mille: u16,
        core: &Core,
    ) -> Result<PoolPlan, FormatError> {
        let mut plan = self.plan_in_force(spare_per_mille, core)?;
        if let Some(coming) =
            self.reshape.coming.as_ref().filter(|coming| {
                matches!(coming.stage, Stage::Room | Stage::Introduce | Stage::Record)
            })
        {
            let kept = core.store.pool.kept();
            // A start must find the layout large enough for itself.
            let target = plan_zones(&coming.zones, spare_per_mille, kept)?;
            let then = if coming.leaves.is_some() {
                target
            } else {
                self.plan_over(&coming.zones, spare_per_mille, core)?
            };
            plan.usable_bytes = plan.usable_bytes.min(then.usable_bytes);
            plan.map_bytes = plan.map_bytes.min(then.map_bytes);
            plan.index_pages = plan.index_pages.min(then.index_pages);
            plan.map_pages_max = plan.map_pages_max.min(then.map_pages_max);
            plan.checkpoint_segments = plan.checkpoint_segments.max(then.checkpoint_segments);
            plan.reserve_segments = plan.reserve_segments.max(then.reserve_segments);
        }
        Ok(core
            .paths
            .reduction
            .bounded_by_change(&core.store.pool, plan))
    }

    fn plan_in_force(&self, spare_per_mille: u16, core: &Core) -> Result<PoolPlan, FormatError> {
        let target = plan_zones(
            &core.store.pool.zones,
            spare_per_mille,
            core.store.pool.kept(),
        )?;
        if !core.store.pool.zones.has_superseded() {
            return Ok(target);
        }
        let oldest = core
            .store
            .pool
            .zones
            .zones()
            .iter()
            .map(|z| z.layout)
            .min()
            .unwrap_or_default();
        let of_oldest = core
            .store
            .pool
            .zones
            .zones()
            .iter()
            .filter(|z| z.layout == oldest);
        if self.reshape.is_losing_member() {
            // Usable space is that of the remaining members, and at most that of the old layout
            // while it has data.
            let before = plan_zones(
                &ZoneMap::new(of_oldest.cloned().collect()),
                spare_per_mille,
                core.store.pool.kept(),
            );
            let most = before.map_or(u64::MAX, |plan| plan.usable_bytes);
            return Ok(PoolPlan {
                usable_bytes: target.usable_bytes.min(most),
                ..target
            });
        }
        let before: Vec<Holding> = of_oldest
            .map(|z| Holding {
                shape: z.shape,
                segments: z.segments,
            })
            .collect();
        let before = plan_holdings(
            &before,
            &core.store.pool.zones,
            spare_per_mille,
            core.store.pool.kept(),
            u64::MAX,
        );
        let best = self
            .plan_over(&core.store.pool.zones, spare_per_mille, core)
            .into_iter()
            .chain(before)
            .max_by_key(|plan| plan.usable_bytes);
        let mut plan = best.unwrap_or_else(|| target.clone());
        plan.usable_bytes = plan.usable_bytes.min(target.usable_bytes);
        (plan.map_bytes, plan.index_pages) = (
            plan.map_bytes.min(target.map_bytes),
            plan.index_pages.min(target.index_pages),
        );
        Ok(plan)
    }

    /// Sets the capacity of the pool.
    pub(crate) fn take_plan(&mut self, plan: PoolPlan, core: &mut Core) {
        core.paths.durability.checkpoint.set_plan(&plan);
        core.paths
            .space
            .ledger
            .allow_checkpoint(plan.checkpoint_segments);
        core.store.pool.limits.map_bytes = self
            .reshape
            .map_bytes_wanted
            .min(plan.map_pages_max * BLOCK_BYTES);
        core.store
            .volumes
            .arena
            .set_max_bytes(core.store.pool.limits.map_bytes);
        core.store.pool.plan = plan;
    }

    /// Continues growth and reshape.
    pub(crate) fn reshape_step(&mut self, core: &mut Core, out: &mut Outbox) {
        self.coming_step(core, out);
        self.tell_gone(core, out);
        if !self.reshape.active || core.store.pool.read_only || core.store.pool.stopped.is_some() {
            return;
        }
        self.reshape
            .meter
            .note(core.store.pool.now_ns, self.reshape.moved_bytes);
        let left = core.store.segments.older_count();
        if left != self.reshape.planned_for {
            self.reshape.planned_for = left;
            // Rounding may take one segment more of the reserve than a step brought: the earlier
            // capacity stays valid.
            let plan = self.plan_now(core.store.pool.superblock.properties.spare_per_mille, core);
            if let Some(plan) = plan
                .ok()
                .filter(|plan| plan.usable_bytes >= core.store.pool.plan.usable_bytes)
            {
                self.take_plan(plan, core);
            }
        }
        if core.store.pool.closing.is_under_way() {
            return;
        }
        if left == 0 {
            return self.end_reshape(core, out);
        }
        self.give_up_uncovered(core);
        self.take_older_victims(core);
        self.hurry_reshape(core);
        self.leave_older(core, out);
    }

    /// Makes idle streams leave older layouts when only the segments that streams hold are left
    /// there. Reserved successors are given back, and open segments are filled with empty batches.
    fn leave_older(&mut self, core: &mut Core, out: &mut Outbox) {
        let held = |id: SegmentId| {
            matches!(
                core.store.segments.get(id).state,
                SegmentState::Open | SegmentState::Reserved
            )
        };
        if core.paths.space.cleaner.victim_count() > 0 || !core.store.segments.older().all(held) {
            return;
        }
        let layout = core.store.pool.zones.layout();
        // An idle further stream holds its next segment as well.
        let further = STREAMS
            .into_iter()
            .filter(|id| *id != STREAM_USER && core.paths.log.stream(*id).open.is_empty());
        let idle = (core.paths.admission.unsealed_units == 0).then_some(STREAM_USER);
        for id in idle.into_iter().chain(further.collect::<Vec<_>>()) {
            let reserved = std::mem::take(&mut core.paths.log.stream_mut(id).reserved);
            if reserved.is_empty() {
                continue;
            }
            let (keep, older): (VecDeque<_>, VecDeque<_>) = reserved
                .into_iter()
                .partition(|id| core.store.pool.zones.zone(*id).layout == layout);
            let stream = core.paths.log.stream_mut(id);
            stream.position.next_segment = keep.front().copied().unwrap_or(SegmentId::NONE);
            stream.reserved = keep;
            older
                .into_iter()
                .for_each(|id| core.store.segments.give_back(id));
        }
        core.paths.ensure_next_segment(&mut core.store);
        let of_stream = |id: usize| core.paths.log.stream(id).position.segment;
        let older = STREAMS.map(of_stream).into_iter().filter(|id| {
            core.store.pool.zones.contains(*id) && core.store.pool.zones.zone(*id).layout != layout
        });
        self.leave_segments(&older.collect::<Vec<_>>(), core, out);
    }

    /// Makes idle streams leave these segments: the rest of each is filled with empty batches, one
    /// at a time.
    pub(crate) fn leave_segments(
        &mut self,
        segments: &[SegmentId],
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let mut has_unnamed = false;
        for id in STREAMS {
            let s = core.paths.log.stream(id);
            let busy = match id {
                STREAM_USER => {
                    core.paths.admission.unsealed_units > 0 || !core.paths.admission.is_idle()
                }
                STREAM_CLEANED => {
                    core.paths.space.cleaner.has_moves() || core.paths.space.cleaner.has_repairs()
                }
                STREAM_CHECKPOINT => !core.paths.durability.checkpoint.is_idle(),
                _ => false,
            };
            let leaves = segments.contains(&s.position.segment);
            let is_unnamed = s.usable_from > core.paths.durability.checkpoint.kept_oldest;
            if leaves && is_unnamed {
                // Empty batches count as batches: until all kept roots name the stream, a start
                // takes them for damage (simulator, seed 9837798).
                has_unnamed = true;
            } else if leaves && !busy && s.open.is_empty() && s.in_flight.is_empty() {
                core.paths.seal_empty(id, &mut core.store, out);
            }
        }
        if has_unnamed && core.paths.durability.checkpoint.is_idle() {
            core.paths.durability.checkpoint.request();
        }
    }

    /// Begins to empty segments of older layouts, if cleaning has nothing more urgent to do.
    fn take_older_victims(&mut self, core: &mut Core) {
        // A rebuild that waits because of damage is idle: it waits for its segments to be emptied,
        // perhaps by this.
        while self.integrity.rebuild.is_idle()
            && core.paths.space.cleaner.victim_count() < RESHAPE_VICTIMS
            && self.is_clean_enough(core)
            && self.has_room_to_reshape(core)
        {
            if !self
                .reshape
                .throttle
                .may_begin(core.store.pool.now_ns, &core.store.observe.users)
            {
                return;
            }
            let Some(segment) = self.next_older(core) else {
                return;
            };
            let needs = self.segments_for(segment, core);
            self.reshape.short_of = if self.has_room_for(needs, core) {
                0
            } else {
                needs
            };
            if self.reshape.short_of > 0 {
                // Only while a member leaves. Victims with a larger gain were moved before.
                return;
            }
            self.reshape.queue.pop();
            let taken = core.store.segments.take_candidate(segment);
            debug_assert!(taken);
            let bytes = core.store.segments.live_bytes(segment);
            let of_each = bytes / u64::from(core.store.pool.zones.shape(segment).data);
            let properties = &core.store.pool.superblock.properties;
            let (bound, floor) = (
                time_at(of_each, properties.rebuild_rate),
                time_at(of_each, properties.rebuild_rate_min),
            );
            self.reshape
                .throttle
                .begin(core.store.pool.now_ns, of_each, bound, floor);
            self.reshape.victims.push(Victim {
                segment,
                of_each,
                live_bytes: bytes,
            });
            self.begin_victim(segment, core);
        }
    }

    /// True if there is room: each victim may need a segment for its moves before it returns one,
    /// and user writes keep theirs.
    fn has_room_to_reshape(&self, core: &Core) -> bool {
        self.has_room_for(1, core)
    }

    /// True if a victim that needs this number of segments may be begun.
    fn has_room_for(&self, segments: u32, core: &Core) -> bool {
        core.store.segments.free_count() + 1
            > core.paths.floor(STREAM_USER, &core.store)
                + core.paths.space.cleaner.segments_needed()
                + segments
    }

    /// The next candidate of an older layout; it is the last of the queue.
    fn next_older(&mut self, core: &mut Core) -> Option<SegmentId> {
        loop {
            match self.reshape.queue.last() {
                Some(segment) if core.store.segments.is_candidate(*segment) => {
                    return Some(*segment);
                }
                Some(_) => {
                    self.reshape.queue.pop();
                    continue;
                }
                None => {}
            }
            let seen = (
                core.store.segments.older_count(),
                core.paths.durability.checkpoint.kept_oldest,
                core.store.observe.counters.segments_cleaned,
                core.store.segments.dead_count(),
            );
            if self.reshape.looked == Some(seen) {
                return None;
            }
            self.reshape.looked = Some(seen);
            // Where new segments wait for several old ones, neighbours are emptied together.
            let rotates = |id: SegmentId| {
                core.store.pool.zones.zone(id).member_count()
                    > usize::from(core.store.pool.zones.shape(id).width)
            };
            let live = |id: SegmentId| i64::from(core.store.segments.get(id).weight());
            let cost = |id: SegmentId| {
                if self.reshape.is_losing_member() {
                    -core.store.segments.gain(id)
                } else {
                    live(id)
                }
            };
            let key = |id: &SegmentId| {
                std::cmp::Reverse(if core.store.pool.rotating() || rotates(*id) {
                    i64::from(id.0)
                } else {
                    cost(*id)
                })
            };
            let mut queue: Vec<SegmentId> = core
                .store
                .segments
                .older()
                .filter(|id| core.store.segments.is_candidate(*id))
                .collect();
            queue.sort_by_key(key);
            self.reshape.queue = queue;
            if self.reshape.queue.is_empty() {
                return None;
            }
        }
    }

    /// Requests the operations that old segments wait for to become free. A flush is requested if
    /// several wait for it or nothing else is possible, a checkpoint in the latter case only.
    fn hurry_reshape(&mut self, core: &mut Core) {
        let pauses = self
            .reshape
            .throttle
            .wake_at_ns(core.store.pool.now_ns)
            .is_some();
        let working = pauses
            || (core.paths.space.cleaner.victim_count() > 0 && self.has_room_to_reshape(core));
        let waiting = core.store.segments.dead_count() - core.store.segments.dead_in_replay_count();
        let is_enough = waiting > 0 && (!working || waiting >= RESHAPE_VICTIMS * 2);
        if is_enough && self.flush_would_free(core) {
            core.paths.durability.flush.request();
        }
        if core.paths.space.cleaner.victim_count() == 0
            && self.reshape.queue.is_empty()
            && core.paths.durability.checkpoint.is_idle()
        {
            let waits = core
                .store
                .segments
                .older()
                .any(|id| core.store.segments.waits_for_checkpoint(id));
            if waits {
                core.paths.durability.checkpoint.request();
            }
        }
    }

    /// Ends the reshape when older layouts hold nothing: removes their zones once no kept
    /// checkpoint can name their segments.
    fn end_reshape(&mut self, core: &mut Core, out: &mut Outbox) {
        let emptied_at = *self
            .reshape
            .emptied_at
            .get_or_insert(core.paths.durability.checkpoint.current());
        if core.paths.durability.checkpoint.kept_oldest <= emptied_at {
            if core.paths.durability.checkpoint.is_idle() {
                core.paths.durability.checkpoint.request();
            }
            return;
        }
        if self.reshape.coming.is_some() || !self.let_go(core) {
            return;
        }
        core.store.pool.zones = ZoneMap::new(core.store.pool.zones.current().cloned().collect());
        core.store.pool.superblock.zones = core.store.pool.zones.zones().to_vec();
        core.store.segments.lay_over(&core.store.pool.zones);
        self.reshape.active = false;
        self.reshape.ended_ns = core.store.pool.now_ns;
        self.update_plan(core);
        out.notices.push(Notice::Reshaped);
        core.store.drives.superblock_writer.request();
        core.paths.superblock_step(&mut core.store, out);
    }
}
