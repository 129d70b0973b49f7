//! Greedy clients: many connections, all queues full, the largest requests, and unread replies.
//!
//! The server's memory stays bounded, another client gets its answers meanwhile, and when the
//! greedy ones read at last everything is right.

use crate::support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use support::{Client, Fixture, READ, WRITE, eventually, header};
use windrow_frontend::ram::RamSource;
use windrow_frontend::{ExportInfo, ExportSource, Session, Sink};
use windrow_io::{Buf, BufPool, Completion, Op, Payload, Reply, Request, RequestError};
use windrow_nbd::{Listen, Server, ServerOptions};
use windrow_types::VolumeId;

const GREEDY: usize = 6;
const BLOCK: u32 = 4096;
/// Size of the buffer of which each read gets a small part.
const LARGE_BYTES: usize = 1 << 20;
const LARGEST: u32 = 32 << 20;

/// Answers every read with a slice of its own large buffer, as a volume does for blocks of a large
/// write in flight.
struct Slices {
    buffers: BufPool,
    /// Pool of the large buffers: it counts those that are alive.
    large: BufPool,
}

struct Slicing(BufPool);

fn info() -> ExportInfo {
    ExportInfo {
        name: String::new(),
        description: String::new(),
        volume: VolumeId(1),
        size_bytes: 1 << 30,
        read_only: false,
        min_block: 512,
        preferred_block: 4096,
        max_block: LARGEST,
    }
}

fn byte_at(offset: u64) -> u8 {
    (offset / u64::from(BLOCK) % 251) as u8
}

impl ExportSource for Slices {
    fn list(&self) -> Vec<ExportInfo> {
        vec![info()]
    }

    fn open(&self, _: &str, _: Arc<dyn Sink>) -> Result<Box<dyn Session>, RequestError> {
        Ok(Box::new(Slicing(self.large.clone())))
    }

    fn buffers(&self) -> &BufPool {
        &self.buffers
    }
}

impl Session for Slicing {
    fn submit(&self, requests: &mut Vec<Request>, ready: &mut Vec<Completion>) {
        for request in requests.drain(..) {
            let result = match request.op {
                Op::Read { offset, length } => {
                    let mut buf: Buf = self.0.get(LARGE_BYTES);
                    buf[LARGE_BYTES / 2..][..length as usize].fill(byte_at(offset));
                    let whole: Payload = buf.freeze();
                    let half = length as usize / 2;
                    Ok(Reply::Data(vec![
                        whole.slice(LARGE_BYTES / 2, half),
                        whole.slice(LARGE_BYTES / 2 + half, half),
                    ]))
                }
                _ => Ok(Reply::Done),
            };
            ready.push(Completion {
                id: request.id,
                result,
                lsns: None,
            });
        }
    }

    fn info(&self) -> ExportInfo {
        info()
    }
}

/// Sends a client's requests on a separate thread, as the client never reads.
fn flood(stream: &UnixStream, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    stream.set_write_timeout(None).unwrap();
    std::thread::spawn(move || {
        // At the end of the test the server cuts off clients that are still connected.
        let _ = stream.write_all(&bytes);
    })
}

/// Small slices that wait for clients must not keep their large buffers: 128 requests of 4 KiB
/// would hold 128 times 32 MiB, with every connection.
#[test]
fn unread_replies_do_not_keep_the_large_buffers_that_they_were_cut_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let source = Arc::new(Slices {
        buffers: BufPool::new(64 << 20),
        large: BufPool::new(0),
    });
    let options = ServerOptions::default();
    let depth = options.requests_in_flight_max;
    let mut fixture = Fixture::around(
        Server::start(source.clone(), vec![Listen::Unix(path.clone())], options).unwrap(),
        path,
        folder,
    );
    // Far more than the sockets take.
    let count = 4 * u64::from(depth);
    let mut greedy: Vec<Client> = (0..GREEDY).map(|_| fixture.client("")).collect();
    let requests = || {
        (0..count)
            .flat_map(|cookie| header(READ, cookie, cookie * u64::from(BLOCK), BLOCK))
            .collect::<Vec<u8>>()
    };
    let floods: Vec<_> = greedy
        .iter()
        .map(|client| flood(&client.stream, requests()))
        .collect();
    eventually("all queues are full", || {
        fixture
            .server()
            .connections()
            .iter()
            .filter(|info| info.in_flight == depth)
            .count()
            == GREEDY
    });
    // One for the source, one for each session; the one of a sender comes and goes.
    eventually("no large buffer is kept", || {
        source.large.handles() <= 1 + GREEDY
    });
    // Another client gets its turn, as often as it likes.
    let mut decent = fixture.client("");
    for lba in 0..300 {
        assert!(
            decent
                .read(lba * u64::from(BLOCK), BLOCK)
                .iter()
                .all(|byte| *byte == byte_at(lba * u64::from(BLOCK)))
        );
    }
    assert!(
        source.large.handles() <= 3 + GREEDY,
        "{} large buffers are kept",
        source.large.handles()
    );
    // At last they read: everything is there, in order, and right.
    for client in &mut greedy {
        for cookie in 0..count {
            assert_eq!(client.reply(), (cookie, 0));
            let expected = byte_at(cookie * u64::from(BLOCK));
            assert!(
                client
                    .data(BLOCK as usize)
                    .iter()
                    .all(|byte| *byte == expected),
                "reply {cookie}"
            );
        }
    }
    floods.into_iter().for_each(|flood| flood.join().unwrap());
    drop((greedy, decent));
    fixture.wait_empty();
    fixture.server.take();
    assert_eq!(source.large.handles(), 1);
}

/// A client over TCP: another peer than those on the unix socket of this process.
fn other_peer(address: std::net::SocketAddr) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(std::time::Duration::from_secs(10)))
        .unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream
        .write_all(
            &[
                &[0, 0, 0, 3][..],
                b"IHAVEOPT",
                &1u32.to_be_bytes(),
                &0u32.to_be_bytes(),
            ]
            .concat(),
        )
        .unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

/// With separate bounds for each connection, sixty clients that read the largest pieces and take
/// nothing would hold four GiB.
#[test]
fn greedy_clients_share_one_budget_and_another_peer_is_served_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let source = Arc::new(RamSource::single(64 << 20));
    let options = ServerOptions::default();
    let (memory_max, per_peer) = (options.memory_bytes, options.connections_per_peer);
    let listen = vec![
        Listen::Unix(path.clone()),
        "tcp:127.0.0.1:0".parse().unwrap(),
    ];
    let fixture = Fixture::around(
        Server::start(source.clone(), listen, options).unwrap(),
        path,
        folder,
    );
    let Listen::Tcp(address) = fixture.server().addresses()[1] else {
        panic!()
    };
    // The most that one peer can get. A third reads and takes nothing, a third begins to write and
    // stops in the middle, a third has many small requests.
    let greedy: Vec<Client> = (0..per_peer).map(|_| fixture.client("")).collect();
    let floods: Vec<_> = greedy
        .iter()
        .enumerate()
        .map(|(index, client)| {
            let reads = |length| {
                (0..1000)
                    .flat_map(|cookie| header(READ, cookie, 0, length))
                    .collect()
            };
            let half = || [header(WRITE, 1, 0, LARGEST), vec![1; LARGEST as usize / 64]].concat();
            flood(
                &client.stream,
                [reads(LARGEST), half(), reads(1 << 20)][index % 3].clone(),
            )
        })
        .collect();
    let usage = || fixture.server().watch().usage().unwrap();
    eventually("they have all they get", || {
        let usage = usage();
        usage.memory_bytes > memory_max / 3 && usage.waiting > per_peer / 2
    });
    let mut decent = other_peer(address);
    for round in 0..50u64 {
        for length in [4096, 1 << 20, 8 << 20] {
            decent.write_all(&header(READ, round, 0, length)).unwrap();
            decent
                .read_exact(&mut vec![0; 16 + length as usize])
                .unwrap();
        }
    }
    let usage = usage();
    assert!(usage.memory_peak_bytes <= memory_max, "{usage:?}");
    assert_eq!(usage.peers.len(), 2);
    assert!(
        usage.peers[0].connections == per_peer
            && usage.peers[0].memory_bytes >= usage.peers[1].memory_bytes
    );
    assert!(
        source.counters().reads < 1000,
        "what has no room for its reply is not read"
    );
    drop(greedy);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
    drop(decent);
    fixture.wait_empty();
    assert_eq!(fixture.server().watch().usage().unwrap().memory_bytes, 0);
}

/// With memory for two of the largest requests only, every client with such requests gets its turn.
#[test]
fn the_smallest_budget_serves_the_largest_requests_of_all() {
    let options = ServerOptions {
        memory_bytes: *ServerOptions::MEMORY_BYTES.start(),
        ..ServerOptions::default()
    };
    let fixture = Fixture::with_size(options, 32 << 20);
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            let mut client = fixture.client("");
            scope.spawn(move || {
                client.send(&[header(READ, 1, 0, LARGEST), header(READ, 2, 0, LARGEST)].concat());
                for _ in 0..2 {
                    assert_eq!(client.reply().1, 0);
                    client.data(LARGEST as usize);
                }
                assert_eq!(client.write(0, &vec![number; LARGEST as usize]), 0);
            });
        }
    });
    let usage = fixture.server().watch().usage().unwrap();
    assert!(
        usage.memory_peak_bytes <= *ServerOptions::MEMORY_BYTES.start(),
        "{usage:?}"
    );
}
