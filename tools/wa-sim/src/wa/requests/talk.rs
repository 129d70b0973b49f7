//! The two workloads of the journal talk: sizes and share of reads as printed (`crate::mix`),
//! addresses uniform, at boundaries of 4 KiB. Run together, each has half of the space and on
//! average every second request, since both ran with the same number of tasks.

use super::BLOCK;
use super::draw::Pace;
use crate::mix::Mix;
use crate::rng::Rng;
use windrow_trace::{Kind, Request};

const GAP_NS: u64 = 100_000;

/// The endless stream.
pub struct Talk {
    mixes: &'static [Mix],
    blocks: u64,
    random: Rng,
    pace: Pace,
}

impl Talk {
    pub fn new(mixes: &'static [Mix], blocks: u64, seed: u64) -> Self {
        Self {
            mixes,
            blocks,
            random: Rng::stream(seed, "talk"),
            pace: Pace::new(seed),
        }
    }
}

impl Iterator for Talk {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let which = self.random.below(self.mixes.len() as u64);
        let (is_read, count) = self.mixes[which as usize].draw(&mut self.random);
        let part = self.blocks / self.mixes.len() as u64;
        let block = which * part + self.random.below(part - count + 1);
        Some(self.pace.request(
            if is_read { Kind::Read } else { Kind::Write },
            block * BLOCK,
            count * BLOCK,
            GAP_NS,
        ))
    }
}
