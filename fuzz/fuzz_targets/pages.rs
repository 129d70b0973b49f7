//! Checkpoint pages of every kind. What is accepted must encode to a page with the same meaning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_format::checkpoint::*;
use windrow_format::index_page::{INDEX_MAGIC, decode_index_page, encode_index_page};
use windrow_format::map_entry::MapEntry;
use windrow_types::{BLOCK_SIZE, SegmentId};

fuzz_target!(|data: &[u8]| {
    let mut page = data.to_vec();
    page.resize(BLOCK_SIZE, 0);
    let mut out = vec![0xff; BLOCK_SIZE];
    let pointers = decode_leaf(&page);
    encode_leaf(&pointers, &mut out);
    assert_eq!(decode_leaf(&out), pointers);
    if let Ok(volumes) = decode_volumes(&page) {
        encode_volumes(&volumes, &mut out);
        assert_eq!(decode_volumes(&out), Ok(volumes));
    }
    let mut map = [MapEntry::HOLE; MAP_PAGE_ENTRIES];
    decode_map_page(&page, &mut map);
    for entry in &map {
        let _ = (entry.state(), entry.address(), entry.checksum());
    }
    encode_map_page(&map, &mut out);
    assert_eq!(out, page);
    // (A counter above the possible maximum is read as the maximum.)
    let counters = decode_counters(&page);
    encode_counters(&counters, &mut out);
    assert_eq!(decode_counters(&out), counters);
    let rows = u32::from_le_bytes([page[0], page[1] & 0x7f, 0, 0])
        .clamp(1, windrow_format::MAX_SEGMENT_ROWS);
    let stride = SegmentTableGeometry::new(rows).stride;
    let segment = SegmentId(u32::from_le_bytes([page[0], page[1], page[2], page[3]]));
    if let Ok(record) = decode_segment(&page[..stride], segment, rows) {
        out.resize(stride, 0);
        encode_segment(&record, &mut out);
        assert_eq!(decode_segment(&out, segment, rows), Ok(record));
    }
    out.resize(BLOCK_SIZE, 0);
    page[..4].copy_from_slice(&INDEX_MAGIC);
    let mut entries = Vec::new();
    if let Some(index) = decode_index_page(&page, &mut entries) {
        encode_index_page(&entries, index.previous, &mut out);
        let mut again = Vec::new();
        assert_eq!(decode_index_page(&out, &mut again), Some(index));
        assert_eq!(again, entries);
    }
    page[..8].copy_from_slice(&LIST_MAGIC);
    if let Ok(list) = decode_list(&page) {
        encode_list(&list, &mut out);
        assert_eq!(decode_list(&out), Ok(list));
    }
});
