//! Arithmetic of GF(2^8) with polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), in which 2 generates
//! all non-zero elements.
//!
//! Used for weights only (a few per call), never per byte of data, so simplicity matters more than
//! speed.

/// Polynomial without its highest term: the term added for a carry out of bit 7.
pub(crate) const REDUCTION: u8 = 0x1d;

/// Twice `a`.
pub(crate) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

/// The product.
pub(crate) const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

/// `2^exponent`: the weight of data column `exponent` in Q.
pub(crate) fn power_of_two(exponent: usize) -> u8 {
    POWERS[exponent % 255]
}

/// The inverse. Zero has none; the callers divide only by powers and by sums of two different
/// powers, which are not zero.
pub(crate) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "division by zero");
    INVERSES[usize::from(a)]
}

static POWERS: [u8; 255] = {
    let mut powers = [1; 255];
    let mut exponent = 1;
    while exponent < 255 {
        powers[exponent] = double(powers[exponent - 1]);
        exponent += 1;
    }
    powers
};

static INVERSES: [u8; 256] = {
    // 2^e and 2^(255 - e) are each other's inverses, because 2^255 = 1.
    let mut inverses = [0; 256];
    let mut exponent = 0;
    while exponent < 255 {
        inverses[POWERS[exponent] as usize] = POWERS[(255 - exponent) % 255];
        exponent += 1;
    }
    inverses
};

#[cfg(test)]
mod tests;
