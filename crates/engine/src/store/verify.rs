//! Verification of a batch: the correct content of each of its blocks, and the wrong ones
//! (docs/internals/members.md).
//!
//! Every data block has a checksum (payload its own, head and tail theirs, padding is zero), and
//! the redundancy follows from the data. Nothing else counts as correct: redundancy computed from
//! one wrong block, even a header, would destroy the redundancy that could still repair it.
//!
//! A column that missed its writes may hold a valid batch of the previous incarnation; with one
//! copy or one data column even a complete one. So if anything is wrong, or map and table have
//! different checksums, all available headers of the segment's stream are tried, the newest first.
//! They are sorted by epoch, because a void batch and the one written over it have the same number,
//! then by number.

pub(crate) mod lean;

use crate::store::ends::{Ends, find_ends, of_row};
use crate::store::jobs::encode_redundancy;
use crate::store::reconstruct::search;
use windrow_format::batch::{DecodedBatch, HeaderFrame, PayloadInfo, decode_header};
use windrow_geometry::{Code, Shape};
use windrow_io::{Buf, BufPool};
use windrow_types::{BLOCK_SIZE, PoolUuid, SegmentId, StreamId};

/// Job that verifies one batch.
#[derive(Debug)]
pub(crate) struct VerifyWork {
    /// Requester.
    pub(crate) verification: u32,
    pub(crate) pool: PoolUuid,
    pub(crate) segment: SegmentId,
    pub(crate) row: u32,
    pub(crate) rows: u32,
    pub(crate) shape: Shape,
    /// Stream that wrote the segment.
    pub(crate) stream: StreamId,
    /// Columns as read.
    pub(crate) columns: Vec<Option<Buf>>,
    /// Bit mask of columns that were not read: they are not judged.
    pub(crate) absent: u64,
    /// If not 0: bit mask of the wanted columns; the short way is tried first
    /// (`store/verify/lean.rs`).
    pub(crate) wanted: u64,
    /// Bit mask of readable columns among `absent`: if not 0, only the short way is possible.
    pub(crate) skipped: u64,
    pub(crate) buffers: BufPool,
    /// Headers that the map contradicts: stale batches.
    pub(crate) refused: Vec<HeaderFrame>,
    /// Number of live units of the batch found; the engine sets it.
    pub(crate) live: u32,
    /// Result; `None`: its head or tail is unreadable.
    pub(crate) found: Option<Verified>,
}

/// Correct content of a batch.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) batch: DecodedBatch,
    /// All columns, correct except for what depends on `lost`.
    pub(crate) columns: Vec<Buf>,
    /// For each row the bit mask of wrong columns. (In rows with lost blocks the correct redundancy
    /// is unknown.)
    pub(crate) wrong: Vec<u64>,
    /// Unreadable payload blocks.
    pub(crate) lost: Vec<u32>,
}

impl Verified {
    /// True if nothing is wrong or lost.
    pub(crate) fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.wrong.iter().all(|columns| *columns == 0)
    }

    /// True if payload is in a lost block.
    pub(crate) fn is_lost(&self, payload: &PayloadInfo) -> bool {
        self.lost
            .iter()
            .any(|block| (payload.block()..=payload.last_block()).contains(block))
    }

    /// True if a row lacks redundancy: something in it is wrong or lost.
    fn is_weak_row(&self, row: u32) -> bool {
        self.wrong[row as usize] != 0
            || self
                .lost
                .iter()
                .any(|block| block % self.batch.frame.header.rows == row)
    }

    /// True if a row of the payload lacks redundancy.
    pub(crate) fn is_weak(&self, payload: &PayloadInfo) -> bool {
        let rows = self.batch.frame.header.rows;
        (payload.block()..=payload.last_block()).any(|block| self.is_weak_row(block % rows))
    }

    /// True if a row with a part of the head, or the tail, lacks redundancy.
    pub(crate) fn ends_are_weak(&self) -> bool {
        let frame = &self.batch.frame;
        let rows = frame.header.rows;
        (0..frame.head_blocks)
            .chain([frame.tail_block()])
            .any(|block| self.is_weak_row(block % rows))
    }
}

impl VerifyWork {
    /// Number of bytes to verify.
    pub(crate) fn bytes(&self) -> usize {
        self.columns
            .iter()
            .flatten()
            .map(|column| column.len())
            .sum()
    }

    pub(crate) fn run(&mut self) {
        if self.wanted != 0 {
            self.found = self.lean();
            if self.found.is_some() || self.skipped != 0 {
                return;
            }
        }
        let direct = self.columns[0]
            .as_ref()
            .and_then(|column| self.header(&column[..BLOCK_SIZE]));
        let found = direct.and_then(|frame| self.with_header(&frame));
        self.found = match found {
            Some(found) if found.is_whole() => Some(found),
            _ => self
                .headers()
                .iter()
                .find_map(|frame| self.with_header(frame)),
        };
    }

    fn header(&self, block: &[u8]) -> Option<HeaderFrame> {
        let frame = decode_header(block, &self.pool, self.segment, self.row).ok()?;
        let header = &frame.header;
        (header.stream == self.stream
            && header.rows == self.rows
            && header.shape == self.shape
            && !self.refused.contains(&frame))
        .then_some(frame)
    }

    /// All available headers, the newest first.
    fn headers(&self) -> Vec<HeaderFrame> {
        let mut headers: Vec<HeaderFrame> = Vec::new();
        let mut block = vec![0; BLOCK_SIZE];
        search(
            &self.shape,
            0,
            &of_row(&self.columns, 0),
            &mut block,
            |block| {
                if let Some(frame) = self.header(block)
                    && !headers.contains(&frame)
                {
                    headers.push(frame);
                }
                false
            },
        );
        headers.sort_by_key(|frame| std::cmp::Reverse((frame.header.epoch, frame.header.seq)));
        headers
    }

    fn with_header(&self, frame: &HeaderFrame) -> Option<Verified> {
        let (batch, ends) = find_ends(&self.pool, frame, &self.columns)?;
        let (mut columns, lost) = data_columns(&self.buffers, &batch, &ends, &self.columns);
        add_redundancy(&self.buffers, &batch, &mut columns);
        let wrong = (0..self.rows)
            .map(|row| self.wrong_in_row(row, &columns, &lost))
            .collect();
        Some(Verified {
            batch,
            columns,
            wrong,
            lost,
        })
    }

    fn wrong_in_row(&self, row: u32, columns: &[Buf], lost: &[u32]) -> u64 {
        let at = row as usize * BLOCK_SIZE..(row as usize + 1) * BLOCK_SIZE;
        let data = usize::from(self.shape.data);
        let lost = lost
            .iter()
            .filter(|block| *block % self.rows == row)
            .fold(0u64, |mask, block| mask | 1 << (block / self.rows));
        let mut wrong = 0;
        for (c, (must, read)) in columns.iter().zip(&self.columns).enumerate() {
            let is_right = || {
                read.as_ref()
                    .is_some_and(|read| read[at.clone()] == must[at.clone()])
            };
            // A lost block has a wrong checksum on every present member, and so do its copies.
            let of = if self.shape.code == Code::Copies {
                c % data
            } else {
                c
            };
            let is_lost = (lost >> of) & 1 == 1;
            let is_unknown = lost != 0 && c >= data && self.shape.code != Code::Copies;
            if self.absent >> c & 1 == 0 && !is_unknown && (is_lost || !is_right()) {
                wrong |= 1 << c;
            }
        }
        wrong
    }
}

/// Data columns of a batch, reconstructed wherever a column is missing or wrong, and the unreadable
/// payload blocks (zeroes in the columns).
pub(crate) fn data_columns(
    buffers: &BufPool,
    batch: &DecodedBatch,
    ends: &Ends,
    read: &[Option<Buf>],
) -> (Vec<Buf>, Vec<u32>) {
    let (frame, header) = (&batch.frame, &batch.frame.header);
    let mut columns: Vec<Buf> = (0..header.shape.data)
        .map(|_| buffers.get(header.rows as usize * BLOCK_SIZE))
        .collect();
    let place = |block: u32| ((block / header.rows) as usize, block % header.rows);
    let within = |row: u32| row as usize * BLOCK_SIZE..(row as usize + 1) * BLOCK_SIZE;
    for (block, bytes) in (0..frame.head_blocks)
        .zip(ends.head().chunks_exact(BLOCK_SIZE))
        .chain([(frame.tail_block(), ends.tail())])
    {
        let (column, row) = place(block);
        columns[column][within(row)].copy_from_slice(bytes);
    }
    for block in frame.head_blocks + frame.payload_blocks..frame.tail_block() {
        let (column, row) = place(block);
        columns[column][within(row)].fill(0);
    }
    let mut lost = Vec::new();
    for (block, checksum) in batch.payload_blocks() {
        let (column, row) = place(block);
        let right = |bytes: &[u8]| windrow_reduction::checksum(bytes) == checksum;
        if !search(
            &header.shape,
            column,
            &of_row(read, row),
            &mut columns[column][within(row)],
            right,
        ) {
            columns[column][within(row)].fill(0);
            lost.push(block);
        }
    }
    (columns, lost)
}

/// Appends the redundancy columns to the data columns of a batch.
pub(crate) fn add_redundancy(buffers: &BufPool, batch: &DecodedBatch, columns: &mut Vec<Buf>) {
    let header = &batch.frame.header;
    columns.extend(
        (0..header.shape.redundant()).map(|_| buffers.get(header.rows as usize * BLOCK_SIZE)),
    );
    encode_redundancy(&header.shape, columns);
}

#[cfg(test)]
mod tests;
