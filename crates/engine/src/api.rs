//! What the engine's drivers (host, simulator, lab) see of it.
//!
//! A driver owns an [`Engine`](crate::Engine), hands it [`Event`]s by `apply`, and carries out what
//! it finds in the [`Outbox`]: member commands, CPU jobs, answers. Every command and job comes back
//! exactly once as an event. The engine never waits, never reads a clock (time comes in
//! [`Event::Tick`]) and holds no randomness, so that equal events give equal effects.

mod status;

pub use status::*;

use crate::jobs::Job;
use crate::limits::{
    BACKGROUND_BESIDE_BYTES, FLUSH_COST_BYTES, FOREGROUND_BESIDE_BYTES, JOURNAL_DEVICE_BYTES,
};
use serde::{Deserialize, Serialize};
use windrow_geometry::Redundancy;
use windrow_io::{Completion, MemberCommand, MemberDone, Request};
use windrow_types::{Lsn, MemberId, Uuid, VolumeId};

/// What a driver tells the engine.
#[derive(Debug)]
pub enum Event {
    /// A request of a front-end.
    Request(Request),
    /// A member command ended.
    Member(MemberDone),
    /// A job has run.
    Job(Job),
    /// An administrator's command.
    Control(ControlRequest),
    /// Time goes on; nanoseconds of a monotonic clock. To be sent at least as often as
    /// [`Outbox::wake_at_ns`] says. As the last event of a group it is the time of the whole group.
    Tick(u64),
}

/// What the engine wants done. The driver drains it after every `apply`.
#[derive(Debug, Default)]
pub struct Outbox {
    /// To be started in this order; they may complete in any order.
    pub commands: Vec<MemberCommand>,
    /// To be run on any thread (`Job::run`), then handed back.
    pub jobs: Vec<Job>,
    /// Answers to requests.
    pub completions: Vec<Completion>,
    /// Answers to control requests.
    pub control: Vec<ControlCompletion>,
    /// News for the administrator.
    pub notices: Vec<Notice>,
    /// If set: send a [`Event::Tick`] no later than this time.
    pub wake_at_ns: Option<u64>,
}

/// Chosen by the driver, given back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ControlId(pub u64);

/// An administrator's command to the running engine.
#[derive(Clone, Debug)]
pub struct ControlRequest {
    /// Given back.
    pub id: ControlId,
    /// What to do.
    pub command: Control,
}

/// The commands.
#[derive(Clone, Debug)]
pub enum Control {
    /// A new thin volume. Durable when answered.
    VolumeCreate {
        /// 1 to 63 bytes, unique in the pool.
        name: String,
        /// A multiple of 4096, at least one block.
        size_bytes: u64,
    },
    /// A new size; what lies beyond a smaller one is gone.
    VolumeResize {
        /// Which.
        volume: VolumeId,
        /// A multiple of 4096, at least one block.
        size_bytes: u64,
        /// A smaller size than it has when its turn comes is meant, too.
        shrink: bool,
    },
    /// Delete a volume; its space comes back step by step.
    VolumeDelete {
        /// Which.
        volume: VolumeId,
    },
    /// What flushes of a volume do. Durable when answered. Only pools with a journal can.
    VolumeSync {
        /// Which.
        volume: VolumeId,
        /// What they do.
        sync: windrow_format::checkpoint::SyncMode,
    },
    /// How blocks of a volume are stored from now on; those that are there stay as they are.
    /// Durable when answered.
    VolumeCompression {
        /// Which.
        volume: VolumeId,
        /// How.
        compression: windrow_format::checkpoint::Compression,
    },
    /// Whether blocks of a volume are shared from now on; those that are there stay as they are.
    /// Durable when answered. The first time it takes some of the pool's space for the map of
    /// shared content: refused with no space if it is too full for that.
    VolumeDedup {
        /// Which.
        volume: VolumeId,
        /// How.
        dedup: windrow_format::checkpoint::Dedup,
    },
    /// Another name for a volume. Durable when answered.
    VolumeRename {
        /// Which.
        volume: VolumeId,
        /// 1 to 63 bytes, unique in the pool.
        name: String,
    },
    /// Another name for the pool. Durable when answered. Labels keep the name of the creation: the
    /// superblock rules.
    PoolRename {
        /// 1 to 63 bytes.
        name: String,
    },
    /// Count what each volume keeps for itself, and what it shares with others
    /// ([`ControlReply::Sharing`]). Changes nothing, also where nothing may be written. Answered
    /// when the maps of all volumes have been looked through, a bounded part in each step.
    CountSharing,
    /// Set properties (all of them; take the current ones from [`PoolStatus`]).
    SetProperties(windrow_format::superblock::Properties),
    /// Use further members of the table for data. Answered when the new layout is in force; what
    /// lies in the old one then moves over by itself, see [`PoolStatus::reshape`].
    Grow {
        /// Which: spares, at least one.
        members: Vec<MemberId>,
    },
    /// Take a member that holds data out of the pool for good. Answered when the layout over the
    /// others is in force; what lies on it then moves over by itself, see [`PoolStatus::reshape`],
    /// and in the end there is [`Notice::Removed`].
    Remove {
        /// Which.
        member: MemberId,
    },
    /// Write a checkpoint now.
    Checkpoint,
    /// What time it is, for what the pool remembers of it; the engine has no clock of its own. To
    /// be told again from time to time.
    WallClock {
        /// Seconds since 1970.
        unix_s: u64,
    },
    /// Begin, pause, resume or stop a scrub. Answered at once: the scrub goes on by itself, see
    /// [`PoolStatus::scrub`].
    Scrub(ScrubCommand),
    /// Something is to become of a member, or of a slot of the member table. Answered when it is on
    /// record, but for [`MemberChange::Settle`].
    Member {
        /// Which; for a spare the slot that it gets: one that is removed, or the one after the
        /// last.
        member: MemberId,
        /// What.
        change: MemberChange,
    },
    /// Finish everything, write a checkpoint; with `export` mark the pool as exported. Requests
    /// that come later are refused.
    Shutdown {
        /// Release the pool for another host.
        export: bool,
    },
}

/// What is to become of a member. How a driver exchanges a device: take the member out, settle, put
/// the other device in its place, and tell the engine by `BringBack` or `Exchange`.
#[derive(Clone, Debug)]
pub enum MemberChange {
    /// Nothing is sent to it any more. Refused if the redundancy does not cover its loss beside
    /// those that are lost already.
    TakeOut,
    /// The host has seen that its device is too small for what the pool has on it: it has failed,
    /// and if it comes back, larger again, it is rebuilt as a whole. Refused if it is in use and
    /// the redundancy does not cover its loss.
    CutShort {
        /// What the host has seen.
        reason: String,
    },
    /// Answered when the member is out of use, that is on record, and none of its commands is in
    /// flight any more.
    Settle,
    /// The device that left is there again: this is the newest superblock that it bears. It is
    /// rebuilt.
    BringBack {
        /// The superblock.
        superblock: Box<windrow_format::superblock::Superblock>,
    },
    /// A device without superblocks is in its place. It is rebuilt from nothing.
    Exchange {
        /// The new device; with `spare` its own, which is not looked at.
        uuid: Uuid,
        /// Its usable bytes.
        size_bytes: u64,
        /// What is written to it is durable without a flush: asked for in the place of a journal
        /// device that is declared so.
        power_safe: bool,
        /// It is the device of this spare, whose slot is free from then on.
        spare: Option<MemberId>,
    },
    /// A spare waits in this slot; its device has a label that says so.
    AddSpare {
        /// The device.
        uuid: Uuid,
        /// Its usable bytes.
        size_bytes: u64,
    },
    /// A spare becomes a journal device.
    Serve {
        /// What its device can write: 512 or 4096 bytes. Not more than what records are measured
        /// in, if the pool has journal devices.
        granule: u32,
        /// What is written to it is durable without a flush.
        power_safe: bool,
    },
    /// This spare becomes a copy of the member, which is in service and stays so. When it is
    /// complete, [`Notice::ReplacementReady`] says so.
    Prepare {
        /// The spare.
        spare: MemberId,
    },
    /// The device of the spare that is a copy of the member is to take its place: answered when
    /// nothing is in flight to either. What follows is kept back until [`MemberChange::Switched`]
    /// or [`MemberChange::Thaw`].
    Switch,
    /// The spare's device is in the member's place, and nothing in its own.
    Switched,
    /// The devices are where they were before [`MemberChange::Switch`].
    Thaw,
    /// The slot of a spare is free from then on, or that of a journal device that is out of use, if
    /// the log has what it promised.
    GiveUp,
}

/// What a scrub is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubCommand {
    /// Begin at the first segment. One that is running or paused is refused.
    Start {
        /// The time, seconds since 1970: for the report.
        unix_s: u64,
        /// Most bytes read from members each second; 0: no bound.
        bytes_per_second: u64,
    },
    /// Stand still until it is resumed, also over a restart.
    Pause,
    /// Go on.
    Resume,
    /// End it where it is.
    Stop,
}

/// The answer to a control request.
#[derive(Clone, Debug)]
pub struct ControlCompletion {
    /// The request's id.
    pub id: ControlId,
    /// Its result.
    pub result: Result<ControlReply, ControlError>,
}

/// What a control request answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlReply {
    /// Done.
    Done,
    /// The new volume.
    Volume(VolumeId),
    /// What each volume keeps for itself.
    Sharing(Sharing),
}

/// What each volume keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// All volumes.
    pub volumes: Vec<VolumeSharing>,
    /// True if nothing changed while it was counted: then all sums are of one moment.
    pub exact: bool,
}

/// What one volume keeps for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSharing {
    /// Which.
    pub id: VolumeId,
    /// Stored bytes that go when the volume is deleted: of blocks that are not shared, and of
    /// content that no other volume refers to.
    pub exclusive_bytes: u64,
}

/// Why a control request failed.
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
    /// A volume would become smaller, and nobody said that it may.
    #[error("it would become smaller: it has {size_bytes} bytes")]
    Smaller {
        /// What it has.
        size_bytes: u64,
    },
    /// No room (volumes, map memory or space).
    #[error("{0}")]
    NoSpace(String),
    /// The state of the member, or of the pool, does not allow it.
    #[error("member {member}: {why}")]
    Member {
        /// Which.
        member: MemberId,
        /// Why.
        why: String,
    },
    /// The pool has stopped or is stopping.
    #[error("the pool has stopped")]
    Stopped,
}

/// News for the administrator: goes to the log and the event hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Notice {
    /// A member was latched out after a fault.
    MemberFailed {
        /// Which.
        member: MemberId,
        /// Its last error.
        error: String,
    },
    /// A member or a spare was not there when the pool was opened; the pool goes on without it.
    /// Told by the host.
    MemberMissing {
        /// Which.
        member: MemberId,
    },
    /// A spare has become a copy of a member, and can take its place.
    ReplacementReady {
        /// The member.
        member: MemberId,
        /// The spare.
        spare: MemberId,
    },
    /// A spare is no copy of a member any more, as one of the two has left service.
    ReplacementEnded {
        /// The member.
        member: MemberId,
        /// The spare.
        spare: MemberId,
    },
    /// Another device is in the place of a member, and holds all that the one before held.
    Replaced {
        /// The member.
        member: MemberId,
    },
    /// A member was taken out of service by the administrator.
    MemberOffline {
        /// Which.
        member: MemberId,
    },
    /// What the start found: damage, a checkpoint that could not be used, devices that are not the
    /// pool's. Told by the host.
    StartNote {
        /// In words.
        note: String,
    },
    /// A block was repaired from redundancy.
    Repaired {
        /// Volume.
        volume: VolumeId,
        /// Block.
        lba: u64,
        /// Member that gave wrong bytes or none.
        member: MemberId,
    },
    /// The label of a member was damaged or gone, and has been written again. Without it the device
    /// would be unknown to the next start.
    LabelWritten {
        /// Which.
        member: MemberId,
    },
    /// A spare does not answer, does not take its label, or bears that of another pool: it would
    /// not take a member's place either. Found by scrubs.
    SpareFailed {
        /// Which.
        member: MemberId,
    },
    /// Blocks can neither be read nor be reconstructed. Reported once until they are written,
    /// trimmed or read well, and once more by each scrub.
    Unrecoverable {
        /// Volume.
        volume: VolumeId,
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// A block refers to shared content that can not be read and not be rebuilt: it is lost with
    /// it. Follows on [`Notice::Unrecoverable`] for volume 0, whose blocks are the shared contents,
    /// once in a start for each content.
    UnrecoverableReference {
        /// Volume.
        volume: VolumeId,
        /// Block.
        lba: u64,
        /// Content.
        content: u64,
    },
    /// Further blocks refer to shared content that is lost; nobody has named them.
    UnnamedReferences {
        /// How many.
        more: u64,
    },
    /// Use of the pool passed one of its warnings upwards. Told again after use has been two per
    /// cent below it.
    Filling {
        /// The threshold passed.
        percent: u8,
    },
    /// Volumes promise more than there is: the sum of their sizes has passed what is usable.
    Overcommitted {
        /// Sizes of all volumes.
        provisioned_bytes: u64,
        /// What users may fill.
        usable_bytes: u64,
    },
    /// A write was refused because all map pages are in use: told once for each time they run out.
    MapFull {
        /// How many there are.
        pages: u64,
        /// Memory bounds them; otherwise the size of the pool, of which checkpoints of the map take
        /// a share.
        by_memory: bool,
    },
    /// No segment comes free any more: data is refused until users make room. Reported again after
    /// there was room.
    Exhausted {
        /// Segments that are set aside for blocks that cannot be read. 0: there is no damage, and
        /// the reserve is used up, which is a fault of the engine.
        segments: u32,
    },
    /// A member that was away is there again and is being rebuilt.
    MemberRebuilding {
        /// Which.
        member: MemberId,
        /// Segments that are not whole on it.
        segments: u32,
    },
    /// A member is whole again.
    MemberRebuilt {
        /// Which.
        member: MemberId,
    },
    /// Many reads of a member have been late for a while. It stays in service; its reads are done
    /// around it, as far as that goes.
    MemberSlow {
        /// Which.
        member: MemberId,
        /// Reads of users that it was asked for in the last seconds.
        reads: u32,
        /// Those among them that were late.
        slow_reads: u32,
    },
    /// The reads of a member that was slow are in time again.
    MemberNotSlow {
        /// Which.
        member: MemberId,
    },
    /// A command of a member that somebody waits for has had no answer for more than ten seconds:
    /// the pool may wait for it.
    MemberHangs {
        /// Which.
        member: MemberId,
        /// Its commands that have not ended.
        commands: u32,
    },
    /// A member that hung answers again.
    MemberAnswers {
        /// Which.
        member: MemberId,
    },
    /// A scrub has reached the last segment.
    ScrubEnded {
        /// Blocks of members that were not what they must be.
        wrong_blocks: u64,
        /// Blocks of volumes that can neither be read nor be rebuilt.
        lost_blocks: u64,
        /// Batches whose tables can neither be read nor be rebuilt.
        damaged_batches: u64,
        /// Blocks of volumes that can be read, but lack redundancy, and could not be moved for want
        /// of room.
        unmoved_blocks: u64,
    },
    /// A pool has grown: data is written to all its members from now on.
    Grown {
        /// Members in use.
        members: u32,
        /// Segments of the old layout, whose data moves over.
        segments: u32,
    },
    /// A member leaves: nothing new is laid out on it.
    Leaving {
        /// Which.
        member: MemberId,
        /// Segments of the old layout, whose data moves over.
        segments: u32,
    },
    /// A member that held data is none any more, on record on all others, and nothing is in flight
    /// to its device.
    Removed {
        /// Which slot.
        member: MemberId,
        /// What its device was known by.
        uuid: Uuid,
    },
    /// Nothing is left in old layouts.
    Reshaped,
    /// The pool has stopped.
    Stopped {
        /// Why.
        reason: String,
    },
}

/// Options of a start.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// This host.
    pub host: Uuid,
    /// Read-only: no byte is written, not even the fence; writes are refused.
    pub read_only: bool,
    /// Import although another host has the pool, or although members are absent that nobody
    /// recorded as absent.
    pub force: bool,
    /// Start although a journal is lost that may hold, or surely holds, what was promised to be
    /// durable: that is lost then.
    pub discard_journal: bool,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds that are fixed at start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Most bytes of admitted writes that are not in the log yet.
    pub pending_bytes: u64,
    /// Most batches of one stream on their way to the members.
    pub batches_in_flight: u32,
    /// Most bytes of memory for maps; volumes' pages beyond it are refused with no space.
    pub map_bytes: u64,
    /// Most bytes that a placement may keep of the blocks that it tells apart, beside the map. One
    /// that would keep more is refused.
    pub placement_bytes: u64,
    /// Most bytes of the index of deduplication; a pool with fewer blocks takes what it needs.
    pub index_bytes: u64,
    /// Most requests that may wait for admission.
    pub waiting_requests: u32,
    /// What a write and a flush of one member cost, in bytes that it could have written meanwhile
    /// (docs/internals/journal.md, Cost).
    pub flush_cost_bytes: u64,
    /// Records of one flush up to this size go to journal devices whatever they cost; of a larger
    /// one, what does not fill rows.
    pub journal_device_bytes: u64,
    /// Payloads of journal records are packed (LZ4) where that makes them smaller.
    pub compresses_records: bool,
    /// Most of users' batches under way at one member while somebody reads or flushes
    /// (docs/internals/scheduling.md, Windows).
    pub foreground_window_bytes: u64,
    /// Most of cleaning, checkpoints, rebuild, scrub and discards while users are about.
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

/// Part of opening a pool, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenPhase {
    /// Superblocks and quorum.
    Superblocks,
    /// Loading the checkpoint.
    Checkpoint,
    /// Following the chains and applying their entries.
    Replay,
    /// Counting live blocks, completing batches, the fence.
    Fence,
}

/// What recovery found and did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OpenReport {
    /// Number of the checkpoint it began with.
    pub checkpoint: u64,
    /// P: every order up to this one is in effect, none above.
    pub recovery_lsn: Lsn,
    /// Batches replayed.
    pub batches: u64,
    /// Bytes of replayed batches on the members.
    pub batch_bytes: u64,
    /// Batches whose missing or wrong parts were written again.
    pub completed_batches: u64,
    /// Copies of journal chunks that were written again.
    pub completed_records: u64,
    /// Entries applied.
    pub entries: u64,
    /// Map pages read.
    pub map_pages: u64,
    /// What of P the log has, without a gap; the rest was read from the journal.
    pub log_lsn: Lsn,
    /// Orders in batches that count for nothing there: they lie behind the gap at which the log
    /// ends, or a fence calls them void. What of them was promised comes from the journal.
    pub void_lsns: u64,
    /// True if the pool had been exported or shut down cleanly.
    pub clean: bool,
    /// Damage that was found and lost nothing, and devices that are not used, in words.
    pub notes: Vec<String>,
}

/// What a pool is made of, at creation.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// 1 to 63 bytes.
    pub name: String,
    /// Redundancy.
    pub redundancy: Redundancy,
    /// Rows of a chunk (each row is 4 KiB on a member); `None`: by member size.
    pub chunk_rows: Option<u32>,
    /// Rows of a segment; `None`: by member size.
    pub segment_rows: Option<u32>,
    /// Extents are aligned to this many bytes (erase block); a power of two, at least 4096.
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

/// What journals a new pool is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSpec {
    /// Bytes of the internal one on each member; `None`: by member size; 0: only devices of its
    /// own.
    pub bytes_each: Option<u64>,
    /// The largest sector of the members: 512 or 4096 bytes.
    pub granule: u32,
    /// Devices that hold nothing but the journal, each all of it: identifiers and usable sizes in
    /// bytes. They are the last members of the pool.
    pub devices: Vec<(Uuid, u64)>,
    /// What is written to these devices is durable without a flush.
    pub power_safe: bool,
}

impl JournalSpec {
    /// An internal one.
    pub fn internal(bytes_each: Option<u64>, granule: u32) -> Self {
        Self {
            bytes_each,
            granule,
            devices: Vec::new(),
            power_safe: false,
        }
    }
}

/// What `--dry-run` shows.
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
    /// Most bytes of memory of the table of shared contents, if volumes deduplicate: when
    /// `usable_bytes` are content of which nothing is a duplicate. Then the contents have a map of
    /// their own, too, with `map_bytes` again, and there is an index of at most
    /// [`Limits::index_bytes`].
    pub ids_bytes: u64,
    /// Pages of the index of deduplication (4 KiB each) for which room is kept.
    pub index_pages: u64,
    /// What lies between `data_bytes` and `usable_bytes`.
    pub overhead: Overhead,
}

/// Bytes of a pool's data columns that user data does not get. Together with the usable bytes they
/// are [`PoolPlan::data_bytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Overhead {
    /// Headers, tables and footers of batches.
    pub batch_bytes: u64,
    /// Room for two images of the map and the writing of a third.
    pub checkpoint_bytes: u64,
    /// Open segments, segments held ahead, victims of cleaning.
    pub reserve_bytes: u64,
    /// Pages of the index of deduplication.
    pub index_bytes: u64,
    /// The spare factor.
    pub spare_bytes: u64,
    /// Ends of columns, where reduction is capacity.
    pub column_bytes: u64,
    /// Bytes of each member that the journal takes. (No part of the data columns.)
    pub journal_bytes_each: u64,
}
