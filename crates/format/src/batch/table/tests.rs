use super::*;
use crate::batch::tests::{any_entry, read_all};
use proptest::prelude::*;

#[test]
fn usual_entries_are_as_small_as_promised() {
    let mut table = TableWriter::new();
    let mut state = 1u64;
    let mut random = |bound: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    for i in 0..1000 {
        table.push(&Entry::Data {
            volume: VolumeId(1),
            lba: Lba(random(10 << 20)),
            birth: Lsn((1 << 40) + i),
        });
    }
    let data = table.bytes().len();
    assert!(data <= 5100, "1000 data entries took {data} bytes");
    table.clear();
    for i in 0..1000 {
        let (lba, birth) = (Lba(random(10 << 20)), Lsn((1 << 40) + random(1 << 24)));
        table.push(&Entry::Move {
            volume: VolumeId(1),
            lba,
            birth,
            from: Address((77 << 24) + i * 1024),
        });
    }
    let moves = table.bytes().len();
    assert!(moves <= 12_000, "1000 moves took {moves} bytes");
    assert_eq!(
        (table.entries(), table.payload_blocks(), table.encoded_len()),
        (1000, 1000, moves + 4000)
    );
}

#[test]
fn sequential_writes_cost_two_bytes_a_block() {
    let mut table = TableWriter::new();
    for i in 0..1000 {
        table.push(&Entry::Data {
            volume: VolumeId(3),
            lba: Lba(5000 + i),
            birth: Lsn(70 + i),
        });
    }
    assert!(table.bytes().len() < 2010);
}

#[test]
fn content_and_its_first_reference_take_few_bytes() {
    let (mut table, mut lba) = (TableWriter::new(), 1u64);
    for i in 0..1000 {
        lba = lba
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let birth = Lsn((1 << 40) + i);
        table.push(&Entry::Data {
            volume: VolumeId::SHARED,
            lba: Lba(500 + i),
            birth,
        });
        table.push(&Entry::Reference {
            volume: VolumeId(1),
            lba: Lba(lba >> 40),
            birth,
            id: Lba(500 + i),
            incarnation: birth.0 as u32,
        });
    }
    assert!(
        table.bytes().len() <= 14_000,
        "1000 pairs took {} bytes",
        table.bytes().len()
    );
    assert_eq!((table.entries(), table.payload_blocks()), (2000, 1000));
}

#[test]
fn impossible_references_are_refused() {
    let refused: [&[u8]; 3] = [
        // Reference of the shared volume itself.
        &[KIND_REFERENCE | 1 << LSN_SHIFT, 0, 0, 0],
        // Reference to an id of 41 bits.
        &[
            KIND_REFERENCE | VOLUME_BIT | 1 << LSN_SHIFT,
            1,
            0,
            0x80,
            0x80,
            0x80,
            0x80,
            0x80,
            0x40,
            0,
        ],
        // Incarnation of 33 bits.
        &[
            KIND_REFERENCE | VOLUME_BIT | 1 << LSN_SHIFT,
            1,
            0,
            0,
            0x80,
            0x80,
            0x80,
            0x80,
            0x10,
        ],
    ];
    for bytes in refused {
        assert!(
            matches!(
                TableReader::new(bytes).next(),
                Err(BatchError::Malformed(_))
            ),
            "{bytes:?}"
        );
    }
    let good = [KIND_REFERENCE | VOLUME_BIT | 1 << LSN_SHIFT, 1, 0, 0, 0];
    assert_eq!(
        TableReader::new(&good).next(),
        Ok(Entry::Reference {
            volume: VolumeId(1),
            lba: Lba(0),
            birth: Lsn(1),
            id: Lba(0),
            incarnation: 1
        })
    );
}

#[test]
fn extreme_values_come_back() {
    let entries = vec![
        Entry::Data {
            volume: VolumeId::INDEX,
            lba: Lba(u64::MAX),
            birth: Lsn(COUNTER_MAX),
        },
        Entry::Data {
            volume: VolumeId(1),
            lba: Lba(0),
            birth: Lsn(0),
        },
        Entry::Move {
            volume: VolumeId(1),
            lba: Lba(1 << 63),
            birth: Lsn(1 << 61),
            from: Address((1 << 46) - 1),
        },
        Entry::Range {
            volume: VolumeId(1),
            lba: Lba(0),
            count: u64::MAX,
            lsn: Lsn(1),
            state: RangeState::Zero,
        },
        Entry::Covered {
            first: Lsn(COUNTER_MAX - 2),
            count: 2,
        },
        Entry::Page {
            object: u32::MAX,
            index: u32::MAX,
        },
        Entry::Page {
            object: 0,
            index: 0,
        },
        Entry::Volume {
            volume: VolumeId(VolumeId::INDEX.0 - 1),
            lsn: Lsn(3),
            change: VolumeChange::Create {
                name: "x".repeat(63),
                size_bytes: crate::MAX_VOLUME_BYTES,
            },
        },
    ];
    let mut table = TableWriter::new();
    entries.iter().for_each(|e| table.push(e));
    assert_eq!(read_all(table.bytes()).unwrap(), entries);
}

#[test]
fn an_lsn_without_a_successor_is_refused() {
    for first in [COUNTER_MAX - 1, COUNTER_MAX, COUNTER_MAX + 1, u64::MAX - 2] {
        for entry in [
            Entry::Data {
                volume: VolumeId(1),
                lba: Lba(0),
                birth: Lsn(first),
            },
            Entry::Covered {
                first: Lsn(first),
                count: 2,
            },
        ] {
            let mut table = TableWriter::new();
            table.push(&entry);
            let last = first
                + if matches!(entry, Entry::Covered { .. }) {
                    2
                } else {
                    0
                };
            assert_eq!(
                read_all(table.bytes()).is_ok(),
                last <= COUNTER_MAX,
                "{entry:?}"
            );
        }
    }
}

#[test]
fn impossible_volumes_are_refused() {
    let table = |volume: u32, kind: u8, rest: &[u8]| {
        let mut pen = Pen {
            room: &mut [0; ENTRY_ROOM],
            at: 0,
        };
        pen.byte(kind | u8::from(volume != 0) << 4 | 1 << LSN_SHIFT);
        if volume != 0 {
            pen.varint(u64::from(volume));
        }
        [&pen.room[..pen.at], rest].concat()
    };
    let index = VolumeId::INDEX.0;
    for (volume, is_named, is_changed) in [
        (0, true, false),
        (1, true, true),
        (index - 1, true, true),
        (index, true, false),
        (index + 1, false, false),
        (u32::MAX, false, false),
    ] {
        assert_eq!(
            read_all(&table(volume, KIND_DATA, &[0])).is_ok(),
            is_named,
            "data of {volume}"
        );
        assert_eq!(
            read_all(&table(volume, KIND_VOLUME, &[CHANGE_DELETE])).is_ok(),
            is_changed,
            "delete of {volume}"
        );
    }
    // Number of blocks of the largest volume, and one more.
    for (last, is_size) in [(0x80, true), (0x81, false)] {
        let size = [last, 0x80, 0x80, 0x80, 0x80, 2];
        assert_eq!(
            read_all(&table(
                1,
                KIND_VOLUME,
                &[&[CHANGE_RESIZE], &size[..]].concat()
            ))
            .is_ok(),
            is_size
        );
        assert_eq!(
            read_all(&table(
                1,
                KIND_VOLUME,
                &[&[CHANGE_CREATE, 1, b'v'], &size[..]].concat()
            ))
            .is_ok(),
            is_size
        );
    }
}

#[test]
fn a_cleared_table_starts_from_nothing() {
    let entry = Entry::Data {
        volume: VolumeId(4),
        lba: Lba(900),
        birth: Lsn(12),
    };
    let mut used = TableWriter::new();
    used.push(&Entry::Page {
        object: 17,
        index: 4,
    });
    used.push(&entry);
    used.clear();
    assert_eq!(
        (used.entries(), used.payload_blocks(), used.encoded_len()),
        (0, 0, 0)
    );
    used.push(&entry);
    let mut fresh = TableWriter::new();
    fresh.push(&entry);
    assert_eq!(used.bytes(), fresh.bytes());
}

#[test]
fn what_has_a_shorter_form_is_refused() {
    let refused: [&[u8]; 9] = [
        &[],
        &[KIND_DATA | VOLUME_BIT | 1 << LSN_SHIFT, 0x81, 0x00, 0], // volume 1 in two bytes
        &[KIND_DATA | VOLUME_BIT | 1 << LSN_SHIFT, 0, 0],          // volume 0 is the current one
        &[KIND_DATA, 2, 0],                                        // an LSN step of 1 written out
        &[KIND_PAGE | VOLUME_BIT, 0, 0],                           // a page has no volume
        &[KIND_COVERED | 1 << LSN_SHIFT, 0],                       // nothing covered
        &[KIND_RANGE_HOLE | 1 << LSN_SHIFT, 0, 0],                 // an empty range
        &[0, 0, 0],                                                // kind 0 does not exist
        &[
            KIND_DATA | 1 << LSN_SHIFT,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0x02,
        ], // 65 bits
    ];
    for bytes in refused {
        assert!(TableReader::new(bytes).next().is_err(), "{bytes:?}");
    }
}

#[test]
#[should_panic(expected = "range of 0 blocks")]
fn an_empty_range_never_reaches_a_member() {
    TableWriter::new().push(&Entry::Range {
        volume: VolumeId(1),
        lba: Lba(0),
        count: 0,
        lsn: Lsn(1),
        state: RangeState::Hole,
    });
}

proptest! {
    #![proptest_config(crate::test_config(512))]

    #[test]
    fn entries_come_back(entries in prop::collection::vec(any_entry(), 0..60)) {
        let mut table = TableWriter::new();
        entries.iter().for_each(|e| table.push(e));
        prop_assert_eq!(table.entries() as usize, entries.len());
        prop_assert_eq!(table.payload_blocks() as usize, entries.iter().filter(|e| e.has_payload()).count());
        prop_assert_eq!(read_all(table.bytes()).unwrap(), entries);
    }

    #[test]
    fn compressed_entries_round_trip(entries in prop::collection::vec((any_entry(), 1u16..=256), 0..60)) {
        let is_compressed = |e: &Entry| matches!(e, Entry::Data { .. } | Entry::Move { .. });
        let stored = |(e, units): (Entry, u16)| { let units = if is_compressed(&e) { units } else if e.has_payload() { 256 } else { 0 }; (e, units) };
        let entries: Vec<(Entry, u16)> = entries.into_iter().map(stored).collect();
        let mut table = TableWriter::new();
        entries.iter().for_each(|(e, units)| if *units == 0 { table.push(e) } else { table.push_stored(e, *units) });
        prop_assert_eq!(table.decode(), entries);
    }

    #[test]
    fn accepted_bytes_have_one_form(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut reader = TableReader::new(&bytes);
        let mut entries = Vec::new();
        let accepted = loop {
            if reader.is_at_end() {
                break true;
            }
            match reader.next_stored() {
                Ok(stored) => entries.push(stored),
                Err(_) => break false,
            }
        };
        if accepted {
            let mut table = TableWriter::new();
            entries.iter().for_each(|(e, units)| if *units == 0 { table.push(e) } else { table.push_stored(e, *units) });
            prop_assert_eq!(table.bytes(), &bytes[..]);
        }
    }
}
