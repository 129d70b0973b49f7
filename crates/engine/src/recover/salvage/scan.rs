//! Scan: finds every valid batch of the pool at the known positions of all segments.
//!
//! 1. In each segment batches follow one another from row 0, and row 0 of each chunk begins one.
//!    While headers are readable no other position is tried. A header is bound to pool, epoch,
//!    segment and row by its checksum, so a guest's image of a pool is never taken for one.
//! 2. The batches of a segment's present incarnation are of one stream, with consecutive numbers
//!    and epochs that never fall. The first header that breaks this is of an earlier incarnation,
//!    all of whose blocks are dead. After an unreadable batch the rest of its chunk and the start
//!    of each other chunk are tried. In the middle of an incarnation the other rows of the chunks
//!    before the start found are tried as well. Everything in between is lost. (A row there may
//!    hold a guest's data. To pass for a header it needs pool, epoch, segment and row in its
//!    checksum, and a number of the stream that comes next.)
//! 3. A batch is *void* if a fence voids it. It is also void if it is of an older epoch than a
//!    checkpoint root and not before its replay position. And it is void if another batch of the
//!    stream with an equal or lower number has a higher epoch.
//! 4. A batch that nothing proves durable must continue the numbers without a gap and verify to the
//!    last byte, as at an ordinary start.
//! 5. If segments of two layouts both have batches in the same extents, the extents belong to the
//!    *newer incarnation* ([`Incarnation`]). The other segment had been freed before: every block
//!    of it is elsewhere or dead, and its batches are *remains*. Of remains no block counts, and
//!    nothing is missed; readable records count. Of the newer incarnation everything counts, and
//!    missing batches are listed, as in any other segment.
//! 6. A first column that missed its write may have a batch that a start had refused, whose number
//!    was reused, and whose fence is gone. That batch is of an older epoch than the newest. Either
//!    nothing of that epoch proves it flushed, or it is void by rule 3, or it looks like the last
//!    one of its epoch. Segments with such batches, and those with gaps, are walked again. There
//!    the newest of all headers that fit at a row, direct and reconstructed, counts. (For each
//!    batch of a pool that would read all columns.) The batches found may make further ones the
//!    last of their epoch.

use super::super::OpenError;
use super::super::chain::{Durable, Taken};
use super::super::fence::{batches_through, fence_of};
use super::super::incarnation::{Incarnation, newest};
use super::super::judge::Found;
use super::super::reader::Reader;
use super::super::redundancy::verify_payload;
use super::{RebuildPhase, RebuildProgress};
use crate::base::limits::{REPLAY_TABLE_BYTES, STREAMS, USER_STREAMS};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::batch::HeaderFrame;
use windrow_format::superblock::Superblock;
use windrow_geometry::{Shape, ZoneMap};
use windrow_io::Buf;
use windrow_types::{BatchSeq, Epoch, Lsn, MAX_STREAMS, SegmentId};

/// Unknown rows inside the filled part of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) segment: SegmentId,
    pub(super) row: u32,
    pub(super) end_row: u32,
    pub(super) stream: u8,
    /// First missing number, 0 if not known.
    pub(super) seq: BatchSeq,
    /// Stream and number of the next readable batch in the segment.
    pub(super) behind: Option<(u8, BatchSeq)>,
}

/// Result of the scan.
pub(super) struct Scan {
    /// Valid batches by stream, in order of their numbers.
    pub(super) streams: [Vec<Taken>; MAX_STREAMS],
    pub(super) gaps: Vec<Gap>,
    /// Highest number, epoch and LSN of any batch, including invalid ones.
    pub(super) highest_seq: BatchSeq,
    pub(super) highest_epoch: Epoch,
    pub(super) highest_lsn: Lsn,
    /// Highest durable number of each stream.
    pub(super) flushed: [BatchSeq; MAX_STREAMS],
    /// Every LSN up to this one was durable, by roots, fences and headers.
    pub(super) durable_through: Lsn,
    /// True for each segment in which any batch begins.
    pub(super) written: Vec<bool>,
    /// Segments in which it is unknown whether a batch begins.
    pub(super) unreadable: BTreeSet<SegmentId>,
    /// Segments that are remains.
    pub(super) remains: BTreeSet<SegmentId>,
    /// Segments with a newer incarnation after batches of an earlier one.
    pub(super) used_again: BTreeSet<SegmentId>,
    incarnations: Vec<Option<Incarnation>>,
    /// First LSN of the user batches of each epoch.
    firsts: BTreeMap<Epoch, Lsn>,
    /// Highest durable number of each stream in each epoch, as that epoch knew it.
    flushed_in: BTreeMap<Epoch, [BatchSeq; MAX_STREAMS]>,
    pub(super) void_batches: u64,
    /// Torn batches at the end of the log, with their stream. They are invalid, but they overwrote
    /// the earlier content of their segments.
    pub(super) torn: Vec<(usize, Taken)>,
}

/// State of the scan.
struct Known {
    durable: Durable,
    /// Bytes of heads and tails that may still be kept in memory.
    budget: usize,
}

/// Scans all segments.
pub(super) fn scan(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    watch: &mut dyn FnMut(RebuildProgress),
) -> Result<Scan, OpenError> {
    let count = reader.zones.segment_count();
    let mut scan = Scan {
        streams: Default::default(),
        gaps: Vec::new(),
        highest_seq: BatchSeq(0),
        highest_epoch: superblock.epoch,
        highest_lsn: Lsn(0),
        flushed: [BatchSeq(0); MAX_STREAMS],
        durable_through: Lsn(0),
        written: vec![false; count as usize],
        unreadable: BTreeSet::new(),
        remains: BTreeSet::new(),
        used_again: BTreeSet::new(),
        incarnations: vec![None; count as usize],
        firsts: BTreeMap::new(),
        flushed_in: BTreeMap::new(),
        void_batches: 0,
        torn: Vec::new(),
    };
    let mut found = Known {
        durable: Durable::nothing(),
        budget: REPLAY_TABLE_BYTES,
    };
    for root in superblock.checkpoints.iter().flatten() {
        found.durable.claim_root(superblock, root);
        scan.flushed(root.epoch, &root.flushed_seq);
        scan.highest_lsn = scan.highest_lsn.max(root.lsn);
        for position in &root.replay {
            scan.highest_seq = scan.highest_seq.max(position.seq);
        }
    }
    let segments: Vec<SegmentId> = reader.zones.segments().collect();
    for (done, segment) in segments.iter().enumerate() {
        watch(RebuildProgress {
            phase: RebuildPhase::Scan,
            done: done as u64,
            total: segments.len() as u64,
        });
        reader.is_blind = false;
        scan.segment(reader, superblock, *segment, false, &mut found)?;
        if reader.is_blind {
            scan.unreadable.insert(*segment);
        }
        reader.forget();
    }
    scan.walk_again(reader, superblock, &mut found, watch)?;
    let mut durable = found.durable;
    durable.claim(
        superblock,
        superblock.epoch,
        &[BatchSeq(0); MAX_STREAMS],
        superblock.journals.durable_lsn,
    );
    (scan.flushed, scan.durable_through) = (durable.seqs, durable.through);
    scan.drop_overwritten(reader)?;
    for stream in STREAMS {
        scan.drop_void(superblock, stream);
        scan.drop_torn(reader, stream, durable.seqs[stream])?;
    }
    for taken in USER_STREAMS
        .iter()
        .flat_map(|stream| &scan.streams[*stream])
    {
        for (lsn, _) in &taken.lsns {
            let first = scan.firsts.entry(taken.epoch).or_insert(Lsn(*lsn));
            *first = Lsn(*lsn).min(*first);
        }
    }
    Ok(scan)
}

impl Scan {
    /// Last LSN or birth that counts in batches of an epoch. Operations that a start refused are
    /// void even if its fence is gone: later epochs have reused those LSNs.
    pub(super) fn through(&self, superblock: &Superblock, epoch: Epoch) -> Lsn {
        let later = self
            .firsts
            .range(epoch.next()..)
            .map(|(_, first)| Lsn(first.0.saturating_sub(1)))
            .min();
        batches_through(superblock, epoch).min(later.unwrap_or(Lsn(u64::MAX)))
    }

    /// Walks through a segment. With `thorough` all headers that may begin at a row are compared;
    /// otherwise the first that fits is taken.
    fn segment(
        &mut self,
        reader: &mut Reader<'_>,
        superblock: &Superblock,
        segment: SegmentId,
        thorough: bool,
        found: &mut Known,
    ) -> Result<(), OpenError> {
        let shape = *reader.zones.shape(segment);
        let mut walk = Walk {
            superblock,
            segment,
            shape,
            thorough,
            last: None,
            beyond: Cell::new((Epoch(0), BatchSeq(0))),
        };
        let mut row = 0;
        while row < shape.rows {
            let Some((frame, block)) = walk.begins(reader, row)? else {
                let Some(next) = self.gap(reader, &walk, row)? else {
                    break;
                };
                // A gap has no preceding number: the batch after it starts the count again.
                row = next;
                walk.last = None;
                continue;
            };
            self.header(superblock, &frame, &mut found.durable);
            if let Some((batch, ends)) = reader.ends(&frame, block)? {
                let kept = if ends.len() <= found.budget {
                    Some(ends)
                } else {
                    None
                };
                let taken = Taken::new(&batch, kept);
                found.budget -= taken.kept();
                self.highest_lsn = taken
                    .lsns
                    .iter()
                    .fold(self.highest_lsn, |most, (_, last)| most.max(Lsn(*last)));
                self.streams[frame.header.stream.index()].push(taken);
            } else {
                let h = &frame.header;
                self.gaps.push(Gap {
                    segment,
                    row,
                    end_row: row + h.rows,
                    stream: h.stream.0,
                    seq: h.seq,
                    behind: None,
                });
            }
            row += frame.header.rows;
            walk.last = Some(frame);
        }
        let (epoch, seq) = walk.beyond.get();
        if epoch > Epoch(0) {
            self.written[segment.index()] = true;
            (self.highest_epoch, self.highest_seq) =
                (self.highest_epoch.max(epoch), self.highest_seq.max(seq));
        }
        Ok(())
    }

    /// Records the gap that begins at `row`. Returns the row of the batch after it, if there is
    /// one.
    fn gap(
        &mut self,
        reader: &mut Reader<'_>,
        walk: &Walk<'_>,
        row: u32,
    ) -> Result<Option<u32>, OpenError> {
        let (segment, shape, last) = (walk.segment, walk.shape, walk.last.as_ref());
        let found = walk.behind(reader, row)?;
        // More numbers than rows are missing: the next batch is of a newer incarnation whose start
        // is missing, and everything before is dead.
        let same_incarnation = last.filter(|l| {
            found.as_ref().is_none_or(|f| {
                f.header.seq.0 - l.header.seq.0 <= u64::from(f.header.row - row) + 1
            })
        });
        if last.is_some() && same_incarnation.is_none() {
            self.used_again.insert(segment);
        }
        let stream = same_incarnation.map_or(0, |l| l.header.stream.0);
        let seq = same_incarnation.map_or(BatchSeq(0), |l| l.header.seq.next());
        let end_row = found
            .as_ref()
            .map_or_else(|| shape.chunk_end(row), |f| f.header.row);
        let behind = found.as_ref().map(|f| (f.header.stream.0, f.header.seq));
        if found.is_some() || last.is_some() {
            self.gaps.push(Gap {
                segment,
                row,
                end_row,
                stream,
                seq,
                behind,
            });
        }
        Ok(found.map(|f| f.header.row))
    }

    /// Thorough walks of rule 6. Their result may show that further batches had been refused.
    fn walk_again(
        &mut self,
        reader: &mut Reader<'_>,
        superblock: &Superblock,
        found: &mut Known,
        watch: &mut dyn FnMut(RebuildProgress),
    ) -> Result<(), OpenError> {
        let count = u64::from(reader.zones.segment_count());
        let mut walked = BTreeSet::new();
        loop {
            let again: BTreeSet<SegmentId> = &self.doubtful(reader.zones, superblock) - &walked;
            if again.is_empty() {
                return Ok(());
            }
            self.forget(&again, found);
            let (before, total) = (
                count + walked.len() as u64,
                count + (walked.len() + again.len()) as u64,
            );
            for (done, segment) in (before..).zip(&again) {
                watch(RebuildProgress {
                    phase: RebuildPhase::Scan,
                    done,
                    total,
                });
                self.segment(reader, superblock, *segment, true, found)?;
                reader.forget();
            }
            walked.extend(again);
        }
    }

    /// Segments in which a batch may have been taken that a start had refused: see rule 6.
    fn doubtful(&mut self, zones: &ZoneMap, superblock: &Superblock) -> BTreeSet<SegmentId> {
        // Gaps of remains do not count (rule 5), and remains may be most of the pool.
        let remains = self.find_remains(zones);
        let mut segments: BTreeSet<SegmentId> = self
            .gaps
            .iter()
            .map(|gap| gap.segment)
            .filter(|segment| !remains.contains(segment))
            .collect();
        for (stream, list) in self.streams.iter_mut().enumerate() {
            let counts = which_count(superblock, stream, list);
            let flushed = |taken: &Taken| {
                self.flushed_in
                    .get(&taken.epoch)
                    .map_or(BatchSeq(0), |seqs| seqs[stream])
            };
            segments.extend(refused(list, &counts, superblock.epoch, flushed));
        }
        segments
    }

    /// Drops the batches found in these segments. Claims of their headers stay valid.
    fn forget(&mut self, segments: &BTreeSet<SegmentId>, found: &mut Known) {
        for list in &mut self.streams {
            list.retain(|taken| {
                let stays = !segments.contains(&taken.segment);
                found.budget += if stays { 0 } else { taken.kept() };
                stays
            });
        }
        self.gaps.retain(|gap| !segments.contains(&gap.segment));
        self.used_again
            .retain(|segment| !segments.contains(segment));
    }

    fn header(&mut self, superblock: &Superblock, frame: &HeaderFrame, durable: &mut Durable) {
        let h = &frame.header;
        self.written[h.segment.index()] = true;
        // Found in the order of rows: the last one stays.
        self.incarnations[h.segment.index()] = Some(Incarnation::of(frame));
        self.highest_seq = self.highest_seq.max(h.seq);
        self.highest_epoch = self.highest_epoch.max(h.epoch);
        self.flushed(h.epoch, &h.flushed_seq);
        let (mut seqs, mut through) = (h.flushed_seq, h.flushed_through);
        // The fence after it may be gone; batches that a later root does not have were refused.
        for root in superblock
            .checkpoints
            .iter()
            .flatten()
            .filter(|root| h.epoch < root.epoch)
        {
            seqs.iter_mut()
                .zip(&root.replay)
                .for_each(|(seq, position)| {
                    *seq = BatchSeq(position.seq.0.saturating_sub(1)).min(*seq)
                });
            through = through.min(root.lsn);
        }
        durable.claim(superblock, h.epoch, &seqs, through);
        self.highest_lsn = self.highest_lsn.max(h.flushed_through);
    }

    /// Adds flushed numbers of this epoch.
    fn flushed(&mut self, epoch: Epoch, seqs: &[BatchSeq; MAX_STREAMS]) {
        let known = self
            .flushed_in
            .entry(epoch)
            .or_insert([BatchSeq(0); MAX_STREAMS]);
        known
            .iter_mut()
            .zip(seqs)
            .for_each(|(known, seq)| *known = (*known).max(*seq));
    }

    /// Segments overwritten by a newer incarnation of another one, as far as is known.
    fn find_remains(&self, zones: &ZoneMap) -> BTreeSet<SegmentId> {
        if !zones.has_superseded() {
            return BTreeSet::new();
        }
        let is_newer = |one: SegmentId, other: SegmentId| {
            let (Some(own), Some(others)) = (
                &self.incarnations[one.index()],
                &self.incarnations[other.index()],
            ) else {
                return false;
            };
            own.is_newer_than(others)
                .unwrap_or(zones.zone(one).layout > zones.zone(other).layout)
        };
        zones
            .segments()
            .filter(|id| {
                zones
                    .overlapping(*id)
                    .iter()
                    .any(|over| is_newer(*over, *id))
            })
            .collect()
    }

    /// Finds the remains; of those only batches that verify to the last byte are kept, for their
    /// records.
    fn drop_overwritten(&mut self, reader: &mut Reader<'_>) -> Result<(), OpenError> {
        self.remains = self.find_remains(reader.zones);
        if self.remains.is_empty() {
            return Ok(());
        }
        for list in &mut self.streams {
            let mut kept = Vec::with_capacity(list.len());
            for taken in std::mem::take(list) {
                let whole = !self.remains.contains(&taken.segment) || {
                    let (batch, ends) = taken.read(reader)?;
                    verify_payload(reader, &batch, &ends)? != Found::Unverified
                };
                if whole {
                    kept.push(taken);
                }
            }
            *list = kept;
        }
        self.gaps.retain(|gap| !self.remains.contains(&gap.segment));
        Ok(())
    }

    fn drop_void(&mut self, superblock: &Superblock, stream: usize) {
        let list = &mut self.streams[stream];
        let before = list.len();
        let mut counts = which_count(superblock, stream, list).into_iter();
        list.retain(|_| counts.next().unwrap_or(false));
        self.void_batches += (before - list.len()) as u64;
    }

    /// Cuts the list at the first batch that nothing proves durable and that is missing or does not
    /// verify.
    fn drop_torn(
        &mut self,
        reader: &mut Reader<'_>,
        stream: usize,
        flushed: BatchSeq,
    ) -> Result<(), OpenError> {
        let first = self.streams[stream].partition_point(|t| t.seq <= flushed);
        let mut end = self.streams[stream].len();
        for at in first..end {
            let taken = &self.streams[stream][at];
            let expected = BatchSeq(flushed.0 + (at - first) as u64 + 1);
            let found = if taken.seq == expected {
                let (batch, ends) = taken.read(reader)?;
                verify_payload(reader, &batch, &ends)?
            } else {
                Found::Nothing
            };
            if !matches!(found, Found::Whole | Found::Incomplete) {
                end = at;
                break;
            }
            // Remains of an earlier incarnation were overwritten: nothing is written there.
            let is_its_own = !self.remains.contains(&taken.segment);
            self.streams[stream][at].incomplete = found == Found::Incomplete && is_its_own;
        }
        self.torn.extend(
            self.streams[stream]
                .drain(end..)
                .map(|taken| (stream, taken)),
        );
        Ok(())
    }
}

/// Sorts batches of a stream by number and marks those that are not void (rule 3).
fn which_count(superblock: &Superblock, stream: usize, list: &mut [Taken]) -> Vec<bool> {
    list.sort_by_key(|t| (t.seq, t.epoch));
    let mut newest = Epoch(0);
    let mut keep: Vec<bool> = Vec::with_capacity(list.len());
    for taken in list.iter() {
        let fenced =
            fence_of(superblock, taken.epoch).is_some_and(|f| taken.seq > f.last_seq[stream]);
        let overtaken = superblock
            .checkpoints
            .iter()
            .flatten()
            .any(|r| taken.epoch < r.epoch && taken.seq >= r.replay[stream].seq);
        let valid = !fenced && !overtaken;
        if valid {
            newest = newest.max(taken.epoch);
        }
        keep.push(valid && taken.epoch >= newest);
    }
    // Of equal numbers the last one has the highest epoch.
    for at in 1..list.len() {
        if list[at].seq == list[at - 1].seq && keep[at] {
            keep[at - 1] = false;
        }
    }
    keep
}

/// Segments of batches of a sorted stream that a start may have refused. These are void batches and
/// those that nothing of their epoch proves flushed. So is the last valid one of each epoch but the
/// newest, flushed or not. (A batch after missing LSNs is refused even if it was flushed.)
fn refused(
    list: &[Taken],
    counts: &[bool],
    newest: Epoch,
    flushed: impl Fn(&Taken) -> BatchSeq,
) -> BTreeSet<SegmentId> {
    let mut segments = BTreeSet::new();
    let mut next = newest;
    for (taken, counts) in list.iter().zip(counts).rev() {
        if !counts || taken.epoch < next || (taken.epoch < newest && taken.seq > flushed(taken)) {
            segments.insert(taken.segment);
        }
        if *counts {
            next = taken.epoch;
        }
    }
    segments
}

/// Walk through a segment.
struct Walk<'s> {
    superblock: &'s Superblock,
    segment: SegmentId,
    shape: Shape,
    thorough: bool,
    /// The batch that ends at the walk's position.
    last: Option<HeaderFrame>,
    /// Highest epoch and number left by an interrupted salvage. They are of an epoch that no
    /// superblock has, and are ignored, whatever comes before and after.
    beyond: Cell<(Epoch, BatchSeq)>,
}

impl Walk<'_> {
    fn is_possible(&self, frame: &HeaderFrame) -> bool {
        let h = &frame.header;
        let known = h.epoch <= self.superblock.epoch;
        if !known {
            let (epoch, seq) = self.beyond.get();
            self.beyond.set((epoch.max(h.epoch), seq.max(h.seq)));
        }
        h.shape == self.shape && known
    }

    /// Header of the batch that begins at `row`, with its block.
    fn begins(
        &self,
        reader: &mut Reader<'_>,
        row: u32,
    ) -> Result<Option<(HeaderFrame, Buf)>, OpenError> {
        let fits = |frame: &HeaderFrame| {
            self.is_possible(frame) && self.last.as_ref().is_none_or(|last| follows(last, frame))
        };
        if self.last.is_none() {
            return Ok(newest(reader.all_headers(self.segment, row, fits)?));
        }
        // Its number is known: no other one is taken for it. A lost write may leave a batch there
        // that a start refused.
        let saw_void = Cell::new(false);
        let counts = |frame: &HeaderFrame| {
            let void = fits(frame) && is_fenced(self.superblock, frame);
            saw_void.set(saw_void.get() || void);
            fits(frame) && !void
        };
        let header = if self.thorough {
            newest(reader.all_headers(self.segment, row, counts)?)
        } else {
            reader.header(self.segment, row, counts)?
        };
        Ok(match header {
            None if saw_void.get() => reader.header(self.segment, row, fits)?,
            header => header,
        })
    }

    /// Header of the batch after the gap at `row`.
    fn behind(&self, reader: &mut Reader<'_>, row: u32) -> Result<Option<HeaderFrame>, OpenError> {
        let (segment, shape, last) = (self.segment, &self.shape, self.last.as_ref());
        let later = |frame: &HeaderFrame| {
            self.is_possible(frame) && last.is_none_or(|l| is_later(l, frame))
        };
        let starts: Vec<u32> = (row + 1..shape.chunk_end(row))
            .chain((shape.chunk_end(row)..shape.rows).step_by(shape.chunk_rows as usize))
            .collect();
        let found = reader
            .headers(segment, &starts, self.thorough, later)?
            .into_iter()
            .min_by_key(|f| f.header.row);
        // The start of the next chunk is unreadable as well: batches inside it, and inside later
        // chunks, may still be readable.
        let (next, end) = (
            shape.chunk_end(row),
            found.as_ref().map_or(shape.rows, |f| f.header.row),
        );
        if last.is_none() || end <= next {
            return Ok(found);
        }
        Ok(first_inside(
            reader,
            segment,
            (next..end).step_by(shape.chunk_rows as usize),
            self.thorough,
            &later,
        )?
        .or(found))
    }
}

/// The first header that fits inside the chunks at `starts`, the chunk starts themselves excluded.
/// It reads one chunk at a time: a segment may have thousands of rows.
fn first_inside(
    reader: &mut Reader<'_>,
    segment: SegmentId,
    starts: impl Iterator<Item = u32>,
    thorough: bool,
    fits: &impl Fn(&HeaderFrame) -> bool,
) -> Result<Option<HeaderFrame>, OpenError> {
    let shape = *reader.zones.shape(segment);
    for start in starts {
        let rows: Vec<u32> = (start + 1..shape.chunk_end(start)).collect();
        let found = reader
            .headers(segment, &rows, thorough, fits)?
            .into_iter()
            .min_by_key(|f| f.header.row);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// True if a start has refused this batch, and the fence is kept.
fn is_fenced(superblock: &Superblock, frame: &HeaderFrame) -> bool {
    let h = &frame.header;
    fence_of(superblock, h.epoch).is_some_and(|fence| h.seq > fence.last_seq[h.stream.index()])
}

/// True if `frame` is the batch directly after `last` in its segment.
fn follows(last: &HeaderFrame, frame: &HeaderFrame) -> bool {
    let (l, h) = (&last.header, &frame.header);
    h.stream == l.stream && h.seq == l.seq.next() && h.epoch >= l.epoch
}

/// True if `frame` is a later batch of the segment's present incarnation.
fn is_later(last: &HeaderFrame, frame: &HeaderFrame) -> bool {
    let (l, h) = (&last.header, &frame.header);
    h.stream == l.stream && h.seq > l.seq && h.epoch >= l.epoch
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch may be flushed and still refused, as its LSNs are after a gap that another stream
    /// left. If a first column still has it in place of the batch that reused its number, it looks
    /// like the last of its epoch. The next one then looks like its successor. The batches found
    /// are checked in turn.
    #[test]
    fn the_last_batch_of_an_epoch_is_looked_at_twice_though_it_was_flushed() {
        let batch = |segment, seq, epoch| {
            let mut taken = Taken::with_moves(0);
            (taken.segment, taken.seq, taken.epoch) =
                (SegmentId(segment), BatchSeq(seq), Epoch(epoch));
            taken
        };
        let of = |list: &[Taken], counts: &[bool], flushed: u64| -> Vec<u32> {
            refused(list, counts, Epoch(7), |_| BatchSeq(flushed))
                .into_iter()
                .map(|segment| segment.0)
                .collect()
        };
        let list = [
            batch(1, 9, 5),
            batch(2, 10, 5),
            batch(2, 11, 6),
            batch(3, 12, 7),
        ];
        assert_eq!(
            of(&list, &[true; 4], 99),
            [2],
            "the last ones of epochs 5 and 6"
        );
        assert_eq!(
            of(
                &[batch(1, 9, 5), batch(2, 10, 6), batch(3, 12, 7)],
                &[true; 3],
                99
            ),
            [1, 2],
            "after 10 of epoch 6 came to light"
        );
        assert_eq!(of(&list[..1], &[true], 99), [1], "nothing follows");
        assert_eq!(
            of(&list[..2], &[true, false], 99),
            [1, 2],
            "an invalid batch hides no other one, except perhaps in its own position"
        );
        assert_eq!(of(&list, &[true; 4], 8), [1, 2], "nothing calls it flushed");
        assert_eq!(of(&list[3..], &[true], 8), [0; 0], "of the newest epoch");
    }
}
