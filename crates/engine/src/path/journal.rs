//! The journal: makes synchronous writes durable before their rows are full
//! (docs/internals/journal.md).
//!
//! 1. While flushes arrive, the **backlog** keeps all admitted entries, in LSN order, until they
//!    are durable.
//! 2. A flush is served by the log, by the journal, or by both, whichever costs the members least
//!    (`path/journal/choice.rs`). Full rows can be sealed without the rest.
//! 3. A **round** (`path/journal/round.rs`) writes the records that the waiters need to the copies
//!    of a chunk and flushes these members. Then everything up to its last LSN is durable. One
//!    round runs at a time; later waiters share the next one.
//! 4. The **ring**: chunks are filled one after the other. A chunk is reused when its last LSN is
//!    durable in the log.
//!
//! Invariants:
//!
//! - The backlog has no gap in its LSNs.
//! - `durable_lsn` never falls, and every LSN up to it is durable in the log or in a record whose
//!   chunk is not free.
//! - Decisions about addresses in the log (reuse of segments, checkpoint roots) do not use
//!   `durable_lsn`.

mod backlog;
mod choice;
mod devices;
mod ring;
mod round;

use crate::api::JournalStatus;
use crate::base::limits::{
    JOURNAL_BACKLOG_BYTES, JOURNAL_LISTEN_NS, JOURNAL_LIVE_BYTES_MAX, STREAM_USER, USER_STREAMS,
    is_user,
};
use crate::base::piece::Piece;
use crate::path::write::Placing;
use crate::path::{Durability, Paths};
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pool::Pool;
use crate::store::stream::Item;
use backlog::Backlog;
use ring::Ring;
use round::Round;
use windrow_format::superblock::Journals;
use windrow_geometry::JournalArea;
use windrow_io::MemberIo;
use windrow_types::{BLOCK_BYTES, BatchSeq, Lsn, MemberId};

/// Position at which the journals of a pool resume after a start.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    /// For each journal, in the order of [`Journals::areas`]: the last needed LSN of each chunk,
    /// and the chunk that was filled last.
    pub(crate) rings: Vec<(Vec<Lsn>, u32)>,
    /// Highest record number.
    pub(crate) seq: BatchSeq,
    /// Recovery point: everything up to it is durable, and must be durable in the log before a
    /// checkpoint begins.
    pub(crate) accepted: Lsn,
}

/// State of the journals. In a pool without one all flushes go to the log.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Rings, that of the dedicated devices first: it is used as long as one of these is in
    /// service.
    rings: Vec<Ring>,
    /// Index of the ring in use; past the end if there is none.
    at: usize,
    /// Number of the next record.
    seq: BatchSeq,
    backlog: Backlog,
    round: Option<Round>,
    /// Every LSN up to this one is durable, in the log or in records.
    durable_lsn: Lsn,
    /// Flushes up to this LSN are served by the log.
    by_log: Lsn,
    /// No checkpoint begins before the log is durable up to here.
    settle: Lsn,
    /// Journals that were abandoned had made everything up to here durable.
    left: Lsn,
    /// No member is complete before the log is durable up to here.
    whole_from: Lsn,
    /// The internal journal is about to move to fewer members: until then flushes go to the log.
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

    /// Journals of a pool that has just been opened.
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

    /// Limits the durable LSN after a start with records from devices that could not be flushed:
    /// their content is durable only once the log has it.
    pub(crate) fn limit_recorded(&mut self, covered: Lsn) {
        self.durable_lsn = self.durable_lsn.min(covered);
    }

    /// True if the journal in use is the one on devices of its own.
    pub(crate) fn is_external(&self, pool: &Pool) -> bool {
        let devices = pool.superblock.journals.devices();
        self.ring()
            .is_some_and(|ring| devices & ring.area.members != 0)
    }

    fn ring(&self) -> Option<&Ring> {
        self.rings.get(self.at)
    }

    /// True if no round is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.round.is_none()
    }

    /// Area of the journal in use.
    pub(crate) fn area(&self) -> Option<&JournalArea> {
        self.ring().map(|ring| &ring.area)
    }

    /// Time at which the kept copies of admitted writes are dropped.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        (!self.backlog.entries.is_empty())
            .then_some(self.backlog.flushed_ns + JOURNAL_LISTEN_NS + 1)
    }

    /// State in one line, for diagnosis.
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
            "journal {ring:?} durable {} by log {} settle {} backlog {backlog:?} round {:?}",
            self.durable_lsn, self.by_log, self.settle, self.round
        )
    }
}

impl Journal {
    /// Notes and reports journals that cannot be written where they are, after a start. Members may
    /// have been copied to devices with larger sectors; a running pool does not accept such a
    /// device.
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
                    "a journal is not used: it is written in units of {own} bytes, and member {member} has sectors of {theirs} bytes; flushes go to the log"
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

    /// True if the LSN was not in the log at the start, but in the journal.
    pub(crate) fn was_readmitted(&self, lsn: Lsn) -> bool {
        lsn <= self.settle
    }

    /// True if the log serves a flush up to this LSN.
    pub(crate) fn is_served_by_log(&self, horizon: Lsn) -> bool {
        horizon <= self.by_log
    }

    /// Every LSN up to it is durable, as far as the journal knows.
    pub(crate) fn recorded_lsn(&self) -> Lsn {
        self.durable_lsn
    }
}

impl Durability {
    /// Highest LSN that is durable in the log or in the journal. Flushes are answered by it.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        self.lsns.durable().max(self.journal.durable_lsn)
    }

    /// Drops durable entries, and all entries if no flushes arrive any more.
    pub(crate) fn trim_backlog(&mut self, pool: &Pool) {
        let durable_lsn = self.durable_lsn();
        let backlog = &mut self.journal.backlog;
        if backlog.listening && pool.now_ns > backlog.flushed_ns + JOURNAL_LISTEN_NS {
            backlog.clear();
        }
        backlog.release(durable_lsn);
    }

    /// False as long as the entries readmitted at the start are not durable in the log.
    pub(crate) fn is_settled_after_start(&self) -> bool {
        self.lsns.durable() >= self.journal.settle
    }

    /// A member returned or was replaced: earlier records have no copy on it.
    pub(crate) fn journal_lost_copies(&mut self) {
        if !self.journal.rings.is_empty() {
            self.journal.whole_from = self.lsns.last();
        }
        // What is written from now on must not be reached through records that the newcomer does
        // not have.
        self.journal.rings.iter_mut().for_each(Ring::leave_chunk);
    }

    /// True if no needed record is older than the last member's return. If not, it requests that
    /// from the log.
    pub(crate) fn journal_is_whole(&mut self) -> bool {
        let whole = self.lsns.durable() >= self.journal.whole_from;
        if !whole {
            self.journal.by_log = self.journal.by_log.max(self.journal.whole_from);
        }
        whole
    }
}

impl Paths {
    /// Which journal is used: the one on its own devices as long as one of them is there and whole.
    /// A ring that was left continues in a fresh chunk, as the numbers in a chunk are consecutive.
    /// When the last device is gone, the log must have what was durable on it.
    pub(crate) fn choose_journal(&mut self, store: &mut Store) {
        let at = self
            .durability
            .journal
            .rings
            .iter()
            .position(|ring| self.is_usable(ring, store))
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

    /// True if a complete member in service holds copies of it.
    fn is_usable(&self, ring: &Ring, store: &Store) -> bool {
        !ring.unfit
            && store
                .drives
                .members
                .online_members()
                .iter()
                .any(|m| ring.area.members >> m.0 & 1 == 1 && store.drives.members.is_whole(*m))
    }

    /// Journal part of `status`.
    pub(crate) fn journal_status(&self, store: &Store) -> JournalStatus {
        let Some(ring) = self.durability.journal.ring() else {
            return JournalStatus::default();
        };
        let (area, chunks_used) = (&ring.area, ring.used(self.durability.lsns.durable()));
        let external = self.durability.journal.is_external(&store.pool);
        JournalStatus {
            bytes: area.capacity_bytes(),
            copies: area.copies,
            external,
            chunks: area.chunks,
            chunks_used,
            ..self.durability.journal.sums
        }
    }

    /// A flush has arrived: entries admitted from now on are kept. Earlier ones are taken from the
    /// open batch as far as they are in it.
    pub(crate) fn listen(&mut self, store: &mut Store) {
        if self.durability.journal.rings.is_empty() {
            return;
        }
        self.durability.journal.backlog.flushed_ns = store.pool.now_ns;
        if self.durability.journal.backlog.listening {
            return;
        }
        self.durability.journal.backlog.clear();
        self.durability.journal.backlog.listening = true;
        let open = &self.log.streams[crate::store::stream::slot(STREAM_USER)].open;
        let shares = open
            .items
            .iter()
            .any(|item| matches!(item, Item::Reference { .. }));
        if shares || !self.is_one_user_stream(store) {
            // The payload of a block that became a reference is gone, and LSNs spread over several
            // open batches have gaps in each. This flush goes to the log; later entries are kept.
            return;
        }
        let mut payloads = open.payloads.iter();
        for (entry, _) in open.table.decode() {
            let payload = if entry.has_payload() {
                payloads.next()
            } else {
                None
            };
            // Records use their own compression.
            let payload = payload.map(|payload| {
                let compressed = Some(Piece {
                    at: 0,
                    length: payload.len() as u32,
                    checksum: 0,
                })
                .filter(Piece::is_compressed);
                store.memory.decompressed(payload.clone(), compressed)
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

    /// Serves the waiters up to `horizon`, as soon as nothing is in progress for others.
    pub(crate) fn serve_waiters(&mut self, horizon: Lsn, store: &mut Store, out: &mut Outbox) {
        if self.durability.journal.round.is_some()
            || self.commands.members_wait()
            || store.drives.members.unrecorded_loss
        {
            return;
        }
        self.choose_journal(store);
        if horizon > self.durability.durable_lsn()
            && self.durability.lsns.durable() >= self.durability.journal.by_log
        {
            self.serve(horizon, store, out);
        }
    }

    /// LSN up to which the log must become durable: for waiters that it serves, for readmitted
    /// entries, to reclaim chunks, and to complete members. `None`: no need.
    pub(crate) fn log_needs(&mut self, store: &mut Store) -> Option<Lsn> {
        let durable = self.durability.lsns.durable();
        if self.durability.journal.rings.is_empty() {
            return None;
        }
        let (mut half, mut most) = (false, false);
        if let Some(ring) = self.durability.journal.ring() {
            let used = ring.used(durable);
            // Compressed records hold more than their bytes, but at most one block for each LSN.
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
        } else if most && self.waits_for_open_batch(store) {
            // The oldest chunk waits for that.
            let open = USER_STREAMS
                .iter()
                .filter_map(|id| self.log.stream(*id).open.lsns)
                .map(|(_, last)| last)
                .max()
                .unwrap_or_default();
            self.durability.journal.by_log = self.durability.journal.by_log.max(open);
        }
        (self.durability.journal.by_log > durable).then_some(self.durability.journal.by_log)
    }

    /// True if the first uncommitted LSN is in an open user batch, not in one in flight.
    fn waits_for_open_batch(&self, store: &Store) -> bool {
        let next = self.durability.lsns.committed().next();
        self.users_are_written(store)
            || USER_STREAMS.iter().any(|id| {
                self.log
                    .stream(*id)
                    .open
                    .lsns
                    .is_some_and(|(first, _)| first <= next)
            })
    }

    /// True if the member is a journal device that has left and may hold the only durable copy of
    /// some entries.
    pub(crate) fn journal_needs(&self, member: MemberId, store: &Store) -> bool {
        let is_device = store.pool.superblock.journals.devices() >> member.0 & 1 == 1;
        // The round in progress decides only later that its journal is abandoned.
        let undecided = self.durability.journal.round.is_some()
            && self
                .durability
                .journal
                .ring()
                .is_some_and(|ring| !self.is_usable(ring, store));
        is_device
            && (undecided
                || self.durability.lsns.durable()
                    < self
                        .durability
                        .journal
                        .left
                        .max(self.durability.journal.settle))
    }

    /// Latest time to seal the open batch of a stream. Durable entries are not at risk, but they
    /// occupy memory and chunks, and keep dead segments from being freed.
    pub(crate) fn open_batch_due_ns(&self, stream: usize, store: &Store) -> u64 {
        let age = u64::from(store.pool.superblock.properties.seal_age_ms) * 1_000_000;
        let open = &self.log.stream(stream).open;
        if !is_user(stream) {
            return open.since_ns + age;
        }
        let is_durable = open
            .lsns
            .is_some_and(|(_, last)| last <= self.durability.journal.durable_lsn);
        let latest = open.since_ns + age * DURABLE_AGE;
        if is_durable {
            latest
        } else {
            latest.min(open.at_risk_since_ns + age)
        }
    }
}

/// Factor by which an open batch may stay open longer if all of its LSNs are durable.
const DURABLE_AGE: u64 = 20;
const _: () = assert!(JOURNAL_BACKLOG_BYTES >= 4 * BLOCK_BYTES);

#[cfg(test)]
mod tests;
