use super::*;
use windrow_format::batch::{BatchHeader, Entry, FillState, TableWriter, encode_ends, plan_batch};
use windrow_geometry::Redundancy;
use windrow_types::{Epoch, Lba, MAX_STREAMS, StreamId, Uuid, VolumeId};

/// A member missed a write and holds the head of a stale batch, with a table of many fills. From
/// that, the head of the short current batch seemed to span more columns than there are. Where one
/// of them had to be reconstructed, the pool stopped with a panic.
#[test]
fn the_table_of_a_stale_batch_does_not_locate_the_head() {
    let (pool, segment, shape) = (
        Uuid::from_random([7; 16]),
        SegmentId(3),
        Redundancy::Double.shape(5, 256, 64).unwrap(),
    );
    let mut table = TableWriter::new();
    for n in 0..6000 {
        table.push(&Entry::Fill {
            volume: VolumeId(1 + n as u32 % 3),
            lba: Lba(n * n * 7919 % 1_000_003),
            birth: Lsn(n + 1),
            state: FillState::Ones,
        });
    }
    let plan = plan_batch(&shape, 0, table.encoded_len(), 0).unwrap();
    let header = BatchHeader {
        pool,
        epoch: Epoch(1),
        stream: StreamId(0),
        seq: BatchSeq(1),
        segment,
        row: 0,
        rows: plan.rows,
        shape,
        members: 0b11111,
        next_segment: SegmentId::NONE,
        flushed_through: Lsn(0),
        flushed_seq: [BatchSeq(0); MAX_STREAMS],
    };
    let (mut head, mut tail) = (
        vec![0; plan.head_blocks as usize * BLOCK_SIZE],
        vec![0; BLOCK_SIZE],
    );
    encode_ends(&header, &table, &[], &plan, &mut head, &mut tail);
    let ends = |rows| Ends {
        row: 0,
        rows,
        head: vec![Some(Payload::copy_of(&head[..BLOCK_SIZE]))],
        tail: None,
        left: 0,
        wrong: false,
    };
    assert!(
        plan.head_blocks > 5 && plan.rows > 1,
        "{} blocks, {} rows",
        plan.head_blocks,
        plan.rows
    );
    assert_eq!(
        ends(plan.rows).head_bytes(&pool, segment, &shape),
        Some(Err(plan.head_blocks)),
        "its own batch"
    );
    assert_eq!(
        ends(1).head_bytes(&pool, segment, &shape),
        None,
        "another one, which is verified as a whole"
    );
    let narrower = Redundancy::Double.shape(4, 256, 64).unwrap();
    assert_eq!(
        ends(plan.rows).head_bytes(&pool, segment, &narrower),
        None,
        "one of a previous layout"
    );
}
