//! What the members say was durable: the rule D of `docs/on-disk-format.md` section 12.3.
//!
//! The checkpoint root, every fence, and every header that is met (whether or not its batch verifies) say up to which number of each stream
//! and up to which order a completed flush had made everything durable. What an epoch says ends at the fence behind that epoch: what lay
//! beyond it was given up, numbers begin anew there, and orders that the fence skipped were never missing.

use windrow_layout::batch::BatchHeader;
use windrow_layout::superblock::{CheckpointRoot, Fence};
use windrow_units::{Epoch, MAX_STREAMS, Order, Seq, StreamId};

/// The earliest fence that begins an epoch above `epoch`.
pub(crate) fn fence_for(fences: &[Fence], epoch: Epoch) -> Option<&Fence> {
    fences.iter().filter(|f| f.epoch > epoch).min_by_key(|f| f.epoch)
}

/// What is known to have been durable.
pub(crate) struct Durable<'f> {
    fences: &'f [Fence],
    seqs: [Seq; MAX_STREAMS],
    through: Order,
}

impl<'f> Durable<'f> {
    /// What root and fences say.
    pub(crate) fn new(fences: &'f [Fence], root: &CheckpointRoot) -> Self {
        let mut durable = Self { fences, seqs: [Seq(0); MAX_STREAMS], through: Order(0) };
        durable.said(root.epoch, &root.flushed_seq, root.flushed_through);
        for fence in fences {
            // What a fence accepts was made durable before it was written.
            durable.said(fence.epoch, &fence.last_seq, fence.accepted_order);
        }
        durable
    }

    /// What a header says.
    pub(crate) fn said_by(&mut self, header: &BatchHeader) {
        self.said(header.epoch, &header.flushed_seq, header.flushed_through);
    }

    fn said(&mut self, epoch: Epoch, seqs: &[Seq; MAX_STREAMS], through: Order) {
        let fence = fence_for(self.fences, epoch);
        for (stream, (known, claimed)) in self.seqs.iter_mut().zip(seqs).enumerate() {
            let ends = fence.map_or(*claimed, |f| f.last_seq[stream]);
            *known = (*known).max((*claimed).min(ends));
        }
        let ends = fence.map_or(through, |f| f.accepted_order);
        self.through = self.through.max(through.min(ends));
    }

    /// Batches of the stream up to this number were durable.
    pub(crate) fn seq(&self, stream: StreamId) -> Seq {
        self.seqs[stream.index()]
    }

    /// Orders up to this one were durable.
    pub(crate) fn through(&self) -> Order {
        self.through
    }
}
