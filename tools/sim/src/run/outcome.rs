//! How to run a seed, and what it gave.

use super::Tries;
use crate::violation::Violation;
use windrow_engine::InjectedFault;

/// How to run a seed.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Block operations that the scenario is drawn for.
    pub block_operations: u64,
    /// Stop the workload after so many block operations (shrinking).
    pub cut_at: Option<u64>,
    /// A fault planted on purpose.
    pub canary: Injected,
    /// Go beyond redundancy.
    pub beyond: bool,
    /// Remember what happened in words.
    pub story: bool,
}

/// Which canary to plant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Injected {
    /// None.
    #[default]
    None,
    /// Member flushes are dropped.
    DroppedFlush,
    /// Discards overtake the flush before them.
    DiscardBeforeFlush,
    /// A bug of the engine.
    InEngine(InjectedFault),
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            block_operations: 10_000,
            cut_at: None,
            canary: Injected::None,
            beyond: false,
            story: false,
        }
    }
}

/// What came of going beyond redundancy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beyond {
    /// Starts that worked.
    pub started: u64,
    /// Starts that were refused, also with force.
    pub refused: u64,
    /// Blocks that could not be read.
    pub lost: u64,
    /// Batches that scrubs called damaged.
    pub damaged_batches: u64,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Hash of everything that happened.
    pub trace_hash: u64,
    /// Block operations done.
    pub block_operations: u64,
    /// Power cuts survived.
    pub power_cuts: u64,
    /// Checkpoints and cleaned segments, over all sessions.
    pub checkpoints: u64,
    /// Cleaned segments.
    pub segments_cleaned: u64,
    /// Blocks that went to further streams of a policy.
    pub further_blocks: u64,
    /// Stored bytes of moved blocks that became zstd.
    pub repacked_bytes: u64,
    /// Starts that took from the journal what the log did not have, while batches with some of it
    /// lay behind the gap.
    pub gaps_readmitted: u64,
    /// Requests refused for want of space.
    pub refused: u64,
    /// Blocks of members that the scrubs at the end found wrong.
    pub wrong_blocks: u64,
    /// Members that came back and were rebuilt.
    pub rebuilt: u64,
    /// Faults of members.
    pub faults: u64,
    /// Members replaced by new devices.
    pub replaced: u64,
    /// Members that left and came back, or were exchanged, while the pool was in use.
    pub exchanged: u64,
    /// Spares that took the place of a member that was missed.
    pub spares_taken: u64,
    /// Devices that took the place of a member in service when they were copies of it.
    pub renewed: u64,
    /// Growths that came into force while the pool was in use.
    pub grown: u64,
    /// Members that left for good, and removals that were refused.
    pub removed: u64,
    /// See [`Outcome::removed`].
    pub removals_refused: u64,
    /// Starts refused for want of a journal device, and journals given up.
    pub devices_missed: u64,
    /// See [`Outcome::devices_missed`].
    pub journals_given_up: u64,
    /// Offline checks.
    pub checks: u64,
    /// Maps that were rebuilt from batches alone, in copies.
    pub maps_rebuilt: u64,
    /// Starts in copies, just after a member had failed, with that one and without others.
    pub starts_after_losses: u64,
    /// Starts in copies while all chunks of the journal were in use.
    pub starts_of_full_rings: u64,
    /// Segments cleaned in a pool whose map is spread; `None`: its volumes are dense.
    pub cleaned_spread: Option<u64>,
    /// Operations that may be refused.
    pub tries: Tries,
    /// What came of going beyond redundancy.
    pub beyond: Beyond,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// The broken promise, if any.
    pub violation: Option<Violation>,
    /// Steps drawn.
    pub steps: u64,
    /// What was done, if a story was asked for: the steps, starts and power cuts.
    pub script: Vec<String>,
    /// The story, if asked for: every command and every answer as well.
    pub story: Vec<String>,
}
