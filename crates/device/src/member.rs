//! The interface of one drive.

use crate::DeviceError;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use windrow_io::Buf;

/// Kind of a member's storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberKind {
    /// A block device.
    BlockDevice,
    /// A regular file.
    File,
    /// Memory of this process: operations never block.
    Memory,
}

/// Use of the page cache by reads and writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectIo {
    /// They bypass it. Both alignments are what the kernel reported (or a trial showed) for this
    /// file.
    Yes {
        /// Alignment of addresses in memory, bytes.
        memory_align: u32,
        /// Alignment of offsets and lengths, bytes.
        offset_align: u32,
    },
    /// They go through the page cache; a flush is still a real flush.
    No {
        /// Reason.
        reason: String,
    },
}

/// Effect of a discard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// It succeeds and does nothing.
    Ignored,
    /// It reaches the device or the file.
    Real {
        /// Bytes the device rounds to, 0 if unknown.
        granularity_bytes: u32,
    },
}

/// Properties of a member, fixed while it is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberInfo {
    /// Description for messages.
    pub description: String,
    /// Path, if it has one: absolute, with the links by which it was opened.
    pub path: Option<PathBuf>,
    /// Kind of storage.
    pub kind: MemberKind,
    /// Usable bytes, a multiple of 4096.
    pub size_bytes: u64,
    /// Offsets and lengths must be multiples of this; at most 4096.
    pub logical_sector: u32,
    /// Bytes that the medium writes atomically.
    pub physical_sector: u32,
    /// Use of the page cache.
    pub direct: DirectIo,
    /// True for a disk with a seek penalty.
    pub rotational: bool,
    /// Effect of a discard.
    pub discard: Discard,
    /// Preferred write size of the device in bytes, if reported.
    pub optimal_io_bytes: Option<u32>,
    /// Erase-block size in bytes as far as the device hints at it (its discard granularity or its
    /// preferred write size). Many drives report nothing or too little: a hint, never a guarantee.
    pub erase_block_hint_bytes: Option<u32>,
    /// Writes are refused.
    pub read_only: bool,
}

impl MemberInfo {
    /// Checks that a range is aligned and inside.
    pub fn check_range(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let sector = u64::from(self.logical_sector);
        if !offset.is_multiple_of(sector) || !length.is_multiple_of(sector) {
            return Err(DeviceError::misaligned(offset));
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.size_bytes => Ok(()),
            _ => Err(DeviceError::out_of_range(offset)),
        }
    }

    /// As [`MemberInfo::check_range`], and refuses a read-only member.
    pub fn check_write(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        if self.read_only {
            Err(DeviceError::read_only(offset))
        } else {
            self.check_range(offset, length)
        }
    }
}

/// One drive, used from any number of threads at once.
///
/// Contract for all implementations: offsets and lengths are multiples of the logical sector and
/// inside the member, else `EINVAL` or `ERANGE` is returned and nothing happens; buffers may have
/// any address. Concurrent operations on overlapping ranges give some mixture of both, sector by
/// sector. A write is durable only after a [`Member::flush`] that *began* after the write had
/// returned. After a failed flush every later flush fails with
/// [`Gone`](windrow_io::MemberErrorKind::Gone): the kernel reports lost writes only once, so a
/// later success would be false. (Fault-injecting back ends can break this rule: the engine must
/// latch by itself.)
pub trait Member: Send + Sync {
    /// Its properties.
    fn info(&self) -> &MemberInfo;
    /// Fills `buf` from `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError>;
    /// Writes all of `data` at `offset`; not durable before a flush.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError>;
    /// Makes all writes that have returned durable.
    fn flush(&self) -> Result<(), DeviceError>;
    /// Marks a range as unused. Its content is undefined until it is written again.
    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError>;
    /// Zeroes a range by the fastest method that guarantees zeroes (a discard does not); not
    /// durable before a flush.
    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        write_zeroes(self, offset, length)
    }
    /// Zeroes the bytes after the usable ones: if the device size is not a multiple of 4096, only
    /// other software uses the last sectors.
    fn erase_behind(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    /// Current usable bytes: a file may be truncated, and a device may shrink, while it is open.
    ///
    /// # Errors
    /// It cannot be measured.
    fn size_now(&self) -> Result<u64, DeviceError> {
        Ok(self.info().size_bytes)
    }
    /// True if it is a file without a name: it was deleted while open, and no later start finds it.
    fn is_nameless(&self) -> bool {
        false
    }
    /// A descriptor through which io_uring may read, write and sync *in place of* the methods
    /// above, or `None` if the methods do something that the kernel cannot. Valid during the
    /// member's lifetime.
    fn raw_fd(&self) -> Option<RawFd>;
}

/// Zeroes a range by writes.
pub(crate) fn write_zeroes<M: Member + ?Sized>(
    member: &M,
    offset: u64,
    length: u64,
) -> Result<(), DeviceError> {
    const PIECE_BYTES: u64 = 1 << 20;
    member.info().check_write(offset, length)?;
    let zeroes = Buf::unpooled(length.min(PIECE_BYTES) as usize);
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(PIECE_BYTES);
        member.write_at(offset + done, &zeroes[..piece as usize])?;
        done += piece;
    }
    Ok(())
}

impl<M: Member + ?Sized> Member for Arc<M> {
    fn info(&self) -> &MemberInfo {
        (**self).info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        (**self).read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        (**self).write_at(offset, data)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        (**self).flush()
    }
    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        (**self).discard(offset, length)
    }
    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        (**self).zero(offset, length)
    }
    fn erase_behind(&self) -> Result<(), DeviceError> {
        (**self).erase_behind()
    }
    fn size_now(&self) -> Result<u64, DeviceError> {
        (**self).size_now()
    }
    fn is_nameless(&self) -> bool {
        (**self).is_nameless()
    }
    fn raw_fd(&self) -> Option<RawFd> {
        (**self).raw_fd()
    }
}
