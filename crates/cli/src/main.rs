//! The `windrow` command: pools, volumes, the daemon that serves them, and what shows how well they do.
//!
//! Exit codes: 0 done; 4 failed (the error line starts with a stable id such as `WR-POOL-001`); 2 wrong usage of the command line (16 of `check` and `pool scrub`, 4 of `pool status --exit-code`).
//! A result that cannot be written is a failure; 141 if its reader went away.
//! `pool status --exit-code`: 0 online, 3 online and filled beyond a warning, 1 degraded, 2 stopped, 4 error. `check`: 0 sound, 1 rebuilt, 4 errors found, 8 could not be made.

// These macros panic where the reader has gone: `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod bench_fio;
mod commands;
mod context;
mod daemons;
mod demo;
mod drawing;
mod estimate;
mod figures;
mod files;
mod load;
mod nbd_client;
mod output;
mod progress;
mod report;
mod sim;
mod table;
mod usage;
mod values;

use clap::{Parser, Subcommand};
use output::{Format, Output};
use std::process::ExitCode;
use std::sync::Arc;

/// Exit code of a failure.
const FAILED: u8 = 4;

/// Log-structured, parity-protected storage: random writes at the speed of linear ones.
#[derive(Parser)]
#[command(name = "windrow", version, about, max_term_width = 120, after_help = EXAMPLES)]
struct Arguments {
    /// Form of the output; JSON has a schema name and exact integers.
    #[arg(short = 'o', long = "output", global = true, value_enum, default_value = "text")]
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

Environment: WINDROW_RUN (sockets), WINDROW_STATE (what is known of pools), WINDROW_LOG (log filter, e.g. info).
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
    Serve(commands::serve::ServeArguments),
    /// Add, list and remove exports of a served pool.
    #[command(subcommand)]
    Export(commands::export::ExportCommand),
    /// Show bytes by cause, write amplification, bounds and latencies.
    Stats(commands::stats::StatsArguments),
    /// Show what is on a member, without the engine.
    Inspect(commands::inspect::InspectArguments),
    /// What a device says it is, for udev.
    #[command(hide = true)]
    InspectId(commands::inspect_id::InspectIdArguments),
    /// Check a pool that is not served; with --repair, put right what redundancy covers.
    Check(commands::inspect::CheckArguments),
    /// Plan arrays: capacity, cost, random writes, endurance, by drive and topology; write amplification by layer.
    Plan(commands::plan::PlanArguments),
    /// Look at block traces, and convert them.
    #[command(subcommand)]
    Trace(commands::trace::TraceCommand),
    /// Replay a block trace on a simulated pool: write amplification by policy.
    Replay(commands::replay::ReplayArguments),
    /// Advise on policy, segment size, spare factor and trims for the load of a trace, with what it brings.
    Advise(commands::advise::AdviseArguments),
    /// Reproducible benchmarks.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Simulate write amplification: workloads, traces, policies, and what if.
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Show everything once: members, pool, load, kill, recovery, verification, figures.
    Demo(demo::DemoArguments),
    /// Print the completion script of a shell.
    Completions(commands::completions::CompletionArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::tell(&error),
    };
    settle_surroundings();
    let is_daemon = matches!(arguments.command, Command::Serve(_));
    start_log(is_daemon);
    let output = Output::new(arguments.output);
    // Of a check, 4 says that something is damaged.
    let is_check = matches!(arguments.command, Command::Check(_) | Command::Pool(commands::pool::PoolCommand::Scrub(_)));
    let outcome = match arguments.command {
        Command::Pool(command) => commands::pool::run(command, &output),
        Command::Volume(command) => commands::volume::run(command, &output),
        Command::Serve(arguments) => commands::serve::run(arguments, &output),
        Command::Export(command) => commands::export::run(command, &output),
        Command::Stats(arguments) => commands::stats::run(&arguments, &output),
        Command::Inspect(arguments) => commands::inspect::inspect(&arguments, &output),
        Command::InspectId(arguments) => commands::inspect_id::run(&arguments),
        Command::Check(arguments) => commands::inspect::check(&arguments, &output),
        Command::Plan(arguments) => commands::plan::run(&arguments, &output),
        Command::Trace(command) => commands::trace::run(&command, &output),
        Command::Replay(arguments) => commands::replay::run(&arguments, &output),
        Command::Advise(arguments) => commands::advise::run(&arguments, &output),
        Command::Bench(command) => bench::run(command, &output),
        Command::Sim(command) => sim::run(command, &output),
        Command::Demo(arguments) => demo::run(&arguments, &output),
        Command::Completions(arguments) => commands::completions::run(&arguments),
    };
    let code = outcome.unwrap_or_else(|failure| {
        output.failure(&failure);
        FAILED
    });
    let code = output::end(code, if is_check { windrow_inspect::exit::OPERATIONAL } else { FAILED });
    output::flush_log();
    ExitCode::from(code)
}

/// Takes out of what the process was started with what would cost more than a command.
fn settle_surroundings() {
    // What others can write to they can also make believe: no mask lets that happen by itself.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask | rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    // A write behind the limit on the size of files is an error, as on a full file system, and not the end of the process.
    drop(signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()));
    windrow_device::host::raise_file_size_limit();
}

/// The log goes to standard error. Errors: something was lost or stopped; warnings: it goes on, but somebody should look; info: changes
/// of state. Nothing is logged for single requests.
/// That of a daemon goes through a queue: no thread of it may ever wait for the reader of standard error. The message of a panic goes there too, as it comes from
/// any thread, also from the one that has the engine.
fn start_log(is_daemon: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WINDROW_LOG").unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    // The reader of the log may be gone; to complain of that on standard error would end the thread that had something to log.
    let log = tracing_subscriber::fmt().log_internal_errors(false).with_env_filter(filter).with_target(false);
    let queue = is_daemon.then(output::queue_log).flatten();
    match queue {
        Some(queue) => {
            log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).with_writer(move || queue.clone()).init();
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        }
        None => log.with_writer(std::io::stderr).init(),
    }
}

#[cfg(test)]
mod tests;
