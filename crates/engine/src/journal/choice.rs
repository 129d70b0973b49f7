//! What a flush costs members by way of the log, and by way of the journal (docs/journal.md, Cost): a pure function of a few numbers.

use crate::limits::FLUSH_COST_BYTES;
use windrow_units::{BLOCK_BYTES, Shape};

/// What is known when a flush has to be served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    /// Shape of the user stream's segment.
    pub(super) shape: &'a Shape,
    /// Data blocks that sealing the open batch would leave empty, header and footer among them; `None`: nothing is to be sealed.
    pub(super) wasted_blocks: Option<u64>,
    /// Members that a round of the log would flush.
    pub(super) log_members: u64,
    /// Bytes of the records that would be written, each counted once.
    pub(super) record_bytes: u64,
    /// Copies of a record.
    pub(super) copies: u64,
}

impl Situation<'_> {
    /// Bytes of members that the log would waste, and what its flushes cost.
    fn log_cost(&self) -> u64 {
        let wasted = self.wasted_blocks.unwrap_or(0) * BLOCK_BYTES * u64::from(self.shape.width) / u64::from(self.shape.data);
        // A block that nothing lives in has to be won back by cleaning: about one block moved for each.
        2 * wasted + self.log_members * FLUSH_COST_BYTES
    }

    fn journal_cost(&self) -> u64 {
        self.copies * (self.record_bytes + FLUSH_COST_BYTES)
    }

    /// True if the journal is the cheaper way.
    pub(super) fn is_for_journal(&self) -> bool {
        self.journal_cost() < self.log_cost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_units::Code;

    const WIDE: Shape = Shape { width: 8, data: 6, code: Code::PQ, rows: 64, chunk_rows: 64 };

    fn situation(blocks: u64, wasted_blocks: Option<u64>) -> Situation<'static> {
        Situation { shape: &WIDE, wasted_blocks, log_members: 8, record_bytes: 512 + blocks * BLOCK_BYTES, copies: 3 }
    }

    #[test]
    fn a_single_block_goes_to_the_journal_and_a_full_batch_to_the_log() {
        assert!(situation(1, Some(5)).is_for_journal());
        assert!(situation(8, Some(2 + 2)).is_for_journal(), "two rows, two blocks empty");
        assert!(!situation(300, Some(2)).is_for_journal());
        assert!(situation(4, Some(2)).log_cost() < situation(4, Some(5)).log_cost());
    }

    #[test]
    fn what_is_committed_and_only_wants_a_flush_is_journalled_if_it_is_small() {
        assert!(situation(1, None).is_for_journal());
        assert!(!situation(20, None).is_for_journal());
    }

    #[test]
    fn a_pool_of_one_member_gains_nothing_by_many_blocks() {
        let shape = Shape { width: 1, data: 1, code: Code::None, rows: 64, chunk_rows: 64 };
        let one = |blocks: u64| Situation { shape: &shape, wasted_blocks: Some(2), log_members: 1, record_bytes: 512 + blocks * BLOCK_BYTES, copies: 1 };
        assert!(one(1).is_for_journal() && !one(8).is_for_journal());
    }
}
