//! The bytes of a trace: unpacked, with a bounded look ahead.
//!
//! gzip and zstd are known by their first bytes. At most one layer is unpacked, in a stream, so that a small file that unpacks to an endless one costs
//! time and no memory.

use crate::error::{Place, TraceError};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufReader, Read};

/// Longest line, and longest look ahead but for chunks.
pub const LINE_BYTES_MOST: usize = 64 << 10;
/// Most bytes that are ever kept.
const BUFFER_BYTES: usize = 512 << 10;

/// How a file is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

/// Unpacked bytes.
pub struct Input<'a> {
    source: Box<dyn Read + 'a>,
    packing: Packing,
    buffer: Vec<u8>,
    start: usize,
    offset: u64,
    ended: bool,
}

impl<'a> Input<'a> {
    /// Looks how the source is packed.
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
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(source)),
            Packing::Zstd => Box::new(Zstd::new(source)),
        };
        Ok(Self { source, packing, buffer: Vec::new(), start: 0, offset: 0, ended: false })
    }

    /// How the file is packed.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `count` bytes, or what is left of the trace if that is less. `count` is at most half a megabyte.
    pub fn peek(&mut self, count: usize) -> Result<&[u8], TraceError> {
        let count = count.min(BUFFER_BYTES);
        while self.buffer.len() - self.start < count && !self.ended {
            self.fill(count)?;
        }
        let end = self.buffer.len().min(self.start + count);
        Ok(&self.buffer[self.start..end])
    }

    /// Gives up the next `count` bytes, which were looked at.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.buffer.len() - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// The next line without its end, and how many bytes it takes. `None` at the end; an error if it is too long.
    pub fn line(&mut self) -> Result<Option<(usize, usize)>, TraceError> {
        let mut looked = 0;
        loop {
            let start = self.start;
            let have = self.buffer.len() - start;
            if let Some(at) = self.buffer[start + looked..].iter().position(|byte| *byte == b'\n') {
                let length = looked + at;
                self.check_line(length)?;
                let text = if length > 0 && self.buffer[start + length - 1] == b'\r' { length - 1 } else { length };
                return Ok(Some((text, length + 1)));
            }
            self.check_line(have)?;
            if self.ended {
                return Ok((have > 0).then_some((have, have)));
            }
            looked = have;
            self.fill(have + 1)?;
        }
    }

    fn check_line(&self, length: usize) -> Result<(), TraceError> {
        if length <= LINE_BYTES_MOST {
            return Ok(());
        }
        Err(TraceError::Record { place: Place::Offset(self.offset), what: format!("a line of more than {LINE_BYTES_MOST} bytes") })
    }

    /// `length` bytes that `line` found.
    pub fn text(&self, length: usize) -> &[u8] {
        &self.buffer[self.start..(self.start + length).min(self.buffer.len())]
    }

    fn fill(&mut self, wanted: usize) -> Result<(), TraceError> {
        if self.start > 0 && self.start + wanted > self.buffer.capacity().max(BUFFER_BYTES / 4) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let before = self.buffer.len();
        let room = wanted.saturating_sub(before - self.start).clamp(16 << 10, BUFFER_BYTES);
        self.buffer.resize(before + room, 0);
        let read = loop {
            match self.source.read(&mut self.buffer[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(before + read.as_ref().map_or(0, |count| (*count).min(room)));
        match read {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) if self.packing == Packing::Plain => return Err(TraceError::Io(error)),
            Err(error) => {
                let place = Place::Offset(self.offset + (before - self.start) as u64);
                return Err(TraceError::Damaged { place, what: format!("what is packed cannot be unpacked: {error}") });
            }
        }
        Ok(())
    }
}

/// The first four bytes, less of a shorter file.
fn head(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    source.take(4).read_to_end(&mut head)?;
    Ok(head)
}

/// zstd, frame after frame: packers that work in parallel write several, and some put frames between that are to be skipped.
struct Zstd<R> {
    source: Pushback<R>,
    decoder: Box<FrameDecoder>,
    open: bool,
}

impl<R: Read> Zstd<R> {
    fn new(source: R) -> Self {
        Self { source: Pushback { byte: None, source }, decoder: Box::new(FrameDecoder::new()), open: false }
    }

    /// Begins the next frame; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        let mut byte = [0];
        while self.source.read(&mut byte)? > 0 {
            self.source.byte = Some(byte[0]);
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.source).take(u64::from(length)), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.open {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.open = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1)).map_err(io::Error::other)?;
            }
            let count = self.decoder.read(to)?;
            if count > 0 {
                return Ok(count);
            }
            self.open = false;
            let stored = self.decoder.get_checksum_from_data();
            if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
                return Err(io::Error::other("the checksum of a frame does not fit"));
            }
        }
    }
}

/// A source to which one byte was given back.
struct Pushback<R> {
    byte: Option<u8>,
    source: R,
}

impl<R: Read> Read for Pushback<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match (self.byte, to) {
            (Some(byte), [first, ..]) => {
                *first = byte;
                self.byte = None;
                Ok(1)
            }
            (_, to) => self.source.read(to),
        }
    }
}
