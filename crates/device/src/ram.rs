//! A member in memory: real copies, no device. For benchmarks of the engine itself and tests.
//!
//! The memory is one anonymous mapping: a sparse member costs only the touched pages, and a
//! preallocated one is faulted in at creation, not during the benchmark. Any number of threads copy
//! concurrently: the member is cut into chunks of 256 KiB, each guarded by one of 1024 read-write
//! locks (chunk number modulo 1024). Writes to different chunks share no lock or cache line, and an
//! uncontended lock is cheap compared with the copy of a block.

#[cfg(test)]
mod tests;

use crate::DeviceError;
use crate::member::{DirectIo, Discard, Member, MemberInfo, MemberKind};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::RwLock;

const CHUNK_BYTES: u64 = 256 << 10;
const LOCKS: usize = 1024;
/// A discard below this is not worth a system call: the next write pays for it with page faults.
const PAGE_BYTES: u64 = 4096;

/// Time at which the memory of a [`RamMember`] is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RamAllocation {
    /// All of it at creation. Discards do nothing.
    Preallocate,
    /// Page by page with the first write; given back by discards. (Not after `lock_memory`, which
    /// takes everything at once.)
    Sparse,
}

#[repr(align(64))]
struct Guard(RwLock<()>);

struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is plain memory owned by this value; any thread may use and unmap it.
unsafe impl Send for Mapping {}
// SAFETY: only `RamMember` accesses the mapping, and holds the lock of a chunk while it touches the
// chunk's bytes.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `RamMember::new` with this address and length, and unmapped once; no
        // reference into it outlives `self`. The call cannot fail for a mapping that exists.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A member in memory. Its content ends with it.
pub struct RamMember {
    mapping: Mapping,
    locks: Box<[Guard]>,
    info: MemberInfo,
}

impl RamMember {
    /// A member of `size_bytes`, rounded down to a multiple of 4096, all zero.
    ///
    /// # Errors
    /// `ENOMEM` if the kernel does not give the memory, `EINVAL` if the size is below 4096.
    pub fn new(size_bytes: u64, allocation: RamAllocation) -> io::Result<Self> {
        let size = size_bytes & !(PAGE_BYTES - 1);
        let length =
            usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        if length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sparse = allocation == RamAllocation::Sparse;
        let flags = MapFlags::PRIVATE
            | if sparse {
                MapFlags::NORESERVE
            } else {
                MapFlags::empty()
            };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing
        // memory.
        let raw = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        let start = NonNull::new(raw.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { start, length };
        if !sparse {
            // SAFETY: the range is our own fresh mapping, and the advice changes nothing but the
            // size of its pages.
            let _ = unsafe { rustix::mm::madvise(raw, length, Advice::LinuxHugepage) };
            // SAFETY: the range is our own fresh mapping; its pages are made resident, their
            // content stays.
            match unsafe { rustix::mm::madvise(raw, length, Advice::LinuxPopulateWrite) } {
                // Kernels before 5.14 do not know it: the first writes then pay for the faults.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let info = MemberInfo {
            description: format!("memory of {size} bytes"),
            path: None,
            kind: MemberKind::Memory,
            size_bytes: size,
            logical_sector: 512,
            physical_sector: 4096,
            direct: DirectIo::Yes {
                memory_align: 1,
                offset_align: 512,
            },
            rotational: false,
            discard: if sparse {
                Discard::Real {
                    granularity_bytes: PAGE_BYTES as u32,
                }
            } else {
                Discard::Ignored
            },
            optimal_io_bytes: None,
            erase_block_hint_bytes: None,
            read_only: false,
        };
        Ok(Self {
            mapping,
            locks: (0..LOCKS).map(|_| Guard(RwLock::new(()))).collect(),
            info,
        })
    }

    fn lock(&self, chunk: u64) -> &RwLock<()> {
        &self.locks[(chunk % LOCKS as u64) as usize].0
    }

    /// The address of a byte; the caller has checked the range and holds the lock of the byte's
    /// chunk.
    fn address(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < self.info.size_bytes);
        // SAFETY: `offset` is inside the mapping (checked by `check_range` in every caller), so the
        // result stays inside one allocation.
        unsafe { self.mapping.start.as_ptr().add(offset as usize) }
    }
}

/// Cuts a byte range at chunk borders: (chunk, range of the member).
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let end = offset + length;
    let chunks = if length == 0 {
        0..0
    } else {
        offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)
    };
    chunks.map(move |chunk| {
        (
            chunk,
            (chunk * CHUNK_BYTES).max(offset)..((chunk + 1) * CHUNK_BYTES).min(end),
        )
    })
}

impl Member for RamMember {
    fn info(&self) -> &MemberInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.info.check_range(offset, buf.len() as u64)?;
        for (chunk, range) in pieces(offset, buf.len() as u64) {
            let part = &mut buf[(range.start - offset) as usize..(range.end - offset) as usize];
            let _shared = self.lock(chunk).read().unwrap_or_else(|e| e.into_inner());
            // SAFETY: source: `range` is inside the mapping and inside one chunk, whose read lock
            // is held, so there is no writer. Target: a unique slice of the caller, `part.len()`
            // bytes long, which cannot overlap our private mapping.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.address(range.start),
                    part.as_mut_ptr(),
                    part.len(),
                )
            };
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.info.check_write(offset, data.len() as u64)?;
        for (chunk, range) in pieces(offset, data.len() as u64) {
            let part = &data[(range.start - offset) as usize..(range.end - offset) as usize];
            let _unique = self.lock(chunk).write().unwrap_or_else(|e| e.into_inner());
            // SAFETY: target: `range` is inside the mapping and inside one chunk, whose write lock
            // is held, so no other thread touches it. Source: a slice of the caller, `part.len()`
            // bytes long, which cannot overlap our private mapping.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), self.address(range.start), part.len())
            };
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.info.check_write(offset, length)?;
        if self.info.discard == Discard::Ignored {
            return Ok(());
        }
        for (chunk, range) in pieces(offset, length) {
            let start = range.start.next_multiple_of(PAGE_BYTES);
            let end = range.end & !(PAGE_BYTES - 1);
            if start >= end {
                continue;
            }
            let _unique = self.lock(chunk).write().unwrap_or_else(|e| e.into_inner());
            // SAFETY: whole pages of our own private anonymous mapping inside one chunk, whose
            // write lock is held; they read as zero afterwards, which is legal content. Failure
            // leaves them unchanged, which is legal, too.
            let _ = unsafe {
                rustix::mm::madvise(
                    self.address(start).cast(),
                    (end - start) as usize,
                    Advice::LinuxDontNeed,
                )
            };
        }
        Ok(())
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}
