//! Data at risk: bytes of admitted user writes that a power cut would lose, by LSN.
//!
//! One mark per request would be unbounded between two flushes, so there are at most [`MARKS_MAX`].
//! When they run out, durable marks are dropped. If those are few, every second of the others goes
//! as well, and new marks are spaced as wide. Bytes between two marks count as not durable until
//! the second mark is.

use std::collections::VecDeque;
use windrow_types::Lsn;

/// Most marks.
const MARKS_MAX: usize = 1024;

/// Bytes admitted up to given LSNs.
#[derive(Debug, Default)]
pub(crate) struct AtRisk {
    total: u64,
    /// Bytes at the newest mark that was dropped as durable.
    durable: u64,
    /// Ascending.
    marks: VecDeque<(Lsn, u64)>,
    /// Minimum number of bytes between two marks, except for the newest one.
    apart: u64,
}

impl AtRisk {
    /// Records that `bytes` more were admitted, up to this LSN.
    pub(super) fn admit(&mut self, through: Lsn, bytes: u64) {
        self.total += bytes;
        let before = self
            .marks
            .len()
            .checked_sub(2)
            .map_or(self.durable, |at| self.marks[at].1);
        match self.marks.back_mut() {
            // The chunks of one change come in the sequence of their blocks.
            Some(last) if through <= last.0 || last.1 - before < self.apart => {
                *last = (through.max(last.0), self.total)
            }
            _ => self.marks.push_back((through, self.total)),
        }
    }

    /// Makes room for marks. `durable_lsn`: every LSN up to it is durable.
    pub(super) fn make_room(&mut self, durable_lsn: Lsn) {
        if self.marks.len() < MARKS_MAX {
            return;
        }
        let durable = self.marks.partition_point(|mark| mark.0 <= durable_lsn);
        if let Some((_, total)) = self.marks.drain(..durable).next_back() {
            self.durable = total;
        }
        if self.marks.len() > MARKS_MAX / 2 {
            // The newest mark stays.
            let mut stays = self.marks.len().is_multiple_of(2);
            self.marks.retain(|_| {
                stays = !stays;
                stays
            });
            self.apart = (self.total - self.durable) / (MARKS_MAX as u64 / 2);
        } else {
            self.apart = 0;
        }
    }

    /// Bytes with an LSN above this one.
    pub(crate) fn above(&self, durable_lsn: Lsn) -> u64 {
        let durable = self.marks.partition_point(|mark| mark.0 <= durable_lsn);
        self.total
            - durable
                .checked_sub(1)
                .map_or(self.durable, |last| self.marks[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many writes come between two flushes, the marks are few, no byte is missing, and
    /// nothing remains after the last one.
    #[test]
    fn marks_are_bounded_and_count_too_much_rather_than_too_little() {
        let mut risk = AtRisk::default();
        for lsn in 1..=100_000 {
            let durable_lsn = Lsn(if lsn > 50_000 { 40_000 } else { 0 });
            risk.make_room(durable_lsn);
            risk.admit(Lsn(lsn), 10);
            assert!(risk.marks.len() <= MARKS_MAX);
            let exact = (lsn - durable_lsn.0) * 10;
            assert!(
                (exact..exact + 5000).contains(&risk.above(durable_lsn)),
                "{} of {exact} at {lsn}",
                risk.above(durable_lsn)
            );
            assert_eq!(risk.above(Lsn(lsn)), 0);
        }
        // A change in chunks.
        let before = risk.above(Lsn(99_999));
        risk.admit(Lsn(100_000), 10);
        assert_eq!(
            (risk.above(Lsn(99_999)), risk.above(Lsn(100_000))),
            (before + 10, 0)
        );
    }
}
