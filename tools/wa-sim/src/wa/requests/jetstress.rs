//! Load like Jetstress, Exchange's benchmark, as described in the FTL talk.
//!
//! Published: writes of up to 32 KiB are 75 % of the writes and about 12 % of their bytes; heavy
//! writing for a time, then very little; reads at all times; a small random area in addition to
//! large sequential ones. Assumed: the sizes within ([`SMALL`], [`LARGE`]), twenty heavy seconds
//! per minute, half of the small writes to a circular log of 2 % of the space and half to database
//! pages in [`RANDOM_PERCENT`] of it, the large ones by four sequential writers through the rest;
//! three reads for two writes, of pages and of sequential scans.

use super::BLOCK;
use super::draw::{Pace, Sizes, size};
use crate::rng::Rng;
use windrow_trace::{Kind, Request};

/// Writes of up to 32 KiB: mean 18.7 KiB.
pub const SMALL: &Sizes = &[(4 << 10, 20), (8 << 10, 16), (16 << 10, 24), (32 << 10, 40)];
/// Larger writes: mean 412 KiB, 22 times as much, so that small ones have 12 % of the bytes.
pub const LARGE: &Sizes = &[(256 << 10, 39), (512 << 10, 61)];
/// Small writes per 100 writes.
pub const SMALL_PERCENT: u64 = 75;
/// Reads per 100 requests.
pub const READ_PERCENT: u64 = 60;
/// Space of the randomly written pages, per cent.
pub const RANDOM_PERCENT: u64 = 8;

const LOG_PERCENT: u64 = 2;
const WRITERS: usize = 4;
/// A period, and the length of its heavy part.
const PERIOD_NS: u64 = 60_000_000_000;
const HEAVY_NS: u64 = 20_000_000_000;
/// Mean gaps in heavy and quiet times.
const GAPS_NS: (u64, u64) = (2_000_000, 60_000_000);

/// The endless stream.
pub struct Jetstress {
    log: u64,
    pages: u64,
    blocks: u64,
    log_head: u64,
    heads: [u64; WRITERS],
    scan: u64,
    random: Rng,
    pace: Pace,
}

impl Jetstress {
    pub fn new(blocks: u64, seed: u64) -> Self {
        Self {
            log: blocks * LOG_PERCENT / 100,
            pages: blocks * RANDOM_PERCENT / 100,
            blocks,
            log_head: 0,
            heads: [0; WRITERS],
            scan: 0,
            random: Rng::stream(seed, "jetstress"),
            pace: Pace::new(seed),
        }
    }

    /// Address for `count` blocks in a ring of `room` blocks, whose head moves on.
    fn ring(head: &mut u64, room: u64, count: u64) -> u64 {
        if *head + count > room {
            *head = 0;
        }
        let at = *head;
        *head += count;
        at
    }

    fn page(&mut self, count: u64) -> u64 {
        self.log + self.random.below(self.pages - count + 1)
    }

    fn write(&mut self) -> (u64, u64) {
        if self.random.below(100) < SMALL_PERCENT {
            let count = size(SMALL, &mut self.random) / BLOCK;
            return match self.random.below(2) {
                0 => (Self::ring(&mut self.log_head, self.log, count), count),
                _ => (self.page(count), count),
            };
        }
        let count = size(LARGE, &mut self.random) / BLOCK;
        let (begin, writer) = (self.log + self.pages, self.random.below(WRITERS as u64));
        let part = (self.blocks - begin) / WRITERS as u64;
        (
            begin + writer * part + Self::ring(&mut self.heads[writer as usize], part, count),
            count,
        )
    }

    fn read(&mut self) -> (u64, u64) {
        match self.random.below(4) {
            0 => (Self::ring(&mut self.scan, self.blocks, 64), 64),
            _ => (self.page(8), 8),
        }
    }
}

impl Iterator for Jetstress {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let heavy = self.pace.now_ns() % PERIOD_NS < HEAVY_NS;
        // Quiet times have hardly any writes.
        let reads = if heavy { READ_PERCENT } else { 95 };
        let is_read = self.random.below(100) < reads;
        let (block, count) = if is_read { self.read() } else { self.write() };
        let gap = if heavy { GAPS_NS.0 } else { GAPS_NS.1 };
        Some(self.pace.request(
            if is_read { Kind::Read } else { Kind::Write },
            block * BLOCK,
            count * BLOCK,
            gap,
        ))
    }
}
