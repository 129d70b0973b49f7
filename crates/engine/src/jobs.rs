//! CPU work that leaves the engine as owned values: sealing a batch, verifying blocks, rebuilding blocks.
//!
//! A job owns everything it needs, touches nothing else and gives the same result wherever it runs. The engine puts the
//! results back in order itself; drivers may run jobs in any order on any thread.

use crate::api::WrittenBytes;
use crate::examine::ExamineWork;
use crate::reconstruct::{rebuild, search};
use crate::stream::BlockCause;
use windrow_io::{Buf, BufPool, Payload};
use windrow_layout::batch::{self, BatchHeader, BatchPlan, TableWriter};
use windrow_units::{BLOCK_BYTES, BLOCK_SIZE, Code, Column, Seq, Shape};

/// A piece of work. Made by the engine, run once by the driver, handed back.
#[derive(Debug)]
pub struct Job(pub(crate) Work);

#[derive(Debug)]
pub(crate) enum Work {
    Seal(Box<SealWork>),
    Verify(Box<VerifyWork>),
    Rebuild(Box<RebuildWork>),
    Examine(Box<ExamineWork>),
    Journal(Box<crate::journal::JournalWork>),
}

impl Job {
    /// Does the work.
    pub fn run(&mut self) {
        match &mut self.0 {
            Work::Seal(work) => work.run(),
            Work::Verify(work) => work.run(),
            Work::Rebuild(work) => work.run(),
            Work::Examine(work) => work.run(),
            Work::Journal(work) => work.run(),
        }
    }

    /// Roughly how many bytes it touches: drivers run small jobs where they are.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Work::Seal(work) => work.plan.rows as usize * usize::from(work.header.shape.width) * BLOCK_SIZE,
            Work::Verify(work) => work.blocks.len(),
            Work::Rebuild(work) => work.columns.iter().flatten().map(|b| b.len()).sum(),
            Work::Examine(work) => work.bytes(),
            Work::Journal(work) => work.bytes_at_most() as usize,
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

/// Rebuilds a run of rows of one column. With checksums only verified bytes are a result: every row is tried with all that it may be
/// while the redundancy covers what is missing and wrong in it.
#[derive(Debug)]
pub(crate) struct RebuildWork {
    pub fetch: u32,
    pub shape: Shape,
    pub column: Column,
    /// What could be read of the other columns (same length).
    pub columns: Vec<Option<Buf>>,
    /// What was read of the wanted column, if it could be read: some of its rows may be right.
    pub own: Option<Payload>,
    /// Checksums of the wanted blocks; empty: take the first reconstruction that is possible, the caller verifies.
    pub checksums: Vec<u32>,
    pub buffers: BufPool,
    /// Result.
    pub rebuilt: Option<Payload>,
}

impl RebuildWork {
    fn run(&mut self) {
        let bytes = self.checksums.len() * BLOCK_SIZE;
        let length = self.columns.iter().flatten().map(|c| c.len()).next().or(self.own.as_ref().map(|own| own.len())).unwrap_or(bytes);
        let wanted = usize::from(self.column.0);
        let mut columns: Vec<Option<&[u8]>> = self.columns.iter().map(|c| c.as_deref()).collect();
        let mut out = self.buffers.get(length);
        // The usual case first: nothing is wrong but what is known to be missing, in all rows at once.
        let mut good = rebuild(&self.shape, wanted, &columns, None, &mut out) && verify(&out, &self.checksums);
        if !good && !self.checksums.is_empty() {
            columns[wanted] = self.own.as_deref();
            good = out.chunks_exact_mut(BLOCK_SIZE).zip(&self.checksums).enumerate().all(|(row, (out, sum))| {
                let of_row: Vec<Option<&[u8]>> = columns.iter().map(|c| c.map(|c| &c[row * BLOCK_SIZE..(row + 1) * BLOCK_SIZE])).collect();
                search(&self.shape, wanted, &of_row, out, |bytes| windrow_reduce::checksum(bytes) == *sum)
            });
        }
        self.rebuilt = good.then(|| out.freeze());
    }
}

#[cfg(test)]
mod tests;
