//! Sending member commands. Each has a class (its purpose) and is sent at once or held back
//! (`scheduler.rs`). It is counted when it is sent, and returns exactly once:
//!
//! - from its member;
//! - as failed without having been sent, when the member is out of use or the pool has stopped;
//! - as failed although it was sent, when its member was taken out of service. Then it is
//!   *disowned*, and its later completion is dropped.

use super::scheduler::{self, Class, Load, Scheduler};
use super::{Purpose, add};
use crate::api::{Limits, WrittenBytes};
use crate::base::fault_injection::InjectedBug;
use crate::base::limits::{USERS_ABOUT_NS, is_user};
use crate::base::stages::Stage;
use crate::store::events::Outbox;
use crate::store::member::Members;
use crate::store::pool::Pool;
use crate::store::{Drives, Observe, Store};
use std::collections::{BTreeSet, VecDeque};
use windrow_io::{Buf, IoTag, MemberCommand, MemberDone, MemberOp};
use windrow_types::MemberId;

/// A command in the table of those in flight or held.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) member: MemberId,
    pub(crate) purpose: Purpose,
    pub(crate) class: Class,
    pub(crate) cost: u64,
    /// Time at which it was sent; `u64::MAX` while it is held back.
    pub(crate) went_ns: u64,
}

/// A held command, and the accounting of its bytes.
#[derive(Debug)]
pub(crate) struct HeldCommand {
    command: MemberCommand,
    written: WrittenBytes,
}

/// State of sending.
#[derive(Debug)]
pub(crate) struct Schedule {
    lanes: Scheduler<HeldCommand>,
    /// Commands to send at the end of this `apply`, by class.
    going: [Vec<MemberCommand>; Class::ALL.len()],
    /// Commands that will not be sent and are to end as failed.
    cancelled: VecDeque<MemberCommand>,
    /// Commands to devices that are being exchanged, kept back.
    frozen: Vec<(MemberCommand, Class, WrittenBytes)>,
    /// Commands that were sent and are not awaited any more: to end as failed.
    disowned: VecDeque<(MemberId, Purpose)>,
    /// Time of the last read or flush of a client.
    prompt_ns: Option<u64>,
}

impl Schedule {
    /// A schedule with nothing in flight.
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

    /// Number of held commands.
    pub(crate) fn held(&self) -> usize {
        self.lanes.held()
    }

    /// See [`Scheduler::self_check`].
    pub(crate) fn self_check(&self) -> Result<(), String> {
        self.lanes.self_check()
    }

    /// State in one line, for diagnosis.
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

    /// True if all commands in flight are disowned.
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

impl Drives {
    /// Sends and counts a command. To a device that is being exchanged it is sent later.
    pub(crate) fn go(
        &mut self,
        pool: &Pool,
        command: MemberCommand,
        class: Class,
        written: &WrittenBytes,
    ) {
        if self.exchanges.is_frozen(command.member) {
            return self.scheduler.frozen.push((command, class, *written));
        }
        if let Some(under_way) = self.members.in_flight.get_mut(command.tag.0 as u32) {
            under_way.went_ns = pool.now_ns;
        }
        let stats = &mut self.members.list[command.member.index()].stats;
        match &command.op {
            MemberOp::Read { buf, .. } => stats.read_bytes += buf.len() as u64,
            MemberOp::Flush => stats.flushes += 1,
            MemberOp::Discard { length, .. } => stats.discarded_bytes += length,
            MemberOp::Write { .. } => add(&mut stats.written, written),
        }
        self.scheduler.going[class as usize].push(command);
    }

    /// Notes a read or flush of a client.
    pub(crate) fn note_prompt(&mut self, pool: &Pool) {
        self.scheduler.prompt_ns = Some(pool.now_ns);
        let load = Load {
            users: true,
            prompt: true,
            ..self.scheduler.lanes.load()
        };
        self.scheduler.lanes.set_load(load);
    }

    /// Ends an exchange of devices: commands kept back are sent in their order. Those to `gone`
    /// will end as failed.
    pub(crate) fn thaw(&mut self, pool: &Pool, gone: Option<MemberId>) {
        for (command, class, written) in std::mem::take(&mut self.scheduler.frozen) {
            match gone {
                Some(gone) if gone == command.member => {
                    self.scheduler.cancel_frozen(command, class)
                }
                _ => self.go(pool, command, class, &written),
            }
        }
    }

    /// The device of `from` now is in the slot of `to`. A column or record that waits for `from`
    /// only has already reached the previous device of `to`, so it is sent to the new one. All
    /// other waiting commands will end as failed.
    pub(crate) fn move_held(&mut self, pool: &Pool, from: MemberId, to: MemberId) {
        let offset_of = |command: &MemberCommand| match command.op {
            MemberOp::Write { offset, .. } => Some(offset),
            _ => None,
        };
        let frozen = self
            .scheduler
            .frozen
            .iter()
            .map(|(command, ..)| command)
            .filter(|command| command.member == to);
        let held = self.scheduler.lanes.held_for(to).map(|held| &held.command);
        let waits: BTreeSet<u64> = frozen.chain(held).filter_map(offset_of).collect();
        let (frozen, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.scheduler.frozen)
            .into_iter()
            .partition(|(command, ..)| command.member == from);
        self.scheduler.frozen = rest;
        for (command, class, _) in &frozen {
            self.scheduler
                .lanes
                .end(from, *class, scheduler::cost(&command.op));
        }
        let held = self
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
                .members
                .in_flight
                .get_mut(command.tag.0 as u32)
                .filter(|_| wanted)
            else {
                self.scheduler.cancelled.push_back(command);
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
                    self.scheduler.cancelled.push_back(command);
                    continue;
                }
            }
            (under_way.member, command.member) = (to, to);
            let (class, cost) = (under_way.class, under_way.cost);
            self.members.list[from.index()].in_flight -= 1;
            self.members.list[to.index()].in_flight += 1;
            if self.scheduler.lanes.begin(to, class, cost) {
                self.go(pool, command, class, &written);
            } else {
                self.scheduler.lanes.hold(
                    to,
                    class,
                    cost,
                    pool.now_ns,
                    HeldCommand { command, written },
                );
            }
        }
    }

    /// Disowns all commands sent to a member that is being taken out of service: they will end as
    /// failed. Their numbers stay in use until they return.
    pub(crate) fn disown(&mut self, observe: &Observe, member: MemberId) {
        self.scheduler.cancel_held(member);
        if observe.bug == InjectedBug::KeptWaiting {
            return;
        }
        let cancelled: BTreeSet<u64> = self
            .scheduler
            .cancelled
            .iter()
            .map(|command| command.tag.0)
            .collect();
        for (number, under_way) in self.members.in_flight.iter_mut() {
            if under_way.member != member
                || under_way.purpose.is_disowned()
                || cancelled.contains(&u64::from(number))
            {
                continue;
            }
            let changes = !under_way.purpose.is_read();
            let purpose = std::mem::replace(&mut under_way.purpose, Purpose::Disowned { changes });
            self.members.list[member.index()].disowned += 1;
            self.scheduler.disowned.push_back((member, purpose));
        }
    }

    /// Cancels all commands that have not been sent: the pool has stopped.
    pub(crate) fn cancel_all_held(&mut self) {
        (0..self.members.list.len() as u8)
            .for_each(|member| self.scheduler.cancel_held(MemberId(member)));
    }
}

impl Store {
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
            return self.drives.go(&self.pool, command, class, written);
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

    /// Scheduling class of a command.
    fn class_of(&self, purpose: &Purpose) -> Class {
        match purpose {
            Purpose::Fetch { fetch, .. } if self.reads.is_fetch_of_user(*fetch) => Class::Read,
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
}

impl Drives {
    /// Takes a command that has come back off the list: its purpose. `None`: it is not on it.
    #[inline]
    pub(crate) fn came_back(&mut self, done: &MemberDone) -> Option<Purpose> {
        let under_way = self.members.in_flight.remove(done.tag.0 as u32)?;
        self.scheduler.leave_lane(done.member, &under_way);
        let member = &mut self.members.list[done.member.index()];
        member.in_flight -= 1;
        if under_way.purpose.is_disowned() {
            member.disowned -= 1;
        }
        Some(under_way.purpose)
    }

    /// True if commands have ended without coming back.
    pub(crate) fn has_cancelled(&self) -> bool {
        !(self.scheduler.cancelled.is_empty() && self.scheduler.disowned.is_empty())
    }

    /// The next command to a device that is given up.
    pub(crate) fn next_disowned(&mut self) -> Option<(MemberId, Purpose)> {
        self.scheduler.disowned.pop_front()
    }

    /// The next cancelled command; its purpose, if it is still on the list.
    #[inline]
    pub(crate) fn next_cancelled(&mut self) -> Option<(MemberId, Option<Purpose>)> {
        let MemberCommand { member, tag, .. } = self.scheduler.cancelled.pop_front()?;
        let under_way = self.members.in_flight.remove(tag.0 as u32);
        if under_way.is_some() {
            self.members.list[member.index()].in_flight -= 1;
        }
        Some((member, under_way.map(|under_way| under_way.purpose)))
    }

    /// Sets the load that decides how many commands of each class are sent. `short`: work in the
    /// background is urgent.
    pub(crate) fn set_load(&mut self, pool: &Pool, observe: &Observe, short: bool) {
        let prompt = self
            .scheduler
            .prompt_ns
            .is_some_and(|at| pool.now_ns < at + USERS_ABOUT_NS);
        self.scheduler.lanes.set_load(Load {
            users: observe.users.are_about(pool.now_ns),
            prompt,
            short,
        });
    }

    /// Releases held commands that may be sent.
    pub(crate) fn send_held(&mut self, pool: &Pool, observe: &mut Observe) {
        while let Some((HeldCommand { command, written }, class, since_ns)) =
            self.scheduler.lanes.next()
        {
            observe.stages.record(
                if class == Class::Foreground {
                    Stage::HeldForeground
                } else {
                    Stage::HeldBackground
                },
                since_ns,
                pool.now_ns,
            );
            self.go(pool, command, class, &written);
        }
    }

    /// Sends everything by class.
    pub(crate) fn send_all(&mut self, out: &mut Outbox) {
        for going in &mut self.scheduler.going {
            out.commands.append(going);
        }
    }
}
