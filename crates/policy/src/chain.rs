//! A chain of groups whose sizes a model chooses, after MiDAS (Oh and others, "MIDAS: Minimizing
//! Write Amplification in Log-Structured Systems through Adaptive Group Configuration", FAST 2024);
//! implemented from the publication, not from its code.
//!
//! 1. User writes go to group 1, hot blocks to group 0. Blocks that are live when a segment of a
//!    group is cleaned move one group further; the last group (the *tail*) keeps its blocks.
//! 2. Each group but the tail has a size. A group that is too large yields the segment that it
//!    sealed first; if none is, the tail yields the one that the rule of the pool picks
//!    ([`Placement::due`]).
//! 3. *Update intervals* ([`lives`]): for an even sample of blocks the time of the last write is
//!    kept. They give the share of writes with each lifetime.
//! 4. *Model* ([`model`]): from that and the sizes follow the live share of each group's victims,
//!    and the total write amplification. At the end of an epoch (as many writes as blocks are live)
//!    the number of groups and their sizes are chosen for which it is least.
//! 5. *Irregular loads*: if the victims of a group deviate from the model's live share, that group
//!    and all later ones are merged into the tail for an epoch. All groups are merged at once if
//!    far more is moved than predicted.
//! 6. *Hot filter*: two bits for each block count up when a version dies before it would leave
//!    group 0, down when it dies later or is moved; at three a block is hot.
//!
//! Differences of the published MiDAS: an epoch of four times the blocks; intervals in units of a
//! quarter of a segment instead of eighths of powers of two; a size search from the first group to
//! the last instead of one over all.

pub mod lives;
pub mod model;

use crate::place::{Due, Place, Placement, Survey};
use lives::Lives;
use model::{Layout, Pool};

/// Maximum number of groups, including the hot one and the tail.
pub const GROUPS: usize = 8;
/// Mark of segments in the tail. An engine uses it for segments of unknown origin (after a start,
/// or filled under another policy). They belong to the tail and are cleaned by the rule of the
/// pool. Group `g` marks with `g + 1`.
const TAIL: u8 = 0;
/// Filter count from which on a block is hot.
const HOT: u8 = 3;
/// The live version was written as a hot one.
const WAS_HOT: u8 = 4;
/// Not live.
const DEAD: u32 = u32::MAX;
/// Number of blocks sampled at the end of an epoch for lifetimes that have not ended.
const SAMPLES: u32 = 1 << 16;
/// Minimum number of writes between two plans.
const EPOCH_LEAST: u32 = 1 << 12;
/// The model was wrong about a group if the live share of its victims is off by more than the first
/// number, with at least this number of victims.
const IRREGULAR: (f64, u32) = (0.15, 16);

/// Victims of a group since the last plan.
#[derive(Clone, Copy, Debug, Default)]
struct Victims {
    number: u32,
    live: u64,
}

/// Chain of groups; see the module.
#[derive(Debug)]
pub struct Chain {
    streams: u8,
    segment_blocks: u32,
    /// For each block: the count of the hot filter, and [`WAS_HOT`].
    filter: Vec<u8>,
    /// Time of the last write of each block.
    written: Vec<u32>,
    lives: Lives,
    layout: Layout,
    /// Number of blocks in each group by writes and cleaning, corrected at each survey.
    held: [i64; GROUPS],
    victims: [Victims; GROUPS],
    pool: Pool,
    epoch_began: u32,
    epoch_in: u32,
}

impl Chain {
    /// A chain for blocks `0 .. blocks`, segments of `segment_blocks` blocks, and `streams` groups,
    /// at least three.
    pub fn new(blocks: u32, segment_blocks: u32, streams: u8) -> Self {
        let streams = streams.clamp(3, GROUPS as u8);
        Self {
            streams,
            segment_blocks,
            filter: vec![0; blocks as usize],
            written: vec![DEAD; blocks as usize],
            lives: Lives::default(),
            layout: Layout::default(),
            held: [0; GROUPS],
            victims: [Victims::default(); GROUPS],
            pool: Pool::default(),
            epoch_began: 0,
            epoch_in: EPOCH_LEAST,
        }
    }

    /// The active groups; for reports.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Group of a mark.
    #[inline]
    fn group(&self, tag: u8) -> usize {
        let tail = self.layout.tail();
        usize::from(tag)
            .checked_sub(1)
            .map_or(tail, |group| group.min(tail))
    }

    fn count(&mut self, block: u32, up: bool) {
        let filter = &mut self.filter[block as usize];
        let count = *filter & HOT;
        *filter = *filter & WAS_HOT
            | if up {
                (count + 1).min(HOT)
            } else {
                count.saturating_sub(1)
            };
    }

    /// Abandons the groups for the rest of the epoch if moves far exceed the model's prediction
    /// plus those needed to bring groups to their sizes.
    fn doubt(&mut self, now: u32) {
        let moved: u64 = self.victims.iter().map(|victims| victims.live).sum();
        let expected = self.layout.waf * f64::from(now.wrapping_sub(self.epoch_began));
        if moved as f64 > 2.0 * expected + self.layout.blocks.iter().sum::<f64>() {
            self.layout = Layout {
                filter_age: self.layout.filter_age,
                ..Layout::default()
            };
        }
    }

    fn replan(&mut self, now: u32) {
        // All deaths are counted, because a few blocks may have most of them. A sample of the
        // living is enough, as each block has one.
        let blocks = self.written.len() as u64;
        let looks = blocks.min(u64::from(SAMPLES));
        for look in 0..looks {
            // One of each part represents all of it. The upper bits of a hash choose it: traces are
            // often regular in powers of two.
            let (from, to) = (look * blocks / looks, (look + 1) * blocks / looks);
            let drawn = (u64::from((look as u32).wrapping_mul(0x9e37_79b9)) * (to - from)) >> 32;
            let block = (from + drawn) as usize;
            if self.written[block] != DEAD {
                self.lives.living(
                    self.filter[block] & WAS_HOT != 0,
                    self.written[block],
                    now,
                    self.epoch_began,
                    (to - from) as f64,
                );
            }
        }
        let tail = self.layout.tail();
        let wrong = (1..tail).find(|group| {
            let (victims, expected) = (self.victims[*group], self.layout.live_share[*group]);
            let found = victims.live as f64
                / (f64::from(victims.number) * f64::from(self.segment_blocks)).max(1.0);
            victims.number >= IRREGULAR.1 && (found - expected).abs() > IRREGULAR.0
        });
        let groups_most = wrong.unwrap_or(usize::from(self.streams) - 1).max(1);
        if self.pool.space > 0.0 {
            self.layout = model::choose(
                &self.lives,
                &self.pool,
                f64::from(self.segment_blocks),
                groups_most,
                &self.layout,
            );
        }
        self.lives.fade();
        self.victims = [Victims::default(); GROUPS];
        self.epoch_began = now;
        self.epoch_in = (self.pool.live as u32).max(EPOCH_LEAST);
    }
}

impl Placement for Chain {
    fn streams(&self) -> usize {
        self.layout.tail() + 1
    }

    #[inline]
    fn user(&mut self, block: u32, now: u32) -> u8 {
        self.epoch_in -= 1;
        if self.epoch_in == 0 {
            self.replan(now);
        }
        let filter = &mut self.filter[block as usize];
        let is_hot = *filter & HOT == HOT;
        *filter = *filter & HOT | if is_hot { WAS_HOT } else { 0 };
        self.written[block as usize] = now.min(DEAD - 1);
        self.lives.born(is_hot);
        let group = usize::from(!is_hot || !self.layout.has_hot());
        self.held[group] += 1;
        group as u8
    }

    #[inline]
    fn moved(&mut self, block: u32, _now: u32, from: Place) -> u8 {
        self.count(block, false);
        let group = (self.group(from.tag) + 1).min(self.layout.tail());
        self.held[group] += 1;
        group as u8
    }

    #[inline]
    fn died(&mut self, block: u32, now: u32, place: Place, trimmed: bool) {
        // (The mark of an open segment is not known. Blocks that die there died young.)
        let young =
            place.age == 0 || (self.group(place.tag) < 2 && place.age <= self.layout.hot_age());
        self.count(block, young);
        let written = &mut self.written[block as usize];
        if *written != DEAD {
            self.lives.died(
                self.filter[block as usize] & WAS_HOT != 0,
                *written,
                now,
                self.epoch_began,
            );
        }
        if trimmed {
            *written = DEAD;
        }
    }

    fn victim(&mut self, place: Place, live: u32, _opened_at: u32, _now: u32) {
        let group = self.group(place.tag);
        self.held[group] -= i64::from(self.segment_blocks);
        self.victims[group].number += 1;
        self.victims[group].live += u64::from(live);
    }

    fn survey(&mut self, now: u32, log: &dyn Survey) {
        let (mut held, mut sealed, mut live) = ([0i64; GROUPS], 0u64, 0u64);
        log.sealed(&mut |place, alive| {
            held[self.group(place.tag)] += i64::from(self.segment_blocks);
            (sealed, live) = (sealed + 1, live + u64::from(alive));
        });
        // The content of open segments is not reported; it is the remainder of a whole one.
        for (held, before) in held.iter_mut().zip(self.held) {
            *held += before.rem_euclid(i64::from(self.segment_blocks));
        }
        self.held = held;
        let space = sealed as f64 * f64::from(self.segment_blocks);
        self.pool = Pool {
            space,
            live: live as f64,
        };
        self.doubt(now);
    }

    fn tag(&self, stream: u8) -> u8 {
        if usize::from(stream) >= self.layout.tail() {
            TAIL
        } else {
            stream + 1
        }
    }

    fn due(&self) -> Option<Due> {
        let one = f64::from(self.segment_blocks);
        let over = |group: &usize| self.held[*group] as f64 >= self.layout.blocks[*group] + one;
        let found = (0..self.layout.tail()).find(over);
        Some(Due {
            group: found.unwrap_or(self.layout.tail()) as u8,
            first_sealed: found.is_some(),
        })
    }

    fn group_of(&self, tag: u8) -> u8 {
        self.group(tag) as u8
    }
}

#[cfg(test)]
mod tests;
