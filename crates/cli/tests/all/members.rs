//! Members that leave and return, from the administrator's side.

use crate::support;

use serde_json::Value;
use std::time::{Duration, Instant};
use support::nbd::Client;
use support::pieces::{PIECE, fill, member_state, piece, status};
use support::{CREATE, Random, World, both};

const PIECES: u64 = 64;

fn wait_for(world: &World, member: usize, state: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while member_state(world, member) != state {
        assert!(
            Instant::now() < end,
            "member {member} is {}",
            member_state(world, member)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_at(world: &World, member: usize, name: &str) -> bool {
    status(world)["members"][member]["path"]
        .as_str()
        .is_some_and(|path| path.ends_with(&format!("/{name}")))
}

fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "it does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_drive_that_was_unplugged_is_rebuilt_when_it_is_back() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    drop(client);
    assert!(server.stop());
    std::fs::rename(world.file("m2"), world.file("elsewhere")).expect("unplugged");
    // Nothing fails in such a start, but the administrator must be notified.
    let server = world.serve("--event-command cat>>events");
    assert_eq!(
        (
            member_state(&world, 2).as_str(),
            world.run("pool status tank --exit-code").status.code()
        ),
        ("missing", Some(1))
    );
    let end = Instant::now() + Duration::from_secs(30);
    while !std::fs::read_to_string(world.file("events"))
        .is_ok_and(|events| events.contains("\"event\":\"member_missing\",\"member\":2"))
    {
        assert!(
            Instant::now() < end,
            "no event: {:?}",
            std::fs::read_to_string(world.file("events"))
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut client = server.client();
    fill(&mut client, 10, 2);
    drop(client);
    server.kill();
    std::fs::rename(world.file("elsewhere"), world.file("m2")).expect("plugged in");
    let server = world.serve("--members m0,m1,m2,m3");
    wait_for(&world, 2, "online");
    let shown = status(&world);
    let written = shown["members"][2]["counters"]["written"]["rebuild"]
        .as_u64()
        .expect("a number");
    assert!(
        written > 0 && written < PIECES * PIECE as u64 / 6,
        "{written} bytes: only what it missed"
    );
    assert_eq!(
        world.run("pool status tank --exit-code").status.code(),
        Some(0)
    );
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    std::fs::rename(world.file("m0"), world.file("elsewhere")).expect("another one is unplugged");
    let server = world.serve("");
    let mut client = server.client();
    let all = client.read_all().expect("everything");
    for number in 0..PIECES {
        let round = if number < 10 { 2 } else { 1 };
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, round),
            "piece {number}"
        );
    }
    drop(client);
    assert!(server.stop());
}

#[test]
fn a_dead_drive_is_replaced_and_the_new_one_carries_the_pool() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    drop(client);
    assert!(server.stop());
    std::fs::remove_file(world.file("m1")).expect("dead");
    for (line, says) in [
        ("pool replace tank 9 new", "no member"),
        (
            "pool replace tank 1 m2",
            "member 2 of the windrow pool 'tank'",
        ),
        (
            "pool replace tank m0 m0",
            "member 0 of the windrow pool 'tank'",
        ),
    ] {
        let output = world.run(line);
        let text = support::both(&output);
        assert!(
            output.status.code() == Some(4) && text.contains(says),
            "{line}: {text}"
        );
    }
    std::fs::write(world.file("small"), vec![0; 4 << 20]).expect("a small file");
    let small = world.run("pool replace tank 1 small");
    assert!(
        support::both(&small).contains("needs"),
        "{}",
        support::both(&small)
    );
    world.succeeds("pool replace tank 1 new --create-files --sparse");
    let server = world.serve("");
    wait_for(&world, 1, "online");
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    std::fs::remove_file(world.file("m3")).expect("another one dies");
    let server = world.serve("");
    let all = server.client().read_all().expect("everything");
    (0..PIECES).for_each(|number| {
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, 1),
            "piece {number}"
        )
    });
    assert!(server.stop());
}

/// At boot devices appear one after the other. A loss recorded at once would keep the member out.
#[test]
fn a_start_waits_for_members_and_records_no_loss_before() {
    let world = World::with_volume(CREATE, "64M");
    std::fs::rename(world.file("m2"), world.file("elsewhere")).expect("not there yet");
    let superblock = || status(&world)["generation"].as_u64().expect("a number");
    let before = superblock();
    // More is missing than the redundancy covers.
    std::fs::rename(world.file("m1"), world.file("elsewhere_too")).expect("not there yet");
    let waiting = world.start("--wait-for-members 600");
    let told = |what: &str| {
        std::fs::read_to_string(world.file("serve.log")).is_ok_and(|log| log.contains(what))
    };
    until(|| told("waiting up to 600 s for member 1, 2"));
    std::fs::rename(world.file("elsewhere_too"), world.file("m1")).expect("there");
    std::fs::rename(world.file("elsewhere"), world.file("m2")).expect("there");
    let server = world.ready(waiting).expect("it is served");
    assert_eq!(
        (
            member_state(&world, 1).as_str(),
            member_state(&world, 2).as_str()
        ),
        ("online", "online")
    );
    assert!(superblock() > before);
    assert!(server.stop());
    // The patience ends, and a wait ends with the process.
    std::fs::rename(world.file("m2"), world.file("elsewhere")).expect("away");
    let server = world.serve("--wait-for-members 1");
    assert_eq!(member_state(&world, 2), "missing");
    assert!(server.stop());
    // Its loss is recorded: no later start waits for it.
    let server = world.serve("--wait-for-members 600");
    assert!(server.stop());
    std::fs::rename(world.file("m1"), world.file("elsewhere_too")).expect("away");
    let waiting = world.start("--wait-for-members 600");
    until(|| told("waiting up to 600 s for member 1 ("));
    assert!(world.not_ready(waiting).stop());
}

/// A late member must not stay missing for ever, nor be replaced by a spare and rebuilt completely.
#[test]
fn a_member_that_comes_late_is_taken_in_by_itself_and_gets_what_it_missed() {
    let world = World::with_volume(CREATE, "64M");
    world.succeeds("pool add tank --spare s --create-files --sparse");
    let server = world.serve("");
    fill(&mut server.client(), PIECES, 1);
    assert!(server.stop());
    std::fs::rename(world.file("m2"), world.file("elsewhere")).expect("unplugged");
    let server = world.serve("");
    fill(&mut server.client(), 10, 2);
    // The remaining wait for a spare is shown.
    let left = status(&world)["members"][2]["spare_in_seconds"].as_u64();
    assert!(
        left.is_some_and(|left| (200..=300).contains(&left)),
        "{left:?}"
    );
    assert!(
        world
            .succeeds("pool status tank")
            .contains("missing (a spare takes its place in 2"),
        "{}",
        world.succeeds("pool status tank")
    );
    std::fs::rename(world.file("elsewhere"), world.file("m2")).expect("plugged in");
    wait_for(&world, 2, "online");
    let shown = status(&world);
    let written = shown["members"][2]["counters"]["written"]["rebuild"]
        .as_u64()
        .expect("a number");
    assert!(
        written > 0 && written < PIECES * PIECE as u64 / 6,
        "{written} bytes: only what it missed"
    );
    assert_eq!(
        (
            shown["members"][4]["state"].as_str(),
            shown["members"][2]["spare_in_seconds"].as_u64()
        ),
        (Some("spare"), None)
    );
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
}

fn verify(world: &World, rounds: impl Fn(u64) -> u64) {
    let server = world.serve("");
    let all = server.client().read_all().expect("everything");
    (0..PIECES).for_each(|number| {
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, rounds(number)),
            "piece {number}"
        )
    });
    assert!(server.stop());
}

#[test]
fn a_member_leaves_and_comes_back_while_the_pool_is_served() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    world.succeeds("pool offline tank m2");
    assert_eq!(
        (
            member_state(&world, 2).as_str(),
            world.run("pool status tank --exit-code").status.code()
        ),
        ("offline", Some(1))
    );
    let refused = world.run("pool offline tank 0");
    assert!(
        refused.status.code() == Some(4) && support::both(&refused).contains("WR-MEMBER-004"),
        "{}",
        support::both(&refused)
    );
    // Its device is closed: it may be used, or moved, by others.
    std::fs::rename(world.file("m2"), world.file("moved")).expect("moved");
    fill(&mut client, 10, 2);
    let wrong = world.run("pool online tank 2");
    assert!(
        wrong.status.code() == Some(4) && support::both(&wrong).contains("WR-MEMBER-001"),
        "{}",
        support::both(&wrong)
    );
    let wrong = world.run("pool online tank 2 m1");
    assert!(
        support::both(&wrong).contains("another device"),
        "{}",
        support::both(&wrong)
    );
    world.succeeds("pool online tank 2 moved");
    wait_for(&world, 2, "online");
    fill(&mut client, 5, 3);
    drop(client);
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    std::fs::remove_file(world.file("m0")).expect("another one dies");
    verify(&world, |number| {
        if number < 5 {
            3
        } else if number < 10 {
            2
        } else {
            1
        }
    });
}

/// `pool online` finds a member that was missing at the start at its known path, without a path
/// given.
#[test]
fn a_member_that_was_missing_at_the_start_is_found_where_it_was() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    fill(&mut server.client(), PIECES, 1);
    assert!(server.stop());
    std::fs::rename(world.file("m2"), world.file("elsewhere")).expect("unplugged");
    let server = world.serve("--no-arrivals");
    assert_eq!(member_state(&world, 2), "missing");
    let wrong = world.run("pool online tank 2");
    assert!(
        wrong.status.code() == Some(4) && support::both(&wrong).contains("name its path"),
        "{}",
        support::both(&wrong)
    );
    // Another device at its path is not taken for it.
    std::fs::copy(world.file("m1"), world.file("m2")).expect("a copy");
    assert!(support::both(&world.run("pool online tank 2")).contains("name its path"));
    std::fs::rename(world.file("elsewhere"), world.file("m2")).expect("back");
    world.succeeds("pool online tank 2");
    wait_for(&world, 2, "online");
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    let nowhere = world.run("pool list --dir nowhere");
    assert!(
        nowhere.status.code() == Some(4) && support::both(&nowhere).contains("check the path"),
        "{}",
        support::both(&nowhere)
    );
    assert!(
        world
            .succeeds("pool status --members m0,m1,m2,m3")
            .contains("tank"),
        "a pool is shown by its members"
    );
}

#[test]
fn a_member_is_replaced_while_the_pool_is_served_and_its_old_device_is_a_stranger_then() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    std::fs::write(world.file("small"), vec![0; 4 << 20]).expect("a small file");
    let small = world.run("pool replace tank 1 small");
    assert!(
        support::both(&small).contains("needs") && member_state(&world, 1) == "online",
        "{}",
        support::both(&small)
    );
    let said = world.succeeds("pool replace tank 1 new --create-files --sparse");
    assert!(
        said.contains("member 1 of pool 'tank' is copied to new now (spare 4)"),
        "{said}"
    );
    fill(&mut client, 10, 2);
    until(|| is_at(&world, 1, "new"));
    drop(client);
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    // With the old device among the members the pool starts without it.
    let server = world.serve("--members m0,m1,m2,m3,new");
    assert_eq!(
        world.run("pool status tank --exit-code").status.code(),
        Some(0)
    );
    assert!(
        std::fs::read_to_string(world.file("serve.log"))
            .expect("a log")
            .contains("is not the pool's")
    );
    assert!(server.stop());
    let server = world.serve("--members m0,m1,m2,m3");
    assert_eq!(member_state(&world, 1), "missing");
    assert!(server.stop());
    let server = world.try_serve("--members m0,m1,m2");
    assert!(
        server.is_err_and(|why| why.contains("WR-POOL-012")),
        "two are lost"
    );
    let server = world.serve("--members m0,new,m2,m3");
    wait_for(&world, 1, "online");
    assert!(server.stop());
    std::fs::remove_file(world.file("m3")).expect("another one dies");
    verify(&world, |number| if number < 10 { 2 } else { 1 });
}

/// Replacing a healthy member must not cost redundancy during the copy.
#[test]
fn another_member_dies_while_one_is_replaced_and_everything_is_readable() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    world.succeeds("pool set tank rebuild-rate-min=64K rebuild-rate=256K");
    let said: Value = serde_json::from_str(
        &world.succeeds("pool replace tank 1 new --create-files --sparse -o json"),
    )
    .expect("JSON");
    assert_eq!(
        (
            said["member"].as_u64(),
            said["replaces"].as_u64(),
            said["state"].as_str()
        ),
        (Some(4), Some(1), Some("spare")),
        "{said}"
    );
    assert!(
        said["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("/new")),
        "{said}"
    );
    let text = world.succeeds("pool status tank");
    assert!(
        text.contains("in use until 4 can replace it")
            && text.contains("becomes a copy of member 1"),
        "{text}"
    );
    assert_eq!(
        world.run("pool status tank --exit-code").status.code(),
        Some(0),
        "nothing is missing"
    );
    let refused = world.run("pool replace tank 0 other --create-files --sparse");
    assert!(
        both(&refused).contains("spare 4 is about to replace member 1")
            && !world.file("other").exists(),
        "{}",
        both(&refused)
    );
    fill(&mut client, 10, 2);
    world.succeeds("pool offline tank 3");
    fill(&mut client, 5, 3);
    let round = |number: u64| {
        if number < 5 {
            3
        } else {
            2 - u64::from(number >= 10)
        }
    };
    let all = client.read_all().expect("everything");
    assert_eq!(
        (member_state(&world, 1).as_str(), is_at(&world, 1, "m1")),
        ("online", true),
        "it is in the middle"
    );
    (0..PIECES).for_each(|number| {
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, round(number)),
            "piece {number}"
        )
    });
    drop(client);
    // The daemon dies in the middle: the copy starts again, and completes.
    server.kill();
    let server = world.serve("");
    assert_eq!(
        (
            member_state(&world, 1).as_str(),
            status(&world)["members"][4]["replaces"].as_u64()
        ),
        ("online", Some(1))
    );
    world.succeeds("pool set tank rebuild-rate=none");
    fill(&mut server.client(), 5, 3);
    until(|| is_at(&world, 1, "new"));
    assert_eq!(member_state(&world, 4), "removed");
    assert!(server.stop());
    std::fs::remove_file(world.file("m1")).expect("nothing needs it");
    verify(&world, round);
}

fn set_len(world: &World, name: &str, bytes: u64) {
    std::fs::File::options()
        .write(true)
        .open(world.file(name))
        .and_then(|file| file.set_len(bytes))
        .expect("a file");
}

/// A truncated member that grows again needs a full rebuild: with only the missed writes, zeroes
/// would stand for data.
#[test]
fn a_member_that_was_cut_short_gets_everything_when_it_comes_back() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    let fails = |name: &str, member: usize| {
        set_len(&world, name, 8 << 20);
        // A scrub checks sizes at its start.
        drop(world.run("pool scrub tank"));
        assert_eq!(member_state(&world, member), "faulted");
        set_len(&world, name, 64 << 20);
    };
    fails("m1", 1);
    world.succeeds("pool online tank 1");
    wait_for(&world, 1, "online");
    world.succeeds("pool offline tank 3");
    let all = client.read_all().expect("everything");
    (0..PIECES).for_each(|number| {
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, 1),
            "piece {number}"
        )
    });
    world.succeeds("pool online tank 3");
    wait_for(&world, 3, "online");
    fails("m2", 2);
    drop(client);
    assert!(server.stop());
    // It returns by itself; so does a member that a start found too small.
    let server = world.serve("");
    wait_for(&world, 2, "online");
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    set_len(&world, "m0", 8 << 20);
    let server = world.serve("");
    assert_eq!(member_state(&world, 0), "missing");
    assert!(server.stop());
    set_len(&world, "m0", 64 << 20);
    let server = world.serve("");
    wait_for(&world, 0, "online");
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
}

/// A healthy member must not be replaced by a copy that was truncated or deleted.
#[test]
fn a_copy_that_was_cut_short_or_deleted_replaces_nothing() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    fill(&mut server.client(), PIECES, 1);
    let spoils: [&dyn Fn(); 2] = [&|| set_len(&world, "new", 8 << 20), &|| {
        std::fs::remove_file(world.file("new")).expect("a file")
    }];
    for spoil in spoils {
        _ = std::fs::remove_file(world.file("new"));
        world.succeeds("pool set tank rebuild-rate-min=64K rebuild-rate=256K");
        world.succeeds("pool replace tank 1 new --create-files --sparse");
        spoil();
        world.succeeds("pool set tank rebuild-rate=none");
        until(|| member_state(&world, 4) == "removed");
        assert_eq!(
            (member_state(&world, 1).as_str(), is_at(&world, 1, "m1")),
            ("online", true)
        );
    }
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    verify(&world, |_| 1);
}

/// Actions that cancel a replacement, and the state of the spare afterwards.
#[test]
fn a_replacement_is_called_off_by_the_removal_of_its_spare() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    fill(&mut server.client(), PIECES, 1);
    world.succeeds("pool set tank rebuild-rate-min=64K rebuild-rate=256K");
    world.succeeds("pool replace tank 1 new --create-files --sparse");
    assert!(server.stop());
    world.check().expect("a pool in the middle of it is whole");
    let server = world.serve("");
    world.succeeds("pool remove tank 4");
    assert_eq!(
        (
            member_state(&world, 1).as_str(),
            member_state(&world, 4).as_str()
        ),
        ("online", "removed")
    );
    world.succeeds("pool add tank --spare new");
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    verify(&world, |_| 1);
}

#[test]
fn a_pool_grows_while_it_is_served() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    let usable = |world: &World| {
        status(world)["capacity"]["usable_bytes"]
            .as_u64()
            .expect("bytes")
    };
    let before = usable(&world);
    let shown: Value = serde_json::from_str(
        &world.succeeds("pool add tank m4 m5 --create-files --sparse -o json"),
    )
    .expect("JSON");
    assert_eq!(
        (
            shown["members"][4]["state"].as_str(),
            shown["members"][5]["state"].as_str()
        ),
        (Some("online"), Some("online")),
        "{shown}"
    );
    assert!(usable(&world) >= before);
    let refused = world.run("pool add tank missing/m6 --create-files --sparse");
    assert!(!refused.status.success());
    // Writes continue until the old layout is empty.
    let end = Instant::now() + Duration::from_secs(60);
    for round in 2.. {
        fill(&mut client, 10, round);
        let reshape = status(&world)["reshape"].clone();
        if reshape["active"] == false {
            break;
        }
        assert!(Instant::now() < end, "{reshape}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        usable(&world) > before * 5 / 4,
        "{} after {before}",
        usable(&world)
    );
    drop(client);
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    let server = world.serve("");
    let mut client = server.client();
    let all = client.read_all().expect("everything");
    for number in 10..PIECES {
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, 1),
            "piece {number}"
        );
    }
    drop(client);
    assert!(server.stop());
}

#[test]
fn a_member_that_holds_data_leaves_while_the_pool_is_served() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    sync(&mut client, 1);
    let usable = |world: &World| {
        status(world)["capacity"]["usable_bytes"]
            .as_u64()
            .expect("bytes")
    };
    let before = usable(&world);
    let shown: Value =
        serde_json::from_str(&world.succeeds("pool remove tank m1 -o json")).expect("JSON");
    assert_eq!(
        (
            shown["member"].as_u64(),
            shown["leaving"].as_bool(),
            shown["state"].as_str()
        ),
        (Some(1), Some(true), Some("online")),
        "{shown}"
    );
    assert!(usable(&world) < before);
    let refused = world.run("pool remove tank 2");
    let text = support::both(&refused);
    assert!(
        !refused.status.success()
            && text.contains("WR-MEMBER-004")
            && (text.contains("2 members would be left") || text.contains("still moves")),
        "{text}"
    );
    let refused = world.run("pool replace tank 1 other --create-files --sparse");
    assert!(
        support::both(&refused).contains("being removed") || member_state(&world, 1) == "removed",
        "{}",
        support::both(&refused)
    );
    let end = Instant::now() + Duration::from_secs(60);
    while member_state(&world, 1) != "removed"
        || status(&world)["members"][1]["path"]
            .as_str()
            .is_some_and(|path| !path.is_empty())
    {
        sync(&mut client, 2);
        assert!(Instant::now() < end, "{}", status(&world)["reshape"]);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(world.succeeds("pool status tank").contains("online"));
    // Its label is wiped: the file belongs to no pool, and may become a member of this one again.
    let bytes = std::fs::read(world.file("m1")).expect("it is there");
    assert!(!bytes.windows(14).any(|window| window == b"WINDROW-MEMBER"));
    let refused = world.run("pool remove tank 2");
    assert!(
        support::both(&refused).contains("2 members would be left, redundancy 5 needs 3"),
        "{}",
        support::both(&refused)
    );
    drop(client);
    assert!(server.stop());
    std::fs::remove_file(world.file("m1")).expect("no longer needed");
    world
        .check()
        .expect("everything is whole, redundancy included");
    let server = world.serve("");
    let mut client = server.client();
    let all = client.read_all().expect("everything");
    for number in 10..PIECES {
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, 1),
            "piece {number}"
        );
    }
    drop(client);
    assert!(server.stop());
}

/// Small flushes by many writers.
fn sync(client: &mut Client, round: u64) {
    for number in 0..50 {
        client.write(
            number,
            number * 4096,
            &Random(number * 77 + round).bytes(4096),
            false,
        );
        client.flush(number);
        client.push().expect("sent");
        client.answer().expect("answered");
        client.answer().expect("flushed");
    }
}

#[test]
fn journal_devices_come_and_go() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    sync(&mut client, 1);
    let external = |world: &World| {
        status(world)["journal"]["external"]
            .as_bool()
            .expect("a flag")
    };
    assert!(!external(&world));
    for (device, file) in [(4, "j0"), (5, "j1")] {
        let shown: Value = serde_json::from_str(&world.succeeds(&format!(
            "pool add tank --journal {file} --create-files --sparse -o json"
        )))
        .expect("JSON");
        assert_eq!(
            (shown["member"].as_u64(), shown["journal"].as_bool()),
            (Some(device as u64), Some(true)),
            "{shown}"
        );
        sync(&mut client, 2);
        wait_for(&world, device, "online");
    }
    assert!(
        !world
            .run("pool add tank --journal j2 --create-files --sparse --power-safe=yes")
            .status
            .success()
    );
    sync(&mut client, 3);
    assert!(
        external(&world)
            && world
                .succeeds("pool status tank")
                .contains("online (journal)")
    );
    // One leaves while the pool is served, the other one while it is not; named by path or by
    // index.
    let no_device = world.run("pool remove tank --journal m0");
    assert!(
        !no_device.status.success() && both(&no_device).contains("member 0 is no journal device"),
        "{}",
        both(&no_device)
    );
    world.succeeds("pool remove tank --journal j0");
    assert_eq!(member_state(&world, 4), "removed");
    sync(&mut client, 4);
    assert!(external(&world));
    drop(client);
    server.kill();
    world.succeeds("pool remove tank 5");
    world.check().expect("everything is whole");
    world.succeeds("pool add tank --journal j1 --overwrite");
    let server = world.serve("");
    wait_for(&world, 4, "online");
    let mut client = server.client();
    let all = client.read_all().expect("everything");
    for number in 0..50 {
        assert!(
            all[number as usize * 4096..][..4096] == Random(number * 77 + 4).bytes(4096),
            "block {number}"
        );
    }
    sync(&mut client, 5);
    assert!(external(&world));
    drop(client);
    assert!(server.stop());
    world.check().expect("everything is whole");
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_is_gone() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    drop(client);
    world.succeeds("pool add tank --spare s0 --create-files --sparse");
    world.succeeds("pool add tank --spare s1 --create-files --sparse");
    assert_eq!(
        (member_state(&world, 4), member_state(&world, 5)),
        ("spare".to_owned(), "spare".to_owned())
    );
    world.succeeds("pool remove tank 5");
    assert_eq!(
        world.run("pool status tank --exit-code").status.code(),
        Some(0),
        "spares change nothing"
    );
    assert!(server.stop());
    std::fs::remove_file(world.file("m1")).expect("dead");
    let server = world.serve("--spare-patience 0");
    wait_for(&world, 1, "online");
    let shown = status(&world);
    assert!(
        shown["members"][1]["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("s0")),
        "{shown}"
    );
    assert_eq!(
        (shown["state"].as_str(), member_state(&world, 4).as_str()),
        (Some("online"), "removed")
    );
    assert!(server.stop());
    world
        .check()
        .expect("everything is whole, redundancy included");
    std::fs::remove_file(world.file("m3")).expect("another one dies");
    verify(&world, |_| 1);
}

/// After a replacement the new drive was pulled instead of the old one: the old one is reported as
/// unused, and the pool continues without the new one.
#[test]
fn the_old_drive_in_the_place_of_the_new_one_is_noted_and_not_used() {
    let world = World::with_volume(CREATE, "64M");
    let server = world.serve("");
    let mut client = server.client();
    fill(&mut client, PIECES, 1);
    drop(client);
    assert!(server.stop());
    std::fs::rename(world.file("m1"), world.file("old")).expect("unplugged");
    world.succeeds("pool replace tank 1 new --create-files --sparse");
    let server = world.serve("");
    wait_for(&world, 1, "online");
    assert!(server.stop());
    std::fs::rename(world.file("new"), world.file("elsewhere")).expect("unplugged");
    let old = std::fs::read(world.file("old")).expect("the old one");
    let members = "--members m0,old,m2,m3";
    let text = world.succeeds(&format!("pool import tank {members} --dry-run"));
    assert!(
        text.contains("note: the device in the place of member 1") && text.contains("degraded"),
        "{text}"
    );
    let server = world.serve(members);
    let note = server.ready["recovery"]["notes"][0]
        .as_str()
        .expect("a note")
        .to_owned();
    assert!(
        note.contains("member 1") && note.contains("is not the pool's"),
        "{note}"
    );
    assert_eq!(member_state(&world, 1), "missing");
    let all = server.client().read_all().expect("everything");
    (0..PIECES).for_each(|number| {
        assert!(
            all[number as usize * PIECE..][..PIECE] == piece(number, 1),
            "piece {number}"
        )
    });
    assert!(server.stop());
    assert!(
        std::fs::read(world.file("old")).expect("the old one") == old,
        "not a byte was written to it"
    );
}
