//! Reader of traces, request by request.

use crate::binary::{self, Decoded, Vscsi};
use crate::compact;
use crate::detect::{self, Format, HEAD_BYTES};
use crate::devices::Devices;
use crate::error::{Place, TraceError};
use crate::events::{Choice, Events};
use crate::input::wrapping::{self, UTF_8_MARK};
use crate::input::{Input, Packing};
use crate::request::Request;
use crate::text::{self, Columns, Event, Lines};
use std::collections::VecDeque;
use std::io::Read;

/// User options of a trace.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its format; `None`: detected.
    pub format: Option<Format>,
    /// Counted event, for blktrace and blkparse; `None`: the earliest there is.
    pub event: Option<Event>,
    /// Columns, for [`Format::Columns`].
    pub columns: Option<Columns>,
    /// True to skip and count records that cannot be parsed, and to end before damage.
    pub skip_bad: bool,
    /// The one device whose requests count: its name, or, if device names are not numbers, its
    /// number in the order of first occurrence, from 0.
    pub device: Option<String>,
}

/// The selected device, found as soon as the trace names it.
struct Wanted {
    text: String,
    /// Its number in the trace.
    found: Option<u32>,
    /// Number of devices known not to be it.
    passed: usize,
}

impl Wanted {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            found: None,
            passed: 0,
        }
    }

    /// True for a device by its name, or by its number if that cannot be a name.
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

    /// Error if it never occurred.
    fn missed(&self, names: &[String]) -> Option<TraceError> {
        const SHOWN: usize = 10;
        let some = names
            .iter()
            .take(SHOWN)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ");
        let more = if names.len() > SHOWN {
            format!(" and {} more", names.len() - SHOWN)
        } else {
            String::new()
        };
        self.found.is_none().then(|| {
            TraceError::Device(format!(
                "it has no device '{}'; those that it has: {some}{more}",
                self.text
            ))
        })
    }
}

enum Decoder {
    Lines(Lines),
    Blkparse,
    Blktrace,
    Vscsi(Vscsi),
    Compact(compact::Decoder),
}

/// A trace being read. As an iterator it ends at its first error.
pub struct Reader<'a> {
    input: Input<'a>,
    decoder: Decoder,
    format: Format,
    events: Events,
    devices: Devices,
    ready: VecDeque<Request>,
    /// An error after the last ready request.
    behind: Option<TraceError>,
    lines: u64,
    /// Number of lines that are not comments.
    filled_lines: u64,
    began_ns: Option<u64>,
    skip_bad: bool,
    wanted: Option<Wanted>,
    skipped: u64,
    cut: bool,
    damage: Option<String>,
    done: bool,
}

/// Result of a step over the input.
enum Step {
    /// Zero or more requests.
    On,
    /// The end.
    End,
}

impl<'a> Reader<'a> {
    /// Starts reading.
    pub fn new(source: impl Read + 'a, options: &Options) -> Result<Self, TraceError> {
        let mut input = Input::new(source)?;
        // A source that fails at its beginning has no format; the failure is the error then.
        let (format, decoder) = match begin(&mut input, options) {
            Ok(begun) => begun,
            Err(error) => return Err(input.take_failure().unwrap_or(error)),
        };
        Ok(Self {
            input,
            decoder,
            format,
            events: Events::new(options.event),
            devices: Devices::default(),
            ready: VecDeque::new(),
            behind: None,
            lines: 0,
            filled_lines: 0,
            began_ns: None,
            skip_bad: options.skip_bad,
            wanted: options.device.as_deref().map(Wanted::new),
            skipped: 0,
            cut: false,
            damage: None,
            done: false,
        })
    }

    /// Format in use.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Compression of the file.
    pub fn packing(&self) -> Packing {
        self.input.packing()
    }

    /// Names of the devices so far.
    pub fn devices(&self) -> &[String] {
        self.devices.names()
    }

    /// Number of records skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// True if the end of the trace is missing: known once everything was read.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Position from which the rest was unreadable and skipped, and the reason: known once
    /// everything was read.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Counted event of a request, in a trace of the kernel's block layer: known once everything
    /// was read.
    pub fn counted_event(&self) -> Option<Event> {
        matches!(self.decoder, Decoder::Blkparse | Decoder::Blktrace)
            .then(|| self.events.counted())
            .flatten()
    }

    /// Next request.
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            if let Some(request) = self.ready.pop_front() {
                if self
                    .wanted
                    .as_mut()
                    .is_none_or(|wanted| wanted.takes(&request, self.devices.names()))
                {
                    return Ok(Some(request));
                }
                continue;
            }
            if let Some(error) = self.behind.take() {
                return Err(self.fail(error));
            }
            if self.done {
                let missed = self
                    .wanted
                    .take()
                    .and_then(|wanted| wanted.missed(self.devices.names()));
                return missed.map_or(Ok(None), Err);
            }
            let step = match &self.decoder {
                Decoder::Lines(_) | Decoder::Blkparse => self.line(),
                Decoder::Blktrace | Decoder::Vscsi(_) => self.record(),
                Decoder::Compact(_) => self.chunk(),
            };
            match step.and_then(|step| self.check_end(step)) {
                Ok(Step::On) => {}
                Ok(Step::End) => {
                    self.done = true;
                    self.decide(true);
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Records that nothing more follows an error.
    fn fail(&mut self, error: TraceError) -> TraceError {
        (self.done, self.wanted) = (true, None);
        error
    }

    /// Turns an early end, or an unreadable position, into an error, or into an end that is
    /// recorded.
    fn check_end(&mut self, step: Step) -> Result<Step, TraceError> {
        let failure = if matches!(step, Step::End) {
            self.input.take_failure()
        } else {
            None
        };
        match failure {
            None => Ok(step),
            Some(error) => self.stop(error),
        }
    }

    /// Ends at damage if the user wants the part before it.
    fn stop(&mut self, error: TraceError) -> Result<Step, TraceError> {
        if !self.skip_bad
            || !matches!(
                error,
                TraceError::Damaged { .. } | TraceError::Record { .. }
            )
        {
            return Err(error);
        }
        (self.cut, self.damage) = (true, Some(error.to_string()));
        Ok(Step::End)
    }

    /// Decides the counted event, and takes the requests that were held for it.
    fn decide(&mut self, is_end: bool) {
        let released = self.events.decide(is_end);
        let (requests, names) = (released.requests, released.devices);
        self.ready = requests;
        if let Some((before, place, what)) = released.first_bad {
            if self.skip_bad {
                self.skipped += released.bad;
            } else {
                self.ready.truncate(before);
                self.behind = Some(TraceError::Record { place, what });
            }
        }
        // Each device of a kernel trace has its number as its name, so names pass through
        // unchanged.
        for name in names.names() {
            // There are no more than before, which was allowed.
            drop(self.devices.number(name.as_bytes()));
        }
        if let Some(first) = self.ready.front() {
            let began = *self.began_ns.get_or_insert(first.time_ns);
            self.ready
                .iter_mut()
                .for_each(|request| request.time_ns = request.time_ns.saturating_sub(began));
        }
    }

    /// Takes the result of a record, or its error.
    fn take(
        &mut self,
        found: Result<[Option<Request>; 2], String>,
        place: Place,
    ) -> Result<Step, TraceError> {
        match checked(found) {
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
        let (length, bytes) = match self.input.line() {
            Ok(None) => return Ok(Step::End),
            Ok(Some(found)) => found,
            Err(error) if !self.skip_bad => return Err(error),
            Err(_) => {
                self.input.skip_line();
                (self.lines, self.filled_lines, self.skipped) =
                    (self.lines + 1, self.filled_lines + 1, self.skipped + 1);
                return Ok(Step::On);
            }
        };
        let place = Place::Line(self.lines + 1);
        let line = self.input.text(length);
        let number = self.filled_lines + u64::from(text::content(line).is_some());
        let step = match &mut self.decoder {
            Decoder::Lines(lines) => {
                let found = lines.line(line, number, &mut self.devices);
                self.take(found, place)
            }
            _ => match self.events.choose(text::blkparse_event(line))? {
                Choice::Count(event) => {
                    let found = Lines::Blkparse(event).line(line, number, &mut self.devices);
                    self.take(found, place)
                }
                Choice::Hold(event) => {
                    let found =
                        Lines::Blkparse(event).line(line, number, self.events.devices(event));
                    self.hold(event, found, place);
                    Ok(Step::On)
                }
            },
        };
        (self.lines, self.filled_lines) = (self.lines + 1, number);
        self.input.consume(bytes);
        step
    }

    /// Holds the result of a record until the counted event is known.
    fn hold(&mut self, event: Event, found: Result<[Option<Request>; 2], String>, place: Place) {
        if self.events.hold(event, checked(found), place) {
            self.decide(false);
        }
    }

    fn record(&mut self) -> Result<Step, TraceError> {
        let place = Place::Offset(self.input.offset());
        let most = match &self.decoder {
            Decoder::Vscsi(layout) => layout.bytes(),
            _ => binary::BLKTRACE_BYTES,
        };
        let record = self.input.peek(most);
        if record.len() < most {
            self.cut = !record.is_empty();
            return Ok(Step::End);
        }
        let choice = match &self.decoder {
            Decoder::Vscsi(_) => None,
            _ => Some(self.events.choose(binary::blktrace_event(record))?),
        };
        let decoded: Result<Decoded, String> = match (&self.decoder, choice) {
            (Decoder::Vscsi(layout), _) => binary::vscsi(record, *layout, &mut self.devices),
            (_, Some(Choice::Count(event))) => binary::blktrace(record, event, &mut self.devices),
            (_, Some(Choice::Hold(event))) => {
                binary::blktrace(record, event, self.events.devices(event))
            }
            _ => return Ok(Step::End),
        };
        let bytes = match &decoded {
            Ok(decoded) => decoded.bytes,
            // Records of a fixed size can be skipped; in a blktrace the start of the next one is
            // unknown then.
            Err(_) if matches!(self.decoder, Decoder::Vscsi(_)) => most,
            Err(what) => {
                return self.stop(TraceError::Record {
                    place,
                    what: what.clone(),
                });
            }
        };
        if bytes > most && self.input.peek(bytes).len() < bytes {
            self.cut = true;
            return Ok(Step::End);
        }
        self.input.consume(bytes);
        let found = decoded.map(|decoded| decoded.requests);
        match choice {
            Some(Choice::Hold(event)) => {
                self.hold(event, found, place);
                Ok(Step::On)
            }
            _ => self.take(found, place),
        }
    }

    fn chunk(&mut self) -> Result<Step, TraceError> {
        let Decoder::Compact(decoder) = &mut self.decoder else {
            return Ok(Step::End);
        };
        match decoder.chunk(&mut self.input, &mut self.devices, &mut self.ready) {
            Ok(compact::Chunk::More) => Ok(Step::On),
            Ok(compact::Chunk::End { cut }) => {
                self.cut = cut;
                Ok(Step::End)
            }
            Err(error) => self.stop(error),
        }
    }
}

/// The result of a record, if it is possible.
fn checked(found: Result<[Option<Request>; 2], String>) -> Result<[Option<Request>; 2], String> {
    let found = found?;
    found
        .iter()
        .flatten()
        .try_for_each(|request| request.check().map_err(str::to_owned))?;
    Ok(found)
}

/// Examines the beginning: byte order mark, wrapping, format.
fn begin(input: &mut Input<'_>, options: &Options) -> Result<(Format, Decoder), TraceError> {
    let head = input.peek(HEAD_BYTES);
    let is_binary = detect::detect_binary(head).is_some()
        || (options.format == Some(Format::Vscsi) && Vscsi::first(head).is_some());
    if !is_binary {
        if let Some(found) = wrapping::find(head) {
            return Err(TraceError::Wrapped {
                what: found.name,
                remedy: found.remedy,
            });
        }
        if head.starts_with(UTF_8_MARK) {
            input.consume(UTF_8_MARK.len());
        }
    }
    input.peek(HEAD_BYTES);
    let is_whole = input.is_whole();
    let head = input.peek(HEAD_BYTES);
    let format = match (options.format, &options.columns) {
        (Some(format), _) => format,
        (None, Some(_)) => Format::Columns,
        (None, None) => detect::detect(head, is_whole)?,
    };
    let decoder = match format {
        Format::Blkparse => Decoder::Blkparse,
        Format::Blktrace => Decoder::Blktrace,
        Format::Vscsi => Decoder::Vscsi(Vscsi::first(head).ok_or_else(|| {
            TraceError::Unknown("its first record has no version of vscsi".to_owned())
        })?),
        Format::Compact => Decoder::Compact(compact::Decoder::default()),
        Format::Columns => {
            let columns = options
                .columns
                .clone()
                .ok_or_else(|| TraceError::Unknown("its columns are not named".to_owned()))?;
            Decoder::Lines(Lines::Columns(columns))
        }
        // All others are lines.
        format => Decoder::Lines(detect::lines_of(format).unwrap_or(Lines::Csv)),
    };
    Ok((format, decoder))
}

impl Iterator for Reader<'_> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_request().transpose()
    }
}
