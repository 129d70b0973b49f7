//! Names for the engine's numbers: paths of members, models of drives, names of volumes.
//!
//! Reports, events and the log use them. What is known of a member outlives the run: the registry
//! keeps it under the member's identifier.

use crate::sessions::lock;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;
use windrow_engine::PoolStatus;
use windrow_types::{MemberId, Uuid, VolumeId};

/// A member as known from an earlier run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KnownMember {
    /// Its identifier.
    pub uuid: Uuid,
    /// Its last path.
    pub path: String,
    /// Model of the drive; empty: not known.
    #[serde(default)]
    pub model: String,
    /// Serial number of the drive; empty: not known.
    #[serde(default)]
    pub serial: String,
    /// Time when it was last seen, seconds since 1970.
    #[serde(default)]
    pub seen_unix_s: u64,
}

impl KnownMember {
    /// A member that is present now.
    pub fn seen(uuid: Uuid, path: &Path, unix_s: u64) -> Self {
        let Drive { model, serial } = Drive::at(path);
        Self {
            uuid,
            path: path.display().to_string(),
            model,
            serial,
            seen_unix_s: unix_s,
        }
    }

    /// Merges what is seen now; entries of other members stay, at most the newest `KNOWN_MAX`.
    pub fn merge(known: &mut Vec<Self>, now: impl IntoIterator<Item = Self>) {
        for member in now {
            known.retain(|other| other.uuid != member.uuid);
            known.push(member);
        }
        let surplus = known.len().saturating_sub(KNOWN_MAX);
        known.drain(..surplus);
    }
}

/// Most members that the registry remembers of a pool, including those that have left it.
const KNOWN_MAX: usize = 128;

/// Model and serial number of a drive, as far as the system knows them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Drive {
    model: String,
    serial: String,
}

impl Drive {
    fn at(path: &Path) -> Self {
        let Some(device) = std::fs::metadata(path)
            .ok()
            .filter(|meta| meta.file_type().is_block_device())
            .map(|meta| meta.rdev())
        else {
            return Self::default();
        };
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let udev =
            std::fs::read_to_string(format!("/run/udev/data/b{major}:{minor}")).unwrap_or_default();
        let of_udev = |key: &str| {
            udev.lines()
                .find_map(|line| {
                    line.strip_prefix("E:")?
                        .strip_prefix(key)?
                        .strip_prefix('=')
                })
                .map(str::to_owned)
        };
        // A partition has no such files; its disk has.
        let folder = format!("/sys/dev/block/{major}:{minor}");
        let of_sysfs = |name: &str| {
            ["device", "../device"]
                .iter()
                .find_map(|at| std::fs::read_to_string(format!("{folder}/{at}/{name}")).ok())
        };
        let find = |keys: [&str; 2], name: &str| {
            keys.iter()
                .find_map(|key| of_udev(key))
                .or_else(|| of_sysfs(name))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        Self {
            model: find(["ID_MODEL", "ID_NAME"], "model"),
            serial: find(["ID_SERIAL_SHORT", "ID_SERIAL"], "serial"),
        }
    }
}

/// A slot of the member table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberPlace {
    /// Identifier of the member.
    pub uuid: Uuid,
    /// Path at which it was opened in this run; empty if it was not.
    pub path: String,
    /// The same path, or the last one of an earlier run.
    pub last_path: String,
    /// Model and serial number of its drive; empty: not known.
    pub model: String,
    /// See [`MemberPlace::model`].
    pub serial: String,
    /// Time when it was last seen in an earlier run, seconds since 1970; 0: not known.
    pub seen_unix_s: u64,
}

/// The names in a pool.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Name of the pool.
    pub(crate) name: String,
    /// Identifier of the pool.
    pub(crate) pool: Uuid,
    known: Vec<KnownMember>,
    members: Mutex<Vec<MemberPlace>>,
    volumes: Mutex<Vec<(VolumeId, String)>>,
}

impl Directory {
    pub(crate) fn new(status: &PoolStatus, paths: Vec<String>, known: Vec<KnownMember>) -> Self {
        let directory = Self {
            name: status.name.clone(),
            pool: status.pool,
            known,
            ..Self::default()
        };
        for (slot, path) in (0..).zip(paths).filter(|(_, path)| !path.is_empty()) {
            directory.set_path(MemberId(slot), path);
        }
        directory.refresh(status);
        directory
    }

    /// A directory with the pool's name only.
    #[cfg(test)]
    pub(crate) fn named(name: &str, pool: Uuid) -> Self {
        Self {
            name: name.to_owned(),
            pool,
            ..Self::default()
        }
    }

    /// Takes over the identifiers of members and the names of volumes.
    pub(crate) fn refresh(&self, status: &PoolStatus) {
        let mut members = lock(&self.members);
        let slots = members.len().max(status.members.len());
        members.resize_with(slots, MemberPlace::default);
        for (place, member) in members.iter_mut().zip(&status.members) {
            place.uuid = member.uuid;
            if place.path.is_empty()
                && let Some(known) = self.known.iter().find(|known| known.uuid == member.uuid)
            {
                (place.last_path, place.seen_unix_s) = (known.path.clone(), known.seen_unix_s);
                (place.model, place.serial) = (known.model.clone(), known.serial.clone());
            }
        }
        drop(members);
        *lock(&self.volumes) = status
            .volumes
            .iter()
            .map(|volume| (volume.id, volume.name.clone()))
            .collect();
    }

    /// All slots.
    pub(crate) fn places(&self) -> Vec<MemberPlace> {
        lock(&self.members).clone()
    }

    /// One slot.
    pub(crate) fn place(&self, member: MemberId) -> MemberPlace {
        lock(&self.members)
            .get(member.index())
            .cloned()
            .unwrap_or_default()
    }

    /// Records that a device was opened for this slot.
    pub(crate) fn set_path(&self, member: MemberId, path: String) {
        let Drive { model, serial } = Drive::at(path.as_ref());
        let mut members = lock(&self.members);
        let slots = members.len().max(member.index() + 1);
        members.resize_with(slots, MemberPlace::default);
        let place = &mut members[member.index()];
        *place = MemberPlace {
            uuid: place.uuid,
            last_path: path.clone(),
            path,
            model,
            serial,
            seen_unix_s: 0,
        };
    }

    /// Records another device in this slot. (The status shows it only once the engine has recorded
    /// it; events come earlier.)
    pub(crate) fn set_uuid(&self, member: MemberId, uuid: Uuid) {
        if let Some(place) = lock(&self.members).get_mut(member.index()) {
            place.uuid = uuid;
        }
    }

    /// Records that the slot is free.
    pub(crate) fn forget_path(&self, member: MemberId) {
        if let Some(place) = lock(&self.members).get_mut(member.index()) {
            *place = MemberPlace {
                uuid: place.uuid,
                ..MemberPlace::default()
            };
        }
    }

    /// Name of a volume; its number if it is gone.
    pub(crate) fn volume(&self, volume: VolumeId) -> String {
        let volumes = lock(&self.volumes);
        volumes
            .iter()
            .find(|(id, _)| *id == volume)
            .map_or_else(|| format!("#{}", volume.0), |(_, name)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The event of a rebuild must not have the path of the new device and the identifier of the
    /// old one.
    #[test]
    fn a_device_that_takes_a_slot_has_its_own_identifier_at_once() {
        let names = Directory::named("tank", Uuid([9; 16]));
        names.set_path(MemberId(1), "/dev/old".to_owned());
        names.set_uuid(MemberId(1), Uuid([1; 16]));
        names.set_path(MemberId(1), "/dev/new".to_owned());
        names.set_uuid(MemberId(1), Uuid([2; 16]));
        let place = names.place(MemberId(1));
        assert_eq!(
            (place.path.as_str(), place.uuid),
            ("/dev/new", Uuid([2; 16]))
        );
    }

    #[test]
    fn the_registry_remembers_the_newest_of_each_member() {
        let member = |n: u8, path: &str| KnownMember {
            uuid: Uuid([n; 16]),
            path: path.to_owned(),
            ..KnownMember::default()
        };
        let mut known = vec![member(1, "/dev/a"), member(2, "/dev/b")];
        KnownMember::merge(&mut known, [member(1, "/dev/c")]);
        assert_eq!(known, [member(2, "/dev/b"), member(1, "/dev/c")]);
        KnownMember::merge(&mut known, (0..=200).map(|n| member(n, "/dev/d")));
        assert_eq!(
            (known.len(), known.last()),
            (KNOWN_MAX, Some(&member(200, "/dev/d")))
        );
    }
}
