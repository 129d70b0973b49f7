//! Placement by learned lifetimes.
//!
//! A block in a segment has two kinds of cost: while it is dead and its segment is not cleaned yet
//! it holds space, and if it is live when the segment is cleaned it is moved. With a price `p` of
//! space (moves per block of garbage and unit of time), and with the chance `S(t)` to live at least
//! for `t` more, a segment that is cleaned at age `T` costs for the block
//! ```text
//! J(T) = p * integral of (1 - S) up to T  +  S(T) * (1 + V(age + T)),     V = min over T of J
//! ```
//! so each block has a best `T`, whatever law its lifetime follows: memoryless (random writes: hot
//! blocks short, cold ones long), periodic (just after its next death), or written once. Blocks of
//! similar `T` share a stream. The rest is to estimate `S` and `p`.
//!
//! 1. *Knowledge of a block* (6 bytes): time of its last write, fading mean of its lifetimes, its
//!    last lifetime ([`trail`]).
//! 2. *Lifetimes* ([`lives`]): for each cell of (mean, last lifetime) and age, deaths are counted,
//!    and the living by a sampling hand that passes over all blocks: their quotient is the chance
//!    to die. All counts fade, so that they follow a changing load.
//! 3. *Plan* ([`plan`]): periodically `J` is minimised for each cell, and cells are cut into
//!    streams where that saves most; a stream must save more than the unwritten half of its open
//!    segment costs at the price of space (where open segments are not counted, all streams are
//!    used). The result is a table: cell and age to stream.
//! 4. *Segments*: deaths by plan and age of the segment give the rate at which its live blocks die,
//!    at least a small share of one over the age. The victim rule uses it
//!    ([`crate::select::gain_price`]). The prices at which they are chosen are the price of space.
//!
//! Cost of an operation: one or two table look-ups, one sample. Planning takes some milliseconds
//! for each quarter of all live blocks written.

pub mod lives;
pub mod plan;
mod tally;
pub mod trail;

use crate::place::{Place, Placement, Survey};
use lives::{AGES, Lives, age_bucket};
use plan::{PLANS, Planner};
use tally::Tally;
use trail::Trail;

/// Not live.
const DEAD: u32 = u32::MAX;

/// Knowledge of a block, in 6 contiguous bytes: time of its last write, and its [`Trail`].
#[derive(Clone, Copy)]
struct Known([u16; 3]);

impl Known {
    const NOTHING: Self = Self([u16::MAX, u16::MAX, 0]);

    #[inline]
    fn last(self) -> u32 {
        u32::from(self.0[0]) | u32::from(self.0[1]) << 16
    }

    #[inline]
    fn trail(self) -> Trail {
        Trail(self.0[2])
    }

    #[inline]
    fn set_last(&mut self, last: u32) {
        (self.0[0], self.0[1]) = (last as u16, (last >> 16) as u16);
    }
}

/// Minimum number of writes between two plans; else a quarter of the live blocks.
const PLAN_PAUSE_MIN: u32 = 1024;
/// The price of space is this quantile of the victims' prices,
const PRICE_QUANTILE: f64 = 0.9;
/// followed in steps of this share.
const PRICE_STEP: f64 = 0.05;
/// Weight of a plan's mean rate, in deaths, in the rate of its segments of one age.
const SEGMENT_DOUBT: f32 = 20.0;
/// Live blocks of a segment of age `T` are assumed to die at this share of `1 / T` at least. Old
/// blocks mostly stay alive, but not forever: when a load moves to another part of its space,
/// segments without deaths are about to die, and counts cannot show that. Without this, a segment
/// with hardly any garbage is worth cleaning just because nothing died in such segments recently.
const END_AHEAD: f32 = 0.02;
/// Share of counts by segments kept from survey to survey.
const SURVEY_KEEP: f32 = 0.992;

/// Step of the sampling hand: the golden section of a turn.
const HAND_STEP: u32 = 0x9e37_79b9;

/// Options of the placement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearnedOptions {
    /// Maximum number of streams.
    pub streams: u8,
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Cost of an open segment, in segments: half of one is not written yet. 0 if neither open
    /// segments nor deaths in them are counted: all streams are used then.
    pub open_cost: f64,
}

/// Placement by learned lifetimes; see the module.
pub struct Learned {
    options: LearnedOptions,
    blocks: Vec<Known>,
    lives: Lives,
    planner: Planner,
    segment_deaths: Tally,
    segment_exposure: Tally,
    segment_rate: Vec<f32>,
    surveyed_at: u32,
    hand: u32,
    price: f64,
    plan_in: u32,
    live: u64,
}

/// Index of this plan and age in the counts by segments. Marks are plans; a foreign mark does no
/// more harm than a wrong plan.
#[inline]
fn by_segment(place: Place) -> usize {
    usize::from(place.tag).min(PLANS - 1) * AGES + age_bucket(place.age)
}

impl Learned {
    /// A placement for blocks `0 .. blocks`.
    pub fn new(blocks: u32, options: LearnedOptions) -> Self {
        Self {
            options,
            blocks: vec![Known::NOTHING; blocks as usize],
            lives: Lives::new(blocks),
            planner: Planner::new(usize::from(options.streams)),
            segment_deaths: Tally::new(PLANS * AGES),
            segment_exposure: Tally::new(PLANS * AGES),
            segment_rate: vec![0.0; PLANS * AGES],
            surveyed_at: 0,
            hand: 0,
            price: 10.0 / f64::from(blocks.max(1)),
            plan_in: 1024,
            live: 0,
        }
    }

    /// The active plan; for reports.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// The price of space.
    pub fn price(&self) -> f64 {
        self.price
    }

    /// Samples one block for each write, in an order that covers all evenly.
    #[inline]
    fn sample(&mut self, now: u32) {
        self.hand = self.hand.wrapping_add(HAND_STEP);
        let known = self.blocks[self.block_at(self.hand)];
        if known.last() != DEAD {
            self.lives
                .seen(known.trail().cell(), now.wrapping_sub(known.last()));
        }
    }

    #[inline]
    fn block_at(&self, hand: u32) -> usize {
        ((u64::from(hand) * self.blocks.len() as u64) >> 32) as usize
    }

    fn replan(&mut self) {
        self.plan_in = (self.live / 4).clamp(u64::from(PLAN_PAUSE_MIN), 1 << 30) as u32;
        let open_cost = self.options.open_cost * f64::from(self.options.segment_blocks);
        self.planner
            .plan(&mut self.lives, self.price, open_cost, self.live);
    }
}

impl Placement for Learned {
    fn streams(&self) -> usize {
        self.planner.streams()
    }

    #[inline]
    fn touch(&self, blocks: &[u32], written: bool) -> u32 {
        let read = |all: u16, block: usize| all ^ self.blocks[block].0[0];
        let own = blocks
            .iter()
            .fold(0, |all, block| read(all, *block as usize));
        let sampled = (0..if written { blocks.len() as u32 } else { 0 }).fold(
            (own, self.hand),
            |(all, hand), _| {
                let hand = hand.wrapping_add(HAND_STEP);
                (read(all, self.block_at(hand)), hand)
            },
        );
        u32::from(sampled.0)
    }

    #[inline]
    fn user(&mut self, block: u32, now: u32) -> u8 {
        let known = &mut self.blocks[block as usize];
        self.live += u64::from(known.last() == DEAD);
        known.set_last(now.min(DEAD - 1));
        let cell = known.trail().cell();
        self.lives.born(cell);
        self.sample(now);
        self.plan_in -= 1;
        if self.plan_in == 0 {
            self.replan();
        }
        self.planner.stream(cell, 0)
    }

    #[inline]
    fn moved(&mut self, block: u32, now: u32, _from: Place) -> u8 {
        let known = &mut self.blocks[block as usize];
        if known.last() == DEAD {
            // Live, but not written since the engine started: its lifetime starts here.
            known.set_last(now.min(DEAD - 1));
            self.live += 1;
        }
        let (cell, age) = (known.trail().cell(), now.wrapping_sub(known.last()));
        self.lives.moved(cell, age);
        self.planner.stream(cell, age_bucket(age))
    }

    #[inline]
    fn died(&mut self, block: u32, now: u32, place: Place, trimmed: bool) {
        let known = &mut self.blocks[block as usize];
        if known.last() == DEAD {
            // (An engine has versions that were written before it started.)
            return;
        }
        let (trail, age) = (known.trail(), now.wrapping_sub(known.last()));
        known.0[2] = trail.lived(age).0;
        if trimmed {
            known.set_last(DEAD);
            self.live -= 1;
        }
        self.lives.died(trail.cell(), age);
        if place.age > 0 {
            self.segment_deaths.count(by_segment(place));
        }
    }

    fn chosen(&mut self, price: f64) {
        // Follows a high quantile: wholly dead segments have price 0 and say nothing about the
        // value of the last one.
        let up = PRICE_STEP * PRICE_QUANTILE;
        let down = PRICE_STEP * (1.0 - PRICE_QUANTILE);
        self.price = (self.price
            * if price > self.price {
                1.0 + up
            } else {
                1.0 - down
            })
        .clamp(1e-15, 1.0);
    }

    fn survey(&mut self, now: u32, log: &dyn Survey) {
        let passed = now.wrapping_sub(self.surveyed_at) as f32;
        self.surveyed_at = now;
        let most = self.options.segment_blocks as f32 * passed;
        log.sealed(&mut |place, live| {
            self.segment_exposure
                .add(by_segment(place), live as f32 * passed, most);
        });
        for plan in 0..PLANS {
            let row = plan * AGES..(plan + 1) * AGES;
            let deaths: f32 = row.clone().map(|at| self.segment_deaths.get(at)).sum();
            let exposure: f32 = row.clone().map(|at| self.segment_exposure.get(at)).sum();
            // A segment without counts is assumed to die as its plan predicts.
            let all = (deaths + 8.0) / (exposure + 8.0 * lives::edge(plan));
            for at in row {
                let counted = (self.segment_deaths.get(at) + SEGMENT_DOUBT)
                    / (self.segment_exposure.get(at) + SEGMENT_DOUBT / all);
                self.segment_rate[at] = counted.max(END_AHEAD / lives::edge(at % AGES + 1));
                self.segment_deaths.fade(at, SURVEY_KEEP);
                self.segment_exposure.fade(at, SURVEY_KEEP);
            }
        }
    }

    fn tag(&self, stream: u8) -> u8 {
        self.planner.plan_of(stream)
    }

    #[inline]
    fn rate(&self, place: Place) -> f32 {
        self.segment_rate[by_segment(place)]
    }
}

#[cfg(test)]
mod tests;
