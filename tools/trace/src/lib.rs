//! Block traces: readers of many formats, a compact format of our own, and what a trace looks like
//! in figures.
//!
//! Traces come from elsewhere. Every reader is total: any bytes give requests or an error that says
//! where, in bounded memory, and never a panic. Nothing here opens files or reads a clock.
//!
//! 1. [`input`]: gzip and zstd are unpacked in a stream. 2. [`detect`]: the format is recognised by
//!    the first bytes, unless it is named. 3. A decoder turns records into [`Request`]s: [`text`]
//!    line by line, [`binary`] record by record, [`compact`] chunk by chunk. 4. [`Reader`] checks
//!    each, counts time from the first one, and remembers the names of devices.
//!
//! [`Dense`] lays the blocks that a trace writes side by side, for those who replay it on a model.
//!
//! [`Writer`] writes the compact format, CSV and fio's; [`Summary`] adds up what
//! `windrow-lab trace info` shows. The formats are described in `docs/lab/traces.md`, ours in
//! `docs/lab/traces.md`.

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
