//! Lane types: adjacent bytes, each an element of the field.
//!
//! The methods are `#[inline(always)]` and carry no target feature themselves: they take the
//! features of the function that they are inlined into (see the `run_*` functions one module up).
//! Calling them anywhere else is therefore unsafe.

use crate::gf;

/// Adjacent bytes in a register.
///
/// # Safety of the methods
/// The processor has the instructions of the type, and pointers are valid for `BYTES` bytes (of any
/// alignment).
pub(super) trait Lanes: Copy {
    /// Bytes of a lane group.
    const BYTES: usize;
    /// A weight prepared for [`Lanes::scale`].
    type Factor: Copy;

    /// All bytes zero.
    unsafe fn zero() -> Self;
    /// Loads from memory.
    unsafe fn load(from: *const u8) -> Self;
    /// Stores to memory.
    unsafe fn store(self, to: *mut u8);
    /// Sum (and difference) in the field.
    unsafe fn add(self, other: Self) -> Self;
    /// Twice every byte.
    unsafe fn double(self) -> Self;
    /// Prepares a weight.
    unsafe fn factor(weight: u8) -> Self::Factor;
    /// Every byte times the weight.
    unsafe fn scale(self, factor: Self::Factor) -> Self;
}

/// A single byte, for the rest at the end of a column.
#[derive(Clone, Copy)]
pub(super) struct Byte(u8);

impl Lanes for Byte {
    const BYTES: usize = 1;
    type Factor = u8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self(0)
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for one byte.
        Self(unsafe { from.read() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for one byte.
        unsafe { to.write(self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        Self(gf::double(self.0))
    }
    #[inline(always)]
    unsafe fn factor(weight: u8) -> u8 {
        weight
    }
    #[inline(always)]
    unsafe fn scale(self, factor: u8) -> Self {
        Self(gf::multiply(self.0, factor))
    }
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

#[inline(always)]
fn double_word(word: u64) -> u64 {
    // A product with a byte constant stays inside each byte because the other factor has at most
    // one bit per byte.
    ((word & !(LOW_BITS << 7)) << 1) ^ (((word >> 7) & LOW_BITS) * gf::REDUCTION as u64)
}

/// Eight bytes in a general register: works everywhere.
impl Lanes for u64 {
    const BYTES: usize = 8;
    type Factor = u8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for eight bytes; the read requires no alignment.
        unsafe { from.cast::<u64>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for eight bytes; the write requires no alignment.
        unsafe { to.cast::<u64>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self ^ other
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        double_word(self)
    }
    #[inline(always)]
    unsafe fn factor(weight: u8) -> u8 {
        weight
    }
    #[inline(always)]
    unsafe fn scale(self, factor: u8) -> Self {
        // All eight bits always, by masks: without branches the compiler can put several words into
        // one vector register.
        let (mut power, mut product) = (self, 0);
        for bit in 0..8 {
            product ^= power & 0u64.wrapping_sub(u64::from(factor >> bit & 1));
            power = double_word(power);
        }
        product
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86;
