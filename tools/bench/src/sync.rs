//! `bench sync`: small synchronous writes on pools that differ only in the journal, against one
//! without (`padding`, always last in lists).
//!
//! 1. Each pool, on its own members, is filled to the given share and overwritten at random until
//!    it cleans.
//! 2. Synchronous writers run until they have written the remaining space once: padded rows then
//!    are part of the cleaned data.
//! 3. Every load runs on all pools in turn, round by round. Rates and latencies are those of the
//!    writers. Bytes by cause and device flushes come from the members' own counters, summed over
//!    all rounds, so that a batch over two measurements counts once.
//! 4. On the same pools: fio over NBD (`nbd.rs`), and the latency of requests at a fixed rate
//!    during cleaning and next to a flushing neighbour (`latency.rs`).

mod findings;
mod latency;
mod nbd;
pub mod stage;

use super::report::Goal;
use super::report::ReportArguments;
use super::rounds::{RoundArguments, alternate, at_least_one, seconds, writers};
use super::scratch::ScratchArguments;
use crate::load::sync::Commit;
use clap::Args;
use serde_json::Value;
use stage::{Kind, Sample, Side};
use std::time::Duration;
use windrow_console::output::Output;
use windrow_console::values::{Share, Size};
use windrow_host::failure::Failure;
use windrow_load::fio::fio_available;
use windrow_load::machine::Meter;

/// Arguments of `bench sync`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench sync
  windrow-bench sync --dir /var/tmp --size 1G --threads 1,16
  windrow-bench sync --load flush,fua --full 70% --seconds 5 -o json
  windrow-bench sync --dir /dev/shm --member-rate 20M --member-buffer 1M --members 12 --load flush
  windrow-bench sync --part writes --pool journal,device,memory --load flush
  windrow-bench sync --part latency --per-second 2000 --seconds 20")]
pub struct SyncArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Measurements: `writes` (the loads, in process), `nbd` (fio, a flush after each write, at
    /// random and as a write-ahead log; skipped if fio is not installed), `latency` (a fixed rate
    /// during cleaning, and next to a neighbour that flushes).
    #[arg(long = "part", value_delimiter = ',', default_value = "writes,nbd,latency", value_parser = ["writes", "nbd", "latency"])]
    parts: Vec<String>,
    /// Location of the journal, each in its own pool, measured against a pool without one:
    /// `journal` (on the members), `device` (one more device like the members), `memory` (a
    /// power-safe device in memory).
    #[arg(long = "pool", value_delimiter = ',', default_value = "journal", value_parser = ["journal", "device", "memory"])]
    pools: Vec<String>,
    /// Requests per second of the part `latency`.
    #[arg(long, default_value = "4000", value_parser = windrow_console::values::within::<u64>(1, 1_000_000))]
    per_second: u64,
    /// Numbers of writers, one thread each.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16", value_parser = writers)]
    threads: Vec<usize>,
    /// Repeated operation of each writer: `flush` (one random block of 4 KiB, then a flush),
    /// `flush-N` (N blocks, then a flush), `fua` (one block, written with FUA), `log` (one block
    /// appended, a header rewritten, then a flush).
    #[arg(long, value_delimiter = ',', default_value = "flush,flush-8,flush-32,fua,log", value_parser = load)]
    load: Vec<Load>,
    /// Random bytes in the data of the parts `writes` and `nbd`, in per cent; the rest is
    /// compressible, in journal records only.
    #[arg(long, default_value = "100", value_parser = windrow_console::values::within::<u32>(1, 100))]
    random: u32,
    /// Live share of the usable space.
    #[arg(long, default_value = "90%")]
    full: Share,
    /// Overwrites without flushes before the synchronous ones, in multiples of the live data.
    #[arg(long, default_value = "1", value_parser = at_least_one)]
    overwrites: usize,
    /// Maximum time of the synchronous writers before the measurements.
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    settle: Duration,
    /// Bytes of the journal on each member; default by member size.
    #[arg(long)]
    journal: Option<Size>,
}

/// A load by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Load {
    name: String,
    commit: Commit,
}

fn load(text: &str) -> Result<Load, String> {
    let commit = match text.split_once('-') {
        None if text == "flush" => Commit::Flush(1),
        None if text == "fua" => Commit::Fua,
        None if text == "log" => Commit::Log,
        Some(("flush", blocks)) => Commit::Flush(
            blocks
                .parse()
                .ok()
                .filter(|blocks| (1..=1024).contains(blocks))
                .ok_or("a flush follows 1 to 1024 blocks")?,
        ),
        _ => {
            return Err(format!(
                "'{text}' is not one of flush, flush-N, fua and log"
            ));
        }
    };
    Ok(Load {
        name: text.to_owned(),
        commit,
    })
}

/// One load with a number of writers.
struct Case<'a> {
    threads: usize,
    load: &'a Load,
}

/// Seconds of a measurement.
const SECONDS: u64 = 2;

/// Results of one part.
struct Part {
    value: Value,
    text: String,
    goals: Vec<Goal>,
}

/// Runs the benchmark.
pub fn run(arguments: &SyncArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    let time = arguments.rounds.time(SECONDS);
    let has = |part: &str| arguments.parts.iter().any(|name| name == part);
    let wanted = |kind: &Kind| {
        *kind == Kind::Padding || arguments.pools.iter().any(|name| name == kind.name())
    };
    let kinds = Kind::ALL.into_iter().filter(wanted);
    let sides = kinds
        .map(|kind| Side::make(arguments, kind))
        .collect::<Result<Vec<_>, _>>()?;
    let cases = if has("writes") {
        cases(arguments)
    } else {
        Vec::new()
    };
    let of_case = |case: &Case<'_>| {
        sides
            .iter()
            .map(|side| {
                format!(
                    "{} x {} on {}",
                    case.load.name,
                    case.threads,
                    side.kind.name()
                )
            })
            .collect::<Vec<_>>()
    };
    let names: Vec<String> = cases.iter().flat_map(of_case).collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |number, step| {
        let case = &cases[number / sides.len()];
        step.progress().note("");
        sides[number % sides.len()].measure(
            case.threads,
            case.load.commit,
            time,
            step.round as u64 + 1,
        )
    })?;
    let results: Vec<(&Case<'_>, &[Vec<Sample>])> =
        cases.iter().zip(rounds.chunks(sides.len())).collect();
    let mut findings = findings::make(arguments, &sides, time, &results);
    let mut add = |name: &str, part: Part| {
        findings.value[name] = part.value;
        findings.text.push_str(&part.text);
        findings.goals.extend(part.goals);
    };
    if has("nbd") && fio_available() {
        add("nbd", nbd::measure_all(arguments, &sides)?);
    }
    if has("latency") {
        add("latency", latency::measure_all(arguments, &sides)?);
    }
    findings.publish(&meter, &arguments.report, output)
}

fn cases(arguments: &SyncArguments) -> Vec<Case<'_>> {
    arguments
        .load
        .iter()
        .flat_map(|load| {
            arguments.threads.iter().map(move |threads| Case {
                threads: *threads,
                load,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_by_name() {
        let commit = |text: &str| load(text).map(|load| load.commit);
        assert_eq!(
            (commit("flush"), commit("flush-8")),
            (Ok(Commit::Flush(1)), Ok(Commit::Flush(8)))
        );
        assert_eq!(
            (commit("fua"), commit("log")),
            (Ok(Commit::Fua), Ok(Commit::Log))
        );
        assert!(
            ["", "flush-", "flush-0", "flush-9999", "fua-2", "sync"]
                .iter()
                .all(|text| commit(text).is_err())
        );
    }
}
