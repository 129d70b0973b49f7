//! Verifications in progress: the reads of all columns of a batch, and the job that follows
//! (`store/verify.rs`).
//!
//! With foreground I/O a column is read in consecutive pieces; else as a whole.
//!
//! The segment is pinned from the first read to the end of the job, so that it is not reused
//! meanwhile. Columns of members that do not hold the segment are neither read nor judged.

use crate::base::limits::{UNREAD, VERIFY_PIECE_ROWS};
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::jobs::{Job, Work};
use crate::store::member::Purpose;
use crate::store::verify::{VerifyWork, lean};
use crate::upkeep::Upkeep;
use std::ops::Range;
use windrow_geometry::Column;
use windrow_io::{Buf, MemberOp};
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE, SegmentId, StreamId};

/// Requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VerifyGoal {
    Scrub,
    Rebuild,
    Clean { victim: u32 },
}

/// A batch being read.
#[derive(Debug)]
pub(crate) struct Verification {
    goal: VerifyGoal,
    segment: SegmentId,
    row: u32,
    rows: u32,
    columns: Vec<Option<Buf>>,
    /// Bit mask of columns that are not read.
    absent: u64,
    /// Bit mask of readable columns among them.
    skipped: u64,
    left: u32,
}

impl Upkeep {
    /// Reads a batch. Returns the number of bytes to read; 0: no column is readable, and there will
    /// be no result.
    pub(crate) fn verify(
        &mut self,
        goal: VerifyGoal,
        segment: SegmentId,
        row: u32,
        rows: u32,
        core: &mut Core,
        out: &mut Outbox,
    ) -> u64 {
        let shape = *core.store.pool.zones.shape(segment);
        let lean = goal == VerifyGoal::Rebuild && lean::is_for(&shape);
        let there = self.columns_there(segment, row, core);
        let skipped = if lean {
            lean::needless(&shape, there)
        } else {
            0
        };
        self.verify_columns(
            Verification {
                goal,
                segment,
                row,
                rows,
                columns: Vec::new(),
                absent: 0,
                skipped,
                left: 0,
            },
            there & !skipped,
            core,
            out,
        )
    }

    /// Bit mask of the columns of the batch at this row whose members hold the segment.
    fn columns_there(&self, segment: SegmentId, row: u32, core: &Core) -> u64 {
        let holds = |c: &u8| {
            core.store.holds(
                core.store
                    .pool
                    .zones
                    .locate(segment)
                    .address(row, Column(*c))
                    .0,
                segment,
            )
        };
        (0..core.store.pool.zones.shape(segment).width)
            .filter(holds)
            .fold(0, |mask, c| mask | 1 << c)
    }

    fn verify_columns(
        &mut self,
        verification: Verification,
        wanted: u64,
        core: &mut Core,
        out: &mut Outbox,
    ) -> u64 {
        if wanted == 0 {
            return 0;
        }
        let Verification { segment, rows, .. } = verification;
        let width = core.store.pool.zones.shape(segment).width;
        let absent = !wanted & (u64::MAX >> (64 - width));
        core.store.segments.get_mut(segment).pins += 1;
        let columns = (0..width).map(|_| None).collect();
        let at = self.integrity.verifications.insert(Verification {
            columns,
            absent,
            ..verification
        });
        let piece = self.piece_rows(rows, core);
        (0..width)
            .filter(|c| wanted >> c & 1 == 1)
            .for_each(|c| self.read_piece(at, c, 0..piece, core, out));
        u64::from(wanted.count_ones()) * u64::from(rows) * BLOCK_BYTES
    }

    /// Number of rows of a column to read at once, given those left. Foreground requests that
    /// arrive meanwhile wait for the reads in flight.
    fn piece_rows(&self, left: u32, core: &Core) -> u32 {
        if core.store.observe.users.are_about(core.store.pool.now_ns) {
            left.min(VERIFY_PIECE_ROWS)
        } else {
            left
        }
    }

    fn read_piece(
        &mut self,
        at: u32,
        column: u8,
        rows: Range<u32>,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let Some(verification) = self.integrity.verifications.get_mut(at) else {
            return;
        };
        verification.left += 1;
        let (member, offset) = core
            .store
            .pool
            .zones
            .locate(verification.segment)
            .address(verification.row + rows.start, Column(column));
        let buf = core.store.memory.buffers.get(rows.len() * BLOCK_SIZE);
        let purpose = Purpose::Verify {
            verification: at,
            column,
            first: rows.start,
            rows: rows.len() as u32,
        };
        core.store
            .send(member, MemberOp::Read { offset, buf }, purpose, out);
    }

    /// Handles rows of a column that were read or failed.
    pub(crate) fn verify_read(
        &mut self,
        at: u32,
        column: u8,
        rows: Range<u32>,
        buf: Option<Buf>,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let Some(verification) = self.integrity.verifications.get_mut(at) else {
            return;
        };
        let all = verification.rows;
        let slot = &mut verification.columns[usize::from(column)];
        match buf {
            Some(buf) if rows.len() == all as usize => *slot = Some(buf),
            Some(buf) => {
                // Not zeroes: they would be correct where padding is.
                let unread = || {
                    let mut whole = core.store.memory.buffers.get(all as usize * BLOCK_SIZE);
                    whole.fill(UNREAD);
                    whole
                };
                let whole = slot.get_or_insert_with(unread);
                whole[rows.start as usize * BLOCK_SIZE..rows.end as usize * BLOCK_SIZE]
                    .copy_from_slice(&buf);
            }
            None if rows.len() > 1 => self.read_rows(at, column, rows.clone(), core, out),
            None => {}
        }
        if rows.len() > 1 && rows.end < all {
            // A piece; a single row has the rest of its column in flight, or is the last one.
            self.read_next_piece(at, column, rows.end, core, out);
        }
        let Some(verification) = self.integrity.verifications.get_mut(at) else {
            return;
        };
        verification.left -= 1;
        if verification.left > 0 {
            return;
        }
        let Verification {
            goal,
            segment,
            row,
            rows,
            skipped,
            mut absent,
            ..
        } = *verification;
        let columns = std::mem::take(&mut verification.columns);
        for c in 0..columns.len() {
            // A member that was lost meanwhile is absent, not wrong.
            let (member, _) = core
                .store
                .pool
                .zones
                .locate(segment)
                .address(row, Column(c as u8));
            absent |= u64::from(!core.store.holds(member, segment)) << c;
        }
        let (pool, shape, buffers) = (
            core.store.pool.superblock.pool,
            *core.store.pool.zones.shape(segment),
            core.store.memory.buffers.clone(),
        );
        let wanted = if goal == VerifyGoal::Rebuild && lean::is_for(&shape) {
            self.stale_columns(segment, row, core)
        } else {
            0
        };
        let stream = StreamId(core.store.segments.get(segment).stream);
        let work = VerifyWork {
            verification: at,
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
        out.jobs.push(Job(Work::Verify(Box::new(work))));
    }

    /// Continues a column that is read in pieces.
    fn read_next_piece(
        &mut self,
        at: u32,
        column: u8,
        first: u32,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let Some(verification) = self.integrity.verifications.get(at) else {
            return;
        };
        let end = first + self.piece_rows(verification.rows - first, core);
        if self.has_column(at, column, core) {
            self.read_piece(at, column, first..end, core, out);
        }
    }

    /// One bad sector makes a whole piece unreadable. Its rows are read one by one, so that bad
    /// sectors of several members do not add up. Unreadable rows are filled with [`UNREAD`], which
    /// no checksum accepts.
    fn read_rows(
        &mut self,
        at: u32,
        column: u8,
        rows: Range<u32>,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let Some(verification) = self.integrity.verifications.get(at) else {
            return;
        };
        if !self.has_column(at, column, core) {
            return;
        }
        match verification.goal {
            VerifyGoal::Scrub => self
                .integrity
                .scrub
                .scrub_reads_again(rows.len() as u64 * BLOCK_BYTES),
            VerifyGoal::Rebuild => self
                .integrity
                .rebuild_reads_again(&core.store.pool, rows.len() as u32),
            VerifyGoal::Clean { .. } => {}
        }
        rows.for_each(|row| self.read_piece(at, column, row..row + 1, core, out));
    }

    /// True if the member of the column is present.
    fn has_column(&self, at: u32, column: u8, core: &Core) -> bool {
        let Some(verification) = self.integrity.verifications.get(at) else {
            return false;
        };
        let (member, _) = core
            .store
            .pool
            .zones
            .locate(verification.segment)
            .address(verification.row, Column(column));
        core.store.drives.members.list[member.index()].online
    }

    /// Handles a verified batch.
    pub(crate) fn verified(&mut self, mut work: VerifyWork, core: &mut Core, out: &mut Outbox) {
        // The short way of a rebuild has consumed its columns, and the head and tail that it trusts
        // are in columns of different members.
        if work.wanted == 0
            && let Some(found) = &work.found
        {
            let (segment, row, batch) = (work.segment, work.row, &found.batch);
            match self.live_in_batch(segment, row, batch, core) {
                Some(live) => work.live = live,
                None => {
                    // The number of headers is limited by the columns and their reconstructions, so
                    // this ends.
                    work.refused.push(batch.frame.clone());
                    work.found = None;
                    return out.jobs.push(Job(Work::Verify(Box::new(work))));
                }
            }
        }
        let Some(verification) = self.integrity.verifications.remove(work.verification) else {
            return;
        };
        let Verification {
            goal,
            segment,
            row,
            rows,
            skipped,
            ..
        } = verification;
        match goal {
            VerifyGoal::Rebuild
                if work.found.is_none() && skipped != 0 && core.store.pool.stopped.is_none() =>
            {
                // The long way, with all readable columns.
                let there = self.columns_there(segment, row, core);
                let again = Verification {
                    goal,
                    segment,
                    row,
                    rows,
                    columns: Vec::new(),
                    absent: 0,
                    skipped: 0,
                    left: 0,
                };
                let read = self.verify_columns(again, there, core, out);
                if read > 0 {
                    self.integrity
                        .rebuild_reads_again(&core.store.pool, rows * there.count_ones());
                }
                if read == 0 {
                    self.rebuild_verified(segment, row, rows, None, core, out);
                }
            }
            VerifyGoal::Scrub => self.scrub_verified(segment, row, rows, work, core, out),
            VerifyGoal::Clean { victim } => self.clean_verified(victim, row, work.found, core),
            VerifyGoal::Rebuild => self.rebuild_verified(segment, row, rows, work.found, core, out),
        }
        core.store.segments.unpin(segment);
    }

    /// Rows of a segment before its first uncommitted batch.
    pub(crate) fn committed_rows(&self, segment: SegmentId, core: &Core) -> u32 {
        let s = core.store.segments.get(segment);
        let in_flight = core
            .paths
            .log
            .streams
            .iter()
            .flat_map(|stream| &stream.in_flight)
            .filter(|batch| batch.segment == segment);
        in_flight
            .map(|batch| batch.row)
            .min()
            .map_or(s.filled_rows, |row| row.min(s.filled_rows))
    }
}
