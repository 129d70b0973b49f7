//! Replay: the valid batches after the checkpoint, P, and their effect on the tables.
//!
//! 1 Follow each stream's chain from its replay position. A batch is taken if its header verifies at its own address, bears the
//!   expected number, an epoch that the fences do not void, and its table verifies; the chain ends at the first that fails.
//! 2 What later headers say of durability is collected: a batch at or below its stream's flushed number must be there (else:
//!   damage), a batch above it must verify to the last payload byte (else: torn tail, the chain ends before it).
//! 3 P is the highest order such that every order up to it is in the checkpoint, in a taken batch, or void by a fence.
//! 4 User entries with orders up to P take effect in ascending order; then the moves in the order of their stream, each only if
//!   the map still shows its old place and no replayed entry of its block is newer than its birth.

use super::reader::Reader;
use super::{OpenError, Tables};
use crate::jobs::encode_redundancy;
use crate::limits::{LBA_BITS, STREAM_CLEANED, STREAM_USER, STREAMS};
use crate::pending::BlockKey;
use crate::stream::Stream;
use crate::{OpenReport, WrittenBytes};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use windrow_io::Buf;
use windrow_layout::batch::{DecodedBatch, Entry, FillState, HeaderFrame, RangeState, VolumeChange};
use windrow_layout::checkpoint::{MAP_PAGE_ENTRIES, VolumeRecord, VolumeState};
use windrow_layout::map_entry::MapEntry;
use windrow_layout::superblock::{CheckpointRoot, Fence, StreamPosition, Superblock};
use windrow_units::{BLOCK_BYTES, BLOCK_SIZE, Column, Epoch, FULL_BLOCK_UNITS, Lba, MAX_STREAMS, Order, Place, SegmentId, Seq, VolumeId};

/// What replay found.
pub(super) struct Outcome {
    pub(super) accepted: Order,
    pub(super) next_order: Order,
    pub(super) last_seq: [Seq; MAX_STREAMS],
    pub(super) positions: [StreamPosition; MAX_STREAMS],
    /// Batches above the flushed numbers: their redundancy is to be looked at.
    recent: Vec<HeaderFrame>,
}

struct Chains {
    batches: [Vec<DecodedBatch>; MAX_STREAMS],
    flushed: [Seq; MAX_STREAMS],
}

/// Replays everything after `root` into the tables.
pub(super) fn replay(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    root: &CheckpointRoot,
    tables: &mut Tables,
    report: &mut OpenReport,
) -> Result<Outcome, OpenError> {
    let mut chains = Chains { batches: Default::default(), flushed: root.flushed_seq };
    for fence in &superblock.fences {
        // A fence is written only after everything it accepts was made durable.
        for stream in STREAMS {
            chains.flushed[stream] = chains.flushed[stream].max(fence.last_seq[stream]);
        }
    }
    for stream in STREAMS {
        follow(reader, superblock, root, stream, &mut chains)?;
    }
    let mut recent = Vec::new();
    for stream in STREAMS {
        verify_recent(reader, root, stream, &mut chains, &mut recent)?;
    }
    let (accepted, next_order) = accepted_order(superblock, root, &chains.batches[STREAM_USER]);
    apply_user(superblock, root.order, accepted, &chains, tables)?;
    let mut positions = [Stream::closed_position(); MAX_STREAMS];
    let mut last_seq = [Seq(0); MAX_STREAMS];
    for stream in STREAMS {
        positions[stream] = settle_segments(root, stream, &chains.batches[stream], tables);
        last_seq[stream] = Seq(positions[stream].seq.0 - 1);
        for batch in &chains.batches[stream] {
            let h = &batch.frame.header;
            report.batches += 1;
            report.batch_bytes += u64::from(h.rows) * u64::from(h.shape.width) * BLOCK_BYTES;
            report.entries += batch.entries.len() as u64;
        }
    }
    report.accepted_order = accepted;
    Ok(Outcome { accepted, next_order, last_seq, positions, recent })
}

/// The earliest fence that a batch of this epoch lies behind.
fn fence_of(superblock: &Superblock, epoch: Epoch) -> Option<&Fence> {
    superblock.fences.iter().filter(|f| f.epoch > epoch).min_by_key(|f| f.epoch)
}

fn follow(reader: &mut Reader<'_>, superblock: &Superblock, root: &CheckpointRoot, stream: usize, chains: &mut Chains) -> Result<(), OpenError> {
    let mut at = root.replay[stream];
    // The root's positions are those of its own epoch: whatever older batch still lies there is void, though the fence that says
    // so may have been dropped with the checkpoints before.
    let mut epoch = root.epoch;
    loop {
        if !reader.zones.contains(at.segment) {
            return Ok(());
        }
        let shape = *reader.zones.shape(at.segment);
        let fits = |frame: &HeaderFrame| {
            let h = &frame.header;
            let void = fence_of(superblock, h.epoch).is_some_and(|f| h.seq > f.last_seq[stream]);
            usize::from(h.stream.0) == stream && h.seq == at.seq && h.shape == shape && !void && h.epoch >= epoch && h.epoch <= superblock.epoch
        };
        let Some(frame) = reader.header(at.segment, at.row, fits)? else { return Ok(()) };
        let h = &frame.header;
        let Some(batch) = reader.batch(&frame)? else { return Ok(()) };
        epoch = h.epoch;
        for s in STREAMS {
            chains.flushed[s] = chains.flushed[s].max(h.flushed_seq[s]);
        }
        at.seq = h.seq.next();
        at.row = h.row + h.rows;
        if at.row >= h.shape.rows {
            at.segment = h.next_segment;
            at.row = 0;
        }
        chains.batches[stream].push(batch);
    }
}

/// Verifies batches above the flushed number; cuts the chain at the first that fails.
fn verify_recent(reader: &mut Reader<'_>, root: &CheckpointRoot, stream: usize, chains: &mut Chains, recent: &mut Vec<HeaderFrame>) -> Result<(), OpenError> {
    let flushed = chains.flushed[stream];
    let batches = &mut chains.batches[stream];
    let last = batches.last().map_or(Seq(root.replay[stream].seq.0.saturating_sub(1)), |b| b.frame.header.seq);
    if last < flushed {
        return Err(OpenError::Damage(format!("stream {stream} ends at batch {last}, but batch {flushed} of it was durable")));
    }
    let first = batches.partition_point(|b| b.frame.header.seq <= flushed);
    for at in first..batches.len() {
        if !payload_verifies(reader, &batches[at])? {
            batches.truncate(at);
            break;
        }
        recent.push(batches[at].frame.clone());
    }
    Ok(())
}

/// True if every payload block of the batch can be had, directly or rebuilt.
fn payload_verifies(reader: &mut Reader<'_>, batch: &DecodedBatch) -> Result<bool, OpenError> {
    let h = &batch.frame.header;
    let columns = reader.all_columns(h.segment, h.row, h.rows)?;
    Ok(data_columns(reader, batch, &columns).is_some())
}

/// The data columns of a batch with every block verified, whatever column is missing or wrong: payload by its checksums, head and
/// tail by decoding them, padding by being zero. All of it matters: redundancy computed from one wrong block, were it only a
/// header, would destroy the redundancy that could still repair it.
fn data_columns(reader: &Reader<'_>, batch: &DecodedBatch, columns: &[Option<Buf>]) -> Option<Vec<Buf>> {
    let h = &batch.frame.header;
    let rows = h.rows;
    let mut suspects: Vec<Option<usize>> = vec![None];
    suspects.extend((0..columns.len()).filter(|c| columns[*c].is_some()).map(Some));
    for suspect in suspects {
        let data: Option<Vec<Buf>> = (0..usize::from(h.shape.data)).map(|c| reader.data_column(&h.shape, columns, c, suspect)).collect();
        let Some(data) = data else { continue };
        let block = |b: u32| &data[(b / rows) as usize][(b % rows) as usize * BLOCK_SIZE..][..BLOCK_SIZE];
        let payload = batch.entries.iter().filter_map(|e| e.payload.as_ref()).all(|p| windrow_reduce::checksum(block(p.block)) == p.checksum);
        if payload && ends_verify(batch, reader, block) {
            return Some(data);
        }
    }
    None
}

/// True if head and tail decode to this very batch and the padding is zero.
fn ends_verify<'b>(batch: &DecodedBatch, reader: &Reader<'_>, block: impl Fn(u32) -> &'b [u8]) -> bool {
    let (frame, h) = (&batch.frame, &batch.frame.header);
    let head: Vec<u8> = (0..frame.head_blocks).flat_map(|b| block(b).iter().copied()).collect();
    let padding = frame.head_blocks + frame.payload_blocks..frame.tail_block();
    windrow_layout::batch::decode_batch(&head, block(frame.tail_block()), &reader.pool, h.segment, h.row).is_ok_and(|b| b == *batch)
        && padding.into_iter().all(|b| windrow_reduce::classify(block(b)) == windrow_reduce::BlockClass::Zero)
}

/// P and the first order of the new epoch.
fn accepted_order(superblock: &Superblock, root: &CheckpointRoot, batches: &[DecodedBatch]) -> (Order, Order) {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut seen = root.order.0;
    for fence in &superblock.fences {
        ranges.push((fence.accepted_order.0 + 1, fence.next_order.0 - 1));
        seen = seen.max(fence.next_order.0 - 1);
    }
    for batch in batches {
        let valid_through = fence_of(superblock, batch.frame.header.epoch).map_or(u64::MAX, |f| f.accepted_order.0);
        for entry in &batch.entries {
            let Some((first, count)) = orders_of(&entry.entry) else { continue };
            seen = seen.max(first.0 + count - 1);
            if first.0 <= valid_through {
                push_range(&mut ranges, first.0, first.0 + count - 1);
            }
        }
    }
    ranges.sort_unstable();
    let mut accepted = root.order.0;
    for (first, last) in ranges {
        if first > accepted + 1 {
            break;
        }
        accepted = accepted.max(last);
    }
    (Order(accepted), Order(seen.max(accepted) + 1))
}

fn push_range(ranges: &mut Vec<(u64, u64)>, first: u64, last: u64) {
    match ranges.last_mut() {
        Some(range) if range.1 + 1 == first => range.1 = last,
        _ => ranges.push((first, last)),
    }
}

fn orders_of(entry: &Entry) -> Option<(Order, u64)> {
    match entry {
        Entry::Data { birth, .. } | Entry::Fill { birth, .. } => Some((*birth, 1)),
        Entry::Range { order, .. } | Entry::Volume { order, .. } => Some((*order, 1)),
        Entry::Covered { first, count } => Some((*first, *count)),
        Entry::Move { .. } | Entry::Page { .. } => None,
    }
}

/// A user entry in the order of its effect.
struct Effect<'a> {
    order: Order,
    entry: &'a Entry,
    place: Place,
    checksum: u32,
}

fn apply_user(superblock: &Superblock, root_order: Order, accepted: Order, chains: &Chains, tables: &mut Tables) -> Result<(), OpenError> {
    let mut effects: Vec<Effect<'_>> = Vec::new();
    for batch in &chains.batches[STREAM_USER] {
        let valid_through = fence_of(superblock, batch.frame.header.epoch).map_or(accepted, |f| f.accepted_order.min(accepted));
        let h = &batch.frame.header;
        let first_block = u64::from(h.row) * u64::from(h.shape.data);
        for decoded in &batch.entries {
            let Some((order, _)) = orders_of(&decoded.entry) else { continue };
            if order > valid_through || order <= root_order || matches!(decoded.entry, Entry::Covered { .. }) {
                continue;
            }
            let (block, checksum) = decoded.payload.as_ref().map_or((0, 0), |p| (p.block, p.checksum));
            let place = tables.codec.pack_block(h.segment, first_block + u64::from(block));
            effects.push(Effect { order, entry: &decoded.entry, place, checksum });
        }
    }
    effects.sort_by_key(|e| e.order);
    let moves = &chains.batches[STREAM_CLEANED];
    let mut newest: HashMap<u64, Order, FxBuildHasher> = HashMap::default();
    for decoded in moves.iter().flat_map(|b| &b.entries) {
        if let Entry::Move { volume, lba, .. } = decoded.entry {
            newest.insert(BlockKey::new(volume, lba).0, Order(0));
        }
    }
    for effect in &effects {
        apply_effect(effect, tables, &mut newest)?;
    }
    for batch in moves {
        let h = &batch.frame.header;
        let first_block = u64::from(h.row) * u64::from(h.shape.data);
        for decoded in &batch.entries {
            let (Entry::Move { volume, lba, birth, from }, Some(payload)) = (&decoded.entry, &decoded.payload) else { continue };
            let key = BlockKey::new(*volume, *lba);
            if newest.get(&key.0).is_some_and(|order| order > birth) {
                continue;
            }
            let Some((v, arena)) = tables.volumes.get_mut(*volume) else { continue };
            let shown = v.map.get(arena, *lba);
            if shown.has_payload() && shown.place() == *from {
                let place = tables.codec.pack_block(h.segment, first_block + u64::from(payload.block));
                v.map.replace(arena, *lba, MapEntry::plain(place, payload.checksum));
            }
        }
    }
    tables.volumes.used_blocks = tables.volumes.iter().map(|v| v.map.mapped_blocks).sum();
    Ok(())
}

fn apply_effect(effect: &Effect<'_>, tables: &mut Tables, newest: &mut HashMap<u64, Order, FxBuildHasher>) -> Result<(), OpenError> {
    match effect.entry {
        Entry::Data { volume, lba, .. } => {
            if let Some(order) = newest.get_mut(&BlockKey::new(*volume, *lba).0) {
                *order = effect.order;
            }
            set_block(tables, *volume, *lba, MapEntry::plain(effect.place, effect.checksum))
        }
        Entry::Fill { volume, lba, state, .. } => {
            let entry = if *state == FillState::Ones { MapEntry::ONES } else { MapEntry::ZERO };
            set_block(tables, *volume, *lba, entry)
        }
        Entry::Range { volume, lba, count, state, .. } => set_range(tables, *volume, *lba, lba.0.saturating_add(*count), *state),
        Entry::Volume { volume, change, .. } => apply_volume(tables, *volume, change),
        Entry::Move { .. } | Entry::Covered { .. } | Entry::Page { .. } => Ok(()),
    }
}

fn set_block(tables: &mut Tables, volume: VolumeId, lba: Lba, entry: MapEntry) -> Result<(), OpenError> {
    let limit = tables.volumes.arena.bytes();
    // A volume that is not in the table any more was deleted later, and its delete is in the checkpoint.
    let Some((v, arena)) = tables.volumes.get_mut(volume) else { return Ok(()) };
    if lba.0 >= v.blocks() && entry.has_payload() {
        // The table's image is newer than this entry and has the volume smaller: the shrink comes later in the replay.
        return Ok(());
    }
    v.map.ensure(arena, volume, lba.0 / MAP_PAGE_ENTRIES as u64).ok_or(OpenError::MapMemory { limit })?;
    v.map.replace(arena, lba, entry);
    Ok(())
}

fn set_range(tables: &mut Tables, volume: VolumeId, first: Lba, end: u64, state: RangeState) -> Result<(), OpenError> {
    let page = MAP_PAGE_ENTRIES as u64;
    let mut at = first.0;
    while at < end {
        let Some((v, arena)) = tables.volumes.get_mut(volume) else { return Ok(()) };
        if state == RangeState::Hole {
            match v.map.next_page(at / page, end.div_ceil(page)) {
                None => return Ok(()),
                Some(index) => at = at.max(index * page),
            }
        } else if v.map.ensure(arena, volume, at / page).is_none() {
            at = (at / page + 1) * page;
            continue;
        }
        let stop = end.min((at / page + 1) * page);
        let entry = if state == RangeState::Hole { MapEntry::HOLE } else { MapEntry::ZERO };
        for lba in at..stop {
            if v.map.get(arena, Lba(lba)) != entry {
                v.map.replace(arena, Lba(lba), entry);
            }
        }
        at = stop;
    }
    Ok(())
}

fn apply_volume(tables: &mut Tables, volume: VolumeId, change: &VolumeChange) -> Result<(), OpenError> {
    match change {
        VolumeChange::Create { name, size_bytes } => {
            // The table's image may be older than this entry, or newer (then it has the volume, or its delete follows in the replay).
            if tables.volumes.get(volume).is_none() {
                let record = VolumeRecord { id: volume, state: VolumeState::Active, read_only: false, size_bytes: *size_bytes, name: name.clone() };
                tables.volumes.add(record);
            }
        }
        VolumeChange::Resize { size_bytes } => {
            tables.volumes.change(volume, |r| r.size_bytes = *size_bytes);
            // To the very end: the table's image may already have a later, smaller size while map pages are older.
            return set_range(tables, volume, Lba(size_bytes / BLOCK_BYTES), 1 << LBA_BITS, RangeState::Hole);
        }
        VolumeChange::Delete => tables.volumes.change(volume, |r| r.state = VolumeState::Deleting),
        VolumeChange::SetReadOnly(read_only) => tables.volumes.change(volume, |r| r.read_only = *read_only),
    }
    Ok(())
}

/// Enters a stream's batches into the segment table; returns where the stream goes on.
fn settle_segments(root: &CheckpointRoot, stream: usize, batches: &[DecodedBatch], tables: &mut Tables) -> StreamPosition {
    // A successor that was promised but is in no batch yet is free again.
    let mut at = StreamPosition { next_segment: SegmentId::NONE, ..root.replay[stream] };
    for batch in batches {
        let h = &batch.frame.header;
        let segment = tables.segments.get_mut(h.segment);
        if h.row == 0 {
            segment.starts.fill(0);
        }
        segment.stream = stream as u8;
        segment.starts[h.row as usize / 64] |= 1 << (h.row % 64);
        segment.filled_rows = h.row + h.rows;
        segment.last_seq = h.seq;
        segment.last_checkpoint = root.id;
        tables.segments.mark_dirty(h.segment);
        at = StreamPosition { segment: h.segment, row: h.row + h.rows, seq: h.seq.next(), next_segment: SegmentId::NONE };
        if at.row >= h.shape.rows {
            at.segment = h.next_segment;
            at.row = 0;
        }
    }
    if at.segment != SegmentId::NONE {
        tables.segments.truncate(at.segment, at.row);
    }
    at
}

/// Counts live payload of every segment from the maps and from the checkpoint's own pages.
pub(super) fn count_live(tables: &mut Tables, loaded: &crate::checkpoint::Loaded) {
    let mut live = vec![0u32; tables.segments.count() as usize];
    let units = u32::from(FULL_BLOCK_UNITS);
    let mut count = |place: Place| {
        let segment = tables.codec.segment(place);
        if let Some(slot) = live.get_mut(segment.index()) {
            *slot += units;
        }
    };
    for v in tables.volumes.iter() {
        let mut next = 0;
        while let Some(index) = v.map.next_page(next, u64::from(u32::MAX)) {
            next = index + 1;
            let Some(slot) = v.map.slot(index) else { continue };
            for entry in tables.volumes.arena.page(slot).iter().filter(|e| e.has_payload()) {
                count(entry.place());
            }
            if let Some(pointer) = tables.volumes.arena.meta(slot).map(|m| m.pointer).filter(|p| p.present) {
                count(pointer.place);
            }
        }
    }
    let pointers = loaded.tables.values().flatten().chain(loaded.leaves.values()).chain(&loaded.list);
    for pointer in pointers.filter(|p| p.present) {
        count(pointer.place);
    }
    for (index, units) in live.into_iter().enumerate() {
        tables.segments.get_mut(SegmentId(index as u32)).live_units = units;
    }
}

/// Makes the accepted batches above the flushed numbers fully redundant again: every part that is missing or differs from what
/// it must be is written with exactly the bytes that the batch had from the start.
pub(super) fn complete(reader: &mut Reader<'_>, outcome: &Outcome, stats: &mut [WrittenBytes], report: &mut OpenReport) -> Result<(), OpenError> {
    for frame in &outcome.recent {
        let h = &frame.header;
        let Some(batch) = reader.batch(frame)? else { continue };
        let read = reader.all_columns(h.segment, h.row, h.rows)?;
        let Some(mut columns) = data_columns(reader, &batch, &read) else { continue };
        let bytes = h.rows as usize * BLOCK_SIZE;
        columns.extend((0..h.shape.redundant()).map(|_| reader.buffers.get(bytes)));
        encode_redundancy(&h.shape, &mut columns);
        let mut completed = false;
        for (c, (column, read)) in columns.iter().zip(&read).enumerate() {
            let (member, offset) = reader.zones.locate(h.segment).address(h.row, Column(c as u8));
            let same = read.as_ref().is_some_and(|r| r[..] == column[..]);
            if same || !reader.online[member.index()] {
                continue;
            }
            reader.write(member, offset, column)?;
            stats[member.index()].repair += bytes as u64;
            completed = true;
        }
        report.completed_batches += u64::from(completed);
    }
    Ok(())
}
