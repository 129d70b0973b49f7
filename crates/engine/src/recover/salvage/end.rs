//! Where the log ends, and what the journal has behind it.
//!
//! 1 As at a start (`recover/replay.rs`) the log ends before its first gap, and the journal goes on
//!   from there: it lists everything that was promised behind a gap, so there only its records
//!   count. That is the end if log and journal together have everything that was durable. 2 If not,
//!   journal devices that have left service may have it, and are read as well.
//!   3 Else something is lost. Either the log ends before the gap all the same, or with its highest
//!     order, where records count only behind that: whichever loses fewer promises,
//!   and if both lose as many, the one that reaches further.
//!
//! What was promised and is not taken from either is told of as [`LostLsns`]. (Records of the gap
//! beside batches behind it would have to be compared with these block by block.) Volumes that only
//! the journal tells of are made for it ([`super::room`]); what there is no room for all the same
//! is told of in the same way.

use super::super::chain::Durable;
use super::super::journal::{self, Readmitted};
use super::super::reader::Reader;
use super::super::{OpenError, Tables};
use super::base::Start;
use super::gather::Gather;
use super::room::Room;
use super::scan::Scan;
use crate::limits::USER_STREAMS;
use serde::Serialize;
use windrow_format::superblock::Superblock;
use windrow_io::BufPool;
use windrow_types::{BatchSeq, Lsn, MAX_STREAMS, VolumeId};

/// Operations that were promised to be durable, are in no batch that can be read, and could not be
/// taken from a journal: its records are lost as well, or speak of volumes that are known to be
/// deleted. Nobody knows which blocks they wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LostLsns {
    /// The first one.
    pub first: Lsn,
    /// The last one.
    pub last: Lsn,
    /// How many of those between are lost.
    pub count: u64,
}

impl LostLsns {
    /// These, and one more.
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
    /// The last order in effect, and the highest one that a record names.
    pub(super) journalled: Lsn,
    pub(super) highest_journalled: Lsn,
    /// Batches count up to `covered` only, as at a start.
    pub(super) is_exact: bool,
    pub(super) lost: Option<LostLsns>,
}

impl LogEnd {
    /// Lets what only the journal has take effect; gives what is to be readmitted. What there is no
    /// room for all the same is lost.
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

/// What batches of users bring.
struct Log {
    /// The last order of the checkpoint.
    root: Lsn,
    /// Ranges of orders behind it, those among them that a fence skipped; sorted.
    ranges: Vec<(u64, u64)>,
    /// The last order before the first gap.
    gapless: Lsn,
    /// The highest one of any batch.
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
        // (What a fence skipped may lie behind all batches.)
        if self.gapless >= self.highest {
            return self.end_at(reader, superblock, found, self.highest);
        }
        let exact = self.end_at(reader, superblock, found, self.gapless)?;
        if exact.lost.is_none() {
            return Ok(exact);
        }
        let reaching = self.end_at(reader, superblock, found, self.highest)?;
        let count = |end: &LogEnd| end.lost.map_or(0, |lost| lost.count);
        // Where as many promises are lost either way, batches behind the gap bring what nobody was
        // promised.
        Ok(if count(&exact) < count(&reaching) {
            exact
        } else {
            reaching
        })
    }

    /// If the log ends with `covered`, before a gap or with its highest order.
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
        // (What a fence skipped is not missing, wherever it is.)
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

/// The orders behind `root` up to `through` that are in none of these ranges.
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
    fn what_is_missing_is_what_no_range_has() {
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
        // Nothing behind what was promised is lost, and an empty range brings nothing.
        assert_eq!(of(10, &[(11, 12), (30, 40)], 12), None);
        assert_eq!(of(10, &[(13, 12), (12, 12)], 13), Some((11, 13, 2)));
    }
}
