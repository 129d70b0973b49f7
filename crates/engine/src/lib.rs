//! The core of Windrow as a state machine: `apply(events) -> effects`. It has no locks, no clock,
//! no randomness and no threads.
//!
//! It has floors. Each one knows the floors below it and nothing above; data goes up only as the
//! result of a call, or as an event that `engine/dispatch.rs` hands on.
//!
//! ```text
//! recover/   from superblocks to a running engine
//! engine/    Engine: events in, effects out; commands, status, creation of a pool
//! upkeep/    Upkeep: cleaning, checkpoints, scrub, rebuild, members, layouts
//! path/      Paths: requests become batches, batches become durable, reads find their blocks
//! store/     Store: members and their commands, segments, volumes and maps, fetches, jobs
//! api/       what drivers see: commands, reports, notices
//! base/      limits, numbers, containers, measures
//! ```
//!
//! A method of a floor gets the floor below after its own arguments and before `out`: `&mut Store`
//! for `Paths`, `&mut Core` (store and paths) for `Upkeep`.
//!
//! Reading order for a write: `path/write/admit.rs` (limits, space, LSNs, acknowledgement),
//! `path/write/reduce.rs` (compression), `path/dedup.rs` (shared content), `path/write/place.rs`
//! (the open batch), `path/write/seal.rs` (plan, header, job, member writes),
//! `path/write/commit.rs` (map and live counters), `path/flush.rs` (durability), `path/journal.rs`
//! (small flushes).
//!
//! For a read: `path/read.rs` (pending blocks, map, runs), `store/fetch.rs` (member reads,
//! verification, reconstruction), `store/fetch/split.rs` (row by row), `store/hedge.rs` (hedged
//! reads).
//!
//! Space: `store/segment.rs` (states, reuse rule), `upkeep/clean.rs` (victims, moves),
//! `upkeep/checkpoint.rs` (images of the tables). Health: `upkeep/verification.rs` (content of each
//! block of a batch), `upkeep/scrub.rs`, `upkeep/rebuild.rs`, `upkeep/membership.rs`. Growth:
//! `upkeep/reshape.rs`.

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
