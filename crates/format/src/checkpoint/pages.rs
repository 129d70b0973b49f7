//! Pointer pages, map pages and counter pages.

use super::{LEAF_POINTERS, LIST_RECORDS, LeafRecord, ListPage, PageError, PagePointer};
use crate::bytes::{COUNTER_MAX, put, u32_at, u64_at};
use crate::map_entry::MapEntry;
use windrow_types::{Address, BLOCK_SIZE};

/// First bytes of a list page.
pub const LIST_MAGIC: [u8; 8] = *b"WNDRWLST";
/// Numbers in a page of lifetime counters.
pub const COUNTERS_PER_PAGE: usize = BLOCK_SIZE / 8;

const POINTER_BYTES: usize = 16;
const PRESENT: u64 = 1 << 63;

// Offsets in a list page.
const L_CHECKPOINT: usize = 8;
const L_PREVIOUS: usize = 16;
const L_COUNT: usize = 32;
const L_RECORDS: usize = 64;
const RECORD_BYTES: usize = 24;
const _: () = assert!(
    L_RECORDS + LIST_RECORDS * RECORD_BYTES == BLOCK_SIZE
        && LEAF_POINTERS * POINTER_BYTES == BLOCK_SIZE
);

impl PagePointer {
    /// A pointer to a page.
    pub fn to(address: Address, checksum: u32, batch_row: u16, batch_rows: u16) -> Self {
        Self {
            address,
            checksum,
            batch_row,
            batch_rows,
            present: true,
        }
    }

    /// On-disk form:
    /// ```text
    /// word 0   bits 0..46 address, bits 46..63 zero, bit 63: there is such a page
    /// word 1   bits 0..32 CRC-32C of the page, bits 32..48 first row of its batch, bits 48..64 rows of its batch
    /// ```
    pub fn to_bytes(&self) -> [u8; POINTER_BYTES] {
        let mut out = [0; POINTER_BYTES];
        if self.present {
            out[..8].copy_from_slice(&(self.address.0 | PRESENT).to_le_bytes());
            out[8..12].copy_from_slice(&self.checksum.to_le_bytes());
            out[12..14].copy_from_slice(&self.batch_row.to_le_bytes());
            out[14..16].copy_from_slice(&self.batch_rows.to_le_bytes());
        }
        out
    }

    /// Decodes the on-disk form. Reserved bits are ignored: the page was verified by its pointer,
    /// and a version that gives them a meaning sets an incompatible feature flag.
    pub fn from_bytes(bytes: &[u8; POINTER_BYTES]) -> Self {
        let word = u64_at(bytes, 0);
        if word & PRESENT == 0 {
            return Self::default();
        }
        let batch = u32_at(bytes, 12);
        let address = Address(word & ((1 << Address::BITS) - 1));
        Self {
            address,
            checksum: u32_at(bytes, 8),
            batch_row: batch as u16,
            batch_rows: (batch >> 16) as u16,
            present: true,
        }
    }
}

pub(crate) fn pointer_at(bytes: &[u8], at: usize) -> PagePointer {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.map_or(PagePointer::default(), PagePointer::from_bytes)
}

/// Writes a leaf: at most 256 pointers; the rest of the page becomes absent pointers.
///
/// # Panics
/// If there are more pointers or `page` is not 4096 bytes.
pub fn encode_leaf(pointers: &[PagePointer], page: &mut [u8]) {
    assert!(
        pointers.len() <= LEAF_POINTERS && page.len() == BLOCK_SIZE,
        "a leaf of {} pointers",
        pointers.len()
    );
    let (slots, rest) = page.split_at_mut(pointers.len() * POINTER_BYTES);
    for (slot, pointer) in slots.chunks_exact_mut(POINTER_BYTES).zip(pointers) {
        slot.copy_from_slice(&pointer.to_bytes());
    }
    rest.fill(0);
}

/// Reads a leaf: 256 pointers (fewer if `page` is shorter than a page).
pub fn decode_leaf(page: &[u8]) -> Vec<PagePointer> {
    page.as_chunks()
        .0
        .iter()
        .take(LEAF_POINTERS)
        .map(PagePointer::from_bytes)
        .collect()
}

/// Writes a page of the list.
///
/// # Panics
/// If it has more than [`LIST_RECORDS`] records, one of an impossible leaf, or `page` is not
/// 4096 bytes.
pub fn encode_list(list: &ListPage, page: &mut [u8]) {
    assert!(
        list.records.len() <= LIST_RECORDS && page.len() == BLOCK_SIZE,
        "a list page of {} records",
        list.records.len()
    );
    assert!(
        list.records.iter().all(LeafRecord::can_be),
        "a list page of impossible leaves"
    );
    page.fill(0);
    put(page, 0, &LIST_MAGIC);
    put(page, L_CHECKPOINT, &list.checkpoint.to_le_bytes());
    put(page, L_PREVIOUS, &list.previous.to_bytes());
    put(page, L_COUNT, &(list.records.len() as u32).to_le_bytes());
    for (i, record) in list.records.iter().enumerate() {
        let at = L_RECORDS + i * RECORD_BYTES;
        put(page, at, &record.object.to_le_bytes());
        put(page, at + 4, &record.leaf.to_le_bytes());
        put(page, at + 8, &record.pointer.to_bytes());
    }
}

/// Reads a page of the list.
pub fn decode_list(page: &[u8]) -> Result<ListPage, PageError> {
    if page.len() != BLOCK_SIZE {
        return Err(PageError::WrongLength);
    }
    if page[..8] != LIST_MAGIC {
        return Err(PageError::NoList);
    }
    let count = u32_at(page, L_COUNT) as usize;
    if count > LIST_RECORDS {
        return Err(PageError::Malformed("more records than fit in a list page"));
    }
    let records = page[L_RECORDS..].chunks_exact(RECORD_BYTES).take(count);
    let records = records.map(|r| LeafRecord {
        object: u32_at(r, 0),
        leaf: u32_at(r, 4),
        pointer: pointer_at(r, 8),
    });
    let records: Vec<LeafRecord> = records.collect();
    if !records.iter().all(LeafRecord::can_be) {
        return Err(PageError::Malformed(
            "a leaf of an object or of pages that cannot exist",
        ));
    }
    Ok(ListPage {
        checkpoint: u64_at(page, L_CHECKPOINT),
        previous: pointer_at(page, L_PREVIOUS),
        records,
    })
}

/// Writes a page of the map: at most 256 entries; the rest of the page becomes holes.
///
/// # Panics
/// If there are more entries or `page` is not 4096 bytes.
pub fn encode_map_page(entries: &[MapEntry], page: &mut [u8]) {
    assert!(
        entries.len() <= super::MAP_PAGE_ENTRIES && page.len() == BLOCK_SIZE,
        "a map page of {} entries",
        entries.len()
    );
    let (slots, rest) = page.split_at_mut(entries.len() * 16);
    for (slot, entry) in slots.as_chunks_mut::<16>().0.iter_mut().zip(entries) {
        *slot = entry.to_bytes();
    }
    rest.fill(0);
}

/// Reads a page of the map, up to the shorter of the two sides. Nothing is checked here, because
/// recovery reads millions of entries; [`MapEntry::state`] reports an unknown state.
pub fn decode_map_page(page: &[u8], entries: &mut [MapEntry]) {
    for (entry, slot) in entries.iter_mut().zip(page.as_chunks::<16>().0) {
        *entry = MapEntry::from_bytes(slot);
    }
}

/// Writes a page of lifetime counters: at most 512; the rest becomes zero.
///
/// # Panics
/// If there are more counters or `page` is not 4096 bytes.
pub fn encode_counters(counters: &[u64], page: &mut [u8]) {
    assert!(
        counters.len() <= COUNTERS_PER_PAGE && page.len() == BLOCK_SIZE,
        "a page of {} counters",
        counters.len()
    );
    page.fill(0);
    for (slot, counter) in page.chunks_exact_mut(8).zip(counters) {
        slot.copy_from_slice(&counter.to_le_bytes());
    }
}

/// Reads a page of lifetime counters: 512 numbers (fewer if `page` is shorter than a page), clamped
/// so that adding to one cannot overflow.
pub fn decode_counters(page: &[u8]) -> Vec<u64> {
    page.chunks_exact(8)
        .take(COUNTERS_PER_PAGE)
        .map(|c| u64_at(c, 0).min(COUNTER_MAX))
        .collect()
}
