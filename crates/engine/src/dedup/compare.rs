//! Comparing: what has the fingerprint of a block is read and held against it, byte by byte, before
//! the block refers to it.
//!
//! 1 *Read*: those that were decided together are read together where their content lies together,
//!   as it does if it was written together. 2 *Compare*: what has come in one
//! turn goes to a worker, which compares. So the engine itself looks at no byte of it, and is not
//! kept from users meanwhile. 3 What is the same becomes a reference. What can not be read, or is
//! something else, is not referred to.
//!
//! A block holds the id meanwhile, so it stays what it is; it may be moved. There are no more
//! comparisons than blocks in the queue, which are bounded by what users may have pending: the
//! bytes that are read for each are two rows at most.

use crate::dedup::Shared;
use crate::fetch::{FetchGoal, Fetched};
use crate::jobs::{Job, Work};
use crate::limits::REDUCE_BLOCKS;
use crate::piece::Piece;
use crate::read::Part;
use crate::slab::Slab;
use crate::write::Placing;
use crate::{Engine, Outbox};
use windrow_format::map_entry::MapEntry;
use windrow_io::{BufPool, Payload};
use windrow_reduction::Codecs;
use windrow_types::{BLOCK_SIZE, Lba, VolumeId};

/// One comparison.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// Number of the block in the queue.
    number: u64,
    id: u32,
    /// Where its content lies in what is read.
    piece: Piece,
}

/// Compares blocks with what is stored of their like.
#[derive(Debug)]
pub(crate) struct CompareWork {
    /// Each with its payload, and with what was read.
    blocks: Vec<(Comparison, Payload, Payload)>,
    buffers: BufPool,
    codecs: Codecs,
    /// Result: what is the same; `None`: it does not unpack.
    same: Vec<Option<bool>>,
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

    /// About as much as copying.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_SIZE
    }
}

/// Those under way, in the order of their stages.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    /// Numbers in the queue, and ids, whose content is to be read.
    waiting: Vec<(u64, u32)>,
    /// Runs that are being read.
    reading: Slab<Vec<Comparison>>,
    /// What has come.
    read: Vec<(Comparison, Payload, Payload)>,
    /// Groups that workers have.
    comparing: usize,
}

impl Comparisons {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && self.reading.is_empty()
            && self.read.is_empty()
            && self.comparing == 0
    }
}

impl Shared {
    /// The block with this number in the queue is to be compared with content in the map.
    pub(crate) fn compare(&mut self, number: u64, id: u32) {
        self.comparisons.waiting.push((number, id));
    }
}

impl Engine {
    /// Sends the reads, and what has come to workers.
    pub(crate) fn send_comparisons(&mut self, out: &mut Outbox) {
        for group in std::mem::take(&mut self.shared.comparisons.waiting).chunks(REDUCE_BLOCKS) {
            self.read_contents(group, out);
        }
        let comparisons = &mut self.shared.comparisons;
        while !comparisons.read.is_empty() {
            let rest = comparisons
                .read
                .split_off(comparisons.read.len().min(REDUCE_BLOCKS));
            let blocks = std::mem::replace(&mut comparisons.read, rest);
            comparisons.comparing += 1;
            let work = CompareWork {
                blocks,
                buffers: self.memory.buffers.clone(),
                codecs: self.memory.codecs.clone(),
                same: Vec::new(),
            };
            out.jobs.push(Job(Work::Compare(Box::new(work))));
        }
    }

    fn read_contents(&mut self, group: &[(u64, u32)], out: &mut Outbox) {
        let mut contents = Vec::with_capacity(group.len());
        for (number, id) in group {
            let content = self
                .map
                .volumes
                .get(VolumeId::SHARED)
                .map_or(MapEntry::HOLE, |v| {
                    v.map.get(&self.map.volumes.arena, Lba(u64::from(*id)))
                });
            match content.has_payload() {
                true => contents.push((content, *number, *id)),
                false => self.is_another(*number, *id),
            }
        }
        // Whole blocks lie apart from packed ones, whatever the order in which they were written.
        contents.sort_unstable_by_key(|(content, ..)| content.address());
        let mut parts = Vec::new();
        contents.iter().for_each(|(content, _, id)| {
            self.push_mapped(Lba(u64::from(*id)), *content, &mut parts)
        });
        let mut contents = contents.iter();
        for part in parts {
            let Part::Fetch(run) = part else { continue };
            let of_run = run
                .pieces
                .iter()
                .zip(contents.by_ref())
                .map(|(piece, (_, number, id))| Comparison {
                    number: *number,
                    id: *id,
                    piece: *piece,
                })
                .collect();
            let at = self.shared.comparisons.reading.insert(of_run);
            self.start_fetch(run.spec(FetchGoal::Compare { at }), out);
        }
    }

    /// A run has been read, or some of it can not be had.
    pub(crate) fn contents_read(&mut self, at: u32, fetched: Fetched) {
        let Some(run) = self.shared.comparisons.reading.remove(at) else {
            return;
        };
        match fetched {
            Ok(bytes) => {
                for comparison in run {
                    let Some(Placing::Data { payload, .. }) =
                        self.admission.queued(comparison.number)
                    else {
                        continue;
                    };
                    let stored = bytes.slice(
                        comparison.piece.at as usize,
                        comparison.piece.length as usize,
                    );
                    self.shared
                        .comparisons
                        .read
                        .push((comparison, payload.clone(), stored));
                }
            }
            Err(lost) => {
                for (piece, Comparison { number, id, .. }) in (0..).zip(run) {
                    if lost.contains(&piece) {
                        self.distrust(id);
                    }
                    self.is_another(number, id);
                }
            }
        }
    }

    /// A worker has compared a group.
    pub(crate) fn compared(&mut self, work: CompareWork) {
        self.shared.comparisons.comparing -= 1;
        for ((Comparison { number, id, .. }, ..), same) in work.blocks.iter().zip(work.same) {
            match same {
                Some(true) => {
                    self.prove(*id);
                    self.becomes_reference(*number, *id);
                }
                Some(false) => self.is_another(*number, *id),
                None => {
                    self.distrust(*id);
                    self.is_another(*number, *id);
                }
            }
        }
    }
}
