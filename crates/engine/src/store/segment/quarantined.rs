//! Quarantined segments: cleaning has left live data in them.
//!
//! Checkpoint pages leave them with the next checkpoints. Unreadable blocks stay until clients
//! overwrite them, or until they are readable again: then the segments are candidates for cleaning
//! again. Segments quarantined after a trial (`upkeep/clean/damage.rs`) become candidates as soon
//! as there is room to move their readable data.

use super::{SegmentState, Segments};
use crate::base::limits::STREAM_CHECKPOINT;
use windrow_types::SegmentId;

impl Segments {
    /// Quarantines a victim whose remaining blocks cleaning does not move; after a trial: none of
    /// it was moved.
    pub fn quarantine(&mut self, id: SegmentId, tried: bool) {
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

    /// Notes that some data of a quarantined segment has died.
    pub fn touch(&mut self, id: SegmentId) {
        self.table[id.index()].touched = true;
        self.touched.push(id);
    }

    /// Removes a segment from the quarantined ones; the caller changes its state.
    pub(super) fn unquarantine(&mut self, id: SegmentId) {
        let segment = &mut self.table[id.index()];
        (segment.touched, segment.tried) = (false, false);
        self.quarantined -= 1;
        self.quarantined_pages -= u32::from(self.holds_pages(id));
    }

    /// True if a checkpoint wrote it.
    pub(super) fn holds_pages(&self, id: SegmentId) -> bool {
        usize::from(self.table[id.index()].stream) == STREAM_CHECKPOINT
    }

    /// Number of quarantined segments.
    pub fn quarantined_count(&self) -> u32 {
        self.quarantined
    }

    /// Number of quarantined segments with unreadable blocks.
    pub fn quarantined_for_damage_count(&self) -> u32 {
        self.quarantined - self.quarantined_pages
    }

    /// Segments that died while quarantined, since the start.
    pub fn died_quarantined(&self) -> u64 {
        self.died_quarantined
    }

    /// Makes segments quarantined for unreadable data candidates again: the data may be readable
    /// now.
    pub fn look_again(&mut self) {
        self.look_again_at((0..self.count()).map(SegmentId));
    }

    /// Makes segments quarantined after a trial candidates again. False if there is none.
    pub fn release_tried(&mut self) -> bool {
        let tried: Vec<_> = std::mem::take(&mut self.tried)
            .into_iter()
            .filter(|id| self.get(*id).tried)
            .collect();
        self.look_again_at(tried.into_iter())
    }

    /// Makes quarantined segments in which some data has died candidates again. False if there is
    /// none.
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
                self.unquarantine(id);
                self.make_candidate(id);
                is_any = true;
            }
        }
        is_any
    }

    /// Takes a quarantined segment in which some data has died for cleaning: that data may be
    /// exactly what was unreadable. (One that is full by weight becomes a candidate instead: it
    /// would give less than it takes.)
    pub fn take_touched(&mut self) -> Option<SegmentId> {
        while let Some(id) = self.touched.pop() {
            // Unless it has left quarantine.
            if self.get(id).touched {
                self.unquarantine(id);
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
