//! The environment of a process: mask, limits, streams, folders. A bad one fails the command that
//! meets it, with one clear line, and never the daemon or a member.

use crate::support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use support::{CREATE, Server, World, both, nbd};

/// Everything below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                [vec![path.clone()], below(&path)].concat()
            } else {
                vec![path]
            }
        })
        .collect()
}

fn serve_under(world: &World, setup: &str) -> Result<Server, String> {
    world.ready(world.start_as(|line| world.command_under(setup, line), ""))
}

/// One line with this id and this text, and the exit code of a failure.
fn refused(output: &Output, id: &str, text: &str) {
    let said = both(output);
    assert!(
        output.status.code() == Some(4)
            && said.lines().count() == 1
            && said.contains(id)
            && said.contains(text),
        "{}: {said}",
        output.status
    );
}

/// All members are in use, and nothing is lost.
fn is_whole(world: &World) {
    let status: serde_json::Value =
        serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON");
    assert_eq!(status["state"], "online", "{status}");
    world.check().expect("a sound pool");
}

/// Under umask 0 all users could write to the registry, which the daemon trusts.
#[test]
fn others_cannot_write_to_what_windrow_keeps() {
    let world = World::new();
    for line in [
        CREATE,
        "volume create tank/data 16M",
        "windrow-lab trace generate uniform t.wtrc --requests 10 --size 1M",
    ] {
        let output = world
            .command_under("umask 0", line)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", both(&output));
    }
    let server = serve_under(&world, "umask 0").expect("it serves");
    let writable = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o022 != 0)
    };
    // (The daemon's log belongs to the test.)
    let found: Vec<PathBuf> = below(world.path())
        .into_iter()
        .filter(|path| writable(path) && !path.ends_with("serve.log"))
        .collect();
    assert!(found.is_empty(), "{found:?}");
    assert!(server.stop());
    for (path, mode) in [("state/pools/tank.json", 0o646), ("state/pools", 0o777)] {
        let before = std::fs::metadata(world.file(path))
            .expect("it is there")
            .permissions();
        std::fs::set_permissions(world.file(path), std::fs::Permissions::from_mode(mode))
            .expect("a mode");
        refused(
            &world.run("pool status tank"),
            "WR-CLI-003",
            "others may write to it",
        );
        assert!(world.try_serve("").is_err());
        std::fs::set_permissions(world.file(path), before).expect("a mode");
    }
    is_whole(&world);
}

/// A write beyond the limit on the size of files must not end the daemon by SIGXFSZ.
#[test]
fn a_limit_on_the_size_of_files_ends_no_process() {
    let world = World::with_volume(CREATE, "16M");
    let said = serve_under(&world, "ulimit -f 64")
        .err()
        .expect("it is refused");
    assert!(
        said.contains("WR-MEMBER-001") && said.contains("ulimit -f") && said.lines().count() == 1,
        "{said}"
    );
    is_whole(&world);
    // The soft limit is raised if that is allowed.
    let server = serve_under(&world, "ulimit -S -f 64").expect("it serves");
    let mut client = server.client();
    client.write(1, 0, &vec![7; 8 << 20], true);
    assert_eq!(client.finish().expect("it is written").0, 0);
    assert!(server.stop());
    let output = world
        .command_under(
            "ulimit -f 1",
            "windrow-lab trace generate uniform long.wtrc --requests 100000 --size 1M",
        )
        .output()
        .expect("it runs");
    refused(&output, "WR-", "long.wtrc");
    is_whole(&world);
}

/// With few descriptors a member may fail to open: that is no failure of the member.
#[test]
fn few_descriptors_cost_no_member() {
    let world = World::with_volume(CREATE, "16M");
    for count in [5, 6, 8, 10, 12] {
        let said = serve_under(&world, &format!("ulimit -n {count}"))
            .err()
            .unwrap_or_default();
        let last = said.lines().last().unwrap_or_default();
        assert!(
            last.is_empty() || (last.contains("WR-") && last.contains("ulimit -n")),
            "{count}: {said}"
        );
    }
    is_whole(&world);
}

/// The first files opened get the numbers of closed streams: a message would be written into a
/// member.
#[test]
fn closed_streams_are_not_reused() {
    let world = World::with_volume(CREATE, "16M");
    let line = "serve tank --no-memory-lock --nbd unix:nbd.sock";
    let mut child = world
        .command_under("exec <&- >&- 2>&-", line)
        .stdin(Stdio::null())
        .spawn()
        .expect("it starts");
    // Only its socket shows that it is ready.
    let mut client = loop {
        match nbd::Client::connect(&world.file("nbd.sock"), "data") {
            Ok(client) => break client,
            Err(_) => assert!(child.try_wait().expect("a state").is_none(), "it has ended"),
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    for stream in 0..3 {
        let to =
            std::fs::read_link(format!("/proc/{}/fd/{stream}", child.id())).expect("it is open");
        assert_eq!(to, Path::new("/dev/null"), "{stream}");
    }
    client.write(1, 0, &[7; 4096], true);
    assert_eq!(client.finish().expect("it is written").0, 0);
    support::tool(world.path(), "kill", &[&child.id().to_string()]);
    assert!(child.wait().expect("it ends").success());
    let output = world
        .command_under("exec <&- >&- 2>&-", "pool status tank")
        .output()
        .expect("it runs");
    assert!(output.status.success() && both(&output).is_empty());
    is_whole(&world);
}

/// Folders that cannot be written to, that are full, or that are gone.
#[test]
fn folders_that_cannot_be_used_are_named() {
    let world = World::with_volume(CREATE, "16M");
    refused(
        &world
            .command("serve tank --nbd unix:nbd.sock")
            .env("WINDROW_RUN", "/proc/none")
            .output()
            .expect("it runs"),
        "WR-CLI-003",
        "/proc/none",
    );
    // The members' paths cannot be stored: the pool is served all the same.
    let server = world.ready(world.start_as(
        |line| {
            let mut command = world.command(&format!("{line} --dir ."));
            command.env("WINDROW_STATE", "/proc/none");
            command
        },
        "",
    ));
    let server = server.expect("it serves");
    server.client().write(1, 0, &[7; 4096], true);
    assert!(server.stop());
    let log = std::fs::read_to_string(world.file("serve.log")).expect("a log");
    assert!(
        log.contains("/proc/none") && log.contains("WINDROW_STATE"),
        "{log}"
    );
    // The folder in which the command was started is gone.
    let gone = |line: &str| {
        std::fs::create_dir_all(world.file("gone")).expect("a folder");
        world
            .command_under("cd gone && rmdir ../gone", line)
            .output()
            .expect("it runs")
    };
    assert!(gone("pool status tank").status.success());
    refused(
        &gone("serve tank --nbd unix:nbd.sock --wait-for-members 0"),
        "WR-SERVE-001",
        "nbd.sock",
    );
    refused(&gone("inspect m0"), "WR-MEMBER-001", "m0");
    refused(
        &gone("pool create --redundancy 5 --size 64M other a b c"),
        "WR-",
        "a",
    );
    is_whole(&world);
}
