//! Examinations under way: the reads of all columns of a batch, and the job that follows (`examine.rs`).
//!
//! The segment is pinned from the first read to the end of the job, so that it is not used again meanwhile. Columns of members that do not
//! hold the segment are not read, and nothing is said of them.

use crate::examine::{ExamineWork, lean};
use crate::jobs::{Job, Work};
use crate::member::Purpose;
use crate::{Engine, Outbox};
use windrow_io::{Buf, MemberOp};
use windrow_units::{BLOCK_BYTES, BLOCK_SIZE, Column, SegmentId, StreamId};

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExamineGoal {
    Scrub,
    Rebuild,
    Clean { victim: u32 },
}

/// A batch being read.
#[derive(Debug)]
pub(crate) struct Examination {
    goal: ExamineGoal,
    segment: SegmentId,
    row: u32,
    rows: u32,
    columns: Vec<Option<Buf>>,
    /// Columns that are not read.
    absent: u64,
    /// Those of them that could be.
    skipped: u64,
    left: u32,
}

impl Engine {
    /// Reads a batch. Returns the bytes that are read; 0: no column is there, nothing will come of it.
    pub(crate) fn examine(&mut self, goal: ExamineGoal, segment: SegmentId, row: u32, rows: u32, out: &mut Outbox) -> u64 {
        let shape = *self.zones.shape(segment);
        let lean = goal == ExamineGoal::Rebuild && lean::is_for(&shape);
        let there = self.columns_there(segment, row);
        let skipped = if lean { lean::needless(&shape, there) } else { 0 };
        self.examine_columns(Examination { goal, segment, row, rows, columns: Vec::new(), absent: 0, skipped, left: 0 }, there & !skipped, out)
    }

    /// Columns of the batch at this row whose members hold the segment, as a bit mask.
    fn columns_there(&self, segment: SegmentId, row: u32) -> u64 {
        let holds = |c: &u8| self.holds(self.zones.locate(segment).address(row, Column(*c)).0, segment);
        (0..self.zones.shape(segment).width).filter(holds).fold(0, |mask, c| mask | 1 << c)
    }

    fn examine_columns(&mut self, examination: Examination, wanted: u64, out: &mut Outbox) -> u64 {
        if wanted == 0 {
            return 0;
        }
        let Examination { segment, row, rows, .. } = examination;
        let width = self.zones.shape(segment).width;
        let absent = !wanted & (u64::MAX >> (64 - width));
        self.segments.get_mut(segment).pins += 1;
        let columns = (0..width).map(|_| None).collect();
        let left = wanted.count_ones();
        let at = self.examinations.insert(Examination { columns, absent, left, ..examination });
        let bytes = rows as usize * BLOCK_SIZE;
        for c in (0..width).filter(|c| wanted >> c & 1 == 1) {
            let (member, offset) = self.zones.locate(segment).address(row, Column(c));
            let buf = self.buffers.get(bytes);
            self.send(member, MemberOp::Read { offset, buf }, Purpose::Examine { examination: at, column: c, row: None }, out);
        }
        u64::from(left) * bytes as u64
    }

    /// A column of a batch, or a row of it, has been read, or not.
    pub(crate) fn examine_read(&mut self, at: u32, column: u8, row: Option<u32>, buf: Option<Buf>, out: &mut Outbox) {
        let Some(examination) = self.examinations.get_mut(at) else { return };
        examination.left -= 1;
        let place = &mut examination.columns[usize::from(column)];
        match (row, buf) {
            (None, Some(buf)) => *place = Some(buf),
            (None, None) if examination.rows > 1 => self.read_rows(at, column, out),
            (None, None) | (Some(_), None) => {}
            (Some(row), Some(buf)) => {
                let rows = examination.rows as usize * BLOCK_SIZE;
                let whole = place.get_or_insert_with(|| self.buffers.zeroed(rows));
                whole[row as usize * BLOCK_SIZE..(row as usize + 1) * BLOCK_SIZE].copy_from_slice(&buf);
            }
        }
        let Some(examination) = self.examinations.get_mut(at) else { return };
        if examination.left > 0 {
            return;
        }
        let Examination { goal, segment, row, rows, skipped, mut absent, .. } = *examination;
        let columns = std::mem::take(&mut examination.columns);
        for c in 0..columns.len() {
            // A member that was lost meanwhile is absent, not wrong.
            let (member, _) = self.zones.locate(segment).address(row, Column(c as u8));
            absent |= u64::from(!self.holds(member, segment)) << c;
        }
        let (pool, shape, buffers) = (self.superblock.pool, *self.zones.shape(segment), self.buffers.clone());
        let wanted = if goal == ExamineGoal::Rebuild && lean::is_for(&shape) { self.stale_columns(segment, row) } else { 0 };
        let stream = StreamId(self.segments.get(segment).stream);
        let work = ExamineWork {
            examination: at,
            pool,
            segment,
            row,
            rows,
            shape,
            stream,
            columns,
            absent,
            wanted,
            skipped,
            buffers,
            refused: Vec::new(),
            live: 0,
            found: None,
        };
        out.jobs.push(Job(Work::Examine(Box::new(work))));
    }

    /// One bad sector makes a whole column unreadable: its rows are read one by one, so that bad sectors of several members do not add up. Rows
    /// that cannot be read are zeroes, which no checksum takes for anything else.
    fn read_rows(&mut self, at: u32, column: u8, out: &mut Outbox) {
        let Some(examination) = self.examinations.get_mut(at) else { return };
        let (segment, first, rows) = (examination.segment, examination.row, examination.rows);
        let (member, _) = self.zones.locate(segment).address(first, Column(column));
        if !self.members.list[member.index()].online {
            return;
        }
        examination.left += rows;
        let goal = examination.goal;
        match goal {
            ExamineGoal::Scrub => self.scrub_reads_again(u64::from(rows) * BLOCK_BYTES),
            ExamineGoal::Rebuild => self.rebuild_reads_again(rows),
            ExamineGoal::Clean { .. } => {}
        }
        for row in 0..rows {
            let (member, offset) = self.zones.locate(segment).address(first + row, Column(column));
            let buf = self.buffers.get(BLOCK_SIZE);
            self.send(member, MemberOp::Read { offset, buf }, Purpose::Examine { examination: at, column, row: Some(row) }, out);
        }
    }

    /// A batch has been examined.
    pub(crate) fn examined(&mut self, mut work: ExamineWork, out: &mut Outbox) {
        // (The short way of a rebuild has spent its columns, and head and tail that it believes are in columns of different members.)
        if work.wanted == 0
            && let Some(found) = &work.found
        {
            let (segment, row, batch) = (work.segment, work.row, &found.batch);
            match self.live_in_batch(segment, row, batch) {
                Some(live) => work.live = live,
                None => {
                    // There are no more headers than columns and what follows from them, so this ends.
                    work.refused.push(batch.frame.clone());
                    work.found = None;
                    return out.jobs.push(Job(Work::Examine(Box::new(work))));
                }
            }
        }
        let Some(examination) = self.examinations.remove(work.examination) else { return };
        let Examination { goal, segment, row, rows, skipped, .. } = examination;
        match goal {
            ExamineGoal::Rebuild if work.found.is_none() && skipped != 0 && self.stopped.is_none() => {
                // The long way, with everything that there is.
                let there = self.columns_there(segment, row);
                let again = Examination { goal, segment, row, rows, columns: Vec::new(), absent: 0, skipped: 0, left: 0 };
                let read = self.examine_columns(again, there, out);
                if read > 0 {
                    self.rebuild_reads_again(rows * there.count_ones());
                }
                if read == 0 {
                    self.rebuild_examined(segment, row, rows, None, out);
                }
            }
            ExamineGoal::Scrub => self.scrub_examined(segment, row, rows, work, out),
            ExamineGoal::Clean { victim } => self.clean_examined(victim, row, work.found),
            ExamineGoal::Rebuild => self.rebuild_examined(segment, row, rows, work.found, out),
        }
        self.segments.unpin(segment);
    }

    /// Rows of a segment before its first batch that is not committed.
    pub(crate) fn committed_rows(&self, segment: SegmentId) -> u32 {
        let s = self.segments.get(segment);
        let in_flight = self.streams.iter().flat_map(|stream| &stream.in_flight).filter(|batch| batch.segment == segment);
        in_flight.map(|batch| batch.row).min().map_or(s.filled_rows, |row| row.min(s.filled_rows))
    }
}
