//! Member over a regular file or a block device.
//!
//! Opening, in order:
//! 1. `stat`, and refusal of anything else than a regular file or block device, so that no FIFO or
//!    tape is touched.
//! 2. `open`; for a block device that is to be locked with `O_EXCL`, which the kernel refuses while
//!    the device is mounted, used by a volume manager or opened the same way by another process.
//!    `fstat` on the descriptor then identifies what was opened.
//! 3. For a file, `flock`: tied to the open file description, so it is released even by SIGKILL,
//!    and excludes a second open of the same file by any name. A loop device is another path to the
//!    same bytes that no lock covers: a file or device under a loop device, and a loop device over
//!    a locked one, count as in use.
//! 4. Query the alignment for O_DIRECT (`statx` `STATX_DIOALIGN`; on kernels that do not know it
//!    the sector size of the device or a trial read on this file); then O_DIRECT is set on the same
//!    descriptor, and read back by a trial where nothing was reported.
//!
//! Flush is `fdatasync`. It writes back and flushes the device's cache, and also the metadata that
//! is needed to find the data again: newly allocated blocks, extents that change from unwritten to
//! written. It omits only time stamps.

pub(crate) mod create;
mod properties;
#[cfg(test)]
mod tests;
mod zero;

use crate::member::{DirectIo, Discard, Member, MemberInfo, MemberKind, write_zeroes};
use crate::place::own_limit_below;
use crate::probe::is_reached_by_another_way;
use crate::sysfs::{DeviceNumber, is_the_medium_itself};
use crate::{DeviceError, OpenError};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use windrow_io::Buf;

/// Access mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Writes and discards are refused.
    ReadOnly,
    /// Reads, writes and discards.
    ReadWrite,
}

/// Lock against other users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// No other process may open it with a lock.
    Exclusive,
    /// Several may read a file. On a block device the same as `Exclusive`, because `O_EXCL` knows
    /// no sharing.
    Shared,
    /// No lock: for inspecting a member that another process may be using.
    None,
}

/// Use of the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectMode {
    /// O_DIRECT, or the page cache where it is not possible ([`MemberInfo::direct`] has the
    /// reason).
    Preferred,
    /// O_DIRECT or refusal.
    Required,
    /// Always the page cache.
    Never,
}

/// Effect of a discard on the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiscardPolicy {
    /// Block devices that support discard do it; files ignore it. A preallocated member must stay
    /// allocated: a later write to a hole needs free space, which may be fragmented or missing.
    BlockDevicesOnly,
    /// Discards are ignored.
    Never,
    /// Files punch holes, too: for sparse members.
    PunchHoles,
}

/// Options to open a [`FileMember`]. The default: read and write, exclusive, O_DIRECT if possible,
/// no waiting.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Access mode.
    pub access: Access,
    /// Lock mode.
    pub lock: LockMode,
    /// Time limit for the lock. A killed process releases its members only when the kernel has
    /// finished its last I/O, so a restart should allow some seconds. A child process between
    /// `fork` and `exec` may also hold a block device for a moment.
    pub lock_patience: Duration,
    /// Page cache mode.
    pub direct: DirectMode,
    /// Discard mode.
    pub discard: DiscardPolicy,
    /// Every write is durable when it ends, without a flush. For a power-safe medium, which is
    /// never flushed: data may still be in the page cache, or a file system, loop device or device
    /// mapper may not have recorded it. Writes are therefore synchronous (`O_DSYNC`), unless they
    /// go by O_DIRECT to a block device that is the medium itself.
    pub write_through: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            lock: LockMode::Exclusive,
            lock_patience: Duration::ZERO,
            direct: DirectMode::Preferred,
            discard: DiscardPolicy::BlockDevicesOnly,
            write_through: false,
        }
    }
}

impl OpenOptions {
    /// The default, read-only and shared.
    pub fn read_only() -> Self {
        Self {
            access: Access::ReadOnly,
            lock: LockMode::Shared,
            ..Self::default()
        }
    }
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileMember {
    fd: OwnedFd,
    info: MemberInfo,
    memory_align: usize,
    /// True after a failed flush. Locked during a flush: the kernel reports lost writes to only one
    /// of two concurrent flushes.
    flush_failed: Mutex<bool>,
}

/// Largest piece copied through an aligned buffer when the caller's memory is not aligned.
const BOUNCE_BYTES: usize = 1 << 20;
/// Pause between two tries for a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

fn system(action: &'static str, path: &Path, errno: Errno) -> OpenError {
    OpenError::System {
        action,
        path: path.to_owned(),
        source: errno.into(),
    }
}

impl FileMember {
    /// Opens and locks.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if the lock was not available in time; see the other variants of
    /// [`OpenError`].
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let metadata = std::fs::metadata(path).map_err(|source| OpenError::System {
            action: "examine",
            path: path.to_owned(),
            source,
        })?;
        let kind = if metadata.file_type().is_block_device() {
            MemberKind::BlockDevice
        } else if metadata.is_file() {
            MemberKind::File
        } else {
            return Err(OpenError::WrongType {
                path: path.to_owned(),
            });
        };
        let is_the_medium = kind == MemberKind::BlockDevice
            && DeviceNumber::from_raw(metadata.rdev())
                .folder()
                .is_some_and(|folder| is_the_medium_itself(&folder));
        let (fd, info) =
            match open_as(path, kind, options, options.write_through && !is_the_medium)? {
                // The page cache is not the medium.
                (fd, info)
                    if options.write_through
                        && is_the_medium
                        && matches!(info.direct, DirectIo::No { .. }) =>
                {
                    drop(fd);
                    open_as(path, kind, options, true)?
                }
                opened => opened,
            };
        let memory_align = match info.direct {
            DirectIo::Yes { memory_align, .. } => memory_align as usize,
            DirectIo::No { .. } => 1,
        };
        Ok(Self {
            fd,
            info,
            memory_align,
            flush_failed: Mutex::new(false),
        })
    }

    fn is_aligned(&self, buf: &[u8]) -> bool {
        (buf.as_ptr() as usize).is_multiple_of(self.memory_align)
    }

    fn read_exact(&self, mut offset: u64, mut buf: &mut [u8]) -> Result<(), DeviceError> {
        while !buf.is_empty() {
            match rustix::io::pread(&self.fd, &mut *buf, offset) {
                // The size was checked, so the file was truncated while open.
                Ok(0) => return Err(DeviceError::from_code(libc::EIO, offset)),
                Ok(count) => {
                    // Under O_DIRECT a short count that is not aligned cannot be resumed at its
                    // exact end.
                    let count = self.resume_point(offset, count)?;
                    buf = &mut buf[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(DeviceError::from_errno(errno, offset)),
            }
        }
        Ok(())
    }

    fn write_all(&self, mut offset: u64, mut data: &[u8]) -> Result<(), DeviceError> {
        while !data.is_empty() {
            match rustix::io::pwrite(&self.fd, data, offset) {
                Ok(0) => return Err(DeviceError::from_code(libc::EIO, offset)),
                Ok(count) => {
                    let count = self.resume_point(offset, count)?;
                    data = &data[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(DeviceError::from_errno(errno, offset)),
            }
        }
        Ok(())
    }

    fn resume_point(&self, offset: u64, count: usize) -> Result<usize, DeviceError> {
        let aligned = count - count % self.info.logical_sector as usize;
        if aligned == 0 {
            Err(DeviceError::from_code(libc::EIO, offset))
        } else {
            Ok(aligned)
        }
    }
}

impl Drop for FileMember {
    fn drop(&mut self) {
        unlock(&self.fd, self.info.kind);
    }
}

/// Locks a file. (A block device was locked by the open.)
fn lock(fd: &OwnedFd, kind: MemberKind, mode: LockMode) -> Result<(), Errno> {
    match (kind, mode) {
        (MemberKind::File, LockMode::Shared) => {
            rustix::fs::flock(fd, FlockOperation::NonBlockingLockShared)
        }
        (MemberKind::File, LockMode::Exclusive) => {
            rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)
        }
        _ => Ok(()),
    }
}

/// Unlocks a file explicitly: after a close alone, a child that was just forked and has not reached
/// its `exec` would keep the lock. (`O_EXCL` has no such call: a block device is free when the last
/// copy of the descriptor is closed.)
fn unlock(fd: &OwnedFd, kind: MemberKind) {
    if kind == MemberKind::File {
        // The descriptor is open and unlocking cannot block; without a lock it does nothing.
        let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
    }
}

/// Opens, locks and queries the properties.
fn open_as(
    path: &Path,
    kind: MemberKind,
    options: &OpenOptions,
    synchronous: bool,
) -> Result<(OwnedFd, MemberInfo), OpenError> {
    let fd = open_and_lock(path, kind, options, synchronous)?;
    let stat = rustix::fs::fstat(&fd).map_err(|e| system("examine", path, e))?;
    let expected = if kind == MemberKind::File {
        rustix::fs::FileType::RegularFile
    } else {
        rustix::fs::FileType::BlockDevice
    };
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != expected {
        return Err(OpenError::WrongType {
            path: path.to_owned(),
        });
    }
    // Removed between `open` and the lock by the command that had created it: the file would vanish
    // at close.
    if kind == MemberKind::File && options.lock != LockMode::None && stat.st_nlink == 0 {
        return Err(system("open", path, Errno::NOENT));
    }
    // Without this check the first write past the limit would look like a failing member.
    let bytes = stat.st_size as u64;
    if let Some(limit) = own_limit_below(bytes)
        .filter(|_| kind == MemberKind::File && options.access != Access::ReadOnly)
    {
        return Err(OpenError::FileLimit {
            path: path.to_owned(),
            bytes,
            limit,
        });
    }
    let info = properties::examine(&fd, path, kind, &stat, options)?;
    Ok((fd, info))
}

fn open_and_lock(
    path: &Path,
    kind: MemberKind,
    options: &OpenOptions,
    synchronous: bool,
) -> Result<OwnedFd, OpenError> {
    let locked = options.lock != LockMode::None;
    let mut flags = OFlags::CLOEXEC
        | if options.access == Access::ReadOnly {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
    if kind == MemberKind::BlockDevice && locked {
        flags |= OFlags::EXCL;
    }
    if synchronous {
        // (rustix's constant of this name is O_SYNC, which also writes time stamps.)
        flags |= OFlags::from_bits_retain(libc::O_DSYNC as u32);
    }
    let deadline = Instant::now() + options.lock_patience;
    loop {
        let busy = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) if !locked => return Ok(fd),
            Ok(fd) => match lock(&fd, kind, options.lock) {
                // Checked only after locking, as the other process does: of two concurrent opens at
                // least one finds the other's lock. Repeated on each try, because the device may
                // become free.
                Ok(()) if is_reached_by_another_way(path, kind) => {
                    unlock(&fd, kind);
                    true
                }
                Ok(()) => return Ok(fd),
                Err(Errno::WOULDBLOCK) => true,
                Err(Errno::INTR) => false,
                Err(errno) => return Err(system("lock", path, errno)),
            },
            Err(Errno::BUSY) => true,
            Err(Errno::INTR) => false,
            Err(errno) => return Err(system("open", path, errno)),
        };
        if busy {
            if Instant::now() >= deadline {
                return Err(OpenError::InUse {
                    path: path.to_owned(),
                });
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }
}

impl Member for FileMember {
    fn info(&self) -> &MemberInfo {
        &self.info
    }

    fn size_now(&self) -> Result<u64, DeviceError> {
        properties::size(&self.fd, self.info.kind == MemberKind::BlockDevice)
            .map(|bytes| bytes & !4095)
            .map_err(|errno| DeviceError::from_errno(errno, 0))
    }

    fn is_nameless(&self) -> bool {
        self.info.kind == MemberKind::File
            && rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 0)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.info.check_range(offset, buf.len() as u64)?;
        if self.is_aligned(buf) {
            return self.read_exact(offset, buf);
        }
        let mut bounce = Buf::unpooled(buf.len().min(BOUNCE_BYTES));
        let mut at = offset;
        for piece in buf.chunks_mut(BOUNCE_BYTES) {
            self.read_exact(at, &mut bounce[..piece.len()])?;
            piece.copy_from_slice(&bounce[..piece.len()]);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.info.check_write(offset, data.len() as u64)?;
        if self.is_aligned(data) {
            return self.write_all(offset, data);
        }
        let mut bounce = Buf::unpooled(data.len().min(BOUNCE_BYTES));
        let mut at = offset;
        for piece in data.chunks(BOUNCE_BYTES) {
            bounce[..piece.len()].copy_from_slice(piece);
            self.write_all(at, &bounce[..piece.len()])?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut failed = self.flush_failed.lock().unwrap_or_else(|e| e.into_inner());
        if *failed {
            return Err(DeviceError::gone(0));
        }
        loop {
            match rustix::fs::fdatasync(&self.fd) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    *failed = true;
                    return Err(DeviceError::from_errno(errno, 0));
                }
            }
        }
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.info.check_write(offset, length)?;
        if self.info.discard == Discard::Ignored || length == 0 {
            return Ok(());
        }
        let result = match self.info.kind {
            MemberKind::BlockDevice => properties::block_discard(self.fd.as_fd(), offset, length),
            MemberKind::File | MemberKind::Memory => {
                let flags =
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.fd, flags, offset, length)
            }
        };
        match result {
            // A discard is advice: a device that rejects it has lost nothing.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(DeviceError::from_errno(errno, offset)),
        }
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.info.check_write(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let zeroed = loop {
            let zeroed = match self.info.kind {
                MemberKind::BlockDevice => properties::block_zero(self.fd.as_fd(), offset, length),
                MemberKind::File | MemberKind::Memory => {
                    zero::zero(&self.fd, self.info.size_bytes, offset, length)
                }
            };
            if zeroed != Err(Errno::INTR) {
                break zeroed;
            }
        };
        match zeroed {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => {
                write_zeroes(self, offset, length)
            }
            other => other.map_err(|errno| DeviceError::from_errno(errno, offset)),
        }
    }

    fn erase_behind(&self) -> Result<(), DeviceError> {
        let usable = self.info.size_bytes;
        self.info.check_write(usable, 0)?;
        let size = rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| DeviceError::from_errno(errno, usable))?;
        let zeroes = Buf::unpooled(4096);
        let behind = usize::try_from(size.saturating_sub(usable))
            .unwrap_or(0)
            .min(zeroes.len());
        self.write_all(
            usable,
            &zeroes[..behind - behind % self.info.logical_sector as usize],
        )
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }
}

/// The path with links resolved, or as it is.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
