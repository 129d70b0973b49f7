//! Geometry of a journal: a ring of chunks, each with the same bytes on several members.
//!
//! The area takes `bytes` at `start` of each of `m` members. Copy `t` of chunk `j` lies, with
//! `x = j * copies + t`, on the member at position `x mod m`, in slot `x div m` of the area there.
//! As with the extents of a segment, chunks rotate over the members and wear is even.
//!
//! A *granule* is the unit of record lengths: the largest sector of the members, 512 or 4096
//! bytes.

use crate::MAX_MEMBERS;
use serde::{Deserialize, Serialize};
use windrow_types::{BLOCK_BYTES, MemberId};

/// Smallest chunk in bytes.
pub const JOURNAL_CHUNK_MIN: u32 = 16 << 10;
/// Largest chunk in bytes.
pub const JOURNAL_CHUNK_MAX: u32 = 1 << 20;
/// Fewest chunks of a journal: one is being filled while others wait for the log.
pub const JOURNAL_CHUNKS_MIN: u32 = 4;
/// Most chunks of a journal.
pub const JOURNAL_CHUNKS_MAX: u32 = 1 << 24;

/// Location of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JournalArea {
    /// Members that hold it, as a bit mask.
    pub members: u64,
    /// Number of copies of each chunk.
    pub copies: u8,
    /// Byte offset of the area on each member.
    pub start: u64,
    /// Bytes of a chunk, a power of two.
    pub chunk_bytes: u32,
    /// Number of chunks.
    pub chunks: u32,
    /// Unit of record lengths: 512 or 4096 bytes.
    pub granule: u32,
    /// True if completed writes are durable without a flush (MRAM, NVDIMM, caches that survive).
    pub power_safe: bool,
}

impl JournalArea {
    /// The largest journal with chunks of this size in `bytes` of each member of the mask; `None`
    /// if that is too little.
    pub fn fit(
        members: u64,
        copies: u8,
        start: u64,
        bytes: u64,
        chunk_bytes: u32,
        granule: u32,
    ) -> Option<Self> {
        let places = bytes / u64::from(chunk_bytes) * u64::from(members.count_ones());
        let chunks = u32::try_from(places / u64::from(copies.max(1))).ok()?;
        let area = Self {
            members,
            copies,
            start,
            chunk_bytes,
            chunks,
            granule,
            power_safe: false,
        };
        area.is_valid().then_some(area)
    }

    /// True if the fields are consistent.
    pub fn is_valid(&self) -> bool {
        let chunk = (JOURNAL_CHUNK_MIN..=JOURNAL_CHUNK_MAX).contains(&self.chunk_bytes)
            && self.chunk_bytes.is_power_of_two();
        let copies = self.copies > 0 && u32::from(self.copies) <= self.members.count_ones();
        let length = self
            .chunks_each()
            .checked_mul(u64::from(self.chunk_bytes.max(1)));
        let end = length.and_then(|length| length.checked_add(self.start));
        let granule = self.granule == 512 || u64::from(self.granule) == BLOCK_BYTES;
        chunk
            && copies
            && granule
            && self.start.is_multiple_of(BLOCK_BYTES)
            && end.is_some()
            && (JOURNAL_CHUNKS_MIN..=JOURNAL_CHUNKS_MAX).contains(&self.chunks)
    }

    /// Chunk slots of the area on each member.
    fn chunks_each(&self) -> u64 {
        (u64::from(self.chunks) * u64::from(self.copies))
            .div_ceil(u64::from(self.members.count_ones().max(1)))
    }

    /// First byte after the area on each member.
    pub fn end(&self) -> u64 {
        self.start + self.chunks_each() * u64::from(self.chunk_bytes)
    }

    /// Bytes of records that it holds, not counting copies.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.chunks) * u64::from(self.chunk_bytes)
    }

    /// Member and byte offset of a copy of a chunk.
    pub fn locate(&self, chunk: u32, copy: u8) -> (MemberId, u64) {
        let slot = u64::from(chunk) * u64::from(self.copies) + u64::from(copy);
        let count = u64::from(self.members.count_ones().max(1));
        let position = (slot % count) as usize;
        let member = (0..MAX_MEMBERS as u8)
            .filter(|m| self.members >> m & 1 == 1)
            .nth(position)
            .unwrap_or(0);
        (
            MemberId(member),
            self.start + slot / count * u64::from(self.chunk_bytes),
        )
    }

    /// Members and byte offsets of all copies of a chunk.
    pub fn copies_of(&self, chunk: u32) -> impl Iterator<Item = (MemberId, u64)> + '_ {
        (0..self.copies).map(move |copy| self.locate(chunk, copy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn copies_are_on_different_members_and_do_not_overlap() {
        for (members, copies) in [(0xffu64, 3u8), (0b1011, 2), (0b111, 3), (1, 1), (0x1f, 2)] {
            let area =
                JournalArea::fit(members, copies, 1 << 20, 1 << 20, 64 << 10, 512).expect("fits");
            let mut seen = BTreeSet::new();
            for chunk in 0..area.chunks {
                let copies: Vec<_> = area.copies_of(chunk).collect();
                assert_eq!(
                    copies.iter().map(|c| c.0).collect::<BTreeSet<_>>().len(),
                    copies.len(),
                    "chunk {chunk} of {area:?}"
                );
                for (member, offset) in copies {
                    assert!(
                        members >> member.0 & 1 == 1
                            && offset >= area.start
                            && offset + 65536 <= area.end()
                    );
                    assert!(seen.insert((member, offset)), "a place is used twice");
                }
            }
            assert!(area.end() <= 2 << 20);
        }
    }

    #[test]
    fn what_does_not_fit_is_no_journal() {
        assert_eq!(
            JournalArea::fit(0xff, 3, 1 << 20, 64 << 10, 64 << 10, 512),
            None,
            "two chunks are too few"
        );
        assert_eq!(
            JournalArea::fit(0b11, 3, 1 << 20, 1 << 20, 64 << 10, 512),
            None,
            "more copies than members"
        );
        assert_eq!(
            JournalArea::fit(0xff, 3, 1 << 20, 1 << 20, 5000, 512),
            None,
            "chunks are powers of two"
        );
    }
}
