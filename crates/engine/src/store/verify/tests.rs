use super::*;
use windrow_format::batch::{
    BatchHeader, Entry, TableWriter, encode_ends, payload_checksum, plan_batch,
};
use windrow_geometry::Redundancy;
use windrow_types::{BatchSeq, Epoch, Lba, Lsn, MAX_STREAMS, Uuid, VolumeId};

const SEGMENT: SegmentId = SegmentId(3);
const USER: StreamId = StreamId(0);

fn pool() -> PoolUuid {
    Uuid::from_random([7; 16])
}

/// Columns of a batch of two blocks at row 0.
fn columns(shape: Shape, epoch: u64, stream: StreamId, seq: u64) -> (Vec<Buf>, u32) {
    let payloads: Vec<Vec<u8>> = (1..=2u64)
        .map(|n| vec![(epoch * 40 + seq * 7 + n) as u8; BLOCK_SIZE])
        .collect();
    let mut table = TableWriter::new();
    (0..2u64).for_each(|n| {
        table.push(&Entry::Data {
            volume: VolumeId(1),
            lba: Lba(epoch * 100 + n),
            birth: Lsn(epoch * 100 + n),
        })
    });
    let plan = plan_batch(&shape, 0, table.encoded_len(), 2).unwrap();
    let header = BatchHeader {
        pool: pool(),
        epoch: Epoch(epoch),
        stream,
        seq: BatchSeq(seq),
        segment: SEGMENT,
        row: 0,
        rows: plan.rows,
        shape,
        members: (1 << shape.width) - 1,
        next_segment: SegmentId::NONE,
        flushed_through: Lsn(0),
        flushed_seq: [BatchSeq(0); MAX_STREAMS],
    };
    let checksums: Vec<u32> = payloads.iter().map(|p| payload_checksum(p)).collect();
    let mut space = vec![0; plan.rows as usize * usize::from(shape.data) * BLOCK_SIZE];
    let tail_at = space.len() - BLOCK_SIZE;
    let (front, tail) = space.split_at_mut(tail_at);
    let (head, rest) = front.split_at_mut(plan.head_blocks as usize * BLOCK_SIZE);
    encode_ends(&header, &table, &checksums, &plan, head, tail);
    rest.chunks_exact_mut(BLOCK_SIZE)
        .zip(&payloads)
        .for_each(|(slot, payload)| slot.copy_from_slice(payload));
    let column_bytes = plan.rows as usize * BLOCK_SIZE;
    let mut columns: Vec<Buf> = (0..shape.width)
        .map(|_| Buf::unpooled(column_bytes))
        .collect();
    columns
        .iter_mut()
        .zip(space.chunks_exact(column_bytes))
        .for_each(|(column, bytes)| column.copy_from_slice(bytes));
    encode_redundancy(&shape, &mut columns);
    (columns, plan.rows)
}

/// Verification result where the first columns have a stale batch, and column `absent` is missing.
fn verified(
    shape: Shape,
    former: Vec<Buf>,
    present: (Vec<Buf>, u32),
    stale: usize,
    absent: Option<usize>,
) -> Verified {
    let (present, rows) = present;
    let columns: Vec<Option<Buf>> = former
        .into_iter()
        .take(stale)
        .chain(present.into_iter().skip(stale))
        .map(Some)
        .collect();
    let columns = columns
        .into_iter()
        .enumerate()
        .map(|(c, column)| column.filter(|_| Some(c) != absent))
        .collect();
    let absent = absent.map_or(0, |c| 1 << c);
    let buffers = BufPool::new(1 << 20);
    let (pool, segment, stream) = (pool(), SEGMENT, USER);
    let mut work = VerifyWork {
        verification: 0,
        pool,
        segment,
        row: 0,
        rows,
        shape,
        stream,
        columns,
        absent,
        wanted: 0,
        skipped: 0,
        buffers,
        refused: Vec::new(),
        live: 0,
        found: None,
    };
    work.run();
    work.found.unwrap()
}

/// A member that missed a write has the previous content. That is a void batch of the same number
/// and an older epoch, or one of another stream with a higher number. A rebuild must not take it
/// for the batch and write it to other members, over live data.
#[test]
fn a_stale_batch_is_not_taken_for_the_present_one() {
    for (redundancy, members, stale, absent) in [
        (Redundancy::Copies(2), 2, 1, None),
        (Redundancy::Copies(3), 3, 1, Some(2)),
        (Redundancy::Copies(3), 3, 2, None),
        (Redundancy::Single, 4, 1, None),
        (Redundancy::Double, 5, 1, Some(3)),
    ] {
        let shape = redundancy.shape(members, 64, 16).unwrap();
        for (epoch, stream, seq) in [
            (5, USER, 20),
            (5, USER, 30),
            (6, StreamId(2), 900),
            (6, USER, 10),
        ] {
            let (must, rows) = columns(shape, 6, USER, 20);
            let (former, former_rows) = columns(shape, epoch, stream, seq);
            assert_eq!(rows, former_rows);
            let found = verified(shape, former, columns(shape, 6, USER, 20), stale, absent);
            let header = &found.batch.frame.header;
            assert_eq!(
                (header.epoch, header.stream, header.seq),
                (Epoch(6), USER, BatchSeq(20)),
                "{redundancy:?} {epoch} {stream} {seq}"
            );
            assert!(found.lost.is_empty());
            assert!(
                found
                    .columns
                    .iter()
                    .zip(&must)
                    .all(|(found, must)| found[..] == must[..]),
                "{redundancy:?} {epoch} {stream} {seq}"
            );
            assert_eq!(
                found.wrong.iter().fold(0, |all, wrong| all | wrong),
                (1 << stale) - 1,
                "{redundancy:?} {epoch} {stream} {seq}"
            );
        }
    }
}
