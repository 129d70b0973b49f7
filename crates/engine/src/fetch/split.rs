//! A run that can not be had as a whole is fetched row by row, or piece by piece where packed payload is wanted of it.
//!
//! A read of several rows fails as a whole, whichever of its sectors is bad. So bad sectors in different rows of different columns take away
//! all these columns in all rows, more than the redundancy covers, although it covers each row by itself. Row by row only those that are
//! beyond it are lost, and it is known which.
//!
//! All rows are begun at once: they are no more than the blocks of one request or of the head of a batch.

use super::{FetchGoal, FetchSpec};
use crate::piece::Piece;
use crate::{Engine, Outbox};
use windrow_io::Payload;
use windrow_units::BLOCK_SIZE;

/// A run whose rows are being fetched singly.
#[derive(Debug)]
pub(crate) struct Split {
    goal: FetchGoal,
    rows: u32,
    /// What is fetched singly, and what has come of it: its rows.
    parts: Vec<(Piece, Option<Payload>)>,
    left: u32,
}

impl Engine {
    /// Fetches each piece of a run, or each row if no pieces are known.
    pub(super) fn split_fetch(&mut self, spec: FetchSpec, out: &mut Outbox) {
        let is_known = !spec.pieces.is_empty();
        let pieces = if is_known { spec.pieces } else { (0..spec.rows).map(|row| Piece::row(row, 0)).collect() };
        let parts = pieces.iter().map(|piece| (*piece, None)).collect();
        let split = self.splits.insert(Split { goal: spec.goal, rows: spec.rows, parts, left: pieces.len() as u32 });
        for (n, piece) in (0..).zip(pieces) {
            let (first, last) = piece.rows();
            let pieces = if is_known { vec![piece.behind(first)] } else { Vec::new() };
            let goal = FetchGoal::Row { split, row: n };
            self.start_fetch(FetchSpec { row: spec.row + first, rows: last - first + 1, pieces, goal, ..spec }, out);
        }
    }

    /// A row of a run has come, or can not be had.
    pub(super) fn row_fetched(&mut self, at: u32, row: u32, bytes: Option<Payload>, out: &mut Outbox) {
        let Some(split) = self.splits.get_mut(at) else { return };
        split.parts[row as usize].1 = bytes;
        split.left -= 1;
        if split.left > 0 {
            return;
        }
        let Some(Split { goal, rows, parts, .. }) = self.splits.remove(at) else { return };
        let lost: Vec<u32> = (0..).zip(&parts).filter(|(_, (_, bytes))| bytes.is_none()).map(|(part, _)| part).collect();
        if !lost.is_empty() {
            return self.fetched(goal, Err(lost), out);
        }
        let mut run = self.buffers.get(rows as usize * BLOCK_SIZE);
        for (piece, bytes) in &parts {
            let within = piece.behind(piece.rows().0).range();
            bytes.iter().for_each(|bytes| run[piece.range()].copy_from_slice(&bytes[within.clone()]));
        }
        self.fetched(goal, Ok(run.freeze()), out);
    }

    /// Who wants the whole run, and from which row or piece of it on.
    pub(crate) fn whole_goal(&mut self, goal: FetchGoal) -> (FetchGoal, u32) {
        match goal {
            FetchGoal::Row { split, row } => self.splits.get_mut(split).map_or((goal, row), |split| (split.goal, row)),
            _ => (goal, 0),
        }
    }
}
