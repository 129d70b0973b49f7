//! Numeric options at the ends of their ranges: an answer, or one line; never a panic. (Another
//! test checks that all of them have bounds.)

use crate::support::{
    RangedOption, World, refuses_with_the_bounds, the_ends_of_ranges_are_answered,
};

/// A fast command, an option of it, and the ends of its range.
const OPTIONS: &[RangedOption] = &[
    ("windrow-lab plan", "--drives", 0, 1_000_000),
    ("windrow-lab plan layers", "--drives", 0, 1_000_000),
    ("windrow-lab plan gain", "--drives", 0, 1_000_000),
    (
        "windrow-lab advise t.csv --spare 20%",
        "--drives",
        0,
        1_000_000,
    ),
    (
        "windrow-lab replay t.csv --segment 64K --policy none --spare 20%",
        "--headers",
        0,
        1_048_576,
    ),
    (
        "windrow-lab replay t.csv --segment 64K --policy none --spare 20%",
        "--idle-cleaning",
        0,
        4_000_000,
    ),
    (
        "windrow-lab replay t.csv --segment 64K --policy none --spare 20% --idle-cleaning 1",
        "--rate",
        1,
        1_000_000_000,
    ),
    (
        "windrow-lab replay t.csv --segment 64K --policy none --spare 20%",
        "--repeat",
        1,
        1000,
    ),
    (
        "windrow-lab replay t.csv --segment 64K --policy none --spare 20%",
        "--seed",
        0,
        u64::MAX,
    ),
    (
        "windrow-lab replay t.csv --segment 64K --policy separate+greedy --spare 20% --mode engine",
        "--flush-every",
        0,
        1_000_000_000_000,
    ),
    (
        "windrow-lab trace generate uniform g.csv --requests 10",
        "--seed",
        0,
        u64::MAX,
    ),
    (
        "windrow-lab sim run --workload uniform --size 64M --passes 1 --policy none --spare 20%",
        "--seed",
        0,
        u64::MAX,
    ),
    (
        "windrow-lab sim bursts --segments 20 --passes 1 --free 4",
        "--burst",
        1,
        1_000_000_000,
    ),
    (
        "windrow-lab sim bursts --segments 20 --passes 1 --burst 64",
        "--free",
        0,
        4_000_000,
    ),
];

#[test]
fn the_ends_of_the_ranges_are_answered() {
    let world = World::new();
    world.succeeds("windrow-lab trace generate uniform t.csv --requests 200 --size 1M");
    the_ends_of_ranges_are_answered(&world, OPTIONS);
}

/// A trace without requests has no figures.
#[test]
fn numbers_beyond_the_ranges_are_refused_with_these() {
    refuses_with_the_bounds(
        &World::new(),
        &["windrow-lab trace generate uniform g.csv --requests 0"],
    );
}
