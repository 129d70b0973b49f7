//! Numeric options at the ends of their ranges: an answer, or one line; never a panic. (Another
//! test checks that all of them have bounds.)

use crate::support::{
    RangedOption, World, refuses_with_the_bounds, the_ends_of_ranges_are_answered,
};

/// A fast command, an option of it, and the ends of its range.
const OPTIONS: &[RangedOption] = &[
    (
        "windrow-bench engine --size 16M --seconds 1 --rounds 1 --full 50%",
        "--members",
        1,
        1,
    ),
    (
        "windrow-bench engine --size 1M --seconds 1 --rounds 1 --full 50%",
        "--members",
        1,
        64,
    ),
];

#[test]
fn the_ends_of_the_ranges_are_answered() {
    let world = World::new();
    the_ends_of_ranges_are_answered(&world, OPTIONS);
}

/// A billion worker threads must not be started.
#[test]
fn numbers_beyond_the_ranges_are_refused_with_these() {
    refuses_with_the_bounds(
        &World::new(),
        &[
            "windrow-bench engine --workers 0",
            "windrow-bench engine --workers 513",
            "windrow-bench engine --members 0",
            "windrow-bench engine --members 65",
            "windrow-bench engine --writers 1,1025",
            "windrow-bench engine --depth 65537",
            "windrow-bench dedup --copies 1001",
            "windrow-bench recovery --blocks 9999",
            "windrow-bench journal-study --flush 1000001",
        ],
    );
}
