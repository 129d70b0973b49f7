//! Durable marks recorded on the members: rule D of `docs/internals/format.md` section 12.3.
//!
//! The superblock, the checkpoint root, every fence and every header (even if its batch or journal
//! record does not verify) record durable marks: a batch sequence number for each stream and an
//! LSN, up to which a completed flush had covered everything. The marks of an epoch end at its next
//! fence: what lay beyond was discarded, sequence numbers restart there, and LSNs that the fence
//! skipped were never missing.

use windrow_format::batch::BatchHeader;
use windrow_format::superblock::{CheckpointRoot, Fence};
use windrow_types::{BatchSeq, Epoch, Lsn, MAX_STREAMS, StreamId};

/// The earliest fence that begins an epoch above `epoch`.
pub(crate) fn fence_for(fences: &[Fence], epoch: Epoch) -> Option<&Fence> {
    fences
        .iter()
        .filter(|f| f.epoch > epoch)
        .min_by_key(|f| f.epoch)
}

/// Highest LSN that a batch written in an epoch may carry: the highest one that the log had without
/// a gap when the next epoch began.
pub(crate) fn batch_limit(fences: &[Fence], epoch: Epoch) -> u64 {
    fence_for(fences, epoch).map_or(u64::MAX, |f| f.covered_lsn.0)
}

/// Highest LSN that a journal record written in an epoch may carry: the next fence voids higher
/// ones.
pub(crate) fn record_limit(fences: &[Fence], epoch: Epoch) -> u64 {
    fences
        .iter()
        .filter(|f| f.epoch > epoch)
        .map(|f| f.recovery_lsn.0)
        .min()
        .unwrap_or(u64::MAX)
}

/// LSNs that are covered by a checkpoint, batches or records, or were skipped by a fence and never
/// used.
pub(crate) struct Coverage {
    passed: u64,
    highest: u64,
}

impl Coverage {
    /// LSNs up to `root`, those in these ranges, and those that fences skipped.
    pub(crate) fn new(root: Lsn, used: &[(u64, u64)], fences: &[Fence]) -> Self {
        let skipped = fences
            .iter()
            .map(|f| (f.recovery_lsn.0 + 1, f.next_lsn.0 - 1))
            .filter(|(first, last)| first <= last);
        let mut ranges: Vec<(u64, u64)> = used.iter().copied().chain(skipped).collect();
        ranges.sort_unstable();
        let mut passed = root.0;
        for (first, last) in ranges {
            if first > passed.saturating_add(1) {
                break;
            }
            passed = passed.max(last);
        }
        let highest = used
            .iter()
            .filter(|(first, _)| *first <= passed)
            .map(|(_, last)| *last)
            .max()
            .unwrap_or(0);
        Self {
            passed,
            highest: highest.max(root.0),
        }
    }

    /// Recovery point: the highest used LSN without a gap below it.
    pub(crate) fn highest(&self) -> Lsn {
        Lsn(self.highest)
    }

    /// Recovery point, extended over unused LSNs after it: none of these is missing.
    pub(crate) fn passed(&self) -> Lsn {
        Lsn(self.passed)
    }

    /// True if one of the LSNs `first ..= last` follows the first gap: nothing counts there, even
    /// if it is covered.
    pub(crate) fn lacks(&self, first: u64, last: u64) -> bool {
        first <= last && last > self.passed
    }
}

/// Known durable marks.
pub(crate) struct Durable<'f> {
    fences: &'f [Fence],
    seqs: [BatchSeq; MAX_STREAMS],
    through: Lsn,
}

impl<'f> Durable<'f> {
    /// Marks of the roots and fences, including a root whose pages are unreadable.
    pub(crate) fn new<'r>(
        fences: &'f [Fence],
        roots: impl Iterator<Item = &'r CheckpointRoot>,
    ) -> Self {
        let mut durable = Self {
            fences,
            seqs: [BatchSeq(0); MAX_STREAMS],
            through: Lsn(0),
        };
        roots.for_each(|root| durable.said(root.epoch, &root.flushed_seq, root.flushed_through));
        for fence in fences {
            // Everything a fence accepts was durable before the fence was written.
            durable.said(fence.epoch, &fence.last_seq, fence.recovery_lsn);
        }
        durable
    }

    /// Adds the marks of a batch header.
    pub(crate) fn said_by(&mut self, header: &BatchHeader) {
        self.said(header.epoch, &header.flushed_seq, header.flushed_through);
    }

    /// Adds the durable LSN of a journal record or the superblock.
    pub(crate) fn said_otherwise(&mut self, epoch: Epoch, through: Lsn) {
        self.said(epoch, &[BatchSeq(0); MAX_STREAMS], through);
    }

    fn said(&mut self, epoch: Epoch, seqs: &[BatchSeq; MAX_STREAMS], through: Lsn) {
        let fence = fence_for(self.fences, epoch);
        for (stream, (known, claimed)) in self.seqs.iter_mut().zip(seqs).enumerate() {
            let ends = fence.map_or(*claimed, |f| f.last_seq[stream]);
            *known = (*known).max((*claimed).min(ends));
        }
        let ends = fence.map_or(through, |f| f.recovery_lsn);
        self.through = self.through.max(through.min(ends));
    }

    /// Highest durable batch sequence number of the stream.
    pub(crate) fn seq(&self, stream: StreamId) -> BatchSeq {
        self.seqs[stream.index()]
    }

    /// Highest durable LSN.
    pub(crate) fn through(&self) -> Lsn {
        self.through
    }
}
