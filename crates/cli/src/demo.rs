//! `demo`: the whole product in under two minutes, on file members in a temporary folder.
//!
//! 1. Members are made and their linear rate is measured, concurrently, with the write size that
//!    the pool will use.
//! 2. A RAID-6 pool and two volumes get uniform random 4 KiB writes in this process, which measures
//!    the engine without a protocol. Then a server process gets uniform random 4 KiB writes beyond
//!    several overwrites, by fio if it is installed.
//! 3. The server is restarted with a volatile cache above each member. A verifying load writes and
//!    flushes; in the middle the server is killed, and part of the caches' content is lost.
//! 4. The server is started once more. Every block that was acknowledged and flushed must be there.
//! 5. One screen of figures.

mod ledger;
mod report;
mod writer;

use crate::commands::serve::ChildServer;
use clap::Args;
use ledger::{Ledger, Verdict};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windrow_console::context::OpenedAtRest;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::values::Size;
use windrow_device::queue::Members;
use windrow_device::{Allocation, FileMember, OpenOptions, create_file};
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_host::Failure;
use windrow_host::daemon;
use windrow_host::failure::id;
use windrow_host::offline::partition::Partitioning;
use windrow_host::offline::{self, CreateRequest, OpenRequest, PoolTarget};
use windrow_host::registry::Registry;
use windrow_host::report::PoolReport;
use windrow_load::fio::{FioLoad, fio, fio_available};
use windrow_load::in_place;
use windrow_load::linear::{self, LinearResult};
use windrow_load::nbd_client::NbdClient;
use windrow_load::session::{self, LoadResult, LoadSpec};
use windrow_types::BLOCK_BYTES;

const MEMBERS: usize = 8;
const CHUNK_BYTES: u64 = 256 << 10;
/// The verified volume.
const CHECK_BYTES: u64 = 128 << 20;
/// Acknowledged writes between two flushes.
const FLUSH_EVERY: u64 = 2000;

/// Arguments of `demo`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow demo
  windrow demo --dir /var/tmp --size 2G --seconds 30
  windrow demo --keep
  windrow demo -o json")]
pub struct DemoArguments {
    /// Make the folder of the members here.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of each of the eight members.
    #[arg(long, default_value = "384M")]
    size: Size,
    /// Seconds of the random-write load.
    #[arg(long, default_value = "15", value_parser = windrow_console::values::within::<u64>(1, 604_800))]
    seconds: u64,
    /// Keep the members and leave the server running.
    #[arg(long)]
    keep: bool,
    /// Seed of the verifying load and of the caches' losses.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Test use: the caches acknowledge every n-th flush without doing it; verification must
    /// notice.
    #[arg(long, hide = true, value_parser = windrow_console::values::within::<u32>(1, 1_000_000))]
    drop_flush_every: Option<u32>,
}

/// Results of the demonstration.
struct Findings {
    dir: PathBuf,
    linear_bytes_per_second: f64,
    in_place: LinearResult,
    in_process: LoadResult,
    load: &'static str,
    writes_per_second: f64,
    overwrites: f64,
    report: PoolReport,
    acknowledged_before_kill: u64,
    restart: Duration,
    recovery: serde_json::Value,
    verdict: Verdict,
    socket: PathBuf,
    left_running: Option<u32>,
    elapsed: Duration,
}

struct Stage<'a> {
    arguments: &'a DemoArguments,
    dir: PathBuf,
    members: Vec<PathBuf>,
}

/// Runs it.
pub fn run(arguments: &DemoArguments, output: &Output) -> Result<u8, Failure> {
    let begin = Instant::now();
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let failure = |error: std::io::Error| {
        Failure::new(
            id::LOCAL_FILE,
            format!("cannot make a folder in {}", parent.display()),
            error,
        )
        .remedy("choose another one with --dir")
    };
    let folder = tempfile::Builder::new()
        .prefix("windrow-demo-")
        .tempdir_in(&parent)
        .map_err(failure)?;
    let stage = Stage {
        arguments,
        dir: folder.path().to_owned(),
        members: (0..MEMBERS)
            .map(|number| folder.path().join(format!("member-{number}")))
            .collect(),
    };
    let mut findings = stage.run()?;
    findings.elapsed = begin.elapsed();
    if arguments.keep {
        // The folder stays: it is the user's now.
        _ = folder.keep();
    }
    let good = findings.verdict.is_good();
    output.result("demo", &findings.json(arguments), || {
        findings.text(arguments)
    });
    if good {
        return Ok(0);
    }
    let why = format!(
        "{} blocks lost, {} blocks wrong",
        findings.verdict.lost, findings.verdict.wrong
    );
    Err(
        Failure::new(id::BENCH, "verification after the kill failed", why)
            .remedy("please report this with the seed"),
    )
}

impl Stage<'_> {
    fn run(&self) -> Result<Findings, Failure> {
        let (linear_bytes_per_second, in_place) = self.measure_members()?;
        self.create_pool()?;
        let (span, in_process) = self.load_in_process()?;
        let server = self.serve(None)?;
        let (load, writes_per_second) = self.load(&server, span)?;
        let report = server.report()?;
        server.stop()?;
        let mut ledger = Ledger::new((CHECK_BYTES / BLOCK_BYTES) as usize);
        let acknowledged_before_kill = self.write_and_kill(&mut ledger)?;
        let begin = Instant::now();
        let server = self.serve(None)?;
        let restart = begin.elapsed();
        let recovery = server.ready().clone();
        let verdict = self.verify(&server, &ledger)?;
        let socket = server.socket().to_owned();
        let left_running = if self.arguments.keep {
            Some(server.leave())
        } else {
            server.stop()?;
            None
        };
        let overwrites = (report.counters.user_write_bytes + in_process.bytes) as f64 / span as f64;
        Ok(Findings {
            dir: self.dir.clone(),
            linear_bytes_per_second,
            in_place,
            in_process,
            load,
            writes_per_second,
            overwrites,
            report,
            acknowledged_before_kill,
            restart,
            recovery,
            verdict,
            socket,
            left_running,
            elapsed: Duration::ZERO,
        })
    }

    /// The members' own rates: linear writes, and random ones in place, as a RAID-6 without a log
    /// makes them.
    fn measure_members(&self) -> Result<(f64, LinearResult), Failure> {
        let failure = |error: &dyn std::fmt::Display| {
            Failure::new(id::MEMBER_OPEN, "cannot make the members", error)
                .remedy("choose another folder with --dir, or a smaller --size")
        };
        let mut members: Members = Vec::new();
        for path in &self.members {
            create_file(
                path,
                self.arguments.size.0 / BLOCK_BYTES * BLOCK_BYTES,
                Allocation::Preallocate,
            )
            .map_err(|error| failure(&error))?;
            members.push(Some(Arc::new(
                FileMember::open(path, &OpenOptions::default()).map_err(|error| failure(&error))?,
            )));
        }
        let pass = self.arguments.size.0 * MEMBERS as u64;
        let mut progress = Progress::new("members: first pass");
        // The first pass makes the file system allocate the blocks; it is not the figure.
        let mut written = 0;
        while written < pass {
            let part = linear::measure(
                &members,
                CHUNK_BYTES as usize,
                Duration::from_secs(2),
                &mut |bytes| progress.bytes(written + bytes, pass),
            )?;
            written += part.bytes.max(1);
            if progress_is_slow(&part) {
                break;
            }
        }
        let time = Duration::from_secs((self.arguments.seconds / 2).clamp(3, 10));
        let mut progress = Progress::new("members: linear rate");
        let result = linear::measure(&members, CHUNK_BYTES as usize, time, &mut |bytes| {
            progress.time(time, &Size(bytes).to_string())
        })?;
        let mut progress = Progress::new("members: random writes in place");
        let in_place = in_place::measure(&members, time, self.arguments.seed, &mut |bytes| {
            progress.time(time, &Size(bytes).to_string())
        })?;
        Ok((result.bytes_per_second(), in_place))
    }

    fn create_pool(&self) -> Result<(), Failure> {
        let request = CreateRequest {
            name: "demo".to_owned(),
            redundancy: Redundancy::Double,
            members: self.members.clone(),
            file_bytes: None,
            allocation: Allocation::Preallocate,
            chunk_rows: Some((CHUNK_BYTES / BLOCK_BYTES) as u32),
            segment_rows: None,
            align_bytes: 1 << 20,
            properties: Properties {
                spare_per_mille: 100,
                seal_age_ms: 50,
                victim_policy: 0,
                discard: false,
                ..Properties::DEFAULT
            },
            journal_bytes: None,
            journal_devices: Vec::new(),
            journal_power_safe: false,
            force: true,
            partitioning: Partitioning::Never,
        };
        let plan = offline::plan(&request)?;
        offline::create(&request, &plan, &mut |_, _| ()).map(drop)
    }

    /// Makes the volumes and writes at random without a protocol. Returns the bytes of the volume.
    fn load_in_process(&self) -> Result<(u64, LoadResult), Failure> {
        let registry = Registry::new(&self.dir.join("state"));
        let target = PoolTarget {
            members: self.members.clone(),
            ..PoolTarget::default()
        };
        let opened = OpenedAtRest::open(
            &offline::locate(&target, &registry)?,
            &registry,
            &OpenRequest::default(),
        )?;
        let usable = daemon::report(&opened.pool)?.capacity.usable_bytes;
        // Half of the space: enough spare that the figure is about the log, not about a full pool;
        // `bench steady` measures a full one.
        let span =
            (usable / 2).saturating_sub(CHECK_BYTES).max(CHECK_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        daemon::create_volume(&opened.pool, "data", span)?;
        daemon::create_volume(&opened.pool, "check", CHECK_BYTES)?;
        let time = Duration::from_secs((self.arguments.seconds / 2).clamp(2, 10));
        let spec = LoadSpec {
            block_bytes: 4096,
            span_bytes: span,
            writers: 1,
            depth: 128,
            read_percent: 0,
            linear: false,
            time_max: time,
            bytes_max: u64::MAX,
            seed: self.arguments.seed,
            random_percent: 100,
            distinct_percent: 0,
        };
        let mut progress = Progress::new("random writes in process");
        progress.time(time, "");
        let result = session::run(&opened.pool, "data", &spec)?;
        if result.errors > 0 {
            return Err(Failure::new(
                id::BENCH_LOAD,
                format!("{} writes failed", result.errors),
                opened.pool.stop_reason().unwrap_or_default(),
            ));
        }
        opened.close(false)?;
        Ok((span, result))
    }

    fn serve(&self, volatile_seed: Option<u64>) -> Result<ChildServer, Failure> {
        ChildServer::start(&self.dir, "demo", |command| {
            for member in &self.members {
                command.arg("--members").arg(member);
            }
            if let Some(seed) = volatile_seed {
                command.args(["--volatile-cache", &seed.to_string()]);
                if let Some(every) = self.arguments.drop_flush_every {
                    command.args(["--drop-flush-every", &every.to_string()]);
                }
            }
        })
    }

    /// The measured load: tool, writes per second.
    fn load(&self, server: &ChildServer, span: u64) -> Result<(&'static str, f64), Failure> {
        let time = Duration::from_secs(self.arguments.seconds);
        if fio_available() {
            let finished = std::sync::atomic::AtomicBool::new(false);
            let result = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut progress = Progress::new("random writes (fio)");
                    while !finished.load(std::sync::atomic::Ordering::Relaxed) {
                        let written = server
                            .report()
                            .map_or(0, |report| report.counters.user_write_bytes);
                        progress.time(time, &Size(written).to_string());
                        std::thread::sleep(Duration::from_millis(500));
                    }
                });
                let load = FioLoad {
                    socket: server.socket(),
                    export: "data",
                    pattern: "randwrite",
                    depth: 64,
                    jobs: 1,
                    flush: false,
                    block_bytes: 4096,
                    span_bytes: span,
                    apart: false,
                    random_percent: 100,
                    seconds: self.arguments.seconds,
                };
                let result = fio(&load);
                finished.store(true, std::sync::atomic::Ordering::Relaxed);
                result
            })?;
            return Ok(("fio", result.per_second));
        }
        let mut client = connect(server.socket(), "data")?;
        let mut progress = Progress::new("random writes");
        let begin = Instant::now();
        let writes = writer::hammer(
            &mut client,
            self.arguments.seed,
            span,
            64,
            time,
            &mut |writes| progress.time(time, &format!("{writes} writes")),
        )
        .map_err(|error| Failure::new(id::BENCH_LOAD, "the load failed", error))?;
        Ok(("built-in", writes as f64 / begin.elapsed().as_secs_f64()))
    }

    /// The verifying load on volatile members, killed in the middle. Returns the number of
    /// acknowledged writes.
    fn write_and_kill(&self, ledger: &mut Ledger) -> Result<u64, Failure> {
        let server = self.serve(Some(self.arguments.seed))?;
        let mut client = connect(server.socket(), "check")?;
        let patience = Duration::from_secs((self.arguments.seconds / 3).clamp(2, 8));
        let mut progress = Progress::new("verifying load, then SIGKILL");
        let mut acknowledged = 0;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(patience);
                server.kill();
            });
            let outcome = writer::write(
                &mut client,
                ledger,
                self.arguments.seed,
                FLUSH_EVERY,
                Duration::from_secs(3600),
                &mut |writes| {
                    acknowledged = writes;
                    progress.time(patience, &format!("{writes} acknowledged writes"));
                },
            );
            match outcome {
                // The server is gone, as intended.
                Err(_) => Ok(acknowledged),
                Ok(_) => Err(Failure::new(
                    id::BENCH_LOAD,
                    "the server was not killed",
                    "the load ended before",
                )),
            }
        })
    }

    fn verify(&self, server: &ChildServer, ledger: &Ledger) -> Result<Verdict, Failure> {
        let mut client = connect(server.socket(), "check")?;
        let mut progress = Progress::new("verifying");
        let verdict = writer::verify(&mut client, ledger, &mut |bytes| {
            progress.bytes(bytes, CHECK_BYTES)
        });
        let verdict =
            verdict.map_err(|error| Failure::new(id::BENCH_LOAD, "cannot verify", error))?;
        drop(client.disconnect());
        Ok(verdict)
    }
}

/// Below this rate a whole pass would take too long for a demonstration.
fn progress_is_slow(part: &linear::LinearResult) -> bool {
    part.bytes_per_second() < 150e6
}

fn connect(socket: &Path, export: &str) -> Result<NbdClient, Failure> {
    NbdClient::connect(socket, export).map_err(|error| {
        Failure::new(
            id::BENCH_LOAD,
            format!("cannot connect to export '{export}'"),
            error,
        )
    })
}
