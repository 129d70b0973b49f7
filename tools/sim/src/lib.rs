//! Deterministic simulator: a second driver of the engine.
//!
//! A seed determines everything: topology, limits, workload, faults, power cuts, and the order in
//! which member commands and jobs end. Equal seeds give equal runs, bit for bit. Faults stay within
//! the redundancy, so any failure is a bug of the engine.
//!
//! Read in this order: [`content`] (block contents), [`members`] (media with a volatile cache,
//! faults, power cuts), [`model`] (reference model), [`scenario`] and [`workload`] (decisions of a
//! seed), [`world`] (the event loop), [`run`] (one run from creation to the last comparison),
//! [`shrink`] (a short failing run), [`exhaustive`] (all power cuts of a short run).

pub mod content;
pub mod exhaustive;
pub mod members;
pub mod model;
mod refusals;
pub mod run;
pub mod scenario;
pub mod shrink;
mod spread;
pub mod trace;
mod violation;
pub mod workload;
pub mod world;

pub use run::{Beyond, Canary, LeftOut, Outcome, RunOptions, Tries, run_seed, run_without};
pub use violation::{Broken, Violation};

#[cfg(test)]
mod tests;
