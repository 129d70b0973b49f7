//! Journal recovery: valid records, their effect beyond the batches, and their redundancy.
//!
//! 1. The first block of every copy of every chunk is read. Chunks that may hold LSNs above those
//!    of the batches are read completely.
//! 2. A chunk's records are followed from its first byte, each by any copy that verifies, while
//!    numbers are consecutive. Nothing is searched for.
//! 3. The recovery point is computed from batches and records together (`replay.rs`). Trims and
//!    volume operations that only records have take effect on the tables. The last version of each
//!    block is readmitted with its LSN; the LSNs between are covered.
//! 4. Chunks with a needed record are rewritten to the copies that differ, up to the last needed
//!    record. It is reached only through those before it.

use super::fence::records_through;
use super::reader::Reader;
use super::tables::apply_entry;
use super::{OpenError, Tables};
use crate::api::MemberStats;
use crate::base::limits::LBA_BITS;
use crate::path::Core;
use crate::path::journal::Resume;
use crate::store::pending::BlockKey;
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::batch::{DecodedEntry, Entry, FillState, PayloadInfo, VolumeChange};
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_format::journal::{
    DecodedRecord, RecordError, RecordHeader, decode_record, decode_record_header,
};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::Superblock;
use windrow_geometry::JournalArea;
use windrow_io::{Buf, BufPool, MemberError, Payload};
use windrow_types::{
    BLOCK_BYTES, BLOCK_SIZE, BatchSeq, Epoch, Lba, Lsn, MemberId, PoolUuid, SegmentId, VolumeId,
};

/// A valid record.
pub(super) struct Record {
    pub(super) decoded: DecodedRecord,
    chunk: usize,
}

impl Record {
    pub(super) fn epoch(&self) -> Epoch {
        self.decoded.header.epoch
    }
}

/// A chunk with valid records.
struct Chunk {
    /// Index of its journal in `Journals::areas`.
    ring: usize,
    number: u32,
    /// Correct bytes, from the start of the chunk to the end of the last valid record.
    bytes: Payload,
    /// Numbers of the copies that differ from it.
    differing: Vec<u8>,
}

/// All records that may have an effect.
#[derive(Default)]
pub(super) struct Found {
    areas: Vec<JournalArea>,
    chunks: Vec<Chunk>,
    /// Valid records in ascending order of epoch and number.
    pub(super) records: Vec<Record>,
    /// Durability claims (epoch, LSN) of records that are not reached.
    pub(super) claims: Vec<(Epoch, Lsn)>,
    /// Highest epoch of any record, valid or not.
    pub(super) highest_epoch: Epoch,
    /// For each journal the chunk that was filled last, as far as known.
    newest_chunks: Vec<u32>,
}

/// An operation to be appended to the log again.
pub(crate) enum Readmitted {
    /// A block with its content.
    Block {
        /// Block.
        key: BlockKey,
        /// Its LSN.
        lsn: Lsn,
        /// Content; `None`: all bytes are 0xFF if `ones`, else 0x00.
        content: Option<Payload>,
        /// See `content`.
        ones: bool,
    },
    /// A range or volume operation that is in the tables already, or LSNs without content.
    Record {
        /// The entry.
        entry: Entry,
        /// Its last LSN.
        lsn: Lsn,
    },
}

/// Effect of the operations that only records have.
pub(super) struct Brought {
    /// Readmissions in ascending order, for every LSN in `covered + 1 ..= accepted` that a record
    /// has.
    pub(super) list: Vec<Readmitted>,
    /// LSNs of blocks beyond their volume in the tables, or without one, that no later record
    /// removed.
    pub(super) homeless: Vec<Lsn>,
}

/// Reads the records that may hold LSNs above `covered`. Records of epochs before `since`, that of
/// the checkpoint root, are ignored: what a start readmits is durable in the log before a
/// checkpoint begins.
pub(super) fn collect(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    covered: Lsn,
    since: Epoch,
) -> Result<Found, OpenError> {
    let mut found = Found {
        areas: superblock.journals.areas().copied().collect(),
        ..Found::default()
    };
    for ring in 0..found.areas.len() {
        collect_ring(reader, superblock, ring, (covered, since), &mut found)?;
    }
    found
        .records
        .sort_by_key(|record| (record.decoded.header.epoch, record.decoded.header.seq));
    Ok(found)
}

fn collect_ring(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    ring: usize,
    (covered, since): (Lsn, Epoch),
    found: &mut Found,
) -> Result<(), OpenError> {
    let area = found.areas[ring];
    // First record of each chunk; `None`: it is not wholly in the first block.
    let mut firsts: Vec<(Option<RecordHeader>, u32)> = Vec::new();
    for chunk in 0..area.chunks {
        let heads = reader.journal_copies(&area, chunk, BLOCK_SIZE)?;
        let decoded: Vec<_> = heads
            .iter()
            .flatten()
            .map(|head| decode_record_header(head, &reader.pool, chunk, 0, area.granule))
            .collect();
        let newest = decoded
            .iter()
            .flatten()
            .max_by_key(|(h, _)| (h.epoch, h.seq));
        found.highest_epoch = newest.map_or(found.highest_epoch, |(h, _)| {
            found.highest_epoch.max(h.epoch)
        });
        if decoded
            .iter()
            .any(|first| matches!(first, Err(RecordError::Truncated)))
        {
            firsts.push((None, chunk));
        } else if let Some(newest) = newest {
            firsts.push((Some(newest.0.clone()), chunk));
        }
    }
    firsts.sort_by_key(|(first, _)| first.as_ref().map(|h| (h.epoch, h.seq)));
    found
        .newest_chunks
        .push(firsts.last().map_or(area.chunks - 1, |(_, chunk)| *chunk));
    for (at, (first, chunk)) in firsts.iter().enumerate() {
        // All LSNs of a chunk are below those of the chunk that was filled after it.
        let after = firsts.get(at + 1).and_then(|(after, _)| after.as_ref());
        if first.is_none() || after.is_none_or(|after| after.last > covered) {
            follow(reader, superblock, (ring, *chunk), (covered, since), found)?;
            // The claim of the first record counts even if the rest of it is unreadable.
            let known = first
                .as_ref()
                .filter(|h| h.epoch >= since && h.epoch <= superblock.epoch);
            found.claims.extend(known.map(|h| (h.epoch, h.durable)));
        }
    }
    Ok(())
}

fn follow(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    (ring, chunk): (usize, u32),
    (covered, since): (Lsn, Epoch),
    found: &mut Found,
) -> Result<(), MemberError> {
    let area = found.areas[ring];
    let copies = reader.journal_copies(&area, chunk, area.chunk_bytes as usize)?;
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    let (mut epoch, mut seq) = (since, None::<BatchSeq>);
    loop {
        let at = bytes.len();
        let decode = |copy: &Buf| {
            let record = decode_record(
                copy.get(at..)?,
                &reader.pool,
                chunk,
                at as u32,
                area.granule,
            )
            .ok()?;
            let h = &record.header;
            let next = seq.is_none_or(|seq| h.seq == seq.next())
                && h.epoch >= epoch
                && h.epoch <= superblock.epoch;
            next.then_some(record)
        };
        // Where a write was lost, a copy has a record of an earlier use of the chunk: the newest
        // one counts.
        let newest = copies
            .iter()
            .flatten()
            .filter_map(|copy| Some((decode(copy)?, copy)))
            .max_by_key(|(r, _)| (r.header.epoch, r.header.seq));
        let Some((record, copy)) = newest else { break };
        bytes.extend_from_slice(&copy[at..at + record.length as usize]);
        (epoch, seq) = (record.header.epoch, Some(record.header.seq));
        records.push(record);
    }
    claims_behind(
        &copies,
        (&reader.pool, chunk, area.granule),
        bytes.len(),
        (epoch.max(since), superblock.epoch),
        &mut found.claims,
    );
    if records
        .last()
        .is_none_or(|record| record.header.last <= covered)
    {
        return Ok(());
    }
    let differs = |copy: &Option<Buf>| {
        copy.as_ref()
            .is_none_or(|copy| copy[..bytes.len()] != bytes[..])
    };
    let differing = (0..area.copies)
        .filter(|copy| differs(&copies[usize::from(*copy)]))
        .collect();
    let mut kept = reader.buffers.get(bytes.len());
    kept.copy_from_slice(&bytes);
    let at = found.chunks.len();
    found.records.extend(
        records
            .into_iter()
            .map(|decoded| Record { decoded, chunk: at }),
    );
    found.chunks.push(Chunk {
        ring,
        number: chunk,
        bytes: kept.freeze(),
        differing,
    });
    Ok(())
}

/// Collects claims after the last valid record. A record with a damaged payload may still have its
/// length and its claim, and so may those after it. None of them is applied, but the claims
/// distinguish a lost record from a torn one.
fn claims_behind(
    copies: &[Option<Buf>],
    (pool, chunk, granule): (&PoolUuid, u32, u32),
    mut at: usize,
    (least, most): (Epoch, Epoch),
    claims: &mut Vec<(Epoch, Lsn)>,
) {
    loop {
        let header = |copy: &Buf| {
            decode_record_header(copy.get(at..)?, pool, chunk, at as u32, granule).ok()
        };
        let newest = copies
            .iter()
            .flatten()
            .filter_map(header)
            .max_by_key(|(h, _)| (h.epoch, h.seq));
        let Some((header, length)) = newest.filter(|(h, _)| h.epoch >= least && h.epoch <= most)
        else {
            return;
        };
        claims.push((header.epoch, header.durable));
        at += length as usize;
    }
}

impl Found {
    /// Durability claims of all records: epoch and LSN.
    pub(super) fn claims(&self) -> impl Iterator<Item = (Epoch, Lsn)> + '_ {
        self.records
            .iter()
            .map(|record| (record.epoch(), record.decoded.header.durable))
            .chain(self.claims.iter().copied())
    }

    /// Last LSN in effect if the log has everything up to `covered`, and the highest LSN of any
    /// record.
    pub(super) fn accepted(&self, superblock: &Superblock, covered: Lsn) -> (Lsn, Lsn) {
        let of_records = self.records.iter().map(|record| {
            let h = &record.decoded.header;
            (
                h.first,
                h.last.min(records_through(superblock, record.epoch())),
            )
        });
        let skipped = superblock
            .fences
            .iter()
            .map(|f| (f.recovery_lsn.next(), Lsn(f.next_lsn.0 - 1)));
        let mut ranges: Vec<(Lsn, Lsn)> = of_records
            .chain(skipped)
            .filter(|(first, last)| first <= last)
            .collect();
        ranges.sort_unstable();
        let mut accepted = covered;
        for (first, last) in ranges {
            if first <= accepted.next() {
                accepted = accepted.max(last);
            }
        }
        (
            accepted,
            self.records
                .iter()
                .map(|record| record.decoded.header.last)
                .max()
                .unwrap_or_default(),
        )
    }

    /// Content of a block of a record.
    fn content(
        &self,
        record: &Record,
        info: &PayloadInfo,
        buffers: &BufPool,
    ) -> Result<Payload, OpenError> {
        let bytes =
            &self.chunks[record.chunk].bytes.bytes()[record.decoded.header.offset as usize..];
        let stored = record.decoded.payload(bytes, info);
        let mut block = buffers.get(BLOCK_SIZE);
        if stored.len() == BLOCK_SIZE {
            block.copy_from_slice(stored);
        } else if !windrow_reduction::decompress(stored, &mut block) {
            let seq = record.decoded.header.seq;
            return Err(OpenError::Damage(format!(
                "payload {} of journal record {seq} verifies, but it cannot be decompressed",
                info.unit
            )));
        }
        Ok(block.freeze())
    }

    /// Positions at which the journals continue.
    pub(super) fn resume(&self, accepted: Lsn) -> Resume {
        let mut rings: Vec<(Vec<Lsn>, u32)> = self
            .areas
            .iter()
            .map(|area| vec![Lsn(0); area.chunks as usize])
            .zip(self.newest_chunks.iter().copied())
            .collect();
        let mut seq = BatchSeq(0);
        for record in &self.records {
            let (h, chunk) = (&record.decoded.header, &self.chunks[record.chunk]);
            let of_chunk = &mut rings[chunk.ring].0[chunk.number as usize];
            *of_chunk = (*of_chunk).max(h.last.min(accepted));
            seq = seq.max(h.seq);
        }
        Resume {
            rings,
            seq,
            accepted,
        }
    }

    /// Rewrites needed chunks where a copy differs. Chunks with no LSN in
    /// `covered + 1 ..= accepted` are not needed.
    pub(super) fn complete(
        &self,
        reader: &mut Reader<'_>,
        covered: Lsn,
        accepted: Lsn,
        spent: &mut [MemberStats],
    ) -> Result<u64, OpenError> {
        let mut completed = 0;
        let needed = accepted > covered;
        for chunk in self
            .chunks
            .iter()
            .filter(|chunk| needed && !chunk.differing.is_empty())
        {
            for copy in &chunk.differing {
                let (member, offset) = self.areas[chunk.ring].locate(chunk.number, *copy);
                if reader.online[member.index()] {
                    spent[member.index()].written.journal +=
                        write_copy(reader, (member, offset), &chunk.bytes)?;
                    completed += 1;
                }
            }
        }
        Ok(completed)
    }

    /// Applies the contentless operations that only records have to the tables. `before` is called
    /// with each entry and the tables before it takes effect.
    pub(super) fn apply(
        &self,
        superblock: &Superblock,
        (covered, accepted): (Lsn, Lsn),
        buffers: &BufPool,
        tables: &mut Tables,
        before: &mut dyn FnMut(&Entry, &mut Tables),
    ) -> Result<Brought, OpenError> {
        let mut emptied: BTreeSet<SegmentId> = BTreeSet::new();
        let mut newest: BTreeMap<u64, usize> = BTreeMap::new();
        let mut list: Vec<Readmitted> = Vec::new();
        let mut done = covered;
        for record in &self.records {
            let through = records_through(superblock, record.epoch()).min(accepted);
            for decoded in &record.decoded.entries {
                let Some((first, count)) = decoded.entry.lsns() else {
                    continue;
                };
                let last = Lsn(first.0 + count - 1).min(through);
                if last <= done || first > through {
                    continue;
                }
                let first = first.max(done.next());
                if first > done.next() {
                    // LSNs that an earlier start skipped: its fence covers them.
                    list.push(nothing(done.next(), Lsn(first.0 - 1)));
                }
                done = last;
                before(&decoded.entry, tables);
                emptied.extend(segments_of(&decoded.entry, tables));
                self.readmit_entry(
                    (record, decoded, buffers),
                    (first, last),
                    &mut newest,
                    &mut list,
                    tables,
                )?;
            }
        }
        if done < accepted {
            list.push(nothing(done.next(), accepted));
        }
        // A block of a deleted volume, or beyond a shrunken one, becomes a bare LSN.
        let mut homeless = Vec::new();
        for item in &mut list {
            let Readmitted::Block { key, lsn, .. } = item else {
                continue;
            };
            if tables
                .volumes
                .active(key.volume())
                .is_none_or(|v| key.lba().0 >= v.blocks())
            {
                homeless.push(*lsn);
                *item = nothing(*lsn, *lsn);
            }
        }
        // The operation that freed these blocks is in the journal only: the segments must not be
        // overwritten before the log has it.
        for segment in emptied {
            tables.segments.get_mut(segment).superseded_by = accepted;
        }
        tables.volumes.count_used();
        Ok(Brought { list, homeless })
    }

    fn readmit_entry(
        &self,
        (record, decoded, buffers): (&Record, &DecodedEntry, &BufPool),
        (first, last): (Lsn, Lsn),
        newest: &mut BTreeMap<u64, usize>,
        list: &mut Vec<Readmitted>,
        tables: &mut Tables,
    ) -> Result<(), OpenError> {
        let supersede = |at: usize, list: &mut Vec<Readmitted>| {
            if let Readmitted::Block { lsn, .. } = &list[at] {
                list[at] = nothing(*lsn, *lsn);
            }
        };
        match &decoded.entry {
            // No volume has such blocks, and their keys would be those of other volumes.
            Entry::Data { lba, .. } | Entry::Fill { lba, .. } if lba.0 >> LBA_BITS != 0 => {
                list.push(nothing(first, last))
            }
            Entry::Data { volume, lba, .. } | Entry::Fill { volume, lba, .. } => {
                let key = BlockKey::new(*volume, *lba);
                if let Some(older) = newest.insert(key.0, list.len()) {
                    supersede(older, list);
                }
                let content = decoded
                    .payload
                    .as_ref()
                    .map(|info| self.content(record, info, buffers))
                    .transpose()?;
                let ones = matches!(
                    decoded.entry,
                    Entry::Fill {
                        state: FillState::Ones,
                        ..
                    }
                );
                list.push(Readmitted::Block {
                    key,
                    lsn: first,
                    content,
                    ones,
                });
            }
            Entry::Range { .. } | Entry::Volume { .. } => {
                let (volume, begin, end) = cleared(&decoded.entry);
                newest.retain(|key, at| {
                    let key = BlockKey(*key);
                    let hit = key.volume() == volume && (begin..end).contains(&key.lba().0);
                    if hit {
                        supersede(*at, list);
                    }
                    !hit
                });
                apply_entry(&decoded.entry, MapEntry::HOLE, tables)?;
                list.push(Readmitted::Record {
                    entry: decoded.entry.clone(),
                    lsn: last,
                });
            }
            Entry::Covered { .. }
            | Entry::Move { .. }
            | Entry::Page { .. }
            | Entry::Reference { .. } => list.push(nothing(first, last)),
        }
        Ok(())
    }
}

/// Writes records to a copy, in whole sectors, and returns the bytes written. Devices refuse less,
/// and a pool may have been copied to devices with larger sectors than its journal was written in.
///
/// The bytes of the copy after the records in the last sector are preserved. So each byte is the
/// same as with smaller sectors, and nothing appears that could pass for a record. If they are
/// unreadable they become zeroes: no record begins with zeroes, and the next one would have to
/// begin there. Chunks are whole sectors, so nothing beyond the chunk is written.
fn write_copy(
    reader: &mut Reader<'_>,
    (member, offset): (MemberId, u64),
    records: &[u8],
) -> Result<u64, MemberError> {
    let sector = reader.io.sector_bytes(member) as usize;
    let (length, whole) = (records.len(), records.len().next_multiple_of(sector));
    if length == whole {
        reader.write(member, offset, records)?;
        return Ok(whole as u64);
    }
    let mut bytes = reader.buffers.get(whole);
    if !reader.read_again(
        member,
        offset + (whole - sector) as u64,
        &mut bytes[whole - sector..],
    )? {
        bytes[length..].fill(0);
    }
    bytes[..length].copy_from_slice(records);
    reader.write(member, offset, &bytes)?;
    Ok(whole as u64)
}

/// LSNs without content.
fn nothing(first: Lsn, last: Lsn) -> Readmitted {
    Readmitted::Record {
        entry: Entry::Covered {
            first,
            count: last.0 - first.0 + 1,
        },
        lsn: last,
    }
}

/// Volume and blocks (first, end) whose older versions an operation removes.
fn cleared(entry: &Entry) -> (VolumeId, u64, u64) {
    match entry {
        Entry::Range {
            volume, lba, count, ..
        } => (*volume, lba.0, lba.0.saturating_add(*count)),
        Entry::Volume {
            volume,
            change: VolumeChange::Delete,
            ..
        } => (*volume, 0, u64::MAX),
        Entry::Volume {
            volume,
            change: VolumeChange::Resize { size_bytes },
            ..
        } => (*volume, size_bytes / BLOCK_BYTES, u64::MAX),
        _ => (VolumeId(0), 0, 0),
    }
}

/// Segments with blocks that a range or volume operation removes from the map.
fn segments_of(entry: &Entry, tables: &Tables) -> BTreeSet<SegmentId> {
    let (volume, begin, end) = cleared(entry);
    let Some(v) = tables.volumes.get(volume) else {
        return BTreeSet::new();
    };
    let page = MAP_PAGE_ENTRIES as u64;
    let (mut segments, mut next) = (BTreeSet::new(), begin / page);
    while let Some(index) = v.map.next_page(next, end.div_ceil(page)) {
        next = index + 1;
        let blocks = (begin.max(index * page)..end.min(next * page))
            .map(|lba| v.map.get(&tables.volumes.arena, Lba(lba)));
        segments.extend(
            blocks
                .filter(MapEntry::has_payload)
                .map(|entry| tables.codec.segment(entry.address())),
        );
    }
    segments
}

/// Ensures that the map page of a block is present.
fn ensure_page_of(core: &mut Core, key: BlockKey) -> Result<(), OpenError> {
    let index = key.lba().0 / MAP_PAGE_ENTRIES as u64;
    let Some((v, arena)) = core.store.volumes.get_mut(key.volume()) else {
        return Ok(());
    };
    if v.map.slot(index).is_none() {
        let slot = v
            .map
            .ensure(arena, key.volume(), index)
            .ok_or(OpenError::MapMemory {
                limit: core.store.pool.limits.map_bytes,
            })?;
        arena.mark_dirty(slot);
    }
    Ok(())
}

/// Queues the operations that only records have for the log, with their LSNs. They must be durable
/// in the log before anything else is decided by addresses there
/// (`Durability::is_settled_after_start`).
pub(super) fn readmit(core: &mut Core, list: Vec<Readmitted>) -> Result<(), OpenError> {
    // First, before freed ids take pages (`pages::settle` left room for these).
    for item in &list {
        if let Readmitted::Block { key, .. } = item {
            ensure_page_of(core, *key)?;
        }
    }
    for item in list {
        match item {
            Readmitted::Record { entry, lsn } => {
                core.paths
                    .admission
                    .queue_record(&mut core.paths.durability, entry, lsn)
            }
            Readmitted::Block {
                key,
                lsn,
                content,
                ones,
            } => {
                let fill = if ones {
                    &core.store.memory.ones
                } else {
                    &core.store.memory.zeroes
                };
                let content = content.unwrap_or_else(|| fill.slice(0, BLOCK_SIZE));
                core.paths
                    .readmit_block(
                        key.volume(),
                        Lba(key.lba().0),
                        lsn,
                        content,
                        &mut core.store,
                    )
                    .map_err(|_| OpenError::MapMemory {
                        limit: core.store.pool.limits.map_bytes,
                    })?;
            }
        }
    }
    if !core.store.pool.read_only {
        core.paths.reserve_for_readmitted(&mut core.store);
    }
    Ok(())
}
