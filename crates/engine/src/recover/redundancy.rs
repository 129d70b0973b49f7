//! Redundancy of accepted batches: verification of batches that may be torn, and completion of
//! those with missing parts.

use super::OpenError;
use super::chain::Taken;
use super::judge::Found;
use super::reader::Reader;
use crate::api::MemberStats;
use crate::store::ends::Ends;
use crate::store::verify::{add_redundancy, data_columns};
use windrow_format::batch::DecodedBatch;
use windrow_geometry::Column;
use windrow_io::Buf;

/// Verifies every byte of a batch whose head and tail verify. Returns `Unverified` if a payload
/// block is unreadable, directly and by reconstruction; else whether all columns are correct on
/// their members, redundancy included.
pub(super) fn verify_payload(
    reader: &mut Reader<'_>,
    batch: &DecodedBatch,
    ends: &Ends,
) -> Result<Found, OpenError> {
    let h = &batch.frame.header;
    let read = reader.all_columns(h.segment, h.row, h.rows)?;
    let Some(columns) = whole_columns(reader, batch, ends, &read) else {
        return Ok(Found::Unverified);
    };
    let whole = columns
        .iter()
        .zip(&read)
        .all(|(column, read)| read.as_ref().is_some_and(|r| r[..] == column[..]));
    Ok(if whole {
        Found::Whole
    } else {
        Found::Incomplete
    })
}

/// Correct content of all columns, from those that were read.
fn whole_columns(
    reader: &Reader<'_>,
    batch: &DecodedBatch,
    ends: &Ends,
    read: &[Option<Buf>],
) -> Option<Vec<Buf>> {
    let (mut columns, lost) = data_columns(reader.buffers, batch, ends, read);
    if !lost.is_empty() {
        return None;
    }
    add_redundancy(reader.buffers, batch, &mut columns);
    Some(columns)
}

/// Restores full redundancy of the accepted batches above the flushed numbers. Every part that is
/// missing or differs is written with exactly the bytes that the batch had originally. Returns the
/// number of batches that were incomplete.
pub(super) fn complete<'t>(
    reader: &mut Reader<'_>,
    batches: impl Iterator<Item = &'t Taken>,
    spent: &mut [MemberStats],
) -> Result<u64, OpenError> {
    let mut completed_batches = 0;
    for taken in batches.filter(|b| b.incomplete) {
        let (batch, ends) = taken.read(reader)?;
        let h = &batch.frame.header;
        let read = reader.all_columns(h.segment, h.row, h.rows)?;
        let Some(columns) = whole_columns(reader, &batch, &ends, &read) else {
            continue;
        };
        let mut completed = false;
        for (c, (column, read)) in columns.iter().zip(&read).enumerate() {
            let (member, offset) = reader
                .zones
                .locate(h.segment)
                .address(h.row, Column(c as u8));
            let same = read.as_ref().is_some_and(|r| r[..] == column[..]);
            if same || !reader.online[member.index()] {
                continue;
            }
            reader.write(member, offset, column)?;
            spent[member.index()].written.repair += column.len() as u64;
            completed = true;
        }
        completed_batches += u64::from(completed);
    }
    Ok(completed_batches)
}
