//! Pools as known between runs: one JSON file for each pool, with the paths of its members and its
//! exports.
//!
//! The registry is a convenience and never an authority: the labels on the members decide. A file
//! is replaced by rename after `fsync`, so it is whole or absent. Its folder is synced before the
//! change is reported as stored. The identifier of a host without a machine id is kept here, too.
//!
//! When a pool leaves this host (`pool export`), its exports are kept in a separate file under the
//! pool's identifier, for its next import here.

use crate::directory::KnownMember;
use crate::exports::{ExportTable, KeptExports};
use crate::failure::{Failure, id};
use crate::offline::{FoundPool, host_id};
use crate::paths::{file_stem, name_of_stem, read_own};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use windrow_types::{Uuid, VolumeId};

/// Schema of a registry file.
const SCHEMA: &str = "windrow/registry/1";

/// Registry entry of one pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolEntry {
    schema: String,
    /// Pool name.
    pub name: String,
    /// Pool identifier.
    pub pool: Uuid,
    /// Last paths of the members: absolute, by the names that the user gave.
    pub members: Vec<PathBuf>,
    /// Differences of the exports from the volumes.
    #[serde(default)]
    pub exports: ExportTable,
    /// Members as they were last seen, to describe a missing one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<KnownMember>,
    /// Control socket of its last daemon, if that is not in the run folder: commands ask there,
    /// too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
    /// The last volume made while this host had the pool; `None` in entries of older versions,
    /// until the pool is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_volume: Option<VolumeId>,
}

impl PoolEntry {
    /// An entry with the usual exports.
    pub fn new(name: &str, pool: Uuid, members: Vec<PathBuf>) -> Self {
        let (schema, exports) = (SCHEMA.to_owned(), ExportTable::default());
        Self {
            schema,
            name: name.to_owned(),
            pool,
            members,
            exports,
            known: Vec::new(),
            control: None,
            last_volume: None,
        }
    }

    /// Sets the paths of the members. While a member is missing, its known paths are kept: it may
    /// return to one of them.
    pub fn set_members(&mut self, now: Vec<PathBuf>, is_away: bool) {
        let before = std::mem::replace(&mut self.members, now);
        if is_away {
            let known = before
                .into_iter()
                .filter(|path| !self.members.contains(path))
                .collect::<Vec<_>>();
            self.members.extend(known);
        }
    }

    /// Adds paths found by a search. Known paths are kept and come first: a start before
    /// `/dev/disk/by-id` is filled must not lose them.
    pub fn add_members(&mut self, found: Vec<PathBuf>) {
        for path in found {
            if !self.members.contains(&path) {
                self.members.push(path);
            }
        }
    }
}

/// Schema of a file of exports of a pool that has left.
const EXPORTS_SCHEMA: &str = "windrow/kept-exports/1";

/// The exports of a pool that has left this host.
#[derive(Serialize, Deserialize)]
struct SetAside {
    schema: String,
    name: String,
    pool: Uuid,
    /// The last volume made before it left; `None` if unknown.
    last_volume: Option<VolumeId>,
    exports: ExportTable,
}

/// Content of a registry.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Readable entries, by name.
    pub entries: Vec<PoolEntry>,
    /// Names of pools with unreadable entries, and the failures.
    pub unreadable: Vec<(String, Failure)>,
}

/// A folder of entries.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
    /// Exports of pools that have left.
    left: PathBuf,
}

impl Registry {
    /// The registry in a state folder; nothing is created before the first write.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            folder: state_dir.join("pools"),
            left: state_dir.join("exports"),
        }
    }

    fn left_path(&self, pool: Uuid) -> PathBuf {
        self.left.join(format!("{pool}.json"))
    }

    /// The exports that this host has of a pool that is about to be opened. For an unknown pool
    /// last opened elsewhere there are none: all of its volumes were made elsewhere. For a known
    /// pool that another host has had since, volumes after the last one made here were made there.
    ///
    /// # Errors
    /// The stored exports cannot be read.
    pub fn exports_of(&self, found: &FoundPool) -> Result<KeptExports, Failure> {
        // The superblock names the last host: another one may have taken the pool with --force.
        let is_ours = found.superblock().map(|superblock| superblock.host) == Some(host_id(self)?);
        if let Some(entry) = self.load_of(&found.name, found.pool)? {
            let elsewhere_from = entry.last_volume.filter(|_| !is_ours);
            return Ok(KeptExports {
                exports: entry.exports,
                elsewhere_from,
            });
        }
        if let Some(kept) = self.set_aside(found.pool)? {
            return Ok(KeptExports {
                exports: kept.exports,
                elsewhere_from: kept.last_volume,
            });
        }
        Ok(KeptExports {
            exports: ExportTable::default(),
            elsewhere_from: (!is_ours).then_some(VolumeId(0)),
        })
    }

    fn set_aside(&self, pool: Uuid) -> Result<Option<SetAside>, Failure> {
        let path = self.left_path(pool);
        let failure = |why: String| {
            Failure::new(
                id::LOCAL_FILE,
                format!("cannot read {}", path.display()),
                why,
            )
            .remedy("correct or remove the file")
        };
        let text = match read_own(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure(error.to_string())),
        };
        let kept: SetAside =
            serde_json::from_slice(&text).map_err(|error| failure(error.to_string()))?;
        match (kept.schema == EXPORTS_SCHEMA, kept.pool == pool) {
            (false, _) => Err(failure(format!(
                "its schema is {}, not {EXPORTS_SCHEMA}",
                kept.schema
            ))),
            (true, false) => Err(failure(format!("it is of pool {}", kept.pool))),
            (true, true) => Ok(Some(kept)),
        }
    }

    /// Stores the exports of a pool that leaves this host, for its return. `last_volume`: volumes
    /// with greater ids will have been made elsewhere.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_exports(
        &self,
        name: &str,
        pool: Uuid,
        last_volume: Option<VolumeId>,
        exports: ExportTable,
    ) -> Result<(), Failure> {
        let kept = SetAside {
            schema: EXPORTS_SCHEMA.to_owned(),
            name: name.to_owned(),
            pool,
            last_volume,
            exports,
        };
        write_file(&self.left, &self.left_path(pool), &kept)
    }

    /// Removes the stored exports of a destroyed pool.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn forget_exports(&self, pool: Uuid) -> Result<(), Failure> {
        remove_file(&self.left_path(pool))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}.json", file_stem(name)))
    }

    /// The entry of a pool.
    pub fn load(&self, name: &str) -> Result<Option<PoolEntry>, Failure> {
        let path = self.path(name);
        let failure = |why: String| {
            Failure::new(
                id::LOCAL_FILE,
                format!("cannot read {}", path.display()),
                why,
            )
            .remedy("correct the file; or remove it, and import the pool again")
        };
        let text = match read_own(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure(error.to_string())),
        };
        let entry: PoolEntry =
            serde_json::from_slice(&text).map_err(|error| failure(error.to_string()))?;
        match (entry.schema == SCHEMA, entry.name == name) {
            (false, _) => Err(failure(format!(
                "its schema is {}, not {SCHEMA}",
                entry.schema
            ))),
            (true, false) => Err(failure(format!(
                "it is of a pool '{}', not '{name}'",
                entry.name
            ))),
            (true, true) => Ok(Some(entry)),
        }
    }

    /// The entry of a pool by its name or identifier. An identifier takes precedence over a name of
    /// its form, which older versions accepted.
    ///
    /// # Errors
    /// The entry cannot be read.
    pub fn find(&self, pool: &str) -> Result<Option<PoolEntry>, Failure> {
        let has_form = pool.parse::<Uuid>().is_ok();
        let by_identifier = has_form
            .then(|| {
                self.all()
                    .into_iter()
                    .find(|entry| entry.pool.to_string() == pool)
            })
            .flatten();
        by_identifier.map_or_else(|| self.load(pool), |entry| Ok(Some(entry)))
    }

    /// The entry of this very pool; that of another pool of its name does not count.
    pub fn load_of(&self, name: &str, pool: Uuid) -> Result<Option<PoolEntry>, Failure> {
        Ok(self.load(name)?.filter(|entry| entry.pool == pool))
    }

    /// Checks that an entry of this pool can be stored; `what` names the action in the failure.
    ///
    /// # Errors
    /// Another pool of its name is known: its members' paths and its exports would be lost.
    pub fn must_be_free(&self, what: &str, name: &str, pool: Uuid) -> Result<(), Failure> {
        match self.load(name)?.filter(|entry| entry.pool != pool) {
            None => Ok(()),
            Some(known) => {
                let remedy = format!(
                    "export or destroy that one; or, if it is not needed any more, remove {}, or import or serve this one with --replace-known",
                    self.path(name).display()
                );
                Err(Failure::new(
                    id::LOCAL_FILE,
                    what,
                    format!(
                        "another pool of the name '{name}' is known here ({})",
                        known.pool
                    ),
                )
                .remedy(remedy))
            }
        }
    }

    /// All readable entries, by name.
    pub fn all(&self) -> Vec<PoolEntry> {
        self.read_all()
            .map(|content| content.entries)
            .unwrap_or_default()
    }

    /// All entries.
    ///
    /// # Errors
    /// The folder exists and cannot be read.
    pub fn read_all(&self) -> Result<Content, Failure> {
        let failure = |error| {
            Failure::new(
                id::LOCAL_FILE,
                format!("cannot read the registry {}", self.folder.display()),
                error,
            )
        };
        let files = match std::fs::read_dir(&self.folder) {
            Ok(files) => files,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Content::default());
            }
            Err(error) => {
                return Err(failure(error).remedy("check your rights to it, or set WINDROW_STATE"));
            }
        };
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        let paths = files
            .flatten()
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|e| e == "json"));
        for path in paths {
            let stem = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            // A file with another name was not written by this registry.
            let Some(name) = name_of_stem(stem) else {
                continue;
            };
            match self.load(&name) {
                Ok(entry) => entries.extend(entry),
                Err(failure) => unreadable.push((name, failure)),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        unreadable.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Content {
            entries,
            unreadable,
        })
    }

    /// Writes an entry. If it replaces that of another pool, that pool's exports are stored for its
    /// return.
    pub fn save(&self, entry: &PoolEntry) -> Result<(), Failure> {
        // An unreadable entry belongs to no pool.
        if let Ok(Some(other)) = self.load(&entry.name)
            && other.pool != entry.pool
        {
            self.keep_exports(&other.name, other.pool, other.last_volume, other.exports)?;
        }
        write_file(&self.folder, &self.path(&entry.name), entry)
    }

    /// An identifier for a host without a machine id: random, made at the first call, stored
    /// alongside the pools. It is durable before it is returned. Pools store it on their members,
    /// and would belong to another host if a power cut lost it here.
    ///
    /// # Errors
    /// It cannot be written or read, or the file holds something else.
    pub fn host_id(&self) -> Result<Uuid, Failure> {
        self.host_id_with(&|file| file.sync_all())
    }

    fn host_id_with(&self, sync: Sync<'_>) -> Result<Uuid, Failure> {
        let path = self.folder.join("host-id");
        if let Some(kept) = read_host_id(&path)? {
            return Ok(kept);
        }
        let failure = |error: std::io::Error| {
            let what = format!("cannot keep the host identifier in {}", path.display());
            Failure::new(id::LOCAL_FILE, what, error)
                .remedy("set WINDROW_STATE to a folder that can be written")
        };
        self.make_host_id(&path, crate::offline::random_uuid()?, sync)
            .map_err(failure)?;
        read_host_id(&path)?.ok_or_else(|| failure(std::io::ErrorKind::NotFound.into()))
    }

    /// Stores the identifier by a link once the file is whole and durable, so that of two
    /// concurrent processes one wins for both.
    fn make_host_id(&self, path: &Path, made: Uuid, sync: Sync<'_>) -> std::io::Result<()> {
        make_folder(&self.folder, sync)?;
        // A unique name for each process, also across PID namespaces.
        let draft = self.folder.join(format!(".host-id.{made}"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create_new(&draft)?;
            file.write_all(format!("{made}\n").as_bytes())?;
            sync(&file)
        };
        let linked = write().and_then(|()| std::fs::hard_link(&draft, path));
        drop(std::fs::remove_file(&draft));
        match linked {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            // Also if another process was first: it may not have synced the folder yet.
            _ => sync_folder(&self.folder, sync),
        }
    }

    /// Removes the entry of a pool; that of another pool of its name stays. An unreadable entry
    /// belongs to no pool, and is removed.
    pub fn forget(&self, name: &str, pool: Uuid) -> Result<(), Failure> {
        match self.load(name) {
            Ok(Some(entry)) if entry.pool != pool => Ok(()),
            _ => self.remove(name),
        }
    }

    fn remove(&self, name: &str) -> Result<(), Failure> {
        remove_file(&self.path(name))
    }
}

fn remove_file(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::new(
            id::LOCAL_FILE,
            format!("cannot remove {}", path.display()),
            error,
        )),
        _ => Ok(()),
    }
}

/// Writes a whole file, durably.
fn write_file(folder: &Path, path: &Path, content: &impl Serialize) -> Result<(), Failure> {
    let sync: Sync<'_> = &|file| file.sync_all();
    let write = || -> std::io::Result<()> {
        make_folder(folder, sync)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let draft = folder.join(format!(".{stem}.{}", std::process::id()));
        let mut file = File::create(&draft)?;
        file.write_all(serde_json::to_string_pretty(content)?.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        sync_folder(folder, sync)
    };
    write().map_err(|error| {
        Failure::new(
            id::LOCAL_FILE,
            format!("cannot write {}", path.display()),
            error,
        )
        .remedy("set WINDROW_STATE to a folder that can be written")
    })
}

/// Function that makes files and folders durable.
type Sync<'a> = &'a dyn Fn(&File) -> std::io::Result<()>;

/// The identifier in this file; `None` if there is no file.
fn read_host_id(path: &Path) -> Result<Option<Uuid>, Failure> {
    let failure = |why: String| {
        Failure::new(
            id::LOCAL_FILE,
            format!("cannot use the host identifier in {}", path.display()),
            why,
        )
    };
    let text = match read_own(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failure(error.to_string()).remedy("check your rights to it")),
    };
    let parsed = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    parsed.map(Some).ok_or_else(|| {
        let why = if text.trim_ascii().is_empty() { "it is empty, as a power cut could leave it behind" } else { "it holds no identifier" };
        let remedy = "remove it: another one is made then; pools that were used here say that another host has them, and `windrow pool import POOL --force` takes them over";
        failure(why.to_owned()).remedy(remedy)
    })
}

/// Makes a folder and its missing parents durable.
fn make_folder(folder: &Path, sync: Sync<'_>) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder
        .parent()
        .filter(|above| !above.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    make_folder(above, sync)?;
    match std::fs::create_dir(folder) {
        Err(error) if !folder.is_dir() => Err(error),
        _ => sync_folder(above, sync),
    }
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path, sync: Sync<'_>) -> std::io::Result<()> {
    match sync(&File::open(folder)?) {
        // Some file systems cannot sync folders.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
