//! What is around the command: files and folders of others, a full disk behind standard output, a terminal that goes, a pool that cannot be opened beside one
//! that can. Nothing is lost or replaced by it, and the exit code tells.

mod support;

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
