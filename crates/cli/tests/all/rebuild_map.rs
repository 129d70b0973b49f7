//! The salvage of a map from the user's side: every checkpoint is destroyed, the pool is refused,
//! and `check --rebuild-map` recovers it.

use crate::support;

use std::os::unix::fs::FileExt;
use support::{CREATE, Random, World, both};
use windrow_format::batch::decode_header;
use windrow_format::superblock::{SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock};
use windrow_geometry::{Column, ZoneMap};
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE};

const PIECE: usize = 1 << 20;

/// The stream of checkpoint pages.
const CHECKPOINT: u8 = 3;

fn members(world: &World) -> Vec<std::fs::File> {
    let open = |name| {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(world.file(name))
            .expect("a member")
    };
    ["m0", "m1", "m2", "m3"].map(open).into()
}

fn newest_superblock(members: &[std::fs::File]) -> Superblock {
    let slots = members.iter().flat_map(|member| {
        (0..SLOT_COUNT).filter_map(move |slot| {
            let mut bytes = vec![0; SLOT_BYTES];
            member
                .read_exact_at(&mut bytes, SLOT_OFFSET + slot * SLOT_STRIDE)
                .ok()?;
            Superblock::decode(&bytes).ok()
        })
    });
    slots
        .max_by_key(|superblock| superblock.generation)
        .expect("a superblock")
}

/// Overwrites every batch of the checkpoint stream on all members; returns their number.
fn destroy_checkpoints(world: &World) -> u64 {
    destroy(world, |stream| stream == CHECKPOINT, 0, usize::MAX)
}

/// Overwrites batches of some streams, without their first rows, in some columns; returns their
/// number.
fn destroy(world: &World, is_meant: impl Fn(u8) -> bool, spared: u32, columns: usize) -> u64 {
    destroy_rows(world, is_meant, |rows| spared..rows, columns)
}

/// Overwrites rows of the batches of some streams in some columns; `rows` selects them by the
/// batch's number of rows. Returns the number of batches.
fn destroy_rows(
    world: &World,
    is_meant: impl Fn(u8) -> bool,
    rows: impl Fn(u32) -> std::ops::Range<u32>,
    columns: usize,
) -> u64 {
    let members = members(world);
    let superblock = newest_superblock(&members);
    let zones = ZoneMap::new(superblock.zones.clone());
    let mut destroyed = 0;
    let mut block = vec![0; BLOCK_SIZE];
    for segment in zones.segments() {
        let location = zones.locate(segment);
        for row in 0..location.shape().rows {
            let (member, offset) = location.address(row, Column(0));
            members[member.index()]
                .read_exact_at(&mut block, offset)
                .expect("a read");
            let Ok(frame) = decode_header(&block, &superblock.pool, segment, row) else {
                continue;
            };
            let rows = rows(frame.header.rows);
            if !is_meant(frame.header.stream.0) || rows.is_empty() {
                continue;
            }
            destroyed += 1;
            for row in row + rows.start..row + rows.end {
                for column in (0..location.shape().width).map(Column).take(columns) {
                    let (member, offset) = location.address(row, column);
                    members[member.index()]
                        .write_all_at(&[0xee; BLOCK_BYTES as usize], offset)
                        .expect("a write");
                }
            }
        }
    }
    destroyed
}

fn contents(world: &World) -> Vec<Vec<u8>> {
    ["m0", "m1", "m2", "m3"]
        .map(|name| std::fs::read(world.file(name)).expect("a member"))
        .into()
}

#[test]
fn a_pool_without_checkpoints_is_brought_back() {
    let world = World::with_volume(CREATE, "32M");
    let server = world.serve("");
    let mut client = server.client();
    let mut expected = vec![0; 16 * PIECE];
    for (seed, at) in [(1, 0), (2, 5), (3, 9), (4, 5), (5, 15), (6, 0)] {
        let bytes = Random(seed).bytes(PIECE);
        client.write(seed, (at * PIECE) as u64, &bytes, false);
        assert_eq!(client.finish().expect("an answer").0, 0);
        expected[at * PIECE..(at + 1) * PIECE].copy_from_slice(&bytes);
    }
    client.flush(0);
    assert_eq!(client.finish().expect("an answer").0, 0);
    assert!(server.stop());
    world.check().expect("a sound pool");
    let refused = world.run("check tank --rebuild-map --repair");
    assert_eq!(
        refused.status.code(),
        Some(8),
        "a sound pool is not rebuilt: {}",
        both(&refused)
    );

    assert!(destroy_checkpoints(&world) > 0);
    let damaged = contents(&world);
    let check = world.run("check tank");
    assert!(
        check.status.code() == Some(8) && both(&check).contains("no checkpoint can be read"),
        "{}",
        both(&check)
    );
    // In JSON form the report has an id and a next step.
    let check = world.run("check tank -o json");
    let told: serde_json::Value = serde_json::from_slice(&check.stdout).expect("JSON");
    assert_eq!(
        (check.status.code(), told["schema"].as_str()),
        (Some(8), Some("windrow/error/1")),
        "{told}"
    );
    assert_eq!(told["error"]["id"], "WR-POOL-009", "{told}");
    assert!(
        told["error"]["remedy"]
            .as_str()
            .is_some_and(|remedy| remedy.contains("Emergency"))
            && told["report"]["findings"].is_object(),
        "{told}"
    );
    let refused = world.try_serve("").err().expect("it is not served");
    assert!(refused.contains("WR-POOL-009"), "{refused}");
    let look = world.run("check tank --rebuild-map");
    assert_eq!(look.status.code(), Some(0), "{}", both(&look));
    assert!(
        both(&look).contains("nothing was written"),
        "{}",
        both(&look)
    );
    assert!(contents(&world) == damaged, "a look writes nothing");

    let rebuilt = world.run("check tank --rebuild-map --repair -o json");
    assert_eq!(rebuilt.status.code(), Some(1), "{}", both(&rebuilt));
    let report: serde_json::Value = serde_json::from_slice(&rebuilt.stdout).expect("JSON");
    assert_eq!(report["volumes"][0]["name"], "data", "{report}");
    assert_eq!(
        report["volumes"][0]["mapped_blocks"],
        4 * PIECE as u64 / BLOCK_BYTES,
        "{report}"
    );
    assert!(
        report["losses"].as_array().is_some_and(Vec::is_empty),
        "{report}"
    );
    world.check().expect("a sound pool again");
    let server = world.serve("");
    let mut client = server.client();
    for at in 0..16 {
        client.read(0, (at * PIECE) as u64, PIECE);
        let (error, bytes) = client.finish().expect("an answer");
        assert!(
            error == 0 && bytes == expected[at * PIECE..(at + 1) * PIECE],
            "piece {at}"
        );
    }
    assert!(server.stop());
    world.check().expect("still sound");
}

/// A pool at rest whose volume has four pieces of data.
fn with_four_pieces() -> World {
    let world = World::with_volume(CREATE, "32M");
    let server = world.serve("");
    let mut client = server.client();
    for at in 0..4 {
        client.write(at, at * PIECE as u64, &Random(at).bytes(PIECE), false);
        assert_eq!(client.finish().expect("an answer").0, 0);
    }
    client.flush(0);
    assert_eq!(client.finish().expect("an answer").0, 0);
    assert!(server.stop());
    world
}

/// Exit codes for scripts: damage has its own code, within redundancy or not, and the result is a
/// report, not a failure.
#[test]
fn damage_ends_a_check_with_its_own_code() {
    let world = with_four_pieces();
    world.check().expect("a sound pool");
    for (columns, worst) in [(1, "repairable"), (2, "error")] {
        assert!(destroy(&world, |stream| stream != CHECKPOINT, 1, columns) > 0);
        let check = world.run("check tank --payload --parity -o json");
        let told: serde_json::Value = serde_json::from_slice(&check.stdout).expect("JSON");
        assert_eq!(
            (check.status.code(), told["schema"].as_str()),
            (Some(4), Some("windrow/check/1")),
            "{}",
            both(&check)
        );
        assert_eq!(told["findings"]["worst"], worst, "{}", told["findings"]);
        let check = world.run("check tank --payload --parity");
        assert!(
            check.status.code() == Some(4) && both(&check).ends_with("ERRORS FOUND\n"),
            "{}",
            both(&check)
        );
    }
}

/// The salvage reads tables of batches and trusts their payload. A pool with unreadable blocks must
/// not be called repaired.
#[test]
fn a_rebuild_of_the_map_reads_what_it_calls_repaired() {
    let world = with_four_pieces();
    // Rows between header and footer, in more columns than redundancy covers.
    let between = |rows: u32| if rows > 4 { 2..3 } else { 0..0 };
    assert!(destroy_rows(&world, |stream| stream != CHECKPOINT, between, 4) > 0);
    assert!(destroy_checkpoints(&world) > 0);
    let look = world.run("check tank --rebuild-map");
    assert!(
        both(&look).contains("payload was not read"),
        "{}",
        both(&look)
    );
    let rebuilt = world.run("check tank --rebuild-map --repair -o json");
    let report: serde_json::Value = serde_json::from_slice(&rebuilt.stdout).expect("JSON");
    let check = world.run("check tank --payload");
    assert_eq!(
        (rebuilt.status.code(), check.status.code()),
        (Some(4), Some(4)),
        "{report}; {}",
        both(&check)
    );
    assert_eq!(report["after"]["findings"]["worst"], "error", "{report}");
}
