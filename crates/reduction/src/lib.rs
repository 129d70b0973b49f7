//! Data reduction as pure jobs over blocks: classification, checksum, fingerprint, compression.
//!
//! Workers call these on every block that passes through, so each must be cheap compared with the
//! copy that the block needs anyway: [`classify`] reads eight bytes of a block that is not a fill,
//! [`checksum`] runs at several times the rate of memory.

mod checksum;
mod compress;
mod fill;
mod fingerprint;
mod same;
mod zstd;

pub use checksum::{checksum, copy_and_checksum};
pub use compress::{
    Codec, Codecs, Compressor, Made, REPACK_LEAST, Recompressed, UNIT, decompress, looks_random,
};
pub use fill::{BlockClass, classify};
pub use fingerprint::Fingerprint;
