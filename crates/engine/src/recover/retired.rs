//! Journal devices that are not in service and still have durable records
//! (docs/internals/journal.md, Journal devices).
//!
//! The last device leaves, its loss is recorded, and power fails before the log has the device's
//! durable records. Then they are on that device alone. Such a device is only *read*. It is no
//! member in use, and has no vote on the ruling superblock. It is read only if something durable is
//! missing without it.
//!
//! Its content must be of this pool's own past. Its newest superblock must be an ancestor of the
//! ruling one, by content. Each generation names its predecessor by hash, and members keep the last
//! four. So a device that continued with another host, or with members that separated, is not read,
//! whatever its generation.

use std::collections::BTreeSet;
use windrow_format::superblock::{MemberState, Superblock};
use windrow_types::{Generation, MemberId};

/// Superblocks of one device, oldest slot first.
pub(super) type Slots = (MemberId, Vec<Superblock>);

/// Newest superblock of a device.
pub(super) fn newest_of(slots: &Slots) -> Option<&Superblock> {
    slots
        .1
        .iter()
        .max_by_key(|superblock| superblock.generation)
}

/// The ruling superblock and its known ancestors: generation and content hash.
fn ancestors(ruling: &Superblock, slots: &[Slots]) -> BTreeSet<(Generation, u64)> {
    let mut known = BTreeSet::from([(ruling.generation, ruling.content_hash())]);
    let (mut generation, mut hash) = (ruling.generation, ruling.parent_hash);
    while generation.0 > 0 {
        generation = Generation(generation.0 - 1);
        known.insert((generation, hash));
        let bears = |s: &&Superblock| {
            s.pool == ruling.pool && s.generation == generation && s.content_hash() == hash
        };
        match slots
            .iter()
            .flat_map(|(_, superblocks)| superblocks)
            .find(bears)
        {
            Some(parent) => hash = parent.parent_hash,
            None => break,
        }
    }
    known
}

/// Bit mask of journal devices that may be read although they are not in service. `in_service`
/// marks those in service; members in the mask `failing` are present and cannot be written.
pub(super) fn readable(
    ruling: &Superblock,
    slots: &[Slots],
    in_service: &[bool],
    failing: u64,
) -> u64 {
    let devices = ruling.journals.devices();
    if devices == 0 {
        return 0;
    }
    let known = ancestors(ruling, slots);
    let is_readable = |of: &&Slots| {
        let (member, Some(own)) = (of.0, newest_of(of)) else {
            return false;
        };
        let Some(record) = ruling
            .members
            .get(member.index())
            .filter(|record| record.uuid == own.member_uuid)
        else {
            return false;
        };
        let left = match record.state {
            MemberState::Absent | MemberState::Rebuilding => true,
            // It is whole and can only be read.
            MemberState::Online => {
                failing >> member.0 & 1 == 1 && own.generation.next() >= ruling.generation
            }
            MemberState::Removed | MemberState::Spare => false,
        };
        let retired = devices >> member.0 & 1 == 1 && !in_service[member.index()];
        retired
            && left
            && own.pool == ruling.pool
            && known.contains(&(own.generation, own.content_hash()))
    };
    slots
        .iter()
        .filter(is_readable)
        .fold(0, |mask, (member, _)| mask | 1 << member.0)
}
