//! A run that is unreadable as a whole is fetched row by row, or piece by piece where compressed
//! payload is wanted.
//!
//! A read of several rows fails as a whole, whichever of its sectors is bad. So bad sectors in
//! different rows of different columns remove all these columns in all rows. That may exceed the
//! redundancy, although it covers each row by itself. Row by row only the rows beyond it are lost,
//! and they are known.
//!
//! All rows are begun at once: they are no more than the blocks of one request or of the head of a
//! batch.

use super::gather::is_related;
use super::{Ended, FetchGoal, FetchSpec, Repaired, Stage};
use crate::base::piece::Piece;
use crate::store::events::Outbox;
use crate::store::member::Purpose;
use crate::store::{Reads, Store};
use windrow_geometry::Column;
use windrow_io::{Buf, MemberOp, Payload};
use windrow_types::{BLOCK_SIZE, MemberId};

/// A run whose rows are fetched one by one.
#[derive(Debug)]
pub(crate) struct Split {
    goal: FetchGoal,
    rows: u32,
    /// Pieces fetched one by one with their results: rows of the run.
    parts: Vec<(Piece, Option<Payload>)>,
    left: u32,
}

impl Reads {
    /// Notes reconstructed blocks whose member is online.
    pub(super) fn note_repaired(
        &mut self,
        member: MemberId,
        goal: FetchGoal,
        pieces: Vec<Piece>,
        rebuilt: Option<Payload>,
    ) {
        let (goal, number) = self.whole_goal(goal);
        if !matches!(goal, FetchGoal::Read { .. }) {
            return;
        }
        self.repaired.extend(rebuilt.map(|bytes| Repaired {
            member,
            goal,
            number,
            pieces,
            bytes,
        }));
    }

    /// True if blocks are noted that no one has taken.
    pub(crate) fn has_repaired(&self) -> bool {
        !self.repaired.is_empty()
    }

    /// Takes the blocks noted since the last call.
    pub(crate) fn take_repaired(&mut self) -> Vec<Repaired> {
        std::mem::take(&mut self.repaired)
    }

    /// Origin of the whole run, and the offset of its first row or piece in it.
    fn whole_goal(&mut self, goal: FetchGoal) -> (FetchGoal, u32) {
        match goal {
            FetchGoal::Row { split, row } => self
                .splits
                .get_mut(split)
                .map_or((goal, row), |split| (split.goal, row)),
            _ => (goal, 0),
        }
    }
}

impl Store {
    /// Reads each row of each column in its own command: a column with one unreadable row still has
    /// others.
    pub(super) fn gather_singly(&mut self, at: u32, out: &mut Outbox) -> Ended {
        let fetch = self.reads.fetches.get_mut(at)?;
        let (segment, first, rows, wanted) = (
            fetch.spec.segment,
            fetch.spec.row,
            fetch.spec.rows,
            fetch.spec.column.0,
        );
        let (shape, location) = (
            *self.pool.zones.shape(segment),
            self.pool.zones.locate(segment),
        );
        let holds = |c: &u8| self.holds(location.address(first, Column(*c)).0, segment);
        let columns: Vec<u8> = (0..shape.width)
            .filter(|c| is_related(&shape, *c, wanted))
            .filter(holds)
            .collect();
        if columns.is_empty() {
            return self.finish_fetch(at, None, out);
        }
        let fetch = self.reads.fetches.get_mut(at)?;
        fetch.own_is_bad = columns.contains(&wanted);
        fetch.gathered.columns = (0..shape.width).map(|_| None).collect();
        fetch.stage = Stage::Singly(columns.len() as u32 * rows);
        fetch.under_way += columns.len() as u32 * rows;
        fetch.since_ns = fetch.since_ns.or(Some(self.pool.now_ns));
        for (column, row) in columns
            .into_iter()
            .flat_map(|c| (0..rows).map(move |row| (c, row)))
        {
            let (member, offset) = self
                .pool
                .zones
                .locate(segment)
                .address(first + row, Column(column));
            let buf = self.memory.buffers.get(BLOCK_SIZE);
            self.send(
                member,
                MemberOp::Read { offset, buf },
                Purpose::Fetch {
                    fetch: at,
                    column,
                    row: Some(row as u8),
                },
                out,
            );
        }
        None
    }

    /// Handles the end of a single-row read of a column.
    pub(super) fn single_read_done(
        &mut self,
        at: u32,
        column: u8,
        row: u8,
        buf: Option<Buf>,
        out: &mut Outbox,
    ) -> Ended {
        let buffers = self.memory.buffers.clone();
        let fetch = self.reads.fetches.get_mut(at)?;
        let bytes = fetch.spec.rows as usize * BLOCK_SIZE;
        let wanted = usize::from(fetch.spec.column.0);
        let Stage::Singly(left) = &mut fetch.stage else {
            self.reads.drop_answered(at);
            return None;
        };
        let gathered = &mut fetch.gathered;
        match buf {
            Some(buf) => {
                let whole = gathered.columns[usize::from(column)]
                    .get_or_insert_with(|| buffers.zeroed(bytes));
                whole[usize::from(row) * BLOCK_SIZE..][..BLOCK_SIZE].copy_from_slice(&buf);
            }
            None => gathered.lost.push((column, row)),
        }
        *left -= 1;
        if *left == 0 {
            gathered.own = gathered.columns[wanted].take().map(Buf::freeze);
            self.rebuild(at, out);
        }
        None
    }

    /// Fetches each piece of a run, or each row if no pieces are known.
    pub(super) fn split_fetch(&mut self, spec: FetchSpec, out: &mut Outbox) -> Ended {
        let is_known = !spec.pieces.is_empty();
        let pieces = if is_known {
            spec.pieces
        } else {
            (0..spec.rows).map(|row| Piece::row(row, 0)).collect()
        };
        let parts = pieces.iter().map(|piece| (*piece, None)).collect();
        let split = self.reads.splits.insert(Split {
            goal: spec.goal,
            rows: spec.rows,
            parts,
            left: pieces.len() as u32,
        });
        let mut all = None;
        for (n, piece) in (0..).zip(pieces) {
            let (first, last) = piece.rows();
            let pieces = if is_known {
                vec![piece.behind(first)]
            } else {
                Vec::new()
            };
            let goal = FetchGoal::Row { split, row: n };
            let ended = self.start_fetch(
                FetchSpec {
                    row: spec.row + first,
                    rows: last - first + 1,
                    pieces,
                    goal,
                    ..spec
                },
                out,
            );
            // Of all rows at most the last one ends the run.
            all = all.or(ended);
        }
        all
    }

    /// Handles a row of a run that has arrived or is unreadable.
    pub(super) fn row_fetched(&mut self, at: u32, row: u32, bytes: Option<Payload>) -> Ended {
        let split = self.reads.splits.get_mut(at)?;
        split.parts[row as usize].1 = bytes;
        split.left -= 1;
        if split.left > 0 {
            return None;
        }
        let Split {
            goal, rows, parts, ..
        } = self.reads.splits.remove(at)?;
        let lost: Vec<u32> = (0..)
            .zip(&parts)
            .filter(|(_, (_, bytes))| bytes.is_none())
            .map(|(part, _)| part)
            .collect();
        if !lost.is_empty() {
            return Some((goal, Err(lost)));
        }
        let mut run = self.memory.buffers.get(rows as usize * BLOCK_SIZE);
        for (piece, bytes) in &parts {
            let within = piece.behind(piece.rows().0).range();
            bytes
                .iter()
                .for_each(|bytes| run[piece.range()].copy_from_slice(&bytes[within.clone()]));
        }
        Some((goal, Ok(run.freeze())))
    }
}
