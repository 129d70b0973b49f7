//! Plan of a pool: zones, reserve and usable space that follow from members and options.
//!
//! **Segment size.** A segment takes one extent of each of its members. With at least 2000 segments
//! one is at most 0.05 % of the space. The few that are open or in reserve cost little compared to
//! the spare, and victims are fine-grained. Large extents let cleaning read and write long runs and
//! cover whole erase blocks; beyond 64 MiB there is no further gain. So the extent is the largest
//! power of two with 2000 segments, from 256 KiB (a full chunk) to 64 MiB. Members below 64 MiB
//! (tests) go down to 32 KiB.
//!
//! **Chunk.** 256 KiB on each member. A batch is one write of that size per member, near the linear
//! rate of any SSD. Its header and footer are below 1 % of it.
//!
//! **Reserve.** Usable space excludes: the open segment of each stream; the segments that user
//! writes leave to cleaning and checkpoints; live images of two checkpoints; victims being emptied;
//! batch headers; and of the rest the spare factor. With reduction=capacity (`path/reduction.rs`)
//! images are larger, and the ends of columns are excluded as well. Proof:
//! docs/internals/reserve.md.

mod properties;

pub(crate) use properties::check_properties;

use crate::api::{Overhead, PoolPlan, PoolSpec};
use crate::base::limits::{
    BASE_STREAMS, CAPACITY_MAP_FACTOR, CHECKPOINT_RESERVE, CLEANER_RESERVE, CLEANING_AHEAD_MAX,
    CLEANING_AHEAD_MIN, COMPRESSED_UNITS_MAX, DEFAULT_CHUNK_ROWS, INDEX_PAGE_BLOCKS,
    JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, JOURNAL_CHUNK_DEFAULT, JOURNAL_DEVICE_AREA_MAX,
    JOURNAL_DEVICES_MAX, MAX_CHUNK_ROWS, MAX_NAME_BYTES, MAX_SEGMENT_ROWS, MAX_VICTIMS,
    MIN_SEGMENT_ROWS, MIN_SEGMENTS, RATE_MAX, REBUILD_RATE_MIN, RELIEF_RESERVE, RESERVED_AHEAD,
    SEGMENTS_WANTED, SPARE_PER_MILLE_MIN,
};
use windrow_format::checkpoint::{
    LEAF_POINTERS, LIST_RECORDS, MAP_PAGE_ENTRIES, SegmentTableGeometry,
};
use windrow_format::index_page::INDEX_PAGES_MAX;
use windrow_format::superblock::{Features, Journals, RESERVED_BYTES, Reduction, Superblock};
use windrow_geometry::{
    JOURNAL_CHUNK_MIN, JOURNAL_CHUNKS_MAX, JournalArea, MAX_MEMBERS, Redundancy, RedundancyError,
    Shape, Zone, ZoneMap,
};
use windrow_io::MemberError;
use windrow_types::{AddressCodec, BLOCK_BYTES, FULL_BLOCK_UNITS, MemberId, Uuid};

/// Reason that a pool cannot be created.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FormatError {
    /// Members do not fit the redundancy.
    #[error(transparent)]
    Redundancy(#[from] RedundancyError),
    /// An option is out of range.
    #[error("{0}")]
    Invalid(String),
    /// The members are too small.
    #[error("the members are too small: {segments} segments fit, {needed} are needed")]
    TooSmall {
        /// Number of segments that fit.
        segments: u32,
        /// Number of segments needed.
        needed: u32,
    },
    /// A member failed.
    #[error(transparent)]
    Member(#[from] MemberError),
}

pub(crate) fn invalid<T>(text: impl Into<String>) -> Result<T, FormatError> {
    Err(FormatError::Invalid(text.into()))
}

/// The largest power of two at most `n` (which is not 0).
pub(crate) fn floor_power(n: u64) -> u64 {
    1 << (63 - n.leading_zeros())
}

/// Rows of segment and chunk for a pool.
pub(crate) fn rows(spec: &PoolSpec) -> Result<(u32, u32), FormatError> {
    let smallest = spec
        .members
        .iter()
        .map(|m| m.1)
        .min()
        .unwrap_or(0)
        .saturating_sub(RESERVED_BYTES)
        .max(1);
    if !spec.align_bytes.is_power_of_two()
        || spec.align_bytes < BLOCK_BYTES
        || spec.align_bytes > u64::from(MAX_SEGMENT_ROWS) * BLOCK_BYTES
    {
        return invalid("the alignment is a power of two from 4 KiB to 64 MiB");
    }
    let least = if smallest >= 64 << 20 {
        u64::from(DEFAULT_CHUNK_ROWS) * BLOCK_BYTES
    } else {
        floor_power((smallest / 256).max(1)).clamp(32 << 10, 256 << 10)
    };
    let extent = floor_power((smallest / SEGMENTS_WANTED).max(1))
        .max(least)
        .max(spec.align_bytes)
        .min(u64::from(MAX_SEGMENT_ROWS) * BLOCK_BYTES);
    let segment_rows = spec.segment_rows.unwrap_or((extent / BLOCK_BYTES) as u32);
    let chunk_rows = spec
        .chunk_rows
        .unwrap_or(DEFAULT_CHUNK_ROWS.min(segment_rows));
    if !(MIN_SEGMENT_ROWS..=MAX_SEGMENT_ROWS).contains(&segment_rows) {
        return invalid(format!(
            "a segment has {MIN_SEGMENT_ROWS} to {MAX_SEGMENT_ROWS} rows of 4 KiB on each member, {segment_rows} given"
        ));
    }
    if !(4..=MAX_CHUNK_ROWS).contains(&chunk_rows) || !segment_rows.is_multiple_of(chunk_rows) {
        return invalid(format!(
            "a chunk has 4 to {MAX_CHUNK_ROWS} rows of 4 KiB and divides the segment ({segment_rows} rows), {chunk_rows} given"
        ));
    }
    if !(u64::from(segment_rows) * BLOCK_BYTES).is_multiple_of(spec.align_bytes) {
        return invalid("the segment's extent is not a multiple of the alignment");
    }
    Ok((segment_rows, chunk_rows))
}

/// Parameters of a layout.
pub(crate) struct Layout<'a> {
    pub(crate) redundancy: Redundancy,
    pub(crate) segment_rows: u32,
    pub(crate) chunk_rows: u32,
    /// Byte at which extents begin.
    pub(crate) start: u64,
    /// Id of the first segment.
    pub(crate) first_segment: u32,
    pub(crate) number: u32,
    /// Members and their usable sizes in bytes, in order of their ids.
    pub(crate) members: &'a [(MemberId, u64)],
}

/// Zones over members of different sizes: the ranges between one size and the next, while enough
/// members remain.
pub(crate) fn lay_out(layout: &Layout<'_>) -> Result<Vec<Zone>, FormatError> {
    let extent = u64::from(layout.segment_rows) * BLOCK_BYTES;
    let mut sizes: Vec<u64> = layout.members.iter().map(|m| m.1).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (mut start, mut first_segment) = (layout.start, layout.first_segment);
    let mut list = Vec::new();
    for size in sizes {
        let members: Vec<MemberId> = layout
            .members
            .iter()
            .filter(|m| m.1 >= size)
            .map(|m| m.0)
            .collect();
        let extents = size.saturating_sub(start) / extent;
        let shape =
            match layout
                .redundancy
                .shape(members.len(), layout.segment_rows, layout.chunk_rows)
            {
                Ok(shape) => shape,
                // Fewer members remain only because the others are too small.
                Err(error) if list.is_empty() && members.len() == layout.members.len() => {
                    return Err(error.into());
                }
                Err(_) => break,
            };
        let segments = Zone::segments_for(members.len(), usize::from(shape.width), extents);
        if segments == 0 {
            continue;
        }
        let mask = members.iter().fold(0u64, |mask, m| mask | 1 << m.0);
        let segments = u32::try_from(segments)
            .unwrap_or(u32::MAX)
            .min(u32::MAX - 1 - first_segment);
        list.push(Zone {
            members: mask,
            start,
            first_segment,
            segments,
            shape,
            layout: layout.number,
        });
        first_segment += segments;
        start += extents * extent;
    }
    Ok(list)
}

pub(crate) fn zones(spec: &PoolSpec) -> Result<Vec<Zone>, FormatError> {
    let (segment_rows, chunk_rows) = rows(spec)?;
    let members: Vec<(MemberId, u64)> = spec
        .members
        .iter()
        .enumerate()
        .map(|(index, (_, size))| (MemberId(index as u8), *size))
        .collect();
    let start = (RESERVED_BYTES + journal_bytes(spec)).next_multiple_of(spec.align_bytes);
    lay_out(&Layout {
        redundancy: spec.redundancy,
        segment_rows,
        chunk_rows,
        start,
        first_segment: 0,
        number: 0,
        members: &members,
    })
}

/// Bytes of each member for the journal.
///
/// Default: 1/256 of the smallest member, from 256 KiB to 16 MiB. The log takes over the records at
/// the latest when half of it is used. 16 MiB on each of eight members hold 42 MiB of records, some
/// 25 full batches. A start reads them in a fraction of a second.
pub(crate) fn journal_bytes(spec: &PoolSpec) -> u64 {
    let smallest = spec.members.iter().map(|m| m.1).min().unwrap_or(0);
    let by_size = (smallest / 256).clamp(JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX);
    let chunk = u64::from(JOURNAL_CHUNK_MIN);
    spec.journal.as_ref().map_or(0, |journal| {
        journal.bytes_each.unwrap_or(by_size) / chunk * chunk
    })
}

/// Journals of a pool.
pub(crate) fn journals(spec: &PoolSpec) -> Result<Journals, FormatError> {
    let Some(journal) = &spec.journal else {
        return Ok(Journals::default());
    };
    let (bytes, members) = (journal_bytes(spec), spec.members.len());
    let mask = |range: std::ops::Range<usize>| range.fold(0u64, |mask, m| mask | 1 << m);
    let mut journals = Journals::default();
    if bytes > 0 || journal.devices.is_empty() {
        let copies = spec.redundancy.tolerance() as u8 + 1;
        journals.internal = JournalArea::fit(
            mask(0..members),
            copies,
            RESERVED_BYTES,
            bytes,
            journal_chunk(bytes),
            journal.granule,
        );
        if journals.internal.is_none() {
            let most = u64::from(JOURNAL_CHUNKS_MAX) * u64::from(copies) / members.max(1) as u64
                * u64::from(journal_chunk(bytes));
            return match bytes > most {
                true => invalid(format!(
                    "a journal takes at most {} GiB of each of these members, {} GiB given",
                    most >> 30,
                    bytes >> 30
                )),
                false => invalid(format!(
                    "a journal takes at least {} KiB of each member, {} KiB given",
                    JOURNAL_BYTES_MIN >> 10,
                    bytes >> 10
                )),
            };
        }
    }
    if let Some(least) = journal.devices.iter().map(|device| device.1).min() {
        let end = members + journal.devices.len();
        let area = if end <= MAX_MEMBERS {
            journal_devices(
                mask(members..end),
                least,
                journal.granule,
                journal.power_safe,
            )
        } else {
            None
        };
        journals.external = area;
        if area.is_none() {
            return invalid(journal_devices_rule());
        }
    }
    Ok(journals)
}

/// Journal on these dedicated devices, the smallest of which has `least_bytes`: a copy of each
/// chunk on each of them. `None` if they are too small or too many.
pub(crate) fn journal_devices(
    devices: u64,
    least_bytes: u64,
    granule: u32,
    power_safe: bool,
) -> Option<JournalArea> {
    let (count, bytes) = (
        devices.count_ones() as usize,
        least_bytes
            .saturating_sub(RESERVED_BYTES)
            .min(JOURNAL_DEVICE_AREA_MAX),
    );
    let area = JournalArea::fit(
        devices,
        count as u8,
        RESERVED_BYTES,
        bytes,
        journal_chunk(bytes),
        granule,
    )?;
    (count <= JOURNAL_DEVICES_MAX).then_some(JournalArea { power_safe, ..area })
}

/// Requirements for journal devices, as text.
pub(crate) fn journal_devices_rule() -> String {
    format!(
        "a pool has at most {JOURNAL_DEVICES_MAX} journal devices, of at least {} KiB",
        (RESERVED_BYTES + JOURNAL_BYTES_MIN) >> 10
    )
}

/// Chunk size of a journal of this size: large enough that most rounds fit into one, and small
/// enough that there are many.
pub(crate) fn journal_chunk(bytes: u64) -> u32 {
    floor_power((bytes / 16).max(1)).clamp(u64::from(JOURNAL_CHUNK_MIN), JOURNAL_CHUNK_DEFAULT)
        as u32
}

/// All members of a new pool, in the order of their numbers: those for data, then those for the
/// journal.
pub(crate) fn all_members(spec: &PoolSpec) -> impl Iterator<Item = &(Uuid, u64)> {
    spec.members
        .iter()
        .chain(spec.journal.iter().flat_map(|journal| &journal.devices))
}

/// Encoding of addresses in a pool with these zones, with room for the widest segments of the
/// redundancy.
pub(crate) fn address_codec(redundancy: Redundancy, zones: &ZoneMap) -> AddressCodec {
    let own = zones.max_data_blocks();
    // No zone at all: the members are too small, which is reported later.
    let of = |zone: &Zone| {
        redundancy
            .shape(MAX_MEMBERS, zone.shape.rows, zone.shape.chunk_rows)
            .ok()
    };
    let widest = zones
        .zones()
        .first()
        .and_then(of)
        .map_or(own, |shape| shape.data_blocks());
    AddressCodec::with_headroom(own, widest, u64::from(zones.segment_count()))
}

/// Payload blocks of a segment of full batches of moves (which have the longest entries).
pub(crate) fn payload_blocks(shape: &Shape) -> u64 {
    let blocks = u64::from(shape.chunk_rows) * u64::from(shape.data);
    let table = blocks * 22 + 320;
    let metadata = 1 + table.saturating_sub(4096).div_ceil(4096).max(1);
    blocks.saturating_sub(metadata) * u64::from(shape.rows / shape.chunk_rows)
}

/// Number of segments that cleaning keeps becoming free in a pool of this size.
pub(crate) fn cleaning_ahead(segments: u32) -> u32 {
    (segments / 128).clamp(CLEANING_AHEAD_MIN, CLEANING_AHEAD_MAX)
}

/// Segments that may be written.
pub(crate) struct Holding {
    pub(crate) shape: Shape,
    pub(crate) segments: u32,
}

/// Extra content of a pool for deduplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shares {
    /// Nothing.
    No,
    /// A second map.
    Content,
    /// A second map, and pages of the index.
    Indexed,
}

impl Shares {
    /// Kind by the flags of a pool.
    pub(crate) fn of(features: &Features) -> Self {
        match (
            features.incompatible & Features::SHARED != 0,
            features.incompatible & Features::DEDUP_INDEX != 0,
        ) {
            (false, _) => Self::No,
            (true, false) => Self::Content,
            (true, true) => Self::Indexed,
        }
    }
}

/// Parameters of a plan apart from segments and spare factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) shares: Shares,
    pub(crate) reduction: Reduction,
}

impl Kept {
    /// The kind that needs the most map pages.
    pub(crate) const MOST: Self = Self {
        shares: Shares::Indexed,
        reduction: Reduction::Capacity,
    };

    /// Parameters of a pool.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        Self {
            shares: Shares::of(&superblock.features),
            reduction: superblock.properties.reduction,
        }
    }

    /// Map pages that even the smallest pool has room for: each costs it up to eight blocks of the
    /// reserve.
    fn map_pages_spare(self) -> u64 {
        if self.reduction == Reduction::Capacity {
            64
        } else {
            24
        }
    }

    /// Blocks per block of payload for which map pages are reserved.
    fn map_factor(self) -> u64 {
        if self.reduction == Reduction::Capacity {
            CAPACITY_MAP_FACTOR
        } else {
            1
        }
    }
}

/// Part of `usable` blocks that compressed payload can fill: at each column's end of a batch less
/// than one payload is wasted.
pub(crate) fn without_column_ends<'s>(usable: u64, shapes: impl Iterator<Item = &'s Shape>) -> u64 {
    let of = |shape: &Shape| {
        let batch = payload_blocks(shape) / u64::from(shape.rows / shape.chunk_rows).max(1);
        let lost = (u64::from(COMPRESSED_UNITS_MAX - 1) * u64::from(shape.data))
            .div_ceil(u64::from(FULL_BLOCK_UNITS));
        u128::from(usable) * u128::from(batch.saturating_sub(lost)) / u128::from(batch.max(1))
    };
    shapes.map(of).min().unwrap_or(0) as u64
}

/// Capacity of a pool in which all segments of the active layout are usable.
pub(crate) fn plan_zones(
    zones: &ZoneMap,
    spare_per_mille: u16,
    kept: Kept,
) -> Result<PoolPlan, FormatError> {
    let holdings: Vec<Holding> = zones
        .current()
        .map(|z| Holding {
            shape: z.shape,
            segments: z.segments,
        })
        .collect();
    plan_holdings(&holdings, zones, spare_per_mille, kept, u64::MAX)
}

/// Capacity of a pool with these usable segments and at most `map_pages` map pages.
pub(crate) fn plan_holdings(
    holdings: &[Holding],
    zones: &ZoneMap,
    spare_per_mille: u16,
    kept: Kept,
    map_pages: u64,
) -> Result<PoolPlan, FormatError> {
    let used = || holdings.iter().filter(|h| h.segments > 0);
    let segments: u32 = used().map(|h| h.segments).sum();
    // Segments of the active layout may come into use at any time.
    let shapes = || {
        used()
            .map(|h| &h.shape)
            .chain(zones.current().map(|z| &z.shape))
    };
    let payload_least = shapes().map(payload_blocks).min().unwrap_or(1).max(1);
    let data_most = shapes()
        .chain(zones.zones().iter().map(|z| &z.shape))
        .map(|shape| u64::from(shape.data))
        .max()
        .unwrap_or(1);
    let payload_total: u64 = used()
        .map(|h| payload_blocks(&h.shape) * u64::from(h.segments))
        .sum();
    let max_rows = zones
        .zones()
        .iter()
        .map(|z| z.shape.rows)
        .max()
        .unwrap_or(64);
    let table_pages =
        u64::from(SegmentTableGeometry::new(max_rows).pages(zones.segment_count())) + 2;
    let index_pages = index_pages_for(payload_total, kept.shares);
    let map_pages_max = map_pages_for(payload_total, kept).min(map_pages);
    let pages = map_pages_max + table_pages;
    // A volume may be written so sparsely that each of its map pages has a leaf of its own.
    let leaves = map_pages_max + table_pages.div_ceil(LEAF_POINTERS as u64) + 4;
    let list = leaves.div_ceil(LIST_RECORDS as u64);
    let top = list.div_ceil(LIST_RECORDS as u64).max(1);
    let image = pages + leaves + list + top;
    // Each stage ends with a partial batch: one more header and footer, and its last row is padded.
    let partial = (3 + top) * (data_most + 2);
    let image_segments = image.div_ceil(payload_least) as u32;
    // The last batch of a segment needs a successor before it can be sealed.
    let checkpoint_segments = (image + partial).div_ceil(payload_least) as u32 + 1;
    let cleaning = cleaning_ahead(segments) + CLEANER_RESERVE + MAX_VICTIMS as u32;
    let reserve = BASE_STREAMS.len() as u32
        + RESERVED_AHEAD.max(segments_ahead(zones))
        + cleaning
        + CHECKPOINT_RESERVE
        + RELIEF_RESERVE
        + 2 * image_segments
        + 2 * checkpoint_segments;
    let needed = (reserve + 2).max(MIN_SEGMENTS);
    if segments < needed {
        return Err(FormatError::TooSmall { segments, needed });
    }
    let held_back = largest_payload(holdings, reserve);
    let whole = (payload_total - held_back).saturating_sub(index_pages);
    let without_spare = whole * u64::from(1000 - spare_per_mille) / 1000;
    let usable = if kept.reduction == Reduction::Capacity {
        without_column_ends(without_spare, shapes())
    } else {
        without_spare
    };
    let data_blocks: u64 = used()
        .map(|h| h.shape.data_blocks() * u64::from(h.segments))
        .sum();
    let working = largest_payload(
        holdings,
        reserve - 2 * image_segments - 2 * checkpoint_segments,
    );
    let overhead = Overhead {
        batch_bytes: (data_blocks - payload_total) * BLOCK_BYTES,
        checkpoint_bytes: (held_back - working) * BLOCK_BYTES,
        reserve_bytes: working * BLOCK_BYTES,
        index_bytes: (payload_total - held_back - whole) * BLOCK_BYTES,
        spare_bytes: (whole - without_spare) * BLOCK_BYTES,
        column_bytes: (without_spare - usable) * BLOCK_BYTES,
        journal_bytes_each: 0,
    };
    Ok(PoolPlan {
        zones: zones.current().cloned().collect(),
        segments,
        data_bytes: data_blocks * BLOCK_BYTES,
        usable_bytes: usable * BLOCK_BYTES,
        reserve_segments: reserve,
        checkpoint_segments,
        map_pages_max,
        map_bytes: usable * 16 * kept.map_factor(),
        ids_bytes: crate::store::volume::Ids::bytes_for(usable * kept.map_factor()),
        index_pages,
        overhead,
    })
}

/// Limit of the map pages of a pool with these zones under any of their layouts.
pub(crate) fn map_pages_of_any_layout(zones: &ZoneMap, kept: Kept, now: u64) -> u64 {
    let of = |layout: u32| {
        zones
            .zones()
            .iter()
            .filter(|z| z.layout == layout)
            .map(|z| payload_blocks(&z.shape) * u64::from(z.segments))
            .sum::<u64>()
    };
    zones
        .zones()
        .iter()
        .map(|z| map_pages_for(of(z.layout), kept))
        .max()
        .unwrap_or(0)
        .max(now)
}

/// Limit of the map pages of a pool with this payload, including those of the index.
pub(crate) fn map_pages_for(payload_total: u64, kept: Kept) -> u64 {
    let shares = kept.shares;
    // Shared content is in a map of its own: the same number of pages again, but dense.
    let quarters = if shares == Shares::No { 5 } else { 9 };
    let map_of_index = index_pages_for(payload_total, shares).div_ceil(MAP_PAGE_ENTRIES as u64);
    payload_total * kept.map_factor() / MAP_PAGE_ENTRIES as u64 * quarters / 4
        + kept.map_pages_spare()
        + map_of_index
}

pub(crate) fn index_pages_for(payload_total: u64, shares: Shares) -> u64 {
    if shares == Shares::Indexed {
        (payload_total / INDEX_PAGE_BLOCKS + 2).min(INDEX_PAGES_MAX)
    } else {
        0
    }
}

/// Payload of this number of the largest segments: an upper bound of that of any held-back ones.
pub(crate) fn largest_payload(holdings: &[Holding], mut segments: u32) -> u64 {
    let mut sizes: Vec<(u64, u32)> = holdings
        .iter()
        .map(|h| (payload_blocks(&h.shape), h.segments))
        .collect();
    sizes.sort_unstable_by_key(|(payload, _)| std::cmp::Reverse(*payload));
    let mut sum = 0;
    for (payload, count) in sizes {
        let taken = count.min(segments);
        segments -= taken;
        sum += payload * u64::from(taken);
    }
    sum
}

pub(crate) fn check_spec(spec: &PoolSpec) -> Result<(), FormatError> {
    if spec.name.is_empty()
        || spec.name.len() > MAX_NAME_BYTES
        || spec.name.chars().any(|c| c.is_control() || c == '/')
    {
        return invalid(format!(
            "a pool's name has 1 to {MAX_NAME_BYTES} bytes, without '/' and control characters"
        ));
    }
    if spec.members.is_empty() || spec.members.len() > MAX_MEMBERS {
        return invalid(format!(
            "a pool has 1 to {MAX_MEMBERS} members, {} given",
            spec.members.len()
        ));
    }
    if let Redundancy::Copies(copies) = spec.redundancy
        && !(2..=4).contains(&copies)
    {
        return invalid(format!("redundancy 1 keeps 2 to 4 copies, {copies} given"));
    }
    check_properties(&spec.properties).map_err(FormatError::Invalid)
}

/// First id that no pool of this size allocates: by the format, whatever the present memory limit
/// of maps. Map pages are at most nine quarters of what the segments could hold (with
/// reduction=capacity three times that) plus 64. Removing members is refused while the pool has ids
/// above the new limit (`upkeep/reshape/removal.rs`).
pub(crate) fn ids_end<'z>(zones: impl Iterator<Item = &'z Zone>) -> u64 {
    let blocks: u64 = zones
        .map(|zone| zone.shape.data_blocks() * u64::from(zone.segments))
        .sum();
    (blocks * CAPACITY_MAP_FACTOR / 4 * 9 + 64 * MAP_PAGE_ENTRIES as u64).min(u64::from(u32::MAX))
}

/// Segments that the user stream reserves ahead: the largest piece admitted at once, a chunk, and
/// one more, so that the open segment can be filled to its last row. The zone that needs most
/// decides. The chunk that must not be begun belongs to the last segment reserved, so zones with
/// larger chunks take nothing from the room. The reserve is computed with the same number.
pub(crate) fn segments_ahead(zones: &ZoneMap) -> u32 {
    let of = |shape: &Shape| {
        (EDGE_UNITS + chunk_units(shape, shape.chunk_rows)).div_ceil(segment_units(shape).max(1))
            as u32
    };
    1 + zones
        .zones()
        .iter()
        .map(|z| of(&z.shape))
        .max()
        .unwrap_or(1)
}

/// A block with payload: the block and its share of the table.
pub(crate) const DATA_UNITS: u64 = 17;

/// An entry without payload.
pub(crate) const RECORD_UNITS: u64 = 1;

/// Room for an unaligned change: a range and two blocks at each end, with a margin for volume
/// operations.
pub(crate) const EDGE_UNITS: u64 = 8 * DATA_UNITS;

/// Units in `rows` rows of one chunk: without header and footer.
pub(crate) fn chunk_units(shape: &Shape, rows: u32) -> u64 {
    (u64::from(rows) * u64::from(shape.data)).saturating_sub(2) * 16
}

pub(crate) fn segment_units(shape: &Shape) -> u64 {
    chunk_units(shape, shape.chunk_rows) * u64::from(shape.rows / shape.chunk_rows)
}
