//! Reduction: workers compress blocks of compressing volumes before placement.
//!
//! 1. Admission queues such a block for placement like any other, marked as under compression, and
//!    adds it to the group that is being collected.
//! 2. A group goes to a worker when it is full, or when a round of the engine ends.
//! 3. Results may return in any order and are noted in the queue. Placement takes from the front of
//!    the queue and waits for a block that is still at a worker, so LSNs stay in order.
//! 4. A flush does not seal the open batch while a worker has blocks of its waiter: it would have
//!    to seal another one at once.
//!
//! A block that its codec does not make smaller by an eighth is stored as it is. After two such
//! blocks of a group in a row, blocks that look random are not tried, except for each eighth one.

use super::admit::Placing;
use crate::api::ReductionSums;
use crate::base::limits::REDUCE_BLOCKS;
use crate::path::Paths;
use crate::path::dedup::{Shared, Sharing};
use crate::path::write::Admission;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::jobs::{FingerprintWork, Job, ReduceWork, Work};
use crate::store::plan::DATA_UNITS;
use crate::store::pool::Memory;
use windrow_io::Payload;
use windrow_reduction::{Codec, Fingerprint, Made};
use windrow_types::{BLOCK_BYTES, Lsn};

/// Stored form of an admitted block.
#[derive(Debug)]
pub(crate) enum Reduction {
    /// Stored as it is.
    Whole,
    /// A worker has it.
    UnderWay,
    /// Stored compressed.
    Compressed(Payload),
}

/// Blocks that are collected for a worker, and sums since start.
#[derive(Debug, Default)]
pub(crate) struct Reducing {
    group: Vec<(u64, Codec, Payload)>,
    fingerprints: Vec<(u64, Fingerprint, Payload)>,
    /// Number of entries that have left the queue for placement: the number of its front.
    pub(crate) placed: u64,
    pub(crate) sums: ReductionSums,
}

impl Admission {
    /// Adds the block that is queued next to the group for compression.
    pub(crate) fn reduce(&mut self, codec: Codec, block: Payload) -> Reduction {
        let number = self.reducing.placed + self.placing.len() as u64;
        self.reducing.group.push((number, codec, block));
        Reduction::UnderWay
    }

    /// Compresses the block with this number in the queue after all.
    pub(crate) fn compress_queued(&mut self, number: u64, codec: Codec, block: Payload) {
        self.reducing.group.push((number, codec, block));
        if let Some(Placing::Data { reduction, .. }) = self.queued(number) {
            *reduction = Reduction::UnderWay;
        }
    }

    /// A worker compressed a group.
    pub(crate) fn reduced(&mut self, work: ReduceWork) {
        let (placing, reducing) = (&mut self.placing, &mut self.reducing);
        for ((number, _, block), stored) in work.blocks.iter().zip(work.compressed) {
            reducing.sums.tried_bytes += BLOCK_BYTES;
            if let Some(stored) = &stored {
                reducing.sums.compressed_user_bytes += block.len() as u64;
                reducing.sums.codec_bytes +=
                    Made::of(stored).map_or(0, |(_, compressed)| compressed.len() as u64);
                reducing.sums.stored_bytes += stored.len() as u64;
                self.pace
                    .give_back((block.len() - stored.len()) as u64 * DATA_UNITS / BLOCK_BYTES);
            }
            let entry = number
                .checked_sub(reducing.placed)
                .and_then(|at| placing.get_mut(at as usize));
            if let Some(Placing::Data { reduction, .. }) = entry {
                *reduction = stored.map_or(Reduction::Whole, Reduction::Compressed);
            }
        }
    }

    /// True if a block up to `horizon` that could be placed next is with a worker.
    pub(crate) fn is_reducing(&self, horizon: Lsn) -> bool {
        let front = self.placing.front();
        front.is_some_and(|front| {
            front.is_reducing() && front.entry().lsns().is_some_and(|(lsn, _)| lsn <= horizon)
        })
    }
}

impl Admission {
    /// Adds the block that is queued next to the group for fingerprints.
    pub(crate) fn print(
        &mut self,
        shared: &mut Shared,
        kind: Fingerprint,
        block: Payload,
    ) -> Sharing {
        let number = self.reducing.placed + self.placing.len() as u64;
        self.reducing.fingerprints.push((number, kind, block));
        shared.note_undecided();
        Sharing::Fingerprinting
    }

    /// Sends the collected group to a worker: only if full, or with `all` in any case.
    pub(crate) fn send_group(&mut self, memory: &Memory, all: bool, out: &mut Outbox) {
        let fingerprints = &mut self.reducing.fingerprints;
        while fingerprints.len() >= REDUCE_BLOCKS || (all && !fingerprints.is_empty()) {
            let rest = fingerprints.split_off(fingerprints.len().min(REDUCE_BLOCKS));
            let work = FingerprintWork {
                blocks: std::mem::replace(fingerprints, rest),
                fingerprints: Vec::new(),
            };
            out.jobs.push(Job(Work::Fingerprint(Box::new(work))));
        }
        let group = &mut self.reducing.group;
        while group.len() >= REDUCE_BLOCKS || (all && !group.is_empty()) {
            let rest = group.split_off(group.len().min(REDUCE_BLOCKS));
            let work = ReduceWork {
                blocks: std::mem::replace(group, rest),
                buffers: memory.buffers.clone(),
                codecs: memory.codecs.clone(),
                compressed: Vec::new(),
            };
            out.jobs.push(Job(Work::Reduce(Box::new(work))));
        }
    }
}

impl Paths {
    /// Handles the fingerprints of a group.
    pub(crate) fn printed(&mut self, work: FingerprintWork, store: &mut Store) {
        for ((number, ..), fingerprint) in work.blocks.iter().zip(&work.fingerprints) {
            if let Some(Placing::Data { sharing, .. }) = self.admission.queued(*number) {
                *sharing = Sharing::Fingerprinted(*fingerprint);
            }
        }
        // All of the group first, before any is decided: the page of a run of known content is
        // found through any of its first blocks.
        if let Some((from, ..)) = work.blocks.first() {
            self.shared
                .look_for_pages(&store.volumes, &work.fingerprints, *from);
        }
        self.decide(store);
    }
}
