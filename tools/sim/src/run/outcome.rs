//! Options of a seed's run, and its outcome.

use super::Tries;
use crate::violation::Violation;
use windrow_engine::InjectedBug;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Block operations that the scenario is drawn for.
    pub block_operations: u64,
    /// Stop the workload after this number of block operations (shrinking).
    pub cut_at: Option<u64>,
    /// Injected fault.
    pub canary: Canary,
    /// Exceed the redundancy.
    pub beyond: bool,
    /// Record a story.
    pub story: bool,
}

/// Canary to inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Canary {
    /// None.
    #[default]
    None,
    /// Member flushes are dropped.
    DroppedFlush,
    /// Discards overtake the preceding flush.
    DiscardBeforeFlush,
    /// A bug of the engine.
    InEngine(InjectedBug),
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            block_operations: 10_000,
            cut_at: None,
            canary: Canary::None,
            beyond: false,
            story: false,
        }
    }
}

/// Results of exceeding the redundancy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beyond {
    /// Number of successful starts.
    pub started: u64,
    /// Number of refused starts, including forced ones.
    pub refused: u64,
    /// Number of unreadable blocks.
    pub lost: u64,
    /// Number of batches that scrubs called damaged.
    pub damaged_batches: u64,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Hash of all events.
    pub trace_hash: u64,
    /// Number of block operations done.
    pub block_operations: u64,
    /// Number of power cuts survived.
    pub power_cuts: u64,
    /// Number of checkpoints, over all sessions.
    pub checkpoints: u64,
    /// Cleaned segments.
    pub segments_cleaned: u64,
    /// Blocks written to further streams of a policy.
    pub further_blocks: u64,
    /// Stored bytes of moved blocks that became zstd.
    pub repacked_bytes: u64,
    /// Starts that readmitted journal records while batches with some of their LSNs followed the
    /// gap.
    pub gaps_readmitted: u64,
    /// Requests refused because there was no space.
    pub refused: u64,
    /// Blocks that the scrubs at the end found wrong.
    pub wrong_blocks: u64,
    /// Members that returned and were rebuilt.
    pub rebuilt: u64,
    /// Faults of members.
    pub faults: u64,
    /// Members replaced by new devices.
    pub replaced: u64,
    /// Members that left and returned, or were exchanged, while the pool was in use.
    pub exchanged: u64,
    /// Spares that replaced a missing member.
    pub spares_taken: u64,
    /// Devices that replaced a member in service after copying it.
    pub renewed: u64,
    /// Growths activated while the pool was in use.
    pub grown: u64,
    /// Members that left for good.
    pub removed: u64,
    /// See [`Outcome::removed`].
    pub removals_refused: u64,
    /// Starts refused because a journal device was missing.
    pub devices_missed: u64,
    /// See [`Outcome::devices_missed`].
    pub journals_given_up: u64,
    /// Offline checks.
    pub checks: u64,
    /// Maps salvaged from batches alone, in copies.
    pub maps_rebuilt: u64,
    /// Starts in copies, right after a member had failed, with that one and without others.
    pub starts_after_losses: u64,
    /// Starts in copies while all chunks of the journal were in use.
    pub starts_of_full_rings: u64,
    /// Segments cleaned in a pool with a spread map; `None`: its volumes are dense.
    pub cleaned_spread: Option<u64>,
    /// Results of operations that may be refused.
    pub tries: Tries,
    /// Results of exceeding the redundancy.
    pub beyond: Beyond,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// The violation, if any.
    pub violation: Option<Violation>,
    /// Number of steps drawn.
    pub steps: u64,
    /// Script, if a story was requested: the steps, starts and power cuts.
    pub script: Vec<String>,
    /// Story, if requested: every command and every answer as well.
    pub story: Vec<String>,
}
