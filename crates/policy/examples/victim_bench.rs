//! Nanoseconds for an update and for the choice of a victim among many segments:
//! `cargo run --release -p windrow-policy --example victim_bench`.

use std::time::Instant;
use windrow_policy::{SegmentStats, VictimIndex, VictimPolicy};

const UPDATES: u32 = 4_000_000;
const VICTIMS: u32 = 2_000;

fn main() {
    println!(
        "{:>14} {:>9} {:>9} {:>12} {:>12}",
        "policy", "segments", "capacity", "ns/update", "ns/victim"
    );
    for policy in [VictimPolicy::Greedy, VictimPolicy::CostBenefit] {
        for (segments, capacity) in [(2_000, 16_384), (200_000, 16_384), (200_000, 4_194_304)] {
            let (update, victim) = measure(policy, segments, capacity);
            println!(
                "{:>14} {segments:>9} {capacity:>9} {update:>12.1} {victim:>12.1}",
                format!("{policy:?}")
            );
        }
    }
}

fn measure(policy: VictimPolicy, segments: u32, capacity_units: u32) -> (f64, f64) {
    let mut index = VictimIndex::new(segments, capacity_units, policy);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |bound: u32| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((state >> 32) * u64::from(bound)) >> 32) as u32
    };
    let mut live = vec![capacity_units; segments as usize];
    for segment in 0..segments {
        // Live shares spread as greedy cleaning leaves them: from 0.8 to 1.
        live[segment as usize] -= below(capacity_units / 5);
        index.insert(
            segment,
            SegmentStats {
                live_units: live[segment as usize],
                capacity_units,
                sealed_at: u64::from(segment),
            },
        );
    }
    let step = (capacity_units / 16_384).max(1);
    let start = Instant::now();
    for _ in 0..UPDATES {
        let segment = below(segments);
        let units = &mut live[segment as usize];
        *units = units.saturating_sub(step);
        index.update(segment, *units);
    }
    let update = start.elapsed().as_secs_f64() * 1e9 / f64::from(UPDATES);
    let start = Instant::now();
    for now in 0..VICTIMS {
        let now = u64::from(segments + now);
        if let Some((segment, stats)) = index.pop_best(now) {
            index.insert(
                segment,
                SegmentStats {
                    live_units: capacity_units,
                    sealed_at: now,
                    ..stats
                },
            );
        }
    }
    (
        update,
        start.elapsed().as_secs_f64() * 1e9 / f64::from(VICTIMS),
    )
}
