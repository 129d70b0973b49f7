//! Comparison: content with the fingerprint of a block is read and compared byte by byte before the
//! block refers to it.
//!
//! 1. *Read*: contents of one decision are read together if they are stored together, as they are
//!    if they were written together.
//! 2. *Compare*: a worker compares the contents that arrived in one turn, so that the engine's
//!    thread stays free for foreground I/O.
//! 3. Equal content becomes a reference. Unreadable or different content does not.
//!
//! A block holds the id meanwhile, so the content does not change; it may be moved. The number of
//! comparisons is limited by that of queued blocks, which user writes in flight limit. Each reads
//! at most two rows.

use crate::base::limits::REDUCE_BLOCKS;
use crate::base::slab::Slab;
use crate::path::Paths;
use crate::path::dedup::Shared;
use crate::path::read::Part;
use crate::path::write::Placing;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::fetch::{FetchGoal, Fetched};
use crate::store::jobs::{CompareWork, Comparison, Job, Work};
use windrow_io::Payload;
use windrow_types::{Lba, VolumeId};

/// Pending comparisons, in the order of their stages.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    /// Queue numbers and ids whose content is to be read.
    waiting: Vec<(u64, u32)>,
    /// Runs that are being read.
    reading: Slab<Vec<Comparison>>,
    /// Comparisons whose content has arrived.
    read: Vec<(Comparison, Payload, Payload)>,
    /// Number of groups that workers have.
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
    /// Queues a comparison of the queued block with this number with content in the map.
    pub(crate) fn compare(&mut self, number: u64, id: u32) {
        self.comparisons.waiting.push((number, id));
    }
}

impl Paths {
    /// Sends the reads, and passes arrived content to workers.
    pub(crate) fn send_comparisons(&mut self, store: &mut Store, out: &mut Outbox) {
        for group in std::mem::take(&mut self.shared.comparisons.waiting).chunks(REDUCE_BLOCKS) {
            self.read_contents(group, store, out);
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
                buffers: store.memory.buffers.clone(),
                codecs: store.memory.codecs.clone(),
                same: Vec::new(),
            };
            out.jobs.push(Job(Work::Compare(Box::new(work))));
        }
    }

    fn read_contents(&mut self, group: &[(u64, u32)], store: &mut Store, out: &mut Outbox) {
        let mut contents = Vec::with_capacity(group.len());
        for (number, id) in group {
            let content = store.volumes.look_up(VolumeId::SHARED, Lba(u64::from(*id)));
            match content.has_payload() {
                true => contents.push((content, *number, *id)),
                false => self.is_another(*number, *id, store),
            }
        }
        // Whole blocks are stored apart from compressed ones, whatever the write order.
        contents.sort_unstable_by_key(|(content, ..)| content.address());
        let mut parts = Vec::new();
        contents.iter().for_each(|(content, _, id)| {
            self.push_mapped(Lba(u64::from(*id)), *content, &mut parts, store)
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
            let ended = store.start_fetch(run.spec(FetchGoal::Compare { at }), out);
            self.deliver(ended, store, out);
        }
    }

    /// Handles a completed run, parts of which may be unreadable.
    pub(crate) fn contents_read(&mut self, at: u32, fetched: Fetched, store: &mut Store) {
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
                        self.shared.distrust(&mut store.volumes, id);
                    }
                    self.is_another(number, id, store);
                }
            }
        }
    }

    /// Handles the results of a group.
    pub(crate) fn compared(&mut self, work: CompareWork, store: &mut Store) {
        self.shared.comparisons.comparing -= 1;
        for ((Comparison { number, id, .. }, ..), same) in work.blocks.iter().zip(work.same) {
            match same {
                Some(true) => {
                    self.shared.prove(&store.volumes, *id);
                    self.becomes_reference(*number, *id);
                }
                Some(false) => self.is_another(*number, *id, store),
                None => {
                    self.shared.distrust(&mut store.volumes, *id);
                    self.is_another(*number, *id, store);
                }
            }
        }
    }
}
