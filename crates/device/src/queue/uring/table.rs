//! Table of the commands that the kernel holds, and of those that wait for a slot (`waiting.rs`).
//!
//! A slot owns its command, and with it the buffer, from before the submission until its completion
//! has been taken. The slot's index is the `user_data` of the entry. The number of slots bounds the
//! commands in the kernel.

use super::MemberRecord;
use crate::DeviceError;
use crate::member::Member;
use crate::queue::waiting::Waiting;
use crate::queue::{Members, finished, put_device};
use io_uring::{opcode, squeue, types};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use windrow_io::{MemberCommand, MemberDone, MemberOp};
use windrow_types::MemberId;

/// Limit of restarts of one command that the kernel rejects (`EAGAIN`, `EINTR`, `ECANCELED`).
const RETRIES_MAX: u32 = 4096;
/// From this many on the reaper pauses before it restarts a command.
pub(super) const RETRIES_WITHOUT_PAUSE: u32 = 16;

struct Slot {
    command: MemberCommand,
    fd: RawFd,
    /// Offsets at which a short transfer may be resumed are multiples of this.
    sector: usize,
    /// Bytes transferred so far.
    progress: usize,
    retries: u32,
}

/// Effect of a completion on its command.
pub(super) enum Outcome {
    /// Finished.
    Done(MemberDone),
    /// Short, or rejected by the kernel: to be started again with this entry, after this number of
    /// retries.
    Again(squeue::Entry, u32),
}

pub(super) struct Table {
    /// A member stays here while a slot or a waiting command names it, which keeps its descriptor
    /// open.
    pub(super) members: Members,
    pub(super) records: Vec<Option<MemberRecord>>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    pub(super) waiting: Waiting,
    /// By member: a flush is in the kernel.
    flushing: Vec<bool>,
    /// Flushes that wait for the preceding flush of their member.
    held: Vec<MemberCommand>,
}

impl Table {
    /// A table over these members.
    ///
    /// # Errors
    /// One has no descriptor.
    pub(super) fn new(capacity: u32, members: Members) -> io::Result<Self> {
        let records: Vec<_> = members
            .iter()
            .map(|member| member.as_ref().map(MemberRecord::of).transpose())
            .collect::<io::Result<_>>()?;
        Ok(Self {
            slots: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            waiting: Waiting::new(capacity, &members),
            flushing: vec![false; members.len()],
            held: Vec::new(),
            records,
            members,
        })
    }

    /// Replaces a member's device.
    pub(super) fn exchange(
        &mut self,
        member: MemberId,
        device: Option<Arc<dyn Member>>,
    ) -> io::Result<()> {
        let is_held = self.held.iter().any(|command| command.member == member);
        if is_held || self.waiting.holds_place(member) || self.waiting.has_waiting(member) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let record = device.as_ref().map(MemberRecord::of).transpose()?;
        put_device(&mut self.members, member, device);
        self.waiting.adapt(&self.members);
        let slots = self.members.len();
        self.records.resize_with(slots, || None);
        self.flushing.resize(slots, false);
        self.records[member.index()] = record;
        Ok(())
    }

    /// Number of slots in use: commands submitted to the kernel or about to be.
    pub(super) fn occupied(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Moves waiting commands into free slots, the oldest of each member first, and appends their
    /// entries.
    pub(super) fn fill(&mut self, entries: &mut Vec<squeue::Entry>) {
        while let Some(index) = self.free.pop() {
            let Some(command) = self.waiting.next() else {
                self.free.push(index);
                return;
            };
            // `submit` lets only commands for present members through.
            let Some(Some(record)) = self.records.get(command.member.index()) else {
                unreachable!("a command for an absent member was queued")
            };
            if matches!(command.op, MemberOp::Flush)
                && std::mem::replace(&mut self.flushing[command.member.index()], true)
            {
                self.waiting.release(command.member);
                self.held.push(command);
                self.free.push(index);
                continue;
            }
            let slot = Slot {
                command,
                fd: record.fd,
                sector: record.sector,
                progress: 0,
                retries: 0,
            };
            entries.push(self.slots[index as usize].insert(slot).entry(index));
        }
    }

    /// Takes the completion of a slot. `None` for an index that is not in use.
    pub(super) fn complete(&mut self, index: u64, result: i32) -> Option<Outcome> {
        let place = self.slots.get_mut(usize::try_from(index).ok()?)?;
        let slot = place.as_mut()?;
        let verdict = slot.advance(result);
        if verdict.is_none() {
            return Some(Outcome::Again(slot.entry(index as u32), slot.retries));
        }
        let slot = place.take()?;
        self.free.push(index as u32);
        self.waiting.release(slot.command.member);
        if matches!(slot.command.op, MemberOp::Flush) {
            self.flushing[slot.command.member.index()] = false;
            if let Some(next) = self
                .held
                .iter()
                .position(|held| held.member == slot.command.member)
            {
                self.waiting.push(self.held.remove(next));
            }
        }
        verdict.map(|result| Outcome::Done(finished(slot.command, result)))
    }

    /// Leaks all buffers that the kernel may still write to. For a broken ring: lost memory is
    /// better than overwritten memory.
    pub(super) fn leak(&mut self) {
        self.slots.drain(..).for_each(std::mem::forget);
    }
}

impl Slot {
    /// Entry for the rest of the command.
    fn entry(&mut self, index: u32) -> squeue::Entry {
        let fd = types::Fd(self.fd);
        let progress = self.progress;
        let entry = match &mut self.command.op {
            MemberOp::Read { offset, buf } => {
                let at = *offset + progress as u64;
                let rest = &mut buf[progress..];
                opcode::Read::new(fd, rest.as_mut_ptr(), rest.len() as u32)
                    .offset(at)
                    .build()
            }
            MemberOp::Write { offset, buf } => {
                let at = *offset + progress as u64;
                let rest = &buf[progress..];
                opcode::Write::new(fd, rest.as_ptr(), rest.len() as u32)
                    .offset(at)
                    .build()
            }
            MemberOp::Flush => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            MemberOp::Discard { .. } => unreachable!("discards have a thread of their own"),
        };
        entry.user_data(u64::from(index))
    }

    /// Accounts for a completion; `None` if the command is incomplete.
    fn advance(&mut self, result: i32) -> Option<Result<(), DeviceError>> {
        let (offset, length) = match &self.command.op {
            MemberOp::Read { offset, buf } | MemberOp::Write { offset, buf } => {
                (*offset, buf.len())
            }
            MemberOp::Flush | MemberOp::Discard { .. } => (0, 0),
        };
        let at = offset + self.progress as u64;
        let Ok(count) = usize::try_from(result) else {
            // `ECANCELED`: the submitting thread ended before the kernel started the command.
            if !matches!(-result, libc::EAGAIN | libc::EINTR | libc::ECANCELED)
                || self.retries >= RETRIES_MAX
            {
                return Some(Err(DeviceError::from_code(-result, at)));
            }
            self.retries += 1;
            return None;
        };
        if self.progress + count >= length {
            return Some(Ok(()));
        }
        let aligned = count - count % self.sector;
        if aligned == 0 {
            // Nothing moved although the range is inside the member: the file was truncated, or the
            // device has stopped.
            return Some(Err(DeviceError::from_code(libc::EIO, at)));
        }
        self.progress += aligned;
        None
    }
}
