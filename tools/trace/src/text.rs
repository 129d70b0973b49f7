//! Line formats. One function for each format parses a line; none keeps more than names of devices.
//!
//! | format | fields of a line |
//! |---|---|
//! | blkparse | device cpu sequence seconds pid event what sector + sectors \[process\] |
//! | fio, versions 2 and 3 | \[us\] file action \[offset length\] |
//! | MSR Cambridge | 100 ns since 1601, host, disk, Read or Write, offset, bytes, response time |
//! | Alibaba | device, R or W, offset, bytes, us |
//! | Tencent | seconds, sector, sectors, 0 read or 1 write, volume |
//! | SPC (UMass) | unit, block of 512 bytes, bytes, R or W, seconds |
//! | CSV (ours, others) | R, W, T or F, offset, bytes, us, \[device\] |
//! | DiskSim | milliseconds device sector sectors flags (hexadecimal, bit 0: read) |
//! | MQSim, SSDsim | ns device sector sectors 0 write or 1 read |
//! | FIU | ns pid process sector sectors R or W major minor hash |
//! | columns | user-defined |

mod columns;
mod fields;
mod kernel;
mod published;
pub mod tracepoint;

pub use columns::{Column, Columns};

use crate::devices::Devices;
use crate::input::wrapping::UTF_8_MARK;
use crate::request::Request;
use fields::Fields;

/// Counted event of a request, in traces of the kernel's block layer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// Queued, before requests are merged.
    Queued,
    /// Issued to the driver.
    Issued,
    /// Completed.
    Completed,
}

impl Event {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Issued => "issued",
            Self::Completed => "completed",
        }
    }
}

/// A format of lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lines {
    /// blkparse's default output.
    Blkparse(Event),
    /// fio's log, version 2 or 3, according to its first line.
    Fio {
        /// The version, once the first line was seen.
        version: Option<u8>,
        /// Sum of waits so far, of version 2.
        waited_us: u64,
    },
    /// MSR Cambridge.
    Msr,
    /// Alibaba.
    Alibaba,
    /// Tencent.
    Tencent,
    /// SPC.
    Spc,
    /// CSV.
    Csv,
    /// DiskSim.
    DiskSim,
    /// MQSim and SSDsim.
    Mqsim,
    /// FIU.
    Fiu,
    /// User-defined columns.
    Columns(Columns),
}

/// Result of a line: nothing, one request, or a flush and a write.
pub type Found = [Option<Request>; 2];

const NOTHING: Found = [None, None];

/// Description of an error in a line.
pub type Problem = String;

impl Lines {
    /// Parses a line. `number` counts lines with content ([`content`]) from 1: names of columns may
    /// follow comments.
    pub fn line(
        &mut self,
        line: &[u8],
        number: u64,
        devices: &mut Devices,
    ) -> Result<Found, Problem> {
        let Some(line) = content(line) else {
            return Ok(NOTHING);
        };
        if number == 1
            && !matches!(self, Self::Fio { .. } | Self::Blkparse(_))
            && fields::is_heading(line)
        {
            return Ok(NOTHING);
        }
        let one = |request: Request| [Some(request), None];
        match self {
            Self::Blkparse(event) => kernel::blkparse(line, *event, devices),
            Self::Fio { version, waited_us } => {
                kernel::fio(line, number, version, waited_us, devices)
            }
            Self::Msr => published::msr(Fields::commas(line), devices).map(one),
            Self::Alibaba => published::alibaba(Fields::commas(line), devices).map(one),
            Self::Tencent => published::tencent(Fields::commas(line), devices).map(one),
            Self::Spc => published::spc(Fields::commas(line), devices).map(one),
            Self::Csv => published::csv(Fields::commas(line), devices).map(one),
            Self::DiskSim => published::disksim(Fields::spaces(line), devices).map(one),
            Self::Mqsim => published::mqsim(Fields::spaces(line), devices).map(one),
            Self::Fiu => published::fiu(Fields::spaces(line), devices).map(one),
            Self::Columns(columns) => columns.line(line, devices).map(one),
        }
    }
}

/// A line without surrounding spaces and a leading byte order mark, which concatenated files have
/// in their middle. `None` for comments and empty lines.
pub fn content(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_prefix(UTF_8_MARK).unwrap_or(line).trim_ascii();
    (!line.is_empty() && !line.starts_with(b"#")).then_some(line)
}

/// True for an event line of blkparse, of any kind; an error if it is neither that nor another line
/// of blkparse.
pub fn is_blkparse_event(line: &[u8]) -> Result<bool, Problem> {
    let Some(line) = content(line) else {
        return Ok(false);
    };
    let requests = kernel::blkparse(line, Event::Queued, &mut Devices::default())?;
    requests
        .iter()
        .flatten()
        .try_for_each(|request| request.check().map_err(str::to_owned))?;
    Ok(kernel::begins_with_device(line))
}

/// Event of a line of blkparse, if it is one of those that count.
pub fn blkparse_event(line: &[u8]) -> Option<Event> {
    kernel::event(content(line)?)
}
