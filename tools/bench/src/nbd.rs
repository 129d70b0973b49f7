//! `bench nbd`: this server and others under the same fio load, in turn. Ours runs in this process,
//! on members in memory and, with `--dir`, on members in files. The others are separate processes,
//! with the size of our volumes.

mod peers;

use super::case::{EXPORT, SPARE_PER_MILLE, fill};
use super::chart::{Group, groups};
use super::report::{Findings, Goal, ReportArguments};
use super::rounds::{RoundArguments, alternate, depth, middle, ppm, ratio};
use super::scratch::{Scratch, ScratchArguments};
use clap::Args;
use peers::{PEERS, Peer, RunningPeer};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windrow_console::figures::{factor, nanoseconds};
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_host::failure::{Failure, id};
use windrow_host::{Pool, daemon};
use windrow_load::fio::{FioLoad, FioResult, fio, fio_available};
use windrow_load::machine::{Meter, cpu_seconds, cpu_seconds_of};
use windrow_nbd::{Listen, Server, ServerOptions};

/// Arguments of `bench nbd`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench nbd
  windrow-bench nbd --dir /var/tmp --size 1G
  windrow-bench nbd --pattern randread --depth 1 --seconds 10 -o json
  windrow-bench nbd --dir /var/tmp --peers nbdkit-memory,nbdkit-file,qemu-raw")]
pub struct NbdArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Loads, by their fio names.
    #[arg(long, value_delimiter = ',', default_value = "randwrite,randread")]
    pattern: Vec<String>,
    /// Requests in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,32", value_parser = depth)]
    depth: Vec<usize>,
    /// Request size.
    #[arg(long, default_value = "4K")]
    block: Size,
    /// Servers to compare with; default `nbdkit-memory`, and with --dir `nbdkit-file-nocache` and
    /// `qemu-raw`, if they are installed.
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(PEERS.map(|peer| peer.name)))]
    peers: Option<Vec<String>>,
}

/// Seconds of a measurement.
const SECONDS: u64 = 5;
const MEMORY_PEER: &str = "nbdkit-memory";
const FILE_PEER: &str = "nbdkit-file-nocache";
const OURS_IN_MEMORY: &str = "windrow-memory";
const OURS_ON_FILES: &str = "windrow-files";

/// One server under test.
struct Target {
    name: String,
    socket: PathBuf,
    export: &'static str,
    /// Process id of a separate server.
    process: Option<u32>,
}

impl Target {
    fn cpu_seconds(&self) -> f64 {
        self.process.map_or_else(cpu_seconds, cpu_seconds_of)
    }
}

/// All running servers; dropped in this order, servers before their backing.
struct Servers {
    targets: Vec<Target>,
    _servers: Vec<Server>,
    _pools: Vec<Pool>,
    _scratch: Vec<Scratch>,
    _peers: Vec<RunningPeer>,
    span: u64,
}

struct Measured {
    fio: FioResult,
    cpu_ns: f64,
}

/// A load, and the rounds of every target under it.
struct Comparison<'a> {
    pattern: &'a str,
    depth: usize,
    rounds: Vec<Vec<Measured>>,
}

/// Serves the pool's volumes over NBD from this process.
pub fn serve_here(pool: &Pool, socket: &Path) -> Result<Server, Failure> {
    let source = Arc::new(pool.clone());
    let started = Server::start(
        source,
        vec![Listen::Unix(socket.to_owned())],
        ServerOptions::default(),
    );
    started.map_err(|error| Failure::new(id::SERVE, "cannot serve NBD", error))
}

/// Runs the benchmark.
pub fn run(arguments: &NbdArguments, output: &Output) -> Result<u8, Failure> {
    if !fio_available() {
        return Err(Failure::new(
            id::NOT_AVAILABLE,
            "cannot measure NBD",
            "fio with its nbd engine is not installed",
        )
        .remedy("install fio"));
    }
    let meter = Meter::start();
    let dir = tempfile::tempdir()
        .map_err(|error| Failure::new(id::LOCAL_FILE, "cannot make a folder for sockets", error))?;
    let servers = start(arguments, &chosen(arguments)?, dir.path())?;
    let names: Vec<String> = servers
        .targets
        .iter()
        .map(|target| target.name.clone())
        .collect();
    let mut comparisons = Vec::new();
    for pattern in &arguments.pattern {
        for depth in &arguments.depth {
            let labels: Vec<String> = names
                .iter()
                .map(|name| format!("{name}: {pattern}, depth {depth}"))
                .collect();
            let rounds = alternate(&labels, arguments.rounds.rounds, &mut |target, step| {
                step.progress().note("");
                load(
                    arguments,
                    &servers,
                    &servers.targets[target],
                    pattern,
                    *depth,
                )
            })?;
            comparisons.push(Comparison {
                pattern,
                depth: *depth,
                rounds,
            });
        }
    }
    let span = servers.span;
    // Processor time of children is counted once they have ended.
    drop(servers);
    findings(arguments, span, &names, &comparisons).publish(&meter, &arguments.report, output)
}

fn start(arguments: &NbdArguments, peers: &[&Peer], sockets: &Path) -> Result<Servers, Failure> {
    let in_memory = Scratch::make(&ScratchArguments {
        dir: None,
        ..arguments.scratch.clone()
    })?;
    let mut ours = vec![(OURS_IN_MEMORY, in_memory)];
    if arguments.scratch.dir.is_some() {
        ours.push((OURS_ON_FILES, Scratch::make(&arguments.scratch)?));
    }
    let mut servers = Servers {
        targets: Vec::new(),
        _servers: Vec::new(),
        _pools: Vec::new(),
        _scratch: Vec::new(),
        _peers: Vec::new(),
        span: 0,
    };
    for (name, scratch) in ours {
        let socket = sockets.join(format!("{name}.sock"));
        let (pool, span) = half_full(&scratch, name)?;
        servers.span = span;
        servers._servers.push(serve_here(&pool, &socket)?);
        servers._pools.push(pool);
        servers._scratch.push(scratch);
        servers.targets.push(Target {
            name: name.to_owned(),
            socket,
            export: EXPORT,
            process: None,
        });
    }
    for peer in peers {
        let running = RunningPeer::start(
            peer,
            sockets,
            arguments.scratch.dir.as_deref(),
            servers.span,
        )?;
        Progress::new(peer.name).note("filling");
        let socket = running.socket.clone();
        // All its memory or blocks are allocated from here on.
        let (pattern, block_bytes, span_bytes) = ("write", 256 << 10, servers.span);
        fio(&FioLoad {
            socket: &socket,
            export: "",
            pattern,
            depth: 8,
            jobs: 1,
            flush: false,
            block_bytes,
            span_bytes,
            apart: false,
            random_percent: 100,
            seconds: 0,
        })?;
        servers.targets.push(Target {
            name: peer.name.to_owned(),
            socket,
            export: "",
            process: Some(running.process()),
        });
        servers._peers.push(running);
    }
    Ok(servers)
}

/// A pool with a filled volume over half of its space; returns its bytes.
fn half_full(scratch: &Scratch, name: &str) -> Result<(Pool, u64), Failure> {
    let pool = scratch.pool(SPARE_PER_MILLE, 50)?;
    let size = daemon::report(&pool)?
        .volume(EXPORT)
        .map_or(0, |volume| volume.size_bytes);
    let span = fill(&pool, size, name)?;
    Ok((pool, span))
}

/// The selected peers, or the default ones that are installed.
fn chosen(arguments: &NbdArguments) -> Result<Vec<&'static Peer>, Failure> {
    let on_files = arguments.scratch.dir.is_some();
    if let Some(names) = &arguments.peers {
        let asked: Vec<&Peer> = PEERS
            .iter()
            .filter(|peer| names.iter().any(|name| name == peer.name))
            .collect();
        return match asked.iter().find(|peer| peer.on_files && !on_files) {
            None => Ok(asked),
            Some(peer) => Err(Failure::new(
                id::USAGE,
                format!("'{}' serves a file", peer.name),
                "no folder is given",
            )
            .remedy("name one with --dir")),
        };
    }
    let usual = [MEMORY_PEER, FILE_PEER, "qemu-raw"];
    Ok(PEERS
        .iter()
        .filter(|peer| {
            usual.contains(&peer.name) && (on_files || !peer.on_files) && peer.is_installed()
        })
        .collect())
}

fn load(
    arguments: &NbdArguments,
    servers: &Servers,
    target: &Target,
    pattern: &str,
    depth: usize,
) -> Result<Measured, Failure> {
    let seconds = arguments.rounds.time(SECONDS).as_secs_f64().ceil() as u64;
    let cpu = target.cpu_seconds();
    let fio = fio(&FioLoad {
        socket: &target.socket,
        export: target.export,
        pattern,
        depth: depth as u32,
        jobs: 1,
        flush: false,
        block_bytes: arguments.block.0,
        span_bytes: servers.span,
        apart: false,
        random_percent: 100,
        seconds,
    })?;
    let requests = (fio.per_second * seconds as f64).max(1.0);
    Ok(Measured {
        fio,
        cpu_ns: (target.cpu_seconds() - cpu) * 1e9 / requests,
    })
}

/// Ratios of a target to a peer: rate, median latency.
fn ratios(
    comparison: &Comparison<'_>,
    names: &[String],
    target: usize,
    peer: &str,
) -> Option<(f64, f64)> {
    let other = names.iter().position(|name| name == peer)?;
    let (mine, others) = (&comparison.rounds[target], &comparison.rounds[other]);
    let rate = |measured: &Measured| measured.fio.per_second;
    let median_latency = |measured: &Measured| measured.fio.p50_ns as f64;
    Some((
        ratio(mine, others, rate, rate),
        ratio(mine, others, median_latency, median_latency),
    ))
}

fn findings(
    arguments: &NbdArguments,
    span: u64,
    names: &[String],
    comparisons: &[Comparison<'_>],
) -> Findings {
    let files = names.iter().any(|name| name == FILE_PEER);
    let mut heading = vec![
        "LOAD",
        "DEPTH",
        "SERVER",
        "REQUESTS/S",
        "OF MEMORY PEER",
        "MEDIAN",
        "TIMES MEMORY PEER",
        "99.9 %",
        "SERVER CPU NS",
    ];
    heading.extend(files.then_some("OF FILE PEER"));
    let mut table = Table::new(&heading);
    let (mut rows, mut bars, mut goals) = (Vec::new(), Vec::new(), Vec::new());
    for comparison in comparisons {
        for (target, name) in names.iter().enumerate() {
            let rounds = &comparison.rounds[target];
            let rate = middle(rounds, |measured| measured.fio.per_second);
            let latency = |pick: fn(&FioResult) -> u64| {
                middle(rounds, |measured| pick(&measured.fio) as f64) as u64
            };
            let (p50, p99_9) = (latency(|fio| fio.p50_ns), latency(|fio| fio.p99_9_ns));
            let cpu = middle(rounds, |measured| measured.cpu_ns);
            let (to_memory, to_file) = (
                ratios(comparison, names, target, MEMORY_PEER),
                ratios(comparison, names, target, FILE_PEER),
            );
            let shown =
                |value: Option<f64>| value.map_or("-".to_owned(), |value| factor(ppm(value)));
            let mut cells = vec![
                comparison.pattern.to_owned(),
                comparison.depth.to_string(),
                name.clone(),
                format!("{rate:.0}"),
            ];
            cells.extend([
                shown(to_memory.map(|both| both.0)),
                nanoseconds(p50),
                shown(to_memory.map(|both| both.1)),
                nanoseconds(p99_9),
                format!("{cpu:.0}"),
            ]);
            cells.extend(files.then(|| shown(to_file.map(|both| both.0))));
            table.row(cells);
            rows.push(json!({
                "server": name, "pattern": comparison.pattern, "depth": comparison.depth, "requests_per_second": rate as u64,
                "bytes_per_second": middle(rounds, |measured| measured.fio.bytes_per_second) as u64,
                "latency_p50_ns": p50, "latency_p99_9_ns": p99_9, "server_cpu_ns_per_request": cpu as u64,
                "ratio_to_memory_peer_ppm": to_memory.map(|both| ppm(both.0)), "latency_ratio_to_memory_peer_ppm": to_memory.map(|both| ppm(both.1)),
                "ratio_to_file_peer_ppm": to_file.map(|both| ppm(both.0)),
                "rounds": rounds.iter().map(|measured| json!({
                    "requests_per_second": measured.fio.per_second as u64, "latency_p50_ns": measured.fio.p50_ns, "server_cpu_ns": measured.cpu_ns as u64,
                })).collect::<Vec<Value>>(),
            }));
            goals.extend(judged(arguments, comparison, name, to_memory, to_file));
        }
        let rates = comparison
            .rounds
            .iter()
            .map(|rounds| middle(rounds, |measured| measured.fio.per_second));
        bars.push(Group::new(
            format!("{} depth {}", comparison.pattern, comparison.depth),
            rates,
        ));
    }
    let text = format!(
        "NBD over a unix socket, fio, {} requests, spans of {}, members of {}, half full, {} rounds of {:.0} s, medians; memory peer: {MEMORY_PEER}{}\n{}",
        arguments.block,
        Size(span),
        arguments.scratch.size,
        arguments.rounds.rounds,
        arguments.rounds.time(SECONDS).as_secs_f64().ceil(),
        if files {
            format!(", file peer: {FILE_PEER}")
        } else {
            String::new()
        },
        table.render()
    );
    let value = json!({
        "block_bytes": arguments.block.0, "span_bytes": span, "members": arguments.scratch.members, "member_bytes": arguments.scratch.size.0,
        "redundancy": arguments.scratch.redundancy, "rounds": arguments.rounds.rounds, "memory_peer": MEMORY_PEER, "file_peer": FILE_PEER, "results": rows,
    });
    let series: Vec<&str> = names.iter().map(String::as_str).collect();
    Findings {
        name: "nbd",
        value,
        text,
        picture: groups("NBD requests per second", &series, &bars),
        goals,
    }
}

/// Goals that apply to this server under this load.
fn judged(
    arguments: &NbdArguments,
    load: &Comparison<'_>,
    name: &str,
    to_memory: Option<(f64, f64)>,
    to_file: Option<(f64, f64)>,
) -> Vec<Goal> {
    if arguments.block.0 != 4096 {
        return Vec::new();
    }
    let rate = |peer: &str| {
        format!(
            "{name}, {} at depth {}, of {peer}:",
            load.pattern, load.depth
        )
    };
    let mut goals = Vec::new();
    match (name, load.pattern, load.depth) {
        (OURS_IN_MEMORY, "randwrite", 32) => {
            goals.extend(to_memory.map(|(ratio, _)| Goal::at_least(rate(MEMORY_PEER), ratio, 0.9)))
        }
        (OURS_ON_FILES, "randwrite", 32) => {
            goals.extend(to_memory.map(|(ratio, _)| Goal::at_least(rate(MEMORY_PEER), ratio, 0.7)));
            goals.extend(to_file.map(|(ratio, _)| Goal::at_least(rate(FILE_PEER), ratio, 1.2)));
        }
        // A read of a file waits for its device; memory has none.
        (OURS_IN_MEMORY, "randwrite" | "randread", 1) | (OURS_ON_FILES, "randwrite", 1) => {
            let what = format!(
                "{name}, {} at depth 1, median latency of {MEMORY_PEER}:",
                load.pattern
            );
            goals.extend(to_memory.map(|(_, latency)| Goal::at_most(what, latency, 1.3)));
        }
        _ => {}
    }
    goals
}
