//! End of the log, and the journal's operations after it.
//!
//! 1. As at a start (`recover/replay.rs`) the log ends before its first gap, and the journal
//!    continues from there. It lists every durable operation after a gap, so only its records count
//!    there. That is the end if log and journal together have everything durable.
//! 2. If not, journal devices that have left service may have it, and are read as well.
//! 3. Else something is lost. Either the log ends before the gap all the same, or it ends with its
//!    highest LSN and records count only after that. Salvage chooses the end that loses fewer
//!    durable operations; if both lose the same number, the later one.
//!
//! Durable operations that neither has are reported as [`LostLsns`]. (Records of the gap in
//! addition to batches after it would have to be compared block by block.) Volumes that only the
//! journal knows are created for it ([`super::room`]). Operations without room are reported in the
//! same way.

use super::super::chain::Durable;
use super::super::journal::{self, Readmitted};
use super::super::reader::Reader;
use super::super::{OpenError, Tables};
use super::base::Start;
use super::gather::Gather;
use super::room::Room;
use super::scan::Scan;
use crate::base::limits::USER_STREAMS;
use serde::Serialize;
use windrow_format::superblock::Superblock;
use windrow_io::BufPool;
use windrow_types::{BatchSeq, Lsn, MAX_STREAMS, VolumeId};

/// Durable operations in no readable batch that could not be taken from a journal. The journal's
/// records of them are lost as well, or are of deleted volumes. The blocks that they wrote are
/// unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LostLsns {
    /// First lost LSN.
    pub first: Lsn,
    /// Last lost LSN.
    pub last: Lsn,
    /// Number of lost LSNs between them, both included.
    pub count: u64,
}

impl LostLsns {
    /// `lost` and one more LSN.
    fn and(lost: Option<Self>, lsn: Lsn) -> Self {
        let none = Self {
            first: lsn,
            last: lsn,
            count: 0,
        };
        let Self { first, last, count } = lost.unwrap_or(none);
        Self {
            first: first.min(lsn),
            last: last.max(lsn),
            count: count + 1,
        }
    }
}

/// The end of the log.
pub(super) struct LogEnd {
    pub(super) covered: Lsn,
    pub(super) journal: journal::Found,
    /// Last LSN in effect, and the highest LSN of any record.
    pub(super) journalled: Lsn,
    pub(super) highest_journalled: Lsn,
    /// True if batches count up to `covered` only, as at a start.
    pub(super) is_exact: bool,
    pub(super) lost: Option<LostLsns>,
}

impl LogEnd {
    /// Applies the operations that only the journal has; returns those to be readmitted.
    /// Operations without room are added to the lost ones.
    pub(super) fn apply_journal(
        &mut self,
        superblock: &Superblock,
        buffers: &BufPool,
        gather: &mut Gather<'_>,
        tables: &mut Tables,
    ) -> Result<Vec<Readmitted>, OpenError> {
        let mut room = Room::without(&gather.deleted);
        let brought = self.journal.apply(
            superblock,
            (self.covered, self.journalled),
            buffers,
            tables,
            &mut |entry, tables| room.make(entry, tables),
        )?;
        let made_up: Vec<VolumeId> = room.made_up().collect();
        gather.made_up.extend(made_up);
        self.lost = brought
            .homeless
            .into_iter()
            .fold(self.lost, |lost, lsn| Some(LostLsns::and(lost, lsn)));
        Ok(brought.list)
    }
}

/// Finds the end.
pub(super) fn end_of_log(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    found: &Scan,
    start: &Start,
) -> Result<LogEnd, OpenError> {
    let log = Log::of(superblock, found, start);
    let end = log.end(reader, superblock, found)?;
    if end.lost.is_none() || reader.retired == 0 {
        return Ok(end);
    }
    reader.reads_retired = true;
    log.end(reader, superblock, found)
}

/// LSNs of the user batches.
struct Log {
    /// Last LSN of the checkpoint.
    root: Lsn,
    /// Sorted ranges of LSNs after it, including those that a fence skipped.
    ranges: Vec<(u64, u64)>,
    /// Last LSN before the first gap.
    gapless: Lsn,
    /// Highest LSN of any batch.
    highest: Lsn,
}

impl Log {
    fn of(superblock: &Superblock, found: &Scan, start: &Start) -> Self {
        let users = USER_STREAMS.iter().flat_map(|id| {
            found.streams[*id]
                .iter()
                .filter(move |taken| taken.seq >= start.first[*id])
        });
        let brought = users.flat_map(|taken| {
            let through = found.through(superblock, taken.epoch).0;
            taken
                .lsns
                .iter()
                .map(move |(first, last)| (*first, (*last).min(through)))
        });
        let root = superblock
            .checkpoints
            .iter()
            .flatten()
            .map(|root| root.lsn)
            .max()
            .unwrap_or_default();
        let mut ranges: Vec<(u64, u64)> = brought
            .filter(|(first, last)| first <= last && *last > root.0)
            .collect();
        let highest = Lsn(ranges
            .iter()
            .map(|(_, last)| *last)
            .max()
            .unwrap_or(0)
            .max(root.0));
        ranges.extend(
            superblock
                .fences
                .iter()
                .map(|f| (f.recovery_lsn.0 + 1, f.next_lsn.0 - 1)),
        );
        ranges.sort_unstable();
        let gapless = ranges.iter().fold(root.0, |passed, (first, last)| {
            if *first <= passed.saturating_add(1) {
                passed.max(*last)
            } else {
                passed
            }
        });
        Self {
            root,
            ranges,
            gapless: Lsn(gapless),
            highest,
        }
    }

    fn end(
        &self,
        reader: &mut Reader<'_>,
        superblock: &Superblock,
        found: &Scan,
    ) -> Result<LogEnd, OpenError> {
        // LSNs that a fence skipped may be after all batches.
        if self.gapless >= self.highest {
            return self.end_at(reader, superblock, found, self.highest);
        }
        let exact = self.end_at(reader, superblock, found, self.gapless)?;
        if exact.lost.is_none() {
            return Ok(exact);
        }
        let reaching = self.end_at(reader, superblock, found, self.highest)?;
        let count = |end: &LogEnd| end.lost.map_or(0, |lost| lost.count);
        // If both ends lose the same number, batches after the gap bring operations that were not
        // durable.
        Ok(if count(&exact) < count(&reaching) {
            exact
        } else {
            reaching
        })
    }

    /// The state if the log ends with `covered`, before a gap or with its highest LSN.
    fn end_at(
        &self,
        reader: &mut Reader<'_>,
        superblock: &Superblock,
        found: &Scan,
        covered: Lsn,
    ) -> Result<LogEnd, OpenError> {
        let since = superblock
            .checkpoints
            .iter()
            .flatten()
            .map(|root| root.epoch)
            .max()
            .unwrap_or_default();
        let journal = journal::collect(reader, superblock, covered, since)?;
        let (journalled, highest_journalled) = journal.accepted(superblock, covered);
        let mut durable = Durable {
            seqs: found.flushed,
            through: found.durable_through,
        };
        journal.claims().for_each(|(epoch, through)| {
            durable.claim(superblock, epoch, &[BatchSeq(0); MAX_STREAMS], through)
        });
        let is_exact = covered < self.highest;
        let there = self.ranges.iter().copied().map(|(first, last)| {
            if is_exact {
                (first, last.min(covered.0))
            } else {
                (first, last)
            }
        });
        // LSNs that a fence skipped are nowhere missing.
        let skipped = superblock
            .fences
            .iter()
            .map(|f| (f.recovery_lsn.0 + 1, f.next_lsn.0 - 1));
        let lost = missing(
            self.root,
            there.chain([(covered.0 + 1, journalled.0)]).chain(skipped),
            durable.through,
        );
        Ok(LogEnd {
            covered,
            journal,
            journalled,
            highest_journalled,
            is_exact,
            lost,
        })
    }
}

/// LSNs after `root` up to `through` that are in none of these ranges.
fn missing(root: Lsn, there: impl Iterator<Item = (u64, u64)>, through: Lsn) -> Option<LostLsns> {
    let mut there: Vec<(u64, u64)> = there.filter(|(first, last)| first <= last).collect();
    there.sort_unstable();
    let (mut next, mut lost): (u64, Option<LostLsns>) = (root.0 + 1, None);
    for (first, last) in there.into_iter().chain([(through.0 + 1, through.0 + 1)]) {
        let end = (first - 1).min(through.0);
        if end >= next {
            let known = lost.map_or((Lsn(next), 0), |lost| (lost.first, lost.count));
            lost = Some(LostLsns {
                first: known.0,
                last: Lsn(end),
                count: known.1 + end - next + 1,
            });
        }
        next = next.max(last.saturating_add(1));
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsns_in_no_range_are_missing() {
        let of = |root: u64, there: &[(u64, u64)], through: u64| {
            missing(Lsn(root), there.iter().copied(), Lsn(through))
                .map(|lost| (lost.first.0, lost.last.0, lost.count))
        };
        assert_eq!(of(10, &[], 10), None);
        assert_eq!(of(10, &[], 14), Some((11, 14, 4)));
        assert_eq!(of(10, &[(14, 20), (11, 13)], 20), None);
        assert_eq!(
            of(10, &[(5, 12), (15, 16), (19, 40)], 20),
            Some((13, 18, 4))
        );
        // Nothing after the durable LSNs is lost, and an empty range has no LSNs.
        assert_eq!(of(10, &[(11, 12), (30, 40)], 12), None);
        assert_eq!(of(10, &[(13, 12), (12, 12)], 13), Some((11, 13, 2)));
    }
}
