//! Random draws for loads: sizes in published parts, gaps between requests.

use crate::rng::Rng;
use windrow_trace::{Kind, Request};

/// Sizes in bytes, with their parts.
pub type Sizes = [(u64, u64)];

/// Draws a size in proportion to its part.
pub fn size(sizes: &Sizes, random: &mut Rng) -> u64 {
    let mut at = random.below(sizes.iter().map(|(_, parts)| parts).sum());
    for (bytes, parts) in sizes {
        if at < *parts {
            return *bytes;
        }
        at -= parts;
    }
    unreachable!("the draw is below the sum of the parts")
}

/// Assigns times to requests.
#[derive(Clone, Debug)]
pub struct Pace {
    now_ns: u64,
    random: Rng,
}

impl Pace {
    /// Starts at time 0.
    pub fn new(seed: u64) -> Self {
        Self {
            now_ns: 0,
            random: Rng::stream(seed, "pace"),
        }
    }

    /// Current time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// A request at the current time; the next one follows after an exponential gap of this mean.
    pub fn request(&mut self, kind: Kind, offset: u64, length: u64, mean_gap_ns: u64) -> Request {
        let request = Request::new(kind, 0, offset, length, self.now_ns);
        // 53 bits of a number in 0 .. 1, never 0.
        let share = ((self.random.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.now_ns = self
            .now_ns
            .saturating_add((-share.ln() * mean_gap_ns as f64) as u64);
        request
    }
}
