//! Index pages: the part of the index on the members (docs/internals/reduction.md, The index).
//!
//! 1. *Collect*: the fingerprint of placed content joins the filling page, so a page holds content
//!    written in sequence.
//! 2. *Place*: a full page goes into the open batch of the user stream, as a block of the index
//!    volume. It shares the LSN of the entry before it. It only uses room that nothing else claims.
//!    It takes effect together with everything that it names.
//! 3. *Hook*: a sample of its fingerprints stays in memory (`hooks.rs`).
//! 4. *Fetch*: fingerprints that hit a hook read the page and its successor; later fingerprints in
//!    the queue wait.
//! 5. *Take*: valid entries of a page join the index in memory. An entry is valid if its id is in
//!    use, in the same incarnation.
//! 6. *Age*: the pages are a ring. A page that was used since the hand last passed stays for a
//!    round; one with mostly dead content is rewritten next.
//! 7. *Close*: a shutdown writes the filling page as it is; the next start resumes it.
//!
//! Invariants: a page names no LSN above its own. Otherwise, after a crash, an LSN that is reused
//! could validate its entries. An entry whose LSN is 2^32 or more below the last one is invalid.
//! Within that distance an id and the low half of an LSN identify one content.

use super::Index;
use super::hooks::{self, Hooks};
use crate::base::limits::{
    INDEX_PAGE_RIPE, INDEX_PAGES_WAITING, INDEX_READS_MAX, INDEX_SCAN_READS, STREAM_USER,
};
use crate::base::piece::Piece;
use crate::base::slab::Slab;
use crate::path::Paths;
use crate::path::dedup::Shared;
use crate::path::write::{DATA_UNITS, RECORD_UNITS};
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::fetch::{FetchGoal, FetchSpec};
use crate::store::stream::Item;
use crate::store::volume::{Ids, Volumes};
use std::collections::VecDeque;
use windrow_format::batch::Entry;
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_format::index_page::{
    INDEX_PAGE_ENTRIES, IndexEntry, IndexPage, NO_INDEX_PAGE, decode_index_page, encode_index_page,
};
use windrow_format::superblock::Features;
use windrow_io::Payload;
use windrow_types::{BLOCK_SIZE, FULL_BLOCK_UNITS, Lba, Lsn, VolumeId};

/// Upper bound of the size of a page's entry in a table.
const ENTRY_BOUND: usize = 64;
/// Most pages that the hand passes over because they were used.
const SECOND_CHANCES: usize = 64;

/// State of a page.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Page written after it, or [`NO_INDEX_PAGE`].
    next: u32,
    /// Value of [`Index::taken()`] when its entries were last taken.
    taken_at: u32,
    /// Incremented when it is rewritten.
    generation: u8,
    /// Set if it was needed since the hand passed.
    used: bool,
    /// Set once its entries were taken into memory.
    taken: bool,
    /// Set while its write is in flight.
    writing: bool,
    /// Set if the slot had no page before.
    new: bool,
    /// Set if most of its content is gone.
    ripe: bool,
}

const UNKNOWN: Slot = Slot {
    next: NO_INDEX_PAGE,
    taken_at: 0,
    generation: 0,
    used: false,
    taken: false,
    writing: false,
    new: false,
    ripe: false,
};

/// A page being read.
#[derive(Clone, Copy, Debug)]
struct PageRead {
    page: u32,
    generation: u8,
    /// Number of the first queued block that waits for it.
    from: Option<u64>,
    /// True if it is read to restore its hooks.
    scan: bool,
}

/// State of the pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    hooks: Hooks,
    slots: Vec<Slot>,
    /// Content for the filling page.
    filling: Vec<IndexEntry>,
    /// Value of [`Index::taken()`] when filling began.
    filling_since: u32,
    /// Number of these, from the front, in a page that a shutdown wrote before it was full.
    resumed: usize,
    /// Set when a shutdown has written its page.
    closed: bool,
    /// Full pages that wait for room.
    waiting: VecDeque<Vec<IndexEntry>>,
    /// Lists for reuse.
    spare: Vec<Vec<IndexEntry>>,
    /// Start of the search for a slot that never had a page.
    fresh: u32,
    hand: u32,
    ripe: VecDeque<u32>,
    /// Number of pages in flight to slots without one.
    coming: u64,
    last_written: Option<u32>,
    reads: Slab<PageRead>,
    /// Numbers of reads to be sent.
    to_send: Vec<u32>,
    /// Position of the restoring scan; `None`: it has ended.
    scan: Option<u32>,
    scanned: u64,
    to_scan: u64,
    /// The newest page found meanwhile.
    newest: (Lsn, u32),
    entries: Vec<IndexEntry>,
}

impl Pages {
    /// Least memory for `pages` pages.
    fn bytes_least(pages: u64) -> u64 {
        pages * size_of::<Slot>() as u64 + hooks::bytes_least(pages * INDEX_PAGE_ENTRIES as u64)
    }

    /// Table for at most `pages` pages, within `bytes`.
    fn new(pages: u64, bytes: u64) -> Self {
        // The bound is linear except for rounding up.
        let mut fit = pages.min(bytes / (Self::bytes_least(1 << 20) >> 20).max(1));
        while fit > 0 && Self::bytes_least(fit) > bytes {
            fit -= 1;
        }
        let of_slots = fit * size_of::<Slot>() as u64;
        let hooks = Hooks::new(fit * INDEX_PAGE_ENTRIES as u64, bytes - of_slots);
        Self {
            hooks,
            slots: vec![UNKNOWN; fit as usize],
            ..Self::default()
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.hooks.bytes() + (self.slots.len() * size_of::<Slot>()) as u64
    }

    /// Number of hooks, and the limit of pages.
    pub(super) fn sizes(&self) -> (u64, u64) {
        (self.hooks.entries(), self.slots.len() as u64)
    }

    /// Number of pages scanned since the start, and to be scanned.
    pub(super) fn scanned(&self) -> (u64, u64) {
        (self.scanned, self.to_scan)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty()
    }

    /// The first number in the queue that waits for a page.
    pub(super) fn waits_from(&self) -> Option<u64> {
        self.reads.iter().filter_map(|read| read.from).min()
    }

    /// Id of content that no written page has yet, although the index may have evicted it.
    pub(super) fn find_unwritten(
        &self,
        fingerprint: u128,
        index: &Index,
        ids: &Ids,
    ) -> Option<u32> {
        let is_recent =
            index.taken().wrapping_sub(self.filling_since) < index.entries().1 as u32 / 4;
        if is_recent && self.waiting.is_empty() {
            return None;
        }
        let unwritten = self.waiting.iter().chain([&self.filling]).flatten();
        let counts = |entry: &&IndexEntry| {
            entry.fingerprint == fingerprint && ids.has_incarnation(entry.id, entry.lsn.0 as u32)
        };
        unwritten.filter(counts).map(|entry| entry.id).next()
    }

    /// Closes the filling page; it waits for room.
    fn close_filling(&mut self) {
        let next = self.spare.pop().unwrap_or_default();
        self.waiting
            .push_back(std::mem::replace(&mut self.filling, next));
        self.resumed = 0;
    }

    /// Resumes a part-filled page of a shutdown, read at a start: its valid entries begin the
    /// filling page, which replaces it. So there is one such page, however often a pool is started.
    fn resume(&mut self, page: u32, ids: &Ids) {
        let counting = |entry: &&IndexEntry| ids.has_incarnation(entry.id, entry.lsn.0 as u32);
        let count = self.entries.iter().filter(counting).count();
        let is_before = match (
            self.entries.first(),
            self.entries.last(),
            self.filling.first(),
            self.filling.last(),
        ) {
            (Some(first), Some(last), Some(next), Some(newest)) => {
                last.lsn <= next.lsn && newest.lsn.0 - first.lsn.0 <= u64::from(u32::MAX)
            }
            _ => true,
        };
        if self.resumed > 0 || !is_before || self.filling.len() + count >= INDEX_PAGE_ENTRIES {
            return;
        }
        let (entries, filling) = (&self.entries, &mut self.filling);
        filling.splice(0..0, entries.iter().filter(counting).copied());
        self.resumed = count;
        self.mark_ripe(page);
    }

    fn generation(slots: &[Slot], page: u32) -> u8 {
        slots.get(page as usize).map_or(0, |slot| slot.generation)
    }

    /// True if most of a page's entries are certainly still in the index, by the number of later
    /// insertions.
    fn is_in_memory(&self, page: u32, index: &Index) -> bool {
        let slot = &self.slots[page as usize];
        slot.taken && u64::from(index.taken().wrapping_sub(slot.taken_at)) < index.entries().1 / 4
    }

    fn mark_ripe(&mut self, page: u32) {
        let slot = &mut self.slots[page as usize];
        if !slot.ripe && !slot.writing {
            slot.ripe = true;
            self.ripe.push_back(page);
        }
    }

    /// Slot of the next page. `has_page`: the slot has a page; `more`: one more page is allowed.
    fn next_slot(&mut self, more: bool, has_page: impl Fn(u32) -> bool) -> Option<u32> {
        while let Some(page) = self.ripe.pop_front() {
            if std::mem::take(&mut self.slots[page as usize].ripe)
                && !self.slots[page as usize].writing
            {
                return Some(page);
            }
        }
        while more && (self.fresh as usize) < self.slots.len() {
            let page = self.fresh;
            self.fresh += 1;
            if !has_page(page) && !self.slots[page as usize].writing {
                return Some(page);
            }
        }
        for tried in 0..2 * SECOND_CHANCES.min(self.slots.len()) {
            let page = self.hand;
            self.hand = (self.hand + 1) % self.slots.len() as u32;
            let slot = &mut self.slots[page as usize];
            if slot.writing
                || !has_page(page)
                || (tried < SECOND_CHANCES && std::mem::take(&mut slot.used))
            {
                continue;
            }
            return Some(page);
        }
        None
    }

    /// Adds the valid entries of a page that was read or just written to hooks and index.
    fn take(
        &mut self,
        page: u32,
        is_scan: bool,
        index: &mut Index,
        ids: &mut Ids,
        evicted: &mut u64,
    ) -> usize {
        let (mut counting, mut left_out) = (0, false);
        for entry in &self.entries {
            if !ids.has_incarnation(entry.id, entry.lsn.0 as u32) {
                continue;
            }
            counting += 1;
            if is_scan {
                let slots = &self.slots;
                self.hooks.insert(entry.fingerprint, page, |page| {
                    Self::generation(slots, page)
                });
            }
            if let Some(slot) = ids.slot(entry.id) {
                index.expect(slot);
                continue;
            }
            if index.holds(entry.fingerprint) {
                continue;
            }
            // A start cannot know which pages will be needed: none evicts the entries of another.
            if is_scan && !index.has_room(entry.fingerprint) {
                left_out = true;
                continue;
            }
            let (slot, former) = index.insert(entry.fingerprint, entry.id);
            // Otherwise entries already used would evict those still to be used.
            index.expect(slot);
            ids.set_slot(entry.id, slot);
            if let Some(former) = former {
                *evicted += 1;
                ids.take_slot(former);
            }
        }
        let slot = &mut self.slots[page as usize];
        (slot.taken, slot.taken_at) = (!left_out, index.taken());
        counting
    }
}

impl Shared {
    pub(crate) fn drop_waiting_page(&mut self) {
        self.sums.pages_dropped += 1;
        if let Some(list) = self.pages.waiting.pop_front() {
            self.keep_list(list);
        }
    }

    pub(crate) fn keep_list(&mut self, mut list: Vec<IndexEntry>) {
        list.clear();
        self.pages.spare.push(list);
    }

    pub(crate) fn hook_written_page(&mut self, page: u32, new: bool, list: &[IndexEntry]) {
        let taken_at = self.index.taken();
        let pages = &mut self.pages;
        if let Some(before) = pages
            .last_written
            .replace(page)
            .filter(|before| *before != page)
        {
            pages.slots[before as usize].next = page;
        }
        let slot = &mut pages.slots[page as usize];
        *slot = Slot {
            generation: slot.generation.wrapping_add(1),
            taken: true,
            taken_at,
            writing: true,
            new,
            ..UNKNOWN
        };
        pages.coming += u64::from(new);
        let slots = &pages.slots;
        for entry in list {
            pages.hooks.insert(entry.fingerprint, page, |page| {
                Pages::generation(slots, page)
            });
        }
    }

    /// A page is in the map.
    pub(crate) fn index_page_committed(&mut self, page: u32) {
        let pages = &mut self.pages;
        if let Some(slot) = pages.slots.get_mut(page as usize) {
            slot.writing = false;
            pages.coming -= u64::from(std::mem::take(&mut slot.new));
        }
    }

    /// A page is unreadable: it is rewritten next, so that its address becomes free.
    pub(crate) fn give_up_page(&mut self, page: Lba) {
        let pages = &mut self.pages;
        if let Some(slot) = pages.slots.get_mut(page.0 as usize) {
            slot.generation = slot.generation.wrapping_add(1);
            pages.mark_ripe(page.0 as u32);
        }
    }
}

impl Shared {
    /// Handles the fingerprints of a group that begins with number `from` of the queue: reads the
    /// pages that have them, and their successors. The group waits if memory does not have all of
    /// it.
    pub(crate) fn look_for_pages(&mut self, volumes: &Volumes, fingerprints: &[u128], from: u64) {
        if self.pages.slots.is_empty() {
            return;
        }
        let is_known = fingerprints
            .iter()
            .all(|fingerprint| self.index.holds(*fingerprint));
        let from = Some(from).filter(|_| !is_known);
        for fingerprint in fingerprints {
            let (pages, index) = (&mut self.pages, &self.index);
            let slots = &pages.slots;
            let Some(page) = pages
                .hooks
                .find(*fingerprint, |page| Pages::generation(slots, page))
            else {
                continue;
            };
            pages.slots[page as usize].used = true;
            let next = pages.slots[page as usize].next;
            let is_wanted = !pages.is_in_memory(page, index);
            let is_next_wanted =
                (next as usize) < pages.slots.len() && !pages.is_in_memory(next, index);
            if is_wanted {
                self.want_page(volumes, page, from, false);
            }
            if is_next_wanted {
                self.want_page(volumes, next, None, false);
            }
        }
    }

    /// Queues the read of a page, unless too many are pending.
    pub(crate) fn want_page(
        &mut self,
        volumes: &Volumes,
        page: u32,
        from: Option<u64>,
        scan: bool,
    ) {
        let entry = volumes.index_page_entry(page);
        let pages = &mut self.pages;
        if let Some((_, read)) = pages.reads.iter_mut().find(|(_, read)| read.page == page) {
            read.from = read.from.into_iter().chain(from).min();
            return;
        }
        let slot = pages.slots[page as usize];
        if !entry.has_payload() || slot.writing || pages.reads.len() >= INDEX_READS_MAX {
            return;
        }
        let at = pages.reads.insert(PageRead {
            page,
            generation: slot.generation,
            from,
            scan,
        });
        pages.to_send.push(at);
        self.sums.pages_read += 1;
    }
}

impl Paths {
    /// Creates the index and the state of its pages within `index_bytes`, a quarter of it for the
    /// pages.
    pub(crate) fn make_index(&mut self, store: &mut Store) {
        let bytes = store.pool.limits.index_bytes;
        if self.shared.index.is_missing() {
            self.shared.index = Index::new(
                store.pool.plan.usable_bytes / BLOCK_SIZE as u64,
                bytes - bytes / 4,
            );
        }
        if self.shared.pages.slots.is_empty() && store.pool.plan.index_pages > 0 {
            let mapped = store.volumes.index_pages_mapped();
            self.shared.pages = Pages::new(store.pool.plan.index_pages, bytes / 4);
            let pages = &mut self.shared.pages;
            (pages.to_scan, pages.scan) =
                (mapped, (mapped > 0 && !pages.slots.is_empty()).then_some(0));
        }
    }

    /// True if pages may be written: the feature flag for them is durable.
    fn may_write_index_pages(&self, store: &Store) -> bool {
        let is_flagged = store.pool.superblock.features.incompatible & Features::DEDUP_INDEX != 0
            && store
                .drives
                .superblock_writer
                .has_recorded(self.commands.shared_ticket);
        is_flagged && !self.shared.pages.slots.is_empty()
    }

    /// Adds content that was placed in the open batch.
    pub(crate) fn note_content_placed(
        &mut self,
        fingerprint: Option<u128>,
        id: u32,
        lsn: Lsn,
        store: &mut Store,
    ) {
        let Some(fingerprint) = fingerprint.filter(|_| self.may_write_index_pages(store)) else {
            return;
        };
        let pages = &mut self.shared.pages;
        let is_apart = pages
            .filling
            .first()
            .is_some_and(|first| lsn.0 - first.lsn.0 > u64::from(u32::MAX));
        if is_apart {
            pages.filling.clear();
            pages.resumed = 0;
        }
        if pages.filling.is_empty() {
            pages.filling_since = self.shared.index.taken();
        }
        pages.filling.push(IndexEntry {
            fingerprint,
            id,
            lsn,
        });
        if pages.filling.len() == INDEX_PAGE_ENTRIES {
            pages.close_filling();
            if pages.waiting.len() > INDEX_PAGES_WAITING {
                self.shared.drop_waiting_page();
            }
        }
    }

    /// Log room that user writes leave to full pages, in units. Only while an entry is queued that
    /// will be placed in any case: so nothing waits for ever.
    pub(crate) fn room_for_index_pages(&self) -> u64 {
        if self.admission.placing.is_empty() {
            0
        } else {
            self.shared.pages.waiting.len() as u64 * DATA_UNITS
        }
    }

    /// Places full pages after the entry with this LSN, the last one of the open batch.
    pub(crate) fn place_index_pages(&mut self, lsn: Lsn, store: &mut Store) {
        while let Some(list) = self.shared.pages.waiting.front() {
            debug_assert!(list.last().is_none_or(|newest| newest.lsn <= lsn));
            let s = self.log.stream(STREAM_USER);
            let shape = store.pool.zones.shape(s.position.segment);
            if self.room_units(store) < DATA_UNITS
                || !s
                    .open
                    .table
                    .takes(shape, s.position.row, ENTRY_BOUND, FULL_BLOCK_UNITS)
            {
                return;
            }
            let Some(page) = self.next_index_page(store) else {
                return self.shared.drop_waiting_page();
            };
            let Some(list) = self.shared.pages.waiting.pop_front() else {
                return;
            };
            let mut buf = store.memory.buffers.get(BLOCK_SIZE);
            encode_index_page(
                &list,
                self.shared.pages.last_written.unwrap_or(NO_INDEX_PAGE),
                &mut buf,
            );
            let new = !store.volumes.index_page_entry(page).has_payload();
            self.shared.hook_written_page(page, new, &list);
            self.shared.keep_list(list);
            let entry = Entry::Data {
                volume: VolumeId::INDEX,
                lba: Lba(u64::from(page)),
                birth: lsn,
            };
            self.append(
                STREAM_USER,
                &entry,
                Item::IndexPage { page },
                Some(buf.freeze()),
                None,
                store,
            );
            self.admission.note_placed_unqueued(DATA_UNITS);
            self.shared.sums.pages_written += 1;
        }
    }

    /// Writes content that is in no page yet at a shutdown, which has nothing else in flight. The
    /// page follows a contentless entry whose LSN it takes. Best effort: without room, the content
    /// is not found again.
    pub(crate) fn close_index(&mut self, store: &mut Store, out: &mut Outbox) {
        let pages = &mut self.shared.pages;
        let is_new = pages.filling.len() > pages.resumed;
        let has_some = is_new || !pages.waiting.is_empty();
        if std::mem::replace(&mut pages.closed, true)
            || !has_some
            || !self.may_write_index_pages(store)
        {
            return;
        }
        let has_room = self.room_units(store) >= RECORD_UNITS + DATA_UNITS
            && self.make_room(STREAM_USER, 2 * ENTRY_BOUND, FULL_BLOCK_UNITS, store, out);
        if !has_room || store.pool.stopped.is_some() {
            return;
        }
        if is_new {
            self.shared.pages.close_filling();
        }
        let lsn = self.durability.lsns.take(1);
        self.admission.queue_record(
            &mut self.durability,
            Entry::Covered {
                first: lsn,
                count: 1,
            },
            lsn,
        );
        self.place(store, out);
        if self
            .log
            .stream(STREAM_USER)
            .open
            .lsns
            .is_some_and(|(_, last)| last == lsn)
        {
            self.place_index_pages(lsn, store);
        }
    }

    /// Slot of the next page; ensures its map page.
    fn next_index_page(&mut self, store: &mut Store) -> Option<u32> {
        let more = store.volumes.index_pages_mapped() + self.shared.pages.coming
            < store.pool.plan.index_pages;
        let (volumes, pages) = (&store.volumes, &mut self.shared.pages);
        let has_page = |page: u32| {
            volumes.get(VolumeId::INDEX).is_some_and(|v| {
                v.map
                    .get(&volumes.arena, Lba(u64::from(page)))
                    .has_payload()
            })
        };
        let page = pages.next_slot(more, has_page)?;
        let (v, arena) = store.volumes.get_mut(VolumeId::INDEX)?;
        let index = u64::from(page) / MAP_PAGE_ENTRIES as u64;
        if v.map.slot(index).is_none() {
            let slot = v.map.ensure(arena, VolumeId::INDEX, index)?;
            arena.mark_dirty(slot);
        }
        Some(page)
    }

    /// Sends the reads of pages.
    pub(crate) fn send_page_reads(&mut self, store: &mut Store, out: &mut Outbox) {
        self.scan_pages(store);
        while let Some(at) = self.shared.pages.to_send.pop() {
            let Some(PageRead { page, scan, .. }) = self.shared.pages.reads.get(at).copied() else {
                continue;
            };
            let entry = store.volumes.index_page_entry(page);
            if !entry.has_payload() {
                self.shared.pages.reads.remove(at);
                continue;
            }
            let segment = store.pool.codec.segment(entry.address());
            let (column, row, _) =
                self.locate_block(segment, store.pool.codec.block(entry.address()), store);
            let pieces = vec![Piece::of_units(0, entry.length_units(), entry.checksum())];
            let goal = FetchGoal::IndexPage { at, urgent: !scan };
            let ended = store.start_fetch(
                FetchSpec {
                    segment,
                    column,
                    row,
                    rows: 1,
                    pieces,
                    goal,
                    singly: false,
                },
                out,
            );
            self.deliver(ended, store, out);
        }
        self.decide(store);
    }

    /// Handles a page that was read or is unreadable.
    pub(crate) fn index_page_read(&mut self, at: u32, bytes: Option<Payload>, store: &mut Store) {
        self.take_page(at, bytes, store);
        self.decide(store);
    }

    fn take_page(&mut self, at: u32, bytes: Option<Payload>, store: &mut Store) {
        let last = self.durability.lsns.last();
        let shared = &mut self.shared;
        let Some(PageRead {
            page,
            generation,
            scan,
            ..
        }) = shared.pages.reads.remove(at)
        else {
            return;
        };
        let is_same = Pages::generation(&shared.pages.slots, page) == generation;
        if !is_same {
            return;
        }
        let pages = &mut shared.pages;
        pages.scanned += u64::from(scan);
        let decoded = bytes.and_then(|bytes| decode_index_page(&bytes, &mut pages.entries));
        let counts = |head: &IndexPage| head.last <= last && last.0 - head.first.0 < 1 << 32;
        let Some(head) = decoded.filter(counts) else {
            // Nothing depends on it.
            shared.sums.pages_void += 1;
            let slot = &mut pages.slots[page as usize];
            slot.generation = slot.generation.wrapping_add(1);
            return pages.mark_ripe(page);
        };
        if let Some(before) = pages
            .slots
            .get_mut(head.previous as usize)
            .filter(|_| head.previous != page)
        {
            before.next = page;
        }
        pages.newest = pages.newest.max((head.last, page));
        let counting = pages.take(
            page,
            scan,
            &mut shared.index,
            &mut store.volumes.ids,
            &mut shared.sums.evicted,
        );
        if counting * INDEX_PAGE_RIPE < pages.entries.len() {
            pages.mark_ripe(page);
        } else if scan && pages.entries.len() < INDEX_PAGE_ENTRIES {
            pages.resume(page, &store.volumes.ids);
        }
    }

    /// Restores hooks from the pages after a start, a few at a time, in the background.
    fn scan_pages(&mut self, store: &mut Store) {
        let Some(mut next) = self.shared.pages.scan else {
            return;
        };
        if store.pool.closing.is_under_way() || store.pool.read_only {
            self.shared.pages.scan = None;
            return;
        }
        let end = self.shared.pages.slots.len() as u32;
        while next < end && self.shared.pages.reads.len() < INDEX_SCAN_READS {
            self.shared.want_page(&store.volumes, next, None, true);
            next += 1;
        }
        let pages = &mut self.shared.pages;
        pages.scan = Some(next);
        if next == end && !pages.reads.iter().any(|read| read.scan) {
            pages.scan = None;
            if pages.last_written.is_none() && pages.newest.0 > Lsn(0) {
                // The ring continues after it.
                pages.hand = (pages.newest.1 + 1) % end;
                pages.last_written = Some(pages.newest.1);
            }
        }
    }
}
