//! Tests of `windrow-lab trace record` on a served volume, and of `trace generate`, `trace plot`
//! and reports as files.

use crate::support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Server, World};

const CREATE: &str =
    "pool create --redundancy 5 --size 64M --sparse --segment 256K --chunk 64K tank m0 m1 m2 m3";

/// Starts a recording.
fn record(world: &World, arguments: &str) -> Child {
    begin(world, &format!("windrow-lab trace record {arguments}"))
}

/// Starts a recording command and waits for its beginning.
fn begin(world: &World, command: &str) -> Child {
    let mut child = world
        .command(&format!("{command} -o json"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    said.read_line(&mut line).expect("it says something");
    assert!(line.starts_with("recording "), "{line}");
    child
}

fn report(child: Child) -> (Option<i32>, Value) {
    let output = child.wait_with_output().expect("it ends");
    (
        output.status.code(),
        serde_json::from_slice(&output.stdout).expect("one object"),
    )
}

/// All kinds of requests are in the trace, in order, with lengths and FUA; a second recording is
/// refused meanwhile.
#[test]
fn what_a_served_volume_is_asked_for_is_in_the_trace() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    let recorder = record(&world, "tank/data data.wtrc --requests 7");
    let other = world.run("windrow-lab trace record tank/data other.wtrc --requests 1");
    assert!(
        other.status.code() == Some(4) && support::both(&other).contains("WR-TRACE-004"),
        "{}",
        support::both(&other)
    );
    let mut client = server.client();
    let mut ask = |put: &mut dyn FnMut(&mut support::nbd::Client)| {
        put(&mut client);
        assert_eq!(client.finish().expect("an answer").0, 0);
    };
    ask(&mut |client| client.write(1, 0, &[7; 8192], false));
    ask(&mut |client| client.write(2, 4096, &[8; 512], true));
    ask(&mut |client| client.read(3, 0, 4096));
    ask(&mut |client| client.flush(4));
    ask(&mut |client| client.trim(5, 65_536, 131_072));
    ask(&mut |client| client.zero(6, 1 << 20, 4096));
    ask(&mut |client| client.read(7, 512, 512));
    let (code, report) = report(recorder);
    assert_eq!(
        (code, &report["requests"], &report["missed"]),
        (Some(0), &Value::from(7), &Value::from(0)),
        "{report}"
    );
    world.succeeds("windrow-lab trace convert data.wtrc data.csv");
    let text = std::fs::read_to_string(world.file("data.csv")).expect("a file");
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split(',').take(3).collect::<Vec<_>>().join(","))
        .collect();
    assert_eq!(
        lines,
        [
            "W,0,8192",
            "WF,4096,512",
            "R,0,4096",
            "F,0,0",
            "T,65536,131072",
            "T,1048576,4096",
            "R,512,512"
        ]
    );
    assert!(
        text.lines().all(|line| line.ends_with(",tank/data")),
        "{text}"
    );
    assert!(server.stop());
}

/// Ends the recording by SIGTERM.
fn enough(child: &Child) {
    assert!(
        Command::new("kill")
            .arg("-TERM")
            .arg(child.id().to_string())
            .status()
            .expect("kill runs")
            .success()
    );
}

fn write(server: &Server, export: &str, blocks: impl Iterator<Item = u64>) {
    let mut client =
        support::nbd::Client::connect(&server.socket, export).expect("the export is there");
    for (handle, block) in blocks.enumerate() {
        client.write(
            handle as u64 + 1,
            block * 4096,
            &[(block % 100) as u8 + 1; 4096],
            false,
        );
        assert_eq!(client.finish().expect("an answer").0, 0);
    }
}

/// A pool is recorded with all of its volumes.
#[test]
fn what_all_volumes_of_a_pool_are_asked_for_is_in_the_trace() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("volume create tank/other 16M");
    let server = world.serve("");
    let recorder = record(&world, "tank pool.wtrc");
    write(&server, "other", [3, 4].into_iter());
    write(&server, "data", [5].into_iter());
    enough(&recorder);
    let (code, report) = report(recorder);
    assert_eq!(
        (code, &report["requests"]),
        (Some(0), &Value::from(3)),
        "{report}"
    );
    world.succeeds("windrow-lab trace convert pool.wtrc pool.csv");
    let text = std::fs::read_to_string(world.file("pool.csv")).expect("a file");
    let line = |line: &str| {
        let columns: Vec<&str> = line.split(',').collect();
        format!("{} {}", columns[1], columns[columns.len() - 1])
    };
    assert_eq!(
        text.lines().map(line).collect::<Vec<_>>(),
        ["12288 tank/other", "16384 tank/other", "20480 tank/data"]
    );
    assert!(server.stop());
}

/// The load of a pool in service is recorded, policies are tried on it with all data of the pool,
/// and the advice is applied to the pool.
#[test]
fn a_pool_in_service_is_advised_and_set() {
    let world = World::with_volume(CREATE, "24M");
    let server = world.serve("");
    write(&server, "data", 0..4096);
    let advisor = begin(
        &world,
        "windrow-lab advise --live tank --for 1h --spare 5%,12% --repeat 3 --apply",
    );
    let begun = Instant::now();
    write(&server, "data", (0..2000).map(|at| at * 7 % 512));
    // Idle time belongs to the load: the drives rest.
    std::thread::sleep(Duration::from_secs(1));
    let lasted = begun.elapsed().as_secs_f64();
    enough(&advisor);
    let (code, advice) = report(advisor);
    assert!(
        advice["load_seconds"].as_f64().expect("a number") >= lasted,
        "{lasted}: {advice}"
    );
    assert_eq!(
        (
            code,
            &advice["blocks"],
            &advice["written_blocks"],
            &advice["applied"]
        ),
        (
            Some(0),
            &Value::from(4096),
            &Value::from(2000),
            &Value::from(true)
        ),
        "{advice}"
    );
    // The pool's current setting is tried in addition to the requested ones.
    let spares: Vec<u64> = advice["grid"]
        .as_array()
        .expect("a list")
        .iter()
        .take(3)
        .map(|one| one["spare_ppm"].as_u64().expect("a number"))
        .collect();
    assert_eq!(spares, [50_000, 100_000, 120_000]);
    assert_eq!(
        (&advice["now"]["policy"], &advice["now"]["spare_ppm"]),
        (&Value::from("separate"), &Value::from(100_000))
    );
    let status: Value =
        serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("one object");
    let (set, best) = (&status["properties"], &advice["best"]);
    assert_eq!(
        (&set["placement"], &set["victim_policy"]),
        (&best["policy"], &best["victim_policy"])
    );
    assert_eq!(
        set["spare_per_mille"].as_u64().expect("a number") * 1000,
        best["spare_ppm"].as_u64().expect("a number")
    );
    assert!(server.stop());
    let refused = world.run("windrow-lab advise --live /dev/null --for 1s");
    assert!(
        refused.status.code() == Some(4) && support::both(&refused).contains("it is no pool"),
        "{}",
        support::both(&refused)
    );
}

/// The daemon ends while its volume is recorded: taken requests are kept, and the reason of the end
/// is reported.
#[test]
fn a_recording_survives_its_daemon() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    let recorder = record(&world, "tank/data data.wtrc");
    let mut client = server.client();
    client.write(1, 0, &[7; 4096], false);
    assert_eq!(client.finish().expect("an answer").0, 0);
    server.kill();
    let (code, report) = report(recorder);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["cut"]["id"], "WR-CLI-002", "{report}");
    world.succeeds("windrow-lab trace info data.wtrc");
    let refused = world.run("windrow-lab trace record tank/data other.wtrc");
    assert!(refused.status.code() == Some(4) && !world.file("other.wtrc").exists());
}

#[test]
fn pictures_and_reports_of_a_generated_trace() {
    let world = World::new();
    world.succeeds("windrow-lab trace generate jesd219-client client.wtrc --size 64M");
    world.succeeds("windrow-lab trace generate jesd219-client client.csv --size 64M");
    let info: Value =
        serde_json::from_str(&world.succeeds("windrow-lab trace info client.wtrc -o json"))
            .expect("one object");
    let kib = info["write"]["bytes"].as_f64().expect("bytes")
        / info["write"]["requests"].as_f64().expect("requests")
        / 1024.0;
    assert!((kib / 21.56 - 1.0).abs() < 0.02, "{kib} KiB");
    assert!(
        world
            .succeeds("windrow-lab trace info client.csv")
            .contains("trim")
    );
    world.succeeds("windrow-lab trace plot client.wtrc writes.svg --report trace.html");
    // A machine without fonts draws no PNG, and reports that.
    let drawn = world.run("windrow-lab trace plot client.wtrc writes.svg --pictures pictures");
    assert!(
        drawn.status.success() || support::both(&drawn).contains("no font is installed"),
        "{}",
        support::both(&drawn)
    );
    world.succeeds(
        "windrow-lab replay client.wtrc --fill --segment 64K --spare 20% --report replay.html",
    );
    world.succeeds("windrow-lab sim run --workload transaction+data --size 64M --segment 128K --passes 2 --spare 20% --report sim.html");
    for page in ["trace.html", "replay.html", "sim.html"] {
        let page = std::fs::read_to_string(world.file(page)).expect("a page");
        assert!(
            page.starts_with("<!DOCTYPE html>")
                && page.contains("windrow-lab ")
                && page.matches("<figure>").count() >= 3,
            "{page}"
        );
    }
    let svg = std::fs::read_to_string(world.file("writes.svg")).expect("a picture");
    assert!(svg.contains("class=\"w-h11\"") && svg.contains("KiB"));
    if drawn.status.success() {
        let mut begin = [0; 8];
        std::fs::File::open(world.file("pictures/heat.png"))
            .expect("a picture")
            .read_exact(&mut begin)
            .expect("bytes");
        assert_eq!(&begin, b"\x89PNG\r\n\x1a\n");
    }
    let refused = world.run("windrow-lab trace generate jetstress small.wtrc --size 1M");
    assert!(
        refused.status.code() == Some(4) && support::both(&refused).contains("64 MiB"),
        "{}",
        support::both(&refused)
    );
}
