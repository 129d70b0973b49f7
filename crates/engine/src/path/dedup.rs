//! Deduplication: shared content is a block of the shared volume; blocks refer to it by its number,
//! the id (docs/internals/reduction.md).
//!
//! A block of a volume with deduplication passes these steps of reduction:
//!
//! 1. *Fingerprint*: a worker computes its fingerprint.
//! 2. *Decide*, in queue order, once the fingerprints of all earlier blocks are known. Either the
//!    index has it (a reference), or the block gets an id of its own.
//! 3. *Compare*: where fingerprints alone are not trusted, the content found is read and compared
//!    first (`path/dedup/compare.rs`).
//! 4. *Compress*: unique blocks are compressed like those of other volumes
//!    (`path/write/reduce.rs`).
//!
//! Invariants:
//!
//! - (a) The count of an id in use is the number of its references in maps, in batches in flight,
//!   and in queued blocks.
//! - (b) An id in use has content: an address in the map of the shared volume, or a data entry in
//!   flight. The batch of that entry is not after any that refers to it.
//! - (c) A freed id is a hole. Neither is the id reused nor its address overwritten before the
//!   operation that removed its last reference is durable ([`Paths::release_content`]).

mod compare;
mod hooks;
mod index;
mod pages;

pub(crate) use compare::Comparisons;

use crate::api::{DedupStatus, DedupSums};
use crate::base::limits::{IDS_AHEAD, SURVEY_LOST_MAX};
use crate::base::weight::weight;
use crate::path::Paths;
use crate::path::write::{DATA_UNITS, Placing, RECORD_UNITS};
use crate::store::Store;
use crate::store::pending::BlockKey;
use crate::store::volume::Volumes;
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

/// Deduplication state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// Not shared.
    Off,
    /// A worker computes its fingerprint.
    Fingerprinting,
    /// It waits for the blocks before it.
    Fingerprinted(u128),
    /// It is compared with the content that has its fingerprint.
    Comparing,
    /// New content. `fingerprint`: its fingerprint, unless the index has other content under it.
    Content { id: u32, fingerprint: Option<u128> },
    /// Existing content.
    Reference(u32),
}

/// State of deduplication, apart from the ids.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    index: Index,
    pages: Pages,
    /// Number of queued blocks that may still need an id.
    undecided: u64,
    /// Queue number up to which all blocks are decided.
    decided: u64,
    /// Number of present map pages of the shared volume, from the first one on.
    map_pages: u64,
    /// End of the search for further pages, and the number of missing ones in it.
    looked_pages: u64,
    missing_pages: u64,
    /// Content that is not committed yet and may have to be compared.
    fresh: HashMap<u32, Payload, FxBuildHasher>,
    comparisons: Comparisons,
    /// Contents (id and incarnation) that are unreadable. Nothing refers to them again, even if an
    /// index page names them.
    lost: BTreeSet<(u32, u32)>,
    /// Last LSN that the start had applied.
    base: Lsn,
    /// Set if fingerprints are weak on purpose (tests).
    weak: bool,
    sums: DedupSums,
}

impl Shared {
    /// For tests of volumes that compare.
    pub(crate) fn inject_weak_fingerprints(&mut self) {
        self.weak = true;
    }

    /// State after a start that applied everything up to `base`.
    pub(crate) fn after(base: Lsn) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    /// True if nothing is pending.
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

impl Shared {
    /// Records that the content of an id was read and matches the index.
    pub(crate) fn prove(&mut self, volumes: &Volumes, id: u32) {
        if let Some(slot) = volumes.ids.slot(id) {
            self.index.prove(slot);
        }
    }

    /// Removes an id with unreadable content from the index: nothing may refer to it again.
    pub(crate) fn distrust(&mut self, volumes: &mut Volumes, id: u32) {
        if let Some(slot) = volumes.ids.take_slot(id) {
            self.index.remove(slot);
        }
        if self.lost.len() < SURVEY_LOST_MAX {
            self.lost.insert((id, volumes.ids.incarnation(id)));
        }
    }

    /// True if the content of an id is lost; then the index drops it, however it came back there.
    pub(crate) fn is_lost(&mut self, volumes: &mut Volumes, id: u32) -> bool {
        let lost = !self.lost.is_empty() && self.lost.contains(&(id, volumes.ids.incarnation(id)));
        if lost && let Some(slot) = volumes.ids.take_slot(id) {
            self.index.remove(slot);
        }
        lost
    }

    /// Present state of deduplication.
    pub(crate) fn dedup_status(&self, volumes: &Volumes) -> DedupStatus {
        let (index_entries, index_entries_max) = self.index.entries();
        let (index_hooks, index_pages_max) = self.pages.sizes();
        let (index_pages_scanned, index_pages_to_scan) = self.pages.scanned();
        let content = volumes
            .get(VolumeId::SHARED)
            .map_or((0, 0), |v| (v.map.mapped_blocks, v.map.stored_units));
        DedupStatus {
            referred_bytes: volumes.iter().map(|v| v.map.shared_blocks).sum::<u64>() * BLOCK_BYTES,
            unique_bytes: content.0 * BLOCK_BYTES,
            stored_bytes: content.1 * windrow_types::ADDRESS_UNIT as u64,
            index_entries,
            index_entries_max,
            index_pages: volumes.index_pages_mapped(),
            index_pages_max,
            index_hooks,
            index_pages_scanned,
            index_pages_to_scan,
            index_bytes: self.index.bytes() + self.pages.bytes(),
            ids_bytes: volumes.ids.bytes(),
            sums: self.sums,
        }
    }
}

impl Paths {
    /// Deduplication mode of a volume; off while a power cut can leave a gap in the LSNs of the
    /// first user stream. Everything after the gap is void or comes again from the journal, and its
    /// ids would be used twice.
    pub(crate) fn dedup_of(&self, volume: VolumeId, store: &Store) -> Dedup {
        store
            .volumes
            .get(volume)
            .filter(|_| self.is_further_durable(store))
            .map_or(Dedup::Off, |v| v.record.dedup)
    }

    /// Ensures that `blocks` more blocks can have ids: that their map pages are present. False if
    /// there is no memory for all of them: then no page is taken, as a part would be useless.
    pub(crate) fn has_ids(&mut self, blocks: u64, store: &mut Store) -> bool {
        if self.shared.index.is_missing() {
            self.make_index(store);
        }
        let wanted = store.volumes.ids.end() + self.shared.undecided + blocks + IDS_AHEAD;
        let end = wanted.div_ceil(MAP_PAGE_ENTRIES as u64);
        let Some((v, arena)) = store.volumes.get_mut(VolumeId::SHARED) else {
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

    /// Decides the blocks whose turn it is.
    pub(crate) fn decide(&mut self, store: &mut Store) {
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
                        self.look_up(number, key.volume(), lsn, fingerprint, payload, store);
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
        store: &mut Store,
    ) {
        self.shared.sums.looked_up += 1;
        let known = self.shared.index.find(fingerprint);
        let known = known.or_else(|| {
            self.shared
                .pages
                .find_unwritten(fingerprint, &self.shared.index, &store.volumes.ids)
        });
        let Some(id) = known.filter(|id| {
            !self.shared.is_lost(&mut store.volumes, *id) && store.volumes.ids.refer(*id)
        }) else {
            return self.becomes_content(number, volume, lsn, Some(fingerprint), payload, store);
        };
        if fingerprint & 1 == 1 && self.is_trusted(id, store) {
            return self.becomes_reference(number, id);
        }
        self.shared.sums.compared += 1;
        match self.shared.fresh.get(&id) {
            Some(content) if content[..] == payload[..] => self.becomes_reference(number, id),
            Some(_) => self.is_another(number, id, store),
            None => {
                self.admission.set_sharing(number, Sharing::Comparing);
                self.shared.compare(number, id);
            }
        }
    }

    /// True if a collision-resistant fingerprint suffices: the content was written or read since
    /// the start. Older content may be lost without notice, and a client that rewrites the bytes to
    /// repair it must not get a reference to it.
    fn is_trusted(&self, id: u32, store: &Store) -> bool {
        let proven = store
            .volumes
            .ids
            .slot(id)
            .is_some_and(|slot| self.shared.index.is_proven(slot));
        let last = self.durability.lsns.last().0;
        // The incarnation is the low half of an LSN that is not above the last one.
        let age = (last as u32).wrapping_sub(store.volumes.ids.incarnation(id));
        proven || last - u64::from(age).min(last) > self.shared.base.0
    }

    /// Turns the queued block with this number into a reference to an id that it holds.
    fn becomes_reference(&mut self, number: u64, id: u32) {
        self.shared.undecided -= 1;
        self.shared.sums.found += 1;
        self.admission.set_sharing(number, Sharing::Reference(id));
        // It was admitted as a block with payload.
        self.admission.data_became_record();
        self.admission.pace.give_back(DATA_UNITS - RECORD_UNITS);
    }

    /// Releases the id of a queued block that differs from the content with its fingerprint.
    fn is_another(&mut self, number: u64, id: u32, store: &mut Store) {
        self.shared.sums.mismatched += 1;
        self.release_content(id, Lsn(0), store);
        let Some(Placing::Data {
            key, lsn, payload, ..
        }) = self.admission.queued(number)
        else {
            return;
        };
        let (volume, lsn, payload) = (key.volume(), *lsn, payload.clone());
        // The index keeps the other content.
        self.becomes_content(number, volume, lsn, None, payload, store);
    }

    fn becomes_content(
        &mut self,
        number: u64,
        volume: VolumeId,
        lsn: Lsn,
        fingerprint: Option<u128>,
        payload: Payload,
        store: &mut Store,
    ) {
        self.shared.undecided -= 1;
        let id = store.volumes.ids.take(lsn);
        if let Some(fingerprint) = fingerprint {
            let (slot, former) = self.shared.index.insert(fingerprint, id);
            store.volumes.ids.set_slot(id, slot);
            if let Some(former) = former {
                self.shared.sums.evicted += 1;
                store.volumes.ids.take_slot(former);
            }
        }
        if fingerprint.is_some_and(|fingerprint| fingerprint & 1 == 0) {
            self.shared.fresh.insert(id, payload.clone());
        }
        self.admission
            .set_sharing(number, Sharing::Content { id, fingerprint });
        if let Some(codec) = store.volumes.packs(volume) {
            self.admission.compress_queued(number, codec, payload);
        }
    }

    /// Handles an unreadable block. If it is shared content, or refers to some, no later write may
    /// refer to that content. A client that rewrites these bytes to repair them must get them
    /// stored again. Other blocks that refer to it are reported.
    pub(crate) fn note_lost_content(&mut self, key: BlockKey, store: &mut Store) {
        let id = if key.volume() == VolumeId::SHARED {
            Some(key.lba())
        } else {
            store.volumes.look_up(key.volume(), key.lba()).shared_id()
        };
        let Some(id) = id
            .filter(|id| store.volumes.ids.references(*id) > 0)
            .map(|id| id.0 as u32)
        else {
            return;
        };
        self.shared.distrust(&mut store.volumes, id);
        self.damage
            .contents
            .name(id, store.volumes.ids.incarnation(id));
    }

    /// Drops a reference. The last one turns the content into a hole. The operations that removed
    /// the references from the maps have LSNs up to *applied*, and not all of them are durable.
    /// Until they are, the address is not overwritten, and only a block with a higher LSN gets the
    /// id. `by`: LSN of the present operation, if it is not counted as applied yet.
    pub(crate) fn release_content(&mut self, id: u32, by: Lsn, store: &mut Store) {
        if !store.volumes.ids.release(id) {
            return;
        }
        let applied = by
            .max(self.durability.checkpoint.applied())
            .max(self.shared.base);
        if let Some(slot) = store.volumes.ids.take_slot(id) {
            self.shared.index.remove(slot);
        }
        if let Some((v, arena)) = store.volumes.get_mut(VolumeId::SHARED) {
            let old = v.map.replace(arena, Lba(u64::from(id)), MapEntry::HOLE);
            store.volumes.release_space(0, weight(&old));
            if old.has_payload() {
                store.segments.remove_live(
                    store.pool.codec.segment(old.address()),
                    old.length_units(),
                    applied,
                    BatchSeq(0),
                );
            }
        }
        // Nothing refers to it any more, lost or not.
        self.damage
            .clear(VolumeId::SHARED, Lba(u64::from(id)), Lba(u64::from(id) + 1));
        store.volumes.ids.free(id, applied);
    }

    /// Checks in a quiesced engine that the counts match the maps, and that each id in use has
    /// content.
    pub(crate) fn check_references(&self, store: &Store) -> Result<(), String> {
        let mut counted = vec![0u32; store.volumes.ids.end() as usize];
        for v in store.volumes.iter() {
            for entry in v.map.entries(&store.volumes.arena) {
                let Some(id) = entry.shared_id() else {
                    continue;
                };
                match counted.get_mut(id.0 as usize) {
                    Some(count) => *count += 1,
                    None => {
                        return Err(format!(
                            "volume {} refers to content {id}, which was never allocated",
                            v.record.id
                        ));
                    }
                }
                if store.volumes.content_of(entry).is_none() {
                    return Err(format!(
                        "volume {} refers to content {id}, which is missing",
                        v.record.id
                    ));
                }
            }
        }
        let in_use = counted.iter().filter(|count| **count > 0).count() as u64;
        let known = store
            .volumes
            .get(VolumeId::SHARED)
            .map_or(0, |v| v.map.mapped_blocks);
        if in_use != store.volumes.ids.in_use() || known != in_use {
            return Err(format!(
                "{in_use} contents are referred to, {} are counted, {known} are in the map",
                store.volumes.ids.in_use()
            ));
        }
        let wrong = (0..)
            .zip(&counted)
            .find(|(id, count)| store.volumes.ids.references(Lba(*id)) != **count);
        wrong.map_or(Ok(()), |(id, count)| {
            Err(format!(
                "content {id} has {count} references, {} are counted",
                store.volumes.ids.references(Lba(id))
            ))
        })
    }
}
