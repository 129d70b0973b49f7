//! Journals: which records count, what only they have, and the agreement of their copies.
//!
//! 1. Each chunk is read on all members that count. A copy that cannot be read as a whole is read
//!    block by block.
//! 2. Records are followed from the first byte of the chunk, each by any copy that verifies to the
//!    last byte, as long as numbers are consecutive and epochs do not fall. Where copies hold
//!    different records (a write was lost), the newest counts.
//! 3. Every header that verifies states what was durable when its record was created. This includes
//!    headers of records whose payload does not verify, and those at the end of such a record.
//! 4. A record is *needed* if it has an LSN up to the recovery point that the log does not have, or
//!    if such a record is reached through it. Copies of needed records are compared, and blocks
//!    that only they have are decompressed.

use crate::durable::{Coverage, Durable, record_limit};
use crate::reader::{Piece, PoolReader};
use crate::report::{Finding, FindingKind, Findings, JournalReport, Severity};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use windrow_format::batch::{DecodedEntry, Entry};
use windrow_format::journal::{
    DecodedRecord, RECORD_MAGIC, RecordHeader, decode_record, decode_record_header,
};
use windrow_format::superblock::{Fence, Superblock};
use windrow_geometry::JournalArea;
use windrow_types::{BLOCK_SIZE, BatchSeq, Epoch, Lba, Lsn, MemberId, PoolUuid, VolumeId};

/// A wrong copy of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WrongCopy {
    pub(crate) member: MemberId,
    /// True if it cannot be read, false if it differs.
    pub(crate) unreadable: bool,
}

/// A record that one of its copies verified to the last byte.
pub(crate) struct Record {
    pub(crate) decoded: DecodedRecord,
    /// Number of copies that were read.
    pub(crate) copies: usize,
    pub(crate) wrong: Vec<WrongCopy>,
    /// Blocks of it that cannot be decompressed, with their LSNs: a bug of the software that
    /// compressed them.
    not_decompressed: Vec<(Lsn, VolumeId, Lba)>,
}

impl Record {
    pub(crate) fn header(&self) -> &RecordHeader {
        &self.decoded.header
    }

    /// LSNs of it that count; `None` if a fence voids all of them.
    pub(crate) fn lsns(&self, fences: &[Fence]) -> Option<(u64, u64)> {
        let header = self.header();
        let last = header.last.0.min(record_limit(fences, header.epoch));
        (header.first.0 <= last).then_some((header.first.0, last))
    }
}

/// Content of a chunk.
#[derive(Default)]
pub(crate) struct Chunk {
    /// Reachable records.
    pub(crate) records: Vec<Record>,
    /// Header of the incomplete record at which they end, if there is one.
    pub(crate) torn: Option<RecordHeader>,
    /// Durable LSNs recorded in its headers.
    claims: Vec<(Epoch, Lsn)>,
    /// Highest epoch of a record at its start, whether it counts or not.
    newest: Epoch,
}

/// Reads a chunk; `None` if nothing was ever written to it. Only records of these epochs count.
pub(crate) fn read_chunk(
    reader: &mut PoolReader<'_>,
    area: &JournalArea,
    chunk: u32,
    epochs: &RangeInclusive<Epoch>,
) -> Option<Chunk> {
    let begins =
        |piece: &Piece| !piece.is_whole(0..BLOCK_SIZE) || piece.bytes.starts_with(&RECORD_MAGIC);
    let addresses: Vec<(MemberId, u64)> = area.copies_of(chunk).collect();
    if !reader.pieces(&addresses, BLOCK_SIZE).iter().any(begins) {
        return None;
    }
    let copies = reader.pieces(&addresses, area.chunk_bytes as usize);
    Some(
        Follow {
            pool: reader.pool,
            area,
            chunk,
            epochs,
            copies: &copies,
        }
        .run(),
    )
}

/// Copies of a chunk whose records are followed.
struct Follow<'c> {
    pool: PoolUuid,
    area: &'c JournalArea,
    chunk: u32,
    epochs: &'c RangeInclusive<Epoch>,
    copies: &'c [Piece],
}

impl Follow<'_> {
    fn run(&self) -> Chunk {
        let newest = self
            .all_headers(0)
            .map(|(h, _)| h.epoch)
            .max()
            .unwrap_or_default();
        let mut found = Chunk {
            newest,
            ..Chunk::default()
        };
        let mut at = 0;
        let mut before = None;
        loop {
            let is_next = |h: &RecordHeader| {
                before.is_none_or(|(epoch, seq): (Epoch, BatchSeq)| {
                    h.epoch >= epoch && h.seq == seq.next()
                })
            };
            let heads = self.headers(at);
            found
                .claims
                .extend(heads.iter().map(|(h, _)| (h.epoch, h.durable)));
            let newest = heads
                .iter()
                .map(|(h, _)| h)
                .filter(|h| is_next(h))
                .max_by_key(|h| (h.epoch, h.seq))
                .cloned();
            let Some(record) = self.record(at, is_next) else {
                found.torn = found.torn.or(newest);
                break;
            };
            let header = record.header();
            // The newest incarnation of the chunk has no whole copy, a previous one has.
            found.torn = found
                .torn
                .or(newest.filter(|h| (h.epoch, h.seq) > (header.epoch, header.seq)));
            before = Some((header.epoch, header.seq));
            at += record.decoded.length as usize;
            found.records.push(record);
        }
        while let Some((_, length)) = self
            .headers(at)
            .into_iter()
            .max_by_key(|(h, _)| (h.epoch, h.seq))
        {
            at += length as usize;
            found
                .claims
                .extend(self.headers(at).iter().map(|(h, _)| (h.epoch, h.durable)));
        }
        found
    }

    /// Every header of these epochs at a byte of the chunk, with the length of its record.
    fn headers(&self, at: usize) -> Vec<(RecordHeader, u64)> {
        self.all_headers(at)
            .filter(|(h, _)| self.epochs.contains(&h.epoch))
            .collect()
    }

    /// The same of any epoch.
    fn all_headers(&self, at: usize) -> impl Iterator<Item = (RecordHeader, u64)> {
        let decode = move |copy: &Piece| {
            decode_record_header(
                copy.bytes.get(at..)?,
                &self.pool,
                self.chunk,
                at as u32,
                self.area.granule,
            )
            .ok()
        };
        self.copies.iter().filter_map(decode)
    }

    /// The record at a byte of the chunk.
    fn record(&self, at: usize, is_next: impl Fn(&RecordHeader) -> bool) -> Option<Record> {
        let decode = |copy: &Piece| {
            let record = decode_record(
                copy.bytes.get(at..)?,
                &self.pool,
                self.chunk,
                at as u32,
                self.area.granule,
            )
            .ok()?;
            let counts = self.epochs.contains(&record.header.epoch) && is_next(&record.header);
            (counts && copy.is_whole(at..at + record.length as usize)).then_some(record)
        };
        let whole = self
            .copies
            .iter()
            .filter_map(|copy| Some((decode(copy)?, copy)));
        let (decoded, right) =
            whole.max_by_key(|(record, _)| (record.header.epoch, record.header.seq))?;
        let range = at..at + decoded.length as usize;
        let wrong = self.copies.iter().filter_map(|copy| {
            let unreadable = !copy.is_whole(range.clone());
            (unreadable || copy.bytes[range.clone()] != right.bytes[range.clone()]).then_some(
                WrongCopy {
                    member: copy.member,
                    unreadable,
                },
            )
        });
        let (wrong, not_decompressed) = (
            wrong.collect(),
            not_decompressed(&decoded, &right.bytes[at..]),
        );
        Some(Record {
            wrong,
            not_decompressed,
            copies: self.copies.len(),
            decoded,
        })
    }
}

/// Blocks of a record that verify but do not decompress.
fn not_decompressed(record: &DecodedRecord, bytes: &[u8]) -> Vec<(Lsn, VolumeId, Lba)> {
    let mut block = [0; BLOCK_SIZE];
    let mut is_wrong = |stored: &[u8]| {
        stored.len() < BLOCK_SIZE && !windrow_reduction::decompress(stored, &mut block)
    };
    let wrong = record.entries.iter().filter(|entry| {
        entry
            .payload
            .as_ref()
            .is_some_and(|info| is_wrong(record.payload(bytes, info)))
    });
    let key = |entry: &DecodedEntry| match entry.entry {
        Entry::Data { volume, lba, birth } => Some((birth, volume, lba)),
        _ => None,
    };
    wrong.filter_map(key).collect()
}

/// One journal of a pool.
struct Ring {
    area: JournalArea,
    external: bool,
    chunks: Vec<Chunk>,
}

/// Contents of all journals.
pub(crate) struct Journal {
    rings: Vec<Ring>,
    /// Epoch of the superblock.
    known: Epoch,
}

/// Areas of a pool's journals, and whether they are on dedicated devices.
pub(crate) fn areas(superblock: &Superblock) -> impl Iterator<Item = (JournalArea, bool)> + use<> {
    let journals = superblock.journals;
    journals
        .internal
        .map(|area| (area, false))
        .into_iter()
        .chain(journals.external.map(|area| (area, true)))
}

impl Journal {
    /// Reads all chunks. Records readmitted by a start are durable in the log before a checkpoint
    /// begins, so records of epochs below `since`, that of the root, do not count.
    pub(crate) fn read(reader: &mut PoolReader<'_>, superblock: &Superblock, since: Epoch) -> Self {
        let epochs = since..=superblock.epoch;
        let mut ring = |(area, external): (JournalArea, bool)| {
            let chunks = (0..area.chunks)
                .filter_map(|chunk| read_chunk(reader, &area, chunk, &epochs))
                .collect();
            Ring {
                area,
                external,
                chunks,
            }
        };
        Self {
            rings: areas(superblock).map(&mut ring).collect(),
            known: superblock.epoch,
        }
    }

    /// Adds the durable LSNs of the records.
    pub(crate) fn claim(&self, durable: &mut Durable<'_>) {
        let claims = self
            .rings
            .iter()
            .flat_map(|ring| &ring.chunks)
            .flat_map(|chunk| &chunk.claims);
        claims.for_each(|(epoch, through)| durable.said_otherwise(*epoch, *through));
    }

    /// The records, chunk by chunk.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.rings
            .iter()
            .flat_map(|ring| &ring.chunks)
            .flat_map(|chunk| &chunk.records)
    }

    /// Judges copies and ends, once the LSNs of the log and the recovery point are known.
    pub(crate) fn judge(
        &self,
        fences: &[Fence],
        log: &Coverage,
        all: &Coverage,
        through: Lsn,
        findings: &mut Findings,
    ) -> Vec<JournalReport> {
        let newest = self
            .rings
            .iter()
            .flat_map(|ring| &ring.chunks)
            .map(|chunk| chunk.newest)
            .max()
            .unwrap_or_default();
        if newest > self.known {
            let message = format!(
                "the journal has a record of epoch {newest}, which no superblock knows: the newest superblocks are lost"
            );
            findings.add(Finding::new(
                Severity::Error,
                FindingKind::SlotWrong,
                message,
            ));
        }
        self.rings
            .iter()
            .map(|ring| ring.judge(fences, log, all, through, findings))
            .collect()
    }
}

impl Ring {
    fn judge(
        &self,
        fences: &[Fence],
        log: &Coverage,
        all: &Coverage,
        through: Lsn,
        findings: &mut Findings,
    ) -> JournalReport {
        let mut report = JournalReport::of(&self.area, self.external);
        for chunk in &self.chunks {
            report.records += chunk.records.len() as u64;
            let brings = |record: &Record| {
                record
                    .lsns(fences)
                    .is_some_and(|(first, last)| log.lacks(first, last.min(all.highest().0)))
            };
            let needed = chunk
                .records
                .iter()
                .rposition(brings)
                .map_or(0, |last| last + 1);
            report.chunks_in_use += u32::from(needed > 0);
            report.records_needed += needed as u64;
            compare_copies(&chunk.records[..needed], through, &mut report, findings);
            for record in &chunk.records[..needed] {
                let counts = |lsn: &Lsn| {
                    record
                        .lsns(fences)
                        .is_some_and(|(_, last)| lsn.0 <= last.min(all.highest().0))
                        && log.lacks(lsn.0, lsn.0)
                };
                for (_, volume, lba) in record
                    .not_decompressed
                    .iter()
                    .filter(|(lsn, ..)| counts(lsn))
                {
                    let message = format!(
                        "volume {volume}, block {lba}: its bytes in journal record {} are right, but they cannot be decompressed",
                        record.header().seq
                    );
                    let finding = Finding::new(Severity::Error, FindingKind::BlockWrong, message)
                        .chunk(record.header().chunk);
                    findings.add(Finding {
                        volume: Some(*volume),
                        lba: Some(*lba),
                        ..finding
                    });
                }
            }
            if let Some(torn) = &chunk.torn {
                judge_end(torn, fences, all.passed(), through, findings);
            }
        }
        report
    }
}

/// Counts the copies of needed records of a chunk and reports those that are wrong, each member
/// once.
fn compare_copies(
    records: &[Record],
    through: Lsn,
    report: &mut JournalReport,
    findings: &mut Findings,
) {
    let mut by_member: BTreeMap<MemberId, Vec<(&RecordHeader, bool)>> = BTreeMap::new();
    for record in records {
        report.copies_compared += record.copies as u64;
        report.copies_wrong += record.wrong.len() as u64;
        for wrong in &record.wrong {
            by_member
                .entry(wrong.member)
                .or_default()
                .push((record.header(), wrong.unreadable));
        }
    }
    for (member, wrong) in by_member {
        // A copy of a record that no flush covered need not have arrived.
        let was_durable = wrong.iter().any(|(header, _)| header.last <= through);
        let severity = if was_durable {
            Severity::Repairable
        } else {
            Severity::Note
        };
        let what = if wrong.iter().any(|(_, unreadable)| *unreadable) {
            "cannot be read"
        } else {
            "is wrong"
        };
        let (first, last) = (wrong[0].0, wrong[wrong.len() - 1].0);
        let message = format!(
            "copies of journal records {} to {}: this one {what}, another one verifies",
            first.seq, last.seq
        );
        findings.add(
            Finding::new(severity, FindingKind::JournalCopyWrong, message)
                .member(member)
                .chunk(first.chunk),
        );
    }
}

/// A record of which only the header is left: the torn end of the journal, or damage if a durable
/// mark covers it.
fn judge_end(
    torn: &RecordHeader,
    fences: &[Fence],
    passed: Lsn,
    through: Lsn,
    findings: &mut Findings,
) {
    let (seq, first, last) = (
        torn.seq,
        torn.first,
        torn.last.0.min(record_limit(fences, torn.epoch)),
    );
    if first.0 > last || last <= passed.0 {
        return;
    }
    let (severity, kind, what) = match first <= through && passed < through {
        true => (
            Severity::Error,
            FindingKind::JournalDamaged,
            "was durable, but no copy of it verifies",
        ),
        false => (
            Severity::Note,
            FindingKind::JournalTorn,
            "is incomplete and does not count",
        ),
    };
    let message = format!(
        "journal record {seq} at byte {} (LSNs {first} to {}) {what}",
        torn.offset, torn.last
    );
    findings.add(Finding::new(severity, kind, message).chunk(torn.chunk));
}

/// Checks that the area lies on the members that it names.
pub(crate) fn check_area(
    superblock: &Superblock,
    sizes: impl Fn(MemberId) -> Option<u64>,
    findings: &mut Findings,
) {
    for (area, _) in areas(superblock) {
        for member in members_of(&area) {
            let recorded = superblock
                .members
                .get(member.index())
                .map_or(0, |record| record.size_bytes);
            let usable = sizes(member).map_or(recorded, |size| size.min(recorded));
            if area.end() > usable {
                let message = format!(
                    "the journal ends at byte {}, the member has {usable}",
                    area.end()
                );
                findings.add(
                    Finding::new(Severity::Error, FindingKind::JournalMisplaced, message)
                        .member(member),
                );
            }
        }
        for zone in superblock
            .zones
            .iter()
            .filter(|zone| zone.members & area.members != 0)
        {
            let zone_end = zone.start + zone.extents() * zone.shape.extent_bytes();
            if area.start < zone_end && zone.start < area.end() {
                let message = format!(
                    "the journal lies in the zone of segment {}",
                    zone.first_segment
                );
                findings.add(Finding::new(
                    Severity::Error,
                    FindingKind::JournalMisplaced,
                    message,
                ));
            }
        }
    }
}

/// Members that hold the journal.
pub(crate) fn members_of(area: &JournalArea) -> impl Iterator<Item = MemberId> + use<> {
    let mask = area.members;
    (0..64u8).filter(move |m| mask >> m & 1 == 1).map(MemberId)
}

#[cfg(test)]
mod tests;
