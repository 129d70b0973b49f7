//! Which format a trace has.
//!
//! Binary formats are told by their magic or by the version in each record, texts by trying: a format fits if it understands each of the first
//! lines and finds a request in them. The formats of lines differ in where the operation stands, so that at most one fits.

use crate::binary::{self, Vscsi};
use crate::compact;
use crate::devices::Devices;
use crate::error::TraceError;
use crate::text::{self, Columns, Event, Lines};

/// Bytes of a trace that are looked at.
pub const HEAD_BYTES: usize = 64 << 10;
/// Lines that are tried.
const LINES_TRIED: usize = 50;

/// A format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Ours.
    Compact,
    /// blktrace, binary.
    Blktrace,
    /// blkparse, text.
    Blkparse,
    /// fio iolog, versions 2 and 3.
    Fio,
    /// MSR Cambridge.
    Msr,
    /// Alibaba.
    Alibaba,
    /// Tencent.
    Tencent,
    /// SPC, the UMass traces.
    Spc,
    /// CloudPhysics: VMware's vscsi, versions 1 and 2.
    Vscsi,
    /// DiskSim ASCII.
    DiskSim,
    /// MQSim and SSDsim.
    Mqsim,
    /// FIU.
    Fiu,
    /// JESD219A client trace.
    Jesd219,
    /// Operation, offset, length, time, device between commas.
    Csv,
    /// Columns that the user names.
    Columns,
}

/// Formats with the names that users give them.
pub const FORMATS: [(&str, Format); 15] = [
    ("compact", Format::Compact),
    ("blktrace", Format::Blktrace),
    ("blkparse", Format::Blkparse),
    ("fio", Format::Fio),
    ("msr", Format::Msr),
    ("alibaba", Format::Alibaba),
    ("tencent", Format::Tencent),
    ("spc", Format::Spc),
    ("vscsi", Format::Vscsi),
    ("disksim", Format::DiskSim),
    ("mqsim", Format::Mqsim),
    ("fiu", Format::Fiu),
    ("jesd219", Format::Jesd219),
    ("csv", Format::Csv),
    ("columns", Format::Columns),
];

impl Format {
    /// Its name.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = || FORMATS.map(|(name, _)| name).join(", ");
        FORMATS.iter().find(|(name, _)| *name == text).map(|(_, format)| *format).ok_or_else(|| format!("'{text}' is no format; there are {}", names()))
    }
}

/// Tells the format of what begins so.
pub fn detect(head: &[u8]) -> Result<Format, TraceError> {
    if head.starts_with(compact::MAGIC) {
        return Ok(Format::Compact);
    }
    if binary::is_blktrace(head) {
        return Ok(Format::Blktrace);
    }
    if Vscsi::detect(head).is_some() {
        return Ok(Format::Vscsi);
    }
    if head.starts_with(b"fio version ") {
        return Ok(Format::Fio);
    }
    const TEXTS: [Format; 10] = [
        Format::Blkparse,
        Format::Fiu,
        Format::Msr,
        Format::Alibaba,
        Format::Spc,
        Format::Tencent,
        Format::Csv,
        Format::DiskSim,
        Format::Mqsim,
        Format::Jesd219,
    ];
    let fits = |format: &Format| lines_of(*format, None, head).is_some_and(|lines| fits(lines, head));
    TEXTS
        .into_iter()
        .find(fits)
        .ok_or_else(|| TraceError::Unknown(if head.is_empty() { "it is empty".to_owned() } else { "no known format fits its beginning".to_owned() }))
}

/// True if each of the first lines is understood, and there is a request in them.
fn fits(mut lines: Lines, head: &[u8]) -> bool {
    let mut devices = Devices::default();
    let mut found = false;
    for (index, line) in whole_lines(head).take(LINES_TRIED).enumerate() {
        match lines.line(line, index as u64 + 1, &mut devices) {
            Ok(requests) if requests.iter().flatten().all(|request| request.check().is_ok()) => found |= requests[0].is_some() || requests[1].is_some(),
            _ => return false,
        }
    }
    found
}

/// Lines that end within the head; the last one counts only if nothing can follow it.
fn whole_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = if head.len() < HEAD_BYTES { head.len() } else { head.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) };
    head[..end].split(|byte| *byte == b'\n')
}

/// The decoder of a format of lines; `None` for binary ones. Which event counts is told by the head, unless it is said.
pub fn lines_of(format: Format, event: Option<Event>, head: &[u8]) -> Option<Lines> {
    Some(match format {
        Format::Blkparse => Lines::Blkparse(event.unwrap_or_else(|| earliest(whole_lines(head).filter_map(text::blkparse_event)))),
        Format::Fio => Lines::Fio { version: None, waited_us: 0 },
        Format::Msr => Lines::Msr,
        Format::Alibaba => Lines::Alibaba,
        Format::Tencent => Lines::Tencent,
        Format::Spc => Lines::Spc,
        Format::DiskSim => Lines::DiskSim,
        Format::Mqsim => Lines::Mqsim,
        Format::Fiu => Lines::Fiu,
        Format::Jesd219 => Lines::Columns(Columns::jesd219()),
        Format::Csv => Lines::Csv,
        Format::Compact | Format::Blktrace | Format::Vscsi | Format::Columns => return None,
    })
}

/// The event of a binary trace of the kernel that counts.
pub fn blktrace_event(head: &[u8]) -> Event {
    let mut at = 0;
    let records = std::iter::from_fn(|| {
        let record = head.get(at..at + binary::BLKTRACE_BYTES)?;
        // Only the length of what follows matters here, and it is there whatever event counts.
        at += binary::blktrace(record, Event::Queued, &mut Devices::default()).ok()?.bytes;
        Some(binary::blktrace_event(record))
    });
    earliest(records.flatten())
}

/// The first kind of event in the life of a request that the trace has: some have no queueing, devices made of others no issuing.
fn earliest(events: impl Iterator<Item = Event>) -> Event {
    events.min().unwrap_or(Event::Queued)
}
