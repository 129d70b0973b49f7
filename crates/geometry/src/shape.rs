//! Geometry: how segments lie on members and how the blocks of a batch lie in a segment.
//!
//! **Zones.** Members may differ in size. A zone is a range of equal extents on a set of members:
//! zone 0 uses all members up to the size of the smallest, zone 1 the rest of the larger ones, and
//! so on, as long as enough members remain for the redundancy. A zone's segments have one
//! [`Shape`].
//!
//! **Extents.** A segment of width `w` in a zone of `m` members takes one extent on each of `w`
//! members. Segment `j` uses member positions `(j*w + t) mod m`, `t = 0..w`, and on each of them
//! extent `(j*w + t) / m`: wide zones (`w = m`) put every segment on every member, narrow ones
//! rotate so that all members fill evenly, for odd member counts too.
//!
//! **Rows and columns.** A segment has `rows` rows of one block on each of its `w` members. Columns
//! `0..k` carry data, columns `k..w` redundancy (parity P, Q, or further copies: copy `c` of data
//! column `d` is column `c*k + d`). Rows are grouped in chunks of `chunk_rows`; in chunk `g` column
//! `c` lies on position `(c + g) mod w`, so redundancy rotates. A batch never crosses a chunk.
//!
//! **Data space.** A batch at row `s` with `R` rows owns data blocks `s*k .. (s+R)*k` of its
//! segment; its block `d` lies in column `d / R` at row `s + d mod R`: every member holds `R`
//! contiguous blocks of the batch. To find a block one needs the batch that holds it; as
//! `(s*k + d) / k` lies in `s .. s+R`, a bit set of batch start rows suffices.
//!
//! **Layouts.** A reshape lays zones of a new *layout* over the same bytes: only segments of the
//! newest layout are written from then on, those of older layouts are emptied. All zones of a pool
//! have extents of one size on one grid, so a segment of one layout shares whole extents with
//! segments of another ([`ZoneMap::overlapping`]), never parts of them.

use serde::{Deserialize, Serialize};
use windrow_types::{BLOCK_BYTES, MemberId, SegmentId};

/// Most members of a pool.
pub const MAX_MEMBERS: usize = 64;

/// Redundancy that the administrator selects at creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redundancy {
    /// `0`: striping, no redundancy.
    None,
    /// `1`: this many copies of everything (2 to 4).
    Copies(u8),
    /// `5`: one parity column.
    Single,
    /// `6`: two parity columns.
    Double,
}

/// Reason that a redundancy does not fit a number of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("redundancy {name} needs {min} to {max} members, {given} given")]
pub struct RedundancyError {
    /// Name of the redundancy.
    pub name: &'static str,
    /// Fewest members.
    pub min: usize,
    /// Most members.
    pub max: usize,
    /// Members given.
    pub given: usize,
}

impl Redundancy {
    /// Name on the command line: `0`, `1`, `5`, `6`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "0",
            Self::Copies(_) => "1",
            Self::Single => "5",
            Self::Double => "6",
        }
    }

    /// Minimum number of members of a pool (and of a segment).
    pub fn min_members(self) -> usize {
        match self {
            Self::None => 1,
            Self::Copies(copies) => copies as usize,
            Self::Single => 3,
            Self::Double => 4,
        }
    }

    /// Maximum width of a segment. A single-parity row over more than 32 members is too likely to
    /// meet a second fault.
    pub fn max_width(self) -> usize {
        match self {
            Self::Single => 32,
            _ => MAX_MEMBERS,
        }
    }

    /// Number of lost members that a segment survives.
    pub fn tolerance(self) -> usize {
        match self {
            Self::None => 0,
            Self::Copies(copies) => copies as usize - 1,
            Self::Single => 1,
            Self::Double => 2,
        }
    }

    /// The widest segment shape over `members` members; copies use the largest multiple of the copy
    /// count.
    pub fn shape(
        self,
        members: usize,
        rows: u32,
        chunk_rows: u32,
    ) -> Result<Shape, RedundancyError> {
        let (min, max) = (self.min_members(), MAX_MEMBERS);
        if members < min || members > max {
            return Err(RedundancyError {
                name: self.name(),
                min,
                max,
                given: members,
            });
        }
        let width = members.min(self.max_width());
        let (width, data, code) = match self {
            Self::None => (width, width, Code::None),
            Self::Copies(copies) => {
                let data = width / copies as usize;
                (data * copies as usize, data, Code::Copies)
            }
            Self::Single => (width, width - 1, Code::P),
            Self::Double => (width, width - 2, Code::PQ),
        };
        Ok(Shape {
            width: width as u8,
            data: data as u8,
            code,
            rows,
            chunk_rows,
        })
    }
}

/// Computation of redundancy columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Code {
    /// No redundancy columns.
    None,
    /// Redundancy columns are copies.
    Copies,
    /// One XOR column.
    P,
    /// XOR and GF(2^8) Reed-Solomon columns.
    PQ,
}

/// A column of a segment: `0..data` data, then redundancy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Column(pub u8);

/// Shape of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Number of members a segment lies on.
    pub width: u8,
    /// Number of data columns (`k`).
    pub data: u8,
    /// Redundancy code.
    pub code: Code,
    /// Number of rows of a segment; a multiple of `chunk_rows`.
    pub rows: u32,
    /// Number of rows of a chunk: the limit of a batch.
    pub chunk_rows: u32,
}

impl Shape {
    /// Number of redundancy columns.
    pub fn redundant(&self) -> u8 {
        self.width - self.data
    }

    /// Number of lost members that the shape survives in any combination.
    pub fn tolerance(&self) -> usize {
        match self.code {
            Code::None => 0,
            Code::Copies => usize::from(self.width / self.data) - 1,
            Code::P => 1,
            Code::PQ => 2,
        }
    }

    /// Number of data blocks of a segment.
    pub fn data_blocks(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.data)
    }

    /// Bytes of one extent: the space of a segment on each of its members.
    pub fn extent_bytes(&self) -> u64 {
        u64::from(self.rows) * BLOCK_BYTES
    }

    /// Rows of the smallest batch: header, footer and one payload block.
    pub fn min_batch_rows(&self) -> u32 {
        3u32.div_ceil(u32::from(self.data))
    }

    /// Position (index into the segment's member list) of `column` for a batch that starts at
    /// `row`.
    #[inline]
    pub fn position(&self, row: u32, column: Column) -> usize {
        let chunk = row / self.chunk_rows;
        let width = u32::from(self.width);
        ((u32::from(column.0) + chunk % width) % width) as usize
    }

    /// The inverse of [`Shape::position`].
    #[inline]
    pub fn column_at(&self, row: u32, position: usize) -> Column {
        let chunk = row / self.chunk_rows;
        let width = u32::from(self.width);
        Column(((position as u32 + width - chunk % width) % width) as u8)
    }

    /// First row after the chunk that holds `row`.
    #[inline]
    pub fn chunk_end(&self, row: u32) -> u32 {
        (row / self.chunk_rows + 1) * self.chunk_rows
    }

    /// Column and row of data block `block` of the segment, given the batch (start row and rows)
    /// that holds it.
    #[inline]
    pub fn locate(&self, batch_row: u32, batch_rows: u32, block: u64) -> (Column, u32) {
        let d = block - u64::from(batch_row) * u64::from(self.data);
        let rows = u64::from(batch_rows);
        (Column((d / rows) as u8), batch_row + (d % rows) as u32)
    }

    /// A row inside the batch that holds data block `block`: look up the last batch start that does
    /// not follow it.
    #[inline]
    pub fn row_hint(&self, block: u64) -> u32 {
        (block / u64::from(self.data)) as u32
    }
}

/// Segments of one shape over a set of members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Zone {
    /// Members, as a bit mask of member ids.
    pub members: u64,
    /// Byte offset on every member at which the zone's extents begin.
    pub start: u64,
    /// Id of its first segment.
    pub first_segment: u32,
    /// Number of segments.
    pub segments: u32,
    /// Shape of its segments.
    pub shape: Shape,
    /// Number of its layout; the highest one of a pool is active.
    pub layout: u32,
}

impl Zone {
    /// Number of members.
    pub fn member_count(&self) -> usize {
        self.members.count_ones() as usize
    }

    /// Upper bound of a member's extents that its segments use.
    pub fn extents(&self) -> u64 {
        (u64::from(self.segments) * u64::from(self.shape.width))
            .div_ceil(self.member_count() as u64)
    }

    /// Id after its last segment.
    pub fn end_segment(&self) -> u32 {
        self.first_segment + self.segments
    }

    /// Number of segments that fit when every member has room for `extents` extents.
    pub fn segments_for(members: usize, width: usize, extents: u64) -> u64 {
        extents * members as u64 / width as u64
    }
}

/// Location of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentLocation<'a> {
    zone: &'a Zone,
    members: &'a [MemberId],
    index: u64,
}

impl SegmentLocation<'_> {
    /// The segment's shape.
    pub fn shape(&self) -> &Shape {
        &self.zone.shape
    }

    /// Member and byte offset of the extent at `position` (0 to width - 1).
    #[inline]
    pub fn extent(&self, position: usize) -> (MemberId, u64) {
        let slot = self.index * u64::from(self.zone.shape.width) + position as u64;
        let count = self.members.len() as u64;
        let member = self.members[(slot % count) as usize];
        (
            member,
            self.zone.start + slot / count * self.zone.shape.extent_bytes(),
        )
    }

    /// Member and byte offset of `column` at `row`.
    #[inline]
    pub fn address(&self, row: u32, column: Column) -> (MemberId, u64) {
        let (member, start) = self.extent(self.zone.shape.position(row, column));
        (member, start + u64::from(row) * BLOCK_BYTES)
    }
}

/// All zones of a pool, with look-up by segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneMap {
    zones: Vec<Zone>,
    members: Vec<Vec<MemberId>>,
}

impl ZoneMap {
    /// Builds the look-up. Zones must be in order of their first segment; there may be gaps between
    /// them.
    pub fn new(zones: Vec<Zone>) -> Self {
        let members = zones
            .iter()
            .map(|z| {
                (0..MAX_MEMBERS as u8)
                    .filter(|m| z.members >> m & 1 == 1)
                    .map(MemberId)
                    .collect()
            })
            .collect();
        Self { zones, members }
    }

    /// The zones.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// One more than the highest segment id: the length of a table by id.
    pub fn segment_count(&self) -> u32 {
        self.zones.last().map_or(0, Zone::end_segment)
    }

    /// All segments, in order of their ids.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.zones
            .iter()
            .flat_map(|z| z.first_segment..z.end_segment())
            .map(SegmentId)
    }

    /// Number of the active layout.
    pub fn layout(&self) -> u32 {
        self.zones.iter().map(|z| z.layout).max().unwrap_or(0)
    }

    /// Zones of the active layout.
    pub fn current(&self) -> impl Iterator<Item = &Zone> {
        let layout = self.layout();
        self.zones.iter().filter(move |z| z.layout == layout)
    }

    /// True if there are zones of older layouts.
    pub fn has_superseded(&self) -> bool {
        self.zones.iter().any(|z| z.layout != self.zones[0].layout)
    }

    /// Members, as a bit mask, that have extents in older layouts and none in the active one. They
    /// leave the pool when the older layouts are empty.
    pub fn leaving(&self) -> u64 {
        let of = |newest: bool| {
            self.zones
                .iter()
                .filter(move |z| (z.layout == self.layout()) == newest)
                .fold(0u64, |mask, z| mask | z.members)
        };
        of(false) & !of(true)
    }

    /// Most data blocks of any segment.
    pub fn max_data_blocks(&self) -> u64 {
        self.zones
            .iter()
            .map(|z| z.shape.data_blocks())
            .max()
            .unwrap_or(1)
    }

    /// The zone of a segment.
    ///
    /// # Panics
    /// If the pool has no such segment; decoders check ids with [`ZoneMap::contains`] first.
    #[inline]
    pub fn zone(&self, segment: SegmentId) -> &Zone {
        &self.zones[self.zone_index(segment)]
    }

    /// The shape of a segment.
    #[inline]
    pub fn shape(&self, segment: SegmentId) -> &Shape {
        &self.zone(segment).shape
    }

    /// True if the pool has this segment.
    #[inline]
    pub fn contains(&self, segment: SegmentId) -> bool {
        self.find(segment).is_some()
    }

    /// Location of a segment. Panics like [`ZoneMap::zone`].
    #[inline]
    pub fn locate(&self, segment: SegmentId) -> SegmentLocation<'_> {
        let at = self.zone_index(segment);
        let zone = &self.zones[at];
        SegmentLocation {
            zone,
            members: &self.members[at],
            index: u64::from(segment.0 - zone.first_segment),
        }
    }

    /// The segments of other layouts that share an extent with this one, in order of their ids.
    /// Panics like [`ZoneMap::zone`].
    pub fn overlapping(&self, segment: SegmentId) -> Vec<SegmentId> {
        let mut found = self.sharing(segment);
        found.dedup();
        found
    }

    /// As [`ZoneMap::overlapping`], but with one occurrence for every shared extent.
    pub fn sharing(&self, segment: SegmentId) -> Vec<SegmentId> {
        let location = self.locate(segment);
        let (layout, extent_bytes) = (location.zone.layout, location.zone.shape.extent_bytes());
        let mut found = Vec::with_capacity(usize::from(location.zone.shape.width));
        for position in 0..usize::from(location.zone.shape.width) {
            let (member, offset) = location.extent(position);
            for (zone, members) in self
                .zones
                .iter()
                .zip(&self.members)
                .filter(|(zone, _)| zone.layout != layout)
            {
                let (Ok(rank), Some(distance)) = (
                    members.binary_search(&member),
                    offset.checked_sub(zone.start),
                ) else {
                    continue;
                };
                let slot = distance / extent_bytes * members.len() as u64 + rank as u64;
                let index = slot / u64::from(zone.shape.width);
                if index < u64::from(zone.segments) {
                    found.push(SegmentId(zone.first_segment + index as u32));
                }
            }
        }
        found.sort_unstable();
        found
    }

    #[inline]
    fn find(&self, segment: SegmentId) -> Option<usize> {
        let at = match self.zones.len() {
            1 => 0,
            _ => self
                .zones
                .partition_point(|z| z.first_segment <= segment.0)
                .checked_sub(1)?,
        };
        let zone = &self.zones[at];
        (segment.0.checked_sub(zone.first_segment)? < zone.segments).then_some(at)
    }

    #[inline]
    fn zone_index(&self, segment: SegmentId) -> usize {
        match self.find(segment) {
            Some(at) => at,
            None => panic!("segment {segment} of {}", self.segment_count()),
        }
    }
}

#[cfg(test)]
mod tests;
