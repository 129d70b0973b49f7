//! Label and superblock.
//!
//! ```text
//! byte 4096            label, 4096 bytes: written at creation, never changed while the pool exists
//! byte 65536 + i*65536 superblock slot i (i = 0..4), 16384 bytes; generation g lives in slot g mod 4
//! byte zone.start      extents
//! ```

mod check;
mod codec;
mod label;

use crate::checkpoint::PagePointer;
use serde::Serialize;
use windrow_geometry::{JournalArea, Redundancy, Zone};
use windrow_types::{
    AddressCodec, BatchSeq, Epoch, Generation, Lsn, MAX_STREAMS, MemberId, PoolUuid, SegmentId,
    Uuid,
};

/// Byte offset of the label.
pub const LABEL_OFFSET: u64 = 4096;
/// Bytes of the label.
pub const LABEL_BYTES: usize = 4096;
/// Byte offset of the first superblock slot.
pub const SLOT_OFFSET: u64 = 65536;
/// Bytes from slot to slot.
pub const SLOT_STRIDE: u64 = 65536;
/// Number of slots.
pub const SLOT_COUNT: u64 = 4;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 16384;
/// Bytes at the start of each member that extents never use.
pub const RESERVED_BYTES: u64 = 1 << 20;
/// Most fences kept.
pub const MAX_FENCES: usize = 32;
/// Maximum number of zones. Each zone of one layout begins where the smallest remaining member
/// ends, so a layout has at most one zone per member. Zones of older layouts that are being emptied
/// count too.
pub const MAX_ZONES: usize = windrow_geometry::MAX_MEMBERS;
/// Version of the format.
pub const FORMAT_VERSION: u32 = 1;
/// First bytes of a label: the signature for `blkid` and `wipefs`, at byte 4096 of a member.
pub const LABEL_MAGIC: [u8; 16] = *b"WINDROW-MEMBER\r\n";
/// First bytes of a superblock slot.
pub const SUPERBLOCK_MAGIC: [u8; 8] = *b"WNDRWSUP";

/// Byte offset of the slot of a generation.
pub fn slot_offset(generation: Generation) -> u64 {
    SLOT_OFFSET + generation.0 % SLOT_COUNT * SLOT_STRIDE
}

/// Reason that a label or superblock cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    /// Fewer bytes than a label or slot has.
    #[error("the bytes given are shorter than a label or superblock slot")]
    WrongLength,
    /// No Windrow signature.
    #[error("no signature")]
    NoSignature,
    /// Damaged, or torn while it was written.
    #[error("the checksum is wrong")]
    BadChecksum,
    /// Written by a newer version.
    #[error("format version {0} is newer than this software")]
    NewerVersion(u32),
    /// Uses features unknown to this version.
    #[error("the pool uses unknown features (incompatible flags {0:#x})")]
    UnknownFeatures(u64),
    /// The checksum verifies but the content breaks the format: a bug of the software that wrote
    /// it.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

/// Label: identification of the member for tools such as `blkid`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Label {
    /// Format version.
    pub version: u32,
    /// Pool.
    pub pool: PoolUuid,
    /// Pool name, at most 63 bytes.
    pub pool_name: String,
    /// This member.
    pub member_uuid: Uuid,
    /// Index in the member table.
    pub member: MemberId,
}

/// Feature flags. For an unknown flag a reader acts by its class: `compatible` is ignored,
/// `read_only` opens read-only, `incompatible` refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Features {
    /// May be ignored.
    pub compatible: u64,
    /// Unknown flags allow read-only access.
    pub read_only: u64,
    /// Unknown flags refuse access.
    pub incompatible: u64,
}

impl Features {
    /// Compatible: a growth is being recorded in the superblock or reverted. Some member may hold a
    /// sibling generation in which further members hold data; nothing was written under it.
    pub const GROWING: u64 = 1;
    /// Incompatible: the pool has a journal, and durable writes may exist only there.
    pub const JOURNAL: u64 = 1;
    /// Incompatible: volumes may be compressed, so batches may hold compressed payload and maps may
    /// refer to it.
    pub const COMPRESSED: u64 = 2;
    /// Incompatible: there may be batches in streams other than the user, cleaning and checkpoint
    /// streams that each pool has.
    pub const STREAMS: u64 = 4;
    /// Incompatible: volumes may share content, so there may be references, and the shared volume
    /// has a map.
    pub const SHARED: u64 = 8;
    /// Incompatible: volumes may be set to zstd, so compressed payload may be zstd.
    pub const ZSTD: u64 = 16;
    /// Incompatible: there may be pages of the deduplication index, blocks of a volume that is in
    /// no table.
    pub const DEDUP_INDEX: u64 = 32;
    /// Incompatible: a member leaves the pool. It has extents in zones of older layouts and none in
    /// the active layout. Used space is computed from the remaining members.
    pub const LEAVING: u64 = 128;
    /// Incompatible: space saved by reduction is or was offered as capacity
    /// ([`Reduction::Capacity`]). Maps and ids may exceed the blocks of the pool.
    pub const CAPACITY: u64 = 256;
    /// Incompatible: volumes may have been renamed, so the log may hold rename entries.
    pub const RENAMED: u64 = 512;
    /// Flags that this version knows.
    pub const KNOWN: Self = Self {
        compatible: Self::GROWING,
        read_only: 0,
        incompatible: Self::JOURNAL
            | Self::COMPRESSED
            | Self::STREAMS
            | Self::SHARED
            | Self::ZSTD
            | Self::DEDUP_INDEX
            | Self::LEAVING
            | Self::CAPACITY
            | Self::RENAMED,
    };

    /// Flags that this version does not know.
    #[must_use]
    pub fn unknown(&self) -> Self {
        let known = Self::KNOWN;
        Self {
            compatible: self.compatible & !known.compatible,
            read_only: self.read_only & !known.read_only,
            incompatible: self.incompatible & !known.incompatible,
        }
    }

    /// True if this version may write to a pool with these flags.
    pub fn allow_writing(&self) -> bool {
        let unknown = self.unknown();
        unknown.read_only == 0 && unknown.incompatible == 0
    }
}

/// State of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// In use, or in use when power failed.
    Active,
    /// Exported: the newest checkpoint is complete, nothing to replay. The host is zero if the pool
    /// was released as well.
    Exported,
    /// Destroyed: never imported automatically.
    Destroyed,
}

/// State of a member in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Holds current data.
    Online,
    /// Out of use since generation `absent_since`; its content is not trusted from then on.
    /// [`MemberRecord::absence`] has the reason.
    Absent,
    /// Slot not in use.
    Removed,
    /// Receives all writes, and is complete in every segment that does not list it as stale. Counts
    /// as lost until it is online.
    Rebuilding,
    /// Hot spare, waiting to replace a member. It is in no zone and has no superblock, only its
    /// label.
    Spare,
}

/// Reason that a member is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Absence {
    /// It was not found at a start, or had missed writes.
    #[default]
    Missing,
    /// A write or flush of it failed, or it disappeared, while the pool was in use.
    Failed,
    /// The administrator took it offline: it returns only on command.
    Offline,
}

/// Record of a member in the table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MemberRecord {
    /// Its identifier.
    pub uuid: Uuid,
    /// Its state.
    pub state: MemberState,
    /// Reason of the absence; [`Absence::Missing`] in all other states.
    pub absence: Absence,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Generation in which it left (0 while online).
    pub absent_since: Generation,
    /// While it is not online: the checkpoint from which on it may have missed batches. It has
    /// missed no batch that was sealed before that checkpoint began.
    pub missed_from: u64,
    /// While it is rebuilding: the segment table lists its stale segments from this checkpoint on
    /// (0: not yet).
    pub listed_from: u64,
    /// Of a spare: the member in service that it is copied from and then replaces.
    pub replaces: Option<MemberId>,
}

impl MemberRecord {
    /// A member in this state that has missed nothing.
    pub fn new(uuid: Uuid, state: MemberState, size_bytes: u64) -> Self {
        Self {
            uuid,
            state,
            absence: Absence::Missing,
            size_bytes,
            absent_since: Generation(0),
            missed_from: 0,
            listed_from: 0,
            replaces: None,
        }
    }

    /// True if the pool writes to it.
    pub fn is_in_use(&self) -> bool {
        matches!(self.state, MemberState::Online | MemberState::Rebuilding)
    }
}

/// Marks what is void of epochs below `epoch`: entries of batches with LSNs above `covered_lsn`,
/// entries of journal records with LSNs above `recovery_lsn`, and batches with sequence numbers
/// above `last_seq` of their stream.
///
/// LSNs between the two marks were only in the journal. The start that wrote the fence writes them
/// to new batches of `epoch`, with the same LSNs. Batches of an older epoch may have the same LSNs
/// after a gap; those are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Fence {
    /// The epoch that the fence begins.
    pub epoch: Epoch,
    /// Recovery point of that recovery.
    pub recovery_lsn: Lsn,
    /// Highest LSN of the recovery point that the log had without a gap; at most `recovery_lsn`.
    pub covered_lsn: Lsn,
    /// First LSN of the new epoch; the LSNs between are never used.
    pub next_lsn: Lsn,
    /// Last accepted batch of each stream.
    pub last_seq: [BatchSeq; MAX_STREAMS],
}

/// Position at which a stream continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct StreamPosition {
    /// Segment, `SegmentId::NONE` if the stream was never opened.
    pub segment: SegmentId,
    /// Row of the next batch.
    pub row: u32,
    /// Batch sequence number of the next batch.
    pub seq: BatchSeq,
    /// Successor segment, used when this one is full.
    pub next_segment: SegmentId,
}

/// A checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CheckpointRoot {
    /// Its number.
    pub id: u64,
    /// Every LSN up to this one is in the image.
    pub lsn: Lsn,
    /// Epoch in which it was written.
    pub epoch: Epoch,
    /// First batch of each stream that recovery must read.
    pub replay: [StreamPosition; MAX_STREAMS],
    /// Batches up to these were durable when the root was written.
    pub flushed_seq: [BatchSeq; MAX_STREAMS],
    /// Every LSN up to this one was durable when the root was written.
    pub flushed_through: Lsn,
    /// Last page of the list.
    pub list: PagePointer,
    /// Pages of the list.
    pub list_pages: u32,
    /// Highest volume id ever assigned.
    pub last_volume: u32,
}

/// Use of the space that compression and deduplication save. Values are on-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Reduction {
    /// Spare space: the pool accepts as many blocks as without reduction, and cleaning moves less.
    #[default]
    Spare = 0,
    /// Capacity: the pool accepts data as long as its stored form fits.
    Capacity = 1,
}

impl Reduction {
    /// All modes, by their numbers.
    pub const ALL: [Self; 2] = [Self::Spare, Self::Capacity];

    /// Name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spare => "spare",
            Self::Capacity => "capacity",
        }
    }

    /// Looks up a mode by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// Properties that can be set after creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Properties {
    /// Spare factor: per mille of the data space that user data may not fill.
    pub spare_per_mille: u16,
    /// Maximum age of acknowledged data before it is sealed, in milliseconds.
    pub seal_age_ms: u32,
    /// Maximum age of acknowledged data before a flush makes it durable, in milliseconds; 0: no
    /// limit.
    pub flush_age_ms: u32,
    /// Victim selection: 0 greedy, 1 cost-benefit, 2 age-root, 3 FIFO, 4 choices, 5 window, 6
    /// expected gain.
    pub victim_policy: u8,
    /// Parameter of the policies choices and window; 0: their default.
    pub victim_number: u16,
    /// Placement: 0 moved blocks separate, 1 DAC, 2 SFS, 3 FADaC, 4 SepBIT, 5 generations, 6
    /// learned,
    /// 7 MiDAS.
    pub placement: u8,
    /// Send discards for freed segments.
    pub discard: bool,
    /// Limit of a rebuild's reads from, or writes to, one member in bytes per second; 0: no limit.
    pub rebuild_rate: u64,
    /// Bytes per second and member that a rebuild gets even under user load.
    pub rebuild_rate_min: u64,
    /// Days from the end of a scrub to the automatic start of the next one; 0: never.
    pub scrub_interval_days: u16,
    /// Latency from which a member's read may be hedged: answered from redundancy. The read must
    /// also take much longer than usual; 0: never.
    pub read_latency_bound_ms: u32,
    /// Usage thresholds for space warnings, in per cent of the usable space, ascending, padded with
    /// zeroes. All zero: no warnings.
    pub warn_at: [u8; 4],
    /// Use of the space that compression and deduplication save.
    pub reduction: Reduction,
}

impl Properties {
    /// Highest number of a victim policy.
    pub const VICTIM_POLICY_MAX: u8 = 6;
    /// Highest number of a placement.
    pub const PLACEMENT_MAX: u8 = 7;

    /// True if these are valid [`Properties::warn_at`]: 1 to 100 per cent, ascending, then zeroes.
    pub fn are_warnings(at: [u8; 4]) -> bool {
        at.iter().all(|at| *at <= 100)
            && at
                .windows(2)
                .all(|pair| pair[1] == 0 || (pair[0] > 0 && pair[0] < pair[1]))
    }

    /// Defaults.
    pub const DEFAULT: Self = Self {
        spare_per_mille: 100,
        seal_age_ms: 50,
        flush_age_ms: 5000,
        victim_policy: 0,
        victim_number: 0,
        placement: 0,
        discard: true,
        rebuild_rate: 0,
        rebuild_rate_min: 10 << 20,
        scrub_interval_days: 30,
        read_latency_bound_ms: 50,
        warn_at: [80, 90, 95, 0],
        reduction: Reduction::Spare,
    };
}

/// The superblock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Superblock {
    /// Feature flags.
    pub features: Features,
    /// Pool.
    pub pool: PoolUuid,
    /// Pool name, at most 63 bytes.
    pub pool_name: String,
    /// Member that holds this copy.
    pub member: MemberId,
    /// Its identifier.
    pub member_uuid: Uuid,
    /// Generation.
    pub generation: Generation,
    /// Hash of the encoded superblock of the preceding generation (member fields zeroed), which
    /// reveals divergence.
    pub parent_hash: u64,
    /// Current epoch.
    pub epoch: Epoch,
    /// Host that has imported the pool, zero if exported.
    pub host: Uuid,
    /// State.
    pub state: PoolState,
    /// Redundancy.
    pub redundancy: Redundancy,
    /// Offset bits of an address; fixed at creation.
    pub address_offset_bits: u8,
    /// Creation time, seconds since 1970.
    pub created_unix_s: u64,
    /// Member table.
    pub members: Vec<MemberRecord>,
    /// Zones of the active layout, and of older layouts until they are empty.
    pub zones: Vec<Zone>,
    /// Fences since the oldest checkpoint kept, oldest first.
    pub fences: Vec<Fence>,
    /// Newest checkpoint first.
    pub checkpoints: [Option<CheckpointRoot>; 2],
    /// Properties.
    pub properties: Properties,
    /// Journals of the pool; present with [`Features::JOURNAL`].
    pub journals: Journals,
}

/// Journals of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Journals {
    /// In front of the zones, on the members that hold data.
    pub internal: Option<JournalArea>,
    /// On dedicated devices: members that are in no zone. It is used as long as one of them is
    /// present.
    pub external: Option<JournalArea>,
    /// Every LSN up to this one was durable when the superblock was written. If recovery does not
    /// reach it, a journal was lost.
    pub durable_lsn: Lsn,
}

impl Journals {
    /// Members, as a bit mask, that hold only a journal.
    pub fn devices(&self) -> u64 {
        self.external.map_or(0, |area| area.members)
    }

    /// The areas, in order of use.
    pub fn areas(&self) -> impl Iterator<Item = &JournalArea> {
        self.external.iter().chain(&self.internal)
    }
}

impl Superblock {
    /// Codec of this pool's addresses.
    pub fn address_codec(&self) -> AddressCodec {
        AddressCodec::new(self.address_offset_bits)
    }

    /// True if a generation with more members may exist: [`Features::GROWING`].
    pub fn is_growing(&self) -> bool {
        self.features.compatible & Features::GROWING != 0
    }

    /// Sets or clears [`Features::GROWING`].
    pub fn set_growing(&mut self, growing: bool) {
        self.features.compatible =
            self.features.compatible & !Features::GROWING | u64::from(growing);
    }
}

#[cfg(test)]
mod tests;
