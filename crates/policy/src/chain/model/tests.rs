use super::*;

const SEGMENT: f64 = 512.0;

/// Memoryless lifetimes: shares of the writes, and the blocks that these go to. Most lifetimes are
/// over before they are counted as deaths.
fn two_rates(hot_writes: f64, hot_blocks: f64, blocks: f64) -> Lives {
    let mut lives = Lives::default();
    let mut births = 0.0;
    for (writes, among) in [
        (hot_writes, hot_blocks * blocks),
        (1.0 - hot_writes, (1.0 - hot_blocks) * blocks),
    ] {
        let mean = among / writes.max(1e-9);
        // A hundred thousand lifetimes at the hundred-thousandths of their law.
        let number = (writes * 1e5) as u32;
        for at in 0..number {
            let age = -(1.0 - (f64::from(at) + 0.5) / f64::from(number)).ln() * mean;
            lives.born(false);
            lives.died(false, 0, age.min(4e9) as u32, 0);
            births += 1.0;
        }
    }
    assert!(births > 9e4);
    lives
}

#[test]
fn random_writes_are_left_in_one_group() {
    let (blocks, space) = (262_144.0, 262_144.0 / 0.9);
    let found = choose(
        &two_rates(0.5, 0.5, blocks),
        &Pool {
            space,
            live: blocks,
        },
        SEGMENT,
        4,
        &Layout::default(),
    );
    assert_eq!(
        (found.ages.len(), found.has_hot(), found.tail()),
        (0, false, 1)
    );
    // Half of the one open segment is missing from the space.
    assert!(
        (found.waf / fifo_waf(blocks / (space - SEGMENT / 2.0)) - 1.0).abs() < 1e-6,
        "{}",
        found.waf
    );
}

#[test]
fn two_rates_are_parted_and_sizes_fit() {
    let blocks = 262_144.0;
    for spare in [0.07, 0.15, 0.3] {
        let (pool, lives) = (
            Pool {
                space: blocks / (1.0 - spare),
                live: blocks,
            },
            two_rates(0.8, 0.2, blocks),
        );
        let one = choose(&lives, &pool, SEGMENT, 1, &Layout::default());
        let found = choose(&lives, &pool, SEGMENT, 4, &Layout::default());
        assert!(
            !found.ages.is_empty() && found.waf < one.waf * 0.98,
            "{spare}: {} {}",
            one.waf,
            found.waf
        );
        let of_groups: f64 = found.blocks.iter().sum();
        assert!(
            of_groups < pool.space - blocks * 0.5
                && found.blocks[1..found.tail()]
                    .iter()
                    .all(|size| *size >= SEGMENT),
            "{found:?}"
        );
        assert!(
            found.live_share[1..found.tail()]
                .iter()
                .all(|share| (0.0..1.0).contains(share)),
            "{found:?}"
        );
        assert!(found.ages.windows(2).all(|pair| pair[0] < pair[1]));
        // The minimised figure is the one that is returned.
        let model = Model {
            pool: &pool,
            segment: SEGMENT,
            hot_share: lives.hot_share(),
            hot: lives.survival(true),
            others: lives.survival(false),
        };
        let curve = model.curve(found.hot);
        assert!((model.waf(&curve, found.hot, &found.ages) - found.waf).abs() < 1e-9);
        // No other position of a single age is better.
        for at in 0..found.ages.len() {
            for age in part(SEGMENT as u32)..part(4 * blocks as u32) {
                let mut other = found.ages.clone();
                other[at] = age;
                let is_order = other.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(
                    !is_order || model.waf(&curve, found.hot, &other) > found.waf - 1e-9,
                    "{age} instead of {at}"
                );
            }
        }
    }
}

#[test]
fn what_has_no_room_is_no_layout() {
    let lives = two_rates(0.8, 0.2, 1000.0);
    for pool in [
        Pool {
            space: 1000.0,
            live: 1000.0,
        },
        Pool {
            space: 100.0,
            live: 100.0,
        },
        Pool::default(),
    ] {
        let found = choose(&lives, &pool, SEGMENT, 4, &Layout::default());
        assert_eq!((found.tail(), found.has_hot()), (1, false), "{pool:?}");
    }
    // Nothing is known of lifetimes: nothing dies, so no group would help.
    let found = choose(
        &Lives::default(),
        &Pool {
            space: 3e5,
            live: 2e5,
        },
        SEGMENT,
        4,
        &Layout::default(),
    );
    assert_eq!((found.tail(), found.has_hot()), (1, false));
}
