//! Journal records: small synchronous writes, durable before their rows are full.
//!
//! A record lies in one chunk of the journal ([`windrow_geometry::JournalArea`]), with the same
//! bytes in each copy of the chunk:
//! ```text
//! 0 .. 128          header
//! 128 .. head       the table: entries, then for each payload one CRC-32C and its length (u16)
//! head .. end       payloads, in the order of the entries that have one: 4096 bytes, or less if the block was compressed; zeroes up to a whole
//!                   number of granules
//! ```
//! The next record of the chunk begins at its end. Record 0 of a chunk begins at its first byte, so
//! readers need no search. The record numbers of a chunk are consecutive, so records of a previous
//! incarnation of the chunk are recognized.
//!
//! The entries are those of batches, but only of the kinds that have LSNs; together they cover
//! `first ..= last` without a gap.

use crate::batch::{BatchError, DecodedEntry, PayloadInfo, TableReader, TableWriter};
use crate::bytes::{BEYOND_COUNT, are_counts, put, u8_at, u16_at, u32_at, u64_at, uuid_at};
use crate::hash::xxh3_64_with_seed;
use serde::Serialize;
use windrow_geometry::JOURNAL_CHUNK_MAX;
use windrow_types::{BLOCK_SIZE, BatchSeq, Epoch, FULL_BLOCK_UNITS, Lsn, PoolUuid};

/// First bytes of a record.
pub const RECORD_MAGIC: [u8; 8] = *b"WNDRWJRN";
/// Version of records.
pub const RECORD_VERSION: u16 = 1;
/// Bytes of the header.
pub const RECORD_HEADER_BYTES: usize = 128;

// Offsets in the header.
const CHECKSUM: usize = 8;
const VERSION: usize = 16;
const CHUNK: usize = 20;
const OFFSET: usize = 24;
const HEAD_BYTES: usize = 28;
const POOL: usize = 32;
const EPOCH: usize = 48;
const SEQ: usize = 56;
const DURABLE: usize = 64;
const FIRST: usize = 72;
const LAST: usize = 80;
const PAYLOADS: usize = 88;
const ENTRIES: usize = 92;
const ENTRY_BYTES: usize = 96;
const PAYLOAD_BYTES: usize = 100;
const RESERVED: usize = 104;

/// Bytes in the head for each payload: its CRC-32C and its length.
const PAYLOAD_INFO_BYTES: usize = 6;

/// Reason that bytes are not a record that this version can use. Recovery decides which of these is
/// the end of a chunk and which is damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// No record begins here.
    #[error("no journal record")]
    NoRecord,
    /// The record belongs to another pool.
    #[error("the journal record belongs to pool {0}")]
    OtherPool(PoolUuid),
    /// The given bytes end inside the head.
    #[error("the bytes end inside the head of the journal record")]
    Truncated,
    /// Damaged or torn.
    #[error("the checksum of the journal record is wrong")]
    Checksum,
    /// Written by a version that this one cannot read.
    #[error("journal record version {0} is not supported")]
    Version(u16),
    /// The record belongs to another address.
    #[error("the journal record was written for chunk {chunk}, byte {offset}")]
    Misplaced {
        /// Chunk in the header.
        chunk: u32,
        /// Byte offset in the chunk.
        offset: u32,
    },
    /// The payload with this number does not verify.
    #[error("payload block {0} of the journal record is wrong")]
    Payload(u32),
    /// The checksum verifies but the content breaks the format.
    #[error("malformed journal record: {0}")]
    Malformed(&'static str),
}

impl From<BatchError> for RecordError {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Malformed(what) => Self::Malformed(what),
            _ => Self::Malformed("the table does not decode"),
        }
    }
}

/// Fields of a record header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecordHeader {
    /// The pool.
    pub pool: PoolUuid,
    /// Epoch in which it was written.
    pub epoch: Epoch,
    /// Record number in the pool's journal, from 1.
    pub seq: BatchSeq,
    /// Chunk that holds the record.
    pub chunk: u32,
    /// Byte offset in the chunk.
    pub offset: u32,
    /// Every LSN up to this one was durable, in the log or in the journal, when the record was
    /// created.
    pub durable: Lsn,
    /// First LSN that it covers.
    pub first: Lsn,
    /// Last LSN that it covers.
    pub last: Lsn,
}

/// A completely verified record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DecodedRecord {
    /// The header.
    pub header: RecordHeader,
    /// Length of the record in bytes: the next one begins there.
    pub length: u32,
    /// The entries; `unit` of a payload is its number.
    pub entries: Vec<DecodedEntry>,
    /// First byte and bytes of each payload within the record.
    pub payloads: Vec<(u32, u32)>,
}

impl DecodedRecord {
    /// Bytes of a payload within the bytes of the record: a block, or its LZ4 form if that is
    /// shorter.
    pub fn payload<'a>(&self, record: &'a [u8], info: &PayloadInfo) -> &'a [u8] {
        let (at, length) = self
            .payloads
            .get(info.unit as usize)
            .map_or((0, 0), |(at, length)| (*at as usize, *length as usize));
        record.get(at..at + length).unwrap_or(&[])
    }
}

/// Bytes of header and table.
fn head_bytes(entry_bytes: usize, payloads: u32) -> usize {
    RECORD_HEADER_BYTES + entry_bytes + PAYLOAD_INFO_BYTES * payloads as usize
}

/// Length of a record with `entry_bytes` of table and `payloads` payloads of `payload_bytes` in
/// total.
pub fn compressed_record_bytes(
    entry_bytes: usize,
    payloads: u32,
    payload_bytes: usize,
    granule: u32,
) -> usize {
    (head_bytes(entry_bytes, payloads) + payload_bytes).next_multiple_of(granule as usize)
}

/// Length of a record with uncompressed payload: the maximum for this table.
pub fn record_bytes(entry_bytes: usize, payloads: u32, granule: u32) -> usize {
    compressed_record_bytes(
        entry_bytes,
        payloads,
        payloads as usize * BLOCK_SIZE,
        granule,
    )
}

/// Seed of the checksum: bytes of another pool, an older epoch, another address, or a batch do not
/// verify.
fn seed(pool: &PoolUuid, epoch: Epoch, chunk: u32, offset: u32) -> u64 {
    let mut address = [0; 40];
    put(&mut address, 0, &RECORD_MAGIC);
    put(&mut address, 8, &pool.0);
    put(&mut address, 24, &epoch.0.to_le_bytes());
    put(&mut address, 32, &chunk.to_le_bytes());
    put(&mut address, 36, &offset.to_le_bytes());
    xxh3_64_with_seed(&address, 0)
}

/// Writes a record into `out`, which has [`compressed_record_bytes`] bytes. Payloads are blocks of
/// 4096 bytes or their compressed form, one for each entry that has payload.
///
/// # Panics
/// If table, payloads, and the length of `out` do not agree.
pub fn encode_record<'a>(
    header: &RecordHeader,
    table: &TableWriter,
    payloads: impl Iterator<Item = &'a [u8]>,
    granule: u32,
    out: &mut [u8],
) {
    let entries = table.bytes();
    let count = table.payload_blocks();
    let (front, behind) = out.split_at_mut(head_bytes(entries.len(), count));
    front.fill(0);
    put(front, RECORD_HEADER_BYTES, entries);
    let checksums_at = RECORD_HEADER_BYTES + entries.len();
    let lengths_at = checksums_at + 4 * count as usize;
    let (mut number, mut used) = (0, 0);
    for payload in payloads {
        assert!(
            (1..=BLOCK_SIZE).contains(&payload.len()),
            "a payload is a block or less"
        );
        put(
            front,
            checksums_at + 4 * number,
            &crate::batch::payload_checksum(payload).to_le_bytes(),
        );
        put(
            front,
            lengths_at + 2 * number,
            &(payload.len() as u16).to_le_bytes(),
        );
        put(behind, used, payload);
        number += 1;
        used += payload.len();
    }
    behind[used..].fill(0);
    assert_eq!(
        number, count as usize,
        "one payload for each entry that has one"
    );
    assert_eq!(
        front.len() + behind.len(),
        compressed_record_bytes(entries.len(), count, used, granule),
        "the room for a journal record"
    );
    assert!(header.first <= header.last && header.seq.0 > 0);
    let head = front.len();
    put(front, 0, &RECORD_MAGIC);
    put(front, VERSION, &RECORD_VERSION.to_le_bytes());
    put(front, CHUNK, &header.chunk.to_le_bytes());
    put(front, OFFSET, &header.offset.to_le_bytes());
    put(front, HEAD_BYTES, &(head as u32).to_le_bytes());
    put(front, POOL, &header.pool.0);
    put(front, EPOCH, &header.epoch.0.to_le_bytes());
    put(front, SEQ, &header.seq.0.to_le_bytes());
    put(front, DURABLE, &header.durable.0.to_le_bytes());
    put(front, FIRST, &header.first.0.to_le_bytes());
    put(front, LAST, &header.last.0.to_le_bytes());
    put(front, PAYLOADS, &count.to_le_bytes());
    put(front, ENTRIES, &table.entries().to_le_bytes());
    put(front, ENTRY_BYTES, &(entries.len() as u32).to_le_bytes());
    put(front, PAYLOAD_BYTES, &(used as u32).to_le_bytes());
    let checksum = xxh3_64_with_seed(
        &front[VERSION..],
        seed(&header.pool, header.epoch, header.chunk, header.offset),
    );
    put(front, CHECKSUM, &checksum.to_le_bytes());
}

/// Decodes and verifies the record at the start of `bytes`, the content of a chunk from `offset`
/// on.
///
/// # Errors
/// If there is no record, or any byte of it does not verify.
pub fn decode_record(
    bytes: &[u8],
    pool: &PoolUuid,
    chunk: u32,
    offset: u32,
    granule: u32,
) -> Result<DecodedRecord, RecordError> {
    let (header, head) = decode_head(bytes, pool, chunk, offset)?;
    decode_body(header, head, bytes, granule)
}

/// Decodes and verifies the header of the record at the start of `bytes` and its table, without the
/// payload. Recovery uses it to find the chunks worth reading, and to report a record whose payload
/// is damaged. The number returned is the length of the whole record.
///
/// # Errors
/// As [`decode_record`]; [`RecordError::Truncated`] if `bytes` ends inside the head.
pub fn decode_record_header(
    bytes: &[u8],
    pool: &PoolUuid,
    chunk: u32,
    offset: u32,
    granule: u32,
) -> Result<(RecordHeader, u64), RecordError> {
    let (header, head) = decode_head(bytes, pool, chunk, offset)?;
    Ok((
        header,
        (head.len() as u64 + u64::from(u32_at(head, PAYLOAD_BYTES)))
            .next_multiple_of(u64::from(granule)),
    ))
}

fn decode_head<'b>(
    bytes: &'b [u8],
    pool: &PoolUuid,
    chunk: u32,
    offset: u32,
) -> Result<(RecordHeader, &'b [u8]), RecordError> {
    let Some(fixed) = bytes.get(..RECORD_HEADER_BYTES) else {
        return Err(RecordError::NoRecord);
    };
    if fixed[..RECORD_MAGIC.len()] != RECORD_MAGIC {
        return Err(RecordError::NoRecord);
    }
    let written_by = uuid_at(fixed, POOL);
    if written_by != *pool {
        return Err(RecordError::OtherPool(written_by));
    }
    let head_bytes_said = u32_at(fixed, HEAD_BYTES) as usize;
    let epoch = Epoch(u64_at(fixed, EPOCH));
    let (own_chunk, own_offset) = (u32_at(fixed, CHUNK), u32_at(fixed, OFFSET));
    if !(RECORD_HEADER_BYTES..=JOURNAL_CHUNK_MAX as usize).contains(&head_bytes_said) {
        return Err(RecordError::Checksum);
    }
    let Some(head) = bytes.get(..head_bytes_said) else {
        return Err(RecordError::Truncated);
    };
    if xxh3_64_with_seed(&head[VERSION..], seed(pool, epoch, own_chunk, own_offset))
        != u64_at(fixed, CHECKSUM)
    {
        return Err(RecordError::Checksum);
    }
    let version = u16_at(fixed, VERSION);
    if version != RECORD_VERSION {
        return Err(RecordError::Version(version));
    }
    if (own_chunk, own_offset) != (chunk, offset) {
        return Err(RecordError::Misplaced {
            chunk: own_chunk,
            offset: own_offset,
        });
    }
    let header = RecordHeader {
        pool: *pool,
        epoch,
        seq: BatchSeq(u64_at(fixed, SEQ)),
        chunk,
        offset,
        durable: Lsn(u64_at(fixed, DURABLE)),
        first: Lsn(u64_at(fixed, FIRST)),
        last: Lsn(u64_at(fixed, LAST)),
    };
    if !are_counts([
        header.epoch.0,
        header.seq.0,
        header.durable.0,
        header.first.0,
        header.last.0,
    ]) {
        return malformed(BEYOND_COUNT);
    }
    Ok((header, head))
}

fn malformed<T>(what: &'static str) -> Result<T, RecordError> {
    Err(RecordError::Malformed(what))
}

/// Decodes table and payload of a record whose head verified.
fn decode_body(
    header: RecordHeader,
    head: &[u8],
    bytes: &[u8],
    granule: u32,
) -> Result<DecodedRecord, RecordError> {
    let (payloads, count, entry_bytes) = (
        u32_at(head, PAYLOADS),
        u32_at(head, ENTRIES),
        u32_at(head, ENTRY_BYTES) as usize,
    );
    if header.seq.0 == 0
        || header.first > header.last
        || count == 0
        || payloads > count
        || count as usize > entry_bytes / 2
    {
        return malformed("numbers that do not go together");
    }
    let info_bytes = PAYLOAD_INFO_BYTES as u64 * u64::from(payloads);
    if RECORD_HEADER_BYTES as u64 + entry_bytes as u64 + info_bytes != head.len() as u64 {
        return malformed("the table does not fill the head");
    }
    let (encoded, infos) = head[RECORD_HEADER_BYTES..].split_at(entry_bytes);
    let (checksums, lengths) = infos.split_at(4 * payloads as usize);
    let payloads = decode_payloads(head.len(), lengths, u32_at(head, PAYLOAD_BYTES))?;
    let end = payloads
        .last()
        .map_or(head.len(), |(at, length)| (at + length) as usize);
    let length = end.next_multiple_of(granule as usize);
    let Some(padding) = bytes.get(end..length) else {
        return malformed("a record that is longer than its chunk");
    };
    let reserved = [u8_at(head, VERSION + 2), u8_at(head, VERSION + 3)];
    if padding
        .iter()
        .chain(&head[RESERVED..RECORD_HEADER_BYTES])
        .chain(&reserved)
        .any(|b| *b != 0)
    {
        return malformed("bytes that must be zero are not");
    }
    let entries = decode_entries(&header, encoded, checksums, count)?;
    for (number, (at, length)) in payloads.iter().enumerate() {
        if crate::batch::payload_checksum(&bytes[*at as usize..(at + length) as usize])
            != u32_at(checksums, 4 * number)
        {
            return Err(RecordError::Payload(number as u32));
        }
    }
    Ok(DecodedRecord {
        header,
        length: length as u32,
        entries,
        payloads,
    })
}

/// First byte and length of each payload; their sum must match the header.
fn decode_payloads(
    head: usize,
    lengths: &[u8],
    bytes_said: u32,
) -> Result<Vec<(u32, u32)>, RecordError> {
    let mut at = head as u32;
    let mut payloads = Vec::with_capacity(lengths.len() / 2);
    for length in lengths
        .chunks_exact(2)
        .map(|length| u32::from(u16_at(length, 0)))
    {
        if !(1..=BLOCK_SIZE as u32).contains(&length) {
            return malformed("a payload of no length that one can have");
        }
        payloads.push((at, length));
        at += length;
    }
    if u64::from(at) == head as u64 + u64::from(bytes_said) {
        Ok(payloads)
    } else {
        malformed("payloads of another length than the header says")
    }
}

/// Decodes the entries; their LSNs must cover the header's range without a gap.
fn decode_entries(
    header: &RecordHeader,
    encoded: &[u8],
    checksums: &[u8],
    count: u32,
) -> Result<Vec<DecodedEntry>, RecordError> {
    let mut reader = TableReader::new(encoded);
    let mut entries = Vec::with_capacity(count as usize);
    let (mut block, mut next) = (0u32, header.first);
    for _ in 0..count {
        let entry = reader.next()?;
        let Some((first, lsns)) = entry.lsns() else {
            return malformed("an entry without an LSN");
        };
        if first != next {
            return malformed("LSNs with a gap");
        }
        next = Lsn(first
            .0
            .checked_add(lsns)
            .ok_or(RecordError::Malformed("LSNs beyond the last one"))?);
        let payload = entry.has_payload().then(|| {
            let info = PayloadInfo {
                unit: block,
                units: FULL_BLOCK_UNITS,
                checksum: u32_at(checksums, 4 * block as usize),
            };
            block += 1;
            info
        });
        entries.push(DecodedEntry { entry, payload });
    }
    if !reader.is_at_end() || block as usize * 4 != checksums.len() || next.0 - 1 != header.last.0 {
        return malformed("the entries contradict the header");
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
