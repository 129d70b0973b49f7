//! Finds lost durable batches from two sides: unreadable rows (gaps), and missing numbers.
//!
//! With a base checkpoint ([`super::base`]) its maps decide: an older gap counts only if they show
//! something in it. (Without one, leftovers of a freed segment count as well, if a power cut
//! interrupted its discard or a member missed it.)
//!
//! 1. A *gap* after a readable batch of its segment is of that batch's stream. A gap at row 0 has a
//!    number only from the first batch after it. If the pool's roots do not confirm that number,
//!    that batch may be of an earlier incarnation, and the gap the torn start of a new one. So it
//!    counts only if something of the segment is still in use.
//! 2. No segment from the oldest root's replay position on is reused, so from there up to the
//!    highest flushed number every *number* must exist. This finds losses without a gap: a
//!    completely unreadable segment. (Not for the checkpoint stream: its content is rebuilt.)
//! 3. Below that position numbers are missing in any pool, as segments are reused. There the maps
//!    of a checkpoint decide: blocks that they show after the last readable batch of a segment
//!    ([`silent`]). If the checkpoint is unreadable as well, its content is unknown
//!    ([`unread_checkpoint`]). LSNs up to it that no batch has were superseded and cleaned, or are
//!    lost.

use super::super::chain::Taken;
use super::super::loss::Loss;
use super::super::reader::Reader;
use super::super::{OpenError, Tables};
use super::SEQ_LEAP;
use super::base::Former;
use super::scan::{Gap, Scan};
use crate::base::limits::{STREAM_CHECKPOINT, STREAMS, USER_STREAMS};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::superblock::{CheckpointRoot, Superblock};
use windrow_types::{BatchSeq, FULL_BLOCK_UNITS, Lsn, SegmentId};

/// A checkpoint of the pool that is not completely readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct UnreadCheckpoint {
    /// Its number.
    pub id: u64,
    /// Last LSN in it.
    pub lsn: Lsn,
    /// Number of LSNs up to that one in no batch: superseded and cleaned, or lost.
    pub missing_lsns: u64,
}

/// The newest checkpoint of the superblock, if LSNs in it are in no batch.
pub(super) fn unread_checkpoint(superblock: &Superblock, found: &Scan) -> Option<UnreadCheckpoint> {
    let root = superblock
        .checkpoints
        .iter()
        .flatten()
        .max_by_key(|root| root.lsn)?;
    let brought = USER_STREAMS
        .iter()
        .flat_map(|stream| &found.streams[*stream])
        .flat_map(|taken| taken.lsns.iter().copied());
    let never = superblock
        .fences
        .iter()
        .map(|fence| (fence.recovery_lsn.0 + 1, fence.next_lsn.0.saturating_sub(1)));
    let mut ranges: Vec<(u64, u64)> = brought.chain(never).collect();
    ranges.sort_unstable();
    let (mut missing_lsns, mut next) = (0, 1);
    for (first, last) in ranges.into_iter().chain([(root.lsn.0 + 1, root.lsn.0 + 1)]) {
        missing_lsns += first.min(root.lsn.0 + 1).saturating_sub(next);
        next = next.max(last.saturating_add(1));
    }
    (missing_lsns > 0).then_some(UnreadCheckpoint {
        id: root.id,
        lsn: root.lsn,
        missing_lsns,
    })
}

/// Blocks that the maps of a checkpoint show after the last readable batch of a segment, or in one
/// without any. No batch follows them, so no gap reports them.
pub(super) fn silent(
    found: &Scan,
    tables: &Tables,
    former: &Former,
    again: &BTreeSet<SegmentId>,
    losses: &mut Vec<Loss>,
) {
    let mut rows = vec![0; tables.zones.segment_count() as usize];
    for taken in found.streams.iter().flatten() {
        let known: &mut u32 = &mut rows[taken.segment.index()];
        *known = (taken.row + taken.rows).max(*known);
    }
    // End of the last such block of each segment.
    let mut beyond: BTreeMap<SegmentId, u32> = BTreeMap::new();
    for address in tables.volumes.payloads().map(|entry| entry.address()) {
        let segment = tables.codec.segment(address);
        let row = tables
            .zones
            .shape(segment)
            .row_hint(tables.codec.block(address));
        if row >= rows[segment.index()]
            && former.is_used(segment)
            && !again.contains(&segment)
            && !found.remains.contains(&segment)
        {
            let end = beyond.entry(segment).or_default();
            *end = (row + 1).max(*end);
        }
    }
    for (segment, end_row) in beyond {
        match losses
            .iter_mut()
            .find(|loss| loss.segment == segment && loss.end_row >= rows[segment.index()])
        {
            Some(told) => told.end_row = told.end_row.max(end_row),
            None => {
                let (stream, seq) = former.last_of(segment);
                losses.push(Loss {
                    segment,
                    row: rows[segment.index()],
                    end_row,
                    ..loss(stream, seq, seq)
                });
            }
        }
    }
}

/// Lists durable batches that gaps and numbers show as missing. `tables` show the data in use; with
/// `on_checkpoint` they come from a checkpoint, so that they refer to lost data as well.
pub(super) fn list(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    found: &Scan,
    on_checkpoint: bool,
    tables: &Tables,
) -> Result<Vec<Loss>, OpenError> {
    let live = live_segments(tables);
    let held = on_checkpoint.then(|| holds(tables, &found.gaps));
    let mut all = Vec::new();
    for stream in STREAMS {
        let search = Search {
            superblock,
            stream,
            batches: &found.streams[stream],
            flushed: found.flushed[stream],
        };
        let floor = search.floor();
        let mut losses = Vec::new();
        for (at, gap) in found.gaps.iter().enumerate() {
            let use_of = match held.as_ref().and_then(|held| held.get(at)) {
                Some(true) => Use::Certain,
                Some(false) => Use::None,
                None if live.contains(&gap.segment) => Use::Certain,
                None => Use::Unknown,
            };
            losses.extend(search.of_gap(gap, floor, use_of));
        }
        if stream != STREAM_CHECKPOINT {
            for hole in floor.map(|floor| search.holes(floor)).unwrap_or_default() {
                search.add_hole(reader, hole, &mut losses)?;
            }
        }
        all.append(&mut losses);
    }
    Ok(all)
}

fn loss(stream: u8, seq: BatchSeq, durable_seq: BatchSeq) -> Loss {
    Loss {
        stream,
        seq,
        durable_seq,
        segment: SegmentId::NONE,
        row: 0,
        end_row: 0,
        lsns: None,
        blocks: Vec::new(),
        more_runs: 0,
        why: "it cannot be read or reconstructed",
    }
}

/// For each gap: true if the tables show something in it.
fn holds(tables: &Tables, gaps: &[Gap]) -> Vec<bool> {
    let mut holds = vec![false; gaps.len()];
    let mut by_segment: BTreeMap<SegmentId, Vec<usize>> = BTreeMap::new();
    for (at, gap) in gaps.iter().enumerate() {
        by_segment.entry(gap.segment).or_default().push(at);
    }
    for entry in tables.volumes.payloads() {
        for at in by_segment
            .get(&tables.codec.segment(entry.address()))
            .into_iter()
            .flatten()
        {
            let row_units =
                u64::from(tables.zones.shape(gaps[*at].segment).data) * u64::from(FULL_BLOCK_UNITS);
            let (first, offset) = (
                u64::from(gaps[*at].row) * row_units,
                tables.codec.offset_units(entry.address()),
            );
            holds[*at] |= offset < u64::from(gaps[*at].end_row) * row_units
                && first < offset + u64::from(entry.length_units());
        }
    }
    holds
}

/// Segments with data that the maps show.
fn live_segments(tables: &Tables) -> BTreeSet<SegmentId> {
    tables
        .volumes
        .payloads()
        .map(|entry| tables.codec.segment(entry.address()))
        .collect()
}

/// Use of the data in a gap.
#[derive(Clone, Copy)]
enum Use {
    /// Something in it, or elsewhere in its segment, is in use.
    Certain,
    /// The maps show nothing there.
    None,
    /// Unknown.
    Unknown,
}

/// Search for losses of one stream.
struct Search<'s> {
    superblock: &'s Superblock,
    stream: usize,
    batches: &'s [Taken],
    flushed: BatchSeq,
}

impl Search<'_> {
    fn roots(&self) -> impl Iterator<Item = &CheckpointRoot> {
        self.superblock.checkpoints.iter().flatten()
    }

    /// Number from which on no segment of the stream can have been reused; `None` if no root knows
    /// the stream.
    fn floor(&self) -> Option<BatchSeq> {
        let positions = self.roots().map(|root| root.replay[self.stream]);
        positions
            .filter(|position| position.segment != SegmentId::NONE)
            .map(|position| position.seq)
            .min()
    }

    fn is_there(&self, seq: BatchSeq) -> bool {
        self.batches
            .binary_search_by_key(&seq, |taken| taken.seq)
            .is_ok()
    }

    /// The loss of a gap, if it held durable batches of this stream.
    fn of_gap(&self, gap: &Gap, floor: Option<BatchSeq>, use_of: Use) -> Option<Loss> {
        let behind = gap
            .behind
            .filter(|(stream, seq)| usize::from(*stream) == self.stream && seq.0 > 1)
            .map(|(_, seq)| BatchSeq(seq.0 - 1));
        let has_number = gap.seq.0 > 0;
        let (first, last) = if has_number {
            // An earlier salvage skipped the numbers after the ends it found: those never existed.
            let existed =
                behind.is_some() || self.flushed.0.saturating_sub(gap.seq.0) < SEQ_LEAP / 2;
            (usize::from(gap.stream) == self.stream && existed)
                .then_some((gap.seq, behind.unwrap_or(gap.seq)))?
        } else {
            let last = behind?;
            (last, last)
        };
        let is_used = match use_of {
            Use::Certain => true,
            Use::Unknown => has_number,
            Use::None => false,
        };
        let vouched = floor.is_some_and(|floor| last >= floor);
        let counts = first <= self.flushed && !self.is_there(first) && (vouched || is_used);
        counts.then(|| Loss {
            segment: gap.segment,
            row: gap.row,
            end_row: gap.end_row,
            ..self.loss(first, last.min(self.flushed))
        })
    }

    fn loss(&self, seq: BatchSeq, durable_seq: BatchSeq) -> Loss {
        loss(self.stream as u8, seq, durable_seq)
    }

    /// Runs of missing numbers from `floor` to the highest flushed one: first and last.
    fn holes(&self, floor: BatchSeq) -> Vec<(BatchSeq, BatchSeq)> {
        let first = self.batches.partition_point(|taken| taken.seq < floor);
        let there = self.batches[first..]
            .iter()
            .map(|taken| taken.seq)
            .take_while(|seq| *seq <= self.flushed);
        let mut next = floor;
        let mut holes = Vec::new();
        for seq in there.chain([self.flushed.next()]) {
            if seq > next {
                holes.push((next, BatchSeq(seq.0 - 1)));
            }
            next = seq.next();
        }
        holes.retain(|(first, last)| last.0 - first.0 < SEQ_LEAP / 2);
        holes
    }

    /// Adds a run of missing numbers. A gap that contains it has its rows; else its position is
    /// derived from the batch before it, or from a root.
    fn add_hole(
        &self,
        reader: &mut Reader<'_>,
        (first, last): (BatchSeq, BatchSeq),
        losses: &mut Vec<Loss>,
    ) -> Result<(), OpenError> {
        let mut known = losses.iter_mut().filter(|loss| {
            (first..=last).contains(&loss.seq) || (loss.seq..=loss.durable_seq).contains(&first)
        });
        if let Some(loss) = known.next() {
            if known.next().is_none() {
                (loss.seq, loss.durable_seq) = (first.min(loss.seq), last.max(loss.durable_seq));
            }
            return Ok(());
        }
        let (segment, row) = self.position_of(reader, first)?;
        let end_row = if reader.zones.contains(segment) {
            reader.zones.shape(segment).rows
        } else {
            row
        };
        losses.push(Loss {
            segment,
            row,
            end_row,
            ..self.loss(first, last)
        });
        Ok(())
    }

    /// Position where a missing batch was.
    fn position_of(
        &self,
        reader: &mut Reader<'_>,
        seq: BatchSeq,
    ) -> Result<(SegmentId, u32), OpenError> {
        if let Some(position) = self
            .roots()
            .map(|root| root.replay[self.stream])
            .find(|position| position.seq == seq)
        {
            return Ok((position.segment, position.row));
        }
        let before = self
            .batches
            .binary_search_by_key(&BatchSeq(seq.0 - 1), |taken| taken.seq);
        let Some(before) = before.ok().map(|at| &self.batches[at]) else {
            return Ok((SegmentId::NONE, 0));
        };
        let header = before.batch(reader)?.frame.header;
        let end = header.row + header.rows;
        Ok(if end < reader.zones.shape(before.segment).rows {
            (before.segment, end)
        } else {
            (header.next_segment, 0)
        })
    }
}
