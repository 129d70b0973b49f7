//! Newtypes, sizes and geometry: the words of Windrow as types.
//!
//! Nothing here does I/O or allocates on a hot path. Every number that crosses a crate boundary has
//! a type of its own, so that an order cannot be passed where a sequence number is wanted. (And the
//! histogram of latencies, which the engine and those around it share.)

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
/// Number of write streams a pool may have; also the number of per-stream slots in headers and
/// superblocks.
pub const MAX_STREAMS: usize = 8;
