//! Writer of traces: the compact format, CSV, fio's log.

use crate::compact::{Encoder, Granule};
use crate::request::{Kind, Request};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};

/// Output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The compact format.
    Compact(Granule),
    /// `op,offset,length,us,device`.
    Csv,
    /// fio's log, version 3. Times become microseconds, devices files.
    Fio,
}

enum Sink<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Gzip(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Gzip(to) => to.flush(),
        }
    }
}

/// A trace being written. Without [`Writer::finish`] its end is missing.
pub struct Writer<W: Write> {
    sink: Sink<W>,
    target: Target,
    encoder: Option<Encoder>,
    named: usize,
    written: u64,
    dropped: u64,
}

/// Amounts written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Requests.
    pub requests: u64,
    /// Number of trims of which nothing was left in whole granules.
    pub dropped: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a trace, compressed with gzip if requested.
    pub fn new(to: W, target: Target, gzip: bool) -> io::Result<Self> {
        let sink = if gzip {
            Sink::Gzip(GzEncoder::new(to, Compression::default()))
        } else {
            Sink::Plain(to)
        };
        let encoder = match target {
            Target::Compact(granule) => Some(Encoder::new(granule)),
            Target::Csv | Target::Fio => None,
        };
        let mut writer = Self {
            sink,
            target,
            encoder,
            named: 0,
            written: 0,
            dropped: 0,
        };
        if target == Target::Fio {
            writer.sink.write_all(b"fio version 3 iolog\n")?;
        }
        Ok(writer)
    }

    /// Adds a request. `names` are those of the devices so far.
    pub fn add(&mut self, request: &Request, names: &[String]) -> io::Result<()> {
        match (&mut self.encoder, self.target) {
            (Some(encoder), _) => {
                if !encoder.add(request, names) {
                    self.dropped += 1;
                    return Ok(());
                }
                let ready = encoder.take();
                self.sink.write_all(&ready)?;
            }
            (None, Target::Fio) => self.fio(request, names)?,
            (None, _) => {
                let word = match (request.kind, request.fua) {
                    (Kind::Read, _) => "R",
                    (Kind::Write, false) => "W",
                    (Kind::Write, true) => "WF",
                    (Kind::Trim, _) => "T",
                    (Kind::Flush, _) => "F",
                };
                let (whole, part) = (request.time_ns / 1000, request.time_ns % 1000);
                let name = plain(
                    names
                        .get(request.device as usize)
                        .map_or("", String::as_str),
                );
                writeln!(
                    self.sink,
                    "{word},{},{},{whole}.{part:03},{name}",
                    request.offset, request.length
                )?;
            }
        }
        self.written += 1;
        Ok(())
    }

    fn fio(&mut self, request: &Request, names: &[String]) -> io::Result<()> {
        let time = request.time_ns / 1000;
        let name = |device: usize| plain(names.get(device).map_or("", String::as_str));
        while self.named <= request.device as usize {
            let name = name(self.named);
            write!(self.sink, "{time} {name} add\n{time} {name} open\n")?;
            self.named += 1;
        }
        let action = match request.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Trim => "trim",
            Kind::Flush => "sync",
        };
        writeln!(
            self.sink,
            "{time} {} {action} {} {}",
            name(request.device as usize),
            request.offset,
            request.length
        )
    }

    /// Ends the trace and returns its destination.
    pub fn finish(mut self) -> io::Result<(W, Written)> {
        if let Some(encoder) = self.encoder.take() {
            self.sink.write_all(&encoder.finish())?;
        }
        let mut to = match self.sink {
            Sink::Plain(to) => to,
            Sink::Gzip(to) => to.finish()?,
        };
        to.flush()?;
        Ok((
            to,
            Written {
                requests: self.written,
                dropped: self.dropped,
            },
        ))
    }
}

/// A name without field separators; never empty.
fn plain(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|shown| {
            if shown.is_whitespace() || shown.is_control() || shown == ',' {
                '_'
            } else {
                shown
            }
        })
        .collect();
    if clean.is_empty() {
        "_".to_owned()
    } else {
        clean
    }
}
