//! Members that come late: awaited before a pool is opened, taken in while it is served.
//!
//! 1. [`locate_patiently`] searches repeatedly until every member that the pool counts on is there,
//!    or the patience ends. The start that follows records a loss, so none is recorded before.
//! 2. [`watch`] starts a thread that looks for missing members. A member that appears is brought
//!    back as with `pool online`: it gets what it missed.
//!
//! Both decide by the device and file number that the file system reports for a path. A path is
//! opened only when these have changed, and never while this process serves the device there.

use crate::daemon::Daemon;
use crate::failure::{Failure, id};
use crate::offline::{self, FoundPool, PoolTarget};
use crate::pool::Pool;
use crate::registry::Registry;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use windrow_device::scan::Identity;
use windrow_engine::{MemberStatus, PoolStatus};
use windrow_format::superblock::MemberState;
use windrow_types::{MemberId, Uuid};

/// Pause between two looks of a start that waits.
const WAITING_PAUSE: Duration = Duration::from_millis(100);
/// Pause between two looks of a daemon for missing members.
const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a retry of a path that could not be read, or whose member could not be taken in.
const RETRY: Duration = Duration::from_secs(60);

/// Identity and content of a file or block device, as the file system reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    /// Numbers of the file system, of the file, and of the device that it stands for.
    identity: (u64, u64, u64),
    /// Size and time of the last change of a file.
    content: (u64, i64),
}

impl Mark {
    /// Mark of this path; `None` if it is neither a regular file nor a block device.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let is_device = metadata.file_type().is_block_device();
        let content = if is_device {
            (0, 0)
        } else {
            (metadata.len(), metadata.mtime())
        };
        (is_device || metadata.is_file()).then(|| Self {
            identity: (metadata.dev(), metadata.ino(), metadata.rdev()),
            content,
        })
    }

    /// Identity alone: two paths to one device or file give the same one.
    pub(crate) fn device(self) -> Identity {
        let (file_system, file, device) = self.identity;
        if device == 0 {
            (false, file_system, file)
        } else {
            (true, device, 0)
        }
    }

    /// Identity of an open file or device.
    pub(crate) fn of_open(fd: std::os::fd::RawFd) -> Option<Self> {
        Self::of(Path::new(&format!("/proc/self/fd/{fd}")))
    }
}

/// Paths where members of a pool may appear.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Files, devices, and folders of them. Listed first, so that their names are kept.
    pub paths: Vec<PathBuf>,
    /// All block devices too.
    pub block_devices: bool,
}

impl Places {
    /// The places to search for a pool: those that are named and no others, else the known ones and
    /// all block devices.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn of(target: &PoolTarget, registry: &Registry) -> Result<Self, Failure> {
        if !target.members.is_empty() {
            return Ok(Self {
                paths: target.members.clone(),
                block_devices: false,
            });
        }
        if !target.dirs.is_empty() {
            return Ok(Self {
                paths: target.dirs.clone(),
                block_devices: false,
            });
        }
        let known = target
            .name
            .as_deref()
            .map(|name| registry.find(name))
            .transpose()?
            .flatten();
        Ok(Self {
            paths: known.map(|entry| entry.members).unwrap_or_default(),
            block_devices: true,
        })
    }

    /// All files and devices that are there now, in search order.
    fn look(&self) -> Vec<(PathBuf, Mark)> {
        let content = |place: &PathBuf| match std::fs::read_dir(place) {
            Ok(entries) => {
                let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                paths.sort();
                paths
            }
            Err(_) => vec![place.clone()],
        };
        let devices = if self.block_devices {
            windrow_device::scan::block_devices()
        } else {
            Vec::new()
        };
        let all = self.paths.iter().flat_map(content).chain(devices);
        all.filter_map(|path| Mark::of(&path).map(|mark| (path, mark)))
            .collect()
    }
}

/// Members that the pool counts on and that were not found. A member with a recorded loss is not
/// awaited: each start would wait for a dead device.
fn counted_on_and_away(found: &FoundPool) -> Vec<MemberId> {
    let records = found
        .superblock()
        .map(|superblock| &superblock.members[..])
        .unwrap_or_default();
    let is_counted_on = |slot: &usize| {
        matches!(
            records[*slot].state,
            MemberState::Online | MemberState::Rebuilding
        )
    };
    let is_there = |slot: &usize| {
        found
            .members
            .iter()
            .any(|member| member.slot.index() == *slot)
    };
    (0..records.len())
        .filter(is_counted_on)
        .filter(|slot| !is_there(slot))
        .map(|slot| MemberId(slot as u8))
        .collect()
}

/// Description of what a start waits for; `None` if waiting can bring nothing.
fn awaited(
    found: &Result<FoundPool, Failure>,
    target: &PoolTarget,
    places: &Places,
) -> Option<String> {
    match found {
        Ok(found) => {
            let away: Vec<String> = counted_on_and_away(found)
                .iter()
                .map(ToString::to_string)
                .collect();
            (!away.is_empty()).then(|| format!("member {}", away.join(", ")))
        }
        Err(failure)
            if failure.id == id::POOL_UNKNOWN
                && target.members.is_empty()
                && !places.paths.is_empty() =>
        {
            Some("any member".to_owned())
        }
        Err(_) => target
            .members
            .iter()
            .find(|path| !path.exists())
            .map(|path| path.display().to_string()),
    }
}

/// Finds the pool like [`offline::locate`]. While a member that the pool counts on is missing,
/// waits for it until `patience` ends or `is_ended` is true. `tell` is called once with what is
/// awaited.
///
/// # Errors
/// Those of [`offline::locate`], when the patience has ended.
pub fn locate_patiently(
    target: &PoolTarget,
    registry: &Registry,
    patience: Duration,
    is_ended: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<FoundPool, Failure> {
    let end = Instant::now() + patience;
    let places = Places::of(target, registry)?;
    let mut told = false;
    loop {
        let before = places.look();
        let found = offline::locate(target, registry);
        let Some(what) = awaited(&found, target, &places).filter(|_| Instant::now() < end) else {
            return found;
        };
        if !std::mem::replace(&mut told, true) {
            tell(&what);
        }
        // The search opens every path that may hold a member, so it is repeated only after a change
        // and at the end.
        while places.look() == before && Instant::now() < end && !is_ended() {
            std::thread::sleep(WAITING_PAUSE);
        }
        if is_ended() {
            return found;
        }
    }
}

/// Starts the thread that takes in members that appear while the pool is served. It ends with the
/// daemon.
///
/// # Errors
/// The thread could not be started.
pub fn watch(daemon: &Arc<Daemon>, places: Places) -> std::io::Result<()> {
    let daemon = Arc::downgrade(daemon);
    std::thread::Builder::new()
        .name("windrow-arrivals".to_owned())
        .spawn(move || watch_until_end(&daemon, places))
        .map(drop)
}

fn watch_until_end(daemon: &Weak<Daemon>, places: Places) {
    let mut watch = Watch {
        places,
        ..Watch::default()
    };
    loop {
        std::thread::sleep(WATCH_PAUSE);
        let Some(daemon) = daemon
            .upgrade()
            .filter(|daemon| daemon.pool().stop_reason().is_none())
        else {
            return;
        };
        for (member, path) in watch.look(daemon.pool()) {
            match daemon.take_in(member, &path) {
                Ok(()) => {
                    watch.taken_in(daemon.pool(), member);
                    tracing::warn!(
                        "member {member} has come late, at {}: it is taken in and gets what it missed",
                        path.display()
                    );
                }
                Err(failure) => watch.refused(&path, &failure),
            }
        }
    }
}

/// State of the watch over these places.
#[derive(Default)]
struct Watch {
    places: Places,
    /// Members that were missing at the last look.
    away: Vec<Uuid>,
    /// Files and devices that were there at the last look.
    there: HashMap<PathBuf, Mark>,
    /// Paths looked at since their last change, with the time until which they are skipped. `None`:
    /// skipped until they change.
    seen: HashMap<PathBuf, (Mark, Option<Instant>)>,
    /// Members that failed in service and whose devices have been gone at a look since.
    gone: HashSet<Uuid>,
    /// Members that failed in service and that this thread took in. They are not taken in a second
    /// time.
    returned: HashSet<Uuid>,
    /// Failures that were logged.
    told: HashSet<String>,
}

impl Watch {
    /// Missing members that have appeared, with their paths.
    fn look(&mut self, pool: &Pool) -> Vec<(MemberId, PathBuf)> {
        let Some(status) = pool.status() else {
            return Vec::new();
        };
        let known = pool.paths();
        self.note_gone(&status, pool, &known);
        let away: Vec<&MemberStatus> = status
            .members
            .iter()
            .filter(|member| self.is_awaited(member, pool))
            .collect();
        let uuids: Vec<Uuid> = away.iter().map(|member| member.uuid).collect();
        if uuids != self.away {
            self.seen.clear();
            self.away = uuids;
        }
        if away.is_empty() {
            self.there.clear();
            return Vec::new();
        }
        let is_away = |slot: usize| away.iter().any(|member| member.member.index() == slot);
        let slots = status
            .members
            .iter()
            .map(|member| member.member)
            .filter(|slot| !is_away(slot.index()));
        let served: HashSet<_> = slots
            .filter_map(|slot| pool.device_mark(slot))
            .map(|mark| mark.identity)
            .collect();
        let paths = known
            .into_iter()
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .chain(self.places.paths.iter().cloned());
        let there = Places {
            paths: paths.collect(),
            block_devices: self.places.block_devices,
        }
        .look();
        self.seen
            .retain(|path, _| there.iter().any(|(other, _)| other == path));
        // A file that is being copied has a member's label before the rest. A device gets its
        // persistent name a moment after it appears.
        let before = std::mem::replace(&mut self.there, there.iter().cloned().collect());
        let is_stable = |(path, mark): &(PathBuf, Mark)| {
            before.get(path) == Some(mark) && !served.contains(&mark.identity)
        };
        let mut found: Vec<(MemberId, PathBuf)> = Vec::new();
        for (path, mark) in there.into_iter().filter(is_stable) {
            let is_settled = |(before, until): &(Mark, Option<Instant>)| {
                *before == mark && until.is_none_or(|until| Instant::now() < until)
            };
            if self.seen.get(&path).is_some_and(is_settled) {
                continue;
            }
            let borne = offline::examine(&path);
            let again = if borne.is_ok() {
                None
            } else {
                Some(Instant::now() + RETRY)
            };
            self.seen.insert(path.clone(), (mark, again));
            let label = borne
                .ok()
                .flatten()
                .map(|borne| borne.label)
                .filter(|label| label.pool == status.pool);
            let member =
                label.and_then(|label| away.iter().find(|member| member.uuid == label.member_uuid));
            if let Some(member) =
                member.filter(|member| !found.iter().any(|(other, _)| *other == member.member))
            {
                found.push((member.member, path));
            }
        }
        found
    }

    /// True for a member that is taken in when it appears:
    /// - a member or spare that was missing at a start;
    /// - a member that failed, once, if its device has been gone since.
    ///
    /// Never a member that the administrator took out.
    fn is_awaited(&self, member: &MemberStatus, pool: &Pool) -> bool {
        let is_there = pool.device_mark(member.member).is_some();
        match member.state {
            "missing" => true,
            "spare" => !is_there,
            "faulted" => {
                !self.returned.contains(&member.uuid)
                    && (!is_there || self.gone.contains(&member.uuid))
            }
            _ => false,
        }
    }

    fn note_gone(&mut self, status: &PoolStatus, pool: &Pool, known: &[String]) {
        for member in status
            .members
            .iter()
            .filter(|member| member.state == "faulted")
        {
            let open = pool.device_mark(member.member);
            let there = known
                .get(member.member.index())
                .and_then(|path| Mark::of(Path::new(path)));
            if open.is_some_and(|open| there.is_none_or(|there| there.identity != open.identity)) {
                self.gone.insert(member.uuid);
            }
        }
    }

    fn taken_in(&mut self, pool: &Pool, member: MemberId) {
        let uuid = pool
            .status()
            .and_then(|status| status.members.get(member.index()).map(|member| member.uuid));
        if let Some(uuid) = uuid.filter(|uuid| self.gone.remove(uuid)) {
            self.returned.insert(uuid);
        }
    }

    /// Schedules a retry; the failure is logged once.
    fn refused(&mut self, path: &Path, failure: &Failure) {
        if let Some((_, again)) = self.seen.get_mut(path) {
            *again = Some(Instant::now() + RETRY);
        }
        if self.told.len() < 1000 && self.told.insert(failure.to_string()) {
            tracing::warn!(%failure, "a member that came late stays out");
        }
    }
}

#[cfg(test)]
mod tests;
