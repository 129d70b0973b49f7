//! Pools whose paths are kept in the registry.
//!
//! The registry is a convenience and never an authority: names of devices change between boots.
//!
//! 1. The paths in the registry are read, with the timeout of a search (`scan.rs`): a device that
//!    does not answer counts as missing. A device with the label of another pool does not count.
//! 2. If everything in the pool's own table is there, that is the pool, and nothing else is opened.
//! 3. If something is missing, all other block devices are read too, each one once. A device with
//!    several names is known by the one in the registry.
//! 4. The rest is missing; the engine decides whether the pool may start without it.
//!
//! Step 3 reads one block of each block device and writes nothing. It comes before any device is
//! opened for use: a member that only has a new name must not be recorded as missing, nor be
//! replaced by a spare.

use super::find::{FoundMember, FoundPool, Seen, denied_failure, group, is_label, not_found, scan};
use crate::failure::{Failure, id};
use crate::registry::{PoolEntry, Registry};
use crate::served::Served;
use std::path::PathBuf;

/// Source of further paths to search.
pub(super) type Others<'a> = &'a dyn Fn() -> Vec<PathBuf>;

/// True if the search is complete.
fn is_whole(pool: &FoundPool) -> bool {
    pool.superblock().is_some() && !pool.is_away()
}

/// The known paths with a label, of this version or a newer one. A device that does not answer in
/// time is skipped: it would block the start for ever.
fn answering(entry: &PoolEntry) -> Seen {
    let found =
        windrow_device::scan::scan_beside(&entry.members, Served::now().identities(), is_label);
    for (path, error) in found
        .unreadable
        .iter()
        .filter(|(_, error)| error.kind() == std::io::ErrorKind::TimedOut)
    {
        tracing::warn!(
            "{}, where a member of pool '{}' was, is left out: {error}",
            path.display(),
            entry.name
        );
    }
    Seen::found(found)
}

/// The pool of an entry, as far as it is found.
///
/// # Errors
/// Nothing of it is found that this version can read; another pool of the same name may be.
pub(super) fn search(
    entry: &PoolEntry,
    others: Others<'_>,
    what: &str,
) -> Result<Vec<FoundPool>, Failure> {
    let is_ours = |member: &FoundMember| member.label.pool == entry.pool;
    let seen = answering(entry);
    let (known, mut foreign): (Vec<_>, Vec<_>) = seen.members.iter().cloned().partition(is_ours);
    let pools = group(known.iter().cloned());
    if pools.iter().any(is_whole) {
        return Ok(pools);
    }
    // Without them the pool would seem to have lost members that are present.
    if !seen.denied.is_empty() {
        return Err(denied_failure(&seen.denied, what.to_owned()));
    }
    // Paths just read are not read again: one may be a dying disk that takes long.
    let known_places = entry
        .members
        .iter()
        .filter_map(|path| windrow_device::scan::identity(path).ok().flatten());
    let except = Served::now()
        .identities()
        .into_iter()
        .chain(known_places)
        .collect();
    let beside = windrow_device::scan::scan_beside(&others(), except, is_label);
    let beside = Seen::found(beside);
    let (more, others): (Vec<_>, Vec<_>) = beside.members.into_iter().partition(is_ours);
    foreign.extend(others);
    if known.is_empty() && more.is_empty() {
        return match group(foreign).iter().find(|pool| pool.name == entry.name) {
            Some(other) => {
                let why = format!(
                    "no member of it was found, but those of another pool of that name ({})",
                    other.pool
                );
                Err(Failure::new(id::POOL_UNKNOWN, what, why).remedy("name that one by its identifier, or its members with --members, if it is meant"))
            }
            None => Err(not_found(
                &[seen.newer, beside.newer].concat(),
                &beside.denied,
                what.to_owned(),
            )),
        };
    }
    // Newer labels in other places are not reported: nothing connects them with this pool.
    seen.tell_newer();
    let is_searched = !more.is_empty();
    for member in &more {
        tracing::info!(
            "member {} of pool '{}' was found at {}, which was not known",
            member.label.member,
            entry.name,
            member.path.display()
        );
    }
    let mut pools = group(known.into_iter().chain(more));
    pools
        .iter_mut()
        .for_each(|pool| pool.is_searched = is_searched);
    Ok(pools)
}

/// All pools of the registry that are found, and those in `places` (files, devices, or folders of
/// them).
pub fn list(registry: &Registry, places: &[PathBuf]) -> Vec<FoundPool> {
    list_beside(registry, places, &windrow_device::scan::block_devices)
}

/// The pools that have members in `places` (files, devices, or folders of them), with those members
/// alone.
pub fn list_in(places: &[PathBuf]) -> Vec<FoundPool> {
    let seen = Seen::in_places(places);
    seen.tell_newer();
    group(seen.members)
}

/// As [`list`], with another search than that for block devices.
pub(super) fn list_beside(
    registry: &Registry,
    places: &[PathBuf],
    others: Others<'_>,
) -> Vec<FoundPool> {
    let entries = registry.all();
    let known: Vec<PathBuf> = entries
        .iter()
        .flat_map(|entry| entry.members.clone())
        .chain(places.iter().cloned())
        .collect();
    let seen = Seen::in_places(&known);
    seen.tell_newer();
    let pools = group(seen.members);
    let served = Served::now();
    let is_served = |entry: &&PoolEntry| served.daemon_with(entry.pool).is_some();
    if entries
        .iter()
        .filter(|entry| !is_served(entry))
        .all(|entry| {
            pools
                .iter()
                .any(|pool| pool.pool == entry.pool && is_whole(pool))
        })
    {
        return pools;
    }
    let mut all = scan(&known.into_iter().chain(others()).collect::<Vec<_>>());
    all.retain(|pool| {
        entries.iter().any(|entry| entry.pool == pool.pool)
            || pools.iter().any(|known| known.pool == pool.pool)
    });
    all
}

#[cfg(test)]
mod tests;
