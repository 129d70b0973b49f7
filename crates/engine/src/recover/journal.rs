//! The journal at a start: which records count, what they bring that no batch has, and their
//! redundancy.
//!
//! 1 The first block of every copy of every chunk is read. Chunks that may hold orders above those
//!   of the batches are read as a whole.
//! 2 A chunk's records are followed from its first byte, each by any copy that verifies, as long as
//!   numbers are consecutive. Nothing is searched for.
//! 3 P is reckoned from batches and records together (`replay.rs`). Trims and volume operations
//!   that only records have take effect on the tables; the last version of each block is to be
//!   readmitted with the order that it has; the orders between are covered.
//! 4 Chunks with something needed are written again to the copies that differ, up to the last
//!   record: one that is reached through others needs those.

use super::fence::records_through;
use super::reader::Reader;
use super::tables::apply_entry;
use super::{OpenError, Tables};
use crate::journal::Resume;
use crate::limits::LBA_BITS;
use crate::pending::BlockKey;
use crate::{Engine, MemberStats};
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

/// A record that counts.
pub(super) struct Record {
    pub(super) decoded: DecodedRecord,
    chunk: usize,
}

impl Record {
    pub(super) fn epoch(&self) -> Epoch {
        self.decoded.header.epoch
    }
}

/// A chunk that holds records that count.
struct Chunk {
    /// Its journal, in the order of `Journals::areas`.
    ring: usize,
    number: u32,
    /// The records as they must be, from the first byte of the chunk to the end of the last one.
    bytes: Payload,
    /// Copies, by number, that differ from it.
    differing: Vec<u8>,
}

/// All records that may bring something.
#[derive(Default)]
pub(super) struct Found {
    areas: Vec<JournalArea>,
    chunks: Vec<Chunk>,
    /// In ascending order of epoch and number.
    pub(super) records: Vec<Record>,
    /// What was durable, as records say that are not reached: epoch and order.
    pub(super) claims: Vec<(Epoch, Lsn)>,
    /// The highest epoch of any record, whether it counts or not.
    pub(super) highest_epoch: Epoch,
    /// Of each journal the chunk that seems to have been filled last.
    newest_chunks: Vec<u32>,
}

/// Something to be put into the log again.
pub(crate) enum Readmitted {
    /// A block and its content.
    Block {
        /// Block.
        key: BlockKey,
        /// The order it has.
        lsn: Lsn,
        /// Content; `None`: all bytes are 0xFF if `ones`, else 0x00.
        content: Option<Payload>,
        /// See `content`.
        ones: bool,
    },
    /// A range or volume operation, which is in the tables, or orders without content.
    Record {
        /// The entry.
        entry: Entry,
        /// Its last order.
        lsn: Lsn,
    },
}

/// What only records have.
pub(super) struct Brought {
    /// What is to be readmitted, in ascending order, for every order in `covered + 1 ..= accepted`
    /// that a record has.
    pub(super) list: Vec<Readmitted>,
    /// Orders of blocks for which the tables have no volume, or a smaller one, and which no later
    /// record took.
    pub(super) homeless: Vec<Lsn>,
}

/// Reads the records that may hold orders above `covered`. Those of epochs before that of the
/// checkpoint root, `since`, do not count: what a start readmits is durable in the log before a
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
    // The first record of each chunk; `None`: one that is not wholly in its first block.
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
        // All orders of a chunk are below those of the chunk that was filled after it.
        let after = firsts.get(at + 1).and_then(|(after, _)| after.as_ref());
        if first.is_none() || after.is_none_or(|after| after.last > covered) {
            follow(reader, superblock, (ring, *chunk), (covered, since), found)?;
            // What the first record says counts even if the rest of it can not be had any more.
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
        // Where a write was lost, a copy bears a record of a former life of the chunk: the newest
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

/// Behind the last record that counts: one whose payload is damaged may still say how long it is,
/// and what was durable when it was made; so may those behind it. None of them counts, but a lost
/// record is thereby told from a torn one.
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
    /// What was durable, as all records say: epoch and order.
    pub(super) fn claims(&self) -> impl Iterator<Item = (Epoch, Lsn)> + '_ {
        self.records
            .iter()
            .map(|record| (record.epoch(), record.decoded.header.durable))
            .chain(self.claims.iter().copied())
    }

    /// The last order that is in effect when the log has everything up to `covered`, and the
    /// highest one that any record names.
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

    /// The content of a block of a record.
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
                "payload {} of journal record {seq} verifies, but it can not be unpacked",
                info.unit
            )));
        }
        Ok(block.freeze())
    }

    /// Where the journals go on.
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

    /// Writes the needed chunks again where a copy differs. Nothing is needed that no order up to P
    /// was in.
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

    /// Applies what only records have to the tables, as far as it has no content; `before` sees
    /// each entry, and the tables, before that takes effect.
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
                    // Orders that a start between skipped: their fence covers them.
                    list.push(nothing(done.next(), Lsn(first.0 - 1)));
                }
                done = last;
                before(&decoded.entry, tables);
                emptied.extend(places_of(&decoded.entry, tables));
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
        // A block of a volume that is gone, or that has become smaller, is nothing but its order.
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
        // What took blocks from these segments is in the journal only: they are not to be written
        // again before the log has it.
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
            // (No volume has them, and as keys they would be blocks of others.)
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

/// Writes records to a copy, in whole sectors: a pool may have been copied to larger ones than its
/// journal is written in, and devices refuse less. What the copy has behind the records in the last
/// sector is put back, so each byte is what it would be had smaller sectors been written, and
/// nothing comes to be there that could be taken for a record. If it can not be read, it becomes
/// zeroes: no record begins with these, and the next one would have to begin there. (Chunks are
/// whole sectors: nothing is written beyond one.) Returns the bytes written.
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

/// Orders without content.
fn nothing(first: Lsn, last: Lsn) -> Readmitted {
    Readmitted::Record {
        entry: Entry::Covered {
            first,
            count: last.0 - first.0 + 1,
        },
        lsn: last,
    }
}

/// The volume and blocks that an operation takes older versions from.
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

/// Segments that hold blocks which a range or volume operation takes from the map.
fn places_of(entry: &Entry, tables: &Tables) -> BTreeSet<SegmentId> {
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

impl Engine {
    /// Makes sure of the page of the map with a block.
    fn ensure_page_of(&mut self, key: BlockKey) -> Result<(), OpenError> {
        let index = key.lba().0 / MAP_PAGE_ENTRIES as u64;
        let Some((v, arena)) = self.map.volumes.get_mut(key.volume()) else {
            return Ok(());
        };
        if v.map.slot(index).is_none() {
            let slot = v
                .map
                .ensure(arena, key.volume(), index)
                .ok_or(OpenError::MapMemory {
                    limit: self.pool.limits.map_bytes,
                })?;
            arena.mark_dirty(slot);
        }
        Ok(())
    }

    /// Puts what only records have into the queue for the log, with the orders that it has. They
    /// are to be durable in the log before anything else is decided by places there
    /// (`Journal::settle`).
    pub(super) fn readmit(&mut self, list: Vec<Readmitted>) -> Result<(), OpenError> {
        // Before anything takes pages for ids, which nobody needs (`pages::settle` has left room
        // for these).
        for item in &list {
            if let Readmitted::Block { key, .. } = item {
                self.ensure_page_of(*key)?;
            }
        }
        for item in list {
            match item {
                Readmitted::Record { entry, lsn } => self.queue_record(entry, lsn),
                Readmitted::Block {
                    key,
                    lsn,
                    content,
                    ones,
                } => {
                    let fill = if ones {
                        &self.memory.ones
                    } else {
                        &self.memory.zeroes
                    };
                    let content = content.unwrap_or_else(|| fill.slice(0, BLOCK_SIZE));
                    self.readmit_block(key.volume(), Lba(key.lba().0), lsn, content)
                        .map_err(|_| OpenError::MapMemory {
                            limit: self.pool.limits.map_bytes,
                        })?;
                }
            }
        }
        if !self.pool.read_only {
            self.reserve_for_readmitted();
        }
        Ok(())
    }
}
