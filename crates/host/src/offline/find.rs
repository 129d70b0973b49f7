//! Looking for members and pools.

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

/// What to do about a pool that newer software made or went on with: no command of this version can
/// do anything with it.
pub const NEWER_REMEDY: &str = "use the version of windrow that wrote it, or a newer one";

/// What to do about a pool that was destroyed.
pub const DESTROYED_REMEDY: &str = concat!(
    "if all of it was meant, make a new pool of its members with `windrow pool create --force`; if only a member that was in another machine was destroyed there ",
    "(`windrow inspect PATH` of each shows which), the others are the pool: name them with --members"
);

/// A member that was found.
#[derive(Clone, Debug)]
pub struct FoundMember {
    /// Where.
    pub path: PathBuf,
    /// Who it says it is.
    pub label: Label,
    /// Its slot in the member table: that of its identifier in the superblock that rules, else the
    /// one that the label names.
    pub slot: MemberId,
    /// The newest valid superblock it bears.
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
    /// Devices that bear the pool's label and that the pool does not know (any more): ones that
    /// others replaced, or that never came in.
    pub strays: Vec<FoundMember>,
    /// Two files that bear the same member in the same generation: a copy was made, and nobody can
    /// tell which of them is meant.
    pub twins: Option<(PathBuf, PathBuf, MemberId)>,
    /// Members were found in places that nobody had named and that were not known: what was known
    /// is not to be forgotten for them.
    pub is_searched: bool,
}

impl FoundPool {
    /// The newest superblock that any member bears.
    pub fn superblock(&self) -> Option<&Superblock> {
        self.members
            .iter()
            .filter_map(|member| member.superblock.as_ref())
            .max_by_key(|superblock| superblock.generation)
    }

    /// True if a device of the pool was not found, whether the pool counts on it now or not.
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

/// Which pool is meant, and where to look.
#[derive(Clone, Debug, Default)]
pub struct PoolTarget {
    /// Its name; may be left out if only one pool is found.
    pub name: Option<String>,
    /// Its members, and no others; empty: from the registry, or by a scan.
    pub members: Vec<PathBuf>,
    /// Folders to scan, and nothing else; empty: the places in the registry, and all block devices
    /// if members are not there.
    pub dirs: Vec<PathBuf>,
}

fn read_at(file: &std::fs::File, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The newest superblock of the member that the label names; `read` gives so many bytes at an
/// offset.
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

/// How long a device may take to show what it bears. The kernel gives up on a dead one after half a
/// minute or so.
const ANSWER: Duration = Duration::from_secs(45);

/// Looks under way at once: whoever asks again and again for what hangs is not to fill the process
/// with threads.
const LOOKS_MAX: usize = 64;
static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// What a look at a path gives, if it ends in time. One that does not is left to itself, in a
/// thread of its own.
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

/// Looks at one path. `None` if it is no member; nothing but regular files and block devices is. A
/// member that a daemon has is not opened.
///
/// # Errors
/// The path cannot be read, or is a member in a format newer than this version; or the device does
/// not answer; or a daemon has it.
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

/// The path of the member that is meant: of a disk with one partition that is a member, that
/// partition.
pub fn member_path(path: &Path) -> PathBuf {
    let partitions = windrow_device::disk::Disk::at(path)
        .ok()
        .flatten()
        .map_or_else(Vec::new, |disk| disk.partitions());
    // A member that a daemon has, or of newer software, is one too.
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
    // NONBLOCK: neither a pipe that has come in its place nor a drive without a medium is to be
    // waited for.
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

/// A device with a label of newer software: whose it is cannot be told, but that it is a member.
#[derive(Clone, Debug)]
pub(super) struct Newer {
    /// Where.
    pub path: PathBuf,
    /// What is newer.
    pub why: String,
}

/// What bears a label.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Members that this version can read.
    pub members: Vec<FoundMember>,
    /// Those that it cannot.
    pub newer: Vec<Newer>,
    /// What this user may not read. It may bear a label: that is no absence.
    pub denied: Vec<PathBuf>,
}

impl Seen {
    /// What was just seen to bear a label.
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

    /// The same in these places (files, devices, or folders of them).
    pub fn in_places(places: &[PathBuf]) -> Self {
        Self::found(windrow_device::scan::scan_beside(
            places,
            Served::now().identities(),
            is_label,
        ))
    }

    /// The same of a search that has ended.
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

    /// Says what was left out.
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

/// Something if the bytes are a label, of this version or a newer one.
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
                // A device may well be seen by several names (the paths of a multipath device):
                // there the first one counts.
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
        // The label keeps the name of the creation; the superblock rules.
        if let Some(name) = pool
            .superblock()
            .map(|superblock| superblock.pool_name.clone())
        {
            pool.name = name;
        }
    }
    pools.into_values().collect()
}

/// Two names of one file are no copy of it.
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

/// Gives each member its slot, and sets those apart that the pool does not know.
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

/// Finds the pool that is meant. Places that the user names are the only ones; else the registry
/// says where to look first (`known.rs`), and what it does not know is looked for on all block
/// devices.
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
        // An entry rules: another pool of the name may be at rest.
        let daemon = match registry.find(name)? {
            Some(known) => served.daemon_with(known.pool),
            None => served.daemon_of(name),
        };
        if let Some(daemon) = daemon {
            return Err(daemon.busy(what));
        }
    }
    let found = locate_beside(target, registry, &windrow_device::scan::block_devices);
    // What is left out is not lost: without it a served pool would seem to lack members, or to be
    // nowhere.
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

/// A name that is no pool's may be mistyped: the ones that this host knows are named.
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

/// The daemon that has the pool that is meant, or members that are named, if one has.
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
        // In a folder there may be a pool at rest, too.
        (true, false, Some(_)) => served.in_places(&target.dirs).into_iter(),
        (true, true, Some(_)) => served.daemons().to_vec().into_iter(),
        (true, _, None) => return None,
    };
    there.find(is_meant)
}

/// Names of pools that one line shows.
const NAMES_SHOWN: usize = 8;

fn what(target: &PoolTarget) -> String {
    format!(
        "cannot find pool '{}'",
        target.name.as_deref().unwrap_or("(unnamed)")
    )
}

/// The same, with another search than that for block devices.
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
        // In a folder that was named: what may not be read there would seem to be lost.
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
        // By its identifier: it may have been renamed elsewhere, or a crash may have cut a rename
        // off.
        Some(entry) => choose(
            known::search(&entry, others, &what)?,
            &Seen::default(),
            Some(&entry.pool.to_string()),
            what,
        ),
        None => choose_seen(&Seen::in_places(&others()), name, what),
    }
}

/// The pool that is meant among all that was seen.
fn choose_seen(seen: &Seen, name: Option<&str>, what: String) -> Result<FoundPool, Failure> {
    let found = choose(group(seen.members.iter().cloned()), seen, name, what)?;
    // A member that is away may be among these.
    if found.is_away() {
        seen.tell_newer();
    }
    Ok(found)
}

/// The first of some paths, and how many more there are.
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

/// This user may not read what may be a member.
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

/// Nothing that can be read is of the pool. What newer software made may be: then it is neither
/// gone nor in another place.
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
    // Left out in silence, it would leave the pool degraded for one wrong word.
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
    // One of them would be left out in silence, perhaps the one that is meant.
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
