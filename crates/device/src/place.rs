//! Location of a new file: on a medium that keeps it, in memory, or among the device nodes.
//!
//! A mistyped device name such as `/dev/sdzz` names a missing file in an in-memory file system
//! (devtmpfs). A member created there would be lost at the next restart, together with the
//! redundancy that was moved onto it.

#[cfg(test)]
mod tests;

use crate::sysfs::DeviceNumber;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Magic numbers of `linux/magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// Persistence of files in a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// A file system on a medium, or an unknown one.
    Medium,
    /// Memory: files are lost at a restart.
    Memory,
    /// Device nodes: devtmpfs, or any folder below `/dev`.
    Devices,
}

/// Folder of a new file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The folder, links resolved.
    pub folder: PathBuf,
    /// Persistence of the file.
    pub keeps: Keeps,
    /// Free bytes, for this user.
    pub free_bytes: u64,
    /// Number of the file system: files with the same number share its free bytes.
    pub file_system: u64,
}

/// Inspects the folder of a new file at `path`. Writes nothing.
///
/// # Errors
/// There is no such folder, or files cannot be created in it.
pub fn of_new_file(path: &Path) -> io::Result<Place> {
    let folder = fs::canonicalize(parent(path))?;
    let metadata = fs::metadata(&folder)?;
    if !metadata.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    let stat = rustix::fs::statfs(&folder)?;
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let keeps = if folder.starts_with("/dev") {
        Keeps::Devices
    } else {
        // (The kernel gives devtmpfs the magic number of the tmpfs that it is made of.)
        match (
            type_in(&table, DeviceNumber::from_raw(metadata.dev())).as_deref(),
            stat.f_type as i64 & 0xffff_ffff,
        ) {
            (Some("devtmpfs"), _) => Keeps::Devices,
            (Some("tmpfs" | "ramfs" | "rootfs"), _) | (_, TMPFS_MAGIC | RAMFS_MAGIC) => {
                Keeps::Memory
            }
            _ => Keeps::Medium,
        }
    };
    rustix::fs::accessat(
        CWD,
        &folder,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    )?;
    let free = if rustix::process::geteuid().is_root() {
        stat.f_bfree
    } else {
        stat.f_bavail
    };
    let free_bytes = match stat.f_blocks {
        // A file system without a limit, or one that does not report it.
        0 => u64::MAX,
        _ => free.saturating_mul(u64::try_from(stat.f_bsize).unwrap_or(1)),
    };
    Ok(Place {
        folder,
        keeps,
        free_bytes,
        file_system: metadata.dev(),
    })
}

/// The folder of a path.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// True if the file system and this process's limit allow a file of this size. Tried with an
/// unnamed file, where the file system supports those.
///
/// # Errors
/// Of the system.
pub fn lets_be_as_large_as(place: &Place, bytes: u64) -> io::Result<bool> {
    if own_limit_below(bytes).is_some() {
        return Ok(false);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open(&place.folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        // Unnamed files are not supported: the creation itself will show.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => return Ok(true),
        Err(errno) => return Err(errno.into()),
    };
    match rustix::fs::ftruncate(&file, bytes) {
        Ok(()) => Ok(true),
        Err(Errno::FBIG | Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// File size limit of the process, if it forbids writes up to `bytes`. (They would fail, or end the
/// process by SIGXFSZ.)
pub(crate) fn own_limit_below(bytes: u64) -> Option<u64> {
    getrlimit(Resource::Fsize)
        .current
        .filter(|limit| bytes > *limit)
}

/// Type of the file system with this device number, according to the mount table.
fn type_in(table: &str, number: DeviceNumber) -> Option<String> {
    table.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let is_it = head.split(' ').nth(2).and_then(DeviceNumber::parse) == Some(number);
        is_it.then(|| tail.split(' ').next().unwrap_or_default().to_owned())
    })
}
