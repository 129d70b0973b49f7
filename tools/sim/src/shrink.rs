//! Shrinks a failing run.
//!
//! 1. A binary search finds the smallest number of block operations with which it still fails.
//! 2. Ever smaller pieces of its steps (`run/steps.rs`) are left out, halves first and single ones
//!    last. Pieces that the same violation does not need stay out (delta debugging: Zeller and
//!    Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
//! 3. The rest is run once more with its script and its story.
//!
//! Failures are not monotonic, neither in operations nor in steps, so the result is a short failing
//! run, not always the shortest.

use crate::run::{LeftOut, Outcome, RunOptions, run_seed, run_without};
use crate::violation::Broken;

/// Limit of runs for leaving out steps.
const RUNS_MAX: u32 = 500;

/// A shrunk failing run.
#[derive(Clone, Debug)]
pub struct Short {
    /// Number of block operations after which its workload stops.
    pub cut_at: u64,
    /// Steps left out.
    pub left_out: LeftOut,
    /// Its outcome, with script and story.
    pub outcome: Outcome,
}

/// Searches for a short run with which the seed fails in the same way.
pub fn shrink(seed: u64, options: &RunOptions, failed: &Outcome) -> Short {
    let broken = failed.violation.as_ref().map(|violation| violation.broken);
    let cut_at = fewest_operations(seed, options, failed);
    let options = RunOptions {
        cut_at: Some(cut_at),
        story: false,
        ..*options
    };
    let left_out = leave_out(seed, &options, broken);
    let outcome = run_without(
        seed,
        &RunOptions {
            story: true,
            ..options
        },
        &left_out,
    );
    Short {
        cut_at,
        left_out,
        outcome,
    }
}

/// Smallest failing number of operations; all of them if no shortened run fails.
fn fewest_operations(seed: u64, options: &RunOptions, failed: &Outcome) -> u64 {
    let broken = failed.violation.as_ref().map(|violation| violation.broken);
    let fails = |cut_at: u64| {
        breaks(
            &run_seed(
                seed,
                &RunOptions {
                    cut_at: Some(cut_at),
                    story: false,
                    ..*options
                },
            ),
            broken,
        )
    };
    let (mut low, mut high) = (0, failed.block_operations);
    while low < high {
        let middle = low + (high - low) / 2;
        if fails(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if fails(high) {
        high
    } else {
        options.cut_at.unwrap_or(u64::MAX)
    }
}

fn leave_out(seed: u64, options: &RunOptions, broken: Option<Broken>) -> LeftOut {
    let mut left_out = LeftOut::default();
    let (mut steps, mut runs) = (run_seed(seed, options).steps, 0);
    let mut piece = steps.next_power_of_two() / 2;
    while piece > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < steps && runs < RUNS_MAX {
            let range = at..(at + piece).min(steps);
            at = range.end;
            if left_out.covers(&range) {
                continue;
            }
            let more = left_out.and(range);
            let outcome = run_without(seed, options, &more);
            runs += 1;
            if breaks(&outcome, broken) {
                (left_out, steps, shorter) = (more, outcome.steps, true);
            }
        }
        // Without one of them another one may not be needed either.
        if piece > 1 || !shorter || runs >= RUNS_MAX {
            piece /= 2;
        }
    }
    left_out
}

fn breaks(outcome: &Outcome, broken: Option<Broken>) -> bool {
    outcome
        .violation
        .as_ref()
        .is_some_and(|violation| Some(violation.broken) == broken)
}
