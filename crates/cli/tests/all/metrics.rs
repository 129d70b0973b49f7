//! The metrics endpoint of the real daemon, with requests of scrapers, browsers and hostile
//! clients.
#![cfg(feature = "metrics-http")]

use crate::support::{CREATE, Server, World};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn address(server: &Server) -> SocketAddr {
    server.ready["metrics"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("the address is shown")
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(address(server)).expect("connected")
}

/// Head and body of the answer to a request, after which the server closes.
fn ask(server: &Server, line: &str, host: &str) -> (String, String) {
    let mut stream = connect(server);
    stream
        .write_all(
            format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        )
        .expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no response: {text:?}"));
    (head.to_owned(), body.to_owned())
}

/// Prometheus adds `params:` as a query: it must not get 404, nor HEAD 405.
#[test]
fn a_query_and_head_are_served_and_other_requests_are_refused() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("--metrics 127.0.0.1:0");
    for line in ["GET /metrics", "GET /metrics?collect[]=pool"] {
        let (head, body) = ask(&server, line, "localhost");
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n")
                && body.contains("windrow_pool_state{pool=\"tank\",state=\"online\"} 1\n"),
            "{line}: {head}"
        );
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{head}"
        );
    }
    let (head, body) = ask(&server, "HEAD /metrics", "localhost");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && body.is_empty(),
        "{head} {body}"
    );
    assert!(
        ask(&server, "GET /other", "localhost")
            .0
            .starts_with("HTTP/1.1 404 ")
    );
    let (head, _) = ask(&server, "PUT /metrics", "localhost");
    assert!(
        head.starts_with("HTTP/1.1 405 ") && head.contains("allow: GET, HEAD"),
        "{head}"
    );
}

/// With any name allowed, a page in the administrator's browser could read the metrics once its
/// name resolves to this machine.
#[test]
fn a_host_name_needs_to_be_allowed() {
    let world = World::with_volume(CREATE, "16M");
    std::fs::write(
        world.file("c.toml"),
        "metrics_hosts = [\"store.example\"]\n",
    )
    .expect("a file");
    let server = world.serve("--metrics 127.0.0.1:0 --config c.toml");
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    for host in [
        "127.0.0.1",
        "[::1]:9464",
        "localhost:9464",
        "store.example",
        own.trim(),
    ] {
        assert!(
            ask(&server, "GET /metrics", host)
                .0
                .starts_with("HTTP/1.1 200 "),
            "{host}"
        );
    }
    let (head, body) = ask(&server, "GET /metrics", "evil.example");
    assert!(
        head.starts_with("HTTP/1.1 421 ")
            && body.contains("--metrics-host")
            && body.lines().count() == 1
            && !body.contains("windrow_"),
        "{head}\n{body}"
    );
    assert!(server.stop());
    let server = world.serve("--metrics 127.0.0.1:0 --config c.toml --metrics-host evil.example");
    assert!(
        ask(&server, "GET /metrics", "evil.example")
            .0
            .starts_with("HTTP/1.1 200 ")
    );
    assert!(
        ask(&server, "GET /metrics", "store.example")
            .0
            .starts_with("HTTP/1.1 421 "),
        "the command line wins"
    );
}

/// Silent peers must not keep scrapes out, nor delay the end of the daemon.
#[test]
fn silent_peers_hold_up_neither_scrapes_nor_the_end() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("--metrics 127.0.0.1:0 --metrics-connections 4");
    let silent: Vec<TcpStream> = (0..16).map(|_| connect(&server)).collect();
    let mut dawdler = connect(&server);
    dawdler.write_all(b"GET /metr").expect("sent");
    let begin = Instant::now();
    let (head, _) = ask(&server, "GET /metrics", "localhost");
    // Silent peers are closed after five seconds: a later answer has waited for them.
    assert!(
        head.starts_with("HTTP/1.1 200 ") && begin.elapsed() < Duration::from_secs(5),
        "{head} {:?}",
        begin.elapsed()
    );
    assert!(server.stop());
    drop(silent);
}

#[test]
fn two_scrapes_share_a_connection() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("--metrics 127.0.0.1:0");
    let mut stream = connect(&server);
    for _ in 0..2 {
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("sent");
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        // Up to the end of the page that its head announces.
        let is_whole = |text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                return false;
            };
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse::<usize>().ok());
            length == Some(body.len())
        };
        while !is_whole(&text) {
            let count = stream.read(&mut part).expect("an answer");
            assert!(count > 0, "closed");
            text.extend_from_slice(&part[..count]);
        }
    }
}
