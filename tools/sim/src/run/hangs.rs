//! Members that hang when they are taken out of service: writes, flushes and superblocks are at the
//! device, and take effect when it answers again, or never.
//!
//! From the moment a member is taken out nothing waits for it
//! ([`World::leave_behind`](crate::world::World::leave_behind)), nothing acknowledged without it
//! depends on it (`losses.rs`), and its slot stays empty until its last command has ended. Some
//! hang while the pool ends, or are about to become members in a growth.

use super::Run;
use crate::violation::{Broken, Violation};
use windrow_engine::{ControlError, ControlId};
use windrow_random::Rng;
use windrow_types::MemberId;

/// Selection of the leaving members that hang first.
pub(super) struct Hangs {
    rng: Rng,
    /// Rate in thousandths.
    per_mille: u64,
}

impl Hangs {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "members that hang");
        Self {
            per_mille: rng.pick(&[0, 300, 700]),
            rng,
        }
    }

    /// Additional turns until the power goes while the pool ends.
    pub(super) fn turns(&mut self) -> u64 {
        self.rng.pick(&[0, 20, 100, 400])
    }

    /// Number of steps before it is taken out, and nanoseconds that it hangs.
    pub(super) fn draw(&mut self) -> Option<(u32, u64)> {
        self.rng.chance(self.per_mille).then(|| {
            let for_ms = self.rng.pick(&[1, 10, 1_000, 100_000, 3_600_000]);
            (self.rng.pick(&[0, 1, 4, 16, 64]), for_ms * 1_000_000)
        })
    }
}

/// A member to be taken out after a number of steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hanging {
    pub(super) member: MemberId,
    steps: u32,
    /// True if it is a new one in a growth.
    is_new: bool,
    /// Command that takes it out, once it was issued.
    taken_out: Option<ControlId>,
}

impl Run {
    /// Makes a member hang from now on.
    pub(super) fn begin_to_hang(
        &mut self,
        member: MemberId,
        (steps, for_ns): (u32, u64),
    ) -> Hanging {
        self.world.trace.tell(|| format!("member {member} answers nothing for {for_ns} ns, and is taken out after {steps} steps"));
        self.faults += 1;
        self.note_fault(member, true);
        self.world.hang(member, for_ns);
        Hanging {
            member,
            steps,
            is_new: !self.data.contains(&member),
            taken_out: None,
        }
    }

    /// Continues: true until the command that takes it out is answered.
    pub(super) fn hanging_step(&mut self, hanging: &mut Hanging) -> Result<bool, Violation> {
        let member = hanging.member;
        let Some(id) = hanging.taken_out else {
            match hanging.steps.checked_sub(1) {
                Some(steps) => hanging.steps = steps,
                None => hanging.taken_out = Some(self.take_out_hanging(member)),
            }
            return Ok(true);
        };
        match self.world.take_answer(id) {
            None => Ok(true),
            Some(Ok(_) | Err(ControlError::Stopped)) => Ok(false),
            // As a spare it has nothing yet, or the pool could not continue without it at that
            // moment.
            Some(Err(ControlError::Member { .. })) if hanging.is_new => {
                self.world.leave_behind(None);
                (hanging.steps, hanging.taken_out) = (4, None);
                Ok(true)
            }
            Some(Err(error)) => Err(Violation::new(
                Broken::Error,
                format!("member {member}, which hangs, is not taken out: {error}"),
            )),
        }
    }

    /// Occasionally makes a member hang while the pool ends.
    pub(super) fn hang_at_the_end(&mut self) -> Option<Hanging> {
        if self.goes_beyond
            || !self.members_rest()
            || self.growth.is_some()
            || self.leaving().is_some()
            || !self.hangs.rng.chance(300)
        {
            return None;
        }
        let draw = self.hangs.draw()?;
        self.heal();
        let member = self
            .victim()
            .filter(|member| self.world.is_whole(*member))?;
        self.is_done(|| format!("member {member} hangs while the pool ends"))
            .then(|| self.begin_to_hang(member, draw))
    }
}
