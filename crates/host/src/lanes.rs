//! Reads that a connection's thread starts and completes itself.
//!
//! 1. A thread that [attends](windrow_frontend::Session::attend) to its session gets a lane, a
//!    small ring of its own.
//! 2. When the thread drives the engine, the resulting reads go into its lane, also those of other
//!    clients. Other commands, and reads for which the lane or the member's share of it is full,
//!    take the common queue.
//! 3. The thread takes their completions together with its client's requests, in groups, and
//!    answers in between.
//!
//! **No read is left behind.** Only the attending thread puts reads into its lane. It looks at the
//! lane after each look at its socket and before each sleep, and keeps the session until the lane
//! is empty. While the session ends, new reads take the common queue. An unresponsive member must
//! not hold the connection's slot: after [`PATIENCE`] a separate thread waits instead. A lane that
//! is dropped with reads in it (a panic) latches the pool.
//!
//! **Locks.** A lane is locked by its thread while that drives, so it comes before the engine's
//! lock. Other threads lock it only to exchange a member's device, with no lock of the driver held.
//! The lane's thread waits for them; only if a sink submits in the middle of a drive the lane is
//! skipped.

use crate::driver::{Caller, Driver, Own};
use crate::sessions::{SessionState, lock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use windrow_device::Member;
use windrow_device::queue::ReadLane;
use windrow_engine::Event;
use windrow_io::{Completion, MemberDone, Request};
use windrow_types::MemberId;

/// Most reads in a lane.
const DEPTH: u32 = 128;
/// Completions passed to the engine at once, as in `reaper.rs`: the sooner the first are answered,
/// the sooner the client continues.
const GROUP_READS: usize = 4;
/// Longest wait of an ended connection for the reads in its lane.
const PATIENCE: Duration = Duration::from_secs(1);

struct Inner {
    lane: ReadLane,
    /// Completions not passed to the engine yet.
    done: Vec<MemberDone>,
}

/// The lane of a session, for the thread that opened it.
pub(crate) struct Attendance {
    thread: ThreadId,
    inner: Arc<Mutex<Inner>>,
    fd: OwnedFd,
}

/// All lanes, for exchanging devices.
#[derive(Default)]
pub(crate) struct Lanes {
    /// Members are reached through the kernel's rings.
    pub(crate) wanted: bool,
    open: Mutex<Vec<Weak<Mutex<Inner>>>>,
}

impl Lanes {
    /// Replaces a member's device; no command for it may be in flight.
    pub(crate) fn exchange(
        &self,
        member: MemberId,
        device: Option<&Arc<dyn Member>>,
    ) -> std::io::Result<()> {
        let mut outcome = Ok(());
        for inner in lock(&self.open).iter().filter_map(Weak::upgrade) {
            let lane = &mut lock(&inner).lane;
            if let Err(error) = lane.exchange(member, device.cloned()) {
                // The lane must not continue to read a device that is no longer the pool's.
                lane.close();
                outcome = Err(error);
            }
        }
        outcome
    }
}

/// Waits until the time, or without limit. False if waiting fails.
fn wait_readable(fd: &OwnedFd, until: Option<Instant>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let left = until.map(|until| {
        Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or_default()
    });
    matches!(poll(&mut fds, left.as_ref()), Ok(_) | Err(Errno::INTR))
}

#[cfg(test)]
impl Lanes {
    /// Number of lanes of open sessions.
    pub(crate) fn in_use(&self) -> usize {
        lock(&self.open)
            .iter()
            .filter(|lane| lane.strong_count() > 0)
            .count()
    }
}

impl Attendance {
    /// A lane for the calling thread; `None` if these members do not use lanes.
    pub(crate) fn open(driver: &Driver) -> Option<Self> {
        let mut open = lock(&driver.lanes.open);
        let lane = ReadLane::open(driver.lane_members()?, DEPTH).ok()?;
        let fd = lane.fd().try_clone_to_owned().ok()?;
        let inner = Arc::new(Mutex::new(Inner {
            lane,
            done: Vec::new(),
        }));
        open.retain(|lane| lane.strong_count() > 0);
        open.push(Arc::downgrade(&inner));
        Some(Self {
            thread: std::thread::current().id(),
            inner,
            fd,
        })
    }

    /// Readable when there are completions; `None` if no more come.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner()
            .filter(|inner| !inner.lane.is_broken())
            .map(|_| self.fd.as_fd())
    }

    /// The lane, if the caller is its thread. Not to be called in the middle of a drive.
    fn inner(&self) -> Option<MutexGuard<'_, Inner>> {
        (self.thread == std::thread::current().id()).then(|| lock(&self.inner))
    }

    /// As [`Driver::submit`].
    pub(crate) fn submit(
        &self,
        driver: &Driver,
        session: &SessionState,
        requests: &mut Vec<Request>,
        ready: &mut Vec<Completion>,
    ) {
        // A sink may submit while its completions are delivered: then the lane is in use further up
        // the stack.
        let mut inner = (self.thread == std::thread::current().id())
            .then(|| self.inner.try_lock().ok())
            .flatten();
        driver.submit(
            requests,
            Own {
                session,
                ready,
                lane: inner.as_mut().map(|inner| &mut inner.lane),
            },
        );
    }

    /// Passes a group of completions to the engine; true if there are more.
    pub(crate) fn progress(
        &self,
        driver: &Driver,
        session: &SessionState,
        ready: &mut Vec<Completion>,
    ) -> bool {
        self.go_on(driver, session, ready, true)
    }

    /// `open`: further reads may go into the lane.
    fn go_on(
        &self,
        driver: &Driver,
        session: &SessionState,
        ready: &mut Vec<Completion>,
        open: bool,
    ) -> bool {
        let Some(mut inner) = self.inner() else {
            return false;
        };
        let Inner { lane, done } = &mut *inner;
        if done.is_empty() && lane.in_flight() > 0 && !lane.is_broken() {
            driver.collect_lane(lane, done);
        }
        if done.is_empty() {
            return false;
        }
        let count = done.len().min(GROUP_READS);
        driver.post_all(done.drain(..count).map(Event::Member));
        driver.drive(
            Caller::Attendant,
            Some(Own {
                session,
                ready,
                lane: open.then_some(lane),
            }),
        );
        !done.is_empty()
    }

    /// Ends the session when its lane has nothing in flight. A separate thread waits if that takes
    /// long.
    pub(crate) fn finish(&self, driver: &Arc<Driver>, session: &Arc<SessionState>) {
        if std::thread::panicking()
            && self
                .inner()
                .is_some_and(|inner| inner.lane.in_flight() > 0 || !inner.done.is_empty())
        {
            driver.stop("the thread of a connection failed with reads in flight");
        } else if !self.is_over(driver, session, Some(Instant::now() + PATIENCE)) {
            if self.hand_over(driver, session) {
                return;
            }
            self.is_over(driver, session, None);
        }
        driver.sessions.close(session);
    }

    /// Completes reads until nothing is in flight; false if some still are at that time.
    fn is_over(&self, driver: &Driver, session: &SessionState, until: Option<Instant>) -> bool {
        let mut late = Vec::new();
        loop {
            while self.go_on(driver, session, &mut late, false) {}
            late.clear();
            // Waits without the lock: an unresponsive member must not block the exchange of others.
            if self
                .inner()
                .is_none_or(|inner| inner.lane.in_flight() == 0 || inner.lane.is_broken())
            {
                return true;
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return false;
            }
            if !wait_readable(&self.fd, until) {
                return true;
            }
        }
    }

    /// Leaves the wait for reads in flight to another thread; false if that cannot be started.
    fn hand_over(&self, driver: &Arc<Driver>, session: &Arc<SessionState>) -> bool {
        let Ok(fd) = self.fd.try_clone() else {
            return false;
        };
        let (inner, driver, session) = (self.inner.clone(), driver.clone(), session.clone());
        let body = move || {
            let successor = Self {
                thread: std::thread::current().id(),
                inner,
                fd,
            };
            successor.is_over(&driver, &session, None);
            driver.sessions.close(&session);
        };
        std::thread::Builder::new()
            .name("windrow-late".to_owned())
            .spawn(body)
            .is_ok()
    }
}
