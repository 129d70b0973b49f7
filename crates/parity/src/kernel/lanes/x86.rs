//! Lanes of x86-64 vector registers.
//!
//! Without GFNI a product with a constant is two look-ups in 16-byte tables (one for each half of a
//! byte) by byte shuffle; with GFNI it is one affine transformation: multiplication by a constant
//! is linear over the bits of a byte, so it works for any polynomial, unlike the instruction set's
//! own multiplication.

use super::Lanes;
use crate::gf;
use std::arch::x86_64::*;

/// For every weight: its products with 0..16, then its products with 0x00, 0x10 .. 0xf0.
static HALF_BYTE_PRODUCTS: [[u8; 32]; 256] = half_byte_products();
/// For every weight: multiplication by it as a bit matrix in the form of the affine instruction.
static MATRICES: [u64; 256] = matrices();

const fn half_byte_products() -> [[u8; 32]; 256] {
    let mut tables = [[0; 32]; 256];
    let mut weight = 0;
    while weight < 256 {
        let mut half = 0;
        while half < 16 {
            tables[weight][half] = gf::multiply(weight as u8, half as u8);
            tables[weight][16 + half] = gf::multiply(weight as u8, (half << 4) as u8);
            half += 1;
        }
        weight += 1;
    }
    tables
}

const fn matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut weight = 0;
    while weight < 256 {
        // Bit `input` of the row of `output` is set if that input bit contributes to that output
        // bit; the row of output bit i is byte 7 - i.
        let mut input = 0;
        while input < 8 {
            let product = gf::multiply(weight as u8, 1 << input);
            let mut output = 0;
            while output < 8 {
                matrices[weight] |= ((product >> output & 1) as u64) << (8 * (7 - output) + input);
                output += 1;
            }
            input += 1;
        }
        weight += 1;
    }
    matrices
}

/// 16 bytes, SSSE3.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Ssse3(__m128i);

// SAFETY of all unsafe blocks in this file: the trait's contract: the processor has the
// instructions of the type and pointers are valid for `BYTES` bytes. Loads and stores are the
// unaligned kinds. Tables have the size that is read.
impl Lanes for Ssse3 {
    const BYTES: usize = 16;
    type Factor = (__m128i, __m128i);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_setzero_si128() })
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: see above.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let carry = _mm_and_si128(
                _mm_cmpgt_epi8(_mm_setzero_si128(), self.0),
                _mm_set1_epi8(gf::REDUCTION as i8),
            );
            Self(_mm_xor_si128(_mm_add_epi8(self.0, self.0), carry))
        }
    }
    #[inline(always)]
    unsafe fn factor(weight: u8) -> Self::Factor {
        let table = HALF_BYTE_PRODUCTS[usize::from(weight)].as_ptr();
        // SAFETY: see above; the table has 32 bytes.
        unsafe {
            (
                _mm_loadu_si128(table.cast()),
                _mm_loadu_si128(table.add(16).cast()),
            )
        }
    }
    #[inline(always)]
    unsafe fn scale(self, (low, high): Self::Factor) -> Self {
        // SAFETY: see above.
        unsafe {
            let mask = _mm_set1_epi8(0x0f);
            let low = _mm_shuffle_epi8(low, _mm_and_si128(self.0, mask));
            let high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi16::<4>(self.0), mask));
            Self(_mm_xor_si128(low, high))
        }
    }
}

/// 32 bytes, AVX2.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Avx2(__m256i);

impl Lanes for Avx2 {
    const BYTES: usize = 32;
    type Factor = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_setzero_si256() })
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let carry = _mm256_and_si256(
                _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0),
                _mm256_set1_epi8(gf::REDUCTION as i8),
            );
            Self(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), carry))
        }
    }
    #[inline(always)]
    unsafe fn factor(weight: u8) -> Self::Factor {
        let table = HALF_BYTE_PRODUCTS[usize::from(weight)].as_ptr();
        // SAFETY: see above; the table has 32 bytes.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16).cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn scale(self, (low, high): Self::Factor) -> Self {
        // SAFETY: see above.
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, mask));
            let high =
                _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), mask));
            Self(_mm256_xor_si256(low, high))
        }
    }
}

/// 64 bytes, AVX-512 with GFNI.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Avx512Gfni(__m512i);

impl Lanes for Avx512Gfni {
    const BYTES: usize = 64;
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_setzero_si512() })
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: see above.
        unsafe { self.scale(Self::factor(2)) }
    }
    #[inline(always)]
    unsafe fn factor(weight: u8) -> Self::Factor {
        // SAFETY: see above.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(weight)] as i64) }
    }
    #[inline(always)]
    unsafe fn scale(self, factor: Self::Factor) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}
