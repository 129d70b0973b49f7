//! Trims, zeroed ranges, shrinks and deletes: one record each; their effect on the map is applied
//! in bounded steps.
//!
//! 1. On admission the operation takes its LSN and its record goes to the user stream. Older
//!    versions still in flight are marked not to install.
//! 2. A small range is applied to the map at once. The effect of a large one begins at once: the
//!    rest is a *walk*, a set of block intervals.
//! 3. Each step of the engine does a bounded part of the oldest walk, page by page; absent pages
//!    cost nothing. The number of walks is bounded: further large ranges wait for admission.
//! 4. Access to a block inside the rest first walks the block's page ([`Paths::settle_range`]). So
//!    an unfinished walk is invisible, and a newer write is never wiped by it.
//!
//! A deleted volume is walked the same way and forgotten when its map is empty and nothing of it is
//! in flight.

use crate::base::fault_injection::InjectedBug;
use crate::base::limits::{SMALL_RANGE_PAGES, WALK_PAGES_PER_STEP, WALKS_MAX};
use crate::base::weight::weight;
use crate::path::Paths;
use crate::store::Store;
use crate::store::pending::{BlockKey, Content};
use std::collections::{BTreeMap, VecDeque};
use windrow_format::batch::RangeState;
use windrow_format::checkpoint::{MAP_PAGE_ENTRIES, VolumeState};
use windrow_format::map_entry::MapEntry;
use windrow_types::{BatchSeq, FULL_BLOCK_UNITS, Lba, Lsn, VolumeId};

/// One walk.
#[derive(Debug)]
struct Walk {
    volume: VolumeId,
    lsn: Lsn,
    state: RangeState,
    /// Remaining intervals, which do not overlap: first block -> end.
    left: BTreeMap<u64, u64>,
}

impl Walk {
    /// Removes the rest of `low .. high`, a part of one interval.
    fn take(&mut self, low: u64, high: u64) -> Option<(u64, u64)> {
        let (first, end) = self
            .left
            .range(..high)
            .next_back()
            .map(|(first, end)| (*first, *end))
            .filter(|(_, end)| low < *end)?;
        self.left.remove(&first);
        if first < low {
            self.left.insert(first, low);
        }
        if high < end {
            self.left.insert(high, end);
        }
        Some((first.max(low), end.min(high)))
    }
}

/// All walks, oldest first.
#[derive(Debug, Default)]
pub struct Ranges {
    walks: VecDeque<Walk>,
    /// Volumes being deleted.
    pub deleting: Vec<VolumeId>,
    /// A checkpoint is due: no new walk begins until it has begun. It may begin only when no walk
    /// is in progress. Replay starts after the walk's record and would never finish what the copied
    /// pages do not show yet.
    barrier: bool,
}

impl Ranges {
    /// True if a walk is in progress.
    pub fn has_walks(&self) -> bool {
        !self.walks.is_empty()
    }

    /// A checkpoint is due: no further walk begins until it has begun.
    pub fn hold_walks(&mut self, hold: bool) {
        self.barrier = hold;
    }

    /// True while no walk may begin because a checkpoint is due.
    pub fn holds_walks(&self) -> bool {
        self.barrier
    }

    /// True if no further walk may begin now.
    pub fn is_full(&self) -> bool {
        self.walks.len() >= WALKS_MAX
    }

    /// True if nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.walks.is_empty() && self.deleting.is_empty()
    }
}

impl Paths {
    /// Begins the effect of a range operation with LSN `lsn` on blocks `first .. end`.
    pub(crate) fn begin_range(
        &mut self,
        volume: VolumeId,
        first: Lba,
        end: Lba,
        lsn: Lsn,
        state: RangeState,
        store: &mut Store,
    ) {
        if first >= end {
            return;
        }
        self.damage.clear(volume, first, end);
        self.durability.checkpoint.note_applied(lsn);
        let mut freed = 0;
        let mut in_flight = Vec::new();
        self.log
            .pending
            .for_range(volume, first, end, |key, record| {
                in_flight.push(key);
                freed += u64::from(record.newest.is_data());
                record.newest = match state {
                    RangeState::Hole => Content::Hole,
                    RangeState::Zero => Content::Zero,
                };
                record.installed = lsn;
            });
        let units = freed * u64::from(FULL_BLOCK_UNITS);
        store.volumes.release_space(freed, units);
        let page = MAP_PAGE_ENTRIES as u64;
        if (end.0 - 1) / page - first.0 / page < SMALL_RANGE_PAGES {
            return self.apply_small(volume, first.0, end.0, lsn, state, store);
        }
        self.ranges.walks.push_back(Walk {
            volume,
            lsn,
            state,
            left: BTreeMap::from([(first.0, end.0)]),
        });
        // Their space is given back already. The walk must find them while that is known, not after
        // their records are gone.
        for key in in_flight {
            self.settle_range(volume, key.lba(), store);
        }
    }

    /// Applies a range of few pages at once, after the remainder of older walks there.
    fn apply_small(
        &mut self,
        volume: VolumeId,
        first: u64,
        end: u64,
        lsn: Lsn,
        state: RangeState,
        store: &mut Store,
    ) {
        let page = MAP_PAGE_ENTRIES as u64;
        let mut at = first;
        while at < end {
            let stop = end.min((at / page + 1) * page);
            self.settle_range(volume, Lba(at), store);
            self.apply_to_page(volume, at, stop, lsn, state, store);
            at = stop;
        }
    }

    /// Walks the page of `lba` now if a walk has not reached it yet.
    #[inline]
    pub(crate) fn settle_range(&mut self, volume: VolumeId, lba: Lba, store: &mut Store) {
        if !self.ranges.walks.is_empty() {
            self.settle_page(volume, lba, store);
        }
    }

    fn settle_page(&mut self, volume: VolumeId, lba: Lba, store: &mut Store) {
        let page = MAP_PAGE_ENTRIES as u64;
        let (low, high) = (lba.0 / page * page, lba.0 / page * page + page);
        for at in 0..self.ranges.walks.len() {
            let walk = &self.ranges.walks[at];
            if walk.volume != volume {
                continue;
            }
            let (lsn, state) = (walk.lsn, walk.state);
            while let Some((first, end)) = self.ranges.walks[at].take(low, high) {
                self.apply_to_page(volume, first, end, lsn, state, store);
            }
        }
    }

    /// Sets blocks `first .. end` of one page.
    fn apply_to_page(
        &mut self,
        volume: VolumeId,
        first: u64,
        end: u64,
        lsn: Lsn,
        state: RangeState,
        store: &mut Store,
    ) {
        let index = first / MAP_PAGE_ENTRIES as u64;
        let Some((v, arena)) = store.volumes.get_mut(volume) else {
            return;
        };
        let entry = match state {
            RangeState::Hole => MapEntry::HOLE,
            RangeState::Zero => MapEntry::ZERO,
        };
        let exists = v.map.slot(index).is_some();
        // Zeroed ranges leave pages for data: they take new ones only from the first three
        // quarters.
        let scarce = arena.used_pages() >= arena.max_pages() / 4 * 3;
        if !exists
            && (state == RangeState::Hole || scarce || v.map.ensure(arena, volume, index).is_none())
        {
            // No page: these are holes already. A zeroed range that gets no page stays a hole,
            // which reads the same.
            return;
        }
        for lba in first..end {
            let Some((v, arena)) = store.volumes.get_mut(volume) else {
                return;
            };
            if v.map.get(arena, Lba(lba)) == entry {
                continue;
            }
            let old = v.map.replace(arena, Lba(lba), entry);
            if old.has_payload() {
                let segment = store.pool.codec.segment(old.address());
                store
                    .segments
                    .remove_live(segment, old.length_units(), lsn, BatchSeq(0));
                self.note_range_death(BlockKey::new(volume, Lba(lba)), segment, store);
            }
            if let Some(id) = old.shared_id() {
                self.release_content(id.0 as u32, lsn, store);
            }
            if old.is_data()
                && self
                    .log
                    .pending
                    .get(BlockKey::new(volume, Lba(lba)))
                    .is_none()
            {
                store.volumes.release_space(1, weight(&old));
            }
        }
        // A survey may have found references to lost content here since the range was admitted.
        self.damage.clear(volume, Lba(first), Lba(end));
        self.drop_page_if_empty(volume, index, store);
    }

    /// Frees pages that a refused write left empty.
    pub(crate) fn drop_empty_pages(
        &mut self,
        volume: VolumeId,
        first: Lba,
        blocks: u64,
        store: &mut Store,
    ) {
        let page = MAP_PAGE_ENTRIES as u64;
        for index in first.0 / page..=(first.0 + blocks.max(1) - 1) / page {
            self.drop_page_if_empty(volume, index, store);
        }
    }

    /// Frees the memory of a page of holes, unless a write in flight will need it. (A trimmed write
    /// will not: it installs nothing any more.)
    fn drop_page_if_empty(&mut self, volume: VolumeId, index: u64, store: &mut Store) {
        if store.observe.bug == InjectedBug::KeptPages && index % 2 == 1 {
            return;
        }
        let Some((v, arena)) = store.volumes.get_mut(volume) else {
            return;
        };
        let Some(slot) = v.map.slot(index) else {
            return;
        };
        if arena.page(slot).iter().any(|e| *e != MapEntry::HOLE) {
            return;
        }
        let first = index * MAP_PAGE_ENTRIES as u64;
        let mut waited_for = false;
        let last = Lba(first + MAP_PAGE_ENTRIES as u64);
        self.log
            .pending
            .for_range(volume, Lba(first), last, |_, record| {
                waited_for |= !matches!(record.newest, Content::Hole)
            });
        if waited_for {
            return;
        }
        let Some((v, arena)) = store.volumes.get_mut(volume) else {
            return;
        };
        if let Some(pointer) = v.map.drop_page(arena, index)
            && pointer.present
        {
            store.volumes.dropped.push((volume, index as u32, pointer));
        }
    }

    /// Does a bounded step of every walk.
    pub(crate) fn walk_ranges(&mut self, store: &mut Store) {
        if self.ranges.is_idle() {
            return;
        }
        let mut budget = WALK_PAGES_PER_STEP;
        while budget > 0 {
            let Some(walk) = self.ranges.walks.front_mut() else {
                break;
            };
            let Some((first, end)) = walk.left.pop_first() else {
                self.ranges.walks.pop_front();
                continue;
            };
            let (volume, lsn, state) = (walk.volume, walk.lsn, walk.state);
            let page = MAP_PAGE_ENTRIES as u64;
            // Skip to the first page that exists: only zeroed ranges need pages of their own.
            let start = match (state, store.volumes.get(volume)) {
                (RangeState::Hole, Some(v)) => v
                    .map
                    .next_page(first / page, end.div_ceil(page))
                    .map_or(end, |p| (p * page).max(first)),
                (RangeState::Zero, Some(_)) => first,
                (_, None) => end,
            };
            let stop = end.min((start / page + 1) * page);
            if stop < end
                && let Some(walk) = self.ranges.walks.front_mut()
            {
                walk.left.insert(stop, end);
            }
            if start < end {
                self.apply_to_page(volume, start, stop, lsn, state, store);
            }
            budget -= 1;
        }
        self.finish_deletes(store);
    }

    /// Forgets deleted volumes whose walk is done.
    fn finish_deletes(&mut self, store: &mut Store) {
        if !self.durability.checkpoint.is_idle() {
            // The image in progress may have its old table page and its new leaves: it must not
            // lose a volume between them.
            return;
        }
        let mut at = 0;
        while at < self.ranges.deleting.len() {
            let volume = self.ranges.deleting[at];
            let walking = self.ranges.walks.iter().any(|w| w.volume == volume);
            let mut in_flight = false;
            if !walking {
                self.log.pending.for_range(
                    volume,
                    Lba(0),
                    Lba(1 << crate::base::limits::LBA_BITS),
                    |_, _| in_flight = true,
                );
            }
            if walking || in_flight {
                at += 1;
                continue;
            }
            self.drop_remaining_pages(volume, store);
            store.volumes.remove(volume);
            self.ranges.deleting.remove(at);
        }
    }

    fn drop_remaining_pages(&mut self, volume: VolumeId, store: &mut Store) {
        let mut next = 0;
        while let Some(index) = store
            .volumes
            .get(volume)
            .and_then(|v| v.map.next_page(next, u64::from(u32::MAX)))
        {
            self.drop_page_if_empty(volume, index, store);
            next = index + 1;
        }
    }

    /// Begins the background work of a deleted volume.
    pub(crate) fn begin_delete(&mut self, volume: VolumeId, lsn: Lsn, store: &mut Store) {
        let Some(v) = store.volumes.get(volume) else {
            return;
        };
        let end = Lba(v.blocks().max(1));
        store
            .volumes
            .change(volume, |record| record.state = VolumeState::Deleting);
        self.begin_range(volume, Lba(0), end, lsn, RangeState::Hole, store);
        self.ranges.deleting.push(volume);
    }
}
