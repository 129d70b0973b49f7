//! Studies on modelled members: the production engine under virtual time, so that figures do not
//! depend on a disk or a clock.
//!
//! Read in this order: [`timings`] (published figures of the members), [`ftl`] and [`nand`] (a
//! timed SSD), [`device`] (members), [`content`] (contents of blocks), [`mix`] and [`load`] (the
//! workloads), [`pool`] (Windrow on such members), [`inplace`] (an array written in place, with a
//! journalling file system on it), [`study`] (configurations, loads, results). Purpose and limits:
//! `docs/lab/journal-study.md`. Separate from these: [`wa`], the write-amplification laboratory
//! (`docs/lab/overview.md`).

pub mod content;
pub mod device;
pub mod ftl;
pub mod inplace;
pub mod load;
pub mod mix;
pub mod nand;
pub mod pool;
pub mod study;
pub mod timings;
pub mod wa;

pub use windrow_random as rng;
