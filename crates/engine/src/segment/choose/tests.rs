use super::*;
use windrow_policy::kind::PlacementKind;
use windrow_units::{Code, FULL_BLOCK_UNITS, Order, Seq, Shape, Zone, ZoneMap};

fn segments() -> Segments {
    let shape = Shape { width: 4, data: 3, code: Code::P, rows: 64, chunk_rows: 64 };
    let zones = ZoneMap::new(vec![Zone { members: 0b1111, start: 1 << 20, first_segment: 0, segments: 8, shape, layout: 0 }]);
    let mut segments = Segments::new(&zones, Rule::Greedy);
    segments.settle(&zones, &[], &[], 1);
    segments
}

fn plain() -> AnyPlacement {
    AnyPlacement::new(PlacementKind::Separate, 0, 0, 1, 2)
}

/// Seals a segment with so many live payloads of so many units, behind the replay of the kept checkpoints.
fn seal(segments: &mut Segments, pieces: u32, units: u16) -> SegmentId {
    let id = segments.reserve().expect("a free segment");
    segments.open(id, 0);
    segments.add_batch(id, 0, 64, Seq(1), 0);
    (0..pieces).for_each(|_| segments.add_live(id, units));
    segments.batch_committed(id, 1, true);
    id
}

/// Users fill a segment with payloads of two units. Their entries take 10 bytes each there, and 18 in a move: all of them moved take more than a segment. By stored units a quarter of it
/// looked like garbage, and cleaning it gave nothing, for ever where a pool is full of such segments.
#[test]
fn a_segment_of_tiny_payloads_is_no_victim_for_the_garbage_that_it_only_seems_to_hold() {
    let mut segments = segments();
    let capacity = u32::try_from(crate::format::payload_blocks(&Shape { width: 4, data: 3, code: Code::P, rows: 64, chunk_rows: 64 })).expect("few") * 256;
    // What a segment holds of them: 32 bytes of payload, 10 of entry and checksum.
    let tiny = seal(&mut segments, 64 * 3 * 4096 / 42, 2);
    assert!(segments.get(tiny).live_units < capacity * 4 / 5 && segments.get(tiny).weight() > capacity);
    assert_eq!((segments.garbage(tiny), segments.take_victim(9, true, &plain())), (0, None));
    // Whole blocks weigh what they take: fewer of them, with as much in them, are a victim.
    let whole = seal(&mut segments, capacity / 256 * 4 / 5, FULL_BLOCK_UNITS);
    assert_eq!(segments.get(whole).weight(), segments.get(whole).live_units);
    assert_eq!(segments.take_victim(9, true, &plain()).map(|(id, _)| id), Some(whole));
    // As they die it becomes one.
    let dead = segments.get(tiny).live_packed / 2;
    (0..dead).for_each(|_| segments.remove_live(tiny, 2, Order(7), Seq(0)));
    assert_eq!(segments.take_victim(9, true, &plain()).map(|(id, _)| id), Some(tiny));
}
