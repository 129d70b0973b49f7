//! Pools whose places are kept in the registry. It is a convenience and never an authority: names
//! of devices change from one start of the machine to the next.
//!
//! 1. The places of the registry are looked at, with the patience of a search (`scan.rs`): a device
//!    that does not answer is away. What bears the label of another pool than the entry's does not
//!    count.
//! 2. If everything is there that the pool's own table names, that is the pool, and nothing else is
//!    opened.
//! 3. If something is away, all other block devices are looked at, too, each one once; for a device
//!    with several names the one in the registry counts.
//! 4. What is away then is away: whether the pool may start without it is for the engine to say.
//!
//! Step 3 reads one block of each block device and writes nothing. It comes before any device is
//! opened for use: a member that has a new name only is not to be recorded as missing, nor a spare
//! to take its place.

use super::find::{FoundMember, FoundPool, Seen, denied_failure, group, is_label, not_found, scan};
use crate::failure::{Failure, id};
use crate::registry::{PoolEntry, Registry};
use crate::served::Served;
use std::path::PathBuf;

/// Where to look besides.
pub(super) type Others<'a> = &'a dyn Fn() -> Vec<PathBuf>;

/// True if nothing is to be looked for any more.
fn is_whole(pool: &FoundPool) -> bool {
    pool.superblock().is_some() && !pool.is_away()
}

/// The known places that bear a label, of this version or a newer one. A device that does not
/// answer in time is left out: it would hold up the start for ever.
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
/// Nothing of it is found that this version can read; perhaps another pool of the same name is.
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
    // Without them the pool would seem to have lost members that are there.
    if !seen.denied.is_empty() {
        return Err(denied_failure(&seen.denied, what.to_owned()));
    }
    // What was just looked at, perhaps a dying disk that takes its time, is not read again.
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
    // Not those of other places: nothing says that they have to do with this pool.
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

/// The same as [`list`], with another search than that for block devices.
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
