//! A minimal log of segments: enough to check that the index and its policies reach the write
//! amplification that theory predicts.

use super::{Random, stats};
use crate::analytic::greedy_waf;
use crate::index::{VictimIndex, VictimPolicy};
use crate::stream::{Origin, Stream, placement};

const SEGMENT_BLOCKS: u32 = 512;
const NOWHERE: u32 = u32::MAX;

/// Parameters of a run.
struct Setup {
    policy: VictimPolicy,
    /// True if moved blocks go into a separate stream.
    separate: bool,
    utilisation: f64,
    /// Number of sealed segments when a victim is chosen: those that `utilisation` counts.
    segments: u32,
}

struct Log {
    setup: Setup,
    index: VictimIndex,
    /// Slot of every block.
    map: Vec<u32>,
    /// Block of every slot.
    owners: Vec<u32>,
    live: Vec<u32>,
    free: Vec<u32>,
    /// Next slot of the open segment of every stream, if there is one.
    open: [Option<u32>; Stream::ALL.len()],
    written: u64,
}

/// Free segments kept while the log is full: one may be opened by each stream before the next
/// victim is cleaned.
const RESERVE: usize = 3;

impl Log {
    fn new(setup: Setup) -> Self {
        let streams = 1 + usize::from(setup.separate);
        // When a victim is chosen, all but one of the reserve are free and every stream has an open
        // segment.
        let segments = setup.segments + (streams + RESERVE - 1) as u32;
        let blocks = f64::from(setup.segments * SEGMENT_BLOCKS) * setup.utilisation;
        Self {
            index: VictimIndex::new(segments, SEGMENT_BLOCKS, setup.policy),
            setup,
            map: vec![NOWHERE; blocks as usize],
            owners: vec![NOWHERE; (segments * SEGMENT_BLOCKS) as usize],
            live: vec![0; segments as usize],
            free: (0..segments).rev().collect(),
            open: [None; Stream::ALL.len()],
            written: 0,
        }
    }

    fn append(&mut self, block: u32, origin: Origin) {
        let stream = if self.setup.separate {
            placement(origin)
        } else {
            Stream::User
        };
        let slot = self.open[usize::from(stream.number())]
            .take()
            .unwrap_or_else(|| self.free.pop().expect("reserve is kept") * SEGMENT_BLOCKS);
        let old = std::mem::replace(&mut self.map[block as usize], slot);
        if old != NOWHERE {
            let segment = old / SEGMENT_BLOCKS;
            self.live[segment as usize] -= 1;
            self.index.update(segment, self.live[segment as usize]);
        }
        self.owners[slot as usize] = block;
        let segment = slot / SEGMENT_BLOCKS;
        self.live[segment as usize] += 1;
        self.written += 1;
        if (slot + 1).is_multiple_of(SEGMENT_BLOCKS) {
            self.index.insert(
                segment,
                stats(self.live[segment as usize], SEGMENT_BLOCKS, self.written),
            );
        } else {
            self.open[usize::from(stream.number())] = Some(slot + 1);
        }
    }

    fn write(&mut self, block: u32) {
        while self.free.len() < RESERVE {
            let (victim, found) = self
                .index
                .pop_best(self.written)
                .expect("some segment has garbage");
            assert_eq!(found.live_units, self.live[victim as usize]);
            for slot in victim * SEGMENT_BLOCKS..(victim + 1) * SEGMENT_BLOCKS {
                let block = self.owners[slot as usize];
                if self.map[block as usize] == slot {
                    self.append(block, Origin::Moved);
                }
            }
            assert_eq!(self.live[victim as usize], 0);
            self.free.push(victim);
        }
        self.append(block, Origin::User);
    }
}

/// Fills the log, overwrites it `warm` times, and measures over `measured` further overwrites.
fn waf(
    setup: Setup,
    warm: u64,
    measured: u64,
    mut choose: impl FnMut(&mut Random, u32) -> u32,
) -> f64 {
    let mut log = Log::new(setup);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let blocks = log.map.len() as u32;
    (0..blocks).for_each(|block| log.write(block));
    let mut run = |log: &mut Log, overwrites: u64| {
        (0..overwrites * u64::from(blocks)).for_each(|_| log.write(choose(&mut random, blocks)))
    };
    run(&mut log, warm);
    let before = log.written;
    run(&mut log, measured);
    assert_eq!(log.index.self_check(), Ok(()));
    (log.written - before) as f64 / (measured * u64::from(blocks)) as f64
}

fn uniform(random: &mut Random, blocks: u32) -> u32 {
    random.below(blocks)
}

/// 80 % of the writes go to 20 % of the blocks.
fn hot_and_cold(random: &mut Random, blocks: u32) -> u32 {
    let hot = blocks / 5;
    if random.below(5) < 4 {
        random.below(hot)
    } else {
        hot + random.below(blocks - hot)
    }
}

#[test]
fn greedy_reaches_the_closed_form() {
    for utilisation in [0.7, 0.9] {
        let setup = Setup {
            policy: VictimPolicy::Greedy,
            separate: false,
            utilisation,
            segments: 400,
        };
        let (found, theory) = (
            waf(setup, 4, 2, uniform),
            greedy_waf(utilisation, SEGMENT_BLOCKS),
        );
        println!("utilisation {utilisation}: {found:.3}, closed form {theory:.3}");
        assert!(
            (found / theory - 1.0).abs() < 0.03,
            "utilisation {utilisation}: {found}, closed form {theory}"
        );
    }
}

#[test]
fn separation_costs_nothing_under_uniform_writes() {
    let setup = Setup {
        policy: VictimPolicy::Greedy,
        separate: true,
        utilisation: 0.9,
        segments: 400,
    };
    let (found, theory) = (waf(setup, 4, 2, uniform), greedy_waf(0.9, SEGMENT_BLOCKS));
    println!("{found:.3}, closed form {theory:.3}");
    assert!(
        (found / theory - 1.0).abs() < 0.03,
        "{found}, closed form {theory}"
    );
}

#[test]
fn cost_benefit_with_separation_beats_greedy_on_hot_and_cold_blocks() {
    let setup = |policy, separate| Setup {
        policy,
        separate,
        utilisation: 0.9,
        segments: 400,
    };
    let greedy = waf(setup(VictimPolicy::Greedy, false), 4, 2, hot_and_cold);
    let cost_benefit = waf(setup(VictimPolicy::CostBenefit, true), 4, 2, hot_and_cold);
    println!("greedy {greedy:.3}, cost-benefit with separation {cost_benefit:.3}");
    assert!(
        cost_benefit < 0.9 * greedy,
        "{cost_benefit}, greedy {greedy}"
    );
}
