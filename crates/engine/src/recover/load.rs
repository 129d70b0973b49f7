//! Loads the newest readable checkpoint: top pages -> list -> leaves -> pages of the tables.

use super::pages::recovery_bytes;
use super::reader::Reader;
use super::{OpenError, Tables};
use crate::api::OpenReport;
use crate::base::limits::{MAX_VOLUME_BYTES, MAX_VOLUMES};
use crate::path::checkpointing::Loaded;
use crate::store::{segment, volume};
use std::collections::BTreeMap;
use windrow_format::checkpoint::{
    LEAF_POINTERS, LeafRecord, MAP_PAGE_ENTRIES, OBJECT_COUNTERS, OBJECT_LIST, OBJECT_MAP,
    OBJECT_SEGMENTS, OBJECT_VOLUMES, PagePointer, SegmentTableGeometry, VOLUMES_PER_PAGE,
    decode_counters, decode_leaf, decode_list, decode_map_page, decode_segment, decode_volumes,
};
use windrow_format::index_page::INDEX_PAGES_MAX;
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::{CheckpointRoot, Superblock};
use windrow_geometry::ZoneMap;
use windrow_types::{BLOCK_BYTES, SegmentId, VolumeId};

/// Limit of segment table pages, whatever the present layouts are: four million, of at least one
/// segment each.
const FORMER_PAGES: u32 = 1 << 22;
/// Number of pages per read.
const PAGES_AT_ONCE: usize = 4096;

/// Loads the newest root whose pages are all readable.
pub(super) fn newest_checkpoint(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    map_bytes: u64,
    report: &mut OpenReport,
) -> Result<(Tables, Loaded, CheckpointRoot), OpenError> {
    let mut last = OpenError::Damage("the superblock names no checkpoint".into());
    for root in superblock.checkpoints.iter().flatten() {
        match load(reader, superblock, root, map_bytes, report) {
            Ok((tables, loaded)) => {
                report.checkpoint = root.id;
                return Ok((tables, loaded, *root));
            }
            Err(error @ (OpenError::Member(_) | OpenError::MapMemory { .. })) => return Err(error),
            Err(error) => {
                report
                    .notes
                    .push(format!("checkpoint {} is not used: {error}", root.id));
                last = error;
            }
        }
    }
    Err(last)
}

fn damage(what: impl Into<String>) -> OpenError {
    OpenError::Damage(what.into())
}

fn load(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    root: &CheckpointRoot,
    map_bytes: u64,
    report: &mut OpenReport,
) -> Result<(Tables, Loaded), OpenError> {
    let policy = crate::store::segment::victim_rule(&superblock.properties);
    let mut tables = Tables {
        zones: reader.zones.clone(),
        codec: reader.codec,
        segments: segment::Segments::new(reader.zones, policy),
        volumes: volume::Volumes::new(recovery_bytes(map_bytes)),
    };
    let mut loaded = Loaded::default();
    tables.volumes.last_id = root.last_volume;
    if !root.list.present {
        return Ok((tables, loaded));
    }
    let records = leaf_records(reader, root, &mut loaded)?;
    let leaves: Vec<PagePointer> = records.iter().map(|r| r.pointer).collect();
    // Object, index and pointer of each map page.
    let mut maps: Vec<(u32, u64, PagePointer)> = Vec::new();
    // Index and pointer of the pages of each table.
    let mut small: BTreeMap<u32, Vec<(u64, PagePointer)>> = BTreeMap::new();
    for (record, page) in records.iter().zip(reader.pages(&leaves)?) {
        let page = page.ok_or_else(|| {
            damage(format!(
                "leaf {} of object {} of checkpoint {} cannot be read",
                record.leaf, record.object, root.id
            ))
        })?;
        if loaded
            .leaves
            .insert((record.object, record.leaf), record.pointer)
            .is_some()
        {
            return Err(damage(format!(
                "leaf {} of object {} of checkpoint {} appears twice",
                record.leaf, record.object, root.id
            )));
        }
        let first = u64::from(record.leaf) * LEAF_POINTERS as u64;
        for (index, pointer) in (first..)
            .zip(decode_leaf(&page))
            .filter(|(_, pointer)| pointer.present)
        {
            if record.object < OBJECT_MAP {
                small
                    .entry(record.object)
                    .or_default()
                    .push((index, pointer));
            } else if index < map_pages(VolumeId(record.object - OBJECT_MAP)) {
                maps.push((record.object, index, pointer));
            } else {
                return Err(beyond(record.object, index, root));
            }
        }
    }
    for (object, pages) in small {
        loaded
            .tables
            .insert(object, table_of(object, &pages, &tables.zones, root)?);
    }
    load_tables(reader, &loaded.tables, &mut tables, root)?;
    load_maps(reader, &maps, &mut tables, map_bytes, root, report)?;
    Ok((tables, loaded))
}

fn beyond(object: u32, index: u64, root: &CheckpointRoot) -> OpenError {
    damage(format!(
        "checkpoint {} has a page {index} of object {object}, which cannot exist",
        root.id
    ))
}

/// Limit of the pages of a volume's map, whatever its size was when they were written.
fn map_pages(volume: VolumeId) -> u64 {
    let blocks = match volume {
        VolumeId::SHARED => u64::from(u32::MAX),
        VolumeId::INDEX => INDEX_PAGES_MAX,
        _ => MAX_VOLUME_BYTES / BLOCK_BYTES,
    };
    blocks.div_ceil(MAP_PAGE_ENTRIES as u64)
}

/// Pages of a table, by index. An index beyond the table's limit is damage. The volume table may
/// have more pages than that only without a gap. Deleted volumes keep their slots during replay, so
/// there may be more slots than volumes.
fn table_of(
    object: u32,
    pages: &[(u64, PagePointer)],
    zones: &ZoneMap,
    root: &CheckpointRoot,
) -> Result<Vec<PagePointer>, OpenError> {
    let usual = match object {
        OBJECT_VOLUMES => MAX_VOLUMES.div_ceil(VOLUMES_PER_PAGE),
        // Pages of a superseded layout stay, and it may have had more segments than there are now.
        OBJECT_SEGMENTS => table_geometry(zones)
            .pages(zones.segment_count())
            .max(FORMER_PAGES) as usize,
        OBJECT_COUNTERS => 1,
        _ => {
            return Err(damage(format!(
                "checkpoint {} has pages of object {object}, which does not exist",
                root.id
            )));
        }
    };
    let most = usual.max(pages.len());
    let mut table = Vec::new();
    for (index, pointer) in pages {
        let at = usize::try_from(*index)
            .ok()
            .filter(|at| *at < most)
            .ok_or_else(|| beyond(object, *index, root))?;
        table.resize(table.len().max(at + 1), PagePointer::default());
        table[at] = *pointer;
    }
    Ok(table)
}

fn table_geometry(zones: &ZoneMap) -> SegmentTableGeometry {
    SegmentTableGeometry::new(
        zones
            .zones()
            .iter()
            .map(|z| z.shape.rows)
            .max()
            .unwrap_or(64),
    )
}

/// Walks the chain of top pages and the list pages that they name.
fn leaf_records(
    reader: &mut Reader<'_>,
    root: &CheckpointRoot,
    loaded: &mut Loaded,
) -> Result<Vec<LeafRecord>, OpenError> {
    let mut tops = Vec::new();
    let mut next = root.list;
    while next.present {
        if tops.len() as u32 > root.list_pages || loaded.list.contains(&next) {
            return Err(damage(format!(
                "the list of checkpoint {} does not end",
                root.id
            )));
        }
        loaded.list.push(next);
        let page = reader.pages(&[next])?.pop().flatten();
        let page = page.ok_or_else(|| {
            damage(format!(
                "a top page of checkpoint {} cannot be read",
                root.id
            ))
        })?;
        let list = decode_list(&page).map_err(|e| damage(e.to_string()))?;
        next = list.previous;
        tops.push(list.records);
    }
    tops.reverse();
    let lists: Vec<PagePointer> = tops
        .into_iter()
        .flatten()
        .filter(|r| r.object == OBJECT_LIST)
        .map(|r| r.pointer)
        .collect();
    loaded.list.extend(&lists);
    let mut records = Vec::new();
    for page in reader.pages(&lists)? {
        let page = page.ok_or_else(|| {
            damage(format!(
                "a list page of checkpoint {} cannot be read",
                root.id
            ))
        })?;
        records.extend(
            decode_list(&page)
                .map_err(|e| damage(e.to_string()))?
                .records,
        );
    }
    Ok(records)
}

fn load_tables(
    reader: &mut Reader<'_>,
    small: &BTreeMap<u32, Vec<PagePointer>>,
    tables: &mut Tables,
    root: &CheckpointRoot,
) -> Result<(), OpenError> {
    let geometry = table_geometry(&tables.zones);
    for object in [OBJECT_VOLUMES, OBJECT_SEGMENTS] {
        let pointers = small.get(&object).map_or(&[][..], |p| &p[..]);
        let pages = reader.pages(pointers)?;
        for (index, (page, pointer)) in pages.into_iter().zip(pointers).enumerate() {
            let page = match page {
                Some(page) => page,
                None if !pointer.present => continue,
                None => {
                    return Err(damage(format!(
                        "page {index} of object {object} of checkpoint {} cannot be read",
                        root.id
                    )));
                }
            };
            if object == OBJECT_VOLUMES {
                for (slot, record) in decode_volumes(&page)
                    .map_err(|e| damage(e.to_string()))?
                    .into_iter()
                    .enumerate()
                {
                    let Some(record) = record else { continue };
                    if tables.volumes.get(record.id).is_some() {
                        return Err(damage(format!(
                            "checkpoint {} has two records of volume {}",
                            root.id, record.id
                        )));
                    }
                    tables.volumes.put(index * VOLUMES_PER_PAGE + slot, record);
                }
            } else {
                load_segments(&page, index as u32, &geometry, tables)?;
            }
        }
    }
    Ok(())
}

fn load_segments(
    page: &[u8],
    index: u32,
    geometry: &SegmentTableGeometry,
    tables: &mut Tables,
) -> Result<(), OpenError> {
    for i in 0..geometry.per_page {
        let id = SegmentId(
            index
                .saturating_mul(geometry.per_page as u32)
                .saturating_add(i as u32),
        );
        if !tables.zones.contains(id) {
            // Of a superseded layout, or after the last segment.
            continue;
        }
        let (_, at) = geometry.locate(id);
        let rows = tables.zones.shape(id).rows;
        let record = decode_segment(&page[at..at + geometry.stride], id, rows)
            .map_err(|e| damage(format!("segment {id}: {e}")))?;
        let segment = tables.segments.get_mut(id);
        segment.stream = record.stream.0;
        segment.filled_rows = record.filled_rows;
        segment.last_checkpoint = record.last_checkpoint;
        segment.last_seq = record.last_seq;
        segment.stale = record.stale;
        segment.starts.copy_from_slice(&record.starts);
    }
    Ok(())
}

fn load_maps(
    reader: &mut Reader<'_>,
    maps: &[(u32, u64, PagePointer)],
    tables: &mut Tables,
    map_bytes: u64,
    root: &CheckpointRoot,
    report: &mut OpenReport,
) -> Result<(), OpenError> {
    let mut entries = [MapEntry::HOLE; MAP_PAGE_ENTRIES];
    for group in maps.chunks(PAGES_AT_ONCE) {
        let pointers: Vec<PagePointer> = group.iter().map(|m| m.2).collect();
        for ((object, index, pointer), page) in group.iter().zip(reader.pages(&pointers)?) {
            let volume = VolumeId(object - OBJECT_MAP);
            let page = page.ok_or_else(|| {
                damage(format!(
                    "map page {index} of volume {volume} of checkpoint {} cannot be read",
                    root.id
                ))
            })?;
            let Some((v, arena)) = tables.volumes.get_mut(volume) else {
                return Err(damage(format!(
                    "checkpoint {} has map pages of volume {volume}, which is not in its table",
                    root.id
                )));
            };
            let slot = v
                .map
                .ensure(arena, volume, *index)
                .ok_or(OpenError::MapMemory { limit: map_bytes })?;
            decode_map_page(&page, &mut entries);
            v.map.load(arena, slot, &entries);
            if let Some(meta) = arena.meta_mut(slot) {
                meta.pointer = *pointer;
            }
            report.map_pages += 1;
        }
    }
    Ok(())
}

/// Counters of the checkpoint; empty if it has none or they are unreadable (they only inform).
pub(super) fn counters(reader: &mut Reader<'_>, loaded: &Loaded) -> Result<Vec<u64>, OpenError> {
    let Some(pointer) = loaded
        .tables
        .get(&OBJECT_COUNTERS)
        .and_then(|p| p.first())
        .filter(|p| p.present)
    else {
        return Ok(Vec::new());
    };
    let page = reader.pages(&[*pointer])?.pop().flatten();
    Ok(page.map(|page| decode_counters(&page)).unwrap_or_default())
}
