//! A round of the journal: encodes records, writes them to the copies of their chunks, and flushes
//! these members.
//!
//! `Writing` (jobs and member writes) -> `Flushing` -> `Recording` -> everything up to `through` is
//! durable.
//!
//! `Recording` waits in two cases. If a member was lost meanwhile, its loss must be recorded before
//! the other copies count as durable. If full rows went to the log at the same time, everything
//! before the records must be durable there.

use super::backlog::Logged;
use super::choice::{Rest, Situation, Way};
use crate::api::WrittenBytes;
use crate::base::fault_injection::InjectedBug;
use crate::base::limits::{STREAM_USER, USER_STREAMS};
use crate::base::stages::Stage as Times;
use crate::path::write::FullRows;
use crate::path::{Durability, Paths};
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::jobs::{Job, JournalWork, Work};
use crate::store::member::Purpose;
use windrow_format::batch::TableWriter;
use windrow_format::journal::{RecordHeader, record_bytes};
use windrow_io::MemberOp;
use windrow_types::{Lsn, MemberId, SegmentId};

/// Upper bound of the table bytes of an entry in a record, checksum included.
const ENTRY_BOUND: usize = 168;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Writing,
    Flushing,
    Recording,
}

/// The round in progress.
#[derive(Debug)]
pub(super) struct Round {
    /// The log has everything up to this LSN, or must have it before anything of the round is
    /// durable.
    after: Lsn,
    through: Lsn,
    stage: Stage,
    /// Jobs, writes or flushes that have not ended.
    left: u32,
    /// Members with a copy of one of its records, as a bit mask.
    members: u64,
    /// Start time of the stage.
    since_ns: u64,
}

impl Durability {
    /// Approximate bytes of the records of the backlog after `after` and up to `horizon`.
    pub(crate) fn backlog_bytes(&self, after: Lsn, horizon: Lsn, granule: u32) -> u64 {
        let of = |logged: &&Logged| {
            logged.last > after
                && logged
                    .entry
                    .lsns()
                    .is_some_and(|(first, _)| first <= horizon)
        };
        let (blocks, entries) = self
            .journal
            .backlog
            .entries
            .iter()
            .filter(of)
            .fold((0usize, 0usize), |(b, e), logged| {
                (b + usize::from(logged.payload.is_some()), e + 1)
            });
        if entries == 0 {
            0
        } else {
            record_bytes(entries * 8, blocks as u32, granule) as u64
        }
    }
}

impl Paths {
    /// Serves flushes up to `horizon`: begins a round of the journal, requests durability from the
    /// log, or both.
    pub(super) fn serve(&mut self, horizon: Lsn, store: &mut Store, out: &mut Outbox) {
        let durable_lsn = self.durability.durable_lsn();
        let (way, rows) = self.way(horizon, durable_lsn, store);
        let after = match (way, rows) {
            (Way::Both, Some(rows))
                if rows.entries == 0 || self.seal_full_rows(&rows, store, out) =>
            {
                rows.last
            }
            (Way::Journal, _) => durable_lsn,
            _ => horizon,
        };
        if after > durable_lsn {
            self.durability.journal.by_log = self.durability.journal.by_log.max(after);
        }
        if after >= horizon {
            self.durability.journal.sums.both += u64::from(way == Way::Both);
            return;
        }
        let works = self.make_records(after, horizon, store);
        let Some(through) = works.last().map(|work| work.header.last) else {
            self.durability.journal.sums.log_full += 1;
            self.durability.journal.by_log = horizon;
            return;
        };
        self.durability.journal.round = Some(Round {
            after,
            through,
            stage: Stage::Writing,
            left: works.len() as u32,
            members: 0,
            since_ns: store.pool.now_ns,
        });
        self.note_round_for(through, store);
        self.durability.journal.sums.records += works.len() as u64;
        self.durability.journal.sums.both += u64::from(way == Way::Both);
        out.jobs.extend(
            works
                .into_iter()
                .map(|work| Job(Work::Journal(Box::new(work)))),
        );
    }

    /// Way to serve the flush, and the full rows of the open batch.
    fn way(
        &mut self,
        horizon: Lsn,
        durable_lsn: Lsn,
        store: &mut Store,
    ) -> (Way, Option<FullRows>) {
        if self.durability.journal.rings.is_empty()
            || self.durability.journal.moves
            || store.pool.read_only
        {
            return (Way::Log, None);
        }
        self.durability.journal.backlog.release(durable_lsn);
        if !self
            .durability
            .journal
            .backlog
            .covers(durable_lsn.next(), horizon)
        {
            self.durability.journal.sums.log_unlisted += 1;
            return (Way::Log, None);
        }
        let Some(mut situation) = self.situation(horizon, store) else {
            return (Way::Log, None);
        };
        let mut rows = None;
        if situation.may_be_both() {
            rows = self
                .full_rows(horizon, store)
                .filter(|rows| rows.last > durable_lsn);
            let granule = situation.area.granule;
            situation.rest = rows.map(|rows| Rest {
                sealed: rows.entries > 0,
                record_bytes: self.durability.backlog_bytes(rows.last, horizon, granule),
            });
        }
        let way = situation.way();
        self.durability.journal.sums.log_cheaper += u64::from(way == Way::Log);
        (way, rows)
    }

    /// Inputs of the choice, except for the effect of full rows; `None`: there is no journal.
    fn situation<'a>(&'a self, horizon: Lsn, store: &'a Store) -> Option<Situation<'a>> {
        let ring = self.durability.journal.ring()?;
        let any = store
            .pool
            .zones
            .zones()
            .first()
            .map_or(SegmentId::NONE, |zone| SegmentId(zone.first_segment));
        let shape_at = |segment| {
            store
                .pool
                .zones
                .shape(if store.pool.zones.contains(segment) {
                    segment
                } else {
                    any
                })
        };
        let shape = shape_at(self.log.stream(STREAM_USER).position.segment);
        // Each open user batch that holds an LSN of the flush would be sealed.
        let mut wasted_blocks = None;
        for user in USER_STREAMS.iter().map(|id| self.log.stream(*id)) {
            if user.open.lsns.is_none_or(|(first, _)| first > horizon) {
                continue;
            }
            let shape = shape_at(user.position.segment);
            if let Some(plan) = user.open.table.plan(shape, user.position.row) {
                let wasted =
                    u64::from(plan.rows) * u64::from(shape.data) - u64::from(plan.payload_blocks);
                wasted_blocks = Some(wasted_blocks.unwrap_or(0) + wasted);
            }
        }
        let open = wasted_blocks.is_some();
        let dirty = store
            .drives
            .members
            .list
            .iter()
            .filter(|m| m.online && m.dirty)
            .count() as u64;
        Some(Situation {
            limits: &store.pool.limits,
            shape,
            area: &ring.area,
            on_devices: store.pool.superblock.journals.devices() & ring.area.members != 0,
            wasted_blocks,
            log_members: if open { u64::from(shape.width) } else { dirty },
            record_bytes: self
                .durability
                .backlog_bytes(Lsn(0), horizon, ring.area.granule),
            rest: None,
        })
    }

    /// Reserves room in the ring for everything after `after` and up to `horizon`, or as much as
    /// fits.
    fn make_records(&mut self, after: Lsn, horizon: Lsn, store: &mut Store) -> Vec<JournalWork> {
        let (pool, epoch, durable_lsn) = (
            store.pool.superblock.pool,
            store.pool.superblock.epoch,
            self.durability.durable_lsn(),
        );
        let durable = if store.observe.bug == InjectedBug::EarlyChunk {
            durable_lsn
        } else {
            self.durability.lsns.durable()
        };
        let seq = &mut self.durability.journal.seq;
        let Some(ring) = self
            .durability
            .journal
            .rings
            .get_mut(self.durability.journal.at)
        else {
            return Vec::new();
        };
        let granule = ring.area.granule;
        let mut works = Vec::new();
        let mut entries = self
            .durability
            .journal
            .backlog
            .entries
            .iter()
            .skip_while(|logged| logged.last <= after)
            .peekable();
        let is_needed = |first: Lsn| first <= horizon;
        while entries.peek().is_some_and(|logged| {
            logged
                .entry
                .lsns()
                .is_some_and(|(first, _)| is_needed(first))
        }) {
            if ring.left() < record_bytes(ENTRY_BOUND, 1, granule) && !ring.turn(durable) {
                break;
            }
            let (mut table, mut payloads) = (TableWriter::new(), Vec::new());
            let (mut first, mut last) = (None, Lsn(0));
            while let Some(logged) = entries.peek() {
                let Some((begin, _)) = logged.entry.lsns() else {
                    break;
                };
                let blocks = table.payload_blocks() + u32::from(logged.payload.is_some());
                if !is_needed(begin)
                    || record_bytes(table.bytes().len() + ENTRY_BOUND, blocks, granule)
                        > ring.left()
                {
                    break;
                }
                table.push(&logged.entry);
                payloads.extend(logged.payload.clone());
                first = first.or(Some(begin));
                last = logged.last;
                entries.next();
            }
            let Some(first) = first else { break };
            let header = RecordHeader {
                pool,
                epoch,
                seq: *seq,
                chunk: ring.chunk,
                offset: ring.offset,
                durable: durable_lsn,
                first,
                last,
            };
            let copies = usize::from(ring.area.copies);
            let work = JournalWork {
                header,
                table,
                payloads,
                granule,
                copies,
                packs: store.pool.limits.compresses_records,
                buffers: store.memory.buffers.clone(),
                records: Vec::new(),
            };
            *seq = seq.next();
            ring.offset += work.bytes_at_most();
            ring.last[ring.chunk as usize] = last;
            works.push(work);
        }
        works
    }

    /// A worker has encoded a record: writes its copies.
    pub(crate) fn record_encoded(
        &mut self,
        work: JournalWork,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        let Some(area) = self
            .durability
            .journal
            .area()
            .copied()
            .filter(|_| store.pool.stopped.is_none())
        else {
            return;
        };
        let bytes = work.records.first().map_or(0, |record| record.len());
        self.durability.journal.sums.record_bytes += bytes as u64;
        if let Some(ring) = self
            .durability
            .journal
            .rings
            .get_mut(self.durability.journal.at)
        {
            ring.shorten(&work.header, work.bytes_at_most(), bytes as u32);
        }
        let mut writes = 0;
        for ((member, start), buf) in area.copies_of(work.header.chunk).zip(work.records) {
            let written = WrittenBytes {
                journal: buf.len() as u64,
                ..Default::default()
            };
            if let Some(spare) = store.drives.exchanges.shadow_of(member) {
                let mut copy = store.memory.buffers.get(buf.len());
                copy.copy_from_slice(&buf);
                store.send_write(
                    spare,
                    start + u64::from(work.header.offset),
                    copy,
                    Purpose::JournalWrite,
                    &written,
                    out,
                );
                writes += 1;
            }
            if store.drives.members.is_online(member) {
                store.send_write(
                    member,
                    start + u64::from(work.header.offset),
                    buf,
                    Purpose::JournalWrite,
                    &written,
                    out,
                );
                writes += 1;
            }
        }
        if let Some(round) = &mut self.durability.journal.round {
            round.left += writes;
        }
        self.journal_step_done(None, store, out);
    }

    /// Handles the end of the write of a record copy.
    pub(crate) fn record_written(
        &mut self,
        member: MemberId,
        failed: bool,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        self.journal_step_done(Some(member).filter(|_| !failed), store, out);
    }

    /// Handles the end of a member flush of the round. A member that failed is taken out of
    /// service, and the round waits until its loss is recorded.
    pub(crate) fn records_flushed(&mut self, store: &mut Store, out: &mut Outbox) {
        self.journal_step_done(None, store, out);
    }

    fn journal_step_done(
        &mut self,
        written: Option<MemberId>,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        let power_safe = self
            .durability
            .journal
            .area()
            .is_some_and(|area| area.power_safe);
        let Some(round) = &mut self.durability.journal.round else {
            return;
        };
        round.left -= 1;
        round.members |= written.map_or(0, |member| 1 << member.0);
        if round.left > 0 || store.pool.stopped.is_some() {
            return;
        }
        let (now_ns, since_ns) = (
            store.pool.now_ns,
            std::mem::replace(&mut round.since_ns, store.pool.now_ns),
        );
        if round.stage == Stage::Writing {
            round.stage = Stage::Flushing;
            store
                .observe
                .stages
                .record(Times::JournalWrite, since_ns, now_ns);
            let members = if power_safe { 0 } else { round.members };
            let flushed: Vec<MemberId> = store
                .drives
                .members
                .online_members()
                .into_iter()
                .filter(|m| members >> m.0 & 1 == 1)
                .collect();
            self.durability.journal.sums.member_flushes += flushed.len() as u64;
            if let Some(round) = &mut self.durability.journal.round {
                round.left = flushed.len() as u32;
            }
            for member in &flushed {
                store.send(*member, MemberOp::Flush, Purpose::JournalFlush, out);
            }
            if !flushed.is_empty() {
                return;
            }
        } else {
            store
                .observe
                .stages
                .record(Times::JournalFlush, since_ns, now_ns);
        }
        if let Some(round) = &mut self.durability.journal.round {
            round.stage = Stage::Recording;
        }
        self.end_journal_round(store, out);
    }

    /// Advances the durable LSN to what the round covers, unless a loss must be recorded first
    /// (then `flush_round_check` calls again).
    pub(crate) fn end_journal_round(&mut self, store: &mut Store, out: &mut Outbox) {
        let ended = self
            .durability
            .journal
            .round
            .as_ref()
            .is_some_and(|round| round.stage == Stage::Recording);
        if !ended || store.drives.members.unrecorded_loss || store.pool.stopped.is_some() {
            return;
        }
        let durable = self.durability.lsns.durable();
        let Some(round) = self
            .durability
            .journal
            .round
            .take_if(|round| round.after <= durable.max(self.durability.journal.durable_lsn))
        else {
            return;
        };
        let is_in_place = |m: &MemberId| {
            !store.drives.members.list[m.index()].rebuilding
                && store.drives.exchanges.shadowed_by(*m).is_none()
        };
        let is_read_at_start = |m: &MemberId| round.members >> m.0 & 1 == 1 && is_in_place(m);
        if !store
            .drives
            .members
            .online_members()
            .iter()
            .any(is_read_at_start)
        {
            // No copy counts: the log has to serve these flushes.
            self.durability.journal.by_log = self.durability.journal.by_log.max(round.through);
        } else {
            self.durability.journal.sums.rounds += 1;
            self.durability.journal.durable_lsn =
                self.durability.journal.durable_lsn.max(round.through);
            let durable_lsn = self.durability.durable_lsn();
            self.durability.journal.backlog.release(durable_lsn);
        }
        // The devices may have left during the round: then the log must take over what was durable
        // on them.
        self.choose_journal(store);
        self.answer_waiters(store, out);
        self.flush_round_check(store, out);
    }
}
