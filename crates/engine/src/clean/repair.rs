//! Repairs: moves with rebuilt bytes, asked for by reads and by scrubs.
//!
//! They gain no space, so they never take what the moves of a victim or the next two checkpoints
//! need: only the second gives back what the one before the first took. If that is all there is,
//! flushes and checkpoints bring back what is dead. If nothing comes back so, nothing will before
//! users make room: then the repairs are given up. Nothing is lost by that, the blocks stay where
//! they are and can be read; but a scrub that would wait for room would never end.
//!
//! **The birth of a repair.** A read does not know when the block was written, nor does a scrub
//! where the tables are lost. Recovery needs no birth: the move installs over its old place. But a
//! rebuild of the map from batches alone has nothing else to go by when that place has been written
//! again: a repair must beat every former version of its block, and lose to every later write or
//! trim, also to one with an order that is given again after a crash. The last *durable* order is
//! such a one, as soon as what the map shows of the block is durable: every operation up to it is
//! in the map, and none of them is newer than what lies there; whatever follows is above it, after
//! every crash, because P is not below it. So a repair waits until its block is durable, and looks
//! at the map again before it takes its birth. (Shared content is known by the low half of its
//! birth, its life: that is kept.)

use super::{Move, READY_BOUND};
use crate::clean::Cleaner;
use crate::limits::{CHECKPOINT_RESERVE, RELIEF_RESERVE, REPAIR_CHECKPOINTS, STREAM_CLEANED};
use crate::pending::BlockKey;
use crate::{Engine, Outbox};
use std::collections::VecDeque;
use windrow_io::Payload;
use windrow_types::{Address, BatchSeq, Lsn, VolumeId};

/// Who asked for a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RepairFor {
    Read,
    Scrub,
}

/// A repair that waits for its place.
#[derive(Debug)]
struct Waiting {
    asker: RepairFor,
    repair: Move,
    /// The block is durable when all orders up to this one are.
    written_by: Lsn,
}

/// Repairs that wait for their place, and what has become of the others.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    waiting: VecDeque<Waiting>,
    /// The first of them waits for durability, as was seen last.
    unsafe_yet: bool,
    /// Number of the cleaned batch that takes the last of those that were placed.
    last: BatchSeq,
    /// Checkpoints asked for since there was room for repairs.
    without_progress: u32,
    /// Those of scrubs that were given up since it was last asked.
    given_up: u64,
}

impl Repairs {
    /// True if none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The next one, which stays.
    pub(super) fn first(&self) -> Option<&Move> {
        self.waiting.front().map(|waiting| &waiting.repair)
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<Move> {
        self.waiting.pop_front().map(|waiting| waiting.repair)
    }

    /// One goes into the cleaned batch with this number.
    pub(super) fn note_placed(&mut self, seq: BatchSeq) {
        self.last = seq;
    }

    fn give_up(&mut self) {
        self.given_up += self
            .waiting
            .iter()
            .filter(|waiting| waiting.asker == RepairFor::Scrub)
            .count() as u64;
        self.waiting.clear();
    }
}

impl Cleaner {
    /// True if there is room for another repair.
    pub(crate) fn takes_repairs(&self) -> bool {
        self.repairs.len() < READY_BOUND
    }

    /// True if moves are on their way.
    pub(crate) fn has_moves(&self) -> bool {
        self.moves_in_flight > 0
    }

    /// True if repairs wait for room in the log.
    pub(crate) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// How many repairs of scrubs were given up since it was last asked.
    pub(crate) fn take_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.repairs.given_up)
    }
}

impl Engine {
    /// Repairs may take a segment now.
    pub(crate) fn has_room_for_repairs(&self) -> bool {
        self.space.segments.free_count()
            > 2 * self.durability.checkpoint.reserve_segments()
                + CHECKPOINT_RESERVE
                + RELIEF_RESERVE
    }

    /// Repairs wait for room although nobody else does: hurries what keeps dead segments from being
    /// free, or gives the repairs up.
    pub(super) fn hurry_for_repairs(&mut self, out: &mut Outbox) {
        if self.has_room_for_repairs() {
            self.space.cleaner.repairs.without_progress = 0;
            return self.make_repairs_durable(out);
        }
        if self.space.cleaner.repairs.is_empty() {
            return;
        }
        if self.space.segments.wait_for_flush(&self.reuse_horizon()) {
            self.durability.flush.request();
            return;
        }
        let is_moving = !self.space.cleaner.victims.is_empty()
            || self.space.cleaner.moves_in_flight > 0
            || self.space.segments.dead_count() > self.space.segments.dead_in_replay_count();
        if is_moving || !self.durability.checkpoint.is_idle() {
            return;
        }
        if self.space.cleaner.repairs.without_progress < REPAIR_CHECKPOINTS
            && self.space.segments.checkpoint_frees()
        {
            self.space.cleaner.repairs.without_progress += 1;
            self.durability.checkpoint.request();
        } else {
            self.space.cleaner.repairs.give_up();
        }
    }

    /// The block of the first repair, if any, is durable.
    pub(super) fn next_repair_is_durable(&self) -> bool {
        self.space
            .cleaner
            .repairs
            .waiting
            .front()
            .is_none_or(|waiting| waiting.written_by <= self.durability.lsns.durable())
    }

    /// Makes durable what the first repair moves.
    fn make_repairs_durable(&mut self, out: &mut Outbox) {
        self.space.cleaner.repairs.unsafe_yet = !self.next_repair_is_durable();
        let Some(written_by) = self
            .space
            .cleaner
            .repairs
            .waiting
            .front()
            .map(|waiting| waiting.written_by)
        else {
            return;
        };
        if !self.space.cleaner.repairs.unsafe_yet {
            return;
        }
        if written_by <= self.durability.lsns.committed() {
            self.durability.flush.request();
        } else {
            self.seal_users(written_by, out);
        }
    }

    /// True if what the first repair moves has become durable in a later part of the same step of
    /// the engine: nothing else may come that would make it go on.
    pub(crate) fn repairs_go_on(&mut self) -> bool {
        self.next_repair_is_durable() && std::mem::take(&mut self.space.cleaner.repairs.unsafe_yet)
    }

    /// The birth that goes on record for a block that is about to be moved, of which the map shows
    /// what is moved; see the module.
    pub(super) fn birth_of(&self, moved: &Move) -> Lsn {
        if moved.birth > Lsn(0) {
            return moved.birth;
        }
        let durable = self.durability.lsns.used(self.durability.lsns.durable());
        if moved.key.volume() != VolumeId::SHARED {
            return durable;
        }
        let incarnation = self.map.volumes.get(VolumeId::SHARED).map_or(0, |v| {
            v.map
                .get(&self.map.volumes.arena, moved.key.lba())
                .incarnation()
        });
        Lsn(durable
            .0
            .saturating_sub(u64::from((durable.0 as u32).wrapping_sub(incarnation))))
    }

    /// Queues the rebuilt bytes of a damaged block, as they are stored, to be logged anew. `birth`:
    /// 0 where it is not known; `checksum`: that of the bytes.
    pub(crate) fn queue_repair(
        &mut self,
        asker: RepairFor,
        (key, birth, from): (BlockKey, Lsn, Address),
        checksum: u32,
        payload: Payload,
    ) {
        self.space.ledger.move_others();
        // Who read it may have come by a reference: what is moved is the content.
        let shared = self
            .map
            .volumes
            .get(key.volume())
            .and_then(|v| v.map.get(&self.map.volumes.arena, key.lba()).shared_id());
        let key = shared.map_or(key, |id| BlockKey::new(VolumeId::SHARED, id));
        if !self.pool.read_only
            && self.log.pending.is_settled(key)
            && self.space.cleaner.takes_repairs()
        {
            // What no checkpoint kept replays was durable before the oldest of them.
            let is_old = self
                .space
                .segments
                .get(self.pool.codec.segment(from))
                .last_checkpoint
                < self.durability.checkpoint.kept_oldest;
            let written_by = if birth > Lsn(0) || is_old {
                birth
            } else {
                self.durability.checkpoint.applied()
            };
            let repair = Move {
                key,
                birth,
                from,
                checksum: Some(checksum),
                payload,
                stream: None,
            };
            self.space.cleaner.repairs.waiting.push_back(Waiting {
                asker,
                repair,
                written_by,
            });
        }
    }

    /// True if no repair waits, and all are where they belong. (What is moved for other reasons
    /// does not count.)
    pub(crate) fn repairs_committed(&self) -> bool {
        self.space.cleaner.repairs.is_empty()
            && self.stream(STREAM_CLEANED).committed >= self.space.cleaner.repairs.last
    }

    /// Seals the part-filled batch that the last repairs lie in, if nothing else will soon.
    pub(crate) fn hurry_repairs(&mut self, out: &mut Outbox) {
        if self.space.cleaner.repairs.is_empty() && self.stream(STREAM_CLEANED).in_flight.is_empty()
        {
            self.seal(STREAM_CLEANED, out);
        }
    }
}
