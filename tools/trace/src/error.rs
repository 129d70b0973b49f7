//! What can be wrong with a trace.

use std::fmt;

/// Where something is wrong.
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

/// A trace that cannot be read, or read further.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// No format fits.
    #[error("{0}")]
    Unknown(String),
    /// A record cannot be understood.
    #[error("{place}: {what}")]
    Record {
        /// Where.
        place: Place,
        /// Why.
        what: String,
    },
    /// The compression, or a checksum, does not fit.
    #[error("{place}: {what}")]
    Damaged {
        /// Where.
        place: Place,
        /// Why.
        what: String,
    },
    /// It is wrapped in a way that is not taken off here.
    #[error("it is {what}")]
    Wrapped {
        /// What it is.
        what: &'static str,
        /// How to take it off.
        remedy: &'static str,
    },
    /// Which event of a request counts was decided too early.
    #[error("{0}")]
    Event(String),
    /// The device that was asked for is not in it.
    #[error("{0}")]
    Device(String),
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
