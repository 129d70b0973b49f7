//! Results of codecs on blocks of 4 KiB of files:
//! `cargo run --release -p windrow-reduction --example codec_bench -- [--unit KIB] FILE...`
//!
//! Each whole block that is not all one byte is compressed by itself, as in a pool; with
//! `--unit 8`, 16 or 32 two, four or eight successive blocks together. Output: the time to compress
//! and to decompress a unit, and the total stored size, in units of 16 bytes, relative to the
//! input. Units that save less than an eighth are stored uncompressed.

use std::hint::black_box;
use std::time::Instant;
use windrow_reduction::{BlockClass, classify};

const BLOCK: usize = 4096;

fn stored(compressed: Option<usize>, unit: usize) -> usize {
    compressed
        .map(|length| (length + 1).next_multiple_of(16))
        .filter(|length| *length <= unit - unit / 8)
        .unwrap_or(unit)
}

fn report(
    name: &str,
    blocks: &[&[u8]],
    mut pack: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    mut decompress: impl FnMut(&[u8], &mut [u8]),
) {
    let start = Instant::now();
    let compressed: Vec<Option<Vec<u8>>> = blocks.iter().map(|block| pack(block)).collect();
    let pack_ns = start.elapsed().as_nanos() as f64 / blocks.len() as f64;
    let unit = blocks[0].len();
    let worth: Vec<&Vec<u8>> = compressed
        .iter()
        .flatten()
        .filter(|compressed| stored(Some(compressed.len()), unit) < unit)
        .collect();
    let mut out = vec![0; unit];
    let start = Instant::now();
    for compressed in &worth {
        decompress(black_box(compressed), &mut out);
    }
    let unpack_ns = start.elapsed().as_nanos() as f64 / worth.len().max(1) as f64;
    let sum: usize = compressed
        .iter()
        .map(|compressed| stored(compressed.as_ref().map(Vec::len), unit))
        .sum();
    println!(
        "{name:<10} {pack_ns:>8.0} ns to pack {unpack_ns:>7.0} ns to unpack   stored {:.3}",
        sum as f64 / (blocks.len() * unit) as f64
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let has_unit = arguments.next_if(|argument| argument == "--unit").is_some();
    let unit = if has_unit {
        arguments
            .next()
            .and_then(|kib| kib.parse::<usize>().ok())
            .expect("KiB of a unit")
            << 10
    } else {
        BLOCK
    };
    assert!(
        unit > 0 && unit.is_multiple_of(BLOCK),
        "a unit is of whole blocks"
    );
    let files: Vec<Vec<u8>> = arguments
        .filter_map(|name| std::fs::read(name).ok())
        .collect();
    let data: Vec<u8> = files
        .iter()
        .flat_map(|file| file.chunks_exact(BLOCK))
        .filter(|block| classify(block) == BlockClass::Data)
        .flatten()
        .copied()
        .collect();
    let blocks: Vec<&[u8]> = data.chunks_exact(unit).collect();
    println!(
        "{} units of {} KiB, {} files",
        blocks.len(),
        unit >> 10,
        files.len()
    );
    if blocks.is_empty() {
        return;
    }
    let lz4 = |block: &[u8]| {
        let mut room = vec![0; lz4_flex::block::get_maximum_output_size(block.len())];
        let length = lz4_flex::block::compress_into(block, &mut room).ok()?;
        room.truncate(length);
        Some(room)
    };
    report("lz4", &blocks, lz4, |compressed, out| {
        assert!(windrow_reduction::decompress(compressed, out))
    });
    for level in [-5, -1, 1, 2, 3, 4, 6, 9, 12, 19] {
        let (mut packing, mut unpacking) = (zstd_safe::CCtx::create(), zstd_safe::DCtx::create());
        packing
            .set_parameter(zstd_safe::CParameter::CompressionLevel(level))
            .expect("a level");
        let pack = |block: &[u8]| {
            let mut room = vec![0; block.len()];
            let length = packing.compress2(&mut room[..], block).ok()?;
            // (The magic number is not stored, which saves four bytes.)
            room.truncate(length);
            Some(room)
        };
        report(
            &format!("zstd {level}"),
            &blocks,
            pack,
            |compressed, out| {
                unpacking
                    .decompress(out, compressed)
                    .expect("what was packed");
            },
        );
    }
}
