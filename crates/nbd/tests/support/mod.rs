//! A server over memory, and a client that can also break the protocol.
#![allow(dead_code)]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windrow_frontend::ram::{RamExport, RamSource};
use windrow_nbd::{Listen, Server, ServerOptions};

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;

pub struct Fixture {
    pub source: Arc<RamSource>,
    pub server: Option<Server>,
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Fixture {
    pub fn new(options: ServerOptions) -> Self {
        Self::with_size(options, 64 << 20)
    }

    pub fn with_size(options: ServerOptions, size_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let fixed = RamExport {
            read_only: true,
            ..RamExport::new("fixed", 1 << 20)
        };
        let source = Arc::new(RamSource::new(&[RamExport::new("", size_bytes), fixed]));
        let server =
            Server::start(source.clone(), vec![Listen::Unix(path.clone())], options).unwrap();
        Self {
            source,
            server: Some(server),
            path,
            _folder: folder,
        }
    }

    /// A server over something else; `source` is not served.
    pub fn around(server: Server, path: PathBuf, folder: tempfile::TempDir) -> Self {
        Self {
            source: Arc::new(RamSource::single(512)),
            server: Some(server),
            path,
            _folder: folder,
        }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.path.display())
    }

    pub fn dial(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    /// A client in transmission, with simple replies.
    pub fn client(&self, export: &str) -> Client {
        let mut stream = self.dial();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream
            .write_all(
                &[
                    &[0, 0, 0, 3][..],
                    b"IHAVEOPT",
                    &1u32.to_be_bytes(),
                    &(export.len() as u32).to_be_bytes(),
                    export.as_bytes(),
                ]
                .concat(),
            )
            .unwrap();
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).unwrap();
        Client {
            stream,
            size_bytes: u64::from_be_bytes(answer[..8].try_into().unwrap()),
        }
    }

    /// Waits until the server has no connection.
    pub fn wait_empty(&self) {
        eventually("all connections end", || {
            self.server().connections().is_empty()
        });
    }
}

pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "did not happen: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn header(kind: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    [
        &0x2560_9513u32.to_be_bytes()[..],
        &[0, 0],
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

pub struct Client {
    pub stream: UnixStream,
    pub size_bytes: u64,
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Cookie and error of the next reply; the data of a read must be taken with `data`.
    pub fn reply(&mut self) -> (u64, u32) {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], 0x6744_6698u32.to_be_bytes());
        (
            u64::from_be_bytes(head[8..].try_into().unwrap()),
            u32::from_be_bytes(head[4..8].try_into().unwrap()),
        )
    }

    pub fn data(&mut self, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data).unwrap();
        data
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.send(&header(READ, 77, offset, length));
        assert_eq!(self.reply(), (77, 0));
        self.data(length as usize)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.send(&[header(WRITE, 78, offset, data.len() as u32), data.to_vec()].concat());
        self.reply().1
    }

    /// True if the server closes the connection (after any bytes it still sends).
    pub fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
    }
}
