//! Chains: the batches of each stream after the checkpoint, and the durability that they prove.
//!
//! 1. Each stream is followed from its replay position. A batch is taken if its header is the
//!    expected one, no fence voids it, and head and tail verify. Every header read reports what was
//!    durable when it was sealed ([`Durable`]).
//! 2. Batches above the flushed number of their stream must verify to the last byte. The chain is
//!    cut at the first that does not.
//! 3. The rows after a chain's end are searched: the rest of its chunk, row 0 of the segment's
//!    further chunks, and the successor segment. A later batch of the stream may be there whose
//!    predecessor is lost, and it may prove that the predecessor was durable. Nothing is taken from
//!    there. (A guest may store an image of this very pool: it has older batches, never later
//!    ones.)
//! 4. `judge.rs` decides the meaning of each end.
//!
//! Memory: about 150 bytes for each batch, and encoded tables up to [`REPLAY_TABLE_BYTES`]. Other
//! tables are re-read when needed.

use super::OpenError;
use super::fence::{batches_through, fence_of};
use super::incarnation::newest;
use super::judge::{Case, Found, judge};
use super::loss::{Loss, Losses};
use super::reader::Reader;
use super::redundancy::verify_payload;
use crate::base::limits::{
    CLEANED_STREAMS, REPLAY_TABLE_BYTES, STREAM_CHECKPOINT, STREAMS, USER_STREAMS, is_user,
};
use crate::store::ends::Ends;
use crate::store::stream::Stream;
use std::cell::Cell;
use windrow_format::batch::{DecodedBatch, Entry, HeaderFrame};
use windrow_format::superblock::{CheckpointRoot, StreamPosition, Superblock};
use windrow_types::{BatchSeq, Epoch, Lsn, MAX_STREAMS, SegmentId};

/// Number of flushed batches at the end of an epoch to check for a refusal by a later start.
const FLUSHED_DOUBTED: usize = 8;

/// Rows in the chunk of the end, and chunk starts after it, whose header is reconstructed if
/// nothing there fits. Writes that were in flight at a power loss reach little further, and each of
/// these headers has the needed claims.
const REBUILT_BEHIND: usize = 8;

/// A batch of a chain.
pub(super) struct Taken {
    pub(super) segment: SegmentId,
    pub(super) row: u32,
    pub(super) rows: u32,
    pub(super) seq: BatchSeq,
    pub(super) epoch: Epoch,
    header_checksum: u64,
    ends: Option<Ends>,
    pub(super) entries: u32,
    pub(super) moves: u32,
    /// Runs of LSNs (first, last) that it covers.
    pub(super) lsns: Vec<(u64, u64)>,
    /// True if parts of it are missing or wrong on a member.
    pub(super) incomplete: bool,
}

impl Taken {
    pub(super) fn new(batch: &DecodedBatch, ends: Option<Ends>) -> Self {
        let h = &batch.frame.header;
        let mut lsns: Vec<(u64, u64)> = Vec::new();
        for (first, count) in batch.entries.iter().filter_map(|e| lsns_of(&e.entry)) {
            push_range(&mut lsns, first.0, first.0.saturating_add(count - 1));
        }
        lsns.shrink_to_fit();
        Self {
            segment: h.segment,
            row: h.row,
            rows: h.rows,
            seq: h.seq,
            epoch: h.epoch,
            header_checksum: batch.frame.header_checksum,
            ends,
            entries: batch.entries.len() as u32,
            moves: batch
                .entries
                .iter()
                .filter(|e| matches!(e.entry, Entry::Move { .. }))
                .count() as u32,
            lsns,
            incomplete: false,
        }
    }

    /// A batch with `moves` moves, for tests.
    #[cfg(test)]
    pub(super) fn with_moves(moves: u32) -> Self {
        let (segment, seq, epoch) = (SegmentId(0), BatchSeq(1), Epoch(1));
        Self {
            segment,
            row: 0,
            rows: 1,
            seq,
            epoch,
            header_checksum: 0,
            ends: None,
            entries: moves,
            moves,
            lsns: Vec::new(),
            incomplete: false,
        }
    }

    /// Bytes of its head and tail in memory.
    pub(super) fn kept(&self) -> usize {
        self.ends.as_ref().map_or(0, Ends::len)
    }

    /// Its entries, from memory or re-read.
    pub(super) fn batch(&self, reader: &mut Reader<'_>) -> Result<DecodedBatch, OpenError> {
        match self
            .ends
            .as_ref()
            .and_then(|ends| reader.decode(ends, self.segment, self.row))
        {
            Some(batch) => Ok(batch),
            None => Ok(self.read_again(reader)?.0),
        }
    }

    /// Its entries, and the head and tail that contain them.
    pub(super) fn read(&self, reader: &mut Reader<'_>) -> Result<(DecodedBatch, Ends), OpenError> {
        let kept = self
            .ends
            .as_ref()
            .and_then(|ends| Some((reader.decode(ends, self.segment, self.row)?, ends.clone())));
        kept.map_or_else(|| self.read_again(reader), Ok)
    }

    fn read_again(&self, reader: &mut Reader<'_>) -> Result<(DecodedBatch, Ends), OpenError> {
        if let Some((frame, block)) = reader.header(self.segment, self.row, |f| {
            f.header_checksum == self.header_checksum
        })? && let Some(found) = reader.ends(&frame, block)?
        {
            return Ok(found);
        }
        Err(OpenError::Damage(format!(
            "batch {} in segment {} row {} could be read once, but not again",
            self.seq, self.segment, self.row
        )))
    }
}

/// First LSN and number of LSNs that an entry accounts for.
pub(super) fn lsns_of(entry: &Entry) -> Option<(Lsn, u64)> {
    match entry {
        Entry::Data { birth, .. } | Entry::Fill { birth, .. } | Entry::Reference { birth, .. } => {
            Some((*birth, 1))
        }
        Entry::Range { lsn, .. } | Entry::Volume { lsn, .. } => Some((*lsn, 1)),
        Entry::Covered { first, count } => Some((*first, *count)),
        Entry::Move { .. } | Entry::Page { .. } => None,
    }
}

pub(super) fn push_range(ranges: &mut Vec<(u64, u64)>, first: u64, last: u64) {
    match ranges.last_mut() {
        Some(range) if range.1.checked_add(1) == Some(first) => range.1 = last,
        _ => ranges.push((first, last)),
    }
}

/// Durability that the members prove. A claim of an older epoch covers batches and LSNs that the
/// fence after it accepted. Later epochs reuse the numbers beyond the fence, so the claim is cut
/// there.
#[derive(Debug)]
pub(super) struct Durable {
    pub(super) seqs: [BatchSeq; MAX_STREAMS],
    pub(super) through: Lsn,
}

impl Durable {
    /// No claim.
    pub(super) fn nothing() -> Self {
        Self {
            seqs: [BatchSeq(0); MAX_STREAMS],
            through: Lsn(0),
        }
    }

    /// Adds the claim of a header, root or fence of an epoch.
    pub(super) fn claim(
        &mut self,
        superblock: &Superblock,
        epoch: Epoch,
        seqs: &[BatchSeq; MAX_STREAMS],
        through: Lsn,
    ) {
        let fence = fence_of(superblock, epoch);
        for (stream, (known, claimed)) in self.seqs.iter_mut().zip(seqs).enumerate() {
            *known = (*known).max(fence.map_or(*claimed, |f| f.last_seq[stream].min(*claimed)));
        }
        // LSNs between a fence's recovery point and its next LSN were never used: they count as
        // present.
        let claimed = fence.map_or(through, |f| through.min(f.recovery_lsn));
        self.through = self.through.max(claimed);
    }

    /// Adds the claims of a checkpoint root, readable or not, and of the fences.
    pub(super) fn claim_root(&mut self, superblock: &Superblock, root: &CheckpointRoot) {
        self.claim(
            superblock,
            root.epoch,
            &root.flushed_seq,
            root.flushed_through,
        );
        for fence in &superblock.fences {
            // A fence is written only after everything it accepted is durable. Its claim is of its
            // own epoch.
            self.claim(superblock, fence.epoch, &fence.last_seq, fence.recovery_lsn);
        }
    }
}

/// The valid batches of one stream.
pub(super) struct Chain {
    pub(super) stream: usize,
    pub(super) batches: Vec<Taken>,
    /// Position of the next batch; `next_segment` as far as it is known.
    pub(super) next: StreamPosition,
    pub(super) end: Found,
    /// Header of the batch that does not verify.
    unverified: Option<HeaderFrame>,
    /// Segment and row of a later batch of the stream, after the end.
    behind: Option<(SegmentId, u32)>,
}

impl Chain {
    /// A chain for tests: segment 0, row and number of rows of each batch.
    #[cfg(test)]
    pub(super) fn of_rows(stream: usize, rows: &[(u32, u32)]) -> Self {
        let batches: Vec<Taken> = (1..)
            .zip(rows)
            .map(|(seq, (row, rows))| Taken {
                row: *row,
                rows: *rows,
                seq: BatchSeq(seq),
                ..Taken::with_moves(0)
            })
            .collect();
        let row = batches.last().map_or(0, |last| last.row + last.rows);
        let next = StreamPosition {
            segment: SegmentId(0),
            row,
            seq: BatchSeq(batches.len() as u64 + 1),
            next_segment: SegmentId::NONE,
        };
        Self {
            stream,
            batches,
            next,
            end: Found::Nothing,
            unverified: None,
            behind: None,
        }
    }

    /// Appends the batch and expects the next one after it.
    fn take(&mut self, batch: &DecodedBatch, ends: Ends, budget: &mut usize) {
        let h = &batch.frame.header;
        let kept = if ends.len() <= *budget {
            Some(ends)
        } else {
            None
        };
        *budget -= kept.as_ref().map_or(0, Ends::len);
        self.batches.push(Taken::new(batch, kept));
        self.next = StreamPosition {
            segment: h.segment,
            row: h.row + h.rows,
            seq: h.seq.next(),
            next_segment: h.next_segment,
        };
        if self.next.row >= h.shape.rows {
            self.next = StreamPosition {
                segment: h.next_segment,
                row: 0,
                seq: h.seq.next(),
                next_segment: SegmentId::NONE,
            };
        }
    }

    /// Drops the batches from `at` on and expects one in its place. Returns the bytes of heads and
    /// tails released.
    fn drop_from(&mut self, at: usize) -> usize {
        let first = &self.batches[at];
        self.next = StreamPosition {
            segment: first.segment,
            row: first.row,
            seq: first.seq,
            next_segment: SegmentId::NONE,
        };
        self.batches.drain(at..).map(|refused| refused.kept()).sum()
    }

    /// Number of the last valid batch.
    pub(super) fn last_seq(&self) -> BatchSeq {
        BatchSeq(self.next.seq.0.saturating_sub(1))
    }

    /// User streams: drops the batches at the end that have no valid LSN, as they are after the gap
    /// at which the log ends. They hold no live data. The stream continues in their place, so that
    /// readmission needs no more segments than the entries had before.
    fn drop_void(&mut self, superblock: &Superblock, covered: Lsn) {
        let is_void = |batch: &Taken| {
            let through = batches_through(superblock, batch.epoch).min(covered).0;
            !batch.lsns.is_empty() && batch.lsns.iter().all(|(first, _)| *first > through)
        };
        self.drop_last_while(is_void);
    }

    /// Checkpoint stream: drops the batches after the last page of `root`, the checkpoint that was
    /// loaded. They belong to later checkpoints that were cut off or are unreadable, and nothing
    /// refers to them. If they stayed, each such crash would cost the segments that it filled,
    /// until a checkpoint completes.
    fn drop_rootless(&mut self, root: &CheckpointRoot) {
        let last_page = root.flushed_seq[STREAM_CHECKPOINT];
        self.drop_last_while(|batch| batch.seq > last_page);
    }

    fn drop_last_while(&mut self, is_left_out: impl Fn(&Taken) -> bool) {
        while let Some(batch) = self.batches.pop_if(|batch| is_left_out(batch)) {
            self.next = StreamPosition {
                segment: batch.segment,
                row: batch.row,
                seq: batch.seq,
                next_segment: SegmentId::NONE,
            };
        }
    }
}

/// All chains.
pub(super) struct Chains {
    list: Vec<Chain>,
    pub(super) durable: Durable,
}

impl Chains {
    /// The chain of a stream.
    pub(super) fn of(&self, stream: usize) -> &Chain {
        &self.list[crate::store::stream::slot(stream)]
    }

    /// Batches of user entries, stream after stream.
    pub(super) fn users(&self) -> impl Iterator<Item = &Taken> {
        USER_STREAMS.iter().flat_map(|id| &self.of(*id).batches)
    }

    /// Batches of moved blocks in the order in which their moves are applied: the first stream last
    /// (`Upkeep::stream_for_move`).
    pub(super) fn moves(&self) -> Vec<&Taken> {
        CLEANED_STREAMS
            .iter()
            .rev()
            .flat_map(|id| &self.of(*id).batches)
            .collect()
    }

    /// Reason that the end of a chain is damage if everything up to `accepted` is there; `None` if
    /// it is none.
    pub(super) fn damage(&self, chain: &Chain, accepted: Lsn) -> Option<&'static str> {
        // A further stream that was never opened cannot be the missing one.
        let by_lsn = is_user(chain.stream)
            && (chain.stream == 0 || chain.end != Found::NeverOpened)
            && accepted < self.durable.through;
        let by_seq = chain.next.seq <= self.durable.seqs[chain.stream];
        judge(chain.end, by_seq || by_lsn).damage()
    }

    /// All chains, in order of the streams.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Chain> {
        self.list.iter()
    }

    /// Drops batches without effect at the ends of chains ([`Chain::drop_void`],
    /// [`Chain::drop_rootless`]), so that the streams continue in their place. The ends must have
    /// been judged before. A broken checkpoint chain stays as it is (`stray.rs`).
    pub(super) fn drop_idle(
        &mut self,
        superblock: &Superblock,
        root: &CheckpointRoot,
        covered: Lsn,
        checkpoint_broken: bool,
    ) {
        for chain in &mut self.list {
            if is_user(chain.stream) {
                chain.drop_void(superblock, covered);
            } else if chain.stream == STREAM_CHECKPOINT && !checkpoint_broken {
                chain.drop_rootless(root);
            }
        }
    }
}

/// Follows all streams from `root`.
pub(super) fn collect(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    root: &CheckpointRoot,
) -> Result<Chains, OpenError> {
    let mut chains = Chains {
        list: Vec::new(),
        durable: Durable::nothing(),
    };
    for root in superblock.checkpoints.iter().flatten() {
        chains.durable.claim_root(superblock, root);
    }
    let mut budget = REPLAY_TABLE_BYTES;
    for stream in STREAMS {
        let walk = Walk {
            superblock,
            root,
            stream,
        };
        let chain = walk.follow(reader, &mut chains.durable, &mut budget)?;
        chains.list.push(chain);
    }
    for slot in 0..chains.list.len() {
        let walk = Walk {
            superblock,
            root,
            stream: chains.list[slot].stream,
        };
        walk.look_behind(reader, &mut chains.list[slot], &mut chains.durable)?;
    }
    for slot in 0..chains.list.len() {
        let flushed = chains.durable.seqs[chains.list[slot].stream];
        verify_recent(reader, &mut chains.list[slot], flushed)?;
    }
    reader.forget();
    Ok(chains)
}

/// Content of a chain's next position.
enum Step {
    Next(DecodedBatch, Ends),
    /// Case of the end, and the header of a batch that does not verify.
    End(Found, Option<HeaderFrame>),
}

/// Walk along one stream.
struct Walk<'s> {
    superblock: &'s Superblock,
    root: &'s CheckpointRoot,
    stream: usize,
}

impl Walk<'_> {
    /// True if the header is of this stream and not older than the root. The root's positions are
    /// those of its own epoch. Any older batch there is void, even if the fence that voids it was
    /// dropped with an earlier checkpoint.
    fn is_ours(
        &self,
        frame: &HeaderFrame,
        reader_shape: &windrow_geometry::Shape,
        epoch: Epoch,
    ) -> bool {
        let h = &frame.header;
        usize::from(h.stream.0) == self.stream
            && h.shape == *reader_shape
            && h.epoch >= epoch
            && h.epoch <= self.superblock.epoch
    }

    fn is_void(&self, frame: &HeaderFrame) -> bool {
        fence_of(self.superblock, frame.header.epoch)
            .is_some_and(|f| frame.header.seq > f.last_seq[self.stream])
    }

    /// Epoch of a batch that would be the next one, if no superblock has that epoch. An epoch is
    /// durable in the superblocks of all members in use before its first batch is written, so those
    /// superblocks are lost. A start without them would silently roll the pool back.
    fn newer_epoch(
        &self,
        frame: &HeaderFrame,
        shape: &windrow_geometry::Shape,
        seq: BatchSeq,
    ) -> Option<Epoch> {
        let h = &frame.header;
        let next = usize::from(h.stream.0) == self.stream && h.shape == *shape && h.seq == seq;
        (next && h.epoch > self.superblock.epoch).then_some(h.epoch)
    }

    fn claim(&self, durable: &mut Durable, frame: &HeaderFrame) {
        let h = &frame.header;
        durable.claim(self.superblock, h.epoch, &h.flushed_seq, h.flushed_through);
    }

    fn follow(
        &self,
        reader: &mut Reader<'_>,
        durable: &mut Durable,
        budget: &mut usize,
    ) -> Result<Chain, OpenError> {
        let next = self.root.replay[self.stream];
        let mut chain = Chain {
            stream: self.stream,
            batches: Vec::new(),
            next,
            end: Found::Nothing,
            unverified: None,
            behind: None,
        };
        if !reader.zones.contains(next.segment) {
            chain.end = Found::NeverOpened;
            chain.next = StreamPosition {
                next_segment: SegmentId::NONE,
                ..next
            };
            return Ok(chain);
        }
        // Flushed number of the stream in the last batch's epoch, as that epoch knew it.
        let mut flushed = (Epoch(0), BatchSeq(0));
        loop {
            let mut step = self.step(reader, durable, &chain)?;
            let epoch = chain
                .batches
                .last()
                .map_or(self.root.epoch, |last| last.epoch);
            if !matches!(&step, Step::Next(batch, _) if batch.frame.header.epoch == epoch)
                && let Some((at, newer)) = self.refused(reader, durable, &chain, flushed)?
            {
                *budget += chain.drop_from(at);
                step = newer;
            }
            match step {
                Step::Next(batch, ends) => {
                    let h = &batch.frame.header;
                    let before = if flushed.0 == h.epoch {
                        flushed.1
                    } else {
                        BatchSeq(0)
                    };
                    flushed = (h.epoch, before.max(h.flushed_seq[self.stream]));
                    chain.take(&batch, ends, budget);
                    self.claim(durable, &batch.frame);
                }
                Step::End(found, unverified) => {
                    // At the start of a segment, or where batches were dropped, only this header
                    // names the successor.
                    if let Some(frame) = &unverified
                        && chain.next.next_segment == SegmentId::NONE
                    {
                        chain.next.next_segment = frame.header.next_segment;
                    }
                    (chain.end, chain.unverified) = (found, unverified);
                    return Ok(chain);
                }
            }
        }
    }

    /// The first batch of the last epoch that an earlier start refused, although its fence is gone,
    /// and the content of its position: see [`Self::newer_in_place`]. A refused batch is at the end
    /// of its epoch, whole or not. A flushed one may have been refused because its LSNs were after
    /// a gap, so the last [`FLUSHED_DOUBTED`] flushed ones are checked as well.
    fn refused(
        &self,
        reader: &mut Reader<'_>,
        durable: &mut Durable,
        chain: &Chain,
        (epoch, flushed): (Epoch, BatchSeq),
    ) -> Result<Option<(usize, Step)>, OpenError> {
        let of_epoch = |taken: &&Taken| taken.epoch == epoch;
        let doubtful = chain
            .batches
            .iter()
            .rev()
            .take_while(of_epoch)
            .enumerate()
            .take_while(|(back, taken)| *back < FLUSHED_DOUBTED || taken.seq > flushed)
            .count();
        for at in chain.batches.len() - doubtful..chain.batches.len() {
            let taken = &chain.batches[at];
            let newer = self.newer_in_place(
                reader,
                durable,
                (taken.segment, taken.row),
                taken.seq,
                taken.epoch,
            )?;
            if newer.is_some() {
                return Ok(newer.map(|newer| (at, newer)));
            }
        }
        Ok(None)
    }

    /// Content of the position where the next batch of the chain is expected.
    fn step(
        &self,
        reader: &mut Reader<'_>,
        durable: &mut Durable,
        chain: &Chain,
    ) -> Result<Step, OpenError> {
        let StreamPosition {
            segment, row, seq, ..
        } = chain.next;
        if !reader.zones.contains(segment) {
            return Ok(Step::End(Found::Nothing, None));
        }
        let epoch = chain
            .batches
            .last()
            .map_or(self.root.epoch, |last| last.epoch);
        let shape = *reader.zones.shape(segment);
        // Where a write was lost, a void header may be in place of the expected one. Then the
        // expected one is reconstructed.
        let saw_void = Cell::new(false);
        let newer = Cell::new(None);
        let expected = |frame: &HeaderFrame| {
            newer.set(newer.get().or(self.newer_epoch(frame, &shape, seq)));
            let ours = frame.header.seq == seq && self.is_ours(frame, &shape, epoch);
            saw_void.set(saw_void.get() || (ours && self.is_void(frame)));
            ours && !self.is_void(frame)
        };
        let header = reader.header(segment, row, expected)?;
        if let Some(epoch) = newer.get() {
            let known = self.superblock.epoch;
            let text = format!(
                "segment {segment} row {row} has a batch of epoch {epoch}, but no superblock is newer than epoch {known}"
            );
            return Err(OpenError::Damage(format!(
                "{text}: the newest superblocks are lost, and later writes are unknown"
            )));
        }
        let Some((frame, block)) = header else {
            return Ok(Step::End(
                if saw_void.get() {
                    Found::Void
                } else {
                    Found::Nothing
                },
                None,
            ));
        };
        self.claim(durable, &frame);
        if let Some((batch, ends)) = reader.ends(&frame, block)? {
            return Ok(Step::Next(batch, ends));
        }
        let newer =
            self.newer_in_place(reader, durable, (segment, row), seq, frame.header.epoch)?;
        Ok(newer.unwrap_or(Step::End(Found::Unverified, Some(frame))))
    }

    /// Newer batch in a position where a batch of an older epoch has the same number. If there is
    /// one, the older batch was refused and its number was reused. The first column missed the
    /// newer write, and the fence of the refusal is gone. (Within one epoch the batch found first
    /// is the only one.)
    fn newer_in_place(
        &self,
        reader: &mut Reader<'_>,
        durable: &mut Durable,
        (segment, row): (SegmentId, u32),
        seq: BatchSeq,
        epoch: Epoch,
    ) -> Result<Option<Step>, OpenError> {
        if epoch >= self.superblock.epoch {
            return Ok(None);
        }
        let shape = *reader.zones.shape(segment);
        let fits = |frame: &HeaderFrame| {
            frame.header.seq == seq
                && self.is_ours(frame, &shape, epoch.next())
                && !self.is_void(frame)
        };
        let Some((frame, block)) = newest(reader.all_headers(segment, row, fits)?) else {
            return Ok(None);
        };
        self.claim(durable, &frame);
        let found = reader.ends(&frame, block)?;
        Ok(Some(found.map_or(
            Step::End(Found::Unverified, Some(frame)),
            |(batch, ends)| Step::Next(batch, ends),
        )))
    }

    /// Collects the claims of later batches after the end of a chain.
    fn look_behind(
        &self,
        reader: &mut Reader<'_>,
        chain: &mut Chain,
        durable: &mut Durable,
    ) -> Result<(), OpenError> {
        if chain.end == Found::NeverOpened {
            return Ok(());
        }
        let epoch = chain.batches.last().map_or(self.root.epoch, |b| b.epoch);
        let mut visited: Vec<SegmentId> = Vec::new();
        let mut to_visit = vec![
            (chain.next.next_segment, 0),
            (chain.next.segment, chain.next.row + 1),
        ];
        while let Some((segment, first)) = to_visit.pop() {
            if !reader.zones.contains(segment) || visited.contains(&segment) {
                continue;
            }
            visited.push(segment);
            let shape = *reader.zones.shape(segment);
            let starts: Vec<u32> = (first.next_multiple_of(shape.chunk_rows)..shape.rows)
                .step_by(shape.chunk_rows as usize)
                .collect();
            let inside: Vec<u32> =
                (first..first.next_multiple_of(shape.chunk_rows).min(shape.rows)).collect();
            let (near, far) = starts.split_at(starts.len().min(REBUILT_BEHIND));
            let later = |frame: &HeaderFrame| {
                frame.header.seq > chain.next.seq
                    && self.is_ours(frame, &shape, epoch)
                    && !self.is_void(frame)
            };
            // Each batch between them takes at least one row.
            let inside_later = |frame: &HeaderFrame| {
                later(frame)
                    && frame.header.seq.0 - chain.next.seq.0
                        <= u64::from(frame.header.row - chain.next.row)
            };
            let (beside, further) = inside.split_at(inside.len().min(REBUILT_BEHIND));
            let mut found = reader.headers(segment, beside, true, inside_later)?;
            found.extend(reader.headers(segment, further, false, inside_later)?);
            found.extend(reader.headers(segment, near, true, later)?);
            found.extend(reader.headers(segment, far, false, later)?);
            for frame in found {
                self.claim(durable, &frame);
                let h = &frame.header;
                chain.behind = chain.behind.or(Some((h.segment, h.row)));
                to_visit.push((h.next_segment, 0));
            }
        }
        Ok(())
    }
}

/// Verifies batches above the flushed number and cuts the chain at the first that fails.
fn verify_recent(
    reader: &mut Reader<'_>,
    chain: &mut Chain,
    flushed: BatchSeq,
) -> Result<(), OpenError> {
    let first = chain.batches.partition_point(|b| b.seq <= flushed);
    for at in first..chain.batches.len() {
        let (batch, ends) = chain.batches[at].read(reader)?;
        let found = verify_payload(reader, &batch, &ends)?;
        match judge(found, false) {
            Case::Accepted => {}
            Case::AcceptedIncomplete => chain.batches[at].incomplete = true,
            _ => {
                let h = &batch.frame.header;
                chain.next = StreamPosition {
                    segment: h.segment,
                    row: h.row,
                    seq: h.seq,
                    next_segment: h.next_segment,
                };
                chain.batches.truncate(at);
                (chain.end, chain.unverified) = (found, Some(batch.frame));
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns an error with the list of losses if `chains` show damage, given that everything up to
/// `accepted` is there. A lost checkpoint batch is only noted: all pages of the loaded checkpoint
/// were read, and later ones are not used (but see `stray.rs`).
pub(super) fn refuse_damage(
    reader: &mut Reader<'_>,
    chains: &Chains,
    accepted: Lsn,
    notes: &mut Vec<String>,
) -> Result<(), OpenError> {
    let mut losses = Vec::new();
    for chain in chains.iter() {
        let Some(why) = chains.damage(chain, accepted) else {
            continue;
        };
        let loss = loss_of(reader, chain, &chains.durable, accepted, why)?;
        if chain.stream == STREAM_CHECKPOINT {
            notes.push(format!("the checkpoint log is damaged; the next checkpoint starts in another segment: {loss}"));
        } else {
            losses.push(loss);
        }
    }
    if losses.is_empty() {
        Ok(())
    } else {
        Err(OpenError::Lost(Losses(losses)))
    }
}

fn loss_of(
    reader: &mut Reader<'_>,
    chain: &Chain,
    durable: &Durable,
    accepted: Lsn,
    why: &'static str,
) -> Result<Loss, OpenError> {
    let StreamPosition {
        segment, row, seq, ..
    } = chain.next;
    let lsns = is_user(chain.stream) && accepted < durable.through;
    let mut loss = Loss {
        stream: chain.stream as u8,
        seq,
        durable_seq: durable.seqs[chain.stream].max(seq),
        segment,
        row,
        end_row: row,
        lsns: lsns.then(|| (accepted.next(), durable.through)),
        blocks: Vec::new(),
        more_runs: 0,
        why,
    };
    if reader.zones.contains(segment) {
        let behind = chain.behind.filter(|b| b.0 == segment).map(|b| b.1);
        loss.end_row = behind.unwrap_or_else(|| reader.zones.shape(segment).chunk_end(row));
    }
    if let Some(frame) = &chain.unverified {
        loss.end_row = frame.header.row + frame.header.rows;
        loss.note_blocks(&reader.head_entries(frame)?);
    }
    Ok(loss)
}

/// Start positions of streams without batches.
pub(super) fn closed_positions() -> [StreamPosition; MAX_STREAMS] {
    [Stream::closed_position(); MAX_STREAMS]
}
