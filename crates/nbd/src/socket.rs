//! The few system calls of a connection. Only [`wait`] blocks.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Result of a receive.
pub(crate) enum Received {
    Bytes(usize),
    /// Nothing has arrived.
    Nothing,
    /// The peer will send nothing more, or is gone.
    End,
}

/// A connected stream socket.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub(crate) fn receive(&self, into: &mut [u8]) -> Received {
        loop {
            return match recv(&self.0, &mut *into, RecvFlags::DONTWAIT) {
                Ok((0, _)) => Received::End,
                Ok((length, _)) => Received::Bytes(length),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                Err(_) => Received::End,
            };
        }
    }

    /// Bytes taken by the socket, `None` if it is full now.
    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        loop {
            return match sendmsg(
                &self.0,
                slices,
                &mut SendAncillaryBuffer::default(),
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(length) => Ok(Some(length)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
    }

    /// True if the peer has closed its end, or is gone.
    pub(crate) fn is_hung_up(&self) -> bool {
        let ends = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        let mut fds = [PollFd::new(&self.0, PollFlags::RDHUP)];
        poll(&mut fds, Some(&timespec(Duration::ZERO))).is_ok() && fds[0].revents().intersects(ends)
    }

    /// Ends both directions, which wakes a thread that waits for it.
    pub(crate) fn cut(&self) {
        // Fails only if the peer is gone already.
        shutdown(&self.0, Shutdown::Both).unwrap_or_default();
    }
}

/// A bell with which another thread wakes a waiting one.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(crate) fn ring(&self) {
        // Fails only if the counter is full, and then the bell is ringing.
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).unwrap_or_default();
    }

    pub(crate) fn silence(&self) {
        // Fails only if the bell was not ringing.
        rustix::io::read(&self.0, &mut [0; 8]).unwrap_or_default();
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Conditions to wait for on a socket, and the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer is gone (always reported).
    pub(crate) hung_up: bool,
    /// The bell rang (always waited for; silenced on return).
    pub(crate) rung: bool,
    /// The session has work for this thread (always waited for).
    pub(crate) attended: bool,
}

/// Waits until the socket is as wanted (`None`: ignore it), the bell rings, the session is readable
/// or the time is over (then all is false).
pub(crate) fn wait(
    socket: &Socket,
    bell: &Bell,
    session: Option<BorrowedFd<'_>>,
    wanted: Option<Readiness>,
    time: Option<Duration>,
) -> io::Result<Readiness> {
    let mut events = PollFlags::empty();
    events.set(PollFlags::IN, wanted.is_some_and(|wanted| wanted.readable));
    events.set(PollFlags::OUT, wanted.is_some_and(|wanted| wanted.writable));
    // An ignored descriptor has no requested events, but poll would still report a peer that is
    // gone.
    let mut fds = [(); 3].map(|()| PollFd::new(bell, PollFlags::IN));
    let mut watched = 1;
    let mut watch = |fd| {
        fds[watched] = fd;
        watched += 1;
        watched - 1
    };
    let of_socket = wanted.map(|_| watch(PollFd::new(socket, events)));
    let of_session = session.map(|fd| watch(PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    let time = time.map(timespec);
    match poll(&mut fds[..watched], time.as_ref()) {
        Ok(_) => {}
        // A signal counts as a ring: the caller looks at everything again.
        Err(Errno::INTR) => {
            return Ok(Readiness {
                rung: true,
                ..Readiness::default()
            });
        }
        Err(error) => return Err(error.into()),
    }
    let came_to =
        |place: Option<usize>| place.map_or(PollFlags::empty(), |place| fds[place].revents());
    let (rung, came, attended) = (
        !fds[0].revents().is_empty(),
        came_to(of_socket),
        !came_to(of_session).is_empty(),
    );
    if rung {
        bell.silence();
    }
    let hung_up = came.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    Ok(Readiness {
        readable: came.contains(PollFlags::IN),
        writable: came.contains(PollFlags::OUT),
        hung_up,
        rung,
        attended,
    })
}

/// A time in the system's form; more than a million seconds count as for ever.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().min(1_000_000) as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}
