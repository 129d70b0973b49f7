use crate::shrink::shrink;
use crate::{Canary, LeftOut, RunOptions, run_seed, run_without};
use windrow_engine::InjectedBug;

const QUICK: RunOptions = RunOptions {
    block_operations: 1_500,
    cut_at: None,
    canary: Canary::None,
    beyond: false,
    story: false,
};

#[test]
fn a_batch_of_seeds_keeps_every_promise() {
    let failed: Vec<String> = (0..40)
        .map(|seed| run_seed(seed, &QUICK))
        .filter_map(|run| {
            run.violation
                .map(|violation| format!("seed {}: {violation}", run.seed))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// If the power goes at the loss of a journal device, the rest of the cycle must be made up for:
/// the run does as many operations as requested.
#[test]
fn every_run_does_all_that_it_was_asked_for() {
    let short = (50..70)
        .map(|seed| run_seed(seed, &QUICK))
        .find(|run| run.block_operations < QUICK.block_operations);
    assert_eq!(short.map(|run| (run.seed, run.block_operations)), None);
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 100..104 {
        let (first, second) = (run_seed(seed, &QUICK), run_seed(seed, &QUICK));
        assert_eq!(
            (first.trace_hash, first.virtual_ns, first.violation),
            (second.trace_hash, second.virtual_ns, second.violation)
        );
    }
    assert_ne!(
        run_seed(100, &QUICK).trace_hash,
        run_seed(101, &QUICK).trace_hash
    );
}

/// A failure of thousands of steps is useless: unneeded steps are left out, and the rest fails
/// again when it is repeated.
#[test]
fn a_failing_run_is_made_short() {
    let options = RunOptions {
        canary: Canary::InEngine(InjectedBug::HollowRebuild),
        ..QUICK
    };
    let failed = (0..40)
        .map(|seed| run_seed(seed, &options))
        .find(|outcome| outcome.violation.is_some())
        .expect("one that fails");
    let short = shrink(failed.seed, &options, &failed);
    let broken =
        |outcome: &crate::Outcome| outcome.violation.as_ref().map(|violation| violation.broken);
    assert_eq!(broken(&short.outcome), broken(&failed));
    assert!(
        short.outcome.script.len() * 4 < failed.steps as usize,
        "{} lines of {} steps: {:?}",
        short.outcome.script.len(),
        failed.steps,
        short.outcome.script
    );
    let again = RunOptions {
        cut_at: Some(short.cut_at),
        ..options
    };
    let repeated = run_without(
        failed.seed,
        &again,
        &LeftOut::parse(&short.left_out.to_string()).expect("as it is shown"),
    );
    assert_eq!(
        (repeated.trace_hash, broken(&repeated)),
        (short.outcome.trace_hash, broken(&failed))
    );
    // Leaving out steps breaks nothing by itself. (The canary may find something to break at the
    // end: a member whose rebuild is slow.)
    assert_eq!(
        run_without(failed.seed, &QUICK, &LeftOut::default().and(0..u64::MAX)).violation,
        None
    );
}

/// A scrub at its end that waits for repairs queued by reads, and for a checkpoint, must not loop
/// in one step: the engine would answer nothing.
#[test]
fn a_scrub_that_waits_for_other_repairs_does_not_block_the_engine() {
    assert_eq!(run_seed(9_850_213, &RunOptions::default()).violation, None);
}

/// A read-only start accepts LSNs that a fence has skipped; the salvage in a copy must not be
/// expected to have them.
#[test]
fn a_salvage_after_a_read_only_start_need_not_have_unassigned_lsns() {
    assert_eq!(run_seed(9_930_838, &RunOptions::default()).violation, None);
}

/// True if one of the seeds fails with the canary and passes without it.
fn is_caught(canary: Canary, seeds: std::ops::Range<u64>, options: RunOptions) -> bool {
    let fails = |seed, canary| {
        run_seed(seed, &RunOptions { canary, ..options })
            .violation
            .is_some()
    };
    seeds
        .into_iter()
        .any(|seed| fails(seed, canary) && !fails(seed, Canary::None))
}

#[test]
fn a_dropped_member_flush_is_noticed() {
    assert!(is_caught(Canary::DroppedFlush, 0..20, QUICK));
}

#[test]
fn a_discard_before_the_flush_that_freed_it_is_noticed() {
    assert!(is_caught(
        Canary::DiscardBeforeFlush,
        0..60,
        RunOptions {
            block_operations: 6_000,
            ..QUICK
        }
    ));
}

#[test]
fn segments_used_again_before_the_flush_that_freed_them_are_noticed() {
    assert!(is_caught(
        Canary::InEngine(InjectedBug::EarlyReuse),
        0..60,
        RunOptions {
            block_operations: 6_000,
            ..QUICK
        }
    ));
}

#[test]
fn a_rebuild_that_leaves_a_column_out_is_noticed() {
    assert!(is_caught(
        Canary::InEngine(InjectedBug::HollowRebuild),
        0..40,
        QUICK
    ));
}

#[test]
fn chunks_of_the_journal_that_are_used_again_early_are_noticed() {
    assert!(is_caught(
        Canary::InEngine(InjectedBug::EarlyChunk),
        0..60,
        QUICK
    ));
}

#[test]
fn pages_of_the_map_that_keep_their_memory_are_noticed() {
    assert!(is_caught(
        Canary::InEngine(InjectedBug::KeptPages),
        0..20,
        QUICK
    ));
}

/// Full pools with spread maps must be drawn: they find a reserve that is half of what two
/// checkpoints need.
#[test]
fn a_reserve_that_checkpoints_outgrow_is_noticed() {
    assert!(is_caught(
        Canary::InEngine(InjectedBug::ShortReserve),
        20_000_042..20_000_048,
        RunOptions::default()
    ));
}

#[test]
fn a_member_that_is_said_to_be_at_rest_too_early_is_noticed() {
    assert!(is_caught(
        Canary::InEngine(InjectedBug::EarlySettle),
        0..60,
        QUICK
    ));
}

#[test]
fn a_pool_that_waits_for_a_member_that_was_taken_out_is_noticed() {
    assert!(is_caught(
        Canary::InEngine(InjectedBug::KeptWaiting),
        0..60,
        QUICK
    ));
}

#[test]
fn a_device_that_replaces_a_member_before_it_is_a_copy_is_noticed() {
    assert!(is_caught(
        Canary::InEngine(InjectedBug::EarlySwitch),
        0..60,
        QUICK
    ));
}

#[test]
fn beyond_redundancy_a_batch_of_seeds_gives_right_bytes_or_errors() {
    let options = RunOptions {
        beyond: true,
        ..QUICK
    };
    let runs: Vec<_> = (0..100).map(|seed| run_seed(seed, &options)).collect();
    let failed: Vec<String> = runs
        .iter()
        .filter_map(|run| {
            run.violation
                .as_ref()
                .map(|violation| format!("seed {}: {violation}", run.seed))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let (started, refused, lost) = runs
        .iter()
        .map(|run| run.beyond)
        .fold((0, 0, 0), |sum, run| {
            (sum.0 + run.started, sum.1 + run.refused, sum.2 + run.lost)
        });
    assert!(
        started > 5 && refused > 5 && lost > 0,
        "too tame: {started} starts, {refused} refusals, {lost} blocks lost"
    );
}

#[test]
fn the_power_may_go_at_any_moment_of_a_short_run() {
    let (mut images, mut with_faults, mut again) = (0, 0, 0);
    for seed in 0..4 {
        let tried = crate::exhaustive::run(seed, 6, Canary::None)
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert!(
            tried.cuts >= tried.images && tried.starts >= tried.images,
            "seed {seed}: an image was not started: {tried:?}"
        );
        assert_eq!(
            Ok(tried),
            crate::exhaustive::run(seed, 6, Canary::None),
            "seed {seed} gave other images the second time"
        );
        (images, with_faults, again) = (
            images + tried.images,
            with_faults + tried.with_faults,
            again + tried.again,
        );
    }
    assert!(
        images > 200 && with_faults > 200 && again > 200,
        "{images} images, {with_faults} starts with faults, {again} repeated are too few"
    );
}

/// Repeated images are started once: LSNs that became durable since must be compared with the
/// result of that start.
#[test]
fn the_power_cuts_of_a_short_run_find_dropped_flushes() {
    let found: Vec<_> = (0..4)
        .filter_map(|seed| crate::exhaustive::run(seed, 6, Canary::DroppedFlush).err())
        .collect();
    assert!(
        found.len() >= 3,
        "dropped flushes were noticed {} times: {found:?}",
        found.len()
    );
    assert!(
        found
            .iter()
            .any(|violation| violation.broken == crate::Broken::Durability),
        "{found:?}"
    );
}
