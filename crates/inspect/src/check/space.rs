//! Space: batches that only the older checkpoint's replay needs, compared with the segment table,
//! and sums.
//!
//! A segment without live data may be rewritten at any time, with one exception
//! (`docs/internals/format.md`, 12.7): its batches that do not precede the replay positions of both
//! kept checkpoints. Those after the newest checkpoint's position were read by the replay. Those
//! between the two must match the segment table, or a start from the older checkpoint would fail.
//! The checkpoint stream is never replayed. Segments with live data are checked batch by batch
//! elsewhere.

use super::*;
use crate::replay::is_void;
use crate::report::SpaceReport;
use windrow_format::superblock::{Fence, MAX_FENCES, StreamPosition};
use windrow_types::{ADDRESS_UNIT, MAX_STREAMS, StreamId};

/// Live blocks by segment; only segments that have any.
type Live = BTreeMap<SegmentId, u64>;

/// The stream of checkpoint pages.
const CHECKPOINT: StreamId = StreamId(3);

/// Follows each stream from the older checkpoint to the newest one.
pub(super) fn check_older_replay(
    reader: &mut PoolReader<'_>,
    superblock: &Superblock,
    root: &CheckpointRoot,
    segments: &[Segment],
    report: &mut CheckReport,
    live: &Live,
) {
    let [Some(newest), Some(older)] = &superblock.checkpoints else {
        return;
    };
    // A fence that was dropped because there was no room may have voided what is found.
    if newest.id != root.id || superblock.fences.len() >= MAX_FENCES {
        return;
    }
    for stream in (0..MAX_STREAMS as u8)
        .map(StreamId)
        .filter(|stream| *stream != CHECKPOINT)
    {
        let epochs = older.epoch..=superblock.epoch;
        Walk {
            segments,
            live,
            fences: &superblock.fences,
            stream,
            epochs,
            end: newest.replay[stream.index()].seq,
        }
        .run(reader, older, report);
    }
}

/// The walk along one stream.
struct Walk<'w> {
    segments: &'w [Segment],
    live: &'w Live,
    fences: &'w [Fence],
    stream: StreamId,
    epochs: std::ops::RangeInclusive<Epoch>,
    /// Number of the first batch that the newest checkpoint's replay has read.
    end: BatchSeq,
}

impl Walk<'_> {
    fn run(&self, reader: &mut PoolReader<'_>, older: &CheckpointRoot, report: &mut CheckReport) {
        let mut at = older.replay[self.stream.index()];
        let mut epoch = *self.epochs.start();
        while at.seq < self.end {
            if reader.zones.contains(at.segment) && at.row >= reader.zones.shape(at.segment).rows {
                (at.segment, at.row, at.next_segment) = (at.next_segment, 0, SegmentId::NONE);
            }
            // Not opened then, or in a layout that was removed.
            if !reader.zones.contains(at.segment) {
                return;
            }
            let is_live = self.live.contains_key(&at.segment);
            let Some((frame, fits)) = self.find(reader, at, epoch) else {
                if !is_live {
                    // No live data depends on it, so it is never repaired: it may be missing if
                    // members were absent.
                    let message = format!(
                        "batch {} of stream {} cannot be read; only a start from the older checkpoint would need it",
                        at.seq, self.stream
                    );
                    report.findings.add(
                        Finding::new(Severity::Note, FindingKind::BatchDamaged, message)
                            .at(at.segment, at.row),
                    );
                }
                let Some(end) = end_of_batch(
                    &self.segments[at.segment.index()],
                    self.stream,
                    at.row,
                    at.seq,
                ) else {
                    return;
                };
                (at.row, at.seq) = (end, at.seq.next());
                continue;
            };
            let header = &frame.header;
            let end = header.row + header.rows;
            if !fits && !is_live {
                let message = format!(
                    "batch {} of stream {} is in rows {} to {end}, and not in the segment table",
                    header.seq, self.stream, header.row
                );
                report.findings.add(
                    Finding::new(Severity::Error, FindingKind::StartsMismatch, message)
                        .at(at.segment, at.row),
                );
            }
            report.space.older_batches += u64::from(!is_live);
            epoch = header.epoch;
            (at.row, at.seq, at.next_segment) = (end, header.seq.next(), header.next_segment);
        }
    }

    /// Header of the expected batch, and whether the table has it. If several headers are there
    /// because the batch was rewritten, the one in the table is returned.
    fn find(
        &self,
        reader: &mut PoolReader<'_>,
        at: StreamPosition,
        epoch: Epoch,
    ) -> Option<(HeaderFrame, bool)> {
        let accept = |frame: &HeaderFrame| {
            let header = &frame.header;
            let is_it = (header.stream, header.seq) == (self.stream, at.seq)
                && header.epoch >= epoch
                && self.epochs.contains(&header.epoch);
            is_it && !is_void(self.fences, frame)
        };
        let record = &self.segments[at.segment.index()];
        let frame = find_header(reader, at.segment, at.row, accept)?;
        if has_batch(record, &frame) {
            return Some((frame, true));
        }
        let other = all_headers(reader, at.segment, at.row, accept)
            .into_iter()
            .find(|frame| has_batch(record, frame));
        Some(other.map_or((frame, false), |frame| (frame, true)))
    }
}

/// True if the table has this batch, with its rows and its number.
fn has_batch(record: &Segment, frame: &HeaderFrame) -> bool {
    let header = &frame.header;
    end_of_batch(record, header.stream, header.row, header.seq) == Some(header.row + header.rows)
}

/// Row after the batch that the table has at a row, if that batch has this stream and number.
fn end_of_batch(record: &Segment, stream: StreamId, row: u32, seq: BatchSeq) -> Option<u32> {
    let starts = record.start_rows();
    let at = starts.binary_search(&row).ok()?;
    let behind = (starts.len() - 1 - at) as u64;
    let is_it = record.stream == stream && record.last_seq.0.checked_sub(behind) == Some(seq.0);
    is_it.then(|| starts.get(at + 1).copied().unwrap_or(record.filled_rows))
}

/// Adds the live blocks of a part of the segments.
pub(super) fn add_live(references: &[Reference], report: &mut CheckReport) {
    let space = &mut report.space;
    space.live_bytes += references
        .iter()
        .map(|r| u64::from(r.units) * ADDRESS_UNIT as u64)
        .sum::<u64>();
    space.garbage_bytes = space.filled_bytes.saturating_sub(space.live_bytes);
}

/// Sums over the segments.
pub(super) fn sum_up(
    reader: &PoolReader<'_>,
    superblock: &Superblock,
    segments: &[Segment],
    live: &Live,
    report: &mut CheckReport,
) {
    let zones = &reader.zones;
    let oldest = superblock.checkpoints.iter().flatten().last();
    let is_replayed = |segment: &Segment| {
        oldest.is_some_and(|root| {
            segment.filled_rows > 0 && segment.last_seq >= root.replay[segment.stream.index()].seq
        })
    };
    let goes_on: BTreeSet<SegmentId> = report.streams.iter().map(|stream| stream.segment).collect();
    let is_kept = |id: SegmentId| {
        !live.contains_key(&id) && (goes_on.contains(&id) || is_replayed(&segments[id.index()]))
    };
    let all = || {
        (0..zones.segment_count())
            .map(SegmentId)
            .filter(|id| zones.contains(*id))
    };
    let in_force = zones
        .zones()
        .iter()
        .map(|zone| zone.layout)
        .max()
        .unwrap_or(0);
    let current: Vec<SegmentId> = all()
        .filter(|id| zones.zone(*id).layout == in_force)
        .collect();
    let is_taken = |id: SegmentId| live.contains_key(&id) || is_kept(id);
    let is_idle = |id: &SegmentId| {
        !(is_taken(*id)
            || zones.has_superseded()
                && zones.overlapping(*id).iter().any(|other| is_taken(*other)))
    };
    let data_bytes = |id: SegmentId, rows: u32| {
        u64::from(rows) * u64::from(zones.shape(id).data) * BLOCK_SIZE as u64
    };
    let filled_bytes = live
        .keys()
        .map(|id| data_bytes(*id, segments[id.index()].filled_rows))
        .sum::<u64>();
    report.space = SpaceReport {
        segments: current.len() as u64,
        segment_bytes: current
            .iter()
            .map(|id| data_bytes(*id, zones.shape(*id).rows))
            .sum(),
        kept_segments: all().filter(|id| is_kept(*id)).count() as u64,
        idle_segments: current.iter().filter(|id| is_idle(id)).count() as u64,
        filled_bytes,
        live_bytes: 0,
        garbage_bytes: filled_bytes,
        older_batches: report.space.older_batches,
    };
}

#[cfg(test)]
mod tests;
