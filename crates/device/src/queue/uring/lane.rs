//! A small ring of one thread, for reads that this thread starts and completes itself.
//!
//! The kernel runs the completion of a command on the thread that submitted it. With one shared
//! ring, a read of a connection's thread woke that thread, which woke the reaper, which answered.
//! Here the woken thread is the one that answers. It waits for the ring's descriptor together with
//! its other descriptors.
//!
//! Only reads, because they are unordered: flushes of one member must not pass one another, and
//! large writes keep a thread busy while the kernel pins their pages. A lane is bounded, and so is
//! each member's share of it; reads that do not fit go to the shared queue.

use super::table::{Outcome, RETRIES_WITHOUT_PAUSE, Table};
use super::{PAUSE, is_short_of_memory};
use crate::member::Member;
use crate::queue::{Members, answer_at_once};
use io_uring::{EnterFlags, IoUring, squeue};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use windrow_io::{MemberCommand, MemberDone, MemberOp};
use windrow_types::MemberId;

/// Ring of one thread. The thread that uses it must open it; only [`ReadLane::exchange`] may be
/// called by others.
pub struct ReadLane {
    ring: IoUring,
    table: Table,
    entries: Vec<squeue::Entry>,
    /// Reads whose members hold their shares, to be returned to the caller.
    refused: Vec<MemberCommand>,
    events: Vec<(u64, i32)>,
    /// Number of reads taken whose result has not been returned.
    in_flight: usize,
    depth: usize,
    broken: bool,
    closed: bool,
}

impl ReadLane {
    /// Opens a lane of the calling thread, for at most `depth` concurrent reads.
    ///
    /// # Errors
    /// io_uring is not available, or a present member has no descriptor (`EINVAL`).
    pub fn open(members: Members, depth: u32) -> io::Result<Self> {
        let depth = depth.clamp(1, super::DEPTH_MAX);
        let entries = depth.next_power_of_two();
        // The thread is not interrupted for a completion: it takes completions whenever it enters
        // the kernel. Older kernels do not know the flag. (Deferring completions until they are
        // requested would be better still, but then a poll on the ring's descriptor does not always
        // return.)
        let ring = IoUring::builder()
            .dontfork()
            .setup_coop_taskrun()
            .build(entries);
        let ring = ring.or_else(|_| IoUring::builder().dontfork().build(entries))?;
        super::allow_workers(&ring);
        let table = Table::new(depth, members)?;
        let (entries, refused, events) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self {
            ring,
            table,
            entries,
            refused,
            events,
            in_flight: 0,
            depth: depth as usize,
            broken: false,
            closed: false,
        })
    }

    /// Readable when [`ReadLane::collect`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's own, which lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Replaces a member's device. May be called by any thread.
    ///
    /// # Errors
    /// As [`super::Queue::exchange`].
    pub fn exchange(
        &mut self,
        member: MemberId,
        device: Option<Arc<dyn Member>>,
    ) -> io::Result<()> {
        self.table.exchange(member, device)
    }

    /// Takes no more reads from now on; those in flight complete.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// True if it returns no more results.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Number of reads taken whose result has not been returned.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes reads out of `commands` as far as the lane and their members have room, to be started
    /// by the next [`ReadLane::start`]; true if it took any. Appends results that need no device to
    /// `done`.
    pub fn take(&mut self, commands: &mut Vec<MemberCommand>, done: &mut Vec<MemberDone>) -> bool {
        let room = if self.broken || self.closed {
            0
        } else {
            self.depth - self.in_flight
        };
        let mut left = room;
        let mut reads =
            commands.extract_if(.., |command| matches!(command.op, MemberOp::Read { .. }));
        while left > 0
            && let Some(command) = reads.next()
        {
            match answer_at_once(&self.table.members, command) {
                Ok(answer) => done.push(answer),
                Err(command) if !self.table.waiting.has_room(command.member) => {
                    self.refused.push(command);
                    continue;
                }
                Err(command) => {
                    self.in_flight += 1;
                    self.table.waiting.push(command);
                }
            }
            left -= 1;
        }
        drop(reads);
        commands.append(&mut self.refused);
        left < room
    }

    /// Starts the taken reads.
    ///
    /// # Errors
    /// The ring is broken: it returns no more results.
    pub fn start(&mut self) -> io::Result<()> {
        self.table.fill(&mut self.entries);
        if self.entries.is_empty() {
            Ok(())
        } else {
            self.submit()
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        let mut queue = self.ring.submission();
        for entry in self.entries.drain(..) {
            // SAFETY: the entry's buffer belongs to a slot of the table, which keeps it until the
            // completion of this entry has been taken (or leaks it); its descriptor belongs to a
            // member that the table keeps as long as a slot names it.
            let pushed = unsafe { queue.push(&entry) };
            assert!(
                pushed.is_ok(),
                "the submission ring has an entry for every slot"
            );
        }
        drop(queue);
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(count) if count > 0 => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) if !is_short_of_memory(&error) => {
                    self.broken = true;
                    return Err(error);
                }
                // A read needs little memory, and completions free some.
                Ok(_) | Err(_) => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Takes completions without waiting, and restarts incomplete reads.
    ///
    /// # Errors
    /// The ring is broken: it returns no more results.
    pub fn collect(&mut self, done: &mut Vec<MemberDone>) -> io::Result<()> {
        let entered = self.enter(0);
        self.events.extend(
            self.ring
                .completion()
                .map(|event| (event.user_data(), event.result())),
        );
        let mut pause = false;
        let before = done.len();
        for (index, result) in self.events.drain(..) {
            match self.table.complete(index, result) {
                Some(Outcome::Done(item)) => done.push(item),
                Some(Outcome::Again(entry, retries)) => {
                    self.entries.push(entry);
                    pause |= retries > RETRIES_WITHOUT_PAUSE;
                }
                None => {}
            }
        }
        self.in_flight -= done.len() - before;
        if pause {
            std::thread::sleep(PAUSE);
        }
        entered?;
        self.start()
    }

    /// Lets the kernel run completions, and waits for `least` of them.
    fn enter(&mut self, least: u32) -> io::Result<()> {
        loop {
            // SAFETY: no argument is passed, so there is no pointer that could be wrong; the
            // descriptor is the ring's own.
            match unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(
                    0,
                    least,
                    EnterFlags::GETEVENTS.bits(),
                    None,
                )
            } {
                Ok(_) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => {
                    self.broken = true;
                    return Err(error);
                }
            }
        }
    }
}

impl Drop for ReadLane {
    /// The kernel may still write into buffers of the table: they are not freed before it has
    /// finished.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.table.occupied() > 0 {
            if self.broken || self.enter(1).is_err() || self.collect(&mut done).is_err() {
                return self.table.leak();
            }
            done.clear();
        }
    }
}
