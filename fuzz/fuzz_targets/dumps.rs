//! `inspect` on garbled members: superblocks, batches, journal records. Listed items can be decoded
//! and shown; nothing panics.
#![no_main]

#[path = "../pools.rs"]
mod pools;

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use windrow_inspect::{dump_batch, dump_chunk, inspect_members, list_batches, list_records};
use windrow_types::SegmentId;

/// More segments than the pools have.
const SEGMENTS: u32 = 64;
/// Number of chunks that are read although no record is listed there.
const CHUNKS: u32 = 4;

fn show(result: &impl serde::Serialize) {
    assert!(
        serde_json::to_string_pretty(result).is_ok(),
        "it can be shown"
    );
}

fn journals(members: &mut pools::Members) {
    let records = list_records(members).unwrap_or_default();
    show(&records);
    let beside = [false, true].into_iter().flat_map(|external| {
        (0..CHUNKS)
            .chain([u32::MAX])
            .map(move |chunk| (external, chunk))
    });
    let addresses: BTreeSet<(bool, u32)> = records
        .iter()
        .map(|record| (record.external, record.header.chunk))
        .chain(beside)
        .collect();
    let mut shown = Vec::new();
    for (external, chunk) in addresses {
        let Ok(dump) = dump_chunk(members, external, chunk) else {
            continue;
        };
        show(&dump);
        shown.extend(dump.records.into_iter().map(|record| record.summary));
    }
    assert!(
        records.iter().all(|record| shown.contains(record)),
        "each record that is listed is in its chunk"
    );
}

fuzz_target!(|input: &[u8]| {
    let Some(mut members) = pools::garbled(input) else {
        return;
    };
    show(&inspect_members(&mut members));
    journals(&mut members);
    for segment in (0..SEGMENTS).chain([u32::MAX]).map(SegmentId) {
        let batches = list_batches(&mut members, segment).unwrap_or_default();
        show(&batches);
        for batch in &batches {
            show(&dump_batch(&mut members, segment, batch.row).expect("what is listed is there"));
        }
        // No batch begins there, unless the address is random.
        _ = dump_batch(
            &mut members,
            segment,
            batches
                .last()
                .map_or(0, |last| last.row + last.rows.saturating_sub(1)),
        );
    }
});
