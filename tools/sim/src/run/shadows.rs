//! Replacement in service: a new device replaces a member after copying it
//! (docs/internals/replace.md), as a host does it.
//!
//! 1. A spare is added.
//! 2. It becomes the shadow of a member, and is copied to.
//! 3. When it is whole, nothing is in flight to either; occasionally the host cancels.
//! 4. Its device moves to the member's slot.
//! 5. The engine is informed.
//!
//! Meanwhile members fail, leave and return, the new device dies, the replacement is cancelled, and
//! the power goes between any two steps. Devices are then identified by their UUIDs, and the old
//! one stays in use until a generation names the new one.

use super::Run;
use crate::members::VirtualMember;
use crate::violation::{Broken, Violation, ensure};
use windrow_engine::{ControlError, ControlId, MemberChange};
use windrow_random::Rng;
use windrow_types::{MemberId, Uuid};

/// Awaited event.
enum Stage {
    /// Answer that the new device is a spare.
    Adding(ControlId),
    /// Answer that it is a shadow.
    Preparing(ControlId),
    /// Completion of the copy.
    Copying,
    /// Answer that it is no longer a shadow.
    CallingOff(ControlId),
    /// Answer that nothing is in flight to the two.
    Switching(ControlId),
    /// Answer that they stay where they are.
    Thawing(ControlId),
    /// Answer that it is in the member's slot. The old device may still be the current one.
    Switched(ControlId, Box<VirtualMember>),
}

impl Stage {
    fn name(&self) -> &'static str {
        match self {
            Self::Adding(_) => "adding the spare",
            Self::Preparing(_) => "preparing it",
            Self::Copying => "copying",
            Self::CallingOff(_) => "calling it off",
            Self::Switching(_) => "switching",
            Self::Thawing(_) => "giving the switch up",
            Self::Switched(..) => "switched",
        }
    }
}

/// A replacement in progress.
struct Shadowing {
    member: MemberId,
    spare: MemberId,
    uuid: Uuid,
    stage: Stage,
}

/// State of replacements in service.
pub(super) struct Shadows {
    rng: Rng,
    /// Rate in thousandths of turns.
    per_mille: u64,
    under_way: Option<Shadowing>,
    is_undecided: bool,
    /// Number of devices that replaced a member.
    pub(super) taken: u64,
}

impl Shadows {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "shadows");
        let per_mille = rng.pick(&[0, 0, 5, 50]);
        Self {
            rng,
            per_mille,
            under_way: None,
            is_undecided: false,
            taken: 0,
        }
    }
}

impl Run {
    /// True if at most a copy is in progress, during which other members may leave and return.
    pub(super) fn shadows_rest(&self) -> bool {
        self.shadows
            .under_way
            .as_ref()
            .is_none_or(|shadowing| matches!(shadowing.stage, Stage::Copying))
    }

    /// True while the generation that names the new device may not be written. After a power cut
    /// either device may be the member, and a copy of the world has only the new one (seed
    /// 37001041).
    pub(super) fn is_switching_devices(&self) -> bool {
        self.shadows
            .under_way
            .as_ref()
            .is_some_and(|shadowing| matches!(shadowing.stage, Stage::Switched(..)))
    }

    /// True if a member is being replaced.
    pub(super) fn has_shadow(&self) -> bool {
        self.shadows.under_way.is_some()
    }

    /// Occasionally begins a replacement, and continues one in progress.
    pub(super) fn shadow_step(&mut self) -> Result<(), Violation> {
        let Some(shadowing) = self.shadows.under_way.take() else {
            let due = !self.goes_beyond && self.shadows.rng.below(1000) < self.shadows.per_mille;
            if due && self.members_rest() && self.growth.is_none() && self.leaving().is_none() {
                self.begin_shadow()?;
            }
            return Ok(());
        };
        self.shadows.under_way = self.go_on_with(shadowing)?;
        Ok(())
    }

    /// Continues an exchange of devices: a host does not delay it for other work.
    pub(super) fn switch_goes_on(&mut self) -> Result<(), Violation> {
        if let Some(shadowing) = self
            .shadows
            .under_way
            .take_if(|shadowing| matches!(shadowing.stage, Stage::Switching(_)))
        {
            self.shadows.under_way = self.go_on_with(shadowing)?;
        }
        Ok(())
    }

    /// Restarts an interrupted replacement with an emptied device.
    fn begin_again(
        &mut self,
        member: MemberId,
        spare: MemberId,
        uuid: Uuid,
    ) -> Result<(), Violation> {
        self.world
            .trace
            .tell(|| format!("{spare} is emptied, and is to replace member {member} still"));
        self.world.empty_device(spare);
        let received = std::mem::take(&mut self.world.members.member_mut(spare).received);
        self.label(spare, uuid)?;
        self.world.members.member_mut(spare).received = received;
        let stage = Stage::Preparing(
            self.world
                .member_command(member, MemberChange::Prepare { spare }),
        );
        self.shadows.under_way = Some(Shadowing {
            member,
            spare,
            uuid,
            stage,
        });
        Ok(())
    }

    fn begin_shadow(&mut self) -> Result<(), Violation> {
        self.heal();
        let slots = self.world.status().members;
        let is_well = |member: &&MemberId| {
            slots[member.index()].state == "online"
                && !slots[member.index()].leaving
                && !self.world.failing_members.contains(member)
        };
        let well: Vec<MemberId> = self.data.iter().filter(is_well).copied().collect();
        if let Some((slot, member)) = slots.iter().find_map(|slot| Some((slot, slot.replaces?))) {
            let is_at_rest = slot.unanswered == 0 && self.has_sound_device(slot.member);
            if is_at_rest
                && well.contains(&member)
                && self.is_done(|| format!("{} is to replace member {member} still", slot.member))
            {
                self.begin_again(member, slot.member, slot.uuid)?;
            }
            return Ok(());
        }
        let is_free = |slot: &MemberId| {
            self.is_coming(*slot)
                && slots
                    .get(slot.index())
                    .is_none_or(|slot| slot.state == "removed" && slot.unanswered == 0)
        };
        let Some(spare) = (0..64)
            .map(MemberId)
            .find(is_free)
            .filter(|_| !well.is_empty())
        else {
            return Ok(());
        };
        let member = self.shadows.rng.pick(&well);
        if !self.is_done(|| {
            format!("another device is to replace member {member} when it is a copy of it")
        }) {
            return Ok(());
        }
        let size = self.world.members.member(member).size();
        self.world
            .put_device(spare, VirtualMember::new(size, self.scenario.discard_fill));
        let uuid = Uuid::from_random(self.shadows.rng.bytes16());
        self.label(spare, uuid)?;
        let stage = Stage::Adding(self.world.member_command(
            spare,
            MemberChange::AddSpare {
                uuid,
                size_bytes: size,
            },
        ));
        self.shadows.under_way = Some(Shadowing {
            member,
            spare,
            uuid,
            stage,
        });
        Ok(())
    }

    fn go_on_with(&mut self, shadowing: Shadowing) -> Result<Option<Shadowing>, Violation> {
        let spare = shadowing.spare;
        let left = self.go_on_by_stage(shadowing)?;
        if left.is_none() {
            // However it ended, the slot is free for another device (seed 35000576).
            self.world.failing_members.remove(&spare);
        }
        Ok(left)
    }

    fn go_on_by_stage(&mut self, shadowing: Shadowing) -> Result<Option<Shadowing>, Violation> {
        let Shadowing {
            member,
            spare,
            uuid,
            stage,
        } = shadowing;
        let name = stage.name();
        let stage = match stage {
            Stage::Copying => return self.copying(member, spare, uuid),
            Stage::Adding(id) => match self.world.take_answer(id) {
                None => Stage::Adding(id),
                Some(answer) => {
                    must(&answer.map(|_| ()), name, member)?;
                    Stage::Preparing(
                        self.world
                            .member_command(member, MemberChange::Prepare { spare }),
                    )
                }
            },
            Stage::Preparing(id) => match self.world.take_answer(id) {
                None => Stage::Preparing(id),
                // It has failed meanwhile, or data has begun to move: the spare remains a spare.
                Some(Err(ControlError::Member { .. })) => return Ok(None),
                Some(answer) => {
                    must(&answer.map(|_| ()), name, member)?;
                    Stage::Copying
                }
            },
            Stage::CallingOff(id) => match self.world.take_answer(id) {
                None => Stage::CallingOff(id),
                Some(answer) => return must(&answer.map(|_| ()), name, member).map(|()| None),
            },
            Stage::Switching(id) => match self.world.take_answer(id) {
                None => Stage::Switching(id),
                // One of the two has failed.
                Some(Err(ControlError::Member { .. })) => return Ok(None),
                Some(answer) => {
                    must(&answer.map(|_| ()), name, member)?;
                    self.world.check_settled(member)?;
                    self.world.check_settled(spare)?;
                    if self.shadows.rng.chance(200) {
                        Stage::Thawing(self.world.member_command(member, MemberChange::Thaw))
                    } else {
                        let device = self.take_device(spare);
                        let old = self.world.exchange_device(member, device)?;
                        let received =
                            std::mem::take(&mut self.world.members.member_mut(member).received);
                        self.label(member, uuid)?;
                        self.world.members.member_mut(member).received = received;
                        Stage::Switched(
                            self.world.member_command(member, MemberChange::Switched),
                            Box::new(old),
                        )
                    }
                }
            },
            Stage::Thawing(id) => match self.world.take_answer(id) {
                None => Stage::Thawing(id),
                Some(answer) => {
                    must(&answer.map(|_| ()), name, member)?;
                    Stage::Copying
                }
            },
            Stage::Switched(id, old) => match self.world.take_answer(id) {
                None => Stage::Switched(id, old),
                Some(answer) => {
                    must(&answer.map(|_| ()), name, member)?;
                    let slot = &self.world.status().members[member.index()];
                    ensure!(
                        slot.uuid == uuid,
                        Protocol,
                        "member {member} is {:?} and not the new device",
                        slot.uuid
                    );
                    self.world
                        .trace
                        .tell(|| format!("another device is member {member}"));
                    self.shadows.taken += 1;
                    return Ok(None);
                }
            },
        };
        Ok(Some(Shadowing {
            member,
            spare,
            uuid,
            stage,
        }))
    }

    fn copying(
        &mut self,
        member: MemberId,
        spare: MemberId,
        uuid: Uuid,
    ) -> Result<Option<Shadowing>, Violation> {
        let slot = self.world.status().members[spare.index()].clone();
        if !slot.is_shadow {
            self.world
                .trace
                .tell(|| format!("{spare} is not to replace member {member} any more"));
            return Ok(None);
        }
        if slot.replacement_ready && self.members_rest() {
            let stage = Stage::Switching(self.world.member_command(member, MemberChange::Switch));
            return Ok(Some(Shadowing {
                member,
                spare,
                uuid,
                stage,
            }));
        }
        if self.shadows.rng.chance(2)
            && self.is_done(|| format!("{spare} is not to replace member {member} after all"))
        {
            let stage = Stage::CallingOff(self.world.member_command(spare, MemberChange::GiveUp));
            return Ok(Some(Shadowing {
                member,
                spare,
                uuid,
                stage,
            }));
        }
        if self.shadows.rng.chance(2)
            && self.is_done(|| format!("{spare}, which is to replace member {member}, dies"))
        {
            self.note_fault(spare, false);
            self.world.members.ailment_mut(spare).gone = true;
        }
        Ok(Some(Shadowing {
            member,
            spare,
            uuid,
            stage: Stage::Copying,
        }))
    }

    /// True if the power went while the new device was recorded: the generation that names it may
    /// be on one device alone, and without that the old one is the member (seed 43002796). Asked
    /// once, before the next start.
    pub(super) fn take_undecided(&mut self) -> bool {
        std::mem::take(&mut self.shadows.is_undecided)
    }

    /// The power has gone: the old device is still the member if no generation names the new one.
    pub(super) fn leave_shadow(&mut self) {
        let Some(Shadowing {
            member,
            spare,
            uuid,
            stage,
        }) = self.shadows.under_way.take()
        else {
            return;
        };
        self.world.failing_members.remove(&spare);
        let Stage::Switched(_, mut old) = stage else {
            return;
        };
        old.power_cut(&mut self.shadows.rng, Vec::new());
        if self.ruling_without(None).is_some_and(|ruling| {
            ruling
                .members
                .get(member.index())
                .is_some_and(|record| record.uuid == uuid)
        }) {
            self.shadows.is_undecided = true;
            return;
        }
        self.world.trace.tell(|| {
            format!("no generation says that the new device is member {member}: the old one is")
        });
        let gone = self.world.members.ailment_mut(member).gone;
        let new = self.world.members.exchange(member, *old);
        self.world.members.exchange(spare, new);
        self.world.members.ailment_mut(spare).gone = gone;
    }

    /// Continues until no replacement is in progress. A copy is cancelled.
    pub(super) fn end_shadow(&mut self) -> Result<(), Violation> {
        while self.has_shadow() {
            self.run_while("a replacement", |world| world.unanswered_controls() > 0)?;
            self.shadow_step()?;
            if let Some(Shadowing {
                spare,
                stage: stage @ Stage::Copying,
                ..
            }) = &mut self.shadows.under_way
            {
                *stage = Stage::CallingOff(self.world.member_command(*spare, MemberChange::GiveUp));
            }
        }
        Ok(())
    }
}

fn must(answer: &Result<(), ControlError>, what: &str, member: MemberId) -> Result<(), Violation> {
    let failed = |error| {
        Violation::new(
            Broken::Error,
            format!("member {member} is not replaced: {what}: {error}"),
        )
    };
    answer.clone().map_err(failed)
}
