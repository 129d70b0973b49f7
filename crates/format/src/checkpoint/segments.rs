//! Records of the segment table.
//!
//! ```text
//! 0..4 segment   4 stream   5 flags (bit 0 in use)   6..8 zero   8..12 filled rows   12..16 stale members
//!                                                              (index + 1 each, ascending, then zeroes)
//! 16..24 checkpoint   24..32 sequence number   32.. one bit for each row: a batch starts there
//! ```
//! Records have one size in a pool, given by the rows of its largest segment, a multiple of 32
//! bytes, and never cross pages. An all-zero record is a segment that was never written.

use super::{PageError, STALE_MEMBERS_MAX, SegmentRecord};
use crate::MAX_SEGMENT_ROWS;
use crate::bytes::{BEYOND_COUNT, are_counts, is_zero, put, u8_at, u16_at, u32_at, u64_at};
use windrow_types::{BLOCK_SIZE, BatchSeq, MAX_STREAMS, SegmentId, StreamId};

const S_FILLED: usize = 8;
const S_STALE: usize = 12;
const S_CHECKPOINT: usize = 16;
const S_SEQ: usize = 24;
const S_STARTS: usize = 32;
const RECORD_ALIGN: usize = 32;
const _: () = assert!(S_STARTS + MAX_SEGMENT_ROWS as usize / 8 <= BLOCK_SIZE);

/// Geometry of the segment table's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentTableGeometry {
    /// Bytes from record to record.
    pub stride: usize,
    /// Records in a page.
    pub per_page: usize,
}

impl SegmentTableGeometry {
    /// For a pool whose largest segment has `max_rows` rows.
    ///
    /// # Panics
    /// If that is more than [`MAX_SEGMENT_ROWS`]; the superblock's decoder refuses such shapes.
    pub fn new(max_rows: u32) -> Self {
        assert!(max_rows <= MAX_SEGMENT_ROWS, "segments of {max_rows} rows");
        let stride = (S_STARTS + (max_rows as usize).div_ceil(8)).next_multiple_of(RECORD_ALIGN);
        Self {
            stride,
            per_page: BLOCK_SIZE / stride,
        }
    }

    /// Pages of the table for `segments` segments.
    pub fn pages(&self, segments: u32) -> u32 {
        segments.div_ceil(self.per_page as u32)
    }

    /// Page and byte offset in it of a segment's record.
    pub fn locate(&self, segment: SegmentId) -> (u32, usize) {
        (
            segment.0 / self.per_page as u32,
            segment.index() % self.per_page * self.stride,
        )
    }
}

/// Writes one record; `out` is `stride` bytes.
///
/// # Panics
/// If the record's bit set does not fit, or names more stale members than [`STALE_MEMBERS_MAX`].
pub fn encode_segment(record: &SegmentRecord, out: &mut [u8]) {
    assert!(
        record.stale.count_ones() as usize <= STALE_MEMBERS_MAX,
        "stale on {} members",
        record.stale.count_ones()
    );
    assert!(
        S_STARTS + 8 * record.starts.len() <= out.len(),
        "{} words in a record of {} bytes",
        record.starts.len(),
        out.len()
    );
    out.fill(0);
    put(out, 0, &record.segment.0.to_le_bytes());
    put(out, 4, &[record.stream.0, u8::from(record.in_use)]);
    put(out, S_FILLED, &record.filled_rows.to_le_bytes());
    let stale = (0..64u8).filter(|member| record.stale >> member & 1 == 1);
    for (slot, member) in out[S_STALE..S_STALE + STALE_MEMBERS_MAX]
        .iter_mut()
        .zip(stale)
    {
        *slot = member + 1;
    }
    put(out, S_CHECKPOINT, &record.last_checkpoint.to_le_bytes());
    put(out, S_SEQ, &record.last_seq.0.to_le_bytes());
    for (slot, word) in out[S_STARTS..].chunks_exact_mut(8).zip(&record.starts) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
}

/// Reads the record of `segment`, which has `rows` rows; `bytes` is `stride` bytes.
pub fn decode_segment(
    bytes: &[u8],
    segment: SegmentId,
    rows: u32,
) -> Result<SegmentRecord, PageError> {
    let words = rows.div_ceil(64) as usize;
    if bytes.len() < S_STARTS + 8 * words {
        return Err(PageError::WrongLength);
    }
    let written = !is_zero(bytes);
    if written && u32_at(bytes, 0) != segment.0 {
        return Err(PageError::Malformed("the record of another segment"));
    }
    let flags = u8_at(bytes, 5);
    if flags > 1 || u16_at(bytes, 6) != 0 {
        return Err(PageError::Malformed("a segment with unknown flags"));
    }
    let stream = StreamId(u8_at(bytes, 4));
    let filled_rows = u32_at(bytes, S_FILLED);
    if stream.index() >= MAX_STREAMS || filled_rows > rows {
        return Err(PageError::Malformed(
            "a segment of an impossible stream or filling",
        ));
    }
    let (starts, rest) = bytes[S_STARTS..].split_at(8 * words);
    let starts: Vec<u64> = starts.chunks_exact(8).map(|word| u64_at(word, 0)).collect();
    let beyond =
        !rows.is_multiple_of(64) && starts.last().is_some_and(|word| word >> (rows % 64) != 0);
    if beyond || !is_zero(rest) {
        return Err(PageError::Malformed(
            "a batch that starts past the end of its segment",
        ));
    }
    let listed = &bytes[S_STALE..S_STALE + STALE_MEMBERS_MAX];
    if listed
        .windows(2)
        .any(|pair| pair[1] != 0 && (pair[0] == 0 || pair[0] >= pair[1]))
        || listed.iter().any(|member| *member > 64)
    {
        return Err(PageError::Malformed("an impossible list of stale members"));
    }
    let stale = listed
        .iter()
        .filter(|member| **member != 0)
        .fold(0u64, |mask, member| mask | 1 << (member - 1));
    let (last_checkpoint, last_seq) = (u64_at(bytes, S_CHECKPOINT), u64_at(bytes, S_SEQ));
    if !are_counts([last_checkpoint, last_seq]) {
        return Err(PageError::Malformed(BEYOND_COUNT));
    }
    Ok(SegmentRecord {
        segment,
        stream,
        in_use: flags == 1,
        filled_rows,
        last_checkpoint,
        last_seq: BatchSeq(last_seq),
        stale,
        starts,
    })
}
