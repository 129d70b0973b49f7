//! The room of the user stream needs no more segments than the reserve counts.

use super::*;
use windrow_geometry::{Redundancy, Zone, ZoneMap};

fn zone(
    redundancy: Redundancy,
    members: usize,
    rows: u32,
    chunk_rows: u32,
    first_segment: u32,
    layout: u32,
) -> Zone {
    let shape = redundancy
        .shape(members, rows, chunk_rows)
        .expect("a shape");
    Zone {
        members: (1 << members) - 1,
        start: 1 << 20,
        first_segment,
        segments: 100,
        shape,
        layout,
    }
}

/// While a pool of three grew to thirteen, the chunk of the wide layout was counted in segments of
/// the narrow one: eight were reserved ahead, and the reserve had three.
#[test]
fn a_wide_layout_next_to_a_narrow_one_takes_no_more_segments() {
    for rows in [8, 16, 64] {
        let narrow = zone(Redundancy::Single, 3, rows, rows, 0, 0);
        let alone = segments_ahead(&ZoneMap::new(vec![narrow.clone()]));
        let both = segments_ahead(&ZoneMap::new(vec![
            narrow,
            zone(Redundancy::Single, 13, rows, rows, 100, 1),
        ]));
        assert_eq!((alone, both), (3, 3), "{rows} rows");
    }
}

/// In the smallest segments of all one edge of a write does not fit next to the chunk that must not
/// be begun.
#[test]
fn the_smallest_segments_need_one_more() {
    assert_eq!(
        segments_ahead(&ZoneMap::new(vec![zone(
            Redundancy::Copies(2),
            2,
            8,
            8,
            0,
            0
        )])),
        4
    );
    assert_eq!(
        segments_ahead(&ZoneMap::new(vec![zone(
            Redundancy::Copies(2),
            2,
            8,
            4,
            0,
            0
        )])),
        4
    );
}
