//! Destroying a pool: the next generation of its superblock says so, on every member that is there.
//!
//! The data stays until somebody overwrites it, but no import takes the pool any more. With `wipe` the label goes too, so that the members look
//! empty to every tool.

use super::FoundPool;
use crate::failure::{Failure, id};
use std::sync::Arc;
use windrow_device::queue::Members as MemberTable;
use windrow_device::{FileMember, Member, OpenOptions, SyncMembers};
use windrow_io::MemberIo;
use windrow_layout::superblock::{PoolState, RESERVED_BYTES, Superblock, slot_offset};
use windrow_units::{MemberId, Uuid};

/// Marks the pool as destroyed on all members that were found.
///
/// # Errors
/// Another host than `host` has it (`None`: whoever has it), a member is in use or cannot be written.
pub fn destroy(found: &FoundPool, wipe: bool, host: Option<Uuid>) -> Result<(), Failure> {
    let what = format!("cannot destroy pool '{}'", found.name);
    let owner = found.superblock().map(|superblock| superblock.host).filter(|owner| *owner != Uuid::default());
    if let (Some(host), Some(owner)) = (host, owner)
        && host != owner
    {
        let why = format!("the pool is in use by host {owner}, or was when that host stopped");
        return Err(Failure::new(id::POOL_FOREIGN, what, why).remedy("give --force if that host is surely down"));
    }
    let io_failure = |error: windrow_io::MemberError| Failure::new(id::MEMBER_IO, what.clone(), error);
    let mut table: MemberTable = Vec::with_capacity(found.members.len());
    for member in &found.members {
        let opened = FileMember::open(&member.path, &OpenOptions::default()).map_err(|error| Failure::new(id::MEMBER_OPEN, what.clone(), error))?;
        table.push(Some(Arc::new(opened) as Arc<dyn Member>));
    }
    let mut io = SyncMembers::new(table);
    let newest = found.superblock();
    for (index, member) in found.members.iter().enumerate() {
        let slot = MemberId(index as u8);
        if wipe {
            let zeroes = windrow_io::Buf::unpooled(RESERVED_BYTES as usize);
            io.write(slot, 0, &zeroes).map_err(io_failure)?;
        } else if let Some(newest) = newest {
            let next = Superblock {
                generation: newest.generation.next(),
                parent_hash: newest.content_hash(),
                state: PoolState::Destroyed,
                member: member.slot,
                member_uuid: member.label.member_uuid,
                ..newest.clone()
            };
            io.write(slot, slot_offset(next.generation), &next.encode()).map_err(io_failure)?;
        }
        io.flush(slot).map_err(io_failure)?;
    }
    Ok(())
}
