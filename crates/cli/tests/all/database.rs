//! An SQLite database on ext4 on a volume, through the kernel's file system, a loop device and
//! nbdfuse. The daemon is killed, on members with a volatile cache, while transactions are
//! committed. After each kill the file system recovers by its own journal, the database by its own.
//! Every transaction that was reported as committed must be there, each row with the right content.
//!
//! The test is skipped with a message if a program is missing or mounting is not allowed.

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::mounted::{FileSystem, Mounted};
use support::{CREATE, Random, Server, World, both, find, installed, tool};

const KILLS: u64 = 3;

fn database(files: &FileSystem) -> PathBuf {
    files.path().join("base.sqlite")
}

/// Changing between the two modes converts the database as well.
fn script(task: &str, base: &Path, round: u64) -> Command {
    let mut command = Command::new("python3");
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/database.py"))
        .arg(task)
        .arg(base);
    command.env(
        "JOURNAL",
        if round.is_multiple_of(2) {
            "DELETE"
        } else {
            "WAL"
        },
    );
    command
}

/// Commits transactions and kills the daemon after `count` of them; returns the number of the last
/// one that was reported as committed.
fn commit_and_kill(files: &FileSystem, server: Server, round: u64, count: u64) -> u64 {
    let mut child = script("work", &database(files), round)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Some(server);
    let (mut last, mut seen) = (0, 0);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        (last, seen) = (line.unwrap().parse().unwrap(), seen + 1);
        if seen == count {
            server.take().unwrap().kill();
        }
    }
    assert!(
        seen >= count,
        "the load ended by itself after {seen} transactions"
    );
    assert!(
        !child.wait().unwrap().success(),
        "nothing goes on without the daemon"
    );
    last
}

/// The number of committed transactions; all their rows are right.
fn transactions(files: &FileSystem, round: u64) -> u64 {
    let output = script("check", &database(files), round).output().unwrap();
    assert!(output.status.success(), "{}", both(&output));
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap()
}

/// The file system's own checker repairs the state after the kill by the journal alone.
fn check_file_system(world: &World, server: &Server) {
    tool(world.path(), "nbdcopy", &[&server.uri("data"), "copy"]);
    let repaired = Command::new(find("e2fsck").unwrap())
        .args(["-p", "copy"])
        .current_dir(world.path())
        .output()
        .unwrap();
    assert!(
        matches!(repaired.status.code(), Some(0 | 1)),
        "{}",
        both(&repaired)
    );
    tool(world.path(), "e2fsck", &["-fn", "copy"]);
}

/// Reason that the test cannot run here.
fn obstacle() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse");
    }
    let has_module = Command::new("python3")
        .args(["-c", "import sqlite3"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_module {
        return Some("python3 with its sqlite3 module is not installed");
    }
    (!installed(&["nbdfuse", "nbdcopy", "mke2fs", "e2fsck", "mount", "umount"]))
        .then_some("a program is not installed")
}

/// Rounds of transactions and a kill. False if mounting is not allowed here; a panic if a committed
/// transaction is lost.
fn kill_again_and_again(world: &World, kills: u64, options: &str) -> bool {
    let mut random = Random(7);
    let mut serve = || {
        world.serve(&format!(
            "--punch-holes --volatile-cache {} {options}",
            random.next() >> 1
        ))
    };
    let mut server = serve();
    let mut committed = 0;
    for round in 0..=kills {
        let Some(disk) = Mounted::new(world, &server.uri("data")) else {
            return false;
        };
        if round == 0 {
            tool(
                world.path(),
                "mke2fs",
                &["-q", "-t", "ext4", "-b", "4096", "disk"],
            );
        }
        let files = FileSystem::new(world, &disk);
        assert!(
            round == 0 || files.is_some(),
            "the file system cannot be mounted after a kill"
        );
        let Some(files) = files else { return false };
        if round > 0 {
            let found = transactions(&files, round - 1);
            // The next one may have been committed without its answer.
            assert!(
                (committed..=committed + 1).contains(&found),
                "{committed} transactions were committed, {found} are there after kill {round}"
            );
            eprintln!("kill {round}: {committed} transactions were reported, {found} are there");
        }
        if round == kills {
            break;
        }
        committed = commit_and_kill(&files, server, round, 30 + 25 * round);
        drop((files, disk));
        server = serve();
        check_file_system(world, &server);
    }
    tool(world.path(), "nbdcopy", &[&server.uri("data"), "copy"]);
    tool(world.path(), "e2fsck", &["-fn", "copy"]);
    assert!(server.stop(), "the daemon ends cleanly");
    world.check().unwrap();
    true
}

#[test]
fn committed_transactions_survive_kills_of_the_daemon() {
    if let Some(why) = obstacle() {
        return eprintln!("skipped: {why}");
    }
    kill_again_and_again(&World::with_volume(CREATE, "64M"), KILLS, "");
}

/// The same on members that acknowledge every flush without doing it: without a loss here, the test
/// above proves nothing.
#[test]
fn transactions_are_lost_where_flushes_are_dropped() {
    if let Some(why) = obstacle() {
        return eprintln!("skipped: {why}");
    }
    let ended = std::panic::catch_unwind(|| {
        kill_again_and_again(
            &World::with_volume(CREATE, "64M"),
            KILLS,
            "--drop-flush-every 1",
        )
    });
    assert!(
        !matches!(ended, Ok(true)),
        "dropped flushes were not noticed"
    );
}
