//! Replacement of a member by a new device, while the pool is not served.

use super::Run;
use crate::members::VirtualMember;
use crate::violation::{Broken, Violation, ensure};
use crate::world::StartFailure;
use windrow_engine::{Engine, OpenError, OpenOptions};
use windrow_io::{BufPool, MemberIo};
use windrow_types::{MemberId, Uuid};

impl Run {
    /// Replaces a member, a faulty one if there is one. Sometimes the power goes in the middle.
    /// True if a read-only start has shown the content.
    pub(super) fn replace_member(&mut self) -> Result<bool, Violation> {
        let Some((member, was_healthy)) = self.replaced() else {
            return Ok(false);
        };
        let device = self.world.members.member(member).successor();
        let ailment = *self.world.members.ailment_mut(member);
        let old = self.world.members.exchange(member, device);
        // It may be the only one that records the loss of a journal device: without it that device
        // is waited for (seed 6002515).
        let works = self.start_works();
        let before = (self.world.failing_members.clone(), self.curable.clone());
        self.note_fault(member, false);
        let force = self.quorum_is_lost();
        let options = OpenOptions {
            host: self.host,
            read_only: false,
            force,
            discard_journal: false,
            limits: self.scenario.limits,
        };
        let cut = self
            .rng
            .chance(300)
            .then(|| self.rng.below(12))
            .filter(|_| works);
        self.world.members.set_countdown(cut);
        let uuid = Uuid::from_random(self.rng.bytes16());
        let result = Engine::replace_member(
            &mut self.world.members,
            &BufPool::new(1 << 20),
            &options,
            member,
            uuid,
        );
        self.world.trace.tell(|| {
            format!(
                "a new device for member {member}, cut after {cut:?}, force {force}: {result:?}"
            )
        });
        if !works {
            ensure!(
                matches!(result, Err(OpenError::JournalMissing { .. })),
                Open,
                "member {member} is replaced without the journal devices: {result:?}"
            );
            self.world.members.set_countdown(None);
            self.world.members.exchange(member, old);
            *self.world.members.ailment_mut(member) = ailment;
            (self.world.failing_members, self.curable) = before;
            return Ok(false);
        }
        // Content of the new device is right as far as it is there: a rebuild completes it.
        self.curable.insert(member);
        self.clean = false;
        if self.world.members.is_cut() {
            self.cut_power();
            return Ok(false);
        }
        self.world.members.set_countdown(None);
        if let Err(error) = result {
            return Err(Violation::new(
                Broken::Open,
                format!("member {member} cannot be replaced: {error}"),
            ));
        }
        self.replaced += 1;
        let plugs_in = was_healthy && self.rng.chance(500);
        if plugs_in {
            self.refuse_old_device(member, old)?;
        }
        Ok(plugs_in)
    }

    /// Member to replace, and whether it was healthy.
    fn replaced(&mut self) -> Option<(MemberId, bool)> {
        let has_place = |member: &MemberId| {
            !self.devices.is_one(*member)
                && !self.is_coming(*member)
                && !self.may_be_leaving(*member)
        };
        let failing_members: Vec<MemberId> = self
            .world
            .failing_members
            .iter()
            .copied()
            .filter(has_place)
            .collect();
        if !failing_members.is_empty() {
            return Some((self.rng.pick(&failing_members), false));
        }
        if self.failing_data() > 0 {
            // The leaving member has faults: it is not replaced, and no other member may be lost
            // with it.
            return None;
        }
        let member = (self.scenario.redundancy.tolerance() > 0).then(|| self.rng.pick(&self.data));
        member
            .filter(|member| !self.may_be_leaving(*member))
            .map(|member| (member, true))
    }

    /// The replaced device is plugged in again: the pool must not recognise it, and treats it as
    /// absent.
    fn refuse_old_device(&mut self, member: MemberId, old: VirtualMember) -> Result<(), Violation> {
        let new = self.world.members.exchange(member, old);
        debug_assert!(self.world.members.is_present(member));
        match self.open_with(true) {
            // It counts as absent, and the rest may be too few.
            Err(StartFailure::Refused(_)) => {}
            Err(failure) => {
                return Err(Violation::new(
                    Broken::Open,
                    format!("read-only start failed: {failure:?}"),
                ));
            }
            Ok(report) => {
                ensure!(
                    !report.notes.is_empty(),
                    Open,
                    "it is not reported that the device of member {member} is not the pool's"
                );
                self.opened(&report)?;
                self.compare()?;
                self.newest_lsn = self.newest_lsn.max(self.world.power_cut());
            }
        }
        self.world.check_untouched()?;
        self.world.members.exchange(member, new);
        Ok(())
    }
}
