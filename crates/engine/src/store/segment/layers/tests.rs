use super::*;
use windrow_geometry::{Code, Shape, Zone};
use windrow_policy::select::Rule;
use windrow_types::MemberId;

/// Two members with 8 segments; four members over the same bytes.
fn grown() -> ZoneMap {
    let zone = |members: u64, first_segment, layout| {
        let width = members.count_ones() as u8;
        let shape = Shape {
            width,
            data: width / 2,
            code: Code::Copies,
            rows: 16,
            chunk_rows: 8,
        };
        Zone {
            members,
            start: 1 << 20,
            first_segment,
            segments: 8,
            shape,
            layout,
        }
    };
    ZoneMap::new(vec![zone(0b11, 0, 0), zone(0b1111, 8, 1)])
}

/// A segment of the old layout dies and becomes free, and one of the new layout is written in its
/// extents. The checkpoint's table is older, and in its map the segment holds shared content
/// without references. A start took it for dead once more, and two segments in use had the same
/// extents (simulator, seed 961375).
#[test]
fn a_segment_freed_before_a_crash_does_not_return_over_the_new_layout() {
    for (overwritten, expected) in [(true, SegmentState::Retired), (false, SegmentState::Dead)] {
        let zones = grown();
        assert_eq!(zones.overlapping(SegmentId(4)), [SegmentId(12)]);
        let mut segments = Segments::new(&zones, Rule::Greedy);
        for (id, live_units) in [(4, 0), (5, 100), (12, 200)]
            .into_iter()
            .filter(|(id, _)| overwritten || *id != 12)
        {
            let segment = segments.get_mut(SegmentId(id));
            (
                segment.filled_rows,
                segment.live_units,
                segment.superseded_by,
            ) = (16, live_units, Lsn(574));
        }
        let open: &[SegmentId] = if overwritten { &[SegmentId(12)] } else { &[] };
        segments.settle(&zones, open, &[], 2);
        assert_eq!(segments.self_check(), Ok(()));
        assert_eq!(
            (
                segments.get(SegmentId(4)).state,
                segments.get(SegmentId(5)).state
            ),
            (expected, SegmentState::Sealed)
        );
        assert_eq!(segments.dead_count(), u32::from(!overwritten));
    }
}

/// Zones of pools of equal members, and of the remaining members when one has left.
fn without_one(
    redundancy: windrow_geometry::Redundancy,
    members: u8,
    small: Option<u64>,
) -> ZoneMap {
    use crate::store::plan::{Layout, lay_out};
    let mut sizes: Vec<(MemberId, u64)> = (0..members).map(|m| (MemberId(m), 40 << 20)).collect();
    small.into_iter().for_each(|bytes| sizes[0].1 = bytes);
    let lay = |members: &[(MemberId, u64)], first_segment, number| {
        lay_out(&Layout {
            redundancy,
            segment_rows: 8,
            chunk_rows: 8,
            start: 1 << 20,
            first_segment,
            number,
            members,
        })
        .expect("a layout")
    };
    let old = lay(&sizes, 0, 0);
    let new = lay(&sizes[1..], old.last().map_or(0, Zone::end_segment), 1);
    ZoneMap::new(old.into_iter().chain(new).collect())
}

/// Where all members are equal a group has fewer old segments than the pool has members. With a
/// smaller member the zones of both layouts may be entangled, and then nothing is activated before
/// everything is empty. Such a removal never ends, so it is refused ([`largest_group`]).
#[test]
fn groups_are_small_where_members_are_equal() {
    use windrow_geometry::Redundancy;
    for redundancy in [
        Redundancy::None,
        Redundancy::Copies(2),
        Redundancy::Copies(3),
        Redundancy::Copies(4),
        Redundancy::Single,
        Redundancy::Double,
    ] {
        for members in redundancy.min_members() as u8 + 1..20 {
            let largest = largest_group(&without_one(redundancy, members, None));
            assert!(
                largest < usize::from(members),
                "{redundancy:?}, {members} members: {largest}"
            );
        }
    }
    let beside = |rows: u64| {
        largest_group(&without_one(
            Redundancy::Copies(2),
            4,
            Some((1 << 20) + rows * 32768),
        ))
    };
    assert_eq!(beside(80), 2);
    assert!(beside(81) > 1000, "one row more, and all is one group");
}
