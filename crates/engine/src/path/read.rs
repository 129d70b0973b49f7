//! Reads: pending blocks first, then the map; adjacent blocks on one member are read together.
//!
//! 1. Each block comes from content in flight, else from the map's entry.
//! 2. Blocks without payload are slices of one buffer of zeroes or ones.
//! 3. Blocks with adjacent payloads in one column become one fetch, separately for uncompressed and
//!    compressed ones.
//! 4. Compressed blocks are decompressed on arrival, larger numbers of them by a job.
//! 5. When all parts have arrived, the edges are trimmed to the requested bytes, and the answer is
//!    the list of parts. No byte of an uncompressed block is copied.

use crate::api::Notice;
use crate::base::limits::{INLINE_DECOMPRESS_BLOCKS, STATUS_BLOCKS};
use crate::base::piece::Piece;
use crate::path::Paths;
use crate::path::cleaning::RepairFor;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::fetch::{Ended, FetchGoal, FetchSpec, Fetched, Repaired};
use crate::store::jobs::{DecompressWork, Job, Work};
use crate::store::pending::{BlockKey, Content};
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_format::map_entry::{BlockState, MapEntry};
use windrow_geometry::Column;
use windrow_io::{
    CONSTANT_BYTES, Completion, Extent, ExtentState, Payload, Reply, RequestError, RequestId,
};
use windrow_types::{
    ADDRESS_UNIT, Address, AddressCodec, BLOCK_BYTES, BLOCK_SIZE, FULL_BLOCK_UNITS, Lba, SegmentId,
    VolumeId,
};

/// Blocks that are read together.
#[derive(Debug)]
pub(crate) struct Run {
    first: Lba,
    segment: SegmentId,
    /// Number of the data block in its first row, within the segment.
    block: u64,
    column: Column,
    row: u32,
    rows: u32,
    batch_end: u32,
    pub(crate) pieces: Vec<Piece>,
}

impl Run {
    fn is_compressed(&self) -> bool {
        self.pieces.first().is_some_and(Piece::is_compressed)
    }

    pub(crate) fn spec(self, goal: FetchGoal) -> FetchSpec {
        FetchSpec {
            segment: self.segment,
            column: self.column,
            row: self.row,
            rows: self.rows,
            pieces: self.pieces,
            goal,
            singly: false,
        }
    }
}

/// Properties of a part that is fetched.
#[derive(Debug)]
struct PartInfo {
    /// Its first block.
    first: Lba,
    /// Address of its first row: segment, and number of the data block.
    segment: SegmentId,
    block: u64,
    /// Its pieces, if they are compressed.
    compressed: Vec<Piece>,
}

impl PartInfo {
    /// Address of the block with this number.
    fn place(&self, codec: &AddressCodec, number: u32) -> Address {
        let piece = self
            .compressed
            .get(number as usize)
            .copied()
            .unwrap_or_else(|| Piece::row(number, 0));
        codec.pack(
            self.segment,
            self.block * u64::from(FULL_BLOCK_UNITS) + u64::from(piece.at) / ADDRESS_UNIT as u64,
        )
    }
}

/// A part of the requested bytes: available, or to be fetched.
#[derive(Debug)]
pub(crate) enum Part {
    Ready(Payload),
    Fetch(Run),
}

/// A read in progress.
#[derive(Debug)]
pub(crate) struct ReadRequest {
    id: RequestId,
    volume: VolumeId,
    /// Bytes to trim from the first and from the last part.
    skip: usize,
    length: usize,
    parts: Vec<Option<Payload>>,
    /// Properties of each part.
    infos: Vec<PartInfo>,
    left: u32,
    failed: bool,
}

impl Paths {
    /// Handles a read request.
    pub(crate) fn read_request(
        &mut self,
        id: RequestId,
        volume: VolumeId,
        offset: u64,
        length: u32,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if let Err(error) = store.volumes.check_range(volume, offset, u64::from(length)) {
            return out.fail(id, error);
        }
        store.observe.counters.user_read_bytes += u64::from(length);
        let first = offset / BLOCK_BYTES;
        let end = (offset + u64::from(length)).div_ceil(BLOCK_BYTES);
        let mut parts: Vec<Part> = Vec::with_capacity(1);
        for lba in first..end {
            match self.read_block(volume, Lba(lba), &mut parts, store) {
                Ok(()) => {}
                Err(error) => {
                    // It has no address: a salvage, or the loss of shared content, left it behind.
                    self.note_lost(BlockKey::new(volume, Lba(lba)), store, out);
                    return out.fail(id, error);
                }
            }
        }
        let skip = (offset - first * BLOCK_BYTES) as usize;
        let mut read = ReadRequest {
            id,
            volume,
            skip,
            length: length as usize,
            parts: Vec::with_capacity(parts.len()),
            infos: Vec::new(),
            left: 0,
            failed: false,
        };
        let mut runs = Vec::new();
        for (i, part) in parts.into_iter().enumerate() {
            match part {
                Part::Ready(payload) => {
                    read.parts.push(Some(payload));
                    read.infos.push(PartInfo {
                        first: Lba(0),
                        segment: SegmentId::NONE,
                        block: 0,
                        compressed: Vec::new(),
                    });
                }
                Part::Fetch(run) => {
                    read.parts.push(None);
                    let compressed = if run.is_compressed() {
                        run.pieces.clone()
                    } else {
                        Vec::new()
                    };
                    read.infos.push(PartInfo {
                        first: run.first,
                        segment: run.segment,
                        block: run.block,
                        compressed,
                    });
                    runs.push((i as u32, run));
                }
            }
        }
        if runs.is_empty() {
            return self.finish_read(read, out);
        }
        read.left = runs.len() as u32;
        let at = self.user_reads.insert(read);
        for (part, run) in runs {
            let ended = store.start_fetch(run.spec(FetchGoal::Read { read: at, part }), out);
            self.deliver(ended, store, out);
        }
    }

    /// Adds one block to the parts.
    fn read_block(
        &mut self,
        volume: VolumeId,
        lba: Lba,
        parts: &mut Vec<Part>,
        store: &mut Store,
    ) -> Result<(), RequestError> {
        if let Some(record) = self.log.pending.get(BlockKey::new(volume, lba)) {
            let content = record.newest.clone();
            self.push_content(content, parts, store);
            return Ok(());
        }
        self.settle_range(volume, lba, store);
        let entry = store.volumes.look_up(volume, lba);
        match entry.state() {
            Some(BlockState::Hole) => self.push_content(Content::Hole, parts, store),
            Some(BlockState::Zero) => self.push_content(Content::Zero, parts, store),
            Some(BlockState::Ones) => self.push_content(Content::Ones, parts, store),
            Some(BlockState::Plain | BlockState::Lz4) => self.push_mapped(lba, entry, parts, store),
            Some(BlockState::Shared) => match store.volumes.content_of(entry) {
                Some(content) => self.push_mapped(lba, content, parts, store),
                None => return Err(RequestError::Io),
            },
            // States of later features never appear in a pool that this version opened. `Lost` is
            // an error by definition.
            _ => return Err(RequestError::Io),
        }
        Ok(())
    }

    fn push_content(&self, content: Content, parts: &mut Vec<Part>, store: &Store) {
        let constant = match content {
            Content::Data(payload) => return parts.push(Part::Ready(payload)),
            Content::Ones => &store.memory.ones,
            Content::Zero | Content::Hole => &store.memory.zeroes,
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

    pub(crate) fn push_mapped(
        &self,
        lba: Lba,
        entry: MapEntry,
        parts: &mut Vec<Part>,
        store: &Store,
    ) {
        let segment = store.pool.codec.segment(entry.address());
        let block = store.pool.codec.block(entry.address());
        let (column, row, batch_end) = self.locate_block(segment, block, store);
        let within =
            (store.pool.codec.offset_units(entry.address()) % u64::from(FULL_BLOCK_UNITS)) as u32;
        let piece = |row: u32| {
            Piece::of_units(
                row * u32::from(FULL_BLOCK_UNITS) + within,
                entry.length_units(),
                entry.checksum(),
            )
        };
        if let Some(Part::Fetch(run)) = parts.last_mut()
            && run.segment == segment
            && run.column == column
            && row < run.batch_end
            && row >= run.row
            && row <= run.row + run.rows
        {
            let (next, end) = (
                piece(row - run.row),
                run.pieces.last().map_or(0, |last| last.at + last.length),
            );
            if next.at >= end && next.is_compressed() == run.is_compressed() {
                run.rows = next.rows().1 + 1;
                run.pieces.push(next);
                return;
            }
        }
        let first = piece(0);
        parts.push(Part::Fetch(Run {
            first: lba,
            segment,
            block,
            column,
            row,
            rows: first.rows().1 + 1,
            batch_end,
            pieces: vec![first],
        }));
    }

    /// Column, row and end of the batch of a data block.
    pub(crate) fn locate_block(
        &self,
        segment: SegmentId,
        block: u64,
        store: &Store,
    ) -> (Column, u32, u32) {
        let shape = store.pool.zones.shape(segment);
        let (start, rows) = store.segments.get(segment).batch_at(shape.row_hint(block));
        let (column, row) = shape.locate(start, rows, block);
        (column, row, start + rows)
    }

    /// Handles a part of a read that has arrived, or has unreadable blocks.
    pub(crate) fn read_part(
        &mut self,
        at: u32,
        part: u32,
        fetched: Fetched,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        let Some(read) = self.user_reads.get_mut(at) else {
            return;
        };
        let info = &mut read.infos[part as usize];
        if let Ok(stored) = &fetched
            && !info.compressed.is_empty()
        {
            // Repairs are noted before.
            let pieces = std::mem::take(&mut info.compressed);
            let is_small = pieces.len() <= INLINE_DECOMPRESS_BLOCKS;
            let (buffers, codecs) = (store.memory.buffers.clone(), store.memory.codecs.clone());
            let mut work = DecompressWork {
                read: at,
                part,
                stored: stored.clone(),
                pieces,
                buffers,
                codecs,
                decompressed: Err(Vec::new()),
            };
            if !is_small {
                return out.jobs.push(Job(Work::Decompress(Box::new(work))));
            }
            work.run();
            return self.part_decompressed(work, store, out);
        }
        let (volume, first) = (read.volume, info.first);
        read.failed |= fetched.is_err();
        read.left -= 1;
        let ended = read.left == 0;
        match fetched {
            Ok(bytes) => {
                let end = Lba(first.0 + (bytes.len() / BLOCK_SIZE) as u64);
                read.parts[part as usize] = Some(bytes);
                self.damage.clear(volume, first, end);
            }
            Err(lost) => {
                let addresses: Vec<(BlockKey, Address)> = lost
                    .into_iter()
                    .map(|number| {
                        (
                            BlockKey::new(volume, Lba(first.0 + u64::from(number))),
                            info.place(&store.pool.codec, number),
                        )
                    })
                    .collect();
                // A block that has been rewritten since is not lost.
                for (key, _) in addresses
                    .into_iter()
                    .filter(|(key, address)| self.is_newest(*key, *address, store))
                    .collect::<Vec<_>>()
                {
                    self.note_lost(key, store, out);
                }
            }
        }
        if ended && let Some(read) = self.user_reads.remove(at) {
            self.finish_read(read, out);
        }
    }

    /// True if the newest version of a block is the one at this address.
    fn is_newest(&mut self, key: BlockKey, address: Address, store: &mut Store) -> bool {
        self.settle_range(key.volume(), key.lba(), store);
        let of = |volume, lba| store.volumes.look_up(volume, lba);
        let own = of(key.volume(), key.lba());
        let stored = own.shared_id().map_or(own, |id| of(VolumeId::SHARED, id));
        self.log.pending.get(key).is_none() && stored.has_payload() && stored.address() == address
    }

    /// Handles a decompressed part of a read.
    pub(crate) fn part_decompressed(
        &mut self,
        work: DecompressWork,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if work.decompressed.is_err()
            && let Some(read) = self.user_reads.get_mut(work.read)
        {
            read.infos[work.part as usize].compressed = work.pieces;
        }
        self.read_part(work.read, work.part, work.decompressed, store, out);
    }

    fn finish_read(&mut self, read: ReadRequest, out: &mut Outbox) {
        if read.failed {
            return out.fail(read.id, RequestError::Io);
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
        out.completions.push(Completion {
            id: read.id,
            result: Ok(Reply::Data(parts)),
            lsns: None,
        });
    }
}

impl Paths {
    /// Reports reads that were answered from redundancy although their member is online. Rewrites
    /// the blocks, so that the damaged copy is no longer needed.
    fn note_repairs(&mut self, store: &mut Store, out: &mut Outbox) {
        for Repaired {
            member,
            goal,
            number,
            pieces,
            bytes,
        } in store.reads.take_repaired()
        {
            let FetchGoal::Read { read, part } = goal else {
                continue;
            };
            let Some(read) = self.user_reads.get_mut(read) else {
                continue;
            };
            let (volume, info) = (read.volume, &read.infos[part as usize]);
            let first = Lba(info.first.0 + u64::from(number));
            let addresses: Vec<Address> = (number..)
                .take(pieces.len())
                .map(|number| info.place(&store.pool.codec, number))
                .collect();
            out.notices.push(Notice::Repaired {
                volume,
                lba: first.0,
                member,
            });
            for ((i, piece), from) in (0..).zip(pieces).zip(addresses) {
                let key = BlockKey::new(volume, Lba(first.0 + i));
                let stored = bytes.slice(piece.at as usize, piece.length as usize);
                self.queue_repair(
                    RepairFor::Read,
                    (key, windrow_types::Lsn(0), from),
                    piece.checksum,
                    stored,
                    store,
                );
            }
        }
    }

    /// Reads one block for a read-modify-write.
    pub(crate) fn read_edge(
        &mut self,
        key: BlockKey,
        write: u32,
        edge: u32,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        let mut parts = Vec::with_capacity(1);
        match self.read_block(key.volume(), key.lba(), &mut parts, store) {
            Err(_) => self.admission.edge_read(write, edge, None),
            Ok(()) => match parts.pop() {
                Some(Part::Ready(payload)) => self.admission.edge_read(write, edge, Some(payload)),
                Some(Part::Fetch(run)) => {
                    let compressed = run.pieces.first().copied().filter(Piece::is_compressed);
                    let ended = store.start_fetch(
                        run.spec(FetchGoal::Edge {
                            write,
                            edge,
                            compressed,
                        }),
                        out,
                    );
                    self.deliver(ended, store, out);
                }
                None => self.admission.edge_read(write, edge, None),
            },
        }
    }

    /// Hands the result of a fetch to its reader; returns it if it is not one of the data path.
    pub(crate) fn deliver(&mut self, ended: Ended, store: &mut Store, out: &mut Outbox) -> Ended {
        self.note_repairs(store, out);
        let (goal, fetched) = ended?;
        match goal {
            FetchGoal::Read { read, part } => self.read_part(read, part, fetched, store, out),
            FetchGoal::Edge {
                write,
                edge,
                compressed,
            } => {
                let bytes = fetched
                    .ok()
                    .and_then(|bytes| store.memory.decompressed(bytes, compressed));
                self.admission.edge_read(write, edge, bytes);
            }
            FetchGoal::Compare { at } => self.contents_read(at, fetched, store),
            FetchGoal::IndexPage { at, .. } => self.index_page_read(at, fetched.ok(), store),
            goal => return Some((goal, fetched)),
        }
        None
    }

    /// Block status: runs of equal state from the offset on.
    pub(crate) fn block_status(
        &mut self,
        volume: VolumeId,
        offset: u64,
        length: u64,
        max_extents: u32,
        store: &mut Store,
    ) -> Result<Vec<Extent>, RequestError> {
        store.volumes.check_range(volume, offset, length)?;
        // The client continues from the end of the answer.
        let end = offset + length;
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = offset;
        let mut looked = 0;
        while at < end && looked < STATUS_BLOCKS {
            looked += 1;
            let lba = Lba(at / BLOCK_BYTES);
            let (state, blocks) = self.status_at(volume, lba, store);
            let stop = ((lba.0 + blocks) * BLOCK_BYTES).min(end);
            let full = extents.len() >= max_extents.max(1) as usize;
            match extents.last_mut() {
                Some(last) if last.state == state => last.length += stop - at,
                _ if full => break,
                _ => extents.push(Extent {
                    length: stop - at,
                    state,
                }),
            }
            at = stop;
        }
        Ok(extents)
    }

    /// State of a block, and the number of blocks that share it at least (absent pages are skipped
    /// as a whole).
    fn status_at(&mut self, volume: VolumeId, lba: Lba, store: &mut Store) -> (ExtentState, u64) {
        if let Some(record) = self.log.pending.get(BlockKey::new(volume, lba)) {
            let state = match record.newest {
                Content::Data(_) | Content::Ones => ExtentState::Data,
                Content::Zero => ExtentState::Zero,
                Content::Hole => ExtentState::Hole,
            };
            return (state, 1);
        }
        self.settle_range(volume, lba, store);
        let Some(v) = store.volumes.get(volume) else {
            return (ExtentState::Hole, 1);
        };
        let page = MAP_PAGE_ENTRIES as u64;
        if v.map.slot(lba.0 / page).is_none() {
            // Versions in flight to such a page will not be installed.
            let next = v
                .map
                .next_page(lba.0 / page + 1, v.blocks().div_ceil(page))
                .unwrap_or(v.blocks().div_ceil(page));
            return (ExtentState::Hole, next * page - lba.0);
        }
        let state = match v.map.get(&store.volumes.arena, lba).state() {
            Some(BlockState::Hole) => ExtentState::Hole,
            Some(BlockState::Zero) => ExtentState::Zero,
            _ => ExtentState::Data,
        };
        (state, 1)
    }
}
