//! Floor 1: tables and devices, and the reads from these. Nothing here knows of requests or
//! batches.

pub(crate) mod counters;
pub(crate) mod ends;
pub(crate) mod events;
pub(crate) mod fetch;
pub(crate) mod hedge;
pub(crate) mod jobs;
pub(crate) mod map;
pub(crate) mod member;
pub(crate) mod pending;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod reconstruct;
pub(crate) mod segment;
pub(crate) mod stream;
pub(crate) mod verify;
pub(crate) mod volume;
pub(crate) mod warm;

/// What the upper floors stand on: tables and devices, and the reads from these.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) pool: pool::Pool,
    pub(crate) memory: pool::Memory,
    pub(crate) drives: Drives,
    /// Volumes with their maps.
    pub(crate) volumes: volume::Volumes,
    pub(crate) segments: segment::Segments,
    pub(crate) reads: Reads,
    pub(crate) observe: Observe,
}

/// Members, their commands, and the exchange of their devices.
#[derive(Debug)]
pub(crate) struct Drives {
    pub(crate) members: member::Members,
    pub(crate) exchanges: member::Exchanges,
    pub(crate) scheduler: member::Schedule,
    pub(crate) superblock_writer: member::SuperblockWriter,
}

/// Reads of users and fetches from members.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) fetches: crate::base::slab::Slab<fetch::Fetch>,
    pub(crate) splits: crate::base::slab::Slab<fetch::Split>,
    pub(crate) slow: hedge::HedgedReads,
    /// Reconstructed blocks to report and to rewrite.
    pub(crate) repaired: Vec<fetch::Repaired>,
}

/// Counters, times and load, and the bug that a test injects.
#[derive(Debug, Default)]
pub(crate) struct Observe {
    pub(crate) counters: counters::Counters,
    pub(crate) stages: crate::base::stages::Stages,
    pub(crate) users: crate::base::background::Users,
    pub(crate) wall: crate::base::background::WallClock,
    pub(crate) warmth: warm::Warmth,
    pub(crate) bug: crate::base::fault_injection::InjectedBug,
}
