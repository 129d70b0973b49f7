//! Zeroes in a range of a file without writing them: contents are dropped, and reserved space stays
//! reserved.

use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Zeroes a range of a file of `size` bytes. `EOPNOTSUPP`: the file system does not support it; the
/// caller writes zeroes.
pub(super) fn zero(fd: &OwnedFd, size: u64, offset: u64, length: u64) -> Result<(), Errno> {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // In a sparse file nothing is reserved, and there may be no space to reserve.
    let is_sparse = u64::try_from(fstat(fd)?.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512)
        < size;
    if is_sparse {
        return allocate(fd, punch, offset, length);
    }
    match allocate(fd, FallocateFlags::ZERO_RANGE, offset, length) {
        Err(Errno::OPNOTSUPP) => allocate(fd, punch, offset, length)
            .and_then(|()| allocate(fd, FallocateFlags::empty(), offset, length)),
        other => other,
    }
}

fn allocate(fd: &OwnedFd, flags: FallocateFlags, offset: u64, length: u64) -> Result<(), Errno> {
    loop {
        match fallocate(fd, flags, offset, length) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
