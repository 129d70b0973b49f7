//! A second read of members, through the locked descriptors.
//!
//! A command looks at members before it locks them, and waits up to some seconds for the locks. The
//! previous holder of a lock may have changed the pool, or put another one there. The steps, in
//! this order:
//!
//! 1. Lock all members.
//! 2. Read again the labels and superblocks of members, and both ends of a device that becomes one.
//! 3. Write only if they are unchanged since the decision. Otherwise refuse; the next run decides
//!    on the new state.

use super::find::{FoundMember, FoundPool, find_slots, newest_superblock};
use crate::failure::{Failure, id};
use std::path::Path;
use std::time::Duration;
use windrow_device::probe::signature::Mark;
use windrow_device::{DeviceError, FileMember, Member, OpenOptions};
use windrow_format::superblock::{LABEL_BYTES, LABEL_OFFSET, Label, MemberState};
use windrow_types::{MemberId, Uuid};

/// Member on a device; `None` if it is none.
///
/// # Errors
/// Its label cannot be read.
pub(crate) fn borne_by(
    device: &dyn Member,
    path: &Path,
) -> Result<Option<FoundMember>, DeviceError> {
    let read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        device.read_at(offset, &mut bytes).map(|()| bytes)
    };
    let Ok(label) = Label::decode(&read(LABEL_OFFSET, LABEL_BYTES)?) else {
        return Ok(None);
    };
    // A superblock slot that cannot be read proves nothing; another slot or member may be readable.
    let superblock = newest_superblock(|offset, length| read(offset, length).ok(), &label);
    Ok(Some(FoundMember {
        path: path.to_owned(),
        superblock,
        slot: label.member,
        label,
    }))
}

/// The pool as read now from its locked members; `devices` are those of `found.members`, in that
/// order. A member that cannot be read is left out.
///
/// # Errors
/// A member is not the same any more, or the pool has other members, or has them in other slots.
pub(super) fn look_again<'a>(
    found: &FoundPool,
    devices: impl Iterator<Item = &'a dyn Member>,
    what: &str,
) -> Result<FoundPool, Failure> {
    let mut now = FoundPool {
        members: Vec::new(),
        strays: Vec::new(),
        ..found.clone()
    };
    for (member, device) in found.members.iter().zip(devices) {
        if let Ok(borne) = borne_by(device, &member.path) {
            now.members.push(the_same(member, borne, what)?);
        }
    }
    find_slots(&mut now);
    let was_there = |member: &FoundMember| {
        found.members.iter().any(|before| {
            (before.slot, before.label.member_uuid) == (member.slot, member.label.member_uuid)
        })
    };
    let has_other_members = table(&now).is_some_and(|members| table(found) != Some(members));
    if has_other_members || !now.strays.is_empty() || !now.members.iter().all(was_there) {
        return Err(changed(
            what,
            format!(
                "another command has changed the members of pool '{}'",
                found.name
            ),
        ));
    }
    Ok(now)
}

/// Member in each slot; `None` for one that has left.
fn table(pool: &FoundPool) -> Option<Vec<Option<Uuid>>> {
    let records = &pool.superblock()?.members;
    Some(
        records
            .iter()
            .map(|record| (record.state != MemberState::Removed).then_some(record.uuid))
            .collect(),
    )
}

/// The member on a locked device, if it is the expected one.
///
/// # Errors
/// It is another one, or none.
pub(super) fn the_same(
    before: &FoundMember,
    now: Option<FoundMember>,
    what: &str,
) -> Result<FoundMember, Failure> {
    let is_it = |now: &FoundMember| {
        (now.label.pool, now.label.member_uuid) == (before.label.pool, before.label.member_uuid)
    };
    now.filter(is_it).ok_or_else(|| {
        let why = format!(
            "{} is not member {} of pool {} any more",
            before.path.display(),
            before.slot,
            before.label.pool
        );
        changed(
            what,
            format!("{why}: another command has put something else there"),
        )
    })
}

/// Verifies that both ends of a device that is to become a member are as they were when it was
/// probed.
///
/// # Errors
/// They are not, or cannot be read.
pub(crate) fn must_be_as_probed(
    device: &dyn Member,
    member: MemberId,
    probed: Mark,
    what: &str,
) -> Result<(), Failure> {
    let now = Mark::of_device(device)
        .map_err(|error| Failure::new(id::MEMBER_IO, what, error.of(member)))?;
    if now == probed {
        return Ok(());
    }
    let why = format!(
        "{} was written by another command after it was probed",
        device.info().description
    );
    Err(Failure::new(id::MEMBER_IN_USE, what, why)
        .remedy("nothing was written; run it again to see what is there now"))
}

/// Removes a file that was made for an abandoned change, if it holds nothing or what `is_nothing`
/// recognises. The file was empty and unlocked for a moment: if another command has taken it, it
/// stays.
pub(super) fn unmake(path: &Path, is_nothing: impl FnOnce(&FoundMember) -> bool) {
    // Best effort: the failure to report is the one that made the file obsolete.
    _ = unmake_if(path, is_nothing);
}

/// As [`unmake`]; true if the file is gone.
pub(super) fn unmake_if(path: &Path, is_nothing: impl FnOnce(&FoundMember) -> bool) -> bool {
    // A daemon that was asked to take it may still be about to close it.
    let options = OpenOptions {
        lock_patience: Duration::from_secs(1),
        ..OpenOptions::default()
    };
    let Ok(device) = FileMember::open(path, &options) else {
        return !path.exists();
    };
    let is_too_small = device.info().size_bytes < LABEL_OFFSET + LABEL_BYTES as u64;
    let is_unused = || {
        borne_by(&device, path).is_ok_and(|borne| borne.is_none_or(|member| is_nothing(&member)))
    };
    (is_too_small || is_unused()) && std::fs::remove_file(path).is_ok()
}

fn changed(what: &str, why: String) -> Failure {
    Failure::new(id::POOL_REFUSED, what, why).remedy("nothing was written; run it again")
}

#[cfg(test)]
mod tests;
