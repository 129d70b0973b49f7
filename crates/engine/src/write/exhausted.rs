//! A pool in which damage prevents all progress of reclaim.
//!
//! Admitted data can always be sealed, and cleaning frees space (invariant 7), as long as live data
//! can be moved. Segments with unreadable blocks keep the space of the data moved out of them
//! (`clean/damage.rs`). With enough of them in a nearly full pool nothing frees space any more. A
//! request that waits for room would wait for ever, and trims, deletes and the shutdown after it.
//! From then on, until the user streams have all the segments they should have and one more:
//!
//! 1. *Data is refused*, both waiting and new. A write in chunked admission ends in the same error;
//!    its admitted chunks stay.
//! 2. *Trims, writes of zeroes and changes of volumes* get the last segments above those that the
//!    next checkpoint may need, so that clients can make room. When these are used up they are
//!    refused as well: no request waits for ever. The delete of a volume may take almost the last
//!    segment, because the space it frees needs no checkpoint. So there is always a way out.
//!
//! The state is not entered while anything in flight may free a segment: victims, moves, flushes,
//! checkpoints, discards, walks over the map, or dead segments that wait for any of these.
//! `clean/force.rs` ends cleaning and checkpoints that free nothing.
//!
//! **Without damage** the reserve excludes this state (docs/internals/reserve.md), and the
//! simulator treats it as a violation. If it occurs all the same, the pool reports it and continues
//! as far as it can. Data is refused, reads are answered, trims and changes of volumes get the
//! segments of `RELIEF_RESERVE` (`limits.rs`), and a shutdown ends without a last checkpoint.

use super::Arrived;
use super::rmw::RmwChange;
use crate::components::{Core, Paths, Store, Upkeep};
use crate::limits::{CLEANED_STREAMS, LAST_SEGMENTS, STREAM_CHECKPOINT, STREAM_USER};
use crate::plan::{EDGE_UNITS, RECORD_UNITS};
use crate::{Notice, Outbox};
use windrow_io::{Op, RequestError};

impl Paths {
    /// True if data is refused because there are no segments.
    pub(crate) fn is_refusing_data(&self, store: &Store) -> bool {
        self.admission.exhausted.is_some() && !store.pool.closing.is_under_way()
    }

    /// Admits data again once the user streams have all their segments and one more is free.
    pub(super) fn note_room(&mut self, store: &mut Store) {
        if self.admission.exhausted.is_some()
            && store.segments.free_count() > self.floor(STREAM_USER, store)
        {
            self.admission.exhausted = None;
        }
    }

    /// Refuses the first waiting request if it holds data and data is refused. True if it was
    /// refused.
    pub(super) fn refuses_next(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
        let is_data = |arrived: &Arrived| matches!(arrived.request.op, Op::Write { .. });
        if self.admission.exhausted.is_none()
            || !self.admission.waiting.front().is_some_and(is_data)
        {
            return false;
        }
        self.refuse_next(store, out);
        true
    }

    fn refuse_next(&mut self, store: &mut Store, out: &mut Outbox) {
        if let Some(Arrived { request, .. }) = self.admission.waiting.pop_front() {
            store.observe.counters.refused_space += 1;
            out.fail(request.id, RequestError::NoSpace);
        }
    }

    /// Refuses RMW writes of data whose edges have been read. True if there was one.
    pub(super) fn refuse_rmw_data(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
        self.admission.exhausted.is_some() && self.refuse_rmw_writes(RmwChange::is_data, store, out)
    }
}

impl Upkeep {
    /// Resolves exhaustion: refuses waiting data and lends a segment to other requests. True if
    /// that unblocked a request.
    pub(crate) fn relieve_exhausted(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        let room = core.paths.room_units(&core.store);
        let users_wait = (!core.paths.admission.waiting.is_empty()
            || core.paths.admission.is_held_up())
            && room < EDGE_UNITS + core.paths.room_for_index_pages();
        let volumes_wait = core.paths.admission.commands.volumes_wait() && room == 0;
        if !(users_wait || volumes_wait) || !self.nothing_comes_free(core) {
            return false;
        }
        if core.paths.admission.exhausted.is_none() {
            core.paths.admission.exhausted = Some(core.paths.durability.lsns.committed());
            out.notices.push(Notice::Exhausted {
                segments: core.store.segments.quarantined_for_damage_count(),
            });
        }
        // No short-circuit: all three are refused.
        let is_refused = core.paths.refuse_rmw_data(&mut core.store, out)
            | core.paths.refuses_next(&mut core.store, out)
            | core.paths.refuse_chunked(&mut core.store, out);
        // A checkpoint leaves one segment for the moves of a victim.
        let kept = match core.store.segments.quarantined_for_damage_count() {
            0 => 1,
            _ if volumes_wait && core.paths.admission.commands.deletes_wait() => LAST_SEGMENTS,
            _ => core.paths.durability.checkpoint.reserve_segments() + 1,
        };
        is_refused
            || core.paths.lend_segment(kept, &mut core.store)
            || core.paths.refuse_all(&mut core.store, out)
    }
}

impl Paths {
    /// Refuses all waiting requests: no segment is left to lend. True if there was one.
    fn refuse_all(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
        let is_any =
            self.refuse_rmw_writes(|_| true, store, out) | !self.admission.waiting.is_empty();
        while !self.admission.waiting.is_empty() {
            self.refuse_next(store, out);
        }
        is_any
            | (self.room_units(store) == 0
                && self
                    .admission
                    .commands
                    .refuse_volumes(store.segments.what_takes_the_space(), out))
    }
}

impl Upkeep {
    /// True if nothing in flight may free a segment.
    fn nothing_comes_free(&self, core: &Core) -> bool {
        let has_damage = core.store.segments.quarantined_for_damage_count() > 0;
        core.store.segments.free_count() <= core.paths.floor(STREAM_USER, &core.store)
            && core.store.segments.coming_count() == 0
            && !core.paths.space.cleaner.cleaning_goes_on()
            && core.paths.admission.placing.is_empty()
            && core.paths.users_are_written(&core.store)
            && !core.paths.durability.flush.is_under_way()
            && !(core.paths.durability.checkpoint.is_requested()
                && core.paths.durability.checkpoint.is_idle()
                && core.paths.durability.is_settled_after_start())
            && !core.paths.ranges.has_walks()
            && if has_damage {
                core.paths.nothing_is_moved(&core.store) && core.paths.checkpoint_rests(&core.store)
            } else {
                self.nothing_is_in_flight(core)
            }
    }
}

impl Paths {
    fn nothing_is_moved(&self, _store: &Store) -> bool {
        self.space.cleaner.is_idle()
            && CLEANED_STREAMS.iter().all(|id| {
                self.log.stream(*id).open.is_empty() && self.log.stream(*id).in_flight.is_empty()
            })
    }
}

impl Upkeep {
    /// True if no command, job or batch is in flight: remaining moves and a checkpoint wait for
    /// segments.
    fn nothing_is_in_flight(&self, core: &Core) -> bool {
        core.store.drives.members.commands_have_ended()
            && core.store.reads.fetches.is_empty()
            && self.integrity.verifications.is_empty()
            && !core.paths.space.cleaner.has_reads()
            && core
                .paths
                .log
                .streams
                .iter()
                .all(|stream| stream.in_flight.is_empty())
            && core.store.drives.superblock_writer.has_recorded_all()
            && core.paths.checkpoint_rests(&core.store)
    }
}

impl Paths {
    /// True if no checkpoint is being written, or it waits for a segment that it cannot get.
    fn checkpoint_rests(&self, store: &Store) -> bool {
        self.durability.checkpoint.is_idle()
            || (self.durability.checkpoint.wants_segment()
                && store.segments.free_count() <= self.floor(STREAM_CHECKPOINT, store))
    }
}

impl Upkeep {
    /// True if a shutdown waits for a checkpoint that gets no segment, and nothing can free one.
    pub(crate) fn has_no_room_to_end(&self, core: &Core) -> bool {
        core.paths.durability.checkpoint.wants_segment()
            && core.paths.admission.is_idle()
            && core.paths.user_reads.is_empty()
            && self.nothing_comes_free(core)
    }
}

impl Paths {
    /// Refuses changes whose edges are read. True if there was one.
    fn refuse_rmw_writes(
        &mut self,
        which: impl Fn(&RmwChange) -> bool,
        store: &mut Store,
        out: &mut Outbox,
    ) -> bool {
        let (refused, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.admission.rmw_ready)
            .into_iter()
            .partition(which);
        self.admission.rmw_ready = others.into();
        let is_any = !refused.is_empty();
        for write in refused {
            store.observe.counters.refused_space += 1;
            self.admission.release(write.span());
            out.fail(write.id(), RequestError::NoSpace);
        }
        is_any
    }

    /// Ends a write in chunked admission. The log must record that its last LSNs are unused. A
    /// segment is always left for that, as no other such write begins before there is room.
    fn refuse_chunked(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
        if self.admission.chunked.is_none()
            || (self.room_units(store) < RECORD_UNITS && !self.lend_segment(0, store))
        {
            return false;
        }
        if self.room_units(store) >= RECORD_UNITS
            && let Some(chunked) = self.admission.chunked.take()
        {
            store.observe.counters.refused_space += 1;
            self.abort_chunked(chunked, RequestError::NoSpace, store, out);
        }
        true
    }

    /// Lends the user stream a segment below its floor, if more than `least` are free.
    fn lend_segment(&mut self, least: u32, store: &mut Store) -> bool {
        store.segments.free_count() > least && self.take_ahead(store)
    }
}
