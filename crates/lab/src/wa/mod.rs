//! The write-amplification laboratory.

pub mod log;
pub mod operation;
