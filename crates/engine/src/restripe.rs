//! Growth: the pool takes a new layout over more members, and what lies in the old one moves over (docs/growth.md).
//!
//! 1 A fresh list of zones over all members is computed, by the function that lays out a new pool, with segment numbers of its own. 2 One superblock
//! generation, marked as growing, introduces the new members as spares; the next one brings members and zones into force, or is taken back by a
//! third if more members fail meanwhile than the redundancy covers. 3 From then on streams take segments of the new layout; those of the old one are read,
//! rebuilt and cleaned as ever, and given up when they come free (`segment/layers.rs`). 4 Cleaning empties them, the emptiest first, when it has
//! nothing more urgent to do, at the pace of a rebuild (`background.rs`): a segment at a time while users are about, with pauses. 5 When nothing is in use in the old layout any more, and no kept checkpoint can name its segments, its zones leave the
//! superblock.
//!
//! Space: what is held back is reckoned from the segments that may be used at the moment ([`Engine::plan_now`]), so usable space, the bound on
//! map pages and the checkpoint's reserve grow together, step by step.

use crate::background::{Throttle, time_at};
use crate::control::control_answer;
use crate::format::{Holding, Layout, lay_out, plan_holdings, plan_zones};
use crate::limits::{RESTRIPE_VICTIMS, STREAM_CHECKPOINT, STREAM_CLEANED, STREAM_USER, STREAMS};
use crate::member::{life, nobody_without, redundancy_holds};
use crate::segment::{ReuseHorizon, SegmentState};
use crate::{ControlError, ControlId, ControlReply, Engine, FormatError, Notice, Outbox, PoolPlan};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use windrow_layout::superblock::{Features, MAX_ZONES};
use windrow_units::{BLOCK_BYTES, FULL_BLOCK_UNITS, MAX_MEMBERS, MemberId, SegmentId, Zone, ZoneMap};

/// How far the data has moved to the layout in force. All zero if there was only one since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RestripeStatus {
    /// There are older layouts.
    pub active: bool,
    /// Segments of older layouts in which nothing is left.
    pub segments_done: u32,
    /// Segments of older layouts.
    pub segments_total: u32,
    /// Segments of older layouts that hold blocks which can not be read: they stay until these are overwritten or trimmed.
    pub segments_damaged: u32,
    /// Of those done, the ones since the start of the engine, or since the last grow if that is later.
    pub segments_since: u32,
    /// Milliseconds since then.
    pub active_ms: u64,
    /// Bytes of live blocks in the segments that were cleaned only to be striped anew, since the start of the engine.
    pub moved_bytes: u64,
}

/// A layout that is on its way into the superblock. Its new members bear no superblock yet. They get the one that is, in which they are spares,
/// before the one in which they are members is written to anybody: else a crash in between could leave more members without a superblock than the
/// redundancy covers. The first one is marked as growing: a start by it needs so many of the old members that nobody can start without them by the
/// second one.
#[derive(Debug)]
struct Coming {
    id: ControlId,
    members: Vec<MemberId>,
    zones: ZoneMap,
    stage: Stage,
    /// The stage is over when this wish is done.
    wish: u64,
}

/// What is to be done when a member has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterLoss {
    /// Its loss goes on record.
    Record,
    /// It is a spare again.
    Done,
    /// A start would refuse the pool with this on record, or might not be the only one.
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The new members get the superblock as it is, marked as growing.
    Introduce,
    /// The generation with the new layout is written, without the mark.
    Record,
    /// Too many members failed while it was, this one last: a generation without the new layout is written, marked as growing.
    TakeBack(MemberId),
}

/// What a look for victims depends on.
type Seen = (u32, u64, u64, u32);

/// State of restriping.
#[derive(Debug, Default)]
pub(crate) struct Restripe {
    coming: Option<Coming>,
    /// A generation with a layout that was taken back may be on devices out of our sight.
    dropped: bool,
    /// There are older layouts.
    active: bool,
    /// Segments to be emptied, the next one last.
    queue: Vec<SegmentId>,
    /// As it was when nothing was found.
    looked: Option<Seen>,
    /// Segments being emptied for restriping alone, with what is read of each member for it.
    victims: Vec<(SegmentId, u64)>,
    throttle: Throttle,
    /// Segments of older layouts in use when usable space was last reckoned, and when this began.
    planned_for: u32,
    left_at_begin: u32,
    began_ns: u64,
    ended_ns: u64,
    /// The checkpoint that was current when the last of them had come free.
    emptied_at: Option<u64>,
    moved_bytes: u64,
    total: u32,
    /// Bytes that maps may use if the pool is large enough.
    map_bytes_wanted: u64,
}

impl Restripe {
    /// True if nothing of it is under way that goes on by itself.
    pub(crate) fn is_idle(&self) -> bool {
        self.coming.is_none()
    }

    /// The pool has stopped: whose request is not answered any more.
    /// When it goes on after a pause.
    pub(crate) fn wake_at_ns(&self, now_ns: u64) -> Option<u64> {
        self.throttle.wake_at_ns(now_ns).filter(|_| self.active)
    }

    /// A victim has been emptied, or could not be.
    pub(crate) fn victim_ended(&mut self, segment: SegmentId, now_ns: u64) {
        if let Some(at) = self.victims.iter().position(|(victim, _)| *victim == segment) {
            let (_, bytes) = self.victims.swap_remove(at);
            self.throttle.end(now_ns, bytes);
        }
    }

    pub(crate) fn give_up_coming(&mut self) -> Option<ControlId> {
        self.coming.take().map(|coming| coming.id)
    }
}

impl Engine {
    /// After a start: `map_bytes_wanted` is what maps may use if the pool is large enough.
    pub(crate) fn settle_restripe(&mut self, map_bytes_wanted: u64) {
        self.restripe.map_bytes_wanted = map_bytes_wanted;
        self.restripe.dropped = self.superblock.is_growing();
        if self.zones.has_superseded() {
            self.begin_restripe();
            self.reckon_plan();
        }
    }

    fn begin_restripe(&mut self) {
        let layout = self.zones.layout();
        let older = self.segments.older_count();
        self.restripe.active = true;
        self.restripe.total = self.zones.zones().iter().filter(|z| z.layout != layout).map(|z| z.segments).sum();
        (self.restripe.left_at_begin, self.restripe.planned_for) = (older, older);
        (self.restripe.began_ns, self.restripe.ended_ns) = (self.now_ns, self.now_ns);
        (self.restripe.emptied_at, self.restripe.looked) = (None, None);
        self.restripe.queue.clear();
    }

    /// For `status`.
    pub(crate) fn restripe_status(&self) -> RestripeStatus {
        let (state, left) = (&self.restripe, self.segments.older_count());
        let damaged = |id: &SegmentId| self.segments.get(*id).state == SegmentState::Aside && !self.segments.waits_for_checkpoint(*id);
        let until = if state.active { self.now_ns } else { state.ended_ns };
        RestripeStatus {
            active: state.active,
            segments_done: state.total - left.min(state.total),
            segments_total: state.total,
            segments_damaged: self.segments.older().filter(damaged).count() as u32,
            segments_since: state.left_at_begin.saturating_sub(left),
            active_ms: until.saturating_sub(state.began_ns) / 1_000_000,
            moved_bytes: state.moved_bytes,
        }
    }

    /// Lays the pool out over further members.
    pub(crate) fn grow(&mut self, id: ControlId, members: Vec<MemberId>, out: &mut Outbox) -> Result<(), ControlError> {
        let in_use = self.members_to_grow(&members)?;
        let zones = self.grown_zones(&in_use)?;
        for member in &members {
            self.members.list[member.index()].online = true;
        }
        self.superblock.set_growing(true);
        self.superblock_writer.wanted += 1;
        self.restripe.coming = Some(Coming { id, members, zones, stage: Stage::Introduce, wish: self.superblock_writer.wanted });
        self.reckon_plan();
        self.superblock_step(out);
        Ok(())
    }

    /// Capacity is what [`Engine::plan_now`] says.
    fn reckon_plan(&mut self) {
        if let Ok(plan) = self.plan_now(self.superblock.properties.spare_per_mille) {
            self.take_plan(plan);
        }
    }

    /// All members that the pool is to use, with their sizes.
    fn members_to_grow(&self, added: &[MemberId]) -> Result<Vec<(MemberId, u64)>, ControlError> {
        let refused = |member, why: &str| Err(ControlError::Member { member, why: why.into() });
        if self.restripe.coming.is_some() {
            return Err(ControlError::Invalid("the pool is growing just now; try again".into()));
        }
        let old = self.zones.current().fold(0u64, |mask, zone| mask | zone.members);
        let new = added.iter().fold(0u64, |mask, member| mask | 1u64.checked_shl(u32::from(member.0)).unwrap_or(0));
        if added.is_empty() || new.count_ones() as usize != added.len() {
            return Err(ControlError::Invalid("a pool grows by one spare at least, each named once".into()));
        }
        for member in added {
            let Some(record) = self.superblock.members.get(member.index()) else { return refused(*member, "there is no such member") };
            if let life::Answer::Refused(why) = life::next(life::life(record), life::Change::Join) {
                return refused(*member, why);
            }
        }
        let mut members = Vec::with_capacity(MAX_MEMBERS);
        for member in (0..self.superblock.members.len() as u8).map(MemberId).filter(|m| (old | new) >> m.0 & 1 == 1) {
            let m = &self.members.list[member.index()];
            if old >> member.0 & 1 == 1 && (!m.online || m.rebuilding) {
                return refused(member, "it is not there or not whole: a pool grows when all its members are; replace it, or wait for its rebuild");
            }
            members.push((member, self.superblock.members[member.index()].size_bytes));
        }
        Ok(members)
    }

    /// The zones that there are, and a layout of the next number over these members.
    fn grown_zones(&self, members: &[(MemberId, u64)]) -> Result<ZoneMap, ControlError> {
        let refuse = |error: FormatError| ControlError::Invalid(error.to_string());
        let old = self.zones.zones();
        let start = old.iter().map(|z| z.start).min().unwrap_or_default();
        let shape = old[0].shape;
        let mut layout = Layout {
            redundancy: self.superblock.redundancy,
            segment_rows: shape.rows,
            chunk_rows: shape.chunk_rows,
            start,
            first_segment: 0,
            number: self.zones.layout() + 1,
            members,
        };
        let wanted: u32 = lay_out(&layout).map_err(refuse)?.iter().map(|z| z.segments).sum();
        layout.first_segment = free_numbers(old, wanted);
        let new = lay_out(&layout).map_err(refuse)?;
        let end = new.last().map_or(0, Zone::end_segment);
        let fits = new.iter().all(|z| self.codec.fits(z.shape.data_blocks()));
        if u64::from(end) > self.codec.max_segments() || end < layout.first_segment + wanted || !fits {
            return Err(ControlError::NoSpace(format!(
                "the pool's places can name {} segments of up to {} blocks: too few for this layout",
                self.codec.max_segments(),
                self.codec.max_segment_blocks()
            )));
        }
        if old.len() + new.len() > MAX_ZONES {
            return Err(ControlError::NoSpace("the pool has too many zones of different layouts: wait until the last growth is done".into()));
        }
        let mut zones: Vec<Zone> = old.iter().chain(&new).cloned().collect();
        zones.sort_by_key(|z| z.first_segment);
        let zones = ZoneMap::new(zones);
        let target = plan_zones(&zones, self.superblock.properties.spare_per_mille, self.kept_for_sharing()).map_err(refuse)?;
        if target.usable_bytes <= self.plan.usable_bytes {
            return Err(ControlError::Invalid("the pool would not have more usable space: the new members are too small".into()));
        }
        if self.volumes.used_blocks * BLOCK_BYTES > self.plan_over(&zones, self.superblock.properties.spare_per_mille).map_err(refuse)?.usable_bytes {
            return Err(ControlError::NoSpace("the pool is too full to hold the tables of two layouts; trim or delete something first".into()));
        }
        Ok(zones)
    }

    /// Capacity when nothing of `zones` may be used yet but what may be now. Wider segments bring payload, and payload map pages, which cost small segments
    /// of the reserve: where a larger map costs more than it brings, as many pages as there may be already will do.
    fn plan_over(&self, zones: &ZoneMap, spare_per_mille: u16) -> Result<PoolPlan, FormatError> {
        let holdings = self.segments.holdings(&self.zones);
        let plan = |pages| plan_holdings(&holdings, zones, spare_per_mille, self.kept_for_sharing(), pages);
        match (plan(u64::MAX), plan(self.plan.map_pages_max)) {
            (Ok(large), Ok(small)) if small.usable_bytes > large.usable_bytes => Ok(small),
            (Err(_), Ok(small)) => Ok(small),
            (large, _) => large,
        }
    }

    /// Capacity now: of the segments that may be used, and never less than the oldest layout had alone. While a layout is on its way, no more than
    /// there will be at the moment in which it comes into force.
    pub(crate) fn plan_now(&self, spare_per_mille: u16) -> Result<PoolPlan, FormatError> {
        let mut plan = self.plan_in_force(spare_per_mille)?;
        if let Some(coming) = self.restripe.coming.as_ref().filter(|coming| matches!(coming.stage, Stage::Introduce | Stage::Record)) {
            let then = self.plan_over(&coming.zones, spare_per_mille)?;
            plan.usable_bytes = plan.usable_bytes.min(then.usable_bytes);
            plan.map_bytes = plan.map_bytes.min(then.map_bytes);
            plan.index_pages = plan.index_pages.min(then.index_pages);
            plan.map_pages_max = plan.map_pages_max.min(then.map_pages_max);
            plan.checkpoint_segments = plan.checkpoint_segments.max(then.checkpoint_segments);
            plan.reserve_segments = plan.reserve_segments.max(then.reserve_segments);
        }
        Ok(plan)
    }

    fn plan_in_force(&self, spare_per_mille: u16) -> Result<PoolPlan, FormatError> {
        let target = plan_zones(&self.zones, spare_per_mille, self.kept_for_sharing())?;
        if !self.zones.has_superseded() {
            return Ok(target);
        }
        let oldest = self.zones.zones().iter().map(|z| z.layout).min().unwrap_or_default();
        let of_oldest = self.zones.zones().iter().filter(|z| z.layout == oldest);
        let before: Vec<Holding> = of_oldest.map(|z| Holding { shape: z.shape, segments: z.segments }).collect();
        let before = plan_holdings(&before, &self.zones, spare_per_mille, self.kept_for_sharing(), u64::MAX);
        let best = self.plan_over(&self.zones, spare_per_mille).into_iter().chain(before).max_by_key(|plan| plan.usable_bytes);
        let mut plan = best.unwrap_or_else(|| target.clone());
        plan.usable_bytes = plan.usable_bytes.min(target.usable_bytes);
        (plan.map_bytes, plan.index_pages) = (plan.map_bytes.min(target.map_bytes), plan.index_pages.min(target.index_pages));
        Ok(plan)
    }

    /// True if blocks may share content.
    pub(crate) fn shares(&self) -> bool {
        self.superblock.features.incompatible & Features::SHARED != 0
    }

    /// The pool has this capacity from now on.
    pub(crate) fn take_plan(&mut self, plan: PoolPlan) {
        self.checkpoint.set_plan(&plan);
        self.limits.map_bytes = self.restripe.map_bytes_wanted.min(plan.map_pages_max * BLOCK_BYTES);
        self.volumes.arena.set_max_bytes(self.limits.map_bytes);
        self.plan = plan;
    }

    /// Goes on with growing and restriping.
    pub(crate) fn restripe_step(&mut self, out: &mut Outbox) {
        self.coming_step(out);
        if !self.restripe.active || self.read_only || self.stopped.is_some() {
            return;
        }
        let left = self.segments.older_count();
        if left != self.restripe.planned_for {
            self.restripe.planned_for = left;
            // Rounding may take a segment more of the reserve than a step brought: what was reckoned before stays true.
            let plan = self.plan_now(self.superblock.properties.spare_per_mille);
            if let Some(plan) = plan.ok().filter(|plan| plan.usable_bytes >= self.plan.usable_bytes) {
                self.take_plan(plan);
            }
        }
        if self.control.shutting_down() {
            return;
        }
        if left == 0 {
            return self.end_restripe(out);
        }
        self.take_older_victims();
        self.hurry_restripe();
        self.leave_older(out);
    }

    /// When only the segments that streams hold are left, streams that have nothing to write leave them: what was promised is given back, and the
    /// rest of what is open is filled with empty batches.
    fn leave_older(&mut self, out: &mut Outbox) {
        let held = |id: SegmentId| matches!(self.segments.get(id).state, SegmentState::Open | SegmentState::Reserved);
        if self.cleaner.victim_count() > 0 || !self.segments.older().all(held) {
            return;
        }
        let layout = self.zones.layout();
        if self.admission.unsealed_units == 0 {
            let reserved = std::mem::take(&mut self.stream_mut(STREAM_USER).reserved);
            let (keep, older): (VecDeque<_>, VecDeque<_>) = reserved.into_iter().partition(|id| self.zones.zone(*id).layout == layout);
            let stream = self.stream_mut(STREAM_USER);
            stream.position.next_segment = keep.front().copied().unwrap_or(SegmentId::NONE);
            stream.reserved = keep;
            older.into_iter().for_each(|id| self.segments.give_back(id));
            self.ensure_next_segment();
        }
        for id in STREAMS {
            let s = self.stream(id);
            let busy = match id {
                STREAM_USER => self.admission.unsealed_units > 0 || !self.admission.is_idle(),
                STREAM_CLEANED => self.has_moves() || self.has_repairs(),
                STREAM_CHECKPOINT => !self.checkpoint.is_idle(),
                _ => false,
            };
            let older = self.zones.contains(s.position.segment) && self.zones.zone(s.position.segment).layout != layout;
            if older && !busy && s.open.is_empty() && s.in_flight.is_empty() {
                self.seal_empty(id, out);
            }
        }
    }

    /// Goes on with bringing a new layout into force.
    fn coming_step(&mut self, out: &mut Outbox) {
        let done = self.superblock_writer.done;
        let Some(coming) = self.restripe.coming.take_if(|coming| coming.wish <= done) else { return self.end_growing(out) };
        match coming.stage {
            Stage::Introduce => self.record_layout(coming, out),
            Stage::Record => {
                control_answer(coming.id, Ok(ControlReply::Done), out);
                self.take_layout(coming.zones, out);
            }
            Stage::TakeBack(member) => self.refuse_layout(coming.id, member, out),
        }
    }

    /// No growth is under way, and a generation that says so is in force: the mark goes, unless a pool with the layout that was taken back could
    /// start without the members in use.
    fn end_growing(&mut self, out: &mut Outbox) {
        let idle = self.restripe.coming.is_none() && self.superblock.is_growing() && !self.read_only && self.stopped.is_none();
        if idle && (!self.restripe.dropped || self.nobody_without_us()) {
            self.restripe.dropped = false;
            self.superblock.set_growing(false);
            self.superblock_writer.wanted += 1;
            self.superblock_step(out);
        }
    }

    /// True if a pool with these zones, and any others beside them, can not start without the members in use.
    fn nobody_without_us(&self) -> bool {
        let in_use = |m: &usize| self.members.list[*m].online && self.superblock.members[*m].is_in_use();
        let in_use = (0..self.members.list.len()).filter(in_use).fold(0u64, |mask, m| mask | 1 << m);
        nobody_without(self.zones.zones(), in_use)
    }

    /// The pool does not grow, because of this member.
    fn refuse_layout(&mut self, id: ControlId, member: MemberId, out: &mut Outbox) {
        self.reckon_plan();
        let why = "it failed or was used otherwise while the pool was about to grow".into();
        control_answer(id, Err(ControlError::Member { member, why }), out);
    }

    /// A member has left. If more have than the redundancy covers while a layout is put on record, the layout is taken back: nothing was written by
    /// it, and the pool must not depend on members that may be gone for good.
    pub(crate) fn after_loss(&mut self, member: MemberId, out: &mut Outbox) -> AfterLoss {
        let list = &self.members.list;
        let too_many = |coming: &mut Coming| coming.stage == Stage::Record && !redundancy_holds(&coming.zones, list);
        let Some(mut coming) = self.restripe.coming.take_if(too_many) else {
            // (A pool with the layout that is being taken back must not be able to go on without us.)
            let takes_back = self.restripe.coming.as_ref().is_some_and(|coming| matches!(coming.stage, Stage::TakeBack(_)));
            return if takes_back && !self.nobody_without_us() { AfterLoss::Stop } else { AfterLoss::Record };
        };
        if !redundancy_holds(&self.zones, list) || !self.nobody_without_us() {
            self.restripe.coming = Some(coming);
            return AfterLoss::Stop;
        }
        for new in &coming.members {
            (self.members.list[new.index()].online, self.members.list[new.index()].rebuilding) = (false, false);
            let changed = self.change_member(*new, life::Change::Leave);
            debug_assert_eq!(changed, Ok(()));
        }
        let is_new = coming.members.contains(&member);
        self.restripe.dropped = true;
        self.superblock.zones = self.zones.zones().to_vec();
        // Until this is in force on all that are left, somebody may hold the generation with the new layout.
        self.superblock.set_growing(true);
        self.superblock_writer.wanted += 1;
        (coming.stage, coming.wish) = (Stage::TakeBack(member), self.superblock_writer.wanted);
        self.restripe.coming = Some(coming);
        self.reckon_plan();
        self.superblock_step(out);
        if is_new { AfterLoss::Done } else { AfterLoss::Record }
    }

    /// The new members are introduced: now they become members.
    fn record_layout(&mut self, coming: Coming, out: &mut Outbox) {
        // What failed meanwhile does not come in, and with a member lost the pool does not grow.
        let mut members = (0..self.members.list.len() as u8).map(MemberId).filter(|m| coming.zones.current().any(|zone| zone.members >> m.0 & 1 == 1));
        let is_spare = |m: &MemberId| life::life(&self.superblock.members[m.index()]) == life::Life::Spare;
        let lost = members.find(|m| !self.is_online(*m) || (coming.members.contains(m) && !is_spare(m)));
        if let Some(member) = lost {
            for member in coming.members.iter().filter(|m| !self.superblock.members[m.index()].is_in_use()) {
                self.members.list[member.index()].online = false;
            }
            return self.refuse_layout(coming.id, member, out);
        }
        for member in &coming.members {
            let changed = self.change_member(*member, life::Change::Join);
            debug_assert_eq!(changed, Ok(()));
        }
        self.superblock.zones = coming.zones.zones().to_vec();
        self.superblock.set_growing(false);
        self.superblock_writer.wanted += 1;
        self.restripe.coming = Some(Coming { stage: Stage::Record, wish: self.superblock_writer.wanted, ..coming });
        self.superblock_step(out);
    }

    /// The superblock with the new layout is in force.
    fn take_layout(&mut self, zones: ZoneMap, out: &mut Outbox) {
        self.zones = zones;
        self.segments.lay_over(&self.zones);
        self.begin_restripe();
        let chunk = self.zones.zones().iter().map(|z| u64::from(z.shape.chunk_rows) * u64::from(z.shape.data) * BLOCK_BYTES).max().unwrap_or(0);
        self.limits.pending_bytes = self.limits.pending_bytes.max(4 * chunk);
        self.reckon_plan();
        let members = self.zones.current().fold(0, |mask, zone| mask | zone.members).count_ones();
        out.notices.push(Notice::Grown { members, segments: self.segments.older_count() });
        // Whoever failed meanwhile was few enough.
        debug_assert!(redundancy_holds(&self.zones, &self.members.list));
        self.ensure_next_segment();
    }

    /// Begins to empty segments of older layouts, if cleaning has nothing more urgent to do.
    fn take_older_victims(&mut self) {
        // (One that can not go on for damage waits for its segments to be emptied, perhaps just by this.)
        while self.rebuild.is_idle() && self.cleaner.victim_count() < RESTRIPE_VICTIMS && self.is_clean_enough() && self.has_room_to_restripe() {
            if !self.restripe.throttle.may_begin(self.now_ns, &self.users) {
                return;
            }
            let Some(segment) = self.next_older() else { return };
            let bytes = u64::from(self.segments.get(segment).live_units / u32::from(FULL_BLOCK_UNITS)) * BLOCK_BYTES;
            self.restripe.moved_bytes += bytes;
            let of_each = bytes / u64::from(self.zones.shape(segment).data);
            let properties = &self.superblock.properties;
            let (bound, floor) = (time_at(of_each, properties.rebuild_rate), time_at(of_each, properties.rebuild_rate_min));
            self.restripe.throttle.begin(self.now_ns, of_each, bound, floor);
            self.restripe.victims.push((segment, of_each));
            self.begin_victim(segment);
        }
    }

    /// Each victim may need a segment for its moves before it gives one back, and users keep theirs.
    fn has_room_to_restripe(&self) -> bool {
        self.segments.free_count() > self.floor(STREAM_USER) + self.cleaner.victim_count()
    }

    /// A candidate of an older layout, taken out of the candidates.
    fn next_older(&mut self) -> Option<SegmentId> {
        loop {
            match self.restripe.queue.pop() {
                Some(segment) if self.segments.take_candidate(segment) => return Some(segment),
                Some(_) => continue,
                None => {}
            }
            let seen = (self.segments.older_count(), self.checkpoint.kept_oldest, self.counters.segments_cleaned, self.segments.dead_count());
            if self.restripe.looked == Some(seen) {
                return None;
            }
            self.restripe.looked = Some(seen);
            // Where new segments wait for several old ones, neighbours go together.
            let rotates = |id: SegmentId| self.zones.zone(id).member_count() > usize::from(self.zones.shape(id).width);
            let key = |id: &SegmentId| std::cmp::Reverse(if self.rotating() || rotates(*id) { id.0 } else { self.segments.get(*id).live_units });
            let mut queue: Vec<SegmentId> = self.segments.older().filter(|id| self.segments.is_candidate(*id)).collect();
            queue.sort_by_key(key);
            self.restripe.queue = queue;
            if self.restripe.queue.is_empty() {
                return None;
            }
        }
    }

    fn rotating(&self) -> bool {
        self.zones.current().any(|z| z.member_count() > usize::from(z.shape.width))
    }

    /// Hurries what keeps old segments from being free: a flush if several wait for it or nothing else can be done, a checkpoint in the
    /// latter case only.
    fn hurry_restripe(&mut self) {
        let pauses = self.restripe.throttle.wake_at_ns(self.now_ns).is_some();
        let working = pauses || (self.cleaner.victim_count() > 0 && self.has_room_to_restripe());
        let waiting = self.segments.dead_count() - self.segments.dead_in_replay_count();
        if waiting > 0 && (!working || waiting >= RESTRIPE_VICTIMS * 2) {
            let written = ReuseHorizon {
                durable: self.orders.committed(),
                durable_cleaned: self.moves_committed_through(),
                oldest_checkpoint: self.checkpoint.kept_oldest,
            };
            self.flush.wanted |= self.segments.flush_would_free(&written);
        }
        if self.cleaner.victim_count() == 0 && self.restripe.queue.is_empty() && self.checkpoint.is_idle() {
            let waits = self.segments.older().any(|id| self.segments.waits_for_checkpoint(id));
            if waits {
                self.checkpoint.request();
            }
        }
    }

    /// Nothing is in use in older layouts: their zones go when no kept checkpoint can name their segments.
    fn end_restripe(&mut self, out: &mut Outbox) {
        let emptied_at = *self.restripe.emptied_at.get_or_insert(self.checkpoint.current());
        if self.checkpoint.kept_oldest <= emptied_at {
            if self.checkpoint.is_idle() {
                self.checkpoint.request();
            }
            return;
        }
        if self.restripe.coming.is_some() {
            return;
        }
        self.zones = ZoneMap::new(self.zones.current().cloned().collect());
        self.superblock.zones = self.zones.zones().to_vec();
        self.segments.lay_over(&self.zones);
        self.restripe.active = false;
        self.restripe.ended_ns = self.now_ns;
        self.reckon_plan();
        out.notices.push(Notice::Restriped);
        self.superblock_writer.wanted += 1;
        self.superblock_step(out);
    }
}

/// The first of so many numbers that no segment of these zones has.
fn free_numbers(zones: &[Zone], wanted: u32) -> u32 {
    let mut end = 0;
    for zone in zones {
        if zone.first_segment - end >= wanted {
            break;
        }
        end = zone.end_segment();
    }
    end
}
