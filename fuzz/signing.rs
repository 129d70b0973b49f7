//! Puts valid checksums on wrong bytes, by the rules of `docs/internals/format.md`, so that a
//! fuzzer reaches the code after the checksums. Written from the document and not from the code, so
//! that it also compares the two.

use windrow_types::{PoolUuid, SegmentId, Uuid};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

/// Address in a batch header.
pub struct Address {
    /// Pool.
    pub pool: PoolUuid,
    /// Segment.
    pub segment: SegmentId,
    /// First row.
    pub row: u32,
}

/// Signs a batch: `head` is at least 256 bytes, `tail` 4096.
pub fn sign_batch(head: &mut [u8], tail: &mut [u8]) -> Address {
    head[..8].copy_from_slice(b"WNDRWBAT");
    let mut owner = [0; 32];
    owner[..16].copy_from_slice(&head[32..48]);
    owner[16..24].copy_from_slice(&head[48..56]);
    owner[24..32].copy_from_slice(&head[20..28]);
    let seed = xxh3_64(&owner);
    let table = xxh3_64_with_seed(&head[256..], seed);
    head[176..184].copy_from_slice(&table.to_le_bytes());
    let header = xxh3_64_with_seed(&head[16..256], seed);
    head[8..16].copy_from_slice(&header.to_le_bytes());

    let footer = &mut tail[4032..];
    footer[..8].copy_from_slice(b"WNDRWEND");
    footer[8..24].copy_from_slice(&head[48..64]);
    footer[24..36].copy_from_slice(&head[20..32]);
    footer[36] = head[18];
    footer[40..48].copy_from_slice(&header.to_le_bytes());
    let sum = xxh3_64_with_seed(&tail[..4088], seed);
    tail[4088..].copy_from_slice(&sum.to_le_bytes());
    Address {
        pool: Uuid(array(head, 32)),
        segment: SegmentId(u32::from_le_bytes(array(head, 20))),
        row: u32::from_le_bytes(array(head, 24)),
    }
}

/// Address in a record header.
pub struct RecordAddress {
    /// Pool.
    pub pool: PoolUuid,
    /// Chunk.
    pub chunk: u32,
    /// Byte offset in the chunk.
    pub offset: u32,
}

/// Signs a journal record of at least 128 bytes: its payload blocks, as far as there are checksums
/// for them at the given positions, and its head.
pub fn sign_record(record: &mut [u8]) -> RecordAddress {
    record[..8].copy_from_slice(b"WNDRWJRN");
    let number = |record: &[u8], at| u32::from_le_bytes(array(record, at)) as usize;
    let head = number(record, 28).clamp(128, record.len());
    record[28..32].copy_from_slice(&(head as u32).to_le_bytes());
    let (payloads, checksums) = (number(record, 88), 128 + number(record, 96).min(head));
    let (lengths, mut from) = (checksums + payloads.min(256) * 4, head);
    for payload in 0..payloads.min(256) {
        let (at, length_at) = (checksums + payload * 4, lengths + payload * 2);
        if length_at + 2 > head {
            break;
        }
        let length = usize::from(u16::from_le_bytes(array(record, length_at)));
        if let Some(bytes) = record.get(from..from + length) {
            let sum = windrow_format::batch::payload_checksum(bytes);
            record[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            from += length;
        }
    }
    record[100..104].copy_from_slice(&((from - head) as u32).to_le_bytes());
    let mut owner = [0; 40];
    owner[..8].copy_from_slice(b"WNDRWJRN");
    owner[8..24].copy_from_slice(&record[32..48]);
    owner[24..32].copy_from_slice(&record[48..56]);
    owner[32..40].copy_from_slice(&record[20..28]);
    let sum = xxh3_64_with_seed(&record[16..head], xxh3_64(&owner));
    record[8..16].copy_from_slice(&sum.to_le_bytes());
    RecordAddress {
        pool: Uuid(array(record, 32)),
        chunk: number(record, 20) as u32,
        offset: number(record, 24) as u32,
    }
}

/// Signs a superblock slot of 16384 bytes.
pub fn sign_superblock(slot: &mut [u8]) {
    slot[..8].copy_from_slice(b"WNDRWSUP");
    let owner: [u8; 17] = array(slot, 48);
    let sum = xxh3_64_with_seed(&slot[16..], xxh3_64(&owner));
    slot[8..16].copy_from_slice(&sum.to_le_bytes());
}

/// Signs a label of 4096 bytes.
pub fn sign_label(label: &mut [u8]) {
    label[..16].copy_from_slice(b"WINDROW-MEMBER\r\n");
    let sum = xxh3_64(&label[24..]);
    label[16..24].copy_from_slice(&sum.to_le_bytes());
}

/// Signs the chunks of a compact trace (`docs/lab/traces.md`), as far as their lengths are valid.
/// The head of the file is corrected, too.
pub fn sign_trace(bytes: &mut [u8]) {
    if bytes.len() < 16 {
        return;
    }
    bytes[..8].copy_from_slice(b"WINDTRC1");
    bytes[8] = [0, 9, 12][usize::from(bytes[8]) % 3];
    bytes[9..16].fill(0);
    let mut at = 16;
    while let Some(chunk) = bytes.get_mut(at..).filter(|chunk| chunk.len() >= 24) {
        // Lengths past the rest would end the trace at once.
        let length = u32::from_le_bytes(array(chunk, 4)) as usize % (chunk.len() - 23);
        chunk[1..4].fill(0);
        chunk[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        chunk[12..16].fill(0);
        let signed = [&chunk[..16], &chunk[24..24 + length]].concat();
        let sum = xxh3_64_with_seed(&signed, at as u64);
        chunk[16..24].copy_from_slice(&sum.to_le_bytes());
        at += 24 + length;
    }
}
