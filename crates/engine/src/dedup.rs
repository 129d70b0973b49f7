//! Deduplication: content that blocks share is a block of the shared volume; blocks refer to it by
//! its number, the id (docs/internals/reduction.md).
//!
//! A block of a volume with deduplication goes through reduction so: 1 *print*: a worker takes its
//! fingerprint. 2 *decide*, in order of the queue, once the fingerprints of all blocks before it
//! are there: the index knows it (a reference), or it gets an id of its own. 3 Where fingerprints
//! alone are not trusted, what the index found is read and compared first (`compare.rs`). 4 Unique
//! blocks are packed as those of other volumes are (`write/reduce.rs`).
//!
//! What must hold: (a) each id in use has as many references as are in maps, in batches on their
//! way, and held by blocks of the queue; (b) an id in use has content: a place in the map of the
//! shared volume, or a data entry on its way in a batch not after any that refers to it; (c) an id
//! that becomes free is a hole, and is not given, nor its place written, before what took its
//! references is beyond doubt ([`Engine::release_content`]).

mod compare;
mod hooks;
mod ids;
mod index;
mod pages;

pub(crate) use compare::{CompareWork, Comparisons};
pub(crate) use ids::Ids;

use crate::Engine;
use crate::limits::{IDS_AHEAD, SURVEY_LOST_MAX};
use crate::pending::BlockKey;
use crate::weight::weight;
use crate::write::{DATA_UNITS, Placing, RECORD_UNITS};
use hashbrown::HashMap;
use index::Index;
use pages::Pages;
use rustc_hash::FxBuildHasher;
use std::collections::BTreeSet;
use windrow_format::checkpoint::{Dedup, MAP_PAGE_ENTRIES};
use windrow_format::map_entry::MapEntry;
use windrow_io::Payload;
use windrow_reduction::Fingerprint;
use windrow_types::{BLOCK_BYTES, BatchSeq, Lba, Lsn, VolumeId};

/// What becomes of a block that may be shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// It is not shared.
    Off,
    /// A worker takes its fingerprint.
    Fingerprinting,
    /// It waits for the blocks before it.
    Fingerprinted(u128),
    /// It is compared with what has its fingerprint.
    Comparing,
    /// New content. `fingerprint`: its fingerprint, unless the index names other content by it.
    Content { id: u32, fingerprint: Option<u128> },
    /// Content that is there already.
    Reference(u32),
}

/// State of deduplication, beside the ids.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    index: Index,
    pages: Pages,
    /// Blocks in the queue for placement that may still need an id.
    undecided: u64,
    /// Number in the queue up to which all are decided.
    decided: u64,
    /// Map pages of the shared volume that are there, from the first one on.
    map_pages: u64,
    /// How far it was looked for further ones, and how many of these are missing.
    looked_pages: u64,
    missing_pages: u64,
    /// Content that is not committed yet and may have to be compared.
    fresh: HashMap<u32, Payload, FxBuildHasher>,
    comparisons: Comparisons,
    /// Contents (id and life) that could not be had: nothing refers to them any more, also if a
    /// page of the index names them again.
    lost: BTreeSet<(u32, u32)>,
    /// What a start took for applied.
    base: Lsn,
    /// Fingerprints are weak on purpose (tests).
    weak: bool,
    sums: DedupSums,
}

/// Numbers that a checkpoint keeps of [`DedupSums`].
const DEDUP_WORDS: usize = 9;

/// What deduplication did since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct DedupSums {
    /// Blocks whose fingerprint was looked up.
    pub looked_up: u64,
    /// Those that were found and became references.
    pub found: u64,
    /// Those whose bytes were compared.
    pub compared: u64,
    /// Those that had the fingerprint of other content, or content that could not be read.
    pub mismatched: u64,
    /// Entries of the index that gave way to others.
    pub evicted: u64,
    /// Pages of the index that were written.
    pub pages_written: u64,
    /// Those that were dropped for want of room.
    pub pages_dropped: u64,
    /// Pages that were read, those of a start included.
    pub pages_read: u64,
    /// Those that could not be had, or were too old.
    pub pages_void: u64,
}

impl DedupSums {
    /// In the order in which checkpoints keep them.
    pub(crate) fn to_words(self) -> [u64; DEDUP_WORDS] {
        let Self {
            looked_up,
            found,
            compared,
            mismatched,
            evicted,
            pages_written,
            pages_dropped,
            pages_read,
            pages_void,
        } = self;
        [
            looked_up,
            found,
            compared,
            mismatched,
            evicted,
            pages_written,
            pages_dropped,
            pages_read,
            pages_void,
        ]
    }

    /// From what a checkpoint kept.
    pub(crate) fn from_words(words: [u64; DEDUP_WORDS]) -> Self {
        let [
            looked_up,
            found,
            compared,
            mismatched,
            evicted,
            pages_written,
            pages_dropped,
            pages_read,
            pages_void,
        ] = words;
        Self {
            looked_up,
            found,
            compared,
            mismatched,
            evicted,
            pages_written,
            pages_dropped,
            pages_read,
            pages_void,
        }
    }

    /// Both together.
    pub(crate) fn and(self, other: &Self) -> Self {
        let (mine, other) = (self.to_words(), other.to_words());
        Self::from_words(std::array::from_fn(|at| mine[at].saturating_add(other[at])))
    }
}

/// What is shared now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct DedupStatus {
    /// Blocks of volumes that refer to shared content, in bytes.
    pub referred_bytes: u64,
    /// Blocks of content that they refer to, in bytes (before compression).
    pub unique_bytes: u64,
    /// What that content takes, compressed where it is.
    pub stored_bytes: u64,
    /// Entries of the index, and how many there may be.
    pub index_entries: u64,
    /// See `index_entries`.
    pub index_entries_max: u64,
    /// Pages of the index on the members, and how many there may be.
    pub index_pages: u64,
    /// See `index_pages`.
    pub index_pages_max: u64,
    /// Fingerprints of which the page is known.
    pub index_hooks: u64,
    /// Pages that were looked through since the start, and how many there were: until then less is
    /// found.
    pub index_pages_scanned: u64,
    /// See `index_pages_scanned`.
    pub index_pages_to_scan: u64,
    /// Memory of the index, and of what is known of its pages.
    pub index_bytes: u64,
    /// Memory of the table of ids.
    pub ids_bytes: u64,
    /// What was done since start.
    pub sums: DedupSums,
}

impl Shared {
    /// After a start that took everything up to `base` for applied.
    pub(crate) fn after(base: Lsn) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    /// True if nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.undecided == 0 && self.comparisons.is_empty() && self.pages.is_idle()
    }
}

impl Shared {
    /// The kind of fingerprint that a volume's blocks get.
    pub(crate) fn fingerprint_of(&self, dedup: Dedup) -> Option<Fingerprint> {
        match dedup {
            Dedup::Off => None,
            Dedup::Verify if self.weak => Some(Fingerprint::Weak),
            Dedup::Verify => Some(Fingerprint::Fast),
            Dedup::Hash => Some(Fingerprint::Strong),
        }
    }

    /// A block that may be shared joins the queue.
    pub(crate) fn note_undecided(&mut self) {
        self.undecided += 1;
    }

    /// Content has been committed: from now on it is in the map.
    pub(crate) fn content_committed(&mut self, id: u32) {
        self.fresh.remove(&id);
    }

    /// What deduplication did since start.
    pub(crate) fn dedup_sums(&self) -> DedupSums {
        self.sums
    }
}

impl Engine {
    /// How blocks of a volume are shared. Not as long as a power cut can leave a gap in the orders
    /// of the first stream of users: what lies behind the gap is void or comes again from the
    /// journal, and its ids would be given twice.
    pub(crate) fn dedup_of(&self, volume: VolumeId) -> Dedup {
        self.map
            .volumes
            .get(volume)
            .filter(|_| self.is_further_durable())
            .map_or(Dedup::Off, |v| v.record.dedup)
    }

    /// What is kept beside the blocks of users, and what these may be.
    pub(crate) fn kept(&self) -> crate::format::Kept {
        crate::format::Kept::of(&self.pool.superblock)
    }

    /// Makes sure that `blocks` more blocks can have ids: that their map pages are there. False if
    /// there is no memory for them: then none is taken, as some of them would serve nobody.
    pub(crate) fn has_ids(&mut self, blocks: u64) -> bool {
        if self.shared.index.is_missing() {
            self.make_index();
        }
        let wanted = self.map.volumes.ids.end() + self.shared.undecided + blocks + IDS_AHEAD;
        let end = wanted.div_ceil(MAP_PAGE_ENTRIES as u64);
        let Some((v, arena)) = self.map.volumes.get_mut(VolumeId::SHARED) else {
            return false;
        };
        let shared = &mut self.shared;
        let new = shared.looked_pages..end.max(shared.looked_pages);
        shared.looked_pages = new.end;
        shared.missing_pages += new.filter(|index| v.map.slot(*index).is_none()).count() as u64;
        if shared.map_pages < end
            && shared.missing_pages > arena.max_pages().saturating_sub(arena.used_pages())
        {
            return false;
        }
        while shared.map_pages < end {
            if v.map.slot(shared.map_pages).is_none() {
                let Some(slot) = v.map.ensure(arena, VolumeId::SHARED, shared.map_pages) else {
                    return false;
                };
                arena.mark_dirty(slot);
                shared.missing_pages = shared.missing_pages.saturating_sub(1);
            }
            shared.map_pages += 1;
        }
        true
    }

    /// Decides what has its turn.
    pub(crate) fn decide(&mut self) {
        let placed = self.admission.reducing.placed;
        if self.shared.undecided == 0 {
            self.shared.decided = placed + self.admission.placing.len() as u64;
            return;
        }
        let waits_from = self.shared.pages.waits_from().unwrap_or(u64::MAX);
        loop {
            let number = self.shared.decided.max(placed);
            if number >= waits_from {
                return;
            }
            let Some(entry) = self.admission.placing.get((number - placed) as usize) else {
                return;
            };
            if let Placing::Data {
                key,
                lsn,
                payload,
                sharing,
                ..
            } = entry
            {
                match *sharing {
                    Sharing::Fingerprinting => return,
                    Sharing::Fingerprinted(fingerprint) => {
                        let (key, lsn, payload) = (*key, *lsn, payload.clone());
                        self.look_up(number, key.volume(), lsn, fingerprint, payload);
                    }
                    _ => {}
                }
            }
            self.shared.decided = number + 1;
        }
    }

    fn look_up(
        &mut self,
        number: u64,
        volume: VolumeId,
        lsn: Lsn,
        fingerprint: u128,
        payload: Payload,
    ) {
        self.shared.sums.looked_up += 1;
        let known = self.shared.index.find(fingerprint);
        let known = known.or_else(|| {
            self.shared
                .pages
                .find_unwritten(fingerprint, &self.shared.index, &self.map.volumes.ids)
        });
        let Some(id) = known.filter(|id| !self.is_lost(*id) && self.map.volumes.ids.refer(*id))
        else {
            return self.becomes_content(number, volume, lsn, Some(fingerprint), payload);
        };
        if fingerprint & 1 == 1 && self.is_trusted(id) {
            return self.becomes_reference(number, id);
        }
        self.shared.sums.compared += 1;
        match self.shared.fresh.get(&id) {
            Some(content) if content[..] == payload[..] => self.becomes_reference(number, id),
            Some(_) => self.is_another(number, id),
            None => {
                self.admission.set_sharing(number, Sharing::Comparing);
                self.shared.compare(number, id);
            }
        }
    }

    /// True if a fingerprint that nobody can forge will do: the content was written since the
    /// start, or has been read since. Older content may be lost without anybody knowing, and
    /// whoever writes its bytes again, to make it good, must not be given a reference to it.
    fn is_trusted(&self, id: u32) -> bool {
        let proven = self
            .map
            .volumes
            .ids
            .slot(id)
            .is_some_and(|slot| self.shared.index.is_proven(slot));
        let last = self.durability.lsns.last().0;
        // The life is the low half of an order that is not above the last one.
        let age = (last as u32).wrapping_sub(self.map.volumes.ids.incarnation(id));
        proven || last - u64::from(age).min(last) > self.shared.base.0
    }

    /// The content of an id was read, and is what the index says.
    fn prove(&mut self, id: u32) {
        if let Some(slot) = self.map.volumes.ids.slot(id) {
            self.shared.index.prove(slot);
        }
    }

    /// The content of an id could not be had: nothing is to refer to it any more.
    fn distrust(&mut self, id: u32) {
        if let Some(slot) = self.map.volumes.ids.take_slot(id) {
            self.shared.index.remove(slot);
        }
        if self.shared.lost.len() < SURVEY_LOST_MAX {
            self.shared
                .lost
                .insert((id, self.map.volumes.ids.incarnation(id)));
        }
    }

    /// True if the content of an id is lost; then the index forgets it, whatever has brought it
    /// back there.
    fn is_lost(&mut self, id: u32) -> bool {
        let lost = !self.shared.lost.is_empty()
            && self
                .shared
                .lost
                .contains(&(id, self.map.volumes.ids.incarnation(id)));
        if lost && let Some(slot) = self.map.volumes.ids.take_slot(id) {
            self.shared.index.remove(slot);
        }
        lost
    }

    /// The block with this number in the queue has the content of an id, which it holds.
    fn becomes_reference(&mut self, number: u64, id: u32) {
        self.shared.undecided -= 1;
        self.shared.sums.found += 1;
        self.admission.set_sharing(number, Sharing::Reference(id));
        // It was admitted as a block with payload.
        self.admission.data_became_record();
        self.admission.pace.give_back(DATA_UNITS - RECORD_UNITS);
    }

    /// The block with this number in the queue is not what its fingerprint found: it lets go of it.
    fn is_another(&mut self, number: u64, id: u32) {
        self.shared.sums.mismatched += 1;
        self.release_content(id, Lsn(0));
        let Some(Placing::Data {
            key, lsn, payload, ..
        }) = self.admission.queued(number)
        else {
            return;
        };
        let (volume, lsn, payload) = (key.volume(), *lsn, payload.clone());
        // The index goes on to name the other one.
        self.becomes_content(number, volume, lsn, None, payload);
    }

    fn becomes_content(
        &mut self,
        number: u64,
        volume: VolumeId,
        lsn: Lsn,
        fingerprint: Option<u128>,
        payload: Payload,
    ) {
        self.shared.undecided -= 1;
        let id = self.map.volumes.ids.take(lsn);
        if let Some(fingerprint) = fingerprint {
            let (slot, former) = self.shared.index.insert(fingerprint, id);
            self.map.volumes.ids.set_slot(id, slot);
            if let Some(former) = former {
                self.shared.sums.evicted += 1;
                self.map.volumes.ids.take_slot(former);
            }
        }
        if fingerprint.is_some_and(|fingerprint| fingerprint & 1 == 0) {
            self.shared.fresh.insert(id, payload.clone());
        }
        self.admission
            .set_sharing(number, Sharing::Content { id, fingerprint });
        if let Some(codec) = self.map.volumes.packs(volume) {
            self.admission.compress_queued(number, codec, payload);
        }
    }

    /// A block can not be had any more. If it is shared content, or refers to some, nothing that is
    /// written from now on may refer to that: whoever writes these bytes again, to make them good,
    /// must find them stored anew. And those who refer to it are named.
    pub(crate) fn note_lost_content(&mut self, key: BlockKey) {
        let id = if key.volume() == VolumeId::SHARED {
            Some(key.lba())
        } else {
            self.map
                .volumes
                .get(key.volume())
                .and_then(|v| v.map.get(&self.map.volumes.arena, key.lba()).shared_id())
        };
        let Some(id) = id
            .filter(|id| self.map.volumes.ids.references(*id) > 0)
            .map(|id| id.0 as u32)
        else {
            return;
        };
        self.distrust(id);
        self.integrity
            .survey
            .name(id, self.map.volumes.ids.incarnation(id));
    }

    /// One reference less. The last one makes the content a hole. What the maps do not show any
    /// more was taken from them by orders up to *applied*, not all of them durable: until they are,
    /// the place is not written again, and only a block with a higher order gets the id. `by`: the
    /// order at work, if it is not counted as applied yet.
    pub(crate) fn release_content(&mut self, id: u32, by: Lsn) {
        if !self.map.volumes.ids.release(id) {
            return;
        }
        let applied = by
            .max(self.durability.checkpoint.applied())
            .max(self.shared.base);
        if let Some(slot) = self.map.volumes.ids.take_slot(id) {
            self.shared.index.remove(slot);
        }
        if let Some((v, arena)) = self.map.volumes.get_mut(VolumeId::SHARED) {
            let old = v.map.replace(arena, Lba(u64::from(id)), MapEntry::HOLE);
            self.map.volumes.release_space(0, weight(&old));
            if old.has_payload() {
                self.space.segments.remove_live(
                    self.pool.codec.segment(old.address()),
                    old.length_units(),
                    applied,
                    BatchSeq(0),
                );
            }
        }
        // Nobody refers to it any more, lost or not.
        self.integrity
            .damage
            .clear(VolumeId::SHARED, Lba(u64::from(id)), Lba(u64::from(id) + 1));
        self.map.volumes.ids.free(id, applied);
    }

    /// What is shared now.
    pub(crate) fn dedup_status(&self) -> DedupStatus {
        let (index_entries, index_entries_max) = self.shared.index.entries();
        let (index_hooks, index_pages_max) = self.shared.pages.sizes();
        let (index_pages_scanned, index_pages_to_scan) = self.shared.pages.scanned();
        let content = self
            .map
            .volumes
            .get(VolumeId::SHARED)
            .map_or((0, 0), |v| (v.map.mapped_blocks, v.map.stored_units));
        DedupStatus {
            referred_bytes: self
                .map
                .volumes
                .iter()
                .map(|v| v.map.shared_blocks)
                .sum::<u64>()
                * BLOCK_BYTES,
            unique_bytes: content.0 * BLOCK_BYTES,
            stored_bytes: content.1 * windrow_types::ADDRESS_UNIT as u64,
            index_entries,
            index_entries_max,
            index_pages: self.map.volumes.index_pages_mapped(),
            index_pages_max,
            index_hooks,
            index_pages_scanned,
            index_pages_to_scan,
            index_bytes: self.shared.index.bytes() + self.shared.pages.bytes(),
            ids_bytes: self.map.volumes.ids.bytes(),
            sums: self.shared.sums,
        }
    }

    /// Makes fingerprints weak on purpose, so that different blocks have the same one: for tests of
    /// volumes that compare.
    #[doc(hidden)]
    pub fn inject_weak_fingerprints(&mut self) {
        self.shared.weak = true;
    }

    /// The ids that blocks of a volume refer to (tests).
    #[doc(hidden)]
    pub fn content_ids(&self, volume: VolumeId, blocks: std::ops::Range<u64>) -> Vec<Option<u64>> {
        let Some(v) = self.map.volumes.get(volume) else {
            return Vec::new();
        };
        blocks
            .map(|lba| {
                v.map
                    .get(&self.map.volumes.arena, Lba(lba))
                    .shared_id()
                    .map(|id| id.0)
            })
            .collect()
    }

    /// Checks at rest that the references are those of the maps, and that content is there for
    /// each.
    pub(crate) fn check_references(&self) -> Result<(), String> {
        let mut counted = vec![0u32; self.map.volumes.ids.end() as usize];
        for v in self.map.volumes.iter() {
            for entry in v.map.entries(&self.map.volumes.arena) {
                let Some(id) = entry.shared_id() else {
                    continue;
                };
                match counted.get_mut(id.0 as usize) {
                    Some(count) => *count += 1,
                    None => {
                        return Err(format!(
                            "volume {} refers to content {id}, which was never given",
                            v.record.id
                        ));
                    }
                }
                if self.map.volumes.content_of(entry).is_none() {
                    return Err(format!(
                        "volume {} refers to content {id}, which is not there",
                        v.record.id
                    ));
                }
            }
        }
        let in_use = counted.iter().filter(|count| **count > 0).count() as u64;
        let known = self
            .map
            .volumes
            .get(VolumeId::SHARED)
            .map_or(0, |v| v.map.mapped_blocks);
        if in_use != self.map.volumes.ids.in_use() || known != in_use {
            return Err(format!(
                "{in_use} contents are referred to, {} are counted, {known} are in the map",
                self.map.volumes.ids.in_use()
            ));
        }
        let wrong = (0..)
            .zip(&counted)
            .find(|(id, count)| self.map.volumes.ids.references(Lba(*id)) != **count);
        wrong.map_or(Ok(()), |(id, count)| {
            Err(format!(
                "content {id} has {count} references, {} are counted",
                self.map.volumes.ids.references(Lba(id))
            ))
        })
    }
}
