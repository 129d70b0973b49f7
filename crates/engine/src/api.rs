//! Interface of the engine to its drivers (host, simulator, lab).
//!
//! A driver owns an [`Engine`](crate::Engine), passes it [`Event`](crate::Event)s with `apply` and
//! executes the contents of the [`Outbox`](crate::Outbox): member commands, CPU jobs, answers.
//! Every command and job returns exactly once as an event.
//!
//! The engine never waits, reads no clock (time arrives in [`Event::Tick`](crate::Event::Tick)) and
//! has no randomness, so equal events give equal effects.

mod status;
mod sums;

pub use status::*;
pub use sums::*;

use crate::base::limits::{
    BACKGROUND_BESIDE_BYTES, FLUSH_COST_BYTES, FOREGROUND_BESIDE_BYTES, JOURNAL_DEVICE_BYTES,
};
use serde::{Deserialize, Serialize};
use windrow_geometry::Redundancy;
use windrow_types::{Lsn, MemberId, Uuid, VolumeId};

/// Request id chosen by the driver, returned with the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ControlId(pub u64);

/// An administrator's command to the running engine.
#[derive(Clone, Debug)]
pub struct ControlRequest {
    /// Returned with the answer.
    pub id: ControlId,
    /// Command.
    pub command: Control,
}

/// Commands of an administrator.
#[derive(Clone, Debug)]
pub enum Control {
    /// Create a thin volume. Durable when answered.
    VolumeCreate {
        /// 1 to 63 bytes, unique in the pool.
        name: String,
        /// A multiple of 4096, at least one block.
        size_bytes: u64,
    },
    /// Resize a volume. A smaller size discards the blocks above it.
    VolumeResize {
        /// Volume.
        volume: VolumeId,
        /// A multiple of 4096, at least one block.
        size_bytes: u64,
        /// Permits a size smaller than the volume has when the command is executed.
        shrink: bool,
    },
    /// Delete a volume; its space is freed in steps.
    VolumeDelete {
        /// Volume.
        volume: VolumeId,
    },
    /// Set the effect of flushes on a volume. Durable when answered. Requires a journal.
    VolumeSync {
        /// Volume.
        volume: VolumeId,
        /// Sync mode.
        sync: windrow_format::checkpoint::SyncMode,
    },
    /// Set the compression of blocks written from now on; existing blocks stay as they are. Durable
    /// when answered.
    VolumeCompression {
        /// Volume.
        volume: VolumeId,
        /// Compression.
        compression: windrow_format::checkpoint::Compression,
    },
    /// Set the deduplication of blocks written from now on; existing blocks stay as they are.
    /// Durable when answered. The first use reserves space for the map of shared content. It is
    /// refused with no space if the pool is too full for that.
    VolumeDedup {
        /// Volume.
        volume: VolumeId,
        /// Deduplication.
        dedup: windrow_format::checkpoint::Dedup,
    },
    /// Rename a volume. Durable when answered.
    VolumeRename {
        /// Volume.
        volume: VolumeId,
        /// 1 to 63 bytes, unique in the pool.
        name: String,
    },
    /// Rename the pool. Durable when answered. Labels keep the name from creation; the superblock
    /// is authoritative.
    PoolRename {
        /// 1 to 63 bytes.
        name: String,
    },
    /// Count the exclusive and the shared bytes of each volume ([`ControlReply::Sharing`]). Changes
    /// nothing and works on read-only pools. Answered when the maps of all volumes have been
    /// walked, in bounded steps.
    CountSharing,
    /// Set properties (all of them; start from those in [`PoolStatus`]).
    SetProperties(windrow_format::superblock::Properties),
    /// Use further members of the table for data. Answered when the new layout is active. Data in
    /// the old layout is then moved in the background, see [`PoolStatus::reshape`].
    Grow {
        /// Spares to use, at least one.
        members: Vec<MemberId>,
    },
    /// Remove a member that holds data from the pool for good. Answered when the layout without it
    /// is active. Its data is then moved in the background, see [`PoolStatus::reshape`], until
    /// [`Notice::Removed`].
    Remove {
        /// Member.
        member: MemberId,
    },
    /// Write a checkpoint now.
    Checkpoint,
    /// Wall-clock time, for timestamps in the pool; the engine has no clock of its own. To be
    /// repeated from time to time.
    WallClock {
        /// Seconds since 1970.
        unix_s: u64,
    },
    /// Start, pause, resume or stop a scrub. Answered at once: the scrub runs in the background,
    /// see [`PoolStatus::scrub`].
    Scrub(ScrubCommand),
    /// Change the state of a member or of a slot of the member table. Answered when it is recorded
    /// in the superblock, except for [`MemberChange::Settle`].
    Member {
        /// Member or slot. A new spare gets a removed slot, or the one after the last.
        member: MemberId,
        /// Change.
        change: MemberChange,
    },
    /// Drain everything and write a checkpoint; with `export` mark the pool as exported. Later
    /// requests are refused.
    Shutdown {
        /// Release the pool for another host.
        export: bool,
    },
}

/// Change of a member. To exchange a device, a driver sends `TakeOut` and `Settle`, swaps the
/// device, and sends `BringBack` or `Exchange`.
#[derive(Clone, Debug)]
pub enum MemberChange {
    /// Take the member out of service: no further commands are sent to it. Refused if the
    /// redundancy does not cover its loss in addition to the members already lost.
    TakeOut,
    /// The host found the device smaller than the pool's data on it. The member has failed; a
    /// device that is large again is rebuilt completely. Refused if it is in use and the redundancy
    /// does not cover its loss.
    CutShort {
        /// Finding of the host.
        reason: String,
    },
    /// Wait until the member is out of use, recorded as such, and has no command in flight.
    Settle,
    /// The device that left has returned; this is its newest superblock. It is rebuilt.
    BringBack {
        /// Superblock found on the device.
        superblock: Box<windrow_format::superblock::Superblock>,
    },
    /// A device without superblocks takes its slot. It is rebuilt completely.
    Exchange {
        /// UUID of the new device; with `spare` ignored, as the spare has its own.
        uuid: Uuid,
        /// Its usable bytes.
        size_bytes: u64,
        /// Writes to it are durable without a flush. Required in the slot of a journal device that
        /// is declared power-safe.
        power_safe: bool,
        /// The spare whose device this is; the slot of the spare becomes free.
        spare: Option<MemberId>,
    },
    /// Add a spare in this slot; its device already has the label for it.
    AddSpare {
        /// UUID of the device.
        uuid: Uuid,
        /// Its usable bytes.
        size_bytes: u64,
    },
    /// Make a spare a journal device.
    Serve {
        /// Write unit of its device: 512 or 4096 bytes. At most the unit of journal records, if the
        /// pool has journal devices.
        granule: u32,
        /// Writes to it are durable without a flush.
        power_safe: bool,
    },
    /// Copy the member to a spare while the member stays in service. [`Notice::ReplacementReady`]
    /// reports completion.
    Prepare {
        /// The spare.
        spare: MemberId,
    },
    /// The device of the complete copy is about to take the member's slot. Answered when nothing is
    /// in flight to either. Later commands are held until [`MemberChange::Switched`] or
    /// [`MemberChange::Thaw`].
    Switch,
    /// The spare's device is in the member's slot; the spare's own slot is empty.
    Switched,
    /// The devices are back where they were before [`MemberChange::Switch`].
    Thaw,
    /// Free the slot of a spare, or of a journal device that is out of use. The latter requires
    /// that the log holds all that the journal made durable.
    GiveUp,
}

/// Command to the scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubCommand {
    /// Start at the first segment. Refused while a scrub runs or is paused.
    Start {
        /// Time for the report, seconds since 1970.
        unix_s: u64,
        /// Most bytes read from members per second; 0: no limit.
        bytes_per_second: u64,
    },
    /// Pause until resumed, also across a restart.
    Pause,
    /// Resume.
    Resume,
    /// Stop where it is.
    Stop,
}

/// Answer to a control request.
#[derive(Clone, Debug)]
pub struct ControlCompletion {
    /// Id of the request.
    pub id: ControlId,
    /// Result.
    pub result: Result<ControlReply, ControlError>,
}

/// Content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlReply {
    /// Done.
    Done,
    /// The new volume.
    Volume(VolumeId),
    /// Exclusive and shared bytes per volume.
    Sharing(Sharing),
}

/// Result of [`Control::CountSharing`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// All volumes.
    pub volumes: Vec<VolumeSharing>,
    /// True if nothing changed during the count: all sums are of one moment.
    pub exact: bool,
}

/// Sharing of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSharing {
    /// Volume.
    pub id: VolumeId,
    /// Stored bytes that deleting the volume frees: unshared blocks, and content that no other
    /// volume refers to.
    pub exclusive_bytes: u64,
}

/// Reason that a control request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No such volume.
    #[error("no such volume")]
    NoVolume,
    /// The name is taken.
    #[error("a volume of this name exists")]
    NameTaken,
    /// A value is out of range.
    #[error("{0}")]
    Invalid(String),
    /// The volume would shrink, and the request does not permit that.
    #[error("it would become smaller: it has {size_bytes} bytes")]
    Smaller {
        /// Current size.
        size_bytes: u64,
    },
    /// No room (volumes, map memory or space).
    #[error("{0}")]
    NoSpace(String),
    /// The state of the member or of the pool does not allow it.
    #[error("member {member}: {why}")]
    Member {
        /// Member.
        member: MemberId,
        /// Reason.
        why: String,
    },
    /// The pool has stopped or is stopping.
    #[error("the pool has stopped")]
    Stopped,
}

/// Event for the administrator: goes to the log and the event hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Notice {
    /// A member was taken out of service after a fault.
    MemberFailed {
        /// Member.
        member: MemberId,
        /// Its last error.
        error: String,
    },
    /// A member or a spare was absent when the pool was opened; the pool continues without it.
    /// Raised by the host.
    MemberMissing {
        /// Member.
        member: MemberId,
    },
    /// A spare is a complete copy of a member and can take its slot.
    ReplacementReady {
        /// The member.
        member: MemberId,
        /// The spare.
        spare: MemberId,
    },
    /// A spare is no longer a copy of a member: one of the two has left service.
    ReplacementEnded {
        /// The member.
        member: MemberId,
        /// The spare.
        spare: MemberId,
    },
    /// Another device is in the slot of a member and holds all that the previous one held.
    Replaced {
        /// The member.
        member: MemberId,
    },
    /// A member was taken out of service by the administrator.
    MemberOffline {
        /// Member.
        member: MemberId,
    },
    /// Finding of the start: damage, a checkpoint that could not be used, devices that are not the
    /// pool's. Raised by the host.
    StartNote {
        /// Text.
        note: String,
    },
    /// A block was repaired from redundancy.
    Repaired {
        /// Volume.
        volume: VolumeId,
        /// Block.
        lba: u64,
        /// Member that returned wrong bytes or none.
        member: MemberId,
    },
    /// The label of a member was damaged or missing and has been rewritten. Without it the next
    /// start would not recognize the device.
    LabelWritten {
        /// Member.
        member: MemberId,
    },
    /// A spare does not answer, rejects its label or holds that of another pool. It could not
    /// replace a member. Found by scrubs.
    SpareFailed {
        /// Spare.
        member: MemberId,
    },
    /// Blocks are unreadable and cannot be reconstructed. Reported once until they are written,
    /// trimmed or read well, and once more by each scrub.
    Unrecoverable {
        /// Volume.
        volume: VolumeId,
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// A block refers to shared content that is lost, so the block is lost too. Follows
    /// [`Notice::Unrecoverable`] for volume 0, whose blocks are the shared contents. Raised once
    /// per start for each content.
    UnrecoverableReference {
        /// Volume.
        volume: VolumeId,
        /// Block.
        lba: u64,
        /// Content.
        content: u64,
    },
    /// Further blocks refer to lost shared content; they are counted but not listed.
    UnnamedReferences {
        /// Number of further blocks.
        more: u64,
    },
    /// Use of the pool rose above a warning threshold. Raised again only after use was two per cent
    /// below it.
    Filling {
        /// The threshold passed.
        percent: u8,
    },
    /// The sum of the volume sizes exceeds the usable bytes.
    Overcommitted {
        /// Sum of the volume sizes.
        provisioned_bytes: u64,
        /// Bytes that user data may fill.
        usable_bytes: u64,
    },
    /// A write was refused because all map pages are in use. Raised once each time they run out.
    MapFull {
        /// Limit of map pages.
        pages: u64,
        /// True if memory is the limit. Otherwise the limit is the pool's size, as map checkpoints
        /// take a share of it.
        by_memory: bool,
    },
    /// Data is refused because no segment can be freed until clients trim or delete. Raised again
    /// only after there was room.
    Exhausted {
        /// Segments quarantined for unreadable blocks. 0: there is no damage and the reserve is
        /// used up, which is a fault of the engine.
        segments: u32,
    },
    /// A member has returned and is being rebuilt.
    MemberRebuilding {
        /// Member.
        member: MemberId,
        /// Segments that are incomplete on it.
        segments: u32,
    },
    /// A member is complete again.
    MemberRebuilt {
        /// Member.
        member: MemberId,
    },
    /// Many reads of a member have been late for a while. It stays in service; reads are hedged
    /// where the redundancy allows.
    MemberSlow {
        /// Member.
        member: MemberId,
        /// User reads sent to it in the last seconds.
        reads: u32,
        /// Late reads among them.
        slow_reads: u32,
    },
    /// The reads of a slow member are on time again.
    MemberNotSlow {
        /// Member.
        member: MemberId,
    },
    /// An awaited command of a member has had no answer for more than ten seconds; requests of the
    /// pool may depend on it.
    MemberHangs {
        /// Member.
        member: MemberId,
        /// Commands outstanding at it.
        commands: u32,
    },
    /// An unresponsive member answers again.
    MemberAnswers {
        /// Member.
        member: MemberId,
    },
    /// A scrub has reached the last segment.
    ScrubEnded {
        /// Blocks of members with wrong content.
        wrong_blocks: u64,
        /// Blocks of volumes that are unreadable and cannot be reconstructed.
        lost_blocks: u64,
        /// Batches whose tables are unreadable and cannot be reconstructed.
        damaged_batches: u64,
        /// Blocks of volumes that are readable but lack redundancy, and were not moved because the
        /// pool has no room.
        unmoved_blocks: u64,
    },
    /// A pool has grown: data is written to all its members from now on.
    Grown {
        /// Members in use.
        members: u32,
        /// Segments of the old layout whose data is to be moved.
        segments: u32,
    },
    /// A member leaves: no new data is placed on it.
    Leaving {
        /// Member.
        member: MemberId,
        /// Segments of the old layout whose data is to be moved.
        segments: u32,
    },
    /// A member was removed. All other members have recorded it, and nothing is in flight to its
    /// device.
    Removed {
        /// Slot.
        member: MemberId,
        /// UUID of its device.
        uuid: Uuid,
    },
    /// No data is left in old layouts.
    Reshaped,
    /// The pool has stopped.
    Stopped {
        /// Reason.
        reason: String,
    },
}

/// Options for opening a pool.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// This host.
    pub host: Uuid,
    /// Read-only: no byte is written, not even the fence; writes are refused.
    pub read_only: bool,
    /// Import although another host has the pool, or although members are absent without being
    /// recorded as absent.
    pub force: bool,
    /// Start although a lost journal may hold, or surely holds, durable data. That data is lost
    /// then.
    pub discard_journal: bool,
    /// Limits.
    pub limits: Limits,
}

/// Limits that are fixed at start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Most bytes of admitted writes that are not in the log yet.
    pub pending_bytes: u64,
    /// Most batches of one stream in flight to the members.
    pub batches_in_flight: u32,
    /// Most bytes of memory for maps. A write that needs a page beyond it fails with no space.
    pub map_bytes: u64,
    /// Most bytes that a placement policy may keep about blocks, in addition to the map. A policy
    /// that needs more is refused.
    pub placement_bytes: u64,
    /// Most bytes of the deduplication index; a pool with fewer blocks uses what it needs.
    pub index_bytes: u64,
    /// Most requests that may wait for admission.
    pub waiting_requests: u32,
    /// Cost of a write and a flush of one member, in bytes that it could have written meanwhile
    /// (docs/internals/journal.md, Cost).
    pub flush_cost_bytes: u64,
    /// Size up to which the records of one flush go to journal devices whatever they cost. Of a
    /// larger flush only the part that does not fill rows goes there.
    pub journal_device_bytes: u64,
    /// Compress payloads of journal records (LZ4) where that makes them smaller.
    pub compresses_records: bool,
    /// Most bytes of user batches in flight at one member while a read or a flush is outstanding
    /// (docs/internals/scheduling.md).
    pub foreground_window_bytes: u64,
    /// Most bytes of cleaning, checkpoints, rebuild, scrub and discards in flight while foreground
    /// I/O is active.
    pub background_window_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pending_bytes: 64 << 20,
            batches_in_flight: 16,
            map_bytes: 4 << 30,
            placement_bytes: 2 << 30,
            index_bytes: 64 << 20,
            waiting_requests: 65536,
            flush_cost_bytes: FLUSH_COST_BYTES,
            journal_device_bytes: JOURNAL_DEVICE_BYTES,
            compresses_records: true,
            foreground_window_bytes: FOREGROUND_BESIDE_BYTES,
            background_window_bytes: BACKGROUND_BESIDE_BYTES,
        }
    }
}

/// Phases of opening a pool, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenPhase {
    /// Superblocks and quorum.
    Superblocks,
    /// Loading the checkpoint.
    Checkpoint,
    /// Following the chains of batches and applying their entries.
    Replay,
    /// Counting live blocks, completing batches, the fence.
    Fence,
}

/// Findings and actions of recovery.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OpenReport {
    /// Number of the checkpoint that recovery started from.
    pub checkpoint: u64,
    /// Recovery point: every LSN up to it is in effect, none above.
    pub recovery_lsn: Lsn,
    /// Batches replayed.
    pub batches: u64,
    /// Bytes of replayed batches on the members.
    pub batch_bytes: u64,
    /// Batches whose missing or wrong parts were rewritten.
    pub completed_batches: u64,
    /// Copies of journal chunks that were rewritten.
    pub completed_records: u64,
    /// Entries applied.
    pub entries: u64,
    /// Map pages read.
    pub map_pages: u64,
    /// LSN up to which the log is complete. LSNs from there to the recovery point were read from
    /// the journal.
    pub log_lsn: Lsn,
    /// LSNs in batches that recovery ignores: they follow the gap at which the log ends, or a fence
    /// voids them. Those that were durable come from the journal.
    pub void_lsns: u64,
    /// True if the pool had been exported or shut down cleanly.
    pub clean: bool,
    /// Damage that lost nothing, and devices that are not used, as text.
    pub notes: Vec<String>,
}

/// Specification of a new pool.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// 1 to 63 bytes.
    pub name: String,
    /// Redundancy.
    pub redundancy: Redundancy,
    /// Rows of a chunk (a row is 4 KiB on each member); `None`: by member size.
    pub chunk_rows: Option<u32>,
    /// Rows of a segment; `None`: by member size.
    pub segment_rows: Option<u32>,
    /// Alignment of extents in bytes (erase block); a power of two, at least 4096.
    pub align_bytes: u64,
    /// Pool identifier (random, from the caller).
    pub pool: Uuid,
    /// Member identifiers and usable sizes in bytes.
    pub members: Vec<(Uuid, u64)>,
    /// Creation time, seconds since 1970.
    pub created_unix_s: u64,
    /// Properties.
    pub properties: windrow_format::superblock::Properties,
    /// The journal; `None`: flushes pad rows.
    pub journal: Option<JournalSpec>,
}

/// Journals of a new pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSpec {
    /// Bytes of the internal one on each member; `None`: by member size; 0: only separate journal
    /// devices.
    pub bytes_each: Option<u64>,
    /// The largest sector of the members: 512 or 4096 bytes.
    pub granule: u32,
    /// Dedicated journal devices: identifiers and usable sizes in bytes. They are the last members
    /// of the pool.
    pub devices: Vec<(Uuid, u64)>,
    /// Writes to these devices are durable without a flush.
    pub power_safe: bool,
}

impl JournalSpec {
    /// An internal journal.
    pub fn internal(bytes_each: Option<u64>, granule: u32) -> Self {
        Self {
            bytes_each,
            granule,
            devices: Vec::new(),
            power_safe: false,
        }
    }
}

/// Geometry and capacity of a pool, as `--dry-run` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct PoolPlan {
    /// Zones.
    pub zones: Vec<windrow_geometry::Zone>,
    /// Segments of all zones.
    pub segments: u32,
    /// Bytes of all data columns.
    pub data_bytes: u64,
    /// Bytes that user data may fill.
    pub usable_bytes: u64,
    /// Segments held back (open streams, cleaning, checkpoints).
    pub reserve_segments: u32,
    /// Segments that one checkpoint of the whole map may need; part of the reserve.
    pub checkpoint_segments: u32,
    /// Most map pages (1 MiB of volume each) that the pool can keep.
    pub map_pages_max: u64,
    /// Bytes of memory for the map when `usable_bytes` are mapped densely.
    pub map_bytes: u64,
    /// Most bytes of memory for the table of shared contents, if volumes deduplicate: all
    /// `usable_bytes` are content without duplicates. The contents then have a map of their own
    /// (`map_bytes` again) and an index of at most [`Limits::index_bytes`].
    pub ids_bytes: u64,
    /// Pages of the deduplication index (4 KiB each) for which room is reserved.
    pub index_pages: u64,
    /// Difference between `data_bytes` and `usable_bytes`.
    pub overhead: Overhead,
}

/// Bytes of a pool's data columns that are not for user data. Together with the usable bytes they
/// are [`PoolPlan::data_bytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Overhead {
    /// Headers, tables and footers of batches.
    pub batch_bytes: u64,
    /// Room for two images of the map and for writing a third.
    pub checkpoint_bytes: u64,
    /// Open segments, segments reserved ahead, cleaning victims.
    pub reserve_bytes: u64,
    /// Pages of the deduplication index.
    pub index_bytes: u64,
    /// The spare factor.
    pub spare_bytes: u64,
    /// Ends of columns, where reduction is used as capacity.
    pub column_bytes: u64,
    /// Bytes of each member that the journal takes. (Not part of the data columns.)
    pub journal_bytes_each: u64,
}
