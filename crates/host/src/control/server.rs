//! Daemon end of the control socket.

use super::{Answer, CONTROL_VERSION, Command, ControlHandler, PULSE, Question, Reply, ServedPool};
use crate::failure::{Failure, id};
use crate::listener::AcceptLoop;
use crate::sessions::lock;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen, send,
    socket_with,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LINE_MAX: u64 = 1 << 20;
pub(super) const CONNECTIONS_MAX: usize = 32;
/// Commands that may run at once, not counting those that never wait for members.
pub(super) const COMMANDS_MAX: usize = 24;
/// Connections that may wait to be accepted.
pub(super) const BACKLOG: i32 = 128;
/// Longest wait of an ending daemon until answers are sent.
const FAREWELL: Duration = Duration::from_secs(2);
/// A connection without a command for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Idle time after which a connection is closed if another one needs the room. A client that has
/// just connected is not idle yet.
const IDLE_MIN: Duration = Duration::from_millis(500);
/// Time in which a client must take its answer.
const TAKING: Duration = Duration::from_secs(10);

/// A running control socket. Dropping it stops it and removes the socket.
pub struct ControlServer {
    path: PathBuf,
    accepting: AcceptLoop,
    pub(super) open: Arc<Connections>,
    /// Closed to end the thread that writes `working`.
    pulse: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

/// Open connections, by number.
#[derive(Default)]
pub(super) struct Connections {
    pub(super) open: Mutex<BTreeMap<u64, Arc<Line>>>,
    next: AtomicU64,
    /// Running commands that may have to wait.
    pub(super) commands: AtomicUsize,
}

/// A connection as all threads see it.
pub(super) struct Line {
    stream: UnixStream,
    state: Mutex<State>,
    /// Held while a line is written.
    writing: Mutex<()>,
}

struct State {
    /// A command runs.
    is_busy: bool,
    /// The client polls a subscription.
    is_subscribed: bool,
    /// Time of the last command.
    idle_since: Instant,
}

impl Line {
    fn new(stream: UnixStream) -> Self {
        let state = State {
            is_busy: false,
            is_subscribed: false,
            idle_since: Instant::now(),
        };
        Self {
            stream,
            state: Mutex::new(state),
            writing: Mutex::default(),
        }
    }

    /// Time that it has been idle; `None` if it is not.
    fn idle(&self, now: Instant) -> Option<Duration> {
        let state = lock(&self.state);
        (!state.is_busy && !state.is_subscribed)
            .then(|| now.saturating_duration_since(state.idle_since))
    }

    fn begin(&self) {
        lock(&self.state).is_busy = true;
    }

    fn end(&self, subscribes: Option<bool>) {
        let mut state = lock(&self.state);
        state.is_busy = false;
        state.is_subscribed = subscribes.unwrap_or(state.is_subscribed);
        state.idle_since = Instant::now();
    }

    fn close(&self) {
        // Fails only if the client has closed it.
        drop(self.stream.shutdown(std::net::Shutdown::Both));
    }

    fn answer(&self, answer: &Answer) -> std::io::Result<()> {
        let line = answer.to_line()?;
        let _one = lock(&self.writing);
        (&self.stream).write_all(&line)
    }

    /// Writes `working`, without ever waiting for the client.
    fn pulse(&self) {
        let Ok(line) = (Answer {
            version: CONTROL_VERSION,
            working: true,
            ..Answer::default()
        })
        .to_line() else {
            return;
        };
        let Ok(_one) = self.writing.try_lock() else {
            return;
        };
        if !lock(&self.state).is_busy {
            return;
        }
        match send(
            &self.stream,
            &line,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        ) {
            // The unread lines in the client's buffer have the same content.
            Ok(sent) if sent == line.len() => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            // A partial line breaks the protocol; or the client is gone.
            Ok(_) | Err(_) => self.close(),
        }
    }
}

impl Connections {
    /// Adds a connection; `None` if the limit is reached and all are in use.
    fn add(self: &Arc<Self>, stream: UnixStream) -> Result<Connection, UnixStream> {
        let mut open = lock(&self.open);
        if open.len() >= CONNECTIONS_MAX {
            let now = Instant::now();
            let idle = open
                .iter()
                .filter_map(|(number, line)| Some((line.idle(now)?, *number)))
                .max();
            let Some((_, number)) = idle.filter(|(time, _)| *time >= IDLE_MIN) else {
                return Err(stream);
            };
            if let Some(line) = open.remove(&number) {
                line.close();
            }
        }
        let (number, line) = (
            self.next.fetch_add(1, Ordering::Relaxed),
            Arc::new(Line::new(stream)),
        );
        open.insert(number, line.clone());
        Ok(Connection {
            of: self.clone(),
            number,
            line,
        })
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.open).len()
    }

    fn all(&self) -> Vec<Arc<Line>> {
        lock(&self.open).values().cloned().collect()
    }

    /// Writes `working` where a command runs, and closes connections that are idle for too long.
    fn look_after(&self, now: Instant, idle_max: Duration) {
        for line in self.all() {
            match line.idle(now) {
                Some(idle) if idle >= idle_max => line.close(),
                Some(_) => {}
                None => line.pulse(),
            }
        }
    }

    /// Carries out a command, unless too many are running.
    fn carry_out(&self, command: Command, handler: &dyn ControlHandler) -> Result<Reply, Failure> {
        if command.waits_for_none() {
            return handler.handle(command);
        }
        let under_way = Counted::of(&self.commands);
        if under_way.before >= COMMANDS_MAX {
            let why = format!(
                "{COMMANDS_MAX} commands are running already, and wait for the pool or for each other"
            );
            let remedy = "see `windrow pool status`: a member that does not answer keeps them waiting until `windrow pool offline`";
            return Err(
                Failure::new(id::POOL_BUSY, "the daemon takes no further command", why)
                    .remedy(remedy),
            );
        }
        handler.handle(command)
    }
}

/// Counts a running command until it is dropped.
struct Counted<'a> {
    counter: &'a AtomicUsize,
    before: usize,
}

impl<'a> Counted<'a> {
    fn of(counter: &'a AtomicUsize) -> Self {
        Self {
            counter,
            before: counter.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open connection, closed when this is dropped.
struct Connection {
    of: Arc<Connections>,
    number: u64,
    line: Arc<Line>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.of.open).remove(&self.number);
    }
}

impl ControlServer {
    /// Listens at `path`. A socket without a daemon is replaced.
    pub fn start(path: &Path, handler: Arc<dyn ControlHandler>) -> Result<Self, Failure> {
        let what = format!("cannot open the control socket {}", path.display());
        if UnixStream::connect(path).is_ok() {
            return Err(
                Failure::new(id::POOL_BUSY, what, "another daemon serves it")
                    .remedy("stop that daemon, or choose another socket with --control"),
            );
        }
        let failure = |error: std::io::Error| {
            Failure::new(id::LOCAL_FILE, what.clone(), error)
                .remedy("choose another socket with --control")
        };
        crate::paths::must_fit_socket(path).map_err(|why| failure(std::io::Error::other(why)))?;
        remove_stale(path).map_err(failure)?;
        let bound = bind_private(path).map_err(failure)?;
        listen(&bound, BACKLOG).map_err(|error| failure(error.into()))?;
        let listener = UnixListener::from(bound);
        let open = Arc::new(Connections::default());
        let pulse = start_pulse(open.clone()).map_err(failure)?;
        let connections = open.clone();
        let accepting = AcceptLoop::start("windrow-control", listener, move |stream| {
            admit(stream, &handler, &connections)
        })
        .map_err(failure)?;
        Ok(Self {
            path: path.to_owned(),
            accepting,
            open,
            pulse: Mutex::new(Some(pulse)),
        })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stops accepting, waits at most two seconds for running commands, and closes all connections.
    pub fn stop(&self) {
        self.accepting.stop();
        for line in self.open.all() {
            drop(line.stream.shutdown(std::net::Shutdown::Read));
        }
        let end = Instant::now() + FAREWELL;
        while self.open.count() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some((closing, thread)) = lock(&self.pulse).take() {
            drop(closing);
            drop(thread.join());
        }
        drop(std::fs::remove_file(&self.path));
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs on its own thread, as commands may block every other one.
fn start_pulse(open: Arc<Connections>) -> std::io::Result<(Sender<()>, JoinHandle<()>)> {
    let (closing, closed) = channel();
    let body = move || {
        while closed.recv_timeout(PULSE) == Err(RecvTimeoutError::Timeout) {
            open.look_after(Instant::now(), IDLE_MAX);
        }
    };
    Ok((
        closing,
        std::thread::Builder::new()
            .name("windrow-pulse".to_owned())
            .spawn(body)?,
    ))
}

/// Binds a socket with mode 0600 that does not listen yet. No client can connect before the rights
/// are set.
pub(super) fn bind_private(path: &Path) -> std::io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Removes a socket without a daemon. Any other file of this name is left alone.
fn remove_stale(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(std::io::Error::new(
            std::io::ErrorKind::AlreadyExists,
            "it exists and is not a socket",
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn admit(stream: UnixStream, handler: &Arc<dyn ControlHandler>, connections: &Arc<Connections>) {
    // A client that does not take its answer must not hold a thread for ever. (Fails only for a
    // zero duration.)
    drop(stream.set_write_timeout(Some(TAKING)));
    let connection = match connections.add(stream) {
        Ok(connection) => connection,
        Err(stream) => return refuse(&stream),
    };
    let handler = handler.clone();
    // A failure on a connection ends that connection only.
    let body = move || drop(converse(&connection, &*handler));
    drop(
        std::thread::Builder::new()
            .name("windrow-control".to_owned())
            .spawn(body),
    );
}

/// Answers that the daemon is full: without an answer a client would take the daemon for dead.
fn refuse(stream: &UnixStream) {
    let why = format!("{CONNECTIONS_MAX} connections are open, and all of them are in use");
    let failure = Failure::new(id::POOL_BUSY, "the daemon takes no further connection", why)
        .remedy("it is alive: try again when other commands have ended");
    let answer = Answer {
        full: true,
        ..Answer::of(Err(failure))
    };
    if let Ok(line) = answer.to_line() {
        // The line fits into the buffer of a new socket; a client that is gone needs none.
        _ = send(stream, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

fn converse(connection: &Connection, handler: &dyn ControlHandler) -> std::io::Result<()> {
    let line = &connection.line;
    let mut reader = BufReader::new(&line.stream);
    loop {
        let mut text = Vec::new();
        (&mut reader).take(LINE_MAX).read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') {
            return Ok(());
        }
        line.begin();
        let understood = understand(&text, &handler.serves());
        let subscribes = understood.as_ref().ok().and_then(Command::subscribes);
        let result = understood.and_then(|command| connection.of.carry_out(command, handler));
        let subscribes = if result.is_ok() {
            subscribes
        } else {
            Some(false)
        };
        let answered = line.answer(&Answer::of(result));
        line.end(subscribes);
        answered?;
    }
}

/// Parses a line into a command, if it is for this pool.
fn understand(text: &[u8], served: &ServedPool) -> Result<Command, Failure> {
    let question = serde_json::from_slice::<Question>(text)
        .map_err(|error| not_understood(error.to_string()))?;
    if question.version != CONTROL_VERSION {
        return Err(not_understood(format!(
            "it speaks version {CONTROL_VERSION}, the request version {}",
            question.version
        )));
    }
    match &question.pool {
        Some(meant) => served.must_be(meant)?,
        None if question.command.is_for_any_pool() => {}
        None => {
            return Err(not_understood(
                "the request does not name its pool".to_owned(),
            ));
        }
    }
    Ok(question.command)
}

fn not_understood(why: String) -> Failure {
    Failure::new(
        id::NO_DAEMON,
        "the daemon did not understand the request",
        why,
    )
    .remedy("use the windrow command of the same version as the daemon")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection idle for longest makes room for a new one, never one with a command or a
    /// subscription.
    #[test]
    fn idle_connections_make_room_and_others_do_not() {
        let connections = Arc::new(Connections::default());
        let mut peers = Vec::new();
        let mut add = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            peers.push(theirs);
            connections.add(ours)
        };
        let long_ago = Instant::now()
            .checked_sub(Duration::from_secs(3600))
            .unwrap();
        let kept: Vec<_> = (0..CONNECTIONS_MAX).map(|_| add().ok().unwrap()).collect();
        assert!(add().is_err(), "none of them is idle yet");
        kept[3].line.begin();
        kept[4].line.end(Some(true));
        kept.iter().for_each(|connection| {
            lock(&connection.line.state).idle_since =
                long_ago + Duration::from_secs(connection.number)
        });
        lock(&kept[3].line.state).idle_since = long_ago;
        let numbers =
            |connections: &Connections| lock(&connections.open).keys().copied().collect::<Vec<_>>();
        let more: Vec<_> = (0..CONNECTIONS_MAX - 2)
            .map(|_| add().ok().unwrap())
            .collect();
        assert_eq!(
            numbers(&connections)[..2],
            [3, 4],
            "a command runs, and a subscription"
        );
        assert!(add().is_err(), "the others have just come");
        drop((more, kept));
        assert_eq!(connections.count(), 0);
    }

    #[test]
    fn idle_connections_are_closed_and_running_commands_report_it() {
        let connections = Arc::new(Connections::default());
        let pair = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (connections.add(ours).ok().unwrap(), theirs)
        };
        let ((idle, mut at_idle), (busy, mut at_busy), (subscribed, at_subscribed)) =
            (pair(), pair(), pair());
        busy.line.begin();
        subscribed.line.end(Some(true));
        connections.look_after(Instant::now(), Duration::ZERO);
        let mut text = String::new();
        at_idle.read_to_string(&mut text).unwrap();
        assert_eq!(text, "", "it was closed");
        drop(busy.line.stream.shutdown(std::net::Shutdown::Write));
        at_busy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"version\":2,\"working\":true}\n");
        at_subscribed.set_nonblocking(true).unwrap();
        assert_eq!(
            (&at_subscribed).read(&mut [0; 8]).unwrap_err().kind(),
            std::io::ErrorKind::WouldBlock,
            "it is open, and nothing runs"
        );
        drop((idle, busy, subscribed));
    }

    /// A client that reads nothing does not delay the `working` lines of the others.
    #[test]
    fn a_client_that_reads_nothing_is_not_waited_for() {
        let connections = Arc::new(Connections::default());
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let deaf = connections.add(ours).ok().unwrap();
        deaf.line.begin();
        for _ in 0..100_000 {
            connections.look_after(Instant::now(), IDLE_MAX);
        }
    }
}
