//! The `windrow-bench` command: reproducible benchmarks whose figure is a ratio within one run.
//!
//! Compared items are measured in turn, round by round, so that a disturbance affects both sides;
//! medians over the rounds are shown, and the median of the ratios of each round. Every command
//! prints text or JSON, reports which goals were reached, and draws a chart.

// These macros panic if the reader is gone; use `output` instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod case;
mod chart;
mod dedup;
mod engine;
mod journal_study;
mod load;
mod metadata;
mod nbd;
mod read;
mod rebuild;
mod recovery;
mod reduce;
mod report;
mod rounds;
mod scratch;
mod steady;
mod sync;
mod table;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use windrow_console::output::{self, Format, Output};
use windrow_console::{start, usage};

/// Reproducible benchmarks of Windrow.
#[derive(Parser)]
#[command(name = "windrow-bench", version, about, max_term_width = 120)]
struct Arguments {
    /// Form of the output; JSON has a schema name and exact integers.
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        value_enum,
        default_value = "text"
    )]
    output: Format,
    #[command(subcommand)]
    command: Benchmark,
}

/// The benchmarks.
#[derive(Subcommand)]
enum Benchmark {
    /// Load in process on memory or on files; files against their own linear rate.
    Engine(engine::EngineArguments),
    /// Request sizes from 4 KiB to 256 KiB, 1 to 100 writers, the latency of one writer: reads,
    /// writes, mixes.
    Table(table::TableArguments),
    /// Random reads of a full volume, in process and over NBD, against the same members read raw.
    Read(read::ReadArguments),
    /// Fill to a share of the space, overwrite at random, compare cleaning with the closed form.
    Steady(steady::SteadyArguments),
    /// Small synchronous writes on nearly full pools in their steady state, with and without a
    /// journal.
    Sync(sync::SyncArguments),
    /// Dedicated journal devices: a published study repeated on modelled members, in virtual time.
    JournalStudy(journal_study::JournalStudyArguments),
    /// NBD with fio: this server against other ones.
    Nbd(nbd::NbdArguments),
    /// Time to open a pool after a kill just before the next checkpoint was due.
    Recovery(recovery::RecoveryArguments),
    /// Compression: processor time against the plain path and the codec alone, and stored sizes
    /// against the codec's output.
    Reduce(reduce::ReduceArguments),
    /// Deduplication: its rate with LZ4 against LZ4 alone, and the share of duplicates found with
    /// little memory.
    Dedup(dedup::DedupArguments),
    /// File systems: compression of data, metadata and journal, and their shares of all writes.
    Metadata(metadata::MetadataArguments),
    /// Rebuild of a member against the raw members, and its effect on user latency.
    Rebuild(rebuild::RebuildBenchArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::tell(&error, Arguments::command(), |_| usage::USAGE),
    };
    start::surroundings();
    start::log(false);
    let output = Output::new(arguments.output);
    output::finish(
        &output,
        match arguments.command {
            Benchmark::Engine(arguments) => engine::run(&arguments, &output),
            Benchmark::Table(arguments) => table::run(&arguments, &output),
            Benchmark::Read(arguments) => read::run(&arguments, &output),
            Benchmark::Steady(arguments) => steady::run(&arguments, &output),
            Benchmark::Sync(arguments) => sync::run(&arguments, &output),
            Benchmark::JournalStudy(arguments) => journal_study::run(&arguments, &output),
            Benchmark::Nbd(arguments) => nbd::run(&arguments, &output),
            Benchmark::Recovery(arguments) => recovery::run(&arguments, &output),
            Benchmark::Reduce(arguments) => reduce::run(&arguments, &output),
            Benchmark::Dedup(arguments) => dedup::run(&arguments, &output),
            Benchmark::Metadata(arguments) => metadata::run(&arguments, &output),
            Benchmark::Rebuild(arguments) => rebuild::run(&arguments, &output),
        },
    )
}

#[cfg(test)]
mod tests;
