//! Recovery: from the superblocks of an existing pool to a running engine.
//!
//! 1. `quorum`: finds the newest superblock generation, and checks that enough members are present
//!    to trust it.
//! 2. `load`: loads the newest readable checkpoint.
//! 3. `chain`, `judge`, `replay`: collect the valid batches after it, judge the chain ends, compute
//!    the recovery point and apply the batches to the tables.
//! 4. Completes accepted batches with missing or wrong parts and flushes every member, so that
//!    everything accepted is durable.
//! 5. `fence`: writes the new epoch, the recovery point and the last accepted batch of each stream
//!    to the superblock of all members.
//! 6. Serves. `salvage` is for emergencies only.
//!
//! The code is sequential over [`MemberIo`]: there are no clients yet. A crash at any point leaves
//! the bytes as they were, or completed with exactly the bytes that belong there.

mod chain;
mod fence;
mod incarnation;
mod journal;
mod judge;
mod load;
mod loss;
mod pages;
mod quorum;
mod reader;
mod redundancy;
mod replace;
mod replay;
mod retired;
mod salvage;
mod stray;
mod tables;

pub use loss::{Loss, Losses, LostBlocks};
pub use salvage::{
    LostLsns, RebuildPhase, RebuildProgress, RebuildReport, RebuildWork, RebuiltVolume,
    UnreadCheckpoint,
};

use crate::api::{MemberStats, OpenOptions, OpenPhase, OpenReport};
use crate::base::limits::{STREAM_CHECKPOINT, STREAM_CLEANED, STREAM_USER, STREAMS};
use crate::base::lsn::LsnClock;
use crate::engine::Engine;
use crate::path::checkpointing::CheckpointState;
use crate::path::{Core, Durability, Log, Paths, Space};
use crate::store::member::{
    Member, Members, SuperblockWriter, add, redundancy_holds, superblock_image,
};
use crate::store::pending::Pending;
use crate::store::plan::Kept;
use crate::store::pool::{Memory, Pool};
use crate::store::stream::Stream;
use crate::store::{Drives, Store};
use windrow_format::checkpoint::VolumeState;
use windrow_format::superblock::{
    Features, MemberRecord, MemberState, PoolState, Reduction, SLOT_BYTES, Superblock, slot_offset,
};
use windrow_geometry::{MAX_MEMBERS, ZoneMap};
use windrow_io::{BufPool, MemberError, MemberErrorKind, MemberIo, Payload};
use windrow_types::{AddressCodec, BLOCK_BYTES, Lsn, MemberId, SegmentId, Uuid, VolumeId};

/// Distance that batch numbers skip if a stream does not continue at the end of its chain: beyond
/// all numbers that it can have reached.
const SEQ_LEAP: u64 = 1 << 32;

/// Reason that a pool cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// No member has a valid superblock.
    #[error("no member has a valid superblock ({0})")]
    NoSuperblock(String),
    /// The superblocks have a newer format version.
    #[error("the superblocks are of format version {0}, which is newer than this software")]
    NewerVersion(u32),
    /// Members of different pools.
    #[error("the members belong to different pools: {0} and {1}")]
    DifferentPools(Uuid, Uuid),
    /// Two superblocks of one generation exist.
    #[error(
        "the members have two different superblocks of generation {generation}; the sides were used separately; import only one side, with --force if it is the minority"
    )]
    TwoHistories {
        /// The generation.
        generation: u64,
    },
    /// Too few members.
    #[error(
        "{present} of {total} members are present, and the others are not recorded as absent; another host may use them; if none does, import with --force"
    )]
    NoQuorum {
        /// Number of members found.
        present: usize,
        /// Number of members of the pool.
        total: usize,
    },
    /// More members are missing than the redundancy covers.
    #[error("{missing} members are missing ({which}): more than redundancy {redundancy} covers")]
    TooManyMissing {
        /// Number of missing members.
        missing: usize,
        /// The missing members.
        which: String,
        /// Redundancy name.
        redundancy: &'static str,
    },
    /// The journal devices are missing, and their loss is not recorded.
    #[error(
        "the journal devices are missing ({which}); durable writes may be on them alone; bring them back, or lose these writes with --discard-journal"
    )]
    JournalMissing {
        /// The missing devices.
        which: String,
    },
    /// Another host holds the pool.
    #[error(
        "the pool is in use by host {0}, or was when that host stopped; if that host is down, import with --force"
    )]
    HostMismatch(Uuid),
    /// The pool was destroyed.
    #[error("the pool was destroyed")]
    Destroyed,
    /// The pool uses features of a newer version.
    #[error(
        "the pool uses features that this version does not know (incompatible {incompatible:#x}, read-only {read_only:#x})"
    )]
    Features {
        /// Unknown incompatible flags.
        incompatible: u64,
        /// Unknown read-only flags.
        read_only: u64,
    },
    /// Required data is unreadable.
    #[error("damage: {0}")]
    Damage(String),
    /// Batches that were durable are lost beyond what redundancy covers.
    #[error("damage: durable data is lost beyond the redundancy: {0}")]
    Lost(Losses),
    /// The map exceeds its memory limit.
    #[error("the map exceeds its memory limit of {limit} bytes")]
    MapMemory {
        /// The limit.
        limit: u64,
    },
    /// A member failed.
    #[error(transparent)]
    Member(#[from] MemberError),
}

/// Tables while they are being recovered.
pub(crate) struct Tables {
    pub(crate) zones: ZoneMap,
    pub(crate) codec: AddressCodec,
    pub(crate) segments: crate::store::segment::Segments,
    pub(crate) volumes: crate::store::volume::Volumes,
}

impl Engine {
    /// Opens a pool. With `read_only` nothing is written; otherwise the fence is durable on return.
    ///
    /// # Errors
    /// See [`OpenError`]. The pool is unchanged then, except that parts of accepted batches may
    /// have been completed.
    pub fn open(
        io: &mut dyn MemberIo,
        buffers: BufPool,
        options: &OpenOptions,
    ) -> Result<(Self, OpenReport), OpenError> {
        Self::open_watched(io, buffers, options, &mut |_| {})
    }

    /// As [`Engine::open`]; calls `watch` when each phase begins.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_watched(
        io: &mut dyn MemberIo,
        buffers: BufPool,
        options: &OpenOptions,
        watch: &mut dyn FnMut(OpenPhase),
    ) -> Result<(Self, OpenReport), OpenError> {
        // A failing SSD typically still reads but fails writes. Such a member is treated as absent,
        // and recovery restarts. `spent` keeps the bytes that the abandoned attempt wrote.
        let mut failing = 0u64;
        let mut spent = vec![MemberStats::default(); MAX_MEMBERS];
        let mut remembered = quorum::Remembered::default();
        loop {
            match Self::open_without(
                (failing, &mut remembered),
                io,
                buffers.clone(),
                options,
                watch,
                &mut spent,
            ) {
                Err(OpenError::Member(error))
                    if error.kind != MemberErrorKind::PowerCut
                        && failing >> error.member.0 & 1 == 0 =>
                {
                    failing |= 1 << error.member.0;
                }
                result => return result,
            }
        }
    }

    /// Opens a pool without the members in the mask `failing`. `spent` counts what recovery has
    /// written to each member so far.
    fn open_without(
        (failing, remembered): (u64, &mut quorum::Remembered),
        io: &mut dyn MemberIo,
        buffers: BufPool,
        options: &OpenOptions,
        watch: &mut dyn FnMut(OpenPhase),
        spent: &mut [MemberStats],
    ) -> Result<(Self, OpenReport), OpenError> {
        watch(OpenPhase::Superblocks);
        let quorum::Ruling {
            found,
            mut superblock,
            lagging,
            notes,
            retired,
        } = quorum::newest_without(io, options, failing, remembered)?;
        let zones = ZoneMap::new(superblock.zones.clone());
        let codec = superblock.address_codec();
        let kept = Kept::of(&superblock);
        let mut plan =
            crate::store::plan::plan_zones(&zones, superblock.properties.spare_per_mille, kept)
                .map_err(|e| OpenError::Damage(e.to_string()))?;
        let mut limits = options.limits;
        let map_bytes_wanted = limits.map_bytes;
        let map_bytes = |kept| map_bytes_wanted.min(map_pages(&zones, kept, &plan) * BLOCK_BYTES);
        limits.map_bytes = map_bytes(kept);
        // The superblock that allowed more pages may be lost.
        let map_bytes_most = map_bytes(Kept::MOST);
        let largest = zones
            .zones()
            .iter()
            .map(|z| u64::from(z.shape.chunk_rows) * u64::from(z.shape.data) * BLOCK_BYTES)
            .max()
            .unwrap_or(0);
        limits.pending_bytes = limits.pending_bytes.max(4 * largest);
        limits.batches_in_flight = limits.batches_in_flight.max(1);

        let online: Vec<bool> = superblock
            .members
            .iter()
            .enumerate()
            .map(|(m, r)| r.state == MemberState::Online && io.is_present(MemberId(m as u8)))
            .collect();
        let mut reader = reader::Reader::new(io, &zones, codec, &buffers, online, superblock.pool);
        reader.read_retired_of(retired, failing);
        let mut report = OpenReport {
            clean: superblock.state == PoolState::Exported,
            notes,
            ..Default::default()
        };
        watch(OpenPhase::Checkpoint);
        let (mut tables, loaded, root) =
            load::newest_checkpoint(&mut reader, &superblock, map_bytes_most, &mut report)?;
        watch(OpenPhase::Replay);
        let outcome = replay::replay(
            &mut reader,
            &superblock,
            &root,
            &mut tables,
            options.discard_journal,
            &mut report,
        )?;
        watch(OpenPhase::Fence);
        let chain = outcome.chains.of(STREAM_CHECKPOINT);
        let stray = if outcome.checkpoint_broken {
            stray::settle(&mut reader, &root, chain, &loaded, &mut tables)?
        } else {
            Default::default()
        };
        tables::clear_deleted(&mut tables)?;
        report
            .notes
            .extend(missing_content(&tables::count_references(
                &mut tables,
                outcome.restart.accepted,
            )));
        tables::drop_index_pages(&mut tables, plan.index_pages, outcome.restart.accepted);
        pages::settle(&mut tables, limits.map_bytes, &outcome.readmitted);
        tables::count_live(&mut tables, &loaded);
        let counters = load::counters(&mut reader, &loaded)?;
        let mut online = reader.online.clone();
        lower_missed_from(&mut superblock, root.id);
        for (online, record) in online.iter_mut().zip(&superblock.members) {
            // Only a writable start takes members back.
            *online |= record.state == MemberState::Rebuilding;
        }
        if !options.read_only {
            // Not earlier: a refused start changes nothing.
            write_lagging(reader.io, &lagging, &found, &buffers, spent)?;
            report.completed_batches += redundancy::complete(
                &mut reader,
                outcome.chains.iter().flat_map(|chain| &chain.batches),
                spent,
            )?;
            report.completed_records += outcome.journal.complete(
                &mut reader,
                outcome.restart.covered,
                outcome.restart.accepted,
                spent,
            )?;
            superblock.parent_hash = found.content_hash();
            if options.force {
                write_step(
                    reader.io,
                    &found,
                    &mut superblock,
                    &reader.online,
                    &buffers,
                    spent,
                )?;
            }
            tables.volumes.rewrite_table();
            plan = set_flags(
                &mut superblock,
                &mut tables,
                map_bytes_wanted,
                plan,
                &mut report,
            );
            limits.map_bytes = limits
                .map_bytes
                .max(tables.volumes.arena.max_pages() * BLOCK_BYTES)
                .min(map_bytes_wanted);
            fence::raise_fence(&mut superblock, &outcome.restart, options.host, &root);
        }
        let read_retired = if reader.reads_retired {
            reader.retired
        } else {
            0
        };
        let mut engine = build(
            superblock,
            tables,
            loaded,
            &outcome.restart,
            root.id,
            online,
            plan,
            limits,
            buffers,
            options.read_only,
        );
        let core = &mut engine.core;
        for stream in
            core.paths.log.streams.iter_mut().filter(|stream| {
                ![STREAM_USER, STREAM_CLEANED, STREAM_CHECKPOINT].contains(&stream.id)
            })
        {
            // The older root that is kept need not name it.
            stream.usable_from = root.id;
        }
        let properties = core.store.pool.superblock.properties;
        match core
            .paths
            .policy_for(&properties, &core.store.pool.plan, &core.store)
        {
            Ok(policy) => core
                .paths
                .space
                .take_policy(&mut core.store.segments, policy),
            Err(why) => report.notes.push(why),
        }
        engine.restore_counters(&counters);
        let core = &mut engine.core;
        core.paths.durability.journal = crate::path::journal::Journal::new(
            &core.store.pool.superblock.journals,
            &outcome.journal.resume(outcome.restart.accepted),
        );
        if !options.read_only && !flush_aside(io, read_retired, spent) {
            core.paths
                .durability
                .journal
                .limit_recorded(outcome.restart.covered);
        }
        report
            .notes
            .extend(core.paths.durability.journal.note_unfit_journals(io));
        core.paths.choose_journal(&mut core.store);
        engine.readmit(outcome.readmitted)?;
        if outcome.checkpoint_broken {
            engine.leave_stray(&stray)?;
        }
        engine
            .upkeep
            .settle_reshape(map_bytes_wanted, &mut engine.core);
        let core = &mut engine.core;
        if !options.read_only && core.store.volumes.wants_index() {
            core.paths.make_index(&mut core.store);
        }
        if !options.read_only {
            engine.write_fence(io, spent)?;
        }
        let store = &mut engine.core.store;
        for (member, spent) in store.drives.members.list.iter_mut().zip(spent.iter()) {
            add(&mut member.stats.written, &spent.written);
            member.stats.flushes += spent.flushes;
        }
        Ok((engine, report))
    }

    /// Makes everything accepted durable, then writes the fence.
    fn write_fence(
        &self,
        io: &mut dyn MemberIo,
        spent: &mut [MemberStats],
    ) -> Result<(), OpenError> {
        let online = self.core.store.drives.members.online_members();
        for member in &online {
            io.flush(*member)?;
            spent[member.index()].flushes += 1;
        }
        for member in &online {
            let image = superblock_image(
                &self.core.store.pool.superblock,
                *member,
                &self.core.store.memory.buffers,
            );
            io.write(
                *member,
                slot_offset(self.core.store.pool.superblock.generation),
                &image,
            )?;
            spent[member.index()].written.superblock += SLOT_BYTES as u64;
        }
        for member in &online {
            io.flush(*member)?;
            spent[member.index()].flushes += 1;
        }
        Ok(())
    }
}

/// Flushes the journal devices that were read although they are not in service. No other code does,
/// and the fence is about to declare their records durable. False if a flush fails.
fn flush_aside(io: &mut dyn MemberIo, read: u64, spent: &mut [MemberStats]) -> bool {
    let mut done = true;
    for member in (0..MAX_MEMBERS as u8)
        .map(MemberId)
        .filter(|m| read >> m.0 & 1 == 1)
    {
        done &= io.flush(member).is_ok();
        spent[member.index()].flushes += 1;
    }
    done
}

/// Writes the found superblock to members in use that are one generation behind.
fn write_lagging(
    io: &mut dyn MemberIo,
    lagging: &[MemberId],
    found: &Superblock,
    buffers: &BufPool,
    spent: &mut [MemberStats],
) -> Result<(), OpenError> {
    for member in lagging {
        io.write(
            *member,
            slot_offset(found.generation),
            &superblock_image(found, *member, buffers),
        )?;
        spent[member.index()].written.superblock += SLOT_BYTES as u64;
        io.flush(*member)?;
        spent[member.index()].flushes += 1;
    }
    Ok(())
}

/// A generation with the same content, between the one found and that of the fence. A forced start
/// writes two generations before anything else. Absent members may have continued without these.
/// They record these as absent since up to two generations after the one that these have now
/// (`slot_state::found`). With only one more generation, a member that lagged by one would look as
/// if it had done nothing meanwhile.
fn step_after(found: &Superblock) -> Superblock {
    Superblock {
        generation: found.generation.next(),
        parent_hash: found.content_hash(),
        ..found.clone()
    }
}

/// Writes [`step_after`] to all members before the fence goes to any. So a start that is cut off
/// leaves no member more than one generation behind.
fn write_step(
    io: &mut dyn MemberIo,
    found: &Superblock,
    superblock: &mut Superblock,
    online: &[bool],
    buffers: &BufPool,
    spent: &mut [MemberStats],
) -> Result<(), OpenError> {
    let step = step_after(found);
    // Without the members that this start takes back: to them the step would look like a history of
    // its own.
    let members = (0..online.len() as u8)
        .map(MemberId)
        .filter(|m| online[m.index()])
        .collect::<Vec<_>>();
    for member in &members {
        io.write(
            *member,
            slot_offset(step.generation),
            &superblock_image(&step, *member, buffers),
        )?;
        spent[member.index()].written.superblock += SLOT_BYTES as u64;
    }
    for member in &members {
        io.flush(*member)?;
        spent[member.index()].flushes += 1;
    }
    (superblock.generation, superblock.parent_hash) = (step.generation, step.content_hash());
    Ok(())
}

/// Batches replayed after this root get its number, whatever checkpoint they were sealed under.
fn lower_missed_from(superblock: &mut Superblock, root: u64) {
    for record in superblock
        .members
        .iter_mut()
        .filter(|record| record.state != MemberState::Online)
    {
        record.missed_from = record.missed_from.min(root);
    }
}

/// Number of pages by which maps of earlier versions may be larger.
const FORMER_MAP_PAGES: u64 = 40;

/// Limit of map pages. The checkpoint may be of a time before a member began to leave.
fn map_pages(zones: &ZoneMap, kept: Kept, plan: &crate::api::PoolPlan) -> u64 {
    crate::store::plan::map_pages_of_any_layout(zones, kept, plan.map_pages_max)
}

/// Sets the feature flags that the content requires, and returns the plan that matches them.
fn set_flags(
    superblock: &mut Superblock,
    tables: &mut Tables,
    bytes_wanted: u64,
    plan: crate::api::PoolPlan,
    report: &mut OpenReport,
) -> crate::api::PoolPlan {
    let found = Kept::of(superblock);
    superblock.features.incompatible |= tables::features(tables);
    // Only with these flags: shared blocks alone already allow more pages.
    let pages = map_pages(&tables.zones, Kept::of(superblock), &plan) + FORMER_MAP_PAGES;
    let as_capacity = Kept {
        reduction: Reduction::Capacity,
        ..Kept::of(superblock)
    };
    let has_plan = || {
        crate::store::plan::plan_zones(
            &tables.zones,
            superblock.properties.spare_per_mille,
            as_capacity,
        )
        .is_ok()
    };
    if tables.volumes.arena.used_pages() > pages && has_plan() {
        superblock.features.incompatible |= Features::CAPACITY;
        superblock.properties.reduction = Reduction::Capacity;
        report.notes.push("the map has more pages than reduction=spare allows: the superblock with reduction=capacity is lost; capacity is set again".into());
    }
    let kept = Kept::of(superblock);
    if kept == found {
        return plan;
    }
    tables
        .volumes
        .arena
        .set_max_bytes(bytes_wanted.min(map_pages(&tables.zones, kept, &plan) * BLOCK_BYTES));
    crate::store::plan::plan_zones(&tables.zones, superblock.properties.spare_per_mille, kept)
        .unwrap_or(plan)
}

/// Note about missing shared content.
fn missing_content(ids: &[windrow_types::Lba]) -> Option<String> {
    let first: Vec<String> = ids.iter().take(8).map(ToString::to_string).collect();
    let text = format!(
        "damage: {} shared contents are missing (first: {}); blocks that refer to them are unreadable",
        ids.len(),
        first.join(", ")
    );
    (!ids.is_empty()).then_some(text)
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
fn build(
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
    engine.settle_streams();
    engine.upkeep.settle_stale(root, &mut engine.core);
    // The next generation names this one by its content hash.
    let store = &mut engine.core.store;
    store.drives.superblock_writer = SuperblockWriter::after(&store.pool.superblock);
    engine
}

impl Engine {
    /// Reconciles streams and segment states after recovery. A stream whose last batch ended its
    /// segment continues at row 0 of the successor.
    fn settle_streams(&mut self) {
        let open: Vec<_> = self
            .core
            .paths
            .log
            .streams
            .iter()
            .map(|s| s.position.segment)
            .collect();
        let oldest = self
            .core
            .store
            .pool
            .superblock
            .checkpoints
            .iter()
            .flatten()
            .map(|c| c.id)
            .min()
            .unwrap_or(0);
        self.core
            .store
            .segments
            .settle(&self.core.store.pool.zones, &open, &[], oldest);
        for stream in 0..self.core.paths.log.streams.len() {
            let position = self.core.paths.log.streams[stream].position;
            if position.row == 0 && position.segment != SegmentId::NONE {
                self.core
                    .store
                    .segments
                    .open(position.segment, self.core.paths.log.streams[stream].id);
            }
        }
        let first_after_crash = self.core.store.pool.superblock.fences.len() > 1;
        if first_after_crash && !self.core.store.pool.read_only {
            // Keeps the list of fences short and the next recovery fast.
            self.core.paths.durability.checkpoint.request();
        }
    }
}
