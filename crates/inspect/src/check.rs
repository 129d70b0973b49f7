//! Check of a whole pool: load, replay, then compare all references with the members' content.
//!
//! 1. Members and superblocks; the newest readable checkpoint; replay.
//! 2. Maps: every entry is possible, and no two share an address.
//! 3. Segments: batch starts, head and tail of every batch, the entry of every reference; on
//!    request payload and redundancy.
//! 4. Batches that only the older checkpoint's replay needs, and sums.
//!
//! Memory:
//! - maps of the checkpoint: 16 bytes for each block of touched pages (limited by
//!   [`CheckOptions::map_bytes`]) and 40 bytes for each of its pages;
//! - references: 40 bytes for each live block of a part of the segments
//!   ([`references::REFERENCES_AT_ONCE`]);
//! - replay: some 250 bytes for each entry, bounded only by the pace of checkpoints;
//! - some 35 bytes for each shared content.

mod index;
mod payload;
mod redundancy;
mod references;
mod space;

use crate::batches::{Expected, all_headers, find_ends, find_header};
use crate::image::{self, Image, ImageError, PageRef, exists};
use crate::journal;
use crate::members::inspect_members;
use crate::reader::{FAILED_IN_A_ROW, Origin, PoolReader, Rows};
use crate::replay::{Replay, is_void, replay};
use crate::report::{
    CheckReport, Finding, FindingKind, Findings, InspectReport, Severity, VolumeReport,
};
use crate::state::{Segment, Tables};
use index::severity_of_loss;
use references::{
    MOST_PARTS, Owner, REFERENCES_AT_ONCE, Reference, collect_references, count_references,
    parts_of,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::batch::{DecodedBatch, DecodedEntry, Entry, HeaderFrame, PayloadInfo};
use windrow_format::checkpoint::VolumeState;
use windrow_format::superblock::{CheckpointRoot, Fence, PoolState, Superblock};
use windrow_io::MemberIo;
use windrow_types::{
    Address, BLOCK_SIZE, BatchSeq, Epoch, FULL_BLOCK_UNITS, Lba, Lsn, SegmentId, VolumeId,
};

/// Extent of a check in addition to structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckOptions {
    /// Read every live block and verify its checksum; also read every page of the older checkpoint.
    pub verify_payload: bool,
    /// Read every batch of live segments completely; verify its redundancy and its dead payload and
    /// padding.
    pub verify_parity: bool,
    /// Limit of map memory, measured as at a start; while a check runs the maps may take slightly
    /// more than twice that. Nothing is checked if they need more.
    pub map_bytes: u64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            verify_payload: false,
            verify_parity: false,
            map_bytes: u64::MAX,
        }
    }
}

impl CheckOptions {
    /// Options that read everything.
    pub fn everything() -> Self {
        Self {
            verify_payload: true,
            verify_parity: true,
            ..Self::default()
        }
    }
}

/// Part of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckPhase {
    /// Labels and superblocks.
    Members,
    /// Loading a checkpoint.
    Checkpoint,
    /// Replay of batches.
    Replay,
    /// Segments.
    Segments,
}

/// Progress of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CheckProgress {
    /// Current part.
    pub phase: CheckPhase,
    /// Segments done (0 in the other phases).
    pub done: u64,
    /// Total number of segments (0 in the other phases).
    pub total: u64,
    /// Bytes read so far.
    pub read_bytes: u64,
}

/// Members whose content counts, as a bit mask.
pub(crate) fn usable_members(report: &InspectReport) -> u64 {
    report
        .members
        .iter()
        .filter(|m| m.usable)
        .fold(0, |mask, m| mask | 1 << m.member.0)
}

/// Retired journal devices that may be read if durable LSNs are missing, as a bit mask.
pub(crate) fn members_retired(report: &InspectReport) -> u64 {
    report
        .members
        .iter()
        .filter(|m| m.retired)
        .fold(0, |mask, m| mask | 1 << m.member.0)
}

/// Checks a pool. Writes nothing and corrects nothing.
pub fn check(
    io: &mut dyn MemberIo,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> CheckReport {
    progress(CheckProgress {
        phase: CheckPhase::Members,
        done: 0,
        total: 0,
        read_bytes: 0,
    });
    let members = inspect_members(io);
    let (usable, retired) = (usable_members(&members), members_retired(&members));
    let mut report = CheckReport {
        findings: members.findings,
        ..Default::default()
    };
    if let Some(newer) = report
        .findings
        .list
        .iter()
        .find(|finding| finding.kind == FindingKind::NewerSoftware)
    {
        report.failure = Some(format!("used by newer software: {}", newer.message));
        return report;
    }
    let Some(superblock) = members.newest else {
        report.failure = Some("no member has a valid superblock".to_owned());
        return report;
    };
    (report.pool, report.pool_name, report.generation) = (
        superblock.pool,
        superblock.pool_name.clone(),
        superblock.generation,
    );
    if superblock.state == PoolState::Destroyed {
        report.failure = Some("the pool was destroyed".to_owned());
        return report;
    }
    let sizes: Vec<Option<u64>> = members
        .members
        .iter()
        .map(|m| m.present.then_some(m.size_bytes))
        .collect();
    journal::check_area(
        &superblock,
        |member| sizes.get(member.index()).copied().flatten(),
        &mut report.findings,
    );
    if usable == 0 {
        // (The size in its superblock does not count either.)
        report.failure = Some("no member can be used".to_owned());
        return report;
    }
    let mut reader = PoolReader::new(io, &superblock, usable).with_retired(retired);
    progress(CheckProgress {
        phase: CheckPhase::Checkpoint,
        done: 0,
        total: 0,
        read_bytes: reader.read_bytes,
    });
    match load_newest(&mut reader, &superblock, options, &mut report.findings) {
        Ok((root, image)) => {
            report.checkpoint = root.id;
            check_from(
                &mut reader,
                &superblock,
                &root,
                image,
                options,
                &mut report,
                progress,
            );
        }
        Err(failure) => report.failure = Some(failure),
    }
    for member in reader.given_up() {
        let message = format!(
            "it does not answer reads: treated as absent after {FAILED_IN_A_ROW} consecutive failures"
        );
        report.findings.add_first(
            Finding::new(Severity::Repairable, FindingKind::MemberAbsent, message).member(member),
        );
    }
    report.read_bytes = reader.read_bytes;
    report
}

/// Loads the newest readable checkpoint. A pool has one from its creation on.
fn load_newest(
    reader: &mut PoolReader<'_>,
    superblock: &Superblock,
    options: &CheckOptions,
    findings: &mut Findings,
) -> Result<(CheckpointRoot, Image), String> {
    let roots: Vec<&CheckpointRoot> = superblock.checkpoints.iter().flatten().collect();
    let mut loaded = None;
    for root in &roots {
        if loaded.is_some() && !options.verify_payload {
            break;
        }
        // The older one only has to be readable.
        let keep = loaded.is_none();
        match image::load(reader, root, keep.then_some(options.map_bytes)) {
            Err(ImageError::Memory(bytes)) => {
                let message = format!("the maps need more than {bytes} bytes of memory");
                findings.add(Finding::new(
                    Severity::Error,
                    FindingKind::MapMemory,
                    message.clone(),
                ));
                return Err(message);
            }
            Ok(image) => {
                if image.rebuilt > 0 {
                    let message = format!(
                        "checkpoint {}: {} pages were reconstructed from redundancy",
                        root.id, image.rebuilt
                    );
                    findings.add(Finding::new(
                        Severity::Repairable,
                        FindingKind::CheckpointWrong,
                        message,
                    ));
                }
                if image.lost_counters {
                    let message = format!(
                        "checkpoint {}: the counters cannot be read or reconstructed; they are informative only and restart at zero",
                        root.id
                    );
                    findings.add(Finding::new(
                        Severity::Repairable,
                        FindingKind::CheckpointWrong,
                        message,
                    ));
                }
                loaded = loaded.or(Some((**root, image)));
            }
            Err(error) => {
                let message = format!("checkpoint {}: {error}", root.id);
                findings.add(Finding::new(
                    Severity::Error,
                    FindingKind::CheckpointWrong,
                    message,
                ));
            }
        }
    }
    loaded.ok_or_else(|| {
        if roots.is_empty() {
            "the superblock names no checkpoint"
        } else {
            "no checkpoint can be read"
        }
        .to_owned()
    })
}

fn check_from(
    reader: &mut PoolReader<'_>,
    superblock: &Superblock,
    root: &CheckpointRoot,
    image: Image,
    options: &CheckOptions,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) {
    progress(CheckProgress {
        phase: CheckPhase::Replay,
        done: 0,
        total: 0,
        read_bytes: reader.read_bytes,
    });
    let Image {
        mut tables, pages, ..
    } = image;
    let mut replayed = replay(reader, superblock, root, &mut tables, &mut report.findings);
    (report.recovery_lsn, report.flushed_through, report.streams) = (
        replayed.recovery_lsn,
        replayed.flushed_through,
        std::mem::take(&mut replayed.streams),
    );
    (report.log_lsn, report.journals) = (replayed.log_lsn, std::mem::take(&mut replayed.journals));
    check_volumes(&tables, &mut report.findings);
    tables.drop_unreachable();
    let shared = tables.settle_shared();
    (report.contents, report.references) = (shared.len() as u64, shared.values().sum());
    report.index_pages = tables
        .entries()
        .filter(|(volume, ..)| *volume == VolumeId::INDEX)
        .count() as u64;
    let live = count_references(reader, &tables, &pages, report);
    check_extents(reader, &live, &mut report.findings);
    report.journal_blocks = report
        .volumes
        .iter()
        .map(|volume| volume.journal_blocks)
        .sum();
    (report.live_blocks, report.live_segments) = (report.journal_blocks, live.len() as u64);
    space::check_older_replay(reader, superblock, root, &tables.segments, report, &live);
    space::sum_up(reader, superblock, &tables.segments, &live, report);
    let (mut done, total, codecs) = (0, live.len() as u64, windrow_reduction::Codecs::default());
    for part in parts_of(
        &live,
        REFERENCES_AT_ONCE.max(live.values().sum::<u64>() / MOST_PARTS),
    ) {
        let references = collect_references(reader, &tables, &pages, &part, &mut report.findings);
        report.live_blocks += references.len() as u64;
        space::add_live(&references, report);
        for lost in references
            .iter()
            .filter(|r| !options.verify_payload && replayed.lost.contains(&r.address))
        {
            let message = format!(
                "{}: lost: wrong on its member, and unrecoverable from its row",
                lost.owner
            );
            report.findings.add(lost.owner.mark(Finding::new(
                lost.owner.severity_of_loss(),
                FindingKind::BlockWrong,
                message,
            )));
        }
        let codec = reader.codec;
        for references in
            references.chunk_by(|a, b| codec.segment(a.address) == codec.segment(b.address))
        {
            progress(CheckProgress {
                phase: CheckPhase::Segments,
                done,
                total,
                read_bytes: reader.read_bytes,
            });
            let segment = codec.segment(references[0].address);
            let (fences, flags) = (&superblock.fences[..], superblock.features.incompatible);
            let mut check = SegmentCheck {
                reader,
                options,
                report,
                segment,
                references,
                replayed: &replayed,
                tables: &tables,
                fences,
                codecs: &codecs,
                flags,
                misses_flag: false,
            };
            check.run(&tables.segments[segment.index()]);
            done += 1;
        }
    }
    progress(CheckProgress {
        phase: CheckPhase::Segments,
        done: total,
        total,
        read_bytes: reader.read_bytes,
    });
}

/// True if the batch ends where the segment table records it.
fn ends_as_recorded(frame: &HeaderFrame, recorded: &Segment) -> bool {
    let header = &frame.header;
    header.row + header.rows == recorded_end(header.row, recorded)
}

/// Row after a batch that begins at this one, according to the segment table.
fn recorded_end(row: u32, recorded: &Segment) -> u32 {
    recorded
        .start_rows()
        .into_iter()
        .find(|start| *start > row)
        .unwrap_or(recorded.filled_rows)
}

/// Segments of two layouts may share extents; at most one of them may hold live data.
fn check_extents(
    reader: &PoolReader<'_>,
    live: &BTreeMap<SegmentId, u64>,
    findings: &mut Findings,
) {
    if !reader.zones.has_superseded() {
        return;
    }
    for segment in live.keys() {
        for other in reader
            .zones
            .overlapping(*segment)
            .iter()
            .filter(|other| *other < segment && live.contains_key(other))
        {
            let message = format!(
                "segment {segment} and segment {other} of another layout share extents, and both hold live blocks"
            );
            findings.add(
                Finding::new(Severity::Error, FindingKind::ExtentShared, message).at(*segment, 0),
            );
        }
    }
}

fn check_volumes(tables: &Tables, findings: &mut Findings) {
    let mut names: BTreeMap<&str, VolumeId> = BTreeMap::new();
    for volume in tables
        .volumes
        .values()
        .filter(|v| v.state == VolumeState::Active)
    {
        if let Some(other) = names.insert(&volume.name, volume.id) {
            let message = format!(
                "volumes {other} and {} have the same name {:?}",
                volume.id, volume.name
            );
            let mut finding = Finding::new(Severity::Error, FindingKind::VolumeWrong, message);
            finding.volume = Some(volume.id);
            findings.add(finding);
        }
    }
}

/// Check of one segment that holds live blocks.
struct SegmentCheck<'c, 'r, 'a> {
    reader: &'r mut PoolReader<'a>,
    options: &'c CheckOptions,
    report: &'c mut CheckReport,
    segment: SegmentId,
    /// References to the segment, in order of addresses.
    references: &'c [Reference],
    replayed: &'c Replay,
    tables: &'c Tables,
    fences: &'c [Fence],
    codecs: &'c windrow_reduction::Codecs,
    /// Incompatible feature flags of the pool.
    flags: u64,
    /// A flag has been found missing.
    misses_flag: bool,
}

/// A batch of a segment, as far as it is readable.
struct Found {
    frame: HeaderFrame,
    rows: Rows,
    batch: Option<DecodedBatch>,
    /// Only its address identifies the batch: it does not predict the batch after it.
    is_alone: bool,
}

impl SegmentCheck<'_, '_, '_> {
    fn add(&mut self, finding: Finding) {
        self.report.findings.add(finding);
    }

    fn run(&mut self, recorded: &Segment) {
        let mut starts = Vec::new();
        let mut row = 0;
        let mut expected = Expected {
            stream: recorded.stream,
            seq: recorded.first_seq(),
            epoch: Epoch(0),
            or_later: false,
        };
        let mut rest = self.references;
        while row < recorded.filled_rows {
            let least = if row == 0 { BatchSeq(0) } else { expected.seq };
            let beyond = Expected {
                seq: least,
                or_later: true,
                ..expected
            };
            let Some(Found {
                frame,
                mut rows,
                batch,
                is_alone,
            }) = self.find(row, &expected, rest, recorded)
            else {
                let next = recorded_end(row, recorded);
                rest = self.unreadable(row..next, rest);
                starts.extend(recorded.start_rows().contains(&row).then_some(row));
                (expected, row) = (beyond, next);
                continue;
            };
            starts.push(row);
            expected = if is_alone {
                beyond
            } else {
                Expected::after(&frame)
            };
            row += frame.header.rows;
            let inside;
            (inside, rest) = self.split(&frame, rest);
            match batch {
                Some(batch) => self.batch(&mut rows, &batch, inside),
                None => {
                    // As for a batch without a readable header: if a scrub has moved its live
                    // blocks away, the rest is no loss.
                    let severity = severity_of_loss(inside);
                    let message = format!(
                        "head or tail of batch {} cannot be read or reconstructed",
                        frame.header.seq
                    );
                    self.add(
                        Finding::new(severity, FindingKind::BatchDamaged, message)
                            .at(self.segment, rows.row),
                    );
                    self.blocks(&mut rows, None, inside);
                }
            }
        }
        for reference in rest {
            let at = self
                .reader
                .zones
                .shape(self.segment)
                .row_hint(self.reader.codec.block(reference.address));
            let message = format!("{} is where no batch is recorded", reference.owner);
            self.add(
                reference
                    .owner
                    .mark(Finding::new(
                        Severity::Error,
                        FindingKind::MapMismatch,
                        message,
                    ))
                    .at(self.segment, at),
            );
        }
        let recorded_starts = recorded.start_rows();
        if row >= recorded.filled_rows && (recorded_starts != starts || row > recorded.filled_rows)
        {
            let difference = recorded_starts
                .iter()
                .zip(&starts)
                .position(|(a, b)| a != b)
                .unwrap_or(starts.len().min(recorded_starts.len()));
            let at = starts.get(difference).copied().unwrap_or(row);
            let message = format!(
                "{} batches of {row} rows on the members, {} of {} rows in the table",
                starts.len(),
                recorded_starts.len(),
                recorded.filled_rows
            );
            self.add(
                Finding::new(Severity::Error, FindingKind::StartsMismatch, message)
                    .at(self.segment, at),
            );
        }
    }

    /// Rows without a readable header, up to the next recorded batch: a lost batch, or rows that a
    /// salvage found unreadable. Nothing is lost if no reference points into them. Returns the
    /// references after them.
    fn unreadable<'s>(
        &mut self,
        rows: std::ops::Range<u32>,
        references: &'s [Reference],
    ) -> &'s [Reference] {
        let (inside, rest) = self.split_at(rows.end, references);
        let severity = severity_of_loss(inside);
        let message = format!(
            "no batch header in rows {} to {}, which hold a batch",
            rows.start, rows.end
        );
        self.add(
            Finding::new(severity, FindingKind::BatchDamaged, message).at(self.segment, rows.start),
        );
        for reference in inside {
            let at = self
                .reader
                .zones
                .shape(self.segment)
                .row_hint(self.reader.codec.block(reference.address));
            let message = format!("{} is where no batch can be read", reference.owner);
            self.add(
                reference
                    .owner
                    .mark(Finding::new(
                        reference.owner.severity_of_loss(),
                        FindingKind::MapMismatch,
                        message,
                    ))
                    .at(self.segment, at),
            );
        }
        rest
    }

    /// Finds the batch at a row. After a lost write a header of the previous incarnation may be
    /// there as well; after a rewrite following a crash, one of the same number. If the first
    /// header does not fit the tables, all headers are tried, newest first.
    ///
    /// A header that ends elsewhere than the table records is no table error if the batch is
    /// unreadable, or if the next batch is where the table has it. It is void then, and the valid
    /// batch is missing (seed 10142256).
    fn find(
        &mut self,
        row: u32,
        expected: &Expected,
        references: &[Reference],
        recorded: &Segment,
    ) -> Option<Found> {
        let epoch = self.replayed.epochs.get(&(self.segment, row)).copied();
        let fences = self.fences;
        let accept = |f: &HeaderFrame| {
            expected.matches(f)
                && epoch.is_none_or(|epoch| f.header.epoch == epoch)
                && !is_void(fences, f)
        };
        if expected.or_later {
            return self.find_alone(row, accept, references, recorded);
        }
        let Some(frame) = find_header(self.reader, self.segment, row, accept) else {
            // The number of the first one is only computed.
            return if row == 0 {
                self.find_alone(row, |_| true, references, recorded)
            } else {
                None
            };
        };
        let first = self.load(frame);
        if self.fits(&first, references, recorded) {
            return Some(first);
        }
        let mut others: Vec<Found> = all_headers(self.reader, self.segment, row, accept)
            .into_iter()
            .map(|frame| self.load(frame))
            .collect();
        let fitting = others
            .iter()
            .position(|found| self.fits(found, references, recorded));
        let best = fitting.or_else(|| others.iter().position(|found| found.batch.is_some()));
        let best = best.map_or(first, |best| others.swap_remove(best));
        let counts = ends_as_recorded(&best.frame, recorded)
            || best.batch.is_some() && !self.goes_on_as_recorded(&best.frame, recorded);
        Some(best).filter(|_| counts)
    }

    /// Finds a batch whose number is unknown. A header of a previous incarnation (all that is left
    /// if other members are absent) does not predict the following batch. The batch is therefore
    /// identified by its live entries, or by its successors up to the last one, whose number is
    /// recorded. Otherwise it is used only for the references into it.
    fn find_alone(
        &mut self,
        row: u32,
        accept: impl Fn(&HeaderFrame) -> bool,
        references: &[Reference],
        recorded: &Segment,
    ) -> Option<Found> {
        let mut alive = None;
        for frame in all_headers(self.reader, self.segment, row, accept) {
            let is_followed = self.is_followed(&frame, recorded);
            let found = self.load(frame);
            // (Where it ends elsewhere than the table records, rows after the recorded end belong
            // to other batches: seed 10429145.)
            let rows = if ends_as_recorded(&found.frame, recorded) {
                found.frame.header.rows
            } else {
                recorded_end(row, recorded) - row
            };
            let is_alive = !self.split_at(row + rows, references).0.is_empty();
            if is_followed || is_alive && self.fits(&found, references, recorded) {
                return Some(found);
            }
            if is_alive && alive.is_none() {
                alive = Some(Found {
                    is_alone: true,
                    ..found
                });
            }
        }
        alive
    }

    /// True if the batch with the next number is where the table has the next one.
    fn goes_on_as_recorded(&mut self, frame: &HeaderFrame, recorded: &Segment) -> bool {
        let expected = Expected {
            epoch: Epoch(0),
            ..Expected::after(frame)
        };
        let next = recorded
            .start_rows()
            .into_iter()
            .find(|start| *start > frame.header.row);
        next.is_some_and(|next| {
            find_header(self.reader, self.segment, next, |f| expected.matches(f)).is_some()
        })
    }

    /// True if the batches after it follow it, up to the last one of the segment.
    fn is_followed(&mut self, frame: &HeaderFrame, recorded: &Segment) -> bool {
        let mut last = Some(frame.clone());
        while let Some(frame) =
            last.take_if(|frame| frame.header.row + frame.header.rows < recorded.filled_rows)
        {
            let expected = Expected::after(&frame);
            last = find_header(
                self.reader,
                self.segment,
                frame.header.row + frame.header.rows,
                |f| expected.matches(f),
            );
        }
        last.is_some_and(|frame| frame.header.seq == recorded.last_seq)
    }

    fn load(&mut self, frame: HeaderFrame) -> Found {
        let header = &frame.header;
        let mut rows = Rows::new(self.reader, self.segment, header.row, header.rows);
        if self.options.verify_payload || self.options.verify_parity {
            rows.load(
                self.reader,
                0..usize::from(header.shape.data),
                0,
                header.rows,
            );
        }
        let batch = find_ends(self.reader, &mut rows, &frame);
        Found {
            frame,
            rows,
            batch,
            is_alone: false,
        }
    }

    /// True if the batch ends where the table records it, and holds all that the maps refer to.
    fn fits(&self, found: &Found, references: &[Reference], recorded: &Segment) -> bool {
        let (inside, _) = self.split(&found.frame, references);
        let holds = |batch: &DecodedBatch| {
            let with_payload = with_payload(batch);
            inside
                .iter()
                .all(|reference| self.entry(&found.rows, &with_payload, reference).is_ok())
        };
        ends_as_recorded(&found.frame, recorded) && found.batch.as_ref().is_some_and(holds)
    }

    /// References into a batch, and those after it.
    fn split<'s>(
        &self,
        frame: &HeaderFrame,
        references: &'s [Reference],
    ) -> (&'s [Reference], &'s [Reference]) {
        self.split_at(frame.header.row + frame.header.rows, references)
    }

    /// References that precede a row, and the others.
    fn split_at<'s>(
        &self,
        row: u32,
        references: &'s [Reference],
    ) -> (&'s [Reference], &'s [Reference]) {
        let end = u64::from(row) * u64::from(self.reader.zones.shape(self.segment).data);
        references
            .split_at(references.partition_point(|r| self.reader.codec.block(r.address) < end))
    }

    /// Checks that the batch has the entry that a reference expects; else returns the entry that is
    /// there. `with_payload` is in order of addresses.
    fn entry(
        &self,
        rows: &Rows,
        with_payload: &[&DecodedEntry],
        reference: &Reference,
    ) -> Result<(), &'static str> {
        let unit = self.unit_in(rows, reference);
        let same = |p: PayloadInfo| (p.units, p.checksum) == (reference.units, reference.checksum);
        match with_payload
            .binary_search_by_key(&Some(unit), |e| e.payload.map(|p| p.unit))
            .ok()
            .and_then(|i| with_payload.get(i))
        {
            Some(e)
                if reference.owner.is(&e.entry, (rows.row, rows.rows))
                    && e.payload.is_some_and(same) =>
            {
                Ok(())
            }
            Some(_) => Err("the batch holds something else there"),
            None => Err("the batch holds no payload there"),
        }
    }

    /// Number of a reference's unit, counted from the first one of the batch.
    fn unit_in(&self, rows: &Rows, reference: &Reference) -> u32 {
        let first = u64::from(rows.row) * u64::from(rows.shape.data) * u64::from(FULL_BLOCK_UNITS);
        (self.reader.codec.offset_units(reference.address) - first) as u32
    }

    /// Number of the block in which a reference's payload begins, counted from the first one of the
    /// batch.
    fn block_in(&self, rows: &Rows, reference: &Reference) -> u32 {
        self.unit_in(rows, reference) / u32::from(FULL_BLOCK_UNITS)
    }

    /// Blocks that hold it: one, or two of compressed payload.
    fn blocks_in(&self, rows: &Rows, reference: &Reference) -> std::ops::RangeInclusive<u32> {
        let unit = self.unit_in(rows, reference);
        unit / u32::from(FULL_BLOCK_UNITS)
            ..=(unit + u32::from(reference.units) - 1) / u32::from(FULL_BLOCK_UNITS)
    }

    /// Compares the references into one batch with its entries, then the payload and the
    /// redundancy.
    fn batch(&mut self, rows: &mut Rows, batch: &DecodedBatch, references: &[Reference]) {
        self.report.batches_verified += 1;
        let ends = (0..batch.frame.head_blocks).chain([batch.frame.tail_block()]);
        let mut flawed: Vec<u32> = ends.filter(|b| rows.origin(*b) == Origin::Wrong).collect();
        // If a scrub has moved the live blocks away, the damage stays, but nothing needs the
        // redundancy it costs.
        let severity = if references.is_empty() {
            Severity::Note
        } else {
            Severity::Repairable
        };
        for block in flawed.clone() {
            self.wrong_block(
                rows,
                block,
                severity,
                None,
                "header or footer: wrong, but recoverable",
            );
        }
        let live_rows: BTreeSet<u32> = references
            .iter()
            .flat_map(|r| self.blocks_in(rows, r))
            .map(|block| rows.position(block).1)
            .collect();
        let with_payload = with_payload(batch);
        let mut sound = Vec::with_capacity(references.len());
        for reference in references {
            match self.entry(rows, &with_payload, reference) {
                Ok(()) => sound.push(*reference),
                Err(what) => self.mismatch(rows, self.block_in(rows, reference), reference, what),
            }
        }
        if self.options.verify_payload {
            flawed.extend(self.blocks(rows, Some(batch), &sound));
        }
        if self.options.verify_parity {
            flawed.extend(self.other_blocks(rows, batch, references, &live_rows));
            flawed.extend(self.padding(rows, batch, &live_rows));
            self.redundancy(rows, &flawed, &live_rows);
        }
    }

    fn mismatch(&mut self, rows: &Rows, block: u32, reference: &Reference, what: &str) {
        let message = format!("{}: {what}", reference.owner);
        let at = rows.row + rows.position(block).1;
        self.add(
            reference
                .owner
                .mark(Finding::new(
                    Severity::Error,
                    FindingKind::MapMismatch,
                    message,
                ))
                .at(self.segment, at),
        );
    }

    /// Verifies the payload of references. Returns the blocks that are wrong on their members.
    fn blocks(
        &mut self,
        rows: &mut Rows,
        batch: Option<&DecodedBatch>,
        references: &[Reference],
    ) -> Vec<u32> {
        let mut wrong = Vec::new();
        for reference in references {
            let blocks = self.blocks_in(rows, reference);
            if *blocks.end() >= u32::from(rows.shape.data) * rows.rows {
                // (Only possible where the batch cannot be decoded.)
                self.mismatch(
                    rows,
                    *blocks.start(),
                    reference,
                    "it extends past its batch",
                );
                continue;
            }
            self.report.payload_blocks_verified += 1;
            let origin = self.find_payload(rows, batch, reference);
            if origin.is_some() {
                self.index_page(rows, reference);
            }
            let (severity, words) = match origin {
                Some(Origin::Member | Origin::Missing) if !self.unpacks(rows, reference) => (
                    Severity::Error,
                    "its bytes are right, but they cannot be decompressed",
                ),
                Some(Origin::Member | Origin::Missing) => {
                    self.flagged(rows, reference);
                    continue;
                }
                Some(Origin::Wrong) => {
                    (Severity::Repairable, "wrong on its member, but recoverable")
                }
                None => (
                    reference.owner.severity_of_loss(),
                    "lost: wrong on its member, and unrecoverable from its row",
                ),
            };
            let at = blocks
                .clone()
                .find(|block| rows.origin(*block) == Origin::Wrong)
                .unwrap_or(*blocks.start());
            self.wrong_block(rows, at, severity, Some(reference.owner), words);
            wrong.extend(blocks.filter(|block| {
                rows.origin(*block) == Origin::Wrong
                    || severity == Severity::Error
                    || origin.is_none()
            }));
        }
        wrong
    }

    /// Software that does not know the flag would open the pool and fail to read this. One finding
    /// for a segment is enough.
    fn flagged(&mut self, rows: &Rows, reference: &Reference) {
        if !self.misses_flag && !self.is_flagged(rows, reference) {
            self.misses_flag = true;
            let message = format!(
                "{}: compressed payload of a kind without a feature flag in the superblock; a start sets it if a volume still uses this kind",
                reference.owner
            );
            self.add(
                Finding::new(Severity::Repairable, FindingKind::FlagMissing, message)
                    .at(self.segment, rows.row),
            );
        }
    }

    fn wrong_block(
        &mut self,
        rows: &Rows,
        block: u32,
        severity: Severity,
        owner: Option<Owner>,
        words: &str,
    ) {
        if severity < Severity::Error
            && self.replayed.incomplete.contains(&(self.segment, rows.row))
        {
            return;
        }
        let (column, at) = rows.position(block);
        let member = rows.member(self.reader, column);
        let message = owner.map_or(words.to_owned(), |owner| format!("{owner}: {words}"));
        let finding = Finding::new(severity, FindingKind::BlockWrong, message)
            .at(self.segment, rows.row + at)
            .member(member);
        self.add(owner.map_or(finding.clone(), |owner| owner.mark(finding)));
    }
}

fn with_payload(batch: &DecodedBatch) -> Vec<&DecodedEntry> {
    let mut entries: Vec<&DecodedEntry> = batch
        .entries
        .iter()
        .filter(|e| e.payload.is_some())
        .collect();
    entries.sort_unstable_by_key(|e| e.payload.map(|p| p.unit));
    entries
}

#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod tests;
