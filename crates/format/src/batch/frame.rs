//! Header and footer of a batch.
//!
//! Every byte of head and tail is covered by a checksum: the header by its own, the rest of the
//! head blocks by the one in the header, the tail by the one in the footer. The footer also repeats
//! the header's checksum. Each checksum is seeded with pool, epoch, segment and row, so bytes of
//! another pool, a previous incarnation or another address never verify.

use super::plan::{BatchPlan, PayloadOffsets, head_blocks_for, table_capacity};
use super::table::{TableReader, TableWriter};
use super::{BatchError, BatchHeader, Entry, FOOTER_BYTES, HEADER_BYTES};
use crate::bytes::{
    BEYOND_COUNT, are_counts, is_zero, put, u8_at, u16_at, u32_at, u64_at, uuid_at,
};
use crate::hash::xxh3_64_with_seed;
use crate::{SHAPE_BYTES, put_shape, shape_at};
use windrow_types::{
    BLOCK_SIZE, BatchSeq, Epoch, FULL_BLOCK_UNITS, Lsn, MAX_STREAMS, PoolUuid, SegmentId, StreamId,
};

/// First bytes of a header.
pub const HEADER_MAGIC: [u8; 8] = *b"WNDRWBAT";
/// First bytes of a footer.
pub const FOOTER_MAGIC: [u8; 8] = *b"WNDRWEND";
/// Version of header, table and footer.
pub const BATCH_VERSION: u16 = 1;

// Offsets in the header.
const H_CHECKSUM: usize = 8;
const H_VERSION: usize = 16;
const H_STREAM: usize = 18;
const H_SEGMENT: usize = 20;
const H_ROW: usize = 24;
const H_ROWS: usize = 28;
const H_POOL: usize = 32;
const H_EPOCH: usize = 48;
const H_SEQ: usize = 56;
const H_SHAPE: usize = 64;
const H_NEXT_SEGMENT: usize = 76;
const H_MEMBERS: usize = 80;
const H_FLUSHED_THROUGH: usize = 88;
const H_FLUSHED_SEQ: usize = 96;
const H_HEAD_BLOCKS: usize = 160;
const H_PAYLOAD_BLOCKS: usize = 164;
const H_ENTRY_COUNT: usize = 168;
const H_ENTRY_BYTES: usize = 172;
const H_TABLE_CHECKSUM: usize = 176;
const H_COMPRESSED_PAYLOADS: usize = 184;
const H_COMPRESSED_BLOCKS: usize = 188;
const H_RESERVED: usize = 192;
const _: () = assert!(
    H_SHAPE + SHAPE_BYTES == H_NEXT_SEGMENT
        && H_FLUSHED_SEQ + 8 * MAX_STREAMS == H_HEAD_BLOCKS
        && H_RESERVED < HEADER_BYTES
);

// Offsets in the tail block.
const FOOTER_AT: usize = BLOCK_SIZE - FOOTER_BYTES;
const F_EPOCH: usize = FOOTER_AT + 8;
const F_SEQ: usize = FOOTER_AT + 16;
const F_SEGMENT: usize = FOOTER_AT + 24;
const F_ROW: usize = FOOTER_AT + 28;
const F_ROWS: usize = FOOTER_AT + 32;
const F_STREAM: usize = FOOTER_AT + 36;
const F_HEADER_CHECKSUM: usize = FOOTER_AT + 40;
const F_RESERVED: usize = FOOTER_AT + 48;
const F_CHECKSUM: usize = FOOTER_AT + 56;

/// A verified header, and the sizes derived from it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct HeaderFrame {
    /// The header.
    pub header: BatchHeader,
    /// Number of head blocks (header and table) at the start.
    pub head_blocks: u32,
    /// Number of payload blocks that follow.
    pub payload_blocks: u32,
    /// Number of compressed payloads.
    #[serde(skip_serializing_if = "is_none")]
    pub compressed_payloads: u32,
    /// Number of payload blocks that hold compressed payload: the last ones.
    #[serde(skip_serializing_if = "is_none")]
    pub compressed_blocks: u32,
    /// Number of table entries.
    pub entry_count: u32,
    /// Bytes of the encoded entries.
    pub entry_bytes: u32,
    /// Checksum of the rest of the head blocks.
    pub table_checksum: u64,
    /// Checksum of the header; the footer repeats it.
    pub header_checksum: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

impl HeaderFrame {
    /// Number of payload blocks that hold an uncompressed payload.
    pub fn whole_blocks(&self) -> u32 {
        self.payload_blocks - self.compressed_blocks
    }

    /// Table bytes for which the head is sized: the table, and what it would grow by if each
    /// compressed payload had a block of its own.
    fn table_room(&self) -> u64 {
        u64::from(self.entry_bytes)
            + 4 * u64::from(self.payload_blocks.saturating_sub(self.compressed_blocks))
            + 8 * u64::from(self.compressed_payloads)
    }

    /// Bytes of the table.
    fn table_bytes(&self) -> usize {
        self.entry_bytes as usize
            + 4 * (self.payload_blocks as usize + self.compressed_payloads as usize)
    }

    /// Number of data blocks of the whole batch.
    pub fn data_blocks(&self) -> u32 {
        self.header.rows * u32::from(self.header.shape.data)
    }

    /// Data block (within the batch) of the tail.
    pub fn tail_block(&self) -> u32 {
        self.data_blocks() - 1
    }

    /// Number of unused blocks between payload and tail.
    pub fn padding_blocks(&self) -> u32 {
        self.tail_block() - self.head_blocks - self.payload_blocks
    }
}

/// Position and checksum of an entry's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PayloadInfo {
    /// First 16-byte unit, from the first one of the batch.
    pub unit: u32,
    /// Number of units: 256 is an uncompressed block, less is compressed.
    pub units: u16,
    /// CRC-32C of the stored bytes.
    pub checksum: u32,
}

impl PayloadInfo {
    /// Data block within the batch in which it begins.
    pub fn block(&self) -> u32 {
        self.unit / u32::from(FULL_BLOCK_UNITS)
    }

    /// Data block within the batch in which it ends.
    pub fn last_block(&self) -> u32 {
        (self.unit + u32::from(self.units.max(1)) - 1) / u32::from(FULL_BLOCK_UNITS)
    }
}

/// An entry and its payload.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct DecodedEntry {
    /// The entry.
    pub entry: Entry,
    /// Its payload, if it has one.
    pub payload: Option<PayloadInfo>,
}

/// Verified head and tail of a batch. The payload is not verified: that needs the payload blocks.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct DecodedBatch {
    /// The header.
    pub frame: HeaderFrame,
    /// Entries in table order.
    pub entries: Vec<DecodedEntry>,
    /// CRC-32C of each payload block.
    pub blocks: Vec<u32>,
}

impl DecodedBatch {
    /// Number (within the batch) and checksum of each payload block.
    pub fn payload_blocks(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (self.frame.head_blocks..).zip(self.blocks.iter().copied())
    }
}

/// Seed of the checksums of one batch.
fn seed(pool: &PoolUuid, epoch: Epoch, segment: SegmentId, row: u32) -> u64 {
    let mut address = [0; 32];
    put(&mut address, 0, &pool.0);
    put(&mut address, 16, &epoch.0.to_le_bytes());
    put(&mut address, 24, &segment.0.to_le_bytes());
    put(&mut address, 28, &row.to_le_bytes());
    xxh3_64_with_seed(&address, 0)
}

/// Copies the table into head and tail as if they were contiguous.
struct TableArea<'a> {
    head: &'a mut [u8],
    tail: &'a mut [u8],
    at: usize,
}

impl TableArea<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let in_head = bytes.len().min(self.head.len().saturating_sub(self.at));
        let (first, second) = bytes.split_at(in_head);
        if in_head > 0 {
            self.head[self.at..][..in_head].copy_from_slice(first);
        }
        if !second.is_empty() {
            let tail_at = self.at + in_head - self.head.len();
            self.tail[tail_at..][..second.len()].copy_from_slice(second);
        }
        self.at += bytes.len();
    }
}

/// Writes header and table into `head` (`plan.head_blocks * 4096` bytes), and the rest of the table
/// and the footer into `tail` (4096 bytes). Every byte of both is written. `checksums` has one
/// CRC-32C for each payload block, then one for each compressed payload.
///
/// # Panics
/// If the lengths or `plan` do not agree with the header and the table.
pub fn encode_ends(
    header: &BatchHeader,
    table: &TableWriter,
    checksums: &[u32],
    plan: &BatchPlan,
    head: &mut [u8],
    tail: &mut [u8],
) {
    let table_len = table.encoded_len() as u64;
    assert_eq!(
        checksums.len(),
        plan.payload_blocks as usize + table.compressed().len(),
        "one checksum for each payload block and compressed payload"
    );
    assert_eq!(
        plan.payload_blocks - plan.compressed_blocks,
        table.payload_blocks()
    );
    assert_eq!(u64::from(plan.head_blocks), head_blocks_for(table_len));
    assert_eq!(
        (head.len(), tail.len()),
        (plan.head_blocks as usize * BLOCK_SIZE, BLOCK_SIZE)
    );
    assert_eq!(plan.rows, header.rows);
    head.fill(0);
    tail.fill(0);

    let mut area = TableArea {
        head: &mut head[HEADER_BYTES..],
        tail: &mut tail[..FOOTER_AT],
        at: 0,
    };
    area.put(table.bytes());
    for checksum in checksums {
        area.put(&checksum.to_le_bytes());
    }

    let seed = seed(&header.pool, header.epoch, header.segment, header.row);
    put_header(header, plan, table, head);
    let table_checksum = xxh3_64_with_seed(&head[HEADER_BYTES..], seed);
    put(head, H_TABLE_CHECKSUM, &table_checksum.to_le_bytes());
    let header_checksum = xxh3_64_with_seed(&head[H_VERSION..HEADER_BYTES], seed);
    put(head, H_CHECKSUM, &header_checksum.to_le_bytes());
    put_footer(header, header_checksum, seed, tail);
}

fn put_header(header: &BatchHeader, plan: &BatchPlan, table: &TableWriter, head: &mut [u8]) {
    put(head, 0, &HEADER_MAGIC);
    put(head, H_VERSION, &BATCH_VERSION.to_le_bytes());
    put(head, H_STREAM, &[header.stream.0]);
    put(head, H_SEGMENT, &header.segment.0.to_le_bytes());
    put(head, H_ROW, &header.row.to_le_bytes());
    put(head, H_ROWS, &header.rows.to_le_bytes());
    put(head, H_POOL, &header.pool.0);
    put(head, H_EPOCH, &header.epoch.0.to_le_bytes());
    put(head, H_SEQ, &header.seq.0.to_le_bytes());
    put_shape(head, H_SHAPE, &header.shape);
    put(head, H_NEXT_SEGMENT, &header.next_segment.0.to_le_bytes());
    put(head, H_MEMBERS, &header.members.to_le_bytes());
    put(
        head,
        H_FLUSHED_THROUGH,
        &header.flushed_through.0.to_le_bytes(),
    );
    for (i, seq) in header.flushed_seq.iter().enumerate() {
        put(head, H_FLUSHED_SEQ + 8 * i, &seq.0.to_le_bytes());
    }
    put(head, H_HEAD_BLOCKS, &plan.head_blocks.to_le_bytes());
    put(head, H_PAYLOAD_BLOCKS, &plan.payload_blocks.to_le_bytes());
    put(head, H_ENTRY_COUNT, &table.entries().to_le_bytes());
    put(
        head,
        H_ENTRY_BYTES,
        &(table.bytes().len() as u32).to_le_bytes(),
    );
    put(
        head,
        H_COMPRESSED_PAYLOADS,
        &(table.compressed().len() as u32).to_le_bytes(),
    );
    put(
        head,
        H_COMPRESSED_BLOCKS,
        &plan.compressed_blocks.to_le_bytes(),
    );
}

fn put_footer(header: &BatchHeader, header_checksum: u64, seed: u64, tail: &mut [u8]) {
    put(tail, FOOTER_AT, &FOOTER_MAGIC);
    put(tail, F_EPOCH, &header.epoch.0.to_le_bytes());
    put(tail, F_SEQ, &header.seq.0.to_le_bytes());
    put(tail, F_SEGMENT, &header.segment.0.to_le_bytes());
    put(tail, F_ROW, &header.row.to_le_bytes());
    put(tail, F_ROWS, &header.rows.to_le_bytes());
    put(tail, F_STREAM, &[header.stream.0]);
    put(tail, F_HEADER_CHECKSUM, &header_checksum.to_le_bytes());
    let checksum = xxh3_64_with_seed(&tail[..F_CHECKSUM], seed);
    put(tail, F_CHECKSUM, &checksum.to_le_bytes());
}

/// Decodes and verifies a header. `block` is the first block of the batch, or at least its first
/// 256 bytes. `segment` and `row` are the address it was read from.
pub fn decode_header(
    block: &[u8],
    pool: &PoolUuid,
    segment: SegmentId,
    row: u32,
) -> Result<HeaderFrame, BatchError> {
    let Some(block) = block.get(..HEADER_BYTES) else {
        return Err(BatchError::WrongLength);
    };
    if block[..8] != HEADER_MAGIC {
        return Err(BatchError::NoHeader);
    }
    let written_by = uuid_at(block, H_POOL);
    if written_by != *pool {
        return Err(BatchError::OtherPool(written_by));
    }
    let epoch = Epoch(u64_at(block, H_EPOCH));
    let (own_segment, own_row) = (SegmentId(u32_at(block, H_SEGMENT)), u32_at(block, H_ROW));
    let header_checksum = u64_at(block, H_CHECKSUM);
    if xxh3_64_with_seed(&block[H_VERSION..], seed(pool, epoch, own_segment, own_row))
        != header_checksum
    {
        return Err(BatchError::HeaderChecksum);
    }
    let version = u16_at(block, H_VERSION);
    if version != BATCH_VERSION {
        return Err(BatchError::Version(version));
    }
    if (own_segment, own_row) != (segment, row) {
        return Err(BatchError::Misplaced {
            segment: own_segment,
            row: own_row,
        });
    }
    let shape = shape_at(block, H_SHAPE).ok_or(BatchError::Malformed("the shape is impossible"))?;
    let header = BatchHeader {
        pool: *pool,
        epoch,
        stream: StreamId(u8_at(block, H_STREAM)),
        seq: BatchSeq(u64_at(block, H_SEQ)),
        segment,
        row,
        rows: u32_at(block, H_ROWS),
        shape,
        members: u64_at(block, H_MEMBERS),
        next_segment: SegmentId(u32_at(block, H_NEXT_SEGMENT)),
        flushed_through: Lsn(u64_at(block, H_FLUSHED_THROUGH)),
        flushed_seq: std::array::from_fn(|i| BatchSeq(u64_at(block, H_FLUSHED_SEQ + 8 * i))),
    };
    let frame = HeaderFrame {
        header,
        head_blocks: u32_at(block, H_HEAD_BLOCKS),
        payload_blocks: u32_at(block, H_PAYLOAD_BLOCKS),
        entry_count: u32_at(block, H_ENTRY_COUNT),
        entry_bytes: u32_at(block, H_ENTRY_BYTES),
        compressed_payloads: u32_at(block, H_COMPRESSED_PAYLOADS),
        compressed_blocks: u32_at(block, H_COMPRESSED_BLOCKS),
        table_checksum: u64_at(block, H_TABLE_CHECKSUM),
        header_checksum,
    };
    check_header(&frame, block)?;
    Ok(frame)
}

/// Checks that the numbers are plausible: a checksum proves only that a writer of this format
/// stored them. Nothing is allocated or addressed by them before this.
fn check_header(frame: &HeaderFrame, block: &[u8]) -> Result<(), BatchError> {
    let header = &frame.header;
    let shape = &header.shape;
    let rows_fit = header.rows > 0
        && header.row < shape.rows
        && header.rows <= shape.chunk_end(header.row) - header.row;
    if !rows_fit {
        return Err(BatchError::Malformed("the rows do not fit in the chunk"));
    }
    if header.stream.index() >= MAX_STREAMS || header.seq.0 == 0 {
        return Err(BatchError::Malformed(
            "there is no such stream or sequence number",
        ));
    }
    if !are_counts(
        [header.epoch.0, header.seq.0, header.flushed_through.0]
            .into_iter()
            .chain(header.flushed_seq.map(|seq| seq.0)),
    ) {
        return Err(BatchError::Malformed(BEYOND_COUNT));
    }
    if header.members.count_ones() < u32::from(shape.width) {
        return Err(BatchError::Malformed("fewer members than columns"));
    }
    let blocks = u64::from(frame.head_blocks) + u64::from(frame.payload_blocks) + 1;
    let table_len = frame.table_room();
    let (compressed, payloads) = (frame.compressed_payloads, frame.compressed_blocks);
    if payloads > compressed
        || payloads > frame.payload_blocks
        || (compressed > 0) != (payloads > 0)
    {
        return Err(BatchError::Malformed(
            "compressed payload that does not match its blocks",
        ));
    }
    if blocks > u64::from(frame.data_blocks())
        || u64::from(frame.head_blocks) != head_blocks_for(table_len)
    {
        return Err(BatchError::Malformed("the parts do not fit in the batch"));
    }
    debug_assert!(table_len <= table_capacity(frame.head_blocks));
    if frame.entry_count > frame.entry_bytes / 2
        || u64::from(frame.whole_blocks()) + u64::from(frame.compressed_payloads)
            > u64::from(frame.entry_count)
    {
        return Err(BatchError::Malformed(
            "more entries than the table can hold",
        ));
    }
    let unused = &block[H_RESERVED..];
    if !(is_zero(unused) && is_zero(&block[H_STREAM + 1..H_SEGMENT])) {
        return Err(BatchError::Malformed("bytes that must be zero are not"));
    }
    Ok(())
}

/// Decodes and verifies head and tail. `head` is `head_blocks * 4096` bytes as given by the header,
/// `tail` is 4096 bytes.
pub fn decode_batch(
    head: &[u8],
    tail: &[u8],
    pool: &PoolUuid,
    segment: SegmentId,
    row: u32,
) -> Result<DecodedBatch, BatchError> {
    let frame = decode_header(head, pool, segment, row)?;
    if head.len() != frame.head_blocks as usize * BLOCK_SIZE || tail.len() != BLOCK_SIZE {
        return Err(BatchError::WrongLength);
    }
    let seed = seed(pool, frame.header.epoch, segment, row);
    if xxh3_64_with_seed(&head[HEADER_BYTES..], seed) != frame.table_checksum {
        return Err(BatchError::TableChecksum);
    }
    check_footer(&frame, tail, seed)?;
    let (entries, blocks) = decode_table(&frame, &head[HEADER_BYTES..], &tail[..FOOTER_AT])?;
    Ok(DecodedBatch {
        frame,
        entries,
        blocks,
    })
}

/// Entries that the head alone yields for a batch whose tail is lost: those that lie wholly in the
/// head blocks, whose checksum is in the header. For loss reports only.
///
/// # Errors
/// As [`decode_batch`], except for the tail.
pub fn decode_head(
    head: &[u8],
    pool: &PoolUuid,
    segment: SegmentId,
    row: u32,
) -> Result<Vec<Entry>, BatchError> {
    let frame = decode_header(head, pool, segment, row)?;
    if head.len() != frame.head_blocks as usize * BLOCK_SIZE {
        return Err(BatchError::WrongLength);
    }
    if xxh3_64_with_seed(
        &head[HEADER_BYTES..],
        seed(pool, frame.header.epoch, segment, row),
    ) != frame.table_checksum
    {
        return Err(BatchError::TableChecksum);
    }
    let table = &head[HEADER_BYTES..];
    let mut reader = TableReader::new(&table[..table.len().min(frame.entry_bytes as usize)]);
    // The last one may be cut off: then it does not decode.
    Ok((0..frame.entry_count)
        .map_while(|_| reader.next_stored().ok())
        .map(|(entry, _)| entry)
        .collect())
}

fn check_footer(frame: &HeaderFrame, tail: &[u8], seed: u64) -> Result<(), BatchError> {
    if tail[FOOTER_AT..F_EPOCH] != FOOTER_MAGIC {
        return Err(BatchError::NoFooter);
    }
    let header = &frame.header;
    let same_batch = u64_at(tail, F_EPOCH) == header.epoch.0
        && u64_at(tail, F_SEQ) == header.seq.0
        && u32_at(tail, F_SEGMENT) == header.segment.0
        && u32_at(tail, F_ROW) == header.row
        && u32_at(tail, F_ROWS) == header.rows
        && u8_at(tail, F_STREAM) == header.stream.0
        && u64_at(tail, F_HEADER_CHECKSUM) == frame.header_checksum;
    if !same_batch {
        return Err(BatchError::OtherFooter);
    }
    if xxh3_64_with_seed(&tail[..F_CHECKSUM], seed) != u64_at(tail, F_CHECKSUM) {
        return Err(BatchError::FooterChecksum);
    }
    if !(is_zero(&tail[F_STREAM + 1..F_HEADER_CHECKSUM]) && is_zero(&tail[F_RESERVED..F_CHECKSUM]))
    {
        return Err(BatchError::Malformed("bytes that must be zero are not"));
    }
    Ok(())
}

/// The entries, and the checksums of the payload blocks.
fn decode_table(
    frame: &HeaderFrame,
    head: &[u8],
    tail: &[u8],
) -> Result<(Vec<DecodedEntry>, Vec<u32>), BatchError> {
    let table_len = frame.table_bytes();
    let in_head = table_len.min(head.len());
    let mut table = Vec::with_capacity(table_len);
    table.extend_from_slice(&head[..in_head]);
    table.extend_from_slice(
        tail.get(..table_len - in_head)
            .ok_or(BatchError::WrongLength)?,
    );
    if !(is_zero(&head[in_head..]) && is_zero(&tail[table_len - in_head..])) {
        return Err(BatchError::Malformed("bytes that must be zero are not"));
    }

    let (encoded, checksums) = table.split_at(frame.entry_bytes as usize);
    let (blocks, of_compressed) = checksums.split_at(4 * frame.payload_blocks as usize);
    let blocks: Vec<u32> = blocks.chunks_exact(4).map(|c| u32_at(c, 0)).collect();
    let (mut of_whole, mut of_compressed) = (
        blocks[..frame.whole_blocks() as usize].iter(),
        of_compressed.chunks_exact(4),
    );
    let mut addresses =
        PayloadOffsets::new(frame.head_blocks, frame.whole_blocks(), frame.header.rows);
    let mut reader = TableReader::new(encoded);
    let mut entries = Vec::with_capacity(frame.entry_count as usize);
    for _ in 0..frame.entry_count {
        let (entry, units) = reader.next_stored()?;
        let mut payload = None;
        if units > 0 {
            let checksum = if units == FULL_BLOCK_UNITS {
                of_whole.next().copied()
            } else {
                of_compressed.next().map(|c| u32_at(c, 0))
            };
            let checksum = checksum.ok_or(BatchError::Malformed(
                "more payload than there are checksums",
            ))?;
            payload = Some(PayloadInfo {
                unit: addresses.next(units) as u32,
                units,
                checksum,
            });
        }
        entries.push(DecodedEntry { entry, payload });
    }
    if !reader.is_at_end() || of_whole.next().is_some() || of_compressed.next().is_some() {
        return Err(BatchError::Malformed(
            "the table is longer than its entries",
        ));
    }
    if addresses.end_block() != u64::from(frame.head_blocks) + u64::from(frame.payload_blocks) {
        return Err(BatchError::Malformed(
            "compressed payload that does not end where the header says",
        ));
    }
    Ok((entries, blocks))
}

#[cfg(test)]
mod tests;
