//! Streams: where each goes on, its open batch, and its batches on their way.

use crate::api::WrittenBytes;
use crate::pending::{BlockKey, PendingSlot};
use std::collections::VecDeque;
use windrow_format::batch::TableWriter;
use windrow_format::superblock::StreamPosition;
use windrow_io::Payload;
use windrow_types::{Address, BatchSeq, Lsn, SegmentId};

/// What a batch does to the tables when it commits; one for each entry of its table.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// A user block with payload.
    Data {
        /// Block.
        key: BlockKey,
        /// Order.
        lsn: Lsn,
        /// Its record among the pending blocks.
        pending: PendingSlot,
    },
    /// Content that blocks share, with payload. The reference of its first block follows.
    Content {
        /// Its block of the shared volume.
        id: u32,
        /// Order.
        lsn: Lsn,
    },
    /// A page of the index of deduplication.
    IndexPage {
        /// Its block of the volume of the index.
        page: u32,
    },
    /// A user block that refers to shared content.
    Reference {
        /// Block.
        key: BlockKey,
        /// Order.
        lsn: Lsn,
        /// Its record among the pending blocks.
        pending: PendingSlot,
        /// Block of the shared volume.
        id: u32,
    },
    /// A user block of zeroes (`false`) or ones (`true`).
    Fill {
        /// Block.
        key: BlockKey,
        /// Order.
        lsn: Lsn,
        /// Its record among the pending blocks.
        pending: PendingSlot,
        /// Which.
        ones: bool,
    },
    /// A range or volume operation: took effect on admission, only its order counts here.
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
    /// First and last order of its items.
    pub lsns: Option<(Lsn, Lsn)>,
    /// When its first item came, in driver time.
    pub since_ns: u64,
    /// When the first of its items came that no journal holds.
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

    /// Notes an order.
    pub fn cover(&mut self, lsn: Lsn) {
        self.lsns = Some(match self.lsns {
            None => (lsn, lsn),
            Some((first, last)) => (first.min(lsn), last.max(lsn)),
        });
    }
}

/// Where a batch is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchStage {
    /// A worker gathers it and computes its parity.
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
    /// Its number.
    pub seq: BatchSeq,
    /// Its segment.
    pub segment: SegmentId,
    /// First row.
    pub row: u32,
    /// Rows.
    pub rows: u32,
    /// Blocks before the payload.
    pub head_blocks: u32,
    /// Payload blocks that are a whole payload.
    pub whole_blocks: u32,
    /// Stage.
    pub stage: BatchStage,
    /// What it does.
    pub items: Vec<Item>,
    /// Payloads, kept for reads until it commits.
    pub payloads: Vec<Payload>,
    /// Checksums of the payloads, from the seal job.
    pub checksums: Vec<u32>,
    /// Orders it covers.
    pub lsns: Option<(Lsn, Lsn)>,
    /// Of moved blocks: its number among the batches of all streams of moved blocks.
    pub number: BatchSeq,
    /// When its first item came.
    pub opened_ns: u64,
    /// When its stage began.
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
    /// Where the open batch will go.
    pub position: StreamPosition,
    /// Segments taken for it in advance, the next one first.
    pub reserved: VecDeque<SegmentId>,
    /// The open batch.
    pub open: OpenBatch,
    /// Sealed batches in order of their numbers.
    pub in_flight: VecDeque<Batch>,
    /// Of users: sealed batches with orders that are not below all that is uncommitted, and the
    /// last of these orders. Orders before them may be in other streams, so a checkpoint that
    /// begins now has to replay them although they are committed.
    pub unsettled: VecDeque<(StreamPosition, Lsn)>,
    /// The first checkpoint whose root names it; it is used when no kept root is older.
    pub usable_from: u64,
    /// Last committed batch.
    pub committed: BatchSeq,
    /// Last durable batch.
    pub durable: BatchSeq,
    /// Vectors of finished batches, to be used again.
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

    /// A batch has taken effect: its vectors are used again.
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

    /// The position of the oldest batch that is not committed, or whose orders are not settled:
    /// where a replay must begin.
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

/// What kind of bytes a data block of a batch is, for exact accounting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockCause {
    /// Header or footer.
    Header,
    /// User data.
    User,
    /// Pages of the index of deduplication.
    Index,
    /// Moved by cleaning.
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
