//! The components of the engine: what belongs together, from the bottom to the top.
//!
//! ```text
//! pool, memory    read by all
//! drives          members, their commands and the exchange of their devices
//! map             volumes, their maps, and range operations
//! log             open batches and pending blocks
//! space           segments, cleaning, placement policy, reserve
//! durability      flush, journal, checkpoint, superblock writer, LSNs
//! reads           reads of users, fetches, hedged reads
//! admission       requests that wait, credit, read-modify-write
//! integrity       verification, scrub, rebuild, damage
//! admin           commands, change of reduction
//! observe         counters, times, load
//! ```

use crate::{
    background, checkpointing, cleaning, control, damage, fault_injection, fetch, flush, hedge,
};
use crate::{counters, journal, lsn, member, pending, policy, ranges, read, rebuild, reserve};
use windrow_types::{BatchSeq, MAX_STREAMS};

use crate::{scrub, segment, slab, stages, stream, survey, verification, volume, warm};

/// What the upper floors stand on: tables and devices, and the reads from these.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) pool: crate::pool::Pool,
    pub(crate) memory: crate::pool::Memory,
    pub(crate) drives: Drives,
    /// Volumes with their maps.
    pub(crate) volumes: volume::Volumes,
    pub(crate) segments: segment::Segments,
    pub(crate) reads: Reads,
    pub(crate) observe: Observe,
}

/// The data path: from requests to batches, and back.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) admission: crate::write::Admission,
    pub(crate) shared: crate::dedup::Shared,
    pub(crate) log: Log,
    pub(crate) space: Space,
    pub(crate) durability: Durability,
    /// Range operations that walk over the maps.
    pub(crate) ranges: ranges::Ranges,
    /// Blocks that are known to be lost.
    pub(crate) damage: damage::Damage,
    /// Reads of users.
    pub(crate) user_reads: slab::Slab<read::ReadRequest>,
}

/// What serves requests: the context of upkeep.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) paths: Paths,
}

/// What keeps the pool in order beside the requests: cleaning, checkpoints, scrub, rebuild, changes
/// of members.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    pub(crate) integrity: Integrity,
    pub(crate) reshape: crate::reshape::Reshape,
}

/// Members, their commands, and the exchange of their devices.
#[derive(Debug)]
pub(crate) struct Drives {
    pub(crate) members: member::Members,
    pub(crate) exchanges: member::Exchanges,
    pub(crate) scheduler: member::Schedule,
    pub(crate) superblock_writer: member::SuperblockWriter,
}

/// The open batch of each stream, and blocks that are admitted and not committed.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) streams: Vec<stream::Stream>,
    pub(crate) pending: pending::Pending,
}

/// Segments: which are free, which are cleaned, which stream a block goes to.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) cleaner: cleaning::Cleaner,
    pub(crate) ledger: reserve::Ledger,
    pub(crate) policy: policy::Policy,
}

/// What makes operations durable, and the clock of LSNs.
#[derive(Debug)]
pub(crate) struct Durability {
    pub(crate) flush: flush::FlushState,
    pub(crate) journal: journal::Journal,
    pub(crate) checkpoint: checkpointing::CheckpointState,
    pub(crate) lsns: lsn::LsnClock,
}

/// Reads of users and fetches from members.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) fetches: slab::Slab<fetch::Fetch>,
    pub(crate) splits: slab::Slab<fetch::Split>,
    pub(crate) slow: hedge::HedgedReads,
    /// Reconstructed blocks to report and to rewrite.
    pub(crate) repaired: Vec<fetch::Repaired>,
}

/// Verification and restoration of what the members hold.
#[derive(Debug, Default)]
pub(crate) struct Integrity {
    pub(crate) verifications: slab::Slab<verification::Verification>,
    pub(crate) scrub: scrub::Scrub,
    pub(crate) rebuild: rebuild::Rebuild,
    pub(crate) survey: survey::Survey,
}

/// Commands that change the pool.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    pub(crate) control: control::ControlState,
}

/// Counters, times and load, and the bug that a test injects.
#[derive(Debug, Default)]
pub(crate) struct Observe {
    pub(crate) counters: counters::Counters,
    pub(crate) stages: stages::Stages,
    pub(crate) users: background::Users,
    pub(crate) wall: background::WallClock,
    pub(crate) warmth: warm::Warmth,
    pub(crate) bug: fault_injection::InjectedBug,
}

impl Log {
    /// The stream with index `id`.
    pub(crate) fn stream(&self, id: usize) -> &stream::Stream {
        &self.streams[stream::slot(id)]
    }

    /// As [`Log::stream`], to change it.
    pub(crate) fn stream_mut(&mut self, id: usize) -> &mut stream::Stream {
        &mut self.streams[stream::slot(id)]
    }

    /// Durable batch sequence numbers per stream, for a batch header.
    pub(crate) fn flushed_seqs(&self) -> [BatchSeq; MAX_STREAMS] {
        let mut seqs = [BatchSeq(0); MAX_STREAMS];
        for stream in &self.streams {
            seqs[stream.id] = stream.durable;
        }
        seqs
    }
}
