//! Recompression of moved blocks.

use crate::store::jobs::reduce::cut;
use crate::store::pending::BlockKey;
use windrow_io::{BufPool, Payload};
use windrow_reduction::{Codecs, Recompressed};
use windrow_types::{Address, BLOCK_SIZE, Lsn};

/// A block to move.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) key: BlockKey,
    pub(crate) birth: Lsn,
    pub(crate) from: Address,
    /// Of a repair: the checksum that the map must still show. (A victim's segment is not rewritten
    /// before its moves have their addresses.)
    pub(crate) checksum: Option<u32>,
    /// Stored payload.
    pub(crate) payload: Payload,
    /// Stream that it is meant for, once the policy was asked.
    pub(crate) stream: Option<usize>,
}

/// Recompresses a group of moved blocks.
#[derive(Debug)]
pub(crate) struct RepackWork {
    pub(crate) victim: u32,
    pub(crate) moves: Vec<Move>,
    pub(crate) buffers: BufPool,
    pub(crate) codecs: Codecs,
    /// Result: bytes tried and bytes saved. The moves hold the new payloads already.
    pub(crate) tried_bytes: u64,
    pub(crate) before_bytes: u64,
    pub(crate) after_bytes: u64,
}

impl RepackWork {
    pub(crate) fn run(&mut self) {
        let mut stored = Vec::with_capacity(self.moves.len() * BLOCK_SIZE / 2);
        let results: Vec<Recompressed> = self.codecs.with(|compressor| {
            self.moves
                .iter()
                .map(|moved| compressor.repack_stored(&moved.payload, BLOCK_SIZE, &mut stored))
                .collect()
        });
        let lengths = results.iter().map(|result| match result {
            Recompressed::Smaller(length) | Recompressed::NoGain(length) if *length > 0 => {
                Some(*length)
            }
            _ => None,
        });
        let payloads = cut(&stored, lengths, &self.buffers);
        for ((moved, result), payload) in self.moves.iter_mut().zip(results).zip(payloads) {
            let before = moved.payload.len() as u64;
            self.tried_bytes += if result == Recompressed::Kept {
                0
            } else {
                before
            };
            if let Recompressed::Smaller(length) = result {
                self.before_bytes += before;
                self.after_bytes += length as u64;
            }
            if let Some(payload) = payload {
                moved.payload = payload;
            }
        }
    }

    /// Work in bytes copied, roughly: even one block is worth another thread.
    pub(crate) fn bytes(&self) -> usize {
        self.moves.len() * BLOCK_SIZE * 32
    }
}
