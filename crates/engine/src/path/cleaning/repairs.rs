//! Repairs that wait: moves with reconstructed bytes.

use super::{Cleaner, READY_BOUND};
use crate::path::Paths;
use crate::store::Store;
use crate::store::jobs::Move;
use crate::store::pending::BlockKey;
use std::collections::VecDeque;
use windrow_io::Payload;
use windrow_types::{Address, BatchSeq, Lsn, VolumeId};

/// Origin of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RepairFor {
    Read,
    Scrub,
}

/// A repair that waits for its address.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) asker: RepairFor,
    pub(crate) repair: Move,
    /// The block is durable when all LSNs up to this one are.
    pub(crate) written_by: Lsn,
}

/// Repairs that wait for their address, and counters of the others.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    pub(crate) waiting: VecDeque<Waiting>,
    /// True if the first of them waited for durability when last checked.
    pub(crate) unsafe_yet: bool,
    /// Number of the cleaned batch that takes the last of the placed repairs.
    pub(crate) last: BatchSeq,
    /// Checkpoints requested since there was room for repairs.
    pub(crate) without_progress: u32,
    /// Repairs of scrubs abandoned since the last query.
    pub(crate) given_up: u64,
}

impl Repairs {
    /// True if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of waiting repairs.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Next repair; it stays in the queue.
    pub(crate) fn first(&self) -> Option<&Move> {
        self.waiting.front().map(|waiting| &waiting.repair)
    }

    /// Removes and returns the next repair.
    pub(crate) fn pop(&mut self) -> Option<Move> {
        self.waiting.pop_front().map(|waiting| waiting.repair)
    }

    /// Notes that a repair goes into the cleaned batch with this number.
    pub(crate) fn note_placed(&mut self, seq: BatchSeq) {
        self.last = seq;
    }

    pub(crate) fn give_up(&mut self) {
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

impl Paths {
    /// Queues the reconstructed bytes of a damaged block, in stored form, to be rewritten. `birth`:
    /// 0 if unknown; `checksum`: that of the bytes.
    pub(crate) fn queue_repair(
        &mut self,
        asker: RepairFor,
        (key, birth, from): (BlockKey, Lsn, Address),
        checksum: u32,
        payload: Payload,
        store: &Store,
    ) {
        self.space.ledger.move_others();
        // The reader may have come by a reference: the content itself is moved.
        let shared = store.volumes.look_up(key.volume(), key.lba()).shared_id();
        let key = shared.map_or(key, |id| BlockKey::new(VolumeId::SHARED, id));
        if !store.pool.read_only
            && self.log.pending.is_settled(key)
            && self.space.cleaner.takes_repairs()
        {
            // What no checkpoint kept replays was durable before the oldest of them.
            let is_old = store
                .segments
                .get(store.pool.codec.segment(from))
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
}
