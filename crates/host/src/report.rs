//! What `status` and `stats` show: an interface with a version of its own, apart from the engine's
//! inner structures.
//!
//! All quantities are exact integers. Ratios are millionths (`_ppm`), so that no reader has to
//! parse fractions.

use crate::data::{DataReport, DataState};
use crate::directory::MemberPlace;
use crate::exports::ExportReport;
use crate::histogram::LatencyReport;
use crate::scrub::ScrubReport;
use crate::space::{SpaceReport, ratio};
use serde::{Deserialize, Serialize};
use windrow_engine::api::{Limits, MemberStats, PoolStatus, RebuildStatus, WrittenBytes};
use windrow_engine::{PlacementKind, VictimRule as Rule};
use windrow_format::superblock::{Properties, Reduction};
use windrow_geometry::Zone;
use windrow_types::{Uuid, VolumeId};

/// Schema of [`PoolReport`].
pub const POOL_SCHEMA: &str = "windrow/pool-status/1";

/// Counters of one member since start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MemberCounters {
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
    /// Blocks that it returned with a wrong checksum.
    #[serde(default)]
    pub wrong_blocks: u64,
    /// Reads of users that it answered late, or not yet.
    #[serde(default)]
    pub slow_reads: u64,
}

impl From<&MemberStats> for MemberCounters {
    fn from(stats: &MemberStats) -> Self {
        let MemberStats {
            written,
            read_bytes,
            flushes,
            discarded_bytes,
            errors,
            wrong_blocks,
            slow_reads,
        } = *stats;
        Self {
            written,
            read_bytes,
            flushes,
            discarded_bytes,
            errors,
            wrong_blocks,
            slow_reads,
        }
    }
}

/// A member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberReport {
    /// Index.
    pub member: u8,
    /// Identifier.
    pub uuid: Uuid,
    /// Where it was opened; empty if it is absent.
    pub path: String,
    /// Where it was opened, or was last seen in an earlier run; empty: not known.
    #[serde(default)]
    pub last_path: String,
    /// Model of the drive; empty: not known.
    #[serde(default)]
    pub model: String,
    /// Serial number of the drive; empty: not known.
    #[serde(default)]
    pub serial: String,
    /// Of a member that has not been there since the start: when it was last seen, seconds since
    /// 1970; 0: not known.
    #[serde(default)]
    pub seen_unix_s: u64,
    /// `online`, `missing`, `faulted`, `offline`, `rebuilding`, `spare` or `removed`
    /// (docs/internals/members.md).
    pub state: String,
    /// Usable bytes.
    pub size_bytes: u64,
    /// True if many of its reads have been late for a while: others are asked at the same time.
    #[serde(default)]
    pub slow: bool,
    /// For how long its oldest command that somebody waits for has had no answer, in milliseconds;
    /// 0 below ten seconds.
    #[serde(default)]
    pub hangs_ms: u64,
    /// It holds nothing but a journal.
    #[serde(default)]
    pub journal: bool,
    /// It leaves the pool when what lies on it has moved to the others.
    #[serde(default)]
    pub leaving: bool,
    /// Out of service: commands that its device has not answered. Before they have ended nothing
    /// can be put in its place.
    #[serde(default)]
    pub unanswered: u32,
    /// It was missing at the start, and a spare fits: seconds for which it is still waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_in_seconds: Option<u64>,
    /// Why it is out of service, as far as that is known; empty if it is in service.
    #[serde(default)]
    pub reason: String,
    /// Since when, seconds since 1970; 0: not known, or it is in service.
    #[serde(default)]
    pub since_unix_s: u64,
    /// Of a spare: the member in service whose place it takes when it is a copy of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u8>,
    /// Counters since start.
    pub counters: MemberCounters,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Id.
    pub id: VolumeId,
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes of blocks that hold data.
    pub mapped_bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// What flushes do: `standard`, `always` or `disabled`.
    #[serde(default)]
    pub sync: windrow_format::checkpoint::SyncMode,
    /// How blocks are stored: `off`, `lz4`, `zstd` or `lz4-then-zstd`.
    #[serde(default)]
    pub compression: windrow_format::checkpoint::Compression,
    /// Whether its blocks are shared: `off`, `verify` or `hash`.
    #[serde(default)]
    pub dedup: windrow_format::checkpoint::Dedup,
    /// Bytes of its blocks that refer to shared content, which is stored once for all who do.
    #[serde(default)]
    pub shared_bytes: u64,
    /// Bytes in which its blocks that are not shared are stored: payload alone.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Stored bytes that go when it is deleted: those, and shared content that no other volume
    /// refers to. Only where it was counted (`volume list`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive_bytes: Option<u64>,
    /// Being deleted.
    pub deleting: bool,
}

/// Properties that can be set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PropertyReport {
    /// Spare factor in thousandths of the data space.
    pub spare_per_mille: u16,
    /// Most milliseconds that acknowledged data waits before it is sealed.
    pub seal_age_ms: u32,
    /// Milliseconds after which acknowledged data that no flush covers is flushed; 0: never.
    #[serde(default)]
    pub flush_age_ms: u32,
    /// Which segments are cleaned: a victim rule by its name.
    pub victim_policy: String,
    /// Which streams blocks are written to: a placement by its name.
    pub placement: String,
    /// Discards are sent for freed segments.
    pub discard: bool,
    /// Most bytes each second that a rebuild reads from, or writes to, one member; 0: no bound.
    pub rebuild_rate: u64,
    /// Bytes each second of one member that a rebuild is given even while users are about.
    pub rebuild_rate_min: u64,
    /// Days from the end of a scrub to the beginning of the next one, which begins by itself; 0:
    /// never.
    pub scrub_interval_days: u16,
    /// Milliseconds after which a read that takes much longer than usual is looked for elsewhere;
    /// 0: never.
    pub read_latency_bound_ms: u32,
    /// Per cent of the usable space at which it is told that the pool fills, ascending, at most
    /// four; empty: never.
    #[serde(default)]
    pub warn_at: Vec<u8>,
    /// What compression and deduplication save is used for: `spare` or `capacity`.
    #[serde(default)]
    pub reduction: String,
}

impl From<&Properties> for PropertyReport {
    fn from(properties: &Properties) -> Self {
        Self {
            spare_per_mille: properties.spare_per_mille,
            seal_age_ms: properties.seal_age_ms,
            flush_age_ms: properties.flush_age_ms,
            victim_policy: Rule::from_code(properties.victim_policy, properties.victim_number)
                .unwrap_or(Rule::Greedy)
                .name(),
            placement: PlacementKind::from_code(properties.placement)
                .unwrap_or(PlacementKind::Separate)
                .name()
                .to_owned(),
            discard: properties.discard,
            rebuild_rate: properties.rebuild_rate,
            rebuild_rate_min: properties.rebuild_rate_min,
            scrub_interval_days: properties.scrub_interval_days,
            read_latency_bound_ms: properties.read_latency_bound_ms,
            warn_at: properties
                .warn_at
                .into_iter()
                .filter(|at| *at > 0)
                .collect(),
            reduction: properties.reduction.name().to_owned(),
        }
    }
}

impl PropertyReport {
    /// The on-disk form.
    pub fn to_properties(&self) -> Properties {
        let (victim_policy, victim_number) = Rule::from_name(&self.victim_policy)
            .unwrap_or(Rule::Greedy)
            .code();
        Properties {
            spare_per_mille: self.spare_per_mille,
            seal_age_ms: self.seal_age_ms,
            flush_age_ms: self.flush_age_ms,
            victim_policy,
            victim_number,
            placement: PlacementKind::from_name(&self.placement)
                .and_then(PlacementKind::code)
                .unwrap_or(0),
            discard: self.discard,
            rebuild_rate: self.rebuild_rate,
            rebuild_rate_min: self.rebuild_rate_min,
            scrub_interval_days: self.scrub_interval_days,
            read_latency_bound_ms: self.read_latency_bound_ms,
            warn_at: std::array::from_fn(|i| self.warn_at.get(i).copied().unwrap_or(0)),
            reduction: Reduction::from_name(&self.reduction).unwrap_or_default(),
        }
    }
}

/// Space.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CapacityReport {
    /// Bytes of all data columns.
    pub data_bytes: u64,
    /// Bytes that user data may fill.
    pub usable_bytes: u64,
    /// Bytes filled: of blocks that hold data, or what these are charged where reduction is
    /// capacity.
    pub used_bytes: u64,
    /// Segments.
    pub segments: u32,
    /// Segments free now.
    pub free_segments: u32,
    /// Segments that hold user data and are closed: not open, free, dead, or of checkpoints.
    pub data_segments: u32,
    /// Bytes of live blocks in those segments.
    pub data_live_bytes: u64,
    /// Segments held back.
    pub reserve_segments: u32,
    /// Geometry.
    pub zones: Vec<Zone>,
    /// What compression and deduplication save is used for, and what that does to cleaning.
    #[serde(default)]
    pub reduction: windrow_engine::ReductionUse,
}

/// Memory and queue bounds, and their use now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BoundsReport {
    /// Bounds fixed at start.
    pub limits: Limits,
    /// Map memory in use.
    pub map_bytes: u64,
    /// Map memory when the pool is full.
    pub map_bytes_full: u64,
    /// Data at which the map memory reaches its limit, and writes fail with no space; none if it
    /// suffices for the full pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_data_bytes_max: Option<u64>,
    /// Memory of deduplication beside the map: its index, what is known of the index's pages, and
    /// the table of contents.
    #[serde(default)]
    pub dedup_bytes: u64,
    /// The most that it may be: a full pool in which nothing is a duplicate.
    #[serde(default)]
    pub dedup_bytes_max: u64,
    /// Map pages in use; each maps 1 MiB of a volume in which something was written.
    pub map_pages: u64,
    /// Most map pages: a write that needs one more fails with no space.
    pub map_pages_max: u64,
    /// Writes refused since start for want of a map page.
    pub refused_map_pages: u64,
    /// Writes refused since start because the usable space was full.
    pub refused_space: u64,
    /// Bytes of writes waiting or in flight.
    pub pending_bytes: u64,
    /// Bytes of acknowledged writes that a power cut now would lose.
    pub at_risk_bytes: u64,
    /// User blocks that are admitted for 1024 blocks that cleaning gains; none while users are not
    /// held to its pace.
    pub users_per_1024_gained: Option<u64>,
    /// Member commands held back now, so that others do not stand behind them.
    #[serde(default)]
    pub held_commands: u64,
}

/// Write amplification since start, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AmplificationReport {
    /// Bytes written to members / bytes users wrote.
    pub total_ppm: u64,
    /// (user + moved) / user.
    pub cleaning_ppm: u64,
    /// Headers / user bytes.
    pub header_ppm: u64,
    /// Redundancy / user bytes.
    pub parity_ppm: u64,
    /// Moved / user bytes.
    pub moved_ppm: u64,
    /// Padding / user bytes.
    pub padding_ppm: u64,
    /// Checkpoints and superblocks / user bytes.
    pub checkpoint_ppm: u64,
    /// Repair and rebuild / user bytes.
    pub repair_ppm: u64,
    /// Stored bytes of what users wrote / bytes users wrote: what fills, deduplication and
    /// compression left of it.
    #[serde(default)]
    pub stored_ppm: u64,
    /// Bytes written to members / stored bytes of what users wrote: the rest of the amplification.
    #[serde(default)]
    pub per_stored_ppm: u64,
}

impl AmplificationReport {
    /// From the counters.
    pub fn new(written: &WrittenBytes, user_write_bytes: u64) -> Self {
        let ppm = |bytes: u64, base: u64| ratio(bytes, base).unwrap_or(0);
        Self {
            total_ppm: ppm(written.total(), user_write_bytes),
            cleaning_ppm: ppm(written.user + written.moved, written.user),
            header_ppm: ppm(written.header, user_write_bytes),
            parity_ppm: ppm(written.parity, user_write_bytes),
            moved_ppm: ppm(written.moved, user_write_bytes),
            padding_ppm: ppm(written.padding, user_write_bytes),
            checkpoint_ppm: ppm(written.checkpoint + written.superblock, user_write_bytes),
            repair_ppm: ppm(written.repair + written.rebuild, user_write_bytes),
            stored_ppm: ppm(written.user, user_write_bytes),
            per_stored_ppm: ppm(written.total(), written.user),
        }
    }
}

/// The policy that is at work, and what it does.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PlacementReport {
    /// Its placement.
    pub placement: String,
    /// Its rule for victims.
    pub victim_policy: String,
    /// Streams of users' writes that the pool can afford for it.
    pub user_streams: u8,
    /// Streams of moved blocks likewise.
    pub moved_streams: u8,
    /// Memory that it keeps, beside that of the map.
    pub memory_bytes: u64,
    /// Blocks, written or moved since it was set, that went to streams beyond the first of their
    /// kind.
    pub further_blocks: u64,
    /// Blocks since then that went to the first stream of their kind because the one they were
    /// meant for could not take them.
    pub overflowed_blocks: u64,
}

/// Counters of the pool since start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CounterReport {
    /// Bytes users wrote.
    pub user_write_bytes: u64,
    /// Bytes users read.
    pub user_read_bytes: u64,
    /// User blocks of all zeroes or all ones.
    pub fill_blocks: u64,
    /// What compression did.
    #[serde(default)]
    pub reduction: windrow_engine::ReductionSums,
    /// What is shared, and what deduplication did.
    #[serde(default)]
    pub dedup: windrow_engine::DedupStatus,
    /// Flush and FUA requests.
    pub flushes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// Newest order.
    pub lsn: u64,
    /// Every order up to this one is durable.
    pub durable_lsn: u64,
    /// Bytes written to members, by cause.
    pub written: WrittenBytes,
    /// Bytes users wrote over the pool's life; after a crash at least that many.
    pub lifetime_user_bytes: u64,
    /// Bytes written to members over the pool's life; after a crash at least that many.
    pub lifetime_member_bytes: u64,
    /// What compression did over the pool's life; after a crash at least that.
    #[serde(default)]
    pub lifetime_reduction: windrow_engine::ReductionSums,
    /// What deduplication did over the pool's life; after a crash at least that.
    #[serde(default)]
    pub lifetime_dedup: windrow_engine::DedupSums,
}

/// The rebuild that is under way, or the last one since start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebuildReport {
    /// Members that are being rebuilt now.
    pub members: Vec<u8>,
    /// Segments made whole.
    pub segments_done: u32,
    /// Segments to be made whole in all.
    pub segments_total: u32,
    /// Bytes read from members.
    pub read_bytes: u64,
    /// Bytes written to the members that are rebuilt: what is done.
    pub written_bytes: u64,
    /// Those and the bytes that are left to be written.
    pub total_bytes: u64,
    /// Bytes written each second now; 0 if nothing is rebuilt.
    pub bytes_per_second: u64,
    /// Seconds that it will take at this rate; none if nothing is rebuilt, or nothing moves.
    pub left_seconds: Option<u64>,
    /// All that is left could not be read: seconds until it is tried again; 0: it does not wait.
    #[serde(default)]
    pub waits_seconds: u64,
    /// Batches that could not be rebuilt: their tables can neither be read nor be rebuilt.
    pub damaged_batches: u64,
}

impl From<&RebuildStatus> for RebuildReport {
    fn from(status: &RebuildStatus) -> Self {
        let RebuildStatus {
            members,
            segments_done,
            segments_total,
            read_bytes,
            written_bytes,
            left_bytes,
            bytes_per_second,
            waits_ms,
            damaged_batches,
        } = status;
        Self {
            members: members.iter().map(|member| member.0).collect(),
            segments_done: *segments_done,
            segments_total: *segments_total,
            read_bytes: *read_bytes,
            written_bytes: *written_bytes,
            total_bytes: written_bytes + left_bytes,
            bytes_per_second: *bytes_per_second,
            left_seconds: left_bytes.checked_div(*bytes_per_second),
            waits_seconds: waits_ms.div_ceil(1000),
            damaged_batches: *damaged_batches,
        }
    }
}

impl RebuildReport {
    /// Thousandths that are done, below 1000 until it has ended.
    pub fn done_per_mille(&self) -> u64 {
        let share = (u128::from(self.written_bytes) * 1000)
            .checked_div(u128::from(self.total_bytes))
            .unwrap_or(0) as u64;
        if self.members.is_empty() {
            share
        } else {
            share.min(999)
        }
    }
}

/// Everything that is shown of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolReport {
    /// [`POOL_SCHEMA`].
    pub schema: String,
    /// Pool.
    pub pool: Uuid,
    /// Name.
    pub name: String,
    /// `0`, `1`, `5` or `6`.
    pub redundancy: String,
    /// `online`, `degraded` or `stopped`.
    pub state: String,
    /// Why it stopped, if it did.
    pub stop_reason: Option<String>,
    /// What to do then.
    #[serde(default)]
    pub next_step: Option<String>,
    /// The state of data, apart from that of members.
    #[serde(default)]
    pub data: DataReport,
    /// True if it is served by a daemon now.
    pub served: bool,
    /// Superblock generation.
    pub generation: u64,
    /// Epoch.
    pub epoch: u64,
    /// Members.
    pub members: Vec<MemberReport>,
    /// Volumes.
    pub volumes: Vec<VolumeReport>,
    /// Exports, with their clients.
    #[serde(default)]
    pub exports: Vec<ExportReport>,
    /// Properties.
    pub properties: PropertyReport,
    /// The policy at work.
    #[serde(default)]
    pub placement: PlacementReport,
    /// Space.
    pub capacity: CapacityReport,
    /// What thin volumes promise, hold and take.
    #[serde(default)]
    pub space: SpaceReport,
    /// Bounds.
    pub bounds: BoundsReport,
    /// Counters since start.
    pub counters: CounterReport,
    /// Write amplification since start.
    pub amplification: AmplificationReport,
    /// The scrub that is under way, or the last one.
    #[serde(default)]
    pub scrub: ScrubReport,
    /// The rebuild that is under way, or the last one since start.
    #[serde(default)]
    pub rebuild: RebuildReport,
    /// How far data has moved to all members, after the pool has grown.
    #[serde(default)]
    pub reshape: windrow_engine::ReshapeStatus,
    /// The journal.
    #[serde(default)]
    pub journal: windrow_engine::JournalStatus,
    /// Writes of data are refused, as no segment becomes free: until something is deleted or
    /// trimmed, or what could not be read is readable again.
    #[serde(default)]
    pub refuses_data: bool,
    /// All pages of the map are in use, and writes that need another one are refused.
    #[serde(default)]
    pub map_full: bool,
    /// Lines of the log since the start of the process that were dropped, as they were not read in
    /// time.
    #[serde(default)]
    pub dropped_log_lines: u64,
    /// Events since start that the event command was not told, as too many waited.
    #[serde(default)]
    pub dropped_events: u64,
    /// Connections of clients over NBD, and the memory that they hold; none where no address is
    /// served.
    #[serde(default)]
    pub nbd: Option<crate::ConnectionReport>,
    /// What the stages of requests took since start.
    #[serde(default)]
    pub stages: Vec<windrow_engine::StageTimes>,
    /// Latencies since start.
    pub latency: LatencyReport,
}

impl PoolReport {
    /// From the engine's status; `places` by member index. `stop_reason`: why the driver has
    /// stopped, if it has.
    pub fn new(
        status: PoolStatus,
        latency: LatencyReport,
        places: &[MemberPlace],
        stop_reason: Option<String>,
    ) -> Self {
        let place = |index: usize| places.get(index).cloned().unwrap_or_default();
        let stop_reason = stop_reason.or_else(|| status.stop_reason.clone());
        let members = status
            .members
            .iter()
            .enumerate()
            .map(|(index, member)| MemberReport {
                member: member.member.0,
                uuid: member.uuid,
                path: place(index).path,
                last_path: place(index).last_path,
                model: place(index).model,
                serial: place(index).serial,
                seen_unix_s: place(index).seen_unix_s,
                reason: member.reason.clone(),
                since_unix_s: member.since_unix_s,
                state: member.state.to_owned(),
                size_bytes: member.size_bytes,
                slow: member.slow,
                hangs_ms: member.hangs_ms,
                unanswered: member.unanswered,
                spare_in_seconds: None,
                replaces: member.replaces.map(|member| member.0),
                journal: member.journal,
                leaving: member.leaving,
                counters: status
                    .member_stats
                    .get(index)
                    .map(MemberCounters::from)
                    .unwrap_or_default(),
            });
        let (scrub, space, data) = (
            ScrubReport::new(&status),
            SpaceReport::new(&status),
            DataReport::new(&status),
        );
        let next_step = stop_reason
            .as_deref()
            .map(|reason| crate::wording::next_step(reason).to_owned());
        Self {
            schema: POOL_SCHEMA.to_owned(),
            pool: status.pool,
            redundancy: status.redundancy.to_owned(),
            state: if stop_reason.is_some() {
                "stopped".to_owned()
            } else {
                status.state.to_owned()
            },
            stop_reason,
            next_step,
            data,
            served: true,
            refuses_data: status.refuses_data,
            map_full: status.refused_map_pages > 0 && status.map_pages >= status.map_pages_max,
            dropped_log_lines: crate::log::dropped_lines(),
            dropped_events: 0,
            nbd: None,
            generation: status.generation,
            epoch: status.epoch,
            members: members.collect(),
            volumes: status.volumes.iter().map(VolumeReport::from).collect(),
            exports: Vec::new(),
            properties: PropertyReport::from(&status.properties),
            placement: PlacementReport::from(&status),
            capacity: CapacityReport::from(&status),
            space,
            bounds: BoundsReport::from(&status),
            counters: CounterReport::from(&status),
            amplification: AmplificationReport::new(&status.written, status.user_write_bytes),
            scrub,
            rebuild: RebuildReport::from(&status.rebuild),
            reshape: status.reshape,
            journal: status.journal,
            stages: status.stages,
            latency,
            name: status.name,
        }
    }

    /// The greatest id of its volumes, 0 if there are none: one that is made later has a greater
    /// one.
    pub fn last_volume(&self) -> VolumeId {
        self.volumes
            .iter()
            .map(|volume| volume.id)
            .max()
            .unwrap_or(VolumeId(0))
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<&VolumeReport> {
        self.volumes
            .iter()
            .find(|volume| volume.name == name && !volume.deleting)
    }

    /// Exit code of `pool status --exit-code`: 0 online, 1 degraded, 2 stopped, 3 online and filled
    /// beyond one of its warnings, or refuses data, or its map is full; 5 data is damaged, or was
    /// before the start and has not been verified since.
    pub fn exit_code(&self) -> u8 {
        match self.state.as_str() {
            "online" | "degraded" if self.data.state != DataState::Intact => 5,
            "online" if self.space.warned_percent > 0 || self.refuses_data || self.map_full => 3,
            "online" => 0,
            "degraded" => 1,
            _ => 2,
        }
    }
}

impl From<&PoolStatus> for CapacityReport {
    fn from(status: &PoolStatus) -> Self {
        Self {
            data_bytes: status.plan.data_bytes,
            usable_bytes: status.plan.usable_bytes,
            used_bytes: status.used_bytes,
            segments: status.plan.segments,
            free_segments: status.free_segments,
            data_segments: status.data_segments,
            data_live_bytes: status.data_live_bytes,
            reserve_segments: status.plan.reserve_segments,
            zones: status.plan.zones.clone(),
            reduction: status.reduction_use,
        }
    }
}

impl From<&PoolStatus> for BoundsReport {
    fn from(status: &PoolStatus) -> Self {
        Self {
            limits: status.limits,
            map_bytes: status.map_bytes,
            map_bytes_full: status.plan.map_bytes,
            map_data_bytes_max: crate::memory::data_bytes_max(
                status.limits.map_bytes,
                status.plan.map_bytes,
            ),
            dedup_bytes: status.dedup.index_bytes + status.dedup.ids_bytes,
            dedup_bytes_max: status.limits.index_bytes + status.plan.ids_bytes,
            map_pages: status.map_pages,
            map_pages_max: status.map_pages_max,
            refused_map_pages: status.refused_map_pages,
            refused_space: status.refused_space,
            pending_bytes: status.pending_bytes,
            at_risk_bytes: status.at_risk_bytes,
            users_per_1024_gained: status.users_per_1024_gained,
            held_commands: status.held_commands,
        }
    }
}

impl From<&PoolStatus> for CounterReport {
    fn from(status: &PoolStatus) -> Self {
        Self {
            user_write_bytes: status.user_write_bytes,
            user_read_bytes: status.user_read_bytes,
            fill_blocks: status.fill_blocks,
            reduction: status.reduction,
            dedup: status.dedup,
            flushes: status.flushes,
            checkpoints: status.checkpoints,
            segments_cleaned: status.segments_cleaned,
            lsn: status.lsn.0,
            durable_lsn: status.durable_lsn.0,
            written: status.written,
            lifetime_user_bytes: status.lifetime_user_bytes,
            lifetime_member_bytes: status.lifetime_member_bytes,
            lifetime_reduction: status.lifetime_reduction,
            lifetime_dedup: status.lifetime_dedup,
        }
    }
}

impl From<&PoolStatus> for PlacementReport {
    fn from(status: &PoolStatus) -> Self {
        Self {
            placement: status.placement.to_owned(),
            victim_policy: status.victim_policy.clone(),
            user_streams: status.user_streams,
            moved_streams: status.moved_streams,
            memory_bytes: status.placement_bytes,
            further_blocks: status.further_blocks,
            overflowed_blocks: status.overflowed_blocks,
        }
    }
}

impl From<&windrow_engine::api::VolumeStatus> for VolumeReport {
    fn from(volume: &windrow_engine::api::VolumeStatus) -> Self {
        Self {
            id: volume.id,
            name: volume.name.clone(),
            size_bytes: volume.size_bytes,
            mapped_bytes: volume.mapped_bytes,
            read_only: volume.read_only,
            sync: volume.sync,
            compression: volume.compression,
            dedup: volume.dedup,
            shared_bytes: volume.shared_bytes,
            stored_bytes: volume.stored_bytes,
            exclusive_bytes: None,
            deleting: volume.deleting,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
