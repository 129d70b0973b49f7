//! Numeric options at the ends of their ranges: an answer, or one line; never a panic. (That all of
//! them have bounds is a test of the command line itself.)

use crate::support::{
    CREATE, RangedOption, World, refuses_with_the_bounds, the_ends_of_ranges_are_answered,
};

/// A quick command, an option of it, and the ends of its range.
const OPTIONS: &[RangedOption] = &[
    ("inspect m0 m1 m2 m3", "--segment", 0, u32::MAX as u64),
    (
        "inspect m0 m1 m2 m3 --segment 0",
        "--row",
        0,
        u32::MAX as u64,
    ),
    ("inspect m0 m1 m2 m3", "--chunk", 0, u32::MAX as u64),
    (
        "inspect m0 m1 m2 m3 --journal-device",
        "--chunk",
        0,
        u32::MAX as u64,
    ),
    (
        "pool create --dry-run --redundancy 5 --size 64M new a b c",
        "--seal-age",
        1,
        3_600_000,
    ),
    (
        "export disconnect tank/data",
        "--client",
        0,
        u32::MAX as u64,
    ),
    ("pool set tank", "spare=", 0, u64::MAX),
    ("pool scrub tank", "--rate", 0, u64::MAX),
];

#[test]
fn the_ends_of_the_ranges_are_answered() {
    let world = World::with_volume(CREATE, "16M");
    the_ends_of_ranges_are_answered(&world, OPTIONS);
}

/// `--drop-flush-every 0` would divide by zero.
#[test]
fn numbers_beyond_the_ranges_are_refused_with_these() {
    refuses_with_the_bounds(
        &World::new(),
        &[
            "serve tank --volatile-cache 1 --drop-flush-every 0",
            "demo --drop-flush-every 0",
            "demo --seconds 0",
            "demo --seconds 604801",
        ],
    );
}
