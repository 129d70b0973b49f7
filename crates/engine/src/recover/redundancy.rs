//! Redundancy of accepted batches: whole verification of what may be torn, and completion of what is not fully there.

use super::OpenError;
use super::chain::Chains;
use super::judge::Found;
use super::reader::{Ends, Reader, block_of};
use crate::jobs::encode_redundancy;
use crate::reconstruct::search;
use crate::{MemberStats, OpenReport};
use windrow_io::Buf;
use windrow_layout::batch::DecodedBatch;
use windrow_units::{BLOCK_SIZE, Column};

/// Looks at every byte of a batch whose head and tail verify: `Unverified` if a payload block can not be had, directly or rebuilt; else
/// whether all columns are on their members as they should be, redundancy included.
pub(super) fn verify_payload(reader: &mut Reader<'_>, batch: &DecodedBatch, ends: &Ends) -> Result<Found, OpenError> {
    let h = &batch.frame.header;
    let read = reader.all_columns(h.segment, h.row, h.rows)?;
    let Some(columns) = whole_columns(reader, batch, ends, &read) else { return Ok(Found::Unverified) };
    let whole = columns.iter().zip(&read).all(|(column, read)| read.as_ref().is_some_and(|r| r[..] == column[..]));
    Ok(if whole { Found::Whole } else { Found::Incomplete })
}

/// All columns as they must be, from those that were read.
fn whole_columns(reader: &Reader<'_>, batch: &DecodedBatch, ends: &Ends, read: &[Option<Buf>]) -> Option<Vec<Buf>> {
    let h = &batch.frame.header;
    let mut columns = data_columns(reader, batch, ends, read)?;
    columns.extend((0..h.shape.redundant()).map(|_| reader.buffers.get(h.rows as usize * BLOCK_SIZE)));
    encode_redundancy(&h.shape, &mut columns);
    Some(columns)
}

/// The data columns of a batch, whatever column is missing or wrong in whatever row: payload as its checksums want it, head and tail as
/// they verified, padding zero. All of it matters: redundancy computed from one wrong block, were it only a header, would destroy the
/// redundancy that could still repair it.
fn data_columns(reader: &Reader<'_>, batch: &DecodedBatch, ends: &Ends, read: &[Option<Buf>]) -> Option<Vec<Buf>> {
    let (frame, h) = (&batch.frame, &batch.frame.header);
    let mut columns: Vec<Buf> = (0..h.shape.data).map(|_| reader.buffers.get(h.rows as usize * BLOCK_SIZE)).collect();
    let mut put = |block: u32, fill: &mut dyn FnMut(usize, u32, &mut [u8]) -> bool| {
        let (column, row) = ((block / h.rows) as usize, block % h.rows);
        fill(column, row, &mut columns[column][row as usize * BLOCK_SIZE..][..BLOCK_SIZE])
    };
    for (block, bytes) in (0..frame.head_blocks).zip(ends.head().chunks_exact(BLOCK_SIZE)).chain([(frame.tail_block(), ends.tail())]) {
        put(block, &mut |_, _, out| {
            out.copy_from_slice(bytes);
            true
        });
    }
    for block in frame.head_blocks + frame.payload_blocks..frame.tail_block() {
        put(block, &mut |_, _, out| {
            out.fill(0);
            true
        });
    }
    let found = batch.entries.iter().filter_map(|e| e.payload.as_ref()).all(|payload| {
        put(payload.block, &mut |column, row, out| {
            let of_row: Vec<Option<&[u8]>> = read.iter().map(|c| c.as_ref().map(|c| block_of(c, row))).collect();
            search(&h.shape, column, &of_row, out, |bytes| windrow_reduce::checksum(bytes) == payload.checksum)
        })
    });
    found.then_some(columns)
}

/// Makes the accepted batches above the flushed numbers fully redundant again: every part that is missing or differs from what
/// it must be is written with exactly the bytes that the batch had from the start.
pub(super) fn complete(reader: &mut Reader<'_>, chains: &Chains, spent: &mut [MemberStats], report: &mut OpenReport) -> Result<(), OpenError> {
    for taken in chains.iter().flat_map(|c| &c.batches).filter(|b| b.incomplete) {
        let (batch, ends) = taken.read(reader)?;
        let h = &batch.frame.header;
        let read = reader.all_columns(h.segment, h.row, h.rows)?;
        let Some(columns) = whole_columns(reader, &batch, &ends, &read) else { continue };
        let mut completed = false;
        for (c, (column, read)) in columns.iter().zip(&read).enumerate() {
            let (member, offset) = reader.zones.locate(h.segment).address(h.row, Column(c as u8));
            let same = read.as_ref().is_some_and(|r| r[..] == column[..]);
            if same || !reader.online[member.index()] {
                continue;
            }
            reader.write(member, offset, column)?;
            spent[member.index()].written.repair += column.len() as u64;
            completed = true;
        }
        report.completed_batches += u64::from(completed);
    }
    Ok(())
}
