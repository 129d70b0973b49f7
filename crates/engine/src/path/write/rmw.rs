//! Read-modify-write: changes with unaligned ends.
//!
//! 1. Hold all blocks of the change against every other change, and read its edge blocks.
//! 2. When they are read and the log has room, lay the new bytes over the old ones. The result is
//!    whole blocks: an edge, the aligned middle (the client's own buffer), an edge.
//! 3. Admit them like any large write (`chunked.rs`); release the blocks with the last chunk.
//!
//! A zeroed range with unaligned ends is its range record, then its edges. An edge may need space
//! that a full pool does not have: zeroes within a block of ones, which has no payload. A trim must
//! still succeed, as it is what empties a full pool, so it leaves such an edge as it is. A write of
//! zeroes is refused as a whole.

use super::admit::Zeroing;
use super::chunked::{ChunkedTarget, ChunkedWrite};
use crate::path::Paths;
use crate::path::write::Admission;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pending::BlockKey;
use windrow_format::batch::{Entry, RangeState};
use windrow_io::{Payload, RequestError, RequestId};
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE, Lba, Lsn, VolumeId};

/// A change with unaligned ends whose edge blocks are being read: a write, or the ends of a zeroed
/// range with the whole blocks between them.
#[derive(Debug)]
pub(crate) struct RmwChange {
    id: RequestId,
    volume: VolumeId,
    fua: bool,
    /// Byte offset and bytes, ascending.
    parts: Vec<(u64, Payload)>,
    /// Whole blocks `first .. end` that become holes or zeroes.
    range: Option<(Lba, Lba, RangeState)>,
    /// Blocks that are changed in part, and their old bytes.
    edges: Vec<(BlockKey, Option<Payload>)>,
    left: usize,
    /// Bytes of user data in the parts.
    user_bytes: u64,
    /// A trim: edges that cannot be stored stay as they are.
    trim: bool,
    /// Number of volume shrinks when the edges were read.
    cuts: u64,
}

impl RmwChange {
    /// A write of bytes.
    pub(super) fn write(
        id: RequestId,
        volume: VolumeId,
        fua: bool,
        offset: u64,
        data: Payload,
    ) -> Self {
        let user_bytes = data.len() as u64;
        Self {
            id,
            volume,
            fua,
            parts: vec![(offset, data)],
            range: None,
            edges: Vec::new(),
            left: 0,
            user_bytes,
            trim: false,
            cuts: 0,
        }
    }

    pub(super) fn id(&self) -> RequestId {
        self.id
    }

    /// True if it begins with a walk over the map.
    pub(super) fn begins_walk(&self) -> bool {
        self.range.is_some()
    }

    /// True if it is a write. Other changes with edges free space.
    pub(super) fn is_data(&self) -> bool {
        !self.trim && self.range.is_none()
    }

    /// First and last block that the change touches.
    pub(super) fn span(&self) -> (BlockKey, BlockKey) {
        let starts = self
            .parts
            .iter()
            .map(|(offset, _)| offset / BLOCK_BYTES)
            .chain(self.range.map(|r| r.0.0));
        let ends = self
            .parts
            .iter()
            .map(|(offset, data)| (offset + data.len() as u64 - 1) / BLOCK_BYTES)
            .chain(self.range.map(|r| r.1.0 - 1));
        let key = |lba| BlockKey::new(self.volume, Lba(lba));
        (key(starts.min().unwrap_or(0)), key(ends.max().unwrap_or(0)))
    }

    /// Blocks that the parts change only in part.
    fn edge_keys(&self) -> Vec<BlockKey> {
        let mut keys = Vec::with_capacity(2);
        for (offset, data) in &self.parts {
            for at in [*offset, offset + data.len() as u64] {
                let key = BlockKey::new(self.volume, Lba(at / BLOCK_BYTES));
                if !at.is_multiple_of(BLOCK_BYTES) && !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }
}

impl Admission {
    /// An edge block has been read (`None`: it could not be).
    pub(crate) fn edge_read(&mut self, at: u32, edge: u32, bytes: Option<Payload>) {
        let Some(write) = self.rmw_changes.get_mut(at) else {
            return;
        };
        write.edges[edge as usize].1 = bytes;
        write.left -= 1;
        if write.left > 0 {
            return;
        }
        let Some(write) = self.rmw_changes.remove(at) else {
            return;
        };
        // Admitted in the next round of `advance`, never from here: a reader that answers at once
        // would call itself again.
        self.rmw_ready.push_back(write);
    }

    /// Releases held blocks: requests that stepped aside for them come first now.
    pub(crate) fn release(&mut self, span: (BlockKey, BlockKey)) {
        if let Some(at) = self.held.iter().position(|held| *held == span) {
            self.held.swap_remove(at);
        }
        for request in std::mem::take(&mut self.stepped_aside).into_iter().rev() {
            self.waiting.push_front(request);
        }
    }
}

impl Paths {
    /// A range with unaligned ends: the parts of blocks at its ends are zeroed by writes.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one request, passed on once"
    )]
    pub(super) fn zero_edges(
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
        let first_whole = offset.next_multiple_of(BLOCK_BYTES);
        let last_whole = end / BLOCK_BYTES * BLOCK_BYTES;
        let ends = if first_whole > last_whole {
            vec![(offset, length)]
        } else {
            vec![
                (offset, first_whole - offset),
                (last_whole, end - last_whole),
            ]
        };
        let parts = ends
            .into_iter()
            .filter(|(_, length)| *length > 0)
            .map(|(offset, length)| (offset, store.memory.zeroes.slice(0, length as usize)))
            .collect();
        let range = (first_whole < last_whole).then_some((
            Lba(first_whole / BLOCK_BYTES),
            Lba(last_whole / BLOCK_BYTES),
            zeroing.state(),
        ));
        let trim = zeroing == Zeroing::Trim;
        self.begin_rmw_write(
            RmwChange {
                id,
                volume,
                fua,
                parts,
                range,
                edges: Vec::new(),
                left: 0,
                user_bytes: 0,
                trim,
                cuts: 0,
            },
            store,
            out,
        );
    }

    /// Holds the blocks of the change and starts the reads of its edges.
    pub(super) fn begin_rmw_write(
        &mut self,
        write: RmwChange,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        self.admission.held.push(write.span());
        self.read_edges(write, store, out);
    }

    /// Starts the reads of the edges of a change whose blocks are held.
    fn read_edges(&mut self, mut write: RmwChange, store: &mut Store, out: &mut Outbox) {
        let keys = write.edge_keys();
        write.cuts = store.volumes.cuts();
        write.edges = keys.iter().map(|k| (*k, None)).collect();
        write.left = keys.len();
        let at = self.admission.rmw_changes.insert(write);
        for (edge, key) in keys.into_iter().enumerate() {
            self.read_edge(key, at, edge as u32, store, out);
        }
    }

    /// Admits the range and hands the blocks on, or refuses all of it; the edges are read.
    pub(super) fn admit_rmw_write(
        &mut self,
        write: RmwChange,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if write.cuts != store.volumes.cuts() {
            // A shrink may have cut off the blocks that were read, and the volume may have grown
            // over them again.
            return self.read_edges(write, store, out);
        }
        match self.whole_blocks(&write, store) {
            Err(error) => {
                if error == RequestError::Io {
                    self.note_lost_edges(&write, store, out);
                }
                self.admission.release(write.span());
                out.fail(write.id, error);
            }
            Ok((_, 0)) if write.range.is_none() => {
                // A trim with no blocks left. It has an LSN all the same, as every change.
                let lsn = self.durability.lsns.take(1);
                self.admission.queue_record(
                    &mut self.durability,
                    Entry::Covered {
                        first: lsn,
                        count: 1,
                    },
                    lsn,
                );
                self.place(store, out);
                self.admission.release(write.span());
                self.finish_admission(write.id, Ok((lsn, lsn)), write.fua, store, out);
            }
            Ok((pieces, blocks)) => {
                let first = self
                    .durability
                    .lsns
                    .take(blocks + u64::from(write.range.is_some()));
                let mut next = first;
                if let Some((from, end, state)) = write.range {
                    self.begin_range(write.volume, from, end, first, state, store);
                    self.admission.queue_record(
                        &mut self.durability,
                        Entry::Range {
                            volume: write.volume,
                            lba: from,
                            count: end.0 - from.0,
                            lsn: first,
                            state,
                        },
                        first,
                    );
                    self.place(store, out);
                    next = Lsn(first.0 + 1);
                }
                if blocks == 0 {
                    self.admission.release(write.span());
                    return self.finish_admission(
                        write.id,
                        Ok((first, first)),
                        write.fua,
                        store,
                        out,
                    );
                }
                let held = Some(write.span());
                let target = ChunkedTarget {
                    id: write.id,
                    volume: write.volume,
                    fua: write.fua,
                    user_bytes: write.user_bytes,
                    held,
                };
                self.admission.chunked =
                    Some(ChunkedWrite::new(target, pieces, first, next, blocks));
            }
        }
    }

    /// Reports unreadable edge blocks, as a read of them would.
    fn note_lost_edges(&mut self, write: &RmwChange, store: &mut Store, out: &mut Outbox) {
        for (key, _) in write.edges.iter().filter(|(_, bytes)| bytes.is_none()) {
            let entry = store.volumes.look_up(key.volume(), key.lba());
            if entry.is_data() && self.log.pending.get(*key).is_none() {
                self.note_lost(*key, store, out);
            }
        }
    }

    /// The change as whole, surveyed blocks, and their number.
    fn whole_blocks(
        &mut self,
        write: &RmwChange,
        store: &mut Store,
    ) -> Result<(Vec<(Lba, Payload)>, u64), RequestError> {
        if store.pool.stopped.is_some() {
            return Err(RequestError::Stopped);
        }
        if write.edges.iter().any(|(_, bytes)| bytes.is_none()) {
            return Err(RequestError::Io);
        }
        // The volume may have been deleted or shrunk while the edges were read.
        if let Some((first, end, _)) = write.range {
            store.volumes.check_range(
                write.volume,
                first.0 * BLOCK_BYTES,
                (end.0 - first.0) * BLOCK_BYTES,
            )?;
        }
        let mut pieces = Vec::with_capacity(3);
        for (offset, data) in &write.parts {
            store
                .volumes
                .check_range(write.volume, *offset, data.len() as u64)?;
            self.cut_at_blocks(write, *offset, data, &mut pieces, store);
        }
        if write.trim {
            return self.what_fits(write.volume, pieces, store);
        }
        let blocks = self.survey_pieces(write.volume, &pieces, store)?;
        Ok((pieces, blocks))
    }

    /// Edges of a trim that can be stored (each is one block).
    fn what_fits(
        &mut self,
        volume: VolumeId,
        pieces: Vec<(Lba, Payload)>,
        store: &mut Store,
    ) -> Result<(Vec<(Lba, Payload)>, u64), RequestError> {
        let refused = (
            store.observe.counters.refused_space,
            store.observe.counters.refused_map_pages,
        );
        let mut kept = Vec::with_capacity(pieces.len());
        for piece in pieces {
            kept.push(piece);
            match self.survey_pieces(volume, &kept, store) {
                Ok(_) => {}
                Err(RequestError::NoSpace) => drop(kept.pop()),
                Err(error) => return Err(error),
            }
        }
        // The survey refuses no request: its counts do not stand.
        (
            store.observe.counters.refused_space,
            store.observe.counters.refused_map_pages,
        ) = refused;
        let blocks = kept.len() as u64;
        Ok((kept, blocks))
    }

    /// Splits bytes at `offset` into a block at each unaligned end, completed with its old bytes,
    /// and the whole blocks between.
    fn cut_at_blocks(
        &self,
        write: &RmwChange,
        offset: u64,
        data: &Payload,
        pieces: &mut Vec<(Lba, Payload)>,
        store: &Store,
    ) {
        let mut taken = 0;
        while taken < data.len() {
            let at = offset + taken as u64;
            let (lba, skip) = (Lba(at / BLOCK_BYTES), (at % BLOCK_BYTES) as usize);
            let left = data.len() - taken;
            if skip == 0 && left >= BLOCK_SIZE {
                let whole = left / BLOCK_SIZE * BLOCK_SIZE;
                pieces.push((lba, data.slice(taken, whole)));
                taken += whole;
                continue;
            }
            let length = left.min(BLOCK_SIZE - skip);
            let mut block = store.memory.buffers.get(BLOCK_SIZE);
            let old = write
                .edges
                .iter()
                .find(|(key, _)| key.lba() == lba)
                .and_then(|(_, bytes)| bytes.as_ref());
            match old {
                Some(old) => block.copy_from_slice(old),
                None => block.fill(0),
            }
            block[skip..skip + length].copy_from_slice(&data[taken..taken + length]);
            pieces.push((lba, block.freeze()));
            taken += length;
        }
    }
}
