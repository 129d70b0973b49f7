//! A small accept loop that can be stopped, for the control socket.

use crate::sessions::lock;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{ErrorKind, Result};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

/// A listener whose connections can be accepted without waiting.
pub(crate) trait Accept: AsFd + Send + 'static {
    /// A connection.
    type Connection;
    /// The next connection; `WouldBlock` if there is none.
    fn accept(&self) -> Result<Self::Connection>;
}

impl Accept for std::os::unix::net::UnixListener {
    type Connection = UnixStream;

    fn accept(&self) -> Result<Self::Connection> {
        let (stream, _) = Self::accept(self)?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

/// A running accept loop. Dropping it stops it.
pub(crate) struct AcceptLoop {
    stop: UnixStream,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AcceptLoop {
    /// Starts a thread that hands each connection to `serve`. The listener must be non-blocking.
    pub(crate) fn start<L: Accept>(
        name: &str,
        listener: L,
        mut serve: impl FnMut(L::Connection) + Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let body = move || {
            while wait(&listener, &stopped) {
                match listener.accept() {
                    Ok(connection) => serve(connection),
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::WouldBlock
                                | ErrorKind::Interrupted
                                | ErrorKind::ConnectionAborted
                        ) => {}
                    // Out of descriptors or memory: the connection stays in the queue, so do not
                    // spin.
                    Err(_) => std::thread::sleep(Duration::from_millis(50)),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)?;
        Ok(Self {
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Stops accepting.
    pub(crate) fn stop(&self) {
        drop(self.stop.shutdown(std::net::Shutdown::Both));
        if let Some(thread) = lock(&self.thread).take() {
            drop(thread.join());
        }
    }
}

impl Drop for AcceptLoop {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits for a connection; false if the loop is to end.
fn wait(listener: &impl AsFd, stopped: &UnixStream) -> bool {
    loop {
        let mut fds = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => return false,
            Ok(_) if !fds[0].revents().is_empty() => return true,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
