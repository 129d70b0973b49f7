//! Fetch: verified bytes of a run of rows of one column, rebuilt from the other columns if need be.
//!
//! 1 Read the run from its member. 2 Compare with the checksums (small runs here, others in a job). 3 If the member is gone,
//! the read fails or a checksum is wrong: read the same rows of all other columns and rebuild; the job tries, row by
//! row, everything that the redundancy covers. 4 A run that can not be had as a whole is fetched row by row (`fetch/split.rs`).
//! 5 What can not be verified is an error, never bytes. The segment is pinned meanwhile, so that it is not used again under the read.

use crate::jobs::{Job, RebuildWork, VerifyWork, Work, verify};
use crate::limits::INLINE_VERIFY_BLOCKS;
use crate::member::Purpose;
use crate::{Engine, Notice, Outbox};
use windrow_io::{Buf, MemberOp, Payload};
use windrow_units::{BLOCK_SIZE, Code, Column, SegmentId};

mod split;

pub(crate) use split::Split;

/// Who wants the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FetchGoal {
    /// Part `part` of read request `read`.
    Read { read: u32, part: u32 },
    /// Edge `edge` of a read-modify-write.
    Edge { write: u32, edge: u32 },
    /// Header or footer of a batch being cleaned: no checksum is known. The tail, or the part of the head in column `part`.
    CleanEnd { victim: u32, batch_row: u32, part: Option<u8> },
    /// Live blocks of a batch being cleaned.
    CleanRun { victim: u32, run: u32 },
    /// Row `row` of a run that is fetched row by row.
    Row { split: u32, row: u32 },
}

/// The bytes, or the rows of the run that can not be had.
pub(crate) type Fetched = Result<Payload, Vec<u32>>;

/// What to fetch.
#[derive(Debug)]
pub(crate) struct FetchSpec {
    pub(crate) segment: SegmentId,
    pub(crate) column: Column,
    pub(crate) row: u32,
    pub(crate) rows: u32,
    /// One for each row; empty: not known, the caller verifies.
    pub(crate) checksums: Vec<u32>,
    pub(crate) goal: FetchGoal,
    /// Do not trust the column itself: rebuild it.
    pub(crate) rebuild: bool,
}

#[derive(Debug)]
enum Stage {
    Direct,
    Verifying(Payload),
    /// `own`: what was read of the column itself and is not right as a whole.
    Gathering {
        columns: Vec<Option<Buf>>,
        own: Option<Payload>,
        left: u32,
    },
    Rebuilding,
}

/// A fetch under way.
#[derive(Debug)]
pub(crate) struct Fetch {
    spec: FetchSpec,
    stage: Stage,
}

impl Engine {
    /// Starts a fetch.
    pub(crate) fn start_fetch(&mut self, spec: FetchSpec, out: &mut Outbox) {
        self.segments.get_mut(spec.segment).pins += 1;
        let (member, offset) = self.zones.locate(spec.segment).address(spec.row, spec.column);
        let (column, bytes, rebuild) = (spec.column.0, spec.rows as usize * BLOCK_SIZE, spec.rebuild);
        let segment_of = spec.segment;
        let fetch = self.fetches.insert(Fetch { spec, stage: Stage::Direct });
        if rebuild || !self.holds(member, segment_of) {
            return self.gather(fetch, None, out);
        }
        let buf = self.buffers.get(bytes);
        self.send(member, MemberOp::Read { offset, buf }, Purpose::Fetch { fetch, column }, out);
    }

    /// A member read of a fetch has ended.
    pub(crate) fn fetch_read_done(&mut self, at: u32, column: u8, buf: Option<Buf>, failed: bool, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        match &mut fetch.stage {
            Stage::Gathering { columns, left, .. } => {
                columns[usize::from(column)] = buf.filter(|_| !failed);
                *left -= 1;
                if *left == 0 {
                    self.rebuild(at, out);
                }
            }
            Stage::Direct => match buf.filter(|_| !failed) {
                None => self.gather(at, None, out),
                Some(buf) => self.check(at, buf.freeze(), out),
            },
            Stage::Verifying(_) | Stage::Rebuilding => {}
        }
    }

    fn check(&mut self, at: u32, bytes: Payload, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let sums = &fetch.spec.checksums;
        if sums.is_empty() {
            return self.finish_fetch(at, Some(bytes), out);
        }
        if sums.len() <= INLINE_VERIFY_BLOCKS {
            if verify(&bytes, sums) {
                return self.finish_fetch(at, Some(bytes), out);
            }
            return self.gather(at, Some(bytes), out);
        }
        let work = VerifyWork { fetch: at, blocks: bytes.clone(), checksums: sums.clone(), good: false };
        fetch.stage = Stage::Verifying(bytes);
        out.jobs.push(Job(Work::Verify(Box::new(work))));
    }

    /// A verify job has run.
    pub(crate) fn fetch_verified(&mut self, at: u32, good: bool, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let Stage::Verifying(bytes) = std::mem::replace(&mut fetch.stage, Stage::Direct) else { return };
        if good { self.finish_fetch(at, Some(bytes), out) } else { self.gather(at, Some(bytes), out) }
    }

    /// Reads the same rows of all other columns.
    fn gather(&mut self, at: u32, own: Option<Payload>, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let (segment, row, wanted, bytes) = (fetch.spec.segment, fetch.spec.row, fetch.spec.column, fetch.spec.rows as usize * BLOCK_SIZE);
        let shape = *self.zones.shape(segment);
        if shape.code == Code::None {
            return self.finish_fetch(at, None, out);
        }
        let mut reads = Vec::with_capacity(usize::from(shape.width));
        for c in 0..shape.width {
            let related = shape.code != Code::Copies || c % shape.data == wanted.0 % shape.data;
            let (member, offset) = self.zones.locate(segment).address(row, Column(c));
            if c != wanted.0 && related && self.holds(member, segment) {
                reads.push((member, offset, c));
            }
        }
        if reads.is_empty() {
            return self.finish_fetch(at, None, out);
        }
        let columns = (0..shape.width).map(|_| None).collect();
        if let Some(fetch) = self.fetches.get_mut(at) {
            fetch.stage = Stage::Gathering { columns, own, left: reads.len() as u32 };
        }
        for (member, offset, column) in reads {
            let buf = self.buffers.get(bytes);
            self.send(member, MemberOp::Read { offset, buf }, Purpose::Fetch { fetch: at, column }, out);
        }
    }

    fn rebuild(&mut self, at: u32, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let Stage::Gathering { columns, own, .. } = std::mem::replace(&mut fetch.stage, Stage::Rebuilding) else { return };
        let shape = *self.zones.shape(fetch.spec.segment);
        let (column, checksums) = (fetch.spec.column, fetch.spec.checksums.clone());
        let work = RebuildWork { fetch: at, shape, column, columns, own, checksums, buffers: self.buffers.clone(), rebuilt: None };
        out.jobs.push(Job(Work::Rebuild(Box::new(work))));
    }

    /// A rebuild job has run.
    pub(crate) fn fetch_rebuilt(&mut self, work: RebuildWork, out: &mut Outbox) {
        let at = work.fetch;
        if work.rebuilt.is_some()
            && let Some(fetch) = self.fetches.get_mut(at)
        {
            let (segment, goal, has_checksums) = (fetch.spec.segment, fetch.spec.goal, !fetch.spec.checksums.is_empty());
            let (member, _) = self.zones.locate(segment).address(fetch.spec.row, fetch.spec.column);
            if has_checksums && self.holds(member, segment) {
                self.counters.repaired_reads += 1;
                self.note_repair(member, goal, work.rebuilt.as_ref(), out);
            }
        }
        self.finish_fetch(at, work.rebuilt, out);
    }

    fn finish_fetch(&mut self, at: u32, bytes: Option<Payload>, out: &mut Outbox) {
        let Some(Fetch { spec, .. }) = self.fetches.remove(at) else { return };
        let (segment, goal) = (spec.segment, spec.goal);
        // Cleaning goes on with the live blocks of a run by itself.
        if bytes.is_none() && spec.rows > 1 && !matches!(goal, FetchGoal::CleanRun { .. }) {
            self.split_fetch(spec, out);
            // Only now: the rows have it pinned.
            self.segments.unpin(segment);
            return;
        }
        self.segments.unpin(segment);
        self.fetched(goal, bytes.ok_or_else(|| vec![0]), out);
    }

    /// Hands over what was fetched.
    fn fetched(&mut self, goal: FetchGoal, fetched: Fetched, out: &mut Outbox) {
        match goal {
            FetchGoal::Read { read, part } => self.read_part(read, part, fetched, out),
            FetchGoal::Edge { write, edge } => self.edge_read(write, edge, fetched.ok()),
            FetchGoal::CleanEnd { victim, batch_row, part } => self.clean_end_read(victim, batch_row, part, fetched.ok(), out),
            FetchGoal::CleanRun { victim, run } => self.clean_run_read(victim, run, fetched.ok(), out),
            FetchGoal::Row { split, row } => self.row_fetched(split, row, fetched.ok(), out),
        }
    }

    /// A block can not be read and not be rebuilt.
    pub(crate) fn note_lost(&mut self, key: crate::pending::BlockKey, out: &mut Outbox) {
        out.notices.push(Notice::Unrecoverable { volume: key.volume(), lba: key.lba().0 });
    }
}
