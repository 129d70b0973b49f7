//! Frozen bytes of format version 1. A change of any of these files is a change of the format: it
//! needs a new version or feature flag (see `docs/internals/format.md`), never a new fixture.
//! `WINDROW_WRITE_FIXTURES=1 cargo test -p windrow-format` writes files that do not exist yet.

use std::path::Path;
use windrow_format::batch::{
    BatchHeader, BatchPlan, Entry, FillState, RangeState, TableWriter, VolumeChange, decode_batch,
    encode_ends, plan_batch,
};
use windrow_format::checkpoint::*;
use windrow_format::journal::{
    RecordHeader, compressed_record_bytes, decode_record, encode_record,
};
use windrow_format::map_entry::{BlockState, MapEntry};
use windrow_format::superblock::*;
use windrow_geometry::*;
use windrow_types::*;

/// Compares with the file of that name.
fn golden(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    if !path.exists() && std::env::var_os("WINDROW_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let frozen = std::fs::read(&path).unwrap();
    assert_eq!(frozen.len(), bytes.len(), "{name}");
    let differing = frozen.iter().zip(bytes).position(|(a, b)| a != b);
    assert_eq!(differing, None, "{name} differs from this byte on");
}

fn uuid(seed: u8) -> Uuid {
    Uuid::from_random(std::array::from_fn(|i| {
        seed.wrapping_mul(17).wrapping_add(i as u8 * 3)
    }))
}

const SHAPE: Shape = Shape {
    width: 6,
    data: 4,
    code: Code::PQ,
    rows: 64,
    chunk_rows: 16,
};

fn label() -> Label {
    Label {
        version: 1,
        pool: uuid(1),
        pool_name: "meadow".into(),
        member_uuid: uuid(12),
        member: MemberId(2),
    }
}

fn superblock() -> Superblock {
    let state = |i: u8| {
        if i == 4 {
            MemberState::Absent
        } else {
            MemberState::Online
        }
    };
    let member = |i: u8| MemberRecord {
        uuid: uuid(10 + i),
        state: state(i),
        absence: Absence::Missing,
        size_bytes: (64 << 20) + u64::from(i) * 4096,
        absent_since: Generation(if i == 4 { 6 } else { 0 }),
        missed_from: 0,
        listed_from: 0,
        replaces: None,
    };
    let narrow = Shape {
        width: 4,
        data: 2,
        ..SHAPE
    };
    let zones = vec![
        Zone {
            members: 0x3f,
            start: 1 << 20,
            first_segment: 0,
            segments: 240,
            shape: SHAPE,
            layout: 3,
        },
        Zone {
            members: 0x2f,
            start: 64 << 20,
            first_segment: 240,
            segments: 10,
            shape: narrow,
            layout: 3,
        },
    ];
    let position = |i: u32| StreamPosition {
        segment: SegmentId(10 + i),
        row: 4 * i,
        seq: BatchSeq(100 + u64::from(i)),
        next_segment: SegmentId(20 + i),
    };
    let unused = StreamPosition {
        segment: SegmentId::NONE,
        row: 0,
        seq: BatchSeq(1),
        next_segment: SegmentId::NONE,
    };
    let root = |id: u64| CheckpointRoot {
        id,
        lsn: Lsn(5000 + id),
        epoch: Epoch(3),
        replay: std::array::from_fn(|i| if i < 4 { position(i as u32) } else { unused }),
        flushed_seq: std::array::from_fn(|i| BatchSeq(if i < 4 { 99 } else { 0 })),
        flushed_through: Lsn(4990 + id),
        list: PagePointer::to(Address(0x1234_5600), 0x9abc_def0, 17, 6),
        list_pages: 2,
        last_volume: 5,
    };
    Superblock {
        features: Features {
            compatible: 0,
            read_only: 0,
            incompatible: 0,
        },
        pool: uuid(1),
        pool_name: "meadow".into(),
        member: MemberId(2),
        member_uuid: uuid(12),
        generation: Generation(9),
        parent_hash: 0x0123_4567_89ab_cdef,
        epoch: Epoch(4),
        host: uuid(50),
        state: PoolState::Active,
        redundancy: Redundancy::Double,
        address_offset_bits: 22,
        created_unix_s: 1_700_000_000,
        members: (0..6).map(member).collect(),
        zones,
        fences: vec![
            Fence {
                epoch: Epoch(3),
                recovery_lsn: Lsn(3000),
                covered_lsn: Lsn(3000),
                next_lsn: Lsn(4000),
                last_seq: [BatchSeq(7); MAX_STREAMS],
            },
            Fence {
                epoch: Epoch(4),
                recovery_lsn: Lsn(5100),
                covered_lsn: Lsn(5070),
                next_lsn: Lsn(6000),
                last_seq: std::array::from_fn(|i| BatchSeq(i as u64)),
            },
        ],
        checkpoints: [Some(root(12)), Some(root(11))],
        properties: Properties {
            spare_per_mille: 100,
            seal_age_ms: 20,
            victim_policy: 1,
            discard: true,
            ..Properties::DEFAULT
        },
        journals: Journals::default(),
    }
}

/// Every kind of entry, and enough of them that the table reaches from the head into the tail.
fn entries() -> Vec<Entry> {
    let (volume, other) = (VolumeId(1), VolumeId(300));
    let mut entries = vec![
        Entry::Volume {
            volume,
            lsn: Lsn(1000),
            change: VolumeChange::Create {
                name: "root".into(),
                size_bytes: 1 << 30,
            },
        },
        Entry::Volume {
            volume,
            lsn: Lsn(1001),
            change: VolumeChange::Resize {
                size_bytes: 2 << 30,
            },
        },
        Entry::Volume {
            volume: other,
            lsn: Lsn(1002),
            change: VolumeChange::SetReadOnly(true),
        },
        Entry::Volume {
            volume: other,
            lsn: Lsn(1003),
            change: VolumeChange::Delete,
        },
        Entry::Fill {
            volume,
            lba: Lba(50),
            birth: Lsn(1004),
            state: FillState::Zero,
        },
        Entry::Fill {
            volume,
            lba: Lba(51),
            birth: Lsn(1005),
            state: FillState::Ones,
        },
        Entry::Range {
            volume,
            lba: Lba(1000),
            count: 5000,
            lsn: Lsn(1020),
            state: RangeState::Hole,
        },
        Entry::Range {
            volume,
            lba: Lba(6000),
            count: 1,
            lsn: Lsn(1010),
            state: RangeState::Zero,
        },
        Entry::Covered {
            first: Lsn(1011),
            count: 9,
        },
        Entry::Move {
            volume,
            lba: Lba(77),
            birth: Lsn(12),
            from: Address(123_456 << 8),
        },
        Entry::Page {
            object: OBJECT_MAP + 1,
            index: 3,
        },
        Entry::Page {
            object: OBJECT_LEAF,
            index: 0,
        },
    ];
    let blocks = (0..1100u64).map(|i| Entry::Data {
        volume,
        lba: Lba(i * i * 2_654_435_761 % 250_000),
        birth: Lsn(1021 + i * 3),
    });
    entries.extend(blocks.take(40));
    let fills = (0..1200u64).map(|i| Entry::Fill {
        volume,
        lba: Lba(i * 40_503 % 250_000),
        birth: Lsn(2000 + i),
        state: FillState::Ones,
    });
    entries.extend(fills);
    entries
}

#[test]
fn label_bytes_are_frozen() {
    golden("label-v1.bin", &label().encode());
    assert_eq!(Label::decode(&label().encode()).unwrap(), label());
}

#[test]
fn superblock_bytes_are_frozen() {
    let superblock = superblock();
    golden("superblock-v1.bin", &superblock.encode());
    assert_eq!(
        Superblock::decode(&superblock.encode()).unwrap(),
        superblock
    );
    golden(
        "superblock-hash-v1.bin",
        &superblock.content_hash().to_le_bytes(),
    );
}

#[test]
fn superblock_with_a_journal_is_frozen() {
    let mut superblock = superblock();
    superblock.features.incompatible = Features::JOURNAL;
    let device =
        JournalArea::fit(0x40, 1, 1 << 20, 16 << 20, 256 << 10, 4096).map(|area| JournalArea {
            power_safe: true,
            ..area
        });
    superblock.journals = Journals {
        internal: JournalArea::fit(0x3f, 3, 1 << 20, 1 << 20, 64 << 10, 512),
        external: device,
        durable_lsn: Lsn(0x1234_5678_9abc),
    };
    superblock.members.push(MemberRecord {
        uuid: uuid(16),
        size_bytes: 32 << 20,
        ..superblock.members[0].clone()
    });
    for zone in &mut superblock.zones {
        zone.start += 1 << 20;
    }
    golden("superblock-journal-v1.bin", &superblock.encode());
    assert_eq!(
        Superblock::decode(&superblock.encode()).unwrap(),
        superblock
    );
}

/// Every kind of entry that a record may have, in ascending order of what they cover.
fn record_entries() -> Vec<Entry> {
    let (volume, other) = (VolumeId(1), VolumeId(300));
    let block = |lba, birth| Entry::Data {
        volume,
        lba: Lba(lba),
        birth: Lsn(birth),
    };
    vec![
        Entry::Volume {
            volume: other,
            lsn: Lsn(5000),
            change: VolumeChange::Create {
                name: "sync".into(),
                size_bytes: 1 << 30,
            },
        },
        block(77, 5001),
        Entry::Fill {
            volume,
            lba: Lba(78),
            birth: Lsn(5002),
            state: FillState::Ones,
        },
        Entry::Range {
            volume,
            lba: Lba(1000),
            count: 5000,
            lsn: Lsn(5003),
            state: RangeState::Hole,
        },
        Entry::Covered {
            first: Lsn(5004),
            count: 9,
        },
        block(79, 5013),
        Entry::Range {
            volume: other,
            lba: Lba(3),
            count: 1,
            lsn: Lsn(5014),
            state: RangeState::Zero,
        },
        block(12, 5015),
    ]
}

#[test]
fn journal_record_bytes_are_frozen() {
    for granule in [512, 4096] {
        let mut table = TableWriter::new();
        record_entries().iter().for_each(|e| table.push(e));
        let (chunk, offset) = (7, 8192);
        let header = RecordHeader {
            pool: uuid(1),
            epoch: Epoch(4),
            seq: BatchSeq(33),
            chunk,
            offset,
            durable: Lsn(4990),
            first: Lsn(5000),
            last: Lsn(5015),
        };
        let bytes = |b: u8, length: usize| {
            (0..length)
                .map(|i| (i as u8).wrapping_mul(b + 3) ^ b)
                .collect()
        };
        // The second one is compressed.
        let blocks: Vec<Vec<u8>> = vec![bytes(0, BLOCK_SIZE), bytes(1, 777), bytes(2, BLOCK_SIZE)];
        let mut record = vec![
            0xaa;
            compressed_record_bytes(
                table.bytes().len(),
                table.payload_blocks(),
                2 * BLOCK_SIZE + 777,
                granule
            )
        ];
        encode_record(
            &header,
            &table,
            blocks.iter().map(Vec::as_slice),
            granule,
            &mut record,
        );
        golden(&format!("record-{granule}-v1.bin"), &record);
        let decoded = decode_record(&record, &uuid(1), chunk, offset, granule).unwrap();
        assert_eq!(decoded.header, header);
        assert!(
            decoded
                .entries
                .iter()
                .map(|e| e.entry.clone())
                .eq(record_entries())
        );
        let payload: Vec<&[u8]> = decoded
            .entries
            .iter()
            .filter_map(|e| e.payload)
            .map(|p| decoded.payload(&record, &p))
            .collect();
        assert_eq!(payload, blocks);
    }
}

#[test]
fn batch_bytes_are_frozen() {
    let mut table = TableWriter::new();
    entries().iter().for_each(|e| table.push(e));
    let plan: BatchPlan =
        plan_batch(&SHAPE, 16, table.encoded_len(), table.payload_blocks()).unwrap();
    let header = BatchHeader {
        pool: uuid(1),
        epoch: Epoch(4),
        stream: StreamId(1),
        seq: BatchSeq(8),
        segment: SegmentId(77),
        row: 16,
        rows: plan.rows,
        shape: SHAPE,
        members: 0x3f,
        next_segment: SegmentId(78),
        flushed_through: Lsn(990),
        flushed_seq: std::array::from_fn(|i| BatchSeq(i as u64 + 3)),
    };
    let checksums: Vec<u32> = (0..table.payload_blocks())
        .map(|i| i.wrapping_mul(0x9e37_79b9))
        .collect();
    let (mut head, mut tail) = (
        vec![0; plan.head_blocks as usize * BLOCK_SIZE],
        vec![0; BLOCK_SIZE],
    );
    encode_ends(&header, &table, &checksums, &plan, &mut head, &mut tail);
    assert!(
        table.encoded_len() > head.len() - 256,
        "the fixture must show a table that reaches into the tail"
    );
    golden("batch-head-v1.bin", &head);
    golden("batch-tail-v1.bin", &tail);
    let batch = decode_batch(&head, &tail, &uuid(1), SegmentId(77), 16).unwrap();
    assert!(batch.entries.iter().map(|e| &e.entry).eq(&entries()));
}

#[test]
fn packed_batch_bytes_are_frozen() {
    let volume = VolumeId(3);
    let mut table = TableWriter::new();
    for i in 0..24u64 {
        let units = [256, 70, 224, 33, 1, 150][i as usize % 6];
        match i % 5 {
            4 => table.push_stored(
                &Entry::Move {
                    volume,
                    lba: Lba(900 - i),
                    birth: Lsn(70 + i),
                    from: Address(0x1_0000 + i * 77),
                },
                units,
            ),
            _ => table.push_stored(
                &Entry::Data {
                    volume,
                    lba: Lba(i * 31),
                    birth: Lsn(2000 + i),
                },
                units,
            ),
        }
    }
    table.push(&Entry::Volume {
        volume,
        lsn: Lsn(2100),
        change: VolumeChange::SetCompression(Compression::Lz4),
    });
    let plan = table.plan(&SHAPE, 16).unwrap();
    let header = BatchHeader {
        pool: uuid(1),
        epoch: Epoch(4),
        stream: StreamId(0),
        seq: BatchSeq(9),
        segment: SegmentId(78),
        row: 16,
        rows: plan.rows,
        shape: SHAPE,
        members: 0x3f,
        next_segment: SegmentId(79),
        flushed_through: Lsn(1990),
        flushed_seq: std::array::from_fn(|i| BatchSeq(i as u64 + 3)),
    };
    let checksums: Vec<u32> = (0..plan.payload_blocks + table.compressed().len() as u32)
        .map(|i| i.wrapping_mul(0x9e37_79b9))
        .collect();
    let (mut head, mut tail) = (
        vec![0; plan.head_blocks as usize * BLOCK_SIZE],
        vec![0; BLOCK_SIZE],
    );
    encode_ends(&header, &table, &checksums, &plan, &mut head, &mut tail);
    golden("batch-packed-head-v1.bin", &head);
    golden("batch-packed-tail-v1.bin", &tail);
    let batch = decode_batch(&head, &tail, &uuid(1), SegmentId(78), 16).unwrap();
    assert!(batch.frame.compressed_payloads == 20 && batch.frame.compressed_blocks > 1);
    let entry = MapEntry::stored(Address(0x2222_3333_4401), 70, 0x99aa_bbcc);
    golden("map-packed-v1.bin", &entry.to_bytes());
    assert_eq!(
        (entry.state(), entry.length_units()),
        (Some(BlockState::Lz4), 70)
    );
}

/// Values introduced with zstd: in the volume's record, and in the operation that sets it.
#[test]
fn zstd_bytes_are_frozen() {
    let mut page = [0; BLOCK_SIZE];
    let volumes: Vec<Option<VolumeRecord>> = (1..)
        .zip(Compression::ALL)
        .map(|(id, compression)| {
            Some(VolumeRecord {
                compression,
                ..VolumeRecord::new(VolumeId(id), u64::from(id) << 30, format!("volume-{id}"))
            })
        })
        .collect();
    encode_volumes(&volumes, &mut page);
    golden("volumes-zstd-v1.bin", &page);
    assert_eq!(decode_volumes(&page).unwrap()[..4], volumes);
    let mut table = TableWriter::new();
    for (lsn, compression) in (7..).zip(Compression::ALL) {
        table.push(&Entry::Volume {
            volume: VolumeId(3),
            lsn: Lsn(lsn),
            change: VolumeChange::SetCompression(compression),
        });
    }
    golden("table-zstd-v1.bin", table.bytes());
}

#[test]
fn shared_batch_bytes_are_frozen() {
    let (volume, other) = (VolumeId(3), VolumeId(7));
    let mut table = TableWriter::new();
    table.push(&Entry::Volume {
        volume,
        lsn: Lsn(900),
        change: VolumeChange::SetDedup(Dedup::Hash),
    });
    table.push(&Entry::Volume {
        volume: other,
        lsn: Lsn(901),
        change: VolumeChange::SetDedup(Dedup::Verify),
    });
    for i in 0..40u64 {
        let (birth, lba) = (Lsn(1000 + i), Lba(i * 31 % 77));
        let incarnation = if i % 4 == 3 {
            (1000 + i / 8) as u32
        } else {
            birth.0 as u32
        };
        if i % 4 != 3 {
            table.push_stored(
                &Entry::Data {
                    volume: VolumeId::SHARED,
                    lba: Lba(i),
                    birth,
                },
                [256, 70][i as usize % 2],
            );
        }
        let id = if i % 4 == 3 { Lba(i / 8) } else { Lba(i) };
        table.push(&Entry::Reference {
            volume: if i % 5 == 0 { other } else { volume },
            lba,
            birth,
            id,
            incarnation,
        });
    }
    table.push(&Entry::Move {
        volume: VolumeId::SHARED,
        lba: Lba(2),
        birth: Lsn(1002),
        from: Address(0x1_0000),
    });
    let plan = table.plan(&SHAPE, 16).unwrap();
    let header = BatchHeader {
        pool: uuid(1),
        epoch: Epoch(4),
        stream: StreamId(0),
        seq: BatchSeq(10),
        segment: SegmentId(79),
        row: 16,
        rows: plan.rows,
        shape: SHAPE,
        members: 0x3f,
        next_segment: SegmentId(80),
        flushed_through: Lsn(890),
        flushed_seq: std::array::from_fn(|i| BatchSeq(i as u64 + 3)),
    };
    let checksums: Vec<u32> = (0..plan.payload_blocks + table.compressed().len() as u32)
        .map(|i| i.wrapping_mul(0x9e37_79b9))
        .collect();
    let (mut head, mut tail) = (
        vec![0; plan.head_blocks as usize * BLOCK_SIZE],
        vec![0; BLOCK_SIZE],
    );
    encode_ends(&header, &table, &checksums, &plan, &mut head, &mut tail);
    golden("batch-shared-head-v1.bin", &head);
    golden("batch-shared-tail-v1.bin", &tail);
    let batch = decode_batch(&head, &tail, &uuid(1), SegmentId(79), 16).unwrap();
    assert!(
        batch
            .entries
            .iter()
            .zip(table.decode())
            .all(|(decoded, (entry, _))| decoded.entry == entry)
    );
    let shared = MapEntry::shared(Lba(0x12_3456_789a), 0xdead_beef);
    let content =
        MapEntry::plain(Address(0x2222_3333_4400), 0x5566_7788).with_incarnation(0xdead_beef);
    golden(
        "map-shared-v1.bin",
        &[shared.to_bytes(), content.to_bytes()].concat(),
    );
    assert_eq!(
        (
            shared.shared_id(),
            shared.incarnation(),
            content.incarnation(),
            content.checksum()
        ),
        (
            Some(Lba(0x12_3456_789a)),
            0xdead_beef,
            0xdead_beef,
            0x5566_7788
        )
    );
    assert!(
        shared.is_data() && !shared.has_payload() && shared.state() == Some(BlockState::Shared)
    );
}

#[test]
fn checkpoint_bytes_are_frozen() {
    let pointer = |i: u32| {
        PagePointer::to(
            Address(u64::from(i) << 20 | 0x100),
            i.wrapping_mul(0x85eb_ca6b),
            i as u16 * 3,
            5,
        )
    };
    let mut page = [0; BLOCK_SIZE];
    let pointers: Vec<PagePointer> = (0..200)
        .map(|i| {
            if i % 7 == 3 {
                PagePointer::default()
            } else {
                pointer(i)
            }
        })
        .collect();
    encode_leaf(&pointers, &mut page);
    golden("leaf-v1.bin", &page);
    let records = (0..20)
        .map(|i| LeafRecord {
            object: OBJECT_MAP + i / 4,
            leaf: i % 4,
            pointer: pointer(i + 500),
        })
        .collect();
    encode_list(
        &ListPage {
            checkpoint: 12,
            previous: pointer(999),
            records,
        },
        &mut page,
    );
    golden("list-v1.bin", &page);
    let volume = |id: u32, state| VolumeRecord {
        state,
        read_only: id == 3,
        ..VolumeRecord::new(VolumeId(id), u64::from(id) << 30, format!("volume-{id}"))
    };
    encode_volumes(
        &[
            Some(volume(1, VolumeState::Active)),
            None,
            Some(volume(3, VolumeState::Deleting)),
        ],
        &mut page,
    );
    golden("volumes-v1.bin", &page);
    let map = [
        MapEntry::HOLE,
        MapEntry::ZERO,
        MapEntry::ONES,
        MapEntry::plain(Address(0x2222_3333_4400), 0x5566_7788),
    ];
    encode_map_page(&map, &mut page);
    golden("map-v1.bin", &page);
    let mut record = vec![0; SegmentTableGeometry::new(SHAPE.rows).stride];
    let segment = SegmentRecord {
        segment: SegmentId(77),
        stream: StreamId(1),
        in_use: true,
        filled_rows: 20,
        last_checkpoint: 12,
        last_seq: BatchSeq(8),
        stale: 0,
        starts: vec![0x1_0001],
    };
    encode_segment(&segment, &mut record);
    golden("segment-v1.bin", &record);
}
