//! Small parts without state of the pool: limits, clocks of numbers, containers, measures.

pub(crate) mod background;
pub(crate) mod fault_injection;
pub mod limits;
pub(crate) mod lsn;
pub(crate) mod piece;
pub(crate) mod reserve;
pub(crate) mod slab;
pub(crate) mod stages;
pub(crate) mod weight;
