//! Log of the laboratory: a pool without data, with the placements and victim rules of the engine's
//! policy crate.
//!
//! 1. `map` has the slot of each block (4 bytes), `slots` the block written to each slot (4 bytes).
//!    A slot is live if and only if the map points back to it. Placements keep their own data for
//!    each block (see the table in `windrow_policy::place`).
//! 2. Every stream has at most one open segment. A full one is sealed; the next write of the stream
//!    opens a free one.
//! 3. *Strict* space ([`Space::Strict`]): `blocks / (1 - spare)` rounded up to whole segments is
//!    all the space, including open segments and the working space of cleaning. A write that needs
//!    a new segment cleans until two are free, so that one is always left for cleaning; if moves
//!    need a second one within one victim, they go to the nearest stream that has room, and one
//!    victim never needs more than a segment of room.
//! 4. *Share* of garbage ([`Space::Share`]): the rule of the peers' simulator, for comparison.
//!    After each write, if the garbage in sealed segments exceeds `spare` of all that is written,
//!    one victim is cleaned, which must have that share of garbage itself. The unwritten part of
//!    open segments costs nothing, nor do deaths in them (with 64 streams that equals all the spare
//!    space), and there is no reserve.
//! 5. Cleaning counts as moves; `(written + moved) / written` is the write amplification.

mod checkpoints;
mod clean;
mod segments;

use super::operation::Operation;
use checkpoints::Checkpoints;
pub use checkpoints::When;
use segments::{OpenSegment, SHUT, Segment, Segments, State};
use serde::Serialize;
use windrow_policy::place::{LISTS, Placement, STREAMS_MAX, Survey};
use windrow_policy::select::{Rule, Shortlist};
use windrow_policy::{SegmentStats, VictimIndex, VictimPolicy};

const NONE: u32 = u32::MAX;

/// Number of writes in a group: their table entries are read for all of them before the first
/// write, so that cache misses overlap.
pub const GROUP: usize = 64;

/// Accounting of space.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Space {
    /// Maximum live blocks, divided by one less the spare share, in whole segments.
    Strict,
    /// Cleaning keeps the garbage of sealed segments at the spare share of written blocks.
    Share,
}

/// Size of a simulated pool.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Number of addressable blocks.
    pub blocks: u32,
    /// Maximum number of live blocks; `blocks` unless trims or holes leave some empty.
    pub live_blocks: u32,
    /// Number of data blocks in a segment.
    pub segment_blocks: u32,
    /// Number of header blocks in addition to these: they take space, and are written with every
    /// segment.
    pub header_blocks: u32,
    /// Spare share of all space, 0 to 1.
    pub spare: f64,
    /// Accounting of space.
    pub space: Space,
}

impl Shape {
    /// Segments of the pool.
    pub fn segments(&self) -> u32 {
        let all = f64::from(self.live_blocks)
            / (1.0 - self.spare)
            / f64::from(self.segment_blocks + self.header_blocks);
        // The smallest log that can be cleaned has an open, a free and a sealed segment in addition
        // to the live blocks.
        ((all - 1e-9).ceil() as u32).saturating_add(if self.space == Space::Share {
            STREAMS_MAX as u32 + 4
        } else {
            0
        })
    }

    /// Minimum number of segments for cleaning: those of the live blocks, an open one and a free
    /// one.
    pub fn needed_segments(&self) -> u32 {
        self.live_blocks.div_ceil(self.segment_blocks) + 2
    }
}

/// Counters of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Blocks that users wrote.
    pub written: u64,
    /// Blocks that cleaning moved.
    pub moved: u64,
    /// Live blocks that users trimmed.
    pub trimmed: u64,
    /// Number of victims.
    pub victims: u64,
    /// Blocks moved in pauses.
    pub moved_idle: u64,
    /// Maximum number of blocks moved before one write.
    pub longest_wait: u32,
    /// Pages of checkpoints.
    #[serde(skip)]
    pub checkpoint_pages: u64,
}

impl Counts {
    /// Counts since `before`. The longest wait covers the time since [`Log::forget_longest_wait`].
    pub fn since(self, before: Self) -> Self {
        Self {
            written: self.written - before.written,
            moved: self.moved - before.moved,
            trimmed: self.trimmed - before.trimmed,
            victims: self.victims - before.victims,
            moved_idle: self.moved_idle - before.moved_idle,
            longest_wait: self.longest_wait,
            checkpoint_pages: self.checkpoint_pages - before.checkpoint_pages,
        }
    }

    /// `(written + moved) / written`; 1 if nothing was written.
    pub fn waf(self) -> f64 {
        if self.written == 0 {
            1.0
        } else {
            (self.written + self.moved) as f64 / self.written as f64
        }
    }
}

/// A simulated pool.
pub struct Log<P> {
    shape: Shape,
    rule: Rule,
    placement: P,
    map: Vec<u32>,
    slots: Vec<u32>,
    segments: Segments,
    free: Vec<u32>,
    open: [OpenSegment; STREAMS_MAX],
    /// A bit for each stream that has an open segment.
    is_open: u64,
    index: VictimIndex,
    /// See [`windrow_policy::place::Due::list`].
    shortlists: Vec<Shortlist>,
    counts: Counts,
    cleaning: bool,
    checkpoints: Checkpoints,
    survey_pause: u32,
    survey_in: u32,
    victim_live: Vec<u64>,
    /// Live blocks of a victim, while it is cleaned.
    moving: Vec<u32>,
}

impl<P: Placement> Log<P> {
    /// An empty pool.
    ///
    /// # Errors
    /// If it could not be cleaned: fewer than three spare segments.
    pub fn new(shape: Shape, rule: Rule, placement: P, seed: u64) -> Result<Self, String> {
        let segments = shape.segments();
        let needed = shape.needed_segments();
        if segments < needed {
            return Err(format!(
                "{segments} segments for {} blocks: at least {needed} are needed; more spare space or smaller segments",
                shape.live_blocks
            ));
        }
        if u64::from(segments) * u64::from(shape.segment_blocks) >= u64::from(NONE) {
            return Err("more than 2^32 blocks".into());
        }
        let survey_pause = (segments / 8)
            .max(1)
            .saturating_mul(shape.segment_blocks / 8)
            .max(64);
        Ok(Self {
            rule,
            placement,
            map: vec![NONE; shape.blocks as usize],
            slots: vec![NONE; segments as usize * shape.segment_blocks as usize],
            segments: Segments::new(segments, shape.segment_blocks),
            free: (0..segments).rev().collect(),
            open: [SHUT; STREAMS_MAX],
            is_open: 0,
            index: VictimIndex::new_lazy(segments, shape.segment_blocks, VictimPolicy::Greedy),
            shortlists: std::iter::repeat_with(|| Shortlist::new(seed))
                .take(LISTS)
                .collect(),
            counts: Counts::default(),
            cleaning: false,
            checkpoints: Checkpoints::default(),
            survey_pause,
            survey_in: survey_pause,
            victim_live: vec![0; shape.segment_blocks as usize + 1],
            moving: vec![NONE; shape.segment_blocks as usize],
            shape,
        })
    }

    /// Enables checkpoints like those of an engine: segments that it may have to replay after a
    /// crash are no victims.
    pub fn set_checkpoints(&mut self, when: When) {
        let size = (
            self.segments.all.len(),
            self.shape.segment_blocks,
            self.map.len(),
        );
        self.checkpoints.begin(
            when,
            self.counts.written,
            self.counts.written + self.counts.moved,
            size,
        );
    }

    /// Makes a sealed segment available for cleaning.
    fn offer(&mut self, number: u32) {
        if self.rule == Rule::Greedy {
            let segment = &self.segments.all[number as usize];
            let stats = SegmentStats {
                live_units: segment.live,
                capacity_units: self.shape.segment_blocks,
                sealed_at: u64::from(segment.sealed_at),
            };
            self.index.insert(number, stats);
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        Counts {
            checkpoint_pages: self.checkpoints.pages,
            ..self.counts
        }
    }

    /// Resets the longest wait; returns the one found so far.
    pub fn forget_longest_wait(&mut self) -> u32 {
        std::mem::take(&mut self.counts.longest_wait)
    }

    /// The placement.
    pub fn placement(&self) -> &P {
        &self.placement
    }

    /// Number of victims by their number of live blocks.
    pub fn victims_by_live(&self) -> &[u64] {
        &self.victim_live
    }

    /// Age (time since the seal, in user block writes) and live blocks of every sealed segment,
    /// oldest first.
    pub fn ages(&self) -> Vec<(u32, u32)> {
        let mut ages = Vec::new();
        self.segments
            .sealed(&mut |place, live| ages.push((place.age, live)));
        ages.sort_unstable_by(|a, b| b.cmp(a));
        ages
    }

    /// Bytes of tables for each addressable block, without the placement's.
    pub fn bytes_per_block(&self) -> f64 {
        let segments =
            self.segments.all.len() * (size_of::<Segment>() + 32) + self.checkpoints.bytes();
        (self.map.len() * 4 + self.slots.len() * 4 + segments) as f64 / self.map.len().max(1) as f64
    }

    /// Number of live blocks.
    pub fn live_blocks(&self) -> u64 {
        self.segments.live
    }

    /// Number of free segments.
    pub fn free_segments(&self) -> u32 {
        self.free.len() as u32
    }

    /// Applies an operation.
    pub fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Write { block, count } => {
                (block..block + count).for_each(|block| self.write(block))
            }
            Operation::Trim { block, count } => {
                (block..block + count).for_each(|block| self.trim(block))
            }
            Operation::Pause { .. }
            | Operation::Arrival { .. }
            | Operation::Flush
            | Operation::Durable => {}
        }
    }

    /// Writes single blocks: same result as one by one, in [`GROUP`]s.
    pub fn write_all(&mut self, blocks: &[u32]) {
        for group in blocks.chunks(GROUP) {
            let mut slots = [NONE; GROUP];
            for (slot, block) in slots.iter_mut().zip(group) {
                *slot = self.map[*block as usize];
            }
            let mut touched = self.placement.touch(group, true);
            for slot in slots.iter().filter(|slot| **slot != NONE) {
                touched ^= self.segments.all[self.segments.of_slot(*slot) as usize].live;
            }
            std::hint::black_box(touched);
            group.iter().for_each(|block| self.write(*block));
        }
    }

    /// Writes a block.
    #[inline]
    pub fn write(&mut self, block: u32) {
        self.kill(block, false);
        let moved = self.counts.moved;
        let stream = self.placement.user(block, self.segments.now);
        if self.shape.space == Space::Strict {
            self.make_room(stream);
        }
        self.append(block, stream);
        self.segments.used += 1;
        self.segments.live += 1;
        self.counts.written += 1;
        self.segments.now = self.segments.now.wrapping_add(1);
        if self.shape.space == Space::Share {
            self.hold_share();
        }
        if self.counts.moved > moved {
            self.counts.longest_wait = self
                .counts
                .longest_wait
                .max((self.counts.moved - moved) as u32);
        }
        self.survey_in -= 1;
        if self.survey_in == 0 {
            self.survey_in = self.survey_pause;
            self.placement.survey(self.segments.now, &self.segments);
        }
    }

    /// Trims a block.
    pub fn trim(&mut self, block: u32) {
        if self.map[block as usize] != NONE {
            self.kill(block, true);
            self.checkpoints.note(block);
            self.counts.trimmed += 1;
        }
    }

    #[inline]
    fn kill(&mut self, block: u32, trimmed: bool) {
        let slot = self.map[block as usize];
        if slot == NONE {
            return;
        }
        // Done at once, because cleaning may come between the death of a version and the placement
        // of the next.
        self.map[block as usize] = NONE;
        let number = self.segments.of_slot(slot);
        let segment = &mut self.segments.all[number as usize];
        segment.live -= 1;
        self.segments.live -= 1;
        self.segments.garbage += u64::from(segment.state == State::Sealed);
        if self.rule == Rule::Greedy {
            self.index.update(number, segment.live);
        }
        if self.placement.watches_deaths() {
            let place = self.segments.place(number);
            self.placement
                .died(block, self.segments.now, place, trimmed);
        }
    }

    #[inline]
    fn append(&mut self, block: u32, stream: u8) {
        let stream = match self.open[usize::from(stream)].segment {
            NONE => self.stream_with_room(stream),
            _ => usize::from(stream),
        };
        let open = &mut self.open[stream];
        let (slot, number) = (open.next, open.segment);
        open.next += 1;
        let is_full = open.next == open.end;
        self.slots[slot as usize] = block;
        self.map[block as usize] = slot;
        self.checkpoints.note(block);
        self.placement.placed(block, number, self.segments.now);
        if is_full {
            self.seal(stream);
        }
    }

    /// The stream itself if it has or can open a segment; else the nearest one with room.
    #[cold]
    fn stream_with_room(&mut self, stream: u8) -> usize {
        let stream = usize::from(stream);
        if let Some(orphan) = self.orphan() {
            self.open[stream] = std::mem::replace(&mut self.open[orphan], SHUT);
            self.is_open ^= 1 << orphan | 1 << stream;
        } else if let Some(segment) = self.free_segment() {
            // Counted as full already, so that a block written to it costs nothing here.
            let live = self.shape.segment_blocks;
            self.segments.all[segment as usize] = Segment {
                live,
                sealed_at: 0,
                opened_at: self.segments.now,
                state: State::Open,
                tag: 0,
            };
            self.open[stream] = OpenSegment::of(segment, live);
            self.is_open |= 1 << stream;
        } else {
            let (below, above) = (self.is_open & ((1 << stream) - 1), self.is_open >> stream);
            let (below, above) = (
                below.checked_ilog2().map(|at| at as usize),
                (above > 0).then(|| stream + above.trailing_zeros() as usize),
            );
            let nearest = below
                .into_iter()
                .chain(above)
                .min_by_key(|other| stream.abs_diff(*other));
            return nearest.expect(
                "a victim's live blocks fit into one segment, and cleaning began with a free one",
            );
        }
        stream
    }

    /// First stream with an open segment that is no longer in use.
    #[inline]
    fn orphan(&self) -> Option<usize> {
        let streams = self.placement.streams() as u32;
        let orphans = if streams < u64::BITS {
            self.is_open >> streams << streams
        } else {
            0
        };
        (orphans > 0).then(|| orphans.trailing_zeros() as usize)
    }

    /// A free segment to open. The last one is reserved for cleaning as long as another stream can
    /// take the write.
    fn free_segment(&mut self) -> Option<u32> {
        let is_kept = self.shape.space == Space::Strict && !self.cleaning && self.free.len() < 2;
        if is_kept && self.is_open > 0 {
            None
        } else {
            self.free.pop()
        }
    }

    fn seal(&mut self, stream: usize) {
        let number = self.open[stream].segment;
        self.open[stream] = SHUT;
        self.is_open ^= 1 << stream;
        let segment = &mut self.segments.all[number as usize];
        segment.state = State::Sealed;
        self.segments.garbage += u64::from(self.shape.segment_blocks - segment.live);
        segment.sealed_at = self.segments.now;
        segment.tag = self.placement.tag(stream as u8);
        if !self.checkpoints.hold(number) {
            self.offer(number);
        }
    }

    /// Recounts everything; for tests.
    ///
    /// # Errors
    /// Description of the inconsistency.
    pub fn self_check(&self) -> Result<(), String> {
        let mut live = vec![0u32; self.segments.all.len()];
        for (block, slot) in self
            .map
            .iter()
            .enumerate()
            .filter(|(_, slot)| **slot != NONE)
        {
            if self.slots[*slot as usize] != block as u32 {
                return Err(format!("block {block}"));
            }
            live[(slot / self.shape.segment_blocks) as usize] += 1;
        }
        let open = self.open.iter().filter(|open| open.segment != NONE);
        open.for_each(|open| live[open.segment as usize] += open.end - open.next);
        for (number, segment) in self.segments.all.iter().enumerate() {
            if segment.live != live[number] || (segment.state == State::Free && segment.live != 0) {
                return Err(format!(
                    "segment {number}: {} live, counted {}",
                    segment.live, live[number]
                ));
            }
        }
        let sealed = self
            .segments
            .all
            .iter()
            .filter(|segment| segment.state == State::Sealed);
        let garbage: u64 = sealed
            .map(|segment| u64::from(self.shape.segment_blocks - segment.live))
            .sum();
        if garbage != self.segments.garbage {
            return Err(format!(
                "{garbage} blocks of garbage in sealed segments, counted {}",
                self.segments.garbage
            ));
        }
        let free = self
            .segments
            .all
            .iter()
            .filter(|segment| segment.state == State::Free)
            .count();
        let sum = self.map.iter().filter(|slot| **slot != NONE).count() as u64;
        match free == self.free.len() && sum == self.segments.live {
            true => Ok(()),
            false => Err(format!("{free} free, {sum} live")),
        }
    }
}

#[cfg(test)]
mod tests;
