//! A scrub from the administrator's side: damage made on a member under a running daemon is found
//! and repaired while clients are served.

use crate::support;

use serde_json::Value;
use std::collections::HashSet;
use std::os::unix::fs::{FileExt, PermissionsExt};
use support::{CREATE, Random, Server, World, both};
use windrow_format::superblock::{
    LABEL_BYTES, LABEL_OFFSET, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock,
};
use windrow_geometry::{Column, ZoneMap};
use windrow_types::{BLOCK_SIZE, MemberId};

const PIECE: usize = 1 << 20;
const PIECES: u64 = 24;

fn zones(world: &World) -> ZoneMap {
    let member = std::fs::File::open(world.file("m0")).expect("a member");
    let slots = (0..SLOT_COUNT).filter_map(|slot| {
        let mut bytes = vec![0; SLOT_BYTES];
        member
            .read_exact_at(&mut bytes, SLOT_OFFSET + slot * SLOT_STRIDE)
            .ok()?;
        Superblock::decode(&bytes).ok()
    });
    ZoneMap::new(
        slots
            .max_by_key(|superblock| superblock.generation)
            .expect("a superblock")
            .zones,
    )
}

/// Overwrites every `nth` row of the log on this member that holds something; returns their number.
fn damage(world: &World, member: u8, nth: u32) -> u64 {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(world.file(&format!("m{member}")))
        .expect("a member");
    let zones = zones(world);
    let mut damaged = 0;
    let mut block = vec![0; BLOCK_SIZE];
    for segment in zones.segments() {
        let location = zones.locate(segment);
        for row in (0..location.shape().rows).filter(|row| row % nth == nth / 2) {
            let columns =
                (0..location.shape().width).map(|column| location.address(row, Column(column)));
            for (_, offset) in columns.filter(|(of, _)| *of == MemberId(member)) {
                file.read_exact_at(&mut block, offset).expect("a read");
                if block.iter().all(|byte| *byte == 0) {
                    continue;
                }
                damaged += 1;
                file.write_all_at(&Random(offset).bytes(BLOCK_SIZE), offset)
                    .expect("a write");
            }
        }
    }
    damaged
}

/// Overwrites two blocks of the data of `fill` in every 16th row that has as many: more than one
/// redundancy column can reconstruct.
fn lose(world: &World) -> u64 {
    let members = [0, 1, 2, 3].map(|member| {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(world.file(&format!("m{member}")))
            .expect("a member")
    });
    let written: HashSet<Vec<u8>> = (0..PIECES)
        .flat_map(|piece| {
            Random(piece)
                .bytes(PIECE)
                .chunks(BLOCK_SIZE)
                .map(<[u8]>::to_vec)
                .collect::<Vec<_>>()
        })
        .collect();
    let zones = zones(world);
    let mut lost = 0;
    let mut block = vec![0; BLOCK_SIZE];
    for segment in zones.segments() {
        let location = zones.locate(segment);
        for row in (0..location.shape().rows).filter(|row| row % 16 == 8) {
            let columns =
                (0..location.shape().data).map(|column| location.address(row, Column(column)));
            let is_written = |(member, offset): &(MemberId, u64)| {
                members[member.index()]
                    .read_exact_at(&mut block, *offset)
                    .expect("a read");
                written.contains(&block)
            };
            let found: Vec<_> = columns.filter(is_written).take(2).collect();
            for (member, offset) in found.iter().filter(|_| found.len() == 2) {
                members[member.index()]
                    .write_all_at(&[0xee; BLOCK_SIZE], *offset)
                    .expect("a write");
                lost += 1;
            }
        }
    }
    lost
}

fn fill(server: &Server) {
    let mut client = server.client();
    for piece in 0..PIECES {
        client.write(
            piece,
            piece * PIECE as u64,
            &Random(piece).bytes(PIECE),
            false,
        );
        assert_eq!(client.finish().expect("an answer").0, 0);
    }
    client.flush(0);
    assert_eq!(client.finish().expect("an answer").0, 0);
}

fn verify(server: &Server) {
    let mut client = server.client();
    for piece in 0..PIECES {
        client.read(piece, piece * PIECE as u64, PIECE);
        let (error, data) = client.finish().expect("an answer");
        assert!(
            error == 0 && data == Random(piece).bytes(PIECE),
            "piece {piece}: error {error}"
        );
    }
}

/// Runs the command, which must end with this code; returns its JSON.
fn scrub(world: &World, options: &str, code: i32) -> Value {
    let output = world.run(&format!("pool scrub tank {options} -o json"));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{options}: {}",
        both(&output)
    );
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        value["schema"],
        if code == 8 {
            "windrow/error/1"
        } else {
            "windrow/pool-scrub/1"
        }
    );
    value
}

fn count(value: &Value, field: &str) -> u64 {
    value["scrub"][field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field}: {value}"))
}

#[test]
fn damage_under_a_running_daemon_is_repaired() {
    let world = World::with_volume(CREATE, "32M");
    std::fs::write(world.file("hook"), "#!/bin/sh\ncat >> events\n").expect("a hook");
    std::fs::set_permissions(world.file("hook"), std::fs::Permissions::from_mode(0o700))
        .expect("a hook");
    let server = world.serve("--event-command ./hook");
    fill(&server);
    let clean = scrub(&world, "--wait", 0);
    assert!(
        count(&clean, "read_bytes") > PIECES * PIECE as u64 && count(&clean, "wrong_blocks") == 0,
        "{clean}"
    );

    let damaged = damage(&world, 1, 5);
    let first = scrub(&world, "--wait", 1);
    assert_eq!(first["scrub"]["state"], "completed");
    assert!(
        (1..=damaged).contains(&count(&first, "wrong_blocks")),
        "{damaged} were damaged: {first}"
    );
    assert!(count(&first, "moved_blocks") > 0, "{first}");
    assert_eq!(
        (
            count(&first, "lost_blocks"),
            count(&first, "damaged_batches")
        ),
        (0, 0),
        "{first}"
    );
    // The scrub ended when all moved blocks were written: the next one finds no error.
    let second = scrub(&world, "--wait", 0);
    assert_eq!(
        (
            count(&second, "wrong_blocks"),
            count(&second, "moved_blocks")
        ),
        (0, 0),
        "{second}"
    );
    verify(&server);
    let text = world.succeeds("pool status tank");
    assert!(
        text.lines()
            .any(|line| line.starts_with("scrub      completed 20")
                && line.contains(", 0 wrong blocks, next 20")),
        "{text}"
    );
    assert!(server.stop());
    world.check().expect("a sound pool");
    let events = std::fs::read_to_string(world.file("events")).expect("events");
    let ends: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|event: &Value| event["event"] == "scrub_ended")
        .collect();
    let wrong: Vec<_> = ends
        .iter()
        .map(|event| event["wrong_blocks"].as_u64())
        .collect();
    assert_eq!(
        wrong,
        [Some(0), Some(count(&first, "wrong_blocks")), Some(0)],
        "{events}"
    );
    // The last one is remembered.
    assert!(
        world
            .succeeds("pool status tank")
            .contains("scrub      completed 20")
    );
}

/// Without its label the device would not be found, and the next start would lack it.
#[test]
fn a_label_that_is_damaged_meanwhile_is_written_again() {
    let world = World::with_volume(CREATE, "32M");
    let server = world.serve("");
    let member = std::fs::File::options()
        .write(true)
        .open(world.file("m2"))
        .expect("a member");
    member
        .write_all_at(&[0xee; LABEL_BYTES], LABEL_OFFSET)
        .expect("a write");
    let found = scrub(&world, "--wait", 1);
    assert_eq!(
        (count(&found, "wrong_blocks"), count(&found, "moved_blocks")),
        (1, 0),
        "{found}"
    );
    assert_eq!(count(&scrub(&world, "--wait", 0), "wrong_blocks"), 0);
    assert!(server.stop());
    world.check().expect("a sound pool");
    let server = world.serve("");
    assert!(
        world
            .succeeds("pool status tank")
            .lines()
            .any(|line| line.starts_with("state") && line.ends_with("online"))
    );
    assert!(server.stop());
}

#[test]
fn what_is_lost_is_named_and_writing_it_makes_the_pool_whole() {
    let world = World::with_volume(CREATE, "32M");
    let server = world.serve("");
    fill(&server);
    let lost = lose(&world);
    assert!(lost > 0);
    let found = scrub(&world, "--wait", 4);
    assert_eq!(
        (
            count(&found, "lost_blocks"),
            count(&found, "damaged_batches")
        ),
        (lost, 0),
        "{found}"
    );
    let listed = found["scrub"]["lost"].as_array().expect("a list");
    assert_eq!(listed.len() as u64, lost.min(1024));
    let volume_blocks = PIECES * PIECE as u64 / BLOCK_SIZE as u64;
    assert!(
        listed.iter().all(|block| block["volume"] == "data"
            && block["block"]
                .as_u64()
                .is_some_and(|block| block < volume_blocks)),
        "{found}"
    );
    assert!(
        world
            .succeeds("pool status tank")
            .contains("lost       volume 'data', block ")
    );
    assert!(world.succeeds("stats tank --prometheus").contains(&format!(
        "windrow_scrub_lost_blocks_total{{pool=\"tank\"}} {lost}\n"
    )));
    let mut client = server.client();
    for block in listed {
        client.read(
            0,
            block["block"].as_u64().expect("a number") * BLOCK_SIZE as u64,
            BLOCK_SIZE,
        );
        assert_ne!(
            client.finish().expect("an answer").0,
            0,
            "block {block} is lost, and no other bytes are given for it"
        );
    }
    fill(&server);
    let again = scrub(&world, "--wait", 0);
    assert_eq!(
        (
            count(&again, "lost_blocks"),
            count(&again, "damaged_batches")
        ),
        (0, 0),
        "{again}"
    );
    verify(&server);
    assert!(server.stop());
    world.check().expect("a sound pool");
}

/// A refusal: exit code 8 and the id.
fn refused(world: &World, options: &str, id: &str) {
    let value = scrub(world, options, 8);
    assert_eq!(value["error"]["id"], id, "{options}: {value}");
}

#[test]
fn a_scrub_is_steered_and_commands_that_do_not_fit_are_refused() {
    let world = World::with_volume(CREATE, "32M");
    refused(&world, "", "WR-CLI-002");
    let server = world.serve("");
    fill(&server);
    for option in ["--pause", "--resume", "--stop"] {
        refused(&world, option, "WR-SCRUB-001");
    }
    assert_eq!(
        world.run("pool scrub tank --watch").status.code(),
        Some(8),
        "there is none that could have ended"
    );
    // So slow that it runs until the end of the test.
    let started = scrub(&world, "--rate 64K", 0);
    assert_eq!(
        (
            started["action"].as_str(),
            count(&started, "bytes_per_second")
        ),
        (Some("start"), 64 << 10)
    );
    refused(&world, "--resume", "WR-SCRUB-001");
    refused(&world, "", "WR-SCRUB-001");
    let text = world.succeeds("pool status tank");
    assert!(
        text.contains("scrub      running, ") && text.contains("(at most 64 KiB/s)"),
        "{text}"
    );
    assert_eq!(scrub(&world, "--pause", 0)["scrub"]["state"], "paused");
    refused(&world, "--pause", "WR-SCRUB-001");
    refused(&world, "", "WR-SCRUB-001");
    assert!(server.stop());
    assert!(
        world
            .succeeds("pool status tank")
            .contains("scrub      paused at "),
        "it is remembered"
    );
    let server = world.serve("");
    let resumed = scrub(&world, "--resume", 0);
    assert_eq!(
        (
            resumed["scrub"]["state"].as_str(),
            count(&resumed, "bytes_per_second")
        ),
        (Some("running"), 64 << 10)
    );
    assert!(server.stop());
    assert!(
        world
            .succeeds("pool status tank")
            .contains("scrub      interrupted at "),
        "it is not served"
    );
    let server = world.serve("");
    assert_eq!(scrub(&world, "--stop", 0)["scrub"]["state"], "stopped");
    refused(&world, "--stop", "WR-SCRUB-001");
    for line in [
        "--pause --stop",
        "--pause --rate 1M",
        "--stop --wait",
        "--watch --rate 1M",
        "--rate much",
    ] {
        assert_eq!(
            world.run(&format!("pool scrub tank {line}")).status.code(),
            Some(16),
            "{line}"
        );
    }
    assert_eq!(scrub(&world, "--wait", 0)["scrub"]["state"], "completed");
    verify(&server);
    assert!(server.stop());
    world.check().expect("a sound pool");
}

/// `check --repair`; returns its JSON.
fn repair(world: &World, code: i32) -> Value {
    let output = world.run("check tank --repair -o json");
    assert_eq!(output.status.code(), Some(code), "{}", both(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

const NO_HOST: &str = "00000000-0000-0000-0000-000000000000";

/// The host that has the pool.
fn host(world: &World) -> String {
    let superblocks: Value =
        serde_json::from_str(&world.succeeds("inspect m0 m1 m2 m3 -o json")).expect("JSON");
    superblocks["newest"]["host"]
        .as_str()
        .expect("a host")
        .to_owned()
}

/// A pool at rest: the repair needs no daemon, and a sound pool is not written to.
#[test]
fn a_pool_at_rest_is_repaired() {
    let world = World::with_volume(CREATE, "32M");
    let server = world.serve("");
    fill(&server);
    assert!(server.stop());
    let members =
        || ["m0", "m1", "m2", "m3"].map(|name| std::fs::read(world.file(name)).expect("a member"));
    let before = members();
    let sound = repair(&world, 0);
    assert!(
        sound["schema"] == "windrow/check-repair/1"
            && sound["scrub"].is_null()
            && sound["after"].is_null(),
        "{sound}"
    );
    assert!(members() == before, "a sound pool was written to");

    let own = host(&world);
    assert_ne!(own, NO_HOST);
    assert!(damage(&world, 2, 5) > 0);
    assert!(world.check().is_err());
    let repaired = repair(&world, 1);
    assert!(
        count(&repaired, "wrong_blocks") > 0 && count(&repaired, "lost_blocks") == 0,
        "{repaired}"
    );
    world.check().expect("a sound pool");
    // It was not exported, and is not now: no other host may take it.
    assert_eq!(host(&world), own);
    let text = world.succeeds("check tank --repair");
    assert!(
        text.contains("nothing to repair; nothing was written"),
        "{text}"
    );

    // Without a member that it counts on the pool would continue with less redundancy.
    assert!(damage(&world, 1, 7) > 0);
    std::fs::rename(world.file("m3"), world.file("away")).expect("a member");
    let before = std::fs::read(world.file("m0")).expect("a member");
    let refused = world.run("check tank --repair");
    assert!(
        refused.status.code() == Some(8)
            && both(&refused).contains("WR-POOL-012")
            && both(&refused).contains("members [3]"),
        "{}",
        both(&refused)
    );
    assert!(
        std::fs::read(world.file("m0")).expect("a member") == before,
        "it was written to"
    );
    let check = both(&world.run("check tank"));
    assert!(
        check.contains("WR-POOL-009") && check.contains("bring them back first"),
        "{check}"
    );
    std::fs::rename(world.file("away"), world.file("m3")).expect("a member");
    repair(&world, 1);

    // An old copy in the place of the real member; a start would rewrite it.
    let old = std::fs::read(world.file("m3")).expect("a member");
    (0..2).for_each(|_| assert!(world.serve("").stop()));
    std::fs::rename(world.file("m3"), world.file("away")).expect("a member");
    std::fs::write(world.file("m3"), &old).expect("an old copy");
    let before = std::fs::read(world.file("m0")).expect("a member");
    let refused = world.run("check tank --repair");
    let text = both(&refused);
    assert!(
        refused.status.code() == Some(8)
            && text.contains("WR-POOL-012")
            && text.contains("member 3 does not count (stale"),
        "{text}"
    );
    assert!(
        std::fs::read(world.file("m0")).expect("a member") == before
            && std::fs::read(world.file("m3")).expect("a member") == old,
        "they were written to"
    );
    std::fs::rename(world.file("away"), world.file("m3")).expect("a member");
    repair(&world, 0);

    // An exported pool stays exported: any host may take it.
    world.succeeds("pool export tank");
    assert!(damage(&world, 1, 7) > 0);
    assert_eq!(
        world.run("check tank --repair --dir .").status.code(),
        Some(1)
    );
    assert_eq!(host(&world), NO_HOST);
    world.succeeds("pool import tank --dir .");

    let lost = lose(&world);
    assert!(lost > 0);
    let rest = repair(&world, 4);
    assert!(
        (1..=lost).contains(&count(&rest, "lost_blocks")),
        "{lost} were overwritten: {rest}"
    );
    let text = world.run("check tank --repair");
    assert!(
        text.status.code() == Some(4) && both(&text).contains("not everything could be repaired"),
        "{}",
        both(&text)
    );
}

/// A member that missed writes of the others is up to date afterwards, and counts again.
#[test]
fn a_member_that_was_away_is_brought_up_to_date_at_rest() {
    let world = World::with_volume(CREATE, "32M");
    std::fs::rename(world.file("m3"), world.file("away")).expect("a member");
    let server = world.serve("");
    fill(&server);
    assert!(server.stop());
    std::fs::rename(world.file("away"), world.file("m3")).expect("a member");
    assert!(world.check().is_err());
    let repaired = repair(&world, 1);
    assert_eq!(
        repaired["after"]["findings"]["list"],
        serde_json::json!([]),
        "{repaired}"
    );
    world.check().expect("a sound pool");
    // It is needed now.
    std::fs::rename(world.file("m0"), world.file("away")).expect("a member");
    verify(&world.serve(""));
}

/// Blocks that a missing member missed and that others lost: the rebuild in service retries for
/// ever. An offline repair ends, and reports them.
#[test]
fn a_repair_ends_where_a_member_cannot_be_brought_up_to_date() {
    let world = World::with_volume(CREATE, "32M");
    std::fs::rename(world.file("m3"), world.file("away")).expect("a member");
    let server = world.serve("");
    fill(&server);
    assert!(server.stop());
    std::fs::rename(world.file("away"), world.file("m3")).expect("a member");
    assert!(lose(&world) > 0);
    let repaired = repair(&world, 4);
    assert!(count(&repaired, "lost_blocks") > 0, "{repaired}");
    let named: Vec<&str> = repaired["after"]["findings"]["list"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|finding| finding["severity"].as_str())
        .collect();
    assert!(named.contains(&"error"), "{repaired}");
}

fn exit_code(world: &World) -> Option<i32> {
    world.run("pool status tank --exit-code").status.code()
}

fn status(world: &World) -> Value {
    serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON")
}

/// Lost data shows in the state and the exit code. Repeated reads must not log a line for each lost
/// block.
#[test]
fn lost_data_shows_in_the_state_and_is_reported_once() {
    let world = World::with_volume(
        "pool create --redundancy 0 --size 64M --sparse --segment 256K --chunk 64K tank m0 m1",
        "32M",
    );
    std::fs::write(world.file("hook"), "#!/bin/sh\ncat >> events\n").expect("a hook");
    std::fs::set_permissions(world.file("hook"), std::fs::Permissions::from_mode(0o700))
        .expect("a hook");
    let server = world.serve("--event-command ./hook");
    fill(&server);
    assert_eq!(
        (exit_code(&world), status(&world)["data"]["state"].as_str()),
        (Some(0), Some("intact"))
    );
    let member = std::fs::File::options()
        .write(true)
        .open(world.file("m1"))
        .expect("a member");
    (2..14).for_each(|mib| {
        member
            .write_all_at(&Random(mib).bytes(1 << 20), mib << 20)
            .expect("a write")
    });
    let read_all = || {
        let mut client = server.client();
        for piece in 0..PIECES {
            client.read(piece, piece * PIECE as u64, PIECE);
            client.finish().expect("an answer");
        }
    };
    read_all();
    let first = status(&world);
    let lost = first["data"]["lost_blocks"].as_u64().expect("a number");
    let log = std::fs::metadata(world.file("serve.log"))
        .expect("a log")
        .len();
    (0..3).for_each(|_| read_all());
    assert_eq!(
        status(&world)["data"],
        first["data"],
        "the same reads find the same blocks"
    );
    assert_eq!(
        std::fs::metadata(world.file("serve.log"))
            .expect("a log")
            .len(),
        log,
        "a repetition is not logged"
    );
    assert!(log < 20_000, "{log} bytes of log");
    let listed: u64 = first["data"]["lost"]
        .as_array()
        .expect("ranges")
        .iter()
        .filter_map(|range| range["blocks"].as_u64())
        .sum();
    assert!(lost >= 2000 && listed == lost, "{first}");
    assert_eq!(
        (
            first["state"].as_str(),
            first["data"]["state"].as_str(),
            exit_code(&world)
        ),
        (Some("online"), Some("damaged"), Some(5))
    );
    assert!(
        first["members"][1]["counters"]["wrong_blocks"].as_u64() >= Some(lost)
            && first["members"][0]["counters"]["wrong_blocks"] == 0,
        "{first}"
    );
    let text = world.succeeds("pool status tank");
    assert!(
        text.contains(&format!(
            "state      online, data damaged: {lost} blocks lost"
        )) && text.contains("lost       volume 'data', blocks "),
        "{text}"
    );
    let metrics = world.succeeds("stats tank --prometheus");
    assert!(
        metrics.contains("windrow_data_state{pool=\"tank\",state=\"damaged\"} 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains(&format!("windrow_lost_blocks{{pool=\"tank\"}} {lost}\n")),
        "{metrics}"
    );
    server.kill();

    // Without a clean end.
    let server = world.serve("");
    let after = status(&world);
    assert_eq!(
        (after["data"]["state"].as_str(), exit_code(&world)),
        (Some("unknown"), Some(5))
    );
    assert!(
        after["data"]["unverified_blocks"].as_u64() > Some(0),
        "{after}"
    );
    let found = scrub(&world, "--wait", 4);
    assert!(
        count(&found, "lost_blocks") >= lost
            && count(&found, "wrong_blocks") >= count(&found, "lost_blocks"),
        "{found}"
    );
    assert_eq!(
        (
            status(&world)["data"]["state"].as_str(),
            status(&world)["data"]["lost_blocks"].as_u64()
        ),
        (Some("damaged"), Some(count(&found, "lost_blocks")))
    );
    world.succeeds("volume delete tank/data --yes");
    assert_eq!(
        (status(&world)["data"]["state"].as_str(), exit_code(&world)),
        (Some("intact"), Some(0))
    );
    assert!(server.stop());
    let events = std::fs::read_to_string(world.file("events")).expect("events");
    let events: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let named = events
        .iter()
        .filter(|event| event["event"] == "unrecoverable")
        .count();
    assert!((1..=10).contains(&named), "{named} events");
    assert!(
        events.iter().all(|event| event["severity"] == "error"
            && event["volume_name"] == "data"
            && event["time"].is_string()),
        "{events:?}"
    );
}

/// A missing member is described by its last path and the reason, in plain text.
#[test]
fn a_missing_member_is_named_by_its_last_place() {
    let world = World::with_volume(CREATE, "32M");
    assert!(world.serve("").stop());
    std::fs::rename(world.file("m2"), world.file("elsewhere")).expect("moved");
    let server = world.serve("");
    let (before, path) = (status(&world), world.file("m2").display().to_string());
    let member = &before["members"][2];
    assert_eq!(
        (
            member["state"].as_str(),
            member["path"].as_str(),
            member["last_path"].as_str()
        ),
        (Some("missing"), Some(""), Some(&*path))
    );
    assert!(
        member["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("not found"))
            && member["seen_unix_s"].as_u64() > Some(1_700_000_000),
        "{member}"
    );
    let text = world.succeeds("pool status tank");
    assert!(
        text.lines().any(|line| line.trim_start().starts_with('2')
            && line.contains("missing")
            && line.contains(&format!("last seen at {path}"))),
        "{text}"
    );
    let log = std::fs::read_to_string(world.file("serve.log")).expect("a log");
    assert!(
        log.contains("pool 'tank': member 2 (")
            && log.contains(&path)
            && !log.contains("MemberId("),
        "{log}"
    );
    let metrics = world.succeeds("stats tank --prometheus");
    assert!(
        metrics.contains(&format!(
            "windrow_member_online{{pool=\"tank\",member=\"2\",path=\"{path}\"}} 0\n"
        )),
        "{metrics}"
    );
    assert!(
        metrics
            .lines()
            .any(|line| line.contains("member=\"2\"") && line.ends_with("state=\"missing\"} 1")),
        "{metrics}"
    );
    std::fs::File::create(world.file("spare"))
        .and_then(|file| file.set_len(64 << 20))
        .expect("a file");
    world.succeeds("pool add tank --spare spare");
    let metrics = world.succeeds("stats tank --prometheus");
    assert!(
        metrics
            .lines()
            .any(|line| line.contains("member=\"4\"") && line.ends_with("state=\"spare\"} 1")),
        "{metrics}"
    );
    assert!(
        !metrics.contains("windrow_member_online{pool=\"tank\",member=\"4\""),
        "a spare that waits is not a member that is down"
    );
    assert!(server.stop());
}
