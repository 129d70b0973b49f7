//! What every component reads: the superblock, the layout, and whether the pool is in service.

use crate::{Limits, PoolPlan, StopReason};
use windrow_format::superblock::Superblock;
use windrow_geometry::ZoneMap;
use windrow_io::{BufPool, Payload};
use windrow_types::AddressCodec;

/// State of the pool as a whole. Components get it by reference.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The superblock as the next generation will record it.
    pub(crate) superblock: Superblock,
    pub(crate) zones: ZoneMap,
    pub(crate) codec: AddressCodec,
    pub(crate) plan: PoolPlan,
    pub(crate) limits: Limits,
    pub(crate) read_only: bool,
    pub(crate) stopped: Option<StopReason>,
    pub(crate) now_ns: u64,
}

/// Memory that components share.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) buffers: BufPool,
    /// Compression, here and in jobs.
    pub(crate) codecs: windrow_reduction::Codecs,
    pub(crate) zeroes: Payload,
    pub(crate) ones: Payload,
}
