//! Files that commands write.

use crate::support::{CREATE, World, both};

/// An output file must not replace an existing file, such as a member at rest.
#[test]
fn an_output_file_never_replaces_a_member() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("windrow-lab trace generate uniform t.wtrc --requests 10 --size 1M");
    let before = std::fs::read(world.file("m0")).expect("a member");
    for line in [
        "windrow-lab trace generate uniform m0 --requests 10 --size 1M",
        "windrow-lab trace convert t.wtrc m0",
        "windrow-lab trace plot t.wtrc m0",
        "windrow-lab trace plot t.wtrc p.svg --report m0",
    ] {
        let output = world.run(line);
        let said = both(&output);
        assert!(
            output.status.code() == Some(4)
                && said.contains("windrow: WR-MEMBER-002: will not replace m0: it is member 0 of"),
            "{line}: {said}"
        );
        assert!(
            std::fs::read(world.file("m0")).expect("still there") == before,
            "{line}"
        );
    }
    let _socket = std::os::unix::net::UnixListener::bind(world.file("socket")).expect("a socket");
    let other = world.run("windrow-lab trace convert t.wtrc socket");
    assert!(
        other.status.code() == Some(4) && both(&other).contains("not a regular file"),
        "{}",
        both(&other)
    );
    world.succeeds("windrow-lab trace convert t.wtrc again.wtrc");
    world.succeeds("windrow-lab trace convert t.wtrc again.wtrc");
    world.check().expect("a sound pool");
}
