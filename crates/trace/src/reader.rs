//! Reads a trace, request by request.

use crate::binary::{self, Decoded, Vscsi};
use crate::compact;
use crate::detect::{self, Format, HEAD_BYTES};
use crate::devices::Devices;
use crate::error::{Place, TraceError};
use crate::input::{Input, Packing};
use crate::request::Request;
use crate::text::{Columns, Event, Lines};
use std::collections::VecDeque;
use std::io::Read;

/// What a user says of a trace.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its format; else it is told from its beginning.
    pub format: Option<Format>,
    /// Which event counts, for blktrace and blkparse; else the earliest there is.
    pub event: Option<Event>,
    /// Columns, for [`Format::Columns`].
    pub columns: Option<Columns>,
    /// True to leave records out that cannot be understood, and count them.
    pub skip_bad: bool,
    /// The one device whose requests count: its name, or, where devices have other names than numbers, its number in the order in which the trace names them, from 0.
    pub device: Option<String>,
}

/// The device that a user asked for, found as soon as the trace names it.
struct Wanted {
    text: String,
    /// Its number in the trace.
    found: Option<u32>,
    /// Devices that are known not to be it.
    passed: usize,
}

impl Wanted {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), found: None, passed: 0 }
    }

    /// True for a device by its name, or by its number if that can be no name.
    fn is(&self, name: &str, number: usize) -> bool {
        name == self.text || (name.parse::<u64>().is_err() && self.text.parse() == Ok(number))
    }

    fn takes(&mut self, request: &Request, names: &[String]) -> bool {
        while self.found.is_none() && self.passed < names.len() {
            if self.is(&names[self.passed], self.passed) {
                self.found = Some(self.passed as u32);
            }
            self.passed += 1;
        }
        self.found == Some(request.device)
    }

    /// What to say if it never came.
    fn missed(&self, names: &[String]) -> Option<TraceError> {
        const SHOWN: usize = 10;
        let some = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" ");
        let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
        self.found.is_none().then(|| TraceError::Device(format!("it has no device '{}'; those that it has: {some}{more}", self.text)))
    }
}

enum Decoder {
    Lines(Lines),
    Blktrace(Event),
    Vscsi(Vscsi),
    Compact(compact::Decoder),
}

/// A trace being read. As an iterator it ends at its first error.
pub struct Reader<'a> {
    input: Input<'a>,
    decoder: Decoder,
    format: Format,
    devices: Devices,
    ready: VecDeque<Request>,
    lines: u64,
    began_ns: Option<u64>,
    skip_bad: bool,
    wanted: Option<Wanted>,
    skipped: u64,
    cut: bool,
    done: bool,
}

/// What a step over the input gave.
enum Step {
    /// Requests, none or some.
    On,
    /// The end.
    End,
}

impl<'a> Reader<'a> {
    /// Begins to read.
    pub fn new(source: impl Read + 'a, options: &Options) -> Result<Self, TraceError> {
        let mut input = Input::new(source)?;
        let head = input.peek(HEAD_BYTES)?;
        let format = match (options.format, &options.columns) {
            (Some(format), _) => format,
            (None, Some(_)) => Format::Columns,
            (None, None) => detect::detect(head)?,
        };
        let decoder = match format {
            Format::Blktrace => Decoder::Blktrace(options.event.unwrap_or_else(|| detect::blktrace_event(head))),
            Format::Vscsi => Decoder::Vscsi(Vscsi::first(head).ok_or_else(|| TraceError::Unknown("its first record has no version of vscsi".to_owned()))?),
            Format::Compact => Decoder::Compact(compact::Decoder::default()),
            Format::Columns => {
                let columns = options.columns.clone().ok_or_else(|| TraceError::Unknown("its columns are not named".to_owned()))?;
                Decoder::Lines(Lines::Columns(columns))
            }
            // All others are lines.
            format => Decoder::Lines(detect::lines_of(format, options.event, head).unwrap_or(Lines::Csv)),
        };
        let skip_bad = options.skip_bad;
        let (devices, wanted) = (Devices::default(), options.device.as_deref().map(Wanted::new));
        Ok(Self { input, decoder, format, devices, ready: VecDeque::new(), lines: 0, began_ns: None, skip_bad, wanted, skipped: 0, cut: false, done: false })
    }

    /// The format that is read.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How the file is packed.
    pub fn packing(&self) -> Packing {
        self.input.packing()
    }

    /// Names of the devices so far.
    pub fn devices(&self) -> &[String] {
        self.devices.names()
    }

    /// Records left out so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// True if the end of the trace is missing: known once everything was read.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The next request.
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            if let Some(request) = self.ready.pop_front() {
                if self.wanted.as_mut().is_none_or(|wanted| wanted.takes(&request, self.devices.names())) {
                    return Ok(Some(request));
                }
                continue;
            }
            if self.done {
                return Ok(None);
            }
            let step = match &self.decoder {
                Decoder::Lines(_) => self.line(),
                Decoder::Blktrace(_) | Decoder::Vscsi(_) => self.record(),
                Decoder::Compact(_) => self.chunk(),
            };
            match step {
                Ok(Step::On) => {}
                Ok(Step::End) => {
                    self.done = true;
                    if let Some(missed) = self.wanted.as_ref().and_then(|wanted| wanted.missed(self.devices.names())) {
                        return Err(missed);
                    }
                }
                Err(error) => {
                    self.done = true;
                    return Err(error);
                }
            }
        }
    }

    /// Takes what a record gave, or its fault.
    fn take(&mut self, found: Result<[Option<Request>; 2], String>, place: Place) -> Result<Step, TraceError> {
        let checked = found.and_then(|found| {
            found.iter().flatten().try_for_each(|request| request.check().map_err(str::to_owned))?;
            Ok(found)
        });
        match checked {
            Ok(found) => {
                for mut request in found.into_iter().flatten() {
                    let began = *self.began_ns.get_or_insert(request.time_ns);
                    request.time_ns = request.time_ns.saturating_sub(began);
                    self.ready.push_back(request);
                }
                Ok(Step::On)
            }
            Err(_) if self.skip_bad => {
                self.skipped += 1;
                Ok(Step::On)
            }
            Err(what) => Err(TraceError::Record { place, what }),
        }
    }

    fn line(&mut self) -> Result<Step, TraceError> {
        let Some((length, bytes)) = self.input.line()? else { return Ok(Step::End) };
        self.lines += 1;
        let Decoder::Lines(lines) = &mut self.decoder else { return Ok(Step::End) };
        let found = lines.line(self.input.text(length), self.lines, &mut self.devices);
        self.input.consume(bytes);
        self.take(found, Place::Line(self.lines))
    }

    fn record(&mut self) -> Result<Step, TraceError> {
        let offset = self.input.offset();
        let most = match &self.decoder {
            Decoder::Vscsi(layout) => layout.bytes(),
            _ => binary::BLKTRACE_BYTES,
        };
        let record = self.input.peek(most)?;
        if record.len() < most {
            self.cut = !record.is_empty();
            return Ok(Step::End);
        }
        let decoded: Result<Decoded, String> = match &self.decoder {
            Decoder::Vscsi(layout) => binary::vscsi(record, *layout, &mut self.devices),
            Decoder::Blktrace(event) => binary::blktrace(record, *event, &mut self.devices),
            _ => return Ok(Step::End),
        };
        let bytes = match &decoded {
            Ok(decoded) => decoded.bytes,
            // Records of a fixed size can be passed over; where the next one of a blktrace begins nobody knows then.
            Err(_) if matches!(self.decoder, Decoder::Vscsi(_)) => most,
            Err(what) => return Err(TraceError::Record { place: Place::Offset(offset), what: what.clone() }),
        };
        if bytes > most && self.input.peek(bytes)?.len() < bytes {
            self.cut = true;
            return Ok(Step::End);
        }
        self.input.consume(bytes);
        self.take(decoded.map(|decoded| decoded.requests), Place::Offset(offset))
    }

    fn chunk(&mut self) -> Result<Step, TraceError> {
        let Decoder::Compact(decoder) = &mut self.decoder else { return Ok(Step::End) };
        match decoder.chunk(&mut self.input, &mut self.devices, &mut self.ready)? {
            compact::Chunk::More => Ok(Step::On),
            compact::Chunk::End { cut } => {
                self.cut = cut;
                Ok(Step::End)
            }
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_request().transpose()
    }
}
