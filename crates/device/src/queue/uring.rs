//! One io_uring for all members that have a descriptor.
//!
//! 1. `submit` queues the commands, moves waiting ones into free slots of the in-flight table
//!    (which owns their buffers from then on), pushes their entries and enters the kernel once.
//! 2. The reaper blocks in the kernel for completions. A finished command leaves its slot; a short
//!    or interrupted one is restarted for the rest; free slots are filled with waiting commands.
//!    The thread that frees a slot also uses it: no command waits while a slot is free and its
//!    member holds less than its share, and no other thread has to signal.
//! 3. A flush is `fdatasync` (see the module `file`), one at a time per member: the kernel reports
//!    lost writes to only one of two concurrent flushes. A discard can take long and has no
//!    io_uring operation on the kernels we support: a helper thread of the member runs it in the
//!    member's own method (`discards.rs`).
//! 4. An event descriptor, polled by the ring itself, wakes the reaper for everything else: results
//!    of the helper threads, a stop, a retry after the kernel was short of memory.
//!
//! Two locks: `table`, and `submission` around the entries and the system call that submits them;
//! never both at once, and no lock is held while the reaper blocks. The submission ring is larger
//! than the table, so a push cannot fail, and the kernel makes the completion ring twice as large,
//! so it cannot overflow.
//!
//! A fault of the ring itself is kept and reported by every later [`Reap::wait`].

mod discards;
mod lane;
mod table;
#[cfg(test)]
mod tests;

pub use lane::ReadLane;

use super::{Members, Queue, Reap, Waker, answer_at_once, device_of, finished};
use crate::DeviceError;
use crate::member::Member;
use discards::Discards;
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use table::{Outcome, RETRIES_WITHOUT_PAUSE, Table};
use windrow_io::{MemberCommand, MemberDone, MemberOp};
use windrow_types::MemberId;

const DEPTH_MAX: u32 = 4096;
/// `user_data` of the poll on the event descriptor; never a slot.
const WAKE: u64 = u64::MAX;
const PAUSE: Duration = Duration::from_millis(1);

/// A member in the ring's table. Its `Arc` keeps the descriptor open.
struct MemberRecord {
    fd: RawFd,
    sector: usize,
    /// Latched by the first failed flush: the kernel reports lost writes only once.
    flush_failed: bool,
}

impl MemberRecord {
    fn of(member: &Arc<dyn Member>) -> io::Result<Self> {
        let fd = member.raw_fd().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self {
            fd,
            sector: member.info().logical_sector as usize,
            flush_failed: false,
        })
    }
}

struct Shared {
    ring: IoUring,
    table: Mutex<Table>,
    submission: Mutex<()>,
    event: OwnedFd,
    woken: AtomicBool,
    stalled: AtomicBool,
    /// Results that did not come through the ring.
    ready: Mutex<Vec<MemberDone>>,
    in_flight: AtomicUsize,
    /// Error number of a ring that is broken, 0 while it works.
    fatal: AtomicI32,
}

/// The submitting half.
pub struct UringSubmitter {
    shared: Arc<Shared>,
    entries: Vec<squeue::Entry>,
    discards: Discards,
}

/// The waiting half.
pub struct UringReaper {
    shared: Arc<Shared>,
    armed: bool,
    events: Vec<(u64, i32)>,
    entries: Vec<squeue::Entry>,
}

/// The kernel takes the entries later.
fn is_short_of_memory(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
    )
}

/// True if this process may use io_uring with the required operations on this kernel.
pub fn uring_available() -> bool {
    let Ok(ring) = IoUring::new(2) else {
        return false;
    };
    let mut probe = io_uring::Probe::new();
    let codes = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Fsync::CODE,
        opcode::PollAdd::CODE,
    ];
    ring.submitter().register_probe(&mut probe).is_ok()
        && codes.into_iter().all(|code| probe.is_supported(code))
}

/// Raises the kernel's worker limit for a thread that uses the ring to the number of commands.
/// Workers run operations that would block (a flush, a drive with a full queue, a waiting file
/// system), and those of a hung member must not occupy all of them. Kernels before 5.15 do not
/// support it and keep their limit.
fn allow_workers(ring: &IoUring) {
    // The second figure is for sockets and the like; 0 leaves it unchanged.
    drop(
        ring.submitter()
            .register_iowq_max_workers(&mut [DEPTH_MAX, 0]),
    );
}

/// Opens a ring with at most `depth` commands in the kernel.
///
/// # Errors
/// io_uring is not available, or a present member has no descriptor (`EINVAL`).
pub fn uring(members: Members, depth: u32) -> io::Result<(UringSubmitter, UringReaper)> {
    let depth = depth.clamp(1, DEPTH_MAX);
    let shared = Arc::new(Shared {
        // One entry more than slots, for the poll on the event descriptor.
        ring: IoUring::builder()
            .dontfork()
            .build((depth + 1).next_power_of_two())?,
        table: Mutex::new(Table::new(depth, members)?),
        submission: Mutex::new(()),
        event: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        woken: AtomicBool::new(false),
        stalled: AtomicBool::new(false),
        ready: Mutex::new(Vec::new()),
        in_flight: AtomicUsize::new(0),
        fatal: AtomicI32::new(0),
    });
    allow_workers(&shared.ring);
    let submitter = UringSubmitter {
        shared: shared.clone(),
        entries: Vec::with_capacity(depth as usize),
        discards: Discards::default(),
    };
    Ok((
        submitter,
        UringReaper {
            shared,
            armed: false,
            events: Vec::new(),
            entries: Vec::with_capacity(depth as usize),
        },
    ))
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Wakes the reaper.
    fn signal(&self) {
        // `EAGAIN` means that the counter is full of unread signals, which is signal enough.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn break_down(&self, error: &io::Error) {
        self.fatal
            .store(error.raw_os_error().unwrap_or(libc::EIO), Ordering::Release);
        self.signal();
    }

    /// Pushes entries, if any, and submits the whole submission ring to the kernel.
    fn start(&self, entries: &mut Vec<squeue::Entry>) {
        let _guard = self.submission.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: every use of the submission ring is under the lock `submission`, so there is no
        // other `SubmissionQueue` now.
        let mut queue = unsafe { self.ring.submission_shared() };
        for entry in entries.drain(..) {
            // SAFETY: the entry's buffer belongs to a slot of the table, which keeps it until the
            // completion of this entry has been taken (or leaks it); its descriptor belongs to a
            // member that the table keeps as long as a slot names it, or is `event`, which lives as
            // long as the ring.
            let pushed = unsafe { queue.push(&entry) };
            assert!(
                pushed.is_ok(),
                "the submission ring has an entry for every slot"
            );
        }
        loop {
            queue.sync();
            if queue.is_empty() {
                return;
            }
            match self.ring.submit() {
                Ok(count) if count > 0 => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // Short of memory: the entries stay in the ring, the reaper tries again.
                Err(error) if !is_short_of_memory(&error) => return self.break_down(&error),
                Ok(_) | Err(_) => {
                    self.stalled.store(true, Ordering::Release);
                    return self.signal();
                }
            }
        }
    }

    /// Resubmits entries that the kernel rejected for lack of memory; true if there were any. To be
    /// called before every block: the entry that would wake the reaper may be among them.
    fn retry_if_stalled(&self) -> bool {
        let stalled = self.stalled.swap(false, Ordering::AcqRel);
        if stalled {
            std::thread::sleep(PAUSE);
            self.start(&mut Vec::new());
        }
        stalled
    }

    /// Blocks until the completion ring is not empty.
    fn block(&self) -> io::Result<()> {
        loop {
            // SAFETY: no argument is passed, so there is no pointer that could be wrong; the
            // descriptor is the ring's own.
            match unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(
                    0,
                    1,
                    EnterFlags::GETEVENTS.bits(),
                    None,
                )
            } {
                Ok(_) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes all entries of the completion ring.
    ///
    /// # Safety
    /// Only one thread at a time may be in here.
    unsafe fn drain(&self, events: &mut Vec<(u64, i32)>) {
        // SAFETY: the caller guarantees that there is no other `CompletionQueue`.
        let queue = unsafe { self.ring.completion_shared() };
        events.extend(queue.map(|event| (event.user_data(), event.result())));
    }

    fn ready(&self) -> MutexGuard<'_, Vec<MemberDone>> {
        self.ready.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Shared {
    /// The kernel may still write into buffers of the table: they are not freed before it has
    /// finished.
    fn drop(&mut self) {
        let mut events = Vec::new();
        while self.table().occupied() > 0 {
            self.start(&mut Vec::new());
            if self.retry_if_stalled() {
                continue;
            }
            if self.fatal.load(Ordering::Acquire) != 0 || self.block().is_err() {
                return self.table().leak();
            }
            // SAFETY: both halves are gone, `self` is the last owner.
            unsafe { self.drain(&mut events) };
            let mut again = Vec::new();
            for (index, result) in events.drain(..).filter(|(index, _)| *index != WAKE) {
                if let Some(Outcome::Again(entry, _)) = self.table().complete(index, result) {
                    again.push(entry);
                }
            }
            self.start(&mut again);
        }
    }
}

/// True for a flush of a member with an earlier failed flush.
fn is_latched(table: &Table, command: &MemberCommand) -> bool {
    let record = table
        .records
        .get(command.member.index())
        .and_then(Option::as_ref);
    matches!(command.op, MemberOp::Flush) && record.is_some_and(|record| record.flush_failed)
}

impl Queue for UringSubmitter {
    fn exchange(&mut self, member: MemberId, device: Option<Arc<dyn Member>>) -> io::Result<()> {
        if self.discards.is_busy(member) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.shared.table().exchange(member, device)?;
        self.discards.end(member);
        Ok(())
    }

    fn submit(&mut self, commands: &mut Vec<MemberCommand>, done: &mut Vec<MemberDone>) {
        let shared = self.shared.clone();
        let mut table = shared.table();
        for command in commands.drain(..) {
            match answer_at_once(&table.members, command) {
                Ok(answer) => done.push(answer),
                Err(command) if matches!(command.op, MemberOp::Discard { .. }) => {
                    // `answer_at_once` lets only commands for present members through.
                    let Some(device) = device_of(&table.members, command.member) else {
                        unreachable!("a discard for an absent member")
                    };
                    done.extend(self.discards.send(&shared, command, device.clone()));
                }
                Err(command) if is_latched(&table, &command) => {
                    done.push(finished(command, Err(DeviceError::gone(0))))
                }
                Err(command) => {
                    shared.in_flight.fetch_add(1, Ordering::AcqRel);
                    table.waiting.push(command);
                }
            }
        }
        table.fill(&mut self.entries);
        drop(table);
        if !self.entries.is_empty() {
            shared.start(&mut self.entries);
        }
    }

    fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }
}

impl UringReaper {
    /// Polls the event descriptor through the ring. Done by this thread, because the kernel cancels
    /// a thread's polls when the thread ends.
    fn arm(&mut self) {
        if !self.armed {
            self.armed = true;
            let poll = opcode::PollAdd::new(
                types::Fd(self.shared.event.as_raw_fd()),
                libc::POLLIN as u32,
            )
            .build()
            .user_data(WAKE);
            self.entries.push(poll);
            self.shared.start(&mut self.entries);
        }
    }

    /// Takes all completions and starts what can be started.
    fn collect(&mut self, done: &mut Vec<MemberDone>) {
        // SAFETY: there is one reaper for a ring, it is not `Clone`, and `&mut self` keeps other
        // threads out.
        unsafe { self.shared.drain(&mut self.events) };
        if self.events.is_empty() {
            return;
        }
        let (mut rung, mut pause) = (false, false);
        let before = done.len();
        let mut table = self.shared.table();
        for (index, result) in self.events.drain(..) {
            if index == WAKE {
                rung = true;
                // A failed poll is retried, but not at once.
                pause |= result < 0;
                continue;
            }
            match table.complete(index, result) {
                Some(Outcome::Done(item)) => done.push(item),
                Some(Outcome::Again(entry, retries)) => {
                    self.entries.push(entry);
                    pause |= retries > RETRIES_WITHOUT_PAUSE;
                }
                None => {}
            }
        }
        table.fill(&mut self.entries);
        drop(table);
        self.latch_failed_flushes(&mut done[before..]);
        if pause {
            std::thread::sleep(PAUSE);
        }
        if !self.entries.is_empty() {
            self.shared.start(&mut self.entries);
        }
        if rung {
            self.answer_event(done);
        }
        self.shared
            .in_flight
            .fetch_sub(done.len() - before, Ordering::AcqRel);
    }

    /// After a failed flush none may succeed, even if it was submitted before the failure was
    /// known. (Only flushes have no buffer here: discards do not come through the ring.)
    fn latch_failed_flushes(&self, done: &mut [MemberDone]) {
        for item in done.iter_mut().filter(|item| item.buf.is_none()) {
            let mut table = self.shared.table();
            let Some(Some(record)) = table.records.get_mut(item.member.index()) else {
                continue;
            };
            if item.result.is_err() {
                record.flush_failed = true;
            } else if record.flush_failed {
                item.result = Err(DeviceError::gone(0).of(item.member));
            }
        }
    }

    fn answer_event(&mut self, done: &mut Vec<MemberDone>) {
        self.armed = false;
        // The counter is read before the results: a signal in between is seen again.
        let mut counter = [0u8; 8];
        let _ = rustix::io::read(&self.shared.event, &mut counter);
        done.append(&mut self.shared.ready());
    }
}

impl Reap for UringReaper {
    fn wait(&mut self, done: &mut Vec<MemberDone>) -> io::Result<()> {
        let before = done.len();
        loop {
            let fatal = self.shared.fatal.load(Ordering::Acquire);
            if fatal != 0 {
                return Err(io::Error::from_raw_os_error(fatal));
            }
            self.arm();
            self.collect(done);
            if self.shared.retry_if_stalled() {
                continue;
            }
            if self.shared.woken.swap(false, Ordering::AcqRel) || done.len() > before {
                return Ok(());
            }
            // A signal may be empty, because its results were taken with the preceding one. It has
            // used up the poll all the same, and only the ring itself ends a block without one. No
            // spin: a new poll ends with a new signal, or has failed after a pause.
            if !self.armed {
                continue;
            }
            self.shared
                .block()
                .inspect_err(|error| self.shared.break_down(error))?;
        }
    }

    fn waker(&self) -> Waker {
        // A leaked waker must not keep the members open and locked.
        let shared = Arc::downgrade(&self.shared);
        Waker::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.woken.store(true, Ordering::Release);
                shared.signal();
            }
        })
    }
}
