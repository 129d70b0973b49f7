//! Streams: their position, their open batch, and their batches in flight.

use crate::api::WrittenBytes;
use crate::store::pending::{BlockKey, PendingSlot};
use std::collections::VecDeque;
use windrow_format::batch::TableWriter;
use windrow_format::superblock::StreamPosition;
use windrow_io::Payload;
use windrow_types::{Address, BatchSeq, Lsn, SegmentId};

/// Effect of a batch entry on the tables at commit; one for each entry of its table.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// A user block with payload.
    Data {
        /// Block.
        key: BlockKey,
        /// LSN.
        lsn: Lsn,
        /// Its pending record.
        pending: PendingSlot,
    },
    /// Content that blocks share, with payload. The reference of its first block follows.
    Content {
        /// Its block of the shared volume.
        id: u32,
        /// LSN.
        lsn: Lsn,
    },
    /// A page of the deduplication index.
    IndexPage {
        /// Its block of the volume of the index.
        page: u32,
    },
    /// A user block that refers to shared content.
    Reference {
        /// Block.
        key: BlockKey,
        /// LSN.
        lsn: Lsn,
        /// Its pending record.
        pending: PendingSlot,
        /// Block of the shared volume.
        id: u32,
    },
    /// A user block of zeroes (`false`) or ones (`true`).
    Fill {
        /// Block.
        key: BlockKey,
        /// LSN.
        lsn: Lsn,
        /// Its pending record.
        pending: PendingSlot,
        /// True for ones.
        ones: bool,
    },
    /// A range or volume operation: it took effect on admission, and only its LSN counts here.
    Record,
    /// A moved block.
    Move {
        /// Block.
        key: BlockKey,
        /// Installs only if the map still shows this.
        from: Address,
    },
    /// A checkpoint page.
    Page {
        /// Object.
        object: u32,
        /// Page number.
        index: u32,
    },
}

/// The batch that a stream is filling.
#[derive(Debug, Default)]
pub struct OpenBatch {
    /// Encoded entries.
    pub table: TableWriter,
    /// One for each entry.
    pub items: Vec<Item>,
    /// One for each item with payload.
    pub payloads: Vec<Payload>,
    /// First and last LSN of its items.
    pub lsns: Option<(Lsn, Lsn)>,
    /// Arrival time of its first item, in driver time.
    pub since_ns: u64,
    /// Arrival time of the first of its items that no journal holds.
    pub at_risk_since_ns: u64,
}

impl Item {
    /// True if it has payload.
    pub fn has_payload(&self) -> bool {
        !matches!(
            self,
            Self::Reference { .. } | Self::Fill { .. } | Self::Record
        )
    }
}

impl OpenBatch {
    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Extends the LSN range.
    pub fn cover(&mut self, lsn: Lsn) {
        self.lsns = Some(match self.lsns {
            None => (lsn, lsn),
            Some((first, last)) => (first.min(lsn), last.max(lsn)),
        });
    }
}

/// Stage of a batch in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchStage {
    /// A worker assembles it and computes its redundancy.
    Sealing,
    /// Its columns are being written.
    Writing {
        /// Member writes not ended.
        left: u8,
    },
    /// All member writes have ended.
    Written,
}

/// A sealed batch.
#[derive(Debug)]
pub struct Batch {
    /// Its batch sequence number.
    pub seq: BatchSeq,
    /// Its segment.
    pub segment: SegmentId,
    /// First row.
    pub row: u32,
    /// Rows.
    pub rows: u32,
    /// Blocks before the payload.
    pub head_blocks: u32,
    /// Payload blocks that are one uncompressed payload each.
    pub whole_blocks: u32,
    /// Stage.
    pub stage: BatchStage,
    /// Its effects.
    pub items: Vec<Item>,
    /// Payloads, kept for reads until it commits.
    pub payloads: Vec<Payload>,
    /// Checksums of the payloads, from the seal job.
    pub checksums: Vec<u32>,
    /// LSNs that it covers.
    pub lsns: Option<(Lsn, Lsn)>,
    /// Of moved blocks: its number over all streams of moved blocks.
    pub number: BatchSeq,
    /// Arrival time of its first item.
    pub opened_ns: u64,
    /// Start time of its stage.
    pub stage_ns: u64,
    /// Columns that did not reach their member.
    pub lost_columns: u64,
    /// True if it is the last batch of its segment.
    pub last_of_segment: bool,
}

/// One stream.
#[derive(Debug)]
pub struct Stream {
    /// Index.
    pub id: usize,
    /// Position of the open batch.
    pub position: StreamPosition,
    /// Segments reserved ahead for it, the next one first.
    pub reserved: VecDeque<SegmentId>,
    /// The open batch.
    pub open: OpenBatch,
    /// Sealed batches in the order of their batch sequence numbers.
    pub in_flight: VecDeque<Batch>,
    /// Of user streams: sealed batches with LSNs above an uncommitted LSN, and the last of these
    /// LSNs. Earlier LSNs may be in other streams. So a checkpoint that begins now has to replay
    /// these batches although they are committed.
    pub unsettled: VecDeque<(StreamPosition, Lsn)>,
    /// First checkpoint whose root names the stream; it is used when no kept root is older.
    pub usable_from: u64,
    /// Last committed batch.
    pub committed: BatchSeq,
    /// Last durable batch.
    pub durable: BatchSeq,
    /// Vectors of finished batches, for reuse.
    pub spare: Vec<(Vec<Item>, Vec<Payload>)>,
}

impl Stream {
    /// A stream at a position; everything before it is committed and durable.
    pub fn new(id: usize, position: StreamPosition) -> Self {
        let before = BatchSeq(position.seq.0 - 1);
        Self {
            id,
            position,
            reserved: VecDeque::new(),
            open: OpenBatch::default(),
            in_flight: VecDeque::new(),
            unsettled: VecDeque::new(),
            usable_from: 0,
            committed: before,
            durable: before,
            spare: Vec::new(),
        }
    }

    /// Takes back the vectors of a committed batch for reuse.
    pub fn committed_batch(&mut self, mut batch: Batch) {
        self.committed = batch.seq;
        batch.items.clear();
        batch.payloads.clear();
        if self.spare.len() < 4 {
            self.spare.push((batch.items, batch.payloads));
        }
    }

    /// A stream that was never opened.
    pub fn closed_position() -> StreamPosition {
        StreamPosition {
            segment: SegmentId::NONE,
            row: 0,
            seq: BatchSeq(1),
            next_segment: SegmentId::NONE,
        }
    }

    /// Position of the oldest batch that is not committed, or whose LSNs are not settled: replay
    /// must begin there.
    pub fn replay_position(&self) -> StreamPosition {
        let flying = self.in_flight.front().map(|b| StreamPosition {
            segment: b.segment,
            row: b.row,
            seq: b.seq,
            next_segment: SegmentId::NONE,
        });
        let unsettled = self.unsettled.front().map(|(position, _)| *position);
        match flying
            .into_iter()
            .chain(unsettled)
            .min_by_key(|position| position.seq)
        {
            None => self.position,
            Some(first) => {
                let next_segment = if first.segment == self.position.segment {
                    self.position.next_segment
                } else {
                    SegmentId::NONE
                };
                StreamPosition {
                    next_segment,
                    ..first
                }
            }
        }
    }

    /// The batch with this number, if it is in flight.
    pub fn batch_mut(&mut self, seq: BatchSeq) -> Option<&mut Batch> {
        let first = self.in_flight.front()?.seq.0;
        self.in_flight.get_mut(seq.0.checked_sub(first)? as usize)
    }
}

/// Kind of bytes of a data block in a batch, for exact accounting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockCause {
    /// Header or footer.
    Header,
    /// User data.
    User,
    /// Pages of the deduplication index.
    Index,
    /// Data moved by cleaning.
    Moved,
    /// Checkpoint (pages, and everything else in batches of that stream).
    Checkpoint,
    /// Padding.
    Padding,
}

impl BlockCause {
    /// Adds `bytes` to the right counter.
    pub fn add(self, bytes: u64, to: &mut WrittenBytes) {
        match self {
            Self::Header => to.header += bytes,
            Self::User => to.user += bytes,
            Self::Index => to.index += bytes,
            Self::Moved => to.moved += bytes,
            Self::Checkpoint => to.checkpoint += bytes,
            Self::Padding => to.padding += bytes,
        }
    }
}

/// Index into [`Log::streams`](crate::path::Log) of a stream id.
#[inline]
pub(crate) fn slot(id: usize) -> usize {
    const SLOTS: [usize; windrow_types::MAX_STREAMS] = [0, 3, 1, 2, 4, 5, 6, 7];
    SLOTS[id]
}
