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
/// Most zones. Those of one layout each begin where the smallest member left ends, so they are no
/// more than members; those of older layouts that are being emptied count too.
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

/// Why a label or superblock can not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    /// Fewer bytes than a label or slot has.
    #[error("the bytes given are shorter than a label or superblock slot")]
    WrongLength,
    /// Nothing of Windrow here.
    #[error("no signature")]
    NoSignature,
    /// Damaged, or torn while it was written.
    #[error("the checksum is wrong")]
    BadChecksum,
    /// Written by newer software.
    #[error("format version {0} is newer than this software")]
    NewerVersion(u32),
    /// Uses features that this version must not touch.
    #[error("the pool uses unknown features (incompatible flags {0:#x})")]
    UnknownFeatures(u64),
    /// The checksum verifies but the content breaks the format: a fault of the software that wrote
    /// it.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

/// The label: what `blkid` could show.
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

/// Feature flags. A reader that does not know a flag: `compatible` goes on, `read_only` opens
/// read-only, `incompatible` refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Features {
    /// May be ignored.
    pub compatible: u64,
    /// Unknown: read only.
    pub read_only: u64,
    /// Unknown: refuse.
    pub incompatible: u64,
}

impl Features {
    /// Compatible: a growth is being put on record or taken back. Somebody may bear a generation
    /// beside this one in which further members hold data; nothing was written by it.
    pub const GROWING: u64 = 1;
    /// Incompatible: the pool has a journal, and what is durable may be there alone.
    pub const JOURNAL: u64 = 1;
    /// Incompatible: volumes may be compressed, so batches may hold packed payload and maps may
    /// name it.
    pub const COMPRESSED: u64 = 2;
    /// Incompatible: there may be batches in streams beyond those of users, of moved blocks and of
    /// checkpoints that each pool has.
    pub const STREAMS: u64 = 4;
    /// Incompatible: volumes may share content, so there may be references, and the shared volume
    /// has a map.
    pub const SHARED: u64 = 8;
    /// Incompatible: volumes may be set to zstd, so packed payload may be of it.
    pub const ZSTD: u64 = 16;
    /// Incompatible: there may be pages of the index of deduplication, blocks of a volume that is
    /// in no table.
    pub const DEDUP_INDEX: u64 = 32;
    /// Incompatible: a member leaves the pool. It has a place in zones of older layouts and none in
    /// the layout in force, and the space that is used is reckoned from what will be left.
    pub const LEAVING: u64 = 128;
    /// Incompatible: what reduction saves may be, or have been, room for more data
    /// ([`Reduction::Capacity`]), so maps and ids may be more than the blocks of the pool.
    pub const CAPACITY: u64 = 256;
    /// Incompatible: volumes may have been renamed, so there may be records of that in the log.
    pub const RENAMED: u64 = 512;
    /// The flags that this version knows.
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

    /// The flags that this version does not know.
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
    /// In use, or was when power failed.
    Active,
    /// Closed cleanly: the newest checkpoint is complete, nothing to replay. The host is zero if
    /// the pool was released as well.
    Exported,
    /// Destroyed: never imported by itself.
    Destroyed,
}

/// State of a member in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Holds current data.
    Online,
    /// Out of use from generation `absent_since` on; its content is not to be trusted from then on.
    /// Why is in [`MemberRecord::absence`].
    Absent,
    /// Slot not in use.
    Removed,
    /// Takes part in all writes, and is whole in every segment that does not name it as stale.
    /// Counts as lost until it is online.
    Rebuilding,
    /// A device that waits to take the place of a member. It is in no zone and bears no superblock,
    /// only its label.
    Spare,
}

/// Why a member is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Absence {
    /// It was not there at a start, or had missed something.
    #[default]
    Missing,
    /// A write or flush of it failed, or it was gone, while the pool was in use.
    Failed,
    /// The administrator took it out: it comes back only when told to.
    Offline,
}

/// A member in the table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MemberRecord {
    /// Its identifier.
    pub uuid: Uuid,
    /// Its state.
    pub state: MemberState,
    /// Why it is absent; [`Absence::Missing`] in all other states.
    pub absence: Absence,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Generation in which it left (0 while online).
    pub absent_since: Generation,
    /// While it is not online: it may have missed batches that were sealed when this checkpoint or
    /// a later one had begun, and no others.
    pub missed_from: u64,
    /// While it is rebuilding: from this checkpoint on the segment table names the segments that
    /// are stale on it (0: none does yet).
    pub listed_from: u64,
    /// Of a spare: the member in service whose place it is to take when it is a copy of it.
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

/// What is void: of epochs below `epoch` entries of batches with orders above `covered_lsn`,
/// entries of journal records with orders above `recovery_lsn`, and batches with sequence numbers
/// above `last_seq` of their stream.
///
/// What lies between the two marks only the journal had: the start that wrote the fence puts it
/// into new batches, of `epoch`, with the orders that it has. Batches of an older epoch may have
/// the same orders, behind a gap; they do not count beside these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Fence {
    /// The epoch that the fence begins.
    pub epoch: Epoch,
    /// P at that recovery.
    pub recovery_lsn: Lsn,
    /// What of P the log had, without a gap; not above `recovery_lsn`.
    pub covered_lsn: Lsn,
    /// First order of the new epoch; the orders between are never used.
    pub next_lsn: Lsn,
    /// Last accepted batch of each stream.
    pub last_seq: [BatchSeq; MAX_STREAMS],
}

/// Where a stream goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct StreamPosition {
    /// Segment, `SegmentId::NONE` if the stream was never opened.
    pub segment: SegmentId,
    /// Row of the next batch.
    pub row: u32,
    /// Number of the next batch.
    pub seq: BatchSeq,
    /// Segment that follows when this one is full.
    pub next_segment: SegmentId,
}

/// A checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CheckpointRoot {
    /// Its number.
    pub id: u64,
    /// Every order up to this one is in the image.
    pub lsn: Lsn,
    /// Epoch in which it was written.
    pub epoch: Epoch,
    /// First batch of each stream that recovery must look at.
    pub replay: [StreamPosition; MAX_STREAMS],
    /// Batches up to these were durable when the root was written.
    pub flushed_seq: [BatchSeq; MAX_STREAMS],
    /// Every order up to this one was durable when the root was written.
    pub flushed_through: Lsn,
    /// Last page of the list.
    pub list: PagePointer,
    /// Pages of the list.
    pub list_pages: u32,
    /// Highest volume id ever given.
    pub last_volume: u32,
}

/// What compression and deduplication save is used for. Values are on-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Reduction {
    /// Spare space: a pool takes as many blocks as without them, and cleaning moves less.
    #[default]
    Spare = 0,
    /// Capacity: a pool takes what it has room for as it is stored.
    Capacity = 1,
}

impl Reduction {
    /// All, by their numbers.
    pub const ALL: [Self; 2] = [Self::Spare, Self::Capacity];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spare => "spare",
            Self::Capacity => "capacity",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// Properties that can be set after creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Properties {
    /// Spare factor: thousandths of the data space that user data may not fill.
    pub spare_per_mille: u16,
    /// Most milliseconds that acknowledged data may wait before it is sealed.
    pub seal_age_ms: u32,
    /// Milliseconds after which acknowledged data that no flush covers is flushed; 0: never.
    pub flush_age_ms: u32,
    /// Victim selection: 0 greedy, 1 cost-benefit, 2 age-root, 3 FIFO, 4 choices, 5 window, 6
    /// expected gain.
    pub victim_policy: u8,
    /// The number that choices and window have; 0: theirs by default.
    pub victim_number: u16,
    /// Placement: 0 moved blocks apart, 1 DAC, 2 SFS, 3 FADaC, 4 SepBIT, 5 generations, 6 learned,
    /// 7 MiDAS.
    pub placement: u8,
    /// Send discards for freed segments.
    pub discard: bool,
    /// Most bytes each second that a rebuild reads from, or writes to, one member; 0: no bound.
    pub rebuild_rate: u64,
    /// Bytes each second of one member that a rebuild is given even under load of users.
    pub rebuild_rate_min: u64,
    /// Days from the end of a scrub to the beginning of the next one, which begins by itself; 0:
    /// never.
    pub scrub_interval_days: u16,
    /// A read of a member that takes longer than this, and much longer than reads usually do, is
    /// answered from redundancy; 0: never.
    pub read_latency_bound_ms: u32,
    /// Per cent of the usable space at which it is told that the pool fills, ascending; behind the
    /// last one zeroes. All zero: never.
    pub warn_at: [u8; 4],
    /// What compression and deduplication save is used for.
    pub reduction: Reduction,
}

impl Properties {
    /// Highest number of a victim policy, and of a placement.
    pub const VICTIM_POLICY_MAX: u8 = 6;
    /// See [`Properties::VICTIM_POLICY_MAX`].
    pub const PLACEMENT_MAX: u8 = 7;

    /// True if these may be [`Properties::warn_at`]: 1 to 100 per cent, ascending, and then zeroes.
    pub fn are_warnings(at: [u8; 4]) -> bool {
        at.iter().all(|at| *at <= 100)
            && at
                .windows(2)
                .all(|pair| pair[1] == 0 || (pair[0] > 0 && pair[0] < pair[1]))
    }

    /// What a pool has unless something else is asked for.
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
    /// The member that bears this copy.
    pub member: MemberId,
    /// Its identifier.
    pub member_uuid: Uuid,
    /// Generation.
    pub generation: Generation,
    /// Hash of the encoded superblock of the generation before (member fields zeroed): divergence
    /// shows.
    pub parent_hash: u64,
    /// Current epoch.
    pub epoch: Epoch,
    /// Host that has the pool, zero if exported.
    pub host: Uuid,
    /// State.
    pub state: PoolState,
    /// Redundancy.
    pub redundancy: Redundancy,
    /// Bits of a place that are its offset; fixed at creation.
    pub address_offset_bits: u8,
    /// Creation time, seconds since 1970.
    pub created_unix_s: u64,
    /// Member table.
    pub members: Vec<MemberRecord>,
    /// Zones: those of the layout in force, and of older ones as long as something is in them.
    pub zones: Vec<Zone>,
    /// Fences since the oldest checkpoint kept, oldest first.
    pub fences: Vec<Fence>,
    /// Newest checkpoint first.
    pub checkpoints: [Option<CheckpointRoot>; 2],
    /// Properties.
    pub properties: Properties,
    /// The journals, if the pool has any; there with [`Features::JOURNAL`].
    pub journals: Journals,
}

/// The journals of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Journals {
    /// In front of the zones, on the members that hold data.
    pub internal: Option<JournalArea>,
    /// On devices of its own: members that are in no zone. It is used as long as one of them is
    /// there.
    pub external: Option<JournalArea>,
    /// Every order up to this one was durable when the superblock was written: if it is not there
    /// at a start, a journal was lost.
    pub durable_lsn: Lsn,
}

impl Journals {
    /// Members that hold nothing but a journal, as a bit mask.
    pub fn devices(&self) -> u64 {
        self.external.map_or(0, |area| area.members)
    }

    /// The areas, the one that is used first before the other.
    pub fn areas(&self) -> impl Iterator<Item = &JournalArea> {
        self.external.iter().chain(&self.internal)
    }
}

impl Superblock {
    /// How this pool's places are packed.
    pub fn address_codec(&self) -> AddressCodec {
        AddressCodec::new(self.address_offset_bits)
    }

    /// A generation with more members may be somewhere: [`Features::GROWING`].
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
