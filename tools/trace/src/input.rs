//! Bytes of a trace: decompressed, with a bounded look-ahead.
//!
//! gzip and zstd are recognised by their first bytes. At most one layer is decompressed, as a
//! stream: a small file that decompresses to an endless one costs time but no memory. If
//! decompression fails, the bytes before the failure are returned first; the reader decides what
//! the failure means.

mod gzip;
pub mod wrapping;
mod zstd;

use crate::error::{Place, TraceError};
use gzip::Gzip;
use std::io::{self, BufReader, Read};
use zstd::Zstd;

/// Maximum length of a line, and of a look-ahead except for chunks.
pub const LINE_BYTES_MOST: usize = 64 << 10;
/// Maximum number of buffered bytes.
const BUFFER_BYTES: usize = 512 << 10;

/// Compression of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// None.
    Plain,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

/// Decompressed bytes.
pub struct Input<'a> {
    source: Box<dyn Read + 'a>,
    packing: Packing,
    buffer: Vec<u8>,
    start: usize,
    offset: u64,
    ended: bool,
    /// Reason of an early end.
    failure: Option<TraceError>,
}

impl<'a> Input<'a> {
    /// Detects the compression of the source.
    pub fn new(source: impl Read + 'a) -> Result<Self, TraceError> {
        let mut source = BufReader::with_capacity(64 << 10, source);
        let head = head(&mut source)?;
        let packing = match head.as_slice() {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Packing::Zstd,
            _ => Packing::Plain,
        };
        let source = io::Cursor::new(head).chain(source);
        let source: Box<dyn Read + 'a> = match packing {
            Packing::Plain => Box::new(source),
            Packing::Gzip => Box::new(Gzip::new(source)),
            Packing::Zstd => Box::new(Zstd::new(source)),
        };
        Ok(Self {
            source,
            packing,
            buffer: Vec::new(),
            start: 0,
            offset: 0,
            ended: false,
            failure: None,
        })
    }

    /// Compression of the file.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reason that the bytes ended before the trace did. Known once all of them were read.
    pub fn take_failure(&mut self) -> Option<TraceError> {
        self.failure.take()
    }

    /// True if the bytes read so far are all, and none are missing.
    pub fn is_whole(&self) -> bool {
        self.ended && self.failure.is_none()
    }

    /// Next `count` bytes, or the rest of the trace if that is less. `count` is at most half a
    /// megabyte.
    pub fn peek(&mut self, count: usize) -> &[u8] {
        let count = count.min(BUFFER_BYTES);
        while self.buffer.len() - self.start < count && !self.ended {
            self.fill(count);
        }
        let end = self.buffer.len().min(self.start + count);
        &self.buffer[self.start..end]
    }

    /// Discards the next `count` bytes, which were peeked.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.buffer.len() - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Next line without its end, and the number of bytes it takes. `None` at the end; an error if
    /// it is too long. A line with an early end does not count: the number at its end may be
    /// incomplete.
    pub fn line(&mut self) -> Result<Option<(usize, usize)>, TraceError> {
        let mut looked = 0;
        loop {
            let start = self.start;
            let have = self.buffer.len() - start;
            if let Some(at) = self.buffer[start + looked..]
                .iter()
                .position(|byte| *byte == b'\n')
            {
                let length = looked + at;
                self.check_line(length)?;
                let text = if length > 0 && self.buffer[start + length - 1] == b'\r' {
                    length - 1
                } else {
                    length
                };
                return Ok(Some((text, length + 1)));
            }
            self.check_line(have)?;
            if self.ended {
                return Ok((have > 0 && self.failure.is_none()).then_some((have, have)));
            }
            looked = have;
            self.fill(have + 1);
        }
    }

    /// Discards bytes up to the end of the line, of any length.
    pub fn skip_line(&mut self) {
        loop {
            let have = &self.buffer[self.start..];
            if let Some(at) = have.iter().position(|byte| *byte == b'\n') {
                return self.consume(at + 1);
            }
            self.consume(have.len());
            if self.ended {
                return;
            }
            self.fill(1);
        }
    }

    fn check_line(&self, length: usize) -> Result<(), TraceError> {
        if length <= LINE_BYTES_MOST {
            return Ok(());
        }
        Err(TraceError::Record {
            place: Place::Offset(self.offset),
            what: format!("a line of more than {LINE_BYTES_MOST} bytes"),
        })
    }

    /// `length` bytes found by `line`.
    pub fn text(&self, length: usize) -> &[u8] {
        &self.buffer[self.start..(self.start + length).min(self.buffer.len())]
    }

    fn fill(&mut self, wanted: usize) {
        if self.start > 0 && self.start + wanted > self.buffer.capacity().max(BUFFER_BYTES / 4) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let before = self.buffer.len();
        let room = wanted
            .saturating_sub(before - self.start)
            .clamp(16 << 10, BUFFER_BYTES);
        self.buffer.resize(before + room, 0);
        let read = loop {
            match self.source.read(&mut self.buffer[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer
            .truncate(before + read.as_ref().map_or(0, |count| (*count).min(room)));
        match read {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) => {
                self.ended = true;
                let place = Place::Offset(self.offset + (before - self.start) as u64);
                self.failure = Some(match self.packing {
                    Packing::Plain => TraceError::Io(error),
                    _ => TraceError::Damaged {
                        place,
                        what: format!("the compressed data cannot be decompressed: {error}"),
                    },
                });
            }
        }
    }
}

/// The first four bytes, less of a shorter file.
fn head(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    source.take(4).read_to_end(&mut head)?;
    Ok(head)
}
