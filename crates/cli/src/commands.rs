//! The subcommands, one module each.

pub mod advise;
pub mod completions;
pub mod create;
pub mod estimate;
pub mod export;
pub mod inspect;
pub mod inspect_id;
pub mod list;
pub mod members;
pub mod plan;
pub mod pool;
pub mod properties;
pub mod rebuild;
pub mod rename;
pub mod repair;
pub mod replay;
pub mod scrub;
pub mod serve;
pub mod stats;
pub mod trace;
pub mod volume;
