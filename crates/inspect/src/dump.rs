//! Inspection of single batches.

mod records;

pub use records::{ChunkDump, CopyLocation, RecordDump, RecordSummary, dump_chunk, list_records};

use crate::batches::{Expected, find_ends, find_header};
use crate::check::{members_retired, usable_members};
use crate::members::inspect_members;
use crate::reader::{Origin, PoolReader, Rows};
use serde::Serialize;
use windrow_format::batch::{
    BatchError, DecodedBatch, Entry, HeaderFrame, PayloadInfo, decode_header,
};
use windrow_format::superblock::Superblock;
use windrow_geometry::Column;
use windrow_io::MemberIo;
use windrow_types::{
    ADDRESS_UNIT, BLOCK_SIZE, BatchSeq, Epoch, FULL_BLOCK_UNITS, Lsn, MemberId, SegmentId, StreamId,
};

/// Reason that there is nothing to show.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DumpError {
    /// No pool.
    #[error("no member has a valid superblock")]
    NoPool,
    /// No such segment or row.
    #[error("the pool has no row {row} of segment {segment}")]
    NoPlace {
        /// Segment.
        segment: SegmentId,
        /// Row.
        row: u32,
    },
    /// No batch begins there.
    #[error("no batch begins at row {row} of segment {segment}: {problem}")]
    NoBatch {
        /// Segment.
        segment: SegmentId,
        /// Row.
        row: u32,
        /// Finding at that address.
        problem: String,
    },
    /// The pool has no journal.
    #[error("the pool has no such journal")]
    NoJournal,
    /// No such chunk.
    #[error("the journal has no chunk {chunk}")]
    NoChunk {
        /// Chunk.
        chunk: u32,
    },
}

/// Location of a column of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ColumnLocation {
    /// Column; from the shape's `data` on it is redundancy.
    pub column: u8,
    /// Member.
    pub member: MemberId,
    /// Byte offset on the member.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Source of a block of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockFound {
    /// Read from its member.
    Good,
    /// Its member is absent; reconstructed.
    RebuiltAbsent,
    /// Wrong on its member; reconstructed.
    RebuiltWrong,
    /// Wrong and unrecoverable.
    Lost,
}

impl BlockFound {
    fn of(origin: Option<Origin>) -> Self {
        match origin {
            Some(Origin::Member) => Self::Good,
            Some(Origin::Missing) => Self::RebuiltAbsent,
            Some(Origin::Wrong) => Self::RebuiltWrong,
            None => Self::Lost,
        }
    }
}

/// The payload block of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct PayloadDump {
    /// Data block in the segment (in which it begins).
    pub block: u64,
    /// Position within that block, if it is compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compressed: Option<CompressedDump>,
    /// Member that holds it.
    pub member: MemberId,
    /// CRC-32C.
    pub checksum: u32,
    /// Source of the block.
    pub found: BlockFound,
}

/// Compressed payload (LZ4 or zstd).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CompressedDump {
    /// First 16-byte unit in its block; the payload may continue in the next one.
    pub unit: u32,
    /// Number of units.
    pub units: u16,
    /// Compression algorithm, if the payload is recoverable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec: Option<&'static str>,
}

/// An entry and the state of its payload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EntryDump {
    /// The entry.
    pub entry: Entry,
    /// Its payload block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadDump>,
}

/// A whole batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BatchDump {
    /// Header and sizes.
    pub frame: HeaderFrame,
    /// Number of unused data blocks.
    pub padding_blocks: u32,
    /// Locations of its columns.
    pub columns: Vec<ColumnLocation>,
    /// True if head and tail verify; without them there are no entries.
    pub ends_verify: bool,
    /// True if every entry's payload is found: the batch counts (unless a fence voids it).
    pub whole: bool,
    /// Rows whose redundancy does not agree.
    pub redundancy_wrong_rows: Vec<u32>,
    /// Entries in table order.
    pub entries: Vec<EntryDump>,
}

/// One line of a list of batches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BatchSummary {
    /// First row.
    pub row: u32,
    /// Number of rows.
    pub rows: u32,
    /// Epoch.
    pub epoch: Epoch,
    /// Stream.
    pub stream: StreamId,
    /// Batch sequence number.
    pub seq: BatchSeq,
    /// Every LSN up to this one was durable when it was sealed.
    pub flushed_through: Lsn,
    /// Number of entries.
    pub entries: u32,
    /// Number of payload blocks.
    pub payload_blocks: u32,
    /// Number of blocks of head and tail.
    pub overhead_blocks: u32,
    /// Number of unused data blocks.
    pub padding_blocks: u32,
}

fn open_pool(io: &mut dyn MemberIo) -> Result<(PoolReader<'_>, Superblock), DumpError> {
    let report = inspect_members(io);
    let (usable, retired) = (usable_members(&report), members_retired(&report));
    let superblock: Superblock = report.newest.ok_or(DumpError::NoPool)?;
    let mut reader = PoolReader::new(io, &superblock, usable).with_retired(retired);
    reader.read_retired();
    Ok((reader, superblock))
}

fn open(io: &mut dyn MemberIo) -> Result<PoolReader<'_>, DumpError> {
    open_pool(io).map(|(reader, _)| reader)
}

/// Decodes the batch that begins at `row` of `segment`, of any stream and epoch, and verifies its
/// payload.
pub fn dump_batch(
    io: &mut dyn MemberIo,
    segment: SegmentId,
    row: u32,
) -> Result<BatchDump, DumpError> {
    let mut reader = open(io)?;
    if !reader.zones.contains(segment) || row >= reader.zones.shape(segment).rows {
        return Err(DumpError::NoPlace { segment, row });
    }
    let Some(frame) = find_header(&mut reader, segment, row, |_| true) else {
        let problem = problem_at(&mut reader, segment, row);
        return Err(DumpError::NoBatch {
            segment,
            row,
            problem,
        });
    };
    let header = &frame.header;
    let mut rows = Rows::new(&reader, segment, row, header.rows);
    rows.load(
        &mut reader,
        0..usize::from(header.shape.width),
        0,
        header.rows,
    );
    let batch = find_ends(&mut reader, &mut rows, &frame);
    let first = u64::from(row) * u64::from(header.shape.data);
    let mut entries = Vec::new();
    for decoded in batch.iter().flat_map(|b| &b.entries) {
        let payload = decoded.payload.map(|p| {
            let sums = batch
                .iter()
                .flat_map(DecodedBatch::payload_blocks)
                .filter(|(block, _)| (p.block()..=p.last_block()).contains(block));
            let found = sums
                .map(|(block, sum)| BlockFound::of(rows.find_checksum(&mut reader, block, sum)))
                .max()
                .unwrap_or(BlockFound::Lost);
            let member = rows.member(&reader, rows.position(p.block()).0);
            let had = found != BlockFound::Lost;
            let compressed = (p.units < FULL_BLOCK_UNITS).then(|| CompressedDump {
                unit: p.unit % u32::from(FULL_BLOCK_UNITS),
                units: p.units,
                codec: if had { codec_of(&rows, &p) } else { None },
            });
            PayloadDump {
                block: first + u64::from(p.block()),
                compressed,
                member,
                checksum: p.checksum,
                found,
            }
        });
        entries.push(EntryDump {
            entry: decoded.entry.clone(),
            payload,
        });
    }
    let (_, wrong) = rows.compare_redundancy(&mut reader);
    let mut wrong_rows: Vec<u32> = wrong.into_iter().map(|(at, _)| row + at).collect();
    wrong_rows.dedup();
    let ends_verify = batch.is_some();
    let whole = ends_verify
        && entries
            .iter()
            .all(|e| e.payload.is_none_or(|p| p.found != BlockFound::Lost));
    let columns = (0..header.shape.width)
        .map(|column| location(&reader, &frame, column))
        .collect();
    Ok(BatchDump {
        padding_blocks: frame.padding_blocks(),
        columns,
        ends_verify,
        whole,
        redundancy_wrong_rows: wrong_rows,
        entries,
        frame,
    })
}

/// Compression algorithm of a payload whose blocks were found.
fn codec_of(rows: &Rows, payload: &PayloadInfo) -> Option<&'static str> {
    let bytes: Vec<u8> = (payload.block()..=payload.last_block())
        .flat_map(|block| rows.bytes(block).to_vec())
        .collect();
    let start = (payload.unit % u32::from(FULL_BLOCK_UNITS)) as usize * ADDRESS_UNIT;
    let stored = bytes.get(start..start + usize::from(payload.units) * ADDRESS_UNIT)?;
    windrow_reduction::Made::of(stored).map(|(made, _)| made.name())
}

fn location(reader: &PoolReader<'_>, frame: &HeaderFrame, column: u8) -> ColumnLocation {
    let header = &frame.header;
    let (member, offset) = reader
        .zones
        .locate(header.segment)
        .address(header.row, Column(column));
    ColumnLocation {
        column,
        member,
        offset,
        length: u64::from(header.rows) * BLOCK_SIZE as u64,
    }
}

/// Decoder's verdict on the bytes on the member.
fn problem_at(reader: &mut PoolReader<'_>, segment: SegmentId, row: u32) -> String {
    let pool = reader.pool;
    let mut rows = Rows::new(reader, segment, row, 1);
    match rows
        .direct(reader, 0)
        .map(|bytes| decode_header(bytes, &pool, segment, row))
    {
        None => "the block cannot be read".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(_)) => BatchError::Malformed("the shape is not that of the segment").to_string(),
    }
}

/// Batches of a segment's current incarnation, from row 0 on: all of one stream, with consecutive
/// numbers. The last ones may be torn or void; [`dump_batch`] and a check report that.
pub fn list_batches(
    io: &mut dyn MemberIo,
    segment: SegmentId,
) -> Result<Vec<BatchSummary>, DumpError> {
    let mut reader = open(io)?;
    if !reader.zones.contains(segment) {
        return Err(DumpError::NoPlace { segment, row: 0 });
    }
    let mut list = Vec::new();
    let mut row = 0;
    let mut expected: Option<Expected> = None;
    while let Some(frame) = find_header(&mut reader, segment, row, |f| {
        expected.is_none_or(|e| e.matches(f))
    }) {
        let header = &frame.header;
        list.push(BatchSummary {
            row,
            rows: header.rows,
            epoch: header.epoch,
            stream: header.stream,
            seq: header.seq,
            flushed_through: header.flushed_through,
            entries: frame.entry_count,
            payload_blocks: frame.payload_blocks,
            overhead_blocks: frame.head_blocks + 1,
            padding_blocks: frame.padding_blocks(),
        });
        expected = Some(Expected::after(&frame));
        row += header.rows;
    }
    Ok(list)
}

#[cfg(test)]
mod tests;
