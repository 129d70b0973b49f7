//! Segments of a simulated log.

use windrow_policy::place::{Place, Survey};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Free,
    Open,
    Sealed,
}

/// Counters of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Live blocks; the unwritten part of an open segment counts as live.
    pub live: u32,
    pub sealed_at: u32,
    pub opened_at: u32,
    pub state: State,
    pub tag: u8,
}

/// Write position of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSegment {
    pub segment: u32,
    /// Next slot to write.
    pub next: u32,
    /// After the last slot.
    pub end: u32,
}

/// A stream without an open segment.
pub(super) const SHUT: OpenSegment = OpenSegment {
    segment: NONE,
    next: 0,
    end: 0,
};

impl OpenSegment {
    /// At the start of a segment.
    pub fn of(segment: u32, segment_blocks: u32) -> Self {
        Self {
            segment,
            next: segment * segment_blocks,
            end: (segment + 1) * segment_blocks,
        }
    }
}

pub(super) struct Segments {
    pub all: Vec<Segment>,
    pub segment_blocks: u32,
    /// `2^64 / segment_blocks`, rounded up: with it a division is a multiplication, exact for 32
    /// bits (Lemire, Kaser and Kurz 2019).
    inverse: u64,
    pub now: u32,
    /// Blocks written to open and sealed segments.
    pub used: u64,
    /// Live blocks among them.
    pub live: u64,
    /// Garbage blocks of sealed segments.
    pub garbage: u64,
}

impl Segments {
    pub fn new(segments: u32, segment_blocks: u32) -> Self {
        let empty = Segment {
            live: 0,
            sealed_at: 0,
            opened_at: 0,
            state: State::Free,
            tag: 0,
        };
        let inverse = (u64::MAX / u64::from(segment_blocks)).wrapping_add(1);
        Self {
            all: vec![empty; segments as usize],
            segment_blocks,
            inverse,
            now: 0,
            used: 0,
            live: 0,
            garbage: 0,
        }
    }

    /// Segment of a slot.
    #[inline]
    pub fn of_slot(&self, slot: u32) -> u32 {
        // (The inverse of 1 does not fit into 64 bits.)
        if self.inverse == 0 {
            slot
        } else {
            ((u128::from(self.inverse) * u128::from(slot)) >> 64) as u32
        }
    }

    #[inline]
    pub fn place(&self, segment: u32) -> Place {
        let found = &self.all[segment as usize];
        let age = if found.state == State::Sealed {
            self.now.wrapping_sub(found.sealed_at)
        } else {
            0
        };
        Place {
            segment,
            tag: found.tag,
            age,
        }
    }
}

impl Survey for Segments {
    fn sealed(&self, each: &mut dyn FnMut(Place, u32)) {
        for (number, segment) in self.all.iter().enumerate() {
            if segment.state == State::Sealed {
                each(self.place(number as u32), segment.live);
            }
        }
    }
}
