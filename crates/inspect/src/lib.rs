//! Offline decode and check, independent of the engine.
//!
//! Everything here is computed again from `docs/internals/format.md`: quorum, chains, journal
//! records, P, fences, compare-and-set, redundancy. It uses the codecs of `windrow-format` and
//! nothing of the engine or the parity crate, so that it can disagree with them. Nothing is ever
//! written: what is found can be read while a pool is broken, and the next import repairs what
//! redundancy covers.
//!
//! * [`inspect_members`]: labels and superblocks, which generation rules, is there a quorum.
//! * [`check()`]: a whole pool, with payload and redundancy on request; [`CheckReport::exit_code`]
//!   maps it to an exit code.
//! * [`list_batches`], [`dump_batch`]: a look at single batches. [`list_records`], [`dump_chunk`]:
//!   the same of the journal.

mod batches;
mod check;
mod dump;
mod durable;
mod image;
mod journal;
mod members;
mod raid;
mod reader;
mod replay;
mod report;
mod state;
#[cfg(test)]
mod test_pool;

pub use check::{CheckOptions, CheckPhase, CheckProgress, check};
pub use dump::{
    BatchDump, BatchSummary, BlockFound, ChunkDump, ColumnLocation, CopyLocation, DumpError,
    EntryDump, PayloadDump, RecordDump, RecordSummary, dump_batch, dump_chunk, list_batches,
    list_records,
};
pub use members::inspect_members;
pub use report::{
    CheckReport, Finding, FindingKind, Findings, InspectReport, JournalReport, MAX_FINDINGS,
    MemberReport, Severity, SlotReport, SpaceReport, StreamReport, VolumeReport, exit,
};
