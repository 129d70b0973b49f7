//! An in-memory pool written by the plainest possible code: the counterpart of the checks in their
//! tests.

use crate::raid;
use crate::report::{CheckReport, FindingKind, Severity};
use crate::{CheckOptions, check};
use std::collections::{BTreeMap, BTreeSet};
use windrow_format::batch::{
    BatchHeader, Entry, FillState, RangeState, TableWriter, VolumeChange, encode_ends,
    payload_checksum, plan_batch,
};
use windrow_format::checkpoint::*;
use windrow_format::journal::{RecordHeader, compressed_record_bytes, encode_record};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::*;
use windrow_geometry::*;
use windrow_io::{MemberError, MemberErrorKind, MemberIo};
use windrow_types::*;

pub(crate) const USER: usize = 0;
pub(crate) const CLEANED: usize = 2;
pub(crate) const CHECKPOINT: usize = 3;
pub(crate) const SEGMENTS: u32 = 24;
pub(crate) const ROWS: u32 = 32;
const CHUNK: u32 = 16;

/// Members in memory, some of which may be missing or have unreadable blocks.
pub(crate) struct Memory {
    pub(crate) members: Vec<Option<Vec<u8>>>,
    pub(crate) unreadable: BTreeSet<(MemberId, u64)>,
}

impl MemberIo for Memory {
    fn member_count(&self) -> usize {
        self.members.len()
    }

    fn is_present(&self, member: MemberId) -> bool {
        self.members[member.index()].is_some()
    }

    fn size(&self, member: MemberId) -> u64 {
        self.members[member.index()]
            .as_ref()
            .map_or(0, |m| m.len() as u64)
    }

    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        let end = offset + buf.len() as u64;
        let fault = |kind| MemberError {
            member,
            kind,
            offset,
            code: 0,
        };
        if self
            .unreadable
            .iter()
            .any(|(m, at)| *m == member && (offset..end).contains(at))
        {
            return Err(fault(MemberErrorKind::Media));
        }
        let bytes = self.members[member.index()]
            .as_ref()
            .ok_or(fault(MemberErrorKind::Gone))?;
        buf.copy_from_slice(
            bytes
                .get(offset as usize..end as usize)
                .ok_or(fault(MemberErrorKind::Other))?,
        );
        Ok(())
    }

    fn write(&mut self, _: MemberId, _: u64, _: &[u8]) -> Result<(), MemberError> {
        unreachable!("a check writes nothing")
    }

    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        unreachable!("a check writes nothing")
    }
}

#[derive(Clone)]
pub(crate) struct SegmentModel {
    pub(crate) stream: StreamId,
    pub(crate) last_seq: BatchSeq,
    pub(crate) filled_rows: u32,
    pub(crate) starts: Vec<u64>,
}

/// The pool and its expected content.
pub(crate) struct TestPool {
    pub(crate) io: Memory,
    pub(crate) superblock: Superblock,
    pub(crate) zones: ZoneMap,
    pub(crate) codec: AddressCodec,
    pub(crate) positions: [StreamPosition; MAX_STREAMS],
    pub(crate) lsn: u64,
    pub(crate) flushed_through: u64,
    pub(crate) flushed_seq: [BatchSeq; MAX_STREAMS],
    pub(crate) volumes: BTreeMap<u32, VolumeRecord>,
    pub(crate) map: BTreeMap<(u32, u64), MapEntry>,
    pub(crate) births: BTreeMap<(u32, u64), u64>,
    pub(crate) segments: Vec<SegmentModel>,
    next_segment: u32,
    pub(crate) saved_hash: u64,
    /// Every batch written: segment, row, rows.
    pub(crate) batches: Vec<(SegmentId, u32, u32)>,
    /// Address and number of the next journal record.
    pub(crate) record: (u32, u32, u64),
    /// Blocks whose newest version is only in the journal.
    pub(crate) journalled: BTreeSet<(u32, u64)>,
}

/// A block of content that depends on `seed`.
pub(crate) fn content(seed: u64) -> Vec<u8> {
    (0..512u64)
        .flat_map(|i| {
            (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i.wrapping_mul(0xd6e8_feb8_6659_fd93))
                .to_le_bytes()
        })
        .collect()
}

fn uuid(seed: u8) -> Uuid {
    Uuid::from_random([seed; 16])
}

impl TestPool {
    pub(crate) fn new(redundancy: Redundancy, members: u8) -> Self {
        Self::with_journal(redundancy, members, None)
    }

    /// A pool with a journal of 64 KiB on each member.
    pub(crate) fn journalled(redundancy: Redundancy, members: u8) -> Self {
        let copies = redundancy.tolerance() as u8 + 1;
        Self::with_journal(
            redundancy,
            members,
            JournalArea::fit(
                (1 << members) - 1,
                copies,
                RESERVED_BYTES,
                64 << 10,
                16 << 10,
                512,
            ),
        )
    }

    /// A pool with an external journal on the last members.
    pub(crate) fn with_journal_devices(redundancy: Redundancy, members: u8, devices: u8) -> Self {
        let mask = ((1 << devices) - 1) << members;
        let external = JournalArea::fit(mask, devices, RESERVED_BYTES, 64 << 10, 16 << 10, 512);
        Self::with(
            redundancy,
            members,
            devices,
            Journals {
                external,
                ..Journals::default()
            },
        )
    }

    fn with_journal(redundancy: Redundancy, members: u8, internal: Option<JournalArea>) -> Self {
        Self::with(
            redundancy,
            members,
            0,
            Journals {
                internal,
                ..Journals::default()
            },
        )
    }

    fn with(redundancy: Redundancy, members: u8, devices: u8, journals: Journals) -> Self {
        let start = journals.internal.map_or(RESERVED_BYTES, |area| area.end());
        let shape = redundancy.shape(usize::from(members), ROWS, CHUNK).unwrap();
        let mask = (1u64 << members) - 1;
        let zone = Zone {
            members: mask,
            start,
            first_segment: 0,
            segments: SEGMENTS,
            shape,
            layout: 0,
        };
        let size = start + u64::from(SEGMENTS) * shape.extent_bytes();
        let record = |m| MemberRecord::new(uuid(m + 10), MemberState::Online, size);
        let zones = ZoneMap::new(vec![zone.clone()]);
        let codec = AddressCodec::for_segment_blocks(zones.max_data_blocks());
        let closed = StreamPosition {
            segment: SegmentId::NONE,
            row: 0,
            seq: BatchSeq(1),
            next_segment: SegmentId::NONE,
        };
        let superblock = Superblock {
            features: Features {
                incompatible: if journals.areas().next().is_some() {
                    Features::JOURNAL
                } else {
                    0
                },
                ..Features::default()
            },
            pool: uuid(1),
            pool_name: "test".into(),
            member: MemberId(0),
            member_uuid: uuid(10),
            generation: Generation(0),
            parent_hash: 0,
            epoch: Epoch(1),
            host: uuid(2),
            state: PoolState::Active,
            redundancy,
            address_offset_bits: codec.offset_bits(),
            created_unix_s: 0,
            members: (0..members + devices).map(record).collect(),
            zones: vec![zone],
            fences: vec![],
            checkpoints: [None, None],
            properties: Properties {
                spare_per_mille: 100,
                seal_age_ms: 10,
                victim_policy: 0,
                discard: false,
                ..Properties::DEFAULT
            },
            journals,
        };
        let segment = SegmentModel {
            stream: StreamId(0),
            last_seq: BatchSeq(0),
            filled_rows: 0,
            starts: vec![0; 1],
        };
        let mut pool = Self {
            io: Memory {
                members: vec![Some(vec![0; size as usize]); usize::from(members + devices)],
                unreadable: BTreeSet::new(),
            },
            superblock,
            zones,
            codec,
            positions: [closed; MAX_STREAMS],
            lsn: 0,
            flushed_through: 0,
            flushed_seq: [BatchSeq(0); MAX_STREAMS],
            volumes: BTreeMap::new(),
            map: BTreeMap::new(),
            births: BTreeMap::new(),
            segments: vec![segment; SEGMENTS as usize],
            next_segment: 0,
            saved_hash: 0,
            batches: Vec::new(),
            record: (0, 0, 1),
            journalled: BTreeSet::new(),
        };
        for stream in [USER, CLEANED, CHECKPOINT] {
            pool.positions[stream].segment = pool.take_segment();
            pool.positions[stream].next_segment = pool.take_segment();
        }
        let root = pool.root(1, PagePointer::default(), 0, pool.positions);
        pool.superblock.checkpoints[0] = Some(root);
        pool.write_labels();
        pool.save();
        pool
    }

    fn take_segment(&mut self) -> SegmentId {
        self.next_segment += 1;
        SegmentId(self.next_segment - 1)
    }

    fn root(
        &self,
        id: u64,
        list: PagePointer,
        list_pages: u32,
        replay: [StreamPosition; MAX_STREAMS],
    ) -> CheckpointRoot {
        CheckpointRoot {
            id,
            lsn: Lsn(self.lsn),
            epoch: self.superblock.epoch,
            replay,
            flushed_seq: self.flushed_seq,
            flushed_through: Lsn(self.flushed_through),
            list,
            list_pages,
            last_volume: self.volumes.keys().last().copied().unwrap_or(0),
        }
    }

    pub(crate) fn put(&mut self, member: MemberId, offset: u64, bytes: &[u8]) {
        if let Some(member) = &mut self.io.members[member.index()] {
            member[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn write_labels(&mut self) {
        for m in 0..self.superblock.members.len() as u8 {
            let member_uuid = self.superblock.members[usize::from(m)].uuid;
            let label = Label {
                version: FORMAT_VERSION,
                pool: self.superblock.pool,
                pool_name: "test".into(),
                member_uuid,
                member: MemberId(m),
            };
            self.put(MemberId(m), LABEL_OFFSET, &label.encode());
        }
    }

    /// The superblock as stored on one member.
    pub(crate) fn superblock_of(&self, member: u8) -> Superblock {
        let member_uuid = self.superblock.members[usize::from(member)].uuid;
        Superblock {
            member: MemberId(member),
            member_uuid,
            ..self.superblock.clone()
        }
    }

    /// A new generation on all members.
    pub(crate) fn save(&mut self) {
        self.superblock.parent_hash = self.saved_hash;
        self.superblock.generation = self.superblock.generation.next();
        self.saved_hash = self.superblock.content_hash();
        for m in 0..self.superblock.members.len() as u8 {
            let copy = self.superblock_of(m);
            self.put(MemberId(m), slot_offset(copy.generation), &copy.encode());
        }
    }

    pub(crate) fn next_lsn(&mut self) -> Lsn {
        self.lsn += 1;
        Lsn(self.lsn)
    }

    /// Writes a batch; returns the addresses of its payload blocks.
    pub(crate) fn batch(
        &mut self,
        stream: usize,
        entries: &[(Entry, Option<Vec<u8>>)],
    ) -> Vec<Address> {
        let mut position = self.positions[stream];
        if position.row >= ROWS {
            position = StreamPosition {
                segment: position.next_segment,
                row: 0,
                seq: position.seq,
                next_segment: self.take_segment(),
            };
        }
        let shape = *self.zones.shape(position.segment);
        let mut table = TableWriter::new();
        entries.iter().for_each(|(e, _)| table.push(e));
        let payloads: Vec<&Vec<u8>> = entries.iter().filter_map(|(_, p)| p.as_ref()).collect();
        let Some(mut plan) = plan_batch(
            &shape,
            position.row,
            table.encoded_len(),
            payloads.len() as u32,
        ) else {
            // Does not fit: an empty batch takes the rest of the chunk.
            self.batch(stream, &[]);
            return self.batch(stream, entries);
        };
        if entries.is_empty() {
            plan.rows = shape.chunk_end(position.row) - position.row;
        }
        let header = BatchHeader {
            pool: self.superblock.pool,
            epoch: self.superblock.epoch,
            stream: StreamId(stream as u8),
            seq: position.seq,
            segment: position.segment,
            row: position.row,
            rows: plan.rows,
            shape,
            members: self.superblock.zones[0].members,
            next_segment: position.next_segment,
            flushed_through: Lsn(self.flushed_through),
            flushed_seq: self.flushed_seq,
        };
        let checksums: Vec<u32> = payloads.iter().map(|p| payload_checksum(p)).collect();
        let blocks = plan.rows as usize * usize::from(shape.data);
        let mut space = vec![0; blocks * BLOCK_SIZE];
        let head_len = plan.head_blocks as usize * BLOCK_SIZE;
        let (front, tail) = space.split_at_mut((blocks - 1) * BLOCK_SIZE);
        let (head, rest) = front.split_at_mut(head_len);
        encode_ends(&header, &table, &checksums, &plan, head, tail);
        rest.chunks_exact_mut(BLOCK_SIZE)
            .zip(&payloads)
            .for_each(|(slot, p)| slot.copy_from_slice(p));
        self.write_columns(&header, &space);
        self.batches
            .push((position.segment, position.row, plan.rows));
        let segment = &mut self.segments[position.segment.index()];
        segment.starts[0] |= 1 << position.row;
        segment.filled_rows = position.row + plan.rows;
        (segment.stream, segment.last_seq) = (header.stream, header.seq);
        let first = u64::from(position.row) * u64::from(shape.data) + u64::from(plan.head_blocks);
        let addresses = (0..payloads.len() as u64)
            .map(|i| self.codec.pack_block(position.segment, first + i))
            .collect();
        position.row += plan.rows;
        position.seq = position.seq.next();
        self.positions[stream] = position;
        addresses
    }

    fn write_columns(&mut self, header: &BatchHeader, space: &[u8]) {
        let shape = header.shape;
        let columns: Vec<&[u8]> = space
            .chunks_exact(header.rows as usize * BLOCK_SIZE)
            .collect();
        let redundancy = raid::redundancy(&shape, &columns);
        let all: Vec<Vec<u8>> = columns
            .into_iter()
            .map(<[u8]>::to_vec)
            .chain(redundancy)
            .collect();
        for (column, bytes) in all.iter().enumerate() {
            let (member, offset) = self
                .zones
                .locate(header.segment)
                .address(header.row, Column(column as u8));
            self.put(member, offset, bytes);
        }
    }

    /// Writes a journal record to all copies of the current chunk. Returns its position there and
    /// its length.
    pub(crate) fn journal(&mut self, entries: &[(Entry, Option<Vec<u8>>)]) -> (u32, usize, usize) {
        let area = self.journal_area();
        let (chunk, offset, seq) = self.record;
        let mut table = TableWriter::new();
        entries.iter().for_each(|(e, _)| table.push(e));
        let lsns = || entries.iter().filter_map(|(e, _)| e.lsns());
        let header = RecordHeader {
            pool: self.superblock.pool,
            epoch: self.superblock.epoch,
            seq: BatchSeq(seq),
            chunk,
            offset,
            durable: Lsn(self.flushed_through),
            first: lsns().next().expect("an order").0,
            last: lsns()
                .next_back()
                .map(|(first, count)| Lsn(first.0 + count - 1))
                .expect("an order"),
        };
        let stored = entries
            .iter()
            .filter_map(|(_, p)| p.as_ref())
            .map(Vec::len)
            .sum();
        let mut bytes = vec![
            0;
            compressed_record_bytes(
                table.bytes().len(),
                table.payload_blocks(),
                stored,
                area.granule
            )
        ];
        assert!(
            offset as usize + bytes.len() <= area.chunk_bytes as usize,
            "the chunk is full"
        );
        encode_record(
            &header,
            &table,
            entries.iter().filter_map(|(_, p)| p.as_deref()),
            area.granule,
            &mut bytes,
        );
        for (member, at) in area.copies_of(chunk) {
            self.put(member, at + u64::from(offset), &bytes);
        }
        self.record = (chunk, offset + bytes.len() as u32, seq + 1);
        (chunk, offset as usize, bytes.len())
    }

    /// The journal in use.
    pub(crate) fn journal_area(&self) -> JournalArea {
        *self.superblock.journals.areas().next().expect("a journal")
    }

    /// Switches to the next chunk of the journal.
    pub(crate) fn turn(&mut self) {
        let area = self.journal_area();
        self.record = ((self.record.0 + 1) % area.chunks, 0, self.record.2);
    }

    /// Writes blocks only to the journal; everything written before is durable.
    pub(crate) fn sync(&mut self, volume: u32, lbas: &[u64]) -> (u32, usize, usize) {
        let mut entries = Vec::new();
        for lba in lbas {
            let birth = self.next_lsn();
            entries.push((
                Entry::Data {
                    volume: VolumeId(volume),
                    lba: Lba(*lba),
                    birth,
                },
                Some(content(birth.0)),
            ));
            self.journalled.insert((volume, *lba));
            self.map.remove(&(volume, *lba));
        }
        let address = self.journal(&entries);
        self.flushed_through = self.lsn;
        address
    }

    /// Flips a bit of a copy of a chunk.
    pub(crate) fn damage_copy(&mut self, chunk: u32, copy: u8, byte: usize) -> MemberId {
        let (member, at) = self.journal_area().locate(chunk, copy);
        if let Some(bytes) = &mut self.io.members[member.index()] {
            bytes[at as usize + byte] ^= 0x10;
        }
        member
    }

    pub(crate) fn create(&mut self, id: u32, name: &str, blocks: u64) {
        let lsn = self.next_lsn();
        let change = VolumeChange::Create {
            name: name.into(),
            size_bytes: blocks * BLOCK_BYTES,
        };
        self.batch(
            USER,
            &[(
                Entry::Volume {
                    volume: VolumeId(id),
                    lsn,
                    change,
                },
                None,
            )],
        );
        let record = VolumeRecord::new(VolumeId(id), blocks * BLOCK_BYTES, name.into());
        self.volumes.insert(id, record);
    }

    /// Writes blocks in one batch; the content follows from the LSN.
    pub(crate) fn write(&mut self, volume: u32, lbas: &[u64]) -> Vec<Address> {
        let mut entries = Vec::new();
        for lba in lbas {
            let birth = self.next_lsn();
            entries.push((
                Entry::Data {
                    volume: VolumeId(volume),
                    lba: Lba(*lba),
                    birth,
                },
                Some(content(birth.0)),
            ));
        }
        let first = self.lsn - lbas.len() as u64;
        let addresses = self.batch(USER, &entries);
        for (i, (lba, address)) in lbas.iter().zip(&addresses).enumerate() {
            let birth = first + 1 + i as u64;
            self.map.insert(
                (volume, *lba),
                MapEntry::plain(*address, payload_checksum(&content(birth))),
            );
            self.births.insert((volume, *lba), birth);
        }
        addresses
    }

    pub(crate) fn fill(&mut self, volume: u32, lba: u64) {
        let birth = self.next_lsn();
        self.batch(
            USER,
            &[(
                Entry::Fill {
                    volume: VolumeId(volume),
                    lba: Lba(lba),
                    birth,
                    state: FillState::Ones,
                },
                None,
            )],
        );
        self.map.insert((volume, lba), MapEntry::ONES);
    }

    pub(crate) fn trim(&mut self, volume: u32, lba: u64, count: u64) {
        let lsn = self.next_lsn();
        self.batch(
            USER,
            &[(
                Entry::Range {
                    volume: VolumeId(volume),
                    lba: Lba(lba),
                    count,
                    lsn,
                    state: RangeState::Hole,
                },
                None,
            )],
        );
        self.map
            .retain(|(v, l), _| *v != volume || !(lba..lba + count).contains(l));
    }

    /// Moves blocks as cleaning does.
    pub(crate) fn clean(&mut self, volume: u32, lbas: &[u64]) {
        let entry = |lba: &u64| {
            let (from, birth) = (
                self.map[&(volume, *lba)].address(),
                self.births[&(volume, *lba)],
            );
            (
                Entry::Move {
                    volume: VolumeId(volume),
                    lba: Lba(*lba),
                    birth: Lsn(birth),
                    from,
                },
                Some(content(birth)),
            )
        };
        let entries: Vec<_> = lbas.iter().map(entry).collect();
        let addresses = self.batch(CLEANED, &entries);
        for (lba, address) in lbas.iter().zip(addresses) {
            let checksum = self.map[&(volume, *lba)].checksum();
            self.map
                .insert((volume, *lba), MapEntry::plain(address, checksum));
        }
    }

    /// Writes pages as payload of one batch of the checkpoint stream.
    fn pages(&mut self, pages: Vec<(u32, u32, Vec<u8>)>) -> Vec<PagePointer> {
        let checksums: Vec<u32> = pages
            .iter()
            .map(|(.., bytes)| payload_checksum(bytes))
            .collect();
        let entries: Vec<_> = pages
            .into_iter()
            .map(|(object, index, bytes)| (Entry::Page { object, index }, Some(bytes)))
            .collect();
        let addresses = self.batch(CHECKPOINT, &entries);
        let (_, row, rows) = self.batches[self.batches.len() - 1];
        addresses
            .into_iter()
            .zip(checksums)
            .map(|(address, checksum)| PagePointer::to(address, checksum, row as u16, rows as u16))
            .collect()
    }

    fn table_pages(&self) -> Vec<(u32, u32, Vec<u8>)> {
        let mut pages = Vec::new();
        let mut page = vec![0; BLOCK_SIZE];
        encode_volumes(
            &self.volumes.values().cloned().map(Some).collect::<Vec<_>>(),
            &mut page,
        );
        pages.push((OBJECT_VOLUMES, 0, page.clone()));
        let geometry = SegmentTableGeometry::new(ROWS);
        for (i, segment) in self.segments.iter().enumerate() {
            let (index, at) = geometry.locate(SegmentId(i as u32));
            assert_eq!(index, 0);
            if i == 0 {
                page.fill(0);
            }
            let record = SegmentRecord {
                segment: SegmentId(i as u32),
                stream: segment.stream,
                in_use: segment.filled_rows > 0,
                filled_rows: segment.filled_rows,
                last_checkpoint: 0,
                last_seq: segment.last_seq,
                stale: 0,
                starts: segment.starts.clone(),
            };
            encode_segment(&record, &mut page[at..at + geometry.stride]);
        }
        pages.push((OBJECT_SEGMENTS, 0, page.clone()));
        let numbers: BTreeSet<(u32, u64)> = self.map.keys().map(|(v, l)| (*v, l / 256)).collect();
        for (volume, number) in numbers {
            let entry = |i| {
                self.map
                    .get(&(volume, number * 256 + i))
                    .copied()
                    .unwrap_or_default()
            };
            let entries: Vec<MapEntry> = (0..256).map(entry).collect();
            encode_map_page(&entries, &mut page);
            pages.push((OBJECT_MAP + volume, number as u32, page.clone()));
        }
        encode_counters(&[1, 2, 3], &mut page);
        pages.push((OBJECT_COUNTERS, 0, page));
        pages
    }

    /// Writes a checkpoint; the chain of list pages has one page that names one further list page.
    pub(crate) fn checkpoint(&mut self) {
        let replay = self.positions;
        let id = self.superblock.checkpoints[0].map_or(1, |c| c.id + 1);
        let pages = self.table_pages();
        let keys: Vec<(u32, u32)> = pages
            .iter()
            .map(|(object, index, _)| (*object, *index))
            .collect();
        let pointers = self.pages(pages);
        let mut leaves: BTreeMap<(u32, u32), Vec<PagePointer>> = BTreeMap::new();
        for ((object, index), pointer) in keys.into_iter().zip(pointers) {
            let leaf = leaves
                .entry((object, index / 256))
                .or_insert_with(|| vec![PagePointer::default(); 256]);
            leaf[index as usize % 256] = pointer;
        }
        let mut page = vec![0; BLOCK_SIZE];
        let mut images = Vec::new();
        for (i, pointers) in leaves.values().enumerate() {
            encode_leaf(pointers, &mut page);
            images.push((OBJECT_LEAF, i as u32, page.clone()));
        }
        let pointers = self.pages(images);
        let records = leaves
            .keys()
            .zip(pointers)
            .map(|((object, leaf), pointer)| LeafRecord {
                object: *object,
                leaf: *leaf,
                pointer,
            })
            .collect();
        encode_list(
            &ListPage {
                checkpoint: id,
                previous: PagePointer::default(),
                records,
            },
            &mut page,
        );
        let list = self.pages(vec![(OBJECT_LIST, 0, page.clone())]);
        let records = vec![LeafRecord {
            object: OBJECT_LIST,
            leaf: 0,
            pointer: list[0],
        }];
        encode_list(
            &ListPage {
                checkpoint: id,
                previous: PagePointer::default(),
                records,
            },
            &mut page,
        );
        let top = self.pages(vec![(OBJECT_LIST, 1, page)]);
        self.flush();
        let root = self.root(id, top[0], 2, replay);
        self.superblock.checkpoints = [Some(root), self.superblock.checkpoints[0]];
        self.save();
    }

    /// Records that everything written so far is durable.
    pub(crate) fn flush(&mut self) {
        self.flushed_through = self.lsn;
        self.flushed_seq = std::array::from_fn(|i| BatchSeq(self.positions[i].seq.0 - 1));
    }

    /// Imports after a crash that lost everything after `accepted` and `positions`.
    pub(crate) fn fence(&mut self, accepted: u64, positions: [StreamPosition; MAX_STREAMS]) {
        self.superblock.epoch = self.superblock.epoch.next();
        let next_lsn = Lsn(self.lsn + 100);
        let last_seq = std::array::from_fn(|i| BatchSeq(positions[i].seq.0 - 1));
        self.superblock.fences.push(Fence {
            epoch: self.superblock.epoch,
            recovery_lsn: Lsn(accepted),
            covered_lsn: Lsn(accepted),
            next_lsn,
            last_seq,
        });
        self.positions = positions;
        self.lsn = next_lsn.0 - 1;
        self.save();
    }

    /// Member and byte offset of data block `block` of a batch (by its index in `batches`).
    pub(crate) fn address(&self, batch: usize, block: u32) -> (MemberId, u64) {
        let (segment, row, rows) = self.batches[batch];
        let column = Column((block / rows) as u8);
        let (member, offset) = self.zones.locate(segment).address(row, column);
        (member, offset + u64::from(block % rows) * BLOCK_BYTES)
    }

    /// Flips a bit of a block of a batch.
    pub(crate) fn damage(&mut self, batch: usize, block: u32) {
        let (member, offset) = self.address(batch, block);
        if let Some(bytes) = &mut self.io.members[member.index()] {
            bytes[offset as usize + 100] ^= 0x10;
        }
    }

    /// Overwrites columns of a batch with possible stale content.
    pub(crate) fn lose_columns(&mut self, batch: usize, columns: std::ops::Range<u8>) {
        let (segment, row, rows) = self.batches[batch];
        for column in columns {
            let (member, offset) = self.zones.locate(segment).address(row, Column(column));
            self.put(member, offset, &vec![0x6b; rows as usize * BLOCK_SIZE]);
        }
    }

    pub(crate) fn check(&mut self) -> CheckReport {
        check(&mut self.io, &CheckOptions::everything(), &mut |_| {})
    }

    /// Checks, and compares the result with the expected content.
    pub(crate) fn expect_clean(&mut self) -> CheckReport {
        let report = self.check();
        assert!(
            report
                .findings
                .list
                .iter()
                .all(|f| f.severity == Severity::Note),
            "{:#?}",
            report.findings.list
        );
        assert_eq!(report.exit_code(), 0, "{:?}", report.failure);
        assert_eq!(report.recovery_lsn.0, self.lsn);
        for (id, volume) in &self.volumes {
            let journalled = self.journalled.iter().filter(|(v, _)| v == id).count() as u64;
            let mapped = self
                .map
                .iter()
                .filter(|((v, _), e)| v == id && e.has_payload())
                .count() as u64
                + journalled;
            let reported = report.volumes.iter().find(|v| v.id.0 == *id).unwrap();
            assert_eq!(
                (
                    &reported.name,
                    reported.mapped_blocks,
                    reported.journal_blocks
                ),
                (&volume.name, mapped, journalled)
            );
        }
        report
    }
}

/// Kinds and severities, in the order found, without repeats.
pub(crate) fn kinds(report: &CheckReport) -> Vec<(FindingKind, Severity)> {
    let mut kinds: Vec<_> = report
        .findings
        .list
        .iter()
        .map(|f| (f.kind, f.severity))
        .collect();
    kinds.dedup();
    kinds
}
