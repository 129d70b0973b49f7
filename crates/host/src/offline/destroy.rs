//! Destruction of a pool: the next superblock generation marks it as destroyed, on every member
//! that is present.
//!
//! The data stays until it is overwritten, but no import takes the pool any more. With `wipe` the
//! label is erased too, so that the members look empty to every tool.

use super::again::look_again;
use super::{FoundMember, FoundPool, NEWER_REMEDY};
use crate::failure::{Failure, id};
use std::sync::Arc;
use std::time::Duration;
use windrow_device::queue::Members as MemberTable;
use windrow_device::{FileMember, Member, OpenOptions, SyncMembers};
use windrow_format::superblock::{
    PoolState, RESERVED_BYTES, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock,
    SuperblockError, slot_offset,
};
use windrow_io::MemberIo;
use windrow_types::{MemberId, Uuid};

/// Marks the pool as destroyed on all members that were found.
///
/// # Errors
/// - Another host than `host` has it (`None`: any host may have it).
/// - A member is in use or cannot be written, is not this pool's any more, or the pool has other
///   members.
/// - No superblock can be read, or newer software has used the pool: its owner is unknown, and no
///   mark of this version would count. Only a wipe regardless of the host proceeds.
pub fn destroy(found: &FoundPool, wipe: bool, host: Option<Uuid>) -> Result<(), Failure> {
    let what = format!("cannot destroy pool '{}'", found.name);
    let io_failure =
        |error: windrow_io::MemberError| Failure::new(id::MEMBER_IO, what.clone(), error);
    let mut table: MemberTable = Vec::with_capacity(found.members.len());
    let options = OpenOptions {
        lock_patience: PATIENCE,
        ..OpenOptions::default()
    };
    for member in &found.members {
        let opened = FileMember::open(&member.path, &options)
            .map_err(|error| Failure::new(id::MEMBER_OPEN, what.clone(), error))?;
        table.push(Some(Arc::new(opened) as Arc<dyn Member>));
    }
    // The mark must follow the newest generation, which another command may have written during the
    // wait for the locks.
    let now = look_again(found, table.iter().flatten().map(|device| &**device), &what)?;
    must_be_as_many(found, &now, &what)?;
    let newest = now.superblock();
    must_be_ours(newest, host, &what)?;
    let mut io = SyncMembers::new(table);
    if !wipe || host.is_some() {
        must_be_readable(&now, &mut io, &what)?;
    }
    for (index, member) in now.members.iter().enumerate() {
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
            io.write(slot, slot_offset(next.generation), &next.encode())
                .map_err(io_failure)?;
        }
        io.flush(slot).map_err(io_failure)?;
    }
    Ok(())
}

/// Time for trying to get the members' locks: a daemon that has just ended may still hold them.
const PATIENCE: Duration = Duration::from_secs(3);

/// Refuses if fewer members can be read: a member without a readable label may belong to another
/// pool.
fn must_be_as_many(found: &FoundPool, now: &FoundPool, what: &str) -> Result<(), Failure> {
    let is_read = |member: &FoundMember| now.members.iter().any(|read| read.path == member.path);
    match found.members.iter().find(|member| !is_read(member)) {
        None => Ok(()),
        Some(member) => {
            let why = format!("{} cannot be read any more", member.path.display());
            Err(Failure::new(id::MEMBER_IO, what, why)
                .remedy("nothing was written; run it again, without that member if it has failed"))
        }
    }
}

fn must_be_ours(
    newest: Option<&Superblock>,
    host: Option<Uuid>,
    what: &str,
) -> Result<(), Failure> {
    let owner = newest
        .map(|superblock| superblock.host)
        .filter(|owner| *owner != Uuid::default());
    match (host, owner) {
        (Some(host), Some(owner)) if host != owner => {
            let why = format!("the pool is in use by host {owner}, or was when that host stopped");
            Err(Failure::new(id::POOL_FOREIGN, what, why)
                .remedy("give --force if that host is surely down"))
        }
        _ => Ok(()),
    }
}

/// Checks that the pool's superblocks are of this version.
fn must_be_readable(found: &FoundPool, io: &mut SyncMembers, what: &str) -> Result<(), Failure> {
    let remedy = "give --wipe --force to erase its labels all the same, whichever host has it";
    let newer = |why: String| {
        Err(Failure::new(id::POOL_NEWER, what, why).remedy(format!("{NEWER_REMEDY}; or {remedy}")))
    };
    let mut bytes = vec![0; SLOT_BYTES];
    for member in 0..found.members.len() as u8 {
        for slot in 0..SLOT_COUNT {
            // A superblock that cannot be read proves nothing; another member may have one.
            let read = io.read(
                MemberId(member),
                SLOT_OFFSET + slot * SLOT_STRIDE,
                &mut bytes,
            );
            match read.map(|()| Superblock::decode(&bytes)) {
                Ok(Err(
                    error
                    @ (SuperblockError::NewerVersion(_) | SuperblockError::UnknownFeatures(_)),
                )) => return newer(error.to_string()),
                Ok(Ok(superblock)) if !superblock.features.allow_writing() => {
                    return newer(format!(
                        "it uses features that this version may not write (flags {:#x})",
                        superblock.features.unknown().read_only
                    ));
                }
                _ => {}
            }
        }
    }
    match found.superblock() {
        Some(_) => Ok(()),
        None => Err(Failure::new(
            id::POOL_REFUSED,
            what,
            "no member has a readable superblock",
        )
        .remedy(remedy)),
    }
}
