//! Verified sequential reads for recovery: direct if the bytes verify, else rebuilt from the other columns.

use crate::jobs::rebuild_column;
use windrow_io::{Buf, BufPool, MemberError, MemberErrorKind, MemberIo, ReadItem};
use windrow_layout::batch::{DecodedBatch, HeaderFrame, decode_batch, decode_header};
use windrow_layout::checkpoint::PagePointer;
use windrow_units::{BLOCK_SIZE, Column, MemberId, PlaceCodec, PoolUuid, SegmentId, ZoneMap};

/// Reads for recovery.
pub(super) struct Reader<'a> {
    pub(super) io: &'a mut dyn MemberIo,
    pub(super) zones: &'a ZoneMap,
    pub(super) codec: PlaceCodec,
    pub(super) buffers: &'a BufPool,
    pub(super) online: Vec<bool>,
    pub(super) pool: PoolUuid,
}

/// A power cut (of a simulated machine) ends recovery at once; every other fault is handled by redundancy.
fn fatal(error: &MemberError) -> bool {
    error.kind == MemberErrorKind::PowerCut
}

impl<'a> Reader<'a> {
    pub(super) fn new(io: &'a mut dyn MemberIo, zones: &'a ZoneMap, codec: PlaceCodec, buffers: &'a BufPool, online: Vec<bool>, pool: PoolUuid) -> Self {
        Self { io, zones, codec, buffers, online, pool }
    }

    /// `rows` rows of a column; `None` if the member is absent or fails.
    pub(super) fn column(&mut self, segment: SegmentId, column: Column, row: u32, rows: u32) -> Result<Option<Buf>, MemberError> {
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

    /// All columns of a run of rows.
    pub(super) fn all_columns(&mut self, segment: SegmentId, row: u32, rows: u32) -> Result<Vec<Option<Buf>>, MemberError> {
        let width = self.zones.shape(segment).width;
        let mut columns: Vec<Option<Buf>> = (0..width).map(|_| None).collect();
        let mut items = Vec::with_capacity(usize::from(width));
        let mut names = Vec::with_capacity(usize::from(width));
        for c in 0..width {
            let (member, offset) = self.zones.locate(segment).address(row, Column(c));
            if self.online[member.index()] {
                items.push(ReadItem { member, offset, buf: self.buffers.get(rows as usize * BLOCK_SIZE), result: Ok(()) });
                names.push(usize::from(c));
            }
        }
        self.io.read_many(&mut items);
        for (item, c) in items.into_iter().zip(names) {
            match item.result {
                Ok(()) => columns[c] = Some(item.buf),
                Err(error) if fatal(&error) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(columns)
    }

    /// Rows of a column, rebuilt from the others until `good` accepts them.
    pub(super) fn rebuilt(
        &mut self,
        segment: SegmentId,
        column: Column,
        row: u32,
        rows: u32,
        mut good: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Buf>, MemberError> {
        let shape = *self.zones.shape(segment);
        if shape.tolerance() == 0 {
            return Ok(None);
        }
        let columns = self.all_columns(segment, row, rows)?;
        let wanted = usize::from(column.0);
        let suspects = std::iter::once(None).chain((0..columns.len()).filter(|c| *c != wanted).map(Some));
        for suspect in suspects {
            if let Some(buf) = rebuild_column(&shape, wanted, &columns, suspect, self.buffers)
                && good(&buf)
            {
                return Ok(Some(buf));
            }
        }
        Ok(None)
    }

    /// The header of the batch at (segment, row) that `fits`. A copy that missed its write may still bear a valid header of the
    /// segment's former life: then the other columns are asked.
    pub(super) fn header(&mut self, segment: SegmentId, row: u32, fits: impl Fn(&HeaderFrame) -> bool) -> Result<Option<HeaderFrame>, MemberError> {
        let pool = self.pool;
        let decode = |bytes: &[u8]| decode_header(bytes, &pool, segment, row).ok().filter(&fits);
        if let Some(frame) = self.column(segment, Column(0), row, 1)?.and_then(|buf| decode(&buf)) {
            return Ok(Some(frame));
        }
        let mut found = None;
        self.rebuilt(segment, Column(0), row, 1, |bytes| {
            found = decode(bytes);
            found.is_some()
        })?;
        Ok(found)
    }

    /// Head and tail of a batch whose header is known.
    pub(super) fn batch(&mut self, frame: &HeaderFrame) -> Result<Option<DecodedBatch>, MemberError> {
        let (segment, row, rows) = (frame.header.segment, frame.header.row, frame.header.rows);
        let shape = frame.header.shape;
        let pool = self.pool;
        let tail_at = (Column(shape.data - 1), row + rows - 1);
        let head = self.head(frame)?;
        let tail = self.column(segment, tail_at.0, tail_at.1, 1)?;
        if let (Some(head), Some(tail)) = (&head, &tail)
            && let Ok(batch) = decode_batch(head, tail, &pool, segment, row)
            && batch.frame == *frame
        {
            return Ok(Some(batch));
        }
        let columns = self.all_columns(segment, row, rows)?;
        for suspect in std::iter::once(None).chain((0..columns.len()).map(Some)) {
            let data: Option<Vec<Buf>> = (0..usize::from(shape.data)).map(|c| self.data_column(&shape, &columns, c, suspect)).collect();
            let Some(data) = data else { continue };
            let block = |b: u32| &data[(b / rows) as usize][(b % rows) as usize * BLOCK_SIZE..][..BLOCK_SIZE];
            let head: Vec<u8> = (0..frame.head_blocks).flat_map(|b| block(b).iter().copied()).collect();
            if let Ok(batch) = decode_batch(&head, block(frame.tail_block()), &pool, segment, row)
                && batch.frame == *frame
            {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// The head blocks; they can reach into further columns when a batch is short.
    fn head(&mut self, frame: &HeaderFrame) -> Result<Option<Vec<u8>>, MemberError> {
        let (segment, row, rows) = (frame.header.segment, frame.header.row, frame.header.rows);
        let mut head = Vec::with_capacity(frame.head_blocks as usize * BLOCK_SIZE);
        let mut left = frame.head_blocks;
        let mut c = 0u8;
        while left > 0 {
            let take = left.min(rows);
            match self.column(segment, Column(c), row, take)? {
                Some(buf) => head.extend_from_slice(&buf),
                None => return Ok(None),
            }
            left -= take;
            c += 1;
        }
        Ok(Some(head))
    }

    /// A data column: as read, or rebuilt if it is missing or the suspect.
    pub(super) fn data_column(&self, shape: &windrow_units::Shape, columns: &[Option<Buf>], c: usize, suspect: Option<usize>) -> Option<Buf> {
        match &columns[c] {
            Some(buf) if suspect != Some(c) => {
                let mut copy = self.buffers.get(buf.len());
                copy.copy_from_slice(buf);
                Some(copy)
            }
            _ => rebuild_column(shape, c, columns, suspect, self.buffers),
        }
    }

    /// Checkpoint pages, in the order asked; `None` where a page can not be verified.
    pub(super) fn pages(&mut self, pointers: &[PagePointer]) -> Result<Vec<Option<Buf>>, MemberError> {
        let mut out: Vec<Option<Buf>> = pointers.iter().map(|_| None).collect();
        let mut items = Vec::with_capacity(pointers.len());
        let mut index = Vec::with_capacity(pointers.len());
        for (i, pointer) in pointers.iter().enumerate() {
            let Some((segment, column, row)) = self.page_address(pointer) else { continue };
            let (member, offset) = self.zones.locate(segment).address(row, column);
            if self.online[member.index()] {
                items.push(ReadItem { member, offset, buf: self.buffers.get(BLOCK_SIZE), result: Ok(()) });
                index.push(i);
            }
        }
        self.io.read_many(&mut items);
        for (item, i) in items.into_iter().zip(index) {
            match item.result {
                Ok(()) if windrow_reduce::checksum(&item.buf) == pointers[i].checksum => out[i] = Some(item.buf),
                Err(error) if fatal(&error) => return Err(error),
                _ => {}
            }
        }
        for (i, pointer) in pointers.iter().enumerate() {
            if out[i].is_none()
                && let Some((segment, column, row)) = self.page_address(pointer)
            {
                out[i] = self.rebuilt(segment, column, row, 1, |bytes| windrow_reduce::checksum(bytes) == pointer.checksum)?;
            }
        }
        Ok(out)
    }

    fn page_address(&self, pointer: &PagePointer) -> Option<(SegmentId, Column, u32)> {
        let segment = self.codec.segment(pointer.place);
        if !pointer.present || !self.zones.contains(segment) {
            return None;
        }
        let shape = self.zones.shape(segment);
        let block = self.codec.block(pointer.place);
        let (row, rows) = (u32::from(pointer.batch_row), u32::from(pointer.batch_rows));
        let first = u64::from(row) * u64::from(shape.data);
        let end = first + u64::from(rows) * u64::from(shape.data);
        if rows == 0 || row + rows > shape.rows || block < first || block >= end {
            return None;
        }
        let (column, row) = shape.locate(row, rows, block);
        Some((segment, column, row))
    }

    /// Writes. A member that fails is left out, and the start begins anew.
    pub(super) fn write(&mut self, member: MemberId, offset: u64, bytes: &[u8]) -> Result<(), MemberError> {
        self.io.write(member, offset, bytes)
    }
}
