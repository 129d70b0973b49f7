//! `bench rebuild`: the rebuild of an empty member, and its effect on user latency.
//!
//! 1. *Idle*: no foreground I/O. Bytes rebuilt per second, against the same members that only read
//!    and write as many chunks as a rebuild must: `k` reads and one write, concurrently, without
//!    reading the bytes.
//! 2. *Under load*: random reads and writes of 4 KiB at a fixed rate. Their 99th percentile while a
//!    member is rebuilt, against the same with that member absent and no rebuild: both sides
//!    include the cost of degraded reads. The healthy pool is shown for comparison.

use super::case::{EXPORT, SPARE_PER_MILLE, fill};
use super::chart::{Group, groups};
use super::report::{Findings, Goal, ReportArguments};
use super::rounds::{RoundArguments, Step, alternate, middle, ppm, ratio};
use super::scratch::{Scratch, ScratchArguments};
use crate::load::paced::{self, PacedResult, PacedSpec};
use crate::load::raw_rebuild::{self, RawRebuildSpec};
use clap::Args;
use serde_json::{Value, json};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windrow_console::figures::{factor, megabytes, nanoseconds};
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_engine::Limits;
use windrow_format::superblock::RESERVED_BYTES;
use windrow_host::failure::{Failure, id};
use windrow_host::offline::{OpenedPool, reopen_scratch, replace_scratch};
use windrow_host::{HostOptions, Pool, daemon};
use windrow_load::machine::Meter;

/// Arguments of `bench rebuild`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench rebuild --dir /var/tmp --size 2G
  windrow-bench rebuild --dir /var/tmp --size 1G --redundancy 5 --rounds 3 --per-second 500 -o json")]
pub struct RebuildBenchArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// User requests per second: half reads, half writes.
    #[arg(long, default_value = "1000", value_parser = windrow_console::values::within::<u64>(1, 1_000_000))]
    per_second: u64,
}

/// Maximum seconds of a load.
const SECONDS: u64 = 8;
/// Goals: rate of the idle rebuild as a share of the raw members; latency during a rebuild as a
/// multiple.
const GOALS: (f64, f64) = (0.8, 2.0);
/// Share of the volume that is filled, in per cent.
const FILLED: u64 = 80;
/// Member that is rebuilt.
const TARGET: usize = 1;
/// Polling interval of a rebuild.
const LOOK: Duration = Duration::from_millis(5);
/// Time limit of a rebuild.
const PATIENCE: Duration = Duration::from_secs(3600);
const P99: u64 = 99_000;
const NAMES: [&str; 5] = [
    "members raw",
    "rebuild, idle pool",
    "users, whole pool",
    "users, one member away",
    "users, member being rebuilt",
];

/// One measurement.
enum Outcome {
    Rate {
        bytes: u64,
        time: Duration,
    },
    Users {
        load: PacedResult,
        rebuilt_bytes: u64,
    },
}

impl Outcome {
    fn rate(&self) -> f64 {
        match self {
            Self::Rate { bytes, time } => *bytes as f64 / time.as_secs_f64().max(1e-9),
            Self::Users {
                load,
                rebuilt_bytes,
            } => *rebuilt_bytes as f64 / load.elapsed.as_secs_f64().max(1e-9),
        }
    }

    fn reads_ns(&self, part: u64) -> f64 {
        if let Self::Users { load, .. } = self {
            load.reads.quantile_ns(part) as f64
        } else {
            0.0
        }
    }

    fn writes_ns(&self, part: u64) -> f64 {
        if let Self::Users { load, .. } = self {
            load.writes.quantile_ns(part) as f64
        } else {
            0.0
        }
    }
}

struct Stage<'a> {
    arguments: &'a RebuildBenchArguments,
    scratch: &'a Scratch,
    span: u64,
    time: Duration,
    /// Bytes of the target that a rebuild writes.
    bytes: Cell<u64>,
    /// True if the target is complete.
    is_whole: Cell<bool>,
}

/// Runs the benchmark.
pub fn run(arguments: &RebuildBenchArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    if arguments.scratch.redundancy == "0" {
        return Err(Failure::new(
            id::USAGE,
            "redundancy 0 has no rebuild",
            "a member's data is nowhere else",
        )
        .remedy("choose 1, 5 or 6"));
    }
    let scratch = Scratch::make(&arguments.scratch)?;
    let pool = scratch.pool(SPARE_PER_MILLE, 100)?;
    let usable = daemon::report(&pool)?.capacity.usable_bytes;
    let span = fill(&pool, usable * FILLED / 100, "rebuild")?;
    close(&pool)?;
    let stage = Stage {
        arguments,
        scratch: &scratch,
        span,
        time: arguments.rounds.time(SECONDS),
        bytes: Cell::new(0),
        is_whole: Cell::new(true),
    };
    let mut progress = Progress::new("a first rebuild");
    progress.note("not measured");
    stage.rebuild()?;
    let names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |case, step| {
        stage.measure(case, step)
    })?;
    findings(&stage, &rounds).publish(&meter, &arguments.report, output)
}

fn close(pool: &Pool) -> Result<(), Failure> {
    pool.shutdown(false)
        .map_err(|error| Failure::new(id::BENCH_LOAD, "cannot shut the pool down", error))
}

impl Stage<'_> {
    fn measure(&self, case: usize, step: &Step<'_>) -> Result<Outcome, Failure> {
        let mut progress = step.progress();
        progress.note("...");
        match case {
            0 => self.raw(),
            1 => self.rebuild(),
            2 => {
                if !self.is_whole.get() {
                    self.rebuild()?;
                }
                self.users(false, false, step)
            }
            3 => self.users(true, false, step),
            _ => self.users(false, true, step),
        }
    }

    /// Number of members that hold data in a row.
    fn reads(&self) -> usize {
        match self.arguments.scratch.redundancy.as_str() {
            "1" => 1,
            "5" => self.scratch.members.len() - 1,
            _ => self.scratch.members.len() - 2,
        }
    }

    fn raw(&self) -> Result<Outcome, Failure> {
        self.is_whole.set(false);
        let spec = RawRebuildSpec {
            target: TARGET,
            reads: self.reads(),
            chunk_bytes: self.scratch.chunk_bytes(),
            bytes: self.bytes.get(),
            begin: RESERVED_BYTES,
        };
        let (bytes, time) = raw_rebuild::measure(&self.scratch.members, &spec)?;
        Ok(Outcome::Rate { bytes, time })
    }

    fn open(&self, away: bool) -> Result<Pool, Failure> {
        let mut members = self.scratch.members.clone();
        if away {
            members[TARGET] = None;
        }
        let OpenedPool {
            engine,
            members,
            buffers,
            ..
        } = reopen_scratch(members, Limits::default(), &mut |_| {})?;
        Pool::start(
            engine,
            members,
            buffers,
            HostOptions {
                workers: self.arguments.scratch.workers,
                ..HostOptions::default()
            },
        )
    }

    /// Replaces the target by a new member, and waits until it is rebuilt.
    fn rebuild(&self) -> Result<Outcome, Failure> {
        let pool = self.open(false)?;
        replace_scratch(&pool, TARGET)?;
        let begin = Instant::now();
        let report = loop {
            let report = daemon::report(&pool)?;
            match report.members[TARGET].state.as_str() {
                "online" => break report,
                "rebuilding" if begin.elapsed() < PATIENCE => std::thread::sleep(LOOK),
                state => {
                    return Err(Failure::new(
                        id::BENCH_LOAD,
                        "the member was not rebuilt",
                        format!("it is {state}"),
                    ));
                }
            }
        };
        let time = begin.elapsed();
        self.bytes.set(report.rebuild.written_bytes);
        self.is_whole.set(true);
        close(&pool)?;
        Ok(Outcome::Rate {
            bytes: report.rebuild.written_bytes,
            time,
        })
    }

    /// Runs user load with the target whole, absent or being rebuilt.
    fn users(&self, away: bool, rebuilds: bool, step: &Step<'_>) -> Result<Outcome, Failure> {
        if rebuilds || away {
            self.is_whole.set(false);
        }
        let pool = self.open(away)?;
        if rebuilds {
            replace_scratch(&pool, TARGET)?;
        }
        let arguments = self.arguments;
        let (per_second, seed) = (arguments.per_second, step.round as u64 + 1);
        let spec = PacedSpec {
            block_bytes: 4096,
            span_bytes: self.span,
            per_second,
            reads: true,
            time: self.time,
            seed,
        };
        let stop = AtomicBool::new(false);
        let load = std::thread::scope(|scope| {
            let load = scope.spawn(|| paced::run(&pool, EXPORT, &spec, &stop));
            // Requests after its end say nothing about a rebuild.
            while rebuilds && !load.is_finished() {
                let is_over = daemon::report(&pool)
                    .is_ok_and(|report| report.members[TARGET].state != "rebuilding");
                stop.store(is_over, Ordering::Relaxed);
                std::thread::sleep(LOOK * 10);
            }
            load.join()
                .unwrap_or_else(|_| Err(Failure::new(id::BENCH, "the load failed", "it panicked")))
        })?;
        if load.errors > 0 || load.reads.count() == 0 || load.writes.count() == 0 {
            let why = load
                .error
                .map_or("the rebuild had ended before".to_owned(), |error| {
                    error.to_string()
                });
            return Err(Failure::new(
                id::BENCH_LOAD,
                "user requests failed, or there were none",
                why,
            ));
        }
        let rebuilt_bytes = daemon::report(&pool)?.rebuild.written_bytes;
        close(&pool)?;
        Ok(Outcome::Users {
            load,
            rebuilt_bytes,
        })
    }
}

fn findings(stage: &Stage<'_>, rounds: &[Vec<Outcome>]) -> Findings {
    let (arguments, scratch) = (stage.arguments, stage.scratch);
    let of_raw = ratio(&rounds[1], &rounds[0], Outcome::rate, Outcome::rate);
    let mut speeds = Table::new(&["WHAT", "BYTES/S OF THE MEMBER", "OF RAW"]);
    let mut users = Table::new(&[
        "USERS",
        "READS 50 %",
        "READS 99 %",
        "WRITES 50 %",
        "WRITES 99 %",
        "REBUILT",
    ]);
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for (name, rounds) in NAMES.iter().zip(rounds) {
        let rate = middle(rounds, Outcome::rate);
        let latency =
            |of: fn(&Outcome, u64) -> f64, part| middle(rounds, |outcome| of(outcome, part)) as u64;
        let reads = [
            latency(Outcome::reads_ns, 50_000),
            latency(Outcome::reads_ns, P99),
        ];
        let writes = [
            latency(Outcome::writes_ns, 50_000),
            latency(Outcome::writes_ns, P99),
        ];
        let is_rate = matches!(rounds[0], Outcome::Rate { .. });
        if is_rate {
            speeds.row([
                (*name).to_owned(),
                megabytes(rate),
                if rows.is_empty() {
                    "1.000".to_owned()
                } else {
                    factor(ppm(of_raw))
                },
            ]);
        } else {
            let cells = [reads[0], reads[1], writes[0], writes[1]].map(nanoseconds);
            users.row(
                [(*name).to_owned()]
                    .into_iter()
                    .chain(cells)
                    .chain([megabytes(rate)]),
            );
            bars.push(Group::new(
                *name,
                [reads[1] as f64 / 1000.0, writes[1] as f64 / 1000.0],
            ));
        }
        rows.push(json!({
            "what": name, "rebuilt_bytes_per_second": rate as u64, "read_p50_ns": reads[0], "read_p99_ns": reads[1], "write_p50_ns": writes[0],
            "write_p99_ns": writes[1], "rounds": rounds.iter().map(|outcome| outcome.rate() as u64).collect::<Vec<_>>(),
            "rounds_read_p99_ns": rounds.iter().map(|outcome| outcome.reads_ns(P99) as u64).collect::<Vec<_>>(),
            "rounds_write_p99_ns": rounds.iter().map(|outcome| outcome.writes_ns(P99) as u64).collect::<Vec<_>>(),
        }));
    }
    let beside = |of: fn(&Outcome, u64) -> f64, to: usize| {
        ratio(
            &rounds[4],
            &rounds[to],
            |mine| of(mine, P99),
            |other| of(other, P99),
        )
    };
    let (reads, writes) = (beside(Outcome::reads_ns, 3), beside(Outcome::writes_ns, 3));
    let whole = (beside(Outcome::reads_ns, 2), beside(Outcome::writes_ns, 2));
    let goals = vec![
        Goal::at_least(
            "bytes rebuilt each second in an idle pool, of the raw members:",
            of_raw,
            GOALS.0,
        ),
        Goal::at_most(
            "99th percentile of reads during a rebuild, to that with the member absent:",
            reads,
            GOALS.1,
        ),
        Goal::at_most(
            "99th percentile of writes during a rebuild, to that with the member absent:",
            writes,
            GOALS.1,
        ),
    ];
    let text = format!(
        "rebuild of one empty member: {}, {} filled, {} of the member, {} rounds, medians\n{}users: {} requests of 4 KiB each second for {:.1} s, half of them reads\n{}99 % during a rebuild, to the healthy pool: reads {}, writes {}\n",
        scratch.describe(),
        Size(stage.span),
        Size(stage.bytes.get()),
        arguments.rounds.rounds,
        speeds.render(),
        arguments.per_second,
        stage.time.as_secs_f64(),
        users.render(),
        factor(ppm(whole.0)),
        factor(ppm(whole.1)),
    );
    let value: Value = json!({
        "scratch": scratch.json(), "per_second": arguments.per_second, "filled_bytes": stage.span, "member_bytes": stage.bytes.get(),
        "reads_per_write": stage.reads(), "rounds": arguments.rounds.rounds, "seconds_ppm": ppm(stage.time.as_secs_f64()), "idle_ratio_ppm": ppm(of_raw),
        "read_p99_ratio_ppm": ppm(reads), "write_p99_ratio_ppm": ppm(writes), "read_p99_to_whole_ppm": ppm(whole.0), "write_p99_to_whole_ppm": ppm(whole.1),
        "results": rows,
    });
    Findings {
        name: "rebuild",
        value,
        text,
        picture: groups("99th percentile, us", &["reads", "writes"], &bars),
        goals,
    }
}
