//! From batches to tables: for every block the newest entry, for every volume what is known of it.
//!
//! 1 Volumes: the newest image of the volume table that is left in a checkpoint batch, then the volume operations. 2 Blocks: user
//!   entries, then moves in the order of replay; an entry installs if its birth is not older than what is there, so that of equal
//!   births (a block and its moved copies) the last copy stays. A move out of the very place that is shown, with the same bytes, installs whatever its birth: repairs
//!   of former versions have none. Streams of moves lie in each other: where there are several, what has been moved out of the place shown is looked for again.
//!   3 Ranges and smaller sizes: each takes what is older than it.
//!
//! Records lie in segments that are used again once everything before them is in a checkpoint: those that are gone can not be
//! honoured, and blocks they had trimmed come back.

use super::super::chain::{Taken, batches_through};
use super::super::reader::Reader;
use super::super::replay::shown;
use super::super::{OpenError, Tables};
use super::scan::Scan;
use super::{RebuildPhase, RebuildProgress};
use crate::limits::{CLEANED_STREAMS, LBA_BITS, STREAM_CHECKPOINT, USER_STREAMS};
use std::collections::{BTreeMap, BTreeSet};
use windrow_layout::batch::{Entry, FillState, RangeState, VolumeChange};
use windrow_layout::checkpoint::{Compression, Dedup, MAP_PAGE_ENTRIES, OBJECT_VOLUMES, PagePointer, SyncMode, VolumeRecord, VolumeState, decode_volumes};
use windrow_layout::map_entry::MapEntry;
use windrow_layout::superblock::Superblock;
use windrow_units::{BLOCK_BYTES, Lba, Order, Place, VolumeId};

/// What is known of a volume.
#[derive(Clone, Debug, Default)]
struct Known {
    name: Option<String>,
    size_bytes: Option<u64>,
    read_only: bool,
    sync: SyncMode,
    compression: Compression,
    dedup: Dedup,
    deleted: bool,
    /// Highest block seen, plus one.
    end: u64,
}

/// Gathers; fills `tables` and returns the volumes whose names or sizes had to be made up, and how many records were honoured.
pub(super) struct Gather<'g> {
    superblock: &'g Superblock,
    accepted: Order,
    known: BTreeMap<VolumeId, Known>,
    /// Births of the blocks of each map page, by arena slot.
    births: Vec<[u64; MAP_PAGE_ENTRIES]>,
    pub(super) made_up: BTreeSet<VolumeId>,
    pub(super) records: u64,
    map_bytes: u64,
}

impl<'g> Gather<'g> {
    /// Everything with an order above `accepted` is left out.
    pub(super) fn new(superblock: &'g Superblock, accepted: Order, map_bytes: u64) -> Self {
        Self { superblock, accepted, known: BTreeMap::new(), births: Vec::new(), made_up: BTreeSet::new(), records: 0, map_bytes }
    }

    /// All three steps.
    pub(super) fn run(&mut self, reader: &mut Reader<'_>, scan: &Scan, tables: &mut Tables, watch: &mut dyn FnMut(RebuildProgress)) -> Result<(), OpenError> {
        let of = |streams: &'static [usize]| streams.iter().flat_map(|id| &scan.streams[*id]);
        let moves = || CLEANED_STREAMS.iter().rev().flat_map(|id| &scan.streams[*id]);
        let total = (2 * of(&USER_STREAMS).count() + moves().count()) as u64;
        let mut done = 0;
        let mut step = || {
            watch(RebuildProgress { phase: RebuildPhase::Map, done, total });
            done += 1;
        };
        self.volumes_from_pages(reader, &scan.streams[STREAM_CHECKPOINT])?;
        for taken in of(&USER_STREAMS).chain(moves()) {
            step();
            self.blocks_of(reader, taken, scan.remains.contains(&taken.segment), tables)?;
        }
        let several = CLEANED_STREAMS.iter().filter(|id| !scan.streams[**id].is_empty()).count() > 1;
        for _ in 0..if several { CLEANED_STREAMS.len() } else { 0 } {
            let mut followed = false;
            for taken in moves().filter(|taken| !scan.remains.contains(&taken.segment)) {
                followed |= self.follow_moves(reader, taken, tables)?;
            }
            if !followed {
                break;
            }
        }
        for taken in of(&USER_STREAMS) {
            step();
            self.ranges_of(reader, taken, tables)?;
        }
        self.settle_volumes(tables);
        Ok(())
    }

    /// The newest image of each page of the volume table.
    fn volumes_from_pages(&mut self, reader: &mut Reader<'_>, batches: &[Taken]) -> Result<(), OpenError> {
        let mut pages: BTreeMap<u32, PagePointer> = BTreeMap::new();
        for taken in batches {
            let batch = taken.batch(reader)?;
            for decoded in &batch.entries {
                if let Entry::Page { object: OBJECT_VOLUMES, index } = decoded.entry {
                    let entry = shown(&reader.codec, &batch, decoded);
                    pages.insert(index, PagePointer::to(entry.place(), entry.checksum(), taken.row as u16, taken.rows as u16));
                }
            }
        }
        let pointers: Vec<PagePointer> = pages.into_values().collect();
        for page in reader.pages(&pointers)?.into_iter().flatten() {
            for record in decode_volumes(&page).unwrap_or_default().into_iter().flatten() {
                let deleted = record.state == VolumeState::Deleting;
                let known = Known {
                    name: Some(record.name),
                    size_bytes: Some(record.size_bytes),
                    read_only: record.read_only,
                    sync: record.sync,
                    compression: record.compression,
                    dedup: record.dedup,
                    deleted,
                    end: 0,
                };
                self.known.insert(record.id, known);
            }
        }
        Ok(())
    }

    /// The entries of a batch. What `remains` of a segment whose extents another one has since is no place for a block.
    fn blocks_of(&mut self, reader: &mut Reader<'_>, taken: &Taken, remains: bool, tables: &mut Tables) -> Result<(), OpenError> {
        let through = batches_through(self.superblock, taken.epoch).min(self.accepted);
        let batch = taken.batch(reader)?;
        for decoded in &batch.entries {
            match &decoded.entry {
                Entry::Data { .. } | Entry::Move { .. } if remains => {}
                Entry::Data { volume, lba, birth } | Entry::Reference { volume, lba, birth, .. } if *birth <= through => {
                    self.install(*volume, *lba, *birth, shown(&reader.codec, &batch, decoded), tables)?;
                }
                Entry::Move { volume, lba, birth, from } if *birth <= through => {
                    let entry = shown(&reader.codec, &batch, decoded);
                    if !self.follow((*volume, *lba), (*birth, *from), entry, tables) {
                        self.install(*volume, *lba, *birth, entry, tables)?;
                    }
                }
                Entry::Fill { volume, lba, birth, state } if *birth <= through => {
                    let entry = if *state == FillState::Ones { MapEntry::ONES } else { MapEntry::ZERO };
                    self.install(*volume, *lba, *birth, entry, tables)?;
                }
                Entry::Volume { volume, order, change } if *order <= through => self.change(*volume, change),
                _ => {}
            }
        }
        Ok(())
    }

    /// Goes on to where the blocks of a batch were moved out of the places that are shown. True if there were any.
    fn follow_moves(&mut self, reader: &mut Reader<'_>, taken: &Taken, tables: &mut Tables) -> Result<bool, OpenError> {
        let through = batches_through(self.superblock, taken.epoch).min(self.accepted);
        let batch = taken.batch(reader)?;
        let mut followed = false;
        for decoded in &batch.entries {
            if let Entry::Move { volume, lba, birth, from } = &decoded.entry
                && *birth <= through
            {
                followed |= self.follow((*volume, *lba), (*birth, *from), shown(&reader.codec, &batch, decoded), tables);
            }
        }
        Ok(followed)
    }

    /// Installs a move out of the place that is shown. The bytes must be the same, or the birth not older: a former version of the block may have lain in that place,
    /// too.
    fn follow(&mut self, (volume, lba): (VolumeId, Lba), (birth, from): (Order, Place), entry: MapEntry, tables: &mut Tables) -> bool {
        let Some((v, arena)) = tables.volumes.get_mut(volume).filter(|_| lba.0 >> LBA_BITS == 0) else { return false };
        let now = v.map.get(arena, lba);
        let Some(slot) = v.map.slot(lba.0 / MAP_PAGE_ENTRIES as u64).filter(|_| now.has_payload() && now.place() == from) else { return false };
        let Some(born) = self.births.get_mut(slot.0 as usize).map(|births| &mut births[lba.0 as usize % MAP_PAGE_ENTRIES]) else { return false };
        let is_same = (now.checksum(), now.length_units()) == (entry.checksum(), entry.length_units());
        if !is_same && birth.0 < *born {
            return false;
        }
        *born = birth.0.max(*born);
        v.map.replace(arena, lba, entry.with_life(now.life()));
        true
    }

    /// A volume operation. The page of the table may be newer than it: both then say the same, as operations are idempotent in their order.
    fn change(&mut self, volume: VolumeId, change: &VolumeChange) {
        self.records += 1;
        let known = self.known.entry(volume).or_default();
        match change {
            VolumeChange::Create { name, size_bytes } => {
                known.name.get_or_insert_with(|| name.clone());
                known.size_bytes.get_or_insert(*size_bytes);
            }
            VolumeChange::Resize { size_bytes } => known.size_bytes = Some(*size_bytes),
            VolumeChange::Delete => known.deleted = true,
            VolumeChange::SetReadOnly(read_only) => known.read_only = *read_only,
            VolumeChange::SetSync(sync) => known.sync = *sync,
            VolumeChange::SetCompression(compression) => known.compression = *compression,
            VolumeChange::SetDedup(dedup) => known.dedup = *dedup,
        }
    }

    fn install(&mut self, volume: VolumeId, lba: Lba, birth: Order, entry: MapEntry, tables: &mut Tables) -> Result<(), OpenError> {
        // (Pages of the index are not worth it: which of them is the newest is in the map alone.)
        if lba.0 >> LBA_BITS != 0 || volume == VolumeId::INDEX {
            return Ok(());
        }
        if volume != VolumeId::SHARED {
            let known = self.known.entry(volume).or_default();
            known.end = known.end.max(lba.0 + 1);
        }
        if tables.volumes.get(volume).is_none() {
            let record = VolumeRecord::new(volume, 0, String::new());
            tables.volumes.add(record);
        }
        let Some((v, arena)) = tables.volumes.get_mut(volume) else { return Ok(()) };
        let limit = self.map_bytes;
        let slot = v.map.ensure(arena, volume, lba.0 / MAP_PAGE_ENTRIES as u64).ok_or(OpenError::MapMemory { limit })?;
        if self.births.len() <= slot.0 as usize {
            self.births.resize(slot.0 as usize + 1, [0; MAP_PAGE_ENTRIES]);
        }
        let born = &mut self.births[slot.0 as usize][lba.0 as usize % MAP_PAGE_ENTRIES];
        if birth.0 >= *born {
            *born = birth.0;
            v.map.replace(arena, lba, entry);
        }
        Ok(())
    }

    fn ranges_of(&mut self, reader: &mut Reader<'_>, taken: &Taken, tables: &mut Tables) -> Result<(), OpenError> {
        let through = batches_through(self.superblock, taken.epoch).min(self.accepted);
        for decoded in &taken.batch(reader)?.entries {
            match &decoded.entry {
                Entry::Range { volume, lba, count, order, state } if *order <= through => {
                    self.records += 1;
                    let entry = if *state == RangeState::Zero { MapEntry::ZERO } else { MapEntry::HOLE };
                    self.clear(*volume, lba.0, lba.0.saturating_add(*count), *order, entry, tables);
                }
                Entry::Volume { volume, order, change: VolumeChange::Resize { size_bytes } } if *order <= through => {
                    self.clear(*volume, size_bytes / BLOCK_BYTES, 1 << LBA_BITS, *order, MapEntry::HOLE, tables);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Blocks `first .. end` that are older than `order` become `entry`. Only pages with blocks in them are looked at: a zeroed range
    /// elsewhere reads as zeroes anyway.
    fn clear(&mut self, volume: VolumeId, first: u64, end: u64, order: Order, entry: MapEntry, tables: &mut Tables) {
        let page = MAP_PAGE_ENTRIES as u64;
        let Some((v, arena)) = tables.volumes.get_mut(volume) else { return };
        let mut at = first;
        while at < end {
            let Some(index) = v.map.next_page(at / page, end.div_ceil(page)) else { return };
            let Some(slot) = v.map.slot(index) else { return };
            let stop = end.min((index + 1) * page);
            for lba in at.max(index * page)..stop {
                if let Some(born) = self.births.get_mut(slot.0 as usize).map(|b| &mut b[(lba % page) as usize])
                    && *born < order.0
                {
                    *born = order.0;
                    v.map.replace(arena, Lba(lba), entry);
                }
            }
            at = stop;
        }
    }

    /// Names and sizes; deleted volumes go, and blocks beyond a known size.
    fn settle_volumes(&mut self, tables: &mut Tables) {
        let known = std::mem::take(&mut self.known);
        let mut names: BTreeSet<String> = BTreeSet::new();
        // The newest first: of volumes with one name it is the one that was there last.
        for (id, known) in known.into_iter().rev() {
            let blocks = known.size_bytes.map(|s| s / BLOCK_BYTES);
            let cut = if known.deleted { Some(0) } else { blocks };
            if let Some(cut) = cut {
                self.clear(id, cut, 1 << LBA_BITS, Order(u64::MAX), MapEntry::HOLE, tables);
            }
            if known.deleted {
                drop_pages(tables, id);
                tables.volumes.remove(id);
                continue;
            }
            let name = known.name.filter(|name| names.insert(name.clone()));
            if name.is_none() || known.size_bytes.is_none() {
                self.made_up.insert(id);
            }
            let record = VolumeRecord {
                id,
                state: VolumeState::Active,
                read_only: known.read_only,
                sync: known.sync,
                compression: known.compression,
                dedup: known.dedup,
                size_bytes: known.size_bytes.unwrap_or(known.end.max(1) * BLOCK_BYTES),
                name: name.unwrap_or_else(|| format!("recovered-{id}")),
            };
            if tables.volumes.get(id).is_none() {
                tables.volumes.add(record);
            } else {
                tables.volumes.change(id, |r| *r = record);
            }
        }
        tables.volumes.count_used();
    }
}

/// Gives back the map pages of a volume that holds nothing.
fn drop_pages(tables: &mut Tables, id: VolumeId) {
    let Some((v, arena)) = tables.volumes.get_mut(id) else { return };
    let mut next = 0;
    while let Some(index) = v.map.next_page(next, u64::from(u32::MAX)) {
        v.map.drop_page(arena, index);
        next = index + 1;
    }
}
