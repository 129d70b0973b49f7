//! Exchange of members: a member leaves while the pool is in use, and returns, or another device
//! replaces it.

use super::Run;
use crate::members::Ailment;
use crate::violation::{Broken, Violation, ensure};
use windrow_engine::{ControlError, ControlId, MemberChange};
use windrow_format::superblock::{
    FORMAT_VERSION, LABEL_BYTES, LABEL_OFFSET, Label, RESERVED_BYTES, SLOT_BYTES, SLOT_COUNT,
    SLOT_OFFSET, SLOT_STRIDE, Superblock,
};
use windrow_io::MemberIo;
use windrow_types::{BLOCK_BYTES, MemberId, Uuid};

/// Limit of consecutive refusals, beyond which a device never leaves.
const REFUSALS_MAX: u32 = 10;

/// Awaited event.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Number of steps in which it is unresponsive, before it is taken out.
    Hanging { steps: u32 },
    /// Answer that it is out.
    TakingOut(ControlId),
    /// Answer that nothing is in flight to it.
    Settling(ControlId),
    /// Number of block operations during which it is away.
    Away { until: u64 },
    /// Answer that it may still be replaced.
    SettlingAgain(ControlId),
    /// Answer that its whole content counts as missed: its device was truncated, and returns at its
    /// previous size.
    Cutting(ControlId),
    /// Answer that the journal device is removed.
    Removing(ControlId),
    /// Answer that another device waits in its slot.
    Adding(ControlId),
    /// Answer that it is in again.
    ComingIn(ControlId),
}

/// A member that is leaving or returning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    member: MemberId,
    new_device: bool,
    stage: Stage,
    /// Number of times the log did not have its durable LSNs, although it was reported as settled.
    refused: u32,
}

impl Exchange {
    pub(super) fn is_of(self, member: MemberId) -> bool {
        self.member == member
    }
}

impl Run {
    /// Occasionally begins an exchange, and continues one in progress.
    pub(super) fn exchange_step(&mut self) -> Result<(), Violation> {
        let Some(exchange) = self.exchange else {
            if !self.members_rest() {
                return Ok(());
            }
            if self.scenario.exchanges_per_mille > 0
                && self.rng.below(1000) < self.scenario.exchanges_per_mille
            {
                self.heal();
                if let Some(member) = self.victim().filter(|member| !self.may_be_leaving(*member))
                    && self.is_done(|| format!("member {member} leaves service"))
                {
                    self.begin_exchange(member);
                }
            } else if let Some(device) = self.device_to_exchange()
                && self.is_done(|| format!("journal device {device} leaves service"))
            {
                self.heal();
                self.begin_exchange(device);
            }
            return Ok(());
        };
        let member = exchange.member;
        let stage = match exchange.stage {
            Stage::Hanging { steps: 0 } => Some(Stage::TakingOut(self.take_out_hanging(member))),
            Stage::Hanging { steps } => Some(Stage::Hanging { steps: steps - 1 }),
            Stage::TakingOut(id) => self
                .done(id, member)?
                .then(|| Stage::Settling(self.world.member_command(member, MemberChange::Settle))),
            Stage::Settling(id) => match self.done(id, member)? {
                true => {
                    self.world.check_settled(member)?;
                    self.world.leave_behind(None);
                    self.device_let_go(member)?;
                    Some(Stage::Away {
                        until: self.done + self.rng.pick(&[0, 10, 300, 2000]),
                    })
                }
                false => None,
            },
            Stage::Away { until } if self.done < until => None,
            // Another journal device may have failed meanwhile, and the keepers are not examined:
            // none is replaced before the log has the durable LSNs.
            Stage::Away { .. } if self.devices.is_one(member) => Some(Stage::SettlingAgain(
                self.world.member_command(member, MemberChange::Settle),
            )),
            // Out before a crash: it must be settled first.
            Stage::Away { .. } => Some(self.come_in(exchange)?),
            Stage::SettlingAgain(id) => {
                if self.done(id, member)? {
                    Some(self.come_in(exchange)?)
                } else {
                    None
                }
            }
            Stage::Cutting(id) => {
                if self.done(id, member)? {
                    self.lose_the_end(member);
                    self.bring_back(member)
                } else {
                    None
                }
            }
            Stage::Removing(id) => match self.world.take_answer(id) {
                None => None,
                Some(Err(error))
                    if is_refused_for_now(&error) && exchange.refused < REFUSALS_MAX =>
                {
                    self.exchange = Some(Exchange {
                        refused: exchange.refused + 1,
                        ..exchange
                    });
                    Some(Stage::SettlingAgain(
                        self.world.member_command(member, MemberChange::Settle),
                    ))
                }
                Some(answer) => {
                    answered(answer.map(|_| ()), member)?;
                    Some(self.add_in_slot(member)?)
                }
            },
            Stage::Adding(id) => self.done(id, member)?.then(|| self.serve_journal(member)),
            Stage::ComingIn(id) => {
                return match self.world.take_answer(id) {
                    None => Ok(()),
                    Some(Ok(_)) => {
                        self.exchange = None;
                        Ok(())
                    }
                    // It alone had the last generation when the power went, and the pool continued
                    // without it: as if it had been used elsewhere.
                    Some(Err(ControlError::Member { why, .. }))
                        if !exchange.new_device && why.contains("another history") =>
                    {
                        self.exchange = Some(Exchange {
                            new_device: true,
                            stage: Stage::Away { until: 0 },
                            ..exchange
                        });
                        Ok(())
                    }
                    Some(Err(error)) => Err(Violation::new(
                        Broken::Error,
                        format!("member {member} does not come in: {error}"),
                    )),
                };
            }
        };
        self.exchange = self.exchange.map(|exchange| Exchange {
            stage: stage.unwrap_or(exchange.stage),
            ..exchange
        });
        Ok(())
    }

    /// Lets a member that a crash has left out of service return.
    pub(super) fn resume_exchange(&mut self) {
        self.exchange = None;
        let members = self.world.status().members;
        let unfinished =
            |member: &MemberId| ["removed", "spare"].contains(&members[member.index()].state);
        if let Some(member) = self.devices.ids.iter().copied().find(unfinished) {
            let waits = members[member.index()].state == "spare";
            let stage = if waits {
                Ok(self.serve_journal(member))
            } else {
                self.add_in_slot(member)
            };
            self.exchange = stage.ok().map(|stage| Exchange {
                member,
                new_device: true,
                stage,
                refused: 0,
            });
            return;
        }
        let offline = members
            .iter()
            .find(|member| member.state == "offline")
            .map(|member| member.member);
        if let Some(member) = offline {
            // (Or one that hung when it was taken out, while the pool ended or grew.)
            let settling = Stage::Settling(self.world.member_command(member, MemberChange::Settle));
            self.exchange = Some(Exchange {
                member,
                new_device: self.rng.chance(300),
                stage: settling,
                refused: 0,
            });
        }
    }

    /// At the end every member must be in.
    pub(super) fn end_exchanges(&mut self) -> Result<(), Violation> {
        self.end_shadow()?;
        self.end_take_over()?;
        loop {
            if self.exchange.is_none() {
                self.resume_exchange();
            }
            let Some(exchange) = self.exchange else {
                return Ok(());
            };
            if let Stage::Away { .. } = exchange.stage {
                self.exchange = Some(Exchange {
                    stage: Stage::Away { until: 0 },
                    ..exchange
                });
            }
            self.exchange_step()?;
            self.run_while("an exchange", |world| world.unanswered_controls() > 0)?;
        }
    }

    fn begin_exchange(&mut self, member: MemberId) {
        let new_device = self.rng.chance(400);
        self.world
            .trace
            .tell(|| format!("member {member} is taken out, a new device: {new_device}"));
        self.note_fault(member, true);
        let stage = match self.hangs.draw() {
            Some((steps, for_ns)) if !self.goes_beyond => {
                self.world.trace.tell(|| format!("before that it answers nothing for {for_ns} ns, and is taken out after {steps} steps"));
                self.world.hang(member, for_ns);
                Stage::Hanging { steps }
            }
            _ => Stage::TakingOut(self.world.member_command(member, MemberChange::TakeOut)),
        };
        self.exchange = Some(Exchange {
            member,
            new_device,
            stage,
            refused: 0,
        });
    }

    /// Takes out a member that hangs or did until now: from now on nothing may wait for it, and
    /// acknowledged data must survive without it.
    pub(super) fn take_out_hanging(&mut self, member: MemberId) -> ControlId {
        self.watch_leave(member);
        self.world.leave_behind(Some(member));
        self.world.member_command(member, MemberChange::TakeOut)
    }

    /// True if the command has been answered; it must have succeeded.
    fn done(&mut self, id: ControlId, member: MemberId) -> Result<bool, Violation> {
        match self.world.take_answer(id) {
            None => Ok(false),
            Some(answer) => answered(answer.map(|_| ()), member).map(|()| true),
        }
    }

    /// Brings back the device or another one.
    fn come_in(&mut self, exchange: Exchange) -> Result<Stage, Violation> {
        let member = exchange.member;
        self.exchanged += 1;
        if !exchange.new_device {
            // (The pool handles faults that strike once.)
            let is_well = Ailment {
                gone: false,
                ..*self.world.members.ailment_mut(member)
            } == Ailment::default();
            let cut = self.rng.chance(250)
                && is_well
                && !self.devices.is_one(member)
                && self.newest_superblock(member).is_some();
            let change = MemberChange::CutShort {
                reason: "it was cut short".to_owned(),
            };
            let stage = if cut {
                Some(Stage::Cutting(self.world.member_command(member, change)))
            } else {
                self.bring_back(member)
            };
            if let Some(stage) = stage {
                return Ok(stage);
            }
        }
        if self.devices.is_removed_first(member) {
            return Ok(Stage::Removing(
                self.world.member_command(member, MemberChange::GiveUp),
            ));
        }
        let (uuid, size_bytes) = self.new_device(member)?;
        let power_safe = self.world.members.member(member).power_safe;
        let change = MemberChange::Exchange {
            uuid,
            size_bytes,
            power_safe,
            spare: None,
        };
        Ok(Stage::ComingIn(self.world.member_command(member, change)))
    }

    /// Brings back the device that left; `None` if it holds no superblock.
    fn bring_back(&mut self, member: MemberId) -> Option<Stage> {
        let superblock = Box::new(self.newest_superblock(member)?);
        self.world.members.ailment_mut(member).gone = false;
        Some(Stage::ComingIn(self.world.member_command(
            member,
            MemberChange::BringBack { superblock },
        )))
    }

    /// Zeroes the end of a device that was truncated and extended again.
    fn lose_the_end(&mut self, member: MemberId) {
        self.world.members.ailment_mut(member).gone = false;
        let size = self.world.members.member(member).size();
        let first =
            RESERVED_BYTES + self.rng.below((size - RESERVED_BYTES) / BLOCK_BYTES) * BLOCK_BYTES;
        self.world
            .trace
            .tell(|| format!("member {member} was cut short at {first}, and has grown again"));
        // (Not as a command, which could fail: the drive itself does this, seed 43000542.)
        let device = self.world.members.member_mut(member);
        device.write(first, &vec![0; (size - first) as usize]);
        device.flush_end(device.flush_begin(), false);
    }

    /// A journal device has been discarded: another one enters its slot, first as a spare.
    fn add_in_slot(&mut self, member: MemberId) -> Result<Stage, Violation> {
        let (uuid, size_bytes) = self.new_device(member)?;
        Ok(Stage::Adding(self.world.member_command(
            member,
            MemberChange::AddSpare { uuid, size_bytes },
        )))
    }

    fn serve_journal(&mut self, member: MemberId) -> Stage {
        let granule = self
            .scenario
            .journal
            .as_ref()
            .map_or(4096, |journal| journal.granule);
        let change = MemberChange::Serve {
            granule,
            power_safe: self.world.members.member(member).power_safe,
        };
        Stage::ComingIn(self.world.member_command(member, change))
    }

    /// Creates another device for the member, with a label: its identifier and size.
    fn new_device(&mut self, member: MemberId) -> Result<(Uuid, u64), Violation> {
        let device = self.world.members.member(member).successor();
        let size = device.size();
        self.world.exchange_device(member, device)?;
        ensure!(
            *self.world.members.ailment_mut(member) == Ailment::default(),
            Protocol,
            "a new device is in order"
        );
        // Its content is right as far as it is there: the rebuild completes it.
        self.curable.insert(member);
        self.device_exchanged(member);
        let uuid = Uuid::from_random(self.rng.bytes16());
        self.label(member, uuid)?;
        Ok((uuid, size))
    }

    /// Writes the label of a new device, as a host does before the engine knows it.
    pub(super) fn label(&mut self, member: MemberId, uuid: Uuid) -> Result<(), Violation> {
        let status = self.world.status();
        let label = Label {
            version: FORMAT_VERSION,
            pool: status.pool,
            pool_name: status.name,
            member_uuid: uuid,
            member,
        };
        let mut bytes = label.encode();
        bytes.resize(LABEL_BYTES, 0);
        let members = &mut self.world.members;
        let written = members
            .write(member, LABEL_OFFSET, &bytes)
            .and_then(|()| members.flush(member));
        written.map_err(|error| Violation::new(Broken::Error, format!("a new device: {error}")))?;
        members.member_mut(member).received = Default::default();
        Ok(())
    }

    fn newest_superblock(&self, member: MemberId) -> Option<Superblock> {
        let mut bytes = vec![0; SLOT_BYTES];
        let mut slot = |slot: u64| {
            self.world
                .members
                .member(member)
                .read(SLOT_OFFSET + slot * SLOT_STRIDE, &mut bytes);
            Superblock::decode(&bytes).ok()
        };
        let uuid = self.world.status().members[member.index()].uuid;
        (0..SLOT_COUNT)
            .filter_map(&mut slot)
            .filter(|s| s.member_uuid == uuid)
            .max_by_key(|s| s.generation)
    }
}

/// Another journal device has failed since this one was settled, and the keepers are not examined:
/// the exchange must be requested again when the log has the durable LSNs (seed 9779054).
fn is_refused_for_now(error: &ControlError) -> bool {
    matches!(error, ControlError::Member { why, .. } if why.contains("on this journal device; try again"))
}

fn answered(answer: Result<(), ControlError>, member: MemberId) -> Result<(), Violation> {
    answer.map_err(|error| {
        Violation::new(
            Broken::Error,
            format!("member {member}, within redundancy: {error}"),
        )
    })
}
