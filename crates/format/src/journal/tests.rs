use super::*;
use crate::batch::{Entry, FillState, RangeState, VolumeChange};
use proptest::prelude::*;
use windrow_types::{Lba, Uuid, VolumeId};

const POOL: Uuid = Uuid([7; 16]);

fn header(first: u64, last: u64) -> RecordHeader {
    RecordHeader {
        pool: POOL,
        epoch: Epoch(3),
        seq: BatchSeq(9),
        chunk: 2,
        offset: 4608,
        durable: Lsn(first - 1),
        first: Lsn(first),
        last: Lsn(last),
    }
}

/// Entries of the kinds that a journal may hold, with consecutive LSNs from `first`.
fn entries(kinds: &[u8], first: u64) -> Vec<Entry> {
    let volume = VolumeId(5);
    let mut lsn = first;
    let mut entries = Vec::new();
    for (i, kind) in kinds.iter().enumerate() {
        let lba = Lba(i as u64 * 37 % 1000);
        let at = Lsn(lsn);
        lsn += if kind % 5 == 4 { 3 } else { 1 };
        entries.push(match kind % 5 {
            0 | 1 => Entry::Data {
                volume,
                lba,
                birth: at,
            },
            2 => Entry::Fill {
                volume,
                lba,
                birth: at,
                state: if kind % 2 == 0 {
                    FillState::Zero
                } else {
                    FillState::Ones
                },
            },
            3 if kind % 2 == 0 => Entry::Volume {
                volume,
                lsn: at,
                change: VolumeChange::SetReadOnly(true),
            },
            3 => Entry::Range {
                volume,
                lba,
                count: 1 + u64::from(*kind),
                lsn: at,
                state: RangeState::Hole,
            },
            _ => Entry::Covered {
                first: at,
                count: 3,
            },
        });
    }
    entries
}

/// The payload with this number; every third one is compressed to less than a block.
fn payload(number: u32) -> Vec<u8> {
    vec![
        number as u8 + 1;
        if number % 3 == 1 {
            40 + number as usize
        } else {
            BLOCK_SIZE
        }
    ]
}

fn encoded(kinds: &[u8], granule: u32) -> (RecordHeader, Vec<Entry>, Vec<u8>) {
    let entries = entries(kinds, 100);
    let mut table = TableWriter::new();
    entries.iter().for_each(|e| table.push(e));
    let last = entries
        .iter()
        .filter_map(Entry::lsns)
        .map(|(first, count)| first.0 + count - 1)
        .max()
        .unwrap();
    let header = header(100, last);
    let blocks: Vec<Vec<u8>> = (0..table.payload_blocks()).map(payload).collect();
    let mut out = vec![
        0xaa;
        compressed_record_bytes(
            table.bytes().len(),
            table.payload_blocks(),
            blocks.iter().map(Vec::len).sum(),
            granule
        )
    ];
    encode_record(
        &header,
        &table,
        blocks.iter().map(Vec::as_slice),
        granule,
        &mut out,
    );
    (header, entries, out)
}

#[test]
fn numbers_that_have_no_next_one_are_refused() {
    let spoilt: [fn(&mut RecordHeader); 5] = [
        |_| {},
        |h| h.epoch = Epoch(u64::MAX),
        |h| h.seq = BatchSeq(u64::MAX),
        |h| h.durable = Lsn(u64::MAX),
        |h| h.last = Lsn(u64::MAX),
    ];
    for (at, spoil) in spoilt.into_iter().enumerate() {
        let mut table = TableWriter::new();
        table.push(&Entry::Fill {
            volume: VolumeId(5),
            lba: Lba(0),
            birth: Lsn(100),
            state: FillState::Zero,
        });
        let mut header = header(100, 100);
        spoil(&mut header);
        let mut bytes = vec![0; compressed_record_bytes(table.bytes().len(), 0, 0, 512)];
        encode_record(&header, &table, std::iter::empty(), 512, &mut bytes);
        assert_eq!(
            decode_record(&bytes, &POOL, 2, 4608, 512).is_ok(),
            at == 0,
            "{header:?}"
        );
    }
}

proptest! {
    #![proptest_config(crate::test_config(200))]

    #[test]
    fn what_is_written_is_read(kinds in prop::collection::vec(any::<u8>(), 1..40), large in any::<bool>(), behind in 0usize..5000) {
        let granule = if large { 4096 } else { 512 };
        let (header, entries, mut bytes) = encoded(&kinds, granule);
        let length = bytes.len();
        prop_assert!(length.is_multiple_of(granule as usize));
        bytes.resize(length + behind, 0x55);
        let record = decode_record(&bytes, &POOL, 2, 4608, granule).unwrap();
        prop_assert_eq!(&record.header, &header);
        prop_assert_eq!(record.length as usize, length);
        prop_assert_eq!(record.entries.iter().map(|e| e.entry.clone()).collect::<Vec<_>>(), entries);
        for (nth, info) in record.entries.iter().filter_map(|e| e.payload).enumerate() {
            prop_assert_eq!(record.payload(&bytes, &info), &payload(nth as u32)[..]);
        }
    }

    #[test]
    fn no_wrong_byte_is_overlooked(kinds in prop::collection::vec(any::<u8>(), 1..8), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let (_, _, mut bytes) = encoded(&kinds, 512);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(decode_record(&bytes, &POOL, 2, 4608, 512).is_err());
    }

    #[test]
    fn rubbish_is_refused_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..2000), magic in any::<bool>()) {
        if magic && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&RECORD_MAGIC);
        }
        prop_assert!(decode_record(&bytes, &POOL, 2, 4608, 512).is_err());
    }
}

#[test]
fn a_record_is_of_one_address_pool_and_granule() {
    let (_, _, bytes) = encoded(&[0, 3], 512);
    assert_eq!(
        decode_record(&bytes, &POOL, 3, 4608, 512),
        Err(RecordError::Misplaced {
            chunk: 2,
            offset: 4608
        })
    );
    assert_eq!(
        decode_record(&bytes, &POOL, 2, 0, 512),
        Err(RecordError::Misplaced {
            chunk: 2,
            offset: 4608
        })
    );
    assert_eq!(
        decode_record(&bytes, &Uuid([8; 16]), 2, 4608, 512),
        Err(RecordError::OtherPool(POOL))
    );
    assert!(decode_record(&bytes, &POOL, 2, 4608, 4096).is_err());
    assert!(
        decode_record(&bytes[..bytes.len() - 1], &POOL, 2, 4608, 512).is_err(),
        "a torn end"
    );
}

#[test]
fn one_block_takes_one_additional_granule() {
    assert_eq!(encoded(&[0], 512).2.len(), 512 + 4096);
    assert_eq!(encoded(&[0], 4096).2.len(), 2 * 4096);
    assert_eq!(
        encoded(&[0, 0], 4096).2.len(),
        2 * 4096,
        "the compressed one lies next to the head"
    );
}
