//! Impossible requests for members, and members from unexpected places: a refused command changes
//! nothing.

use crate::support;

use serde_json::Value;
use support::pieces::member_state;
use support::{CREATE, World, both};

/// Refused for this reason.
fn refused(world: &World, line: &str, says: &str) {
    let answer = world.run(line);
    assert!(
        !answer.status.success() && both(&answer).contains(says),
        "{line}: {}",
        both(&answer)
    );
}

fn path_of(world: &World, member: usize) -> String {
    let shown: Value =
        serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON");
    shown["members"][member]["path"]
        .as_str()
        .unwrap_or_else(|| panic!("{shown}"))
        .to_owned()
}

/// Writes to power-safe devices are not flushed: another device must not replace one unless it is
/// declared so.
#[test]
fn only_a_power_safe_device_replaces_a_power_safe_one() {
    let create = "pool create --redundancy 5 --size 64M --sparse --segment 256K --chunk 64K --journal-device j0 --journal-power-safe tank m0 m1 m2 m3";
    let world = World::with_volume(create, "16M");
    for served in [true, false] {
        let server = served.then(|| world.serve(""));
        if served {
            world.succeeds("pool add tank --journal j1 --create-files --sparse --power-safe");
        }
        refused(
            &world,
            "pool replace tank 5 new --create-files --sparse",
            "--power-safe",
        );
        assert!(
            member_state(&world, 5) != "offline" && !world.file("new").exists(),
            "made for nothing"
        );
        world.succeeds(&format!(
            "pool replace tank 5 new{served} --create-files --sparse --power-safe"
        ));
        assert!(server.is_none_or(support::Server::stop));
    }
    let server = world.serve("");
    assert!(
        path_of(&world, 5).ends_with("newfalse"),
        "{}",
        path_of(&world, 5)
    );
    assert!(server.stop());
}

/// If the removal is refused, the device must not stay out of service.
#[test]
fn a_journal_device_that_cannot_be_removed_serves_on() {
    let create = "pool create --redundancy 5 --size 64M --sparse --segment 256K --chunk 64K --journal 0 --journal-device j0 tank m0 m1 m2 m3";
    let world = World::with_volume(create, "16M");
    world.succeeds("volume sync tank/data always");
    let server = world.serve("");
    refused(&world, "pool remove tank 4", "sync=standard");
    let state = member_state(&world, 4);
    assert!(
        ["online", "rebuilding"].contains(&state.as_str()),
        "{state}"
    );
    world.succeeds("volume sync tank/data standard");
    world.succeeds("pool remove tank 4");
    assert_eq!(member_state(&world, 4), "removed");
    assert!(server.stop());
}

/// The pool is asked first: a device added as a spare would replace the missing member.
#[test]
fn a_pool_that_misses_a_member_takes_no_device_to_grow() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    world.succeeds("pool offline tank 1");
    refused(
        &world,
        "pool add tank n0 n1 --create-files --sparse",
        "member 1 is offline",
    );
    assert!(!world.file("n0").exists() && !world.file("n1").exists());
    assert!(server.stop());
}

/// A spare that was missing at the start comes back without a restart.
#[test]
fn a_spare_that_was_missing_at_the_start_is_brought_back() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    world.succeeds("pool add tank --spare s0 --create-files --sparse");
    refused(&world, "pool online tank 4 s0", "its device is there");
    assert!(server.stop());
    std::fs::rename(world.file("s0"), world.file("elsewhere")).expect("unplugged");
    let server = world.serve("--spare-patience 0");
    std::fs::copy(world.file("m3"), world.file("copy")).expect("a copy of a member");
    refused(
        &world,
        "pool online tank 4 copy",
        "is not the spare that left",
    );
    world.succeeds("pool online tank 4 elsewhere");
    assert!(
        path_of(&world, 4).ends_with("elsewhere"),
        "{}",
        path_of(&world, 4)
    );
    // Unplugged in service: its last answers do not show that.
    std::fs::copy(world.file("elsewhere"), world.file("again")).expect("plugged in again");
    std::fs::File::options()
        .write(true)
        .open(world.file("elsewhere"))
        .and_then(|file| file.set_len(0))
        .expect("it is read no more");
    world.succeeds("pool online tank 4 again");
    assert!(
        path_of(&world, 4).ends_with("again"),
        "{}",
        path_of(&world, 4)
    );
    world.succeeds("pool remove tank 4");
    assert_eq!(
        (member_state(&world, 4), path_of(&world, 4)),
        ("removed".to_owned(), String::new())
    );
    assert!(server.stop());
}

/// A second path to a drive in service, or a copy of it, has a label of the pool: with --overwrite
/// the drive would be zeroed.
#[test]
fn what_serves_is_no_new_device_by_another_path() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    std::fs::copy(world.file("m3"), world.file("path")).expect("as by another path");
    let before = std::fs::read(world.file("path")).expect("a file");
    for command in [
        "pool add tank --spare path --overwrite",
        "pool replace tank 1 path --overwrite",
    ] {
        refused(
            &world,
            command,
            "is member 3 by another path, or a copy of it",
        );
    }
    assert!(
        std::fs::read(world.file("path")).expect("a file") == before,
        "it was written to"
    );
    assert!(server.stop());
}

/// `pool status` of a folder must not ask for pools elsewhere, nor fail for them.
#[test]
fn the_status_of_a_folder_is_that_of_the_pools_in_it() {
    let world = World::with_volume(CREATE, "16M");
    std::fs::create_dir(world.file("empty")).expect("a folder");
    let shown: Value =
        serde_json::from_str(&world.succeeds("pool status --dir empty -o json")).expect("JSON");
    assert_eq!(
        (
            shown["pools"].as_array().map(Vec::len),
            shown["failed"].as_array().map(Vec::len)
        ),
        (Some(0), Some(0)),
        "{shown}"
    );
    let shown: Value =
        serde_json::from_str(&world.succeeds("pool status --dir . -o json")).expect("JSON");
    assert_eq!(shown["pools"][0]["name"], "tank", "{shown}");
}

/// A mistyped device must not become a file in devtmpfs that replaces a healthy member.
#[test]
fn a_path_that_does_not_exist_is_made_a_file_only_where_that_is_asked_for() {
    let world = World::with_volume(CREATE, "16M");
    for served in [false, true] {
        let server = served.then(|| world.serve(""));
        for command in [
            "pool replace tank 1 TYPO",
            "pool add tank TYPO",
            "pool add tank --spare TYPO",
            "pool add tank --journal TYPO",
        ] {
            refused(
                &world,
                &command.replace("TYPO", "typo"),
                "typo does not exist; check the path, or give --create-files",
            );
            refused(
                &world,
                &command.replace("TYPO", "/dev/windrow-typo"),
                "/dev/windrow-typo does not exist; check the path (`lsblk`",
            );
            refused(
                &world,
                &format!(
                    "{} --create-files",
                    command.replace("TYPO", "/dev/windrow-typo")
                ),
                "a file in /dev would be in memory",
            );
            assert!(
                !world.file("typo").exists() && !std::path::Path::new("/dev/windrow-typo").exists(),
                "{command}"
            );
            assert_eq!(member_state(&world, 1), "online", "{command}");
        }
        refused(
            &world,
            "pool add tank --spare typo --sparse",
            "--create-files",
        );
        assert!(server.is_none_or(support::Server::stop));
    }
    for create in [
        "pool create --redundancy 5 --size 64M other a b /dev/windrow-typo",
        "pool create --redundancy 5 --size 64M other a b none/c",
    ] {
        refused(&world, create, "WR-MEMBER-001");
        refused(
            &world,
            &create.replace("create", "create --dry-run"),
            "WR-MEMBER-001",
        );
        assert!(
            !world.file("a").exists() && !world.file("b").exists(),
            "made for nothing"
        );
    }
    std::os::unix::fs::symlink("nowhere", world.file("dangling")).expect("a link");
    refused(
        &world,
        "pool add tank --spare dangling --create-files",
        "is a link to nowhere, which does not exist",
    );
    let said: Value = serde_json::from_str(
        &world.succeeds("pool add tank --spare new --create-files --sparse -o json"),
    )
    .expect("JSON");
    assert!(
        said["created_files"][0]
            .as_str()
            .is_some_and(|path| path.ends_with("/new")),
        "{said}"
    );
    assert!(
        world
            .succeeds("pool replace tank 1 new1 --create-files --sparse")
            .contains("created the file"),
        "it is said"
    );
}

/// A file in memory is gone after a restart: good for a trial, never for a pool that has data.
#[test]
fn a_file_in_memory_is_only_for_a_new_pool_and_with_a_warning() {
    let is_memory = |folder: &&str| {
        let place = windrow_device::place::of_new_file(&std::path::Path::new(folder).join("x"));
        place.is_ok_and(|place| {
            place.keeps == windrow_device::place::Keeps::Memory && place.free_bytes > 64 << 20
        })
    };
    let Some(folder) = ["/run", "/tmp", "/run/lock"].into_iter().find(is_memory) else {
        return eprintln!("skipped: no folder in memory to write to");
    };
    let dir = tempfile::tempdir_in(folder).expect("a folder");
    let world = World::with_volume(CREATE, "16M");
    let at = |name: &str| dir.path().join(name).display().to_string();
    for command in [
        "pool replace tank 1",
        "pool add tank --spare",
        "pool add tank --journal",
        "pool add tank",
    ] {
        refused(
            &world,
            &format!("{command} {} --create-files --sparse", at("x")),
            "is in memory (tmpfs or ramfs)",
        );
        assert!(!dir.path().join("x").exists());
    }
    let made = world.succeeds(&format!(
        "pool create --redundancy 5 --size 16M --sparse --segment 64K --chunk 16K other {} {} {}",
        at("a"),
        at("b"),
        at("c")
    ));
    assert!(made.contains("is in memory (tmpfs or ramfs)"), "{made}");
}

/// A member truncated in service must not stay online: a scrub would call it repaired, and the next
/// start would leave it out.
#[test]
fn a_member_that_becomes_too_small_in_service_has_failed() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    std::fs::File::options()
        .write(true)
        .open(world.file("m1"))
        .and_then(|file| file.set_len(8 << 20))
        .expect("cut short");
    drop(world.run("pool scrub tank"));
    assert_eq!(member_state(&world, 1), "faulted");
    // Beyond redundancy it stays: the rest of it is worth more than nothing.
    std::fs::File::options()
        .write(true)
        .open(world.file("m2"))
        .and_then(|file| file.set_len(8 << 20))
        .expect("cut short");
    drop(world.run("pool scrub tank"));
    assert_eq!(member_state(&world, 2), "online");
    // A member whose file is deleted serves on, and no later start finds it.
    std::fs::remove_file(world.file("m3")).expect("a file");
    drop(world.run("pool scrub tank"));
    assert_eq!(member_state(&world, 3), "online");
    server.kill();
    let log = std::fs::read_to_string(world.file("serve.log")).expect("a log");
    assert!(
        log.contains("the file of member 3 (") && log.contains("was deleted: "),
        "{log}"
    );
    assert!(
        log.contains("it has 8388608 bytes now, and its place needs"),
        "{log}"
    );
}

/// A spare smaller than every member would wait for ever.
#[test]
fn a_spare_smaller_than_every_member_is_refused() {
    let world = World::with_volume(CREATE, "16M");
    for (name, bytes) in [("none", 0), ("tiny", 4096), ("small", 32 << 20)] {
        std::fs::File::create(world.file(name))
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
        refused(
            &world,
            &format!("pool add tank --spare {name}"),
            "it could replace none; choose a larger device, or give --force",
        );
    }
    refused(
        &world,
        "pool add tank --spare tiny --force",
        "tiny has 4096 bytes, the member's place needs",
    );
    assert!(
        world
            .succeeds("pool add tank --spare small --force")
            .contains("is spare 4")
    );
}
