use super::*;
use crate::report::tests::sample;
use windrow_engine::api::RebuildStatus;
use windrow_units::MemberId;

fn get(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    // The server may close before it has read everything of a request that is too long.
    drop(stream.read_to_string(&mut answer));
    answer
}

#[test]
fn serves_one_page_and_refuses_the_rest() {
    let server = MetricsServer::start("127.0.0.1:0".parse().unwrap(), false, || Some(sample())).unwrap();
    let page = get(server.address(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("windrow_pool_state{pool=\"ta\\\"nk\",state=\"degraded\"} 1\n"));
    assert!(page.contains("windrow_written_bytes_total{pool=\"ta\\\"nk\",cause=\"parity\"} 30\n"));
    assert!(page.contains("windrow_export_clients{pool=\"ta\\\"nk\",export=\"da\\\"ta\"} 1\n"));
    assert!(page.contains("windrow_request_latency_nanoseconds_count{pool=\"ta\\\"nk\",operation=\"write\"} 0\n"));
    assert!(page.contains("windrow_stage_latency_nanoseconds{pool=\"ta\\\"nk\",stage=\"write_admission\",quantile=\"0.9\"} 8\n"));
    assert!(page.contains("windrow_stage_latency_nanoseconds_sum{pool=\"ta\\\"nk\",stage=\"write_admission\"} 21\n"));
    let body = page.split("\r\n\r\n").nth(1).unwrap();
    let stated: usize = page.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().trim().parse().unwrap();
    assert_eq!(body.len(), stated);
    assert!(get(server.address(), b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get(server.address(), b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let long = get(server.address(), &vec![b'x'; 3 * REQUEST_MAX]);
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 400"), "{long}");
}

#[test]
fn every_metric_has_a_type_and_every_sample_a_number() {
    let page = render(&sample());
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').unwrap();
        let family = name.trim_end_matches("_sum").trim_end_matches("_count");
        assert!(page.contains(&format!("# TYPE {family} ")), "{line}");
        rest.rsplit_once("} ").unwrap().1.parse::<f64>().unwrap();
    }
}

/// The value of a metric that has one sample at most.
fn value<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let line = page.lines().find(|line| line.starts_with(&format!("windrow_{name}{{")))?;
    Some(line.rsplit_once("} ").unwrap().1)
}

#[test]
fn a_rebuild_shows_what_is_done_and_what_is_left() {
    let mut report = sample();
    report.rebuild = (&RebuildStatus {
        waits_ms: 0,
        members: vec![MemberId(1), MemberId(4)],
        segments_done: 2,
        segments_total: 5,
        read_bytes: 160,
        written_bytes: 40,
        left_bytes: 91,
        bytes_per_second: 9,
        damaged_batches: 3,
    })
        .into();
    let page = render(&report);
    for (name, expected) in [
        ("rebuild_members", "2"),
        ("rebuild_segments_done", "2"),
        ("rebuild_segments", "5"),
        ("rebuild_read_bytes_total", "160"),
        ("rebuild_written_bytes_total", "40"),
        ("rebuild_total_bytes", "131"),
        ("rebuild_left_bytes", "91"),
        ("rebuild_rate_bytes", "9"),
        ("rebuild_left_seconds", "10"),
        ("rebuild_damaged_batches_total", "3"),
    ] {
        assert_eq!(value(&page, name), Some(expected), "{name}");
    }
    // It does not move: nobody knows when it ends.
    report.rebuild.left_seconds = None;
    let page = render(&report);
    assert_eq!((value(&page, "rebuild_left_seconds"), value(&page, "rebuild_left_bytes")), (None, Some("91")));
}

#[test]
fn connections_and_their_memory_come_with_their_bounds() {
    let mut report = sample();
    let page = render(&report);
    for (name, expected) in [
        ("connections", "2"),
        ("connections_limit", "256"),
        ("connections_refused_total", "3"),
        ("request_memory_bytes", "4096"),
        ("request_memory_limit_bytes", "268435456"),
    ] {
        assert_eq!(value(&page, name), Some(expected), "{name}");
    }
    report.nbd = None;
    assert_eq!(value(&render(&report), "connections"), None, "no address is served");
}

#[test]
fn a_scrub_has_one_state_and_its_sums() {
    let page = render(&sample());
    let states: Vec<&str> = page.lines().filter(|line| line.starts_with("windrow_scrub_state{") && line.ends_with(" 1")).collect();
    assert_eq!(states, ["windrow_scrub_state{pool=\"ta\\\"nk\",state=\"running\"} 1"]);
    for (name, expected) in [
        ("scrub_started_seconds", "1700000000"),
        ("scrub_left_bytes", "700"),
        ("scrub_segments_done", "4"),
        ("scrub_active_seconds_total", "1.500"),
        ("scrub_batches_total", "11"),
        ("scrub_read_bytes_total", "300"),
        ("scrub_wrong_blocks_total", "12"),
        ("scrub_moved_blocks_total", "13"),
        ("scrub_unmoved_blocks_total", "15"),
        ("scrub_lost_blocks_total", "1"),
        ("scrub_damaged_batches_total", "14"),
    ] {
        assert_eq!(value(&page, name), Some(expected), "{name}");
    }
}

/// One client that sent a byte every second or so kept the endpoint for hours, and with it the end of the daemon, which still had the members locked.
#[test]
fn a_client_that_dawdles_does_not_hold_up_the_end() {
    let server = MetricsServer::start("127.0.0.1:0".parse().unwrap(), false, || None).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let (begun, wait) = std::sync::mpsc::channel();
    let dawdler = std::thread::spawn(move || {
        // Ends when the server has closed the connection.
        while stream.write_all(b"G").is_ok() {
            begun.send(()).unwrap_or_default();
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    wait.recv().unwrap();
    drop(server);
    dawdler.join().unwrap();
}

/// NBD asked for leave before other hosts could reach it, metrics did not.
#[test]
fn other_hosts_need_leave() {
    let failure = MetricsServer::start("0.0.0.0:0".parse().unwrap(), false, || None).err().unwrap();
    assert!(failure.id == crate::failure::id::SERVE && failure.remedy.contains("--allow-remote"), "{failure}");
    assert!(
        MetricsServer::start("[::ffff:127.0.0.1]:0".parse().unwrap(), false, || None).err().is_none_or(|failure| !failure.remedy.contains("--allow-remote"))
    );
}
