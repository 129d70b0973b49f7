//! The core of Windrow as a state machine: `apply(events) -> effects`.
//!
//! Reading order for a write: `write/admit.rs` (limits, space, LSNs, acknowledgement),
//! `write/reduce.rs` (compression), `dedup.rs` (shared content), `write/place.rs` (the open batch),
//! `write/seal.rs` (plan, header, job, member writes), `write/commit.rs` (map and live counters),
//! `flush.rs` (durability), `journal.rs` (small flushes).
//!
//! For a read: `read.rs` (pending blocks, map, runs), `fetch.rs` (member reads, verification,
//! reconstruction), `fetch/split.rs` (row by row), `hedge.rs` (hedged reads).
//!
//! Member commands: `member/send.rs`, `member/scheduler.rs` (command ordering).
//!
//! Space: `segment.rs` (states, reuse rule), `clean.rs` (victims, moves), `clean/damage.rs`
//! (victims with wrong tables), `checkpoint.rs` (images of the tables), `weight.rs` and
//! `reduction.rs` (charge of data, use of the savings of reduction).
//!
//! Health: `verification.rs` and `verify.rs` (expected content of each block of a batch),
//! `scrub.rs` (batch by batch), `rebuild.rs` (members that return), `background.rs` (pace of both).
//!
//! Growth: `segment/layers.rs` (usable segments while two layouts exist), `reshape.rs`. Statistics:
//! `status.rs`, `survey.rs` (references to shared content). Start: `format.rs` (a new pool),
//! `recover/` (an existing one).
//!
//! [`Engine`] owns all mutable state. It has no locks, no clock, no randomness and no threads.

pub mod api;
mod base;
mod engine;
mod path;
mod recover;
mod store;
mod upkeep;

pub use api::*;
pub use base::fault_injection::InjectedBug;
pub use base::limits;
pub use base::stages::StageTimes;
pub use engine::Engine;
pub use recover::{
    Loss, Losses, LostBlocks, LostLsns, OpenError, RebuildPhase, RebuildProgress, RebuildReport,
    RebuildWork, RebuiltVolume, UnreadCheckpoint,
};
pub use store::events::{Event, Outbox};
pub use store::jobs::Job;
pub use store::plan::FormatError;
pub use windrow_format::superblock::Reduction;
pub use windrow_policy::kind::PlacementKind;
pub use windrow_policy::select::Rule as VictimRule;
