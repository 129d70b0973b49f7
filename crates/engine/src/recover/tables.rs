//! The effect of replayed entries on the tables, and what the tables say when all are in.

use super::chain::Chain;
use super::journal::Readmitted;
use super::pages::ensure_page;
use super::{OpenError, Tables};
use crate::limits::{CAPACITY_MAP_FACTOR, LBA_BITS};
use crate::volume::{Volume, Volumes};
use crate::weight::compressed;
use std::collections::BTreeSet;
use windrow_format::batch::{Entry, FillState, RangeState, VolumeChange};
use windrow_format::checkpoint::{Dedup, MAP_PAGE_ENTRIES, VolumeRecord, VolumeState};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::Features;
use windrow_geometry::Zone;
use windrow_types::{Address, BLOCK_BYTES, FULL_BLOCK_UNITS, Lba, Lsn, SegmentId, VolumeId};

/// Applies a user entry; a block with payload is shown as `shown`.
pub(super) fn apply_entry(
    entry: &Entry,
    shown: MapEntry,
    tables: &mut Tables,
) -> Result<(), OpenError> {
    match entry {
        Entry::Data { volume, lba, .. } | Entry::Reference { volume, lba, .. } => {
            set_block(tables, *volume, *lba, shown)
        }
        Entry::Fill {
            volume, lba, state, ..
        } => {
            let entry = if *state == FillState::Ones {
                MapEntry::ONES
            } else {
                MapEntry::ZERO
            };
            set_block(tables, *volume, *lba, entry)
        }
        Entry::Range {
            volume,
            lba,
            count,
            state,
            ..
        } => set_range(tables, *volume, *lba, lba.0.saturating_add(*count), *state),
        Entry::Volume { volume, change, .. } => apply_volume(tables, *volume, change),
        Entry::Move { .. } | Entry::Covered { .. } | Entry::Page { .. } => Ok(()),
    }
}

fn set_block(
    tables: &mut Tables,
    volume: VolumeId,
    lba: Lba,
    entry: MapEntry,
) -> Result<(), OpenError> {
    if volume == VolumeId::SHARED && lba.0 >= ids_end(tables.zones.zones().iter()) {
        // No pool of this size gives such an id: whatever refers to it is lost.
        return Ok(());
    }
    // A volume that is not in the table any more was deleted later, and its delete is in the
    // checkpoint.
    let Some((v, arena)) = tables.volumes.get_mut(volume) else {
        return Ok(());
    };
    if lba.0 >= v.blocks() {
        // The table's image is newer than this entry and has the volume smaller: the shrink comes
        // later in the replay.
        return Ok(());
    }
    if v.map
        .ensure(arena, volume, lba.0 / MAP_PAGE_ENTRIES as u64)
        .is_some()
    {
        v.map.replace(arena, lba, entry);
        return Ok(());
    }
    ensure_page(tables, volume, lba.0 / MAP_PAGE_ENTRIES as u64)?;
    let Some((v, arena)) = tables.volumes.get_mut(volume) else {
        return Ok(());
    };
    v.map.replace(arena, lba, entry);
    Ok(())
}

/// Behind the last block of a volume that an entry without payload may need a page for: with the
/// shrink of a volume that the table's image has smaller the others go again.
fn blocks_end(tables: &Tables, volume: VolumeId) -> u64 {
    match volume {
        VolumeId::SHARED => ids_end(tables.zones.zones().iter()),
        _ => tables.volumes.get(volume).map_or(0, Volume::blocks),
    }
}

fn set_range(
    tables: &mut Tables,
    volume: VolumeId,
    first: Lba,
    end: u64,
    state: RangeState,
) -> Result<(), OpenError> {
    let page = MAP_PAGE_ENTRIES as u64;
    let end = if state == RangeState::Zero {
        end.min(blocks_end(tables, volume))
    } else {
        end
    };
    let mut at = first.0;
    while at < end {
        let Some((v, arena)) = tables.volumes.get_mut(volume) else {
            return Ok(());
        };
        if state == RangeState::Hole {
            match v.map.next_page(at / page, end.div_ceil(page)) {
                None => return Ok(()),
                Some(index) => at = at.max(index * page),
            }
        } else if v.map.ensure(arena, volume, at / page).is_none() {
            at = (at / page + 1) * page;
            continue;
        }
        let stop = end.min((at / page + 1) * page);
        let entry = if state == RangeState::Hole {
            MapEntry::HOLE
        } else {
            MapEntry::ZERO
        };
        for lba in at..stop {
            if v.map.get(arena, Lba(lba)) != entry {
                v.map.replace(arena, Lba(lba), entry);
            }
        }
        at = stop;
    }
    Ok(())
}

fn apply_volume(
    tables: &mut Tables,
    volume: VolumeId,
    change: &VolumeChange,
) -> Result<(), OpenError> {
    match change {
        VolumeChange::Create { name, size_bytes } => {
            // The table's image may be older than this entry, or newer (then it has the volume, or
            // its delete follows in the replay).
            if tables.volumes.get(volume).is_none() {
                tables
                    .volumes
                    .add(VolumeRecord::new(volume, *size_bytes, name.clone()));
            }
        }
        VolumeChange::Resize { size_bytes } => {
            tables
                .volumes
                .change(volume, |r| r.size_bytes = *size_bytes);
            // To the very end: the table's image may already have a later, smaller size while map
            // pages are older.
            return set_range(
                tables,
                volume,
                Lba(size_bytes / BLOCK_BYTES),
                1 << LBA_BITS,
                RangeState::Hole,
            );
        }
        VolumeChange::Delete => tables
            .volumes
            .change(volume, |r| r.state = VolumeState::Deleting),
        VolumeChange::SetReadOnly(read_only) => {
            tables.volumes.change(volume, |r| r.read_only = *read_only)
        }
        VolumeChange::SetSync(sync) => tables.volumes.change(volume, |r| r.sync = *sync),
        VolumeChange::SetCompression(compression) => tables
            .volumes
            .change(volume, |r| r.compression = *compression),
        VolumeChange::SetDedup(dedup) => tables.volumes.change(volume, |r| r.dedup = *dedup),
        VolumeChange::Rename { name } => {
            tables.volumes.renamed = true;
            tables.volumes.change(volume, |r| r.name.clone_from(name));
        }
    }
    Ok(())
}

/// Incompatible flags that what there is calls for: what volumes are set to, shared content, pages
/// of its index. They came into force before it; but the superblocks that said so may be lost
/// since, on all members, and an older one rule.
pub(super) fn features(tables: &Tables) -> u64 {
    let of_volume = |volume: &Volume| {
        let shares = volume.record.dedup != Dedup::Off
            || volume.map.shared_blocks > 0
            || (volume.record.id == VolumeId::SHARED && volume.map.mapped_blocks > 0);
        let is_index = volume.record.id == VolumeId::INDEX && volume.map.mapped_blocks > 0;
        let packs = volume.map.stored_units
            < (volume.map.mapped_blocks - volume.map.shared_blocks) * u64::from(FULL_BLOCK_UNITS);
        let flags = [
            (shares || is_index, Features::SHARED),
            (is_index, Features::DEDUP_INDEX),
            (packs, Features::COMPRESSED),
        ];
        volume.record.compression.features()
            | flags
                .iter()
                .filter(|(is_there, _)| *is_there)
                .fold(0, |all, (_, flag)| all | flag)
    };
    let renamed = if tables.volumes.renamed {
        Features::RENAMED
    } else {
        0
    };
    tables
        .volumes
        .with_hidden()
        .fold(renamed, |flags, volume| flags | of_volume(volume))
}

/// Enters a stream's batches behind a checkpoint into the segment table. Of a `broken` chain the
/// table may know more than the chain leads to.
pub(super) fn settle_segments(checkpoint: u64, chain: &Chain, broken: bool, tables: &mut Tables) {
    for batch in &chain.batches {
        let segment = tables.segments.get_mut(batch.segment);
        if broken && usize::from(segment.stream) == chain.stream && segment.last_seq >= batch.seq {
            segment.last_checkpoint = checkpoint;
            continue;
        }
        // The image may have been made when others had been sealed there that never arrived.
        segment.forget_starts(batch.row);
        segment.stream = chain.stream as u8;
        segment.starts[batch.row as usize / 64] |= 1 << (batch.row % 64);
        segment.filled_rows = batch.row + batch.rows;
        segment.last_seq = batch.seq;
        segment.last_checkpoint = checkpoint;
        // Recovery does not read members that are being rebuilt: it cannot say what is on them.
        segment.stale = u64::MAX;
        tables.segments.mark_dirty(batch.segment);
    }
    if !broken && tables.zones.contains(chain.next.segment) {
        tables.segments.truncate(chain.next.segment, chain.next.row);
    }
}

/// Takes all blocks of deleted volumes from the map: where they lay other data may be since, also
/// in segments of another layout over the same extents. (What a delete that only the journal has
/// takes is put on record before, by `journal::Found::apply`.)
pub(super) fn clear_deleted(tables: &mut Tables) -> Result<(), OpenError> {
    let deleted: Vec<VolumeId> = tables
        .volumes
        .iter()
        .filter(|v| v.record.state == VolumeState::Deleting)
        .map(|v| v.record.id)
        .collect();
    for volume in deleted {
        set_range(tables, volume, Lba(0), 1 << LBA_BITS, RangeState::Hole)?;
    }
    tables.volumes.count_used();
    Ok(())
}

/// Blocks that refer to shared content that is missing, or of another life, are lost: for an
/// explicit repair, which puts the maps together from what there is.
pub(super) fn void_references(tables: &mut Tables) {
    let volumes = &mut tables.volumes;
    for id in volumes.iter().map(|v| v.record.id).collect::<Vec<_>>() {
        let mut next = 0;
        while let (Some(v), Some(shared)) = (volumes.get(id), volumes.get(VolumeId::SHARED))
            && let Some(index) = v.map.next_page(next, u64::from(u32::MAX))
        {
            next = index + 1;
            let is_void = |lba: &Lba| {
                let entry = v.map.get(&volumes.arena, *lba);
                let content = entry
                    .shared_id()
                    .map(|id| shared.map.get(&volumes.arena, id));
                content.is_some_and(|content| {
                    !content.has_payload() || content.incarnation() != entry.incarnation()
                })
            };
            let page = index * MAP_PAGE_ENTRIES as u64..next * MAP_PAGE_ENTRIES as u64;
            let lost: Vec<Lba> = page.map(Lba).filter(is_void).collect();
            let Some((v, arena)) = volumes.get_mut(id) else {
                break;
            };
            lost.into_iter()
                .for_each(|lba| _ = v.map.replace(arena, lba, MapEntry::LOST));
        }
    }
}

/// Blocks of users that are lost, those that an earlier repair gave up among them: the first, up to
/// `listed`, and how many. Those that are `readmitted` are not missed.
pub(super) fn lost_blocks(
    volumes: &Volumes,
    readmitted: &[Readmitted],
    listed: usize,
) -> (Vec<(VolumeId, Lba)>, u64) {
    let back = |item: &Readmitted| {
        if let Readmitted::Block { key, .. } = item {
            Some((key.volume(), key.lba()))
        } else {
            None
        }
    };
    let back: BTreeSet<(VolumeId, Lba)> = readmitted.iter().filter_map(back).collect();
    let (mut first, mut count) = (Vec::new(), 0);
    for v in volumes.iter() {
        let mut next = 0;
        while let Some(index) = v.map.next_page(next, u64::from(u32::MAX)) {
            next = index + 1;
            let Some(slot) = v.map.slot(index) else {
                continue;
            };
            let entries = (index * MAP_PAGE_ENTRIES as u64..)
                .map(Lba)
                .zip(volumes.arena.page(slot));
            for (lba, _) in entries.filter(|(lba, entry)| {
                **entry == MapEntry::LOST && !back.contains(&(v.record.id, *lba))
            }) {
                count += 1;
                if first.len() < listed {
                    first.push((v.record.id, lba));
                }
            }
        }
    }
    (first, count)
}

/// The first id that no pool of this size gives: by the format, whatever memory somebody gives to
/// maps today. (Pages of maps are at most nine quarters of what the segments could hold, where
/// reduction is capacity three times that, and 64.) A pool that becomes smaller is refused as long
/// as it has such ids (`reshape/removal.rs`).
pub(crate) fn ids_end<'z>(zones: impl Iterator<Item = &'z Zone>) -> u64 {
    let blocks: u64 = zones
        .map(|zone| zone.shape.data_blocks() * u64::from(zone.segments))
        .sum();
    (blocks * CAPACITY_MAP_FACTOR / 4 * 9 + 64 * MAP_PAGE_ENTRIES as u64).min(u64::from(u32::MAX))
}

/// References to ids that can not have been given are lost: a damaged map must not cost memory, or
/// another id its references.
fn void_references_beyond(volumes: &mut Volumes, end: u64) -> Vec<Lba> {
    let is_beyond = |entry: &MapEntry| entry.shared_id().is_some_and(|id| id.0 >= end);
    let beyond: Vec<VolumeId> = volumes
        .iter()
        .filter(|v| v.map.entries(&volumes.arena).any(|entry| is_beyond(&entry)))
        .map(|v| v.record.id)
        .collect();
    let mut wrong = Vec::new();
    for volume in beyond {
        let mut next = 0;
        while let Some((v, arena)) = volumes.get_mut(volume)
            && let Some(index) = v.map.next_page(next, u64::MAX)
        {
            next = index + 1;
            for lba in (index * MAP_PAGE_ENTRIES as u64..next * MAP_PAGE_ENTRIES as u64).map(Lba) {
                let entry = v.map.get(arena, lba);
                if is_beyond(&entry) {
                    wrong.extend(entry.shared_id());
                    v.map.replace(arena, lba, MapEntry::LOST);
                }
            }
        }
    }
    wrong
}

/// Behind the highest id below `most` that the map has content of.
fn content_end(volumes: &Volumes, most: u64) -> u64 {
    let Some(shared) = volumes.get(VolumeId::SHARED) else {
        return 0;
    };
    let (mut next, mut end) = (0, 0);
    while let Some(index) = shared.map.next_page(next, u64::from(u32::MAX)) {
        next = index + 1;
        let ids = index * MAP_PAGE_ENTRIES as u64..most.min(next * MAP_PAGE_ENTRIES as u64);
        end = ids
            .rev()
            .find(|id| shared.map.get(&volumes.arena, Lba(*id)) != MapEntry::HOLE)
            .map_or(end, |id| id + 1);
    }
    end
}

/// Counts the references to shared content; content that nobody refers to becomes a hole. The maps
/// show everything up to `applied`; what took the last reference may be in the journal only, so the
/// place is not to be written again before all of it is in the log. Returns the ids whose content
/// is missing, or is of another life: reads of them fail.
pub(super) fn count_references(tables: &mut Tables, applied: Lsn) -> Vec<Lba> {
    let end = ids_end(tables.zones.zones().iter());
    let mut wrong = void_references_beyond(&mut tables.volumes, end);
    tables.volumes.count_used();
    let volumes = &mut tables.volumes;
    let mut ids = std::mem::take(&mut volumes.ids);
    let Some(shared) = volumes.get(VolumeId::SHARED) else {
        return wrong;
    };
    for entry in volumes.iter().flat_map(|v| v.map.entries(&volumes.arena)) {
        let Some(id) = entry.shared_id() else {
            continue;
        };
        ids.found(id);
        let content = shared.map.get(&volumes.arena, id);
        if !content.has_payload() || content.incarnation() != entry.incarnation() {
            wrong.push(id);
        }
    }
    // Content that nobody refers to any more was given, too: its id waits like any other that
    // became free, however high it is.
    ids.were_given(content_end(volumes, end));
    ids.settle(applied, |id| {
        shared.map.get(&volumes.arena, id).incarnation()
    });
    let mut next = 0;
    while let Some((shared, arena)) = volumes.get_mut(VolumeId::SHARED)
        && let Some(index) = shared.map.next_page(next, u64::from(u32::MAX))
    {
        next = index + 1;
        for id in index * MAP_PAGE_ENTRIES as u64..next * MAP_PAGE_ENTRIES as u64 {
            let content = shared.map.get(arena, Lba(id));
            if content != MapEntry::HOLE && ids.references(Lba(id)) == 0 {
                shared.map.replace(arena, Lba(id), MapEntry::HOLE);
                if content.has_payload() {
                    let segment = tables
                        .segments
                        .get_mut(tables.codec.segment(content.address()));
                    segment.superseded_by = segment.superseded_by.max(applied);
                }
            }
        }
    }
    volumes.ids = ids;
    volumes.count_used();
    wrong.sort_unstable();
    wrong.dedup();
    wrong
}

/// Gives up pages of the index of deduplication beyond those that the pool has room for: it was
/// larger when they were written. Each is a hint, and nobody misses it.
pub(super) fn drop_index_pages(tables: &mut Tables, most: u64, applied: Lsn) {
    let Some((index, arena)) = tables.volumes.get_mut(VolumeId::INDEX) else {
        return;
    };
    let mut next = most / MAP_PAGE_ENTRIES as u64;
    while let Some(page) = index.map.next_page(next, u64::from(u32::MAX)) {
        next = page + 1;
        for lba in (page * MAP_PAGE_ENTRIES as u64..next * MAP_PAGE_ENTRIES as u64)
            .filter(|lba| *lba >= most)
        {
            let entry = index.map.get(arena, Lba(lba));
            if entry == MapEntry::HOLE {
                continue;
            }
            index.map.replace(arena, Lba(lba), MapEntry::HOLE);
            if entry.has_payload() {
                let segment = tables
                    .segments
                    .get_mut(tables.codec.segment(entry.address()));
                segment.superseded_by = segment.superseded_by.max(applied);
            }
        }
    }
    tables.volumes.count_used();
}

/// Counts live payload of every segment, and its packed pieces, from the maps and from the
/// checkpoint's own pages.
pub(super) fn count_live(tables: &mut Tables, loaded: &crate::checkpoint::Loaded) {
    let mut live = vec![(0u32, 0u32); tables.segments.count() as usize];
    let mut count = |address: Address, units: u16| {
        let segment = tables.codec.segment(address);
        if let Some(slot) = live.get_mut(segment.index()) {
            *slot = (slot.0 + u32::from(units), slot.1 + compressed(units));
        }
    };
    for v in tables.volumes.with_hidden() {
        let mut next = 0;
        while let Some(index) = v.map.next_page(next, u64::from(u32::MAX)) {
            next = index + 1;
            let Some(slot) = v.map.slot(index) else {
                continue;
            };
            for entry in tables
                .volumes
                .arena
                .page(slot)
                .iter()
                .filter(|e| e.has_payload())
            {
                count(entry.address(), entry.length_units());
            }
            if let Some(pointer) = tables
                .volumes
                .arena
                .meta(slot)
                .map(|m| m.pointer)
                .filter(|p| p.present)
            {
                count(pointer.address, FULL_BLOCK_UNITS);
            }
        }
    }
    // Images of pages that replay has given back: the next checkpoint lets go of them.
    for (_, _, pointer) in &tables.volumes.dropped {
        count(pointer.address, FULL_BLOCK_UNITS);
    }
    let pointers = loaded
        .tables
        .values()
        .flatten()
        .chain(loaded.leaves.values())
        .chain(&loaded.list);
    for pointer in pointers.filter(|p| p.present) {
        count(pointer.address, FULL_BLOCK_UNITS);
    }
    for (index, (units, pieces)) in live.into_iter().enumerate() {
        let segment = tables.segments.get_mut(SegmentId(index as u32));
        (segment.live_units, segment.live_compressed) = (units, pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_geometry::{Redundancy, ZoneMap};
    use windrow_types::AddressCodec;

    fn no_pool() -> Tables {
        let shape = Redundancy::None.shape(2, 256, 128).expect("a shape");
        let zones = ZoneMap::new(vec![Zone {
            members: 0b11,
            start: 1 << 20,
            first_segment: 0,
            segments: 4,
            shape,
            layout: 0,
        }]);
        let segments = crate::segment::Segments::new(&zones, windrow_policy::select::Rule::Greedy);
        Tables {
            zones,
            codec: AddressCodec::for_segment_blocks(512),
            segments,
            volumes: Volumes::new(1 << 20),
        }
    }

    /// Directories were made as large as the block's number, and a range of zeroes was gone through
    /// page by page, whatever the volume's size.
    #[test]
    fn what_lies_behind_a_volume_gets_no_pages() {
        let mut tables = no_pool();
        let volume = VolumeId(1);
        tables
            .volumes
            .add(VolumeRecord::new(volume, 4 << 20, "v".into()));
        for (lba, entry) in [
            (1023, MapEntry::ONES),
            (1024, MapEntry::ONES),
            (1 << 50, MapEntry::ZERO),
            (u64::MAX, MapEntry::ONES),
        ]
        .map(|(lba, entry)| (Lba(lba), entry))
        {
            set_block(&mut tables, volume, lba, entry).expect("set");
            set_block(
                &mut tables,
                VolumeId::SHARED,
                Lba(lba.0.max(1 << 36)),
                entry,
            )
            .expect("set");
        }
        assert_eq!(tables.volumes.arena.used_pages(), 1);
        for (volume, first) in [
            (volume, 700),
            (VolumeId::SHARED, 1 << 36),
            (VolumeId(7), 0),
            (volume, u64::MAX - 1),
        ] {
            set_range(
                &mut tables,
                volume,
                Lba(first),
                first.saturating_add(1 << 60),
                RangeState::Zero,
            )
            .expect("zeroed");
        }
        assert_eq!(tables.volumes.arena.used_pages(), 2);
        let get = |lba| {
            tables
                .volumes
                .get(volume)
                .map(|v| v.map.get(&tables.volumes.arena, Lba(lba)))
        };
        assert_eq!(
            [699, 700, 1023, 1024].map(get),
            [
                MapEntry::HOLE,
                MapEntry::ZERO,
                MapEntry::ZERO,
                MapEntry::HOLE
            ]
            .map(Some)
        );
        for first in [0, u64::MAX - 1] {
            set_range(&mut tables, volume, Lba(first), u64::MAX, RangeState::Hole)
                .expect("trimmed");
        }
        assert_eq!(
            tables
                .volumes
                .get(volume)
                .map(|v| v.map.get(&tables.volumes.arena, Lba(700))),
            Some(MapEntry::HOLE)
        );
    }

    /// The image of the segment table was made with two batches sealed that never arrived, at rows
    /// 70 and 80. After a crash a longer one was written at row 70; after another crash behind the
    /// same checkpoint it ended at row 80, and what lay in it was looked for where it is not.
    #[test]
    fn batches_that_never_arrived_do_not_split_those_that_did() {
        let mut tables = no_pool();
        let segment = tables.segments.get_mut(SegmentId(0));
        [0, 60, 64, 70, 80, 190]
            .into_iter()
            .for_each(|row: u32| segment.starts[row as usize / 64] |= 1 << (row % 64));
        segment.filled_rows = 200;
        settle_segments(
            1,
            &Chain::of_rows(0, &[(64, 6), (70, 12)]),
            false,
            &mut tables,
        );
        let segment = tables.segments.get(SegmentId(0));
        assert_eq!(
            [10, 63, 64, 71, 81].map(|row| segment.batch_at(row)),
            [(0, 60), (60, 4), (64, 6), (70, 12), (70, 12)]
        );
        assert_eq!(segment.filled_rows, 82);
    }
}
