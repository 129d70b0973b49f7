//! A small NBD client for loads and verification: fixed newstyle, simple replies, many requests in flight, one thread.

use std::collections::HashMap;
use std::io::{BufReader, BufWriter, Error, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
/// Fixed newstyle, no padding after the handshake.
const CLIENT_FLAGS: u32 = 3;
/// Longest option reply that makes sense here.
const OPTION_REPLY_MAX: u32 = 64 << 10;

/// What can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
enum Kind {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
}

/// An answer. `error` is the server's error number, 0 for success; `data` what was read.
#[derive(Debug)]
pub struct Answer {
    /// The request's cookie.
    pub cookie: u64,
    /// 0 for success.
    pub error: u32,
    /// Bytes of a read.
    pub data: Vec<u8>,
}

/// A connection in transmission.
pub struct NbdClient {
    reader: BufReader<UnixStream>,
    writer: BufWriter<UnixStream>,
    reads: HashMap<u64, usize>,
    size_bytes: u64,
}

fn broken(what: &str) -> Error {
    Error::other(format!("the NBD server sent {what}"))
}

impl NbdClient {
    /// Connects to an export of a server at a unix socket.
    pub fn connect(socket: &Path, export: &str) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        let reader = BufReader::with_capacity(256 << 10, stream.try_clone()?);
        let writer = BufWriter::with_capacity(256 << 10, stream);
        let mut client = Self { reader, writer, reads: HashMap::new(), size_bytes: 0 };
        client.negotiate(export)?;
        Ok(client)
    }

    fn negotiate(&mut self, export: &str) -> Result<()> {
        if self.read_u64()? != MAGIC || self.read_u64()? != OPTION_MAGIC {
            return Err(broken("no NBD greeting"));
        }
        self.read_u16()?;
        self.writer.write_all(&CLIENT_FLAGS.to_be_bytes())?;
        let mut option = Vec::new();
        option.extend_from_slice(&(export.len() as u32).to_be_bytes());
        option.extend_from_slice(export.as_bytes());
        option.extend_from_slice(&0u16.to_be_bytes());
        self.writer.write_all(&OPTION_MAGIC.to_be_bytes())?;
        self.writer.write_all(&OPTION_GO.to_be_bytes())?;
        self.writer.write_all(&(option.len() as u32).to_be_bytes())?;
        self.writer.write_all(&option)?;
        self.writer.flush()?;
        loop {
            if self.read_u64()? != OPTION_REPLY_MAGIC {
                return Err(broken("a wrong option reply"));
            }
            let (_option, kind, length) = (self.read_u32()?, self.read_u32()?, self.read_u32()?);
            if length > OPTION_REPLY_MAX {
                return Err(broken("an option reply that is too long"));
            }
            let mut data = vec![0; length as usize];
            self.reader.read_exact(&mut data)?;
            match kind {
                REPLY_ACK => return Ok(()),
                // Type 0: the size and the flags of the export.
                REPLY_INFO => {
                    if let Some(size) = data.strip_prefix(&[0, 0]).and_then(|rest| rest.first_chunk()) {
                        self.size_bytes = u64::from_be_bytes(*size);
                    }
                }
                _ => return Err(Error::other(format!("the NBD server refused export '{export}': {}", String::from_utf8_lossy(&data)))),
            }
        }
    }

    /// Size of the export in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn request(&mut self, kind: Kind, cookie: u64, offset: u64, length: u32) -> Result<()> {
        let mut header = [0; 28];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[6..8].copy_from_slice(&(kind as u16).to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..24].copy_from_slice(&offset.to_be_bytes());
        header[24..].copy_from_slice(&length.to_be_bytes());
        self.writer.write_all(&header)
    }

    /// Asks for a write; leaves with the next [`NbdClient::push`].
    pub fn write(&mut self, cookie: u64, offset: u64, data: &[u8]) -> Result<()> {
        self.request(Kind::Write, cookie, offset, data.len() as u32)?;
        self.writer.write_all(data)
    }

    /// Asks for a read.
    pub fn read(&mut self, cookie: u64, offset: u64, length: u32) -> Result<()> {
        self.reads.insert(cookie, length as usize);
        self.request(Kind::Read, cookie, offset, length)
    }

    /// Asks for a flush.
    pub fn flush(&mut self, cookie: u64) -> Result<()> {
        self.request(Kind::Flush, cookie, 0, 0)
    }

    /// Sends everything that was asked.
    pub fn push(&mut self) -> Result<()> {
        self.writer.flush()
    }

    /// True if a whole answer header has arrived already, so that [`NbdClient::answer`] hardly waits.
    pub fn has_answer(&self) -> bool {
        self.reader.buffer().len() >= 16
    }

    /// Waits for the next answer.
    pub fn answer(&mut self) -> Result<Answer> {
        if self.read_u32()? != SIMPLE_REPLY_MAGIC {
            return Err(broken("no simple reply"));
        }
        let (error, cookie) = (self.read_u32()?, self.read_u64()?);
        let mut data = Vec::new();
        if let Some(length) = self.reads.remove(&cookie)
            && error == 0
        {
            data.resize(length, 0);
            self.reader.read_exact(&mut data)?;
        }
        Ok(Answer { cookie, error, data })
    }

    /// Says goodbye.
    pub fn disconnect(mut self) -> Result<()> {
        self.request(Kind::Disconnect, 0, 0, 0)?;
        self.writer.flush()
    }

    fn read_u16(&mut self) -> Result<u16> {
        let mut bytes = [0; 2];
        self.reader.read_exact(&mut bytes)?;
        Ok(u16::from_be_bytes(bytes))
    }

    fn read_u32(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.reader.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn read_u64(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.reader.read_exact(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }
}
