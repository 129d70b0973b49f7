//! Short way of a rebuild: reads only what the wanted columns need, reconstructs them in one pass,
//! and verifies in place.
//!
//! 1. Missing columns that are data or wanted are reconstructed from the columns read, all rows at
//!    once, without verification.
//! 2. The batch decodes from these columns, every payload block has its checksum, and all padding
//!    is zero. So the data columns are correct to the last byte, reconstructed ones included, and
//!    with them the redundancy.
//! 3. If any check fails there is no result, and the long way of `store/verify.rs` finds the error
//!    with all readable columns.
//!
//! It takes the first valid header for the batch. A member that missed its writes cannot make up a
//! complete batch of a previous incarnation by itself: head and tail are in different data columns.
//! That does not hold for copies and single columns, which are excluded.

use super::{Verified, VerifyWork};
use crate::store::ends::find_ends;
use windrow_geometry::{Code, Shape};
use windrow_parity::{Column, Parity};
use windrow_types::BLOCK_SIZE;

/// True if a rebuild may take the short way.
pub(crate) fn is_for(shape: &Shape) -> bool {
    shape.data > 1 && matches!(shape.code, Code::P | Code::PQ)
}

/// Bit mask of readable columns that need not be read to have all data.
pub(crate) fn needless(shape: &Shape, there: u64) -> u64 {
    let data = usize::from(shape.data);
    let lost = (0..data).filter(|c| there >> c & 1 == 0).count();
    (data..usize::from(shape.width))
        .filter(|c| there >> c & 1 == 1)
        .skip(lost)
        .fold(0, |mask, c| mask | 1 << c)
}

impl VerifyWork {
    /// The batch with its data columns and the wanted ones; the others are empty.
    pub(super) fn lean(&mut self) -> Option<Verified> {
        let (data, bytes) = (
            usize::from(self.shape.data),
            self.rows as usize * BLOCK_SIZE,
        );
        let code = if self.shape.code == Code::PQ {
            Parity::PQ
        } else {
            Parity::P
        };
        let wanted = self.wanted;
        let was_read: Vec<bool> = self.columns.iter().map(Option::is_some).collect();
        let mut fresh: Vec<_> = (0..self.columns.len())
            .map(|c| {
                (self.columns[c].is_none() && (c < data || wanted >> c & 1 == 1))
                    .then(|| self.buffers.get(bytes))
            })
            .collect();
        let mut of_code: Vec<Column<'_>> = self
            .columns
            .iter()
            .zip(&mut fresh)
            .map(|(read, fresh)| match (read, fresh) {
                (Some(read), _) => Column::Present(read),
                (None, Some(fresh)) => Column::Lost(fresh),
                (None, None) => Column::Absent,
            })
            .collect();
        windrow_parity::reconstruct(code, data, &mut of_code).ok()?;
        // The columns read stay for the long way.
        let mut columns: Vec<_> = self
            .columns
            .iter_mut()
            .zip(fresh)
            .map(|(read, fresh)| fresh.or_else(|| read.take()))
            .collect();
        let found = self.verified(&columns);
        if found.is_none() {
            self.columns = columns
                .into_iter()
                .zip(was_read)
                .map(|(column, was_read)| column.filter(|_| was_read))
                .collect();
            return None;
        }
        let columns = columns
            .iter_mut()
            .map(|column| column.take().unwrap_or_else(|| self.buffers.get(0)))
            .collect();
        found.map(|batch| Verified {
            batch,
            columns,
            wrong: Vec::new(),
            lost: Vec::new(),
        })
    }

    /// The batch, if these data columns verify completely.
    fn verified(
        &self,
        columns: &[Option<windrow_io::Buf>],
    ) -> Option<windrow_format::batch::DecodedBatch> {
        let frame = self.header(&columns[0].as_ref()?[..BLOCK_SIZE])?;
        let (batch, ends) = find_ends(&self.pool, &frame, columns)?;
        let block = |number: u32| {
            let (column, row) = ((number / self.rows) as usize, (number % self.rows) as usize);
            columns[column]
                .as_ref()
                .map(|column| &column[row * BLOCK_SIZE..(row + 1) * BLOCK_SIZE])
        };
        let (head, tail) = (frame.head_blocks, frame.tail_block());
        let mut head_blocks = (0..head).zip(ends.head().chunks_exact(BLOCK_SIZE));
        let ends_are_right = head_blocks.all(|(number, must)| block(number) == Some(must))
            && block(tail) == Some(ends.tail());
        let is_zero = |bytes: &[u8]| {
            bytes
                .as_chunks::<16>()
                .0
                .iter()
                .all(|part| u128::from_ne_bytes(*part) == 0)
        };
        let padding_is_right =
            (head + frame.payload_blocks..tail).all(|number| block(number).is_some_and(is_zero));
        let is_right = ends_are_right
            && padding_is_right
            && batch.payload_blocks().all(|(number, checksum)| {
                block(number).is_some_and(|bytes| windrow_reduction::checksum(bytes) == checksum)
            });
        is_right.then_some(batch)
    }
}
