use super::*;
use windrow_geometry::{Code, Shape, Zone, ZoneMap};
use windrow_policy::kind::PlacementKind;
use windrow_policy::place::Survey;
use windrow_types::{BatchSeq, FULL_BLOCK_UNITS, Lsn};

fn segments() -> Segments {
    let shape = Shape {
        width: 4,
        data: 3,
        code: Code::P,
        rows: 64,
        chunk_rows: 64,
    };
    let zones = ZoneMap::new(vec![Zone {
        members: 0b1111,
        start: 1 << 20,
        first_segment: 0,
        segments: 8,
        shape,
        layout: 0,
    }]);
    let mut segments = Segments::new(&zones, Rule::Greedy);
    segments.settle(&zones, &[], &[], 1);
    segments
}

fn plain() -> AnyPlacement {
    AnyPlacement::new(PlacementKind::Separate, 0, 0, 1, 2)
}

/// Seals a segment with `pieces` live payloads of `units` units, after the replay of the kept
/// checkpoints.
fn seal(segments: &mut Segments, pieces: u32, units: u16) -> SegmentId {
    let id = segments.reserve().expect("a free segment");
    segments.open(id, 0);
    segments.add_batch(id, 0, 64, BatchSeq(1), 0);
    (0..pieces).for_each(|_| segments.add_live(id, units));
    segments.batch_committed(id, 1, true);
    id
}

/// Clients fill a segment with payloads of two units. Their entries take 10 bytes each there, and
/// 18 in a move: all of them moved take more than a segment. By stored units a quarter of it looked
/// like garbage. Cleaning it gave nothing, for ever where a pool is full of such segments.
#[test]
fn a_segment_of_tiny_payloads_is_no_victim_for_the_garbage_that_it_only_seems_to_hold() {
    let mut segments = segments();
    let capacity = u32::try_from(crate::store::plan::payload_blocks(&Shape {
        width: 4,
        data: 3,
        code: Code::P,
        rows: 64,
        chunk_rows: 64,
    }))
    .expect("few")
        * 256;
    // Content of a segment of them: 32 bytes of payload, 10 of entry and checksum each.
    let tiny = seal(&mut segments, 64 * 3 * 4096 / 42, 2);
    assert!(
        segments.get(tiny).live_units < capacity * 4 / 5 && segments.get(tiny).weight() > capacity
    );
    assert_eq!(
        (
            segments.garbage(tiny),
            segments.take_victim(9, true, &plain())
        ),
        (0, None)
    );
    // Uncompressed blocks weigh what they take: fewer of them, with the same number of bytes, are a
    // victim.
    let whole = seal(&mut segments, capacity / 256 * 4 / 5, FULL_BLOCK_UNITS);
    assert_eq!(segments.get(whole).weight(), segments.get(whole).live_units);
    assert_eq!(
        segments.take_victim(9, true, &plain()).map(|(id, _)| id),
        Some(whole)
    );
    // As they die it becomes one.
    let dead = segments.get(tiny).live_compressed / 2;
    (0..dead).for_each(|_| segments.remove_live(tiny, 2, Lsn(7), BatchSeq(0)));
    assert_eq!(
        segments.take_victim(9, true, &plain()).map(|(id, _)| id),
        Some(tiny)
    );
}

/// Segments of the last group only, of 16 blocks.
struct Tail;

impl Survey for Tail {
    fn sealed(&self, each: &mut dyn FnMut(Spot, u32)) {
        (0..88).for_each(|segment| {
            each(
                Spot {
                    segment,
                    tag: 0,
                    age: 500,
                },
                11,
            )
        });
    }
}

/// MiDAS with several groups, of which one is too large: its oldest segment is due as a victim.
fn with_a_group_due() -> (AnyPlacement, Due) {
    let mut placement = AnyPlacement::new(PlacementKind::Chain, 1000, 88, 16, 6);
    for now in 0..40_000u32 {
        // A tenth of the blocks gets nearly all writes.
        let block = if now % 10 == 0 {
            100 + now / 10 % 900
        } else {
            now % 100
        };
        placement.died(
            block,
            now,
            Spot {
                segment: 0,
                tag: 0,
                age: 9,
            },
            false,
        );
        placement.user(block, now);
        if now % 1000 == 0 {
            placement.survey(now, &Tail);
        }
        if let Some(due) = placement.due().filter(|due| due.first_sealed) {
            return (placement, due);
        }
    }
    panic!("no group is due: {placement:?}");
}

/// Where the due group has no candidate, the rule of the pool picks among all segments, as in the
/// laboratory. Regression: it was the one with the most garbage, whatever the rule.
#[test]
fn a_group_without_candidates_leaves_the_victim_to_the_rule() {
    let (placement, due) = with_a_group_due();
    let mark = (0..8)
        .find(|mark| placement.group_of(*mark) == due.group)
        .expect("a mark");
    for (marked, forget, first) in [
        ([0, 0], false, true),
        ([0, mark], false, false),
        ([0, mark], true, true),
    ] {
        let mut segments = segments();
        segments.set_rule(Rule::Fifo);
        let sealed = [170, 170].map(|pieces| {
            segments.user_clock += 100;
            seal(&mut segments, pieces, FULL_BLOCK_UNITS)
        });
        (0..100)
            .for_each(|_| segments.remove_live(sealed[1], FULL_BLOCK_UNITS, Lsn(7), BatchSeq(0)));
        sealed
            .iter()
            .zip(marked)
            .for_each(|(id, tag)| segments.get_mut(*id).tag = tag);
        if forget {
            segments.forget_marks();
        }
        let found = segments.take_victim(9, true, &placement).map(|(id, _)| id);
        assert_eq!(
            found,
            Some(sealed[usize::from(!first)]),
            "marked {marked:?}, forgotten: {forget}"
        );
    }
}

/// The oldest segment of the due group is completely live except for a block. Regression: without
/// need nothing was cleaned ahead then, whatever other candidates there were, until space was
/// required.
#[test]
fn a_due_victim_that_is_not_worth_its_wear_leaves_the_choice_to_the_rule() {
    let (placement, due) = with_a_group_due();
    let mark = (0..8)
        .find(|mark| placement.group_of(*mark) == due.group)
        .expect("a mark");
    let mut segments = segments();
    let [alive, other] = [185, 40].map(|pieces| seal(&mut segments, pieces, FULL_BLOCK_UNITS));
    segments.get_mut(alive).tag = mark;
    assert_ne!(
        placement.group_of(segments.get(other).tag),
        due.group,
        "the other one is in another group"
    );
    assert!(segments.garbage(alive) > 0);
    assert_eq!(
        segments.take_victim(9, false, &placement).map(|(id, _)| id),
        Some(other)
    );
}
