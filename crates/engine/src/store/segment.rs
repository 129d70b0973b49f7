//! The segment table: state, live counters, batch starts, and the rule by which a segment may be
//! reused.
//!
//! ```text
//! Free -> Reserved (successor of a stream) -> Open (a stream writes it)
//!      -> Sealed (full, every batch committed) -> Cleaning (being emptied)
//!      [-> Quarantined (the rest is not moved)] -> Dead (nothing live, waiting for the rule)
//!      [-> Discarding] -> Free
//! ```
//! A sealed segment whose last live block dies goes straight to Dead.
//!
//! **Reuse rule** (rule R of docs/internals/cleaning.md). A dead segment becomes free when:
//!
//! 1. Every entry that superseded or moved its blocks is durable and at or below the recovery
//!    point. The segment notes the newest LSN and the newest cleaned batch that took something from
//!    it.
//! 2. Its own batches all precede the replay start of the oldest kept checkpoint. It notes the
//!    checkpoint that was current when its last batch was sealed.
//! 3. No planned read pins it.
//!
//! After a grow several layouts describe the same bytes. `store/segment/layers.rs` decides which of
//! their segments may be used.

mod choose;
mod state;
pub(crate) use choose::victim_rule;
mod layers;
mod measures;
mod occupancy;
mod quarantined;

pub(crate) use layers::largest_group;

pub use state::SegmentState;

use crate::base::limits::{DISCARDING_MAX, STREAM_CHECKPOINT, STREAMS};
use crate::base::weight::{COMPRESSED_EXTRA_UNITS, compressed};
use choose::index_policy;
use windrow_geometry::ZoneMap;
use windrow_policy::select::{Rule, Shortlist};
use windrow_policy::{SegmentStats, VictimIndex};
use windrow_types::{ADDRESS_UNIT, BatchSeq, FULL_BLOCK_UNITS, Lsn, SegmentId};

/// One segment.
#[derive(Debug)]
pub struct Segment {
    /// State.
    pub state: SegmentState,
    /// Stream that wrote it last.
    pub stream: u8,
    /// Live payload as it is stored, in units of 16 bytes.
    pub live_units: u32,
    /// Number of its live payloads that are compressed.
    pub live_compressed: u32,
    /// Rows filled with batches.
    pub filled_rows: u32,
    /// Batches sealed but not committed.
    pub uncommitted: u16,
    /// Reads that pin it.
    pub pins: u32,
    /// Checkpoint that was current when its last batch was sealed.
    pub last_checkpoint: u64,
    /// Clock value at which it was sealed.
    pub sealed_at: u64,
    /// The same by the policy clock, see [`Segments::user_clock`].
    pub sealed_user: u32,
    /// Policy clock at which a stream began to write it.
    pub opened_user: u32,
    /// Mark from its stream's placement policy; 0: unknown. Kept in memory only.
    pub tag: u8,
    /// Batch sequence number of its last batch.
    pub last_seq: BatchSeq,
    /// Newest LSN that superseded one of its blocks.
    pub superseded_by: Lsn,
    /// Newest cleaned batch that moved one of its blocks away.
    pub moved_by: BatchSeq,
    /// Members, as a bit mask, that are in rebuild and lack part of it (docs/internals/members.md).
    pub stale: u64,
    /// Quarantined, and some of its data has died since.
    pub touched: bool,
    /// Quarantined after a trial: nothing of it was moved.
    pub tried: bool,
    /// Something in it was unreadable when it was last cleaned.
    pub damaged: bool,
    /// Changed since its record was last written to a checkpoint.
    pub dirty: bool,
    /// Bit r is set if a batch starts at row r.
    pub starts: Box<[u64]>,
}

impl Segment {
    /// Units that its live payload would take elsewhere: the measure of cleaning
    /// (`base/weight.rs`).
    #[inline]
    pub fn weight(&self) -> u32 {
        self.live_units + self.live_compressed * COMPRESSED_EXTRA_UNITS
    }

    /// Start and rows of the batch that covers `row`.
    #[inline]
    pub fn batch_at(&self, row: u32) -> (u32, u32) {
        let start = self.start_at_or_before(row);
        (start, self.next_start(start) - start)
    }

    /// Forgets batch starts at or after `row`.
    pub fn forget_starts(&mut self, row: u32) {
        let word = row as usize / 64;
        if let Some((first, others)) = self
            .starts
            .get_mut(word..)
            .and_then(|words| words.split_first_mut())
        {
            *first &= (1 << (row % 64)) - 1;
            others.fill(0);
        }
    }

    #[inline]
    fn start_at_or_before(&self, row: u32) -> u32 {
        let mut word = row as usize / 64;
        let mut bits = self.starts[word] & (u64::MAX >> (63 - row % 64));
        while bits == 0 {
            if word == 0 {
                return 0;
            }
            word -= 1;
            bits = self.starts[word];
        }
        word as u32 * 64 + 63 - bits.leading_zeros()
    }

    /// First start after `row`, or the filled rows.
    #[inline]
    pub fn next_start(&self, row: u32) -> u32 {
        let from = row + 1;
        let mut word = from as usize / 64;
        if word >= self.starts.len() {
            return self.filled_rows;
        }
        let mut bits = self.starts[word] & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            if word >= self.starts.len() {
                return self.filled_rows;
            }
            bits = self.starts[word];
        }
        word as u32 * 64 + bits.trailing_zeros()
    }
}

/// All segments of a pool.
#[derive(Debug)]
pub struct Segments {
    table: Vec<Segment>,
    free: std::collections::VecDeque<SegmentId>,
    /// Dead segments that only a flush or a read keeps from being free.
    dead: std::collections::VecDeque<SegmentId>,
    /// Dead segments that the oldest kept checkpoint may still replay: checked again when that
    /// changes.
    dead_in_replay: Vec<SegmentId>,
    /// Sealed segments that the oldest kept checkpoint may still replay. They are not candidates,
    /// because their space becomes free only after a checkpoint. May name segments that died
    /// meanwhile.
    young: Vec<SegmentId>,
    oldest_checkpoint: u64,
    quarantined: u32,
    /// Quarantined segments with checkpoint pages: the next checkpoints empty them.
    quarantined_pages: u32,
    /// Quarantined segments in which some data has died since.
    touched: Vec<SegmentId>,
    /// Segments quarantined after a trial (`upkeep/clean/damage.rs`).
    tried: Vec<SegmentId>,
    /// Number of segments of user data that died while quarantined, since the start.
    died_quarantined: u64,
    discarding: u32,
    /// Horizon under which no dead segment could be freed; `None` if there are new dead segments or
    /// a read has ended since.
    nothing_under: Option<ReuseHorizon>,
    victims: VictimIndex,
    rule: Rule,
    shortlists: [Shortlist; windrow_policy::place::LISTS],
    /// Policy clock: user blocks written since the start; before that, checkpoints.
    user_clock: u32,
    capacities: Vec<u32>,
    dirty: Vec<SegmentId>,
    /// Segments that streams have begun to write, for those that remember what they held.
    opened: Vec<SegmentId>,
    /// Usability of segments of several layouts; `None` as long as there is one layout.
    layers: Option<Box<layers::Layers>>,
}

/// Conditions for the reuse of a dead segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReuseHorizon {
    /// Every LSN up to this one is durable.
    pub durable: Lsn,
    /// Every cleaned batch up to this one is durable.
    pub durable_cleaned: BatchSeq,
    /// Number of the oldest kept checkpoint.
    pub oldest_checkpoint: u64,
}

impl Segments {
    /// A table with all segments free.
    pub fn new(zones: &ZoneMap, rule: Rule) -> Self {
        let mut segments = Self {
            table: Vec::new(),
            free: Default::default(),
            dead: Default::default(),
            dead_in_replay: Vec::new(),
            young: Vec::new(),
            oldest_checkpoint: 0,
            quarantined: 0,
            quarantined_pages: 0,
            touched: Vec::new(),
            tried: Vec::new(),
            opened: Vec::new(),
            died_quarantined: 0,
            discarding: 0,
            nothing_under: None,
            victims: VictimIndex::new(0, 1, index_policy(rule)),
            rule,
            shortlists: choose::shortlists(),
            user_clock: 0,
            capacities: Vec::new(),
            dirty: Vec::new(),
            layers: None,
        };
        segments.resize(zones);
        segments
    }

    /// One segment.
    #[inline]
    pub fn get(&self, id: SegmentId) -> &Segment {
        &self.table[id.index()]
    }

    /// One segment, mutable (not its state or live count).
    #[inline]
    pub fn get_mut(&mut self, id: SegmentId) -> &mut Segment {
        &mut self.table[id.index()]
    }

    /// Number of segments.
    pub fn count(&self) -> u32 {
        self.table.len() as u32
    }

    /// Number of available segments.
    pub fn free_count(&self) -> u32 {
        (self.free.len() + self.idle_count()) as u32
    }

    /// Notes the oldest kept checkpoint.
    pub fn set_oldest_checkpoint(&mut self, oldest_checkpoint: u64) {
        if self.oldest_checkpoint != oldest_checkpoint {
            self.leave_replay(oldest_checkpoint);
        }
    }

    /// Dead segments that wait for the reuse rule.
    pub fn dead_count(&self) -> u32 {
        (self.dead.len() + self.dead_in_replay.len()) as u32
    }

    /// Dead segments that wait for a checkpoint.
    pub fn dead_in_replay_count(&self) -> u32 {
        self.dead_in_replay.len() as u32
    }

    /// Dead segments that become free after a flush, a read or a discard in flight, without a
    /// checkpoint.
    pub fn coming_count(&self) -> u32 {
        self.dead.len() as u32 + self.discarding
    }

    fn push_dead(&mut self, id: SegmentId) {
        self.nothing_under = None;
        self.table[id.index()].state = SegmentState::Dead;
        if self.table[id.index()].last_checkpoint < self.oldest_checkpoint {
            self.dead.push_back(id)
        } else {
            self.dead_in_replay.push(id)
        }
    }

    /// Takes a free segment as the successor of a stream.
    pub fn reserve(&mut self) -> Option<SegmentId> {
        let id = self.free.pop_front().or_else(|| self.take_idle())?;
        self.table[id.index()].state = SegmentState::Reserved;
        Some(id)
    }

    /// Opens a reserved segment for writing by a stream.
    pub fn open(&mut self, id: SegmentId, stream: usize) {
        let segment = &mut self.table[id.index()];
        segment.state = SegmentState::Open;
        segment.stream = stream as u8;
        segment.opened_user = self.user_clock;
        segment.filled_rows = 0;
        segment.starts.fill(0);
        segment.stale = 0;
        segment.damaged = false;
        segment.superseded_by = Lsn(0);
        segment.moved_by = BatchSeq(0);
        self.mark_dirty(id);
        self.opened.push(id);
    }

    /// True if segments were opened that no one has taken note of.
    pub(crate) fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Takes the segments opened since the last call.
    pub(crate) fn take_opened(&mut self) -> Vec<SegmentId> {
        std::mem::take(&mut self.opened)
    }

    /// Notes a batch of `rows` rows sealed at `row`.
    pub fn add_batch(
        &mut self,
        id: SegmentId,
        row: u32,
        rows: u32,
        seq: BatchSeq,
        checkpoint: u64,
    ) {
        let segment = &mut self.table[id.index()];
        segment.starts[row as usize / 64] |= 1 << (row % 64);
        segment.filled_rows = row + rows;
        segment.last_seq = seq;
        segment.last_checkpoint = checkpoint;
        segment.uncommitted += 1;
        self.mark_dirty(id);
    }

    /// Notes a committed batch of the segment; `full` if the stream has left the segment.
    pub fn batch_committed(&mut self, id: SegmentId, clock: u64, full: bool) {
        let segment = &mut self.table[id.index()];
        segment.uncommitted -= 1;
        if full {
            self.seal_if_complete(id, clock);
        }
    }

    /// Seals the segment if the stream has left it and all is committed: it becomes a candidate for
    /// cleaning.
    pub fn seal_if_complete(&mut self, id: SegmentId, clock: u64) {
        let segment = &mut self.table[id.index()];
        if segment.state != SegmentState::Open || segment.uncommitted > 0 {
            return;
        }
        if segment.live_units == 0 {
            self.push_dead(id);
        } else {
            segment.sealed_at = clock;
            segment.sealed_user = self.user_clock;
            self.make_candidate(id);
        }
    }

    /// Makes a segment with live blocks a candidate for cleaning, at once or when the oldest kept
    /// checkpoint has moved on.
    fn make_candidate(&mut self, id: SegmentId) {
        let segment = &mut self.table[id.index()];
        segment.state = SegmentState::Sealed;
        if segment.last_checkpoint >= self.oldest_checkpoint {
            return self.young.push(id);
        }
        let (live_units, sealed_at) = (segment.weight(), segment.sealed_at);
        self.victims.insert(
            id.0,
            SegmentStats {
                live_units,
                capacity_units: self.capacities[id.index()],
                sealed_at,
            },
        );
    }

    /// Checks the segments in replay again after a change of the oldest kept checkpoint.
    fn leave_replay(&mut self, oldest_checkpoint: u64) {
        self.oldest_checkpoint = oldest_checkpoint;
        for id in std::mem::take(&mut self.dead_in_replay) {
            self.push_dead(id);
        }
        for id in std::mem::take(&mut self.young) {
            if self.table[id.index()].state == SegmentState::Sealed
                && self.victims.get(id.0).is_none()
            {
                self.make_candidate(id);
            }
        }
    }

    /// Payload of the largest full segment, in bytes.
    pub fn payload_bytes_max(&self) -> u64 {
        u64::from(self.victims.capacity_units_max()) * ADDRESS_UNIT as u64
    }

    /// Segments that may be cleaned now.
    pub fn candidate_count(&self) -> u32 {
        self.victims.len()
    }

    /// True if a checkpoint would give a segment to clean or to reuse.
    pub fn checkpoint_frees(&self) -> bool {
        // No checkpoint frees segments that are quarantined for damage.
        !self.dead_in_replay.is_empty() || self.quarantined_pages > 0 || !self.young.is_empty()
    }

    /// Adds a live payload of `units` units.
    #[inline]
    pub fn add_live(&mut self, id: SegmentId, units: u16) {
        let segment = &mut self.table[id.index()];
        segment.live_units += u32::from(units);
        segment.live_compressed += compressed(units);
        if segment.state == SegmentState::Sealed {
            let live = segment.weight();
            self.victims.update(id.0, live);
        }
    }

    /// Handles the end of the discards of a segment.
    pub fn discarded(&mut self, id: SegmentId) {
        self.set_free(id);
        self.discarding -= 1;
        self.nothing_under = None;
    }

    /// Ends a read or discard of the segment; returns the number that is left.
    pub fn unpin(&mut self, id: SegmentId) -> u32 {
        let segment = &mut self.table[id.index()];
        segment.pins -= 1;
        if segment.pins == 0 && segment.state == SegmentState::Dead {
            self.nothing_under = None;
        }
        segment.pins
    }

    /// Prefetches what [`Segments::remove_live`] will need.
    #[inline]
    pub fn warm(&self, id: SegmentId) {
        std::hint::black_box((self.table[id.index()].live_units, self.victims.get(id.0)));
    }

    /// Removes a live payload of `units` units, superseded by LSN `by` (and by a cleaned batch, if
    /// a move did it).
    #[inline]
    pub fn remove_live(&mut self, id: SegmentId, units: u16, by: Lsn, moved_by: BatchSeq) {
        let segment = &mut self.table[id.index()];
        segment.live_units -= u32::from(units);
        segment.live_compressed -= compressed(units);
        segment.superseded_by = segment.superseded_by.max(by);
        segment.moved_by = segment.moved_by.max(moved_by);
        match segment.state {
            SegmentState::Quarantined if segment.live_units == 0 => {
                self.unquarantine(id);
                self.died_quarantined += u64::from(!self.holds_pages(id));
                self.push_dead(id);
            }
            SegmentState::Quarantined
                if !segment.touched && usize::from(segment.stream) != STREAM_CHECKPOINT =>
            {
                self.touch(id);
            }
            SegmentState::Sealed if segment.live_units == 0 => {
                self.victims.remove(id.0);
                self.push_dead(id);
            }
            SegmentState::Sealed => {
                let live = segment.weight();
                self.victims.update(id.0, live);
            }
            _ => {}
        }
    }

    /// Notes that a block in it was superseded by this LSN before it became live.
    pub fn superseded(&mut self, id: SegmentId, by: Lsn) {
        let segment = &mut self.table[id.index()];
        segment.superseded_by = segment.superseded_by.max(by);
    }

    /// Blocks that its live payload would take elsewhere, and the remaining blocks of a segment of
    /// full batches.
    pub fn live_and_dead_blocks(&self, id: SegmentId) -> (u64, u64) {
        let live = self.table[id.index()].weight();
        let dead = self.capacities[id.index()].saturating_sub(live);
        (
            u64::from(live / u32::from(FULL_BLOCK_UNITS)),
            u64::from(dead / u32::from(FULL_BLOCK_UNITS)),
        )
    }

    /// Ends the cleaning of a victim: dead if nothing is live, else a candidate again.
    pub fn end_cleaning(&mut self, id: SegmentId, clock: u64) {
        let segment = &mut self.table[id.index()];
        debug_assert_eq!(segment.state, SegmentState::Cleaning);
        if segment.live_units == 0 {
            self.push_dead(id);
        } else {
            segment.sealed_at = clock;
            segment.sealed_user = self.user_clock;
            self.make_candidate(id);
        }
    }

    /// Frees dead segments that satisfy the reuse rule. With `discard` they become `Discarding`
    /// first and are returned, at most [`DISCARDING_MAX`] at a time.
    pub fn free_dead(&mut self, horizon: &ReuseHorizon, discard: bool) -> Vec<SegmentId> {
        let mut freed = Vec::new();
        if self.nothing_under == Some(*horizon) {
            return freed;
        }
        self.nothing_under = Some(*horizon);
        for _ in 0..self.dead.len() {
            if discard && self.discarding >= DISCARDING_MAX {
                break;
            }
            let Some(id) = self.dead.pop_front() else {
                break;
            };
            if self.may_reuse(id, horizon) {
                let segment = &mut self.table[id.index()];
                segment.filled_rows = 0;
                self.mark_dirty(id);
                if discard {
                    self.table[id.index()].state = SegmentState::Discarding;
                    self.discarding += 1;
                    freed.push(id);
                } else {
                    self.set_free(id);
                }
            } else {
                self.dead.push_back(id);
            }
        }
        freed
    }

    fn may_reuse(&self, id: SegmentId, horizon: &ReuseHorizon) -> bool {
        let s = self.get(id);
        s.pins == 0
            && s.superseded_by <= horizon.durable
            && s.moved_by <= horizon.durable_cleaned
            && s.last_checkpoint < horizon.oldest_checkpoint
    }

    /// True if dead segments wait only for a flush.
    pub fn wait_for_flush(&self, horizon: &ReuseHorizon) -> bool {
        self.dead.iter().any(|id| {
            self.get(*id).superseded_by > horizon.durable
                || self.get(*id).moved_by > horizon.durable_cleaned
        })
    }

    /// Number of dead segments with reads in flight.
    pub fn dead_in_reads(&self) -> usize {
        self.dead
            .iter()
            .filter(|id| self.get(**id).pins > 0)
            .count()
    }

    /// True if a dead segment could be freed if `written` were the horizon.
    pub fn flush_would_free(&self, written: &ReuseHorizon) -> bool {
        self.dead.iter().any(|id| self.may_reuse(*id, written))
    }

    /// Marks the segment's record for the next checkpoint.
    pub fn mark_dirty(&mut self, id: SegmentId) {
        let segment = &mut self.table[id.index()];
        if !segment.dirty {
            segment.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Segments whose record changed since the last call.
    pub fn take_dirty(&mut self) -> Vec<SegmentId> {
        let list = std::mem::take(&mut self.dirty);
        for id in &list {
            self.table[id.index()].dirty = false;
        }
        list
    }

    /// Forgets rows from `row` on: batches sealed there did not survive (recovery).
    pub fn truncate(&mut self, id: SegmentId, row: u32) {
        let segment = &mut self.table[id.index()];
        segment.filled_rows = row;
        segment.forget_starts(row);
        self.mark_dirty(id);
    }

    /// Sets the states after recovery, when live counters and stream positions are known. `used` is
    /// true for segments that hold batches; `open` and `reserved` name the streams' segments.
    pub fn settle(
        &mut self,
        zones: &ZoneMap,
        open: &[SegmentId],
        reserved: &[SegmentId],
        oldest_checkpoint: u64,
    ) {
        self.oldest_checkpoint = oldest_checkpoint;
        for index in 0..self.table.len() {
            let id = SegmentId(index as u32);
            let segment = &mut self.table[index];
            segment.uncommitted = 0;
            let written = segment.filled_rows > 0;
            segment.state = if open.contains(&id) {
                SegmentState::Open
            } else if reserved.contains(&id) {
                SegmentState::Reserved
            } else if segment.live_units > 0 {
                SegmentState::Sealed
            } else if written
                && (segment.last_checkpoint >= oldest_checkpoint || segment.superseded_by > Lsn(0))
            {
                SegmentState::Dead
            } else {
                SegmentState::Free
            };
            segment.sealed_at = segment.last_checkpoint;
            segment.sealed_user = segment.last_checkpoint as u32;
            self.user_clock = self.user_clock.max(segment.sealed_user + 1);
        }
        for id in (0..self.count()).map(SegmentId) {
            if self.is_overwritten(id, zones) {
                self.table[id.index()].state = SegmentState::Free;
            }
            match self.table[id.index()].state {
                SegmentState::Sealed => self.make_candidate(id),
                SegmentState::Dead => self.push_dead(id),
                _ => {}
            }
        }
        self.settle_layers(zones);
    }

    /// Checks the invariants between two events; returns the first violation, if any.
    pub fn self_check(&self) -> Result<(), String> {
        let mut listings = vec![0; self.table.len()];
        self.free.iter().for_each(|id| listings[id.index()] += 1);
        for (index, (s, listed)) in self.table.iter().zip(listings).enumerate() {
            if (s.state == SegmentState::Free) != (listed == 1) {
                return Err(format!(
                    "segment {index} is {:?} and {listed} times in the free list",
                    s.state
                ));
            }
            if (!s.state.is_in_use()
                || matches!(s.state, SegmentState::Reserved | SegmentState::Dead))
                && s.live_units > 0
            {
                return Err(format!(
                    "segment {index} is {:?} with {} live units",
                    s.state, s.live_units
                ));
            }
            if usize::from(s.stream) >= STREAMS.len() {
                return Err(format!("segment {index} has stream {}", s.stream));
            }
        }
        self.check_layers()
    }
}
