//! Recompression: data that cleaning moves is cold, and may be compressed better on the way.
//!
//! 1. Blocks of volumes with such a setting (`zstd`, `lz4-then-zstd`) go to workers in groups once
//!    they are read and verified. So does shared content while any sharing volume has one. All
//!    other blocks are ready at once.
//! 2. A worker decompresses LZ4 payload, compresses with zstd, and returns the payload to store:
//!    the new one where it saves enough, else the old one.
//! 3. Returned blocks are ready. The order of moves does not matter, as each installs only over its
//!    old address.
//!
//! A move is never larger than its source, so a victim still pays for itself
//! (docs/internals/reserve.md, claim 2).
//!
//! **Nothing is tried at each move.** Payload compressed by zstd is not tried again. LZ4 payload
//! that zstd did not improve is marked in its last byte. A whole block has no room for a mark: it
//! is tried when it moves out of a user segment, so for the first time. Later it is tried at one
//! move in [`REPACK_AGAIN`], as the setting of its volume may have changed. Blocks that look random
//! are not tried.

use crate::base::limits::{REDUCE_BLOCKS, REPACK_AGAIN, is_user};
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::jobs::{Move, RepackWork};
use crate::upkeep::Upkeep;
use windrow_reduction::{Made, REPACK_LEAST};
use windrow_types::{BLOCK_SIZE, VolumeId};

impl Upkeep {
    /// Handles read blocks of a victim, each with the checksum of its stored payload.
    pub(super) fn take_moves(
        &mut self,
        at: u32,
        moves: Vec<(u32, Move)>,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let shared = moves
            .iter()
            .any(|(_, moved)| moved.key.volume() == VolumeId::SHARED)
            && core.store.volumes.repacks_shared();
        let mut group = Vec::new();
        for (checksum, moved) in moves {
            if self.is_worth_trying(checksum, &moved, shared, core) {
                group.push(moved);
                if group.len() == REDUCE_BLOCKS {
                    core.paths.space.repack(
                        &core.store.memory,
                        at,
                        std::mem::take(&mut group),
                        out,
                    );
                }
            } else if let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) {
                victim.ready += 1;
                core.paths.space.cleaner.ready.push_back((at, moved));
            }
        }
        if !group.is_empty() {
            core.paths.space.repack(&core.store.memory, at, group, out);
        }
    }

    fn is_worth_trying(&self, checksum: u32, moved: &Move, shared: bool, core: &Core) -> bool {
        let volume = moved.key.volume();
        let wanted = if volume == VolumeId::SHARED {
            shared
        } else {
            core.store
                .volumes
                .get(volume)
                .is_some_and(|v| v.record.compression.may_be_zstd())
        };
        if !wanted {
            return false;
        }
        if moved.payload.len() < BLOCK_SIZE {
            return moved.payload.len() > REPACK_LEAST
                && matches!(Made::of(&moved.payload), Some((Made::Lz4, _)));
        }
        let segment = core.store.pool.codec.segment(moved.from);
        // At a move out of another segment it is another block's turn.
        let turn = (checksum ^ segment.0.wrapping_mul(0x9e37_79b9)) % REPACK_AGAIN;
        turn == 0 || is_user(usize::from(core.store.segments.get(segment).stream))
    }

    /// Handles a recompressed group of moved blocks.
    pub(crate) fn repacked(&mut self, work: RepackWork, core: &mut Core) {
        let sums = &mut core.paths.admission.reducing.sums;
        sums.repack_tried_bytes += work.tried_bytes;
        sums.repacked_from_bytes += work.before_bytes;
        sums.repacked_to_bytes += work.after_bytes;
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(work.victim) else {
            return;
        };
        victim.repacking -= work.moves.len() as u32;
        victim.ready += work.moves.len() as u32;
        core.paths
            .space
            .cleaner
            .ready
            .extend(work.moves.into_iter().map(|moved| (work.victim, moved)));
    }
}
