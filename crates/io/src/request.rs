//! Requests of a front-end to a volume, and the answers.

use crate::Payload;
use windrow_types::{Lsn, VolumeId};

/// Id chosen by the front-end, opaque to the engine: identifies the connection and its request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RequestId(pub u64);

/// One request to a volume. Offsets and lengths are bytes; unaligned parts cost an RMW. A length of
/// zero is refused as [`RequestError::Invalid`].
#[derive(Clone, Debug)]
pub struct Request {
    /// Id returned in the completion.
    pub id: RequestId,
    /// The volume.
    pub volume: VolumeId,
    /// The operation.
    pub op: Op,
}

/// The operation of a request.
#[derive(Clone, Debug)]
pub enum Op {
    /// Read `length` bytes.
    Read {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Write the payload. With `fua` the request completes only when the data is durable.
    Write {
        /// Byte offset.
        offset: u64,
        /// The bytes; not empty.
        data: Payload,
        /// Force unit access.
        fua: bool,
    },
    /// Make everything acknowledged before it durable (pool-wide).
    Flush,
    /// Discard: the range becomes a hole and reads as zero. Partial blocks at its ends are zeroed.
    Trim {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Complete only when durable.
        fua: bool,
    },
    /// The range reads as zero afterwards. With `no_hole` it is reported as allocated zeroes, not
    /// as a hole.
    WriteZeroes {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Do not create a hole.
        no_hole: bool,
        /// Complete only when durable.
        fua: bool,
    },
    /// Report the state of the range.
    BlockStatus {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Maximum number of extents; the answer may cover less than requested.
        max_extents: u32,
    },
}

/// State of an extent of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentState {
    /// Holds data.
    Data,
    /// Never written or trimmed; reads as zero.
    Hole,
    /// Written as zeroes; reads as zero.
    Zero,
}

/// A run of equal state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// State.
    pub state: ExtentState,
}

/// Answer to a successful request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Write, flush, trim, write zeroes.
    Done,
    /// Read: slices that together have the requested length, in ascending order.
    Data(Vec<Payload>),
    /// Block status, from the requested offset on.
    Extents(Vec<Extent>),
}

/// Reason that a request failed. One function of each front-end maps these to its protocol's
/// errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// A length of zero, or an alignment that the volume does not serve.
    #[error("the request is malformed")]
    Invalid,
    /// Beyond the end of the volume.
    #[error("the request reaches beyond the end of the volume")]
    OutOfRange,
    /// The pool has no space for it; nothing was written.
    #[error("the pool is full")]
    NoSpace,
    /// The volume or pool is read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The volume does not exist, or was deleted.
    #[error("the volume does not exist")]
    NoVolume,
    /// The data could not be read and verified, or the write could not be completed.
    #[error("input/output error")]
    Io,
    /// The pool has stopped (a fault beyond its redundancy, or shutdown).
    #[error("the pool has stopped")]
    Stopped,
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The request's id.
    pub id: RequestId,
    /// Its result.
    pub result: Result<Reply, RequestError>,
    /// First and last LSN of the request, if it changed anything: a model needs them to check
    /// invariant 3.
    pub lsns: Option<(Lsn, Lsn)>,
}
