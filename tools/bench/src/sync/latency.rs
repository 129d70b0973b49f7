//! Latency of writers and readers at a fixed rate, during cleaning, and next to a neighbour that
//! flushes continuously.
//!
//! 1. *Cleaning*: writes to the pool in its steady state, against the same writes to a pool with so
//!    much space that nothing is cleaned.
//! 2. *Neighbour*: reads and writes of one volume while one writer flushes each of its blocks on
//!    another volume, against the same without it.

use super::super::case::{EXPORT, SPARE_PER_MILLE, fill};
use super::super::report::Goal;
use super::super::rounds::{Step, alternate, ppm};
use super::super::scratch::{Scratch, ScratchArguments};
use super::stage::Side;
use super::{Part, SyncArguments};
use crate::load::paced::{self, PacedResult, PacedSpec};
use crate::load::sync::{self, Commit, SyncSpec};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use windrow_console::figures::{factor, nanoseconds};
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_host::failure::{Failure, id};
use windrow_host::{Histogram, Pool, daemon};
use windrow_load::machine::cpu_seconds;
use windrow_types::BLOCK_BYTES;

/// Seconds of a measurement.
const SECONDS: u64 = 5;
/// Goal: 99.99th percentile of writes during cleaning, relative to that without.
const GOAL_CLEANING: f64 = 4.0;
/// Share of the space that is filled if nothing is to be cleaned, in per cent.
const ROOM_FILLED: u64 = 10;
/// Volume of the neighbour, and its bytes.
const NEIGHBOUR: (&str, u64) = ("neighbour", 16 << 20);
const READS: [u64; 3] = [50_000, 99_000, 99_900];
const WRITES: [u64; 4] = [50_000, 99_000, 99_900, 99_990];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    Room,
    Cleaning,
    /// Reads and writes, on the pool of this number, with or without the neighbour.
    Shared(usize, bool),
}

fn loads(sides: &[Side]) -> Vec<Load> {
    let shared =
        (0..sides.len()).flat_map(|side| [false, true].map(|flusher| Load::Shared(side, flusher)));
    [Load::Room, Load::Cleaning]
        .into_iter()
        .chain(shared)
        .collect()
}

struct Measured {
    load: PacedResult,
    cleaned: u64,
    /// Number of flushes of the neighbour.
    flushes: u64,
    /// Processor time of the process, loads included.
    cpu_seconds: f64,
}

/// Runs the measurements.
pub fn measure_all(arguments: &SyncArguments, sides: &[Side]) -> Result<Part, Failure> {
    for side in sides {
        daemon::create_volume(&side.pool, NEIGHBOUR.0, NEIGHBOUR.1)?;
    }
    // Nothing else is on them: a quarter of the size is enough, and a new pool is created quickly.
    let size = Size(arguments.scratch.size.0 / 4);
    let room = Scratch::make(&ScratchArguments {
        size,
        ..arguments.scratch.clone()
    })?;
    let name = |what: &Load| match what {
        Load::Room => "writes, nothing cleaned".to_owned(),
        Load::Cleaning => format!("writes, cleaning ({})", sides[0].kind.name()),
        Load::Shared(side, flusher) => format!(
            "{}, {}",
            sides[*side].kind.name(),
            if *flusher { "with a flusher" } else { "alone" }
        ),
    };
    let loads = loads(sides);
    let names: Vec<String> = loads.iter().map(name).collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |number, step| {
        step.progress().note("");
        measure(arguments, sides, &room, loads[number], step)
    })?;
    Ok(part(arguments, sides, &names, &rounds))
}

fn measure(
    arguments: &SyncArguments,
    sides: &[Side],
    room: &Scratch,
    what: Load,
    step: &Step<'_>,
) -> Result<Measured, Failure> {
    let time = arguments.rounds.time(SECONDS);
    let spec = PacedSpec {
        block_bytes: BLOCK_BYTES as u32,
        span_bytes: sides[0].span,
        per_second: arguments.per_second,
        reads: matches!(what, Load::Shared(..)),
        time,
        seed: step.round as u64 + 1,
    };
    match what {
        Load::Room => {
            let pool = room.pool(SPARE_PER_MILLE, 100)?;
            let span = fill(
                &pool,
                daemon::report(&pool)?.capacity.usable_bytes / 100 * ROOM_FILLED,
                &step.label(),
            )?;
            let measured = users(
                &pool,
                &PacedSpec {
                    span_bytes: span,
                    ..spec
                },
                false,
            )?;
            match measured.cleaned {
                0 => Ok(measured),
                _ => Err(Failure::new(
                    id::BENCH_INPUT,
                    "the pool without cleaning cleaned",
                    "its members are too small for this rate and time",
                )),
            }
        }
        Load::Cleaning => users(&sides[0].pool, &spec, false),
        Load::Shared(side, flusher) => users(
            &sides[side].pool,
            &PacedSpec {
                span_bytes: sides[side].span,
                ..spec
            },
            flusher,
        ),
    }
}

/// A load at a fixed rate, with or without the neighbour.
fn users(pool: &Pool, spec: &PacedSpec, flusher: bool) -> Result<Measured, Failure> {
    let (before, cpu) = (daemon::report(pool)?, cpu_seconds());
    let stop = AtomicBool::new(false);
    let noisy = SyncSpec {
        writers: 1,
        commit: Commit::Flush(1),
        span_bytes: NEIGHBOUR.1,
        random_percent: 100,
        time: spec.time * 100,
        seed: spec.seed,
    };
    let (load, neighbour) = std::thread::scope(|scope| {
        let neighbour =
            flusher.then(|| scope.spawn(|| sync::run(pool, NEIGHBOUR.0, &noisy, &stop)));
        let load = paced::run(pool, EXPORT, spec, &AtomicBool::new(false));
        stop.store(true, Ordering::Relaxed);
        let panicked = |_| {
            Err(Failure::new(
                id::BENCH,
                "the neighbour failed",
                "it panicked",
            ))
        };
        (
            load,
            neighbour
                .map(|neighbour| neighbour.join().unwrap_or_else(panicked))
                .transpose(),
        )
    });
    let (load, neighbour) = (load?, neighbour?);
    if let Some(error) = load.error {
        return Err(Failure::new(id::BENCH_LOAD, "user requests failed", error));
    }
    let cleaned =
        daemon::report(pool)?.counters.segments_cleaned - before.counters.segments_cleaned;
    Ok(Measured {
        load,
        cleaned,
        flushes: neighbour.map_or(0, |neighbour| neighbour.commits),
        cpu_seconds: cpu_seconds() - cpu,
    })
}

fn merged(rounds: &[Measured], of: fn(&PacedResult) -> &Histogram) -> Histogram {
    let mut sum = Histogram::default();
    rounds
        .iter()
        .for_each(|measured| sum.merge(of(&measured.load)));
    sum
}

fn part(
    arguments: &SyncArguments,
    sides: &[Side],
    names: &[String],
    rounds: &[Vec<Measured>],
) -> Part {
    let heading = [
        "LOAD",
        "READS 50 %",
        "99 %",
        "99.9 %",
        "WRITES 50 %",
        "99 %",
        "99.9 %",
        "99.99 %",
        "MAX",
        "CPU",
        "SEGMENTS CLEANED",
        "FLUSHES/S OF THE NEIGHBOUR",
    ];
    let mut table = Table::new(&heading);
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for (name, rounds) in names.iter().zip(rounds) {
        let (reads, writes) = (
            merged(rounds, |load| &load.reads),
            merged(rounds, |load| &load.writes),
        );
        let seconds: f64 = rounds
            .iter()
            .map(|measured| measured.load.elapsed.as_secs_f64())
            .sum();
        let cleaned: u64 = rounds.iter().map(|measured| measured.cleaned).sum();
        let flushes =
            rounds.iter().map(|measured| measured.flushes).sum::<u64>() as f64 / seconds.max(1e-9);
        let cpu: f64 = rounds.iter().map(|measured| measured.cpu_seconds).sum();
        let shown = |histogram: &Histogram, part: u64| {
            if histogram.count() == 0 {
                "-".to_owned()
            } else {
                nanoseconds(histogram.quantile_ns(part))
            }
        };
        let mut cells = vec![name.clone()];
        cells.extend(READS.map(|part| shown(&reads, part)));
        cells.extend(WRITES.map(|part| shown(&writes, part)));
        cells.extend([
            shown(&writes, 100_000),
            format!("{:.0} %", cpu / seconds.max(1e-9) * 100.0),
            cleaned.to_string(),
            format!("{flushes:.0}"),
        ]);
        table.row(cells);
        rows.push(json!({
            "what": name, "reads": reads.summary(), "writes": writes.summary(), "segments_cleaned": cleaned, "neighbour_flushes_per_second": flushes as u64,
            "cpu_ppm": ppm(cpu / seconds.max(1e-9)),
            "rounds": rounds.iter().map(|measured| json!({
                "reads": measured.load.reads.summary(), "writes": measured.load.writes.summary(), "segments_cleaned": measured.cleaned,
                "cpu_ppm": ppm(measured.cpu_seconds / measured.load.elapsed.as_secs_f64().max(1e-9)),
            })).collect::<Vec<_>>(),
        }));
        all.push((reads, writes));
    }
    let of = |at: usize, part: u64| all[at].1.quantile_ns(part) as f64;
    let goal = of(1, 99_990) / of(0, 99_990).max(1.0);
    let ratio = |at: usize, part: u64, pick: fn(&(Histogram, Histogram)) -> &Histogram| {
        let ratio = pick(&all[at + 1]).quantile_ns(part) as f64
            / pick(&all[at]).quantile_ns(part).max(1) as f64;
        factor(ppm(ratio))
    };
    let beside = |(side, at): (&Side, usize)| {
        let name = side.kind.name();
        let both = [50_000, 99_900].map(|part| {
            [
                ratio(at, part, |both| &both.0),
                ratio(at, part, |both| &both.1),
            ]
        });
        format!(
            "{name}, with the neighbour to without: reads 50 % {}, 99.9 % {}; writes 50 % {}, 99.9 % {}\n",
            both[0][0], both[1][0], both[0][1], both[1][1]
        )
    };
    let beside: String = sides.iter().zip((2..).step_by(2)).map(beside).collect();
    let (rate, time) = (
        arguments.per_second,
        arguments.rounds.time(SECONDS).as_secs_f64(),
    );
    let text = format!(
        "latency at a fixed rate of {rate} requests of 4 KiB per second, {time:.1} s each; with the neighbour half of them are reads\n{}{}",
        table.render(),
        beside
    );
    let goals = vec![Goal::at_most(
        "99.99 % of writes during cleaning, to those without:",
        goal,
        GOAL_CLEANING,
    )];
    Part {
        value: Value::Array(rows),
        text,
        goals,
    }
}
