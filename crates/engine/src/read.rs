//! Reads: pending blocks first, then the map; neighbours on one member are read together.
//!
//! 1 For each block: content on its way, else the map's entry. 2 Blocks without payload are slices of one buffer of zeroes or
//! ones. 3 Blocks whose payloads lie one after the other in one column become one fetch. 4 When all parts are there, the
//! edges are cut to the bytes asked for and the answer is the list of parts: no byte is copied on the way.

use crate::clean::RepairFor;
use crate::fetch::{FetchGoal, FetchSpec, Fetched};
use crate::pending::{BlockKey, Content};
use crate::{Engine, Notice, Outbox};
use windrow_io::{CONSTANT_BYTES, Completion, Extent, ExtentState, Payload, Reply, RequestError, RequestId};
use windrow_layout::checkpoint::MAP_PAGE_ENTRIES;
use windrow_layout::map_entry::{BlockState, MapEntry};
use windrow_units::{BLOCK_BYTES, BLOCK_SIZE, Column, Lba, MemberId, Place, SegmentId, VolumeId};

#[derive(Debug)]
struct Run {
    first: Lba,
    place: Place,
    segment: SegmentId,
    column: Column,
    row: u32,
    batch_end: u32,
    checksums: Vec<u32>,
}

#[derive(Debug)]
enum Part {
    Ready(Payload),
    Fetch(Run),
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct ReadRequest {
    id: RequestId,
    volume: VolumeId,
    /// Bytes to cut from the first and from the last part.
    skip: usize,
    length: usize,
    parts: Vec<Option<Payload>>,
    /// First block of each part.
    firsts: Vec<(Lba, Place)>,
    left: u32,
    failed: bool,
}

impl Engine {
    /// A read request.
    pub(crate) fn read_request(&mut self, id: RequestId, volume: VolumeId, offset: u64, length: u32, out: &mut Outbox) {
        if let Err(error) = self.check_range(volume, offset, u64::from(length)) {
            return self.fail(id, error, out);
        }
        self.counters.user_read_bytes += u64::from(length);
        let first = offset / BLOCK_BYTES;
        let end = (offset + u64::from(length)).div_ceil(BLOCK_BYTES);
        let mut parts: Vec<Part> = Vec::with_capacity(1);
        for lba in first..end {
            match self.read_block(volume, Lba(lba), &mut parts) {
                Ok(()) => {}
                Err(error) => return self.fail(id, error, out),
            }
        }
        let skip = (offset - first * BLOCK_BYTES) as usize;
        let mut read =
            ReadRequest { id, volume, skip, length: length as usize, parts: Vec::with_capacity(parts.len()), firsts: Vec::new(), left: 0, failed: false };
        let mut runs = Vec::new();
        for (i, part) in parts.into_iter().enumerate() {
            match part {
                Part::Ready(payload) => {
                    read.parts.push(Some(payload));
                    read.firsts.push((Lba(0), Place(0)));
                }
                Part::Fetch(run) => {
                    read.parts.push(None);
                    read.firsts.push((run.first, run.place));
                    runs.push((i as u32, run));
                }
            }
        }
        if runs.is_empty() {
            return self.finish_read(read, out);
        }
        read.left = runs.len() as u32;
        let at = self.reads.insert(read);
        for (part, run) in runs {
            let rows = run.checksums.len() as u32;
            let goal = FetchGoal::Read { read: at, part };
            let spec = FetchSpec { segment: run.segment, column: run.column, row: run.row, rows, checksums: run.checksums, goal };
            self.start_fetch(spec, out);
        }
    }

    /// Adds one block to the parts.
    fn read_block(&mut self, volume: VolumeId, lba: Lba, parts: &mut Vec<Part>) -> Result<(), RequestError> {
        if let Some(record) = self.pending.get(BlockKey::new(volume, lba)) {
            let content = record.newest.clone();
            self.push_content(content, parts);
            return Ok(());
        }
        self.settle_range(volume, lba);
        let entry = self.volumes.get(volume).map_or(MapEntry::HOLE, |v| v.map.get(&self.volumes.arena, lba));
        match entry.state() {
            Some(BlockState::Hole) => self.push_content(Content::Hole, parts),
            Some(BlockState::Zero) => self.push_content(Content::Zero, parts),
            Some(BlockState::Ones) => self.push_content(Content::Ones, parts),
            Some(BlockState::Plain) => self.push_mapped(lba, entry, parts),
            // States of later features never appear in a pool that this version opened; `Lost` is an error by definition.
            _ => return Err(RequestError::Io),
        }
        Ok(())
    }

    fn push_content(&self, content: Content, parts: &mut Vec<Part>) {
        let constant = match content {
            Content::Data(payload) => return parts.push(Part::Ready(payload)),
            Content::Ones => &self.ones,
            Content::Zero | Content::Hole => &self.zeroes,
        };
        if let Some(Part::Ready(last)) = parts.last_mut()
            && last.len() < CONSTANT_BYTES
            && std::ptr::eq(last.as_ptr(), constant.as_ptr())
        {
            *last = constant.slice(0, last.len() + BLOCK_SIZE);
            return;
        }
        parts.push(Part::Ready(constant.slice(0, BLOCK_SIZE)));
    }

    fn push_mapped(&self, lba: Lba, entry: MapEntry, parts: &mut Vec<Part>) {
        let segment = self.codec.segment(entry.place());
        let block = self.codec.block(entry.place());
        let (column, row, batch_end) = self.locate_block(segment, block);
        if let Some(Part::Fetch(run)) = parts.last_mut() {
            let next_row = run.row + run.checksums.len() as u32;
            if run.segment == segment && run.column == column && next_row == row && row < run.batch_end {
                run.checksums.push(entry.checksum());
                return;
            }
        }
        parts.push(Part::Fetch(Run { first: lba, place: entry.place(), segment, column, row, batch_end, checksums: vec![entry.checksum()] }));
    }

    /// Column, row and end of the batch of a data block.
    pub(crate) fn locate_block(&self, segment: SegmentId, block: u64) -> (Column, u32, u32) {
        let shape = self.zones.shape(segment);
        let (start, rows) = self.segments.get(segment).batch_at(shape.row_hint(block));
        let (column, row) = shape.locate(start, rows, block);
        (column, row, start + rows)
    }

    /// Part of a read has come, or blocks of it can not be had.
    pub(crate) fn read_part(&mut self, at: u32, part: u32, fetched: Fetched, out: &mut Outbox) {
        let Some(read) = self.reads.get_mut(at) else { return };
        let (volume, first) = (read.volume, read.firsts[part as usize].0);
        read.failed |= fetched.is_err();
        read.left -= 1;
        let ended = read.left == 0;
        match fetched {
            Ok(bytes) => read.parts[part as usize] = Some(bytes),
            Err(lost) => lost.into_iter().for_each(|row| self.note_lost(BlockKey::new(volume, Lba(first.0 + u64::from(row))), out)),
        }
        if ended && let Some(read) = self.reads.remove(at) {
            self.finish_read(read, out);
        }
    }

    fn finish_read(&mut self, read: ReadRequest, out: &mut Outbox) {
        if read.failed {
            return self.fail(read.id, RequestError::Io, out);
        }
        let mut parts: Vec<Payload> = read.parts.into_iter().flatten().collect();
        if read.skip > 0
            && let Some(first) = parts.first_mut()
        {
            *first = first.slice(read.skip, first.len() - read.skip);
        }
        let surplus = parts.iter().map(Payload::len).sum::<usize>() - read.length;
        if surplus > 0
            && let Some(last) = parts.last_mut()
        {
            *last = last.slice(0, last.len() - surplus);
        }
        out.completions.push(Completion { id: read.id, result: Ok(Reply::Data(parts)), orders: None });
    }

    /// A read was answered from redundancy although its member is online: say so, and log the block anew so that the damaged
    /// copy is no longer needed.
    pub(crate) fn note_repair(&mut self, member: MemberId, goal: FetchGoal, bytes: Option<&Payload>, out: &mut Outbox) {
        let (FetchGoal::Read { read, part }, row) = self.whole_goal(goal) else { return };
        let Some(read) = self.reads.get_mut(read) else { return };
        let (volume, (first, place)) = (read.volume, read.firsts[part as usize]);
        let first = Lba(first.0 + u64::from(row));
        out.notices.push(Notice::Repaired { volume, lba: first.0, member });
        let Some(bytes) = bytes else { return };
        let block = self.codec.block(place) + u64::from(row);
        let segment = self.codec.segment(place);
        for i in 0..bytes.len() / BLOCK_SIZE {
            let from = self.codec.pack_block(segment, block + i as u64);
            let key = BlockKey::new(volume, Lba(first.0 + i as u64));
            self.queue_repair(RepairFor::Read, key, windrow_units::Order(0), from, bytes.slice(i * BLOCK_SIZE, BLOCK_SIZE));
        }
    }

    /// Reads one block for a read-modify-write.
    pub(crate) fn read_edge(&mut self, key: BlockKey, write: u32, edge: u32, out: &mut Outbox) {
        let mut parts = Vec::with_capacity(1);
        match self.read_block(key.volume(), key.lba(), &mut parts) {
            Err(_) => self.edge_read(write, edge, None),
            Ok(()) => match parts.pop() {
                Some(Part::Ready(payload)) => self.edge_read(write, edge, Some(payload)),
                Some(Part::Fetch(run)) => {
                    let goal = FetchGoal::Edge { write, edge };
                    let spec = FetchSpec { segment: run.segment, column: run.column, row: run.row, rows: 1, checksums: run.checksums, goal };
                    self.start_fetch(spec, out);
                }
                None => self.edge_read(write, edge, None),
            },
        }
    }

    /// Block status: runs of equal state from the offset on.
    pub(crate) fn block_status(&mut self, id: RequestId, volume: VolumeId, offset: u64, length: u64, max_extents: u32, out: &mut Outbox) {
        if let Err(error) = self.check_range(volume, offset, length) {
            return self.fail(id, error, out);
        }
        // One answer looks at a bounded part of the map; the client asks on from where it ends.
        let bound = 1u64 << 20;
        let end = offset + length;
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = offset;
        let mut looked = 0;
        while at < end && looked < bound {
            looked += 1;
            let lba = Lba(at / BLOCK_BYTES);
            let (state, blocks) = self.status_at(volume, lba);
            let stop = ((lba.0 + blocks) * BLOCK_BYTES).min(end);
            let full = extents.len() >= max_extents.max(1) as usize;
            match extents.last_mut() {
                Some(last) if last.state == state => last.length += stop - at,
                _ if full => break,
                _ => extents.push(Extent { length: stop - at, state }),
            }
            at = stop;
        }
        out.completions.push(Completion { id, result: Ok(Reply::Extents(extents)), orders: None });
    }

    /// State of a block and for how many blocks at least it goes on (whole missing pages are skipped).
    fn status_at(&mut self, volume: VolumeId, lba: Lba) -> (ExtentState, u64) {
        if let Some(record) = self.pending.get(BlockKey::new(volume, lba)) {
            let state = match record.newest {
                Content::Data(_) | Content::Ones => ExtentState::Data,
                Content::Zero => ExtentState::Zero,
                Content::Hole => ExtentState::Hole,
            };
            return (state, 1);
        }
        self.settle_range(volume, lba);
        let Some(v) = self.volumes.get(volume) else { return (ExtentState::Hole, 1) };
        let page = MAP_PAGE_ENTRIES as u64;
        if self.pending.is_empty() && v.map.slot(lba.0 / page).is_none() {
            let next = v.map.next_page(lba.0 / page + 1, v.blocks().div_ceil(page)).unwrap_or(v.blocks().div_ceil(page));
            return (ExtentState::Hole, next * page - lba.0);
        }
        let state = match v.map.get(&self.volumes.arena, lba).state() {
            Some(BlockState::Hole) => ExtentState::Hole,
            Some(BlockState::Zero) => ExtentState::Zero,
            _ => ExtentState::Data,
        };
        (state, 1)
    }
}
