//! Which of two batches, or of two lives of a segment, is the newer one: by epoch, and within an
//! epoch by what each knows to be flushed.

use windrow_format::batch::HeaderFrame;
use windrow_io::Buf;
use windrow_types::{BatchSeq, Epoch, MAX_STREAMS};

/// What the headers of a segment say of its present life, or one header of its batch
/// (`rebuild/moves.rs`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Incarnation {
    /// Of the last batch.
    pub(super) epoch: Epoch,
    pub(super) stream: usize,
    /// Of the last batch.
    pub(super) seq: BatchSeq,
    /// What was flushed of each stream when the last batch was sealed.
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

    /// True if this life began after the other one, in the same extents, had ended. It ended when
    /// all of its batches had been flushed and given up, so within an epoch the one that knows the
    /// last of the other's batches to be flushed is the newer one. (Of batches: true if this one
    /// was written after the other one.)
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

/// Of headers that all verify in one place the one of the newest life: a member that missed the
/// write bears a former one, and without it everything behind would be taken for remains of that.
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
