//! Offline decode and check, independent of the engine.
//!
//! Everything here is computed again from `docs/on-disk-format.md`: quorum, chains, P, fences, compare-and-set, redundancy. It uses
//! the codecs of `windrow-layout` and nothing of the engine or the parity crate, so that it can disagree with them.
//! Nothing is ever written: what is found can be read while a pool is broken, and the next import repairs what redundancy covers.
//!
//! * [`inspect_members`]: labels and superblocks, which generation rules, is there a quorum.
//! * [`check()`]: a whole pool, with payload and redundancy on request; [`CheckReport::exit_code`] maps it to an exit code.
//! * [`list_batches`], [`dump_batch`]: a look at single batches.

mod batches;
mod check;
mod dump;
mod durable;
mod image;
mod members;
mod raid;
mod reader;
mod replay;
mod report;
mod state;
#[cfg(test)]
mod test_pool;

pub use check::{CheckOptions, CheckPhase, CheckProgress, check};
pub use dump::{BatchDump, BatchSummary, BlockFound, ColumnLocation, DumpError, EntryDump, PayloadDump, dump_batch, list_batches};
pub use members::inspect_members;
pub use report::{
    CheckReport, Finding, FindingKind, Findings, InspectReport, MAX_FINDINGS, MemberReport, Severity, SlotReport, StreamReport, VolumeReport, exit,
};
