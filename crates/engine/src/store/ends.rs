//! Head and tail of a batch from all its columns, with missing or wrong ones among them.
//!
//! Both ends are correct together (the footer repeats the header's checksum), so they are searched
//! together. All head blocks are reconstructed under one hypothesis about the columns; where rows
//! have different wrong columns, under one for each block. The tail is then searched among its
//! candidates.

use crate::store::reconstruct::{hypotheses, search, suppose};
use windrow_format::batch::{DecodedBatch, HeaderFrame, decode_batch, decode_head, decode_header};
use windrow_io::Buf;
use windrow_types::{BLOCK_SIZE, PoolUuid};

/// Limit of candidates of one head block for combinations with the other blocks.
const HEAD_CANDIDATES: usize = 64;
/// Limit of combinations of head blocks to try if no single hypothesis fits all of them.
const HEAD_COMBINATIONS: usize = 1 << 12;

/// Verified head and tail of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    bytes: Box<[u8]>,
}

impl Ends {
    /// Ends from verified bytes.
    pub(crate) fn new(head: &[u8], tail: &[u8]) -> Self {
        Self {
            bytes: [head, tail].concat().into_boxed_slice(),
        }
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The head blocks.
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - BLOCK_SIZE]
    }

    /// The tail block.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.bytes[self.bytes.len() - BLOCK_SIZE..]
    }
}

/// Row `row` of a run of rows of a column.
pub(crate) fn block_of(column: &[u8], row: u32) -> &[u8] {
    &column[row as usize * BLOCK_SIZE..][..BLOCK_SIZE]
}

/// Blocks of one row of a batch, as far as its columns were readable.
pub(crate) fn of_row(columns: &[Option<Buf>], row: u32) -> Vec<Option<&[u8]>> {
    columns
        .iter()
        .map(|column| column.as_ref().map(|column| block_of(column, row)))
        .collect()
}

/// Ends of the batch with this header.
pub(crate) fn find_ends(
    pool: &PoolUuid,
    frame: &HeaderFrame,
    columns: &[Option<Buf>],
) -> Option<(DecodedBatch, Ends)> {
    let header = &frame.header;
    let head =
        direct_head(pool, frame, columns).or_else(|| head_by_hypothesis(pool, frame, columns))?;
    let (column, row) = (
        (frame.tail_block() / header.rows) as usize,
        frame.tail_block() % header.rows,
    );
    let mut tail = vec![0; BLOCK_SIZE];
    let mut found = None;
    let mut blocks = of_row(columns, row);
    // Known head blocks are certain.
    for (at, known) in (0..)
        .zip(head.chunks_exact(BLOCK_SIZE))
        .filter(|(at, _)| at % header.rows == row)
    {
        blocks[(at / header.rows) as usize] = Some(known);
    }
    search(&header.shape, column, &blocks, &mut tail, |tail| {
        found = decode_batch(&head, tail, pool, header.segment, header.row)
            .ok()
            .filter(|batch| batch.frame == *frame);
        found.is_some()
    });
    found.map(|batch| (batch, Ends::new(&head, &tail)))
}

fn is_head(pool: &PoolUuid, frame: &HeaderFrame, head: &[u8]) -> bool {
    let (segment, row) = (frame.header.segment, frame.header.row);
    decode_header(head, pool, segment, row).is_ok_and(|f| f == *frame)
        && decode_head(head, pool, segment, row).is_ok()
}

/// Head blocks as read, if they verify.
fn direct_head(pool: &PoolUuid, frame: &HeaderFrame, columns: &[Option<Buf>]) -> Option<Vec<u8>> {
    let rows = frame.header.rows;
    let mut head = Vec::with_capacity(frame.head_blocks as usize * BLOCK_SIZE);
    for block in 0..frame.head_blocks {
        head.extend_from_slice(block_of(
            columns.get((block / rows) as usize)?.as_ref()?,
            block % rows,
        ));
    }
    is_head(pool, frame, &head).then_some(head)
}

fn head_by_hypothesis(
    pool: &PoolUuid,
    frame: &HeaderFrame,
    columns: &[Option<Buf>],
) -> Option<Vec<u8>> {
    let (shape, rows) = (frame.header.shape, frame.header.rows);
    let mut head = vec![0; frame.head_blocks as usize * BLOCK_SIZE];
    // Candidates for each block.
    let mut candidates: Vec<Vec<Vec<u8>>> = vec![Vec::new(); frame.head_blocks as usize];
    for hypothesis in hypotheses(&shape) {
        let mut whole = true;
        for (block, out) in (0..frame.head_blocks).zip(head.chunks_exact_mut(BLOCK_SIZE)) {
            let there = suppose(
                &shape,
                (block / rows) as usize,
                &of_row(columns, block % rows),
                hypothesis,
                out,
            );
            let known = &mut candidates[block as usize];
            if there && known.len() < HEAD_CANDIDATES && !known.iter().any(|k| k[..] == *out) {
                known.push(out.to_vec());
            }
            whole &= there;
        }
        if whole && is_head(pool, frame, &head) {
            return Some(head);
        }
    }
    let combinations = candidates
        .iter()
        .map(Vec::len)
        .fold(1usize, usize::saturating_mul)
        .min(HEAD_COMBINATIONS);
    (0..combinations).find_map(|mut number| {
        for (out, of_block) in head.chunks_exact_mut(BLOCK_SIZE).zip(&candidates) {
            out.copy_from_slice(&of_block[number % of_block.len()]);
            number /= of_block.len();
        }
        is_head(pool, frame, &head).then(|| head.clone())
    })
}
