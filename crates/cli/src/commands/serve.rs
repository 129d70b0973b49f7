//! `serve`: the daemon. Opens a pool, serves its volumes over NBD, answers on the control socket,
//! ends cleanly on SIGTERM, SIGINT or SIGHUP.
//!
//! Order of the start: members locked and recovered, control socket, metrics, NBD listeners, then
//! the ready line. Order of the end: NBD drains, the pool drains and writes a checkpoint, the
//! requester of the end is answered, the sockets are removed.

mod alone;
mod child;
mod config;
mod connections;
mod metrics;
mod rights;

pub use child::ChildServer;

use clap::Args;
use config::{Config, PATIENCE_MAX_S, PENDING_MAX, PENDING_MIN, WORKERS_MAX};
use connections::ConnectionArguments;
use metrics::MetricsArguments;
use rights::{Rights, SocketMode};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windrow_console::context::{self, PoolPlace};
use windrow_console::output::Output;
use windrow_console::values::{Size, number_within, size_within};
use windrow_device::VolatileOptions;
use windrow_device::host::{MemoryLock, lock_memory, raise_descriptor_limit};
use windrow_engine::InjectedBug;
use windrow_engine::OpenReport;
use windrow_host::arrivals::{self, Places};
use windrow_host::control::ControlServer;
use windrow_host::daemon::{self, Daemon};
use windrow_host::failure::id;
use windrow_host::offline::{self, MemberBackEnd, OpenRequest, OpenedPool, ScratchSpec};
use windrow_host::report::MemberReport;
use windrow_host::schedule::unix_now;
use windrow_host::text::quoted;
use windrow_host::{ExportTable, Failure, HostOptions, KnownMember, Pool, paths};
use windrow_nbd::{Listen, Server, ServerOptions};

/// Arguments of `serve`.
#[derive(Args, Debug, Default)]
#[command(after_help = "Examples:
  windrow serve tank --nbd unix:/run/windrow/tank.nbd
  windrow serve tank --nbd tcp:127.0.0.1:10809 --metrics 127.0.0.1:9464
  windrow serve --members a.img,b.img,c.img,d.img --nbd unix:/tmp/tank.nbd
  windrow serve --config /etc/windrow/tank.toml

Configuration file (all fields optional; the command line wins):
  pool = \"tank\"
  members = [\"/dev/sdb\", \"/dev/sdc\"]
  nbd = [\"unix:/run/windrow/tank.nbd\"]
  default = \"data\"           # volume for clients that name no export
  metrics = \"127.0.0.1:9464\"   # also: metrics_hosts = [\"NAME\"], metrics_connections
  control = \"/run/windrow/tank.control\"
  socket_mode = \"0660\"
  socket_group = \"windrow\"
  event_command = \"/usr/local/bin/on-windrow-event\"
  pending_bytes = \"64M\"
  request_memory_bytes = \"256M\"
  connections = 256            # also: connections_per_client, connections_per_export, handshakes
  stall_seconds = 60           # also: handshake_seconds, keepalive_seconds
  map_bytes = \"4G\"
  wait_for_members = 30        # seconds
  allow_remote = true          # TCP addresses that other hosts can reach

Ends on SIGTERM, SIGINT and SIGHUP (ignored under `nohup`); a second SIGTERM or SIGINT ends it at once, as a power cut would.")]
pub struct ServeArguments {
    /// Pool; may be left out if its members are given.
    pool: Option<String>,
    #[command(flatten)]
    place: PoolPlace,
    /// Address for NBD clients: unix:PATH or tcp:ADDRESS:PORT (may be repeated).
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<Listen>,
    /// Also serve this volume to clients that name no export; kept for later starts. Without it an
    /// earlier default stays.
    #[arg(long, value_name = "VOLUME")]
    default: Option<String>,
    /// Mode of the control socket and of unix sockets for NBD: 0600, 0660 or 0666; else 0600, or
    /// 0660 with --socket-group.
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<SocketMode>,
    /// Group of these sockets, by name or number. Its members can do with the pool whatever the
    /// user of the daemon can.
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// Allow TCP addresses that other hosts can reach, for NBD and metrics. There is no encryption
    /// and no authentication.
    #[arg(long)]
    allow_remote: bool,
    #[command(flatten)]
    metrics: MetricsArguments,
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run this command for each event, with the event as JSON on its standard input.
    #[arg(long, value_name = "COMMAND")]
    event_command: Option<String>,
    /// Most bytes of acknowledged or waiting writes in memory; else 64M. 4M to 64G.
    #[arg(long, value_name = "SIZE", value_parser = size_within(PENDING_MIN, PENDING_MAX))]
    pending: Option<Size>,
    #[command(flatten)]
    connections: ConnectionArguments,
    /// Worker threads; else one less than there are cores. 1 to 512.
    #[arg(long, value_name = "N", value_parser = number_within(1, WORKERS_MAX))]
    workers: Option<u64>,
    /// Seconds for which the start waits while a member that the pool counts on is missing
    /// [default: 5]. It ends as soon as all are there.
    #[arg(long, value_name = "SECONDS", value_parser = number_within(0, PATIENCE_MAX_S))]
    wait_for_members: Option<u64>,
    /// Seconds for which a member may be missing at the start before a spare replaces it. A member
    /// that fails later is replaced at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = number_within(0, PATIENCE_MAX_S))]
    spare_patience: u64,
    /// Test use: members that appear later are left to `pool online`.
    #[arg(long, hide = true)]
    no_arrivals: bool,
    /// Write nothing, refuse writes.
    #[arg(long)]
    read_only: bool,
    /// Import although another host has the pool, or too many members are missing. If that host
    /// still serves it, both destroy it: its members must be out of that host's reach. Missing
    /// members leave the pool for good.
    #[arg(long)]
    force: bool,
    /// Replace another known pool of this name: its members' paths are forgotten; its exports are
    /// kept for its return.
    #[arg(long)]
    replace_known: bool,
    /// Start without the journal devices although durable writes may be on them alone: these are
    /// lost then.
    #[arg(long)]
    discard_journal: bool,
    /// Let discards punch holes in file members.
    #[arg(long)]
    punch_holes: bool,
    /// Leave the memory of the daemon unlocked.
    #[arg(long)]
    no_memory_lock: bool,
    /// Test use: a volatile cache above each member; a kill loses part of it.
    #[arg(long, hide = true, value_name = "SEED")]
    volatile_cache: Option<u64>,
    /// Test use: claim every n-th flush of the volatile cache without doing it.
    #[arg(long, hide = true, value_name = "N", requires = "volatile_cache", value_parser = windrow_console::values::within::<u32>(1, 1_000_000))]
    drop_flush_every: Option<u32>,
    /// Test use: break the reuse rule: discard and rewrite segments before the flush that freed
    /// them.
    #[arg(long, hide = true, requires = "volatile_cache")]
    early_reuse: bool,
    /// Benchmarks: a new RAID-6 pool of eight members in memory, this size each, with one volume
    /// over half of it.
    #[arg(long, hide = true, value_name = "SIZE")]
    ram_members: Option<Size>,
}

/// Runs it.
pub fn run(arguments: ServeArguments, output: &Output) -> Result<u8, Failure> {
    let arguments = merge(arguments)?;
    arguments.metrics.check(arguments.allow_remote)?;
    let rights = Rights::new(arguments.socket_mode, arguments.socket_group.as_deref())?;
    must_fit_sockets(&arguments)?;
    let signal = signals()?;
    raise_descriptor_limit();
    if arguments.place.control.is_none() {
        paths::make_run_dir()?;
    }
    let request = request(&arguments);
    let Some(Opened {
        opened,
        name,
        exports,
        known,
        not_served,
    }) = open(&arguments, &request, &signal)?
    else {
        return Ok(0);
    };
    let OpenedPool {
        engine,
        members,
        buffers,
        report,
        recovery,
    } = opened;
    let options = HostOptions {
        workers: arguments.workers.map(|count| count as usize),
        event_command: arguments.event_command.clone(),
        exports,
        known,
        open: request,
        spare_patience: (!arguments.read_only)
            .then_some(Duration::from_secs(arguments.spare_patience)),
        ..HostOptions::default()
    };
    let pool = Pool::start(engine, members, buffers, options)?;
    let serving = start(&pool, &name, &report, &arguments, &rights)
        .map_err(|failure| given_back(&pool, arguments.read_only, failure))?;
    let Serving {
        notes,
        served,
        control,
        metrics,
        nbd,
    } = serving;
    let locked = if arguments.no_memory_lock {
        MemoryLock::NotLocked {
            reason: "not wanted".to_owned(),
        }
    } else {
        lock_memory()
    };
    let addresses: Vec<String> = nbd
        .as_ref()
        .map(|server| server.addresses().iter().map(ToString::to_string).collect())
        .unwrap_or_default();
    let is_out =
        |member: &MemberReport| ["missing", "faulted", "offline"].contains(&member.state.as_str());
    let away = |member: &&MemberReport| {
        is_out(member) || member.state == "spare" && member.path.is_empty()
    };
    let missing: Vec<String> = daemon::report(&pool)?
        .members
        .iter()
        .filter(away)
        .map(|member| member.member.to_string())
        .collect();
    let ready = json!({
        "event": "ready", "pool": name, "nbd": addresses, "control": control.path(), "metrics": metrics.as_ref().map(|server| server.address().to_string()),
        "recovery": report, "recovery_us": u64::try_from(recovery.as_micros()).unwrap_or(u64::MAX),
        "not_served": not_served, "notes": notes, "memory_locked": locked == MemoryLock::Locked, "process": std::process::id(),
    });
    output.result("serve", &ready, || {
        let memory = match &locked {
            MemoryLock::Locked => "memory is locked".to_owned(),
            MemoryLock::NotLocked { reason } => format!("memory is not locked: {reason}"),
        };
        let place = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
        let missing = match missing.len() {
            0 => String::new(),
            _ => format!("\nnote: without member {}: see `windrow pool status {}`", missing.join(", "), quoted(&name)),
        };
        let elsewhere = super::pool::made_elsewhere(&not_served);
        let notes: String = notes.iter().map(|note| format!("\nnote: {note}")).collect();
        format!("pool '{name}' is served at {place} (recovery {} ms; {memory}){missing}{elsewhere}{notes}", recovery.as_millis())
    });
    wait(&served, &signal, arguments.read_only);
    if let Some(server) = nbd {
        server.shutdown(DRAIN);
    }
    let ended = served.finish(arguments.read_only);
    drop((metrics, control));
    // After everything that the next daemon takes over: it waits for the members.
    pool.let_go();
    ended.map(|()| 0)
}

/// Ends a pool that was opened and cannot be served: otherwise its next start would be a recovery
/// from a crash.
fn given_back(pool: &Pool, read_only: bool, failure: Failure) -> Failure {
    if !read_only && let Err(error) = pool.shutdown(false) {
        tracing::warn!("the pool did not end cleanly: {error}");
    }
    failure
}

/// Everything that serves a pool.
struct Serving {
    notes: Vec<String>,
    served: Arc<Daemon>,
    control: ControlServer,
    metrics: Option<metrics::Server>,
    nbd: Option<Server>,
}

/// Starts everything that serves the pool.
fn start(
    pool: &Pool,
    name: &str,
    report: &OpenReport,
    arguments: &ServeArguments,
    rights: &Rights,
) -> Result<Serving, Failure> {
    let notes = notes(pool, report)?;
    pool.tell_start(&notes);
    if arguments.ram_members.is_some() {
        let usable = daemon::report(pool)?.capacity.usable_bytes;
        daemon::create_volume(pool, "ram", usable / 2 / (1 << 20) * (1 << 20))?;
    }
    let registry = arguments.ram_members.is_none().then(context::registry);
    let served = Arc::new(Daemon::new(pool.clone(), name, registry));
    if !arguments.read_only && !arguments.no_arrivals && arguments.ram_members.is_none() {
        watch_for_members(&served, arguments)?;
    }
    let control = ControlServer::start(&arguments.place.control_socket(name), served.clone())?;
    rights.apply(control.path())?;
    let metrics = arguments.metrics.start(pool)?;
    let nbd = start_nbd(pool, arguments)?;
    for address in &arguments.nbd {
        if let Listen::Unix(path) = address {
            rights.apply(path)?;
        }
    }
    Ok(Serving {
        notes,
        served,
        control,
        metrics,
        nbd,
    })
}

/// Longest wait for members that the previous daemon still holds.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Time for connections to complete requests in progress.
const DRAIN: Duration = Duration::from_secs(10);

/// Interval of the checks for a due scrub.
const SCHEDULE_PAUSE: Duration = Duration::from_secs(60);

/// Waits until the end is requested.
fn wait(served: &Daemon, signal: &AtomicBool, read_only: bool) {
    let mut looked: Option<Instant> = None;
    loop {
        if !read_only && looked.is_none_or(|looked| looked.elapsed() >= SCHEDULE_PAUSE) {
            looked = Some(Instant::now());
            served.keep_schedule(unix_now());
        }
        if served.wait_for_end(Duration::from_millis(100)) {
            return;
        }
        if signal.load(Ordering::Relaxed) {
            served.request_end(false);
        }
    }
}

/// A flag that SIGTERM, SIGINT and SIGHUP set; SIGTERM or SIGINT after another of them end the
/// process.
fn signals() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let cannot = |error: std::io::Error| Failure::new(id::SERVE, "cannot handle signals", error);
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Registered first, so that it sees the flag as the previous signal left it.
        signal_hook::flag::register_conditional_shutdown(signal, 1, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(cannot)?;
    }
    // A terminal that closes sends it, often twice; with `nohup` it is ignored from the beginning,
    // and stays so.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !is_ignored(&status, signal_hook::consts::SIGHUP) {
        signal_hook::flag::register(signal_hook::consts::SIGHUP, flag.clone()).map_err(cannot)?;
    }
    Ok(flag)
}

/// True if this process ignores a signal, by its `/proc/self/status`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Notes on the start for the administrator: findings of recovery, and a limit that writes will
/// meet.
fn notes(pool: &Pool, recovery: &OpenReport) -> Result<Vec<String>, Failure> {
    let shortage = super::pool::map_shortage(&daemon::report(pool)?.bounds)
        .map(|text| format!("map memory: {text}"));
    Ok(recovery.notes.iter().cloned().chain(shortage).collect())
}

/// Options for opening members.
fn request(arguments: &ServeArguments) -> OpenRequest {
    let mut limits = arguments.place.request().limits;
    if let Some(pending) = arguments.pending {
        limits.pending_bytes = pending.0;
    }
    let back_end = match arguments.volatile_cache {
        None => MemberBackEnd::Plain,
        Some(seed) => MemberBackEnd::VolatileCache(VolatileOptions {
            seed,
            drop_flush_every: arguments.drop_flush_every,
            ..VolatileOptions::default()
        }),
    };
    OpenRequest {
        read_only: arguments.read_only,
        force: arguments.force,
        discard_journal: arguments.discard_journal,
        complete: false,
        limits,
        punch_holes: arguments.punch_holes,
        power_safe: false,
        back_end,
        lock_patience: LOCK_PATIENCE,
    }
}

/// Default wait of the start for members.
const MEMBER_PATIENCE_SECONDS: u64 = 5;

/// Takes in members that appear later, in the places where the pool was searched.
fn watch_for_members(served: &Arc<Daemon>, arguments: &ServeArguments) -> Result<(), Failure> {
    let name = daemon::report(served.pool())?.name;
    let places = Places::of(&arguments.place.target(Some(&name)), &context::registry())?;
    arrivals::watch(served, places)
        .map_err(|error| Failure::new(id::SERVE, "cannot start a thread", error))
}

/// A pool that is open and about to be served.
struct Opened {
    opened: OpenedPool,
    name: String,
    exports: ExportTable,
    known: Vec<KnownMember>,
    /// Volumes that were made elsewhere and are not served by themselves.
    not_served: Vec<String>,
}

/// `None`: the end was requested while members were awaited.
fn open(
    arguments: &ServeArguments,
    request: &OpenRequest,
    signal: &AtomicBool,
) -> Result<Option<Opened>, Failure> {
    if let Some(size) = arguments.ram_members {
        let spec = ScratchSpec {
            limits: request.limits,
            ..ScratchSpec::default()
        };
        let opened = offline::scratch_pool(offline::ram_members(8, size.0)?, &spec)?;
        let name = arguments.pool.clone().unwrap_or_else(|| "ram".to_owned());
        return Ok(Some(Opened {
            opened,
            name,
            exports: ExportTable::default(),
            known: Vec::new(),
            not_served: Vec::new(),
        }));
    }
    let chosen = arguments.force || arguments.discard_journal || arguments.replace_known;
    context::must_be_named(
        "cannot serve a pool",
        arguments.pool.as_deref(),
        &arguments.place,
        chosen,
    )?;
    let registry = context::registry();
    let patience = Duration::from_secs(
        arguments
            .wait_for_members
            .unwrap_or(MEMBER_PATIENCE_SECONDS),
    );
    let target = arguments.place.target(arguments.pool.as_deref());
    let is_ended = || signal.load(Ordering::Relaxed);
    let mut tell = |what: &str| {
        tracing::warn!(
            "waiting up to {} s for {what} (--wait-for-members)",
            patience.as_secs()
        )
    };
    let mut is_last = false;
    let found = loop {
        match arrivals::locate_patiently(&target, &registry, patience, &is_ended, &mut tell) {
            _ if is_ended() => return Ok(None),
            // No daemon has the pool: it has ended since, or the failure has another cause, which a
            // second try shows.
            Err(failure) if failure.id == id::POOL_BUSY && !is_last => {
                is_last = !alone::wait_for_end(&target, arguments.pool.as_deref(), &is_ended)?
            }
            found => break found?,
        }
    };
    alone::must_be_alone(&found, &arguments.place)?;
    if arguments.replace_known {
        context::must_not_replace_served(&registry, &found.name, found.pool)?;
    } else {
        registry.must_be_free(
            &format!("cannot serve pool '{}'", found.name),
            &found.name,
            found.pool,
        )?;
    }
    let kept = registry.exports_of(&found)?;
    let mut opened = offline::open(&found, &registry, request)?;
    if arguments.early_reuse {
        opened.engine.inject(InjectedBug::EarlyReuse);
    }
    let (mut exports, mut not_served) = context::adopt(kept, &opened);
    if let Some(default) = &arguments.default {
        if let Err(failure) = exports.choose_default(default, &opened.engine.status()) {
            let pool = Pool::start(
                opened.engine,
                opened.members,
                opened.buffers,
                HostOptions::default(),
            )?;
            return Err(given_back(&pool, arguments.read_only, failure));
        }
        not_served.retain(|volume| volume != default);
    }
    let mut entry = super::pool::entry(&found, registry.load_of(&found.name, found.pool)?);
    entry.exports = exports;
    entry.last_volume = Some(context::last_volume(&opened));
    entry.control = arguments.place.control.as_deref().map(offline::absolute);
    if let Err(failure) = registry.save(&entry) {
        // The pool can be served without it; the next start needs the members named again.
        tracing::warn!(%failure, "the registry was not written");
    }
    Ok(Some(Opened {
        opened,
        name: found.name,
        exports: entry.exports,
        known: entry.known,
        not_served,
    }))
}

/// Refuses sockets that cannot be made. Called before the pool is opened.
///
/// # Errors
/// The path of one is too long, or its folder does not exist.
fn must_fit_sockets(arguments: &ServeArguments) -> Result<(), Failure> {
    if let Some(control) = &arguments.place.control {
        paths::must_fit_socket(control).map_err(|why| {
            let what = format!("cannot open the control socket {}", control.display());
            Failure::new(id::LOCAL_FILE, what, why)
                .remedy("make its folder, or choose another socket with --control")
        })?;
    }
    for address in &arguments.nbd {
        let Listen::Unix(path) = address else {
            continue;
        };
        // The socket is bound by its absolute path.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        paths::must_fit_socket(&absolute).map_err(|why| {
            Failure::new(id::SERVE, format!("cannot serve NBD at {address}"), why)
                .remedy("make its folder, or choose another address with --nbd")
        })?;
    }
    Ok(())
}

fn start_nbd(pool: &Pool, arguments: &ServeArguments) -> Result<Option<Server>, Failure> {
    if arguments.nbd.is_empty() {
        return Ok(None);
    }
    let pending = request(arguments).limits.pending_bytes;
    let options = ServerOptions {
        allow_remote: arguments.allow_remote,
        ..arguments.connections.options(pending)
    };
    let server = Server::start(
        Arc::new(pool.clone()),
        arguments.nbd.clone(),
        options.clone(),
    )
    .map_err(|error| {
        // The error names the failing one of several addresses.
        Failure::new(id::SERVE, "cannot serve NBD", error)
            .remedy("choose another address with --nbd")
    })?;
    let watch = server.watch();
    pool.show_connections(move || connections::report(&watch, &options));
    Ok(Some(server))
}

/// Completes the command line from the configuration file.
fn merge(mut arguments: ServeArguments) -> Result<ServeArguments, Failure> {
    let config = match &arguments.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    arguments.connections = arguments.connections.or(&config);
    arguments.metrics = arguments.metrics.or(&config);
    arguments.workers = arguments.workers.or(config.workers);
    arguments.pool = arguments.pool.or(config.pool);
    if arguments.place.members.is_empty() && arguments.place.dir.is_empty() {
        arguments.place.members = config.members;
    }
    if arguments.nbd.is_empty() {
        arguments.nbd = config.nbd;
    }
    arguments.default = arguments.default.or(config.default);
    arguments.place.control = arguments.place.control.or(config.control);
    arguments.socket_mode = arguments.socket_mode.or(config.socket_mode);
    arguments.socket_group = arguments.socket_group.or(config.socket_group);
    arguments.event_command = arguments.event_command.or(config.event_command);
    arguments.pending = arguments.pending.or(config.pending);
    arguments.place.map_memory = arguments.place.map_memory.or(config.map_memory);
    arguments.wait_for_members = arguments.wait_for_members.or(config.wait_for_members);
    arguments.allow_remote |= config.allow_remote;
    if arguments.pool.is_none()
        && arguments.place.members.is_empty()
        && arguments.place.dir.is_empty()
        && arguments.ram_members.is_none()
    {
        return Err(Failure::new(
            id::USAGE,
            "nothing to serve",
            "neither a pool nor members are given",
        )
        .remedy("see `windrow serve --help`"));
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::{ServeArguments, is_ignored, merge};
    use clap::Parser;
    use std::path::PathBuf;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArguments,
    }

    /// A folder on the command line must take precedence over the members in the file.
    #[test]
    fn a_folder_on_the_command_line_goes_before_the_members_of_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("c.toml");
        std::fs::write(&file, "members = [\"m0\"]\n").expect("a file");
        let members = |more: &[&str]| {
            let words = ["serve", "--config", file.to_str().expect("a path")];
            merge(Line::parse_from(words.iter().chain(more)).serve)
                .expect("merged")
                .place
                .members
        };
        assert_eq!(members(&[]), [PathBuf::from("m0")]);
        assert!(members(&["--dir", "pools"]).is_empty());
    }

    #[test]
    fn what_nohup_ignores_stays_ignored() {
        let status = |mask: &str| {
            format!(
                "Name:\twindrow\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t0000000000004001\n"
            )
        };
        assert!(is_ignored(&status("0000000000001001"), 1));
        assert!(!is_ignored(&status("0000000000001000"), 1));
        assert!(!is_ignored("", 1));
    }
}
