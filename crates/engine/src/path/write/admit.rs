//! Admission: limits, credit, space, LSNs, acknowledgement.
//!
//! 1. Check the request against its volume.
//! 2. Queue it (first in, first out) while another request waits or memory for pending writes is
//!    used up. It also waits while the log has no room (`room.rs`), cleaning must free space first
//!    (`pace.rs`), or a read-modify-write holds one of its blocks. Requests for held blocks step
//!    aside until the block is released. A write larger than the room is admitted in chunks
//!    (`chunked.rs`): all its LSNs are taken at once, it is answered with its last chunk, and no
//!    other request takes LSNs in between.
//! 3. Unaligned edges: read the old block, hold it, return with whole blocks (`rmw.rs`).
//! 4. Survey all blocks before any change: content class, whether the block held data, memory for
//!    its map page. A request that does not fit is refused here, before the acknowledgement.
//! 5. Assign LSNs, make the blocks visible to reads, queue them for placement, answer (at once, or
//!    when durable for FUA).

use super::chunked::{ChunkedTarget, ChunkedWrite};
use super::pace::Pace;
use super::reduce::{Reducing, Reduction};
use super::risk::AtRisk;
use super::rmw::RmwChange;
use crate::base::limits::STREAM_USER;
use crate::base::stages::Stage;
use crate::base::weight::weight;
use crate::path::dedup::Sharing;
use crate::path::reduction::Need;
use crate::path::{Durability, Paths};
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pending::{BlockKey, Content, PendingSlot};
use crate::store::plan::{DATA_UNITS, EDGE_UNITS, RECORD_UNITS};
use std::collections::VecDeque;
use windrow_format::batch::{Entry, FillState, RangeState};
use windrow_format::checkpoint::{Dedup, MAP_PAGE_ENTRIES, SyncMode};
use windrow_io::{Completion, Op, Payload, Reply, Request, RequestError, RequestId};
use windrow_reduction::{BlockClass, Codec, Fingerprint};
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE, FULL_BLOCK_UNITS, Lba, Lsn, VolumeId};

/// Bytes that a record without payload counts against the limit of pending bytes: about its size in
/// memory.
pub(crate) const RECORD_COST: u64 = 256;

/// An admitted block or record that waits for its address.
#[derive(Debug)]
pub(crate) enum Placing {
    /// A block with payload.
    Data {
        key: BlockKey,
        lsn: Lsn,
        pending: PendingSlot,
        payload: Payload,
        reduction: Reduction,
        sharing: Sharing,
    },
    /// A block of zeroes or ones.
    Fill {
        key: BlockKey,
        lsn: Lsn,
        pending: PendingSlot,
        ones: bool,
    },
    /// A range or volume record.
    Record { entry: Entry, lsn: Lsn },
}

impl Placing {
    /// Its log entry and its payload.
    pub(crate) fn entry(&self) -> Entry {
        match self {
            Self::Data { key, lsn, .. } => Entry::Data {
                volume: key.volume(),
                lba: key.lba(),
                birth: *lsn,
            },
            Self::Fill { key, lsn, ones, .. } => {
                let state = if *ones {
                    FillState::Ones
                } else {
                    FillState::Zero
                };
                Entry::Fill {
                    volume: key.volume(),
                    lba: key.lba(),
                    birth: *lsn,
                    state,
                }
            }
            Self::Record { entry, .. } => entry.clone(),
        }
    }

    /// Its payload, as the client wrote it.
    pub(crate) fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Data { payload, .. } => Some(payload),
            Self::Fill { .. } | Self::Record { .. } => None,
        }
    }

    /// True if a worker still decides its stored form.
    pub(crate) fn is_reducing(&self) -> bool {
        let Self::Data {
            reduction, sharing, ..
        } = self
        else {
            return false;
        };
        match sharing {
            Sharing::Fingerprinting | Sharing::Fingerprinted(_) | Sharing::Comparing => true,
            Sharing::Reference(_) => false,
            Sharing::Off | Sharing::Content { .. } => matches!(reduction, Reduction::UnderWay),
        }
    }

    /// Log room that it takes.
    pub(super) fn units(&self) -> u64 {
        match self {
            Self::Data {
                sharing: Sharing::Reference(_),
                ..
            }
            | Self::Fill { .. }
            | Self::Record { .. } => RECORD_UNITS,
            Self::Data { .. } => DATA_UNITS,
        }
    }
}

/// Survey result for one block of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surveyed {
    class: BlockClass,
    /// The block held data before.
    was_data: bool,
    /// Charge of the old block, in units.
    charge: u64,
    /// Pending record of the block, if a version of it is in flight.
    pending: Option<PendingSlot>,
}

/// A waiting request and its arrival time.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) request: Request,
    since_ns: u64,
    /// Effect of its volume's flushes, and the version of the volume table that the request was
    /// checked against.
    sync: SyncMode,
    version: u64,
}

/// State of admission.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Requests that wait for credit, in order of arrival.
    pub(crate) waiting: VecDeque<Arrived>,
    /// Requests that wait for a held block.
    pub(super) stepped_aside: Vec<Arrived>,
    /// Runs of blocks (first and last) held by read-modify-writes. All blocks of the change are
    /// held, not only its edges: another read-modify-write must not read an inner block that is
    /// about to change.
    pub(super) held: Vec<(BlockKey, BlockKey)>,
    pub(super) rmw_changes: crate::base::slab::Slab<RmwChange>,
    /// RMW writes with their edges read, waiting for room.
    pub(super) rmw_ready: VecDeque<RmwChange>,
    /// The write in chunked admission; at most one at a time.
    pub(super) chunked: Option<ChunkedWrite>,
    /// Bytes of admitted writes that a power cut would lose.
    pub(crate) at_risk: AtRisk,
    /// Room taken by what is admitted and not sealed (`room.rs`).
    pub(crate) unsealed_units: u64,
    /// The part of `unsealed_units` that is placed in the open batch.
    pub(crate) opened_units: u64,
    /// Admitted, not placed.
    pub(crate) placing: VecDeque<Placing>,
    /// True if the blocks surveyed last may be shared.
    pub(crate) may_share: bool,
    /// Blocks in flight to compression.
    pub(crate) reducing: Reducing,
    /// Bytes admitted and not committed.
    pub(crate) pending_bytes: u64,
    /// LSN committed when data began to be refused (`exhausted.rs`), if it is refused.
    pub(crate) exhausted: Option<Lsn>,
    /// Pace of user writes while cleaning works.
    pub(crate) pace: Pace,
    pub(super) scratch: Vec<Surveyed>,
}

impl Admission {
    /// Data that was counted for the log turned out to be a record.
    pub(crate) fn data_became_record(&mut self) {
        self.unsealed_units -= DATA_UNITS - RECORD_UNITS;
    }

    /// Payload went into the open batch without being queued before.
    pub(crate) fn note_placed_unqueued(&mut self, units: u64) {
        self.unsealed_units += units;
        self.opened_units += units;
    }

    /// First LSN of the chunked write that is not queued yet.
    pub(crate) fn next_of_chunked(&self) -> Option<Lsn> {
        self.chunked.as_ref().map(ChunkedWrite::next)
    }

    /// While data is refused: the committed LSN when that began.
    pub(crate) fn last_data(&self) -> Option<Lsn> {
        self.exhausted
    }

    /// Takes the requests that wait for held blocks (the pool has stopped).
    pub(crate) fn take_locked(&mut self) -> Vec<Arrived> {
        std::mem::take(&mut self.stepped_aside)
    }

    /// Takes the ids of requests that were begun and not finished (the pool has stopped).
    pub(crate) fn take_begun(&mut self) -> Vec<RequestId> {
        let edges = self.rmw_ready.drain(..).map(|w| w.id());
        edges.chain(self.chunked.take().map(|p| p.id())).collect()
    }

    /// Entry with this number in the queue for placement.
    pub(crate) fn queued(&mut self, number: u64) -> Option<&mut Placing> {
        let at = number.checked_sub(self.reducing.placed)?;
        self.placing.get_mut(at as usize)
    }

    /// True if nothing waits here.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.stepped_aside.is_empty()
            && self.rmw_changes.is_empty()
            && self.placing.is_empty()
            && !self.is_held_up()
    }

    /// True if no other request may take LSNs now, or admitted RMW writes wait for room.
    pub(crate) fn is_held_up(&self) -> bool {
        self.chunked.is_some() || !self.rmw_ready.is_empty()
    }

    /// True if something waits for room in the log.
    pub(crate) fn wants_room(&self) -> bool {
        !self.waiting.is_empty() || self.is_held_up() || !self.placing.is_empty()
    }
}

/// Origin of a range of zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Zeroing {
    /// A trim: always succeeds. A partly covered block that cannot be stored stays as it is.
    Trim,
    /// A write of zeroes: succeeds as a whole, or changes nothing.
    WriteZeroes(RangeState),
}

impl Zeroing {
    /// New state of whole blocks.
    pub(super) fn state(self) -> RangeState {
        match self {
            Self::Trim => RangeState::Hole,
            Self::WriteZeroes(state) => state,
        }
    }
}

/// Byte range of an operation that changes blocks.
fn changed_range(op: &Op) -> (u64, u64) {
    match op {
        Op::Write { offset, data, .. } => (*offset, data.len() as u64),
        Op::Trim { offset, length, .. } | Op::WriteZeroes { offset, length, .. } => {
            (*offset, *length)
        }
        Op::Read { .. } | Op::Flush | Op::BlockStatus { .. } => (0, 0),
    }
}

impl Admission {
    pub(crate) fn set_sharing(&mut self, number: u64, now: Sharing) {
        if let Some(Placing::Data { sharing, .. }) = self.queued(number) {
            *sharing = now;
        }
    }

    pub(crate) fn touches_held(&self, volume: VolumeId, offset: u64, length: u64) -> bool {
        let (first, last) = (
            BlockKey::new(volume, Lba(offset / BLOCK_BYTES)),
            BlockKey::new(volume, Lba((offset + length - 1) / BLOCK_BYTES)),
        );
        self.held.iter().any(|(a, b)| *a <= last && first <= *b)
    }
}

impl Admission {
    pub(crate) fn note_at_risk(&mut self, durability: &Durability, through: Lsn, bytes: u64) {
        let durable_lsn = durability.durable_lsn();
        self.at_risk.make_room(durable_lsn);
        self.at_risk.admit(through, bytes);
    }

    /// Queues a record for the user stream.
    pub(crate) fn queue_record(&mut self, durability: &mut Durability, entry: Entry, lsn: Lsn) {
        self.pending_bytes += RECORD_COST;
        self.unsealed_units += RECORD_UNITS;
        self.note_at_risk(durability, lsn, RECORD_COST);
        let placing = Placing::Record { entry, lsn };
        durability.journal.note_admitted(&placing);
        self.placing.push_back(placing);
    }
}

impl Paths {
    /// Handles an arriving request.
    pub(crate) fn request(&mut self, request: Request, store: &mut Store, out: &mut Outbox) {
        if store.pool.stopped.is_some() || store.pool.closing.is_under_way() {
            return out.fail(request.id, RequestError::Stopped);
        }
        store.observe.users.note(store.pool.now_ns);
        match request.op {
            Op::Read { offset, length } => {
                store.drives.note_prompt(&store.pool);
                self.read_request(request.id, request.volume, offset, length, store, out);
            }
            Op::BlockStatus {
                offset,
                length,
                max_extents,
            } => {
                let found = self.block_status(request.volume, offset, length, max_extents, store);
                out.completions.push(Completion {
                    id: request.id,
                    result: found.map(Reply::Extents),
                    lsns: None,
                });
            }
            Op::Flush => self.flush_request(request.id, request.volume, store, out),
            Op::Write { .. } | Op::Trim { .. } | Op::WriteZeroes { .. } => {
                let sync = match self.check_change(&request, store) {
                    Ok(sync) => sync,
                    Err(error) => return out.fail(request.id, error),
                };
                if self.admission.waiting.len() + self.admission.stepped_aside.len()
                    >= store.pool.limits.waiting_requests as usize
                {
                    return out.fail(request.id, RequestError::Io);
                }
                self.admission.waiting.push_back(Arrived {
                    request,
                    since_ns: store.pool.now_ns,
                    sync,
                    version: store.volumes.version,
                });
                self.admit_waiting(store, out);
            }
        }
    }

    /// Checks a change against its volume; returns the effect of the volume's flushes.
    fn check_change(&self, request: &Request, store: &Store) -> Result<SyncMode, RequestError> {
        let (offset, length) = changed_range(&request.op);
        let record = store.volumes.check_range(request.volume, offset, length)?;
        if store.pool.read_only || record.read_only {
            return Err(RequestError::ReadOnly);
        }
        Ok(record.sync)
    }

    /// Admits waiting requests as far as credit permits.
    pub(crate) fn admit_waiting(&mut self, store: &mut Store, out: &mut Outbox) {
        self.ensure_next_segment(store);
        self.note_room(store);
        loop {
            if store.pool.stopped.is_some() {
                return;
            }
            if self.admission.wants_room()
                && self.room_units(store) < EDGE_UNITS
                && self.counts_too_much(store)
            {
                // The open batch fills the room and is not full: without this it would stay open
                // until its age or a flush sealed it.
                self.seal(STREAM_USER, store, out);
            }
            if self.admission.chunked.is_some() && !self.admit_next_chunk(store, out) {
                return;
            }
            if !self.admission.wants_room() {
                return;
            }
            let mut room = self.room_units(store);
            if self.refuse_rmw_data(store, out) {
                continue;
            }
            if let Some(write) = self.admission.rmw_ready.pop_front() {
                if room < EDGE_UNITS
                    || (write.begins_walk() && (self.ranges.holds_walks() || self.ranges.is_full()))
                {
                    return self.admission.rmw_ready.push_front(write);
                }
                self.admit_rmw_write(write, store, out);
                continue;
            }
            if self.refuses_next(store, out) {
                continue;
            }
            let Some(Arrived { request, .. }) = self.admission.waiting.front() else {
                return;
            };
            let (_, length) = changed_range(&request.op);
            let cost = if matches!(request.op, Op::Write { .. }) {
                length
            } else {
                RECORD_COST
            };
            let full = self.admission.pending_bytes > 0
                && self.admission.pending_bytes + cost > store.pool.limits.pending_bytes;
            // Whole blocks may be admitted one by one; everything else is admitted in one piece.
            let walks = matches!(request.op, Op::Trim { .. } | Op::WriteZeroes { .. });
            let paced = matches!(request.op, Op::Write { .. });
            let whole = matches!(&request.op, Op::Write { offset, .. } if offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES));
            if walks && (self.ranges.holds_walks() || self.ranges.is_full()) {
                return;
            }
            let least = if whole { DATA_UNITS } else { EDGE_UNITS };
            if full && self.admission.placing.is_empty() && self.users_are_written(store) {
                // Entries without payload reach the limit long before they fill a batch: only
                // sealing helps.
                self.seal_users(Lsn(u64::MAX), store, out);
                room = self.room_units(store);
            }
            if full
                || room < least + self.room_for_index_pages()
                || (paced && self.admission.pace.units() == 0)
            {
                return;
            }
            let Some(arrived) = self.admission.waiting.pop_front() else {
                return;
            };
            self.admit(arrived, room, store, out);
            self.place(store, out);
        }
    }

    /// Admits a request for which there are `room` units.
    fn admit(
        &mut self,
        Arrived {
            mut request,
            since_ns,
            mut sync,
            version,
        }: Arrived,
        room: u64,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if version != store.volumes.version {
            // The volume may have been deleted or shrunk while the request waited.
            sync = match self.check_change(&request, store) {
                Ok(sync) => sync,
                Err(error) => return out.fail(request.id, error),
            };
        }
        let (offset, length) = changed_range(&request.op);
        if self.admission.touches_held(request.volume, offset, length) {
            return self.admission.stepped_aside.push(Arrived {
                request,
                since_ns,
                sync,
                version: store.volumes.version,
            });
        }
        if let Op::Write { fua, .. } | Op::Trim { fua, .. } | Op::WriteZeroes { fua, .. } =
            &mut request.op
        {
            *fua = match sync {
                SyncMode::Standard => *fua,
                SyncMode::Always => true,
                SyncMode::Disabled => false,
            };
        }
        store
            .observe
            .stages
            .record(Stage::WriteAdmission, since_ns, store.pool.now_ns);
        let aligned = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
        match request.op {
            Op::Write { data, fua, .. } if aligned && room < length / BLOCK_BYTES * DATA_UNITS => {
                let target = ChunkedTarget {
                    id: request.id,
                    volume: request.volume,
                    fua,
                    user_bytes: length,
                    held: None,
                };
                self.admit_chunked(target, vec![(Lba(offset / BLOCK_BYTES), data)], store, out);
            }
            Op::Write { data, fua, .. } if aligned => {
                let done =
                    self.admit_blocks(request.volume, Lba(offset / BLOCK_BYTES), data, store);
                store.observe.counters.user_write_bytes += if done.is_ok() { length } else { 0 };
                self.finish_admission(request.id, done, fua, store, out);
            }
            Op::Write { offset, data, fua } => {
                self.begin_rmw_write(
                    RmwChange::write(request.id, request.volume, fua, offset, data),
                    store,
                    out,
                );
            }
            Op::Trim { fua, .. } => self.admit_range(
                request.id,
                request.volume,
                offset,
                length,
                Zeroing::Trim,
                fua,
                store,
                out,
            ),
            Op::WriteZeroes { no_hole, fua, .. } => {
                let zeroing = Zeroing::WriteZeroes(if no_hole {
                    RangeState::Zero
                } else {
                    RangeState::Hole
                });
                self.admit_range(
                    request.id,
                    request.volume,
                    offset,
                    length,
                    zeroing,
                    fua,
                    store,
                    out,
                );
            }
            Op::Read { .. } | Op::Flush | Op::BlockStatus { .. } => {
                out.fail(request.id, RequestError::Invalid)
            }
        }
    }

    pub(super) fn finish_admission(
        &mut self,
        id: RequestId,
        done: Result<(Lsn, Lsn), RequestError>,
        fua: bool,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        match done {
            Err(error) => out.fail(id, error),
            Ok(lsns) if fua => self.flush_through(
                lsns.1,
                crate::path::flush::Waiter::Request {
                    id,
                    lsns: Some(lsns),
                },
                store,
                out,
            ),
            Ok(lsns) => out.answer(id, Some(lsns)),
        }
    }

    /// Admits whole blocks and returns their LSNs, or refuses all of them.
    fn admit_blocks(
        &mut self,
        volume: VolumeId,
        first: Lba,
        data: Payload,
        store: &mut Store,
    ) -> Result<(Lsn, Lsn), RequestError> {
        let count = (data.len() / BLOCK_SIZE) as u64;
        let mut scratch = std::mem::take(&mut self.admission.scratch);
        let room = self
            .survey(volume, first, &data, &mut scratch, store)
            .and_then(|need| self.check_space(need, store));
        self.admission.scratch = scratch;
        if let Err(error) = room {
            self.drop_empty_pages(volume, first, count, store);
            return Err(error);
        }
        let lsn = self.durability.lsns.take(count);
        self.admit_surveyed(volume, first, lsn, data, store);
        Ok((lsn, Lsn(lsn.0 + count - 1)))
    }

    /// Admits a block from a journal record, with its recorded LSN.
    pub(crate) fn readmit_block(
        &mut self,
        volume: VolumeId,
        lba: Lba,
        lsn: Lsn,
        content: Payload,
        store: &mut Store,
    ) -> Result<(), RequestError> {
        let mut scratch = std::mem::take(&mut self.admission.scratch);
        let surveyed = self.survey(volume, lba, &content, &mut scratch, store);
        self.admission.scratch = scratch;
        surveyed?;
        // Counted before the start, when the client wrote it.
        let counted = store.observe.counters.fill_blocks;
        self.admit_surveyed(volume, lba, lsn, content, store);
        store.observe.counters.fill_blocks = counted;
        Ok(())
    }

    /// Admits the blocks that `survey` looked at last.
    pub(super) fn admit_surveyed(
        &mut self,
        volume: VolumeId,
        first: Lba,
        lsn: Lsn,
        data: Payload,
        store: &mut Store,
    ) {
        let scratch = std::mem::take(&mut self.admission.scratch);
        let last = scratch.len().saturating_sub(1);
        let codec = store.volumes.packs(volume);
        let fingerprint = if self.admission.may_share {
            self.shared.fingerprint_of(self.dedup_of(volume, store))
        } else {
            None
        };
        let ways = (codec, fingerprint);
        for (i, surveyed) in scratch[..last].iter().enumerate() {
            let at = i as u64;
            self.admit_block(
                BlockKey::new(volume, Lba(first.0 + at)),
                Lsn(lsn.0 + at),
                *surveyed,
                data.slice(i * BLOCK_SIZE, BLOCK_SIZE),
                ways,
                store,
            );
        }
        if let Some(surveyed) = scratch.last() {
            let at = last as u64;
            self.admit_block(
                BlockKey::new(volume, Lba(first.0 + at)),
                Lsn(lsn.0 + at),
                *surveyed,
                data.into_slice(last * BLOCK_SIZE, BLOCK_SIZE),
                ways,
                store,
            );
        }
        self.admission.note_at_risk(
            &self.durability,
            Lsn(lsn.0 + last as u64),
            scratch.len() as u64 * BLOCK_BYTES,
        );
        self.admission.scratch = scratch;
    }

    #[inline]
    fn admit_block(
        &mut self,
        key: BlockKey,
        lsn: Lsn,
        surveyed: Surveyed,
        payload: Payload,
        (codec, fingerprint): (Option<Codec>, Option<Fingerprint>),
        store: &mut Store,
    ) {
        let Surveyed {
            class,
            was_data,
            charge,
            pending,
        } = surveyed;
        let is_data = class == BlockClass::Data;
        let content = match class {
            BlockClass::Data => Content::Data(payload.clone()),
            BlockClass::Zero => Content::Zero,
            BlockClass::Ones => Content::Ones,
        };
        let pending = self.log.pending.admit(key, pending, content);
        let placing = if is_data {
            let sharing = fingerprint.map_or(Sharing::Off, |fingerprint| {
                self.admission
                    .print(&mut self.shared, fingerprint, payload.clone())
            });
            // A possible duplicate is compressed only when it is known to be new.
            let reduction = match codec {
                Some(codec) if fingerprint.is_none() => {
                    self.admission.reduce(codec, payload.clone())
                }
                _ => Reduction::Whole,
            };
            Placing::Data {
                key,
                lsn,
                pending,
                payload,
                reduction,
                sharing,
            }
        } else {
            Placing::Fill {
                key,
                lsn,
                pending,
                ones: class == BlockClass::Ones,
            }
        };
        self.durability.journal.note_admitted(&placing);
        self.admission.placing.push_back(placing);
        store.observe.counters.fill_blocks += u64::from(!is_data);
        let units = if is_data { DATA_UNITS } else { RECORD_UNITS };
        self.admission.unsealed_units += units;
        self.admission.pace.spend(units);
        self.admission.pending_bytes += if is_data { BLOCK_BYTES } else { RECORD_COST };
        if is_data {
            store.volumes.take_space(1, u64::from(FULL_BLOCK_UNITS));
        }
        store.volumes.release_space(u64::from(was_data), charge);
    }

    /// Classifies all blocks and creates their map pages; returns the space they need.
    pub(super) fn survey(
        &mut self,
        volume: VolumeId,
        first: Lba,
        data: &Payload,
        scratch: &mut Vec<Surveyed>,
        store: &mut Store,
    ) -> Result<Need, RequestError> {
        scratch.clear();
        let mut need = Need::default();
        for (i, block) in data.chunks_exact(BLOCK_SIZE).enumerate() {
            let lba = Lba(first.0 + i as u64);
            if i == 0 || lba.0.is_multiple_of(MAP_PAGE_ENTRIES as u64) {
                self.settle_range(volume, lba, store);
                let (v, arena) = store
                    .volumes
                    .get_mut(volume)
                    .ok_or(RequestError::NoVolume)?;
                let index = lba.0 / MAP_PAGE_ENTRIES as u64;
                if v.map.slot(index).is_none() {
                    // Dirty from the start: an image of the page's previous incarnation may be in
                    // flight to the members.
                    let Some(slot) = v.map.ensure(arena, volume, index) else {
                        store.observe.counters.refused_map_pages += 1;
                        return Err(RequestError::NoSpace);
                    };
                    arena.mark_dirty(slot);
                }
            }
            let pending = self.log.pending.find(BlockKey::new(volume, lba));
            let (was_data, charge) =
                match pending.map(|slot| self.log.pending.record(slot).newest.is_data()) {
                    Some(is_data) => (
                        is_data,
                        if is_data {
                            u64::from(FULL_BLOCK_UNITS)
                        } else {
                            0
                        },
                    ),
                    None => {
                        let entry = store.volumes.look_up(volume, lba);
                        (entry.is_data(), weight(&entry))
                    }
                };
            let class = windrow_reduction::classify(block);
            if class == BlockClass::Data {
                need = need.and(Need {
                    blocks: u64::from(!was_data),
                    units: u64::from(FULL_BLOCK_UNITS) - charge,
                });
            }
            scratch.push(Surveyed {
                class,
                was_data,
                charge,
                pending,
            });
        }
        let data = scratch
            .iter()
            .filter(|surveyed| surveyed.class == BlockClass::Data)
            .count() as u64;
        // Without memory for further ids blocks are not shared; no write is refused for that.
        self.admission.may_share =
            self.dedup_of(volume, store) != Dedup::Off && self.has_ids(data, store);
        Ok(need)
    }

    /// Refuses data that the pool has no space for.
    pub(super) fn check_space(
        &mut self,
        need: Need,
        store: &mut Store,
    ) -> Result<(), RequestError> {
        if !self.has_space(need, store) {
            store.observe.counters.refused_space += 1;
            return Err(RequestError::NoSpace);
        }
        Ok(())
    }

    /// Trim or write-zeroes: partly covered edge blocks are written as zeroes first.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one request, passed on once"
    )]
    fn admit_range(
        &mut self,
        id: RequestId,
        volume: VolumeId,
        offset: u64,
        length: u64,
        zeroing: Zeroing,
        fua: bool,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        let end = offset + length;
        let (first, last) = (offset.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        if first >= last || !offset.is_multiple_of(BLOCK_BYTES) || !end.is_multiple_of(BLOCK_BYTES)
        {
            return self.zero_edges(id, volume, offset, length, zeroing, fua, store, out);
        }
        let state = zeroing.state();
        let lsn = self.durability.lsns.take(1);
        let entry = Entry::Range {
            volume,
            lba: Lba(first),
            count: last - first,
            lsn,
            state,
        };
        self.begin_range(volume, Lba(first), Lba(last), lsn, state, store);
        self.admission
            .queue_record(&mut self.durability, entry, lsn);
        self.finish_admission(id, Ok((lsn, lsn)), fua, store, out);
    }
}
