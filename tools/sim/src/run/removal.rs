//! Removal of members at any moment, including full pools, lost members and power cuts.
//!
//! Invariants: it breaks no durability guarantee; a removal is refused only for a reason; a started
//! removal ends, even without the device of the leaving member; that device, plugged in again with
//! its content, is not part of the pool.

use super::Run;
use crate::model::Asked;
use crate::violation::{Broken, Violation, ensure};
use std::collections::BTreeSet;
use windrow_engine::{ControlError, ControlId};
use windrow_format::superblock::{
    LABEL_BYTES, LABEL_OFFSET, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE,
};
use windrow_io::MemberIo;
use windrow_random::Rng;
use windrow_types::MemberId;

/// Number of unanswered requests at which no more trims are sent: far below the engine's limit.
const TRIMS_WAITING: usize = 256;

/// State of removals.
#[derive(Debug)]
pub(super) struct Removal {
    rng: Rng,
    asked: Option<ControlId>,
    /// Members with faults at that time.
    unwell: Vec<MemberId>,
    /// Trims that may still make room for a removal refused because there was none.
    trims: u32,
    pub(super) begun: u64,
    /// Member that was last asked to leave.
    member: Option<MemberId>,
    /// All members that were ever asked to leave.
    everybody: BTreeSet<MemberId>,
    /// Number of departed members, and of refused removals.
    pub(super) removed: u64,
    pub(super) refused: u64,
}

impl Removal {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::stream(seed, "removals"),
            asked: None,
            unwell: Vec::new(),
            trims: 0,
            begun: 0,
            member: None,
            everybody: BTreeSet::new(),
            removed: 0,
            refused: 0,
        }
    }

    /// The power goes.
    pub(super) fn leave(&mut self) {
        (self.asked, self.trims) = (None, 0);
    }
}

impl Run {
    /// The member that may be leaving, or may have left by a generation that only some hold.
    pub(super) fn leaving(&self) -> Option<MemberId> {
        self.removal
            .member
            .filter(|_| self.removal.begun > self.removal.removed)
    }

    /// True if it may be that member.
    pub(super) fn may_be_leaving(&self, member: MemberId) -> bool {
        self.leaving() == Some(member)
    }

    /// Occasionally begins a removal.
    pub(super) fn removal_step(&mut self) -> Result<(), Violation> {
        self.note_gone()?;
        if let Some(id) = self.removal.asked {
            let Some(answer) = self.world.take_answer(id) else {
                return Ok(());
            };
            self.removal.asked = None;
            return self.removal_answered(answer.map(|_| ()));
        }
        let per_mille = if self.removal.trims > 0 {
            300
        } else {
            self.scenario.removes_per_mille
        };
        let due = !self.goes_beyond
            && self.scenario.removes > self.removal.begun
            && self.removal.rng.below(1000) < per_mille;
        if due
            && self.members_rest()
            && !self.has_shadow()
            && self.growth.is_none()
            && self.data.len() > 1
            && self.is_done(|| "a member is to leave for good".to_owned())
        {
            self.heal();
            // One at a time; a removal refused because there was no room is requested again.
            let again = self
                .removal
                .member
                .filter(|member| self.removal.trims > 0 && self.data.contains(member));
            let again = self.leaving().or(again);
            let member = again.unwrap_or_else(|| self.removal.rng.pick(&self.data));
            // From now on it may be recorded.
            self.removal.begun += 1;
            self.removal.member = Some(member);
            self.removal.everybody.insert(member);
            self.removal.unwell = self.unwell();
            self.removal.asked = Some(self.world.remove(member));
        }
        Ok(())
    }

    fn removal_answered(&mut self, answer: Result<(), ControlError>) -> Result<(), Violation> {
        self.world.tries.note("removal", answer.is_ok());
        match answer {
            Ok(()) => self.removal.trims = 0,
            Err(ControlError::NoSpace(_)) => {
                // A full pool: it is trimmed step by step until the removal just fits.
                self.removal.begun -= 1;
                self.removal.refused += 1;
                self.removal.trims = if self.removal.trims == 0 {
                    200
                } else {
                    self.removal.trims - 1
                };
                // (If a write waits for an unresponsive member, earlier requests still queue after
                // it: above the limit they are refused. Seed 9601719.)
                if self.world.unanswered() >= TRIMS_WAITING {
                    return Ok(());
                }
                let volumes: Vec<_> = self
                    .world
                    .model
                    .volumes()
                    .iter()
                    .map(|(id, volume)| (*id, volume.blocks.len() as u64))
                    .collect();
                for (id, blocks) in volumes.into_iter().filter(|(_, blocks)| *blocks > 0) {
                    let first = self.removal.rng.below(blocks);
                    let count = self.removal.rng.between(1, 64).min(blocks - first);
                    self.world.submit(
                        id,
                        Asked::Zero {
                            at: first * 8,
                            count: count * 8,
                            no_hole: None,
                            fua: false,
                        },
                    );
                }
            }
            // A member is away, too few would be left, or data still moves.
            Err(ControlError::Member { .. } | ControlError::Invalid(_)) => {
                if let Err(ControlError::Member { member, why }) = &answer {
                    let is_well =
                        !self.removal.unwell.contains(member) && !self.unwell().contains(member);
                    ensure!(
                        !is_well || self.may_stay(),
                        Error,
                        "member {member} does not leave, or as of it another one, and all are well: {why}"
                    );
                }
                self.removal.begun -= 1;
                self.removal.refused += 1;
            }
            Err(error) => {
                return Err(Violation::new(
                    Broken::Error,
                    format!("a member does not leave: {error}"),
                ));
            }
        }
        Ok(())
    }

    /// True if there may be a reason to refuse a healthy member's removal: too few would be left,
    /// or the layout has changed and data still moves.
    fn may_stay(&self) -> bool {
        let has_changed = self.grown > 0
            || self.removal.removed > 0
            || self.data.len() != self.scenario.sizes.len();
        has_changed
            || self.data.len() <= self.scenario.redundancy.min_members()
            || self.world.status().members.iter().any(|slot| slot.leaving)
    }

    /// The engine has reported departed members. True if nothing is outstanding.
    pub(super) fn note_gone(&mut self) -> Result<bool, Violation> {
        for member in std::mem::take(&mut self.world.gone) {
            self.note_removed();
            ensure!(
                self.removal.everybody.contains(&member) && !self.data.contains(&member),
                Protocol,
                "member {member} is gone, and was not to leave"
            );
            self.world.check_settled(member)?;
            // A host may wipe the device.
            if self.removal.rng.chance(500) {
                self.wipe(member)?;
            }
        }
        let is_owed = |member: MemberId| {
            self.world
                .status()
                .members
                .get(member.index())
                .is_some_and(|slot| slot.state == "removed")
        };
        Ok(!self.leaving().is_some_and(is_owed))
    }

    /// Members released by the ruling generation are no longer members.
    pub(super) fn note_removed(&mut self) {
        if self.scenario.removes == 0 {
            return;
        }
        let members = self.world.status().members;
        for left in members
            .iter()
            .filter(|slot| slot.state == "removed")
            .map(|slot| slot.member)
        {
            if !self.data.contains(&left) {
                continue;
            }
            self.data.retain(|member| *member != left);
            self.removal.removed += 1;
            self.removal.begun = self.removal.begun.max(self.removal.removed);
            self.world.failing_members.remove(&left);
            self.curable.remove(&left);
            *self.world.members.ailment_mut(left) = Default::default();
            self.world.trace.tell(|| format!("member {left} has left"));
        }
        if let Some(slot) = members.iter().find(|slot| slot.leaving) {
            self.removal.member = Some(slot.member);
            self.removal.begun = self.removal.removed + 1;
        } else if self.removal.asked.is_none() {
            // Power failed before it was recorded.
            self.removal.begun = self.removal.removed;
        }
    }

    fn wipe(&mut self, member: MemberId) -> Result<(), Violation> {
        let received = self.world.members.member(member).received;
        let members = &mut self.world.members;
        let mut write = |offset: u64, bytes: usize| members.write(member, offset, &vec![0; bytes]);
        let slots = (0..SLOT_COUNT).map(|slot| (SLOT_OFFSET + slot * SLOT_STRIDE, SLOT_BYTES));
        let wiped = slots
            .chain([(LABEL_OFFSET, LABEL_BYTES)])
            .try_for_each(|(offset, bytes)| write(offset, bytes));
        wiped
            .and_then(|()| self.world.members.flush(member))
            .map_err(|error| Violation::new(Broken::Error, format!("a removed device: {error}")))?;
        self.world.members.member_mut(member).received = received;
        Ok(())
    }
}
