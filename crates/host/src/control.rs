//! The control socket: newline-delimited JSON over a unix socket, one request and one answer at a time on each connection.
//!
//! ```text
//! -> {"version":1,"command":"volume-create","name":"data","size_bytes":1073741824}
//! <- {"version":1,"ok":{"kind":"volume","id":1,"name":"data",...}}
//! <- {"version":1,"error":{"id":"WR-VOLUME-002","what":"...","why":"...","remedy":"..."}}
//! ```
//! The socket is for the user who started the daemon only (mode 0600). Lines and connections are bounded. Fewer commands than there are connections may be under
//! way: where a member hangs they wait, each with its connection, and what shows that and ends it must find one.

use crate::exports::{ClientReport, ExportReport};
use crate::failure::{Failure, id};
use crate::listener::AcceptLoop;
use crate::recorder::Lot;
use crate::report::{MemberReport, PoolReport, VolumeReport};
use crate::sessions::lock;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windrow_engine::Sharing;

/// Version of the protocol.
pub const CONTROL_VERSION: u32 = 1;
const LINE_MAX: u64 = 1 << 20;
const CONNECTIONS_MAX: usize = 32;
/// Commands that may be under way, but for those that never wait for members.
const COMMANDS_MAX: usize = 24;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// How long a daemon that ends waits for answers to leave.
const FAREWELL: Duration = Duration::from_secs(2);

fn may_shrink() -> bool {
    true
}

/// What can be asked of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Everything about the pool.
    Status,
    /// A new volume.
    VolumeCreate {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// Make it the default export.
        #[serde(default)]
        default: bool,
        /// Although clients are connected by the default that there is: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// A new size.
    VolumeResize {
        /// Which.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// It may become smaller. Absent, as older clients leave it, which asked before they sent it: it may.
        #[serde(default = "may_shrink")]
        shrink: bool,
        /// Although clients are connected, if it becomes smaller: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// What flushes of a volume do.
    VolumeSync {
        /// Which.
        name: String,
        /// `standard`, `always` or `disabled`.
        sync: windrow_layout::checkpoint::SyncMode,
    },
    /// How blocks of a volume are stored from now on.
    VolumeCompression {
        /// Which.
        name: String,
        /// `off`, `lz4`, `zstd` or `lz4-then-zstd`.
        compression: windrow_layout::checkpoint::Compression,
    },
    /// Whether blocks of a volume are shared from now on.
    VolumeDedup {
        /// Which.
        name: String,
        /// `off`, `verify` or `hash`.
        dedup: windrow_layout::checkpoint::Dedup,
    },
    /// Delete a volume.
    VolumeDelete {
        /// Which.
        name: String,
        /// Although clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Count what each volume keeps for itself; looks through the maps of all volumes.
    Sharing,
    /// Change properties; what is absent stays.
    PoolSet(PropertyChange),
    /// All exports.
    ExportList,
    /// A new export.
    ExportAdd {
        /// Name that clients ask for.
        name: String,
        /// Volume behind it.
        volume: String,
        /// Refuse writes.
        #[serde(default)]
        read_only: bool,
        /// Free text.
        #[serde(default)]
        description: String,
        /// Make it the default.
        #[serde(default)]
        default: bool,
        /// Although clients are connected by the default that there is: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Remove an export.
    ExportRemove {
        /// Which.
        name: String,
        /// Take the default away from it alone; it stays.
        #[serde(default)]
        default: bool,
        /// Although clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Disconnect clients.
    ExportDisconnect {
        /// Of this export; of all if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        export: Option<String>,
        /// This one alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<u32>,
    },
    /// Write a checkpoint now.
    Checkpoint,
    /// Begin, pause, resume or stop a scrub. Answered at once; `status` shows how it goes on.
    Scrub {
        /// What to do.
        action: ScrubAction,
        /// For a start: most bytes read from members each second; absent or 0: no bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_per_second: Option<u64>,
    },
    /// Take a member out of service.
    MemberOffline {
        /// Its slot.
        member: u8,
    },
    /// Bring a member back: it is rebuilt with what it has missed.
    MemberOnline {
        /// Its slot.
        member: u8,
        /// Where its device is, if not where it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
    },
    /// Put a new device in the place of a member: it is rebuilt.
    MemberReplace {
        /// Its slot.
        member: u8,
        /// The new device.
        path: PathBuf,
        /// Although it holds something.
        #[serde(default)]
        overwrite: bool,
        /// What is written to it is durable without a flush.
        #[serde(default)]
        power_safe: bool,
    },
    /// Add a spare.
    SpareAdd {
        /// Its device.
        path: PathBuf,
        /// Although it holds something.
        #[serde(default)]
        overwrite: bool,
        /// Although it is too small for the place of any member.
        #[serde(default)]
        small: bool,
    },
    /// Use spares for data from now on.
    Grow {
        /// Their slots.
        members: Vec<u8>,
    },
    /// Add a journal device.
    JournalAdd {
        /// It.
        path: PathBuf,
        /// Although it holds something.
        #[serde(default)]
        overwrite: bool,
        /// What is written to it is durable without a flush.
        #[serde(default)]
        power_safe: bool,
    },
    /// Remove a spare or a journal device; or a member that holds data, which leaves when that has moved to the others.
    SpareRemove {
        /// Its slot.
        member: u8,
    },
    /// Begin to record what a volume, or every volume, is asked for; answered with an empty lot that names the recording.
    RecordStart {
        /// Which; all if there is none.
        name: Option<String>,
    },
    /// Take what was recorded since the last time.
    RecordTake {
        /// Which recording.
        token: u64,
        /// End it.
        #[serde(default)]
        end: bool,
    },
    /// End the daemon; answered when everything is finished.
    Shutdown {
        /// Release the pool for another host.
        #[serde(default)]
        export: bool,
        /// Release it although clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
}

impl Command {
    /// True if it waits for no member for long.
    fn waits_for_nobody(&self) -> bool {
        let is_bounded = matches!(self, Self::ExportDisconnect { .. });
        is_bounded || matches!(self, Self::Status | Self::MemberOffline { .. } | Self::ExportList | Self::RecordStart { .. } | Self::RecordTake { .. })
    }
}

/// What a scrub is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Begin.
    Start,
    /// Stand still until it is resumed.
    Pause,
    /// Go on.
    Resume,
    /// End it where it is.
    Stop,
}

/// Properties to change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PropertyChange {
    /// Spare factor in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_per_mille: Option<u16>,
    /// Age bound of data that is not sealed, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal_age_ms: Option<u32>,
    /// A victim rule by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim_policy: Option<String>,
    /// A placement by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// Discards for freed segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<bool>,
    /// Most bytes each second that a rebuild reads from, or writes to, one member; 0: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_rate: Option<u64>,
    /// Bytes each second of one member that a rebuild is given even while users are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_rate_min: Option<u64>,
    /// Days from the end of a scrub to the beginning of the next one, which begins by itself; 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub_interval_days: Option<u16>,
    /// Milliseconds after which a read that takes much longer than usual is looked for elsewhere; 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_latency_bound_ms: Option<u32>,
    /// Per cent at which it is told that the pool fills; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<Vec<u8>>,
    /// What compression and deduplication save is used for, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reply {
    /// Done.
    Done,
    /// The pool.
    Pool(Box<PoolReport>),
    /// A volume.
    Volume(VolumeReport),
    /// A member.
    Member(Box<MemberReport>),
    /// Exports.
    Exports {
        /// All of them, the default one first if there is one.
        exports: Vec<ExportReport>,
        /// Names of volumes that no export serves.
        #[serde(default)]
        not_served: Vec<String>,
    },
    /// What became of clients.
    Disconnected {
        /// Those that were disconnected.
        clients: Vec<ClientReport>,
        /// Of these, those that did not end their connection in time and were cut off.
        cut: usize,
        /// Of these, those whose connection ends when the pool has answered their requests.
        unfinished: usize,
    },
    /// What was recorded.
    Recorded(Lot),
    /// What each volume keeps for itself.
    Sharing(Sharing),
}

/// Carries out commands.
pub trait ControlHandler: Send + Sync {
    /// Carries out one command; may take as long as it needs.
    fn handle(&self, command: Command) -> Result<Reply, Failure>;
}

#[derive(Serialize, Deserialize)]
struct Question {
    version: u32,
    #[serde(flatten)]
    command: Command,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ok: Option<Reply>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

/// A running control socket. Dropping it stops it and removes the socket.
pub struct ControlServer {
    path: PathBuf,
    accepting: AcceptLoop,
    open: Arc<Connections>,
}

/// Those that are open, by number.
#[derive(Default)]
struct Connections {
    open: Mutex<BTreeMap<u64, Arc<UnixStream>>>,
    next: AtomicU64,
    /// Commands under way that may have to wait.
    commands: AtomicUsize,
}

impl Connections {
    /// `None` if there are as many as there may be.
    fn add(self: &Arc<Self>, stream: UnixStream) -> Option<Connection> {
        let (number, stream) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(stream));
        let mut open = lock(&self.open);
        if open.len() >= CONNECTIONS_MAX {
            return None;
        }
        open.insert(number, stream.clone());
        Some(Connection { of: self.clone(), number, stream })
    }

    fn count(&self) -> usize {
        lock(&self.open).len()
    }

    /// Carries out a command, unless too many are under way.
    fn carry_out(&self, command: Command, handler: &dyn ControlHandler) -> Result<Reply, Failure> {
        if command.waits_for_nobody() {
            return handler.handle(command);
        }
        let under_way = Counted::of(&self.commands);
        if under_way.before >= COMMANDS_MAX {
            let why = format!("{COMMANDS_MAX} commands are under way already, and wait for the pool or for each other");
            let remedy = "see `windrow pool status`: a member that does not answer keeps them waiting until `windrow pool offline`";
            return Err(Failure::new(id::POOL_BUSY, "the daemon takes no further command", why).remedy(remedy));
        }
        handler.handle(command)
    }
}

/// Counts until it goes.
struct Counted<'a> {
    counter: &'a AtomicUsize,
    before: usize,
}

impl<'a> Counted<'a> {
    fn of(counter: &'a AtomicUsize) -> Self {
        Self { counter, before: counter.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open one. It is closed when this goes, whichever way that comes.
struct Connection {
    of: Arc<Connections>,
    number: u64,
    stream: Arc<UnixStream>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.of.open).remove(&self.number);
    }
}

impl ControlServer {
    /// Listens at `path`. A socket that nobody serves any more is replaced.
    pub fn start(path: &Path, handler: Arc<dyn ControlHandler>) -> Result<Self, Failure> {
        let what = format!("cannot open the control socket {}", path.display());
        if UnixStream::connect(path).is_ok() {
            return Err(Failure::new(id::POOL_BUSY, what, "another daemon serves it").remedy("stop that daemon, or choose another socket with --control"));
        }
        let failure = |error: std::io::Error| Failure::new(id::LOCAL_FILE, what.clone(), error).remedy("choose another socket with --control");
        if let Some(folder) = path.parent() {
            crate::paths::make_socket_folder(folder).map_err(failure)?;
        }
        remove_stale(path).map_err(failure)?;
        let bound = bind_private(path).map_err(failure)?;
        listen(&bound, BACKLOG).map_err(|error| failure(error.into()))?;
        let listener = UnixListener::from(bound);
        let open = Arc::new(Connections::default());
        let connections = open.clone();
        let accepting = AcceptLoop::start("windrow-control", listener, move |stream| admit(stream, &handler, &connections)).map_err(failure)?;
        Ok(Self { path: path.to_owned(), accepting, open })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stops accepting, lets running commands answer (for at most two seconds), closes all connections.
    pub fn stop(&self) {
        self.accepting.stop();
        for stream in lock(&self.open.open).values() {
            drop(stream.shutdown(std::net::Shutdown::Read));
        }
        let end = std::time::Instant::now() + FAREWELL;
        while self.open.count() > 0 && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(std::fs::remove_file(&self.path));
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A socket for its user only, at which nobody listens yet: until then nobody can connect, so that its rights hold from the first moment.
fn bind_private(path: &Path) -> std::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// A socket that nobody serves any more goes. Anything else that has the name is not ours to remove.
fn remove_stale(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, "it exists and is not a socket")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn admit(stream: UnixStream, handler: &Arc<dyn ControlHandler>, connections: &Arc<Connections>) {
    // Beyond the bound, or where there is no thread for it, a connection is closed at once; the client sees the end of the stream.
    let Some(connection) = connections.add(stream) else { return };
    let handler = handler.clone();
    // What goes wrong on a connection ends that connection only.
    let body = move || drop(converse(&connection, &*handler));
    drop(std::thread::Builder::new().name("windrow-control".to_owned()).spawn(body));
}

fn converse(connection: &Connection, handler: &dyn ControlHandler) -> std::io::Result<()> {
    let mut reader = BufReader::new(&*connection.stream);
    loop {
        let mut line = Vec::new();
        (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        let result = match serde_json::from_slice::<Question>(&line) {
            Ok(question) if question.version == CONTROL_VERSION => connection.of.carry_out(question.command, handler),
            Ok(question) => Err(not_understood(format!("it speaks version {CONTROL_VERSION}, the request version {}", question.version))),
            Err(error) => Err(not_understood(error.to_string())),
        };
        let (ok, error) = match result {
            Ok(reply) => (Some(reply), None),
            Err(failure) => (None, Some(failure)),
        };
        let mut text = serde_json::to_vec(&Answer { version: CONTROL_VERSION, ok, error })?;
        text.push(b'\n');
        let mut writer = &*connection.stream;
        writer.write_all(&text)?;
    }
}

fn not_understood(why: String) -> Failure {
    Failure::new(id::NO_DAEMON, "the daemon did not understand the request", why).remedy("use the windrow command of the same version as the daemon")
}

/// A connection to a daemon.
pub struct ControlClient {
    reader: BufReader<UnixStream>,
    path: PathBuf,
}

impl ControlClient {
    /// Connects. `None` if nobody listens at `path`.
    pub fn connect(path: &Path) -> Option<Self> {
        UnixStream::connect(path).ok().map(|stream| Self::over(stream, path))
    }

    /// Talks to whoever is at the other end (fuzz target `answers`); `path` is for messages only.
    #[doc(hidden)]
    pub fn over(stream: UnixStream, path: &Path) -> Self {
        Self { reader: BufReader::new(stream), path: path.to_owned() }
    }

    /// Asks, and waits for the answer as long as it takes.
    pub fn ask(&mut self, command: Command) -> Result<Reply, Failure> {
        let lost = |path: &Path, why: String| {
            Failure::new(id::NO_DAEMON, format!("lost the daemon at {}", path.display()), why).remedy("see its log; it may have stopped")
        };
        let mut text = serde_json::to_vec(&Question { version: CONTROL_VERSION, command }).map_err(|error| lost(&self.path, error.to_string()))?;
        text.push(b'\n');
        self.reader.get_mut().write_all(&text).map_err(|error| lost(&self.path, error.to_string()))?;
        let mut line = String::new();
        self.reader.read_line(&mut line).map_err(|error| lost(&self.path, error.to_string()))?;
        if line.is_empty() {
            return Err(lost(&self.path, "it closed the connection".to_owned()));
        }
        match serde_json::from_str::<Answer>(&line) {
            Ok(Answer { error: Some(failure), .. }) => Err(failure),
            Ok(Answer { ok: Some(reply), .. }) => Ok(reply),
            Ok(_) => Err(lost(&self.path, "its answer is empty".to_owned())),
            Err(error) => Err(lost(&self.path, error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
