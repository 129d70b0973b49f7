//! Cost of a flush by way of the log, of the journal, and of both (docs/internals/journal.md,
//! Cost): a pure function of a few numbers.

use crate::api::Limits;
use windrow_geometry::{JournalArea, Shape};
use windrow_types::BLOCK_BYTES;

/// Way in which a flush is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The open batch is sealed with padding, and members are flushed.
    Log,
    /// All pending entries are written to the journal.
    Journal,
    /// Full rows are sealed; the rest is written to the journal.
    Both,
}

/// Inputs of the choice for a flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    /// Limits, and the cost of a flush.
    pub(super) limits: &'a Limits,
    /// Shape of the user stream's segment.
    pub(super) shape: &'a Shape,
    /// The journal in use.
    pub(super) area: &'a JournalArea,
    /// True if it is on dedicated devices.
    pub(super) on_devices: bool,
    /// Data blocks that sealing the open batch would leave empty, header and footer included;
    /// `None`: nothing to seal.
    pub(super) wasted_blocks: Option<u64>,
    /// Members that a round of the log would flush.
    pub(super) log_members: u64,
    /// Bytes of the records of all pending entries, each counted once.
    pub(super) record_bytes: u64,
    /// Entries left if full rows were sealed.
    pub(super) rest: Option<Rest>,
}

/// Entries that full rows leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    /// A batch is sealed for the full rows: one more header and footer.
    pub(super) sealed: bool,
    /// Bytes of the records of these entries, each counted once.
    pub(super) record_bytes: u64,
}

impl Situation<'_> {
    /// Member bytes that this number of empty data blocks costs. Cleaning has to reclaim them, at
    /// about one block moved for each.
    fn waste(&self, blocks: u64) -> u64 {
        2 * blocks * BLOCK_BYTES * u64::from(self.shape.width) / u64::from(self.shape.data)
    }

    fn log_cost(&self) -> u64 {
        self.waste(self.wasted_blocks.unwrap_or(0))
            + self.log_members * self.limits.flush_cost_bytes
    }

    fn records_cost(&self, bytes: u64) -> u64 {
        let flush = if self.area.power_safe || bytes == 0 {
            0
        } else {
            self.limits.flush_cost_bytes
        };
        u64::from(self.area.copies) * (bytes + flush)
    }

    fn both_cost(&self, rest: &Rest) -> u64 {
        self.waste(if rest.sealed { 2 } else { 0 })
            + self.log_members * self.limits.flush_cost_bytes
            + self.records_cost(rest.record_bytes)
    }

    /// True if both ways together may be cheapest. Finding the full rows walks the whole open
    /// batch.
    pub(super) fn may_be_both(&self) -> bool {
        if self.on_devices {
            return self.record_bytes > self.limits.journal_device_bytes;
        }
        self.log_members * self.limits.flush_cost_bytes
            < self.log_cost().min(self.records_cost(self.record_bytes))
    }

    /// Cheapest way. Journal devices are there to relieve the other members, which then get full
    /// rows only: the cost of their bytes is not counted.
    pub(super) fn way(&self) -> Way {
        if self.on_devices {
            return match self.rest {
                _ if self.record_bytes <= self.limits.journal_device_bytes => Way::Journal,
                Some(rest) if rest.record_bytes <= self.limits.journal_device_bytes => Way::Both,
                _ => Way::Log,
            };
        }
        let one = if self.records_cost(self.record_bytes) < self.log_cost() {
            Way::Journal
        } else {
            Way::Log
        };
        let cost = self.log_cost().min(self.records_cost(self.record_bytes));
        if self.rest.is_some_and(|rest| self.both_cost(&rest) < cost) {
            Way::Both
        } else {
            one
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_geometry::Code;

    const WIDE: Shape = Shape {
        width: 8,
        data: 6,
        code: Code::PQ,
        rows: 64,
        chunk_rows: 64,
    };

    fn area(copies: u8, power_safe: bool) -> JournalArea {
        JournalArea {
            power_safe,
            ..JournalArea::fit(0xff, copies, 1 << 20, 64 << 10, 16 << 10, 512).expect("a journal")
        }
    }

    fn way(blocks: u64, wasted_blocks: Option<u64>, rest: Option<u64>) -> Way {
        situation(&area(3, false), blocks, wasted_blocks, rest).way()
    }

    fn limits() -> &'static Limits {
        static LIMITS: std::sync::LazyLock<Limits> = std::sync::LazyLock::new(Limits::default);
        &LIMITS
    }

    fn situation(
        area: &JournalArea,
        blocks: u64,
        wasted_blocks: Option<u64>,
        rest: Option<u64>,
    ) -> Situation<'_> {
        let rest = rest.map(|blocks| Rest {
            sealed: true,
            record_bytes: if blocks == 0 {
                0
            } else {
                512 + blocks * BLOCK_BYTES
            },
        });
        Situation {
            limits: limits(),
            shape: &WIDE,
            area,
            on_devices: false,
            wasted_blocks,
            log_members: 8,
            record_bytes: 512 + blocks * BLOCK_BYTES,
            rest,
        }
    }

    #[test]
    fn a_single_block_goes_to_the_journal_and_a_full_batch_to_the_log() {
        assert_eq!(way(1, Some(5), None), Way::Journal);
        assert_eq!(
            way(8, Some(2 + 2), None),
            Way::Journal,
            "two rows, two blocks empty"
        );
        assert_eq!(way(300, Some(2), None), Way::Log);
        let area = area(3, false);
        assert!(
            situation(&area, 4, Some(2), None).log_cost()
                < situation(&area, 4, Some(5), None).log_cost()
        );
    }

    #[test]
    fn full_rows_are_looked_for_wherever_they_could_be_the_cheapest() {
        let (mut both, mut skipped) = (0, 0);
        for (copies, power_safe, on_devices) in
            [(3, false, false), (1, true, false), (1, false, true)]
        {
            let area = area(copies, power_safe);
            for (blocks, wasted) in (1..200)
                .flat_map(|blocks| [None, Some(0), Some(3), Some(9)].map(|wasted| (blocks, wasted)))
            {
                for rest in [None, Some(0), Some(1), Some(blocks)] {
                    let situation = Situation {
                        on_devices,
                        ..situation(&area, blocks, wasted, rest)
                    };
                    let is_both = situation.way() == Way::Both;
                    assert!(
                        !is_both || situation.may_be_both(),
                        "{blocks} {wasted:?} {rest:?}"
                    );
                    both += u32::from(is_both);
                    skipped += u32::from(!situation.may_be_both());
                }
            }
        }
        assert!(both > 100 && skipped > 100, "{both} {skipped}");
    }

    #[test]
    fn what_is_committed_and_only_wants_a_flush_is_journalled_if_it_is_small() {
        assert_eq!(way(1, None, None), Way::Journal);
        assert_eq!(way(20, None, None), Way::Log);
    }

    #[test]
    fn full_rows_are_sealed_where_nothing_or_little_for_a_cheap_journal_is_left() {
        assert_eq!(
            way(100, Some(2 + 5), Some(1)),
            Way::Log,
            "padding costs less than another round of three members"
        );
        assert_eq!(
            way(100, Some(2 + 5), Some(0)),
            Way::Both,
            "the flush asks for full rows only"
        );
        assert_eq!(
            situation(&area(1, true), 100, Some(2 + 5), Some(1)).way(),
            Way::Both,
            "a journal that needs no flush"
        );
    }

    #[test]
    fn with_journal_devices_members_get_full_rows_only() {
        let area = area(1, false);
        let on_devices = |blocks, rest| {
            Situation {
                on_devices: true,
                ..situation(&area, blocks, Some(3), rest)
            }
            .way()
        };
        assert_eq!(on_devices(40, Some(1)), Way::Journal);
        assert_eq!(
            on_devices(64, Some(1)),
            Way::Journal,
            "a whole request of 256 KiB and its head"
        );
        assert_eq!(
            (on_devices(100, Some(1)), on_devices(100, None)),
            (Way::Both, Way::Log)
        );
    }

    #[test]
    fn a_pool_of_one_member_gains_nothing_by_many_blocks() {
        let shape = Shape {
            width: 1,
            data: 1,
            code: Code::None,
            rows: 64,
            chunk_rows: 64,
        };
        let area = JournalArea::fit(1, 1, 1 << 20, 64 << 10, 16 << 10, 512).expect("a journal");
        let one = |blocks: u64| {
            Situation {
                shape: &shape,
                log_members: 1,
                ..situation(&area, blocks, Some(2), None)
            }
            .way()
        };
        assert_eq!((one(1), one(8)), (Way::Journal, Way::Log));
    }
}
