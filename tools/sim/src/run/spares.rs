//! Hot-spare take-over: a spare automatically replaces a member that failed in service or did not
//! return, as the host's hot-spare manager does it.
//!
//! 1. A spare is added, unless one waits already.
//! 2. Nothing is in flight to the member and to the spare any more.
//! 3. The spare's device gets a label for its new slot, and is moved there.
//! 4. The engine is informed; the slot of the spare is empty from then on.
//!
//! The power may go between any two steps: devices are then identified by their UUIDs.

use super::Run;
use super::devices::newest_on;
use crate::members::{Ailment, VirtualMember};
use crate::violation::{Broken, Violation, ensure};
use windrow_engine::{ControlId, MemberChange};
use windrow_format::superblock::{LABEL_BYTES, LABEL_OFFSET, Label};
use windrow_io::MemberIo;
use windrow_random::Rng;
use windrow_types::{MemberId, Uuid};

/// Awaited event.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Answer that the new device is a spare.
    Adding(ControlId),
    /// Answer that nothing is in flight to the member.
    Settling(ControlId),
    /// Answer that nothing is in flight to the spare.
    SettlingSpare(ControlId),
    /// Answer that the spare is in the member's slot.
    ComingIn(ControlId, Uuid),
}

/// A take-over in progress.
#[derive(Clone, Copy, Debug)]
struct TakeOver {
    member: MemberId,
    spare: MemberId,
    stage: Stage,
}

/// State of take-overs.
#[derive(Debug)]
pub(super) struct Spares {
    rng: Rng,
    /// Rate at which a missing member gets a spare: in thousandths of turns.
    per_mille: u64,
    under_way: Option<TakeOver>,
    /// Number of spares that replaced a member.
    pub(super) taken: u64,
}

impl Spares {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "spares");
        let per_mille = rng.pick(&[0, 5, 50, 500]);
        Self {
            rng,
            per_mille,
            under_way: None,
            taken: 0,
        }
    }
}

impl Run {
    /// True if no other change of members is in progress.
    pub(super) fn members_rest(&self) -> bool {
        self.exchange.is_none() && self.spares.under_way.is_none() && self.shadows_rest()
    }

    /// Occasionally begins a take-over, and continues one in progress.
    pub(super) fn spare_step(&mut self) -> Result<(), Violation> {
        let Some(TakeOver {
            member,
            spare,
            stage,
        }) = self.spares.under_way
        else {
            let due = !self.goes_beyond
                && !self.world.failing_members.is_empty()
                && self.spares.rng.chance(self.spares.per_mille);
            if due
                && self.exchange.is_none()
                && self.shadows_rest()
                && self.growth.is_none()
                && self.leaving().is_none()
            {
                self.begin_take_over()?;
            }
            return Ok(());
        };
        let id = match stage {
            Stage::Adding(id)
            | Stage::Settling(id)
            | Stage::SettlingSpare(id)
            | Stage::ComingIn(id, _) => id,
        };
        let Some(answer) = self.world.take_answer(id) else {
            return Ok(());
        };
        answer.map_err(|error| {
            Violation::new(
                Broken::Error,
                format!(
                    "spare {spare} does not take the place of member {member}: {stage:?}: {error}"
                ),
            )
        })?;
        let stage = match stage {
            Stage::Adding(_) => {
                Stage::Settling(self.world.member_command(member, MemberChange::Settle))
            }
            Stage::Settling(_) => {
                Stage::SettlingSpare(self.world.member_command(spare, MemberChange::Settle))
            }
            Stage::SettlingSpare(_) => self.put_spare(member, spare)?,
            Stage::ComingIn(..) => {
                self.spares.taken += 1;
                self.spares.under_way = None;
                return Ok(());
            }
        };
        self.spares.under_way = Some(TakeOver {
            member,
            spare,
            stage,
        });
        Ok(())
    }

    /// First missing member, as a host sees it: it failed, or was absent at the start, and is not
    /// leaving.
    fn begin_take_over(&mut self) -> Result<(), Violation> {
        let slots = self.world.status().members;
        let is_missed = |member: &&MemberId| {
            slots
                .get(member.index())
                .is_some_and(|slot| !slot.leaving && ["faulted", "missing"].contains(&slot.state))
        };
        let Some(member) = self
            .world
            .failing_members
            .iter()
            .filter(|member| self.data.contains(member))
            .find(is_missed)
            .copied()
        else {
            return Ok(());
        };
        if !self.is_done(|| format!("a spare takes the place of member {member}")) {
            return Ok(());
        }
        self.world
            .trace
            .tell(|| format!("a spare takes the place of member {member}"));
        let needed = slots[member.index()].needed_bytes;
        let waiting = slots
            .iter()
            .filter(|slot| slot.state == "spare" && !slot.is_shadow && slot.size_bytes >= needed)
            .map(|slot| slot.member);
        let waiting = waiting
            .filter(|spare| self.is_coming(*spare))
            .collect::<Vec<_>>()
            .into_iter()
            .find(|spare| self.has_sound_device(*spare));
        if let Some(spare) = waiting {
            let stage = Stage::Settling(self.world.member_command(member, MemberChange::Settle));
            self.spares.under_way = Some(TakeOver {
                member,
                spare,
                stage,
            });
            return Ok(());
        }
        let is_free = |slot: &MemberId| {
            self.is_coming(*slot)
                && slots
                    .get(slot.index())
                    .is_none_or(|slot| slot.state == "removed" && slot.unanswered == 0)
        };
        let Some(spare) = (0..64).map(MemberId).find(is_free) else {
            return Ok(());
        };
        let size = self.world.members.member(member).size();
        self.world
            .put_device(spare, VirtualMember::new(size, self.scenario.discard_fill));
        let uuid = Uuid::from_random(self.spares.rng.bytes16());
        self.label(spare, uuid)?;
        let stage = Stage::Adding(self.world.member_command(
            spare,
            MemberChange::AddSpare {
                uuid,
                size_bytes: size,
            },
        ));
        self.spares.under_way = Some(TakeOver {
            member,
            spare,
            stage,
        });
        Ok(())
    }

    pub(super) fn has_sound_device(&mut self, member: MemberId) -> bool {
        self.world.members.is_present(member)
            && *self.world.members.ailment_mut(member) == Ailment::default()
    }

    /// Moves the spare's device to the member's slot; its own slot becomes empty.
    fn put_spare(&mut self, member: MemberId, spare: MemberId) -> Result<Stage, Violation> {
        self.world.check_settled(spare)?;
        let slot = self.world.status().members[spare.index()].clone();
        ensure!(
            slot.state == "spare",
            Protocol,
            "{spare} was a spare, and is {}",
            slot.state
        );
        let mut device = self.take_device(spare);
        // A host empties a spare that holds superblocks: it was to be a member before, in a
        // reverted growth.
        if newest_on(&device).is_some() {
            device = device.successor();
        }
        self.world.exchange_device(member, device)?;
        self.curable.insert(member);
        self.label(member, slot.uuid)?;
        let change = MemberChange::Exchange {
            uuid: slot.uuid,
            size_bytes: slot.size_bytes,
            power_safe: false,
            spare: Some(spare),
        };
        Ok(Stage::ComingIn(
            self.world.member_command(member, change),
            slot.uuid,
        ))
    }

    /// Takes the device out of a slot.
    pub(super) fn take_device(&mut self, member: MemberId) -> VirtualMember {
        let nothing = self.world.members.member(member).successor();
        let device = self.world.members.exchange(member, nothing);
        self.world.members.ailment_mut(member).gone = true;
        device
    }

    /// The power has gone: a device that no generation has in the member's slot is still a spare,
    /// identified by its UUID.
    pub(super) fn leave_take_over(&mut self) {
        let Some(TakeOver {
            member,
            spare,
            stage: Stage::ComingIn(_, uuid),
        }) = self.spares.under_way.take()
        else {
            return;
        };
        let ruling = self.ruling_without(None);
        if ruling.is_some_and(|ruling| {
            ruling
                .members
                .get(member.index())
                .is_some_and(|record| record.uuid == uuid)
        }) {
            return;
        }
        let device = self.take_device(member);
        let mut bytes = vec![0; LABEL_BYTES];
        device.read(LABEL_OFFSET, &mut bytes);
        // A fault may have struck it in the member's slot (seed 10314241): a spare without a label
        // is not found.
        if Label::decode(&bytes).is_err() {
            self.world.trace.tell(|| {
                format!(
                    "the device that was to take the place of member {member} has lost its label"
                )
            });
            return;
        }
        self.world.trace.tell(|| {
            format!(
                "the device that was to take the place of member {member} is spare {spare} still"
            )
        });
        self.world.members.exchange(spare, device);
    }

    /// Continues until no take-over is in progress.
    pub(super) fn end_take_over(&mut self) -> Result<(), Violation> {
        while self.spares.under_way.is_some() {
            self.run_while("a take-over", |world| world.unanswered_controls() > 0)?;
            self.spare_step()?;
        }
        Ok(())
    }
}
