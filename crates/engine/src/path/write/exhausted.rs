//! A pool in which damage prevents all progress of reclaim.
//!
//! Admitted data can always be sealed, and cleaning frees space (invariant 7), as long as live data
//! can be moved. Segments with unreadable blocks keep the space of the data moved out of them
//! (`upkeep/clean/damage.rs`). With enough of them in a nearly full pool nothing frees space any
//! more. A request that waits for room would wait for ever, and trims, deletes and the shutdown
//! after it. From then on, until the user streams have all the segments they should have and one
//! more:
//!
//! 1. *Data is refused*, both waiting and new. A write in chunked admission ends in the same error;
//!    its admitted chunks stay.
//! 2. *Trims, writes of zeroes and changes of volumes* get the last segments above those that the
//!    next checkpoint may need, so that clients can make room. When these are used up they are
//!    refused as well: no request waits for ever. The delete of a volume may take almost the last
//!    segment, because the space it frees needs no checkpoint. So there is always a way out.
//!
//! `upkeep/exhausted.rs` does not enter the state while anything in flight may free a segment:
//! victims, moves, flushes, checkpoints, discards, walks over the map, or dead segments that wait
//! for any of these. `upkeep/clean/force.rs` ends cleaning and checkpoints that free nothing.
//!
//! **Without damage** the reserve excludes this state (docs/internals/reserve.md), and the
//! simulator treats it as a violation. If it occurs all the same, the pool reports it and continues
//! as far as it can. Data is refused, reads are answered, trims and changes of volumes get the
//! segments of `RELIEF_RESERVE` (`base/limits.rs`), and a shutdown ends without a last checkpoint.

use super::rmw::RmwChange;
use super::{Admission, Arrived};
use crate::base::limits::{CLEANED_STREAMS, STREAM_CHECKPOINT, STREAM_USER};
use crate::path::Paths;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::plan::RECORD_UNITS;
use windrow_io::{Op, RequestError};
use windrow_types::Lsn;

impl Admission {
    /// Begins to refuse data; `committed`: the last committed LSN. False if it is refused already.
    pub(crate) fn begin_refusing(&mut self, committed: Lsn) -> bool {
        let begins = self.exhausted.is_none();
        if begins {
            self.exhausted = Some(committed);
        }
        begins
    }
}

impl Paths {
    /// True if data is refused because there are no segments.
    pub(crate) fn is_refusing_data(&self, store: &Store) -> bool {
        self.admission.exhausted.is_some() && !store.pool.closing.is_under_way()
    }

    /// Admits data again once the user streams have all their segments and one more is free.
    pub(crate) fn note_room(&mut self, store: &mut Store) {
        if self.admission.exhausted.is_some()
            && store.segments.free_count() > self.floor(STREAM_USER, store)
        {
            self.admission.exhausted = None;
        }
    }

    /// Refuses the first waiting request if it holds data and data is refused. True if it was
    /// refused.
    pub(crate) fn refuses_next(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
        let is_data = |arrived: &Arrived| matches!(arrived.request.op, Op::Write { .. });
        if self.admission.exhausted.is_none()
            || !self.admission.waiting.front().is_some_and(is_data)
        {
            return false;
        }
        self.refuse_next(store, out);
        true
    }

    pub(crate) fn refuse_next(&mut self, store: &mut Store, out: &mut Outbox) {
        if let Some(Arrived { request, .. }) = self.admission.waiting.pop_front() {
            store.observe.counters.refused_space += 1;
            out.fail(request.id, RequestError::NoSpace);
        }
    }

    /// Refuses RMW writes of data whose edges have been read. True if there was one.
    #[inline(always)]
    pub(crate) fn refuse_rmw_data(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
        self.admission.exhausted.is_some() && self.refuse_rmw_writes(RmwChange::is_data, store, out)
    }
}

impl Paths {
    /// Refuses all waiting requests: no segment is left to lend. True if there was one.
    pub(crate) fn refuse_all(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
        let is_any =
            self.refuse_rmw_writes(|_| true, store, out) | !self.admission.waiting.is_empty();
        while !self.admission.waiting.is_empty() {
            self.refuse_next(store, out);
        }
        is_any
            | (self.room_units(store) == 0
                && self
                    .commands
                    .refuse_volumes(store.segments.what_takes_the_space(), out))
    }
}

impl Paths {
    pub(crate) fn nothing_is_moved(&self, _store: &Store) -> bool {
        self.space.cleaner.is_idle()
            && CLEANED_STREAMS.iter().all(|id| {
                self.log.stream(*id).open.is_empty() && self.log.stream(*id).in_flight.is_empty()
            })
    }
}

impl Paths {
    /// True if no checkpoint is being written, or it waits for a segment that it cannot get.
    pub(crate) fn checkpoint_rests(&self, store: &Store) -> bool {
        self.durability.checkpoint.is_idle()
            || (self.durability.checkpoint.wants_segment()
                && store.segments.free_count() <= self.floor(STREAM_CHECKPOINT, store))
    }
}

impl Paths {
    /// Refuses changes whose edges are read. True if there was one.
    pub(crate) fn refuse_rmw_writes(
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
    pub(crate) fn refuse_chunked(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
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
    pub(crate) fn lend_segment(&mut self, least: u32, store: &mut Store) -> bool {
        store.segments.free_count() > least && self.take_ahead(store)
    }
}
