//! Base of a salvage: the newest checkpoint that is completely readable, if there is one. Often
//! only later batches are lost.
//!
//! The checkpoint has everything up to its LSN, including trims, zeroes, deletions, references to
//! shared content and earlier moves. Of batches only newer ones count. If it shows a block at an
//! address in an unreadable batch, reads of the block fail: no older version takes its place. If
//! later batches are lost, it shows the older version of their blocks. That address may have been
//! freed and overwritten since: then the block is reported as lost ([`Former::used_again`]).

use super::super::chain::Taken;
use super::super::pages::recovery_bytes;
use super::super::reader::Reader;
use super::super::tables::drop_index_pages;
use super::super::{OpenError, Tables, load};
use super::enter_batch;
use super::scan::Scan;
use crate::path::checkpointing::Loaded;
use crate::store::map::PageSlot;
use crate::store::segment::{Segments, victim_rule};
use crate::store::volume::Volumes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use windrow_format::superblock::{CheckpointRoot, Superblock};
use windrow_types::{BatchSeq, Lsn, MAX_STREAMS, SegmentId};

/// Positions from which batches count.
#[derive(Clone, Copy, Default)]
pub(super) struct Start {
    /// LSNs and births up to this one do not count: the base has all of them.
    pub(super) lsn: Lsn,
    /// For each stream the number below which batches of moves do not count.
    pub(super) first: [BatchSeq; MAX_STREAMS],
}

/// Start state of a salvage.
pub(super) struct Ground {
    /// Number of the checkpoint, 0 without one.
    pub(super) checkpoint: u64,
    pub(super) start: Start,
    /// The checkpoint's tables, or empty ones.
    pub(super) tables: Tables,
    pub(super) former: Option<Former>,
}

impl Ground {
    /// Loads the newest checkpoint, if one is completely readable.
    ///
    /// # Errors
    /// [`OpenError::MapMemory`] if its maps exceed the limit; a member error ends the attempt.
    pub(super) fn find(
        reader: &mut Reader<'_>,
        superblock: &Superblock,
        map_bytes: u64,
    ) -> Result<Self, OpenError> {
        match load::newest_checkpoint(reader, superblock, map_bytes, &mut Default::default()) {
            Ok((tables, loaded, root)) => Ok(Base {
                root,
                tables,
                loaded,
            }
            .into_ground(superblock)),
            Err(error @ (OpenError::Member(_) | OpenError::MapMemory { .. })) => Err(error),
            Err(_) => Ok(Self::bare(reader, superblock, map_bytes)),
        }
    }

    /// Start state without a checkpoint.
    pub(super) fn bare(reader: &Reader<'_>, superblock: &Superblock, map_bytes: u64) -> Self {
        let segments = Segments::new(reader.zones, victim_rule(&superblock.properties));
        let volumes = Volumes::new(recovery_bytes(map_bytes));
        let tables = Tables {
            zones: reader.zones.clone(),
            codec: reader.codec,
            segments,
            volumes,
        };
        Self {
            checkpoint: 0,
            start: Start::default(),
            tables,
            former: None,
        }
    }
}

/// A checkpoint.
struct Base {
    root: CheckpointRoot,
    tables: Tables,
    loaded: Loaded,
}

impl Base {
    /// Positions after which batches are not in it.
    fn start(&self) -> Start {
        let first = self.root.replay.map(|position| {
            if position.segment == SegmentId::NONE {
                BatchSeq(0)
            } else {
                position.seq
            }
        });
        Start {
            lsn: self.root.lsn,
            first,
        }
    }

    /// Segments to which it refers.
    fn used(&self) -> BTreeSet<SegmentId> {
        let (volumes, codec) = (&self.tables.volumes, self.tables.codec);
        let pages = (0..volumes.arena.slots())
            .filter_map(|slot| volumes.arena.meta(PageSlot(slot)))
            .map(|meta| &meta.pointer);
        let pointers = self
            .loaded
            .tables
            .values()
            .flatten()
            .chain(self.loaded.leaves.values())
            .chain(&self.loaded.list)
            .chain(pages);
        volumes
            .payloads()
            .map(|entry| entry.address())
            .chain(pointers.filter(|p| p.present).map(|p| p.address))
            .map(|address| codec.segment(address))
            .collect()
    }

    /// Its tables as if they had been gathered: no segment is in use, and no page has an image.
    /// Deduplication index pages are dropped: the index starts empty.
    fn into_ground(self, superblock: &Superblock) -> Ground {
        let start = self.start();
        let used = self.used();
        let mut tables = self.tables;
        let segments = Segments::new(&tables.zones, victim_rule(&superblock.properties));
        let former = Former {
            segments: std::mem::replace(&mut tables.segments, segments),
            start,
            used,
        };
        tables.volumes.arena.forget_images();
        drop_index_pages(&mut tables, 0, Lsn(0));
        Ground {
            checkpoint: self.root.id,
            start,
            tables,
            former: Some(former),
        }
    }
}

/// Segment table of the checkpoint.
pub(super) struct Former {
    segments: Segments,
    start: Start,
    /// Segments to which the checkpoint refers.
    used: BTreeSet<SegmentId>,
}

impl Former {
    /// True if the checkpoint refers to data in the segment.
    pub(super) fn is_used(&self, id: SegmentId) -> bool {
        self.used.contains(&id)
    }

    /// Stream and last number of the segment's batches.
    pub(super) fn last_of(&self, id: SegmentId) -> (u8, BatchSeq) {
        let former = self.segments.get(id);
        (former.stream, former.last_seq)
    }

    /// Enters unreadable ranges of segments in use batch by batch: payload in them may still be
    /// readable. Segments that were reused are left out: none of their old content is in use.
    /// (Batches of another stream in them are of an incarnation that ended earlier: see
    /// [`Former::used_again`].)
    pub(super) fn enter(&self, found: &Scan, again: &BTreeSet<SegmentId>, tables: &mut Tables) {
        let mut last: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for entry in tables.volumes.payloads() {
            let block = last
                .entry(tables.codec.segment(entry.address()))
                .or_default();
            *block = tables.codec.block(entry.address()).max(*block);
        }
        last.retain(|id, _| self.is_used(*id) && !again.contains(id));
        self.forget_incarnations(
            &found.streams,
            |id| last.contains_key(&id),
            &mut tables.segments,
        );
        for gap in found
            .gaps
            .iter()
            .filter(|gap| last.contains_key(&gap.segment))
        {
            self.copy(gap.segment, gap.row..gap.end_row, tables);
        }
        for (id, block) in &last {
            let former = self.segments.get(*id);
            let end = former
                .next_start(tables.zones.shape(*id).row_hint(*block))
                .min(former.filled_rows);
            let segment = tables.segments.get_mut(*id);
            let filled = segment.filled_rows;
            if filled >= end {
                continue;
            }
            if filled == 0 {
                segment.stream = former.stream;
            }
            segment.filled_rows = end;
            segment.last_seq = segment.last_seq.max(former.last_seq);
            segment.last_checkpoint = segment.last_checkpoint.max(former.last_checkpoint);
            tables.segments.mark_dirty(*id);
            self.copy(*id, filled..end, tables);
        }
    }

    /// Segments that the checkpoint refers to and that were reused since. A segment was reused in
    /// these cases:
    ///
    /// - Its batches are of another stream than the checkpoint has.
    /// - Its batches are all newer ones that cannot continue those that the checkpoint has.
    /// - A newer incarnation follows its earlier batches.
    /// - A segment of another layout has its extents.
    ///
    /// Batches of another stream from before the checkpoint are left from an earlier incarnation.
    /// They are visible where the only batch of the present one is unreadable. A torn batch proves
    /// reuse as well: it overwrote what the checkpoint has.
    pub(super) fn used_again(&self, found: &Scan) -> BTreeSet<SegmentId> {
        let mut first: BTreeMap<SegmentId, (usize, BatchSeq, u32)> = BTreeMap::new();
        let of_streams = found
            .streams
            .iter()
            .enumerate()
            .flat_map(|(stream, batches)| batches.iter().map(move |taken| (stream, taken)));
        for (stream, taken) in
            of_streams.chain(found.torn.iter().map(|(stream, taken)| (*stream, taken)))
        {
            let is_older = stream != usize::from(self.segments.get(taken.segment).stream)
                && taken.seq < self.start.first[stream];
            if is_older || !self.is_used(taken.segment) {
                continue;
            }
            let here = (stream, taken.seq, taken.row);
            let of = first.entry(taken.segment).or_insert(here);
            *of = if of.0 == stream {
                here.min(*of)
            } else {
                (usize::MAX, BatchSeq(0), 0)
            };
        }
        let differs = |id: &SegmentId, (stream, seq, row): &(usize, BatchSeq, u32)| {
            let former = self.segments.get(*id);
            // Each row holds at most one batch number.
            let more = seq
                .0
                .checked_sub(former.last_seq.0)
                .filter(|more| *more > 0);
            let follows = |more: u64| {
                former.filled_rows > 0
                    && *row >= former.filled_rows
                    && more <= u64::from(row - former.filled_rows) + 1
            };
            *stream != usize::from(former.stream) || more.is_some_and(|more| !follows(more))
        };
        let others = found
            .used_again
            .union(&found.remains)
            .copied()
            .filter(|id| self.is_used(*id));
        first
            .into_iter()
            .filter(|(id, of)| differs(id, of))
            .map(|(id, _)| id)
            .chain(others)
            .collect()
    }

    /// Number of known rows of each segment: from batches found, or from the checkpoint where the
    /// segment is unchanged.
    pub(super) fn known_rows(&self, found: &Scan, again: &BTreeSet<SegmentId>) -> Vec<u32> {
        let of_former = |id| {
            if again.contains(&SegmentId(id)) {
                0
            } else {
                self.segments.get(SegmentId(id)).filled_rows
            }
        };
        let mut rows: Vec<u32> = (0..self.segments.count()).map(of_former).collect();
        for taken in found.streams.iter().flatten() {
            let known = &mut rows[taken.segment.index()];
            *known = (taken.row + taken.rows).max(*known);
        }
        rows
    }

    /// Drops batches of another stream in segments that are in the checkpoint's incarnation. They
    /// are of an earlier incarnation, visible where a member missed the overwrite.
    fn forget_incarnations(
        &self,
        streams: &[Vec<Taken>],
        is_asked: impl Fn(SegmentId) -> bool,
        segments: &mut Segments,
    ) {
        let stream_of = |id: SegmentId| self.segments.get(id).stream;
        let of_former = |(stream, taken): &(u8, &Taken)| {
            is_asked(taken.segment) && stream_of(taken.segment) != *stream
        };
        let batches = || {
            (0..)
                .zip(streams)
                .flat_map(|(stream, list)| list.iter().map(move |taken| (stream, taken)))
        };
        let mixed: BTreeSet<SegmentId> = batches()
            .filter(of_former)
            .map(|(_, taken)| taken.segment)
            .collect();
        for id in &mixed {
            let segment = segments.get_mut(*id);
            segment.starts.fill(0);
            (segment.stream, segment.filled_rows, segment.last_seq) =
                (stream_of(*id), 0, BatchSeq(0));
        }
        for (stream, taken) in batches().filter(|(stream, taken)| {
            mixed.contains(&taken.segment) && stream_of(taken.segment) == *stream
        }) {
            enter_batch(segments.get_mut(taken.segment), stream, taken);
        }
    }

    fn copy(&self, id: SegmentId, rows: Range<u32>, tables: &mut Tables) {
        let (former, segment) = (self.segments.get(id), tables.segments.get_mut(id));
        for row in rows.start..rows.end.min(former.filled_rows) {
            segment.starts[row as usize / 64] |= former.starts[row as usize / 64] & 1 << (row % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_geometry::{Redundancy, Zone, ZoneMap};
    use windrow_policy::select::Rule;

    /// The header of a user batch is unreadable, and before it are batches of an earlier checkpoint
    /// incarnation. The segment must not count as one of checkpoints, or its live data is not
    /// counted (seed 10240462). Later batches of the present incarnation stay.
    #[test]
    fn batches_of_an_earlier_incarnation_do_not_decide_the_stream_of_a_segment() {
        let shape = Redundancy::None.shape(2, 256, 128).expect("a shape");
        let zones = ZoneMap::new(vec![Zone {
            members: 0b11,
            start: 1 << 20,
            first_segment: 0,
            segments: 4,
            shape,
            layout: 0,
        }]);
        let batch = |segment, row, seq| {
            let mut taken = Taken::with_moves(0);
            (taken.segment, taken.row, taken.rows, taken.seq) =
                (SegmentId(segment), row, 8, BatchSeq(seq));
            taken
        };
        for (present, left) in [(0, 3), (3, 0)] {
            let mut streams: [Vec<Taken>; MAX_STREAMS] = Default::default();
            streams[left] = vec![batch(0, 0, 47), batch(0, 8, 48), batch(1, 0, 49)];
            streams[present] = vec![batch(0, 24, 90), batch(2, 0, 91)];
            let mut known = Segments::new(&zones, Rule::Greedy);
            (0..3).for_each(|id| known.get_mut(SegmentId(id)).stream = present as u8);
            let former = Former {
                segments: known,
                start: Start::default(),
                used: BTreeSet::new(),
            };
            let mut segments = Segments::new(&zones, Rule::Greedy);
            for (stream, taken) in streams
                .iter()
                .enumerate()
                .flat_map(|(stream, list)| list.iter().map(move |taken| (stream, taken)))
            {
                enter_batch(segments.get_mut(taken.segment), stream as u8, taken);
            }
            former.forget_incarnations(&streams, |id| id != SegmentId(2), &mut segments);
            let of = |id| {
                let segment = segments.get(SegmentId(id));
                (
                    usize::from(segment.stream),
                    segment.filled_rows,
                    segment.last_seq.0,
                    segment.starts[0],
                )
            };
            assert_eq!(of(0), (present, 32, 90, 1 << 24));
            assert_eq!(of(1), (present, 0, 0, 0));
            assert_eq!(of(2), (present, 8, 91, 1), "not asked for");
        }
    }
}
