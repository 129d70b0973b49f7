//! Payload of a reference: an uncompressed block, or compressed payload in one or two blocks, and a
//! check that it decompresses.

use super::{Reference, SegmentCheck};
use crate::reader::{Origin, Rows};
use windrow_format::batch::{DecodedBatch, payload_checksum};
use windrow_format::superblock::Features;
use windrow_reduction::Made;
use windrow_types::{ADDRESS_UNIT, BLOCK_SIZE, FULL_BLOCK_UNITS};

impl SegmentCheck<'_, '_, '_> {
    /// Finds the payload of a reference: an uncompressed block by its own checksum, compressed
    /// payload by the checksums of its blocks. If these are unknown, or such a block is
    /// unrecoverable (the wrong bytes may be a neighbour's), all candidates of its one or two
    /// blocks are tried.
    pub(super) fn find_payload(
        &mut self,
        rows: &mut Rows,
        batch: Option<&DecodedBatch>,
        reference: &Reference,
    ) -> Option<Origin> {
        let blocks = self.blocks_in(rows, reference);
        if reference.units == FULL_BLOCK_UNITS {
            return rows.find_checksum(self.reader, *blocks.start(), reference.checksum);
        }
        if !batch.is_some_and(|batch| self.find_blocks(rows, batch, reference)) {
            self.find_bytes(rows, reference)?;
        }
        let mut origins = blocks.map(|block| rows.origin(block));
        let one = origins.next()?;
        Some(origins.fold(one, |one, other| {
            if one == Origin::Wrong || other == Origin::Member {
                one
            } else {
                other
            }
        }))
    }

    /// Finds compressed payload by the block checksums in the batch.
    fn find_blocks(
        &mut self,
        rows: &mut Rows,
        batch: &DecodedBatch,
        reference: &Reference,
    ) -> bool {
        let found = self.blocks_in(rows, reference).all(|block| {
            let sum = block
                .checked_sub(batch.frame.head_blocks)
                .and_then(|at| batch.blocks.get(at as usize));
            sum.is_some_and(|sum| rows.find_checksum(self.reader, block, *sum).is_some())
        });
        found && payload_checksum(&self.stored(rows, reference)) == reference.checksum
    }

    /// Finds compressed payload by its own checksum alone.
    fn find_bytes(&mut self, rows: &mut Rows, reference: &Reference) -> Option<()> {
        let blocks = self.blocks_in(rows, reference);
        let (first, last) = (*blocks.start(), *blocks.end());
        let ends = if last > first {
            rows.candidates(self.reader, last)
        } else {
            vec![Vec::new()]
        };
        let starts = rows.candidates(self.reader, first);
        let range = self.range_in(rows, reference);
        let fits = |start: &[u8], end: &[u8]| {
            payload_checksum(&[start, end].concat()[range.clone()]) == reference.checksum
        };
        let (start, end) = starts.iter().find_map(|start| {
            ends.iter()
                .find(|end| fits(start, end))
                .map(|end| (start, end))
        })?;
        correct_part(rows, first, start, range.start..range.end.min(BLOCK_SIZE));
        if last > first {
            correct_part(rows, last, end, 0..range.end - BLOCK_SIZE);
        }
        Some(())
    }

    /// Byte range of a reference, from the first byte of the block in which it begins.
    fn range_in(&self, rows: &Rows, reference: &Reference) -> std::ops::Range<usize> {
        let start =
            (self.unit_in(rows, reference) % u32::from(FULL_BLOCK_UNITS)) as usize * ADDRESS_UNIT;
        start..start + usize::from(reference.units) * ADDRESS_UNIT
    }

    /// Stored bytes of a reference whose blocks were found.
    fn stored(&self, rows: &Rows, reference: &Reference) -> Vec<u8> {
        let bytes: Vec<u8> = self
            .blocks_in(rows, reference)
            .flat_map(|block| rows.bytes(block).to_vec())
            .collect();
        bytes
            .get(self.range_in(rows, reference))
            .map(<[u8]>::to_vec)
            .unwrap_or_default()
    }

    /// False if the stored bytes of a block do not decompress although they verify.
    pub(super) fn unpacks(&self, rows: &Rows, reference: &Reference) -> bool {
        reference.units == FULL_BLOCK_UNITS
            || self
                .codecs
                .decompress_stored(&self.stored(rows, reference), &mut [0; BLOCK_SIZE])
    }

    /// True if the pool has the feature flag for this kind of stored payload.
    pub(super) fn is_flagged(&self, rows: &Rows, reference: &Reference) -> bool {
        if reference.units == FULL_BLOCK_UNITS {
            return true;
        }
        let needed = match Made::of(&self.stored(rows, reference)) {
            Some((Made::Zstd | Made::Lz4Final, _)) => Features::COMPRESSED | Features::ZSTD,
            _ => Features::COMPRESSED,
        };
        self.flags & needed == needed
    }
}

/// Corrects the bytes of one payload. The rest of the block stays: a neighbour may be right there,
/// and wrong in the candidate that is right for this one.
fn correct_part(rows: &mut Rows, block: u32, right: &[u8], part: std::ops::Range<usize>) {
    let mut whole = rows.known_bytes(block).unwrap_or(right).to_vec();
    whole[part.clone()].copy_from_slice(&right[part]);
    rows.correct(block, &whole);
}
