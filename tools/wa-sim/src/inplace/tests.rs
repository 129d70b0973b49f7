//! Tests of the in-place array against manual calculations.

use super::*;
use crate::device::DeviceOptions;
use crate::timings::Timings;

fn array() -> InPlace {
    let timings = Timings::published();
    let options = DeviceOptions {
        protected: true,
        suspend: false,
        in_order: false,
    };
    let devices = (0..8)
        .map(|_| Device::ssd(&timings, 4096, &options))
        .collect();
    InPlace::new(devices, 8, 4096, &timings.in_place, 85)
}

#[test]
fn every_column_of_a_stripe_is_on_a_member_of_its_own() {
    let array = array();
    for stripe in 0..16 {
        let mut members: Vec<usize> = (0..8)
            .map(|column| array.array.member(stripe, column))
            .collect();
        members.sort_unstable();
        assert_eq!(members, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
    assert_ne!(
        array.array.member(0, 6),
        array.array.member(1, 6),
        "P turns"
    );
}

#[test]
fn groups_cover_a_range_and_nothing_else() {
    let array = array();
    let mut rng = Rng::stream(9, "groups");
    for _ in 0..2000 {
        let (first, count) = (rng.below(3000), 1 + rng.below(1600));
        let mut blocks = Vec::new();
        for group in array.array.groups(first, count) {
            for column in (0..6).filter(|column| group.columns >> column & 1 == 1) {
                blocks.extend(
                    (group.row..group.row + group.rows)
                        .map(|row| group.stripe * 768 + column * 128 + row),
                );
            }
        }
        blocks.sort_unstable();
        assert_eq!(
            blocks,
            (first..first + count).collect::<Vec<_>>(),
            "{first}+{count}"
        );
    }
}

#[test]
fn a_small_write_reads_three_blocks_and_writes_three_and_a_full_stripe_reads_nothing() {
    let mut array = array();
    let one = array.array.groups(5, 1)[0];
    let (reads, writes) = array.array.plan(&one);
    assert_eq!((reads, writes), (0b1100_0001, 0b1100_0001));
    // The row is cached now.
    assert_eq!(array.array.plan(&one).0, 0);
    // Its neighbour in another column: only the old block is not cached.
    let other = array.array.groups(128 + 5, 1)[0];
    assert_eq!(array.array.plan(&other).0, 0b10);
    let all = array.array.groups(768, 768);
    assert_eq!((all.len(), array.array.plan(&all[0])), (1, (0, 0xff)));
    // Four of six columns: reading the other two is less than four and P and Q.
    let four = Group {
        stripe: 4,
        row: 0,
        rows: 1,
        columns: 0b1111,
    };
    assert_eq!(array.array.plan(&four).0, 0b11_0000);
}

#[test]
fn a_durable_write_takes_its_commit() {
    let mut array = array();
    array.settle(0, 1, &mut |_, _| ());
    let (mut answers, before) = (Vec::new(), array.counters());
    array.ask(
        0,
        Want::Write {
            block: 0,
            count: 4,
            durable: true,
        },
    );
    array.answers(&mut answers).unwrap();
    let after = array.counters();
    // Two flushes of dirty members, and data, mark, P and Q of both.
    assert!(after.flushes - before.flushes >= 6, "{after:?}");
    assert!(after.written_bytes - before.written_bytes >= (5 + 1 + 2 * 2) * BLOCK_BYTES);
    // More than a controller's time for each of four steps, far less than a program.
    assert!((40_000..1_000_000).contains(&answers[0].1), "{answers:?}");
    answers.clear();
    array.ask(0, Want::Read { block: 0, count: 4 });
    let asked = array.now_ns();
    array.answers(&mut answers).unwrap();
    assert_eq!(
        answers[0].1 - asked,
        10_000,
        "what is not home yet is in memory"
    );
}
