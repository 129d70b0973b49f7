//! Block traces: readers of many formats, a compact format, and summary figures.
//!
//! Traces are foreign data. Every reader is total: any bytes give requests or an error with its
//! position, in bounded memory, and never a panic. Nothing here opens files or reads a clock.
//!
//! 1. [`input`]: gzip and zstd are decompressed as a stream.
//! 2. [`detect`]: the format is recognised by the first bytes, unless it is given.
//! 3. A decoder turns records into [`Request`]s: [`text`] line by line, [`binary`] record by
//!    record, [`compact`] chunk by chunk.
//! 4. [`Reader`] checks each, counts time from the first one, and records the names of devices.
//!
//! [`Dense`] numbers the blocks that a trace writes without gaps, for a replay on a model.
//!
//! [`Writer`] writes the compact format, CSV and fio's; [`Summary`] computes the figures of
//! `windrow-lab trace info`. `docs/lab/traces.md` describes the formats.

pub mod binary;
pub mod blocks;
pub mod compact;
pub mod detect;
pub mod devices;
pub mod error;
pub mod events;
pub mod input;
pub mod reader;
pub mod request;
pub mod summary;
pub mod text;
pub mod writer;

pub use blocks::Dense;
pub use detect::Format;
pub use error::{Place, TraceError};
pub use reader::{Options, Reader};
pub use request::{Kind, Request};
pub use summary::Summary;
pub use writer::{Target, Writer};

#[cfg(test)]
mod tests;
