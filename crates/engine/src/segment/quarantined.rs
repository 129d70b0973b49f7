//! Segments that are set aside: cleaning has left something live in them.
//!
//! Checkpoint pages leave them with the next checkpoints. Blocks that could not be read stay until
//! users overwrite them, or until they can be had again: then the segments are candidates for
//! cleaning again. Those that were only tried (`clean/damage.rs`) are as soon as there is room to
//! move what can be had.

use super::{SegmentState, Segments};
use crate::limits::STREAM_CHECKPOINT;
use windrow_types::SegmentId;

impl Segments {
    /// Cleaning of a victim has ended with blocks left that it does not move; after a trial: it has
    /// moved none.
    pub fn set_aside(&mut self, id: SegmentId, tried: bool) {
        let has_pages = self.holds_pages(id);
        self.quarantined += 1;
        self.quarantined_pages += u32::from(has_pages);
        let segment = &mut self.table[id.index()];
        (segment.state, segment.damaged) = (SegmentState::Quarantined, !has_pages);
        if tried {
            segment.tried = true;
            self.tried.push(id);
        }
    }

    /// Something in one that is set aside has died.
    pub fn touch(&mut self, id: SegmentId) {
        self.table[id.index()].touched = true;
        self.touched.push(id);
    }

    /// Takes a segment back from those that are set aside; its state is to be changed.
    pub(super) fn leave_quarantined(&mut self, id: SegmentId) {
        let segment = &mut self.table[id.index()];
        (segment.touched, segment.tried) = (false, false);
        self.quarantined -= 1;
        self.quarantined_pages -= u32::from(self.holds_pages(id));
    }

    /// A checkpoint wrote it.
    pub(super) fn holds_pages(&self, id: SegmentId) -> bool {
        usize::from(self.table[id.index()].stream) == STREAM_CHECKPOINT
    }

    /// Segments that are set aside.
    pub fn quarantined_count(&self) -> u32 {
        self.quarantined
    }

    /// Those of them that hold blocks which could not be read.
    pub fn quarantined_for_damage_count(&self) -> u32 {
        self.quarantined - self.quarantined_pages
    }

    /// Segments that died while they were set aside, since the start.
    pub fn died_quarantined(&self) -> u64 {
        self.died_quarantined
    }

    /// What could not be read may be had now: segments that were set aside for it are candidates
    /// again.
    pub fn look_again(&mut self) {
        self.look_again_at((0..self.count()).map(SegmentId));
    }

    /// Those that were only tried are candidates again. False if there is none.
    pub fn release_tried(&mut self) -> bool {
        let tried: Vec<_> = std::mem::take(&mut self.tried)
            .into_iter()
            .filter(|id| self.get(*id).tried)
            .collect();
        self.look_again_at(tried.into_iter())
    }

    /// And those in which something has died since they were set aside. False if there is none.
    pub fn release_touched(&mut self) -> bool {
        let touched: Vec<_> = std::mem::take(&mut self.touched)
            .into_iter()
            .filter(|id| self.get(*id).touched)
            .collect();
        self.look_again_at(touched.into_iter())
    }

    fn look_again_at(&mut self, ids: impl Iterator<Item = SegmentId>) -> bool {
        let mut is_any = false;
        for id in ids {
            if self.get(id).state == SegmentState::Quarantined && !self.holds_pages(id) {
                self.leave_quarantined(id);
                self.make_candidate(id);
                is_any = true;
            }
        }
        is_any
    }

    /// One in which something has died since it was set aside, to be cleaned: it may have been just
    /// what could not be had. (One that is full by weight becomes a candidate: it would give less
    /// than it takes.)
    pub fn take_touched(&mut self) -> Option<SegmentId> {
        while let Some(id) = self.touched.pop() {
            // (If it is still set aside.)
            if self.get(id).touched {
                self.leave_quarantined(id);
                if self.get(id).weight() >= self.capacities[id.index()] {
                    self.make_candidate(id);
                    continue;
                }
                self.table[id.index()].state = SegmentState::Cleaning;
                return Some(id);
            }
        }
        None
    }
}
