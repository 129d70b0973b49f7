use super::*;
use crate::victim::cost_benefit;

mod simulation;

fn stats(live_units: u32, capacity_units: u32, sealed_at: u64) -> SegmentStats {
    SegmentStats {
        live_units,
        capacity_units,
        sealed_at,
    }
}

/// A small generator, so that the tests are the same on every run.
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// Random calls against a plain table: the pop is always of exactly the least utilisation.
fn greedy_equals_model(capacity_max: u32, capacities: &[u32]) {
    const SEGMENTS: u32 = 300;
    let mut random = Random(0xabcdef ^ u64::from(capacity_max));
    let mut index = VictimIndex::new(SEGMENTS, capacity_max, VictimPolicy::Greedy);
    let mut model: Vec<Option<SegmentStats>> = vec![None; SEGMENTS as usize];
    for step in 0..6000 {
        let segment = random.below(SEGMENTS);
        let slot = &mut model[segment as usize];
        match random.below(8) {
            0..3 => {
                let capacity = capacities[random.below(capacities.len() as u32) as usize];
                let new = stats(random.below(capacity + 1), capacity, step);
                index.insert(segment, new);
                *slot = Some(new);
            }
            3..6 => {
                let live = slot.map_or(5, |old| random.below(old.live_units + 1));
                assert_eq!(index.update(segment, live), slot.is_some());
                *slot = slot.map(|old| SegmentStats {
                    live_units: live,
                    ..old
                });
            }
            6 => assert_eq!(index.remove(segment), slot.take()),
            _ => {
                let least = model
                    .iter()
                    .flatten()
                    .filter(|s| s.live_units < s.capacity_units)
                    .min_by(|a, b| a.compare_utilisation(b))
                    .copied();
                let popped = index.pop_best(step);
                match (popped, least) {
                    (Some((segment, found)), Some(least)) => {
                        assert!(
                            found.compare_utilisation(&least).is_eq(),
                            "{found:?}, {least:?}"
                        );
                        assert_eq!(model[segment as usize].take(), Some(found));
                    }
                    (None, None) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        if step % 50 == 0 {
            assert_eq!(index.self_check(), Ok(()));
        }
        assert_eq!(index.len() as usize, model.iter().flatten().count());
    }
}

#[test]
fn greedy_is_exact_with_single_count_buckets() {
    greedy_equals_model(512, &[512]);
    greedy_equals_model(1, &[1]);
}

#[test]
fn greedy_is_exact_with_wide_buckets() {
    greedy_equals_model(5_000_000, &[5_000_000]);
    greedy_equals_model(u32::MAX - 1, &[u32::MAX - 1]);
}

#[test]
fn greedy_is_exact_with_different_capacities() {
    greedy_equals_model(512, &[512, 500, 64, 3, 1]);
    greedy_equals_model(300_000, &[300_000, 299_999, 1000]);
}

#[test]
fn ties_go_to_the_longest_waiting() {
    let mut index = VictimIndex::new(8, 512, VictimPolicy::Greedy);
    for segment in [5, 2, 7] {
        index.insert(segment, stats(100, 512, 0));
    }
    let order: Vec<u32> = std::iter::from_fn(|| index.pop_best(0))
        .map(|(segment, _)| segment)
        .collect();
    assert_eq!(order, [5, 2, 7]);
}

/// A lazy index gives the same victims as one with lists for all, ties included, under changing
/// loads.
#[test]
fn lazy_is_the_same_with_less_work() {
    for (capacity, capacities) in [
        (64, &[64][..]),
        (5_000_000, &[5_000_000]),
        (512, &[512, 500, 3]),
    ] {
        const SEGMENTS: u32 = 700;
        let mut random = Random(0x5eed ^ u64::from(capacity));
        let mut both = [
            VictimIndex::new(SEGMENTS, capacity, VictimPolicy::Greedy),
            VictimIndex::new_lazy(SEGMENTS, capacity, VictimPolicy::Greedy),
        ];
        for step in 0..60_000u64 {
            let segment = random.below(if step % 20_000 < 10_000 {
                SEGMENTS
            } else {
                SEGMENTS / 9
            });
            let (draw, of) = (
                random.below(64),
                capacities[random.below(capacities.len() as u32) as usize],
            );
            let new = stats(of - random.below(of / 2 + 1) * random.below(2), of, step);
            let answers = both.each_mut().map(|index| match draw {
                0 | 1 => index.pop_best(step),
                2 => index.remove(segment).map(|stats| (segment, stats)),
                _ if index.get(segment).is_none() => {
                    index.insert(segment, new);
                    None
                }
                _ => {
                    let live = index.get(segment).map_or(0, |found| found.live_units);
                    index.update(segment, live.saturating_sub((capacity / 500).max(1)));
                    index.peek_best(step)
                }
            });
            assert_eq!(answers[0], answers[1], "step {step}");
            if step % 1000 == 0 {
                both.iter()
                    .for_each(|index| assert_eq!(index.self_check(), Ok(()), "step {step}"));
            }
            if step == 30_000 {
                both.iter_mut()
                    .for_each(|index| index.set_policy(VictimPolicy::CostBenefit));
                both.iter_mut()
                    .for_each(|index| index.set_policy(VictimPolicy::Greedy));
            }
        }
        assert!(both[1].near.below < FAR && both[0].near.below == FAR);
    }
}

#[test]
fn full_segments_are_never_offered() {
    for policy in [VictimPolicy::Greedy, VictimPolicy::CostBenefit] {
        let mut index = VictimIndex::new(4, 512, policy);
        index.insert(0, stats(512, 512, 0));
        index.insert(1, stats(100, 100, 0));
        index.insert(2, stats(600, 512, 0));
        assert_eq!(index.peek_best(1000), None);
        index.update(1, 99);
        assert_eq!(index.pop_best(1000).map(|(segment, _)| segment), Some(1));
        assert_eq!((index.len(), index.pop_best(1000)), (2, None));
    }
}

#[test]
fn empty_segments_come_first() {
    for policy in [VictimPolicy::Greedy, VictimPolicy::CostBenefit] {
        let mut index = VictimIndex::new(4, 512, policy);
        index.insert(0, stats(1, 512, 0));
        index.insert(1, stats(0, 512, 999));
        assert_eq!(index.pop_best(1000).map(|(segment, _)| segment), Some(1));
    }
}

#[test]
fn unknown_segments_are_left_alone() {
    let mut index = VictimIndex::new(4, 512, VictimPolicy::Greedy);
    assert!(!index.update(2, 7) && !index.update(4, 7) && !index.update(u32::MAX, 7));
    assert_eq!(
        (index.remove(3), index.remove(4), index.get(9)),
        (None, None, None)
    );
    let mut none = VictimIndex::new(0, 0, VictimPolicy::CostBenefit);
    assert_eq!((none.pop_best(1), none.is_empty()), (None, true));
}

#[test]
fn cost_benefit_prefers_the_old() {
    let mut index = VictimIndex::new(4, 512, VictimPolicy::CostBenefit);
    index.insert(0, stats(200, 512, 990));
    index.insert(1, stats(400, 512, 0));
    index.insert(2, stats(400, 512, 10));
    let order: Vec<u32> = std::iter::from_fn(|| index.pop_best(1000))
        .map(|(segment, _)| segment)
        .collect();
    assert_eq!(order, [1, 2, 0]);
}

#[test]
fn older_segment_that_enters_a_class_late_goes_to_its_front() {
    let mut index = VictimIndex::new(64, 1280, VictimPolicy::CostBenefit);
    for segment in 1..60 {
        index.insert(segment, stats(645, 1280, 5000 + u64::from(segment)));
    }
    index.insert(0, stats(1000, 1280, 10));
    index.update(0, 645);
    assert_eq!(index.self_check(), Ok(()));
    assert_eq!(index.pop_best(10_000).map(|(segment, _)| segment), Some(0));
}

#[test]
fn policy_can_change() {
    let mut index = VictimIndex::new(1000, 5000, VictimPolicy::Greedy);
    let mut random = Random(3);
    for segment in 0..1000 {
        index.insert(
            segment,
            stats(1 + random.below(4999), 5000, u64::from(segment)),
        );
    }
    index.set_policy(VictimPolicy::CostBenefit);
    assert_eq!((index.self_check(), index.len()), (Ok(()), 1000));
    index.set_policy(VictimPolicy::Greedy);
    assert_eq!(index.self_check(), Ok(()));
    let order: Vec<u32> = std::iter::from_fn(|| index.pop_best(0))
        .map(|(_, stats)| stats.live_units)
        .collect();
    assert!(order.len() >= 999 && order.is_sorted());
}

/// A bounded scan of every class finds nearly the best score of a full scan, for random ages and
/// utilisations.
#[test]
fn cost_benefit_is_close_to_a_full_scan() {
    const SEGMENTS: u32 = 20_000;
    let mut index = VictimIndex::new(SEGMENTS, 16384, VictimPolicy::CostBenefit);
    let mut random = Random(0xc0ffee);
    for segment in 0..SEGMENTS {
        index.insert(segment, stats(16384, 16384, u64::from(segment)));
    }
    for _ in 0..400_000 {
        // Old segments lose fewer blocks than young ones.
        let segment = SEGMENTS - 1 - (random.below(SEGMENTS).min(random.below(SEGMENTS)));
        let live = index.get(segment).map_or(0, |s| s.live_units);
        index.update(segment, live.saturating_sub(random.below(600)));
    }
    let now = u64::from(SEGMENTS);
    for _ in 0..100 {
        let best = (0..SEGMENTS)
            .filter_map(|s| index.get(s))
            .map(|s| cost_benefit(&s, now))
            .fold(0.0, f64::max);
        let (_, found) = index.pop_best(now).expect("segments with garbage are left");
        let score = cost_benefit(&found, now);
        assert!(score >= 0.95 * best, "{score} of {best}");
    }
}
