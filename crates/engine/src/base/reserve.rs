//! Ledger of the reserve: the segments that each spender has taken of those that user writes leave
//! alone.
//!
//! docs/internals/reserve.md proves that a full pool makes progress if no spender takes more than
//! was counted for it. The ledger counts the segments taken and asserts that:
//!
//! 1. **A checkpoint** takes at most `checkpoint_segments` from its first page to its root. One
//!    that a crash cuts off costs nothing: its segments are free after the start.
//! 2. **Moves** take at most the number counted for their victims at their begin, and the successor
//!    segment of each stream.
//!
//! User writes need no account: they take only segments above their floor (`path/write/seal.rs`),
//! whatever the others have taken.

use crate::base::limits::{CLEANED_STREAMS, STREAM_CHECKPOINT, is_cleaned};

/// Segments taken, by spender.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Segments taken by the present checkpoint, and its limit; `None`: none has begun since the
    /// start.
    checkpoint: u32,
    checkpoint_most: Option<u32>,
    /// Segments taken by moves, and the number counted for their victims.
    moves: u32,
    moves_most: u32,
    /// Set while there are repairs, damaged victims or streams that leave their segments. These
    /// have floors of their own, so moves are not held to this limit.
    is_open: bool,
}

impl Ledger {
    /// Begins a checkpoint with this limit.
    pub(crate) fn begin_checkpoint(&mut self, most: u32) {
        (self.checkpoint, self.checkpoint_most) = (0, Some(most));
    }

    /// Raises the limit of the present checkpoint after a change of capacity.
    pub(crate) fn allow_checkpoint(&mut self, most: u32) {
        self.checkpoint_most = self.checkpoint_most.map(|now| now.max(most));
    }

    /// Begins a victim whose moves may need this number.
    pub(crate) fn begin_victim(&mut self, needs: u32) {
        self.moves_most += needs;
    }

    /// Ends the account when no victim and no move is left.
    pub(crate) fn end_victims(&mut self) {
        (self.moves, self.moves_most, self.is_open) = (0, 0, false);
    }

    /// Lifts the limit: the streams of moves take more than the live blocks of intact victims.
    pub(crate) fn move_others(&mut self) {
        self.is_open = true;
    }

    /// Counts a segment taken by a stream.
    pub(crate) fn take(&mut self, stream: usize) {
        if stream == STREAM_CHECKPOINT {
            self.checkpoint += 1;
            let (taken, most) = (self.checkpoint, self.checkpoint_most);
            debug_assert!(
                most.is_none_or(|most| taken <= most),
                "a checkpoint takes {taken} segments of {most:?}"
            );
        } else if is_cleaned(stream) {
            self.moves += 1;
            // Each stream of moves may have been at the end of its segment.
            let most = self.moves_most + CLEANED_STREAMS.len() as u32;
            debug_assert!(
                self.is_open || self.moves <= most,
                "moves take {} segments of {most}",
                self.moves
            );
        }
    }
}
