//! Batches: header + table + payload + footer, a whole number of rows, atomic.
//!
//! Data space of a batch of `R` rows with `k` data columns (`k*R` blocks):
//! ```text
//! block 0 .. H        header (first 256 bytes), then the table's first part
//! block H .. H+n      payload blocks: uncompressed payload in entry order, then blocks of compressed payload (`plan.rs`)
//! block H+n .. k*R-1  padding, zero
//! block k*R-1         the table's second part from byte 0, footer in the last 64 bytes
//! ```
//! The table is the encoded entries followed by one CRC-32C (4 bytes, little endian) for each
//! payload block, then one for each compressed payload. Its first part fills the header blocks, the
//! rest goes to the footer block. `H` is the smallest number that makes it fit, where each
//! compressed payload counts as if it had a block of its own.

mod frame;
mod plan;
mod table;

pub use frame::{
    BATCH_VERSION, DecodedBatch, DecodedEntry, FOOTER_MAGIC, HEADER_MAGIC, HeaderFrame,
    PayloadInfo, decode_batch, decode_head, decode_header, encode_ends,
};
pub use plan::{
    BatchPlan, PayloadOffsets, max_payload_blocks, plan_batch, plan_compressed, tail_block,
};
pub(crate) use table::TableReader;
pub use table::TableWriter;

use crate::checkpoint::{Compression, Dedup, SyncMode};
use serde::Serialize;
use windrow_geometry::Shape;
use windrow_types::{
    Address, BatchSeq, Epoch, Lba, Lsn, MAX_STREAMS, PoolUuid, SegmentId, StreamId, VolumeId,
};

/// Bytes of the header at the start of a batch.
pub const HEADER_BYTES: usize = 256;
/// Bytes of the footer at the end of a batch.
pub const FOOTER_BYTES: usize = 64;

/// CRC-32C of a stored block: the checksum of payload, of checkpoint pages and of map entries.
#[inline]
pub fn payload_checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Reason that bytes are not a batch that this version can use. Every variant is an ordinary
/// finding. The rules of recovery decide which of them ends a stream's chain and which is damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// The slices are shorter or longer than the header says.
    #[error("the bytes given are not the head and tail that the header describes")]
    WrongLength,
    /// No batch begins here.
    #[error("no batch header")]
    NoHeader,
    /// A batch of another pool.
    #[error("the batch belongs to pool {0}")]
    OtherPool(PoolUuid),
    /// The header does not verify.
    #[error("the checksum of the header is wrong")]
    HeaderChecksum,
    /// Written by a version that this one cannot read.
    #[error("batch version {0} is not supported")]
    Version(u16),
    /// A valid header that belongs to another address.
    #[error("the batch was written for segment {segment}, row {row}")]
    Misplaced {
        /// Segment in the header.
        segment: SegmentId,
        /// First row in the header.
        row: u32,
    },
    /// The table part in the head blocks does not verify.
    #[error("the checksum of the table is wrong")]
    TableChecksum,
    /// The tail block holds no footer.
    #[error("no batch footer")]
    NoFooter,
    /// The footer belongs to another batch: a torn write, or the rest of an older batch.
    #[error("the footer belongs to another batch")]
    OtherFooter,
    /// The tail block does not verify.
    #[error("the checksum of the footer is wrong")]
    FooterChecksum,
    /// Checksums verify but the content breaks the format: a bug of the software that wrote it.
    #[error("malformed batch: {0}")]
    Malformed(&'static str),
}

/// Fields of a batch header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BatchHeader {
    /// UUID of the pool.
    pub pool: PoolUuid,
    /// Epoch in which the batch was written.
    pub epoch: Epoch,
    /// Stream of the batch.
    pub stream: StreamId,
    /// Batch sequence number in the stream.
    pub seq: BatchSeq,
    /// Segment that holds the batch.
    pub segment: SegmentId,
    /// First row.
    pub row: u32,
    /// Number of rows.
    pub rows: u32,
    /// Shape of the segment.
    pub shape: Shape,
    /// Members of the segment's zone, as a bit mask.
    pub members: u64,
    /// Successor segment: the stream continues there when this one is full.
    pub next_segment: SegmentId,
    /// Every LSN up to this one was durable when the batch was sealed.
    pub flushed_through: Lsn,
    /// For each stream: every batch up to this sequence number was durable when the batch was
    /// sealed.
    pub flushed_seq: [BatchSeq; MAX_STREAMS],
}

/// Volume operation recorded in the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeChange {
    /// A new volume (name at most 63 bytes of UTF-8).
    Create {
        /// Name of the volume.
        name: String,
        /// Size in bytes, a multiple of 4096.
        size_bytes: u64,
    },
    /// A new size. Blocks past it become holes.
    Resize {
        /// Size in bytes, a multiple of 4096.
        size_bytes: u64,
    },
    /// The volume is deleted; its blocks are freed in steps afterwards.
    Delete,
    /// Read-only flag.
    SetReadOnly(bool),
    /// Effect of flushes.
    SetSync(SyncMode),
    /// Compression of blocks written from now on.
    SetCompression(Compression),
    /// Deduplication of blocks written from now on.
    SetDedup(Dedup),
    /// A new name (at most 63 bytes of UTF-8); only with
    /// [`Features::RENAMED`](crate::superblock::Features::RENAMED).
    Rename {
        /// The new name.
        name: String,
    },
}

/// State of all blocks of a range entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RangeState {
    /// Trimmed.
    Hole,
    /// Written as zeroes.
    Zero,
}

/// Content of a block that has no payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FillState {
    /// All bytes 0x00.
    Zero,
    /// All bytes 0xFF.
    Ones,
}

/// One entry of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A user block with payload.
    Data {
        /// Volume.
        volume: VolumeId,
        /// Block.
        lba: Lba,
        /// LSN of the write.
        birth: Lsn,
    },
    /// A user block without payload.
    Fill {
        /// Volume.
        volume: VolumeId,
        /// Block.
        lba: Lba,
        /// LSN of the write.
        birth: Lsn,
        /// Content.
        state: FillState,
    },
    /// A trim or write-zeroes of whole blocks, any length.
    Range {
        /// Volume.
        volume: VolumeId,
        /// First block.
        lba: Lba,
        /// Number of blocks.
        count: u64,
        /// LSN of the operation.
        lsn: Lsn,
        /// Content.
        state: RangeState,
    },
    /// A volume operation.
    Volume {
        /// Volume.
        volume: VolumeId,
        /// LSN of the operation.
        lsn: Lsn,
        /// Change.
        change: VolumeChange,
    },
    /// A block moved by cleaning, with payload. It keeps its birth LSN and names its old address.
    Move {
        /// Volume.
        volume: VolumeId,
        /// Block.
        lba: Lba,
        /// LSN of the user write that created it.
        birth: Lsn,
        /// The move takes effect only if the map still has this address.
        from: Address,
    },
    /// A user block with the content of a block of the shared volume.
    Reference {
        /// Volume.
        volume: VolumeId,
        /// Block.
        lba: Lba,
        /// LSN of the write.
        birth: Lsn,
        /// Block of the shared volume.
        id: Lba,
        /// Low half of the LSN that gave `id` its content.
        incarnation: u32,
    },
    /// LSNs that this batch accounts for without content (absorbed or void):
    /// `first .. first + count`.
    Covered {
        /// First LSN.
        first: Lsn,
        /// Number of LSNs.
        count: u64,
    },
    /// A checkpoint page with a payload block.
    Page {
        /// Object (see `checkpoint`).
        object: u32,
        /// Page number in the object.
        index: u32,
    },
}

impl Entry {
    /// First LSN that the entry accounts for, and the number of LSNs. `None` for entries without
    /// LSNs.
    pub fn lsns(&self) -> Option<(Lsn, u64)> {
        match self {
            Self::Data { birth, .. } | Self::Fill { birth, .. } | Self::Reference { birth, .. } => {
                Some((*birth, 1))
            }
            Self::Range { lsn, .. } | Self::Volume { lsn, .. } => Some((*lsn, 1)),
            Self::Covered { first, count } => Some((*first, *count)),
            Self::Move { .. } | Self::Page { .. } => None,
        }
    }

    /// True if the entry has payload.
    pub fn has_payload(&self) -> bool {
        matches!(
            self,
            Self::Data { .. } | Self::Move { .. } | Self::Page { .. }
        )
    }
}

#[cfg(test)]
mod tests;
