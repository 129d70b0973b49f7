//! Parity rate in bytes of data per second for every kernel that this processor has, over working
//! sets that fit in each level of cache and in none.
//!
//! `cargo run --release -p windrow-parity --example parity_bench [data columns]`, 6 by default.
//! Takes about eight seconds.

use std::time::{Duration, Instant};
use windrow_parity::{Column, Kernel, Parity, reconstruct};

const PAGE: usize = 4096;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(12);

/// Median rate of some rounds, in 10^9 bytes of `bytes_per_run` per second.
fn rate(bytes_per_run: usize, mut run: impl FnMut()) -> f64 {
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (start, mut runs) = (Instant::now(), 0u64);
            while start.elapsed() < ROUND {
                run();
                runs += 1;
            }
            runs as f64 * bytes_per_run as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

fn column(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

fn main() {
    let count = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(6usize)
        .clamp(2, 62);
    println!("{count} data columns, GB of data per second");
    println!(
        "{:>12} {:>10} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "kernel", "column KiB", "xor", "P", "P+Q", "one sum", "two sums"
    );
    for kib in [4, 16, 64, 256, 4096] {
        let length = kib * 1024;
        // Columns one after the other in one page-aligned buffer, as in a batch: all of them
        // compete for the same cache sets.
        let buffer = column(count * length + PAGE, 1);
        let start = buffer.as_ptr().align_offset(PAGE);
        let data: Vec<&[u8]> = buffer[start..start + count * length]
            .chunks_exact(length)
            .collect();
        let weights = [column(count, 91), column(count, 92)];
        let (mut p, mut q) = (vec![0; length], vec![0; length]);
        let bytes = count * length;
        for kernel in Kernel::available() {
            println!(
                "{:>12} {:>10} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>10.1}",
                kernel.name(),
                kib,
                rate(length, || kernel.xor_into(&mut p, data[0])),
                rate(bytes, || kernel.encode_p(&data, &mut p)),
                rate(bytes, || kernel.encode_pq(&data, &mut p, &mut q)),
                rate(bytes, || kernel.weighted_sum(&data, &weights[0], &mut p)),
                rate(bytes, || kernel.weighted_sums(
                    &data,
                    [&weights[0], &weights[1]],
                    [&mut p, &mut q]
                )),
            );
        }
    }
    reconstruct_rate(count);
}

/// Two lost data columns of one row: the whole call, to include the cost of finding the weights.
fn reconstruct_rate(count: usize) {
    let columns: Vec<Vec<u8>> = (0..count + 2)
        .map(|index| column(4096, index as u64))
        .collect();
    let (mut first, mut second) = (vec![0; 4096], vec![0; 4096]);
    let per_run = rate(1, || {
        let mut word: Vec<Column<'_>> =
            columns.iter().map(|bytes| Column::Present(bytes)).collect();
        word[0] = Column::Lost(&mut first);
        word[1] = Column::Lost(&mut second);
        reconstruct(Parity::PQ, count, &mut word)
            .expect("two lost columns are within the tolerance");
    });
    println!(
        "reconstruct two data columns of a 4 KiB row: {:.2} us",
        1e-3 / per_run
    );
}
