//! Reader of segment blocks, reconstructed from their rows where members are missing or wrong.

use crate::raid;
use windrow_format::batch::payload_checksum;
use windrow_format::superblock::{RESERVED_BYTES, Superblock};
use windrow_geometry::{Column, MAX_MEMBERS, Shape, ZoneMap};
use windrow_io::{Buf, MemberIo, ReadItem};
use windrow_types::{AddressCodec, BLOCK_BYTES, BLOCK_SIZE, MemberId, PoolUuid, SegmentId};

/// Longest single read.
const READ_BYTES: usize = 1 << 20;

/// Consecutive failed single-block reads after which the member is probed: each may take a drive
/// seconds, and a pool has many blocks.
pub(crate) const FAILED_IN_A_ROW: u32 = 256;

/// Number of blocks all over a member that a probe reads. If none is readable the member is treated
/// as absent; one bad region is no reason for that.
const PROBES: u64 = 16;

/// The pool's geometry and the members that count.
pub(crate) struct PoolReader<'a> {
    io: &'a mut dyn MemberIo,
    pub(crate) zones: ZoneMap,
    pub(crate) codec: AddressCodec,
    pub(crate) pool: PoolUuid,
    usable: u64,
    /// Retired journal devices, and whether they are read nevertheless.
    retired: u64,
    reads_retired: bool,
    /// Consecutive failed reads of each member.
    failed: Vec<u32>,
    /// Unresponsive members, as a bit mask.
    given_up: u64,
    pub(crate) read_bytes: u64,
}

impl<'a> PoolReader<'a> {
    /// A reader over the members of the bit mask `usable`.
    pub(crate) fn new(io: &'a mut dyn MemberIo, superblock: &Superblock, usable: u64) -> Self {
        let zones = ZoneMap::new(superblock.zones.clone());
        let codec = superblock.address_codec();
        Self {
            io,
            zones,
            codec,
            pool: superblock.pool,
            usable,
            retired: 0,
            reads_retired: false,
            failed: vec![0; MAX_MEMBERS],
            given_up: 0,
            read_bytes: 0,
        }
    }

    /// Adds retired journal devices, which are read only after [`Self::read_retired`].
    pub(crate) fn with_retired(self, retired: u64) -> Self {
        Self { retired, ..self }
    }

    /// Enables reads of the retired devices. False if there are none.
    pub(crate) fn read_retired(&mut self) -> bool {
        self.reads_retired = self.retired != 0;
        self.reads_retired
    }

    /// Reads bytes of members that count; block by block where a read fails.
    pub(crate) fn pieces(&mut self, addresses: &[(MemberId, u64)], bytes: usize) -> Vec<Piece> {
        let usable = addresses
            .iter()
            .filter(|(member, _)| self.is_usable(*member));
        let mut items: Vec<ReadItem> = usable
            .map(|(member, offset)| ReadItem {
                member: *member,
                offset: *offset,
                buf: Buf::unpooled(bytes),
                result: Ok(()),
            })
            .collect();
        self.io.read_many(&mut items);
        items.into_iter().map(|item| self.piece(item)).collect()
    }

    fn piece(&mut self, item: ReadItem) -> Piece {
        let mut piece = Piece {
            member: item.member,
            bytes: item.buf.to_vec(),
            bad: Vec::new(),
        };
        if item.result.is_err() {
            for (block, bytes) in piece.bytes.chunks_mut(BLOCK_SIZE).enumerate() {
                if !self.read_block(item.member, item.offset + block as u64 * BLOCK_BYTES, bytes) {
                    bytes.fill(0);
                    piece.bad.push(block);
                }
            }
        } else {
            self.failed[item.member.index()] = 0;
        }
        self.read_bytes += (piece.bytes.len() - piece.bad.len() * BLOCK_SIZE) as u64;
        piece
    }

    fn is_usable(&self, member: MemberId) -> bool {
        ((self.usable | if self.reads_retired { self.retired } else { 0 }) & !self.given_up)
            >> member.0
            & 1
            == 1
    }

    /// Members that became unresponsive.
    pub(crate) fn given_up(&self) -> Vec<MemberId> {
        (0..MAX_MEMBERS as u8)
            .map(MemberId)
            .filter(|member| self.given_up >> member.0 & 1 == 1)
            .collect()
    }

    /// Reads one block after a longer read failed. False if it cannot be read.
    fn read_block(&mut self, member: MemberId, offset: u64, bytes: &mut [u8]) -> bool {
        // (An unresponsive member is not read again.)
        let good = self.is_usable(member) && self.io.read(member, offset, bytes).is_ok();
        let failed = &mut self.failed[member.index()];
        *failed = if good { 0 } else { *failed + 1 };
        if *failed == FAILED_IN_A_ROW {
            *failed = 0;
            self.given_up |= u64::from(!self.answers(member)) << member.0;
        }
        good
    }

    fn answers(&mut self, member: MemberId) -> bool {
        let blocks =
            (self.io.size(member) / BLOCK_BYTES).saturating_sub(RESERVED_BYTES / BLOCK_BYTES);
        let (at, mut bytes) = (
            |probe| RESERVED_BYTES + blocks * probe / PROBES * BLOCK_BYTES,
            vec![0; BLOCK_SIZE],
        );
        (0..PROBES).any(|probe| self.io.read(member, at(probe), &mut bytes).is_ok())
    }
}

/// Bytes of a member.
pub(crate) struct Piece {
    pub(crate) member: MemberId,
    pub(crate) bytes: Vec<u8>,
    /// Indices of its unreadable blocks.
    bad: Vec<usize>,
}

impl Piece {
    /// True if all of these bytes were readable.
    pub(crate) fn is_whole(&self, range: std::ops::Range<usize>) -> bool {
        !self
            .bad
            .iter()
            .any(|block| block * BLOCK_SIZE < range.end && range.start < (block + 1) * BLOCK_SIZE)
    }
}

/// State of one block of a member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unread,
    /// Read from the member.
    Found,
    /// Reconstructed, because the member's bytes are wrong.
    Corrected,
    /// The member returned an error.
    Failed,
    /// The member is absent.
    Absent,
}

/// Source of a block that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// Its member.
    Member,
    /// Its member is absent; reconstructed from the row.
    Missing,
    /// Its member holds other bytes, or returned an error; reconstructed from the row.
    Wrong,
}

/// Some rows of a segment, inside one chunk, with the blocks read so far.
pub(crate) struct Rows {
    pub(crate) segment: SegmentId,
    pub(crate) row: u32,
    pub(crate) rows: u32,
    pub(crate) shape: Shape,
    columns: Vec<Vec<u8>>,
    states: Vec<State>,
}

impl Rows {
    /// Rows of which nothing is read yet. They must lie in one chunk of the segment.
    pub(crate) fn new(reader: &PoolReader<'_>, segment: SegmentId, row: u32, rows: u32) -> Self {
        let shape = *reader.zones.shape(segment);
        let width = usize::from(shape.width);
        Self {
            segment,
            row,
            rows,
            shape,
            columns: vec![Vec::new(); width],
            states: vec![State::Unread; width * rows as usize],
        }
    }

    fn width(&self) -> usize {
        usize::from(self.shape.width)
    }

    fn slot(&self, column: usize, at: u32) -> usize {
        column * self.rows as usize + at as usize
    }

    /// Column and row (counted from the first) of a data block.
    pub(crate) fn position(&self, block: u32) -> (usize, u32) {
        ((block / self.rows) as usize, block % self.rows)
    }

    /// Member that should hold a column.
    pub(crate) fn member(&self, reader: &PoolReader<'_>, column: usize) -> MemberId {
        reader
            .zones
            .locate(self.segment)
            .address(self.row, Column(column as u8))
            .0
    }

    /// Bytes of a block, if they are known.
    fn known(&self, column: usize, at: u32) -> Option<&[u8]> {
        match self.states[self.slot(column, at)] {
            State::Found | State::Corrected => self.columns[column]
                .chunks_exact(BLOCK_SIZE)
                .nth(at as usize),
            _ => None,
        }
    }

    /// Bytes of a data block, if they were read or corrected.
    pub(crate) fn known_bytes(&self, block: u32) -> Option<&[u8]> {
        let (column, at) = self.position(block);
        self.known(column, at)
    }

    /// Reads the unread blocks of rows `at .. at + count` of the columns.
    pub(crate) fn load(
        &mut self,
        reader: &mut PoolReader<'_>,
        columns: std::ops::Range<usize>,
        at: u32,
        count: u32,
    ) {
        let mut items = Vec::new();
        let mut targets = Vec::new();
        for column in columns {
            let (member, start) = reader
                .zones
                .locate(self.segment)
                .address(self.row, Column(column as u8));
            if self.columns[column].is_empty() {
                self.columns[column] = vec![0; self.rows as usize * BLOCK_SIZE];
            }
            if !reader.is_usable(member) {
                let (from, to) = (self.slot(column, 0), self.slot(column, self.rows));
                self.states[from..to]
                    .iter_mut()
                    .filter(|s| **s == State::Unread)
                    .for_each(|s| *s = State::Absent);
                continue;
            }
            let mut next = at;
            while next < at + count {
                if self.states[self.slot(column, next)] != State::Unread {
                    next += 1;
                    continue;
                }
                let first = next;
                let most = (at + count).min(first + (READ_BYTES / BLOCK_SIZE) as u32);
                while next < most && self.states[self.slot(column, next)] == State::Unread {
                    next += 1;
                }
                let buf = Buf::unpooled((next - first) as usize * BLOCK_SIZE);
                items.push(ReadItem {
                    member,
                    offset: start + u64::from(first) * BLOCK_BYTES,
                    buf,
                    result: Ok(()),
                });
                targets.push((column, first));
            }
        }
        reader.io.read_many(&mut items);
        for (item, (column, first)) in items.iter_mut().zip(targets) {
            self.take(reader, item, column, first);
        }
    }

    /// Keeps the blocks of a read; if it failed, tries them one by one.
    fn take(
        &mut self,
        reader: &mut PoolReader<'_>,
        item: &mut ReadItem,
        column: usize,
        first: u32,
    ) {
        let whole = item.result.is_ok();
        if whole {
            reader.failed[item.member.index()] = 0;
        }
        for (i, bytes) in item.buf.chunks_exact_mut(BLOCK_SIZE).enumerate() {
            let good = whole
                || reader.read_block(item.member, item.offset + i as u64 * BLOCK_BYTES, bytes);
            let at = first + i as u32;
            let slot = self.slot(column, at);
            self.states[slot] = if good { State::Found } else { State::Failed };
            if good {
                reader.read_bytes += BLOCK_BYTES;
                self.columns[column][at as usize * BLOCK_SIZE..][..BLOCK_SIZE]
                    .copy_from_slice(bytes);
            }
        }
    }

    /// A data block as stored on its member, if that is readable.
    pub(crate) fn direct(&mut self, reader: &mut PoolReader<'_>, block: u32) -> Option<&[u8]> {
        let (column, at) = self.position(block);
        self.load(reader, column..column + 1, at, 1);
        self.known(column, at)
    }

    /// Finds the first data blocks, if the same columns are wrong in all of their rows: `accept`
    /// gets the bytes of the first one, and then of all of them.
    pub(crate) fn find_together(
        &mut self,
        reader: &mut PoolReader<'_>,
        blocks: u32,
        accept: impl Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        (0..blocks).for_each(|block| self.load(reader, 0..self.width(), self.position(block).1, 1));
        let last_column = self.position(blocks - 1).0;
        let are_there = (0..blocks).all(|block| self.known_bytes(block).is_some());
        // If all of them are present, only suspects among them make a difference.
        let differs = |suspects: &Vec<usize>| {
            suspects.is_empty() || !are_there || suspects.iter().any(|c| *c <= last_column)
        };
        raid::suspects(&self.shape)
            .into_iter()
            .filter(differs)
            .find_map(|suspects| {
                let rebuilt = |block: u32| {
                    let (column, at) = self.position(block);
                    let row: Vec<Option<&[u8]>> = (0..self.width())
                        .map(|c| self.known(c, at).filter(|_| !suspects.contains(&c)))
                        .collect();
                    row[column]
                        .map(<[u8]>::to_vec)
                        .or_else(|| raid::rebuild(&self.shape, &row, column))
                };
                rebuilt(0).filter(|first| accept(first))?;
                let all: Option<Vec<Vec<u8>>> = (0..blocks).map(rebuilt).collect();
                all.map(|blocks| blocks.concat())
                    .filter(|bytes| accept(bytes))
            })
    }

    /// Candidates of a data block with up to the tolerated number of wrong columns: as read, then
    /// reconstructed.
    pub(crate) fn candidates(&mut self, reader: &mut PoolReader<'_>, block: u32) -> Vec<Vec<u8>> {
        let mut candidates: Vec<Vec<u8>> = self
            .direct(reader, block)
            .map(<[u8]>::to_vec)
            .into_iter()
            .collect();
        self.search(reader, block, |bytes| {
            if !candidates.iter().any(|c| c == bytes) {
                candidates.push(bytes.to_vec());
            }
            false
        });
        candidates
    }

    fn search(
        &mut self,
        reader: &mut PoolReader<'_>,
        block: u32,
        accept: impl FnMut(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        self.search_beside(reader, block, &[], accept)
    }

    /// Same, with known bytes `first` of the first data blocks, also if their member is absent.
    fn search_beside(
        &mut self,
        reader: &mut PoolReader<'_>,
        block: u32,
        first: &[u8],
        accept: impl FnMut(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let (column, at) = self.position(block);
        self.load(reader, 0..self.width(), at, 1);
        let block_of = |c: usize| c * self.rows as usize + at as usize;
        let row: Vec<Option<&[u8]>> = (0..self.width())
            .map(|c| {
                first
                    .chunks_exact(BLOCK_SIZE)
                    .nth(block_of(c))
                    .or_else(|| self.known(c, at))
            })
            .collect();
        raid::search(&self.shape, &row, column, accept)
    }

    /// Finds a data block that `accept` takes, read or reconstructed; a reconstructed one replaces
    /// the bytes that were read.
    pub(crate) fn find(
        &mut self,
        reader: &mut PoolReader<'_>,
        block: u32,
        accept: impl FnMut(&[u8]) -> bool,
    ) -> Option<Origin> {
        self.find_beside(reader, block, &[], accept)
    }

    /// Same, with known bytes `first` of the first data blocks, also if their member is absent.
    pub(crate) fn find_beside(
        &mut self,
        reader: &mut PoolReader<'_>,
        block: u32,
        first: &[u8],
        mut accept: impl FnMut(&[u8]) -> bool,
    ) -> Option<Origin> {
        if self.direct(reader, block).is_some_and(&mut accept) {
            return Some(self.origin(block));
        }
        let bytes = self.search_beside(reader, block, first, accept)?;
        self.correct(block, &bytes);
        Some(self.origin(block))
    }

    /// Like [`Rows::find`], for a block with this CRC-32C.
    pub(crate) fn find_checksum(
        &mut self,
        reader: &mut PoolReader<'_>,
        block: u32,
        checksum: u32,
    ) -> Option<Origin> {
        self.find(reader, block, |bytes| payload_checksum(bytes) == checksum)
    }

    /// Replaces the bytes that were read by correct ones.
    pub(crate) fn correct(&mut self, block: u32, bytes: &[u8]) {
        let (column, at) = self.position(block);
        let slot = self.slot(column, at);
        let same = self.known(column, at) == Some(bytes);
        if same {
            return;
        }
        if self.states[slot] != State::Absent {
            self.states[slot] = State::Corrected;
        }
        self.columns[column][at as usize * BLOCK_SIZE..][..BLOCK_SIZE].copy_from_slice(bytes);
    }

    /// Source of a block that was found.
    pub(crate) fn origin(&self, block: u32) -> Origin {
        let (column, at) = self.position(block);
        match self.states[self.slot(column, at)] {
            State::Unread | State::Found => Origin::Member,
            State::Corrected | State::Failed => Origin::Wrong,
            State::Absent => Origin::Missing,
        }
    }

    /// The bytes of a block that was found.
    pub(crate) fn bytes(&self, block: u32) -> &[u8] {
        let (column, at) = self.position(block);
        self.columns[column]
            .get(at as usize * BLOCK_SIZE..(at as usize + 1) * BLOCK_SIZE)
            .unwrap_or(&[])
    }

    /// Compares redundancy with data, row by row. Returns the number of rows compared, and the
    /// wrong ones with their column. A row with unknown data (absent, failed) is skipped; a
    /// redundancy block that returned an error is wrong.
    pub(crate) fn compare_redundancy(
        &mut self,
        reader: &mut PoolReader<'_>,
    ) -> (u64, Vec<(u32, usize)>) {
        let (k, width) = (usize::from(self.shape.data), self.width());
        self.load(reader, 0..width, 0, self.rows);
        let mut compared = 0;
        let mut wrong = Vec::new();
        for at in 0..self.rows {
            let data: Option<Vec<&[u8]>> = (0..k).map(|c| self.known(c, at)).collect();
            let Some(data) = data else { continue };
            compared += 1;
            for (i, expected) in raid::redundancy(&self.shape, &data).iter().enumerate() {
                let state = self.states[self.slot(k + i, at)];
                if state != State::Absent && self.known(k + i, at) != Some(expected) {
                    wrong.push((at, k + i));
                }
            }
        }
        (compared, wrong)
    }
}
