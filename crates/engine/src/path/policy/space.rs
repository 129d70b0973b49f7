//! Space: which segments are cleaned, and which stream a block goes to.

use super::*;
use crate::base::limits::{CLEANED_STREAMS, STREAM_CLEANED};
use crate::path::{cleaning, policy};
use crate::store::pending::BlockKey;
use crate::store::pool::Pool;
use crate::store::segment::Segments;
use crate::store::volume::Volumes;
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_policy::place::Placement;
use windrow_types::{FULL_BLOCK_UNITS, SegmentId};

/// Segments: which are free, which are cleaned, which stream a block goes to.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) cleaner: cleaning::Cleaner,
    pub(crate) ledger: crate::base::reserve::Ledger,
    pub(crate) policy: policy::Policy,
}

impl Space {
    /// Activates a policy. If it is like the present one its learned state stays. Otherwise the
    /// marks of segments are dropped: they mean nothing to another placement.
    pub(crate) fn take_policy(&mut self, segments: &mut Segments, policy: Policy) {
        if !self.policy.is_like(&policy) {
            segments.forget_marks();
            self.policy = Policy {
                last_further: self.policy.last_further,
                ..policy
            };
        }
    }

    /// Number of a block for the placement.
    pub(crate) fn policy_block(&self, volumes: &Volumes, key: BlockKey) -> Option<u32> {
        let page = MAP_PAGE_ENTRIES as u64;
        let slot = volumes.get(key.volume())?.map.slot(key.lba().0 / page)?;
        let block = u64::from(slot.0) * page + key.lba().0 % page;
        u32::try_from(block)
            .ok()
            .filter(|block| *block < self.policy.blocks)
    }

    /// Stream that a block moved out of `from` is meant for.
    pub(crate) fn stream_of_moved(
        &mut self,
        volumes: &Volumes,
        segments: &Segments,
        key: BlockKey,
        from: SegmentId,
    ) -> usize {
        if self.policy.classes.moved == 1 && self.policy.blocks == 0 {
            return STREAM_CLEANED;
        }
        let (now, place) = (segments.user_clock(), segments.spot(from));
        let class = match self.policy_block(volumes, key) {
            Some(block) => self.policy.placement.moved(block, now, place),
            None if self.policy.blocks == 0 => self.policy.placement.moved(0, now, place),
            None => self
                .policy
                .classes
                .class_of_moved(self.policy.classes.moved - 1),
        };
        CLEANED_STREAMS[usize::from(self.policy.classes.moved(class))]
    }

    /// Records the choice of a victim, at this price.
    pub(crate) fn note_victim(&mut self, segments: &Segments, segment: SegmentId, price: f64) {
        if self.policy.is_idle() {
            return;
        }
        let (place, now) = (segments.spot(segment), segments.user_clock());
        let s = segments.get(segment);
        let (live, opened) = (s.weight() / u32::from(FULL_BLOCK_UNITS), s.opened_user);
        if is_data(s.stream) {
            self.policy.placement.chosen(price);
            self.policy.placement.victim(place, live, opened, now);
            if self.policy.placement.surveys_victims() {
                self.policy.placement.survey(now, &Look(segments));
            }
        }
    }

    /// Surveys all segments from time to time: about eight times while one segment is written for
    /// each eighth of them.
    pub(crate) fn survey_segments(&mut self, segments: &Segments, now: u32) {
        self.policy.survey_in -= 1;
        if self.policy.survey_in == 0 {
            let blocks = segments.payload_bytes_max() / windrow_types::BLOCK_BYTES;
            let pause = u64::from((segments.count() / 8).max(1)) * (blocks / 8).max(1);
            self.policy.survey_in = pause.clamp(64, u64::from(u32::MAX)) as u32;
            self.policy.placement.survey(now, &Look(segments));
        }
    }

    /// Number of user streams in use.
    pub(crate) fn user_streams(&self, pool: &Pool) -> u8 {
        if pool.wants_one_user_stream() {
            1
        } else {
            self.policy.classes.users
        }
    }
}
