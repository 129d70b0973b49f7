//! Reasons for refusing a request, and their error numbers.

use super::request::Command;
use windrow_io::RequestError;

/// Error numbers of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ErrorCode {
    /// Operation not permitted.
    NotPermitted = 1,
    /// Input/output error.
    Io = 5,
    /// Invalid argument.
    Invalid = 22,
    /// No space left.
    NoSpace = 28,
    /// Value too large.
    Overflow = 75,
    /// The server, or the export, is going away.
    ShutDown = 108,
}

/// Reason that a request is refused or has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The command number is not known.
    #[error("unknown command")]
    UnknownCommand,
    /// A flag that does not belong to the command.
    #[error("flag not valid for this command")]
    BadFlags,
    /// Offset or length is not a multiple of the smallest block.
    #[error("offset and length must be multiples of the minimum block size")]
    Unaligned,
    /// A length of zero.
    #[error("the length must not be zero")]
    Empty,
    /// A payload beyond the largest block.
    #[error("the request is larger than the maximum block size")]
    TooLarge,
    /// Block status without a negotiated metadata context.
    #[error("no metadata context was negotiated")]
    NoContext,
    /// The server finishes requests in flight and takes no new ones.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// What the volume answered.
    #[error(transparent)]
    Volume(#[from] RequestError),
}

impl Refusal {
    /// The error number for this refusal of a `command`: the only place where errors are mapped to
    /// the protocol.
    pub fn code(self, command: Command) -> ErrorCode {
        match self {
            Self::UnknownCommand
            | Self::BadFlags
            | Self::Unaligned
            | Self::Empty
            | Self::TooLarge
            | Self::NoContext => ErrorCode::Invalid,
            Self::ShuttingDown => ErrorCode::ShutDown,
            Self::Volume(error) => match error {
                RequestError::Invalid => ErrorCode::Invalid,
                // A write that does not fit is answered like a full device; anything else beyond
                // the end is a wrong argument.
                RequestError::OutOfRange => match command {
                    Command::Write | Command::WriteZeroes => ErrorCode::NoSpace,
                    _ => ErrorCode::Invalid,
                },
                RequestError::NoSpace => ErrorCode::NoSpace,
                RequestError::ReadOnly => ErrorCode::NotPermitted,
                RequestError::Io => ErrorCode::Io,
                // The volume was deleted while it was served: for this client that is the end of
                // the service.
                RequestError::NoVolume | RequestError::Stopped => ErrorCode::ShutDown,
            },
        }
    }
}
