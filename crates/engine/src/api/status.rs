//! Content of `status` and `stats` of a running pool: counters, states, sums.

use super::{Limits, PoolPlan};
use serde::{Deserialize, Serialize};
use windrow_types::{Lsn, MemberId, Uuid, VolumeId};

/// Bytes written by cause. Each byte sent to a member is in exactly one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WrittenBytes {
    /// User data.
    pub user: u64,
    /// Batch headers, tables, footers.
    pub header: u64,
    /// Redundancy columns, whatever the data.
    pub parity: u64,
    /// Blocks moved by cleaning.
    pub moved: u64,
    /// Padding.
    pub padding: u64,
    /// Records of the journal.
    pub journal: u64,
    /// Checkpoint pages.
    pub checkpoint: u64,
    /// Pages of the deduplication index.
    pub index: u64,
    /// Superblocks and labels.
    pub superblock: u64,
    /// Repair of torn or wrong parts.
    pub repair: u64,
    /// Rebuild of members that returned.
    pub rebuild: u64,
}

impl WrittenBytes {
    /// Sum of all causes.
    pub fn total(&self) -> u64 {
        self.user
            + self.header
            + self.parity
            + self.moved
            + self.padding
            + self.journal
            + self.checkpoint
            + self.index
            + self.superblock
            + self.repair
            + self.rebuild
    }
}

/// Counters of one member since start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MemberStats {
    /// Bytes written, by cause.
    pub written: WrittenBytes,
    /// Bytes read.
    pub read_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
    /// Failed operations.
    pub errors: u64,
    /// Blocks returned with a wrong checksum to reads, cleaning and scrubs.
    pub wrong_blocks: u64,
    /// User reads that it answered late or has not answered, or that skipped it as too many late
    /// reads are outstanding.
    pub slow_reads: u64,
}

/// State of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Bytes of the journal, each counted once; 0: the pool has none.
    pub bytes: u64,
    /// Copies of each record.
    pub copies: u8,
    /// True if it is on dedicated devices.
    pub external: bool,
    /// Chunks.
    pub chunks: u32,
    /// Chunks that hold data which is not in the log yet.
    pub chunks_used: u32,
    /// Rounds that made flushes durable; each may have served many.
    pub rounds: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of these records, each counted once.
    pub record_bytes: u64,
    /// Device flushes for these records.
    pub member_flushes: u64,
    /// Flushes left to the log because it was cheaper.
    pub log_cheaper: u64,
    /// Flushes left to the log because the journal lacked part of their data.
    pub log_unlisted: u64,
    /// Flushes left to the log because no journal chunk was free.
    pub log_full: u64,
    /// Flushes that sealed full rows to the log and wrote the rest to the journal.
    pub both: u64,
}

/// A volume as `status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeStatus {
    /// Id.
    pub id: VolumeId,
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes of blocks that hold data (committed).
    pub mapped_bytes: u64,
    /// Read-only.
    pub read_only: bool,
    /// Effect of flushes.
    pub sync: windrow_format::checkpoint::SyncMode,
    /// Compression of its blocks.
    pub compression: windrow_format::checkpoint::Compression,
    /// Deduplication of its blocks.
    pub dedup: windrow_format::checkpoint::Dedup,
    /// Bytes of its blocks that refer to shared content.
    pub shared_bytes: u64,
    /// Bytes that its blocks are stored in (committed): payload only, in whole units.
    pub stored_bytes: u64,
    /// Being deleted.
    pub deleting: bool,
}

/// A member as `status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct MemberStatus {
    /// Index.
    pub member: MemberId,
    /// Identifier.
    pub uuid: Uuid,
    /// `online`, `missing`, `faulted`, `offline`, `rebuilding`, `spare` or `removed`
    /// (docs/internals/members.md).
    pub state: &'static str,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Minimum size in bytes of a replacement device; 0 for a slot that is not in use.
    pub needed_bytes: u64,
    /// Maximum logical sector in bytes of a replacement device: a journal on it is written in units
    /// of this size.
    pub sector_bytes_max: u32,
    /// A journal device declared power-safe: writes to it are not flushed.
    pub power_safe: bool,
    /// True if many of its reads have been late for a while; its reads are hedged at once.
    pub slow: bool,
    /// A dedicated journal device.
    pub journal: bool,
    /// It leaves the pool when its data has moved to the others (docs/internals/reshape.md).
    pub leaving: bool,
    /// Age in milliseconds of its oldest awaited command without an answer; 0 below ten seconds
    /// (discards: two minutes).
    pub hangs_ms: u64,
    /// Out of service: commands that its device has not answered. No device can take its slot until
    /// they have ended.
    pub unanswered: u32,
    /// Reason that it is out of service, as far as known; empty if it is in service.
    pub reason: String,
    /// Time at which it left service, seconds since 1970; 0: unknown, or it is in service.
    pub since_unix_s: u64,
    /// Of a spare: the member in service that it is to replace.
    pub replaces: Option<MemberId>,
    /// True if it is a complete copy of that member.
    pub replacement_ready: bool,
    /// True if it is, or is becoming, such a copy.
    pub is_shadow: bool,
}

/// State of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// No scrub has run.
    #[default]
    None,
    /// In progress.
    Running,
    /// Waiting to be resumed.
    Paused,
    /// Finished the last segment.
    Completed,
    /// Stopped before the last segment.
    Stopped,
}

/// A block of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeBlock {
    /// Volume.
    pub volume: VolumeId,
    /// Block of 4 KiB.
    pub lba: u64,
}

/// A range of blocks of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeRange {
    /// Volume.
    pub volume: VolumeId,
    /// First block of 4 KiB.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// Blocks that are known to be lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DamageStatus {
    /// Blocks of volumes found lost since the start, and not written, trimmed or read well since.
    pub lost_blocks: u64,
    /// Shared contents found lost. The blocks that refer to them are added to `lost_blocks` as they
    /// are found.
    pub lost_contents: u64,
    /// First ranges of lost blocks.
    pub lost: Vec<VolumeRange>,
    /// Blocks found lost before this start and since then neither written, trimmed nor read. A
    /// completed scrub resets it.
    pub recalled_blocks: u64,
    /// First ranges of them, as far as the last checkpoint listed them.
    pub recalled: Vec<VolumeRange>,
    /// Time at which the oldest of them was found, seconds since 1970; 0: none, or unknown.
    pub since_unix_s: u64,
}

/// The current rebuild, or the last one since start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Members that are being rebuilt now.
    pub members: Vec<MemberId>,
    /// Segments completed.
    pub segments_done: u32,
    /// Segments to complete in total, less those emptied meanwhile.
    pub segments_total: u32,
    /// Bytes read from members.
    pub read_bytes: u64,
    /// Bytes written to members that are rebuilt.
    pub written_bytes: u64,
    /// Bytes still to be written, less those of segments emptied meanwhile.
    pub left_bytes: u64,
    /// Current rate in bytes per second.
    pub bytes_per_second: u64,
    /// Milliseconds until the next attempt, if all that is left was unreadable. The rebuild ends
    /// earlier if none of the remaining data is live any more.
    #[serde(default)]
    pub waits_ms: u64,
    /// Batches not rebuilt because their tables are unreadable and cannot be reconstructed. Their
    /// blocks may still be readable one by one.
    pub damaged_batches: u64,
}

/// The current scrub, or the last one. After a crash the sums are those of the last checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// State.
    pub state: ScrubState,
    /// Start time, seconds since 1970.
    pub started_unix_s: u64,
    /// End time, seconds since 1970; 0: not ended, or the time was unknown.
    pub ended_unix_s: u64,
    /// Time at which a scrub last completed, this one or an earlier one, seconds since 1970; 0:
    /// none has, or the time was unknown.
    pub completed_unix_s: u64,
    /// Milliseconds in state `running`.
    pub active_ms: u64,
    /// Most bytes read from members per second; 0: no limit.
    pub bytes_per_second: u64,
    /// Segments scrubbed.
    pub segments_done: u32,
    /// Segments of the pool.
    pub segments_total: u32,
    /// Batches verified.
    pub batches: u64,
    /// Bytes read from members.
    pub read_bytes: u64,
    /// Blocks of members that had wrong content or were unreadable.
    pub wrong_blocks: u64,
    /// Live blocks rewritten because their rows contained an error.
    pub moved_blocks: u64,
    /// Live blocks that should have been moved but were not, because the pool has no room. They are
    /// readable but lack redundancy.
    pub unmoved_blocks: u64,
    /// Live blocks that are unreadable and cannot be reconstructed. At the end of a scrub this
    /// includes those that a salvage declared lost.
    pub lost_blocks: u64,
    /// Batches whose tables are unreadable and cannot be reconstructed. Their blocks may still be
    /// readable one by one.
    pub damaged_batches: u64,
    /// First lost blocks since the start of the engine.
    pub lost: Vec<VolumeBlock>,
}

/// Everything `status` and `stats` show of a running pool.
#[derive(Clone, Debug, Serialize)]
pub struct PoolStatus {
    /// Pool.
    pub pool: Uuid,
    /// Name.
    pub name: String,
    /// Redundancy name.
    pub redundancy: &'static str,
    /// `online`, `degraded` or `stopped`.
    pub state: &'static str,
    /// Reason that it stopped, if it did.
    pub stop_reason: Option<String>,
    /// Creation time of the pool, seconds since 1970; 0: unknown.
    pub created_unix_s: u64,
    /// Superblock generation.
    pub generation: u64,
    /// Epoch.
    pub epoch: u64,
    /// Members.
    pub members: Vec<MemberStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Version of the volume table since start. It grows with each change, so the higher one of two
    /// states is the newer.
    pub volumes_version: u64,
    /// Spare factor in thousandths.
    pub spare_per_mille: u16,
    /// Most milliseconds that acknowledged data may wait before it is sealed.
    pub seal_age_ms: u32,
    /// Name of the placement policy.
    pub placement: &'static str,
    /// Streams of user writes that the pool can afford for the placement policy.
    pub user_streams: u8,
    /// Streams of moved blocks that it can afford for the placement policy.
    pub moved_streams: u8,
    /// Memory of the placement policy in bytes, in addition to that of the map.
    pub placement_bytes: u64,
    /// Blocks written or moved since the policy was set that went to a stream other than the first
    /// of their kind.
    pub further_blocks: u64,
    /// Blocks since then that went to the first stream of their kind because their own stream could
    /// not take them.
    pub overflowed_blocks: u64,
    /// Name of the victim rule.
    pub victim_policy: String,
    /// True if freed segments are discarded.
    pub discard: bool,
    /// All properties.
    pub properties: windrow_format::superblock::Properties,
    /// Geometry and capacity.
    pub plan: PoolPlan,
    /// Bytes that count against `usable_bytes`: blocks that hold data. Where the savings of
    /// reduction are capacity it is the charge of these blocks.
    pub used_bytes: u64,
    /// Use of the savings of compression and deduplication, and its effect on cleaning.
    pub reduction_use: crate::api::ReductionUse,
    /// Free segments now.
    pub free_segments: u32,
    /// Segments now that hold user data and are closed: not open, free, dead, or of checkpoints.
    pub data_segments: u32,
    /// Of those, cleaning victims.
    pub cleaning_segments: u32,
    /// Bytes of live blocks in those segments.
    pub data_live_bytes: u64,
    /// Bytes of their data columns that are not live: the gain of cleaning without any trim.
    pub garbage_bytes: u64,
    /// Highest warning threshold ([`windrow_format::superblock::Properties::warn_at`]) that use has
    /// passed, in per cent; 0: none.
    pub warned_percent: u8,
    /// Bytes on all members of all segments that are not free, redundancy included.
    pub physical_bytes: u64,
    /// Map memory in use, in bytes: pages, and the directories of volumes.
    pub map_bytes: u64,
    /// Map pages in use. A page maps 1 MiB of a volume and exists where something was written.
    pub map_pages: u64,
    /// Limit of map pages. A write that needs one more fails with no space, even if `used_bytes` is
    /// far below `usable_bytes`.
    pub map_pages_max: u64,
    /// Writes refused since start because no map page was left.
    pub refused_map_pages: u64,
    /// Writes refused since start because the pool's usable space was full.
    pub refused_space: u64,
    /// Data is refused because no segment can be freed. This ends when clients trim or delete, or
    /// unreadable blocks become readable again.
    pub refuses_data: bool,
    /// Limits.
    pub limits: Limits,
    /// Bytes of acknowledged writes in memory that are not durable yet: a power cut now loses them.
    pub at_risk_bytes: u64,
    /// Bytes of admitted writes that are not in the log yet. Requests that wait for admission are
    /// not counted.
    pub pending_bytes: u64,
    /// Counters per member since start.
    pub member_stats: Vec<MemberStats>,
    /// Sums over the members since start.
    pub written: WrittenBytes,
    /// Bytes of user writes (payloads of write requests) since start.
    pub user_write_bytes: u64,
    /// Bytes of user reads since start.
    pub user_read_bytes: u64,
    /// User blocks found to be all zeroes or all ones.
    pub fill_blocks: u64,
    /// Compression counters since start.
    pub reduction: crate::api::ReductionSums,
    /// Deduplication: current sharing, and counters since start.
    pub dedup: crate::api::DedupStatus,
    /// Bytes that the blocks of all volumes are stored in (committed): payload only, in whole
    /// units.
    pub stored_bytes: u64,
    /// Flush and FUA requests completed.
    pub flushes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints that the cleaner requested because no other segment could be cleaned.
    pub checkpoints_forced: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// User blocks admitted per 1024 blocks that cleaning gains; `None` while writes are not
    /// throttled to its pace.
    pub users_per_1024_gained: Option<u64>,
    /// The current scrub, or the last one.
    pub scrub: ScrubStatus,
    /// Blocks that are known to be lost.
    pub damage: DamageStatus,
    /// The current rebuild, or the last one since start.
    pub rebuild: RebuildStatus,
    /// Progress of moving data to the active layout.
    pub reshape: ReshapeStatus,
    /// The journal.
    pub journal: JournalStatus,
    /// Member commands held back now by the I/O scheduler.
    pub held_commands: u64,
    /// Times of the stages of requests since start; left empty by the engine, see
    /// [`crate::engine::Engine::stage_times`].
    pub stages: Vec<crate::base::stages::StageTimes>,
    /// Newest LSN.
    pub lsn: Lsn,
    /// Highest durable LSN: every LSN up to it is durable.
    pub durable_lsn: Lsn,
    /// User bytes over the life of the pool; after a crash a lower bound.
    pub lifetime_user_bytes: u64,
    /// Bytes to members over the life of the pool; after a crash a lower bound.
    pub lifetime_member_bytes: u64,
    /// Compression counters over the life of the pool; after a crash a lower bound.
    pub lifetime_reduction: crate::api::ReductionSums,
    /// Deduplication counters over the life of the pool; after a crash a lower bound.
    pub lifetime_dedup: crate::api::DedupSums,
}

/// Progress of the move to the active layout. All zero if there was only one since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReshapeStatus {
    /// True if there are older layouts.
    pub active: bool,
    /// Number of segments of older layouts without data.
    pub segments_done: u32,
    /// Number of segments of older layouts.
    pub segments_total: u32,
    /// Number of segments of older layouts with unreadable blocks: they stay until these are
    /// overwritten or trimmed.
    pub segments_damaged: u32,
    /// Number of those done since the start of the engine, or since the last growth if that is
    /// later.
    pub segments_since: u32,
    /// Milliseconds since then.
    pub active_ms: u64,
    /// Bytes of live blocks moved only for the reshape, since the start of the engine.
    pub moved_bytes: u64,
    /// Bytes of live blocks in older layouts, still to be moved.
    #[serde(default)]
    pub left_bytes: u64,
    /// Present rate of the move in bytes per second.
    #[serde(default)]
    pub bytes_per_second: u64,
    /// Reason that nothing moves, if that is so.
    #[serde(default)]
    pub waits_for: ReshapeWait,
}

/// Reason that the move to another layout waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReshapeWait {
    /// It moves, or is not active.
    #[default]
    Nothing,
    /// The rebuild of a member.
    Rebuild,
    /// Free segments.
    Room,
    /// Flushes or checkpoints that free moved segments.
    Checkpoint,
    /// Unreadable blocks that must be overwritten or trimmed, or become readable.
    Damage,
}
