//! Redundancy of one row, computed in the plainest way from the format document. It shares nothing
//! with the parity crate, so that a check of a pool also checks the code that wrote it.
//!
//! Columns `0..k` are data; then, by code: copies of them, P = their XOR, Q = the sum of
//! `2^c * D_c` in GF(2^8), polynomial 0x11d.

use windrow_geometry::{Code, Shape};

/// `a * b` in the field.
const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

/// `2^n`.
fn power(n: usize) -> u8 {
    (0..n).fold(1, |p, _| multiply(p, 2))
}

/// `1 / a`, as `a^254`.
fn inverse(a: u8) -> u8 {
    (0..254).fold(1, |p, _| multiply(p, a))
}

fn add(into: &mut [u8], column: &[u8]) {
    into.iter_mut().zip(column).for_each(|(a, b)| *a ^= b);
}

/// `into += factor * column`.
fn add_scaled(into: &mut [u8], column: &[u8], factor: u8) {
    let table: [u8; 256] = std::array::from_fn(|x| multiply(x as u8, factor));
    into.iter_mut()
        .zip(column)
        .for_each(|(a, b)| *a ^= table[usize::from(*b)]);
}

fn scaled(column: &[u8], factor: u8) -> Vec<u8> {
    let mut out = vec![0; column.len()];
    add_scaled(&mut out, column, factor);
    out
}

/// Multiplies each of 8 bytes by 2.
fn double(x: u64) -> u64 {
    let high = x >> 7 & 0x0101_0101_0101_0101;
    (x << 1 & 0xfefe_fefe_fefe_fefe) ^ (high * 0x1d)
}

/// P and Q of whole columns.
fn p_and_q(data: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    let length = data.first().map_or(0, |d| d.len());
    let (mut p, mut q) = (vec![0u8; length], vec![0u8; length]);
    // Horner's rule, eight bytes at a time; blocks are a multiple of eight.
    for (i, (p, q)) in p
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(q.as_chunks_mut::<8>().0)
        .enumerate()
    {
        let (mut xor, mut sum) = (0, 0);
        for column in data.iter().rev() {
            let word = column
                .as_chunks::<8>()
                .0
                .get(i)
                .copied()
                .map_or(0, u64::from_le_bytes);
            xor ^= word;
            sum = double(sum) ^ word;
        }
        (*p, *q) = (xor.to_le_bytes(), sum.to_le_bytes());
    }
    (p, q)
}

/// Redundancy columns of `data`, in column order.
pub(crate) fn redundancy(shape: &Shape, data: &[&[u8]]) -> Vec<Vec<u8>> {
    match shape.code {
        Code::None => Vec::new(),
        Code::Copies => (1..shape.width / shape.data)
            .flat_map(|_| data.iter().map(|d| d.to_vec()))
            .collect(),
        Code::P => vec![p_and_q(data).0],
        Code::PQ => {
            let (p, q) = p_and_q(data);
            vec![p, q]
        }
    }
}

/// Reconstructs data column `target` from a row; unknown columns are `None`. `None` if too many are
/// unknown.
pub(crate) fn rebuild(shape: &Shape, row: &[Option<&[u8]>], target: usize) -> Option<Vec<u8>> {
    let k = usize::from(shape.data);
    match shape.code {
        Code::None => None,
        Code::Copies => (target..row.len())
            .step_by(k)
            .filter(|c| *c != target)
            .find_map(|c| row[c])
            .map(<[u8]>::to_vec),
        Code::P | Code::PQ => {
            let missing: Vec<usize> = (0..k)
                .filter(|c| *c == target || row[*c].is_none())
                .collect();
            let p = row.get(k).copied().flatten();
            let q = row.get(k + 1).copied().flatten();
            let known = || {
                (0..k)
                    .filter(|c| !missing.contains(c))
                    .filter_map(|c| Some((c, row[c]?)))
            };
            let p_rest = |p: &[u8]| {
                let mut rest = p.to_vec();
                known().for_each(|(_, column)| add(&mut rest, column));
                rest
            };
            let q_rest = |q: &[u8]| {
                let mut rest = q.to_vec();
                known().for_each(|(c, column)| add_scaled(&mut rest, column, power(c)));
                rest
            };
            match (&missing[..], p, q) {
                ([_], Some(p), _) => Some(p_rest(p)),
                ([_], None, Some(q)) => Some(scaled(&q_rest(q), inverse(power(target)))),
                ([a, b], Some(p), Some(q)) => {
                    // P gives T + O, Q gives 2^t T + 2^o O.
                    let other = if *a == target { *b } else { *a };
                    let mut sum = q_rest(q);
                    add_scaled(&mut sum, &p_rest(p), power(other));
                    Some(scaled(&sum, inverse(power(target) ^ power(other))))
                }
                _ => None,
            }
        }
    }
}

/// Sets of columns that may be silently wrong: none, one, and two if the tolerance allows it.
pub(crate) fn suspects(shape: &Shape) -> Vec<Vec<usize>> {
    let width = usize::from(shape.width);
    let mut sets = vec![Vec::new()];
    if shape.tolerance() > 0 {
        sets.extend((0..width).map(|c| vec![c]));
    }
    if shape.tolerance() > 1 {
        sets.extend((0..width).flat_map(|a| (a + 1..width).map(move |b| vec![a, b])));
    }
    sets
}

/// Calls `accept` with every candidate of `target`, given that up to the tolerance of columns may
/// be silently wrong, until it returns true. Columns that are `None` count as wrong.
pub(crate) fn search(
    shape: &Shape,
    row: &[Option<&[u8]>],
    target: usize,
    mut accept: impl FnMut(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let mut row = row.to_vec();
    row[target] = None;
    if shape.code == Code::Copies {
        let copies = (target..row.len()).step_by(usize::from(shape.data));
        return copies
            .filter_map(|c| row[c])
            .find(|bytes| accept(bytes))
            .map(<[u8]>::to_vec);
    }
    let first = rebuild(shape, &row, target);
    if let Some(bytes) = first
        && accept(&bytes)
    {
        return Some(bytes);
    }
    let unknown = row.iter().filter(|c| c.is_none()).count();
    if unknown >= shape.tolerance() {
        return None;
    }
    (0..row.len())
        .filter(|c| row[*c].is_some())
        .find_map(|suspect| {
            let mut row = row.clone();
            row[suspect] = None;
            rebuild(shape, &row, target).filter(|bytes| accept(bytes))
        })
}

#[cfg(test)]
mod tests;
