//! Listening addresses of a server.
//!
//! A stale unix socket file of a server that died is replaced; a socket that answers is not, nor
//! any other kind of file. The folder is locked during check, replacement and `listen`, if
//! possible: for another server that starts at the same moment, a socket that does not listen yet
//! looks stale. At the end the file is removed only if it is still the one that was made here.

use crate::budget::Peer;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    sockopt,
};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Probes without an answer after which a silent TCP peer counts as dead.
const KEEPALIVE_PROBES: u32 = 3;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Longest wait for another server to start listening in the same folder.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two tries for the folder's lock.
const PAUSE: Duration = Duration::from_millis(10);

/// An address to listen on. As text: `unix:PATH` or `tcp:ADDRESS:PORT`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Listen {
    /// A unix socket at this path.
    Unix(PathBuf),
    /// TCP; port 0 lets the system choose.
    Tcp(SocketAddr),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => address
                .parse()
                .map(Self::Tcp)
                .map_err(|_| "a TCP address is written as tcp:ADDRESS:PORT with a numeric address"),
            _ => Err("an address is written as unix:PATH or tcp:ADDRESS:PORT"),
        }
    }
}

/// A socket that listens.
pub(crate) struct Listener {
    socket: Listening,
    /// Device and inode of the unix socket file.
    file: Option<(PathBuf, u64, u64)>,
}

enum Listening {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Opens an address. Errors: `InvalidInput` for a remote address that is not allowed,
    /// `AddrInUse`, `AlreadyExists` for a file that is no socket, and those of the system.
    pub(crate) fn open(address: &Listen, allow_remote: bool, unix_mode: u32) -> io::Result<Self> {
        match address {
            Listen::Unix(path) => Self::open_unix(path, unix_mode),
            Listen::Tcp(address) => {
                if !allow_remote && !address.ip().to_canonical().is_loopback() {
                    return Err(io::Error::new(
                        ErrorKind::InvalidInput,
                        "it is not a loopback address and remote clients are not allowed",
                    ));
                }
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self {
                    socket: Listening::Tcp(listener),
                    file: None,
                })
            }
        }
    }

    fn open_unix(path: &Path, mode: u32) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let _alone = FolderLock::take(&path);
        remove_stale(&path)?;
        let fd = stream_socket()?;
        bind(&fd, &SocketAddrUnix::new(&path)?)?;
        // No client can connect before `listen`, so the permissions hold from the first moment.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        let metadata = std::fs::symlink_metadata(&path)?;
        let listener = Self {
            socket: Listening::Unix(UnixListener::from(fd)),
            file: Some((path, metadata.dev(), metadata.ino())),
        };
        listen(&listener, BACKLOG)?;
        Ok(listener)
    }

    /// The actual address, with the port that the system chose.
    pub(crate) fn address(&self) -> io::Result<Listen> {
        match (&self.socket, &self.file) {
            (Listening::Tcp(listener), _) => Ok(Listen::Tcp(listener.local_addr()?)),
            (Listening::Unix(_), Some((path, ..))) => Ok(Listen::Unix(path.clone())),
            (Listening::Unix(_), None) => Err(ErrorKind::NotFound.into()),
        }
    }

    /// The next client: its socket, the peer that shares its bounds, and its name; `WouldBlock` if
    /// there is none. A TCP peer that is silent for `keepalive` is probed, and is dead if it
    /// answers none of [`KEEPALIVE_PROBES`] probes.
    pub(crate) fn accept(&self, keepalive: Duration) -> io::Result<(OwnedFd, Peer, String)> {
        match &self.socket {
            Listening::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let (peer, name) = match sockopt::socket_peercred(&stream) {
                    Ok(who) => (
                        Peer::Process(who.pid.as_raw_nonzero().get()),
                        format!(
                            "unix pid {} uid {}",
                            who.pid.as_raw_nonzero(),
                            who.uid.as_raw()
                        ),
                    ),
                    Err(_) => (Peer::Unknown, "unix".to_owned()),
                };
                Ok((stream.into(), peer, name))
            }
            Listening::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, keepalive)?;
                sockopt::set_tcp_keepintvl(&stream, (keepalive / 6).max(Duration::from_secs(1)))?;
                sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
                Ok((
                    stream.into(),
                    Peer::Address(peer.ip().to_canonical()),
                    format!("tcp {peer}"),
                ))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Listening::Unix(listener) => listener.as_fd(),
            Listening::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some((path, device, inode)) = &self.file else {
            return;
        };
        if std::fs::symlink_metadata(path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (*device, *inode))
        {
            // A file that stays is stale, and the next server replaces it.
            std::fs::remove_file(path).unwrap_or_default();
        }
    }
}

fn stream_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

/// The lock of a folder, for as long as it lives.
struct FolderLock(Option<OwnedFd>);

impl FolderLock {
    /// Locks the folder of a file. A server that starts to listen holds it for a moment. A longer
    /// holder uses the lock for something else, and the server starts without it.
    fn take(file: &Path) -> Self {
        let folder = file.parent().unwrap_or(Path::new("/"));
        let Ok(fd) = rustix::fs::open(
            folder,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return Self(None);
        };
        let deadline = Instant::now() + PATIENCE;
        while let Err(Errno::WOULDBLOCK) = flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            if Instant::now() >= deadline {
                return Self(None);
            }
            std::thread::sleep(PAUSE);
        }
        Self(Some(fd))
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // By name: closing alone would leave it with a child that was forked a moment ago. Cannot
        // fail on an open descriptor.
        if let Some(fd) = &self.0 {
            flock(fd, FlockOperation::Unlock).unwrap_or_default();
        }
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "it exists and is not a socket",
        ));
    }
    // It never waits: a full backlog is an answer.
    match connect(stream_socket()?, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // Anything else means that a server listens.
        _ => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "another process listens there",
        )),
    }
}

#[cfg(test)]
mod tests;
