//! Fetch: verified bytes of a run of rows of one column, rebuilt from the other columns if need be.
//!
//! 1 Read the run from its member. 2 Compare with the checksums (small runs here, others in a job). 3 If the member is gone,
//! the read fails or a checksum is wrong: read the same rows of all other columns and rebuild; the job tries, row by
//! row, everything that the redundancy covers. 4 A run that can not be had as a whole is fetched row by row (`fetch/split.rs`).
//! 5 A member that keeps its read waiting is gone around (`slow.rs`): other columns are read meanwhile, and the first right answer counts. One that keeps
//!   many waiting is passed over: others are read instead, and it only if they are not right.
//! 6 What can not be verified is an error, never bytes. The segment is pinned meanwhile, so that it is not used again under the read.

use crate::jobs::{Job, RebuildWork, VerifyWork, Work, verify};
use crate::limits::INLINE_VERIFY_BLOCKS;
use crate::member::Purpose;
use crate::piece::Piece;
use crate::slow::Watch;
use crate::stages::Stage as Times;
use crate::{Engine, Notice, Outbox};
use windrow_io::{Buf, MemberOp, Payload};
use windrow_units::{BLOCK_SIZE, Code, Column, MemberId, SegmentId};

mod split;

pub(crate) use split::Split;

/// Who wants the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FetchGoal {
    /// Part `part` of read request `read`.
    Read { read: u32, part: u32 },
    /// Edge `edge` of a read-modify-write, which is packed.
    Edge { write: u32, edge: u32, packed: Option<Piece> },
    /// Shared content that a block is compared with.
    Compare { at: u32 },
    /// A page of the index of deduplication; `urgent`: blocks that are written wait for it.
    IndexPage { at: u32, urgent: bool },
    /// Header or footer of a batch being cleaned: no checksum is known. The tail, or the part of the head in column `part`.
    CleanEnd { victim: u32, batch_row: u32, part: Option<u8> },
    /// Live blocks of a batch being cleaned.
    CleanRun { victim: u32, run: u32 },
    /// Block `doubt` of those that live in batches whose tables can not be had.
    Doubt { doubt: u32 },
    /// Row or piece `row` of a run that is fetched row by row.
    Row { split: u32, row: u32 },
}

/// The bytes, or the rows or pieces of the run that can not be had, by their numbers.
pub(crate) type Fetched = Result<Payload, Vec<u32>>;

/// What to fetch.
#[derive(Clone, Debug)]
pub(crate) struct FetchSpec {
    pub(crate) segment: SegmentId,
    pub(crate) column: Column,
    pub(crate) row: u32,
    pub(crate) rows: u32,
    /// What is wanted of these rows, in ascending order; empty: all, but no checksum is known, the caller verifies.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) goal: FetchGoal,
    /// All columns are read row by row: a piece in two rows could not be had otherwise.
    pub(crate) singly: bool,
}

impl FetchSpec {
    /// True if a user waits for it, and what comes can be verified here.
    fn is_of_user(&self) -> bool {
        let is_users = matches!(self.goal, FetchGoal::Read { .. } | FetchGoal::Edge { .. } | FetchGoal::Row { .. } | FetchGoal::Compare { .. });
        (is_users || matches!(self.goal, FetchGoal::IndexPage { urgent: true, .. })) && !self.pieces.is_empty()
    }
}

/// What may still be tried where a run can not be had as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Further {
    /// Its rows or pieces one by one.
    Split,
    /// Each column of it row by row.
    Singly,
}

impl FetchSpec {
    fn further(&self) -> Option<Further> {
        // Cleaning goes on with the live blocks of a run by itself.
        let is_cleaning = matches!(self.goal, FetchGoal::CleanRun { .. });
        match self.pieces.len() {
            1 => (self.rows > 1 && !self.singly).then_some(Further::Singly),
            0 if self.rows == 1 => None,
            _ => (!is_cleaning).then_some(Further::Split),
        }
    }
}

#[derive(Debug)]
enum Stage {
    Direct,
    Verifying(Payload),
    /// `own`: what was read of the column itself and is not right as a whole. `lost`: column and row of what could not be read singly.
    Gathering {
        columns: Vec<Option<Buf>>,
        own: Option<Payload>,
        lost: Vec<(u8, u8)>,
        left: u32,
    },
    Rebuilding,
    /// Answered; what is still on its way is dropped when it comes.
    Answered,
}

/// A fetch under way.
#[derive(Debug)]
pub(crate) struct Fetch {
    spec: FetchSpec,
    /// The member of its own column. A late read may come back when the segment's layout is gone.
    member: MemberId,
    stage: Stage,
    /// Since when the read of its own column has been on its way, if it is.
    direct_since_ns: Option<u64>,
    /// Since when it is verified by a worker, or had from other columns.
    since_ns: Option<u64>,
    /// Its member held the segment when it began: what is not right there then is damage, and not what a rebuild will bring.
    was_held: bool,
    /// Just enough other columns were read, not all there are.
    around: bool,
    /// And its own was not.
    passed_over: bool,
    /// Columns whose reads are on their way, as a bit mask; rows that are read singly do not count.
    asked: u64,
    /// Reads and jobs on their way. As long as there are any its number is not used again.
    under_way: u32,
    serial: u64,
}

impl Engine {
    /// Starts a fetch.
    pub(crate) fn start_fetch(&mut self, spec: FetchSpec, out: &mut Outbox) {
        self.segments.get_mut(spec.segment).pins += 1;
        let (member, _) = self.zones.locate(spec.segment).address(spec.row, spec.column);
        let (segment_of, is_of_user, singly) = (spec.segment, spec.is_of_user(), spec.singly);
        let serial = self.slow.next_serial();
        let was_held = self.holds(member, segment_of);
        let fetch = self.fetches.insert(Fetch {
            spec,
            member,
            stage: Stage::Direct,
            direct_since_ns: None,
            since_ns: None,
            was_held,
            around: false,
            passed_over: false,
            asked: 0,
            under_way: 0,
            serial,
        });
        if singly {
            return self.gather_singly(fetch, out);
        }
        if !was_held {
            return self.gather(fetch, None, out);
        }
        let is_watched = is_of_user && self.superblock.properties.read_latency_bound_ms > 0;
        if is_watched && self.slow.owes_much(member) && self.can_do_without_own(fetch) {
            return self.pass_over(fetch, member, out);
        }
        self.read_own(fetch, out);
        if is_watched {
            self.slow.begin(Watch { fetch, serial, member, since_ns: self.now_ns, was_late: false });
            if self.slow.is_slow(member) && self.can_do_without_own(fetch) && self.slow.take_budget() {
                self.go_around(fetch, out);
            }
        }
    }

    /// Reads the fetch's own column.
    fn read_own(&mut self, at: u32, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        fetch.direct_since_ns = Some(self.now_ns);
        fetch.under_way += 1;
        fetch.asked |= 1 << fetch.spec.column.0;
        let (column, bytes) = (fetch.spec.column, fetch.spec.rows as usize * BLOCK_SIZE);
        let (member, offset) = self.zones.locate(fetch.spec.segment).address(fetch.spec.row, column);
        let buf = self.buffers.get(bytes);
        self.send(member, MemberOp::Read { offset, buf }, Purpose::Fetch { fetch: at, column: column.0, row: None }, out);
    }

    /// Asks others only: the member owes too much.
    fn pass_over(&mut self, at: u32, member: MemberId, out: &mut Outbox) {
        self.slow.pass_over(member);
        self.members.list[member.index()].stats.slow_reads += 1;
        if let Some(fetch) = self.fetches.get_mut(at) {
            fetch.passed_over = true;
        }
        self.go_around(at, out);
    }

    /// A read of a fetch, of a column or a row of it, has ended. No bytes: it failed.
    pub(crate) fn fetch_read_done(&mut self, at: u32, column: u8, row: Option<u8>, member: MemberId, buf: Option<Buf>, out: &mut Outbox) {
        let now_ns = self.now_ns;
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        fetch.under_way -= 1;
        if let Some(row) = row {
            return self.single_read_done(at, column, row, buf, out);
        }
        fetch.asked &= !(1 << column);
        if matches!(fetch.stage, Stage::Answered) {
            self.slow.pay(member);
        }
        if column == fetch.spec.column.0 {
            let since_ns = fetch.direct_since_ns.take().unwrap_or(now_ns);
            if fetch.spec.is_of_user() {
                let member = fetch.member;
                self.slow.end(member, since_ns, now_ns);
                self.stages.record(Times::ReadMember, since_ns, now_ns);
            }
            return self.direct_read_done(at, buf, out);
        }
        match &mut fetch.stage {
            Stage::Gathering { columns, left, .. } => {
                columns[usize::from(column)] = buf;
                *left -= 1;
                if *left == 0 {
                    self.rebuild(at, out);
                }
            }
            _ => self.drop_answered(at),
        }
    }

    /// The read of the fetch's own column has ended, in time or late.
    fn direct_read_done(&mut self, at: u32, buf: Option<Buf>, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        match &mut fetch.stage {
            Stage::Direct => match buf {
                None => self.gather(at, None, out),
                Some(buf) => self.check(at, buf.freeze(), out),
            },
            Stage::Gathering { .. } | Stage::Rebuilding => {
                // Others have been asked meanwhile: the first right answer counts. It is looked at here, few reads come this way.
                let Some(bytes) = buf.map(Buf::freeze) else { return };
                if verify(&bytes, &fetch.spec.pieces) {
                    self.finish_fetch(at, Some(bytes), out);
                } else if let Stage::Gathering { own, .. } = &mut fetch.stage {
                    *own = Some(bytes);
                }
            }
            Stage::Verifying(_) | Stage::Answered => self.drop_answered(at),
        }
    }

    /// Frees the number of a fetch that has been answered when nothing of it is on its way any more.
    fn drop_answered(&mut self, at: u32) {
        if self.fetches.get_mut(at).is_some_and(|fetch| fetch.under_way == 0 && matches!(fetch.stage, Stage::Answered)) {
            self.fetches.remove(at);
        }
    }

    /// True if a user waits for it.
    pub(crate) fn is_fetch_of_user(&self, at: u32) -> bool {
        self.fetches.get(at).is_some_and(|fetch| fetch.spec.is_of_user())
    }

    /// True if the read is still on its way to its member.
    pub(crate) fn is_waiting(&self, watch: &Watch) -> bool {
        self.fetches.get(watch.fetch).is_some_and(|fetch| fetch.serial == watch.serial && fetch.direct_since_ns.is_some())
    }

    /// The columns that are read around the fetch's own: just enough, of members that are not slow if there are any, and of none that owes too much.
    /// `None`: too few are there.
    fn others_of(&self, at: u32) -> Option<Vec<u8>> {
        let spec = &self.fetches.get(at)?.spec;
        let (shape, location) = (self.zones.shape(spec.segment), self.zones.locate(spec.segment));
        let needed = match shape.code {
            Code::None => return None,
            Code::Copies => 1,
            Code::P | Code::PQ => usize::from(shape.data),
        };
        let member = |c: u8| location.address(spec.row, Column(c)).0;
        let related = |c: &u8| *c != spec.column.0 && (shape.code != Code::Copies || c % shape.data == spec.column.0 % shape.data);
        let mut others: Vec<u8> =
            (0..shape.width).filter(related).filter(|c| self.holds(member(*c), spec.segment) && !self.slow.owes_much(member(*c))).collect();
        // Stable: of equally quick members data comes before redundancy, P before Q.
        others.sort_by_key(|c| self.slow.is_slow(member(*c)));
        others.truncate(needed);
        (others.len() == needed).then_some(others)
    }

    /// True if the fetch only waits for its own column.
    pub(crate) fn waits_for_own(&self, at: u32) -> bool {
        self.fetches.get(at).is_some_and(|fetch| matches!(fetch.stage, Stage::Direct) && fetch.direct_since_ns.is_some())
    }

    /// True if its bytes can be had of others.
    pub(crate) fn can_do_without_own(&self, at: u32) -> bool {
        self.others_of(at).is_some()
    }

    /// Asks others while the fetch's own column is on its way.
    pub(crate) fn go_around(&mut self, at: u32, out: &mut Outbox) {
        if let Some(others) = self.others_of(at) {
            if let Some(fetch) = self.fetches.get_mut(at) {
                fetch.around = true;
            }
            self.gather_columns(at, None, &others, out);
        }
    }

    fn check(&mut self, at: u32, bytes: Payload, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let pieces = &fetch.spec.pieces;
        if pieces.is_empty() {
            return self.finish_fetch(at, Some(bytes), out);
        }
        if pieces.len() <= INLINE_VERIFY_BLOCKS {
            if verify(&bytes, pieces) {
                return self.finish_fetch(at, Some(bytes), out);
            }
            return self.gather(at, Some(bytes), out);
        }
        let work = VerifyWork { fetch: at, blocks: bytes.clone(), pieces: pieces.clone(), good: false };
        fetch.stage = Stage::Verifying(bytes);
        fetch.since_ns = Some(self.now_ns);
        out.jobs.push(Job(Work::Verify(Box::new(work))));
    }

    /// A verify job has run.
    pub(crate) fn fetch_verified(&mut self, at: u32, good: bool, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let Stage::Verifying(bytes) = std::mem::replace(&mut fetch.stage, Stage::Direct) else { return };
        if let Some(since_ns) = fetch.since_ns.take().filter(|_| fetch.spec.is_of_user()) {
            self.stages.record(Times::ReadVerify, since_ns, self.now_ns);
        }
        if good { self.finish_fetch(at, Some(bytes), out) } else { self.gather(at, Some(bytes), out) }
    }

    /// Reads the same rows of all other columns.
    fn gather(&mut self, at: u32, own: Option<Payload>, out: &mut Outbox) {
        let Some(spec) = self.fetches.get(at).map(|fetch| &fetch.spec) else { return };
        let (shape, location, wanted) = (self.zones.shape(spec.segment), self.zones.locate(spec.segment), spec.column.0);
        let related = |c: &u8| *c != wanted && (shape.code != Code::Copies || c % shape.data == wanted % shape.data);
        let held = |c: &u8| self.holds(location.address(spec.row, Column(*c)).0, spec.segment);
        let others: Vec<u8> = if shape.code == Code::None { Vec::new() } else { (0..shape.width).filter(related).filter(held).collect() };
        if others.is_empty() {
            return self.finish_fetch(at, None, out);
        }
        self.gather_columns(at, own, &others, out);
    }

    fn gather_columns(&mut self, at: u32, own: Option<Payload>, others: &[u8], out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let (segment, row, bytes) = (fetch.spec.segment, fetch.spec.row, fetch.spec.rows as usize * BLOCK_SIZE);
        let columns = (0..self.zones.shape(segment).width).map(|_| None).collect();
        fetch.stage = Stage::Gathering { columns, own, lost: Vec::new(), left: others.len() as u32 };
        fetch.under_way += others.len() as u32;
        fetch.asked |= others.iter().fold(0, |mask, column| mask | 1 << column);
        fetch.since_ns = fetch.since_ns.or(Some(self.now_ns));
        for column in others {
            let (member, offset) = self.zones.locate(segment).address(row, Column(*column));
            let buf = self.buffers.get(bytes);
            self.send(member, MemberOp::Read { offset, buf }, Purpose::Fetch { fetch: at, column: *column, row: None }, out);
        }
    }

    /// Reads each row of each column by itself: a column of which one row can not be read has others all the same.
    fn gather_singly(&mut self, at: u32, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let (segment, first, rows, wanted) = (fetch.spec.segment, fetch.spec.row, fetch.spec.rows, fetch.spec.column.0);
        let (shape, location) = (*self.zones.shape(segment), self.zones.locate(segment));
        let related = |c: &u8| match shape.code {
            Code::None => *c == wanted,
            Code::Copies => c % shape.data == wanted % shape.data,
            Code::P | Code::PQ => true,
        };
        let columns: Vec<u8> = (0..shape.width).filter(related).filter(|c| self.holds(location.address(first, Column(*c)).0, segment)).collect();
        if columns.is_empty() {
            return self.finish_fetch(at, None, out);
        }
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let nothing = (0..shape.width).map(|_| None).collect();
        fetch.stage = Stage::Gathering { columns: nothing, own: None, lost: Vec::new(), left: columns.len() as u32 * rows };
        fetch.under_way += columns.len() as u32 * rows;
        fetch.since_ns = fetch.since_ns.or(Some(self.now_ns));
        for (column, row) in columns.into_iter().flat_map(|c| (0..rows).map(move |row| (c, row))) {
            let (member, offset) = self.zones.locate(segment).address(first + row, Column(column));
            let buf = self.buffers.get(BLOCK_SIZE);
            self.send(member, MemberOp::Read { offset, buf }, Purpose::Fetch { fetch: at, column, row: Some(row as u8) }, out);
        }
    }

    /// A row of a column has been read by itself, or not.
    fn single_read_done(&mut self, at: u32, column: u8, row: u8, buf: Option<Buf>, out: &mut Outbox) {
        let buffers = self.buffers.clone();
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let bytes = fetch.spec.rows as usize * BLOCK_SIZE;
        let wanted = usize::from(fetch.spec.column.0);
        let Stage::Gathering { columns, own, lost, left } = &mut fetch.stage else { return self.drop_answered(at) };
        match buf {
            Some(buf) => {
                let whole = columns[usize::from(column)].get_or_insert_with(|| buffers.zeroed(bytes));
                whole[usize::from(row) * BLOCK_SIZE..][..BLOCK_SIZE].copy_from_slice(&buf);
            }
            None => lost.push((column, row)),
        }
        *left -= 1;
        if *left == 0 {
            *own = columns[wanted].take().map(Buf::freeze);
            self.rebuild(at, out);
        }
    }

    /// What a user gets of a stored block: itself, or what it was before it was packed. `None` if it does not unpack (the software that wrote it was
    /// at fault: its checksum is right).
    pub(crate) fn unpacked(&self, bytes: Payload, packed: Option<Piece>) -> Option<Payload> {
        let Some(piece) = packed else { return Some(bytes) };
        let mut block = self.buffers.get(BLOCK_SIZE);
        self.codecs.unpack_stored(&bytes[piece.range()], &mut block).then(|| block.freeze())
    }

    fn rebuild(&mut self, at: u32, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        let Stage::Gathering { columns, own, lost, .. } = std::mem::replace(&mut fetch.stage, Stage::Rebuilding) else { return };
        fetch.under_way += 1;
        let shape = *self.zones.shape(fetch.spec.segment);
        let (column, rows, pieces) = (fetch.spec.column, fetch.spec.rows, fetch.spec.pieces.clone());
        let work = RebuildWork { fetch: at, shape, column, columns, own, lost, rows, pieces, buffers: self.buffers.clone(), rebuilt: None };
        out.jobs.push(Job(Work::Rebuild(Box::new(work))));
    }

    /// A rebuild job has run.
    pub(crate) fn fetch_rebuilt(&mut self, work: RebuildWork, out: &mut Outbox) {
        let at = work.fetch;
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        fetch.under_way -= 1;
        if matches!(fetch.stage, Stage::Answered) {
            return self.drop_answered(at);
        }
        let (segment, goal) = (fetch.spec.segment, fetch.spec.goal);
        let (member, _) = self.zones.locate(segment).address(fetch.spec.row, fetch.spec.column);
        let was_passed_over = std::mem::take(&mut fetch.passed_over);
        if work.rebuilt.is_none() && std::mem::take(&mut fetch.around) {
            // Its own column may still be had; if not, everything there is will be tried. If it is kept waiting, others may be there by then.
            let (serial, is_coming) = (fetch.serial, fetch.direct_since_ns.is_some());
            fetch.stage = Stage::Direct;
            if was_passed_over && self.holds(member, segment) {
                self.read_own(at, out);
            } else if !is_coming {
                return self.gather(at, work.own, out);
            }
            return self.slow.watch_again(Watch { fetch: at, serial, member, since_ns: self.now_ns, was_late: true });
        }
        // A column that is only late, or was not asked for, is not known to be wrong.
        let is_known = fetch.direct_since_ns.is_none() && fetch.was_held && !was_passed_over;
        if is_known && work.rebuilt.is_some() && !work.pieces.is_empty() && self.holds(member, segment) {
            self.counters.repaired_reads += 1;
            self.note_repair(member, goal, &work.pieces, work.rebuilt.as_ref(), out);
        }
        self.finish_fetch(at, work.rebuilt, out);
    }

    fn finish_fetch(&mut self, at: u32, bytes: Option<Payload>, out: &mut Outbox) {
        let Some(fetch) = self.fetches.get_mut(at) else { return };
        fetch.stage = Stage::Answered;
        if let Some(since_ns) = fetch.since_ns.take().filter(|_| fetch.spec.is_of_user()) {
            self.stages.record(Times::ReadRebuild, since_ns, self.now_ns);
        }
        let (segment, goal, row, mut asked) = (fetch.spec.segment, fetch.spec.goal, fetch.spec.row, fetch.asked);
        let further = if bytes.is_none() { fetch.spec.further() } else { None };
        let spec = further.map(|further| (further, fetch.spec.clone()));
        self.drop_answered(at);
        while asked > 0 {
            let (member, _) = self.zones.locate(segment).address(row, Column(asked.trailing_zeros() as u8));
            self.slow.owe(member);
            asked &= asked - 1;
        }
        if let Some((further, spec)) = spec {
            match further {
                Further::Split => self.split_fetch(spec, out),
                Further::Singly => self.start_fetch(FetchSpec { singly: true, ..spec }, out),
            }
            // Only now: what goes on has it pinned.
            self.segments.unpin(segment);
            return;
        }
        self.segments.unpin(segment);
        self.fetched(goal, bytes.ok_or_else(|| vec![0]), out);
    }

    /// Hands over what was fetched.
    fn fetched(&mut self, goal: FetchGoal, fetched: Fetched, out: &mut Outbox) {
        match goal {
            FetchGoal::Read { read, part } => self.read_part(read, part, fetched, out),
            FetchGoal::Edge { write, edge, packed } => {
                let bytes = fetched.ok().and_then(|bytes| self.unpacked(bytes, packed));
                self.edge_read(write, edge, bytes);
            }
            FetchGoal::Compare { at } => self.compared(at, fetched.ok()),
            FetchGoal::IndexPage { at, .. } => self.index_page_read(at, fetched.ok()),
            FetchGoal::CleanEnd { victim, batch_row, part } => self.clean_end_read(victim, batch_row, part, fetched.ok(), out),
            FetchGoal::CleanRun { victim, run } => self.clean_run_read(victim, run, fetched.ok(), out),
            FetchGoal::Doubt { doubt } => self.doubt_read(doubt, fetched.ok(), out),
            FetchGoal::Row { split, row } => self.row_fetched(split, row, fetched.ok(), out),
        }
    }

    /// A block can not be read and not be rebuilt.
    pub(crate) fn note_lost(&mut self, key: crate::pending::BlockKey, out: &mut Outbox) {
        if key.volume() == windrow_units::VolumeId::INDEX {
            // Nobody's data.
            return;
        }
        out.notices.push(Notice::Unrecoverable { volume: key.volume(), lba: key.lba().0 });
        self.note_lost_content(key);
    }
}
