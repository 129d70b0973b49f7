//! Formats of blkparse and fio.

use super::fields::{Fields, number, show};
use super::{Event, Found, NOTHING, Problem};
use crate::devices::Devices;
use crate::request::{Kind, Request};

const SECTOR: u64 = 512;

/// Lines that blkparse writes before, between and after the events.
const ASIDE: &[&[u8]] = &[
    b"CPU",
    b"Total",
    b"Throughput",
    b"Events",
    b"Input",
    b"Skips",
    b"Reads",
    b"Read",
    b"Writes",
    b"IO",
    b"PC",
];

/// True for `8,16`.
fn is_device(field: &[u8]) -> bool {
    let mut parts = field.splitn(2, |byte| *byte == b',');
    let (major, minor) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    number(major).is_some() && number(minor).is_some()
}

/// True if the first field is a device: a line of an event.
pub fn begins_with_device(line: &[u8]) -> bool {
    Fields::spaces(line).next().is_some_and(is_device)
}

/// Event of a line, if it is one of those that count.
pub fn event(line: &[u8]) -> Option<Event> {
    let mut fields = Fields::spaces(line);
    let device = fields.next()?;
    let event = fields.by_ref(4)?;
    is_device(device).then_some(())?;
    match event {
        b"Q" => Some(Event::Queued),
        b"D" => Some(Event::Issued),
        b"C" => Some(Event::Completed),
        _ => None,
    }
}

impl<'a> Fields<'a> {
    /// Skips `pass` fields and returns the next.
    fn by_ref(&mut self, pass: usize) -> Option<&'a [u8]> {
        for _ in 0..pass {
            self.next()?;
        }
        self.next()
    }
}

/// One line of blkparse's default output.
pub fn blkparse(line: &[u8], wanted: Event, devices: &mut Devices) -> Result<Found, Problem> {
    let mut fields = Fields::spaces(line);
    let device = fields.need("device")?;
    if !is_device(device) {
        let aside = ASIDE.iter().any(|word| device.starts_with(word))
            || device.iter().all(|byte| !byte.is_ascii_alphanumeric());
        return if aside {
            Ok(NOTHING)
        } else {
            Err(format!("the device is '{}'", show(device)))
        };
    }
    fields.number("cpu")?;
    fields.number("sequence")?;
    let time = fields.time("time", 1_000_000_000)?;
    fields.number("process")?;
    fields.need("event")?;
    if event(line) != Some(wanted) {
        return Ok(NOTHING);
    }
    let what = fields.need("kind of request")?;
    let asked = kind_of(what)?;
    let number_of = devices.number(device)?;
    sectors(&mut fields, asked, number_of, time)
}

/// Meaning of a request's letters.
pub struct Asked {
    /// Everything before it must be durable first.
    flush: bool,
    kind: Option<Kind>,
    fua: bool,
    /// Without an address it is not an error, but not a request either: passed-through commands
    /// have the same letter.
    placeless: bool,
}

/// Parses the letters: F in front, then the kind, then F for FUA among others. Write-zeroes are N,
/// or WZ, and count as trims: they take no space. Zone operations (Z) are skipped: the address of
/// an append is not recorded, nor the length of zones.
pub fn kind_of(what: &[u8]) -> Result<Asked, Problem> {
    let (flush, rest) = what
        .strip_prefix(b"F")
        .map_or((false, what), |rest| (true, rest));
    let kind = match rest.first() {
        Some(b'R') => Some(Kind::Read),
        Some(b'W') if rest.get(1) == Some(&b'Z') => Some(Kind::Trim),
        Some(b'W') => Some(Kind::Write),
        Some(b'D' | b'N') => Some(Kind::Trim),
        Some(b'F' | b'S' | b'M' | b'A' | b'Z') | None => None,
        Some(_) => return Err(format!("the kind of request is '{}'", show(what))),
    };
    Ok(Asked {
        flush,
        kind,
        fua: kind == Some(Kind::Write) && rest[1..].contains(&b'F'),
        placeless: flush || rest.first() == Some(&b'N'),
    })
}

/// Reads `sector + sectors`.
pub fn sectors(
    fields: &mut Fields<'_>,
    asked: Asked,
    device: u32,
    time: u64,
) -> Result<Found, Problem> {
    let Asked {
        flush,
        kind,
        fua,
        placeless,
    } = asked;
    let before = flush.then(|| Request::new(Kind::Flush, device, 0, 0, time));
    let Some(kind) = kind else {
        return Ok([before, None]);
    };
    // An empty flush has no sector; its process name is here.
    let sector = match fields.next().map(number) {
        Some(Some(sector)) => sector,
        _ if placeless => return Ok([before, None]),
        _ => return Err("there is no sector".to_owned()),
    };
    let length = match fields.next() {
        Some(b"+") => fields.scaled("size", SECTOR)?,
        _ => 0,
    };
    if length == 0 {
        return Ok([before, None]);
    }
    let offset = sector
        .checked_mul(SECTOR)
        .ok_or("the sector is too large")?;
    Ok([
        before,
        Some(Request {
            fua,
            ..Request::new(kind, device, offset, length, time)
        }),
    ])
}

/// One line of fio's log.
pub fn fio(
    line: &[u8],
    at: u64,
    version: &mut Option<u8>,
    waited_us: &mut u64,
    devices: &mut Devices,
) -> Result<Found, Problem> {
    if at == 1 || version.is_none() {
        *version = match line {
            b"fio version 2 iolog" => Some(2),
            b"fio version 3 iolog" => Some(3),
            _ => {
                return Err(
                    "it does not begin with 'fio version 2 iolog' or 'fio version 3 iolog'"
                        .to_owned(),
                );
            }
        };
        return Ok(NOTHING);
    }
    let mut fields = Fields::spaces(line);
    let time_us = if *version == Some(3) {
        fields.number("time")?
    } else {
        *waited_us
    };
    let time = time_us.checked_mul(1000).ok_or("the time is too large")?;
    let file = fields.need("file")?;
    let action = fields.need("action")?;
    let kind = match action {
        b"add" | b"open" | b"close" => return Ok(NOTHING),
        // Version 2: microseconds since the last wait. Version 3 has times instead.
        b"wait" => {
            let microseconds = fields.number("time to wait")?;
            if *version == Some(2) {
                *waited_us = waited_us
                    .checked_add(microseconds)
                    .ok_or("the times to wait are too large")?;
            }
            return Ok(NOTHING);
        }
        b"read" => Kind::Read,
        b"write" => Kind::Write,
        b"trim" => Kind::Trim,
        b"sync" | b"datasync" | b"sync_file_range" => Kind::Flush,
        other => return Err(format!("the action is '{}'", show(other))),
    };
    let device = devices.number(file)?;
    if kind == Kind::Flush {
        return Ok([Some(Request::new(kind, device, 0, 0, time)), None]);
    }
    let (offset, length) = (fields.number("offset")?, fields.number("length")?);
    Ok([Some(Request::new(kind, device, offset, length, time)), None])
}
