//! Reports of the checks: findings with a kind, a location and a severity, all serialisable.

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
    /// The check could not be performed.
    pub const OPERATIONAL: u8 = 8;
}

/// Limit of findings that a report lists; further ones are only counted.
pub const MAX_FINDINGS: usize = 10_000;

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Expected, for example after a crash; the next import handles it.
    Note,
    /// Wrong, but redundancy still holds what is needed.
    Repairable,
    /// Wrong and unrecoverable from the members.
    Error,
}

/// Kind of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A member is missing, recorded as absent, or stale.
    MemberAbsent,
    /// More members are missing than the redundancy covers, or too few for a quorum.
    QuorumMissing,
    /// A label is missing, damaged, or contradicts the superblock.
    LabelWrong,
    /// A superblock slot is damaged.
    SlotWrong,
    /// A superblock slot is of a newer version, or names features that this software does not know.
    NewerSoftware,
    /// The pool was destroyed.
    PoolDestroyed,
    /// Members have diverged.
    Diverged,
    /// A checkpoint or a page of it is unreadable or invalid.
    CheckpointWrong,
    /// The maps need more memory than a check may use: nothing was checked.
    MapMemory,
    /// A batch that was durable is unreadable, or contradicts a fence.
    BatchDamaged,
    /// A batch at the end of a chain is incomplete: it does not count.
    BatchTorn,
    /// An accepted batch lacks parts that its redundancy recovered.
    BatchIncomplete,
    /// Durable LSNs are neither in an accepted batch nor in a journal record.
    LsnsLost,
    /// A payload block is wrong on its member.
    BlockWrong,
    /// Blocks that an earlier salvage declared lost: reads of them are I/O errors until they are
    /// written or trimmed. One finding for a run of blocks.
    BlockLost,
    /// Redundancy columns do not agree with data that verifies.
    ParityWrong,
    /// The pool uses a feature whose flag the superblock does not have: a newer superblock was
    /// lost.
    FlagMissing,
    /// A map entry is impossible: unknown state, length or address.
    MapEntryWrong,
    /// The map and the batch that holds the block disagree.
    MapMismatch,
    /// Two blocks share an address.
    PlaceShared,
    /// A page of the deduplication index is invalid: it finds no duplicates, and no data depends on
    /// it.
    IndexPageWrong,
    /// Two segments of different layouts that both hold live blocks share extents.
    ExtentShared,
    /// The recorded batch starts of a segment differ from those on the members.
    StartsMismatch,
    /// The volume table contradicts itself.
    VolumeWrong,
    /// A copy of a needed journal record differs or is unreadable; another one verifies.
    JournalCopyWrong,
    /// Retired journal devices have durable LSNs that the log does not have.
    JournalRetired,
    /// A journal record that was durable verifies in none of its copies.
    JournalDamaged,
    /// A journal record is incomplete: it does not count.
    JournalTorn,
    /// The journal's area is impossible.
    JournalMisplaced,
    /// No journal device is present, and the superblock does not record that: durable LSNs may
    /// exist only there.
    JournalMissing,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Kind.
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
    /// Message.
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

/// Bounded list of findings.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Findings {
    /// The first [`MAX_FINDINGS`].
    pub list: Vec<Finding>,
    /// Number of findings of each kind, including unlisted ones.
    pub counts: BTreeMap<FindingKind, u64>,
    /// Number of findings that are only counted.
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

    /// Adds a finding that must precede all others and is always listed.
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
    /// Reason that it cannot be used (`no signature` for a slot never written).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Generation, if it is usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// Epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Hash of the fields common to all members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<u64>,
    /// Hash of the preceding generation.
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
    /// Reason that there is no label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_problem: Option<String>,
    /// Its slots.
    pub slots: Vec<SlotReport>,
    /// Newest generation that verifies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// True if its content counts: online and current.
    pub usable: bool,
    /// True if it is a retired journal device whose records may be read if durable LSNs are
    /// missing.
    pub retired: bool,
}

/// Labels and superblocks of the members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InspectReport {
    /// Members in order of their index.
    pub members: Vec<MemberReport>,
    /// The newest superblock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<Superblock>,
    /// True if the members present may be imported without force.
    pub quorum: bool,
    /// Problems found.
    pub findings: Findings,
}

/// End of a stream's chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamReport {
    /// Stream.
    pub stream: StreamId,
    /// Number of accepted batches after the checkpoint.
    pub batches: u64,
    /// Segment of the next batch ([`SegmentId::NONE`] if never opened).
    pub segment: SegmentId,
    /// Its row.
    pub row: u32,
    /// Its batch sequence number.
    pub seq: BatchSeq,
    /// Reason that the chain ends there.
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
    /// Blocks with a payload, including those whose payload is only in the journal.
    pub mapped_blocks: u64,
    /// Number of blocks whose payload is only in the journal.
    pub journal_blocks: u64,
}

/// A journal of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct JournalReport {
    /// True if it is on dedicated devices.
    pub external: bool,
    /// Members that hold it.
    pub members: Vec<MemberId>,
    /// First byte of its area on each of them.
    pub start: u64,
    /// First byte after the area.
    pub end: u64,
    /// Number of copies of each chunk.
    pub copies: u8,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Number of chunks.
    pub chunks: u32,
    /// Unit of record lengths.
    pub granule: u32,
    /// Number of chunks with records that are needed.
    pub chunks_in_use: u32,
    /// Number of records that verify.
    pub records: u64,
    /// Number of records that have an LSN which the log does not have, or lead to such a one.
    pub records_needed: u64,
    /// Number of copies of needed records that were compared.
    pub copies_compared: u64,
    /// Number of copies that differ or are unreadable.
    pub copies_wrong: u64,
}

impl JournalReport {
    /// A report of an unread area.
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

/// Sums over the segments. Bytes are data bytes: heads and tails of batches and padding count,
/// redundancy does not.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SpaceReport {
    /// Number of segments of the active layout.
    pub segments: u64,
    /// Their capacity in bytes.
    pub segment_bytes: u64,
    /// Segments of any layout without live data in which a stream continues, or that the replay of
    /// one of the two kept checkpoints needs.
    pub kept_segments: u64,
    /// Segments of the active layout without live data that no replay needs: free, or about to be
    /// freed after the older checkpoint or a flush.
    pub idle_segments: u64,
    /// Bytes of the batches in segments with live data.
    pub filled_bytes: u64,
    /// Live bytes among these, as stored, including checkpoint pages.
    pub live_bytes: u64,
    /// The rest: garbage, heads, tails and padding.
    pub garbage_bytes: u64,
    /// Batches in segments without live data that only the older checkpoint's replay needs, and
    /// that were compared with the segment table.
    pub older_batches: u64,
}

/// Result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Reason that the check could not be performed at all.
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
    /// Recovery point: every LSN up to this one is in effect, none above.
    pub recovery_lsn: Lsn,
    /// Highest LSN that any metadata on the members records as durable.
    pub flushed_through: Lsn,
    /// Streams that were ever opened.
    pub streams: Vec<StreamReport>,
    /// Volumes.
    pub volumes: Vec<VolumeReport>,
    /// Every LSN up to this one is in the log; effects above it come from a journal.
    pub log_lsn: Lsn,
    /// The journals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub journals: Vec<JournalReport>,
    /// Blocks whose payload is only in a journal.
    pub journal_blocks: u64,
    /// Pages of the deduplication index: live blocks, but not user data.
    pub index_pages: u64,
    /// Entries of those pages that were decoded.
    pub index_entries: u64,
    /// Entries among those whose content is still in use.
    pub index_entries_in_use: u64,
    /// Shared contents that blocks refer to.
    pub contents: u64,
    /// Blocks that refer to them.
    pub references: u64,
    /// Blocks that an earlier salvage declared lost: all of those in the findings of that kind.
    pub lost_blocks: u64,
    /// Blocks with a payload, including checkpoint pages and blocks that are only in the journal.
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
    /// Problems found.
    pub findings: Findings,
}

impl CheckReport {
    /// Exit code for a checking command. This crate corrects nothing, so [`exit::CORRECTED`] is for
    /// callers that do.
    pub fn exit_code(&self) -> u8 {
        match (&self.failure, self.findings.is_clean()) {
            (Some(_), _) => exit::OPERATIONAL,
            (None, true) => exit::CLEAN,
            (None, false) => exit::ERRORS_LEFT,
        }
    }
}
