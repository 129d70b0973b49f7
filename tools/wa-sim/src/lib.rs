//! Studies on modelled members: the real engine under virtual time, so that figures depend on no
//! disk and no clock.
//!
//! Read in this order: [`timings`] (published figures of the members), [`ftl`] and [`nand`] (a
//! timed SSD), [`device`] (what members are made of), [`content`] (what blocks hold), [`mix`] and
//! [`load`] (the workloads), [`pool`] (Windrow on such members), [`inplace`] (an array written in
//! place, with a journalling file system on it), [`study`] (configurations, loads, results). What
//! it is for and how it may mislead: `docs/lab/journal-study.md`. Apart from these: [`wa`], the
//! write-amplification laboratory (`docs/lab/overview.md`).

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
