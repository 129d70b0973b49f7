//! The write-amplification laboratory: what a workload does to drives, and what if. It runs the
//! policies of the engine's own policy crate on a log without bytes, so that thousands of segments
//! and millions of writes take seconds.
//!
//! Read in this order: [`operation`] (what is asked for), [`workload`] (synthetic patterns),
//! [`requests`] (published loads), [`recorded`] (traces), [`log`] (the pool), [`run`] (policies by
//! name, figures), [`oracle`] (future knowledge), [`study`] (the graphs and tables of the sources),
//! [`engine`] (the engine itself), [`served`] (what it costs there, without it). Design, figures
//! and how they compare: `docs/lab/overview.md`.

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
