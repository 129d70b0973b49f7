//! Newtypes, sizes and geometry.
//!
//! Nothing here does I/O or allocates on a hot path. Every number that crosses a crate boundary has
//! its own type, so that an LSN cannot be passed where a sequence number is expected. The latency
//! histogram is here because the engine and other crates share it.

mod address;
mod histogram;
mod ids;

pub use address::{Address, AddressCodec, FULL_BLOCK_UNITS};
pub use histogram::{Histogram, LatencySummary};
pub use ids::{
    BatchSeq, Epoch, Generation, Lba, Lsn, MemberId, PoolUuid, SegmentId, StreamId, Uuid, VolumeId,
};

/// Bytes in a block: the unit of mapping and of atomicity.
pub const BLOCK_SIZE: usize = 4096;
/// `BLOCK_SIZE` for 64-bit byte arithmetic.
pub const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;
/// Bytes in one unit of a [`Address`] and of a stored length.
pub const ADDRESS_UNIT: usize = 16;
/// Maximum number of write streams of a pool; also the number of per-stream slots in headers and
/// superblocks.
pub const MAX_STREAMS: usize = 8;
