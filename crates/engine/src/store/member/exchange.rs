//! State of changes of members, and what a device must offer for a slot. The steps are in
//! `upkeep/membership/exchange.rs`.

use super::shadow::Shadow;
use crate::api::{ControlError, ControlId};
use crate::base::limits::STREAMS;
use crate::store::member::Members;
use windrow_format::superblock::Journals;
use windrow_geometry::{JournalArea, Zone, ZoneMap};
use windrow_types::{BLOCK_BYTES, BatchSeq, MemberId};

/// Changes of members in progress.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    /// Requests that wait until a member has nothing in flight.
    pub(crate) settling: Vec<(ControlId, MemberId)>,
    /// Batches with lower numbers may have been sealed without a member that takes part now.
    pub(crate) barrier: [BatchSeq; STREAMS.len()],
    /// Replacement of a member that is in service.
    pub(crate) shadow: Option<Shadow>,
}

pub(crate) const NOT_POWER_SAFE: &str = "the journal's devices are declared power-safe, and it is not: writes to it would not be flushed";

pub(crate) type Changed = Result<(), ControlError>;

pub(crate) fn refused(member: MemberId, why: impl Into<String>) -> ControlError {
    ControlError::Member {
        member,
        why: why.into(),
    }
}

impl Members {
    /// What is a spare again must not be used while a command of the time before may still change
    /// its device.
    pub(crate) fn check_owned(&self, member: MemberId) -> Changed {
        if self
            .list
            .get(member.index())
            .is_some_and(|m| m.disowned > 0)
        {
            return Err(refused(
                member,
                "commands of the time when it was taken out of service have not ended",
            ));
        }
        Ok(())
    }
}

impl Exchanges {
    /// A spare that is to replace a member takes no other place.
    pub(crate) fn check_no_shadow(&self, spare: MemberId) -> Changed {
        match self.shadowed_by(spare) {
            None => Ok(()),
            Some(member) => Err(refused(
                spare,
                format!("it is about to take the place of member {member}"),
            )),
        }
    }
}

/// End of the last extent on a member in bytes: the minimum size of a device for its slot. 0 for an
/// unused slot.
pub(crate) fn needed_bytes(zones: &ZoneMap, journals: &Journals, member: MemberId) -> u64 {
    let in_zone = zones
        .zones()
        .iter()
        .filter(|zone| zone.members >> member.0 & 1 == 1);
    let end = |zone: &Zone| {
        // Extents rotate over the members of a zone (see `SegmentLocation::extent`).
        let position = u64::from((zone.members & ((1 << member.0) - 1)).count_ones());
        let slots = u64::from(zone.segments) * u64::from(zone.shape.width);
        let extents = slots
            .saturating_sub(position)
            .div_ceil(zone.member_count() as u64);
        zone.start + extents * zone.shape.extent_bytes()
    };
    let in_journals = journals
        .areas()
        .filter(|area| area.members >> member.0 & 1 == 1)
        .map(JournalArea::end);
    in_zone.map(end).chain(in_journals).max().unwrap_or(0)
}

/// Maximum logical sector in bytes of a device for the member's slot.
pub(crate) fn sector_bytes_max(journals: &Journals, member: MemberId) -> u32 {
    let there = journals
        .areas()
        .filter(|area| area.members >> member.0 & 1 == 1);
    there
        .map(|area| area.granule)
        .min()
        .unwrap_or(BLOCK_BYTES as u32)
}

/// True if writes to the member are not flushed: it is a journal device declared power-safe, and so
/// must be any device that takes its slot.
pub(crate) fn is_power_safe(journals: &Journals, member: MemberId) -> bool {
    journals
        .external
        .is_some_and(|area| area.power_safe && area.members >> member.0 & 1 == 1)
}
