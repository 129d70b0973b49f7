//! CPU work that leaves the engine as owned values: sealing a batch, verifying blocks,
//! reconstructing blocks.
//!
//! A job owns everything it needs, touches nothing else and gives the same result wherever it runs.
//! Drivers may run jobs in any order on any thread; the engine puts the results back in order
//! itself.

use crate::api::WrittenBytes;
use crate::base::piece::{Piece, units_of};
use crate::store::reconstruct::{rebuild, search};
use crate::store::stream::BlockCause;
use crate::store::verify::VerifyWork;
use windrow_format::batch::{self, BatchHeader, BatchPlan, TableWriter};
use windrow_geometry::{Code, Column, Shape};
use windrow_io::{Buf, BufPool, Payload};
use windrow_types::{ADDRESS_UNIT, BLOCK_BYTES, BLOCK_SIZE, BatchSeq, FULL_BLOCK_UNITS};

mod compare;
mod decompress;
mod journal;
mod reduce;
mod repack;

pub(crate) use compare::{CompareWork, Comparison};
pub(crate) use decompress::DecompressWork;
pub(crate) use journal::JournalWork;
pub(crate) use reduce::{FingerprintWork, ReduceWork};
pub(crate) use repack::{Move, RepackWork};

/// A unit of work. Created by the engine, run once by the driver, returned to the engine.
#[derive(Debug)]
pub struct Job(pub(crate) Work);

#[derive(Debug)]
pub(crate) enum Work {
    Seal(Box<SealWork>),
    Checksum(Box<ChecksumWork>),
    Rebuild(Box<RebuildWork>),
    Verify(Box<VerifyWork>),
    Journal(Box<JournalWork>),
    Decompress(Box<DecompressWork>),
    Reduce(Box<ReduceWork>),
    Fingerprint(Box<FingerprintWork>),
    Compare(Box<CompareWork>),
    Repack(Box<RepackWork>),
}

impl Job {
    /// Does the work.
    pub fn run(&mut self) {
        match &mut self.0 {
            Work::Seal(work) => work.run(),
            Work::Checksum(work) => work.run(),
            Work::Rebuild(work) => work.run(),
            Work::Verify(work) => work.run(),
            Work::Journal(work) => work.run(),
            Work::Decompress(work) => work.run(),
            Work::Reduce(work) => work.run(),
            Work::Fingerprint(work) => work.run(),
            Work::Compare(work) => work.run(),
            Work::Repack(work) => work.run(),
        }
    }

    /// Approximate number of bytes it touches: drivers run small jobs inline.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Work::Seal(work) => {
                work.plan.rows as usize * usize::from(work.header.shape.width) * BLOCK_SIZE
            }
            Work::Checksum(work) => work.blocks.len(),
            Work::Rebuild(work) => work.columns.iter().flatten().map(|b| b.len()).sum(),
            Work::Verify(work) => work.bytes(),
            Work::Journal(work) => work.bytes_at_most() as usize,
            Work::Decompress(work) => work.bytes(),
            Work::Reduce(work) => work.bytes(),
            Work::Fingerprint(work) => work.bytes(),
            Work::Compare(work) => work.bytes(),
            Work::Repack(work) => work.bytes(),
        }
    }
}

/// Assembles a batch: copies payloads to their columns, computes checksums, header, footer and
/// redundancy columns.
#[derive(Debug)]
pub(crate) struct SealWork {
    pub stream: usize,
    pub seq: BatchSeq,
    pub header: BatchHeader,
    pub plan: BatchPlan,
    pub table: TableWriter,
    pub payloads: Vec<Payload>,
    /// Indexes of the payloads that are pages of the deduplication index.
    pub index_pages: Vec<u32>,
    /// Cause of the payload.
    pub cause: BlockCause,
    pub buffers: BufPool,
    /// Result: one buffer for each column.
    pub columns: Vec<Buf>,
    /// Result: checksums of the payloads.
    pub checksums: Vec<u32>,
    /// Result: bytes by cause for each column.
    pub written: Vec<WrittenBytes>,
}

impl SealWork {
    fn run(&mut self) {
        let shape = self.header.shape;
        let rows = self.plan.rows as usize;
        let bytes = rows * BLOCK_SIZE;
        self.columns = (0..shape.width).map(|_| self.buffers.get(bytes)).collect();
        self.written = vec![WrittenBytes::default(); usize::from(shape.width)];
        let checkpoint = self.cause == BlockCause::Checkpoint;
        let cause = |cause: BlockCause| {
            if checkpoint {
                BlockCause::Checkpoint
            } else {
                cause
            }
        };
        let last = rows * usize::from(shape.data) - 1;
        let head = self.plan.head_blocks as usize;
        let put = |columns: &mut [Buf],
                   written: &mut [WrittenBytes],
                   block: usize,
                   source: &[u8],
                   why: BlockCause|
         -> u32 {
            let (column, row) = (block / rows, block % rows);
            cause(why).add(BLOCK_BYTES, &mut written[column]);
            let target = &mut columns[column][row * BLOCK_SIZE..(row + 1) * BLOCK_SIZE];
            match why {
                BlockCause::User
                | BlockCause::Index
                | BlockCause::Moved
                | BlockCause::Checkpoint => windrow_reduction::copy_and_checksum(target, source),
                BlockCause::Padding => {
                    target.fill(0);
                    0
                }
                BlockCause::Header => {
                    target.copy_from_slice(source);
                    0
                }
            }
        };
        self.checksums.clear();
        let whole = (self.plan.payload_blocks - self.plan.compressed_blocks) as usize;
        for (i, (number, payload)) in (0..)
            .zip(&self.payloads)
            .filter(|(_, payload)| payload.len() == BLOCK_SIZE)
            .enumerate()
        {
            let why = if self.index_pages.contains(&number) {
                BlockCause::Index
            } else {
                self.cause
            };
            let sum = put(&mut self.columns, &mut self.written, head + i, payload, why);
            self.checksums.push(sum);
        }
        debug_assert_eq!(self.checksums.len(), whole);
        let mut of_table = Vec::new();
        if whole < self.payloads.len() {
            of_table = self.put_compressed(rows);
        }
        for block in head + self.plan.payload_blocks as usize..last {
            put(
                &mut self.columns,
                &mut self.written,
                block,
                &[],
                BlockCause::Padding,
            );
        }
        let mut ends = self.buffers.get((head + 1) * BLOCK_SIZE);
        let (head_bytes, tail_bytes) = ends.split_at_mut(head * BLOCK_SIZE);
        let of_table = if of_table.is_empty() {
            &self.checksums
        } else {
            &of_table
        };
        batch::encode_ends(
            &self.header,
            &self.table,
            of_table,
            &self.plan,
            head_bytes,
            tail_bytes,
        );
        for block in 0..head {
            let source = &ends[block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE];
            put(
                &mut self.columns,
                &mut self.written,
                block,
                source,
                BlockCause::Header,
            );
        }
        put(
            &mut self.columns,
            &mut self.written,
            last,
            &ends[head * BLOCK_SIZE..],
            BlockCause::Header,
        );
        encode_redundancy(&shape, &mut self.columns);
        for written in &mut self.written[usize::from(shape.data)..] {
            written.parity += bytes as u64;
        }
    }
}

impl SealWork {
    /// Puts the compressed payload after the uncompressed blocks. `checksums` holds those of the
    /// uncompressed blocks, and becomes that of all payloads in order. Returns those for the table:
    /// of all payload blocks, then of the compressed payload.
    fn put_compressed(&mut self, rows: usize) -> Vec<u32> {
        let column_units = (rows * BLOCK_SIZE / ADDRESS_UNIT) as u64;
        let mut addresses = self.plan.places();
        let whole = std::mem::take(&mut self.checksums);
        let (mut of_whole, mut compressed) = (
            whole.iter(),
            Vec::with_capacity(self.payloads.len() - whole.len()),
        );
        let first = u64::from(
            self.plan.head_blocks + self.plan.payload_blocks - self.plan.compressed_blocks,
        ) * u64::from(FULL_BLOCK_UNITS);
        let end = u64::from(self.plan.head_blocks + self.plan.payload_blocks)
            * u64::from(FULL_BLOCK_UNITS);
        let mut behind = first;
        for payload in &self.payloads {
            if payload.len() == BLOCK_SIZE {
                self.checksums.extend(of_whole.next());
                continue;
            }
            let at = addresses.next(units_of(payload));
            fill_gap(
                &mut self.columns,
                &mut self.written,
                behind..at,
                column_units,
            );
            let (column, byte) = (
                (at / column_units) as usize,
                (at % column_units) as usize * ADDRESS_UNIT,
            );
            let sum = windrow_reduction::copy_and_checksum(
                &mut self.columns[column][byte..byte + payload.len()],
                payload,
            );
            self.cause
                .add(payload.len() as u64, &mut self.written[column]);
            behind = at + u64::from(units_of(payload));
            compressed.push(sum);
            self.checksums.push(sum);
        }
        fill_gap(
            &mut self.columns,
            &mut self.written,
            behind..end,
            column_units,
        );
        let mut of_table = whole;
        for block in first / u64::from(FULL_BLOCK_UNITS)..end / u64::from(FULL_BLOCK_UNITS) {
            let (column, row) = (block as usize / rows, block as usize % rows);
            of_table.push(windrow_reduction::checksum(
                &self.columns[column][row * BLOCK_SIZE..][..BLOCK_SIZE],
            ));
        }
        of_table.extend(compressed);
        of_table
    }
}

/// Zeroes the units between compressed payloads, which may be at the end of one column and the
/// start of the next.
fn fill_gap(
    columns: &mut [Buf],
    written: &mut [WrittenBytes],
    gap: std::ops::Range<u64>,
    column_units: u64,
) {
    let mut at = gap.start;
    while at < gap.end {
        let end = gap.end.min((at / column_units + 1) * column_units);
        let (column, byte) = (
            (at / column_units) as usize,
            (at % column_units) as usize * ADDRESS_UNIT,
        );
        let bytes = (end - at) as usize * ADDRESS_UNIT;
        columns[column][byte..byte + bytes].fill(0);
        BlockCause::Padding.add(bytes as u64, &mut written[column]);
        at = end;
    }
}

/// Computes the redundancy columns from the data columns.
pub(crate) fn encode_redundancy(shape: &Shape, columns: &mut [Buf]) {
    let data = usize::from(shape.data);
    let (data_columns, redundant) = columns.split_at_mut(data);
    match shape.code {
        Code::None => {}
        Code::Copies => {
            for (i, copy) in redundant.iter_mut().enumerate() {
                copy.copy_from_slice(&data_columns[i % data]);
            }
        }
        Code::P => {
            let sources: Vec<&[u8]> = data_columns.iter().map(|c| &c[..]).collect();
            windrow_parity::encode_p(&sources, &mut redundant[0]);
        }
        Code::PQ => {
            let sources: Vec<&[u8]> = data_columns.iter().map(|c| &c[..]).collect();
            let (p, q) = redundant.split_at_mut(1);
            windrow_parity::encode_pq(&sources, &mut p[0], &mut q[0]);
        }
    }
}

/// Compares blocks with their checksums.
#[derive(Debug)]
pub(crate) struct ChecksumWork {
    pub fetch: u32,
    pub blocks: Payload,
    pub pieces: Vec<Piece>,
    /// Result: true if all agree.
    pub good: bool,
}

impl ChecksumWork {
    fn run(&mut self) {
        self.good = checksums_agree(&self.blocks, &self.pieces);
    }
}

/// True if each piece of `bytes` matches its checksum.
pub(crate) fn checksums_agree(bytes: &[u8], pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| piece.is_in(bytes))
}

/// Reconstructs a run of rows of one column. With pieces, only verified bytes of the pieces are a
/// result. The rows of each piece are tried with all error patterns for which the redundancy covers
/// the missing and wrong columns.
#[derive(Debug)]
pub(crate) struct RebuildWork {
    pub fetch: u32,
    pub shape: Shape,
    pub column: Column,
    /// Bytes read of the other columns (same length).
    pub columns: Vec<Option<Buf>>,
    /// Bytes read of the wanted column, if readable: some of its rows may be correct.
    pub own: Option<Payload>,
    /// Columns and rows that were unreadable, where a column was read row by row.
    pub lost: Vec<(u8, u8)>,
    pub rows: u32,
    /// Pieces wanted of it; empty: take the first possible reconstruction, the caller verifies.
    pub pieces: Vec<Piece>,
    pub buffers: BufPool,
    /// Result.
    pub rebuilt: Option<Payload>,
}

impl RebuildWork {
    fn run(&mut self) {
        let wanted = usize::from(self.column.0);
        let mut columns: Vec<Option<&[u8]>> = self.columns.iter().map(|c| c.as_deref()).collect();
        let mut out = self.buffers.get(self.rows as usize * BLOCK_SIZE);
        // The usual case first: nothing is wrong except the columns known to be missing, in all
        // rows at once.
        let mut good = self.lost.is_empty()
            && rebuild(&self.shape, wanted, &columns, None, &mut out)
            && checksums_agree(&out, &self.pieces);
        if !good && !self.pieces.is_empty() {
            columns[wanted] = self.own.as_deref();
            let of_row = |row: u32| {
                (0u8..)
                    .zip(&columns)
                    .map(|(c, bytes)| {
                        bytes
                            .filter(|_| !self.lost.contains(&(c, row as u8)))
                            .map(|bytes| block_of(bytes, row))
                    })
                    .collect()
            };
            good = self
                .pieces
                .iter()
                .all(|piece| search_piece(&self.shape, wanted, of_row, piece, &mut out));
        }
        self.rebuilt = good.then(|| out.freeze());
    }
}

fn block_of(column: &[u8], row: u32) -> &[u8] {
    &column[row as usize * BLOCK_SIZE..][..BLOCK_SIZE]
}

/// Reconstructs a piece of column `wanted` into `out`: its row, or its two rows together, are tried
/// with all error patterns.
fn search_piece<'a>(
    shape: &Shape,
    wanted: usize,
    of_row: impl Fn(u32) -> Vec<Option<&'a [u8]>>,
    piece: &Piece,
    out: &mut [u8],
) -> bool {
    let (first, last) = piece.rows();
    let start = piece.at as usize % BLOCK_SIZE;
    let split = if first == last {
        piece.length as usize
    } else {
        BLOCK_SIZE - start
    };
    let mut ends: Vec<Vec<u8>> = Vec::new();
    let mut block = vec![0; BLOCK_SIZE];
    if first != last {
        search(shape, wanted, &of_row(last), &mut block, |bytes| {
            let end = &bytes[..piece.length as usize - split];
            if !ends.iter().any(|known| known == end) {
                ends.push(end.to_vec());
            }
            false
        });
    }
    let found = &mut out[piece.range()];
    search(shape, wanted, &of_row(first), &mut block, |bytes| {
        found[..split].copy_from_slice(&bytes[start..start + split]);
        if first == last {
            return windrow_reduction::checksum(found) == piece.checksum;
        }
        ends.iter().any(|end| {
            found[split..].copy_from_slice(end);
            windrow_reduction::checksum(found) == piece.checksum
        })
    })
}

#[cfg(test)]
mod tests;
