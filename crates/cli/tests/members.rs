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

fn wait_for(world: &World, member: usize, state: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while member_state(world, member) != state {
        assert!(Instant::now() < end, "member {member} is {}", member_state(world, member));
        std::thread::sleep(Duration::from_millis(50));
    }
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
    wait_for(&world, 2, "online");
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

#[test]
fn a_dead_drive_is_replaced_and_the_new_one_carries_the_pool() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let refused = world.run("pool replace tank 1 new");
    assert!(support::both(&refused).contains("WR-POOL-005"), "while it is served: {}", support::both(&refused));
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    drop(client);
    assert!(server.stop());
    std::fs::remove_file(world.file("m1")).expect("dead");
    for (line, says) in [
        ("pool replace tank 9 new", "no member"),
        ("pool replace tank 1 m2", "member 2 of the windrow pool 'tank'"),
        ("pool replace tank m0 m0", "member 0 of the windrow pool 'tank'"),
    ] {
        let output = world.run(line);
        let text = support::both(&output);
        assert!(output.status.code() == Some(4) && text.contains(says), "{line}: {text}");
    }
    std::fs::write(world.file("small"), vec![0; 4 << 20]).expect("a small file");
    let small = world.run("pool replace tank 1 small");
    assert!(support::both(&small).contains("needs"), "{}", support::both(&small));
    world.succeeds("pool replace tank 1 new --sparse");
    let server = world.serve("");
    wait_for(&world, 1, "online");
    assert!(server.stop());
    world.check().expect("everything is whole, redundancy included");
    std::fs::remove_file(world.file("m3")).expect("another one dies");
    let server = world.serve("");
    let all = server.client().read_all().expect("everything");
    (0..PIECES).for_each(|number| assert!(all[number as usize * PIECE..][..PIECE] == piece(number, 1), "piece {number}"));
    assert!(server.stop());
}
