//! Foreign programs against the daemon and a pool of four members: their writes must read back,
//! also after a restart. A test is skipped with a message if a program is missing.

use crate::support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::mounted::Mounted;
use support::{CREATE, Random, Server, World, both, installed, tool};

const SIZE: usize = 64 << 20;
/// Exit code of the scripts if a dependency is missing.
const SKIPPED: i32 = 77;

fn world() -> World {
    World::with_volume(CREATE, "64M")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/clients")
        .join(name)
}

/// Runs a script of `tests/clients`; false if a dependency is missing.
fn runs(program: &str, name: &str, arguments: &[String]) -> bool {
    let Ok(output) = Command::new(program)
        .arg(script(name))
        .args(arguments)
        .output()
    else {
        eprintln!("skipped: {program} is not installed");
        return false;
    };
    if output.status.code() == Some(SKIPPED) {
        eprintln!("skipped: {program} {name}: {}", both(&output));
        return false;
    }
    assert!(
        output.status.success(),
        "{program} {name}: {}\n{}",
        output.status,
        both(&output)
    );
    true
}

/// A clean end, after which everything live is read and verified.
fn stop_and_check(world: &World, server: Server) {
    assert!(server.stop(), "the daemon ends cleanly");
    world.check().unwrap();
}

fn map(world: &World, uri: &str) -> Vec<(u64, u64, u64)> {
    let text = tool(world.path(), "nbdinfo", &["--map", "--json", uri]);
    let parsed: Value = serde_json::from_str(&text).unwrap();
    let field = |extent: &Value, name: &str| extent[name].as_u64().unwrap();
    parsed
        .as_array()
        .unwrap()
        .iter()
        .map(|extent| {
            (
                field(extent, "offset"),
                field(extent, "length"),
                field(extent, "type"),
            )
        })
        .collect()
}

#[test]
fn requests_legal_and_illegal() {
    let world = world();
    let server = world.serve("");
    world.succeeds("export add tank/data --name look --read-only");
    // The bindings belong to the system's interpreter, which need not be the first in the path.
    let uris = [server.uri("data"), server.uri("look")];
    let _ran = ["python3", "/usr/bin/python3"]
        .iter()
        .any(|python| runs(python, "protocol.py", &uris));
    stop_and_check(&world, server);
}

#[test]
fn images_and_loads_of_the_scripts() {
    let world = world();
    let server = world.serve("");
    runs("bash", "images.sh", &[server.uri("data")]);
    runs("bash", "load.sh", &[server.uri("data"), "8m".to_owned()]);
    stop_and_check(&world, server);
}

#[test]
fn trimmed_space_is_a_hole() {
    if !installed(&["nbdinfo", "nbdcopy", "qemu-io"]) {
        return;
    }
    const DATA: u64 = 0;
    const HOLE: u64 = 3;
    let (world, mib) = (world(), 1u64 << 20);
    std::fs::write(world.file("source"), Random(1).bytes(SIZE)).unwrap();
    let server = world.serve("");
    let uri = server.uri("data");
    assert_eq!(
        map(&world, &uri),
        [(0, SIZE as u64, HOLE)],
        "an empty volume is a hole"
    );
    let info: Value =
        serde_json::from_str(&tool(world.path(), "nbdinfo", &["--json", &uri])).unwrap();
    assert_eq!(info["exports"][0]["export-size"], SIZE);
    tool(world.path(), "nbdcopy", &["--flush", "source", &uri]);
    assert_eq!(map(&world, &uri), [(0, SIZE as u64, DATA)]);
    tool(
        world.path(),
        "qemu-io",
        &["-f", "raw", &uri, "-c", "discard 8M 16M", "-c", "flush"],
    );
    let expected = [
        (0, 8 * mib, DATA),
        (8 * mib, 16 * mib, HOLE),
        (24 * mib, SIZE as u64 - 24 * mib, DATA),
    ];
    assert_eq!(map(&world, &uri), expected);
    drop(server);
    let server = world.serve("");
    assert_eq!(map(&world, &uri), expected, "holes survive a crash");
    stop_and_check(&world, server);
}

#[test]
fn patterns_of_qemu_survive_a_restart() {
    if !installed(&["qemu-io", "qemu-img"]) {
        return;
    }
    let world = world();
    let server = world.serve("");
    let writes = [
        "write -P 17 1M 5M",
        "write -P 18 513k 512",
        "write -P 19 6M 3584",
        "write -z 3M 1M",
        "write -z -u 4M 64k",
        "discard 5M 64k",
        "write -f -P 20 2M 4k",
        "flush",
    ];
    let reads = [
        "read -P 17 1M 1M",
        "read -P 18 513k 512",
        "read -P 0 513.5k 3k",
        "read -P 19 6M 3584",
        "read -P 0 3M 1M",
        "read -P 0 4M 64k",
        "read -P 0 5M 64k",
        "read -P 20 2M 4k",
        "read -P 17 2052k 1020k",
    ];
    let io = |uri: &str, commands: &[&str]| {
        let arguments: Vec<&str> = ["-f", "raw", uri]
            .into_iter()
            .chain(commands.iter().flat_map(|command| ["-c", command]))
            .collect();
        let said = tool(world.path(), "qemu-io", &arguments);
        assert!(
            !said.contains("failed") && !said.contains("error"),
            "{said}"
        );
    };
    io(&server.uri("data"), &writes);
    io(&server.uri("data"), &reads);
    tool(
        world.path(),
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "qcow2",
            &server.uri("data"),
            "before.qcow2",
        ],
    );
    drop(server);
    let server = world.serve("");
    io(&server.uri("data"), &reads);
    tool(
        world.path(),
        "qemu-img",
        &[
            "compare",
            "-f",
            "qcow2",
            "-F",
            "raw",
            "before.qcow2",
            &server.uri("data"),
        ],
    );
    stop_and_check(&world, server);
}

#[test]
fn fio_verifies_again_after_a_restart() {
    if !installed(&["fio"])
        || !tool(Path::new("/"), "fio", &["--enghelp"])
            .split_whitespace()
            .any(|engine| engine == "nbd")
    {
        return eprintln!("skipped: fio or its nbd engine is not installed");
    }
    let world = world();
    let mut server = world.serve("");
    let uri = format!("--uri={}", server.uri("data"));
    let fio = |job: &[&str], more: &[&str]| {
        let fixed = [
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--randrepeat=1",
            "--thread=1",
            "--end_fsync=1",
        ];
        let arguments: Vec<&str> = fixed.iter().chain(job).chain(more).copied().collect();
        tool(world.path(), "fio", &arguments);
    };
    let whole = ["--name=whole", "--bs=4k", "--size=8m", "--iodepth=32"];
    // Half a sector of the volume's blocks: every write is a read-modify-write, many on the same
    // block at once.
    let parts = [
        "--name=parts",
        "--bs=512",
        "--blockalign=512",
        "--offset=16m",
        "--size=1m",
        "--iodepth=32",
    ];
    let mixed = [
        "--name=mixed",
        "--bssplit=512/30:1536/20:4k/20:10k/30",
        "--bs_unaligned=0",
        "--blockalign=512",
        "--offset=32m",
        "--size=4m",
        "--iodepth=16",
    ];
    for job in [&whole[..], &parts, &mixed] {
        fio(job, &[]);
    }
    for _ in 0..2 {
        drop(server);
        server = world.serve("");
        for job in [&whole[..], &parts] {
            fio(job, &["--verify_only=1"]);
        }
    }
    stop_and_check(&world, server);
}

#[test]
fn a_mounted_volume_holds_what_was_written() {
    if !Path::new("/dev/fuse").exists() {
        return eprintln!("skipped: there is no /dev/fuse");
    }
    if !installed(&["nbdfuse", "nbdcopy"]) {
        return;
    }
    let world = world();
    let server = world.serve("");
    let mut expected = vec![0; SIZE];
    {
        use std::os::unix::fs::FileExt;
        let Some(mounted) = Mounted::new(&world, &server.uri("data")) else {
            return;
        };
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&mounted.file)
            .unwrap();
        let mut random = Random(3);
        for _ in 0..200 {
            // nbdfuse leaves alignment to its user, and tools for file systems write two bytes.
            let length = if random.below(2) == 0 {
                2
            } else {
                1 + random.below(40_000) as usize
            };
            let at = random.below((SIZE - length) as u64) as usize;
            let bytes = random.bytes(length);
            file.write_all_at(&bytes, at as u64).unwrap();
            expected[at..at + length].copy_from_slice(&bytes);
        }
        file.sync_all().unwrap();
        assert!(
            std::fs::read(&mounted.file).unwrap() == expected,
            "the same bytes through the mount"
        );
    }
    drop(server);
    let server = world.serve("");
    tool(world.path(), "nbdcopy", &[&server.uri("data"), "copy"]);
    assert!(
        std::fs::read(world.file("copy")).unwrap() == expected,
        "the same bytes after a crash"
    );
    stop_and_check(&world, server);
}
