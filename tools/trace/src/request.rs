//! Requests of a trace, independent of its format.

use serde::Serialize;

/// Maximum plausible length of a read or write, bytes. No system issues longer ones, so a larger
/// length is a misread record; trims may have any length.
pub const TRANSFER_BYTES_MOST: u64 = 1 << 32;

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Trim, discard, unmap.
    Trim,
    /// Flush: earlier writes must become durable.
    Flush,
}

/// All kinds.
pub const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Trim, Kind::Flush];

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Flush => "flush",
        }
    }
}

/// One request. Offset and length are bytes, 0 for a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Request {
    /// Kind.
    pub kind: Kind,
    /// True for a write that must be durable when it is answered.
    pub fua: bool,
    /// Number of the device, from 0 in the order of first occurrence.
    pub device: u32,
    /// Start.
    pub offset: u64,
    /// Length. `offset + length` does not overflow.
    pub length: u64,
    /// Time since the first request of the trace, nanoseconds. Later records with earlier times
    /// have 0.
    pub time_ns: u64,
}

impl Request {
    /// A request without FUA.
    pub fn new(kind: Kind, device: u32, offset: u64, length: u64, time_ns: u64) -> Self {
        Self {
            kind,
            fua: false,
            device,
            offset,
            length,
            time_ns,
        }
    }

    /// End.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Reason that it is impossible: a range that overflows, a transfer beyond
    /// [`TRANSFER_BYTES_MOST`], a flush with a range.
    pub fn check(&self) -> Result<(), &'static str> {
        self.check_up_to(TRANSFER_BYTES_MOST)
    }

    /// Same with another limit for transfers.
    pub fn check_up_to(&self, most: u64) -> Result<(), &'static str> {
        if self.offset.checked_add(self.length).is_none() {
            return Err("its range goes beyond 2^64 bytes");
        }
        match self.kind {
            Kind::Read | Kind::Write if self.length > most => Err("it is longer than 4 GiB"),
            Kind::Flush if self.offset != 0 || self.length != 0 => {
                Err("it is a flush with a range")
            }
            Kind::Read | Kind::Trim | Kind::Flush if self.fua => Err("only writes have FUA"),
            _ => Ok(()),
        }
    }
}
