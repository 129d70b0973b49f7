//! A run that can not be had as a whole is fetched row by row.
//!
//! A read of several rows fails as a whole, whichever of its sectors is bad. So bad sectors in different rows of different columns take away
//! all these columns in all rows, more than the redundancy covers, although it covers each row by itself. Row by row only those that are
//! beyond it are lost, and it is known which.
//!
//! All rows are begun at once: they are no more than the blocks of one request or of the head of a batch.

use super::{FetchGoal, FetchSpec};
use crate::{Engine, Outbox};
use windrow_io::Payload;
use windrow_units::BLOCK_SIZE;

/// A run whose rows are being fetched singly.
#[derive(Debug)]
pub(crate) struct Split {
    goal: FetchGoal,
    rows: Vec<Option<Payload>>,
    left: u32,
}

impl Engine {
    /// Fetches each row of a run.
    pub(super) fn split_fetch(&mut self, spec: FetchSpec, out: &mut Outbox) {
        let split = self.splits.insert(Split { goal: spec.goal, rows: vec![None; spec.rows as usize], left: spec.rows });
        for n in 0..spec.rows {
            let checksums = spec.checksums.get(n as usize).map(|sum| vec![*sum]).unwrap_or_default();
            let goal = FetchGoal::Row { split, row: n };
            self.start_fetch(FetchSpec { row: spec.row + n, rows: 1, checksums, goal, ..spec }, out);
        }
    }

    /// A row of a run has come, or can not be had.
    pub(super) fn row_fetched(&mut self, at: u32, row: u32, bytes: Option<Payload>, out: &mut Outbox) {
        let Some(split) = self.splits.get_mut(at) else { return };
        split.rows[row as usize] = bytes;
        split.left -= 1;
        if split.left > 0 {
            return;
        }
        let Some(Split { goal, rows, .. }) = self.splits.remove(at) else { return };
        let lost: Vec<u32> = (0..).zip(&rows).filter(|(_, bytes)| bytes.is_none()).map(|(row, _)| row).collect();
        if !lost.is_empty() {
            return self.fetched(goal, Err(lost), out);
        }
        let mut run = self.buffers.get(rows.len() * BLOCK_SIZE);
        for (to, bytes) in run.chunks_exact_mut(BLOCK_SIZE).zip(rows.iter().flatten()) {
            to.copy_from_slice(bytes);
        }
        self.fetched(goal, Ok(run.freeze()), out);
    }

    /// Who wants the whole run, and from which row of it on.
    pub(crate) fn whole_goal(&mut self, goal: FetchGoal) -> (FetchGoal, u32) {
        match goal {
            FetchGoal::Row { split, row } => self.splits.get_mut(split).map_or((goal, row), |split| (split.goal, row)),
            _ => (goal, 0),
        }
    }
}
