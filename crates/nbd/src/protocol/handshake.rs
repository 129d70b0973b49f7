//! Fixed newstyle negotiation as a state machine.
//!
//! 1. [`Handshake::greeting`] goes out.
//! 2. Client flags come in.
//! 3. Options come in, one at a time. Each is answered before the next is read, so the output for a
//!    client that sends many at once is bounded by one answer.
//! 4. EXPORT_NAME or GO enters transmission; ABORT or a [`Violation`] ends the connection.
//!
//! A metadata context is remembered with the export name it was set for and counts only if that
//! very name is entered.

use super::Violation;
use super::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, GREETING_MAGIC, MAX_OPTION_BYTES, MAX_REQUEST_BYTES,
    MAX_STRING_BYTES, OPTION_HEADER_BYTES, OPTION_MAGIC, OPTION_REPLY_MAGIC, Reader,
    SKIP_OPTION_BYTES, handshake_flag, info, option, option_reply, transmission_flag as flag,
};
use crate::server::Limit;
use windrow_frontend::ExportInfo;
use windrow_io::RequestError;

/// Most options from one client; `qemu-nbd --list` sends two for each export.
const MAX_OPTIONS: u32 = 32768;
/// A list of exports is sent in pieces of about this many bytes.
const LIST_PIECE_BYTES: usize = 64 << 10;
/// Zeroes after the answer to EXPORT_NAME, for clients that did not decline them.
const TAIL_ZEROES: usize = 124;

/// The exports as negotiation needs them.
pub trait Exports {
    /// All exports.
    fn list(&mut self) -> Vec<ExportInfo>;
    /// One export as it is now; `RequestError::Stopped` while shutting down.
    fn info(&mut self, name: &str) -> Result<ExportInfo, RequestError>;
    /// Opens an export for transmission.
    fn open(&mut self, name: &str) -> Result<ExportInfo, Denied>;
}

/// Reason that an export is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// The volume's answer.
    #[error(transparent)]
    Volume(#[from] RequestError),
    /// There are too many clients.
    #[error(transparent)]
    Limit(Limit),
}

/// Result of the negotiation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// The export at the time of entering.
    pub info: ExportInfo,
    /// Structured replies.
    pub structured: bool,
    /// The `base:allocation` context is active.
    pub base_allocation: bool,
}

/// Action after a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandshakeStep {
    /// More input is needed.
    More,
    /// Send the output, then continue.
    Continue,
    /// Send the output; the rest of the input is requests.
    Enter(Box<Agreement>),
    /// Send the output and close on the client's request.
    Abort,
    /// Close.
    Reject(Violation),
}

#[derive(Debug)]
enum Phase {
    ClientFlags,
    Option,
    Skip {
        option: u32,
        remaining: u32,
    },
    /// Exports that are still to be listed.
    List(std::vec::IntoIter<ExportInfo>),
}

/// Negotiation with one client.
#[derive(Debug)]
pub struct Handshake {
    phase: Phase,
    fixed: bool,
    no_zeroes: bool,
    structured: bool,
    /// Export name for which `base:allocation` is set.
    context: Option<String>,
    options: u32,
}

impl Default for Handshake {
    fn default() -> Self {
        Self::new()
    }
}

impl Handshake {
    /// The state before any input.
    pub fn new() -> Self {
        Self {
            phase: Phase::ClientFlags,
            fixed: false,
            no_zeroes: false,
            structured: false,
            context: None,
            options: 0,
        }
    }

    /// The server's first message.
    pub fn greeting(output: &mut Vec<u8>) {
        output.extend(GREETING_MAGIC.to_be_bytes());
        output.extend(OPTION_MAGIC.to_be_bytes());
        output.extend((handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
    }

    /// Takes at most one message from `input`, appends its answer to `output`; returns the number
    /// of bytes used. An option is taken when all of it (at most [`MAX_OPTION_BYTES`] of data) is
    /// there. A long answer comes in several steps.
    pub fn advance(
        &mut self,
        input: &[u8],
        exports: &mut dyn Exports,
        output: &mut Vec<u8>,
    ) -> (usize, HandshakeStep) {
        match &mut self.phase {
            Phase::ClientFlags => self.client_flags(input),
            Phase::Option => self.option(input, exports, output),
            Phase::List(exports) => {
                if list_piece(exports, output) {
                    self.phase = Phase::Option;
                }
                (0, HandshakeStep::Continue)
            }
            Phase::Skip { option, remaining } => {
                let option = *option;
                let used = input.len().min(*remaining as usize);
                let remaining = *remaining - used as u32;
                if remaining > 0 {
                    self.phase = Phase::Skip { option, remaining };
                    return (used, HandshakeStep::More);
                }
                self.phase = Phase::Option;
                error(
                    output,
                    option,
                    option_reply::TOO_BIG,
                    "the option is too long",
                );
                (used, HandshakeStep::Continue)
            }
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> (usize, HandshakeStep) {
        let Some(flags) = Reader(input).u32() else {
            return (0, HandshakeStep::More);
        };
        let (fixed, no_zeroes) = (
            u32::from(handshake_flag::FIXED_NEWSTYLE),
            u32::from(handshake_flag::NO_ZEROES),
        );
        if flags & !(fixed | no_zeroes) != 0 {
            return (4, HandshakeStep::Reject(Violation::ClientFlags));
        }
        (self.fixed, self.no_zeroes) = (flags & fixed != 0, flags & no_zeroes != 0);
        self.phase = Phase::Option;
        (4, HandshakeStep::Continue)
    }

    fn option(
        &mut self,
        input: &[u8],
        exports: &mut dyn Exports,
        output: &mut Vec<u8>,
    ) -> (usize, HandshakeStep) {
        let mut reader = Reader(input);
        let (Some(magic), Some(option), Some(length)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            return (0, HandshakeStep::More);
        };
        let reject = |violation| (OPTION_HEADER_BYTES, HandshakeStep::Reject(violation));
        if magic != OPTION_MAGIC {
            return reject(Violation::OptionMagic);
        }
        if !self.fixed && option != option::EXPORT_NAME {
            return reject(Violation::ClientFlags);
        }
        if length > SKIP_OPTION_BYTES
            || (length > MAX_OPTION_BYTES && option == option::EXPORT_NAME)
        {
            return reject(Violation::OptionLength);
        }
        if length <= MAX_OPTION_BYTES && reader.0.len() < length as usize {
            return (0, HandshakeStep::More);
        }
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return reject(Violation::OptionCount);
        }
        if length > MAX_OPTION_BYTES {
            self.phase = Phase::Skip {
                option,
                remaining: length,
            };
            return (OPTION_HEADER_BYTES, HandshakeStep::Continue);
        }
        let data = &reader.0[..length as usize];
        (
            OPTION_HEADER_BYTES + data.len(),
            self.answer(option, data, exports, output),
        )
    }

    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &mut dyn Exports,
        output: &mut Vec<u8>,
    ) -> HandshakeStep {
        match option {
            option::EXPORT_NAME => return self.export_name(data, exports, output),
            option::ABORT => {
                reply(output, option, option_reply::ACK, &[]);
                return HandshakeStep::Abort;
            }
            option::INFO | option::GO => return self.info_or_go(option, data, exports, output),
            option::LIST if data.is_empty() => self.phase = Phase::List(exports.list().into_iter()),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                reply(output, option, option_reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => error(
                output,
                option,
                option_reply::INVALID,
                "this option has no data",
            ),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(option, data, exports, output)
            }
            _ => error(
                output,
                option,
                option_reply::UNSUPPORTED,
                "this option is not supported",
            ),
        }
        HandshakeStep::Continue
    }

    fn agreement(&self, name: &str, info: ExportInfo) -> HandshakeStep {
        let base_allocation = self.structured && self.context.as_deref() == Some(name);
        HandshakeStep::Enter(Box::new(Agreement {
            info,
            structured: self.structured,
            base_allocation,
        }))
    }

    fn export_name(
        &mut self,
        data: &[u8],
        exports: &mut dyn Exports,
        output: &mut Vec<u8>,
    ) -> HandshakeStep {
        let name = std::str::from_utf8(data)
            .ok()
            .filter(|name| name.len() <= MAX_STRING_BYTES);
        let opened = name.and_then(|name| exports.open(name).ok().map(|info| (name, info)));
        let Some((name, info)) = opened else {
            return HandshakeStep::Reject(Violation::Export);
        };
        output.extend(info.size_bytes.to_be_bytes());
        output.extend(transmission_flags(&info, self.structured).to_be_bytes());
        if !self.no_zeroes {
            output.extend([0; TAIL_ZEROES]);
        }
        self.agreement(name, info)
    }

    fn info_or_go(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &mut dyn Exports,
        output: &mut Vec<u8>,
    ) -> HandshakeStep {
        let Some((name, wanted)) = parse_info(data) else {
            error(
                output,
                option,
                option_reply::INVALID,
                "malformed information request",
            );
            return HandshakeStep::Continue;
        };
        let found = if option == option::GO {
            exports.open(name)
        } else {
            exports.info(name).map_err(Denied::Volume)
        };
        let info = match found {
            Ok(info) => info,
            Err(Denied::Volume(cause)) => {
                export_error(output, option, name, cause);
                return HandshakeStep::Continue;
            }
            Err(denied @ Denied::Limit(_)) => {
                error(output, option, option_reply::POLICY, &denied.to_string());
                return HandshakeStep::Continue;
            }
        };
        self.describe(option, &info, &wanted, output);
        reply(output, option, option_reply::ACK, &[]);
        if option == option::GO {
            self.agreement(name, info)
        } else {
            HandshakeStep::Continue
        }
    }

    fn describe(&self, option: u32, export: &ExportInfo, wanted: &[u16], output: &mut Vec<u8>) {
        let mut item = |kind: u16, parts: &[&[u8]]| {
            let kind = kind.to_be_bytes();
            reply(
                output,
                option,
                option_reply::INFO,
                &[&[&kind[..]], parts].concat(),
            );
        };
        item(
            info::EXPORT,
            &[
                &export.size_bytes.to_be_bytes(),
                &transmission_flags(export, self.structured).to_be_bytes(),
            ],
        );
        if wanted.contains(&info::NAME) {
            item(info::NAME, &[shortened(&export.name).as_bytes()]);
        }
        if wanted.contains(&info::DESCRIPTION) && !export.description.is_empty() {
            item(
                info::DESCRIPTION,
                &[shortened(&export.description).as_bytes()],
            );
        }
        if wanted.contains(&info::BLOCK_SIZE) {
            let largest = export.max_block.min(MAX_REQUEST_BYTES);
            item(
                info::BLOCK_SIZE,
                &[
                    &export.min_block.to_be_bytes(),
                    &export.preferred_block.to_be_bytes(),
                    &largest.to_be_bytes(),
                ],
            );
        }
    }

    fn meta_context(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &mut dyn Exports,
        output: &mut Vec<u8>,
    ) {
        let set = option == option::SET_META_CONTEXT;
        if set {
            // A new request replaces the previous one even if it fails.
            self.context = None;
        }
        if set && !self.structured {
            return error(
                output,
                option,
                option_reply::INVALID,
                "structured replies must be negotiated first",
            );
        }
        let Some((name, queries)) = parse_queries(data) else {
            return error(
                output,
                option,
                option_reply::INVALID,
                "malformed metadata context request",
            );
        };
        if let Err(cause) = exports.info(name) {
            return export_error(output, option, name, cause);
        }
        let listed = !set && (queries.is_empty() || queries.contains(&"base:"));
        if listed || queries.contains(&BASE_ALLOCATION) {
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            reply(
                output,
                option,
                option_reply::META_CONTEXT,
                &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()],
            );
            if set {
                self.context = Some(name.to_owned());
            }
        }
        reply(output, option, option_reply::ACK, &[]);
    }
}

/// Commands that the client may use. Flush and FUA cover the whole pool on every connection, hence
/// multi-conn.
fn transmission_flags(export: &ExportInfo, structured: bool) -> u16 {
    let mut flags = flag::HAS_FLAGS
        | flag::SEND_FLUSH
        | flag::SEND_FUA
        | flag::SEND_CACHE
        | flag::CAN_MULTI_CONN;
    if structured {
        flags |= flag::SEND_DF;
    }
    flags
        | if export.read_only {
            flag::READ_ONLY
        } else {
            flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO
        }
}

fn parse_info(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u16()?;
    let wanted = (0..count)
        .map(|_| reader.u16())
        .collect::<Option<Vec<u16>>>()?;
    reader.0.is_empty().then_some((name, wanted))
}

fn parse_queries(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(reader.string()?);
    }
    reader.0.is_empty().then_some((name, queries))
}

/// Lists some exports; true if none is left.
fn list_piece(exports: &mut std::vec::IntoIter<ExportInfo>, output: &mut Vec<u8>) -> bool {
    while output.len() < LIST_PIECE_BYTES {
        let Some(export) = exports.next() else {
            reply(output, option::LIST, option_reply::ACK, &[]);
            return true;
        };
        // A name that no client could ask for is not worth listing.
        if export.name.len() <= MAX_STRING_BYTES {
            let length = (export.name.len() as u32).to_be_bytes();
            let description = shortened(&export.description).as_bytes();
            reply(
                output,
                option::LIST,
                option_reply::SERVER,
                &[&length, export.name.as_bytes(), description],
            );
        }
    }
    false
}

/// The part of a text that fits into a string of the protocol.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MAX_STRING_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn export_error(output: &mut Vec<u8>, option: u32, name: &str, cause: RequestError) {
    match cause {
        RequestError::Stopped => error(
            output,
            option,
            option_reply::SHUTDOWN,
            "the server, or this export, is being taken out of service",
        ),
        _ if name.is_empty() => error(
            output,
            option,
            option_reply::UNKNOWN,
            "no export was named and there is no default export; name one of the list",
        ),
        _ => error(output, option, option_reply::UNKNOWN, "no such export"),
    }
}

fn error(output: &mut Vec<u8>, option: u32, kind: u32, message: &str) {
    reply(output, option, kind, &[message.as_bytes()]);
}

fn reply(output: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    output.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    output.extend(option.to_be_bytes());
    output.extend(kind.to_be_bytes());
    output.extend((length as u32).to_be_bytes());
    parts.iter().for_each(|part| output.extend(*part));
}

#[cfg(test)]
mod tests;
