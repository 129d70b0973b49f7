//! Exports and their clients: no export is chosen for a client that names none, and none is taken
//! from a connected client without force.

use crate::support;

use serde_json::Value;
use support::{CREATE, World, both, nbd};

fn json(world: &World, line: &str) -> Value {
    serde_json::from_str(&world.succeeds(&format!("{line} -o json"))).expect("JSON")
}

fn fails(world: &World, line: &str, id: &str) -> String {
    let output = world.run(line);
    let said = both(&output);
    assert!(
        output.status.code() == Some(4) && said.contains(id),
        "{line}: {said}"
    );
    said
}

/// Size of the export that a client gets without a name.
fn unnamed(server: &support::Server) -> Option<u64> {
    nbd::Client::connect(&server.socket, "")
        .ok()
        .map(|client| client.size_bytes)
}

fn names(world: &World) -> Vec<String> {
    let list = json(world, "export list tank");
    list["exports"]
        .as_array()
        .expect("exports")
        .iter()
        .map(|export| export["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// True once the server has ended the connection.
fn is_closed(client: &mut nbd::Client) -> bool {
    client.flush(9);
    client.finish().is_err()
}

/// The default must not move to the next volume when its own is withdrawn or deleted: a
/// reconnecting client would write to that.
#[test]
fn the_default_export_is_named_and_never_moves() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("volume create tank/other 8M");
    let server = world.serve("");
    assert_eq!(unnamed(&server), None);
    world.succeeds("export add tank/data --default");
    assert_eq!(unnamed(&server), Some(16 << 20));
    assert!(server.stop());
    let server = world.serve("");
    assert_eq!(unnamed(&server), Some(16 << 20), "it is kept");
    world.succeeds("export rm tank/data");
    assert_eq!(unnamed(&server), None);
    assert!(server.stop());
    let server = world.serve("--default other");
    assert_eq!(
        (unnamed(&server), names(&world)),
        (Some(8 << 20), vec!["other".to_owned()])
    );
    assert!(server.stop());
    let server = world.serve("");
    assert_eq!(unnamed(&server), Some(8 << 20));
    // A later volume of the same name is another volume.
    world.succeeds("volume delete tank/other --yes");
    world.succeeds("volume create tank/other 12M");
    assert_eq!(unnamed(&server), None);
    world.succeeds("volume create tank/third 4M --default");
    assert_eq!(unnamed(&server), Some(4 << 20));
    world.succeeds("export rm tank/third --default");
    assert_eq!((unnamed(&server), names(&world).len()), (None, 2));
    assert!(server.stop());
    world.succeeds("export add tank/third --name alias");
    let said = fails(&world, "volume create tank/alias 4M", "WR-EXPORT-002");
    assert!(said.contains("'third'"), "{said}");
    let said = world
        .try_serve("--default nothing")
        .err()
        .expect("there is no such volume");
    assert!(said.contains("WR-VOLUME-001"), "{said}");
}

/// A volume must not be deleted or shrunk under a mounted file system without a warning about its
/// clients.
#[test]
fn commands_that_destroy_look_at_the_clients_first() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("volume create tank/first 4M --default");
    let mut server = world.serve("");
    let mut client = server.client();
    client.write(1, 0, &[7; 8192], false);
    assert_eq!(client.finish().expect("an answer").0, 0);
    let list = json(&world, "export list tank");
    let data = list["exports"]
        .as_array()
        .expect("exports")
        .iter()
        .find(|export| export["name"] == "data")
        .expect("it is served")
        .clone();
    let seen = &data["clients"][0];
    assert_eq!(
        (
            seen["writes"].as_u64(),
            seen["written_bytes"].as_u64(),
            seen["in_flight"].as_u64()
        ),
        (Some(1), Some(8192), Some(0))
    );
    assert!(
        seen["peer"]
            .as_str()
            .is_some_and(|peer| peer.contains(&format!("pid {}", std::process::id()))),
        "{seen}"
    );
    assert_eq!(
        json(&world, "pool status tank")["exports"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    let text = world.succeeds("export list tank");
    assert!(
        text.contains("CLIENTS") && text.contains("IN FLIGHT"),
        "{text}"
    );
    for command in [
        "volume delete tank/data --yes",
        "volume resize tank/data 8M --shrink",
        "export rm tank/data",
        "pool export tank",
    ] {
        let said = fails(&world, command, "WR-EXPORT-003");
        assert!(
            said.contains("1 client is connected")
                && said.contains(&format!("pid {}", std::process::id())),
            "{said}"
        );
    }
    world.succeeds("volume resize tank/data 20M");
    world.succeeds("volume resize tank/first 2M --shrink");
    // By the default, so that it is not replaced by another one either.
    let default = nbd::Client::connect(&server.socket, "").expect("the default");
    fails(&world, "export add tank/data --default", "WR-EXPORT-003");
    // Nor is it taken away from them.
    let said = fails(&world, "export rm tank/first --default", "WR-EXPORT-003");
    assert!(
        said.contains("1 client is connected")
            && said.contains(&format!("pid {}", std::process::id())),
        "{said}"
    );
    fails(
        &world,
        "export rm tank/data --default --force",
        "WR-EXPORT-001",
    );
    let mut default = default;
    world.succeeds("export rm tank/first --default --force");
    assert!(
        is_closed(&mut default) && unnamed(&server).is_none(),
        "it was disconnected"
    );
    world.succeeds("volume resize tank/data 8M --shrink --force");
    assert!(is_closed(&mut client), "it was disconnected");
    let client = server.client();
    assert_eq!(client.size_bytes, 8 << 20);
    world.succeeds("volume delete tank/data --yes --force");
    assert_eq!(names(&world), ["first"]);
    let first = nbd::Client::connect(&server.socket, "first").expect("it is there");
    world.succeeds("pool export tank --force");
    while server.is_running() {
        std::thread::yield_now();
    }
    drop((client, first));
}

#[test]
fn clients_are_disconnected_by_hand() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    let (mut one, mut two) = (server.client(), server.client());
    let list = json(&world, "export list tank");
    let number = list["exports"][0]["clients"][1]["client"]
        .as_u64()
        .expect("a number");
    assert_eq!(
        json(&world, &format!("export disconnect tank --client {number}"))["clients"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert!(is_closed(&mut two));
    fails(
        &world,
        &format!("export disconnect tank --client {number}"),
        "WR-EXPORT-004",
    );
    fails(&world, "export disconnect tank/nothing", "WR-EXPORT-001");
    assert!(
        world
            .succeeds("export disconnect tank/data")
            .contains("1 client disconnected")
    );
    assert!(is_closed(&mut one));
    drop(server.client());
}

/// The exports outlive an export of the pool: withdrawn volumes and volumes made elsewhere must not
/// be served on its return.
#[test]
fn exports_are_kept_for_the_return_of_a_pool_and_nothing_is_opened_elsewhere() {
    let (here, elsewhere) = (World::with_volume(CREATE, "16M"), World::new());
    here.succeeds("volume create tank/secret 4M");
    here.succeeds("export rm tank/secret");
    here.succeeds("export add tank/data --name look --read-only --default");
    here.succeeds("pool export tank");
    let members = |world: &World| ["m0", "m1", "m2", "m3"].map(|name| world.file(name));
    let carry = |from: &World, to: &World| {
        members(from)
            .iter()
            .zip(members(to))
            .for_each(|(from, to)| assert!(std::fs::copy(from, to).is_ok(), "a copy"))
    };
    carry(&here, &elsewhere);
    let server = elsewhere.serve("--dir .");
    assert_eq!(
        (
            names(&elsewhere).len(),
            server.ready["not_served"].as_array().map(Vec::len)
        ),
        (0, Some(2))
    );
    assert_eq!(unnamed(&server), None);
    elsewhere.succeeds("export add tank/secret");
    elsewhere.succeeds("volume create tank/made 4M");
    assert_eq!(
        names(&elsewhere),
        ["secret", "made"],
        "what is made here is served, and what is named"
    );
    assert!(
        elsewhere
            .succeeds("export list tank")
            .contains("not served: data")
    );
    assert!(server.stop());
    elsewhere.succeeds("pool export tank");
    carry(&elsewhere, &here);
    let said = here.succeeds("pool import tank --dir .");
    assert!(
        said.contains("'made' was made elsewhere and is not served"),
        "{said}"
    );
    let server = here.serve("");
    assert_eq!(
        (names(&here), unnamed(&server)),
        (vec!["look".to_owned(), "data".to_owned()], Some(16 << 20))
    );
}

/// Options that give something up never apply to a pool only because it is the only one in a
/// folder. No served pool is replaced in the registry.
#[test]
fn force_needs_a_name_and_a_served_pool_is_not_replaced() {
    let (here, other) = (
        World::with_volume(CREATE, "16M"),
        World::with_volume(CREATE, "16M"),
    );
    for command in [
        "pool import --dir . --force",
        "pool import --dir . --discard-journal",
        "serve --dir . --force",
        "serve --dir . --replace-known",
    ] {
        fails(&here, command, "WR-CLI-001");
    }
    let server = here.serve("");
    let dir = other.path().display();
    for command in [
        format!("pool import tank --replace-known --dir {dir}"),
        format!("serve tank --replace-known --dir {dir}"),
    ] {
        fails(&here, &command, "WR-POOL-005");
    }
    for more in ["", "--dry-run"] {
        fails(
            &here,
            &format!(
                "pool create --redundancy 0 --size 64M --sparse --replace-known tank n0 {more}"
            ),
            "WR-POOL-005",
        );
    }
    fails(
        &here,
        "pool create --redundancy 0 --size 64M --sparse --force tank n0",
        "WR-POOL-002",
    );
    here.succeeds("export add tank/data --name more");
    assert!(server.stop());
}

/// Under the old name, `export rm` of the new one would miss them, and a new volume of the old name
/// would have them.
#[test]
fn clients_follow_the_new_name_of_their_volume() {
    let world = World::with_volume(CREATE, "16M");
    let server = world.serve("");
    let clients = |name: &str| {
        let list = json(&world, "export list tank");
        let export = list["exports"]
            .as_array()
            .and_then(|exports| exports.iter().find(|export| export["name"] == name));
        export.map(|export| export["clients"].as_array().map_or(0, Vec::len))
    };
    let client = server.client();
    world.succeeds("volume rename tank/data archive");
    assert_eq!((clients("archive"), clients("data")), (Some(1), None));
    fails(&world, "export rm tank/archive", "WR-EXPORT-003");
    world.succeeds("volume create tank/data 4M");
    assert_eq!((clients("archive"), clients("data")), (Some(1), Some(0)));
    world.succeeds("export rm tank/data");
    drop(client);
    // A read-only export stays read-only.
    world.succeeds("export add tank/data --read-only");
    world.succeeds("volume rename tank/data other");
    let list = json(&world, "export list tank");
    let other: Vec<_> = list["exports"]
        .as_array()
        .expect("exports")
        .iter()
        .filter(|export| export["volume"] == "other")
        .collect();
    assert!(
        other.len() == 1 && other[0]["name"] == "other" && other[0]["read_only"] == true,
        "{list}"
    );
    // The default of the export that already is the default takes nothing away from its clients.
    world.succeeds("export add tank/archive --default");
    let default = nbd::Client::connect(&server.socket, "").expect("the default");
    world.succeeds("export add tank/archive --default");
    drop(default);
    assert!(server.stop());
}

/// If the host goes down without an export and another one takes the pool, volumes made there must
/// not be served when the pool returns.
#[test]
fn what_was_made_elsewhere_is_not_served_where_the_pool_is_known_still() {
    let (here, elsewhere) = (World::with_volume(CREATE, "16M"), World::new());
    let members = |world: &World| ["m0", "m1", "m2", "m3"].map(|name| world.file(name));
    let carry = |from: &World, to: &World| {
        members(from)
            .iter()
            .zip(members(to))
            .for_each(|(from, to)| assert!(std::fs::copy(from, to).is_ok(), "a copy"))
    };
    carry(&here, &elsewhere);
    elsewhere.succeeds("pool import tank --dir .");
    elsewhere.succeeds("volume create tank/secret 4M");
    elsewhere.succeeds("pool export tank");
    carry(&elsewhere, &here);
    // A command at rest opens the pool, but is no start.
    here.succeeds("volume create tank/mine 4M");
    for _ in 0..2 {
        let server = here.serve("");
        assert_eq!(names(&here), ["data", "mine"]);
        assert!(
            here.succeeds("export list tank")
                .contains("not served: secret")
        );
        assert!(server.stop());
    }
    here.succeeds("export add tank/secret");
    let server = here.serve("");
    assert_eq!(names(&here), ["data", "secret", "mine"]);
    assert!(server.stop());
}

/// The command must not open the pool for writing only to find no client.
#[test]
fn a_pool_at_rest_is_not_opened_to_disconnect_clients() {
    let world = World::with_volume(CREATE, "4M");
    let before = std::fs::read(world.file("m0")).expect("a member");
    let said = fails(&world, "export disconnect tank", "WR-CLI-002");
    assert!(said.contains("no daemon serves pool 'tank'"), "{said}");
    assert!(std::fs::read(world.file("m0")).expect("a member") == before);
}

/// A refused start must not leave the pool as after a crash.
#[test]
fn a_start_that_is_refused_ends_the_pool() {
    let world = World::with_volume(CREATE, "4M");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    for (line, id) in [
        ("--default nothing".to_owned(), "WR-VOLUME-001"),
        (format!("--nbd tcp:{address}"), "WR-SERVE-001"),
    ] {
        let said = world.try_serve(&line).err().expect("a refusal");
        assert!(said.contains(id), "{said}");
        let server = world.serve("");
        assert_eq!(server.ready["recovery"]["clean"], true, "{line}");
        assert!(server.stop());
    }
}

/// A daemon whose socket is not in the run folder.
#[test]
fn a_daemon_with_a_socket_elsewhere_is_found() {
    let world = World::with_volume(CREATE, "4M");
    let server = world.serve("--control elsewhere.socket");
    let list = json(&world, "pool list");
    assert!(
        list["pools"]
            .as_array()
            .is_some_and(|pools| pools.iter().any(|pool| pool["name"] == "tank")),
        "{list}"
    );
    assert!(world.succeeds("volume list tank").contains("data"));
    assert!(world.succeeds("pool status tank").contains("tank"));
    let other = World::with_volume(CREATE, "4M");
    fails(
        &world,
        &format!(
            "pool import tank --replace-known --dir {}",
            other.path().display()
        ),
        "WR-POOL-005",
    );
    assert!(server.stop());
    assert!(
        world.succeeds("volume list tank").contains("data"),
        "at rest"
    );
}
