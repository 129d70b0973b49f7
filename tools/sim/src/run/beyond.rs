//! Runs with more faults than the redundancy covers.
//!
//! 1. A read returns the right bytes or an error, never others.
//! 2. A start works or is refused for a reason that an offline check confirms. A refused start
//!    writes nothing. When the missing parts are back the pool starts and everything is right.
//! 3. If the pool is up, exactly those blocks are unreadable that an offline check finds
//!    unrecoverable.
//! 4. A scrub names exactly the blocks that it cannot repair.
//! 5. When the lost blocks have been rewritten, or trimmed where there is no room for that, the
//!    pool is whole: after a scrub its live data has full redundancy again.
//!
//! Media are damaged after a clean shutdown only: after a crash a damaged durable last batch cannot
//! be distinguished from one that never arrived.

use super::Run;
use crate::members::VirtualMembers;
use crate::model::Asked;
use crate::refusals::{Struck, check_losses, named_members};
use crate::scenario::{Cycle, End};
use crate::violation::{Broken, Violation, ensure};
use crate::world::StartFailure;
use std::collections::BTreeSet;
use windrow_engine::{Control, OpenError, OpenOptions, ScrubCommand, ScrubState};
use windrow_format::superblock::{
    RESERVED_BYTES, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock,
};
use windrow_inspect::{CheckOptions, CheckReport, Finding, FindingKind, Severity, check};
use windrow_types::{BLOCK_BYTES, MemberId, VolumeId};

/// Event that strikes more members than the redundancy covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disaster {
    /// They fail while the pool is served, and are back at the next start.
    Dying,
    /// They are absent at the start.
    Absent,
    /// They hold stale content.
    Old,
    /// Some hold stale content, and the others are read-only.
    WornOut,
    /// The same addresses of them change silently.
    SamePlaces,
    /// Many addresses of them change silently or become unreadable.
    Scattered,
    /// Everything after the superblocks changes silently.
    Wiped,
    /// The newest superblocks change silently.
    Superblocks,
}

impl Run {
    /// A run that exceeds redundancy once.
    pub(super) fn all_beyond(&mut self) -> Result<(), Violation> {
        const ALL: [Disaster; 10] = [
            Disaster::Dying,
            Disaster::Dying,
            Disaster::Absent,
            Disaster::Old,
            Disaster::SamePlaces,
            Disaster::SamePlaces,
            Disaster::Scattered,
            Disaster::Scattered,
            Disaster::Wiped,
            Disaster::Superblocks,
        ];
        let mut disaster = self.rng.pick(&ALL);
        // One part can seem able to continue without the other only if the members that the pool
        // can lose are as many as the rest.
        if self.data.len() <= 2 * self.scenario.redundancy.tolerance()
            && self.data.len() > 1
            && self.rng.chance(400)
        {
            disaster = Disaster::WornOut;
        }
        self.create()?;
        let mut cycles = std::mem::take(&mut self.scenario.cycles);
        for cycle in &mut cycles {
            (cycle.faults, cycle.replaces, cycle.returns, cycle.slots_rot) =
                (Vec::new(), false, false, false);
            cycle.end = if cycle.end == End::CrashAndLoss {
                End::Crash
            } else {
                cycle.end
            };
        }
        if let Some(last) = cycles.last_mut() {
            let media = !matches!(
                disaster,
                Disaster::Dying | Disaster::Absent | Disaster::Old | Disaster::WornOut
            );
            last.end = if media { End::Shutdown } else { last.end };
        }
        let mut before = self.world.members.clone();
        let last = cycles.len() - 1;
        for (index, cycle) in cycles.iter().enumerate() {
            if index < last && !self.is_done(|| format!("power cycle {index}")) {
                continue;
            }
            self.begin(cycle)?;
            if index == last && disaster == Disaster::Dying {
                return self.die_in_service(cycle);
            }
            self.work(cycle)?;
            self.end(cycle)?;
            if index < last && self.rng.chance(600) {
                before = self.world.members.clone();
            }
        }
        if disaster == Disaster::WornOut {
            self.wear_out(&before)
        } else {
            self.strike(disaster, &before)
        }
    }

    /// Checks that members which were away do not continue in place of current ones that fail only
    /// now.
    fn wear_out(&mut self, before: &VirtualMembers) -> Result<(), Violation> {
        let mut away = self.data.clone();
        self.rng.shuffle(&mut away);
        let (count, tolerance) = (away.len(), self.scenario.redundancy.tolerance());
        let others = away.split_off(self.rng.between(
            (count - tolerance).max(1) as u64,
            tolerance.min(count - 1) as u64,
        ) as usize);
        let newest = |members: &VirtualMembers, member: &MemberId| {
            newest_generation(members, *member).unwrap_or(0)
        };
        let ruling = others
            .iter()
            .map(|member| newest(&self.world.members, member))
            .max()
            .unwrap_or(0);
        if away
            .iter()
            .any(|member| newest(before, member) + 1 >= ruling)
        {
            return Ok(());
        }
        self.world
            .trace
            .tell(|| format!("disaster: {away:?} have been away, {others:?} are worn out"));
        self.faults += self.data.len() as u64;
        let whole = self.world.members.clone();
        away.iter().for_each(|member| {
            *self.world.members.member_mut(*member) = before.member(*member).clone()
        });
        others
            .iter()
            .for_each(|member| self.world.members.ailment_mut(*member).worn_out = true);
        for force in [false, true] {
            let options = OpenOptions {
                host: self.host,
                read_only: false,
                force,
                discard_journal: false,
                limits: self.scenario.limits,
            };
            let started = self.world.start(&options);
            ensure!(
                matches!(started, Err(StartFailure::Refused(_))),
                Open,
                "{away:?} went on without {others:?} (force: {force})"
            );
        }
        self.beyond.refused += 1;
        // The unwritable ones are unchanged; one of the others may hold the generation of the
        // failed start. The parts they need of the others are back.
        others
            .iter()
            .for_each(|member| self.world.members.ailment_mut(*member).worn_out = false);
        self.clean = false;
        for member in away {
            if self.world.failing_members.len() < self.scenario.redundancy.tolerance() {
                self.note_fault(member, true);
            } else {
                *self.world.members.member_mut(member) = whole.member(member).clone();
            }
        }
        self.begin(&Cycle::idle())?;
        self.compare()?;
        self.rest()?;
        self.shut_down()
    }

    /// One member more than the redundancy covers, or more, but not all if `some_stay`.
    fn victims(&mut self, some_stay: bool) -> Vec<MemberId> {
        let count = self.data.len();
        let least = (self.scenario.redundancy.tolerance() + 1).min(count);
        let most = if some_stay {
            (count - 1).max(least)
        } else {
            count
        };
        let wanted = if self.rng.chance(600) {
            least
        } else {
            self.rng.between(least as u64, most as u64) as usize
        };
        let mut members = self.data.clone();
        self.rng.shuffle(&mut members);
        members.truncate(wanted);
        members
    }

    /// Members fail one after the other under load. The pool stops; when all are back everything
    /// durable is present.
    fn die_in_service(&mut self, cycle: &Cycle) -> Result<(), Violation> {
        self.world.model.lenient = true;
        let victims = self.victims(false);
        self.world
            .trace
            .tell(|| format!("disaster: {victims:?} die in service"));
        let part = Cycle {
            blocks: cycle.blocks / (victims.len() as u64 + 1),
            ..cycle.clone()
        };
        for member in victims {
            self.work(&part)?;
            self.note_fault(member, true);
            self.faults += 1;
            self.world.members.ailment_mut(member).gone = true;
        }
        self.work(&part)?;
        // Nothing hangs: impossible requests are answered with an error.
        self.world
            .run_while("answering in a pool that has stopped", |world| {
                world.unanswered() > 0
            })?;
        self.count_session();
        self.cut_power();
        self.return_members();
        self.world.model.lenient = false;
        self.beyond.started += 1;
        self.begin(&Cycle::idle())?;
        self.rebuild()?;
        self.rest()?;
        self.compare()?;
        self.shut_down()
    }

    fn strike(&mut self, disaster: Disaster, before: &VirtualMembers) -> Result<(), Violation> {
        let victims = self.victims(disaster == Disaster::Old);
        self.world
            .trace
            .tell(|| format!("disaster: {disaster:?} of {victims:?}"));
        self.faults += victims.len() as u64;
        let (whole, before_it) = (self.world.members.clone(), self.ruling_without(None));
        let mut away = self.world.failing_members.clone();
        away.extend(if disaster == Disaster::Superblocks {
            self.data.clone()
        } else {
            victims.clone()
        });
        let is_old = disaster == Disaster::Old && victims.len() == self.data.len();
        // If all members are stale they are a whole pool of that time. An image one generation old
        // cannot be distinguished from a member that a power cut kept from getting the last one;
        // nor can any if the remaining ones have lost the distinguishing slots.
        let newest = |members: &VirtualMembers, member: MemberId| {
            newest_generation(members, member).unwrap_or(0)
        };
        let others = self
            .data
            .iter()
            .copied()
            .filter(|member| !victims.contains(member));
        let ruling = others
            .map(|member| newest(&self.world.members, member))
            .max()
            .unwrap_or(0);
        if is_old
            || (disaster == Disaster::Old
                && victims
                    .iter()
                    .any(|member| newest(before, *member) + 1 >= ruling))
        {
            return Ok(());
        }
        match disaster {
            Disaster::Dying | Disaster::WornOut => {}
            Disaster::Absent => victims
                .iter()
                .for_each(|member| self.world.members.ailment_mut(*member).gone = true),
            Disaster::Old => victims.iter().for_each(|member| {
                *self.world.members.member_mut(*member) = before.member(*member).clone()
            }),
            Disaster::SamePlaces => self.damage_same_places(&victims),
            Disaster::Scattered => self.scatter(&victims),
            Disaster::Wiped => victims.iter().for_each(|member| {
                let size = self.world.members.member(*member).size();
                self.world
                    .members
                    .corrupt(*member, RESERVED_BYTES, size - RESERVED_BYTES);
            }),
            Disaster::Superblocks => self.damage_superblocks(&victims),
        }
        self.world.failing_members = self.data.iter().copied().collect();
        self.world.model.lenient = true;
        let opinion = self.opinion()?;
        for force in [false, true] {
            let options = OpenOptions {
                host: self.host,
                read_only: false,
                force,
                discard_journal: false,
                limits: self.scenario.limits,
            };
            match self.world.start(&options) {
                Ok(report) => {
                    self.beyond.started += 1;
                    let status = self.world.status();
                    self.world
                        .model
                        .reopened(&report, &status, self.newest_lsn)?;
                    self.newest_lsn = status.lsn.0;
                    return self.live_on(&opinion);
                }
                Err(StartFailure::PowerCut) => {
                    return Err(Violation::new(
                        Broken::Open,
                        "the power went, but it was not cut",
                    ));
                }
                Err(StartFailure::Refused(reason)) => {
                    self.world
                        .trace
                        .tell(|| format!("refused (force: {force}): {reason}"));
                    self.world.check_untouched()?;
                    self.check_reason(disaster, &whole, before_it.as_ref(), &away)?;
                    let confirmed = opinion.failure.is_some()
                        || opinion.findings.worst == Some(Severity::Error);
                    ensure!(
                        confirmed || !force,
                        Open,
                        "refused, though an offline check finds nothing beyond repair: {reason}"
                    );
                }
            }
        }
        self.beyond.refused += 1;
        // With everything as before the disaster nothing is lost.
        self.world.members = whole;
        self.world.model.lenient = false;
        self.world.failing_members.clear();
        self.begin(&Cycle::idle())?;
        self.rest()?;
        self.shut_down()
    }

    /// Checks that a refusal names only struck parts: absent members, assigned LSNs, rows damaged
    /// beyond redundancy.
    fn check_reason(
        &self,
        disaster: Disaster,
        whole: &VirtualMembers,
        ruling: Option<&Superblock>,
        away: &BTreeSet<MemberId>,
    ) -> Result<(), Violation> {
        match &self.world.refusal {
            Some(OpenError::Lost(losses)) => {
                check_losses(losses, 0, self.newest_lsn)?;
                // If superblocks are older than the media, so is the state they describe.
                let Some(ruling) =
                    ruling.filter(|_| !matches!(disaster, Disaster::Superblocks | Disaster::Old))
                else {
                    return Ok(());
                };
                Struck {
                    whole,
                    now: &self.world.members,
                    ruling,
                }
                .check_places(losses)
            }
            Some(OpenError::TooManyMissing { missing, which, .. }) => {
                let named = named_members(which);
                ensure!(
                    named.len() == *missing && named.is_subset(away),
                    Open,
                    "{away:?} are away, and {missing} are said to be: {which}"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Report of an offline check on the current members.
    fn opinion(&mut self) -> Result<CheckReport, Violation> {
        let mut copy = self.world.members.clone();
        Ok(check(
            &mut copy,
            &CheckOptions {
                verify_payload: true,
                ..CheckOptions::default()
            },
            &mut |_| (),
        ))
    }

    fn damage_same_places(&mut self, victims: &[MemberId]) {
        let least = victims
            .iter()
            .map(|member| self.world.members.member(*member).size())
            .min()
            .unwrap_or(0);
        let blocks = (least - RESERVED_BYTES) / BLOCK_BYTES;
        for _ in 0..self.rng.between(1, 24) {
            let length = self.rng.pick(&[1, 1, 2, 8, 64]).min(blocks);
            let offset = RESERVED_BYTES + self.rng.below(blocks - length + 1) * BLOCK_BYTES;
            let unreadable = self.rng.chance(300);
            for member in victims {
                self.damage(*member, offset, length * BLOCK_BYTES, unreadable);
            }
        }
    }

    fn scatter(&mut self, victims: &[MemberId]) {
        let share = self.rng.pick(&[2, 10, 50, 200, 600]);
        for member in victims {
            let blocks = (self.world.members.member(*member).size() - RESERVED_BYTES) / BLOCK_BYTES;
            for block in 0..blocks {
                if self.rng.chance(share) {
                    let unreadable = self.rng.chance(300);
                    self.damage(
                        *member,
                        RESERVED_BYTES + block * BLOCK_BYTES,
                        BLOCK_BYTES,
                        unreadable,
                    );
                }
            }
        }
    }

    fn damage(&mut self, member: MemberId, offset: u64, length: u64, unreadable: bool) {
        if unreadable {
            self.world.members.member_mut(member).read_errors.extend(
                (0..length / BLOCK_BYTES).map(|block| (offset + block * BLOCK_BYTES, BLOCK_BYTES)),
            );
        } else {
            self.world.members.corrupt(member, offset, length);
        }
    }

    /// Damages the slots of the newest generations of the victims, or of all members.
    fn damage_superblocks(&mut self, victims: &[MemberId]) {
        let all = self.data.clone();
        let struck = if self.rng.chance(500) {
            all.clone()
        } else {
            victims.to_vec()
        };
        let newest = all
            .iter()
            .flat_map(|member| (0..SLOT_COUNT).map(|slot| self.slot_generation(*member, slot)))
            .max()
            .unwrap_or(0);
        let generations = self.rng.between(1, SLOT_COUNT);
        for member in struck {
            for back in 0..generations {
                let slot = (newest + SLOT_COUNT - back) % SLOT_COUNT;
                self.world.members.corrupt(
                    member,
                    SLOT_OFFSET + slot * SLOT_STRIDE,
                    SLOT_BYTES as u64,
                );
            }
        }
    }

    /// Checks a pool that is up: losses are exactly known, everything else is right, and rewritten
    /// blocks are readable.
    fn live_on(&mut self, opinion: &CheckReport) -> Result<(), Violation> {
        let lost = self.read_singly()?;
        self.beyond.lost += lost.len() as u64;
        let blocks = |wrong: &dyn Fn(&Finding) -> bool| -> BTreeSet<(VolumeId, u64)> {
            let found = opinion
                .findings
                .list
                .iter()
                .filter(|finding| finding.severity == Severity::Error && wrong(finding));
            found
                .filter_map(|finding| Some((finding.volume?, finding.lba?.0)))
                .collect()
        };
        // If a batch has lost its table the check names all its blocks, whether they are readable
        // or not.
        let (least, most) = (
            blocks(&|finding| finding.kind == FindingKind::BlockWrong),
            blocks(&|_| true),
        );
        let (least, most) = (self.of_users(least), self.of_users(most));
        let errors = || {
            opinion
                .findings
                .list
                .iter()
                .filter(|finding| finding.severity == Severity::Error)
                .map(|finding| &finding.message)
                .collect::<Vec<_>>()
        };
        ensure!(
            opinion.failure.is_none(),
            Check,
            "the pool started, but an offline check cannot be made: {:?}, {:?}",
            opinion.failure,
            errors()
        );
        let (readable, more) = (
            least.difference(&lost).collect::<Vec<_>>(),
            lost.difference(&most).collect::<Vec<_>>(),
        );
        ensure!(
            readable.is_empty(),
            Check,
            "an offline check finds beyond repair what can be read: {readable:?}"
        );
        ensure!(
            more.is_empty(),
            Check,
            "unreadable, but an offline check finds nothing wrong: {more:?}"
        );
        // An interrupted scrub would resume where it was.
        self.world.command(Control::Scrub(ScrubCommand::Stop));
        self.world
            .run_while("stopping a scrub", |world| world.unanswered() > 0)?;
        loop {
            // The previous scrub finishes its pending work first: until then a new one is refused
            // (seed 60383).
            self.world.let_time_pass(1_000_000);
            self.world
                .run_while("a scrub that ends", |world| world.under_way() > 0)?;
            self.world.told_lost.clear();
            self.world.command(Control::Scrub(ScrubCommand::Start {
                unix_s: 0,
                bytes_per_second: 0,
            }));
            self.world
                .run_while("starting a scrub", |world| world.unanswered() > 0)?;
            if self.world.status().scrub.state != ScrubState::Stopped {
                break;
            }
        }
        self.world.run_while("scrubbing", |world| {
            world.unanswered() > 0 || world.status().scrub.state == ScrubState::Running
        })?;
        let scrub = self.world.status().scrub;
        let told = std::mem::take(&mut self.world.told_lost);
        ensure!(
            told.len() as u64 == scrub.lost_blocks,
            Accounting,
            "{} blocks reported as lost, {} counted",
            told.len(),
            scrub.lost_blocks
        );
        let told = self.of_users(told);
        ensure!(
            told.is_subset(&lost),
            Content,
            "a scrub calls lost {:?}, which can be read",
            told.difference(&lost).collect::<Vec<_>>()
        );
        self.beyond.damaged_batches += scrub.damaged_batches;
        // A scrub has the whole batch: it knows head, tail and padding of a row, and recovers
        // blocks that a read alone could not.
        let lost = self.read_singly()?;
        ensure!(
            told == lost,
            Content,
            "a scrub calls lost {told:?}, unreadable are {lost:?}: {scrub:?}"
        );
        let refused_before = self.world.model.refused;
        for (number, (volume, lba)) in (0..).zip(&lost) {
            self.world.submit(
                *volume,
                Asked::Write {
                    at: lba * 8,
                    count: 8,
                    stamps: vec![u64::MAX / 5 + number],
                    fua: false,
                },
            );
            self.world
                .run_while("writing again", |world| world.unanswered() > 64)?;
        }
        self.world
            .run_while("writing again", |world| world.unanswered() > 0)?;
        // A pool that damage keeps full may refuse a write (the model checks that), but no trim
        // (seed 3587062853).
        let (left, refused) = (
            self.read_singly()?,
            self.world.model.refused - refused_before,
        );
        ensure!(
            left.len() as u64 == refused,
            Content,
            "written again, and {refused} of them refused, but unreadable: {left:?}"
        );
        for (volume, lba) in &left {
            self.world.submit(
                *volume,
                Asked::Zero {
                    at: lba * 8,
                    count: 8,
                    no_hole: None,
                    fua: false,
                },
            );
            self.world
                .run_while("trimming what is lost", |world| world.unanswered() > 64)?;
        }
        self.world
            .run_while("trimming what is lost", |world| world.unanswered() > 0)?;
        let left = self.read_singly()?;
        ensure!(
            left.is_empty(),
            Content,
            "written again or trimmed, but unreadable: {left:?}"
        );
        self.rest()?;
        self.shut_down()?;
        self.world.model.lenient = false;
        let options = OpenOptions {
            host: self.host,
            read_only: false,
            force: true,
            discard_journal: false,
            limits: self.scenario.limits,
        };
        let report = self.world.start(&options).map_err(|failure| {
            Violation::new(Broken::Open, format!("not whole again: {failure:?}"))
        })?;
        self.opened(&report)?;
        self.compare()?;
        self.rest()?;
        if self.has_room_for_repairs() {
            self.scrub(true)?;
        }
        self.rest()?;
        self.shut_down()
    }

    /// The same blocks, with lost shared content (reported by its id) replaced by the blocks of
    /// volumes that refer to it.
    fn of_users(&self, blocks: BTreeSet<(VolumeId, u64)>) -> BTreeSet<(VolumeId, u64)> {
        let is_shared = |block: &(VolumeId, u64)| block.0 == VolumeId::SHARED;
        // Pages of the index hold no user data.
        let blocks = blocks
            .into_iter()
            .filter(|block| block.0 != VolumeId::INDEX);
        let (ids, mut own): (BTreeSet<_>, BTreeSet<_>) = blocks.partition(is_shared);
        for (volume, content) in self
            .world
            .model
            .volumes()
            .iter()
            .filter(|_| !ids.is_empty())
        {
            let referred = self
                .world
                .content_ids(*volume, 0..content.blocks.len() as u64);
            own.extend(
                (0..)
                    .zip(referred)
                    .filter(|(_, id)| id.is_some_and(|id| ids.contains(&(VolumeId::SHARED, id))))
                    .map(|(lba, _)| (*volume, lba)),
            );
        }
        own
    }

    /// Reads every block by itself; returns the unreadable ones.
    fn read_singly(&mut self) -> Result<BTreeSet<(VolumeId, u64)>, Violation> {
        self.world.unreadable.clear();
        let volumes: Vec<_> = self
            .world
            .model
            .volumes()
            .iter()
            .map(|(id, volume)| (*id, volume.blocks.len() as u64))
            .collect();
        for (id, blocks) in volumes {
            for block in 0..blocks {
                self.world.read_back(id, block, 1);
                if self.world.unanswered() >= 64 {
                    self.world
                        .run_while("reading block by block", |world| world.unanswered() >= 32)?;
                }
            }
        }
        self.world
            .run_while("reading block by block", |world| world.unanswered() > 0)?;
        Ok(std::mem::take(&mut self.world.unreadable))
    }
}

/// Newest generation on a member.
fn newest_generation(members: &VirtualMembers, member: MemberId) -> Option<u64> {
    let mut bytes = vec![0; SLOT_BYTES];
    let mut slot = |slot: u64| {
        members
            .member(member)
            .read(SLOT_OFFSET + slot * SLOT_STRIDE, &mut bytes);
        Superblock::decode(&bytes)
            .ok()
            .map(|superblock| superblock.generation.0)
    };
    (0..SLOT_COUNT).filter_map(&mut slot).max()
}
