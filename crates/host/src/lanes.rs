//! Reads that a connection's thread starts and ends itself.
//!
//! 1. A thread that [attends](windrow_frontend::Session::attend) to its session gets a lane, a
//!    small ring of its own.
//! 2. When it drives the engine, reads that come out of it go into the lane, whoever they are for;
//!    everything else, and what finds no room in it or in its member's share of it, goes the way of
//!    all.
//! 3. The thread takes their ends together with its client's requests, in groups, and answers in
//!    between.
//!
//! **No read is left behind.** Only the thread that attends puts reads into its lane; it looks at
//! the lane whenever it has looked at its socket and whenever it is about to sleep, and does not
//! let the session go before the lane is empty. Then nothing new comes in: what the engine wants
//! meanwhile goes the way of all. A member that answers nothing must not hold the connection's
//! place: after [`PATIENCE`] a thread of its own waits in its stead. A lane that goes with reads in
//! it (a panic) latches the pool.
//!
//! **Locks.** A lane is locked by its thread while it drives, so it comes before the engine's lock;
//! others lock it only to exchange a member's device, with no lock of the driver held. Its thread
//! waits for them; only where a sink submits in the middle of a drive the lane is left out.

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
use windrow_engine::api::Event;
use windrow_io::{Completion, MemberDone, Request};
use windrow_types::MemberId;

/// Reads of a lane at once.
const DEPTH: u32 = 128;
/// Ends that the engine hears of at once, as in `reaper.rs`: the sooner the first are answered, the
/// sooner the client goes on.
const GROUP_READS: usize = 4;
/// How long a connection that has ended waits for the reads in its lane.
const PATIENCE: Duration = Duration::from_secs(1);

struct Inner {
    lane: ReadLane,
    /// Ends that the engine has not heard of.
    done: Vec<MemberDone>,
}

/// The lane of a session, for the thread that opened it.
pub(crate) struct Attendance {
    thread: ThreadId,
    inner: Arc<Mutex<Inner>>,
    fd: OwnedFd,
}

/// All lanes, for those who exchange devices.
#[derive(Default)]
pub(crate) struct Lanes {
    /// Members are reached through the kernel's rings.
    pub(crate) wanted: bool,
    open: Mutex<Vec<Weak<Mutex<Inner>>>>,
}

impl Lanes {
    /// Puts another device in a member's place; no command for it may be in flight.
    pub(crate) fn exchange(
        &self,
        member: MemberId,
        device: Option<&Arc<dyn Member>>,
    ) -> std::io::Result<()> {
        let mut outcome = Ok(());
        for inner in lock(&self.open).iter().filter_map(Weak::upgrade) {
            let lane = &mut lock(&inner).lane;
            if let Err(error) = lane.exchange(member, device.cloned()) {
                // It must not go on to read what is not the pool's any more.
                lane.close();
                outcome = Err(error);
            }
        }
        outcome
    }
}

/// Waits until then, or without end. False if that can not be done.
fn wait_readable(fd: &OwnedFd, until: Option<Instant>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let left = until.map(|until| {
        Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or_default()
    });
    matches!(poll(&mut fds, left.as_ref()), Ok(_) | Err(Errno::INTR))
}

#[cfg(test)]
impl Lanes {
    /// Lanes of sessions that are open.
    pub(crate) fn in_use(&self) -> usize {
        lock(&self.open)
            .iter()
            .filter(|lane| lane.strong_count() > 0)
            .count()
    }
}

impl Attendance {
    /// A lane for the calling thread; `None` if these members have no use for one.
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

    /// Readable when there is something to carry on with; `None` if nothing more comes.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner()
            .filter(|inner| !inner.lane.is_broken())
            .map(|_| self.fd.as_fd())
    }

    /// The lane, if it is the caller's. Not to be called in the middle of a drive.
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
        // A sink may submit while its completions are delivered: then the lane is in use further
        // up.
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

    /// Tells the engine of a group of ends; true if there are more.
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

    /// Ends the session when nothing of its lane is in flight any more, which a thread of its own
    /// waits for if that takes long.
    pub(crate) fn finish(&self, driver: &Arc<Driver>, session: &Arc<SessionState>) {
        if std::thread::panicking()
            && self
                .inner()
                .is_some_and(|inner| inner.lane.in_flight() > 0 || !inner.done.is_empty())
        {
            driver.stop("the thread of a connection failed with reads under way");
        } else if !self.is_over(driver, session, Some(Instant::now() + PATIENCE)) {
            if self.hand_over(driver, session) {
                return;
            }
            self.is_over(driver, session, None);
        }
        driver.sessions.close(session);
    }

    /// Carries on until nothing is in flight; false if something still is at that time.
    fn is_over(&self, driver: &Driver, session: &SessionState, until: Option<Instant>) -> bool {
        let mut late = Vec::new();
        loop {
            while self.go_on(driver, session, &mut late, false) {}
            late.clear();
            // Not with the lock: a member that does not answer must not keep others from being
            // exchanged.
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

    /// Another thread waits for what is in flight; false if there can be none.
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
