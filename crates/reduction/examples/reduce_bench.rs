//! Cost of the jobs for each block of 4 KiB:
//! `cargo run --release -p windrow-reduction --example reduce_bench`. Takes about four seconds.
//!
//! `cached` works on blocks that stay in the second level of cache, `memory` on more than caches
//! usually hold. The pieces at the end compare copying and checking piece by piece (fused) with
//! checking and then copying the whole block.

use std::hint::black_box;
use std::time::{Duration, Instant};
use windrow_reduction::{Fingerprint, checksum, classify, copy_and_checksum};

const BLOCK: usize = 4096;
/// Number of blocks whose fingerprints one job computes.
const GROUP: usize = 32;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(25);

/// Median nanoseconds per block of some rounds over all blocks.
fn nanoseconds<R>(blocks: usize, mut run: impl FnMut(usize) -> R) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (start, mut passes) = (Instant::now(), 0u64);
            while start.elapsed() < ROUND {
                for index in 0..blocks {
                    black_box(run(index));
                }
                passes += 1;
            }
            start.elapsed().as_secs_f64() * 1e9 / (passes as f64 * blocks as f64)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn report(name: &str, nanoseconds: f64) {
    println!(
        "{name:<34} {nanoseconds:>8.1} ns/block {:>7.1} GB/s",
        BLOCK as f64 / nanoseconds
    );
}

fn copy_by_pieces(dst: &mut [u8], src: &[u8], piece: usize) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for (dst, src) in dst.chunks_mut(piece).zip(src.chunks(piece)) {
        dst.copy_from_slice(src);
        digest.update(dst);
    }
    digest.finalize()
}

fn main() {
    for (place, blocks) in [("cached", 64), ("memory", 16384)] {
        let src: Vec<u8> = (0..(blocks * BLOCK) as u64)
            .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
            .collect();
        let mut dst = vec![1u8; blocks * BLOCK];
        let zeroes = vec![0u8; blocks * BLOCK];
        let range = |index: usize| index * BLOCK..(index + 1) * BLOCK;
        println!("{place}, {blocks} blocks");
        report(
            "classify data",
            nanoseconds(blocks, |i| classify(&src[range(i)])),
        );
        report(
            "classify zeroes",
            nanoseconds(blocks, |i| classify(&zeroes[range(i)])),
        );
        report(
            "checksum",
            nanoseconds(blocks, |i| checksum(&src[range(i)])),
        );
        report(
            "fast fingerprint",
            nanoseconds(blocks, |i| Fingerprint::Fast.of(&src[range(i)])),
        );
        report(
            "strong fingerprint",
            nanoseconds(blocks, |i| Fingerprint::Strong.of(&src[range(i)])),
        );
        let group = |i: usize| {
            Fingerprint::of_all(
                (i * GROUP..(i + 1) * GROUP).map(|i| (Fingerprint::Strong, &src[range(i)])),
            )
        };
        report(
            "strong fingerprint, of groups",
            nanoseconds(blocks / GROUP, group) / GROUP as f64,
        );
        report(
            "copy",
            nanoseconds(blocks, |i| dst[range(i)].copy_from_slice(&src[range(i)])),
        );
        report(
            "copy_and_checksum",
            nanoseconds(blocks, |i| {
                copy_and_checksum(&mut dst[range(i)], &src[range(i)])
            }),
        );
        let copied_first = nanoseconds(blocks, |i| {
            dst[range(i)].copy_from_slice(&src[range(i)]);
            checksum(&dst[range(i)])
        });
        report("copy, then checksum of the copy", copied_first);
        for piece in [512, 1024, 2048] {
            let time = nanoseconds(blocks, |i| {
                copy_by_pieces(&mut dst[range(i)], &src[range(i)], piece)
            });
            report(&format!("copy and check by {piece}"), time);
        }
    }
}
