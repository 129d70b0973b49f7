//! Kernel properties of an open file or block device: size, sectors, alignment, discard.

use super::{Access, DirectMode, DiscardPolicy, OpenOptions, system};
use crate::OpenError;
use crate::member::{DirectIo, Discard, MemberInfo, MemberKind};
use crate::sysfs::{DeviceNumber, QueueLimits};
use rustix::fs::{AtFlags, OFlags, SeekFrom, Stat, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use windrow_io::Buf;

/// Largest sector with which a block of 4096 bytes is still written atomically.
const SECTOR_BYTES_MAX: u32 = 4096;
/// `_IO(0x12, 119)` of `linux/fs.h`.
const BLKDISCARD: libc::Ioctl = 0x1277;
/// `_IO(0x12, 127)` of `linux/fs.h`.
const BLKZEROOUT: libc::Ioctl = 0x127f;

/// Collects the properties and enables O_DIRECT.
pub(super) fn examine(
    fd: &OwnedFd,
    path: &Path,
    kind: MemberKind,
    stat: &Stat,
    options: &OpenOptions,
) -> Result<MemberInfo, OpenError> {
    let is_device = kind == MemberKind::BlockDevice;
    let number = DeviceNumber::from_raw(if is_device { stat.st_rdev } else { stat.st_dev });
    let limits = QueueLimits::read(number).unwrap_or_default();
    let size = size(fd, is_device).map_err(|e| system("measure", path, e))?;
    let device_sector = if is_device {
        Some(rustix::fs::ioctl_blksszget(fd).map_err(|e| system("examine", path, e))?)
    } else {
        None
    };
    let direct = match options.direct {
        DirectMode::Never => DirectIo::No {
            reason: "not wanted".to_owned(),
        },
        DirectMode::Preferred | DirectMode::Required => {
            choose_direct(fd, device_sector, limits.logical_sector)
        }
    };
    if let (DirectMode::Required, DirectIo::No { reason }) = (options.direct, &direct) {
        return Err(OpenError::NoDirectIo {
            path: path.to_owned(),
            reason: reason.clone(),
        });
    }
    let offset_align = match direct {
        DirectIo::Yes { offset_align, .. } => offset_align,
        DirectIo::No { .. } => 0,
    };
    let logical_sector = device_sector.unwrap_or(512).max(offset_align).max(512);
    if logical_sector > SECTOR_BYTES_MAX || !logical_sector.is_power_of_two() {
        return Err(OpenError::SectorTooLarge {
            path: path.to_owned(),
            bytes: logical_sector,
        });
    }
    let reported = if is_device {
        rustix::fs::ioctl_blkpbszget(fd).ok()
    } else {
        limits.physical_sector
    };
    // Links are kept: the kernel name they resolve to may be another device after a restart.
    let name = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok(MemberInfo {
        description: format!(
            "{} {}",
            if is_device { "block device" } else { "file" },
            name.display()
        ),
        path: Some(name),
        kind,
        size_bytes: size & !4095,
        logical_sector,
        physical_sector: reported.unwrap_or(0).max(logical_sector),
        direct,
        rotational: limits.rotational,
        discard: discard_of(kind, &limits, options),
        optimal_io_bytes: limits.optimal_io_bytes,
        erase_block_hint_bytes: limits.erase_block_hint(),
        read_only: options.access == Access::ReadOnly,
    })
}

/// Current size of an open file or block device in bytes.
pub(super) fn size(fd: &OwnedFd, is_device: bool) -> Result<u64, Errno> {
    if is_device {
        rustix::fs::seek(fd, SeekFrom::End(0))
    } else {
        rustix::fs::fstat(fd).map(|stat| u64::try_from(stat.st_size).unwrap_or(0))
    }
}

fn discard_of(kind: MemberKind, limits: &QueueLimits, options: &OpenOptions) -> Discard {
    let wanted = match options.discard {
        DiscardPolicy::Never => false,
        DiscardPolicy::BlockDevicesOnly => kind == MemberKind::BlockDevice && limits.can_discard,
        DiscardPolicy::PunchHoles => kind == MemberKind::File || limits.can_discard,
    };
    if wanted && options.access == Access::ReadWrite {
        Discard::Real {
            granularity_bytes: if kind == MemberKind::File {
                4096
            } else {
                limits.discard_granularity_bytes
            },
        }
    } else {
        Discard::Ignored
    }
}

/// Finds the alignment and sets O_DIRECT, or returns the reason why not and leaves the descriptor
/// without it. `sector_below` is the sector of the device under the file system.
fn choose_direct(fd: &OwnedFd, device_sector: Option<u32>, sector_below: Option<u32>) -> DirectIo {
    let reported = reported_alignment(fd);
    if reported == Some((0, 0)) {
        return DirectIo::No {
            reason: "the file system cannot do direct I/O on this file".to_owned(),
        };
    }
    if let Err(errno) = set_direct(fd, true) {
        return DirectIo::No {
            reason: format!("the file system refuses O_DIRECT ({errno})"),
        };
    }
    let found = match (reported, device_sector) {
        (Some(alignment), _) => Some(alignment),
        (None, Some(sector)) => Some((sector, sector)),
        (None, None) => tried_alignment(fd, sector_below.unwrap_or(512)),
    };
    match found {
        Some((memory, offset)) if memory <= SECTOR_BYTES_MAX && offset <= SECTOR_BYTES_MAX => {
            DirectIo::Yes {
                memory_align: memory.max(1),
                offset_align: offset.max(1),
            }
        }
        _ => {
            let reason = match (found, set_direct(fd, false)) {
                (Some((memory, offset)), _) => format!(
                    "direct I/O needs an alignment of {} bytes",
                    memory.max(offset)
                ),
                (None, _) => "no trial read with O_DIRECT succeeded".to_owned(),
            };
            DirectIo::No { reason }
        }
    }
}

/// Memory and offset alignment as `statx` reports them. Zeroes mean "no direct I/O", `None` means
/// that the kernel does not report them.
fn reported_alignment(fd: &OwnedFd) -> Option<(u32, u32)> {
    let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    Some((statx.stx_dio_mem_align, statx.stx_dio_offset_align))
}

/// Smallest alignment, from `least` on, with which a read succeeds; for kernels before 6.1 and file
/// systems that report nothing. A trial proves little: unwritten ranges read as zeroes with any
/// alignment, whatever the sectors below.
pub(super) fn tried_alignment(fd: &OwnedFd, least: u32) -> Option<(u32, u32)> {
    let mut buf = Buf::unpooled(8192);
    [512u32, 1024, 2048, 4096]
        .into_iter()
        .filter(|align| *align >= least)
        .find_map(|align| {
            let size = align as usize;
            // An offset of one unit and an address of one unit: both are aligned to it and to
            // nothing larger.
            match rustix::io::pread(fd, &mut buf[size..2 * size], u64::from(align)) {
                Ok(_) => Some((align, align)),
                Err(_) => None,
            }
        })
}

fn set_direct(fd: &OwnedFd, on: bool) -> Result<(), Errno> {
    let mut flags = rustix::fs::fcntl_getfl(fd)?;
    flags.set(OFlags::DIRECT, on);
    rustix::fs::fcntl_setfl(fd, flags)
}

/// BLKDISCARD of a range of a block device.
pub(super) fn block_discard(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    of_range(fd, BLKDISCARD, offset, length)
}

/// BLKZEROOUT of a range of a block device: by the device if it guarantees zeroes, else by kernel
/// writes.
pub(super) fn block_zero(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    of_range(fd, BLKZEROOUT, offset, length)
}

/// BLKDISCARD or BLKZEROOUT.
fn of_range(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    offset: u64,
    length: u64,
) -> Result<(), Errno> {
    let range = [offset, length];
    // SAFETY: the descriptor is open during the borrow; both requests read two 64-bit words from
    // the pointer, which outlive the call, and write to no memory of this process.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, range.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
