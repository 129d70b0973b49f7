//! Client end of the control socket.

use super::{Answer, CONTROL_VERSION, Command, Question, Reply};
use crate::failure::{Failure, id};
use crate::process::Process;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Times after which a daemon counts as unresponsive.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest time without any line, `working` included.
    pub silence: Duration,
    /// Longest wait for the answer to a command that waits for no member.
    pub quick_answer: Duration,
}

impl Patience {
    /// For a daemon of a named pool.
    pub const NAMED: Self = Self {
        silence: Duration::from_secs(6),
        quick_answer: Duration::from_secs(20),
    };
    /// For one of several daemons that are all asked: one that hangs must not hide the others for
    /// long.
    pub const ONE_OF_ALL: Self = Self {
        silence: Duration::from_secs(3),
        quick_answer: Duration::from_secs(5),
    };
}

/// Time for retries while the daemon's connections are all in use.
const FULL: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A connection to a daemon.
pub struct ControlClient {
    reader: BufReader<UnixStream>,
    path: PathBuf,
    pool: Option<String>,
    patience: Patience,
}

impl ControlClient {
    /// Connects to the daemon of `pool`, a name or an identifier; without one only
    /// [`Command::Status`] is answered. `None` if no daemon listens at `path`.
    ///
    /// # Errors
    /// It cannot be known whether one listens: this user may not look, or the connection is not
    /// accepted in time.
    pub fn connect(path: &Path, pool: Option<&str>) -> Result<Option<Self>, Failure> {
        Self::connect_within(path, pool, Patience::NAMED)
    }

    /// Connects with other times.
    ///
    /// # Errors
    /// As [`ControlClient::connect`].
    pub fn connect_within(
        path: &Path,
        pool: Option<&str>,
        patience: Patience,
    ) -> Result<Option<Self>, Failure> {
        let failure = |why: String| {
            Failure::new(
                id::NO_DAEMON,
                format!("cannot reach the daemon at {}", path.display()),
                why,
            )
        };
        match open(path, patience.silence) {
            Ok(stream) => Ok(Some(Self {
                patience,
                pool: pool.map(str::to_owned),
                ..Self::over(stream, path)
            })),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let remedy =
                    "run the command as the user of the daemon, or serve with --socket-group";
                Err(failure("this user may not connect to its socket".to_owned()).remedy(remedy))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let why = format!(
                    "it has not taken a connection for {} s",
                    patience.silence.as_secs()
                );
                Err(failure(why).remedy("see whether its process is stopped or frozen"))
            }
            Err(error) => Err(failure(error.to_string()).remedy("check the path of the socket")),
        }
    }

    /// Wraps an open stream (fuzz target `answers`); `path` is for messages only.
    #[doc(hidden)]
    pub fn over(stream: UnixStream, path: &Path) -> Self {
        Self {
            reader: BufReader::new(stream),
            path: path.to_owned(),
            pool: None,
            patience: Patience::NAMED,
        }
    }

    /// The daemon's process, if the kernel knows it.
    pub fn process(&self) -> Option<Process> {
        socket_peercred(self.reader.get_ref())
            .ok()
            .and_then(|peer| Process::new(peer.pid.as_raw_nonzero().get()))
    }

    /// Sends a command and waits for its answer, as long as the daemon reports that it works on it.
    /// A command that waits for no member has a time limit.
    ///
    /// # Errors
    /// Those of the daemon; or it does not answer.
    pub fn ask(&mut self, command: Command) -> Result<Reply, Failure> {
        let begin = Instant::now();
        loop {
            let answer = self.ask_once(command.clone())?;
            let is_full = answer.full && begin.elapsed() < FULL.min(self.patience.silence);
            if !is_full {
                return match (answer.error, answer.ok) {
                    (Some(failure), _) => Err(failure),
                    (None, Some(reply)) => Ok(reply),
                    (None, None) => Err(self.lost("its answer is empty")),
                };
            }
            std::thread::sleep(ASK_AGAIN);
            let stream =
                open(&self.path, self.patience.silence).map_err(|error| self.lost(error))?;
            self.reader = BufReader::new(stream);
        }
    }

    fn ask_once(&mut self, command: Command) -> Result<Answer, Failure> {
        let limit = command
            .waits_for_none()
            .then_some(self.patience.quick_answer);
        let question = Question {
            version: CONTROL_VERSION,
            pool: self.pool.clone(),
            command,
        };
        let mut text = serde_json::to_vec(&question).map_err(|error| self.lost(error))?;
        text.push(b'\n');
        let begin = Instant::now();
        let written = self.reader.get_mut().write_all(&text);
        // A daemon without room for a connection answers before the request is sent, and closes.
        if let Err(error) = &written
            && error.kind() == ErrorKind::WouldBlock
        {
            return Err(self.silent());
        }
        let mut line = Vec::new();
        loop {
            self.read_line(&mut line).map_err(|failure| {
                written
                    .as_ref()
                    .err()
                    .map_or(failure, |error| self.lost(error))
            })?;
            let answer: Answer = serde_json::from_slice(&line).map_err(|error| self.lost(error))?;
            if !answer.working {
                return Ok(answer);
            }
            if limit.is_some_and(|limit| begin.elapsed() >= limit) {
                return Err(self.stuck(begin.elapsed()));
            }
            line.clear();
        }
    }

    fn read_line(&mut self, line: &mut Vec<u8>) -> Result<(), Failure> {
        match self.reader.read_until(b'\n', line) {
            Ok(_) if line.last() == Some(&b'\n') => Ok(()),
            Ok(0) => Err(self.lost("it closed the connection")),
            Ok(_) => Err(self.lost("it closed the connection in the middle of an answer")),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(self.silent())
            }
            Err(error) => Err(self.lost(error)),
        }
    }

    fn lost(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(
            id::NO_DAEMON,
            format!("lost the daemon at {}", self.path.display()),
            why,
        )
        .remedy("see its log; it may have stopped")
    }

    fn named(&self) -> String {
        let process = self
            .process()
            .map(|process| format!(" (process {})", process.id()))
            .unwrap_or_default();
        format!("the daemon at {}{process}", self.path.display())
    }

    /// The failure for a daemon that sends no line.
    fn silent(&self) -> Failure {
        let process = self.process();
        let state = process.as_ref().and_then(Process::waits_for);
        let why = format!(
            "no answer for {} s{}",
            self.patience.silence.as_secs(),
            state.map(|state| format!(": {state}")).unwrap_or_default()
        );
        let remedy = match &process {
            Some(process) => format!(
                "see /proc/{0}/status and /proc/{0}/wchan; continue a stopped process with `kill -CONT {0}`",
                process.id()
            ),
            None => "see whether its process is stopped or frozen".to_owned(),
        };
        Failure::new(
            id::NO_DAEMON,
            format!("{} does not answer", self.named()),
            why,
        )
        .remedy(remedy)
    }

    /// The failure for a daemon that is alive while its pool does not answer.
    fn stuck(&self, time: Duration) -> Failure {
        let state = self
            .process()
            .and_then(|process| process.waits_for())
            .map(|state| format!("; {state}"))
            .unwrap_or_default();
        let why = format!(
            "it is alive and has worked on the command for {} s{state}",
            time.as_secs()
        );
        Failure::new(
            id::POOL_BUSY,
            format!("{} has no answer yet", self.named()),
            why,
        )
        .remedy("see its log, and the kernel's for a device that does not answer")
    }
}

/// Connects; each step, including later ones, ends with `WouldBlock` after `patience`.
fn open(path: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    if let Some(why) = crate::paths::too_long_for_socket(path) {
        return Err(std::io::Error::other(why));
    }
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The timeout also covers a connect that waits in a full backlog.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}
