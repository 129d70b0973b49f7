use super::*;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, mpsc};

fn options() -> Options {
    Options::at("127.0.0.1:0".parse().expect("an address"))
}

fn server() -> Server {
    Server::start(options(), || Some("a 1\n".to_owned())).expect("it starts")
}

fn send(server: &Server, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("connected");
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

/// All bytes that the server sends until it closes the connection.
fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    // The server may close before it has read all of a request that it refuses.
    drop(stream.read_to_string(&mut text));
    text
}

/// Head and body of the answer to a request, which must be one whole response.
fn ask(server: &Server, request: &str) -> (String, String) {
    let text = rest(send(server, request));
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no response: {text:?}"));
    (head.to_owned(), body.to_owned())
}

fn request(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

#[test]
fn get_and_head_of_one_path_are_served_with_any_query() {
    let server = server();
    for line in [
        "GET /metrics",
        "GET /metrics?",
        "GET /metrics?collect[]=pool&x",
        "GET http://127.0.0.1/metrics?x",
    ] {
        let (head, body) = ask(&server, &request(line));
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-length: 4"),
            "{line}: {head}"
        );
        assert!(
            head.contains("content-type: text/plain; version=0.0.4") && body == "a 1\n",
            "{line}: {head}"
        );
    }
    let (head, body) = ask(&server, &request("HEAD /metrics"));
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n")
            && head.contains("content-length: 4")
            && body.is_empty(),
        "{head}"
    );
    for line in ["GET /", "GET /metrics/", "HEAD /metric", "POST /"] {
        assert!(
            ask(&server, &request(line)).0.starts_with("HTTP/1.1 404 "),
            "{line}"
        );
    }
    for line in ["POST /metrics", "DELETE /metrics", "OPTIONS /metrics"] {
        let (head, _) = ask(&server, &request(line));
        assert!(
            head.starts_with("HTTP/1.1 405 ") && head.contains("allow: GET, HEAD"),
            "{line}: {head}"
        );
    }
}

#[test]
fn what_is_no_request_gets_no_page_and_the_next_client_does() {
    let server = server();
    let long = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(3 * HEAD_BYTES_MAX)
    );
    for garbage in [
        "x\r\n\r\n",
        "GET /metrics HTTP/1.1 x\r\n\r\n",
        "\0\r\n\r\n",
        "GET /metrics SSH/2\r\n\r\n",
        &long,
    ] {
        let text = rest(send(&server, garbage));
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    assert_eq!(ask(&server, &request("GET /metrics")).1, "a 1\n");
}

/// With any name allowed, a web page in the administrator's browser could read the metrics: its
/// name only has to resolve to this machine.
#[test]
fn a_foreign_host_name_is_refused_with_the_option_that_allows_it() {
    let ask_as = |server: &Server, host: &str| {
        ask(
            server,
            &format!("GET /metrics HTTP/1.1\r\n{host}Connection: close\r\n\r\n"),
        )
    };
    let first = server();
    for host in [
        "Host: evil.example\r\n",
        "Host: evil.example:9464\r\n",
        "Host: localhost.evil.example\r\n",
    ] {
        let (head, body) = ask_as(&first, host);
        assert!(
            head.starts_with("HTTP/1.1 421 ")
                && body.contains("--metrics-host NAME")
                && body.lines().count() == 1,
            "{host}: {head} {body}"
        );
    }
    let (head, _) = ask(
        &first,
        "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert!(head.starts_with("HTTP/1.1 421 "), "{head}");
    for host in ["", "Host: localhost\r\nHost: evil.example\r\n"] {
        assert!(
            ask_as(&first, host).0.starts_with("HTTP/1.1 400 "),
            "{host}"
        );
    }
    assert!(
        ask(&first, "GET /metrics HTTP/1.0\r\n\r\n")
            .0
            .starts_with("HTTP/1.0 200 "),
        "the old version needs none"
    );
    let named = Server::start(
        Options {
            hosts: Hosts::new(["good.example".to_owned()]),
            ..options()
        },
        || Some(String::new()),
    )
    .expect("it starts");
    for host in [
        "good.example",
        "GOOD.example:9464",
        "127.0.0.1:1",
        "[::1]:1",
    ] {
        assert!(
            ask_as(&named, &format!("Host: {host}\r\n"))
                .0
                .starts_with("HTTP/1.1 200 "),
            "{host}"
        );
    }
}

/// Head and body of the answer to a request on an open connection; `None` if the connection was
/// closed before.
fn ask_again(stream: &mut TcpStream) -> Option<String> {
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .ok()?;
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\na 1\n") {
        let mut part = [0; 512];
        let count = stream.read(&mut part).ok().filter(|count| *count > 0)?;
        text.extend_from_slice(&part[..count]);
    }
    String::from_utf8(text).ok()
}

#[test]
fn a_connection_carries_several_scrapes() {
    let server = server();
    let mut stream = TcpStream::connect(server.address()).expect("connected");
    for _ in 0..2 {
        assert!(
            ask_again(&mut stream)
                .expect("an answer")
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
    }
}

#[test]
fn silent_and_idle_connections_are_closed() {
    let server = Server::start(
        Options {
            head_timeout: Duration::from_millis(300),
            ..options()
        },
        || Some("a 1\n".to_owned()),
    )
    .expect("it starts");
    // Each of them ends only when the server closes it. (A busy machine may be too slow for a
    // request; then another one follows.)
    let idle = std::iter::repeat_with(|| TcpStream::connect(server.address()).expect("connected"));
    let idle = idle
        .filter_map(|mut stream| ask_again(&mut stream).map(|_| stream))
        .next()
        .expect("endless");
    assert_eq!(rest(idle), "");
    assert_eq!(
        rest(TcpStream::connect(server.address()).expect("connected")),
        ""
    );
    let said = rest(send(&server, "GET /metrics HTTP/1.1\r\nHo"));
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 408 "),
        "{said}"
    );
}

/// Silent peers must not keep a scrape out.
#[test]
fn silent_peers_give_way_to_a_scrape() {
    let server = Server::start(
        Options {
            connections_max: 3,
            head_timeout: Duration::from_secs(3600),
            ..options()
        },
        || Some("a 1\n".to_owned()),
    );
    let server = server.expect("it starts");
    let silent: Vec<TcpStream> = (0..12)
        .map(|_| TcpStream::connect(server.address()).expect("connected"))
        .collect();
    assert_eq!(ask(&server, &request("GET /metrics")).1, "a 1\n");
    // The oldest have lost their slots.
    silent
        .into_iter()
        .take(9)
        .for_each(|stream| assert_eq!(rest(stream), ""));
}

#[test]
fn a_connection_that_lives_too_long_is_closed() {
    let options = Options {
        connection_life: Duration::from_millis(100),
        head_timeout: Duration::from_secs(3600),
        ..options()
    };
    let server = Server::start(options, || Some("a 1\n".to_owned())).expect("it starts");
    assert_eq!(
        rest(TcpStream::connect(server.address()).expect("connected")),
        ""
    );
}

/// A source of pages that waits until it is released, and counts the callers inside.
#[derive(Default)]
struct Gate {
    inside: AtomicUsize,
    most: AtomicUsize,
    entered: Option<Mutex<mpsc::Sender<()>>>,
    open: Option<Mutex<mpsc::Receiver<()>>>,
}

impl Gate {
    fn pass(&self) -> Option<String> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.entered.as_ref()?.lock().ok()?.send(()).ok()?;
        // One of those inside waits at the receiver, the others for the lock.
        _ = self.open.as_ref()?.lock().ok()?.recv();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Some("a 1\n".to_owned())
    }
}

#[test]
fn scrapes_at_once_are_bounded_and_delay_nothing_else() {
    let ((enter, entered), (release, open)) = (channel(), channel());
    let gate = Arc::new(Gate {
        entered: Some(Mutex::new(enter)),
        open: Some(Mutex::new(open)),
        ..Gate::default()
    });
    let inside = gate.clone();
    let server = Server::start(
        Options {
            scrape_timeout: Duration::from_secs(3600),
            ..options()
        },
        move || inside.pass(),
    )
    .expect("it starts");
    let waiting: Vec<TcpStream> = (0..5)
        .map(|_| send(&server, &request("GET /metrics")))
        .collect();
    (0..SCRAPES_MAX).for_each(|_| entered.recv().expect("a scrape has begun"));
    assert!(
        ask(&server, &request("GET /"))
            .0
            .starts_with("HTTP/1.1 404 "),
        "other requests are answered meanwhile"
    );
    (0..5).for_each(|_| release.send(()).expect("a scrape waits"));
    for stream in waiting {
        assert!(rest(stream).starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(gate.most.load(Ordering::SeqCst), SCRAPES_MAX);
}

#[test]
fn a_scrape_that_waits_for_the_pool_is_answered_in_time_and_holds_up_no_end() {
    let ((enter, entered), (release, open)) = (channel(), channel::<()>());
    let gate = Arc::new(Gate {
        entered: Some(Mutex::new(enter)),
        open: Some(Mutex::new(open)),
        ..Gate::default()
    });
    let server = Server::start(
        Options {
            scrape_timeout: Duration::from_millis(100),
            ..options()
        },
        move || gate.pass(),
    )
    .expect("it starts");
    // More of them than may run at once.
    for _ in 0..2 * SCRAPES_MAX {
        let (head, body) = ask(&server, &request("GET /metrics"));
        assert!(
            head.starts_with("HTTP/1.1 503 ") && body.contains("not answered in time"),
            "{head} {body}"
        );
    }
    assert!(entered.try_iter().count() <= SCRAPES_MAX);
    let silent = TcpStream::connect(server.address()).expect("connected");
    drop(server);
    assert_eq!(rest(silent), "");
    drop(release);
}

#[test]
fn a_pool_that_has_stopped_and_one_that_panics_give_no_page() {
    let stopped = Server::start(options(), || None).expect("it starts");
    let (head, body) = ask(&stopped, &request("GET /metrics"));
    assert!(
        head.starts_with("HTTP/1.1 503 ") && body == "the pool has stopped\n",
        "{head}"
    );
    let broken = Server::start(options(), || panic!("a test")).expect("it starts");
    for _ in 0..2 * SCRAPES_MAX {
        assert!(
            ask(&broken, &request("GET /metrics"))
                .0
                .starts_with("HTTP/1.1 500 ")
        );
    }
}
