//! Power cuts while all chunks of the journal are in use.
//!
//! A chunk that is reused before the log has its content is missed after a power cut, and only
//! until the log has it. Random cuts hardly ever find that (none of 150 seeds with the injected
//! bug). So while no chunk is free the power occasionally goes in copies of the world, in which no
//! unflushed write survives, and everything durable must be present. The run itself continues
//! unaffected.

use super::Run;
use crate::violation::{Violation, ensure};
use windrow_engine::OpenOptions;
use windrow_random::Rng;

/// Limit of starts in copies, and rate (in thousandths of turns) of looking for a reason.
const STARTS_MAX: u64 = 12;
const LOOKS_PER_MILLE: u64 = 200;

/// Counts of the attempts.
pub(super) struct FullRings {
    rng: Rng,
    /// Number of starts in copies.
    pub(super) starts: u64,
}

impl FullRings {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::stream(seed, "full rings"),
            starts: 0,
        }
    }
}

impl Run {
    /// Tries a power cut in a copy after a turn.
    pub(super) fn check_full_ring(&mut self) -> Result<(), Violation> {
        let is_due = self.scenario.journal.is_some()
            && self.full_rings.starts < STARTS_MAX
            && self.full_rings.rng.chance(LOOKS_PER_MILLE);
        if !is_due
            || self.goes_beyond
            || !self.world.failing_members.is_empty()
            || self.is_switching_devices()
            || !self.start_works()
        {
            return Ok(());
        }
        let journal = self.world.status().journal;
        if journal.chunks == 0 || journal.chunks_used < journal.chunks {
            return Ok(());
        }
        self.full_rings.starts += 1;
        let options = OpenOptions {
            host: self.host,
            ..self.options()
        };
        let started = self.world.start_in_copy(&options, (None, false), &[])?;
        ensure!(
            started,
            Open,
            "the journal is full, the power goes, and the pool does not start"
        );
        Ok(())
    }
}
