//! Helpers for the tests of the batch's parts.

use super::table::TableReader;
use super::*;
use crate::bytes::COUNTER_MAX;
use proptest::prelude::*;
use windrow_geometry::Code;

pub(super) const SHAPES: [Shape; 6] = [
    Shape {
        width: 8,
        data: 6,
        code: Code::PQ,
        rows: 16,
        chunk_rows: 8,
    },
    Shape {
        width: 1,
        data: 1,
        code: Code::None,
        rows: 32,
        chunk_rows: 16,
    },
    Shape {
        width: 2,
        data: 1,
        code: Code::Copies,
        rows: 12,
        chunk_rows: 12,
    },
    Shape {
        width: 3,
        data: 2,
        code: Code::P,
        rows: 14,
        chunk_rows: 7,
    },
    Shape {
        width: 5,
        data: 3,
        code: Code::PQ,
        rows: 9,
        chunk_rows: 3,
    },
    Shape {
        width: 64,
        data: 62,
        code: Code::PQ,
        rows: 4,
        chunk_rows: 2,
    },
];

/// RAID-6 of `data` data columns, in segments of one chunk of `chunk_rows * 32` rows.
pub(super) fn shape(data: u8, chunk_rows: u32) -> Shape {
    Shape {
        width: data + 2,
        data,
        code: Code::PQ,
        rows: chunk_rows * 32,
        chunk_rows: chunk_rows * 32,
    }
}

pub(super) fn header(shape: &Shape, row: u32) -> BatchHeader {
    BatchHeader {
        pool: PoolUuid::from_random([7; 16]),
        epoch: Epoch(3),
        stream: StreamId(2),
        seq: BatchSeq(41),
        segment: SegmentId(11),
        row: row.min(shape.rows - 1),
        rows: 0,
        shape: *shape,
        members: u64::MAX >> (64 - u32::from(shape.width)),
        next_segment: SegmentId(12),
        flushed_through: Lsn(90),
        flushed_seq: std::array::from_fn(|i| BatchSeq(i as u64 * 10)),
    }
}

pub(super) fn read_all(bytes: &[u8]) -> Result<Vec<Entry>, BatchError> {
    let mut reader = TableReader::new(bytes);
    let mut entries = Vec::new();
    while !reader.is_at_end() {
        entries.push(reader.next()?);
    }
    Ok(entries)
}

/// Numbers near zero, near each other, and anywhere.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..300, 2 => (1u64 << 30)..(1 << 30) + 300, 1 => any::<u64>()]
}

pub(super) fn any_entry() -> impl Strategy<Value = Entry> {
    let user = || prop_oneof![4 => 1u32..3, 1 => 1u32..VolumeId::INDEX.0].prop_map(VolumeId);
    let volume =
        || prop_oneof![8 => user(), 2 => Just(VolumeId::SHARED), 1 => Just(VolumeId::INDEX)];
    let lba = || number().prop_map(Lba);
    let lsn = || number().prop_map(|lsn| Lsn(lsn % (COUNTER_MAX + 1)));
    let fill = prop_oneof![Just(FillState::Zero), Just(FillState::Ones)];
    let range = prop_oneof![Just(RangeState::Hole), Just(RangeState::Zero)];
    let size = || (0u64..=1 << 36).prop_map(|blocks| blocks * 4096);
    let change = prop_oneof![
        ("[a-zA-Z0-9._ é-]{1,20}", size())
            .prop_map(|(name, size_bytes)| VolumeChange::Create { name, size_bytes }),
        size().prop_map(|size_bytes| VolumeChange::Resize { size_bytes }),
        Just(VolumeChange::Delete),
        any::<bool>().prop_map(VolumeChange::SetReadOnly),
        (0u8..3).prop_map(|mode| VolumeChange::SetSync(SyncMode::from_u8(mode).unwrap())),
        "[a-zA-Z0-9._ é-]{1,20}".prop_map(|name| VolumeChange::Rename { name }),
        (0u8..3).prop_map(|dedup| VolumeChange::SetDedup(Dedup::from_u8(dedup).unwrap())),
    ];
    prop_oneof![
        6 => (volume(), lba(), lsn()).prop_map(|(volume, lba, birth)| Entry::Data { volume, lba, birth }),
        3 => (user(), lba(), lsn(), number(), any::<u32>())
            .prop_map(|(volume, lba, birth, id, incarnation)| Entry::Reference { volume, lba, birth, id: Lba(id % (1 << 40)), incarnation }),
        3 => (volume(), lba(), lsn(), 0u64..1 << 46).prop_map(|(volume, lba, birth, from)| Entry::Move { volume, lba, birth, from: Address(from) }),
        1 => (volume(), lba(), lsn(), fill).prop_map(|(volume, lba, birth, state)| Entry::Fill { volume, lba, birth, state }),
        1 => (volume(), lba(), number(), lsn(), range).prop_map(|(volume, lba, count, lsn, state)| {
            let count = count.clamp(1, (u64::MAX - lba.0).max(1));
            Entry::Range { volume, lba: Lba(lba.0.min(u64::MAX - count)), count, lsn, state }
        }),
        1 => (user(), lsn(), change).prop_map(|(volume, lsn, change)| Entry::Volume { volume, lsn, change }),
        1 => (lsn(), number()).prop_map(|(first, count)| {
            let count = count.clamp(1, (COUNTER_MAX - first.0).max(1));
            Entry::Covered { first: first.min(Lsn(COUNTER_MAX - count)), count }
        }),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(object, index)| Entry::Page { object, index }),
    ]
}

#[test]
fn the_payload_checksum_is_crc_32c() {
    assert_eq!(payload_checksum(b"123456789"), 0xe306_9283);
    assert_eq!(payload_checksum(&[0; 4096]), payload_checksum(&[0; 4096]));
    assert_ne!(payload_checksum(&[0; 4096]), 0);
}
