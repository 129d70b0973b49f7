//! Age of two batches, or of two incarnations of a segment: compared by epoch, and within an epoch
//! by what each knows to be flushed.

use windrow_format::batch::HeaderFrame;
use windrow_io::Buf;
use windrow_types::{BatchSeq, Epoch, MAX_STREAMS};

/// Present incarnation of a segment by its headers, or of one batch by its header
/// (`recover/salvage/moves.rs`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Incarnation {
    /// Epoch of the last batch.
    pub(super) epoch: Epoch,
    pub(super) stream: usize,
    /// Number of the last batch.
    pub(super) seq: BatchSeq,
    /// Flushed numbers of all streams when the last batch was sealed.
    pub(super) flushed: [BatchSeq; MAX_STREAMS],
}

impl Incarnation {
    pub(super) fn of(frame: &HeaderFrame) -> Self {
        let h = &frame.header;
        Self {
            epoch: h.epoch,
            stream: h.stream.index(),
            seq: h.seq,
            flushed: h.flushed_seq,
        }
    }

    /// True if this incarnation began after the other one, in the same extents, had ended. An
    /// incarnation ends when all of its batches were flushed and freed. So within an epoch the one
    /// that knows the other's last batch to be flushed is newer. (For batches: true if this one was
    /// written after the other one.)
    pub(super) fn is_newer_than(&self, other: &Self) -> Option<bool> {
        if self.epoch != other.epoch {
            return Some(self.epoch > other.epoch);
        }
        match (
            self.flushed[other.stream] >= other.seq,
            other.flushed[self.stream] >= self.seq,
        ) {
            (own, others) if own != others => Some(own),
            _ => None,
        }
    }
}

/// Header of the newest incarnation among those that verify in one position. A member that missed
/// the write has an older header; taking that one would make everything after it look like remains.
pub(super) fn newest(found: Vec<(HeaderFrame, Buf)>) -> Option<(HeaderFrame, Buf)> {
    let is_newer = |one: &HeaderFrame, other: &HeaderFrame| {
        let (one, other) = (Incarnation::of(one), Incarnation::of(other));
        if one.epoch == other.epoch && one.stream == other.stream {
            one.seq > other.seq
        } else {
            one.is_newer_than(&other).unwrap_or(false)
        }
    };
    found.into_iter().reduce(|best, other| {
        if is_newer(&other.0, &best.0) {
            other
        } else {
            best
        }
    })
}
