//! The `windrow-lab` command: simulates and replays loads, measures write amplification by policy,
//! plans arrays, and advises.
//!
//! Exit codes: 0 done; 4 failed (the error line starts with a stable id such as `WR-TRACE-001`); 2
//! wrong usage of the command line. A result that cannot be written is a failure; 141 if its reader
//! went away.

// These macros panic if the reader is gone; use `output` instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod drawing;
mod report;
mod sim;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use windrow_console::output::{self, Format, Output};
use windrow_console::{start, usage};

/// The laboratory of Windrow: write amplification, simulated, replayed, planned.
#[derive(Parser)]
#[command(name = "windrow-lab", version, about, max_term_width = 120, after_help = EXAMPLES)]
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
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  windrow-lab sim run --policy greedy                  simulate a policy
  windrow-lab trace info trace.csv                     see the load of a trace
  windrow-lab replay trace.csv                         replay it by policy
  windrow-lab advise trace.csv                         get settings for it
  windrow-lab plan drives                              see known drives

Environment: WINDROW_RUN, WINDROW_STATE, WINDROW_LOG as for windrow.
Exit codes: 0 done, 2 wrong usage, 4 failed.";

#[derive(Subcommand)]
enum Command {
    /// Plan arrays: capacity, cost, random writes, endurance, by drive and topology; write
    /// amplification by layer.
    Plan(commands::plan::PlanArguments),
    /// Inspect and convert block traces.
    #[command(subcommand)]
    Trace(commands::trace::TraceCommand),
    /// Replay a block trace on a simulated pool: write amplification by policy.
    Replay(commands::replay::ReplayArguments),
    /// Advise on policy, segment size, spare factor and trims for the load of a trace, with the
    /// expected gains.
    Advise(commands::advise::AdviseArguments),
    /// Simulate write amplification: workloads, traces, policies, and variants.
    #[command(subcommand)]
    Sim(sim::SimCommand),
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
            Command::Plan(arguments) => commands::plan::run(&arguments, &output),
            Command::Trace(command) => commands::trace::run(&command, &output),
            Command::Replay(arguments) => commands::replay::run(&arguments, &output),
            Command::Advise(arguments) => commands::advise::run(&arguments, &output),
            Command::Sim(command) => sim::run(command, &output),
        },
    )
}

#[cfg(test)]
mod tests;
