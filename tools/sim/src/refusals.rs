//! Checks of refused starts: the reported losses and missing devices must be possible, and there
//! must be at least one.

use crate::members::VirtualMembers;
use crate::violation::{Violation, ensure};
use std::collections::BTreeSet;
use windrow_engine::{Loss, Losses, OpenError};
use windrow_format::superblock::Superblock;
use windrow_geometry::ZoneMap;
use windrow_io::MemberIo;
use windrow_types::{BLOCK_BYTES, MemberId, SegmentId};

/// Checks losses of batches and LSNs. The log certainly had everything up to `log`, and no LSN
/// above `newest` was assigned.
pub fn check_losses(losses: &Losses, log: u64, newest: u64) -> Result<(), Violation> {
    ensure!(
        !losses.0.is_empty(),
        Open,
        "refused for losses, and none is named"
    );
    for loss in &losses.0 {
        let is_whole = loss.seq <= loss.durable_seq
            && loss.row <= loss.end_row
            && loss.blocks.iter().all(|run| run.count > 0);
        ensure!(is_whole, Open, "a loss of nothing: {loss}");
        let Some((first, last)) = loss.lsns.map(|(first, last)| (first.0, last.0)) else {
            continue;
        };
        ensure!(
            first <= last && log < first && last <= newest,
            Open,
            "lost are orders {log} to {newest} at most, but it says: {loss}"
        );
    }
    Ok(())
}

/// Checks a start refused without journal devices: the missing devices are some of these, and the
/// LSNs called lost were assigned and are not certainly in the log.
pub fn check_journal_refusal(
    error: &OpenError,
    devices: &[MemberId],
    log: u64,
    newest: u64,
) -> Result<(), Violation> {
    match error {
        OpenError::Lost(losses) => check_losses(losses, log, newest),
        OpenError::JournalMissing { which } => {
            let named = named_members(which);
            let are_devices =
                !named.is_empty() && named.iter().all(|member| devices.contains(member));
            ensure!(
                are_devices,
                Open,
                "the journal devices are {devices:?}, missing are said to be {which}"
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Members before and after an event.
pub struct Struck<'a> {
    /// Before the event.
    pub whole: &'a VirtualMembers,
    /// Now.
    pub now: &'a VirtualMembers,
    /// Ruling superblock before the event.
    pub ruling: &'a Superblock,
}

impl Struck<'_> {
    /// Checks that at each address named by the losses more is damaged than the redundancy covers.
    /// (LSNs that are in no batch may have been in any stream: then the next address of each is
    /// named, and one of these is enough.)
    pub fn check_places(&self, losses: &Losses) -> Result<(), Violation> {
        let zones = ZoneMap::new(self.ruling.zones.clone());
        let placed = losses
            .0
            .iter()
            .filter(|loss| loss.segment != SegmentId::NONE && zones.contains(loss.segment));
        let struck = |loss: &Loss| self.struck_members(&zones, loss);
        let is_struck = |loss: &Loss| struck(loss).len() > zones.shape(loss.segment).tolerance();
        let (good, others): (Vec<&Loss>, Vec<&Loss>) = placed.partition(|loss| is_struck(loss));
        for loss in others {
            let of_another =
                loss.lsns.is_some() && good.iter().any(|other| other.lsns == loss.lsns);
            ensure!(
                of_another,
                Open,
                "of the rows only {:?} have changed, {} may be, and it says: {loss}",
                struck(loss),
                zones.shape(loss.segment).tolerance()
            );
        }
        Ok(())
    }

    /// Members on which the segment has changed from the first lost row on, or is unreadable.
    fn struck_members(&self, zones: &ZoneMap, loss: &Loss) -> Vec<MemberId> {
        let (address, shape) = (zones.locate(loss.segment), zones.shape(loss.segment));
        let length = u64::from(shape.rows.saturating_sub(loss.row)) * BLOCK_BYTES;
        let is_struck = |member: MemberId, offset: u64| {
            let (mut before, mut after) = (vec![0; length as usize], vec![0; length as usize]);
            self.whole.member(member).read(offset, &mut before);
            self.now.member(member).read(offset, &mut after);
            !self.now.is_present(member)
                || !self.now.member(member).is_readable(offset, length)
                || before != after
        };
        let extents = (0..usize::from(shape.width)).map(|position| address.extent(position));
        extents
            .filter(|(member, start)| is_struck(*member, start + u64::from(loss.row) * BLOCK_BYTES))
            .map(|(member, _)| member)
            .collect()
    }
}

/// Members named in a refusal, in a list of the form `3 (identifier), 5 (identifier; more)`.
pub fn named_members(which: &str) -> BTreeSet<MemberId> {
    which
        .split("), ")
        .filter_map(|one| one.split(' ').next()?.parse().ok())
        .map(MemberId)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_engine::Loss;
    use windrow_types::{BatchSeq, Lsn};

    #[test]
    fn members_are_named_by_number() {
        let named = named_members("3 (00ff), 12 (01; it has generation 4, the pool 7), 5 (02)");
        assert_eq!(
            named.into_iter().collect::<Vec<_>>(),
            [3, 5, 12].map(MemberId)
        );
        assert!(named_members("").is_empty());
    }

    #[test]
    fn losses_are_what_can_be_lost() {
        let loss = |first, last| Loss {
            stream: 0,
            seq: BatchSeq(4),
            durable_seq: BatchSeq(4),
            segment: SegmentId::NONE,
            row: 0,
            end_row: 0,
            lsns: Some((Lsn(first), Lsn(last))),
            blocks: Vec::new(),
            more_runs: 0,
            why: "a test",
        };
        assert!(check_losses(&Losses(Vec::new()), 0, 9).is_err());
        assert!(check_losses(&Losses(vec![loss(5, 9)]), 4, 9).is_ok());
        for wrong in [loss(4, 9), loss(5, 10), loss(7, 6)] {
            assert!(check_losses(&Losses(vec![wrong]), 4, 9).is_err());
        }
    }
}
