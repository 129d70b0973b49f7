//! Creation of member files.
//!
//! 1. `O_CREAT | O_EXCL`, mode 0600: never over an existing file.
//! 2. Space: none (`Sparse`), `fallocate` (`Preallocate`), or written zeroes (`Written`).
//! 3. `fsync` of the file and of its folder: a member that is in the superblocks must not vanish in
//!    a power failure.
//!
//! After `fallocate` the blocks are reserved but *unwritten*: the first write to each has to turn
//! the extent into a written one, which costs a journal transaction of the file system with the
//! next flush. `Written` pays that once, at creation, with one full pass of writes. Benchmarks that
//! need the steady rate of the medium from the first second use it.

use super::BOUNCE_BYTES;
use crate::CreateError;
use crate::place::{own_limit_below, parent};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use windrow_io::Buf;

/// Allocation of a new file's space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Reserved, not yet written. A pool on it never fills the file system.
    Preallocate,
    /// Reserved and filled with zeroes.
    Written,
    /// Nothing reserved: writes may fail when the file system is full.
    Sparse,
}

/// Creates a member file of `size_bytes` (a multiple of 4096).
///
/// # Errors
/// [`CreateError`]; the file is removed again.
pub fn create_file(
    path: &Path,
    size_bytes: u64,
    allocation: Allocation,
) -> Result<(), CreateError> {
    create_file_with_progress(path, size_bytes, allocation, &mut |_| ())
}

/// As [`create_file`]. `progress` receives the number of bytes done, at most once per MiB, and only
/// while zeroes are written.
///
/// # Errors
/// [`CreateError`]; the file is removed again.
pub fn create_file_with_progress(
    path: &Path,
    size_bytes: u64,
    allocation: Allocation,
    progress: &mut dyn FnMut(u64),
) -> Result<(), CreateError> {
    if size_bytes == 0 || !size_bytes.is_multiple_of(4096) || i64::try_from(size_bytes).is_err() {
        return Err(CreateError::Size {
            path: path.to_owned(),
        });
    }
    let system = |action: &'static str, errno: Errno| failure(action, path, size_bytes, errno);
    if own_limit_below(size_bytes).is_some() {
        return Err(system("allocate", Errno::FBIG));
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd =
        rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| system("create", e))?;
    let filled = fill(&fd, size_bytes, allocation, progress)
        .map_err(|e| system("allocate", e))
        .and_then(|()| rustix::fs::fsync(&fd).map_err(|e| system("sync", e)))
        .and_then(|()| sync_folder(path).map_err(|e| system("sync the folder of", e)));
    if filled.is_err() {
        // Best effort: the first error is the one to report.
        let _ = std::fs::remove_file(path);
    }
    filled
}

/// Meaning of a system error for a file of `bytes` bytes.
pub(super) fn failure(action: &'static str, path: &Path, bytes: u64, errno: Errno) -> CreateError {
    let path = path.to_owned();
    match errno {
        Errno::EXIST => CreateError::Exists { path },
        Errno::NOSPC | Errno::DQUOT => CreateError::NoSpace { path, bytes },
        Errno::FBIG => CreateError::TooLarge { path, bytes },
        _ => CreateError::System {
            action,
            path,
            source: errno.into(),
        },
    }
}

fn fill(
    fd: &OwnedFd,
    size_bytes: u64,
    allocation: Allocation,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Errno> {
    if allocation == Allocation::Sparse {
        return rustix::fs::ftruncate(fd, size_bytes);
    }
    let reserved = loop {
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, size_bytes) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    match reserved {
        Ok(()) if allocation == Allocation::Preallocate => Ok(()),
        // A file system that cannot reserve space gets its blocks by writes.
        Ok(()) | Err(Errno::OPNOTSUPP) => write_zeroes(fd, size_bytes, progress),
        Err(errno) => Err(errno),
    }
}

fn write_zeroes(fd: &OwnedFd, size_bytes: u64, progress: &mut dyn FnMut(u64)) -> Result<(), Errno> {
    // Direct I/O keeps gigabytes of zeroes out of the page cache; where it is refused the cache is
    // good enough.
    let flags = rustix::fs::fcntl_getfl(fd)?;
    let mut direct = rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT).is_ok();
    let zeroes = Buf::unpooled(BOUNCE_BYTES);
    let mut at = 0u64;
    while at < size_bytes {
        let length =
            usize::try_from(size_bytes - at).map_or(BOUNCE_BYTES, |rest| rest.min(BOUNCE_BYTES));
        match rustix::io::pwrite(fd, &zeroes[..length], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                at += count as u64;
                progress(at);
            }
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) if direct => {
                rustix::fs::fcntl_setfl(fd, flags)?;
                direct = false;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn sync_folder(path: &Path) -> Result<(), Errno> {
    let fd = rustix::fs::open(
        parent(path),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    match rustix::fs::fsync(&fd) {
        // Some file systems do not sync folders; that is accepted.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno),
    }
}
