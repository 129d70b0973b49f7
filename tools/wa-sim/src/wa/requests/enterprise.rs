//! JESD219, enterprise endurance workload: 40 % reads, sizes of [`SIZES`], each at a boundary of 4
//! KiB; the first 5 % of the space take half of the requests, the next 15 % three tenths, the rest
//! two tenths.

use super::BLOCK;
use super::draw::{Pace, Sizes, size};
use crate::rng::Rng;
use windrow_trace::{Kind, Request};

/// Sizes, in per cent of the requests.
pub const SIZES: &Sizes = &[
    (512, 4),
    (1024, 1),
    (1536, 1),
    (2048, 1),
    (2560, 1),
    (3072, 1),
    (3584, 1),
    (4 << 10, 67),
    (8 << 10, 10),
    (16 << 10, 7),
    (32 << 10, 3),
    (64 << 10, 3),
];
/// Reads per 100 requests.
pub const READ_PERCENT: u64 = 40;
/// End of each part of the space and cumulative share of the requests, in per cent.
pub const PARTS: [(u64, u64); 3] = [(5, 50), (20, 80), (100, 100)];

/// Gap between two requests: 50 µs, some tens of megabytes per second. The standard gives no rate.
const GAP_NS: u64 = 50_000;

/// The endless stream.
pub struct Enterprise {
    blocks: u64,
    random: Rng,
    pace: Pace,
}

impl Enterprise {
    pub fn new(blocks: u64, seed: u64) -> Self {
        Self {
            blocks,
            random: Rng::stream(seed, "enterprise"),
            pace: Pace::new(seed),
        }
    }
}

impl Iterator for Enterprise {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let kind = if self.random.below(100) < READ_PERCENT {
            Kind::Read
        } else {
            Kind::Write
        };
        let length = size(SIZES, &mut self.random);
        let draw = self.random.below(100);
        let at = PARTS
            .iter()
            .position(|(_, share)| draw < *share)
            .unwrap_or(2);
        let begin = if at == 0 {
            0
        } else {
            self.blocks * PARTS[at - 1].0 / 100
        };
        let end = self.blocks * PARTS[at].0 / 100;
        // A long request may reach into the next part, but not past the space.
        let last = end.min(self.blocks - length.div_ceil(BLOCK) + 1);
        let block = begin + self.random.below(last - begin);
        Some(self.pace.request(kind, block * BLOCK, length, GAP_NS))
    }
}
