//! The server: listening, the table of connections, shutdown.
//!
//! Threads: one that accepts, one for each connection. Shutdown:
//! 1. The accepting thread ends and its sockets close.
//! 2. All bells ring; connections refuse new requests and end when nothing is in flight.
//! 3. Connections left at the deadline are cut off.

use crate::budget::{Account, Budget, Peer};
use crate::connection::{self, Ending};
use crate::ledger::Bounds;
use crate::link::Link;
use crate::listen::{Listen, Listener};
use crate::options::ServerOptions;
use crate::socket::{Bell, Socket, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windrow_frontend::ExportSource;

/// Pause before the next accept when the system has no descriptor or memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for connections to end after they were cut off.
const CUT_GRACE: Duration = Duration::from_millis(500);

/// Receiver of events; called from the connections' threads, must not block.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// Event for an [`Observer`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A client entered an export.
    Entered {
        /// Number of the connection.
        id: u64,
        /// The peer.
        peer: String,
        /// The export.
        export: String,
    },
    /// A connection ended.
    Ended {
        /// Number of the connection.
        id: u64,
        /// The peer.
        peer: String,
        /// The reason.
        ending: Ending,
    },
    /// A client was refused because there are too many.
    TurnedAway {
        /// The peer.
        peer: String,
        /// The bound that is reached.
        limit: Limit,
    },
    /// A client could not be accepted.
    AcceptFailed {
        /// The system's error.
        cause: String,
    },
}

/// A bound that keeps a client out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Limit {
    /// Of the server.
    #[error("the server has {0} clients, its limit")]
    Connections(usize),
    /// Of the peer.
    #[error("this client has {0} connections, the limit for one client (--connections-per-client)")]
    PerPeer(usize),
    /// Of the export.
    #[error("the export has {0} clients, the limit for one export")]
    PerExport(usize),
    /// Of connections that have not entered an export.
    #[error("too many connections arrive at once")]
    Handshakes,
}

/// A connection as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionInfo {
    /// Number of the connection, never used again.
    pub id: u64,
    /// The peer.
    pub peer: String,
    /// The export that was entered; `None` during negotiation.
    pub export: Option<String>,
    /// Requests since its start.
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

/// Result of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShutdownReport {
    /// Connections that had to be cut off at the deadline.
    pub cut: usize,
    /// Connections whose requests the volume has still not completed; their threads wait on.
    pub unfinished: usize,
}

/// Use of the bounds by one peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerUsage {
    /// An address, or a process.
    pub peer: Peer,
    /// Connections, those in negotiation included.
    pub connections: usize,
    /// Bytes of the memory for requests and replies.
    pub memory_bytes: u64,
}

/// Use of a server's bounds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerUsage {
    /// Clients that have entered an export.
    pub connections: usize,
    /// Connections that have not.
    pub handshakes: usize,
    /// Clients refused since the start because a bound was reached.
    pub refused: u64,
    /// Connections closed for newer ones during negotiation.
    pub displaced: u64,
    /// Connections that did not finish negotiation in time.
    pub timed_out: u64,
    /// Connections closed because the client stalled: in the middle of a request, or with replies
    /// that it did not take.
    pub stalled: u64,
    /// Memory for requests and replies: in use.
    pub memory_bytes: u64,
    /// Highest such memory since the start.
    pub memory_peak_bytes: u64,
    /// Connections that wait for such memory now.
    pub waiting: usize,
    /// Requests that had to wait for it since the start.
    pub waits: u64,
    /// The peers, by memory, the largest first.
    pub peers: Vec<PeerUsage>,
}

/// A view of a server that does not keep it alive.
#[derive(Clone)]
pub struct Watch(Weak<Control>);

impl Watch {
    /// Use of its bounds; `None` once the server has ended.
    pub fn usage(&self) -> Option<ServerUsage> {
        self.0.upgrade().map(|control| control.usage())
    }
}

struct Entry {
    link: Arc<Link>,
    peer: Peer,
    name: String,
    export: Option<String>,
    /// It was displaced before it entered an export.
    is_displaced: bool,
}

/// Sums since the start.
#[derive(Default)]
struct Counts {
    refused: AtomicU64,
    displaced: AtomicU64,
    timed_out: AtomicU64,
    stalled: AtomicU64,
}

/// State shared by all threads of a server.
pub(crate) struct Control {
    pub(crate) source: Arc<dyn ExportSource>,
    pub(crate) options: ServerOptions,
    budget: Arc<Budget>,
    counts: Counts,
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
        self.entries
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(observer) = &self.options.observer {
            observer(&event());
        }
    }

    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn turn_away(&self, peer: &str, limit: Limit) {
        Self::count(&self.counts.refused);
        self.tell(|| Event::TurnedAway {
            peer: peer.to_owned(),
            limit,
        });
    }

    fn usage(&self) -> ServerUsage {
        let (memory, held) = (self.budget.usage(), self.budget.held_by());
        let mut usage = ServerUsage {
            memory_bytes: memory.bytes,
            memory_peak_bytes: memory.peak,
            waiting: memory.waiting,
            waits: memory.waits,
            ..Default::default()
        };
        let mut peers: BTreeMap<Peer, usize> = BTreeMap::new();
        for entry in self.entries().values() {
            *(if entry.export.is_some() {
                &mut usage.connections
            } else {
                &mut usage.handshakes
            }) += 1;
            *peers.entry(entry.peer).or_default() += 1;
        }
        let peer = |(peer, connections)| PeerUsage {
            peer,
            connections,
            memory_bytes: held.get(&peer).copied().unwrap_or(0),
        };
        usage.peers = peers.into_iter().map(peer).collect();
        usage
            .peers
            .sort_by_key(|peer| Reverse((peer.memory_bytes, peer.connections)));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (usage.refused, usage.displaced) =
            (count(&self.counts.refused), count(&self.counts.displaced));
        (usage.timed_out, usage.stalled) =
            (count(&self.counts.timed_out), count(&self.counts.stalled));
        usage
    }

    /// Moves a connection to those that have entered an export, if the bounds allow it.
    pub(crate) fn enter(&self, id: u64, export: &str) -> Result<(), Limit> {
        let mut entries = self.entries();
        let Some(peer) = entries.get(&id).map(|entry| entry.peer) else {
            return Ok(());
        };
        let entered = || {
            entries
                .iter()
                .filter(|(other, entry)| **other != id && entry.export.is_some())
                .map(|(_, entry)| entry)
        };
        let ServerOptions {
            connections_max,
            connections_per_peer,
            connections_per_export,
            ..
        } = self.options;
        let of_export = || {
            entered()
                .filter(|entry| entry.export.as_deref() == Some(export))
                .count()
        };
        let limit = if entered().count() >= connections_max {
            Some(Limit::Connections(connections_max))
        } else if entered().filter(|entry| entry.peer == peer).count() >= connections_per_peer {
            Some(Limit::PerPeer(connections_per_peer))
        } else {
            (of_export() >= connections_per_export)
                .then_some(Limit::PerExport(connections_per_export))
        };
        if let Some(entry) = entries.get_mut(&id) {
            match limit {
                None => entry.export = Some(export.to_owned()),
                Some(limit) => {
                    let name = entry.name.clone();
                    drop(entries);
                    self.turn_away(&name, limit);
                    return Err(limit);
                }
            }
        }
        Ok(())
    }

    /// Makes room among the connections that have not entered an export: closes the oldest one of
    /// the peer with most of them.
    fn displace(&self) {
        let mut entries = self.entries();
        // For each peer: its number of connections, and its oldest one.
        let mut unfinished: BTreeMap<Peer, (usize, u64)> = BTreeMap::new();
        for (id, entry) in entries
            .iter()
            .filter(|(_, entry)| entry.export.is_none() && !entry.is_displaced)
        {
            unfinished.entry(entry.peer).or_insert((0, *id)).0 += 1;
        }
        if unfinished.values().map(|(count, _)| count).sum::<usize>() <= self.options.handshakes_max
        {
            return;
        }
        let oldest = unfinished
            .into_values()
            .max_by_key(|(count, oldest)| (*count, Reverse(*oldest)))
            .map(|(_, oldest)| oldest);
        if let Some(entry) = oldest.and_then(|oldest| entries.get_mut(&oldest)) {
            entry.is_displaced = true;
            entry.link.socket.cut();
            Self::count(&self.counts.displaced);
        }
    }

    /// Reason that a connection ended, including causes that its thread does not know.
    fn ending(&self, id: u64, ending: Ending) -> Ending {
        if self
            .entries()
            .get(&id)
            .is_some_and(|entry| entry.is_displaced && entry.export.is_none())
        {
            Ending::Displaced
        } else {
            ending
        }
    }

    /// Waits until no connection is left; returns the number left at the deadline.
    fn wait_empty(&self, deadline: Instant) -> usize {
        let mut entries = self.entries();
        while !entries.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            entries = self
                .changed
                .wait_timeout(entries, left)
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .0;
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
    /// Starts serving `source` on all addresses of `listen`. Errors: options out of bounds, an
    /// address that cannot be used (see [`Listen`]); then nothing is served at all.
    pub fn start(
        source: Arc<dyn ExportSource>,
        listen: Vec<Listen>,
        options: ServerOptions,
    ) -> io::Result<Self> {
        options.check()?;
        let open = |address: &Listen| {
            let listener = Listener::open(address, options.allow_remote, options.unix_mode);
            listener.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
        };
        let listeners = listen
            .iter()
            .map(open)
            .collect::<io::Result<Vec<Listener>>>()?;
        let addresses = listeners
            .iter()
            .map(Listener::address)
            .collect::<io::Result<Vec<Listen>>>()?;
        let control = Arc::new(Control {
            budget: Budget::new(options.memory_bytes),
            counts: Counts::default(),
            source,
            options,
            stopping: AtomicBool::new(false),
            bell: Bell::new()?,
            entries: Mutex::new(BTreeMap::new()),
            changed: Condvar::new(),
        });
        let shared = control.clone();
        let acceptor = std::thread::Builder::new()
            .name("nbd-accept".into())
            .spawn(move || accept_all(&shared, &listeners))?;
        Ok(Self {
            control,
            addresses,
            acceptor: Some(acceptor),
        })
    }

    /// Addresses that it listens at, in the order given to [`Server::start`], with the ports that
    /// the system chose.
    pub fn addresses(&self) -> Vec<Listen> {
        self.addresses.clone()
    }

    /// All connections, the oldest first.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let info = |(id, entry): (&u64, &Entry)| {
            let (totals, in_flight) = entry.link.totals();
            ConnectionInfo {
                id: *id,
                peer: entry.name.clone(),
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

    /// A view for other threads.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.control))
    }

    /// Stops accepting, lets requests in flight finish within `time`, refuses later ones, closes
    /// everything.
    pub fn shutdown(mut self, time: Duration) -> ShutdownReport {
        self.stop(time)
    }

    fn stop(&mut self, time: Duration) -> ShutdownReport {
        let Some(acceptor) = self.acceptor.take() else {
            return ShutdownReport::default();
        };
        self.control.stopping.store(true, Ordering::SeqCst);
        self.control.bell.ring();
        // Its thread ends only by itself; a panic there has closed the sockets as well.
        acceptor.join().unwrap_or_default();
        self.control
            .entries()
            .values()
            .for_each(|entry| entry.link.bell.ring());
        let cut = self.control.wait_empty(Instant::now() + time);
        if cut == 0 {
            return ShutdownReport::default();
        }
        self.control
            .entries()
            .values()
            .for_each(|entry| entry.link.socket.cut());
        ShutdownReport {
            cut,
            unfinished: self.control.wait_empty(Instant::now() + CUT_GRACE),
        }
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
        let mut fds: Vec<PollFd<'_>> = std::iter::once(bell)
            .chain(
                listeners
                    .iter()
                    .map(|listener| PollFd::new(listener, PollFlags::IN)),
            )
            .collect();
        // An interrupted wait is followed by another one.
        poll(&mut fds, None).unwrap_or_default();
        for listener in listeners {
            while !control.is_stopping() {
                match listener.accept(control.options.keepalive) {
                    Ok((socket, peer, name)) => {
                        welcome(control, socket, (peer, name), next_id);
                        next_id += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        control.tell(|| Event::AcceptFailed {
                            cause: error.to_string(),
                        });
                        poll(
                            &mut [PollFd::new(&control.bell, PollFlags::IN)],
                            Some(&timespec(ACCEPT_PAUSE)),
                        )
                        .unwrap_or_default();
                        break;
                    }
                }
            }
        }
    }
}

/// Removes a connection from the table however its thread ends.
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

fn welcome(control: &Arc<Control>, socket: OwnedFd, (peer, name): (Peer, String), id: u64) {
    // Displaced connections end by themselves, but each of them has a thread until then.
    let unfinished = control
        .entries()
        .values()
        .filter(|entry| entry.export.is_none())
        .count();
    if unfinished >= 2 * control.options.handshakes_max {
        return control.turn_away(&name, Limit::Handshakes);
    }
    let bounds = Bounds {
        requests: control.options.requests_in_flight_max,
        bytes: control.options.bytes_in_flight_max,
    };
    let link = match Link::new(Socket::new(socket), bounds, |bell| {
        Account::new(control.budget.clone(), id, peer, bell)
    }) {
        Ok(link) => Arc::new(link),
        Err(error) => {
            return control.tell(|| Event::AcceptFailed {
                cause: error.to_string(),
            });
        }
    };
    let entry = Entry {
        link: link.clone(),
        peer,
        name: name.clone(),
        export: None,
        is_displaced: false,
    };
    control.entries().insert(id, entry);
    control.displace();
    let registered = Registered {
        control: control.clone(),
        id,
    };
    let thread = std::thread::Builder::new().name(format!("nbd-{id}"));
    let spawned = thread.spawn(move || {
        let control = &registered.control;
        let entered = |export: &str| {
            control.tell(|| Event::Entered {
                id,
                peer: name.clone(),
                export: export.to_owned(),
            })
        };
        let ending = connection::run(control, &link, (id, &name), entered);
        // The client sees the end when the connection leaves the table, not when the last
        // completion drops the link.
        link.socket.cut();
        let ending = control.ending(id, ending);
        match ending {
            Ending::HandshakeTimeout => Control::count(&control.counts.timed_out),
            Ending::Stalled | Ending::Unread => Control::count(&control.counts.stalled),
            _ => {}
        }
        control.tell(|| Event::Ended {
            id,
            peer: name,
            ending,
        });
    });
    if let Err(error) = spawned {
        control.tell(|| Event::AcceptFailed {
            cause: error.to_string(),
        });
    }
}
