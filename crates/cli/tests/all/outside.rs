//! Faults around a pool: the registry, the log, other names of members, copies of them.

use crate::support;

use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use support::{CREATE, World, both};

fn states(world: &World, place: &str) -> Vec<String> {
    let status: Value =
        serde_json::from_str(&world.succeeds(&format!("pool status tank -o json {place}")))
            .expect("JSON");
    let members = status["members"].as_array().expect("members");
    members
        .iter()
        .map(|member| member["state"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn fails(world: &World, line: &str, says: &str) {
    let output = world.run(line);
    assert!(
        output.status.code() == Some(4) && both(&output).contains(says),
        "{line}: {} {}",
        output.status,
        both(&output)
    );
}

/// The command makes the file of the new member. If the registry cannot be written afterwards, it
/// must not remove the file: the pool has it as a member.
#[test]
fn a_file_that_the_pool_has_taken_stays_whatever_fails_afterwards() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    std::fs::rename(world.file("state/pools"), world.file("aside")).expect("aside");
    std::fs::write(
        world.file("state/pools"),
        "as a full or read-only file system is",
    )
    .expect("no folder");
    for (line, file) in [
        ("pool replace tank 1 new1 --create-files", "new1"),
        ("pool add tank --spare spare --create-files", "spare"),
        ("pool add tank --journal log --create-files", "log"),
    ] {
        fails(
            &world,
            line,
            "WR-CLI-003: the pool has changed, but the path of member",
        );
        assert!(world.file(file).exists(), "{line}");
    }
    assert!(server.stop());
    std::fs::remove_file(world.file("state/pools")).expect("there is room again");
    std::fs::rename(world.file("aside"), world.file("state/pools")).expect("back");
    let states = states(&world, "--dir .");
    assert!(!states.contains(&"missing".to_owned()), "{states:?}");
    assert!(states.contains(&"spare".to_owned()), "{states:?}");
}

/// The first start of a new pool searches for its journal devices.
#[test]
fn a_new_pool_is_found_with_its_journal_devices() {
    let world = World::new();
    world.succeeds(&CREATE.replace("tank", "--journal j0,1M --journal-device j1 tank"));
    assert_eq!(states(&world, ""), ["online"; 6]);
    for (wrong, why) in [
        ("--journal 1M,2M", "several sizes"),
        ("--journal 1x", "./1x"),
        (
            "--journal 1M --journal-power-safe",
            "there are no journal devices",
        ),
    ] {
        let refused = world.run(&CREATE.replace("tank", &format!("{wrong} other")));
        assert!(
            !refused.status.success() && both(&refused).contains(why),
            "{wrong}: {}",
            both(&refused)
        );
    }
}

/// A member missing at one start is searched at its known path at the next.
#[test]
fn a_member_that_is_back_at_its_place_is_found_there() {
    let world = World::with_volume(CREATE, "16M");
    std::fs::rename(world.file("m2"), world.file("elsewhere")).expect("unplugged");
    assert!(world.serve("").stop());
    std::fs::rename(world.file("elsewhere"), world.file("m2")).expect("plugged in");
    let server = world.serve("");
    assert_ne!(states(&world, "")[2], "missing");
    assert!(server.stop());
}

/// Links are not followed: `/dev/disk/by-id` names are kept, as `/dev/sdb` may be another disk
/// after a reboot.
#[test]
fn names_of_members_are_kept_as_they_were_given() {
    let world = World::new();
    std::fs::create_dir(world.file("by-id")).expect("a folder");
    let point = |link: usize, device: &str| {
        let name = world.file(&format!("by-id/w{link}"));
        drop(std::fs::remove_file(&name));
        std::os::unix::fs::symlink(world.file(device), name).expect("a link");
    };
    let shown = || -> Vec<String> {
        let status: Value =
            serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON");
        status["members"]
            .as_array()
            .expect("members")
            .iter()
            .map(|member| member["path"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    for member in 0..4 {
        std::fs::File::create(world.file(&format!("sd{member}")))
            .and_then(|file| file.set_len(64 << 20))
            .expect("a member");
        point(member, &format!("sd{member}"));
    }
    let given: Vec<String> = (0..4)
        .map(|member| {
            world
                .file(&format!("by-id/w{member}"))
                .display()
                .to_string()
        })
        .collect();
    world.succeeds("pool create --redundancy 5 --segment 256K --chunk 64K tank by-id/w0 by-id/w1 by-id/w2 by-id/w3");
    assert_eq!(shown(), given, "as created");
    // Every command that stores the paths again: a start, an import, a change of a member.
    let server = world.serve("");
    world.succeeds(&format!(
        "pool offline tank {}",
        world.file("sd1").display()
    ));
    world.succeeds("pool online tank by-id/w1");
    assert!(server.stop());
    world.succeeds("pool import tank --members by-id/w0,by-id/w1,by-id/w2,by-id/w3");
    // The machine reboots.
    for member in 0..4 {
        std::fs::rename(
            world.file(&format!("sd{member}")),
            world.file(&format!("sd{}", (member + 1) % 4 + 4)),
        )
        .expect("another name");
        point(member, &format!("sd{}", (member + 1) % 4 + 4));
    }
    assert_eq!(
        (states(&world, ""), shown()),
        (vec!["online".to_owned(); 4], given)
    );
}

/// Of two equal files in a folder the first by name must not be used silently.
#[test]
fn copies_of_members_in_a_folder_are_refused() {
    let world = World::with_volume(CREATE, "16M");
    for member in 0..4 {
        std::fs::copy(
            world.file(&format!("m{member}")),
            world.file(&format!("backup{member}")),
        )
        .expect("a copy");
    }
    fails(
        &world,
        "pool import tank --dir .",
        "the same, or a copy of it",
    );
    fails(
        &world,
        "pool destroy tank --yes --dir .",
        "the same, or a copy of it",
    );
    world.succeeds("pool import tank --members m0,m1,m2,m3");
    world.succeeds("pool status tank --dir .");
}

/// A notice that cannot be logged must not end its thread, which has answers to deliver.
#[test]
fn a_log_reader_that_is_gone_delays_nothing() {
    let world = World::with_volume(CREATE, "16M");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = world.command("serve tank -o json --no-memory-lock");
    let mut daemon = command
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .expect("the daemon starts");
    drop(command);
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(daemon.stdout.take().expect("a pipe")),
        &mut line,
    )
    .expect("ready");
    assert!(line.contains("\"ready\""), "{line}");
    drop(reader);
    // Each of them is logged as a warning.
    world.succeeds("pool offline tank 1");
    world.succeeds("pool online tank 1");
    assert!(
        Command::new("kill")
            .arg("-TERM")
            .arg(daemon.id().to_string())
            .status()
            .expect("kill runs")
            .success()
    );
    assert!(daemon.wait().expect("it ends").success());
}

#[test]
fn a_path_that_cannot_be_kept_is_refused_before_anything_is_written() {
    let world = World::new();
    let strange = Path::new(std::ffi::OsStr::from_bytes(b"m\xff"));
    let output = world
        .command("pool create --redundancy 5 --size 64M --sparse tank m0 m1 m2")
        .arg(strange)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(4), "{}", both(&output));
    assert!(
        both(&output).contains("WR-CLI-001") && !world.file("m0").exists(),
        "{}",
        both(&output)
    );
}

#[test]
fn a_pool_that_could_not_be_released_is_not_called_exported() {
    let world = World::with_volume(CREATE, "16M");
    let mut server = world.serve("--read-only");
    // Clients learn it when they connect, not from their first write.
    let exports = world.succeeds("export list tank -o json");
    assert!(exports.contains("\"read_only\":true"), "{exports}");
    fails(
        &world,
        "pool export tank",
        "the pool is not exported: it is served read-only",
    );
    while server.is_running() {
        std::thread::yield_now();
    }
    world.succeeds("pool export tank");
}

fn served(world: &World) -> Value {
    serde_json::from_str::<Value>(&world.succeeds("pool status tank -o json")).expect("JSON")["nbd"]
        .clone()
}

fn resident_peak_mib(server: &support::Server) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.id())).expect("a process");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect("its memory");
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        >> 10
}

/// Clients that read nothing must not take memory without limit, and are closed.
#[test]
fn clients_that_read_nothing_cost_a_known_amount_and_are_closed() {
    const GREEDY: usize = 20;
    let world = World::with_volume(CREATE, "48M");
    let server = world.serve("--request-memory 128M --stall-timeout 1 --connections 64");
    let mut good = server.client();
    for piece in 0..40u64 {
        good.write(
            piece,
            piece << 20,
            &support::Random(piece + 1).bytes(1 << 20),
            false,
        );
        assert_eq!(good.finish().expect("written").0, 0);
    }
    let before = resident_peak_mib(&server);
    let mut greedy: Vec<support::nbd::Client> = (0..GREEDY).map(|_| server.client()).collect();
    for client in &mut greedy {
        (0..64).for_each(|cookie| client.read(cookie, 0, 32 << 20));
        client.push().expect("sent");
    }
    // One after the other gets memory, and is closed because it reads nothing.
    let mut most = 0;
    loop {
        good.read(0, 0, 4096);
        assert_eq!(good.finish().expect("an answer").0, 0);
        let nbd = served(&world);
        most = most.max(nbd["memory_bytes"].as_u64().expect("a number"));
        if nbd["stalled"].as_u64() >= Some(2) {
            break;
        }
    }
    drop(greedy);
    let nbd = served(&world);
    assert_eq!(
        (
            &nbd["memory_bytes_max"],
            &nbd["connections_max"],
            &nbd["stall_seconds"]
        ),
        (&(128 << 20).into(), &64.into(), &1.into()),
        "{nbd}"
    );
    assert!(
        most >= 32 << 20 && nbd["memory_peak_bytes"].as_u64() <= Some(128 << 20),
        "{most} of {nbd}"
    );
    assert!(
        nbd["memory_waits"].as_u64() >= Some(GREEDY as u64 - 2),
        "{nbd}"
    );
    let grown = resident_peak_mib(&server) - before;
    assert!(grown < 256, "{grown} MiB");
    assert!(server.stop());
    let log = std::fs::read_to_string(world.file("serve.log")).expect("a log");
    assert!(
        log.contains("the client took nothing of its replies for too long"),
        "{log}"
    );
    assert_eq!(
        log.matches("took nothing of its replies").count(),
        1,
        "one line for all of them: {log}"
    );
}

/// A client beyond the limit is refused with a log line, and counted.
#[test]
fn a_client_beyond_a_bound_is_refused_and_counted() {
    let world = World::with_volume(CREATE, "16M");
    std::fs::write(world.file("c.toml"), "connections = 3\nhandshakes = 2\n").expect("a file");
    let server = world.serve("--config c.toml --connections-per-client 1 --metrics 127.0.0.1:0");
    let _client = server.client();
    for _ in 0..5 {
        assert!(support::nbd::Client::connect(&server.socket, "data").is_err());
    }
    let nbd = served(&world);
    let numbers = [
        "connections",
        "connections_max",
        "connections_per_peer",
        "connections_per_export",
        "handshakes_max",
        "refused",
    ]
    .map(|name| nbd[name].as_u64());
    assert_eq!(numbers, [1, 3, 1, 3, 2, 5].map(Some), "{nbd}");
    assert_eq!(
        (
            nbd["peers"][0]["connections"].as_u64(),
            nbd["peers"][0]["peer"].as_str()
        ),
        (Some(1), Some(&*format!("process {}", std::process::id()))),
        "{nbd}"
    );
    let text = world.succeeds("pool status tank");
    assert!(
        text.contains("clients    1 of 3, ") && text.contains("; 5 refused since the start"),
        "{text}"
    );
    let text = world.succeeds("stats tank");
    assert!(
        text.contains("memory for requests and replies")
            && text.contains("256 MiB")
            && text.contains("5 clients refused"),
        "{text}"
    );
    let page = world.succeeds("stats tank --prometheus");
    assert!(
        page.contains("windrow_connections_refused_total{pool=\"tank\"} 5\n")
            && page.contains("windrow_request_memory_limit_bytes{pool=\"tank\"} 268435456\n")
    );
    assert!(server.stop());
    let log = std::fs::read_to_string(world.file("serve.log")).expect("a log");
    assert_eq!(
        log.matches(
            "a client was refused: this client has 1 connections, the limit for one client"
        )
        .count(),
        1,
        "{log}"
    );
}

/// A loop device over a sparse file.
struct Loop(String);

impl Loop {
    /// `None` if this machine allows no loop device. With `options` as for `losetup`.
    fn new(world: &World, name: &str, bytes: u64, options: &[&str]) -> Option<Self> {
        std::fs::File::create(world.file(name))
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(world.file(name))
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| Self(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    fn partition(&self) -> String {
        format!("{}p1", self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").args(["-d", &self.0]).status());
    }
}

/// Adds the partitions of disks with a GPT, as the kernel does: some kernels are built without a
/// GPT parser.
fn stand_in_for_a_kernel_without_gpt(
    world: &World,
    disks: &[&Loop],
    files: &[&str],
    end: &AtomicBool,
) {
    while !end.load(Ordering::Relaxed) {
        for (disk, file) in disks
            .iter()
            .zip(files)
            .filter(|(disk, _)| !Path::new(&disk.partition()).exists())
        {
            let mut head = [0; 2048];
            std::fs::File::open(world.file(file))
                .and_then(|file| file.read_exact_at(&mut head, 0))
                .expect("a file");
            let number =
                |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
            let (first, last) = (number(1024 + 32), number(1024 + 40));
            if &head[512..520] == b"EFI PART" && first > 0 {
                drop(
                    Command::new("addpart")
                        .arg(&disk.0)
                        .args(["1", &first.to_string(), &(last - first + 1).to_string()])
                        .status(),
                );
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Ends the stand-in, also if the test fails.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const PARTITIONED: &str = "pool create --redundancy 5 --segment 256K --chunk 64K --partition tank";

/// blkid and installers must recognise a disk that is a member.
#[test]
fn a_disk_gets_a_partition_that_other_tools_see() {
    if !support::installed(&["losetup", "addpart"]) {
        return;
    }
    let world = World::new();
    let disks: Option<Vec<Loop>> = (0..6)
        .map(|number| Loop::new(&world, &format!("d{number}"), 64 << 20, &["-P"]))
        .collect();
    let Some(disks) = disks else {
        return eprintln!("skipped: no loop device can be made here");
    };
    let (all, end) = (disks.iter().collect::<Vec<_>>(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stand_in_for_a_kernel_without_gpt(
                &world,
                &all,
                &["d0", "d1", "d2", "d3", "d4", "d5"],
                &end,
            )
        });
        let _end = End(&end);
        disks_become_members(&world, &disks);
    });
}

fn disks_become_members(world: &World, disks: &[Loop]) {
    let names = disks[..4]
        .iter()
        .map(|disk| disk.0.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    let planned = world.run(&format!("{PARTITIONED} --dry-run {names}"));
    assert!(
        both(&planned).contains("empty; the disk gets a GPT with one partition"),
        "{}",
        both(&planned)
    );
    assert!(
        !Path::new(&disks[0].partition()).exists(),
        "a dry run writes nothing"
    );
    world.succeeds(&format!("{PARTITIONED} {names}"));
    let path = |member: usize| {
        let status: Value =
            serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON");
        status["members"][member]["path"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        (path(0), path(3)),
        (disks[0].partition(), disks[3].partition())
    );
    let said = world.succeeds(&format!("inspect-id --udev {}", disks[0].partition()));
    assert!(
        said.contains("ID_FS_TYPE=windrow_member\n") && said.contains("ID_FS_LABEL_ENC=tank\n"),
        "{said}"
    );
    assert_eq!(
        world
            .run(&format!("inspect-id --udev {}", disks[0].0))
            .status
            .code(),
        Some(2)
    );
    if support::installed(&["blkid"]) {
        let seen = support::tool(world.path(), "blkid", &["-p", "-o", "export", &disks[0].0]);
        assert!(seen.contains("PTTYPE=gpt"), "{seen}");
        let seen = support::tool(
            world.path(),
            "blkid",
            &["-p", "-o", "export", &disks[0].partition()],
        );
        assert!(
            seen.contains(&format!(
                "PART_ENTRY_TYPE={}",
                windrow_device::disk::PARTITION_TYPE
            )),
            "{seen}"
        );
    }
    fails(
        world,
        &format!("{PARTITIONED} {names}").replace("tank", "other"),
        "a GPT partition table",
    );
    // Found without a registry entry.
    world.succeeds("volume create tank/data 16M");
    std::fs::remove_dir_all(world.file("state")).expect("forgotten");
    // The disks are named, and their partitions are the members.
    world.succeeds(&format!(
        "pool import tank --members {},{},{},{}",
        disks[0].0,
        disks[1].partition(),
        disks[2].0,
        disks[3].0
    ));
    assert_eq!(
        (path(0), path(3)),
        (disks[0].partition(), disks[3].partition())
    );
    let server = world.serve("");
    // A disk is not opened while a daemon has its partition.
    let refused =
        both(&world.run(&format!("{PARTITIONED} {names} --force").replace("tank", "other")));
    assert!(
        refused.contains(&format!(
            "{} holds member 0 of pool 'tank', which process ",
            disks[0].0
        )),
        "{refused}"
    );
    world.succeeds(&format!("pool replace tank 1 {} --partition", disks[4].0));
    // (It is a copy of the member first.)
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while path(1) != disks[4].partition() {
        assert!(std::time::Instant::now() < end, "{}", path(1));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    world.succeeds(&format!(
        "pool add tank --spare {} --partition --force",
        disks[5].0
    ));
    // A removed disk has no table of ours any more.
    world.succeeds(&format!("pool remove tank {}", disks[5].0));
    assert!(!Path::new(&disks[5].partition()).exists());
    assert!(
        std::fs::read(world.file("d5"))
            .expect("a file")
            .iter()
            .all(|byte| *byte == 0)
    );
    world.succeeds(&format!("pool offline tank {}", disks[2].0));
    world.succeeds(&format!("pool online tank 2 {}", disks[2].0));
    assert_eq!(path(2), disks[2].partition());
    assert!(server.stop());
    world.check().expect("sound");
}

/// An unused partition table is removed, and a member's slot is never too large for the device.
#[test]
fn an_unused_partition_table_is_removed() {
    if !support::installed(&["losetup", "addpart"]) {
        return;
    }
    let world = World::new();
    let part = |name: &str, options: &[&str]| Loop::new(&world, name, 64 << 20, options);
    let (Some(one), Some(two), Some(unscanned)) =
        (part("d0", &["-P"]), part("d1", &["-P"]), part("d2", &[]))
    else {
        return eprintln!("skipped: no loop device can be made here");
    };
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stand_in_for_a_kernel_without_gpt(&world, &[&one, &two], &["d0", "d1"], &end)
        });
        let _end = End(&end);
        fails(
            &world,
            &format!("{PARTITIONED} {} {} {}", one.0, two.0, unscanned.0),
            "the kernel reads no partitions of",
        );
    });
    for name in ["d0", "d1", "d2"] {
        assert!(
            std::fs::read(world.file(name))
                .expect("a file")
                .iter()
                .all(|byte| *byte == 0),
            "{name}"
        );
    }
    assert!(!Path::new(&one.partition()).exists());
    // The whole device fits, and a partition on it would not.
    let world_of_files = World::with_volume(CREATE, "16M");
    let said = world_of_files.succeeds(&format!("pool replace tank 1 {} --partition", one.0));
    assert!(
        said.contains("the bare disk") && said.contains(&one.0),
        "{said}"
    );
    assert!(!Path::new(&one.partition()).exists());
}

/// A dry run must refuse what creation refuses, and the advice must fit the given options.
#[test]
fn a_loop_device_without_partitions_gets_none() {
    if !support::installed(&["losetup"]) {
        return;
    }
    let world = World::with_volume(CREATE, "16M");
    let Some(bare) = Loop::new(&world, "bare", 80 << 20, &[]) else {
        return eprintln!("skipped: no loop device can be made here");
    };
    for command in [
        "pool create other --redundancy 0 --dry-run",
        "pool create other --redundancy 0",
        "pool add tank --spare",
    ] {
        fails(
            &world,
            &format!("{command} {} --partition", bare.0),
            "attach a loop device again with `losetup -P`",
        );
    }
    assert!(
        world
            .succeeds(&format!(
                "pool create other --redundancy 0 --dry-run {}",
                bare.0
            ))
            .contains("would be created")
    );
}

/// A disk that is refused must not have its partition table written first.
#[test]
fn a_disk_that_does_not_fit_keeps_what_it_holds() {
    if !support::installed(&["losetup"]) {
        return;
    }
    let world = World::with_volume(CREATE, "16M");
    let Some(small) = Loop::new(&world, "small", 8 << 20, &["-P"]) else {
        return eprintln!("skipped: no loop device can be made here");
    };
    let content = vec![0x5a; 8 << 20];
    std::fs::OpenOptions::new()
        .write(true)
        .open(&small.0)
        .and_then(|disk| {
            disk.write_all_at(&content, 0)
                .and_then(|()| disk.sync_all())
        })
        .expect("written");
    for command in ["pool add tank --spare", "pool replace tank 1"] {
        fails(
            &world,
            &format!("{command} {} --partition --overwrite", small.0),
            "has 7319552 bytes",
        );
        assert!(
            std::fs::read(&small.0).expect("the disk") == content,
            "{command}"
        );
    }
}

/// The table erases the label, but the partition must not be taken for a new device.
#[test]
fn a_former_member_that_comes_back_as_a_partition_is_zeroed() {
    if !support::installed(&["losetup", "addpart"]) {
        return;
    }
    let world = World::with_volume(CREATE, "16M");
    let Some(disk) = Loop::new(&world, "d0", 80 << 20, &["-P"]) else {
        return eprintln!("skipped: no loop device can be made here");
    };
    world.succeeds(&format!("pool add tank --spare {} --whole-disk", disk.0));
    // It was elsewhere, with a batch of the pool.
    let label = std::fs::read(&disk.0).expect("the disk")[4096..8192].to_vec();
    world.succeeds(&format!("pool remove tank {}", disk.0));
    let write = |bytes: &[u8], at| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(&disk.0)
            .and_then(|file| file.write_all_at(bytes, at))
            .expect("written")
    };
    write(&label, 4096);
    write(&[0x5a; 4096], 20 << 20);
    let end = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| stand_in_for_a_kernel_without_gpt(&world, &[&disk], &["d0"], &end));
        let _end = End(&end);
        both(&world.run(&format!(
            "pool add tank --spare {} --partition --overwrite --force",
            disk.0
        )))
    });
    assert!(
        said.contains("was in pool 'tank' before: all of its 80 MiB are zeroed first")
            && said.contains("p1 is spare "),
        "{said}"
    );
    assert_eq!(
        std::fs::read(world.file("d0")).expect("a file")[20 << 20],
        0
    );
}
