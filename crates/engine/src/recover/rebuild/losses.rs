//! What was durable and is not there, from two sides: the rows that can not be read (gaps), and the numbers that are missing.
//!
//! 1 A *gap* behind a readable batch of its segment is of that batch's stream. One at row 0 has a number only from the first batch behind it; where the pool's roots do not
//!   vouch for that number, that batch may be of a former life and the gap what a crash left of a new one. So it counts only if something of the segment is still in use.
//! 2 No segment from the oldest root's replay position on is used again, so from there up to the highest flushed number every *number* must be there. This finds what no
//!   gap tells: a segment of which nothing can be read. (Not of the stream of checkpoints: what it had is made anew.)

use super::super::chain::Taken;
use super::super::loss::Loss;
use super::super::reader::Reader;
use super::super::{OpenError, Tables};
use super::SEQ_LEAP;
use super::scan::{Gap, Scan};
use crate::limits::{STREAM_CHECKPOINT, STREAMS};
use std::collections::BTreeSet;
use windrow_layout::superblock::{CheckpointRoot, Superblock};
use windrow_units::{SegmentId, Seq};

/// Lists everything that was durable and is missing. `tables` show what is in use.
pub(super) fn list(reader: &mut Reader<'_>, superblock: &Superblock, found: &Scan, tables: &Tables) -> Result<Vec<Loss>, OpenError> {
    let live = live_segments(tables);
    let mut all = Vec::new();
    for stream in STREAMS {
        let search = Search { superblock, stream, batches: &found.streams[stream], flushed: found.flushed[stream] };
        let floor = search.floor();
        let mut losses: Vec<Loss> = found.gaps.iter().filter_map(|gap| search.of_gap(gap, floor, &live)).collect();
        if stream != STREAM_CHECKPOINT {
            for hole in floor.map(|floor| search.holes(floor)).unwrap_or_default() {
                search.add_hole(reader, hole, &mut losses)?;
            }
        }
        all.append(&mut losses);
    }
    Ok(all)
}

/// The segments in which something lies that the maps show.
fn live_segments(tables: &Tables) -> BTreeSet<SegmentId> {
    let volumes = &tables.volumes;
    let entries = volumes.with_hidden().flat_map(|v| v.map.entries(&volumes.arena));
    entries.filter(|entry| entry.has_payload()).map(|entry| tables.codec.segment(entry.place())).collect()
}

/// One stream.
struct Search<'s> {
    superblock: &'s Superblock,
    stream: usize,
    batches: &'s [Taken],
    flushed: Seq,
}

impl Search<'_> {
    fn roots(&self) -> impl Iterator<Item = &CheckpointRoot> {
        self.superblock.checkpoints.iter().flatten()
    }

    /// The number from which on nothing of the stream can have been used again; `None` if no root knows the stream.
    fn floor(&self) -> Option<Seq> {
        let positions = self.roots().map(|root| root.replay[self.stream]);
        positions.filter(|position| position.segment != SegmentId::NONE).map(|position| position.seq).min()
    }

    fn is_there(&self, seq: Seq) -> bool {
        self.batches.binary_search_by_key(&seq, |taken| taken.seq).is_ok()
    }

    /// The loss that a gap is, if it held something of this stream that was durable.
    fn of_gap(&self, gap: &Gap, floor: Option<Seq>, live: &BTreeSet<SegmentId>) -> Option<Loss> {
        let behind = gap.behind.filter(|(stream, seq)| usize::from(*stream) == self.stream && seq.0 > 1).map(|(_, seq)| Seq(seq.0 - 1));
        let (first, last) = if gap.seq.0 > 0 {
            // An earlier rebuild leapt over the numbers behind the ends of its day: those never existed.
            let existed = behind.is_some() || self.flushed.0.saturating_sub(gap.seq.0) < SEQ_LEAP / 2;
            (usize::from(gap.stream) == self.stream && existed).then_some((gap.seq, behind.unwrap_or(gap.seq)))?
        } else {
            let last = behind?;
            let vouched = floor.is_some_and(|floor| last >= floor);
            (vouched || live.contains(&gap.segment)).then_some((last, last))?
        };
        let counts = first <= self.flushed && !self.is_there(first);
        counts.then(|| Loss { segment: gap.segment, row: gap.row, end_row: gap.end_row, ..self.loss(first, last.min(self.flushed)) })
    }

    fn loss(&self, seq: Seq, durable_seq: Seq) -> Loss {
        Loss {
            stream: self.stream as u8,
            seq,
            durable_seq,
            segment: SegmentId::NONE,
            row: 0,
            end_row: 0,
            orders: None,
            blocks: Vec::new(),
            more_runs: 0,
            why: "it can not be read or rebuilt",
        }
    }

    /// Runs of numbers from `floor` on, up to the highest flushed one, that are missing: first and last.
    fn holes(&self, floor: Seq) -> Vec<(Seq, Seq)> {
        let first = self.batches.partition_point(|taken| taken.seq < floor);
        let there = self.batches[first..].iter().map(|taken| taken.seq).take_while(|seq| *seq <= self.flushed);
        let mut next = floor;
        let mut holes = Vec::new();
        for seq in there.chain([self.flushed.next()]) {
            if seq > next {
                holes.push((next, Seq(seq.0 - 1)));
            }
            next = seq.next();
        }
        holes.retain(|(first, last)| last.0 - first.0 < SEQ_LEAP / 2);
        holes
    }

    /// A gap in which the hole is tells its rows; else its place is where the batch before it, or a root, says.
    fn add_hole(&self, reader: &mut Reader<'_>, (first, last): (Seq, Seq), losses: &mut Vec<Loss>) -> Result<(), OpenError> {
        let mut known = losses.iter_mut().filter(|loss| (first..=last).contains(&loss.seq) || (loss.seq..=loss.durable_seq).contains(&first));
        if let Some(loss) = known.next() {
            if known.next().is_none() {
                (loss.seq, loss.durable_seq) = (first.min(loss.seq), last.max(loss.durable_seq));
            }
            return Ok(());
        }
        let (segment, row) = self.place_of(reader, first)?;
        let end_row = if reader.zones.contains(segment) { reader.zones.shape(segment).rows } else { row };
        losses.push(Loss { segment, row, end_row, ..self.loss(first, last) });
        Ok(())
    }

    /// Where a batch that is missing was.
    fn place_of(&self, reader: &mut Reader<'_>, seq: Seq) -> Result<(SegmentId, u32), OpenError> {
        if let Some(position) = self.roots().map(|root| root.replay[self.stream]).find(|position| position.seq == seq) {
            return Ok((position.segment, position.row));
        }
        let before = self.batches.binary_search_by_key(&Seq(seq.0 - 1), |taken| taken.seq);
        let Some(before) = before.ok().map(|at| &self.batches[at]) else { return Ok((SegmentId::NONE, 0)) };
        let header = before.batch(reader)?.frame.header;
        let end = header.row + header.rows;
        Ok(if end < reader.zones.shape(before.segment).rows { (before.segment, end) } else { (header.next_segment, 0) })
    }
}
