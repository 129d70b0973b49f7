//! The server: listening, the table of connections, shutdown.
//!
//! Threads: one that accepts, one for each connection. Shutdown: 1 the accepting thread ends and its sockets close; 2 all bells
//! ring, connections refuse what comes now and end when nothing is in flight; 3 what is left at the deadline is cut off.

use crate::connection::{self, Ending};
use crate::intake::INTAKE_BYTES;
use crate::ledger::Bounds;
use crate::link::Link;
use crate::listen::{Listen, Listener};
use crate::protocol::{HELD_TIMES, MAX_REQUEST_BYTES};
use crate::socket::{Bell, Socket, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windrow_export::ExportSource;

/// How long to wait before accepting again when the system has no descriptor or memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long connections that were cut off may take to notice.
const CUT_GRACE: Duration = Duration::from_millis(500);

/// Hears of connections; called from their threads, must not block.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// What an [`Observer`] hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A client entered an export.
    Entered {
        /// Number of the connection.
        id: u64,
        /// Who.
        peer: String,
        /// Which export.
        export: String,
    },
    /// A connection ended.
    Ended {
        /// Number of the connection.
        id: u64,
        /// Who.
        peer: String,
        /// Why.
        ending: Ending,
    },
    /// A client was turned away because there are too many.
    TurnedAway {
        /// Who.
        peer: String,
    },
    /// A client could not be accepted.
    AcceptFailed {
        /// What the system said.
        kind: ErrorKind,
    },
}

/// Bounds and habits of a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// Listen on addresses that other hosts can reach too.
    pub allow_remote: bool,
    /// Permissions of unix socket files.
    pub unix_mode: u32,
    /// Most connections at a time; further clients are turned away.
    pub connections_max: usize,
    /// Most requests in flight of one connection, unsent replies included (1 to 65536).
    pub requests_in_flight_max: u32,
    /// Most bytes of payload in flight of one connection, unsent replies included; at least 32 MiB.
    pub bytes_in_flight_max: u64,
    /// Time a client has to enter an export.
    pub handshake_timeout: Duration,
    /// Time a client may stop in the middle of a message, or leave its replies unread.
    pub stall_timeout: Duration,
    /// Hears of connections.
    pub observer: Option<Observer>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            allow_remote: false,
            unix_mode: 0o600,
            connections_max: 64,
            requests_in_flight_max: 128,
            bytes_in_flight_max: 64 << 20,
            handshake_timeout: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(300),
            observer: None,
        }
    }
}

impl ServerOptions {
    /// The most memory in bytes that clients can make the server hold.
    pub fn memory_bytes_max(&self) -> u64 {
        let buffers = INTAKE_BYTES as u64 + u64::from(self.requests_in_flight_max) * (64 << 10);
        // Buffers come in powers of two.
        self.connections_max as u64 * (HELD_TIMES as u64 * self.bytes_in_flight_max + buffers)
    }

    fn check(&self) -> io::Result<()> {
        let wrong = |text| Err(io::Error::new(ErrorKind::InvalidInput, text));
        if !(1..=65536).contains(&self.requests_in_flight_max) {
            return wrong("requests in flight must be between 1 and 65536");
        }
        if self.bytes_in_flight_max < u64::from(MAX_REQUEST_BYTES) {
            return wrong("bytes in flight must be at least 32 MiB, one largest request");
        }
        if self.connections_max == 0 || self.handshake_timeout.is_zero() || self.stall_timeout.is_zero() {
            return wrong("connections and times must not be zero");
        }
        Ok(())
    }
}

/// A connection as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionInfo {
    /// Number of the connection, never used again.
    pub id: u64,
    /// Who.
    pub peer: String,
    /// Which export was entered; `None` during negotiation.
    pub export: Option<String>,
    /// Requests since it began.
    pub requests: u64,
    /// Bytes of answered reads.
    pub read_bytes: u64,
    /// Bytes of answered writes.
    pub written_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests in flight, unsent replies included.
    pub in_flight: u32,
}

/// How a shutdown went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShutdownReport {
    /// Connections that had to be cut off at the deadline.
    pub cut: usize,
    /// Connections whose requests the volume has not completed even so; their threads wait on.
    pub unfinished: usize,
}

struct Entry {
    link: Arc<Link>,
    peer: String,
    export: Option<String>,
}

/// What all threads of a server share.
pub(crate) struct Control {
    pub(crate) source: Arc<dyn ExportSource>,
    pub(crate) options: ServerOptions,
    stopping: AtomicBool,
    bell: Bell,
    entries: Mutex<BTreeMap<u64, Entry>>,
    changed: Condvar,
}

impl Control {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(observer) = &self.options.observer {
            observer(&event());
        }
    }

    /// Waits until no connection is left; the number left at the deadline.
    fn wait_empty(&self, deadline: Instant) -> usize {
        let mut entries = self.entries();
        while !entries.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            entries = self.changed.wait_timeout(entries, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        entries.len()
    }
}

/// A running NBD server. Dropping it shuts it down at once.
pub struct Server {
    control: Arc<Control>,
    addresses: Vec<Listen>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts serving `source` on all addresses of `listen`. Errors: options out of bounds, an address that cannot be used (see
    /// [`Listen`]); then nothing is served at all.
    pub fn start(source: Arc<dyn ExportSource>, listen: Vec<Listen>, options: ServerOptions) -> io::Result<Self> {
        options.check()?;
        let open = |address| Listener::open(address, options.allow_remote, options.unix_mode);
        let listeners = listen.iter().map(open).collect::<io::Result<Vec<Listener>>>()?;
        let addresses = listeners.iter().map(Listener::address).collect::<io::Result<Vec<Listen>>>()?;
        let control = Arc::new(Control {
            source,
            options,
            stopping: AtomicBool::new(false),
            bell: Bell::new()?,
            entries: Mutex::new(BTreeMap::new()),
            changed: Condvar::new(),
        });
        let shared = control.clone();
        let acceptor = std::thread::Builder::new().name("nbd-accept".into()).spawn(move || accept_all(&shared, &listeners))?;
        Ok(Self { control, addresses, acceptor: Some(acceptor) })
    }

    /// Where it listens, in the order given to [`Server::start`], with the ports that the system chose.
    pub fn addresses(&self) -> Vec<Listen> {
        self.addresses.clone()
    }

    /// All connections, the oldest first.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let info = |(id, entry): (&u64, &Entry)| {
            let (totals, in_flight) = entry.link.totals();
            ConnectionInfo {
                id: *id,
                peer: entry.peer.clone(),
                export: entry.export.clone(),
                requests: totals.requests,
                read_bytes: totals.read_bytes,
                written_bytes: totals.written_bytes,
                errors: totals.errors,
                in_flight,
            }
        };
        self.control.entries().iter().map(info).collect()
    }

    /// Stops accepting, lets requests in flight finish within `time`, refuses later ones, closes everything.
    pub fn shutdown(mut self, time: Duration) -> ShutdownReport {
        self.stop(time)
    }

    fn stop(&mut self, time: Duration) -> ShutdownReport {
        let Some(acceptor) = self.acceptor.take() else { return ShutdownReport::default() };
        self.control.stopping.store(true, Ordering::SeqCst);
        self.control.bell.ring();
        // Its thread ends by itself only; a panic there has closed the sockets as well.
        acceptor.join().unwrap_or_default();
        self.control.entries().values().for_each(|entry| entry.link.bell.ring());
        let cut = self.control.wait_empty(Instant::now() + time);
        if cut == 0 {
            return ShutdownReport::default();
        }
        self.control.entries().values().for_each(|entry| entry.link.socket.cut());
        ShutdownReport { cut, unfinished: self.control.wait_empty(Instant::now() + CUT_GRACE) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn accept_all(control: &Arc<Control>, listeners: &[Listener]) {
    let mut next_id = 1;
    while !control.is_stopping() {
        let bell = PollFd::new(&control.bell, PollFlags::IN);
        let mut fds: Vec<PollFd<'_>> = std::iter::once(bell).chain(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN))).collect();
        // An interrupted wait is followed by another one.
        poll(&mut fds, None).unwrap_or_default();
        for listener in listeners {
            while !control.is_stopping() {
                match listener.accept() {
                    Ok((socket, peer)) => {
                        welcome(control, socket, peer, next_id);
                        next_id += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        control.tell(|| Event::AcceptFailed { kind: error.kind() });
                        poll(&mut [PollFd::new(&control.bell, PollFlags::IN)], Some(&timespec(ACCEPT_PAUSE))).unwrap_or_default();
                        break;
                    }
                }
            }
        }
    }
}

/// Takes a connection out of the table whatever way its thread ends.
struct Registered {
    control: Arc<Control>,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.control.entries().remove(&self.id);
        self.control.changed.notify_all();
    }
}

fn welcome(control: &Arc<Control>, socket: OwnedFd, peer: String, id: u64) {
    if control.entries().len() >= control.options.connections_max {
        return control.tell(|| Event::TurnedAway { peer });
    }
    let bounds = Bounds { requests: control.options.requests_in_flight_max, bytes: control.options.bytes_in_flight_max };
    let link = match Link::new(Socket::new(socket), bounds) {
        Ok(link) => Arc::new(link),
        Err(error) => return control.tell(|| Event::AcceptFailed { kind: error.kind() }),
    };
    control.entries().insert(id, Entry { link: link.clone(), peer: peer.clone(), export: None });
    let registered = Registered { control: control.clone(), id };
    let thread = std::thread::Builder::new().name(format!("nbd-{id}"));
    let spawned = thread.spawn(move || {
        let control = &registered.control;
        let ending = connection::run(control, &link, &peer, |export| {
            if let Some(entry) = control.entries().get_mut(&id) {
                entry.export = Some(export.to_owned());
            }
            control.tell(|| Event::Entered { id, peer: peer.clone(), export: export.to_owned() });
        });
        // The client sees the end when the connection leaves the table, not when the last completion lets go of the link.
        link.socket.cut();
        control.tell(|| Event::Ended { id, peer, ending });
    });
    if let Err(error) = spawned {
        control.tell(|| Event::AcceptFailed { kind: error.kind() });
    }
}
