//! What `status` and `stats` show of a running pool: counters, states, sums.

use super::{Limits, PoolPlan};
use crate::reshape::ReshapeStatus;
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
    /// Redundancy columns (of whatever).
    pub parity: u64,
    /// Blocks moved by cleaning.
    pub moved: u64,
    /// Padding.
    pub padding: u64,
    /// Records of the journal.
    pub journal: u64,
    /// Checkpoint pages.
    pub checkpoint: u64,
    /// Pages of the index of deduplication.
    pub index: u64,
    /// Superblocks and labels.
    pub superblock: u64,
    /// Repair of torn or wrong parts.
    pub repair: u64,
    /// Rebuild of members that came back.
    pub rebuild: u64,
}

impl WrittenBytes {
    /// The sum.
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
    /// Blocks that it returned with a wrong checksum, to reads, cleaning and scrubs.
    pub wrong_blocks: u64,
    /// Reads of users that it answered late, or not yet, or was not asked for as it owes too many.
    pub slow_reads: u64,
}

/// The journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Bytes of it, each counted once; 0: the pool has none.
    pub bytes: u64,
    /// Copies of each record.
    pub copies: u8,
    /// True if it is on devices of its own.
    pub external: bool,
    /// Chunks.
    pub chunks: u32,
    /// Chunks that hold what the log does not have yet.
    pub chunks_used: u32,
    /// Times that it made flushes durable; each may have served many of them.
    pub rounds: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of them, each counted once.
    pub record_bytes: u64,
    /// Device flushes for them.
    pub member_flushes: u64,
    /// Times that flushes were left to the log because it was cheaper there.
    pub log_cheaper: u64,
    /// Because the journal did not have everything that they were for.
    pub log_unlisted: u64,
    /// Because there was no free chunk.
    pub log_full: u64,
    /// Times that full rows were sealed apart, and the rest journalled.
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
    /// What flushes do.
    pub sync: windrow_format::checkpoint::SyncMode,
    /// How its blocks are stored.
    pub compression: windrow_format::checkpoint::Compression,
    /// Whether its blocks are shared.
    pub dedup: windrow_format::checkpoint::Dedup,
    /// Bytes of its blocks that refer to shared content.
    pub shared_bytes: u64,
    /// Bytes that its blocks are stored in (committed): payload alone, in whole units.
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
    /// Bytes that a device in its place must have; 0 for a slot without a place.
    pub needed_bytes: u64,
    /// Bytes that the logical sector of a device in its place may have at most: a journal that lies
    /// there is written in units of so many.
    pub sector_bytes_max: u32,
    /// A journal device that is declared power-safe: what is written to it is not flushed.
    pub power_safe: bool,
    /// True if many of its reads have been late for a while: others are asked at the same time.
    pub slow: bool,
    /// It holds nothing but a journal.
    pub journal: bool,
    /// It leaves the pool when what lies on it has moved to the others (docs/internals/reshape.md).
    pub leaving: bool,
    /// For how long its oldest command that somebody waits for has had no answer, in milliseconds;
    /// 0 below ten seconds (discards: two minutes).
    pub hangs_ms: u64,
    /// Out of service: commands that its device has not answered. Before they have ended nothing
    /// can be put in its place.
    pub unanswered: u32,
    /// Why it is out of service, as far as that is known; empty if it is in service.
    pub reason: String,
    /// Since when, seconds since 1970; 0: not known, or it is in service.
    pub since_unix_s: u64,
    /// Of a spare: the member in service that it is to replace.
    pub replaces: Option<MemberId>,
    /// It is a complete copy of that member.
    pub replacement_ready: bool,
    /// It is becoming one, or is one.
    pub is_shadow: bool,
}

/// State of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// There has been none.
    #[default]
    None,
    /// It is under way.
    Running,
    /// It waits to be resumed.
    Paused,
    /// It reached the end.
    Completed,
    /// It was ended before.
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
    /// Shared contents found lost; the blocks that refer to them are among `lost_blocks` as soon as
    /// they are found.
    pub lost_contents: u64,
    /// The first ranges of them.
    pub lost: Vec<VolumeRange>,
    /// Blocks that were found lost before the start, and have been neither written, trimmed nor
    /// read since, nor has a scrub completed.
    pub recalled_blocks: u64,
    /// The first ranges of them, as far as the last checkpoint named them.
    pub recalled: Vec<VolumeRange>,
    /// When the oldest of them was found, seconds since 1970; 0: there are none, or the time is not
    /// known.
    pub since_unix_s: u64,
}

/// The rebuild that runs, or the last one since start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Members that are being rebuilt now.
    pub members: Vec<MemberId>,
    /// Segments made whole.
    pub segments_done: u32,
    /// Segments to be made whole in all, as far as they have not been emptied meanwhile.
    pub segments_total: u32,
    /// Bytes read from members.
    pub read_bytes: u64,
    /// Bytes written to members that are rebuilt: what is done.
    pub written_bytes: u64,
    /// Bytes that are still to be written, as far as their segments are not emptied meanwhile.
    pub left_bytes: u64,
    /// Bytes written each second now.
    pub bytes_per_second: u64,
    /// All that is left could not be read: milliseconds until it is tried again. It ends before
    /// that if what is left dies.
    #[serde(default)]
    pub waits_ms: u64,
    /// Batches that could not be rebuilt because their tables can neither be read nor be rebuilt.
    /// Their blocks may still be readable one by one.
    pub damaged_batches: u64,
}

/// The scrub that runs, or the last one. After a crash the sums are those of the last checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// State.
    pub state: ScrubState,
    /// When it began, seconds since 1970.
    pub started_unix_s: u64,
    /// When it ended, seconds since 1970; 0: it has not, or nobody knew the time.
    pub ended_unix_s: u64,
    /// When a scrub last reached its end, this one or one before; 0: none has, or nobody knew the
    /// time.
    pub completed_unix_s: u64,
    /// Milliseconds for which it was running.
    pub active_ms: u64,
    /// Most bytes read from members each second; 0: no bound.
    pub bytes_per_second: u64,
    /// Segments looked at.
    pub segments_done: u32,
    /// Segments of the pool.
    pub segments_total: u32,
    /// Batches examined.
    pub batches: u64,
    /// Bytes read from members.
    pub read_bytes: u64,
    /// Blocks of members that were not what they must be, or could not be read.
    pub wrong_blocks: u64,
    /// Live blocks that were logged anew because something in their rows was wrong.
    pub moved_blocks: u64,
    /// Live blocks that should have been and were not, because the pool has no room for it. They
    /// can be read, but lack redundancy.
    pub unmoved_blocks: u64,
    /// Live blocks that can neither be read nor be rebuilt. Those that an emergency rebuild gave up
    /// are among them when the scrub has ended.
    pub lost_blocks: u64,
    /// Batches whose tables can neither be read nor be rebuilt. Their blocks may still be readable
    /// one by one.
    pub damaged_batches: u64,
    /// The first of the lost blocks; since the start of the engine.
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
    /// Why it stopped, if it did.
    pub stop_reason: Option<String>,
    /// When the pool was created, seconds since 1970; 0: not known.
    pub created_unix_s: u64,
    /// Superblock generation.
    pub generation: u64,
    /// Epoch.
    pub epoch: u64,
    /// Members.
    pub members: Vec<MemberStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Grows with each change of the table of volumes since the start: of two states the one with
    /// more is the newer.
    pub volumes_version: u64,
    /// Properties.
    pub spare_per_mille: u16,
    /// Most milliseconds that acknowledged data may wait before it is sealed.
    pub seal_age_ms: u32,
    /// The placement by its name.
    pub placement: &'static str,
    /// Streams of users' writes that the pool can afford for it, and streams of moved blocks.
    pub user_streams: u8,
    /// See [`PoolStatus::user_streams`].
    pub moved_streams: u8,
    /// Memory that it keeps, in bytes, beside that of the map.
    pub placement_bytes: u64,
    /// Blocks, written or moved since the policy was set, that went to streams beyond the first of
    /// their kind.
    pub further_blocks: u64,
    /// Blocks since then that went to the first stream of their kind because the one they were
    /// meant for could not take them.
    pub overflowed_blocks: u64,
    /// The victim rule by its name.
    pub victim_policy: String,
    /// Discards for freed segments.
    pub discard: bool,
    /// All properties.
    pub properties: windrow_format::superblock::Properties,
    /// Geometry and capacity.
    pub plan: PoolPlan,
    /// What counts against `usable_bytes`, in bytes: blocks that hold data, or their charge where
    /// what reduction saves is capacity.
    pub used_bytes: u64,
    /// What compression and deduplication save is used for, and what that does to cleaning.
    pub reduction_use: crate::ReductionUse,
    /// Free segments now.
    pub free_segments: u32,
    /// Segments now that hold user data and are closed: not open, free, dead, or of checkpoints.
    pub data_segments: u32,
    /// Of those, segments that are being emptied.
    pub cleaning_segments: u32,
    /// Bytes of live blocks in those segments.
    pub data_live_bytes: u64,
    /// Bytes of their data columns that are not alive: what cleaning gains without any trim.
    pub garbage_bytes: u64,
    /// The highest of the pool's warnings ([`windrow_format::superblock::Properties::warn_at`])
    /// that use has passed, in per cent; 0: none.
    pub warned_percent: u8,
    /// Bytes on all members of all segments that are not free, redundancy included.
    pub physical_bytes: u64,
    /// Map memory in use, in bytes: pages, and the directories of volumes.
    pub map_bytes: u64,
    /// Map pages in use. A page maps 1 MiB of a volume and exists where something was written.
    pub map_pages: u64,
    /// Most map pages: a write that needs one more fails with no space, although `used_bytes` may
    /// be far from `usable_bytes`.
    pub map_pages_max: u64,
    /// Writes refused since start because no map page was left for them.
    pub refused_map_pages: u64,
    /// Writes refused since start because the pool's usable space was full.
    pub refused_space: u64,
    /// No segment comes free any more: data is refused until users make room, or what could not be
    /// read can be read again.
    pub refuses_data: bool,
    /// Bounds.
    pub limits: Limits,
    /// Bytes of acknowledged writes in memory that are not durable yet: what a power cut now would
    /// lose.
    pub at_risk_bytes: u64,
    /// Bytes of admitted writes that are not in the log yet. (Those that wait for admission are not
    /// counted.)
    pub pending_bytes: u64,
    /// Counters by member since start.
    pub member_stats: Vec<MemberStats>,
    /// Sums over the members since start.
    pub written: WrittenBytes,
    /// Bytes that users wrote (payloads of write requests) since start.
    pub user_write_bytes: u64,
    /// Bytes that users read since start.
    pub user_read_bytes: u64,
    /// User blocks found to be all zeroes or all ones.
    pub fill_blocks: u64,
    /// What compression did since start.
    pub reduction: crate::ReductionSums,
    /// What is shared, and what deduplication did since start.
    pub dedup: crate::DedupStatus,
    /// Bytes that the blocks of all volumes are stored in (committed): payload alone, in whole
    /// units.
    pub stored_bytes: u64,
    /// Flush and FUA requests completed.
    pub flushes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints that cleaning asked for because nothing else was left to clean.
    pub checkpoints_forced: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// User blocks that are admitted for 1024 blocks that cleaning gains; `None` while users are
    /// not held to its pace.
    pub users_per_1024_gained: Option<u64>,
    /// The scrub that runs, or the last one.
    pub scrub: ScrubStatus,
    /// Blocks that are known to be lost.
    pub damage: DamageStatus,
    /// The rebuild that runs, or the last one since start.
    pub rebuild: RebuildStatus,
    /// How far data has moved to the layout in force.
    pub reshape: ReshapeStatus,
    /// The journal.
    pub journal: JournalStatus,
    /// Member commands held back now, so that others do not stand behind them.
    pub held_commands: u64,
    /// What the stages of requests took since start; left empty by the engine, see
    /// [`crate::Engine::stage_times`].
    pub stages: Vec<crate::StageTimes>,
    /// Newest order, and the newest durable one.
    pub lsn: Lsn,
    /// Every order up to this one is durable.
    pub durable_lsn: Lsn,
    /// User bytes over the pool's life; after a crash a lower bound.
    pub lifetime_user_bytes: u64,
    /// Bytes to members over the pool's life; after a crash a lower bound.
    pub lifetime_member_bytes: u64,
    /// What compression did over the pool's life; after a crash at least that.
    pub lifetime_reduction: crate::ReductionSums,
    /// What deduplication did over the pool's life; after a crash at least that.
    pub lifetime_dedup: crate::DedupSums,
}
