//! The journal from the administrator's side: answers to flushes of a volume, and the loss of a
//! journal device with durable records.

use crate::support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use support::nbd::Client;
use support::{CREATE, Random, Server, World, both};

const WITH_DEVICE: &str = "pool create --redundancy 5 --size 64M --sparse --segment 256K --chunk 64K --journal-device j0 --journal-power-safe --seal-age 60000 tank m0 m1 m2 m3";

fn block(number: u64, round: u64) -> Vec<u8> {
    Random(number * 77 + round).bytes(4096)
}

/// Small writes, each durable before the next.
fn sync(client: &mut Client, round: u64) {
    for number in 0..20 {
        client.write(number, number * 4096, &block(number, round), false);
        client.flush(1000 + number);
        client.push().expect("sent");
        client.answer().expect("answered");
        client.answer().expect("flushed");
    }
}

#[test]
fn flushes_of_a_volume_follow_its_sync_property() {
    let world = World::with_volume(CREATE, "16M");
    let mode = |world: &World| {
        let shown: Value =
            serde_json::from_str(&world.succeeds("volume list tank -o json")).expect("JSON");
        shown["volumes"][0]["sync"]
            .as_str()
            .unwrap_or_else(|| panic!("{shown}"))
            .to_owned()
    };
    assert_eq!(mode(&world), "standard");
    for wanted in ["always", "disabled", "standard"] {
        assert!(
            world
                .succeeds(&format!("volume sync tank/data {wanted}"))
                .contains(wanted)
        );
        assert_eq!(mode(&world), wanted, "at rest");
    }
    let server = world.serve("");
    world.succeeds("volume sync tank/data always");
    assert_eq!(mode(&world), "always", "in service");
    let mut client = server.client();
    client.write(0, 0, &block(0, 1), false);
    client.push().expect("sent");
    client.answer().expect("answered");
    drop(client);
    // No flush was requested, and every acknowledged write is there.
    server.kill();
    let server = world.serve("");
    assert!(server.client().read_all().expect("everything")[..4096] == block(0, 1));
    assert_eq!(mode(&world), "always", "after a crash");
    assert!(server.stop());
    let wrong = world.run("volume sync tank/data sometimes");
    assert!(
        wrong.status.code() == Some(2) && both(&wrong).contains("always"),
        "{}",
        both(&wrong)
    );
    let world = World::with_volume(&CREATE.replace("tank", "--journal 0 tank"), "16M");
    let without = world.run("volume sync tank/data always");
    assert!(
        !without.status.success() && both(&without).contains("journal"),
        "{}",
        both(&without)
    );
}

/// The power fails, and with it the only device with durable records. They are discarded only on
/// request, and a dry run shows the effect before.
#[test]
fn a_lost_journal_device_is_discarded_only_on_request() {
    let world = World::with_volume(WITH_DEVICE, "16M");
    let server = world.serve("");
    sync(&mut server.client(), 1);
    server.kill();
    std::fs::rename(world.file("j0"), world.file("elsewhere")).expect("unplugged");
    for line in [
        "serve tank --no-memory-lock --nbd unix:nbd.sock",
        "pool import tank",
        "pool import tank --dry-run",
    ] {
        let refused = world.run(line);
        assert!(
            refused.status.code() == Some(4) && both(&refused).contains("WR-POOL-014"),
            "{line}: {}",
            both(&refused)
        );
    }
    let look = world.succeeds("pool import tank --dry-run --discard-journal");
    assert!(
        look.contains("discarded") && look.contains("nothing has been written"),
        "{look}"
    );
    // The dry run has written nothing: the device brings all of it back.
    std::fs::rename(world.file("elsewhere"), world.file("j0")).expect("plugged in");
    let server = world.serve("");
    let all = server.client().read_all().expect("everything");
    (0..20).for_each(|number| {
        assert!(
            all[number as usize * 4096..][..4096] == block(number, 1),
            "block {number}"
        )
    });
    sync(&mut server.client(), 2);
    server.kill();
    std::fs::rename(world.file("j0"), world.file("elsewhere")).expect("unplugged");
    let server = world.serve("--discard-journal");
    let all = server.client().read_all().expect("everything");
    for number in 0..20 {
        // The state of one moment, before the discarded writes.
        assert!(
            [1, 2]
                .iter()
                .any(|round| all[number as usize * 4096..][..4096] == block(number, *round)),
            "block {number}"
        );
    }
    sync(&mut server.client(), 3);
    assert!(server.stop());
    assert!(
        world
            .check()
            .unwrap_err()
            .contains("Repairable member 4: recorded as absent")
    );
    world.succeeds("pool remove tank 4");
    world.check().expect("everything is whole");
}

/// True if the server has the file open for synchronous writes.
fn is_written_through(world: &World, server: &Server, name: &str) -> bool {
    const O_DSYNC: u32 = 0o10000;
    let (path, process) = (
        world.file(name).canonicalize().expect("the file"),
        Path::new("/proc").join(server.id().to_string()),
    );
    let open = std::fs::read_dir(process.join("fd"))
        .expect("its files")
        .map(|entry| entry.expect("a file").path());
    let open = open
        .filter(|entry| std::fs::read_link(entry).is_ok_and(|target| target == path))
        .collect::<Vec<_>>();
    let flags = |entry: &PathBuf| {
        let info = std::fs::read_to_string(
            process
                .join("fdinfo")
                .join(entry.file_name().expect("a number")),
        )
        .expect("its flags");
        let octal = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .expect("flags")
            .trim()
            .to_owned();
        u32::from_str_radix(&octal, 8).expect("octal")
    };
    assert!(!open.is_empty(), "{name} is open");
    open.iter().all(|entry| flags(entry) & O_DSYNC != 0)
}

/// The medium is power-safe; its file system and the page cache are not.
#[test]
fn a_power_safe_journal_in_a_file_is_written_through_to_its_medium() {
    let world = World::with_volume(WITH_DEVICE, "16M");
    let server = world.serve("");
    assert!(
        is_written_through(&world, &server, "j0") && !is_written_through(&world, &server, "m0"),
        "opened with the pool"
    );
    world.succeeds("pool add tank --journal j1 --create-files --sparse --power-safe");
    assert!(is_written_through(&world, &server, "j1"), "added");
    world.succeeds("pool offline tank 4");
    world.succeeds("pool online tank 4");
    assert!(is_written_through(&world, &server, "j0"), "brought back");
    world.succeeds("pool replace tank 5 j2 --create-files --sparse --power-safe");
    assert!(is_written_through(&world, &server, "j2"), "replaced");
    sync(&mut server.client(), 1);
    assert!(server.stop());
    let server = world.serve("");
    assert!(
        ["j0", "j2"]
            .into_iter()
            .all(|name| is_written_through(&world, &server, name))
            && !is_written_through(&world, &server, "m3")
    );
    assert!(server.stop());
    let world = World::with_volume(&WITH_DEVICE.replace(" --journal-power-safe", ""), "16M");
    let server = world.serve("");
    assert!(!is_written_through(&world, &server, "j0"), "it is flushed");
    assert!(server.stop());
}
