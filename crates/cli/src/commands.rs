//! The subcommands, one module each.

pub mod completions;
pub mod create;
pub mod estimate;
pub mod export;
pub mod inspect;
pub mod inspect_id;
pub mod list;
pub mod members;
pub mod pool;
pub mod rebuild;
pub mod rename;
pub mod repair;
pub mod scrub;
pub mod serve;
pub mod stats;
pub mod volume;
