//! Rarely reached limits, all at once: 4096 volumes of 256 TiB in a pool of 64 members, all of them
//! exported, names at their full length.
//!
//! The time limits are generous. They fail if a list walks over all volumes for each of them, which
//! takes minutes.

use crate::support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{Server, World, both, installed, nbd, tool};
use windrow_host::control::{Command, ControlClient, Reply};

const VOLUMES: usize = 4096;
const MEMBERS: usize = 64;
const NAME_BYTES: usize = 63;
const SIZE_BYTES: u64 = 256 << 40;
/// Time limit of each step.
const BOUND: Duration = Duration::from_secs(300);

fn pool() -> String {
    "p".repeat(NAME_BYTES)
}

/// Names that differ only at their ends.
fn name(number: usize) -> String {
    format!("{}{number:04}", "n".repeat(NAME_BYTES - 4))
}

fn names() -> Vec<String> {
    (0..VOLUMES).map(name).collect()
}

fn timed<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = step();
    let took = begin.elapsed();
    eprintln!("{took:>10.1?} {what}");
    assert!(took < BOUND, "{what} took {took:?}");
    result
}

fn serve(world: &World) -> Server {
    let command =
        |line: &str| world.command(&line.replacen("serve tank", &format!("serve {}", pool()), 1));
    timed("start", || {
        world
            .ready(world.start_as(command, "--metrics 127.0.0.1:0"))
            .expect("it starts")
    })
}

fn succeeds(world: &World, line: &str) -> String {
    timed(line, || world.succeeds(line))
}

fn json(world: &World, line: &str) -> Value {
    serde_json::from_str(&succeeds(world, &format!("{line} -o json"))).expect("JSON")
}

/// One clear line with the number of the limit.
fn fails(world: &World, line: &str, limit: &str) {
    let output = timed(line, || world.run(line));
    let said = both(&output);
    assert!(
        output.status.code() == Some(4) && said.lines().count() == 1 && said.contains(limit),
        "{line}: {said}"
    );
}

/// The strings under `key` of a list, in order.
fn column(list: &Value, key: &str) -> Vec<String> {
    let mut texts: Vec<String> = list
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item[key].as_str().expect("text").to_owned())
        .collect();
    texts.sort();
    texts
}

fn sizes_are_whole(list: &Value) -> bool {
    list.as_array().is_some_and(|items| {
        items.len() == VOLUMES && items.iter().all(|item| item["size_bytes"] == SIZE_BYTES)
    })
}

/// The words of a table in which each volume has a line.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = text
        .split_whitespace()
        .filter(|word| word.len() == NAME_BYTES && word.starts_with('n'))
        .map(str::to_owned)
        .collect();
    words.sort();
    words.dedup();
    words
}

fn create_volumes(world: &World) {
    let socket = world.file("run").join(format!("{}.control", pool()));
    let mut client = ControlClient::connect(&socket, Some(&pool()))
        .expect("it may be asked")
        .expect("a daemon");
    for name in names() {
        let command = Command::VolumeCreate {
            name: name.clone(),
            size_bytes: SIZE_BYTES,
            default: false,
            force: false,
        };
        let Ok(Reply::Volume(volume)) = client.ask(command) else {
            panic!("{name} is not created")
        };
        assert_eq!((volume.name, volume.size_bytes), (name, SIZE_BYTES));
    }
}

fn check_lists(world: &World) {
    let (pool, names) = (pool(), names());
    let status = json(world, &format!("pool status {pool}"));
    assert_eq!(
        (
            status["name"].as_str(),
            status["members"].as_array().map(Vec::len)
        ),
        (Some(&*pool), Some(MEMBERS))
    );
    assert_eq!(
        (
            column(&status["volumes"], "name"),
            column(&status["exports"], "name")
        ),
        (names.clone(), names.clone())
    );
    assert!(sizes_are_whole(&status["volumes"]));
    assert_eq!(
        status["space"]["provisioned_bytes"],
        SIZE_BYTES * VOLUMES as u64
    );
    assert_eq!(
        words(&succeeds(world, &format!("pool status {pool}"))),
        names
    );
    assert_eq!(column(&json(world, "pool list")["pools"], "name"), [&*pool]);
    assert!(succeeds(world, "pool list").contains(&pool));
    assert!(json(world, &format!("pool get {pool}"))["properties"].is_object());
    assert!(succeeds(world, &format!("pool get {pool}")).contains("spare"));
    let volumes = json(world, &format!("volume list {pool}"));
    assert!(column(&volumes["volumes"], "name") == names && sizes_are_whole(&volumes["volumes"]));
    let text = succeeds(world, &format!("volume list {pool}"));
    assert_eq!(
        (words(&text), text.matches("256 TiB").count()),
        (names.clone(), VOLUMES)
    );
    let last = name(VOLUMES - 1);
    let volume = json(world, &format!("volume get {pool}/{last}"));
    assert_eq!(
        (volume["volume"].as_str(), &volume["properties"]["size"]),
        (Some(&*last), &Value::from(SIZE_BYTES))
    );
    assert!(
        succeeds(world, &format!("volume get {pool}/{last}")).contains(&SIZE_BYTES.to_string())
    );
    let exports = json(world, &format!("export list {pool}"));
    assert!(column(&exports["exports"], "name") == names && sizes_are_whole(&exports["exports"]));
    assert_eq!(
        words(&succeeds(world, &format!("export list {pool}"))),
        names
    );
    assert_eq!(
        column(&json(world, &format!("stats {pool}"))["volumes"], "name"),
        names
    );
    assert!(succeeds(world, &format!("stats {pool}")).contains("map"));
}

fn check_nbd(world: &World, server: &Server) {
    let names = names();
    let mut negotiation = nbd::Negotiation::connect(&server.socket).expect("a greeting");
    let mut listed = timed("list of exports", || negotiation.list().expect("a list"));
    listed.sort();
    assert_eq!(listed, names);
    timed("information on each export", || {
        names
            .iter()
            .for_each(|name| assert_eq!(negotiation.size_bytes(name).expect("a size"), SIZE_BYTES))
    });
    assert!(negotiation.size_bytes(&name(VOLUMES)).is_err());
    for number in [0, VOLUMES / 2, VOLUMES - 1] {
        let mut client = timed("open", || {
            nbd::Client::connect(&server.socket, &name(number)).expect("it is served")
        });
        let at = SIZE_BYTES - 4096;
        client.write(1, at, &[number as u8; 4096], true);
        assert_eq!(
            (client.size_bytes, client.finish().expect("an answer").0),
            (SIZE_BYTES, 0)
        );
        client.read(2, at, 4096);
        assert_eq!(
            client.finish().expect("an answer"),
            (0, vec![number as u8; 4096])
        );
    }
    if installed(&["nbdinfo"]) {
        let text = timed("nbdinfo --list", || {
            tool(
                world.path(),
                "nbdinfo",
                &["--list", "--json", &server.uri("")],
            )
        });
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(column(&value["exports"], "export-name"), names);
        assert!(value["exports"].as_array().is_some_and(|list| {
            list.iter()
                .all(|export| export["export-size"] == SIZE_BYTES)
        }));
    }
    if installed(&["qemu-nbd"]) {
        let socket = server.socket.to_str().expect("UTF-8");
        let text = timed("qemu-nbd --list", || {
            tool(world.path(), "qemu-nbd", &["--list", "-k", socket])
        });
        assert_eq!(
            (
                words(&text.replace('\'', " ")),
                text.matches(&format!("size:  {SIZE_BYTES}")).count()
            ),
            (names, VOLUMES)
        );
    }
}

fn check_metrics(server: &Server) {
    let page = timed("scrape", || {
        let mut stream = TcpStream::connect(server.ready["metrics"].as_str().expect("an address"))
            .expect("connected");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("sent");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("text");
        page
    });
    let samples = |name: &str, value: u64| {
        let (head, tail) = (
            format!("windrow_{name}{{pool=\"{}\",", pool()),
            format!("}} {value}"),
        );
        page.lines()
            .filter(|line| line.starts_with(&head) && line.ends_with(&tail))
            .count()
    };
    assert_eq!(
        (
            samples("volume_size_bytes", SIZE_BYTES),
            samples("export_clients", 0),
            samples("member_online", 1)
        ),
        (VOLUMES, VOLUMES, MEMBERS)
    );
}

/// One beyond each limit is refused with the number of the limit, and leaves nothing behind.
fn check_refusals(world: &World) {
    let (pool, volume, long) = (pool(), name(0), "x".repeat(NAME_BYTES + 1));
    let before = json(world, &format!("pool status {pool}"))["generation"].clone();
    fails(
        world,
        &format!("volume create {pool}/another 4096"),
        "4096 volumes",
    );
    fails(
        world,
        &format!("volume create {pool}/{long} 4096"),
        "63 bytes",
    );
    fails(
        world,
        &format!("volume rename {pool}/{volume} {long}"),
        "63 bytes",
    );
    fails(
        world,
        &format!("volume create {pool}/another {}", SIZE_BYTES + 4096),
        "(256 TiB)",
    );
    fails(
        world,
        &format!("volume resize {pool}/{volume} {}", SIZE_BYTES + 4096),
        "(256 TiB)",
    );
    fails(
        world,
        &format!("pool create --redundancy 6 --size 64M --sparse {long} a b c d"),
        "63 bytes",
    );
    fails(world, &format!("pool rename {pool} {long}"), "63 bytes");
    fails(
        world,
        &format!("export add {pool}/{volume} --name {}", "x".repeat(256)),
        "255 bytes",
    );
    let members: Vec<String> = (0..=MEMBERS)
        .map(|number| format!("other{number}"))
        .collect();
    fails(
        world,
        &format!(
            "pool create --redundancy 6 --size 64M --sparse other {}",
            members.join(" ")
        ),
        "64",
    );
    for add in ["--spare one-more", "--journal one-more", "one-more"] {
        fails(
            world,
            &format!("pool add {pool} --create-files {add}"),
            "64 slots",
        );
    }
    let left = ["a", "other0", "one-more"].map(|name| world.file(name).exists());
    assert_eq!(
        (
            left,
            &json(world, &format!("pool status {pool}"))["generation"]
        ),
        ([false; 3], &before),
        "nothing is changed"
    );
}

#[test]
fn all_limits_at_once() {
    let (world, pool) = (World::new(), pool());
    let members: Vec<String> = (0..MEMBERS).map(|number| format!("m{number}")).collect();
    succeeds(
        &world,
        &format!(
            "pool create --redundancy 6 --size 64M --sparse {pool} {}",
            members.join(" ")
        ),
    );
    let server = serve(&world);
    timed("create all volumes", || create_volumes(&world));
    check_lists(&world);
    check_nbd(&world, &server);
    check_metrics(&server);
    check_refusals(&world);
    let (first, alias) = (name(0), "e".repeat(255));
    succeeds(
        &world,
        &format!("export add {pool}/{first} --name {alias} --default"),
    );
    assert_eq!(
        nbd::Client::connect(&server.socket, "")
            .expect("the default")
            .size_bytes,
        SIZE_BYTES
    );
    assert_eq!(
        json(&world, &format!("export list {pool}"))["exports"][0]["name"],
        *alias
    );
    succeeds(&world, &format!("export rm {pool}/{alias}"));
    succeeds(&world, &format!("volume delete {pool}/{first} --yes"));
    succeeds(
        &world,
        &format!("volume create {pool}/{first} {SIZE_BYTES}"),
    );
    // With all that was created still in the log, and again from a checkpoint.
    timed("kill", || server.kill());
    let server = serve(&world);
    check_lists(&world);
    timed("stop", || assert!(server.stop()));
    let server = serve(&world);
    let listed = nbd::Negotiation::connect(&server.socket)
        .and_then(|mut negotiation| negotiation.list())
        .expect("a list");
    assert_eq!(listed.len(), VOLUMES);
    assert!(server.stop());
    assert_eq!(
        words(&succeeds(&world, &format!("volume list {pool}"))),
        names(),
        "at rest"
    );
}
