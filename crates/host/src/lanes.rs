//! Reads that a connection's thread starts and ends itself.
//!
//! 1. A thread that [attends](windrow_export::Session::attend) to its session gets a lane, a small ring of its own.
//! 2. When it drives the engine, reads that come out of it go into the lane, whoever they are for; everything else, and what finds no room,
//!    goes the way of all.
//! 3. The thread takes their ends together with its client's requests, in groups, and answers in between.
//!
//! **No read is left behind.** Only the thread that attends puts reads into its lane; it looks at the lane after each group of requests and whenever it
//! is about to sleep, and does not let the session go before the lane is empty.
//!
//! **Locks.** A lane is locked by its thread while it drives, so it comes before the engine's lock; others lock it only to exchange a member's device, with
//! no lock of the driver held.

use crate::driver::{Caller, Driver, Own};
use crate::sessions::{SessionState, lock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::ThreadId;
use windrow_device::Member;
use windrow_device::queue::ReadLane;
use windrow_engine::api::Event;
use windrow_io::{Completion, MemberDone, Request};
use windrow_units::MemberId;

/// Reads of a lane at once.
const DEPTH: u32 = 128;
/// Ends that the engine hears of at once, as in `reaper.rs`: the sooner the first are answered, the sooner the client goes on.
const GROUP_READS: usize = 4;

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
    pub(crate) fn exchange(&self, member: MemberId, device: Option<&Arc<dyn Member>>) -> std::io::Result<()> {
        lock(&self.open).iter().filter_map(Weak::upgrade).try_for_each(|inner| lock(&inner).lane.exchange(member, device.cloned()))
    }
}

fn wait_readable(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    matches!(poll(&mut fds, None), Ok(_) | Err(Errno::INTR))
}

#[cfg(test)]
impl Lanes {
    /// Lanes of sessions that are open.
    pub(crate) fn in_use(&self) -> usize {
        lock(&self.open).iter().filter(|lane| lane.strong_count() > 0).count()
    }
}

impl Attendance {
    /// A lane for the calling thread; `None` if these members have no use for one.
    pub(crate) fn open(driver: &Driver) -> Option<Self> {
        let mut open = lock(&driver.lanes.open);
        let lane = ReadLane::open(driver.lane_members()?, DEPTH).ok()?;
        let fd = lane.fd().try_clone_to_owned().ok()?;
        let inner = Arc::new(Mutex::new(Inner { lane, done: Vec::new() }));
        open.retain(|lane| lane.strong_count() > 0);
        open.push(Arc::downgrade(&inner));
        Some(Self { thread: std::thread::current().id(), inner, fd })
    }

    /// Readable when there is something to carry on with.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The lane, if it is the caller's and not in use further up.
    fn inner(&self) -> Option<MutexGuard<'_, Inner>> {
        (self.thread == std::thread::current().id()).then(|| self.inner.try_lock().ok()).flatten()
    }

    /// As [`Driver::submit`].
    pub(crate) fn submit(&self, driver: &Driver, session: &SessionState, requests: &mut Vec<Request>, ready: &mut Vec<Completion>) {
        let mut inner = self.inner();
        driver.submit(requests, Own { session, ready, lane: inner.as_mut().map(|inner| &mut inner.lane) });
    }

    /// Tells the engine of a group of ends; true if there are more.
    pub(crate) fn progress(&self, driver: &Driver, session: &SessionState, ready: &mut Vec<Completion>) -> bool {
        let Some(mut inner) = self.inner() else { return false };
        let Inner { lane, done } = &mut *inner;
        if done.is_empty() && lane.in_flight() > 0 {
            driver.collect_lane(lane, done);
        }
        if done.is_empty() {
            return false;
        }
        let count = done.len().min(GROUP_READS);
        driver.post_all(done.drain(..count).map(Event::Member));
        driver.drive(Caller::Client, Some(Own { session, ready, lane: Some(lane) }));
        !done.is_empty()
    }

    /// Carries on until nothing is in flight.
    pub(crate) fn finish(&self, driver: &Driver, session: &SessionState) {
        let mut late = Vec::new();
        loop {
            while self.progress(driver, session, &mut late) {}
            late.clear();
            // Not with the lock: a member that does not answer must not keep others from being exchanged.
            if self.inner().is_none_or(|inner| inner.lane.in_flight() == 0 || inner.lane.is_broken()) || !wait_readable(&self.fd) {
                return;
            }
        }
    }
}
