//! Changes of members of a pool at rest: each opens the pool, is recorded, and continues under the
//! next daemon.

use crate::support;

use serde_json::Value;
use std::time::{Duration, Instant};
use support::nbd::Client;
use support::pieces::{PIECE, fill, member_state, piece, status};
use support::{CREATE, World, both};

const PIECES: u64 = 32;

fn usable(world: &World) -> u64 {
    status(world)["capacity"]["usable_bytes"]
        .as_u64()
        .expect("bytes")
}

/// Verifies everything: the first `newer` pieces are of `round`.
fn verify(client: &mut Client, newer: u64, round: u64) {
    let all = client.read_all().expect("everything");
    for number in 0..PIECES {
        let round = if number < newer { round } else { 1 };
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, round),
            "piece {number}"
        );
    }
}

/// Writes a little again and again until `is_so`; returns the number of the last round.
fn write_until(client: &mut Client, is_so: impl Fn() -> bool) -> u64 {
    let end = Instant::now() + Duration::from_secs(60);
    let mut round = 2;
    loop {
        fill(client, 10, round);
        if is_so() {
            return round;
        }
        assert!(Instant::now() < end, "it does not come to an end");
        std::thread::sleep(Duration::from_millis(50));
        round += 1;
    }
}

/// Verifies with redundancy: without this member everything comes from the others. The first pieces
/// are of `round`.
fn is_whole_without(world: &World, member: &str, round: u64) {
    world
        .check()
        .expect("everything is whole, redundancy included");
    std::fs::remove_file(world.file(member)).expect("it dies");
    let server = world.serve("");
    verify(&mut server.client(), 10, round);
    assert!(server.stop());
}

/// A pool at rest with all pieces of the first round.
fn filled() -> World {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    fill(&mut server.client(), PIECES, 1);
    assert!(server.stop());
    world
}

/// The states of all slots in use.
fn states(world: &World) -> Vec<String> {
    let shown = status(world);
    let states = shown["members"]
        .as_array()
        .expect("members")
        .iter()
        .map(|member| member["state"].as_str().expect("a state").to_owned());
    states.filter(|state| state != "removed").collect()
}

/// The command is refused with this identifier and these words, and a next step.
fn refused(world: &World, line: &str, id: &str, says: &str) {
    let output = world.run(&format!("{line} -o json"));
    let failure =
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()["error"].take();
    let part = |name: &str| failure[name].as_str().unwrap_or_default().to_owned();
    assert!(
        output.status.code() == Some(4) && part("id") == id && part("why").contains(says),
        "{line}: {}",
        both(&output)
    );
    assert!(
        !part("remedy").is_empty(),
        "{line} does not say what to do next: {}",
        both(&output)
    );
}

#[test]
fn a_member_that_was_taken_out_is_brought_back_at_rest() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    world.succeeds("pool offline tank m2");
    fill(&mut client, 10, 2);
    drop(client);
    assert!(server.stop());
    // No start takes it back by itself.
    let before = ["online", "online", "offline", "online"];
    assert_eq!(states(&world), before);
    refused(&world, "pool online tank 1", "WR-MEMBER-004", "in use");
    refused(
        &world,
        "pool online tank 2 m1",
        "WR-MEMBER-004",
        "another device",
    );
    refused(&world, "pool online tank 9", "WR-CLI-001", "no member");
    std::fs::rename(world.file("m2"), world.file("moved")).expect("moved");
    refused(
        &world,
        "pool online tank 2",
        "WR-MEMBER-001",
        "the path of its device is not known",
    );
    assert_eq!(states(&world), before);
    let said = world.succeeds("pool online tank 2 moved");
    assert!(
        said.contains("member 2") && said.contains("when the pool is served"),
        "{said}"
    );
    // (So little data may be rebuilt before the pool is closed again.)
    assert!(
        ["rebuilding", "online"].contains(&member_state(&world, 2).as_str()),
        "{:?}",
        states(&world)
    );
    let server = world.serve("");
    let mut client = server.client();
    let round = write_until(&mut client, || member_state(&world, 2) == "online");
    drop(client);
    assert!(server.stop());
    is_whole_without(&world, "m0", round);
}

#[test]
fn a_pool_grows_at_rest() {
    let world = filled();
    let before = usable(&world);
    // A refused command leaves nothing behind, neither a spare nor a file.
    refused(
        &world,
        "pool add tank m4 m3 --create-files --sparse",
        "WR-MEMBER-002",
        "m3",
    );
    assert!(!world.file("m4").exists());
    assert_eq!(states(&world), ["online"; 4]);
    let said = world.succeeds("pool add tank m4 m5 --create-files --sparse");
    assert!(said.contains("2 members more"), "{said}");
    assert_eq!(states(&world), ["online"; 6]);
    assert!(usable(&world) >= before, "{}", status(&world)["capacity"]);
    let server = world.serve("");
    let mut client = server.client();
    let round = write_until(&mut client, || status(&world)["reshape"]["active"] == false);
    assert!(
        usable(&world) > before * 5 / 4,
        "{} after {before}",
        usable(&world)
    );
    drop(client);
    assert!(server.stop());
    is_whole_without(&world, "m0", round);
}

#[test]
fn a_member_that_holds_data_leaves_at_rest() {
    let world = filled();
    let before = usable(&world);
    let said = world.succeeds("pool remove tank m1");
    assert!(
        said.contains("member 1 leaves") && said.contains("when the pool is served"),
        "{said}"
    );
    assert!(usable(&world) < before);
    // Data still moves, or, with so little data, too few members would be left. A leaving member,
    // or one that has left, cannot be replaced.
    refused(&world, "pool remove tank 2", "WR-MEMBER-004", "");
    refused(
        &world,
        "pool replace tank 1 other --create-files --sparse",
        "WR-MEMBER-004",
        "removed",
    );
    assert!(!world.file("other").exists());
    let server = world.serve("");
    let mut client = server.client();
    let is_gone = || {
        let shown = status(&world);
        shown["members"][1]["state"] == "removed"
            && shown["members"][1]["path"]
                .as_str()
                .is_none_or(str::is_empty)
    };
    let round = write_until(&mut client, is_gone);
    drop(client);
    assert!(server.stop());
    std::fs::remove_file(world.file("m1")).expect("no longer needed");
    is_whole_without(&world, "m0", round);
}

/// A file of 1 TB is sparse, and so is the rebuild: it writes only segments in use.
#[test]
fn an_empty_member_of_a_terabyte_is_rebuilt_by_what_is_in_use() {
    let world = World::with_volume(
        "pool create --redundancy 5 --size 1T --sparse tank m0 m1 m2",
        "64M",
    );
    let server = world.serve("");
    fill(&mut server.client(), 16, 1);
    world.succeeds("pool replace tank 1 new --create-files --sparse");
    let end = Instant::now() + Duration::from_secs(60);
    while !status(&world)["members"][1]["path"]
        .as_str()
        .is_some_and(|path| path.ends_with("/new"))
    {
        assert!(Instant::now() < end, "{}", status(&world)["rebuild"]);
        std::thread::sleep(Duration::from_millis(50));
    }
    let shown = status(&world);
    let rebuild = |name: &str| shown["rebuild"][name].as_u64().expect("a number");
    assert_eq!(shown["members"][1]["size_bytes"].as_u64(), Some(1 << 40));
    // Half of 4 MiB of data, and of each of the few segments in use at most as much as was written
    // to it: headers, rows that are not full, pages of checkpoints.
    let (data, total) = (16 * PIECE as u64, rebuild("total_bytes"));
    assert!(
        total >= data / 2 && total < data * 4,
        "{total} bytes for {data}: {}",
        shown["rebuild"]
    );
    assert_eq!(rebuild("written_bytes"), total);
    assert_eq!(
        shown["members"][1]["counters"]["written"]["rebuild"].as_u64(),
        Some(total)
    );
    assert!(
        (1..=8).contains(&rebuild("segments_total"))
            && rebuild("segments_done") == rebuild("segments_total"),
        "{}",
        shown["rebuild"]
    );
    assert!(server.stop());
    std::fs::remove_file(world.file("m0")).expect("another one dies");
    let server = world.serve("");
    let all = server.client().read_all().expect("everything");
    (0..16).for_each(|number| {
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, 1),
            "piece {number}"
        )
    });
    assert!(server.stop());
}
