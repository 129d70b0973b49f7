//! Decompression of a part of a read.

use crate::base::piece::Piece;
use windrow_io::{BufPool, Payload};
use windrow_reduction::Codecs;
use windrow_types::BLOCK_SIZE;

/// Decompresses part of a read.
#[derive(Debug)]
pub(crate) struct DecompressWork {
    pub(crate) read: u32,
    pub(crate) part: u32,
    pub(crate) stored: Payload,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) buffers: BufPool,
    pub(crate) codecs: Codecs,
    /// Result: the blocks, or those that cannot be decompressed.
    pub(crate) decompressed: Result<Payload, Vec<u32>>,
}

impl DecompressWork {
    pub(crate) fn run(&mut self) {
        let mut blocks = self.buffers.get(self.pieces.len() * BLOCK_SIZE);
        let decompress = |(piece, block): (&Piece, &mut [u8])| {
            self.codecs
                .decompress_stored(&self.stored[piece.range()], block)
        };
        let good: Vec<bool> = self
            .pieces
            .iter()
            .zip(blocks.chunks_exact_mut(BLOCK_SIZE))
            .map(decompress)
            .collect();
        let bad: Vec<u32> = (0..)
            .zip(good)
            .filter(|(_, good)| !good)
            .map(|(number, _)| number)
            .collect();
        self.decompressed = if bad.is_empty() {
            Ok(blocks.freeze())
        } else {
            Err(bad)
        };
    }

    /// Bytes it reads and writes.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.len() * BLOCK_SIZE + self.stored.len()
    }
}
