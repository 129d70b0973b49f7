//! P and P+Q parity over any number of equal columns, and reconstruction of lost columns.
//!
//! **The code.** Columns are byte strings of one length; byte `j` of every column makes one code
//! word. With data columns `d_0 .. d_{k-1}` over GF(2^8), polynomial 0x11d, generator 2 (the usual
//! RAID-6 field):
//! ```text
//! P = d_0 + d_1 + ... + d_{k-1}
//! Q = 2^0 d_0 + 2^1 d_1 + ... + 2^{k-1} d_{k-1}
//! ```
//! Any column, lost or not, is therefore a weighted sum of any `k` others; [`reconstruct`] finds
//! the weights (module `rebuild`) and every case is the same kernel.
//!
//! **The kernels.** One algorithm ([`kernel`]) over four lane types: AVX-512 with GFNI, AVX2, SSSE3
//! and plain 64-bit words. It reads all data columns once, a few hundred bytes of each at a time,
//! with P and Q in registers. Parity thus costs one read of the data and one write of P and Q.
//! [`Kernel::best`] picks the lanes by the processor's features. [`oracle`] is the slow definition
//! that all of them are tested against.

mod gf;
pub mod kernel;
pub mod oracle;
mod rebuild;

pub use kernel::Kernel;
pub use rebuild::{Column, MAX_COLUMNS, TooManyErasures, reconstruct};

/// Redundancy columns that follow the data columns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Parity {
    /// One XOR column.
    P,
    /// P, then Q.
    PQ,
}

impl Parity {
    /// Number of redundancy columns, which is also the number of lost columns that can be
    /// reconstructed.
    pub const fn columns(self) -> usize {
        match self {
            Self::P => 1,
            Self::PQ => 2,
        }
    }
}

/// `dst = dst xor src`.
///
/// # Panics
/// If the lengths differ.
pub fn xor_into(dst: &mut [u8], src: &[u8]) {
    Kernel::best().xor_into(dst, src);
}

/// Computes P of the data columns. No columns give zeroes.
///
/// # Panics
/// If a column's length differs from that of `p`.
pub fn encode_p(data: &[&[u8]], p: &mut [u8]) {
    Kernel::best().encode_p(data, p);
}

/// Computes P and Q of the data columns in one pass. No columns give zeroes.
///
/// # Panics
/// If a column's length differs from those of `p` and `q`, or if there are more than 255 columns
/// (the field has no more weights).
pub fn encode_pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    Kernel::best().encode_pq(data, p, q);
}
