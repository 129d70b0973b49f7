//! Members that go and come back, as an administrator sees it.

mod support;

use serde_json::Value;
use std::time::{Duration, Instant};
use support::nbd::Client;
use support::{CREATE, Random, World};

const PIECE: usize = 256 << 10;
const PIECES: u64 = 64;

fn status(world: &World) -> Value {
    serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON")
}

fn member_state(world: &World, member: usize) -> String {
    let status = status(world);
    status["members"][member]["state"].as_str().unwrap_or_else(|| panic!("no state in {status}")).to_owned()
}

fn piece(number: u64, round: u64) -> Vec<u8> {
    Random(number * 1000 + round).bytes(PIECE)
}

/// Writes the first pieces, and flushes.
fn fill(client: &mut Client, pieces: u64, round: u64) {
    for number in 0..pieces {
        client.write(number, number * PIECE as u64, &piece(number, round), false);
        client.push().expect("sent");
        client.answer().expect("answered");
    }
    client.flush(1);
    client.push().expect("sent");
    client.answer().expect("flushed");
}

#[test]
fn a_drive_that_was_unplugged_is_rebuilt_when_it_is_back() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    drop(client);
    assert!(server.stop());
    std::fs::rename(world.file("m2"), world.file("elsewhere")).expect("unplugged");
    let server = world.serve("");
    assert_eq!((member_state(&world, 2).as_str(), world.run("pool status tank --exit-code").status.code()), ("absent", Some(1)));
    let mut client = server.client();
    fill(&mut client, 10, 2);
    drop(client);
    server.kill();
    std::fs::rename(world.file("elsewhere"), world.file("m2")).expect("plugged in");
    let server = world.serve("--members m0,m1,m2,m3");
    let end = Instant::now() + Duration::from_secs(30);
    while member_state(&world, 2) != "online" {
        assert!(Instant::now() < end, "it is {}", member_state(&world, 2));
        std::thread::sleep(Duration::from_millis(50));
    }
    let shown = status(&world);
    let written = shown["members"][2]["counters"]["written"]["rebuild"].as_u64().expect("a number");
    assert!(written > 0 && written < PIECES * PIECE as u64 / 6, "{written} bytes: only what it missed");
    assert_eq!(world.run("pool status tank --exit-code").status.code(), Some(0));
    assert!(server.stop());
    world.check().expect("everything is whole, redundancy included");
    std::fs::rename(world.file("m0"), world.file("elsewhere")).expect("another one is unplugged");
    let server = world.serve("");
    let mut client = server.client();
    let all = client.read_all().expect("everything");
    for number in 0..PIECES {
        let round = if number < 10 { 2 } else { 1 };
        assert!(all[number as usize * PIECE..][..PIECE] == piece(number, round), "piece {number}");
    }
    drop(client);
    assert!(server.stop());
}
