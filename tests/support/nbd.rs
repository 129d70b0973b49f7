//! An NBD client for tests: simple replies, many requests in flight, errors as numbers.

use std::collections::HashMap;
use std::io::{BufReader, Error, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZERO: u16 = 6;
const FUA: u16 = 1;
const LIST: u32 = 3;
const INFO: u32 = 6;
const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO_REPLY: u32 = 3;
/// A daemon that does not answer for this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
pub struct Client {
    reader: BufReader<UnixStream>,
    /// Requests that wait to be sent.
    waiting: Vec<u8>,
    reads: HashMap<u64, usize>,
    pub size_bytes: u64,
}

/// An answer of the server.
pub struct Answer {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
}

impl Client {
    pub fn connect(socket: &Path, export: &str) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::with_capacity(1 << 20, stream.try_clone()?);
        reader.read_exact(&mut [0; 18])?;
        let length = (export.len() as u32).to_be_bytes();
        stream.write_all(
            &[
                &[0, 0, 0, 3][..],
                b"IHAVEOPT",
                &1u32.to_be_bytes(),
                &length,
                export.as_bytes(),
            ]
            .concat(),
        )?;
        let mut answer = [0; 10];
        reader.read_exact(&mut answer)?;
        let size_bytes = u64::from_be_bytes(std::array::from_fn(|at| answer[at]));
        Ok(Self {
            reader,
            waiting: Vec::new(),
            reads: HashMap::new(),
            size_bytes,
        })
    }

    fn request(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, length: usize) {
        self.waiting
            .extend_from_slice(&0x2560_9513u32.to_be_bytes());
        self.waiting.extend_from_slice(&flags.to_be_bytes());
        self.waiting.extend_from_slice(&kind.to_be_bytes());
        self.waiting.extend_from_slice(&cookie.to_be_bytes());
        self.waiting.extend_from_slice(&offset.to_be_bytes());
        self.waiting
            .extend_from_slice(&(length as u32).to_be_bytes());
    }

    pub fn write(&mut self, cookie: u64, offset: u64, data: &[u8], forced: bool) {
        self.request(
            WRITE,
            if forced { FUA } else { 0 },
            cookie,
            offset,
            data.len(),
        );
        self.waiting.extend_from_slice(data);
    }

    pub fn read(&mut self, cookie: u64, offset: u64, length: usize) {
        self.reads.insert(cookie, length);
        self.request(READ, 0, cookie, offset, length);
    }

    pub fn trim(&mut self, cookie: u64, offset: u64, length: usize) {
        self.request(TRIM, 0, cookie, offset, length);
    }

    pub fn zero(&mut self, cookie: u64, offset: u64, length: usize) {
        self.request(ZERO, 0, cookie, offset, length);
    }

    pub fn flush(&mut self, cookie: u64) {
        self.request(FLUSH, 0, cookie, 0, 0);
    }

    /// Sends the queued requests.
    pub fn push(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.reader.get_mut().write_all(&waiting)
    }

    /// Waits for the next answer.
    pub fn answer(&mut self) -> Result<Answer> {
        let mut header = [0; 16];
        self.reader.read_exact(&mut header)?;
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| header[at + byte]));
        if word(0) != 0x6744_6698 {
            return Err(Error::other("no simple reply"));
        }
        let (error, cookie) = (
            word(4),
            u64::from_be_bytes(std::array::from_fn(|byte| header[8 + byte])),
        );
        let mut data = vec![
            0;
            self.reads
                .remove(&cookie)
                .filter(|_| error == 0)
                .unwrap_or(0)
        ];
        self.reader.read_exact(&mut data)?;
        Ok(Answer {
            cookie,
            error,
            data,
        })
    }

    /// The error number of the one request in flight, and its data.
    pub fn finish(&mut self) -> Result<(u32, Vec<u8>)> {
        self.push()?;
        self.answer().map(|answer| (answer.error, answer.data))
    }

    /// Content of the whole export.
    pub fn read_all(&mut self) -> Result<Vec<u8>> {
        const PIECE: u64 = 1 << 20;
        let mut all = Vec::with_capacity(self.size_bytes as usize);
        while (all.len() as u64) < self.size_bytes {
            let at = all.len() as u64;
            self.read(0, at, PIECE.min(self.size_bytes - at) as usize);
            let (error, data) = self.finish()?;
            if error != 0 {
                return Err(Error::other(format!(
                    "the read at {at} failed with error {error}"
                )));
            }
            all.extend_from_slice(&data);
        }
        Ok(all)
    }
}

/// A connection that asks about exports, and enters none.
pub struct Negotiation {
    stream: BufReader<UnixStream>,
}

impl Negotiation {
    pub fn connect(socket: &Path) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&[0, 0, 0, 3])?;
        let mut stream = BufReader::with_capacity(1 << 20, stream);
        stream.read_exact(&mut [0; 18])?;
        Ok(Self { stream })
    }

    /// Data of the replies to an option that have this type, up to its acknowledgement.
    fn ask(&mut self, option: u32, data: &[u8], wanted: u32) -> Result<Vec<Vec<u8>>> {
        let length = (data.len() as u32).to_be_bytes();
        self.stream
            .get_mut()
            .write_all(&[b"IHAVEOPT", &option.to_be_bytes()[..], &length, data].concat())?;
        let mut replies = Vec::new();
        loop {
            let mut header = [0; 20];
            self.stream.read_exact(&mut header)?;
            let word =
                |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| header[at + byte]));
            let mut data = vec![0; word(16) as usize];
            self.stream.read_exact(&mut data)?;
            match word(12) {
                ACK => return Ok(replies),
                kind if kind == wanted => replies.push(data),
                kind if kind >> 31 == 1 => {
                    return Err(Error::other(format!(
                        "refused with {kind:#x}: {}",
                        String::from_utf8_lossy(&data)
                    )));
                }
                _ => {}
            }
        }
    }

    /// Names of all exports.
    pub fn list(&mut self) -> Result<Vec<String>> {
        let replies = self.ask(LIST, &[], SERVER)?;
        let name = |data: &Vec<u8>| {
            data.get(4..4 + u32::from_be_bytes(std::array::from_fn(|at| data[at])) as usize)
                .map(<[u8]>::to_vec)
        };
        let names = replies
            .iter()
            .map(|data| name(data).and_then(|name| String::from_utf8(name).ok()));
        names
            .collect::<Option<_>>()
            .ok_or_else(|| Error::other("a name that is none"))
    }

    /// Size of an export in bytes.
    pub fn size_bytes(&mut self, export: &str) -> Result<u64> {
        let question = [
            &(export.len() as u32).to_be_bytes(),
            export.as_bytes(),
            &[0, 0],
        ]
        .concat();
        let replies = self.ask(INFO, &question, INFO_REPLY)?;
        let size = replies
            .iter()
            .find(|data| data.len() == 12 && data[..2] == [0, 0]);
        size.map(|data| u64::from_be_bytes(std::array::from_fn(|at| data[2 + at])))
            .ok_or_else(|| Error::other("no size"))
    }
}
