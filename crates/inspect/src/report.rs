//! What the checks report: findings with a kind, a place and a severity, all serialisable.

use serde::Serialize;
use std::collections::BTreeMap;
use windrow_format::superblock::{Label, Superblock};
use windrow_geometry::JournalArea;
use windrow_types::{
    BatchSeq, Epoch, Generation, Lba, Lsn, MemberId, SegmentId, StreamId, Uuid, VolumeId,
};

/// Exit codes of a checking command, as `fsck` has them.
pub mod exit {
    /// Nothing wrong.
    pub const CLEAN: u8 = 0;
    /// Errors were found and corrected.
    pub const CORRECTED: u8 = 1;
    /// Errors are left.
    pub const ERRORS_LEFT: u8 = 4;
    /// The check could not be made.
    pub const OPERATIONAL: u8 = 8;
}

/// Most findings that a report lists; the others are only counted.
pub const MAX_FINDINGS: usize = 10_000;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// To be expected, for example after a crash; the next import deals with it.
    Note,
    /// Wrong, but redundancy still holds what is needed.
    Repairable,
    /// Wrong, and not to be repaired from what is there.
    Error,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A member is not there, recorded as absent, or holds an old state.
    MemberAbsent,
    /// More members are missing than the redundancy covers, or too few for a quorum.
    QuorumMissing,
    /// A label is not there, damaged, or contradicts the superblock.
    LabelWrong,
    /// A superblock slot is damaged.
    SlotWrong,
    /// A superblock slot is of a newer version, or names features that this software does not know.
    NewerSoftware,
    /// The pool was destroyed.
    PoolDestroyed,
    /// Members tell different histories.
    Diverged,
    /// A checkpoint or a page of it can not be read, or makes no sense.
    CheckpointWrong,
    /// The maps need more memory than a check may use: nothing was checked.
    MapMemory,
    /// A batch that was durable can not be read, or contradicts a fence.
    BatchDamaged,
    /// A batch at the end of a chain did not arrive as a whole: it does not count.
    BatchTorn,
    /// An accepted batch lacks parts that its redundancy made good.
    BatchIncomplete,
    /// Orders that were durable are neither in an accepted batch nor in a journal record.
    LsnsLost,
    /// A payload block is wrong on its member.
    BlockWrong,
    /// Blocks that an earlier rebuild of the map gave up: reads of them are I/O errors until they
    /// are written or trimmed. One finding for a run of blocks.
    BlockLost,
    /// Redundancy columns do not agree with data that verifies.
    ParityWrong,
    /// There is what calls for a feature flag that the superblock does not have: a newer superblock
    /// was lost.
    FlagMissing,
    /// A map entry is impossible: unknown state, length or place.
    MapEntryWrong,
    /// The map and the batch that holds the block disagree.
    MapMismatch,
    /// Two blocks share a place.
    PlaceShared,
    /// A page of the index of deduplication makes no sense: it finds no duplicates, and no data
    /// hangs on it.
    IndexPageWrong,
    /// Two segments of different layouts that both hold live blocks share extents.
    ExtentShared,
    /// The recorded batch starts of a segment are not those on the members.
    StartsMismatch,
    /// The volume table contradicts itself.
    VolumeWrong,
    /// A copy of a journal record that is needed differs or can not be read; another one verifies.
    JournalCopyWrong,
    /// Journal devices that are not in service have what was durable and the log does not have.
    JournalRetired,
    /// A journal record that was durable verifies in none of its copies.
    JournalDamaged,
    /// A journal record did not arrive as a whole: it does not count.
    JournalTorn,
    /// The journal lies where it can not.
    JournalMisplaced,
    /// No journal device is there, and that is not on record: what was durable may be on them
    /// alone.
    JournalMissing,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// What.
    pub kind: FindingKind,
    /// Member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// Segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<SegmentId>,
    /// Row in the segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// Chunk of the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u32>,
    /// Volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// Block of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lba: Option<Lba>,
    /// In words.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(severity: Severity, kind: FindingKind, message: impl Into<String>) -> Self {
        Self {
            severity,
            kind,
            member: None,
            segment: None,
            row: None,
            chunk: None,
            volume: None,
            lba: None,
            message: message.into(),
        }
    }

    pub(crate) fn member(mut self, member: MemberId) -> Self {
        self.member = Some(member);
        self
    }

    pub(crate) fn at(mut self, segment: SegmentId, row: u32) -> Self {
        (self.segment, self.row) = (Some(segment), Some(row));
        self
    }

    pub(crate) fn chunk(mut self, chunk: u32) -> Self {
        self.chunk = Some(chunk);
        self
    }

    pub(crate) fn block(mut self, volume: VolumeId, lba: Lba) -> Self {
        (self.volume, self.lba) = (Some(volume), Some(lba));
        self
    }
}

/// Findings, bounded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Findings {
    /// The first [`MAX_FINDINGS`].
    pub list: Vec<Finding>,
    /// How many of each kind, all of them.
    pub counts: BTreeMap<FindingKind, u64>,
    /// Findings that are only counted.
    pub unlisted: u64,
    /// The worst severity.
    pub worst: Option<Severity>,
}

impl Findings {
    pub(crate) fn add(&mut self, finding: Finding) {
        *self.counts.entry(finding.kind).or_default() += 1;
        self.worst = self.worst.max(Some(finding.severity));
        if self.list.len() < MAX_FINDINGS {
            self.list.push(finding);
        } else {
            self.unlisted += 1;
        }
    }

    /// What is to be seen before all others, and listed whatever there is.
    pub(crate) fn add_first(&mut self, finding: Finding) {
        let list = std::mem::take(&mut self.list);
        self.add(finding);
        self.list.extend(list);
        self.unlisted += self.list.len().saturating_sub(MAX_FINDINGS) as u64;
        self.list.truncate(MAX_FINDINGS);
    }

    /// True if nothing worse than a note was found.
    pub fn is_clean(&self) -> bool {
        self.worst <= Some(Severity::Note)
    }
}

/// One superblock slot of a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SlotReport {
    /// Slot number.
    pub slot: u64,
    /// Byte offset on the member.
    pub offset: u64,
    /// Why it can not be used (`no signature` for a slot never written).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Generation, if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// Epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Hash of what all members have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<u64>,
    /// Hash of the generation before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_hash: Option<u64>,
}

/// One member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MemberReport {
    /// Index.
    pub member: MemberId,
    /// False if it could not be opened.
    pub present: bool,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Why there is no label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_problem: Option<String>,
    /// Its slots.
    pub slots: Vec<SlotReport>,
    /// Newest generation that verifies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// True if its content counts: online, and not left behind.
    pub usable: bool,
    /// True if it is a journal device that has left, and its records may be read where something
    /// that was durable is missed.
    pub retired: bool,
}

/// What the members say of themselves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InspectReport {
    /// Members in order of their index.
    pub members: Vec<MemberReport>,
    /// The newest superblock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<Superblock>,
    /// True if the members present may be imported without force.
    pub quorum: bool,
    /// What is wrong.
    pub findings: Findings,
}

/// Where a stream's chain ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamReport {
    /// Stream.
    pub stream: StreamId,
    /// Accepted batches after the checkpoint.
    pub batches: u64,
    /// Segment of the batch that would come next ([`SegmentId::NONE`] if never opened).
    pub segment: SegmentId,
    /// Its row.
    pub row: u32,
    /// Its number.
    pub seq: BatchSeq,
    /// Why the chain ends there.
    pub end: &'static str,
}

/// A volume, after replay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct VolumeReport {
    /// Id.
    pub id: VolumeId,
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Read-only.
    pub read_only: bool,
    /// Being deleted.
    pub deleting: bool,
    /// Blocks with a payload, those whose payload is in the journal alone included.
    pub mapped_blocks: u64,
    /// Those whose payload is in the journal alone.
    pub journal_blocks: u64,
}

/// A journal of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct JournalReport {
    /// On devices of its own.
    pub external: bool,
    /// Members that hold it.
    pub members: Vec<MemberId>,
    /// First byte of its area on each of them.
    pub start: u64,
    /// First byte behind the area.
    pub end: u64,
    /// Copies of each chunk.
    pub copies: u8,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Chunks.
    pub chunks: u32,
    /// What records are measured in.
    pub granule: u32,
    /// Chunks with records that are needed.
    pub chunks_in_use: u32,
    /// Records that verify.
    pub records: u64,
    /// Those that bring an order which the log does not have, or lead to such a one.
    pub records_needed: u64,
    /// Copies of needed records that were compared.
    pub copies_compared: u64,
    /// Those that differ or can not be read.
    pub copies_wrong: u64,
}

impl JournalReport {
    /// An area of which nothing is known yet.
    pub(crate) fn of(area: &JournalArea, external: bool) -> Self {
        Self {
            external,
            members: crate::journal::members_of(area).collect(),
            start: area.start,
            end: area.end(),
            copies: area.copies,
            chunk_bytes: area.chunk_bytes,
            chunks: area.chunks,
            granule: area.granule,
            chunks_in_use: 0,
            records: 0,
            records_needed: 0,
            copies_compared: 0,
            copies_wrong: 0,
        }
    }
}

/// Sums over the segments. Bytes are those of data: heads and tails of batches and padding count,
/// redundancy does not.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SpaceReport {
    /// Segments of the layout in force.
    pub segments: u64,
    /// Bytes that they have room for.
    pub segment_bytes: u64,
    /// Segments of any layout in which nothing lives, and that a stream goes on in, or that the
    /// replay of one of the two kept checkpoints needs.
    pub kept_segments: u64,
    /// Segments of the layout in force in which nothing lives and that no replay needs: free, or
    /// not yet (something of the older checkpoint, a flush).
    pub idle_segments: u64,
    /// Bytes of the batches in segments in which something lives.
    pub filled_bytes: u64,
    /// Of these what lives, as it is stored, checkpoint pages included.
    pub live_bytes: u64,
    /// The others: garbage, heads, tails and padding.
    pub garbage_bytes: u64,
    /// Batches in segments without anything live that only the older checkpoint's replay needs, and
    /// that were compared with the segment table.
    pub older_batches: u64,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Why the check could not be made at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Pool.
    pub pool: Uuid,
    /// Its name.
    pub pool_name: String,
    /// Superblock generation used.
    pub generation: Generation,
    /// Checkpoint used, 0 if none.
    pub checkpoint: u64,
    /// Every order up to this one is in effect, none above.
    pub recovery_lsn: Lsn,
    /// The highest order that something on the members calls durable.
    pub flushed_through: Lsn,
    /// Streams that were ever opened.
    pub streams: Vec<StreamReport>,
    /// Volumes.
    pub volumes: Vec<VolumeReport>,
    /// Every order up to this one is in the log; what is in effect above it comes from a journal.
    pub log_lsn: Lsn,
    /// The journals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub journals: Vec<JournalReport>,
    /// Blocks whose payload is in a journal alone.
    pub journal_blocks: u64,
    /// Pages of the index of deduplication: live blocks, and nobody's data.
    pub index_pages: u64,
    /// Entries of those pages that were decoded.
    pub index_entries: u64,
    /// Those of them whose content is still in use.
    pub index_entries_in_use: u64,
    /// Shared contents that blocks refer to.
    pub contents: u64,
    /// Blocks that refer to them.
    pub references: u64,
    /// Blocks that an earlier rebuild of the map gave up, all of those in the findings of that
    /// kind.
    pub lost_blocks: u64,
    /// Blocks with a payload, checkpoint pages and blocks in the journal alone included.
    pub live_blocks: u64,
    /// Segments that hold live blocks.
    pub live_segments: u64,
    /// Sums over the segments.
    pub space: SpaceReport,
    /// Batches whose head and tail were verified.
    pub batches_verified: u64,
    /// Payload blocks whose checksum was verified.
    pub payload_blocks_verified: u64,
    /// Rows whose redundancy was verified.
    pub parity_rows_verified: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// What is wrong.
    pub findings: Findings,
}

impl CheckReport {
    /// The exit code for a checking command. This crate corrects nothing, so [`exit::CORRECTED`] is
    /// for callers that do.
    pub fn exit_code(&self) -> u8 {
        match (&self.failure, self.findings.is_clean()) {
            (Some(_), _) => exit::OPERATIONAL,
            (None, true) => exit::CLEAN,
            (None, false) => exit::ERRORS_LEFT,
        }
    }
}
