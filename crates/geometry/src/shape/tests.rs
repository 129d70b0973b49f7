use super::*;
use std::collections::HashSet;

fn zone(members: usize, redundancy: Redundancy, extents: u64) -> ZoneMap {
    let shape = redundancy.shape(members, 64, 16).unwrap();
    let segments = Zone::segments_for(members, shape.width as usize, extents) as u32;
    ZoneMap::new(vec![Zone {
        members: u64::MAX >> (64 - members),
        start: 1 << 20,
        first_segment: 0,
        segments,
        shape,
        layout: 0,
    }])
}

#[test]
fn extents_are_used_once_and_evenly_for_every_member_count() {
    for members in 3..=13 {
        for redundancy in [
            Redundancy::None,
            Redundancy::Copies(2),
            Redundancy::Copies(3),
            Redundancy::Single,
        ] {
            let map = zone(members, redundancy, 12);
            let mut seen = HashSet::new();
            for s in 0..map.segment_count() {
                let at = map.locate(SegmentId(s));
                let on: HashSet<_> = (0..at.shape().width as usize)
                    .map(|p| at.extent(p).0)
                    .collect();
                assert_eq!(on.len(), at.shape().width as usize, "one extent a member");
                for p in 0..at.shape().width as usize {
                    let (member, offset) = at.extent(p);
                    assert!(
                        offset >= 1 << 20
                            && offset + at.shape().extent_bytes()
                                <= (1 << 20) + 12 * at.shape().extent_bytes()
                    );
                    assert!(seen.insert((member, offset)), "extent used twice");
                }
            }
            let all = members * 12;
            assert!(
                all - seen.len() < map.zones()[0].shape.width as usize,
                "no extent left over but a remainder"
            );
        }
    }
}

#[test]
fn locate_is_a_bijection_within_a_batch() {
    let shape = Redundancy::Double.shape(8, 64, 16).unwrap();
    for (row, rows) in [(0, 16), (16, 1), (17, 5), (22, 10)] {
        let first = u64::from(row) * 6;
        let mut seen = HashSet::new();
        for block in first..first + u64::from(rows) * 6 {
            let (column, r) = shape.locate(row, rows, block);
            assert!(column.0 < 6 && (row..row + rows).contains(&r));
            assert!((row..row + rows).contains(&shape.row_hint(block)));
            assert!(seen.insert((column, r)));
        }
    }
}

#[test]
fn positions_rotate_and_invert() {
    let shape = Redundancy::Double.shape(5, 64, 8).unwrap();
    for row in 0..64 {
        for c in 0..5 {
            let p = shape.position(row, Column(c));
            assert_eq!(shape.column_at(row, p), Column(c));
        }
    }
    assert_ne!(shape.position(0, Column(3)), shape.position(8, Column(3)));
}

#[test]
fn redundancy_states_its_limits() {
    assert_eq!(
        Redundancy::Double.shape(3, 64, 16).unwrap_err().to_string(),
        "redundancy 6 needs 4 to 64 members, 3 given"
    );
    let odd = Redundancy::Copies(2).shape(5, 64, 16).unwrap();
    assert_eq!((odd.width, odd.data), (4, 2));
    assert_eq!(Redundancy::Single.shape(40, 64, 16).unwrap().width, 32);
}

/// Zones of one layout over members of these sizes: the layout of a new pool.
fn layout(number: u32, first: u32, redundancy: Redundancy, extents: &[u64]) -> Vec<Zone> {
    let mut sizes = extents.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let (mut done, mut first_segment, mut zones) = (0, first, Vec::new());
    for size in sizes {
        let members = (0..extents.len())
            .filter(|m| extents[*m] >= size)
            .fold(0u64, |mask, m| mask | 1 << m);
        let Ok(shape) = redundancy.shape(members.count_ones() as usize, 64, 16) else {
            break;
        };
        let segments = Zone::segments_for(
            members.count_ones() as usize,
            usize::from(shape.width),
            size - done,
        ) as u32;
        zones.push(Zone {
            members,
            start: (1 << 20) + done * shape.extent_bytes(),
            first_segment,
            segments,
            shape,
            layout: number,
        });
        first_segment += segments;
        done = size;
    }
    zones
}

#[test]
fn layouts_overlap_as_their_extents_say() {
    let redundancies = [
        Redundancy::None,
        Redundancy::Copies(2),
        Redundancy::Copies(3),
        Redundancy::Single,
        Redundancy::Double,
    ];
    let sizes = [
        [6u64, 6, 6, 6, 6, 6, 6],
        [6, 9, 6, 9, 9, 6, 9],
        [4, 7, 9, 9, 9, 12, 12],
    ];
    for redundancy in redundancies {
        for (sizes, before) in sizes
            .iter()
            .flat_map(|s| (2..7).map(move |before| (s, before)))
        {
            let old = layout(0, 3, redundancy, &sizes[..before]);
            let Some(end) = old.last().map(Zone::end_segment) else {
                continue;
            };
            let new = layout(1, end + 5, redundancy, sizes);
            let map = ZoneMap::new(old.into_iter().chain(new).collect());
            assert!(
                map.has_superseded()
                    && !map.contains(SegmentId(0))
                    && !map.contains(SegmentId(end))
                    && map.contains(SegmentId(end + 5))
            );
            assert_eq!(
                map.segments().count() as u32,
                map.zones().iter().map(|z| z.segments).sum::<u32>()
            );
            let extents = |s: SegmentId| -> HashSet<(MemberId, u64)> {
                let at = map.locate(s);
                (0..usize::from(at.shape().width))
                    .map(|p| at.extent(p))
                    .collect()
            };
            for a in map.segments() {
                let dumb = |b: &SegmentId| {
                    map.zone(a).layout != map.zone(*b).layout
                        && !extents(a).is_disjoint(&extents(*b))
                };
                let expected: Vec<SegmentId> = map.segments().filter(dumb).collect();
                assert_eq!(
                    map.overlapping(a),
                    expected,
                    "{redundancy:?} {sizes:?} {before}: {a}"
                );
            }
        }
    }
}
