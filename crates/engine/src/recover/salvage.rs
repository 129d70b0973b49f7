//! Emergency: the map rebuilt from the batches, for a pool whose checkpoints can not be read or
//! whose chains are broken.
//!
//! ```text
//! superblock quorum -> scan of all segments -> newest checkpoint, if one can be read -> newest entry of every block -> a checkpoint of it in free segments -> its root
//! ```
//! **What it can not know.** Where a checkpoint can be read ([`base`]) it has everything up to its
//! order, and only what came later is found in batches. Without one, trims, ranges and blocks of
//! zeroes or ones, references to shared content, resizes and deletions are honoured as far as their
//! records are still there. Blocks that they had freed come back with their last content, deleted
//! volumes too, under made-up names if theirs is not known. Other blocks are not missed unless
//! their batch is lost.
//!
//! **Two phases.** 1 Everything is read; nothing is written. 2 The tables go into an engine that
//! stands on a new epoch and on segments in which nothing lives; it writes an ordinary checkpoint
//! there, and when that is durable, the superblock that names it. A crash before leaves the old
//! superblock, to which the new batches mean nothing: their epoch is far above its own
//! ([`EPOCH_LEAP`]), and their numbers are far above those that its streams can reach
//! ([`SEQ_LEAP`]). Then the rebuild is simply done again, or the pool is started as it is.

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
use super::{OpenError, SEQ_LEAP, Tables, build, pages, quorum, redundancy, tables as recovered};
use crate::checkpoint::Loaded;
use crate::limits::{BASE_STREAMS, STREAM_CHECKPOINT};
use crate::member::{SuperblockWriter, superblock_image};
use crate::segment::Segment;
use crate::{
    Control, ControlId, ControlReply, ControlRequest, Engine, Event, Loss, MemberStats,
    OpenOptions, Outbox,
};
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

/// Epochs that a rebuild leaves out. If it is cut off, its batches stay where starts will write:
/// none of them must ever reach its epoch.
const EPOCH_LEAP: u64 = 1 << 20;
/// Segments made free beyond what one checkpoint needs: the streams' own and their successors.
const SEGMENTS_BESIDE: u32 = 12;
/// Lost blocks that are listed; the others are counted.
const LOST_LISTED: usize = 1024;
/// Rounds without any effect after which the writing is given up.
const IDLE_ROUNDS_MAX: u32 = 1000;

/// What a rebuild does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RebuildWork {
    /// Make the result the pool's state.
    pub write: bool,
    /// Stand on no checkpoint although one can be read: it may be of a rebuild that missed what can
    /// be read today.
    pub without_checkpoint: bool,
}

/// Part of a rebuild.
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

/// How far a rebuild is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RebuildProgress {
    /// Part.
    pub phase: RebuildPhase,
    /// Steps done (segments, batches, bytes).
    pub done: u64,
    /// Steps to do.
    pub total: u64,
}

/// A volume as it was rebuilt.
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
    /// True if name or size are not known and were made up.
    pub made_up: bool,
}

/// What a rebuild found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RebuildReport {
    /// Number of the checkpoint that it stands on, 0 if none can be read as a whole.
    pub checkpoint: u64,
    /// The one that it would stand on if all of it could be read, and were to be. Nobody knows what
    /// is missing of what was in it: more may be lost than is listed here.
    pub unread_checkpoint: Option<UnreadCheckpoint>,
    /// Operations that were promised to be durable and are not there, in batches that are listed as
    /// lost or in none.
    pub lost_lsns: Option<LostLsns>,
    /// Segments looked at.
    pub segments: u64,
    /// Batches that count.
    pub batches: u64,
    /// Their entries.
    pub entries: u64,
    /// Batches that a later start had refused.
    pub void_batches: u64,
    /// Batches at the end of the log that did not arrive as a whole.
    pub torn_batches: u64,
    /// Records of ranges and volumes that were honoured.
    pub records: u64,
    /// The first 1024 blocks that are lost by themselves: those that refer to shared content that
    /// can not be had, those of which only a version is known that lay where other batches lie
    /// since, and those that an earlier rebuild gave up for such a reason. (What is in
    /// [`RebuildReport::losses`] is not among them.)
    pub lost_blocks: Vec<(VolumeId, windrow_types::Lba)>,
    /// How many such blocks there are.
    pub lost_blocks_total: u64,
    /// The last order that is in effect.
    pub recovery_lsn: Lsn,
    /// Volumes.
    pub volumes: Vec<RebuiltVolume>,
    /// Batches that were durable and can not be had.
    pub losses: Vec<Loss>,
    /// Bytes written to members; 0 if nothing was to be written.
    pub written_bytes: u64,
}

impl Engine {
    /// Rebuilds the map of a pool from its batches; if asked to, makes it the pool's state. The
    /// options count as in [`Engine::open`]; the pool is closed afterwards.
    ///
    /// # Errors
    /// As [`Engine::open`]. Unless the new superblock had been begun, the pool is as it was.
    pub fn rebuild_map(
        io: &mut dyn MemberIo,
        buffers: BufPool,
        options: &OpenOptions,
        work: RebuildWork,
        watch: &mut dyn FnMut(RebuildProgress),
    ) -> Result<RebuildReport, OpenError> {
        // As at a start: who fails writes is left out, and all begins anew. The engine that writes
        // the checkpoint must not put such a loss on record: its superblock names no root before
        // that is durable, and nobody could open a pool of it.
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

    /// The same without the members in the mask `failing`.
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
        let kept = crate::format::Kept::of(superblock);
        let plan = crate::format::plan_zones(&zones, superblock.properties.spare_per_mille, kept)
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
        // Fences may have accepted what only the journal has.
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
        // What is in no volume, and content that nobody refers to, is not missed.
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
            let mut engine = build(
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
            engine.durability.superblock_writer = SuperblockWriter::after(&ruling.found);
            engine.durability.journal = crate::journal::Journal::new(
                &engine.pool.superblock.journals,
                &journal.resume(journalled),
            );
            engine.readmit(readmitted)?;
            report.written_bytes = shut_down(&mut engine, io, watch)?;
        }
        Ok(report)
    }
}

/// The last order up to this one that was ever used: those between the two marks of a fence were
/// not.
fn really_used(superblock: &Superblock, lsn: Lsn) -> Lsn {
    let fence = superblock
        .fences
        .iter()
        .find(|f| f.recovery_lsn <= lsn && lsn < f.next_lsn);
    fence.map_or(lsn, |f| f.recovery_lsn)
}

/// The number of the last checkpoint.
fn last_checkpoint(superblock: &Superblock) -> u64 {
    superblock
        .checkpoints
        .iter()
        .flatten()
        .map(|root| root.id)
        .max()
        .unwrap_or(0)
}

/// The superblock on which the new checkpoint is written. Until that is durable it is in memory
/// alone.
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
            // It leaves now: else what it bears would seem to be newer than that, and of another
            // history.
            record.absent_since = next;
        }
        (record.state, record.missed_from, record.listed_from) = (MemberState::Absent, 0, 0);
    }
    superblock
}

/// Members that lack the newest generation get it.
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

/// Writes what is missing on a member of the batches at the end of the log, as a start does: from
/// then on they count as whole.
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
    // (Those that the journal deletes are still there, until the engine has been at work.)
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

/// Enters the batches into the segment table, but for remains: their extents belong to others. What
/// can not be read between two batches stands there as a batch of its own, so that the extent of
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
            // Not free before the new checkpoint is in force.
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

/// Makes segments free in which nothing lives, those that tell least first, and gives each stream
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
            // It may hold what can be read another day, with another cable.
            _ if found.unreadable.contains(&id) => 5,
            // Of the checkpoint that this stands on: after a crash on the way the next rebuild
            // would have to do without.
            _ if former.is_some_and(|former| former.is_used(id)) => 4,
            // Never written; batches that do not count; a former checkpoint; user entries and
            // records, all superseded.
            (false, ..) => 0,
            (true, false, _) => 1,
            (true, true, true) => 2,
            (true, true, false) => 3,
        }
    };
    // What is written there goes over what segments of older layouts hold in the same extents.
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
    // Where a segment of the layout in force waits for several old ones (mirrors of an odd number
    // of members), those of them that are dead serve in the meantime, as they do in use: the last
    // ones first.
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

/// Lets the engine write its checkpoint and its last superblock; returns the bytes written.
fn shut_down(
    engine: &mut Engine,
    io: &mut dyn MemberIo,
    watch: &mut dyn FnMut(RebuildProgress),
) -> Result<u64, OpenError> {
    let pages = engine.map.volumes.arena.dirty_pages() as u64;
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
            done: engine.observe.counters.log_bytes.min(total),
            total,
        });
        if let Some(done) = out.control.pop() {
            return match done.result {
                Ok(ControlReply::Done) => Ok(engine
                    .drives
                    .members
                    .list
                    .iter()
                    .map(|m| m.stats.written.total())
                    .sum()),
                other => Err(OpenError::Damage(format!(
                    "the rebuilt pool could not be written: {other:?}"
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
                "the rebuilt pool could not be written: {}",
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

/// Carries out a command. A member that fails a write or a flush, or is gone, ends the attempt, and
/// so does the loss of power; what can not be read is had from others.
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
        // Freed segments keep their bytes; a later discard of the running pool takes them.
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
