//! Payload behind a reference: a whole block, or packed payload in one or two blocks, and whether it unpacks.

use super::{Reference, SegmentCheck};
use crate::reader::{Origin, Rows};
use windrow_layout::batch::{DecodedBatch, payload_checksum};
use windrow_layout::superblock::Features;
use windrow_reduce::Made;
use windrow_units::{BLOCK_SIZE, FULL_BLOCK_UNITS, PLACE_UNIT};

impl SegmentCheck<'_, '_, '_> {
    /// Finds the payload behind a reference: by itself, or by the checksums of the blocks that packed payload lies in. Without these its one or two
    /// blocks are tried with all that they may be.
    pub(super) fn find_payload(&mut self, rows: &mut Rows, batch: Option<&DecodedBatch>, reference: &Reference) -> Option<Origin> {
        let blocks = self.blocks_in(rows, reference);
        let (first, last) = (*blocks.start(), *blocks.end());
        if reference.units == FULL_BLOCK_UNITS {
            return rows.find_checksum(self.reader, first, reference.checksum);
        }
        match batch {
            Some(batch) => {
                for block in blocks.clone() {
                    let sum = *batch.blocks.get(block.checked_sub(batch.frame.head_blocks)? as usize)?;
                    rows.find_checksum(self.reader, block, sum)?;
                }
                (payload_checksum(&self.stored(rows, reference)) == reference.checksum).then_some(())?;
            }
            None => {
                let ends = if last > first { rows.candidates(self.reader, last) } else { vec![Vec::new()] };
                let starts = rows.candidates(self.reader, first);
                let range = self.range_in(rows, reference);
                let fits = |start: &[u8], end: &[u8]| payload_checksum(&[start, end].concat()[range.clone()]) == reference.checksum;
                let (start, end) = starts.iter().find_map(|start| ends.iter().find(|end| fits(start, end)).map(|end| (start, end)))?;
                rows.correct(first, start);
                if last > first {
                    rows.correct(last, end);
                }
            }
        }
        let mut origins = blocks.map(|block| rows.origin(block));
        let one = origins.next()?;
        Some(origins.fold(one, |one, other| if one == Origin::Wrong || other == Origin::Member { one } else { other }))
    }

    /// Bytes of a reference, from the first byte of the block in which it begins.
    fn range_in(&self, rows: &Rows, reference: &Reference) -> std::ops::Range<usize> {
        let start = (self.unit_in(rows, reference) % u32::from(FULL_BLOCK_UNITS)) as usize * PLACE_UNIT;
        start..start + usize::from(reference.units) * PLACE_UNIT
    }

    /// What is stored of a reference, once its blocks were found.
    fn stored(&self, rows: &Rows, reference: &Reference) -> Vec<u8> {
        let bytes: Vec<u8> = self.blocks_in(rows, reference).flat_map(|block| rows.bytes(block).to_vec()).collect();
        bytes.get(self.range_in(rows, reference)).map(<[u8]>::to_vec).unwrap_or_default()
    }

    /// What is wrong with what is stored of a block although its bytes are right.
    pub(super) fn fault(&self, rows: &Rows, reference: &Reference) -> Option<&'static str> {
        if reference.units == FULL_BLOCK_UNITS {
            return None;
        }
        let stored = self.stored(rows, reference);
        if !self.codecs.unpack_stored(&stored, &mut [0; BLOCK_SIZE]) {
            return Some("its bytes are right, but they can not be unpacked");
        }
        let needs_flag = matches!(Made::of(&stored), Some((Made::Zstd | Made::Lz4Final, _)));
        (needs_flag && self.flags & Features::ZSTD == 0).then_some("zstd, or tried with it, in a pool without the flag for it")
    }
}
