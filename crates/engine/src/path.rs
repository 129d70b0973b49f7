//! Floor 2: the data path. Requests become batches (`path/write/`, `path/dedup.rs`), batches become
//! durable (`path/flush.rs`, `path/journal.rs`), and reads find their blocks (`path/read.rs`).

pub(crate) mod checkpointing;
pub(crate) mod cleaning;
pub(crate) mod commands;
pub(crate) mod damage;
pub(crate) mod dedup;
pub(crate) mod flush;
pub(crate) mod journal;
pub(crate) mod policy;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod reduction;
pub(crate) mod write;

pub(crate) use policy::Space;

use crate::store::Store;
use windrow_types::{BatchSeq, MAX_STREAMS};

/// The data path: from requests to batches, and back.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) admission: write::Admission,
    pub(crate) shared: dedup::Shared,
    pub(crate) log: Log,
    pub(crate) space: Space,
    pub(crate) durability: Durability,
    /// Commands that wait.
    pub(crate) commands: commands::Commands,
    /// Change of the reduction mode.
    pub(crate) reduction: reduction::ReductionState,
    /// Range operations that walk over the maps.
    pub(crate) ranges: ranges::Ranges,
    /// Blocks that are known to be lost.
    pub(crate) damage: damage::Damage,
    /// Reads of users.
    pub(crate) user_reads: crate::base::slab::Slab<read::ReadRequest>,
}

/// What serves requests: the context of upkeep.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) paths: Paths,
}

/// The open batch of each stream, and blocks that are admitted and not committed.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) streams: Vec<crate::store::stream::Stream>,
    pub(crate) pending: crate::store::pending::Pending,
}

impl Log {
    /// The stream with index `id`.
    #[inline]
    pub(crate) fn stream(&self, id: usize) -> &crate::store::stream::Stream {
        &self.streams[crate::store::stream::slot(id)]
    }

    /// As [`Log::stream`], to change it.
    #[inline]
    pub(crate) fn stream_mut(&mut self, id: usize) -> &mut crate::store::stream::Stream {
        &mut self.streams[crate::store::stream::slot(id)]
    }

    /// Durable batch sequence numbers per stream, for a batch header.
    #[inline]
    pub(crate) fn flushed_seqs(&self) -> [BatchSeq; MAX_STREAMS] {
        let mut seqs = [BatchSeq(0); MAX_STREAMS];
        for stream in &self.streams {
            seqs[stream.id] = stream.durable;
        }
        seqs
    }
}

/// What makes operations durable, and the clock of LSNs.
#[derive(Debug)]
pub(crate) struct Durability {
    pub(crate) flush: flush::FlushState,
    pub(crate) journal: journal::Journal,
    pub(crate) checkpoint: checkpointing::CheckpointState,
    pub(crate) lsns: crate::base::lsn::LsnClock,
}
