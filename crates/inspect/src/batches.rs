//! Search for batches: the header at a known address, head and tail, and verification of the whole.

use crate::reader::{Origin, PoolReader, Rows};
use windrow_format::batch::{BatchError, DecodedBatch, HeaderFrame, decode_batch, decode_header};
use windrow_geometry::Code;
use windrow_types::{BLOCK_SIZE, BatchSeq, Epoch, SegmentId, StreamId};

/// Limit of combinations of reconstructed head blocks that are tried. Heads have a few blocks, each
/// with about as many candidates as columns.
const MAX_COMBINATIONS: usize = 1 << 14;

/// First header at `row` that `accept` takes, read from its member or reconstructed.
pub(crate) fn find_header(
    reader: &mut PoolReader<'_>,
    segment: SegmentId,
    row: u32,
    accept: impl Fn(&HeaderFrame) -> bool,
) -> Option<HeaderFrame> {
    let shape = *reader.zones.shape(segment);
    if row >= shape.rows {
        return None;
    }
    let pool = reader.pool;
    let decode = |bytes: &[u8]| {
        decode_header(bytes, &pool, segment, row)
            .ok()
            .filter(|f| f.header.shape == shape && accept(f))
    };
    // Only the header's row: the number of rows is not known yet.
    let mut rows = Rows::new(reader, segment, row, 1);
    let mut frame = None;
    rows.find(reader, 0, |bytes| {
        frame = decode(bytes);
        frame.is_some()
    })?;
    frame
}

/// Every header at `row` that `accept` takes, read or reconstructed, those of newer epochs first.
pub(crate) fn all_headers(
    reader: &mut PoolReader<'_>,
    segment: SegmentId,
    row: u32,
    accept: impl Fn(&HeaderFrame) -> bool,
) -> Vec<HeaderFrame> {
    let (pool, shape) = (reader.pool, *reader.zones.shape(segment));
    if row >= shape.rows {
        return Vec::new();
    }
    let candidates = Rows::new(reader, segment, row, 1).candidates(reader, 0);
    let decoded = candidates
        .iter()
        .filter_map(|bytes| decode_header(bytes, &pool, segment, row).ok());
    let mut frames: Vec<HeaderFrame> = decoded
        .filter(|f| f.header.shape == shape && accept(f))
        .collect();
    frames.sort_by_key(|frame| std::cmp::Reverse(frame.header.epoch));
    frames
}

/// Header at `row` that `accept` takes; reconstructed only if its member cannot be read. For
/// positions where a batch may be, but need not be.
pub(crate) fn look_for_header(
    reader: &mut PoolReader<'_>,
    segment: SegmentId,
    row: u32,
    accept: impl Fn(&HeaderFrame) -> bool,
) -> Option<HeaderFrame> {
    let (pool, shape) = (reader.pool, *reader.zones.shape(segment));
    let mut rows = Rows::new(reader, segment, row, 1);
    match rows.direct(reader, 0) {
        Some(bytes) => decode_header(bytes, &pool, segment, row)
            .ok()
            .filter(|f| f.header.shape == shape && accept(f)),
        None => find_header(reader, segment, row, accept),
    }
}

/// Verifies head and tail of a batch whose header is known; reconstructs unreadable parts. `rows`
/// are those of the batch.
pub(crate) fn find_ends(
    reader: &mut PoolReader<'_>,
    rows: &mut Rows,
    frame: &HeaderFrame,
) -> Option<DecodedBatch> {
    let (pool, segment, row) = (reader.pool, rows.segment, rows.row);
    let tail_block = frame.tail_block();
    let head: Option<Vec<u8>> = (0..frame.head_blocks)
        .map(|b| rows.direct(reader, b).map(<[u8]>::to_vec))
        .collect::<Option<Vec<_>>>()
        .map(|b| b.concat());
    let tail = rows
        .direct(reader, tail_block)
        .map_or(vec![0; BLOCK_SIZE], <[u8]>::to_vec);
    let decode = |head: &[u8], tail: &[u8]| match decode_batch(head, tail, &pool, segment, row) {
        Ok(batch) if batch.frame == *frame => Ok(batch),
        Ok(_) => Err(BatchError::HeaderChecksum),
        Err(error) => Err(error),
    };
    // The head is judged before the tail, so an error about the tail proves the head right. The
    // head is then that of this batch, not of a stale one left by a missed write.
    let is_ours =
        |head: &[u8]| decode_header(head, &pool, segment, row).is_ok_and(|found| found == *frame);
    let is_of_tail = |error: &BatchError| {
        matches!(
            error,
            BatchError::NoFooter | BatchError::OtherFooter | BatchError::FooterChecksum
        )
    };
    let head_is_right = |head: &[u8], error: &BatchError| is_of_tail(error) && is_ours(head);
    let head = match head.map(|head| (decode(&head, &tail), head)) {
        Some((Ok(batch), _)) => return Some(batch),
        Some((Err(error), head)) if head_is_right(&head, &error) => head,
        _ => {
            let is_head = |head: &[u8]| {
                decode(head, &tail).map_or_else(|e| head_is_right(head, &e), |_| true)
            };
            let fits = |bytes: &[u8]| {
                if bytes.len() == BLOCK_SIZE && frame.head_blocks > 1 {
                    is_ours(bytes)
                } else {
                    is_head(bytes)
                }
            };
            match rows.find_together(reader, frame.head_blocks, fits) {
                Some(head) => head,
                None => {
                    let candidates: Vec<Vec<Vec<u8>>> = (0..frame.head_blocks)
                        .map(|b| rows.candidates(reader, b))
                        .collect();
                    combinations(&candidates).find(|head| is_head(head))?
                }
            }
        }
    };
    for (block, bytes) in head.chunks_exact(BLOCK_SIZE).enumerate() {
        rows.correct(block as u32, bytes);
    }
    let mut batch = None;
    rows.find_beside(reader, tail_block, &head, |tail| {
        batch = decode(&head, tail).ok();
        batch.is_some()
    })?;
    batch
}

/// Every concatenation of one candidate for each block.
fn combinations(candidates: &[Vec<Vec<u8>>]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let total = candidates
        .iter()
        .map(Vec::len)
        .fold(1usize, usize::saturating_mul)
        .min(MAX_COMBINATIONS);
    (0..total).map(move |mut number| {
        let mut bytes = Vec::with_capacity(candidates.len() * BLOCK_SIZE);
        for of_block in candidates {
            bytes.extend_from_slice(&of_block[number % of_block.len()]);
            number /= of_block.len();
        }
        bytes
    })
}

/// Expected header fields of a batch at a known address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) stream: StreamId,
    pub(crate) seq: BatchSeq,
    /// Lower bound.
    pub(crate) epoch: Epoch,
    /// Preceding batches are unreadable and their number is unknown: `seq` is a lower bound.
    pub(crate) or_later: bool,
}

impl Expected {
    pub(crate) fn matches(&self, frame: &HeaderFrame) -> bool {
        let header = &frame.header;
        let fits = if self.or_later {
            header.seq >= self.seq
        } else {
            header.seq == self.seq
        };
        header.stream == self.stream && fits && header.epoch >= self.epoch
    }

    /// Expected batch after this one.
    pub(crate) fn after(frame: &HeaderFrame) -> Self {
        Self {
            stream: frame.header.stream,
            seq: frame.header.seq.next(),
            epoch: frame.header.epoch,
            or_later: false,
        }
    }
}

/// A batch with verified head and tail, of which every byte was read.
pub(crate) struct WholeBatch {
    pub(crate) batch: DecodedBatch,
    /// Payload blocks that are neither readable nor recoverable from their row.
    pub(crate) lost: Vec<u32>,
    /// Missing and wrong parts on the members, for messages.
    pub(crate) flaws: Flaws,
    /// True if a row has more wrong or missing blocks than its redundancy covers, although
    /// everything the tables need was found. A torn block can be right as far as its checksum
    /// reaches and wrong after it. A batch that need not have been durable does not count then
    /// (docs/internals/format.md, 12.3, A).
    pub(crate) is_beyond: bool,
}

/// Parts of a batch that redundancy recovered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flaws {
    /// Data blocks on absent members.
    pub(crate) missing: u32,
    /// Data blocks that are wrong.
    pub(crate) wrong: u32,
    /// Redundancy blocks that are wrong.
    pub(crate) redundancy: u32,
}

impl Flaws {
    /// True if something is wrong on a present member; blocks on absent members are reported once,
    /// with the member.
    pub(crate) fn are_on_members(&self) -> bool {
        self.wrong + self.redundancy > 0
    }
}

/// Flaws of one row.
#[derive(Clone, Copy, Default)]
struct RowFlaws {
    /// Number of head, payload and tail blocks that were reconstructed.
    rebuilt: usize,
    /// Number of head and tail blocks among them: their checksums do not cover every byte.
    rebuilt_ends: usize,
    padding: usize,
    redundancy: usize,
}

impl RowFlaws {
    /// True if the row has more flaws than `tolerance` covers. Reconstructed payload is right to
    /// the last byte, so wrong padding was not among its sources, or its errors cancelled out. A
    /// row with only head and tail reconstructed counts if they verify, as at a start.
    fn is_beyond(&self, tolerance: usize) -> bool {
        let padding = if self.rebuilt_ends > 0 {
            self.padding
        } else {
            0
        };
        self.rebuilt > self.rebuilt_ends && self.rebuilt + self.redundancy + padding > tolerance
    }
}

/// Verifies only head and tail.
pub(crate) fn verify_ends(
    reader: &mut PoolReader<'_>,
    frame: &HeaderFrame,
) -> Option<DecodedBatch> {
    let header = &frame.header;
    let mut rows = Rows::new(reader, header.segment, header.row, header.rows);
    find_ends(reader, &mut rows, frame)
}

/// Verifies a whole batch: ends, payload, and the agreement of its redundancy. `None` if head or
/// tail is unrecoverable.
pub(crate) fn verify_whole(reader: &mut PoolReader<'_>, frame: &HeaderFrame) -> Option<WholeBatch> {
    let header = &frame.header;
    let mut rows = Rows::new(reader, header.segment, header.row, header.rows);
    rows.load(reader, 0..usize::from(header.shape.width), 0, header.rows);
    let batch = find_ends(reader, &mut rows, frame)?;
    let lost: Vec<u32> = batch
        .payload_blocks()
        .filter(|(block, sum)| rows.find_checksum(reader, *block, *sum).is_none())
        .map(|(block, _)| block)
        .collect();
    let mut flaws = Flaws {
        wrong: lost.len() as u32,
        ..Flaws::default()
    };
    let mut of_rows = vec![RowFlaws::default(); header.rows as usize];
    let blocks = (0..frame.head_blocks + frame.payload_blocks).chain([frame.tail_block()]);
    for block in blocks.filter(|block| !lost.contains(block)) {
        let of_row = &mut of_rows[rows.position(block).1 as usize];
        match rows.origin(block) {
            Origin::Member => continue,
            Origin::Missing => flaws.missing += 1,
            Origin::Wrong => flaws.wrong += 1,
        }
        of_row.rebuilt += 1;
        of_row.rebuilt_ends += usize::from(
            !(frame.head_blocks..frame.head_blocks + frame.payload_blocks).contains(&block),
        );
    }
    for block in frame.head_blocks + frame.payload_blocks..frame.tail_block() {
        if rows.bytes(block).iter().any(|byte| *byte != 0) || rows.origin(block) != Origin::Member {
            of_rows[rows.position(block).1 as usize].padding += 1;
            rows.correct(block, &[0; BLOCK_SIZE]);
        }
    }
    let (_, wrong) = rows.compare_redundancy(reader);
    wrong
        .iter()
        .for_each(|(row, _)| of_rows[*row as usize].redundancy += 1);
    flaws.redundancy = wrong.len() as u32;
    let is_beyond = header.shape.code != Code::Copies
        && of_rows
            .iter()
            .any(|row| row.is_beyond(header.shape.tolerance()));
    Some(WholeBatch {
        batch,
        lost,
        flaws,
        is_beyond,
    })
}
