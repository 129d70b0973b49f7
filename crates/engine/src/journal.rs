//! The journal: synchronous writes are durable before their rows are full
//! (docs/internals/journal.md).
//!
//! 1 While flushes come, whatever is admitted is kept in the **backlog**, in order, until it is
//!   durable.
//! 2 A flush is served by the log, by the journal, or by both, whichever costs members less
//!   (`choice.rs`): full rows can be sealed apart from the rest.
//! 3 A **round** (`round.rs`) writes what the waiters need as records to the copies of a chunk,
//!   flushes these members, and then everything up to its last order is *promised*. One round at a
//!   time; what comes meanwhile shares the next one.
//! 4 The **ring**: chunks are filled one after the other. A chunk is taken again when the last
//!   order in it is durable in the log.
//!
//! Invariants: the backlog has no gap in its orders; `durable_lsn` never falls, and every order up
//! to it is durable in the log or in a record whose chunk is not free; nothing that is decided by
//! places in the log (reuse of segments, checkpoint roots) looks at `durable_lsn`.

mod backlog;
mod choice;
mod devices;
mod ring;
mod round;

pub(crate) use round::JournalWork;

use crate::limits::{
    JOURNAL_BACKLOG_BYTES, JOURNAL_LISTEN_NS, JOURNAL_LIVE_BYTES_MAX, STREAM_USER, USER_STREAMS,
    is_user,
};
use crate::piece::Piece;
use crate::stream::Item;
use crate::write::Placing;
use crate::{Engine, JournalStatus, Outbox};
use backlog::Backlog;
use ring::Ring;
use round::Round;
use windrow_format::superblock::Journals;
use windrow_geometry::JournalArea;
use windrow_io::MemberIo;
use windrow_types::{BLOCK_BYTES, BatchSeq, Lsn, MemberId};

/// Where a pool's journals go on after a start.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    /// For each journal, in the order of [`Journals::areas`]: what is needed of each chunk, and the
    /// chunk that was filled last.
    pub(crate) rings: Vec<(Vec<Lsn>, u32)>,
    /// The highest number of a record.
    pub(crate) seq: BatchSeq,
    /// P: everything up to it is promised, and to be durable in the log before a checkpoint begins.
    pub(crate) accepted: Lsn,
}

/// State of the journals; of a pool without one, all flushes go to the log.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The one on devices of its own first: it is used as long as one of them is there.
    rings: Vec<Ring>,
    /// The one in use; none if there are no more.
    at: usize,
    /// The number of the next record.
    seq: BatchSeq,
    backlog: Backlog,
    round: Option<Round>,
    /// Every order up to this one is durable, in the log or in records.
    durable_lsn: Lsn,
    /// Flushes up to this order are served by the log.
    by_log: Lsn,
    /// No checkpoint begins before the log is durable up to here.
    settle: Lsn,
    /// Journals that were left had promised everything up to here.
    left: Lsn,
    /// No member is whole before the log is durable up to here.
    whole_from: Lsn,
    /// The one inside the members is about to lie on fewer of them: until then flushes go to the
    /// log.
    moves: bool,
    /// Counters since start.
    sums: JournalStatus,
}

impl Journal {
    /// The area moves to other members, and no record is written meanwhile.
    pub(crate) fn set_moving(&mut self, moving: bool) {
        self.moves = moving;
    }

    /// True while the area moves to other members.
    pub(crate) fn is_moving(&self) -> bool {
        self.moves
    }

    /// The journals of a pool that has just been opened.
    pub(crate) fn new(journals: &Journals, resume: &Resume) -> Self {
        let mut known = resume.rings.iter();
        let rings: Vec<Ring> = journals
            .areas()
            .map(|area| {
                let (last, chunk) = known
                    .next()
                    .cloned()
                    .unwrap_or((Vec::new(), area.chunks - 1));
                Ring::new(*area, last, chunk)
            })
            .collect();
        let settle = if rings.is_empty() {
            Lsn(0)
        } else {
            resume.accepted
        };
        let by_log = if rings.is_empty() {
            Lsn(u64::MAX)
        } else {
            settle
        };
        Self {
            rings,
            seq: resume.seq.next(),
            durable_lsn: resume.accepted,
            by_log,
            settle,
            left: settle,
            whole_from: settle,
            ..Self::default()
        }
    }

    /// After a start that had records from devices which could not be flushed: what they brought is
    /// promised when the log has it.
    pub(crate) fn promise_no_more_than(&mut self, covered: Lsn) {
        self.durable_lsn = self.durable_lsn.min(covered);
    }

    fn ring(&self) -> Option<&Ring> {
        self.rings.get(self.at)
    }

    /// True if nothing of it is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.round.is_none()
    }

    /// Where the one in use lies.
    pub(crate) fn area(&self) -> Option<&JournalArea> {
        self.ring().map(|ring| &ring.area)
    }

    /// When what is kept of admitted writes is let go of.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        (!self.backlog.entries.is_empty())
            .then_some(self.backlog.flushed_ns + JOURNAL_LISTEN_NS + 1)
    }

    /// One line for a diagnosis.
    pub(crate) fn describe(&self) -> String {
        let ring = self
            .ring()
            .map(|r| (self.at, r.chunk, r.offset, r.area.chunks));
        let backlog = (
            self.backlog.listening,
            self.backlog.entries.len(),
            self.backlog.end,
        );
        format!(
            "journal {ring:?} promised {} by log {} settle {} backlog {backlog:?} round {:?}",
            self.durable_lsn, self.by_log, self.settle, self.round
        )
    }
}

impl Journal {
    /// After a start: journals that can not be written where they are. (Members may be copies of
    /// the former ones, on devices with larger sectors; nobody lets such a device in while the pool
    /// is served.) Says which.
    pub(crate) fn note_unfit_journals(&mut self, io: &dyn MemberIo) -> Vec<String> {
        let mut notes = Vec::new();
        for ring in &mut self.rings {
            let (area, sector) = (ring.area, |m: &MemberId| io.sector_bytes(*m));
            let too_large = |m: &MemberId| {
                area.members >> m.0 & 1 == 1 && io.is_present(*m) && sector(m) > area.granule
            };
            if let Some(member) = (0..io.member_count() as u8).map(MemberId).find(too_large) {
                ring.unfit = true;
                let (own, theirs) = (area.granule, sector(&member));
                notes.push(format!(
                    "a journal is not used: it is written in units of {own} bytes, and sectors of member {member} have {theirs}; flushes go to the log"
                ));
            }
        }
        notes
    }

    /// Something was admitted: it is kept for the journal, if flushes come.
    pub(crate) fn note_admitted(&mut self, placing: &Placing) {
        if !self.backlog.listening {
            return;
        }
        if self.backlog.bytes > JOURNAL_BACKLOG_BYTES {
            return self.backlog.clear();
        }
        self.backlog
            .push(placing.entry(), placing.payload().cloned());
    }

    /// True if the order was not in the log at the start, but in the journal.
    pub(crate) fn was_readmitted(&self, lsn: Lsn) -> bool {
        lsn <= self.settle
    }

    /// True if a flush up to this order is a matter of the log.
    pub(crate) fn is_served_by_log(&self, horizon: Lsn) -> bool {
        horizon <= self.by_log
    }

    /// What only the journal may have.
    pub(crate) fn journal_durable_lsn(&self) -> Lsn {
        self.durable_lsn
    }
}

impl Engine {
    /// Where the journals lie.
    pub fn journals(&self) -> &Journals {
        &self.pool.superblock.journals
    }

    /// Every order up to the first one is durable in the log, up to the second one in the log or in
    /// a journal.
    pub fn durable_lsns(&self) -> (Lsn, Lsn) {
        (
            self.durability.lsns.used(self.durability.lsns.durable()),
            self.durability.lsns.used(self.durable_lsn()),
        )
    }

    /// True if the member is in service, and not being rebuilt.
    pub fn is_whole(&self, member: MemberId) -> bool {
        self.drives
            .members
            .list
            .get(member.index())
            .is_some_and(|m| m.online && !m.rebuilding)
    }

    /// True if the journal in use is the one on devices of its own.
    pub fn uses_journal_devices(&self) -> bool {
        self.durability
            .journal
            .ring()
            .is_some_and(|ring| self.pool.superblock.journals.devices() & ring.area.members != 0)
    }

    /// Which journal is used: the one on its own devices as long as one of them is there and whole.
    /// A ring that was left goes on in a fresh chunk, as the numbers in a chunk are consecutive.
    /// When the last device is gone, the log must have what was promised on it.
    pub(crate) fn choose_journal(&mut self) {
        let at = self
            .durability
            .journal
            .rings
            .iter()
            .position(|ring| self.is_usable(ring))
            .unwrap_or(self.durability.journal.rings.len());
        if at == self.durability.journal.at || self.durability.journal.round.is_some() {
            return;
        }
        if at > self.durability.journal.at {
            self.durability.journal.by_log = self
                .durability
                .journal
                .by_log
                .max(self.durability.journal.durable_lsn);
            self.durability.journal.left = self.durability.journal.durable_lsn;
        }
        self.durability.journal.at = at;
        self.durability
            .journal
            .rings
            .get_mut(at)
            .into_iter()
            .for_each(Ring::leave_chunk);
    }

    /// True if a member that is in service and whole holds copies of it.
    fn is_usable(&self, ring: &Ring) -> bool {
        !ring.unfit
            && self
                .drives
                .members
                .online_members()
                .iter()
                .any(|m| ring.area.members >> m.0 & 1 == 1 && self.is_whole(*m))
    }

    /// For `status`.
    pub(crate) fn journal_status(&self) -> JournalStatus {
        let Some(ring) = self.durability.journal.ring() else {
            return JournalStatus::default();
        };
        let (area, chunks_used) = (&ring.area, ring.used(self.durability.lsns.durable()));
        let external = self.uses_journal_devices();
        JournalStatus {
            bytes: area.capacity_bytes(),
            copies: area.copies,
            external,
            chunks: area.chunks,
            chunks_used,
            ..self.durability.journal.sums
        }
    }

    /// Every order up to this one is durable, in the log or in the journal: what flushes are
    /// answered by.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        self.durability
            .lsns
            .durable()
            .max(self.durability.journal.durable_lsn)
    }

    /// Forgets what is durable, and everything if no flushes come any more.
    pub(crate) fn trim_backlog(&mut self) {
        let durable_lsn = self.durable_lsn();
        let backlog = &mut self.durability.journal.backlog;
        if backlog.listening && self.pool.now_ns > backlog.flushed_ns + JOURNAL_LISTEN_NS {
            backlog.clear();
        }
        backlog.release(durable_lsn);
    }

    /// A flush has come: what is admitted from now on is kept. What was admitted before is taken
    /// from the open batch, as far as it is there.
    pub(crate) fn listen(&mut self) {
        if self.durability.journal.rings.is_empty() {
            return;
        }
        self.durability.journal.backlog.flushed_ns = self.pool.now_ns;
        if self.durability.journal.backlog.listening {
            return;
        }
        self.durability.journal.backlog.clear();
        self.durability.journal.backlog.listening = true;
        let open = &self.log.streams[crate::stream_slot(STREAM_USER)].open;
        let shares = open
            .items
            .iter()
            .any(|item| matches!(item, Item::Reference { .. }));
        if shares || !self.is_one_user_stream() {
            // What users wrote is not at hand any more where it has become a reference, and orders
            // that lie in several open batches have gaps in each: this flush goes to the log, and
            // what comes from now on is kept.
            return;
        }
        let mut payloads = open.payloads.iter();
        for (entry, _) in open.table.decode() {
            let payload = if entry.has_payload() {
                payloads.next()
            } else {
                None
            };
            // Records are packed in their own way.
            let payload = payload.map(|payload| {
                let compressed = Some(Piece {
                    at: 0,
                    length: payload.len() as u32,
                    checksum: 0,
                })
                .filter(Piece::is_compressed);
                self.decompressed(payload.clone(), compressed)
            });
            match payload {
                Some(None) => return self.durability.journal.backlog.clear(),
                payload => self
                    .durability
                    .journal
                    .backlog
                    .push(entry, payload.flatten()),
            }
        }
        for placing in &self.admission.placing {
            self.durability
                .journal
                .backlog
                .push(placing.entry(), placing.payload().cloned());
        }
    }

    /// Sees to it that the waiters up to `horizon` are served, as soon as nothing is under way for
    /// others.
    pub(crate) fn serve_waiters(&mut self, horizon: Lsn, out: &mut Outbox) {
        if self.durability.journal.round.is_some()
            || self.admin.control.members_wait()
            || self.drives.members.unrecorded_loss
        {
            return;
        }
        self.choose_journal();
        if horizon > self.durable_lsn()
            && self.durability.lsns.durable() >= self.durability.journal.by_log
        {
            self.serve(horizon, out);
        }
    }

    /// What the log is to make durable: for the waiters that it serves, for what was readmitted,
    /// for chunks to be won back, for members that are to be whole. `None`: nothing.
    pub(crate) fn log_needs(&mut self) -> Option<Lsn> {
        let durable = self.durability.lsns.durable();
        if self.durability.journal.rings.is_empty() {
            return None;
        }
        let (mut half, mut most) = (false, false);
        if let Some(ring) = self.durability.journal.ring() {
            let used = ring.used(durable);
            // Packed records hold more than their bytes; of what they hold no more than one block
            // for each order.
            let blocks = self
                .durability
                .journal
                .durable_lsn
                .0
                .saturating_sub(durable.0);
            let much = (u64::from(used) * u64::from(ring.area.chunk_bytes))
                .max(blocks * BLOCK_BYTES)
                > JOURNAL_LIVE_BYTES_MAX / 2;
            (half, most) = (
                much || 2 * used > ring.area.chunks,
                much || 4 * used > 3 * ring.area.chunks,
            );
        }
        if self.durability.lsns.committed() > durable {
            if half {
                self.durability.flush.request();
            }
        } else if most && self.waits_for_open_batch() {
            // The oldest chunk waits for that.
            let open = USER_STREAMS
                .iter()
                .filter_map(|id| self.stream(*id).open.lsns)
                .map(|(_, last)| last)
                .max()
                .unwrap_or_default();
            self.durability.journal.by_log = self.durability.journal.by_log.max(open);
        }
        (self.durability.journal.by_log > durable).then_some(self.durability.journal.by_log)
    }

    /// True if what is not committed begins in an open batch of users, not in one on its way.
    fn waits_for_open_batch(&self) -> bool {
        let next = self.durability.lsns.committed().next();
        self.users_are_written()
            || USER_STREAMS.iter().any(|id| {
                self.stream(*id)
                    .open
                    .lsns
                    .is_some_and(|(first, _)| first <= next)
            })
    }

    /// False as long as what was readmitted at the start is not durable in the log.
    pub(crate) fn is_settled_after_start(&self) -> bool {
        self.durability.lsns.durable() >= self.durability.journal.settle
    }

    /// A member has come back, or another one is in its place: the records that were written before
    /// have no copy on it.
    pub(crate) fn journal_lost_copies(&mut self) {
        if !self.durability.journal.rings.is_empty() {
            self.durability.journal.whole_from = self.durability.lsns.last();
        }
        // What is written from now on must not be reached through records that the newcomer does
        // not have.
        self.durability
            .journal
            .rings
            .iter_mut()
            .for_each(Ring::leave_chunk);
    }

    /// True if no record that is needed was written before the last member came back. If not, it
    /// asks for that.
    pub(crate) fn journal_is_whole(&mut self) -> bool {
        let whole = self.durability.lsns.durable() >= self.durability.journal.whole_from;
        if !whole {
            self.durability.journal.by_log = self
                .durability
                .journal
                .by_log
                .max(self.durability.journal.whole_from);
        }
        whole
    }

    /// True if the member is a journal device that has left, and nobody else may have what was
    /// promised on it.
    pub(crate) fn journal_needs(&self, member: MemberId) -> bool {
        let is_device = self.pool.superblock.journals.devices() >> member.0 & 1 == 1;
        // A round that is under way decides later that its journal is left.
        let undecided = self.durability.journal.round.is_some()
            && self
                .durability
                .journal
                .ring()
                .is_some_and(|ring| !self.is_usable(ring));
        is_device
            && (undecided
                || self.durability.lsns.durable()
                    < self
                        .durability
                        .journal
                        .left
                        .max(self.durability.journal.settle))
    }

    /// When the open batch of a stream is to be sealed at the latest: what is promised is not at
    /// risk, but keeps memory, chunks and dead segments waiting.
    pub(crate) fn open_batch_due_ns(&self, stream: usize) -> u64 {
        let age = u64::from(self.pool.superblock.properties.seal_age_ms) * 1_000_000;
        let open = &self.stream(stream).open;
        if !is_user(stream) {
            return open.since_ns + age;
        }
        let durable_lsn = open
            .lsns
            .is_some_and(|(_, last)| last <= self.durability.journal.durable_lsn);
        let latest = open.since_ns + age * PROMISED_AGE;
        if durable_lsn {
            latest
        } else {
            latest.min(open.at_risk_since_ns + age)
        }
    }
}

/// How many times longer an open batch whose orders are all promised may stay open.
const PROMISED_AGE: u64 = 20;
const _: () = assert!(JOURNAL_BACKLOG_BYTES >= 4 * BLOCK_BYTES);

#[cfg(test)]
mod tests;
