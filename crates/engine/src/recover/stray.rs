//! Checkpoint pages in batches that the chain does not reach.
//!
//! The batches of a checkpoint are after its own replay position. If the checkpoint chain breaks
//! among them, the pages after the break are still in use: they are reached by address, not by the
//! chain. Therefore:
//!
//! 1. The stream continues neither at the break nor anywhere in that segment, but in a free
//!    segment, with a number far above every durable one.
//! 2. Batches after the break with pages in use are *stray*. They are entered into the segment
//!    table, so that their segments count neither as free nor as older than the checkpoint.
//! 3. The next checkpoint, requested at once, rewrites every page in those segments, and its root
//!    names the new segment.
//!
//! Until that root is durable each further start finds the same break and repeats this; the
//! stream's interim batches belong to no root. That holds even if the missing batch is readable
//! again. The fence then declares numbers durable that no batch of the chain can have, so the chain
//! stays broken. If it were whole, the stream would continue at its end, where another stream may
//! have written meanwhile.

use super::chain::Chain;
use super::incarnation::newest;
use super::reader::Reader;
use super::{OpenError, Tables};
use crate::base::limits::STREAM_CHECKPOINT;
use crate::path::Core;
use crate::path::checkpointing::Loaded;
use crate::store::map::PageSlot;
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::batch::HeaderFrame;
use windrow_format::checkpoint::PagePointer;
use windrow_format::superblock::CheckpointRoot;
use windrow_types::{BatchSeq, SegmentId};

/// A batch with pages in use.
struct Stray {
    row: u32,
    rows: u32,
    /// Its number, if the header is readable.
    seq: Option<BatchSeq>,
}

/// Enters stray batches into the segment table. Returns their segments, and that of the break.
pub(super) fn settle(
    reader: &mut Reader<'_>,
    root: &CheckpointRoot,
    chain: &Chain,
    loaded: &Loaded,
    tables: &mut Tables,
) -> Result<BTreeSet<SegmentId>, OpenError> {
    let start = root.replay[STREAM_CHECKPOINT];
    let taken: BTreeSet<(SegmentId, u32)> =
        chain.batches.iter().map(|b| (b.segment, b.row)).collect();
    let mut stray: BTreeMap<SegmentId, Vec<Stray>> = BTreeMap::new();
    if reader.zones.contains(chain.next.segment) {
        stray.entry(chain.next.segment).or_default();
    }
    for ((segment, row), rows) in batches_in_use(loaded, tables) {
        if taken.contains(&(segment, row)) {
            continue;
        }
        // A member that missed its write may have a batch of an earlier incarnation of the segment,
        // from before the replay position.
        let fits = |f: &HeaderFrame| {
            usize::from(f.header.stream.0) == STREAM_CHECKPOINT
                && f.header.rows == rows
                && f.header.epoch <= root.epoch
        };
        let seq =
            newest(reader.all_headers(segment, row, fits)?).map(|(frame, _)| frame.header.seq);
        // Batches before the replay position are in the table already.
        if seq.is_none_or(|seq| seq >= start.seq) {
            stray
                .entry(segment)
                .or_default()
                .push(Stray { row, rows, seq });
        }
    }
    for (segment, batches) in stray.iter().filter(|(_, batches)| !batches.is_empty()) {
        // True if the table's record is of the segment's present incarnation.
        let record = tables.segments.get(*segment);
        let followed =
            *segment == start.segment || chain.batches.iter().any(|b| b.segment == *segment);
        let known = followed
            || (usize::from(record.stream) == STREAM_CHECKPOINT && record.last_seq >= start.seq);
        enter(root, *segment, batches, known, tables);
    }
    Ok(stray.into_keys().collect())
}

/// Batches that hold pages of the checkpoint, with their number of rows.
fn batches_in_use(loaded: &Loaded, tables: &Tables) -> BTreeMap<(SegmentId, u32), u32> {
    let arena = &tables.volumes.arena;
    let maps = (0..arena.slots())
        .filter_map(|slot| arena.meta(PageSlot(slot)))
        .map(|meta| &meta.pointer);
    let maps = maps.chain(tables.volumes.dropped.iter().map(|(_, _, pointer)| pointer));
    let pointers = loaded
        .tables
        .values()
        .flatten()
        .chain(loaded.leaves.values())
        .chain(&loaded.list)
        .chain(maps);
    let batch = |p: &PagePointer| {
        (
            (tables.codec.segment(p.address), u32::from(p.batch_row)),
            u32::from(p.batch_rows),
        )
    };
    pointers.filter(|p| p.present).map(batch).collect()
}

/// Enters the stray batches of one segment. The range between two of them is entered as a batch, so
/// that the extent of the one before is right.
fn enter(
    root: &CheckpointRoot,
    id: SegmentId,
    batches: &[Stray],
    known: bool,
    tables: &mut Tables,
) {
    let segment = tables.segments.get_mut(id);
    let is_there = |b: &Stray| {
        segment.starts[b.row as usize / 64] >> (b.row % 64) & 1 == 1
            && segment.batch_at(b.row) == (b.row, b.rows)
    };
    let is_older = usize::from(segment.stream) == STREAM_CHECKPOINT
        && batches.iter().all(|b| b.seq.is_none() && is_there(b));
    if !known && !is_older {
        segment.starts.fill(0);
        segment.filled_rows = 0;
        segment.last_seq = BatchSeq(0);
    }
    let filled = segment.filled_rows;
    segment.stream = STREAM_CHECKPOINT as u8;
    for batch in batches {
        segment.filled_rows = segment.filled_rows.max(batch.row + batch.rows);
        segment.last_seq = segment.last_seq.max(batch.seq.unwrap_or_default());
    }
    for row in batches
        .iter()
        .flat_map(|b| [b.row, b.row + b.rows])
        .chain([0, filled])
    {
        if row < segment.filled_rows {
            segment.starts[row as usize / 64] |= 1 << (row % 64);
        }
    }
    segment.last_checkpoint = root.id;
    segment.stale = u64::MAX;
    tables.segments.mark_dirty(id);
}

/// Schedules a rewrite of the pages in these segments, and gives the checkpoint stream a
/// segment for it.
pub(super) fn leave_stray(
    core: &mut Core,
    segments: &BTreeSet<SegmentId>,
) -> Result<(), OpenError> {
    if core.store.pool.read_only {
        return Ok(());
    }
    let Some(segment) = core.store.segments.reserve() else {
        return Err(OpenError::Damage("the log of the checkpoints is damaged, and there is no free segment in which it could go on".into()));
    };
    core.store.segments.open(segment, STREAM_CHECKPOINT);
    core.paths
        .log
        .stream_mut(STREAM_CHECKPOINT)
        .position
        .segment = segment;
    let codec = core.store.pool.codec;
    core.paths
        .durability
        .rewrite_pages_where(&mut core.store.volumes, |address| {
            segments.contains(&codec.segment(address))
        });
    core.paths.durability.checkpoint.request();
    Ok(())
}
