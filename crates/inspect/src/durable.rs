//! What the members say was durable: the rule D of `docs/internals/format.md` section 12.3.
//!
//! The superblock, the checkpoint root, every fence, and every header that is met (whether or not
//! its batch or journal record verifies) say up to which number of each stream and up to which
//! order a completed flush had made everything durable. What an epoch says ends at the fence behind
//! that epoch: what lay beyond it was given up, numbers begin anew there, and orders that the fence
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

/// The highest order that a batch written in an epoch may bring: what the log had without a gap
/// when the next epoch began.
pub(crate) fn batch_limit(fences: &[Fence], epoch: Epoch) -> u64 {
    fence_for(fences, epoch).map_or(u64::MAX, |f| f.covered_lsn.0)
}

/// The highest order that a journal record written in an epoch may bring: the next fence calls what
/// is above void.
pub(crate) fn record_limit(fences: &[Fence], epoch: Epoch) -> u64 {
    fences
        .iter()
        .filter(|f| f.epoch > epoch)
        .map(|f| f.recovery_lsn.0)
        .min()
        .unwrap_or(u64::MAX)
}

/// Orders that something covers: a checkpoint, batches, records; or that a fence skipped, so that
/// they were never used.
pub(crate) struct Coverage {
    passed: u64,
    highest: u64,
}

impl Coverage {
    /// Everything up to `root`, what is in these ranges, and what fences skipped.
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

    /// P: the highest order that is used and has no gap below it.
    pub(crate) fn highest(&self) -> Lsn {
        Lsn(self.highest)
    }

    /// P, and behind it what was never used: none of these is missing.
    pub(crate) fn passed(&self) -> Lsn {
        Lsn(self.passed)
    }

    /// True if one of the orders `first ..= last` lies behind the first gap: there nothing counts,
    /// though it may be covered.
    pub(crate) fn lacks(&self, first: u64, last: u64) -> bool {
        first <= last && last > self.passed
    }
}

/// What is known to have been durable.
pub(crate) struct Durable<'f> {
    fences: &'f [Fence],
    seqs: [BatchSeq; MAX_STREAMS],
    through: Lsn,
}

impl<'f> Durable<'f> {
    /// What the roots and fences say; also a root whose pages can not be had any more.
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
            // What a fence accepts was made durable before it was written.
            durable.said(fence.epoch, &fence.last_seq, fence.recovery_lsn);
        }
        durable
    }

    /// What a header says.
    pub(crate) fn said_by(&mut self, header: &BatchHeader) {
        self.said(header.epoch, &header.flushed_seq, header.flushed_through);
    }

    /// What a journal record or the superblock says of orders alone.
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

    /// Batches of the stream up to this number were durable.
    pub(crate) fn seq(&self, stream: StreamId) -> BatchSeq {
        self.seqs[stream.index()]
    }

    /// Orders up to this one were durable.
    pub(crate) fn through(&self) -> Lsn {
        self.through
    }
}
