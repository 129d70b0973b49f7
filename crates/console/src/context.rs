//! A command's access to a pool: through the daemon that serves it, or by its members if none does.

use crate::progress::Progress;
use crate::values::{MAP_MEMORY, Size, size_within};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windrow_device::scan::identity;
use windrow_engine::OpenReport;
use windrow_host::control::{Command, ControlClient, ControlHandler, Reply};
use windrow_host::daemon::{Daemon, control_failure};
use windrow_host::failure::{Failure, id};
use windrow_host::offline::{self, FoundPool, OpenRequest, OpenedPool, PoolTarget};
use windrow_host::registry::Registry;
use windrow_host::report::PoolReport;
use windrow_host::served::{OpenMember, Served};
use windrow_host::{ExportTable, HostOptions, KeptExports, Pool, paths};
use windrow_types::{Uuid, VolumeId};

/// Selection of a pool's members, search folders and daemon.
#[derive(Args, Clone, Debug, Default)]
pub struct PoolPlace {
    /// Members, separated by commas; else those known from creation or import, and block devices if
    /// one of these is missing.
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub members: Vec<PathBuf>,
    /// Folder to search for members, and nowhere else (may be repeated); else all block devices.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,
    /// Control socket of the daemon.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Most bytes of memory for maps of a pool that this command opens; else a quarter of the
    /// machine's or the control group's memory (4 GiB map 1 TiB of data). 64K to 1T.
    #[arg(long, value_name = "SIZE", value_parser = size_within(*MAP_MEMORY.start(), *MAP_MEMORY.end()))]
    pub map_memory: Option<Size>,
}

/// Time for trying to get the members' locks: a daemon that has just ended may still hold them.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(3);

impl PoolPlace {
    /// The pool `name` at this place.
    pub fn target(&self, name: Option<&str>) -> PoolTarget {
        PoolTarget {
            name: name.map(str::to_owned),
            members: self.members.clone(),
            dirs: self.dir.clone(),
        }
    }

    /// True if members or folders are named: only the pool there is selected, and no other one of
    /// its name.
    fn is_named(&self) -> bool {
        !self.members.is_empty() || !self.dir.is_empty()
    }

    /// Options for opening the pool here.
    pub fn request(&self) -> OpenRequest {
        let mut request = OpenRequest {
            lock_patience: LOCK_PATIENCE,
            ..OpenRequest::default()
        };
        request.limits.map_bytes = self
            .map_memory
            .map_or_else(windrow_host::memory::default_map_bytes, |map| map.0);
        request
    }

    /// The control socket of the pool `name`.
    pub fn control_socket(&self, name: &str) -> PathBuf {
        self.control
            .clone()
            .unwrap_or_else(|| paths::control_socket(&paths::run_dir(), name))
    }
}

/// The registry of this user or host.
pub fn registry() -> Registry {
    Registry::new(&paths::state_dir())
}

/// The control socket of a pool; `None` if the folder for sockets does not exist, so that no daemon
/// can have one.
fn socket(name: &str, place: &PoolPlace) -> Result<Option<PathBuf>, Failure> {
    if place.control.is_some() {
        return Ok(Some(place.control_socket(name)));
    }
    // Sockets are named after pools: for an identifier the registry has the name.
    let known = registry().find(name).ok().flatten();
    let usual = place.control_socket(known.as_ref().map_or(name, |entry| &entry.name));
    let has_folder = paths::trusted_run_dir()?.is_some();
    // Its last daemon may have had its socket elsewhere.
    let elsewhere = known
        .and_then(|entry| entry.control)
        .filter(|control| control.exists() && !usual.exists());
    Ok(elsewhere.or(has_folder.then_some(usual)))
}

/// The daemon that answers for this pool.
fn connect(name: &str, place: &PoolPlace) -> Result<Option<ControlClient>, Failure> {
    socket(name, place)?.map_or(Ok(None), |socket| {
        ControlClient::connect(&socket, Some(name))
    })
}

/// The pool that the daemon at the socket of this name serves.
fn served_at(name: &str, place: &PoolPlace) -> Result<Option<Uuid>, Failure> {
    let Some(mut daemon) =
        socket(name, place)?.map_or(Ok(None), |socket| ControlClient::connect(&socket, None))?
    else {
        return Ok(None);
    };
    match daemon.ask(Command::Identify)? {
        Reply::Daemon { pool, .. } => Ok(Some(pool)),
        _ => Err(unexpected()),
    }
}

/// The report of the pool that a daemon serves.
pub fn report_of(daemon: &mut ControlClient) -> Result<PoolReport, Failure> {
    report_in(daemon.ask(Command::Status)?)
}

/// A daemon that answers for this pool.
///
/// # Errors
/// - Others could have put its socket there.
/// - Members or folders are named, and the pool there is another one than the daemon serves under
///   the name, or a copy of it.
pub fn daemon_of(name: &str, place: &PoolPlace) -> Result<Option<ControlClient>, Failure> {
    let Some(mut daemon) = connect(name, place)? else {
        return Ok(None);
    };
    if place.is_named() {
        let target = place.target(Some(name));
        let (named, paths) = match offline::daemon_of(&target, &Served::now()) {
            Some(daemon) => (daemon.pool, place.members.clone()),
            None => {
                let found = offline::locate(&target, &registry())?;
                (
                    found.pool,
                    found
                        .members
                        .into_iter()
                        .map(|member| member.path)
                        .collect(),
                )
            }
        };
        let Reply::Daemon {
            pool: served,
            members,
            ..
        } = daemon.ask(Command::Identify)?
        else {
            return Err(unexpected());
        };
        let refused = |why: String, remedy: String| {
            Err(Failure::new(
                id::POOL_UNKNOWN,
                format!("cannot tell which pool '{name}' is meant"),
                why,
            )
            .remedy(remedy))
        };
        if served != named {
            let why = format!(
                "a daemon serves pool {served} by this name, and the members that are named are those of pool {named}"
            );
            return refused(
                why,
                format!(
                    "name the one at rest by its identifier, {named}, or leave --members and --dir out if the served one is meant"
                ),
            );
        }
        if let Some(copy) = paths.iter().find(|path| is_copy(path, &members)) {
            let why = format!(
                "a daemon serves the pool, and {} is a copy of a member that it has elsewhere",
                copy.display()
            );
            return refused(why, "leave --members and --dir out if the served pool is meant; a copy can be used while no daemon serves the pool".to_owned());
        }
    }
    Ok(Some(daemon))
}

/// True if the member at this path is also open in a daemon, as another file or device.
fn is_copy(path: &Path, open: &[OpenMember]) -> bool {
    // A member that a daemon has open is not read, and is no copy.
    let Ok(Some(member)) = offline::examine(&offline::member_path(path)) else {
        return false;
    };
    let here = identity(&member.path).ok().flatten();
    open.iter()
        .any(|open| open.uuid == member.label.member_uuid && Some(open.identity) != here)
}

/// True if a daemon serves this very pool.
pub fn is_served(found: &FoundPool, place: &PoolPlace) -> Result<bool, Failure> {
    Ok(served_at(&found.name, place)? == Some(found.pool))
}

/// Refuses an option that gives something up if it would apply to whatever pool is the only one
/// there.
///
/// # Errors
/// The option was given, and neither the pool nor its members are named.
pub fn must_be_named(
    what: &str,
    name: Option<&str>,
    place: &PoolPlace,
    is_chosen: bool,
) -> Result<(), Failure> {
    if !is_chosen || name.is_some() || !place.members.is_empty() {
        return Ok(());
    }
    let why =
        "--force, --discard-journal and --replace-known give something up, and no pool is named";
    Err(Failure::new(id::USAGE, what, why).remedy("name the pool, or its members with --members"))
}

/// Checks that the known pool of the same name, which is to be replaced in the registry, is not in
/// use.
///
/// # Errors
/// A daemon serves it.
pub fn must_not_replace_served(registry: &Registry, name: &str, pool: Uuid) -> Result<(), Failure> {
    let Some(known) = registry
        .load(name)
        .ok()
        .flatten()
        .filter(|entry| entry.pool != pool)
    else {
        return Ok(());
    };
    // At any socket: its daemon may use another one than that of its name, or of this command.
    if Served::now().daemon_with(known.pool).is_none() {
        return Ok(());
    }
    let why = format!(
        "the pool that is known by this name ({}) is served now",
        known.pool
    );
    Err(Failure::new(
        id::POOL_BUSY,
        format!("pool '{name}' does not replace the known one"),
        why,
    )
    .remedy("stop its daemon first"))
}

/// The members of a pool that must be at rest. A daemon of another pool of its name does not matter
/// if the members are named.
///
/// # Errors
/// A daemon serves it (`what` names the action), the given socket is that of another pool's daemon,
/// or the pool is not found.
pub fn at_rest(what: &str, name: &str, place: &PoolPlace) -> Result<FoundPool, Failure> {
    let busy =
        || Failure::new(id::POOL_BUSY, what, "a daemon serves it").remedy("stop the daemon first");
    if !place.is_named()
        && let Some(mut daemon) = connect(name, place)?
    {
        if place.control.is_some() {
            // Checks that it is the daemon of this pool.
            daemon.ask(Command::Identify)?;
        }
        return Err(busy());
    }
    let found =
        offline::locate(&place.target(Some(name)), &registry()).map_err(|failure| match failure
            .id
            .as_str()
        {
            id::POOL_BUSY => Failure {
                what: what.to_owned(),
                ..failure
            },
            _ => failure,
        })?;
    if place.is_named() && is_served(&found, place)? {
        Err(busy())
    } else {
        Ok(found)
    }
}

/// Asks the daemon; without one, opens the pool, carries the command out, and closes the pool
/// again.
pub fn ask(name: &str, place: &PoolPlace, command: Command) -> Result<Reply, Failure> {
    ask_with(name, place, command, false)
}

/// As [`ask`]; `force`: open the pool even if another host has it, or too many members are missing.
pub fn ask_with(
    name: &str,
    place: &PoolPlace,
    command: Command,
    force: bool,
) -> Result<Reply, Failure> {
    if let Some(mut client) = daemon_of(name, place)? {
        return client.ask(command);
    }
    if place.control.is_some() {
        let socket = place.control_socket(name);
        return Err(Failure::new(
            id::NO_DAEMON,
            format!("cannot reach the daemon of pool '{name}'"),
            format!("no daemon listens at {}", socket.display()),
        )
        .remedy("start it with `windrow serve`, or leave --control out"));
    }
    ask_members(name, place, command, force)
}

/// Effect of a command that only makes sense for a daemon; on a pool at rest it would cause an open
/// and writes for nothing.
fn of_daemons_only(command: &Command) -> Option<&'static str> {
    match command {
        Command::ExportDisconnect { .. } => Some("no client is disconnected"),
        Command::RecordStart { .. } | Command::RecordTake { .. } => Some("nothing is recorded"),
        _ => None,
    }
}

fn ask_members(
    name: &str,
    place: &PoolPlace,
    command: Command,
    force: bool,
) -> Result<Reply, Failure> {
    if let Some(what) = of_daemons_only(&command) {
        let why = format!("no daemon serves pool '{name}' here");
        return Err(Failure::new(id::NO_DAEMON, what, why)
            .remedy("start it with `windrow serve`, or check the name"));
    }
    let registry = registry();
    let found = offline::locate(&place.target(Some(name)), &registry)?;
    let request = OpenRequest {
        read_only: matches!(
            command,
            Command::Status | Command::Sharing | Command::ExportList
        ),
        force,
        ..place.request()
    };
    let opened = OpenedAtRest::open(&found, &registry, &request)?;
    let daemon = Daemon::new(opened.pool.clone(), &found.name, Some(registry));
    let reply = watched(&opened.pool, || daemon.handle(command));
    drop(daemon);
    let closed = if request.read_only {
        Ok(())
    } else {
        opened.close(false)
    };
    let mut reply = reply?;
    closed?;
    if let Reply::Pool(report) = &mut reply {
        report.served = false;
        // Only the pool was opened read-only, to look at it; its volumes are not read-only.
        report
            .volumes
            .iter_mut()
            .for_each(|volume| volume.read_only = false);
    }
    Ok(reply)
}

/// The report of a pool at rest that was found; nothing is written.
pub fn look_at_rest(
    found: &FoundPool,
    registry: &Registry,
    place: &PoolPlace,
) -> Result<PoolReport, Failure> {
    let opened = OpenedAtRest::open(
        found,
        registry,
        &OpenRequest {
            read_only: true,
            ..place.request()
        },
    )?;
    let report = windrow_host::daemon::report(&opened.pool)?;
    Ok(PoolReport {
        served: false,
        ..report
    })
}

/// Runs `work` on a pool, and shows the progress of zeroing a device.
fn watched<T>(pool: &Pool, work: impl FnOnce() -> T) -> T {
    const PAUSE: Duration = Duration::from_millis(200);
    std::thread::scope(|scope| {
        let (over, is_over) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let mut progress = Progress::new("zeroing");
            while is_over.recv_timeout(PAUSE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                if let Some((done, all)) = pool.zeroing() {
                    progress.bytes(done, all);
                }
            }
        });
        let result = work();
        drop(over);
        result
    })
}

/// The exports over the pool's volumes, and the volumes that are not served because they were made
/// elsewhere.
pub fn adopt(kept: KeptExports, opened: &OpenedPool) -> (ExportTable, Vec<String>) {
    let status = opened.engine.status();
    kept.adopt(
        status
            .volumes
            .iter()
            .filter(|volume| !volume.deleting)
            .map(|volume| (volume.id, volume.name.as_str())),
    )
}

/// A pool that is open only in this process, without clients.
pub struct OpenedAtRest {
    /// The pool.
    pub pool: Pool,
    /// Findings of recovery.
    pub report: OpenReport,
    /// Volumes that are not served because they were made elsewhere.
    pub not_served: Vec<String>,
    name: String,
}

/// The last volume that was made, 0 if there is none.
pub fn last_volume(opened: &OpenedPool) -> VolumeId {
    opened
        .engine
        .status()
        .volumes
        .iter()
        .map(|volume| volume.id)
        .max()
        .unwrap_or(VolumeId(0))
}

/// Records that volumes made elsewhere are not served: from now on this host has the pool, and the
/// next start would take them for its own.
fn keep_closed(
    found: &FoundPool,
    registry: &Registry,
    exports: ExportTable,
    last: VolumeId,
) -> Result<(), Failure> {
    let Some(mut entry) = registry.load_of(&found.name, found.pool)? else {
        return Ok(());
    };
    entry.exports = exports;
    entry.last_volume = Some(last);
    registry.save(&entry)
}

impl OpenedAtRest {
    /// Opens the pool with its known exports.
    pub fn open(
        found: &FoundPool,
        registry: &Registry,
        request: &OpenRequest,
    ) -> Result<Self, Failure> {
        // After the start the pool is this host's, so only the pool itself may fail there.
        let kept = registry.exports_of(found)?;
        let known = registry
            .load_of(&found.name, found.pool)?
            .map(|entry| entry.known)
            .unwrap_or_default();
        let opened = offline::open(found, registry, request)?;
        opened
            .report
            .notes
            .iter()
            .for_each(|note| tracing::warn!("pool '{}': {note}", found.name));
        let (exports, not_served) = adopt(kept, &opened);
        let last = last_volume(&opened);
        let options = HostOptions {
            exports: exports.clone(),
            known,
            ..HostOptions::default()
        };
        let pool = Pool::start(opened.engine, opened.members, opened.buffers, options)?;
        if !request.read_only
            && !not_served.is_empty()
            && let Err(failure) = keep_closed(found, registry, exports, last)
        {
            drop(pool.shutdown(false));
            return Err(failure);
        }
        Ok(Self {
            pool,
            report: opened.report,
            not_served,
            name: found.name.clone(),
        })
    }

    /// Closes it cleanly.
    pub fn close(self, export: bool) -> Result<(), Failure> {
        self.pool
            .shutdown(export)
            .map_err(|error| control_failure(format!("cannot close pool '{}'", self.name), &error))
    }
}

/// The report of a pool, served or not.
pub fn status(name: &str, place: &PoolPlace) -> Result<PoolReport, Failure> {
    report_in(ask(name, place, Command::Status)?)
}

fn report_in(reply: Reply) -> Result<PoolReport, Failure> {
    match reply {
        Reply::Pool(report) => Ok(*report),
        _ => Err(unexpected()),
    }
}

/// The failure for an answer of the wrong kind.
pub fn unexpected() -> Failure {
    Failure::new(
        id::NO_DAEMON,
        "the daemon did not answer the question",
        "its answer is of another kind",
    )
    .remedy("use the windrow command of the same version")
}
