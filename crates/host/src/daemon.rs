//! A served pool: the commands of the control socket, and the end of the daemon.
//!
//! The end has three steps, so that the client or signal that requested it learns the result:
//! 1. A command or signal *requests* it.
//! 2. The main thread *waits* for the request and drains its front-ends.
//! 3. The main thread *finishes*: it decides by the requests up to then, shuts the pool down,
//!    announces the result, and answers the commands that requested it.

use crate::control::{Command, ControlHandler, PropertyChange, Reply, ScrubAction, ServedPool};
use crate::directory::KnownMember;
use crate::failure::{Failure, id};
use crate::offline::{self, Newcomer};
use crate::pool::Pool;
use crate::pool::clients::{Disconnected, Target};
use crate::pool::partition::Place;
use crate::registry::{PoolEntry, Registry};
use crate::report::{PoolReport, PropertyReport, VolumeReport};
use crate::schedule::{Clock, next_scrub, unix_now};
use crate::sessions::lock;
use crate::{ExportTable, NamedExport};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use windrow_engine::{Control, ControlError, ControlReply, ScrubCommand, ScrubState};
use windrow_engine::{PlacementKind, Reduction, VictimRule};
use windrow_format::checkpoint::{Compression, Dedup, SyncMode};
use windrow_types::MemberId;

/// Longest wait for the in-flight work of a stopped scrub, and the pause between two tries.
const ENDING: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[derive(Default)]
struct End {
    /// `Some(export)` once the end is requested.
    requested: Option<bool>,
    /// `Some(export)` once decided; later requests are too late.
    decided: Option<bool>,
    result: Option<Result<(), Failure>>,
}

/// A served pool.
pub struct Daemon {
    pool: Pool,
    name: String,
    /// Registry for export changes; `None`: not kept.
    registry: Option<Registry>,
    /// Held while the registry entry is read, changed and written: one of two concurrent changes
    /// would be lost.
    keeping: Mutex<()>,
    clock: Mutex<Option<Clock>>,
    end: Mutex<End>,
    changed: Condvar,
}

impl Daemon {
    /// Wraps a running pool.
    pub fn new(pool: Pool, name: &str, registry: Option<Registry>) -> Self {
        Self {
            pool,
            name: name.to_owned(),
            registry,
            keeping: Mutex::default(),
            clock: Mutex::default(),
            end: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Passes the time to the pool, and starts a scrub if one is due. Called periodically.
    pub fn keep_schedule(&self, now_unix_s: u64) {
        // A stopped pool is reported elsewhere.
        if self
            .pool
            .control(Control::WallClock { unix_s: now_unix_s })
            .is_err()
        {
            return;
        }
        let Some(status) = self.pool.status() else {
            return;
        };
        let clock = {
            let mut clock = lock(&self.clock);
            let clock = clock.get_or_insert(Clock::new(now_unix_s));
            clock.look(now_unix_s);
            *clock
        };
        if next_scrub(&status, &clock).is_none_or(|next| now_unix_s < next) {
            return;
        }
        self.pool.check_sizes();
        match self.pool.control(Control::Scrub(ScrubCommand::Start {
            unix_s: now_unix_s,
            bytes_per_second: 0,
        })) {
            Ok(_) => tracing::info!(
                "pool '{}': a scrub was due and has begun (every {} days)",
                self.name,
                status.properties.scrub_interval_days
            ),
            Err(error) => self
                .pool
                .warn_once(&format!("a scrub was due and could not begin: {error}")),
        }
    }

    /// Requests the end.
    pub fn request_end(&self, export: bool) {
        let mut end = lock(&self.end);
        end.requested = Some(end.requested.unwrap_or(false) || export);
        self.changed.notify_all();
    }

    /// Waits at most `patience` for a request to end; true if there is one.
    pub fn wait_for_end(&self, patience: Duration) -> bool {
        let (end, _) = self
            .changed
            .wait_timeout_while(lock(&self.end), patience, |end| end.requested.is_none())
            .unwrap_or_else(|e| e.into_inner());
        end.requested.is_some()
    }

    /// Ends the pool and answers the commands that requested it. Called once the front-ends have
    /// ended: an export may have been requested meanwhile.
    ///
    /// # Errors
    /// The pool did not end cleanly, or is served read-only and was to be exported.
    pub fn finish(&self, read_only: bool) -> Result<(), Failure> {
        let export = self.decide();
        let before = (export && !read_only).then(|| self.pool.report()).flatten();
        let result = match (read_only, export) {
            (true, true) => {
                let why = "it is served read-only, so nothing can be written to release it";
                Err(
                    Failure::new(id::POOL_VALUE, "the pool is not exported", why)
                        .remedy("the daemon has ended: export it again"),
                )
            }
            (true, false) => Ok(()),
            (false, _) => self.pool.end(export).map_err(|error| {
                control_failure("the pool did not end cleanly".to_owned(), &error)
            }),
        };
        let result =
            result.and_then(|()| before.map_or(Ok(()), |before| self.keep_for_return(&before)));
        self.announce(result.clone());
        result
    }

    /// Keeps the exports of a released pool, for its next import on this host.
    fn keep_for_return(&self, report: &PoolReport) -> Result<(), Failure> {
        let Some(registry) = &self.registry else {
            return Ok(());
        };
        registry
            .keep_exports(
                &self.name,
                report.pool,
                Some(report.last_volume()),
                self.pool.export_table(),
            )
            .map_err(|failure| {
                let what = format!(
                    "pool '{}' is exported, but its exports could not be kept for its return",
                    self.name
                );
                Failure::new(
                    id::LOCAL_FILE,
                    what,
                    format!("{}: {}", failure.what, failure.why),
                )
                .remedy(failure.remedy)
            })
    }

    /// Decides whether the pool is exported.
    fn decide(&self) -> bool {
        let mut end = lock(&self.end);
        let export = end.requested.unwrap_or(false);
        end.decided = Some(export);
        export
    }

    fn announce(&self, result: Result<(), Failure>) {
        lock(&self.end).result = Some(result);
        self.changed.notify_all();
    }

    fn end(&self, export: bool, force: bool) -> Result<Reply, Failure> {
        // A daemon that is ending already disconnects its clients anyway.
        if export && lock(&self.end).requested.is_none() {
            self.pool
                .bar("the pool is not exported", &Target::Pool, force)?
                .keep();
        }
        self.request_end(export);
        let end = self
            .changed
            .wait_while(lock(&self.end), |end| end.result.is_none())
            .unwrap_or_else(|e| e.into_inner());
        match &end.result {
            Some(Err(failure)) => Err(failure.clone()),
            _ if export && end.decided != Some(true) => {
                let why = "its daemon was ending already when this was asked for";
                Err(Failure::new(id::POOL_BUSY, "the pool is not exported", why)
                    .remedy("export it again when the daemon has ended"))
            }
            _ => Ok(Reply::Done),
        }
    }

    /// Changes the exports and stores them. A change that cannot be stored is undone, as it would
    /// last only until the next start. The lock comes first: otherwise, of two changes, the older
    /// table could be stored last.
    fn change_exports(
        &self,
        change: impl FnOnce(&Pool) -> Result<ExportTable, Failure>,
    ) -> Result<Reply, Failure> {
        let _one = lock(&self.keeping);
        if let Some(registry) = &self.registry {
            registry.must_be_free(
                "cannot change the exports",
                &self.name,
                report(&self.pool)?.pool,
            )?;
        }
        let before = self.pool.export_table();
        self.keep_exports(change(&self.pool)?)
            .inspect_err(|_| self.pool.put_export_table(before))
    }

    fn keep_exports(&self, exports: ExportTable) -> Result<Reply, Failure> {
        let Some(registry) = &self.registry else {
            return Ok(Reply::Done);
        };
        let pool = report(&self.pool)?;
        if let Some(mut entry) = self.entry(registry, &pool)? {
            entry.exports = exports;
            entry.last_volume = Some(pool.last_volume());
            registry.save(&entry)?;
        }
        Ok(Reply::Done)
    }

    /// True if the registry has this table. Most deleted volumes have nothing in it, and a write of
    /// the file waits for its device.
    fn is_kept(&self, exports: &ExportTable) -> bool {
        let known = self
            .registry
            .as_ref()
            .and_then(|registry| registry.load(&self.name).ok().flatten());
        known.is_some_and(|entry| entry.pool == self.pool.uuid() && entry.exports == *exports)
    }

    /// Path of a device that was missing when the pool was opened: the known path that holds the
    /// member's identifier.
    fn where_it_was(&self, member: MemberId) -> Option<PathBuf> {
        let report = report(&self.pool).ok()?;
        let uuid = report
            .members
            .iter()
            .find(|other| other.member == member.0)
            .filter(|member| member.path.is_empty())?
            .uuid;
        let known = self
            .registry
            .as_ref()?
            .load(&self.name)
            .ok()?
            .filter(|entry| entry.pool == report.pool)?
            .members;
        let is_in_use = |path: &PathBuf| {
            report
                .members
                .iter()
                .any(|other| Path::new(&other.path) == path)
        };
        let bears = |path: &PathBuf| {
            offline::examine(path).is_ok_and(|found| {
                found.is_some_and(|found| {
                    found.label.pool == report.pool && found.label.member_uuid == uuid
                })
            })
        };
        known
            .into_iter()
            .filter(|path| !is_in_use(path))
            .find(bears)
    }

    /// Changes a member, stores the paths of all members, and answers with the member's report.
    fn change_member(
        &self,
        member: MemberId,
        change: impl FnOnce(&Pool) -> Result<(), Failure>,
    ) -> Result<Reply, Failure> {
        change(&self.pool).inspect_err(|_| {
            // The change may be partly carried out: new paths are stored, and known ones stay. The
            // failure of the change is the one to report.
            if let Err(failure) = self.keep_paths(member, true, || report(&self.pool)) {
                tracing::warn!("pool '{}': {failure}", self.name);
            }
        })?;
        let report = self.keep_members(member, || report(&self.pool))?;
        let found = report
            .members
            .into_iter()
            .find(|other| other.member == member.0);
        found
            .map(|member| Reply::Member(Box::new(member)))
            .ok_or_else(|| Failure::new(id::POOL_STOPPED, "cannot show the member", "it is gone"))
    }

    /// Takes in a missing member that has appeared at this path, and stores the path.
    ///
    /// # Errors
    /// It is not brought back, or the path cannot be stored.
    pub(crate) fn take_in(&self, member: MemberId, path: &Path) -> Result<(), Failure> {
        self.change_member(member, |pool| pool.bring_back(member, Some(path)))
            .map(drop)
    }

    /// Stores the members' paths after a change of `member`. They are read with the lock held, for
    /// the same reason.
    fn keep_members(
        &self,
        member: MemberId,
        look: impl FnOnce() -> Result<PoolReport, Failure>,
    ) -> Result<PoolReport, Failure> {
        self.keep_paths(member, false, look)
    }

    /// Stores the members' paths. `all`: known paths are kept even if every member has one now.
    fn keep_paths(
        &self,
        member: MemberId,
        all: bool,
        look: impl FnOnce() -> Result<PoolReport, Failure>,
    ) -> Result<PoolReport, Failure> {
        let _one = lock(&self.keeping);
        let report = look()?;
        let Some(registry) = &self.registry else {
            return Ok(report);
        };
        let kept = self.entry(registry, &report).and_then(|entry| {
            let Some(mut entry) = entry else {
                return Ok(());
            };
            let is_away = all
                || report
                    .members
                    .iter()
                    .any(|member| member.path.is_empty() && member.state != "removed");
            entry.set_members(member_paths(&report), is_away);
            let here = report
                .members
                .iter()
                .filter(|member| !member.path.is_empty() && member.state != "removed");
            KnownMember::merge(
                &mut entry.known,
                here.map(|member| {
                    KnownMember::seen(
                        member.uuid,
                        &offline::absolute(member.path.as_ref()),
                        unix_now(),
                    )
                }),
            );
            registry.save(&entry)
        });
        kept.map(|()| report).map_err(|failure| {
            let what = format!(
                "the pool has changed, but the path of member {member} could not be stored"
            );
            Failure::new(
                id::LOCAL_FILE,
                what,
                format!("{}: {}", failure.what, failure.why),
            )
            .remedy("name all members with --members at the next start")
        })
    }

    /// The registry entry of the pool. `None` for a pool that was named by its members while
    /// another known pool has its name.
    fn entry(
        &self,
        registry: &Registry,
        report: &PoolReport,
    ) -> Result<Option<PoolEntry>, Failure> {
        let new = || {
            let mut entry = PoolEntry::new(&self.name, report.pool, member_paths(report));
            entry.exports = self.pool.export_table();
            entry
        };
        let known = registry.load(&self.name)?.unwrap_or_else(new);
        Ok(Some(known).filter(|entry| entry.pool == report.pool))
    }

    fn delete_volume(&self, name: &str, force: bool) -> Result<Reply, Failure> {
        let what = format!("cannot delete volume '{name}'");
        let id = volume(&self.pool, &what, name)?.id;
        let _bar = self.pool.bar(&what, &Target::Volume(id), force)?;
        self.pool
            .control(Control::VolumeDelete { volume: id })
            .map_err(|error| control_failure(what, &error))?;
        let _one = lock(&self.keeping);
        let exports = self.pool.forget_volume(id, name);
        if self.is_kept(&exports) {
            return Ok(Reply::Done);
        }
        self.keep_exports(exports).map_err(|failure| {
            let what =
                format!("volume '{name}' is deleted, but its exports could not be forgotten");
            Failure::new(
                id::LOCAL_FILE,
                what,
                format!("{}: {}", failure.what, failure.why),
            )
            .remedy(failure.remedy)
        })
    }

    fn rename_volume(&self, name: &str, new_name: &str) -> Result<Reply, Failure> {
        let what = format!("cannot rename volume '{name}'");
        let id = volume(&self.pool, &what, name)?.id;
        let _one = lock(&self.keeping);
        let before = self.pool.export_table();
        if before.added.get(new_name).is_some_and(|export| {
            export
                .volume_id
                .map_or(export.volume != name, |of| of != id)
        }) {
            let why = format!("an export of another volume has the name '{new_name}'");
            return Err(Failure::new(id::EXPORT_EXISTS, what, why)
                .remedy("remove it first, or choose another name"));
        }
        // If a volume already has the name, the engine refuses, and that volume's clients stay.
        if volume(&self.pool, &what, new_name).is_err() {
            let mut table = before.clone();
            table.prepare_rename(id, name, new_name);
            self.pool.put_export_table(table);
        }
        let renamed = self.pool.control(Control::VolumeRename {
            volume: id,
            name: new_name.to_owned(),
        });
        renamed
            .inspect_err(|_| self.pool.put_export_table(before))
            .map_err(|error| control_failure(what, &error))?;
        self.keep_exports(self.pool.rename_in_exports(id, name, new_name))
            .map_err(|failure| {
                let what = format!(
                    "volume '{name}' is '{new_name}' now, but its exports could not be kept"
                );
                Failure::new(
                    id::LOCAL_FILE,
                    what,
                    format!("{}: {}", failure.what, failure.why),
                )
                .remedy(failure.remedy)
            })?;
        volume(&self.pool, "cannot show the volume", new_name).map(Reply::Volume)
    }

    fn resize_volume(
        &self,
        name: &str,
        size_bytes: u64,
        shrink: bool,
        force: bool,
    ) -> Result<Reply, Failure> {
        let what = format!("cannot resize volume '{name}'");
        let found = volume(&self.pool, &what, name)?;
        // Only this command makes it smaller: if the volume grows meanwhile, the engine refuses.
        let shrink = shrink && size_bytes < found.size_bytes;
        let _bar = shrink
            .then(|| self.pool.bar(&what, &Target::Volume(found.id), force))
            .transpose()?;
        let resized = self.pool.control(Control::VolumeResize {
            volume: found.id,
            size_bytes,
            shrink,
        });
        resized.map_err(|error| control_failure(what.clone(), &error))?;
        volume(&self.pool, &what, name).map(Reply::Volume)
    }

    fn create_volume(
        &self,
        name: &str,
        size_bytes: u64,
        default: bool,
        force: bool,
    ) -> Result<Reply, Failure> {
        let what = format!("cannot create volume '{name}'");
        // Clients that name the new volume would get the other one.
        if let Some(other) = self.pool.other_volume_of(name) {
            let why = format!("an export of this name serves volume '{other}'");
            return Err(Failure::new(id::EXPORT_EXISTS, what, why)
                .remedy("choose another name, or remove that export first"));
        }
        let _bar = default
            .then(|| self.pool.bar(&what, &Target::Default, force))
            .transpose()?;
        let made = create_volume(&self.pool, name, size_bytes)?;
        {
            // Records that the volume was made here. Otherwise, after a stay elsewhere, it would
            // count as made there and not be served.
            let _one = lock(&self.keeping);
            if let Err(failure) = self.keep_exports(self.pool.export_table()) {
                tracing::warn!(%failure, "volume '{name}' is created, but its creation on this host could not be recorded");
            }
        }
        if default {
            self.change_exports(|pool| pool.set_default_volume(name))
                .map_err(|failure| Failure {
                    what: format!(
                        "volume '{name}' is created, but is not the default: {}",
                        failure.what
                    ),
                    ..failure
                })?;
        }
        Ok(Reply::Volume(made))
    }

    /// With another default, clients that entered by the previous one would get another volume when
    /// they reconnect.
    fn add_export(
        &self,
        name: &str,
        export: NamedExport,
        default: bool,
        force: bool,
    ) -> Result<Reply, Failure> {
        let what = format!("cannot make '{name}' the default export");
        // The default of the export that is already the default takes nothing away.
        let moves = default
            && !self
                .pool
                .exports()
                .iter()
                .any(|existing| existing.default && existing.name == name);
        let _bar = moves
            .then(|| self.pool.bar(&what, &Target::Default, force))
            .transpose()?;
        self.change_exports(|pool| pool.add_export(name, export, default))
    }

    fn remove_export(&self, name: &str, default: bool, force: bool) -> Result<Reply, Failure> {
        if default {
            // The default of another export takes nothing away, and is refused.
            let is_default = self
                .pool
                .exports()
                .iter()
                .any(|existing| existing.default && existing.name == name);
            let what = format!("the default is not taken from export '{name}'");
            let _bar = is_default
                .then(|| self.pool.bar(&what, &Target::Default, force))
                .transpose()?;
            return self.change_exports(|pool| pool.remove_default(name));
        }
        let _bar = self.pool.bar(
            &format!("cannot remove export '{name}'"),
            &Target::Export(name.to_owned()),
            force,
        )?;
        self.change_exports(|pool| pool.remove_export(name))
    }

    fn disconnect(&self, export: Option<&str>, client: Option<u32>) -> Result<Reply, Failure> {
        let Disconnected {
            clients,
            cut,
            unfinished,
        } = self.pool.disconnect(export, client)?;
        Ok(Reply::Disconnected {
            clients,
            cut,
            unfinished,
        })
    }
}

impl ControlHandler for Daemon {
    fn serves(&self) -> ServedPool {
        ServedPool {
            name: self.name.clone(),
            pool: self.pool.uuid(),
        }
    }

    fn handle(&self, command: Command) -> Result<Reply, Failure> {
        self.carry_out(command).map_err(|failure| {
            match self
                .pool
                .why_stopped()
                .filter(|_| failure.id == id::POOL_STOPPED)
            {
                Some(reason) => Failure::new(
                    id::POOL_STOPPED,
                    failure.what,
                    format!("the pool has stopped: {reason}"),
                )
                .remedy(crate::wording::next_step(&reason)),
                None => failure,
            }
        })
    }
}

impl Daemon {
    fn carry_out(&self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Identify => {
                let ServedPool { name, pool } = self.serves();
                Ok(Reply::Daemon {
                    name,
                    pool,
                    process: std::process::id(),
                    ending: lock(&self.end).requested.is_some(),
                    members: self.pool.open_members(),
                })
            }
            Command::Status => report(&self.pool).map(|report| Reply::Pool(Box::new(report))),
            Command::VolumeCreate {
                name,
                size_bytes,
                default,
                force,
            } => self.create_volume(&name, size_bytes, default, force),
            Command::VolumeSync { name, sync } => {
                set_sync(&self.pool, &name, sync).map(Reply::Volume)
            }
            Command::VolumeDedup { name, dedup } => {
                set_dedup(&self.pool, &name, dedup).map(Reply::Volume)
            }
            Command::VolumeCompression { name, compression } => {
                set_compression(&self.pool, &name, compression).map(Reply::Volume)
            }
            Command::VolumeResize {
                name,
                size_bytes,
                shrink,
                force,
            } => self.resize_volume(&name, size_bytes, shrink, force),
            Command::VolumeDelete { name, force } => self.delete_volume(&name, force),
            Command::VolumeRename { name, new_name } => self.rename_volume(&name, &new_name),
            Command::Sharing => count_sharing(&self.pool).map(Reply::Sharing),
            Command::PoolSet(change) => set_properties(&self.pool, &change).map(|()| Reply::Done),
            Command::ExportList => Ok(Reply::Exports {
                exports: self.pool.exports(),
                not_served: self.pool.not_served(),
            }),
            Command::ExportAdd {
                name,
                volume,
                read_only,
                description,
                default,
                force,
            } => self.add_export(
                &name,
                NamedExport {
                    volume,
                    read_only,
                    description,
                    ..NamedExport::default()
                },
                default,
                force,
            ),
            Command::ExportRemove {
                name,
                default,
                force,
            } => self.remove_export(&name, default, force),
            Command::ExportDisconnect { export, client } => {
                self.disconnect(export.as_deref(), client)
            }
            Command::Checkpoint => {
                self.pool.control(Control::Checkpoint).map_err(|error| {
                    control_failure("cannot write a checkpoint".to_owned(), &error)
                })?;
                Ok(Reply::Done)
            }
            Command::Scrub {
                action,
                bytes_per_second,
            } => scrub(&self.pool, action, bytes_per_second).map(|()| Reply::Done),
            Command::MemberOffline { member } => {
                self.change_member(MemberId(member), |pool| pool.take_out(MemberId(member)))
            }
            Command::MemberOnline { member, path } => {
                let path = path.or_else(|| self.where_it_was(MemberId(member)));
                self.change_member(MemberId(member), |pool| {
                    pool.bring_back(MemberId(member), path.as_deref())
                })
            }
            Command::MemberReplace {
                member,
                path,
                overwrite,
                power_safe,
                partitioning,
            } => {
                let (member, newcomer) = (MemberId(member), Newcomer { path, overwrite });
                let what = format!("cannot replace member {member}");
                let replace = |pool: &Pool| {
                    pool.on_partition(
                        &newcomer,
                        partitioning,
                        Place::Member { member, power_safe },
                        &what,
                        |newcomer| pool.replace(member, newcomer, power_safe),
                    )
                };
                let taken = self.change_member(member, replace)?;
                // The new device has a slot of its own while the member is in use.
                let is_copy = |slot: &crate::report::MemberReport| {
                    slot.replaces == Some(member.0) && slot.state == "spare"
                };
                let copy = report(&self.pool)?.members.into_iter().find(is_copy);
                Ok(copy.map_or(taken, |copy| Reply::Member(Box::new(copy))))
            }
            Command::SpareAdd {
                path,
                overwrite,
                small,
                partitioning,
            } => {
                let what = format!("cannot add {} as a spare", path.display());
                let add = |newcomer: &Newcomer| {
                    if small {
                        self.pool.add_spare(newcomer)
                    } else {
                        self.pool.add_fitting_spare(newcomer)
                    }
                };
                let slot = self.pool.on_partition(
                    &Newcomer { path, overwrite },
                    partitioning,
                    Place::Spare { small },
                    &what,
                    add,
                )?;
                self.change_member(slot, |_| Ok(()))
            }
            Command::JournalAdd {
                path,
                overwrite,
                power_safe,
                partitioning,
            } => {
                let what = format!("cannot add {} as a journal device", path.display());
                let add = |newcomer: &Newcomer| self.pool.add_journal_device(newcomer, power_safe);
                let slot = self.pool.on_partition(
                    &Newcomer { path, overwrite },
                    partitioning,
                    Place::Journal { power_safe },
                    &what,
                    add,
                )?;
                self.change_member(slot, |_| Ok(()))
            }
            Command::Grow { members } => {
                let members: Vec<MemberId> = members.into_iter().map(MemberId).collect();
                self.pool.grow(members)?;
                Ok(Reply::Pool(Box::new(report(&self.pool)?)))
            }
            Command::SpareRemove { member } => {
                self.change_member(MemberId(member), |pool| pool.remove(MemberId(member)))
            }
            Command::RecordStart { name } => {
                record(&self.pool, name.as_deref()).map(Reply::Recorded)
            }
            Command::RecordTake { token, end } => self
                .pool
                .take_recorded(token, end)
                .map(Reply::Recorded)
                .ok_or_else(|| {
                    let why = "nothing was taken for too long, and the recording has ended";
                    Failure::new(id::RECORDING, "cannot continue recording", why)
                        .remedy("requests taken before are valid; start again for more")
                }),
            Command::Shutdown { export, force } => self.end(export, force),
        }
    }
}

/// Starts recording the requests of a volume.
fn record(pool: &Pool, name: Option<&str>) -> Result<crate::recorder::Lot, Failure> {
    let what = name.map_or("cannot record all volumes".to_owned(), |name| {
        format!("cannot record volume '{name}'")
    });
    let found = name.map(|name| volume(pool, &what, name)).transpose()?;
    pool.start_recording(found.map(|found| found.id))
        .ok_or_else(|| {
            Failure::new(
                id::RECORDING,
                what,
                "another recording of this pool is in progress",
            )
            .remedy("wait for its end; an abandoned one ends within 30 s")
        })
}

/// Paths of the members and spares.
fn member_paths(report: &PoolReport) -> Vec<PathBuf> {
    let known = report
        .members
        .iter()
        .filter(|member| !member.path.is_empty() && member.state != "removed");
    known
        .map(|member| offline::absolute(member.path.as_ref()))
        .collect()
}

/// The failure for the engine's error.
pub fn control_failure(what: String, error: &ControlError) -> Failure {
    let (id, remedy) = match error {
        ControlError::NoVolume => (id::VOLUME_UNKNOWN, "see `windrow volume list POOL`"),
        ControlError::NameTaken => (id::VOLUME_EXISTS, "choose another name"),
        ControlError::Invalid(_) => (
            id::POOL_VALUE,
            "nothing was changed; give what is allowed, or try again when the reason is gone",
        ),
        ControlError::Smaller { .. } => (
            id::POOL_VALUE,
            "give --shrink to lose what lies beyond the new size",
        ),
        ControlError::Member { .. } => (id::MEMBER_STATE, "see `windrow pool status`"),
        ControlError::NoSpace(_) => (id::POOL_NO_SPACE, "delete or trim something first"),
        ControlError::Stopped => (id::POOL_STOPPED, "see the log of the daemon for the reason"),
    };
    Failure::new(id, what, error).remedy(remedy)
}

/// The report of a running pool.
pub fn report(pool: &Pool) -> Result<PoolReport, Failure> {
    pool.report().ok_or_else(|| no_state(pool))
}

fn no_state(pool: &Pool) -> Failure {
    let why = pool
        .stop_reason()
        .unwrap_or_else(|| "the engine failed".to_owned());
    Failure::new(id::POOL_STOPPED, "cannot read the state of the pool", why)
        .remedy("restart the daemon")
}

fn volume(pool: &Pool, what: &str, name: &str) -> Result<VolumeReport, Failure> {
    let found = pool.volume(name).ok_or_else(|| no_state(pool))?;
    found.ok_or_else(|| {
        Failure::new(
            id::VOLUME_UNKNOWN,
            what,
            format!("there is no volume '{name}'"),
        )
        .remedy("see `windrow volume list POOL`")
    })
}

/// Creates a volume.
pub fn create_volume(pool: &Pool, name: &str, size_bytes: u64) -> Result<VolumeReport, Failure> {
    let what = format!("cannot create volume '{name}'");
    match pool.control(Control::VolumeCreate {
        name: name.to_owned(),
        size_bytes,
    }) {
        Ok(_) => volume(pool, &what, name),
        Err(error) => Err(control_failure(what, &error)),
    }
}

/// Sets the effect of flushes of a volume.
pub fn set_sync(pool: &Pool, name: &str, sync: SyncMode) -> Result<VolumeReport, Failure> {
    let what = format!("cannot set the flushes of volume '{name}'");
    let id = volume(pool, &what, name)?.id;
    pool.control(Control::VolumeSync { volume: id, sync })
        .map_err(|error| control_failure(what.clone(), &error))?;
    volume(pool, &what, name)
}

/// Sets the compression of blocks written to a volume from now on.
pub fn set_compression(
    pool: &Pool,
    name: &str,
    compression: Compression,
) -> Result<VolumeReport, Failure> {
    let what = format!("cannot set the compression of volume '{name}'");
    let id = volume(pool, &what, name)?.id;
    pool.control(Control::VolumeCompression {
        volume: id,
        compression,
    })
    .map_err(|error| control_failure(what.clone(), &error))?;
    volume(pool, &what, name)
}

/// Sets the deduplication of blocks written to a volume from now on.
pub fn set_dedup(pool: &Pool, name: &str, dedup: Dedup) -> Result<VolumeReport, Failure> {
    let what = format!("cannot set the deduplication of volume '{name}'");
    let id = volume(pool, &what, name)?.id;
    pool.control(Control::VolumeDedup { volume: id, dedup })
        .map_err(|error| control_failure(what.clone(), &error))?;
    volume(pool, &what, name)
}

/// Counts what each volume keeps for itself.
pub fn count_sharing(pool: &Pool) -> Result<windrow_engine::Sharing, Failure> {
    let what = || "cannot count what volumes share".to_owned();
    match pool.control(Control::CountSharing) {
        Ok(ControlReply::Sharing(sharing)) => Ok(sharing),
        Ok(_) => Err(Failure::new(
            id::POOL_STOPPED,
            what(),
            "the engine answered something else",
        )),
        Err(error) => Err(control_failure(what(), &error)),
    }
}

/// Changes properties; absent ones stay.
///
/// # Errors
/// A value is not valid, or the engine refuses it.
pub fn set_properties(pool: &Pool, change: &PropertyChange) -> Result<(), Failure> {
    pool.change_properties(|properties| apply(properties, change))
}

fn apply(properties: &mut PropertyReport, change: &PropertyChange) -> Result<(), Failure> {
    let what = "cannot set the properties";
    if let Some(spare) = change.spare_per_mille {
        properties.spare_per_mille = spare;
    }
    if let Some(age) = change.seal_age_ms {
        properties.seal_age_ms = age;
    }
    properties.flush_age_ms = change.flush_age_ms.unwrap_or(properties.flush_age_ms);
    if let Some(policy) = &change.victim_policy {
        let Some(rule) = VictimRule::from_name(policy) else {
            let remedy = "use greedy, cost-benefit, age-root, fifo, choices:N, window:N (N from 1 to 65535) or gain";
            return Err(Failure::new(
                id::POOL_VALUE,
                what,
                format!("there is no victim policy '{policy}'"),
            )
            .remedy(remedy));
        };
        properties.victim_policy = rule.name();
    }
    if let Some(placement) = &change.placement {
        if PlacementKind::from_name(placement)
            .and_then(PlacementKind::code)
            .is_none()
        {
            let offered = PlacementKind::ALL
                .into_iter()
                .filter(|kind| kind.code().is_some())
                .map(PlacementKind::name);
            let remedy = format!("use {}", offered.collect::<Vec<_>>().join(", "));
            return Err(Failure::new(
                id::POOL_VALUE,
                what,
                format!("a pool has no placement '{placement}'"),
            )
            .remedy(remedy));
        }
        properties.placement.clone_from(placement);
    }
    if let Some(discard) = change.discard {
        properties.discard = discard;
    }
    properties.rebuild_rate = change.rebuild_rate.unwrap_or(properties.rebuild_rate);
    properties.scrub_interval_days = change
        .scrub_interval_days
        .unwrap_or(properties.scrub_interval_days);
    properties.read_latency_bound_ms = change
        .read_latency_bound_ms
        .unwrap_or(properties.read_latency_bound_ms);
    if let Some(warn_at) = &change.warn_at {
        if warn_at.len() > 4 {
            return Err(Failure::new(
                id::POOL_VALUE,
                what,
                format!("{} warnings are given", warn_at.len()),
            )
            .remedy("give four at most"));
        }
        properties.warn_at.clone_from(warn_at);
    }
    properties.rebuild_rate_min = change
        .rebuild_rate_min
        .unwrap_or(properties.rebuild_rate_min);
    if let Some(reduction) = &change.reduction {
        if Reduction::from_name(reduction).is_none() {
            return Err(Failure::new(
                id::POOL_VALUE,
                what,
                format!("reduction is used for nothing called '{reduction}'"),
            )
            .remedy("use spare or capacity"));
        }
        properties.reduction.clone_from(reduction);
    }
    Ok(())
}

/// Starts, pauses, resumes or stops a scrub. Only a start takes a limit of bytes each second;
/// `None` and 0 are no limit. A start waits, for a bounded time, until the in-flight work of a
/// stopped scrub has ended.
///
/// # Errors
/// The scrub is not in the state that the action needs, a limit comes with another action, or the
/// pool has stopped.
pub fn scrub(
    pool: &Pool,
    action: ScrubAction,
    bytes_per_second: Option<u64>,
) -> Result<(), Failure> {
    let (verb, command) = match action {
        ScrubAction::Start => (
            "start",
            ScrubCommand::Start {
                unix_s: unix_now(),
                bytes_per_second: bytes_per_second.unwrap_or(0),
            },
        ),
        ScrubAction::Pause => ("pause", ScrubCommand::Pause),
        ScrubAction::Resume => ("resume", ScrubCommand::Resume),
        ScrubAction::Stop => ("stop", ScrubCommand::Stop),
    };
    let what = format!("cannot {verb} a scrub");
    if bytes_per_second.is_some() && action != ScrubAction::Start {
        return Err(Failure::new(
            id::POOL_VALUE,
            what,
            "a rate can be given to a new scrub only",
        )
        .remedy("stop the scrub and start it with the new rate"));
    }
    if action == ScrubAction::Start {
        pool.check_sizes();
    }
    let end = Instant::now() + ENDING;
    loop {
        let why = match pool.control(Control::Scrub(command)) {
            Ok(_) => return Ok(()),
            Err(ControlError::Invalid(why)) => why,
            Err(error) => return Err(control_failure(what, &error)),
        };
        let is_ending = || {
            !pool.is_read_only()
                && pool
                    .status()
                    .is_some_and(|now| now.scrub.state == ScrubState::Stopped)
        };
        if action != ScrubAction::Start || Instant::now() >= end || !is_ending() {
            return Err(
                Failure::new(id::SCRUB_STATE, what, why).remedy("see `windrow pool status`")
            );
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests;
