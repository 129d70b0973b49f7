use super::*;
use crate::wa::workload::{Pattern, Workload};
use windrow_policy::analytic::{fifo_waf, greedy_waf};
use windrow_policy::learn::{Learned, LearnedOptions};

use windrow_policy::place::{Generations, Mixed, Separate};

fn shape(blocks: u32, segment_blocks: u32, spare: f64, space: Space) -> Shape {
    Shape {
        blocks,
        live_blocks: blocks,
        segment_blocks,
        header_blocks: 0,
        spare,
        space,
    }
}

/// Fills, overwrites `passes` times, and returns the write amplification of the second half.
fn steady<P: Placement>(mut log: Log<P>, workload: Workload, passes: u32) -> (f64, Log<P>) {
    let blocks = log.shape.blocks;
    (0..blocks).for_each(|block| log.write(block));
    let mut load = workload.stream(blocks, 5);
    let half = blocks * passes / 2;
    let mut overwrite = |log: &mut Log<P>| {
        for _ in 0..half / 32 {
            let group: [u32; 32] = std::array::from_fn(|_| load.block());
            log.write_all(&group);
        }
    };
    overwrite(&mut log);
    let before = log.counts();
    overwrite(&mut log);
    log.self_check().expect("sound");
    (log.counts().since(before).waf(), log)
}

#[test]
fn uniform_overwrites_meet_the_closed_forms() {
    for utilisation in [0.95, 0.93, 0.90, 0.85, 0.80, 0.70] {
        for (rule, expected) in [
            (Rule::Greedy, greedy_waf(utilisation, 64)),
            (Rule::Fifo, fifo_waf(utilisation)),
        ] {
            let log = Log::new(
                shape(64 * 1000, 64, 1.0 - utilisation, Space::Share),
                rule,
                Mixed,
                1,
            )
            .expect("a log");
            let (waf, _) = steady(log, Pattern::Uniform.into(), 8);
            assert!(
                (waf / expected - 1.0).abs() < 0.01,
                "{} at {utilisation}: {waf}, expected {expected}",
                rule.name()
            );
        }
    }
}

#[test]
fn strict_space_charges_the_open_segment_and_the_reserve() {
    // 500 segments are live; one segment is always open or free for cleaning, so it behaves like a
    // pool with one segment less.
    let shape = shape(64 * 500, 64, 0.10, Space::Strict);
    let (waf, log) = steady(
        Log::new(shape, Rule::Greedy, Mixed, 1).expect("a log"),
        Pattern::Uniform.into(),
        10,
    );
    let segments = f64::from(shape.segments());
    assert_eq!(segments, 556.0, "500 / 0.9, rounded up");
    let expected = greedy_waf(500.0 / (segments - 1.0), 64);
    assert!(
        (waf / expected - 1.0).abs() < 0.015,
        "{waf}, expected {expected}"
    );
    assert!(log.free_segments() <= 2);
}

#[test]
fn the_smallest_log_that_is_taken_can_be_cleaned_for_ever_by_every_policy() {
    // Five segments of live blocks and two spare: most streams find no segment of their own.
    let shape = Shape {
        spare: 1.0 - 5.0 / 7.0,
        ..shape(40, 8, 0.0, Space::Strict)
    };
    assert_eq!(shape.segments(), 7);
    let options = LearnedOptions {
        streams: 8,
        segment_blocks: 8,
        open_cost: 0.5,
    };
    let (waf, _) = steady(
        Log::new(shape, Rule::Gain, Learned::new(40, options), 1).expect("a log"),
        Pattern::Zipf { theta: 1.2 }.into(),
        4000,
    );
    assert!(waf > 1.0 && waf < 8.0, "{waf}");
    let (waf, _) = steady(
        Log::new(shape, Rule::AgeRoot, Separate, 1).expect("a log"),
        Pattern::Uniform.into(),
        4000,
    );
    assert!(waf > 1.0 && waf < 8.0, "{waf}");
    let smaller = Shape {
        spare: 1.0 - 5.0 / 6.0,
        ..shape
    };
    assert!(Log::new(smaller, Rule::Greedy, Mixed, 1).is_err());
}

/// All garbage is in open segments, so there is nothing to clean. A stream that opens a segment
/// must not take the last free one: the next victim's blocks need it (found by `advise --live` on a
/// small pool).
#[test]
fn the_last_free_segment_is_for_cleaning() {
    for (blocks, live) in [(4096, 512), (4096, 4096), (5120, 300)] {
        for spare in [0.09, 0.1, 0.12, 0.15] {
            let mut log = Log::new(
                shape(blocks, 192, spare, Space::Strict),
                Rule::Greedy,
                Generations::new(4),
                1,
            )
            .expect("valid");
            (0..blocks).for_each(|block| log.write(block));
            for at in 0..20_000u32 {
                log.write(at.wrapping_mul(2_654_435_761) / 256 % live);
                assert!(log.free_segments() > 0, "after {at} writes");
            }
        }
    }
}

#[test]
fn trims_free_what_they_cover_once() {
    let mut log =
        Log::new(shape(640, 64, 0.5, Space::Strict), Rule::Greedy, Mixed, 1).expect("a log");
    log.apply(Operation::Write {
        block: 0,
        count: 640,
    });
    log.apply(Operation::Trim {
        block: 100,
        count: 50,
    });
    log.apply(Operation::Trim {
        block: 120,
        count: 50,
    });
    assert_eq!((log.counts().trimmed, log.segments.live), (70, 570));
    log.apply(Operation::Write {
        block: 110,
        count: 1,
    });
    log.self_check().expect("sound");
    assert_eq!(log.segments.live, 571);
}

#[test]
fn groups_are_the_same_as_single_writes() {
    let run = |grouped: bool| {
        let mut log =
            Log::new(shape(6400, 64, 0.1, Space::Strict), Rule::Greedy, Mixed, 1).expect("a log");
        let mut load = Workload::from(Pattern::Zipf { theta: 0.9 }).stream(6400, 3);
        (0..6400).for_each(|block| log.write(block));
        for _ in 0..1000 {
            let group: Vec<u32> = (0..50).map(|_| load.block()).collect();
            if grouped {
                log.write_all(&group)
            } else {
                group.iter().for_each(|block| log.write(*block))
            }
        }
        (log.counts(), log.map.clone())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn pauses_clean_up_to_their_goal_and_no_further() {
    let mut log = Log::new(
        shape(64 * 100, 64, 0.3, Space::Strict),
        Rule::Greedy,
        Mixed,
        1,
    )
    .expect("a log");
    let mut load = Workload::from(Pattern::Uniform).stream(6400, 3);
    (0..6400).for_each(|block| log.write(block));
    (0..20_000).for_each(|_| log.write(load.block()));
    let moved = log.counts().moved;
    log.idle(u32::MAX, 10);
    assert_eq!(log.free_segments(), 10);
    assert_eq!(log.counts().moved_idle, log.counts().moved - moved);
    let before = log.counts();
    log.idle(0, 20);
    assert_eq!(log.counts(), before, "a pause of no length");
}

/// The peers take no victim with less garbage than the spare share; our simulation must not collect
/// nearly full segments of static data, either.
#[test]
fn by_the_peers_rule_a_victim_has_its_share_of_garbage() {
    for (rule, spare) in [
        (Rule::AgeRoot, 0.15),
        (Rule::CostBenefit, 0.15),
        (Rule::Gain, 0.25),
        (Rule::Choices(3), 0.15),
    ] {
        let log = Log::new(shape(6400, 64, spare, Space::Share), rule, Separate, 1).expect("a log");
        let load = Workload {
            static_share: 0.3,
            ..Pattern::Zipf { theta: 0.9 }.into()
        };
        let (waf, log) = steady(log, load, 10);
        let most = (64.0 * (1.0 - spare)) as usize;
        assert_eq!(
            log.victims_by_live()[most + 1..].iter().sum::<u64>(),
            0,
            "{}: {:?}",
            rule.name(),
            log.victims_by_live()
        );
        assert!(
            waf > 1.0 && log.segments.garbage as f64 <= spare * log.segments.used as f64 + 64.0,
            "{}",
            rule.name()
        );
    }
}
