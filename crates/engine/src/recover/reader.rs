//! Verified sequential reads for recovery: direct if the bytes verify, else reconstructed from the
//! other columns.

use crate::base::limits::UNREAD;
use crate::store::ends::{Ends, find_ends};
use crate::store::reconstruct::search;
use std::collections::BTreeMap;
use std::ops::Range;
use windrow_format::batch::{
    DecodedBatch, Entry, HeaderFrame, decode_batch, decode_head, decode_header,
};
use windrow_format::checkpoint::PagePointer;
use windrow_geometry::{Column, JournalArea, ZoneMap};
use windrow_io::{Buf, BufPool, MemberError, MemberErrorKind, MemberIo, ReadItem};
use windrow_types::{AddressCodec, BLOCK_SIZE, MemberId, PoolUuid, SegmentId};

/// Reader of batches, pages and journal copies.
pub(super) struct Reader<'a> {
    pub(super) io: &'a mut dyn MemberIo,
    pub(super) zones: &'a ZoneMap,
    pub(super) codec: AddressCodec,
    pub(super) buffers: &'a BufPool,
    pub(super) online: Vec<bool>,
    pub(super) pool: PoolUuid,
    /// Bit mask of journal devices that are not in service and may be read, and a flag that they
    /// are.
    pub(super) retired: u64,
    pub(super) reads_retired: bool,
    /// Set if a header was searched where too many columns are unreadable to rule it out.
    pub(super) is_blind: bool,
    /// Blocks read ahead, by member and offset.
    ahead: BTreeMap<(MemberId, u64), Buf>,
}

/// Number of chunks whose ends are read ahead.
const CHUNKS_AHEAD: usize = 64;

/// Number of unreadable blocks in a row after which a member is not asked for the following ones:
/// each may take seconds to fail.
const BLOCKS_TRIED: usize = 16;

/// Number of rows whose columns are read at once in a search for headers.
const RUN_ROWS: usize = 64;

/// All columns of consecutive rows.
struct Run {
    rows: Range<u32>,
    columns: Vec<Option<Buf>>,
}

impl Run {
    /// Blocks of a row; `None` if it is outside of the run, or a block of it is unreadable.
    fn of(&self, row: u32) -> Option<Vec<Option<&[u8]>>> {
        let at = row
            .checked_sub(self.rows.start)
            .filter(|_| self.rows.contains(&row))? as usize
            * BLOCK_SIZE;
        let block = |column: &'_ Option<Buf>| {
            column
                .as_ref()
                .is_some_and(|column| column[at..at + BLOCK_SIZE] != [UNREAD; BLOCK_SIZE])
        };
        self.columns.iter().all(block).then(|| {
            self.columns
                .iter()
                .map(|column| column.as_ref().map(|column| &column[at..at + BLOCK_SIZE]))
                .collect()
        })
    }
}

/// A power cut (of a simulated machine) ends recovery at once; redundancy handles every other
/// fault.
fn fatal(error: &MemberError) -> bool {
    error.kind == MemberErrorKind::PowerCut
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        io: &'a mut dyn MemberIo,
        zones: &'a ZoneMap,
        codec: AddressCodec,
        buffers: &'a BufPool,
        online: Vec<bool>,
        pool: PoolUuid,
    ) -> Self {
        Self {
            io,
            zones,
            codec,
            buffers,
            online,
            pool,
            retired: 0,
            reads_retired: false,
            is_blind: false,
            ahead: BTreeMap::new(),
        }
    }

    /// Reads `rows` rows of a column; `None` if the member is absent or fails.
    pub(super) fn column(
        &mut self,
        segment: SegmentId,
        column: Column,
        row: u32,
        rows: u32,
    ) -> Result<Option<Buf>, MemberError> {
        let (member, offset) = self.zones.locate(segment).address(row, column);
        if !self.online[member.index()] {
            return Ok(None);
        }
        let mut buf = self.buffers.get(rows as usize * BLOCK_SIZE);
        match self.io.read(member, offset, &mut buf) {
            Ok(()) => Ok(Some(buf)),
            Err(error) if fatal(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Reads all columns of a run of rows. An unreadable block is [`UNREAD`] in a column that is
    /// otherwise readable. Rows are reconstructed one by one, so that a bad sector in one of them
    /// does not affect the others.
    pub(super) fn all_columns(
        &mut self,
        segment: SegmentId,
        row: u32,
        rows: u32,
    ) -> Result<Vec<Option<Buf>>, MemberError> {
        let width = self.zones.shape(segment).width;
        let mut columns: Vec<Option<Buf>> = (0..width).map(|_| None).collect();
        let mut items = Vec::with_capacity(usize::from(width));
        let mut names = Vec::with_capacity(usize::from(width));
        for c in 0..width {
            let (member, offset) = self.zones.locate(segment).address(row, Column(c));
            if self.online[member.index()] {
                items.push(ReadItem {
                    member,
                    offset,
                    buf: self.buffers.get(rows as usize * BLOCK_SIZE),
                    result: Ok(()),
                });
                names.push(usize::from(c));
            }
        }
        self.io.read_many(&mut items);
        for (mut item, c) in items.into_iter().zip(names) {
            match item.result {
                Ok(()) => columns[c] = Some(item.buf),
                Err(error) if fatal(&error) => return Err(error),
                Err(_)
                    if rows > 1
                        && self.block_by_block(item.member, item.offset, &mut item.buf)? =>
                {
                    columns[c] = Some(item.buf)
                }
                Err(_) => {}
            }
        }
        Ok(columns)
    }

    /// Reads one block of a column: tries every reconstruction until `good` accepts one.
    pub(super) fn rebuilt(
        &mut self,
        segment: SegmentId,
        column: Column,
        row: u32,
        good: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Buf>, MemberError> {
        let shape = *self.zones.shape(segment);
        if shape.tolerance() == 0 {
            return Ok(None);
        }
        let columns = self.all_columns(segment, row, 1)?;
        let columns: Vec<Option<&[u8]>> = columns.iter().map(Option::as_deref).collect();
        self.is_blind |=
            columns.iter().filter(|column| column.is_none()).count() > shape.tolerance();
        let mut out = self.buffers.get(BLOCK_SIZE);
        Ok(search(&shape, usize::from(column.0), &columns, &mut out, good).then_some(out))
    }

    /// Header of the batch at (segment, row) that `fits`, with its block. A copy that missed its
    /// write may still have a valid header of an earlier incarnation of the segment: then the
    /// header is reconstructed.
    pub(super) fn header(
        &mut self,
        segment: SegmentId,
        row: u32,
        fits: impl Fn(&HeaderFrame) -> bool,
    ) -> Result<Option<(HeaderFrame, Buf)>, MemberError> {
        let pool = self.pool;
        let decode = |bytes: &[u8]| decode_header(bytes, &pool, segment, row).ok().filter(&fits);
        if row.is_multiple_of(self.zones.shape(segment).chunk_rows) {
            self.look_ahead(segment, row)?;
        }
        match self.block(segment, Column(0), row)? {
            Some(buf) => {
                if let Some(frame) = decode(&buf) {
                    return Ok(Some((frame, buf)));
                }
            }
            None => self.is_blind |= self.zones.shape(segment).tolerance() == 0,
        }
        let mut found = None;
        let block = self.rebuilt(segment, Column(0), row, |bytes| {
            found = decode(bytes);
            found.is_some()
        })?;
        Ok(found.zip(block))
    }

    /// Every header at (segment, row) that `fits`, direct and reconstructed, each with its block. A
    /// first column that missed a write has a header of an earlier incarnation that verifies as
    /// well.
    pub(super) fn all_headers(
        &mut self,
        segment: SegmentId,
        row: u32,
        fits: impl Fn(&HeaderFrame) -> bool,
    ) -> Result<Vec<(HeaderFrame, Buf)>, MemberError> {
        let (pool, buffers) = (self.pool, self.buffers);
        let decode = |bytes: &[u8]| decode_header(bytes, &pool, segment, row).ok().filter(&fits);
        if row.is_multiple_of(self.zones.shape(segment).chunk_rows) {
            self.look_ahead(segment, row)?;
        }
        let direct = self.block(segment, Column(0), row)?;
        self.is_blind |= direct.is_none() && self.zones.shape(segment).tolerance() == 0;
        let mut found: Vec<(HeaderFrame, Buf)> = direct
            .and_then(|buf| Some((decode(&buf)?, buf)))
            .into_iter()
            .collect();
        self.rebuilt(segment, Column(0), row, |bytes| {
            if let Some(frame) =
                decode(bytes).filter(|frame| found.iter().all(|(other, _)| other != frame))
            {
                let mut copy = buffers.get(BLOCK_SIZE);
                copy.copy_from_slice(bytes);
                found.push((frame, copy));
            }
            false
        })?;
        Ok(found)
    }

    /// Headers that `fit` at any of these rows. An absent or failing first column is reconstructed.
    /// With `thorough` one with other content is reconstructed as well, as it may have missed its
    /// write. Consecutive rows are reconstructed from one read of each column.
    pub(super) fn headers(
        &mut self,
        segment: SegmentId,
        rows: &[u32],
        thorough: bool,
        fits: impl Fn(&HeaderFrame) -> bool,
    ) -> Result<Vec<HeaderFrame>, MemberError> {
        let mut blocks: Vec<Option<Buf>> = Vec::with_capacity(rows.len());
        let wanted: Vec<(SegmentId, Column, u32)> =
            rows.iter().map(|row| (segment, Column(0), *row)).collect();
        self.read_blocks(&wanted, |block| blocks.push(block))?;
        let pool = self.pool;
        let mut found = Vec::new();
        let mut run = Run {
            rows: 0..0,
            columns: Vec::new(),
        };
        for (at, (row, block)) in rows.iter().zip(blocks).enumerate() {
            let decode = |bytes: &[u8]| {
                decode_header(bytes, &pool, segment, *row)
                    .ok()
                    .filter(&fits)
            };
            let mut frame = block.as_ref().and_then(|block| decode(block));
            self.is_blind |= block.is_none() && self.zones.shape(segment).tolerance() == 0;
            if frame.is_none() && (block.is_none() || thorough) {
                // Columns are on other members in the next chunk.
                let chunk_end = self.zones.shape(segment).chunk_end(*row);
                let following = rows[at..]
                    .iter()
                    .zip(*row..chunk_end)
                    .take_while(|(row, next)| *row == next)
                    .count()
                    .min(RUN_ROWS);
                self.rebuilt_in(&mut run, segment, *row, following as u32, |bytes| {
                    frame = decode(bytes);
                    frame.is_some()
                })?;
            }
            found.extend(frame);
        }
        Ok(found)
    }

    /// As [`Self::rebuilt`], for the first column. Reads up to `rows` rows from this one on at once
    /// if `run` does not have it.
    fn rebuilt_in(
        &mut self,
        run: &mut Run,
        segment: SegmentId,
        row: u32,
        following: u32,
        good: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), MemberError> {
        let shape = *self.zones.shape(segment);
        if following > 1 && shape.tolerance() > 0 && !run.rows.contains(&row) {
            *run = Run {
                rows: row..row + following,
                columns: self.all_columns(segment, row, following)?,
            };
        }
        // If a block of the run is unreadable, its rows are read one by one.
        match run.of(row) {
            None => self.rebuilt(segment, Column(0), row, good).map(drop),
            Some(blocks) => {
                search(&shape, 0, &blocks, &mut self.buffers.get(BLOCK_SIZE), good);
                Ok(())
            }
        }
    }

    /// Reads single blocks, overlapping, and passes them on in order; `None` for an unreadable one.
    pub(super) fn read_blocks(
        &mut self,
        wanted: &[(SegmentId, Column, u32)],
        mut take: impl FnMut(Option<Buf>),
    ) -> Result<(), MemberError> {
        let mut items: Vec<ReadItem> = Vec::with_capacity(wanted.len());
        let mut sent = Vec::with_capacity(wanted.len());
        for (segment, column, row) in wanted {
            let (member, offset) = self.zones.locate(*segment).address(*row, *column);
            let online = self.online[member.index()];
            sent.push(online);
            if online {
                items.push(ReadItem {
                    member,
                    offset,
                    buf: self.buffers.get(BLOCK_SIZE),
                    result: Ok(()),
                });
            }
        }
        self.io.read_many(&mut items);
        let mut items = items.into_iter();
        for sent in sent {
            match if sent { items.next() } else { None } {
                Some(ReadItem {
                    result: Ok(()),
                    buf,
                    ..
                }) => take(Some(buf)),
                Some(ReadItem {
                    result: Err(error), ..
                }) if fatal(&error) => return Err(error),
                _ => take(None),
            }
        }
        Ok(())
    }

    /// Reads the blocks in which full batches of the next chunks would have their ends, all at
    /// once. Otherwise following a chain waits for one block after another.
    fn look_ahead(&mut self, segment: SegmentId, row: u32) -> Result<(), MemberError> {
        let shape = *self.zones.shape(segment);
        let (member, offset) = self.zones.locate(segment).address(row, Column(0));
        if self.ahead.contains_key(&(member, offset)) {
            return Ok(());
        }
        self.ahead.clear();
        let mut wanted = Vec::with_capacity(2 * CHUNKS_AHEAD);
        for start in (row..shape.rows)
            .step_by(shape.chunk_rows as usize)
            .take(CHUNKS_AHEAD)
        {
            wanted.push((segment, Column(0), start));
            wanted.push((
                segment,
                Column(shape.data - 1),
                shape.chunk_end(start).min(shape.rows) - 1,
            ));
        }
        let mut blocks = Vec::with_capacity(wanted.len());
        self.read_blocks(&wanted, |block| blocks.push(block))?;
        for ((segment, column, row), block) in wanted.into_iter().zip(blocks) {
            if let Some(block) = block {
                self.ahead
                    .insert(self.zones.locate(segment).address(row, column), block);
            }
        }
        Ok(())
    }

    /// Drops the read-ahead blocks: they are stale after a write.
    pub(super) fn forget(&mut self) {
        self.ahead.clear();
    }

    /// Reads one block, from the read-ahead if it is there.
    fn block(
        &mut self,
        segment: SegmentId,
        column: Column,
        row: u32,
    ) -> Result<Option<Buf>, MemberError> {
        let address = self.zones.locate(segment).address(row, column);
        if let Some(ahead) = self.ahead.get(&address) {
            let mut copy = self.buffers.get(BLOCK_SIZE);
            copy.copy_from_slice(ahead);
            return Ok(Some(copy));
        }
        self.column(segment, column, row, 1)
    }

    /// Decodes ends that verified before.
    pub(super) fn decode(&self, ends: &Ends, segment: SegmentId, row: u32) -> Option<DecodedBatch> {
        decode_batch(ends.head(), ends.tail(), &self.pool, segment, row).ok()
    }

    /// Reads head and tail of a batch whose header is known; `first` is the header's block.
    pub(super) fn ends(
        &mut self,
        frame: &HeaderFrame,
        first: Buf,
    ) -> Result<Option<(DecodedBatch, Ends)>, MemberError> {
        let (segment, row, rows) = (frame.header.segment, frame.header.row, frame.header.rows);
        let shape = frame.header.shape;
        let pool = self.pool;
        let decode = |head: &[u8], tail: &[u8]| {
            let batch = decode_batch(head, tail, &pool, segment, row)
                .ok()
                .filter(|b| b.frame == *frame)?;
            Some((batch, Ends::new(head, tail)))
        };
        let head = self.head(frame, first)?;
        let tail = self.block(segment, Column(shape.data - 1), row + rows - 1)?;
        if let (Some(head), Some(tail)) = (&head, &tail)
            && let Some(found) = decode(head, tail)
        {
            return Ok(Some(found));
        }
        let columns = self.all_columns(segment, row, rows)?;
        Ok(find_ends(&pool, frame, &columns))
    }

    /// Reads the head blocks; in a short batch they extend into further columns.
    fn head(&mut self, frame: &HeaderFrame, first: Buf) -> Result<Option<Vec<u8>>, MemberError> {
        let (segment, row, rows) = (frame.header.segment, frame.header.row, frame.header.rows);
        let mut head = Vec::with_capacity(frame.head_blocks as usize * BLOCK_SIZE);
        head.extend_from_slice(&first);
        let mut at = 1;
        while at < frame.head_blocks {
            let take = (frame.head_blocks - at).min(rows - at % rows);
            match self.column(segment, Column((at / rows) as u8), row + at % rows, take)? {
                Some(buf) => head.extend_from_slice(&buf),
                None => return Ok(None),
            }
            at += take;
        }
        Ok(Some(head))
    }

    /// Entries in the head of a batch alone: for the list of losses.
    pub(super) fn head_entries(&mut self, frame: &HeaderFrame) -> Result<Vec<Entry>, MemberError> {
        let (segment, row) = (frame.header.segment, frame.header.row);
        let Some((_, block)) = self.header(segment, row, |f| f == frame)? else {
            return Ok(Vec::new());
        };
        let head = self.head(frame, block)?;
        Ok(head
            .and_then(|head| decode_head(&head, &self.pool, segment, row).ok())
            .unwrap_or_default())
    }

    /// Reads checkpoint pages, in the order asked; `None` for a page that does not verify.
    pub(super) fn pages(
        &mut self,
        pointers: &[PagePointer],
    ) -> Result<Vec<Option<Buf>>, MemberError> {
        let mut out: Vec<Option<Buf>> = pointers.iter().map(|_| None).collect();
        let mut items = Vec::with_capacity(pointers.len());
        let mut index = Vec::with_capacity(pointers.len());
        for (i, pointer) in pointers.iter().enumerate() {
            let Some((segment, column, row)) = self.page_address(pointer) else {
                continue;
            };
            let (member, offset) = self.zones.locate(segment).address(row, column);
            if self.online[member.index()] {
                items.push(ReadItem {
                    member,
                    offset,
                    buf: self.buffers.get(BLOCK_SIZE),
                    result: Ok(()),
                });
                index.push(i);
            }
        }
        self.io.read_many(&mut items);
        for (item, i) in items.into_iter().zip(index) {
            match item.result {
                Ok(()) if windrow_reduction::checksum(&item.buf) == pointers[i].checksum => {
                    out[i] = Some(item.buf)
                }
                Err(error) if fatal(&error) => return Err(error),
                _ => {}
            }
        }
        for (i, pointer) in pointers.iter().enumerate() {
            if out[i].is_none()
                && let Some((segment, column, row)) = self.page_address(pointer)
            {
                out[i] = self.rebuilt(segment, column, row, |bytes| {
                    windrow_reduction::checksum(bytes) == pointer.checksum
                })?;
            }
        }
        Ok(out)
    }

    fn page_address(&self, pointer: &PagePointer) -> Option<(SegmentId, Column, u32)> {
        let segment = self.codec.segment(pointer.address);
        if !pointer.present || !self.zones.contains(segment) {
            return None;
        }
        let shape = self.zones.shape(segment);
        let block = self.codec.block(pointer.address);
        let (row, rows) = (u32::from(pointer.batch_row), u32::from(pointer.batch_rows));
        let first = u64::from(row) * u64::from(shape.data);
        let end = first + u64::from(rows) * u64::from(shape.data);
        if rows == 0 || row + rows > shape.rows || block < first || block >= end {
            return None;
        }
        let (column, row) = shape.locate(row, rows, block);
        Some((segment, column, row))
    }

    /// Sets the journal devices that may be read although they are not in service. One that this
    /// start found `failing` was in service until now. Its durable records are recorded nowhere
    /// else, so nothing would miss them: it is always read.
    pub(super) fn read_retired_of(&mut self, retired: u64, failing: u64) {
        (self.retired, self.reads_retired) = (retired, retired & failing != 0);
    }

    /// First bytes of each copy of a journal chunk; `None` for an unreadable one.
    pub(super) fn journal_copies(
        &mut self,
        area: &JournalArea,
        chunk: u32,
        bytes: usize,
    ) -> Result<Vec<Option<Buf>>, MemberError> {
        let mut copies: Vec<Option<Buf>> = (0..area.copies).map(|_| None).collect();
        let (mut items, mut names) = (Vec::new(), Vec::new());
        for (copy, (member, offset)) in area.copies_of(chunk).enumerate() {
            if self.online[member.index()]
                || (self.reads_retired && self.retired >> member.0 & 1 == 1)
            {
                items.push(ReadItem {
                    member,
                    offset,
                    buf: self.buffers.get(bytes),
                    result: Ok(()),
                });
                names.push(copy);
            }
        }
        self.io.read_many(&mut items);
        for (mut item, copy) in items.into_iter().zip(names) {
            match item.result {
                Ok(()) => copies[copy] = Some(item.buf),
                // A missing device would look as if it had no records.
                Err(error) if fatal(&error) || error.kind == MemberErrorKind::Gone => {
                    return Err(error);
                }
                // A bad sector affects only its own block.
                Err(_) if self.block_by_block(item.member, item.offset, &mut item.buf)? => {
                    copies[copy] = Some(item.buf)
                }
                Err(_) => {}
            }
        }
        Ok(copies)
    }

    /// Reads single blocks; unreadable ones become [`UNREAD`]. False if all of them, or the first
    /// [`BLOCKS_TRIED`], are unreadable.
    fn block_by_block(
        &mut self,
        member: MemberId,
        offset: u64,
        buf: &mut Buf,
    ) -> Result<bool, MemberError> {
        let mut some = false;
        for (index, block) in buf.chunks_mut(BLOCK_SIZE).enumerate() {
            match self
                .io
                .read(member, offset + (index * BLOCK_SIZE) as u64, block)
            {
                Ok(()) => some = true,
                Err(error) if fatal(&error) => return Err(error),
                Err(_) if !some && index + 1 == BLOCKS_TRIED => return Ok(false),
                Err(_) => block.fill(UNREAD),
            }
        }
        Ok(some)
    }

    /// Reads bytes past the read-ahead. False if they are unreadable.
    pub(super) fn read_again(
        &mut self,
        member: MemberId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<bool, MemberError> {
        match self.io.read(member, offset, buf) {
            Err(error) if fatal(&error) => Err(error),
            result => Ok(result.is_ok()),
        }
    }

    /// Writes. A member that fails is left out, and recovery restarts.
    pub(super) fn write(
        &mut self,
        member: MemberId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), MemberError> {
        self.forget();
        self.io.write(member, offset, bytes)
    }
}
