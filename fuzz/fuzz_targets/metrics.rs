//! What is sent to the Prometheus endpoint: whatever it is, the answer is one whole response, and the next client gets its page.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;
use windrow_host::metrics::MetricsServer;

static SERVER: LazyLock<MetricsServer> = LazyLock::new(|| MetricsServer::start("127.0.0.1:0".parse().expect("an address"), false, || None).expect("it starts"));

fn connect() -> TcpStream {
    loop {
        match TcpStream::connect(SERVER.address()) {
            Ok(stream) => return stream,
            // The signal by which a fuzzer is asked to end; or all ports are of connections that ended a moment ago.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::AddrNotAvailable) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => panic!("it does not listen: {error}"),
        }
    }
}

/// The response, empty if the connection was broken: bytes that nobody read are in the way of it then.
fn ask(request: &[u8]) -> Vec<u8> {
    let mut stream = connect();
    if stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write)).is_err() {
        return Vec::new();
    }
    let (mut response, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part) {
            Ok(0) => return response,
            Ok(count) => response.extend_from_slice(&part[..count]),
            // The signal by which a fuzzer is asked to end.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Vec::new(),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let response = ask(input);
    if !response.is_empty() {
        let text = String::from_utf8(response).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).and_then(|length| length.parse().ok());
        assert!(head.starts_with("HTTP/1.1 ") && length == Some(body.len()), "{text}");
    }
    assert!(ask(b"GET /metrics HTTP/1.1\r\n\r\n").starts_with(b"HTTP/1.1 503 "), "the next client is served");
});
