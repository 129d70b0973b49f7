//! Clients that take all they can get: many connections, all queues full, the largest requests, and replies that nobody reads.
//!
//! What they can make the server hold has a bound, another client gets its answers meanwhile, and when they read at last everything is right.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use support::{Client, Fixture, READ, WRITE, eventually, header};
use windrow_export::{ExportInfo, ExportSource, Session, Sink};
use windrow_io::{Buf, BufPool, Completion, Op, Payload, Reply, Request, RequestError};
use windrow_nbd::{Listen, Server, ServerOptions};
use windrow_units::VolumeId;

const GREEDY: usize = 6;
const BLOCK: u32 = 4096;
/// Of which each read gets a small part.
const LARGE_BYTES: usize = 1 << 20;
const LARGEST: u32 = 32 << 20;
/// Where nobody but the decent client writes.
const OWN: u64 = 48 << 20;

/// Answers every read with a slice of a large buffer of its own, as a volume does for blocks of a large write that is on its way.
struct Slices {
    buffers: BufPool,
    /// Where the large buffers come from: it counts those that are alive.
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
                    Ok(Reply::Data(vec![whole.slice(LARGE_BYTES / 2, half), whole.slice(LARGE_BYTES / 2 + half, half)]))
                }
                _ => Ok(Reply::Done),
            };
            ready.push(Completion { id: request.id, result, orders: None });
        }
    }

    fn info(&self) -> ExportInfo {
        info()
    }
}

/// A client whose requests are sent by a thread of its own, as it never reads.
fn flood(stream: &UnixStream, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    stream.set_write_timeout(None).unwrap();
    std::thread::spawn(move || {
        // The server cuts off whoever is still here at the end of the test.
        let _ = stream.write_all(&bytes);
    })
}

/// Small slices of large buffers waited for clients that read no replies, and each kept all of its buffer: 128 requests of 4 KiB held 128 times
/// 32 MiB, with every connection.
#[test]
fn replies_that_nobody_reads_do_not_keep_the_buffers_that_they_were_cut_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let source = Arc::new(Slices { buffers: BufPool::new(64 << 20), large: BufPool::new(0) });
    let options = ServerOptions::default();
    let depth = options.requests_in_flight_max;
    let mut fixture = Fixture::around(Server::start(source.clone(), vec![Listen::Unix(path.clone())], options).unwrap(), path, folder);
    // Far more than the sockets take.
    let count = 4 * u64::from(depth);
    let mut greedy: Vec<Client> = (0..GREEDY).map(|_| fixture.client("")).collect();
    let requests = || (0..count).flat_map(|cookie| header(READ, cookie, cookie * u64::from(BLOCK), BLOCK)).collect::<Vec<u8>>();
    let floods: Vec<_> = greedy.iter().map(|client| flood(&client.stream, requests())).collect();
    eventually("all queues are full", || fixture.server().connections().iter().filter(|info| info.in_flight == depth).count() == GREEDY);
    // One for the source, one for each session; what a sender has in its hands at the moment comes and goes.
    eventually("no large buffer is kept", || source.large.handles() <= 1 + GREEDY);
    // Another client has its turn, as often as it likes.
    let mut decent = fixture.client("");
    for lba in 0..300 {
        assert!(decent.read(lba * u64::from(BLOCK), BLOCK).iter().all(|byte| *byte == byte_at(lba * u64::from(BLOCK))));
    }
    assert!(source.large.handles() <= 3 + GREEDY, "{} large buffers are kept", source.large.handles());
    // At last they read: everything is there, in order, and right.
    for client in &mut greedy {
        for cookie in 0..count {
            assert_eq!(client.reply(), (cookie, 0));
            let expected = byte_at(cookie * u64::from(BLOCK));
            assert!(client.data(BLOCK as usize).iter().all(|byte| *byte == expected), "reply {cookie}");
        }
    }
    floods.into_iter().for_each(|flood| flood.join().unwrap());
    drop((greedy, decent));
    fixture.wait_empty();
    fixture.server.take();
    assert_eq!(source.large.handles(), 1);
}

#[test]
fn the_largest_requests_of_greedy_clients_stay_within_the_bound_and_others_get_their_share() {
    let options = ServerOptions { connections_max: GREEDY + 1, ..ServerOptions::default() };
    let (bytes_max, memory_max) = (options.bytes_in_flight_max, options.memory_bytes_max());
    let fixture = Fixture::new(options);
    // Half of them read and take nothing; the others begin to write and stop in the middle.
    let greedy: Vec<Client> = (0..GREEDY).map(|_| fixture.client("")).collect();
    let floods: Vec<_> = greedy
        .iter()
        .enumerate()
        .map(|(index, client)| {
            let reads = || (0..1000).flat_map(|cookie| header(READ, cookie, 0, LARGEST)).collect();
            let writes = || [header(WRITE, 1, 0, LARGEST), vec![1; LARGEST as usize], header(WRITE, 2, 0, LARGEST), vec![2; LARGEST as usize / 2]].concat();
            flood(&client.stream, if index % 2 == 0 { reads() } else { writes() })
        })
        .collect();
    let full = (bytes_max / u64::from(LARGEST)) as u32;
    eventually("the readers have all they get", || fixture.server().connections().iter().filter(|info| info.in_flight == full).count() == GREEDY.div_ceil(2));
    let peak = Mutex::new(0);
    let mut decent = fixture.client("");
    for round in 0..200u64 {
        assert_eq!(decent.write(OWN + round * 4096, &[round as u8; 4096]), 0);
        let infos = fixture.server().connections();
        let held: u64 = infos.iter().map(|info| u64::from(info.in_flight) * u64::from(LARGEST)).sum();
        assert!(infos.iter().all(|info| info.in_flight <= full), "{infos:?}");
        let mut peak = peak.lock().unwrap();
        *peak = held.max(*peak);
    }
    assert!(*peak.lock().unwrap() <= memory_max);
    // Nobody else is let in, and those who are in are not thrown out for it.
    let mut turned_away = fixture.dial();
    assert_eq!(turned_away.read(&mut [0; 18]).unwrap_or(0), 0);
    assert_eq!(decent.write(OWN, &[7; 4096]), 0);
    drop(greedy);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
    // What they had asked for beyond the bound is not worked off for nobody: a thousand of the largest reads each.
    while fixture.server().connections().len() > 1 {
        assert_eq!(decent.write(OWN, &[7; 4096]), 0);
    }
    let reads = fixture.source.counters().reads;
    assert!(reads < 100, "{reads} reads for clients that took no reply");
    assert_eq!(decent.read(OWN, 4096), [7; 4096]);
}
