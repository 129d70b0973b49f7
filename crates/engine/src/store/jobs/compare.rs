//! Comparison of written blocks with stored content.

use crate::base::piece::Piece;
use windrow_io::{BufPool, Payload};
use windrow_reduction::Codecs;
use windrow_types::BLOCK_SIZE;

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// Number of the block in the queue.
    pub(crate) number: u64,
    pub(crate) id: u32,
    /// Position of its content in the bytes read.
    pub(crate) piece: Piece,
}

/// Job that compares blocks with stored content.
#[derive(Debug)]
pub(crate) struct CompareWork {
    /// Comparisons, each with the block's payload and the bytes read.
    pub(crate) blocks: Vec<(Comparison, Payload, Payload)>,
    pub(crate) buffers: BufPool,
    pub(crate) codecs: Codecs,
    /// Results: true if equal; `None`: the content does not decompress.
    pub(crate) same: Vec<Option<bool>>,
}

impl CompareWork {
    pub(crate) fn run(&mut self) {
        let mut room = self.buffers.get(BLOCK_SIZE);
        self.same = self
            .blocks
            .iter()
            .map(|(_, block, stored)| self.codecs.is_of(stored, block, &mut room))
            .collect();
    }

    /// Cost in bytes, about that of copying.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_SIZE
    }
}
