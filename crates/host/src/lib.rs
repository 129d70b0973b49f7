//! Drives the engine with threads, member queues and a clock, and provides the administrators'
//! interfaces.
//!
//! Read in this order: `driver` (ownership of the engine, and why no event is left behind),
//! `sessions` (requests in flight), [`Pool`] (the handles), `alarm`, `workers` and `reaper` (the
//! threads). Then the surroundings of a pool: [`control`] (the control socket), [`metrics`],
//! [`recorder`], `hook`, [`registry`], [`offline`] (finding, creating and opening pools) and
//! [`daemon`].

mod alarm;
pub mod arrivals;
mod connections;
pub mod control;
mod controls;
pub mod daemon;
pub mod data;
mod directory;
mod driver;
mod exports;
pub mod failure;
mod histogram;
mod hook;
mod lanes;
mod limiter;
mod listener;
pub mod log;
mod members;
pub mod memory;
pub mod metrics;
pub mod offline;
mod outgoing;
pub mod paths;
mod pool;
pub mod process;
mod reaper;
pub mod recorder;
pub mod registry;
pub mod report;
pub mod schedule;
pub mod scrub;
pub mod served;
mod sessions;
pub mod space;
pub mod text;
mod wording;
mod workers;

pub use connections::{ConnectionReport, PeerReport};
pub use directory::{KnownMember, MemberPlace};
pub use exports::{
    ClientReport, DefaultExport, ExportReport, ExportTable, KeptExports, NamedExport,
};
pub use failure::Failure;
pub use histogram::{Histogram, Latencies, LatencyReport, LatencySummary, Operation};
pub use hook::EVENT_SCHEMA;
pub use pool::{HostOptions, Pool};
