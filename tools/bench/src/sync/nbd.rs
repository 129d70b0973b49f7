//! Synchronous writes over NBD: fio with a flush after every write, against all pools in turn.
//!
//! `random`: a block of 4 KiB at a random address. `wal`: the writes of a database with a
//! write-ahead log, as SQLite issues them with pages of 4 KiB once its log has its full length. A
//! frame (page and head) covers two blocks of the log, of which the first is the last one of the
//! preceding commit, rewritten. The later write-back to the pages themselves, without a flush for
//! each, is left out.

use super::super::case::EXPORT;
use super::super::nbd::serve_here;
use super::super::report::Goal;
use super::super::rounds::{alternate, middle, ppm, ratio};
use super::stage::{Kind, Side, member_flushes};
use super::{Part, SyncArguments};
use serde_json::{Value, json};
use std::path::Path;
use windrow_console::figures::{factor, nanoseconds};
use windrow_console::table::Table;
use windrow_host::daemon;
use windrow_host::failure::{Failure, id};
use windrow_load::fio::{FioLoad, FioResult, fio};
use windrow_types::BLOCK_BYTES;

/// A load of fio.
struct Load {
    name: &'static str,
    /// Number of jobs, each with its own connection.
    jobs: u32,
    /// Requests in flight of each job.
    depth: u32,
}

const RANDOM: &str = "random";
const WAL: &str = "wal";
const LOADS: [Load; 5] = [
    Load {
        name: RANDOM,
        jobs: 1,
        depth: 1,
    },
    Load {
        name: RANDOM,
        jobs: 1,
        depth: 4,
    },
    Load {
        name: RANDOM,
        jobs: 4,
        depth: 1,
    },
    Load {
        name: WAL,
        jobs: 1,
        depth: 1,
    },
    Load {
        name: WAL,
        jobs: 4,
        depth: 1,
    },
];
/// Bytes of a write-ahead log, after which it wraps: SQLite checkpoints after 1000 pages by
/// default.
const WAL_BYTES: u64 = 4 << 20;

impl Load {
    fn of_fio<'a>(&self, socket: &'a Path, side: &Side, seconds: u64) -> FioLoad<'a> {
        let (span_bytes, random_percent) = (side.span, side.random_percent);
        let random = FioLoad {
            socket,
            export: EXPORT,
            pattern: "randwrite",
            depth: self.depth,
            jobs: self.jobs,
            block_bytes: BLOCK_BYTES,
            span_bytes,
            apart: false,
            seconds,
            flush: true,
            random_percent,
        };
        if self.name == WAL {
            // Two blocks, then back by one.
            FioLoad {
                pattern: "write:-4k",
                block_bytes: 2 * BLOCK_BYTES,
                span_bytes: WAL_BYTES.min(span_bytes / u64::from(self.jobs)),
                apart: true,
                ..random
            }
        } else {
            random
        }
    }

    fn title(&self) -> String {
        format!(
            "NBD, {}, {} jobs of depth {}",
            self.name, self.jobs, self.depth
        )
    }
}

/// Seconds of a measurement.
const SECONDS: u64 = 3;

struct Measured {
    fio: FioResult,
    member_bytes: u64,
    user_bytes: u64,
    member_flushes: u64,
    flushes: u64,
}

fn measure(side: &Side, load: &FioLoad<'_>) -> Result<Measured, Failure> {
    let before = daemon::report(&side.pool)?;
    let fio = fio(load)?;
    let after = daemon::report(&side.pool)?;
    Ok(Measured {
        fio,
        member_bytes: after.counters.written.total() - before.counters.written.total(),
        user_bytes: after.counters.user_write_bytes - before.counters.user_write_bytes,
        member_flushes: member_flushes(&after) - member_flushes(&before),
        flushes: after.counters.flushes - before.counters.flushes,
    })
}

/// Runs the measurements.
pub fn measure_all(arguments: &SyncArguments, sides: &[Side]) -> Result<Part, Failure> {
    let dir = tempfile::tempdir()
        .map_err(|error| Failure::new(id::LOCAL_FILE, "cannot make a folder for sockets", error))?;
    let sockets: Vec<_> = sides
        .iter()
        .map(|side| dir.path().join(format!("{}.sock", side.kind.name())))
        .collect();
    let _servers = sides
        .iter()
        .zip(&sockets)
        .map(|(side, socket)| serve_here(&side.pool, socket))
        .collect::<Result<Vec<_>, _>>()?;
    let seconds = arguments.rounds.time(SECONDS).as_secs_f64().ceil() as u64;
    let names: Vec<String> = LOADS
        .iter()
        .flat_map(|load| {
            sides
                .iter()
                .map(|side| format!("{} on {}", load.title(), side.kind.name()))
        })
        .collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |number, step| {
        step.progress().note("");
        let at = number % sides.len();
        measure(
            &sides[at],
            &LOADS[number / sides.len()].of_fio(&sockets[at], &sides[at], seconds),
        )
    })?;
    Ok(part(sides, seconds, &rounds))
}

fn part(sides: &[Side], seconds: u64, rounds: &[Vec<Measured>]) -> Part {
    let mut table = Table::new(&[
        "LOAD",
        "JOBS",
        "DEPTH",
        "POOL",
        "WRITES/S",
        "TIMES",
        "FLUSH 50 %",
        "FLUSH 99 %",
        "FLUSH 99.9 %",
        "BYTES",
        "SHARE",
        "DEVICE FLUSHES",
    ]);
    let (mut rows, mut goals) = (Vec::new(), Vec::new());
    for (load, rounds) in LOADS.iter().zip(rounds.chunks(sides.len())) {
        let rate = |measured: &Measured| measured.fio.per_second;
        let sum =
            |at: usize, of: fn(&Measured) -> u64| rounds[at].iter().map(of).sum::<u64>() as f64;
        let bytes = |at: usize| {
            sum(at, |measured| measured.member_bytes)
                / sum(at, |measured| measured.user_bytes).max(1.0)
        };
        let padding = sides.len() - 1;
        for (at, side) in sides.iter().enumerate() {
            let (name, times, share) = (
                side.kind.name(),
                ratio(&rounds[at], &rounds[padding], rate, rate),
                bytes(at) / bytes(padding).max(1e-9),
            );
            let flushes = sum(at, |measured| measured.member_flushes)
                / sum(at, |measured| measured.flushes).max(1.0);
            let latency = |of: fn(&FioResult) -> u64| {
                middle(&rounds[at], |measured| of(&measured.fio) as f64) as u64
            };
            let parts = [
                latency(|fio| fio.flush_p50_ns),
                latency(|fio| fio.flush_p99_ns),
                latency(|fio| fio.flush_p99_9_ns),
            ];
            let mut cells = vec![
                load.name.to_owned(),
                load.jobs.to_string(),
                load.depth.to_string(),
                name.to_owned(),
            ];
            cells.extend([
                format!("{:.0}", middle(&rounds[at], rate)),
                factor(ppm(times)),
            ]);
            cells.extend(parts.map(nanoseconds));
            cells.extend([
                factor(ppm(bytes(at))),
                factor(ppm(share)),
                factor(ppm(flushes)),
            ]);
            table.row(cells);
            rows.push(json!({
                "load": load.name, "jobs": load.jobs, "depth": load.depth, "pool": name, "writes_per_second": middle(&rounds[at], rate) as u64, "flush_p50_ns": parts[0],
                "flush_p99_ns": parts[1], "flush_p99_9_ns": parts[2], "member_bytes_per_user_byte_ppm": ppm(bytes(at)),
                "member_flushes_per_flush_ppm": ppm(flushes),
                "rounds": rounds[at].iter().map(|measured| measured.fio.per_second as u64).collect::<Vec<_>>(),
            }));
            let of = |what: &str| format!("{}, {what}", load.title());
            if side.kind == Kind::Journal {
                goals.push(Goal::at_least(
                    of("rate with a journal, of that with padding:"),
                    times,
                    super::findings::GOALS.0,
                ));
                goals.push(Goal::at_most(
                    of("bytes to members with a journal, of those with padding:"),
                    share,
                    super::findings::GOALS.1,
                ));
            }
            if at < padding {
                let most = side.kind.most_flushes(side.scratch.tolerance());
                goals.push(Goal::at_most(
                    of(&format!("device flushes for each flush, {name}:")),
                    flushes,
                    most,
                ));
            }
        }
    }
    let text = format!(
        "over NBD: fio, a flush after each write, {seconds} s each; latencies of flushes alone\n{}",
        table.render()
    );
    Part {
        value: Value::Array(rows),
        text,
        goals,
    }
}
