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
use super::room::{EDGE_UNITS, RECORD_UNITS};
use crate::limits::{CLEANED_STREAMS, LAST_SEGMENTS, STREAM_CHECKPOINT, STREAM_USER};
use crate::{Engine, Notice, Outbox};
use windrow_io::{Op, RequestError};

impl Engine {
    /// True if data is refused because there are no segments.
    pub(crate) fn is_refusing_data(&self) -> bool {
        self.admission.exhausted.is_some() && !self.pool.closing.is_under_way()
    }

    /// Admits data again once the user streams have all their segments and one more is free.
    pub(super) fn note_room(&mut self) {
        if self.admission.exhausted.is_some()
            && self.space.segments.free_count() > self.floor(STREAM_USER)
        {
            self.admission.exhausted = None;
        }
    }

    /// Refuses the first waiting request if it holds data and data is refused. True if it was
    /// refused.
    pub(super) fn refuses_next(&mut self, out: &mut Outbox) -> bool {
        let is_data = |arrived: &Arrived| matches!(arrived.request.op, Op::Write { .. });
        if self.admission.exhausted.is_none()
            || !self.admission.waiting.front().is_some_and(is_data)
        {
            return false;
        }
        self.refuse_next(out);
        true
    }

    fn refuse_next(&mut self, out: &mut Outbox) {
        if let Some(Arrived { request, .. }) = self.admission.waiting.pop_front() {
            self.observe.counters.refused_space += 1;
            out.fail(request.id, RequestError::NoSpace);
        }
    }

    /// Refuses RMW writes of data whose edges have been read. True if there was one.
    pub(super) fn refuse_rmw_data(&mut self, out: &mut Outbox) -> bool {
        self.admission.exhausted.is_some() && self.refuse_rmw_writes(RmwChange::is_data, out)
    }

    /// Resolves exhaustion: refuses waiting data and lends a segment to other requests. True if
    /// that unblocked a request.
    pub(crate) fn relieve_exhausted(&mut self, out: &mut Outbox) -> bool {
        let room = self.room_units();
        let users_wait = (!self.admission.waiting.is_empty() || self.admission.is_held_up())
            && room < EDGE_UNITS + self.room_for_index_pages();
        let volumes_wait = self.admission.commands.volumes_wait() && room == 0;
        if !(users_wait || volumes_wait) || !self.nothing_comes_free() {
            return false;
        }
        if self.admission.exhausted.is_none() {
            self.admission.exhausted = Some(self.durability.lsns.committed());
            out.notices.push(Notice::Exhausted {
                segments: self.space.segments.quarantined_for_damage_count(),
            });
        }
        // No short-circuit: all three are refused.
        let is_refused =
            self.refuse_rmw_data(out) | self.refuses_next(out) | self.refuse_chunked(out);
        // A checkpoint leaves one segment for the moves of a victim.
        let kept = match self.space.segments.quarantined_for_damage_count() {
            0 => 1,
            _ if volumes_wait && self.admission.commands.deletes_wait() => LAST_SEGMENTS,
            _ => self.durability.checkpoint.reserve_segments() + 1,
        };
        is_refused || self.lend_segment(kept) || self.refuse_all(out)
    }

    /// Refuses all waiting requests: no segment is left to lend. True if there was one.
    fn refuse_all(&mut self, out: &mut Outbox) -> bool {
        let is_any = self.refuse_rmw_writes(|_| true, out) | !self.admission.waiting.is_empty();
        while !self.admission.waiting.is_empty() {
            self.refuse_next(out);
        }
        is_any
            | (self.room_units() == 0
                && self
                    .admission
                    .commands
                    .refuse_volumes(self.space.segments.what_takes_the_space(), out))
    }

    /// True if nothing in flight may free a segment.
    fn nothing_comes_free(&self) -> bool {
        let has_damage = self.space.segments.quarantined_for_damage_count() > 0;
        self.space.segments.free_count() <= self.floor(STREAM_USER)
            && self.space.segments.coming_count() == 0
            && !self.space.cleaner.cleaning_goes_on()
            && self.admission.placing.is_empty()
            && self.users_are_written()
            && !self.durability.flush.is_under_way()
            && !(self.durability.checkpoint.is_requested()
                && self.durability.checkpoint.is_idle()
                && self.durability.is_settled_after_start())
            && !self.map.ranges.has_walks()
            && if has_damage {
                self.nothing_is_moved() && self.checkpoint_rests()
            } else {
                self.nothing_is_in_flight()
            }
    }

    fn nothing_is_moved(&self) -> bool {
        self.space.cleaner.is_idle()
            && CLEANED_STREAMS.iter().all(|id| {
                self.log.stream(*id).open.is_empty() && self.log.stream(*id).in_flight.is_empty()
            })
    }

    /// True if no command, job or batch is in flight: remaining moves and a checkpoint wait for
    /// segments.
    fn nothing_is_in_flight(&self) -> bool {
        self.drives.members.commands_have_ended()
            && self.reads.fetches.is_empty()
            && self.integrity.verifications.is_empty()
            && !self.space.cleaner.has_reads()
            && self
                .log
                .streams
                .iter()
                .all(|stream| stream.in_flight.is_empty())
            && self.durability.superblock_writer.has_recorded_all()
            && self.checkpoint_rests()
    }

    /// True if no checkpoint is being written, or it waits for a segment that it cannot get.
    fn checkpoint_rests(&self) -> bool {
        self.durability.checkpoint.is_idle()
            || (self.durability.checkpoint.wants_segment()
                && self.space.segments.free_count() <= self.floor(STREAM_CHECKPOINT))
    }

    /// True if a shutdown waits for a checkpoint that gets no segment, and nothing can free one.
    pub(crate) fn has_no_room_to_end(&self) -> bool {
        self.durability.checkpoint.wants_segment()
            && self.admission.is_idle()
            && self.reads.reads.is_empty()
            && self.nothing_comes_free()
    }

    /// Refuses changes whose edges are read. True if there was one.
    fn refuse_rmw_writes(&mut self, which: impl Fn(&RmwChange) -> bool, out: &mut Outbox) -> bool {
        let (refused, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.admission.rmw_ready)
            .into_iter()
            .partition(which);
        self.admission.rmw_ready = others.into();
        let is_any = !refused.is_empty();
        for write in refused {
            self.observe.counters.refused_space += 1;
            self.admission.release(write.span());
            out.fail(write.id(), RequestError::NoSpace);
        }
        is_any
    }

    /// Ends a write in chunked admission. The log must record that its last LSNs are unused. A
    /// segment is always left for that, as no other such write begins before there is room.
    fn refuse_chunked(&mut self, out: &mut Outbox) -> bool {
        if self.admission.chunked.is_none()
            || (self.room_units() < RECORD_UNITS && !self.lend_segment(0))
        {
            return false;
        }
        if self.room_units() >= RECORD_UNITS
            && let Some(chunked) = self.admission.chunked.take()
        {
            self.observe.counters.refused_space += 1;
            self.abort_chunked(chunked, RequestError::NoSpace, out);
        }
        true
    }

    /// Lends the user stream a segment below its floor, if more than `least` are free.
    fn lend_segment(&mut self, least: u32) -> bool {
        self.space.segments.free_count() > least && self.take_ahead()
    }
}
