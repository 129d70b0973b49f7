//! Salvage: rebuilds the map from the batches, for a pool whose checkpoints are unreadable or whose
//! chains are broken.
//!
//! ```text
//! superblock quorum -> scan of all segments -> newest readable checkpoint, if any
//!   -> newest entry of every block -> checkpoint of it in free segments -> its root
//! ```
//! **Limits.** A readable checkpoint ([`base`]) has everything up to its LSN, and only later
//! entries come from batches. Without one, trims, ranges, constant blocks, references to shared
//! content, resizes and deletions are honoured as far as their records exist. Otherwise freed
//! blocks come back with their last content. Deleted volumes come back as well, under made-up names
//! if theirs is not known. Other blocks are complete unless their batch is lost.
//!
//! **Phases.**
//!
//! 1. Everything is read; nothing is written.
//! 2. The tables go into an engine with a new epoch and with segments without live data. It writes
//!    an ordinary checkpoint there, and when that is durable, the superblock that names it.
//!
//! A crash before that leaves the old superblock, under which the new batches are ignored. Their
//! epoch is far above its own ([`EPOCH_LEAP`]), and their numbers are above those that its streams
//! can reach ([`SEQ_LEAP`]). Then the pool is salvaged again, or started as it is.

mod base;
mod end;
mod gather;
mod losses;
mod moves;
mod room;
mod scan;

use super::chain::Taken;
use super::reader::Reader;
use super::replay::Restart;
use super::{OpenError, SEQ_LEAP, Tables, pages, quorum, redundancy, start, tables as recovered};
use crate::api::{Control, ControlId, ControlReply, ControlRequest, MemberStats, OpenOptions};
use crate::base::limits::{BASE_STREAMS, STREAM_CHECKPOINT};
use crate::engine::Engine;
use crate::path::checkpointing::Loaded;
use crate::recover::Loss;
use crate::store::events::{Event, Outbox};
use crate::store::member::{SuperblockWriter, superblock_image};
use crate::store::segment::Segment;
use base::{Former, Ground};
pub use end::LostLsns;
use end::{LogEnd, end_of_log};
use gather::Gather;
pub use losses::UnreadCheckpoint;
use scan::{Scan, scan};
use serde::Serialize;
use std::collections::BTreeSet;
use windrow_format::checkpoint::VolumeState;
use windrow_format::superblock::{MemberState, StreamPosition, Superblock, slot_offset};
use windrow_geometry::{MAX_MEMBERS, ZoneMap};
use windrow_io::{BufPool, MemberDone, MemberError, MemberErrorKind, MemberIo, MemberOp};
use windrow_types::{BatchSeq, Epoch, Lsn, MAX_STREAMS, MemberId, SegmentId, VolumeId};

/// Number of epochs that salvage skips. After an interruption its batches stay where later starts
/// write: no start may ever reach their epoch.
const EPOCH_LEAP: u64 = 1 << 20;
/// Segments freed beyond the need of one checkpoint: the streams' own and their successors.
const SEGMENTS_BESIDE: u32 = 12;
/// Limit of listed lost blocks; further ones are only counted.
const LOST_LISTED: usize = 1024;
/// Number of rounds without effect after which writing is abandoned.
const IDLE_ROUNDS_MAX: u32 = 1000;

/// Options of a salvage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RebuildWork {
    /// Makes the result the pool's state.
    pub write: bool,
    /// Ignores a readable checkpoint: it may be of a salvage that missed what is readable today.
    pub without_checkpoint: bool,
}

/// Phase of a salvage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RebuildPhase {
    /// Segments are scanned for batches.
    Scan,
    /// Entries are put into the map.
    Map,
    /// The new checkpoint is written.
    Write,
}

/// Progress of a salvage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RebuildProgress {
    /// Phase.
    pub phase: RebuildPhase,
    /// Steps done (segments, batches, bytes).
    pub done: u64,
    /// Steps to do.
    pub total: u64,
}

/// A salvaged volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RebuiltVolume {
    /// Id.
    pub id: VolumeId,
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Blocks with a payload.
    pub mapped_blocks: u64,
    /// True if name or size are unknown and were made up.
    pub made_up: bool,
}

/// Result of a salvage.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RebuildReport {
    /// Number of the checkpoint used as base, 0 if none is completely readable.
    pub checkpoint: u64,
    /// The checkpoint that would be the base if all of it were readable and allowed. Its content is
    /// unknown: more may be lost than is listed here.
    pub unread_checkpoint: Option<UnreadCheckpoint>,
    /// Durable operations that are missing, in batches listed as lost or in none.
    pub lost_lsns: Option<LostLsns>,
    /// Number of segments scanned.
    pub segments: u64,
    /// Number of valid batches.
    pub batches: u64,
    /// Number of their entries.
    pub entries: u64,
    /// Number of batches that a later start had refused.
    pub void_batches: u64,
    /// Number of torn batches at the end of the log.
    pub torn_batches: u64,
    /// Number of range and volume records applied.
    pub records: u64,
    /// The first 1024 blocks that are lost by themselves. They refer to lost shared content, their
    /// only known version was overwritten, or an earlier salvage declared them lost. Blocks of
    /// [`RebuildReport::losses`] are not included.
    pub lost_blocks: Vec<(VolumeId, windrow_types::Lba)>,
    /// Number of such blocks.
    pub lost_blocks_total: u64,
    /// Recovery point.
    pub recovery_lsn: Lsn,
    /// The volumes.
    pub volumes: Vec<RebuiltVolume>,
    /// Durable batches that are unreadable.
    pub losses: Vec<Loss>,
    /// Bytes written to members; 0 if the result was not to be written.
    pub written_bytes: u64,
}

impl Engine {
    /// Salvages a pool: rebuilds its map from its batches and, if asked to, makes that the pool's
    /// state. The options count as in [`Engine::open`]; the pool is closed afterwards.
    ///
    /// # Errors
    /// As [`Engine::open`]. The pool is unchanged unless the new superblock was begun.
    pub fn rebuild_map(
        io: &mut dyn MemberIo,
        buffers: BufPool,
        options: &OpenOptions,
        work: RebuildWork,
        watch: &mut dyn FnMut(RebuildProgress),
    ) -> Result<RebuildReport, OpenError> {
        // As at a start, a member that fails writes is left out, and salvage restarts. The engine
        // that writes the checkpoint must not record such a loss. Its superblock names no root
        // before that one is durable, and a pool without a root cannot be opened.
        let mut failing = 0u64;
        let mut remembered = quorum::Remembered::default();
        loop {
            match Self::rebuild_without(
                (failing, &mut remembered),
                io,
                buffers.clone(),
                options,
                work,
                watch,
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

    /// As [`Self::rebuild_map`], without the members in the mask `failing`.
    fn rebuild_without(
        (failing, remembered): (u64, &mut quorum::Remembered),
        io: &mut dyn MemberIo,
        buffers: BufPool,
        options: &OpenOptions,
        work: RebuildWork,
        watch: &mut dyn FnMut(RebuildProgress),
    ) -> Result<RebuildReport, OpenError> {
        let RebuildWork {
            write,
            without_checkpoint,
        } = work;
        let ruling = quorum::newest_without(io, options, failing, remembered)?;
        let superblock = &ruling.superblock;
        let zones = ZoneMap::new(superblock.zones.clone());
        let codec = superblock.address_codec();
        let kept = crate::store::plan::Kept::of(superblock);
        let plan =
            crate::store::plan::plan_zones(&zones, superblock.properties.spare_per_mille, kept)
                .map_err(|e| OpenError::Damage(e.to_string()))?;
        let online: Vec<bool> = superblock
            .members
            .iter()
            .enumerate()
            .map(|(m, r)| r.state == MemberState::Online && io.is_present(MemberId(m as u8)))
            .collect();
        let mut reader = Reader::new(io, &zones, codec, &buffers, online.clone(), superblock.pool);
        reader.read_retired_of(ruling.retired, failing);
        let found = scan(&mut reader, superblock, watch)?;
        let Ground {
            checkpoint,
            start,
            mut tables,
            former,
        } = match without_checkpoint {
            true => Ground::bare(&reader, superblock, options.limits.map_bytes),
            false => Ground::find(&mut reader, superblock, options.limits.map_bytes)?,
        };
        let mut end = end_of_log(&mut reader, superblock, &found, &start)?;
        // Fences may have accepted operations that only the journal has.
        let accepted = superblock
            .fences
            .iter()
            .map(|f| f.recovery_lsn)
            .chain([really_used(superblock, end.journalled)])
            .max()
            .unwrap_or_default();
        let mut gather = Gather::new(
            superblock,
            if end.is_exact { end.covered } else { accepted },
            options.limits.map_bytes,
        );
        if checkpoint > 0 {
            gather.stand_on(start, &tables);
        }
        gather.run(&mut reader, &found, &mut tables, watch)?;
        let again = former
            .as_ref()
            .map(|former| former.used_again(&found))
            .unwrap_or_default();
        let readmitted = end.apply_journal(superblock, reader.buffers, &mut gather, &mut tables)?;
        let LogEnd {
            covered,
            journal,
            journalled,
            highest_journalled,
            lost: lost_lsns,
            ..
        } = end;
        if let Some(former) = &former {
            let rows = former.known_rows(&found, &again);
            let is_gone = |address| {
                let segment = codec.segment(address);
                again.contains(&segment)
                    || zones.shape(segment).row_hint(codec.block(address)) >= rows[segment.index()]
            };
            gather.drop_gone(is_gone, &mut tables);
        }
        recovered::void_references(&mut tables);
        // Blocks of no volume, and content without references, are not missed.
        recovered::clear_deleted(&mut tables)?;
        recovered::count_references(&mut tables, journalled.max(accepted));
        let (lost_blocks, lost_blocks_total) =
            recovered::lost_blocks(&tables.volumes, &readmitted, LOST_LISTED);
        let mut losses = losses::list(&mut reader, superblock, &found, checkpoint > 0, &tables)?;
        if let Some(former) = &former {
            losses::silent(&found, &tables, former, &again, &mut losses);
        }
        let unread_checkpoint = if checkpoint == 0 {
            losses::unread_checkpoint(superblock, &found)
        } else {
            None
        };
        if write {
            make_whole(&mut reader, &found)?;
        }
        drop(reader);
        let described = describe(&found, &gather, &tables, accepted);
        let mut report = RebuildReport {
            checkpoint,
            unread_checkpoint,
            lost_lsns,
            lost_blocks,
            lost_blocks_total,
            losses,
            ..described
        };
        if write {
            let last_volume = superblock
                .checkpoints
                .iter()
                .flatten()
                .map(|root| root.last_volume)
                .max()
                .unwrap_or(0);
            tables.volumes.last_id = tables.volumes.last_id.max(last_volume);
            settle_segments(&found, former.as_ref(), &again, superblock, &mut tables);
            pages::settle(&mut tables, options.limits.map_bytes, &readmitted);
            recovered::count_live(&mut tables, &Loaded::default());
            let seq = BatchSeq(found.highest_seq.0 + SEQ_LEAP);
            let positions = choose_segments(
                &found,
                former.as_ref(),
                seq,
                plan.checkpoint_segments + SEGMENTS_BESIDE,
                &mut tables,
            )?;
            let next_lsn = found
                .highest_lsn
                .max(accepted)
                .max(highest_journalled)
                .next();
            let restart = Restart {
                accepted: journalled,
                covered,
                next_lsn,
                last_seq: [BatchSeq(0); MAX_STREAMS],
                positions,
            };
            let epoch = Epoch(found.highest_epoch.max(journal.highest_epoch).0 + EPOCH_LEAP);
            write_lagging(&ruling, io, &buffers)?;
            let mut limits = options.limits;
            limits.batches_in_flight = limits.batches_in_flight.max(1);
            let rebuilt = without_roots(superblock, epoch, options);
            let last = last_checkpoint(superblock);
            let mut engine = start::build(
                rebuilt,
                tables,
                Loaded::default(),
                &restart,
                last,
                online,
                plan,
                limits,
                buffers,
                false,
            );
            engine.core.store.drives.superblock_writer = SuperblockWriter::after(&ruling.found);
            engine.core.paths.durability.journal = crate::path::journal::Journal::new(
                &engine.core.store.pool.superblock.journals,
                &journal.resume(journalled),
            );
            super::journal::readmit(&mut engine.core, readmitted)?;
            report.written_bytes = shut_down(&mut engine, io, watch)?;
        }
        Ok(report)
    }
}

/// The last used LSN up to this one: those between the two marks of a fence were never used.
fn really_used(superblock: &Superblock, lsn: Lsn) -> Lsn {
    let fence = superblock
        .fences
        .iter()
        .find(|f| f.recovery_lsn <= lsn && lsn < f.next_lsn);
    fence.map_or(lsn, |f| f.recovery_lsn)
}

/// Number of the last checkpoint.
fn last_checkpoint(superblock: &Superblock) -> u64 {
    superblock
        .checkpoints
        .iter()
        .flatten()
        .map(|root| root.id)
        .max()
        .unwrap_or(0)
}

/// Superblock for the engine that writes the new checkpoint. It stays in memory until that
/// checkpoint is durable.
fn without_roots(superblock: &Superblock, epoch: Epoch, options: &OpenOptions) -> Superblock {
    let mut superblock = Superblock {
        epoch,
        host: options.host,
        checkpoints: [None, None],
        fences: Vec::new(),
        ..superblock.clone()
    };
    let next = superblock.generation.next();
    for record in superblock
        .members
        .iter_mut()
        .filter(|record| matches!(record.state, MemberState::Absent | MemberState::Rebuilding))
    {
        if record.state == MemberState::Rebuilding {
            // It leaves now. Otherwise its content would look newer than its leaving, and of
            // another history.
            record.absent_since = next;
        }
        (record.state, record.missed_from, record.listed_from) = (MemberState::Absent, 0, 0);
    }
    superblock
}

/// Writes the newest generation to members that lack it.
fn write_lagging(
    ruling: &quorum::Ruling,
    io: &mut dyn MemberIo,
    buffers: &BufPool,
) -> Result<(), OpenError> {
    for member in &ruling.lagging {
        let image = superblock_image(&ruling.found, *member, buffers);
        io.write(*member, slot_offset(ruling.found.generation), &image)?;
        io.flush(*member)?;
    }
    Ok(())
}

/// Writes the missing parts of batches at the end of the log, as a start does: from then on they
/// count as whole.
fn make_whole(reader: &mut Reader<'_>, found: &Scan) -> Result<(), OpenError> {
    let mut spent = vec![MemberStats::default(); MAX_MEMBERS];
    if redundancy::complete(reader, found.streams.iter().flatten(), &mut spent)? > 0 {
        for member in (0..reader.online.len() as u8).map(MemberId) {
            if reader.online[member.index()] {
                reader.io.flush(member)?;
            }
        }
    }
    Ok(())
}

fn describe(found: &Scan, gather: &Gather<'_>, tables: &Tables, accepted: Lsn) -> RebuildReport {
    // Volumes that the journal deletes are still present until the engine runs.
    let there = tables
        .volumes
        .iter()
        .filter(|v| v.record.state == VolumeState::Active);
    let volumes = there.map(|v| RebuiltVolume {
        id: v.record.id,
        name: v.record.name.clone(),
        size_bytes: v.record.size_bytes,
        mapped_blocks: v.map.mapped_blocks,
        made_up: gather.made_up.contains(&v.record.id),
    });
    RebuildReport {
        checkpoint: 0,
        unread_checkpoint: None,
        lost_lsns: None,
        segments: found.written.len() as u64,
        batches: found.streams.iter().map(|s| s.len() as u64).sum(),
        entries: found
            .streams
            .iter()
            .flatten()
            .map(|t| u64::from(t.entries))
            .sum(),
        void_batches: found.void_batches,
        torn_batches: found.torn.len() as u64,
        records: gather.records,
        recovery_lsn: accepted,
        volumes: volumes.collect(),
        lost_blocks: Vec::new(),
        lost_blocks_total: 0,
        losses: Vec::new(),
        written_bytes: 0,
    }
}

/// Enters the batches into the segment table, except remains, whose extents belong to other
/// segments. An unreadable range between two batches is entered as a batch, so that the extent of
/// the one before is right.
fn settle_segments(
    found: &Scan,
    former: Option<&Former>,
    again: &BTreeSet<SegmentId>,
    superblock: &Superblock,
    tables: &mut Tables,
) {
    let checkpoint = last_checkpoint(superblock);
    for (stream, batches) in found.streams.iter().enumerate() {
        for batch in batches
            .iter()
            .filter(|batch| !found.remains.contains(&batch.segment))
        {
            let segment = tables.segments.get_mut(batch.segment);
            enter_batch(segment, stream as u8, batch);
            // Not free before the new checkpoint is active.
            segment.last_checkpoint = checkpoint;
            tables.segments.mark_dirty(batch.segment);
        }
    }
    for gap in &found.gaps {
        let segment = tables.segments.get_mut(gap.segment);
        if gap.row < segment.filled_rows {
            segment.starts[gap.row as usize / 64] |= 1 << (gap.row % 64);
        }
    }
    if let Some(former) = former {
        former.enter(found, again, tables);
    }
}

fn enter_batch(segment: &mut Segment, stream: u8, batch: &Taken) {
    segment.stream = stream;
    segment.starts[batch.row as usize / 64] |= 1 << (batch.row % 64);
    segment.filled_rows = segment.filled_rows.max(batch.row + batch.rows);
    segment.last_seq = segment.last_seq.max(batch.seq);
}

/// Frees segments without live data, those with the least information first, and gives each stream
/// its own.
fn choose_segments(
    found: &Scan,
    former: Option<&Former>,
    seq: BatchSeq,
    wanted: u32,
    tables: &mut Tables,
) -> Result<[StreamPosition; MAX_STREAMS], OpenError> {
    let (zones, layout) = (&tables.zones, tables.zones.layout());
    let rank = |id: SegmentId| {
        let segment = tables.segments.get(id);
        match (
            found.written[id.index()],
            segment.filled_rows > 0,
            usize::from(segment.stream) == STREAM_CHECKPOINT,
        ) {
            // It may hold data that is readable another day, with another cable.
            _ if found.unreadable.contains(&id) => 5,
            // Used by the base checkpoint: overwritten, a repeated salvage would have to do without
            // it.
            _ if former.is_some_and(|former| former.is_used(id)) => 4,
            // In this order: never written; void batches; an earlier checkpoint; user entries and
            // records, all superseded.
            (false, ..) => 0,
            (true, false, _) => 1,
            (true, true, true) => 2,
            (true, true, false) => 3,
        }
    };
    // A write there overwrites segments of older layouts in the same extents.
    let in_extents = |id: SegmentId| std::iter::once(id).chain(zones.overlapping(id));
    let dead = |id: &SegmentId| in_extents(*id).all(|s| tables.segments.get(s).live_units == 0);
    let ranked = |id: SegmentId| (in_extents(id).map(rank).max().unwrap_or(0), id);
    let in_force = |id: &SegmentId| zones.zone(*id).layout == layout;
    let mut free: Vec<(u8, SegmentId)> = zones
        .segments()
        .filter(in_force)
        .filter(dead)
        .map(ranked)
        .collect();
    free.sort_unstable();
    free.truncate(wanted as usize);
    // A segment of the active layout may overlap several old ones (mirrors of an odd number of
    // members). Until those are all dead, the dead ones serve, as they do in service: the last ones
    // first.
    let gives = |id: &SegmentId| !in_force(id) && zones.overlapping(*id).iter().any(in_force);
    let mut older: Vec<(u8, SegmentId)> = zones
        .segments()
        .filter(gives)
        .filter(dead)
        .map(ranked)
        .collect();
    older.sort_unstable_by_key(|(rank, id)| (*rank, std::cmp::Reverse(*id)));
    let mut chosen: BTreeSet<SegmentId> = free.iter().map(|(_, id)| *id).collect();
    for (rank, id) in older {
        if free.len() < wanted as usize && in_extents(id).all(|s| !chosen.contains(&s)) {
            free.push((rank, id));
            chosen.insert(id);
        }
    }
    if free.len() < BASE_STREAMS.len() + 2 {
        return Err(OpenError::Damage(
            "there is no free segment to write a checkpoint to".into(),
        ));
    }
    for id in free
        .iter()
        .flat_map(|(_, id)| in_extents(*id))
        .collect::<Vec<_>>()
    {
        tables.segments.truncate(id, 0);
    }
    let mut positions = super::chain::closed_positions();
    positions.iter_mut().for_each(|position| position.seq = seq);
    for (stream, (_, segment)) in BASE_STREAMS.into_iter().zip(&free) {
        positions[stream] = StreamPosition {
            segment: *segment,
            row: 0,
            seq,
            next_segment: SegmentId::NONE,
        };
    }
    Ok(positions)
}

/// Runs the engine until its checkpoint and its last superblock are written; returns the bytes
/// written.
fn shut_down(
    engine: &mut Engine,
    io: &mut dyn MemberIo,
    watch: &mut dyn FnMut(RebuildProgress),
) -> Result<u64, OpenError> {
    let pages = engine.core.store.volumes.arena.dirty_pages() as u64;
    let total = pages * windrow_types::BLOCK_BYTES;
    let mut events = vec![Event::Control(ControlRequest {
        id: ControlId(1),
        command: Control::Shutdown { export: false },
    })];
    let mut out = Outbox::default();
    let (mut now, mut idle) = (0u64, 0);
    loop {
        engine.apply(&mut events, &mut out);
        watch(RebuildProgress {
            phase: RebuildPhase::Write,
            done: engine.core.store.observe.counters.log_bytes.min(total),
            total,
        });
        if let Some(done) = out.control.pop() {
            return match done.result {
                Ok(ControlReply::Done) => Ok(engine
                    .core
                    .store
                    .drives
                    .members
                    .list
                    .iter()
                    .map(|m| m.stats.written.total())
                    .sum()),
                other => Err(OpenError::Damage(format!(
                    "the salvaged pool could not be written: {other:?}"
                ))),
            };
        }
        idle = if out.commands.is_empty() && out.jobs.is_empty() {
            idle + 1
        } else {
            0
        };
        if idle > IDLE_ROUNDS_MAX {
            return Err(OpenError::Damage(format!(
                "the salvaged pool could not be written: {}",
                engine.describe()
            )));
        }
        for mut job in out.jobs.drain(..) {
            job.run();
            events.push(Event::Job(job));
        }
        for command in out.commands.drain(..) {
            events.push(Event::Member(carry_out(command, io)?));
        }
        now += 1_000_000;
        events.push(Event::Tick(now));
    }
}

/// Executes a command. A failed write or flush, a missing member and a power cut end the attempt;
/// unreadable data is reconstructed from other members.
fn carry_out(
    command: windrow_io::MemberCommand,
    io: &mut dyn MemberIo,
) -> Result<MemberDone, MemberError> {
    let windrow_io::MemberCommand { member, tag, op } = command;
    let is_read = matches!(op, MemberOp::Read { .. });
    let (buf, result) = match op {
        MemberOp::Read { offset, mut buf } => {
            let result = io.read(member, offset, &mut buf);
            (Some(buf), result)
        }
        MemberOp::Write { offset, buf } => {
            let result = io.write(member, offset, &buf);
            (Some(buf), result)
        }
        MemberOp::Flush => (None, io.flush(member)),
        // Freed segments keep their bytes; the running pool discards them later.
        MemberOp::Discard { .. } => (None, Ok(())),
    };
    match result {
        Err(error)
            if !is_read
                || matches!(
                    error.kind,
                    MemberErrorKind::PowerCut | MemberErrorKind::Gone
                ) =>
        {
            Err(error)
        }
        result => Ok(MemberDone {
            member,
            tag,
            buf,
            result,
        }),
    }
}
