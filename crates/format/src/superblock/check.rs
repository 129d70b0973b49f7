//! Invariants between the fields of a superblock. Code above relies on them without checking again.

use super::codec::malformed;
use super::*;
use crate::MAX_SEGMENT_ROWS;
use crate::bytes::{BEYOND_COUNT, are_counts};
use windrow_types::{Address, BLOCK_BYTES, FULL_BLOCK_UNITS, VolumeId};

impl Superblock {
    /// See the module.
    pub(super) fn check(&self) -> Result<(), SuperblockError> {
        match self.members.get(self.member.index()) {
            Some(own) if own.uuid == self.member_uuid => {}
            _ => return malformed("the member is not in its own table"),
        }
        check_zones(&self.zones, self.members.len(), self.address_offset_bits)?;
        for area in self.journals.areas() {
            check_journal(area, &self.zones, self.members.len())?;
        }
        if (self.journals == Journals::default())
            != (self.features.incompatible & Features::JOURNAL == 0)
        {
            return malformed("a journal's flag without a journal");
        }
        let in_zones = self.zones.iter().fold(0, |mask, zone| mask | zone.members);
        if self.journals.devices() & in_zones != 0
            || self
                .journals
                .internal
                .is_some_and(|area| area.members & self.journals.devices() != 0)
        {
            return malformed("a journal device that holds data");
        }
        if !self.fences.is_sorted_by(|a, b| a.epoch < b.epoch)
            || self.fences.last().is_some_and(|f| f.epoch > self.epoch)
        {
            return malformed("the fences are not in order of their epochs");
        }
        if self.fences.iter().any(|f| f.next_lsn <= f.recovery_lsn) {
            return malformed("a fence that allows LSNs to be reused");
        }
        if self.fences.iter().any(|f| f.covered_lsn > f.recovery_lsn) {
            return malformed("a fence that leaves more to the log than it accepts");
        }
        if self
            .checkpoints
            .iter()
            .flatten()
            .flat_map(|root| &root.replay)
            .any(|position| position.row > MAX_SEGMENT_ROWS)
        {
            return malformed("a stream that continues after the end of any segment");
        }
        if self
            .checkpoints
            .iter()
            .flatten()
            .any(|root| root.last_volume >= VolumeId::INDEX.0)
        {
            return malformed("a volume after the last possible one");
        }
        if !self.counts() {
            return malformed(BEYOND_COUNT);
        }
        match &self.checkpoints {
            [None, Some(_)] => malformed("an older checkpoint without a newer one"),
            [Some(newer), Some(older)] if newer.id <= older.id => {
                malformed("the checkpoints are not newest first")
            }
            _ => Ok(()),
        }
    }

    /// True if all counters are valid.
    fn counts(&self) -> bool {
        let own = [self.generation.0, self.epoch.0, self.journals.durable_lsn.0];
        let fence = |f: &Fence| {
            are_counts([f.epoch.0, f.recovery_lsn.0, f.next_lsn.0])
                && are_counts(f.last_seq.map(|seq| seq.0))
        };
        let root = |r: &CheckpointRoot| {
            let seqs = r
                .flushed_seq
                .iter()
                .chain(r.replay.iter().map(|position| &position.seq));
            are_counts([r.id, r.lsn.0, r.epoch.0, r.flushed_through.0])
                && are_counts(seqs.map(|seq| seq.0))
        };
        are_counts(own)
            && self.fences.iter().all(fence)
            && self.checkpoints.iter().flatten().all(root)
    }
}

fn check_zones(
    zones: &[Zone],
    members: usize,
    address_offset_bits: u8,
) -> Result<(), SuperblockError> {
    if zones.is_empty() {
        return malformed("a pool without zones");
    }
    let known = if members == 64 {
        u64::MAX
    } else {
        (1 << members) - 1
    };
    let mut next = 0u32;
    for zone in zones {
        if zone.members & !known != 0 || zone.member_count() < usize::from(zone.shape.width) {
            return malformed("a zone of members that do not exist, or of too few");
        }
        if zone.first_segment < next {
            return malformed("the zones' segments are not in order");
        }
        next = match zone.first_segment.checked_add(zone.segments) {
            Some(end) if zone.segments > 0 && end < SegmentId::NONE.0 => end,
            _ => return malformed("a zone without segments, or with too many"),
        };
        let end = zone
            .extents()
            .checked_mul(zone.shape.extent_bytes())
            .and_then(|length| length.checked_add(zone.start));
        if zone.start < RESERVED_BYTES || zone.start % BLOCK_BYTES != 0 || end.is_none() {
            return malformed("a zone that begins or ends where no zone can");
        }
    }
    check_extents(zones)?;
    if !(u32::from(FULL_BLOCK_UNITS).ilog2()..Address::BITS)
        .contains(&u32::from(address_offset_bits))
    {
        return malformed("addresses without room for a segment or an offset");
    }
    let codec = AddressCodec::new(address_offset_bits);
    if u64::from(next) > codec.max_segments()
        || zones.iter().any(|z| !codec.fits(z.shape.data_blocks()))
    {
        return malformed("more segments than addresses can name, or larger ones");
    }
    Ok(())
}

/// Checks that the journal's area overlaps no extent.
fn check_journal(
    journal: &JournalArea,
    zones: &[Zone],
    members: usize,
) -> Result<(), SuperblockError> {
    let known = if members == 64 {
        u64::MAX
    } else {
        (1 << members) - 1
    };
    if journal.members & !known != 0 || !journal.is_valid() || journal.start < RESERVED_BYTES {
        return malformed("an impossible journal");
    }
    if zones.iter().any(|z| {
        z.members & journal.members != 0
            && journal.end() > z.start
            && journal.start < z.start + z.extents() * z.shape.extent_bytes()
    }) {
        return malformed("the journal lies in a zone");
    }
    Ok(())
}

/// Checks that extents have one size and lie on one grid, and that an extent belongs to at most one
/// zone of a layout.
fn check_extents(zones: &[Zone]) -> Result<(), SuperblockError> {
    let extent = zones[0].shape.extent_bytes();
    if zones
        .iter()
        .any(|z| z.shape.extent_bytes() != extent || z.start.abs_diff(zones[0].start) % extent != 0)
    {
        return malformed("zones whose extents differ");
    }
    for (at, a) in zones.iter().enumerate() {
        let end = |z: &Zone| z.start + z.extents() * extent;
        if zones[..at].iter().any(|b| {
            a.layout == b.layout
                && a.members & b.members != 0
                && a.start < end(b)
                && b.start < end(a)
        }) {
            return malformed("two zones of a layout share extents");
        }
    }
    Ok(())
}
