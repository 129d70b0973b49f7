//! The subcommands, one module each.

pub mod advise;
pub mod plan;
pub mod replay;
pub mod trace;
