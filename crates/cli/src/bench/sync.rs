//! `bench sync`: small synchronous writes on two pools that differ in nothing but the journal.
//!
//! 1 Each pool, on members of its own, is filled to the share asked for and overwritten at random until it cleans.
//! 2 Synchronous writers go on until members were written as often as there was space left: then rows that flushes padded are part of what is cleaned.
//! 3 Every load runs on both pools in turn, round by round. Rates and latencies are those of the writers; bytes by cause and device flushes are those of the
//!   members' own counters, summed over all rounds, so that a batch that begins in one measurement and ends in the next counts once.

mod findings;
mod stage;

use super::machine::Meter;
use super::report::ReportArguments;
use super::rounds::{RoundArguments, alternate, at_least_one, seconds};
use super::scratch::ScratchArguments;
use crate::load::sync::Commit;
use crate::output::Output;
use crate::values::{Share, Size};
use clap::Args;
use stage::{Sample, Side};
use std::time::Duration;
use windrow_host::failure::Failure;

/// Arguments of `bench sync`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow bench sync
  windrow bench sync --dir /var/tmp --size 1G --threads 1,16
  windrow bench sync --load flush,fua --full 70% --seconds 5 -o json")]
pub struct SyncArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Numbers of writers, each with a thread.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16", value_parser = at_least_one)]
    threads: Vec<usize>,
    /// What each writer does again and again: `flush` (one random block of 4 KiB, then a flush), `flush-N` (N blocks, then a flush), `fua` (one block, written with
    /// FUA), `log` (one block appended, a header written again, then a flush).
    #[arg(long, value_delimiter = ',', default_value = "flush,flush-8,flush-32,fua,log", value_parser = load)]
    load: Vec<Load>,
    /// Share of the usable space that is live.
    #[arg(long, default_value = "90%")]
    full: Share,
    /// Overwrites without flushes before the synchronous ones, in multiples of the live data.
    #[arg(long, default_value = "1", value_parser = at_least_one)]
    overwrites: usize,
    /// Longest time for which synchronous writers run before the measurements.
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    settle: Duration,
    /// Bytes of the journal on each member; else by member size.
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
        Some(("flush", blocks)) => Commit::Flush(blocks.parse().ok().filter(|blocks| (1..=1024).contains(blocks)).ok_or("a flush follows 1 to 1024 blocks")?),
        _ => return Err(format!("'{text}' is not one of flush, flush-N, fua and log")),
    };
    Ok(Load { name: text.to_owned(), commit })
}

/// One load with so many writers.
struct Case<'a> {
    threads: usize,
    load: &'a Load,
}

/// Seconds of a measurement.
const SECONDS: u64 = 2;

/// Runs it.
pub fn run(arguments: &SyncArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    let time = arguments.rounds.time(SECONDS);
    let sides = [Side::make(arguments, true)?, Side::make(arguments, false)?];
    let cases: Vec<Case<'_>> = arguments.load.iter().flat_map(|load| arguments.threads.iter().map(move |threads| Case { threads: *threads, load })).collect();
    let both = |case: &Case<'_>| sides.each_ref().map(|side| format!("{} x {} on {}", case.load.name, case.threads, side.name));
    let names: Vec<String> = cases.iter().flat_map(both).collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |number, step| {
        let case = &cases[number / 2];
        step.progress().note("");
        sides[number % 2].measure(case.threads, case.load.commit, time, step.round as u64 + 1)
    })?;
    let pairs: Vec<(&Case<'_>, [&[Sample]; 2])> = cases.iter().zip(rounds.chunks(2)).map(|(case, both)| (case, [&both[0][..], &both[1][..]])).collect();
    findings::make(arguments, &sides, time, &pairs).publish(&meter, &arguments.report, output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_by_name() {
        let commit = |text: &str| load(text).map(|load| load.commit);
        assert_eq!((commit("flush"), commit("flush-8")), (Ok(Commit::Flush(1)), Ok(Commit::Flush(8))));
        assert_eq!((commit("fua"), commit("log")), (Ok(Commit::Fua), Ok(Commit::Log)));
        assert!(["", "flush-", "flush-0", "flush-9999", "fua-2", "sync"].iter().all(|text| commit(text).is_err()));
    }
}
