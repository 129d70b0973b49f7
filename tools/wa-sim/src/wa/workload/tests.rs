use super::*;

fn counts(pattern: Pattern, blocks: u32, writes: u32) -> Vec<u32> {
    let mut load = Workload::from(pattern).stream(blocks, 11);
    let mut counts = vec![0; blocks as usize];
    (0..writes).for_each(|_| counts[load.block() as usize] += 1);
    counts
}

#[test]
fn zipf_ranks_come_in_proportion() {
    for theta in [0.5, 0.99, 1.0, 1.3] {
        let mut found = counts(Pattern::Zipf { theta }, 1000, 2_000_000);
        found.sort_unstable_by(|a, b| b.cmp(a));
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
        for rank in [1usize, 2, 5, 20] {
            let expected = (rank as f64).powf(-theta) / sum * 2e6;
            assert!(
                (f64::from(found[rank - 1]) / expected - 1.0).abs() < 0.05,
                "theta {theta}, rank {rank}: {} for {expected}",
                found[rank - 1]
            );
        }
        let tail: u32 = found[500..].iter().sum();
        let expected: f64 = (501..=1000)
            .map(|rank| f64::from(rank).powf(-theta))
            .sum::<f64>()
            / sum
            * 2e6;
        assert!(
            (f64::from(tail) / expected - 1.0).abs() < 0.02,
            "theta {theta}, tail"
        );
    }
}

#[test]
fn hot_blocks_are_scattered_and_get_their_share() {
    let found = counts(
        Pattern::HotCold {
            writes: 0.8,
            blocks: 0.2,
        },
        1000,
        1_000_000,
    );
    let hot: Vec<usize> = (0..1000).filter(|block| found[*block] > 2000).collect();
    assert_eq!(hot.len(), 200);
    let in_first_half = hot.iter().filter(|block| **block < 500).count();
    assert!(
        (90..=110).contains(&in_first_half),
        "{in_first_half} of 200 hot blocks in the first half"
    );
}

#[test]
fn a_static_share_is_never_written_and_names_lead_back() {
    let workload = Workload {
        static_share: 0.5,
        ..Pattern::Uniform.into()
    };
    let mut load = workload.stream(1000, 1);
    let mut seen = vec![false; 1000];
    (0..100_000).for_each(|_| seen[load.block() as usize] = true);
    assert_eq!(seen.iter().filter(|seen| **seen).count(), 500);
    for name in [
        "uniform",
        "zipf:0.99",
        "hot:80/20",
        "sequential:4",
        "mixed",
        "moving",
        "phases",
        "journal",
    ] {
        let pattern = Pattern::from_name(name).expect("known");
        assert_eq!(pattern.name(), name);
        assert!(
            counts(pattern, 1000, 20_000).iter().sum::<u32>() == 20_000,
            "{name} stays within its blocks"
        );
    }
    assert_eq!(
        [
            Pattern::from_name("zipf:-1"),
            Pattern::from_name("hot:80"),
            Pattern::from_name("x")
        ],
        [None; 3]
    );
}

#[test]
fn trims_leave_the_share_empty_that_is_asked_for() {
    let blocks = 4000;
    for (pattern, static_share) in [
        (Pattern::Uniform, 0.0),
        (
            Pattern::HotCold {
                writes: 0.8,
                blocks: 0.02,
            },
            0.5,
        ),
    ] {
        let load = Workload {
            static_share,
            ..pattern.into()
        }
        .emptied(0.15)
        .expect("two rates at most");
        assert!((load.empty_share().expect("known") - 0.15).abs() < 1e-9);
        let mut live = vec![true; blocks as usize];
        let (mut empty, mut sum, rounds) = (0u64, 0u64, 1_000_000);
        for (at, operation) in load.stream(blocks, 7).take(rounds).enumerate() {
            let (block, is_live) = match operation {
                Operation::Write { block, .. } => (block, true),
                Operation::Trim { block, .. } => (block, false),
                Operation::Pause { .. }
                | Operation::Arrival { .. }
                | Operation::Flush
                | Operation::Durable => continue,
            };
            let before = std::mem::replace(&mut live[block as usize], is_live);
            empty = empty + u64::from(before && !is_live) - u64::from(!before && is_live);
            sum += if at >= rounds / 2 { empty } else { 0 };
        }
        let found = sum as f64 / (rounds / 2) as f64 / (f64::from(blocks) * (1.0 - static_share));
        assert!(
            (found / 0.15 - 1.0).abs() < 0.02,
            "{}: {found}",
            pattern.name()
        );
    }
    assert_eq!(Workload::from(Pattern::Moving).emptied(0.1), None);
    assert_eq!(Workload::from(Pattern::Uniform).empty_share(), Some(0.0));
}

#[test]
fn every_pattern_stays_within_the_smallest_pools() {
    for name in [
        "uniform",
        "zipf:0.99",
        "hot:80/20",
        "sequential:4",
        "mixed",
        "moving",
        "phases",
        "journal",
    ] {
        for blocks in 1..5 {
            let pattern = Pattern::from_name(name).expect("known");
            // (A block past the pool is a panic in `counts`.)
            assert_eq!(
                counts(pattern, blocks, 2000).iter().sum::<u32>(),
                2000,
                "{name} of {blocks}"
            );
        }
    }
}
