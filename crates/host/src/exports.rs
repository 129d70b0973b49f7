//! Names that are served: every volume under its own name, plus names added by hand, minus
//! withdrawn names.
//!
//! Added and withdrawn names are kept in the registry file of the pool, so they hold after a
//! restart. Settings of a volume are stored with the volume's id, which is never used again: an
//! export or the default never moves to another volume.
//!
//! A pool that comes from elsewhere opens nothing by itself: volumes that were made there are
//! withdrawn until they are added by name ([`KeptExports::adopt`]).

use crate::failure::{Failure, id};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use windrow_engine::PoolStatus;
use windrow_types::VolumeId;

/// An export added by hand.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NamedExport {
    /// Name of the volume that is served, as it was when the export was added.
    pub volume: String,
    /// Its id; `None` in tables of older versions, until the pool is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<VolumeId>,
    /// Writes are refused.
    #[serde(default)]
    pub read_only: bool,
    /// Free text that clients see.
    #[serde(default)]
    pub description: String,
}

/// The export for clients that name none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefaultExport {
    /// Its name.
    pub export: String,
    /// The volume that it serves. An export of the same name over another volume is not the
    /// default.
    pub volume: VolumeId,
}

/// Differences from "every volume under its own name".
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExportTable {
    /// Added names.
    #[serde(default)]
    pub added: BTreeMap<String, NamedExport>,
    /// Withdrawn names of volumes.
    #[serde(default)]
    pub withdrawn: BTreeSet<String>,
    /// The default export, if one was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_export: Option<DefaultExport>,
    /// Name of the default export in tables of older versions, until the pool is opened.
    #[serde(default, rename = "default", skip_serializing)]
    pub(crate) default_name: Option<String>,
}

/// A client of an export.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientReport {
    /// Number of the client, never used again while the daemon runs.
    pub client: u32,
    /// The export that it has entered.
    pub export: String,
    /// True if it named none and got the default one.
    pub by_default: bool,
    /// Address, or process and user on a unix socket.
    pub peer: String,
    /// Time when it entered, seconds since 1970.
    pub since_unix_s: u64,
    /// Answered reads.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Answered writes.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests that are not answered yet.
    pub in_flight: u64,
}

/// One resulting export.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExportReport {
    /// Name that clients ask for.
    pub name: String,
    /// Volume that is served.
    pub volume: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Free text.
    pub description: String,
    /// True for the export of clients that name none.
    pub default: bool,
    /// Its clients, the oldest first.
    #[serde(default)]
    pub clients: Vec<ClientReport>,
}

/// Fields of a volume that the table needs.
#[derive(Clone, Debug)]
pub(crate) struct VolumeView<'a> {
    pub(crate) id: VolumeId,
    pub(crate) name: &'a str,
    pub(crate) size_bytes: u64,
    pub(crate) read_only: bool,
}

/// Volumes by id and by name: a table may have an export for each of thousands of volumes.
struct Lookup<'a> {
    by_id: HashMap<VolumeId, &'a VolumeView<'a>>,
    by_name: HashMap<&'a str, &'a VolumeView<'a>>,
}

impl<'a> Lookup<'a> {
    fn new(volumes: &'a [VolumeView<'a>]) -> Self {
        let by_id = volumes.iter().map(|volume| (volume.id, volume)).collect();
        Self {
            by_id,
            by_name: volumes.iter().map(|volume| (volume.name, volume)).collect(),
        }
    }

    /// The volume that an added export serves.
    fn volume_of(&self, export: &NamedExport) -> Option<&'a VolumeView<'a>> {
        let found = export.volume_id.map_or_else(
            || self.by_name.get(export.volume.as_str()),
            |id| self.by_id.get(&id),
        );
        found.copied()
    }
}

impl ExportTable {
    /// All exports over these volumes, the default one first if there is one.
    pub(crate) fn resolve(&self, volumes: &[VolumeView<'_>]) -> Vec<ExportReport> {
        let lookup = Lookup::new(volumes);
        let own = volumes.iter().filter(|volume| {
            !self.withdrawn.contains(volume.name) && !self.added.contains_key(volume.name)
        });
        let own = own.map(|volume| (volume.name, volume, volume.read_only, ""));
        let added = self.added.iter().filter_map(|(name, export)| {
            let volume = lookup.volume_of(export)?;
            Some((
                name.as_str(),
                volume,
                export.read_only || volume.read_only,
                export.description.as_str(),
            ))
        });
        let is_default = |name: &str, volume: &VolumeView<'_>| {
            self.default_export
                .as_ref()
                .is_some_and(|d| d.export == name && d.volume == volume.id)
        };
        let mut exports: Vec<ExportReport> = own
            .chain(added)
            .map(|(name, volume, read_only, description)| ExportReport {
                name: name.to_owned(),
                volume: volume.name.to_owned(),
                size_bytes: volume.size_bytes,
                read_only,
                description: description.to_owned(),
                default: is_default(name, volume),
                clients: Vec::new(),
            })
            .collect();
        if let Some(default) = exports.iter().position(|export| export.default) {
            exports[..=default].rotate_right(1);
        }
        exports
    }

    /// Names of volumes that no export serves.
    pub(crate) fn not_served(&self, volumes: &[VolumeView<'_>]) -> Vec<String> {
        let exports = self.resolve(volumes);
        let served: HashSet<&str> = exports
            .iter()
            .map(|export| export.volume.as_str())
            .collect();
        volumes
            .iter()
            .filter(|volume| !served.contains(volume.name))
            .map(|volume| volume.name.to_owned())
            .collect()
    }

    /// Binds the names of volumes to their ids, and removes entries of volumes that were deleted
    /// while this table was not available.
    pub(crate) fn bind(&mut self, volumes: &[VolumeView<'_>]) {
        let lookup = Lookup::new(volumes);
        for export in self.added.values_mut() {
            export.volume_id = export
                .volume_id
                .or(lookup.volume_of(export).map(|volume| volume.id));
        }
        self.added
            .retain(|_, export| lookup.volume_of(export).is_some());
        self.withdrawn
            .retain(|name| lookup.by_name.contains_key(name.as_str()));
        if let Some(name) = self.default_name.take()
            && self.default_export.is_none()
        {
            // An entry whose export no longer exists is not a default.
            self.set_default(&name, volumes).unwrap_or_default();
        }
        if !self.resolve(volumes).iter().any(|export| export.default) {
            self.default_export = None;
        }
    }

    /// Adds an export, or serves a withdrawn volume under its own name again. An identical existing
    /// export can be made the default.
    pub(crate) fn add(
        &mut self,
        name: &str,
        mut export: NamedExport,
        default: bool,
        volumes: &[VolumeView<'_>],
    ) -> Result<(), Failure> {
        let what = format!("cannot add export '{name}'");
        if name.is_empty() || name.len() > 255 {
            return Err(Failure::new(id::USAGE, what, "a name has 1 to 255 bytes")
                .remedy("choose another name"));
        }
        // Clients cannot parse a list of exports with such a name.
        if name.chars().any(char::is_control) {
            return Err(
                Failure::new(id::USAGE, what, "a name has no control characters")
                    .remedy("choose another name"),
            );
        }
        let Some(volume) = volumes.iter().find(|volume| volume.name == export.volume) else {
            return Err(Failure::new(
                id::VOLUME_UNKNOWN,
                what,
                format!("there is no volume '{}'", export.volume),
            )
            .remedy("see `windrow volume list POOL`"));
        };
        export.volume_id = Some(volume.id);
        if let Some(existing) = self
            .resolve(volumes)
            .into_iter()
            .find(|existing| existing.name == name)
        {
            let is_same = existing.volume == volume.name
                && existing.read_only == (export.read_only || volume.read_only)
                && existing.description == export.description;
            if !(default && is_same) {
                return Err(
                    Failure::new(id::EXPORT_EXISTS, what, "an export of this name exists")
                        .remedy("remove it first, or choose another name"),
                );
            }
        } else {
            self.withdrawn.remove(name);
            if export.volume != name || export.read_only || !export.description.is_empty() {
                self.added.insert(name.to_owned(), export);
            }
        }
        if default {
            self.set_default(name, volumes)
        } else {
            Ok(())
        }
    }

    /// Makes an existing export the default.
    pub(crate) fn set_default(
        &mut self,
        name: &str,
        volumes: &[VolumeView<'_>],
    ) -> Result<(), Failure> {
        let exports = self.resolve(volumes);
        let export = exports.iter().find(|export| export.name == name);
        let volume =
            export.and_then(|export| volumes.iter().find(|volume| volume.name == export.volume));
        let Some(volume) = volume else {
            let what = format!("'{name}' cannot be the default export");
            return Err(
                Failure::new(id::EXPORT_UNKNOWN, what, "there is no export of this name")
                    .remedy("see `windrow export list POOL`"),
            );
        };
        self.default_export = Some(DefaultExport {
            export: name.to_owned(),
            volume: volume.id,
        });
        Ok(())
    }

    /// Makes the export of a volume's own name the default; if it was withdrawn it is served again.
    pub(crate) fn set_default_volume(
        &mut self,
        name: &str,
        volumes: &[VolumeView<'_>],
    ) -> Result<(), Failure> {
        let what = || format!("volume '{name}' cannot be the default export");
        if !volumes.iter().any(|volume| volume.name == name) {
            return Err(
                Failure::new(id::VOLUME_UNKNOWN, what(), "there is no such volume")
                    .remedy("see `windrow volume list POOL`"),
            );
        }
        self.withdrawn.remove(name);
        match self
            .resolve(volumes)
            .iter()
            .find(|export| export.name == name)
        {
            Some(export) if export.volume == name => self.set_default(name, volumes),
            _ => {
                let why = "its name is that of an export of another volume";
                Err(Failure::new(id::EXPORT_EXISTS, what(), why).remedy(
                    "remove that export, or give another one with `windrow export add --default`",
                ))
            }
        }
    }

    /// Chooses the default before the pool is started, over the volumes in its status.
    ///
    /// # Errors
    /// There is no such volume, or its name is that of another volume's export.
    pub fn choose_default(&mut self, name: &str, status: &PoolStatus) -> Result<(), Failure> {
        let active = status.volumes.iter().filter(|volume| !volume.deleting);
        let views = active.map(|volume| VolumeView {
            id: volume.id,
            name: &volume.name,
            size_bytes: volume.size_bytes,
            read_only: volume.read_only,
        });
        self.set_default_volume(name, &views.collect::<Vec<_>>())
    }

    /// Removes an export.
    pub(crate) fn remove(&mut self, name: &str, volumes: &[VolumeView<'_>]) -> Result<(), Failure> {
        if !self
            .resolve(volumes)
            .iter()
            .any(|export| export.name == name)
        {
            return Err(Failure::new(
                id::EXPORT_UNKNOWN,
                format!("cannot remove export '{name}'"),
                "there is none of this name",
            )
            .remedy("see `windrow export list POOL`"));
        }
        self.added.remove(name);
        if volumes.iter().any(|volume| volume.name == name) {
            self.withdrawn.insert(name.to_owned());
        }
        if self.is_default(name) {
            self.default_export = None;
        }
        Ok(())
    }

    /// Prepares a rename: settings of the volume's own export hold for the new name too. Otherwise
    /// it would be served without them for a moment.
    pub(crate) fn prepare_rename(&mut self, volume: VolumeId, name: &str, new_name: &str) {
        let own = self.added.get(name);
        let is_of_it = own.is_some_and(|export| {
            export
                .volume_id
                .map_or(export.volume == name, |of| of == volume)
        });
        match own.filter(|_| is_of_it).cloned() {
            Some(own) => {
                let moved = NamedExport {
                    volume_id: Some(volume),
                    ..own
                };
                let there = self
                    .added
                    .entry(new_name.to_owned())
                    .or_insert_with(|| moved.clone());
                there.read_only |= moved.read_only;
            }
            // Another volume's export has its name, so it was not served under it either.
            None if own.is_some() || self.withdrawn.contains(name) => {
                self.withdrawn.insert(new_name.to_owned());
            }
            None => {}
        }
    }

    /// Renames a volume. Its own export takes the new name with its settings, also if it is
    /// withdrawn or the default; other names stay.
    pub(crate) fn rename_volume(&mut self, volume: VolumeId, name: &str, new_name: &str) {
        if name == new_name {
            return;
        }
        self.prepare_rename(volume, name, new_name);
        self.withdrawn.remove(name);
        if self.added.get(name).is_some_and(|export| {
            export
                .volume_id
                .map_or(export.volume == name, |of| of == volume)
        }) {
            self.added.remove(name);
        }
        if let Some(default) = self
            .default_export
            .as_mut()
            .filter(|default| default.export == name && default.volume == volume)
        {
            new_name.clone_into(&mut default.export);
        }
        let of_it = |export: &&mut NamedExport| {
            export
                .volume_id
                .map_or(export.volume == name, |of| of == volume)
        };
        self.added
            .values_mut()
            .filter(of_it)
            .for_each(|export| new_name.clone_into(&mut export.volume));
    }

    /// Takes the default away from an export, which stays.
    pub(crate) fn remove_default(&mut self, name: &str) -> Result<(), Failure> {
        if !self.is_default(name) {
            let what = format!("the default is not taken from export '{name}'");
            return Err(
                Failure::new(id::EXPORT_UNKNOWN, what, "it is not the default export")
                    .remedy("see `windrow export list POOL`"),
            );
        }
        self.default_export = None;
        Ok(())
    }

    fn is_default(&self, name: &str) -> bool {
        self.default_export
            .as_ref()
            .is_some_and(|default| default.export == name)
    }

    /// Removes all entries of a deleted volume, so that a later volume of the same name starts
    /// without them.
    pub(crate) fn forget_volume(&mut self, volume: VolumeId, name: &str) {
        self.default_export
            .take_if(|default| default.volume == volume);
        self.withdrawn.remove(name);
        self.added.retain(|_, export| {
            export
                .volume_id
                .map_or(export.volume != name, |id| id != volume)
        });
    }
}

/// Exports that this host has kept of a pool that it opens, and the volumes that it knows.
#[derive(Clone, Debug, Default)]
pub struct KeptExports {
    /// The table.
    pub exports: ExportTable,
    /// The pool was elsewhere since: volumes with ids above this one were made there; 0: all of
    /// them. `None`: it was not.
    pub elsewhere_from: Option<VolumeId>,
}

impl KeptExports {
    /// The table for the pool's present volumes, and the names of volumes that are not served
    /// because they were made elsewhere.
    pub fn adopt<'a>(
        self,
        volumes: impl Iterator<Item = (VolumeId, &'a str)>,
    ) -> (ExportTable, Vec<String>) {
        let mut table = self.exports;
        let Some(last) = self.elsewhere_from else {
            return (table, Vec::new());
        };
        let closed: Vec<String> = volumes
            .filter(|(id, name)| *id > last && !table.added.contains_key(*name))
            .map(|(_, name)| name.to_owned())
            .collect();
        table.withdrawn.extend(closed.iter().cloned());
        (table, closed)
    }
}

#[cfg(test)]
mod tests;
