//! Which names are served: every volume under its own name by itself, plus names added by hand, minus names withdrawn.
//!
//! What was added or withdrawn is kept in the registry file of the pool, so that it holds after a restart.

use crate::failure::{Failure, id};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An export added by hand.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedExport {
    /// Name of the volume behind it.
    pub volume: String,
    /// Writes are refused.
    #[serde(default)]
    pub read_only: bool,
    /// Free text that clients see.
    #[serde(default)]
    pub description: String,
}

/// What differs from "every volume under its own name".
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExportTable {
    /// Added names.
    #[serde(default)]
    pub added: BTreeMap<String, NamedExport>,
    /// Withdrawn names of volumes.
    #[serde(default)]
    pub withdrawn: BTreeSet<String>,
    /// The export that clients get who ask for the empty name; else the first one.
    #[serde(default)]
    pub default: Option<String>,
}

/// One export as it results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExportReport {
    /// Name that clients ask for.
    pub name: String,
    /// Volume behind it.
    pub volume: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Free text.
    pub description: String,
    /// True for the one that the empty name means.
    pub default: bool,
}

/// What the table needs of a volume.
#[derive(Clone, Debug)]
pub(crate) struct VolumeView<'a> {
    pub(crate) name: &'a str,
    pub(crate) size_bytes: u64,
    pub(crate) read_only: bool,
}

impl ExportTable {
    /// All exports over these volumes, the default one first.
    pub(crate) fn resolve(&self, volumes: &[VolumeView<'_>]) -> Vec<ExportReport> {
        let own = volumes.iter().filter(|volume| !self.withdrawn.contains(volume.name) && !self.added.contains_key(volume.name));
        let own = own.map(|volume| (volume.name, volume, volume.read_only, ""));
        let added = self.added.iter().filter_map(|(name, export)| {
            let volume = volumes.iter().find(|volume| volume.name == export.volume)?;
            Some((name.as_str(), volume, export.read_only || volume.read_only, export.description.as_str()))
        });
        let mut exports: Vec<ExportReport> = own
            .chain(added)
            .map(|(name, volume, read_only, description)| ExportReport {
                name: name.to_owned(),
                volume: volume.name.to_owned(),
                size_bytes: volume.size_bytes,
                read_only,
                description: description.to_owned(),
                default: false,
            })
            .collect();
        let chosen = self.default.as_ref().and_then(|default| exports.iter().position(|export| export.name == *default)).unwrap_or(0);
        if let Some(export) = exports.get_mut(chosen) {
            export.default = true;
            exports[..=chosen].rotate_right(1);
        }
        exports
    }

    /// Adds an export, or gives a volume its own name back.
    pub(crate) fn add(&mut self, name: &str, export: NamedExport, default: bool, volumes: &[VolumeView<'_>]) -> Result<(), Failure> {
        let what = format!("cannot add export '{name}'");
        if name.is_empty() || name.len() > 255 {
            return Err(Failure::new(id::USAGE, what, "a name has 1 to 255 bytes").remedy("choose another name"));
        }
        if !volumes.iter().any(|volume| volume.name == export.volume) {
            return Err(Failure::new(id::VOLUME_UNKNOWN, what, format!("there is no volume '{}'", export.volume)).remedy("see `windrow volume list`"));
        }
        if self.resolve(volumes).iter().any(|existing| existing.name == name) {
            return Err(Failure::new(id::EXPORT_EXISTS, what, "an export of this name exists").remedy("remove it first, or choose another name"));
        }
        self.withdrawn.remove(name);
        if export.volume != name || export.read_only || !export.description.is_empty() {
            self.added.insert(name.to_owned(), export);
        }
        if default {
            self.default = Some(name.to_owned());
        }
        Ok(())
    }

    /// Removes an export. Connections that are open stay.
    pub(crate) fn remove(&mut self, name: &str, volumes: &[VolumeView<'_>]) -> Result<(), Failure> {
        if !self.resolve(volumes).iter().any(|export| export.name == name) {
            return Err(
                Failure::new(id::EXPORT_UNKNOWN, format!("cannot remove export '{name}'"), "there is none of this name").remedy("see `windrow export list`")
            );
        }
        self.added.remove(name);
        if volumes.iter().any(|volume| volume.name == name) {
            self.withdrawn.insert(name.to_owned());
        }
        if self.default.as_deref() == Some(name) {
            self.default = None;
        }
        Ok(())
    }

    /// Forgets everything about a volume that is gone, so that a later one of the same name begins afresh.
    pub(crate) fn forget_volume(&mut self, name: &str) {
        let is_of = |export: &String| self.added.get(export).map_or(export == name, |added| added.volume == name);
        if self.default.as_ref().is_some_and(is_of) {
            self.default = None;
        }
        self.withdrawn.remove(name);
        self.added.retain(|_, export| export.volume != name);
    }
}

#[cfg(test)]
mod tests;
