//! Offline decode and check, independent of the engine.
//!
//! Everything here is implemented again from `docs/internals/format.md`: quorum, chains, journal
//! records, recovery point, fences, compare-and-set, redundancy. It shares the codecs of
//! `windrow-format`, but nothing of the engine or the parity crate, so that it can disagree with
//! them. Nothing is ever written: findings are available while a pool is broken, and the next
//! import repairs what redundancy covers.
//!
//! * [`inspect_members`]: labels and superblocks, the ruling generation, quorum.
//! * [`check()`]: a whole pool, with payload and redundancy on request; [`CheckReport::exit_code`]
//!   maps it to an exit code.
//! * [`list_batches`], [`dump_batch`]: single batches. [`list_records`], [`dump_chunk`]: the same
//!   for the journal.

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
