//! The command from the user's side: exit codes, JSON, and a pool from creation to destruction.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(crate::support::program("windrow"));
        command
            .args(line.split_whitespace())
            .current_dir(self.path());
        command
            .env("WINDROW_STATE", self.path().join("state"))
            .env("WINDROW_RUN", self.path().join("run"));
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn json(&self, line: &str, schema: &str) -> Value {
        let output = self.run(&format!("{line} -o json"));
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["schema"], schema, "{line}");
        value
    }

    fn fails(&self, line: &str, id: &str) {
        let output = self.run(line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{line}: {error}");
        assert!(
            error.starts_with(&format!("windrow: {id}: ")) && error.lines().count() == 1,
            "{line}: {error}"
        );
    }

    fn serve(&self) -> Server {
        let child = self
            .command("serve tank --no-memory-lock --nbd unix:nbd.sock")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let server = Server(child);
        let end = Instant::now() + Duration::from_secs(20);
        while self
            .run("export list tank --control run/tank.control")
            .status
            .code()
            != Some(0)
        {
            assert!(Instant::now() < end, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

const CREATE: &str =
    "pool create --redundancy 5 --size 64M --sparse --segment 256K --chunk 64K tank m0 m1 m2 m3";

#[test]
fn from_creation_to_destruction() {
    let world = World::new();
    let plan = world.json(&format!("{CREATE} --dry-run"), "windrow/pool-create/1");
    assert!(plan["plan"]["usable_bytes"].as_u64().unwrap() > 64 << 20);
    assert!(
        !world.path().join("m0").exists(),
        "a dry run writes nothing"
    );
    world.json(CREATE, "windrow/pool-create/1");
    assert_eq!(
        world.run("check tank --payload --parity").status.code(),
        Some(0)
    );
    // Data on the members is reported before the known name.
    world.fails(CREATE, "WR-MEMBER-002");
    world.fails(&CREATE.replace("tank", "other"), "WR-MEMBER-002");
    assert_eq!(
        world.json("volume create tank/data 16M", "windrow/volume-create/1")["size_bytes"],
        16 << 20
    );
    world.fails("volume create tank/data 16M", "WR-VOLUME-002");
    world.fails("volume resize tank/data 8M", "WR-POOL-006");
    world.json(
        "volume resize tank/data 8M --shrink",
        "windrow/volume-resize/1",
    );
    world.fails("volume delete tank/other --yes", "WR-VOLUME-001");
    let listed = world.json("pool list", "windrow/pool-list/1");
    assert_eq!(
        (
            listed["pools"][0]["name"].as_str(),
            listed["pools"][0]["members_found"].as_u64()
        ),
        (Some("tank"), Some(4))
    );
    assert_eq!(
        world.json("pool set tank spare=20%", "windrow/pool-set/1")["properties"]["spare_per_mille"],
        200
    );
    assert_eq!(
        world.run("pool status tank --exit-code").status.code(),
        Some(0)
    );
    assert_eq!(
        world.run("check tank --payload --parity").status.code(),
        Some(0)
    );
    world.json("inspect m0", "windrow/inspect/1");
    world.json("pool export tank", "windrow/pool-export/1");
    world.fails("pool status tank", "WR-POOL-001");
    world.json("pool import --dir .", "windrow/pool-import/1");
    world.fails("pool destroy tank", "WR-CLI-001");
    world.json("pool destroy tank --yes", "windrow/pool-destroy/1");
    world.fails("pool import tank --dir .", "WR-POOL-008");
}

/// Space saved by reduction is spare space by default, or capacity on request, at creation or
/// later. The usable space and `stats` follow.
#[test]
fn reduction_is_used_as_spare_space_or_as_capacity() {
    let world = World::new();
    world.json(CREATE, "windrow/pool-create/1");
    let status =
        |world: &World| world.json("stats tank", "windrow/pool-status/1")["capacity"].clone();
    let spare = status(&world);
    assert_eq!(
        (
            spare["reduction"]["way"].as_str(),
            spare["used_bytes"].as_u64()
        ),
        (Some("spare"), Some(0))
    );
    assert_eq!(
        world.json("pool set tank reduction=capacity", "windrow/pool-set/1")["properties"]["reduction"],
        "capacity"
    );
    let capacity = status(&world);
    assert_eq!(capacity["reduction"]["way"], "capacity");
    let usable = |capacity: &Value| capacity["usable_bytes"].as_u64().expect("bytes");
    assert!(
        usable(&capacity) < usable(&spare) && usable(&capacity) > usable(&spare) * 3 / 4,
        "a larger map, and the ends of columns: {capacity} of {spare}"
    );
    let shown = String::from_utf8(world.run("stats tank").stdout).expect("text");
    assert!(
        shown.contains("reduction capacity: 0 B of blocks"),
        "{shown}"
    );
    assert!(
        String::from_utf8(world.run("pool get tank").stdout)
            .expect("text")
            .contains("capacity")
    );
    assert_eq!(world.run("check tank").status.code(), Some(0));
    world.fails("pool set tank reduction=half", "WR-POOL-006");
    world.json(
        "pool set tank reduction=spare spare=20%",
        "windrow/pool-set/1",
    );
    assert!(
        usable(&status(&world)) < usable(&spare),
        "the spare factor went with it"
    );
    world.json("pool destroy tank --yes", "windrow/pool-destroy/1");
    world.json(
        &format!("{CREATE} --force --reduction capacity"),
        "windrow/pool-create/1",
    );
    assert_eq!(usable(&status(&world)), usable(&capacity));
}

#[test]
fn a_daemon_serves_and_ends() {
    let world = World::new();
    world.json(CREATE, "windrow/pool-create/1");
    let mut server = world.serve();
    world.json("volume create tank/data 16M", "windrow/volume-create/1");
    world.json(
        "export add tank/data --name look --read-only",
        "windrow/export-add/1",
    );
    let exports = world.json("export list tank", "windrow/export-list/1");
    assert_eq!(exports["exports"].as_array().unwrap().len(), 2);
    assert_eq!(
        world.json("stats tank", "windrow/pool-status/1")["served"],
        true
    );
    assert_eq!(
        world.run("check tank").status.code(),
        Some(8),
        "a pool in service is not checked"
    );
    world.fails("pool destroy tank --yes", "WR-POOL-005");
    world.json("pool export tank", "windrow/pool-export/1");
    assert!(
        server.0.wait().unwrap().success(),
        "the daemon ends when its pool is exported"
    );
    assert!(
        !world.path().join("nbd.sock").exists() && !world.path().join("run/tank.control").exists(),
        "no socket is left"
    );
}

/// A list of exports must not open the pool for writing: no checkpoint, and no start in the pool's
/// history.
#[test]
fn a_look_at_a_pool_at_rest_writes_nothing() {
    let world = World::new();
    world.json(CREATE, "windrow/pool-create/1");
    let changed = || {
        ["m0", "m1", "m2", "m3"].map(|member| {
            std::fs::metadata(world.path().join(member))
                .unwrap()
                .modified()
                .unwrap()
        })
    };
    let before = changed();
    for command in [
        "export list tank",
        "pool status tank",
        "pool list",
        "volume list tank",
        "pool get tank",
    ] {
        assert!(world.run(command).status.success(), "{command}");
        assert_eq!(changed(), before, "{command}");
    }
}

/// Spares and removed members do not count as members; JSON has the missing members of a served
/// pool.
#[test]
fn the_list_counts_members_that_hold_data() {
    let world = World::new();
    world.json(CREATE, "windrow/pool-create/1");
    world.json(
        "pool add tank --spare spare --create-files --sparse",
        "windrow/pool-add/1",
    );
    let listed = |world: &World| {
        let pool = world.json("pool list", "windrow/pool-list/1")["pools"][0].clone();
        let number = |field: &str| pool[field].as_u64().unwrap();
        (
            number("members_found"),
            number("members"),
            pool["missing"].as_array().unwrap().len(),
        )
    };
    assert_eq!(listed(&world), (4, 4, 0));
    let server = world.serve();
    assert_eq!(listed(&world), (4, 4, 0));
    world.json("pool remove tank 4", "windrow/pool-remove/1");
    world.json("pool offline tank 2", "windrow/pool-offline/1");
    assert_eq!(listed(&world), (3, 4, 1), "served");
    drop(server);
    assert_eq!(listed(&world), (3, 4, 1), "at rest");
    assert!(
        String::from_utf8(world.run("pool list --quick").stdout)
            .unwrap()
            .contains("degraded")
    );
    let mut server = world.serve();
    world.json("pool online tank 2", "windrow/pool-online/1");
    world.json("pool export tank", "windrow/pool-export/1");
    server.0.wait().unwrap();
    world.json("pool import --dir .", "windrow/pool-import/1");
    assert_eq!(
        listed(&world),
        (4, 4, 0),
        "with a slot that a spare has left"
    );
}

/// Creation reports a map limit below the need of the full pool, which ends writes early. A journal
/// that is too large must not be reported as too small.
#[test]
fn creation_shows_the_limits_that_a_pool_will_meet() {
    let world = World::new();
    let said = |line: &str| String::from_utf8(world.run(line).stdout).unwrap();
    let large = said("pool create --dry-run --redundancy 5 --size 2T --sparse tank m0 m1 m2 m3");
    assert!(
        large.contains("map memory: limit ") && large.contains("raise it with --map-memory"),
        "{large}"
    );
    assert!(!said(&format!("{CREATE} --dry-run")).contains("--map-memory"));
    let output = world.run("pool create --dry-run --size 8T --journal 4T tank m0 m1 m2 m3");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("a journal takes at most") && error.contains("4096 GiB given"),
        "{error}"
    );
}

/// Creation shows the use of the members' bytes, and the unused rest of larger members.
#[test]
fn creation_explains_usable_space_and_what_larger_members_leave_unused() {
    let world = World::new();
    std::fs::File::create(world.path().join("large"))
        .and_then(|file| file.set_len(128 << 20))
        .unwrap();
    let line = "pool create --redundancy 5 --size 64M --sparse --segment 256K --chunk 64K tank m0 m1 m2 large";
    for line in [line.replace("create", "create --dry-run"), line.to_owned()] {
        let text = String::from_utf8(world.run(&line).stdout).unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("64 MiB of large are not used: 2 more members as large would use it"),
            "{text}"
        );
        for row in [
            "data members 320 MiB",
            "labels and superblocks -4 MiB",
            "parity or copies",
            "checkpoints of the map",
            "spare factor",
            "usable",
        ] {
            assert!(words.contains(row), "{row}: {text}");
        }
        if !line.contains("--dry-run") {
            assert!(words.contains("m0 64 MiB a new file, created"), "{text}");
        }
        (0..3).for_each(|number| {
            drop(std::fs::remove_file(
                world.path().join(format!("m{number}")),
            ))
        });
    }
    let shown = world.json(
        &format!("{line} --force --replace-known --dry-run"),
        "windrow/pool-create/1",
    );
    assert_eq!(
        (
            shown["unused"][0]["unused_bytes"].as_u64(),
            shown["created_files"].as_array().map(Vec::len)
        ),
        (Some(64 << 20), Some(0)),
        "{shown}"
    );
    let bytes = |name: &str| shown["capacity"][name].as_u64().unwrap();
    let taken: u64 = shown["capacity"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| !["raw_bytes", "usable_bytes"].contains(&name.as_str()))
        .map(|name| bytes(name))
        .sum();
    assert_eq!(bytes("raw_bytes") - taken, bytes("usable_bytes"));
}

/// If the registry cannot be written, the pool is created and the failure names it: a retry would
/// be refused for the data on its members.
#[test]
fn a_pool_is_created_although_the_registry_cannot_be_written() {
    let world = World::new();
    std::fs::create_dir(world.path().join("state")).unwrap();
    std::os::unix::fs::symlink("nowhere", world.path().join("state/pools")).unwrap();
    let error = String::from_utf8(world.run(CREATE).stderr).unwrap();
    assert!(
        error.contains("WR-CLI-003: pool 'tank' is created, but")
            && error.contains("pool import tank"),
        "{error}"
    );
}

#[test]
fn usage_errors_and_completions() {
    let world = World::new();
    assert_eq!(world.run("pool create").status.code(), Some(2));
    assert_eq!(world.run("volume create tank 1G").status.code(), Some(2));
    world.fails("pool status nothing", "WR-POOL-001");
    world.fails("serve", "WR-CLI-001");
    let output = world.run("pool status nothing -o json");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (value["schema"].as_str(), value["error"]["id"].as_str()),
        (Some("windrow/error/1"), Some("WR-POOL-001"))
    );
    let script = world.run("completions bash");
    assert!(
        script.status.success() && String::from_utf8_lossy(&script.stdout).contains("windrow__")
    );
}
