//! The ledger of the reserve: what each spender has taken of the segments that users leave alone.
//!
//! docs/internals/reserve.md proves that a full pool moves if no spender takes more than it was
//! counted with. The ledger counts what they take, and asserts it:
//!
//! 1 **A checkpoint** takes at most `checkpoint_segments` from its first page to its root. One that
//!   a crash cuts off costs nothing: what it took is free after the start.
//! 2 **Moves** take at most what their victims were counted with when these were begun, and the
//!   segment that each stream goes on in.
//!
//! Users need no account: they take only what lies above their floor (`write/seal.rs`), whatever
//! the others have taken.

use crate::limits::{CLEANED_STREAMS, STREAM_CHECKPOINT, is_cleaned};

/// Segments taken, by spender.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By the checkpoint that is being written, and the most that it may take; `None`: none has
    /// begun since the start.
    checkpoint: u32,
    checkpoint_most: Option<u32>,
    /// By moves, and what their victims were counted with.
    moves: u32,
    moves_most: u32,
    /// Repairs, damaged victims and streams that leave their segments have floors of their own:
    /// while there are any, moves are not held to this bound.
    is_open: bool,
}

impl Ledger {
    /// A checkpoint begins that may take so many.
    pub(crate) fn begin_checkpoint(&mut self, most: u32) {
        (self.checkpoint, self.checkpoint_most) = (0, Some(most));
    }

    /// The capacity changes while a checkpoint is written.
    pub(crate) fn allow_checkpoint(&mut self, most: u32) {
        self.checkpoint_most = self.checkpoint_most.map(|now| now.max(most));
    }

    /// A victim begins whose moves may need so many.
    pub(crate) fn begin_victim(&mut self, needs: u32) {
        self.moves_most += needs;
    }

    /// No victim is left, and no move.
    pub(crate) fn end_victims(&mut self) {
        (self.moves, self.moves_most, self.is_open) = (0, 0, false);
    }

    /// The streams of moves take something else than the live blocks of intact victims.
    pub(crate) fn move_others(&mut self) {
        self.is_open = true;
    }

    /// A stream takes a segment.
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
            // Each stream of moves may have stood at the end of its segment.
            let most = self.moves_most + CLEANED_STREAMS.len() as u32;
            debug_assert!(
                self.is_open || self.moves <= most,
                "moves take {} segments of {most}",
                self.moves
            );
        }
    }
}
