//! Violations of the engine's guarantees.

use std::fmt;

/// Violated guarantee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// Bytes that no legal history explains.
    Content,
    /// Durable data is gone.
    Durability,
    /// An error where none is allowed.
    Error,
    /// A malformed or impossible answer or command.
    Protocol,
    /// Something never ends.
    Stuck,
    /// Leftovers at rest.
    Leak,
    /// Counters do not agree with what the members received.
    Accounting,
    /// The offline check disagrees.
    Check,
    /// The pool cannot be created or opened.
    Open,
    /// The engine panicked.
    Panic,
}

/// A violation with a one-line description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Violated guarantee.
    pub broken: Broken,
    /// Description.
    pub text: String,
}

impl Violation {
    /// A violation.
    pub fn new(broken: Broken, text: impl Into<String>) -> Self {
        Self {
            broken,
            text: text.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.broken, self.text)
    }
}

impl std::error::Error for Violation {}

/// Fails with a violation if the condition does not hold.
macro_rules! ensure {
    ($condition:expr, $broken:ident, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Violation::new($crate::Broken::$broken, format!($($text)+)));
        }
    };
}
pub(crate) use ensure;
