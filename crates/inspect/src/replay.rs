//! What came after the checkpoint: chains of batches, P, and the effect on the tables.
//!
//! 1 Follow each stream's chain from its replay position; a batch counts if all of it verifies and no fence voids it.
//! 2 Judge the chain ends by the table of `docs/on-disk-format.md` section 12.3: torn, void, nothing there, or damage.
//! 3 P: the highest order with no gap below it. 4 Apply user entries up to P in ascending order, then moves by compare-and-set.

use crate::batches::{Expected, WholeBatch, find_header, verify_whole};
use crate::reader::PoolReader;
use crate::report::{Finding, FindingKind, Findings, Severity, StreamReport};
use crate::state::Tables;
use std::collections::{BTreeSet, HashMap};
use windrow_layout::batch::{Entry, FillState, HeaderFrame, RangeState, VolumeChange};
use windrow_layout::map_entry::MapEntry;
use windrow_layout::superblock::{CheckpointRoot, Fence, StreamPosition, Superblock};
use windrow_units::{Epoch, Lba, MAX_STREAMS, Order, Place, SegmentId, Seq, StreamId, VolumeId};

/// Why a chain ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    NeverOpened,
    Nothing,
    Void,
    Torn,
}

impl End {
    fn words(self) -> &'static str {
        match self {
            Self::NeverOpened => "never opened",
            Self::Nothing => "nothing written",
            Self::Void => "void by a fence",
            Self::Torn => "torn",
        }
    }
}

/// The accepted batches of one stream.
struct Chain {
    stream: StreamId,
    batches: Vec<WholeBatch>,
    /// The batch that would come next.
    next: StreamPosition,
    end: End,
}

/// The result of a replay.
pub(crate) struct Replay {
    pub(crate) accepted_order: Order,
    pub(crate) flushed_through: Order,
    pub(crate) streams: Vec<StreamReport>,
    /// Accepted batches (segment and first row) whose flaws have been reported as a whole.
    pub(crate) incomplete: BTreeSet<(SegmentId, u32)>,
}

/// The earliest fence that begins an epoch above `epoch`.
fn fence_for(fences: &[Fence], epoch: Epoch) -> Option<&Fence> {
    fences.iter().find(|f| f.epoch > epoch)
}

fn is_void(fences: &[Fence], frame: &HeaderFrame) -> bool {
    let header = &frame.header;
    fence_for(fences, header.epoch).is_some_and(|f| header.seq > f.last_seq[header.stream.index()])
}

/// Replays everything after `root` into `tables`.
pub(crate) fn replay(reader: &mut PoolReader<'_>, superblock: &Superblock, root: &CheckpointRoot, tables: &mut Tables, findings: &mut Findings) -> Replay {
    let fences = &superblock.fences;
    let chains: Vec<Chain> = (0..MAX_STREAMS as u8).map(|s| follow(reader, fences, StreamId(s), root.replay[usize::from(s)])).collect();
    let durable = durable_seqs(fences, root, &chains);
    for chain in &chains {
        judge(chain, durable[chain.stream.index()], findings);
        settle_segments(reader, chain, tables);
    }
    let accepted_order = highest_order(fences, root, &chains);
    let headers = chains.iter().flat_map(|c| &c.batches).map(|b| &b.batch.frame.header);
    let flushed_through = headers.map(|h| h.flushed_through).max().unwrap_or_default().max(root.flushed_through);
    if accepted_order < flushed_through {
        let message = format!("orders up to {flushed_through} were durable, only those up to {accepted_order} are there");
        findings.add(Finding::new(Severity::Error, FindingKind::OrdersLost, message));
    }
    let replayed = apply_user_entries(reader, fences, root, &chains, accepted_order, tables);
    apply_moves(reader, &chains, &replayed, tables);
    let streams = chains.iter().filter(|c| c.end != End::NeverOpened).map(Chain::report).collect();
    let incomplete = chains.iter().flat_map(|c| &c.batches).filter(|b| b.flaws.are_on_members()).map(|b| &b.batch.frame.header);
    let incomplete = incomplete.map(|h| (h.segment, h.row)).collect();
    Replay { accepted_order, flushed_through, streams, incomplete }
}

impl Chain {
    fn report(&self) -> StreamReport {
        StreamReport {
            stream: self.stream,
            batches: self.batches.len() as u64,
            segment: self.next.segment,
            row: self.next.row,
            seq: self.next.seq,
            end: self.end.words(),
        }
    }
}

fn follow(reader: &mut PoolReader<'_>, fences: &[Fence], stream: StreamId, start: StreamPosition) -> Chain {
    let mut chain = Chain { stream, batches: Vec::new(), next: start, end: End::NeverOpened };
    let mut epoch = Epoch(0);
    loop {
        if reader.zones.contains(chain.next.segment) && chain.next.row >= reader.zones.shape(chain.next.segment).rows {
            (chain.next.segment, chain.next.row) = (chain.next.next_segment, 0);
            chain.next.next_segment = SegmentId::NONE;
        }
        let StreamPosition { segment, row, seq, .. } = chain.next;
        if !reader.zones.contains(segment) {
            chain.end = if start.segment == SegmentId::NONE { End::NeverOpened } else { End::Nothing };
            return chain;
        }
        let expected = Expected { stream, seq, epoch };
        let Some(frame) = find_header(reader, segment, row, |f| expected.matches(f)) else {
            chain.end = End::Nothing;
            return chain;
        };
        if is_void(fences, &frame) {
            chain.end = End::Void;
            return chain;
        }
        let Some(whole) = verify_whole(reader, &frame) else {
            chain.end = End::Torn;
            return chain;
        };
        let header = &frame.header;
        epoch = header.epoch;
        chain.next = StreamPosition { segment, row: row + header.rows, seq: seq.next(), next_segment: header.next_segment };
        chain.batches.push(whole);
    }
}

/// For each stream: batches up to this number were durable, by whatever says so.
fn durable_seqs(fences: &[Fence], root: &CheckpointRoot, chains: &[Chain]) -> [Seq; MAX_STREAMS] {
    let headers = chains.iter().flat_map(|c| &c.batches).map(|b| &b.batch.frame.header.flushed_seq);
    let sources = headers.chain(fences.iter().map(|f| &f.last_seq)).chain([&root.flushed_seq]);
    sources.fold([Seq(0); MAX_STREAMS], |most, seqs| std::array::from_fn(|i| most[i].max(seqs[i])))
}

/// The table of cases: each chain end and each accepted batch is exactly one of them.
fn judge(chain: &Chain, durable: Seq, findings: &mut Findings) {
    let StreamPosition { segment, row, seq, .. } = chain.next;
    let was_durable = seq <= durable;
    let damaged = |why: &str| {
        let message = format!("batch {seq} of stream {} was durable (all up to {durable} were), but {why}", chain.stream);
        Finding::new(Severity::Error, FindingKind::BatchDamaged, message).at(segment, row)
    };
    match (chain.end, was_durable) {
        (End::NeverOpened | End::Nothing | End::Void, false) => {}
        (End::Torn, false) => {
            let message = format!("batch {seq} of stream {} did not arrive as a whole and does not count", chain.stream);
            findings.add(Finding::new(Severity::Note, FindingKind::BatchTorn, message).at(segment, row));
        }
        (End::NeverOpened, true) => findings.add(damaged("the checkpoint does not name the stream")),
        (End::Nothing, true) => findings.add(damaged("it is not there")),
        (End::Void, true) => findings.add(damaged("a fence calls it void")),
        (End::Torn, true) => findings.add(damaged("parts of it can not be read or rebuilt")),
    }
    for whole in &chain.batches {
        let (header, flaws) = (&whole.batch.frame.header, whole.flaws);
        if !flaws.are_on_members() {
            continue;
        }
        let severity = if header.seq <= durable { Severity::Repairable } else { Severity::Note };
        let message = format!("batch {}: {} data and {} redundancy blocks are not as they should be", header.seq, flaws.wrong, flaws.redundancy);
        findings.add(Finding::new(severity, FindingKind::BatchIncomplete, message).at(header.segment, header.row));
    }
}

/// Segments hold what the chain says, not what a page copied before a crash says.
fn settle_segments(reader: &PoolReader<'_>, chain: &Chain, tables: &mut Tables) {
    for whole in &chain.batches {
        let header = &whole.batch.frame.header;
        tables.segments[header.segment.index()].add(header);
    }
    if reader.zones.contains(chain.next.segment) {
        tables.segments[chain.next.segment.index()].truncate(chain.next.row);
    }
}

/// The highest order that a batch's entries may have.
fn order_limit(fences: &[Fence], frame: &HeaderFrame) -> u64 {
    fence_for(fences, frame.header.epoch).map_or(u64::MAX, |f| f.accepted_order.0)
}

/// P.
fn highest_order(fences: &[Fence], root: &CheckpointRoot, chains: &[Chain]) -> Order {
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for whole in chains.iter().flat_map(|c| &c.batches) {
        let limit = order_limit(fences, &whole.batch.frame);
        for decoded in &whole.batch.entries {
            let (first, count) = match &decoded.entry {
                Entry::Data { birth, .. } | Entry::Fill { birth, .. } => (birth.0, 1),
                Entry::Range { order, .. } | Entry::Volume { order, .. } => (order.0, 1),
                Entry::Covered { first, count } => (first.0, *count),
                Entry::Move { .. } | Entry::Page { .. } => continue,
            };
            let last = (first + (count - 1)).min(limit);
            match covered.last_mut() {
                _ if first > last => {}
                Some((_, end)) if *end + 1 == first => *end = last,
                _ => covered.push((first, last)),
            }
        }
    }
    // Orders that a fence skipped were never given out.
    covered.extend(fences.iter().map(|f| (f.accepted_order.0 + 1, f.next_order.0 - 1)).filter(|(first, last)| first <= last));
    covered.sort_unstable();
    covered.into_iter().fold(root.order, |p, (first, last)| if first <= p.0.saturating_add(1) { p.max(Order(last)) } else { p })
}

enum UserEntry<'a> {
    Data { lba: Lba, entry: MapEntry },
    Fill { lba: Lba, state: FillState },
    Range { lba: Lba, count: u64, state: RangeState },
    Volume { change: &'a VolumeChange },
}

/// Where a payload block of a batch lies.
fn place_of(reader: &PoolReader<'_>, frame: &HeaderFrame, block: u32) -> Place {
    let first = u64::from(frame.header.row) * u64::from(frame.header.shape.data);
    reader.codec.pack_block(frame.header.segment, first + u64::from(block))
}

/// Applies user entries above the checkpoint's order and up to P. Returns the highest order applied to each block.
fn apply_user_entries(
    reader: &PoolReader<'_>,
    fences: &[Fence],
    root: &CheckpointRoot,
    chains: &[Chain],
    accepted: Order,
    tables: &mut Tables,
) -> HashMap<(VolumeId, Lba), Order> {
    let mut entries: Vec<(Order, VolumeId, UserEntry<'_>)> = Vec::new();
    for whole in chains.iter().flat_map(|c| &c.batches) {
        let frame = &whole.batch.frame;
        let limit = accepted.min(Order(order_limit(fences, frame)));
        for decoded in &whole.batch.entries {
            let (order, volume, entry) = match &decoded.entry {
                Entry::Data { volume, lba, birth } => {
                    let Some(payload) = decoded.payload else { continue };
                    let entry = MapEntry::plain(place_of(reader, frame, payload.block), payload.checksum);
                    (*birth, *volume, UserEntry::Data { lba: *lba, entry })
                }
                Entry::Fill { volume, lba, birth, state } => (*birth, *volume, UserEntry::Fill { lba: *lba, state: *state }),
                Entry::Range { volume, lba, count, order, state } => (*order, *volume, UserEntry::Range { lba: *lba, count: *count, state: *state }),
                Entry::Volume { volume, order, change } => (*order, *volume, UserEntry::Volume { change }),
                Entry::Move { .. } | Entry::Covered { .. } | Entry::Page { .. } => continue,
            };
            if order > root.order && order <= limit {
                entries.push((order, volume, entry));
            }
        }
    }
    // Stable, so that equal orders (which no correct pool has) apply in the order of streams.
    entries.sort_by_key(|(order, ..)| *order);
    let mut newest = HashMap::new();
    for (order, volume, entry) in entries {
        match entry {
            UserEntry::Data { lba, entry } => {
                tables.set(volume, lba, entry);
                newest.insert((volume, lba), order);
            }
            UserEntry::Fill { lba, state } => {
                tables.fill(volume, lba, state);
                newest.insert((volume, lba), order);
            }
            UserEntry::Range { lba, count, state } => tables.set_range(volume, lba, count, state),
            UserEntry::Volume { change } => tables.change_volume(volume, change),
        }
    }
    newest
}

/// A move installs iff its block is still at its old place and was not written since.
fn apply_moves(reader: &PoolReader<'_>, chains: &[Chain], newest: &HashMap<(VolumeId, Lba), Order>, tables: &mut Tables) {
    for whole in chains.iter().flat_map(|c| &c.batches) {
        for decoded in &whole.batch.entries {
            let (Entry::Move { volume, lba, birth, from }, Some(payload)) = (&decoded.entry, decoded.payload) else { continue };
            let current = tables.get(*volume, *lba);
            let rewritten = newest.get(&(*volume, *lba)).is_some_and(|order| order > birth);
            if current.has_payload() && current.place() == *from && !rewritten {
                let place = place_of(reader, &whole.batch.frame, payload.block);
                tables.set(*volume, *lba, MapEntry::plain(place, payload.checksum));
            }
        }
    }
}
