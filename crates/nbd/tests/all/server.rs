//! The server against clients that stall, lie, flood and leave, and its own shutdown.

use crate::support;

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{DISCONNECT, FLUSH, Fixture, READ, WRITE, eventually, header};
use windrow_frontend::ram::{Delivery, RamSource};
use windrow_frontend::{ExportInfo, ExportSource, Session, Sink};
use windrow_io::{BufPool, RequestError};
use windrow_nbd::{Ending, Event, Listen, Server, ServerOptions};

const ESHUTDOWN: u32 = 108;

/// Options whose observer records how connections end.
fn observed(options: ServerOptions) -> (ServerOptions, Arc<Mutex<Vec<Ending>>>) {
    let endings = Arc::new(Mutex::new(Vec::new()));
    let seen = endings.clone();
    let observer = move |event: &Event| {
        if let Event::Ended { ending, .. } = event {
            seen.lock().unwrap().push(*ending);
        }
    };
    (
        ServerOptions {
            observer: Some(Arc::new(observer)),
            ..options
        },
        endings,
    )
}

#[test]
fn small_and_large_requests_in_every_delivery() {
    for delivery in [Delivery::AtOnce, Delivery::Later] {
        let fixture = Fixture::with_size(ServerOptions::default(), 40 << 20);
        fixture.source.set_delivery(delivery);
        let mut client = fixture.client("");
        let data: Vec<u8> = (0..32u32 << 20)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for length in [512, 4096, 64 << 10, (64 << 10) + 512, 1 << 20, 32 << 20] {
            assert_eq!(client.write(4096, &data[..length]), 0);
            assert!(
                client.read(4096, length as u32) == data[..length],
                "{length} bytes, {delivery:?}"
            );
        }
        eventually("the last reply is accounted", || {
            fixture.server().connections()[0].in_flight == 0
        });
        let infos = fixture.server().connections();
        assert_eq!(
            (infos.len(), infos[0].requests, infos[0].errors),
            (1, 12, 0)
        );
        assert_eq!(infos[0].read_bytes, infos[0].written_bytes);
        client.send(&header(DISCONNECT, 0, 0, 0));
        assert!(client.is_closed());
        fixture.wait_empty();
    }
}

#[test]
fn replies_never_wait_for_input_that_does_not_come() {
    let fixture = Fixture::new(ServerOptions::default());
    let mut client = fixture.client("");
    let write = |cookie: u64, length: usize| {
        [header(WRITE, cookie, 0, length as u32), vec![1; length]].concat()
    };
    // Each burst is shorter than a group and ends inside a request, small or large, with and
    // without a part of its payload.
    for (burst, length, present) in [
        (3, 4096, 0),
        (3, 4096, 100),
        (1, 1 << 20, 0),
        (5, 1 << 20, 500_000),
    ] {
        let last = write(99, length);
        let (begin, rest) = last.split_at(28 + present);
        let whole: Vec<u8> = (0..burst).flat_map(|cookie| write(cookie, 512)).collect();
        client.send(&[&whole[..], begin].concat());
        for cookie in 0..burst {
            assert_eq!(client.reply(), (cookie, 0));
        }
        client.send(rest);
        assert_eq!(client.reply(), (99, 0));
    }
    client.send(&[write(1, 512), write(2, 512), header(DISCONNECT, 0, 0, 0)].concat());
    assert_eq!(
        [client.reply(), client.reply()],
        [(1, 0), (2, 0)],
        "answered before the connection ends"
    );
    assert!(client.is_closed());
}

#[test]
fn one_burst_is_one_group_and_every_request_is_answered_once() {
    let fixture = Fixture::new(ServerOptions::default());
    let mut client = fixture.client("");
    for delivery in [Delivery::AtOnce, Delivery::Later] {
        fixture.source.set_delivery(delivery);
        let before = fixture.source.counters().groups;
        let burst: Vec<u8> = (0..32u64)
            .flat_map(|cookie| {
                [
                    header(WRITE, cookie, cookie * 4096, 4096),
                    vec![cookie as u8; 4096],
                ]
                .concat()
            })
            .collect();
        client.send(&burst);
        let mut cookies: Vec<u64> = (0..32)
            .map(|_| client.reply())
            .inspect(|reply| assert_eq!(reply.1, 0))
            .map(|reply| reply.0)
            .collect();
        cookies.sort_unstable();
        assert!(cookies.into_iter().eq(0..32));
        assert!(
            fixture.source.counters().groups - before < 16,
            "requests that arrive together are submitted together"
        );
    }
}

#[test]
fn errors_keep_the_connection() {
    let fixture = Fixture::new(ServerOptions::default());
    let mut client = fixture.client("");
    assert_eq!(client.write(1, &[]), 22);
    assert_eq!(
        (client.write(4095, b"ab"), client.read(4094, 4)),
        (0, b"\0ab\0".to_vec()),
        "any byte"
    );
    assert_eq!(client.write(64 << 20, &[0; 512]), 28);
    for (offset, length, expected) in [
        (64 << 20, 512, 22),
        (0, 0, 22),
        (0, 64 << 20, 22),
        (u64::MAX - 511, 512, 22),
    ] {
        client.send(&header(READ, 5, offset, length));
        assert_eq!(client.reply(), (5, expected), "{offset} {length}");
    }
    fixture.source.fail(8192..8193, RequestError::Io);
    fixture.source.fail(16384..16385, RequestError::NoSpace);
    assert_eq!(client.write(8192, &[0; 512]), 5);
    assert_eq!(client.write(16384, &[0; 512]), 28);
    // A payload beyond the bound is skipped without being stored.
    client.send(&header(WRITE, 6, 0, 33 << 20));
    (0..33).for_each(|_| client.send(&[0; 1 << 20]));
    assert_eq!(client.reply(), (6, 22));
    assert_eq!(client.read(0, 512), [0; 512]);
    let mut fixed = fixture.client("fixed");
    assert_eq!(fixed.write(0, &[0; 512]), 1);
}

/// As one request, a read of the largest size would take all its buffers while the volume serves no
/// other client.
#[test]
fn a_large_read_goes_to_the_volume_in_pieces_and_is_answered_as_a_whole() {
    for delivery in [Delivery::AtOnce, Delivery::Later] {
        let fixture = Fixture::with_size(ServerOptions::default(), 40 << 20);
        fixture.source.set_delivery(delivery);
        let mut client = fixture.client("");
        let data: Vec<u8> = (0..32u32 << 20)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        assert_eq!(client.write(777, &data), 0);
        let before = fixture.source.counters();
        for length in [1 << 20, (1 << 20) + 1, (32 << 20) - 1, 32 << 20] {
            assert!(
                client.read(777, length) == data[..length as usize],
                "{length} bytes, {delivery:?}"
            );
        }
        let after = fixture.source.counters();
        assert_eq!(after.reads - before.reads, 1 + 2 + 32 + 32);
        assert!(
            after.groups - before.groups >= 1 + 2 + 32 + 32,
            "each piece by itself"
        );
        fixture
            .source
            .fail(5 << 20..(5 << 20) + 1, RequestError::Io);
        client.send(&header(READ, 5, 0, 8 << 20));
        assert_eq!(client.reply(), (5, 5));
        assert!(
            client.read(6 << 20, 8 << 20) == data[(6 << 20) - 777..][..8 << 20],
            "and the connection stays in step"
        );
    }
}

#[test]
fn a_client_that_breaks_the_protocol_loses_only_its_own_connection() {
    let (options, endings) = observed(ServerOptions::default());
    let fixture = Fixture::new(options);
    let mut good = fixture.client("");
    let mut bad = fixture.client("");
    bad.send(&[header(FLUSH, 9, 0, 0), vec![7; 28]].concat());
    assert_eq!(bad.reply(), (9, 0), "what was legal is answered");
    assert!(bad.is_closed());
    let mut garbage = fixture.dial();
    garbage.write_all(&[0xff; 1000]).unwrap();
    let mut huge = fixture.client("");
    huge.send(&header(WRITE, 1, 0, u32::MAX));
    assert!(huge.is_closed());
    drop(fixture.client("")); // leaves without a word
    let mut half = fixture.client("");
    half.send(&header(WRITE, 1, 0, 1 << 20)[..20]);
    drop(half);
    eventually("five connections end", || {
        endings.lock().unwrap().len() == 5
    });
    assert_eq!(
        endings
            .lock()
            .unwrap()
            .iter()
            .filter(|ending| matches!(ending, Ending::Rejected(_)))
            .count(),
        3
    );
    assert_eq!(good.write(0, &[1; 512]), 0);
}

#[test]
fn time_is_up_for_clients_that_do_not_move_on() {
    let (options, endings) = observed(ServerOptions {
        handshake_timeout: Duration::from_millis(150),
        stall_timeout: Duration::from_millis(150),
        ..ServerOptions::default()
    });
    let fixture = Fixture::new(options);
    let mut silent = fixture.dial();
    let mut half = fixture.client("");
    half.send(&header(WRITE, 1, 0, 4096));
    let mut large = fixture.client("");
    large.send(&header(WRITE, 1, 0, 1 << 20));
    let mut idle = fixture.client("");
    let mut deaf = fixture.client("");
    (0..64).for_each(|cookie| deaf.send(&header(READ, cookie, 0, 1 << 20)));
    assert!(half.is_closed() && large.is_closed());
    silent.read_to_end(&mut Vec::new()).unwrap();
    eventually("four connections end", || {
        endings.lock().unwrap().len() == 4
    });
    let count = |wanted| {
        endings
            .lock()
            .unwrap()
            .iter()
            .filter(|ending| **ending == wanted)
            .count()
    };
    assert_eq!(
        (
            count(Ending::HandshakeTimeout),
            count(Ending::Stalled),
            count(Ending::Unread)
        ),
        (1, 2, 1)
    );
    let usage = fixture.server().watch().usage().unwrap();
    assert_eq!(
        (usage.timed_out, usage.stalled, usage.memory_bytes),
        (1, 3, 0),
        "and what they held is free again"
    );
    assert_eq!(
        idle.write(0, &[1; 512]),
        0,
        "a client that has nothing to say may stay"
    );
}

#[test]
fn bounds_hold_back_a_client_that_floods() {
    let options = ServerOptions {
        requests_in_flight_max: 8,
        ..ServerOptions::default()
    };
    let fixture = Fixture::new(options);
    fixture.source.set_delivery(Delivery::Held);
    let mut client = fixture.client("");
    let flood: Vec<u8> = (0..40)
        .flat_map(|cookie| header(READ, cookie, 0, 4096))
        .collect();
    client.send(&flood);
    eventually("eight requests are in flight", || {
        fixture.source.held() == 8
    });
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(
        (
            fixture.source.held(),
            fixture.server().connections()[0].in_flight
        ),
        (8, 8)
    );
    fixture.source.set_delivery(Delivery::AtOnce);
    fixture.source.release();
    for _ in 0..40 {
        assert_eq!(client.reply().1, 0);
        client.data(4096);
    }
}

#[test]
fn bytes_in_flight_are_bounded_and_a_slow_reader_gets_everything() {
    let fixture = Fixture::new(ServerOptions::default());
    for delivery in [Delivery::AtOnce, Delivery::Later] {
        fixture.source.set_delivery(delivery);
        let mut client = fixture.client("");
        (0..20).for_each(|cookie| client.send(&header(READ, cookie, 0, 8 << 20)));
        eventually("replies wait", || {
            fixture
                .server()
                .connections()
                .iter()
                .any(|info| info.in_flight == 5)
        });
        std::thread::sleep(Duration::from_millis(30));
        assert!(
            fixture
                .server()
                .connections()
                .iter()
                .all(|info| info.in_flight <= 5),
            "8 MiB each, and 32 MiB kept for one more"
        );
        for _ in 0..20 {
            assert_eq!(client.reply().1, 0);
            client.data(8 << 20);
        }
    }
    fixture.wait_empty();
}

#[test]
fn a_client_that_vanishes_with_requests_in_flight_is_waited_out() {
    let fixture = Fixture::new(ServerOptions::default());
    fixture.source.set_delivery(Delivery::Held);
    let mut client = fixture.client("");
    client.send(&[header(WRITE, 1, 0, 4096), vec![5; 4096]].concat());
    eventually("the write is held", || fixture.source.held() == 1);
    drop(client);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(
        fixture.server().connections().len(),
        1,
        "the session lives until its last completion"
    );
    fixture.source.release();
    fixture.wait_empty();
}

/// The message with which GO for an export is refused; `None` if it was entered.
fn refusal(fixture: &Fixture, export: &str) -> Option<String> {
    const POLICY: u32 = 1 << 31 | 2;
    let mut stream = fixture.dial();
    stream.read_exact(&mut [0; 18]).unwrap();
    let data = [
        &(export.len() as u32).to_be_bytes()[..],
        export.as_bytes(),
        &[0, 0],
    ]
    .concat();
    stream
        .write_all(
            &[
                &[0, 0, 0, 3][..],
                b"IHAVEOPT",
                &7u32.to_be_bytes(),
                &(data.len() as u32).to_be_bytes(),
                &data,
            ]
            .concat(),
        )
        .unwrap();
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    if number(12) != POLICY {
        return None;
    }
    let mut message = vec![0; number(16) as usize];
    stream.read_exact(&mut message).unwrap();
    Some(String::from_utf8(message).unwrap())
}

#[test]
fn clients_beyond_each_limit_are_refused_with_its_name() {
    let default = ServerOptions::default;
    let cases = [
        (
            3,
            ServerOptions {
                connections_max: 3,
                ..default()
            },
            "the server has 3 clients, its limit",
        ),
        (
            2,
            ServerOptions {
                connections_per_peer: 2,
                ..default()
            },
            "this client has 2 connections, the limit for one client (--connections-per-client)",
        ),
        (
            3,
            ServerOptions {
                connections_per_export: 2,
                ..default()
            },
            "the export has 2 clients, the limit for one export",
        ),
    ];
    for (count, options, message) in cases {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heard = seen.clone();
        let observer = move |event: &Event| {
            if let Event::TurnedAway { limit, .. } = event {
                heard.lock().unwrap().push(limit.to_string());
            }
        };
        let fixture = Fixture::new(ServerOptions {
            observer: Some(Arc::new(observer)),
            ..options
        });
        let mut clients: Vec<_> = ["fixed", "", ""][..count]
            .iter()
            .map(|export| fixture.client(export))
            .collect();
        assert_eq!(refusal(&fixture, "").as_deref(), Some(message));
        assert_eq!(
            seen.lock().unwrap().last().map(String::as_str),
            Some(message)
        );
        assert!(fixture.server().watch().usage().unwrap().refused > 0);
        // A client of the old kind sees only the end of the connection.
        let mut old = fixture.dial();
        old.write_all(
            &[
                &[0, 0, 0, 3][..],
                b"IHAVEOPT",
                &1u32.to_be_bytes(),
                &0u32.to_be_bytes(),
            ]
            .concat(),
        )
        .unwrap();
        old.read_exact(&mut [0; 18]).unwrap();
        assert_eq!(old.read(&mut [0; 1]).unwrap_or(0), 0);
        assert_eq!(
            clients[1].write(0, &[1; 512]),
            0,
            "clients in an export stay"
        );
        clients.clear();
        fixture.wait_empty();
        assert_eq!(refusal(&fixture, ""), None);
    }
}

/// Silent connections must not keep new ones out.
#[test]
fn silent_connections_keep_no_other_out() {
    let (options, endings) = observed(ServerOptions {
        handshakes_max: 4,
        handshake_timeout: Duration::from_secs(600),
        ..ServerOptions::default()
    });
    let fixture = Fixture::new(options);
    let mut silent = Vec::new();
    for round in 0..12usize {
        let mut stream = fixture.dial();
        stream.read_exact(&mut [0; 18]).unwrap();
        silent.push(stream);
        let displaced = (round + 1).saturating_sub(4);
        eventually("the oldest one goes", || {
            endings.lock().unwrap().len() == displaced
        });
        assert_eq!(
            fixture.server().watch().usage().unwrap().handshakes,
            silent.len() - displaced
        );
    }
    let mut client = fixture.client("");
    assert_eq!(client.write(0, &[1; 512]), 0);
    assert!(
        endings
            .lock()
            .unwrap()
            .iter()
            .all(|ending| *ending == Ending::Displaced)
    );
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0, "the oldest one");
    assert_eq!(fixture.server().watch().usage().unwrap().displaced, 9);
}

#[test]
fn shutdown_answers_what_is_in_flight_and_refuses_what_comes_later() {
    let (options, endings) = observed(ServerOptions::default());
    let mut fixture = Fixture::new(options);
    fixture.source.set_delivery(Delivery::Held);
    let mut client = fixture.client("");
    let mut idle = fixture.client("");
    client.send(&[header(WRITE, 1, 0, 4096), vec![5; 4096]].concat());
    eventually("the write is held", || fixture.source.held() == 1);
    let server = fixture.server.take().unwrap();
    let shutdown = std::thread::spawn(move || server.shutdown(Duration::from_secs(10)));
    assert!(idle.is_closed());
    client.send(&header(READ, 2, 0, 512));
    assert_eq!(client.reply(), (2, ESHUTDOWN));
    fixture.source.release();
    assert_eq!(client.reply(), (1, 0));
    assert!(client.is_closed());
    assert_eq!(shutdown.join().unwrap(), Default::default());
    assert!(
        endings
            .lock()
            .unwrap()
            .iter()
            .all(|ending| *ending == Ending::Stopped)
    );
    assert!(!fixture.path.exists());
}

#[test]
fn shutdown_has_a_bound() {
    let mut fixture = Fixture::new(ServerOptions::default());
    fixture.source.set_delivery(Delivery::Held);
    let mut client = fixture.client("");
    client.send(&header(FLUSH, 1, 0, 0));
    eventually("the flush is held", || fixture.source.held() == 1);
    let report = fixture
        .server
        .take()
        .unwrap()
        .shutdown(Duration::from_millis(50));
    assert_eq!((report.cut, report.unfinished), (1, 1));
    assert!(client.is_closed());
    fixture.source.release();
}

/// A source that can reach each client, to disconnect it.
struct Watched {
    source: Arc<RamSource>,
    clients: Mutex<Vec<(String, Arc<dyn Sink>)>>,
}

impl ExportSource for Watched {
    fn list(&self) -> Vec<ExportInfo> {
        self.source.list()
    }

    fn open(&self, name: &str, sink: Arc<dyn Sink>) -> Result<Box<dyn Session>, RequestError> {
        self.source.open(name, sink)
    }

    fn enter(
        &self,
        name: &str,
        peer: &str,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Session>, RequestError> {
        self.clients
            .lock()
            .unwrap()
            .push((peer.to_owned(), sink.clone()));
        self.open(name, sink)
    }

    fn buffers(&self) -> &BufPool {
        self.source.buffers()
    }
}

/// Requests in flight are answered, later ones are refused, then the connection ends; others stay.
/// One that does not let it end is cut.
#[test]
fn a_client_that_is_to_leave_gets_its_answers_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let source = Arc::new(RamSource::single(64 << 20));
    let watched = Arc::new(Watched {
        source: source.clone(),
        clients: Mutex::default(),
    });
    let (options, endings) = observed(ServerOptions::default());
    let server = Server::start(watched.clone(), vec![Listen::Unix(path.clone())], options).unwrap();
    let fixture = Fixture::around(server, path, folder);
    let (mut client, mut other) = (fixture.client(""), fixture.client(""));
    eventually("both have entered", || {
        watched.clients.lock().unwrap().len() == 2
    });
    assert!(
        watched.clients.lock().unwrap()[0]
            .0
            .contains(&format!("pid {}", std::process::id()))
    );
    source.set_delivery(Delivery::Held);
    client.send(&[header(WRITE, 1, 0, 512), vec![1; 512]].concat());
    eventually("a request is held", || source.held() == 1);
    watched.clients.lock().unwrap()[0].1.leave();
    client.send(&header(READ, 2, 0, 512));
    assert_eq!(client.reply(), (2, ESHUTDOWN));
    source.release();
    assert_eq!(client.reply(), (1, 0));
    assert!(client.is_closed());
    eventually("its connection has ended", || {
        *endings.lock().unwrap() == [Ending::Disconnected]
    });
    source.set_delivery(Delivery::AtOnce);
    assert_eq!(other.write(0, &[2; 512]), 0);
    watched.clients.lock().unwrap()[1].1.cut();
    assert!(other.is_closed());
    let third = fixture.client("");
    eventually("it has entered", || {
        watched.clients.lock().unwrap().len() == 3
    });
    let sink = watched.clients.lock().unwrap()[2].1.clone();
    assert!(!sink.is_gone());
    drop(third);
    assert!(sink.is_gone());
}

#[test]
fn a_new_size_is_seen_by_the_next_client_and_obeyed_at_once() {
    let fixture = Fixture::new(ServerOptions::default());
    let mut client = fixture.client("");
    fixture.source.resize("", 128 << 20);
    assert_eq!(client.write(100 << 20, &[3; 512]), 0);
    assert_eq!(fixture.client("").size_bytes, 128 << 20);
    fixture.source.resize("", 32 << 20);
    assert_eq!(client.write(100 << 20, &[3; 512]), 28);
}

#[test]
fn tcp_serves_as_well_and_options_are_checked() {
    let fixture = Fixture::new(ServerOptions::default());
    let start = |options| {
        Server::start(
            fixture.source.clone(),
            vec!["tcp:127.0.0.1:0".parse().unwrap()],
            options,
        )
    };
    let server = start(ServerOptions::default()).unwrap();
    let [Listen::Tcp(address)] = server.addresses()[..] else {
        panic!()
    };
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    assert!(
        start(ServerOptions {
            requests_in_flight_max: 0,
            ..ServerOptions::default()
        })
        .is_err()
    );
    assert!(
        start(ServerOptions {
            bytes_in_flight_max: 1 << 20,
            ..ServerOptions::default()
        })
        .is_err()
    );
    assert!(
        start(ServerOptions {
            memory_bytes: *ServerOptions::MEMORY_BYTES.start() - 1,
            ..ServerOptions::default()
        })
        .is_err()
    );
    assert!(
        start(ServerOptions {
            handshakes_max: 0,
            ..ServerOptions::default()
        })
        .is_err()
    );
    assert!(
        start(ServerOptions {
            keepalive: Duration::from_millis(10),
            ..ServerOptions::default()
        })
        .is_err()
    );
    assert!(ServerOptions::default().memory_bytes_max() < 512 << 20);
}
