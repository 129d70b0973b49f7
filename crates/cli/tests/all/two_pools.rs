//! Two pools of one name: the one that is known or served here, and one of another machine whose
//! drives are plugged in.

use crate::support;

use support::{CREATE, World, both};

/// A world with a served pool `tank`, and the world of another pool of that name.
fn worlds() -> (World, World) {
    (
        World::with_volume(CREATE, "16M"),
        World::with_volume(CREATE, "16M"),
    )
}

fn id_of(world: &World) -> String {
    let status: serde_json::Value =
        serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON");
    status["pool"].as_str().expect("an identifier").to_owned()
}

/// With the drives of the other pool named, the command must not go to the daemon that is served
/// here, and delete its volume.
#[test]
fn named_members_select_their_pool() {
    let (here, other) = worlds();
    let server = here.serve("");
    let dir = other.path().display();
    let other_id = id_of(&other);
    for command in [
        "volume delete tank/data --yes",
        "volume resize tank/data 8M --shrink",
        "pool export tank",
        "pool set tank spare=20%",
        "export list tank",
    ] {
        let refused = here.run(&format!("{command} --dir {dir}"));
        let said = both(&refused);
        assert!(
            refused.status.code() == Some(4)
                && said.contains("WR-POOL-001")
                && said.contains(&other_id),
            "{command}: {said}"
        );
    }
    assert!(
        here.succeeds("volume list tank").contains("data")
            && other.succeeds("volume list tank").contains("data")
    );
    // The served one is found by its members' places, and the other one by its identifier.
    here.succeeds(&format!(
        "volume resize tank/data 20M --members {}",
        ["m0", "m1", "m2", "m3"].join(",")
    ));
    here.succeeds(&format!("volume delete {other_id}/data --yes --dir {dir}"));
    assert!(
        here.succeeds("volume list tank").contains("data")
            && !other.succeeds("volume list tank").contains("data")
    );
    // A command that needs a pool at rest gets one.
    here.succeeds(&format!("check tank --dir {dir}"));
    here.succeeds(&format!("pool destroy tank --yes --dir {dir}"));
    let busy = here.run("check tank --dir .");
    assert!(
        busy.status.code() == Some(8) && both(&busy).contains("WR-POOL-005"),
        "{}",
        both(&busy)
    );
    assert!(server.stop());
    here.check().expect("the pool that was served is whole");
}

/// A copy has the identifier of its original: a deletion in the copy must not reach the served
/// pool.
#[test]
fn a_copy_of_a_served_pool_is_not_the_served_pool() {
    let world = World::with_volume(CREATE, "16M");
    std::fs::create_dir(world.file("clone")).expect("a folder");
    for member in ["m0", "m1", "m2", "m3"] {
        std::fs::copy(world.file(member), world.file("clone").join(member)).expect("a copy");
    }
    let server = world.serve("");
    let all = "--members clone/m0,clone/m1,clone/m2,clone/m3";
    for place in [
        "--dir clone",
        all,
        "--members m0,clone/m1",
        "--members clone/m1,m0",
    ] {
        for command in [
            "volume delete tank/data --yes",
            "pool set tank spare=20%",
            "pool status tank",
            "export list tank",
        ] {
            let refused = world.run(&format!("{command} {place}"));
            let said = both(&refused);
            assert!(
                refused.status.code() == Some(4)
                    && said.contains("WR-POOL-001")
                    && said.contains("a copy of a member"),
                "{command} {place}: {said}"
            );
        }
    }
    // A copy in the folder of the served members names no other pool.
    std::fs::copy(world.file("clone/m0"), world.file("m0.bak")).expect("a copy");
    for place in ["--dir .", "--members m0,m1,m2,m3", "--members m2"] {
        assert!(
            world
                .succeeds(&format!("volume list tank {place}"))
                .contains("data"),
            "{place}"
        );
    }
    assert!(server.stop());
    world.succeeds("volume delete tank/data --yes --dir clone");
    assert!(
        world
            .succeeds("volume list tank --members m0,m1,m2,m3")
            .contains("data")
    );
}

/// Registry data of a pool (paths, exports) must not be used for, or lost to, another pool of its
/// name.
#[test]
fn registry_data_of_a_pool_is_not_used_for_another() {
    let (here, other) = worlds();
    here.succeeds("export add tank/data --name kept --read-only");
    let dir = other.path().display();
    let other_id = id_of(&other);
    assert!(
        !here
            .succeeds(&format!("export list {other_id} --dir {dir}"))
            .contains("kept")
    );
    for command in [
        "pool import tank",
        "serve tank",
        &format!("export add {other_id}/data --name more"),
    ] {
        let said = both(&here.run(&format!("{command} --dir {dir}")));
        assert!(
            said.contains("WR-CLI-003")
                && said.contains("another pool of the name 'tank' is known"),
            "{command}: {said}"
        );
    }
    here.succeeds(&format!("volume delete {other_id}/data --yes --dir {dir}"));
    here.succeeds(&format!("pool offline {other_id} 1 --dir {dir}"));
    here.succeeds(&format!("pool export {other_id} --dir {dir}"));
    assert!(
        here.succeeds("export list tank").contains("kept"),
        "nothing of it was forgotten"
    );
    // Permission for one thing is no permission for another.
    let said = both(&here.run(&format!("pool import tank --force --dir {dir}")));
    assert!(
        said.contains("another pool of the name 'tank' is known")
            && said.contains("--replace-known"),
        "{said}"
    );
    here.succeeds(&format!("pool import tank --replace-known --dir {dir}"));
    assert_eq!(id_of(&here), other_id);
}

/// The entry must go: the next command would open the exported pool.
#[test]
fn a_pool_that_is_exported_by_its_identifier_is_forgotten() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds(&format!("pool export {} --dir .", id_of(&world)));
    let said = both(&world.run("pool status tank"));
    assert!(said.contains("WR-POOL-001"), "{said}");
}

/// Data on a member is reported before the known name: advice to give --force would erase it
/// unseen.
#[test]
fn data_on_a_member_is_reported_before_a_known_name() {
    let world = World::with_volume(CREATE, "16M");
    let create = |more: &str| format!("pool create tank n0 n1 --redundancy 0 --size 64M {more}");
    std::fs::File::create(world.file("n1"))
        .and_then(|file| file.set_len(64 << 20))
        .expect("a file");
    std::fs::write(world.file("n0"), vec![7; 64 << 20]).expect("foreign data");
    let said = both(&world.run(&create("")));
    assert!(
        said.contains("WR-MEMBER-002") && said.contains("n0") && !said.contains("is known already"),
        "{said}"
    );
    std::fs::write(world.file("n0"), vec![0; 64 << 20]).expect("it is gone");
    let said = both(&world.run(&create("")));
    assert!(said.contains("is known already"), "{said}");
    // Permission to erase members is no permission to replace another pool in the registry.
    let said = both(&world.run(&create("--force")));
    assert!(
        said.contains("is known already") && said.contains("--replace-known"),
        "{said}"
    );
    assert!(!world.succeeds("pool status tank").contains("n0"));
    world.succeeds(&create("--replace-known"));
    assert!(world.succeeds("pool status tank").contains("n0"));
}

/// One member that was destroyed on another machine, as if it were the whole pool, must not keep
/// the others from starting.
#[test]
fn half_of_a_pool_is_destroyed_only_on_request() {
    let (here, elsewhere) = (World::with_volume(CREATE, "16M"), World::new());
    here.succeeds("pool export tank");
    std::fs::copy(here.file("m3"), elsewhere.file("m3")).expect("the member goes there");
    let refused = elsewhere.run("pool destroy tank --yes --dir .");
    assert!(
        refused.status.code() == Some(4) && both(&refused).contains("WR-POOL-012"),
        "{}",
        both(&refused)
    );
    elsewhere.succeeds("pool destroy tank --yes --partial --dir .");
    std::fs::copy(elsewhere.file("m3"), here.file("m3")).expect("and comes back");
    let said = both(&here.run("pool import tank --dir ."));
    assert!(
        said.contains("destroyed") && said.contains("name them with --members"),
        "{said}"
    );
    here.succeeds("pool import tank --members m0,m1,m2");
}

/// With the socket of `tank`, `volume delete pond/data` must not delete in `tank` and report
/// `pond`.
#[test]
fn a_socket_of_another_pool_is_refused_by_every_command() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("pool create --redundancy 0 --size 64M --sparse pond p0");
    world.succeeds("volume create pond/data 16M");
    let server = world.serve("--control tank.socket");
    let tank = id_of_served(&world);
    for line in [
        "pool status pond",
        "pool get pond",
        "pool set pond spare=20%",
        "pool export pond",
        "pool destroy pond --yes",
        "pool replace pond 0 new --create-files",
        "pool offline pond 0",
        "pool online pond 0",
        "pool add pond new --create-files",
        "pool add pond --spare new --create-files",
        "pool add pond --journal new --create-files",
        "pool remove pond 0",
        "pool scrub pond",
        "volume create pond/more 16M",
        "volume list pond",
        "volume resize pond/data 8M --shrink",
        "volume sync pond/data always",
        "volume set pond/data --compression lz4",
        "volume delete pond/data --yes",
        "export add pond/data --name more",
        "export list pond",
        "export rm pond/data",
        "stats pond",
        "check pond",
        "windrow-lab trace record pond/data t.wtrc --for 1s",
    ] {
        let refused = world.run(&format!("{line} --control tank.socket"));
        let text = both(&refused);
        assert!(
            !refused.status.success()
                && text.contains("'pond'")
                && text.contains("'tank'")
                && text.contains(&tank),
            "{line}: {text}"
        );
    }
    assert!(
        !world.file("new").exists(),
        "nothing was made for a command that was refused"
    );
    for line in [
        "volume list tank --control tank.socket",
        &format!("volume list {tank} --control tank.socket"),
        "volume list pond",
    ] {
        assert!(world.succeeds(line).contains("data"), "{line}");
    }
    assert!(server.stop());
}

fn id_of_served(world: &World) -> String {
    let status: serde_json::Value =
        serde_json::from_str(&world.succeeds("pool status tank -o json --control tank.socket"))
            .expect("JSON");
    status["pool"].as_str().expect("an identifier").to_owned()
}

/// Sockets have the names of pools: a served pool is found by its identifier, too.
#[test]
fn a_served_pool_is_found_by_its_identifier() {
    let world = World::with_volume(CREATE, "16M");
    let id = id_of(&world);
    let server = world.serve("");
    assert!(
        world
            .succeeds(&format!("volume list {id}"))
            .contains("data")
    );
    assert!(server.stop());
    // At rest, too: its members are no block devices, and known only by its entry.
    assert!(
        world
            .succeeds(&format!("volume list {id}"))
            .contains("data")
            && world
                .succeeds(&format!("pool status {id}"))
                .contains("tank")
    );
    let said = both(&world.run(&format!("pool rename tank {id}")));
    assert!(
        said.contains("WR-CLI-001") && said.contains("the form of an identifier"),
        "{said}"
    );
}

#[test]
fn a_pool_has_another_name() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("pool create --redundancy 0 --size 64M --sparse pond p0");
    world.succeeds("export add tank/data --name kept --read-only");
    let id = id_of(&world);
    for (line, code) in [
        ("pool rename tank pond", "WR-POOL-006"),
        ("pool rename tank a/b", "WR-CLI-001"),
        ("pool rename nothing x", "WR-POOL-001"),
    ] {
        let said = both(&world.run(line));
        assert!(said.contains(code), "{line}: {said}");
    }
    let server = world.serve("");
    let said = both(&world.run("pool rename tank archive"));
    assert!(said.contains("WR-POOL-005"), "{said}");
    assert!(server.stop());
    let before = std::fs::read(world.file("state/pools/tank.json")).expect("an entry");
    world.succeeds("pool rename tank archive");
    assert!(both(&world.run("pool status tank")).contains("WR-POOL-001"));
    assert!(
        world.succeeds("export list archive").contains("kept")
            && world.succeeds("pool status archive").contains(&id)
    );
    world.succeeds("check archive --payload");
    // The entry of the old name, as a crash leaves it: the pool is shown once, and found by both.
    std::fs::write(world.file("state/pools/tank.json"), before).expect("an entry");
    let all = world.succeeds("pool status");
    assert_eq!(all.matches(&id).count(), 1, "{all}");
    assert!(world.succeeds("pool status tank").contains("archive"));
    world.succeeds("pool rename tank archive");
    assert!(!world.file("state/pools/tank.json").exists());
}

/// A rename is a log record: in effect after a kill, in a salvage, and for an inspection.
#[test]
fn a_volume_has_another_name() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("volume create tank/other 16M");
    let server = world.serve("");
    world.succeeds("export add tank/data --name look --read-only");
    for (line, id) in [
        ("volume rename tank/data other", "WR-VOLUME-002"),
        ("volume rename tank/nothing x", "WR-VOLUME-001"),
        ("volume rename tank/data a/b", "WR-POOL-006"),
        ("volume rename tank/other look", "WR-EXPORT-002"),
    ] {
        let said = both(&world.run(line));
        assert!(said.contains(id), "{line}: {said}");
    }
    world.succeeds("volume rename tank/data archive");
    let exports = world.succeeds("export list tank");
    assert!(
        !exports.contains("data") && exports.matches("archive").count() == 3,
        "{exports}"
    );
    let mut client =
        support::nbd::Client::connect(&server.socket, "archive").expect("it has the new name");
    client.write(1, 0, &[7; 4096], true);
    assert_eq!(client.finish().expect("an answer").0, 0);
    drop(client);
    server.kill();
    world.check().expect("sound");
    assert!(
        world
            .succeeds("check tank --rebuild-map")
            .contains("archive")
    );
    for _ in 0..2 {
        let volumes = world.succeeds("volume list tank");
        assert!(
            volumes.contains("archive") && !volumes.contains("data"),
            "{volumes}"
        );
        assert!(world.serve("").stop());
    }
    // Its old name is free.
    world.succeeds("volume create tank/data 16M");
    world.succeeds("volume rename tank/other third");
    assert!(world.succeeds("export list tank").contains("third"));
}
