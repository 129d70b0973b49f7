//! Pages of the map while the tables are put together.
//!
//! In service a page goes as soon as it holds nothing any more, so the bound of the map is one of
//! pages that hold something. A start that followed each trim as closely would be slow; it looks
//! for pages of holes only when it has no other, and at its end.
//!
//! **Claim.** A start fits into the pages that the engine had. After all entries up to order o, a
//! page with data holds some block of an order up to o that no trim up to o has taken. When o was
//! admitted in service, that block was in the map or on its way, so its page was there. What may be
//! there beside: (a) volumes that are being deleted: in service they go step by step, here at once.
//! (b) Pages of zeroes, which in service are made only while there is plenty: as holes they read
//! the same. (c) The images of a checkpoint were taken one after the other, so some of them are of
//! a later time than others. (d) Content that nobody referred to any more at a start between: its
//! pages went to others there, and here it stays to the end, as references may still follow. For
//! (c) and (d) there is [`recovery_bytes`].

use super::journal::Readmitted;
use super::tables::clear_deleted;
use super::{OpenError, Tables};
use std::collections::BTreeSet;
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_format::map_entry::MapEntry;
use windrow_types::{BLOCK_BYTES, VolumeId};

/// What maps may take during a start, if they may take `map_bytes` afterwards. Twice that: all of
/// it may have been of content that the start before gave up, and be taken by others since.
pub(super) fn recovery_bytes(map_bytes: u64) -> u64 {
    map_bytes.saturating_mul(2).saturating_add(64 * BLOCK_BYTES)
}

/// Makes sure of a page; see the module.
pub(super) fn ensure_page(
    tables: &mut Tables,
    volume: VolumeId,
    index: u64,
) -> Result<(), OpenError> {
    if has_page(tables, volume, index) {
        return Ok(());
    }
    clear_deleted(tables)?;
    drop_pages(tables, |entry| *entry == MapEntry::HOLE);
    let arena = &tables.volumes.arena;
    if arena.used_pages() + arena.max_pages() / 16 >= arena.max_pages() {
        // Few came free: each of the next pages would be looked for again.
        drop_pages(tables, is_zeroes);
    }
    if has_page(tables, volume, index) {
        Ok(())
    } else {
        Err(OpenError::MapMemory {
            limit: tables.volumes.arena.max_pages() * BLOCK_BYTES,
        })
    }
}

/// True for a page that is there now. (What no volume has needs none.)
fn has_page(tables: &mut Tables, volume: VolumeId, index: u64) -> bool {
    tables
        .volumes
        .get_mut(volume)
        .is_none_or(|(v, arena)| v.map.ensure(arena, volume, index).is_some())
}

/// At the end: gives back what holds nothing; from then on the map has its bound. Pages for what is
/// `readmitted` from the journal are still to come.
pub(super) fn settle(tables: &mut Tables, map_bytes: u64, readmitted: &[Readmitted]) {
    drop_pages(tables, |entry| *entry == MapEntry::HOLE);
    let page_of = |item: &Readmitted| match item {
        Readmitted::Block { key, .. } => {
            Some((key.volume(), key.lba().0 / MAP_PAGE_ENTRIES as u64))
        }
        Readmitted::Record { .. } => None,
    };
    let is_missing = |(volume, index): &(VolumeId, u64)| {
        tables
            .volumes
            .get(*volume)
            .is_some_and(|v| v.map.slot(*index).is_none())
    };
    let to_come: BTreeSet<(VolumeId, u64)> = readmitted
        .iter()
        .filter_map(page_of)
        .filter(is_missing)
        .collect();
    if (tables.volumes.arena.used_pages() + to_come.len() as u64) * BLOCK_BYTES > map_bytes {
        drop_pages(tables, is_zeroes);
    }
    tables.volumes.arena.set_max_bytes(map_bytes);
}

/// Reads as zeroes.
fn is_zeroes(entry: &MapEntry) -> bool {
    [MapEntry::HOLE, MapEntry::ZERO].contains(entry)
}

/// Gives all pages back of which every entry is like that.
fn drop_pages(tables: &mut Tables, is_nothing: impl Fn(&MapEntry) -> bool) {
    let volumes = &mut tables.volumes;
    let ids: Vec<VolumeId> = volumes.with_hidden().map(|v| v.record.id).collect();
    for id in ids {
        let mut next = 0;
        while let Some((v, arena)) = volumes.get_mut(id) {
            let Some(index) = v.map.next_page(next, u64::from(u32::MAX)) else {
                break;
            };
            next = index + 1;
            let is_empty = v
                .map
                .slot(index)
                .is_some_and(|slot| arena.page(slot).iter().all(&is_nothing));
            if !is_empty {
                continue;
            }
            if let Some(pointer) = v
                .map
                .drop_page(arena, index)
                .filter(|pointer| pointer.present)
            {
                volumes.dropped.push((id, index as u32, pointer));
            }
        }
    }
}
