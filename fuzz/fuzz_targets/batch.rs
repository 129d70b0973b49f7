//! Head and tail of a batch, unchanged and with valid checksums. What is accepted must encode to
//! the same bytes, and the head alone yields no other entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_format::batch::{
    BatchPlan, TableWriter, decode_batch, decode_head, decode_header, encode_ends,
};
use windrow_types::{BLOCK_SIZE, FULL_BLOCK_UNITS, SegmentId, Uuid};

fuzz_target!(|data: &[u8]| {
    let _ = decode_header(data, &Uuid([7; 16]), SegmentId(1), 2);
    let _ = decode_head(data, &Uuid([7; 16]), SegmentId(1), 2);
    if data.len() < 256 {
        return;
    }
    let blocks = (data.len() / BLOCK_SIZE).max(1);
    let mut head = data[..data.len().min(blocks * BLOCK_SIZE)].to_vec();
    head.resize(blocks * BLOCK_SIZE, 0);
    let mut tail = data[data.len().min(blocks * BLOCK_SIZE)..].to_vec();
    tail.resize(BLOCK_SIZE, 0);
    let address = signing::sign_batch(&mut head, &mut tail);
    let told = decode_head(&head, &address.pool, address.segment, address.row);
    let Ok(batch) = decode_batch(&head, &tail, &address.pool, address.segment, address.row) else {
        return;
    };
    let told = told.expect("a head that is right with its tail is right without it");
    assert!(
        told.len() <= batch.entries.len()
            && told
                .iter()
                .zip(&batch.entries)
                .all(|(told, decoded)| *told == decoded.entry)
    );

    let frame = &batch.frame;
    let mut table = TableWriter::new();
    let mut of_compressed = Vec::new();
    for decoded in &batch.entries {
        match decoded.payload {
            Some(payload) if payload.units < FULL_BLOCK_UNITS => {
                table.push_compressed(&decoded.entry, payload.units);
                of_compressed.push(payload.checksum);
            }
            _ => table.push(&decoded.entry),
        }
    }
    let checksums: Vec<u32> = batch.blocks.iter().copied().chain(of_compressed).collect();
    let padding_blocks = frame.padding_blocks();
    let plan = BatchPlan {
        head_blocks: frame.head_blocks,
        payload_blocks: frame.payload_blocks,
        compressed_blocks: frame.compressed_blocks,
        rows: frame.header.rows,
        padding_blocks,
    };
    let (mut new_head, mut new_tail) = (vec![0xff; head.len()], vec![0xff; tail.len()]);
    encode_ends(
        &frame.header,
        &table,
        &checksums,
        &plan,
        &mut new_head,
        &mut new_tail,
    );
    assert_eq!((head, tail), (new_head, new_tail));
});
