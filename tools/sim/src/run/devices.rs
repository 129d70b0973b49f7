//! Faults of journal devices.
//!
//! A device is a *keeper* while it is in service, whole, and nothing on it is silently wrong: it
//! then has everything durable that the log does not have. When the last keeper leaves, it stays
//! one until the log has what was durable by then: no other device has it. Invariants:
//!
//! 1. With one keeper present as it left, a start works and recovers everything durable.
//! 2. Without any, a start is refused for the right reason and writes nothing; or it works and
//!    recovers everything durable. When a keeper is back, it works. If the journal is discarded
//!    instead, the pool is as it was at one moment, not before what the log certainly had.
//! 3. A device is never released for unplugging while it is the only keeper.
//!
//! Silent faults strike a device only while another one is a keeper, and that one stays.

use super::Run;
use crate::members::{Ailment, VirtualMember};
use crate::refusals::{check_journal_refusal, named_members};
use crate::scenario::Fault;
use crate::violation::{Broken, Violation, ensure};
use crate::world::StartFailure;
use std::collections::BTreeSet;
use windrow_engine::{Engine, OpenError, OpenOptions};
use windrow_format::superblock::{
    MemberState, PoolState, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock,
};
use windrow_inspect::{CheckOptions, Severity, check};
use windrow_io::{BufPool, MemberIo};
use windrow_random::Rng;
use windrow_types::{BLOCK_BYTES, MemberId, Uuid};

/// State of the journal devices in a run.
pub(super) struct Devices {
    rng: Rng,
    /// Members that are journal devices.
    pub(super) ids: Vec<MemberId>,
    /// Any one of these, as it left, has the durable LSNs that the log may not have. None: the log
    /// has everything.
    keepers: Vec<MemberId>,
    /// Durable LSN when devices were last in use, and whether they were in use after the last turn.
    needed_through: u64,
    was_in_use: bool,
    /// Devices with undetected silent damage.
    spoiled: BTreeSet<MemberId>,
    /// Devices among these that have left service since: they are rebuilt when they return.
    leaving: BTreeSet<MemberId>,
    /// A device as it was at some start.
    old: Option<(MemberId, VirtualMember)>,
    /// The power is cut when this device has failed and its loss is being recorded. It is back
    /// then, and the others are absent.
    pub(super) ambush: Option<MemberId>,
    /// Highest LSN in the log at the power cut.
    log: u64,
    /// The next start discards the journal.
    pub(super) discards: bool,
    /// Rate at which a device is exchanged in service: in thousandths of turns.
    pub(super) exchanges_per_mille: u64,
    /// Number of starts refused because a device was missing.
    pub(super) refused: u64,
    /// Number of discarded journals.
    pub(super) given_up: u64,
}

/// Expected result of a start with regard to the journal devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// It works.
    Works,
    /// It is refused, because devices are missing and that is not recorded.
    Missing,
    /// It is refused because something is lost, or it works.
    Lost,
}

/// Devices with the durable LSNs, and the state of the log.
#[derive(Clone, Debug)]
pub(super) struct Promises {
    keepers: Vec<MemberId>,
    log: u64,
}

impl Devices {
    pub(super) fn promises(&self) -> Promises {
        Promises {
            keepers: self.keepers.clone(),
            log: self.log,
        }
    }

    pub(super) fn set_promises(&mut self, promises: Promises) {
        (self.keepers, self.log) = (promises.keepers, promises.log);
    }

    pub(super) fn new(seed: u64, ids: Vec<MemberId>) -> Self {
        let mut rng = Rng::stream(seed, "journal devices");
        let exchanges_per_mille = if ids.is_empty() {
            0
        } else {
            rng.pick(&[0, 0, 1, 3])
        };
        Self {
            rng,
            ids,
            keepers: Vec::new(),
            needed_through: 0,
            was_in_use: false,
            spoiled: BTreeSet::new(),
            leaving: BTreeSet::new(),
            old: None,
            ambush: None,
            log: 0,
            discards: false,
            exchanges_per_mille,
            refused: 0,
            given_up: 0,
        }
    }

    pub(super) fn is_one(&self, member: MemberId) -> bool {
        self.ids.contains(&member)
    }

    /// True if the device is discarded and another one added, instead of a replacement in its slot.
    pub(super) fn is_removed_first(&mut self, member: MemberId) -> bool {
        self.is_one(member) && self.rng.chance(500)
    }

    /// Draws the faults of a cycle of `blocks` block operations.
    pub(super) fn draw_faults(&mut self, blocks: u64) -> Vec<(u64, Fault)> {
        if self.ids.is_empty() {
            return Vec::new();
        }
        let count = self.rng.pick(&[0, 0, 1, 1, 2, 3]);
        let mut faults: Vec<(u64, Fault)> = (0..count)
            .map(|_| (self.rng.below(blocks + 1), Fault::draw(&mut self.rng)))
            .collect();
        faults.sort_by_key(|(after, _)| *after);
        faults
    }
}

impl Run {
    /// Number of data members with faults.
    pub(super) fn failing_data(&self) -> usize {
        self.world
            .failing_members
            .iter()
            .filter(|member| !self.devices.is_one(**member))
            .count()
    }

    /// Updates the keepers after every turn and after a start.
    pub(super) fn note_devices(&mut self) {
        if self.devices.ids.is_empty() || !self.world.is_up() {
            return;
        }
        let (log, promised) = self.world.durable_lsns();
        self.devices.log = log;
        self.world.model.keep_history(log);
        for device in self.devices.spoiled.clone() {
            let well = self.world.is_whole(device);
            let state = self.world.status().members[device.index()].state;
            if !well && !["online", "rebuilding"].contains(&state) {
                self.note_left(device);
            } else if well
                && self.devices.leaving.contains(&device)
                && *self.world.members.ailment_mut(device) == Ailment::default()
            {
                // Its required content was written since it returned.
                self.unspoil(device);
            }
        }
        let keepers: Vec<MemberId> = self
            .devices
            .ids
            .iter()
            .copied()
            .filter(|device| self.world.is_whole(*device) && !self.devices.spoiled.contains(device))
            .collect();
        // A device that has become whole has nothing yet as long as the internal journal is in use.
        let in_use = self.world.uses_journal_devices();
        if in_use || self.devices.was_in_use {
            self.devices.needed_through = promised;
        }
        if in_use && !keepers.is_empty() {
            self.devices.keepers = keepers;
        } else if log >= self.devices.needed_through {
            self.devices.keepers.clear();
        }
        self.devices.was_in_use = in_use;
    }

    /// After a successful start: everything found is durable, and may be on devices alone.
    pub(super) fn devices_opened(&mut self) {
        self.devices.was_in_use = true;
        self.note_devices();
    }

    /// A silently faulty device has left: when it is whole again, its required content was written
    /// since, unless the fault persists. (Lost writes may have hit its rebuild: seed 56757.)
    fn note_left(&mut self, device: MemberId) {
        let ailment = *self.world.members.ailment_mut(device);
        if ailment.lost_writes == 0 && ailment.misdirected_writes == 0 {
            self.devices.leaving.insert(device);
        } else {
            self.devices.leaving.remove(&device);
        }
    }

    fn unspoil(&mut self, device: MemberId) {
        self.devices.spoiled.remove(&device);
        self.devices.leaving.remove(&device);
        self.world.members.member_mut(device).read_errors.clear();
        self.world.failing_members.remove(&device);
    }

    /// After a clean shutdown nothing is needed from any device.
    pub(super) fn devices_shut_down(&mut self) {
        self.devices.keepers.clear();
        for device in self.devices.spoiled.clone() {
            self.note_left(device);
        }
    }

    /// True if the device may leave: none of the remaining ones is silently faulty.
    fn may_leave(&self, device: MemberId) -> bool {
        self.devices
            .ids
            .iter()
            .all(|other| *other == device || !self.devices.spoiled.contains(other))
    }

    /// True if the device may become silently faulty: another one is a keeper without faults.
    fn may_lie(&self, device: MemberId) -> bool {
        let well = |other: &MemberId| {
            *other != device
                && self.devices.keepers.contains(other)
                && !self.world.failing_members.contains(other)
        };
        let others_lie = self.devices.spoiled.iter().any(|other| *other != device);
        !others_lie
            && self
                .devices
                .ids
                .iter()
                .any(|other| well(other) && self.world.is_whole(*other))
    }

    /// Injects a fault into a device in service.
    pub(super) fn fault_journal_device(&mut self, fault: Fault) {
        self.heal();
        let device = self.devices.rng.pick(&self.devices.ids.clone());
        let silent =
            !fault.is_harmless() && (!fault.is_curable() || fault == Fault::TransientReads);
        let busy = self.exchange.is_some_and(|exchange| exchange.is_of(device));
        let allowed = fault.is_harmless()
            || if silent {
                self.may_lie(device)
            } else {
                self.may_leave(device)
            };
        if !allowed || busy || fault == Fault::Superblocks {
            return;
        }
        if !fault.is_harmless() {
            self.note_fault(device, !silent);
        }
        self.world
            .trace
            .tell(|| format!("fault: {fault:?} of journal device {device}"));
        self.faults += 1;
        if silent {
            self.devices.spoiled.insert(device);
            self.devices.leaving.remove(&device);
            self.note_devices();
        }
        if matches!(fault, Fault::WriteError | Fault::FlushError)
            && self.devices.spoiled.is_empty()
            && self.devices.rng.chance(500)
        {
            self.devices.ambush = Some(device);
        }
        let few = self.devices.rng.pick(&[1, 1, 2, 8]);
        match fault {
            Fault::Slow | Fault::Stall | Fault::Mute => {
                let (factor, hangs) = if fault == Fault::Slow {
                    (self.devices.rng.pick(&[10, 100, 1000]), 0)
                } else {
                    (1, 60_000_000_000)
                };
                self.world.slow_down(device, factor, 1_000_000_000, hangs);
            }
            Fault::ReadErrors => (0..few).for_each(|_| {
                let range = self.range_of_journal(device);
                self.world
                    .members
                    .member_mut(device)
                    .read_errors
                    .push(range);
            }),
            Fault::Corruption => (0..few * 2).for_each(|_| {
                let (offset, length) = self.range_of_journal(device);
                self.world.members.corrupt(device, offset, length);
            }),
            Fault::Death => self.world.members.ailment_mut(device).gone = true,
            Fault::WriteError => self.world.members.ailment_mut(device).next_write_fails = true,
            Fault::FlushError => self.world.members.ailment_mut(device).next_flush_fails = true,
            Fault::TransientReads => self.world.members.ailment_mut(device).failing_reads = few,
            Fault::LostWrites => self.world.members.ailment_mut(device).lost_writes = few,
            Fault::MisdirectedWrites => {
                self.world.members.ailment_mut(device).misdirected_writes = few
            }
            Fault::Superblocks => {}
        }
    }

    /// True if the power is to go within a turn or two: a device has just failed, and the others
    /// completed the rest.
    pub(super) fn is_ambushed(&mut self) -> bool {
        let Some(device) = self.devices.ambush else {
            return false;
        };
        !self.world.is_whole(device)
    }

    fn range_of_journal(&mut self, device: MemberId) -> (u64, u64) {
        let start = windrow_format::superblock::RESERVED_BYTES;
        let blocks = (self.world.members.member(device).size() - start) / BLOCK_BYTES;
        let length = self.devices.rng.pick(&[1, 1, 4]).min(blocks);
        (
            start + self.devices.rng.below(blocks - length + 1) * BLOCK_BYTES,
            length * BLOCK_BYTES,
        )
    }

    /// Before the starts of a cycle: devices stay away, return, return stale, or are replaced.
    pub(super) fn devices_before_start(&mut self) -> Result<(), Violation> {
        if let Some(ambushed) = self.devices.ambush.take()
            && self.world.members.is_present(ambushed)
            && self.devices.spoiled.is_empty()
        {
            for device in self
                .devices
                .ids
                .clone()
                .into_iter()
                .filter(|device| *device != ambushed)
            {
                self.world.trace.tell(|| {
                    format!("journal device {device} does not come back, {ambushed} does")
                });
                self.note_fault(device, true);
                self.world.members.ailment_mut(device).gone = true;
            }
            if self.devices.ids.len() == 1 && self.devices.rng.chance(400) {
                self.world
                    .trace
                    .tell(|| format!("journal device {ambushed} does not come back"));
                self.world.members.ailment_mut(ambushed).gone = true;
            }
            return Ok(());
        }
        for device in self.devices.ids.clone() {
            let gone = !self.world.members.is_present(device);
            match self.devices.rng.below(10) {
                0..6 if gone => self.device_returns(device),
                0..2 if self.may_leave(device) => {
                    self.world
                        .trace
                        .tell(|| format!("journal device {device} does not come back"));
                    self.faults += 1;
                    self.note_fault(device, true);
                    self.world.members.ailment_mut(device).gone = true;
                }
                2 if !gone => self.device_ages(device)?,
                3 => self.replace_device(device)?,
                4 if !gone && self.may_lie_at_start(device) => {
                    self.world
                        .trace
                        .tell(|| format!("the next reads of journal device {device} fail"));
                    self.note_fault(device, false);
                    self.devices.spoiled.insert(device);
                    self.world.members.ailment_mut(device).failing_reads =
                        self.devices.rng.pick(&[1, 3, 10, 100]);
                }
                _ => {}
            }
        }
        let device = self.devices.rng.pick(&self.devices.ids.clone());
        if self.devices.rng.chance(300) && self.world.members.is_present(device) {
            self.devices.old = Some((device, self.world.members.member(device).clone()));
        }
        Ok(())
    }

    fn device_returns(&mut self, device: MemberId) {
        self.world
            .trace
            .tell(|| format!("journal device {device} is there again"));
        self.world.members.ailment_mut(device).gone = false;
    }

    /// Makes the device stale: it gets its content of an earlier start. If no other device has the
    /// durable LSNs, and its age is detectable, the real one returns later.
    fn device_ages(&mut self, device: MemberId) -> Result<(), Violation> {
        let Some((_, old)) = self.devices.old.take_if(|(of, _)| *of == device) else {
            return Ok(());
        };
        // (A generation that only this device has goes with its current content. Seed 9604362.)
        let Some(ruling) = self.ruling_without(Some(device)) else {
            return Ok(());
        };
        let age = |member: &VirtualMember| {
            newest_on(member).map_or(u64::MAX, |superblock| {
                ruling.generation.0.saturating_sub(superblock.generation.0)
            })
        };
        let is_known = newest_on(&old).is_some_and(|s| {
            Some(s.member_uuid) == ruling.members.get(device.index()).map(|record| record.uuid)
        });
        if !is_known {
            return Ok(());
        }
        if self.may_lie_at_start(device) {
            self.world
                .trace
                .tell(|| format!("journal device {device} has stale content"));
            self.faults += 1;
            self.world.members.exchange(device, old);
            self.note_fault(device, false);
            self.devices.spoiled.insert(device);
            return Ok(());
        }
        // One generation old, it cannot be distinguished from the current device.
        let others = self.devices.keepers.iter().any(|keeper| *keeper != device);
        if age(&old) < 2 || !self.devices.spoiled.is_empty() || others {
            return Ok(());
        }
        self.world
            .trace
            .tell(|| format!("journal device {device} has stale content for one start"));
        let real = self.world.members.exchange(device, old);
        self.devices.spoiled.insert(device);
        let refused = self.refused_start();
        self.devices.spoiled.remove(&device);
        self.world.members.exchange(device, real);
        refused.map(|_| ())
    }

    /// True if another device has everything, is present, and without faults.
    fn may_lie_at_start(&self, device: MemberId) -> bool {
        let Some(ruling) = self.ruling() else {
            return false;
        };
        let lying = self.devices.spoiled.iter().any(|other| *other != device);
        let has_all = |other: &MemberId| {
            self.devices.keepers.is_empty() || self.devices.keepers.contains(other)
        };
        !lying
            && self
                .devices
                .ids
                .iter()
                .any(|other| *other != device && self.counts(*other, &ruling) && has_all(other))
    }

    /// True if the device is present and in service according to the ruling superblock.
    fn counts(&self, device: MemberId, ruling: &Superblock) -> bool {
        let record = &ruling.members[device.index()];
        let own = newest_on(self.world.members.member(device))
            .filter(|_| self.world.members.is_present(device));
        let current = own.is_some_and(|s| {
            s.member_uuid == record.uuid && s.generation.next() >= ruling.generation
        });
        current && record.state == MemberState::Online
    }

    /// Replaces this device while the pool is not served.
    fn replace_device(&mut self, device: MemberId) -> Result<(), Violation> {
        let there = self.world.members.is_present(device);
        let spoiled = self.devices.spoiled.contains(&device);
        // It may be about to leave for good.
        let has_place =
            |state: MemberState| !matches!(state, MemberState::Spare | MemberState::Removed);
        if !self
            .ruling()
            .is_some_and(|ruling| has_place(ruling.members[device.index()].state))
        {
            return Ok(());
        }
        self.world.members.ailment_mut(device).gone = true;
        let (without, is_clean) = (
            self.expected(),
            self.ruling()
                .is_none_or(|ruling| ruling.state != PoolState::Active),
        );
        let others_count = self.ruling().is_some_and(|ruling| {
            self.devices
                .ids
                .iter()
                .any(|other| *other != device && self.counts(*other, &ruling))
        });
        self.world.members.ailment_mut(device).gone = !there;
        if without == Expected::Lost || !self.may_leave(device) {
            return Ok(());
        }
        let new = self.world.members.member(device).successor();
        let ailment = *self.world.members.ailment_mut(device);
        let old = self.world.members.exchange(device, new);
        let options = OpenOptions {
            force: self.quorum_is_lost(),
            ..self.options()
        };
        let works = is_clean || others_count;
        let cut = (works && self.devices.rng.chance(300)).then(|| self.devices.rng.below(12));
        self.world.members.set_countdown(cut);
        let uuid = Uuid::from_random(self.devices.rng.bytes16());
        let result = Engine::replace_member(
            &mut self.world.members,
            &BufPool::new(1 << 20),
            &options,
            device,
            uuid,
        );
        self.world
            .trace
            .tell(|| format!("a new journal device {device}, cut after {cut:?}: {result:?}"));
        if !works {
            // It may be the only one with the durable LSNs.
            ensure!(
                matches!(result, Err(OpenError::JournalMissing { .. })),
                Open,
                "a journal device that may be needed can be replaced: {result:?}"
            );
            self.world.members.set_countdown(None);
            self.world.members.exchange(device, old);
            *self.world.members.ailment_mut(device) = ailment;
            return Ok(());
        }
        self.note_fault(device, true);
        self.curable.insert(device);
        self.devices.keepers.retain(|keeper| *keeper != device);
        if spoiled {
            self.devices.spoiled.remove(&device);
            self.devices.leaving.remove(&device);
        }
        self.devices.old.take_if(|(of, _)| *of == device);
        self.clean = false;
        if self.world.members.is_cut() {
            self.cut_power();
            return Ok(());
        }
        self.world.members.set_countdown(None);
        result.map_err(|error| {
            Violation::new(
                Broken::Open,
                format!("journal device {device} cannot be replaced: {error}"),
            )
        })?;
        self.replaced += 1;
        Ok(())
    }

    pub(super) fn options(&self) -> OpenOptions {
        OpenOptions {
            host: self.host,
            read_only: false,
            force: false,
            discard_journal: self.devices.discards,
            limits: self.scenario.limits,
        }
    }

    /// Newest superblock on the present members.
    pub(super) fn ruling(&self) -> Option<Superblock> {
        self.ruling_without(None)
    }

    /// Same, without one of them. With two of one generation, a device that was left out since
    /// holds the other one: it was being written when the power went (seed 9992299).
    pub(super) fn ruling_without(&self, left_out: Option<MemberId>) -> Option<Superblock> {
        let there = (0..self.world.members.member_count() as u8)
            .map(MemberId)
            .filter(|member| self.world.members.is_present(*member));
        there
            .filter(|member| Some(*member) != left_out)
            .filter_map(|member| {
                newest_on(self.world.members.member(member)).map(|superblock| (member, superblock))
            })
            .max_by_key(|(member, superblock)| {
                (superblock.generation, !self.devices.is_one(*member))
            })
            .map(|(_, superblock)| superblock)
    }

    /// Expected result of the next start.
    fn expected(&self) -> Expected {
        let Some(ruling) = self.ruling().filter(|_| !self.devices.ids.is_empty()) else {
            return Expected::Works;
        };
        if ruling.state != PoolState::Active {
            return Expected::Works;
        }
        let online =
            |device: &&MemberId| ruling.members[device.index()].state == MemberState::Online;
        let expected: Vec<MemberId> = self.devices.ids.iter().filter(online).copied().collect();
        if !expected.is_empty() && !expected.iter().any(|device| self.counts(*device, &ruling)) {
            return Expected::Missing;
        }
        let has_all = |device: &MemberId| {
            self.world.members.is_present(*device) && !self.devices.spoiled.contains(device)
        };
        if !self.devices.keepers.is_empty() && !self.devices.keepers.iter().any(has_all) {
            Expected::Lost
        } else {
            Expected::Works
        }
    }

    /// True if the next start is not refused because a journal device is missing.
    pub(super) fn start_works(&self) -> bool {
        self.expected() == Expected::Works
    }

    /// Before a start that must be refused: checks the refusal; then the devices return, or the
    /// journal is discarded.
    pub(super) fn settle_devices(&mut self) -> Result<(), Violation> {
        if self.devices.discards || self.refused_start()? {
            return Ok(());
        }
        self.devices.refused += 1;
        let log = self.devices.log;
        if self.devices.rng.chance(500) && self.world.model.knows(log) {
            self.world
                .trace
                .tell(|| format!("the journal is discarded; the log has everything up to {log}"));
            self.world.model.give_up(log);
            self.devices.given_up += 1;
            self.devices.keepers.clear();
            self.devices.discards = true;
            return Ok(());
        }
        let missing = self.devices.ids.clone();
        missing
            .into_iter()
            .filter(|device| !self.world.members.is_present(*device))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|device| self.device_returns(device));
        let expected = self.expected();
        ensure!(
            expected == Expected::Works,
            Open,
            "all journal devices are there, but a start is expected to be refused: {expected:?}"
        );
        Ok(())
    }

    /// True if the next start must work. If it must be refused, it is tried, and must change
    /// nothing.
    fn refused_start(&mut self) -> Result<bool, Violation> {
        let expected = self.expected();
        if expected == Expected::Works {
            return Ok(true);
        }
        let options = OpenOptions {
            force: self.quorum_is_lost(),
            ..self.options()
        };
        let (before, model) = (self.world.members.clone(), self.world.model.clone());
        let started = self.world.start(&options);
        let refusal = self.world.refusal.take();
        let opinion = check(
            &mut self.world.members.clone(),
            &CheckOptions::default(),
            &mut |_| (),
        );
        let confirmed =
            opinion.failure.is_some() || opinion.findings.worst == Some(Severity::Error);
        let reason = refusal.clone();
        match (started, expected, refusal) {
            (
                Err(StartFailure::Refused(_)),
                Expected::Missing,
                Some(OpenError::JournalMissing { .. }),
            ) => {}
            (Err(StartFailure::Refused(_)), Expected::Lost, Some(OpenError::Lost(_))) => {}
            (Ok(report), Expected::Lost, _) => {
                // It was there by chance: unflushed writes may arrive.
                let status = self.world.status();
                let opened = self
                    .world
                    .model
                    .clone()
                    .reopened(&report, &status, self.newest_lsn);
                self.world.power_cut();
                (self.world.members, self.world.model) = (before, model);
                return opened.map(|()| true);
            }
            (started, ..) => {
                let text = format!(
                    "without the journal devices ({expected:?}) a start gives {:?}",
                    started.map(|report| report.recovery_lsn)
                );
                return Err(Violation::new(Broken::Open, text));
            }
        }
        ensure!(
            confirmed,
            Check,
            "refused ({expected:?}), but an offline check finds nothing beyond repair"
        );
        if let Some(error) = &reason {
            check_journal_refusal(error, &self.devices.ids, self.devices.log, self.newest_lsn)?;
            self.check_missed(error)?;
        }
        self.world.check_untouched()?;
        Ok(false)
    }

    /// Checks that a device called missing is absent, or holds something other than the pool has in
    /// its slot.
    fn check_missed(&self, error: &OpenError) -> Result<(), Violation> {
        let (OpenError::JournalMissing { which }, Some(ruling)) = (error, self.ruling()) else {
            return Ok(());
        };
        let there: Vec<MemberId> = named_members(which)
            .into_iter()
            .filter(|device| self.counts(*device, &ruling))
            .collect();
        ensure!(
            there.is_empty(),
            Open,
            "the journal devices {there:?} are there, and are called missing: {which}"
        );
        Ok(())
    }

    /// Device for an exchange; it must be allowed to leave.
    pub(super) fn device_to_exchange(&mut self) -> Option<MemberId> {
        let due = self.devices.exchanges_per_mille > 0
            && self.devices.rng.below(1000) < self.devices.exchanges_per_mille;
        let device = due.then(|| self.devices.rng.pick(&self.devices.ids.clone()))?;
        self.may_leave(device).then_some(device)
    }

    /// Checks the release of a device for unplugging.
    pub(super) fn device_let_go(&mut self, device: MemberId) -> Result<(), Violation> {
        self.note_devices();
        ensure!(
            self.devices.keepers != [device],
            Durability,
            "journal device {device} is released, and no other device has the durable LSNs"
        );
        Ok(())
    }

    /// Records another device in its slot.
    pub(super) fn device_exchanged(&mut self, device: MemberId) {
        self.devices.keepers.retain(|keeper| *keeper != device);
        self.devices.spoiled.remove(&device);
        self.devices.leaving.remove(&device);
        self.devices.old.take_if(|(of, _)| *of == device);
    }
}

/// Newest superblock on a device.
pub(super) fn newest_on(device: &VirtualMember) -> Option<Superblock> {
    let mut bytes = vec![0; SLOT_BYTES];
    let mut slot = |slot: u64| {
        device.read(SLOT_OFFSET + slot * SLOT_STRIDE, &mut bytes);
        Superblock::decode(&bytes).ok()
    };
    (0..SLOT_COUNT)
        .filter_map(&mut slot)
        .max_by_key(|superblock| superblock.generation)
}
