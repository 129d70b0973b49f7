use super::*;

fn options() -> LearnedOptions {
    LearnedOptions {
        streams: 8,
        segment_blocks: 64,
        open_cost: 0.0,
    }
}

#[test]
fn equal_calls_give_equal_streams() {
    let run = || {
        let mut learned = Learned::new(1000, options());
        let mut streams = Vec::new();
        for now in 0..50_000u32 {
            let block = if now % 4 == 0 {
                now / 4 % 1000
            } else {
                now % 37
            };
            if now > 4000 || learned.blocks[block as usize].last() != DEAD {
                learned.died(
                    block,
                    now,
                    Place {
                        segment: block / 64,
                        tag: 3,
                        age: now % 500 + 1,
                    },
                    false,
                );
            }
            streams.push(learned.user(block, now));
            if now % 100 == 0 {
                learned.chosen(1e-4);
                streams.push(learned.moved(
                    now / 4 % 1000,
                    now,
                    Place {
                        segment: 1,
                        tag: 0,
                        age: 1,
                    },
                ));
            }
        }
        (streams, learned.price().to_bits())
    };
    let (streams, price) = run();
    assert_eq!((streams.clone(), price), run());
    assert!(
        streams.iter().any(|stream| *stream > 0),
        "blocks that are hot and cold by a factor of a hundred share no stream"
    );
}

#[test]
fn a_trimmed_block_is_neither_sampled_nor_counted_as_live() {
    let mut learned = Learned::new(4, options());
    learned.user(2, 0);
    assert_eq!(learned.live, 1);
    learned.died(
        2,
        10,
        Place {
            segment: 0,
            tag: 0,
            age: 0,
        },
        true,
    );
    assert_eq!((learned.live, learned.blocks[2].last()), (0, DEAD));
    learned.user(2, 20);
    assert_eq!(learned.live, 1);
    assert_ne!(
        learned.blocks[2].trail(),
        Trail::default(),
        "the life that the trim ended is remembered"
    );
}

#[test]
fn the_price_follows_what_victims_cost() {
    let mut learned = Learned::new(1000, options());
    for round in 0..10_000 {
        // Every other victim is wholly dead: that does not make space free.
        learned.chosen(if round % 2 == 0 { 0.0 } else { 3e-3 });
    }
    assert!(
        (learned.price() / 3e-3).log2().abs() < 0.5,
        "{}",
        learned.price()
    );
}

/// Deaths must not stop at 2^24 while the exposure keeps growing: segments of large pools would
/// look as if they hardly died.
#[test]
fn rates_of_segments_stay_true_however_many_die() {
    struct One(Place);
    impl Survey for One {
        fn sealed(&self, each: &mut dyn FnMut(Place, u32)) {
            each(self.0, 1 << 16);
        }
    }
    let place = Place {
        segment: 0,
        tag: 20,
        age: 5000,
    };
    let mut learned = Learned::new(
        4,
        LearnedOptions {
            segment_blocks: 1 << 16,
            ..options()
        },
    );
    learned.user(2, 0);
    let mut now = 0;
    for _ in 0..3 {
        // 2^23 deaths in 2^25 times of 2^16 live blocks: a rate of 2^-18.
        for _ in 0..1 << 23 {
            learned.died(2, now, place, false);
        }
        now += 1 << 25;
        learned.survey(now, &One(place));
    }
    assert!(
        (learned.rate(place) * (1 << 18) as f32 - 1.0).abs() < 0.01,
        "{}",
        learned.rate(place)
    );
}

/// Such a segment must not be worth cleaning with little garbage, just before the load reaches it.
#[test]
fn a_segment_in_which_nothing_dies_is_not_taken_to_live_for_ever() {
    struct One(Place);
    impl Survey for One {
        fn sealed(&self, each: &mut dyn FnMut(Place, u32)) {
            each(self.0, 64);
        }
    }
    let of_age = |age: u32| Place {
        segment: 0,
        tag: 20,
        age,
    };
    let mut learned = Learned::new(4, options());
    for round in 1..1000 {
        learned.survey(round << 20, &One(of_age(5000)));
    }
    assert!(
        (0.01..0.021).contains(&(learned.rate(of_age(5000)) * 5000.0)),
        "{}",
        learned.rate(of_age(5000))
    );
    assert!(
        learned.rate(of_age(500_000)) < learned.rate(of_age(5000)),
        "what has lived longer is taken to live longer still"
    );
}
