use super::*;

const SEGMENT: u32 = 16;

fn with_layout(ages: usize, hot: usize, blocks: [f64; GROUPS], live_share: [f64; GROUPS]) -> Chain {
    let mut chain = Chain::new(1000, SEGMENT, 6);
    chain.layout = Layout { ages: (0..ages).map(|at| 40 + at).collect(), hot, blocks, live_share, waf: 2.0, filter_age: 100 };
    chain
}

fn at(tag: u8, age: u32) -> Place {
    Place { segment: 3, tag, age }
}

#[test]
fn a_block_is_hot_once_three_versions_died_young_and_cold_when_they_do_not() {
    let mut chain = with_layout(1, lives::part(64), [64.0; GROUPS], [0.5; GROUPS]);
    let overwrite = |chain: &mut Chain, place: Place, now: u32| {
        chain.died(7, now, place, false);
        chain.user(7, now)
    };
    assert_eq!(chain.user(7, 1), 1, "a block nobody knows");
    assert_eq!((2..5).map(|now| overwrite(&mut chain, at(1, 64), now)).collect::<Vec<_>>(), [1, 1, 0]);
    // One that dies late, in a segment or group where nothing young is, takes one off.
    assert_eq!(overwrite(&mut chain, at(0, 65), 6), 1);
    assert_eq!(overwrite(&mut chain, at(0, 2), 7), 0);
    assert_eq!(overwrite(&mut chain, at(2, 3), 8), 1);
    // So does a move; what is trimmed is like any other death.
    assert_eq!((overwrite(&mut chain, at(1, 2), 9), chain.moved(7, 10, at(0, 70)), overwrite(&mut chain, at(0, 0), 11)), (0, 1, 0));
    // Without a group for hot blocks they go where all go, and are counted all the same.
    chain.layout.hot = 0;
    let before = chain.lives.hot_share();
    assert_eq!(overwrite(&mut chain, at(1, 1), 12), 1);
    assert!(chain.lives.hot_share() > before);
}

#[test]
fn what_is_alive_goes_one_group_further_and_the_tail_keeps_it() {
    let mut chain = with_layout(3, 0, [64.0; GROUPS], [0.5; GROUPS]);
    assert_eq!((chain.streams(), chain.layout.tail()), (5, 4));
    let moves: Vec<u8> = [0, 1, 2, 3, 4, TAIL].map(|tag| chain.moved(9, 5, at(tag, 3))).to_vec();
    assert_eq!(moves, [1, 2, 3, 4, 4, 4]);
    assert_eq!([0, 1, 2, 3, 4].map(|stream| chain.tag(stream)), [0, 1, 2, 3, TAIL]);
    // With fewer groups, segments of those that are gone belong to the tail.
    chain.layout.ages.truncate(1);
    assert_eq!([0, 1, 2, 3, TAIL].map(|tag| chain.group_of(tag)), [0, 1, 2, 2, 2]);
}

#[test]
fn a_group_that_is_too_large_gives_its_oldest_segment_and_else_the_tail_gives_one() {
    let mut chain = with_layout(2, 0, [0.0, 40.0, 32.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.5; GROUPS]);
    let (tail, first) = (Due { group: 3, first_sealed: false }, Due { group: 1, first_sealed: true });
    for block in 0..55 {
        assert_eq!((chain.due(), chain.user(block, block)), (Some(tail), 1));
    }
    chain.user(55, 55);
    assert_eq!(chain.due(), Some(first), "40 and a whole segment more");
    chain.victim(at(1, 9), 5, 0, 60);
    assert_eq!(chain.due(), Some(tail));
    // A survey says what there is: here, nothing but three segments of group 2.
    struct Three;
    impl Survey for Three {
        fn sealed(&self, each: &mut dyn FnMut(Place, u32)) {
            (0..3).for_each(|_| each(at(2, 5), 9));
        }
    }
    chain.survey(61, &Three);
    assert_eq!((chain.held[1], chain.held[2], chain.due()), (8, 48, Some(Due { group: 2, first_sealed: true })));
    assert_eq!(chain.pool, Pool { space: 48.0, live: 27.0 });
}

#[test]
fn a_group_about_which_the_model_was_wrong_is_merged_for_an_epoch() {
    let hot_and_cold = |chain: &mut Chain| {
        // A tenth of the blocks gets nearly all writes: groups are worth it.
        for now in 0..40_000u32 {
            let block = if now % 10 == 0 { 100 + now / 10 % 900 } else { now % 100 };
            chain.died(block, now, at(1, 1), false);
            chain.user(block, now);
        }
        chain.pool = Pool { space: 1400.0, live: 1000.0 };
    };
    for (live, merged) in [(8, false), (14, true)] {
        let mut chain = with_layout(1, 0, [64.0; GROUPS], [0.5; GROUPS]);
        hot_and_cold(&mut chain);
        chain.layout = with_layout(1, 0, [64.0; GROUPS], [0.5; GROUPS]).layout;
        chain.victims[1] = Victims { number: 20, live: 20 * live };
        chain.replan(40_000);
        assert_eq!(chain.layout.ages.is_empty(), merged, "{live} of 16 alive: {:?}", chain.layout);
        assert_eq!(chain.victims[1].number, 0);
    }
}

/// Groups that leave the tail too little made it move a hundred blocks for each that was written, until the epoch was over.
#[test]
fn groups_are_given_up_at_once_where_far_more_is_moved_than_was_foretold() {
    struct Nothing;
    impl Survey for Nothing {
        fn sealed(&self, _each: &mut dyn FnMut(Place, u32)) {}
    }
    let mut chain = with_layout(2, 0, [0.0, 64.0, 36.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.5; GROUPS]);
    // Twice 2.0 for each of a hundred writes, and a hundred for the sizes.
    chain.victims[3] = Victims { number: 40, live: 500 };
    chain.survey(100, &Nothing);
    assert_eq!(chain.layout.tail(), 3);
    chain.victims[3].live += 1;
    chain.survey(100, &Nothing);
    assert_eq!((chain.layout.tail(), chain.layout.hot_age()), (1, 100));
}
