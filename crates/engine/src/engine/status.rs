//! Content of `status` and `stats`, and the counters for it.

use crate::api::{DedupSums, MemberStatus, Notice, PoolStatus, ReductionSums, VolumeStatus};
use crate::base::limits::{DAMAGE_SHOWN_RANGES, FILLING_HYSTERESIS, STREAM_USER};
use crate::base::stages::StageTimes;
use crate::base::weight::weight;
use crate::engine::Engine;
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::member::{add, slot_state};
use crate::store::pending::BlockKey;
use crate::store::pool::StopReason;
use crate::upkeep::saved::{SAVED_DAMAGE, SAVED_DEDUP_SUMS, SAVED_SUMS};
use std::ops::Range;
use windrow_format::superblock::{Journals, MemberRecord, MemberState};
use windrow_types::{ADDRESS_UNIT, FULL_BLOCK_UNITS, Lba, Lsn, MemberId, VolumeId};

impl Engine {
    /// Restores the counters of a checkpoint.
    pub(crate) fn restore_counters(&mut self, saved: &[u64]) {
        let counter = |at: usize| saved.get(at).copied().unwrap_or(0);
        self.core.store.observe.counters.lifetime_user_bytes = counter(0);
        self.core.store.observe.counters.lifetime_member_bytes = counter(1);
        self.core.store.observe.counters.lifetime_reduction =
            ReductionSums::from_words(std::array::from_fn(|at| counter(SAVED_SUMS + at)));
        self.core.store.observe.counters.lifetime_dedup =
            DedupSums::from_words(std::array::from_fn(|at| counter(SAVED_DEDUP_SUMS + at)));
        self.upkeep.integrity.scrub =
            crate::upkeep::scrub::Scrub::restored(saved.get(2..).unwrap_or_default());
        let words = saved
            .get(SAVED_DAMAGE..SAVED_SUMS.min(saved.len()))
            .unwrap_or_default();
        self.core.paths.damage = crate::path::damage::Damage::restored(words);
    }

    /// Where the journals lie.
    pub fn journals(&self) -> &Journals {
        &self.core.store.pool.superblock.journals
    }

    /// Every LSN up to the first one is durable in the log, up to the second one in the log or in a
    /// journal.
    pub fn durable_lsns(&self) -> (Lsn, Lsn) {
        let durability = &self.core.paths.durability;
        (
            durability.lsns.used(durability.lsns.durable()),
            durability.lsns.used(durability.durable_lsn()),
        )
    }

    /// True if the member is in service, and not being rebuilt.
    pub fn is_whole(&self, member: MemberId) -> bool {
        self.core.store.drives.members.is_whole(member)
    }

    /// True if the journal in use is the one on devices of its own.
    pub fn uses_journal_devices(&self) -> bool {
        let store = &self.core.store;
        self.core.paths.durability.journal.is_external(&store.pool)
    }

    /// Bytes that count against usable space.
    pub fn used_bytes(&self) -> u64 {
        self.core.paths.used_bytes(&self.core.store)
    }

    /// Makes fingerprints weak on purpose, so that different blocks have equal ones: for tests of
    /// volumes that compare.
    #[doc(hidden)]
    pub fn inject_weak_fingerprints(&mut self) {
        self.core.paths.shared.inject_weak_fingerprints();
    }

    /// Ids that blocks of a volume refer to (tests).
    #[doc(hidden)]
    pub fn content_ids(&self, volume: VolumeId, blocks: Range<u64>) -> Vec<Option<u64>> {
        let volumes = &self.core.store.volumes;
        let Some(v) = volumes.get(volume) else {
            return Vec::new();
        };
        blocks
            .map(|lba| v.map.get(&volumes.arena, Lba(lba)).shared_id())
            .map(|id| id.map(|id| id.0))
            .collect()
    }

    /// Current state of the pool.
    pub fn status(&self) -> PoolStatus {
        let (store, paths) = (&self.core.store, &self.core.paths);
        let mut written = store.drives.members.former;
        for member in &store.drives.members.list {
            add(&mut written, &member.stats.written);
        }
        let has_place = |record: &MemberRecord| {
            !matches!(record.state, MemberState::Removed | MemberState::Spare)
        };
        let degraded = store
            .drives
            .members
            .list
            .iter()
            .zip(&store.pool.superblock.members)
            .any(|(m, r)| (!m.online || m.rebuilding) && has_place(r));
        let state = match &store.pool.stopped {
            Some(StopReason::Shutdown) | None if degraded => "degraded",
            None | Some(StopReason::Shutdown) => "online",
            Some(_) => "stopped",
        };
        let properties = &store.pool.superblock.properties;
        let [lifetime_user_bytes, lifetime_member_bytes] =
            self.upkeep.lifetime_counters(&self.core);
        let (lifetime_reduction, lifetime_dedup) = self.upkeep.lifetime_sums(&self.core);
        let segments = store.segments.occupancy(&store.pool.zones);
        PoolStatus {
            pool: store.pool.superblock.pool,
            name: store.pool.superblock.pool_name.clone(),
            redundancy: store.pool.superblock.redundancy.name(),
            state,
            stop_reason: store
                .pool
                .stopped
                .as_ref()
                .filter(|reason| **reason != StopReason::Shutdown)
                .map(|reason| store.stop_text(reason)),
            created_unix_s: store.pool.superblock.created_unix_s,
            generation: store.pool.superblock.generation.0,
            epoch: store.pool.superblock.epoch.0,
            members: member_status(&self.core),
            volumes: volume_status(&self.core),
            volumes_version: store.volumes.version,
            spare_per_mille: properties.spare_per_mille,
            seal_age_ms: properties.seal_age_ms,
            placement: windrow_policy::kind::PlacementKind::from_code(properties.placement)
                .map_or("separate", windrow_policy::kind::PlacementKind::name),
            user_streams: paths.space.user_streams(&store.pool),
            moved_streams: paths.space.policy.moved_streams(),
            placement_bytes: paths.space.policy.bytes(),
            further_blocks: paths.space.policy.further,
            overflowed_blocks: paths.space.policy.overflowed(),
            victim_policy: crate::store::segment::victim_rule(properties).name(),
            discard: properties.discard,
            properties: *properties,
            plan: store.pool.plan.clone(),
            used_bytes: paths.used_bytes(store),
            reduction_use: paths.reduction_use(store),
            warned_percent: store.observe.counters.filling_reported,
            free_segments: store.segments.free_count(),
            data_segments: segments.closed,
            cleaning_segments: paths.space.cleaner.victim_count(),
            data_live_bytes: segments.live_bytes,
            garbage_bytes: segments.garbage_bytes,
            physical_bytes: segments.physical_bytes,
            map_bytes: store.volumes.arena.bytes(),
            map_pages: store.volumes.arena.used_pages(),
            map_pages_max: store.volumes.arena.max_pages(),
            refused_map_pages: store.observe.counters.refused_map_pages,
            refuses_data: paths.is_refusing_data(store),
            refused_space: store.observe.counters.refused_space,
            limits: store.pool.limits,
            at_risk_bytes: at_risk_bytes(&self.core),
            pending_bytes: paths.admission.pending_bytes,
            member_stats: store.drives.members.list.iter().map(|m| m.stats).collect(),
            written,
            user_write_bytes: store.observe.counters.user_write_bytes,
            user_read_bytes: store.observe.counters.user_read_bytes,
            fill_blocks: store.observe.counters.fill_blocks,
            reduction: paths.admission.reducing.sums,
            dedup: paths.shared.dedup_status(&store.volumes),
            stored_bytes: store.volumes.stored_units_of_users() * ADDRESS_UNIT as u64,
            flushes: store.observe.counters.flushes,
            checkpoints: store.observe.counters.checkpoints,
            checkpoints_forced: store.observe.counters.checkpoints_forced,
            segments_cleaned: store.observe.counters.segments_cleaned,
            users_per_1024_gained: paths.admission.pace.per_1024(),
            scrub: self
                .upkeep
                .integrity
                .scrub
                .status(store.segments.count(), store.pool.now_ns),
            damage: paths.damage.status(DAMAGE_SHOWN_RANGES),
            rebuild: self.upkeep.integrity.rebuild.status(store.pool.now_ns),
            reshape: self.upkeep.reshape_status(&self.core),
            journal: paths.journal_status(store),
            held_commands: store.drives.scheduler.held() as u64,
            stages: Vec::new(),
            lsn: paths.durability.lsns.last(),
            durable_lsn: paths.durability.lsns.used(paths.durability.durable_lsn()),
            lifetime_user_bytes,
            lifetime_member_bytes,
            lifetime_reduction,
            lifetime_dedup,
        }
    }

    /// Times of the stages of requests since start, for [`PoolStatus::stages`]. Computed from
    /// histograms, so not for frequent polling.
    pub fn stage_times(&self) -> Vec<StageTimes> {
        self.core.store.observe.stages.report()
    }

    /// A volume in use by name, as [`Engine::status`] shows it.
    pub fn volume_named(&self, name: &str) -> Option<VolumeStatus> {
        self.core
            .store
            .volumes
            .by_name(name)
            .map(|volume| self.core.store.pool.status_of(volume))
    }

    /// Reports use that rises above a warning threshold. A threshold is reported again only after
    /// use was [`FILLING_HYSTERESIS`] below it.
    pub(crate) fn report_filling(&mut self, out: &mut Outbox) {
        let percent = (u128::from(self.core.paths.used_bytes(&self.core.store)) * 100
            / u128::from(self.core.store.pool.plan.usable_bytes.max(1)))
            as u64;
        let warn_at = self.core.store.pool.superblock.properties.warn_at;
        let highest = |percent: u64| {
            warn_at
                .into_iter()
                .filter(|at| percent >= u64::from(*at))
                .max()
                .unwrap_or(0)
        };
        let passed = highest(percent);
        if passed > self.core.store.observe.counters.filling_reported {
            out.notices.push(Notice::Filling { percent: passed });
            self.core.store.observe.counters.filling_reported = passed;
        }
        self.core.store.observe.counters.filling_reported = self
            .core
            .store
            .observe
            .counters
            .filling_reported
            .min(highest(percent + FILLING_HYSTERESIS));
        let (pages, most) = (
            self.core.store.volumes.arena.used_pages(),
            self.core.store.volumes.arena.max_pages(),
        );
        if self.core.store.observe.counters.refused_map_pages > 0
            && pages >= most
            && !self.core.store.observe.counters.map_full_reported
        {
            self.core.store.observe.counters.map_full_reported = true;
            out.notices.push(Notice::MapFull {
                pages: most,
                by_memory: most < self.core.store.pool.plan.map_pages_max,
            });
        }
        self.core.store.observe.counters.map_full_reported &= pages >= most;
    }
}

impl Engine {
    /// Checks the invariants of an idle engine; returns the first violation.
    pub fn self_check(&self) -> Result<(), String> {
        let (store, paths) = (&self.core.store, &self.core.paths);
        if store.reads.has_repaired()
            || store.segments.has_opened()
            || (store.pool.stopped.is_none() && paths.durability.flush.has_ended())
        {
            return Err("a result was not handed on".to_owned());
        }
        self.core.store.segments.self_check()?;
        self.core.store.drives.scheduler.self_check()?;
        if self.core.store.reads.fetches.is_empty()
            && self.core.store.reads.slow.has_outstanding_reads()
        {
            return Err("members owe reads, and none is on its way".to_owned());
        }
        // Without writes permitted, entries readmitted at the start stay where they are.
        if !self.core.store.pool.read_only
            && self.core.paths.admission.unsealed_units
                > self.core.paths.log_units(&self.core.store)
        {
            return Err(format!(
                "{} units admitted and not sealed, the log has room for {}",
                self.core.paths.admission.unsealed_units,
                self.core.paths.log_units(&self.core.store)
            ));
        }
        check_charge(&self.core)?;
        let quiet = self.core.paths.log.pending.is_empty()
            && self
                .core
                .paths
                .log
                .streams
                .iter()
                .all(|s| s.in_flight.is_empty() && s.open.is_empty());
        if quiet && self.core.paths.admission.is_idle() {
            if self.core.paths.admission.pending_bytes != 0 {
                return Err(format!(
                    "{} pending bytes in an idle pool",
                    self.core.paths.admission.pending_bytes
                ));
            }
            let (mapped, stored) = (
                self.core.store.volumes.mapped_blocks(),
                self.core.store.volumes.stored_units(),
            );
            let live = self.core.store.segments.live_units();
            if self.core.paths.ranges.is_idle()
                && (stored != live || mapped != self.core.store.volumes.used_blocks())
            {
                let used = self.core.store.volumes.used_blocks();
                return Err(format!(
                    "{mapped} blocks mapped in (units, compressed pieces) {stored:?}, {live:?} live in segments, {used} blocks counted as used"
                ));
            }
            if self.core.paths.ranges.is_idle() {
                self.core.paths.check_references(&self.core.store)?;
            }
        }
        Ok(())
    }

    /// True if nothing is in flight (between bursts, for tests and leak checks).
    pub fn is_quiet(&self) -> bool {
        self.core.paths.log.pending.is_empty()
            && self.core.paths.admission.is_idle()
            && self.core.paths.shared.is_idle()
            && self.core.paths.user_reads.is_empty()
            && self.core.store.reads.fetches.is_empty()
            && self.core.paths.durability.flush.is_idle()
            && self.core.paths.durability.journal.is_idle()
            && self.core.store.drives.members.commands_have_ended()
            && self.core.paths.durability.checkpoint.is_idle()
            && self.core.paths.space.cleaner.is_idle()
            && self.upkeep.integrity.scrub.is_idle()
            && self.upkeep.integrity.rebuild.is_idle()
            && self.upkeep.reshape.is_idle()
            && self.upkeep.integrity.verifications.is_empty()
            && self
                .upkeep
                .integrity
                .survey
                .is_idle(&self.core.paths.damage.contents)
            && self.core.paths.log.stream(STREAM_USER).open.is_empty()
    }

    /// True if no request, read, fetch, verification, flush or member command is in its tables.
    /// Cleaning may pause in the middle of a segment.
    pub fn tables_are_empty(&self) -> bool {
        let reading = !(self.core.paths.user_reads.is_empty()
            && self.core.store.reads.fetches.is_empty()
            && self.core.store.reads.splits.is_empty()
            && self.upkeep.integrity.verifications.is_empty());
        !reading
            && self.core.paths.log.pending.is_empty()
            && self.core.paths.admission.is_idle()
            && self.core.paths.durability.flush.is_idle()
            && self.core.store.drives.members.commands_have_ended()
    }

    /// Id and size in bytes of a volume by name.
    pub fn volume(&self, name: &str) -> Option<(windrow_types::VolumeId, u64)> {
        self.core
            .store
            .volumes
            .by_name(name)
            .map(|v| (v.record.id, v.record.size_bytes))
    }
}

impl Engine {
    /// State of all activities in one line, for the diagnosis of a stalled pool.
    pub fn describe(&self) -> String {
        let stream = |id: usize| {
            let s = self.core.paths.log.stream(id);
            let stages: Vec<_> = s.in_flight.iter().map(|b| b.stage).collect();
            format!(
                "stream {id} at {:?}, open {} items, in flight {stages:?}, durable {}",
                s.position,
                s.open.items.len(),
                s.durable
            )
        };
        format!(
            "{}; {}; {}; LSNs committed {} durable {}; room {} units, unsealed {}, placing {}; {} free, {} dead, {} quarantined, futile {}, floor {}, wanted {}, waiting for a flush {:?}; {}; {}; {}; {}; {}; commands {}, {}, fetches {}, stopped {:?}",
            stream(STREAM_USER),
            stream(crate::base::limits::STREAM_CLEANED),
            crate::base::limits::STREAMS[2..]
                .iter()
                .map(|id| stream(*id))
                .collect::<Vec<_>>()
                .join("; "),
            self.core.paths.durability.lsns.committed(),
            self.core.paths.durability.lsns.durable(),
            self.core.paths.room_units(&self.core.store),
            self.core.paths.admission.unsealed_units,
            self.core.paths.admission.placing.len(),
            self.core.store.segments.free_count(),
            self.core.store.segments.dead_count(),
            self.core.store.segments.quarantined_count(),
            self.upkeep.is_futile(&self.core),
            self.core.paths.floor(STREAM_USER, &self.core.store),
            self.core.paths.segments_wanted(&self.core.store),
            self.core
                .store
                .segments
                .wait_for_flush(&self.upkeep.reuse_horizon(&self.core)),
            self.core.paths.admission.pace.describe(),
            self.core.paths.space.cleaner.describe(),
            self.core.paths.durability.checkpoint.describe(),
            self.core.paths.durability.flush.describe(),
            self.core.paths.durability.journal.describe(),
            self.core.store.drives.members.in_flight.len(),
            self.core.store.drives.scheduler.describe(),
            self.core.store.reads.fetches.len(),
            self.core.store.pool.stopped,
        )
    }
}

impl Engine {
    /// Injects a bug.
    #[doc(hidden)]
    pub fn inject(&mut self, bug: crate::base::fault_injection::InjectedBug) {
        self.core.store.observe.bug = bug;
    }
}

/// Admitted bytes that a power cut now would lose: durable neither in the log nor in the
/// journal.
fn at_risk_bytes(core: &Core) -> u64 {
    core.paths
        .admission
        .at_risk
        .above(core.paths.durability.durable_lsn())
}

fn member_status(core: &Core) -> Vec<MemberStatus> {
    let records = core.store.pool.superblock.members.iter().enumerate();
    let hangs_ns = core.store.drives.hangs_for_ns(&core.store.pool);
    records
        .map(|(i, record)| MemberStatus {
            member: MemberId(i as u8),
            uuid: record.uuid,
            // Complete, but not recorded yet.
            state: if core.store.drives.members.list[i].rebuilding && record.is_in_use() {
                "rebuilding"
            } else {
                slot_state::name(slot_state::slot_state(record))
            },
            size_bytes: record.size_bytes,
            needed_bytes: crate::store::member::needed_bytes(
                &core.store.pool.zones,
                &core.store.pool.superblock.journals,
                MemberId(i as u8),
            ),
            sector_bytes_max: crate::store::member::sector_bytes_max(
                &core.store.pool.superblock.journals,
                MemberId(i as u8),
            ),
            power_safe: crate::store::member::is_power_safe(
                &core.store.pool.superblock.journals,
                MemberId(i as u8),
            ),
            slow: core.store.reads.slow.is_slow(MemberId(i as u8)),
            journal: core.store.pool.is_journal_device(MemberId(i as u8)),
            leaving: core.store.pool.zones.leaving() >> i & 1 == 1,
            hangs_ms: hangs_ns[i] / 1_000_000,
            unanswered: if core.store.drives.members.list[i].online {
                0
            } else {
                core.store.drives.members.list[i].in_flight
            },
            reason: why_out(core, i).0,
            since_unix_s: why_out(core, i).1,
            replaces: core.store.pool.replaced_by(MemberId(i as u8)),
            replacement_ready: core
                .store
                .drives
                .exchanges
                .is_shadow_ready(MemberId(i as u8)),
            is_shadow: core
                .store
                .drives
                .exchanges
                .shadowed_by(MemberId(i as u8))
                .is_some(),
        })
        .collect()
}

/// Reason that a member is out of service, and the time: from this run, or from the superblock.
fn why_out(core: &Core, member: usize) -> (String, u64) {
    let record = &core.store.pool.superblock.members[member];
    if core.store.drives.members.list[member].online
        || matches!(record.state, MemberState::Removed | MemberState::Spare)
    {
        return (String::new(), 0);
    }
    if let Some(left) = &core.store.drives.members.list[member].left {
        return left.clone();
    }
    let why = match slot_state::name(slot_state::slot_state(record)) {
        "missing" => "not found when the pool was opened",
        "faulted" => "failed in an earlier run of the pool",
        "offline" => "taken out of service by the administrator",
        _ => "",
    };
    (why.to_owned(), 0)
}

fn volume_status(core: &Core) -> Vec<VolumeStatus> {
    core.store
        .volumes
        .iter()
        .map(|volume| core.store.pool.status_of(volume))
        .collect()
}

/// Checks that the charge agrees with the maps and the blocks in flight (`base/weight.rs`).
fn check_charge(core: &Core) -> Result<(), String> {
    let mapped = |key: BlockKey| {
        core.store.volumes.get(key.volume()).map_or(0, |v| {
            weight(&v.map.get(&core.store.volumes.arena, key.lba()))
        })
    };
    let pending = core.paths.log.pending.newest();
    let (stands, for_mapped) = pending.fold((0, 0), |(stands, mapped_too), (key, is_data)| {
        (
            stands
                + if is_data {
                    u64::from(FULL_BLOCK_UNITS)
                } else {
                    0
                },
            mapped_too + mapped(key),
        )
    });
    let (charge, due) = (
        core.store.volumes.charge(),
        core.store.volumes.mapped_charge() + stands - for_mapped,
    );
    if charge == due {
        Ok(())
    } else {
        Err(format!(
            "{charge} units are charged, by the maps and the blocks in flight it should be {due}"
        ))
    }
}
