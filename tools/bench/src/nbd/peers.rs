//! Other NBD servers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use windrow_host::failure::{Failure, id};

/// Location for a peer's files.
struct Place<'a> {
    socket: &'a Path,
    file: &'a Path,
    bytes: u64,
}

/// A known server.
pub struct Peer {
    /// Name on the command line and in tables.
    pub name: &'static str,
    /// True if it serves a file, not memory.
    pub on_files: bool,
    program: &'static str,
    arguments: fn(&Place<'_>) -> Vec<OsString>,
}

/// All known peers.
pub const PEERS: [Peer; 7] = [
    Peer {
        name: "nbdkit-null",
        on_files: false,
        program: "nbdkit",
        arguments: |place| nbdkit(place, &["null"], Some(place.bytes)),
    },
    Peer {
        name: "nbdkit-memory",
        on_files: false,
        program: "nbdkit",
        arguments: |place| nbdkit(place, &["memory"], Some(place.bytes)),
    },
    Peer {
        name: "nbdkit-file",
        on_files: true,
        program: "nbdkit",
        arguments: |place| nbdkit_file(place, &[]),
    },
    Peer {
        name: "nbdkit-file-nocache",
        on_files: true,
        program: "nbdkit",
        arguments: |place| nbdkit_file(place, &["cache=none"]),
    },
    Peer {
        name: "qemu-raw",
        on_files: true,
        program: "qemu-nbd",
        arguments: |place| qemu(place, "none", "io_uring"),
    },
    Peer {
        name: "qemu-raw-native",
        on_files: true,
        program: "qemu-nbd",
        arguments: |place| qemu(place, "none", "native"),
    },
    Peer {
        name: "qemu-raw-wb",
        on_files: true,
        program: "qemu-nbd",
        arguments: |place| qemu(place, "writeback", "threads"),
    },
];

fn nbdkit(place: &Place<'_>, plugin: &[&str], bytes: Option<u64>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["-f".into(), "-U".into(), place.socket.into()];
    arguments.extend(plugin.iter().map(Into::into));
    arguments.extend(bytes.map(|bytes| bytes.to_string().into()));
    arguments
}

fn nbdkit_file(place: &Place<'_>, options: &[&str]) -> Vec<OsString> {
    let mut arguments = nbdkit(place, &["file"], None);
    arguments.push(place.file.into());
    arguments.extend(options.iter().map(Into::into));
    arguments
}

fn qemu(place: &Place<'_>, cache: &str, io: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["-f", "raw", "-t", "-e", "16", "--discard=unmap"]
        .map(Into::into)
        .into();
    arguments.extend([
        format!("--cache={cache}").into(),
        format!("--aio={io}").into(),
        "-k".into(),
        place.socket.into(),
        place.file.into(),
    ]);
    arguments
}

impl Peer {
    /// True if its program can be started.
    pub fn is_installed(&self) -> bool {
        Command::new(self.program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// A running peer. Dropping it ends it and removes its file.
pub struct RunningPeer {
    child: Child,
    /// Its unix socket.
    pub socket: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

/// Time limit for a peer to open its socket.
const PATIENCE: Duration = Duration::from_secs(10);

impl RunningPeer {
    /// Starts it with its socket in `sockets`; its file, if it serves one, is created in `dir`.
    pub fn start(
        peer: &Peer,
        sockets: &Path,
        dir: Option<&Path>,
        bytes: u64,
    ) -> Result<Self, Failure> {
        let failure = |why: &dyn std::fmt::Display| {
            Failure::new(id::NOT_AVAILABLE, format!("cannot run {}", peer.name), why)
        };
        let socket = sockets.join(format!("{}.sock", peer.name));
        let folder = match dir.filter(|_| peer.on_files) {
            Some(dir) => Some(
                tempfile::Builder::new()
                    .prefix("windrow-bench-")
                    .tempdir_in(dir)
                    .map_err(|error| failure(&error))?,
            ),
            None => None,
        };
        let file = folder
            .as_ref()
            .map_or_else(PathBuf::new, |folder| folder.path().join("disk"));
        if folder.is_some() {
            let made = std::fs::File::create(&file).and_then(|handle| handle.set_len(bytes));
            made.map_err(|error| failure(&error))?;
        }
        let arguments = (peer.arguments)(&Place {
            socket: &socket,
            file: &file,
            bytes,
        });
        let child = Command::new(peer.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child =
            child.map_err(|error| failure(&error).remedy(format!("install {}", peer.program)))?;
        let mut running = Self {
            child,
            socket,
            _folder: folder,
        };
        let end = Instant::now() + PATIENCE;
        // Connecting would end a server that serves only one client; none of these does.
        while std::os::unix::net::UnixStream::connect(&running.socket).is_err() {
            let ended = running
                .child
                .try_wait()
                .is_ok_and(|status| status.is_some());
            if ended || Instant::now() > end {
                let why = if ended {
                    "it ended"
                } else {
                    "it did not open its socket"
                };
                return Err(failure(&why));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(running)
    }

    /// Process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RunningPeer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let place = Place {
            socket: Path::new("/s"),
            file: Path::new("/f"),
            bytes: 4096,
        };
        let line = |name: &str| {
            let peer = PEERS.iter().find(|peer| peer.name == name).unwrap();
            (peer.arguments)(&place)
                .join(std::ffi::OsStr::new(" "))
                .into_string()
                .unwrap()
        };
        assert_eq!(line("nbdkit-memory"), "-f -U /s memory 4096");
        assert_eq!(line("nbdkit-file-nocache"), "-f -U /s file /f cache=none");
        assert_eq!(
            line("qemu-raw"),
            "-f raw -t -e 16 --discard=unmap --cache=none --aio=io_uring -k /s /f"
        );
    }
}
