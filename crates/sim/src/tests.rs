use crate::{Planted, RunOptions, run_seed};

const QUICK: RunOptions = RunOptions { block_operations: 1_500, cut_at: None, canary: Planted::None, story: false };

#[test]
fn a_batch_of_seeds_keeps_every_promise() {
    for seed in 0..24 {
        let outcome = run_seed(seed, &QUICK);
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.map(|v| v.to_string()).unwrap_or_default());
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 100..104 {
        let (first, second) = (run_seed(seed, &QUICK), run_seed(seed, &QUICK));
        assert_eq!((first.trace_hash, first.virtual_ns, first.violation), (second.trace_hash, second.virtual_ns, second.violation));
    }
    assert_ne!(run_seed(100, &QUICK).trace_hash, run_seed(101, &QUICK).trace_hash);
}

/// The number of seeds until a canary is caught.
fn caught_within(canary: Planted, seeds: u64) -> bool {
    (0..seeds).any(|seed| run_seed(seed, &RunOptions { canary, ..QUICK }).violation.is_some())
}

#[test]
fn a_dropped_member_flush_is_noticed() {
    assert!(caught_within(Planted::DroppedFlush, 20));
}

#[test]
fn a_discard_before_the_flush_that_freed_it_is_noticed() {
    assert!(caught_within(Planted::DiscardBeforeFlush, 40));
}
