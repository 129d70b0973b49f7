use super::*;
use crate::batch::tests::{SHAPES, any_entry, header, shape};
use crate::batch::{Entry, max_payload_blocks, plan_batch};
use proptest::prelude::*;
use windrow_types::{Lba, VolumeId};

/// Head and tail of a batch of these entries, payload checksums counting from 1000.
fn encode(header: &mut BatchHeader, entries: &[Entry]) -> Option<(Vec<u8>, Vec<u8>, BatchPlan)> {
    let mut table = TableWriter::new();
    entries.iter().for_each(|e| table.push(e));
    let plan = plan_batch(
        &header.shape,
        header.row,
        table.encoded_len(),
        table.payload_blocks(),
    )?;
    header.rows = plan.rows;
    let checksums: Vec<u32> = (1000..).take(table.payload_blocks() as usize).collect();
    // Stale bytes in the buffers must not survive.
    let (mut head, mut tail) = (
        vec![0xaa; plan.head_blocks as usize * BLOCK_SIZE],
        vec![0xaa; BLOCK_SIZE],
    );
    encode_ends(header, &table, &checksums, &plan, &mut head, &mut tail);
    Some((head, tail, plan))
}

fn data_entries(count: u64) -> Vec<Entry> {
    (0..count)
        .map(|i| Entry::Data {
            volume: VolumeId(1),
            lba: Lba(i * 7919 % 1_000_003),
            birth: Lsn(100 + i),
        })
        .collect()
}

fn check_round_trip(header: &mut BatchHeader, entries: &[Entry]) {
    let Some((head, tail, plan)) = encode(header, entries) else {
        return;
    };
    let batch = decode_batch(&head, &tail, &header.pool, header.segment, header.row).unwrap();
    assert_eq!(&batch.frame.header, header);
    assert_eq!(
        (
            batch.frame.head_blocks,
            batch.frame.payload_blocks,
            batch.frame.padding_blocks()
        ),
        (plan.head_blocks, plan.payload_blocks, plan.padding_blocks)
    );
    assert!(batch.entries.iter().map(|e| &e.entry).eq(entries));
    let payload: Vec<PayloadInfo> = batch.entries.iter().filter_map(|e| e.payload).collect();
    let expected = (0..plan.payload_blocks).map(|i| PayloadInfo {
        unit: (plan.head_blocks + i) * 256,
        units: 256,
        checksum: 1000 + i,
    });
    assert!(payload.into_iter().eq(expected));
    // The head alone yields the first entries, and all of them if it holds them all.
    let told = decode_head(&head, &header.pool, header.segment, header.row).unwrap();
    assert!(entries.starts_with(&told));
    assert!(
        told.len() == entries.len() || batch.frame.entry_bytes as usize > head.len() - HEADER_BYTES
    );
}

/// Head and tail of a batch in which some payload is compressed. Checksums of blocks count from
/// 1000, those of compressed payload from 5000.
fn encode_compressed(
    header: &mut BatchHeader,
    entries: &[(Entry, u16)],
) -> Option<(Vec<u8>, Vec<u8>, BatchPlan)> {
    let mut table = TableWriter::new();
    entries
        .iter()
        .for_each(|(e, units)| table.push_stored(e, *units));
    let plan = table.plan(&header.shape, header.row)?;
    header.rows = plan.rows;
    let checksums: Vec<u32> = (1000..)
        .take(plan.payload_blocks as usize)
        .chain((5000..).take(table.compressed().len()))
        .collect();
    let (mut head, mut tail) = (
        vec![0xaa; plan.head_blocks as usize * BLOCK_SIZE],
        vec![0xaa; BLOCK_SIZE],
    );
    encode_ends(header, &table, &checksums, &plan, &mut head, &mut tail);
    Some((head, tail, plan))
}

/// Uncompressed and compressed payload in any mixture keep their positions, lengths and checksums.
#[test]
fn compressed_payload_round_trips() {
    for count in (1..60).chain(300..420).chain(1300..1340) {
        let mut header = header(&shape(6, 96), 0);
        let units = |i: usize| [256, 40, 224, 1, 100, 256, 17][i * i % 7];
        let entries: Vec<(Entry, u16)> = data_entries(count)
            .into_iter()
            .enumerate()
            .map(|(i, e)| (e, units(i)))
            .collect();
        let (head, tail, plan) = encode_compressed(&mut header, &entries).expect("room");
        let batch = decode_batch(&head, &tail, &header.pool, header.segment, header.row).unwrap();
        let (mut addresses, mut whole, mut compressed) = (plan.places(), 1000.., 5000..);
        for (decoded, (entry, units)) in batch.entries.iter().zip(&entries) {
            let checksum = if *units == 256 {
                whole.next()
            } else {
                compressed.next()
            }
            .unwrap();
            let payload = PayloadInfo {
                unit: addresses.next(*units) as u32,
                units: *units,
                checksum,
            };
            assert_eq!((&decoded.entry, decoded.payload), (entry, Some(payload)));
        }
        assert!(
            batch
                .payload_blocks()
                .eq((plan.head_blocks..plan.head_blocks + plan.payload_blocks).zip(1000..))
        );
        assert_eq!(batch.frame.padding_blocks(), plan.padding_blocks);
    }
}

/// Lengths that do not end where the header says are malformed even if the checksums verify:
/// positions are computed from them.
#[test]
fn compressed_payload_ends_where_the_header_says() {
    let mut header = header(&shape(6, 96), 0);
    let entries: Vec<(Entry, u16)> = data_entries(30).into_iter().map(|e| (e, 100)).collect();
    let (mut head, tail, _) = encode_compressed(&mut header, &entries).unwrap();
    let seed = seed(&header.pool, header.epoch, header.segment, header.row);
    // An entry's length is its last byte.
    let entry_bytes = decode_header(&head, &header.pool, header.segment, header.row)
        .unwrap()
        .entry_bytes as usize;
    assert_eq!(
        std::mem::replace(&mut head[HEADER_BYTES + entry_bytes - 1], 255),
        100
    );
    let table_checksum = xxh3_64_with_seed(&head[HEADER_BYTES..], seed);
    put(&mut head, H_TABLE_CHECKSUM, &table_checksum.to_le_bytes());
    let header_checksum = xxh3_64_with_seed(&head[H_VERSION..HEADER_BYTES], seed);
    put(&mut head, H_CHECKSUM, &header_checksum.to_le_bytes());
    let mut tail = tail;
    put_footer(&header, header_checksum, seed, &mut tail);
    let found = decode_batch(&head, &tail, &header.pool, header.segment, header.row);
    assert_eq!(
        found,
        Err(BatchError::Malformed(
            "compressed payload that does not end where the header says"
        ))
    );
}

#[test]
fn batches_of_every_size_come_back() {
    // 340 to 1000 entries move the seam between head and tail over every kind of position: between
    // entries, inside one, between checksums, inside one.
    for count in (0..40).chain(340..1000) {
        check_round_trip(&mut header(&shape(6, 8), 0), &data_entries(count));
    }
}

#[test]
fn a_batch_is_refused_at_any_other_address_pool_or_with_another_tail() {
    let mut header = header(&shape(6, 8), 0);
    let (head, tail, _) = encode(&mut header, &data_entries(20)).unwrap();
    let decode = |pool, segment, row| decode_batch(&head, &tail, pool, segment, row);
    let (pool, segment, row) = (header.pool, header.segment, header.row);
    assert!(decode(&pool, segment, row).is_ok());
    assert_eq!(
        decode(&pool, segment.next(), row),
        Err(BatchError::Misplaced { segment, row })
    );
    assert_eq!(
        decode(&pool, segment, row + 1),
        Err(BatchError::Misplaced { segment, row })
    );
    let other = PoolUuid::from_random([9; 16]);
    assert_eq!(
        decode(&other, segment, row),
        Err(BatchError::OtherPool(pool))
    );
    let mut later = header.clone();
    later.seq = header.seq.next();
    let (_, later_tail, _) = encode(&mut later, &data_entries(20)).unwrap();
    assert_eq!(
        decode_batch(&head, &later_tail, &pool, segment, row),
        Err(BatchError::OtherFooter)
    );
    assert_eq!(
        decode_batch(&head, &[0; BLOCK_SIZE], &pool, segment, row),
        Err(BatchError::NoFooter)
    );
    assert_eq!(
        decode_batch(&head[..300], &tail, &pool, segment, row),
        Err(BatchError::WrongLength)
    );
    assert_eq!(
        decode_header(&[0; 4096], &pool, segment, row),
        Err(BatchError::NoHeader)
    );
    assert_eq!(
        decode_header(&head[..255], &pool, segment, row),
        Err(BatchError::WrongLength)
    );
}

#[test]
fn a_torn_batch_never_verifies() {
    // The same address, once with an old batch and once with a new one; every sector may be old or
    // new.
    let mut old = header(&shape(6, 8), 0);
    let mut new = old.clone();
    new.seq = old.seq.next();
    let (old_head, old_tail, _) = encode(&mut old, &data_entries(900)).unwrap();
    let (new_head, new_tail, _) = encode(&mut new, &data_entries(901)).unwrap();
    let old_all: Vec<u8> = [old_head, old_tail].concat();
    let new_all: Vec<u8> = [new_head, new_tail].concat();
    assert_eq!(old_all.len(), new_all.len());
    for sector in 0..new_all.len() / 512 {
        let mut torn = new_all.clone();
        let range = sector * 512..(sector + 1) * 512;
        torn[range.clone()].copy_from_slice(&old_all[range.clone()]);
        let (head, tail) = torn.split_at(torn.len() - BLOCK_SIZE);
        let result = decode_batch(head, tail, &new.pool, new.segment, new.row);
        assert!(
            result.is_err() || torn == new_all,
            "sector {sector} of the older batch went unnoticed"
        );
    }
}

/// Puts wrong numbers under valid checksums: a bug of the writer.
fn resign(head: &mut [u8], header: &BatchHeader) {
    let seed = seed(&header.pool, header.epoch, header.segment, header.row);
    let checksum = xxh3_64_with_seed(&head[H_VERSION..HEADER_BYTES], seed);
    put(head, H_CHECKSUM, &checksum.to_le_bytes());
}

#[test]
fn impossible_numbers_are_refused_before_anything_is_allocated() {
    let mut header = header(&shape(6, 8), 0);
    let (head, ..) = encode(&mut header, &data_entries(20)).unwrap();
    let fields: [(usize, &[u8]); 17] = [
        (H_ROWS, &[0; 4]),
        (H_ROWS, &[0xff; 4]),
        (H_STREAM, &[MAX_STREAMS as u8]),
        (H_STREAM + 1, &[1]),
        (H_SEQ, &[0; 8]),
        (H_SEQ, &[0xff; 8]),
        (H_FLUSHED_THROUGH, &[0xff; 8]),
        (H_FLUSHED_SEQ + 56, &[0xff; 8]),
        (H_SHAPE, &[0]),
        (H_SHAPE + 3, &[1]),
        (H_SHAPE + 8, &[0; 4]),
        (H_MEMBERS, &[1, 0, 0, 0, 0, 0, 0, 0]),
        (H_HEAD_BLOCKS, &[0xff; 4]),
        (H_PAYLOAD_BLOCKS, &[0xff; 4]),
        (H_ENTRY_COUNT, &[0xff; 4]),
        (H_ENTRY_BYTES, &[0xff; 4]),
        (H_RESERVED, &[1]),
    ];
    for (at, bytes) in fields {
        let mut wrong = head.clone();
        put(&mut wrong, at, bytes);
        resign(&mut wrong, &header);
        let result = decode_header(&wrong, &header.pool, header.segment, header.row);
        assert!(
            matches!(result, Err(BatchError::Malformed(_))),
            "field at {at}: {result:?}"
        );
    }
    let mut newer = head;
    put(&mut newer, H_VERSION, &[2, 0]);
    resign(&mut newer, &header);
    assert_eq!(
        decode_header(&newer, &header.pool, header.segment, header.row),
        Err(BatchError::Version(2))
    );
}

#[test]
fn plans_are_the_smallest_that_hold_and_leave_no_useless_rows() {
    for shape in SHAPES {
        for row in 0..shape.rows {
            let left = shape.chunk_end(row) - row;
            for payload in 0..=max_payload_blocks(&shape, row) + 1 {
                for table_len in [0usize, 2 * payload as usize, 10 * payload as usize, 20_000] {
                    let head = (table_len + 320)
                        .div_ceil(BLOCK_SIZE)
                        .saturating_sub(1)
                        .max(1) as u32;
                    let used = head + payload + 1;
                    let Some(plan) = plan_batch(&shape, row, table_len, payload) else {
                        assert!(used > left * u32::from(shape.data));
                        continue;
                    };
                    let data = plan.rows * u32::from(shape.data);
                    assert_eq!(
                        (plan.head_blocks, plan.payload_blocks, plan.padding_blocks),
                        (head, payload, data - used)
                    );
                    assert!(plan.rows == left || left - plan.rows >= shape.min_batch_rows());
                    let smaller = plan.rows - 1;
                    let would_leave = left - smaller;
                    assert!(
                        smaller * u32::from(shape.data) < used
                            || would_leave < shape.min_batch_rows(),
                        "{shape:?} {row} {plan:?}"
                    );
                }
            }
            assert!(max_payload_blocks(&shape, row) < left * u32::from(shape.data));
        }
        assert_eq!(plan_batch(&shape, shape.rows, 0, 0), None);
        assert_eq!(max_payload_blocks(&shape, u32::MAX), 0);
    }
}

proptest! {
    #![proptest_config(crate::test_config(128))]

    #[test]
    fn batches_come_back(entries in prop::collection::vec(any_entry(), 0..200), which in 0..SHAPES.len(), row in 0u32..8) {
        check_round_trip(&mut header(&SHAPES[which], row), &entries);
    }

    #[test]
    fn any_bytes_are_survived(head in prop::collection::vec(any::<u8>(), 0..9000), tail in prop::collection::vec(any::<u8>(), 0..4200)) {
        let header = header(&SHAPES[0], 0);
        prop_assert!(decode_header(&head, &header.pool, header.segment, 0).is_err());
        prop_assert!(decode_batch(&head, &tail, &header.pool, header.segment, 0).is_err());
    }

    #[test]
    fn a_changed_bit_is_noticed(count in 0u64..600, at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut header = header(&shape(6, 8), 0);
        let (head, tail, _) = encode(&mut header, &data_entries(count)).unwrap();
        let mut all = [head, tail].concat();
        let at = at.index(all.len());
        all[at] ^= 1 << bit;
        let (head, tail) = all.split_at(all.len() - BLOCK_SIZE);
        prop_assert!(decode_batch(head, tail, &header.pool, header.segment, header.row).is_err());
    }

    /// Recomputes the checksums, so that the inner decoders see the damage.
    #[test]
    fn damage_under_a_right_checksum_is_survived(count in 0u64..600, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut header = header(&shape(6, 8), 0);
        let (mut head, mut tail, _) = encode(&mut header, &data_entries(count)).unwrap();
        for (at, value) in changes {
            let at = at.index(head.len());
            if !(32..64).contains(&at) {
                head[at] = value;
            }
        }
        let (segment, row) = (SegmentId(u32_at(&head, H_SEGMENT)), u32_at(&head, H_ROW));
        let seed = seed(&header.pool, header.epoch, segment, row);
        let table = xxh3_64_with_seed(&head[HEADER_BYTES..], seed);
        put(&mut head, H_TABLE_CHECKSUM, &table.to_le_bytes());
        let sum = xxh3_64_with_seed(&head[H_VERSION..HEADER_BYTES], seed);
        put(&mut head, H_CHECKSUM, &sum.to_le_bytes());
        put(&mut tail, F_HEADER_CHECKSUM, &sum.to_le_bytes());
        let sum = xxh3_64_with_seed(&tail[..F_CHECKSUM], seed);
        put(&mut tail, F_CHECKSUM, &sum.to_le_bytes());
        let _ = decode_batch(&head, &tail, &header.pool, segment, row);
    }
}
