//! `bench read`: random reads of a full volume, in process and over NBD, against raw reads of the
//! same members with the same number in flight. Members in files are read without the page cache on
//! all sides.
//!
//! The raw side runs through the queue that the pool itself uses (io_uring), and by fio's io_uring
//! engine where it is installed. The ratio of a round is to the faster of the two. A third raw side
//! reads every byte, as the pool must for the checksums; it is shown for comparison only.

use super::case::{EXPORT, SPARE_PER_MILLE, Sample, failed, fill};
use super::chart::{Group, groups};
use super::engine::block_bytes;
use super::nbd::serve_here;
use super::report::{Findings, Goal, ReportArguments};
use super::rounds::{RoundArguments, alternate, depth, middle, ppm, ratio};
use super::scratch::{Scratch, ScratchArguments};
use crate::load::chained::{self, ChainedReads};
use crate::load::raw_read::{self, RawReadSpec};
use clap::Args;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use windrow_console::figures::{factor, nanoseconds};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_host::failure::{Failure, id};
use windrow_host::{Pool, daemon};
use windrow_load::fio::{FioFiles, FioLoad, FioResult, fio, fio_files, fio_has_engine};
use windrow_load::machine::{Meter, cpu_seconds};

/// Arguments of `bench read`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench read --dir /var/tmp --size 2G
  windrow-bench read --dir /var/tmp --depth 1 --seconds 10 -o json
  windrow-bench read --no-nbd --size 256M")]
pub struct ReadArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Number of reads in flight, over all members together.
    #[arg(long, default_value = "32", value_parser = depth)]
    depth: usize,
    /// Bytes of a read.
    #[arg(long, default_value = "4K")]
    block: Size,
    /// Skip NBD, which needs fio with its nbd engine.
    #[arg(long)]
    no_nbd: bool,
}

/// Seconds of a measurement.
const SECONDS: u64 = 5;
/// Goals for reads in process and over NBD, as shares of the raw members.
const GOALS: (f64, f64) = (0.95, 0.7);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Raw,
    RawFio,
    RawLook,
    Engine,
    Nbd,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Raw => "members raw, the pool's queue",
            Self::RawFio => "members raw, fio io_uring",
            Self::RawLook => "members raw, every byte looked at",
            Self::Engine => "volume in process",
            Self::Nbd => "volume over NBD",
        }
    }
}

/// One measurement by any method.
struct Reading {
    per_second: f64,
    p50_ns: u64,
    p99_9_ns: u64,
    /// Processor time of this process for each read; unknown for fio's.
    cpu_ns: Option<f64>,
}

impl Reading {
    fn of_fio(result: &FioResult, cpu_ns: Option<f64>) -> Self {
        Self {
            per_second: result.per_second,
            p50_ns: result.p50_ns,
            p99_9_ns: result.p99_9_ns,
            cpu_ns,
        }
    }
}

impl From<Sample> for Reading {
    fn from(sample: Sample) -> Self {
        let latency = |part| sample.load.latency.quantile_ns(part);
        Self {
            per_second: sample.load.per_second(),
            p50_ns: latency(50_000),
            p99_9_ns: latency(99_900),
            cpu_ns: Some(sample.cpu_ns()),
        }
    }
}

struct Stage<'a> {
    arguments: &'a ReadArguments,
    scratch: &'a Scratch,
    pool: &'a Pool,
    socket: &'a Path,
    span: u64,
    block: u32,
    time: Duration,
}

/// Runs the benchmark.
pub fn run(arguments: &ReadArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    let block = block_bytes(arguments.block)?;
    if !block.is_multiple_of(4096) {
        let why = "members are read in blocks of 4 KiB";
        return Err(Failure::new(
            id::USAGE,
            format!("reads cannot have {}", arguments.block),
            why,
        )
        .remedy("choose a multiple of 4K"));
    }
    let scratch = Scratch::make(&arguments.scratch)?;
    let targets = targets(arguments, &scratch)?;
    let dir = tempfile::tempdir()
        .map_err(|error| Failure::new(id::LOCAL_FILE, "cannot make a folder for sockets", error))?;
    let socket = dir.path().join("windrow.sock");
    let pool = scratch.pool(SPARE_PER_MILLE, 100)?;
    let span = fill(&pool, daemon::report(&pool)?.capacity.usable_bytes, "reads")?;
    let server = if targets.contains(&Target::Nbd) {
        Some(serve_here(&pool, &socket)?)
    } else {
        None
    };
    let time = arguments.rounds.time(SECONDS);
    let stage = Stage {
        arguments,
        scratch: &scratch,
        pool: &pool,
        socket: &socket,
        span,
        block,
        time,
    };
    let names: Vec<String> = targets
        .iter()
        .map(|target| target.name().to_owned())
        .collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |target, step| {
        let mut progress = step.progress();
        progress.note(&format!("for {:.1} s", time.as_secs_f64()));
        stage.read(targets[target], step.round as u64 + 1)
    })?;
    drop(server);
    findings(arguments, &scratch, span, time, &targets, &rounds).publish(
        &meter,
        &arguments.report,
        output,
    )
}

fn targets(arguments: &ReadArguments, scratch: &Scratch) -> Result<Vec<Target>, Failure> {
    let mut targets = vec![Target::Raw];
    if scratch.is_files() && fio_has_engine("io_uring") {
        targets.push(Target::RawFio);
    }
    targets.extend([Target::RawLook, Target::Engine]);
    if !arguments.no_nbd {
        if !fio_has_engine("nbd") {
            let remedy = "install fio, or leave NBD out with --no-nbd";
            return Err(Failure::new(
                id::NOT_AVAILABLE,
                "cannot measure NBD",
                "fio with its nbd engine is not installed",
            )
            .remedy(remedy));
        }
        targets.push(Target::Nbd);
    }
    Ok(targets)
}

impl Stage<'_> {
    fn read(&self, target: Target, seed: u64) -> Result<Reading, Failure> {
        let (depth, seconds) = (self.arguments.depth, self.time.as_secs_f64().ceil() as u64);
        let cpu = cpu_seconds();
        match target {
            Target::Raw | Target::RawLook => {
                let spec = RawReadSpec {
                    block_bytes: self.block,
                    depth,
                    time: self.time,
                    seed,
                    look: target == Target::RawLook,
                };
                let load = raw_read::measure(&self.scratch.members, &spec)?;
                Ok(Sample {
                    load,
                    cpu_seconds: cpu_seconds() - cpu,
                    ..Sample::default()
                }
                .into())
            }
            Target::RawFio => {
                let load = FioFiles {
                    paths: &self.scratch.paths,
                    pattern: "randread",
                    depth: depth as u32,
                    block_bytes: u64::from(self.block),
                    seconds,
                };
                Ok(Reading::of_fio(&fio_files(&load)?, None))
            }
            Target::Engine => {
                let spec = ChainedReads {
                    block_bytes: self.block,
                    span_bytes: self.span,
                    depth,
                    time: self.time,
                    seed,
                };
                let load = chained::run(self.pool, EXPORT, &spec)?;
                if load.errors > 0 {
                    return Err(failed(self.pool, &load));
                }
                Ok(Sample {
                    load,
                    cpu_seconds: cpu_seconds() - cpu,
                    ..Sample::default()
                }
                .into())
            }
            Target::Nbd => {
                let load = FioLoad {
                    socket: self.socket,
                    export: EXPORT,
                    pattern: "randread",
                    depth: depth as u32,
                    jobs: 1,
                    flush: false,
                    block_bytes: u64::from(self.block),
                    span_bytes: self.span,
                    apart: false,
                    random_percent: 100,
                    seconds,
                };
                let result = fio(&load)?;
                let requests = result.per_second * seconds as f64;
                Ok(Reading::of_fio(
                    &result,
                    Some((cpu_seconds() - cpu) * 1e9 / requests.max(1.0)),
                ))
            }
        }
    }
}

fn findings(
    arguments: &ReadArguments,
    scratch: &Scratch,
    span: u64,
    time: Duration,
    targets: &[Target],
    rounds: &[Vec<Reading>],
) -> Findings {
    let is_raw = |target: &Target| matches!(target, Target::Raw | Target::RawFio);
    // Faster raw side of each round.
    let raw: Vec<f64> = (0..arguments.rounds.rounds)
        .map(|round| {
            targets
                .iter()
                .zip(rounds)
                .filter(|(target, _)| is_raw(target))
                .map(|(_, rounds)| rounds[round].per_second)
                .fold(0.0, f64::max)
        })
        .collect();
    let mut table = Table::new(&["WHAT", "READS/S", "OF RAW", "MEDIAN", "99.9 %", "CPU NS"]);
    let (mut rows, mut bars, mut goals) = (Vec::new(), Vec::new(), Vec::new());
    for (target, rounds) in targets.iter().zip(rounds) {
        let of_raw = ratio(rounds, &raw, |reading| reading.per_second, |raw| *raw);
        let rate = middle(rounds, |reading| reading.per_second);
        let (p50, p99_9) = (
            middle(rounds, |reading| reading.p50_ns as f64) as u64,
            middle(rounds, |reading| reading.p99_9_ns as f64) as u64,
        );
        let cpu = rounds
            .iter()
            .all(|reading| reading.cpu_ns.is_some())
            .then(|| middle(rounds, |reading| reading.cpu_ns.unwrap_or(0.0)) as u64);
        let cpu_cell = cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
        table.row([
            target.name().to_owned(),
            format!("{rate:.0}"),
            factor(ppm(of_raw)),
            nanoseconds(p50),
            nanoseconds(p99_9),
            cpu_cell,
        ]);
        rows.push(json!({
            "target": target.name(), "requests_per_second": rate as u64, "ratio_ppm": ppm(of_raw), "latency_p50_ns": p50, "latency_p99_9_ns": p99_9,
            "cpu_ns_per_request": cpu, "rounds": rounds.iter().map(|reading| reading.per_second as u64).collect::<Vec<_>>(),
        }));
        bars.push(Group::new(target.name(), [rate]));
        let is_judged = scratch.is_files() && arguments.depth == 32 && arguments.block.0 == 4096;
        match target {
            Target::Engine if is_judged => goals.push(Goal::at_least(
                "random reads in process, of the raw members:",
                of_raw,
                GOALS.0,
            )),
            Target::Nbd if is_judged => goals.push(Goal::at_least(
                "random reads over NBD, of the raw members:",
                of_raw,
                GOALS.1,
            )),
            _ => {}
        }
    }
    let text = format!(
        "random reads of {} at depth {}: {}, {} filled, {} rounds of {:.1} s, medians; OF RAW: to the faster raw side of the same round\n{}",
        arguments.block,
        arguments.depth,
        scratch.describe(),
        Size(span),
        arguments.rounds.rounds,
        time.as_secs_f64(),
        table.render()
    );
    let value: Value = json!({
        "scratch": scratch.json(), "depth": arguments.depth, "block_bytes": arguments.block.0, "span_bytes": span, "rounds": arguments.rounds.rounds,
        "seconds_ppm": ppm(time.as_secs_f64()), "results": rows,
    });
    Findings {
        name: "read",
        value,
        text,
        picture: groups("Random reads per second", &["reads/s"], &bars),
        goals,
    }
}
