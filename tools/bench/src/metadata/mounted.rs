//! A watched disk with a file system that the kernel of this machine mounts: NBD server (here),
//! nbdfuse (the disk as a file), loop device, mount.
//!
//! Drops undo all steps in reverse order, also after a failure. Each step is a separate process or
//! a mount; every change of the machine is undone.

use super::system::System;
use super::watch::{self, Disk};
use super::{cannot, tools};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_nbd::{Listen, Server, ServerOptions};

/// Time limit for nbdfuse to show the file.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of unmount attempts of a busy file system, a twentieth of a second apart.
const ATTEMPTS: u32 = 100;

/// A mounted file. Dropping it unmounts.
struct Fuse {
    child: Child,
    file: PathBuf,
}

impl Drop for Fuse {
    fn drop(&mut self) {
        if !unmount(&self.file) {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// A loop device. Dropping it detaches it.
struct Loop(PathBuf);

impl Drop for Loop {
    fn drop(&mut self) {
        drop(tools::run("losetup", [Path::new("-d"), &self.0]));
    }
}

/// A mounted file system. Dropping it unmounts.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

fn unmount(path: &Path) -> bool {
    (0..ATTEMPTS).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
        tools::run("umount", [path]).is_ok()
    })
}

/// A disk with a mounted file system; fields are dropped in this order.
pub struct Mounted {
    mount: Option<Mount>,
    device: Loop,
    _fuse: Fuse,
    _server: Server,
    folder: tempfile::TempDir,
}

impl Mounted {
    /// Creates the file system on the disk, and mounts it with these options.
    pub fn new(disk: &Disk, system: System, options: &str) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("windrow-bench-")
            .tempdir()
            .map_err(|error| cannot("make a folder", "for a mount", error))?;
        let socket = folder.path().join("nbd.sock");
        let server = Server::start(
            Arc::new(disk.clone()),
            vec![Listen::Unix(socket.clone())],
            ServerOptions::default(),
        )
        .map_err(|error| Failure::new(id::SERVE, "cannot serve NBD", error))?;
        let fuse = show(&socket, folder.path().join("disk"))?;
        let device = attach(&fuse.file)?;
        system.make(&device.0, &[])?;
        let first = disk.content().block(0);
        let journal = system.journal(&device.0, &first)?;
        disk.content().classes.set_journal(journal);
        let place = folder.path().join("files");
        std::fs::create_dir(&place)
            .map_err(|error| cannot("make the folder", place.display(), error))?;
        let arguments = [
            "-t".as_ref(),
            system.name().as_ref(),
            "-o".as_ref(),
            options.as_ref(),
            device.0.as_os_str(),
            place.as_os_str(),
        ];
        tools::run("mount", arguments).map_err(not_here)?;
        Ok(Self {
            mount: Some(Mount(place)),
            device,
            _fuse: fuse,
            _server: server,
            folder,
        })
    }

    /// Mount point.
    pub fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// Counts writes from now on; earlier writes are on the disk.
    pub fn begin(&self, disk: &Disk) -> Result<(), Failure> {
        tools::run("sync", ["-f".as_ref(), self.files().as_os_str()])?;
        disk.content().counting = true;
        Ok(())
    }

    /// Unmounts: the file system then has written everything. Stops counting.
    pub fn end(mut self, disk: &Disk) -> Result<(), Failure> {
        self.mount = None;
        // The loop device is separate from the file system: its buffered data goes to the disk.
        tools::run("sync", [&self.device.0])?;
        disk.content().counting = false;
        Ok(())
    }
}

fn not_here(failure: Failure) -> Failure {
    failure.remedy("run it as root, on a machine (real or virtual) that may mount file systems; or use --at-rest, which mounts nothing")
}

/// Shows the server's disk as a file.
fn show(socket: &Path, file: PathBuf) -> Result<Fuse, Failure> {
    std::fs::write(&file, []).map_err(|error| cannot("make the file", file.display(), error))?;
    let uri = format!("nbd+unix:///{}?socket={}", watch::NAME, socket.display());
    // In its own process group: Ctrl-C for this process must not end it before the file system is
    // unmounted.
    let child = tools::command("nbdfuse")
        .arg(&file)
        .arg(uri)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let child =
        child.map_err(|error| Failure::new(id::NOT_AVAILABLE, "cannot run nbdfuse", error))?;
    let mut fuse = Fuse { child, file };
    let end = Instant::now() + PATIENCE;
    while std::fs::metadata(&fuse.file).map_or(0, |found| found.len()) == 0 {
        if fuse.child.try_wait().is_ok_and(|ended| ended.is_some()) || Instant::now() > end {
            return Err(not_here(Failure::new(
                id::NOT_AVAILABLE,
                "cannot show a disk as a file",
                "nbdfuse cannot mount here",
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(fuse)
}

/// Attaches a loop device with 4 KiB sectors, so that file systems write whole blocks.
fn attach(file: &Path) -> Result<Loop, Failure> {
    let arguments = [
        "--find".as_ref(),
        "--show".as_ref(),
        "--sector-size".as_ref(),
        "4096".as_ref(),
        file.as_os_str(),
    ];
    tools::run("losetup", arguments)
        .map(|name| Loop(name.trim().into()))
        .map_err(not_here)
}
