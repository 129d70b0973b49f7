use super::*;

const SEGMENT: u32 = 16;

fn with_layout(ages: usize, hot: usize, blocks: [f64; GROUPS], live_share: [f64; GROUPS]) -> Chain {
    let mut chain = Chain::new(1000, SEGMENT, 6);
    chain.layout = Layout {
        ages: (0..ages).map(|at| 40 + at).collect(),
        hot,
        blocks,
        live_share,
        waf: 2.0,
        filter_age: 100,
    };
    chain
}

fn marked(tag: u8, age: u32) -> Place {
    Place {
        segment: 3,
        tag,
        age,
    }
}

/// A segment of a group other than the tail.
fn at(group: u8, age: u32) -> Place {
    marked(group + 1, age)
}

#[test]
fn a_block_is_hot_once_three_versions_died_young_and_cold_when_they_do_not() {
    let mut chain = with_layout(1, lives::part(64), [64.0; GROUPS], [0.5; GROUPS]);
    let overwrite = |chain: &mut Chain, place: Place, now: u32| {
        chain.died(7, now, place, false);
        chain.user(7, now)
    };
    assert_eq!(chain.user(7, 1), 1, "an unknown block");
    assert_eq!(
        (2..5)
            .map(|now| overwrite(&mut chain, at(1, 64), now))
            .collect::<Vec<_>>(),
        [1, 1, 0]
    );
    // A late death, in a segment or group without young blocks, subtracts one.
    assert_eq!(overwrite(&mut chain, at(0, 65), 6), 1);
    assert_eq!(overwrite(&mut chain, at(0, 2), 7), 0);
    assert_eq!(overwrite(&mut chain, at(2, 3), 8), 1);
    // So does a move; a trim is a death like any other.
    assert_eq!(
        (
            overwrite(&mut chain, at(1, 2), 9),
            chain.moved(7, 10, at(0, 70)),
            overwrite(&mut chain, at(0, 0), 11)
        ),
        (0, 1, 0)
    );
    // Without a group for hot blocks they go where all blocks go, and are still counted.
    chain.layout.hot = 0;
    let before = chain.lives.hot_share();
    assert_eq!(overwrite(&mut chain, at(1, 1), 12), 1);
    assert!(chain.lives.hot_share() > before);
}

#[test]
fn what_is_alive_goes_one_group_further_and_the_tail_keeps_it() {
    let mut chain = with_layout(3, 0, [64.0; GROUPS], [0.5; GROUPS]);
    assert_eq!((chain.streams(), chain.layout.tail()), (5, 4));
    let marks = [0, 1, 2, 3, 4].map(|stream| chain.tag(stream));
    assert_eq!(marks, [1, 2, 3, 4, TAIL]);
    assert_eq!(
        marks.map(|mark| chain.moved(9, 5, marked(mark, 3))),
        [1, 2, 3, 4, 4]
    );
    // With fewer groups, segments of removed groups belong to the tail, and so do those with an
    // unknown mark.
    chain.layout.ages.truncate(1);
    assert_eq!(marks.map(|mark| chain.group_of(mark)), [0, 1, 2, 2, 2]);
    assert_eq!(
        (
            chain.group_of(u8::MAX),
            chain.moved(9, 6, marked(u8::MAX, 3))
        ),
        (2, 2)
    );
    // With more groups, those of the tail stay there.
    chain.layout.ages = vec![40, 41, 42, 43];
    assert_eq!(chain.group_of(TAIL), 5);
}

#[test]
fn a_group_that_is_too_large_gives_its_oldest_segment_and_else_the_tail_gives_one() {
    let mut chain = with_layout(
        2,
        0,
        [0.0, 40.0, 32.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.5; GROUPS],
    );
    let (tail, first) = (
        Due {
            group: 3,
            first_sealed: false,
        },
        Due {
            group: 1,
            first_sealed: true,
        },
    );
    for block in 0..55 {
        assert_eq!((chain.due(), chain.user(block, block)), (Some(tail), 1));
    }
    chain.user(55, 55);
    assert_eq!(chain.due(), Some(first), "40 and a whole segment more");
    chain.victim(at(1, 9), 5, 0, 60);
    assert_eq!(chain.due(), Some(tail));
    // A survey reports the segments: here, only three of group 2.
    struct Three;
    impl Survey for Three {
        fn sealed(&self, each: &mut dyn FnMut(Place, u32)) {
            (0..3).for_each(|_| each(at(2, 5), 9));
        }
    }
    chain.survey(61, &Three);
    assert_eq!(
        (chain.held[1], chain.held[2], chain.due()),
        (
            8,
            48,
            Some(Due {
                group: 2,
                first_sealed: true
            })
        )
    );
    assert_eq!(
        chain.pool,
        Pool {
            space: 48.0,
            live: 27.0
        }
    );
}

#[test]
fn a_group_about_which_the_model_was_wrong_is_merged_for_an_epoch() {
    let hot_and_cold = |chain: &mut Chain| {
        // A tenth of the blocks gets nearly all writes: groups pay off.
        for now in 0..40_000u32 {
            let block = if now % 10 == 0 {
                100 + now / 10 % 900
            } else {
                now % 100
            };
            chain.died(block, now, at(1, 1), false);
            chain.user(block, now);
        }
        chain.pool = Pool {
            space: 1400.0,
            live: 1000.0,
        };
    };
    for (live, merged) in [(8, false), (14, true)] {
        let mut chain = with_layout(1, 0, [64.0; GROUPS], [0.5; GROUPS]);
        hot_and_cold(&mut chain);
        chain.layout = with_layout(1, 0, [64.0; GROUPS], [0.5; GROUPS]).layout;
        chain.victims[1] = Victims {
            number: 20,
            live: 20 * live,
        };
        chain.replan(40_000);
        assert_eq!(
            chain.layout.ages.is_empty(),
            merged,
            "{live} of 16 alive: {:?}",
            chain.layout
        );
        assert_eq!(chain.victims[1].number, 0);
    }
}

/// Groups that leave the tail too little space must be merged before the epoch ends: the tail would
/// move a hundred blocks for each write.
#[test]
fn groups_are_merged_at_once_if_moves_far_exceed_the_prediction() {
    struct Nothing;
    impl Survey for Nothing {
        fn sealed(&self, _each: &mut dyn FnMut(Place, u32)) {}
    }
    let mut chain = with_layout(
        2,
        0,
        [0.0, 64.0, 36.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.5; GROUPS],
    );
    // Twice 2.0 for each of a hundred writes, and a hundred for the sizes.
    chain.victims[3] = Victims {
        number: 40,
        live: 500,
    };
    chain.survey(100, &Nothing);
    assert_eq!(chain.layout.tail(), 3);
    chain.victims[3].live += 1;
    chain.survey(100, &Nothing);
    assert_eq!((chain.layout.tail(), chain.layout.hot_age()), (1, 100));
}

/// An engine keeps no marks over a restart. "Unknown" must not be the hot group's mark: all old
/// segments would be due from that group, first in, first out.
#[test]
fn unknown_segments_are_cleaned_by_the_rule_of_the_pool() {
    struct Unknown;
    impl Survey for Unknown {
        fn sealed(&self, each: &mut dyn FnMut(Place, u32)) {
            (0..50).for_each(|_| each(marked(0, 900), 12));
        }
    }
    let mut chain = with_layout(2, lives::part(64), [32.0; GROUPS], [0.5; GROUPS]);
    chain.survey(61, &Unknown);
    assert_eq!(
        chain.due(),
        Some(Due {
            group: 3,
            first_sealed: false
        }),
        "{:?}",
        chain.held
    );
    assert_eq!(chain.moved(7, 62, marked(0, 900)), 3);
}

/// With more blocks than samples, each part between two samples counts as a whole, and the sampled
/// block is drawn at random.
#[test]
fn a_sample_of_the_living_stands_for_all_of_them() {
    for blocks in [SAMPLES - 7, SAMPLES * 3 / 2, SAMPLES * 4] {
        let mut chain = Chain::new(blocks, SEGMENT, 6);
        (0..blocks).for_each(|block| chain.written[block as usize] = 0);
        chain.replan(1000);
        assert_eq!(
            chain.lives.ended(),
            f64::from(blocks) * lives::KEEP,
            "{blocks} blocks, all alive"
        );
        // Every fourth block: a fourth of them, whatever the ratio to the number of samples.
        let mut chain = Chain::new(blocks, SEGMENT, 6);
        (0..blocks)
            .step_by(4)
            .for_each(|block| chain.written[block as usize] = 0);
        chain.replan(1000);
        let found = chain.lives.ended() / lives::KEEP / f64::from(blocks);
        assert!((found - 0.25).abs() < 0.01, "{blocks} blocks: {found}");
    }
}
