//! Search for members and pools.

use super::known::{self, Others};
use crate::failure::{Failure, id};
use crate::registry::Registry;
use crate::served::{Holder, Served};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use windrow_format::superblock::{
    LABEL_BYTES, LABEL_OFFSET, Label, MemberRecord, MemberState, SLOT_BYTES, SLOT_COUNT,
    SLOT_OFFSET, SLOT_STRIDE, Superblock, SuperblockError,
};
use windrow_types::{MemberId, Uuid};

/// Remedy for a pool that newer software made or changed: no command of this version can use it.
pub const NEWER_REMEDY: &str = "use the version of windrow that wrote it, or a newer one";

/// Remedy for a pool that was destroyed.
pub const DESTROYED_REMEDY: &str = concat!(
    "if all of it was meant, make a new pool of its members with `windrow pool create --force`; if only a member that was in another machine was destroyed there ",
    "(`windrow inspect PATH` of each shows which), the others are the pool: name them with --members"
);

/// A member that was found.
#[derive(Clone, Debug)]
pub struct FoundMember {
    /// Path.
    pub path: PathBuf,
    /// Its label.
    pub label: Label,
    /// Its slot in the member table: that of its identifier in the newest superblock, else the one
    /// in the label.
    pub slot: MemberId,
    /// The newest valid superblock on it.
    pub superblock: Option<Superblock>,
}

/// A pool of which at least one member was found.
#[derive(Clone, Debug)]
pub struct FoundPool {
    /// Pool name.
    pub name: String,
    /// Pool identifier.
    pub pool: Uuid,
    /// Members and spares that were found, by slot.
    pub members: Vec<FoundMember>,
    /// Devices with the pool's label that are not in the pool's member table: replaced ones, or
    /// ones that never came in.
    pub strays: Vec<FoundMember>,
    /// Two files with the same member in the same generation: a copy was made, and it is unknown
    /// which one to use.
    pub twins: Option<(PathBuf, PathBuf, MemberId)>,
    /// Members were found at paths that were neither named nor known: known paths must not be
    /// forgotten for them.
    pub is_searched: bool,
}

impl FoundPool {
    /// The newest superblock on any member.
    pub fn superblock(&self) -> Option<&Superblock> {
        self.members
            .iter()
            .filter_map(|member| member.superblock.as_ref())
            .max_by_key(|superblock| superblock.generation)
    }

    /// True if a device of the pool was not found, whether or not the pool counts on it now.
    pub fn is_away(&self) -> bool {
        let slots = self.superblock().map_or(0, |superblock| {
            superblock
                .members
                .iter()
                .filter(|record| record.state != MemberState::Removed)
                .count()
        });
        self.members.len() < slots
    }

    /// Indexes of members that the pool counts on and that were not found.
    pub fn missing(&self) -> Vec<u8> {
        let Some(superblock) = self.superblock() else {
            return Vec::new();
        };
        let present = |index: usize| {
            self.members
                .iter()
                .any(|member| member.slot.index() == index)
        };
        let wanted = superblock
            .members
            .iter()
            .enumerate()
            .filter(|(_, record)| record.state == MemberState::Online);
        wanted
            .filter(|(index, _)| !present(*index))
            .map(|(index, _)| index as u8)
            .collect()
    }
}

/// Selection of a pool, and the places to search.
#[derive(Clone, Debug, Default)]
pub struct PoolTarget {
    /// Its name; may be left out if only one pool is found.
    pub name: Option<String>,
    /// Its members, and no others; empty: from the registry, or by a scan.
    pub members: Vec<PathBuf>,
    /// Folders to scan, and nothing else; empty: the places in the registry, and all block devices
    /// if members are missing there.
    pub dirs: Vec<PathBuf>,
}

fn read_at(file: &std::fs::File, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The newest superblock of the member that the label names; `read` gives the bytes at an offset.
pub(super) fn newest_superblock(
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
    label: &Label,
) -> Option<Superblock> {
    let slots =
        (0..SLOT_COUNT).filter_map(|slot| read(SLOT_OFFSET + slot * SLOT_STRIDE, SLOT_BYTES));
    let valid = slots.filter_map(|bytes| Superblock::decode(&bytes).ok());
    valid
        .filter(|superblock| {
            superblock.pool == label.pool && superblock.member_uuid == label.member_uuid
        })
        .max_by_key(|superblock| superblock.generation)
}

/// Longest wait for a read of a device. The kernel gives up on a dead one after about half a
/// minute.
const ANSWER: Duration = Duration::from_secs(45);

/// Most looks in flight: repeated commands on a hanging device must not fill the process with
/// threads.
const LOOKS_MAX: usize = 64;
static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// Result of a look at a path, if it ends in time. A look that does not is left running in its own
/// thread.
pub(super) fn in_time<T: Send + 'static>(
    path: &Path,
    patience: Duration,
    look: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let failure = |why: String| {
        Failure::new(
            id::MEMBER_IO,
            format!("cannot read {}", path.display()),
            why,
        )
    };
    let (told, end) = channel();
    let look = move || {
        let result = look();
        LOOKS.fetch_sub(1, Ordering::Relaxed);
        _ = told.send(result);
    };
    if LOOKS.fetch_add(1, Ordering::Relaxed) >= LOOKS_MAX {
        LOOKS.fetch_sub(1, Ordering::Relaxed);
        return Err(
            failure(format!("{LOOKS_MAX} looks at devices have not ended")).remedy(
                "unplug the devices that do not answer, or wait until the kernel has given them up",
            ),
        );
    }
    if let Err(error) = std::thread::Builder::new()
        .name("windrow-look".to_owned())
        .spawn(look)
    {
        LOOKS.fetch_sub(1, Ordering::Relaxed);
        return Err(failure(error.to_string()));
    }
    end.recv_timeout(patience).unwrap_or_else(|_| {
        let why = format!("it has not answered a read for {} s", patience.as_secs());
        Err(failure(why)
            .remedy("leave it out, unplug it, or wait until the kernel has given it up"))
    })
}

/// Reads the member at one path. `None` if it is no member, or neither a regular file nor a block
/// device. A member that a daemon serves is not opened.
///
/// # Errors
/// The path cannot be read, or has a format newer than this version; the device does not answer; or
/// a daemon has it.
pub fn examine(path: &Path) -> Result<Option<FoundMember>, Failure> {
    if let Some(held) = Served::now().held(path) {
        return Err(held.failure(
            id::POOL_BUSY,
            format!("{} is not opened", path.display()),
            path,
        ));
    }
    let is_device =
        std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    if !is_device {
        return examine_now(path);
    }
    let looked_at = path.to_owned();
    in_time(path, ANSWER, move || examine_now(&looked_at))
}

/// Path of the member: for a disk with one partition that is a member, that partition.
pub fn member_path(path: &Path) -> PathBuf {
    let partitions = windrow_device::disk::Disk::at(path)
        .ok()
        .flatten()
        .map_or_else(Vec::new, |disk| disk.partitions());
    // A member that a daemon serves, or of newer software, counts too.
    let is_member = |path: &PathBuf| match examine(path) {
        Ok(found) => found.is_some(),
        Err(failure) => [id::POOL_BUSY, id::POOL_NEWER].contains(&failure.id.as_str()),
    };
    let mut members = partitions.into_iter().filter(is_member);
    match (members.next(), members.next()) {
        (Some(only), None) => only,
        _ => path.to_owned(),
    }
}

fn examine_now(path: &Path) -> Result<Option<FoundMember>, Failure> {
    let failure = |error: std::io::Error| {
        Failure::new(
            id::MEMBER_OPEN,
            format!("cannot read {}", path.display()),
            error,
        )
        .remedy("check the path and its permissions")
    };
    let is_possible =
        |metadata: std::fs::Metadata| metadata.is_file() || metadata.file_type().is_block_device();
    if !is_possible(std::fs::metadata(path).map_err(failure)?) {
        return Ok(None);
    }
    // NONBLOCK: never wait for a pipe that has taken its place or a drive without a medium.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(failure)?;
    if !is_possible(file.metadata().map_err(failure)?) {
        return Ok(None);
    }
    let Ok(bytes) = read_at(&file, LABEL_OFFSET, LABEL_BYTES) else {
        return Ok(None);
    };
    let label = match Label::decode(&bytes) {
        Ok(label) => label,
        Err(error @ SuperblockError::NewerVersion(_)) => {
            return Err(Failure::new(
                id::POOL_NEWER,
                format!("cannot use {}", path.display()),
                error,
            )
            .remedy(NEWER_REMEDY));
        }
        Err(_) => return Ok(None),
    };
    let superblock =
        newest_superblock(|offset, length| read_at(&file, offset, length).ok(), &label);
    Ok(Some(FoundMember {
        path: path.to_owned(),
        superblock,
        slot: label.member,
        label,
    }))
}

/// A device with a label of newer software: it is a member, of an unknown pool.
#[derive(Clone, Debug)]
pub(super) struct Newer {
    /// Path.
    pub path: PathBuf,
    /// The newer part.
    pub why: String,
}

/// Paths with a label.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Members that this version can read.
    pub members: Vec<FoundMember>,
    /// Those that it cannot.
    pub newer: Vec<Newer>,
    /// Paths that this user may not read. They may have a label, so they do not count as absent.
    pub denied: Vec<PathBuf>,
}

impl Seen {
    /// Members among these paths, which were just seen to have a label.
    pub fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut seen = Self::default();
        for path in paths {
            match examine(&path) {
                Ok(member) => seen.members.extend(member),
                Err(failure) if failure.id == id::POOL_NEWER => seen.newer.push(Newer {
                    path,
                    why: failure.why,
                }),
                // It has gone since, or its mode has changed.
                Err(_) => {}
            }
        }
        seen
    }

    /// Members in these places (files, devices, or folders of them).
    pub fn in_places(places: &[PathBuf]) -> Self {
        Self::found(windrow_device::scan::scan_beside(
            places,
            Served::now().identities(),
            is_label,
        ))
    }

    /// Members from a finished search.
    pub fn found(found: windrow_device::scan::Found<()>) -> Self {
        let denied = found
            .unreadable
            .into_iter()
            .filter(|(_, error)| error.kind() == ErrorKind::PermissionDenied)
            .map(|(path, _)| path);
        Self {
            denied: denied.collect(),
            ..Self::of(found.members.into_iter().map(|(path, ())| path))
        }
    }

    /// Reports the members that were left out.
    pub fn tell_newer(&self) {
        for newer in &self.newer {
            tracing::warn!(
                "{}, a member of some pool, is left out: {}; {NEWER_REMEDY}",
                newer.path.display(),
                newer.why
            );
        }
    }
}

/// `Some` if the bytes are a label, of this version or a newer one.
pub(super) fn is_label(bytes: &[u8]) -> Option<()> {
    matches!(
        Label::decode(bytes),
        Ok(_) | Err(SuperblockError::NewerVersion(_))
    )
    .then_some(())
}

/// All pools with a member in these places (files, devices, or folders of them).
pub fn scan(places: &[PathBuf]) -> Vec<FoundPool> {
    group(Seen::in_places(places).members)
}

pub(super) fn group(members: impl IntoIterator<Item = FoundMember>) -> Vec<FoundPool> {
    let mut pools: BTreeMap<Uuid, FoundPool> = BTreeMap::new();
    for member in members {
        let pool = pools.entry(member.label.pool).or_insert_with(|| FoundPool {
            name: member.label.pool_name.clone(),
            pool: member.label.pool,
            members: Vec::new(),
            strays: Vec::new(),
            twins: None,
            is_searched: false,
        });
        // The same member twice (a copy, or two names of one file): the newer generation counts.
        let generation = |member: &FoundMember| {
            member
                .superblock
                .as_ref()
                .map(|superblock| superblock.generation)
        };
        match pool
            .members
            .iter()
            .position(|other| other.label.member_uuid == member.label.member_uuid)
        {
            Some(at) if generation(&pool.members[at]) < generation(&member) => {
                pool.members[at] = member
            }
            Some(at) => {
                let other = &pool.members[at];
                // A device may have several names (the paths of a multipath device): the first one
                // counts.
                if generation(other) == generation(&member)
                    && are_two_files(&other.path, &member.path)
                {
                    pool.twins = Some((other.path.clone(), member.path, other.label.member));
                }
            }
            None => pool.members.push(member),
        }
    }
    for pool in pools.values_mut() {
        find_slots(pool);
        // The label keeps the name of the creation; the superblock's name is current.
        if let Some(name) = pool
            .superblock()
            .map(|superblock| superblock.pool_name.clone())
        {
            pool.name = name;
        }
    }
    pools.into_values().collect()
}

/// True for two files. Two names of one file are no copy.
fn are_two_files(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .filter(std::fs::Metadata::is_file)
            .map(|metadata| (metadata.dev(), metadata.ino()))
    };
    file(one)
        .zip(file(other))
        .is_some_and(|(one, other)| one != other)
}

/// Assigns slots to members, and separates those that are not in the pool's member table.
pub(super) fn find_slots(pool: &mut FoundPool) {
    if let Some(table) = pool
        .superblock()
        .map(|superblock| superblock.members.clone())
    {
        for mut member in std::mem::take(&mut pool.members) {
            let known = |record: &MemberRecord| {
                record.uuid == member.label.member_uuid && record.state != MemberState::Removed
            };
            match table.iter().position(known) {
                Some(slot) => {
                    member.slot = MemberId(slot as u8);
                    pool.members.push(member);
                }
                None => pool.strays.push(member),
            }
        }
    }
    pool.members.sort_by_key(|member| member.slot);
}

/// Finds the pool. Places that the user names are the only ones; otherwise the registry's places
/// come first (`known.rs`), then all block devices.
///
/// # Errors
/// A given path is no member, members belong to several pools, or no pool (or more than one)
/// matches.
pub fn locate(target: &PoolTarget, registry: &Registry) -> Result<FoundPool, Failure> {
    let (served, what) = (Served::now(), what(target));
    if let Some(name) = target
        .name
        .as_deref()
        .filter(|_| target.members.is_empty() && target.dirs.is_empty())
    {
        // A registry entry decides: another pool of the name may be offline.
        let daemon = match registry.find(name)? {
            Some(known) => served.daemon_with(known.pool),
            None => served.daemon_of(name),
        };
        if let Some(daemon) = daemon {
            return Err(daemon.busy(what));
        }
    }
    let found = locate_beside(target, registry, &windrow_device::scan::block_devices);
    // Members of a daemon were skipped, not lost: without this check a served pool would seem to
    // lack members, or to be missing.
    let daemon = match &found {
        Ok(found) if found.is_away() => served.daemon_with(found.pool),
        Err(failure) if failure.id == id::POOL_UNKNOWN => target
            .name
            .as_deref()
            .and_then(|name| served.daemon_of(name)),
        _ => None,
    };
    match daemon {
        Some(daemon) => Err(daemon.busy(what)),
        None => found.map_err(|failure| with_known_names(failure, target, registry)),
    }
}

/// Adds the known names to the failure, as an unknown name may be mistyped.
fn with_known_names(mut failure: Failure, target: &PoolTarget, registry: &Registry) -> Failure {
    let Some(name) = target.name.as_deref().filter(|_| {
        failure.id == id::POOL_UNKNOWN && target.members.is_empty() && target.dirs.is_empty()
    }) else {
        return failure;
    };
    if let Some((pool, _)) = name.split_once('/') {
        failure.why = format!("'{name}' names a volume, and a pool is to be named");
        return failure.remedy(format!("say '{pool}', or see `windrow volume --help`"));
    }
    let mut known: Vec<String> = registry
        .all()
        .into_iter()
        .map(|entry| format!("'{}'", entry.name))
        .collect();
    known.sort_unstable();
    if known.is_empty() {
        return failure;
    }
    let more = known.len().saturating_sub(NAMES_SHOWN);
    known.truncate(NAMES_SHOWN);
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let remedy = format!(
        "this host knows {}{rest}; {}",
        known.join(", "),
        failure.remedy
    );
    failure.remedy(remedy)
}

/// The daemon that has this pool, or the named members, if there is one.
pub fn daemon_of(target: &PoolTarget, served: &Served) -> Option<Arc<Holder>> {
    let is_meant = |daemon: &Arc<Holder>| {
        target
            .name
            .as_ref()
            .is_none_or(|name| daemon.name == *name || daemon.pool.to_string() == *name)
    };
    let mut there = match (
        target.members.is_empty(),
        target.dirs.is_empty(),
        &target.name,
    ) {
        (false, ..) => return served.in_places(&target.members).into_iter().next(),
        // A folder may contain an offline pool, too.
        (true, false, Some(_)) => served.in_places(&target.dirs).into_iter(),
        (true, true, Some(_)) => served.daemons().to_vec().into_iter(),
        (true, _, None) => return None,
    };
    there.find(is_meant)
}

/// Most names of pools in one line.
const NAMES_SHOWN: usize = 8;

fn what(target: &PoolTarget) -> String {
    format!(
        "cannot find pool '{}'",
        target.name.as_deref().unwrap_or("(unnamed)")
    )
}

/// As [`locate`], with another search than that for block devices.
pub(super) fn locate_beside(
    target: &PoolTarget,
    registry: &Registry,
    others: Others<'_>,
) -> Result<FoundPool, Failure> {
    let name = target.name.as_deref();
    let what = what(target);
    if !target.members.is_empty() {
        return of_members(target, what);
    }
    for dir in &target.dirs {
        std::fs::read_dir(dir).map_err(|error| {
            Failure::new(
                id::MEMBER_OPEN,
                what.clone(),
                format!("{}: {error}", dir.display()),
            )
            .remedy("check the folder given with --dir")
        })?;
    }
    if !target.dirs.is_empty() {
        let seen = Seen::in_places(&target.dirs);
        let found = choose_seen(&seen, name, what.clone());
        // In a named folder, a member that may not be read would seem to be lost.
        let is_short = found
            .as_ref()
            .map_or_else(|failure| failure.id == id::POOL_UNKNOWN, FoundPool::is_away);
        return if is_short && !seen.denied.is_empty() {
            Err(denied_failure(&seen.denied, what))
        } else {
            found
        };
    }
    match name.map(|name| registry.find(name)).transpose()?.flatten() {
        // By its identifier: the pool may have been renamed elsewhere, or a crash may have
        // interrupted a rename.
        Some(entry) => choose(
            known::search(&entry, others, &what)?,
            &Seen::default(),
            Some(&entry.pool.to_string()),
            what,
        ),
        None => choose_seen(&Seen::in_places(&others()), name, what),
    }
}

/// The selected pool among all that were seen.
fn choose_seen(seen: &Seen, name: Option<&str>, what: String) -> Result<FoundPool, Failure> {
    let found = choose(group(seen.members.iter().cloned()), seen, name, what)?;
    // A missing member may be among these.
    if found.is_away() {
        seen.tell_newer();
    }
    Ok(found)
}

/// The first of some paths, and the number of others.
fn some_of(paths: &[PathBuf]) -> String {
    let first = paths
        .first()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    if paths.len() > 1 {
        format!("{first} (and {} more)", paths.len() - 1)
    } else {
        first
    }
}

/// The failure for a possible member that this user may not read.
pub(super) fn denied_failure(denied: &[PathBuf], what: String) -> Failure {
    let failure = Failure::new(
        id::MEMBER_OPEN,
        what,
        format!(
            "this user may not read {}, which may be a member: permission denied",
            some_of(denied)
        ),
    );
    failure.remedy("run the command as root, or as a user who may read and write the members")
}

/// The failure if no readable device is of the pool. A device of newer software may be: then the
/// pool is neither gone nor elsewhere.
pub(super) fn not_found(newer: &[Newer], denied: &[PathBuf], what: String) -> Failure {
    let elsewhere = "name its members with --members, or a folder with --dir";
    match newer {
        [] if !denied.is_empty() => {
            let why = format!(
                "no member of it was found, and this user may not read {}",
                some_of(denied)
            );
            Failure::new(id::POOL_UNKNOWN, what, why).remedy(format!(
                "{elsewhere}; or run the command as a user who may read all devices"
            ))
        }
        [] => Failure::new(id::POOL_UNKNOWN, what, "no member of it was found").remedy(elsewhere),
        [first, more @ ..] => {
            let more = if more.is_empty() {
                String::new()
            } else {
                format!(" (and {} more)", more.len())
            };
            let why = format!(
                "no member of it can be read, but {}{more} may be one: {}",
                first.path.display(),
                first.why
            );
            Failure::new(id::POOL_NEWER, what, why).remedy(format!(
                "{NEWER_REMEDY}; or, if it is elsewhere, {elsewhere}"
            ))
        }
    }
}

/// The pool of the members that the user names.
fn of_members(target: &PoolTarget, what: String) -> Result<FoundPool, Failure> {
    let mut members = Vec::new();
    for path in &target.members {
        let member = examine(&member_path(path))?;
        members.push(member.ok_or_else(|| {
            let why = format!("{} is not a member of any pool", path.display());
            Failure::new(id::POOL_UNKNOWN, what.clone(), why)
                .remedy("name the right path in its place, or leave it out")
        })?);
    }
    let found = choose(
        group(members.iter().cloned()),
        &Seen::default(),
        target.name.as_deref(),
        what.clone(),
    )?;
    // Skipped silently, it would leave the pool degraded for one wrong word.
    if let Some(stray) = members
        .iter()
        .find(|member| member.label.pool != found.pool)
    {
        let why = format!(
            "{} belongs to another pool, '{}'",
            stray.path.display(),
            stray.label.pool_name
        );
        return Err(
            Failure::new(id::POOL_UNKNOWN, what, why).remedy("name members of one pool only")
        );
    }
    // One of them would be skipped silently, perhaps the intended one.
    let index = |member: &FoundMember| (member.label.member, member.label.member_uuid);
    let twice = members.iter().enumerate().find_map(|(at, one)| {
        members[..at]
            .iter()
            .find(|other| index(other) == index(one))
            .map(|other| (other, one))
    });
    if let Some((one, other)) = twice {
        let why = format!(
            "{} and {} are both member {}: the same, or a copy of it",
            one.path.display(),
            other.path.display(),
            one.label.member
        );
        return Err(Failure::new(id::POOL_REFUSED, what, why).remedy("name only one of them"));
    }
    Ok(found)
}

fn choose(
    mut pools: Vec<FoundPool>,
    seen: &Seen,
    name: Option<&str>,
    what: String,
) -> Result<FoundPool, Failure> {
    if let Some(name) = name {
        let is_identifier = pools.iter().any(|pool| pool.pool.to_string() == name);
        pools.retain(|pool| {
            if is_identifier {
                pool.pool.to_string() == name
            } else {
                pool.name == name
            }
        });
    }
    match pools.len() {
        0 => Err(not_found(&seen.newer, &seen.denied, what)),
        1 => match &pools[0].twins {
            None => Ok(pools.remove(0)),
            Some((one, other, member)) => {
                let why = format!(
                    "{} and {} are both member {member}: the same, or a copy of it",
                    one.display(),
                    other.display()
                );
                Err(Failure::new(id::POOL_REFUSED, what, why).remedy(
                    "name only one of them with --members, or take copies out of the folder",
                ))
            }
        },
        count => {
            let names: Vec<String> = pools
                .iter()
                .map(|pool| format!("{} ({})", pool.name, pool.pool))
                .collect();
            Err(Failure::new(
                id::POOL_UNKNOWN,
                what,
                format!("{count} pools match: {}", names.join(", ")),
            )
            .remedy("name one by its identifier"))
        }
    }
}
