//! Pages of the checkpoint in batches that no chain leads to.
//!
//! The batches of a checkpoint lie behind its own replay position: when the chain of the checkpoint
//! stream breaks among them, the pages behind the break are in use all the same, because they are
//! reached by their places and not by the chain. So
//!
//! 1 the stream does not go on at the break, nor anywhere in that segment, but in a free segment,
//! with a number far above every durable one; 2 the batches behind the break that hold pages in use
//! are *stray*: they are entered into the segment table, so that their segments are
//!   not taken for free ones, nor for older than the checkpoint;
//! 3 every page in those segments is written anew by the next checkpoint, which is asked for at
//! once, and whose root then names the new segment.
//!
//! Until that root is durable each further start finds the same break, and does the same again:
//! what the stream wrote meanwhile belongs to no root. That is so even if what was missing is there
//! again: the fence then calls numbers durable that no batch of the chain can have, so that the
//! chain stays broken. If it were whole, the stream would go on at its end, where another stream
//! may have written meanwhile.

use super::chain::Chain;
use super::incarnation::newest;
use super::reader::Reader;
use super::{OpenError, Tables};
use crate::Engine;
use crate::checkpoint::Loaded;
use crate::limits::STREAM_CHECKPOINT;
use crate::map::PageSlot;
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::batch::HeaderFrame;
use windrow_format::checkpoint::PagePointer;
use windrow_format::superblock::CheckpointRoot;
use windrow_types::{BatchSeq, SegmentId};

/// A batch that holds pages in use.
struct Stray {
    row: u32,
    rows: u32,
    /// If its header can be read.
    seq: Option<BatchSeq>,
}

/// Enters what is stray into the segment table. Returns the segments that it lies in, and the one
/// of the break.
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
        // A member that missed its write may bear a batch of the segment's former life, which lay
        // before the replay position.
        let fits = |f: &HeaderFrame| {
            usize::from(f.header.stream.0) == STREAM_CHECKPOINT
                && f.header.rows == rows
                && f.header.epoch <= root.epoch
        };
        let seq =
            newest(reader.all_headers(segment, row, fits)?).map(|(frame, _)| frame.header.seq);
        // What lies before the replay position is in the table.
        if seq.is_none_or(|seq| seq >= start.seq) {
            stray
                .entry(segment)
                .or_default()
                .push(Stray { row, rows, seq });
        }
    }
    for (segment, batches) in stray.iter().filter(|(_, batches)| !batches.is_empty()) {
        // True if the table's record is of the life that the segment has now.
        let record = tables.segments.get(*segment);
        let followed =
            *segment == start.segment || chain.batches.iter().any(|b| b.segment == *segment);
        let known = followed
            || (usize::from(record.stream) == STREAM_CHECKPOINT && record.last_seq >= start.seq);
        enter(root, *segment, batches, known, tables);
    }
    Ok(stray.into_keys().collect())
}

/// Batches that hold pages of the checkpoint, with their rows.
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

/// Enters the stray batches of one segment. What lies between two of them stands there as a batch
/// of its own, so that the extent of the one before is right.
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

impl Engine {
    /// Has the pages in these segments written elsewhere, and gives the checkpoint stream a segment
    /// to do so.
    pub(super) fn leave_stray(&mut self, segments: &BTreeSet<SegmentId>) -> Result<(), OpenError> {
        if self.pool.read_only {
            return Ok(());
        }
        let Some(segment) = self.space.segments.reserve() else {
            return Err(OpenError::Damage("the log of the checkpoints is damaged, and there is no free segment in which it could go on".into()));
        };
        self.space.segments.open(segment, STREAM_CHECKPOINT);
        self.stream_mut(STREAM_CHECKPOINT).position.segment = segment;
        let codec = self.pool.codec;
        self.rewrite_pages_where(|address| segments.contains(&codec.segment(address)));
        self.durability.checkpoint.request();
        Ok(())
    }
}
