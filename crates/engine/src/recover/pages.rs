//! Map pages while the tables are recovered.
//!
//! In service a page is freed as soon as it holds nothing, so the map's limit counts pages that
//! hold something. Following each trim as closely during recovery would be slow: it looks for empty
//! pages only when it has no other, and at its end.
//!
//! **Claim.** Recovery fits into the pages that the engine had. After all entries up to LSN n, a
//! page with data holds a block with an LSN up to n that no trim up to n removed. When n was
//! admitted in service, that block was in the map or pending, so its page was present. Additional
//! pages may come from:
//!
//! - (a) Volumes being deleted: in service they are deleted in steps, here at once.
//! - (b) Pages of zeroes, which service creates only while there is plenty: as holes they read the
//!   same.
//! - (c) Checkpoint images, which are taken one after the other, so some are of a later time than
//!   others.
//! - (d) Content without references at an earlier start: its pages were reused there. Here it stays
//!   to the end, as references may still follow.
//!
//! [`recovery_bytes`] covers (c) and (d).

use super::journal::Readmitted;
use super::tables::clear_deleted;
use super::{OpenError, Tables};
use std::collections::BTreeSet;
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_format::map_entry::MapEntry;
use windrow_types::{BLOCK_BYTES, VolumeId};

/// Memory limit of maps during recovery, given `map_bytes` afterwards. It is twice that: all of it
/// may have been content that the previous start dropped, and be reused since.
pub(super) fn recovery_bytes(map_bytes: u64) -> u64 {
    map_bytes.saturating_mul(2).saturating_add(64 * BLOCK_BYTES)
}

/// Ensures that a page is present; see the module.
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
        // Few became free: each of the next pages would search again.
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

/// True if the page is present now. A missing volume needs none.
fn has_page(tables: &mut Tables, volume: VolumeId, index: u64) -> bool {
    tables
        .volumes
        .get_mut(volume)
        .is_none_or(|(v, arena)| v.map.ensure(arena, volume, index).is_some())
}

/// Frees empty pages at the end; from then on the map has its limit. Pages of zeroes go as well if
/// the pages for the `readmitted` blocks would not fit otherwise.
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

/// True if the entry reads as zeroes.
fn is_zeroes(entry: &MapEntry) -> bool {
    [MapEntry::HOLE, MapEntry::ZERO].contains(entry)
}

/// Frees all pages whose every entry is nothing.
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
