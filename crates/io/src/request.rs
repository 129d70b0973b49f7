//! What a front-end asks of a volume, and the answer.

use crate::Payload;
use windrow_types::{Lsn, VolumeId};

/// Chosen by the front-end, opaque to the engine: which connection and which of its requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RequestId(pub u64);

/// One request to a volume. Offsets and lengths are bytes; what is not aligned to blocks costs a
/// read-modify-write. A length of zero is refused as [`RequestError::Invalid`].
#[derive(Clone, Debug)]
pub struct Request {
    /// Given back in the completion.
    pub id: RequestId,
    /// The volume.
    pub volume: VolumeId,
    /// What to do.
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
    /// Write the payload. With `fua` the completion comes only when it is durable.
    Write {
        /// Byte offset.
        offset: u64,
        /// The bytes; not empty.
        data: Payload,
        /// Force unit access.
        fua: bool,
    },
    /// Make everything acknowledged before durable (pool-wide).
    Flush,
    /// Discard: the range becomes a hole and reads as zero. Parts of blocks at the edges are
    /// zeroed.
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
        /// Do not make a hole.
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
        /// At most this many extents; the answer may cover less than asked.
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

/// What a successful request answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Write, flush, trim, write zeroes.
    Done,
    /// Read: slices that together have the requested length, in order.
    Data(Vec<Payload>),
    /// Block status, from the requested offset on.
    Extents(Vec<Extent>),
}

/// Why a request failed. One function of each front-end maps these to its protocol's errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// A length of zero, or an alignment that the volume does not serve.
    #[error("the request is malformed")]
    Invalid,
    /// Beyond the end of the volume.
    #[error("the request reaches beyond the end of the volume")]
    OutOfRange,
    /// The pool has no room for it; nothing was written.
    #[error("the pool is full")]
    NoSpace,
    /// The volume or pool is read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The volume does not exist (any more).
    #[error("the volume does not exist")]
    NoVolume,
    /// The bytes could not be read and verified, or the write could not be made.
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
    /// First and last order given to the request, if it changed anything: what a model needs to
    /// check invariant 3.
    pub lsns: Option<(Lsn, Lsn)>,
}
