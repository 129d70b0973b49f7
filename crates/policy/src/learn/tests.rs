use super::*;

fn options() -> LearnedOptions {
    LearnedOptions { streams: 8, segment_blocks: 64, open_cost: 0.0 }
}

#[test]
fn equal_calls_give_equal_streams() {
    let run = || {
        let mut learned = Learned::new(1000, options());
        let mut streams = Vec::new();
        for now in 0..50_000u32 {
            let block = if now % 4 == 0 { now / 4 % 1000 } else { now % 37 };
            if now > 4000 || learned.blocks[block as usize].last() != DEAD {
                learned.died(block, now, Place { segment: block / 64, tag: 3, age: now % 500 + 1 }, false);
            }
            streams.push(learned.user(block, now));
            if now % 100 == 0 {
                learned.chosen(1e-4);
                streams.push(learned.moved(now / 4 % 1000, now, Place { segment: 1, tag: 0, age: 1 }));
            }
        }
        (streams, learned.price().to_bits())
    };
    let (streams, price) = run();
    assert_eq!((streams.clone(), price), run());
    assert!(streams.iter().any(|stream| *stream > 0), "blocks that are hot and cold by a factor of a hundred share no stream");
}

#[test]
fn a_trimmed_block_is_neither_sampled_nor_counted_as_live() {
    let mut learned = Learned::new(4, options());
    learned.user(2, 0);
    assert_eq!(learned.live, 1);
    learned.died(2, 10, Place { segment: 0, tag: 0, age: 0 }, true);
    assert_eq!((learned.live, learned.blocks[2].last()), (0, DEAD));
    learned.user(2, 20);
    assert_eq!(learned.live, 1);
    assert_ne!(learned.blocks[2].trail(), Trail::default(), "the life that the trim ended is remembered");
}

#[test]
fn the_price_follows_what_victims_cost() {
    let mut learned = Learned::new(1000, options());
    for round in 0..10_000 {
        // Every other victim is wholly dead: that does not make space free.
        learned.chosen(if round % 2 == 0 { 0.0 } else { 3e-3 });
    }
    assert!((learned.price() / 3e-3).log2().abs() < 0.5, "{}", learned.price());
}
