//! The shared part of the command-line programs: results and failures as text and JSON, tables,
//! sizes, progress, output files, and access to a pool.

// These macros panic if the reader has gone; `output` has functions that do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod context;
pub mod figures;
pub mod files;
pub mod output;
pub mod progress;
pub mod properties;
pub mod start;
pub mod table;
#[doc(hidden)]
pub mod testing;
pub mod usage;
pub mod values;

/// Exit code of a failure.
pub const FAILED: u8 = 4;
