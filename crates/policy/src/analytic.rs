//! Write amplification of cleaning under uniform random single-block writes, in closed form.
//!
//! `utilisation` is live blocks / payload slots of all victim candidates (open
//! and reserve segments do not count). The result is (user blocks + moved blocks) / user blocks.

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

/// First-in-first-out cleaning, which is also the limit of greedy cleaning for large segments.
///
/// With `a = 1 / utilisation`: `a / (a + W(-a exp(-a)))`, W being the principal branch of Lambert's
/// function (Desnoyers, SYSTOR 2012). 1 for a utilisation of 0 or less, infinite from 1 on, NaN for
/// NaN.
pub fn fifo_waf(utilisation: f64) -> f64 {
    if let Some(bound) = outside(utilisation) {
        return bound;
    }
    let a = utilisation.recip();
    a / (a + lambert_w(-a * (-a).exp()))
}

/// Greedy cleaning with `blocks_per_segment` blocks in a segment.
///
/// A segment sealed with `n` live blocks loses them one by one, at a rate in proportion to what it
/// has left, until it is a victim with `x` left. Flux balance gives
/// `(n - x) / (H(n) - H(x)) = utilisation * n`, with H the harmonic numbers continued to real
/// arguments; the result is `n / (n - x)`. Same limits as [`fifo_waf`]; NaN if there are no blocks
/// in a segment.
pub fn greedy_waf(utilisation: f64, blocks_per_segment: u32) -> f64 {
    if blocks_per_segment == 0 {
        return f64::NAN;
    }
    if let Some(bound) = outside(utilisation) {
        return bound;
    }
    let n = f64::from(blocks_per_segment);
    let harmonic_n = harmonic(n);
    // Mean live blocks over a segment's lifetime, if victims have x left: rises with x.
    let mean_live = |x: f64| (n - x) / (harmonic_n - harmonic(x));
    let (mut low, mut high) = (0.0, n);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        // At the top both differences vanish; the comparison with NaN then goes down, where the
        // root is.
        if mean_live(middle) < utilisation * n {
            low = middle
        } else {
            high = middle
        }
    }
    n / (n - low)
}

fn outside(utilisation: f64) -> Option<f64> {
    match utilisation {
        u if u.is_nan() => Some(f64::NAN),
        u if u <= 0.0 => Some(1.0),
        u if u >= 1.0 => Some(f64::INFINITY),
        _ => None,
    }
}

/// The harmonic number of a real argument, 0 or more.
fn harmonic(x: f64) -> f64 {
    // H(x) = H(x + m) - 1/(x+1) - ... - 1/(x+m), then the asymptotic series, which at 16 is exact
    // to the last digits.
    let (mut at, mut below) = (x, 0.0);
    while at < 16.0 {
        at += 1.0;
        below += at.recip();
    }
    let square = (at * at).recip();
    at.ln() + EULER + 0.5 / at
        - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0))
        - below
}

/// The principal branch of Lambert's function for arguments from -1/e to 0: the `w >= -1` with
/// `w exp(w) = z`.
fn lambert_w(z: f64) -> f64 {
    // w exp(w) rises on [-1, 0]; halving the interval needs no care near -1/e, where the slope is
    // 0.
    let (mut low, mut high) = (-1.0f64, 0.0f64);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        // No number is left between the two.
        let is_last = middle == low || middle == high;
        if middle * middle.exp() < z {
            low = middle
        } else {
            high = middle
        }
        if is_last {
            break;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests;
