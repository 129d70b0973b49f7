//! Foreign file systems in a volume: copied in, flushed, the daemon killed, copied out again. Their
//! own checkers find them clean, and every byte is the same. A test is skipped with a message if a
//! program is missing.

use crate::support;

use std::fs::File;
use std::path::Path;
use support::{Random, World, installed, tool};

/// Files of many sizes in some folders.
fn some_files(dir: &Path) {
    let mut random = Random(5);
    for folder in 0..4 {
        let folder = dir.join(format!("folder-{folder}"));
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..12 {
            let length = 1 << random.below(20);
            std::fs::write(folder.join(format!("file-{number}")), random.bytes(length)).unwrap();
        }
    }
    std::os::unix::fs::symlink("folder-0/file-0", dir.join("link")).unwrap();
}

fn sparse(world: &World, name: &str, mib: u64) {
    File::create(world.file(name))
        .unwrap()
        .set_len(mib << 20)
        .unwrap();
}

fn same(world: &World, one: &str, other: &str) -> bool {
    std::fs::read(world.file(one)).unwrap() == std::fs::read(world.file(other)).unwrap()
}

/// Copies `image` in, kills the daemon after the flush, and copies it out as `copy`.
fn through_a_crash(world: &World) {
    let server = world.serve("--volatile-cache 11");
    let uri = server.uri("data");
    tool(world.path(), "nbdcopy", &["--flush", "image", &uri]);
    server.kill();
    let server = world.serve("--volatile-cache 12");
    tool(world.path(), "nbdcopy", &[&uri, "copy"]);
    assert!(
        same(world, "image", "copy"),
        "every byte is the same after the crash"
    );
    assert!(server.stop(), "the daemon ends cleanly");
    world.check().unwrap();
}

#[test]
fn ext4_survives_a_crash() {
    if !installed(&["mke2fs", "e2fsck", "debugfs", "nbdcopy"]) {
        return;
    }
    let world = World::with_volume(support::CREATE, "64M");
    some_files(&world.file("files"));
    sparse(&world, "image", 64);
    tool(
        world.path(),
        "mke2fs",
        &["-q", "-t", "ext4", "-d", "files", "image"],
    );
    through_a_crash(&world);
    tool(world.path(), "e2fsck", &["-fn", "copy"]);
    tool(
        world.path(),
        "debugfs",
        &["-R", "dump folder-1/file-3 dumped", "copy"],
    );
    assert!(
        same(&world, "files/folder-1/file-3", "dumped"),
        "a file of the file system"
    );
}

#[test]
fn xfs_survives_a_crash() {
    if !installed(&["mkfs.xfs", "xfs_repair", "nbdcopy"]) {
        return;
    }
    let world = World::with_volume(
        "pool create --redundancy 6 --size 256M --sparse --segment 1M --chunk 128K tank m0 m1 m2 m3 m4",
        "320M",
    );
    sparse(&world, "image", 320);
    tool(world.path(), "mkfs.xfs", &["-q", "-f", "image"]);
    through_a_crash(&world);
    tool(world.path(), "xfs_repair", &["-n", "-f", "copy"]);
}
