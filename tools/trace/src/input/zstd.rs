//! zstd, frame by frame.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, Read};

/// zstd, frame after frame: parallel compressors write several, and some insert skippable frames.
pub struct Zstd<R> {
    source: Pushback<R>,
    decoder: Box<FrameDecoder>,
    open: bool,
    /// Failure that broke the frame whose remaining bytes are being returned.
    failure: Option<io::Error>,
}

/// A last block of zero bytes, and a checksum. The decoder keeps a window of decompressed bytes
/// until a frame ends; after a truncated source this releases it.
const END_OF_FRAME: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R: Read> Zstd<R> {
    /// Starts with the first frame.
    pub fn new(source: R) -> Self {
        let source = Pushback {
            byte: None,
            source,
            ended: false,
        };
        Self {
            source,
            decoder: Box::new(FrameDecoder::new()),
            open: false,
            failure: None,
        }
    }

    /// Starts the next frame; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        let mut byte = [0];
        while self.source.read(&mut byte)? > 0 {
            // Zeroes after a frame are padding, from a tape or a file system that lost the tail.
            if byte[0] == 0 {
                continue;
            }
            self.source.byte = Some(byte[0]);
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(
                        &mut (&mut self.source).take(u64::from(length)),
                        &mut io::sink(),
                    )?;
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
                if let Err(error) = self
                    .decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                {
                    // A block is decompressed only when it is complete, so everything decompressed
                    // is valid. For a damaged frame this does not hold.
                    if !self.source.ended || self.decoder.is_finished() {
                        return Err(io::Error::other(error));
                    }
                    self.decoder
                        .decode_blocks(&END_OF_FRAME[..], BlockDecodingStrategy::UptoBlocks(1))
                        .map_err(io::Error::other)?;
                    self.failure = Some(io::Error::other(error));
                }
            }
            let count = self.decoder.read(to)?;
            if count > 0 {
                return Ok(count);
            }
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            self.open = false;
            let stored = self.decoder.get_checksum_from_data();
            if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
                return Err(io::Error::other("the checksum of a frame does not fit"));
            }
        }
    }
}

/// A source with one byte pushed back.
struct Pushback<R> {
    byte: Option<u8>,
    source: R,
    ended: bool,
}

impl<R: Read> Read for Pushback<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match (self.byte, to) {
            (Some(byte), [first, ..]) => {
                *first = byte;
                self.byte = None;
                Ok(1)
            }
            (_, to) => {
                let count = self.source.read(to)?;
                self.ended |= count == 0 && !to.is_empty();
                Ok(count)
            }
        }
    }
}
