//! Reports of `status` and `stats`: an interface with its own version, apart from the engine's
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
use windrow_engine::{Limits, MemberStats, PoolStatus, RebuildStatus, WrittenBytes};
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
    /// Late or outstanding reads of user data.
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
    /// Path at which it was opened; empty if it is missing.
    pub path: String,
    /// Path at which it was opened, now or in an earlier run; empty: not known.
    #[serde(default)]
    pub last_path: String,
    /// Model of the drive; empty: not known.
    #[serde(default)]
    pub model: String,
    /// Serial number of the drive; empty: not known.
    #[serde(default)]
    pub serial: String,
    /// For a member that has been missing since the start: time when it was last seen, seconds
    /// since 1970; 0: not known.
    #[serde(default)]
    pub seen_unix_s: u64,
    /// `online`, `missing`, `faulted`, `offline`, `rebuilding`, `spare` or `removed`
    /// (docs/internals/members.md).
    pub state: String,
    /// Usable bytes.
    pub size_bytes: u64,
    /// True if many of its reads have been late for a while: its reads are hedged.
    #[serde(default)]
    pub slow: bool,
    /// Milliseconds for which its oldest awaited command has been outstanding; 0 below ten seconds.
    #[serde(default)]
    pub hangs_ms: u64,
    /// It holds only a journal.
    #[serde(default)]
    pub journal: bool,
    /// It leaves the pool when its data has moved to the others.
    #[serde(default)]
    pub leaving: bool,
    /// For a member out of service: outstanding commands. Its device cannot be replaced before they
    /// have ended.
    #[serde(default)]
    pub unanswered: u32,
    /// Remaining seconds of the wait for a member that was missing at the start, if a spare fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_in_seconds: Option<u64>,
    /// Reason that it is out of service, as far as known; empty if it is in service.
    #[serde(default)]
    pub reason: String,
    /// Start of that state, seconds since 1970; 0: not known, or it is in service.
    #[serde(default)]
    pub since_unix_s: u64,
    /// For a spare: the member in service that it replaces once it is a complete copy.
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
    /// Effect of flushes: `standard`, `always` or `disabled`.
    #[serde(default)]
    pub sync: windrow_format::checkpoint::SyncMode,
    /// Compression of blocks: `off`, `lz4`, `zstd` or `lz4-then-zstd`.
    #[serde(default)]
    pub compression: windrow_format::checkpoint::Compression,
    /// Deduplication of blocks: `off`, `verify` or `hash`.
    #[serde(default)]
    pub dedup: windrow_format::checkpoint::Dedup,
    /// Bytes of its blocks that refer to shared content, which is stored once.
    #[serde(default)]
    pub shared_bytes: u64,
    /// Stored bytes of its blocks that are not shared: payload alone.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Stored bytes that its deletion would free: those, and shared content that no other volume
    /// refers to. Only if it was counted (`volume list`).
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
    /// Milliseconds after which acknowledged, unflushed data is flushed; 0: never.
    #[serde(default)]
    pub flush_age_ms: u32,
    /// Name of the rule that selects segments for cleaning.
    pub victim_policy: String,
    /// Name of the placement that selects streams for blocks.
    pub placement: String,
    /// Discards are sent for freed segments.
    pub discard: bool,
    /// Most bytes each second that a rebuild reads from, or writes to, one member; 0: no limit.
    pub rebuild_rate: u64,
    /// Bytes each second of one member that a rebuild gets even while foreground I/O is active.
    pub rebuild_rate_min: u64,
    /// Days from the end of a scrub to the automatic start of the next; 0: never.
    pub scrub_interval_days: u16,
    /// Milliseconds after which a slow read is hedged; 0: never.
    pub read_latency_bound_ms: u32,
    /// Fill levels in per cent of the usable space at which a warning is logged, ascending, at most
    /// four; empty: never.
    #[serde(default)]
    pub warn_at: Vec<u8>,
    /// Use of the space saved by compression and deduplication: `spare` or `capacity`.
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
    /// Bytes filled: those of blocks with data, or their charge if reduction adds capacity.
    pub used_bytes: u64,
    /// Segments.
    pub segments: u32,
    /// Segments free now.
    pub free_segments: u32,
    /// Segments with user data that are closed: not open, free, dead, or of checkpoints.
    pub data_segments: u32,
    /// Bytes of live blocks in those segments.
    pub data_live_bytes: u64,
    /// Segments held back.
    pub reserve_segments: u32,
    /// Geometry.
    pub zones: Vec<Zone>,
    /// Use of the space saved by compression and deduplication, and its effect on cleaning.
    #[serde(default)]
    pub reduction: windrow_engine::ReductionUse,
}

/// Limits of memory and queues, and their use now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BoundsReport {
    /// Limits fixed at start.
    pub limits: Limits,
    /// Map memory in use.
    pub map_bytes: u64,
    /// Map memory when the pool is full.
    pub map_bytes_full: u64,
    /// Data at which the map memory reaches its limit, and writes fail with no space; `None` if it
    /// suffices for the full pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_data_bytes_max: Option<u64>,
    /// Memory of deduplication, in addition to the map: its index, the state of the index's pages,
    /// and the table of contents.
    #[serde(default)]
    pub dedup_bytes: u64,
    /// Largest such memory: a full pool without any duplicate.
    #[serde(default)]
    pub dedup_bytes_max: u64,
    /// Map pages in use; each maps 1 MiB of a volume in which something was written.
    pub map_pages: u64,
    /// Most map pages: a write that needs one more fails with no space.
    pub map_pages_max: u64,
    /// Writes refused since start because there was no map page.
    pub refused_map_pages: u64,
    /// Writes refused since start because the usable space was full.
    pub refused_space: u64,
    /// Bytes of writes waiting or in flight.
    pub pending_bytes: u64,
    /// Bytes of acknowledged writes that a power cut now would lose.
    pub at_risk_bytes: u64,
    /// User blocks that are admitted for 1024 blocks that cleaning gains; `None` while user writes
    /// are not held to its pace.
    pub users_per_1024_gained: Option<u64>,
    /// Member commands held back now by the I/O scheduler, so that others do not queue after them.
    #[serde(default)]
    pub held_commands: u64,
}

/// Write amplification since start, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AmplificationReport {
    /// Bytes written to members / bytes of user writes.
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
    /// Stored bytes of user writes / bytes of user writes: the rest after fills, deduplication and
    /// compression.
    #[serde(default)]
    pub stored_ppm: u64,
    /// Bytes written to members / stored bytes of user writes: the rest of the amplification.
    #[serde(default)]
    pub per_stored_ppm: u64,
}

impl AmplificationReport {
    /// Computes it from the counters.
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

/// The policy in use, and its effect.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PlacementReport {
    /// Its placement.
    pub placement: String,
    /// Its victim rule.
    pub victim_policy: String,
    /// Streams of user writes that the pool can afford for it.
    pub user_streams: u8,
    /// Streams of moved blocks that the pool can afford for it.
    pub moved_streams: u8,
    /// Its memory, in addition to that of the map.
    pub memory_bytes: u64,
    /// Blocks, written or moved since it was set, that went to streams beyond the first of their
    /// kind.
    pub further_blocks: u64,
    /// Blocks since then that went to the first stream of their kind because their own could not
    /// take them.
    pub overflowed_blocks: u64,
}

/// Counters of the pool since start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CounterReport {
    /// Bytes of user writes.
    pub user_write_bytes: u64,
    /// Bytes of user reads.
    pub user_read_bytes: u64,
    /// User blocks of all zeroes or all ones.
    pub fill_blocks: u64,
    /// Effect of compression.
    #[serde(default)]
    pub reduction: windrow_engine::ReductionSums,
    /// Shared blocks, and the effect of deduplication.
    #[serde(default)]
    pub dedup: windrow_engine::DedupStatus,
    /// Flush and FUA requests.
    pub flushes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// Newest LSN.
    pub lsn: u64,
    /// Highest durable LSN.
    pub durable_lsn: u64,
    /// Bytes written to members, by cause.
    pub written: WrittenBytes,
    /// Bytes of user writes over the pool's life; after a crash a lower bound.
    pub lifetime_user_bytes: u64,
    /// Bytes written to members over the pool's life; after a crash a lower bound.
    pub lifetime_member_bytes: u64,
    /// Effect of compression over the pool's life; after a crash a lower bound.
    #[serde(default)]
    pub lifetime_reduction: windrow_engine::ReductionSums,
    /// Effect of deduplication over the pool's life; after a crash a lower bound.
    #[serde(default)]
    pub lifetime_dedup: windrow_engine::DedupSums,
}

/// The rebuild in progress, or the last one since start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebuildReport {
    /// Members that are being rebuilt now.
    pub members: Vec<u8>,
    /// Segments with restored redundancy.
    pub segments_done: u32,
    /// Segments to restore in all.
    pub segments_total: u32,
    /// Bytes read from members.
    pub read_bytes: u64,
    /// Bytes written to the rebuilt members.
    pub written_bytes: u64,
    /// These and the bytes left to be written.
    pub total_bytes: u64,
    /// Bytes written each second now; 0 if nothing is rebuilt.
    pub bytes_per_second: u64,
    /// Seconds left at this rate; `None` if nothing is rebuilt, or there is no progress.
    pub left_seconds: Option<u64>,
    /// Seconds until the unreadable rest is tried again; 0: the rebuild does not wait.
    #[serde(default)]
    pub waits_seconds: u64,
    /// Batches that cannot be rebuilt: their tables can neither be read nor reconstructed.
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
    /// Thousandths done, below 1000 until it has ended.
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

/// Report on a whole pool.
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
    /// Reason that it stopped, if it did.
    pub stop_reason: Option<String>,
    /// Next step for the administrator then.
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
    /// The policy in use.
    #[serde(default)]
    pub placement: PlacementReport,
    /// Space.
    pub capacity: CapacityReport,
    /// Provisioned, logical and physical space of thin volumes.
    #[serde(default)]
    pub space: SpaceReport,
    /// Limits.
    pub bounds: BoundsReport,
    /// Counters since start.
    pub counters: CounterReport,
    /// Write amplification since start.
    pub amplification: AmplificationReport,
    /// The scrub in progress, or the last one.
    #[serde(default)]
    pub scrub: ScrubReport,
    /// The rebuild in progress, or the last one since start.
    #[serde(default)]
    pub rebuild: RebuildReport,
    /// Progress of moving data to all members after a reshape.
    #[serde(default)]
    pub reshape: windrow_engine::ReshapeStatus,
    /// The journal.
    #[serde(default)]
    pub journal: windrow_engine::JournalStatus,
    /// Writes of data are refused, as no segment becomes free. This lasts until something is
    /// deleted or trimmed, or unreadable data is readable again.
    #[serde(default)]
    pub refuses_data: bool,
    /// All pages of the map are in use, and writes that need another one are refused.
    #[serde(default)]
    pub map_full: bool,
    /// Log lines dropped since the start of the process, because they were not read in time.
    #[serde(default)]
    pub dropped_log_lines: u64,
    /// Events since start that the event command did not get, because its queue was full.
    #[serde(default)]
    pub dropped_events: u64,
    /// NBD connections, and the memory that they hold; `None` if no address is served.
    #[serde(default)]
    pub nbd: Option<crate::ConnectionReport>,
    /// Durations of the stages of requests since start.
    #[serde(default)]
    pub stages: Vec<windrow_engine::StageTimes>,
    /// Latencies since start.
    pub latency: LatencyReport,
}

impl PoolReport {
    /// Builds it from the engine's status; `places` by member index. `stop_reason`: reason that the
    /// driver has stopped, if it has.
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

    /// The greatest id of its volumes, 0 if there are none: a later volume has a greater one.
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

    /// Exit code of `pool status --exit-code`:
    /// - 0: online;
    /// - 1: degraded;
    /// - 2: stopped;
    /// - 3: online, and filled beyond a warning level, refusing data, or its map is full;
    /// - 5: data is damaged, or was before the start and has not been verified since.
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

impl From<&windrow_engine::VolumeStatus> for VolumeReport {
    fn from(volume: &windrow_engine::VolumeStatus) -> Self {
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
