//! Member commands reach the members through a queue of the kernel, or as tasks of this process.

use std::sync::{Arc, RwLock};
use windrow_device::Member;
use windrow_device::queue::Members as MemberTable;
use windrow_device::{DeviceError, MemberKind};
use windrow_engine::Event;
use windrow_engine::Job;
use windrow_io::{MemberCommand, MemberDone, MemberOp};
use windrow_types::MemberId;

/// Members as tasks use them: only those whose operations never block (memory).
pub(crate) struct Members {
    table: RwLock<MemberTable>,
}

impl Members {
    /// Members of this table.
    pub(crate) fn new(table: MemberTable) -> Self {
        Self {
            table: RwLock::new(table),
        }
    }

    /// Replaces a member's device.
    pub(crate) fn exchange(&self, member: MemberId, device: Option<Arc<dyn Member>>) {
        let mut table = self
            .table
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if table.len() <= member.index() {
            table.resize(member.index() + 1, None);
        }
        table[member.index()] = device;
    }

    /// The device in a member's slot.
    pub(crate) fn device(&self, member: MemberId) -> Option<Arc<dyn Member>> {
        self.table
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .get(member.index())
            .cloned()
            .flatten()
    }

    /// All devices, by member.
    pub(crate) fn all(&self) -> MemberTable {
        self.table
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    /// True if no operation takes longer than copying the bytes.
    pub(crate) fn are_memory(table: &MemberTable) -> bool {
        table
            .iter()
            .flatten()
            .all(|member| member.info().kind == MemberKind::Memory && member.raw_fd().is_none())
    }

    /// Rough cost of a command, comparable to `Job::bytes`.
    pub(crate) fn weight(&self, command: &MemberCommand) -> usize {
        match &command.op {
            MemberOp::Read { buf, .. } | MemberOp::Write { buf, .. } => buf.len(),
            MemberOp::Flush | MemberOp::Discard { .. } => 0,
        }
    }

    /// Carries out a command.
    pub(crate) fn execute(&self, command: MemberCommand) -> MemberDone {
        let MemberCommand { member, tag, op } = command;
        let device = self.device(member);
        let with = |operation: &mut dyn FnMut(&dyn Member) -> Result<(), DeviceError>| match &device
        {
            Some(target) => operation(&**target),
            None => Err(DeviceError::gone(0)),
        };
        let (buf, result) = match op {
            MemberOp::Read { offset, mut buf } => {
                let result = with(&mut |target| target.read_at(offset, &mut buf));
                (Some(buf), result)
            }
            MemberOp::Write { offset, buf } => {
                let result = with(&mut |target| target.write_at(offset, &buf));
                (Some(buf), result)
            }
            MemberOp::Flush => (None, with(&mut |target| target.flush())),
            MemberOp::Discard { offset, length } => {
                (None, with(&mut |target| target.discard(offset, length)))
            }
        };
        MemberDone {
            member,
            tag,
            buf,
            result: result.map_err(|error| error.of(member)),
        }
    }
}

/// Work that can be done by any thread.
pub(crate) enum Task {
    /// A job of the engine.
    Job(Job),
    /// A command for members without a queue of their own.
    Command(MemberCommand),
}

impl Task {
    /// Does the work and returns the resulting event.
    pub(crate) fn run(self, members: &Members) -> Event {
        match self {
            Self::Job(mut job) => {
                job.run();
                Event::Job(job)
            }
            Self::Command(command) => Event::Member(members.execute(command)),
        }
    }
}
