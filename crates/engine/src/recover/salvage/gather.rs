//! Gathers the tables from batches: the newest entry of every block, and everything known of each
//! volume.
//!
//! 1. Volumes: the newest image of the volume table in a checkpoint batch, then the volume
//!    operations.
//! 2. Blocks: user entries, then moves in the order in which they were written ([`super::moves`]).
//!    An entry installs if its birth is not older than that of the installed one. So of equal
//!    births (a block and its moved copies) the last copy stays. A move out of exactly the address
//!    shown, with the same bytes, installs whatever its birth: repairs of earlier versions have
//!    none. Moved blocks may be moved again by other streams: with several streams, moves out of
//!    the address shown are searched for again.
//! 3. Ranges and smaller sizes: each removes older blocks.
//!
//! Segments with records are reused once everything before them is in a checkpoint. Records that
//! are gone cannot be honoured, and blocks that they had trimmed come back.

use super::super::chain::Taken;
use super::super::reader::Reader;
use super::super::replay::shown;
use super::super::{OpenError, Tables};
use super::base::Start;
use super::moves::Moves;
use super::scan::Scan;
use super::{RebuildPhase, RebuildProgress};
use crate::base::limits::{
    CLEANED_STREAMS, LBA_BITS, MAX_VOLUME_BYTES, STREAM_CHECKPOINT, USER_STREAMS,
};
use crate::store::plan::ids_end;
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::batch::{DecodedBatch, Entry, FillState, RangeState, VolumeChange};
use windrow_format::checkpoint::{
    Compression, Dedup, MAP_PAGE_ENTRIES, OBJECT_VOLUMES, PagePointer, SyncMode, VolumeRecord,
    VolumeState, decode_volumes,
};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::Superblock;
use windrow_types::{Address, BLOCK_BYTES, Lba, Lsn, VolumeId};

/// Known properties of a volume.
#[derive(Clone, Debug, Default)]
struct Known {
    name: Option<String>,
    size_bytes: Option<u64>,
    read_only: bool,
    sync: SyncMode,
    compression: Compression,
    dedup: Dedup,
    deleted: bool,
    /// Operations up to this LSN are included.
    as_of: Lsn,
    /// LSN of the last change of its size after that.
    sized: Lsn,
    /// Highest block seen, plus one.
    end: u64,
}

impl Known {
    /// From an image of the table with everything up to `as_of`.
    fn of(record: VolumeRecord, as_of: Lsn) -> Self {
        Self {
            as_of,
            deleted: record.state == VolumeState::Deleting,
            name: Some(record.name),
            size_bytes: Some(record.size_bytes),
            read_only: record.read_only,
            sync: record.sync,
            compression: record.compression,
            dedup: record.dedup,
            ..Self::default()
        }
    }
}

/// Gathers into `tables`; counts the records honoured and keeps the volumes whose names or sizes
/// were made up.
pub(super) struct Gather<'g> {
    superblock: &'g Superblock,
    accepted: Lsn,
    start: Start,
    on_checkpoint: bool,
    known: BTreeMap<VolumeId, Known>,
    /// Births of the blocks of each map page, by arena slot.
    births: Vec<[u64; MAP_PAGE_ENTRIES]>,
    pub(super) made_up: BTreeSet<VolumeId>,
    /// Volumes known to be deleted.
    pub(super) deleted: BTreeSet<VolumeId>,
    pub(super) records: u64,
    map_bytes: u64,
    /// End of the ids that the pool can have allocated.
    ids_end: u64,
}

impl<'g> Gather<'g> {
    /// Ignores everything with an LSN above `accepted`.
    pub(super) fn new(superblock: &'g Superblock, accepted: Lsn, map_bytes: u64) -> Self {
        Self {
            superblock,
            accepted,
            start: Start::default(),
            on_checkpoint: false,
            known: BTreeMap::new(),
            births: Vec::new(),
            made_up: BTreeSet::new(),
            deleted: BTreeSet::new(),
            records: 0,
            map_bytes,
            ids_end: ids_end(superblock.zones.iter()),
        }
    }

    /// Starts from the `tables` of a checkpoint: only newer entries count.
    pub(super) fn stand_on(&mut self, start: Start, tables: &Tables) {
        self.start = start;
        // Births of the checkpoint's blocks are unknown: later entries are newer.
        self.births = vec![[0; MAP_PAGE_ENTRIES]; tables.volumes.arena.slots() as usize];
        self.on_checkpoint = true;
        self.known = tables
            .volumes
            .iter()
            .map(|volume| {
                (
                    volume.record.id,
                    Known::of(volume.record.clone(), start.lsn),
                )
            })
            .collect();
    }

    /// Runs all three steps.
    pub(super) fn run(
        &mut self,
        reader: &mut Reader<'_>,
        scan: &Scan,
        tables: &mut Tables,
        watch: &mut dyn FnMut(RebuildProgress),
    ) -> Result<(), OpenError> {
        let first = self.start.first;
        let newer = |id: &usize| {
            let all = &scan.streams[*id];
            &all[all.partition_point(|taken| taken.seq < first[*id])..]
        };
        let of = |streams: &'static [usize]| streams.iter().flat_map(newer);
        let moves = || CLEANED_STREAMS.iter().rev().flat_map(newer);
        let total = (2 * of(&USER_STREAMS).count() + moves().count()) as u64;
        let mut done = 0;
        let mut step = || {
            watch(RebuildProgress {
                phase: RebuildPhase::Map,
                done,
                total,
            });
            done += 1;
        };
        if !self.on_checkpoint {
            // A checkpoint that was not completed may have entries that were never active.
            let end = self
                .superblock
                .checkpoints
                .iter()
                .flatten()
                .map(|root| root.flushed_seq[STREAM_CHECKPOINT])
                .max();
            let batches = &scan.streams[STREAM_CHECKPOINT];
            self.volumes_from_pages(
                reader,
                &batches[..batches.partition_point(|taken| end.is_none_or(|end| taken.seq <= end))],
            )?;
        }
        for taken in of(&USER_STREAMS) {
            step();
            let batch = taken.batch(reader)?;
            self.blocks_of(reader, taken, &batch, scan, tables)?;
        }
        let mut in_order = Moves::new(reader, CLEANED_STREAMS.iter().rev().map(newer))?;
        while let Some((taken, batch)) = in_order.next(reader)? {
            step();
            self.blocks_of(reader, taken, &batch, scan, tables)?;
        }
        let several = CLEANED_STREAMS
            .iter()
            .filter(|id| !scan.streams[**id].is_empty())
            .count()
            > 1;
        for _ in 0..if several { CLEANED_STREAMS.len() } else { 0 } {
            let mut followed = false;
            for taken in moves().filter(|taken| !scan.remains.contains(&taken.segment)) {
                followed |= self.follow_moves(reader, taken, scan, tables)?;
            }
            if !followed {
                break;
            }
        }
        for taken in of(&USER_STREAMS) {
            step();
            self.ranges_of(reader, taken, scan, tables)?;
        }
        self.settle_volumes(tables);
        Ok(())
    }

    /// Collects the newest readable image of each page of the volume table.
    fn volumes_from_pages(
        &mut self,
        reader: &mut Reader<'_>,
        batches: &[Taken],
    ) -> Result<(), OpenError> {
        let mut pages: BTreeMap<u32, Vec<(PagePointer, Lsn)>> = BTreeMap::new();
        // An image has all operations that were durable when the batch before its own was sealed.
        let mut as_of = Lsn(0);
        for taken in batches {
            let batch = taken.batch(reader)?;
            for decoded in &batch.entries {
                if let Entry::Page {
                    object: OBJECT_VOLUMES,
                    index,
                } = decoded.entry
                {
                    let entry = shown(&reader.codec, &batch, decoded);
                    let pointer = PagePointer::to(
                        entry.address(),
                        entry.checksum(),
                        taken.row as u16,
                        taken.rows as u16,
                    );
                    pages.entry(index).or_default().push((pointer, as_of));
                }
            }
            as_of = as_of.max(batch.frame.header.flushed_through);
        }
        let root = self
            .superblock
            .checkpoints
            .iter()
            .flatten()
            .map(|root| root.lsn)
            .max()
            .unwrap_or_default();
        for images in pages.into_values() {
            for (age, (pointer, as_of)) in images.into_iter().rev().enumerate() {
                let Some(page) = reader.pages(&[pointer])?.pop().flatten() else {
                    continue;
                };
                let Ok(records) = decode_volumes(&page) else {
                    continue;
                };
                // The newest one is that of the last checkpoint.
                let as_of = if age == 0 { root.max(as_of) } else { as_of };
                self.known.extend(
                    records
                        .into_iter()
                        .flatten()
                        .map(|record| (record.id, Known::of(record, as_of))),
                );
                break;
            }
        }
        Ok(())
    }

    /// Applies the entries of a batch. An address in `remains`, a segment whose extents another one
    /// has since, holds no block.
    fn blocks_of(
        &mut self,
        reader: &Reader<'_>,
        taken: &Taken,
        batch: &DecodedBatch,
        scan: &Scan,
        tables: &mut Tables,
    ) -> Result<(), OpenError> {
        let through = scan
            .through(self.superblock, taken.epoch)
            .min(self.accepted);
        let remains = scan.remains.contains(&taken.segment);
        for decoded in &batch.entries {
            match &decoded.entry {
                Entry::Data { .. } | Entry::Move { .. } if remains => {}
                Entry::Data { volume, lba, birth }
                | Entry::Reference {
                    volume, lba, birth, ..
                } if self.counts(*birth, through) => {
                    self.install(
                        *volume,
                        *lba,
                        *birth,
                        shown(&reader.codec, batch, decoded),
                        tables,
                    )?;
                }
                Entry::Move {
                    volume,
                    lba,
                    birth,
                    from,
                } if *birth <= through => {
                    let entry = shown(&reader.codec, batch, decoded);
                    // A checkpoint shows every address: a block that is not moved from there is
                    // newer, or was moved before.
                    match self.follow((*volume, *lba), (*birth, *from), entry, tables) {
                        true => {}
                        false if self.on_checkpoint => {
                            self.confirm((*volume, *lba), *birth, entry, tables)
                        }
                        false => self.install(*volume, *lba, *birth, entry, tables)?,
                    }
                }
                Entry::Fill {
                    volume,
                    lba,
                    birth,
                    state,
                } if self.counts(*birth, through) => {
                    let entry = if *state == FillState::Ones {
                        MapEntry::ONES
                    } else {
                        MapEntry::ZERO
                    };
                    self.install(*volume, *lba, *birth, entry, tables)?;
                }
                Entry::Volume {
                    volume,
                    lsn,
                    change,
                } if self.counts(*lsn, through) => self.change(*volume, *lsn, change),
                _ => {}
            }
        }
        Ok(())
    }

    /// True if an entry with this LSN or birth counts.
    fn counts(&self, lsn: Lsn, through: Lsn) -> bool {
        self.start.lsn < lsn && lsn <= through
    }

    /// Follows moves of the batch's blocks out of the addresses shown. True if there were any.
    fn follow_moves(
        &mut self,
        reader: &mut Reader<'_>,
        taken: &Taken,
        scan: &Scan,
        tables: &mut Tables,
    ) -> Result<bool, OpenError> {
        let through = scan
            .through(self.superblock, taken.epoch)
            .min(self.accepted);
        let batch = taken.batch(reader)?;
        let mut followed = false;
        for decoded in &batch.entries {
            if let Entry::Move {
                volume,
                lba,
                birth,
                from,
            } = &decoded.entry
                && *birth <= through
            {
                followed |= self.follow(
                    (*volume, *lba),
                    (*birth, *from),
                    shown(&reader.codec, &batch, decoded),
                    tables,
                );
            }
        }
        Ok(followed)
    }

    /// Installs a move out of the address shown. The bytes must be the same, or the birth not
    /// older: an earlier version of the block may have been at that address as well.
    fn follow(
        &mut self,
        (volume, lba): (VolumeId, Lba),
        (birth, from): (Lsn, Address),
        entry: MapEntry,
        tables: &mut Tables,
    ) -> bool {
        let Some((v, arena)) = tables
            .volumes
            .get_mut(volume)
            .filter(|_| lba.0 >> LBA_BITS == 0)
        else {
            return false;
        };
        let now = v.map.get(arena, lba);
        let Some(slot) = v
            .map
            .slot(lba.0 / MAP_PAGE_ENTRIES as u64)
            .filter(|_| now.has_payload() && now.address() == from)
        else {
            return false;
        };
        let Some(born) = self
            .births
            .get_mut(slot.0 as usize)
            .map(|births| &mut births[lba.0 as usize % MAP_PAGE_ENTRIES])
        else {
            return false;
        };
        let is_same =
            (now.checksum(), now.length_units()) == (entry.checksum(), entry.length_units());
        if !is_same && birth.0 < *born {
            return false;
        }
        *born = birth.0.max(*born);
        v.map
            .replace(arena, lba, entry.with_incarnation(now.incarnation()));
        true
    }

    /// Confirms an entry that the checkpoint shows at the batch's address.
    fn confirm(
        &mut self,
        (volume, lba): (VolumeId, Lba),
        birth: Lsn,
        entry: MapEntry,
        tables: &Tables,
    ) {
        let Some(v) = tables
            .volumes
            .get(volume)
            .filter(|_| lba.0 >> LBA_BITS == 0)
        else {
            return;
        };
        let now = v.map.get(&tables.volumes.arena, lba);
        let is_it = now.has_payload()
            && (now.address(), now.checksum(), now.length_units())
                == (entry.address(), entry.checksum(), entry.length_units());
        let births = v
            .map
            .slot(lba.0 / MAP_PAGE_ENTRIES as u64)
            .and_then(|slot| self.births.get_mut(slot.0 as usize));
        if let Some(births) = births.filter(|_| is_it) {
            let born = &mut births[lba.0 as usize % MAP_PAGE_ENTRIES];
            *born = birth.0.max(*born);
        }
    }

    /// Drops blocks that only the checkpoint has and whose address is `gone`: no newer version is
    /// known.
    pub(super) fn drop_gone(&self, gone: impl Fn(Address) -> bool, tables: &mut Tables) {
        let births = &self.births;
        let ids: Vec<VolumeId> = tables.volumes.with_hidden().map(|v| v.record.id).collect();
        for id in ids {
            let Some((v, arena)) = tables.volumes.get_mut(id) else {
                continue;
            };
            let mut next = 0;
            while let Some(index) = v.map.next_page(next, u64::from(u32::MAX)) {
                next = index + 1;
                let Some(born) = v
                    .map
                    .slot(index)
                    .and_then(|slot| births.get(slot.0 as usize))
                else {
                    continue;
                };
                for lba in (index * MAP_PAGE_ENTRIES as u64..)
                    .zip(born)
                    .filter(|(_, born)| **born == 0)
                    .map(|(lba, _)| Lba(lba))
                {
                    let entry = v.map.get(arena, lba);
                    if !entry.has_payload() || !gone(entry.address()) {
                        continue;
                    }
                    // References to missing content are reported for that reason.
                    let is_shared = id == VolumeId::SHARED;
                    v.map.replace(
                        arena,
                        lba,
                        if is_shared {
                            MapEntry::HOLE
                        } else {
                            MapEntry::LOST
                        },
                    );
                }
            }
        }
    }

    /// Applies a volume operation. Operations in the table's image are ignored, even if a later one
    /// is in the image alone.
    fn change(&mut self, volume: VolumeId, lsn: Lsn, change: &VolumeChange) {
        let known = self.known.entry(volume).or_default();
        if lsn <= known.as_of {
            return;
        }
        self.records += 1;
        match change {
            VolumeChange::Create { name, size_bytes } => {
                known.name.get_or_insert_with(|| name.clone());
                known.size_bytes.get_or_insert(*size_bytes);
            }
            VolumeChange::Resize { size_bytes } => {
                (known.size_bytes, known.sized) = (Some(*size_bytes), lsn)
            }
            VolumeChange::Delete => known.deleted = true,
            VolumeChange::SetReadOnly(read_only) => known.read_only = *read_only,
            VolumeChange::SetSync(sync) => known.sync = *sync,
            VolumeChange::SetCompression(compression) => known.compression = *compression,
            VolumeChange::SetDedup(dedup) => known.dedup = *dedup,
            VolumeChange::Rename { name } => known.name = Some(name.clone()),
        }
    }

    fn install(
        &mut self,
        volume: VolumeId,
        lba: Lba,
        birth: Lsn,
        entry: MapEntry,
        tables: &mut Tables,
    ) -> Result<(), OpenError> {
        // Index pages are not worth it: the newest one of them is known from the map alone.
        let end = if volume == VolumeId::SHARED {
            self.ids_end
        } else {
            MAX_VOLUME_BYTES / BLOCK_BYTES
        };
        if lba.0 >= end || volume == VolumeId::INDEX {
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
        let Some((v, arena)) = tables.volumes.get_mut(volume) else {
            return Ok(());
        };
        let limit = self.map_bytes;
        let slot = v
            .map
            .ensure(arena, volume, lba.0 / MAP_PAGE_ENTRIES as u64)
            .ok_or(OpenError::MapMemory { limit })?;
        if self.births.len() <= slot.0 as usize {
            self.births
                .resize(slot.0 as usize + 1, [0; MAP_PAGE_ENTRIES]);
        }
        let born = &mut self.births[slot.0 as usize][lba.0 as usize % MAP_PAGE_ENTRIES];
        if birth.0 >= *born {
            *born = birth.0;
            v.map.replace(arena, lba, entry);
        }
        Ok(())
    }

    fn ranges_of(
        &mut self,
        reader: &mut Reader<'_>,
        taken: &Taken,
        scan: &Scan,
        tables: &mut Tables,
    ) -> Result<(), OpenError> {
        let through = scan
            .through(self.superblock, taken.epoch)
            .min(self.accepted);
        for decoded in &taken.batch(reader)?.entries {
            match &decoded.entry {
                Entry::Range {
                    volume,
                    lba,
                    count,
                    lsn,
                    state,
                } if self.counts(*lsn, through) => {
                    self.records += 1;
                    let entry = if *state == RangeState::Zero {
                        MapEntry::ZERO
                    } else {
                        MapEntry::HOLE
                    };
                    self.clear(
                        *volume,
                        lba.0,
                        lba.0.saturating_add(*count),
                        *lsn,
                        entry,
                        tables,
                    );
                }
                Entry::Volume {
                    volume,
                    lsn,
                    change: VolumeChange::Resize { size_bytes },
                } if self.counts(*lsn, through) => {
                    self.clear(
                        *volume,
                        size_bytes / BLOCK_BYTES,
                        1 << LBA_BITS,
                        *lsn,
                        MapEntry::HOLE,
                        tables,
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets blocks `first .. end` that are older than `lsn` to `entry`. Only pages with blocks are
    /// visited: a zeroed range elsewhere reads as zeroes anyway.
    fn clear(
        &mut self,
        volume: VolumeId,
        first: u64,
        end: u64,
        lsn: Lsn,
        entry: MapEntry,
        tables: &mut Tables,
    ) {
        let page = MAP_PAGE_ENTRIES as u64;
        let Some((v, arena)) = tables.volumes.get_mut(volume) else {
            return;
        };
        let mut at = first;
        while at < end {
            let Some(index) = v.map.next_page(at / page, end.div_ceil(page)) else {
                return;
            };
            let Some(slot) = v.map.slot(index) else {
                return;
            };
            let stop = end.min((index + 1) * page);
            for lba in at.max(index * page)..stop {
                if let Some(born) = self
                    .births
                    .get_mut(slot.0 as usize)
                    .map(|b| &mut b[(lba % page) as usize])
                    && *born < lsn.0
                {
                    *born = lsn.0;
                    v.map.replace(arena, Lba(lba), entry);
                }
            }
            at = stop;
        }
    }

    /// End in blocks of the data after a block that LSNs above this one wrote.
    fn written_beyond(
        &self,
        volume: VolumeId,
        first: u64,
        since: Lsn,
        tables: &mut Tables,
    ) -> Option<u64> {
        let page = MAP_PAGE_ENTRIES as u64;
        let (v, _) = tables.volumes.get_mut(volume)?;
        let (mut next, mut end) = (first / page, None);
        while let Some(index) = v.map.next_page(next, u64::from(u32::MAX)) {
            next = index + 1;
            let births = v
                .map
                .slot(index)
                .and_then(|slot| self.births.get(slot.0 as usize));
            let newer = |(at, born): (u64, &u64)| {
                (*born > since.0 && index * page + at >= first).then_some(index * page + at + 1)
            };
            end = births
                .and_then(|births| (0..).zip(births).filter_map(newer).last())
                .or(end);
        }
        end
    }

    /// Settles names and sizes; removes deleted volumes, and blocks beyond a known size.
    fn settle_volumes(&mut self, tables: &mut Tables) {
        let known = std::mem::take(&mut self.known);
        let mut names: BTreeSet<String> = BTreeSet::new();
        // The newest first: of volumes with one name it is the one that existed last.
        for (id, known) in known.into_iter().rev() {
            let mut size_bytes = known.size_bytes;
            if let Some(size) = size_bytes.as_mut() {
                // It was larger when they were written, by an unknown amount.
                let beyond = self.written_beyond(
                    id,
                    *size / BLOCK_BYTES,
                    known.as_of.max(known.sized),
                    tables,
                );
                if let Some(end) = beyond.filter(|_| !known.deleted) {
                    *size = end * BLOCK_BYTES;
                    self.made_up.insert(id);
                }
            }
            let cut = if known.deleted {
                Some(0)
            } else {
                size_bytes.map(|s| s / BLOCK_BYTES)
            };
            if let Some(cut) = cut {
                self.clear(
                    id,
                    cut,
                    1 << LBA_BITS,
                    Lsn(u64::MAX),
                    MapEntry::HOLE,
                    tables,
                );
            }
            if known.deleted {
                drop_pages(tables, id);
                tables.volumes.remove(id);
                self.deleted.insert(id);
                continue;
            }
            let name = known.name.filter(|name| names.insert(name.clone()));
            if name.is_none() || size_bytes.is_none() {
                self.made_up.insert(id);
            }
            let record = VolumeRecord {
                id,
                state: VolumeState::Active,
                read_only: known.read_only,
                sync: known.sync,
                compression: known.compression,
                dedup: known.dedup,
                size_bytes: size_bytes.unwrap_or(known.end.max(1) * BLOCK_BYTES),
                name: name.unwrap_or_else(|| made_up_name(id)),
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

/// Made-up name of a volume without a known name.
pub(super) fn made_up_name(id: VolumeId) -> String {
    format!("recovered-{id}")
}

/// Frees the map pages of a volume that hold nothing.
fn drop_pages(tables: &mut Tables, id: VolumeId) {
    let Some((v, arena)) = tables.volumes.get_mut(id) else {
        return;
    };
    let mut next = 0;
    while let Some(index) = v.map.next_page(next, u64::from(u32::MAX)) {
        v.map.drop_page(arena, index);
        next = index + 1;
    }
}
