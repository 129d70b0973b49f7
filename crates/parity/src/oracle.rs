//! Definition of the code, byte by byte. Slow on purpose; tests compare every kernel with it.

use crate::gf::{multiply, power_of_two};

/// P: the sum of the data columns.
///
/// # Panics
/// If a column is shorter than `p`.
pub fn encode_p(data: &[&[u8]], p: &mut [u8]) {
    for (at, out) in p.iter_mut().enumerate() {
        *out = data.iter().fold(0, |sum, column| sum ^ column[at]);
    }
}

/// P and Q: the sum, and the sum weighted with the powers of two.
///
/// # Panics
/// If a column is shorter than `p` or `q`.
pub fn encode_pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    encode_p(data, p);
    for (at, out) in q.iter_mut().enumerate() {
        *out = data.iter().enumerate().fold(0, |sum, (index, column)| {
            sum ^ multiply(power_of_two(index), column[at])
        });
    }
}

/// `out = sum of weight * column`.
///
/// # Panics
/// If a column is shorter than `out`.
pub fn weighted_sum(columns: &[&[u8]], weights: &[u8], out: &mut [u8]) {
    for (at, out) in out.iter_mut().enumerate() {
        *out = columns
            .iter()
            .zip(weights)
            .fold(0, |sum, (column, weight)| {
                sum ^ multiply(*weight, column[at])
            });
    }
}
