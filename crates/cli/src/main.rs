//! The `windrow` command: pools, volumes, the daemon that serves them, and reports on both.
//!
//! Exit codes:
//! - 0: done.
//! - 2: wrong usage of the command line (16 of `check` and `pool scrub`, 4 of
//!   `pool status --exit-code`).
//! - 4: failed; the error line starts with a stable id such as `WR-POOL-001`. A result that cannot
//!   be written is a failure.
//! - 141: the reader of the result went away.
//! - `pool status --exit-code`: 0 online, 3 online and filled beyond a warning, 1 degraded, 2
//!   stopped, 4 error.
//! - `check`: 0 sound, 1 rebuilt, 4 errors found, 8 could not run.

// These macros panic if the reader has gone; `output` has functions that do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod daemons;
mod demo;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use windrow_console::output::{Format, Output};
use windrow_console::{FAILED, start, usage};

/// Log-structured, parity-protected storage: random writes at the speed of linear ones.
#[derive(Parser)]
#[command(name = "windrow", version, about, max_term_width = 120, after_help = EXAMPLES)]
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
  windrow demo                                         see it work, in under two minutes
  windrow pool create --redundancy 6 tank /dev/sd[b-i]  make a pool of eight drives
  windrow serve tank --nbd unix:/run/windrow/tank.nbd  serve it
  windrow volume create tank/data 10G                  make a volume; it is served at once
  windrow pool status                                  see how it is

Environment: WINDROW_RUN (sockets), WINDROW_STATE (registry of pools), WINDROW_LOG (log filter, e.g. info).
Exit codes: 0 done, 2 wrong usage, 4 failed; see `pool status --help` and `check --help` for theirs.";

#[derive(Subcommand)]
enum Command {
    /// Create, import, export, destroy and look at pools.
    #[command(subcommand)]
    Pool(commands::pool::PoolCommand),
    /// Create, list, resize and delete volumes.
    #[command(subcommand)]
    Volume(commands::volume::VolumeCommand),
    /// Serve a pool: the daemon.
    Serve(Box<commands::serve::ServeArguments>),
    /// Add, list and remove exports of a served pool.
    #[command(subcommand)]
    Export(commands::export::ExportCommand),
    /// Show bytes by cause, write amplification, limits and latencies.
    Stats(commands::stats::StatsArguments),
    /// Show the content of a member, without the engine.
    Inspect(commands::inspect::InspectArguments),
    /// Show the identity of a device, for udev.
    #[command(hide = true)]
    InspectId(commands::inspect_id::InspectIdArguments),
    /// Check a pool that is not served; with --repair, repair what redundancy covers.
    Check(commands::inspect::CheckArguments),
    /// Demonstrate members, pool, load, kill, recovery, verification and figures.
    Demo(demo::DemoArguments),
    /// Print the completion script of a shell.
    Completions(commands::completions::CompletionArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::tell(&error, Arguments::command(), usage_code),
    };
    start::surroundings();
    let is_daemon = matches!(arguments.command, Command::Serve(_));
    start::log(is_daemon);
    let output = Output::new(arguments.output);
    // For a check, 4 means damage.
    let is_check = matches!(
        arguments.command,
        Command::Check(_) | Command::Pool(commands::pool::PoolCommand::Scrub(_))
    );
    let outcome = match arguments.command {
        Command::Pool(command) => commands::pool::run(command, &output),
        Command::Volume(command) => commands::volume::run(command, &output),
        Command::Serve(arguments) => commands::serve::run(*arguments, &output),
        Command::Export(command) => commands::export::run(command, &output),
        Command::Stats(arguments) => commands::stats::run(&arguments, &output),
        Command::Inspect(arguments) => commands::inspect::inspect(&arguments, &output),
        Command::InspectId(arguments) => commands::inspect_id::run(&arguments),
        Command::Check(arguments) => commands::inspect::check(&arguments, &output),
        Command::Demo(arguments) => demo::run(&arguments, &output),
        Command::Completions(arguments) => commands::completions::run(&arguments),
    };
    let code = outcome.unwrap_or_else(|failure| {
        output.failure(&failure);
        FAILED
    });
    let code = windrow_console::output::end(
        code,
        if is_check {
            windrow_inspect::exit::OPERATIONAL
        } else {
            FAILED
        },
    );
    windrow_console::output::flush_log();
    ExitCode::from(code)
}

/// Exit code of a command line that cannot be understood. Commands with codes like those of `fsck`,
/// and `pool status --exit-code`, give 2 and 4 other meanings: a mistyped flag must not be taken
/// for a state of the pool.
fn usage_code(words: &[String]) -> u8 {
    /// As in `fsck`.
    const OF_CHECKS: u8 = 16;
    let begins = |name: &[&str]| {
        usage::without_output(words)
            .take(name.len())
            .eq(name.iter().copied())
    };
    if begins(&["check"]) || begins(&["pool", "scrub"]) {
        OF_CHECKS
    } else if begins(&["pool", "status"]) && words.iter().any(|word| word == "--exit-code") {
        FAILED
    } else {
        usage::USAGE
    }
}

#[cfg(test)]
mod tests;
