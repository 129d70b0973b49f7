//! Finds a short run that still fails.

use crate::run::{Outcome, RunOptions, run_seed};

/// Searches for the smallest number of block operations with which the seed fails, and runs it again with its story.
///
/// A binary search: failures are not monotonous in the number of operations, so the result is a short failing run, not always the shortest.
pub fn shrink(seed: u64, options: &RunOptions, failed: &Outcome) -> Outcome {
    let with = |cut_at: u64, story: bool| run_seed(seed, &RunOptions { cut_at: Some(cut_at), story, ..*options });
    let (mut low, mut high) = (0, failed.block_operations);
    while low < high {
        let middle = low + (high - low) / 2;
        if with(middle, false).violation.is_some() {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let shortest = with(high, true);
    if shortest.violation.is_some() { shortest } else { run_seed(seed, &RunOptions { story: true, ..*options }) }
}
