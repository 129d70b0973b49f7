//! Placement with knowledge of each block's next write: a reference, not a design.

use windrow_policy::place::{Place, Placement, STREAMS_MAX};

/// Never written again.
pub const NEVER: u32 = u32::MAX;

/// For each write of a sequence, the number of the write that ends the block's lifetime.
pub fn deaths(blocks: u32, writes: &[u32]) -> Vec<u32> {
    let mut next = vec![NEVER; blocks as usize];
    let mut deaths = vec![NEVER; writes.len()];
    for (at, block) in writes.iter().enumerate().rev() {
        deaths[at] = next[*block as usize];
        next[*block as usize] = at as u32;
    }
    deaths
}

/// Streams by remaining lifetime, in segments; the last one for all beyond.
#[derive(Debug)]
pub struct Oracle {
    deaths: Vec<u32>,
    due: Vec<u32>,
    segment_blocks: u32,
    streams: u8,
}

impl Oracle {
    /// A placement for a sequence with known deaths, see [`deaths`].
    pub fn new(blocks: u32, deaths: Vec<u32>, segment_blocks: u32, streams: u8) -> Self {
        Self {
            deaths,
            due: vec![NEVER; blocks as usize],
            segment_blocks,
            streams: streams.clamp(1, STREAMS_MAX as u8),
        }
    }

    fn class(&self, block: u32, now: u32) -> u8 {
        let due = self.due[block as usize];
        let left = if due == NEVER {
            u32::MAX
        } else {
            due.saturating_sub(now)
        };
        (left / self.segment_blocks).min(u32::from(self.streams) - 1) as u8
    }
}

impl Placement for Oracle {
    fn streams(&self) -> usize {
        usize::from(self.streams)
    }
    fn user(&mut self, block: u32, now: u32) -> u8 {
        self.due[block as usize] = self.deaths.get(now as usize).copied().unwrap_or(NEVER);
        self.class(block, now)
    }
    fn moved(&mut self, block: u32, now: u32, _from: Place) -> u8 {
        self.class(block, now)
    }
    fn watches_deaths(&self) -> bool {
        false
    }
}
