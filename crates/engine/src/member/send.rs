//! Member commands on their way: each has a class (what it is for), goes at once or is held back
//! (`scheduler.rs`), is counted when it goes, and comes back exactly once: from its member, or as
//! failed without having gone when the member is out of use or the pool has stopped, or as failed
//! although it has gone, when its member was taken out of service: then it is *disowned*, and what
//! comes of it later is dropped.

use super::scheduler::{self, Class, Load, Scheduler};
use super::{Purpose, add};
use crate::limits::{USERS_ABOUT_NS, is_user};
use crate::member::Members;
use crate::stages::Stage;
use crate::write::EDGE_UNITS;
use crate::{Engine, InjectedFault, Limits, Outbox, WrittenBytes};
use std::collections::{BTreeSet, VecDeque};
use windrow_io::{Buf, IoTag, MemberCommand, MemberOp};
use windrow_types::MemberId;

/// A command in the table of those under way or held.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(super) member: MemberId,
    pub(super) purpose: Purpose,
    pub(super) class: Class,
    pub(super) cost: u64,
    /// When it went to its member; `u64::MAX` while it is held back.
    pub(super) went_ns: u64,
}

/// A command that is held back, and what it will write.
#[derive(Debug)]
pub(crate) struct HeldCommand {
    command: MemberCommand,
    written: WrittenBytes,
}

/// State of dispatching.
#[derive(Debug)]
pub(crate) struct Schedule {
    lanes: Scheduler<HeldCommand>,
    /// What goes at the end of this `apply`, by class.
    going: [Vec<MemberCommand>; Class::ALL.len()],
    /// What will not go any more and is to end as failed.
    cancelled: VecDeque<MemberCommand>,
    /// What would go, to devices that are being exchanged.
    frozen: Vec<(MemberCommand, Class, WrittenBytes)>,
    /// What went and is not waited for any more: is to end as failed.
    disowned: VecDeque<(MemberId, Purpose)>,
    /// When a user read or flushed last.
    prompt_ns: Option<u64>,
}

impl Schedule {
    /// With nothing on its way.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            lanes: Scheduler::new(limits),
            going: Default::default(),
            cancelled: VecDeque::new(),
            frozen: Vec::new(),
            disowned: VecDeque::new(),
            prompt_ns: None,
        }
    }

    /// Commands that are held back.
    pub(crate) fn held(&self) -> usize {
        self.lanes.held()
    }

    /// See [`Scheduler::self_check`].
    pub(crate) fn self_check(&self) -> Result<(), String> {
        self.lanes.self_check()
    }

    /// One line for a diagnosis.
    pub(crate) fn describe(&self) -> String {
        self.lanes.describe()
    }
}

impl Members {
    /// True if nothing is under way that changes what is on a device, in service or not.
    pub(crate) fn changes_have_ended(&self) -> bool {
        self.in_flight
            .iter()
            .all(|under_way| under_way.purpose.is_read())
    }

    /// True if no command is under way that somebody waits for.
    pub(crate) fn commands_have_ended(&self) -> bool {
        self.in_flight
            .iter()
            .all(|under_way| under_way.purpose.is_disowned())
    }
}

impl Schedule {
    /// A command has ended, or will not go.
    pub(crate) fn leave_lane(&mut self, member: MemberId, under_way: &UnderWay) {
        self.lanes.end(member, under_way.class, under_way.cost);
    }

    pub(crate) fn cancel_frozen(&mut self, command: MemberCommand, class: Class) {
        self.lanes
            .end(command.member, class, scheduler::cost(&command.op));
        self.cancelled.push_back(command);
    }

    /// Nothing goes to a member any more: what is held for it will end as failed.
    pub(crate) fn cancel_held(&mut self, member: MemberId) {
        let frozen = std::mem::take(&mut self.frozen);
        let (frozen, rest): (Vec<_>, Vec<_>) = frozen
            .into_iter()
            .partition(|(command, ..)| command.member == member);
        self.frozen = rest;
        for (command, class, _) in frozen {
            self.cancel_frozen(command, class);
        }
        let cancelled = self.lanes.cancel(member);
        self.cancelled
            .extend(cancelled.into_iter().map(|held| held.command));
    }
}

impl Engine {
    /// Sends a write.
    pub(crate) fn send_write(
        &mut self,
        member: MemberId,
        offset: u64,
        buf: Buf,
        purpose: Purpose,
        written: &WrittenBytes,
        out: &mut Outbox,
    ) {
        debug_assert_eq!(written.total(), buf.len() as u64);
        self.send_counted(
            member,
            MemberOp::Write { offset, buf },
            purpose,
            written,
            out,
        );
    }

    /// Sends any other command.
    pub(crate) fn send(
        &mut self,
        member: MemberId,
        op: MemberOp,
        purpose: Purpose,
        out: &mut Outbox,
    ) {
        self.send_counted(member, op, purpose, &WrittenBytes::default(), out);
    }

    fn send_counted(
        &mut self,
        member: MemberId,
        op: MemberOp,
        purpose: Purpose,
        written: &WrittenBytes,
        _out: &mut Outbox,
    ) {
        let (class, cost) = (self.class_of(&purpose), scheduler::cost(&op));
        self.drives.members.list[member.index()].in_flight += 1;
        let tag = IoTag(u64::from(self.drives.members.in_flight.insert(UnderWay {
            member,
            purpose,
            class,
            cost,
            went_ns: u64::MAX,
        })));
        let command = MemberCommand { member, tag, op };
        if self.drives.scheduler.lanes.begin(member, class, cost) {
            return self.go(command, class, written);
        }
        self.drives.scheduler.lanes.hold(
            member,
            class,
            cost,
            self.pool.now_ns,
            HeldCommand {
                command,
                written: *written,
            },
        );
    }

    /// What a command is for, as far as its turn goes.
    fn class_of(&self, purpose: &Purpose) -> Class {
        match purpose {
            Purpose::Fetch { fetch, .. } if self.is_fetch_of_user(*fetch) => Class::Read,
            Purpose::Flush
            | Purpose::JournalWrite
            | Purpose::JournalFlush
            | Purpose::SuperblockWrite
            | Purpose::SuperblockFlush => Class::Journal,
            Purpose::BatchWrite { stream, .. } | Purpose::ShadowWrite { stream, .. }
                if is_user(*stream) =>
            {
                Class::Foreground
            }
            Purpose::BatchWrite { .. }
            | Purpose::ShadowWrite { .. }
            | Purpose::Fetch { .. }
            | Purpose::Verify { .. }
            | Purpose::Rebuild { .. }
            | Purpose::Label(_)
            | Purpose::Discard { .. }
            | Purpose::Disowned { .. } => Class::Background,
        }
    }

    /// A command goes: it is counted. To a device that is being exchanged it goes later.
    fn go(&mut self, command: MemberCommand, class: Class, written: &WrittenBytes) {
        if self.drives.exchanges.is_frozen(command.member) {
            return self
                .drives
                .scheduler
                .frozen
                .push((command, class, *written));
        }
        if let Some(under_way) = self.drives.members.in_flight.get_mut(command.tag.0 as u32) {
            under_way.went_ns = self.pool.now_ns;
        }
        let stats = &mut self.drives.members.list[command.member.index()].stats;
        match &command.op {
            MemberOp::Read { buf, .. } => stats.read_bytes += buf.len() as u64,
            MemberOp::Flush => stats.flushes += 1,
            MemberOp::Discard { length, .. } => stats.discarded_bytes += length,
            MemberOp::Write { .. } => add(&mut stats.written, written),
        }
        self.drives.scheduler.going[class as usize].push(command);
    }

    /// A user reads or flushes.
    pub(crate) fn note_prompt(&mut self) {
        self.drives.scheduler.prompt_ns = Some(self.pool.now_ns);
        let load = Load {
            users: true,
            prompt: true,
            ..self.drives.scheduler.lanes.load()
        };
        self.drives.scheduler.lanes.set_load(load);
    }

    /// Looks who is about: at the begin of `apply`, and at its end.
    pub(crate) fn look_at_load(&mut self) {
        let prompt = self
            .drives
            .scheduler
            .prompt_ns
            .is_some_and(|at| self.pool.now_ns < at + USERS_ABOUT_NS);
        // Who waits while there is room waits for the members, and cleaning does not help.
        let no_room = || {
            self.admission.pace.per_1024().is_some()
                || self.room_units() < EDGE_UNITS
                || !self.is_settled_after_start()
        };
        let short = (self.wants_room() && no_room())
            || self.durability.checkpoint.wants_segment()
            || self.admin.control.shutting_down();
        self.drives.scheduler.lanes.set_load(Load {
            users: self.observe.users.are_about(self.pool.now_ns),
            prompt,
            short,
        });
    }

    /// Devices that were being exchanged are where they belong: what was kept back goes, in its
    /// order. What was for `gone` will end as failed.
    pub(super) fn thaw(&mut self, gone: Option<MemberId>) {
        for (command, class, written) in std::mem::take(&mut self.drives.scheduler.frozen) {
            match gone {
                Some(gone) if gone == command.member => {
                    self.drives.scheduler.cancel_frozen(command, class)
                }
                _ => self.go(command, class, &written),
            }
        }
    }

    /// The device of `from` is in the place of `to` from now on. What waits for it there, and `to`
    /// does not wait for as well, is a column or record that only the device before has got: it
    /// goes to the new one. All else that waits will end as failed.
    pub(super) fn move_held(&mut self, from: MemberId, to: MemberId) {
        let offset_of = |command: &MemberCommand| match command.op {
            MemberOp::Write { offset, .. } => Some(offset),
            _ => None,
        };
        let frozen = self
            .drives
            .scheduler
            .frozen
            .iter()
            .map(|(command, ..)| command)
            .filter(|command| command.member == to);
        let held = self
            .drives
            .scheduler
            .lanes
            .held_for(to)
            .map(|held| &held.command);
        let waits: BTreeSet<u64> = frozen.chain(held).filter_map(offset_of).collect();
        let (frozen, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.drives.scheduler.frozen)
            .into_iter()
            .partition(|(command, ..)| command.member == from);
        self.drives.scheduler.frozen = rest;
        for (command, class, _) in &frozen {
            self.drives
                .scheduler
                .lanes
                .end(from, *class, scheduler::cost(&command.op));
        }
        let held = self
            .drives
            .scheduler
            .lanes
            .cancel(from)
            .into_iter()
            .map(|held| (held.command, held.written));
        for (mut command, written) in frozen
            .into_iter()
            .map(|(command, _, written)| (command, written))
            .chain(held)
        {
            let wanted = offset_of(&command).is_some_and(|offset| !waits.contains(&offset));
            let Some(under_way) = self
                .drives
                .members
                .in_flight
                .get_mut(command.tag.0 as u32)
                .filter(|_| wanted)
            else {
                self.drives.scheduler.cancelled.push_back(command);
                continue;
            };
            match under_way.purpose {
                Purpose::ShadowWrite {
                    stream,
                    seq,
                    column,
                } => {
                    under_way.purpose = Purpose::BatchWrite {
                        stream,
                        seq,
                        column,
                    }
                }
                Purpose::JournalWrite => {}
                _ => {
                    self.drives.scheduler.cancelled.push_back(command);
                    continue;
                }
            }
            (under_way.member, command.member) = (to, to);
            let (class, cost) = (under_way.class, under_way.cost);
            self.drives.members.list[from.index()].in_flight -= 1;
            self.drives.members.list[to.index()].in_flight += 1;
            if self.drives.scheduler.lanes.begin(to, class, cost) {
                self.go(command, class, &written);
            } else {
                self.drives.scheduler.lanes.hold(
                    to,
                    class,
                    cost,
                    self.pool.now_ns,
                    HeldCommand { command, written },
                );
            }
        }
    }

    /// Nothing that went to a member is waited for any more, as it is being taken out of service:
    /// it will end as failed. Its number stays taken until it comes back.
    pub(crate) fn disown(&mut self, member: MemberId) {
        self.drives.scheduler.cancel_held(member);
        if self.observe.fault == InjectedFault::KeptWaiting {
            return;
        }
        let cancelled: BTreeSet<u64> = self
            .drives
            .scheduler
            .cancelled
            .iter()
            .map(|command| command.tag.0)
            .collect();
        for (number, under_way) in self.drives.members.in_flight.iter_mut() {
            if under_way.member != member
                || under_way.purpose.is_disowned()
                || cancelled.contains(&u64::from(number))
            {
                continue;
            }
            let changes = !under_way.purpose.is_read();
            let purpose = std::mem::replace(&mut under_way.purpose, Purpose::Disowned { changes });
            self.drives.members.list[member.index()].disowned += 1;
            self.drives.scheduler.disowned.push_back((member, purpose));
        }
    }

    /// Nothing that has not gone goes any more: the pool has stopped.
    pub(crate) fn cancel_all_held(&mut self) {
        (0..self.drives.members.list.len() as u8)
            .for_each(|member| self.drives.scheduler.cancel_held(MemberId(member)));
    }

    /// Ends what was cancelled or disowned; true if there was something.
    pub(crate) fn end_cancelled(&mut self, out: &mut Outbox) -> bool {
        let any = !(self.drives.scheduler.cancelled.is_empty()
            && self.drives.scheduler.disowned.is_empty());
        while let Some((member, purpose)) = self.drives.scheduler.disowned.pop_front() {
            match purpose {
                // Nothing follows: what is not known to be wrong is not to be written, nor told of.
                Purpose::Label(_) => self.integrity.scrub.label_given_up(),
                purpose => self.command_ended(member, purpose, None, true, out),
            }
        }
        while let Some(MemberCommand { member, tag, .. }) =
            self.drives.scheduler.cancelled.pop_front()
        {
            if let Some(UnderWay { purpose, .. }) =
                self.drives.members.in_flight.remove(tag.0 as u32)
            {
                self.drives.members.list[member.index()].in_flight -= 1;
                self.command_ended(member, purpose, None, true, out);
            }
        }
        any
    }

    /// The end of an `apply`: what is held and may go goes, and everything leaves by class.
    pub(crate) fn scheduler(&mut self, out: &mut Outbox) {
        if self.drives.scheduler.held() > 0 {
            self.look_at_load();
            while let Some((HeldCommand { command, written }, class, since_ns)) =
                self.drives.scheduler.lanes.next()
            {
                self.observe.stages.record(
                    if class == Class::Foreground {
                        Stage::HeldForeground
                    } else {
                        Stage::HeldBackground
                    },
                    since_ns,
                    self.pool.now_ns,
                );
                self.go(command, class, &written);
            }
        }
        for going in &mut self.drives.scheduler.going {
            out.commands.append(going);
        }
    }
}
