//! Errors of traces.

use std::fmt;

/// Position of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Line of a text, from 1.
    Line(u64),
    /// Byte of a binary trace (uncompressed), from 0.
    Offset(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Offset(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// Reason that a trace cannot be read, or read further.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// No format matches.
    #[error("{0}")]
    Unknown(String),
    /// A record cannot be parsed.
    #[error("{place}: {what}")]
    Record {
        /// Position.
        place: Place,
        /// Reason.
        what: String,
    },
    /// The compression, or a checksum, is invalid.
    #[error("{place}: {what}")]
    Damaged {
        /// Position.
        place: Place,
        /// Reason.
        what: String,
    },
    /// It has an unsupported wrapping.
    #[error("it is {what}")]
    Wrapped {
        /// Its name.
        what: &'static str,
        /// Command that removes it.
        remedy: &'static str,
    },
    /// The counted event was chosen too early.
    #[error("{0}")]
    Event(String),
    /// It does not contain the selected device.
    #[error("{0}")]
    Device(String),
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
