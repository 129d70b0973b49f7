//! Memory limits of maps, for commands that open a pool at rest.

use crate::support;

use support::{CREATE, World, both};

/// A map limit that is reached at a fifth of the space is shown by more commands than
/// `pool create`.
#[test]
fn a_limit_that_comes_before_the_space_ends_is_shown() {
    let world = World::with_volume(CREATE, "16M");
    let shown = "limit 64 KiB, ";
    let server = world.serve("--map-memory 64K");
    let notes = server.ready["notes"]
        .as_array()
        .expect("notes")
        .iter()
        .filter_map(|note| note.as_str())
        .collect::<Vec<_>>();
    assert!(
        notes.iter().any(|note| note.starts_with("map memory: ")
            && note.contains(shown)
            && note.contains("from 16 MiB of data on")),
        "{notes:?}"
    );
    let text = world.succeeds("pool status tank");
    assert!(
        text.lines()
            .any(|line| line.starts_with("map memory limit 64 KiB, ")),
        "{text}"
    );
    let status: serde_json::Value =
        serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON");
    assert_eq!(
        (
            &status["bounds"]["map_data_bytes_max"],
            &status["refuses_data"],
            &status["dropped_log_lines"]
        ),
        (&(16 << 20).into(), &false.into(), &0.into())
    );
    let page = world.succeeds("stats tank --prometheus");
    assert!(
        page.contains("windrow_map_limit_bytes{pool=\"tank\"} 65536\n")
            && page.contains("windrow_pool_refuses_data{pool=\"tank\"} 0\n"),
        "{page}"
    );
    assert!(server.stop());
    let log = std::fs::read_to_string(world.file("serve.log")).expect("a log");
    assert!(log.contains("map memory: limit 64 KiB"), "{log}");
    for wrong in ["0", "63K", "2T"] {
        let refused = world.run(&format!("pool status tank --map-memory {wrong}"));
        assert!(
            refused.status.code() == Some(2)
                && both(&refused).contains("it must be between 64 KiB and 1 TiB"),
            "{wrong}: {}",
            both(&refused)
        );
    }
    let server = world.serve("");
    assert_eq!(server.ready["notes"], serde_json::json!([]));
    assert!(!world.succeeds("pool status tank").contains("map memory"));
}

/// Every command takes --map-memory: beyond a tebibyte of blocks the default is not enough.
#[test]
fn commands_at_rest_take_the_memory_that_a_pool_needs() {
    let world = World::with_volume(CREATE, "1G");
    let server = world.serve("");
    let mut client = server.client();
    // A map page covers a mebibyte.
    for number in 0..200 {
        client.write(number, number << 20, &[7; 4096], false);
        client.push().expect("sent");
        client.answer().expect("written");
    }
    drop(client);
    assert!(server.stop());
    for command in [
        "pool status tank",
        "volume create tank/more 1G",
        "pool set tank spare=20%",
        "pool import tank",
        "pool export tank",
    ] {
        let refused = world.run(&format!("{command} --map-memory 64K"));
        assert!(
            both(&refused).contains("WR-POOL-013"),
            "{command}: {}",
            both(&refused)
        );
        world.succeeds(&format!("{command} --map-memory 1G"));
    }
}
