use super::*;

#[test]
fn age_buckets_are_half_octaves_and_cover_everything() {
    assert_eq!(
        [0, 1, 2, 3, 4, 6, 8, u32::MAX].map(age_bucket),
        [0, 0, 2, 3, 4, 5, 6, 0],
        "the greatest age is rounded up to 2^32 and wraps; no block lives so long"
    );
    for bucket in 2..60 {
        let begin = edge(bucket).ceil() as u32;
        assert_eq!(
            age_bucket(begin),
            bucket,
            "bucket {bucket} begins at {}",
            edge(bucket)
        );
    }
}

#[test]
fn chances_are_deaths_over_exposure_and_a_guess_where_nothing_was_seen() {
    let mut lives = Lives::new(1000);
    let cell = 10 * ROWS + 10;
    // In 10 000 writes, one block in ten was always live in the cell at age 1000 (100 of 1000:
    // exposure 100 * 10 000), and 500 died there.
    for _ in 0..1000 {
        lives.seen(cell, 1000);
    }
    for _ in 0..500 {
        lives.died(cell, 1000);
    }
    let row = lives.row(10);
    let chance = lives.cell(cell, &row)[age_bucket(1000)];
    assert!((chance / 5e-4 - 1.0).abs() < 0.02, "{chance}");
    assert!(
        row[age_bucket(1 << 25)] < 1e-6,
        "an age never seen: about one over the age"
    );
}

#[test]
fn what_surely_lived_bounds_the_exposure_that_samples_missed() {
    let mut lives = Lives::new(1 << 20);
    // A few hot blocks, never sampled: they died at an age of about 64, so their chance cannot be
    // far above 1 in half that bucket.
    for _ in 0..1000 {
        lives.died(5 * ROWS + 5, 64);
    }
    let chance = lives.row(5)[age_bucket(64)];
    let width = edge(age_bucket(64) + 1) - edge(age_bucket(64));
    assert!(chance <= 2.1 / width, "{chance}");
}

/// A single `f32` stops counting at 2^24: from some 40 GiB of live blocks on, the busiest cells
/// would have too few deaths, and plans would be made for lifetimes that no block has.
#[test]
fn counts_of_large_pools_keep_growing() {
    const MORE: u32 = 1 << 18;
    let mut lives = Lives::new(1 << 30);
    let (cell, age) = (10 * ROWS + 10, age_bucket(1000));
    for counts in [&mut lives.deaths, &mut lives.moved, &mut lives.seen] {
        (0..1 << 13).for_each(|_| counts.add(cell * AGES + age, (1 << 13) as f32, 32.0));
    }
    (0..1 << 13).for_each(|_| lives.born.add(cell, (1 << 13) as f32, 32.0));
    lives.passed = 1 << 26;
    for _ in 0..MORE {
        lives.born(cell);
        lives.died(cell, 1000);
        lives.moved(cell, 1000);
        lives.seen(cell, 1000);
    }
    lives.settle();
    let expected = ((1 << 26) + MORE) as f32;
    let at = cell * AGES + age;
    assert_eq!(
        [
            lives.deaths.get(at),
            lives.moved.get(at),
            lives.seen.get(at),
            lives.born.get(cell),
            lives.time
        ],
        [expected; 5]
    );
    lives.fade(0.5);
    assert_eq!(
        [
            lives.deaths.get(at),
            lives.flow(cell, age),
            lives.born.get(cell),
            lives.time
        ],
        [expected / 2.0; 4]
    );
}
