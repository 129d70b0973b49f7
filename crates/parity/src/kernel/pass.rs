//! One pass over the columns, generic over the lane type.
//!
//! The outer loop goes along the columns in groups of `N` lanes, the inner loop over the columns;
//! sums stay in registers, so every data byte is loaded once and every output byte is stored once.
//! P and Q use Horner's rule from the last column to the first, which needs doubling only.

use super::lanes::{Byte, Lanes};

/// One computation. All slices of a job have one length; the code that builds a job checks that.
pub(super) enum Job<'a> {
    /// `dst += src`.
    AddInto { dst: &'a mut [u8], src: &'a [u8] },
    /// `out = sum of columns`.
    Sum {
        columns: &'a [&'a [u8]],
        out: &'a mut [u8],
    },
    /// `p = sum of columns`, `q = sum of 2^i * column i`.
    SumAndPowers {
        columns: &'a [&'a [u8]],
        p: &'a mut [u8],
        q: &'a mut [u8],
    },
    /// `out = sum of weight * column`.
    Weighted {
        columns: &'a [&'a [u8]],
        weights: &'a [u8],
        out: &'a mut [u8],
    },
    /// Two weighted sums of the same columns.
    WeightedPair {
        columns: &'a [&'a [u8]],
        weights: [&'a [u8]; 2],
        outs: [&'a mut [u8]; 2],
    },
}

impl Job<'_> {
    fn length(&self) -> usize {
        match self {
            Self::AddInto { dst, .. } => dst.len(),
            Self::Sum { out, .. } | Self::Weighted { out, .. } => out.len(),
            Self::SumAndPowers { p, .. } => p.len(),
            Self::WeightedPair { outs, .. } => outs[0].len(),
        }
    }
}

/// Runs a job.
///
/// # Safety
/// The processor has the features of `L`; all slices of the job have one length.
#[inline(always)]
pub(super) unsafe fn run<L: Lanes, const N: usize>(mut job: Job<'_>) {
    let length = job.length();
    // SAFETY: passed on; each step begins where the preceding one ended, and bytes end exactly at
    // the length.
    unsafe {
        let at = step::<L, N>(&mut job, 0, length);
        let at = step::<L, 1>(&mut job, at, length);
        step::<Byte, 1>(&mut job, at, length);
    }
}

/// Processes the whole groups of `N` lanes that fit between `at` and `length`; returns the end
/// position.
///
/// # Safety
/// As for [`run`], and `length` is the length of the job's slices.
#[inline(always)]
unsafe fn step<L: Lanes, const N: usize>(job: &mut Job<'_>, mut at: usize, length: usize) -> usize {
    let group = N * L::BYTES;
    while length - at >= group {
        // SAFETY: `at + group <= length`, the length of every slice of the job; features as
        // guaranteed by the caller.
        unsafe {
            match job {
                Job::AddInto { dst, src } => add_into::<L, N>(dst, src, at),
                Job::Sum { columns, out } => sum::<L, N>(columns, out, at),
                Job::SumAndPowers { columns, p, q } => sum_and_powers::<L, N>(columns, p, q, at),
                Job::Weighted {
                    columns,
                    weights,
                    out,
                } => weighted::<L, N>(columns, weights, out, at),
                Job::WeightedPair {
                    columns,
                    weights,
                    outs: [first, second],
                } => weighted_pair::<L, N>(columns, *weights, first, second, at),
            }
        }
        at += group;
    }
    at
}

/// # Safety
/// As for [`step`]; `at + N * L::BYTES` is at most the length of the slices. The same holds for the
/// functions below.
#[inline(always)]
unsafe fn add_into<L: Lanes, const N: usize>(dst: &mut [u8], src: &[u8], at: usize) {
    // SAFETY: see above.
    unsafe {
        let mut sum = load::<L, N>(dst, at);
        add::<L, N>(&mut sum, &load(src, at));
        store(&sum, dst, at);
    }
}

#[inline(always)]
unsafe fn sum<L: Lanes, const N: usize>(columns: &[&[u8]], out: &mut [u8], at: usize) {
    // SAFETY: see `add_into`.
    unsafe {
        let mut sum = [L::zero(); N];
        for column in columns {
            add::<L, N>(&mut sum, &load(column, at));
        }
        store(&sum, out, at);
    }
}

#[inline(always)]
unsafe fn sum_and_powers<L: Lanes, const N: usize>(
    columns: &[&[u8]],
    p: &mut [u8],
    q: &mut [u8],
    at: usize,
) {
    // SAFETY: see `add_into`.
    unsafe {
        let mut sum = [L::zero(); N];
        let mut powers = [L::zero(); N];
        for column in columns.iter().rev() {
            let lanes = load::<L, N>(column, at);
            add(&mut sum, &lanes);
            for i in 0..N {
                powers[i] = powers[i].double().add(lanes[i]);
            }
        }
        store(&sum, p, at);
        store(&powers, q, at);
    }
}

#[inline(always)]
unsafe fn weighted<L: Lanes, const N: usize>(
    columns: &[&[u8]],
    weights: &[u8],
    out: &mut [u8],
    at: usize,
) {
    // SAFETY: see `add_into`.
    unsafe {
        let mut sum = [L::zero(); N];
        for (column, weight) in columns.iter().zip(weights) {
            let factor = L::factor(*weight);
            let lanes = load::<L, N>(column, at);
            for i in 0..N {
                sum[i] = sum[i].add(lanes[i].scale(factor));
            }
        }
        store(&sum, out, at);
    }
}

#[inline(always)]
unsafe fn weighted_pair<L: Lanes, const N: usize>(
    columns: &[&[u8]],
    weights: [&[u8]; 2],
    first: &mut [u8],
    second: &mut [u8],
    at: usize,
) {
    // SAFETY: see `add_into`.
    unsafe {
        let mut sums = [[L::zero(); N]; 2];
        for (column, (a, b)) in columns.iter().zip(weights[0].iter().zip(weights[1])) {
            let factors = [L::factor(*a), L::factor(*b)];
            let lanes = load::<L, N>(column, at);
            for i in 0..N {
                sums[0][i] = sums[0][i].add(lanes[i].scale(factors[0]));
                sums[1][i] = sums[1][i].add(lanes[i].scale(factors[1]));
            }
        }
        store(&sums[0], first, at);
        store(&sums[1], second, at);
    }
}

#[inline(always)]
unsafe fn load<L: Lanes, const N: usize>(from: &[u8], at: usize) -> [L; N] {
    debug_assert!(at + N * L::BYTES <= from.len());
    // SAFETY: see `add_into`; the loads lie inside the slice.
    unsafe {
        let from = from.as_ptr().add(at);
        let mut lanes = [L::zero(); N];
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = L::load(from.add(i * L::BYTES));
        }
        lanes
    }
}

#[inline(always)]
unsafe fn store<L: Lanes, const N: usize>(lanes: &[L; N], to: &mut [u8], at: usize) {
    debug_assert!(at + N * L::BYTES <= to.len());
    // SAFETY: see `add_into`; the stores lie inside the slice.
    unsafe {
        let to = to.as_mut_ptr().add(at);
        for (i, lane) in lanes.iter().enumerate() {
            lane.store(to.add(i * L::BYTES));
        }
    }
}

#[inline(always)]
unsafe fn add<L: Lanes, const N: usize>(sum: &mut [L; N], lanes: &[L; N]) {
    for i in 0..N {
        // SAFETY: features as guaranteed by the caller.
        sum[i] = unsafe { sum[i].add(lanes[i]) };
    }
}
