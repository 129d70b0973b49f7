//! Checkpoint loader: root -> chain of list pages -> leaves -> pages.
//!
//! A page pointer names the batch that holds the page, because the segment table, which identifies
//! batches, is not loaded yet. The pointer is compared with the batch itself later, with all other
//! references.

use crate::reader::{Origin, PoolReader, Rows};
use crate::state::{Segment, Tables};
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::checkpoint::{
    LeafRecord, ListPage, MAP_PAGE_ENTRIES, OBJECT_COUNTERS, OBJECT_LEAF, OBJECT_LIST, OBJECT_MAP,
    OBJECT_SEGMENTS, OBJECT_VOLUMES, PageError, PagePointer, SegmentTableGeometry, decode_leaf,
    decode_list, decode_map_page, decode_segment, decode_volumes,
};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::CheckpointRoot;
use windrow_types::{Address, BLOCK_SIZE, FULL_BLOCK_UNITS, SegmentId, VolumeId};

/// Reason that a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("a page of object {object} has an impossible address")]
    Address { object: u32 },
    #[error(
        "page {index} of object {object} in segment {segment}, block {block}, cannot be read or reconstructed"
    )]
    Unreadable {
        object: u32,
        index: u32,
        segment: SegmentId,
        block: u64,
    },
    #[error("page {index} of object {object}: {source}")]
    Page {
        object: u32,
        index: u32,
        source: PageError,
    },
    #[error("the list does not end")]
    Endless,
    #[error("object {0} does not exist")]
    Object(u32),
    #[error("object {object} has a page {index} past its end")]
    Beyond { object: u32, index: u32 },
    #[error("it has map pages of volume {0}, which is not in its table")]
    Volume(VolumeId),
    #[error("its maps need more than {0} bytes of memory")]
    Memory(u64),
}

/// A page that the checkpoint refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageRef {
    pub(crate) pointer: PagePointer,
    pub(crate) object: u32,
    /// `None` for leaf and list pages: the number in their entry is unknown.
    pub(crate) index: Option<u32>,
}

/// A loaded checkpoint.
pub(crate) struct Image {
    pub(crate) tables: Tables,
    pub(crate) pages: Vec<PageRef>,
    /// Number of pages that had to be reconstructed.
    pub(crate) rebuilt: u64,
    /// True if the page of the counters is unrecoverable.
    pub(crate) lost_counters: bool,
}

/// Loads a checkpoint, with at most `map_bytes` bytes of maps. `None` reads the maps and does not
/// keep them.
pub(crate) fn load(
    reader: &mut PoolReader<'_>,
    root: &CheckpointRoot,
    map_bytes: Option<u64>,
) -> Result<Image, ImageError> {
    let tables = Tables::new(&reader.zones);
    let image = Image {
        tables,
        pages: Vec::new(),
        rebuilt: 0,
        lost_counters: false,
    };
    let mut loader = Loader {
        reader,
        image,
        map_bytes,
        kept: 0,
        mapped: BTreeSet::new(),
    };
    let leaves = loader.list(root)?;
    for record in leaves {
        loader.leaf(&record)?;
    }
    let volumes = &loader.image.tables.volumes;
    if let Some(volume) = loader
        .mapped
        .iter()
        .find(|id| ![VolumeId::SHARED, VolumeId::INDEX].contains(id) && !volumes.contains_key(id))
    {
        return Err(ImageError::Volume(*volume));
    }
    Ok(loader.image)
}

struct Loader<'r, 'a> {
    reader: &'r mut PoolReader<'a>,
    image: Image,
    /// Limit of map memory; `None` if no maps are kept.
    map_bytes: Option<u64>,
    kept: u64,
    mapped: BTreeSet<VolumeId>,
}

impl Loader<'_, '_> {
    /// All leaf records, of the chain's pages and of the pages that records of the chain name.
    fn list(&mut self, root: &CheckpointRoot) -> Result<Vec<LeafRecord>, ImageError> {
        let mut leaves = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut next = root.list;
        while next.present {
            if !seen.insert(next.address) {
                return Err(ImageError::Endless);
            }
            let page = self.list_page(&next)?;
            for record in page.records {
                if record.object != OBJECT_LIST {
                    leaves.entry((record.object, record.leaf)).or_insert(record);
                    continue;
                }
                if !seen.insert(record.pointer.address) {
                    return Err(ImageError::Endless);
                }
                for record in self.list_page(&record.pointer)?.records {
                    if record.object == OBJECT_LIST {
                        return Err(ImageError::Endless);
                    }
                    leaves.entry((record.object, record.leaf)).or_insert(record);
                }
            }
            next = page.previous;
        }
        Ok(leaves
            .into_values()
            .filter(|record| record.pointer.present)
            .collect())
    }

    fn list_page(&mut self, pointer: &PagePointer) -> Result<ListPage, ImageError> {
        let bytes = self.page(pointer, OBJECT_LIST, None)?;
        decode_list(&bytes).map_err(|source| ImageError::Page {
            object: OBJECT_LIST,
            index: 0,
            source,
        })
    }

    fn leaf(&mut self, record: &LeafRecord) -> Result<(), ImageError> {
        let bytes = self.page(&record.pointer, OBJECT_LEAF, None)?;
        for (i, pointer) in decode_leaf(&bytes).iter().enumerate() {
            if pointer.present {
                let index = record
                    .leaf
                    .checked_mul(256)
                    .and_then(|first| first.checked_add(i as u32));
                let index = index.ok_or(ImageError::Beyond {
                    object: record.object,
                    index: record.leaf,
                })?;
                let page = match self.page(pointer, record.object, Some(index)) {
                    // They are informative only: a start continues with the checkpoint without
                    // them.
                    Err(ImageError::Unreadable { .. }) if record.object == OBJECT_COUNTERS => {
                        self.image.lost_counters = true;
                        continue;
                    }
                    page => page?,
                };
                self.table_page(record.object, index, &page)?;
            }
        }
        Ok(())
    }

    fn table_page(&mut self, object: u32, index: u32, page: &[u8]) -> Result<(), ImageError> {
        let wrong = |source| ImageError::Page {
            object,
            index,
            source,
        };
        match object {
            OBJECT_VOLUMES => {
                for record in decode_volumes(page).map_err(wrong)?.into_iter().flatten() {
                    if self
                        .image
                        .tables
                        .volumes
                        .insert(record.id, record)
                        .is_some()
                    {
                        return Err(wrong(PageError::Malformed("a volume has two records")));
                    }
                }
            }
            OBJECT_SEGMENTS => self.segments(index, page)?,
            OBJECT_COUNTERS => {}
            OBJECT_MAP.. => {
                let volume = VolumeId(object - OBJECT_MAP);
                self.mapped.insert(volume);
                let Some(most) = self.map_bytes else {
                    return Ok(());
                };
                self.kept += BLOCK_SIZE as u64;
                // A checkpoint is written while pages come and go (docs/internals/architecture.md,
                // "Maps"), and those of deduplication are not part of the user maps.
                if self.kept
                    > most
                        .saturating_mul(2)
                        .saturating_add(64 * BLOCK_SIZE as u64)
                {
                    return Err(ImageError::Memory(most));
                }
                let mut entries = Box::new([MapEntry::HOLE; MAP_PAGE_ENTRIES]);
                decode_map_page(page, &mut entries[..]);
                self.image
                    .tables
                    .put_page(volume, u64::from(index), entries);
            }
            _ => return Err(ImageError::Object(object)),
        }
        Ok(())
    }

    fn segments(&mut self, index: u32, page: &[u8]) -> Result<(), ImageError> {
        let zones = &self.reader.zones;
        let largest = zones
            .zones()
            .iter()
            .map(|z| z.shape.rows)
            .max()
            .unwrap_or(1);
        let geometry = SegmentTableGeometry::new(largest);
        let first = u64::from(index) * geometry.per_page as u64;
        if first + geometry.per_page as u64 > u64::from(u32::MAX) {
            return Err(ImageError::Beyond {
                object: OBJECT_SEGMENTS,
                index,
            });
        }
        for (i, bytes) in page
            .chunks_exact(geometry.stride)
            .take(geometry.per_page)
            .enumerate()
        {
            let segment = SegmentId(first as u32 + i as u32);
            if !zones.contains(segment) {
                // Of a removed layout, or after the last one.
                continue;
            }
            let record = decode_segment(bytes, segment, zones.shape(segment).rows);
            let record = record.map_err(|source| ImageError::Page {
                object: OBJECT_SEGMENTS,
                index,
                source,
            })?;
            if record.in_use {
                let (stream, last_seq) = (record.stream, record.last_seq);
                self.image.tables.segments[segment.index()] = Segment {
                    stream,
                    last_seq,
                    filled_rows: record.filled_rows,
                    starts: record.starts,
                };
            }
        }
        Ok(())
    }

    /// Reads and verifies a page.
    fn page(
        &mut self,
        pointer: &PagePointer,
        object: u32,
        index: Option<u32>,
    ) -> Result<Vec<u8>, ImageError> {
        self.image.pages.extend(self.map_bytes.map(|_| PageRef {
            pointer: *pointer,
            object,
            index,
        }));
        let (segment, block) =
            block_of(self.reader, pointer.address).ok_or(ImageError::Address { object })?;
        let shape = *self.reader.zones.shape(segment);
        let (row, rows) = (u32::from(pointer.batch_row), u32::from(pointer.batch_rows));
        let fits = row < shape.rows && rows <= shape.chunk_end(row) - row;
        if !fits || !(row..row + rows).contains(&shape.row_hint(block)) {
            return Err(ImageError::Address { object });
        }
        let mut rows = Rows::new(self.reader, segment, row, rows);
        let in_batch = (block - u64::from(row) * u64::from(shape.data)) as u32;
        let origin = rows.find_checksum(self.reader, in_batch, pointer.checksum);
        let origin = origin.ok_or(ImageError::Unreadable {
            object,
            index: index.unwrap_or(0),
            segment,
            block,
        })?;
        self.image.rebuilt += u64::from(origin != Origin::Member);
        Ok(rows.bytes(in_batch).to_vec())
    }
}

/// Segment and data block of an uncompressed block's address, if the address exists.
pub(crate) fn block_of(reader: &PoolReader<'_>, address: Address) -> Option<(SegmentId, u64)> {
    let segment = reader.codec.segment(address);
    let units = reader.codec.offset_units(address);
    let whole = units.is_multiple_of(u64::from(FULL_BLOCK_UNITS));
    let block = reader.codec.block(address);
    (whole && exists(reader, address, FULL_BLOCK_UNITS)).then_some((segment, block))
}

/// True if `units` units fit at this address.
pub(crate) fn exists(reader: &PoolReader<'_>, address: Address, units: u16) -> bool {
    let (segment, end) = (
        reader.codec.segment(address),
        reader.codec.offset_units(address) + u64::from(units),
    );
    let is_in =
        |segment| end <= reader.zones.shape(segment).data_blocks() * u64::from(FULL_BLOCK_UNITS);
    address.0 >> Address::BITS == 0 && reader.zones.contains(segment) && is_in(segment)
}

const _: () = assert!(BLOCK_SIZE == MAP_PAGE_ENTRIES * 16);
