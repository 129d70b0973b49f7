//! Pages of the deduplication index: fingerprints of content, in the order in which the content was
//! written (`docs/internals/format.md`, section 8a).
//!
//! ```text
//!  0 magic "WIDX"            4 entries n (16 bits), 0 (16 bits)
//!  8 LSN of the oldest entry            16 LSN of the newest one
//! 24 number of the page written before (0xffff_ffff: none)   28 zero
//! 32 n entries of 24 bytes: fingerprint (128 bits), id (32), low half of the LSN that gave the id this content (32)
//!    zero to the end
//! ```
//! A page is a hint: an entry is valid only while the id has the content that this LSN gave it. A
//! page has no checksum of its own: it is a block, and its map entry has one.

use crate::bytes::{self, is_zero, put, u32_at, u64_at};
use windrow_types::{BLOCK_SIZE, Lsn};

/// First bytes of a page.
pub const INDEX_MAGIC: [u8; 4] = *b"WIDX";
/// Most entries of a page.
pub const INDEX_PAGE_ENTRIES: usize = (BLOCK_SIZE - HEAD) / ENTRY;
/// No page.
pub const NO_INDEX_PAGE: u32 = u32::MAX;
/// Upper limit (exclusive) of page numbers.
pub const INDEX_PAGES_MAX: u64 = 1 << 28;

const HEAD: usize = 32;
const ENTRY: usize = 24;

/// Record that content with this fingerprint was given this id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Fingerprint.
    pub fingerprint: u128,
    /// Block of the shared volume.
    pub id: u32,
    /// LSN that gave the id this content.
    pub lsn: Lsn,
}

/// Header fields of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexPage {
    /// LSN of the oldest entry.
    pub first: Lsn,
    /// LSN of the newest entry.
    pub last: Lsn,
    /// Number of the page that was written before it, or [`NO_INDEX_PAGE`].
    pub previous: u32,
}

/// Encodes a page.
///
/// # Panics
/// If there are no entries, more than [`INDEX_PAGE_ENTRIES`], or LSNs that do not ascend or are
/// 2^32 apart.
pub fn encode_index_page(entries: &[IndexEntry], previous: u32, page: &mut [u8]) {
    assert!(
        (1..=INDEX_PAGE_ENTRIES).contains(&entries.len()) && page.len() == BLOCK_SIZE,
        "a page of {} entries",
        entries.len()
    );
    let (first, last) = (entries[0].lsn.0, entries[entries.len() - 1].lsn.0);
    assert!(
        last.wrapping_sub(first) <= u64::from(u32::MAX)
            && entries.is_sorted_by_key(|entry| entry.lsn),
        "LSNs from {first} to {last} in a page"
    );
    page.fill(0);
    put(page, 0, &INDEX_MAGIC);
    put(page, 4, &(entries.len() as u16).to_le_bytes());
    put(page, 8, &first.to_le_bytes());
    put(page, 16, &last.to_le_bytes());
    put(page, 24, &previous.to_le_bytes());
    for (at, entry) in (HEAD..).step_by(ENTRY).zip(entries) {
        put(page, at, &entry.fingerprint.to_le_bytes());
        put(page, at + 16, &entry.id.to_le_bytes());
        put(page, at + 20, &(entry.lsn.0 as u32).to_le_bytes());
    }
}

/// Decodes a page into `entries`, which is cleared first. `None` if it is not an index page.
pub fn decode_index_page(page: &[u8], entries: &mut Vec<IndexEntry>) -> Option<IndexPage> {
    entries.clear();
    let (count, first, last) = (
        usize::from(bytes::u16_at(page, 4)),
        u64_at(page, 8),
        u64_at(page, 16),
    );
    let end = HEAD + count * ENTRY;
    let whole = page.len() == BLOCK_SIZE
        && page.starts_with(&INDEX_MAGIC)
        && (1..=INDEX_PAGE_ENTRIES).contains(&count);
    if !whole
        || bytes::u16_at(page, 6) != 0
        || u32_at(page, 28) != 0
        || !is_zero(&page[end..])
        || last.checked_sub(first)? > u64::from(u32::MAX)
    {
        return None;
    }
    for at in (HEAD..end).step_by(ENTRY) {
        let fingerprint = u128::from(u64_at(page, at)) | u128::from(u64_at(page, at + 8)) << 64;
        let behind = u32_at(page, at + 20).wrapping_sub(first as u32);
        entries.push(IndexEntry {
            fingerprint,
            id: u32_at(page, at + 16),
            lsn: Lsn(first.checked_add(u64::from(behind))?),
        });
    }
    let ends = entries
        .first()
        .zip(entries.last())
        .is_some_and(|(a, b)| a.lsn.0 == first && b.lsn.0 == last);
    (ends && entries.is_sorted_by_key(|entry| entry.lsn)).then(|| IndexPage {
        first: Lsn(first),
        last: Lsn(last),
        previous: u32_at(page, 24),
    })
}

#[cfg(test)]
mod tests;
