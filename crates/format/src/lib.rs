//! On-disk encodings: encode, decode, check. Pure and total on any input;
//! `docs/internals/format.md` is the specification.
//!
//! Read in this order: [`superblock`] (contents of a member, start of recovery), [`batch`] (the
//! log), [`journal`] (synchronous writes, durable before their rows are full), [`checkpoint`]
//! (pages of table images), [`map_entry`] (16 bytes for each block of a volume).
//!
//! Rules of every codec: numbers are little endian at explicit offsets, never the layout of a Rust
//! type. Decoders check every count before they allocate, accept exactly what the encoders write,
//! and return an error for everything else. Encoders assert their limits: a value that does not fit
//! is a bug and must not reach a member.

pub mod batch;
mod bytes;
pub mod checkpoint;
mod hash;
pub mod index_page;
pub mod journal;
pub mod map_entry;
pub mod superblock;

use windrow_geometry::{Code, MAX_MEMBERS, Shape};
use windrow_types::BLOCK_BYTES;

/// Most bytes of the name of a pool or volume. Names are UTF-8, not empty, and hold no NUL.
pub const MAX_NAME_BYTES: usize = 63;

/// Largest volume: 256 TiB, 2^36 blocks.
pub const MAX_VOLUME_BYTES: u64 = 256 << 40;

/// Maximum rows of a segment: the largest record of the segment table (32 bytes and a bit for each
/// row) still fits in a page.
pub const MAX_SEGMENT_ROWS: u32 = (4096 - 32) * 8;

/// Maximum rows of a chunk, and so of a batch: 16 MiB on each member, which bounds a reader's
/// memory for one batch.
pub const MAX_CHUNK_ROWS: u32 = 4096;

/// True if a name can be stored.
pub fn name_is_valid(name: &str) -> bool {
    bytes::name_fits(name)
}

/// True if a volume may have this size.
fn size_can_be(size_bytes: u64) -> bool {
    size_bytes.is_multiple_of(BLOCK_BYTES) && size_bytes <= MAX_VOLUME_BYTES
}

/// True if this format can store the shape: plausible counts, whole chunks, and columns that match
/// the code.
pub fn shape_is_valid(shape: &Shape) -> bool {
    let (width, data) = (shape.width, shape.data);
    if data == 0 || data > width || usize::from(width) > MAX_MEMBERS {
        return false;
    }
    let columns = match shape.code {
        Code::None => width == data,
        Code::Copies => width % data == 0 && (2..=4).contains(&(width / data)),
        Code::P => width - data == 1,
        Code::PQ => width - data == 2,
    };
    let chunks =
        shape.chunk_rows > 0 && shape.rows > 0 && shape.rows.is_multiple_of(shape.chunk_rows);
    columns
        && chunks
        && shape.rows <= MAX_SEGMENT_ROWS
        && shape.chunk_rows <= MAX_CHUNK_ROWS
        && shape.chunk_rows >= shape.min_batch_rows()
}

/// On-disk value of a redundancy code.
fn code_to_u8(code: Code) -> u8 {
    match code {
        Code::None => 0,
        Code::Copies => 1,
        Code::P => 2,
        Code::PQ => 3,
    }
}

fn code_from_u8(value: u8) -> Option<Code> {
    Some(match value {
        0 => Code::None,
        1 => Code::Copies,
        2 => Code::P,
        3 => Code::PQ,
        _ => return None,
    })
}

/// Bytes of an encoded shape.
const SHAPE_BYTES: usize = 12;

/// ```text
/// 0 width   1 data   2 code   3 zero   4..8 rows   8..12 rows of a chunk
/// ```
fn put_shape(out: &mut [u8], at: usize, shape: &Shape) {
    bytes::put(
        out,
        at,
        &[shape.width, shape.data, code_to_u8(shape.code), 0],
    );
    bytes::put(out, at + 4, &shape.rows.to_le_bytes());
    bytes::put(out, at + 8, &shape.chunk_rows.to_le_bytes());
}

fn shape_at(from: &[u8], at: usize) -> Option<Shape> {
    let code = code_from_u8(bytes::u8_at(from, at + 2))?;
    let shape = Shape {
        width: bytes::u8_at(from, at),
        data: bytes::u8_at(from, at + 1),
        code,
        rows: bytes::u32_at(from, at + 4),
        chunk_rows: bytes::u32_at(from, at + 8),
    };
    (shape_is_valid(&shape) && bytes::u8_at(from, at + 3) == 0).then_some(shape)
}

/// Configuration of property tests: the same cases in every run, so a failure stays until it is
/// understood.
#[cfg(test)]
fn test_config(cases: u32) -> proptest::test_runner::Config {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(0x5749_4e44);
    proptest::test_runner::Config {
        cases,
        rng_seed,
        failure_persistence: None,
        ..Default::default()
    }
}
