use super::*;

#[test]
fn parts_cover_every_age_and_begin_where_they_say() {
    let ages = (0..2000)
        .chain((0..32).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]))
        .chain([u64::from(u32::MAX)]);
    for age in ages.map(|age| age as u32) {
        let at = part(age);
        assert!(
            at < AGES && edge(at) <= f64::from(age) && f64::from(age) < edge(at + 1),
            "{age} in {at}"
        );
    }
    assert!((1..=AGES).all(|at| edge(at) > edge(at - 1)));
}

/// One block each: it is rewritten when its lifetime is over, at any point of an epoch.
fn live(lives: &mut Lives, blocks: u32, epoch: u32, epochs: u32, mut life: impl FnMut() -> u32) {
    let mut all: Vec<(u32, u32)> = (0..blocks).map(|_| (0, life())).collect();
    for end in (1..=epochs).map(|number| number * epoch) {
        let began = end - epoch;
        for (written, lasts) in &mut all {
            while *written + *lasts < end {
                lives.died(false, *written, *written + *lasts, began);
                *written += *lasts;
                *lasts = life();
                lives.born(false);
            }
            lives.living(false, *written, end, began, 1.0);
        }
        if end < epochs * epoch {
            lives.fade();
        }
    }
}

#[test]
fn lives_longer_than_an_epoch_are_counted_rightly() {
    // All live for 3000: no lifetime begins and ends within one epoch of 1000.
    let (mut lives, mut first) = (Lives::default(), 0);
    live(&mut lives, 500, 1000, 12, || {
        first += 1;
        // (Spread at the start, so that deaths fall into every epoch.)
        if first <= 500 { 6 * first } else { 3000 }
    });
    let survival = lives.survival(false);
    // (Lifetimes of the start have not all faded.)
    assert!(
        survival[part(2900) - 1] > 0.95 && survival[part(3100) + 1] < 0.03,
        "{} {}",
        survival[part(2900) - 1],
        survival[part(3100) + 1]
    );
    assert!(
        survival
            .windows(2)
            .all(|pair| pair[1] <= pair[0] && pair[1] >= 0.0)
    );
    assert_eq!(lives.hot_share(), 0.0);
}

#[test]
fn random_lives_have_their_law() {
    let (mut lives, mut state) = (Lives::default(), 88_172_645_463_325_252u64);
    let mean = 700.0;
    live(&mut lives, 4000, 500, 8, || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let share = (state >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - share).ln() * mean).ceil() as u32
    });
    let survival = lives.survival(false);
    for age in [100, 400, 700, 1400, 2500] {
        let (found, law) = (survival[part(age)], (-edge(part(age)) / mean).exp());
        assert!((found - law).abs() < 0.02, "{age}: {found}, {law}");
    }
}
