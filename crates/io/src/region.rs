//! Memory that the processor can address with few translations: regions of whole 2 MiB pages, where
//! the system grants them.
//!
//! Accesses to the map, the table of pending blocks and the buffers are random. With 4 KiB pages
//! most of them miss the TLB as well as the data cache, and DMA must pin every small page of a
//! buffer.
//!
//! Invariants: a region is mapped as inaccessible first, then advised, then made accessible, in
//! this order. Under `mlockall` with future mappings an accessible mapping would be filled with
//! small pages before the advice. A system without huge pages provides small ones; only speed
//! depends on it. A table much smaller than a huge page uses small pages: clearing the rest of a
//! huge one would be wasted.

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Size and alignment of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Size of a small page, at least.
const SMALL_PAGE: usize = 4096;
/// Tables below this size use small pages: clearing the rest of a huge page takes longer than the
/// page faults.
const SMALL_BYTES_MAX: usize = HUGE_PAGE / 8;

/// Zeroed anonymous memory: 2 MiB pages, aligned to 2 MiB, or small pages.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a region owns its mapping; nothing in it is bound to a thread.
unsafe impl Send for Region {}
// SAFETY: shared access gives out the address only; a writer through it must have exclusive access
// to that part.
unsafe impl Sync for Region {}

impl Region {
    /// A region of at least `len` bytes; ends the process as any failed allocation does.
    pub(crate) fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(HUGE_PAGE);
        // SAFETY: a new private mapping at an address that the system chooses touches no other
        // memory.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len + HUGE_PAGE,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
        };
        let Some(base) = mapped.ok().and_then(|p| NonNull::new(p.cast::<u8>())) else {
            Self::fail(len)
        };
        let head = base.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: head < HUGE_PAGE, so head + len and head are inside the mapping of len +
        // HUGE_PAGE bytes.
        let (start, end) = unsafe { (base.add(head), base.add(head + len)) };
        // SAFETY: the two ends of our own fresh mapping, to which nothing refers. If the system
        // refuses, they stay reserved.
        unsafe {
            if head > 0 {
                let _ = rustix::mm::munmap(base.as_ptr().cast(), head);
            }
            if head < HUGE_PAGE {
                let _ = rustix::mm::munmap(end.as_ptr().cast(), HUGE_PAGE - head);
            }
        }
        // From here on the region unmaps itself.
        let region = Self { start, len };
        // SAFETY: exactly our own mapping; advice changes no content.
        let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        // SAFETY: exactly our own mapping, to which nothing refers yet.
        if unsafe {
            rustix::mm::mprotect(
                start.as_ptr().cast(),
                len,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .is_err()
        {
            Self::fail(len);
        }
        region
    }

    /// A region of small pages.
    fn small(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(SMALL_PAGE);
        // SAFETY: a new private mapping at an address that the system chooses touches no other
        // memory.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        match mapped.ok().and_then(|p| NonNull::new(p.cast::<u8>())) {
            Some(start) => Self { start, len },
            None => Self::fail(len),
        }
    }

    fn fail(len: usize) -> ! {
        match Layout::from_size_align(len, HUGE_PAGE) {
            Ok(layout) => handle_alloc_error(layout),
            Err(_) => panic!("a region of {len} bytes is beyond the address space"),
        }
    }

    /// Its address.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping, unmapped once; every user of its memory held the region.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A table of fixed length in huge pages. All of it is written at construction, so that later use
/// causes no page fault.
#[derive(Debug)]
pub struct Table<T: Copy> {
    region: Region,
    len: usize,
    items: std::marker::PhantomData<T>,
}

impl<T: Copy> Table<T> {
    /// A table of `len` copies of `value`.
    pub fn filled(len: usize, value: T) -> Self {
        const { assert!(align_of::<T>() <= SMALL_PAGE) };
        let bytes = len.checked_mul(size_of::<T>()).unwrap_or(usize::MAX / 2);
        let region = if bytes < SMALL_BYTES_MAX {
            Region::small(bytes)
        } else {
            Region::new(bytes)
        };
        let first = region.start().cast::<T>();
        for at in 0..len {
            // SAFETY: at < len, and the region has room for len items and a greater alignment than
            // theirs.
            unsafe { first.add(at).write(value) };
        }
        Self {
            region,
            len,
            items: std::marker::PhantomData,
        }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.region.len()
    }
}

impl<T: Copy> Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: all `len` items were written at construction and live as long as the region.
        unsafe { std::slice::from_raw_parts(self.region.start().cast::<T>().as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe {
            std::slice::from_raw_parts_mut(self.region.start().cast::<T>().as_ptr(), self.len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_filled_and_writable_to_its_end() {
        for (len, page) in [
            (1, SMALL_PAGE),
            (1000, SMALL_PAGE),
            (HUGE_PAGE / 32, HUGE_PAGE),
            (HUGE_PAGE / 16, HUGE_PAGE),
            (HUGE_PAGE / 16 + 1, HUGE_PAGE),
        ] {
            let mut table = Table::filled(len, [7u64, 9]);
            assert_eq!(table.as_ptr() as usize % page, 0);
            assert!(table.iter().all(|item| *item == [7, 9]) && table.len() == len);
            table[len - 1] = [1, 2];
            assert_eq!(table[len - 1], [1, 2]);
            assert_eq!(table.bytes(), (len * 16).next_multiple_of(page));
        }
    }

    #[test]
    fn regions_start_as_zeroes() {
        let region = Region::new(HUGE_PAGE + 1);
        assert_eq!(region.len(), 2 * HUGE_PAGE);
        // SAFETY: the region is that long and there are no writers.
        let bytes = unsafe { std::slice::from_raw_parts(region.start().as_ptr(), region.len()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
