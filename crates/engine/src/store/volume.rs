//! The volume table with each volume's map, and the count of blocks that hold data.
//!
//! `used_blocks` counts blocks whose newest admitted state is data. Admission compares it with the
//! pool's usable space, so that accepted data always fits (invariant 7). `charge` is the space that
//! these blocks count for.

mod ids;
mod lookup;

use crate::base::limits::{LBA_BITS, MAX_VOLUMES};
use crate::base::weight::weight_of;
use crate::store::map::{MapArena, VolumeMap};
use hashbrown::HashMap;
pub(crate) use ids::Ids;
use rustc_hash::FxBuildHasher;
use windrow_format::checkpoint::{PagePointer, VOLUMES_PER_PAGE, VolumeRecord, VolumeState};
use windrow_format::index_page::INDEX_PAGES_MAX;
use windrow_format::map_entry::MapEntry;
use windrow_types::{BLOCK_BYTES, VolumeId};

/// One volume.
#[derive(Debug)]
pub struct Volume {
    /// Its record.
    pub record: VolumeRecord,
    /// Its map.
    pub map: VolumeMap,
}

impl Volume {
    /// Blocks.
    pub fn blocks(&self) -> u64 {
        self.record.size_bytes / BLOCK_BYTES
    }
}

/// All volumes.
#[derive(Debug)]
pub struct Volumes {
    slots: Vec<Option<Volume>>,
    by_id: HashMap<u32, u32, FxBuildHasher>,
    /// The shared volume; not in the volume table.
    shared: Volume,
    /// The volume of deduplication index pages; not in the volume table.
    index: Volume,
    /// The ids of shared content.
    pub ids: Ids,
    /// Map pages of all volumes.
    pub arena: MapArena,
    /// Highest id ever given.
    pub last_id: u32,
    /// Blocks whose newest state is data.
    used_blocks: u64,
    /// Charge of these blocks, in units (`base/weight.rs`).
    charge: u64,
    /// Table pages (32 slots each) that changed since their last image.
    pub dirty_pages: Vec<u32>,
    /// Number of changes of records.
    pub version: u64,
    /// Number of volume shrinks.
    cuts: u64,
    /// True if the log may have records of new names.
    pub renamed: bool,
    /// Map pages dropped since the last checkpoint began, with the pointers to their images.
    pub dropped: Vec<(VolumeId, u32, PagePointer)>,
}

impl Volumes {
    /// An empty table.
    pub fn new(map_bytes: u64) -> Self {
        Self {
            slots: Vec::new(),
            by_id: HashMap::with_capacity_and_hasher(64, FxBuildHasher),
            shared: Volume {
                record: VolumeRecord::new(VolumeId::SHARED, BLOCK_BYTES << LBA_BITS, String::new()),
                map: VolumeMap::default(),
            },
            index: Volume {
                record: VolumeRecord::new(
                    VolumeId::INDEX,
                    INDEX_PAGES_MAX * BLOCK_BYTES,
                    String::new(),
                ),
                map: VolumeMap::default(),
            },
            ids: Ids::default(),
            arena: MapArena::new(map_bytes),
            last_id: 0,
            used_blocks: 0,
            charge: 0,
            dirty_pages: Vec::new(),
            version: 0,
            cuts: 0,
            renamed: false,
            dropped: Vec::new(),
        }
    }

    /// Blocks whose newest state is data.
    pub fn used_blocks(&self) -> u64 {
        self.used_blocks
    }

    /// Space that the blocks are charged with, in units (`base/weight.rs`).
    pub fn charge(&self) -> u64 {
        self.charge
    }

    /// Blocks become data, and take this much more.
    #[inline]
    pub fn take_space(&mut self, blocks: u64, units: u64) {
        self.used_blocks += blocks;
        self.charge += units;
    }

    /// Blocks are data no longer, and give this much back.
    #[inline]
    pub fn release_space(&mut self, blocks: u64, units: u64) {
        assert!(
            blocks <= self.used_blocks && units <= self.charge,
            "more space is released than was taken"
        );
        self.used_blocks -= blocks;
        self.charge -= units;
    }

    /// Number of times that a volume was made smaller.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// A volume is about to be made smaller.
    pub fn note_cut(&mut self) {
        self.cuts += 1;
    }

    /// A volume, including deleted and hidden ones.
    #[inline]
    pub fn get(&self, id: VolumeId) -> Option<&Volume> {
        match id {
            VolumeId::SHARED => return Some(&self.shared),
            VolumeId::INDEX => return Some(&self.index),
            _ => {}
        }
        let slot = *self.by_id.get(&id.0)?;
        self.slots[slot as usize].as_ref()
    }

    /// A volume and the arena, both mutable.
    #[inline]
    pub fn get_mut(&mut self, id: VolumeId) -> Option<(&mut Volume, &mut MapArena)> {
        match id {
            VolumeId::SHARED => return Some((&mut self.shared, &mut self.arena)),
            VolumeId::INDEX => return Some((&mut self.index, &mut self.arena)),
            _ => {}
        }
        let slot = *self.by_id.get(&id.0)?;
        Some((self.slots[slot as usize].as_mut()?, &mut self.arena))
    }

    /// A volume that is in use.
    #[inline]
    pub fn active(&self, id: VolumeId) -> Option<&Volume> {
        self.get(id).filter(|v| {
            v.record.state == VolumeState::Active
                && ![VolumeId::SHARED, VolumeId::INDEX].contains(&id)
        })
    }

    /// A volume in use by name.
    pub fn by_name(&self, name: &str) -> Option<&Volume> {
        self.iter()
            .find(|v| v.record.state == VolumeState::Active && v.record.name == name)
    }

    /// All volumes in order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Volume> {
        self.slots.iter().flatten()
    }

    /// All volumes, and the hidden ones: the shared volume and that of the index.
    pub fn with_hidden(&self) -> impl Iterator<Item = &Volume> {
        self.iter().chain([&self.shared, &self.index])
    }

    /// Entries of all maps that have a payload.
    pub fn payloads(&self) -> impl Iterator<Item = MapEntry> + '_ {
        self.with_hidden()
            .flat_map(|v| v.map.entries(&self.arena))
            .filter(MapEntry::has_payload)
    }

    /// User blocks that hold data, by the maps.
    pub fn mapped_blocks(&self) -> u64 {
        self.iter().map(|v| v.map.mapped_blocks).sum()
    }

    /// Charge of all user blocks by the maps, in units.
    pub fn mapped_charge(&self) -> u64 {
        self.iter()
            .chain([&self.shared])
            .map(|v| weight_of(v.map.stored_units, v.map.compressed_blocks))
            .sum()
    }

    /// Recomputes the used space from the maps (at a start: nothing is in flight).
    pub fn count_used(&mut self) {
        (self.used_blocks, self.charge) = (self.mapped_blocks(), self.mapped_charge());
    }

    /// Units in which all blocks are stored, index pages included, and the number of compressed
    /// blocks, by the maps.
    pub fn stored_units(&self) -> (u64, u64) {
        self.with_hidden().fold((0, 0), |(units, compressed), v| {
            (
                units + v.map.stored_units,
                compressed + v.map.compressed_blocks,
            )
        })
    }

    /// Units in which the user blocks are stored.
    pub fn stored_units_of_users(&self) -> u64 {
        self.stored_units().0 - self.index.map.stored_units
    }

    /// True if no more volumes fit.
    pub fn is_full(&self) -> bool {
        self.by_id.len() >= MAX_VOLUMES
    }

    /// True if one more volume needs a table page that a checkpoint has no room for.
    pub fn lacks_table_page(&self) -> bool {
        let is_new = self.slots.len().is_multiple_of(VOLUMES_PER_PAGE)
            && !self.slots.is_empty()
            && self.slots.iter().all(Option::is_some);
        is_new && !self.arena.has_room()
    }

    /// Counts the table pages after the first against the limit of map pages. (Not during a start,
    /// which may need pages that it frees at its end.)
    pub fn count_table_pages(&mut self) {
        self.arena.set_table_pages(
            self.slots
                .len()
                .div_ceil(VOLUMES_PER_PAGE)
                .saturating_sub(1),
        );
    }

    /// Adds a volume.
    pub fn add(&mut self, record: VolumeRecord) {
        let slot = self
            .slots
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
        self.put(slot, record);
        self.mark_dirty(slot);
    }

    /// Puts a volume into a given slot (recovery).
    pub fn put(&mut self, slot: usize, record: VolumeRecord) {
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.last_id = self.last_id.max(record.id.0);
        self.by_id.insert(record.id.0, slot as u32);
        self.slots[slot] = Some(Volume {
            record,
            map: VolumeMap::default(),
        });
    }

    /// Changes a record.
    pub fn change(&mut self, id: VolumeId, change: impl FnOnce(&mut VolumeRecord)) {
        let Some(slot) = self.by_id.get(&id.0).copied() else {
            return;
        };
        if let Some(volume) = self.slots[slot as usize].as_mut() {
            change(&mut volume.record);
        }
        self.mark_dirty(slot as usize);
    }

    /// Forgets a deleted volume whose map is empty.
    pub fn remove(&mut self, id: VolumeId) {
        if let Some(slot) = self.by_id.remove(&id.0) {
            self.slots[slot as usize] = None;
            self.mark_dirty(slot as usize);
        }
    }

    fn mark_dirty(&mut self, slot: usize) {
        self.version += 1;
        let page = (slot / VOLUMES_PER_PAGE) as u32;
        if !self.dirty_pages.contains(&page) {
            self.dirty_pages.push(page);
        }
    }

    /// Makes the next checkpoint write every table page. A checkpoint cut off by a crash may have
    /// left images with operations that the start refused. A salvage without a checkpoint can only
    /// take the newest images.
    pub fn rewrite_table(&mut self) {
        (0..self.slots.len())
            .step_by(VOLUMES_PER_PAGE)
            .for_each(|slot| self.mark_dirty(slot));
    }

    /// Records of a table page.
    pub fn table_page(&self, page: u32) -> Vec<Option<VolumeRecord>> {
        let first = page as usize * VOLUMES_PER_PAGE;
        (first..first + VOLUMES_PER_PAGE)
            .map(|s| {
                self.slots
                    .get(s)
                    .and_then(|v| v.as_ref().map(|v| v.record.clone()))
            })
            .collect()
    }
}
