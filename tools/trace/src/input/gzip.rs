//! gzip, member after member, with zeroes between and after them: tapes, and copies in whole
//! blocks, pad files in this way.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};

/// First byte of a member.
const MEMBER: u8 = 0x1f;

/// Decompresses gzip.
pub struct Gzip<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    /// Starts with the first member.
    pub fn new(source: R) -> Self {
        Self {
            member: Some(GzDecoder::new(source)),
        }
    }
}

/// Skips padding; true if a member follows.
fn follows(source: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = match source.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        match bytes.iter().position(|byte| *byte != 0) {
            Some(at) if bytes[at] != MEMBER => {
                return Err(io::Error::other(
                    "the gzip data is followed by something else",
                ));
            }
            Some(at) => {
                source.consume(at);
                return Ok(true);
            }
            None if bytes.is_empty() => return Ok(false),
            None => {
                let padding = bytes.len();
                source.consume(padding);
            }
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            let count = member.read(to)?;
            if count > 0 {
                return Ok(count);
            }
            // A member returns its last bytes only after its checksum verified.
            let Some(member) = self.member.take() else {
                break;
            };
            let mut source = member.into_inner();
            if follows(&mut source)? {
                self.member = Some(GzDecoder::new(source));
            }
        }
        Ok(0)
    }
}
