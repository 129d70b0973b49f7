//! Segments that are set aside: cleaning has left something live in them.
//!
//! Checkpoint pages leave them with the next checkpoints. Blocks that could not be read stay until users overwrite them, or until they can be had again.

use super::{SegmentState, Segments};
use crate::limits::STREAM_CHECKPOINT;
use windrow_units::SegmentId;

impl Segments {
    /// Cleaning of a victim has ended with blocks left that it does not move; after a trial it has moved none.
    pub fn set_aside(&mut self, id: SegmentId, tried: bool) {
        if tried {
            self.tried.push(id);
        }
        let segment = &mut self.table[id.index()];
        (segment.state, segment.touched) = (SegmentState::Aside, false);
        self.aside += 1;
        self.aside_pages += u32::from(self.holds_pages(id));
    }

    /// Takes a segment back from those that are set aside; its state is to be changed.
    pub(super) fn leave_aside(&mut self, id: SegmentId) {
        self.aside -= 1;
        self.aside_pages -= u32::from(self.holds_pages(id));
    }

    /// A checkpoint wrote it.
    pub(super) fn holds_pages(&self, id: SegmentId) -> bool {
        usize::from(self.table[id.index()].stream) == STREAM_CHECKPOINT
    }

    /// Segments that are set aside.
    pub fn aside_count(&self) -> u32 {
        self.aside
    }

    /// Those of them that hold blocks which could not be read.
    pub fn aside_for_damage_count(&self) -> u32 {
        self.aside - self.aside_pages
    }

    /// What could not be read may be had now: segments that were set aside for it are candidates for cleaning again.
    pub fn look_again(&mut self) {
        self.look_again_at((0..self.count()).map(SegmentId));
    }

    /// The same of those in which something has died since: it may have been just that. False if there is none.
    pub fn look_again_at_touched(&mut self) -> bool {
        let touched = std::mem::take(&mut self.touched);
        self.look_again_at(touched.into_iter())
    }

    /// The same of those that were only tried: there is room for what can be had. False if there is none.
    pub fn release_tried(&mut self) -> bool {
        let tried = std::mem::take(&mut self.tried);
        self.look_again_at(tried.into_iter())
    }

    fn look_again_at(&mut self, ids: impl Iterator<Item = SegmentId>) -> bool {
        let mut is_any = false;
        for id in ids {
            if self.get(id).state == SegmentState::Aside && !self.holds_pages(id) {
                self.leave_aside(id);
                self.make_candidate(id);
                is_any = true;
            }
        }
        is_any
    }
}
