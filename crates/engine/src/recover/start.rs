//! A start, stage by stage. [`Start`] holds what the earlier stages have found.
//!
//! ```text
//! superblocks   which generation rules, and which members it has
//! checkpoint    its newest readable one: the tables
//! replay        batches and journal records behind it
//! settle        what the replay leaves to be put in order, in memory
//! complete      parts of accepted batches that are missing, on the members
//! build         the engine
//! fence         a generation that ends this history, before anything new is written
//! ```

use super::load::newest_checkpoint;
use super::quorum::{Remembered, Ruling, newest_without};
use super::reader::Reader;
use super::replay::Outcome;
use super::*;
use crate::api::{Limits, PoolPlan};
use crate::path::checkpointing::Loaded;
use crate::path::journal::Journal;
use crate::store::plan::plan_zones;
use std::collections::BTreeSet;
use windrow_format::superblock::CheckpointRoot;
use windrow_types::SegmentId;

/// What a start has found so far, and what it will use.
struct Start<'o> {
    options: &'o OpenOptions,
    ruling: Ruling,
    zones: ZoneMap,
    plan: PoolPlan,
    limits: Limits,
    /// The limit of the map that the caller wants; `limits` has what the pool allows.
    map_bytes_wanted: u64,
    report: OpenReport,
}

/// The tables as a checkpoint has them, and then as the log leaves them.
struct Found {
    tables: Tables,
    loaded: Loaded,
    root: CheckpointRoot,
}

/// What the log and the journal add to the checkpoint.
struct Replayed {
    outcome: Outcome,
    /// Segments with batches of a checkpoint stream whose end is damaged.
    stray: BTreeSet<SegmentId>,
    counters: Vec<u64>,
    online: Vec<bool>,
}

/// Opens a pool without the members in the mask `failing`. `spent` counts what recovery has written
/// to each member so far.
pub(super) fn open(
    (failing, remembered): (u64, &mut Remembered),
    io: &mut dyn MemberIo,
    buffers: BufPool,
    options: &OpenOptions,
    watch: &mut dyn FnMut(OpenPhase),
    spent: &mut [MemberStats],
) -> Result<(Engine, OpenReport), OpenError> {
    watch(OpenPhase::Superblocks);
    let mut start = Start::superblocks(io, options, failing, remembered)?;
    let zones = start.zones.clone();
    let mut reader = start.reader(io, &zones, &buffers, failing);
    watch(OpenPhase::Checkpoint);
    let mut found = start.checkpoint(&mut reader)?;
    watch(OpenPhase::Replay);
    let outcome = start.replay(&mut reader, &mut found)?;
    watch(OpenPhase::Fence);
    let replayed = start.settle(&mut reader, &mut found, outcome)?;
    if !options.read_only {
        // Not earlier: a refused start changes nothing.
        start.complete(&mut reader, &replayed.outcome, spent)?;
        start.prepare_generation(&mut reader, &mut found, &replayed.outcome, spent)?;
    }
    let retired = if reader.reads_retired {
        reader.retired
    } else {
        0
    };
    let map_bytes_wanted = start.map_bytes_wanted;
    let (mut engine, mut report) = start.build(found, &replayed, buffers);
    take_journal(&mut engine, io, &replayed, retired, &mut report, spent);
    journal::readmit(&mut engine.core, replayed.outcome.readmitted)?;
    if replayed.outcome.checkpoint_broken {
        stray::leave_stray(&mut engine.core, &replayed.stray)?;
    }
    let Engine { core, upkeep, .. } = &mut engine;
    upkeep.settle_reshape(map_bytes_wanted, core);
    if !options.read_only && core.store.volumes.wants_index() {
        core.paths.make_index(&mut core.store);
    }
    if !options.read_only {
        write_fence(&engine.core, io, spent)?;
    }
    // Nothing in a new engine remembers what they held.
    engine.core.store.segments.take_opened();
    let members = &mut engine.core.store.drives.members.list;
    for (member, spent) in members.iter_mut().zip(spent.iter()) {
        add(&mut member.stats.written, &spent.written);
        member.stats.flushes += spent.flushes;
    }
    Ok((engine, report))
}

impl<'o> Start<'o> {
    /// Finds the generation that rules, and plans the pool by it.
    fn superblocks(
        io: &mut dyn MemberIo,
        options: &'o OpenOptions,
        failing: u64,
        remembered: &mut Remembered,
    ) -> Result<Self, OpenError> {
        let mut ruling = newest_without(io, options, failing, remembered)?;
        let superblock = &ruling.superblock;
        let zones = ZoneMap::new(superblock.zones.clone());
        let kept = Kept::of(superblock);
        let plan = plan_zones(&zones, superblock.properties.spare_per_mille, kept)
            .map_err(|e| OpenError::Damage(e.to_string()))?;
        let mut limits = options.limits;
        let map_bytes_wanted = limits.map_bytes;
        limits.map_bytes = map_bytes_wanted.min(map_pages(&zones, kept, &plan) * BLOCK_BYTES);
        let largest = zones
            .zones()
            .iter()
            .map(|z| u64::from(z.shape.chunk_rows) * u64::from(z.shape.data) * BLOCK_BYTES)
            .max()
            .unwrap_or(0);
        limits.pending_bytes = limits.pending_bytes.max(4 * largest);
        limits.batches_in_flight = limits.batches_in_flight.max(1);
        let report = OpenReport {
            clean: superblock.state == PoolState::Exported,
            notes: std::mem::take(&mut ruling.notes),
            ..Default::default()
        };
        Ok(Self {
            options,
            ruling,
            zones,
            plan,
            limits,
            map_bytes_wanted,
            report,
        })
    }

    fn reader<'a>(
        &self,
        io: &'a mut dyn MemberIo,
        zones: &'a ZoneMap,
        buffers: &'a BufPool,
        failing: u64,
    ) -> Reader<'a> {
        let superblock = &self.ruling.superblock;
        let online: Vec<bool> = superblock
            .members
            .iter()
            .enumerate()
            .map(|(m, r)| r.state == MemberState::Online && io.is_present(MemberId(m as u8)))
            .collect();
        let codec = superblock.address_codec();
        let mut reader = Reader::new(io, zones, codec, buffers, online, superblock.pool);
        reader.read_retired_of(self.ruling.retired, failing);
        reader
    }

    fn checkpoint(&mut self, reader: &mut Reader<'_>) -> Result<Found, OpenError> {
        // The superblock that allowed more pages may be lost.
        let most = map_pages(&self.zones, Kept::MOST, &self.plan) * BLOCK_BYTES;
        let (tables, loaded, root) = newest_checkpoint(
            reader,
            &self.ruling.superblock,
            self.map_bytes_wanted.min(most),
            &mut self.report,
        )?;
        Ok(Found {
            tables,
            loaded,
            root,
        })
    }

    fn replay(&mut self, reader: &mut Reader<'_>, found: &mut Found) -> Result<Outcome, OpenError> {
        replay::replay(
            reader,
            &self.ruling.superblock,
            &found.root,
            &mut found.tables,
            self.options.discard_journal,
            &mut self.report,
        )
    }

    /// Puts the tables in order, in memory only.
    fn settle(
        &mut self,
        reader: &mut Reader<'_>,
        found: &mut Found,
        outcome: Outcome,
    ) -> Result<Replayed, OpenError> {
        let Found {
            tables,
            loaded,
            root,
        } = found;
        let accepted = outcome.restart.accepted;
        let chain = outcome.chains.of(STREAM_CHECKPOINT);
        let stray = if outcome.checkpoint_broken {
            stray::settle(reader, root, chain, loaded, tables)?
        } else {
            Default::default()
        };
        tables::clear_deleted(tables)?;
        let missing = missing_content(&tables::count_references(tables, accepted));
        self.report.notes.extend(missing);
        tables::drop_index_pages(tables, self.plan.index_pages, accepted);
        pages::settle(tables, self.limits.map_bytes, &outcome.readmitted);
        tables::count_live(tables, loaded);
        let counters = load::counters(reader, loaded)?;
        let mut online = reader.online.clone();
        lower_missed_from(&mut self.ruling.superblock, root.id);
        for (online, record) in online.iter_mut().zip(&self.ruling.superblock.members) {
            // Only a writable start takes members back.
            *online |= record.state == MemberState::Rebuilding;
        }
        Ok(Replayed {
            outcome,
            stray,
            counters,
            online,
        })
    }

    /// Writes what is missing of accepted batches and records, and the newest superblock where a
    /// crash cut its writing short.
    fn complete(
        &mut self,
        reader: &mut Reader<'_>,
        outcome: &Outcome,
        spent: &mut [MemberStats],
    ) -> Result<(), OpenError> {
        let Ruling { found, lagging, .. } = &self.ruling;
        write_lagging(reader.io, lagging, found, reader.buffers, spent)?;
        let batches = outcome.chains.iter().flat_map(|chain| &chain.batches);
        self.report.completed_batches += redundancy::complete(reader, batches, spent)?;
        let (covered, accepted) = (outcome.restart.covered, outcome.restart.accepted);
        self.report.completed_records +=
            outcome.journal.complete(reader, covered, accepted, spent)?;
        Ok(())
    }

    /// Prepares the generation that ends this history: flags, plan and fence.
    fn prepare_generation(
        &mut self,
        reader: &mut Reader<'_>,
        Found { tables, root, .. }: &mut Found,
        outcome: &Outcome,
        spent: &mut [MemberStats],
    ) -> Result<(), OpenError> {
        let Ruling {
            found, superblock, ..
        } = &mut self.ruling;
        superblock.parent_hash = found.content_hash();
        if self.options.force {
            let online = &reader.online;
            write_step(reader.io, found, superblock, online, reader.buffers, spent)?;
        }
        tables.volumes.rewrite_table();
        self.plan = set_flags(
            superblock,
            tables,
            self.map_bytes_wanted,
            self.plan.clone(),
            &mut self.report,
        );
        self.limits.map_bytes = self
            .limits
            .map_bytes
            .max(tables.volumes.arena.max_pages() * BLOCK_BYTES)
            .min(self.map_bytes_wanted);
        fence::raise_fence(superblock, &outcome.restart, self.options.host, root);
        Ok(())
    }

    /// The engine, with the counters and the policy of the pool.
    fn build(
        mut self,
        found: Found,
        replayed: &Replayed,
        buffers: BufPool,
    ) -> (Engine, OpenReport) {
        let root = found.root.id;
        let mut engine = build(
            self.ruling.superblock,
            found.tables,
            found.loaded,
            &replayed.outcome.restart,
            root,
            replayed.online.clone(),
            self.plan,
            self.limits,
            buffers,
            self.options.read_only,
        );
        let Core { store, paths } = &mut engine.core;
        for stream in
            paths.log.streams.iter_mut().filter(|stream| {
                ![STREAM_USER, STREAM_CLEANED, STREAM_CHECKPOINT].contains(&stream.id)
            })
        {
            // The older root that is kept need not name it.
            stream.usable_from = root;
        }
        let properties = store.pool.superblock.properties;
        match paths.policy_for(&properties, &store.pool.plan, store) {
            Ok(policy) => paths.space.take_policy(&mut store.segments, policy),
            Err(why) => self.report.notes.push(why),
        }
        engine.restore_counters(&replayed.counters);
        (engine, self.report)
    }
}

/// The journal continues after what was accepted. `retired`: journal devices out of service that
/// were read.
fn take_journal(
    engine: &mut Engine,
    io: &mut dyn MemberIo,
    replayed: &Replayed,
    retired: u64,
    report: &mut OpenReport,
    spent: &mut [MemberStats],
) {
    let Core { store, paths } = &mut engine.core;
    let restart = &replayed.outcome.restart;
    let journal = &mut paths.durability.journal;
    *journal = Journal::new(
        &store.pool.superblock.journals,
        &replayed.outcome.journal.resume(restart.accepted),
    );
    if !store.pool.read_only && !flush_aside(io, retired, spent) {
        journal.limit_recorded(restart.covered);
    }
    report.notes.extend(journal.note_unfit_journals(io));
    paths.choose_journal(store);
}

fn members_of(superblock: &Superblock, online: &[bool]) -> Members {
    let records = online.iter().zip(&superblock.members);
    let member = |(online, record): (&bool, &MemberRecord)| Member {
        online: *online,
        rebuilding: *online && record.state == MemberState::Rebuilding,
        ..Default::default()
    };
    Members {
        list: records.map(member).collect(),
        in_flight: Default::default(),
        hang_look_ns: 0,
        unrecorded_loss: false,
        former: Default::default(),
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "everything that recovery found, put together once"
)]
pub(super) fn build(
    superblock: Superblock,
    tables: Tables,
    loaded: crate::path::checkpointing::Loaded,
    restart: &replay::Restart,
    checkpoint: u64,
    online: Vec<bool>,
    plan: crate::api::PoolPlan,
    limits: crate::api::Limits,
    buffers: BufPool,
    read_only: bool,
) -> Engine {
    let streams: Vec<Stream> = STREAMS
        .iter()
        .map(|id| Stream::new(*id, restart.positions[*id]))
        .collect();
    let lsns = LsnClock::resume(restart.covered, restart.accepted, restart.next_lsn);
    let max_rows = tables
        .zones
        .zones()
        .iter()
        .map(|z| z.shape.rows)
        .max()
        .unwrap_or(64);
    let root = checkpoint;
    let checkpoint = CheckpointState::new(checkpoint, loaded, max_rows, &plan, restart.covered);
    let store = Store {
        memory: Memory {
            buffers,
            codecs: Default::default(),
            zeroes: Payload::zeroes(),
            ones: Payload::ones(),
        },
        drives: Drives {
            members: members_of(&superblock, &online),
            exchanges: Default::default(),
            scheduler: crate::store::member::Schedule::new(&limits),
            superblock_writer: SuperblockWriter::after(&superblock),
        },
        volumes: tables.volumes,
        segments: tables.segments,
        reads: Default::default(),
        observe: Default::default(),
        pool: Pool {
            superblock,
            zones: tables.zones,
            codec: tables.codec,
            plan,
            limits,
            read_only,
            stopped: None,
            closing: Default::default(),
            now_ns: 0,
        },
    };
    let paths = Paths {
        admission: Default::default(),
        shared: crate::path::dedup::Shared::after(restart.accepted),
        log: Log {
            streams,
            pending: Pending::with_capacity((limits.pending_bytes / BLOCK_BYTES * 2) as usize),
        },
        space: Space {
            cleaner: Default::default(),
            ledger: Default::default(),
            policy: crate::path::policy::Policy::plain(),
        },
        durability: Durability {
            flush: Default::default(),
            journal: Default::default(),
            checkpoint,
            lsns,
        },
        commands: Default::default(),
        reduction: Default::default(),
        ranges: Default::default(),
        damage: Default::default(),
        user_reads: Default::default(),
    };
    let mut engine = Engine {
        core: Core { store, paths },
        upkeep: Default::default(),
        admin: Default::default(),
    };
    let core = &mut engine.core;
    debug_assert!(redundancy_holds(
        &core.store.pool.zones,
        &core.store.drives.members.list
    ));
    core.store.volumes.count_used();
    core.store.volumes.count_table_pages();
    let deleting: Vec<VolumeId> = core
        .store
        .volumes
        .iter()
        .filter(|v| v.record.state == VolumeState::Deleting)
        .map(|v| v.record.id)
        .collect();
    for volume in deleting {
        core.paths
            .begin_delete(volume, Lsn(restart.accepted.0), &mut core.store);
    }
    settle_streams(&mut engine.core);
    engine.upkeep.settle_stale(root, &mut engine.core);
    // The next generation names this one by its content hash.
    let store = &mut engine.core.store;
    store.drives.superblock_writer = SuperblockWriter::after(&store.pool.superblock);
    engine
}
