//! Replacement of a member's device while the pool is closed.
//!
//! The new device gets its label and the next superblock generation first. Then all members in use
//! get that generation, in which the new one is *rebuilding* and lacks everything. After a crash at
//! any point the next start finds a superblock that it may follow. The new generation names its
//! predecessor, which the others have.

use super::{OpenError, quorum};
use crate::api::OpenOptions;
use crate::engine::Engine;
use crate::store::member::superblock_image;
use windrow_format::superblock::{
    FORMAT_VERSION, LABEL_BYTES, LABEL_OFFSET, Label, MemberRecord, MemberState, Superblock,
    slot_offset,
};
use windrow_geometry::ZoneMap;
use windrow_io::{BufPool, MemberIo};
use windrow_types::{MemberId, Uuid};

impl Engine {
    /// Adds the device that `io` has in the slot of `member` to the pool, under the identifier
    /// `uuid`. Its old superblocks, if any, must have been erased. Where
    /// [`crate::api::MemberStatus::power_safe`] was set it must be power-safe. It is rebuilt when
    /// the pool is opened.
    ///
    /// # Errors
    /// As [`Engine::open`], for the pool without that member; [`OpenError::Damage`] if there is no
    /// such member or the device is too small. Nothing was changed then, unless a member failed.
    pub fn replace_member(
        io: &mut dyn MemberIo,
        buffers: &BufPool,
        options: &OpenOptions,
        member: MemberId,
        uuid: Uuid,
    ) -> Result<(), OpenError> {
        let ruling = quorum::newest(io, options)?;
        let mut superblock: Superblock = ruling.found.clone();
        let needed = crate::store::member::needed_bytes(
            &ZoneMap::new(superblock.zones.clone()),
            &superblock.journals,
            member,
        );
        let size = io.size(member);
        quorum::check_journal_device_replaced(&ruling, member, options)?;
        let Some(record) = superblock
            .members
            .get(member.index())
            .filter(|record| record.state != MemberState::Removed)
        else {
            return Err(OpenError::Damage(format!("there is no member {member}")));
        };
        if record.state == MemberState::Spare {
            // It would be a member in use without a slot in any zone, and no later growth would
            // give it one.
            return Err(OpenError::Damage(format!(
                "member {member} is a spare: it has no slot that another device could take"
            )));
        }
        if size < needed {
            return Err(OpenError::Damage(format!(
                "the device has {size} bytes, the slot needs {needed}"
            )));
        }
        let generation = superblock.generation.next();
        let size_bytes = size.min(record.size_bytes.max(needed));
        // The new generation includes what the start found about the others; returning members wait
        // for the next start.
        for (record, judged) in superblock
            .members
            .iter_mut()
            .zip(&ruling.superblock.members)
        {
            let in_use = matches!(record.state, MemberState::Online | MemberState::Rebuilding);
            if in_use && matches!(judged.state, MemberState::Absent | MemberState::Rebuilding) {
                // It is missing, or it is present and has missed something: the next start decides.
                let was_online = record.state == MemberState::Online;
                let state = if was_online {
                    MemberState::Absent
                } else {
                    judged.state
                };
                // One that was online has left now. Otherwise its content would look newer than its
                // leaving, and of another history.
                let absent_since = if was_online {
                    generation
                } else {
                    judged.absent_since
                };
                *record = MemberRecord {
                    state,
                    absent_since,
                    ..judged.clone()
                };
            }
        }
        superblock.members[member.index()] = MemberRecord {
            absent_since: generation,
            ..MemberRecord::new(uuid, MemberState::Rebuilding, size_bytes)
        };
        (superblock.generation, superblock.parent_hash) = (generation, ruling.found.content_hash());
        quorum::check_redundancy(&superblock)?;
        for lagging in &ruling.lagging {
            io.write(
                *lagging,
                slot_offset(ruling.found.generation),
                &superblock_image(&ruling.found, *lagging, buffers),
            )?;
            io.flush(*lagging)?;
        }
        let label = Label {
            version: FORMAT_VERSION,
            pool: superblock.pool,
            pool_name: superblock.pool_name.clone(),
            member_uuid: uuid,
            member,
        };
        let mut bytes = label.encode();
        bytes.resize(LABEL_BYTES, 0);
        io.write(member, LABEL_OFFSET, &bytes)?;
        // Before any superblock: devices are found by their labels, so no member may be recorded
        // whose device has none.
        io.flush(member)?;
        let in_use = |m: &MemberId| {
            io.is_present(*m)
                && matches!(
                    superblock.members[m.index()].state,
                    MemberState::Online | MemberState::Rebuilding
                )
        };
        let others: Vec<MemberId> = (0..superblock.members.len() as u8)
            .map(MemberId)
            .filter(|m| *m != member)
            .filter(in_use)
            .collect();
        for member in std::iter::once(member).chain(others) {
            io.write(
                member,
                slot_offset(generation),
                &superblock_image(&superblock, member, buffers),
            )?;
            io.flush(member)?;
        }
        Ok(())
    }
}
