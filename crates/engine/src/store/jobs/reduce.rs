//! Compression and fingerprints of written blocks.

use crate::base::limits::{REDUCE_TRY_AGAIN, REDUCE_WITHOUT_PROGRESS};
use windrow_io::{BufPool, Payload};
use windrow_reduction::{Codec, Codecs, Fingerprint, looks_random};
use windrow_types::BLOCK_SIZE;

/// Computes the fingerprints of a group of blocks.
#[derive(Debug)]
pub(crate) struct FingerprintWork {
    /// Numbers in the queue for placement, kinds of fingerprints, and contents.
    pub(crate) blocks: Vec<(u64, Fingerprint, Payload)>,
    /// Result.
    pub(crate) fingerprints: Vec<u128>,
}

impl FingerprintWork {
    pub(crate) fn run(&mut self) {
        self.fingerprints = Fingerprint::of_all(
            self.blocks
                .iter()
                .map(|(_, kind, block)| (*kind, &block[..])),
        );
    }

    /// Strong fingerprints take about four times as long as copying. Fast ones only read, so a
    /// group of them is not worth a handover.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks
            .iter()
            .map(|(_, kind, _)| {
                if *kind == Fingerprint::Strong {
                    BLOCK_SIZE * 4
                } else {
                    BLOCK_SIZE / 2
                }
            })
            .sum()
    }
}

/// Compresses a group of blocks.
#[derive(Debug)]
pub(crate) struct ReduceWork {
    /// Numbers in the queue for placement, codecs, and contents.
    pub(crate) blocks: Vec<(u64, Codec, Payload)>,
    pub(crate) buffers: BufPool,
    pub(crate) codecs: Codecs,
    /// Result: the compressed payload of each block, or none if it is stored as it is.
    pub(crate) compressed: Vec<Option<Payload>>,
}

impl ReduceWork {
    pub(crate) fn run(&mut self) {
        let mut stored = Vec::with_capacity(self.blocks.len() * BLOCK_SIZE / 2);
        let mut without_progress = 0;
        let lengths: Vec<Option<usize>> = self.codecs.with(|compressor| {
            let mut pack = |at: usize, codec: Codec, block: &[u8]| {
                if without_progress >= REDUCE_WITHOUT_PROGRESS
                    && !at.is_multiple_of(REDUCE_TRY_AGAIN)
                    && looks_random(block)
                {
                    return None;
                }
                let length = compressor.compress_stored(codec, block, &mut stored);
                without_progress = if length.is_none() {
                    without_progress + 1
                } else {
                    0
                };
                length
            };
            self.blocks
                .iter()
                .enumerate()
                .map(|(at, (_, codec, block))| pack(at, *codec, block))
                .collect()
        });
        self.compressed = cut(&stored, lengths, &self.buffers);
    }

    /// Work in bytes copied, by which drivers weigh jobs: LZ4 takes about ten times as long per
    /// byte as copying, zstd twice as long as LZ4.
    pub(crate) fn bytes(&self) -> usize {
        let of = |codec: Codec| if codec == Codec::Zstd { 20 } else { 8 };
        self.blocks
            .iter()
            .map(|(_, codec, _)| BLOCK_SIZE * of(*codec))
            .sum()
    }
}

/// Splits the compressed output into its consecutive payloads.
pub(crate) fn cut(
    stored: &[u8],
    lengths: impl IntoIterator<Item = Option<usize>>,
    buffers: &BufPool,
) -> Vec<Option<Payload>> {
    if stored.is_empty() {
        return lengths.into_iter().map(|_| None).collect();
    }
    let mut all = buffers.get(stored.len());
    all.copy_from_slice(stored);
    let (all, mut at) = (all.freeze(), 0);
    let slice = |length: Option<usize>| {
        length.map(|length| {
            at += length;
            all.slice(at - length, length)
        })
    };
    lengths.into_iter().map(slice).collect()
}
