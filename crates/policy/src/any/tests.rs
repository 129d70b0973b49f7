use super::*;

#[test]
fn classes_find_streams_whatever_a_pool_affords() {
    for kind in PlacementKind::ALL {
        for extra in 0..8 {
            let classes = Classes::new(kind, extra);
            assert!(
                u32::from(classes.users + classes.moved) <= 2 + extra,
                "{kind:?} {extra}"
            );
            assert!(
                usize::from(classes.users) <= USER_STREAMS_MAX
                    && usize::from(classes.moved) <= MOVED_STREAMS_MAX
            );
            let mut placement = AnyPlacement::new(kind, 64, 8, 16, classes.classes);
            for now in 1..2000u32 {
                let (block, from) = (
                    now * 7 % 64,
                    Place {
                        segment: now % 8,
                        tag: (now % 5) as u8,
                        age: now % 300,
                    },
                );
                placement.died(block, now, from, now % 11 == 0);
                assert!(
                    classes.user(placement.user(block, now)) < classes.users,
                    "{kind:?} {extra}"
                );
                assert!(
                    classes.moved(placement.moved(block, now, from)) < classes.moved,
                    "{kind:?} {extra}"
                );
            }
            for stream in 0..classes.moved {
                assert_eq!(
                    classes.moved(classes.class_of_moved(stream)),
                    stream,
                    "{kind:?} {extra}"
                );
            }
        }
    }
}

#[test]
fn sepbit_has_its_six_streams() {
    let classes = Classes::new(PlacementKind::Invalidation, 5);
    assert_eq!((classes.users, classes.moved), (2, 4));
    assert_eq!(
        (0..2).map(|class| classes.user(class)).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(
        (2..6).map(|class| classes.moved(class)).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    assert!(
        Classes::new(PlacementKind::Separate, 5).is_plain()
            && Classes::new(PlacementKind::Learned, 0).is_plain()
    );
}

#[test]
fn what_dies_unknown_is_no_news() {
    // After a start nothing is known about existing blocks.
    for kind in PlacementKind::ALL {
        let mut placement = AnyPlacement::new(kind, 16, 4, 16, 4);
        for block in 0..16 {
            placement.died(
                block,
                5,
                Place {
                    segment: 0,
                    tag: 0,
                    age: 3,
                },
                true,
            );
            placement.moved(
                block,
                6,
                Place {
                    segment: 0,
                    tag: 0,
                    age: 3,
                },
            );
        }
        let hottest = [PlacementKind::Clusters, PlacementKind::Fading].contains(&kind);
        assert!(
            placement.user(3, 9) < if hottest { 3 } else { 6 },
            "{kind:?}"
        );
    }
}
