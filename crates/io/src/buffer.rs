//! Buffers aligned to 4096 bytes, recycled through a pool, and reference-counted slices of them.
//!
//! A buffer's cycle: [`BufPool::get`] returns a unique, writable [`Buf`]. [`Buf::freeze`] turns it
//! into a shared, read-only [`Payload`] that can be sliced. Dropping the last owner returns the
//! memory to its pool.
//!
//! Invariants:
//! 1. Memory is zeroed when first allocated, so there is no uninitialised byte anywhere.
//! 2. A recycled buffer holds stale bytes of the same process. Its user must fill all of it before
//!    it leaves the process.
//! 3. A pool keeps at most `keep_bytes` of idle memory.
//!
//! A pool that may keep several huge pages cuts its buffers out of them (`slabs.rs`). `keep_bytes`
//! then bounds only the wholly idle pages; idle pieces of a page in use are kept and reused. So
//! each size class holds at most the memory of its peak use, in whatever order buffers return. When
//! nothing is in use, it holds `keep_bytes` and one page for each size.

use crate::region::HUGE_PAGE;
use crate::slabs::{Piece, Slabs};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Alignment and granule of every buffer: what O_DIRECT needs on any device with sectors up to 4
/// KiB.
const ALIGN: usize = 4096;
/// Size classes are powers of two from 4 KiB to 64 MiB.
const CLASSES: usize = 15;
/// Length of the constant payloads.
pub const CONSTANT_BYTES: usize = 1 << 20;
/// Huge pages are used by a pool that may keep at least this number of them.
const HUGE_PAGES_WORTH_IT: usize = 8;

/// A separate allocation.
struct Block {
    ptr: NonNull<u8>,
    class: usize,
}

// SAFETY: `Block` is the only owner of its allocation; moving it between threads moves the
// ownership.
unsafe impl Send for Block {}

impl Block {
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
            Some(ptr) => Self { ptr, class },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the layout of the same class, and dropped once.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.class)) }
    }
}

/// Memory of a buffer in use.
enum Memory {
    Block(Block),
    /// Piece of the shelf that the buffer holds.
    Piece(Piece),
}

// SAFETY: a piece is in use by one buffer only, which holds the shelf that owns it; a piece is not
// bound to a thread.
unsafe impl Send for Memory {}

/// Idle memory of one size class: blocks or slabs, never both.
struct Idle {
    blocks: Vec<Block>,
    slabs: Slabs,
}

struct Shelf {
    classes: [Mutex<Idle>; CLASSES],
    /// Bytes of idle blocks and of wholly idle slabs: the memory that could be returned to the
    /// system.
    spare_bytes: AtomicUsize,
    keep_bytes: usize,
}

impl Shelf {
    fn class(&self, class: usize) -> MutexGuard<'_, Idle> {
        self.classes[class]
            .lock()
            .unwrap_or_else(|e| e.into_inner())
    }

    fn get(&self, class: usize) -> Memory {
        let mut idle = self.class(class);
        if self.keep_bytes < HUGE_PAGES_WORTH_IT * HUGE_PAGE {
            let block = idle.blocks.pop();
            drop(idle);
            return Memory::Block(match block {
                Some(block) => {
                    self.spare_bytes
                        .fetch_sub(ALIGN << class, Ordering::Relaxed);
                    block
                }
                None => Block::new(class),
            });
        }
        let (piece, spare) = match idle.slabs.take() {
            Some(taken) => taken,
            None => (idle.slabs.cut(), 0),
        };
        if spare > 0 {
            self.spare_bytes.fetch_sub(spare, Ordering::Relaxed);
        }
        Memory::Piece(piece)
    }

    fn put(&self, class: usize, memory: Memory) {
        let has_room =
            |bytes: usize| self.spare_bytes.load(Ordering::Relaxed) + bytes <= self.keep_bytes;
        match memory {
            Memory::Block(block) => {
                let bytes = ALIGN << class;
                if has_room(bytes) {
                    self.spare_bytes.fetch_add(bytes, Ordering::Relaxed);
                    self.class(class).blocks.push(block);
                }
            }
            Memory::Piece(piece) => {
                let mut idle = self.class(class);
                let spare = idle.slabs.give_back(&piece);
                if spare == 0 {
                    return;
                }
                if has_room(spare) || idle.slabs.is_last() {
                    self.spare_bytes.fetch_add(spare, Ordering::Relaxed);
                } else {
                    let region = idle.slabs.remove(piece.slab);
                    // Unmapping is slow, so it happens without the lock.
                    drop(idle);
                    drop(region);
                }
            }
        }
    }
}

/// Size class of a buffer.
fn class_of(len: usize) -> usize {
    let class = len
        .div_ceil(ALIGN)
        .max(1)
        .next_power_of_two()
        .trailing_zeros() as usize;
    assert!(
        class < CLASSES,
        "a buffer of {len} bytes is beyond the largest class"
    );
    class
}

/// A pool of aligned buffers; clones share the same memory.
#[derive(Clone)]
pub struct BufPool(Arc<Shelf>);

impl BufPool {
    /// A pool that keeps at most `keep_bytes` of idle memory. With huge pages it also keeps the
    /// idle pieces of pages in use, and one page of each size.
    pub fn new(keep_bytes: usize) -> Self {
        let idle = |class: usize| {
            Mutex::new(Idle {
                blocks: Vec::new(),
                slabs: Slabs::new(ALIGN << class),
            })
        };
        Self(Arc::new(Shelf {
            classes: std::array::from_fn(idle),
            spare_bytes: AtomicUsize::new(0),
            keep_bytes,
        }))
    }

    /// A buffer of `len` bytes. Contents are unspecified (zero or stale bytes of this process).
    ///
    /// # Panics
    /// If `len` exceeds 64 MiB: every caller has a smaller limit of its own.
    pub fn get(&self, len: usize) -> Buf {
        let class = class_of(len);
        Buf {
            memory: Some(self.0.get(class)),
            class: class as u8,
            len,
            shelf: Some(self.0.clone()),
        }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(&self, len: usize) -> Buf {
        let mut buf = self.get(len);
        buf.fill(0);
        buf
    }

    /// Number of live clones of this pool and live buffers of it: for leak checks.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Idle bytes in the pool.
    pub fn idle_bytes(&self) -> usize {
        let bytes = |class: usize| {
            let idle = self.0.class(class);
            idle.blocks.len() * (ALIGN << class) + idle.slabs.idle_bytes()
        };
        (0..CLASSES).map(bytes).sum()
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
    class: u8,
    len: usize,
    shelf: Option<Arc<Shelf>>,
}

// SAFETY: shared access to a `Buf` only reads its bytes; writing needs `&mut`.
unsafe impl Sync for Buf {}

impl Buf {
    /// A buffer outside any pool: `len` zero bytes.
    pub fn unpooled(len: usize) -> Self {
        let class = class_of(len);
        Self {
            memory: Some(Memory::Block(Block::new(class))),
            class: class as u8,
            len,
            shelf: None,
        }
    }

    /// Shortens the buffer; the rest stays allocated.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes the buffer shared and read-only.
    pub fn freeze(self) -> Payload {
        let len = self.len;
        Payload {
            buf: Arc::new(self),
            start: 0,
            len: len as u32,
        }
    }

    fn capacity(&self) -> usize {
        ALIGN << self.class
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        match &self.memory {
            Some(Memory::Block(block)) => block.ptr.as_ptr(),
            Some(Memory::Piece(piece)) => piece.ptr.as_ptr(),
            None => unreachable!("the memory is taken only in drop"),
        }
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation has at least `len` initialised bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // Without a shelf the memory goes back to the system.
        if let (Some(memory), Some(shelf)) = (self.memory.take(), self.shelf.take()) {
            shelf.put(usize::from(self.class), memory);
        }
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

    /// The buffer is written even if `byte` is zero: a later read then causes no page fault.
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
        assert!(
            start + len <= self.len as usize,
            "slice {start}+{len} of {}",
            self.len
        );
        Self {
            buf: self.buf.clone(),
            start: self.start + start as u32,
            len: len as u32,
        }
    }

    /// As [`Payload::slice`], but consumes `self`: no access to the shared count.
    ///
    /// # Panics
    /// If the range is not inside.
    #[must_use]
    pub fn into_slice(self, start: usize, len: usize) -> Self {
        assert!(
            start + len <= self.len as usize,
            "slice {start}+{len} of {}",
            self.len
        );
        Self {
            start: self.start + start as u32,
            len: len as u32,
            buf: self.buf,
        }
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

    /// Bytes of memory that it keeps in use: those of the whole buffer, however small the slice.
    pub fn held_bytes(&self) -> usize {
        self.buf.capacity()
    }

    /// True if both are slices of one buffer.
    pub fn shares_buffer(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buf, &other.buf)
    }

    /// True if the payload is empty.
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
        assert_eq!(
            pool.idle_bytes(),
            HUGE_PAGE - 8192,
            "the rest of the page waits for the next"
        );
        first.fill(3);
        let second = pool.get(8192);
        assert_eq!(
            (first.as_ptr() as usize).abs_diff(second.as_ptr() as usize) % 8192,
            0
        );
        assert!(
            second.iter().all(|byte| *byte == 0),
            "pieces do not overlap"
        );
        let large = pool.get(3 * HUGE_PAGE);
        assert_eq!(large.as_ptr() as usize % HUGE_PAGE, 0);
        drop(pool);
        assert!(
            first.iter().all(|byte| *byte == 3),
            "a buffer outlives its pool's handle"
        );
    }

    fn bytes_of_slabs(pool: &BufPool) -> usize {
        (0..CLASSES)
            .map(|class| pool.0.class(class).slabs.bytes())
            .sum()
    }

    /// Random frees must not fragment huge pages: the process must not hold several times the
    /// memory of the largest burst.
    #[test]
    fn bursts_freed_in_any_order_take_the_memory_of_the_largest() {
        const BURST: usize = 16 * HUGE_PAGE;
        const KEEP: usize = HUGE_PAGES_WORTH_IT * HUGE_PAGE;
        let pool = BufPool::new(KEEP);
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for _ in 0..12 {
            let mut burst: Vec<Buf> = (0..BURST / 4096).map(|_| pool.get(4096)).collect();
            assert!(
                bytes_of_slabs(&pool) <= BURST + KEEP + HUGE_PAGE,
                "{} bytes for a burst of {BURST}",
                bytes_of_slabs(&pool)
            );
            while burst.len() > 100 {
                burst.swap_remove(random(burst.len()));
            }
            let large: Vec<Buf> = (0..BURST / 65536).map(|_| pool.get(65536)).collect();
            assert!(bytes_of_slabs(&pool) <= 2 * BURST, "the peak of each size");
            drop((burst, large));
            assert!(
                bytes_of_slabs(&pool) <= KEEP + 2 * HUGE_PAGE,
                "{} bytes are kept",
                bytes_of_slabs(&pool)
            );
            assert_eq!(bytes_of_slabs(&pool), pool.idle_bytes());
        }
    }

    /// If one size may use the whole limit, the only buffer of another size would need a new page
    /// each time.
    #[test]
    fn each_size_keeps_a_page_at_hand() {
        let pool = BufPool::new(HUGE_PAGES_WORTH_IT * HUGE_PAGE);
        drop(
            (0..HUGE_PAGES_WORTH_IT * HUGE_PAGE / 65536)
                .map(|_| pool.get(65536))
                .collect::<Vec<_>>(),
        );
        let mut first = pool.get(4096);
        first.fill(7);
        drop(first);
        assert!(
            pool.get(4096).iter().all(|byte| *byte == 7),
            "the same piece again"
        );
        drop(pool.get(2 * HUGE_PAGE));
        assert_eq!(
            bytes_of_slabs(&pool),
            (HUGE_PAGES_WORTH_IT + 1) * HUGE_PAGE,
            "one piece alone is worth no exception"
        );
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
