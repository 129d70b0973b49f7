//! Pieces: payload within bytes that were read, each with its checksum.
//!
//! An uncompressed block is a piece of 4096 bytes in one row. A compressed payload is smaller, in
//! one row or two adjacent ones of one column.

use windrow_format::batch::PayloadInfo;
use windrow_types::{ADDRESS_UNIT, Address, AddressCodec, BLOCK_SIZE, FULL_BLOCK_UNITS, SegmentId};

/// Payload in a run of rows of one column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Offset of its first byte in the run.
    pub(crate) at: u32,
    /// Length in bytes.
    pub(crate) length: u32,
    /// CRC-32C of them.
    pub(crate) checksum: u32,
}

impl Piece {
    /// The uncompressed block in row `row` of the run.
    pub(crate) fn row(row: u32, checksum: u32) -> Self {
        Self {
            at: row * BLOCK_SIZE as u32,
            length: BLOCK_SIZE as u32,
            checksum,
        }
    }

    /// `units` units, from unit `unit` of the run on.
    pub(crate) fn of_units(unit: u32, units: u16, checksum: u32) -> Self {
        Self {
            at: unit * ADDRESS_UNIT as u32,
            length: u32::from(units) * ADDRESS_UNIT as u32,
            checksum,
        }
    }

    /// Range of its bytes within the run.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.at as usize..(self.at + self.length) as usize
    }

    /// First and last row of the run that contain it.
    pub(crate) fn rows(&self) -> (u32, u32) {
        (
            self.at / BLOCK_SIZE as u32,
            (self.at + self.length.max(1) - 1) / BLOCK_SIZE as u32,
        )
    }

    /// The same piece in a run that begins `rows` rows later.
    pub(crate) fn behind(self, rows: u32) -> Self {
        Self {
            at: self.at - rows * BLOCK_SIZE as u32,
            ..self
        }
    }

    /// True if the bytes match their checksum.
    pub(crate) fn is_in(&self, run: &[u8]) -> bool {
        windrow_reduction::checksum(&run[self.range()]) == self.checksum
    }

    /// True if it is not an uncompressed block.
    pub(crate) fn is_compressed(&self) -> bool {
        (self.length as usize) < BLOCK_SIZE
    }
}

/// Units of a payload in memory: an uncompressed block, or its stored form.
#[inline]
pub(crate) fn units_of(payload: &[u8]) -> u16 {
    if payload.len() == BLOCK_SIZE {
        FULL_BLOCK_UNITS
    } else {
        (payload.len() / ADDRESS_UNIT) as u16
    }
}

/// Address of a payload in a batch.
pub(crate) fn address_in(
    codec: &AddressCodec,
    segment: SegmentId,
    row: u32,
    data: u8,
    payload: &PayloadInfo,
) -> Address {
    codec.pack(
        segment,
        u64::from(row) * u64::from(data) * u64::from(FULL_BLOCK_UNITS) + u64::from(payload.unit),
    )
}
