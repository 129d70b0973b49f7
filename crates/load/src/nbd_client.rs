//! A small NBD client for loads and verification: fixed newstyle, simple replies, many requests in
//! flight, one thread.
//!
//! The server is not trusted: whatever it sends, a call ends with an answer to a request, or with
//! an error. Memory is limited by the requests (fuzz target `nbd_client`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
/// Longest accepted option reply.
const OPTION_REPLY_MAX: u32 = 64 << 10;
/// Most replies to an option: a server sends a handful at most.
const OPTION_REPLIES_MAX: u32 = 64;

/// Kind of request.
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

/// Requests under one cookie that have not been answered.
#[derive(Default)]
struct Asked {
    requests: u64,
    /// Bytes that an answer contains.
    read_bytes: usize,
}

/// A connection in transmission.
pub struct NbdClient<R: Read = UnixStream, W: Write = UnixStream> {
    reader: BufReader<R>,
    writer: BufWriter<W>,
    asked: HashMap<u64, Asked>,
    size_bytes: u64,
}

fn broken(what: &str) -> Error {
    Error::other(format!("the NBD server sent {what}"))
}

impl NbdClient {
    /// Connects to an export of a server at a unix socket.
    pub fn connect(socket: &Path, export: &str) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        Self::over(stream.try_clone()?, stream, export)
    }
}

impl<R: Read, W: Write> NbdClient<R, W> {
    /// Enters an export over an open connection.
    pub fn over(from_server: R, to_server: W, export: &str) -> Result<Self> {
        let reader = BufReader::with_capacity(256 << 10, from_server);
        let writer = BufWriter::with_capacity(256 << 10, to_server);
        let mut client = Self {
            reader,
            writer,
            asked: HashMap::new(),
            size_bytes: 0,
        };
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
        self.writer
            .write_all(&(option.len() as u32).to_be_bytes())?;
        self.writer.write_all(&option)?;
        self.writer.flush()?;
        let mut size_bytes = None;
        for _ in 0..OPTION_REPLIES_MAX {
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
                REPLY_ACK => {
                    self.size_bytes = size_bytes.ok_or_else(|| broken("no size of the export"))?;
                    return Ok(());
                }
                // Type 0: the size and the flags of the export.
                REPLY_INFO => {
                    if let Some(size) = data
                        .strip_prefix(&[0, 0])
                        .and_then(|rest| rest.first_chunk())
                    {
                        size_bytes = Some(u64::from_be_bytes(*size));
                    }
                }
                _ => {
                    return Err(Error::other(format!(
                        "the NBD server refused export '{export}': {}",
                        String::from_utf8_lossy(&data)
                    )));
                }
            }
        }
        Err(broken("no end of option replies"))
    }

    /// Size of the export in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn request(&mut self, kind: Kind, cookie: u64, offset: u64, length: u32) -> Result<()> {
        let asked = self.asked.entry(cookie).or_default();
        asked.requests += 1;
        asked.read_bytes = if kind == Kind::Read {
            length as usize
        } else {
            0
        };
        let mut header = [0; 28];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[6..8].copy_from_slice(&(kind as u16).to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..24].copy_from_slice(&offset.to_be_bytes());
        header[24..].copy_from_slice(&length.to_be_bytes());
        self.writer.write_all(&header)
    }

    /// Queues a write; sent with the next [`NbdClient::push`].
    pub fn write(&mut self, cookie: u64, offset: u64, data: &[u8]) -> Result<()> {
        self.request(Kind::Write, cookie, offset, data.len() as u32)?;
        self.writer.write_all(data)
    }

    /// Queues a read. Its cookie must be unique among requests in flight; writes may share theirs.
    pub fn read(&mut self, cookie: u64, offset: u64, length: u32) -> Result<()> {
        self.request(Kind::Read, cookie, offset, length)
    }

    /// Queues a flush.
    pub fn flush(&mut self, cookie: u64) -> Result<()> {
        self.request(Kind::Flush, cookie, 0, 0)
    }

    /// Sends all queued requests.
    pub fn push(&mut self) -> Result<()> {
        self.writer.flush()
    }

    /// True if a whole answer header has arrived already, so that [`NbdClient::answer`] hardly
    /// waits.
    pub fn has_answer(&self) -> bool {
        self.reader.buffer().len() >= 16
    }

    /// Waits for the next answer.
    pub fn answer(&mut self) -> Result<Answer> {
        if self.read_u32()? != SIMPLE_REPLY_MAGIC {
            return Err(broken("no simple reply"));
        }
        let (error, cookie) = (self.read_u32()?, self.read_u64()?);
        let Entry::Occupied(mut asked) = self.asked.entry(cookie) else {
            return Err(broken("an answer to nothing that was asked"));
        };
        let read_bytes = asked.get().read_bytes;
        asked.get_mut().requests -= 1;
        if asked.get().requests == 0 {
            asked.remove();
        }
        let mut data = vec![0; if error == 0 { read_bytes } else { 0 }];
        self.reader.read_exact(&mut data)?;
        Ok(Answer {
            cookie,
            error,
            data,
        })
    }

    /// Disconnects.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Cursor, sink};

    fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
        let head = [
            &OPTION_REPLY_MAGIC.to_be_bytes()[..],
            &OPTION_GO.to_be_bytes(),
            &kind.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
        ];
        [&head.concat(), data].concat()
    }

    fn greeting() -> Vec<u8> {
        [
            &MAGIC.to_be_bytes()[..],
            &OPTION_MAGIC.to_be_bytes(),
            &3u16.to_be_bytes(),
        ]
        .concat()
    }

    /// Bytes of a server up to an entered export of 64 KiB.
    fn entered() -> Vec<u8> {
        let size = [&[0, 0][..], &65_536u64.to_be_bytes(), &[0, 1]].concat();
        [greeting(), reply(REPLY_INFO, &size), reply(REPLY_ACK, &[])].concat()
    }

    fn simple(error: u32, cookie: u64, data: &[u8]) -> Vec<u8> {
        [
            &SIMPLE_REPLY_MAGIC.to_be_bytes()[..],
            &error.to_be_bytes(),
            &cookie.to_be_bytes(),
            data,
        ]
        .concat()
    }

    fn over(from_server: &[u8]) -> Result<NbdClient<Cursor<Vec<u8>>, std::io::Sink>> {
        NbdClient::over(Cursor::new(from_server.to_vec()), sink(), "export")
    }

    fn refusal<T>(what: Result<T>) -> String {
        what.err().expect("refused").to_string()
    }

    #[test]
    fn answers_come_in_any_order() {
        let answers = [
            simple(0, 9, &[7; 512]),
            simple(5, 8, &[]),
            simple(0, 1, &[]),
            simple(0, 1, &[]),
        ]
        .concat();
        let mut client = over(&[entered(), answers].concat()).expect("enters");
        assert_eq!(client.size_bytes(), 65_536);
        client.read(8, 0, 512).expect("asked");
        client.read(9, 512, 512).expect("asked");
        client.write(1, 0, &[1; 512]).expect("asked");
        client.write(1, 512, &[2; 512]).expect("asked");
        let told: Vec<_> = (0..4)
            .map(|_| client.answer().expect("an answer"))
            .map(|a| (a.cookie, a.error, a.data.len()))
            .collect();
        assert_eq!(told, [(9, 0, 512), (8, 5, 0), (1, 0, 0), (1, 0, 0)]);
        assert!(client.answer().is_err(), "the server has gone");
    }

    #[test]
    fn a_server_that_says_what_makes_no_sense_is_refused() {
        assert!(refusal(over(b"SSH-2.0-OpenSSH_9.2p1 and more of it")).contains("no NBD greeting"));
        assert!(refusal(over(&[greeting(), reply(REPLY_ACK, &[])].concat())).contains("no size"));
        assert!(
            refusal(over(
                &[greeting(), reply(REPLY_INFO, &[0, 0, 1])]
                    .concat()
                    .repeat(2)
            ))
            .contains("a wrong option reply")
        );
        assert!(
            refusal(over(
                &[greeting(), reply(REPLY_INFO, &[0, 3]).repeat(1000)].concat()
            ))
            .contains("no end")
        );
        assert!(
            refusal(over(
                &[greeting(), reply(0x8000_0006, b"no such export")].concat()
            ))
            .contains("no such export")
        );
        let mut client = over(&[entered(), simple(0, 4, &[])].concat()).expect("enters");
        client.write(3, 0, &[0; 512]).expect("asked");
        assert!(refusal(client.answer()).contains("nothing that was asked"));
    }

    proptest! {
        /// Whatever the server sends: at most one answer to each request, or an error.
        #[test]
        fn nothing_that_a_server_says_is_trusted(from_server: Vec<u8>, replies: Vec<(u32, u64, Vec<u8>)>) {
            let _ = over(&from_server);
            let mut said = entered();
            replies.iter().for_each(|(error, cookie, data)| said.extend(simple(error % 2, cookie % 8, data)));
            let mut client = over(&said).expect("enters");
            (0..4).for_each(|cookie| client.read(cookie, 0, 16).expect("asked"));
            let mut answers = 0;
            while let Ok(answer) = client.answer() {
                let bytes = if answer.error == 0 { 16 } else { 0 };
                prop_assert!(answer.cookie < 4 && answer.data.len() == bytes);
                answers += 1;
            }
            prop_assert!(answers <= 4);
        }
    }
}
