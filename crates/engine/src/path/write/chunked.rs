//! Chunked admission: writes larger than the room in the log, and writes whose unaligned edges have
//! been read.
//!
//! 1. Before anything is admitted the whole write is surveyed: every map page it needs exists, and
//!    the pool has space for all of its blocks. Otherwise it is refused with nothing written.
//! 2. All its LSNs are taken at once. Until it is done, no other request takes LSNs and nothing
//!    that takes space is admitted.
//! 3. Each chunk is as large as the room permits. Chunks are visible to reads as they are admitted
//!    (the unit of atomicity is the block).
//! 4. The write is answered with its last chunk.
//!
//! So a chunk is never refused for space after earlier chunks were admitted. That holds even if
//! activating a layout lowers the plan by a few segments meanwhile. If a chunk fails for another
//! reason, the admitted ones stay, as after any write that ends in an error. The remaining LSNs are
//! marked as used in the log.

use crate::path::Paths;
use crate::path::reduction::Need;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pending::BlockKey;
use crate::store::plan::DATA_UNITS;
use windrow_format::batch::Entry;
use windrow_io::{Payload, RequestError, RequestId};
use windrow_types::{BLOCK_SIZE, Lba, Lsn, VolumeId};

/// Properties of a write other than its blocks.
#[derive(Debug)]
pub(super) struct ChunkedTarget {
    pub(super) id: RequestId,
    pub(super) volume: VolumeId,
    pub(super) fua: bool,
    /// Bytes of user data.
    pub(super) user_bytes: u64,
    /// Blocks that are released when it is done.
    pub(super) held: Option<(BlockKey, BlockKey)>,
}

/// A write in chunked admission.
#[derive(Debug)]
pub(crate) struct ChunkedWrite {
    target: ChunkedTarget,
    /// Whole blocks, ascending.
    pieces: Vec<(Lba, Payload)>,
    /// Next piece, and the number of its blocks that are admitted.
    piece: usize,
    done: u64,
    /// First LSN of the request; next and last LSN of its blocks.
    first: Lsn,
    next: Lsn,
    last: Lsn,
}

impl ChunkedWrite {
    /// `blocks` whole blocks in `pieces`, with LSNs from `next` on; the LSNs of the request begin
    /// with `first`.
    pub(super) fn new(
        target: ChunkedTarget,
        pieces: Vec<(Lba, Payload)>,
        first: Lsn,
        next: Lsn,
        blocks: u64,
    ) -> Self {
        Self {
            target,
            pieces,
            piece: 0,
            done: 0,
            first,
            next,
            last: Lsn(next.0 + blocks - 1),
        }
    }

    pub(super) fn id(&self) -> RequestId {
        self.target.id
    }

    /// First LSN that is not queued.
    pub(super) fn next(&self) -> Lsn {
        self.next
    }
}

impl Paths {
    /// Begins chunked admission of whole blocks, or refuses them.
    pub(super) fn admit_chunked(
        &mut self,
        target: ChunkedTarget,
        pieces: Vec<(Lba, Payload)>,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        match self.survey_pieces(target.volume, &pieces, store) {
            Err(error) => out.fail(target.id, error),
            Ok(blocks) => {
                let first = self.durability.lsns.take(blocks);
                self.admission.chunked =
                    Some(ChunkedWrite::new(target, pieces, first, first, blocks));
            }
        }
    }

    /// Checks that all pieces can be admitted; returns the number of their blocks.
    pub(super) fn survey_pieces(
        &mut self,
        volume: VolumeId,
        pieces: &[(Lba, Payload)],
        store: &mut Store,
    ) -> Result<u64, RequestError> {
        let mut scratch = std::mem::take(&mut self.admission.scratch);
        let (mut need, mut blocks) = (Ok(Need::default()), 0);
        for (first, data) in pieces {
            need = need.and_then(|need| {
                Ok(need.and(self.survey(volume, *first, data, &mut scratch, store)?))
            });
            blocks += (data.len() / BLOCK_SIZE) as u64;
        }
        self.admission.scratch = scratch;
        if let Err(error) = need.and_then(|need| self.check_space(need, store)) {
            for (first, data) in pieces {
                self.drop_empty_pages(volume, *first, (data.len() / BLOCK_SIZE) as u64, store);
            }
            return Err(error);
        }
        Ok(blocks)
    }

    /// Admits the next chunk; true if the write is done.
    pub(super) fn admit_next_chunk(&mut self, store: &mut Store, out: &mut Outbox) -> bool {
        let Some(mut chunked) = self.admission.chunked.take() else {
            return true;
        };
        while let Some((start, data)) = chunked.pieces.get(chunked.piece) {
            let total = (data.len() / BLOCK_SIZE) as u64;
            // Credit is spent to the last unit: the block that takes it below 0 is admitted too.
            let blocks = self
                .room_units(store)
                .saturating_sub(self.room_for_index_pages())
                .min(self.admission.pace.units().saturating_add(DATA_UNITS - 1))
                / DATA_UNITS;
            let blocks = blocks.min(total - chunked.done);
            if blocks == 0 {
                self.admission.chunked = Some(chunked);
                return false;
            }
            let first = Lba(start.0 + chunked.done);
            let bytes = data.slice(
                chunked.done as usize * BLOCK_SIZE,
                blocks as usize * BLOCK_SIZE,
            );
            let mut scratch = std::mem::take(&mut self.admission.scratch);
            let room = self.survey(chunked.target.volume, first, &bytes, &mut scratch, store);
            self.admission.scratch = scratch;
            if let Err(error) = room {
                self.abort_chunked(chunked, error, store, out);
                return true;
            }
            self.admit_surveyed(chunked.target.volume, first, chunked.next, bytes, store);
            self.place(store, out);
            chunked.next = Lsn(chunked.next.0 + blocks);
            chunked.done += blocks;
            if chunked.done == total {
                chunked.piece += 1;
                chunked.done = 0;
            }
        }
        let lsns = (chunked.first, chunked.last);
        store.observe.counters.user_write_bytes += chunked.target.user_bytes;
        self.end_chunked(chunked, Ok(lsns), store, out);
        true
    }

    /// Ends a write of which no more is admitted.
    pub(super) fn abort_chunked(
        &mut self,
        chunked: ChunkedWrite,
        error: RequestError,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        let mut done = chunked.done;
        for (first, data) in &chunked.pieces[chunked.piece..] {
            let left = (data.len() / BLOCK_SIZE) as u64 - done;
            self.drop_empty_pages(chunked.target.volume, Lba(first.0 + done), left, store);
            done = 0;
        }
        // Its remaining LSNs are never used. The log must record that, or the recovery point could
        // not pass them.
        let count = chunked.last.0 - chunked.next.0 + 1;
        self.admission.queue_record(
            &mut self.durability,
            Entry::Covered {
                first: chunked.next,
                count,
            },
            chunked.last,
        );
        self.end_chunked(chunked, Err(error), store, out);
    }

    fn end_chunked(
        &mut self,
        chunked: ChunkedWrite,
        result: Result<(Lsn, Lsn), RequestError>,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if let Some(span) = chunked.target.held {
            self.admission.release(span);
        }
        self.finish_admission(chunked.target.id, result, chunked.target.fua, store, out);
    }
}
