//! Surroundings of the command: foreign files and folders, a full disk behind standard output, a
//! closing terminal, a pool that cannot be opened alongside one that can. Nothing is lost or
//! replaced, and the exit code shows the failure.

use crate::support;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use support::{CREATE, World, both};

/// `-o json >/dev/full` must not report success without its result.
#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let world = World::with_volume(CREATE, "16M");
    for (line, code) in [
        ("pool status tank -o json", 4),
        ("volume list tank", 4),
        ("check tank -o json", 8),
        ("--help", 4),
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full");
        let output = world.command(line).stdout(full).output().expect("it runs");
        let said = both(&output);
        assert!(
            output.status.code() == Some(code)
                && said.starts_with("windrow: WR-CLI-003: ")
                && said.lines().count() == 1,
            "{line}: {said}"
        );
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = world
        .command("pool status tank")
        .stdout(Stdio::from(writer))
        .output()
        .expect("it runs");
    assert_eq!(
        (output.status.code(), both(&output).as_str()),
        (Some(141), ""),
        "the reader went: no success, and nothing to say"
    );
}

/// A monitor of all pools must not lose all of them when one cannot be opened.
#[test]
fn a_pool_that_cannot_be_opened_does_not_hide_the_others() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("pool create --redundancy 0 --size 64M --sparse alone a0");
    std::fs::rename(world.file("a0"), world.file("elsewhere")).expect("it moves");
    let output = world.run("pool status -o json");
    assert_eq!(output.status.code(), Some(4), "{}", both(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(
        (
            told["pools"][0]["name"].as_str(),
            told["pools"].as_array().map(Vec::len)
        ),
        (Some("tank"), Some(1)),
        "{told}"
    );
    assert_eq!(told["failed"][0]["pool"], "alone", "{told}");
    assert!(
        told["failed"][0]["error"]["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("WR-")),
        "{told}"
    );
    let output = world.run("pool status --exit-code");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(4) && String::from_utf8_lossy(&output.stdout).contains("tank"),
        "{}",
        both(&output)
    );
    assert!(
        error.contains("pool 'alone' is not shown") && error.lines().count() == 1,
        "{error}"
    );
}

/// A user who can write to the folder of sockets can answer as the daemon.
#[test]
fn a_folder_of_sockets_that_others_can_write_to_is_not_used() {
    let world = World::with_volume(CREATE, "16M");
    let run = world.file("run");
    std::fs::create_dir_all(&run).expect("a folder");
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o777)).expect("its mode");
    for line in [
        "pool status tank",
        "pool status",
        "pool list",
        "volume list tank",
    ] {
        let output = world.run(line);
        let said = both(&output);
        assert!(
            output.status.code() == Some(4)
                && said.starts_with("windrow: WR-CLI-003: ")
                && said.contains("others may write to it"),
            "{line}: {said}"
        );
    }
    let refused = world.try_serve("").err().expect("it is not served");
    assert!(refused.contains("WR-CLI-003"), "{refused}");
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    assert!(world.serve("").stop());
}

/// A closing terminal must not end the daemon like a power cut.
#[test]
fn a_terminal_that_goes_ends_the_daemon_cleanly() {
    // Under `nohup` all processes ignore it, and stay.
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_some_and(|mask| mask & 1 == 1) {
        return eprintln!("skipped: SIGHUP is ignored here");
    }
    let world = World::with_volume(CREATE, "16M");
    assert!(world.serve("").stop_by("-HUP"));
    world.check().expect("a sound pool");
}

/// One daemon under SIGSTOP must not keep `pool status` from showing the others.
#[test]
fn a_daemon_that_hangs_does_not_hide_the_others() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("pool create --redundancy 0 --size 64M --sparse pond p0");
    let server = world.serve("");
    let mut pond = world
        .command("serve pond -o json --no-memory-lock")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(pond.stdout.take().expect("a pipe")),
        &mut line,
    )
    .expect("a line");
    let signal =
        |name: &str| support::tool(world.path(), "kill", &[name, &server.id().to_string()]);
    signal("-STOP");
    let process = format!("(process {})", server.id());
    for line in ["pool status", "pool list"] {
        let output = world.run(line);
        let (text, error) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(
            output.status.code() == Some(4) && text.contains("pond"),
            "{line}: {text}{error}"
        );
        assert!(
            error.contains("pool 'tank' is not shown")
                && error.contains(&process)
                && error.contains("it is stopped (state T)"),
            "{line}: {error}"
        );
    }
    let output = world.run("pool list -o json");
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    let row = |name: &str| {
        list["pools"]
            .as_array()
            .and_then(|rows| rows.iter().find(|row| row["name"] == name))
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(
        (row("tank")["state"].as_str(), row("pond")["state"].as_str()),
        (Some("unresponsive"), Some("online")),
        "{list}"
    );
    let failed = both(&world.run("volume list tank"));
    assert!(
        failed.contains("WR-CLI-002") && failed.contains(&process),
        "{failed}"
    );
    signal("-CONT");
    assert!(world.succeeds("pool status").contains("tank"));
    assert!(server.stop());
    support::tool(world.path(), "kill", &[&pond.id().to_string()]);
    assert!(pond.wait().expect("it ends").success());
}

/// `windrow pool 2>&1 | true` must not panic: help of an unfinished command, wrong words, refusals,
/// in both forms.
#[test]
fn a_reader_that_is_gone_is_no_panic() {
    let world = World::with_volume(CREATE, "16M");
    let gone = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        Stdio::from(writer)
    };
    for (line, code) in [
        ("pool", 2),
        ("", 2),
        ("frob", 2),
        ("frob -o json", 2),
        ("--help", 141),
        ("pool status nothing", 4),
        ("pool status nothing -o json", 4),
        ("pool status", 141),
        ("pool status -o json", 141),
        ("pool list", 141),
        ("completions bash", 141),
        ("check tank", 141),
        ("serve nothing --nbd unix:s", 4),
    ] {
        for is_both in [true, false] {
            let mut command = world.command(line);
            command
                .stderr(gone())
                .stdout(if is_both { gone() } else { Stdio::null() });
            let expected = if is_both || code != 141 { code } else { 0 };
            assert_eq!(
                command.status().expect("it runs").code(),
                Some(expected),
                "{line}, standard output gone: {is_both}"
            );
        }
    }
}

/// Standard error is a full pipe that is not read: a thread with the engine must not block on it.
#[test]
fn a_log_that_is_not_read_stops_nothing() {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let world = World::with_volume(CREATE, "16M");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("flags");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("flags");
    while std::io::Write::write(&mut writer, &[b'x'; 4096]).is_ok() {}
    // The flag belongs to both ends of what the daemon inherits.
    fcntl_setfl(&writer, flags).expect("flags");
    let mut command = world.command("serve tank -o json --no-memory-lock --nbd unix:nbd.sock");
    let mut daemon = command
        .env("WINDROW_LOG", "info")
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .expect("it starts");
    let mut ready = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(daemon.stdout.take().expect("a pipe")),
        &mut ready,
    )
    .expect("a line");
    assert!(ready.contains("ready"), "{ready}");
    // The thread that drives the engine logs these.
    world.succeeds("pool offline tank 1");
    world.succeeds("pool online tank 1");
    let mut client = support::nbd::Client::connect(&world.file("nbd.sock"), "data")
        .expect("the export is there");
    client.write(1, 0, &[7; 4096], true);
    assert_eq!(client.finish().expect("an answer").0, 0);
    drop(client);
    assert!(
        world.succeeds("pool status tank").contains("degraded")
            || world.succeeds("pool status tank").contains("online")
    );
    support::tool(world.path(), "kill", &[&daemon.id().to_string()]);
    assert!(
        daemon
            .wait()
            .expect("it ends, although its last lines are not read")
            .success()
    );
    drop(reader);
    world.check().expect("a sound pool");
}

/// A second daemon must not wait 5 s for each member's lock, and then blame "a process".
#[test]
fn a_second_daemon_is_refused_with_the_process_of_the_first() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    let begin = std::time::Instant::now();
    let said = both(&world.run("serve tank --nbd unix:other.sock"));
    assert!(
        said.contains("WR-POOL-005")
            && said.contains(&format!("process {} serves it already", server.id())),
        "{said}"
    );
    assert!(
        begin.elapsed() < std::time::Duration::from_secs(4),
        "no lock was waited for"
    );
    let said = both(&world.run("serve tank --nbd unix:other.sock --control other.control"));
    assert!(
        said.contains("WR-POOL-005")
            && said.contains(&format!("process {} serves it already", server.id())),
        "{said}"
    );
    // If the daemon is not known, the members are found in use, with the process that has them.
    let said = both(
        &world
            .command("serve tank --nbd unix:other.sock")
            .env("WINDROW_RUN", world.file("elsewhere"))
            .output()
            .expect("it runs"),
    );
    assert!(
        said.contains("WR-POOL-005")
            && said.contains(&format!("process {} (windrow)", server.id())),
        "{said}"
    );
    assert!(server.stop());
}

#[test]
fn sockets_have_the_mode_and_group_that_are_asked_for() {
    use std::os::unix::fs::MetadataExt;
    let world = World::with_volume(CREATE, "16M");
    let rights = |path: &std::path::Path| {
        std::fs::metadata(path)
            .map(|found| (found.mode() & 0o7777, found.gid()))
            .expect("a socket")
    };
    let own = std::fs::metadata(world.path()).expect("a folder").gid();
    for (options, mode) in [
        ("", 0o600),
        ("--socket-mode 0660", 0o660),
        ("--socket-mode 666", 0o666),
        (&*format!("--socket-group {own}"), 0o660),
    ] {
        let server = world.serve(options);
        for path in [&world.file("run/tank.control"), &server.socket] {
            assert_eq!(rights(path), (mode, own), "{options}: {}", path.display());
        }
        assert!(server.stop());
    }
    for (option, code) in [
        ("--socket-mode 0777", 2),
        ("--socket-mode 0400", 2),
        ("--socket-mode rw", 2),
        ("--socket-group nothing-of-this-name", 4),
    ] {
        let refused = world.run(&format!("serve tank --nbd unix:s {option}"));
        assert!(
            refused.status.code() == Some(code) && both(&refused).contains("WR-CLI-001"),
            "{option}: {}",
            both(&refused)
        );
    }
}

/// The list shows `exported` only for exported pools, the states of a pool at rest, and its use.
#[test]
fn the_list_has_one_vocabulary() {
    let world = World::with_volume(CREATE, "16M");
    let row = || {
        let list: serde_json::Value =
            serde_json::from_str(&world.succeeds("pool list -o json")).expect("JSON");
        let row = list["pools"][0].clone();
        let (state, size, used) = (
            row["state"].as_str().unwrap_or_default().to_owned(),
            row["usable_bytes"].as_u64(),
            row["used_bytes"].as_u64(),
        );
        (
            state,
            size.is_some_and(|size| size > 100 << 20),
            used.is_some(),
        )
    };
    assert_eq!(row(), ("online".to_owned(), true, true));
    assert!(
        !world.succeeds("volume list tank").contains("read-only")
            && world.succeeds("pool status tank").contains("at rest")
    );
    assert!(world.succeeds("pool list --quick").contains("online"));
    // Nothing was exported.
    assert!(
        world
            .succeeds("inspect m0")
            .contains(", at rest, redundancy")
    );
    let server = world.serve("");
    assert_eq!(row(), ("online".to_owned(), true, true));
    assert!(world.succeeds("volume list tank").contains("active"));
    server.kill();
    assert_eq!(
        row().0,
        "online",
        "it was killed, and is as whole as before"
    );
    std::fs::rename(world.file("m1"), world.file("away")).expect("it goes");
    assert_eq!(row().0, "degraded");
    std::fs::rename(world.file("m2"), world.file("away2")).expect("it goes");
    assert_eq!(row().0, "stopped");
    let text = world.succeeds("pool list");
    for word in ["SIZE", "USED", "STATE", "stopped", "2/4"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn an_entry_of_the_registry_that_cannot_be_read_hides_no_pool() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("pool create --redundancy 0 --size 64M --sparse pond p0");
    std::fs::write(world.file("state/pools/pond.json"), "{").expect("a file");
    for line in ["pool status", "pool list"] {
        let output = world.run(line);
        let (text, error) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(
            output.status.code() == Some(4) && text.contains("tank"),
            "{line}: {text}{error}"
        );
        assert!(
            error.contains("pool 'pond' is not shown")
                && error.contains("WR-CLI-003")
                && error.contains("pond.json"),
            "{line}: {error}"
        );
    }
}

/// Members that the user may not read are not "not found".
#[test]
fn what_may_not_be_read_is_not_absent() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can run a command as another user");
    }
    let world = World::with_volume(CREATE, "16M");
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode")
    };
    // The folder of a test, or of the command, may be one that others cannot enter.
    open(world.path(), 0o755);
    std::fs::copy(support::program("windrow"), world.file("windrow")).expect("a copy");
    open(&world.file("windrow"), 0o755);
    let as_other = |line: &str| {
        let mut command = std::process::Command::new(world.file("windrow"));
        command
            .args(line.split_whitespace())
            .current_dir(world.path())
            .uid(65534)
            .gid(65534);
        command
            .env("WINDROW_STATE", world.file("state"))
            .env("WINDROW_RUN", world.file("run"));
        command.output().expect("it runs")
    };
    ["m0", "m1", "m2", "m3"]
        .iter()
        .for_each(|member| open(&world.file(member), 0o600));
    for line in [
        "pool status tank",
        "volume list tank",
        "pool status tank --dir .",
    ] {
        let output = as_other(line);
        let said = both(&output);
        assert!(
            output.status.code() == Some(4)
                && said.contains("WR-MEMBER-001")
                && said.contains("may not read"),
            "{line}: {said}"
        );
    }
    let server = world.serve("");
    let said = both(&as_other("volume list tank"));
    assert!(
        said.contains("WR-CLI-002") && said.contains("may not connect"),
        "{said}"
    );
    assert!(server.stop());
    let server = world.serve("--socket-mode 0666");
    assert!(both(&as_other("volume list tank")).contains("data"));
    assert!(server.stop());
    std::fs::set_permissions(
        world.file("state/pools"),
        std::fs::Permissions::from_mode(0o700),
    )
    .expect("its mode");
    let said = both(&as_other("pool status"));
    assert!(
        said.contains("WR-CLI-003") && said.contains("cannot read the registry"),
        "{said}"
    );
}

/// Values by name, for scripts.
#[test]
fn properties_are_shown_one_by_one() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("pool set tank spare=20%");
    assert_eq!(world.succeeds("pool get tank spare"), "20%\n");
    assert!(world.succeeds("pool get tank policy").contains('+'));
    assert_eq!(
        world.succeeds("volume get tank/data size"),
        format!("{}\n", 16 << 20)
    );
    assert_eq!(world.succeeds("volume get tank/data compression"), "off\n");
    assert!(world.succeeds("volume get tank/data").contains("dedup"));
    let json = |line: &str| {
        serde_json::from_str::<serde_json::Value>(&world.succeeds(line)).expect("JSON")
    };
    assert_eq!(
        json("volume get tank/data -o json")["properties"]["size"],
        16 << 20
    );
    assert_eq!(
        (
            json("volume get tank/data sync -o json")["value"].as_str(),
            json("pool get tank spare -o json")["value"].as_str()
        ),
        (Some("standard"), Some("20%"))
    );
    for (line, id) in [
        ("pool get tank colour", "WR-POOL-006"),
        ("volume get tank/data colour", "WR-POOL-006"),
        ("volume get tank/other", "WR-VOLUME-001"),
    ] {
        let output = world.run(line);
        assert!(
            output.status.code() == Some(4) && both(&output).contains(id),
            "{line}: {}",
            both(&output)
        );
    }
}
