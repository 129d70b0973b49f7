use super::*;
use crate::bytes::COUNTER_MAX;
use crate::map_entry::MapEntry;
use crate::test_config;
use proptest::prelude::*;

fn any_pointer() -> impl Strategy<Value = PagePointer> {
    prop_oneof![
        (0u64..1 << Address::BITS, any::<(u32, u16, u16)>()).prop_map(
            |(address, (checksum, row, rows))| PagePointer::to(
                Address(address),
                checksum,
                row,
                rows
            )
        ),
        Just(PagePointer::default()),
    ]
}

fn any_volume() -> impl Strategy<Value = VolumeRecord> {
    let state = prop_oneof![Just(VolumeState::Active), Just(VolumeState::Deleting)];
    let sync = prop_oneof![
        Just(SyncMode::Standard),
        Just(SyncMode::Always),
        Just(SyncMode::Disabled)
    ];
    let dedup = prop_oneof![Just(Dedup::Off), Just(Dedup::Verify), Just(Dedup::Hash)];
    let parts = (
        1u32..VolumeId::INDEX.0,
        state,
        any::<bool>(),
        sync,
        dedup,
        0u64..=1 << 36,
        "[a-zé0-9-]{1,30}",
    );
    parts.prop_map(
        |(id, state, read_only, sync, dedup, blocks, name)| VolumeRecord {
            state,
            read_only,
            sync,
            dedup,
            ..VolumeRecord::new(VolumeId(id), blocks * 4096, name)
        },
    )
}

#[test]
fn segment_records_lie_as_documented() {
    let geometry = SegmentTableGeometry::new(512);
    assert_eq!((geometry.stride, geometry.per_page), (96, 42));
    assert_eq!(geometry.locate(SegmentId(43)), (1, 96));
    assert_eq!(
        (geometry.pages(0), geometry.pages(42), geometry.pages(43)),
        (0, 1, 2)
    );
    assert_eq!(
        SegmentTableGeometry::new(crate::MAX_SEGMENT_ROWS),
        SegmentTableGeometry {
            stride: 4096,
            per_page: 1
        }
    );
    assert_eq!(SegmentTableGeometry::new(1).stride, 64);
}

#[test]
fn a_segment_never_written_is_all_zero() {
    let record = decode_segment(&[0; 96], SegmentId(9), 512).unwrap();
    assert_eq!(
        (
            record.segment,
            record.in_use,
            record.filled_rows,
            record.starts
        ),
        (SegmentId(9), false, 0, vec![0; 8])
    );
}

#[test]
fn impossible_segment_records_are_refused() {
    let good = SegmentRecord {
        segment: SegmentId(9),
        stream: StreamId(1),
        in_use: true,
        filled_rows: 10,
        last_checkpoint: 4,
        last_seq: BatchSeq(77),
        stale: 1 << 63 | 1 << 5 | 1,
        starts: vec![0b101, 1 << 35],
    };
    let mut bytes = [0; 64];
    encode_segment(&good, &mut bytes);
    assert_eq!(decode_segment(&bytes, SegmentId(9), 100).unwrap(), good);
    assert!(decode_segment(&bytes, SegmentId(8), 100).is_err());
    assert!(
        decode_segment(&bytes, SegmentId(9), 9).is_err(),
        "filled beyond its rows"
    );
    assert!(
        decode_segment(&bytes, SegmentId(9), 99).is_err(),
        "a start in row 99 of 99"
    );
    assert!(
        decode_segment(&bytes, SegmentId(9), 1000).is_err(),
        "shorter than its bit set"
    );
    for (at, value) in [(4, 8), (5, 2), (6, 1), (12, 6), (13, 0), (15, 65), (63, 1)] {
        let mut wrong = bytes;
        wrong[at] = value;
        assert!(
            decode_segment(&wrong, SegmentId(9), 100).is_err(),
            "byte {at}"
        );
    }
}

#[test]
fn a_list_page_is_recognised() {
    let mut page = [0; 4096];
    assert_eq!(decode_list(&page), Err(PageError::NoList));
    assert_eq!(decode_list(&page[1..]), Err(PageError::WrongLength));
    encode_list(
        &ListPage {
            checkpoint: 1,
            previous: PagePointer::default(),
            records: vec![],
        },
        &mut page,
    );
    page[32] = LIST_RECORDS as u8 + 1;
    assert!(matches!(decode_list(&page), Err(PageError::Malformed(_))));
}

#[test]
fn impossible_volumes_are_refused() {
    let volume = VolumeRecord::new(VolumeId(3), 8192, "a".into());
    let mut page = [0; 4096];
    encode_volumes(&[None, Some(volume.clone())], &mut page);
    assert_eq!(decode_volumes(&page).unwrap()[1], Some(volume));
    for (at, value) in [
        (128, 0),
        (131, 1),
        (132, 3),
        (133, 6),
        (133, 8),
        (136, 1),
        (142, 1),
        (143, 1),
        (144, 0),
        (144, 0xff),
        (207, b'x'),
    ] {
        let mut wrong = page;
        wrong[at] = value;
        assert!(decode_volumes(&wrong).is_err(), "byte {at}");
    }
    let last = VolumeRecord::new(
        VolumeId(VolumeId::INDEX.0 - 1),
        crate::MAX_VOLUME_BYTES,
        "last".into(),
    );
    encode_volumes(&[Some(last.clone())], &mut page);
    assert_eq!(decode_volumes(&page).unwrap()[0], Some(last));
    page[..4].copy_from_slice(&VolumeId::INDEX.0.to_le_bytes());
    assert!(decode_volumes(&page).is_err(), "the volume of the index");
}

#[test]
fn impossible_leaves_are_refused() {
    let last = LeafRecord {
        object: OBJECT_MAP + VolumeId::INDEX.0,
        leaf: LEAVES_MAX - 1,
        pointer: PagePointer::to(Address(9), 1, 2, 3),
    };
    let mut page = [0; 4096];
    encode_list(
        &ListPage {
            checkpoint: 1,
            previous: PagePointer::default(),
            records: vec![last],
        },
        &mut page,
    );
    assert_eq!(decode_list(&page).unwrap().records, [last]);
    for (at, value) in [
        (64, last.object + 1),
        (64, u32::MAX),
        (68, LEAVES_MAX),
        (68, u32::MAX),
    ] {
        let mut wrong = page;
        wrong[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(
            matches!(decode_list(&wrong), Err(PageError::Malformed(_))),
            "{value} at {at}"
        );
    }
}

proptest! {
    #![proptest_config(test_config(128))]

    #[test]
    fn leaves_come_back(pointers in prop::collection::vec(any_pointer(), 0..=LEAF_POINTERS)) {
        let mut page = [0xee; 4096];
        encode_leaf(&pointers, &mut page);
        let back = decode_leaf(&page);
        prop_assert_eq!(back.len(), LEAF_POINTERS);
        prop_assert_eq!(&back[..pointers.len()], &pointers[..]);
        prop_assert!(back[pointers.len()..].iter().all(|p| !p.present));
    }

    #[test]
    fn lists_come_back(checkpoint in any::<u64>(), previous in any_pointer(), records in prop::collection::vec((0..=OBJECT_MAP + VolumeId::INDEX.0, 0..LEAVES_MAX, any_pointer()), 0..=LIST_RECORDS)) {
        let records = records.into_iter().map(|(object, leaf, pointer)| LeafRecord { object, leaf, pointer }).collect();
        let list = ListPage { checkpoint, previous, records };
        let mut page = [0xee; 4096];
        encode_list(&list, &mut page);
        prop_assert_eq!(decode_list(&page).unwrap(), list);
    }

    #[test]
    fn volumes_come_back(slots in prop::collection::vec(prop::option::of(any_volume()), 0..=VOLUMES_PER_PAGE)) {
        let mut page = [0xee; 4096];
        encode_volumes(&slots, &mut page);
        let back = decode_volumes(&page).unwrap();
        prop_assert_eq!(&back[..slots.len()], &slots[..]);
        prop_assert!(back[slots.len()..].iter().all(Option::is_none));
    }

    #[test]
    fn segments_come_back(segment in any::<u32>(), stream in 0u8..8, in_use in any::<bool>(), rows in 1u32..3000, last in (0..=COUNTER_MAX, 0..=COUNTER_MAX), bits in any::<u64>()) {
        let words = rows.div_ceil(64) as usize;
        let starts = (0..words).map(|i| if i + 1 == words && rows % 64 != 0 { bits & ((1 << (rows % 64)) - 1) } else { bits.rotate_left(i as u32) });
        let record = SegmentRecord {
            segment: SegmentId(segment),
            stream: StreamId(stream),
            in_use,
            filled_rows: rows / 2,
            last_checkpoint: last.0,
            last_seq: BatchSeq(last.1),
            stale: (1 << (last.1 % 64)) | (1 << (last.0 % 64)),
            starts: starts.collect(),
        };
        let mut bytes = vec![0xee; SegmentTableGeometry::new(rows).stride];
        encode_segment(&record, &mut bytes);
        prop_assert_eq!(decode_segment(&bytes, SegmentId(segment), rows).unwrap(), record);
    }

    #[test]
    fn maps_and_counters_come_back(words in prop::collection::vec(any::<(u64, u64)>(), 0..=MAP_PAGE_ENTRIES)) {
        let entries: Vec<MapEntry> = words.iter().map(|(word0, word1)| MapEntry { word0: *word0, word1: *word1 }).collect();
        let (mut page, mut back) = ([0xee; 4096], [MapEntry::ONES; MAP_PAGE_ENTRIES]);
        encode_map_page(&entries, &mut page);
        decode_map_page(&page, &mut back);
        prop_assert_eq!(&back[..entries.len()], &entries[..]);
        prop_assert!(back[entries.len()..].iter().all(|e| *e == MapEntry::HOLE));
        let counters: Vec<u64> = words.iter().map(|w| w.0 % COUNTER_MAX).collect();
        encode_counters(&counters, &mut page);
        prop_assert_eq!(&decode_counters(&page)[..counters.len()], &counters[..]);
    }

    #[test]
    fn any_bytes_are_survived(page in prop::collection::vec(any::<u8>(), 0..=4096), rows in any::<u32>(), list in any::<bool>()) {
        let mut page = page;
        let _ = decode_segment(&page, SegmentId(1), rows);
        if list && page.len() >= 8 {
            page.resize(4096, 0);
            page[..8].copy_from_slice(&LIST_MAGIC);
        }
        let _ = decode_list(&page);
        let _ = decode_volumes(&page);
        decode_leaf(&page);
        decode_counters(&page);
        decode_map_page(&page, &mut [MapEntry::HOLE; 300]);
    }
}
