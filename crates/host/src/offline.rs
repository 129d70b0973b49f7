//! Finding, creating, opening and destroying pools by their members, when no daemon serves them.
//!
//! A label identifies a member; the newest valid superblock on any member describes the pool. A
//! search takes no lock and writes nothing. [`create`](crate::offline::create()),
//! [`open`](crate::offline::open()) and [`destroy`](crate::offline::destroy()) lock the members and
//! then read them again: a member that was found may belong to another pool by then.

mod again;
pub mod capacity;
mod create;
mod destroy;
pub mod files;
mod find;
mod former;
mod known;
mod newcomer;
mod open;
pub mod partition;
mod ram;

use again::unmake;
pub(crate) use again::{borne_by, must_be_as_probed};
pub use create::{CreatePlan, CreateRequest, MemberTarget, create, must_be_usable, plan};
pub use destroy::destroy;
pub use find::{
    DESTROYED_REMEDY, FoundMember, FoundPool, NEWER_REMEDY, PoolTarget, daemon_of, examine, locate,
    member_path, scan,
};
pub use former::zeroed_first;
pub(crate) use former::{empty, is_unused_spare, must_be_of, was_in};
pub use known::{list, list_in};
pub use newcomer::{Newcomer, absolute};
pub(crate) use newcomer::{erase, label};
pub(crate) use open::open_member;
pub use open::{
    MemberBackEnd, OpenRequest, OpenedPool, RebuildLeave, incomplete, open, open_for_reading,
    rebuild,
};
pub use ram::{
    ScratchSpec, ram_members, rebuild_scratch, reopen_scratch, replace_scratch, scratch_pool,
};

use crate::failure::{Failure, id};
use crate::registry::Registry;
use windrow_types::Uuid;

/// Identifier of this host: from its machine id, else generated once and kept in the registry's
/// folder.
pub fn host_id(registry: &Registry) -> Result<Uuid, Failure> {
    match windrow_device::host::host_id() {
        Some(bytes) => Ok(Uuid(bytes)),
        None => registry.host_id(),
    }
}

/// A random identifier.
pub fn random_uuid() -> Result<Uuid, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(id::NOT_AVAILABLE, "cannot make an identifier", error))?;
    Ok(Uuid::from_random(bytes))
}

/// Unit of journal records of a pool on these members: the smallest one that all of them can write,
/// 512 or 4096 bytes.
pub fn granule(members: &windrow_device::queue::Members) -> u32 {
    if members
        .iter()
        .flatten()
        .all(|member| member.info().logical_sector <= 512)
    {
        512
    } else {
        4096
    }
}

/// Default alignment of extents: 1 MiB, or the largest divisor of it that a smaller segment is a
/// multiple of.
pub fn alignment(segment_rows: Option<u32>) -> u64 {
    const USUAL: u64 = 1 << 20;
    match segment_rows {
        None | Some(0) => USUAL,
        Some(rows) => (windrow_types::BLOCK_BYTES << rows.trailing_zeros()).min(USUAL),
    }
}

#[cfg(test)]
pub(crate) mod tests;
