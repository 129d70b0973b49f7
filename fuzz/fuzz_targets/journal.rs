//! A journal record, unchanged and with valid checksums, in both granules. What is accepted must
//! encode to the same bytes, and its LSN range must match its entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_format::batch::TableWriter;
use windrow_format::journal::{
    RECORD_HEADER_BYTES, decode_record, decode_record_header, encode_record,
};
use windrow_types::Uuid;

fuzz_target!(|data: &[u8]| {
    let pool = Uuid([7; 16]);
    let _ = decode_record_header(data, &pool, 3, 512, 512);
    let _ = decode_record(data, &pool, 3, 512, 512);
    if data.len() < RECORD_HEADER_BYTES {
        return;
    }
    let mut bytes = data.to_vec();
    let address = signing::sign_record(&mut bytes);
    for granule in [512, 4096] {
        let head = decode_record_header(
            &bytes,
            &address.pool,
            address.chunk,
            address.offset,
            granule,
        );
        let Ok(record) = decode_record(
            &bytes,
            &address.pool,
            address.chunk,
            address.offset,
            granule,
        ) else {
            continue;
        };
        let length = record.length as usize;
        assert_eq!(head, Ok((record.header.clone(), length as u64)));
        assert!(length.is_multiple_of(granule as usize));

        let mut next = record.header.first.0;
        let mut table = TableWriter::new();
        for entry in &record.entries {
            let (first, count) = entry.entry.lsns().expect("only entries with orders");
            assert_eq!(
                (first.0, entry.payload.is_some()),
                (next, entry.entry.has_payload())
            );
            next += count;
            table.push(&entry.entry);
        }
        assert_eq!(next - 1, record.header.last.0);
        let payload = record
            .entries
            .iter()
            .filter_map(|e| e.payload)
            .map(|p| record.payload(&bytes, &p));
        let mut again = vec![0xff; length];
        encode_record(&record.header, &table, payload, granule, &mut again);
        assert_eq!(bytes[..length], again[..]);
    }
});
