use super::*;
use crate::wa::workload::{Pattern, Workload, fill};

const BLOCKS: u32 = 64 * 300;

fn outcome(policy: &str, pattern: Pattern, spare: f64, space: Space) -> Outcome {
    let shape = Shape { blocks: BLOCKS, live_blocks: BLOCKS, segment_blocks: 64, header_blocks: 0, spare, space };
    let writes = u64::from(BLOCKS) * 13;
    let plan = Plan { shape, seed: 1, window: writes / 20, steady_after: writes / 2, idle_free: 0 };
    let load = || fill(BLOCKS).chain(Workload::from(pattern).stream(BLOCKS, 4).take(BLOCKS as usize * 12));
    run(Policy::from_name(policy).expect("a name"), &plan, load, &mut |_| true).expect("a run")
}

#[test]
fn equal_seeds_give_equal_outcomes() {
    for policy in ["learned", "none+choices:5", "sepbit", "sfs"] {
        let run = || outcome(policy, Pattern::Zipf { theta: 0.9 }, 0.15, Space::Strict);
        assert_eq!(run(), run(), "{policy}");
    }
}

#[test]
fn ours_is_best_where_rates_differ_and_gives_nothing_away_where_they_do_not() {
    let others = ["none", "separate", "dac", "fadac", "sepbit"];
    for pattern in [Pattern::Zipf { theta: 0.99 }, Pattern::HotCold { writes: 0.8, blocks: 0.2 }, Pattern::Moving] {
        let ours = outcome("learned", pattern, 0.10, Space::Strict).steady;
        for other in others {
            let theirs = outcome(other, pattern, 0.10, Space::Strict).steady;
            assert!(ours < theirs, "{}: ours {ours}, {other} {theirs}", pattern.name());
        }
    }
    let (ours, greedy) = (outcome("learned", Pattern::Uniform, 0.10, Space::Strict).steady, outcome("none", Pattern::Uniform, 0.10, Space::Strict).steady);
    assert!(ours < greedy * 1.01, "uniform: ours {ours}, greedy {greedy}");
}

#[test]
fn the_oracle_gains_from_what_it_knows_and_tables_stay_within_sixteen_bytes() {
    let pattern = Pattern::Zipf { theta: 0.99 };
    // Fewer streams than it would like: with 64, most of this small pool would be open segments.
    let (oracle, apart) = (outcome("oracle/16", pattern, 0.10, Space::Share), outcome("separate", pattern, 0.10, Space::Share));
    assert!(oracle.steady < apart.steady, "{} {}", oracle.steady, apart.steady);
    let ours = outcome("learned", pattern, 0.10, Space::Strict);
    assert!(ours.bytes_per_block <= 16.0, "{}", ours.bytes_per_block);
    // SFS keeps two bytes more for each block, and 16 for each segment of 64.
    let sfs = outcome("sfs", pattern, 0.10, Space::Strict);
    assert!((sfs.bytes_per_block - ours.bytes_per_block - 2.0 - 16.0 / 64.0 / 0.9).abs() < 0.01, "{} {}", sfs.bytes_per_block, ours.bytes_per_block);
    let sum: f64 = ours.victims.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9 && ours.emptiness.len() == PARTS);
}

/// What died in open segments was counted as garbage once: with 64 of them that was more than the spare space, and future knowledge looked half as good as it
/// is (2.67 here; published 2.292, SepBIT's simulator with its FK placement, 64 classes, 15 %).
#[test]
fn future_knowledge_meets_the_published_figure() {
    let blocks = 1 << 18;
    let shape = Shape { blocks, live_blocks: blocks, segment_blocks: 512, header_blocks: 0, spare: 0.15, space: Space::Share };
    let plan = Plan { shape, seed: 1, window: u64::MAX, steady_after: u64::from(blocks) * 2, idle_free: 0 };
    let load = || fill(blocks).chain(Workload::from(Pattern::Uniform).stream(blocks, 4).take(blocks as usize * 3));
    let found = run(Policy::of(PlacementKind::Oracle), &plan, load, &mut |_| true).expect("a run").steady;
    assert!((found / 2.292 - 1.0).abs() < 0.01, "{found}");
}

#[test]
fn a_run_can_be_stopped_and_names_lead_back() {
    let shape = Shape { blocks: BLOCKS, live_blocks: BLOCKS, segment_blocks: 64, header_blocks: 0, spare: 0.2, space: Space::Strict };
    let plan = Plan { shape, seed: 1, window: 1000, steady_after: 0, idle_free: 0 };
    let load = || Workload::from(Pattern::Uniform).stream(BLOCKS, 4);
    let stopped = run(Policy::of(PlacementKind::Mixed), &plan, load, &mut |done| done < 3 << 20);
    assert_eq!(stopped.expect_err("endless"), "stopped");
    for kind in PlacementKind::ALL {
        let policy = Policy::of(kind);
        assert_eq!(Policy::from_name(&policy.name()), Ok(policy));
    }
    assert!(Policy::from_name("best").is_err() && Policy::from_name("none+best").is_err() && Policy::from_name("none/65").is_err());
}

#[test]
fn the_steady_state_has_counts_of_its_own() {
    let shape = Shape { blocks: BLOCKS, live_blocks: BLOCKS, segment_blocks: 64, header_blocks: 0, spare: 0.2, space: Space::Strict };
    let passes = u64::from(BLOCKS);
    // At random, then in sequence: after a pass of that nearly all victims are empty, and hardly anybody waits.
    let plan = Plan { shape, seed: 1, window: u64::MAX, steady_after: 5 * passes, idle_free: 0 };
    let random = || Workload::from(Pattern::Uniform).stream(BLOCKS, 4).take(BLOCKS as usize * 2);
    let load = || fill(BLOCKS).chain(random()).chain((0..BLOCKS * 4).map(|at| Operation::write(at % BLOCKS)));
    let found = run(Policy::of(PlacementKind::Mixed), &plan, load, &mut |_| true).expect("a run");
    assert_eq!((found.counts.written, found.steady_counts.written), (7 * passes, 2 * passes));
    let (steady, whole) = (found.steady_counts, found.counts);
    assert!(steady.longest_wait < whole.longest_wait && steady.moved < whole.moved / 100, "{steady:?} {whole:?}");
}
