//! Outgoing replies: encoding, and the order of bytes and payload slices.
//!
//! Heads (everything but read data) are consecutive in one byte vector. Read data stays in the
//! volume's slices and is not copied, with one exception. Bytes that the socket does not take may
//! wait as long as the client likes. A small slice of a large buffer (a block of a large write in
//! flight) must not keep all of the buffer meanwhile ([`ReplyQueue::settle`]). Pieces give the
//! sending order: a number of bytes of heads, or a slice; neighbouring heads are one piece. Each
//! reply has the stream position of its end, so that its share of the connection's bounds is
//! released when its last byte has left.
//!
//! If structured replies were negotiated, they are used for read data, block status and errors
//! (with a text). Plain success of everything else stays a simple reply, as the protocol allows:
//! clients receive it with one call instead of two.

use super::refusal::Refusal;
use super::request::{Command, Incoming, MAX_EXTENTS};
use super::wire::{
    BASE_ALLOCATION_ID, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::budget::Charges;
use std::collections::VecDeque;
use std::io::IoSlice;
use windrow_io::{Extent, ExtentState, Payload, Reply, RequestError};

/// Bytes of sent heads after which they are dropped from memory.
const COMPACT_BYTES: usize = 64 << 10;
/// Most memory of a waiting reply, as a multiple of its own bytes. Buffers come in powers of two,
/// so one that is just large enough may be twice as large.
pub(crate) const HELD_TIMES: usize = 2;
/// The smallest buffer.
const BUFFER_BYTES_MIN: usize = 4096;
/// Charge of an answer to block status: its extents as the volume gives them, and as they are sent.
const STATUS_CHARGE: u32 = MAX_EXTENTS * (size_of::<Extent>() as u32 + 8);

enum Piece {
    Head(usize),
    Data(Payload),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Head(length) => *length,
            Self::Data(data) => data.len(),
        }
    }
}

/// Shares of the connection's bounds, released by replies that have left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Released {
    /// Requests.
    pub requests: u32,
    /// Payload bytes of these requests.
    pub bytes: u64,
    /// Their charges of memory.
    pub(crate) charges: Charges,
}

struct End {
    position: u64,
    bytes: u32,
    charge: u32,
}

/// Fields of a request that its answer needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    pub(crate) cookie: u64,
    pub(crate) command: Command,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Question {
    /// Bytes of its payload.
    pub(crate) fn cost_bytes(&self) -> u32 {
        match self.command {
            Command::Read | Command::Write => self.length,
            _ => 0,
        }
    }

    /// Bytes of memory that the request and its reply can hold.
    pub(crate) fn charge(&self) -> u32 {
        charge(self.command, self.length)
    }
}

/// Most bytes of memory that a request, or its reply while it waits, can hold.
pub(crate) fn charge(command: Command, length: u32) -> u32 {
    match command {
        _ if length == 0 => 0,
        Command::Read => HELD_TIMES as u32 * length.next_multiple_of(BUFFER_BYTES_MIN as u32),
        Command::Write => length.next_power_of_two().max(BUFFER_BYTES_MIN as u32),
        Command::BlockStatus => STATUS_CHARGE,
        _ => 0,
    }
}

impl From<&Incoming> for Question {
    fn from(incoming: &Incoming) -> Self {
        // A refused request holds no payload, whatever its length field.
        let length = if matches!(incoming.action, super::Action::Submit(_)) {
            incoming.length
        } else {
            0
        };
        Self {
            cookie: incoming.cookie,
            command: incoming.command,
            offset: incoming.offset,
            length,
        }
    }
}

/// Replies of one connection that have not left yet.
#[derive(Default)]
pub struct ReplyQueue {
    structured: bool,
    heads: Vec<u8>,
    heads_sent: usize,
    pieces: VecDeque<Piece>,
    piece_sent: usize,
    /// Number of leading pieces that hold no more memory than allowed.
    settled: usize,
    ends: VecDeque<End>,
    sent: u64,
    queued: u64,
}

impl ReplyQueue {
    /// An empty queue; with `structured`, replies with content are structured ones.
    pub fn new(structured: bool) -> Self {
        Self {
            structured,
            ..Self::default()
        }
    }

    /// True if all replies have left.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds the reply to a request.
    pub fn answer(&mut self, incoming: &Incoming, result: Result<Reply, Refusal>) {
        self.push(&Question::from(incoming), result);
    }

    pub(crate) fn push(&mut self, question: &Question, result: Result<Reply, Refusal>) {
        let fault = Refusal::Volume(RequestError::Io);
        match (question.command, result) {
            (_, Err(refusal)) => self.error(question, refusal),
            (Command::Read, Ok(Reply::Data(slices))) => {
                // A volume that answers with too few bytes would desynchronise the whole stream.
                if slices.iter().map(Payload::len).sum::<usize>() == question.length as usize {
                    self.data(question, slices)
                } else {
                    self.error(question, fault)
                }
            }
            (Command::BlockStatus, Ok(Reply::Extents(extents))) => {
                match flagged(&extents, question.length) {
                    list if list.is_empty() => self.error(question, fault),
                    list => self.extents(question, &list),
                }
            }
            (Command::Read | Command::BlockStatus, Ok(_)) => self.error(question, fault),
            (_, Ok(_)) => self.simple(question, 0),
        }
        self.ends.push_back(End {
            position: self.queued,
            bytes: question.cost_bytes(),
            charge: question.charge(),
        });
    }

    fn head(&mut self, parts: &[&[u8]]) {
        let before = self.heads.len();
        parts
            .iter()
            .for_each(|part| self.heads.extend_from_slice(part));
        let length = self.heads.len() - before;
        self.queued += length as u64;
        match self.pieces.back_mut() {
            Some(Piece::Head(last)) => *last += length,
            _ => self.pieces.push_back(Piece::Head(length)),
        }
    }

    fn simple(&mut self, question: &Question, code: u32) {
        self.head(&[
            &SIMPLE_REPLY_MAGIC.to_be_bytes(),
            &code.to_be_bytes(),
            &question.cookie.to_be_bytes(),
        ]);
    }

    /// The only chunk of a structured reply, without read data.
    fn chunk(&mut self, question: &Question, kind: u16, payload: &[&[u8]]) {
        let length: usize = payload.iter().map(|part| part.len()).sum();
        self.chunk_head(question, kind, length);
        if length > 0 {
            self.head(payload);
        }
    }

    fn chunk_head(&mut self, question: &Question, kind: u16, length: usize) {
        let mut head = [0; 20];
        head[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
        head[4..6].copy_from_slice(&chunk::DONE.to_be_bytes());
        head[6..8].copy_from_slice(&kind.to_be_bytes());
        head[8..16].copy_from_slice(&question.cookie.to_be_bytes());
        head[16..].copy_from_slice(&(length as u32).to_be_bytes());
        self.head(&[&head]);
    }

    fn error(&mut self, question: &Question, refusal: Refusal) {
        let code = refusal.code(question.command) as u32;
        if !self.structured {
            return self.simple(question, code);
        }
        let message = refusal.to_string();
        self.chunk(
            question,
            chunk::ERROR,
            &[
                &code.to_be_bytes(),
                &(message.len() as u16).to_be_bytes(),
                message.as_bytes(),
            ],
        );
    }

    /// One chunk for any number of slices, so that a client that forbids fragments needs no special
    /// case.
    fn data(&mut self, question: &Question, slices: Vec<Payload>) {
        if self.structured {
            self.chunk_head(question, chunk::OFFSET_DATA, 8 + question.length as usize);
            self.head(&[&question.offset.to_be_bytes()]);
        } else {
            self.simple(question, 0);
        }
        self.queued += u64::from(question.length);
        self.pieces.extend(
            slices
                .into_iter()
                .filter(|slice| !slice.is_empty())
                .map(Piece::Data),
        );
    }

    fn extents(&mut self, question: &Question, list: &[(u32, u32)]) {
        self.chunk_head(question, chunk::BLOCK_STATUS, 4 + 8 * list.len());
        self.head(&[&BASE_ALLOCATION_ID.to_be_bytes()]);
        for (length, flags) in list {
            self.head(&[&length.to_be_bytes(), &flags.to_be_bytes()]);
        }
    }

    /// Fills `into` with the next pieces; returns the number of slices set.
    pub fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let mut head_start = self.heads_sent;
        let mut skip = self.piece_sent;
        let mut count = 0;
        for (slot, piece) in into.iter_mut().zip(&self.pieces) {
            let bytes = match piece {
                Piece::Head(length) => {
                    let rest = &self.heads[head_start..head_start + length - skip];
                    head_start += rest.len();
                    rest
                }
                Piece::Data(data) => &data.bytes()[skip..],
            };
            *slot = IoSlice::new(bytes);
            skip = 0;
            count += 1;
        }
        count
    }

    /// Records that the next `length` bytes have left.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn sent(&mut self, length: usize) -> Released {
        let mut left = length;
        while left > 0 {
            let Some(piece) = self.pieces.front() else {
                panic!("{left} bytes sent beyond the queue")
            };
            let step = left.min(piece.len() - self.piece_sent);
            if matches!(piece, Piece::Head(_)) {
                self.heads_sent += step;
            }
            self.piece_sent += step;
            left -= step;
            if self.piece_sent == piece.len() {
                self.pieces.pop_front();
                self.piece_sent = 0;
                self.settled = self.settled.saturating_sub(1);
            }
        }
        self.sent += length as u64;
        if self.pieces.is_empty() {
            self.heads.clear();
            self.heads_sent = 0;
        } else if self.heads_sent > COMPACT_BYTES {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
        self.release()
    }

    /// Prepares queued replies for a wait: slices that would keep much larger buffers are copied,
    /// once.
    pub fn settle(&mut self) {
        let mut at = std::mem::replace(&mut self.settled, self.pieces.len());
        while let Some(piece) = self.pieces.get(at) {
            let Piece::Data(first) = piece else {
                at += 1;
                continue;
            };
            let of_it = |piece: &Piece| {
                if let Piece::Data(data) = piece {
                    data.shares_buffer(first).then(|| data.len())
                } else {
                    None
                }
            };
            let lengths: Vec<usize> = self.pieces.range(at..).map_while(of_it).collect();
            let bytes: usize = lengths.iter().sum();
            if first.held_bytes() > HELD_TIMES * bytes.max(BUFFER_BYTES_MIN) {
                let mut copy = Vec::with_capacity(bytes);
                for piece in self.pieces.range(at..at + lengths.len()) {
                    if let Piece::Data(data) = piece {
                        copy.extend_from_slice(data);
                    }
                }
                let copy = Payload::copy_of(&copy);
                let mut start = 0;
                for (piece, length) in self.pieces.range_mut(at..at + lengths.len()).zip(&lengths) {
                    *piece = Piece::Data(copy.slice(start, *length));
                    start += length;
                }
            }
            at += lengths.len();
        }
    }

    /// Discards everything, as if it had been sent.
    pub fn clear(&mut self) -> Released {
        self.pieces.clear();
        self.heads.clear();
        (self.heads_sent, self.piece_sent, self.settled, self.sent) = (0, 0, 0, self.queued);
        self.release()
    }

    fn release(&mut self) -> Released {
        let mut released = Released::default();
        while let Some(end) = self.ends.front().filter(|end| end.position <= self.sent) {
            released.requests += 1;
            released.bytes += u64::from(end.bytes);
            released.charges.add(Charges::of(end.charge));
            self.ends.pop_front();
        }
        released
    }
}

/// Lengths and flags for the wire; never more than `length` bytes in all.
fn flagged(extents: &[Extent], length: u32) -> Vec<(u32, u32)> {
    let mut left = length;
    let mut list = Vec::with_capacity(extents.len());
    for extent in extents {
        let bytes = extent.length.min(left.into()) as u32;
        if bytes == 0 {
            continue;
        }
        left -= bytes;
        let flags = match extent.state {
            ExtentState::Data => 0,
            ExtentState::Hole => STATE_HOLE | STATE_ZERO,
            ExtentState::Zero => STATE_ZERO,
        };
        list.push((bytes, flags));
    }
    list
}

#[cfg(test)]
mod tests;
