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
mod start;
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
            let members = (failing, &mut remembered);
            match start::open(members, io, buffers.clone(), options, watch, &mut spent) {
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

/// Reconciles streams and segment states after recovery. A stream whose last batch ended its
/// segment continues at row 0 of the successor.
fn settle_streams(core: &mut Core) {
    let open: Vec<_> = core
        .paths
        .log
        .streams
        .iter()
        .map(|s| s.position.segment)
        .collect();
    let oldest = core.store.pool.oldest_checkpoint();
    core.store
        .segments
        .settle(&core.store.pool.zones, &open, &[], oldest);
    for stream in 0..core.paths.log.streams.len() {
        let position = core.paths.log.streams[stream].position;
        if position.row == 0 && position.segment != SegmentId::NONE {
            core.store
                .segments
                .open(position.segment, core.paths.log.streams[stream].id);
        }
    }
    let first_after_crash = core.store.pool.superblock.fences.len() > 1;
    if first_after_crash && !core.store.pool.read_only {
        // Keeps the list of fences short and the next recovery fast.
        core.paths.durability.checkpoint.request();
    }
}

/// Makes everything accepted durable, then writes the fence.
fn write_fence(
    core: &Core,
    io: &mut dyn MemberIo,
    spent: &mut [MemberStats],
) -> Result<(), OpenError> {
    let online = core.store.drives.members.online_members();
    for member in &online {
        io.flush(*member)?;
        spent[member.index()].flushes += 1;
    }
    for member in &online {
        let image = superblock_image(
            &core.store.pool.superblock,
            *member,
            &core.store.memory.buffers,
        );
        io.write(
            *member,
            slot_offset(core.store.pool.superblock.generation),
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
