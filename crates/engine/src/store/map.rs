//! The map: (volume, block) -> [`MapEntry`], in pages of 256 entries.
//!
//! Pages of all volumes are in one arena, whose size is limited at start. A volume has a two-level
//! directory (nodes of 1024 page numbers), so that a huge thin volume costs memory only where it is
//! written; a node is freed with its last page. A look-up is: node, page number, entry. An absent
//! page is a page of holes.
//!
//! Each page has the address of its last checkpoint image ([`PagePointer`]) and a mark if it
//! changed since.

use crate::base::weight::is_compressed;
use windrow_format::checkpoint::{MAP_PAGE_ENTRIES, PagePointer};
use windrow_format::map_entry::MapEntry;
use windrow_io::Table;
use windrow_types::{Lba, VolumeId};

/// Pages allocated together: one huge page of 2 MiB. An arena with a lower limit has one chunk of
/// exactly that size.
const CHUNK_PAGES: usize = 512;
const NODE_PAGES: usize = 1024;

/// Number of a page in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSlot(pub u32);

/// Metadata of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageMeta {
    /// Volume of the page.
    pub volume: VolumeId,
    /// Index of the page in the volume; `u32::MAX` while the slot is free.
    pub index: u32,
    /// Address of its last image.
    pub pointer: PagePointer,
}

const FREE: u32 = u32::MAX;

/// All map pages.
#[derive(Debug)]
pub struct MapArena {
    chunks: Vec<Table<[MapEntry; MAP_PAGE_ENTRIES]>>,
    meta: Vec<PageMeta>,
    /// Changed since its last image was taken (then it is in the dirty list). Separate from the
    /// rest, because every commit reads it.
    changed: Vec<bool>,
    free: Vec<u32>,
    dirty: Vec<PageSlot>,
    max_pages: usize,
    /// Pages of the volume table after the first. A checkpoint writes them as well, so they count
    /// against the limit.
    table_pages: usize,
    /// Nodes of the directories of all volumes.
    nodes: usize,
    reference_changes: u64,
}

impl MapArena {
    /// An arena of at most `max_bytes`.
    pub fn new(max_bytes: u64) -> Self {
        let mut arena = Self {
            chunks: Vec::new(),
            meta: Vec::new(),
            changed: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            max_pages: 0,
            table_pages: 0,
            nodes: 0,
            reference_changes: 0,
        };
        arena.set_max_bytes(max_bytes);
        arena
    }

    /// Changes the limit. Pages beyond a smaller one stay.
    pub fn set_max_bytes(&mut self, max_bytes: u64) {
        let page_bytes = (MAP_PAGE_ENTRIES * 16) as u64;
        self.max_pages = (max_bytes / page_bytes).min(u64::from(u32::MAX - 2)) as usize;
        let wanted = self.chunk_pages();
        if let Some(first) = self.chunks.first_mut().filter(|first| first.len() < wanted) {
            // Shorter than a chunk because the limit was low: it is the only one.
            let mut longer = Table::filled(wanted, [MapEntry::HOLE; MAP_PAGE_ENTRIES]);
            longer[..first.len()].copy_from_slice(first);
            *first = longer;
        }
    }

    /// Pages of a new chunk.
    fn chunk_pages(&self) -> usize {
        self.max_pages.min(CHUNK_PAGES)
    }

    /// Bytes of memory in use for pages and directory nodes.
    pub fn bytes(&self) -> u64 {
        let pages =
            self.chunks.iter().map(|chunk| chunk.len()).sum::<usize>() * MAP_PAGE_ENTRIES * 16;
        (pages + self.meta.capacity() * size_of::<PageMeta>() + self.nodes * size_of::<Node>())
            as u64
    }

    /// Allocates a page of holes; `None` if the limit is reached.
    fn allocate(&mut self, volume: VolumeId, index: u32) -> Option<PageSlot> {
        let meta = PageMeta {
            volume,
            index,
            pointer: PagePointer::default(),
        };
        if !self.has_room() {
            return None;
        }
        if let Some(slot) = self.free.pop() {
            self.meta[slot as usize] = meta;
            self.changed[slot as usize] = false;
            *self.page_mut(PageSlot(slot)) = [MapEntry::HOLE; MAP_PAGE_ENTRIES];
            return Some(PageSlot(slot));
        }
        let slot = self.meta.len();
        if slot / CHUNK_PAGES == self.chunks.len() {
            self.chunks.push(Table::filled(
                self.chunk_pages(),
                [MapEntry::HOLE; MAP_PAGE_ENTRIES],
            ));
        }
        self.meta.push(meta);
        self.changed.push(false);
        Some(PageSlot(slot as u32))
    }

    fn release(&mut self, slot: PageSlot) {
        self.meta[slot.0 as usize].index = FREE;
        self.free.push(slot.0);
    }

    /// The entries of a page.
    #[inline]
    pub fn page(&self, slot: PageSlot) -> &[MapEntry; MAP_PAGE_ENTRIES] {
        let at = slot.0 as usize;
        &self.chunks[at / CHUNK_PAGES][at % CHUNK_PAGES]
    }

    #[inline]
    fn page_mut(&mut self, slot: PageSlot) -> &mut [MapEntry; MAP_PAGE_ENTRIES] {
        let at = slot.0 as usize;
        &mut self.chunks[at / CHUNK_PAGES][at % CHUNK_PAGES]
    }

    /// Metadata of the page; `None` if the slot is free.
    pub fn meta(&self, slot: PageSlot) -> Option<&PageMeta> {
        self.meta.get(slot.0 as usize).filter(|m| m.index != FREE)
    }

    /// As [`MapArena::meta`], mutable.
    pub fn meta_mut(&mut self, slot: PageSlot) -> Option<&mut PageMeta> {
        self.meta
            .get_mut(slot.0 as usize)
            .filter(|m| m.index != FREE)
    }

    /// Number of slots ever used, free ones included: they are numbered from 0.
    pub fn slots(&self) -> u32 {
        self.meta.len() as u32
    }

    /// Pages in use.
    pub fn used_pages(&self) -> u64 {
        (self.meta.len() - self.free.len()) as u64
    }

    /// Number of entries that became references to shared content, or ceased to be, since the
    /// start.
    pub fn reference_changes(&self) -> u64 {
        self.reference_changes
    }

    /// Most pages permitted, without those of the volume table.
    pub fn max_pages(&self) -> u64 {
        self.max_pages.saturating_sub(self.table_pages) as u64
    }

    /// True if one more page may be used.
    pub fn has_room(&self) -> bool {
        self.used_pages() < self.max_pages()
    }

    /// Notes the number of pages of the volume table after the first.
    pub fn set_table_pages(&mut self, pages: usize) {
        self.table_pages = pages;
    }

    /// Marks a page as changed.
    #[inline]
    pub fn mark_dirty(&mut self, slot: PageSlot) {
        let changed = &mut self.changed[slot.0 as usize];
        if !*changed {
            *changed = true;
            self.dirty.push(slot);
        }
    }

    /// Forgets the images of all pages: all are marked as changed.
    pub fn forget_images(&mut self) {
        for slot in (0..self.slots()).map(PageSlot) {
            if let Some(meta) = self.meta_mut(slot) {
                meta.pointer = PagePointer::default();
                self.mark_dirty(slot);
            }
        }
    }

    /// Clears the mark of a changed page, as its image is being taken. True if it was set.
    pub fn clear_dirty(&mut self, slot: PageSlot) -> bool {
        self.changed
            .get_mut(slot.0 as usize)
            .is_some_and(std::mem::take)
    }

    /// Takes the list of changed pages; they stay marked until their image is taken. Slots may have
    /// been freed since.
    pub fn take_dirty(&mut self) -> Vec<PageSlot> {
        std::mem::take(&mut self.dirty)
    }

    /// Number of pages in the dirty list.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }
}

/// A part of a directory.
#[derive(Debug)]
struct Node {
    /// Slot of each page plus one; 0 if there is no page.
    pages: [u32; NODE_PAGES],
    /// Number of pages.
    used: u32,
}

/// The directory of one volume.
#[derive(Debug, Default)]
pub struct VolumeMap {
    nodes: Vec<Option<Box<Node>>>,
    /// Blocks that hold data, exclusive or shared.
    pub mapped_blocks: u64,
    /// Blocks that refer to shared content.
    pub shared_blocks: u64,
    /// Units in which the blocks are stored.
    pub stored_units: u64,
    /// Blocks that are compressed.
    pub compressed_blocks: u64,
}

impl VolumeMap {
    /// The arena slot of page `index`.
    #[inline]
    pub fn slot(&self, index: u64) -> Option<PageSlot> {
        let node = self.nodes.get(index as usize / NODE_PAGES)?.as_ref()?;
        match node.pages[index as usize % NODE_PAGES] {
            0 => None,
            n => Some(PageSlot(n - 1)),
        }
    }

    /// Page and index of the entry of a block, unless it is a hole without a page.
    #[inline]
    pub fn locate(&self, lba: Lba) -> Option<(PageSlot, u8)> {
        let slot = self.slot(lba.0 / MAP_PAGE_ENTRIES as u64)?;
        Some((slot, (lba.0 % MAP_PAGE_ENTRIES as u64) as u8))
    }

    /// The entry of a block.
    #[inline]
    pub fn get(&self, arena: &MapArena, lba: Lba) -> MapEntry {
        match self.slot(lba.0 / MAP_PAGE_ENTRIES as u64) {
            Some(slot) => arena.page(slot)[lba.0 as usize % MAP_PAGE_ENTRIES],
            None => MapEntry::HOLE,
        }
    }

    /// Creates the page if it is absent; its index must be valid for a volume. `None` if the limit
    /// of the arena is reached.
    #[must_use]
    pub fn ensure(
        &mut self,
        arena: &mut MapArena,
        volume: VolumeId,
        index: u64,
    ) -> Option<PageSlot> {
        if let Some(slot) = self.slot(index) {
            return Some(slot);
        }
        debug_assert!(index < u64::from(FREE), "page {index} of volume {volume}");
        let slot = arena.allocate(volume, index as u32)?;
        let at = index as usize / NODE_PAGES;
        if at >= self.nodes.len() {
            self.nodes.resize_with(at + 1, || None);
        }
        let node = self.nodes[at].get_or_insert_with(|| {
            arena.nodes += 1;
            Box::new(Node {
                pages: [0; NODE_PAGES],
                used: 0,
            })
        });
        node.pages[index as usize % NODE_PAGES] = slot.0 + 1;
        node.used += 1;
        Some(slot)
    }

    /// Replaces an entry; returns the old one. The page must exist unless the new entry is a hole.
    #[inline]
    pub fn replace(&mut self, arena: &mut MapArena, lba: Lba, entry: MapEntry) -> MapEntry {
        let Some(slot) = self.slot(lba.0 / MAP_PAGE_ENTRIES as u64) else {
            debug_assert_eq!(entry, MapEntry::HOLE);
            return MapEntry::HOLE;
        };
        let old = std::mem::replace(
            &mut arena.page_mut(slot)[lba.0 as usize % MAP_PAGE_ENTRIES],
            entry,
        );
        self.mapped_blocks += u64::from(entry.is_data());
        self.mapped_blocks -= u64::from(old.is_data());
        let refers = [entry, old].map(|entry| u64::from(entry.is_data() && !entry.has_payload()));
        self.shared_blocks = self.shared_blocks + refers[0] - refers[1];
        arena.reference_changes += refers[0] | refers[1];
        self.stored_units += u64::from(entry.length_units());
        self.stored_units -= u64::from(old.length_units());
        self.compressed_blocks += u64::from(is_compressed(&entry));
        self.compressed_blocks -= u64::from(is_compressed(&old));
        arena.mark_dirty(slot);
        old
    }

    /// Fills a page at recovery from its image, without marking it changed.
    pub fn load(
        &mut self,
        arena: &mut MapArena,
        slot: PageSlot,
        entries: &[MapEntry; MAP_PAGE_ENTRIES],
    ) {
        *arena.page_mut(slot) = *entries;
        self.mapped_blocks += entries.iter().filter(|e| e.is_data()).count() as u64;
        self.shared_blocks += entries.iter().filter(|e| e.shared_id().is_some()).count() as u64;
        self.stored_units += entries
            .iter()
            .map(|e| u64::from(e.length_units()))
            .sum::<u64>();
        self.compressed_blocks += entries.iter().filter(|e| is_compressed(e)).count() as u64;
    }

    /// Entries of all its pages.
    pub fn entries<'a>(&'a self, arena: &'a MapArena) -> impl Iterator<Item = MapEntry> + 'a {
        let slots = self
            .nodes
            .iter()
            .flatten()
            .flat_map(|node| node.pages.iter())
            .filter(|number| **number != 0);
        slots.flat_map(|number| arena.page(PageSlot(number - 1)).iter().copied())
    }

    /// The first existing page at or after `index` and before `end`.
    pub fn next_page(&self, index: u64, end: u64) -> Option<u64> {
        let mut at = index;
        while at < end {
            match self.nodes.get(at as usize / NODE_PAGES) {
                None => return None,
                Some(None) => at = (at / NODE_PAGES as u64 + 1) * NODE_PAGES as u64,
                Some(Some(node)) => {
                    if node.pages[at as usize % NODE_PAGES] != 0 {
                        return Some(at);
                    }
                    at += 1;
                }
            }
        }
        None
    }

    /// Drops a page (which must hold only holes); returns the pointer of its last image.
    pub fn drop_page(&mut self, arena: &mut MapArena, index: u64) -> Option<PagePointer> {
        let slot = self.slot(index)?;
        let pointer = arena.meta(slot).map(|m| m.pointer);
        arena.release(slot);
        if let Some(slot) = self.nodes.get_mut(index as usize / NODE_PAGES)
            && let Some(node) = slot
        {
            node.pages[index as usize % NODE_PAGES] = 0;
            node.used -= 1;
            if node.used == 0 {
                *slot = None;
                arena.nodes -= 1;
            }
        }
        pointer
    }
}
