//! A new device in the place of a member, while no daemon serves the pool.
//!
//! 1. Examine the new device as at the creation of a pool: what is in use or bears data is refused (data: unless `force` was given).
//! 2. Make the file if there is none, with the size of the old member.
//! 3. Lock all members but the old one; erase what superblocks the new one bears; the engine does the rest.

use super::create::own_label;
use super::find::FoundPool;
use super::{host_id, random_uuid};
use crate::failure::{Failure, id};
use crate::registry::Registry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windrow_device::probe::{Target, probe};
use windrow_device::queue::Members as MemberTable;
use windrow_device::{Allocation, FileMember, Member, OpenOptions, SyncMembers, create_file_with_progress};
use windrow_engine::Engine;
use windrow_io::{Buf, BufPool, MemberIo};
use windrow_layout::superblock::RESERVED_BYTES;
use windrow_units::{MemberId, Uuid};

/// What is to be replaced, and by what.
#[derive(Clone, Debug)]
pub struct ReplaceRequest {
    /// Index of the member.
    pub member: u8,
    /// The new device, or file.
    pub path: PathBuf,
    /// How the room of a file that does not exist yet is got.
    pub allocation: Allocation,
    /// Overwrite a device that bears data.
    pub overwrite: bool,
    /// Although another host has the pool, or members are absent that nobody recorded as absent.
    pub force: bool,
}

/// The member as it is from now on.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// Its new identifier.
    pub uuid: Uuid,
    /// Bytes of the new device.
    pub size_bytes: u64,
}

/// Puts the new device in the place of the member; it is rebuilt when the pool is served.
///
/// # Errors
/// The new device is in use, bears data, or is too small; the pool is in use, or could not be opened without the member.
pub fn replace(found: &FoundPool, registry: &Registry, request: &ReplaceRequest, progress: &mut dyn FnMut(u64)) -> Result<Replaced, Failure> {
    let what = format!("cannot replace member {} of pool '{}'", request.member, found.name);
    let member = MemberId(request.member);
    let superblock = found.superblock().ok_or_else(|| Failure::new(id::POOL_REFUSED, what.clone(), "no member bears a valid superblock"))?;
    let Some(record) = superblock.members.get(member.index()) else {
        let why = format!("the pool has members 0 to {}", superblock.members.len().saturating_sub(1));
        return Err(Failure::new(id::USAGE, what, why).remedy("see `windrow pool status`"));
    };
    let made = prepare(request, record.size_bytes, &what, progress)?;
    let mut io = open_all(found, request, member, &what).inspect_err(|_| {
        // From here on it may bear the newest superblock: it stays.
        if made {
            // Best effort: the first error is the one to tell.
            drop(std::fs::remove_file(&request.path));
        }
    })?;
    exchange(found, registry, request, member, &mut io, &what)
}

/// Examines the new device; makes the file if there is none. True if it did.
fn prepare(request: &ReplaceRequest, size_bytes: u64, what: &str, progress: &mut dyn FnMut(u64)) -> Result<bool, Failure> {
    let shown = request.path.display();
    let report = probe(&request.path, own_label)
        .map_err(|error| Failure::new(id::MEMBER_OPEN, what, format!("{shown}: {error}")).remedy("check the path and its permissions"))?;
    if report.target == Target::Missing {
        create_file_with_progress(&request.path, size_bytes, request.allocation, progress).map_err(|error| Failure::new(id::MEMBER_OPEN, what, error))?;
        return Ok(true);
    }
    if report.is_in_use() || report.target == Target::Unsuitable {
        return Err(Failure::new(id::MEMBER_IN_USE, what, report.lines().join("; ")).remedy("choose another device, or release this one"));
    }
    if (!report.signatures.is_empty() || report.has_data) && !request.overwrite {
        return Err(Failure::new(id::MEMBER_IN_USE, what, report.lines().join("; ")).remedy("choose another device, or give --overwrite"));
    }
    Ok(false)
}

/// The members, the new device in its place, locked.
fn open_all(found: &FoundPool, request: &ReplaceRequest, member: MemberId, what: &str) -> Result<SyncMembers, Failure> {
    let open = |path: &Path| -> Result<Arc<dyn Member>, Failure> {
        let opened = FileMember::open(path, &OpenOptions::default()).map_err(|error| {
            let in_use = matches!(error, windrow_device::OpenError::InUse { .. });
            Failure::new(if in_use { id::POOL_BUSY } else { id::MEMBER_OPEN }, what, error).remedy("stop the process that uses it")
        })?;
        Ok(Arc::new(opened))
    };
    let slots = found.superblock().map_or(0, |superblock| superblock.members.len());
    let mut table: MemberTable = vec![None; slots.max(member.index() + 1)];
    for other in found.members.iter().filter(|other| other.label.member != member && other.label.member.index() < slots) {
        table[other.label.member.index()] = Some(open(&other.path)?);
    }
    table[member.index()] = Some(open(&request.path)?);
    Ok(SyncMembers::new(table))
}

fn exchange(found: &FoundPool, registry: &Registry, request: &ReplaceRequest, member: MemberId, io: &mut SyncMembers, what: &str) -> Result<Replaced, Failure> {
    let failure = |error: windrow_io::MemberError| Failure::new(id::MEMBER_IO, what, error);
    let size_bytes = io.size(member);
    let zeroes = Buf::unpooled((RESERVED_BYTES.min(size_bytes)) as usize);
    io.write(member, 0, &zeroes).map_err(failure)?;
    io.flush(member).map_err(failure)?;
    let options = windrow_engine::api::OpenOptions { host: host_id(registry)?, read_only: false, force: request.force, limits: Default::default() };
    let uuid = random_uuid()?;
    Engine::replace_member(io, &BufPool::new(1 << 20), &options, member, uuid).map_err(|error| super::open::refusal_of(what, found, &error))?;
    Ok(Replaced { uuid, size_bytes })
}
