//! Entries of a batch: the first two bytes are their number, the rest their encoding, in an
//! otherwise valid frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_format::batch::{BatchHeader, BatchPlan, TableWriter, decode_batch, encode_ends};
use windrow_geometry::{Code, Shape};
use windrow_types::{
    BLOCK_SIZE, BatchSeq, Epoch, FULL_BLOCK_UNITS, Lsn, MAX_STREAMS, SegmentId, StreamId, Uuid,
};

fuzz_target!(|data: &[u8]| {
    let Some((count, entries)) = data.split_first_chunk::<2>() else {
        return;
    };
    if entries.len() > 3800 {
        return;
    }
    let shape = Shape {
        width: 6,
        data: 4,
        code: Code::PQ,
        rows: 64,
        chunk_rows: 64,
    };
    let header = BatchHeader {
        pool: Uuid([7; 16]),
        epoch: Epoch(1),
        stream: StreamId(0),
        seq: BatchSeq(1),
        segment: SegmentId(0),
        row: 0,
        rows: 64,
        shape,
        members: 63,
        next_segment: SegmentId(1),
        flushed_through: Lsn(0),
        flushed_seq: [BatchSeq(0); MAX_STREAMS],
    };
    let (mut head, mut tail) = (vec![0; BLOCK_SIZE], vec![0; BLOCK_SIZE]);
    let plan = BatchPlan {
        head_blocks: 1,
        payload_blocks: 0,
        compressed_blocks: 0,
        rows: 64,
        padding_blocks: 254,
    };
    encode_ends(
        &header,
        &TableWriter::new(),
        &[],
        &plan,
        &mut head,
        &mut tail,
    );
    // Payload blocks: numbers that keep the table in the head, tried in turn by the low bits of the
    // count.
    let number = u32::from(u16::from_le_bytes(*count));
    let payload = (number >> 12).min(((3840 - entries.len()) / 4) as u32);
    head[164..168].copy_from_slice(&payload.to_le_bytes());
    head[168..172].copy_from_slice(&(number & 0xfff).to_le_bytes());
    head[172..176].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    head[256..256 + entries.len()].copy_from_slice(entries);
    signing::sign_batch(&mut head, &mut tail);
    let Ok(batch) = decode_batch(&head, &tail, &header.pool, SegmentId(0), 0) else {
        return;
    };
    let mut table = TableWriter::new();
    for decoded in &batch.entries {
        match decoded.payload {
            Some(payload) if payload.units < FULL_BLOCK_UNITS => {
                table.push_compressed(&decoded.entry, payload.units)
            }
            _ => table.push(&decoded.entry),
        }
    }
    assert_eq!(table.bytes(), entries);
});
