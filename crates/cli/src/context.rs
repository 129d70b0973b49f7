//! How a command reaches a pool: through the daemon that serves it, or by its members if none does.

use clap::Args;
use std::path::PathBuf;
use windrow_engine::api::OpenReport;
use windrow_host::control::{Command, ControlClient, ControlHandler, Reply};
use windrow_host::daemon::{Daemon, control_failure};
use windrow_host::failure::{Failure, id};
use windrow_host::offline::{self, FoundPool, OpenRequest, PoolTarget};
use windrow_host::registry::Registry;
use windrow_host::report::PoolReport;
use windrow_host::{HostOptions, Pool, paths};

/// Where a pool is.
#[derive(Args, Clone, Debug, Default)]
pub struct PoolPlace {
    /// Members, separated by commas; else the ones known from creation or import, and what block devices bear if one of them is not there.
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub members: Vec<PathBuf>,
    /// Folder to look for members in, and nowhere else (may be repeated); else all block devices.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,
    /// Control socket of the daemon.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

impl PoolPlace {
    /// The pool `name` at this place.
    pub fn target(&self, name: Option<&str>) -> PoolTarget {
        PoolTarget { name: name.map(str::to_owned), members: self.members.clone(), dirs: self.dir.clone() }
    }

    /// The control socket of the pool `name`.
    pub fn control_socket(&self, name: &str) -> PathBuf {
        self.control.clone().unwrap_or_else(|| paths::control_socket(&paths::run_dir(), name))
    }
}

/// The registry of this user or host.
pub fn registry() -> Registry {
    Registry::new(&paths::state_dir())
}

/// A daemon that answers for this pool.
///
/// # Errors
/// Others could have put its socket there.
pub fn daemon_of(name: &str, place: &PoolPlace) -> Result<Option<ControlClient>, Failure> {
    if place.control.is_none() && paths::trusted_run_dir()?.is_none() {
        return Ok(None);
    }
    Ok(ControlClient::connect(&place.control_socket(name)))
}

/// Asks the daemon; if there is none, opens the pool, does it, and closes the pool again.
pub fn ask(name: &str, place: &PoolPlace, command: Command) -> Result<Reply, Failure> {
    ask_with(name, place, command, false)
}

/// The same; `force`: open the pool even if another host has it, or too many members are missing.
pub fn ask_with(name: &str, place: &PoolPlace, command: Command, force: bool) -> Result<Reply, Failure> {
    if let Some(mut client) = daemon_of(name, place)? {
        return client.ask(command);
    }
    if place.control.is_some() {
        let socket = place.control_socket(name);
        return Err(Failure::new(id::NO_DAEMON, format!("cannot reach the daemon of pool '{name}'"), format!("nobody listens at {}", socket.display()))
            .remedy("start it with `windrow serve`, or leave --control out"));
    }
    ask_members(name, place, command, force)
}

fn ask_members(name: &str, place: &PoolPlace, command: Command, force: bool) -> Result<Reply, Failure> {
    let registry = registry();
    let found = offline::locate(&place.target(Some(name)), &registry)?;
    let request = OpenRequest { read_only: matches!(command, Command::Status | Command::Sharing), force, ..OpenRequest::default() };
    let opened = OpenedAtRest::open(&found, &registry, &request)?;
    let daemon = Daemon::new(opened.pool.clone(), &found.name, Some(registry));
    let reply = daemon.handle(command);
    drop(daemon);
    let closed = if request.read_only { Ok(()) } else { opened.close(false) };
    let mut reply = reply?;
    closed?;
    if let Reply::Pool(report) = &mut reply {
        report.served = false;
    }
    Ok(reply)
}

/// A pool that is open in this process only, with nobody served.
pub struct OpenedAtRest {
    /// The pool.
    pub pool: Pool,
    /// What recovery found.
    pub report: OpenReport,
    name: String,
}

impl OpenedAtRest {
    /// Opens the pool with the exports that are known of it.
    pub fn open(found: &FoundPool, registry: &Registry, request: &OpenRequest) -> Result<Self, Failure> {
        let opened = offline::open(found, registry, request)?;
        let exports = registry.load(&found.name)?.map(|entry| entry.exports).unwrap_or_default();
        let options = HostOptions { exports, ..HostOptions::default() };
        let pool = Pool::start(opened.engine, opened.members, opened.buffers, options)?;
        Ok(Self { pool, report: opened.report, name: found.name.clone() })
    }

    /// Closes it cleanly.
    pub fn close(self, export: bool) -> Result<(), Failure> {
        self.pool.shutdown(export).map_err(|error| control_failure(format!("cannot close pool '{}'", self.name), &error))
    }
}

/// The report of a pool, served or not.
pub fn status(name: &str, place: &PoolPlace) -> Result<PoolReport, Failure> {
    match ask(name, place, Command::Status)? {
        Reply::Pool(report) => Ok(*report),
        _ => Err(unexpected()),
    }
}

/// The daemon answered something else than what was asked.
pub fn unexpected() -> Failure {
    Failure::new(id::NO_DAEMON, "the daemon did not answer the question", "its answer is of another kind").remedy("use the windrow command of the same version")
}
