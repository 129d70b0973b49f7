//! Replay of everything after the checkpoint: chains of batches, recovery point, effect on the
//! tables.
//!
//! 1. Follow each stream's chain from its replay position. A batch counts if its head and tail
//!    verify and no fence voids it. After the end of a chain, later batches of the stream are read
//!    only for their durable marks.
//! 2. Verify every byte: batches above the durable mark must verify completely, and the chain is
//!    cut at the first that does not.
//! 3. Recovery point: the highest LSN with no gap below it, in batches and journal records.
//! 4. Classify the chain ends by the table of `docs/internals/format.md` section 12.3: torn, void,
//!    nothing there, or damage.
//! 5. Apply user entries up to the recovery point in ascending order, including those that only
//!    records have; then moves by compare-and-set.

use crate::batches::{
    Expected, WholeBatch, all_headers, find_header, look_for_header, verify_ends, verify_whole,
};
use crate::durable::{Coverage, Durable, batch_limit, fence_for, record_limit};
use crate::journal::Journal;
use crate::reader::PoolReader;
use crate::report::{Finding, FindingKind, Findings, JournalReport, Severity, StreamReport};
use crate::state::Tables;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use windrow_format::batch::{Entry, FillState, HeaderFrame, PayloadInfo, RangeState, VolumeChange};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::{CheckpointRoot, Fence, StreamPosition, Superblock};
use windrow_types::{
    Address, BatchSeq, Epoch, FULL_BLOCK_UNITS, Lba, Lsn, MAX_STREAMS, SegmentId, StreamId,
    VolumeId,
};

/// Reason that a chain ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    NeverOpened,
    Nothing,
    Void,
    Torn,
}

impl End {
    fn words(self) -> &'static str {
        match self {
            Self::NeverOpened => "never opened",
            Self::Nothing => "nothing written",
            Self::Void => "void by a fence",
            Self::Torn => "torn",
        }
    }
}

/// User and cleaning streams: every pool has the first of each.
const USERS: [StreamId; 3] = [StreamId(0), StreamId(1), StreamId(4)];
const MOVES: [StreamId; 4] = [StreamId(5), StreamId(6), StreamId(7), StreamId(2)];

/// The checkpoint stream. The checkpoint in use does not need what follows its replay position.
const CHECKPOINT: StreamId = StreamId(3);

/// The accepted batches of one stream.
struct Chain {
    stream: StreamId,
    /// Headers of batches whose ends verify.
    frames: Vec<HeaderFrame>,
    batches: Vec<WholeBatch>,
    /// Position of the next batch.
    next: StreamPosition,
    end: End,
    /// The next batch is of this epoch, which no superblock knows.
    newer: Option<Epoch>,
}

/// The result of a replay.
pub(crate) struct Replay {
    pub(crate) recovery_lsn: Lsn,
    pub(crate) flushed_through: Lsn,
    pub(crate) streams: Vec<StreamReport>,
    pub(crate) log_lsn: Lsn,
    pub(crate) journals: Vec<JournalReport>,
    /// Epoch of every accepted batch, by segment and first row. A batch rewritten after a crash has
    /// the same number as the previous one, which a member that missed the rewrite still holds.
    pub(crate) epochs: BTreeMap<(SegmentId, u32), Epoch>,
    /// Accepted batches (segment and first row) whose flaws have been reported as a whole.
    pub(crate) incomplete: BTreeSet<(SegmentId, u32)>,
    /// Unrecoverable payload blocks of accepted batches.
    pub(crate) lost: BTreeSet<Address>,
}

pub(crate) fn is_void(fences: &[Fence], frame: &HeaderFrame) -> bool {
    let header = &frame.header;
    fence_for(fences, header.epoch).is_some_and(|f| header.seq > f.last_seq[header.stream.index()])
}

/// Replays everything after `root` into `tables`.
pub(crate) fn replay(
    reader: &mut PoolReader<'_>,
    superblock: &Superblock,
    root: &CheckpointRoot,
    tables: &mut Tables,
    findings: &mut Findings,
) -> Replay {
    let fences = &superblock.fences;
    let mut durable = Durable::new(fences, superblock.checkpoints.iter().flatten());
    let mut chains = Vec::with_capacity(MAX_STREAMS);
    for stream in (0..MAX_STREAMS as u8).map(StreamId) {
        chains.push(
            Follow {
                superblock,
                root,
                stream,
            }
            .run(reader, &mut durable),
        );
    }
    for chain in &chains {
        Follow {
            superblock,
            root,
            stream: chain.stream,
        }
        .look_behind(reader, chain, &mut durable);
    }
    for chain in &mut chains {
        chain.verify(reader, durable.seq(chain.stream));
    }
    durable.said_otherwise(superblock.epoch, superblock.journals.durable_lsn);
    let used = used_by_batches(fences, &chains);
    let log = Coverage::new(root.lsn, &used, fences);
    let with_records = |journal: &Journal| {
        let records = journal.records().filter_map(|record| record.lsns(fences));
        // After the log's last LSN without a gap only the journal counts.
        let passed = log.passed().0;
        let batches = used
            .iter()
            .copied()
            .filter(|(first, _)| *first <= passed)
            .map(|(first, last)| (first, last.min(passed)));
        Coverage::new(
            root.lsn,
            &batches.chain(records).collect::<Vec<_>>(),
            fences,
        )
    };
    let mut journal = Journal::read(reader, superblock, root.epoch);
    journal.claim(&mut durable);
    let mut all = with_records(&journal);
    if all.passed() < durable.through() && reader.read_retired() {
        journal = Journal::read(reader, superblock, root.epoch);
        journal.claim(&mut durable);
        all = with_records(&journal);
        let message = "journal devices that are not in service were read: the log does not have what they recorded as durable";
        findings.add(Finding::new(
            Severity::Repairable,
            FindingKind::JournalRetired,
            message,
        ));
    }
    let recovery_lsn = all.highest();
    for chain in &chains {
        let broken = judge(
            chain,
            &durable,
            all.passed(),
            superblock.journals.areas().next().is_some(),
            findings,
        );
        settle_segments(reader, chain, broken, tables);
    }
    let flushed_through = durable.through();
    if all.passed() < flushed_through {
        let message = format!(
            "LSNs up to {flushed_through} were durable, only those up to {recovery_lsn} were found"
        );
        findings.add(Finding::new(
            Severity::Error,
            FindingKind::LsnsLost,
            message,
        ));
    }
    let journals = journal.judge(fences, &log, &all, flushed_through, findings);
    let mut entries = entries_of_batches(reader, fences, root, &chains, log.highest());
    entries.extend(entries_of_records(fences, &journal, &log, recovery_lsn));
    let replayed = apply_user_entries(entries, tables);
    apply_moves(reader, &chains, &replayed, tables);
    let streams = chains
        .iter()
        .filter(|c| c.end != End::NeverOpened)
        .map(Chain::report)
        .collect();
    let batches = || chains.iter().flat_map(|c| &c.batches);
    let at = |b: &WholeBatch| (b.batch.frame.header.segment, b.batch.frame.header.row);
    let epochs = batches()
        .map(|b| (at(b), b.batch.frame.header.epoch))
        .collect();
    let incomplete = batches()
        .filter(|b| b.flaws.are_on_members())
        .map(at)
        .collect();
    let lost_of = |b: &WholeBatch| -> Vec<Address> {
        let is_lost = |p: &PayloadInfo| {
            b.lost
                .iter()
                .any(|block| (p.block()..=p.last_block()).contains(block))
        };
        let payloads = b
            .batch
            .entries
            .iter()
            .filter_map(|e| e.payload)
            .filter(is_lost);
        payloads
            .map(|p| entry_of(reader, &b.batch.frame, &p).address())
            .collect()
    };
    let lost = batches()
        .filter(|b| !b.lost.is_empty())
        .flat_map(lost_of)
        .collect();
    Replay {
        recovery_lsn,
        flushed_through,
        streams,
        log_lsn: log.highest(),
        journals,
        epochs,
        incomplete,
        lost,
    }
}

impl Chain {
    fn report(&self) -> StreamReport {
        StreamReport {
            stream: self.stream,
            batches: self.batches.len() as u64,
            segment: self.next.segment,
            row: self.next.row,
            seq: self.next.seq,
            end: self.end.words(),
        }
    }
}

impl Chain {
    /// Verifies every byte of the batches. Above the durable mark the first batch with a lost block
    /// ends the chain; a lost block of a durable batch is the loss of that block.
    fn verify(&mut self, reader: &mut PoolReader<'_>, durable: BatchSeq) {
        for frame in std::mem::take(&mut self.frames) {
            let header = &frame.header;
            match verify_whole(reader, &frame) {
                Some(whole)
                    if (whole.lost.is_empty() && !whole.is_beyond) || header.seq <= durable =>
                {
                    self.batches.push(whole)
                }
                _ => {
                    self.next = StreamPosition {
                        segment: header.segment,
                        row: header.row,
                        seq: header.seq,
                        next_segment: header.next_segment,
                    };
                    self.end = End::Torn;
                    return;
                }
            }
        }
    }
}

/// Number of rows, and of chunk starts, after the end of a chain that are reconstructed, as a start
/// does (docs/internals/format.md, 12.3).
const REBUILT_BEHIND: usize = 8;

/// One stream to follow.
struct Follow<'s> {
    superblock: &'s Superblock,
    root: &'s CheckpointRoot,
    stream: StreamId,
}

impl Follow<'_> {
    fn is_ours(&self, frame: &HeaderFrame, epoch: Epoch) -> bool {
        frame.header.stream == self.stream
            && (epoch..=self.superblock.epoch).contains(&frame.header.epoch)
    }

    fn run(&self, reader: &mut PoolReader<'_>, durable: &mut Durable<'_>) -> Chain {
        let (fences, stream) = (&self.superblock.fences, self.stream);
        let start = self.root.replay[stream.index()];
        let mut chain = Chain {
            stream,
            frames: Vec::new(),
            batches: Vec::new(),
            next: start,
            end: End::NeverOpened,
            newer: None,
        };
        // Nothing older than the root counts, even if the fence that voided it was dropped with
        // older checkpoints.
        let mut epoch = self.root.epoch;
        loop {
            if reader.zones.contains(chain.next.segment)
                && chain.next.row >= reader.zones.shape(chain.next.segment).rows
            {
                (chain.next.segment, chain.next.row) = (chain.next.next_segment, 0);
                chain.next.next_segment = SegmentId::NONE;
            }
            let StreamPosition {
                segment, row, seq, ..
            } = chain.next;
            if !reader.zones.contains(segment) {
                chain.end = if start.segment == SegmentId::NONE {
                    End::NeverOpened
                } else {
                    End::Nothing
                };
                return chain;
            }
            let expected = Expected {
                stream,
                seq,
                epoch,
                or_later: false,
            };
            let saw_void = Cell::new(false);
            let newer = Cell::new(None);
            let counts = |frame: &HeaderFrame| {
                if expected.matches(frame) && frame.header.epoch > self.superblock.epoch {
                    newer.set(Some(frame.header.epoch));
                }
                let matches = expected.matches(frame) && self.is_ours(frame, epoch);
                let void = is_void(fences, frame);
                saw_void.set(saw_void.get() || (matches && void));
                matches && !void
            };
            let Some(frame) = find_header(reader, segment, row, counts) else {
                chain.end = if saw_void.get() {
                    End::Void
                } else {
                    End::Nothing
                };
                chain.newer = newer.get();
                return chain;
            };
            let frame = self
                .newer_in_place(reader, segment, row, counts, &frame)
                .unwrap_or(frame);
            let header = &frame.header;
            durable.said_by(header);
            if verify_ends(reader, &frame).is_none() {
                if chain.next.next_segment == SegmentId::NONE {
                    chain.next.next_segment = header.next_segment;
                }
                chain.end = End::Torn;
                return chain;
            }
            epoch = header.epoch;
            chain.next = StreamPosition {
                segment,
                row: row + header.rows,
                seq: seq.next(),
                next_segment: header.next_segment,
            };
            chain.frames.push(frame);
        }
    }

    /// Header of a newer epoch at the position of `frame`, whose write a member missed. The number
    /// was assigned again, so `frame` had been refused, even if no fence records that any more. (A
    /// start checks only batches that it may have refused.)
    fn newer_in_place(
        &self,
        reader: &mut PoolReader<'_>,
        segment: SegmentId,
        row: u32,
        counts: impl Fn(&HeaderFrame) -> bool,
        frame: &HeaderFrame,
    ) -> Option<HeaderFrame> {
        let epoch = frame.header.epoch;
        let newer = |other: &HeaderFrame| other.header.epoch > epoch && counts(other);
        (epoch < self.superblock.epoch)
            .then(|| all_headers(reader, segment, row, newer).into_iter().next())?
    }

    /// Reads durable marks of later batches of the stream after the end of its chain: in the other
    /// rows of its chunk, and at chunk starts in the segment of the end and its successors. The
    /// first few of both are reconstructed if they hold something else: they may have missed their
    /// writes.
    fn look_behind(&self, reader: &mut PoolReader<'_>, chain: &Chain, durable: &mut Durable<'_>) {
        if chain.end == End::NeverOpened {
            return;
        }
        let epoch = chain
            .frames
            .last()
            .map_or(self.root.epoch, |f| f.header.epoch);
        let later = |frame: &HeaderFrame| {
            self.is_ours(frame, epoch)
                && frame.header.seq > chain.next.seq
                && !is_void(&self.superblock.fences, frame)
        };
        let mut seen = BTreeSet::new();
        let mut ahead = vec![
            (chain.next.segment, chain.next.row + 1),
            (chain.next.next_segment, 0),
        ];
        while let Some((segment, from)) = ahead.pop() {
            if !reader.zones.contains(segment) || !seen.insert(segment) {
                continue;
            }
            let shape = *reader.zones.shape(segment);
            let next_chunk = from.next_multiple_of(shape.chunk_rows);
            // Each batch in between takes at least one row.
            let near = |frame: &HeaderFrame| {
                later(frame)
                    && frame.header.seq.0 - chain.next.seq.0
                        <= u64::from(frame.header.row - chain.next.row)
            };
            let mut found: Vec<HeaderFrame> = Vec::new();
            for (number, row) in (from..next_chunk.min(shape.rows)).enumerate() {
                found.extend(if number < REBUILT_BEHIND {
                    find_header(reader, segment, row, near)
                } else {
                    look_for_header(reader, segment, row, near)
                });
            }
            for (number, row) in (next_chunk..shape.rows)
                .step_by(shape.chunk_rows as usize)
                .enumerate()
            {
                found.extend(if number < REBUILT_BEHIND {
                    find_header(reader, segment, row, later)
                } else {
                    look_for_header(reader, segment, row, later)
                });
            }
            for frame in found {
                durable.said_by(&frame.header);
                ahead.push((frame.header.next_segment, 0));
            }
        }
    }
}

/// Table of cases: each chain end and each accepted batch is exactly one of them. True if the end
/// is damage.
fn judge(
    chain: &Chain,
    durable: &Durable<'_>,
    passed: Lsn,
    has_journal: bool,
    findings: &mut Findings,
) -> bool {
    let StreamPosition {
        segment, row, seq, ..
    } = chain.next;
    let (flushed, through) = (durable.seq(chain.stream), durable.through());
    let by_lsn = USERS.contains(&chain.stream)
        && (chain.stream == USERS[0] || chain.end != End::NeverOpened)
        && passed < through;
    let damaged = |why: &str| {
        let up_to = if seq <= flushed {
            format!("all up to {flushed} were")
        } else {
            format!("LSNs up to {through} were")
        };
        let nor = if has_journal && seq > flushed {
            ", and the journal does not have the missing part"
        } else {
            ""
        };
        let message = format!(
            "batch {seq} of stream {} was durable ({up_to}), but {why}{nor}",
            chain.stream
        );
        let severity = if chain.stream == CHECKPOINT {
            Severity::Note
        } else {
            Severity::Error
        };
        Finding::new(severity, FindingKind::BatchDamaged, message).at(segment, row)
    };
    if let Some(epoch) = chain.newer {
        let message = format!(
            "batch {seq} of stream {} is of epoch {epoch}, which no superblock knows: the newest superblocks are lost",
            chain.stream
        );
        findings
            .add(Finding::new(Severity::Error, FindingKind::SlotWrong, message).at(segment, row));
    }
    let was_durable = seq <= flushed || by_lsn;
    match (chain.end, was_durable) {
        (End::NeverOpened | End::Nothing | End::Void, false) => {}
        (End::Torn, false) => {
            let message = format!(
                "batch {seq} of stream {} is incomplete and does not count",
                chain.stream
            );
            findings.add(
                Finding::new(Severity::Note, FindingKind::BatchTorn, message).at(segment, row),
            );
        }
        (End::NeverOpened, true) => {
            findings.add(damaged("the checkpoint does not name the stream"))
        }
        (End::Nothing, true) => findings.add(damaged("it is missing")),
        (End::Void, true) => findings.add(damaged("a fence voids it")),
        (End::Torn, true) => findings.add(damaged("parts of it cannot be read or reconstructed")),
    }
    for whole in &chain.batches {
        let (header, flaws) = (&whole.batch.frame.header, whole.flaws);
        if !flaws.are_on_members() {
            continue;
        }
        let severity = if header.seq <= flushed {
            Severity::Repairable
        } else {
            Severity::Note
        };
        let message = format!(
            "batch {}: {} data and {} redundancy blocks are wrong",
            header.seq, flaws.wrong, flaws.redundancy
        );
        findings.add(
            Finding::new(severity, FindingKind::BatchIncomplete, message)
                .at(header.segment, header.row),
        );
    }
    was_durable
}

/// Sets the segments to what the chain has, not to what a page copied before a crash has. After the
/// damage in a `broken` chain of checkpoint pages rows may be in use, and only the page has them.
fn settle_segments(reader: &PoolReader<'_>, chain: &Chain, broken: bool, tables: &mut Tables) {
    let may_know_more = broken && chain.stream == CHECKPOINT;
    for whole in &chain.batches {
        let header = &whole.batch.frame.header;
        let segment = &mut tables.segments[header.segment.index()];
        if !(may_know_more && segment.stream == chain.stream && segment.last_seq >= header.seq) {
            segment.add(header);
        }
    }
    if !may_know_more && reader.zones.contains(chain.next.segment) {
        tables.segments[chain.next.segment.index()].truncate(chain.next.row);
    }
}

/// LSNs of user entries of batches that count.
fn used_by_batches(fences: &[Fence], chains: &[Chain]) -> Vec<(u64, u64)> {
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for whole in chains.iter().flat_map(|c| &c.batches) {
        let limit = batch_limit(fences, whole.batch.frame.header.epoch);
        for decoded in &whole.batch.entries {
            let Some((first, count)) = decoded.entry.lsns() else {
                continue;
            };
            let (first, last) = (first.0, (first.0 + (count - 1)).min(limit));
            match covered.last_mut() {
                _ if first > last => {}
                Some((_, end)) if *end + 1 == first => *end = last,
                _ => covered.push((first, last)),
            }
        }
    }
    covered
}

enum UserEntry<'a> {
    Data {
        lba: Lba,
        entry: MapEntry,
    },
    Fill {
        lba: Lba,
        state: FillState,
    },
    Range {
        lba: Lba,
        count: u64,
        state: RangeState,
    },
    Volume {
        change: &'a VolumeChange,
    },
    /// A block whose payload is only in the journal.
    Journalled {
        lba: Lba,
    },
}

/// An entry with its LSN and volume.
type Ordered<'a> = (Lsn, VolumeId, UserEntry<'a>);

/// Map entry for a payload of a batch.
fn entry_of(reader: &PoolReader<'_>, frame: &HeaderFrame, payload: &PayloadInfo) -> MapEntry {
    let first = u64::from(frame.header.row)
        * u64::from(frame.header.shape.data)
        * u64::from(FULL_BLOCK_UNITS);
    let address = reader
        .codec
        .pack(frame.header.segment, first + u64::from(payload.unit));
    MapEntry::stored(address, payload.units, payload.checksum)
}

/// User entries of batches above the checkpoint's LSN, up to the log's last LSN without a gap.
fn entries_of_batches<'c>(
    reader: &PoolReader<'_>,
    fences: &[Fence],
    root: &CheckpointRoot,
    chains: &'c [Chain],
    covered: Lsn,
) -> Vec<Ordered<'c>> {
    let mut entries = Vec::new();
    for whole in chains.iter().flat_map(|c| &c.batches) {
        let frame = &whole.batch.frame;
        let limit = covered.min(Lsn(batch_limit(fences, frame.header.epoch)));
        for decoded in &whole.batch.entries {
            let (lsn, volume, entry) = match &decoded.entry {
                Entry::Data { volume, lba, birth } => {
                    let Some(payload) = decoded.payload else {
                        continue;
                    };
                    let entry = entry_of(reader, frame, &payload);
                    let entry = if *volume == VolumeId::SHARED {
                        entry.with_incarnation(birth.0 as u32)
                    } else {
                        entry
                    };
                    (*birth, *volume, UserEntry::Data { lba: *lba, entry })
                }
                other => match without_payload(other) {
                    Some(entry) => entry,
                    None => continue,
                },
            };
            if lsn > root.lsn && lsn <= limit {
                entries.push((lsn, volume, entry));
            }
        }
    }
    entries
}

fn without_payload(entry: &Entry) -> Option<Ordered<'_>> {
    match entry {
        Entry::Fill {
            volume,
            lba,
            birth,
            state,
        } => Some((
            *birth,
            *volume,
            UserEntry::Fill {
                lba: *lba,
                state: *state,
            },
        )),
        Entry::Range {
            volume,
            lba,
            count,
            lsn,
            state,
        } => Some((
            *lsn,
            *volume,
            UserEntry::Range {
                lba: *lba,
                count: *count,
                state: *state,
            },
        )),
        Entry::Volume {
            volume,
            lsn,
            change,
        } => Some((*lsn, *volume, UserEntry::Volume { change })),
        Entry::Reference {
            volume,
            lba,
            birth,
            id,
            incarnation,
        } => Some((
            *birth,
            *volume,
            UserEntry::Data {
                lba: *lba,
                entry: MapEntry::shared(*id, *incarnation),
            },
        )),
        Entry::Data { .. } | Entry::Move { .. } | Entry::Covered { .. } | Entry::Page { .. } => {
            None
        }
    }
}

/// Entries of records with LSNs up to the recovery point that the log does not have.
fn entries_of_records<'j>(
    fences: &[Fence],
    journal: &'j Journal,
    log: &Coverage,
    accepted: Lsn,
) -> Vec<Ordered<'j>> {
    let mut entries = Vec::new();
    for record in journal.records() {
        let limit = accepted.0.min(record_limit(fences, record.header().epoch));
        for decoded in &record.decoded.entries {
            let entry = match &decoded.entry {
                Entry::Data { volume, lba, birth } => {
                    Some((*birth, *volume, UserEntry::Journalled { lba: *lba }))
                }
                other => without_payload(other),
            };
            entries.extend(entry.filter(|(lsn, ..)| lsn.0 <= limit && log.lacks(lsn.0, lsn.0)));
        }
    }
    entries
}

/// Applies user entries in ascending order. Returns the highest LSN applied to each block.
fn apply_user_entries(
    mut entries: Vec<Ordered<'_>>,
    tables: &mut Tables,
) -> HashMap<(VolumeId, Lba), Lsn> {
    // Stable, so that equal LSNs (which no correct pool has) apply in stream order.
    entries.sort_by_key(|(lsn, ..)| *lsn);
    let mut newest = HashMap::new();
    for (lsn, volume, entry) in entries {
        match entry {
            UserEntry::Data { lba, entry } => {
                tables.set(volume, lba, entry);
                newest.insert((volume, lba), lsn);
            }
            UserEntry::Fill { lba, state } => {
                tables.fill(volume, lba, state);
                newest.insert((volume, lba), lsn);
            }
            UserEntry::Journalled { lba } => {
                tables.set_journalled(volume, lba);
                newest.insert((volume, lba), lsn);
            }
            UserEntry::Range { lba, count, state } => tables.set_range(volume, lba, count, state),
            UserEntry::Volume { change } => tables.change_volume(volume, change),
        }
    }
    newest
}

/// A move takes effect if its block is still at its old address and was not written since.
fn apply_moves(
    reader: &PoolReader<'_>,
    chains: &[Chain],
    newest: &HashMap<(VolumeId, Lba), Lsn>,
    tables: &mut Tables,
) {
    // Of two moves of a block the second is a repair, and all repairs are in the first stream.
    let in_order = MOVES
        .iter()
        .flat_map(|stream| chains.iter().filter(move |c| c.stream == *stream));
    for whole in in_order.flat_map(|c| &c.batches) {
        for decoded in &whole.batch.entries {
            let (
                Entry::Move {
                    volume,
                    lba,
                    birth,
                    from,
                },
                Some(payload),
            ) = (&decoded.entry, decoded.payload)
            else {
                continue;
            };
            let current = tables.get(*volume, *lba);
            let rewritten = newest.get(&(*volume, *lba)).is_some_and(|lsn| lsn > birth);
            if current.has_payload() && current.address() == *from && !rewritten {
                tables.set(
                    *volume,
                    *lba,
                    entry_of(reader, &whole.batch.frame, &payload)
                        .with_incarnation(current.incarnation()),
                );
            }
        }
    }
}
