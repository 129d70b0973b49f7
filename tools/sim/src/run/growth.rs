//! Growth of the pool in service: new devices are labelled, wait as spares, and become data
//! members.
//!
//! Invariants: it breaks no durability guarantee, whenever the power goes; a growth is refused only
//! for a reason; new devices that die before the layout is active, in any number, cost nothing.

use super::Run;
use super::hangs::Hanging;
use crate::members::VirtualMember;
use crate::violation::{Broken, Violation, ensure};
use windrow_engine::{ControlError, ControlId, MemberChange};
use windrow_types::{MemberId, Uuid};

/// Limit of reshape turns at the end, and the time step when nothing happens.
const RESHAPE_TURNS_MAX: u32 = 400_000;
const PAUSE_NS: u64 = 50_000_000;

/// Awaited event.
#[derive(Clone, Debug)]
enum Stage {
    /// Answers that the new devices are spares.
    Adding(Vec<ControlId>),
    /// Answer that they are members.
    Growing(ControlId),
}

/// A growth in progress.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    new: Vec<MemberId>,
    stage: Stage,
    /// Members with faults when it was requested.
    unwell: Vec<MemberId>,
    /// Number of the new ones that die when it is recorded.
    dying: usize,
    /// Or a hang of one of them: its parameters, and the state from which on it hangs.
    hangs: Option<(u32, u64, &'static str)>,
    hanging: Option<Hanging>,
}

impl Run {
    /// Occasionally begins a growth, and continues one in progress.
    pub(super) fn growth_step(&mut self) -> Result<(), Violation> {
        let Some(growth) = self.growth.take() else {
            let due = !self.goes_beyond
                && self.scenario.grows > self.grown
                && self.growth_rng.below(1000) < self.scenario.grows_per_mille;
            if due
                && self.members_rest()
                && !self.has_shadow()
                && self.leaving().is_none()
                && self.is_done(|| "the pool grows".to_owned())
            {
                self.begin_growth()?;
            }
            return Ok(());
        };
        match &growth.stage {
            Stage::Adding(ids) => {
                if !ids.iter().all(|id| self.world.has_answer(*id)) {
                    self.growth = Some(growth);
                    return Ok(());
                }
                for id in ids {
                    if let Some(Err(error)) = self.world.take_answer(*id) {
                        return Err(Violation::new(
                            Broken::Error,
                            format!("a spare is refused: {error}"),
                        ));
                    }
                }
                let (unwell, id) = (self.unwell(), self.world.grow(growth.new.clone()));
                for member in growth.new.iter().take(growth.dying) {
                    self.note_fault(*member, true);
                    self.world.members.ailment_mut(*member).gone = true;
                }
                self.growth = Some(Growth {
                    stage: Stage::Growing(id),
                    unwell,
                    ..growth
                });
                Ok(())
            }
            Stage::Growing(id) => match self.world.take_answer(*id) {
                None => {
                    let hanging = self.hang_in_growth(&growth)?;
                    self.growth = Some(Growth { hanging, ..growth });
                    Ok(())
                }
                Some(answer) => {
                    if let Some(Hanging { member, .. }) = growth.hanging {
                        self.world.end_hang(member);
                    }
                    self.growth_ended(&growth, answer.map(|_| ()))
                }
            },
        }
    }

    /// The first of the new ones begins to hang, as a spare or when it is recorded as a member, or
    /// hangs and is to be taken out.
    fn hang_in_growth(&mut self, growth: &Growth) -> Result<Option<Hanging>, Violation> {
        let (Some((steps, for_ns, when)), member) = (growth.hangs, growth.new[0]) else {
            return Ok(None);
        };
        let Some(mut hanging) = growth.hanging else {
            let is_due =
                when == "spare" || self.world.status().members[member.index()].state == when;
            let may_be = self.failing_data() < self.scenario.redundancy.tolerance();
            return Ok((is_due && may_be).then(|| self.begin_to_hang(member, (steps, for_ns))));
        };
        self.hanging_step(&mut hanging).map(|_| Some(hanging))
    }

    /// True if it hangs in a growth and is to be taken out, or was: it has no other fault, and is
    /// still in service.
    pub(super) fn is_to_be_taken_out(&self, member: MemberId) -> bool {
        self.growth
            .as_ref()
            .and_then(|growth| growth.hanging)
            .is_some_and(|hanging| hanging.member == member)
    }

    fn begin_growth(&mut self) -> Result<(), Violation> {
        self.heal();
        let count = self.growth_rng.between(1, 4) as usize;
        let mut ids = Vec::new();
        // Spares, slots of departed members, and new ones. (A spare whose device was lost in an
        // interrupted take-over is still a spare: seeds 10143002, 10143052.)
        let slots = self.world.status().members;
        let waiting: Vec<MemberId> = slots
            .iter()
            .filter(|slot| slot.state == "spare")
            .map(|slot| slot.member)
            .collect();
        // (A cancelled copy of a member may have commands in flight.)
        let is_at_rest = |member: &MemberId| {
            slots
                .get(member.index())
                .is_none_or(|slot| slot.unanswered == 0)
        };
        let coming: Vec<MemberId> = (0..64)
            .map(MemberId)
            .filter(|member| self.is_coming(*member) && is_at_rest(member))
            .collect();
        let new: Vec<MemberId> = coming
            .into_iter()
            .filter(|member| !waiting.contains(member) || self.has_sound_device(*member))
            .take(count)
            .collect();
        for member in &new {
            if waiting.contains(member) {
                continue;
            }
            let like = self.growth_rng.pick(&self.data);
            let size = self.world.members.member(like).size();
            self.world.put_device(
                *member,
                VirtualMember::new(size, self.scenario.discard_fill),
            );
            let uuid = Uuid::from_random(self.growth_rng.bytes16());
            self.label(*member, uuid)?;
            ids.push(self.world.member_command(
                *member,
                MemberChange::AddSpare {
                    uuid,
                    size_bytes: size,
                },
            ));
        }
        // Either all failures are within the redundancy, or the growth cannot be activated.
        let (tolerance, failing_members) =
            (self.scenario.redundancy.tolerance(), self.failing_data());
        let dying = match self.growth_rng.below(10) {
            0..7 => 0,
            7 | 8 if failing_members < tolerance => 1,
            _ if count > tolerance => {
                self.growth_rng.between(tolerance as u64 + 1, count as u64) as usize
            }
            _ => 0,
        };
        let hangs = if dying == 1 && tolerance > 0 {
            self.hangs.draw()
        } else {
            None
        };
        let hangs = hangs
            .map(|(steps, for_ns)| (steps, for_ns, self.growth_rng.pick(&["spare", "online"])));
        let dying = if hangs.is_some() { 0 } else { dying };
        self.world.trace.tell(|| {
            format!(
                "the pool is to grow by {new:?}, of which {dying} die, and one hangs: {hangs:?}"
            )
        });
        self.growth = Some(Growth {
            new,
            stage: Stage::Adding(ids),
            unwell: Vec::new(),
            dying,
            hangs,
            hanging: None,
        });
        Ok(())
    }

    fn growth_ended(
        &mut self,
        growth: &Growth,
        answer: Result<(), ControlError>,
    ) -> Result<(), Violation> {
        self.world.tries.note("growth", answer.is_ok());
        match answer {
            Ok(()) => {
                let lost = growth
                    .new
                    .iter()
                    .filter(|member| self.world.members.ailment_mut(**member).gone)
                    .count();
                ensure!(
                    lost <= self.scenario.redundancy.tolerance(),
                    Error,
                    "the pool grew over {lost} members that are gone"
                );
                self.grown += 1;
                self.note_members();
            }
            // There is a reason: a member is or was away, the data leave no room, or there would be
            // no gain.
            Err(ControlError::Member { member, why }) => {
                let is_well = !growth.unwell.contains(&member) && !self.unwell().contains(&member);
                ensure!(
                    !is_well || growth.new.contains(&member),
                    Error,
                    "the pool does not grow, as of member {member}, which is well: {why}"
                );
                self.revive_spares();
            }
            Err(ControlError::NoSpace(_) | ControlError::Invalid(_)) => self.revive_spares(),
            Err(error) => {
                return Err(Violation::new(
                    Broken::Error,
                    format!("the pool does not grow: {error}"),
                ));
            }
        }
        Ok(())
    }

    /// Members that a change of the layout may have to wait for.
    pub(super) fn unwell(&self) -> Vec<MemberId> {
        let is_unwell = |member: &MemberId| {
            self.world.failing_members.contains(member) || !self.world.is_whole(*member)
        };
        self.data.iter().copied().filter(is_unwell).collect()
    }

    /// True for a new device that is not a data member yet.
    pub(super) fn is_coming(&self, member: MemberId) -> bool {
        !self.data.contains(&member) && !self.devices.is_one(member)
    }

    /// Heals new devices that died before they were members.
    fn revive_spares(&mut self) {
        let new: Vec<MemberId> = self
            .world
            .failing_members
            .iter()
            .copied()
            .filter(|member| self.is_coming(*member))
            .collect();
        for member in new {
            self.world.members.ailment_mut(member).gone = false;
            self.world.failing_members.remove(&member);
            self.curable.remove(&member);
        }
    }

    /// The power goes during a growth.
    pub(super) fn leave_growth(&mut self) {
        self.growth = None;
        // More than the redundancy covers: a start may need them.
        let new = self
            .world
            .failing_members
            .iter()
            .filter(|member| self.is_coming(**member))
            .count();
        if new > self.scenario.redundancy.tolerance() {
            self.revive_spares();
        }
    }

    /// Updates the member list after a start, or when a growth is active.
    pub(super) fn note_members(&mut self) {
        if self.scenario.grows == 0 || self.goes_beyond {
            return;
        }
        for slot in &self.world.status().members {
            if self.is_coming(slot.member) && slot.state != "spare" && slot.state != "removed" {
                self.data.push(slot.member);
            }
        }
        self.revive_spares();
    }

    /// Lets time pass until all data is in the newest layout.
    pub(super) fn end_reshape(&mut self) -> Result<(), Violation> {
        for _ in 0..RESHAPE_TURNS_MAX {
            let reshape = self.world.status().reshape;
            if reshape.active && reshape.segments_damaged > 0 {
                return Ok(());
            }
            if !reshape.active && self.note_gone()? {
                return Ok(());
            }
            if !self.turn()? || self.world.under_way() == 0 {
                self.world.let_time_pass(PAUSE_NS);
            }
        }
        Err(Violation::new(
            Broken::Stuck,
            format!(
                "restriping does not end: {:?}; {}",
                self.world.status().reshape,
                self.world.summary()
            ),
        ))
    }
}
