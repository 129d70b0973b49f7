//! Segments that rebuilds have written, on their way to be durable.

use windrow_types::{MemberId, SegmentId};

/// The segments, each with its members (bit mask).
#[derive(Debug, Default)]
pub(crate) struct Rebuilt {
    /// Without a flush.
    pub(crate) unflushed: Vec<(SegmentId, u64)>,
    /// Covered by the flush round with this number.
    flushing: Option<(Vec<(SegmentId, u64)>, u64)>,
    /// Covered by a round that has ended.
    flushed: Vec<(SegmentId, u64)>,
    /// Start time of the last round, whatever its purpose.
    pub(crate) round_ns: u64,
}

impl Rebuilt {
    /// True if some are not durable.
    pub(crate) fn is_waiting(&self) -> bool {
        self.flushing.is_some() || !self.unflushed.is_empty()
    }

    /// Begins round `number`, which covers all of them; `ended`: the last one that ended well.
    pub(super) fn round_begins(&mut self, number: u64, ended: u64, now_ns: u64) {
        self.note_ended(ended);
        self.round_ns = now_ns;
        let mut segments = self
            .flushing
            .take()
            .map_or_else(Vec::new, |(segments, _)| segments);
        segments.append(&mut self.unflushed);
        if !segments.is_empty() {
            self.flushing = Some((segments, number));
        }
    }

    /// Round `ended` has ended well, and so have all before it.
    fn note_ended(&mut self, ended: u64) {
        if let Some((segments, _)) = self.flushing.take_if(|(_, round)| *round <= ended) {
            self.flushed.extend(segments);
        }
    }

    /// A member joins: what was rebuilt so far is not on it.
    pub(crate) fn joined(&mut self, member: MemberId) {
        let flushing = self
            .flushing
            .iter_mut()
            .flat_map(|(segments, _)| segments.iter_mut());
        let written = self.unflushed.iter_mut().chain(&mut self.flushed);
        for (_, members) in written.chain(flushing) {
            *members &= !(1 << member.0);
        }
    }

    /// Takes the durable ones; `ended`: the last round that ended well.
    pub(super) fn take(&mut self, ended: u64) -> Vec<(SegmentId, u64)> {
        self.note_ended(ended);
        std::mem::take(&mut self.flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: SegmentId = SegmentId(1);
    const SECOND: SegmentId = SegmentId(2);

    /// A segment counts as whole on a member only when a flush that began after its last write has
    /// ended well. A round that fails proves nothing; the next one covers what it was to cover.
    #[test]
    fn only_a_round_that_ends_well_makes_segments_durable() {
        let mut rebuilt = Rebuilt::default();
        rebuilt.unflushed.push((FIRST, 0b10));
        rebuilt.round_begins(1, 0, 7);
        rebuilt.unflushed.push((SECOND, 0b10));
        assert_eq!(rebuilt.take(0), [], "round 1 is under way");
        // Round 1 fails, and round 2 begins.
        rebuilt.round_begins(2, 0, 8);
        assert_eq!(rebuilt.take(1), [], "round 2 has both");
        assert!(rebuilt.is_waiting());
        assert_eq!(rebuilt.take(2), [(FIRST, 0b10), (SECOND, 0b10)]);
        assert!(!rebuilt.is_waiting() && rebuilt.round_ns == 8);
        assert_eq!(rebuilt.take(2), [], "once");
    }

    /// What ended before a round begins is kept apart from what that round covers.
    #[test]
    fn the_next_round_does_not_delay_what_is_durable() {
        let mut rebuilt = Rebuilt::default();
        rebuilt.unflushed.push((FIRST, 0b10));
        rebuilt.round_begins(1, 0, 0);
        rebuilt.unflushed.push((SECOND, 0b10));
        rebuilt.round_begins(2, 1, 0);
        assert_eq!(rebuilt.take(1), [(FIRST, 0b10)]);
        assert_eq!(rebuilt.take(2), [(SECOND, 0b10)]);
    }

    /// A member that joined kept its bit in segments that were flushed and not yet counted: they
    /// would have been whole on a device that does not hold them.
    #[test]
    fn a_member_that_joins_has_none_of_them() {
        let mut rebuilt = Rebuilt::default();
        rebuilt.unflushed.push((FIRST, 0b110));
        rebuilt.round_begins(1, 0, 0);
        rebuilt.unflushed.push((SECOND, 0b110));
        rebuilt.round_begins(2, 1, 0);
        rebuilt.unflushed.push((SegmentId(3), 0b110));
        rebuilt.joined(MemberId(1));
        rebuilt.round_begins(3, 2, 0);
        assert_eq!(
            rebuilt.take(3),
            [(FIRST, 0b100), (SECOND, 0b100), (SegmentId(3), 0b100)]
        );
    }
}
