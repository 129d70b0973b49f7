//! Write-amplification laboratory: the effect of a workload on drives, and of changes. It runs the
//! policies of the engine's own policy crate on a log without data, so that thousands of segments
//! and millions of writes take seconds.
//!
//! Read in this order: [`operation`] (operations), [`workload`] (synthetic patterns), [`requests`]
//! (published loads), [`recorded`] (traces), [`log`] (the pool), [`run`] (policies by name,
//! figures), [`oracle`] (future knowledge), [`study`] (the graphs and tables of the sources),
//! [`engine`] (the engine itself), [`served`] (the cost in the engine, without it). Design, figures
//! and their comparison: `docs/lab/overview.md`.

pub mod engine;
pub mod log;
pub mod operation;
pub mod oracle;
pub mod recorded;
pub mod requests;
pub mod run;
pub mod served;
pub mod study;
pub mod workload;
