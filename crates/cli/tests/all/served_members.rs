//! Members that a daemon of this host has are opened by no other command: the kernel reports each
//! file that is opened.

use crate::support::{CREATE, World, both};
use rustix::fs::inotify;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Counts opens of files.
struct Opened(OwnedFd);

impl Opened {
    fn watch(paths: &[impl AsRef<Path>]) -> Self {
        let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)
            .expect("a watch");
        for path in paths {
            inotify::add_watch(&fd, path.as_ref(), inotify::WatchFlags::OPEN).expect("watched");
        }
        Self(fd)
    }

    /// True if one was opened since the last look.
    fn look(&self) -> bool {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut room);
        let mut found = false;
        while reader.next().is_ok() {
            found = true;
        }
        found
    }
}

const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];

#[test]
fn no_command_opens_a_member_that_is_served() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds(
        "pool create --redundancy 5 --size 64M --sparse --segment 256K --chunk 64K other n0 n1 n2",
    );
    std::os::unix::fs::symlink(world.file("m1"), world.file("link")).expect("a link");
    std::fs::hard_link(world.file("m2"), world.file("alias")).expect("a name");
    let server = world.serve("");
    let process = format!("process {} serves", server.id());
    let opened = Opened::watch(&MEMBERS.map(|name| world.file(name)));
    for line in [
        "pool list --dir .",
        "pool list",
        "pool status",
        "pool status tank",
        "pool status --dir .",
        "volume list tank --members m0,m1,link,m3",
        "volume list tank --dir .",
        "inspect-id --udev m0",
        "pool status other --dir .",
        "pool import other --dir .",
        "check other --dir .",
    ] {
        let said = world.succeeds(line);
        assert!(!opened.look(), "{line} has opened a member");
        assert!(
            !line.ends_with("--dir .")
                || line.contains("other")
                || line.contains("volume")
                || said.contains("tank"),
            "{line}: {said}"
        );
    }
    for line in [
        "inspect m0",
        "inspect link",
        "inspect m0 m1 m2 m3 --segment 0",
        "pool import tank",
        "pool import tank --dir .",
        "pool import --members m0,m1,m2,m3",
        "pool create --dry-run --redundancy 5 new m0 n1 n2",
        "pool create --redundancy 5 --force --size 64M new x0 link x2",
        "pool add other --spare alias",
        "pool add other --spare m3 --overwrite",
        "pool replace other 0 m3 --overwrite",
        "serve tank",
        "serve --members m0,m1,m2,m3 --control elsewhere",
        "volume estimate compress m0",
    ] {
        let refused = world.run(line);
        assert!(
            !refused.status.success() && both(&refused).contains(&process),
            "{line}: {}",
            both(&refused)
        );
        assert!(!opened.look(), "{line} has opened a member");
    }
    for line in [
        "check tank",
        "check tank --members m0,m1,m2,m3",
        "check tank --dir .",
    ] {
        let refused = world.run(line);
        assert!(
            !refused.status.success() && both(&refused).contains("WR-POOL-005"),
            "{line}: {}",
            both(&refused)
        );
        assert!(!opened.look(), "{line} has opened a member");
    }
    // The watch works: at rest a member is opened as usual.
    assert!(server.stop());
    world.succeeds("inspect m0");
    assert!(opened.look());
    world.check().expect("sound");
}

/// A daemon whose socket is elsewhere is known by the registry.
#[test]
fn a_daemon_with_a_socket_of_its_own_is_asked_too() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("--control own.control");
    let opened = Opened::watch(&MEMBERS.map(|name| world.file(name)));
    for line in [
        "inspect m0",
        "pool create --dry-run --redundancy 5 new m0 x1 x2",
        "pool import tank",
    ] {
        let refused = world.run(line);
        assert!(
            both(&refused).contains(&format!("process {} serves", server.id())),
            "{line}: {}",
            both(&refused)
        );
    }
    assert!(!opened.look());
    world.succeeds("volume list tank --control own.control");
    assert!(server.stop());
}
