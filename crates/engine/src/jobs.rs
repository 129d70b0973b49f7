//! CPU work that leaves the engine as owned values: sealing a batch, verifying blocks, rebuilding blocks.
//!
//! A job owns everything it needs, touches nothing else and gives the same result wherever it runs. The engine puts the
//! results back in order itself; drivers may run jobs in any order on any thread.

use crate::api::WrittenBytes;
use crate::stream::BlockCause;
use windrow_io::{Buf, BufPool, Payload};
use windrow_layout::batch::{self, BatchHeader, BatchPlan, TableWriter};
use windrow_parity::Parity;
use windrow_units::{BLOCK_BYTES, BLOCK_SIZE, Code, Column, Seq, Shape};

/// A piece of work. Made by the engine, run once by the driver, handed back.
#[derive(Debug)]
pub struct Job(pub(crate) Work);

#[derive(Debug)]
pub(crate) enum Work {
    Seal(Box<SealWork>),
    Verify(Box<VerifyWork>),
    Rebuild(Box<RebuildWork>),
}

impl Job {
    /// Does the work.
    pub fn run(&mut self) {
        match &mut self.0 {
            Work::Seal(work) => work.run(),
            Work::Verify(work) => work.run(),
            Work::Rebuild(work) => work.run(),
        }
    }

    /// Roughly how many bytes it touches: drivers run small jobs where they are.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Work::Seal(work) => work.plan.rows as usize * usize::from(work.header.shape.width) * BLOCK_SIZE,
            Work::Verify(work) => work.blocks.len() * BLOCK_SIZE,
            Work::Rebuild(work) => work.columns.iter().flatten().map(|b| b.len()).sum(),
        }
    }
}

/// Gathers a batch: copies payloads to their columns, computes checksums, header, footer and redundancy columns.
#[derive(Debug)]
pub(crate) struct SealWork {
    pub stream: usize,
    pub seq: Seq,
    pub header: BatchHeader,
    pub plan: BatchPlan,
    pub table: TableWriter,
    pub payloads: Vec<Payload>,
    /// Cause of the payload blocks: `(cause, blocks)` runs; together `plan.payload_blocks`.
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
        let cause = |cause: BlockCause| if checkpoint { BlockCause::Checkpoint } else { cause };
        let last = rows * usize::from(shape.data) - 1;
        let head = self.plan.head_blocks as usize;
        let put = |columns: &mut [Buf], written: &mut [WrittenBytes], block: usize, source: &[u8], why: BlockCause| -> u32 {
            let (column, row) = (block / rows, block % rows);
            cause(why).add(BLOCK_BYTES, &mut written[column]);
            let target = &mut columns[column][row * BLOCK_SIZE..(row + 1) * BLOCK_SIZE];
            match why {
                BlockCause::User | BlockCause::Moved | BlockCause::Checkpoint => windrow_reduce::copy_and_checksum(target, source),
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
        for (i, payload) in self.payloads.iter().enumerate() {
            let sum = put(&mut self.columns, &mut self.written, head + i, payload, self.cause);
            self.checksums.push(sum);
        }
        for block in head + self.payloads.len()..last {
            put(&mut self.columns, &mut self.written, block, &[], BlockCause::Padding);
        }
        let mut ends = self.buffers.get((head + 1) * BLOCK_SIZE);
        let (head_bytes, tail_bytes) = ends.split_at_mut(head * BLOCK_SIZE);
        batch::encode_ends(&self.header, &self.table, &self.checksums, &self.plan, head_bytes, tail_bytes);
        for block in 0..head {
            let source = &ends[block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE];
            put(&mut self.columns, &mut self.written, block, source, BlockCause::Header);
        }
        put(&mut self.columns, &mut self.written, last, &ends[head * BLOCK_SIZE..], BlockCause::Header);
        encode_redundancy(&shape, &mut self.columns);
        for written in &mut self.written[usize::from(shape.data)..] {
            written.parity += bytes as u64;
        }
    }
}

/// Fills the redundancy columns from the data columns.
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
pub(crate) struct VerifyWork {
    pub fetch: u32,
    pub blocks: Payload,
    pub checksums: Vec<u32>,
    /// Result: true if all agree.
    pub good: bool,
}

impl VerifyWork {
    fn run(&mut self) {
        self.good = verify(&self.blocks, &self.checksums);
    }
}

/// True if each block of `bytes` has its checksum.
pub(crate) fn verify(bytes: &[u8], checksums: &[u32]) -> bool {
    bytes.chunks_exact(BLOCK_SIZE).zip(checksums).all(|(block, sum)| windrow_reduce::checksum(block) == *sum)
}

/// Rebuilds a run of rows of one column from the other columns; with checksums it tries every set of wrong columns that the
/// redundancy allows until the result verifies.
#[derive(Debug)]
pub(crate) struct RebuildWork {
    pub fetch: u32,
    pub shape: Shape,
    pub column: Column,
    /// What could be read of each column (same length); the wanted one is absent.
    pub columns: Vec<Option<Buf>>,
    /// Checksums of the wanted blocks; empty: take the first reconstruction that is possible.
    pub checksums: Vec<u32>,
    pub buffers: BufPool,
    /// Result.
    pub rebuilt: Option<Payload>,
}

impl RebuildWork {
    fn run(&mut self) {
        let wanted = usize::from(self.column.0);
        let good = |bytes: &[u8], sums: &[u32]| sums.is_empty() || verify(bytes, sums);
        if let Some(buf) = rebuild_column(&self.shape, wanted, &self.columns, None, &self.buffers)
            && good(&buf, &self.checksums)
        {
            self.rebuilt = Some(buf.freeze());
            return;
        }
        for suspect in 0..self.columns.len() {
            if suspect == wanted || self.columns[suspect].is_none() {
                continue;
            }
            if let Some(buf) = rebuild_column(&self.shape, wanted, &self.columns, Some(suspect), &self.buffers)
                && good(&buf, &self.checksums)
            {
                self.rebuilt = Some(buf.freeze());
                return;
            }
        }
    }
}

/// One column from the others, leaving out `suspect` as well; `None` if too much is missing.
pub(crate) fn rebuild_column(shape: &Shape, wanted: usize, columns: &[Option<Buf>], suspect: Option<usize>, buffers: &BufPool) -> Option<Buf> {
    let usable = |c: usize| if c == wanted || Some(c) == suspect { None } else { columns[c].as_ref() };
    let data = usize::from(shape.data);
    let len = columns.iter().flatten().map(|b| b.len()).next()?;
    match shape.code {
        Code::None => None,
        Code::Copies => {
            let copy = (0..columns.len()).filter(|c| c % data == wanted % data).find_map(usable)?;
            let mut out = buffers.get(len);
            out.copy_from_slice(copy);
            Some(out)
        }
        Code::P | Code::PQ => {
            let missing = (0..columns.len()).filter(|c| usable(*c).is_none()).count();
            if missing > shape.tolerance() {
                return None;
            }
            let mut out = buffers.get(len);
            let code = if shape.code == Code::P { Parity::P } else { Parity::PQ };
            let mut slices: Vec<windrow_parity::Column<'_>> = Vec::with_capacity(columns.len());
            for c in 0..columns.len() {
                slices.push(match usable(c) {
                    Some(source) => windrow_parity::Column::Present(source),
                    None => windrow_parity::Column::Absent,
                });
            }
            slices[wanted] = windrow_parity::Column::Lost(&mut out);
            windrow_parity::reconstruct(code, data, &mut slices).ok()?;
            drop(slices);
            Some(out)
        }
    }
}
