//! Queues that carry commands to many members and return their results.
//!
//! A queue has two halves that may live on different threads. The *submitter* takes commands; it
//! never waits for a device. The *reaper* belongs to one thread that blocks until something is
//! done. Three kinds:
//!
//! | kind | for | results |
//! |---|---|---|
//! | [`uring`](fn@uring) | files and block devices | from the reaper |
//! | [`threaded`](fn@threaded) | anything, where there is no io_uring or the member has no descriptor | from the reaper |
//! | [`InlineQueue`] | memory, and tests that must be deterministic | from the submitter, at once |
//!
//! Rules for all kinds:
//! 1. Every command is returned exactly once.
//! 2. Commands that need no device (refusals, ignored discards) are returned by `submit` itself,
//!    whatever the kind.
//! 3. Commands in flight are unordered: a caller that needs an order waits for the first command.
//! 4. Neither half bounds the number of waiting commands: the engine does, by its outstanding
//!    commands.
//! 5. No member holds more than its share of the started commands (`waiting.rs`): an unresponsive
//!    one delays only its own.

mod inline;
#[cfg(test)]
mod tests;
mod threaded;
mod uring;
mod waiting;

pub use inline::InlineQueue;
pub use threaded::{ThreadedReaper, ThreadedSubmitter, threaded};
pub use uring::{ReadLane, UringReaper, UringSubmitter, uring, uring_available};

use crate::DeviceError;
use crate::member::{Discard, Member, MemberKind};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use windrow_io::{MemberCommand, MemberDone, MemberErrorKind, MemberOp};
use windrow_types::MemberId;

/// The member table as a queue sees it: index is the member id, `None` is an absent member.
pub type Members = Vec<Option<Arc<dyn Member>>>;

/// The half that takes commands.
pub trait Queue: Send {
    /// Replaces a member's device, or removes it; the table grows if needed. The caller ensures
    /// that no command for the member is in flight or arrives meanwhile.
    ///
    /// # Errors
    /// The device has no descriptor and this kind of queue needs one (`InvalidInput`), or commands
    /// for the member are in flight (`ResourceBusy`). Nothing was changed then.
    fn exchange(&mut self, member: MemberId, device: Option<Arc<dyn Member>>) -> io::Result<()>;
    /// Takes all commands and starts what it can. Appends results that needed no device to `done`.
    fn submit(&mut self, commands: &mut Vec<MemberCommand>, done: &mut Vec<MemberDone>);
    /// Number of commands taken whose result the reaper has not returned.
    fn in_flight(&self) -> usize;
}

/// The half that waits. One thread only.
pub trait Reap: Send {
    /// Blocks until at least one command is done or a waker ends the wait, and appends the results.
    ///
    /// # Errors
    /// The queue itself is broken (never a fault of one member) and returns no more results.
    fn wait(&mut self, done: &mut Vec<MemberDone>) -> io::Result<()>;
    /// A handle that ends a [`Reap::wait`] from another thread.
    fn waker(&self) -> Waker;
}

/// Ends a [`Reap::wait`], the current one or the next, possibly without any result.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends the wait. Several calls may end a single wait only.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

/// Kind of queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueKind {
    /// Inline if all members are memory; io_uring if all have descriptors and a ring is available;
    /// otherwise threads.
    Automatic,
    /// io_uring or an error.
    Uring,
    /// A pool of threads.
    Threaded,
    /// In the caller.
    Inline,
}

/// Options to open a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Kind of queue.
    pub kind: QueueKind,
    /// io_uring: maximum number of commands in the kernel, 1 to 4096.
    pub depth: u32,
    /// Threads: their number, 1 to 256.
    pub threads: u32,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            kind: QueueKind::Automatic,
            depth: 256,
            threads: 16,
        }
    }
}

/// Any submitter.
pub enum Submitter {
    /// io_uring.
    Uring(UringSubmitter),
    /// Threads.
    Threaded(ThreadedSubmitter),
    /// In the caller.
    Inline(InlineQueue),
}

impl Submitter {
    /// The kind, never `Automatic`.
    pub fn kind(&self) -> QueueKind {
        match self {
            Self::Uring(_) => QueueKind::Uring,
            Self::Threaded(_) => QueueKind::Threaded,
            Self::Inline(_) => QueueKind::Inline,
        }
    }
}

impl Queue for Submitter {
    fn exchange(&mut self, member: MemberId, device: Option<Arc<dyn Member>>) -> io::Result<()> {
        match self {
            Self::Uring(queue) => queue.exchange(member, device),
            Self::Threaded(queue) => queue.exchange(member, device),
            Self::Inline(queue) => queue.exchange(member, device),
        }
    }

    fn submit(&mut self, commands: &mut Vec<MemberCommand>, done: &mut Vec<MemberDone>) {
        match self {
            Self::Uring(queue) => queue.submit(commands, done),
            Self::Threaded(queue) => queue.submit(commands, done),
            Self::Inline(queue) => queue.submit(commands, done),
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            Self::Uring(queue) => queue.in_flight(),
            Self::Threaded(queue) => queue.in_flight(),
            Self::Inline(queue) => queue.in_flight(),
        }
    }
}

/// Any reaper.
pub enum Reaper {
    /// io_uring.
    Uring(UringReaper),
    /// Threads.
    Threaded(ThreadedReaper),
    /// In the caller: never a result; only the waker ends a wait.
    Inline(IdleReaper),
}

impl Reap for Reaper {
    fn wait(&mut self, done: &mut Vec<MemberDone>) -> io::Result<()> {
        match self {
            Self::Uring(reaper) => reaper.wait(done),
            Self::Threaded(reaper) => reaper.wait(done),
            Self::Inline(reaper) => reaper.wait(done),
        }
    }

    fn waker(&self) -> Waker {
        match self {
            Self::Uring(reaper) => reaper.waker(),
            Self::Threaded(reaper) => reaper.waker(),
            Self::Inline(reaper) => reaper.waker(),
        }
    }
}

/// Opens a queue over the members.
///
/// # Errors
/// io_uring was requested and is not available, a member has no descriptor, or threads could not be
/// started.
pub fn open(members: Members, options: &QueueOptions) -> io::Result<(Submitter, Reaper)> {
    open_with(members, options, uring)
}

type Ring = fn(Members, u32) -> io::Result<(UringSubmitter, UringReaper)>;

fn open_with(
    members: Members,
    options: &QueueOptions,
    ring: Ring,
) -> io::Result<(Submitter, Reaper)> {
    let present = || members.iter().flatten();
    let on_ring = |(submitter, reaper)| (Submitter::Uring(submitter), Reaper::Uring(reaper));
    let kind = match options.kind {
        QueueKind::Automatic if present().all(|m| m.info().kind == MemberKind::Memory) => {
            QueueKind::Inline
        }
        QueueKind::Automatic if present().all(|m| m.raw_fd().is_some()) && uring_available() => {
            match ring(members.clone(), options.depth) {
                Ok(halves) => return Ok(on_ring(halves)),
                // A small ring was available; one of full depth may exceed the process's memory or
                // descriptor limits.
                Err(_) => QueueKind::Threaded,
            }
        }
        QueueKind::Automatic => QueueKind::Threaded,
        kind => kind,
    };
    Ok(match kind {
        QueueKind::Inline => (
            Submitter::Inline(InlineQueue::new(members)),
            Reaper::Inline(IdleReaper::default()),
        ),
        QueueKind::Uring => on_ring(ring(members, options.depth)?),
        QueueKind::Threaded | QueueKind::Automatic => {
            let (submitter, reaper) = threaded(members, options.threads)?;
            (Submitter::Threaded(submitter), Reaper::Threaded(reaper))
        }
    })
}

/// The reaper of a queue that completes everything at once: it only sleeps.
#[derive(Debug, Default)]
pub struct IdleReaper(Arc<(Mutex<bool>, Condvar)>);

impl Reap for IdleReaper {
    fn wait(&mut self, _done: &mut Vec<MemberDone>) -> io::Result<()> {
        let (woken, changed) = &*self.0;
        let mut woken = woken.lock().unwrap_or_else(|e| e.into_inner());
        while !*woken {
            woken = changed.wait(woken).unwrap_or_else(|e| e.into_inner());
        }
        *woken = false;
        Ok(())
    }

    fn waker(&self) -> Waker {
        let shared = self.0.clone();
        Waker::new(move || {
            *shared.0.lock().unwrap_or_else(|e| e.into_inner()) = true;
            shared.1.notify_all();
        })
    }
}

/// Byte offset of a command, 0 for a flush.
fn offset_of(op: &MemberOp) -> u64 {
    match op {
        MemberOp::Read { offset, .. }
        | MemberOp::Write { offset, .. }
        | MemberOp::Discard { offset, .. } => *offset,
        MemberOp::Flush => 0,
    }
}

/// Result of a command; the buffer returns to its owner.
fn finished(command: MemberCommand, result: Result<(), DeviceError>) -> MemberDone {
    let MemberCommand { member, tag, op } = command;
    let buf = match op {
        MemberOp::Read { buf, .. } | MemberOp::Write { buf, .. } => Some(buf),
        MemberOp::Flush | MemberOp::Discard { .. } => None,
    };
    MemberDone {
        member,
        tag,
        buf,
        result: result.map_err(|e| e.of(member)),
    }
}

/// Device of a member.
fn device_of(members: &Members, member: MemberId) -> Option<&Arc<dyn Member>> {
    members.get(member.index()).and_then(Option::as_ref)
}

/// Sets the device of a member.
fn put_device(members: &mut Members, member: MemberId, device: Option<Arc<dyn Member>>) {
    if members.len() <= member.index() {
        members.resize(member.index() + 1, None);
    }
    members[member.index()] = device;
}

/// Runs one command in the calling thread. A panic inside a member becomes an error of that member,
/// so that no command is lost.
fn execute(device: Option<&Arc<dyn Member>>, mut command: MemberCommand) -> MemberDone {
    let offset = offset_of(&command.op);
    let result = match device {
        Some(member) => {
            let member = &**member;
            let op = &mut command.op;
            let run = std::panic::AssertUnwindSafe(|| match op {
                MemberOp::Read { offset, buf } => member.read_at(*offset, buf),
                MemberOp::Write { offset, buf } => member.write_at(*offset, buf),
                MemberOp::Flush => member.flush(),
                MemberOp::Discard { offset, length } => member.discard(*offset, *length),
            });
            std::panic::catch_unwind(run).unwrap_or(Err(DeviceError {
                kind: MemberErrorKind::Other,
                offset,
                code: 0,
            }))
        }
        None => Err(DeviceError::gone(offset)),
    };
    finished(command, result)
}

/// Answers a command without touching the device, if possible.
fn answer_at_once(members: &Members, command: MemberCommand) -> Result<MemberDone, MemberCommand> {
    let Some(Some(member)) = members.get(command.member.index()) else {
        let offset = offset_of(&command.op);
        return Ok(finished(command, Err(DeviceError::gone(offset))));
    };
    let info = member.info();
    let (check, nothing_to_do) = match &command.op {
        MemberOp::Read { offset, buf } => {
            (info.check_range(*offset, buf.len() as u64), buf.is_empty())
        }
        MemberOp::Write { offset, buf } => {
            (info.check_write(*offset, buf.len() as u64), buf.is_empty())
        }
        MemberOp::Flush => (Ok(()), false),
        MemberOp::Discard { offset, length } => (
            info.check_write(*offset, *length),
            *length == 0 || is_ignored(&**member),
        ),
    };
    if check.is_err() || nothing_to_do {
        Ok(finished(command, check))
    } else {
        Err(command)
    }
}

/// True if a discard has no effect and no observer: wrappers without a descriptor count or judge
/// even those.
fn is_ignored(member: &dyn Member) -> bool {
    member.raw_fd().is_some() && member.info().discard == Discard::Ignored
}
