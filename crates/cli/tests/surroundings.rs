//! What is around the command: files and folders of others, a full disk behind standard output, a terminal that goes, a pool that cannot be opened beside one
//! that can. Nothing is lost or replaced by it, and the exit code tells.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use support::{CREATE, World, both};

/// `-o json >/dev/full` once lost the result and said that all is well.
#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let world = World::with_volume(CREATE, "16M");
    for (line, code) in [("pool status tank -o json", 4), ("volume list tank", 4), ("check tank -o json", 8), ("--help", 4)] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let output = world.command(line).stdout(full).output().expect("it runs");
        let said = both(&output);
        assert!(output.status.code() == Some(code) && said.starts_with("windrow: WR-CLI-003: ") && said.lines().count() == 1, "{line}: {said}");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = world.command("pool status tank").stdout(Stdio::from(writer)).output().expect("it runs");
    assert_eq!((output.status.code(), both(&output).as_str()), (Some(141), ""), "the reader went: no success, and nothing to say");
}

/// A file that is written took the name of whatever had it, of a member at rest too.
#[test]
fn an_output_file_never_replaces_a_member() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("trace generate uniform t.wtrc --requests 10 --size 1M");
    let before = std::fs::read(world.file("m0")).expect("a member");
    for line in ["trace generate uniform m0 --requests 10 --size 1M", "trace convert t.wtrc m0", "trace plot t.wtrc m0", "trace plot t.wtrc p.svg --report m0"]
    {
        let output = world.run(line);
        let said = both(&output);
        assert!(output.status.code() == Some(4) && said.contains("windrow: WR-MEMBER-002: will not replace m0: it is member 0 of"), "{line}: {said}");
        assert!(std::fs::read(world.file("m0")).expect("still there") == before, "{line}");
    }
    let _socket = std::os::unix::net::UnixListener::bind(world.file("socket")).expect("a socket");
    let other = world.run("trace convert t.wtrc socket");
    assert!(other.status.code() == Some(4) && both(&other).contains("not a regular file"), "{}", both(&other));
    world.succeeds("trace convert t.wtrc again.wtrc");
    world.succeeds("trace convert t.wtrc again.wtrc");
    world.check().expect("a sound pool");
}

/// A monitor that looks at all pools lost all of them when one could not be opened.
#[test]
fn a_pool_that_cannot_be_opened_does_not_hide_the_others() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("pool create --redundancy 0 --size 64M --sparse alone a0");
    std::fs::rename(world.file("a0"), world.file("elsewhere")).expect("it moves");
    let output = world.run("pool status -o json");
    assert_eq!(output.status.code(), Some(4), "{}", both(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((told["pools"][0]["name"].as_str(), told["pools"].as_array().map(Vec::len)), (Some("tank"), Some(1)), "{told}");
    assert_eq!(told["failed"][0]["pool"], "alone", "{told}");
    assert!(told["failed"][0]["error"]["id"].as_str().is_some_and(|id| id.starts_with("WR-")), "{told}");
    let output = world.run("pool status --exit-code");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(4) && String::from_utf8_lossy(&output.stdout).contains("tank"), "{}", both(&output));
    assert!(error.contains("pool 'alone' is not shown") && error.lines().count() == 1, "{error}");
}

/// Who can write to the folder of sockets can answer as the daemon.
#[test]
fn a_folder_of_sockets_that_others_can_write_to_is_not_used() {
    let world = World::with_volume(CREATE, "16M");
    let run = world.file("run");
    std::fs::create_dir_all(&run).expect("a folder");
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o777)).expect("its mode");
    for line in ["pool status tank", "pool status", "pool list", "volume list tank"] {
        let output = world.run(line);
        let said = both(&output);
        assert!(output.status.code() == Some(4) && said.starts_with("windrow: WR-CLI-003: ") && said.contains("others may write to it"), "{line}: {said}");
    }
    let refused = world.try_serve("").err().expect("it is not served");
    assert!(refused.contains("WR-CLI-003"), "{refused}");
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    assert!(world.serve("").stop());
}

/// A terminal that went ended the daemon as a power cut would.
#[test]
fn a_terminal_that_goes_ends_the_daemon_cleanly() {
    // Under `nohup` all that is started ignores it, and stays.
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_some_and(|mask| mask & 1 == 1) {
        return eprintln!("skipped: SIGHUP is ignored here");
    }
    let world = World::with_volume(CREATE, "16M");
    assert!(world.serve("").stop_by("-HUP"));
    world.check().expect("a sound pool");
}
