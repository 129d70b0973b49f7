//! Fetch: verified bytes of a run of rows of one column, reconstructed from the other columns if
//! necessary.
//!
//! 1. Read the run from its member.
//! 2. Compare with the checksums (small runs here, others in a job).
//! 3. If the member is gone, the read fails or a checksum is wrong: read the same rows of other
//!    columns and reconstruct (`store/fetch/gather.rs`).
//! 4. A run that is unreadable as a whole is fetched row by row (`store/fetch/split.rs`).
//! 5. A late read is hedged (`hedge.rs`): further columns are read meanwhile, and the first
//!    verified result counts. A member with too many outstanding late reads is skipped: others are
//!    read instead.
//! 6. Data that cannot be verified is an error, never bytes. The segment is pinned meanwhile, so
//!    that it is not reused during the read.

use crate::base::limits::INLINE_VERIFY_BLOCKS;
use crate::base::piece::Piece;
use crate::base::stages::Stage as Times;
use crate::store::events::Outbox;
use crate::store::hedge::Watch;
use crate::store::jobs::{ChecksumWork, Job, Work, checksums_agree};
use crate::store::member::Purpose;
use crate::store::{Reads, Store};
use gather::Gathered;
use windrow_geometry::Column;
use windrow_io::{Buf, MemberOp, Payload};
use windrow_types::{BLOCK_SIZE, MemberId, SegmentId};

mod gather;
mod split;

pub(crate) use split::Split;

/// Blocks that were reconstructed although their member is online.
#[derive(Debug)]
pub(crate) struct Repaired {
    pub(crate) member: MemberId,
    /// Origin of the whole run, and the offset of the first of the blocks in it.
    pub(crate) goal: FetchGoal,
    pub(crate) number: u32,
    pub(crate) pieces: Vec<Piece>,
    /// The rows that contain them.
    pub(crate) bytes: Payload,
}

/// A fetch that has ended: where its result goes, and the result.
pub(crate) type Ended = Option<(FetchGoal, Fetched)>;

/// Origin of a fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FetchGoal {
    /// Part `part` of read request `read`.
    Read { read: u32, part: u32 },
    /// Edge `edge` of a read-modify-write, which may be compressed.
    Edge {
        write: u32,
        edge: u32,
        compressed: Option<Piece>,
    },
    /// Shared content that blocks are compared with.
    Compare { at: u32 },
    /// A page of the deduplication index; `urgent`: written blocks wait for it.
    IndexPage { at: u32, urgent: bool },
    /// Header or footer of a batch being cleaned: no checksum is known. The tail, or the part of
    /// the head in column `part`.
    CleanEnd {
        victim: u32,
        batch_row: u32,
        part: Option<u8>,
    },
    /// Live blocks of a batch being cleaned.
    CleanRun { victim: u32, run: u32 },
    /// Block `doubt` of the live blocks in doubt; `by_map`: its batch has unreadable tables.
    Doubt { doubt: u32, by_map: bool },
    /// Row or piece `row` of a run that is fetched row by row.
    Row { split: u32, row: u32 },
}

/// The bytes, or the numbers of the unreadable rows or pieces of the run.
pub(crate) type Fetched = Result<Payload, Vec<u32>>;

/// Description of a fetch.
#[derive(Clone, Debug)]
pub(crate) struct FetchSpec {
    pub(crate) segment: SegmentId,
    pub(crate) column: Column,
    pub(crate) row: u32,
    pub(crate) rows: u32,
    /// Pieces wanted of these rows, in ascending order; empty: all rows, without known checksums:
    /// the caller verifies.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) goal: FetchGoal,
    /// All columns are read row by row; a piece in two rows would be unreadable otherwise.
    pub(crate) singly: bool,
}

impl FetchSpec {
    /// True if a client waits for it, and the result can be verified here.
    fn is_of_user(&self) -> bool {
        let is_users = matches!(
            self.goal,
            FetchGoal::Read { .. }
                | FetchGoal::Edge { .. }
                | FetchGoal::Row { .. }
                | FetchGoal::Compare { .. }
        );
        (is_users || matches!(self.goal, FetchGoal::IndexPage { urgent: true, .. }))
            && !self.pieces.is_empty()
    }
}

/// Next attempt for a run that is unreadable as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Further {
    /// Its rows or pieces one by one.
    Split,
    /// Each of its columns row by row.
    Singly,
}

impl FetchSpec {
    fn further(&self) -> Option<Further> {
        // Cleaning itself retries the live blocks of a run one by one.
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
    /// Waits for its own column only.
    Direct,
    Verifying(Payload),
    /// Waits for other columns, and possibly for its own.
    Gathering,
    /// Waits for this number of single-row reads.
    Singly(u32),
    Rebuilding,
    /// Answered; data still in flight is dropped on arrival.
    Answered,
}

/// A fetch in progress.
#[derive(Debug)]
pub(crate) struct Fetch {
    spec: FetchSpec,
    /// Member of its own column. Stored, as a late read may return when the segment's layout is
    /// gone.
    member: MemberId,
    stage: Stage,
    gathered: Gathered,
    /// Time at which the read of its own column was sent, while it is in flight.
    direct_since_ns: Option<u64>,
    /// Time since which a worker verifies it, or other columns are read.
    since_ns: Option<u64>,
    /// Its own column was read from a member that held the segment, and failed or was wrong. That
    /// is damage, and not data that a rebuild is yet to write.
    own_is_bad: bool,
    /// Value of `came` of that member when it was asked.
    came: u32,
    /// Reads and jobs in flight. Its number is not reused before they have ended.
    under_way: u32,
    serial: u64,
}

impl Reads {
    /// Frees the number of an answered fetch when nothing of it is in flight any more.
    pub(crate) fn drop_answered(&mut self, at: u32) {
        if self
            .fetches
            .get_mut(at)
            .is_some_and(|fetch| fetch.under_way == 0 && matches!(fetch.stage, Stage::Answered))
        {
            self.fetches.remove(at);
        }
    }

    /// True if no request waits for a fetch. Reads that a member never answers stay.
    pub(crate) fn fetches_are_answered(&self) -> bool {
        self.fetches
            .iter()
            .all(|fetch| matches!(fetch.stage, Stage::Answered))
    }

    /// True if a client waits for it.
    pub(crate) fn is_fetch_of_user(&self, at: u32) -> bool {
        self.fetches
            .get(at)
            .is_some_and(|fetch| fetch.spec.is_of_user())
    }
}

impl Store {
    /// Starts a fetch.
    pub(crate) fn start_fetch(&mut self, spec: FetchSpec, out: &mut Outbox) -> Ended {
        self.segments.get_mut(spec.segment).pins += 1;
        let (member, _) = self
            .pool
            .zones
            .locate(spec.segment)
            .address(spec.row, spec.column);
        let (is_held, is_watched, singly) = (
            self.holds(member, spec.segment),
            spec.is_of_user() && !spec.singly,
            spec.singly,
        );
        let serial = self.reads.slow.next_serial();
        let fetch = self.reads.fetches.insert(Fetch {
            spec,
            member,
            stage: Stage::Direct,
            gathered: Gathered::default(),
            direct_since_ns: None,
            since_ns: None,
            own_is_bad: false,
            came: self.drives.members.list[member.index()].came,
            under_way: 0,
            serial,
        });
        if singly {
            return self.gather_singly(fetch, out);
        }
        let watch = Watch {
            fetch,
            serial,
            member,
            since_ns: self.pool.now_ns,
            was_late: false,
        };
        let is_passed_over = is_watched && is_held && self.is_passed_over(fetch, member);
        if !is_held || is_passed_over {
            if is_watched {
                self.reads.slow.watch_again(Watch {
                    was_late: true,
                    ..watch
                });
            }
            return self.gather(fetch, out);
        }
        self.read_own(fetch, out);
        if is_watched {
            self.reads.slow.begin(watch);
            if self.reads.slow.is_slow(member)
                && self.can_ask_more(fetch)
                && self.reads.slow.take_budget()
            {
                self.ask_more(fetch, out);
            }
        }
        None
    }

    /// True if too many late reads are outstanding at the member of its own column. The skipped
    /// read counts as late there.
    fn is_passed_over(&mut self, at: u32, member: MemberId) -> bool {
        let is_bounded = self.pool.superblock.properties.read_latency_bound_ms > 0;
        let is_passed_over =
            is_bounded && self.reads.slow.has_many_outstanding(member) && self.can_ask_more(at);
        if is_passed_over {
            self.reads.slow.pass_over(member);
            self.drives.members.note_late_read(member);
        }
        is_passed_over
    }

    /// Reads the fetch's own column.
    fn read_own(&mut self, at: u32, out: &mut Outbox) {
        let Some(fetch) = self.reads.fetches.get_mut(at) else {
            return;
        };
        fetch.direct_since_ns = Some(self.pool.now_ns);
        let came = self.drives.members.list[fetch.member.index()].came;
        // A previous device in its slot says nothing about this one.
        fetch.own_is_bad &= came == std::mem::replace(&mut fetch.came, came);
        let own = fetch.spec.column;
        self.read_column(at, own, out);
    }

    /// Reads one of its columns.
    fn read_column(&mut self, at: u32, column: Column, out: &mut Outbox) {
        let Some(fetch) = self.reads.fetches.get_mut(at) else {
            return;
        };
        fetch.under_way += 1;
        fetch.gathered.ask(column);
        let (member, offset) = self
            .pool
            .zones
            .locate(fetch.spec.segment)
            .address(fetch.spec.row, column);
        let buf = self
            .memory
            .buffers
            .get(fetch.spec.rows as usize * BLOCK_SIZE);
        self.send(
            member,
            MemberOp::Read { offset, buf },
            Purpose::Fetch {
                fetch: at,
                column: column.0,
                row: None,
            },
            out,
        );
    }

    /// Handles the end of a read of a fetch, of a column or a single row. No bytes: it failed.
    pub(crate) fn fetch_read_done(
        &mut self,
        at: u32,
        column: u8,
        row: Option<u8>,
        member: MemberId,
        buf: Option<Buf>,
        out: &mut Outbox,
    ) -> Ended {
        let now_ns = self.pool.now_ns;
        let fetch = self.reads.fetches.get_mut(at)?;
        fetch.under_way -= 1;
        if let Some(row) = row {
            return self.single_read_done(at, column, row, buf, out);
        }
        fetch.gathered.ended(Column(column));
        if matches!(fetch.stage, Stage::Answered) {
            self.reads.slow.pay(member);
        }
        if column != fetch.spec.column.0 {
            return self.other_read_done(at, column, buf, out);
        }
        let since_ns = fetch.direct_since_ns.take().unwrap_or(now_ns);
        if fetch.spec.is_of_user() {
            // An unanswered read of a member out of service says nothing about its speed.
            if self.drives.members.is_online(member) {
                self.reads.slow.end(member, since_ns, now_ns);
            }
            self.observe
                .stages
                .record(Times::ReadMember, since_ns, now_ns);
        }
        self.direct_read_done(at, buf, out)
    }

    /// Handles the end of the read of the fetch's own column, in time or late.
    fn direct_read_done(&mut self, at: u32, buf: Option<Buf>, out: &mut Outbox) -> Ended {
        let fetch = self.reads.fetches.get_mut(at)?;
        match (&fetch.stage, buf.map(Buf::freeze)) {
            (Stage::Direct, Some(bytes)) => self.check(at, bytes, out),
            (Stage::Direct, None) => self.own_is_bad(at, None, out),
            // Other columns were requested meanwhile: the first verified result counts. Verified
            // here, as few reads get here.
            (Stage::Gathering | Stage::Rebuilding, Some(bytes))
                if checksums_agree(&bytes, &fetch.spec.pieces) =>
            {
                self.finish_fetch(at, Some(bytes), out)
            }
            (Stage::Gathering | Stage::Rebuilding, bytes) => self.own_is_bad(at, bytes, out),
            (Stage::Verifying(_) | Stage::Singly(_) | Stage::Answered, _) => {
                self.reads.drop_answered(at);
                None
            }
        }
    }

    fn check(&mut self, at: u32, bytes: Payload, out: &mut Outbox) -> Ended {
        let fetch = self.reads.fetches.get_mut(at)?;
        let pieces = &fetch.spec.pieces;
        if pieces.is_empty() {
            return self.finish_fetch(at, Some(bytes), out);
        }
        if pieces.len() <= INLINE_VERIFY_BLOCKS {
            if checksums_agree(&bytes, pieces) {
                return self.finish_fetch(at, Some(bytes), out);
            }
            return self.own_is_bad(at, Some(bytes), out);
        }
        let work = ChecksumWork {
            fetch: at,
            blocks: bytes.clone(),
            pieces: pieces.clone(),
            good: false,
        };
        fetch.stage = Stage::Verifying(bytes);
        fetch.since_ns = Some(self.pool.now_ns);
        out.jobs.push(Job(Work::Checksum(Box::new(work))));
        None
    }

    /// Handles a verification job.
    pub(crate) fn fetch_verified(&mut self, at: u32, good: bool, out: &mut Outbox) -> Ended {
        let fetch = self.reads.fetches.get_mut(at)?;
        let Stage::Verifying(bytes) = std::mem::replace(&mut fetch.stage, Stage::Direct) else {
            return None;
        };
        if let Some(since_ns) = fetch.since_ns.take().filter(|_| fetch.spec.is_of_user()) {
            self.observe
                .stages
                .record(Times::ReadVerify, since_ns, self.pool.now_ns);
        }
        if good {
            self.finish_fetch(at, Some(bytes), out)
        } else {
            self.own_is_bad(at, Some(bytes), out)
        }
    }

    fn finish_fetch(&mut self, at: u32, bytes: Option<Payload>, out: &mut Outbox) -> Ended {
        let fetch = self.reads.fetches.get_mut(at)?;
        fetch.stage = Stage::Answered;
        if let Some(since_ns) = fetch.since_ns.take().filter(|_| fetch.spec.is_of_user()) {
            self.observe
                .stages
                .record(Times::ReadRebuild, since_ns, self.pool.now_ns);
        }
        let (segment, goal, row, coming) = (
            fetch.spec.segment,
            fetch.spec.goal,
            fetch.spec.row,
            fetch.gathered.coming(),
        );
        let further = if bytes.is_none() {
            fetch.spec.further()
        } else {
            None
        };
        let spec = further.map(|further| (further, fetch.spec.clone()));
        self.reads.drop_answered(at);
        for column in coming {
            let (member, _) = self.pool.zones.locate(segment).address(row, column);
            self.reads.slow.owe(member);
        }
        if let Some((further, spec)) = spec {
            let ended = match further {
                Further::Split => self.split_fetch(spec, out),
                Further::Singly => self.start_fetch(
                    FetchSpec {
                        singly: true,
                        ..spec
                    },
                    out,
                ),
            };
            // Only now: a follow-up fetch has pinned it.
            self.segments.unpin(segment);
            return ended;
        }
        self.segments.unpin(segment);
        self.ended(goal, bytes.ok_or_else(|| vec![0]))
    }

    /// A fetch has ended: its result, unless it was a row of a run whose others are not here yet.
    fn ended(&mut self, goal: FetchGoal, fetched: Fetched) -> Ended {
        match goal {
            FetchGoal::Row { split, row } => self.row_fetched(split, row, fetched.ok()),
            goal => Some((goal, fetched)),
        }
    }
}
