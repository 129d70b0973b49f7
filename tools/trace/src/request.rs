//! What a trace is made of, whatever its format.

use serde::Serialize;

/// Largest read or write that is believed, bytes. No system issues such, so a larger length is a
/// record that was misread; trims may be of any length.
pub const TRANSFER_BYTES_MOST: u64 = 1 << 32;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Trim, discard, unmap.
    Trim,
    /// Flush: what was written before is to be durable.
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
    /// What is asked for.
    pub kind: Kind,
    /// True for a write that is to be durable when it is answered.
    pub fua: bool,
    /// Number of the device, from 0 in the order in which the trace names them.
    pub device: u32,
    /// Where it begins.
    pub offset: u64,
    /// How long it is. `offset + length` does not overflow.
    pub length: u64,
    /// Time since the first request of the trace, nanoseconds. Earlier ones that come later have 0.
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

    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Why it cannot be: ranges that wrap round, transfers beyond [`TRANSFER_BYTES_MOST`], a flush
    /// with a range.
    pub fn check(&self) -> Result<(), &'static str> {
        self.check_up_to(TRANSFER_BYTES_MOST)
    }

    /// The same with another bound for transfers.
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
