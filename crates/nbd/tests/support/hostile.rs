//! Input of hostile clients, and invariants for any input. Used by the tests of this crate with
//! random programs, and by the fuzz targets of `fuzz/`, where libFuzzer writes the programs.
//!
//! A *program* is any string of bytes. [`wire`] turns it into bytes for the wire: each instruction
//! emits a message that is right, nearly right, or plain bytes. So random bytes pass the first
//! checks, and every byte string is still reachable.
#![allow(dead_code)]

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windrow_frontend::ExportInfo;
use windrow_frontend::ram::{RamExport, RamSource};
use windrow_io::{BufPool, Extent, ExtentState, Op, Reply, RequestError};
use windrow_nbd::protocol::{
    Action, Command, Denied, Exports, Handshake, HandshakeStep, Incoming, MAX_OPTION_BYTES,
    MAX_REQUEST_BYTES, Refusal, ReplyQueue, RequestParser, RequestStep, Rules,
};
use windrow_nbd::{Event, Listen, Server, ServerOptions};
use windrow_types::VolumeId;

/// Longest stream that a program may make.
const WIRE_BYTES_MAX: usize = 4 << 20;
/// Longest payload that one instruction emits.
const PAYLOAD_BYTES_MAX: usize = 200 << 10;
/// Volumes of the server under attack.
const VOLUME_BYTES: u64 = 1 << 20;
/// More than any step of a negotiation over three exports answers.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A cursor over a program; after its end everything is zero.
struct Program<'a>(&'a [u8]);

impl Program<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |sum, _| sum << 8 | u64::from(self.byte()))
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let (head, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        head.to_vec()
    }

    /// A number near an important limit.
    fn interesting(&mut self) -> u64 {
        let base = [
            0,
            512,
            4096,
            64 << 10,
            VOLUME_BYTES,
            MAX_REQUEST_BYTES.into(),
            4 * u64::from(MAX_REQUEST_BYTES),
            u32::MAX.into(),
            u64::MAX,
        ];
        match self.byte() {
            kind @ 0..=8 => base[usize::from(kind)],
            kind @ 9..=17 => base[usize::from(kind) - 9].wrapping_sub(512),
            kind @ 18..=26 => base[usize::from(kind) - 18].wrapping_add(1),
            kind @ 27..=128 => u64::from(kind - 27) * 4096,
            129..=200 => u64::from(self.byte()) * 512,
            _ => self.number(),
        }
    }
}

/// The bytes that a program sends.
pub fn wire(program: &[u8]) -> Vec<u8> {
    let (mut program, mut out) = (Program(program), Vec::new());
    while !program.0.is_empty() && out.len() < WIRE_BYTES_MAX {
        match program.byte() % 8 {
            0 => out.extend(u32::from(program.byte() % 5).to_be_bytes()),
            1 | 2 => option(&mut program, &mut out),
            3 => out.extend(entry("", 7)),
            4..=6 => request(&mut program, &mut out),
            _ => {
                let length = program.byte().into();
                out.extend(program.take(length));
            }
        }
    }
    out
}

/// Client flags and the option that enters an export: GO (7) or EXPORT_NAME (1).
fn entry(export: &str, kind: u32) -> Vec<u8> {
    let data = if kind == 1 {
        export.as_bytes().to_vec()
    } else {
        [
            &(export.len() as u32).to_be_bytes(),
            export.as_bytes(),
            &[0, 0],
        ]
        .concat()
    };
    [
        &[0, 0, 0, 3],
        b"IHAVEOPT" as &[u8],
        &kind.to_be_bytes(),
        &(data.len() as u32).to_be_bytes(),
        &data,
    ]
    .concat()
}

fn option(program: &mut Program<'_>, out: &mut Vec<u8>) {
    let kind = u32::from(program.byte() % 13);
    let name: &[u8] =
        [&b""[..], b"fixed", b"nothing", b"\xff\xfe"][usize::from(program.byte() % 4)];
    let name_data = [&(name.len() as u32).to_be_bytes(), name].concat();
    let data = match (kind, program.byte() % 4) {
        (_, 3) => {
            let length = program.byte().into();
            program.take(length)
        }
        (1, _) => name.to_vec(),
        (6 | 7, count) => [
            &name_data,
            &[0, count][..],
            &(0..count).flat_map(|info| [0, info]).collect::<Vec<u8>>(),
        ]
        .concat(),
        (9 | 10, count) => {
            let query = [&15u32.to_be_bytes()[..], b"base:allocation"].concat();
            [
                name_data,
                u32::from(count).to_be_bytes().to_vec(),
                query.repeat(count.into()),
            ]
            .concat()
        }
        (_, 2) => vec![program.byte(); 40 << 10],
        _ => Vec::new(),
    };
    let length = if program.byte() < 32 {
        program.interesting() as u32
    } else {
        data.len() as u32
    };
    out.extend(
        [
            b"IHAVEOPT" as &[u8],
            &kind.to_be_bytes(),
            &length.to_be_bytes(),
            &data,
        ]
        .concat(),
    );
}

fn request(program: &mut Program<'_>, out: &mut Vec<u8>) {
    let kind = u16::from(program.byte() % 10);
    let flags = if program.byte() < 64 {
        u16::from(program.byte())
    } else {
        0
    };
    let (offset, length) = (program.interesting(), program.interesting() as u32);
    let magic: u32 = if program.byte() == 1 {
        program.number() as u32
    } else {
        0x2560_9513
    };
    out.extend(
        [
            &magic.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &kind.to_be_bytes(),
            &(out.len() as u64).to_be_bytes(),
        ]
        .concat(),
    );
    out.extend([&offset.to_be_bytes()[..], &length.to_be_bytes()].concat());
    if kind == 1 {
        // Mostly whole; a longer one is cut short, and the next bytes are taken for its rest.
        out.extend(std::iter::repeat_n(
            program.byte(),
            (length as usize).min(PAYLOAD_BYTES_MAX),
        ));
    }
}

/// Programs of valid sessions, to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    let read_and_write: &[u8] = &[
        4, 1, 255, 28, 2, 0, 9, 4, 0, 255, 28, 2, 0, 4, 3, 255, 0, 0, 0, 4, 2, 255, 0, 0, 0,
    ];
    let others: &[u8] = &[
        4, 4, 255, 0, 4, 0, 4, 6, 255, 28, 28, 0, 4, 7, 255, 0, 4, 0, 4, 5, 255, 0, 1, 0,
    ];
    let large: &[u8] = &[4, 1, 255, 0, 48, 0, 7, 4, 0, 255, 0, 48, 0];
    let haggling: &[u8] = &[
        0, 3, 1, 8, 0, 0, 255, 1, 10, 0, 1, 255, 1, 3, 0, 0, 255, 1, 6, 1, 2, 255, 1, 7, 0, 1, 255,
    ];
    let enter: &[u8] = &[3];
    [
        [enter, read_and_write].concat(),
        [enter, others].concat(),
        [enter, large].concat(),
        [haggling, read_and_write, others].concat(),
        haggling.to_vec(),
    ]
    .into()
}

struct Two;

fn export(name: &str, read_only: bool) -> ExportInfo {
    ExportInfo {
        name: name.into(),
        description: "text".into(),
        volume: VolumeId(1),
        size_bytes: VOLUME_BYTES,
        read_only,
        min_block: 512,
        preferred_block: 4096,
        max_block: MAX_REQUEST_BYTES,
    }
}

impl Exports for Two {
    fn list(&mut self) -> Vec<ExportInfo> {
        vec![export("", false), export("fixed", true)]
    }

    fn info(&mut self, name: &str) -> Result<ExportInfo, RequestError> {
        self.list()
            .into_iter()
            .find(|export| export.name == name)
            .ok_or(RequestError::NoVolume)
    }

    fn open(&mut self, name: &str) -> Result<ExportInfo, Denied> {
        self.info(name).map_err(Denied::from)
    }
}

/// Feeds `input` in pieces of at most `piece` bytes; returns output, bytes used, the last step.
fn negotiate(input: &[u8], piece: usize) -> (Vec<u8>, usize, String) {
    let (mut handshake, mut output, mut used, mut there) = (Handshake::new(), Vec::new(), 0, 0);
    loop {
        let before = output.len();
        let (step_used, step) = handshake.advance(&input[used..there], &mut Two, &mut output);
        used += step_used;
        assert!(used <= there, "more was used than was there");
        assert!(
            output.len() - before <= ANSWER_BYTES_MAX,
            "an answer of {} bytes",
            output.len() - before
        );
        match step {
            HandshakeStep::Continue => assert!(
                step_used > 0 || output.len() > before,
                "a step without progress"
            ),
            HandshakeStep::More if there == input.len() => {
                return (output, used, "more".to_owned());
            }
            HandshakeStep::More => {
                // A connection's buffer holds one option and no more.
                assert!(
                    there - used <= MAX_OPTION_BYTES as usize + 16,
                    "{} bytes are not enough for an option",
                    there - used
                );
                there = input.len().min(there + piece);
            }
            HandshakeStep::Enter(agreement) => {
                assert!(!agreement.base_allocation || agreement.structured);
                assert!(
                    Two.info(&agreement.info.name).is_ok(),
                    "an export that does not exist was entered"
                );
                return (output, used, format!("{agreement:?}"));
            }
            last @ (HandshakeStep::Abort | HandshakeStep::Reject(_)) => {
                return (output, used, format!("{last:?}"));
            }
        }
    }
}

/// Negotiation is total, bounded, and depends on the bytes only, not on how they were split.
pub fn handshake(input: &[u8]) {
    let whole = negotiate(input, 1 << 10);
    assert_eq!(
        whole,
        negotiate(input, 1 + input.len() % 61),
        "the pieces make a difference"
    );
}

/// The transmission phase of a client: every request is checked, every reply is well-formed.
pub fn requests(input: &[u8], mode: u8) {
    let bit = |at: u8| mode >> at & 1 == 1;
    let rules = Rules {
        min_block: if bit(0) { 512 } else { 4096 },
        max_block: MAX_REQUEST_BYTES,
        read_only: bit(1),
        structured: bit(2),
        base_allocation: bit(2) && bit(3),
    };
    let mut parser = RequestParser::new(rules, BufPool::new(0));
    let mut queue = ReplyQueue::new(rules.structured);
    let mut expected = Vec::new();
    let (mut used, mut there) = (0, 0);
    loop {
        if let Some(space) = parser.payload_space().filter(|_| bit(4)) {
            assert!(
                space.len() <= MAX_REQUEST_BYTES as usize,
                "a buffer of {} bytes",
                space.len()
            );
            let length = space.len().min(there - used);
            space[..length].copy_from_slice(&input[used..used + length]);
            parser.payload_received(length);
            used += length;
        }
        let (step_used, step) = parser.next(&input[used..there]);
        used += step_used;
        assert!(used <= there, "more was used than was there");
        match step {
            RequestStep::More if there == input.len() => break,
            RequestStep::More => there = input.len().min(there + 1 + usize::from(mode) * 97),
            RequestStep::Request(incoming) => {
                check_request(&incoming, &rules);
                expected.push(incoming.cookie);
                answer(&mut queue, &incoming, mode);
            }
            RequestStep::Disconnect | RequestStep::Reject(_) => break,
        }
    }
    let mut bytes = Vec::new();
    while !queue.is_empty() {
        let mut slices = [IoSlice::new(&[]); 3];
        let count = queue.slices(&mut slices);
        slices[..count]
            .iter()
            .for_each(|slice| bytes.extend_from_slice(slice));
        let length = slices[..count].iter().map(|slice| slice.len()).sum();
        queue.sent(length);
    }
    assert_eq!(
        cookies(&bytes, rules.structured),
        expected,
        "every request has its reply"
    );
}

/// Checks that requests to the volume obey the rules.
fn check_request(incoming: &Incoming, rules: &Rules) {
    let Action::Submit(op) = &incoming.action else {
        return;
    };
    let (length, changes) = match op {
        Op::Write { data, .. } => (data.len() as u64, true),
        Op::Read { length, .. } => (u64::from(*length), false),
        Op::Trim { length, .. } | Op::WriteZeroes { length, .. } => (*length, true),
        Op::BlockStatus { length, .. } => (*length, false),
        Op::Flush => return assert_eq!((incoming.offset, incoming.length), (0, 0)),
    };
    assert_eq!(length, u64::from(incoming.length));
    assert!(length > 0 && incoming.offset.checked_add(length).is_some());
    assert!((incoming.offset | length).is_multiple_of(rules.min_block.into()));
    assert!(!changes || !rules.read_only);
    assert!(
        !matches!(incoming.command, Command::Read | Command::Write)
            || length <= rules.max_block.into()
    );
    assert!(rules.base_allocation || incoming.command != Command::BlockStatus);
}

/// Answers as a volume does, sometimes as a broken one.
fn answer(queue: &mut ReplyQueue, incoming: &Incoming, mode: u8) {
    let broken = mode >> 5 == incoming.cookie as u8 & 7;
    let extent = |length: u64| Extent {
        length,
        state: ExtentState::Hole,
    };
    let result = match &incoming.action {
        Action::Refuse(refusal) => Err(*refusal),
        Action::Submit(_) if mode & 0xc0 == 0xc0 && broken => {
            Err(Refusal::Volume(RequestError::Io))
        }
        // Megabytes of zeroes would only make it slow.
        Action::Submit(Op::Read { length, .. }) if *length > 1 << 16 => {
            Err(Refusal::Volume(RequestError::Io))
        }
        Action::Submit(Op::Read { length, .. }) => {
            let length = if broken { 512 } else { *length as usize };
            Ok(Reply::Data(vec![BufPool::new(0).get(length).freeze()]))
        }
        Action::Submit(Op::BlockStatus { length, .. }) if broken => Ok(Reply::Extents(vec![
            extent(0),
            extent(u64::MAX),
            extent(*length),
        ])),
        Action::Submit(Op::BlockStatus { length, .. }) => Ok(Reply::Extents(vec![extent(*length)])),
        Action::Submit(_) | Action::Cache => Ok(Reply::Done),
    };
    queue.answer(incoming, result);
}

/// The cookies of well-formed replies. With structured replies, a simple one may only report plain
/// success. Without them, simple replies to reads have no length, so the next magic is searched.
fn cookies(mut bytes: &[u8], structured: bool) -> Vec<u64> {
    const SIMPLE: u64 = 0x6744_6698;
    const STRUCTURED: u64 = 0x668e_33ef;
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let mut list = Vec::new();
    while !bytes.is_empty() {
        list.push(number(&bytes[8..16]));
        match (number(&bytes[..4]), structured) {
            (STRUCTURED, true) => {
                assert_eq!(number(&bytes[4..6]), 1, "each reply is one chunk");
                bytes = &bytes[20 + number(&bytes[16..20]) as usize..];
            }
            (SIMPLE, true) => {
                assert_eq!(number(&bytes[4..8]), 0, "errors are structured");
                bytes = &bytes[16..];
            }
            (SIMPLE, false) => {
                // Data is zeroes, so the next magic cannot be in it.
                let end = bytes[16..]
                    .iter()
                    .position(|byte| *byte != 0)
                    .unwrap_or(bytes.len() - 16);
                bytes = &bytes[16 + end..];
            }
            (magic, _) => panic!("a reply begins with {magic:#x}"),
        }
    }
    list
}

/// A server under attack, with one well-behaved client.
pub struct Target {
    server: Server,
    path: std::path::PathBuf,
    decent: UnixStream,
    ended: Arc<Mutex<u64>>,
    attacks: u64,
    _folder: tempfile::TempDir,
}

impl Target {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let fixed = RamExport {
            read_only: true,
            ..RamExport::new("fixed", VOLUME_BYTES)
        };
        let source = RamSource::new(&[
            RamExport::new("", VOLUME_BYTES),
            fixed,
            RamExport::new("decent", VOLUME_BYTES),
        ]);
        let ended = Arc::new(Mutex::new(0));
        let seen = ended.clone();
        let observer = move |event: &Event| {
            *seen.lock().unwrap() += u64::from(matches!(event, Event::Ended { .. }))
        };
        let options = ServerOptions {
            observer: Some(Arc::new(observer)),
            requests_in_flight_max: 16,
            ..ServerOptions::default()
        };
        let server =
            Server::start(Arc::new(source), vec![Listen::Unix(path.clone())], options).unwrap();
        let mut decent = dial(&path);
        decent.write_all(&entry("decent", 1)).unwrap();
        decent.read_exact(&mut [0; 18 + 10]).unwrap();
        Self {
            server,
            path,
            decent,
            ended,
            attacks: 0,
            _folder: folder,
        }
    }

    /// Sends `bytes` over a new connection, and no more; returns when the server has closed it. No
    /// other client notices.
    pub fn attack(&mut self, bytes: &[u8]) {
        let stream = dial(&self.path);
        let mut writing = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            // Two directions at once: a client that does not read would stall its own requests.
            scope.spawn(move || {
                // The server may close before everything is sent.
                let _ = writing.write_all(bytes);
                let _ = writing.shutdown(Shutdown::Write);
            });
            drain(stream);
        });
        self.attacks += 1;
        let begin = Instant::now();
        // The observer is called at the very end of the connection's thread: not if that has
        // panicked.
        while *self.ended.lock().unwrap() < self.attacks {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "a connection never ended, or its thread panicked"
            );
            std::thread::sleep(Duration::from_micros(100));
        }
        self.check_decent();
    }

    fn check_decent(&mut self) {
        let number = self.attacks;
        let header = |kind: u16, length: u32| {
            [
                &0x2560_9513u32.to_be_bytes()[..],
                &[0, 0],
                &kind.to_be_bytes(),
                &number.to_be_bytes(),
                &4096u64.to_be_bytes(),
                &length.to_be_bytes(),
            ]
            .concat()
        };
        let data = [number as u8; 512];
        self.decent
            .write_all(&[&header(1, 512)[..], &data, &header(0, 512)].concat())
            .unwrap();
        let mut answers = [0; 16 + 16 + 512];
        self.decent.read_exact(&mut answers).unwrap();
        assert_eq!(answers[32..], data, "another client has noticed");
        assert_eq!(
            (&answers[4..8], &answers[20..24]),
            (&[0; 4][..], &[0; 4][..])
        );
        // A connection leaves the table just after its end was reported: a shutdown that finds the
        // table empty has reported everything.
        let begin = Instant::now();
        while self.server.connections().len() > 1 {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "only the decent client is left"
            );
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn dial(path: &std::path::Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

/// Receives until the server closes.
fn drain(mut stream: UnixStream) {
    let mut rest = vec![0; 64 << 10];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            // The signal that asks a fuzzer to end.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the server does not close the connection: {error}"),
        }
    }
}
