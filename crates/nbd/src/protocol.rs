//! The protocol without I/O: bytes in, actions out.
//!
//! 1. [`Handshake`]: greeting, client flags, options, until a client enters transmission or is
//!    rejected.
//! 2. [`RequestParser`]: requests of the transmission phase, with all checks that need no volume.
//! 3. [`ReplyQueue`]: replies as pieces of bytes and payload slices in sending order.
//!
//! Invariants: every function is total on any input. A step depends on the bytes only, never on how
//! they were split. No length field of a peer leads to memory beyond [`MAX_REQUEST_BYTES`] or
//! [`MAX_OPTION_BYTES`]. All numbers on the wire are big-endian.

mod handshake;
mod queue;
mod refusal;
mod request;
pub(crate) mod wire;

pub use handshake::{Agreement, Denied, Exports, Handshake, HandshakeStep};
pub(crate) use queue::{HELD_TIMES, Question};
pub use queue::{Released, ReplyQueue};
pub use refusal::{ErrorCode, Refusal};
pub(crate) use request::COPY_BYTES;
pub use request::{Action, Command, Incoming, RequestParser, RequestStep, Rules};
pub use wire::{MAX_OPTION_BYTES, MAX_REQUEST_BYTES};

/// Reason that a connection is closed although the client did not ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// Client flags that were not offered, or missing ones that are needed.
    #[error("the client flags are not acceptable")]
    ClientFlags,
    /// An option without its magic number.
    #[error("an option does not begin with its magic number")]
    OptionMagic,
    /// Option data beyond any sensible length.
    #[error("an option is too long")]
    OptionLength,
    /// More options than any client needs.
    #[error("too many options")]
    OptionCount,
    /// The requested export does not exist, and the option allows no error reply.
    #[error("the export cannot be opened")]
    Export,
    /// A request without its magic number.
    #[error("a request does not begin with its magic number")]
    RequestMagic,
    /// A write so large that its payload is not skipped.
    #[error("a write is far too large")]
    RequestLength,
}
