//! Redundancy of accepted batches: whole verification of what may be torn, and completion of what is not fully there.

use super::OpenError;
use super::chain::Chains;
use super::judge::Found;
use super::reader::Reader;
use crate::jobs::encode_redundancy;
use crate::{OpenReport, WrittenBytes};
use windrow_io::Buf;
use windrow_layout::batch::DecodedBatch;
use windrow_units::{BLOCK_SIZE, Column};

/// Looks at every byte of a batch whose head and tail verify: `Unverified` if a payload block can not be had, directly or rebuilt; else
/// whether all columns are on their members as they should be, redundancy included.
pub(super) fn verify_payload(reader: &mut Reader<'_>, batch: &DecodedBatch) -> Result<Found, OpenError> {
    let h = &batch.frame.header;
    let read = reader.all_columns(h.segment, h.row, h.rows)?;
    let Some(columns) = whole_columns(reader, batch, &read) else { return Ok(Found::Unverified) };
    let whole = columns.iter().zip(&read).all(|(column, read)| read.as_ref().is_some_and(|r| r[..] == column[..]));
    Ok(if whole { Found::Whole } else { Found::Incomplete })
}

/// All columns as they must be, from those that were read.
fn whole_columns(reader: &Reader<'_>, batch: &DecodedBatch, read: &[Option<Buf>]) -> Option<Vec<Buf>> {
    let h = &batch.frame.header;
    let mut columns = data_columns(reader, batch, read)?;
    columns.extend((0..h.shape.redundant()).map(|_| reader.buffers.get(h.rows as usize * BLOCK_SIZE)));
    encode_redundancy(&h.shape, &mut columns);
    Some(columns)
}

/// The data columns of a batch with every block verified, whatever column is missing or wrong: payload by its checksums, head and
/// tail by decoding them, padding by being zero. All of it matters: redundancy computed from one wrong block, were it only a
/// header, would destroy the redundancy that could still repair it.
fn data_columns(reader: &Reader<'_>, batch: &DecodedBatch, columns: &[Option<Buf>]) -> Option<Vec<Buf>> {
    let h = &batch.frame.header;
    let rows = h.rows;
    let mut suspects: Vec<Option<usize>> = vec![None];
    suspects.extend((0..columns.len()).filter(|c| columns[*c].is_some()).map(Some));
    for suspect in suspects {
        let data: Option<Vec<Buf>> = (0..usize::from(h.shape.data)).map(|c| reader.data_column(&h.shape, columns, c, suspect)).collect();
        let Some(data) = data else { continue };
        let block = |b: u32| &data[(b / rows) as usize][(b % rows) as usize * BLOCK_SIZE..][..BLOCK_SIZE];
        let payload = batch.entries.iter().filter_map(|e| e.payload.as_ref()).all(|p| windrow_reduce::checksum(block(p.block)) == p.checksum);
        if payload && ends_verify(batch, reader, block) {
            return Some(data);
        }
    }
    None
}

/// True if head and tail decode to this very batch and the padding is zero.
fn ends_verify<'b>(batch: &DecodedBatch, reader: &Reader<'_>, block: impl Fn(u32) -> &'b [u8]) -> bool {
    let (frame, h) = (&batch.frame, &batch.frame.header);
    let head: Vec<u8> = (0..frame.head_blocks).flat_map(|b| block(b).iter().copied()).collect();
    let padding = frame.head_blocks + frame.payload_blocks..frame.tail_block();
    windrow_layout::batch::decode_batch(&head, block(frame.tail_block()), &reader.pool, h.segment, h.row).is_ok_and(|b| b == *batch)
        && padding.into_iter().all(|b| windrow_reduce::classify(block(b)) == windrow_reduce::BlockClass::Zero)
}

/// Makes the accepted batches above the flushed numbers fully redundant again: every part that is missing or differs from what
/// it must be is written with exactly the bytes that the batch had from the start.
pub(super) fn complete(reader: &mut Reader<'_>, chains: &Chains, stats: &mut [WrittenBytes], report: &mut OpenReport) -> Result<(), OpenError> {
    for taken in chains.iter().flat_map(|c| &c.batches).filter(|b| b.incomplete) {
        let batch = taken.batch(reader)?;
        let h = &batch.frame.header;
        let read = reader.all_columns(h.segment, h.row, h.rows)?;
        let Some(columns) = whole_columns(reader, &batch, &read) else { continue };
        let mut completed = false;
        for (c, (column, read)) in columns.iter().zip(&read).enumerate() {
            let (member, offset) = reader.zones.locate(h.segment).address(h.row, Column(c as u8));
            let same = read.as_ref().is_some_and(|r| r[..] == column[..]);
            if same || !reader.online[member.index()] {
                continue;
            }
            reader.write(member, offset, column)?;
            stats[member.index()].repair += column.len() as u64;
            completed = true;
        }
        report.completed_batches += u64::from(completed);
    }
    Ok(())
}
