//! The loss of a member is recorded before anything is acknowledged that depends on it.
//!
//! When a member fails in service, or is taken out while it hangs, and all others are without
//! faults, the power goes in copies of the world. The moments are right after the loss, then
//! whenever more has become durable. In the copy no unflushed write survives, and the failed member
//! is back with its content at the failure. As many others as the redundancy covers are absent; in
//! some copies its commands in flight have taken effect. Content written after the loss is
//! unreadable from these members. So either they record the loss, and a start is refused, or
//! everything durable must be present. The run itself continues unaffected.

use super::Run;
use crate::model::Asked;
use crate::scenario::Fault;
use crate::violation::Violation;
use windrow_engine::OpenOptions;
use windrow_random::Rng;
use windrow_types::{MemberId, VolumeId};

/// Limit of copies of one moment, each without other members.
const COPIES_MAX: usize = 3;
/// Limit of moments with a new durable LSN, and of turns.
const MOMENTS_MAX: u32 = 6;
const TURNS_MAX: u32 = 200;

/// State of the last loss.
pub(super) struct Losses {
    rng: Rng,
    /// Flushes are issued continuously while a member is about to fail. (Not in all runs: they
    /// change the runs.)
    flushes: bool,
    watched: Option<Watched>,
    /// Number of starts in copies.
    pub(super) starts: u64,
}

/// A member that is to fail, or has failed.
#[derive(Clone, Copy, Debug)]
struct Watched {
    member: MemberId,
    /// Durable LSN at the last check.
    promised: u64,
    /// Remaining moments and turns once it has failed.
    moments: u32,
    turns: u32,
}

impl Losses {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::stream(seed, "losses of members"),
            flushes: Rng::stream(seed, "flushes before a loss").chance(750),
            watched: None,
            starts: 0,
        }
    }

    /// The power goes.
    pub(super) fn leave(&mut self) {
        self.watched = None;
    }
}

impl Run {
    /// Watches a member that is to fail with this fault.
    pub(super) fn watch_loss(&mut self, member: MemberId, fault: Fault) {
        if matches!(fault, Fault::Death | Fault::WriteError | Fault::FlushError) {
            self.watch_leave(member);
        }
    }

    /// Watches a member that is to leave service.
    pub(super) fn watch_leave(&mut self, member: MemberId) {
        if self.data.contains(&member) && self.is_only_loss(member) {
            self.losses.watched = Some(Watched {
                member,
                promised: 0,
                moments: MOMENTS_MAX,
                turns: TURNS_MAX,
            });
        }
    }

    /// True if all others are without faults, and nothing on this one is silently wrong: the absent
    /// members then do not exceed the redundancy for earlier content.
    fn is_only_loss(&self, member: MemberId) -> bool {
        self.failing_data() == 1 && self.curable.contains(&member) && self.data.len() > 2
    }

    /// Issues flushes so that some are in flight when it fails.
    pub(super) fn flush_before_loss(&mut self) {
        if !self.losses.flushes
            || self.losses.watched.is_none()
            || self.world.unanswered() >= 64
            || !self.losses.rng.chance(400)
        {
            return;
        }
        let volumes: Vec<VolumeId> = self.world.model.volumes().keys().copied().collect();
        for volume in volumes {
            if self.world.model.heeds_flushes(volume) {
                self.world.submit(volume, Asked::Flush);
            }
        }
    }

    /// Tries a power cut in a copy after a turn.
    pub(super) fn check_loss(&mut self) -> Result<(), Violation> {
        let Some(mut watched) = self.losses.watched else {
            return Ok(());
        };
        let promised = self.world.model.promised();
        if self.world.is_whole(watched.member) {
            self.losses.watched = Some(Watched {
                promised,
                ..watched
            });
            return Ok(());
        }
        let is_due = watched.turns == TURNS_MAX || promised > watched.promised;
        watched.turns -= 1;
        if is_due {
            (watched.promised, watched.moments) = (promised, watched.moments - 1);
        }
        self.losses.watched = (watched.turns > 0 && watched.moments > 0).then_some(watched);
        // (Without journal devices there is no start anyway.)
        if !is_due
            || !self.is_only_loss(watched.member)
            || self.is_switching_devices()
            || !self.start_works()
        {
            return Ok(());
        }
        let failed = watched.member;
        let mut others: Vec<MemberId> = self
            .data
            .iter()
            .copied()
            .filter(|member| *member != failed)
            .collect();
        self.losses.rng.shuffle(&mut others);
        let count = self.scenario.redundancy.tolerance().min(others.len() - 1);
        for copy in 0..others.len().min(COPIES_MAX) {
            others.rotate_left(1);
            let absent = &others[..count];
            self.losses.starts += 1;
            let options = OpenOptions {
                host: self.host,
                ..self.options()
            };
            for force in [false, true] {
                let options = OpenOptions {
                    force,
                    ..options.clone()
                };
                let started = self
                    .world
                    .start_in_copy(&options, (Some(failed), copy % 2 == 1), absent)
                    .map_err(|violation| {
                        let text = format!(
                            "member {failed} failed and is back, members {absent:?} are absent: {}",
                            violation.text
                        );
                        Violation::new(violation.broken, text)
                    })?;
                if started {
                    break;
                }
            }
        }
        Ok(())
    }
}
