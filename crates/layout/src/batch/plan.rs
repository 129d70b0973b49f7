//! How many rows a batch takes, and where its parts lie.

use super::{FOOTER_BYTES, HEADER_BYTES};
use windrow_units::{BLOCK_SIZE, Shape};

/// The division of a batch into its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct BatchPlan {
    /// Blocks of header and table at the start.
    pub head_blocks: u32,
    /// Payload blocks that follow.
    pub payload_blocks: u32,
    /// Rows of the batch.
    pub rows: u32,
    /// Blocks between the payload and the tail that hold nothing.
    pub padding_blocks: u32,
}

/// Table bytes that fit beside `head_blocks` head blocks.
pub(super) fn table_capacity(head_blocks: u32) -> u64 {
    let head = u64::from(head_blocks) * BLOCK_SIZE as u64;
    (head + BLOCK_SIZE as u64).saturating_sub((HEADER_BYTES + FOOTER_BYTES) as u64)
}

/// The smallest number of head blocks for a table of `table_len` bytes.
pub(super) fn head_blocks_for(table_len: u64) -> u64 {
    (table_len + (HEADER_BYTES + FOOTER_BYTES) as u64).div_ceil(BLOCK_SIZE as u64).saturating_sub(1).max(1)
}

/// Rows from `row` to the end of its chunk, 0 if there is no such row.
fn rows_left(shape: &Shape, row: u32) -> u32 {
    if row >= shape.rows { 0 } else { shape.chunk_end(row).min(shape.rows) - row }
}

/// The smallest batch at `row` that holds a table of `table_len` bytes (see [`TableWriter::encoded_len`](super::TableWriter::encoded_len))
/// and `payload_blocks` payload blocks; `None` if it does not fit before the end of the chunk.
///
/// After a batch, no row of the chunk is left or enough for another batch: otherwise the batch takes them too, as padding.
pub fn plan_batch(shape: &Shape, row: u32, table_len: usize, payload_blocks: u32) -> Option<BatchPlan> {
    let left = rows_left(shape, row);
    let head_blocks = head_blocks_for(table_len as u64);
    let used = head_blocks + u64::from(payload_blocks) + 1;
    let data = u64::from(shape.data);
    let mut rows = used.div_ceil(data);
    if rows > u64::from(left) {
        return None;
    }
    if u64::from(left) - rows < u64::from(shape.min_batch_rows()) {
        rows = u64::from(left);
    }
    let padding_blocks = (rows * data - used) as u32;
    Some(BatchPlan { head_blocks: head_blocks as u32, payload_blocks, rows: rows as u32, padding_blocks })
}

/// No batch at `row` can hold more payload blocks than this (with a long table it holds fewer).
pub fn max_payload_blocks(shape: &Shape, row: u32) -> u32 {
    let blocks = u64::from(rows_left(shape, row)) * u64::from(shape.data);
    u32::try_from(blocks.saturating_sub(2)).unwrap_or(u32::MAX)
}

/// Data block (within the batch) of the tail: the last one.
#[inline]
pub fn tail_block(shape: &Shape, rows: u32) -> u32 {
    (rows * u32::from(shape.data)).saturating_sub(1)
}
