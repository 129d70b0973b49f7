//! Effect of replayed entries on the tables, and the checks after replay.

use super::chain::Chain;
use super::journal::Readmitted;
use super::pages::ensure_page;
use super::{OpenError, Tables};
use crate::base::limits::LBA_BITS;
use crate::base::weight::compressed;
use crate::store::plan::ids_end;
use crate::store::volume::{Volume, Volumes};
use std::collections::BTreeSet;
use windrow_format::batch::{Entry, FillState, RangeState, VolumeChange};
use windrow_format::checkpoint::{Dedup, MAP_PAGE_ENTRIES, VolumeRecord, VolumeState};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::Features;
use windrow_types::{Address, BLOCK_BYTES, FULL_BLOCK_UNITS, Lba, Lsn, SegmentId, VolumeId};

/// Applies a user entry; a block with payload gets the map entry `shown`.
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
        // No pool of this size allocates such an id: references to it are lost.
        return Ok(());
    }
    // A volume that is missing in the table was deleted later, and its deletion is in the
    // checkpoint.
    let Some((v, arena)) = tables.volumes.get_mut(volume) else {
        return Ok(());
    };
    if lba.0 >= v.blocks() {
        // The table's image is newer than this entry and has the volume smaller: the shrink follows
        // in the replay.
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

/// End of the blocks for which an entry without payload may need a page. Blocks beyond the image's
/// size are removed by the shrink that follows in the replay.
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
            // its deletion follows in the replay).
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

/// Incompatible flags that the content requires: volume properties, shared content, index pages.
/// They were active before that content; but the superblocks with them may be lost on all members
/// since, and an older one may rule.
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

/// Enters a stream's batches after a checkpoint into the segment table. Of a `broken` chain the
/// table may have more batches than the chain reaches.
pub(super) fn settle_segments(checkpoint: u64, chain: &Chain, broken: bool, tables: &mut Tables) {
    for batch in &chain.batches {
        let segment = tables.segments.get_mut(batch.segment);
        if broken && usize::from(segment.stream) == chain.stream && segment.last_seq >= batch.seq {
            segment.last_checkpoint = checkpoint;
            continue;
        }
        // The image may have starts of later batches that were sealed and never arrived.
        segment.forget_starts(batch.row);
        segment.stream = chain.stream as u8;
        segment.starts[batch.row as usize / 64] |= 1 << (batch.row % 64);
        segment.filled_rows = batch.row + batch.rows;
        segment.last_seq = batch.seq;
        segment.last_checkpoint = checkpoint;
        // Recovery does not read rebuilding members: their content is unknown.
        segment.stale = u64::MAX;
        tables.segments.mark_dirty(batch.segment);
    }
    if !broken && tables.zones.contains(chain.next.segment) {
        tables.segments.truncate(chain.next.segment, chain.next.row);
    }
}

/// Removes all blocks of deleted volumes from the map. Other data may be at their addresses since,
/// also in segments of another layout over the same extents. (`journal::Found::apply` has noted
/// before what a deletion in the journal alone removes.)
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

/// Marks blocks as lost that refer to shared content that is missing or of another incarnation. For
/// salvage, which assembles the maps from what exists.
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

/// Lost user blocks, including those that an earlier repair declared lost: the first ones, up to
/// `listed`, and their number. `readmitted` blocks are not lost.
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

/// Marks references to impossible ids as lost: a damaged map must cost neither memory nor another
/// id's references.
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

/// End of the ids below `most` for which the map has content.
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

/// Counts the references to shared content; content without references becomes a hole. The maps
/// have everything up to `applied`. The operation that removed the last reference may be in the
/// journal only. The address must not be overwritten before all of it is in the log. Returns the
/// ids whose content is missing or of another incarnation: reads of them fail.
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
    // Content without references has an allocated id as well: it waits like any other freed id,
    // however high it is.
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

/// Drops index pages of deduplication beyond the number that the pool has room for: it was larger
/// when they were written. Each is only a hint.
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

/// Counts live payload and compressed pieces of every segment, from the maps and from the
/// checkpoint's own pages.
pub(super) fn count_live(tables: &mut Tables, loaded: &crate::path::checkpointing::Loaded) {
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
    // Images of pages that replay has freed: the next checkpoint releases them.
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
    use windrow_geometry::{Redundancy, Zone, ZoneMap};
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
        let segments =
            crate::store::segment::Segments::new(&zones, windrow_policy::select::Rule::Greedy);
        Tables {
            zones,
            codec: AddressCodec::for_segment_blocks(512),
            segments,
            volumes: Volumes::new(1 << 20),
        }
    }

    /// Directories must not grow with an entry's block number, and a range of zeroes must not be
    /// walked page by page beyond the volume's size.
    #[test]
    fn blocks_beyond_the_end_of_a_volume_get_no_pages() {
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

    /// The table's image has two sealed batches that never arrived, at rows 70 and 80. After a
    /// crash a longer batch was written at row 70. The stale start at row 80 must not split it.
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
