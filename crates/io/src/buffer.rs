//! Buffers aligned to 4096 bytes, recycled through a pool, and reference-counted slices of them.
//!
//! Life of a buffer: [`BufPool::get`] gives a unique, writable [`Buf`]; [`Buf::freeze`] turns it into a shared, read-only
//! [`Payload`] that can be cut into slices; the last owner to drop it returns the memory to the pool it came from.
//!
//! Invariants: memory is zeroed when first allocated, so there is no uninitialised byte anywhere; a recycled buffer holds
//! stale bytes of the same process, and whoever fills it must fill all of it before it leaves the process. The pool keeps at
//! most `keep_bytes` of idle memory. A pool that may keep several huge pages cuts its buffers out of them; the page goes back to
//! the system with the last of its pieces.

use crate::region::{HUGE_PAGE, Region};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Alignment and granule of every buffer: what O_DIRECT needs on any device with sectors up to 4 KiB.
const ALIGN: usize = 4096;
/// Size classes are powers of two from 4 KiB to 64 MiB.
const CLASSES: usize = 15;
/// Bytes of the payloads of equal bytes.
pub const CONSTANT_BYTES: usize = 1 << 20;
/// A pool that keeps at least so many huge pages uses them.
const HUGE_PAGES_WORTH_IT: usize = 8;

struct Memory {
    ptr: NonNull<u8>,
    class: usize,
    /// What it was cut out of; `None` if it has an allocation of its own.
    region: Option<Arc<Region>>,
}

// SAFETY: `Memory` is the only owner of its allocation or piece of a region; moving it between threads moves the ownership.
unsafe impl Send for Memory {}

impl Memory {
    fn layout(class: usize) -> Layout {
        match Layout::from_size_align(ALIGN << class, ALIGN) {
            Ok(layout) => layout,
            Err(_) => unreachable!("classes are bounded by CLASSES"),
        }
    }

    fn new(class: usize) -> Self {
        let layout = Self::layout(class);
        // SAFETY: the layout has a size of at least 4096.
        let raw = unsafe { alloc_zeroed(layout) };
        match NonNull::new(raw) {
            Some(ptr) => Self { ptr, class, region: None },
            None => handle_alloc_error(layout),
        }
    }

    /// Cuts a region into pieces of one class.
    fn cut(class: usize) -> impl Iterator<Item = Self> {
        let piece = ALIGN << class;
        let region = Arc::new(Region::new(piece));
        (0..region.len() / piece).map(move |i| {
            // SAFETY: the piece lies inside the region, and no other piece overlaps it.
            let ptr = unsafe { region.start().add(i * piece) };
            Self { ptr, class, region: Some(region.clone()) }
        })
    }

    fn capacity(&self) -> usize {
        ALIGN << self.class
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.region.is_none() {
            // SAFETY: allocated in `new` with the layout of the same class, and dropped once.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.class)) }
        }
    }
}

struct Shelf {
    classes: [Mutex<Vec<Memory>>; CLASSES],
    idle_bytes: AtomicUsize,
    keep_bytes: usize,
}

/// A pool of aligned buffers; clones share the same memory.
#[derive(Clone)]
pub struct BufPool(Arc<Shelf>);

impl BufPool {
    /// A pool that keeps at most `keep_bytes` of idle memory.
    pub fn new(keep_bytes: usize) -> Self {
        Self(Arc::new(Shelf { classes: std::array::from_fn(|_| Mutex::new(Vec::new())), idle_bytes: AtomicUsize::new(0), keep_bytes }))
    }

    /// A buffer of `len` bytes. Contents are unspecified (zero or stale bytes of this process).
    ///
    /// # Panics
    /// If `len` is beyond 64 MiB: every caller has a smaller bound of its own.
    pub fn get(&self, len: usize) -> Buf {
        let class = len.div_ceil(ALIGN).max(1).next_power_of_two().trailing_zeros() as usize;
        assert!(class < CLASSES, "a buffer of {len} bytes is beyond the largest class");
        let idle = self.0.classes[class].lock().unwrap_or_else(|e| e.into_inner()).pop();
        let memory = match idle {
            Some(memory) => {
                self.0.idle_bytes.fetch_sub(memory.capacity(), Ordering::Relaxed);
                memory
            }
            None if self.0.keep_bytes >= HUGE_PAGES_WORTH_IT * HUGE_PAGE => self.cut(class),
            None => Memory::new(class),
        };
        Buf { memory: Some(memory), len, shelf: Some(self.0.clone()) }
    }

    /// The first piece of a new region; the others are put on the shelf.
    fn cut(&self, class: usize) -> Memory {
        let mut pieces = Memory::cut(class);
        let Some(first) = pieces.next() else { unreachable!("a region has at least one piece") };
        let mut shelf = self.0.classes[class].lock().unwrap_or_else(|e| e.into_inner());
        for piece in pieces {
            self.0.idle_bytes.fetch_add(piece.capacity(), Ordering::Relaxed);
            shelf.push(piece);
        }
        first
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(&self, len: usize) -> Buf {
        let mut buf = self.get(len);
        buf.fill(0);
        buf
    }

    /// Clones of this pool and buffers of it that are alive: for leak checks.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Bytes that lie idle in the pool.
    pub fn idle_bytes(&self) -> usize {
        self.0.idle_bytes.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for BufPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufPool({} bytes idle)", self.idle_bytes())
    }
}

/// A unique, writable buffer whose address is a multiple of 4096.
pub struct Buf {
    memory: Option<Memory>,
    len: usize,
    shelf: Option<Arc<Shelf>>,
}

// SAFETY: shared access to a `Buf` only reads its bytes; writing needs `&mut`.
unsafe impl Sync for Buf {}

impl Buf {
    /// A buffer outside any pool: `len` zero bytes.
    pub fn unpooled(len: usize) -> Self {
        let class = len.div_ceil(ALIGN).max(1).next_power_of_two().trailing_zeros() as usize;
        assert!(class < CLASSES, "a buffer of {len} bytes is beyond the largest class");
        Self { memory: Some(Memory::new(class)), len, shelf: None }
    }

    /// Shortens the buffer; the rest stays allocated.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes it shared and read-only.
    pub fn freeze(self) -> Payload {
        let len = self.len;
        Payload { buf: Arc::new(self), start: 0, len: len as u32 }
    }

    fn memory(&self) -> &Memory {
        match &self.memory {
            Some(memory) => memory,
            None => unreachable!("the memory is taken only in drop"),
        }
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation has at least `len` initialised bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.memory().ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.memory().ptr.as_ptr(), self.len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let (Some(memory), Some(shelf)) = (self.memory.take(), self.shelf.take()) else { return };
        let bytes = memory.capacity();
        if shelf.idle_bytes.load(Ordering::Relaxed) + bytes > shelf.keep_bytes {
            return;
        }
        shelf.idle_bytes.fetch_add(bytes, Ordering::Relaxed);
        let class = memory.class;
        shelf.classes[class].lock().unwrap_or_else(|e| e.into_inner()).push(memory);
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

/// A shared, read-only slice of a [`Buf`]. Cloning and slicing copy no bytes.
#[derive(Clone)]
pub struct Payload {
    buf: Arc<Buf>,
    start: u32,
    len: u32,
}

impl Payload {
    /// [`CONSTANT_BYTES`] zeroes: one buffer for the whole process.
    pub fn zeroes() -> Self {
        static ZEROES: OnceLock<Payload> = OnceLock::new();
        ZEROES.get_or_init(|| Self::constant(0)).clone()
    }

    /// [`CONSTANT_BYTES`] bytes of 0xFF: one buffer for the whole process.
    pub fn ones() -> Self {
        static ONES: OnceLock<Payload> = OnceLock::new();
        ONES.get_or_init(|| Self::constant(0xff)).clone()
    }

    /// Written also if it is zero: a later read causes no page fault.
    fn constant(byte: u8) -> Self {
        let mut buf = Buf::unpooled(CONSTANT_BYTES);
        buf.fill(byte);
        buf.freeze()
    }

    /// A payload with a copy of `bytes`, outside any pool.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Buf::unpooled(bytes.len());
        buf.copy_from_slice(bytes);
        buf.freeze()
    }

    /// The part `start .. start + len` of this payload.
    ///
    /// # Panics
    /// If the range is not inside.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len as usize, "slice {start}+{len} of {}", self.len);
        Self { buf: self.buf.clone(), start: self.start + start as u32, len: len as u32 }
    }

    /// As [`Payload::slice`], without a further owner: costs no access to the shared count.
    ///
    /// # Panics
    /// If the range is not inside.
    #[must_use]
    pub fn into_slice(self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len as usize, "slice {start}+{len} of {}", self.len);
        Self { start: self.start + start as u32, len: len as u32, buf: self.buf }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.start as usize..(self.start + self.len) as usize]
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of memory that it keeps from being used again: those of the whole buffer, however small the slice.
    pub fn held_bytes(&self) -> usize {
        self.buf.memory().capacity()
    }

    /// True if both are slices of one buffer.
    pub fn shares_buffer(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buf, &other.buf)
    }

    /// True if there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Deref for Payload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_and_the_pool_keeps_its_bound() {
        let pool = BufPool::new(3 * 4096);
        let first = pool.get(4096).as_ptr();
        assert_eq!(pool.get(100).as_ptr(), first, "same class, same memory");
        assert_eq!(first as usize % 4096, 0);
        drop([pool.get(4096), pool.get(4096), pool.get(8192)]);
        assert!(pool.idle_bytes() <= 3 * 4096);
    }

    #[test]
    fn a_large_pool_cuts_its_buffers_out_of_huge_pages() {
        let pool = BufPool::new(HUGE_PAGES_WORTH_IT * HUGE_PAGE);
        let mut first = pool.get(8192);
        assert_eq!(pool.idle_bytes(), HUGE_PAGE - 8192, "the rest of the page waits for the next");
        first.fill(3);
        let second = pool.get(8192);
        assert_eq!((first.as_ptr() as usize).abs_diff(second.as_ptr() as usize) % 8192, 0);
        assert!(second.iter().all(|byte| *byte == 0), "pieces do not overlap");
        let large = pool.get(3 * HUGE_PAGE);
        assert_eq!(large.as_ptr() as usize % HUGE_PAGE, 0);
        drop(pool);
        assert!(first.iter().all(|byte| *byte == 3), "a buffer outlives its pool's handle");
    }

    #[test]
    fn slices_share_the_buffer_until_the_last_one_goes() {
        let pool = BufPool::new(1 << 20);
        let mut buf = pool.get(8192);
        buf[..4096].fill(1);
        buf[4096..].fill(2);
        let whole = buf.freeze();
        let tail = whole.slice(4096, 4096).slice(4, 8);
        drop(whole);
        assert_eq!(pool.idle_bytes(), 0);
        assert_eq!(tail.bytes(), [2; 8]);
        drop(tail);
        assert_eq!(pool.idle_bytes(), 8192);
    }
}
