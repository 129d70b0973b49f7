//! Reconstruction of one column from others.
//!
//! 1. Request as many other columns as the code needs (one copy, or all data columns), from fast
//!    members if there are enough of them.
//! 2. When enough have arrived, a job reconstructs the column, row by row with all possible error
//!    patterns. The first verified bytes are the answer, even those of the late column itself.
//! 3. If a column fails, a reconstruction is wrong, or some columns are late (`store/hedge.rs`),
//!    further columns are requested, each one once.
//! 4. When nothing is in flight and nothing is left to request, failed columns are requested once
//!    more. A transient failure may be all that is left when members have failed meanwhile.
//! 5. Then the fetch fails.
//!
//! A member with too many outstanding late reads is asked only if nothing else is in flight: it may
//! be the only one that has the bytes.

use super::{Ended, Fetch, FetchGoal, Stage};
use crate::base::piece::Piece;
use crate::store::events::Outbox;
use crate::store::hedge::Watch;
use crate::store::jobs::{Job, RebuildWork, Work};
use crate::store::{Reads, Store};
use windrow_geometry::{Code, Column, Shape};
use windrow_io::{Buf, Payload};

/// Requested columns of a fetch, and their results.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Whole columns that were requested, as a bit mask; its own column included.
    asked: u64,
    /// Requested columns in flight.
    coming: u64,
    /// Other columns that have arrived; empty as long as there are none, or while a job has them.
    pub(super) columns: Vec<Option<Buf>>,
    /// Bytes read of the column itself that are not correct as a whole.
    pub(super) own: Option<Payload>,
    /// Columns and rows that were unreadable in single-row reads.
    pub(super) lost: Vec<(u8, u8)>,
    /// True if something has arrived since the last job.
    is_new: bool,
    /// True if failed columns have been requested once more.
    again: bool,
}

impl Gathered {
    pub(super) fn ask(&mut self, column: Column) {
        self.asked |= 1 << column.0;
        self.coming |= 1 << column.0;
    }

    pub(super) fn ended(&mut self, column: Column) {
        self.coming &= !(1 << column.0);
    }

    /// Columns in flight.
    pub(super) fn coming(&self) -> impl Iterator<Item = Column> + use<> {
        let coming = self.coming;
        (0..u64::BITS as u8)
            .filter(move |column| coming >> column & 1 == 1)
            .map(Column)
    }

    fn is_asked(&self, column: Column) -> bool {
        self.asked >> column.0 & 1 == 1
    }

    /// Permits one more request of failed columns; false if that was done before.
    fn ask_again(&mut self) -> bool {
        let come = (0u8..)
            .zip(&self.columns)
            .filter(|(_, column)| column.is_some())
            .fold(0, |come, (at, _)| come | 1 << at);
        self.asked = self.coming | come;
        !std::mem::replace(&mut self.again, true)
    }

    fn put(&mut self, width: u8, column: u8, buf: Buf) {
        self.columns.resize_with(usize::from(width), || None);
        self.columns[usize::from(column)] = Some(buf);
        self.is_new = true;
    }

    /// Number of other columns that have arrived.
    fn come(&self) -> usize {
        self.columns.iter().flatten().count()
    }

    /// Takes back the columns of a job.
    fn give_back(&mut self, columns: Vec<Option<Buf>>) {
        if self.columns.is_empty() {
            self.columns = columns;
            return;
        }
        for (column, back) in self.columns.iter_mut().zip(columns) {
            *column = column.take().or(back);
        }
    }
}

/// Number of other columns needed to reconstruct one.
fn needed(shape: &Shape) -> usize {
    match shape.code {
        Code::None => 0,
        Code::Copies => 1,
        Code::P | Code::PQ => usize::from(shape.data),
    }
}

/// Blocks of a column with a piece whose checksum is wrong.
fn count_wrong(bytes: &[u8], pieces: &[Piece]) -> u64 {
    let wrong = pieces.iter().filter(|piece| !piece.is_in(bytes));
    let rows: std::collections::BTreeSet<u32> = wrong
        .flat_map(|piece| piece.rows().0..=piece.rows().1)
        .collect();
    rows.len() as u64
}

/// True if a column helps to reconstruct another one.
pub(super) fn is_related(shape: &Shape, column: u8, wanted: u8) -> bool {
    match shape.code {
        Code::None => column == wanted,
        Code::Copies => column % shape.data == wanted % shape.data,
        Code::P | Code::PQ => true,
    }
}

impl Reads {
    /// True if the fetch is not answered yet, or it is not known yet if its own column is late.
    pub(crate) fn is_watched(&self, watch: &Watch) -> bool {
        let is_open = |fetch: &Fetch| {
            !matches!(fetch.stage, Stage::Answered)
                || fetch.direct_since_ns.is_some() && !watch.was_late
        };
        self.fetches
            .get(watch.fetch)
            .is_some_and(|fetch| fetch.serial == watch.serial && is_open(fetch))
    }

    /// True if the read of its own column is in flight.
    pub(crate) fn waits_for_own(&self, at: u32) -> bool {
        self.fetches
            .get(at)
            .is_some_and(|fetch| fetch.direct_since_ns.is_some())
    }
}

impl Store {
    /// Columns that a fetch could still request, the best first: of fast members before slow ones,
    /// and these before members with too many outstanding late reads; its own before others, data
    /// before redundancy, P before Q. Also the number of those without too many outstanding late
    /// reads.
    fn askable(&self, fetch: &Fetch) -> (Vec<Column>, usize) {
        let spec = &fetch.spec;
        let (shape, location) = (
            self.pool.zones.shape(spec.segment),
            self.pool.zones.locate(spec.segment),
        );
        let member = |column: Column| location.address(spec.row, column).0;
        let owes = |column: Column| self.reads.slow.has_many_outstanding(member(column));
        let mut columns: Vec<Column> = (0..shape.width)
            .filter(|column| is_related(shape, *column, spec.column.0))
            .map(Column)
            .filter(|column| {
                !fetch.gathered.is_asked(*column) && self.holds(member(*column), spec.segment)
            })
            .collect();
        columns.sort_by_key(|column| {
            (
                owes(*column),
                *column != spec.column,
                self.reads.slow.is_slow(member(*column)),
            )
        });
        let ready = columns.iter().filter(|column| !owes(**column)).count();
        (columns, ready)
    }

    /// True if a late fetch could do without the data that it waits for.
    pub(crate) fn can_ask_more(&self, at: u32) -> bool {
        let Some(fetch) = self
            .reads
            .fetches
            .get(at)
            .filter(|fetch| matches!(fetch.stage, Stage::Direct | Stage::Gathering))
        else {
            return false;
        };
        let (columns, ready) = self.askable(fetch);
        let lacking =
            needed(self.pool.zones.shape(fetch.spec.segment)).saturating_sub(fetch.gathered.come());
        ready > 0 && (columns[0] == fetch.spec.column || ready >= lacking)
    }

    /// Requests the missing columns as if nothing were in flight.
    pub(crate) fn ask_more(&mut self, at: u32, out: &mut Outbox) {
        let Some(fetch) = self.reads.fetches.get_mut(at) else {
            return;
        };
        fetch.stage = Stage::Gathering;
        fetch.since_ns = fetch.since_ns.or(Some(self.pool.now_ns));
        let lacking =
            needed(self.pool.zones.shape(fetch.spec.segment)).saturating_sub(fetch.gathered.come());
        self.ask_others(at, lacking.max(1), out);
    }

    /// Handles its own column when it failed or is wrong.
    pub(super) fn own_is_bad(
        &mut self,
        at: u32,
        bytes: Option<Payload>,
        out: &mut Outbox,
    ) -> Ended {
        let fetch = self.reads.fetches.get_mut(at)?;
        fetch.own_is_bad = true;
        if let Some(bytes) = &bytes {
            // Re-read rows, and blocks of a batch that a scrub has verified, are counted already.
            let is_again = match fetch.spec.goal {
                FetchGoal::Row { .. } => true,
                FetchGoal::Doubt { by_map, .. } => !by_map,
                _ => fetch.spec.singly,
            };
            let wrong = if is_again {
                0
            } else {
                count_wrong(bytes, &fetch.spec.pieces)
            };
            self.drives.members.note_wrong_blocks(fetch.member, wrong);
        }
        fetch.gathered.is_new |= bytes.is_some();
        fetch.gathered.own = bytes;
        self.gather(at, out)
    }

    /// Handles another column when it has arrived or failed.
    pub(super) fn other_read_done(
        &mut self,
        at: u32,
        column: u8,
        buf: Option<Buf>,
        out: &mut Outbox,
    ) -> Ended {
        let fetch = self.reads.fetches.get_mut(at)?;
        if matches!(fetch.stage, Stage::Answered) {
            self.reads.drop_answered(at);
            return None;
        }
        let width = self.pool.zones.shape(fetch.spec.segment).width;
        if let Some(buf) = buf {
            fetch.gathered.put(width, column, buf);
        }
        self.gather(at, out)
    }

    /// Advances the fetch: reconstructs if there is enough, requests missing columns, waits, or
    /// fails.
    pub(super) fn gather(&mut self, at: u32, out: &mut Outbox) -> Ended {
        let fetch = self.reads.fetches.get_mut(at)?;
        match fetch.stage {
            Stage::Direct | Stage::Verifying(_) => fetch.stage = Stage::Gathering,
            Stage::Gathering => {}
            // Continued when the job is back.
            Stage::Rebuilding | Stage::Singly(_) | Stage::Answered => return None,
        }
        fetch.since_ns = fetch.since_ns.or(Some(self.pool.now_ns));
        let needed = needed(self.pool.zones.shape(fetch.spec.segment));
        let (come, is_new, own) = (
            fetch.gathered.come(),
            fetch.gathered.is_new,
            fetch.spec.column,
        );
        if come >= needed && come > 0 && is_new {
            self.rebuild(at, out);
            return None;
        }
        let coming = fetch
            .gathered
            .coming()
            .filter(|column| *column != own)
            .count();
        // Enough has arrived and is wrong: any further column may help.
        let lacking = if come >= needed {
            usize::MAX
        } else {
            needed.saturating_sub(come + coming)
        };
        self.ask_others(at, lacking, out);
        let fetch = self.reads.fetches.get_mut(at)?;
        if fetch.gathered.coming > 0 {
            return None;
        }
        if is_new {
            // Too few, but some of its own rows may be correct.
            self.rebuild(at, out);
            return None;
        }
        // A follow-up attempt requests it again.
        if fetch.spec.further().is_none() && fetch.gathered.ask_again() {
            self.ask_others(at, usize::MAX, out);
            if self
                .reads
                .fetches
                .get(at)
                .is_some_and(|fetch| fetch.gathered.coming > 0)
            {
                return None;
            }
        }
        self.finish_fetch(at, None, out)
    }

    /// Requests at most `most` columns. Members with too many outstanding late reads are asked only
    /// if nothing else is in flight.
    fn ask_others(&mut self, at: u32, most: usize, out: &mut Outbox) {
        let Some(fetch) = self.reads.fetches.get(at) else {
            return;
        };
        let (columns, ready) = self.askable(fetch);
        let is_waiting = fetch.gathered.coming > 0;
        let asked = most.min(if ready > 0 || is_waiting {
            ready
        } else {
            columns.len()
        });
        for column in columns.into_iter().take(asked) {
            if self
                .reads
                .fetches
                .get(at)
                .is_some_and(|fetch| fetch.spec.column == column)
            {
                self.read_own(at, out);
            } else {
                self.read_column(at, column, out);
            }
        }
    }

    pub(super) fn rebuild(&mut self, at: u32, out: &mut Outbox) {
        let Some(fetch) = self.reads.fetches.get_mut(at) else {
            return;
        };
        fetch.stage = Stage::Rebuilding;
        fetch.under_way += 1;
        let shape = *self.pool.zones.shape(fetch.spec.segment);
        let (column, rows, pieces) = (
            fetch.spec.column,
            fetch.spec.rows,
            fetch.spec.pieces.clone(),
        );
        let gathered = &mut fetch.gathered;
        gathered.is_new = false;
        gathered
            .columns
            .resize_with(usize::from(shape.width), || None);
        let (columns, own, lost) = (
            std::mem::take(&mut gathered.columns),
            gathered.own.clone(),
            gathered.lost.clone(),
        );
        let work = RebuildWork {
            fetch: at,
            shape,
            column,
            columns,
            own,
            lost,
            rows,
            pieces,
            buffers: self.memory.buffers.clone(),
            rebuilt: None,
        };
        out.jobs.push(Job(Work::Rebuild(Box::new(work))));
    }

    /// Handles a reconstruction job.
    pub(crate) fn fetch_rebuilt(&mut self, work: RebuildWork, out: &mut Outbox) -> Ended {
        let at = work.fetch;
        let fetch = self.reads.fetches.get_mut(at)?;
        fetch.under_way -= 1;
        if matches!(fetch.stage, Stage::Answered) {
            self.reads.drop_answered(at);
            return None;
        }
        if work.rebuilt.is_none() && !fetch.spec.singly {
            fetch.stage = Stage::Gathering;
            fetch.gathered.give_back(work.columns);
            return self.gather(at, out);
        }
        let (segment, goal, member) = (fetch.spec.segment, fetch.spec.goal, fetch.member);
        // A column that is only late, or was not requested, is not known to be wrong; nor is one of
        // a device that came since.
        let is_same = fetch.came == self.drives.members.list[member.index()].came;
        if fetch.own_is_bad
            && is_same
            && work.rebuilt.is_some()
            && !work.pieces.is_empty()
            && self.holds(member, segment)
        {
            self.observe.counters.repaired_reads += 1;
            self.reads
                .note_repaired(member, goal, work.pieces, work.rebuilt.clone());
        }
        self.finish_fetch(at, work.rebuilt, out)
    }
}
