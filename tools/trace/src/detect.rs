//! Format detection.
//!
//! Binary formats are recognised by their magic or by the version in each record, texts by trial: a
//! format matches if it parses each of the first lines and finds a request in them. Line formats
//! differ in the position of the operation, so at most one matches.

use crate::binary::{self, Vscsi};
use crate::compact;
use crate::devices::Devices;
use crate::error::TraceError;
use crate::text::{self, Columns, Lines};

/// Number of bytes examined.
pub const HEAD_BYTES: usize = 256 << 10;
/// Number of these in which each binary record must be valid.
const RECORDS_BYTES: usize = 64 << 10;
/// Number of lines tried, without comments and empty ones.
const LINES_TRIED: usize = 50;

/// A format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Windrow's compact format.
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
    /// Operation, offset, length, time, device separated by commas.
    Csv,
    /// User-defined columns.
    Columns,
}

/// Formats with their names on the command line.
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
        FORMATS
            .iter()
            .find(|(_, format)| *format == self)
            .map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = || FORMATS.map(|(name, _)| name).join(", ");
        FORMATS
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, format)| *format)
            .ok_or_else(|| format!("'{text}' is no format; there are {}", names()))
    }
}

/// Binary format of a trace with this beginning.
pub fn detect_binary(head: &[u8]) -> Option<Format> {
    if head.starts_with(compact::MAGIC) {
        return Some(Format::Compact);
    }
    if binary::is_blktrace(head) {
        return Some(Format::Blktrace);
    }
    Vscsi::detect(&head[..head.len().min(RECORDS_BYTES)]).map(|_| Format::Vscsi)
}

/// Detects the format of a trace with this beginning; `is_whole` if nothing follows.
pub fn detect(head: &[u8], is_whole: bool) -> Result<Format, TraceError> {
    if let Some(format) = detect_binary(head) {
        return Ok(format);
    }
    if head.starts_with(b"fio version ") {
        return Ok(Format::Fio);
    }
    if is_blkparse(whole_lines(head, is_whole)) {
        return Ok(Format::Blkparse);
    }
    const TEXTS: [Format; 9] = [
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
    let fits = |format: &Format| {
        lines_of(*format).is_some_and(|lines| fits(lines, whole_lines(head, is_whole)))
    };
    TEXTS.into_iter().find(fits).ok_or_else(|| {
        TraceError::Unknown(if head.is_empty() {
            "it is empty".to_owned()
        } else {
            "no known format fits its beginning".to_owned()
        })
    })
}

/// True if each of the first lines is parsed, and there is a request in them.
fn fits<'a>(mut decoder: Lines, lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut devices = Devices::default();
    let mut found = false;
    for (line, number) in lines.take(LINES_TRIED).zip(1..) {
        match decoder.line(line, number, &mut devices) {
            Ok(requests)
                if requests
                    .iter()
                    .flatten()
                    .all(|request| request.check().is_ok()) =>
            {
                found |= requests[0].is_some() || requests[1].is_some()
            }
            _ => return false,
        }
    }
    found
}

/// True if each of the first lines is one that blkparse writes, and there is an event in them. The
/// kind of event does not matter: the trace may begin with hundreds of completions, or messages of
/// the scheduler.
fn is_blkparse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut found = false;
    for line in lines.take(LINES_TRIED) {
        match text::is_blkparse_event(line) {
            Ok(is_event) => found |= is_event,
            Err(_) => return false,
        }
    }
    found
}

/// Lines with content that end within the head; the last one counts only if nothing can follow it.
fn whole_lines(head: &[u8], is_whole: bool) -> impl Iterator<Item = &[u8]> {
    let end = if is_whole {
        head.len()
    } else {
        head.iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1)
    };
    head[..end]
        .split(|byte| *byte == b'\n')
        .filter(|line| text::content(line).is_some())
}

/// Decoder of a line format; `None` for binary ones, and for blkparse, where the reader chooses the
/// event.
pub fn lines_of(format: Format) -> Option<Lines> {
    Some(match format {
        Format::Fio => Lines::Fio {
            version: None,
            waited_us: 0,
        },
        Format::Msr => Lines::Msr,
        Format::Alibaba => Lines::Alibaba,
        Format::Tencent => Lines::Tencent,
        Format::Spc => Lines::Spc,
        Format::DiskSim => Lines::DiskSim,
        Format::Mqsim => Lines::Mqsim,
        Format::Fiu => Lines::Fiu,
        Format::Jesd219 => Lines::Columns(Columns::jesd219()),
        Format::Csv => Lines::Csv,
        Format::Blkparse | Format::Compact | Format::Blktrace | Format::Vscsi | Format::Columns => {
            return None;
        }
    })
}
