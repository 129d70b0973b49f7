//! Requests of the transmission phase.
//!
//! 1. A header of 28 bytes; wrong magic ends the connection.
//! 2. The command, its flags and its range are checked, except for the size of the volume, which
//!    only the volume knows.
//! 3. The payload of a write up to [`COPY_BYTES`] is awaited in the input and copied. A larger one
//!    is received straight into its buffer ([`RequestParser::payload_space`]), so that it is copied
//!    only once.
//! 4. The payload of a refused write is skipped without memory, however long it takes; one beyond
//!    [`SKIP_PAYLOAD_BYTES`] ends the connection.

use super::queue::charge;
use super::wire::{
    MAX_REQUEST_BYTES, REQUEST_HEADER_BYTES, REQUEST_MAGIC, Reader, SKIP_PAYLOAD_BYTES,
    command as number, command_flag as flag,
};
use super::{Refusal, Violation};
use windrow_io::{Buf, BufPool, Op, RequestError};

/// Payloads up to this length are copied from the input.
pub(crate) const COPY_BYTES: u32 = 64 << 10;
/// Most extents in one answer to block status.
pub(crate) const MAX_EXTENTS: u32 = 4096;

/// Commands of the protocol that are understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make acknowledged writes durable.
    Flush,
    /// Discard.
    Trim,
    /// Announce reads of a range.
    Cache,
    /// Zero a range.
    WriteZeroes,
    /// Ask for holes.
    BlockStatus,
    /// Anything else; always refused.
    Unknown,
}

/// Action for a request.
#[derive(Debug)]
pub enum Action {
    /// Hand it to the volume.
    Submit(Op),
    /// Only a check of the range.
    Cache,
    /// Answer with this refusal.
    Refuse(Refusal),
}

/// One request.
#[derive(Debug)]
pub struct Incoming {
    /// The client's own number for it.
    pub cookie: u64,
    /// What it is.
    pub command: Command,
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// What to do.
    pub action: Action,
}

/// Result of reading the input.
#[derive(Debug)]
pub enum RequestStep {
    /// More input is needed.
    More,
    /// A whole request.
    Request(Incoming),
    /// The client disconnects: answer requests in flight, then close.
    Disconnect,
    /// Answer requests in flight, then close.
    Reject(Violation),
}

/// Rules for the requests of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Offsets and lengths are multiples of this power of two, in bytes.
    pub min_block: u32,
    /// Largest payload in bytes.
    pub max_block: u32,
    /// Refuse everything that changes the volume.
    pub read_only: bool,
    /// Structured replies were negotiated.
    pub structured: bool,
    /// The `base:allocation` context is active.
    pub base_allocation: bool,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

#[derive(Debug)]
enum State {
    Header,
    Filling {
        header: Header,
        buf: Buf,
        filled: usize,
    },
    Skipping {
        header: Header,
        refusal: Refusal,
        remaining: u32,
    },
}

/// Cuts the input of one connection into requests.
#[derive(Debug)]
pub struct RequestParser {
    rules: Rules,
    buffers: BufPool,
    state: State,
}

impl RequestParser {
    /// A parser at the start of a request.
    pub fn new(rules: Rules, buffers: BufPool) -> Self {
        Self {
            rules,
            buffers,
            state: State::Header,
        }
    }

    /// Memory that the next request needs before it is taken from `input`; 0 while that is not
    /// known, or if it needs none.
    pub(crate) fn next_charge(&self, input: &[u8]) -> u32 {
        let State::Header = self.state else { return 0 };
        let Some(header) = input
            .first_chunk::<REQUEST_HEADER_BYTES>()
            .and_then(Header::decode)
        else {
            return 0;
        };
        let command = header.command();
        let is_whole = command != Command::Write
            || header.length > COPY_BYTES
            || input.len() >= REQUEST_HEADER_BYTES + header.length as usize;
        let is_bounded = command == Command::BlockStatus
            || header.length <= self.rules.max_block.min(MAX_REQUEST_BYTES);
        if is_whole && is_bounded {
            charge(command, header.length)
        } else {
            0
        }
    }

    /// True if part of a request has been taken.
    pub fn is_inside(&self) -> bool {
        !matches!(self.state, State::Header)
    }

    /// Buffer for the rest of a large payload; only with an empty input, as the input comes first.
    pub fn payload_space(&mut self) -> Option<&mut [u8]> {
        match &mut self.state {
            State::Filling { buf, filled, .. } if *filled < buf.len() => Some(&mut buf[*filled..]),
            _ => None,
        }
    }

    /// Records that `length` bytes were received into [`RequestParser::payload_space`].
    ///
    /// # Panics
    /// If there was no such space: an error of the caller, not of the client.
    pub fn payload_received(&mut self, length: usize) {
        match &mut self.state {
            State::Filling { buf, filled, .. } if *filled + length <= buf.len() => {
                *filled += length
            }
            _ => panic!("{length} bytes received into no space"),
        }
    }

    /// Takes at most one request from `input`; returns the number of bytes used.
    pub fn next(&mut self, input: &[u8]) -> (usize, RequestStep) {
        match std::mem::replace(&mut self.state, State::Header) {
            State::Header => self.header(input),
            State::Filling {
                header,
                mut buf,
                filled,
            } => {
                let used = input.len().min(buf.len() - filled);
                buf[filled..filled + used].copy_from_slice(&input[..used]);
                if filled + used < buf.len() {
                    self.state = State::Filling {
                        header,
                        buf,
                        filled: filled + used,
                    };
                    return (used, RequestStep::More);
                }
                (used, RequestStep::Request(write(header, buf)))
            }
            State::Skipping {
                header,
                refusal,
                remaining,
            } => {
                let used = input.len().min(remaining as usize);
                if used < remaining as usize {
                    self.state = State::Skipping {
                        header,
                        refusal,
                        remaining: remaining - used as u32,
                    };
                    return (used, RequestStep::More);
                }
                (
                    used,
                    RequestStep::Request(header.incoming(Command::Write, Action::Refuse(refusal))),
                )
            }
        }
    }

    fn header(&mut self, input: &[u8]) -> (usize, RequestStep) {
        let Some(bytes) = input.first_chunk::<REQUEST_HEADER_BYTES>() else {
            return (0, RequestStep::More);
        };
        let Some(header) = Header::decode(bytes) else {
            return (
                REQUEST_HEADER_BYTES,
                RequestStep::Reject(Violation::RequestMagic),
            );
        };
        match header.kind {
            number::WRITE => self.write(header, input),
            number::DISCONNECT => (REQUEST_HEADER_BYTES, RequestStep::Disconnect),
            _ => (
                REQUEST_HEADER_BYTES,
                RequestStep::Request(self.plain(header)),
            ),
        }
    }

    fn write(&mut self, header: Header, input: &[u8]) -> (usize, RequestStep) {
        if header.length > SKIP_PAYLOAD_BYTES {
            return (
                REQUEST_HEADER_BYTES,
                RequestStep::Reject(Violation::RequestLength),
            );
        }
        if let Err(refusal) = self.check(&header, 0, true, true) {
            self.state = State::Skipping {
                header,
                refusal,
                remaining: header.length,
            };
            let (used, step) = self.next(&input[REQUEST_HEADER_BYTES..]);
            return (REQUEST_HEADER_BYTES + used, step);
        }
        let length = header.length as usize;
        if header.length > COPY_BYTES {
            self.state = State::Filling {
                header,
                buf: self.buffers.get(length),
                filled: 0,
            };
            let (used, step) = self.next(&input[REQUEST_HEADER_BYTES..]);
            return (REQUEST_HEADER_BYTES + used, step);
        }
        let Some(payload) = input[REQUEST_HEADER_BYTES..].get(..length) else {
            return (0, RequestStep::More);
        };
        let mut buf = self.buffers.get(length);
        buf.copy_from_slice(payload);
        (
            REQUEST_HEADER_BYTES + length,
            RequestStep::Request(write(header, buf)),
        )
    }

    /// A request without payload.
    fn plain(&self, header: Header) -> Incoming {
        let command = header.command();
        let action = self.action(&header, command).unwrap_or_else(Action::Refuse);
        header.incoming(command, action)
    }

    fn action(&self, header: &Header, command: Command) -> Result<Action, Refusal> {
        let (offset, length) = (header.offset, u64::from(header.length));
        let fua = header.flags & flag::FUA != 0;
        match command {
            Command::Read => {
                let allowed = if self.rules.structured { flag::DF } else { 0 };
                self.check(header, allowed, true, false)?;
                Ok(Action::Submit(Op::Read {
                    offset,
                    length: header.length,
                }))
            }
            Command::Flush => {
                header.check_flags(0)?;
                if offset != 0 || length != 0 {
                    Err(Refusal::Volume(RequestError::Invalid))
                } else {
                    Ok(Action::Submit(Op::Flush))
                }
            }
            Command::Trim => {
                self.check(header, 0, false, true)?;
                Ok(Action::Submit(Op::Trim {
                    offset,
                    length,
                    fua,
                }))
            }
            Command::WriteZeroes => {
                // Zeroing is a change of the map, hence always fast.
                self.check(header, flag::NO_HOLE | flag::FAST_ZERO, false, true)?;
                let no_hole = header.flags & flag::NO_HOLE != 0;
                Ok(Action::Submit(Op::WriteZeroes {
                    offset,
                    length,
                    no_hole,
                    fua,
                }))
            }
            Command::Cache => self.check(header, 0, false, false).map(|()| Action::Cache),
            Command::BlockStatus => {
                if !self.rules.base_allocation {
                    return Err(Refusal::NoContext);
                }
                self.check(header, flag::REQ_ONE, false, false)?;
                let max_extents = if header.flags & flag::REQ_ONE != 0 {
                    1
                } else {
                    MAX_EXTENTS
                };
                Ok(Action::Submit(Op::BlockStatus {
                    offset,
                    length,
                    max_extents,
                }))
            }
            Command::Write | Command::Unknown => Err(Refusal::UnknownCommand),
        }
    }

    /// The common checks of all requests with a range.
    fn check(
        &self,
        header: &Header,
        allowed_flags: u16,
        payload: bool,
        changes: bool,
    ) -> Result<(), Refusal> {
        header.check_flags(allowed_flags)?;
        if changes && self.rules.read_only {
            return Err(Refusal::Volume(RequestError::ReadOnly));
        }
        if header.length == 0 {
            return Err(Refusal::Empty);
        }
        if payload && header.length > self.rules.max_block.min(MAX_REQUEST_BYTES) {
            return Err(Refusal::TooLarge);
        }
        let mask = u64::from(self.rules.min_block.max(1)) - 1;
        if (header.offset | u64::from(header.length)) & mask != 0 {
            return Err(Refusal::Unaligned);
        }
        match header.offset.checked_add(u64::from(header.length)) {
            Some(_) => Ok(()),
            None => Err(Refusal::Volume(RequestError::OutOfRange)),
        }
    }
}

fn write(header: Header, buf: Buf) -> Incoming {
    let op = Op::Write {
        offset: header.offset,
        data: buf.freeze(),
        fua: header.flags & flag::FUA != 0,
    };
    header.incoming(Command::Write, Action::Submit(op))
}

impl Header {
    fn decode(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: reader.u16()?,
            kind: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: reader.u32()?,
        })
    }

    fn command(&self) -> Command {
        match self.kind {
            number::READ => Command::Read,
            number::WRITE => Command::Write,
            number::FLUSH => Command::Flush,
            number::TRIM => Command::Trim,
            number::CACHE => Command::Cache,
            number::WRITE_ZEROES => Command::WriteZeroes,
            number::BLOCK_STATUS => Command::BlockStatus,
            _ => Command::Unknown,
        }
    }

    /// FUA is legal with every command; without a write it has no effect.
    fn check_flags(&self, allowed: u16) -> Result<(), Refusal> {
        if self.flags & !(allowed | flag::FUA) != 0 {
            Err(Refusal::BadFlags)
        } else {
            Ok(())
        }
    }

    fn incoming(self, command: Command, action: Action) -> Incoming {
        Incoming {
            cookie: self.cookie,
            command,
            offset: self.offset,
            length: self.length,
            action,
        }
    }
}

#[cfg(test)]
mod tests;
