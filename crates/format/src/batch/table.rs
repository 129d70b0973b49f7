//! Table: entries encoded one after another, each relative to the preceding ones.
//!
//! ```text
//! tag      bits 0..4  kind
//!          bit  4     1: the volume changes, its id follows as a varint
//!          bits 5..8  1..=7: the LSN is higher than the last one by this; 0: the difference follows
//! volume   varint                      if bit 4 is set
//! LSN      zigzag varint, difference   if bits 5..8 are 0 and the kind has an LSN
//! lba      zigzag varint, difference to the block after the last one, if the kind has a block
//! ...      by kind, see `docs/internals/format.md`
//! ```
//! The differences start from zero in every batch, so a batch is readable alone. All arithmetic
//! wraps: every difference is one number and every number is one difference. An entry has exactly
//! one encoding and the decoder refuses any other. Decode and encode are therefore inverse, which
//! the fuzzer checks.

use super::plan::{BatchPlan, compressed_fits, plan_batch, plan_compressed};
use super::{BatchError, Entry, FillState, RangeState, VolumeChange};
use crate::bytes::{BEYOND_COUNT, COUNTER_MAX};
use crate::checkpoint::{Compression, Dedup, SyncMode};
use crate::{MAX_NAME_BYTES, size_can_be};
use windrow_geometry::Shape;
use windrow_types::{Address, BLOCK_BYTES, FULL_BLOCK_UNITS, Lba, Lsn, VolumeId};

/// More than the longest entry needs (tag, volume, LSN and a creation: at most 91 bytes). A power
/// of two, so that the write position can be masked instead of checked.
const ENTRY_ROOM: usize = 128;
const _: () = assert!(
    1 + 5 + 10 + 10 + 10 + 10 < ENTRY_ROOM && 1 + 5 + 10 + 1 + 1 + MAX_NAME_BYTES + 10 < ENTRY_ROOM
);

const KIND_DATA: u8 = 1;
const KIND_FILL_ZERO: u8 = 2;
const KIND_FILL_ONES: u8 = 3;
const KIND_RANGE_HOLE: u8 = 4;
const KIND_RANGE_ZERO: u8 = 5;
const KIND_VOLUME: u8 = 6;
const KIND_MOVE: u8 = 7;
const KIND_COVERED: u8 = 8;
const KIND_PAGE: u8 = 9;
const KIND_COMPRESSED_DATA: u8 = 10;
const KIND_COMPRESSED_MOVE: u8 = 11;
const KIND_REFERENCE: u8 = 12;

/// Ids of shared content are below 2^40, as blocks are.
const SHARED_ID_BITS: u32 = 40;

const KIND_MASK: u8 = 0x0f;
const VOLUME_BIT: u8 = 0x10;
const LSN_SHIFT: u32 = 5;

const CHANGE_CREATE: u8 = 1;
const CHANGE_RESIZE: u8 = 2;
const CHANGE_DELETE: u8 = 3;
const CHANGE_READ_ONLY: u8 = 4;
const CHANGE_SYNC: u8 = 5;
const CHANGE_COMPRESSION: u8 = 6;
const CHANGE_DEDUP: u8 = 7;
const CHANGE_RENAME: u8 = 8;

/// State that the next entry is encoded against.
#[derive(Clone, Copy, Default, Debug)]
struct Context {
    volume: VolumeId,
    /// The block after the last one.
    lba: u64,
    /// The block of the shared volume after the last one.
    id: u64,
    lsn: u64,
    from: u64,
    object: u32,
    /// The page after the last one.
    index: u32,
}

impl Context {
    /// Base of the block differences of the context's volume.
    #[inline]
    fn block(&mut self) -> &mut u64 {
        if self.volume == VolumeId::SHARED {
            &mut self.id
        } else {
            &mut self.lba
        }
    }
}

#[inline]
fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

#[inline]
fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// Encoded entries of a batch that is being filled.
#[derive(Clone, Default, Debug)]
pub struct TableWriter {
    /// Encoded entries in `..used`; the bytes after them are spare room with undefined content.
    room: Vec<u8>,
    used: usize,
    entries: u32,
    /// Number of uncompressed payload blocks.
    payload_blocks: u32,
    /// Units of each compressed payload, and their sum.
    compressed: Vec<u16>,
    compressed_units: u64,
    context: Context,
}

/// Writes one entry into its room.
struct Pen<'a> {
    room: &'a mut [u8; ENTRY_ROOM],
    at: usize,
}

impl Pen<'_> {
    #[inline]
    fn byte(&mut self, value: u8) {
        self.room[self.at % ENTRY_ROOM] = value;
        self.at += 1;
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    fn text(&mut self, text: &str) {
        self.byte(text.len() as u8);
        text.bytes().for_each(|b| self.byte(b));
    }

    /// Writes tag, volume and LSN.
    #[inline]
    fn begin(&mut self, context: &mut Context, kind: u8, volume: VolumeId, lsn: Lsn) {
        let step = lsn.0.wrapping_sub(context.lsn);
        let short = if (1..=7).contains(&step) {
            step as u8
        } else {
            0
        };
        let changed = volume != context.volume;
        self.byte(kind | u8::from(changed) << 4 | short << LSN_SHIFT);
        if changed {
            debug_assert!(volume <= VolumeId::INDEX, "an entry of volume {volume}");
            self.varint(u64::from(volume.0));
            context.volume = volume;
        }
        if short == 0 {
            self.varint(zigzag(step));
        }
        context.lsn = lsn.0;
    }

    #[inline]
    fn lba(&mut self, context: &mut Context, lba: Lba, count: u64) {
        let known = context.block();
        let difference = lba.0.wrapping_sub(*known);
        *known = lba.0.wrapping_add(count);
        self.varint(zigzag(difference));
    }
}

impl TableWriter {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If the entry could not be decoded again: an empty or overflowing range, an operation, a name
    /// or a size that breaks the format's rules.
    #[inline]
    pub fn push(&mut self, entry: &Entry) {
        if self.room.len() - self.used < ENTRY_ROOM {
            self.grow();
        }
        let Some(room) = self.room[self.used..].first_chunk_mut::<ENTRY_ROOM>() else {
            unreachable!("grown above")
        };
        let mut pen = Pen { room, at: 0 };
        let context = &mut self.context;
        match entry {
            Entry::Data { .. } | Entry::Move { .. } => {
                push_content(&mut pen, context, entry, KIND_DATA, KIND_MOVE);
                self.payload_blocks += 1;
            }
            other => {
                push_rare(&mut pen, context, other);
                self.payload_blocks += u32::from(other.has_payload());
            }
        }
        self.used += pen.at;
        self.entries += 1;
    }

    /// Adds a data or move entry whose payload is compressed into `units` units.
    ///
    /// # Panics
    /// If it is another entry, or compressed payload cannot have that length.
    pub fn push_compressed(&mut self, entry: &Entry, units: u16) {
        assert!(
            (1..FULL_BLOCK_UNITS).contains(&units),
            "compressed payload of {units} units"
        );
        if self.room.len() - self.used < ENTRY_ROOM {
            self.grow();
        }
        let Some(room) = self.room[self.used..].first_chunk_mut::<ENTRY_ROOM>() else {
            unreachable!("grown above")
        };
        let mut pen = Pen { room, at: 0 };
        let context = &mut self.context;
        assert!(
            push_content(
                &mut pen,
                context,
                entry,
                KIND_COMPRESSED_DATA,
                KIND_COMPRESSED_MOVE
            ),
            "compressed payload of an entry that has none"
        );
        pen.byte(units as u8);
        self.compressed.push(units);
        self.compressed_units += u64::from(units);
        self.used += pen.at;
        self.entries += 1;
    }

    /// Adds an entry whose payload, if it has one, is stored in `units` units.
    #[inline]
    pub fn push_stored(&mut self, entry: &Entry, units: u16) {
        if units == FULL_BLOCK_UNITS {
            self.push(entry)
        } else {
            self.push_compressed(entry, units)
        }
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.room.len() * 2).max(32 * ENTRY_ROOM);
        self.room.resize(len, 0);
    }

    /// Decodes the entries, in table order, with the units of their payload if they have one.
    pub fn decode(&self) -> Vec<(Entry, u16)> {
        let mut reader = TableReader::new(self.bytes());
        (0..self.entries)
            .map_while(|_| reader.next_stored().ok())
            .collect()
    }

    /// Empties the table; memory is kept.
    pub fn clear(&mut self) {
        self.used = 0;
        self.entries = 0;
        self.payload_blocks = 0;
        self.compressed.clear();
        self.compressed_units = 0;
        self.context = Context::default();
    }

    /// Number of entries.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Number of entries with an uncompressed payload block.
    #[inline]
    pub fn payload_blocks(&self) -> u32 {
        self.payload_blocks
    }

    /// Units of each compressed payload.
    #[inline]
    pub fn compressed(&self) -> &[u16] {
        &self.compressed
    }

    /// Upper bound of the table's bytes in the batch: the entries, 4 for each uncompressed payload
    /// block, and 8 for each compressed payload (its own checksum and that of a block; there are no
    /// more blocks than payloads).
    #[inline]
    pub fn encoded_len(&self) -> usize {
        self.used + 4 * self.payload_blocks as usize + 8 * self.compressed.len()
    }

    /// Smallest batch for this table at `row`; `None` if there is none.
    pub fn plan(&self, shape: &Shape, row: u32) -> Option<BatchPlan> {
        plan_compressed(
            shape,
            row,
            self.encoded_len(),
            self.payload_blocks,
            &self.compressed,
        )
    }

    /// True if a batch at `row` has room for one more entry of at most `entry_bytes` bytes, with
    /// payload of `units` units (0: none).
    #[inline]
    pub fn takes(&self, shape: &Shape, row: u32, entry_bytes: usize, units: u16) -> bool {
        let is_whole = units == FULL_BLOCK_UNITS;
        let whole = self.payload_blocks + u32::from(is_whole);
        let table = self.encoded_len() + entry_bytes;
        if self.compressed.is_empty() && (units == 0 || is_whole) {
            return plan_batch(shape, row, table + 4 * usize::from(is_whole), whole).is_some();
        }
        self.takes_compressed(
            shape,
            row,
            table + 8,
            whole,
            if is_whole { 0 } else { units },
        )
    }

    #[cold]
    fn takes_compressed(
        &self,
        shape: &Shape,
        row: u32,
        table: usize,
        whole: u32,
        units: u16,
    ) -> bool {
        compressed_fits(
            shape,
            row,
            table,
            whole,
            self.compressed_units + u64::from(units),
        )
        .unwrap_or_else(|| {
            let mut compressed = self.compressed.clone();
            compressed.extend((units > 0).then_some(units));
            plan_compressed(shape, row, table, whole, &compressed).is_some()
        })
    }

    /// The encoded entries, without checksums.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.used]
    }
}

/// Encodes a data entry or a move; returns false for any other entry.
#[inline]
fn push_content(
    pen: &mut Pen<'_>,
    context: &mut Context,
    entry: &Entry,
    data: u8,
    moved: u8,
) -> bool {
    match entry {
        Entry::Data { volume, lba, birth } => {
            pen.begin(context, data, *volume, *birth);
            pen.lba(context, *lba, 1);
        }
        Entry::Move {
            volume,
            lba,
            birth,
            from,
        } => {
            pen.begin(context, moved, *volume, *birth);
            pen.lba(context, *lba, 1);
            pen.varint(zigzag(from.0.wrapping_sub(context.from)));
            context.from = from.0;
        }
        _ => return false,
    }
    true
}

/// Encodes all entries except data and moves; kept out of the hot loop.
fn push_rare(pen: &mut Pen<'_>, context: &mut Context, entry: &Entry) {
    match entry {
        Entry::Fill {
            volume,
            lba,
            birth,
            state,
        } => {
            let kind = if *state == FillState::Zero {
                KIND_FILL_ZERO
            } else {
                KIND_FILL_ONES
            };
            pen.begin(context, kind, *volume, *birth);
            pen.lba(context, *lba, 1);
        }
        Entry::Range {
            volume,
            lba,
            count,
            lsn,
            state,
        } => {
            assert!(
                *count > 0 && lba.0.checked_add(*count).is_some(),
                "range of {count} blocks at {lba}"
            );
            let kind = if *state == RangeState::Hole {
                KIND_RANGE_HOLE
            } else {
                KIND_RANGE_ZERO
            };
            pen.begin(context, kind, *volume, *lsn);
            pen.lba(context, *lba, *count);
            pen.varint(*count);
        }
        Entry::Volume {
            volume,
            lsn,
            change,
        } => {
            assert!(volume.is_of_user(), "an operation on volume {volume}");
            pen.begin(context, KIND_VOLUME, *volume, *lsn);
            push_change(pen, change);
        }
        Entry::Reference {
            volume,
            lba,
            birth,
            id,
            incarnation,
        } => {
            assert!(
                *volume != VolumeId::SHARED && id.0 >> SHARED_ID_BITS == 0,
                "a reference of volume {volume} to {id}"
            );
            pen.begin(context, KIND_REFERENCE, *volume, *birth);
            pen.lba(context, *lba, 1);
            pen.varint(zigzag(id.0.wrapping_sub(context.id)));
            context.id = id.0 + 1;
            pen.varint(u64::from((birth.0 as u32).wrapping_sub(*incarnation)));
        }
        Entry::Covered { first, count } => {
            assert!(
                *count > 0 && first.0.checked_add(*count).is_some(),
                "{count} LSNs from {first}"
            );
            let volume = context.volume;
            pen.begin(context, KIND_COVERED, volume, *first);
            pen.varint(*count);
            context.lsn = first.0 + (*count - 1);
        }
        Entry::Page { object, index } => {
            pen.byte(KIND_PAGE);
            pen.varint(zigzag(
                u64::from(*object).wrapping_sub(u64::from(context.object)),
            ));
            pen.varint(zigzag(
                u64::from(*index).wrapping_sub(u64::from(context.index)),
            ));
            context.object = *object;
            context.index = index.wrapping_add(1);
        }
        Entry::Data { .. } | Entry::Move { .. } => unreachable!("handled by the caller"),
    }
}

fn push_change(pen: &mut Pen<'_>, change: &VolumeChange) {
    match change {
        VolumeChange::Create { name, size_bytes } => {
            assert!(
                crate::name_is_valid(name) && size_can_be(*size_bytes),
                "creation of a volume of {size_bytes} bytes"
            );
            pen.byte(CHANGE_CREATE);
            pen.text(name);
            pen.varint(size_bytes / BLOCK_BYTES);
        }
        VolumeChange::Resize { size_bytes } => {
            assert!(size_can_be(*size_bytes), "resize to {size_bytes} bytes");
            pen.byte(CHANGE_RESIZE);
            pen.varint(size_bytes / BLOCK_BYTES);
        }
        VolumeChange::Delete => pen.byte(CHANGE_DELETE),
        VolumeChange::SetReadOnly(read_only) => {
            pen.byte(CHANGE_READ_ONLY);
            pen.byte(u8::from(*read_only));
        }
        VolumeChange::SetSync(mode) => {
            pen.byte(CHANGE_SYNC);
            pen.byte(mode.to_u8());
        }
        VolumeChange::SetCompression(compression) => {
            pen.byte(CHANGE_COMPRESSION);
            pen.byte(compression.to_u8());
        }
        VolumeChange::SetDedup(dedup) => {
            pen.byte(CHANGE_DEDUP);
            pen.byte(dedup.to_u8());
        }
        VolumeChange::Rename { name } => {
            assert!(
                crate::name_is_valid(name),
                "a new name of {} bytes",
                name.len()
            );
            pen.byte(CHANGE_RENAME);
            pen.text(name);
        }
    }
}

/// Reads entries one by one.
pub(crate) struct TableReader<'a> {
    bytes: &'a [u8],
    at: usize,
    context: Context,
}

const TRUNCATED: BatchError = BatchError::Malformed("the table ends inside an entry");

impl<'a> TableReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            context: Context::default(),
        }
    }

    /// True if every byte was used.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, BatchError> {
        let byte = *self.bytes.get(self.at).ok_or(TRUNCATED)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, BatchError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(BatchError::Malformed("a number of more than 64 bits"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return Err(BatchError::Malformed("a number that is longer than needed"));
                }
                return Ok(value);
            }
        }
        Err(BatchError::Malformed("a number of more than 64 bits"))
    }

    fn number(&mut self) -> Result<u32, BatchError> {
        u32::try_from(self.varint()?)
            .map_err(|_| BatchError::Malformed("a number of more than 32 bits"))
    }

    fn size_bytes(&mut self) -> Result<u64, BatchError> {
        let size = self
            .varint()?
            .checked_mul(BLOCK_BYTES)
            .filter(|size| size_can_be(*size));
        size.ok_or(BatchError::Malformed("a size that no volume can have"))
    }

    #[inline]
    fn order(&mut self, tag: u8) -> Result<Lsn, BatchError> {
        let step = match tag >> LSN_SHIFT {
            0 => {
                let step = unzigzag(self.varint()?);
                if (1..=7).contains(&step) {
                    return Err(BatchError::Malformed(
                        "a small LSN step in the long encoding",
                    ));
                }
                step
            }
            short => u64::from(short),
        };
        self.context.lsn = self.context.lsn.wrapping_add(step);
        if self.context.lsn > COUNTER_MAX {
            return Err(BatchError::Malformed(BEYOND_COUNT));
        }
        Ok(Lsn(self.context.lsn))
    }

    #[inline]
    fn volume(&mut self, tag: u8) -> Result<VolumeId, BatchError> {
        if tag & VOLUME_BIT != 0 {
            let volume = VolumeId(self.number()?);
            if volume == self.context.volume || volume > VolumeId::INDEX {
                return Err(BatchError::Malformed(
                    "a volume that was named without need, or that cannot exist",
                ));
            }
            self.context.volume = volume;
        }
        Ok(self.context.volume)
    }

    #[inline]
    fn lba(&mut self) -> Result<Lba, BatchError> {
        let difference = unzigzag(self.varint()?);
        let known = self.context.block();
        let lba = known.wrapping_add(difference);
        *known = lba.wrapping_add(1);
        Ok(Lba(lba))
    }

    /// Decodes the next entry, which has no compressed payload.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Entry, BatchError> {
        match self.next_stored()? {
            (entry, 0 | FULL_BLOCK_UNITS) => Ok(entry),
            _ => Err(BatchError::Malformed(
                "compressed payload where none is possible",
            )),
        }
    }

    /// Decodes the next entry, and the units of its payload (0: none).
    #[inline]
    pub(crate) fn next_stored(&mut self) -> Result<(Entry, u16), BatchError> {
        let tag = self.byte()?;
        let kind = tag & KIND_MASK;
        if kind == KIND_COMPRESSED_DATA || kind == KIND_COMPRESSED_MOVE {
            let entry = self.entry(
                tag,
                if kind == KIND_COMPRESSED_DATA {
                    KIND_DATA
                } else {
                    KIND_MOVE
                },
            )?;
            return match self.byte()? {
                0 => Err(BatchError::Malformed("compressed payload of no length")),
                units => Ok((entry, u16::from(units))),
            };
        }
        let entry = self.entry(tag, kind)?;
        let units = if entry.has_payload() {
            FULL_BLOCK_UNITS
        } else {
            0
        };
        Ok((entry, units))
    }

    #[inline]
    fn entry(&mut self, tag: u8, kind: u8) -> Result<Entry, BatchError> {
        if kind == KIND_PAGE {
            return self.page(tag);
        }
        let volume = self.volume(tag)?;
        let lsn = self.order(tag)?;
        Ok(match kind {
            KIND_DATA => Entry::Data {
                volume,
                lba: self.lba()?,
                birth: lsn,
            },
            KIND_MOVE => {
                let lba = self.lba()?;
                let from = self.context.from.wrapping_add(unzigzag(self.varint()?));
                if from >> Address::BITS != 0 {
                    return Err(BatchError::Malformed("an address of more than 46 bits"));
                }
                self.context.from = from;
                Entry::Move {
                    volume,
                    lba,
                    birth: lsn,
                    from: Address(from),
                }
            }
            KIND_FILL_ZERO => Entry::Fill {
                volume,
                lba: self.lba()?,
                birth: lsn,
                state: FillState::Zero,
            },
            KIND_FILL_ONES => Entry::Fill {
                volume,
                lba: self.lba()?,
                birth: lsn,
                state: FillState::Ones,
            },
            KIND_RANGE_HOLE => self.range(volume, lsn, RangeState::Hole)?,
            KIND_RANGE_ZERO => self.range(volume, lsn, RangeState::Zero)?,
            KIND_VOLUME if !volume.is_of_user() => {
                return Err(BatchError::Malformed(
                    "an operation on a volume that is no user's",
                ));
            }
            KIND_VOLUME => Entry::Volume {
                volume,
                lsn,
                change: self.change()?,
            },
            KIND_COVERED => self.covered(tag, lsn)?,
            KIND_REFERENCE => self.reference(volume, lsn)?,
            _ => return Err(BatchError::Malformed("an entry of unknown kind")),
        })
    }

    fn range(
        &mut self,
        volume: VolumeId,
        lsn: Lsn,
        state: RangeState,
    ) -> Result<Entry, BatchError> {
        let lba = self.lba()?;
        let count = self.varint()?;
        match lba.0.checked_add(count) {
            Some(end) if count > 0 => *self.context.block() = end,
            _ => return Err(BatchError::Malformed("a range that is empty or too long")),
        }
        Ok(Entry::Range {
            volume,
            lba,
            count,
            lsn,
            state,
        })
    }

    fn covered(&mut self, tag: u8, first: Lsn) -> Result<Entry, BatchError> {
        let count = self.varint()?;
        if count == 0 || first.0.saturating_add(count) > COUNTER_MAX || tag & VOLUME_BIT != 0 {
            return Err(BatchError::Malformed(
                "covered LSNs: none, too many, or with a volume",
            ));
        }
        self.context.lsn = first.0 + (count - 1);
        Ok(Entry::Covered { first, count })
    }

    fn reference(&mut self, volume: VolumeId, birth: Lsn) -> Result<Entry, BatchError> {
        if volume == VolumeId::SHARED {
            return Err(BatchError::Malformed("a reference of the shared volume"));
        }
        let lba = self.lba()?;
        let id = self.context.id.wrapping_add(unzigzag(self.varint()?));
        if id >> SHARED_ID_BITS != 0 {
            return Err(BatchError::Malformed(
                "a reference to an id of more than 40 bits",
            ));
        }
        self.context.id = id + 1;
        let incarnation = (birth.0 as u32).wrapping_sub(self.number()?);
        Ok(Entry::Reference {
            volume,
            lba,
            birth,
            id: Lba(id),
            incarnation,
        })
    }

    fn page(&mut self, tag: u8) -> Result<Entry, BatchError> {
        if tag != KIND_PAGE {
            return Err(BatchError::Malformed("a page with a volume or an LSN"));
        }
        let step = unzigzag(self.varint()?);
        let object = u64::from(self.context.object).wrapping_add(step);
        let step = unzigzag(self.varint()?);
        let index = u64::from(self.context.index).wrapping_add(step);
        let (Ok(object), Ok(index)) = (u32::try_from(object), u32::try_from(index)) else {
            return Err(BatchError::Malformed("a page number of more than 32 bits"));
        };
        self.context.object = object;
        self.context.index = index.wrapping_add(1);
        Ok(Entry::Page { object, index })
    }

    fn name(&mut self) -> Result<String, BatchError> {
        let length = usize::from(self.byte()?);
        let text = self.bytes.get(self.at..self.at + length).ok_or(TRUNCATED)?;
        self.at += length;
        let name = std::str::from_utf8(text)
            .ok()
            .filter(|name| crate::name_is_valid(name));
        Ok(name
            .ok_or(BatchError::Malformed("a volume name that is not allowed"))?
            .to_owned())
    }

    fn change(&mut self) -> Result<VolumeChange, BatchError> {
        Ok(match self.byte()? {
            CHANGE_CREATE => VolumeChange::Create {
                name: self.name()?,
                size_bytes: self.size_bytes()?,
            },
            CHANGE_RENAME => VolumeChange::Rename { name: self.name()? },
            CHANGE_RESIZE => VolumeChange::Resize {
                size_bytes: self.size_bytes()?,
            },
            CHANGE_DELETE => VolumeChange::Delete,
            CHANGE_READ_ONLY => match self.byte()? {
                0 => VolumeChange::SetReadOnly(false),
                1 => VolumeChange::SetReadOnly(true),
                _ => return Err(BatchError::Malformed("a flag that is neither 0 nor 1")),
            },
            CHANGE_SYNC => VolumeChange::SetSync(
                SyncMode::from_u8(self.byte()?)
                    .ok_or(BatchError::Malformed("an unknown kind of flushes"))?,
            ),
            CHANGE_COMPRESSION => VolumeChange::SetCompression(
                Compression::from_u8(self.byte()?)
                    .ok_or(BatchError::Malformed("an unknown kind of compression"))?,
            ),
            CHANGE_DEDUP => VolumeChange::SetDedup(
                Dedup::from_u8(self.byte()?)
                    .ok_or(BatchError::Malformed("an unknown kind of deduplication"))?,
            ),
            _ => return Err(BatchError::Malformed("a volume operation of unknown kind")),
        })
    }
}

#[cfg(test)]
mod tests;
