//! Tests of the model against manual calculations.

use super::*;
use crate::timings::Timings;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use windrow_policy::analytic::greedy_waf;
use windrow_random::Rng;

const BLOCKS: u64 = 16 << 10;

fn ssd(protected: bool, suspend: bool) -> Ssd {
    Ssd::new(
        &Timings::published().ssd,
        BLOCKS,
        &DeviceOptions {
            protected,
            suspend,
            in_order: false,
        },
    )
}

/// Runs until nothing is left; returns the end times of the commands.
fn drive(ssd: &mut Ssd, asks: &[(u64, Ask)]) -> Vec<u64> {
    let mut heap: BinaryHeap<Reverse<(u64, u64, Option<Wake>)>> = asks
        .iter()
        .enumerate()
        .map(|(at, (time, _))| Reverse((*time, at as u64, None)))
        .collect();
    let (mut numbers, mut ends, mut sequence) = (
        vec![u64::MAX; asks.len()],
        vec![0; asks.len()],
        asks.len() as u64,
    );
    while let Some(Reverse((now, at, wake))) = heap.pop() {
        match wake {
            None => numbers[at as usize] = ssd.submit(now, asks[at as usize].1),
            Some(wake) => ssd.wake(now, wake),
        }
        for (time, wake) in std::mem::take(&mut ssd.wakes) {
            sequence += 1;
            heap.push(Reverse((time, sequence, Some(wake))));
        }
        for id in std::mem::take(&mut ssd.done) {
            let which = numbers
                .iter()
                .rposition(|number| *number == id)
                .expect("a command of ours");
            numbers[which] = u64::MAX;
            ends[which] = now;
        }
    }
    assert_eq!(ssd.ftl().self_check(), Ok(()));
    ends
}

/// One word line on each of the 16 dies: block 0 is in the lower page of the first one.
fn one_line_each() -> Ssd {
    let mut ssd = ssd(true, false);
    ssd.do_now(Ask::Write {
        block: 0,
        count: 16 * 24,
    });
    ssd
}

// Transfers: 4096 bytes at 533 MB/s, at 3.2 GB/s; 98 304 bytes at 533 MB/s, at 3 GB/s.
const PAGE_PART: u64 = 7685;
const LINK: u64 = 1280;
const LINE_IN: u64 = 184_436;
const LINE_LINK: u64 = 32_768;

#[test]
fn a_lone_read_takes_controller_cells_channel_and_link() {
    for (block, cells) in [(0, 41_000), (8, 56_000), (16, 77_000), (24, 41_000)] {
        let ends = drive(&mut one_line_each(), &[(0, Ask::Read { block, count: 1 })]);
        assert_eq!(ends, [5_000 + cells + PAGE_PART + LINK], "block {block}");
    }
    // Both planes of a page at once: eight blocks are one read of the cells.
    let ends = drive(
        &mut one_line_each(),
        &[(0, Ask::Read { block: 0, count: 8 })],
    );
    assert!(
        ends[0].abs_diff(5_000 + 41_000 + 8 * PAGE_PART + 8 * LINK) < 16,
        "{ends:?}"
    );
}

#[test]
fn two_reads_of_a_die_wait_for_each_other_and_of_two_dies_do_not() {
    let same = drive(
        &mut one_line_each(),
        &[
            (0, Ask::Read { block: 0, count: 1 }),
            (0, Ask::Read { block: 1, count: 1 }),
        ],
    );
    assert_eq!(same[1] - same[0], 41_000 + PAGE_PART);
    // Dies 0 and 1 have channels of their own; only the link is shared.
    let apart = drive(
        &mut one_line_each(),
        &[
            (0, Ask::Read { block: 0, count: 1 }),
            (
                0,
                Ask::Read {
                    block: 24,
                    count: 1,
                },
            ),
        ],
    );
    assert_eq!(apart[1] - apart[0], LINK);
    // Dies 0 and 8 share a channel: the cells are read at the same time, the transfers follow one
    // another.
    let shared = drive(
        &mut one_line_each(),
        &[
            (0, Ask::Read { block: 0, count: 8 }),
            (
                0,
                Ask::Read {
                    block: 8 * 24,
                    count: 8,
                },
            ),
        ],
    );
    assert!(
        (shared[1] - shared[0]).abs_diff(8 * PAGE_PART) < 16,
        "{shared:?}"
    );
}

#[test]
fn a_write_is_answered_from_the_buffer_and_a_read_after_its_program_waits() {
    // The next word line is that of die 0, where block 0 is.
    let asks = [
        (
            0,
            Ask::Write {
                block: 1000,
                count: 24,
            },
        ),
        (50_000, Ask::Read { block: 0, count: 1 }),
    ];
    let ends = drive(&mut one_line_each(), &asks);
    let begins = LINE_LINK + 10_000;
    assert_eq!(ends[0], begins, "as soon as it is in the buffer");
    let (soonest, latest) = (begins + LINE_IN + 1_552_500, begins + LINE_IN + 1_897_500);
    let behind = 41_000 + PAGE_PART + LINK;
    assert!(
        (soonest + behind..=latest + behind).contains(&ends[1]),
        "{ends:?}"
    );
    // Buffered data is read from the buffer, whatever the die does.
    let asks = [
        (
            0,
            Ask::Write {
                block: 1000,
                count: 24,
            },
        ),
        (
            50_000,
            Ask::Read {
                block: 1000,
                count: 1,
            },
        ),
    ];
    assert_eq!(drive(&mut one_line_each(), &asks)[1], 50_000 + 5_000 + LINK);
}

#[test]
fn a_suspended_program_lets_a_read_go_first_and_loses_nothing() {
    let mut ssd = ssd(true, true);
    ssd.do_now(Ask::Write {
        block: 0,
        count: 16 * 24,
    });
    let asks = [
        (
            0,
            Ask::Write {
                block: 1000,
                count: 24,
            },
        ),
        (500_000, Ask::Read { block: 0, count: 1 }),
        (
            9_000_000,
            Ask::Read {
                block: 1000,
                count: 1,
            },
        ),
    ];
    let ends = drive(&mut ssd, &asks);
    assert_eq!(ends[1], 505_000 + 100_000 + 41_000 + PAGE_PART + LINK);
    assert_eq!(
        (ssd.counters.suspensions, ssd.counters.programmed_bytes),
        (1, 17 * 24 * BLOCK_BYTES)
    );
    assert_eq!(
        ends[2],
        9_005_000 + 41_000 + PAGE_PART + LINK,
        "it has been programmed after all"
    );
}

#[test]
fn in_order_a_read_waits_for_the_programs_before_it_and_for_no_other() {
    let options = DeviceOptions {
        protected: true,
        suspend: false,
        in_order: true,
    };
    let mut ssd = Ssd::new(&Timings::published().ssd, BLOCKS, &options);
    ssd.do_now(Ask::Write {
        block: 0,
        count: 16 * 24,
    });
    // Three word lines for each die, a read while the first is being programmed, and one more word
    // line for each.
    let lines = |from: u64, count: u64| Ask::Write {
        block: from,
        count: count * 16 * 24,
    };
    let asks = [
        (0, lines(1000, 3)),
        (3_000_000, Ask::Read { block: 0, count: 1 }),
        (3_100_000, lines(4000, 1)),
    ];
    let in_order = drive(&mut ssd.clone(), &asks)[1] - 3_000_000;
    ssd.in_order = false;
    let ahead = drive(&mut ssd, &asks)[1] - 3_000_000;
    // The first word line is nearly programmed; two more wait after it, and later ones wait for the
    // read.
    assert!(ahead < 1_897_500 + 2 * LINE_IN, "{ahead}");
    let two = 2 * 1_552_500..=2 * (1_897_500 + 2 * LINE_IN);
    assert!(
        two.contains(&(in_order - ahead)),
        "{in_order} against {ahead}"
    );
}

#[test]
fn a_flush_costs_a_command_with_protection_and_a_program_without() {
    let asks = [
        (
            0,
            Ask::Write {
                block: 1000,
                count: 1,
            },
        ),
        (50_000, Ask::Flush),
    ];
    assert_eq!(drive(&mut one_line_each(), &asks)[1], 60_000);
    let mut bare = ssd(false, false);
    bare.do_now(Ask::Write {
        block: 0,
        count: 16 * 24,
    });
    let ends = drive(&mut bare, &asks);
    assert!(
        (60_000 + LINE_IN + 1_552_500..=60_000 + LINE_IN + 1_897_500).contains(&ends[1]),
        "{ends:?}"
    );
}

#[test]
fn a_write_larger_than_the_buffer_waits_for_programs() {
    // 16 MiB of buffer and 16 dies with 96 KiB each at a time: of 20 MiB, 4 MiB have to be
    //    programmed first.
    let ends = drive(
        &mut one_line_each(),
        &[(
            0,
            Ask::Write {
                block: 0,
                count: 5 << 10,
            },
        )],
    );
    let rounds = (4u64 << 20).div_ceil(16 * 24 * BLOCK_BYTES);
    let link = transfer_ns(20 << 20, 3_000_000_000) + 10_000;
    // Two dies share a channel, so a round is between one program and one program with two
    // transfers.
    assert!(
        ends[0] > link + (rounds - 1) * 1_552_500
            && ends[0] < link + (rounds + 1) * (1_897_500 + 2 * LINE_IN),
        "{ends:?}"
    );
}

#[test]
fn what_is_written_in_order_and_discarded_before_is_programmed_once() {
    let mut ssd = ssd(true, false);
    ssd.do_now(Ask::Write {
        block: 0,
        count: BLOCKS,
    });
    let before = ssd.counters;
    for _ in 0..3 {
        for block in (0..BLOCKS).step_by(512) {
            ssd.do_now(Ask::Discard { block, count: 512 });
            ssd.do_now(Ask::Write { block, count: 512 });
        }
    }
    let (written, programmed) = (
        ssd.counters.written_bytes - before.written_bytes,
        ssd.counters.programmed_bytes - before.programmed_bytes,
    );
    assert!(
        (programmed as f64 / written as f64 - 1.0).abs() < 0.005,
        "{programmed} of {written}"
    );
    assert_eq!(ssd.ftl().self_check(), Ok(()));
}

#[test]
fn random_overwrites_of_a_full_drive_come_near_to_the_closed_form() {
    let (mut ssd, mut rng) = (ssd(true, false), Rng::stream(5, "overwrites"));
    ssd.do_now(Ask::Write {
        block: 0,
        count: BLOCKS,
    });
    let mut overwrite = |ssd: &mut Ssd| {
        (0..4 * BLOCKS).for_each(|_| {
            ssd.do_now(Ask::Write {
                block: rng.below(BLOCKS),
                count: 1,
            })
        })
    };
    overwrite(&mut ssd);
    let before = ssd.counters;
    overwrite(&mut ssd);
    let waf = (ssd.counters.programmed_bytes - before.programmed_bytes) as f64
        / (ssd.counters.written_bytes - before.written_bytes) as f64;
    let shape = *ssd.ftl().shape();
    let closed = shape.dies * (shape.die_blocks - KEPT_BLOCKS as usize) * shape.block_slots();
    let expected = greedy_waf(BLOCKS as f64 / closed as f64, shape.block_slots() as u32);
    assert!(
        (waf / expected - 1.0).abs() < 0.1,
        "{waf} where {expected} is expected; {shape:?}"
    );
    assert_eq!(ssd.ftl().self_check(), Ok(()));
}

#[test]
fn under_time_nothing_is_lost_or_waits_for_ever() {
    let (mut ssd, mut rng) = (ssd(true, false), Rng::stream(6, "timed"));
    ssd.do_now(Ask::Write {
        block: 0,
        count: BLOCKS,
    });
    let ask = |rng: &mut Rng| {
        let (block, count) = (rng.below(BLOCKS - 64), 1 + rng.below(64));
        match rng.below(10) {
            0..4 => Ask::Read { block, count },
            4..9 => Ask::Write { block, count },
            _ => Ask::Discard { block, count },
        }
    };
    let asks: Vec<(u64, Ask)> = (0..4000).map(|at| (at * 100_000, ask(&mut rng))).collect();
    let ends = drive(&mut ssd, &asks);
    assert!(ends.iter().all(|ends| *ends > 0) && ssd.is_idle());
    let worst = ends
        .iter()
        .zip(&asks)
        .map(|(ends, (begin, _))| ends - begin)
        .max();
    assert!(worst < Some(100_000_000), "{worst:?}");
    assert!(ssd.counters.erases > 100);
}
