//! Model of the engine's checkpoints: when one begins, the pages it writes, and the segments that
//! wait for it.
//!
//! Segments sealed since the older of the two kept checkpoints began may have to be replayed after
//! a crash, and are no victims. Checkpoints begin
//!
//! 1. *evenly* ([`When::Every`]): at the distance measured in an engine; or
//! 2. *by cost* ([`When::Priced`]), as the engine begins them by itself
//!    (`crates/engine/src/upkeep/checkpoint.rs`): when users have written [`CHECKPOINT_COST_RATIO`] times
//!    the cost of the dirty map pages, and a share of the pool; or when the opportunity cost (moves
//!    because better victims wait for a checkpoint) reaches [`OPPORTUNITY_COST_RATIO`] times that
//!    cost; and
//! 3. when nothing else is left to clean.
//!
//! Pages of the map have [`PAGE_BLOCKS`] blocks each; one is dirty once a block of it has been
//! written or moved.

use std::collections::VecDeque;
use windrow_engine::limits::{
    CHECKPOINT_COST_RATIO, CHECKPOINT_FIXED_PAGES, CHECKPOINT_MIN_LOG_BYTES,
    OPPORTUNITY_COST_RATIO, YOUNG_SAMPLES,
};
use windrow_policy::opportunity_cost;
use windrow_types::BLOCK_BYTES;

/// Number of blocks in a page of the map.
const PAGE_BLOCKS: u32 = 256;
/// Share of the pool (one part in this number) written before a checkpoint is due.
const POOL_SHARE: u64 = 8;
/// Number of user blocks written before a checkpoint is due, if that is less.
const USER_BLOCKS: u64 = CHECKPOINT_MIN_LOG_BYTES / BLOCK_BYTES;

/// Condition for checkpoints, except when nothing else is left to clean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// No checkpoints.
    #[default]
    Never,
    /// After this number of log blocks.
    Every(u64),
    /// By cost and benefit.
    Priced,
}

#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    when: When,
    /// Number of log blocks, or with [`When::Priced`] user blocks, at which the next one is due at
    /// the earliest.
    next: u64,
    least: u64,
    current: u32,
    /// Checkpoint that was current when a segment was sealed; empty without checkpoints.
    sealed_in: Vec<u32>,
    /// Sealed segments that are not yet victims, oldest first.
    young: VecDeque<u32>,
    /// A bit for each page of the map that changed since the last checkpoint, and their number.
    dirty: Vec<u64>,
    dirty_pages: u64,
    opportunity_cost: u64,
    /// Number of pages written by all checkpoints.
    pub pages: u64,
}

impl Checkpoints {
    /// Enables checkpoints.
    pub fn begin(
        &mut self,
        when: When,
        written: u64,
        log_blocks: u64,
        (segments, segment_blocks, blocks): (usize, u32, usize),
    ) {
        self.when = when;
        self.sealed_in = vec![0; if when == When::Never { 0 } else { segments }];
        match when {
            When::Never => {}
            When::Every(every) => self.next = log_blocks + every,
            When::Priced => {
                self.least =
                    (segments as u64 * u64::from(segment_blocks) / POOL_SHARE).min(USER_BLOCKS);
                self.next = written + self.least;
                self.dirty = vec![0; blocks.div_ceil(64 * PAGE_BLOCKS as usize)];
            }
        }
    }

    /// Records a new position of a block.
    #[inline]
    pub fn note(&mut self, block: u32) {
        if let Some(word) = self.dirty.get_mut((block / (64 * PAGE_BLOCKS)) as usize) {
            let bit = 1 << (block / PAGE_BLOCKS % 64);
            self.dirty_pages += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// Number of pages that one would write now, which are its cost.
    fn cost(&self) -> u64 {
        self.dirty_pages + CHECKPOINT_FIXED_PAGES
    }

    /// True if the next one is due.
    pub fn is_due(&self, written: u64, log_blocks: u64) -> bool {
        match self.when {
            When::Never => false,
            When::Every(_) => log_blocks >= self.next,
            When::Priced => {
                let by_cost = written >= self.next
                    && written - (self.next - self.least)
                        >= CHECKPOINT_COST_RATIO * self.dirty_pages;
                by_cost || self.opportunity_cost >= OPPORTUNITY_COST_RATIO * self.cost()
            }
        }
    }

    /// Begins a checkpoint.
    pub fn step(&mut self, written: u64, log_blocks: u64) {
        self.current += 1;
        self.pages += self.dirty_pages + self.dirty_pages.div_ceil(PAGE_BLOCKS.into()) + 2;
        (self.dirty_pages, self.opportunity_cost) = (0, 0);
        self.dirty.fill(0);
        self.next = match self.when {
            When::Every(every) => log_blocks + every,
            When::Never | When::Priced => written + self.least,
        };
    }

    /// Adds the opportunity cost of cleaning a victim with `gained` garbage although a better one
    /// may wait for a checkpoint. `garbage` returns that of a waiting segment.
    pub fn opportunity_cost(
        &mut self,
        gained: u32,
        segment_blocks: u32,
        garbage: impl Fn(u32) -> u32,
    ) {
        if self.when == When::Priced {
            let step = self.young.len() / YOUNG_SAMPLES + 1;
            let counts = |garbage: u32| {
                opportunity_cost(
                    u64::from(garbage.saturating_sub(gained)),
                    garbage,
                    segment_blocks,
                )
            };
            self.opportunity_cost += self
                .young
                .iter()
                .step_by(step)
                .map(|segment| counts(garbage(*segment)))
                .max()
                .unwrap_or(0);
        }
    }

    /// Next segment that has become old enough to be cleaned, each once.
    pub fn pop_old(&mut self) -> Option<u32> {
        let oldest = *self.young.front()?;
        if self.is_young(oldest) {
            None
        } else {
            self.young.pop_front()
        }
    }

    /// True if there are segments that only a further checkpoint makes victims.
    pub fn keep_any(&self) -> bool {
        !self.young.is_empty()
    }

    /// Records a sealed segment; true if it is not yet a victim.
    pub fn hold(&mut self, segment: u32) -> bool {
        let holds = self.when != When::Never;
        if holds {
            self.sealed_in[segment as usize] = self.current;
            self.young.push_back(segment);
        }
        holds
    }

    /// True if a segment is not yet a victim.
    #[inline]
    pub fn is_young(&self, segment: u32) -> bool {
        self.when != When::Never && self.sealed_in[segment as usize] + 2 > self.current
    }

    /// Bytes of its tables.
    pub fn bytes(&self) -> usize {
        self.sealed_in.len() * size_of::<u32>() + self.dirty.len() * 8
    }
}
