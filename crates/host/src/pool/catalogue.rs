//! Exports that clients can open now. Kept apart from the engine, so that front-ends never wait for
//! it.
//!
//! The exports are resolved once for each change of the volumes or of the table, and looked up by
//! name in an index. A client that asks for information on each of thousands of exports costs one
//! lookup for each question, not a walk over all exports.

use super::clients::Target;
use crate::exports::{ExportReport, ExportTable, VolumeView};
use std::collections::HashMap;
use std::sync::OnceLock;
use windrow_engine::PoolStatus;
use windrow_frontend::ExportInfo;
use windrow_types::VolumeId;

/// Smallest request that clients may send, bytes: parts of blocks are changed by read-modify-write.
const MIN_BLOCK: u32 = 1;
/// Request size that costs no read-modify-write, bytes.
const PREFERRED_BLOCK: u32 = 4096;
/// Largest request, bytes.
const MAX_BLOCK: u32 = 32 << 20;

pub(super) struct VolumeEntry {
    id: VolumeId,
    name: String,
    pub(super) size_bytes: u64,
    pub(super) read_only: bool,
}

/// The exports that result from volumes and table.
#[derive(Default)]
struct Resolved {
    /// The default one first, if there is one; each with its volume.
    exports: Vec<(ExportReport, VolumeId)>,
    by_name: HashMap<String, usize>,
}

impl Resolved {
    fn new(table: &ExportTable, volumes: &[VolumeEntry]) -> Self {
        let ids: HashMap<&str, VolumeId> = volumes
            .iter()
            .map(|volume| (volume.name.as_str(), volume.id))
            .collect();
        let exports = table.resolve(&views_of(volumes)).into_iter();
        let exports: Vec<_> = exports
            .filter_map(|export| ids.get(export.volume.as_str()).map(|id| (export, *id)))
            .collect();
        let by_name = exports
            .iter()
            .enumerate()
            .map(|(at, (export, _))| (export.name.clone(), at))
            .collect();
        Self { exports, by_name }
    }
}

/// The volumes and the export table, with the exports that result.
#[derive(Default)]
pub(super) struct Catalogue {
    /// In order of their ids.
    volumes: Vec<VolumeEntry>,
    /// Version of the engine's table that they were taken from.
    version: u64,
    table: ExportTable,
    /// Empty after a change of the volumes or of the table, until the next lookup.
    resolved: OnceLock<Resolved>,
    /// Targets that commands are removing: no client enters them.
    pub(super) bars: Vec<(u64, Target)>,
    pub(super) last_bar: u64,
}

impl Catalogue {
    /// For the volumes of a pool that starts; binds the table to them.
    pub(super) fn new(status: &PoolStatus, mut table: ExportTable) -> Self {
        let volumes = volumes_of(status);
        table.bind(&views_of(&volumes));
        Self {
            volumes,
            version: status.volumes_version,
            table,
            ..Self::default()
        }
    }

    /// Takes over the volumes, unless it has newer ones: other threads may have updated it since
    /// this status was read.
    pub(super) fn take_over(&mut self, status: &PoolStatus) {
        if status.volumes_version > self.version {
            self.volumes = volumes_of(status);
            self.version = status.volumes_version;
            self.resolved = OnceLock::new();
        }
    }

    /// Differences from "every volume under its own name".
    pub(super) fn table(&self) -> &ExportTable {
        &self.table
    }

    /// Changes the table and returns the result.
    pub(super) fn change_table(&mut self, change: impl FnOnce(&mut ExportTable)) -> ExportTable {
        change(&mut self.table);
        self.resolved = OnceLock::new();
        self.table.clone()
    }

    pub(super) fn views(&self) -> Vec<VolumeView<'_>> {
        views_of(&self.volumes)
    }

    /// A volume.
    pub(super) fn volume(&self, id: VolumeId) -> Option<&VolumeEntry> {
        self.volumes
            .binary_search_by_key(&id, |volume| volume.id)
            .ok()
            .map(|at| &self.volumes[at])
    }

    /// All exports, the default one first if there is one.
    pub(super) fn exports(&self) -> Vec<ExportReport> {
        self.resolved()
            .exports
            .iter()
            .map(|(export, _)| export.clone())
            .collect()
    }

    /// Position of an export among all of them.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.resolved().by_name.get(name).copied()
    }

    /// Description of an export for its clients. The empty name means the default.
    pub(super) fn info(&self, name: &str) -> Option<ExportInfo> {
        let exports = &self.resolved().exports;
        let export = if name.is_empty() {
            exports.first().filter(|(export, _)| export.default)
        } else {
            exports.get(self.position(name)?)
        };
        export.map(info_of)
    }

    /// Descriptions of all exports, the default one first if there is one.
    pub(super) fn infos(&self) -> impl Iterator<Item = ExportInfo> {
        self.resolved().exports.iter().map(info_of)
    }

    /// The volume that an added export of this name serves, if its name differs.
    pub(super) fn other_volume(&self, name: &str) -> Option<String> {
        // Without an added export the name is free, or its own volume's: nothing has to be
        // resolved.
        self.table.added.get(name)?;
        let (export, _) = &self.resolved().exports[self.position(name)?];
        (export.volume != name).then(|| export.volume.clone())
    }

    /// Names of volumes that no export serves.
    pub(super) fn not_served(&self) -> Vec<String> {
        self.table.not_served(&self.views())
    }

    fn resolved(&self) -> &Resolved {
        self.resolved
            .get_or_init(|| Resolved::new(&self.table, &self.volumes))
    }
}

fn info_of((export, volume): &(ExportReport, VolumeId)) -> ExportInfo {
    ExportInfo {
        name: export.name.clone(),
        description: export.description.clone(),
        volume: *volume,
        size_bytes: export.size_bytes,
        read_only: export.read_only,
        min_block: MIN_BLOCK,
        preferred_block: PREFERRED_BLOCK,
        max_block: MAX_BLOCK,
    }
}

fn volumes_of(status: &PoolStatus) -> Vec<VolumeEntry> {
    let active = status.volumes.iter().filter(|volume| !volume.deleting);
    let mut volumes: Vec<VolumeEntry> = active
        .map(|volume| VolumeEntry {
            id: volume.id,
            name: volume.name.clone(),
            size_bytes: volume.size_bytes,
            read_only: volume.read_only,
        })
        .collect();
    volumes.sort_by_key(|volume| volume.id);
    volumes
}

fn views_of(volumes: &[VolumeEntry]) -> Vec<VolumeView<'_>> {
    volumes
        .iter()
        .map(|volume| VolumeView {
            id: volume.id,
            name: &volume.name,
            size_bytes: volume.size_bytes,
            read_only: volume.read_only,
        })
        .collect()
}

#[cfg(test)]
mod tests;
