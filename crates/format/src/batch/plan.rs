//! Number of rows that a batch takes, and the positions of its parts.
//!
//! Uncompressed payload comes first, one block each. Compressed payload follows; each piece starts
//! at the next 16-byte unit and never crosses the end of a column, so it lies on one member. The
//! gaps at the ends of columns are smaller than one piece per column, together smaller than a row.
//! A batch therefore takes the rows that its pieces need without gaps, or one more. `c` free blocks
//! of a column hold at least `c` pieces, so compressed payload never takes more blocks than
//! uncompressed payload would.

use super::{FOOTER_BYTES, HEADER_BYTES};
use windrow_geometry::Shape;
use windrow_types::{BLOCK_SIZE, FULL_BLOCK_UNITS};

/// Units of a block.
const BLOCK_UNITS: u64 = FULL_BLOCK_UNITS as u64;

/// Division of a batch into its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct BatchPlan {
    /// Number of head blocks (header and table) at the start.
    pub head_blocks: u32,
    /// Number of payload blocks that follow, compressed and uncompressed.
    pub payload_blocks: u32,
    /// Number of payload blocks with compressed payload: the last ones.
    pub compressed_blocks: u32,
    /// Number of rows of the batch.
    pub rows: u32,
    /// Number of unused blocks between payload and tail.
    pub padding_blocks: u32,
}

impl BatchPlan {
    /// Positions of the payloads.
    pub fn places(&self) -> PayloadOffsets {
        PayloadOffsets::new(
            self.head_blocks,
            self.payload_blocks - self.compressed_blocks,
            self.rows,
        )
    }
}

/// Assigns positions to the payloads of a batch, in entry order.
#[derive(Clone, Copy, Debug)]
pub struct PayloadOffsets {
    /// Next unit for uncompressed payload, from the first unit of the batch.
    whole: u64,
    /// Next unit for compressed payload.
    compressed: u64,
    column: u64,
}

impl PayloadOffsets {
    /// Positions for a batch of `rows` rows with these numbers of head blocks and uncompressed
    /// payload blocks.
    pub fn new(head_blocks: u32, whole_blocks: u32, rows: u32) -> Self {
        let whole = u64::from(head_blocks) * BLOCK_UNITS;
        Self {
            whole,
            compressed: whole + u64::from(whole_blocks) * BLOCK_UNITS,
            column: u64::from(rows.max(1)) * BLOCK_UNITS,
        }
    }

    /// First unit of the next payload, which has `units` units (a whole block: uncompressed).
    #[inline]
    pub fn next(&mut self, units: u16) -> u64 {
        if units == FULL_BLOCK_UNITS {
            let at = self.whole;
            self.whole += BLOCK_UNITS;
            return at;
        }
        let units = u64::from(units);
        let left = self.column - self.compressed % self.column;
        if units > left {
            self.compressed += left;
        }
        let at = self.compressed;
        self.compressed += units;
        at
    }

    /// Block after the last compressed payload so far.
    pub fn end_block(&self) -> u64 {
        self.compressed.div_ceil(BLOCK_UNITS)
    }
}

/// Table bytes that fit in `head_blocks` head blocks and the tail.
pub(super) fn table_capacity(head_blocks: u32) -> u64 {
    let head = u64::from(head_blocks) * BLOCK_SIZE as u64;
    (head + BLOCK_SIZE as u64).saturating_sub((HEADER_BYTES + FOOTER_BYTES) as u64)
}

/// The smallest number of head blocks for a table of `table_len` bytes.
pub(super) fn head_blocks_for(table_len: u64) -> u64 {
    (table_len + (HEADER_BYTES + FOOTER_BYTES) as u64)
        .div_ceil(BLOCK_SIZE as u64)
        .saturating_sub(1)
        .max(1)
}

/// Rows from `row` to the end of its chunk, 0 if there is no such row.
fn rows_left(shape: &Shape, row: u32) -> u32 {
    if row >= shape.rows {
        0
    } else {
        shape.chunk_end(row).min(shape.rows) - row
    }
}

/// The smallest batch at `row` that holds a table of `table_len` bytes (see
/// [`TableWriter::encoded_len`](super::TableWriter::encoded_len)) and `payload_blocks` uncompressed
/// payload blocks; `None` if it does not fit before the end of the chunk.
///
/// After a batch, no row of the chunk is left or enough for another batch: otherwise the batch
/// takes them too, as padding.
#[inline]
pub fn plan_batch(
    shape: &Shape,
    row: u32,
    table_len: usize,
    payload_blocks: u32,
) -> Option<BatchPlan> {
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
    Some(BatchPlan {
        head_blocks: head_blocks as u32,
        payload_blocks,
        compressed_blocks: 0,
        rows: rows as u32,
        padding_blocks,
    })
}

/// As [`plan_batch`], with compressed payload of these units, in entry order, after `whole_blocks`
/// uncompressed payload blocks.
pub fn plan_compressed(
    shape: &Shape,
    row: u32,
    table_len: usize,
    whole_blocks: u32,
    compressed: &[u16],
) -> Option<BatchPlan> {
    if compressed.is_empty() {
        return plan_batch(shape, row, table_len, whole_blocks);
    }
    let left = rows_left(shape, row);
    let head_blocks = head_blocks_for(table_len as u64) as u32;
    let (data, before) = (
        u64::from(shape.data),
        u64::from(head_blocks) + u64::from(whole_blocks),
    );
    let units: u64 = compressed.iter().map(|units| u64::from(*units)).sum();
    let least = (before + units.div_ceil(BLOCK_UNITS) + 1).div_ceil(data);
    let rows = (least..=least + 1)
        .take_while(|rows| *rows <= u64::from(left))
        .map(|rows| rows as u32);
    let mut found = rows
        .map(|rows| {
            (
                rows,
                compressed_end(head_blocks, whole_blocks, rows, compressed),
            )
        })
        .find(|(rows, end)| *end < u64::from(*rows) * data)?;
    if left - found.0 < shape.min_batch_rows() && found.0 < left {
        found = (
            left,
            compressed_end(head_blocks, whole_blocks, left, compressed),
        );
    }
    let (rows, end) = found;
    debug_assert!(
        end < u64::from(rows) * data,
        "more rows take what fewer took"
    );
    let payload_blocks = (end - u64::from(head_blocks)) as u32;
    let padding_blocks = (u64::from(rows) * data - end - 1) as u32;
    Some(BatchPlan {
        head_blocks,
        payload_blocks,
        compressed_blocks: payload_blocks - whole_blocks,
        rows,
        padding_blocks,
    })
}

/// Decides whether the payload given to [`plan_compressed`] fits in the chunk, without the
/// individual lengths. `None` if these decide.
pub fn compressed_fits(
    shape: &Shape,
    row: u32,
    table_len: usize,
    whole_blocks: u32,
    compressed_units: u64,
) -> Option<bool> {
    let before = head_blocks_for(table_len as u64) + u64::from(whole_blocks);
    let least =
        (before + compressed_units.div_ceil(BLOCK_UNITS) + 1).div_ceil(u64::from(shape.data));
    match u64::from(rows_left(shape, row)) {
        left if least < left => Some(true),
        left if least > left => Some(false),
        _ => None,
    }
}

/// Block after the compressed payload in a batch of `rows` rows.
fn compressed_end(head_blocks: u32, whole_blocks: u32, rows: u32, compressed: &[u16]) -> u64 {
    let mut addresses = PayloadOffsets::new(head_blocks, whole_blocks, rows);
    compressed.iter().for_each(|units| {
        addresses.next(*units);
    });
    addresses.end_block()
}

/// Upper bound of uncompressed payload blocks of a batch at `row` (a long table leaves room for
/// fewer).
pub fn max_payload_blocks(shape: &Shape, row: u32) -> u32 {
    let blocks = u64::from(rows_left(shape, row)) * u64::from(shape.data);
    u32::try_from(blocks.saturating_sub(2)).unwrap_or(u32::MAX)
}

/// Data block (within the batch) of the tail: the last one.
#[inline]
pub fn tail_block(shape: &Shape, rows: u32) -> u32 {
    (rows * u32::from(shape.data)).saturating_sub(1)
}

#[cfg(test)]
mod tests;
