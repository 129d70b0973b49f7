//! Placement of the blocks of volumes: contiguous, or spread so that each page of the map has a
//! leaf of its own.
//!
//! The model numbers the blocks of a volume without gaps. A spread volume is a huge thin one of
//! which only the first blocks of each stride are used:
//!
//! ```text
//! model   0 .. run-1 | run .. 2 run-1 | ...
//! engine  0 .. run-1   (hole)   stride .. stride+run-1   (hole)   ...      stride = the blocks of one leaf
//! ```
//! The image of such a map is twice as large as that of a dense one, so checkpoints of a full pool
//! need all of their reserve.

use crate::content::SECTORS;
use crate::model::Asked;
use windrow_engine::PoolStatus;
use windrow_format::checkpoint::{LEAF_POINTERS, MAP_PAGE_ENTRIES};
use windrow_io::Op;
use windrow_types::BLOCK_BYTES;

/// Blocks that one leaf of the map describes.
const STRIDE: u64 = (LEAF_POINTERS * MAP_PAGE_ENTRIES) as u64;

/// Placement of the model's blocks in the engine's volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread {
    /// Blocks in use of each stride; `None`: volumes are dense.
    run: Option<u64>,
}

impl Spread {
    /// A placement with `run` contiguous blocks in one page of the map.
    pub fn runs_of(run: u64) -> Self {
        Self {
            run: Some(run.clamp(1, MAP_PAGE_ENTRIES as u64)),
        }
    }

    /// Engine's number of a block.
    pub fn block(&self, block: u64) -> u64 {
        self.run
            .map_or(block, |run| block / run * STRIDE + block % run)
    }

    /// Model's number of a block.
    pub fn known(&self, lba: u64) -> u64 {
        self.run
            .map_or(lba, |run| lba / STRIDE * run + (lba % STRIDE).min(run))
    }

    /// Bytes of the engine's volume for `blocks` blocks.
    pub fn size_bytes(&self, blocks: u64) -> u64 {
        blocks
            .checked_sub(1)
            .map_or(0, |last| (self.block(last) + 1) * BLOCK_BYTES)
    }

    /// Bytes of the model's volume that the engine shows with this size.
    pub fn known_bytes(&self, size_bytes: u64) -> u64 {
        self.known(size_bytes / BLOCK_BYTES) * BLOCK_BYTES + size_bytes % BLOCK_BYTES
    }

    /// A status with the model's sizes.
    pub fn known_status(&self, mut status: PoolStatus) -> PoolStatus {
        status
            .volumes
            .iter_mut()
            .for_each(|volume| volume.size_bytes = self.known_bytes(volume.size_bytes));
        status
    }

    /// Limits a request to one run; a trim is left whole, as the gaps between the runs are holes.
    pub fn cut(&self, mut asked: Asked) -> Asked {
        let Some(run) = self.run else { return asked };
        let sectors = SECTORS as u64;
        let least = |at: u64, count: u64| count.min((at / sectors / run + 1) * run * sectors - at);
        match &mut asked {
            Asked::Read { at, count }
            | Asked::Status { at, count }
            | Asked::Zero {
                at,
                count,
                no_hole: Some(_),
                ..
            } => *count = least(*at, *count),
            Asked::Write {
                at, count, stamps, ..
            } => {
                *count = least(*at, *count);
                stamps.truncate(((*at + *count).div_ceil(sectors) - *at / sectors) as usize);
            }
            Asked::Zero { no_hole: None, .. } | Asked::Flush => {}
        }
        asked
    }

    /// Engine's operation for one of the model.
    pub fn place(&self, op: Op) -> Op {
        let byte = |at: u64| self.block(at / BLOCK_BYTES) * BLOCK_BYTES + at % BLOCK_BYTES;
        match op {
            Op::Read { offset, length } => Op::Read {
                offset: byte(offset),
                length,
            },
            Op::Write { offset, data, fua } => Op::Write {
                offset: byte(offset),
                data,
                fua,
            },
            Op::WriteZeroes {
                offset,
                length,
                no_hole,
                fua,
            } => Op::WriteZeroes {
                offset: byte(offset),
                length,
                no_hole,
                fua,
            },
            Op::BlockStatus {
                offset,
                length,
                max_extents,
            } => Op::BlockStatus {
                offset: byte(offset),
                length,
                max_extents,
            },
            Op::Trim {
                offset,
                length,
                fua,
            } => {
                // (The end of a whole block belongs to the preceding block.)
                let end = length
                    .checked_sub(1)
                    .map_or(0, |less| byte(offset + less) + 1 - byte(offset));
                Op::Trim {
                    offset: byte(offset),
                    length: end,
                    fua,
                }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_sizes_and_requests_are_those_of_the_model() {
        let spread = Spread::runs_of(3);
        assert_eq!(
            [0, 2, 3, 7].map(|block| spread.block(block)),
            [0, 2, STRIDE, 2 * STRIDE + 1]
        );
        (0..100).for_each(|block| assert_eq!(spread.known(spread.block(block)), block));
        (1..100).for_each(|blocks| {
            assert_eq!(
                spread.known_bytes(spread.size_bytes(blocks)),
                blocks * BLOCK_BYTES
            )
        });
        assert_eq!(
            spread.cut(Asked::Read { at: 8, count: 80 }),
            Asked::Read { at: 8, count: 16 }
        );
        let write = Asked::Write {
            at: 20,
            count: 24,
            stamps: vec![1, 2, 3, 4],
            fua: true,
        };
        assert_eq!(
            spread.cut(write),
            Asked::Write {
                at: 20,
                count: 4,
                stamps: vec![1],
                fua: true
            }
        );
        let trimmed = match spread.place(Op::Trim {
            offset: 2 * BLOCK_BYTES,
            length: 4 * BLOCK_BYTES,
            fua: false,
        }) {
            Op::Trim { offset, length, .. } => (offset, length),
            other => panic!("{other:?}"),
        };
        // Blocks 2 to 5: the last one of the first run, and the whole second run.
        assert_eq!(trimmed, (2 * BLOCK_BYTES, (STRIDE + 1) * BLOCK_BYTES));
        assert_eq!(Spread::default().size_bytes(5), 5 * BLOCK_BYTES);
    }
}
