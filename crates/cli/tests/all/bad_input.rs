//! User errors, and unsuitable members: each gives one line with its id, a reason and a next step,
//! an exit code, and changes nothing. On a full pool the client gets an error, and trimming makes
//! the pool writable again.

use crate::support;

use std::os::unix::fs::FileExt;
use support::{CREATE, Random, World, both};
use windrow_format::superblock::{
    LABEL_BYTES, LABEL_OFFSET, Label, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const NO_SPACE: u32 = 28;

/// Exactly one line on standard error, which begins with the id and ends with a next step; exit
/// code 4 (8 for `check` and `pool scrub`). In JSON form the same as one object.
fn refused(world: &World, line: &str, id: &str, says: &str) {
    let code = if line.starts_with("check") || line.starts_with("pool scrub") {
        8
    } else {
        4
    };
    refused_with(world, line, code, id, says);
}

fn refused_with(world: &World, line: &str, code: i32, id: &str, says: &str) {
    let output = world.bounded(line);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code(),
        Some(code),
        "{line}: {}",
        both(&output)
    );
    assert!(
        error.starts_with(&format!("windrow: {id}: "))
            && error.lines().count() == 1
            && error.contains(says),
        "{line}: {error}"
    );
    assert!(output.stdout.is_empty(), "{line}: {}", both(&output));
    let output = world.bounded(&format!("{line} -o json"));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{line} -o json: {}",
        both(&output)
    );
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|why| panic!("{line} -o json: {why}: {}", both(&output)));
    assert_eq!(
        (told["schema"].as_str(), told["error"]["id"].as_str()),
        (Some("windrow/error/1"), Some(id)),
        "{line} -o json: {told}"
    );
    let remedy = told["error"]["remedy"].as_str().unwrap_or_default();
    assert!(
        !remedy.is_empty() && error.trim_end().ends_with(&format!("; {remedy}")),
        "{line}: no next step: {error}"
    );
}

#[test]
fn wrong_names_numbers_and_sizes() {
    let world = World::with_volume(CREATE, "16M");
    std::fs::write(world.file("text"), "no member").unwrap();
    let foreign = std::fs::File::create(world.file("foreign")).unwrap();
    foreign.set_len(64 << 20).unwrap();
    // The signature of an ext file system.
    foreign.write_all_at(&[0x53, 0xef], 1080).unwrap();
    for (line, id, says) in [
        (
            "pool status nothing",
            "WR-POOL-001",
            "this host knows 'tank'; name its members",
        ),
        (
            "volume list tank/data",
            "WR-POOL-001",
            "'tank/data' names a volume, and a pool is to be named; say 'tank'",
        ),
        ("serve nothing --nbd unix:s", "WR-POOL-001", "nothing"),
        ("check nothing", "WR-POOL-001", "nothing"),
        ("stats nothing", "WR-POOL-001", "nothing"),
        ("pool import nothing --dir .", "WR-POOL-001", "nothing"),
        ("volume create nothing/x 16M", "WR-POOL-001", "nothing"),
        (
            "pool create -r 6 --size 64M few a b c",
            "WR-POOL-002",
            "4 to 64",
        ),
        (
            "pool create -r 5 --size 64M few a b",
            "WR-POOL-002",
            "3 to 64",
        ),
        (
            "pool create -r 5 --size 64M twice a a b",
            "WR-POOL-002",
            "twice",
        ),
        (
            "pool create -r 5 --size 100 tiny a b c",
            "WR-POOL-002",
            "too small",
        ),
        (
            "pool create -r 5 --size 64M --chunk 5000 odd a b c",
            "WR-CLI-001",
            "4K",
        ),
        (
            "pool create -r 5 --size 64M --segment 0 odd a b c",
            "WR-CLI-001",
            "4K",
        ),
        (
            "pool create -r 5 --size 64M --chunk 4K odd a b c",
            "WR-POOL-002",
            "a chunk has",
        ),
        (
            "pool create -r 5 --size 64M bad/name a b c",
            "WR-CLI-001",
            "bad/name",
        ),
        ("pool create -r 5 unsized a b c", "WR-MEMBER-001", "--size"),
        (
            "pool create -r 5 --size 64M over foreign b c",
            "WR-MEMBER-002",
            "ext",
        ),
        (
            "pool create -r 5 --size 64M over m0 b c",
            "WR-MEMBER-002",
            "tank",
        ),
        ("volume create tank/x 4097", "WR-POOL-006", "4096"),
        ("volume create tank/x 0", "WR-POOL-006", "4096"),
        ("volume create tank/data 16M", "WR-VOLUME-002", "exists"),
        ("volume delete tank/other --yes", "WR-VOLUME-001", "other"),
        ("pool set tank spare=1%", "WR-POOL-006", "3"),
        ("pool destroy tank", "WR-CLI-001", "--yes"),
        ("serve", "WR-CLI-001", "nothing to serve"),
        ("serve --config none.toml", "WR-CLI-001", "none.toml"),
        (
            "serve tank --wait-for-members 0 --members m0,m1,m2,none",
            "WR-MEMBER-001",
            "none",
        ),
        (
            "serve tank --wait-for-members 0 --members m0,m1,m2,text",
            "WR-POOL-001",
            "text",
        ),
        (
            "serve tank --wait-for-members 0 --members m0,m1,m2,foreign",
            "WR-POOL-001",
            "foreign",
        ),
        (
            "serve tank --wait-for-members 0 --members m0",
            "WR-POOL-012",
            "members",
        ),
        ("serve tank --nbd tcp:0.0.0.0:1", "WR-SERVE-001", "remote"),
        ("serve tank --metrics 0.0.0.0:1", "WR-SERVE-001", "remote"),
        (
            "serve tank --nbd unix:none/deep/s",
            "WR-SERVE-001",
            "none/deep does not exist",
        ),
        (
            "serve tank --control none/deep/s",
            "WR-CLI-003",
            "none/deep does not exist",
        ),
        (
            "serve tank --nbd unix:s --nbd unix:text",
            "WR-SERVE-001",
            "cannot serve NBD: unix:text: it exists and is not a socket",
        ),
        (
            &*format!("serve tank --nbd unix:{}", "s".repeat(108)),
            "WR-SERVE-001",
            "that of a socket at most 107",
        ),
        (
            &*format!("serve tank --control {}", "s".repeat(108)),
            "WR-CLI-003",
            "the path has 108 bytes, and that of a socket at most 107",
        ),
        (
            &*format!("pool status tank --control {}", "s".repeat(108)),
            "WR-CLI-002",
            "the path has 108 bytes, and that of a socket at most 107",
        ),
        (
            "volume create tank/-dash 16M",
            "WR-POOL-006",
            "does not begin with '-'",
        ),
        ("inspect foreign", "WR-MEMBER-001", "foreign"),
        (
            "inspect m0 --segment 99999",
            "WR-CHECK-001",
            "cannot decode",
        ),
        ("export list tank --control none", "WR-CLI-002", "tank"),
        ("pool scrub tank", "WR-CLI-002", "served"),
        ("pool scrub nothing --wait", "WR-CLI-002", "nothing"),
    ] {
        refused(&world, line, id, says);
    }
    assert!(
        !world.file("a").exists() && !world.file("b").exists() && !world.file("none").exists(),
        "nothing is left behind"
    );
    world.check().unwrap();
}

/// A dry run must not succeed where creation refuses, nor report one file with two names as
/// existing.
#[test]
fn a_dry_run_refuses_what_creation_refuses() {
    let world = World::with_volume(CREATE, "16M");
    let foreign = std::fs::File::create(world.file("foreign")).unwrap();
    foreign.set_len(64 << 20).unwrap();
    foreign.write_all_at(&[0x53, 0xef], 1080).unwrap();
    std::fs::File::create(world.file("empty"))
        .and_then(|file| file.set_len(64 << 20))
        .unwrap();
    std::fs::File::create(world.file("small"))
        .and_then(|file| file.set_len(4096))
        .unwrap();
    std::fs::hard_link(world.file("empty"), world.file("hard")).unwrap();
    std::os::unix::fs::symlink("empty", world.file("soft")).unwrap();
    for (arguments, id, says) in [
        ("--size 64M over foreign b c", "WR-MEMBER-002", "ext"),
        (
            "--size 64M over m0 b c",
            "WR-MEMBER-002",
            "member 0 of the windrow pool 'tank'",
        ),
        (
            "--size 64M over small b c",
            "WR-POOL-002",
            "the smallest, small, has 4096 bytes",
        ),
        (
            "--size 64M tank a b c",
            "WR-POOL-002",
            "a pool of this name is known already",
        ),
        (
            "--size 64M over empty hard c",
            "WR-POOL-002",
            "empty and hard are two names of one file",
        ),
        (
            "--size 64M over empty soft c",
            "WR-POOL-002",
            "empty and soft are two names of one file",
        ),
        (
            "--size 64M over a ./a b",
            "WR-POOL-002",
            "./a is named twice",
        ),
        (
            "--size 64M over a b none/c",
            "WR-MEMBER-001",
            "the folder none does not exist",
        ),
        (
            "--size 64M over a b foreign/c",
            "WR-MEMBER-001",
            "foreign/c: not a directory",
        ),
        (
            "--size 64T --segment 64M over a b c",
            "WR-MEMBER-001",
            "give a smaller size",
        ),
        ("over a b c", "WR-MEMBER-001", "--size"),
    ] {
        for command in ["pool create -r 5", "pool create -r 5 --dry-run"] {
            refused(&world, &format!("{command} {arguments}"), id, says);
        }
        assert!(
            !["a", "b", "c"].iter().any(|name| world.file(name).exists()),
            "{arguments}: made for nothing"
        );
    }
}

/// Errors of the command line's parser: one line as well, with the command whose help has more.
#[test]
fn wrong_words_on_the_command_line() {
    let world = World::new();
    for (line, says) in [
        ("frob", "'frob'"),
        (
            "serve tank --frob",
            "'--frob' found; see `windrow serve --help`",
        ),
        (
            "serve tank --pendng 5M",
            "a similar argument exists: '--pending'",
        ),
        ("serve tank --nbd", "a value is required for '--nbd"),
        (
            "serve tank --nbd somewhere",
            "unix:PATH or tcp:ADDRESS:PORT",
        ),
        ("serve tank --nbd tcp:127.0.0.1:99999", "tcp:ADDRESS:PORT"),
        ("serve tank --metrics here", "'here' for '--metrics"),
        ("serve tank --metrics-host a:80", "without a port"),
        ("serve tank --metrics-connections 0", "between 1 and 4096"),
        ("serve tank --pending lots", "'lots' is not a size"),
        (
            "serve tank --workers -1",
            "'-1' found; see `windrow serve --help`",
        ),
        (
            "serve tank --workers 0",
            "'0' for '--workers <N>': it must be a whole number between 1 and 512",
        ),
        (
            "serve tank --workers 100000",
            "it must be a whole number between 1 and 512",
        ),
        (
            "serve tank --pending 1",
            "'1' for '--pending <SIZE>': it must be between 4 MiB and 64 GiB",
        ),
        (
            "serve tank --pending 65G",
            "it must be between 4 MiB and 64 GiB",
        ),
        (
            "serve tank --request-memory 127M",
            "it must be between 128 MiB and 1 TiB",
        ),
        (
            "serve tank --connections 0",
            "it must be a whole number between 1 and 16384",
        ),
        (
            "serve tank --connections-per-client 16385",
            "it must be a whole number between 1 and 16384",
        ),
        (
            "serve tank --connections-per-export 0",
            "it must be a whole number between 1 and 16384",
        ),
        (
            "serve tank --handshakes 1e3",
            "it must be a whole number between 1 and 16384",
        ),
        (
            "serve tank --handshake-timeout 0",
            "it must be a whole number between 1 and 32767",
        ),
        (
            "serve tank --stall-timeout 99999999999999999999",
            "it must be a whole number between 1 and 32767",
        ),
        (
            "serve tank --keepalive 40000",
            "it must be a whole number between 1 and 32767",
        ),
        (
            "serve tank --spare-patience 18446744073709551615",
            "it must be a whole number between 0 and 316224000",
        ),
        (
            "pool create -r 7 tank a b c",
            "[possible values: 0, 1, 5, 6]; see `windrow pool create --help`",
        ),
        ("pool create tank", "<PATH>..."),
        ("pool create -r 1 --copies 9 tank a b c", "between 2 and 4"),
        (
            "pool create --spare 200% tank a b c",
            "'200%' is not a share",
        ),
        ("pool create --size 99999999T tank a b c", "too large"),
        ("pool set tank spare", "PROPERTY=VALUE"),
        ("volume create tank 16M", "POOL/VOLUME"),
        ("volume create tank/x", "<SIZE>"),
        ("pool status tank -o yaml", "[possible values: text, json]"),
        ("completions shell", "'shell'"),
        ("stats", "<POOL>"),
    ] {
        refused_with(&world, line, 2, "WR-CLI-001", says);
    }
    let output = world.run("serve tank --frob -o json");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(
        (told["error"]["id"].as_str(), output.status.code()),
        (Some("WR-CLI-001"), Some(2)),
        "{told}"
    );
    assert_eq!(world.run("--help").status.code(), Some(0));
    assert_eq!(world.run("--version").status.code(), Some(0));
}

#[test]
fn wrong_configuration_files() {
    let world = World::with_volume(CREATE, "16M");
    for (text, says) in [
        (
            "pool = 5",
            "line 1: invalid type: integer `5`, expected a string; see `windrow serve --help`",
        ),
        ("pool = \"tank\"\nfoo = 1", "line 2: unknown field `foo`"),
        ("pool = \"tank", "line 1: "),
        ("nbd = [\"frob:1\"]", "'frob:1': an address is written as"),
        (
            "pool = \"tank\"\npending_bytes = \"lots\"",
            "'lots' is not a size",
        ),
        ("pool = \"tank\"\nmetrics = \"here\"", "line 2: "),
        ("pool = \"tank\"\npending_bytes = 5", "line 2: "),
        (
            "pool = \"tank\"\npending_bytes = \"1\"",
            "pending_bytes = \"1\": it must be between 4 MiB and 64 GiB",
        ),
        (
            "pool = \"tank\"\nworkers = 0",
            "workers = 0: it must be a whole number between 1 and 512",
        ),
        ("members = \"m0\"", "line 1: "),
        ("", "nothing to serve"),
        ("pool = \"tank\"\nnbd = [\"tcp:0.0.0.0:1\"]", "remote"),
        ("pool = \"pond\"", "pond"),
    ] {
        std::fs::write(world.file("c.toml"), text).unwrap();
        let id = match says {
            "remote" => "WR-SERVE-001",
            "pond" => "WR-POOL-001",
            _ => "WR-CLI-001",
        };
        refused(&world, "serve --config c.toml", id, says);
    }
    std::fs::write(world.file("c.toml"), Random(1).bytes(1000)).unwrap();
    refused(&world, "serve --config c.toml", "WR-CLI-001", "UTF-8");
    refused(&world, "serve --config .", "WR-CLI-001", "directory");
    world.check().unwrap();
}

#[test]
fn members_that_are_not_enough_twice_or_too_small() {
    let world = World::with_volume(CREATE, "16M");
    std::fs::copy(world.file("m0"), world.file("copy")).unwrap();
    refused(
        &world,
        "serve tank --wait-for-members 0 --members m0,copy,m1,m2,m3",
        "WR-POOL-008",
        "m0 and copy are both member 0",
    );
    refused(
        &world,
        "pool import tank --members m0,m1,m2,m3,m3",
        "WR-POOL-008",
        "name only one",
    );
    refused(
        &world,
        "pool import tank --members m0,m1 --force",
        "WR-POOL-012",
        "2 members are missing",
    );
    // Everything that is readable without the others is shown.
    let check = world.run("check tank --members m0,m1");
    assert!(
        check.status.code() == Some(4)
            && both(&check).contains("2 members are missing, the redundancy covers 1"),
        "{}",
        both(&check)
    );
    refused(
        &world,
        "pool import tank --dir elsewhere",
        "WR-MEMBER-001",
        "check the folder",
    );
    refused(
        &world,
        "pool create -r 5 --size 64M other /dev/null a b",
        "WR-MEMBER-001",
        "/dev/null",
    );
    refused(
        &world,
        "pool create -r 5 --copies 3 --size 64M other a b c",
        "WR-CLI-001",
        "--redundancy 1",
    );
    let whole = std::fs::read(world.file("m2")).unwrap();
    std::fs::File::options()
        .write(true)
        .open(world.file("m2"))
        .unwrap()
        .set_len(2 << 20)
        .unwrap();
    let text = world.succeeds("pool import tank --members m0,m1,m2,m3 --dry-run");
    assert!(
        text.contains("note: the device in the place of member 2")
            && text.contains("it has 2097152 bytes"),
        "{text}"
    );
    let server = world.serve("");
    assert!(
        server.ready["recovery"]["notes"][0]
            .as_str()
            .is_some_and(|note| note.contains("member 2")),
        "{}",
        server.ready
    );
    assert!(server.stop());
    std::fs::write(world.file("m2"), whole).unwrap();
    drop(world.serve(""));
}

#[test]
fn members_of_two_pools_and_in_any_order() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds(&CREATE.replace("tank m0 m1 m2 m3", "pond p0 p1 p2 p3"));
    for line in [
        "serve tank --wait-for-members 0 --members m0,m1,m2,p3",
        "serve --members m0,p0",
        "pool status tank --members m0,m1,m2,m3,p0",
    ] {
        refused(&world, line, "WR-POOL-001", "p");
    }
    refused(
        &world,
        "check tank --members m0,m1,m2,p3",
        "WR-POOL-001",
        "another pool",
    );
    refused(&world, "inspect m0 p0", "WR-CLI-001", "different pools");
    // The labels have the order.
    let server = world.serve("--members m3,m1,m0,m2");
    assert!(server.stop());
    assert_eq!(
        world.run("pool status tank --exit-code").status.code(),
        Some(0),
        "no member was taken for lost"
    );
    world.check().unwrap();
}

/// Changes the bytes at `offset` of all members.
fn patch(world: &World, offset: u64, length: usize, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    for member in ["m0", "m1", "m2", "m3"] {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(world.file(member))
            .unwrap();
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).unwrap();
        if let Some(changed) = change(&bytes) {
            file.write_all_at(&changed, offset).unwrap();
        }
    }
}

fn patch_superblocks(world: &World, change: impl Fn(Superblock) -> Vec<u8>) {
    for slot in 0..SLOT_COUNT {
        patch(
            world,
            SLOT_OFFSET + slot * SLOT_STRIDE,
            SLOT_BYTES,
            |bytes| Superblock::decode(bytes).ok().map(&change),
        );
    }
}

#[test]
fn pools_of_newer_versions_are_left_alone() {
    let newer_label = World::with_volume(CREATE, "16M");
    patch(&newer_label, LABEL_OFFSET, LABEL_BYTES, |bytes| {
        let label = Label::decode(bytes).unwrap();
        Some(
            Label {
                version: label.version + 1,
                ..label
            }
            .encode(),
        )
    });
    for line in [
        "serve tank --wait-for-members 0 --members m0,m1,m2,m3",
        "check tank --members m0",
        "inspect m0",
    ] {
        refused(&newer_label, line, "WR-POOL-010", "newer");
    }
    // By name and by folder the pool must not be reported as "no member of it was found".
    for line in [
        "serve tank",
        "serve --dir .",
        "check tank",
        "check tank --dir .",
        "pool status tank",
        "pool import tank --dir .",
        "pool destroy tank --yes",
    ] {
        refused(
            &newer_label,
            line,
            "WR-POOL-010",
            "(and 3 more) may be one: format version 2 is newer",
        );
    }
    let listed = newer_label.run("pool list --dir .");
    assert!(
        listed.status.success() && both(&listed).contains("m0, a member of some pool, is left out"),
        "{}",
        both(&listed)
    );

    let newer_superblock = World::with_volume(CREATE, "16M");
    patch_superblocks(&newer_superblock, |superblock| {
        let mut bytes = superblock.encode();
        bytes[16..20].copy_from_slice(&2u32.to_le_bytes());
        let owner = [&superblock.pool.0[..], &[superblock.member.0]].concat();
        let checksum = xxh3_64_with_seed(&bytes[16..], xxh3_64(&owner));
        bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    });
    // `windrow check` must not be the next step: it refuses the pool as well.
    for line in [
        "serve tank",
        "check tank",
        "check tank --rebuild-map",
        "pool destroy tank --yes",
    ] {
        refused(
            &newer_superblock,
            line,
            "WR-POOL-010",
            "; use the version of windrow that wrote it, or a newer one",
        );
    }

    let unknown_feature = World::with_volume(CREATE, "16M");
    patch_superblocks(&unknown_feature, |mut superblock| {
        superblock.features.incompatible |= 1 << 40;
        superblock.encode()
    });
    refused(&unknown_feature, "serve tank", "WR-POOL-010", "features");
    refused(
        &unknown_feature,
        "check tank",
        "WR-POOL-010",
        "; use the version of windrow that wrote it, or a newer one",
    );
}

/// `check -o json` of a pool that it cannot check has an id and a next step.
#[test]
fn a_pool_that_was_destroyed_is_not_checked() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("pool destroy tank --yes");
    for line in ["check tank --dir .", "serve tank --dir ."] {
        refused(
            &world,
            line,
            "WR-POOL-008",
            "destroyed; if all of it was meant",
        );
    }
    let told: serde_json::Value =
        serde_json::from_slice(&world.run("check tank --dir . -o json").stdout)
            .expect("one object");
    assert_eq!(
        told["report"]["pool_name"], "tank",
        "what was seen before is there, too: {told}"
    );
    world.succeeds("pool create -r 5 --force tank m0 m1 m2 m3");
}

#[test]
fn a_full_pool_reports_it_and_recovers_by_trims() {
    const PIECE: usize = 1 << 20;
    let world = World::with_volume(
        "pool create --redundancy 5 --size 24M --sparse --segment 128K --chunk 32K tank m0 m1 m2 m3",
        "256M",
    );
    let server = world.serve("");
    let mut client = server.client();
    let piece = |number: u64| Random(number).bytes(PIECE);
    let write = |client: &mut support::nbd::Client, number: u64| {
        client.write(number, number * PIECE as u64, &piece(number), false);
        client.finish().unwrap().0
    };
    let full_at = (0..256)
        .find(|number| write(&mut client, *number) == NO_SPACE)
        .expect("the pool is smaller than the volume");
    assert!(full_at > 20, "{full_at}");
    client.flush(0);
    assert_eq!(client.finish().unwrap().0, 0, "a full pool can be flushed");
    for number in 0..full_at {
        client.read(0, number * PIECE as u64, PIECE);
        assert!(
            client.finish().unwrap().1 == piece(number),
            "piece {number} of a full pool"
        );
    }
    // Also after a crash while it is full.
    server.kill();
    let server = world.serve("");
    let mut client = server.client();
    // A refused write may have stored some of its blocks: the content of all of them is unknown.
    client.trim(0, 8 << 20, (full_at as usize - 7) * PIECE);
    assert_eq!(client.finish().unwrap().0, 0, "trim works in a full pool");
    client.flush(0);
    assert_eq!(client.finish().unwrap().0, 0);
    for number in 100..100 + full_at - 12 {
        assert_eq!(write(&mut client, number), 0, "room again, piece {number}");
    }
    for number in (0..8).chain(100..100 + full_at - 12) {
        client.read(0, number * PIECE as u64, PIECE);
        assert!(
            client.finish().unwrap().1 == piece(number),
            "piece {number}"
        );
    }
    assert!(server.stop());
    world.check().unwrap();
}
