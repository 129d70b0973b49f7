//! State of a segment.

/// State of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentState {
    /// Available.
    Free,
    /// Reserved for a stream as its next segment, and recorded on disk as such.
    Reserved,
    /// A stream writes it, or batches of it are not committed yet.
    Open,
    /// Full and committed.
    Sealed,
    /// Being emptied.
    Cleaning,
    /// Live blocks remain that cleaning does not move: checkpoint pages that the next checkpoints
    /// rewrite, or unreadable blocks. Dead when the last of them goes.
    Quarantined,
    /// Nothing live; waits for the reuse rule.
    Dead,
    /// The rule is satisfied; discards of its extents are in flight.
    Discarding,
    /// Of the active layout, and not in use: a segment of an older layout still uses some of its
    /// extents.
    Shadowed,
    /// Of an older layout, and not in use. The active layout cannot use its extents yet, so it may
    /// be taken if nothing else is free.
    Idle,
    /// Of an older layout, with its extents given to the active layout; or a number that no zone
    /// has.
    Retired,
}

impl SegmentState {
    /// True if it may hold batches that are needed.
    pub fn holds_batches(self) -> bool {
        !matches!(self, Self::Reserved | Self::Discarding) && self.is_in_use()
    }

    /// True if its extents are exclusively its own.
    pub fn is_in_use(self) -> bool {
        !matches!(
            self,
            Self::Free | Self::Shadowed | Self::Idle | Self::Retired
        )
    }
}
