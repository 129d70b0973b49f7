//! Admission: bounds, credit, space, order numbers, acknowledgement.
//!
//! 1 Check the request against its volume.
//! 2 If another request waits, if memory for pending writes is used up, if the log has no room for it yet (`room.rs`), or if a
//!   block it touches is held by a read-modify-write, it waits (first in, first out; requests for held blocks step aside until
//!   the block is released). A write larger than the room is admitted part by part, its orders taken at once; it is answered
//!   with its last part, and nothing else takes orders in between.
//! 3 Unaligned edges: fetch the old block, hold it, come back here with whole blocks.
//! 4 Look at all blocks before changing anything: content class, whether the block held data, memory for its map page.
//!   What does not fit is refused now, before the acknowledgement.
//! 5 Give orders, make the blocks visible to reads, queue them for placement, answer (at once, or when durable for FUA).

use super::room::{DATA_UNITS, EDGE_UNITS, RECORD_UNITS};
use crate::limits::STREAM_USER;
use crate::pending::{BlockKey, Content, PendingSlot};
use crate::{Engine, Outbox};
use std::collections::VecDeque;
use windrow_io::{Op, Payload, Request, RequestError, RequestId};
use windrow_layout::batch::{Entry, RangeState};
use windrow_layout::checkpoint::MAP_PAGE_ENTRIES;
use windrow_reduce::BlockClass;
use windrow_units::{BLOCK_BYTES, BLOCK_SIZE, Lba, Order, VolumeId};

/// Bytes a record without payload counts against the bound on pending bytes: about what it takes in memory.
pub(crate) const RECORD_COST: u64 = 256;

/// An admitted block or record that waits for its place.
#[derive(Debug)]
pub(crate) enum Placing {
    /// A block with payload.
    Data { key: BlockKey, order: Order, pending: PendingSlot, payload: Payload },
    /// A block of zeroes or ones.
    Fill { key: BlockKey, order: Order, pending: PendingSlot, ones: bool },
    /// A range or volume record.
    Record { entry: Entry, order: Order },
}

/// A change with unaligned ends whose edge blocks are being read: a write, or the ends of a zeroed range with the whole
/// blocks between them.
#[derive(Debug)]
pub(crate) struct EdgeWrite {
    id: RequestId,
    volume: VolumeId,
    fua: bool,
    /// Byte offset and bytes, ascending.
    parts: Vec<(u64, Payload)>,
    /// Whole blocks `first .. end` that become holes or zeroes.
    range: Option<(Lba, Lba, RangeState)>,
    edges: Vec<(BlockKey, Option<Payload>)>,
    left: usize,
    /// Bytes of user data in the parts.
    user_bytes: u64,
}

impl EdgeWrite {
    /// First and last block that the change touches.
    fn span(&self) -> (BlockKey, BlockKey) {
        let starts = self.parts.iter().map(|(offset, _)| offset / BLOCK_BYTES).chain(self.range.map(|r| r.0.0));
        let ends = self.parts.iter().map(|(offset, data)| (offset + data.len() as u64 - 1) / BLOCK_BYTES).chain(self.range.map(|r| r.1.0 - 1));
        let key = |lba| BlockKey::new(self.volume, Lba(lba));
        (key(starts.min().unwrap_or(0)), key(ends.max().unwrap_or(0)))
    }
}

/// A large write that is being admitted part by part.
#[derive(Debug)]
struct PartWrite {
    id: RequestId,
    volume: VolumeId,
    fua: bool,
    data: Payload,
    first: Lba,
    order: Order,
    /// Blocks admitted.
    done: u64,
}

/// What the survey of a write found out about one of its blocks.
#[derive(Clone, Copy, Debug)]
struct Surveyed {
    class: BlockClass,
    /// The block held data before.
    was_data: bool,
    /// Its record, if a version of it is on its way.
    pending: Option<PendingSlot>,
}

/// State of admission.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Requests that wait for credit, in order of arrival.
    pub(crate) waiting: VecDeque<Request>,
    /// Requests that wait for a held block.
    stepped_aside: Vec<Request>,
    /// Runs of blocks (first and last) held by read-modify-writes: all blocks that the change touches, not only its edges, as
    /// another read-modify-write must not read an inner block that is about to change.
    held: Vec<(BlockKey, BlockKey)>,
    edge_writes: crate::slab::Slab<EdgeWrite>,
    /// Edge writes whose blocks are read, waiting for room.
    edges_ready: VecDeque<EdgeWrite>,
    /// At most one write is admitted in parts at a time.
    part: Option<PartWrite>,
    /// Room taken by what is admitted and not sealed (`room.rs`).
    pub(crate) unsealed_units: u64,
    /// Admitted, not placed.
    pub(crate) placing: VecDeque<Placing>,
    /// Bytes admitted and not committed.
    pub(crate) pending_bytes: u64,
    scratch: Vec<Surveyed>,
}

impl Admission {
    /// Takes the requests that wait for held blocks (the pool has stopped).
    pub(crate) fn take_locked(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.stepped_aside)
    }

    /// Takes the ids of requests that were begun and not finished (the pool has stopped).
    pub(crate) fn take_begun(&mut self) -> Vec<RequestId> {
        let edges = self.edges_ready.drain(..).map(|w| w.id);
        edges.chain(self.part.take().map(|p| p.id)).collect()
    }

    /// True if nothing waits here.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.stepped_aside.is_empty() && self.edge_writes.is_empty() && self.placing.is_empty() && !self.is_held_up()
    }

    /// True if orders may not be given to anybody else now, or admitted edge writes wait for room.
    pub(crate) fn is_held_up(&self) -> bool {
        self.part.is_some() || !self.edges_ready.is_empty()
    }

    /// Units of what is admitted and not placed.
    pub(crate) fn placing_units(&self) -> u64 {
        self.placing.iter().map(|p| if matches!(p, Placing::Data { .. }) { DATA_UNITS } else { RECORD_UNITS }).sum()
    }

    /// True if something waits for room in the log.
    pub(crate) fn wants_room(&self) -> bool {
        !self.waiting.is_empty() || self.is_held_up() || !self.placing.is_empty()
    }
}

/// Byte range of an operation that changes blocks.
fn changed_range(op: &Op) -> (u64, u64) {
    match op {
        Op::Write { offset, data, .. } => (*offset, data.len() as u64),
        Op::Trim { offset, length, .. } | Op::WriteZeroes { offset, length, .. } => (*offset, *length),
        Op::Read { .. } | Op::Flush | Op::BlockStatus { .. } => (0, 0),
    }
}

impl Engine {
    /// A request arrives.
    pub(crate) fn request(&mut self, request: Request, out: &mut Outbox) {
        if self.stopped.is_some() || self.control.shutting_down() {
            return self.fail(request.id, RequestError::Stopped, out);
        }
        match request.op {
            Op::Read { offset, length } => self.read_request(request.id, request.volume, offset, length, out),
            Op::BlockStatus { offset, length, max_extents } => self.block_status(request.id, request.volume, offset, length, max_extents, out),
            Op::Flush => self.flush_request(request.id, out),
            Op::Write { .. } | Op::Trim { .. } | Op::WriteZeroes { .. } => {
                if let Err(error) = self.check_change(&request) {
                    return self.fail(request.id, error, out);
                }
                if self.admission.waiting.len() >= self.limits.waiting_requests as usize {
                    return self.fail(request.id, RequestError::Io, out);
                }
                self.admission.waiting.push_back(request);
                self.admit_waiting(out);
            }
        }
    }

    /// Checks offset and length against the volume.
    pub(crate) fn check_range(&self, volume: VolumeId, offset: u64, length: u64) -> Result<(), RequestError> {
        let v = self.volumes.active(volume).ok_or(RequestError::NoVolume)?;
        if length == 0 || !offset.is_multiple_of(512) || !length.is_multiple_of(512) {
            return Err(RequestError::Invalid);
        }
        match offset.checked_add(length) {
            Some(end) if end <= v.record.size_bytes => Ok(()),
            _ => Err(RequestError::OutOfRange),
        }
    }

    fn check_change(&self, request: &Request) -> Result<(), RequestError> {
        let (offset, length) = changed_range(&request.op);
        self.check_range(request.volume, offset, length)?;
        if self.read_only || self.volumes.active(request.volume).is_some_and(|v| v.record.read_only) {
            return Err(RequestError::ReadOnly);
        }
        Ok(())
    }

    /// Admits what waits, as far as credit goes.
    pub(crate) fn admit_waiting(&mut self, out: &mut Outbox) {
        self.ensure_next_segment();
        loop {
            if self.admission.part.is_some() && !self.admit_part(out) {
                return;
            }
            if let Some(write) = self.admission.edges_ready.pop_front() {
                if self.room_units() < EDGE_UNITS || (self.ranges.barrier && write.range.is_some()) {
                    return self.admission.edges_ready.push_front(write);
                }
                self.finish_edge_write(&write, out);
                self.place(out);
                continue;
            }
            let Some(request) = self.admission.waiting.front() else { return };
            let (_, length) = changed_range(&request.op);
            let cost = if matches!(request.op, Op::Write { .. }) { length } else { RECORD_COST };
            let full = self.admission.pending_bytes > 0 && self.admission.pending_bytes + cost > self.limits.pending_bytes;
            // Whole blocks may be admitted one by one; everything else is admitted in one piece.
            let walks = matches!(request.op, Op::Trim { .. } | Op::WriteZeroes { .. });
            let whole = matches!(&request.op, Op::Write { offset, .. } if offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES));
            if walks && self.ranges.barrier {
                return;
            }
            let least = if whole { DATA_UNITS } else { EDGE_UNITS };
            if full && self.admission.placing.is_empty() && self.stream(STREAM_USER).in_flight.is_empty() {
                // Entries without payload fill the bound long before they fill a batch: nothing but sealing it helps.
                self.seal(STREAM_USER, out);
            }
            if full || self.room_units() < least {
                return;
            }
            let Some(request) = self.admission.waiting.pop_front() else { return };
            self.admit(request, out);
            self.place(out);
        }
    }

    /// Admits the next part of a large write; true if that was the last.
    fn admit_part(&mut self, out: &mut Outbox) -> bool {
        let Some(part) = self.admission.part.take() else { return true };
        let total = (part.data.len() / BLOCK_SIZE) as u64;
        let blocks = (self.room_units() / DATA_UNITS).min(total - part.done);
        if blocks == 0 {
            self.admission.part = Some(part);
            return false;
        }
        let bytes = part.data.slice(part.done as usize * BLOCK_SIZE, blocks as usize * BLOCK_SIZE);
        let mut scratch = std::mem::take(&mut self.admission.scratch);
        let first = Lba(part.first.0 + part.done);
        // Space and map pages were surveyed for the whole write; nothing that takes space was admitted since.
        let room = self.survey(part.volume, first, &bytes, &mut scratch);
        self.admission.scratch = scratch;
        if let Err(error) = room {
            // Its remaining orders are never used: say so in the log, or P could not pass them.
            let (first, count) = (Order(part.order.0 + part.done), total - part.done);
            self.queue_record(Entry::Covered { first, count }, Order(first.0 + count - 1));
            self.fail(part.id, error, out);
            return true;
        }
        self.admit_surveyed(part.volume, first, Order(part.order.0 + part.done), bytes);
        self.place(out);
        let done = part.done + blocks;
        if done < total {
            self.admission.part = Some(PartWrite { done, ..part });
            return false;
        }
        self.counters.user_write_bytes += part.data.len() as u64;
        let orders = (part.order, Order(part.order.0 + total - 1));
        self.finish_admission(part.id, Ok(orders), part.fua, out);
        true
    }

    fn admit(&mut self, request: Request, out: &mut Outbox) {
        // The volume may have been deleted or shrunk while the request waited.
        if let Err(error) = self.check_change(&request) {
            return self.fail(request.id, error, out);
        }
        let (offset, length) = changed_range(&request.op);
        if self.touches_held(request.volume, offset, length) {
            return self.admission.stepped_aside.push(request);
        }
        let aligned = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
        match request.op {
            Op::Write { data, fua, .. } if aligned && self.room_units() < length / BLOCK_BYTES * DATA_UNITS => {
                let first = Lba(offset / BLOCK_BYTES);
                let mut scratch = std::mem::take(&mut self.admission.scratch);
                let room = self.survey(request.volume, first, &data, &mut scratch);
                self.admission.scratch = scratch;
                if let Err(error) = room {
                    return self.fail(request.id, error, out);
                }
                let order = self.orders.take(length / BLOCK_BYTES);
                self.admission.part = Some(PartWrite { id: request.id, volume: request.volume, fua, data, first, order, done: 0 });
            }
            Op::Write { data, fua, .. } if aligned => {
                let done = self.admit_blocks(request.volume, Lba(offset / BLOCK_BYTES), data);
                self.counters.user_write_bytes += if done.is_ok() { length } else { 0 };
                self.finish_admission(request.id, done, fua, out);
            }
            Op::Write { offset, data, fua } => {
                let write = EdgeWrite {
                    id: request.id,
                    volume: request.volume,
                    fua,
                    parts: vec![(offset, data)],
                    range: None,
                    edges: Vec::new(),
                    left: 0,
                    user_bytes: length,
                };
                self.begin_edge_write(write, out);
            }
            Op::Trim { fua, .. } => self.admit_range(request.id, request.volume, offset, length, RangeState::Hole, fua, out),
            Op::WriteZeroes { no_hole, fua, .. } => {
                let state = if no_hole { RangeState::Zero } else { RangeState::Hole };
                self.admit_range(request.id, request.volume, offset, length, state, fua, out);
            }
            Op::Read { .. } | Op::Flush | Op::BlockStatus { .. } => self.fail(request.id, RequestError::Invalid, out),
        }
    }

    fn finish_admission(&mut self, id: RequestId, done: Result<(Order, Order), RequestError>, fua: bool, out: &mut Outbox) {
        match done {
            Err(error) => self.fail(id, error, out),
            Ok(orders) if fua => self.flush_through(orders.1, crate::flush::Waiter::Request { id, orders: Some(orders) }, out),
            Ok(orders) => self.answer(id, Some(orders), out),
        }
    }

    /// Admits whole blocks; gives their orders, or refuses all of them.
    fn admit_blocks(&mut self, volume: VolumeId, first: Lba, data: Payload) -> Result<(Order, Order), RequestError> {
        let count = (data.len() / BLOCK_SIZE) as u64;
        let mut scratch = std::mem::take(&mut self.admission.scratch);
        let room = self.survey(volume, first, &data, &mut scratch);
        self.admission.scratch = scratch;
        room?;
        let order = self.orders.take(count);
        self.admit_surveyed(volume, first, order, data);
        Ok((order, Order(order.0 + count - 1)))
    }

    /// Admits the blocks that `survey` looked at last.
    fn admit_surveyed(&mut self, volume: VolumeId, first: Lba, order: Order, data: Payload) {
        let scratch = std::mem::take(&mut self.admission.scratch);
        let last = scratch.len().saturating_sub(1);
        for (i, surveyed) in scratch[..last].iter().enumerate() {
            let at = i as u64;
            self.admit_block(BlockKey::new(volume, Lba(first.0 + at)), Order(order.0 + at), *surveyed, data.slice(i * BLOCK_SIZE, BLOCK_SIZE));
        }
        if let Some(surveyed) = scratch.last() {
            let at = last as u64;
            self.admit_block(BlockKey::new(volume, Lba(first.0 + at)), Order(order.0 + at), *surveyed, data.into_slice(last * BLOCK_SIZE, BLOCK_SIZE));
        }
        self.admission.scratch = scratch;
    }

    #[inline]
    fn admit_block(&mut self, key: BlockKey, order: Order, surveyed: Surveyed, payload: Payload) {
        let Surveyed { class, was_data, pending } = surveyed;
        let is_data = class == BlockClass::Data;
        let content = match class {
            BlockClass::Data => Content::Data(payload.clone()),
            BlockClass::Zero => Content::Zero,
            BlockClass::Ones => Content::Ones,
        };
        let pending = self.pending.admit(key, pending, content);
        self.admission.placing.push_back(if is_data {
            Placing::Data { key, order, pending, payload }
        } else {
            Placing::Fill { key, order, pending, ones: class == BlockClass::Ones }
        });
        self.counters.fill_blocks += u64::from(!is_data);
        self.admission.unsealed_units += if is_data { DATA_UNITS } else { RECORD_UNITS };
        self.admission.pending_bytes += if is_data { BLOCK_BYTES } else { RECORD_COST };
        self.volumes.used_blocks += u64::from(is_data);
        self.volumes.used_blocks -= u64::from(was_data);
    }

    /// Classifies all blocks, makes sure that their map pages exist, and tells whether the pool has room for them.
    fn survey(&mut self, volume: VolumeId, first: Lba, data: &Payload, scratch: &mut Vec<Surveyed>) -> Result<(), RequestError> {
        scratch.clear();
        let mut more = 0u64;
        for (i, block) in data.chunks_exact(BLOCK_SIZE).enumerate() {
            let lba = Lba(first.0 + i as u64);
            if i == 0 || lba.0.is_multiple_of(MAP_PAGE_ENTRIES as u64) {
                self.settle_range(volume, lba);
                let (v, arena) = self.volumes.get_mut(volume).ok_or(RequestError::NoVolume)?;
                let index = lba.0 / MAP_PAGE_ENTRIES as u64;
                if v.map.slot(index).is_none() {
                    // Changed from the start: an image of the page's former life may be on its way to the members.
                    let slot = v.map.ensure(arena, volume, index).ok_or(RequestError::NoSpace)?;
                    arena.mark_dirty(slot);
                }
            }
            let pending = self.pending.find(BlockKey::new(volume, lba));
            let was_data = match pending {
                Some(slot) => self.pending.record(slot).newest.is_data(),
                None => self.volumes.get(volume).is_some_and(|v| v.map.get(&self.volumes.arena, lba).has_payload()),
            };
            let class = windrow_reduce::classify(block);
            more += u64::from(class == BlockClass::Data && !was_data);
            scratch.push(Surveyed { class, was_data, pending });
        }
        if more > 0 && self.volumes.used_blocks + more > self.plan.usable_bytes / BLOCK_BYTES {
            return Err(RequestError::NoSpace);
        }
        Ok(())
    }

    /// Trim or write-zeroes: edges that are not whole blocks are written as zeroes first.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request, passed on once")]
    fn admit_range(&mut self, id: RequestId, volume: VolumeId, offset: u64, length: u64, state: RangeState, fua: bool, out: &mut Outbox) {
        let end = offset + length;
        let (first, last) = (offset.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        if first >= last || !offset.is_multiple_of(BLOCK_BYTES) || !end.is_multiple_of(BLOCK_BYTES) {
            return self.zero_edges(id, volume, offset, length, state, fua, out);
        }
        let order = self.orders.take(1);
        let entry = Entry::Range { volume, lba: Lba(first), count: last - first, order, state };
        self.begin_range(volume, Lba(first), Lba(last), order, state);
        self.queue_record(entry, order);
        self.finish_admission(id, Ok((order, order)), fua, out);
    }

    /// Queues a record for the user stream.
    pub(crate) fn queue_record(&mut self, entry: Entry, order: Order) {
        self.admission.pending_bytes += RECORD_COST;
        self.admission.unsealed_units += RECORD_UNITS;
        self.admission.placing.push_back(Placing::Record { entry, order });
    }

    /// A range with unaligned ends: the parts of blocks at its ends are zeroed by writes.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request, passed on once")]
    fn zero_edges(&mut self, id: RequestId, volume: VolumeId, offset: u64, length: u64, state: RangeState, fua: bool, out: &mut Outbox) {
        let end = offset + length;
        let first_whole = offset.next_multiple_of(BLOCK_BYTES);
        let last_whole = end / BLOCK_BYTES * BLOCK_BYTES;
        let ends = if first_whole > last_whole { vec![(offset, length)] } else { vec![(offset, first_whole - offset), (last_whole, end - last_whole)] };
        let parts = ends.into_iter().filter(|(_, length)| *length > 0).map(|(offset, length)| (offset, self.zeroes.slice(0, length as usize))).collect();
        let range = (first_whole < last_whole).then_some((Lba(first_whole / BLOCK_BYTES), Lba(last_whole / BLOCK_BYTES), state));
        self.begin_edge_write(EdgeWrite { id, volume, fua, parts, range, edges: Vec::new(), left: 0, user_bytes: 0 }, out);
    }

    fn touches_held(&self, volume: VolumeId, offset: u64, length: u64) -> bool {
        let (first, last) = (BlockKey::new(volume, Lba(offset / BLOCK_BYTES)), BlockKey::new(volume, Lba((offset + length - 1) / BLOCK_BYTES)));
        self.admission.held.iter().any(|(a, b)| *a <= last && first <= *b)
    }

    /// Holds the edge blocks and starts their reads.
    fn begin_edge_write(&mut self, mut write: EdgeWrite, out: &mut Outbox) {
        let mut keys = Vec::with_capacity(2);
        for (offset, data) in &write.parts {
            let end = offset + data.len() as u64;
            for at in [*offset, end] {
                let key = BlockKey::new(write.volume, Lba(at / BLOCK_BYTES));
                if !at.is_multiple_of(BLOCK_BYTES) && !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        self.admission.held.push(write.span());
        write.edges = keys.iter().map(|k| (*k, None)).collect();
        write.left = keys.len();
        let at = self.admission.edge_writes.insert(write);
        for (edge, key) in keys.into_iter().enumerate() {
            self.read_edge(key, at, edge as u32, out);
        }
    }

    /// An edge block has been read (`None`: it could not be).
    pub(crate) fn edge_read(&mut self, at: u32, edge: u32, bytes: Option<Payload>) {
        let Some(write) = self.admission.edge_writes.get_mut(at) else { return };
        write.edges[edge as usize].1 = bytes;
        write.left -= 1;
        if write.left > 0 {
            return;
        }
        let Some(write) = self.admission.edge_writes.remove(at) else { return };
        // Admitted in the next round of `advance`, never from here: a reader that answers at once would call itself again.
        self.admission.edges_ready.push_back(write);
    }

    /// Admits an edge write and releases its blocks.
    fn finish_edge_write(&mut self, write: &EdgeWrite, out: &mut Outbox) {
        let result = self.admit_edge_write(write);
        if let Some(at) = self.admission.held.iter().position(|span| *span == write.span()) {
            self.admission.held.swap_remove(at);
        }
        self.counters.user_write_bytes += if result.is_ok() { write.user_bytes } else { 0 };
        self.finish_admission(write.id, result, write.fua, out);
        let released = std::mem::take(&mut self.admission.stepped_aside);
        for request in released.into_iter().rev() {
            self.admission.waiting.push_front(request);
        }
    }

    /// Admits the range, then each part as whole blocks with the new bytes laid over the old ones; the orders are consecutive.
    fn admit_edge_write(&mut self, write: &EdgeWrite) -> Result<(Order, Order), RequestError> {
        if self.stopped.is_some() {
            return Err(RequestError::Stopped);
        }
        if write.edges.iter().any(|(_, bytes)| bytes.is_none()) {
            return Err(RequestError::Io);
        }
        for (offset, data) in &write.parts {
            self.check_range(write.volume, *offset, data.len() as u64)?;
        }
        let mut orders: Option<(Order, Order)> = None;
        if let Some((first, end, state)) = write.range {
            let order = self.orders.take(1);
            self.begin_range(write.volume, first, end, order, state);
            self.queue_record(Entry::Range { volume: write.volume, lba: first, count: end.0 - first.0, order, state }, order);
            orders = Some((order, order));
        }
        for (offset, data) in &write.parts {
            let first = offset / BLOCK_BYTES;
            let blocks = (offset + data.len() as u64).div_ceil(BLOCK_BYTES) - first;
            let mut whole = self.buffers.get(blocks as usize * BLOCK_SIZE);
            for (key, bytes) in &write.edges {
                let Some(at) = key.lba().0.checked_sub(first).filter(|at| *at < blocks) else { continue };
                let at = at as usize * BLOCK_SIZE;
                if let Some(bytes) = bytes {
                    whole[at..at + BLOCK_SIZE].copy_from_slice(bytes);
                }
            }
            let start = (offset - first * BLOCK_BYTES) as usize;
            whole[start..start + data.len()].copy_from_slice(data);
            let part = self.admit_blocks(write.volume, Lba(first), whole.freeze())?;
            orders = Some((orders.map_or(part.0, |o| o.0), part.1));
        }
        orders.ok_or(RequestError::Invalid)
    }
}
