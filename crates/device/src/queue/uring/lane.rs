//! A small ring of one thread, for reads that this thread starts and whose ends it takes itself.
//!
//! The kernel carries out the end of a command on the thread that submitted it: with one ring for
//! all, a read that a connection's thread had started woke that thread, which woke the reaper,
//! which answered. Here the thread that is woken is the one that answers. It waits for the ring
//! together with everything else that it waits for, by the descriptor of the ring.
//!
//! Only reads, as there is no order among them: flushes of one member must not pass one another,
//! and large writes keep a thread busy while the kernel pins their pages. A lane is bounded, and so
//! is the share of each member in it; what finds no room goes to the queue that all share.

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

/// The ring of one thread. It has to be opened by the thread that uses it; only
/// [`ReadLane::exchange`] may be called by others.
pub struct ReadLane {
    ring: IoUring,
    table: Table,
    entries: Vec<squeue::Entry>,
    /// Reads whose members hold their shares, on their way back to the caller.
    refused: Vec<MemberCommand>,
    events: Vec<(u64, i32)>,
    /// Commands taken whose result has not been handed out.
    in_flight: usize,
    depth: usize,
    broken: bool,
    closed: bool,
}

impl ReadLane {
    /// Opens a lane of the calling thread, for at most `depth` reads at once.
    ///
    /// # Errors
    /// There is no io_uring here, or a present member has no descriptor (`EINVAL`).
    pub fn open(members: Members, depth: u32) -> io::Result<Self> {
        let depth = depth.clamp(1, super::DEPTH_MAX);
        let entries = depth.next_power_of_two();
        // The thread is not interrupted for an end: it takes ends whenever it enters the kernel.
        // Older kernels do not know the flag. (One for ends that wait until they are asked for
        // would be better still, but then a poll on the ring's descriptor does not always return.)
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

    /// Puts another device in a member's place. May be called by any thread.
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

    /// From now on it takes no more reads; those in flight end as ever.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// True if nothing more comes from it.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Reads taken whose result has not been handed out.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes reads out of `commands` as far as there is room for them and their members, to be
    /// started by the next [`ReadLane::start`]; true if it took any. Appends to `done` what needs
    /// no device.
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

    /// Starts what was taken.
    ///
    /// # Errors
    /// The ring is broken: nothing more comes from it.
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
                // A read takes little memory, and what is in flight gives some back.
                Ok(_) | Err(_) => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Takes what has ended, without waiting, and starts again what has to be continued.
    ///
    /// # Errors
    /// The ring is broken: nothing more comes from it.
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

    /// Lets the kernel carry out ends, and waits for `least` of them.
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
    /// finished with them.
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
